"""The page that a learner gets back, and the notebook that the formgrader shows. Neither runs anything of the learner's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import nbformat
from jinja2 import Environment, FileSystemLoader, select_autoescape
from nbformat import NotebookNode

from underhood import Exercise, Verdict

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape(default=True)
)


# Characters that turn the direction of reading: with them code can look like other code.
TURNS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\N{REPLACEMENT CHARACTER}")


def page(
    student: str,
    chapter: str,
    exercises: Mapping[str, Exercise],
    verdicts: Mapping[str, Verdict],
    answers: Mapping[str, str],
    reason: str,
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
        {
            "exercise": exercises[name],
            "verdict": verdict,
            "text": str(verdict),
            "answer": answers.get(name, "").translate(TURNS),
        }
        for name, verdict in verdicts.items()
    ]
    return _templates.get_template("feedback.html").render(
        student=student,
        chapter=chapter,
        items=items,
        points=sum(v.points for v in verdicts.values()),
        max_points=sum(v.max_points for v in verdicts.values()),
        reason=reason,
    )


def graded_notebook(
    notebook: NotebookNode, release: NotebookNode, verdicts: Mapping[str, Verdict], outputs: Mapping[str, str]
) -> NotebookNode:
    """The notebook as nbgrader's autograde would leave it, with text for outputs.

    Parameters
    ----------
    notebook
        The canonical notebook; not changed.
    release
        What it was made from: text in it is the course's own, and shown as it is.
    verdicts
        By exercise: they become the outputs of the check cells.
    outputs
        What the other cells printed, by cell id.
    """
    graded = nbformat.from_dict(notebook)
    ours = {(cell.cell_type, cell.source) for cell in release.cells}
    for cell in graded.cells:
        if cell.cell_type != "code":
            if (cell.cell_type, cell.source) not in ours:
                cell.cell_type, cell.source = "markdown", as_written(cell.source)
            continue
        cell.outputs, cell.execution_count = [], None
        meta = cell.metadata.get("nbgrader", {})
        name = meta.get("grade_id", "").partition("-")[2].removesuffix("-check")
        if meta.get("grade") and name in verdicts:
            verdict = verdicts[name]
            data = {"text/html": verdict._repr_html_(), "text/plain": repr(verdict)}
            output = {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": 1}
            cell.outputs = [nbformat.from_dict(output)]
            cell.execution_count = 1
        elif outputs.get(cell.get("id", "")):
            cell.outputs = [nbformat.from_dict({"output_type": "stream", "name": "stdout", "text": outputs[cell.id]})]
    return graded


def as_written(text: str) -> str:
    """Markdown that shows the text letter for letter, in a code block.

    A learner's own Markdown and raw cells could otherwise bring scripts, forms, formulas that link elsewhere, and pictures
    from other hosts to the page of whoever reads them.
    """
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"
