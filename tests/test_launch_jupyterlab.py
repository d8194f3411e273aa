"""JupyterLab in a real browser: what a learner does in a chapter."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from browser import Lab, browser, chromium, failures, grade_of, home, private, serve, shown_points, wait_for

import underhood.doctor  # noqa: F401
from autograder import chapters, exercises
from autograder.chapters import COURSE, text_sources

doctor = sys.modules["underhood.doctor"]  # the name underhood.doctor is the function
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
WRONG = """def ordinal_rank_sum(x, weights):
    largest = x.topk(len(weights), dim=1).values
    return (weights * largest).sum(1)"""


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    """Where the pictures go: $SCREENSHOTS, or a folder that pytest keeps for a while."""
    return Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))


@pytest.fixture(scope="module")
def server(copy):
    """JupyterLab in a copy of the repository, as `make start` starts it."""
    chromium()  # skips where there is none
    with home() as folder, serve(copy, private(folder, copy, copy / "course")) as running:
        yield running


@pytest.fixture
def lab(server, shots):
    with browser() as running:
        page = Lab(running, server, shots)
        yield page
        page.shut_down()
        page.close()


def quiet(lab):
    """Nothing went wrong in the page, and nothing was asked of another machine."""
    assert lab.errors == [] and lab.outside == []


def first_chapter():
    return chapters()[0]


def test_run_all_on_the_untouched_release_goes_to_the_end(lab, copy):
    """The first chapter; tests/test_launch_binder.py does the same with every chapter in the JupyterLab that Binder has."""
    chapter = first_chapter()
    for path in sorted((copy / "course" / chapter).glob("*.ipynb")):
        lab.open(path.relative_to(copy).as_posix())
        lab.shot(f"{chapter}-{path.stem}-opened")
        cells = lab.run_all()
        lab.shot(f"{chapter}-{path.stem}-untouched")
        assert failures(cells) == []
        points = shown_points(cells)
        graded = [grade_of(c) for c in cells if c["metadata"].get("nbgrader", {}).get("grade")]
        assert graded and points == dict.fromkeys(graded, 0.0)
    quiet(lab)


def test_run_all_on_the_reference_gets_full_marks_and_validate_agrees(chapter, lab, copy):
    found = {}
    for source in text_sources(chapter):
        path = copy / "worked" / chapter / source.with_suffix(".ipynb").name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.with_suffix(".ipynb"), path)
        if (figures := source.parent / "figures").is_dir():
            shutil.copytree(figures, path.parent / "figures", dirs_exist_ok=True)
        lab.open(path.relative_to(copy).as_posix())
        cells = lab.run_all()
        assert failures(cells) == []
        found |= shown_points(cells)
        lab.shot(f"{chapter}-{path.stem}-reference")
        assert "Success" in validate(lab)
        lab.shot(f"{chapter}-{path.stem}-validated")
    assert found == {f"{chapter}-{e.name}-check": float(e.points) for e in exercises(chapter)}
    quiet(lab)


def validate(lab: Lab) -> str:
    """Press Validate; returns what the dialog says, and closes it."""
    lab.page.get_by_role("button", name="Validate").first.click()
    dialog = lab.page.locator(".jp-Dialog-content")
    dialog.wait_for()
    wait_for(
        "the verdict of Validate", lambda: any(w in dialog.inner_text() for w in ("Success", "failed", "Error")), 300
    )
    text = dialog.inner_text()
    lab.page.wait_for_timeout(300)
    lab.shot("validate-dialog")
    dialog.locator("button").last.click()
    dialog.wait_for(state="detached")
    return text


def test_a_typical_wrong_answer_is_named_to_the_learner(lab, copy):
    chapter, name = first_chapter(), "ordinal_rank_sum"
    exercise = next(e for e in exercises(chapter) if e.name == name)
    path = copy / "wrong" / text_sources(chapter)[0].with_suffix(".ipynb").name
    path.parent.mkdir()
    shutil.copy(COURSE / chapter / path.name, path)
    lab.open(path.relative_to(copy).as_posix())
    lab.run_all()
    lab.type_into(f"{chapter}-{name}", WRONG)
    lab.run_cell(f"{chapter}-{name}")
    cell = lab.run_cell(f"{chapter}-{name}-check")
    verdict = lab.show(f"{chapter}-{name}-check").locator(".jp-OutputArea-output").first
    text = verdict.inner_text()
    lab.shot("wrong-answer")
    mistake = next(m for m in exercise.mistakes if "axis 1" in m.name or "dim=1" in m.name)
    assert mistake.name in text and mistake.hint[:30] in text and f"of {exercise.points} points" in text
    assert 0 < float("".join(cell["outputs"][-1]["data"]["text/plain"])) < exercise.points
    said = validate(lab)
    assert "failed" in said and f'check("{name}")' in said
    quiet(lab)


def test_locked_cells_stay_as_they_are(lab, copy):
    chapter = first_chapter()
    name = exercises(chapter)[0].name
    path = copy / "locked" / text_sources(chapter)[0].with_suffix(".ipynb").name
    path.parent.mkdir()
    shutil.copy(COURSE / chapter / path.name, path)
    lab.open(path.relative_to(copy).as_posix())
    before = lab.cells()
    cell = lab.show(f"{chapter}-{name}-check")
    cell.locator(".cm-content").click()
    lab.page.keyboard.type("full marks please")
    lab.page.keyboard.press("Escape")
    lab.page.keyboard.press("d")
    lab.page.keyboard.press("d")
    lab.page.wait_for_timeout(300)
    assert lab.cells() == before
    lab.type_into(f"{chapter}-{name}", "answer = 42")
    assert next(c for c in lab.cells() if grade_of(c) == f"{chapter}-{name}")["source"] == "answer = 42"
    quiet(lab)


def test_cells_copied_and_split_in_jupyterlab_are_seen_and_mended_by_the_doctor(lab, copy):
    chapter = first_chapter()
    copied, split = (e.name for e in exercises(chapter)[:2])
    path = copy / "harmed" / text_sources(chapter)[0].with_suffix(".ipynb").name
    path.parent.mkdir()
    shutil.copy(COURSE / chapter / path.name, path)
    lab.open(path.relative_to(copy).as_posix())
    lab.type_into(f"{chapter}-{split}", f"def {split}(x):\n    y = x\n    return y")
    for key in ("ArrowUp", "End", "Control+Shift+-"):
        lab.page.keyboard.press(key)
    lab.type_into(f"{chapter}-{copied}", f"def {copied}(*given): return 'mine'")
    for key in ("Escape", "c", "v"):
        lab.page.keyboard.press(key)
    lab.page.wait_for_timeout(300)
    lab.save()

    notebook = doctor.read(path)
    slots = doctor.releases()[f"{chapter}/{path.name}"]
    kinds = {damage.grade_id: damage.kind for damage in doctor.damages(notebook, slots)}
    assert kinds == {f"{chapter}-{copied}": "copied", f"{chapter}-{split}": "split"}
    mended = doctor.read(doctor.mend(path))
    assert doctor.damages(mended, slots) == []
    lab.open(path.with_name(f"{path.stem}.mended.ipynb").relative_to(copy).as_posix())
    assert next(c for c in lab.cells() if grade_of(c) == f"{chapter}-{split}")["source"].count("y") == 2
    quiet(lab)
