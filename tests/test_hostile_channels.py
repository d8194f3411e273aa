"""The other two ways in: a Jupyter kernel in the sandbox, a Dask worker; and the pages that somebody reads.

What is tried here is not in `hostile.py`, which has the grader's own way: forged and endless questions to the judge over a
kernel's channel, forged Jupyter messages, sockets used in other ways than they were made for, a hand-in that does not travel
well, and outputs that are hard to show.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import functools
import gc
import itertools
import json
import os
import pickle
import random
import re
import shutil
import signal
import socket
import string
import sys
import threading
import time
import urllib.request
import zlib
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import test_cluster
import toy
from browser import browser, private, serve
from jupyter_client.manager import AsyncKernelManager, KernelManager
from nbclient.exceptions import DeadKernelError
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from nbformat import NotebookNode, v4
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.server_extensions.formgrader.handlers import template_path
from test_harmless import Scores
from test_provisioner import execute, kernel, kernels, printed

from autograder import exercises, feedback, gradebook, intake, judge, provisioner, run, sandbox
from autograder.forkserver import ForkServer, Job, _Child, _End
from autograder.harmless import TEMPLATES, Harmless, cleaned, harmless
from autograder.sandbox import Limits
from underhood.exercise import Seen
from underhood.probes import seen_to_json

__all__ = ["kernel", "kernels"]  # fixtures
CHAPTER = "01_basics"


@pytest.fixture(autouse=True)
def nothing_of_a_client_is_left():
    """nbclient leaves tasks that say their errors when they are collected: here, and not while Python 3.11 parses something,
    which fails when the words of an error are parsed in the midst of it.
    """
    yield
    gc.collect()


linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces")
# Code that finds the channel to the grader or the judge: the one socket that has a peer and no name.
CHANNEL = """
import os, socket, sys, threading, time
def channel():
    for number in range(3, 60):
        try:
            found = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if found.family == socket.AF_UNIX and not listens and not found.getsockname() and not found.getpeername():
            return found
raw = channel()
raw.setblocking(True)
"""
# Code that says whatever it likes to Jupyter's client, rightly signed.
SAY = """
k = get_ipython().kernel
def say(kind, content):
    k.session.send(k.iopub_socket, kind, content, parent=k.get_parent(), ident=kind.encode())
"""


# --- the kernel ---------------------------------------------------------------------------------------------------------


def ended(*cells, **settings):
    """Seconds until a kernel that does not end by itself is dead for Jupyter."""
    begin = time.monotonic()
    with pytest.raises(DeadKernelError):
        execute(*cells, timeout=None, **settings)
    return time.monotonic() - begin


def pair():
    ours, theirs = socket.socketpair()
    return _Child(ours, os.pipe()[0], Limits(), 0, walls=False), theirs


def test_a_kernel_that_is_late_to_read_its_answer_lives():
    child, theirs = pair()
    received = bytearray()

    def read():
        time.sleep(0.3)
        while not received.endswith(b"\n"):
            received.extend(theirs.recv(1 << 16))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    child.tell({"request": "x" * 1_000_000})
    reader.join(5)
    assert len(json.loads(received)["request"]) == 1_000_000
    theirs.close()
    child.close()


def test_questions_that_wait_do_not_lift_the_limit_of_a_kernels_life():
    child, theirs = pair()
    theirs.sendall(b'{"exercise":"pick"}\n' * 2000)

    def slowly(question, seconds):
        time.sleep(0.05)
        return {"error": ""}

    begin = time.monotonic()
    assert child.serve(slowly, 0.5) == "timeout"
    assert time.monotonic() - begin < 10  # not the 100 s of all questions
    theirs.close()
    child.close()


@linux
@pytest.mark.slow
def test_a_judge_that_stalls_holds_up_neither_the_limits_nor_the_end_of_a_kernel(kernels):
    provisioner.close()
    provisioner.install({"job_seconds": 3}, str(kernels))

    def stall():
        toy.until(lambda: judges() != [])
        os.kill(judges()[0], signal.SIGSTOP)

    threading.Thread(target=stall, daemon=True).start()
    over = threading.Timer(25, lambda: [os.kill(pid, signal.SIGKILL) for pid in judges()])
    over.start()
    assert ended(CHANNEL + "raw.sendall(b'{}\\n')\ntime.sleep(60)") < 15
    begin = time.monotonic()
    provisioner.close()
    over.cancel()
    assert time.monotonic() - begin < 8 and judges() == []


def judges():
    """The processes of this one's judges."""
    found = []
    for pid in sandbox.descendants(os.getpid())[1:]:
        with contextlib.suppress(OSError):
            if b"autograder.provisioner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


FORGED = (
    {},
    {"exercise": None},
    {"exercise": {"pick": ["pick"] * 1000}},
    {"exercise": 10**4000},
    {"exercise": "../../solutions/01_basics/exercises"},
    {"exercise": "pick\n"},
    {"exercise": "pick", "answer": None},
    {"exercise": "pick", "answer": [1]},
    {"exercise": "pick", "answer": {}},
    {"exercise": "pick", "answer": {"seen": {"length": 5}}},
    {"exercise": "pick", "answer": {"seen": [[]] * 50}},
    {"exercise": "pick", "answer": {"seen": [{"value": float("nan")}] * 50, "notes": [None, {}, "x\ud800"]}},
    {"exercise": "pick", "answer": {"seen": [{"value": {"shape": [2**62, 2], "numbers": "<f8", "packed": ""}}] * 50}},
    {"exercise": "pick", "answer": {"seen": [], "forbidden": {"a": [1]}, "notes": "text"}},
    {"exercise": "pick", "seed": 1, "request": {}, "verdict": {}, "token": [[]]},
)


@pytest.mark.parametrize("question", FORGED, ids=range(len(FORGED)))
def test_a_forged_question_gets_an_answer_that_earns_and_tells_nothing(question):
    said = json.loads(json.dumps(provisioner.answer(json.loads(json.dumps(question)))))
    assert len(said) == 1 and said.keys() <= {"error", "request", "verdict"}
    if "verdict" in said:
        assert all(part["outcome"] != "correct" for part in said["verdict"]["results"])
    if "request" in said:
        keys = {key for case in said["request"]["cases"] for key in case}
        assert said["request"].keys() == {"exercise", "forbids", "cases"}
        assert keys == {"about", "part", "args", "kwargs"}
        assert not any(case["about"] or case["part"] for case in said["request"]["cases"])


DTYPES = "O V8 U4 M8[ns] <c16 S5 ? e g <f3 5i1 (2,)f4 i1,i2 >f8 m8[Y] f4,O P".split()


def test_no_array_of_any_kind_ends_the_judge():
    """It would be started again, and asked the same, while an honest kernel waits."""
    draw = random.Random(0)
    for _ in range(300):
        packed = zlib.compress(draw.choice([b"", bytes(8), b"\xff" * 64]))
        value = {
            draw.choice(["array", "tensor"]): draw.choice(["float64", "object", "bfloat16", "quint8", ""]),
            "shape": draw.choice([[], [1], [2, 4], [2**31, 0], [-1], [1] * 64, [True], [0, 2**62]]),
            "numbers": draw.choice(DTYPES),
            "packed": base64.b64encode(packed).decode(),
        }
        value = draw.choice(
            [value, {"tuple": [value]}, {"dict": [[value, value]]}, {"build": "net", "with": {"a": value}}]
        )
        name = draw.choice([exercise.name for exercise in exercises(CHAPTER)])
        one = {"value": value, "message": "", "raised": draw.choice([[], "ab"]), "changed": [], "printed": ""}
        answer = {"seen": [one] * len(judge.questions(name, provisioner.SEED))}
        said = json.loads(json.dumps(provisioner.answer({"exercise": name, "answer": answer})))
        assert all(part["outcome"] != "correct" for part in said["verdict"]["results"])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[1]\n", "garbage"),
        (b"{\n", "garbage"),
        (b"\xff\n", "garbage"),
        (b'{"a":' + b"[" * 60 + b"]" * 60 + b"}\n", "garbage"),
        (b'{"a":' + b"[" * 100_000 + b"\n", "garbage"),
        (b'{"token":' + b"9" * 5000 + b"}\n", "garbage"),
        (b'{"a":[' + b"{}," * 1_000_000 + b"{}]}\n", "garbage"),
        (b"", "killed"),
    ],
    ids=("a list", "half", "no text", "deep", "deeper", "a long number", "many", "hung up"),
)
def test_a_line_that_is_no_question_ends_the_kernel(line, reason):
    child, theirs = pair()

    def send():
        theirs.sendall(line)
        theirs.close()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    assert child.serve(lambda question, seconds: pytest.fail("it was answered"), 20) == reason
    child.close()
    sender.join(5)


