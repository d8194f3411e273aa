"""The build: the committed course is what the sources give, in the same bytes every time and on every way."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupytext.async_contentsmanager import build_async_jupytext_contents_manager_class

from autograder import build, exercises, reference
from autograder.chapters import COURSE, SOLUTIONS, module, text_sources


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.slow
def test_the_committed_course_equals_a_fresh_build(chapter, copy, run):
    for generated in [copy / "course" / chapter, *(copy / "solutions" / chapter).glob("*.ipynb")]:
        shutil.rmtree(generated) if generated.is_dir() else generated.unlink()
    (copy / "course/underhood/recorded" / f"{chapter}.json").unlink()
    # Another CPU's kernels: the build takes the same ones everywhere.
    done = run("env", "OPENBLAS_CORETYPE=Prescott", sys.executable, "-m", "autograder.build", chapter)
    assert done.returncode == 0, done.stderr[-3000:]
    assert files(copy / "course" / chapter) == files(COURSE / chapter)
    assert (copy / f"course/underhood/recorded/{chapter}.json").read_bytes() == (
        COURSE / f"underhood/recorded/{chapter}.json"
    ).read_bytes()
    for path in text_sources(chapter):
        name = path.with_suffix(".ipynb").name
        assert (copy / "solutions" / chapter / name).read_bytes() == (SOLUTIONS / chapter / name).read_bytes()
    if (SOLUTIONS / chapter / "figures").is_dir():
        assert files(copy / "solutions" / chapter / "figures") == files(SOLUTIONS / chapter / "figures")


@pytest.mark.slow
def test_nbgraders_own_command_writes_the_same_bytes(chapter, copy, run):
    shutil.rmtree(copy / "course" / chapter, ignore_errors=True)
    done = run("nbgrader", "generate_assignment", chapter, "--force", "--create")
    assert done.returncode == 0, done.stderr[-3000:]
    assert files(copy / "course" / chapter) == files(COURSE / chapter)


def test_the_release_holds_notebooks_only(chapter):
    assert all(p.suffix == ".ipynb" for p in (COURSE / chapter).rglob("*"))


def test_the_release_holds_no_solution_and_no_output(chapter):
    for path in (COURSE / chapter).glob("*.ipynb"):
        notebook = nbformat.read(path, 4)
        nbformat.validate(notebook)
        text = path.read_text(encoding="utf-8")
        for word in ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN TESTS", "hidden=True", "jupytext"):
            assert word not in text
        assert all(not c.outputs and c.execution_count is None for c in notebook.cells if c.cell_type == "code")
        released = {line.strip() for c in notebook.cells if c.cell_type == "code" for line in c.source.splitlines()}
        for source in text_sources(chapter):
            for cell in reference.solution_cells(reference.read(source)):
                for solution in re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", cell.source, flags=re.S):
                    kept = [line.strip() for line in solution.splitlines() if len(line.strip()) > 25]
                    assert not released.intersection(kept)


def test_the_record_holds_no_code_and_no_hidden_case(chapter):
    text = (COURSE / f"underhood/recorded/{chapter}.json").read_text(encoding="utf-8")
    written = json.loads(text)
    assert "lambda" not in text and "def " not in text
    for exercise, face in zip(exercises(chapter), written["exercises"], strict=True):
        assert face["name"] == exercise.name
        assert [case["about"] for case in face["cases"]] == [case.about for case in exercise.cases]
        assert all(set(mistake) == {"name", "hint", "seen"} for mistake in face["mistakes"])


def test_the_helper_package_holds_no_variant_and_no_solution(chapter):
    """No function of exercises.py or alternatives.py, and no solution, has its body in course/underhood."""
    shipped = "\n".join(p.read_text(encoding="utf-8") for p in (COURSE / "underhood").rglob("*.py"))
    shipped_lines = {line.strip() for line in shipped.splitlines()}
    for name in ("exercises", "alternatives"):
        source = Path(module(chapter, name).__file__).read_text(encoding="utf-8")
        inside = [line.strip() for line in source.splitlines() if line.startswith("    ") and "(" in line]
        shared = [line for line in inside if len(line) > 45 and line in shipped_lines]
        assert not shared, shared
    for source in text_sources(chapter):
        for cell in reference.solution_cells(reference.read(source)):
            for solution in re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", cell.source, flags=re.S):
                shared = [
                    x.strip() for x in solution.splitlines() if len(x.strip()) > 45 and x.strip() in shipped_lines
                ]
                assert not shared, shared


def test_inserting_a_cell_changes_no_other_id(chapter):
    source = text_sources(chapter)[0]
    notebook = reference.read(source)
    build.tidy(chapter, notebook)
    before = [cell.id for cell in notebook.cells]
    notebook.cells.insert(3, nbformat.v4.new_markdown_cell("A new thought."))
    build.tidy(chapter, notebook)
    after = [cell.id for cell in notebook.cells]
    assert after[:3] + after[4:] == before and len(set(after)) == len(after)


def test_an_edit_in_jupyterlab_reaches_the_text(tmp_path):
    """JupyterLab saves through jupytext's contents manager: the paired notebook's change lands in the text source."""
    manager = build_async_jupytext_contents_manager_class(AsyncLargeFileManager)()
    manager.root_dir = str(tmp_path)
    source = text_sources("01_basics")[0]
    name = source.with_suffix(".ipynb").name
    for path in (source.with_suffix(".ipynb"), source):
        shutil.copy(path, tmp_path)

    async def edit() -> None:
        model = await manager.get(name, type="notebook")
        model["content"]["cells"][0]["source"] += "\n\nWritten in JupyterLab."
        await manager.save(model, name)

    asyncio.run(edit())
    assert "# Written in JupyterLab." in (tmp_path / source.name).read_text(encoding="utf-8")


def test_a_missing_or_huge_picture_is_said_clearly(tmp_path):
    from autograder.release import inline_pictures

    with pytest.raises(ValueError, match="nothing.png is missing: run `make course`"):
        inline_pictures(tmp_path, "![a picture](figures/nothing.png)")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/big.png").write_bytes(b"0" * 50_000)
    with pytest.raises(ValueError, match="the limit is 40960"):
        inline_pictures(tmp_path, "![a picture](figures/big.png)")


def test_an_unknown_chapter_names_the_known_ones():
    with pytest.raises(ValueError, match="There is no chapter '07_magic'. The chapters are: 01_basics"):
        exercises("07_magic")
