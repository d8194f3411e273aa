"""Attacks on the run, the machine and the reader that are no hand-in of the shared batch."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import re
import resource
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter

import autograder.run
from autograder import gradebook, handins, intake, sandbox
from autograder.feedback import as_written
from autograder.forkserver import ForkServer, Job, Limits, Result
from autograder.handins import Found, find, safe_id
from autograder.harmless import cleaned, harmless
from autograder.run import Busy, Graded, Row, Run, _apart, alone, digest, earlier, hold, write_canvas, write_csv

ROOT = Path(__file__).resolve().parent.parent
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces")
CHAPTER, STEMS = "01_basics", ["basics"]
LIMITS = Limits(cell_seconds=3.5, grace_seconds=0.3, job_seconds=20, memory_bytes=128 << 20, retries=0)


@pytest.fixture(scope="module")
def server():
    """One without a cgroup: memory is watched there, not limited."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox.Cgroup, "create", classmethod(lambda *_: None))
        with ForkServer(preload=(), limits=LIMITS, answer=None, packages=()) as server:
            assert not server.exact_memory
            yield server


def run(server: ForkServer, *sources: str) -> list[Result]:
    """A job for each source, all at once."""
    results: dict[str, Result] = {}

    def one(source: str) -> None:
        results[source] = server.run(Job(cells=[("attack", source)]))

    threads = [threading.Thread(target=one, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[source] for source in sources]


# --- memory that is watched ---------------------------------------------------------------------------------------------

HIDING = {
    "behind one page of a shared mapping": """
import ctypes, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
for i in range(12):
    place = libc.mmap(None, 32 << 20, 3, 0x21, -1, 0)
    if place == ctypes.c_void_p(-1).value: raise MemoryError
    ctypes.memset(place, 1, 32 << 20)
    libc.munmap(place + 4096, (32 << 20) - 4096)
time.sleep(0.5)
print("LEAK: 384 MiB")
""",
    "behind a device": """
import ctypes, mmap, os, time
for i in range(12):
    held = mmap.mmap(os.open("/dev/zero", os.O_RDWR), 32 << 20, mmap.MAP_SHARED)
    held.write(bytes(32 << 20))
    globals()[f"held{i}"] = held
time.sleep(0.5)
print("LEAK: 384 MiB")
""",
    "behind a first thread that has ended": """
import ctypes, os, threading, time
def hold():
    time.sleep(0.2)
    block = bytearray(b"x" * (90 << 20))
    time.sleep(20)
for _ in range(4):
    if os.fork() == 0:
        threading.Thread(target=hold).start()
        ctypes.CDLL(None).syscall(60, 0)
time.sleep(2)
print("LEAK: 360 MiB")
""",
}


@LINUX
@pytest.mark.parametrize("how", HIDING)
def test_memory_is_seen_wherever_it_is_held(server, how):
    (result,) = run(server, HIDING[how])
    assert "LEAK" not in result.cells[0].output
    assert result.cells[0].outcome in ("memory", "error"), result


@LINUX
def test_a_name_of_a_dead_process_is_no_amount_of_memory(server):
    source = """
import ctypes, os, time
for name in (b"a\\rVmPTE:x", b"\\rRssAnon:", b"\\xff\\xfe", b") Z 1 2"):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
        os._exit(0)
ctypes.CDLL(None).prctl(15, b"\\xff\\rRssAnon:", 0, 0, 0)
time.sleep(0.4)
print("done")
"""
    (result,) = run(server, source)
    assert (result.cells[0].output, result.flags) == ("done\n", ())


LIKE_A_STACK = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
nothing = ctypes.c_void_p(-1).value
print(libc.mmap(None, 512 << 20, 3, 0x22, -1, 0) == nothing, libc.mmap(None, 512 << 20, 3, 0x122, -1, 0) == nothing)
low = int(next(line for line in open("/proc/self/maps") if "[stack]" in line).split("-")[0], 16)
print(libc.mremap(low, 4096, 512 << 20, 1) == nothing)
"""


@LINUX
def test_no_memory_passes_for_a_stack(server):
    """What the kernel takes for a stack is under no limit of a process's data: MAP_GROWSDOWN, and the stack, moved."""
    (result,) = run(server, LIKE_A_STACK)
    assert result.cells[0].output == "True True\nTrue\n"


@LINUX
def test_a_thread_that_ends_while_it_is_looked_at_hides_nothing(monkeypatch):
    own, listdir = str(os.getpid()), os.listdir
    monkeypatch.setattr(
        os, "listdir", lambda path: ["4194304", *listdir(path)] if "task" in str(path) else listdir(path)
    )
    assert sandbox.memory_in_use(int(own)) > 1 << 20


# --- neighbors ------------------------------------------------------------------------------------------------------------


@LINUX
def test_nobody_reaches_a_neighbors_terminal(server):
    honest = """
import os, time
ours, theirs = os.openpty()
os.write(theirs, b"mine\\n")
time.sleep(1)
print(os.read(ours, 1000))
"""
    evil = """
import os, time
time.sleep(0.4)
for name in os.listdir("/dev/pts"):
    if name != "ptmx":
        os.write(os.open("/dev/pts/" + name, os.O_RDWR | os.O_NOCTTY), b"LEAK")
print(os.path.exists("/dev/pts/ptmx"))
masters = []
try:
    while len(masters) < 200: masters.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError: pass
print(len(masters) < 100)
"""
    first, second = run(server, honest, evil)
    assert first.cells[0].output == "b'mine\\r\\n'\n"
    assert second.cells[0].output == "True\nTrue\n"


@LINUX
def test_processes_that_live_shortly_stand_back_too(server):
    """Sixty that are replaced before anybody looks would take the processor from the neighbors all the same."""
    source = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ours, theirs = os.pipe()
begin = time.monotonic()
while time.monotonic() < begin + 2.6:
    try:
        if os.fork() == 0:
            os.setsid()
            stop = time.monotonic() + 0.06
            while time.monotonic() < stop: pass
            if time.monotonic() > begin + 1.8: os.write(theirs, b"%02d" % os.nice(0))
            os._exit(0)
    except OSError: time.sleep(0.002)
seen = os.read(ours, 60000)
print(seen.count(b"19") * 2 > 0.8 * len(seen), len(seen) > 20)
"""
    (result,) = run(server, source)
    assert result.cells[0].output == "True True\n"


@LINUX
def test_a_crash_starts_no_program_of_the_machine(server):
    """A limit of 0 lets the kernel hand the core to a program that core_pattern names; 1 does not (core(5))."""
    (result,) = run(server, "import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE)[0])")
    assert result.cells[0].output == "1\n"


@LINUX
def test_bytes_one_at_a_time_do_not_stretch_a_limit(server):
    """A reply that never ends, and output in single bytes: the limit of time holds, and a neighbor is done in its time."""
    drip = """
import os, socket, stat, time
number = next(n for n in range(3, 64) if os.path.exists(f"/proc/self/fd/{n}") and stat.S_ISSOCK(os.fstat(n).st_mode))
while True:
    os.write(number, b"1")
    os.write(1, b"x")
"""
    begin = time.monotonic()
    slow, quick = run(server, drip, "print('done')")
    assert slow.cells[0].outcome in ("garbage", "output") and time.monotonic() - begin < LIMITS.cell_seconds + 4
    assert quick.cells[0].output == "done\n" and quick.seconds < 3


# --- zips and names -------------------------------------------------------------------------------------------------------


def repeated(declared: int, checksum: int, count: int = 100) -> bytes:
    """A zip whose members all point at one place, which inflates to almost 32 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = packer.compress(bytes((32 << 20) - 1)) + packer.flush()
    name, sizes = b"a.ipynb", (checksum, len(data), declared)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 0, *sizes, len(name), 0) + name + data
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 0, *sizes, len(name), 0, 0, 0, 0, 0, 0) + name
    size = len(entry) * count
    return local + entry * count + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, size, len(local), 0)


