"""The gradebook in a PostgreSQL database: a server of the tests' own, with its files in a temporary folder."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy

from autograder import gradebook
from autograder.__main__ import main as command

psycopg = pytest.importorskip("psycopg")
COUNT = 12
FOUND = shutil.which("postgres") or next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))[-1:]), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces"),
]


class Server:
    """A PostgreSQL server that answers on a Unix socket only. It refuses to run as root, so there it runs as another user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user: dict = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self.user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        self._program(
            "initdb", "--pgdata", "data", "--username", "grader", "--auth", "trust", "--no-sync", "--encoding", "UTF8"
        )

    def _program(self, name: str, *arguments: str) -> None:
        here = Path(os.path.realpath(str(FOUND))).parent
        subprocess.run([here / name, *arguments], cwd=self.folder, check=True, capture_output=True, **self.user)

    def start(self) -> None:
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "fsync": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [os.path.realpath(str(FOUND)), "-D", "data", *options],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                **self.user,
            )
        end = time.monotonic() + 60
        while True:
            try:
                return self.connect("postgres").close()
            except psycopg.OperationalError:
                assert time.monotonic() < end and self.process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.1)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)  # ends the connections and stops
        self.process.wait(60)

    def connect(self, database: str) -> psycopg.Connection:
        return psycopg.connect(host=str(self.folder), user="grader", dbname=database, autocommit=True)

    def url(self, database: str) -> str:
        return f"postgresql://grader@/{database}?host={self.folder}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if FOUND is None:
        pytest.skip("PostgreSQL's server is not installed: tests/system_packages.sh does it")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as folder:  # a socket's path has at most 107 bytes
        made = Server(Path(folder))
        made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def database(server) -> str:
    """The name of an empty database."""
    with server.connect("postgres") as connection:
        count = connection.execute("SELECT count(*) FROM pg_database").fetchone()[0]
        connection.execute(f"CREATE DATABASE grades{count}")
    return f"grades{count}"


@pytest.fixture(scope="module")
def right(repository) -> dict[str, float]:
    return toy.hand_in(repository, repository / "class", COUNT)


def arguments(out: Path, url: str) -> list[str]:
    return ["grade", toy.CHAPTER, "--submissions", "class", "--out", str(out), "--seed", "3", "--database", url]


def grade(repository: Path, out: Path, url: str) -> subprocess.CompletedProcess:
    return toy.program(repository, "tests/toy.py", *arguments(out, url))


@contextlib.contextmanager
def running(repository: Path, out: Path, url: str) -> Iterator[subprocess.Popen]:
    """A run that has written some rows."""
    out.mkdir()
    with (out.with_suffix(".log")).open("wb") as log:
        program = [sys.executable, "tests/toy.py", *arguments(out, url)]
        process = subprocess.Popen(program, cwd=repository, env=toy.environment(repository), stdout=log, stderr=log)
    try:
        toy.until(lambda: toy.rows_so_far(out) >= 2)
        yield process
    finally:
        process.kill()
        process.wait()


def grades(connection: psycopg.Connection) -> list[tuple]:
    query = "SELECT id, auto_score, manual_score, needs_manual_grade FROM grade ORDER BY id"
    return connection.execute(query).fetchall()


def test_a_class_is_graded_into_it_and_a_regrade_writes_the_same(server, database, repository, right, tmp_path):
    first = grade(repository, tmp_path / "first", server.url(database))
    assert first.returncode == 0, first.stderr
    assert toy.scores(tmp_path / "first", lambda: server.connect(database)) == right
    assert not (tmp_path / "first" / "gradebook.db").exists()
    with server.connect(database) as connection:
        connection.execute("UPDATE grade SET manual_score = 0.5 WHERE id = (SELECT min(id) FROM grade)")
        before = grades(connection)
        assert len(before) == 2 * COUNT and not any(needs for *_, needs in before)
        second = grade(repository, tmp_path / "second", server.url(database))
        assert second.returncode == 0, second.stderr
        assert grades(connection) == before
    assert toy.scores(tmp_path / "second", lambda: server.connect(database)) == right


def test_a_lock_of_another_program_is_waited_for(server, database, repository, right, tmp_path):
    out = tmp_path / "out"
    with running(repository, out, server.url(database)) as process:
        with server.connect(database) as other:
            other.execute("BEGIN")
            other.execute("LOCK TABLE grade IN EXCLUSIVE MODE")
            log = out.with_suffix(".log")
            toy.until(lambda: "The gradebook is locked by another program" in log.read_text())
            before = toy.rows_so_far(out)
            time.sleep(1)
            assert toy.rows_so_far(out) == before < COUNT and process.poll() is None
            other.execute("ROLLBACK")
        assert process.wait(120) == 0, log.read_text()
    assert toy.scores(out, lambda: server.connect(database)) == right


def test_a_server_that_goes_down_is_said_and_nothing_is_lost(server, database, repository, right, tmp_path):
    out = tmp_path / "out"
    with running(repository, out, server.url(database)) as process:
        server.stop()
        try:
            assert process.wait(120) == 1
        finally:
            server.start()
    said = out.with_suffix(".log").read_text()
    assert "The gradebook could not be written: " in said and "Nothing is lost" in said and "Traceback" not in said
    kept = toy.rows_so_far(out)
    assert 2 <= kept < COUNT
    assert grade(repository, out, server.url(database)).returncode == 0
    assert toy.scores(out, lambda: server.connect(database)) == right


def test_a_server_that_is_down(tmp_path, repository, right):
    done = grade(repository, tmp_path / "out", f"postgresql://grader:secret@/grades?host={tmp_path}")
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()
    assert len(said) == 2 and "The gradebook could not be written: " in said[0] and str(tmp_path) in said[0]
    assert said[1].startswith("Nothing is lost") and "secret" not in done.stderr


def test_a_database_that_the_server_does_not_have(server, tmp_path):
    with (
        pytest.raises(gradebook.Unwritten, match='database "nowhere" does not exist'),
        gradebook.opened(server.url("nowhere")),
    ):
        pass


@pytest.mark.parametrize(
    "url", ["grades", "postgres://grader:secret@host/grades", "postgresql://grader:secret@host:port/grades"]
)
def test_a_wrong_address_is_said_before_anything_is_done(url, tmp_path, capsys):
    assert command(["grade", "01_basics", "--out", str(tmp_path / "out"), "--database", url]) == 2
    said = capsys.readouterr().err
    assert "postgresql://user:password@host/database" in said and "secret" not in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_missing_driver_is_said_with_the_next_step(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    url = "postgresql://grader:secret@host/grades"
    assert command(["grade", "01_basics", "--out", str(tmp_path / "out"), "--database", url]) == 2
    said = capsys.readouterr().err
    assert "driver is not installed" in said and ".[postgresql]" in said and "secret" not in said
