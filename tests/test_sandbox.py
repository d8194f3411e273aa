"""Every wall of the sandbox holds, for root and for an ordinary user, and one that cannot be built is named."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autograder import sandbox, selftest
from autograder.forkserver import ForkServer, Job, Limits

REPOSITORY = Path(__file__).resolve().parents[1]
WALLS = list(selftest.walls())

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces")


@pytest.fixture(scope="module")
def server():
    with ForkServer(preload=(), limits=selftest.LIMITS, answer=None, packages=()) as server:
        yield server


@pytest.mark.parametrize("wall", WALLS, ids=[wall.name for wall in WALLS])
def test_the_wall_holds(server, wall):
    result = server.run(Job(cells=[("attack", wall.attack), ("after", "print('honest')")]))
    assert wall.holds(result), result


HARMLESS = [wall for wall in WALLS if wall.name.split(":")[0] in ("network", "privileges")] + [
    wall for wall in WALLS if any(word in wall.name for word in ("do not exist", "no home", "visible", "daemon"))
]


@pytest.mark.parametrize("wall", HARMLESS, ids=[wall.name for wall in HARMLESS])
def test_the_check_of_a_wall_fails_where_there_is_none(wall):
    with ForkServer(preload=(), limits=selftest.LIMITS, answer=None, packages=(), walls=False) as server:
        attack = wall.attack.replace("sleep 77", "sleep 2")
        assert not wall.holds(server.run(Job(cells=[("attack", attack), ("after", "print('honest')")])))


def test_an_ordinary_user_gets_the_same_walls():
    finished = as_nobody([sys.executable, "-m", "autograder.selftest"])
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert [line[:6] for line in finished.stdout.splitlines()[:-1]] == ["ok    "] * len(WALLS)


def test_an_ordinary_users_memory_is_watched_over_all_processes():
    code = """
from autograder.forkserver import ForkServer, Job, Limits
hog = '''
import os, time
for i in range(6):
    if os.fork() == 0:
        block = bytearray(b"x" * (60 << 20)); time.sleep(20); os._exit(0)
time.sleep(10)
'''
with ForkServer(preload=(), limits=Limits(memory_bytes=200 << 20, retries=1), answer=None, packages=()) as server:
    result = server.run(Job(cells=[("a", hog), ("b", "print('honest')")]))
    print(server.exact_memory, result.flags, result.cells[1].output)
