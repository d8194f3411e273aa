"""A Jupyter kernel in a child of the warm server: everything of it that runs inside the sandbox.

Jupyter's five sockets are made outside, in a folder that does not exist in here, and arrive as open descriptors: the kernel
accepts connections on them, and its network namespace stays empty.

`check(name, hidden=True)` finds this module under the name of the judge, which is not in here either: the question goes
over the channel to the judge outside (`provisioner`), inputs come in, values go out, a verdict comes back.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
from typing import Any

import ipykernel.zmqshell  # noqa: F401 - imported before the fork
import zmq
from ipykernel.heartbeat import Heartbeat
from ipykernel.kernelapp import IPKernelApp

from underhood.remote import answer
from underhood.verdict import Part, Verdict

from .warm import reseed

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")  # in the order of their descriptors
CONNECTION_FILE = "/tmp/kernel.json"

_tokens = itertools.count()
_channel: Any = None  # the line-wise channel to the grader


class _Heartbeat(Heartbeat):
    """The heartbeat on a socket that listens already."""

    listener: int

    def _try_bind_socket(self) -> Any:
        self.socket.setsockopt(zmq.USE_FD, self.listener)
        return super()._try_bind_socket()


class App(IPKernelApp):
    """ipykernel's application on sockets that listen already; their numbers are the ports."""

    listeners: list[int]

    def _try_bind_socket(self, s: zmq.Socket, port: int) -> int:
        s.setsockopt(zmq.USE_FD, self.listeners[port - 1])
        return super()._try_bind_socket(s, port)

    def init_control(self, context: zmq.Context) -> None:
        super().init_control(context)
        # The debugger's way to the kernel would look for a file that is not in here, for ever.
        self.debug_shell_socket.disconnect(self.shell_socket.getsockopt(zmq.LAST_ENDPOINT))

    def init_heartbeat(self) -> None:
        self.heartbeat = _Heartbeat(zmq.Context(), (self.transport, self.ip, self.hb_port))
        self.heartbeat.listener = self.listeners[self.hb_port - 1]
        self.heartbeat.start()


def serve(connection: socket.socket, listeners: list[int]) -> None:
    """Be a kernel until Jupyter shuts it down. The channel's first line is `{"key": …, "environment": {…}}`."""
    global _channel
    _channel = connection.makefile("rwb")
    first = _channel.readline()
    if not first:
        return
    given = json.loads(first)
    os.environ.update(given["environment"])
    reseed(int.from_bytes(os.urandom(4)))  # or all kernels drew the same random numbers
    sys.modules["autograder.judge"] = sys.modules[__name__]
    info: dict[str, Any] = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
    info |= {"transport": "ipc", "ip": "/tmp/kernel", "key": given["key"], "signature_scheme": "hmac-sha256"}
    with open(CONNECTION_FILE, "w") as file:
        json.dump(info, file)
    app = App.instance(log_level=50)  # its words about a connection file mean nothing outside
    app.listeners = listeners
    app.initialize(["-f", CONNECTION_FILE, "--HistoryManager.enabled=False"])
    app.start()
    app.close()


def judge_in_notebook(name: str, fn: Any, namespace: dict[str, Any]) -> Verdict:
    """What `check(name, hidden=True)` calls: has the answer judged outside.

    Raises
    ------
    RuntimeError
        The judge knows no such exercise, or cannot be reached: an error is zero points.
    """
    token = next(_tokens)
    request = _ask({"token": token, "exercise": name})["request"]
    seen = answer(request, namespace if fn is None else {**namespace, name: fn})
    verdict = _ask({"token": token, "exercise": name, "answer": seen})["verdict"]
    parts = tuple(Part(**{**part, "lines": tuple(part["lines"])}) for part in verdict["results"])
    return Verdict(verdict["name"], parts, tuple(verdict["notes"]), verdict["mistake"])


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    _channel.write(json.dumps(question).encode() + b"\n")
    _channel.flush()
    while line := _channel.readline():
        said = json.loads(line)
        if said["token"] == question["token"]:  # not the answer to a question that was interrupted
            if "error" in said:
                raise RuntimeError(said["error"])
            return said
    raise RuntimeError("The judge cannot be reached.")
