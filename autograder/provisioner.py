"""Sandboxed kernels for Jupyter: nbgrader's own commands and JupyterLab run a notebook behind the grader's walls.

`SandboxProvisioner` is published under the name `underhood-sandbox` in the entry point group
`jupyter_client.kernel_provisioners`; the kernel of the same name, which `install` writes, asks for it. Its kernels are forked
from one warm server a process (`forkserver`, `warm`), each behind both rings of walls (`sandbox`); `kernel` is what runs
inside.

Outside stay Jupyter's five sockets, in a folder of the user's own, and the judge: what a hidden check asks comes here over the
kernel's channel, and goes to one process (`python -m autograder.provisioner`) that holds the reference. Points are still what
the notebook shows, so code that forges its own output forges its points: only `python -m autograder grade` does not trust it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import functools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Dict, List, Unicode

from .chapters import ROOT
from .forkserver import PRELOAD, SENTENCES, ForkServer
from .sandbox import Limits

NAME = "underhood-sandbox"
# A kernel lives as long as somebody works in it, or as nbgrader grades: an hour at most. The other limits are the grader's.
LIMITS = Limits(job_seconds=3600.0)
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")  # as in `kernel`
PASSED = (
    "NBGRADER_EXECUTION",
    "NBGRADER_VALIDATING",
)  # of the environment; a deployment's own names may hold a password
IDLE_SECONDS = 300.0  # how long the warm server waits for a next kernel
JUDGE_SECONDS = 30  # for one question
SEED = 0  # of the hidden cases, as for nbgrader's own kernel


# --- the judge, in a process of its own ---------------------------------------------------------------------------------


class Judge:
    """The process that holds the reference; started at the first question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._closed = False

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Ask what `answer` says, from any thread, within so many seconds, waiting for others included."""
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=max(seconds, 0.0)):
            return {"error": "The judge had no time. Run the check again."}
        try:
            for _ in range(0 if self._closed else 2):  # it may have been killed since the last question
                reply = self._exchange(json.dumps(question).encode() + b"\n", deadline)
                if reply:
                    return json.loads(reply)
                self._end()
                if self._closed:
                    break
                if time.monotonic() > deadline:
                    return {"error": "The judge did not answer in time. Run the check again."}
            return {"error": "The judge ended while it was asked. Run the check again."}
        finally:
            self._lock.release()

    def _exchange(self, line: bytes, deadline: float) -> bytes:
        """Its reply, or nothing where it is dead or late."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-m", "autograder.provisioner"],
                cwd=ROOT,  # where -m looks first: Jupyter may stand in a hand-in's folder by now
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True,
            )  # fmt: skip
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        for pipe in (stdin, stdout):
            os.set_blocking(pipe.fileno(), False)
        left, reply = memoryview(line), bytearray()
        poll = select.poll()
        poll.register(stdin, select.POLLOUT)
        poll.register(stdout, select.POLLIN)
        while not reply.endswith(b"\n"):
            ready = dict(poll.poll(max(deadline - time.monotonic(), 0.0) * 1000))
            try:
                if not ready or time.monotonic() > deadline:
                    return b""
                if stdin.fileno() in ready:
                    left = left[stdin.write(left) or 0 :]
                    if not left:
                        poll.unregister(stdin)
                if stdout.fileno() in ready:
                    read = stdout.read(1 << 20)
                    if not read:
                        return b""
                    reply += read
            except OSError:
                return b""
        return bytes(reply)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        """End it, also while it is asked; there is no other after it."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()
        with self._lock:
            self._end()


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the judge says to a kernel's question: first the inputs, then, to the values that they gave, the verdict.

    Parameters
    ----------
    question
        Untrusted: `{"exercise": name}`, or with `"answer"` what `underhood.remote.answer` gives.
    """
    from . import run
    from .chapters import exercise as find

    try:
        exercise = find(str(question.get("exercise"))[:200])
    except ValueError as error:
        return {"error": str(error)}
    if "answer" not in question:
        asked = {request["exercise"]: request for request in run.requests(exercise.chapter, SEED)}
        return {"request": asked[exercise.name]}
    value = question["answer"] if isinstance(question["answer"], dict) else None
    return {"verdict": dataclasses.asdict(run.verdict_on(exercise, value, "error", SEED))}


