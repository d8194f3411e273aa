"""From what a student handed in to the notebooks that are graded: the release's cells, with the learner's answers in them.

What people and services do to a notebook (Colab's own metadata, cells without ids, copied, split, deleted, edited and
retyped graded cells, another editor that drops nbgrader's metadata) is undone; nothing that a learner wrote is lost, and
nobody's hand-in raises. The rules:

- A release cell is recognized by its grade_id, else by its cell id (Colab keeps one in the metadata), else by its text; an
  answer cell also by the name that its stub defines.
- Locked cells get the release's text. What the learner wrote into one stays, as a cell of the learner's own before it.
- Of several copies of an answer cell the last one counts that defines the name and is not the untouched stub; if none defines it,
  the last one that is not the stub. The others stay as plain cells in their places; copies of the stub go.
- An answer typed elsewhere, while its stub is untouched, is copied into the answer cell: the stub must not undo it.
- A release cell that is missing comes back. Other release cells keep the learner's text.
- The learner's own cells stay between the release cells that they stood between, after those that came back, so that
  what runs last is what ran last for the learner.
- Outputs, attachments, and all metadata but the release's go: with them the names, pictures and addresses of people.

Nothing here parses Python: the compiler can be crashed by a text, and this runs in the grader's own process.
"""

from __future__ import annotations

import bisect
import copy
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from .handins import MAX_BYTES, UNCLEAR, Carried, Found, find, marked, opened, printable, safe_id, sentence

__all__ = ["UNCLEAR", "Carried", "Found", "Intake", "find", "marked", "read", "safe_id"]

MAX_CELLS = 2000
MAX_TEXT = 2 * 1024**2  # characters in all cells of a notebook
MAX_PARTS = 2_000_000  # brackets in the file: each pair can take 250 bytes of memory
MARKS = ("cell_type", "points", "grade", "locked", "solution", "task")
DEFINITION = re.compile(r"(?:async +def|def|class) +(\w+)")
IMPORT = re.compile(r"(?:from +[\w.]+ +)?import +(.*)")
TARGET = re.compile(r"[\w, ()*]+")
INDENTED = re.compile(r"[ \t)\]}]|$")  # goes on with the statement above
BADGE = re.compile(r'\s*<a href="https://colab\.research\.google\.com/[^"]*"[^>]*>\s*<img [^>]*>\s*</a>\s*')


@dataclass(frozen=True)
class Intake:
    """One student's hand-in, ready to be run and judged.

    Parameters
    ----------
    student
        As in `Found`.
    notebooks
        Release stem → canonical notebook: nbformat 4.5, valid for nbformat and nbgrader, without outputs. A stem is absent where
        there is nothing to grade; the reason says why.
    flags
        Sorted words: "tampered" (graded cells were changed, copied, deleted), "repaired" (graded cells had lost their marks,
        or an answer stood elsewhere), "unreadable", "encoding", "other chapter", "unrelated", "several notebooks",
        "too large", "no notebook", and `Found`'s "refused", "unsafe id".
    reason
        One sentence for the row, or "".
    """

    student: str
    notebooks: dict[str, NotebookNode]
    flags: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Cell:
    """What counts of a handed-in cell."""

    type: str
    text: str
    ids: tuple[str, ...] = ()
    marks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def grade_id(self) -> str | None:
        found = self.marks.get("grade_id")
        return found if isinstance(found, str) else None

    @cached_property
    def bare(self) -> str:
        return bare(self.text)

    @cached_property
    def essence(self) -> str:
        return essence(self.text)

    @cached_property
    def bound(self) -> dict[str, int]:
        return bound(self.text)

    def defines(self, names: Sequence[str]) -> int:
        """The strongest way in which the text binds one of the names, as `bound` has it, or 0."""
        return max((self.bound.get(name, 0) for name in names), default=0)


