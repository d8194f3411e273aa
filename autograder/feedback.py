"""The page that a learner gets back, and the notebook that the formgrader shows. Neither runs anything of the learner's."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path

import nbformat
from jinja2 import Environment, FileSystemLoader, select_autoescape
from nbformat import NotebookNode
from underhood import Exercise, Verdict

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape(default=True)
)


def page(
    student: str,
    chapter: str,
    exercises: Mapping[str, Exercise],
    verdicts: Mapping[str, Verdict],
    answers: Mapping[str, str],
    reason: str,
    seed: int,
) -> str:
    """The feedback page: a verdict an exercise, the learner's own code beside it, everything escaped.

    Parameters
    ----------
    answers
        The learner's source by exercise, where there is one.
    reason
        What the grader has to say about the whole submission, or "".
    """
    items = [
        {"exercise": exercises[name], "verdict": verdict, "text": str(verdict), "answer": answers.get(name, "")}
        for name, verdict in verdicts.items()
    ]
    return _templates.get_template("feedback.html").render(
        student=student,
        chapter=chapter,
        items=items,
        points=sum(v.points for v in verdicts.values()),
        max_points=sum(v.max_points for v in verdicts.values()),
        reason=reason,
        seed=seed,
    )


def graded_notebook(
    notebook: NotebookNode, verdicts: Mapping[str, Verdict], outputs: Mapping[str, str]
) -> NotebookNode:
    """The notebook as nbgrader's autograde would leave it, with text for outputs.

    Parameters
    ----------
    notebook
        The canonical notebook; not changed.
    verdicts
        By exercise: they become the outputs of the check cells.
    outputs
        What the other cells printed, by cell id.
    """
    graded = nbformat.from_dict(notebook)
    for cell in graded.cells:
        meta = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "markdown" and not meta.get("locked"):
            cell.source = _harmless(cell.source)
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        name = meta.get("grade_id", "").partition("-")[2].removesuffix("-check")
        if meta.get("grade") and name in verdicts:
            verdict = verdicts[name]
            data = {"text/html": verdict._repr_html_(), "text/plain": repr(verdict)}
            cell.outputs = [nbformat.v4.new_output("execute_result", data, execution_count=1)]
            cell.execution_count = 1
        elif outputs.get(cell.get("id", "")):
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=outputs[cell.id])]
    return graded


def _harmless(markdown: str) -> str:
    """Markdown in which HTML is text: `<` starts no tag."""
    return html.escape(markdown, quote=False).replace("&gt;", ">")
