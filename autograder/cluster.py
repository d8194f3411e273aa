"""Submissions graded on the workers of a Dask cluster, by the same code as on one machine.

A submission's bytes go to a worker, what was graded comes back; rows, gradebook and journal are written by the process that
was called. Each worker process has a fork server of its own, and so a sandbox of its own, for as long as the run needs it.
What a submission's processes say is parsed by the worker as it is on one machine: nothing of theirs is ever unpickled. What
goes between the workers, the scheduler and the caller is Dask's, which is pickle: all of them must trust each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import pickle
import queue
import secrets
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from . import run
from .chapters import chapters
from .forkserver import ServerError
from .intake import Found, carried
from .run import Graded, Terms
from .sandbox import SandboxError

CONNECT_SECONDS = 10
LOOK_SECONDS = 2.0  # between two looks at whether there still are workers
WORKERLESS_SECONDS = 60.0
IDLE_SECONDS = 600.0  # after which a worker closes what a caller who was killed left behind
AHEAD = 2  # submissions handed out for each thread of the workers: one that it grades, one that waits for it


class ClusterError(RuntimeError):
    """The cluster cannot be used as it is."""


class Unfit(RuntimeError):
    """A worker cannot grade: "sandbox", "server" or "course", its address, the details. Made to survive Dask's pickling."""


# --- on a worker ------------------------------------------------------------------------------------------------------


def here() -> str:
    """This worker's address."""
    from distributed import get_worker

    return get_worker().address


@functools.cache
def as_imported() -> dict[str, str]:
    """`course_digest` of each chapter when this process imported the grader: a pull since then has not reached it."""
    return {chapter: run.course_digest(chapter) for chapter in chapters()}


class Bench:
    """What a worker process keeps for one run: the fork server, and what submissions are compared with."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.given, self.server = terms, run.material(terms.chapter), terms.server()
        if not terms.course == self.given["course"] == as_imported().get(terms.chapter):
            raise Unfit("course", here())
        self._lock = threading.Lock()
        self._started, self._over, self._busy = False, False, 0
        self._timer: threading.Timer | None = None

    def grade(self, found: Found) -> Graded:
        try:
            with self._lock:
                self._busy += 1
                if self._over:
                    raise ServerError("the run is over")
                if not self._started:
                    self.terms.answer()
                    self.server.start()
                    self._started = True
            return run.grade_one(self.terms.chapter, found, self.server, self.terms.seed, self.given)
        except SandboxError as error:
            raise Unfit("sandbox", here(), error.wall, error.why) from None
        except ServerError as error:
            raise Unfit("server", here(), str(error)) from None
        finally:
            with self._lock:
                self._busy -= 1
                self._rest()

    def _rest(self) -> None:
        """Close the server when nobody has needed it for a while."""
        if self._timer is not None:
            self._timer.cancel()
        if self._over:
            return
        self._timer = threading.Timer(IDLE_SECONDS, self._idle)
        self._timer.daemon = True
        self._timer.start()

    def _idle(self) -> None:
        with self._lock:
            if not self._busy:
                self.server.close()
                self._started = False

    def close(self) -> None:
        """End the server, and what is being graded with it."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self.server.close()


_benches: dict[str, Bench] = {}  # by run
_over: set[str] = set()  # runs
_lock = threading.Lock()


def grade(name: str, terms: Terms, found: Found) -> Graded:
    """Grade one submission for the run of that name."""
    with _lock:
        as_imported()
        if name in _over:
            raise Unfit("server", here(), "the run is over")
        if name not in _benches:
            _benches[name] = Bench(terms)
    return _benches[name].grade(found)


async def end(name: str) -> None:
    """Close the run's server in this worker."""
    with _lock:
        _over.add(name)
        bench = _benches.pop(name, None)
    if bench is not None:
        await asyncio.to_thread(bench.close)


# --- in the calling process -------------------------------------------------------------------------------------------


