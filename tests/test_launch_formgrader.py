"""The instructor's side in a real browser: nbgrader's formgrader on the sample class, and the exchange with a learner."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from browser import Lab, browser, grade_of, home, private, serve, wait_for
from hostile_page import HOST, MARK, RUN, attack

from autograder import chapters, exercises, gradebook
from autograder.chapters import text_sources

SANDBOX = {"kernelspec": {"name": "underhood-sandbox", "display_name": "sandbox", "language": "python"}}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    return Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def exchange():
    """A folder that instructor and learners may write to."""
    with home() as folder:
        folder.chmod(0o777)
        yield folder


def settings(folder, exchange, *packages):
    """A person's home: nbgrader's settings as docs/instructors.md gives them for one machine."""
    (folder / "config").mkdir()
    text = f"c = get_config()\nc.Exchange.root = {str(exchange)!r}\nc.CourseDirectory.course_id = 'under-the-hood'\n"
    (folder / "config/nbgrader_config.py").write_text(text)
    return private(folder, *packages)


@pytest.fixture(scope="module")
def server(copy, chromium, exchange):
    """The instructor's JupyterLab in a copy of the repository."""
    with home() as folder, serve(copy, settings(folder, exchange, copy, copy / "course")) as running:
        yield running


@pytest.fixture
def lab(chromium, server, shots):
    page = Lab(chromium, server, shots)
    page.page.goto(server.address(""))
    page.page.locator(".lm-MenuBar-item").first.wait_for()
    yield page
    page.close()


def quiet(lab):
    assert lab.errors == [] and lab.outside == []


def first_chapter():
    return chapters()[0]


