"""The warm server and its children: everything that runs inside the sandbox.

Started by `forkserver.ForkServer` as a program. It imports the libraries once, asserts that it has one thread, then waits for
jobs. For each it receives two descriptors over its control socket: the child's end of a channel, and the pipe that
takes what the child prints. The child builds its walls (`sandbox.enter`), says that it is ready, and answers the
grader's messages one by one, a JSON line each (a Jupyter kernel receives its listening sockets too: see `kernel`):

    {"token": …, "cell": source}      → {"token": …, "error": null or [type, message]}
    {"token": …, "request": {…}}      → {"token": …, "answer": {…}} or {"token": …, "error": [type, message]}

Nothing that a child says is believed: `forkserver` validates it, and the judge compares values in its own process.
"""

from __future__ import annotations

import builtins
import functools
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from . import sandbox

KERNEL = "autograder.kernel"  # what a child becomes that serves Jupyter instead of the grader's messages
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
TEXT = 2000  # characters of an error message that are passed on


def main() -> None:
    """`python -m autograder.warm DESCRIPTOR SETTINGS`: serve until the control socket closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    settings = json.loads(sys.argv[2])
    try:
        limits = sandbox.Limits(**settings["limits"])
        walls = None
        if settings["walls"]:
            walls = sandbox.settle(), sandbox.Filter()
        answer = warm_up(settings["preload"], settings["answer"])
        if answer is not None and settings["prepare"] is not None:
            answer(settings["prepare"], {})
        shell = None
        if settings["kernel"]:
            importlib.import_module(KERNEL)
        else:
            shell = make_shell()
        threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
        if threads != 1:
            # A lock that another thread holds at the fork stays locked in the child for ever.
            raise RuntimeError(f"{threads} threads after the imports; a fork is safe with one only")
    except sandbox.SandboxError as error:
        report(control, {"wall": error.wall, "why": error.why})
        return
    except BaseException as error:
        report(control, {"error": f"{type(error).__name__}: {error}"[:TEXT]})
        raise
    # What lives now lives for ever: the collector of a child need not visit it, so its pages stay shared.
    gc.collect()
    gc.freeze()
    report(control, {"ready": os.getpid()})
    serve(control, limits, walls, answer, shell)


def warm_up(preload: list[str], answer: str | None) -> Callable[[dict, dict], dict] | None:
    """Import the modules, and find the function that answers requests."""
    missing = [name for name in THREAD_VARIABLES if os.environ.get(name) != "1"]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} must be 1 before the first import")
    for name in preload:
        importlib.import_module(name)
    if answer is None:
        return None
    module, _, function = answer.rpartition(".")
    return getattr(importlib.import_module(module), function)


def make_shell() -> Any:
    """An IPython shell that writes nothing to disk, starts no thread and no event loop."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Minimal"
    config.InteractiveShell.enable_tip = False

    class Shell(InteractiveShell):
        def enable_gui(self, gui: str | None = None) -> None:
            """`%matplotlib …` needs no event loop here."""

    # `instance` of the base class, so that get_ipython() and display() find it.
    shell = Shell.instance(config=config)
    shell.run_cell("pass", store_history=False)  # its lazy imports, once
    return shell


def serve(
    control: socket.socket, limits: sandbox.Limits, walls: tuple[int, sandbox.Filter] | None, answer: Any, shell: Any
) -> None:
    """Fork a child per job, until the other end of `control` is closed."""
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        byte, descriptors, _, _ = socket.recv_fds(control, 1, 16)
        if not byte:
            return
        if (sandbox.fork(walls[0]) if walls else os.fork()) == 0:
            _child(descriptors, limits, walls and walls[1], answer, shell)
        for descriptor in descriptors:
            os.close(descriptor)


