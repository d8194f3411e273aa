"""The doctor: what this machine lacks, and whether a copy of a notebook still has its graded cells, each with the next step.

    python -m underhood                        this machine, and the chapters' notebooks in and below this folder
    python -m underhood basics.ipynb           this machine, and that notebook
    python -m underhood --mend basics.ipynb    write basics.mended.ipynb, with the graded cells where they belong

In a notebook: `from underhood import doctor`, then `doctor()`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .env import environment, packages

RECORDED = Path(__file__).parent / "recorded" / "notebooks"
NEEDED = 1.5  # GB: a chapter's kernel stays under 1, its browser tab and the server want the rest
DEFINED = re.compile(r"^(?:def|class) (\w+)|^(\w+) *=(?!=)", flags=re.M)
PAIR = re.compile(r"torch\s*\(?==\s*([\d.]+)")


@dataclass(frozen=True)
class Slot:
    """A graded cell or an answer cell as the release has it."""

    grade_id: str
    id: str
    source: str  # of a locked cell; "" for an answer cell
    digest: str
    name: str  # what an answer cell defines
    metadata: dict[str, Any]  # nbgrader's

    @property
    def locked(self) -> bool:
        return not self.metadata["solution"]


@dataclass(frozen=True)
class Damage:
    """Something that happened to a graded cell: what, to which, and how to mend it by hand."""

    kind: str  # copied, split, deleted, retyped, edited
    grade_id: str
    sentence: str


def digest(source: str) -> str:
    """A hash of a cell's text without blanks at its ends."""
    return hashlib.sha256(source.strip().encode()).hexdigest()[:16]


# --- the machine ------------------------------------------------------------------------------------------------------


def glance() -> str:
    """One sentence if a package is missing, outside its range, or does not fit another; else "". Imports nothing."""
    wrong = [p for p in packages() if not p.fits]
    if wrong:
        listed = ", ".join(f"{p.name} {p.version or 'missing'} (wanted {p.wanted})" for p in wrong)
        wanted = " ".join(f'"{p.name}{p.wanted}"' for p in wrong)
        return f"This machine differs from what the course was tested on: {listed}. Next step: pip install {wanted}"
    return pair()


def pair() -> str:
    """One sentence if the installed torchvision was built for another torch; else ""."""
    try:
        torch, torchvision = importlib.metadata.version("torch"), importlib.metadata.version("torchvision")
        wanted = next((m[1] for r in importlib.metadata.requires("torchvision") or () if (m := PAIR.match(r))), "")
    except importlib.metadata.PackageNotFoundError:
        return ""
    if not wanted or torch.split("+")[0] == wanted:
        return ""
    return (
        f"torchvision {torchvision} was built for torch {wanted}, and this is torch {torch}. "
        f'Next step: pip install "torch=={wanted}"'
    )


def imports() -> str:
    """One sentence if torch or torchvision cannot be imported; else ""."""
    for name in ("torch", "torchvision"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name == name:
                return ""  # the list of packages says so already
            return f"{name} needs {error.name}, which is missing. Next step: pip install {error.name}"
        except Exception as error:
            reason = str(error).partition("\n")[0][:200]
            return (
                f"{name} is installed and does not start ({type(error).__name__}: {reason}). Next step: install the two "
                "from one place again: pip install --force-reinstall torch torchvision"
            )
    return ""


def memory() -> tuple[float, float] | None:
    """GB that are available and that there are, the container's limit included; None where the system does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        total, free = (int(re.search(rf"{key}:\s+(\d+)", text)[1]) / 2**20 for key in ("MemTotal", "MemAvailable"))  # type: ignore[index]
    except (OSError, TypeError):
        return None
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text()) / 2**30
        used = int(Path("/sys/fs/cgroup/memory.current").read_text()) / 2**30
        total, free = min(total, limit), min(free, limit - used)
    except (OSError, ValueError):
        pass  # no limit
    return free, total


def writable(folder: Path) -> str:
    """One sentence if nothing can be saved in the folder; else ""."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return (
            f"Nothing can be saved in {folder} ({error.strerror}). "
            "Next step: copy the course's folder to your home folder and start JupyterLab there."
        )


# --- notebooks --------------------------------------------------------------------------------------------------------


@cache
def releases() -> dict[str, tuple[Slot, ...]]:
    """The graded cells and the answer cells of every released notebook, by its path: "01_basics/basics.ipynb"."""
    found = {}
    for path in sorted(RECORDED.glob("*.json")):
        for name, slots in json.loads(path.read_text(encoding="utf-8")).items():
            found[f"{path.stem}/{name}"] = tuple(Slot(**slot) for slot in slots)
    return found