@pytest.mark.parametrize("declared", [(32 << 20) - 1, 1], ids=["a wrong sum", "a size that is too small"])
def test_what_is_unpacked_in_vain_is_bounded(tmp_path, declared, monkeypatch):
    """Bytes that come out of the inflater count toward the student's allowance, whatever becomes of the member."""
    out = 0
    inflate = zlib.decompressobj

    class Counting:
        def __init__(self, *arguments):
            self.inner = inflate(*arguments)

        def decompress(self, *arguments):
            nonlocal out
            data = self.inner.decompress(*arguments)
            out += len(data)
            return data

        def __getattr__(self, name):
            return getattr(self.inner, name)

    monkeypatch.setattr("zipfile.zlib.decompressobj", Counting)
    (tmp_path / "in" / "ann").mkdir(parents=True)
    (tmp_path / "in" / "ann" / "work.zip").write_bytes(repeated(declared, zlib.crc32(b"\0") ^ (declared > 1)))
    (found,) = find(tmp_path / "in", CHAPTER, STEMS, tmp_path / "scratch")
    assert found.student == "ann"
    assert 0 < out < 300 << 20


def students(tmp_path: Path, *names: str) -> dict[str, Found]:
    for name in names:
        path = tmp_path / "downloads" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")
    return {found.student: found for found in find(tmp_path / "downloads", CHAPTER, STEMS, tmp_path / "scratch")}


@pytest.mark.parametrize(
    "names",
    [
        ("subs/ann_1_2_basics.ipynb", "subs/bob_3_4_basics.ipynb", "subs/basicsmith_5_6_basics.ipynb"),
        ("subs/ann/basics.ipynb", "subs/bob/basics.ipynb", "subs/01_basics/basics.ipynb"),
        ("subs/ann/01_basics/basics.ipynb", "subs/bob/01_basics/basics.ipynb", "subs/basics_x.ipynb"),
        ("subs/basics_ann.ipynb", "subs/basics_bob.ipynb", "subs/basics.ipynb"),
    ],
)
def test_no_name_takes_the_others_rows(tmp_path, names):
    found = students(tmp_path, *names)
    assert {"ann", "bob"} <= found.keys()
    assert len(found["ann"].paths) == len(found["bob"].paths) == 1


def test_ids_that_differ_in_case_or_in_the_form_of_a_letter_are_different_rows(tmp_path):
    found = students(
        tmp_path, *(f"{name}/basics.ipynb" for name in ("Ann", "ANN", "ann", "ann_", "Zoe\u0308", "ZO\u00cb"))
    )
    assert len(found) == 6
    assert len({student.casefold() for student in found}) == 6


def test_ids_of_many_names_that_differ_in_case_only_stay_names_of_folders(tmp_path):
    """Sixty letters of four bytes each, in capitals and small."""
    names = ["".join(chr(0x10400 + 0x28 * (i >> k & 1)) for k in range(60)) for i in range(20)]
    found = students(tmp_path, *(f"{name}/basics.ipynb" for name in names))
    assert len({student.casefold() for student in found}) == len(names)
    assert max(len(student.encode()) for student in found) <= 250


def test_who_else_hands_in_does_not_change_an_id_that_is_safe(tmp_path):
    alone = students(tmp_path, "ann_/basics.ipynb")
    (path,) = alone["ann_"].paths
    beside = students(tmp_path, "ann/basics.ipynb", "Ann/basics.ipynb")
    assert len(beside) == 3
    assert beside["ann_"].paths == (path,)


@pytest.mark.parametrize("letter", ["\u3164", "\u115f", "\uffa0", "\u034f", "\ufe0f", "\u180b", "\U000e0100"])
def test_an_id_has_no_letter_without_ink(letter):
    assert safe_id(f"ann{letter}") != f"ann{letter}"


def test_a_semicolon_in_a_files_name_starts_no_cell(tmp_path):
    """Where it separates cells, a formula would stand behind it."""
    (tmp_path / "downloads" / "ann").mkdir(parents=True)
    (tmp_path / "downloads" / "ann" / "x;=1+1;@2\t=3;-4.ipynb").symlink_to("/etc/passwd")
    (found,) = find(tmp_path / "downloads", CHAPTER, STEMS, tmp_path / "scratch")
    assert "is a link" in found.reason
    row = {"student": "ann", "chapter": CHAPTER, "points": 0.0, "max_points": 1, "parts": {}, "flags": ["refused"]}
    write_csv(tmp_path / "grades.csv", [row | {"reason": found.reason}])
    text = (tmp_path / "grades.csv").read_text()
    for delimiter in ",;\t":
        for line in csv.reader(io.StringIO(text), delimiter=delimiter):
            assert not [value for value in line if value.strip(' "').startswith(tuple("=+-@\t"))], line