def _reap(*_: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def report(channel: socket.socket, message: dict) -> None:
    """Send one JSON line."""
    channel.sendall(json.dumps(message).encode() + b"\n")


def _child(
    descriptors: list[int], limits: sandbox.Limits, filter_: sandbox.Filter | None, answer: Any, shell: Any
) -> None:
    """Never returns. The descriptors: the channel, the pipe for what is printed, a kernel's listening sockets."""
    channel, output, *listeners = descriptors
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _print_to(output)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        connection = socket.socket(fileno=channel)
        if filter_ is not None:
            try:
                sandbox.enter(limits, filter_, keep=(0, 1, 2, *descriptors))
            except sandbox.SandboxError as error:
                report(connection, {"wall": error.wall, "why": error.why})
                return
        else:
            os.setsid()
            sandbox.die_with_parent()
            sandbox.close_all_but((0, 1, 2, *descriptors))
        report(connection, {"ready": os.getpid()})
        if shell is None:
            sys.modules[KERNEL].serve(connection, listeners)
        else:
            _converse(connection, output, answer, shell)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        pass


def _print_to(output: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)


def _converse(connection: socket.socket, output: int, answer: Any, shell: Any) -> None:
    """Do what the grader says, one line at a time, until it hangs up.

    A submission may leave anything behind: what this needs is held in local names and put back before each step. That is
    fairness, not a wall: code that looks for these names finds them.
    """
    streams = sys.stdout, sys.stderr
    interrupt, dumps, loads = signal.default_int_handler, json.dumps, json.loads
    set_handler, recursion = signal.signal, sys.getrecursionlimit()
    lines = connection.makefile("rb")
    # A process that the submission forks must not answer as well: it hears nothing more, and ends.
    os.register_at_fork(after_in_child=functools.partial(_close, connection.fileno()))
    built_in, standing = vars(builtins), vars(builtins).copy()
    package = answer.__module__.split(".")[0] if answer else ""
    helpers = [m for name, m in list(sys.modules.items()) if package and name.split(".")[0] == package]
    kept = [(vars(module), vars(module).copy()) for module in helpers]
    bodies = [
        (value, value.__code__, value.__defaults__, value.__kwdefaults__)
        for _, names in kept for value in names.values() if isinstance(value, types.FunctionType)
    ]  # fmt: skip
    while True:
        line = lines.readline()
        if not line:
            return
        message = loads(line)
        _print_to(output)
        reply: dict[str, Any] = {"token": message["token"], "error": None}
        try:
            try:
                set_handler(signal.SIGINT, interrupt)
                if "seed" in message:
                    reseed(message["seed"])
                elif "cell" in message:
                    result = shell.run_cell(message["cell"], store_history=False)
                    error = result.error_before_exec or result.error_in_exec
                    reply["error"] = error and describe(error)
                else:
                    for names, copy in kept:
                        names.update(copy)
                    for function, code, defaults, by_name in bodies:
                        function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, by_name
                    reply["answer"] = answer(message["request"], shell.user_ns)
            finally:
                built_in.update(standing)
                set_handler(signal.SIGINT, signal.SIG_IGN)
        except BaseException as error:  # of a probe, or an interrupt that came between
            reply["error"] = describe(error)
        sys.setrecursionlimit(recursion)
        for stream in (sys.stdout, sys.stderr, *streams):
            try:
                stream.flush()
            except BaseException:  # a stream that the submission made or closed
                pass
        sys.stdout, sys.stderr = streams
        try:
            text = dumps(reply)
        except BaseException as error:
            text = dumps({"token": message["token"], "error": describe(error)})
        connection.sendall(text.encode() + b"\n")


def describe(error: BaseException) -> list[str]:
    """An exception's class name and message, whatever its own methods do."""
    try:
        message = str(error)[:TEXT]
    except BaseException:
        message = ""
    return [type.__getattribute__(type(error), "__name__")[:TEXT], message.encode("utf-8", "replace").decode()]


def reseed(seed: int) -> None:
    """The same random numbers for every submission and every regrade: Python's, NumPy's and PyTorch's, where imported."""
    import random

    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


if __name__ == "__main__":
    main()
