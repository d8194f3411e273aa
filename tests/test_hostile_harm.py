"""Attacks on the run, the machine and the reader that are no hand-in of the shared batch."""

from __future__ import annotations

import csv
import io
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter

from autograder import sandbox
from autograder.feedback import as_written
from autograder.forkserver import ForkServer, Job, Limits, Result
from autograder.handins import Found, find, safe_id
from autograder.harmless import harmless
from autograder.run import write_csv

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
    assert slow.cells[0].outcome == "garbage" and time.monotonic() - begin < LIMITS.cell_seconds + 4
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


# --- who opens the page ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("kind", "piece", "count", "size"), [
    ("code", " \n", 1, 60_000), ("code", " \n", 40, 4_000), ("code", "\f\n", 1, 60_000), ("code", "a.", 1, 60_000),
    ("code", "...", 1, 60_000), ("markdown", "[", 1, 60_000), ("markdown", "![", 1, 60_000),
])  # fmt: skip
def test_a_cell_does_not_hang_the_page_that_shows_it(kind, piece, count, size):
    """nbconvert and Pygments take a time that grows with the square of some texts, in the Jupyter server's one thread."""
    source = piece * (size // len(piece))
    make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
    cells = [make(source if kind == "code" else as_written(source)) for _ in range(count)]
    shown = harmless(nbformat.v4.new_notebook(cells=cells), None)
    begin = time.monotonic()
    HTMLExporter().from_notebook_node(shown)
    assert time.monotonic() - begin < 10