@dataclass(frozen=True)
class Rebuilt:
    """The canonical notebook, how many answers were attempted, and what had to be done to graded cells."""

    notebook: NotebookNode
    attempted: int
    damage: Mapping[str, Sequence[str]]


class Unreadable(ValueError):
    """The message completes "<file> …"."""


def read(
    found: Found,
    releases: Mapping[str, NotebookNode],
    other_chapters: Mapping[str, Sequence[NotebookNode]] | None = None,
) -> Intake:
    """The student's canonical notebooks; never raises because of what was handed in.

    Parameters
    ----------
    found
        From `find`.
    releases
        The chapter's released notebooks by stem; not changed.
    other_chapters
        The other chapters' released notebooks, so that a notebook of the wrong chapter is named as such.

    Notes
    -----
    Of several notebooks for one release the one with the most attempted answers counts; of equals the one that is named
    like the release, then the last in the order of names.
    """
    try:
        return _read(found, releases, other_chapters or {})
    except Exception as error:  # whatever it was, it is one row and not the end of the batch
        flags = tuple(sorted({*found.flags, "unreadable"}))
        return Intake(found.student, {}, flags, f"The hand-in could not be taken in ({type(error).__name__}).")


def _read(
    found: Found, releases: Mapping[str, NotebookNode], other_chapters: Mapping[str, Sequence[NotebookNode]]
) -> Intake:
    flags = set(found.flags)
    reasons = [found.reason.rstrip(".")] if found.reason else []
    offered: dict[str, list[tuple[Path | Carried, Rebuilt]]] = defaultdict(list)
    for path in found.paths:
        name = printable(path.name)
        try:
            cells, oddities = parse(slurp(path))
        except Unreadable as error:
            flags.add("unreadable")
            reasons.append(f"{name} {error}")
            continue
        flags.update(oddities)
        if "too large" in oddities:
            reasons.append(f"{name} was read up to {MAX_CELLS} cells and {MAX_TEXT // 1024**2} MB of text")
        stem = _stem(path, cells, releases)
        here = evidence(cells, [releases[stem]])
        elsewhere = {chapter: evidence(cells, list(theirs)) for chapter, theirs in other_chapters.items()}
        other = max(elsewhere, key=lambda chapter: elsewhere[chapter], default="")
        if other and elsewhere[other] > here:
            flags.add("other chapter")
            reasons.append(f"{name} is a notebook of {other}")
            if here == 0:
                continue
        elif here == 0:
            flags.add("unrelated")
            reasons.append(f"{name} has none of the graded cells of {stem}")
        offered[stem].append((path, rebuild(cells, releases[stem])))
    notebooks = {}
    for stem, choices in offered.items():
        path, rebuilt = max(choices, key=lambda choice: _preference(stem, *choice))
        notebooks[stem] = rebuilt.notebook
        if len(choices) > 1:
            flags.add("several notebooks")
            others = [printable(p.name) for p, _ in choices if p is not path]
            reasons.append(f"{printable(path.name)} counts, not {_listed(others)}")
        flags.update("repaired" if kind in _HARMLESS else "tampered" for kind in rebuilt.damage)
        reasons += [f"{kind}: {_listed(names)}" for kind, names in rebuilt.damage.items()]
    missing = [stem for stem in releases if stem not in notebooks]
    if missing and notebooks:
        flags.add("no notebook")
        reasons.append(f"there is no notebook for {_listed(missing)}")
    elif not found.paths and not reasons:
        flags.add("no notebook")
        reasons.append("no notebook was handed in")
    return Intake(found.student, notebooks, tuple(sorted(flags)), sentence(reasons))


def carried(path: Path | Carried) -> Carried:
    """The file with its bytes, as it travels to another machine; there `slurp` gives or raises the same as here."""
    try:
        return Carried(path.name, slurp(path))
    except Unreadable as error:
        return Carried(path.name, refused=str(error))


