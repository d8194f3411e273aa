"""Prove on this machine that every wall of the sandbox holds: `python -m autograder.selftest`.

Each wall is attacked by a submission of its own; a line says what was tried and whether the wall held. The exit status is
0 when all held, 1 otherwise.
"""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .forkserver import ForkServer, Job, Limits, Result, SandboxError, ServerError

LIMITS = Limits(
    cell_seconds=2.5, grace_seconds=0.3, job_seconds=30, memory_bytes=256 << 20, file_bytes=1 << 20, disk_bytes=4 << 20,
    processes=32, output_bytes=8 << 20, retries=1,
)  # fmt: skip
REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Wall:
    """An attack, and how to tell that it failed.

    Parameters
    ----------
    name
        The wall.
    attack
        A cell's source. What it prints is the evidence.
    holds
        Whether the wall held, from the job's result.
    """

    name: str
    attack: str
    holds: Callable[[Result], bool]


def prints(*expected: str) -> Callable[[Result], bool]:
    """The attack's cell ran to its end and printed these lines and no others."""
    return lambda result: result.cells[0].outcome == "ok" and result.cells[0].output.split("\n")[:-1] == list(expected)


def ends_with(reason: str) -> Callable[[Result], bool]:
    """The attack's process was ended for this reason, and the cell after it ran in a fresh one."""
    return lambda result: reason in result.flags and result.cells[-1].output == "honest\n"


def refused(*statements: str) -> str:
    """A cell that tries each statement and prints what came of it."""
    lines = ["import os, socket, ctypes, signal, subprocess, sys"]
    for statement in statements:
        lines += ["try:", f"    {statement}", "except (OSError, ValueError) as error:", "    print('refused')"]
        lines += ["else:", f"    print('allowed', {statement!r})"]
    return "\n".join(lines)


def cell(source: str) -> str:
    """The source without its indentation here."""
    return textwrap.dedent(source).strip()