@pytest.fixture(scope="module")
def graded_class(copy, run):
    """`make sample-class grade` in the copy: student to (points, most points)."""
    chapter = first_chapter()
    for words in (["autograder.sample_class", chapter], ["autograder", "grade", chapter, "--trust-submissions"]):
        done = run(sys.executable, "-m", *words, timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in (copy / "autograder/class/results.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    return {row["student"]: (row["points"], row["max_points"]) for row in rows}


def formgrader(lab, path):
    lab.page.goto(f"{lab.server.url}/formgrader/{path}")
    lab.page.locator("#main-table td").first.wait_for()
    lab.page.locator("#main-table td", has_text="Loading").wait_for(state="detached")


def table(lab):
    """Student to what the formgrader's table says of the score and the status."""
    row = "row => ['student-id', 'score', 'status'].map(name => row.querySelector(`.${name}`).innerText)"
    rows = lab.page.evaluate(f"() => [...document.querySelectorAll('#main-table tr')].map({row})")
    return {student: [score, status] for student, score, status in rows}


def press(lab, row, action):
    """Press one of the formgrader's icons in a row and read the message."""
    row.locator(f"td.{action} a").click()
    modal = lab.page.locator(".modal.in")
    modal.wait_for(timeout=600_000)
    text = modal.inner_text()
    modal.locator("button", has_text="OK").first.click()
    modal.wait_for(state="detached")
    return text


def row_of(lab, kind, text):
    return lab.page.locator("#main-table tr", has=lab.page.locator(f"td.{kind}", has_text=text))


def test_the_formgrader_lists_grades_comments_and_gives_feedback(lab, copy, graded_class):
    chapter, stem = first_chapter(), text_sources(first_chapter())[0].stem
    late = copy / "autograder/class/submitted/zoe" / chapter
    late.mkdir(parents=True)
    shutil.copy(copy / "autograder/class/submitted/ada" / chapter / f"{stem}.ipynb", late)

    lab.menu("Nbgrader", "Formgrader")
    frame = lab.page.frame_locator("iframe")
    frame.locator("#main-table td", has_text=chapter).first.wait_for()
    lab.shot("formgrader-in-jupyterlab")

    formgrader(lab, f"manage_submissions/{chapter}")
    listed = table(lab)
    lab.shot("formgrader-submissions")
    assert listed.pop("zoe") == ["", "needs autograding"]
    assert listed == {name: [f"{p:g} / {most:g}", "graded"] for name, (p, most) in graded_class.items()}

    # nbgrader's own grading, in a kernel, with the hidden cases
    assert "Successfully autograded" in press(lab, row_of(lab, "student-id", "zoe"), "autograde")
    most = graded_class["ada"][1]
    wait_for("zoe's grade", lambda: table(lab).get("zoe") == [f"{most:g} / {most:g}", "graded"])

    name = exercises(chapter)[0].name
    comment = "Well named. Is 3 < 4 & 5 > 4 really needed?"
    formgrader(lab, f"gradebook/{chapter}/{stem}")
    assert lab.page.locator("#main-table tr").count() == 13
    lab.page.locator("#main-table a", has_text="Submission #1").first.click()
    box = lab.page.locator(f"[id='{chapter}-{name}-comment']")
    box.wait_for()
    lab.page.wait_for_load_state("load")
    wait_for("the comments", lambda: lab.page.evaluate("() => formgrader.comments.loaded && formgrader.grades.loaded"))
    lab.shot("formgrader-submission")
    box.fill(comment)
    with lab.page.expect_response(lambda r: "/api/comment/" in r.url and r.request.method == "PUT") as saved:
        box.blur()
    assert saved.value.ok
    box.scroll_into_view_if_needed()
    lab.shot("formgrader-comment")
    score = lab.page.locator(f"[id='{chapter}-{name}-check']")
    score.fill("0.5")  # no check gives half a point
    with lab.page.expect_response(lambda r: "/api/grade/" in r.url and r.request.method == "PUT") as saved:
        score.blur()
    assert saved.value.ok
    lab.page.reload()
    wait_for("the comment after a reload", lambda: box.input_value() == comment)
    wait_for("the score after a reload", lambda: score.input_value() == "0.5")

    # whose it was: the row whose score is not the grader's any more, and its feedback
    formgrader(lab, f"manage_submissions/{chapter}")
    graded = graded_class | {"zoe": (most, most)}
    scores = table(lab)
    student = next(s for s, (points, _) in graded.items() if not scores[s][0].startswith(f"{points:g} /"))
    assert "Successfully generated feedback" in press(lab, row_of(lab, "student-id", student), "generate-feedback")
    lab.shot("formgrader-feedback-made")
    quiet(lab)
    page = copy / "autograder/class/feedback" / student / chapter / f"{stem}.html"
    lab.page.goto(page.as_uri())
    text = lab.page.locator("body").inner_text()
    lab.shot("feedback-page")
    points = float(scores[student][0].partition(" / ")[0])
    assert comment in text and f"{points} / {float(most)}" in text
    assert lab.outside == []
    # The icons of Bootstrap's style sheet are in a file that no feedback page has; the page's policy says so.
    assert [error for error in lab.errors if "Loading the font 'file:" not in error] == []


def test_the_view_of_an_attack_runs_nothing_and_asks_nobody(lab, copy, graded_class):
    chapter, stem = first_chapter(), text_sources(first_chapter())[0].stem
    path = copy / "autograder/class/autograded/ben" / chapter / f"{stem}.ipynb"
    written = nbformat.writes(attack(nbformat.read(path, 4)))
    path.unlink()  # nbgrader's files are read only
    path.write_text(written)
    with gradebook.opened(f"sqlite:///{copy}/autograder/class/gradebook.db") as book:
        number = book.find_submission_notebook(stem, chapter, "ben").id
    address = f"{lab.server.url}/formgrader/submissions/{number}/"
    lab.page.goto(address)
    wait_for("the scores", lambda: lab.page.evaluate("() => formgrader.comments.loaded && formgrader.grades.loaded"))
    assert f"<script src='{HOST}/script.js'></script>" in lab.page.locator("body").inner_text()
    lab.page.locator(".glyphicon-eye-open").click()  # nbgrader's own scripts still run
    assert "ben" in lab.page.locator(".breadcrumb").inner_text()
    lab.shot("formgrader-attack")
    quiet(lab)
    assert not lab.page.evaluate(f"() => window.{MARK}") and lab.page.url == f"{address}?index=0"
    # the second wall: what the first would let through
    inject = "html => document.querySelector('#notebook').insertAdjacentHTML('beforeend', html)"
    lab.page.evaluate(inject, f'<img src="data:," onerror="{RUN}"><a id="bait" href="javascript:{RUN}">bait</a>')
    lab.page.locator("#bait").click(force=True)
    lab.page.wait_for_timeout(300)
    assert not lab.page.evaluate(f"() => window.{MARK}") and lab.outside == []
    assert any("Content Security Policy" in error for error in lab.errors)


def test_the_exchange_carries_a_chapter_out_and_an_answer_back(lab, chromium, copy, exchange, shots, tmp_path_factory):
    chapter, stem = first_chapter(), text_sources(first_chapter())[0].stem
    formgrader(lab, "manage_assignments")
    assert "Successfully released" in press(lab, row_of(lab, "name", chapter), "release")
    lab.shot("exchange-released")

    theirs = tmp_path_factory.mktemp("Ada's folder")
    with home() as folder, serve(theirs, settings(folder, exchange, copy / "course")) as running:
        learner = Lab(chromium, running, shots)
        learner.page.goto(running.address(""))
        learner.page.locator(".lm-MenuBar-item").first.wait_for()
        learner.menu("Nbgrader", "Assignment List")
        learner.page.get_by_role("button", name="Fetch", exact=True).first.click()
        wait_for("the chapter in the learner's folder", (theirs / chapter / f"{stem}.ipynb").is_file)
        learner.page.get_by_role("button", name="Submit", exact=True).first.wait_for()
        learner.shot("exchange-fetched")
        notebook = json.loads((theirs / chapter / f"{stem}.ipynb").read_text())
        name = exercises(chapter)[0].name
        cell = next(c for c in notebook["cells"] if grade_of(c) == f"{chapter}-{name}")
        cell["source"] = f"def {name}(*given):\n    return 'from the learner'\n"
        (theirs / chapter / f"{stem}.ipynb").write_text(json.dumps(notebook))
        learner.page.get_by_role("button", name="Submit", exact=True).first.click()
        inbound = exchange / "under-the-hood/inbound"
        # nbgrader names the learner by the system's account; here that is whoever runs the tests.
        handed_in = wait_for("the hand-in on the exchange", lambda: list(inbound.glob(f"*+{chapter}+*")))
        student = handed_in[0].name.partition("+")[0]
        learner.page.wait_for_timeout(500)
        learner.shot("exchange-submitted")
        assert learner.errors == [] and learner.outside == []
        learner.close()

    formgrader(lab, "manage_assignments")
    assert "Successfully collected" in press(lab, row_of(lab, "name", chapter), "collect")
    collected = copy / "autograder/class/submitted" / student / chapter / f"{stem}.ipynb"
    assert "from the learner" in collected.read_text()
    quiet(lab)


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces")
def test_the_bolt_and_a_notebook_in_jupyterlab_run_in_the_sandbox(chromium, copy, run, exchange, shots, graded_class):
    chapter, stem = first_chapter(), text_sources(first_chapter())[0].stem
    hand_in = copy / "autograder/class/submitted/yara" / chapter / f"{stem}.ipynb"
    hand_in.parent.mkdir(parents=True)
    notebook = nbformat.read(copy / "autograder/class/submitted/ada" / chapter / f"{stem}.ipynb", 4)
    look = f"import os\nprint('SEEN', os.getuid(), os.path.exists({str(copy)!r}))"
    notebook.cells.insert(1, nbformat.v4.new_code_cell(look))
    nbformat.write(notebook, hand_in)
    with home() as folder:
        environment = settings(folder, exchange, copy, copy / "course") | {"UNDERHOOD_SANDBOX": "1"}
        done = run(sys.executable, "-m", "autograder", "kernel", "--prefix", str(folder / "prefix"))
        assert done.returncode == 0, done.stderr
        environment["JUPYTER_PATH"] = str(folder / "prefix/share/jupyter")
        nbformat.write(
            nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(look)], metadata=SANDBOX), copy / "look.ipynb"
        )
        with serve(copy, environment) as running:
            lab = Lab(chromium, running, shots)
            lab.page.goto(running.address(""))
            lab.page.locator(".lm-MenuBar-item").first.wait_for()
            formgrader(lab, f"manage_submissions/{chapter}")
            assert "Successfully autograded" in press(lab, row_of(lab, "student-id", "yara"), "autograde")
            most = graded_class["ada"][1]
            wait_for("yara's grade", lambda: table(lab).get("yara") == [f"{most:g} / {most:g}", "graded"])
            graded = copy / "autograder/class/autograded/yara" / chapter / f"{stem}.ipynb"
            assert "SEEN 65534 False" in graded.read_text()
            lab.open("look.ipynb")
            (cell,) = lab.run_all()
            assert "".join(cell["outputs"][0]["text"]) == "SEEN 65534 False\n"
            lab.shot("jupyterlab-in-the-sandbox")
            lab.shut_down()
            quiet(lab)
            lab.close()
        (copy / "look.ipynb").unlink()
