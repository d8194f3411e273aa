"""Faults of the machine and of people: the grader is killed, interrupted, locked out or out of disk, and nothing is lost."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy

from autograder import sandbox
from autograder.run import alone

KILLS = 54
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces"),
]


@pytest.fixture(scope="module")
def submitted(repository) -> tuple[Path, dict[str, float]]:
    """A folder of hand-ins, and their right scores."""
    return repository / "class", toy.hand_in(repository, repository / "class", 30)


@pytest.fixture
def start(repository, submitted, tmp_path):
    """Start the command with its output in files; whatever is still running at the end is killed."""
    running = []

    def start(*options: str, **given) -> subprocess.Popen:
        command = [sys.executable, "tests/toy.py", "grade", toy.CHAPTER, "--submissions", str(submitted[0])]
        command += ["--out", str(tmp_path / "out"), "--seed", "3", *options]
        errors = open(tmp_path / "errors", "ab")
        running.append(
            subprocess.Popen(
                command, cwd=repository, env=toy.environment(repository), stdout=errors, stderr=errors, **given
            )
        )
        errors.close()
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


def said(tmp_path: Path) -> str:
    return (tmp_path / "errors").read_text()


def until(condition, seconds: float = 120) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def rows_so_far(tmp_path: Path) -> int:
    journal = tmp_path / "out" / f"journal-{toy.CHAPTER}.jsonl"
    return journal.read_bytes().count(b"\n") if journal.is_file() else 0


def clean(out: Path) -> bool:
    """No file but the results."""
    expected = {"autograded", "feedback", "gradebook.db", "grades.csv", "canvas.csv", "results.jsonl"}
    expected |= {f"seed-{toy.CHAPTER}.json"}
    return {path.name for path in out.iterdir()} == expected and not [p for p in out.rglob(".*")]


def test_killed_at_any_moment_each_submission_is_graded_once(repository):
    """The helper asserts after each run that came to its end that rows and gradebook have the right scores, once each."""
    done = toy.program(repository, "tests/toy.py", "kill", str(KILLS), "7")
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert sum(seen["kills"].values()) >= KILLS and all(seen["kills"].values()), seen
    assert seen["rounds"] >= 1 and seen["left"] == []
    for out in repository.glob("out-*/"):
        assert clean(out)
    for log in repository.glob("out-*.log"):
        assert "Traceback" not in log.read_text()


def test_a_run_goes_on_where_it_was_stopped(start, submitted, tmp_path):
    first = start()
    until(lambda: rows_so_far(tmp_path) >= 5)
    family = sandbox.descendants(first.pid)
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 1
    assert (
        said(tmp_path).rstrip().endswith("Stopped. Nothing is lost: the same command goes on where this one stopped.")
    )
    assert "Traceback" not in said(tmp_path)
    until(lambda: not any(Path("/proc", str(pid)).exists() for pid in family), 10)
    kept = rows_so_far(tmp_path)
    pages = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "feedback").rglob("*.html")}
    assert start().wait(300) == 0
    assert toy.scores(tmp_path / "out") == submitted[1] and clean(tmp_path / "out")
    untouched = [path for path, when in pages.items() if path.stat().st_mtime_ns == when]
    assert len(untouched) >= kept >= 5  # these were not graded again


def test_ctrl_c_during_the_start(start, tmp_path):
    first = start()
    until(lambda: (tmp_path / "out" / ".running").is_file())
    time.sleep(1)
    family = sandbox.descendants(first.pid)
    first.send_signal(signal.SIGINT)
    assert first.wait(150) == 1
    assert "Stopped. Nothing is lost" in said(tmp_path) and "Traceback" not in said(tmp_path)
    until(lambda: not any(Path("/proc", str(pid)).exists() for pid in family), 10)


def test_two_runs_do_not_write_into_the_same_folder(start, submitted, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with alone(out):
        assert start().wait(300) == 2
    assert "Another run is grading into" in said(tmp_path)
    assert start().wait(300) == 0
    assert toy.scores(tmp_path / "out") == submitted[1]


def test_a_locked_gradebook_is_waited_for(start, submitted, tmp_path):
    """As by the formgrader in the middle of a long write."""
    first = start()
    until(lambda: rows_so_far(tmp_path) >= 3)
    other = sqlite3.connect(tmp_path / "out" / "gradebook.db", timeout=60, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        until(lambda: "The gradebook is locked by another program" in said(tmp_path))
        before = rows_so_far(tmp_path)
        time.sleep(2)
        assert rows_so_far(tmp_path) == before and first.poll() is None
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert first.wait(300) == 0
    assert said(tmp_path).count("is locked by another program") == 1
    assert toy.scores(tmp_path / "out") == submitted[1] and clean(tmp_path / "out")


def test_a_gradebook_that_stays_locked_is_said_and_nothing_is_lost(monkeypatch, tmp_path):
    from sqlalchemy.exc import OperationalError

    from autograder import gradebook

    def locked():
        raise OperationalError("UPDATE", {}, Exception("database is locked"))

    monkeypatch.setattr(gradebook, "WAIT_SECONDS", 0.1)
    with pytest.raises(gradebook.Locked, match="still locked"):
        gradebook.patiently(locked)

    def broken():
        raise OperationalError("UPDATE", {}, Exception("no such table"))

    with pytest.raises(gradebook.Unwritten, match="no such table"):
        gradebook.patiently(broken)


def test_files_that_cannot_grow(start, submitted, tmp_path):
    """A quota, or a full disk: the database is the first that does not fit."""
    size = 150_000
    assert start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))).wait(300) == 1
    assert "Nothing is lost" in said(tmp_path) and "Traceback" not in said(tmp_path)
    assert start().wait(300) == 0
    assert toy.scores(tmp_path / "out") == submitted[1] and clean(tmp_path / "out")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("kilobytes", [64, 400])
def test_a_full_disk(start, submitted, tmp_path, kilobytes):
    out = tmp_path / "out"
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(out)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this root may not mount")
    try:
        assert start().wait(300) == 1
        assert "Nothing is lost" in said(tmp_path) and "Traceback" not in said(tmp_path)
        subprocess.run(["mount", "-o", "remount,size=50m", str(out)], check=True)
        assert start().wait(300) == 0
        assert toy.scores(out) == submitted[1] and clean(out)
    finally:
        subprocess.run(["umount", str(out)], check=True)
