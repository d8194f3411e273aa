"""A page about a submission holds the course's text and the learner's words, and nothing that runs or asks."""

from __future__ import annotations

import re
import time
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
from browser import browser
from hostile_page import HOST, HTML, MARK, attack
from nbconvert.exporters import HTMLExporter
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode, v4
from nbgrader.server_extensions.formgrader.handlers import template_path

from autograder import exercises, feedback
from autograder.feedback import as_written
from autograder.harmless import TEMPLATES, Harmless, cleaned, harmless
from autograder.judge import judge
from autograder.run import releases

CHAPTER = "01_basics"


@pytest.fixture(scope="module")
def release():
    return releases(CHAPTER)["basics"]


def test_the_courses_own_text_and_the_learners_code_are_shown_as_they_are(release):
    notebook = nbformat.from_dict(release)
    notebook.cells.append(nbformat.v4.new_code_cell("mine = 1"))
    shown = harmless(notebook, release)
    assert [(cell.cell_type, cell.source) for cell in shown.cells[:-1]] == [
        (c.cell_type, c.source) for c in release.cells
    ]
    assert [cell.metadata.get("nbgrader") for cell in shown.cells[:-1]] == [
        c.metadata.get("nbgrader") for c in release.cells
    ]
    assert shown.cells[-1].source == "mine = 1" and shown.metadata == release.metadata
    nbformat.validate(shown)


def test_the_learners_markdown_is_shown_letter_for_letter_once(release):
    text = "# My *thoughts*\n```\n<b>bold</b>"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), nbformat.v4.new_raw_cell(text)])
    shown = harmless(harmless(notebook, release), release)
    assert [(cell.cell_type, cell.source) for cell in shown.cells] == [("markdown", as_written(text))] * 2


def nested(depth: int) -> NotebookNode:
    return v4.new_output("display_data", data={"text/html": "<i><div>" * depth, "text/plain": "a table"})


def colored(codes: str) -> NotebookNode:
    return v4.new_output("stream", text=codes + "x")


@pytest.mark.parametrize(
    "outputs",
    [
        [nested(100_000)],
        [nested(900)] * 200,
        [colored("\x1b[" + "1;" * 400_000 + "m")],
        [colored("\x1b[1m" * 200_000)],
        [colored("\x1b[1m" * 1_900)] * 200,
        [v4.new_output("error", ename="E", evalue="", traceback=["\x1b[" + "1;" * 400_000 + "m"])],
        [v4.new_output("stream", text="x" * 150_000)] * 200,
    ],
    ids=["deep", "deep again and again", "one long color", "colors", "colors again", "error", "text"],
)
def test_outputs_that_take_long_to_convert_are_cut(outputs):
    """Each of these takes minutes otherwise, in the process that serves everybody."""
    notebook = v4.new_notebook(cells=[v4.new_code_cell("", outputs=outputs)])
    start = time.process_time()
    text, _ = HTMLExporter().from_notebook_node(harmless(notebook, None))
    assert time.process_time() - start < 10
    assert len(text) < 4_000_000


def test_a_verdict_keeps_its_look():
    exercise = exercises(CHAPTER)[3]
    html = judge(exercise.name, exercise.mistakes[0].fn)._repr_html_()
    shown = cleaned(html)
    for words in (
        "border-left:4px solid currentColor",
        "white-space:pre-wrap",
        "border-collapse:collapse",
        "<table",
        "<b>no</b>",
    ):
        assert words in html and words in shown
    assert shown.count("<tr>") == html.count("<tr>") and "&lt;" not in shown.replace("&lt;lambda", "")


@pytest.mark.parametrize("html", HTML)
def test_no_tag_that_runs_loads_or_covers_is_left(html):
    shown = cleaned(html)
    tags = [piece.partition(">")[0] for piece in shown.split("<")[1:]]
    assert all(tag.lstrip("/").split()[0] in ("b", "style") for tag in tags), shown
    assert not any(word in tag for tag in tags for word in ("url", "position", "on", "href", HOST)), shown


