"""What Google Colab, other editors and people do to a released notebook, imitated: `variants(release, answers)`.

Nothing here talks to Colab. Each rule is taken from files that Colab wrote and from reports, named in the comment beside it:
colabtools is github.com/googlecolab/colabtools, and the numbers are issues there unless another project is named.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

PERSONAL = ("Ada Example", "ada@example.org", "01234567890123456789", "lh3.googleusercontent.com", "ada-example-github")

Notebook = dict[str, Any]


def marks(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    return cell["metadata"].get("nbgrader", {})


def answer_cells(notebook: Notebook) -> list[int]:
    return [n for n, cell in enumerate(notebook["cells"]) if marks(cell).get("solution")]


def check_cells(notebook: Notebook) -> list[int]:
    return [
        n for n, cell in enumerate(notebook["cells"]) if marks(cell).get("grade") and not marks(cell).get("solution")
    ]


def filled(release: Mapping[str, Any], answers: Mapping[str, str]) -> Notebook:
    """The release with the answers (grade_id → source) typed in and every code cell run once."""
    notebook = copy.deepcopy(json.loads(json.dumps(release)))
    for cell in notebook["cells"]:
        cell["source"] = answers.get(marks(cell).get("grade_id", ""), "".join(cell["source"]))
        if cell["cell_type"] == "code":
            cell["execution_count"] = 1
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["1 of 1 points\n"]}]
    return notebook


def code_id(rng: random.Random) -> str:
    """Twelve characters, - and _ among them, as in `metadata.id` of Colab's files."""
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
    return "".join(rng.choices(alphabet, k=12))


def in_colab(notebook: Notebook, seed: int = 0) -> Notebook:
    """Opened, run and saved in Colab by somebody who is logged in; ids of 4.5 kept."""
    rng = random.Random(seed)
    for cell in notebook["cells"]:
        meta = cell["metadata"]
        meta["id"] = code_id(rng)  # on every cell in 13 of 13 readable notebooks in colabtools
        meta["colab_type"] = "code" if cell["cell_type"] == "code" else "text"  # in older files
        if cell["cell_type"] == "code":
            meta["outputId"] = f"{rng.getrandbits(128):032x}"  # a uuid
            meta["colab"] = {"base_uri": "https://localhost:8080/", "height": 34}  # in 11 of those 13
            meta["executionInfo"] = {  # 658
                "elapsed": 12,
                "status": "ok",
                "timestamp": 1577836800000,
                "user": {
                    "displayName": PERSONAL[0],
                    "userId": PERSONAL[2],
                    "photoUrl": f"https://{PERSONAL[3]}/a-/photo=s64",
                },
                "user_tz": -120,
            }
    notebook["metadata"] = {  # otter-grader 895, ipython 43: no kernelspec.language
        "colab": {"provenance": [], "toc_visible": True, "collapsed_sections": []},
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "authors": [{"name": PERSONAL[0], "email": PERSONAL[1]}],
    }
    return notebook


def as_4_0(notebook: Notebook) -> Notebook:
    """Born or copied in Colab: nbformat 4.0 without cell ids (5402; cocalc 5504 has it that given 4.5 ids are kept)."""
    notebook["nbformat_minor"] = 0
    for cell in notebook["cells"]:
        cell.pop("id", None)
    return notebook


def ids_missing(notebook: Notebook) -> Notebook:
    """4.5 claimed, and no ids: nbformat's MissingIDFieldWarning."""
    for cell in notebook["cells"]:
        cell.pop("id", None)
    return notebook


def badge(notebook: Notebook) -> Notebook:
    """The cell that "Save a copy in GitHub" puts first: it names the account."""
    link = f"https://colab.research.google.com/github/{PERSONAL[4]}/homework/blob/main/basics.ipynb"
    image = '<img src="https://colab.research.google.com/assets/colab-badge.svg" alt="Open In Colab"/>'
    cell = code_cell(f'<a href="{link}" target="_parent">{image}</a>', "markdown")
    cell["metadata"] = {"id": "view-in-github", "colab_type": "text"}
    notebook["cells"].insert(0, cell)
    return notebook