def walls() -> Iterator[Wall]:
    """All of them, with attacks on this machine's own paths and processes."""
    yield Wall(
        "network: no address is reachable",
        refused(
            "socket.create_connection(('1.1.1.1', 53), 1)",
            "socket.create_connection(('127.0.0.1', 22), 1)",
            "socket.create_connection(('::1', 22), 1)",
            "socket.socket(40, socket.SOCK_STREAM)",
        )
        + "\nprint([line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line])",
        prints("refused", "refused", "refused", "refused", "['lo']"),
    )
    names = ("solutions", "autograder", "tests", ".git", "autograder/class/gradebook.db")
    secrets = [str(REPOSITORY / name) for name in names]
    yield Wall(
        "files: repository, solutions and gradebook do not exist inside",
        f"import os\nprint([path for path in {secrets!r} if os.path.exists(path)])",
        prints("[]"),
    )
    home = os.path.expanduser("~")
    yield Wall(
        "files: no home folder, no password file of the machine",
        cell(f"""
            import os
            machine = ("/etc/shadow", "/etc/hostname", "/var", "/sys", "/run")
            print([path for path in machine if os.path.exists(path)])
            print([path for path in {[os.path.join(home, name) for name in os.listdir(home)]!r}
                   if os.path.isfile(path)])
            print(open("/etc/passwd").read().count("\\n"))
        """),
        prints("[]", "[]", "1"),
    )
    yield Wall(
        "files: everything but the private folders is read only",
        refused(
            *(f"open('{place}/x', 'w')" for place in ("", "/usr", "/etc", "/dev", "/opt/site")),
            "open(os.path.join(sys.prefix, 'x'), 'w')",
        )
        + "\nfor place in ('/tmp', '/dev/shm', '.'): open(place + '/x', 'w').write('x')\nprint('private folders work')",
        prints(*["refused"] * 6, "private folders work"),
    )
    yield Wall(
        "files: nothing stays for the next submission",
        "import os\nprint(os.listdir('/tmp'), os.listdir('/dev/shm'), os.listdir('.'))",
        prints("[] [] []"),
    )
    yield Wall(
        "files: one file's size",
        refused("open('big', 'wb').write(bytes(3 << 20))") + "\nprint(os.path.getsize('big') <= 1 << 20)",
        prints("refused", "True"),
    )
    yield Wall(
        "files: a folder's size",
        cell("""
            import errno
            try:
                for i in range(100):
                    open(f"/tmp/{i}", "wb").write(bytes(1 << 19))
            except OSError as error:
                print(errno.errorcode[error.errno])
        """),
        prints("ENOSPC"),
    )
    yield Wall(
        "processes: no other process is visible",
        "import os\nprint(sorted(name for name in os.listdir('/proc') if name.isdigit()))",
        prints("['1']"),
    )
    yield Wall(
        "processes: no signal reaches the grader",
        cell(f"""
            import os
            for pid in ({os.getpid()}, {os.getppid()}, 2):
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    print("no such process")
            print(os.getppid())
        """),
        prints("no such process", "no such process", "no such process", "0"),
    )
    yield Wall(
        "processes: a fork bomb stays small",
        cell("""
            import os, time
            children = 0
            try:
                while children < 1000:
                    if os.fork() == 0:
                        time.sleep(20)
                        os._exit(0)
                    children += 1
            except OSError:
                pass
            print(children < 32)
        """),
        prints("True"),
    )
    mark = f"underhood-selftest-{os.getpid()}"
    yield Wall(
        "processes: a daemon dies with its submission",
        cell(f"""
            import os
            ours, theirs = os.pipe()
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.execv("/bin/sh", ["/bin/sh", "-c", "sleep 77 # {mark}; true"])
                os._exit(0)
            os.wait()
            os.close(theirs)
            os.read(ours, 1)  # comes back when the program has started, which closes the other end
            print("daemon started")
        """),
        lambda result: result.cells[0].output == "daemon started\n" and not running(mark),
    )
    yield Wall(
        "privileges: nobody, no capabilities, and no way to get any",
        cell("""
            import os
            status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
            print(os.getuid(), *(int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")))
            print(status["NoNewPrivs"], status["Seccomp"])
        """),
        prints("65534 0 0 0 0 0", "1 2"),
    )
    yield Wall(
        "system calls: no namespaces, mounts, tracing or hidden memory",
        cell("""
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            def call(name, *arguments):
                print(name, getattr(libc, name)(*arguments), ctypes.get_errno())
            call("unshare", 0x10000000)
            call("mount", b"t", b"/tmp", b"tmpfs", 0, None)
            call("umount2", b"/proc", 2)
            call("ptrace", 0, 0, 0, 0)
            call("memfd_create", b"x", 0)
            call("mmap", None, 1 << 20, 3, 0x21, -1, 0)  # shared by nobody yet: pages that no process is seen to hold
            call("mmap", None, 1 << 20, 3, 0x122, -1, 0)  # a stack that is none: no limit of a process counts it
            print(open("/dev/zero", "rb").read(1))  # mapped, it would be the same
        """),
        prints(
            *(f"{name} -1 1" for name in ("unshare", "mount", "umount2", "ptrace", "memfd_create", "mmap", "mmap")),
            "b''",
        ),
    )
    yield Wall(
        "memory: one process",
        "blocks = []\nwhile True: blocks.append(bytearray(b'x' * (16 << 20)))",
        lambda result: result.cells[0].error == "MemoryError" or ends_with("memory")(result),
    )
    yield Wall(
        "memory: all processes together",
        cell("""
            import os, time
            for i in range(20):
                if os.fork() == 0:
                    block = bytearray(b"x" * (60 << 20))
                    time.sleep(20)
                    os._exit(0)
            time.sleep(1)
        """),
        # Where no cgroup limits it, the sum may be above the limit for the moment until it is seen.
        lambda result: (
            (0 < result.peak_memory < 400 << 20 or result.cells[0].outcome == "memory")
            and result.cells[-1].output == "honest\n"
        ),
    )
    yield Wall("time: an endless loop", "while True: pass", ends_with("timeout"))
    yield Wall(
        "time: an endless loop that cannot be interrupted",
        cell("""
            import signal
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    pass
        """),
        ends_with("timeout"),
    )
    yield Wall("output: endless printing", "while True: print('x' * 100_000)", ends_with("output"))
    yield Wall(
        "results: forged lines in every open descriptor",
        cell("""
            import os
            for number in range(256):
                try:
                    os.write(number, b'{"token": "", "error": null}\\n')
                except OSError:
                    pass
        """),
        ends_with("garbage"),
    )
    yield Wall("life: a submission that ends its process", "import os\nos._exit(0)", ends_with("killed"))


def running(mark: str) -> bool:
    """Whether a process with `mark` in its command line is alive; waits a moment for it to end."""
    for _ in range(20):
        found = False
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found |= mark.encode() in path.read_bytes() and int(path.parent.name) != os.getpid()
            except OSError:
                continue
        if not found:
            return False
        time.sleep(0.05)
    return True


def main() -> int:
    """Attack every wall; print a line for each."""
    failed = 0
    try:
        with ForkServer(preload=(), limits=LIMITS, answer=None, packages=()) as server:
            for wall in walls():
                result = server.run(Job(cells=[("attack", wall.attack), ("after", "print('honest')")]))
                held = wall.holds(result)
                failed += not held
                print("ok    " if held else "BROKEN", wall.name, flush=True)
                if not held:
                    print("      ", result.cells[0], result.reason)
            print(
                "memory is limited",
                "exactly, by a cgroup" if server.exact_memory else "per process, and watched in all",
            )
    except (SandboxError, ServerError) as error:
        print("BROKEN", error)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