def read(path: Path) -> dict[str, Any]:
    """The notebook as JSON, cell sources joined.

    Raises
    ------
    ValueError
        With one sentence, where the file is no notebook.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            cell["source"] = "".join(cell["source"])
            cell.setdefault("metadata", {})
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}). Next step: give the path of a notebook.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is not a notebook. Next step: give the path of an .ipynb file.") from None
    return notebook


def release_of(notebook: dict[str, Any]) -> str:
    """The path of the release that the notebook is a copy of, or ""."""
    cells = notebook["cells"]

    def shared(slots: Sequence[Slot]) -> int:
        ids, names = {_grade_id(c) for c in cells}, {name for c in cells for name in _defined(c)}
        return sum(slot.grade_id in ids or slot.name in names for slot in slots)

    every = releases()
    best = max(every, key=lambda name: shared(every[name]), default="")
    return best if best and shared(every[best]) else ""


def damages(notebook: dict[str, Any], slots: Sequence[Slot]) -> list[Damage]:
    """What happened to the graded cells of a notebook, in the release's order."""
    cells, found = notebook["cells"], []
    for slot in slots:
        mine = [c for c in cells if _grade_id(c) == slot.grade_id]
        what = f"the cell {slot.source}" if slot.locked else f"the answer cell of {slot.name}"
        if (
            len(mine) > 1
            and not slot.locked
            and sum(slot.name in _defined(c) for c in mine) == 1
            and not _stub(mine, slot)
        ):
            say = f"{what[0].upper()}{what[1:]} was split in {len(mine)}: choose all parts and Edit > Merge Selected Cells."
            found.append(Damage("split", slot.grade_id, say))
        elif len(mine) > 1:
            say = f"{what[0].upper()}{what[1:]} is there {len(mine)} times, and only one can be graded."
            found.append(Damage("copied", slot.grade_id, say))
        elif not mine:
            at = _retyped(cells, slot)
            if at is None:
                found.append(Damage("deleted", slot.grade_id, f"{what[0].upper()}{what[1:]} was deleted."))
            else:
                say = f"{what[0].upper()}{what[1:]} was typed into a new cell, which the grader's marks do not follow."
                found.append(Damage("retyped", slot.grade_id, say))
        elif slot.locked and (digest(mine[0]["source"]) != slot.digest or mine[0]["cell_type"] != "code"):
            found.append(
                Damage("edited", slot.grade_id, f"{what[0].upper()}{what[1:]} was edited; it is graded as released.")
            )
        elif any(mine[0]["metadata"]["nbgrader"].get(key) != value for key, value in slot.metadata.items()):
            found.append(Damage("edited", slot.grade_id, f"The grader's marks on {what} were edited."))
    return found


def mended(notebook: dict[str, Any], slots: Sequence[Slot]) -> dict[str, Any]:
    """A copy of the notebook with each graded cell once, where it belongs; nothing that was written is dropped.

    Of several copies of an answer the last that defines the name counts; the parts of a split cell are put together.
    """
    made = json.loads(json.dumps(notebook))
    cells: list[dict[str, Any]] = made["cells"]
    position = 0
    for slot in slots:
        mine = [c for c in cells if _grade_id(c) == slot.grade_id]
        kinds = [d.kind for d in damages({"cells": cells}, [slot])]
        if "split" in kinds:
            mine[0]["source"] = "\n".join(c["source"] for c in mine)
            cells[:] = [c for c in cells if c is mine[0] or not any(c is other for other in mine)]
            mine = mine[:1]
        elif not mine:
            at = _retyped(cells, slot)
            if at is not None:
                mine = [cells[at]]
        keep = _best(mine, slot)
        if keep is None:
            source = slot.source or f"# Write {slot.name} again here: its cell was deleted.\n"
            keep = {
                "cell_type": "code",
                "execution_count": None,
                "id": slot.id,
                "metadata": {},
                "outputs": [],
                "source": source,
            }
            cells.insert(position, keep)
        for other in [c for c in mine if c is not keep]:
            other["metadata"] = {}  # a plain cell from now on
            if slot.locked:
                cells[:] = [c for c in cells if c is not other]
        if slot.locked:
            keep["source"] = slot.source
        if keep["cell_type"] != "code":
            keep |= {"cell_type": "code", "execution_count": None, "outputs": []}
            keep.pop("attachments", None)
        keep["metadata"] = {"deletable": False, "nbgrader": dict(slot.metadata)} | (
            {"editable": False} if slot.locked else {}
        )
        position = next(i for i, c in enumerate(cells) if c is keep) + 1
    for cell in cells:
        cell["source"] = cell["source"].splitlines(keepends=True)
    seen: set[str] = set()
    for number, cell in enumerate(cells):
        if cell.get("id", f"cell-{number}") in seen:
            cell["id"] = hashlib.sha256(f"{number}".encode()).hexdigest()[:12]
        seen.add(cell.get("id", f"cell-{number}"))
    return made


def _grade_id(cell: dict[str, Any]) -> str:
    marks = cell["metadata"].get("nbgrader")
    return str(marks.get("grade_id", "")) if isinstance(marks, dict) else ""