def gpu(notebook: Notebook) -> Notebook:
    notebook["metadata"]["accelerator"] = "GPU"
    notebook["metadata"]["colab"].update(gpuType="T4", machine_shape="hm")
    return notebook


def drive(notebook: Notebook) -> Notebook:
    """A cell of the learner's own before all others."""
    notebook["cells"].insert(0, code_cell("from google.colab import drive\ndrive.mount('/content/drive')"))
    return notebook


def split(notebook: Notebook) -> Notebook:
    """An answer cell split in two, both with the same ids and marks (581, jupyter/notebook 4307; JupyterLab does so too)."""
    at = answer_cells(notebook)[0]
    first = notebook["cells"][at]
    second = copy.deepcopy(first)
    first["source"] = "SPLIT_HELPER = 1\n"
    notebook["cells"].insert(at + 1, second)
    return notebook


def widgets_without_state(notebook: Notebook) -> Notebook:
    """4559, 5255, 5288, nbconvert 1731: what any tqdm.notebook bar leaves."""
    notebook["metadata"]["widgets"] = {
        "application/vnd.jupyter.widget-state+json": {"0a1b": {"model_name": "HBoxModel"}}
    }
    return notebook


def locked_edited(notebook: Notebook) -> Notebook:
    """93: Colab ignores `deletable` and `editable`, so every locked cell can be changed …"""
    for at in check_cells(notebook):
        notebook["cells"][at]["source"] = "assert True"
    return notebook


def locked_deleted(notebook: Notebook) -> Notebook:
    """… and deleted (3177: collapsed cells on a phone)."""
    for at in reversed(check_cells(notebook)):
        del notebook["cells"][at]
    return notebook


def graded_copied(notebook: Notebook) -> Notebook:
    """nbgrader 1083, 1941: a check and its answer pasted again, grade_ids included."""
    for at in (check_cells(notebook)[0], answer_cells(notebook)[0]):
        notebook["cells"].insert(at + 1, copy.deepcopy(notebook["cells"][at]))
    return notebook


def stub_pasted_below(notebook: Notebook) -> Notebook:
    """The answer, and at the end of the notebook the untouched stub again with the same grade_id."""
    at = answer_cells(notebook)[0]
    again = copy.deepcopy(notebook["cells"][at])
    again["source"] = notebook["metadata"].pop("stub")
    notebook["cells"].append(again)
    return notebook


def answers_retyped(notebook: Notebook) -> Notebook:
    """Each answer typed into a new cell below its check, its own cell deleted."""
    for at in reversed(answer_cells(notebook)):
        cell = notebook["cells"].pop(at)
        notebook["cells"].insert(at + 1, code_cell(cell["source"]))
    return notebook


def answers_turned_to_text(notebook: Notebook) -> Notebook:
    """Cells change type without a trace elsewhere; nbgrader warns and goes on."""
    for at in answer_cells(notebook):
        _retype(notebook["cells"][at], "markdown")
    return notebook


def checks_turned_to_text(notebook: Notebook) -> Notebook:
    for at in check_cells(notebook):
        _retype(notebook["cells"][at], "markdown")
    return notebook


def forms(notebook: Notebook) -> Notebook:
    """`#@title` cells, shown as forms."""
    for at in (*answer_cells(notebook), *check_cells(notebook)):
        cell = notebook["cells"][at]
        cell["source"] = "#@title Run me\n" + cell["source"]
        cell["metadata"].update(cellView="form", collapsed=True)
    return notebook


def marks_dropped(notebook: Notebook) -> Notebook:
    """An editor that keeps no metadata that it does not know (nbgrader 1398)."""
    for cell in notebook["cells"]:
        cell["metadata"].pop("nbgrader", None)
    return notebook


