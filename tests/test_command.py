"""The grader's command line: what it says and its exit status."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autograder import __main__ as command
from autograder.forkserver import ServerError
from autograder.gradebook import Locked, Unwritten
from autograder.run import Busy, Row
from autograder.sandbox import Limits, SandboxError

ROW = Row("ada", "01_basics", 3.0, 4, {}, {}, ["timeout"], "a reason", 1.0, 0.5, 5, "digest")


@pytest.mark.parametrize(
    "end, status, says",
    [
        ([ROW], 0, "1 submissions. Grades: "),
        (ValueError("There is no chapter '07'"), 2, "There is no chapter '07'"),
        (Busy("Another run is grading"), 2, "Another run is grading"),
        (
            SandboxError("network namespace", "not permitted"),
            2,
            "'network namespace' cannot be built here: not permitted",
        ),
        (SandboxError("bubblewrap", "not installed"), 2, "To grade without a sandbox, say --trust-submissions."),
        (ServerError("the server died"), 1, "Nothing is lost"),
        (Locked("still locked"), 1, "Nothing is lost"),
        (Unwritten("the gradebook is read only"), 1, "Nothing is lost"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (KeyboardInterrupt(), 1, "Stopped. Nothing is lost: the same command goes on where this one stopped."),
    ],
)
def test_how_a_run_ended(end, status, says, monkeypatch, capsys):
    def grade(*args, **kwargs):
        if isinstance(end, BaseException):
            raise end
        return end

    monkeypatch.setattr(command, "grade", grade)
    assert command.main(["grade", "01_basics"]) == status
    printed = capsys.readouterr()
    assert says in printed.out + printed.err


@pytest.mark.parametrize("name", ["tqdm", "nbformat", "nbgrader", "argparse"])
def test_a_folder_of_hand_ins_is_no_place_to_import_from(name, tmp_path):
    """`python -m` puts the current folder first on the path."""
    (tmp_path / f"{name}.py").write_text("open('ran', 'w')\n")
    done = subprocess.run(
        [sys.executable, "-m", "autograder", "--help"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0 and not (tmp_path / "ran").exists(), done.stderr


def test_an_unknown_fault_is_not_hidden(monkeypatch):
    def grade(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(command, "grade", grade)
    with pytest.raises(ZeroDivisionError):
        command.main(["grade", "01_basics"])


@pytest.mark.parametrize("arguments", [[], ["grade"], ["mark"], ["grade", "01_basics", "--jobs", "many"]])
def test_wrong_use_ends_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        command.main(arguments)
    assert end.value.code == 2
    assert "usage: python -m autograder" in capsys.readouterr().err


def test_limits_are_given_by_name(monkeypatch, capsys):
    given = {}
    monkeypatch.setattr(command, "grade", lambda *args, **kwargs: given.update(kwargs) or [ROW])
    options = ["--limit", "cell_seconds=60", "--limit", "memory_bytes=4e9", "--limit", "retries=2"]
    assert command.main(["grade", "01_basics", *options]) == 0
    assert given["limits"] == Limits(cell_seconds=60.0, memory_bytes=4_000_000_000, retries=2)
    assert type(given["limits"].memory_bytes) is int
    for wrong, says in (
        ("speed=1", "there is no limit 'speed'"),
        ("retries=-1", "above zero"),
        ("retries=x", "invalid"),
    ):
        with pytest.raises(SystemExit) as end:
            command.main(["grade", "01_basics", "--limit", wrong])
        assert end.value.code == 2 and says in capsys.readouterr().err


def test_the_help_names_what_there_is(capsys):
    for arguments, words in (
        (["--help"], ["grade", "selftest", "prove each wall", "Exit status: 0", "1 not", "2 wrong use"]),
        (["grade", "--help"], [f"{field.name}={field.default:g}" for field in dataclasses.fields(Limits)]),
    ):
        with pytest.raises(SystemExit) as end:
            command.main(arguments)
        printed = re.sub(r"\s+", " ", capsys.readouterr().out)
        assert end.value.code == 0
        for word in words:
            assert word in printed


def test_the_readme_names_every_limit_with_its_default():
    text = (Path(command.__file__).parent / "README.md").read_text()
    for field in dataclasses.fields(Limits):
        assert f"`{field.name}`" in text, field.name


def test_the_selftest_ends_with_its_status(monkeypatch):
    monkeypatch.setattr(command.selftest, "main", lambda: 1)
    assert command.main(["selftest"]) == 1
