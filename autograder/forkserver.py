"""A warm process that forks a sandboxed child per job, seen from the grader: `ForkServer`, `Job`, `Result`.

A stock kernel spends 95 % of a submission's time on start-up and imports. Here they are paid once: `warm` holds the
imported libraries and forks; the child shares its memory until it writes. This module is the grader's side: it sends one
cell or request at a time, so it always knows which of them a child died of, watches time, memory and output from outside
the sandbox, and validates every line that comes back. What a submission does is a `Result` with a reason, never an
exception here; exceptions are for the machine's faults (`SandboxError`, `ServerError`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from . import sandbox
from .sandbox import Cgroup, Limits, SandboxError
from .warm import THREAD_VARIABLES

__all__ = ["Answer", "CellResult", "ForkServer", "Job", "Limits", "Result", "SandboxError", "ServerError"]

PRELOAD = (
    "torch", "numpy", "matplotlib.pyplot", "IPython", "torch.testing", "torch._dynamo", "underhood",
)  # fmt: skip
HERE = Path(__file__).resolve().parent
UNDERHOOD = HERE.parent / "course" / "underhood"
START_SECONDS = 120.0
MEMORY_CHECK_SECONDS = 0.05
CROWD_CHECK_SECONDS = 0.2
CROWD = 30  # threads and processes that were new in the last looks, the further back the less they count
MAX_DEATHS = 10  # of the server under one job, each of which starts it again
MAX_LINE = 100_000  # characters of a text beyond ASCII; longer ones are packed numbers
MAX_DEPTH = 40  # of a reply; plain values go 8 deep, each in at most two objects of JSON
MAX_CELL_REPLY = 1 << 20  # bytes: an exception's name and message
QUESTION_RATE = 4 << 20  # bytes a second that a kernel may ask; parsing them holds up the process that Jupyter runs in
MAX_REPLIES = 64 << 20  # bytes, about, of a job's answers that are kept until they are judged
MAX_STRUCTURE = 1_000_000  # commas and brackets of a reply: what decides the memory that parsing takes

# Why a child ended, as a sentence for the row of the gradebook.
SENTENCES = {
    "timeout": "took longer than its time limit",
    "memory": "needed more memory than its limit",
    "output": "printed more than its limit",
    "garbage": "wrote into the grader's channel",
    "killed": "ended the process",
    "retries": "was not reached: earlier cells ended the process too often",
}


class ServerError(RuntimeError):
    """The warm server cannot be started, or ended again and again."""


@dataclass(frozen=True)
class Job:
    """One submission, and what to ask of it.

    Parameters
    ----------
    cells
        The code cells in order: (id, source).
    requests
        What to ask afterwards: JSON objects for the server's `answer` function.
    seed
        For Python's, NumPy's and PyTorch's random numbers.
    before
        What to ask before the first cell, while nothing of the submission has run in the process: the answer can be
        believed.
    early
        Cell id → numbers of the requests that are put right after that cell too.
    early_requests
        What is asked then, by the same numbers; by default the requests themselves.
    settled
        Whether the early answer to a request is all that is needed; otherwise the request is put again at the end.
    """

    cells: Sequence[tuple[str, str]]
    requests: Sequence[Mapping[str, Any]] = ()
    seed: int = 0
    before: Mapping[str, Any] | None = None
    early: Mapping[str, Sequence[int]] = field(default_factory=dict)
    early_requests: Sequence[Mapping[str, Any]] = ()
    settled: Callable[[int, Answer], bool] = lambda index, answer: False


@dataclass(frozen=True)
class CellResult:
    """What became of a cell.

    Parameters
    ----------
    outcome
        "ok", "error" (an exception, SystemExit included), or why its process ended ("timeout", "memory", "output", "garbage",
        "killed"): then it was left out in the next child. "timeout" alone can also mean that it was interrupted and
        the run went on. "not run": the job ended before.
    error, message
        The exception's class and message, as the child tells them.
    output
        What it printed, at most `Limits.kept_output_bytes`.
    truncated
        Whether it printed more.
    """

    id: str
    outcome: str
    error: str = ""
    message: str = ""
    output: str = ""
    truncated: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Answer:
    """The answer to a request: `value` is untrusted JSON, or None with the reason.

    `reason` is "" (answered), "error" (the answering function raised), or why the process ended.
    """

    value: dict | None
    reason: str = ""
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Result:
    """What a job gave: one entry per cell and per request, in their order.

    Parameters
    ----------
    flags
        The words of all that went wrong with a process, sorted: "killed", "timeout", …
    reason
        The same as one sentence.
    before
        The answer to `Job.before`.
    early
        Number of the request → the answer to it right after a cell, where it was put then.
    attempts
        How many children it took.
    peak_memory
        Of the largest child, in bytes, on top of what the server holds; 0 where nothing measures it.
    cpu_seconds
        Of all children; what their own children used counts where it was waited for.
    """

    cells: tuple[CellResult, ...]
    answers: tuple[Answer, ...]
    flags: tuple[str, ...] = ()
    reason: str = ""
    before: Answer | None = None
    early: Mapping[int, Answer] = field(default_factory=dict)
    attempts: int = 1
    seconds: float = 0.0
    peak_memory: int = 0
    cpu_seconds: float = 0.0


class _Died(ServerError):
    """The warm server ended without a word before it was ready."""


class _End(Exception):
    """A child is over, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _ServerGone(Exception):
    """The server died under a child, which is nobody's fault."""


