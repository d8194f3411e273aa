"""The fork server: honest jobs, hostile ones, broken ones, and faults of the machine; with a light preload."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autograder import forkserver, sandbox
from autograder.forkserver import ForkServer, Job, Limits, ServerError

ANSWERS = Path(__file__).with_name("sandbox_answers.py")
LIMITS = Limits(
    cell_seconds=4, request_seconds=4, grace_seconds=0.3, job_seconds=20, memory_bytes=300 << 20, output_bytes=300 << 20,
    reply_bytes=1 << 20, retries=3,
)  # fmt: skip
HONEST = ("honest", "def double(x):\n    return 2 * x")
ASK = {"call": "double", "args": [21]}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces")


@pytest.fixture(scope="module")
def server():
    with ForkServer(preload=(), limits=LIMITS, answer="sandbox_answers.answer", packages=[ANSWERS]) as server:
        yield server


def run(server, *sources, requests=(ASK,), seed=0):
    cells = [HONEST, *((f"c{i}", source) for i, source in enumerate(sources, 1))]
    return server.run(Job(cells=cells, requests=requests, seed=seed))


def outcomes(result):
    return [cell.outcome for cell in result.cells]


def test_an_honest_job_gives_outputs_and_answers(server):
    result = run(server, "print('hello')\n1 + 1")
    assert outcomes(result) == ["ok", "ok"]
    assert result.cells[1].output == "hello\nOut[0]: 2\n"
    assert result.answers[0].value == {"value": 42}
    assert (result.flags, result.reason, result.attempts) == ((), "", 1)


@pytest.mark.parametrize(
    "source, error",
    [
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import not_there", "ModuleNotFoundError"),
        ("class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E", "E"),
        ("input()", "EOFError"),
    ],
)
def test_an_error_is_recorded_and_the_run_goes_on(server, source, error):
    result = run(server, source, "print('still here')")
    assert outcomes(result) == ["ok", "error", "ok"]
    assert result.cells[1].error == error
    assert result.answers[0].value == {"value": 42}
    assert result.attempts == 1


def test_magics_and_shell_lines_work(server):
    result = run(server, "%time 1\n!echo from the shell")
    assert outcomes(result) == ["ok", "ok"]
    assert "from the shell" in result.cells[1].output


# What each does, and the word that flags it. All of them keep the honest cell's answer.
HOSTILE = {
    "os._exit": ("import os\nos._exit(0)", "killed"),
    "a crash of the interpreter": ("import ctypes\nctypes.string_at(0)", "killed"),
    "abort": ("import os\nos.abort()", "killed"),
    "an endless loop that swallows interrupts": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "timeout",
    ),
    "interrupts switched off": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "timeout",
    ),
    "a call that Python cannot interrupt": ("import threading\nsum(range(10**12))", "timeout"),
    "a lock that never opens": (
        "import _thread\nlock = _thread.allocate_lock()\nlock.acquire()\nlock.acquire()",
        "timeout",
    ),
    "a closed channel": ("import os\nos.closerange(3, 256)", "killed"),
    "garbage in every descriptor": (
        "import os\nfor i in range(256):\n    try: os.write(i, b'garbage\\n')\n    except OSError: pass",
        "garbage",
    ),
    "forged replies": (
        "import os\nfor i in range(3, 256):\n    try: os.write(i, "
        """b'{"token": "0", "error": null, "answer": {"value": 1}}\\n')\n    except OSError: pass""",
        "garbage",
    ),
    "a reply without an end": (
        "import os\nfor i in range(3, 256):\n    try:\n        while True: os.write(i, b'x' * 65536)\n    except OSError: pass",
        "output",
    ),
    "nested JSON": (
        "import os\nfor i in range(3, 256):\n    try: os.write(i, b'[' * 100_000 + b'\\n')\n    except OSError: pass",
        "garbage",
    ),
    "bytes that are no text": (
        "import os\nfor i in range(3, 256):\n    try: os.write(i, b'\\xff\\xfe\\x00\\n')\n    except OSError: pass",
        "garbage",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_cell_is_left_out_and_the_others_count(server, name):
    source, flag = HOSTILE[name]
    result = run(server, source, "print('after')")
    assert result.flags == (flag,), result
    assert outcomes(result) == ["ok", flag, "ok"]
    assert result.cells[2].output == "after\n"
    assert result.answers[0].value == {"value": 42}
    assert result.attempts == (1 if result.cells[1].error else 2)
    assert "cell c1" in result.reason


# What ends or disturbs nothing at all: one child, honest answer.
CONTAINED = {
    "killing the parent": "import os\ntry: os.kill(os.getppid(), 9)\nexcept OSError: pass",
    "killing everything": "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass",
    "200 MB of prints": "for _ in range(200): print('x' * 1_000_000)",
    "a daemon": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)",
    "a thread left running": "import threading\nthreading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()",
    "a timer left running": "from signal import *\nsignal(SIGALRM, SIG_IGN)\nsetitimer(ITIMER_REAL, .01, .01)",
    "signal handlers": "import signal\nfor n in (1, 2, 10, 12, 15, 17): signal.signal(n, lambda *_: None)",
    "deleting its folder": "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)",
    "closed streams": "import os, sys\nsys.stdout.flush(); os.close(1); os.close(2); sys.stdout = sys.stderr = None",
    "a recursion limit": "import sys\nsys.setrecursionlimit(120)",
    "shadowed builtins": "import builtins, json\nbuiltins.len = builtins.open = builtins.dict = None",
    "warnings as errors": "import warnings\nwarnings.simplefilter('error')",
    "an audit hook": "import sys\nsys.addaudithook(lambda *_: None)",
    "network": "import socket\ntry: socket.create_connection(('1.1.1.1', 80), 1)\nexcept OSError: pass\nelse: raise RuntimeError",
    "much data in a file": "try: open('x', 'wb').write(bytes(100 << 20))\nexcept OSError: pass\nelse: raise RuntimeError",
    "reading other processes": "import os, glob\nassert glob.glob('/proc/[0-9]*') == ['/proc/1'], glob.glob('/proc/[0-9]*')",
    "memory": "try: block = bytearray(b'x') * (1 << 30)\nexcept MemoryError: pass\nelse: raise RuntimeError",
}


@pytest.mark.parametrize("name", CONTAINED)
def test_what_a_wall_contains_costs_nobody_anything(server, name):
    result = run(server, CONTAINED[name], "print('after')")
    assert (result.flags, outcomes(result), result.attempts) == ((), ["ok"] * 3, 1), result
    assert result.cells[2].output == "after\n"
    assert result.answers[0].value == {"value": 42}


def test_allocating_without_end_keeps_the_other_answers(server):
    hog = (
        "import os, time\nfor i in range(30):\n    if os.fork() == 0:\n"
        "        b = bytearray(b'x' * (50 << 20))\n        time.sleep(9)\n        os._exit(0)\ntime.sleep(9)"
    )
    result = run(server, "blocks = []\nwhile True: blocks.append(bytearray(b'x' * (8 << 20)))", "blocks = None", hog)
    assert result.cells[1].error == "MemoryError" or result.cells[1].outcome == "memory"
    assert result.cells[3].outcome in ("memory", "timeout")
    assert result.answers[0].value == {"value": 42}


def test_an_interrupted_cell_keeps_what_it_had_defined(server):
    result = run(server, "def half(x):\n    return x / 2\nwhile True: pass", requests=[{"call": "half", "args": [3]}])
    assert outcomes(result) == ["ok", "timeout"]
    assert result.answers[0].value == {"value": 1.5}
    assert (result.attempts, result.flags) == (1, ("timeout",))
    assert 0 <= result.cells[1].seconds - LIMITS.cell_seconds < 3


def test_output_is_cut_in_bytes_and_belongs_to_its_cell(server):
    low = "import os\n_ = os.write(1, b'low')"
    result = run(server, "print('é' * 1_000_000)", "import sys\nprint('err', file=sys.stderr)", low)
    assert (len(result.cells[1].output.encode()), result.cells[1].truncated) == (LIMITS.kept_output_bytes, True)
    assert (result.cells[2].output, result.cells[3].output) == ("err\n", "low")
    assert not result.cells[3].truncated


def test_several_culprits_are_left_out_one_by_one_and_no_more_than_the_limit(server):
    bad = "import os\nos._exit(1)"
    result = run(server, bad, "x = 1", bad, bad)
    assert outcomes(result) == ["ok", "killed", "ok", "killed", "killed"]
    assert (result.answers[0].value, result.attempts) == ({"value": 42}, 4)
    result = run(server, bad, bad, bad, bad, bad)
    assert outcomes(result) == ["ok", "killed", "killed", "killed", "killed", "not run"]
    assert (result.answers[0].value, result.answers[0].reason, result.flags) == (None, "retries", ("killed", "retries"))


def test_a_request_that_ends_the_process_costs_only_itself(server):
    functions = (
        "import os\ndef leave(): os._exit(0)\ndef hang():\n    while True: pass\ndef fail(): raise ValueError('no')\n"
    )
    functions += "def stubborn():\n    while True:\n        try: hang()\n        except BaseException: pass"
    calls = ["double", "leave", "double", "hang", "fail", "stubborn", "double"]
    requests = [{"call": name, "args": [i] if name == "double" else []} for i, name in enumerate(calls)]
    result = run(server, functions, requests=requests)
    assert [answer.reason for answer in result.answers] == ["", "killed", "", "timeout", "error", "timeout", ""]
    assert [answer.value for answer in result.answers if not answer.reason] == [
        {"value": 0},
        {"value": 4},
        {"value": 12},
    ]
    assert "ValueError: no" == result.answers[4].message
    assert (result.attempts, result.flags) == (3, ("killed", "timeout"))


@pytest.mark.parametrize(
    "request_, reason",
    [
        ({"deep": 10}, ""),
        ({"deep": 200}, "garbage"),
        ({"long": 100_000}, ""),
        ({"long": 2 << 20}, "output"),
        ({"wide": 160_000}, "garbage"),
        ({"no json": 1}, "error"),
        ({"no dict": 1}, "garbage"),
        ({"call": "not_defined"}, "error"),
    ],
)
def test_answers_are_limited_in_form_and_size(request_, reason, monkeypatch, server):
    monkeypatch.setattr(forkserver, "MAX_STRUCTURE", 300_000)
    result = run(server, requests=[request_, ASK])
    assert result.answers[0].reason == reason
    assert (result.answers[0].value is None) == bool(reason)
    assert result.answers[1].value == {"value": 42}


def test_lines_that_are_no_json_objects_are_none_and_raise_nothing():
    rng = random.Random(0)
    huge = b"9" * 10**5
    for line in [b"", b"null", b"[]", b"{", b'"x"', b"{" * 10**6, b'{"a":' * 10**5, huge, b'{"a": ' + huge + b"}"]:
        assert forkserver._parse(line) is None
    for _ in range(2000):
        line = bytearray(b'{"token": "t", "error": ["E", "m"], "answer": {"a": [1, 2.5, NaN, null]}}')
        for _ in range(rng.randrange(1, 4)):
            line[rng.randrange(len(line))] = rng.randrange(256)
        reply = forkserver._parse(bytes(line))
        assert reply is None or type(reply) is dict
        assert forkserver._is_reply(reply, {"t"}) in (True, False)


def test_replies_of_another_form_are_refused():
    good = {"token": "t", "error": None}
    assert forkserver._is_reply(good, {"t"})
    for bad in ({"token": "u"}, {"error": "text"}, {"error": ["one"]}, {"error": [1, 2]}, {"answer": 1}, {"points": 3}):
        assert not forkserver._is_reply(good | bad, {"t"})
    assert not forkserver._is_reply({}, {"t"})


def test_the_seed_makes_a_regrade_repeat(server):
    cell = "import random\nprint(random.random(), hash('x'), {'b', 'a', 'c'})"
    first, second, other = (run(server, cell, seed=seed).cells[1].output for seed in (1, 1, 2))
    assert first == second != other


def test_numpy_is_reseeded():
    with ForkServer(preload=["numpy"], limits=LIMITS, answer=None, packages=()) as server:
        cell = "import numpy as np\nprint(np.random.rand())"
        outputs = [server.run(Job(cells=[("a", cell)], seed=seed)).cells[0].output for seed in (1, 1, 2)]
    assert outputs[0] == outputs[1] != outputs[2]


def test_the_whole_job_has_a_time_limit():
    limits = Limits(cell_seconds=1, grace_seconds=0.2, job_seconds=2.5)
    loop = "while True: pass"
    with ForkServer(preload=(), limits=limits, answer="sandbox_answers.answer", packages=[ANSWERS]) as server:
        result = run(server, loop, loop, loop, loop)
    assert result.seconds < 4
    assert outcomes(result)[-1] == "not run"
    assert (result.answers[0].reason, result.flags) == ("timeout", ("timeout",))
    assert "the whole submission took longer" in result.reason


def test_threads_may_share_a_server(server):
    def job(i):
        source = "import os\nos._exit(0)" if i % 3 == 0 else f"print({i})"
        return run(server, source, requests=[{"call": "double", "args": [i]}])

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(job, range(24)))
    for i, result in enumerate(results):
        assert result.answers[0].value == {"value": 2 * i}
        assert result.cells[1].output == ("" if i % 3 == 0 else f"{i}\n")


def test_no_process_file_descriptor_or_group_is_left_behind():
    before, descriptors = [], os.listdir("/proc/self/fd")
    while before != (before := sandbox.descendants(os.getpid())):
        time.sleep(0.5)  # what earlier tests ended may still be dying

    def settled(expected):
        deadline = time.monotonic() + 10  # the dead wait a moment for their parent
        while sandbox.descendants(os.getpid()) != expected and time.monotonic() < deadline:
            time.sleep(0.01)
        return sandbox.descendants(os.getpid()) == expected

    with ForkServer(preload=(), limits=LIMITS, answer="sandbox_answers.answer", packages=[ANSWERS]) as server:
        run(server, "pass")
        deadline = time.monotonic() + 10
        while len(idle := sandbox.descendants(os.getpid())) > len(before) + 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(idle) == len(before) + 4  # bubblewrap, its init, the pid namespace's maker, the server
        run(server, CONTAINED["a daemon"], "import os\nos._exit(0)", CONTAINED["a thread left running"])
        assert settled(idle)
    assert settled(before)
    assert os.listdir("/proc/self/fd") == descriptors
    assert [path for parent, _ in sandbox._hierarchies() for path in parent.glob(f"underhood-{os.getpid()}-*")] == []


def test_a_killed_server_is_replaced_and_every_job_is_done_once():
    """Any process of the server's tree is killed at random moments while two threads work."""
    rng, stop = random.Random(1), threading.Event()
    kills = 0
    with ForkServer(preload=(), limits=LIMITS, answer="sandbox_answers.answer", packages=[ANSWERS]) as server:

        def kill():
            nonlocal kills
            killed = 0  # the generation; each is left alone until its start is over
            while not stop.wait(rng.uniform(0.1, 0.5)):
                process = server._process
                if process is None or server._generation == killed:
                    continue
                victims = sandbox.descendants(process.pid)[:4]
                killed = server._generation
                try:
                    os.kill(rng.choice(victims), signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            with ThreadPoolExecutor(2) as pool:
                ask = [{"call": "double", "args": [3]}]
                results = list(
                    pool.map(lambda _: run(server, "import time\ntime.sleep(0.05)", requests=ask), range(60))
                )
        finally:
            stop.set()
            killer.join()
        assert [result.answers[0].value for result in results] == [{"value": 6}] * 60
        assert {result.flags for result in results} == {()}
        assert kills >= 3
        assert server._generation >= kills


def test_a_killed_grader_takes_everything_with_it():
    mark = f"underhood-orphan-{os.getpid()}"
    code = (
        "from autograder.forkserver import ForkServer, Job\n"
        "with ForkServer(preload=(), answer=None, packages=()) as server:\n"
        "    print('started', flush=True)\n"
        f"    server.run(Job(cells=[('a', '!sleep 50 # {mark}; true')]))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
    assert process.stdout.readline() == b"started\n"
    deadline = time.monotonic() + 10
    while not (alive := _marked(mark, "sleep")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 10
    while _marked(mark, "sleep") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _marked(mark, "sleep")


def _marked(mark: str, program: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if mark in line and "ForkServer" not in line and program in line:
            found.append(line)
    return found


def test_what_keeps_a_server_from_starting_is_told():
    with pytest.raises(ServerError, match="ModuleNotFoundError.*not_there"):
        ForkServer(preload=["not_there"], answer=None, packages=()).start()
    with pytest.raises(ServerError, match="AttributeError.*nothing"):
        ForkServer(preload=(), answer="sandbox_answers.nothing", packages=[ANSWERS]).start()


def test_a_preload_that_starts_a_thread_is_refused(tmp_path):
    source = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    (tmp_path / "threaded.py").write_text(source)
    with pytest.raises(ServerError, match="2 threads after the imports"):
        ForkServer(preload=["threaded"], answer=None, packages=[tmp_path / "threaded.py"]).start()


def test_a_closed_server_says_so(server):
    other = ForkServer(preload=(), answer=None, packages=())
    with pytest.raises(ServerError, match="closed"):
        other.run(Job(cells=[("a", "1")]))


def test_without_walls_the_answers_and_retries_are_the_same():
    with ForkServer(
        preload=(), limits=LIMITS, answer="sandbox_answers.answer", packages=[ANSWERS], walls=False
    ) as server:
        result = run(server, "import os\nos._exit(0)", "while True: pass", "print('after')")
    assert outcomes(result) == ["ok", "killed", "timeout", "ok"]
    assert result.answers[0].value == {"value": 42}


def test_requests_travel_as_json(server):
    echo = "def echo(x): return x"
    value = {"a": [1, 2.5, None, True, "é\n\u2028"], "b": {"c": -0.0}}
    result = run(server, echo, requests=[{"call": "echo", "args": [value]}])
    assert json.dumps(result.answers[0].value["value"]) == json.dumps(value)


@pytest.mark.slow
def test_the_full_preload_is_warm_shares_its_memory_and_trains_in_the_child():
    train = (
        "import torch, numpy as np, matplotlib.pyplot as plt\n%matplotlib inline\ntorch.set_num_threads(2)\n"
        "p = torch.nn.Parameter(torch.rand(300, 300))\noptimizer = torch.optim.Adam([p])\n"
        "for _ in range(3):\n    optimizer.zero_grad(); (p @ p).sum().backward(); optimizer.step()\n"
        "from torch.utils.data import DataLoader\n"
        "print(len(list(DataLoader(range(8), batch_size=4, num_workers=2))), float(torch.rand(1)))\n"
        "plt.plot([1, 2]); plt.show()"
    )
    with ForkServer(answer=None) as server:
        child = server._child()
        try:
            rollup = Path(f"/proc/{child._pid}/smaps_rollup").read_text().splitlines()
            private = sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
            assert private < 64 << 10  # KiB
        finally:
            child.close()
        first, second, other = (server.run(Job(cells=[("a", train)], seed=seed)).cells[0] for seed in (1, 1, 2))
        assert first.outcome == "ok", first
        assert first.output.startswith("2 0.")
        assert first.output == second.output != other.output
        assert first.seconds < 5
