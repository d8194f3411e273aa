"""Hand-ins that aim at the run, the machine or the reader, beside those of `hostile.py` and in the same form."""

from __future__ import annotations

import io
import json
import stat
import warnings
import zipfile
from collections.abc import Iterator

from hostile import CHAPTER, NOTHING, HandIn, cell, notebook, one

# The grader's channel is the only socket; what is printed goes into pipes.
CHANNEL = """
import os, socket, stat
number = next(n for n in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{n}")
              and stat.S_ISSOCK(os.fstat(n).st_mode))
"""
NAME = "import ctypes, os\nctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)\n"
# Names that a reader of /proc must survive: no UTF-8, a bracket and numbers as in `stat`, lines as in `status`.
NAMES = {
    "no-utf8": b"\xff\xfe",
    "bracket": b") Z 0 0 0 0",
    "lines": b"a\rVmPTE:x",
    "newline": b"a\nRssAnon: 1 kB",
    "empty": b"",
}


def names() -> Iterator[HandIn]:
    """A process's name is the learner's to choose, and the grader reads it."""
    for name, value in NAMES.items():
        yield HandIn(f"B-name-{name}", one(notebook(last=NAME.format(name=value))))
    # A zombie has no lines about memory that would come after the forged one.
    zombies = f"""
        import ctypes, os, time
        for name in {list(NAMES.values())!r}:
            if os.fork() == 0:
                ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
                os._exit(0)
        time.sleep(0.3)
    """
    yield HandIn("B-zombies-with-names", one(notebook(first=zombies)))


def channel() -> Iterator[HandIn]:
    """The ends that the grader reads and writes."""
    yield HandIn("B-half-line", one(notebook(last=CHANNEL + "os.write(number, b'{\"token\": ')")), flags="garbage")
    yield HandIn("B-empty-lines", one(notebook(last=CHANNEL + "os.write(number, b'\\n' * 100)")), flags="garbage")
    yield HandIn(
        "B-hangs-up", one(notebook(last=CHANNEL + "socket.socket(fileno=os.dup(number)).shutdown(2)")), flags="killed"
    )
    yield HandIn(
        "B-hears-no-more",
        one(notebook(last=CHANNEL + "socket.socket(fileno=os.dup(number)).shutdown(0)")),
        flags="|killed",
    )
    signals = """
        import fcntl
        for n in (1, number):  # SIGSYS, whenever something comes in
            fcntl.fcntl(n, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(n, 10, 31)
            fcntl.fcntl(n, fcntl.F_SETFL, fcntl.fcntl(n, fcntl.F_GETFL) | 0o20000)
    """
    yield HandIn("B-signal-at-each-message", one(notebook(last=CHANNEL + cell(signals))), flags="|killed")
    tiny = (
        CHANNEL + "import fcntl\nfcntl.fcntl(1, 1031, 4096)\nsocket.socket(fileno=os.dup(number)).setsockopt(1, 7, 1)"
    )
    yield HandIn("B-smallest-buffers", one(notebook(first=tiny)))


def walls() -> Iterator[HandIn]:
    """What must not be allowed prints LEAK."""
    thread = """
        import ctypes, threading, time
        libc = ctypes.CDLL(None)
        threading.Thread(target=lambda: libc.syscall({number})).start()
        time.sleep(0.3)
        print("LEAK: only the thread died")
    """
    # getpid of the x32 architecture, which the filter does not know: the whole process ends.
    number = 0x40000000 + 39
    yield HandIn("B-x32-call-in-a-thread", one(notebook(last=thread.format(number=number))), flags="killed")
    tries = """
        import ctypes, os, resource, socket
        def attempt(what, function, *arguments):
            try:
                function(*arguments)
            except (OSError, ValueError):
                return
            print("LEAK", what)
        def written(path, text):
            with open(path, "w") as file: file.write(text)
        for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_DATA):
            attempt(which, resource.setrlimit, which, (-1, -1))
        for path, text in (
            ("self/oom_score_adj", "-1000"), ("sysrq-trigger", "h"), ("sys/kernel/core_pattern", "|/bin/sh"),
            ("self/uid_map", "0 0 1"), ("sys/user/max_user_namespaces", "10"), ("sys/fs/pipe-max-size", "1048577"),
        ):
            attempt(path, written, "/proc/" + path, text)
        attempt("mknod", os.mknod, "/tmp/disk", 0o60666, os.makedev(8, 0))
        attempt("mknod", os.mknod, "/tmp/null", 0o20666, os.makedev(1, 3))
        libc = ctypes.CDLL(None, use_errno=True)
        for space in os.listdir("/proc/self/ns"):
            if libc.setns(os.open(f"/proc/self/ns/{space}", os.O_RDONLY), 0) == 0: print("LEAK", space)
        if os.nice(0) < 0 or libc.setpriority(0, 0, -5) == 0: print("LEAK priority")
        if len([line for line in open("/proc/net/unix") if "@" in line]): print("LEAK abstract sockets")
        if os.listdir("/dev/pts") not in ([], ["ptmx"]): print("LEAK terminals")
        if [line for line in open("/proc/self/maps") if line.split()[1].endswith("ws")]: print("LEAK shared pages")
    """
    yield HandIn("B-more-than-allowed", one(notebook(NOTHING, first=tries)), 0)