class _Struck(Exception):
    """A child was killed for the first time at this point, perhaps from outside: it gets another try."""


@dataclass
class _Progress:
    """What is known of a job between its attempts."""

    cells: dict[str, CellResult] = field(default_factory=dict)
    skip: set[str] = field(default_factory=set)
    struck: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    answers: dict[int, Answer] = field(default_factory=dict)
    before: Answer | None = None
    early: dict[int, Answer] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    replies: int = 0  # bytes
    peak: int = 0
    cpu: float = 0.0


class ForkServer:
    """A warm process that forks a sandboxed child per job. Use it as a context manager, from any number of threads.

    Parameters
    ----------
    preload
        Modules that the server imports once.
    limits
        Of every job.
    answer
        Dotted name of `answer(request: dict, namespace: dict) -> dict`, which runs in the child. None: no requests.
    packages
        Files or folders that can be imported inside, beside the environment's: by default the helper package.
    prepare
        A request that the server itself answers once, before it serves.
    walls
        False runs submissions without any sandbox, with the grader's own rights: for submissions that are trusted.
    kernel
        Its children are Jupyter kernels, which `child` makes; there are no jobs.

    Raises
    ------
    SandboxError
        On entering: a wall cannot be built on this machine.
    ServerError
        On entering: an import failed, for example.

    Examples
    --------
    >>> with ForkServer(preload=["numpy"], answer=None) as server:
    ...     server.run(Job(cells=[("a", "1 / 0")])).cells[0].error
    'ZeroDivisionError'
    """

    def __init__(
        self,
        preload: Sequence[str] = PRELOAD,
        limits: Limits | None = None,
        answer: str | None = "underhood.remote.answer",
        packages: Sequence[Path] = (UNDERHOOD,),
        prepare: Mapping[str, Any] | None = None,
        walls: bool = True,
        kernel: bool = False,
    ) -> None:
        self.limits = limits or Limits()
        self._preload, self._answer, self._packages, self.walls = tuple(preload), answer, tuple(packages), walls
        self._prepare, self._kernel = prepare, kernel
        self._lock = threading.Lock()
        self._generation, self._open = 0, False
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self.exact_memory = False  # whether a cgroup limits memory; known after the start

    def __enter__(self) -> ForkServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and prove with one empty child that every wall can be built."""
        if self.walls and sys.platform != "linux":
            raise SandboxError("namespaces", f"they are Linux's, and this system is {sys.platform}")
        with self._lock:
            self._open = True
        progress = _Progress()
        for attempt in range(3):
            try:
                with self._lock:
                    if not self._open:
                        raise ServerError("the fork server is closed")
                    self._start()
                child = self._child(progress)
                self.exact_memory = child.exact_memory
                child.close()
                return
            except (_Died, _ServerGone, _Struck):  # somebody killed it, or the machine did for want of memory
                with self._lock:
                    self._stop()
                if attempt == 2:
                    self.close()
                    raise ServerError("the warm server ended during its start, three times") from None
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End the server; its children end with it."""
        with self._lock:
            self._open = False
            self._stop()

    # --- the server ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()
        settings = {
            "limits": dataclasses.asdict(self.limits),
            "preload": self._preload,
            "answer": self._answer,
            "prepare": self._prepare,
            "walls": self.walls,
            "kernel": self._kernel,
        }
        command = [sys.executable, "-s", "-m", "autograder.warm", str(theirs.fileno()), json.dumps(settings)]
        environment = {name: "1" for name in THREAD_VARIABLES} | {
            "LANG": "C.UTF-8", "MPLBACKEND": "Agg", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
            "UNDERHOOD_GRADING": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }  # fmt: skip
        files = ["warm.py", "sandbox.py"]
        if self._kernel:  # somebody looks at its figures, and at its demonstrations
            environment["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
            del environment["UNDERHOOD_GRADING"]
            files.append("kernel.py")
        descriptors = [theirs.fileno()]
        passwd = None
        if self.walls:
            # Only these files of the grader: none is secret, and nothing else of it exists inside.
            packages = {f"autograder/{name}": HERE / name for name in files}
            packages |= {path.name: path for path in self._packages}
            environment |= {
                "HOME": sandbox.HOME,
                "PATH": f"{sandbox.inside(sys.prefix)}/bin:/usr/bin:/bin",
                "PYTHONPATH": sandbox.SITE,
            }
            passwd = tempfile.TemporaryFile()
            passwd.write(f"learner:x:{sandbox.NOBODY}:{sandbox.NOBODY}::{sandbox.HOME}:/bin/sh\n".encode())
            passwd.seek(0)
            descriptors.append(passwd.fileno())
            command = sandbox.bubblewrap(command, packages, environment, passwd.fileno())
        else:
            paths = dict.fromkeys(str(path.resolve().parent) for path in (*self._packages, HERE))
            environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)}
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=environment,
                start_new_session=True,  # the terminal's Ctrl-C is for the grader
            )
        finally:
            theirs.close()
            if passwd is not None:
                passwd.close()
        self._control = ours
        message = _first_line(ours, START_SECONDS)
        if message is None or "ready" not in message:
            self._stop()
            if message and "wall" in message:
                raise SandboxError(str(message["wall"]), str(message["why"]))
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip()
            if said.startswith("bwrap:"):
                raise SandboxError("bubblewrap", said[:2000] + sandbox.remedy())
            if message is None and not said:
                raise _Died("the warm server ended without a word before it was ready")
            raise ServerError(f"the warm server did not start: {message.get('error') if message else said[-2000:]}")
        errors.close()
        self._generation += 1

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()  # the server reads the end of file and ends, and its namespaces with it
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                for pid in reversed(sandbox.descendants(self._process.pid)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._process.wait()
            self._process = None

    def _gone(self, generation: int) -> bool:
        """Whether the server that made a child has died: asked when the child ended, so it may be a moment away."""
        with self._lock:
            if self._generation != generation or self._control is None or self._process is None:
                return True
            poll = select.poll()
            poll.register(self._control, select.POLLRDHUP if hasattr(select, "POLLRDHUP") else select.POLLHUP)
            return bool(poll.poll(100)) or self._process.poll() is not None

    def _restart(self, generation: int) -> None:
        with self._lock:
            for attempt in range(3):
                if not self._open:
                    raise ServerError("the fork server is closed")
                if self._generation != generation:
                    return  # another thread was faster
                self._stop()
                try:
                    self._start()
                except ServerError:
                    if attempt == 2:
                        raise

    def child(self, listeners: Sequence[int]) -> _Child:
        """Fork a Jupyter kernel that accepts connections on these descriptors, behind its walls and ready for `serve`."""
        for _ in range(3):
            generation = self._generation
            try:
                return self._child(listeners=listeners)
            except _ServerGone:
                self._restart(generation)
            except _Struck:
                pass
        raise ServerError("a kernel ended before it was ready, three times")

    def _child(self, progress: _Progress | None = None, listeners: Sequence[int] = ()) -> _Child:
        with self._lock:
            control, generation = self._control, self._generation
            if not self._open:
                raise ServerError("the fork server is closed")
            if control is None or self._process is None or self._process.poll() is not None:
                raise _ServerGone
            channel, theirs = socket.socketpair()
            if hasattr(socket, "SO_PASSCRED"):
                channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            output, output_theirs = os.pipe()
            until = time.monotonic() + START_SECONDS
            try:
                while True:
                    try:
                        socket.send_fds(control, [b"j"], [theirs.fileno(), output_theirs, *listeners])
                        break
                    except (
                        OSError
                    ) as error:  # a submission may hold what the kernel counts by user, as long as it lives
                        if error.errno not in (errno.ETOOMANYREFS, errno.ENOBUFS) or time.monotonic() > until:
                            raise
                    time.sleep(0.05)
            except OSError:
                channel.close()
                os.close(output)
                raise _ServerGone from None
            finally:
                theirs.close()
                os.close(output_theirs)
        child = _Child(channel, output, self.limits, generation, self.walls)
        try:
            child.wait_until_ready()
        except _End as end:
            said = child.output()[0]
            child.close()
            self._blame(child, end, "the start", progress or _Progress())
            raise ServerError(f"a child of the warm server ended before it was ready: {said[-2000:]}") from None
        except BaseException:
            child.close()
            raise
        return child

    # --- a job --------------------------------------------------------------------------------------------------------

    def run(self, job: Job) -> Result:
        """Run a job's cells and put its requests, in as many children as it takes.

        A cell or request that ends its child is left out in the next one, so what the others earn is kept; where the
        child was killed, perhaps from outside, it first gets a second try.

        Raises
        ------
        ServerError
            The server died under this job more than `MAX_DEATHS` times, or cannot be started again.
        """
        begin = time.monotonic()
        deadline = begin + self.limits.job_seconds
        progress = _Progress()
        attempts, deaths = 0, 0
        while attempts <= self.limits.retries and time.monotonic() < deadline:
            generation = self._generation
            try:
                attempts += 1
                if self._attempt(job, progress, deadline):
                    break
            except _ServerGone:
                attempts, deaths = attempts - 1, deaths + 1
                if deaths > MAX_DEATHS:
                    raise ServerError(
                        "the warm server died under a job, and so did those started in its place"
                    ) from None
                self._restart(generation)
            except _Struck:
                attempts -= 1
        return self._result(job, progress, attempts, begin, deadline)

    def _attempt(self, job: Job, progress: _Progress, deadline: float) -> bool:
        """Whether everything was asked: one child's life."""
        limits = self.limits
        child = self._child(progress)
        try:
            child.ask({"seed": job.seed}, limits.request_seconds)
            if job.before is not None and progress.before is None:
                progress.before, alive = self._put(child, job.before, deadline, "reading the code", progress)
                if not alive:
                    return False
            for id_, source in job.cells:
                if id_ not in progress.skip:
                    self._run_cell(child, id_, source, progress, deadline)
                    if id_ in progress.skip or time.monotonic() > deadline:
                        return False
                for index in job.early.get(id_, ()):
                    if index not in progress.early:
                        what, request = f"request {index + 1}", (job.early_requests or job.requests)[index]
                        progress.early[index], alive = self._put(child, request, deadline, what, progress)
                        # Asking again what used up its time, or ended the process, would cost the others theirs.
                        if progress.early[index].reason not in ("", "error") or job.settled(
                            index, progress.early[index]
                        ):
                            progress.answers[index] = progress.early[index]
                        if not alive or time.monotonic() > deadline:
                            return False
            for index, request in enumerate(job.requests):
                if index not in progress.answers:
                    progress.answers[index], alive = self._put(
                        child, request, deadline, f"request {index + 1}", progress
                    )
                    if not alive or time.monotonic() > deadline:
                        return False
            return True
        except _End as end:
            self._blame(child, end, "the start", progress)
            progress.events.append(("the start", end.reason))
            return False
        finally:
            child.close()
            progress.peak = max(progress.peak, child.peak)
            progress.cpu += child.cpu

    def _run_cell(self, child: _Child, id_: str, source: str, progress: _Progress, deadline: float) -> None:
        """Run one cell and note what became of it; one that ended its process is left out from now on."""
        # A cell that was interrupted once will be again: not worth the whole wait.
        seconds = self.limits.cell_seconds / (10 if id_ in progress.slow else 1)
        begin = time.monotonic()
        try:
            reply, late = child.ask({"cell": source}, min(seconds, deadline - begin))
            outcome = "timeout" if late else "error" if reply["error"] else "ok"
            error, message = reply["error"] or ("", "")
        except _End as end:
            self._blame(child, end, f"cell {id_}", progress)
            outcome, error, message = end.reason, "", ""
            progress.skip.add(id_)
        if outcome == "timeout":
            progress.slow.add(id_)
        output, truncated = child.output()
        room = self.limits.kept_in_all_bytes - sum(len(cell.output) for cell in progress.cells.values())
        output, truncated = output[: max(room, 0)], truncated or len(output) > room
        if id_ not in progress.cells or progress.cells[id_].outcome in ("ok", "error"):
            progress.cells[id_] = CellResult(id_, outcome, error, message, output, truncated, time.monotonic() - begin)
            if outcome not in ("ok", "error"):
                progress.events.append((f"cell {id_}", outcome))

    def _put(
        self, child: _Child, request: Mapping[str, Any], deadline: float, what: str, progress: _Progress
    ) -> tuple[Answer, bool]:
        """Put one request; returns the answer, and whether the child still lives."""
        begin, alive = time.monotonic(), True
        try:
            reply, late = child.ask({"request": dict(request)}, min(self.limits.request_seconds, deadline - begin))
            value, reason, message = reply.get("answer"), "", ""
            progress.replies += child.replied
            if late or reply["error"] or value is None:
                value, reason = None, "timeout" if late else "error"
                message = ": ".join(reply["error"] or ())
            elif progress.replies > MAX_REPLIES:
                value, reason = None, "output"
            child.output()  # thrown away: it may hold the inputs of hidden cases
        except _End as end:
            self._blame(child, end, what, progress)
            value, reason, message, alive = None, end.reason, "", False
        if reason not in ("", "error"):
            progress.events.append((what, reason))
        return Answer(value, reason, message, time.monotonic() - begin), alive

    def _blame(self, child: _Child, end: _End, what: str, progress: _Progress) -> None:
        """Pass, unless the child ended because the server did, or may have been killed from outside."""
        if end.reason != "killed":
            return
        if self._gone(child.generation):
            raise _ServerGone from None
        if what not in progress.struck:
            progress.struck.add(what)
            raise _Struck from None

    def _result(self, job: Job, progress: _Progress, attempts: int, begin: float, deadline: float) -> Result:
        late = time.monotonic() > deadline
        left = "timeout" if late else "retries"
        cells = tuple(progress.cells.get(id_) or CellResult(id_, "not run") for id_, _ in job.cells)
        answers = tuple(progress.answers.get(i) or Answer(None, left) for i in range(len(job.requests)))
        events = list(progress.events)
        if late:
            events.append(("the whole submission", "timeout"))
        elif any(answer.reason == "retries" for answer in answers):
            events.append(("the rest", "retries"))
        return Result(
            cells,
            answers,
            tuple(sorted({reason for _, reason in events})),
            "; ".join(f"{what} {SENTENCES[reason]}" for what, reason in events),
            progress.before,
            dict(progress.early),
            attempts,
            time.monotonic() - begin,
            progress.peak,
            progress.cpu,
        )


class _Child:
    """One forked process, and the watch over it."""

    def __init__(self, channel: socket.socket, output: int, limits: Limits, generation: int, walls: bool) -> None:
        self._channel, self._output, self._limits, self.generation = channel, output, limits, generation
        self._walls = walls
        channel.setblocking(False)
        os.set_blocking(output, False)
        self._received = bytearray()
        self._tokens: set[str] = set()
        self._kept, self._printed, self._printed_now = bytearray(), 0, 0
        self._pid, self._handle = 0, -1
        self._closing = threading.Lock()
        self._cgroup: Cgroup | None = None
        self._at_start, self.peak, self._next_check, self._next_look = 0, 0, 0.0, 0.0
        self.cpu, self.replied, self.repeated, self._crowded = 0.0, 0, 0, 0.0
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._poll.register(output, select.POLLIN)

    def wait_until_ready(self) -> None:
        """Learn its process id from the kernel, which translates it out of the sandbox's namespace; limit its memory.

        Raises
        ------
        SandboxError
            The child could not build a wall.
        """
        deadline = time.monotonic() + START_SECONDS
        while b"\n" not in self._received:
            if not self._poll.poll(max(0, deadline - time.monotonic()) * 1000):
                raise _End("timeout")
            self._read_output()
            with contextlib.suppress(BlockingIOError):
                data, extra, _, _ = self._channel.recvmsg(65536, socket.CMSG_SPACE(12))
                if not data:
                    raise _End("killed")
                self._received += data
                for level, kind, value in extra:
                    if (level, kind) == (socket.SOL_SOCKET, getattr(socket, "SCM_CREDENTIALS", None)):
                        self._pid = struct.unpack("3i", value[:12])[0]
        message = _parse(bytes(self._received))
        self._received.clear()
        if message and "wall" in message:
            raise SandboxError(str(message["wall"]), str(message["why"]))
        if not self._walls and message:  # what is trusted may say its own number, where the kernel does not
            self._pid = self._pid or int(message.get("ready", 0))
        if not message or "ready" not in message or not self._pid:
            raise _End("killed")
        with contextlib.suppress(OSError):
            self._handle = os.pidfd_open(self._pid) if hasattr(os, "pidfd_open") else -1
        if self._walls:
            self._cgroup = Cgroup.create(self._limits.memory_bytes)
            if self._cgroup is not None:
                with contextlib.suppress(OSError):  # it has died already: the first question will tell
                    self._cgroup.add(self._pid)
        if self._cgroup is None:
            self._at_start = sandbox.memory_in_use(self._pid, limit=1 << 60)
        self.output()

    @property
    def exact_memory(self) -> bool:
        """Whether a cgroup limits it."""
        return self._cgroup is not None

    def ask(self, message: dict, seconds: float) -> tuple[dict, bool]:
        """Send a message and wait for the reply that carries its token.

        Returns
        -------
        tuple
            The reply, and whether it had to be interrupted to get one.

        Raises
        ------
        _End
            The child is over; it has been killed if it was not dead.
        """
        token = secrets.token_hex(8)
        self._tokens.add(token)
        sending = memoryview(json.dumps({"token": token, **message}).encode() + b"\n")
        most = self._limits.reply_bytes if "request" in message else MAX_CELL_REPLY
        deadline, late, searched = time.monotonic() + seconds, False, 0
        while True:
            end = self._received.find(b"\n", searched)
            searched = len(self._received)
            if (end if end >= 0 else searched) > most:
                self._end("output")
            if end < 0:  # nothing is read while a line waits, so that no more than a line is held
                self._poll.modify(self._channel, select.POLLIN | (select.POLLOUT if sending else 0))
                wait = deadline - time.monotonic()
                if wait <= 0:
                    if late:
                        self._end("timeout")
                    late, deadline = True, time.monotonic() + self._limits.grace_seconds
                    self._signal(signal.SIGINT)
                    continue
                for descriptor, event in self._poll.poll(min(wait, MEMORY_CHECK_SECONDS) * 1000):
                    if descriptor == self._output:
                        self._read_output()
                    elif event & select.POLLOUT and sending:
                        sending = self._send(sending)
                    if descriptor != self._output and event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                        self._receive()
                self._watch_memory()
                self._watch_crowd()
                continue
            line = bytes(self._received[:end])
            reply, self.replied = _parse(line), end + 64 * _structure(line)
            del self._received[: end + 1]
            searched = 0
            if _is_reply(reply, self._tokens) and reply["token"] != token:
                self.repeated += self.replied + 1000  # a short one takes its time, too
                if self.repeated > self._limits.reply_bytes:
                    self._end("output")
                continue  # a process that the submission forked said the same once more
            if not _is_reply(reply, {token}) or sending:
                self._end("garbage")
            self._drain()
            return reply, late

    def serve(self, answer: Callable[[dict, float], dict], seconds: float) -> str:
        """Watch a Jupyter kernel and answer its questions, JSON lines, until it is over.

        Parameters
        ----------
        answer
            Question, and the seconds that it may take, → answer; the question is untrusted.
        seconds
            How long it may live.

        Returns
        -------
        str
            Why it is over: "killed" where it ended by itself or was killed by `stop`, else as in `SENTENCES`.
        """
        deadline, searched, rest = time.monotonic() + seconds, 0, 0.0
        try:
            while True:
                resting = time.monotonic() < rest
                wait = MEMORY_CHECK_SECONDS if self._cgroup is None or resting else 1.0
                self._poll.modify(self._channel, 0 if resting else select.POLLIN)
                for descriptor, _ in self._poll.poll(wait * 1000 if resting or searched == len(self._received) else 0):
                    if descriptor == self._output:
                        self._read_output()
                    elif resting:
                        rest = 0.0  # it hung up
                    else:
                        self._receive()
                self._watch_memory()
                self._watch_crowd()
                if time.monotonic() > deadline:
                    self._end("timeout")
                if resting:
                    continue
                if len(self._received) > self._limits.reply_bytes:
                    self._end("output")
                end = self._received.find(b"\n", searched)
                searched = len(self._received) if end < 0 else 0
                if end >= 0:
                    rest = time.monotonic() + end / QUESTION_RATE
                    question = _parse(bytes(self._received[:end]))
                    del self._received[: end + 1]
                    if question is None:
                        self._end("garbage")
                    self.tell(answer(question, deadline - time.monotonic()), deadline)
        except _End as end:
            return end.reason

    def tell(self, message: dict, until: float = math.inf) -> None:
        """Send a line that nobody answers; a kernel that has not read it after ten seconds, or at `until`, is over."""
        sending = memoryview(json.dumps(message).encode() + b"\n")
        until = min(until, time.monotonic() + 10)
        poll = select.poll()
        poll.register(self._channel, select.POLLOUT)
        while sending:
            if time.monotonic() > until:
                self._end("timeout")
            poll.poll(MEMORY_CHECK_SECONDS * 1000)
            self._watch_memory()
            sending = self._send(sending)

    def _send(self, line: memoryview) -> memoryview:
        """Send what the channel takes now; what is left."""
        try:
            return line[self._channel.send(line) :]
        except BlockingIOError:
            return line
        except OSError:
            self._end("killed")

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._signal(signal.SIGINT)

    def stop(self) -> None:
        """Kill it, from any thread; `close` frees what stands for it."""
        self._signal(signal.SIGKILL)

    def _receive(self) -> None:
        try:
            data = self._channel.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end("memory" if self._cgroup is not None and self._cgroup.killed() else "killed")
        self._received += data

    def _read_output(self) -> int:
        try:
            data = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return 0
        if not data:  # it closed its ends, which it may
            with contextlib.suppress(KeyError):
                self._poll.unregister(self._output)
            return 0
        room = self._limits.kept_output_bytes - len(self._kept)
        self._kept += data[: max(room, 0)]
        self._printed += len(data)
        self._printed_now += len(data)
        if self._printed > self._limits.output_bytes:
            self._end("output")
        return len(data)

    def _drain(self) -> None:
        """What it printed before the reply is in the pipe by now: at most the pipe's size, so this ends."""
        for _ in range(16):
            if not self._read_output():
                return

    def output(self) -> tuple[str, bool]:
        """What was printed since the last call, and whether more was thrown away."""
        text, truncated = self._kept.decode("utf-8", "replace"), self._printed_now > len(self._kept)
        self._kept.clear()
        self._printed_now = 0
        return text, truncated

    def _watch_memory(self) -> None:
        """Without a cgroup: look every 50 ms."""
        now = time.monotonic()
        if self._cgroup is not None or not self._walls or now < self._next_check:
            return
        self._next_check = now + MEMORY_CHECK_SECONDS
        used = sandbox.memory_in_use(self._pid, self._at_start, self._limits.memory_bytes)
        self.peak = max(self.peak, used)
        if used > self._limits.memory_bytes:
            self._end("memory")

    def _watch_crowd(self) -> None:
        now = time.monotonic()
        if self._walls and now >= self._next_look:
            self._next_look = now + CROWD_CHECK_SECONDS
            self._crowded = 0.9 * self._crowded + sandbox.stand_back(self._pid)
            if self._crowded > CROWD:  # they live too short to be told: from now on they are born so
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, self._pid, 19)

    def _signal(self, number: int) -> None:
        with self._closing, contextlib.suppress(ProcessLookupError):  # once closed, its numbers are others'
            if self._handle >= 0:
                signal.pidfd_send_signal(self._handle, number)  # never another process that got the same number
            elif self._pid:
                os.kill(self._pid, number)

    def _end(self, reason: str) -> NoReturn:
        self._kill()
        raise _End(reason)

    def _kill(self) -> None:
        self.cpu = max(self.cpu, sandbox.cpu_seconds(self._pid) if self._pid else 0.0)
        self._signal(signal.SIGKILL)  # the init of its pid namespace: everything in there dies with it
        if not self._walls and self._pid:
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it, wait until it is dead, and free what stands for it."""
        if self._channel.fileno() < 0:
            return
        self._kill()
        if self._handle >= 0:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            poll.poll(5000)
        with self._closing:
            if self._handle >= 0:
                os.close(self._handle)
            self._handle, self._pid = -1, 0
        self._channel.close()
        os.close(self._output)
        if self._cgroup is not None:
            self.peak = max(self.peak, self._cgroup.peak())
            self._cgroup.remove()


# --- what comes back --------------------------------------------------------------------------------------------------


def _parse(line: bytes) -> dict | None:
    """The JSON object in a line from a child, or None: never an exception, never more memory than a multiple of its size."""
    if _structure(line) > MAX_STRUCTURE or not line.isascii():
        return None
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if type(value) is not dict:
        return None
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        for outer in level:
            texts = (inner for inner in (outer.values() if type(outer) is dict else outer) if type(inner) is str)
            if any(len(text) > MAX_LINE and not text.isascii() for text in texts):
                return None  # four bytes a character
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in (dict, list)
        ]
        if not level:
            return value
    return None


def _structure(line: bytes) -> int:
    """What decides the memory that parsed JSON takes, beside its length."""
    return sum(line.count(mark) for mark in (b",", b"[", b"{"))


def _is_reply(reply: dict | None, tokens: Set[str]) -> TypeGuard[dict]:
    """Whether a reply has the form that `warm` gives it, and the token of one of these questions."""
    token = reply.get("token") if reply else None
    if (
        reply is None
        or type(token) is not str
        or token not in tokens
        or not reply.keys() <= {"token", "error", "answer"}
    ):
        return False
    error = reply.get("error", "")
    good_error = error is None or (type(error) is list and len(error) == 2 and all(type(text) is str for text in error))
    return good_error and type(reply.get("answer", {})) is dict


def _first_line(connection: socket.socket, seconds: float) -> dict | None:
    """The server's first message, or None where it ended or stayed silent."""
    received = bytearray()
    connection.settimeout(seconds)
    try:
        while b"\n" not in received:
            data = connection.recv(65536)
            if not data:
                return None
            received += data
    except OSError:
        return None
    finally:
        connection.settimeout(None)
    return _parse(bytes(received))