def marks_and_ids_dropped(notebook: Notebook) -> Notebook:
    return ids_missing(marks_dropped(notebook))


def points_changed(notebook: Notebook) -> Notebook:
    for at in check_cells(notebook):
        notebook["cells"][at]["metadata"]["nbgrader"]["points"] = 1000
    return notebook


def grade_ids_swapped(notebook: Notebook) -> Notebook:
    """An answer carries its check's grade_id and the other way round."""
    one, other = (
        notebook["cells"][at]["metadata"]["nbgrader"] for at in (answer_cells(notebook)[0], check_cells(notebook)[0])
    )
    one["grade_id"], other["grade_id"] = other["grade_id"], one["grade_id"]
    return notebook


def old_schema(notebook: Notebook) -> Notebook:
    for at in (*answer_cells(notebook), *check_cells(notebook)):
        notebook["cells"][at]["metadata"]["nbgrader"] = {
            "schema_version": 1,
            "grade_id": marks(notebook["cells"][at])["grade_id"],
        }
    return notebook


def shuffled(notebook: Notebook) -> Notebook:
    """Cells moved by hand."""
    random.Random(1).shuffle(notebook["cells"])
    return notebook


def code_cell(source: str, cell_type: str = "code") -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": cell_type, "metadata": {}, "source": source}
    if cell_type == "code":
        cell.update(outputs=[], execution_count=None)
    return cell


def _retype(cell: dict[str, Any], cell_type: str) -> None:
    cell["cell_type"] = cell_type
    if cell_type != "code":
        cell.pop("outputs", None)
        cell.pop("execution_count", None)


def dumped(notebook: Notebook) -> bytes:
    """Colab's order of keys and two blanks of indent (10 of those 13)."""
    ordered = {key: notebook[key] for key in ("nbformat", "nbformat_minor", "metadata", "cells")}
    ordered["cells"] = [
        {
            key: cell[key]
            for key in ("cell_type", "source", "metadata", "execution_count", "outputs", "id")
            if key in cell
        }
        for cell in notebook["cells"]
    ]
    return json.dumps(ordered, indent=2, ensure_ascii=False).encode()


# name → (what is done after Colab saved the file, the flags that intake must give)
RULES: dict[str, tuple[Callable[[Notebook], Notebook], tuple[str, ...]]] = {
    "ids kept": (lambda notebook: notebook, ()),
    "nbformat 4.0": (as_4_0, ()),
    "ids missing": (ids_missing, ()),
    "badge": (badge, ()),
    "gpu": (gpu, ()),
    "drive": (drive, ()),
    "split": (split, ("tampered",)),
    "widgets without state": (widgets_without_state, ()),
    "locked edited": (locked_edited, ("tampered",)),
    "locked deleted": (locked_deleted, ("tampered",)),
    "graded copied": (graded_copied, ("tampered",)),
    "stub pasted below": (stub_pasted_below, ("tampered",)),
    "answers retyped": (answers_retyped, ("repaired",)),
    "answers turned to text": (answers_turned_to_text, ("tampered",)),
    "checks turned to text": (checks_turned_to_text, ("tampered",)),
    "forms": (forms, ()),
    "marks dropped": (marks_dropped, ("repaired",)),
    "marks and ids dropped": (marks_and_ids_dropped, ("repaired",)),
    "points changed": (points_changed, ("tampered",)),
    "grade_ids swapped": (grade_ids_swapped, ("repaired", "tampered")),
    "old schema": (old_schema, ()),
    "shuffled": (shuffled, ()),
}


def variants(release: Mapping[str, Any], answers: Mapping[str, str]) -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Name of the rule → the file's bytes, and the flags that intake must give."""
    found = {}
    for name, (rule, flags) in RULES.items():
        notebook = in_colab(filled(release, answers))
        if rule is stub_pasted_below:
            notebook["metadata"]["stub"] = "".join(release["cells"][answer_cells(dict(release))[0]]["source"])
        found[name] = dumped(rule(notebook)), flags
    return found