def slurp(path: Path | Carried) -> bytes:
    """The bytes of a regular file; a link is not followed, a pipe not waited for.

    Raises
    ------
    Unreadable
        Where it is something else, too large, or cannot be read.
    """
    if isinstance(path, Carried):
        if path.refused:
            raise Unreadable(path.refused)
        return path.data
    try:
        with opened(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise Unreadable(f"is larger than {MAX_BYTES // 1024**2} MB")
    return data


def parse(data: bytes) -> tuple[list[Cell], set[str]]:
    """The cells of a notebook file of any nbformat, and flags for what was odd about the file.

    Raises
    ------
    Unreadable
        Where it is no notebook.
    """
    if not data.strip():
        raise Unreadable("is empty")
    text, oddities = _decode(data)
    if text.count("{") + text.count("[") > MAX_PARTS:
        raise Unreadable("is nested too deeply, or in more parts than a notebook")
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise Unreadable("is nested too deeply") from error
    except ValueError as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise Unreadable(f"is not JSON{where}") from error
    raw = document.get("cells") if isinstance(document, dict) else None
    if raw is None and isinstance(document, dict) and isinstance(document.get("worksheets"), list):  # nbformat 3
        sheets = [s.get("cells") for s in document["worksheets"] if isinstance(s, dict)]
        raw = [cell for sheet in sheets if isinstance(sheet, list) for cell in sheet]
    if not isinstance(raw, list):
        raise Unreadable("is not a notebook: it has no list of cells")
    cells: list[Cell] = []
    left = MAX_TEXT
    for cell in map(_cell, raw[:MAX_CELLS]):
        if cell is not None and len(cell.text) <= left:
            left -= len(cell.text)
            cells.append(cell)
        elif cell is not None:
            oddities.add("too large")
    if len(raw) > MAX_CELLS:
        oddities.add("too large")
    return cells, oddities


def _decode(data: bytes) -> tuple[str, set[str]]:
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"", "utf-8-sig"), (b"", "cp1252")):
        if data.startswith(mark):
            try:
                return data.decode(encoding), set() if encoding == "utf-8-sig" else {"encoding"}
            except UnicodeDecodeError:
                pass
    return data.decode("latin-1"), {"encoding"}


def _cell(raw: object) -> Cell | None:
    """A cell whose every field is of the right type, or None for Colab's badge and for what is no cell."""
    if not isinstance(raw, dict):
        return None
    metadata = raw.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    kind = raw.get("cell_type")
    text = _text(raw.get("source", raw.get("input")))
    if kind == "heading":  # nbformat 3
        level = raw.get("level")
        kind, text = "markdown", f"{'#' * (level if isinstance(level, int) and 1 <= level <= 6 else 1)} {text}"
    kind = kind if kind in ("code", "markdown") else "raw"
    ids = tuple(i for i in (raw.get("id"), metadata.get("id")) if isinstance(i, str))
    if kind == "markdown" and ("view-in-github" in ids or BADGE.fullmatch(text)):
        return None  # it names the learner's account and has an image on another host
    marks = metadata.get("nbgrader")
    return Cell(kind, text, ids, marks if isinstance(marks, dict) else {})


def _text(source: object) -> str:
    """A source in any of its forms, without what no file or database takes."""
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    text = source if isinstance(source, str) else ""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "�")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _stem(path: Path | Carried, cells: Sequence[Cell], releases: Mapping[str, NotebookNode]) -> str:
    """Which of the chapter's notebooks this is: by its cells, then by its name."""
    return max(releases, key=lambda stem: (evidence(cells, [releases[stem]]), stem.lower() in path.stem.lower()))


def _preference(stem: str, path: Path | Carried, rebuilt: Rebuilt) -> tuple[int, bool, list[tuple[int, str]]]:
    parts = [(int(p), "") if p.isdecimal() else (-1, p) for p in re.split(r"(\d{1,9})", path.name)]
    return rebuilt.attempted, path.stem == stem, parts