def test_a_token_of_any_kind_comes_back_as_a_number_or_not_at_all():
    class Silent:
        def ask(self, question, seconds):
            return {"error": ""}

    for token in ([[]] * 9, {"a": 1}, "1", True, 1.0, None):
        assert provisioner._reply(Silent(), {"token": token}, 1)["token"] is None
    assert provisioner._reply(Silent(), {"token": 10**4000}, 1)["token"] == 10**4000


LOOK = """
import os
print(sorted(name for name in os.environ if name.startswith("NBGRADER")), "secret" in str(os.environ))
"""
# The kernel gives a process descriptor of whoever made a socket or connected to it (SO_PEERPIDFD, since Linux 6.5).
PEER = """
import ctypes, fcntl, signal, socket, struct
library, said = ctypes.CDLL(None, use_errno=True), set()
for number in range(3, 60):
    try:
        peer = struct.unpack("i", socket.socket(fileno=os.dup(number)).getsockopt(socket.SOL_SOCKET, 77, 4))[0]
        assert "Pid:\t0" in open(f"/proc/self/fdinfo/{peer}").read()  # somebody outside, not this process itself
    except (OSError, AssertionError):
        continue
    for name, attempt in (
        ("signal", lambda: signal.pidfd_send_signal(peer, 0)),
        ("take a file", lambda: library.syscall(438, peer, 1, 0) + 1 or 1 / 0),
        ("its namespaces", lambda: library.setns(peer, 0x40000000) + 1 or 1 / 0),
        ("its network", lambda: library.setns(fcntl.ioctl(peer, 0xFF04), 0) + 1 or 1 / 0),
    ):
        try:
            attempt()
            said.add(name)
        except (OSError, ZeroDivisionError):
            pass
print(said)
"""


@linux
@pytest.mark.slow
def test_nothing_of_the_client_is_reached_by_its_environment_or_its_sockets(kernel, monkeypatch):
    monkeypatch.setenv("NBGRADER_DB_URL", "postgresql://grader:secret@host/gradebook")
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    seen, peer = execute(LOOK, CHANNEL + PEER)
    assert printed(seen) == "['NBGRADER_EXECUTION'] False\n"
    assert printed(peer) == "set()\n", peer.outputs


# Replies to somebody else's request, without end: nbclient does not look at its clock while there is a message to read. Where
# the flood is too slow to fill the queue, nbclient's own timeout ends the cell.
FLOOD = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
k = get_ipython().kernel
other, theirs = {"header": {"msg_id": "other"}}, k._parent_ident["shell"]
def flood():
    while True:
        k.session.send(k.shell_stream.socket, "execute_reply", {"status": "ok"}, parent=other, ident=theirs)
k.shell_stream.io_loop.add_callback(flood)
time.sleep(60)
"""


@linux
@pytest.mark.slow
def test_the_limit_of_a_kernel_ends_what_floods_its_client(kernels):
    provisioner.install({"job_seconds": 4}, str(kernels))
    begin = time.monotonic()
    with contextlib.suppress(DeadKernelError):
        execute(
            FLOOD, timeout=2, interrupt_on_timeout=True, error_on_timeout={"ename": "", "evalue": "", "traceback": []}
        )
    assert time.monotonic() - begin < 15


MESSAGES = {
    "data that is a list": SAY + "say('display_data', {'data': [1], 'metadata': {}})",
    "a depth without end": SAY + "x = []\nfor i in range(700): x = [x]\n"
    "say('display_data', {'data': {'application/json': x}, 'metadata': {}})",
    "no content": SAY + "say('stream', None); say('status', {}); say('comm_open', {}); say('clear_output', [])",
    "not signed": "get_ipython().kernel.session.key = b'other'; print(1)",
    "no frames": "s = get_ipython().kernel.iopub_socket\ns.send_multipart([b'x']); s.send_multipart([b'<IDS|MSG>'] * 9)",
    "no JSON": "k = get_ipython().kernel\nparts = [b'\\xff{', b'{}', b'{}', b'{}']\n"
    "k.iopub_socket.send_multipart([b'<IDS|MSG>', k.session.sign(parts), *parts])",
    "more than all points": SAY + "say('execute_result', {'data': {'text/plain': 'inf'}, 'metadata': {}, "
    "'execution_count': '<script>'})",
    "lone surrogates": SAY + "say('stream', {'name': 'stdout', 'text': '\\ud800'}); print('\\udfff')",
    "sockets that close": CHANNEL + "for number in range(3, 60):\n    try: os.close(number)\n    except OSError: pass",
    "a comm of no name": SAY
    + "say('comm_open', {'comm_id': [1], 'target_name': 'jupyter.widget', 'data': {'state': {}}})",
    "somebody else's outputs": SAY
    + "state = {'_model_module': '@jupyter-widgets/output', '_model_name': 'OutputModel', "
    "'msg_id': k.get_parent()['header']['msg_id'], 'outputs': 5}\n"
    "say('comm_open', {'comm_id': 'a', 'target_name': 'jupyter.widget', 'data': {'state': state}})\n"
    "say('comm_msg', {'comm_id': 'a', 'data': {'method': 'update', 'state': state}})\nprint('kept')",
    "a display of no name": SAY + "say('display_data', {'data': {}, 'metadata': {}, 'transient': {'display_id': [1]}})",
    "a transient number": SAY + "say('display_data', {'data': {}, 'metadata': {}, 'transient': 5})",
    "an error of no words": SAY + "say('error', {'ename': [1], 'evalue': {}, 'traceback': 5})",
    "a count that is a list": SAY + "say('execute_input', {'execution_count': {'a': [1]}, 'code': ''})",
    "no reply": SAY + "k.session.send(k.shell_stream.socket, 'execute_reply', None, parent=k.get_parent(), "
    "ident=k._parent_ident['shell'])",
    "a password, please": SAY + "k.session.send(k.stdin_socket, 'input_request', {'prompt': 'x', 'password': True}, "
    "parent=k.get_parent(), ident=k._parent_ident['shell'])",
    "its end in a flood": "import os, threading, time\nthreading.Thread(target=lambda: [print(i) for i in range(10**6)])"
    ".start(); time.sleep(0.3); os._exit(1)",
    "its number again": "import os\nfor i in range(3):\n    if os.fork() == 0: os.setsid(); os.fork()",
}


@linux
@pytest.mark.slow
def test_no_message_ends_the_client_or_reaches_the_next_kernel(kernels):
    provisioner.install({"job_seconds": 20}, str(kernels))
    for name, source in MESSAGES.items():
        with contextlib.suppress(Exception):  # of nbclient: nbgrader writes no grade then and takes the next student
            execute(source, "print(1)", timeout=3)
        gc.collect()
        assert len(list(Path(provisioner._place()).glob(f"{provisioner.NAME}-{os.getpid()}-*"))) == 0, name
    (honest,) = execute("print('honest')")
    assert printed(honest) == "honest\n"


@contextlib.contextmanager
def living():
    """A kernel with a client."""
    manager = KernelManager(kernel_name=provisioner.NAME)
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@linux
@pytest.mark.slow
def test_nobody_is_signalled_in_place_of_a_kernel_that_has_ended(kernel, monkeypatch):
    signals = []
    with living() as (manager, client):
        child = manager.provisioner._child
        number = child._pid
        client.execute("import os; os._exit(0)")
        toy.until(lambda: not manager.is_alive(), 20)
        # The number is free: whoever is born next may have it.
        real = os.kill
        monkeypatch.setattr(os, "kill", lambda pid, what: signals.append(pid) if pid == number else real(pid, what))
        child.interrupt()
        manager.shutdown_kernel(now=True)
    assert signals == []


@linux
@pytest.mark.slow
def test_an_interrupted_check_costs_neither_the_kernel_nor_what_it_holds(kernel):
    asked = "check('requantize', lambda *given: None, hidden=True)"  # whose inputs are long
    with living() as (manager, client):
        client.execute_interactive("from underhood import check; state = 7", timeout=60)
        for wait in (0.7, 0.01, 0.02):
            client.execute(asked)
            time.sleep(wait)
            manager.interrupt_kernel()
            client.get_shell_msg(timeout=30)
        time.sleep(1)
        shown = []
        client.execute_interactive(f"print(state)\n{asked}", timeout=30, output_hook=shown.append)
        texts = [str(message["content"]) for message in shown]
        assert any("'7\\n'" in text for text in texts) and any("0 of" in text for text in texts), texts


@linux
@pytest.mark.slow
def test_kernels_that_are_started_restarted_cancelled_and_ended_at_once_leave_nothing(kernel):
    async def one(number):
        manager = AsyncKernelManager(kernel_name=provisioner.NAME)
        if number % 3:
            await manager.start_kernel()
        else:
            starting = asyncio.create_task(manager.start_kernel())
            await asyncio.sleep(0.02 * number)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
        if number % 3 == 1:
            await manager.restart_kernel(now=True)
        await manager.shutdown_kernel(now=True)

    async def many():
        await one(1)
        await asyncio.wait_for(asyncio.gather(*map(one, range(9))), 60)

    asyncio.run(many())
    toy.until(lambda: sum(warm._kernels for warm in provisioner._warm.values()) == 0, 20)
    assert list(Path(provisioner._place()).glob(f"{provisioner.NAME}-{os.getpid()}-*")) == []


def judges_run(program, monkeypatch):
    """Have each new judge's process run this program in place of the judge."""
    real = provisioner.subprocess.Popen
    monkeypatch.setattr(
        provisioner.subprocess, "Popen", lambda command, **given: real([sys.executable, "-c", program], **given)
    )


