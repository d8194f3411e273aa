"""Grading on a Dask cluster: a real scheduler and worker processes on this machine, over the loopback interface."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import distributed
import pytest
import toy

from autograder import cluster, run, sandbox
from autograder.__main__ import main as command
from autograder.forkserver import ServerError
from autograder.intake import Found
from autograder.sandbox import Limits

COUNT = 30
FEWER = ["--limit", "cell_seconds=1"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces"),
]


@pytest.fixture(autouse=True)
def no_client_is_left():
    """A client that could not connect closes itself when it is collected: here, and not in the thread of the next client
    that starts, which would wait for its own start.
    """
    yield
    gc.collect()


class Dask:
    """A scheduler that has nothing of the course, and its workers, which have."""

    def __init__(self, logs: Path) -> None:
        self.logs, self.processes = logs, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        bare["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "3s"  # for results of a worker that has died; else 30
        program = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
        self.scheduler = self._start([*program, "--no-dashboard"], cwd=logs, env=bare)

    def _start(self, program: list[str], **given) -> subprocess.Popen:
        with (self.logs / f"dask-{len(self.processes)}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(program, stdout=log, stderr=log, **given))
        return self.processes[-1]

    def workers(self, repository: Path, count: int = 1, threads: int = 1) -> list[subprocess.Popen]:
        """Start some, and wait until the scheduler knows them."""
        options = ["--no-nanny", "--nthreads", str(threads), "--no-dashboard"]
        program = [sys.executable, "tests/toy.py", "worker", self.address, *options]
        started = [self._start(program, cwd=repository, env=toy.environment(repository)) for _ in range(count)]
        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=60)
        return started

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def dask(tmp_path) -> Iterator[Dask]:
    made = Dask(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def right(repository) -> dict[str, float]:
    scores = toy.hand_in(repository, repository / "class", COUNT)
    for path in (repository / "class").rglob("*.ipynb"):  # slower, so that there is time to kill something
        path.write_text(path.read_text().replace("def double(x):", "import time; time.sleep(0.1)\\ndef double(x):"))
    return scores


def arguments(submissions: Path | str, out: Path, *options: str) -> list[str]:
    return [
        "tests/toy.py",
        "grade",
        toy.CHAPTER,
        "--submissions",
        str(submissions),
        "--out",
        str(out),
        "--seed",
        "3",
        *options,
    ]


def grade(repository: Path, out: Path, *options: str) -> subprocess.CompletedProcess:
    return toy.program(repository, *arguments("class", out, *options))


@contextlib.contextmanager
def running(repository: Path, out: Path, *options: str) -> Iterator[subprocess.Popen]:
    """A run that has written some rows and not all."""
    out.mkdir()
    with out.with_suffix(".log").open("wb") as log:
        program = [sys.executable, *arguments("class", out, *options)]
        process = subprocess.Popen(program, cwd=repository, env=toy.environment(repository), stdout=log, stderr=log)
    try:
        toy.until(lambda: toy.rows_so_far(out) >= 3 or process.poll() is not None)
        assert toy.rows_so_far(out) < COUNT, said(out)
        yield process
    finally:
        process.kill()
        process.wait()


def said(out: Path) -> str:
    return out.with_suffix(".log").read_text()


def servers(worker: subprocess.Popen) -> list[int]:
    """The worker's own processes: its fork server, and what that started."""
    return [pid for pid in sandbox.descendants(worker.pid) if pid != worker.pid]