@pytest.mark.parametrize("known", (True, False), ids=("of a chapter", "of an unknown assignment"))
def test_all_that_is_left_of_an_attack_is_text(release, known):
    shown = harmless(attack(nbformat.from_dict(release)), release if known else None)
    kinds = {kind for cell in shown.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert kinds == {"text/html", "text/plain", "image/png"}
    assert not any(output.metadata for cell in shown.cells for output in cell.get("outputs", []) if "data" in output)
    grade_ids = [cell.metadata.nbgrader.grade_id for cell in shown.cells if "nbgrader" in cell.metadata]
    assert not any("script" in grade_id for grade_id in grade_ids)
    assert ("mine" in grade_ids) is not known
    images = [
        o.data["image/png"] for c in shown.cells for o in c.get("outputs", []) if "image/png" in o.get("data", {})
    ]
    assert set(images) == {"iVBORw0KGgo="}
    assert "widgets" not in shown.metadata and "title" not in shown.metadata
    assert all("tags" not in cell.metadata for cell in shown.cells)
    nbformat.validate(shown)


# --- in a real browser --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


class Scores(Preprocessor):
    """What nbgrader's GetGrades does, without a gradebook."""

    def preprocess_cell(self, cell, resources, index):
        if "nbgrader" in cell.metadata:
            cell.metadata.nbgrader["score"] = 0.0
        return cell, resources


def opened(chromium, notebook, folder, ours=True, preprocessors=(Harmless,)):
    """nbgrader's feedback page of a notebook, opened in Chromium: whether a script ran, and what was asked of other hosts."""
    exporter = HTMLExporter(
        template_name="feedback",
        extra_template_basedirs=[str(TEMPLATES)] * ours + [template_path],
        extra_template_paths=[str(Path(template_path).parent / "static/node_modules/bootstrap/dist/css")],
        preprocessors=[*preprocessors, Scores],
    )
    graded = {"assignment": CHAPTER, "notebook": "basics", "score": 1, "max_score": 2, "late_penalty": 0}
    html, _ = exporter.from_notebook_node(notebook, resources={"nbgrader": graded})
    (folder / "page.html").write_text(html)
    return looked_at(chromium, folder / "page.html")


def looked_at(chromium, path):
    context = chromium.new_context()
    asked: list[str] = []
    # A route sees what leaves the browser; a request event comes for what the policy blocked, too.
    context.route(re.compile("^https?:"), lambda route: (asked.append(route.request.url), route.abort()))
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_timeout(500)
    for bait in page.locator("#bait").all():
        bait.click(force=True, timeout=2000)
    ran = page.evaluate(f"() => window.{MARK} !== undefined")
    text = page.locator("body").inner_text()
    context.close()
    return ran, asked, text


@pytest.mark.slow
def test_the_feedback_page_of_an_attack_runs_nothing_and_asks_nobody(chromium, release, tmp_path):
    ran, asked, text = opened(chromium, attack(nbformat.from_dict(release)), tmp_path)
    assert (ran, asked) == (False, [])
    assert "Score: 1.0 / 2.0" in text and f"<script src='{HOST}/script.js'></script>" in text


@pytest.mark.slow
def test_each_of_the_two_walls_of_the_page_holds_alone(chromium, release, tmp_path):
    notebook = nbformat.from_dict(release)
    notebook.cells += [nbformat.v4.new_markdown_cell(html) for html in HTML if "refresh" not in html]
    policy_only = opened(chromium, notebook, tmp_path, preprocessors=())
    assert policy_only[:2] == (False, [])
    ran, asked, _ = opened(chromium, notebook, tmp_path, ours=False)
    assert not ran and {urlsplit(url).hostname for url in asked} == {
        "cdnjs.cloudflare.com"
    }  # nbgrader's own template's
    ran, asked, _ = opened(chromium, notebook, tmp_path, ours=False, preprocessors=())
    assert ran and any(url.startswith(HOST) for url in asked)  # so the attack is one


@pytest.mark.slow
def test_the_graders_own_feedback_page_runs_nothing_and_asks_nobody(chromium, tmp_path):
    exercise = exercises(CHAPTER)[3]
    bad = "".join(HTML)
    verdicts = {exercise.name: judge(exercise.name, exercise.mistakes[0].fn)}
    html = feedback.page(bad, CHAPTER, {exercise.name: exercise}, verdicts, {exercise.name: bad}, bad)
    (tmp_path / "page.html").write_text(html)
    ran, asked, text = looked_at(chromium, tmp_path / "page.html")
    assert (ran, asked) == (False, []) and text.count(f"<script src='{HOST}/script.js'></script>") >= 2