class Cluster:
    """The workers of the Dask scheduler at an address such as "tcp://10.0.0.1:8786"."""

    def __init__(self, terms: Terms, address: str) -> None:
        self.terms, self.address = terms, address
        self.name = secrets.token_hex(8)
        self._client: Any = None

    def start(self) -> None:
        """Connect to the scheduler.

        Raises
        ------
        ClusterError
            Nobody answers there, or Dask is not installed.
        """
        try:
            import dask
            import distributed
        except ImportError as error:
            reason = "Grading on a cluster needs Dask's `distributed`"
            raise ClusterError(f"{reason}, which is not installed: run `pip install -e '.[dask]'`.") from error
        for logger in ("distributed", "distributed.client"):  # what happens is said below, once
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 GiB"})  # a notebook may have megabytes
        try:
            self._client = distributed.Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise ClusterError(
                f"No Dask scheduler answers at {self.address}. "
                "Start one with `dask scheduler`, and give the address that it prints."
            ) from error

    def grade(self, todo: Sequence[Found]) -> Generator[Graded, None, None]:
        """Grade them, in any order.

        Raises
        ------
        SandboxError, ClusterError
            A worker cannot build a wall, or does not have this course.
        ServerError
            The scheduler was lost, or all workers, or those that one submission was given to.
        """
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        waiting: set[Any] = set()
        left = list(reversed(todo))
        look, seen, threads = 0.0, time.monotonic(), 0
        try:
            while left or waiting:
                if time.monotonic() >= look:
                    look = time.monotonic() + LOOK_SECONDS
                    threads = sum(self._client.nthreads().values())
                    seen = time.monotonic() if threads else seen
                if time.monotonic() > seen + WORKERLESS_SECONDS:
                    raise ServerError(f"The scheduler at {self.address} has no worker: start some, with `dask worker`.")
                while left and len(waiting) < AHEAD * threads:
                    future = self._hand_out(left.pop())
                    waiting.add(future)
                    future.add_done_callback(done.put)
                with contextlib.suppress(queue.Empty):
                    future = done.get(timeout=LOOK_SECONDS)
                    try:
                        graded = self._graded(future)
                    except TimeoutError:  # what it gave may have died with its worker
                        done.put(future)
                        continue
                    waiting.discard(future)
                    yield graded
        except OSError as error:
            raise ServerError(f"The connection to the scheduler at {self.address} was lost.") from error
        finally:
            for future in waiting:
                future.release()

    def _hand_out(self, found: Found) -> Any:
        travels = replace(found, paths=tuple(carried(path) for path in found.paths))

        def there(packed: bytes) -> Graded:
            import pickle

            from autograder import cluster

            return cluster.grade(*pickle.loads(packed))

        # Dask's scheduler unpickles a task: a function of a function travels by value, so that it needs no course.
        return self._client.submit(there, pickle.dumps((self.name, self.terms, travels)), pure=False)

    def _graded(self, future: Any) -> Graded:
        from distributed import CancelledError, KilledWorker

        try:
            return future.result(timeout=WORKERLESS_SECONDS)
        except TimeoutError as error:
            if getattr(future, "status", "") == "error":  # it is what the task gave
                raise ServerError(f"A worker had no time: {error}") from None
            raise
        except Unfit as error:
            what, worker, *said = error.args
            if what == "sandbox":
                raise SandboxError(said[0], f"{said[1]} (on the worker {worker})") from None
            if what == "course":
                raise ClusterError(
                    f"The worker {worker} has another state of the course than this machine: "
                    "bring both to the same, then start the worker again."
                ) from None
            raise ServerError(f"On the worker {worker}: {said[0]}") from None
        except ImportError as error:
            raise ClusterError(
                f"The workers cannot import the grader ({error}): start them in the course's folder, with its environment."
            ) from error
        except KilledWorker as error:
            raise ServerError(f"One submission after another worker was lost: {error}") from error
        except CancelledError as error:
            raise ServerError(f"The connection to the scheduler at {self.address} was lost.") from error

    def close(self) -> None:
        """Have the workers close their servers, then disconnect."""
        if self._client is None:
            return
        with contextlib.suppress(OSError, RuntimeError, AttributeError):
            self._client.run(end, self.name, wait=False, on_error="ignore")
        self._client.close()