def test_a_late_answer_of_the_judge_costs_the_next_kernel_nothing(monkeypatch):
    program = "import sys, time; time.sleep(0.3)\nfor line in sys.stdin: print('{\"request\": 1}', flush=True)"
    judges_run(program, monkeypatch)
    stalled = provisioner.Judge()
    for _ in range(3):
        assert "in time" in stalled.ask({"exercise": "pick"}, 0.0)["error"]
        assert stalled.ask({"exercise": "pick"}, 20) == {"request": 1}
    stalled.close()


def test_whoever_asks_without_end_leaves_the_judge_to_others(monkeypatch):
    program = "import sys, time\nfor line in sys.stdin: time.sleep(0.1); print('{\"request\": 1}', flush=True)"
    judges_run(program, monkeypatch)
    judge_of_all = provisioner.Judge()
    child, theirs = pair()

    def endless():
        with contextlib.suppress(OSError):
            while True:
                theirs.sendall(b'{"exercise":"pick"}\n' * 100)

    def read():
        with contextlib.suppress(OSError):
            while theirs.recv(1 << 16):
                pass

    reply = functools.partial(provisioner._reply, judge_of_all)
    jobs = [threading.Thread(target=job, daemon=True) for job in (endless, read, lambda: child.serve(reply, 3))]
    for job in jobs:
        job.start()
    time.sleep(0.5)
    for _ in range(5):
        begin = time.monotonic()
        assert judge_of_all.ask({"exercise": "pick"}, 20) == {"request": 1}
        assert time.monotonic() - begin < 10
    jobs[-1].join(20)
    for close in (theirs.close, judge_of_all.close, child.close):
        close()


def test_a_judge_that_is_closed_stays_closed_for_those_who_wait(monkeypatch):
    program = "import sys, time\nfor line in sys.stdin: time.sleep(0.3); print('{}', flush=True)"
    real, started = provisioner.subprocess.Popen, []

    def start(command, **given):
        started.append(real([sys.executable, "-c", program], **given))
        return started[-1]

    monkeypatch.setattr(provisioner.subprocess, "Popen", start)
    closed = provisioner.Judge()
    waiting = [threading.Thread(target=closed.ask, args=({"exercise": "pick"}, 20)) for _ in range(4)]
    for one in waiting:
        one.start()
    toy.until(lambda: started != [])
    closed.close()
    for one in waiting:
        one.join(20)
    assert all(process.poll() is not None for process in started)


SHADOWS = ("asyncio.py", "json.py", "numpy.py", "autograder/__init__.py")


def test_the_judge_runs_nothing_out_of_the_folder_that_it_is_started_in(tmp_path, monkeypatch):
    """`nbgrader validate` goes into the notebook's folder, where the learner's other files are too."""
    for name in SHADOWS:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    asked = provisioner.Judge()
    said = asked.ask({"exercise": exercises(CHAPTER)[0].name}, 30)
    asked.close()
    assert not (tmp_path / "ran").exists()
    assert "request" in said


CROWD = """
import os, time
for i in range(12):
    if os.fork() == 0:
        end = time.time() + 4
        while time.time() < end: pass
        os._exit(0)
time.sleep(5)
"""


@linux
@pytest.mark.slow
def test_a_kernels_processes_stand_back(kernel):
    """Or the server that shows its notebook gets a thirteenth of a processor."""
    with living() as (manager, client):
        client.execute(CROWD)
        first = manager.provisioner._child._pid
        toy.until(lambda: len(sandbox.descendants(first)) == 13, 10)
        others = sandbox.descendants(first)[1:]
        toy.until(lambda: all(os.getpriority(os.PRIO_PROCESS, pid) == 19 for pid in others), 3)


# --- nbgrader's own commands, all in one run ------------------------------------------------------------------------------

REPLY = (
    SAY
    + "k.session.send(k.shell_stream.socket, 'execute_reply', {}, parent=k.get_parent(), ident=k._parent_ident['shell'])"
)
# A first cell, and the points of the right answers after it; None: no grade is written.
CLASS = {
    "b-early": (SAY + "say('status', {'execution_state': 'idle'})", 2),
    "b-error": (REPLY.format("{'status': 'error', 'ename': {'a': 1}, 'evalue': [1], 'traceback': 5}"), None),
    "b-half": (REPLY.format("{'status': 'error'}"), None),
    "b-number": (SAY + "say('execute_input', {'execution_count': '<script>', 'code': ''})", None),
    "b-stream": (
        SAY + "say('stream', {'name': 'stdout', 'text': 'a', 'transient': {'display_id': 'q'}})\n"
        "say('update_display_data', {'data': {'text/html': '<script>bait'}, 'metadata': {}, "
        "'transient': {'display_id': 'q'}})", 2,
    ),
    "b-time": ("timestamp", None),
    "c-honest": ("1", 2),
}  # fmt: skip