def in_a_zip(tmp_path: Path, *names: str) -> dict[str, Found]:
    """The instructor's own: names are as they were on the machine that packed it."""
    with zipfile.ZipFile(tmp_path / "downloads.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "{}" if name.endswith(".ipynb") else "")
    return {found.student: found for found in find(tmp_path / "downloads.zip", CHAPTER, STEMS, tmp_path / "scratch")}


@pytest.mark.parametrize("outer", ["", "subs/"], ids=["alone", "in an outer folder"])
@pytest.mark.parametrize(
    "name", ["x\\..\\y.ipynb", "x\\..\\bob.ipynb", "..\\..\\..\\ann.ipynb", "..\\bob\\01_basics\\basics.ipynb"]
)
def test_a_name_with_backslashes_stays_with_whose_it_is(tmp_path, outer, name):
    """A file may be called so on Linux, and what it seems to say is no path."""
    names = [f"{outer}{student}/{CHAPTER}/basics.ipynb" for student in ("ann", "bob", "eve")]
    found = in_a_zip(tmp_path, *names, f"{outer}eve/{CHAPTER}/{name}")
    assert set(found) == {"ann", "bob", "eve"}
    assert [(len(found[s].paths), found[s].flags) for s in ("ann", "bob")] == [(1, ())] * 2
    assert found["eve"].flags == ("refused",)


@pytest.mark.parametrize("outer", ["", "subs/"], ids=["alone", "in an outer folder"])
def test_many_files_of_one_take_nobody_elses_place(tmp_path, outer):
    many = [f"{outer}abe/{CHAPTER}/{i}.txt" for i in range(50_001)]
    found = in_a_zip(tmp_path, *many, *(f"{outer}{student}/{CHAPTER}/basics.ipynb" for student in ("bob", "cid")))
    assert set(found) == {"abe", "bob", "cid"}
    assert (found["bob"].flags, found["cid"].flags) == ((), ())
    assert "refused" in found["abe"].flags and len(found["bob"].paths) == len(found["cid"].paths) == 1


@pytest.mark.timeout(20)
def test_a_name_of_many_characters_takes_no_minutes(tmp_path):
    (tmp_path / "downloads").mkdir()
    with zipfile.ZipFile(tmp_path / "downloads" / "ann.zip", "w") as archive:
        archive.writestr("basics" + "-" * 60_000 + "x.ipynb", "{}")
    begin = time.monotonic()
    (found,) = find(tmp_path / "downloads", CHAPTER, STEMS, tmp_path / "scratch")
    assert len(found.paths) == 1 and time.monotonic() - begin < 5


@pytest.mark.parametrize(
    "names",
    [
        ("ann_1_2_basics.ipynb", "bob_3_4_basics.ipynb"),
        (f"ann/{CHAPTER}/basics.ipynb", f"bob/{CHAPTER}/basics.ipynb"),
        (f"{CHAPTER}/basics.ipynb", f"ann/{CHAPTER}/basics.ipynb", f"bob/{CHAPTER}/basics.ipynb"),
    ],
)
def test_who_hands_in_alone_hands_in_for_nobody_else(tmp_path, names):
    """A late hand-in, graded by itself into the class's results, would replace the others' grades."""
    (tmp_path / "downloads").mkdir()
    with zipfile.ZipFile(tmp_path / "downloads" / "eve_7_8_work.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    found = find(tmp_path / "downloads", CHAPTER, STEMS, tmp_path / "scratch")
    assert [one.student for one in found] == ["eve"]


UNREADABLE = f"""
import os, sys
from pathlib import Path
from autograder.handins import find
if os.getuid() == 0:
    os.setgroups([]); os.setresgid(65533, 65533, 65533); os.setresuid(65533, 65533, 65533)
print([(found.student, found.flags) for found in find(Path(sys.argv[1]), {CHAPTER!r}, {STEMS!r}, Path(sys.argv[2]))])
"""


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no modes")
def test_a_zip_that_may_not_be_read_is_a_row(tmp_path):
    """Where the hand-ins lie on a file system that is shared, learners say who may read theirs."""
    place = tmp_path / "shared"
    for student in ("ann", "eve"):
        (place / student).mkdir(parents=True)
    (place / "ann" / "basics.ipynb").write_text("{}")
    (place / "eve" / "work.zip").write_bytes(b"PK")
    (place / "eve" / "work.zip").chmod(0)
    readable = [
        folder for folder in (place, *place.parents) if folder.is_relative_to("/tmp") and folder != Path("/tmp")
    ]
    modes = [(folder, folder.stat().st_mode) for folder in readable]
    try:
        for folder in readable:
            folder.chmod(0o755)
        command = [sys.executable, "-c", UNREADABLE, str(place), str(tmp_path / "scratch")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        for folder, mode in modes:
            folder.chmod(mode & 0o7777)
    assert done.stdout == "[('ann', ()), ('eve', ('no notebook', 'refused'))]\n", done.stderr


@pytest.mark.parametrize("seed", range(3))
def test_no_damaged_zip_raises(tmp_path, seed):
    """Bytes of its lists replaced: the others' rows are there, and it has one."""
    random = __import__("random").Random(seed)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("basics.ipynb", "{}" * 100)
        with archive.open("\u00e9/more.ipynb", "w", force_zip64=True) as member:
            member.write(b"x" * 100)
    whole = buffer.getvalue()
    at = whole.rindex(b"PK\5\6")
    _, _, _, count, total, size, start, _ = struct.unpack("<4s4H2IH", whole[at : at + 22])
    long = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, total, size, start)
    long += struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    long += struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    for name in ("ann", "bob"):
        (tmp_path / "in" / name).mkdir(parents=True)
    (tmp_path / "in" / "bob" / "basics.ipynb").write_text("{}")
    for _ in range(300):
        damaged = bytearray(random.choice((whole, whole[:at] + long)))
        for _ in range(random.choice((1, 1, 2, 4))):
            place, width = random.randrange(damaged.find(b"PK\1\2"), len(damaged)), random.choice((1, 2, 4, 8))
            damaged[place : place + width] = bytes([random.choice((0, 127, 128, 255, random.randrange(256)))]) * width
        (tmp_path / "in" / "ann" / "work.zip").write_bytes(damaged)
        assert [f.student for f in find(tmp_path / "in", CHAPTER, STEMS, tmp_path / "scratch")] == ["ann", "bob"]


# --- the folder of the results --------------------------------------------------------------------------------------------


def test_a_run_that_came_late_to_the_lock_does_not_share_the_folder(tmp_path, monkeypatch):
    """The first run ends between the second's opening the lock's file and locking it; then a third one comes."""
    first = alone(tmp_path)
    first.__enter__()
    ending = [first]

    def late(lock):
        while ending:
            ending.pop().__exit__(None, None, None)
        hold(lock)

    monkeypatch.setattr("autograder.run.hold", late)
    with alone(tmp_path), pytest.raises(Busy), alone(tmp_path):
        pass


def test_a_notebook_that_was_replaced_does_not_stay(tmp_path, monkeypatch):
    """The formgrader would show the verdicts of an earlier hand-in beside the new one's points."""
    monkeypatch.setattr(gradebook, "write", lambda *_: None)
    run = Run(CHAPTER, tmp_path, 1, "sqlite://")
    row = Row("ann", CHAPTER, 0.0, 1, {}, {}, [], "", 0.0, 0.0, 1, "x")
    with (tmp_path / "journal").open("wb") as journal:
        run._keep(Graded(row, {"basics": "good"}, {"basics": nbformat.v4.new_notebook()}), None, journal)
        run._keep(Graded(row, {"basics": "bad"}, {}), None, journal)
    assert (tmp_path / "feedback" / "ann" / CHAPTER / "basics.html").read_text() == "bad"
    assert not (tmp_path / "autograded" / "ann" / CHAPTER / "basics.ipynb").exists()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_name_that_the_terminal_cannot_write_ends_no_run(encoding):
    """The report is printed when all is written: a traceback then says that it is not."""
    code = "from autograder.__main__ import main; import autograder.__main__ as m; from autograder.run import Row\n"
    code += "m.grade = lambda *a, **k: [Row('\\u674e', '01_basics', 0.0, 1, {}, {}, [], '', 0.0, 0.0, 1, 'x')]\n"
    code += "raise SystemExit(main(['grade', '01_basics']))"
    given = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


# --- who opens the page ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("kind", "piece", "count", "size"), [
    ("code", " \n", 1, 60_000), ("code", " \n", 40, 4_000), ("code", "\f\n", 1, 60_000), ("code", "a.", 1, 60_000),
    ("code", "\f\r", 1, 8_000), ("code", "\v\r", 1, 8_000), ("code", "\x85\u2028", 1, 14_000), ("code", "*", 1, 14_000),
    ("code", "...", 1, 60_000), ("markdown", "[", 1, 60_000), ("markdown", "![", 1, 60_000),
])  # fmt: skip
def test_a_cell_does_not_hang_the_page_that_shows_it(kind, piece, count, size):
    """nbconvert and Pygments take a time that grows with the square of some texts, in the Jupyter server's one thread."""
    source = piece * (size // len(piece)) + "x"
    make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
    cells = [make(source if kind == "code" else as_written(source)) for _ in range(count)]
    shown = harmless(nbformat.v4.new_notebook(cells=cells), None)
    begin = time.monotonic()
    HTMLExporter().from_notebook_node(shown)
    assert time.monotonic() - begin < 60


@pytest.mark.timeout(120)
def test_many_outputs_do_not_hang_the_page():
    """Each takes a millisecond, be it of one letter, and nbgrader counts the lines of streams only."""
    cell = nbformat.v4.new_code_cell("x")
    one = {"output_type": "display_data", "data": {"text/plain": "a"}, "metadata": {}}
    cell.outputs = [nbformat.from_dict(one) for _ in range(3000)]
    shown = harmless(nbformat.v4.new_notebook(cells=[cell, nbformat.from_dict(cell)]), None)
    assert sum(len(cell.outputs) for cell in shown.cells) < 2500


@pytest.mark.timeout(120)
def test_many_attributes_do_not_hang_the_page():
    """The parser of HTML compares the name of each with all before it."""
    html = "<b " + " ".join(chr(0x4E00 + i) for i in range(9_900)) + ">x"
    outputs = [nbformat.v4.new_output("display_data", data={"text/html": html, "text/plain": "x"}) for _ in range(3)]
    begin = time.monotonic()
    harmless(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=outputs)]), None)
    assert time.monotonic() - begin < 3


# --- a third round ----------------------------------------------------------------------------------------------------------