def files() -> Iterator[HandIn]:
    good = notebook()
    whole = json.loads(good)
    yield HandIn("B-nbformat-5", one(json.dumps(whole | {"nbformat": 5, "nbformat_minor": "x"})))
    yield HandIn("B-cells-twice", one('{"cells": [], "cells": 3, "metadata": [],' + good.strip()[1:]))

    def odd(cells: list) -> None:
        kinds = [None, True, 3, "x", [], {}, [[]], {"a": 1}]
        for i, c in enumerate(cells):
            c["execution_count"], c["outputs"], c["attachments"] = (kinds[(i + k) % 8] for k in range(3))
            c["extra"], c["metadata"]["tags"] = "x" * 1000, kinds[i % 8]
        cells += [
            {"cell_type": kinds[i], "source": kinds[7 - i], "metadata": kinds[i], "id": kinds[i]} for i in range(8)
        ]

    yield HandIn("B-odd-types", one(notebook(change=odd)))
    # A sum that is wrong shows at the end only, when everything has been unpacked.
    yield HandIn(
        "B-zip-wrong-sum", {f"{CHAPTER}/work.zip": damaged(good)}, 0, "no notebook refused", "cannot be unpacked"
    )
    twice = zipped([("basics.ipynb", good), ("basics.ipynb", notebook(NOTHING))])
    yield HandIn(
        "B-zip-same-name-twice", {f"{CHAPTER}/work.zip": twice}, flags="several notebooks", reason="counts, not"
    )
    cases = zipped([("Basics.IPYNB", notebook(NOTHING)), ("basics.ipynb", good), ("BASICS.ipynb", "")])
    yield HandIn(
        "B-zip-names-that-differ-in-case", {f"{CHAPTER}/work.zip": cases}, flags="several notebooks unreadable"
    )
    link = zipfile.ZipInfo(f"{FORMULA}.ipynb")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    yield HandIn("B-zip-formula", {f"{CHAPTER}/work.zip": zipped([(link, "/etc/passwd"), ("basics.ipynb", good)])},
                 flags="refused", reason="is a link")  # fmt: skip
    backslashes = "x\\..\\..\\basics.ipynb"  # one name of a file on Linux
    yield HandIn("B-name-with-backslashes", {f"{CHAPTER}/{backslashes}": good})
    long = zipped([("basics" + "-" * 60_000 + "x.ipynb", good)])
    yield HandIn("B-zip-long-name", {f"{CHAPTER}/work.zip": long})
    many = zipped([*((f"{i}.txt", "") for i in range(600)), ("basics.ipynb", good)])
    yield HandIn("B-zip-many-files-first", {f"{CHAPTER}/work.zip": many}, 0, "no notebook refused", "the first 500")
    deep = zipped([("a/" * 30_000 + "basics.ipynb", good)])
    yield HandIn("B-zip-deep", {f"{CHAPTER}/work.zip": deep}, 0, "no notebook refused", "lies too deep")


FORMULA = "x;=1+1;@2\t=3"  # cells of their own where a spreadsheet separates by ";" or a tab


def zipped(members: list[tuple[str | zipfile.ZipInfo, str]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zipfile, about names that are there twice
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def damaged(text: str) -> bytes:
    """A zip of a notebook whose checksum is another's."""
    data = zipped([("basics.ipynb", text)])
    start = data.index(b"PK\1\2") + 16
    data = data[:start] + bytes(b ^ 1 for b in data[start : start + 4]) + data[start + 4 :]
    return data[:14] + data[start : start + 4] + data[18:]


def attempts() -> Iterator[HandIn]:
    """All of them."""
    for kind in (names, channel, walls, files):
        yield from kind()