@linux
@pytest.mark.slow
def test_nbgrader_grades_honest_notebooks_between_hostile_ones(repository, kernels, tmp_path, monkeypatch):
    provisioner.install({}, str(kernels))
    monkeypatch.setenv("UNDERHOOD_SANDBOX", "1")
    toy.hand_in(repository, tmp_path / "class", 4)
    right = nbformat.read(tmp_path / "class/student-0003" / CHAPTER / "basics.ipynb", 4)
    folder = repository / "autograder/class"
    empty = nbformat.read(repository / "course" / CHAPTER / "basics.ipynb", 4)
    told = re.findall(r'skip_cells_with_tag = "(.*)"', (repository / "autograder/nbgrader_config.py").read_text())
    for cell in empty.cells:
        cell.metadata["tags"] = ["skip-execution", *told]  # what is not run shows no error
    (folder / "submitted/b-tags" / CHAPTER).mkdir(parents=True)
    nbformat.write(empty, folder / "submitted/b-tags" / CHAPTER / "basics.ipynb")
    for student, (opening, _) in CLASS.items():
        path = folder / "submitted" / student / CHAPTER / "basics.ipynb"
        path.parent.mkdir(parents=True)
        notebook = nbformat.from_dict(right)
        notebook.cells.insert(1, v4.new_code_cell(opening))
        nbformat.write(notebook, path)
    (folder / "submitted/b-time" / CHAPTER / "timestamp.txt").write_text("9" * 4000)
    nbgrader = ["-c", "from nbgrader.apps.nbgraderapp import main; main()"]
    done = toy.program(repository, *nbgrader, "generate_assignment", CHAPTER, "--force", "--create")
    assert done.returncode == 0, done.stderr[-3000:]
    done = toy.program(repository, *nbgrader, "autograde", CHAPTER)
    failed = set(re.findall(r"processing assignment '\S+' for student '(\S+)'", done.stderr))
    assert failed == {student for student, (_, points) in CLASS.items() if points is None}, done.stderr[-3000:]
    done = toy.program(repository, *nbgrader, "generate_feedback", CHAPTER)
    assert done.returncode == 0, done.stderr[-3000:]
    with gradebook.opened(f"sqlite:///{folder}/gradebook.db") as book:
        assert book.find_submission(CHAPTER, "b-tags").score == 0
        for student, (_, points) in CLASS.items():
            if points is not None:
                assert book.find_submission(CHAPTER, student).score == points, student
                page = (folder / "feedback" / student / CHAPTER / "basics.html").read_text()
                assert "<script>bait" not in page
    shutil.rmtree(folder)


# --- the grader's own channel ---------------------------------------------------------------------------------------------

# What a socket can do beside carrying lines: source, and how the cell and the honest one after it ended ("ok or killed": a
# read that does not wait finds the next cell, or nothing).
SOCKETS = {
    "a byte out of band": ("raw.send(b'x', socket.MSG_OOB); time.sleep(0.5)", "ok", "ok"),
    "bytes out of band": (
        "raw.send(b'xy', socket.MSG_OOB); raw.send(b'x', socket.MSG_OOB); time.sleep(0.2)", "garbage", "ok",
    ),
    "it hears nothing more": ("raw.shutdown(socket.SHUT_RD)", "ok", "killed"),
    "it says nothing more": ("raw.shutdown(socket.SHUT_WR)", "killed", "ok"),
    "descriptors": ("for i in range(40): socket.send_fds(raw, [b' '], [raw.fileno()] * 5)", "ok", "ok"),
    "too many descriptors": ("while True: socket.send_fds(raw, [b' '], [0] * 50)", "error", "ok"),
    "small buffers": (
        "raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1); raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)",
        "ok", "ok",
    ),
    "an offset for peeking": ("raw.setsockopt(socket.SOL_SOCKET, 42, 1)", "ok", "ok"),
    "packets in the pipe": (
        "import fcntl\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)\nfor i in range(99): os.write(1, b'x')",
        "ok", "ok",
    ),
    "somebody to tell": (
        "import fcntl\nfor number in (raw.fileno(), 1, 2): fcntl.fcntl(number, fcntl.F_SETOWN, 1); "
        "fcntl.fcntl(number, fcntl.F_SETFL, os.O_ASYNC)", "ok", "ok",
    ),
    "it does not wait": ("os.set_blocking(raw.fileno(), False)", "ok", "ok or killed"),
}  # fmt: skip


@linux
@pytest.mark.slow
def test_a_socket_used_in_other_ways_costs_its_submission_only():
    begin, files = time.process_time(), len(os.listdir("/proc/self/fd"))
    ends = {}
    with ForkServer(preload=["IPython"], limits=Limits(cell_seconds=3), answer=None) as server:
        for name, (source, *_) in SOCKETS.items():
            result = server.run(Job(cells=[("attack", CHANNEL + source), ("after", "print('honest')")]))
            ends[name] = tuple(cell.outcome for cell in result.cells)
    for name, (_, attack, after) in SOCKETS.items():
        assert ends[name][0] == attack and ends[name][1] in after.split(" or "), (name, ends[name])
    assert len(os.listdir("/proc/self/fd")) == files
    assert time.process_time() - begin < 3  # no attack has the grader look again and again


# One character beyond U+FFFF: Python holds the whole text with four bytes a character.
WIDE = """
import json, sys
asked = set()
def channel():
    frame = sys._getframe()
    while frame:
        if "message" in frame.f_locals and "connection" in frame.f_locals:
            return frame.f_locals["connection"], frame.f_locals["message"]
        frame = frame.f_back
def wide():
    connection, message = channel()
    reply = {"token": message["token"], "error": None, "answer": {"value": "\\U0001f600" + "x" * 32_000_000}}
    connection.sendall(json.dumps(reply, ensure_ascii=False).encode() + b"\\n")
"""


@linux
@pytest.mark.slow
def test_answers_of_the_largest_size_do_not_fill_the_graders_memory():
    """A worker of a cluster is killed for it, and with it the run; here, so is whoever grades on a small machine."""
    answers = Path(__file__).with_name("sandbox_answers.py")
    requests = [{"call": "wide"}] * 4
    with ForkServer(preload=["IPython"], answer="sandbox_answers.answer", packages=[answers]) as server:
        result = server.run(Job(cells=[("attack", WIDE)], requests=requests))
    assert sum(sys.getsizeof((answer.value or {}).get("value")) for answer in result.answers) < 160 << 20


def test_old_answers_without_end_do_not_keep_the_grader_busy():
    """Each is a line of its own below the largest, and half a second of parsing while nothing else of the grader runs."""
    child, theirs = pair()
    child._tokens.add("old")
    value = b",".join([b"1234567890123456789012345e-300"] * 400_000)
    old = b'{"token": "old", "error": null, "answer": {"value": [' + value + b"]}}\n"

    def flood():
        with contextlib.suppress(OSError):
            token = json.loads(theirs.makefile("rb").readline())["token"]
            for _ in range(10):
                theirs.sendall(old)
            theirs.sendall(json.dumps({"token": token, "error": None}).encode() + b"\n")

    sender = threading.Thread(target=flood, daemon=True)
    sender.start()
    begin = time.process_time()
    with contextlib.suppress(_End):
        child.ask({"cell": "x = 1"}, 20)
    assert time.process_time() - begin < 1
    for close in (theirs.close, child.close):
        close()
    sender.join(5)


LARGE = """
import sys
tail = b'", "error": null, "answer": {"value": [' + b",".join([b"1234567890123456789012345e-300"] * 400_000) + b"]}}\\n"
def forge():
    frame = sys._getframe()
    while "message" not in frame.f_locals or "connection" not in frame.f_locals: frame = frame.f_back
    frame.f_locals["connection"].sendall(b'{"token": "' + frame.f_locals["message"]["token"].encode() + tail)
"""


@linux
@pytest.mark.slow
def test_a_cell_that_answers_for_itself_does_not_keep_the_grader_busy():
    cells = [("a", LARGE), *((f"cell {number}", "forge()") for number in range(12))]
    with ForkServer(preload=["IPython"], limits=Limits(retries=0), answer=None) as server:
        begin = time.process_time()
        server.run(Job(cells=cells))
    assert time.process_time() - begin < 1


def test_short_answers_that_wait_are_not_piled_up():
    """One a round was taken away, and two hundred kilobytes of them came in: gigabytes of the grader's own memory."""
    child, theirs = pair()
    child._tokens.add("old")
    lines, most = b'{"token":"old","error":null}\n' * 6000, [0]

    def flood():
        with contextlib.suppress(OSError):
            while True:
                theirs.sendall(lines)
                most[0] = max(most[0], len(child._received))

    sender = threading.Thread(target=flood, daemon=True)
    sender.start()
    with pytest.raises(_End) as end:
        child.ask({"cell": "pass"}, 20)
    assert end.value.reason == "output"
    theirs.close()
    child.close()
    sender.join(5)
    assert 0 < most[0] < 4 << 20