@LINUX
def test_what_the_filter_refuses_has_no_other_flags_and_honest_code_does_without(server):
    """Shared memory under the newer name of its flag, with others, or growing; an allocation that grows is copied."""
    source = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.realloc.restype = libc.mmap.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.realloc.argtypes = [ctypes.c_size_t], [ctypes.c_void_p, ctypes.c_size_t]
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
flags = (0x21, 0x23, 0x33, 0x8021, 0x100122)
print(*[libc.mmap(None, 4096, 3, each, -1, 0) == ctypes.c_void_p(-1).value for each in flags])
place = libc.malloc(1 << 20)
ctypes.memset(place, 7, 1 << 20)
print(ctypes.string_at(libc.realloc(place, 40 << 20), 1 << 20) == b"\\7" * (1 << 20))
"""
    (result,) = run(server, source)
    assert result.cells[0].output == "True True True True True\nTrue\n"


@pytest.mark.parametrize("becomes", ["nothing", "a folder"])
def test_a_zip_that_changes_while_it_is_looked_for_is_a_row(tmp_path, monkeypatch, becomes):
    """Learners' folders on a shared file system are theirs during the run, too."""
    for student in ("ann", "eve"):
        (tmp_path / "in" / student).mkdir(parents=True)
        (tmp_path / "in" / student / "work.zip").write_bytes(zipped_notebook())

    def change() -> None:
        (tmp_path / "in" / "eve" / "work.zip").unlink()
        if becomes == "a folder":
            (tmp_path / "in" / "eve" / "work.zip").mkdir()

    found = found_while(monkeypatch, tmp_path, change)
    assert [(f.student, f.flags, len(f.paths)) for f in found] == [
        ("ann", (), 1),
        ("eve", ("no notebook", "refused"), 0),
    ]


def zipped_notebook(text: str = "{}") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("basics.ipynb", text)
    return buffer.getvalue()


def found_while(monkeypatch, tmp_path: Path, change) -> list[Found]:
    """What is found where the change comes between the walk through the folders and the opening of files."""
    arrange = handins._arrange

    def later(*given):
        change()
        return arrange(*given)

    monkeypatch.setattr(handins, "_arrange", later)
    return find(tmp_path / "in", CHAPTER, STEMS, tmp_path / "scratch")


def test_names_that_stand_for_a_mark_of_the_intake_are_names(tmp_path):
    """What says that not all was looked at is written as a name, too."""
    found = students(
        tmp_path,
        "subs/\u2026/basics.ipynb",
        "subs/ann/\u2026",
        "subs/bob/\u2026/\u2026/basics.ipynb",
        "subs/cid/basics.ipynb",
    )
    assert len(found) == 4
    assert {name: len(one.paths) for name, one in found.items() if name.isalpha()} == {"ann": 0, "bob": 1, "cid": 1}


@LINUX
def test_names_that_are_no_text_stay_apart(tmp_path):
    found = students(tmp_path, *(f"{os.fsdecode(name)}/basics.ipynb" for name in (b"a\xff", b"a\xfe", b"a_")))
    assert len(found) == 3 and "a_" in found
    for student in found:
        student.encode()


