"""`make sample-class grade`: the right score for all twelve, in every file that is written."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from autograder import exercises, gradebook, sample_class
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


def test_wrong_use_is_said_clearly(tmp_path, capsys):
    assert main(["grade", "07_magic", "--submissions", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "There is no chapter '07_magic'" in capsys.readouterr().err
    assert main(["grade", "01_basics", "--submissions", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "no submission of 01_basics" in capsys.readouterr().err
