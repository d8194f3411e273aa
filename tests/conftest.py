"""What the tests share: every exercise with its chapter, and the folder of the repository."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Started in the background of a script, this process and all that it starts would not hear Ctrl-C, which some tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)

from autograder import chapters, exercises  # noqa: E402 - after the thread limits

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chapter", action="append", help="only this chapter, e.g. 02_autograd (may be repeated)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`chapter`, `exercise` and `mistake` arguments run over all there are; `pytest --chapter 02_autograd` picks one."""
    names = metafunc.fixturenames
    wanted = metafunc.config.getoption("--chapter") or chapters()
    if "exercise" in names:
        every = [exercise for chapter in wanted for exercise in exercises(chapter)]
        if "mistake" in names:
            pairs = [(e, m) for e in every for m in e.mistakes]
            metafunc.parametrize("exercise, mistake", pairs, ids=[f"{e.chapter}-{e.name}-{m.name}" for e, m in pairs])
        else:
            metafunc.parametrize("exercise", every, ids=[f"{e.chapter}-{e.name}" for e in every])
    elif "chapter" in names:
        metafunc.parametrize("chapter", wanted)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that git knows or would add, in a folder with a space and an umlaut in its name."""
    to = tmp_path_factory.mktemp("copy of the repository ü")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            target = to / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    return to


@pytest.fixture(scope="module")
def run(copy: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run a command in the copy, with the copy's packages first on the path."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    packages = os.pathsep.join([str(copy), str(copy / "course")])
    environment = os.environ | {"PYTHONPATH": packages, "PATH": programs}

    def run(*command: str, timeout: float = 600) -> subprocess.CompletedProcess:
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=timeout)

    return run


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """A repository with the toy chapter."""
    import toy

    folder = tmp_path_factory.mktemp("toy")
    toy.make(folder)
    return folder
