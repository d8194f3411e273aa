"""Where the hand-ins are: from a folder or a zip as people have it to one `Found` for each student.

What is understood, mixed as it comes:

- nbgrader's layout, `<folder>/<student>/<chapter>/*.ipynb`. A student with other chapters only has not handed in this one.
- a folder for each student, notebooks anywhere below; Moodle's suffix `_assignsubmission_file_` is not part of the name.
- a flat folder of notebooks as a learning management system gives them. The student is (1) what stands before the numbers of
  Canvas's `name_123_456_file.ipynb` (with or without `_LATE`; 123 is the user's id there, which keeps two of one name
  apart; where other numbers follow, the learner's own name may end in a number: then it is all up to the second), else
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
from dataclasses import dataclass
from itertools import accumulate
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
    """One file or folder below the top: its path in parts, where its bytes are, or why it is not taken."""

    parts: tuple[str, ...]
    path: Path | None = None
    refused: str = ""


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
    unpacker = _Unpacker(scratch and scratch.resolve())
    if submissions.is_dir():
        walked = list(_walk(submissions))
        unpacker.outer = _outer(entry.parts for entry in walked)
        entries = [e for entry in walked for e in unpacker.inside(entry)]
    elif submissions.is_file() and submissions.suffix.lower() == ".ipynb":
        entries = [Entry((name,), submissions)]
    elif submissions.is_file():
        entries = [e for entry in unpacker.unzip(submissions, ()) for e in unpacker.inside(entry)]
    else:
        raise ValueError(f"{submissions} is not there: give a folder, a zip or a notebook")
    return _students(_arrange(entries, Path(name or submissions.name).stem, chapter, stems), chapter, stems)


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
    names = _names(top)
    folders = [name for name in names if stat.S_ISDIR((top / name).lstat().st_mode)]
    if len(folders) == 1 and not any(name.lower().endswith(WORK) for name in names if name not in folders):
        with contextlib.suppress(OSError):
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


def _outer(paths: Iterable[tuple[str, ...]]) -> int:
    """How many folders lie around all work; a folder's path ends in ""."""
    work = [path[:-1] for path in paths if not path[-1] or path[-1].lower().endswith(WORK)]
    around, known = os.path.commonprefix(work), set(chapters())
    for depth, name in enumerate(around):
        if MOODLE.search(name):
            return depth
        if name in known:
            return max(depth - 1, 0)
    return len(around)