def files(out: Path) -> dict[str, bytes]:
    """Feedback and graded notebooks."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for kind in ("feedback", "autograded")
        for path in (out / kind).rglob("*.*")
    }


def results(out: Path) -> list[dict]:
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.endswith("seconds")} for row in rows]


def test_two_workers_give_what_this_machine_gives(dask, repository, tmp_path):
    submissions = tmp_path / "class"
    right = toy.hand_in(repository, submissions, 6)
    odd = submissions / "student-0005" / toy.CHAPTER / "basics.ipynb"  # loops, and would have earned a point
    notebook = odd.read_text()
    assert "return 2 * x" in notebook
    odd.write_text(notebook.replace("return 2 * x", "\\n    while True: pass"))
    for student, content in (("broken", "{"), ("late", None)):
        (submissions / student).mkdir()
        if content is None:
            (submissions / student / "basics.ipynb").symlink_to("/etc/passwd")
        else:
            (submissions / student / "basics.ipynb").write_text(content)
    (submissions / "large").mkdir()
    with (submissions / "large" / "basics.ipynb").open("wb") as file:
        file.truncate((32 << 20) + 1)
    workers = dask.workers(repository, 2, threads=2)
    here = toy.program(repository, *arguments(submissions, tmp_path / "here", *FEWER, "--limit", "request_seconds=1"))
    assert here.returncode == 0, here.stderr
    options = [*FEWER, "--limit", "request_seconds=1", "--scheduler", dask.address]
    there = toy.program(repository, *arguments(submissions, tmp_path / "there", *options))
    assert there.returncode == 0, there.stderr
    scores = toy.scores(tmp_path / "there")
    assert scores == right | {"student-0005": 0.0, "broken": 0.0, "late": 0.0, "large": 0.0}
    assert results(tmp_path / "there") == results(tmp_path / "here")
    assert {"timeout", "unreadable", "refused"} <= {
        flag for row in results(tmp_path / "there") for flag in row["flags"]
    }
    assert files(tmp_path / "there") == files(tmp_path / "here")
    toy.until(lambda: not any(servers(worker) for worker in workers), 20)
    assert all(worker.poll() is None for worker in workers)


def test_a_worker_is_killed_and_each_submission_is_graded_once(dask, repository, right, tmp_path):
    workers = dask.workers(repository, 2)
    out = tmp_path / "out"
    with running(repository, out, "--scheduler", dask.address) as process:
        toy.until(lambda: all(servers(worker) for worker in workers))
        family = servers(workers[0])
        workers[0].kill()
        assert toy.rows_so_far(out) < COUNT
        assert process.wait(120) == 0, said(out)
    assert toy.scores(out) == right
    assert f"| {COUNT}/{COUNT} [" in said(out) and "Traceback" not in said(out)
    toy.until(lambda: not servers(workers[1]) and not any(Path("/proc", str(pid)).exists() for pid in family), 20)


def test_ctrl_c_ends_what_the_workers_do_and_the_run_goes_on_here(dask, repository, right, tmp_path):
    [worker] = dask.workers(repository)
    out = tmp_path / "out"
    with running(repository, out, "--scheduler", dask.address) as process:
        assert servers(worker)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
    assert said(out).rstrip().endswith("Stopped. Nothing is lost: the same command goes on where this one stopped.")
    assert "Traceback" not in said(out)
    toy.until(lambda: not servers(worker), 20)
    kept = toy.rows_so_far(out)
    again = grade(repository, out)
    assert again.returncode == 0 and f"| {COUNT - kept}/{COUNT - kept} [" in again.stderr
    assert toy.scores(out) == right


def test_a_scheduler_that_dies_is_said_and_nothing_is_lost(dask, repository, right, tmp_path):
    dask.workers(repository)
    out = tmp_path / "out"
    with running(repository, out, "--scheduler", dask.address) as process:
        dask.scheduler.kill()
        assert process.wait(60) == 1
    lines = said(out).rstrip().splitlines()
    assert lines[-2] == f"The connection to the scheduler at {dask.address} was lost."
    assert lines[-1].startswith("Nothing is lost") and "Traceback" not in said(out) and "ERROR" not in said(out)
    assert grade(repository, out).returncode == 0
    assert toy.scores(out) == right


def test_a_worker_with_another_course_grades_nothing(dask, repository, right, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(repository, other, ignore=shutil.ignore_patterns("class"))
    dask.workers(other)
    one = ["--student", "student-0003", "--scheduler", dask.address]
    assert grade(repository, tmp_path / "out", *one).returncode == 0
    with (other / "solutions" / toy.CHAPTER / "exercises.py").open("a") as file:
        file.write("# another state\n")
    shutil.copytree(repository / "class", other / "class")
    for caller in (
        repository,
        other,
    ):  # with `other` the files are the same, and the worker has imported the earlier ones
        done = grade(caller, tmp_path / "out", *one)
        assert done.returncode == 2
        assert "has another state of the course than this machine" in done.stderr and "Traceback" not in done.stderr


def test_a_worker_without_the_course_grades_nothing(dask, repository, right, tmp_path):
    program = [sys.executable, "-m", "distributed.cli.dask_worker", dask.address, "--no-nanny", "--no-dashboard"]
    hidden = "import sys; sys.modules['autograder'] = None\nfrom distributed.cli.dask_worker import main; main()"
    dask._start([sys.executable, "-c", hidden, *program[3:]], cwd=tmp_path)
    done = grade(repository, tmp_path / "out", "--scheduler", dask.address)
    assert done.returncode == 2
    assert "The workers cannot import the grader" in done.stderr and "Traceback" not in done.stderr


def test_nobody_answers_at_the_address(repository, right, tmp_path):
    with socket.socket() as silent:  # bound, and not listening
        silent.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = grade(repository, tmp_path / "out", "--scheduler", address)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and f"No Dask scheduler answers at {address}." in done.stderr


@pytest.mark.parametrize("address", ["nonsense", "ftp://host:1", ""])
def test_no_address(address, terms, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with pytest.raises(cluster.ClusterError, match="No Dask scheduler answers at"):
        cluster.Cluster(terms, address).start()


def test_a_scheduler_without_workers(dask, terms, monkeypatch):
    monkeypatch.setattr(cluster, "WORKERLESS_SECONDS", 1)
    monkeypatch.setattr(cluster, "LOOK_SECONDS", 0.2)
    place = cluster.Cluster(terms, dask.address)
    place.start()
    try:
        with pytest.raises(ServerError, match="has no worker"):
            next(place.grade([Found("ann", ())]))
    finally:
        place.close()


def test_dask_is_not_installed(root, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    submissions = root / "course" / "01_basics" / "basics.ipynb"
    options = ["--submissions", str(submissions), "--out", str(tmp_path / "out"), "--scheduler", "tcp://127.0.0.1:1"]
    assert command(["grade", "01_basics", *options]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "pip install -e '.[dask]'" in err


@pytest.fixture
def terms() -> run.Terms:
    return run.Terms("01_basics", 3, run.course_digest("01_basics"), Limits(), False)


def test_a_worker_closes_what_nobody_needs_any_more(terms, monkeypatch):
    """The caller may have been killed, and then nobody says that the run is over."""
    closed = threading.Event()
    starts = []

    class Server:
        def start(self) -> None:
            starts.append(self)

        def close(self) -> None:
            closed.set()

    monkeypatch.setattr(cluster, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(run.Terms, "server", lambda self: Server())
    monkeypatch.setattr(run.Terms, "answer", lambda self: None)
    monkeypatch.setattr(run, "grade_one", lambda chapter, found, server, seed, given: found.student)
    bench = cluster.Bench(terms)
    assert bench.grade(Found("ann", ())) == bench.grade(Found("ann", ())) == "ann"
    assert len(starts) == 1 and closed.wait(10)
    assert bench.grade(Found("bob", ())) == "bob" and len(starts) == 2
    bench.close()
