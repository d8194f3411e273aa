"""What nbgrader's own pages may show of a submission: the formgrader's view, and `nbgrader generate_feedback`.

Whoever reads such a page has the instructor's session, or looks at a file on the own disk. So the page holds the course's own
text as it is, and of the learner's only text and pictures: own Markdown and raw cells as they were typed, code, and outputs
without scripts, links, forms or pictures of other hosts. The templates beside this (`templates/formgrade`,
`templates/feedback`) put a policy on the page as a second wall, and take out nbgrader's own requests to other hosts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import bleach
import nbformat
from bleach.css_sanitizer import CSSSanitizer
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode, v4

from .feedback import TURNS, as_written
from .intake import MAX_CELLS

COURSE = Path(__file__).resolve().parent.parent / "course"
TEMPLATES = Path(__file__).resolve().parent / "templates"
# What verdicts and tables are made of. Nothing here loads, links, sends or covers anything.
TAGS = set(
    """
    b br caption code col colgroup div em i li ol p pre small span strong sub sup table tbody td tfoot th thead tr u ul
    """.split()
)
ATTRIBUTES = {"*": ["style", "title"], "th": ["scope"]}
# A length that could reach over what stands around: above 16 px, or in another unit than px.
LARGE = re.compile(r"(1[7-9]|[2-9]\d|\d{3,})(\.\d*)?px|\d\s*(%|(?!px)[a-z])|\(", re.I)


class Small(CSSSanitizer):
    """Allows some properties, and no style that needs room."""

    def sanitize_css(self, style: str) -> str:
        """The style without what is not allowed; nothing where a length is large."""
        kept: str = super().sanitize_css(style)
        return "" if LARGE.search(re.sub("#[0-9a-f]{3,8}", "", kept, flags=re.I)) else kept


STYLES = Small(
    allowed_css_properties="""
        border border-collapse border-left color font-family font-style font-weight overflow-wrap padding text-align
        vertical-align white-space
    """.split(),
    allowed_svg_properties=(),
)
# What is shown of one output or cell. The converters behind nbgrader's pages take time with the square of these.
MAX_TEXT = 200_000  # characters of an output
MAX_HTML = 20_000  # characters of HTML
MAX_TAGS = 2_000  # in it
MAX_MARKDOWN = 10_000  # characters of a cell of the learner's own
MAX_WORK = 2e8  # squares of the characters in all the learner's cells, until they lose their colors
MAX_TAG = 4_000  # characters from one tag to the next
MAX_OUTPUTS = 1_000  # of a notebook
MAX_PICTURE = 4_000_000  # characters of a picture
MAX_COLORS = 2_000  # terminal codes, and numbers in them
IN_ALL = 5  # outputs as large as that, in a notebook
FACTS = ("grade", "locked", "points", "schema_version", "solution", "task")  # of nbgrader's cell metadata


class Harmless(Preprocessor):
    """Leaves of a submission what `harmless` does; nbgrader says which assignment and notebook it is."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Called by nbconvert."""
        given: Mapping[str, Any] = resources.get("nbgrader") or {}
        chapter = given.get("assignment", resources.get("assignment_id"))
        name = given.get("notebook", resources.get("notebook_id"))
        release = COURSE / str(chapter) / f"{name}.ipynb"
        return harmless(nb, nbformat.read(release, 4) if release.is_file() else None), resources


def harmless(notebook: NotebookNode, release: NotebookNode | None) -> NotebookNode:
    """A notebook that is safe to show as HTML.

    Parameters
    ----------
    notebook
        The submission; not changed.
    release
        What it was made from: the course's own text. None: nothing in it is.
    """
    cells = release.cells if release else []
    ours = Counter((cell.cell_type, cell.source) for cell in cells)  # as often as that, not more
    known = {cell.metadata.nbgrader.grade_id: cell.metadata.nbgrader for cell in cells if "nbgrader" in cell.metadata}
    python = {"language_info": {"name": "python"}}  # whose colors are quicker than IPython's
    shown = v4.new_notebook(metadata=release.metadata if release else python)
    room = _Room()
    for number, cell in enumerate(notebook.cells):
        if number == MAX_CELLS:
            shown.cells.append(v4.new_markdown_cell(f"… (only {MAX_CELLS} cells are shown)"))
            break
        metadata = _metadata(cell.metadata.get("nbgrader"), known if release else None)
        source = cell.source
        own = ours[cell.cell_type, source] == 0
        ours[cell.cell_type, source] -= not own
        if own:
            source = source.translate(TURNS)
        if cell.cell_type == "code":
            if own:
                source = "\n".join(line.rstrip() for line in re.split("\r\n?|\n", source))
                if not room.works(len(source)):
                    metadata["magics_language"] = "text"  # which nbconvert does not color
            made = v4.new_code_cell(source, metadata=metadata, outputs=list(_outputs(cell.outputs, room)))
            count = cell.execution_count
            made.execution_count = count if type(count) is int and 0 <= count < 1_000_000 else None
        else:
            if own:
                source = _typed(source)
                text = source[: MAX_MARKDOWN if room.works(min(len(source), MAX_MARKDOWN)) else 100]
                more = len(source) - len(text)
                source = as_written(text + f"… ({more:,} more characters)" * bool(more))
            made = v4.new_markdown_cell(source, metadata=metadata)
        shown.cells.append(made)
    return shown