@linux
def test_a_message_that_the_kernel_does_not_take_now_is_no_death_of_the_server(monkeypatch):
    """Descriptors in flight are counted by user, and a submission may have sent as many as one may have."""
    real, failures = socket.send_fds, iter([errno.ETOOMANYREFS, errno.ENOBUFS, errno.ETOOMANYREFS])

    def full(*given):
        for number in failures:
            raise OSError(number, os.strerror(number))
        return real(*given)

    with ForkServer(preload=(), limits=Limits(), answer=None, packages=()) as server:
        pid = server._process.pid
        monkeypatch.setattr(socket, "send_fds", full)
        result = server.run(Job(cells=[("a", "print('honest')")]))
        assert server._process.pid == pid
    assert result.cells[0].output == "honest\n"


# What the kernel would hold for a submission where neither a cgroup nor a look at its processes sees it, or take from others.
KERNEL = r"""
import ctypes, fcntl, mmap, os, socket, struct
library = ctypes.CDLL(None, use_errno=True)
library.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
page, text = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), ctypes.create_string_buffer(b"name")
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def acl(path, kind):
    entries = b"".join(struct.pack("<HHI", tag, 7, 65534 if tag == 2 else 2**32 - 1) for tag in (1, 2, 2, 4, 16, 32))
    os.setxattr(path, f"system.posix_acl_{kind}", struct.pack("<I", 2) + entries)
def call(*arguments):
    if library.syscall(*arguments) < 0: raise OSError
def control(*arguments):
    if library.prctl(*arguments) < 0: raise OSError
program = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000))
filter_ = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 1, ctypes.addressof(program)))
os.mkdir("/tmp/a")
def lock(command):
    with open("/tmp/locked", "w") as file: fcntl.fcntl(file, command, struct.pack("hhqqi4x", 1, 0, 0, 1, 0))
for name, attempt in {
    "an access list": lambda: acl("/tmp/a", "access"),
    "an access list for what is made in a folder": lambda: acl("/tmp/a", "default"),
    "messages to oneself over netlink": lambda: socket.socket(16, socket.SOCK_RAW, 2),
    "a table for futexes": lambda: control(78, 1, 4096, 0, 0),
    "rules of landlock": lambda: call(444, struct.pack("<QQ", 0, 3), 16, 0),
    "a filter with a listener": lambda: call(317, 1, 8, filter_),
    "a program on a socket": lambda: udp.setsockopt(1, 26, bytes(filter_)),
    "a program on a socket, a number that is an int below": lambda: call(54, udp.fileno(), 1 + 2**32, 26, filter_, 16),
    "a group of receivers": lambda: udp.setsockopt(0, 35, bytes((224, 0, 0, 7, 127, 0, 0, 1))),
    "a lock of a part of a file": lambda: lock(fcntl.F_SETLK),
    "a lock that goes with the open file": lambda: lock(37),
    "a name for memory": lambda: control(
        0x53564D41, 0, ctypes.addressof(ctypes.c_char.from_buffer(page)), 4096, ctypes.addressof(text)
    ),
    "a tree of mounts": lambda: call(467, -100, b"/", 1, None, 0),
}.items():
    try: attempt()
    except OSError: continue
    print("allowed:", name)
"""


@linux
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are those of x86-64")
def test_the_kernel_holds_nothing_for_a_submission_that_no_limit_counts():
    with ForkServer(preload=(), limits=Limits(), answer=None, packages=()) as server:
        (cell,) = server.run(Job(cells=[("a", KERNEL)])).cells
    assert (cell.outcome, cell.output) == ("ok", ""), cell


@linux
def test_no_memory_is_shared_with_the_next_submission():
    """A library that maps some into the warm server would let one submission write what the next reads."""
    source = "print([line for line in open('/proc/self/maps') if line.split()[1][1::2] == 'ws'])"
    with ForkServer() as server:
        (cell,) = server.run(Job(cells=[("a", source)])).cells
    assert cell.output == "[]\n"


@linux
def test_nobody_takes_all_timers_of_the_user_who_grades():
    """The kernel counts them with the signals that wait, up to the user outside: his own programs would get none."""
    source = "import resource; print(resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] <= 4096)"
    with ForkServer(preload=(), limits=Limits(), answer=None, packages=()) as server:
        (cell,) = server.run(Job(cells=[("a", source)])).cells
    assert cell.output == "True\n"


# A call that has the kernel itself work for a process, whatever its priority is: moving it about among the processors.
KERNELS_WORK = """
import os
try: os.sched_setaffinity(0, os.sched_getaffinity(0))
except PermissionError: print("refused")
"""


@linux
def test_no_priority_is_gone_round_by_what_the_kernel_does_for_a_process():
    """Four processes that do nothing but change their processor slow a neighbor ten times, with the lowest priority."""
    with ForkServer(preload=(), limits=Limits(), answer=None, packages=()) as server:
        (cell,) = server.run(Job(cells=[("a", KERNELS_WORK)])).cells
    assert cell.output == "refused\n", cell


# What a cgroup has to count, since no limit of a process does.
QUEUES = {
    "streams": "a, b = socket.socketpair(); a.setblocking(False); send = lambda: a.send(bytes(60_000))",
    "datagrams": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.setblocking(False)\n"
    "    send = lambda: a.send(bytes(100_000))",
    "pipes": "a, b = os.pipe(); fcntl.fcntl(b, 1031, 1 << 20); os.set_blocking(b, False)\n"
    "    send = lambda: os.write(b, bytes(65536))",
}
FILL = """
import fcntl, os, socket
held = []
for i in range(110):
    {queue}
    held.append((a, b))
    try: a.setsockopt(1, 7, 4 << 20)
    except (AttributeError, OSError): pass
    try:
        while True: send()
    except OSError: pass
"""


@linux
def test_what_waits_between_processes_counts_where_a_cgroup_does():
    limits = Limits(memory_bytes=48 << 20, retries=0)
    with ForkServer(preload=(), limits=limits, answer=None, packages=()) as server:
        if not server.exact_memory:
            pytest.skip("no memory cgroup can be made here, and the threat model names these")
        for name, queue in QUEUES.items():
            result = server.run(Job(cells=[("a", FILL.format(queue=queue))]))
            assert result.flags == ("memory",), (name, result)


# --- the cluster ----------------------------------------------------------------------------------------------------------


def test_a_hand_in_is_read_on_a_worker_as_it_is_here(root, tmp_path):
    release = root / "course" / CHAPTER / "basics.ipynb"
    for place in ("twins/a", "twins/b", "odd"):
        (tmp_path / place).mkdir(parents=True)
    for name in (b"twins/a/basics.ipynb", b"twins/b/basics.ipynb", b"odd/basics\xff\xc3.ipynb", b"odd/a\n.b.ipynb"):
        shutil.copy(release, os.fsencode(tmp_path) + b"/" + name)
    os.mkfifo(tmp_path / "odd/pipe.ipynb")
    given = run.material(CHAPTER)
    found = intake.find(tmp_path, CHAPTER, list(given["releases"]), tmp_path / "scratch")
    assert [one.student for one in found] == ["odd", "twins"]
    for here in found:
        there = pickle.loads(pickle.dumps(replace(here, paths=tuple(intake.carried(path) for path in here.paths))))
        assert intake.read(there, given["releases"]) == intake.read(here, given["releases"]), here.student
        assert run.digest(there, given["course"]) == run.digest(here, given["course"])