def _listed(names: Iterable[str], limit: int = 4) -> str:
    every = list(dict.fromkeys(names))
    return ", ".join(every[:limit]) + (f" and {len(every) - limit} more" if len(every) > limit else "")


# What a release cell is to a hand-in


@dataclass(frozen=True)
class Slot:
    """A release cell: where it stands, and how it is recognized."""

    type: str
    text: str
    id: str
    marks: Mapping[str, Any]
    names: tuple[str, ...]

    @property
    def grade_id(self) -> str | None:
        return self.marks.get("grade_id")

    @property
    def answer(self) -> bool:
        """The learner writes here."""
        return bool(self.marks.get("solution"))

    @property
    def locked(self) -> bool:
        return not self.answer and bool(self.marks.get("locked") or self.marks.get("grade"))

    @cached_property
    def essence(self) -> str:
        return essence(self.text)

    @cached_property
    def bare(self) -> str:
        return bare(self.text)

    def alike(self, cell: Cell) -> bool:
        """Whether the cell says what the release's cell says."""
        return cell.essence == self.essence if self.type == "code" else cell.bare == self.bare

    @property
    def called(self) -> str:
        return self.names[0] if self.names else str(self.grade_id)


def slots(release: NotebookNode) -> list[Slot]:
    """The release's cells."""
    found = []
    for cell in release.cells:
        marks = cell.metadata.get("nbgrader", {})
        answer = marks.get("solution") and cell.cell_type == "code"
        binds = bound(cell.source) if answer else {}
        names = tuple(name for name, strength in binds.items() if strength == max(binds.values()))
        found.append(Slot(cell.cell_type, cell.source, cell.get("id", ""), marks, names))
    return found


def bare(text: str) -> str:
    """The text without blanks at the ends of lines and of the text."""
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


