"""Where the hand-ins are: from a folder or a zip as people have it to one `Found` for each student.

What is understood, mixed as it comes:

- nbgrader's layout, `<folder>/<student>/<chapter>/*.ipynb`. A student with other chapters only has not handed in this one.
- a folder for each student, notebooks anywhere below; Moodle's suffix `_assignsubmission_file_` is not part of the name.
- a flat folder of notebooks as a learning management system gives them. The student is (1) what stands before the numbers of
  Canvas's `name_123_456_file.ipynb` (with or without `_LATE`; 123 is the user's id there, which keeps two of one name
  apart; where other numbers follow, the learner's own name may end in a number: then it is the whole stem), else
  (2) what stands after a leading `<notebook>_` or `<chapter>_`, else (3) what stands before `_<notebook>` or `_<chapter>`,
  else (4) the whole stem: two students in two rows are mended more easily than two in one.
- a zip of any of these, a zip in the place of a notebook, and one notebook.

Outer folders around everything are looked through. Links are never followed: they could lead to another student's work.
Of a zip only notebooks are unpacked, each under a name of our making in a temporary folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import sys
import tempfile
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import BinaryIO

from .chapters import chapters

MAX_BYTES = 32 * 1024**2  # of one notebook
MAX_UNPACKED = 256 * 1024**2  # bytes out of one student's zips, damaged members included
MAX_DIRECTORY = 16 * 1024**2  # bytes that one student's zip takes to list what is in it
MAX_FILES = 500  # of one student, looked at
MAX_NOTEBOOKS = 20  # of one student, read
MAX_READ = 64 * 1024**2  # bytes of all of them together
MAX_DEPTH = 8  # folders below the top
MAX_ID = 60  # characters of a student id: at most 240 bytes; a folder's name may have 255

# <name>_<user's id>_<upload's id>_<file>; a name may hold underscores, and Canvas's numbers do not begin with 0.
CANVAS = re.compile(r"(?P<student>.*?)(_LATE)?_(?P<id>[1-9][0-9]*)_(?P<upload>[1-9][0-9]*)_(?P<file>.*)", re.S)
# Where numbers stand further on they may be the ones, and those before them be part of a learner's name.
FURTHER = re.compile("[1-9][0-9]*_|.*_[1-9][0-9]*_[1-9][0-9]*_", re.S)
ANONYMOUS = re.compile("(LATE_)?(?P<student>anon_[^_]+)_[0-9]+_.*", re.S)  # Canvas's, without names
UNCLEAR = "?"  # in the place of a Canvas id
MOODLE = re.compile(r"_assignsubmission_file_?$")
ALLOWED = set("._-+@ ,'()~#")  # beside letters, marks and digits
# Letters and marks without any ink (Unicode's Default_Ignorable_Code_Point): two names with and without look the same.
INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
WORK = (".ipynb", ".zip")
FORMULA = "=+-@"  # a spreadsheet takes a cell that begins so for a formula

_scratch: list[tempfile.TemporaryDirectory[str]] = []  # removed when the interpreter ends


@dataclass(frozen=True)
class Carried:
    """A file that was read on another machine, with what `Path` would tell of its name: `data`, or why there is none."""

    name: str
    data: bytes = b""
    refused: str = ""

    @property
    def stem(self) -> str:
        return Path(self.name).stem


@dataclass(frozen=True)
class Found:
    """What lies in the hand-in folder for one student.

    Parameters
    ----------
    student
        An id that is safe as the name of a folder and in a spreadsheet.
    paths
        The notebooks, sorted.
    flags, reason
        What was wrong with the hand-in as such: words, and one sentence.
    canvas_id
        The user's number in Canvas, where the file's name tells it; "?" where it leaves open which one that is.
    """

    student: str
    paths: tuple[Path | Carried, ...]
    flags: tuple[str, ...] = ()
    reason: str = ""
    canvas_id: str = ""


@dataclass(frozen=True)
class Entry:
    """One file or folder below the top: its path in parts ("" ends a folder's), where its bytes are, or why it is not taken."""

    parts: tuple[str, ...]
    path: Path | None = None
    refused: str = ""
    member: zipfile.ZipInfo | None = None  # of the zip that everything lies in

    def below(self, parts: tuple[str, ...]) -> Entry:
        """The same in another place."""
        return replace(self, parts=parts)


def find(submissions: Path, chapter: str, stems: Sequence[str], scratch: Path | None = None) -> list[Found]:
    """Every student's hand-in of one chapter, sorted by student.

    Parameters
    ----------
    submissions
        A folder, a zip or a notebook.
    chapter
        For example "01_basics".
    stems
        The names of the chapter's notebooks, without `.ipynb`.
    scratch
        Where notebooks from zips are put. Without it they are put in a temporary folder that is removed at exit.

    Raises
    ------
    ValueError
        Where `submissions` is none of these, or its zip cannot be opened.
    OSError
        Where the folder cannot be read or the disk is full.
    """
    name, submissions = submissions.name, submissions.resolve()  # from here on nothing on the way to a file is a link
    top = Path(name or submissions.name).stem
    with contextlib.ExitStack() as stack:
        archive = None
        if submissions.is_dir():
            entries = list(_walk(submissions))
        elif submissions.is_file() and submissions.suffix.lower() == ".ipynb":
            entries = [Entry((name,), submissions)]
        elif submissions.is_file():
            archive = _zip(submissions, stack)
            entries = list(_members(archive, (), WORK))
        else:
            raise ValueError(f"{submissions} is not there: give a folder, a zip or a notebook")
        unpacker = _Unpacker(archive, scratch and scratch.resolve())
        return _students(_arrange(entries, top, chapter, stems), chapter, stems, unpacker)


def opened(path: Path) -> BinaryIO:
    """A regular file where it was found: no link is followed, on the way there neither, and no pipe waited for.

    Raises
    ------
    OSError
        Where it is something else by now, or cannot be read.
    """
    options = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = open(os.open(path, options), "rb")
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a file")
        if sys.platform == "linux" and path.is_absolute():
            if os.readlink(f"/proc/self/fd/{file.fileno()}") != str(path):
                raise OSError(errno.ELOOP, "it lies behind a link")
    except BaseException:
        file.close()
        raise
    return file


def safe_id(name: str) -> str:
    """The name where it can be a folder's name and a spreadsheet's cell, else one made from it, different for each name."""
    name = unicodedata.normalize("NFC", name)
    text = "".join(c if c in ALLOWED or unicodedata.category(c)[0] in "LMN" else "_" for c in name)
    text = INVISIBLE.sub("_", text).strip()
    if text[:1] in (*FORMULA, ".", ""):
        text = "_" + text[1:]
    if len(text) > MAX_ID:
        text = text[: MAX_ID - 9]
    text = text.rstrip(" .")
    return name if text == name else marked(text, name)


def marked(text: str, name: str) -> str:
    """An id made from the text that no other name gets."""
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{text[: MAX_ID - 9]}-{mark}"


def printable(name: str, limit: int = 60) -> str:
    """A file's name for a sentence: in quotation marks, on one line, without control characters and lone surrogates.

    Nor with a semicolon, which ends a cell for spreadsheets of many countries: what follows may be a formula.
    """
    text = "".join(c if c.isprintable() and c != ";" else "_" for c in name.encode("utf-8", "replace").decode())
    return f'"{text}"' if len(text) <= limit else f'"{text[: limit - 1]}…"'


def sentence(reasons: Sequence[str]) -> str:
    """The reasons as one sentence, each once, or ""."""
    text = "; ".join(dict.fromkeys(reasons))
    return text and text[0].upper() + text[1:] + "."


def _walk(top: Path) -> Iterator[Entry]:
    """The folder's files and folders, in the order of their names; the limit is one student's, not an outer folder's."""
    outer: tuple[str, ...] = ()
    while len(outer) < MAX_DEPTH and (lone := _lone_folder(top)):
        for name in _names(top):
            if name != lone:
                yield from _below(top / name, (*outer, name))
        top, outer = top / lone, (*outer, lone)
        yield Entry((*outer, ""))
    for name in _names(top):
        seen = 0
        for entry in _below(top / name, (*outer, name)):
            seen += 1
            if seen > MAX_FILES:
                yield Entry((*outer, name, "…"), None, f"only the first {MAX_FILES} files were looked at")
                break
            yield entry


def _lone_folder(top: Path) -> str:
    """The one folder in it, if it can be read and no work lies beside it: a list of grades may; or ""."""
    with contextlib.suppress(OSError):
        names = _names(top)
        folders = [name for name in names if stat.S_ISDIR((top / name).lstat().st_mode)]
        if len(folders) == 1 and not any(name.lower().endswith(WORK) for name in names if name not in folders):
            os.listdir(top / folders[0])
            return folders[0]
    return ""


def _names(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not _junk(name))


def _below(path: Path, parts: tuple[str, ...]) -> Iterator[Entry]:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            yield Entry(parts, None, f"{printable(parts[-1])} is a link and was not followed")
        elif stat.S_ISDIR(mode):
            yield Entry((*parts, ""))
            if len(parts) > MAX_DEPTH:
                yield Entry((*parts, ""), None, f"{printable(parts[-1])} lies too deep")
                return
            for name in _names(path):
                yield from _below(path / name, (*parts, name))
        elif stat.S_ISREG(mode):
            yield Entry(parts, path)
        else:
            yield Entry(parts, None, f"{printable(parts[-1])} is not a file")
    except OSError as error:
        yield Entry(parts, None, f"{printable(parts[-1])} cannot be read ({error.strerror})")


def _junk(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _zip(path: Path, stack: contextlib.ExitStack) -> zipfile.ZipFile:
    """The zip, open until the stack ends.

    Raises
    ------
    ValueError
        It is none.
    OSError
        It cannot be read.
    """
    try:
        return stack.enter_context(zipfile.ZipFile(stack.enter_context(opened(path))))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise ValueError(f"{printable(path.name)} is not a zip that can be read") from error


def _members(archive: zipfile.ZipFile, parts: tuple[str, ...], wanted: tuple[str, ...]) -> Iterator[Entry]:
    """What a zip lists, below `parts`; files that do not end so are names only."""
    for member in archive.infolist():
        if len(re.findall(r"[/\\]", member.filename)) > 4 * MAX_DEPTH:
            yield Entry((*parts, *_inside_zip(member)[:MAX_DEPTH], ""), None, "a file in the zip lies too deep")
            continue
        below = _inside_zip(member)
        if not below or any(_junk(part) for part in below):
            continue
        where = (*parts, *below)
        if member.is_dir():
            yield Entry((*where, ""))
        elif stat.S_ISLNK(member.external_attr >> 16):
            yield Entry(where, None, f"{printable(below[-1])} is a link and was not followed")
        elif not below[-1].lower().endswith(wanted):
            yield Entry(where)
        elif re.match(r"[/\\]|[A-Za-z]:", member.filename):
            yield Entry((*parts, below[-1]), None, f"{printable(member.filename)} leads out of the zip")
        elif ".." in re.split(r"[/\\]", member.filename):  # stays with whose folder it is in
            yield Entry(where, None, f"{printable(member.filename)} leads out of the zip")
        else:
            yield Entry(where, member=member)


class _Unpacker:
    """Takes notebooks out of zips: out of the one that everything lies in, and out of those in the places of notebooks."""

    def __init__(self, archive: zipfile.ZipFile | None, scratch: Path | None) -> None:
        self.archive, self.folder, self.count = archive, scratch, 0
        self.left = 0  # bytes that the student may still have unpacked

    def unpacked(self, entries: Iterable[Entry], allowance: int) -> Iterator[Entry]:
        """One student's files, each with its path; of zips what is in them, as many bytes as are allowed."""
        self.left = allowance
        for entry in entries:
            if entry.member is not None:
                assert self.archive is not None
                entry = self._take(self.archive, entry)
            if entry.path is None or entry.path.suffix.lower() != ".zip":
                yield entry
                continue
            yield Entry((*entry.parts, ""))
            with contextlib.ExitStack() as stack:
                try:
                    archive = self._inner(entry.path, stack)
                except ValueError as error:
                    yield Entry(entry.parts, None, str(error))
                else:
                    for inner in _members(archive, entry.parts, (".ipynb",)):  # a zip in it is a name only
                        if inner.member is not None:
                            inner = self._take(archive, inner)
                        yield inner
            if entry.member is not None:
                entry.path.unlink()  # it came out of a zip itself

    def _inner(self, path: Path, stack: contextlib.ExitStack) -> zipfile.ZipFile:
        name = printable(path.name)
        try:
            ends = zipfile._EndRecData(stack.enter_context(opened(path)))  # type: ignore[attr-defined]  # reads no list
            if ends and ends[zipfile._ECD_SIZE] > MAX_DIRECTORY:  # type: ignore[attr-defined]
                raise ValueError(f"{name} lists too many members")
            return _zip(path, stack)
        except zipfile.BadZipFile as error:
            raise ValueError(f"{name} is not a zip that can be read") from error
        except OSError as error:
            raise ValueError(f"{name} cannot be read ({error.strerror})") from error

    def _take(self, archive: zipfile.ZipFile, entry: Entry) -> Entry:
        """Write the member under a new name; its declared size is not believed."""
        member, parts = entry.member, entry.parts
        assert member is not None
        name = printable(parts[-1])

        def refused(why: str) -> Entry:
            return Entry(parts, None, f"{name} {why}")

        if member.flag_bits & 1:
            return refused("is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return refused("is compressed in an unusual way")
        if self.left <= 0:
            return refused(f"was not unpacked: the zips hold more than {MAX_UNPACKED // 1024**2} MB")
        if member.file_size > MAX_BYTES:
            return refused(f"is larger than {MAX_BYTES // 1024**2} MB")
        self.left -= max(member.file_size, member.compress_size)  # also where it turns out to be damaged
        try:
            with archive.open(member) as stream:
                data = stream.read(member.file_size + 1)  # no more is unpacked, whatever is in it
        except Exception as error:  # zlib.error, BadZipFile, EOFError, struct.error, …: the member's fault
            return refused(f"cannot be unpacked ({type(error).__name__})")
        self.count += 1
        if self.folder is None:
            _scratch.append(tempfile.TemporaryDirectory(prefix="underhood-"))
            self.folder = Path(_scratch[-1].name).resolve()
        folder = self.folder / f"{self.count:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        stem, _, suffix = parts[-1].rpartition(".")
        path = folder / f"{safe_id(stem)}.{suffix.lower()}"
        path.write_bytes(data)
        return replace(entry, path=path)


def _inside_zip(member: zipfile.ZipInfo) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[/\\]", member.filename) if part not in ("", ".", ".."))


def _arrange(entries: list[Entry], top: str, chapter: str, stems: Sequence[str]) -> list[Entry]:
    """Look through outer folders, and put a chapter's folder at the top below the student whose it is."""
    known, level = set(chapters()), entries
    for depth in range(MAX_DEPTH):
        inside = [entry for entry in level if len(entry.parts) > 1 or _is_work(entry)]  # no README
        tops = {entry.parts[0] for entry in inside}
        if len(tops) != 1 or any(len(entry.parts) == 1 for entry in inside):
            break
        (lone,) = tops
        if MOODLE.search(lone) or lone.lower().endswith(".zip") or (depth and lone in known):
            break  # one student's, whatever it holds
        below = [e.below(e.parts[1:]) for e in inside if e.parts[1:] != ("",)]
        level = [entry for entry in level if len(entry.parts) == 1] + below
        if _stands_around_students(inside, known, chapter, stems):
            entries = level
        elif lone in known:
            break
    return [e.below((top, *e.parts)) if e.parts[0] in known else e for e in entries]


def _stands_around_students(entries: list[Entry], known: set[str], chapter: str, stems: Sequence[str]) -> bool:
    """Whether the one folder that all entries lie in holds several students' work, or is one student's.

    What most names in it say decides: no single one can merge the others into one student.
    """
    inside = [e for e in entries if e.parts[1:2] not in ((), ("",), ("…",))]
    theirs = {e.parts[1] for e in inside if _is_marked(e.parts[1])}
    if theirs and all(e.parts[1] in theirs or (len(e.parts) == 2 and not _is_work(e)) for e in inside):
        return True  # a learning management system's, also where it is the only one
    zips = {e.parts[1] for e in inside if len(e.parts) == 2 and _is_work(e) and not _is_notebook(e.parts[1])}
    folders = zips | {e.parts[1] for e in inside if len(e.parts) > 2}
    others = zips | {e.parts[1] for e in inside if len(e.parts) > 2 and _is_work(e)} - known
    files = [entry.parts[1] for entry in entries if len(entry.parts) == 2 and _is_notebook(entry.parts[1])]
    if entries[0].parts[0] in known:
        return sum(not name.lower().endswith(".zip") for name in others) > 1 and not files  # or it is one student's
    if folders & known and len(folders & known) >= len(others):
        return False  # chapters of one student
    titles = "|".join(re.escape(title) for title in (chapter, *stems))
    plain = re.compile(rf"(?:{titles})(?:[ ._-]*(?:copy|final|new|old|v)?[ ._-]*[(]?[0-9]*[)]?)?[.]ipynb", re.I)
    named = [name for name in files if len(name) < 256 and plain.fullmatch(name)]  # basics.ipynb, basics-Copy1.ipynb
    students = {_student_of_file(name, chapter, stems)[:2] for name in files if name not in named}
    most = max(len(named), 1)
    holds = any(len(e.parts) > 3 and e.parts[2] == chapter for e in entries)
    return len(students) + len(others) > most or holds or (len(folders) > 1 and not files)


def _is_marked(name: str) -> bool:
    """Whether a learning management system made this name of a folder or file."""
    stem = name.rpartition(".")[0] or name
    return bool(MOODLE.search(name) or ANONYMOUS.fullmatch(stem) or CANVAS.fullmatch(stem))


def _is_work(entry: Entry) -> bool:
    return (entry.path is not None or entry.member is not None) and entry.parts[-1].lower().endswith(WORK)


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(".ipynb")


def _student_of_file(name: str, chapter: str, stems: Sequence[str]) -> tuple[str, bool, str]:
    """The student by the rule for flat folders in the module's docstring, whether the name says that it is a hand-in, and
    the user's id in Canvas, as in `Found`.
    """
    stem = name.rpartition(".")[0] or name
    if match := ANONYMOUS.fullmatch(stem):
        return match["student"], True, ""
    if match := CANVAS.fullmatch(stem):
        if FURTHER.match(match["file"]):
            return stem, True, UNCLEAR
        return match["student"], True, match["id"]
    titles = "|".join(re.escape(title) for title in (chapter, *stems))
    leading = re.match(rf"(?:{titles})_(?P<student>.+)", stem, re.I | re.S)
    trailing = re.match(rf"(?P<student>.+?)_(?:{titles})(?![^\W_])", stem, re.I | re.S)
    match = leading or trailing
    return (match["student"], True, "") if match else (stem, False, "")


def _students(entries: list[Entry], chapter: str, stems: Sequence[str], unpacker: _Unpacker) -> list[Found]:
    """Gather the entries by student, and unpack what they handed in."""
    by_student: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    users: dict[str, set[str]] = defaultdict(set)  # of Canvas, by name
    loose: set[tuple[str, str]] = set()  # whose hand-in does not have nbgrader's layout
    here: set[tuple[str, str]] = set()  # who handed in something that is not another chapter's
    known = set(chapters())
    for entry in entries:
        first, *rest = entry.parts
        if rest and not first.lower().endswith(".zip"):
            student, canvas_id = MOODLE.sub("", first), ""
        else:
            student, sure, canvas_id = _student_of_file(first, chapter, stems)
            if not (rest or sure or entry.refused or first.lower().endswith(WORK)):
                continue  # a list of grades, a README
        key = unicodedata.normalize("NFC", student), canvas_id
        by_student[key].append(entry)
        users[key[0]].update({canvas_id} - {"", UNCLEAR})
        if not rest or student != first:
            loose.add(key)
        if chapter in rest or not known.intersection(rest) and rest[-1:] != [""]:
            here.add(key)
    pools: dict[tuple[str, str], int] = defaultdict(lambda: MAX_UNPACKED)
    found: list[Found] = []
    taken: set[str] = set()
    for key, theirs in sorted(by_student.items()):
        name, canvas_id = key
        if key not in here | loose and any(known.intersection(entry.parts[1:]) for entry in theirs):
            continue  # other chapters only
        if len(users[name]) > 1 and canvas_id in users[name]:
            name = f"{name}_{canvas_id}"
        theirs.sort(key=lambda entry: chapter not in entry.parts[1:])  # the chapter's folder first
        # One may send many zips whose number is unclear, each with a row of its own: they share what is left.
        unclear = canvas_id == UNCLEAR and not _is_notebook(theirs[0].parts[0]) and CANVAS.fullmatch(name)
        pool = (unclear["student"], unclear["id"]) if unclear else key
        unpacked = list(islice(unpacker.unpacked(theirs[: MAX_FILES + 1], pools[pool]), MAX_FILES + 1))
        pools[pool] = unpacker.left
        if len(unpacked) > MAX_FILES:
            unpacked[-1] = Entry(("…",), None, f"only the first {MAX_FILES} files were looked at")
        mine = [e for e in unpacked if chapter in e.parts[1:] or not known.intersection(e.parts[1:])]
        mine.sort(key=lambda entry: chapter not in entry.parts[1:])
        if key in loose and not any(e.path for e in mine):
            mine = unpacked  # it was handed in for this one
        student = safe_id(name)
        if student.casefold() in taken:  # a file system may take the two for one
            student = marked(student, f"{name} {canvas_id}".strip())
        taken.add(student.casefold())
        found.append(_found(name, student, mine, canvas_id))
    return sorted(found, key=lambda f: f.student)


def _size(path: Path) -> int:
    """How much of the file would be read."""
    try:
        return min(path.lstat().st_size, MAX_BYTES)
    except OSError:
        return 0  # `slurp` says why


def _found(name: str, student: str, entries: list[Entry], canvas_id: str) -> Found:
    paths = [e.path for e in entries if e.path is not None and _is_notebook(e.path.name)]
    refused = list(dict.fromkeys(e.refused for e in entries if e.refused))
    flags, reasons = [], []
    if refused:
        flags.append("refused")
        reasons.append("; ".join(refused[:3]) + (f"; and {len(refused) - 3} more" if len(refused) > 3 else ""))
    if len(paths) > MAX_NOTEBOOKS:
        flags.append("several notebooks")
        reasons.append(f"only {MAX_NOTEBOOKS} of {len(paths)} notebooks were read")
        paths = paths[:MAX_NOTEBOOKS]
    fit = sum(total <= MAX_READ for total in accumulate(map(_size, paths)))
    if fit < len(paths):
        flags.append("several notebooks")
        reasons.append(f"only {fit} of {len(paths)} notebooks were read, {MAX_READ // 1024**2} MB")
        paths = paths[:fit]
    if not paths and not refused:
        files = [e.parts[-1] for e in entries if e.parts[-1] not in ("", "…")]
        flags.append("no notebook")
        reasons.append("no notebook was handed in" + (f", only {printable(files[0])}" if files else ""))
    elif not paths:
        flags.append("no notebook")
    if canvas_id == UNCLEAR:
        reasons.append("it is open which number in the file's name is the user's in Canvas")
    if student != name:
        flags.append("unsafe id")
        reasons.append(f"the name {printable(name)} is not safe as an id and was changed")
    return Found(student, tuple(paths), tuple(sorted(set(flags))), sentence(reasons), canvas_id)
