"""What nbgrader does with a notebook besides its own: `TidyRelease` for a release, `OwnSchema` for a hand-in.

Every way of releasing runs the first: `make course`, `nbgrader generate_assignment` and the formgrader's button end in the
same bytes: no outputs, no trace of the text source, stable cell ids, pictures inlined.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbgrader.nbgraderformat import SCHEMA_VERSION
from nbgrader.preprocessors import NbGraderPreprocessor

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
PICTURE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<path>figures/[\w.-]+\.png)\)")
MAX_PICTURE = 40 * 1024  # bytes


def cell_ids(chapter: str, notebook: NotebookNode) -> None:
    """Give every cell an id that says where it comes from, not when it was made.

    A graded or solution cell's id is a hash of chapter and grade_id; any other's of its type, its source and how many
    equal cells stand before it. Inserting a cell changes no other id.
    """
    twins: Counter[str] = Counter()
    for cell in notebook.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        what = f"{chapter}\n{grade_id}" if grade_id else f"{cell.cell_type}\n{cell.source}"
        twins[what] += 1
        cell["id"] = hashlib.sha256(f"{what}\n{twins[what]}".encode()).hexdigest()[:12]


def tidy(chapter: str, notebook: NotebookNode) -> None:
    """Drop what depends on when and where the notebook was written; in place."""
    notebook.metadata = NotebookNode(kernelspec=dict(KERNEL), language_info={"name": "python"})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    cell_ids(chapter, notebook)
    for cell in notebook.cells:
        for key in ("execution", "collapsed", "scrolled", "trusted"):
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        cell.pop("attachments", None)


def inline_pictures(folder: Path, source: str) -> str:
    """Replace links to pictures beside the source by data URIs: relative paths break in copied Colab notebooks.

    Raises
    ------
    ValueError
        Where a picture is missing or larger than 40 KB.
    """

    def inline(match: re.Match[str]) -> str:
        path = folder / match["path"]
        if not path.is_file():
            raise ValueError(f"{path.name} is missing: run `make course`, which draws the pictures.")
        data = path.read_bytes()
        if len(data) > MAX_PICTURE:
            raise ValueError(f"{path.name} has {len(data)} bytes, the limit is {MAX_PICTURE}. Draw it smaller.")
        return f"![{match['alt']}](data:image/png;base64,{base64.b64encode(data).decode()})"

    return PICTURE.sub(inline, source)


class TidyRelease(NbGraderPreprocessor):
    """The last preprocessor of `generate_assignment`."""

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        chapter = resources["nbgrader"]["assignment"]
        folder = Path(resources["metadata"]["path"])
        tidy(chapter, nb)
        for cell in nb.cells:
            if cell.cell_type == "markdown":
                cell.source = inline_pictures(folder, cell.source)
        return nb, resources


class OwnSchema(NbGraderPreprocessor):
    """Takes nbgrader's marks of another version, or of none, out of a hand-in's cells, and other programs' out of it all.

    nbgrader would end the run for all who come after it; what is missing then it puts back. Other programs do with a
    notebook what its metadata says: jupytext writes it to other files.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Called by nbconvert for a notebook."""
        kept = ("kernelspec", "language_info")
        nb.metadata = NotebookNode({key: nb.metadata[key] for key in kept if key in nb.metadata})
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> tuple[NotebookNode, Any]:
        """Called by nbconvert for each cell."""
        marks = cell.metadata.get("nbgrader")
        if marks is not None and not (isinstance(marks, dict) and marks.get("schema_version") == SCHEMA_VERSION):
            del cell.metadata["nbgrader"]
        return cell, resources