def _defined(cell: dict[str, Any]) -> list[str]:
    if cell["cell_type"] != "code":
        return []
    return [a or b for a, b in DEFINED.findall(cell["source"])]


def _stub(cells: Sequence[dict[str, Any]], slot: Slot) -> bool:
    return any(digest(c["source"]) == slot.digest for c in cells)


def _retyped(cells: Sequence[dict[str, Any]], slot: Slot) -> int | None:
    """Where a cell without marks stands that has the slot's id, text or name; the last one counts."""
    for at in reversed(range(len(cells))):
        cell = cells[at]
        if _grade_id(cell):
            continue
        if slot.locked and digest(cell["source"]) == slot.digest or not slot.locked and slot.name in _defined(cell):
            return at
    return next((at for at, c in enumerate(cells) if c.get("id") == slot.id and not _grade_id(c)), None)


def _best(cells: Sequence[dict[str, Any]], slot: Slot) -> dict[str, Any] | None:
    if slot.locked:
        return cells[0] if cells else None
    real = [c for c in cells if slot.name in _defined(c) and digest(c["source"]) != slot.digest]
    return next(iter(reversed(real or list(cells))), None)


# --- the report -------------------------------------------------------------------------------------------------------


def notebooks(folder: Path) -> list[Path]:
    """Learners' copies of the chapters' notebooks, in the folder and up to two below it."""
    names = {name.partition("/")[2] for name in releases()}
    found = [p for pattern in ("*.ipynb", "*/*.ipynb", "*/*/*.ipynb") for p in sorted(folder.glob(pattern))]
    named = [p for p in found if p.name in names and "/." not in p.as_posix()]
    return [p for p in named if "### BEGIN SOLUTION" not in p.read_text(encoding="utf-8", errors="replace")]


def examine(path: Path) -> list[str]:
    """Print how a notebook's graded cells are; returns the sentences on what is wrong."""
    notebook = read(path)
    name = release_of(notebook)
    if not name:
        return [
            f"{path} has none of the course's graded cells. Next step: open a chapter's notebook from the course's folder."
        ]
    slots = releases()[name]
    wrong = damages(notebook, slots)
    print(f"{'notebook':<11} {path.name:<14} {len(slots) - len(wrong)} of {len(slots)} graded cells intact")
    if not wrong:
        return []
    mend = f'python -m underhood --mend "{path}"'
    return [*(d.sentence for d in wrong), f"Next step: {mend} writes a copy with every graded cell in its place."]


def doctor(*paths: str | os.PathLike) -> bool:
    """Print what this machine runs, what is wrong with it and with the notebooks, and the next step for each.

    Parameters
    ----------
    paths
        Notebooks; by default the one that this is called from, else the chapters' notebooks in this folder.

    Returns
    -------
    bool
        Whether everything is fine.
    """
    fine = environment()
    wrong = [sentence for sentence in (pair() or imports(), writable(Path.cwd())) if sentence]
    if room := memory():
        print(f"{'memory':<11} {room[0]:.1f} GB free of {room[1]:.1f}")
        if room[0] < NEEDED:
            wrong.append(f"Less than {NEEDED} GB of memory are free. Next step: close other notebooks and programs.")
    own = os.environ.get("JPY_SESSION_NAME", "")
    chosen = [Path(p) for p in paths] or ([Path(own)] if own.endswith(".ipynb") else notebooks(Path.cwd()))
    for path in chosen:
        try:
            wrong += examine(path)
        except ValueError as error:
            wrong.append(str(error))
    for sentence in wrong:
        print(sentence)
    if fine and not wrong:
        print("Everything is fine.")
    return fine and not wrong


def mend(path: Path) -> Path:
    """Write a mended copy beside the notebook; returns its path.

    Raises
    ------
    ValueError
        With one sentence, where that is not possible.
    """
    notebook = read(path)
    name = release_of(notebook)
    if not name:
        raise ValueError(f"{path} has none of the course's graded cells, so there is nothing to mend.")
    to = path.with_name(f"{path.stem}.mended.ipynb")
    text = json.dumps(mended(notebook, releases()[name]), indent=1, ensure_ascii=False) + "\n"
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"{to} cannot be written ({error.strerror}). Next step: copy the notebook to your home folder."
        ) from None
    return to


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0 everything is fine, 1 something is to be done, 2 wrong use."""
    words = list(arguments)
    if any(word in ("-h", "--help") for word in words):
        print(__doc__)
        return 0
    unknown = [word for word in words if word.startswith("-") and word != "--mend"]
    if unknown or (words[:1] == ["--mend"] and len(words) != 2) or "--mend" in words[1:]:
        print(f"I do not know what {' '.join(words)} means. Next step: python -m underhood --help", file=sys.stderr)
        return 2
    if words[:1] == ["--mend"]:
        try:
            print(f"Written: {mend(Path(words[1]))}. Next step: open it, run it, and hand it in under the old name.")
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        return 0
    return 0 if doctor(*words) else 1