class _Unpacker:
    """Takes notebooks out of zips, with an allowance of bytes for each student: nobody uses up a neighbor's.

    `outer` folders lie around everything; what is below the same name there is one student's.
    """

    def __init__(self, scratch: Path | None) -> None:
        self.folder = scratch
        self.left: dict[str, int] = defaultdict(lambda: MAX_UNPACKED)
        self.count = self.outer = 0

    def owner(self, parts: tuple[str, ...]) -> str:
        """Whose a file is, as far as its place tells."""
        name = parts[min(self.outer, len(parts) - 1)]
        match = CANVAS.fullmatch(name.rpartition(".")[0] or name)
        return f"{match['student']}_{match['id']}" if match else name

    def inside(self, entry: Entry) -> Iterator[Entry]:
        """The entry itself, or what is in it where it is a zip: a student's folder, zipped."""
        if entry.path is None or entry.path.suffix.lower() != ".zip":
            yield entry
            return
        try:
            yield Entry((*entry.parts, ""))
            yield from self.unzip(entry.path, entry.parts)
        except ValueError as error:
            yield Entry(entry.parts, None, str(error))
        finally:
            if self.folder is not None and entry.path.is_relative_to(self.folder):
                entry.path.unlink()  # it came out of a zip itself

    def unzip(self, path: Path, parts: tuple[str, ...]) -> Iterator[Entry]:
        """The members of a zip, below `parts`; a zip in the outermost zip is unpacked as it is."""
        name = printable(path.name)
        wanted = (".ipynb",) if parts else WORK
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(opened(path))
                ends = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # reads no list
                bomb = parts and ends and ends[zipfile._ECD_SIZE] > MAX_DIRECTORY  # type: ignore[attr-defined]
                archive = None if bomb else stack.enter_context(zipfile.ZipFile(file))
            except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
                raise ValueError(f"{name} is not a zip that can be read") from error
            except OSError as error:
                if not parts:
                    raise
                raise ValueError(f"{name} cannot be read ({error.strerror})") from error
            if archive is None:
                raise ValueError(f"{name} lists too many members")
            members = archive.infolist()
            if not parts:
                listed = [(_inside_zip(m), m.is_dir()) for m in members if _inside_zip(m)]
                self.outer = _outer((*at, "") if folder else at for at, folder in listed if not any(map(_junk, at)))
            seen: dict[str, int] = defaultdict(int)  # by student
            for member in members:
                below = _inside_zip(member)
                if not below or any(_junk(part) for part in below):
                    continue
                where = (*parts, *below)
                owner = self.owner(where)
                seen[owner] += 1
                if seen[owner] > MAX_FILES:
                    if seen[owner] == MAX_FILES + 1:
                        place = where[: self.outer + 1] if len(where) > self.outer + 1 else where[:-1]
                        yield Entry((*place, "…"), None, f"only the first {MAX_FILES} files were looked at")
                    continue
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
                    yield self._take(archive, member, where)

    def _take(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, parts: tuple[str, ...]) -> Entry:
        """Write the member under a new name; its declared size is not believed."""
        name = printable(parts[-1])
        if member.flag_bits & 1:
            return Entry(parts, None, f"{name} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return Entry(parts, None, f"{name} is compressed in an unusual way")
        too_large = Entry(parts, None, f"{name} is larger than {MAX_BYTES // 1024**2} MB")
        owner = self.owner(parts)
        if self.left[owner] <= 0:
            return Entry(parts, None, f"{name} was not unpacked: the zips hold more than {MAX_UNPACKED // 1024**2} MB")
        if member.file_size > MAX_BYTES:
            return too_large
        self.left[owner] -= max(member.file_size, member.compress_size)  # also where it turns out to be damaged
        try:
            with archive.open(member) as stream:
                data = stream.read(member.file_size + 1)  # no more is unpacked, whatever is in it
        except Exception as error:  # zlib.error, BadZipFile, EOFError, struct.error, …: the member's fault
            return Entry(parts, None, f"{name} cannot be unpacked ({type(error).__name__})")
        self.count += 1
        if self.folder is None:
            _scratch.append(tempfile.TemporaryDirectory(prefix="underhood-"))
            self.folder = Path(_scratch[-1].name).resolve()
        folder = self.folder / f"{self.count:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        stem, _, suffix = parts[-1].rpartition(".")
        path = folder / f"{safe_id(stem)}.{suffix.lower()}"
        path.write_bytes(data)
        return Entry(parts, path)


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
        below = [Entry(e.parts[1:], e.path, e.refused) for e in inside if e.parts[1:] != ("",)]
        level = [entry for entry in level if len(entry.parts) == 1] + below
        if _stands_around_students(inside, known, chapter, stems):
            entries = level
        elif lone in known:
            break
    return [Entry((top, *e.parts), e.path, e.refused) if e.parts[0] in known else e for e in entries]


def _stands_around_students(entries: list[Entry], known: set[str], chapter: str, stems: Sequence[str]) -> bool:
    """Whether the one folder that all entries lie in holds several students' work, or is one student's.

    What most names in it say decides: no single one can merge the others into one student.
    """
    inside = [e for e in entries if e.parts[1:2] not in ((), ("",), ("…",))]
    theirs = {e.parts[1] for e in inside if MOODLE.search(e.parts[1]) or CANVAS.fullmatch(Path(e.parts[1]).stem)}
    if theirs and all(e.parts[1] in theirs or (len(e.parts) == 2 and not _is_work(e)) for e in inside):
        return True  # a learning management system's, also where it is the only one
    folders = {entry.parts[1] for entry in entries if len(entry.parts) > 2}
    others = {entry.parts[1] for entry in entries if len(entry.parts) > 2 and _is_notebook(entry.parts[-1])} - known
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
    return len(students) > most or holds or (len(folders) > 1 and not files) or len(others) > most


def _is_work(entry: Entry) -> bool:
    return entry.path is not None and entry.path.suffix.lower() in WORK


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
            return f"{match['student']}_{match['id']}_{match['upload']}", True, UNCLEAR
        return match["student"], True, match["id"]
    titles = "|".join(re.escape(title) for title in (chapter, *stems))
    leading = re.match(rf"(?:{titles})_(?P<student>.+)", stem, re.I | re.S)
    trailing = re.match(rf"(?P<student>.+?)_(?:{titles})(?![^\W_])", stem, re.I | re.S)
    match = leading or trailing
    return (match["student"], True, "") if match else (stem, False, "")


def _students(entries: list[Entry], chapter: str, stems: Sequence[str]) -> list[Found]:
    """Gather the entries by student."""
    by_student: dict[tuple[str, str], list[tuple[tuple[str, ...], Entry]]] = defaultdict(list)
    users: dict[str, set[str]] = defaultdict(set)  # of Canvas, by name
    for entry in entries:
        first, *rest = entry.parts
        if rest and not first.lower().endswith(".zip"):
            student, canvas_id = MOODLE.sub("", first), ""
        else:
            student, sure, canvas_id = _student_of_file(first, chapter, stems)
            if not (rest or sure or entry.refused or _is_notebook(first)):
                continue  # a list of grades, a README
        student = unicodedata.normalize("NFC", student)
        by_student[student, canvas_id].append((tuple(rest), entry))
        users[student].update({canvas_id} - {"", UNCLEAR})
    found: list[Found] = []
    taken: set[str] = set()
    known = set(chapters())
    for (name, canvas_id), theirs in sorted(by_student.items()):
        if len(users[name]) > 1 and canvas_id in users[name]:
            name = f"{name}_{canvas_id}"
        here = [(rest, entry) for rest, entry in theirs if chapter in rest]
        if not here:
            here = [(rest, entry) for rest, entry in theirs if not known.intersection(rest)]
            if len(here) < len(theirs) and all(rest[-1:] == ("",) for rest, _ in here):
                continue  # other chapters only
        here += [(rest, entry) for rest, entry in theirs if rest[-1:] == ("…",) and (rest, entry) not in here]
        student = safe_id(name)
        if student.casefold() in taken:  # a file system may take the two for one
            student = marked(student, f"{name} {canvas_id}".strip())
        taken.add(student.casefold())
        found.append(_found(name, student, [entry for _, entry in here], canvas_id))
    return sorted(found, key=lambda f: f.student)


def _size(path: Path) -> int:
    """How much of the file would be read."""
    try:
        return min(path.lstat().st_size, MAX_BYTES)
    except OSError:
        return 0  # `slurp` says why


def _found(name: str, student: str, entries: list[Entry], canvas_id: str) -> Found:
    paths = sorted((e.path for e in entries if e.path is not None and _is_notebook(e.path.name)), key=str)
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