def _metadata(given: Any, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """nbgrader's metadata of a cell: as the release has it, since the templates write it into the page unescaped."""
    grade_id = given.get("grade_id") if isinstance(given, dict) else None
    if type(grade_id) is not str or not re.fullmatch(r"[\w-]+", grade_id):
        return {}
    if known is not None:
        return {"nbgrader": dict(known[grade_id])} if grade_id in known else {}
    facts = {name: given[name] for name in FACTS if type(given.get(name)) in (bool, int, float)}
    return {"nbgrader": {**facts, "grade_id": grade_id}}


def _typed(text: str) -> str:
    """What the learner typed, also where `as_written` has been at it."""
    inside = "\n".join(text.split("\n")[1:-1])
    return inside if as_written(inside) == text else text


class _Room:
    """What the outputs of a notebook may take yet."""

    def __init__(self) -> None:
        self.outputs = MAX_OUTPUTS
        self.text, self.colors, self.pictures = IN_ALL * MAX_TEXT, IN_ALL * MAX_COLORS, IN_ALL * MAX_PICTURE
        self.markup, self.tags, self.work = IN_ALL * MAX_HTML, IN_ALL * MAX_TAGS, MAX_WORK

    def works(self, characters: int) -> bool:
        """Whether as many characters may be colored, or read as Markdown."""
        self.work -= characters**2
        return self.work >= 0

    def html(self, html: str) -> str | None:
        """Cleaned, or None where it is too much, or too deep for the parsers of HTML and CSS."""
        tags = html.count("<")
        if tags > min(MAX_TAGS, self.tags) or len(html) > min(MAX_HTML, self.markup):
            return None
        if max(map(len, html.split("<"))) > MAX_TAG:
            return None
        self.tags, self.markup = self.tags - tags, self.markup - len(html)
        try:
            return cleaned(html)
        except (RecursionError, ValueError, AssertionError):
            return None

    def picture(self, base64: str) -> bool:
        """Whether it is one, and may be shown."""
        if len(base64) > min(MAX_PICTURE, self.pictures) or not re.fullmatch(r"[\w+/=\s]+", base64, re.ASCII):
            return False
        self.pictures -= len(base64)
        return True

    def plain(self, text: str) -> str:
        """As much of it as there is room for; without its colors where they are too many."""
        text = text.translate(TURNS)
        room = min(MAX_TEXT, self.text)
        text = text if len(text) <= room else text[:room] + "… (there is more in the notebook)"
        colors = sum(1 + code.count(";") for code in re.findall("\x1b[^@-~]*.[^@-~]*", text))
        if colors > min(MAX_COLORS, self.colors):
            text, colors = text.replace("\x1b", ""), 0
        self.text, self.colors = self.text - min(len(text), room), self.colors - colors
        return text


def _outputs(given: Iterable[Any], room: _Room) -> Iterable[NotebookNode]:
    for output in given:
        room.outputs -= 1
        if room.outputs <= 0:
            if room.outputs == 0:
                yield v4.new_output("stream", name="stdout", text=f"… (only {MAX_OUTPUTS} outputs are shown)")
            return
        kind = output.output_type
        if kind == "stream":
            name = "stderr" if output.name == "stderr" else "stdout"
            yield v4.new_output("stream", name=name, text=room.plain(str(output.text)))
        elif kind == "error":
            lines = room.plain("\n".join(str(line) for line in output.traceback)).split("\n")
            ename, evalue = (room.plain(str(text)) for text in (output.ename, output.evalue))
            yield v4.new_output("error", ename=ename, evalue=evalue, traceback=lines)
        elif kind in ("display_data", "execute_result"):
            theirs = {kind: str(value) for kind, value in output.data.items()}
            data = {"text/plain": room.plain(theirs["text/plain"])} if "text/plain" in theirs else {}
            for kind in ("image/png", "image/jpeg"):
                if room.picture(theirs.get(kind, "")):
                    data[kind] = theirs[kind]
            if "text/html" in theirs:
                html = room.html(theirs["text/html"])
                if html is not None:
                    data["text/html"] = html
                elif "text/plain" not in data:
                    data["text/plain"] = room.plain(theirs["text/html"])
            if data:
                yield v4.new_output("display_data", data=data)


def cleaned(html: str) -> str:
    """HTML of tables and text: any other tag is shown as the text that it is."""
    return bleach.clean(html, tags=TAGS, attributes=ATTRIBUTES, protocols=[], css_sanitizer=STYLES)