def test_one_line_of_the_table_for_canvas_sets_points(tmp_path):
    """Whoever is called as that line is, with blanks of any kind, has a line as everybody."""
    names = ["    Points Possible", "Points Possible", "Points\u00a0Possible", "points possible", "ID"]
    row = {"chapter": CHAPTER, "points": 1.0, "max_points": 2, "canvas_id": ""}
    write_canvas(tmp_path / "canvas.csv", [row | {"student": safe_id(name)} for name in dict.fromkeys(names)])
    with (tmp_path / "canvas.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert [line[-1] for line in lines if "Points Possible" in line[0]] == ["2"]
    assert len(lines) == 2 + len(names)


def test_a_journals_line_of_zeros_is_no_row(tmp_path):
    """What a file system may leave where the machine lost its power, and lines of another grader."""
    run = Run(CHAPTER, tmp_path, 1, "sqlite://")
    good = json.dumps(asdict(Row("ann", CHAPTER, 0.0, 1, {}, {}, [], "", 0.0, 0.0, 1, "x"))).encode()
    run.journal.write_bytes(
        b"\0" * 100 + b"\n\xff\xfe{}\n{}\n[1]\n3\n" + good + b"\n" + good.replace(b"1", b"2") + b"\n" + good[:40]
    )
    assert list(run.journaled()) == ["x"]


@pytest.mark.parametrize(
    "style",
    [
        "border:600\\70 x solid",
        "padding:1e3px",
        "padding:\uff11\uff10\uff10px",
        "padding:+2e1px",
        "border-left:5Q solid",
        "padding:5\u212a",
        "padding:20Px",
        "padding:99\\PX",
        "color:#12345678;padding:600px",
    ],
)
def test_a_large_length_is_known_however_it_is_written(style):
    assert not re.search("[0-9]{3}|padding", cleaned(f"<span style='{style}'>x</span>"))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/html"])
def test_an_output_of_many_levels_does_not_end_the_page(kind):
    value: object = 0
    for _ in range(450):
        value = [value]
    text = json.dumps(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x")]))
    given = json.loads(text)
    given["cells"][0]["outputs"] = [{"output_type": "display_data", "data": {kind: value}, "metadata": {}}]
    shown = harmless(nbformat.from_dict(given), None)
    assert "x" in HTMLExporter().from_notebook_node(shown)[0]


@pytest.mark.parametrize("outer", ["basics_2026_12_01", "downloads_20261201_1400_all"])
@pytest.mark.parametrize("inside", ["{}/basics.ipynb", f"{{}}/{CHAPTER}/basics.ipynb", "{}_1_2_basics.ipynb"])
def test_a_date_makes_an_outer_folder_nobodys(tmp_path, outer, inside):
    """It looks like the numbers that Canvas puts into the names of files."""
    found = students(tmp_path, *(f"{outer}/{inside.format(student)}" for student in ("ann", "bob")))
    assert set(found) == {"ann", "bob"}


@pytest.mark.parametrize("kind", ["a folder", "a zip"])
@pytest.mark.parametrize(
    "place", ["Eve_7_assignsubmission_file_", "subs/Eve_7_assignsubmission_file_", f"eve/{CHAPTER}"]
)
def test_who_is_graded_alone_has_one_allowance_for_all_zips(tmp_path, monkeypatch, kind, place):
    """Else each of hundreds of zips would be unpacked up to it, on to the instructor's disk."""
    monkeypatch.setattr(handins, "MAX_UNPACKED", 1 << 16)
    work = {f"{place}/{i}.zip": zipped_notebook("{}" + " " * (1 << 15)) for i in range(10)}
    if kind == "a zip":
        with zipfile.ZipFile(tmp_path / "in", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in work.items():
                archive.writestr(name, data)
    else:
        (tmp_path / "in" / place).mkdir(parents=True)
        for name, data in work.items():
            (tmp_path / "in" / name).write_bytes(data)
    (one,) = find(tmp_path / "in", CHAPTER, STEMS, tmp_path / "scratch")
    assert "refused" in one.flags
    assert sum(path.stat().st_size for path in (tmp_path / "scratch").rglob("*.ipynb")) <= 3 << 15


@pytest.mark.parametrize("beside", ["grades.txt", "README"])
def test_a_file_beside_an_outer_folder_merges_nobody(tmp_path, beside):
    found = students(tmp_path, "subs/ann/basics.ipynb", "subs/bob/basics.ipynb", beside)
    assert set(found) == {"ann", "bob"}


@LINUX
@pytest.mark.parametrize("what", ["a zip", "a folder"])
def test_what_becomes_a_link_is_not_followed(tmp_path, monkeypatch, what):
    """A folder may change until its notebooks are read, at the end of a long run."""
    for student in ("ann", "eve"):
        folder = tmp_path / "in" / student / "sub"
        folder.mkdir(parents=True)
        (folder / "basics.ipynb").write_text(student)
        (folder / "work.zip").write_bytes(zipped_notebook(student))

    def change() -> None:
        mine, theirs = (tmp_path / "in" / student / "sub" for student in ("eve", "ann"))
        if what == "a zip":
            (mine / "work.zip").unlink()
            (mine / "work.zip").symlink_to(theirs / "work.zip")
        else:
            mine.rename(tmp_path / "in" / "eve" / "old")
            mine.symlink_to(theirs)

    _, eve = found_while(monkeypatch, tmp_path, change)
    read = []
    for path in eve.paths:
        with contextlib.suppress(intake.Unreadable):
            read.append(intake.slurp(path))
    assert eve.student == "eve" and b"ann" not in read


@LINUX
@pytest.mark.timeout(20)
def test_a_zip_that_becomes_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "in" / "eve" / "work.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(zipped_notebook())

    def change() -> None:
        path.unlink()
        os.mkfifo(path)

    writer = threading.Timer(20, lambda: path.write_bytes(b""))  # or who waits, waits for ever
    writer.daemon = True
    writer.start()
    begin = time.monotonic()
    (eve,) = found_while(monkeypatch, tmp_path, change)
    writer.cancel()
    assert "refused" in eve.flags and time.monotonic() - begin < 15


def graded_by(tmp_path: Path, monkeypatch, *runs: list[Found], stop: int = 100, seed: int = 1) -> list[list[str]]:
    """Whom each run into one folder graded; a run is killed after `stop` submissions."""
    monkeypatch.setattr(gradebook, "write", lambda *_: None)
    monkeypatch.setattr(gradebook, "prepare", lambda *_: None)
    monkeypatch.setattr(gradebook, "opened", lambda url: contextlib.nullcontext())
    did: list[list[str]] = []

    class Place:
        def start(self): ...
        def close(self): ...
        def grade(self, todo):
            for i, f in enumerate(todo):
                if i == stop:
                    raise KeyboardInterrupt
                did[-1].append(f.student)
                row = Row(f.student, CHAPTER, 0.0, 1, {}, {}, [], "", 0.0, 0.0, seed, digest(f, "c"), f.canvas_id)
                yield Graded(row)

    for found in runs:
        did.append([])
        with contextlib.suppress(KeyboardInterrupt):
            Run(CHAPTER, tmp_path, seed, "sqlite://").batch(found, "c", Place(), tmp_path, lambda rows, total: rows)
    return did


def test_a_line_that_a_full_disk_cut_swallows_no_other(tmp_path, monkeypatch):
    found = [Found(name, ()) for name in ("ann", "bob", "cid")]
    graded_by(tmp_path, monkeypatch, found, stop=1)
    with (tmp_path / f"journal-{CHAPTER}.jsonl").open("ab") as journal:
        journal.write(b'{"student": "bo')
    assert graded_by(tmp_path, monkeypatch, found, found, stop=1) == [["bob"], ["cid"]]


def test_a_cut_line_alone_swallows_no_other(tmp_path, monkeypatch):
    found = [Found(name, ()) for name in ("ann", "bob")]
    (tmp_path / f"journal-{CHAPTER}.jsonl").write_bytes(b'{"student": "an')
    assert graded_by(tmp_path, monkeypatch, found, found, stop=1) == [["ann"], ["bob"]]


def canvas_rows(tmp_path: Path, monkeypatch, *runs: tuple[str, ...]) -> list[tuple[str, str]]:
    """Who has which number of Canvas after these files were graded, run by run, into one folder."""
    for number, names in enumerate(runs):
        found = list(students(tmp_path / f"{number}", *names).values())
        graded_by(tmp_path, monkeypatch, _apart(found, earlier(tmp_path)))
    return sorted((row["canvas_id"], row["student"]) for row in earlier(tmp_path))


def test_a_namesakes_late_hand_in_replaces_nobodys_row(tmp_path, monkeypatch):
    """Two of one name in Canvas, graded on two days into one folder: the numbers are theirs."""
    rows = canvas_rows(tmp_path, monkeypatch, ("ann_7_1_x.ipynb", "bob_3_4_x.ipynb"), ("ann_8_2_x.ipynb",))
    assert [number for number, _ in rows] == ["3", "7", "8"]
    assert len({student for _, student in rows}) == 3


def test_who_has_a_namesake_keeps_one_row(tmp_path, monkeypatch):
    """Graded together, then one of them once more: a second row with the old points would follow the new one."""
    rows = canvas_rows(tmp_path, monkeypatch, ("ann_7_1_x.ipynb", "ann_8_2_x.ipynb"), ("ann_8_3_x.ipynb",))
    assert rows == [("7", "ann_7"), ("8", "ann_8")]


def test_the_name_of_a_namesake_is_safe_and_nobody_elses(tmp_path, monkeypatch):
    long = "\U00010428" * 60
    found = [Found(name, (), canvas_id=number) for name, number in (("ann", "8"), ("ann_8", ""), (long, "8" * 100))]
    given = _apart(found, [{"student": name, "canvas_id": "7"} for name in ("ann", long)])
    assert len({one.student for one in given}) == 3
    assert max(len(one.student.encode()) for one in given) <= 250


@LINUX
def test_a_folder_that_may_not_be_written_is_no_other_run(tmp_path, monkeypatch):
    def full(lock):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("autograder.run.hold", full)
    with pytest.raises(OSError, match="No space"), alone(tmp_path):
        pass


@LINUX
def test_a_few_at_a_time_that_live_shortly_stand_back_too(server):
    """Eight that are always new ones: as many as a look lets pass."""
    source = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
live, begin = [], time.monotonic()
while time.monotonic() < begin + 3:
    now = time.monotonic()
    live = [end for end in live if end > now]
    if len(live) < 8:
        live.append(now + 0.25)
        if os.fork() == 0:
            os.setsid()
            while time.monotonic() < now + 0.25: pass
            os._exit(0)
    time.sleep(0.002)
print(os.nice(0))
"""
    (result,) = run(server, source)
    assert result.cells[0].output == "19\n"


@LINUX
@pytest.mark.parametrize("which", ["RLIMIT_NICE", "RLIMIT_RTPRIO"])
def test_nobody_takes_a_priority_back_where_the_machine_would_allow_it(monkeypatch, which):
    """Packages for sound give their users both."""
    given = {}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (30, 30))
    monkeypatch.setattr(resource, "setrlimit", given.__setitem__)
    monkeypatch.setattr(sandbox.signal, "signal", lambda *_: None)
    sandbox._limit(LIMITS)
    assert given.get(getattr(resource, which)) == (0, 0)


# --- whose a file is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [(), ("README.txt",)], ids=["", "a file beside"])
@pytest.mark.parametrize("folders", [(), ("subs/", "subs/abe/", "subs/bob/")], ids=["", "entries for folders"])
@pytest.mark.parametrize("kind", ["a folder", "a zip"])
def test_an_outer_folder_shares_no_allowance(tmp_path, beside, folders, kind):
    """`zip -r` lists the folders, too; what lies beside the outer one is nobody's work."""
    many = [f"subs/abe/{CHAPTER}/{i}.txt" for i in range(501)]
    names = [*many, *(f"subs/{student}/{CHAPTER}/basics.ipynb" for student in ("bob", "cid")), *beside]
    found = in_a_zip(tmp_path, *folders, *names) if kind == "a zip" else students(tmp_path, *names)
    assert set(found) == {"abe", "bob", "cid"}
    assert "refused" in found["abe"].flags
    assert all((len(found[name].paths), found[name].flags) == (1, ()) for name in ("bob", "cid"))


@pytest.mark.parametrize(
    "names",
    [
        ("subs/ann.ipynb", "subs/bob.ipynb", "subs/cid.ipynb", "subs/basics.ipynb"),
        ("subs/ann/basics.ipynb", "subs/bob/basics.ipynb", "subs/basics.ipynb"),
        ("subs/ann/basics.ipynb", "subs/bob/basics.ipynb", "subs/basics-Copy1.ipynb"),
        ("subs/ann.ipynb", "subs/bob.ipynb", "subs/01_basics.ipynb", "grades.txt"),
    ],
)
def test_a_file_that_is_called_like_the_notebook_merges_nobody(tmp_path, names):
    for found in (students(tmp_path / "1", *names), in_a_zip(tmp_path, *names)):
        assert {"ann", "bob"} <= found.keys()
        assert len(found["ann"].paths) == len(found["bob"].paths) == 1


@pytest.mark.parametrize("outer", ["hw/subs/", "a/class/submitted/"])
@pytest.mark.parametrize(
    "inside",
    ["{}/basics.ipynb", f"{{}}/{CHAPTER}/basics.ipynb", "{}_1_2_basics.ipynb", "{}_1_assignsubmission_file_/x.ipynb"],
)
def test_two_outer_folders_merge_nobody(tmp_path, outer, inside):
    """`zip -r d.zip class/submitted`."""
    names = [outer + inside.format(student) for student in ("ann", "bob", "cid")]
    for found in (students(tmp_path / "1", *names), in_a_zip(tmp_path, *names)):
        assert sorted(name.removesuffix("_1") for name in found) == ["ann", "bob", "cid"]


@pytest.mark.parametrize("bob", ["bob_8_2_basics.pdf", "a link", "a notebook that is too large"])
@pytest.mark.parametrize("ann", ["ann_7_1_work.zip", "ann_7_1_basics.ipynb"])
def test_nobody_is_lost_beside_a_lone_zip(tmp_path, monkeypatch, ann, bob):
    monkeypatch.setattr(handins, "MAX_BYTES", 1000)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / ann).write_bytes(zipped_notebook() if ann.endswith("zip") else b"{}")
    if bob == "a link":
        (folder / "bob_8_2_basics.ipynb").symlink_to("/etc/passwd")
    elif bob.endswith("pdf"):
        (folder / bob).write_text("")
    else:
        with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
            archive.write(folder / ann, ann)
            archive.writestr("bob_8_2_basics.ipynb", " " * 2000)
        folder = tmp_path / "d.zip"
    found = {one.student: one for one in find(folder, CHAPTER, STEMS, tmp_path / "scratch")}
    assert set(found) == {"ann", "bob"}
    assert (len(found["ann"].paths), found["ann"].canvas_id) == (1, "7")
    assert "no notebook" in found["bob"].flags and found["bob"].canvas_id == "8"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no modes")
def test_a_lone_folder_that_may_not_be_read_is_a_row(tmp_path):
    place = tmp_path / "late"
    (place / "eve" / CHAPTER).mkdir(parents=True)
    (place / "eve" / CHAPTER / "basics.ipynb").write_text("{}")
    readable = [
        folder for folder in (place, *place.parents) if folder.is_relative_to("/tmp") and folder != Path("/tmp")
    ]
    modes = [(folder, folder.stat().st_mode) for folder in readable]
    try:
        for folder in readable:
            folder.chmod(0o755)
        (place / "eve").chmod(0)
        command = [sys.executable, "-c", UNREADABLE, str(place), str(tmp_path / "scratch")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        (place / "eve").chmod(0o755)
        for folder, mode in modes:
            folder.chmod(mode & 0o7777)
    assert done.stdout == "[('eve', ('no notebook', 'refused'))]\n", done.stderr


KINDS = {
    "nbgrader": ("{s}/01_basics/basics.ipynb", "{s}/01_basics/{x}"),
    "folder": ("{s}/basics.ipynb", "{s}/{x}"),
    "Moodle": ("{s}_{i}_assignsubmission_file_/basics.ipynb", "{s}_{i}_assignsubmission_file_/{x}"),
    "Canvas": ("{s}_{i}_55_basics.ipynb", "{s}_{i}_66_{x}"),
}
PIECES = "01_basics 02_autograd ann bob a … x.txt subs 1_2_x ann.zip basics.ipynb 01_basics.ipynb ann_7_1_basics.ipynb "
PIECES += "bob_8_1_basics.ipynb basics_ann.ipynb ann_basics.ipynb x_9_assignsubmission_file_ 9_9_9_9.ipynb 2026_12_01"


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_one_hands_in_the_others_have_their_rows(tmp_path, kind):
    """Two to four honest students, and one whose names of files and folders are taken from what means something."""
    random = __import__("random").Random(f"rows {kind}")
    theirs, own = KINDS[kind]
    for case in range(40):
        honest = ["ann", "bob", "cid", "dan"][: random.randrange(2, 5)]
        files = {theirs.format(s=name, i=i): name for i, name in enumerate(honest, 1)}
        for _ in range(random.randrange(1, 6)):
            path = "/".join(random.choice(PIECES.split()) for _ in range(random.randrange(1, 4)))
            name = own.format(s="eve", i=9, x=path.replace("/", "_") if kind == "Canvas" else path)
            steps = name.split("/")
            above = {"/".join(steps[:i]) for i in range(1, len(steps))}
            if not above & files.keys() and not any(other.startswith(f"{name}/") for other in files):
                files[name] = "eve"
        outer = random.choice(["", "subs/", "downloads_2026_12_01/"])
        with zipfile.ZipFile(tmp_path / f"{case}.zip", "w") as archive:
            for name in random.choice([[], [outer]] if outer else [[]]):
                archive.writestr(name, "")
            for name, text in files.items():
                archive.writestr(outer + name, text)
        found = {f.student: f for f in find(tmp_path / f"{case}.zip", CHAPTER, STEMS, tmp_path / f"s{case}")}
        for i, name in enumerate(honest, 1):
            one = found[f"{name}_{i}" if kind == "Moodle" else name]
            assert [path.read_text() for path in one.paths] == [name], files


# --- namesakes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "runs",
    [
        (("ann_7_1_basics.ipynb",), ("ann_8_2_01_basics.ipynb",)),
        (("ann_7_1_01_basics.zip",), ("ann_8_2_01_basics.zip",)),
        (("ann_7_1_basics.ipynb",), ("ann_7_1_basics.ipynb", "ann_8_2_basics.ipynb")),
        (("ann_8_1_basics.ipynb",), ("ann_7_1_basics.ipynb",), ("ann_7_1_basics.ipynb", "ann_8_2_basics.ipynb")),
        (("ann_7_1_basics.ipynb", "ann_8_2_basics.ipynb"), ("ann_8_5_01_basics.ipynb",), ("ann_7_9_basics.ipynb",)),
    ],
)
def test_two_of_one_name_are_two_rows_in_whatever_order_they_come(tmp_path, monkeypatch, runs):
    """A display name and the name of a file are the learner's to choose; the number is not."""
    rows = canvas_rows(tmp_path, monkeypatch, *runs)
    assert [number for number, _ in rows] == ["7", "8"]
    assert len({student for _, student in rows}) == 2


@pytest.mark.parametrize(
    "runs",
    [
        (("ann_7_1_basics.ipynb", "ann_basics_8_2_x.ipynb"),),
        (("ann_7_1_basics.ipynb",), ("ann_basics_8_2_x.ipynb",)),
        (("ann_7_1_basics.ipynb",), ("ann_01_basics_8_2_x.ipynb",)),
        (("ann_basics_8_2_x.ipynb",), ("ann_7_1_basics.ipynb",)),
        (("ann_7_1_1_basics.ipynb",), ("ann_7_9_3_basics.ipynb",)),
    ],
)
def test_an_underscore_in_a_name_takes_nobodys_row(tmp_path, monkeypatch, runs):
    """Who calls himself "ann_basics" in Canvas is not "ann"."""
    rows = canvas_rows(tmp_path, monkeypatch, *runs)
    assert len(rows) == len({student for _, student in rows}) == 2
    (hers,) = [student for number, student in rows if number == "7"] or [""]
    assert "-" not in hers


def test_a_killed_runs_namesake_is_not_replaced(tmp_path, monkeypatch):
    """The row is in the journal only, and in the gradebook."""
    first, second = (list(students(tmp_path / n, f"ann_{n}_1_basics.ipynb").values()) for n in ("8", "7"))
    bob = Found("bob", ())
    graded_by(tmp_path, monkeypatch, [*first, bob], stop=1)
    run = Run(CHAPTER, tmp_path, 1, "sqlite://")
    assert [row.canvas_id for row in run.journaled().values()] == ["8"]
    rows = earlier(tmp_path) + [asdict(row) for row in run.journaled().values()]  # as `grade` has them
    graded_by(tmp_path, monkeypatch, _apart(second, rows))
    kept = [row["canvas_id"] for row in earlier(tmp_path)] + [row.canvas_id for row in run.journaled().values()]
    assert sorted(kept) == ["7", "8"]


@pytest.mark.parametrize("quicker", ["student", "submission"])
def test_another_run_that_makes_the_same_student_is_no_fault(tmp_path, monkeypatch, quicker):
    """Two chapters graded into one gradebook at the same time."""
    url = f"sqlite:///{tmp_path}/gradebook.db"
    with gradebook.opened(url) as book, gradebook.opened(url) as other:
        book.add_assignment(CHAPTER)
        look, done = getattr(book, f"find_{quicker}"), []

        def before(*names):
            if not done:
                done.append(names)
                try:
                    return look(*names)
                finally:
                    gradebook.write(other, "ann", CHAPTER, {})
            return look(*names)

        monkeypatch.setattr(book, f"find_{quicker}", before)
        gradebook.write(book, "ann", CHAPTER, {})
        assert [student.id for student in book.students] == ["ann"]
        assert len(book.assignment_submissions(CHAPTER)) == 1


def test_a_new_seed_for_one_keeps_what_a_killed_run_had_graded(tmp_path, monkeypatch):
    """A resubmission is to have a seed of its own; the others' rows stay what they are."""
    found = [Found(name, ()) for name in ("ann", "bob", "eve")]
    graded_by(tmp_path, monkeypatch, found, stop=1)
    assert graded_by(tmp_path, monkeypatch, [found[2]], seed=2) == [["eve"]]
    assert graded_by(tmp_path, monkeypatch, found[:2]) == [["bob"]]


@pytest.mark.parametrize("top", ["late/eve/", "eve/"])
@pytest.mark.parametrize(
    "names", [("ann_7_1_x", "bob_8_2_x"), ("ann/basics", "bob/basics"), ("ann_1_assignsubmission_file_/x", "bob_2_3_x")]
)
def test_below_a_students_chapter_everything_is_hers(tmp_path, top, names):
    """nbgrader's layout: a late hand-in, graded by itself, is nobody else's."""
    paths = [f"{top}{CHAPTER}/{name}.ipynb" for name in names]
    for found in (students(tmp_path / "1", *paths), in_a_zip(tmp_path, *paths)):
        assert list(found) == ["eve"] and len(found["eve"].paths) == 2


@pytest.mark.parametrize(
    "inside", ["{}_1_2_basics.ipynb", "{}_1_assignsubmission_file_/x.ipynb", "{}/basics.ipynb", "{}_2_3_work.ipynb"]
)
def test_an_outer_folder_that_is_called_like_the_chapter_merges_nobody(tmp_path, inside):
    names = [f"{CHAPTER}/{inside.format(student)}" for student in ("ann", "bob", "cid")]
    for found in (students(tmp_path / "1", *names), in_a_zip(tmp_path, *names)):
        assert sorted(name.removesuffix("_1") for name in found) == ["ann", "bob", "cid"]


def test_a_file_in_the_outer_folder_takes_no_row(tmp_path):
    names = ["subs/ann_7_1_x.ipynb", "subs/bob_8_2_x.pdf", "subs/README.txt"]
    for found in (students(tmp_path / "1", *names), in_a_zip(tmp_path, *names)):
        assert {name: one.canvas_id for name, one in found.items()} == {"ann": "7", "bob": "8"}


# --- whose allowance it is, and what a second run finds -------------------------------------------------------------------


def zipped(*names: str, size: int = 2) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, "{}" + " " * (size - 2))
    return data.getvalue()


def handed_in(tmp_path: Path, files: dict[str, bytes]) -> dict[str, Found]:
    """As `in_a_zip`, with what is in the files."""
    tmp_path.mkdir(exist_ok=True)
    with zipfile.ZipFile(tmp_path / "downloads.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return {found.student: found for found in find(tmp_path / "downloads.zip", CHAPTER, STEMS, tmp_path / "scratch")}


def test_names_without_a_letter_and_long_ones_are_rows_of_their_own(tmp_path):
    """Canvas takes out what is no letter: of "!!!" nothing is left."""
    names = [f"{name}_{number}_1_x.ipynb" for name in ("", "a" * 70) for number in (7, 8)] + ["_LATE_9_3_x.ipynb"]
    found = in_a_zip(tmp_path, *names)
    assert sorted(one.canvas_id for one in found.values()) == ["7", "7", "8", "8", "9"]
    assert all(len(student) <= handins.MAX_ID and len(one.paths) == 1 for student, one in found.items())


STATES = {
    "an empty file": None,
    "no version": "drop table alembic_version",
    "an empty version": "delete from alembic_version",
    "a submission without notebooks": "delete from submitted_notebook; delete from grade",
    "half the grades": "delete from grade where rowid % 2",
}


@pytest.fixture(scope="module")
def gradebooks(tmp_path_factory) -> Path:
    """A gradebook with a student."""
    folder = tmp_path_factory.mktemp("gradebook")
    url = f"sqlite:///{folder}/gradebook.db"
    gradebook.prepare(url, CHAPTER, folder)
    with gradebook.opened(url) as book:
        gradebook.write(book, "ann", CHAPTER, {})
    return folder / "gradebook.db"


@pytest.mark.parametrize("state", STATES)
def test_a_gradebook_that_a_crash_left_half_made_is_gone_on_with(tmp_path, gradebooks, state, monkeypatch):
    monkeypatch.setattr(gradebook, "WAIT_SECONDS", 3)
    path = tmp_path / "gradebook.db"
    if STATES[state] is None:
        path.touch()
    else:
        path.write_bytes(gradebooks.read_bytes())
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(STATES[state])
    gradebook.prepare(f"sqlite:///{path}", CHAPTER, tmp_path)
    with gradebook.opened(f"sqlite:///{path}") as book:
        gradebook.write(book, "bob", CHAPTER, {})
        assert "bob" in [student.id for student in book.students]


def test_who_is_called_as_anothers_number_has_no_share_in_her_allowance(tmp_path, monkeypatch):
    """Canvas writes user 8 whose name is "ann_7" as `ann_7_8_2_work.zip`."""
    monkeypatch.setattr(handins, "MAX_UNPACKED", 1 << 16)
    bomb = zipped(*(f"{i}.ipynb" for i in range(20)), size=1 << 13)
    found = handed_in(tmp_path, {"ann_7_8_2_work.zip": bomb, "ann_7_55_basics.ipynb": b"{}", "bob_9_1_x.ipynb": b"{}"})
    assert [(len(found[name].paths), found[name].flags) for name in ("ann", "bob")] == [(1, ())] * 2
    many = {f"ann_7_8_{i}_x.txt": b"" for i in range(100, 601)}
    found = handed_in(tmp_path / "2", many | {"ann_7_999_basics.ipynb": b"{}", "bob_9_1_x.ipynb": b"{}"})
    assert [(len(found[name].paths), found[name].flags) for name in ("ann", "bob")] == [(1, ())] * 2


def test_uploads_with_numbers_in_their_names_are_no_allowances(tmp_path, monkeypatch):
    """Each may be a row of its own; all of them are one user's bytes on the disk."""
    monkeypatch.setattr(handins, "MAX_UNPACKED", 1 << 16)
    bomb = zipped(*(f"{i}.ipynb" for i in range(20)), size=1 << 13)
    handed_in(tmp_path, {f"eve_8_{100 + i}_1_x.zip": bomb for i in range(10)} | {"ann_7_1_x.ipynb": b"{}"})
    assert sum(path.stat().st_size for path in (tmp_path / "scratch").rglob("*.ipynb")) <= 2 << 16


@pytest.mark.parametrize("layout", ["{}_{}_1_x.{}", "{}_{}_assignsubmission_file_/x.{}", "{}{}/01_basics/x.{}"])
@pytest.mark.parametrize(
    "folders", [("class/", "class/submitted/"), ("submitted/",), (f"{CHAPTER}/",)], ids=["two", "one", "the chapter's"]
)
def test_whatever_folders_are_listed_nobody_shares_an_allowance(tmp_path, monkeypatch, folders, layout):
    """`zip -r d.zip class/submitted` lists both."""
    if folders == (f"{CHAPTER}/",) and CHAPTER in layout:
        pytest.skip("that is one student's")
    monkeypatch.setattr(handins, "MAX_UNPACKED", 1 << 14)
    monkeypatch.setattr(handins, "MAX_FILES", 30)
    names = [folders[-1] + layout.format(f"s{chr(97 + i % 26)}", i, "ipynb") for i in range(1, 41)]
    found = handed_in(tmp_path, dict.fromkeys((*folders, *names), b"{}"))
    assert [(len(one.paths), one.flags) for one in found.values()] == [(1, ())] * 40
    bomb = zipped(*(f"{i}.ipynb" for i in range(20)), size=1 << 13)
    first = folders[-1] + layout.format("abe", 99, "zip")
    others = {name.replace(".ipynb", ".zip"): zipped("x.ipynb") for name in names[:2]}
    found = handed_in(tmp_path / "2", {**dict.fromkeys(folders, b""), first: bomb, **others})
    assert sorted(len(one.paths) for one in found.values())[:2] == [1, 1] and len(found) == 3


def test_levels_of_a_name_in_a_zip_take_no_memory(tmp_path):
    """32,000 folders in each other, of one byte each."""
    name = b"\xe2/" * 32_000 + b"x"
    head = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 33, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0)
    listed = (head + name) * 20
    ends = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 20, 20, len(listed), 0, 0)
    (tmp_path / "in" / "eve").mkdir(parents=True)
    (tmp_path / "in" / "eve" / "work.zip").write_bytes(listed + ends)
    tracemalloc.start()
    try:
        (eve,) = find(tmp_path / "in", CHAPTER, STEMS, tmp_path / "scratch")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20  # all of them: 54 MB
    finally:
        tracemalloc.stop()
    assert "no notebook" in eve.flags