"""
    finished = as_nobody([sys.executable, "-c", code])
    assert finished.stdout.split() == ["False", "('memory',)", "honest"], finished.stdout + finished.stderr


def as_nobody(command: list[str]) -> subprocess.CompletedProcess:
    """Run a command as uid 1000 without any rights; root only.

    Where Python lives in a folder that only root may enter, a private mount namespace shows that user the part of it.
    """
    if os.geteuid() != 0:
        pytest.skip("this test run is an ordinary user's already")
    if not shutil.which("setpriv") or not shutil.which("unshare"):
        pytest.skip("util-linux's setpriv and unshare are not installed")
    script = []
    for prefix in {sys.base_prefix, sys.prefix, str(REPOSITORY)}:
        closed = [parent for parent in reversed(Path(prefix).parents) if not parent.stat().st_mode & 0o001]
        if closed:
            top, place = shlex.quote(str(closed[0])), shlex.quote(prefix)
            script += [
                "aside=$(mktemp -d)", f"mount --bind {place} $aside", f"mount -t tmpfs -o mode=755 none {top}",
                f"mkdir -p {place}", f"mount --bind $aside {place}", "umount $aside", "rmdir $aside",
            ]  # fmt: skip
    script.append(f"exec setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps=-all {shlex.join(command)}")
    return subprocess.run(
        ["unshare", "--mount", "sh", "-ec", "\n".join(script)],
        cwd=REPOSITORY, env={"PATH": os.environ["PATH"], "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_missing_bubblewrap_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sandbox.SandboxError, match="bwrap is not installed") as caught:
        ForkServer(preload=(), answer=None, packages=()).start()
    assert caught.value.wall == "bubblewrap"


def test_a_bubblewrap_that_fails_is_named_with_its_own_words(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sandbox.SandboxError, match="No permissions to create a new namespace"):
        ForkServer(preload=(), answer=None, packages=()).start()


def test_a_missing_libseccomp_is_named(monkeypatch):
    def missing(*_, **__):
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(sandbox.ctypes, "CDLL", missing)
    with pytest.raises(sandbox.SandboxError, match="libseccomp.so.2 is not installed"):
        sandbox.Filter()


def test_a_python_that_holds_the_repository_is_refused(monkeypatch, tmp_path):
    (tmp_path / "repository" / "autograder").mkdir(parents=True)
    (tmp_path / "repository" / "solutions").mkdir()
    monkeypatch.setattr(sandbox, "__file__", str(tmp_path / "repository" / "autograder" / "sandbox.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(sandbox.SandboxError, match="holds this repository"):
        sandbox.python_prefixes()


def test_a_folder_on_a_tmpfs_is_no_cgroup(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox, "_hierarchies", lambda: [(tmp_path, False), (tmp_path, True)])
    assert sandbox.Cgroup.create(1 << 30) is None
    assert list(tmp_path.iterdir()) == []


def test_memory_in_use_counts_descendants():
    code = "import subprocess, sys, time; b = bytearray(b'x' * (30 << 20)); time.sleep(20)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    process = subprocess.Popen([sys.executable, "-c", outer])
    try:
        deadline = time.monotonic() + 10
        while sandbox.memory_in_use(process.pid) < 30 << 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert 30 << 20 < sandbox.memory_in_use(process.pid) < 80 << 20
        assert len(sandbox.descendants(process.pid)) == 2
    finally:
        for pid in reversed(sandbox.descendants(process.pid)):
            os.kill(pid, 9)
        process.wait()


@pytest.mark.parametrize("processes", [1, 2])
def test_memory_in_use_counts_a_process_whose_first_thread_has_ended(processes):
    code = (
        "import ctypes, os, threading, time\ndef rest():\n    block = bytearray(b'x' * (60 << 20)); time.sleep(20)\n"
        f"for _ in range({processes - 1}): os.fork()\nthreading.Thread(target=rest).start()\n"
        "ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 10
        wanted = processes * 60 << 20
        while sandbox.memory_in_use(process.pid) < wanted and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sandbox.memory_in_use(process.pid) > wanted
        assert sandbox._status(process.pid)[b"RssAnon"] > 60 << 20
    finally:
        for pid in reversed(sandbox.descendants(process.pid)):
            os.kill(pid, 9)
        process.wait()


def test_memory_in_use_counts_page_tables():
    code = (
        "import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n"
        f"at = libc.mmap(None, ctypes.c_size_t({20 << 30}), 1, 0x4022, -1, None)\n"
        "for i in range(0, 20 << 30, 2 << 20): ctypes.string_at(at + i, 1)\ntime.sleep(20)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 10
        while sandbox.memory_in_use(process.pid) < 40 << 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sandbox.memory_in_use(process.pid) > 40 << 20
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", [b"\xff\xfe", b") R 1", b"a\rVmPTE:x", b"VmPTE: 1 kB", b"\nVmPTE:\tx\n"])
def test_what_is_read_of_a_process_does_not_depend_on_its_name(name):
    """Nor does a zombie's, which has no line of its own for what it holds."""
    code = (
        f"import ctypes, os, time\nif os.fork() == 0:\n    ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)\n"
        f"    os._exit(0)\nctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)\n"
        "while time.process_time() < 0.1: pass\nprint(flush=True)\ntime.sleep(20)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        try:
            zombie = sandbox.descendants(process.pid)[1]
            assert 1 << 20 < sandbox.memory_in_use(process.pid) < 100 << 20
            assert sandbox.memory_in_use(zombie) == 0
            assert 0.05 < sandbox.cpu_seconds(process.pid) < 10
        finally:
            process.kill()


def test_only_the_first_thread_of_a_submission_competes_with_its_neighbors():
    cell = (
        "import os, threading, time\nids = []\n"
        "def work():\n    ids.append(threading.get_native_id())\n    time.sleep(2)\n"
        "threading.Thread(target=work).start()\nchild = os.fork()\n"
        "if child == 0:\n    os.setsid(); time.sleep(2); os._exit(0)\n"
        "time.sleep(1)\nfor who in (0, *ids, child): print(os.getpriority(os.PRIO_PROCESS, who))\n"
        "for who in ('self', child): print(open(f'/proc/{who}/autogroup').read().split()[-1])\n"
        "os.setpriority(os.PRIO_PROCESS, child, 0)"
    )
    with ForkServer(preload=(), limits=Limits(), answer=None, packages=()) as server:
        done = server.run(Job(cells=[("a", cell)])).cells[0]
    numbers = re.findall(r"^\d+$", done.output, re.M)
    assert numbers[:3] == ["0", "19", "19"], done
    if done.error != "FileNotFoundError":  # this kernel groups them by session
        assert numbers[3:] == ["0", "19"] and done.error == "PermissionError", done


def test_submissions_at_the_same_time_do_not_see_each_other():
    from concurrent.futures import ThreadPoolExecutor

    cell = (
        "import os, socket, time\ns = socket.socket(socket.AF_UNIX); s.bind('\\0underhood'); s.listen()\nos.openpty()\n"
        "open('/tmp/mark', 'x').close(); open('/dev/shm/mark', 'x').close(); time.sleep(0.3)\n"
        "print(os.listdir('/tmp'), os.listdir('/dev/shm'), sorted(os.listdir('/dev/pts')), "
        "[n for n in os.listdir('/proc') if n.isdigit()])"
    )
    with ForkServer(preload=(), limits=Limits(), answer=None, packages=()) as server, ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: server.run(Job(cells=[("a", cell)])), range(6)))
    assert {result.cells[0].output for result in results} == {"['mark'] ['mark'] ['0', 'ptmx'] ['1']\n"}


def test_an_environment_below_a_private_folder_is_shown_elsewhere():
    """A clone in /tmp: the submission's own /tmp would cover its Python."""
    assert sandbox.inside("/tmp/clone/.venv/bin/python") == Path("/opt/tmp/clone/.venv/bin/python")
    assert sandbox.inside("/srv/clone/.venv/bin/python") == Path("/srv/clone/.venv/bin/python")


def test_another_system_says_so_and_grades_what_is_trusted(monkeypatch):
    for module, name in (
        (os, "pidfd_open"),
        (socket, "SO_PASSCRED"),
        (socket, "SCM_CREDENTIALS"),
        (select, "POLLRDHUP"),
    ):
        monkeypatch.delattr(module, name)
    with ForkServer(preload=(), answer=None, packages=(), walls=False) as server:
        assert server.run(Job(cells=[("a", "print(6 * 7)")])).cells[0].output == "42\n"
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(sandbox, "_libc", None)  # it has no prctl
    sandbox.die_with_parent()
    with pytest.raises(sandbox.SandboxError, match="'namespaces' cannot be built here: they are Linux's"):
        ForkServer(preload=(), answer=None, packages=()).start()


def test_windows_says_what_to_do_instead():
    program = "import runpy, sys; sys.platform = 'win32'; runpy.run_module('autograder', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("The grader forks a process") and "Linux" in done.stderr
    assert "Traceback" not in done.stderr
