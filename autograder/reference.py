"""The reference solutions, taken from the notebooks' own solution cells."""

from __future__ import annotations

import ast
import functools
import linecache
import types
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from .chapters import known, text_sources


@functools.cache
def _namespace(chapter: str) -> dict[str, Any]:
    module = types.ModuleType(f"reference_{chapter}")
    sources = text_sources(known(chapter))
    paired = [source for source in sources if source.with_suffix(".ipynb").is_file()]
    for source in paired or sources:  # what else may have come into the folder is not run
        for code in definitions(read(source)):
            _run(code, f"<{source.name}>", module.__dict__)
    return module.__dict__


def load(chapter: str) -> dict[str, Any]:
    """The reference functions and classes of a chapter, by name.

    Runs the notebook's imports and its solution cells, nothing else. Returns a new dict of the same objects each time.
    """
    return {key: value for key, value in _namespace(chapter).items() if not key.startswith("__")}


def read(source: Path) -> nbformat.NotebookNode:
    """The notebook of a text source."""
    return jupytext.read(source)


def solution_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The code cells in which the learner writes."""
    return [c for c in notebook.cells if c.cell_type == "code" and c.metadata.get("nbgrader", {}).get("solution")]


def definitions(notebook: nbformat.NotebookNode) -> list[str]:
    """The imports of every code cell, then the solution cells."""
    imports = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and not cell.metadata.get("nbgrader", {}).get("solution"):
            tree = ast.parse(_without_magics(cell.source))
            imports += [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return ["\n".join(dict.fromkeys(imports)), *(cell.source for cell in solution_cells(notebook))]


def _without_magics(source: str) -> str:
    lines = [(line, line.lstrip()) for line in source.splitlines()]
    return "\n".join(line[: -len(rest)] + "pass" if rest.startswith(("%", "!")) else line for line, rest in lines)


def _run(code: str, name: str, namespace: dict[str, Any]) -> None:
    """Run code so that `inspect.getsource` finds it again, as in a notebook."""
    filename = f"{name[:-1]}:{abs(hash(code))}>"
    linecache.cache[filename] = (len(code), None, [line + "\n" for line in code.splitlines()], filename)
    exec(compile(code, filename, "exec", dont_inherit=True), namespace)