def essence(text: str) -> str:
    """Code without blank lines, comment lines and trailing blanks: what two copies of a cell have in common."""
    lines = (line.rstrip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def bound(text: str) -> dict[str, int]:
    """What the lines that are not indented bind: name → 2 for a function or class, 1 for an assignment or an import.

    Lines are looked at one by one and no further than 300 characters: a text made to be slow to search is not.
    """
    found: dict[str, int] = {}
    for line in text.split("\n"):
        if not line[:1].isidentifier() and line[:1] != "(":
            continue
        line = line[:300]
        if match := DEFINITION.match(line):
            found[match[1]] = 2
            continue
        if match := IMPORT.match(line):
            names = [part.split()[-1] for part in match[1].strip(" ()").partition("#")[0].split(",") if part.split()]
        else:
            target, equals, value = line.partition("=")
            target = target.partition(":")[0]
            whole = equals and not value.startswith("=") and target.count("(") == target.count(")")
            names = re.findall(r"\w+", target) if whole and TARGET.fullmatch(target) else []
        for name in names:
            found.setdefault(name, 1)
    return found


def definition(text: str, names: Sequence[str]) -> str:
    """The part of the text that defines the names: their statements with decorators, or all of it where that cannot be told."""
    lines = text.split("\n")
    taken: list[str] = []
    for first, line in enumerate(lines):
        if not bound(line).keys() & set(names):
            continue
        start = above = first
        while above:
            above -= 1
            if lines[above].startswith("@"):
                start = above
            elif not INDENTED.match(lines[above]):
                break
        stop = first + 1
        while stop < len(lines) and (INDENTED.match(lines[stop]) or lines[stop].startswith("#")):
            stop += 1
        taken += [*lines[start:stop], ""]
    part = "\n".join(taken).rstrip()
    torn = part.count('"""') % 2 or part.count("'''") % 2 or text.startswith("%%")
    return text if torn and len(text) < 100_000 else part


def evidence(cells: Sequence[Cell], releases: Sequence[NotebookNode]) -> int:
    """How many graded or answer cells of the releases the hand-in shows a trace of."""
    grade_ids = {cell.grade_id for cell in cells}
    ids = {i for cell in cells for i in cell.ids}
    defined = {name for cell in cells if cell.type == "code" for name, strength in cell.bound.items() if strength == 2}
    essences, bares = {cell.essence for cell in cells}, {cell.bare for cell in cells}
    count = 0
    for slot in (slot for release in releases for slot in slots(release) if slot.grade_id):
        known = slot.grade_id in grade_ids or slot.id in ids or not defined.isdisjoint(slot.names)
        count += known or (slot.essence in essences if slot.type == "code" else slot.bare in bares)
    return count


# The rebuilding


_HARMLESS = ("cells without nbgrader's marks", "answers found in another cell")


def rebuild(cells: Sequence[Cell], release: NotebookNode) -> Rebuilt:
    """The release's cells in the release's order, the learner's answers in them and the learner's own cells between them."""
    release_slots = slots(release)
    claims = claim(cells, release_slots)
    damage: dict[str, list[str]] = defaultdict(list)
    texts: list[str] = []
    where: list[int | None] = []  # the handed-in cell that each release cell stands for
    dropped: set[int] = set()
    spare: dict[int, int] = {}  # copy of an answer cell that does not count → number of its slot
    for number, (slot, mine) in enumerate(zip(release_slots, claims, strict=True)):
        chosen, text = _choose(cells, slot, mine)
        texts.append(text)
        where.append(chosen)
        if slot.grade_id:
            _note(damage, cells, slot, mine, chosen)
        for c in mine:
            if _untouched(cells[c], slot) or (c == chosen and not slot.locked):
                dropped.add(c)
            elif slot.answer:
                spare[c] = number
    own = [c for c, cell in enumerate(cells) if c not in dropped and cell.text.strip()]
    _bring_home(cells, release_slots, texts, own, claims, damage)
    for number, slot in enumerate(release_slots):
        for c in own:
            if c not in spare and cells[c].defines(slot.names):
                spare[c] = number
    before = place(own, where, spare)
    notebook = _assemble(cells, release, texts, before)
    answers = ((slot, Cell(slot.type, text)) for slot, text in zip(release_slots, texts, strict=True) if slot.answer)
    attempted = sum(not _untouched(cell, slot) for slot, cell in answers)
    return Rebuilt(notebook, attempted, damage)


def claim(cells: Sequence[Cell], release_slots: Sequence[Slot]) -> list[list[int]]:
    """For each release cell the numbers of the handed-in cells that stand for it, in their order."""
    claims: list[list[int]] = [[] for _ in release_slots]
    free = dict.fromkeys(range(len(cells)))
    by_grade: dict[str, list[int]] = defaultdict(list)
    by_id: dict[str, list[int]] = defaultdict(list)
    by_text: dict[str, list[int]] = defaultdict(list)
    by_essence: dict[str, list[int]] = defaultdict(list)
    says = {slot.essence: slot.grade_id for slot in release_slots if slot.grade_id and slot.type == "code"}
    marked = {slot.grade_id: slot for slot in release_slots if slot.grade_id}
    for c, cell in enumerate(cells):
        if cell.grade_id in marked:
            # A cell that says word for word what another graded cell says is that other cell, whatever its mark.
            pointed = cell.grade_id if marked[cell.grade_id].alike(cell) else says.get(cell.essence, cell.grade_id)
            by_grade[pointed].append(c)
        for i in dict.fromkeys(cell.ids):
            by_id[i].append(c)
        by_text[cell.bare].append(c)
        by_essence[cell.essence].append(c)

    def take(number: int, mine: Iterable[int]) -> None:
        for c in mine:
            if c in free:
                del free[c]
                claims[number].append(c)

    for number, slot in enumerate(release_slots):
        if slot.grade_id:
            take(number, by_grade.get(slot.grade_id, ()))
    for number, slot in enumerate(release_slots):
        mine = [c for c in by_id.get(slot.id, ()) if c in free] if slot.id and not claims[number] else []
        if not slot.grade_id:  # one cell, of the same type; a copy of it is the learner's own
            mine = [c for c in mine if cells[c].type == slot.type and cells[c].text.strip()]
            mine = [c for c in mine if slot.alike(cells[c])][:1] or mine[-1:]
        take(number, mine)
    for number, slot in enumerate(release_slots):
        if not claims[number] and slot.bare:
            if slot.grade_id and slot.type == "code":
                take(number, by_essence.get(slot.essence, ()))
            elif slot.grade_id:
                take(number, by_text.get(slot.bare, ()))
            else:  # twins in their order
                mine = by_text.get(slot.bare, [])
                take(number, [c for c in mine if c in free and cells[c].type == slot.type][:1])
    for number, slot in enumerate(release_slots):
        if not claims[number] and slot.names:
            mine = [c for c in free if cells[c].type == "code" and cells[c].defines(slot.names)]
            best = max((cells[c].defines(slot.names) for c in mine), default=0)
            take(number, [c for c in mine if cells[c].defines(slot.names) == best])
    return claims


def _choose(cells: Sequence[Cell], slot: Slot, mine: Sequence[int]) -> tuple[int | None, str]:
    """Which of the handed-in cells stands for the release cell, and the text that the release cell gets."""
    written = [c for c in mine if cells[c].text.strip()]
    if not written:
        return None, slot.text
    if slot.locked:
        same = [c for c in written if slot.alike(cells[c])]
        return (same or written)[0], slot.text
    attempts = [c for c in written if not _untouched(cells[c], slot)]
    best = max((cells[c].defines(slot.names) for c in attempts), default=0)
    attempts = [c for c in attempts if cells[c].defines(slot.names) == best]
    chosen = (attempts or written)[-1]
    return chosen, cells[chosen].text


def _untouched(cell: Cell, slot: Slot) -> bool:
    """Whether nothing was written into the release's cell, or nothing but comments."""
    return slot.alike(cell) or not (cell.essence if slot.type == "code" else cell.bare)


def _note(
    damage: dict[str, list[str]], cells: Sequence[Cell], slot: Slot, mine: Sequence[int], chosen: int | None
) -> None:
    """Write down what happened to a graded cell."""
    name = slot.called if slot.answer else str(slot.grade_id)
    if chosen is None:
        damage["missing graded cells"].append(name)
        return
    cell = cells[chosen]
    if len(mine) > 1:
        damage["copied graded cells"].append(name)
    if slot.locked and not all(slot.alike(cells[c]) for c in mine):
        damage["changed locked cells"].append(name)
    if cell.type != slot.type:
        damage["graded cells of another type"].append(name)
    if cell.grade_id != slot.grade_id and cell.grade_id is not None:
        damage["graded cells with changed marks"].append(name)
    elif cell.grade_id is None:
        damage[_HARMLESS[0]].append(name)
    elif any(key in cell.marks and cell.marks[key] != slot.marks.get(key, cell.marks[key]) for key in MARKS):
        damage["graded cells with changed marks"].append(name)


def _bring_home(
    cells: Sequence[Cell],
    release_slots: Sequence[Slot],
    texts: list[str],
    own: Sequence[int],
    claims: Sequence[Sequence[int]],
    damage: dict[str, list[str]],
) -> None:
    """Copy answers that were typed elsewhere over their untouched stubs, in `texts`."""
    unchanged = {slot.essence for slot in release_slots}
    standing = {c for mine in claims for c in mine} | set(own)
    written = [c for c in standing if cells[c].type == "code" and cells[c].essence not in unchanged]
    for number, slot in enumerate(release_slots):
        if not slot.names or essence(texts[number]) != slot.essence:
            continue
        found = [(cells[c].defines(slot.names), c) for c in written if cells[c].defines(slot.names)]
        if found:
            texts[number] = definition(cells[max(found)[1]].text, slot.names)
            damage[_HARMLESS[1]].append(slot.called)


def place(own: Sequence[int], where: Sequence[int | None], spare: Mapping[int, int]) -> dict[int, list[int]]:
    """Before which release cell each of the learner's own cells goes (the number after the last one: at the end).

    Parameters
    ----------
    own
        Numbers of handed-in cells, rising.
    where
        For each release cell the number of the handed-in cell that stands for it, or None.
    spare
        Own cells that define what an answer cell defines → that answer cell: they stay on their side of it.
    """
    moved = set(range(len(where))) - set(rising(where))
    position = sorted((c, r) for r, c in enumerate(where) if c is not None)
    spots = [c for c, _ in position]
    in_order = [(c, r) for c, r in position if r not in moved]
    before: dict[int, list[int]] = defaultdict(list)
    for c in own:
        following = bisect.bisect_left(spots, c)
        after = position[following][1] if following < len(position) else len(where)
        previous = position[following - 1][1] if following else -1
        if after in moved:
            goal = after
        elif previous in moved:
            goal = previous + 1
        else:
            # Between two cells in order: before those that the learner moved down from here, after those that are missing.
            low = max((r for spot, r in in_order if spot < c), default=-1) + 1
            high = min((r for spot, r in in_order if spot >= c), default=len(where))
            later = (r for r in range(low, high) if (spot := where[r]) is not None and spot > c)
            goal = next(later, high)
        answer = spare.get(c)
        if answer is not None and (spot := where[answer]) is not None:
            goal = min(goal, answer) if c < spot else max(goal, answer + 1)
        before[goal].append(c)
    return before


def rising(where: Sequence[int | None]) -> list[int]:
    """The release cells of a longest run that the learner left in order (patience sorting; Fredman 1975)."""
    ends: list[int] = []  # last place of the best run of each length
    last: list[int] = []  # the release cell there
    link: dict[int, int | None] = {}
    for number, spot in enumerate(where):
        if spot is None:
            continue
        length = bisect.bisect_left(ends, spot)
        link[number] = last[length - 1] if length else None
        ends[length : length + 1] = [spot]
        last[length : length + 1] = [number]
    run: list[int] = []
    at = last[-1] if last else None
    while at is not None:
        run.append(at)
        at = link[at]
    return run[::-1]


def _assemble(
    cells: Sequence[Cell], release: NotebookNode, texts: Sequence[str], before: Mapping[int, Sequence[int]]
) -> NotebookNode:
    taken = {cell.get("id", "") for cell in release.cells}
    twins: Counter[tuple[str, str]] = Counter()
    built: list[dict[str, Any]] = []
    for number in range(len(texts) + 1):
        for c in before.get(number, ()):
            twins[cells[c].type, cells[c].text] += 1
            built.append(_own(cells[c], twins[cells[c].type, cells[c].text], taken))
        if number < len(texts):
            original = release.cells[number]
            built.append(_plain(original.cell_type, original.id, texts[number], copy.deepcopy(original.metadata)))
    metadata = {
        key: copy.deepcopy(release.metadata[key]) for key in ("kernelspec", "language_info") if key in release.metadata
    }
    return nbformat.from_dict({"cells": built, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def _own(cell: Cell, twin: int, taken: set[str]) -> dict[str, Any]:
    """One of the learner's own cells; its id depends on its text only, so that taking it in twice changes nothing."""
    salt = ""
    while (name := hashlib.sha256(f"own\n{cell.type}\n{cell.text}\n{twin}{salt}".encode()).hexdigest()[:12]) in taken:
        salt += "'"
    taken.add(name)
    return _plain(cell.type, name, cell.text, {})


def _plain(cell_type: str, name: str, source: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    cell = {"cell_type": cell_type, "id": name, "metadata": metadata, "source": source}
    return {**cell, "outputs": [], "execution_count": None} if cell_type == "code" else cell