@pytest.mark.parametrize(
    "names",
    [
        ("late/anon_Ab1cd_1_w.zip", "late/anon_Xb1cd_2_basics.ipynb"),
        ("late/ann_7_1_w.zip", "late/bob.ipynb"),
        ("late/ann.zip", "late/bob.ipynb"),
        ("late/Ann_5_assignsubmission_file_/x.ipynb", "late/bob.ipynb"),
    ],
)
def test_a_zip_and_a_notebook_in_an_outer_folder_are_two_students(tmp_path, names):
    found = handed_in(tmp_path, {name: zipped("x.ipynb") if name.endswith("zip") else b"{}" for name in names})
    assert [len(one.paths) for one in found.values()] == [1, 1]


def test_what_lies_beside_a_chapters_folder_is_read_too_and_after_it(tmp_path):
    """Handed in twice, once by itself and once in the folder that was downloaded; and a folder with much else in it."""
    home = zipped(*(f"a{i:02d}.ipynb" for i in range(25)), f"{CHAPTER}/basics.ipynb")
    found = handed_in(
        tmp_path,
        {
            "ann_7_1_basics.ipynb": b"{}",
            "ann_7_2_course.zip": zipped(f"{CHAPTER}/basics.ipynb"),
            "bob_8_3_home.zip": home,
            "cid_9_4_course.zip": zipped("02_autograd/autograd.ipynb"),
        },
    )
    assert {name: len(one.paths) for name, one in found.items()} == {"ann": 2, "bob": handins.MAX_NOTEBOOKS, "cid": 1}
    assert "basics" in [path.stem for path in found["bob"].paths]