def main() -> None:
    """`python -m autograder.provisioner`: answer questions, a JSON line each, until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed in here is no reply
    for line in sys.stdin:
        replies.write(json.dumps(answer(json.loads(line))) + "\n")
        replies.flush()


# --- the warm server, one a process -------------------------------------------------------------------------------------


class _Warm:
    """The warm server of one set of limits and imports, and its judge: made by the first kernel, ended after the last."""

    def __init__(self, limits: Limits, preload: tuple[str, ...]) -> None:
        self._server = ForkServer(preload=preload, limits=limits, answer=None, kernel=True)
        self._lock = threading.Lock()
        self._kernels, self._started = 0, False
        self._timer: threading.Timer | None = None
        self.judge = Judge()

    def child(self, listeners: list[int]) -> Any:
        """Fork a kernel's process. Once for each call of this, call `leave`."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._kernels += 1
            try:
                if not self._started:
                    self._server.start()
                    self._started = True
                return self._server.child(listeners)
            except BaseException:
                self._kernels -= 1
                raise

    def leave(self) -> None:
        """A kernel is over."""
        with self._lock:
            self._kernels -= 1
            if self._kernels == 0:
                self._timer = threading.Timer(IDLE_SECONDS, self._rest)
                self._timer.daemon = True
                self._timer.start()

    def _rest(self) -> None:
        with self._lock:
            if self._kernels == 0:
                self.close()

    def close(self) -> None:
        """End the server, and its kernels with it."""
        self._started = False
        self._server.close()
        self.judge.close()
        self.judge = Judge()  # for a kernel after this


_warm: dict[tuple[Limits, tuple[str, ...]], _Warm] = {}
_making = threading.Lock()


def _shared(limits: Limits, preload: tuple[str, ...]) -> _Warm:
    with _making:
        return _warm.setdefault((limits, preload), _Warm(limits, preload))


@atexit.register
def close() -> None:
    """End all warm servers of this process, and their kernels with them."""
    with _making:
        while _warm:
            _warm.popitem()[1].close()


# --- what Jupyter talks to ----------------------------------------------------------------------------------------------


