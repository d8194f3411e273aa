"""`make test-versions`: the course on the versions that Colab and Binder run, and on other Pythons; the result goes to
docs/contributors.md.

Each row has an environment of its own (.venv-versions-*), which is kept: the second time only changes are installed. Where a
Python is not installed, the table says so.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "contributors.md"
START, END = "<!-- versions: written by make test-versions -->\n", "<!-- end of versions -->"
COURSE = ("tests/test_exercises.py", "tests/test_notebooks.py", "tests/test_check.py", "tests/test_verdict.py")
NO_TORCH = (
    "-m",
    "not slow",
    "tests/test_claims.py",
    "tests/test_command.py",
    "tests/test_intake.py",
    "tests/test_launch_release.py",
    "tests/test_quantization_data.py",
)  # what is of use without torch; every chapter's reference imports it
PAIR = ("torch==2.11.0", "torchvision==0.26.0")  # of Colab and Binder
COLAB = ("numpy==2.1.3", "scipy==1.16.3", "matplotlib==3.10.0")  # its image of August 2026, which has Python 3.13
LATEST = ("torch", "torchvision", "numpy", "scipy", "matplotlib", "tqdm")


@dataclass(frozen=True)
class Row:
    """One combination of versions and the tests that it runs."""

    name: str
    python: str
    packages: tuple[str, ...]  # beside the pinned ones
    tests: tuple[str, ...]
    pinned: bool = True


ROWS = (
    Row("torch-2.11", "3.12", PAIR, COURSE),
    Row("colab", "3.13", (*PAIR, *COLAB), COURSE),
    Row("python-3.12", "3.12", (), NO_TORCH),
    Row("python-3.13", "3.13", (), NO_TORCH),
)
NEWEST = Row("latest", f"{sys.version_info[0]}.{sys.version_info[1]}", LATEST, COURSE, pinned=False)


@dataclass(frozen=True)
class Result:
    """What came of a row."""

    row: Row
    python: str
    torch: str
    outcome: str
    minutes: float
    good: bool


def interpreter(version: str) -> str | None:
    """A program of that Python which starts, or None."""
    for name in (f"python{version}", *sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))):
        program = shutil.which(name)
        try:
            if (
                program
                and subprocess.run([program, "-c", "import venv"], capture_output=True, timeout=60).returncode == 0
            ):
                return program
        except OSError:
            continue
    return None


def install(row: Row, program: str) -> Path:
    """The row's environment, installed; returns its Python."""
    folder = ROOT / f".venv-versions-{row.name}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([program, "-m", "venv", str(folder)], check=True)
    own = LATEST if row is NEWEST else ("torch", *(name.partition("==")[0] for name in row.packages))  # not pinned here
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith(("#", *own))]
    limits = folder / "constraints.txt"
    limits.write_text("\n".join(pins if row.pinned else []) + "\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", str(limits)]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    needed = [line for line in lines if line and not line.startswith(("#", *own))]
    packages = [*row.packages, *needed] if row.pinned else ["--upgrade", *row.packages, *needed]
    subprocess.run([*pip, *packages, "pytest", "pytest-timeout", "hypothesis"], check=True)
    return python


def run(row: Row) -> Result:
    """Install and test one row."""
    start = time.monotonic()
    program = interpreter(row.python)
    if program is None:
        return Result(row, row.python, "", "not run: this Python is not installed", 0.0, True)
    python = install(row, program)
    places = os.pathsep.join([str(ROOT), str(ROOT / "course")])
    programs = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    environment = os.environ | {"PYTHONPATH": places, "PATH": programs, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *row.tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    print(done.stdout[-6000:] + done.stderr[-2000:])
    ask = "import sys; print(sys.version.split()[0]); from importlib.metadata import version as v; "
    ask += "print(v('torch'), v('torchvision'))"
    said = subprocess.run([str(python), "-c", ask], capture_output=True, text=True).stdout.splitlines()
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no output"
    counts = ", ".join(re.findall(r"\d+ (?:passed|failed|skipped|errors?)", last)) or last[:80]
    return Result(
        row,
        said[0],
        said[1] if len(said) > 1 else "none",
        counts,
        (time.monotonic() - start) / 60,
        done.returncode == 0,
    )


def written(text: str, results: list[Result], day: str) -> str:
    """The document with the table of the last run.

    Raises
    ------
    ValueError
        Where the marks are gone.
    """
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"docs/contributors.md has lost its marks: {START.strip()} and {END}")
    rows = "".join(
        f"| {r.python} | {r.torch or 'not run'} | {_listed(r.row.tests)} | {r.outcome} | {r.minutes:.0f} |\n"
        for r in results
    )
    head = "| Python | torch, torchvision | tests | result | minutes |\n|---|---|---|---|---|\n"
    return f"{before}{START}Last run of `make test-versions`, {day}:\n\n{head}{rows}{END}{after}"


def _listed(tests: tuple[str, ...]) -> str:
    names = [name.removeprefix("tests/test_").removesuffix(".py") for name in tests if name.startswith("tests/")]
    return ", ".join(names)


def main() -> int:
    """Returns 0 where every row that could run passed."""
    parser = argparse.ArgumentParser(prog="tests/versions.py", description=__doc__)
    parser.add_argument(
        "only", nargs="*", choices=[*(row.name for row in ROWS), NEWEST.name, []], help="these rows only"
    )
    names = parser.parse_args().only
    results = [run(row) for row in (*ROWS, NEWEST) if (row.name in names if names else row is not NEWEST)]
    for result in results:
        print(f"{result.row.name:<12} Python {result.python}, torch {result.torch or 'none'}: {result.outcome}")
    if not names:
        day = datetime.date.today().isoformat()
        DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), results, day), encoding="utf-8")
    return 0 if all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
