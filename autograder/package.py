"""`make release`: the learners' zip. The course, its helper, what to install and how to begin; nothing of the grader's.

The same files give the same bytes: names are sorted, dates are fixed.
"""

from __future__ import annotations

import os
import re
import sys
import zipfile
from pathlib import Path

from .chapters import COURSE, ROOT, SOLUTIONS

SUFFIXES = (".ipynb", ".py", ".json", ".npz", ".md", ".toml")
SECRETS = ("BEGIN SOLUTION", "BEGIN HIDDEN TESTS", "hidden=True)", "BEGIN MARK SCHEME")
DATE = (2026, 1, 1, 0, 0, 0)
HEAD = """\
# What the course needs, this folder's helper package included. In this folder: pip install -r requirements.txt
#
# Linux without a GPU: add --extra-index-url https://download.pytorch.org/whl/cpu to take 0.2 GB rather than 3 GB.
"""


def requirements(text: str) -> str:
    """The learners' requirements, from the repository's: without what only authors need, with the helper package."""
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "jupytext"))]
    return HEAD + "\n".join([*lines, "."]) + "\n"


def contents(root: Path = ROOT) -> dict[str, bytes]:
    """What goes into the zip, by path.

    Raises
    ------
    ValueError
        Where a file holds a solution or a hidden test, or a notebook has outputs.
    """
    course = root / "course"
    found = {
        "LICENSE": (root / "LICENSE").read_bytes(),
        "requirements.txt": requirements((root / "requirements.txt").read_text(encoding="utf-8")).encode(),
    }
    for path in sorted(course.rglob("*")):
        name = path.relative_to(course)
        parts = [part for part in name.parts if part.startswith((".", "__pycache__")) or part.endswith(".egg-info")]
        if path.is_file() and path.suffix in SUFFIXES and not parts and name.parts[0] != "build":
            found[name.as_posix()] = path.read_bytes()
    for file, data in found.items():
        if not file.endswith(".ipynb"):
            continue
        text = data.decode("utf-8")
        if told := [secret for secret in SECRETS if secret in text]:
            raise ValueError(f"course/{file} holds {told[0]!r}. Next step: make course")
        if re.search(r'"output_type":', text):
            raise ValueError(f"course/{file} has outputs: somebody worked in it. Next step: make course")
    return found


def package(to: Path, root: Path = ROOT) -> Path:
    """Write the zip into the folder `to`; returns its path."""
    version = re.findall(r'^version = "(.+)"$', (root / "pyproject.toml").read_text(encoding="utf-8"), flags=re.M)[0]
    to.mkdir(parents=True, exist_ok=True)
    path = to / f"under-the-hood-{version}.zip"
    fresh = path.with_name(f".{path.name}.new")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(contents(root).items()):
            entry = zipfile.ZipInfo(f"under-the-hood-{version}/{name}", DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    os.replace(fresh, path)
    return path


def main() -> int:
    built = sorted(path.parent.name for path in COURSE.glob("[0-9]*/*.ipynb"))
    sources = sorted(path.parent.name for path in SOLUTIONS.glob("[0-9]*/exercises.py"))
    if missing := sorted(set(sources) - set(built)):
        print(f"Not built: {', '.join(missing)}. Next step: make course", file=sys.stderr)
        return 1
    try:
        path = package(ROOT / "dist")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 2**20:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
