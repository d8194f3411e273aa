"""Every notebook, as text and as it runs: the house rules, the cards, and both Run Alls."""

from __future__ import annotations

import re
import shutil

import nbformat
import pytest

from autograder import exercises, reference
from autograder.chapters import COURSE, SOLUTIONS, text_sources
from autograder.execute import errors, execute, points

MAX_CELLS, MAX_WORDS, MAX_LINES = 90, 3500, 10


def releases(chapter):
    return [nbformat.read(path, 4) for path in sorted((COURSE / chapter).glob("*.ipynb"))]


def sources(chapter):
    return [reference.read(path) for path in text_sources(chapter)]


def markdown(notebook):
    return [re.sub(r"\(data:[^)]*\)", "(picture)", c.source) for c in notebook.cells if c.cell_type == "markdown"]


def grading(cell):
    return cell.metadata.get("nbgrader", {})


def test_size(chapter):
    for notebook in releases(chapter):
        words = sum(len(text.split()) for text in markdown(notebook))
        assert len(notebook.cells) <= MAX_CELLS + 5, f"{len(notebook.cells)} cells"
        assert words <= MAX_WORDS * 1.05, f"{words} words"


def test_teaching_cells_are_short(chapter):
    for notebook in releases(chapter):
        code = [c for c in notebook.cells if c.cell_type == "code" and not grading(c)]
        for cell in code[1:]:  # the first one holds the imports
            lines = [line for line in cell.source.splitlines() if line.strip()]
            assert len(lines) <= MAX_LINES, f"{len(lines)} lines:\n{cell.source}"


def test_headings_are_in_order(chapter):
    for notebook in releases(chapter):
        levels = []
        for text in markdown(notebook):
            outside = re.sub(r"```.*?```", "", text, flags=re.S)
            levels += [len(m[1]) for m in re.finditer(r"^(#{1,6}) ", outside, flags=re.M)]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(later <= earlier + 1 for earlier, later in zip(levels, levels[1:], strict=False)), levels


def test_every_picture_has_an_alternative_text(chapter):
    for notebook in releases(chapter):
        text = "\n".join(markdown(notebook))
        pictures = re.findall(r"!\[([^\]]*)\]\(", text)
        assert pictures and all(len(alt) > 20 for alt in pictures)
        assert all('alt="' in tag for tag in re.findall(r"<img[^>]*>", text))
        assert "attachment:" not in text and not re.search(r"!\[[^\]]*\]\((?!picture)", text), "only inlined pictures"


def test_opening_and_closing(chapter):
    for notebook in releases(chapter):
        text = "\n".join(markdown(notebook))
        first = "\n".join(markdown(notebook)[:4])
        if len(releases(chapter)) == 1:
            worth = sum(e.points for e in exercises(chapter))
            assert f"{worth} points" in first, f"the opening should say {worth} points"
        assert "you will be able to" in first and "minutes" in first and "points" in first
        questions = text.split("## Five questions")[1].split("\n## ")[0]
        assert questions.count("<details>") == 5
        assert "## What you can now do" in text and "## Keep your work" in text and "](../" in text


def cards(chapter):
    """Exercises that share a card, together."""
    found = []
    for exercise in exercises(chapter):
        if exercise.second_of_card:
            found[-1].append(exercise)
        else:
            found.append([exercise])
    return found