class SandboxProvisioner(KernelProvisionerBase):
    """Starts, watches and ends one sandboxed kernel.

    Raises
    ------
    SandboxError, ServerError
        When a kernel is started: a wall cannot be built on this machine; an import failed.
    """

    limits: Any = Dict(help="What a kernel may use: fields of autograder.sandbox.Limits.").tag(config=True)
    preload: Any = List(Unicode(), list(PRELOAD), help="Modules that the warm server imports once.").tag(config=True)

    _child: Any = None
    _folder: tempfile.TemporaryDirectory | None = None
    _reason = ""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._listeners: list[socket.socket] = []
        self._over = threading.Event()

    @property
    def has_process(self) -> bool:
        """Whether it stands for a kernel."""
        return self._child is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Make the five sockets, and say where they are: at a restart in the same place, where clients look for them."""
        if self._folder is None:
            _sweep()
            self._folder = tempfile.TemporaryDirectory(prefix=f"{NAME}-{os.getpid()}-", dir=_place())
        self._close_sockets()
        for number in range(1, len(CHANNELS) + 1):
            listener = socket.socket(socket.AF_UNIX)
            self._listeners.append(listener)
            listener.bind(f"{self._folder.name}/kernel-{number}")
            listener.listen()
            listener.setblocking(False)
        manager: Any = self.parent
        manager.transport, manager.ip = "ipc", f"{self._folder.name}/kernel"
        for number, name in enumerate(CHANNELS, 1):
            setattr(manager, f"{name}_port", number)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        return await super().pre_launch(cmd=[], **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Fork a kernel from the warm server, which is started where there is none."""
        passed = {name: kwargs["env"][name] for name in PASSED if name in kwargs["env"]}
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._launch, passed)
        except BaseException:
            await self.cleanup()
            raise
        return self.connection_info

    def _launch(self, environment: Mapping[str, str]) -> None:
        # A kernel.json does not tell 2e9 from 2000000000.
        given = {name: type(getattr(LIMITS, name))(number) for name, number in self.limits.items()}
        limits = dataclasses.replace(LIMITS, **given)
        manager: Any = self.parent
        warm = _shared(limits, tuple(self.preload))
        self._child = child = warm.child([listener.fileno() for listener in self._listeners])
        self._over.clear()

        def watch() -> None:
            try:
                child.tell({"key": manager.session.key.decode(), "environment": dict(environment)})
                self._reason = child.serve(functools.partial(_reply, warm.judge), limits.job_seconds)
            except Exception as error:  # it must not live without a watch
                self._reason = "killed"
                self.log.error("The sandboxed kernel lost its watch: %s", error)
            finally:
                self.log.debug("The sandboxed kernel said: %s", child.output()[0])
                child.close()
                warm.leave()
                self._over.set()
                if self._reason != "killed":
                    self.log.error("The sandboxed kernel %s; it was killed.", SENTENCES[self._reason])

        threading.Thread(target=watch, name="sandboxed kernel", daemon=True).start()

    async def poll(self) -> int | None:
        """None while it lives."""
        return 1 if self._child is None or self._over.is_set() else None

    async def wait(self) -> int | None:
        """Wait until it and all its processes are dead."""
        while await self.poll() is None:
            await asyncio.sleep(0.02)
        self._child = None
        return 0

    async def send_signal(self, signum: int) -> None:
        """Interrupt it, or end it: other signals mean nothing to the first process of a pid namespace."""
        if self._child is None:
            return
        if signum == 2:
            self._child.interrupt()
        elif signum:
            self._child.stop()

    async def kill(self, restart: bool = False) -> None:
        """Kill it and all its processes."""
        if self._child is not None:
            self._child.stop()

    async def terminate(self, restart: bool = False) -> None:
        """The same: code that nobody has read is not asked twice."""
        await self.kill(restart)

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the sockets, unless it starts again."""
        self._close_sockets()
        if not restart and self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _close_sockets(self) -> None:
        while self._listeners:
            listener = self._listeners.pop()
            with contextlib.suppress(FileNotFoundError):  # Jupyter may have removed it
                os.unlink(listener.getsockname())
            listener.close()


def _reply(judge: Judge, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The judge's answer, with the question's token."""
    token = question.get("token")
    return {"token": token if type(token) is int else None, **judge.ask(question, min(seconds, JUDGE_SECONDS))}


def _place() -> str:
    """Where folders of sockets are made: the path of a socket has room for 107 characters, and the usual place may be deep."""
    place = tempfile.gettempdir()
    return place if len(place) < 60 else "/tmp"


def _sweep() -> None:
    """Remove the folders of processes that were killed before they could."""
    for path in Path(_place()).glob(f"{NAME}-*-*"):
        if not Path("/proc", path.name.removeprefix(f"{NAME}-").partition("-")[0]).exists():
            shutil.rmtree(path, ignore_errors=True)


# --- the kernel's name ----------------------------------------------------------------------------------------------------


def install(limits: Mapping[str, float], prefix: str) -> Path:
    """Write the kernel `underhood-sandbox` into an environment, and switch jupytext's server extension off there.

    Returns the kernel's folder.

    Parameters
    ----------
    limits
        Those that differ from the usual: name → number.
    prefix
        The environment.
    """
    provisioner = {"provisioner_name": NAME, "config": {"limits": dict(limits)} if limits else {}}
    spec = {
        "argv": [],  # the warm server's child is no program
        "display_name": "Python 3 (sandbox of Under the Hood)",
        "language": "python",
        "metadata": {"kernel_provisioner": provisioner},
    }
    # Or a notebook that somebody opens in JupyterLab is saved to whatever files its metadata names.
    switches = Path(prefix, "etc", "jupyter", "jupyter_server_config.d", "under_the_hood.json")
    switches.parent.mkdir(parents=True, exist_ok=True)
    switches.write_text(json.dumps({"ServerApp": {"jpserver_extensions": {"jupyterlab_jupytext": False}}}) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.json").write_text(json.dumps(spec, indent=1) + "\n")
        return Path(KernelSpecManager().install_kernel_spec(folder, NAME, prefix=prefix))


def remove(prefix: str) -> None:
    """Take the kernel out of an environment, where it is there."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(Path(prefix, "share", "jupyter", "kernels", NAME))


if __name__ == "__main__":
    main()
