"""nbgrader as it is, its own commands on our layout: the reference gets full marks, the untouched release zero."""

from __future__ import annotations

import os
import subprocess

import nbformat
import pytest

from autograder import exercises, gradebook
from autograder.build import write
from autograder.sample_class import reference_answers, submission
from underhood.exercise import TOGETHER

pytestmark = pytest.mark.slow


def hand_in(copy, chapter, student, notebooks):
    for stem, notebook in notebooks.items():
        path = copy / "autograder/class/submitted" / student / chapter / f"{stem}.ipynb"
        write(path, nbformat.writes(notebook) + "\n")


def test_a_collection_takes_what_is_the_learners_own(copy, run, tmp_path):
    """The exchange is a folder that everybody may write to, and who collects may read the solutions."""
    inbound = tmp_path / "under-the-hood" / "inbound"
    secret = copy / "solutions" / "secret.ipynb"
    secret.write_text("the solutions")

    def folder(student):
        place = inbound / f"{student}+01_basics+2026-11-01 10:00:00.000000 UTC+x"
        place.mkdir(parents=True)
        return place

    for student in ("ann", "bea", "zoe"):
        (folder(student) / "basics.ipynb").write_text(student)
    (folder("eve") / "basics.ipynb").symlink_to(secret)
    (folder("fay") / "inner").symlink_to(secret.parent)
    os.mkfifo(folder("gus") / "basics.ipynb")
    deep = folder("hal")
    for _ in range(1200):  # deeper than Python recurses
        deep = f"{deep}/a"
        os.mkdir(deep)
    folder("ida").rmdir()
    (inbound / "ida+01_basics+2026-11-01 10:00:00.000000 UTC+x").symlink_to(secret.parent)

    done = run("nbgrader", "collect", "01_basics", f"--Exchange.root={tmp_path}")
    assert done.returncode == 0, done.stderr[-3000:]
    submitted = copy / "autograder/class/submitted"
    collected = {path: path.read_text() for path in submitted.rglob("*.ipynb")}
    others = [path for path in submitted.rglob("*") if "secret" in path.name or path.is_symlink()]
    secret.unlink()
    subprocess.run(["rm", "-rf", inbound, submitted], check=True)  # the copy is the other tests', too
    assert {path.parent.parent.name: text for path, text in collected.items()} == {s: s for s in ("ann", "bea", "zoe")}
    assert not others
    assert done.stderr.count("as it is a link") == 2 and "It is a link, not a folder" in done.stderr


def test_autograde_validate_and_feedback(chapter, copy, run):
    every = exercises(chapter)
    answered = [e for i, e in enumerate(every) if i % 2 == 0 and TOGETHER not in e.parts]
    half = {e.name: reference_answers(chapter)[e.name] for e in answered}
    expected = {
        "reference": float(sum(e.points for e in every)),
        "half": float(sum(e.points for e in answered)),
        "untouched": 0.0,
    }
    hand_in(copy, chapter, "reference", submission(chapter, reference_answers(chapter)))
    hand_in(copy, chapter, "half", submission(chapter, half))
    hand_in(copy, chapter, "untouched", submission(chapter, {}))

    done = run("nbgrader", "generate_assignment", chapter, "--force", "--create")
    assert done.returncode == 0, done.stderr[-3000:]
    done = run("nbgrader", "autograde", chapter, "--force")
    assert done.returncode == 0, done.stderr[-3000:]
    url = f"sqlite:///{copy}/autograder/class/gradebook.db"
    with gradebook.opened(url) as book:
        for student, points in expected.items():
            found = book.find_submission(chapter, student)
            assert (found.score, found.max_score) == (points, expected["reference"]), student
            assert not found.needs_manual_grade

    done = run("nbgrader", "generate_feedback", chapter, "--force")
    assert done.returncode == 0, done.stderr[-3000:]
    for student in expected:
        assert list((copy / "autograder/class/feedback" / student / chapter).glob("*.html"))

    for path in (copy / "solutions" / chapter).glob("*.ipynb"):
        done = run("nbgrader", "validate", str(path))
        assert done.returncode == 0 and "Success" in done.stdout + done.stderr, done.stderr[-3000:]