def test_the_digest_of_a_course_tells_every_file_that_decides_a_score(repository, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(repository, other, ignore=shutil.ignore_patterns("class", "__pycache__"))
    program = f"from autograder import run; print(run.course_digest({CHAPTER!r}))"
    digests = [toy.program(repository, "-c", program, check=True).stdout]
    record = other / "course/underhood/recorded" / f"{CHAPTER}.json"
    record.write_text(record.read_text().replace('"double"', '"duplicate"'))
    digests.append(toy.program(other, "-c", program, check=True).stdout)
    (other / "course/underhood/data").mkdir(exist_ok=True)
    (other / "course/underhood/data/digits.npz").write_bytes(b"other numbers")
    digests.append(toy.program(other, "-c", program, check=True).stdout)
    assert len(set(digests)) == 3


def test_what_a_run_writes_beside_the_grader_is_no_part_of_the_course(repository):
    program = f"from autograder import run; print(run.course_digest({CHAPTER!r}))"
    before = toy.program(repository, "-c", program, check=True).stdout
    for place in ("autograder/spring/autograded/ann", f"autograder/submissions/ann/{CHAPTER}"):
        (repository / place).mkdir(parents=True)
        shutil.copy(repository / "course" / CHAPTER / "basics.ipynb", repository / place)
    after = toy.program(repository, "-c", program, check=True).stdout
    for place in ("spring", "submissions"):
        shutil.rmtree(repository / "autograder" / place)
    assert after == before


@linux
@pytest.mark.slow
def test_a_run_that_goes_on_into_another_gradebook_leaves_nobody_out(repository, tmp_path):
    toy.hand_in(repository, repository / "class", 8)
    slower = "import time; time.sleep(0.2)\\ndef double(x):"
    for path in (repository / "class").rglob("*.ipynb"):
        path.write_text(path.read_text().replace("def double(x):", slower))
    out, address = tmp_path / "out", f"sqlite:///{tmp_path}/other.db"
    try:
        with test_cluster.running(repository, out) as caller:
            caller.kill()
        done = test_cluster.grade(repository, out, "--database", address)
    finally:
        shutil.rmtree(repository / "class")
    assert done.returncode == 0, done.stderr
    with gradebook.opened(address) as book:
        assert len(book.assignment_submissions(CHAPTER)) == 8


def test_a_hand_in_of_many_large_files_is_no_large_message(tmp_path):
    from autograder import cluster

    sent = []

    class Client:
        def submit(self, function, packed, **given):
            sent.append(len(packed))

    (tmp_path / "ann").mkdir()
    for number in range(20):
        with (tmp_path / "ann" / f"basics{number:02d}.ipynb").open("wb") as file:
            file.truncate(31 << 20)
    (found,) = intake.find(tmp_path, CHAPTER, ["basics"], tmp_path / "scratch")
    place = cluster.Cluster(run.Terms(CHAPTER, 3, "", Limits(), False), "")
    place._client = Client()
    place._hand_out(found)
    assert sum(sent) < 200 << 20


REACH = """
import os, socket, glob
said = sorted(name for name in os.environ if "DASK" in name)
for port in ({port}, 8786, 8787, 8788):
    try: said.append(socket.create_connection(("127.0.0.1", port), 1))
    except OSError as error: pass
said += glob.glob("/tmp/dask*") + glob.glob("/proc/[0-9]*/cwd/dask*")
print("REACHED", said)
"""


@linux
@pytest.mark.slow
def test_a_stopped_worker_and_a_killed_caller_change_no_points(repository, tmp_path, monkeypatch):
    right = toy.hand_in(repository, repository / "class", 10)
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", "3s")  # else five minutes
    dask = test_cluster.Dask(tmp_path)
    slower = "import time; time.sleep(0.3)\\ndef double(x):"
    for path in (repository / "class").rglob("*.ipynb"):
        path.write_text(path.read_text().replace("def double(x):", slower))
    curious = repository / "class/student-0000" / CHAPTER / "basics.ipynb"
    notebook = nbformat.read(curious, 4)
    notebook.cells.insert(1, v4.new_code_cell(REACH.format(port=dask.address.rpartition(":")[2])))
    nbformat.write(notebook, curious)
    out, options = tmp_path / "out", ("--scheduler", dask.address)
    try:
        workers = dask.workers(repository, 2)
        with test_cluster.running(repository, out, *options) as caller:
            caller.kill()
        out.rename(tmp_path / "kept")
        with test_cluster.running(repository, out, *options) as caller:
            toy.until(lambda: all(test_cluster.servers(worker) for worker in workers))
            family = test_cluster.servers(workers[0])
            workers[0].send_signal(signal.SIGSTOP)
            assert caller.wait(100) == 0, test_cluster.said(out)
        assert toy.scores(out) == right
        workers[0].send_signal(signal.SIGCONT)
        toy.until(lambda: not any(Path("/proc", str(pid)).exists() for pid in family), 30)
        (tmp_path / "kept").rename(tmp_path / "again")
        done = test_cluster.grade(repository, tmp_path / "again", *options)  # goes on where the killed one stopped
        assert done.returncode == 0 and toy.scores(tmp_path / "again") == right
    finally:
        dask.stop()
        shutil.rmtree(repository / "class")
    assert "REACHED []" in (out / "autograded/student-0000" / CHAPTER / "basics.ipynb").read_text()


@linux
@pytest.mark.slow
def test_a_scheduler_that_starts_again_at_the_same_address_ends_the_run_with_a_sentence(repository, tmp_path):
    right = toy.hand_in(repository, repository / "class", 6)
    slower = "import time; time.sleep(0.3)\\ndef double(x):"
    for path in (repository / "class").rglob("*.ipynb"):
        path.write_text(path.read_text().replace("def double(x):", slower))
    dask, out = test_cluster.Dask(tmp_path), tmp_path / "out"
    try:
        dask.workers(repository)
        with test_cluster.running(repository, out, "--scheduler", dask.address) as caller:
            dask.scheduler.kill()
            dask.scheduler.wait()
            port = dask.address.rpartition(":")[2]
            program = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port]
            dask._start([*program, "--no-dashboard"], cwd=tmp_path)
            assert caller.wait(100) == 1
        assert "was lost." in test_cluster.said(out) and "Traceback" not in test_cluster.said(out)
        assert test_cluster.grade(repository, out).returncode == 0 and toy.scores(out) == right
    finally:
        dask.stop()
        shutil.rmtree(repository / "class")


# --- the pages ------------------------------------------------------------------------------------------------------------

LIE = "x\n  ok  values              12 cases\nrow_norms   4 of 4 points\r\u2028\x1b[0m\x85"


@pytest.mark.parametrize("field", ("forbidden", "message", "raised", "changed", "printed", "notes"))
@pytest.mark.parametrize("where", ("answer", "observation"))
def test_no_word_of_an_answer_makes_a_line_that_looks_like_a_verdict(field, where):
    exercise = exercises(CHAPTER)[1]
    one = seen_to_json(Seen(raised=("ValueError",), message="m")) | {"forbidden": ""}
    answer = {"notes": [], "forbidden": ""}
    value = [LIE] if field in ("raised", "changed", "notes") else LIE
    (answer if where == "answer" else one)[field] = value
    answer["seen"] = [one] * len(judge.questions(exercise.name, 0))
    verdict = run.verdict_on(exercise, answer, "", 0)
    page = feedback.page("ann", CHAPTER, {exercise.name: exercise}, {exercise.name: verdict}, {exercise.name: ""}, "")
    assert verdict.points == 0
    for text in (str(verdict), page):
        lines = [line.split() for line in text.splitlines()]
        assert not any(line[:2] == ["ok", "values"] or line[1:4] == ["4", "of", "4"] for line in lines), text
        assert not set(text) & set("\r\u2028\x85")


