"""How long it takes to a usable notebook, how large Binder's environment is, and how much memory its server takes.

A real browser opens chapter 1. Binder's environment is made by the recipe's own steps, as the tests do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import binder_recipe as recipes  # noqa: E402 - after the path
from browser import Lab, browser, home, private, serve  # noqa: E402

NOTEBOOK = "01_basics/basics.ipynb"
LIMIT = 2048.0  # MB, what Binder gives
REPEATS = 3


def rows() -> list[dict[str, Any]]:
    """Seconds to a usable notebook, MB of Binder's environment, MB of its server.

    Returns
    -------
    list of dict
        `name`, `value`, `unit`, `reference` (Binder's limit, where there is one) and `ratio` (reference / value).
    """
    seconds = sorted(start() for _ in range(REPEATS))[REPEATS // 2]
    name = "launch: from `make start` on an installed environment to a notebook whose kernel is ready"
    table = [{"name": name, "value": seconds, "unit": "s", "reference": None, "ratio": None}]
    return table + on_binder()


def start() -> float:
    """Seconds from JupyterLab's command, as `make start` gives it, until chapter 1's kernel is ready in a browser."""
    with tempfile.TemporaryDirectory() as scratch, home() as person, browser() as chromium:
        folder = Path(scratch)
        shutil.copytree(ROOT / "course", folder / "course", ignore=shutil.ignore_patterns("__pycache__"))
        began = time.perf_counter()
        with serve(folder, private(person, folder / "course")) as server:
            lab = Lab(chromium, server, folder)
            lab.open(f"course/{NOTEBOOK}", settle=0)
            seconds = time.perf_counter() - began
            lab.close()
    return seconds


def on_binder() -> list[dict[str, Any]]:
    """The size of the environment that the recipe makes, and the peak of the server's memory while chapter 1 runs."""
    with tempfile.TemporaryDirectory() as scratch, home() as person, browser() as chromium:
        repository, folder = Path(scratch) / "repository", Path(scratch) / "env"
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, check=True)  # fmt: skip
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (repository / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, repository / name)
        plan = recipes.recipe(repository)
        whole = recipes.build(plan, repository, folder)
        size = sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_symlink()) / 2**20
        settings = private(person) | {"PATH": os.pathsep.join([str(folder / "bin"), "/usr/bin", "/bin"])}
        del settings["PYTHONPATH"]
        command = (plan.start.replace("${REPO_DIR}", str(repository)), str(folder / "bin/jupyter-lab"))
        with serve(repository, settings, base_url="/user/somebody/", command=command) as server:
            peak = recipes.Peak(server.process.pid)
            peak.start()
            lab = Lab(chromium, server, Path(scratch))
            lab.open(f"course/{NOTEBOOK}")
            lab.run_all()
            memory = peak.stop()
            lab.close()
    name = "launch: Binder's environment" + ("" if whole else ", without torch (0.7 GB), which is lent here")
    return [
        {"name": name, "value": size, "unit": "MB", "reference": None, "ratio": None},
        {"name": "launch: peak memory of Binder's server with chapter 1 run, against its limit", "value": memory, "unit": "MB",
         "reference": LIMIT, "ratio": LIMIT / memory},
    ]  # fmt: skip


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']:90} {row['value']:8.1f} {row['unit']}")
