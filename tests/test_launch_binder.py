"""Binder without Docker: repo2docker's own code reads the recipe, then its steps are executed and every notebook is run.

What cannot be had on the machine that tests is substituted, and the report says so: where PyTorch's wheel index does not answer,
the torch of the running environment stands in for the CPU wheels; another Python stands in for 3.12 where that one is not
installed. Ubuntu, conda's own packages (pip installs the same versions) and JupyterHub's login are not covered.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import urllib.request
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import Lab, browser, failures, grade_of, home, private, serve, shown_points

from autograder.chapters import COURSE, ROOT

INDEX = "https://download.pytorch.org/whl/cpu"
MEMORY = 1600  # MB of the 2 GB that Binder gives
# Of conda's lock: what a notebook page is made of. pip installs the same versions.
JUPYTER = (
    "jupyterlab",
    "notebook",
    "jupyter_server",
    "jupyterlab_server",
    "ipykernel",
    "ipywidgets",
    "nbformat",
    "nbconvert-core",
    "setuptools",
)


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


@pytest.fixture(scope="module")
def recipe(copy):
    """repo2docker under mybinder's settings: no default build pack."""
    from repo2docker import buildpacks
    from repo2docker.app import Repo2Docker

    app = Repo2Docker()
    app.default_buildpack = None
    before = Path.cwd()
    os.chdir(copy)
    try:
        for kind in app.buildpacks:
            pack = kind(base_image=app.base_image)
            pack.platform = "linux/amd64"
            if pack.detect():
                break
        else:
            pytest.fail("repo2docker finds no environment specification")
        (_, pip), *others = pack.get_preassemble_scripts()
        assert others == [] and pack.get_assemble_scripts() == []
        lock = Path(buildpacks.__file__).parent / "conda" / f"environment.py-{pack.python_version}-linux-64.lock"
        pins = {}
        for line in lock.read_text().splitlines():
            if found := re.match(r"https://.*/([\w-]+?)-(\d[\w.]*)-[^-]+\.conda", line):
                pins[found[1]] = found[2]
        return Recipe(
            type(pack).__name__, pack.python_version, pack.render({}), pip, pack.get_post_build_scripts(),
            pack.get_start_script(), {name: pins[name] for name in JUPYTER},
        )  # fmt: skip
    finally:
        os.chdir(before)


def lines():
    text = (ROOT / "binder/requirements.txt").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_repo2docker_reads_the_recipe(recipe):
    assert (recipe.pack, recipe.python) == ("PythonBuildPack", "3.12")
    assert recipe.pip.endswith('pip install --no-cache-dir -r "binder/requirements.txt"')
    assert recipe.post_build == ["binder/postBuild"] and recipe.start == "${REPO_DIR}/binder/start"
    steps = [
        recipe.dockerfile.index(words) for words in (recipe.pip, "COPY --chown=1000:1000 src/ ", "./binder/postBuild")
    ]
    assert steps == sorted(steps), (
        "torch is installed before the course is copied: a new commit does not install it again"
    )
    assert recipe.pins["jupyterlab"].startswith("4.")


def test_the_requirements_are_self_contained_and_pinned_like_the_tests():
    assert not [line for line in lines() if line.startswith(("-r", "-c", "-e", ".", "/", "git+"))]
    pinned = dict(line.split("==") for line in lines() if "==" in line)
    assert pinned.pop("torch") == "2.11.0+cpu" and pinned.pop("torchvision") == "0.26.0+cpu"
    tested = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.M))
    assert pinned == {name: tested[name] for name in pinned}
    assert [line for line in lines() if "==" not in line] == [f"--extra-index-url {INDEX}"]
    assert {"numpy", "scipy", "matplotlib", "tqdm", "nbgrader"} == set(pinned)
    assert "jupyterlab" not in "".join(lines()), "Binder brings its own"


def test_scripts_can_be_executed_and_read():
    for name in ("postBuild", "start"):
        path = ROOT / "binder" / name
        assert os.access(path, os.X_OK) and path.read_text().startswith("#!/bin/bash\n")
        assert subprocess.run(["bash", "-n", str(path)]).returncode == 0
    assert (ROOT / "binder/start").read_text().endswith('exec "$@"\n')
    assert sorted(p.name for p in (ROOT / "binder").iterdir()) == [
        "postBuild",
        "requirements.txt",
        "runtime.txt",
        "start",
    ]
    assert (ROOT / "binder/runtime.txt").read_text() == "python-3.12\n"


def test_the_helper_says_of_itself_what_the_repository_says():
    own = tomllib.loads((COURSE / "pyproject.toml").read_text())
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for key in ("name", "version", "description", "license", "requires-python", "dependencies"):
        assert own["project"][key] == whole["project"][key]
    assert own["tool"]["setuptools"]["package-data"] == whole["tool"]["setuptools"]["package-data"]


# --- the recipe's steps, executed -------------------------------------------------------------------------------------


