"""Binder without Docker: what repo2docker's own code reads from the repository, and its steps, executed in a fresh environment.

What cannot be had on this machine is substituted, and a warning says so: where PyTorch's wheel index does not answer, torch of
the running environment stands in for the CPU wheels; another Python stands in for 3.12 where that one is not installed. Ubuntu,
conda's own packages (pip installs the same versions) and JupyterHub's login are not covered.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

INDEX = "https://download.pytorch.org/whl/cpu"
# Of conda's lock: what a notebook page is made of.
JUPYTER = ("jupyterlab", "notebook", "jupyter_server", "jupyterlab_server", "ipykernel", "ipywidgets", "nbformat",
           "nbconvert-core", "setuptools")  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """What repo2docker makes of the repository."""

    pack: str
    python: str
    dockerfile: str
    pip: str  # the command that installs binder/requirements.txt
    post_build: list[str]
    start: str
    pins: dict[str, str]  # Jupyter's packages in conda's lock


def recipe(repository: Path) -> Recipe:
    """Read the repository as mybinder does: without a default build pack.

    Raises
    ------
    ValueError
        Where repo2docker finds no recipe, or one with steps that are not known here.
    """
    from repo2docker import buildpacks
    from repo2docker.app import Repo2Docker

    app = Repo2Docker()
    app.default_buildpack = None
    before = Path.cwd()
    os.chdir(repository)
    try:
        for kind in app.buildpacks:
            pack = kind(base_image=app.base_image)
            pack.platform = "linux/amd64"
            if pack.detect():
                break
        else:
            raise ValueError("repo2docker finds no environment specification")
        scripts = pack.get_preassemble_scripts()
        if len(scripts) != 1 or pack.get_assemble_scripts():
            raise ValueError(f"other steps than one pip command: {scripts}, {pack.get_assemble_scripts()}")
        lock = Path(buildpacks.__file__).parent / "conda" / f"environment.py-{pack.python_version}-linux-64.lock"
        pins = dict(re.findall(r"^https://.*/([\w-]+?)-(\d[\w.]*)-[^-/]+\.conda", lock.read_text(), flags=re.M))
        return Recipe(
            type(pack).__name__, pack.python_version, pack.render({}), scripts[0][1], pack.get_post_build_scripts(),
            pack.get_start_script(), {name: pins[name] for name in JUPYTER},
        )  # fmt: skip
    finally:
        os.chdir(before)


def requirements(repository: Path) -> list[str]:
    """The lines of binder/requirements.txt that are no comment."""
    text = (repository / "binder/requirements.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def index_answers() -> bool:
    """Whether PyTorch's wheel index can be reached."""
    try:
        with urllib.request.urlopen(f"{INDEX}/torch/", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def closure(names: Iterable[str]) -> set[str]:
    """The installed distributions that these need, themselves included."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        try:
            needs = [Requirement(text) for text in importlib.metadata.requires(name) or ()]
        except importlib.metadata.PackageNotFoundError:
            continue
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def lend(folder: Path, names: Iterable[str]) -> None:
    """Fill a folder with links to the installed files of these distributions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        try:
            files = importlib.metadata.files(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for top in {Path(str(file)).parts[0] for file in files} - {"..", "__pycache__"}:
            source = Path(str(importlib.metadata.distribution(name).locate_file(top)))
            if source.exists() and not (folder / top).exists():
                (folder / top).symlink_to(source)


def build(plan: Recipe, repository: Path, folder: Path) -> bool:
    """Make the environment in `folder` and execute the recipe's commands in the repository; may change its requirements.

    Returns
    -------
    bool
        Whether the torch in it is the recipe's own.
    """
    real = index_answers()
    python = shutil.which(f"python{plan.python}") if real else None
    subprocess.run([python or sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    jupyter = [f"{name.removesuffix('-core')}=={version}" for name, version in plan.pins.items()]
    subprocess.run([*install, *jupyter], check=True, timeout=1200)
    if not real:
        lines = requirements(repository)
        own = [line.split("==")[0] for line in lines if "==" in line and not line.startswith("torch")]
        site = next((folder / "lib").glob("python3.*")) / "site-packages"
        lend(folder / "lent", closure(["torch", "torchvision"]) - closure(own) - {"setuptools"})
        (site / "lent.pth").write_text(f"{folder / 'lent'}\n")
        kept = [line for line in lines if not line.startswith(("--extra-index-url", "torch"))]
        (repository / "binder/requirements.txt").write_text("\n".join(kept) + "\n")
        torch, vision = (importlib.metadata.version(name) for name in ("torch", "torchvision"))
        warnings.warn(f"Binder: {INDEX} does not answer; torch {torch} and torchvision {vision} stand in", stacklevel=2)
    if python is None:
        warnings.warn(f"Binder: Python {sys.version.split()[0]} stands in for {plan.python}", stacklevel=2)
    settings = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JUPYTER", "VIRTUAL"))}
    settings |= {
        "PATH": os.pathsep.join([str(folder / "bin"), "/usr/bin", "/bin"]),
        "KERNEL_PYTHON_PREFIX": str(folder),
    }
    for command in (f"{plan.pip} --no-compile", f"./{plan.post_build[0]}"):
        done = subprocess.run(
            ["bash", "-c", command], cwd=repository, env=settings, capture_output=True, text=True, timeout=1200
        )
        if done.returncode:
            raise RuntimeError(f"{command} failed:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return real


class Peak(threading.Thread):
    """The most memory (PSS, MB) that a process and its descendants held together while this ran."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.megabytes, self._end = pid, 0.0, threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.5):
            self.megabytes = max(self.megabytes, tree_pss(self.pid))

    def stop(self) -> float:
        self._end.set()
        self.join()
        return self.megabytes


def tree_pss(pid: int) -> float:
    """MB that a process and its descendants hold, shared pages shared out."""
    try:
        root = psutil.Process(pid)
        everyone = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    total = 0.0
    for process in everyone:
        try:
            total += process.memory_full_info().pss / 2**20
        except psutil.Error:
            continue
    return total