@pytest.mark.parametrize(
    "value",
    [
        {"foreign": LIE},
        {"foreign": f"{LIE} ValueError"},
        {"tensor": LIE, "shape": [2], "numbers": "<f8", "data": [1, 2]},
        {"array": LIE, "shape": [], "numbers": "<f8", "data": [1]},
        {"tuple": [LIE, {"foreign": LIE}]},
        {"dict": [[LIE, {"foreign": LIE}]]},
        "\ud800",
        {"foreign": "\ud800"},
    ],
    ids=range(8),
)
def test_no_value_makes_a_line_that_looks_like_a_verdict(value):
    exercise = exercises(CHAPTER)[1]
    one = seen_to_json(Seen()) | {"value": value}
    answer = {"notes": [], "forbidden": "", "seen": [one] * len(judge.questions(exercise.name, 0))}
    text = str(run.verdict_on(exercise, answer, "", 0))
    lines = [line.split() for line in text.splitlines()]
    assert not any(line[:2] == ["ok", "values"] or line[1:4] == ["4", "of", "4"] for line in lines), text
    assert not set(text) & set("\r\u2028\x1b\x85")


NAMES = [*map("".join, itertools.product(string.ascii_lowercase, repeat=3))]
HARD = {
    "attributes": f"<b {' '.join(NAMES)} {' '.join(name + 'x' for name in NAMES)}>x",
    "parentheses of a style": f"<b style='color:{'(' * 50_000}'>x",
    "braces of a style": f"<b style='{'{[(' * 30_000}'>x",
    "a comment": f"<!--{'-' * 190_000}",
    "references": "&#" * 90_000,
    "lone surrogates": "<b title='\ud800'>\udfff</b>",
    "tables in bold": "<table><b>" * 990,
    "titles": "".join(f"<b title={number}><div>" for number in range(990)),
    "zeros": "\0" * 190_000,
    "inline in inline": "<b><i><u><span>" * 490,
    "foreign": "<svg><math><annotation-xml encoding='text/html'>" * 500,
}


@pytest.mark.parametrize("html", HARD.values(), ids=HARD)
def test_html_that_is_hard_to_read_is_shown_quickly(html):
    """Whoever opens the formgrader's view waits for it, and the whole Jupyter server does."""
    output = v4.new_output("display_data", data={"text/html": html, "text/plain": "x"})
    notebook = v4.new_notebook(cells=[v4.new_code_cell("1", outputs=[output])])
    begin = time.process_time()
    shown = harmless(notebook, None)
    assert time.process_time() - begin < 3
    text = str(shown.cells[0].outputs[0].data)
    assert "<svg" not in text and "(((((" not in text.partition("<")[2].partition(">")[0]


LEAVES = {
    "closing tags": "</div></div></pre></td></tr></table></body><b>BAIT",
    "a table's end": "<table><tr><td></table></div><b>BAIT",
    "a comment's end": "<b>BAIT--></div><!--",
    "text without end": "<plaintext></div><b>BAIT",
    "an attribute": "<b title='\"></div><div>'>BAIT",
}


@pytest.mark.parametrize("html", LEAVES.values(), ids=LEAVES)
def test_no_tag_closes_what_the_page_has_opened(html):
    """What came after it would stand beside nbgrader's own elements, and not in its box."""
    shown = cleaned(html)
    for tag in ("div", "pre", "table", "td", "b"):
        depth = 0
        for end in re.findall(rf"<(/?){tag}\b", re.sub(r'"[^"]*"', "", shown)):
            depth += -1 if end else 1
            assert depth >= 0, shown
    assert "<!--" not in shown and "<plaintext" not in shown and "</body" not in shown


@pytest.mark.parametrize("tag", ("td", "th"))
def test_no_cell_of_a_table_spans_a_million(tag):
    """Three hundred of them take the reader's browser four gigabytes, and its tab with them."""
    html = f"<table>{f'<tr><{tag} colspan=1000 rowspan=65534>x' * 300}</table>"
    output = v4.new_output("display_data", data={"text/html": html, "text/plain": "x"})
    shown = harmless(v4.new_notebook(cells=[v4.new_code_cell("1", outputs=[output])]), None)
    spans = re.findall(r"<t[^>]*(?:row|col)span=\D*(\d+)", shown.cells[0].outputs[0].data.get("text/html", ""))
    assert all(int(span) <= 100 for span in spans)


MANY = {
    "no HTML": {"text/html": ""},
    "HTML without a tag": {"text/html": "x"},
    "pictures": {"image/png": "iVBORw0KGgo="},
    "text": {"text/plain": "x"},
}


@pytest.mark.parametrize("data", MANY.values(), ids=MANY)
def test_outputs_without_end_are_counted(data):
    """nbgrader keeps any number, and each takes a millisecond in the process that serves everybody."""
    outputs = [NotebookNode(output_type="display_data", data=data, metadata={})] * 8000
    shown = harmless(v4.new_notebook(cells=[v4.new_code_cell("1", outputs=outputs)]), None)
    assert len(shown.cells[0].outputs) <= 2000


def test_pictures_are_bounded_as_text_is():
    """Two hundred megabytes that are no picture take the converter seven seconds and two gigabytes, at each look."""
    data = {"image/png": "A" * (8 << 20), "image/jpeg": "A" * (8 << 20), "text/plain": "x"}
    outputs = [NotebookNode(output_type="display_data", data=data, metadata={}) for _ in range(8)]
    shown = harmless(v4.new_notebook(cells=[v4.new_code_cell("1", outputs=outputs)]), None)
    kept = sum(len(value) for output in shown.cells[0].outputs for value in output.data.values())
    assert kept < 64 << 20


def test_the_number_of_a_cell_is_one():
    cell = v4.new_code_cell("1")
    cell.execution_count = 10**4000
    assert len(str(harmless(v4.new_notebook(cells=[cell]), None).cells[0].execution_count)) < 20


def test_copies_of_the_courses_own_text_are_the_learners_own():
    """A Markdown cell with a picture takes 22 ms, and 2,000 of them are allowed."""
    (release,) = run.releases("04_quantization").values()
    largest = max((cell for cell in release.cells if cell.cell_type == "markdown"), key=lambda cell: len(cell.source))
    cells = [v4.new_markdown_cell(largest.source) for _ in range(300)]
    shown = harmless(v4.new_notebook(cells=cells), release)
    assert shown.cells[0].source == largest.source
    assert sum(len(cell.source) for cell in shown.cells) < len(cells) * len(largest.source) / 4


TURNS = "\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200f\u061c\x1b"


def test_an_exception_turns_no_line_around():
    """`values  \u202e…` is read from the other end."""
    exercise = exercises(CHAPTER)[1]
    one = seen_to_json(Seen(raised=("ValueError",), message=f"a{TURNS}b")) | {"forbidden": ""}
    answer = {"notes": [], "forbidden": "", "seen": [one] * len(judge.questions(exercise.name, 0))}
    assert not set(str(run.verdict_on(exercise, answer, "", 0))) & set(TURNS)


LINE_ENDS = ("\r", "\r\n", "\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028")


@pytest.mark.parametrize("end", LINE_ENDS, ids=map(ascii, LINE_ENDS))
def test_white_space_at_the_ends_of_lines_is_colored_quickly(end):
    """The lexer makes newlines of other line ends, too."""
    cell = v4.new_code_cell(f" {end}" * 4000 + "x")
    begin = time.process_time()
    HTMLExporter().from_notebook_node(harmless(v4.new_notebook(cells=[cell]), None))
    assert time.process_time() - begin < 3


TAG = "<script>window.ran = 1</script><img src=x onerror=1>"
FENCES = (
    "a\r```\r", "a\x0b```\x0b", "a\u2028```\u2028", "a\x85```\x85\n", "\t```\n", "    ```\n", "~~~\n", "$$\n```\n$$",
    "\\begin{x}\n```\n\\end{x}", "\0```\n", "\ufeff```\n", "```text\n\n```\n", "```text\n```\n", "```text\n\r```\n",
    "```text\nx\n```\x0c\n",
)  # fmt: skip


@pytest.mark.parametrize("opening", FENCES)
def test_no_line_end_or_fence_leads_out_of_the_code_block(opening):
    for text in (opening + TAG, f"{opening}{TAG}\n```"):
        notebook = v4.new_notebook(cells=[v4.new_markdown_cell(text)])
        html = markdown2html_mistune(harmless(notebook, None).cells[0].source)
        assert "<script" not in html and "<img" not in html and html.count("<pre") == 1


