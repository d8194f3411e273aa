"""`make sample-class grade`: the right score for all twelve, in every file that is written."""

from __future__ import annotations

import csv
import json
import re
import shutil

import pytest

from autograder import exercises, gradebook, run, sample_class
from autograder.__main__ import main
from underhood.exercise import TOGETHER

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("class")


@pytest.fixture(scope="module")
def graded(folder):
    """Chapter → (pupils, output of the command), graded once."""
    done = {}

    def grade(chapter, capsys):
        if chapter not in done:
            sample_class.main([chapter], folder / "submitted")
            capsys.readouterr()
            command = [
                "grade",
                chapter,
                "--submissions",
                str(folder / "submitted"),
                "--out",
                str(folder),
                "--seed",
                "0",
            ]
            sandboxed = shutil.which("bwrap") is not None
            assert main(command if sandboxed else [*command, "--trust-submissions"]) == 0
            done[chapter] = (sample_class.pupils(chapter), capsys.readouterr().out)
        return done[chapter]

    return grade


def test_the_class_gets_the_right_scores_everywhere(chapter, graded, folder, capsys):
    pupils, printed = graded(chapter, capsys)
    assert len(pupils) == 12
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    rows = {row["student"]: row for row in rows if row["chapter"] == chapter}
    with (folder / "grades.csv").open(newline="") as file:
        table = {row["student"]: row for row in csv.DictReader(file) if row["chapter"] == chapter}
    with gradebook.opened(f"sqlite:///{folder}/gradebook.db") as book:
        for pupil in pupils:
            row = rows[pupil.name]
            assert row["points"] == pupil.points, f"{pupil.name} ({pupil.about}): {row}"
            assert float(table[pupil.name]["points"]) == pupil.points
            assert book.find_submission(chapter, pupil.name).score == pupil.points
            page = next((folder / "feedback" / pupil.name / chapter).glob("*.html")).read_text()
            assert f"{pupil.points:g} of {row['max_points']} points" in page
            assert f"{pupil.name:<4}  {pupil.points:5.1f} of {row['max_points']}" in printed
    assert set(rows) == {pupil.name for pupil in pupils}
    assert rows["ada"]["points"] == rows["ada"]["max_points"] and rows["kofi"]["points"] == 0


def test_the_mistakes_are_named(chapter, graded, folder, capsys):
    graded(chapter, capsys)
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    rows = {row["student"]: row for row in rows if row["chapter"] == chapter}
    for position, student in enumerate(sample_class.STUDENTS[3:10]):
        for i, exercise in enumerate(exercises(chapter)):
            if (i + position) % 2 == 0 and TOGETHER not in exercise.parts:
                wanted = exercise.mistakes[position % len(exercise.mistakes)].name
                assert rows[student]["mistakes"].get(exercise.name) == wanted
            else:
                assert exercise.name not in rows[student]["mistakes"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"chapter": "07_magic"}, "There is no chapter '07_magic'"),
        ({}, "no submission of 01_basics by 'bbo'"),
        ({"submissions": "empty", "students": ()}, "no submission of 01_basics in"),
        ({"seed": -1}, "the seed must not be negative"),
        ({"jobs": 0}, "at least one job"),
        ({"out": "in/grades"}, "where results would be taken for hand-ins"),
        ({"out": "in"}, "where results would be taken for hand-ins"),
        ({"out": "out?1"}, "question mark"),
        ({"out": "out/seed-01_basics.json"}, "is a file"),
    ],
)
def test_wrong_use_is_said_clearly_and_changes_nothing(given, says, tmp_path):
    for student in ("ada", "bob"):
        (tmp_path / "in" / student).mkdir(parents=True)
        (tmp_path / "in" / student / "basics.ipynb").write_text("{}")
    for name in ("empty", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "seed-01_basics.json").write_text('{"seed": 7}')
    before = sorted(path for path in tmp_path.rglob("*") if path.suffix)
    given = {"chapter": "01_basics", "submissions": "in", "out": "out", "students": ("ada", "bbo")} | given
    given |= {name: tmp_path / given[name] for name in ("submissions", "out")}
    with pytest.raises(ValueError, match=re.escape(says)):
        run.grade(**given)
    assert sorted(path for path in tmp_path.rglob("*") if path.suffix) == before
    assert (tmp_path / "out" / "seed-01_basics.json").read_text() == '{"seed": 7}'


def test_a_number_that_the_kernel_cannot_hold_is_no_limit(capsys):
    with pytest.raises(SystemExit):
        main(["grade", "01_basics", "--limit", "memory_bytes=1e30"])
    assert "memory_bytes must be a number above zero and below" in capsys.readouterr().err