def test_every_exercise_has_its_card_its_stub_its_check_and_its_hints(chapter):
    number = int(chapter[:2])
    levels = ("easy", "medium", "hard")
    for release in releases(chapter):
        text = "\n".join(markdown(release))
        for position, card in enumerate(cards(chapter), 1):
            level = max((e.level for e in card), key=levels.index)
            minutes, worth = sum(e.minutes for e in card), sum(e.points for e in card)
            name = f"**Exercise {number}.{position} · {card[0].title}**"
            line = re.escape(f"{name} — *{level} · {minutes} min · {worth} points")
            found = re.search(line + r"( · uses [\d., and]+)?\*", text)
            near = re.findall(rf"\*\*Exercise {number}\.{position} .*", text)
            assert found, f"no card {name} — *{level} · {minutes} min · {worth} points*, but {near}"
        cells = {grading(c)["grade_id"]: (i, c) for i, c in enumerate(release.cells) if grading(c)}
        for exercise in exercises(chapter):
            at, stub = cells[f"{chapter}-{exercise.name}"]
            assert "raise NotImplementedError" in stub.source and '"""' in stub.source
            assert grading(stub)["solution"] and not grading(stub)["grade"]
            after, test = cells[f"{chapter}-{exercise.name}-check"]
            assert at < after and grading(test)["locked"] and grading(test)["points"] == exercise.points
            assert test.source == f'check("{exercise.name}")'
            hints = next(c for c in release.cells[after + 1 :] if c.cell_type == "markdown")
            assert 1 <= hints.source.count("<details>") <= 3, f"{exercise.name} has no hints"
        graded = [c for c in release.cells if grading(c).get("grade")]
        assert [grading(c)["grade_id"] for c in graded] == [f"{chapter}-{e.name}-check" for e in exercises(chapter)]


def test_grade_ids_are_unique(chapter):
    ids = [grading(c)["grade_id"] for n in sources(chapter) for c in n.cells if grading(c)]
    assert len(ids) == len(set(ids)) and all(i.startswith(f"{chapter}-") for i in ids)


def test_plots_come_from_the_helper_package(chapter):
    for notebook in sources(chapter):
        code = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
        assert "pyplot" not in code and "plt." not in code and "tqdm.notebook" not in code


def test_no_forbidden_words(chapter):
    for notebook in releases(chapter):
        text = "\n".join(markdown(notebook)).lower()
        assert not re.findall(r"\b(simply|just|obviously)\b", text)


@pytest.mark.slow
def test_run_all_on_the_untouched_release_ends_without_an_exception(chapter, tmp_path):
    for number, release in enumerate(releases(chapter)):
        done = execute(release, tmp_path)
        assert errors(done.notebook) == []
        found = points(done.notebook)
        graded = [grading(c)["grade_id"] for c in release.cells if grading(c).get("grade")]
        assert found == dict.fromkeys(graded, 0.0), number
        outputs = [output for cell in done.notebook.cells for output in cell.get("outputs", [])]
        shown = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
        assert sum("not attempted" in page or "NotImplementedError" in page for page in shown) >= len(graded)
        stderr = [o.text for c in done.notebook.cells if grading(c) for o in c.outputs if o.get("name") == "stderr"]
        assert stderr == []


@pytest.mark.slow
def test_run_all_with_the_reference_gets_full_marks_in_time(chapter, tmp_path, record_property):
    for path in text_sources(chapter):
        copy = tmp_path / path.with_suffix(".ipynb").name
        shutil.copy(path.with_suffix(".ipynb"), copy)
        done = execute(nbformat.read(copy, 4), tmp_path)
        assert errors(done.notebook) == []
        wanted = {f"{chapter}-{e.name}-check": float(e.points) for e in exercises(chapter)}
        assert points(done.notebook) == {k: v for k, v in wanted.items() if k in str(done.notebook.cells)}
        for cell in done.notebook.cells:
            pictures = [o for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
            if pictures:
                assert any(o.output_type == "stream" and o.name == "stdout" for o in cell.outputs), (
                    "a verdict beside the plot"
                )
                assert all(o.metadata.get("image/png", {}).get("alt") for o in pictures), "an alternative text"
        print(f"\n{path.name}: {done.cpu_seconds:.1f} CPU s, {done.seconds:.1f} s, {done.peak_megabytes:.0f} MB")
        record_property("cpu_seconds", done.cpu_seconds)
        record_property("peak_megabytes", done.peak_megabytes)
        assert done.cpu_seconds < 60 and done.peak_megabytes < 1024


def test_the_paired_notebook_is_the_text(chapter):
    from jupytext.compare import compare_notebooks

    for path in text_sources(chapter):
        paired = nbformat.read(path.with_suffix(".ipynb"), 4)
        compare_notebooks(paired, reference.read(path), "py:percent", raise_on_first_difference=True)
    assert {p.stem for p in text_sources(chapter)} == {p.stem for p in (COURSE / chapter).glob("*.ipynb")}
    assert (SOLUTIONS / chapter / "exercises.py").is_file() and (SOLUTIONS / chapter / "alternatives.py").is_file()