NESTED = {
    "tables": "<table><tr><td>" * 480,
    "tables beside text": "<table><tr><td>x<td>" * 400,
    "captions": "<table><caption>" * 450,
    "lists": "<ul><li>" * 480,
    "columns": f"<table>{'<col>' * 1900}<tr><td>x</table>",
    "white space": "<pre><div style='white-space:pre-wrap;overflow-wrap:anywhere'>" * 250 + "x" * 3000,
}


@pytest.mark.slow
def test_a_browser_lays_out_what_is_nested_as_deep_as_may_be(tmp_path):
    seconds = {}
    with browser() as chromium:
        page = chromium.new_page()
        for name, html in NESTED.items():
            outputs = [v4.new_output("display_data", data={"text/html": html, "text/plain": "x"}) for _ in range(5)]
            shown = harmless(v4.new_notebook(cells=[v4.new_code_cell("1", outputs=outputs)]), None)
            (tmp_path / "page.html").write_text(HTMLExporter(template_name="classic").from_notebook_node(shown)[0])
            begin = time.monotonic()
            page.goto((tmp_path / "page.html").as_uri(), wait_until="commit")
            assert page.evaluate("() => document.documentElement.scrollHeight") > 100
            seconds[name] = time.monotonic() - begin
        page.close()
    assert max(seconds.values()) < 10, seconds


COVERS = {
    "margin": ("div", "margin:-900px 0 0;opacity:.99;border:300px solid white"),
    "padding": ("div", "margin:-900px -100px 0;padding:400px;opacity:.5"),
    "no margin": ("div", "opacity:.99;border:1px solid;padding:2px"),
    "a table": ("div", "margin:-5000% 0 0 0;border:0;opacity:0"),
    # what an inline box has above and below takes no room in its line
    "a border in a line": ("span", "border:600px solid white"),
    "padding in a line": ("span", "padding:900px"),
    "raised": ("span", "vertical-align:900px;border:500px solid white"),
    "written in another way": ("span", "padding:9e2px;border:+6\\30 0px solid white"),
}


@pytest.mark.slow
def test_no_output_covers_what_stands_around_it(root, tmp_path):
    """Neither with a border that hides nbgrader's scores nor with nothing that takes the clicks."""
    release = run.releases(CHAPTER)["basics"]
    folders = [str(TEMPLATES), template_path]
    styles = [str(Path(template_path).parent / "static/node_modules/bootstrap/dist/css")]
    exporter = HTMLExporter(
        template_name="feedback", extra_template_basedirs=folders, extra_template_paths=styles,
        preprocessors=[Harmless, Scores],
    )  # fmt: skip
    look = """() => {
        const bait = [...document.querySelectorAll("b")].find(b => b.innerText === "BAIT").parentElement;
        const others = [...document.querySelectorAll("pre, p, h4, li, td, .panel-heading")].filter(
            one => [Node.DOCUMENT_POSITION_PRECEDING, Node.DOCUMENT_POSITION_FOLLOWING].includes(
                bait.compareDocumentPosition(one)));
        return [others.length, others.filter(one => {
            one.scrollIntoView({block: "center"});
            const box = one.getBoundingClientRect();
            return [0.1, 0.5, 0.9].some(share => {
                const found = document.elementFromPoint(box.left + share * box.width, box.top + box.height / 2);
                return found && bait.contains(found);
            });
        }).length];
    }"""
    seen = {}
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1000, "height": 900})
        for name, (tag, style) in COVERS.items():
            notebook = nbformat.from_dict(release)
            code = [cell for cell in notebook.cells if cell.cell_type == "code"]
            html = f"<{tag} style='{style}'><b>BAIT</b></{tag}>"
            code[3].outputs = [v4.new_output("display_data", data={"text/html": html})]
            graded = {"assignment": CHAPTER, "notebook": "basics", "score": 1, "max_score": 2, "late_penalty": 0}
            text, _ = exporter.from_notebook_node(notebook, resources={"nbgrader": graded})
            (tmp_path / "page.html").write_text(text)
            page.goto((tmp_path / "page.html").as_uri())
            looked_at, seen[name] = page.evaluate(look)
            assert looked_at > 10
        page.close()
    assert seen == dict.fromkeys(COVERS, 0)


# --- nbgrader and JupyterLab beside a hand-in ---------------------------------------------------------------------------


def hand_in(copy, student, change):
    """A release's notebook, changed, where nbgrader looks for what a learner has handed in."""
    notebook = nbformat.read(copy / "course" / CHAPTER / "basics.ipynb", 4)
    change(notebook)
    path = copy / "autograder/class/submitted" / student / CHAPTER / "basics.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


VERSIONS = (99, 1, 0, -1, None, "3", [])


@pytest.mark.parametrize("version", VERSIONS, ids=map(str, VERSIONS))
def test_marks_of_another_version_of_nbgrader_end_no_run(version):
    """For a version that is not its own, nbgrader ends: nobody who comes after is graded."""
    from autograder.release import OwnSchema

    (release,) = run.releases(CHAPTER).values()
    notebook = nbformat.from_dict(release)
    for cell in notebook.cells:
        if "nbgrader" in cell.metadata:
            cell.metadata.nbgrader["schema_version"] = version
    notebook, _ = OwnSchema().preprocess(notebook, {})
    MetadataValidator().validate_nb(notebook)  # raises


STRANGER = """# ---
# jupyter:
#   kernelspec:
#     name: python3
# ---

# %% nbgrader={"grade": false, "grade_id": "x", "locked": false, "schema_version": 3, "solution": true, "task": false}
raise SystemExit("a learner's code runs in the judge")
"""


@pytest.fixture
def command(request):
    return request.getfixturevalue("run")


def test_a_text_beside_the_solutions_is_none_of_them(copy, command):
    """Whatever brought it there: the judge would run it with the instructor's rights."""
    stranger = copy / "solutions" / CHAPTER / "basicszz.py"
    stranger.write_text(STRANGER)
    try:
        done = command(
            sys.executable, "-c", f"from autograder import reference; reference.load({CHAPTER!r}); print('done')"
        )
    finally:
        stranger.unlink()
    assert done.stdout == "done\n", done.stderr[-300:]


@pytest.mark.slow
def test_a_hand_in_that_jupyterlab_saves_writes_no_other_file(copy, tmp_path):
    """jupytext would pair it with whatever its metadata names: a text among the solutions, a test."""
    path = hand_in(copy, "ann", lambda notebook: notebook.metadata.update(
        jupytext={"formats": "autograder/class/submitted/ann///ipynb,solutions///zz.py:percent"}))  # fmt: skip
    before = {found for found in copy.rglob("*.py")}
    with serve(copy, private(tmp_path, copy, copy / "course")) as server:
        place = f"api/contents/{path.relative_to(copy)}"
        model = server.get(f"{place}?content=1&type=notebook")
        request = urllib.request.Request(
            f"{server.url}/{place}", method="PUT",
            data=json.dumps({"type": "notebook", "format": "json", "content": model["content"]}).encode(),
            headers={"Authorization": f"token {server.token}", "Content-Type": "application/json"},
        )  # fmt: skip
        urllib.request.urlopen(request, timeout=30).close()
    made = {found for found in copy.rglob("*.py")} - before
    for found in made:
        found.unlink()
    shutil.rmtree(copy / "autograder/class/submitted/ann")
    assert made == set()


def test_the_judge_starts_in_no_hand_ins_folder(tmp_path, monkeypatch):
    """matplotlib reads its settings there, Python its modules, Jupyter its configuration."""
    for name in ("json.py", "sitecustomize.py", "matplotlibrc", "jupyter_config.py", "nbgrader_config.py"):
        (tmp_path / name).write_text("raise SystemExit('code of a hand-in ran')")
    monkeypatch.chdir(tmp_path)
    asked = provisioner.Judge()
    try:
        assert asked.ask({"exercise": "pick"}, 60).keys() == {"request"}
    finally:
        asked.close()