def index_answers() -> bool:
    try:
        with urllib.request.urlopen(f"{INDEX}/torch/", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def closure(*names: str) -> set[str]:
    """The installed distributions that these need, themselves included."""
    from packaging.requirements import Requirement

    found, waiting = set(), list(names)
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


def lend_torch(folder: Path) -> None:
    """Links to the running environment's torch and what it alone needs; numpy and its kind come from the recipe."""
    folder.mkdir()
    own = {line.split("==")[0] for line in lines() if "==" in line} - {"torch", "torchvision"}
    for name in closure("torch", "torchvision") - closure(*own) - {"setuptools"}:
        try:
            files = importlib.metadata.files(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for top in {Path(str(file)).parts[0] for file in files} - {"..", "__pycache__"}:
            source = Path(str(importlib.metadata.distribution(name).locate_file(top)))
            if source.exists() and not (folder / top).exists():
                (folder / top).symlink_to(source)


@pytest.fixture(scope="module")
def environment(recipe, copy, tmp_path_factory):
    """A fresh environment with Binder's Jupyter, in which the recipe's commands were executed; its folder."""
    real = index_answers()
    python = shutil.which(f"python{recipe.python}") if real else None
    folder = tmp_path_factory.mktemp("binder") / "env"
    subprocess.run([python or sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    jupyter = [f"{name.removesuffix('-core')}=={version}" for name, version in recipe.pins.items()]
    subprocess.run([*install, *jupyter], check=True, timeout=900)

    requirements = copy / "binder/requirements.txt"
    if not real:
        site = next((folder / "lib").glob("python3.*")) / "site-packages"
        lend_torch(folder / "lent")
        (site / "lent.pth").write_text(f"{folder / 'lent'}\n")
        kept = [line for line in lines() if not line.startswith(("--extra-index-url", "torch"))]
        requirements.write_text("\n".join(kept) + "\n")
        torch, vision = (importlib.metadata.version(name) for name in ("torch", "torchvision"))
        warnings.warn(f"Binder: {INDEX} does not answer; torch {torch} and torchvision {vision} stand in", stacklevel=1)
    if python is None:
        warnings.warn(f"Binder: Python {sys.version.split()[0]} stands in for {recipe.python}", stacklevel=1)
    paths = {"PATH": os.pathsep.join([str(folder / "bin"), "/usr/bin", "/bin"]), "KERNEL_PYTHON_PREFIX": str(folder)}
    settings = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JUPYTER", "VIRTUAL"))} | paths
    for command in (f"{recipe.pip} --no-compile", f"./{recipe.post_build[0]}"):
        done = subprocess.run(
            ["bash", "-c", command], cwd=copy, env=settings, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return folder


class Peak(threading.Thread):
    """The most memory (PSS, MB) that a process and its descendants held together."""

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
    import psutil

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


@pytest.fixture(scope="module")
def server(environment, recipe, copy):
    """The server as Binder starts it: through binder/start, below a base URL, in the copy of the repository."""
    start = recipe.start.replace("${REPO_DIR}", str(copy))
    with home() as folder:
        settings = private(folder) | {"PATH": os.pathsep.join([str(environment / "bin"), "/usr/bin", "/bin"])}
        del settings["PYTHONPATH"]
        command = (start, str(environment / "bin/jupyter-lab"))
        with serve(copy, settings, base_url="/user/under-the-hood-ab12cd/", command=command) as running:
            peak = Peak(running.process.pid)
            peak.start()
            yield running, peak
            peak.stop()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_environment_holds_the_helper_and_nothing_of_the_graders(environment):
    ask = "import importlib.util as u; print(bool(u.find_spec('underhood')), bool(u.find_spec('autograder')))"
    done = subprocess.run([environment / "bin/python", "-I", "-c", ask], capture_output=True, text=True, cwd="/")
    assert done.stdout == "True False\n", done.stderr
    done = subprocess.run([environment / "bin/pip", "check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_notebook_runs_on_binder(chapter, server, copy, tmp_path_factory, record_property):
    running, peak = server
    shots = Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    with browser() as chromium:
        lab = Lab(chromium, running, shots)
        for path in sorted((copy / "course" / chapter).glob("*.ipynb")):
            lab.open(path.relative_to(copy).as_posix())
            cells = lab.run_all()
            lab.shot(f"binder-{chapter}-{path.stem}")
            assert failures(cells) == []
            graded = [grade_of(c) for c in cells if c["metadata"].get("nbgrader", {}).get("grade")]
            assert graded and shown_points(cells) == dict.fromkeys(graded, 0.0)
            assert lab.page.get_by_role("button", name="Validate").first.is_visible()
            assert lab.page.locator(".lm-MenuBar-item", has_text="Nbgrader").count() == 0
            assert lab.page.get_by_text("Create Assignment").count() == 0
            assert lab.page.get_by_text("notified about official Jupyter news").count() == 0
            lab.shut_down()
        assert lab.errors == [] and lab.outside == []
        lab.close()
    record_property("peak_pss_megabytes", round(peak.megabytes))
    print(f"\npeak of the server and its kernel: {peak.megabytes:.0f} MB")
    assert 100 < peak.megabytes < MEMORY