@pytest.mark.parametrize("mode", [0o444, 0o744], ids=oct)
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no modes")
def test_a_lone_folder_that_may_be_listed_and_not_entered_is_a_row(tmp_path, mode):
    place = tmp_path / "late"
    (place / "eve" / CHAPTER).mkdir(parents=True)
    above = [folder for folder in (place, *place.parents) if folder.is_relative_to("/tmp") and folder != Path("/tmp")]
    modes = [(folder, folder.stat().st_mode) for folder in above]
    try:
        for folder in above:
            folder.chmod(0o755)
        (place / "eve").chmod(mode & 0o444 if os.getuid() else mode)
        command = [sys.executable, "-c", UNREADABLE, str(place), str(tmp_path / "scratch")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        (place / "eve").chmod(0o755)
        for folder, was in modes:
            folder.chmod(was & 0o7777)
    assert done.stdout == "[('eve', ('no notebook', 'refused'))]\n", done.stderr


def test_other_limits_and_other_walls_are_another_grading():
    """A killed run's row counts where it was made by the same."""
    rules = autograder.run.rules
    same, *others = rules("c", Limits(), True), rules("c", Limits(cell_seconds=1), True), rules("c", Limits(), False)
    found = Found("ann", ())
    assert digest(found, same) == digest(found, rules("c", Limits(), True))
    assert not {digest(found, same)} & {digest(found, other) for other in others}
    assert digest(found, others[0]) != digest(found, others[1])


def test_a_result_that_died_with_the_last_worker_is_not_waited_for(monkeypatch):
    """It was finished, and had not been fetched yet: Dask would wait for another worker without end."""
    pytest.importorskip("distributed")
    from autograder import cluster
    from autograder.forkserver import ServerError

    class Lost:
        """A future whose result lay on a worker that is gone."""

        def add_done_callback(self, call):
            call(self)

        def release(self): ...

        def result(self, timeout=None):
            if timeout is None:
                pytest.fail("waits without end")
            time.sleep(timeout)
            raise TimeoutError

    class Client:
        looks = 0

        def nthreads(self):
            self.looks += 1
            return {"tcp://worker": 1} if self.looks == 1 else {}

    monkeypatch.setattr(cluster, "WORKERLESS_SECONDS", 0.3)
    monkeypatch.setattr(cluster, "LOOK_SECONDS", 0.1)
    place = cluster.Cluster(None, "tcp://here")
    place._client = Client()
    monkeypatch.setattr(place, "_hand_out", lambda found: Lost())
    with pytest.raises(ServerError, match="has no worker"):
        next(place.grade([Found("ann", ())]))


def test_an_unclear_row_is_one_users(tmp_path):
    """Canvas writes "ann_ 7_ 101" so; 101 is the upload of user 7's own file, whose name begins with a number."""
    names = ["ann_7_101_2_basics.ipynb", "ann_7_101_8_104_x.ipynb", "ann_7_101_9_105_x.ipynb"]
    found = in_a_zip(tmp_path, *names)
    assert [(one.canvas_id, len(one.paths)) for one in found.values()] == [("?", 1)] * 3


def test_an_unclear_upload_does_without_anothers_allowance(tmp_path, monkeypatch):
    """User 12 calls himself "ann_7"; the file of user 7 begins with a number, so each is written with three of them."""
    monkeypatch.setattr(handins, "MAX_UNPACKED", 1 << 16)
    bomb = zipped(*(f"{i}.ipynb" for i in range(20)), size=1 << 13)
    found = handed_in(tmp_path, {"ann_7_12_2_w.zip": bomb, "ann_7_55_2_basics.ipynb": b"{}"})
    assert sorted((len(one.paths), "refused" in one.flags) for one in found.values())[0] == (1, False)


def test_a_workers_own_timeout_is_not_tried_again_without_end(monkeypatch):
    """ETIMEDOUT of its disk, say, is a TimeoutError: it is what the task gave, not that nothing came yet."""
    pytest.importorskip("distributed")
    from autograder import cluster

    class Failed:
        status, tries = "error", 0

        def add_done_callback(self, call):
            call(self)

        def release(self): ...

        def result(self, timeout=None):
            Failed.tries += 1
            if Failed.tries > 100:
                pytest.fail("asks again and again")
            raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    class Client:
        def nthreads(self):
            return {"tcp://worker": 1}

    place = cluster.Cluster(None, "tcp://here")
    place._client = Client()
    monkeypatch.setattr(place, "_hand_out", lambda found: Failed())
    with pytest.raises((cluster.ServerError, OSError)):
        next(place.grade([Found("ann", ())]))
