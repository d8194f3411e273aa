"""`make course`: from the text sources to the notebooks and the record that learners receive, byte for byte the same.

solutions/NN/*.py  →  solutions/NN/*.ipynb  →  course/NN/*.ipynb      (nbgrader's generate_assignment)
solutions/NN/exercises.py  →  course/underhood/recorded/NN.json
course/NN/*.ipynb  →  course/underhood/recorded/notebooks/NN.json     (which cells are graded, for the doctor)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import nbformat
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from underhood.doctor import Slot, digest
from underhood.record import exercise_to_json

from . import reference
from .chapters import ROOT, SOLUTIONS, chapters, exercises, known, module, text_sources
from .judge import judge, recorded
from .release import tidy

# NumPy, PyTorch and their BLAS choose kernels by the CPU, and kernels differ in a last bit, which a long run of a solver grows
# into a step more or less. The build takes those of any x86-64 CPU with AVX2, so that every machine writes the same bytes;
# the square roots of PyTorch's float32 still differ, which is why the record is rounded.
ONE_CPU = {
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
}


def pair(chapter: str) -> list[Path]:
    """Write the paired notebooks of the chapter's text sources; returns their paths."""
    written = []
    for source in text_sources(known(chapter)):
        notebook = reference.read(source)
        pairing = notebook.metadata.get("jupytext", {})
        tidy(chapter, notebook)
        # Pairing is what lets `jupytext --sync` bring an edit of the notebook to the text.
        notebook.metadata["jupytext"] = {"formats": pairing.get("formats", "ipynb,py:percent")}
        path = source.with_suffix(".ipynb")
        write(path, nbformat.writes(notebook, version=4) + "\n")
        written.append(path)
    return written


def draw(chapter: str) -> None:
    """Run the chapter's `figures.py`, which draws its pictures into `figures/`."""
    if (SOLUTIONS / chapter / "figures.py").is_file():
        folder = SOLUTIONS / chapter / "figures"
        folder.mkdir(exist_ok=True)
        module(chapter, "figures").draw(folder)


def record(chapter: str, folder: Path) -> Path:
    """Write what learners' copies know of the chapter's exercises."""
    for exercise in exercises(chapter):
        right = judge(exercise.name, reference.load(chapter)[exercise.name])
        if right.points < exercise.points:
            raise ValueError(f"The reference does not get full marks: is an expected value wrong?\n{right}")
    faces = [exercise_to_json(recorded(exercise)) for exercise in exercises(chapter)]
    path = folder / f"{chapter}.json"
    write(path, json.dumps({"exercises": faces}, indent=1, ensure_ascii=False, allow_nan=True) + "\n")
    return path


def release(chapter: str, root: Path = ROOT) -> None:
    """Have nbgrader write the released notebooks below `root`, with a gradebook of its own that is thrown away."""
    from nbgrader.apps.baseapp import NbGrader

    app = NbGrader(parent=None)
    app.config_dir = str(ROOT)
    with tempfile.TemporaryDirectory() as scratch:
        config = configuration()
        config.CourseDirectory.db_url = f"sqlite:///{scratch}/gradebook.db"
        config.CourseDirectory.release_directory = str(root / "course")
        result = NbGraderAPI(config=config).generate_assignment(chapter, force=True, create=True)
    if not result["success"]:
        raise RuntimeError(f"nbgrader could not release {chapter}:\n{result.get('error', '')}\n{result.get('log', '')}")


def marks(chapter: str, root: Path = ROOT) -> Path:
    """Write which graded cells and answer cells the released notebooks have: the doctor compares copies with it."""
    found = {}
    for path in sorted((root / "course" / chapter).glob("*.ipynb")):
        cells = [c for c in nbformat.read(path, 4).cells if c.metadata.get("nbgrader")]
        found[path.name] = [_slot(chapter, cell) for cell in cells if cell.cell_type == "code"]
    path = root / "course" / "underhood" / "recorded" / "notebooks" / f"{chapter}.json"
    write(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return path


def _slot(chapter: str, cell: nbformat.NotebookNode) -> dict:
    meta = dict(cell.metadata["nbgrader"])
    name = meta["grade_id"].removeprefix(f"{chapter}-")
    source = "" if meta["solution"] else cell.source
    slot = Slot(meta["grade_id"], cell.id, source, digest(cell.source), name if meta["solution"] else "", meta)
    return asdict(slot)


def configuration() -> Config:
    """nbgrader's settings for this course, as its own commands read them."""
    from traitlets.config.loader import PyFileConfigLoader

    return PyFileConfigLoader("nbgrader_config.py", path=str(ROOT)).load_config()


def write(path: Path, text: str) -> None:
    """Write under a temporary name, then rename: a killed program leaves no half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    os.replace(fresh, path)


def build(chapter: str, root: Path = ROOT) -> None:
    """Everything of one chapter."""
    draw(chapter)
    pair(chapter)
    record(chapter, root / "course" / "underhood" / "recorded")
    release(chapter, root)
    marks(chapter, root)


def main(names: list[str]) -> int:
    if any(os.environ.get(key) != value for key, value in ONE_CPU.items()):  # they are read when numpy is imported
        command = [sys.executable, "-m", "autograder.build", *names]
        return subprocess.run(command, env=os.environ | ONE_CPU).returncode
    for chapter in names or chapters():
        print(f"building {chapter}", flush=True)
        build(chapter)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
