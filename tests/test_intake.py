"""Intake: from whatever is handed in to the notebooks that are graded, and never an exception."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import stat
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import colab_roundtrip as colab
import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbgrader.nbgraderformat import MetadataValidator

from autograder import exercises, intake, reference
from autograder.chapters import COURSE, text_sources
from autograder.handins import MAX_BYTES, MAX_NOTEBOOKS, Found, find, safe_id
from autograder.intake import read
from autograder.judge import judge

CHAPTER, STEM = "01_basics", "basics"
RELEASE = nbformat.read(COURSE / CHAPTER / f"{STEM}.ipynb", 4)
RELEASES = {STEM: RELEASE}
CELLS = [cell for cell in RELEASE.cells if "nbgrader" in cell.metadata]
ANSWERS = [cell for cell in CELLS if cell.metadata.nbgrader.solution]
NAMES = {cell.metadata.nbgrader.grade_id: re.search(r"^(?:def|class) (\w+)", cell.source, re.M)[1] for cell in ANSWERS}
GRADE_IDS = [cell.metadata.nbgrader.grade_id for cell in CELLS]
FIRST, SECOND = list(NAMES)[:2]


def typed(name):
    """An answer that tells whose it is, when called."""
    return f"def {name}(*args):\n    '''An answer.'''\n    return 'answer to {name}'\n"


TYPED = {grade_id: typed(name) for grade_id, name in NAMES.items()}


def handed_in(tmp_path, data, name="basics.ipynb"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else colab.dumped(data))
    return Found("ann", (path,))


def take(tmp_path, data, **others):
    return read(handed_in(tmp_path, data), RELEASES, **others)


def notebook(answers=TYPED):
    return colab.filled(RELEASE, answers)


def graded(nb):
    return {c.metadata.nbgrader.grade_id: c for c in nb.cells if "nbgrader" in c.metadata}


def own(nb):
    return [c for c in nb.cells if c.id not in {r.id for r in RELEASE.cells}]


def run(nb):
    """What the grader's run leaves: all code cells but the checks, in order; teaching cells are left out for speed."""
    teaching = {c.id for c in RELEASE.cells if "nbgrader" not in c.metadata}
    namespace = {}
    for cell in nb.cells:
        if cell.cell_type == "code" and not cell.metadata.get("nbgrader", {}).get("grade") and cell.id not in teaching:
            try:
                exec(cell.source, namespace)
            except Exception:
                pass
    return namespace


def earned(nb):
    """The names whose answer is the learner's."""
    namespace = run(nb)
    found = set()
    for name in NAMES.values():
        try:
            if namespace[name]() == f"answer to {name}":
                found.add(name)
        except Exception:
            pass
    return found


def assert_canonical(nb):
    """The release's cells, valid twice over, without outputs and without foreign metadata."""
    nbformat.validate(nb)
    MetadataValidator().validate_nb(nb)
    assert (nb.nbformat, nb.nbformat_minor) == (4, 5)
    assert set(nb.metadata) <= {"kernelspec", "language_info"}
    ids = [c.id for c in nb.cells]
    assert len(ids) == len(set(ids))
    kept = [c for c in nb.cells if c.id in {r.id for r in RELEASE.cells}]
    assert [c.id for c in kept] == [r.id for r in RELEASE.cells], "the release's cells in the release's order"
    for cell, original in zip(kept, RELEASE.cells, strict=True):
        assert (cell.cell_type, cell.metadata) == (original.cell_type, original.metadata)
        if original.metadata.get("nbgrader", {}).get("locked"):
            assert cell.source == original.source
    assert all(c.metadata == {} for c in own(nb))
    assert all(c.outputs == [] and c.execution_count is None for c in nb.cells if c.cell_type == "code")
    assert not any("attachments" in c for c in nb.cells)


def assert_stable(tmp_path, nb):
    again = take(tmp_path, nbformat.writes(nb).encode())
    assert again.notebooks[STEM] == nb and again.flags == () and again.reason == ""


# Colab and people


@pytest.mark.parametrize("name", colab.RULES)
def test_every_round_trip_keeps_the_honest_points_and_no_personal_data(tmp_path, name):
    data, flags = colab.variants(RELEASE, TYPED)[name]
    got = take(tmp_path, data)
    nb = got.notebooks[STEM]
    assert got.flags == flags and bool(got.reason) == bool(flags)
    assert_canonical(nb)
    assert earned(nb) == set(NAMES.values())
    assert not [word for word in (*colab.PERSONAL, "executionInfo", "outputId") if word in nbformat.writes(nb)]
    assert_stable(tmp_path, nb)


def test_the_fixture_holds_what_it_says(tmp_path):
    """At least fourteen rules, different files, and personal data in each before intake."""
    files = {name: data for name, (data, _) in colab.variants(RELEASE, TYPED).items()}
    assert len(files) >= 14 and len(set(files.values())) == len(files)
    assert all(colab.PERSONAL[0].encode() in data for data in files.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", colab.RULES)
def test_every_round_trip_is_judged_right(tmp_path, name):
    """The reference solutions, through Colab and intake, get full marks from the judge."""
    source = [cell for path in text_sources(CHAPTER) for cell in reference.read(path).cells]
    answers = {c.metadata.nbgrader.grade_id: c.source for c in source if c.metadata.get("nbgrader", {}).get("solution")}
    missing = set(NAMES) - set(answers)
    assert not missing
    nb = take(tmp_path, colab.variants(RELEASE, answers)[name][0]).notebooks[STEM]
    namespace = {}
    for code in reference.definitions(RELEASE)[:1]:
        exec(code, namespace)
    for cell in nb.cells:
        if cell.cell_type == "code" and (cell.id not in {r.id for r in RELEASE.cells} or cell.metadata.get("nbgrader")):
            if not cell.metadata.get("nbgrader", {}).get("grade") and "google.colab" not in cell.source:
                exec(compile(cell.source, cell.id, "exec"), namespace)
    for exercise in exercises(CHAPTER):
        if exercise.name in NAMES.values():
            verdict = judge(exercise.name, namespace[exercise.name], seed=1, namespace=namespace)
            assert verdict.points == verdict.max_points, str(verdict)


def test_the_untouched_release_is_itself(tmp_path):
    got = take(tmp_path, nbformat.writes(RELEASE).encode())
    assert got.notebooks[STEM] == RELEASE and got.flags == () and got.reason == "" and got.student == "ann"


def test_the_release_given_is_not_changed(tmp_path):
    before = copy.deepcopy(RELEASE)
    nb = take(tmp_path, colab.locked_edited(notebook())).notebooks[STEM]
    nb.cells[0].metadata["x"] = nb.metadata["x"] = 1
    assert before == RELEASE


# Copies, and cells of the learner's own


def test_of_copies_the_last_one_that_is_no_stub_counts_and_the_others_stay_plain(tmp_path):
    nb = notebook()
    at = colab.answer_cells(nb)[0]
    for text in ("def {0}(*args):\n    return 'older'", TYPED[FIRST], graded(RELEASE)[FIRST].source):
        nb["cells"].insert(at + 1, copy.deepcopy(nb["cells"][at]))
        at += 1
        nb["cells"][at]["source"] = text.format(NAMES[FIRST]) if "older" in text else text
    nb["cells"][at - 3]["source"] = "HELPER = 1"
    got = take(tmp_path, nb)
    assert graded(got.notebooks[STEM])[FIRST].source == TYPED[FIRST]
    assert [c.source for c in own(got.notebooks[STEM])] == [
        "HELPER = 1",
        f"def {NAMES[FIRST]}(*args):\n    return 'older'",
    ]
    assert earned(got.notebooks[STEM]) == set(NAMES.values()) and got.flags == ("tampered",)
    assert f"copied graded cells: {NAMES[FIRST]}" in got.reason.lower()
    assert_stable(tmp_path, got.notebooks[STEM])


def test_an_older_copy_far_below_does_not_win(tmp_path):
    """The last copy in the learner's order stands in the release's place, so earlier ones that stood below must run before."""
    nb = notebook()
    at = colab.answer_cells(nb)[0]
    older = copy.deepcopy(nb["cells"][at])
    older["source"] = f"def {NAMES[FIRST]}(*args):\n    return 'older'"
    nb["cells"][-1:] = [older, nb["cells"][-1], nb["cells"].pop(at)]
    got = take(tmp_path, nb).notebooks[STEM]
    assert_canonical(got)
    assert earned(got) == set(NAMES.values())
    assert_stable(tmp_path, got)


def test_an_answer_in_another_cell_is_not_undone_by_its_stub(tmp_path):
    name = NAMES[SECOND]
    for where in ("before", "after", "in another answer", "in a check", "at the end", "stub deleted"):
        answers = {**TYPED, SECOND: graded(RELEASE)[SECOND].source}
        text = f"import functools\n\n@functools.cache\n{typed(name)}\nprint({name}())\n"
        if where == "in another answer":
            answers[FIRST] = TYPED[FIRST] + "\n" + text
        nb = notebook(answers)
        at = colab.answer_cells(nb)[1]
        if where == "in a check":
            nb["cells"][colab.check_cells(nb)[1]]["source"] = text
        elif where == "stub deleted":
            nb["cells"][at] = colab.code_cell(
                f"import functools\n{name}, _ = functools.partial(str, 'answer to {name}'), 0"
            )
        elif where != "in another answer":
            nb["cells"].insert(
                {"before": at, "after": at + 1, "at the end": len(nb["cells"])}[where], colab.code_cell(text)
            )
        got = take(tmp_path, nb)
        assert_canonical(got.notebooks[STEM])
        assert earned(got.notebooks[STEM]) == set(NAMES.values()), where
        assert "repaired" in got.flags and name in got.reason
        if where != "stub deleted":
            assert graded(got.notebooks[STEM])[SECOND].source == f"@functools.cache\n{typed(name)}".rstrip()
        again = take(tmp_path, nbformat.writes(got.notebooks[STEM]).encode())
        assert again.notebooks == got.notebooks


def test_own_cells_keep_their_places_and_order(tmp_path):
    nb = notebook()
    at = colab.answer_cells(nb)
    for n, spot in reversed(list(enumerate(at))):
        nb["cells"].insert(spot, colab.code_cell(f"before_{n} = {n}"))
        nb["cells"].insert(spot, colab.code_cell(f"# mine {n}", "markdown"))
    got = take(tmp_path, nb)
    sources = [c.source for c in got.notebooks[STEM].cells]
    assert sources == ["".join(c["source"]) for c in nb["cells"]] and got.flags == ()


def test_a_helper_moves_with_the_answer_that_needs_it_when_it_is_defined(tmp_path):
    nb = notebook({**TYPED, FIRST: f"@helper\n{TYPED[FIRST]}"})
    at = colab.answer_cells(nb)[0]
    nb["cells"] += [colab.code_cell("def helper(f):\n    return f"), nb["cells"].pop(at)]
    got = take(tmp_path, nb).notebooks[STEM]
    assert_canonical(got)
    assert earned(got) == set(NAMES.values())


def test_a_missing_teaching_cell_comes_back_before_what_replaced_it(tmp_path):
    nb = notebook()
    plain = next(n for n, c in enumerate(nb["cells"]) if c["cell_type"] == "code" and not colab.marks(c))
    nb["cells"][plain] = colab.code_cell("mine = 1")
    cells = take(tmp_path, nb).notebooks[STEM].cells
    assert [c.source for c in cells[plain : plain + 2]] == [RELEASE.cells[plain].source, "mine = 1"]


def test_a_teaching_cell_keeps_what_the_learner_changed(tmp_path):
    nb = notebook()
    plain = next(n for n, c in enumerate(nb["cells"]) if c["cell_type"] == "code" and not colab.marks(c))
    nb["cells"][plain]["source"] += "\nimport math as mine"
    got = take(tmp_path, nb)
    assert got.notebooks[STEM].cells[plain].source.endswith("import math as mine") and got.flags == ()


def test_what_was_typed_into_a_locked_cell_stays_as_an_own_cell(tmp_path):
    nb = notebook()
    nb["cells"][colab.check_cells(nb)[0]]["source"] = "mine = 2"
    got = take(tmp_path, nb)
    assert [c.source for c in own(got.notebooks[STEM])] == ["mine = 2"]
    assert got.flags == ("tampered",) and "changed locked cells" in got.reason.lower()


def test_the_learners_text_is_not_censored(tmp_path):
    nb = notebook()
    nb["cells"].append(colab.code_cell("I am Ada, ada@example.org", "markdown"))
    assert own(take(tmp_path, nb).notebooks[STEM])[0].source == "I am Ada, ada@example.org"


def test_all_mutations_at_once(tmp_path):
    """Deleted, duplicated, edited, repointed, retyped in one notebook: stock nbgrader stops its batch here."""
    nb = notebook()
    checks = colab.check_cells(nb)
    nb["cells"][checks[1]]["source"] = "pass"
    nb["cells"][checks[1]]["metadata"]["nbgrader"]["points"] = 99
    colab._retype(nb["cells"][checks[2]], "markdown")
    nb["cells"][checks[3]]["metadata"]["nbgrader"]["grade_id"] = FIRST
    nb["cells"].insert(checks[0], copy.deepcopy(nb["cells"][checks[0]]))
    del nb["cells"][colab.check_cells(nb)[-1]]
    got = take(tmp_path, nb)
    assert_canonical(got.notebooks[STEM])
    assert earned(got.notebooks[STEM]) == set(NAMES.values()) and got.flags == ("tampered",)
    for kind in ("copied", "changed locked", "another type", "changed marks", "missing"):
        assert kind in got.reason.lower()
    assert got.reason.count("\n") == 0 and got.reason.endswith(".")


# Which notebook it is


def test_another_chapters_notebook_is_named(tmp_path):
    other = copy.deepcopy(RELEASE)
    for number, cell in enumerate(other.cells):
        cell.id = f"other-{number}"
        if cell.cell_type == "code":
            cell.source = re.sub(r"\b(def|class) ", r"\1 other_", cell.source).replace('check("', 'check("other_')
        if "nbgrader" in cell.metadata:
            cell.metadata.nbgrader.grade_id = f"02_other-{number}"
    got = take(tmp_path, nbformat.writes(other).encode(), other_chapters={"02_other": [other]})
    assert (got.flags, got.notebooks) == (("other chapter",), {})
    assert got.reason == '"basics.ipynb" is a notebook of 02_other.'
    right = take(tmp_path, notebook(), other_chapters={"02_other": [other]})
    assert right.flags == () and earned(right.notebooks[STEM]) == set(NAMES.values())


def test_an_unrelated_notebook_is_a_release_with_own_cells(tmp_path):
    nb = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [colab.code_cell("x = 1")]}
    got = take(tmp_path, nb)
    assert "unrelated" in got.flags and earned(got.notebooks[STEM]) == set()
    assert_canonical(got.notebooks[STEM])


def test_of_two_notebooks_the_one_with_more_answers_counts(tmp_path):
    little = {FIRST: TYPED[FIRST]}
    paths = []
    for name, answers in (("basics.ipynb", little), ("basics (1).ipynb", TYPED), ("basics (2).ipynb", {})):
        paths += handed_in(tmp_path, notebook(answers), name).paths
    got = read(Found("ann", tuple(paths)), RELEASES)
    assert earned(got.notebooks[STEM]) == set(NAMES.values()) and got.flags == ("several notebooks",)
    assert got.reason == '"basics (1).ipynb" counts, not "basics.ipynb", "basics (2).ipynb".'
    bad = tmp_path / "basics (3).ipynb"
    bad.write_bytes(b"{")
    got = read(Found("ann", (bad, *paths[:1])), RELEASES)
    assert earned(got.notebooks[STEM]) == {NAMES[FIRST]} and got.flags == ("unreadable",)


def test_of_equal_notebooks_the_one_with_the_releases_name_counts(tmp_path):
    paths = []
    for name in ("basics.ipynb", "basics (9).ipynb", "basics (10).ipynb"):
        nb = notebook()
        nb["cells"].append(colab.code_cell(f"which = {name!r}"))
        paths += handed_in(tmp_path, nb, name).paths
    assert run(read(Found("ann", tuple(paths)), RELEASES).notebooks[STEM])["which"] == "basics.ipynb"
    assert run(read(Found("ann", tuple(paths[1:])), RELEASES).notebooks[STEM])["which"] == "basics (10).ipynb"


def test_a_chapter_of_two_notebooks(tmp_path):
    half = copy.deepcopy(RELEASE)
    first = next(n for n, c in enumerate(half.cells) if c.metadata.get("nbgrader", {}).get("grade")) + 1
    one, two = copy.deepcopy(half), copy.deepcopy(half)
    one.cells, two.cells = half.cells[:first], half.cells[first:]
    releases = {"one": one, "two": two}
    paths = [tmp_path / "b.ipynb", tmp_path / "a.ipynb"]
    for path, release in zip(paths, (one, two), strict=True):
        path.write_bytes(colab.dumped(colab.filled(release, TYPED)))
    got = read(Found("ann", tuple(paths)), releases)
    assert set(got.notebooks) == {"one", "two"} and got.flags == ()
    assert FIRST in graded(got.notebooks["one"]) and SECOND in graded(got.notebooks["two"])
    got = read(Found("ann", tuple(paths[:1])), releases)
    assert (
        set(got.notebooks) == {"one"}
        and got.reason == "There is no notebook for two."
        and got.flags == ("no notebook",)
    )


# Bad files


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "not JSON": (b"<html>", "is not JSON"),
    "cut off": (colab.dumped(notebook())[:-100], "is not JSON"),
    "nested": (b"[" * 10_000_000, "is nested too deeply"),
    "millions of empty parts": (b'{"cells": [' + b"{}," * 2_000_000 + b"{}]}", "in more parts than a notebook"),
    "nested inside": (b'{"cells": [{"metadata": ' + b'{"a":' * 2_000_000, "is nested too deeply"),
    "a list": (b"[1, 2]", "is not a notebook"),
    "no cells": (b'{"nbformat": 4}', "is not a notebook"),
    "cells are text": (b'{"cells": "x"}', "is not a notebook"),
    "long number": (b'{"cells": ' + b"9" * 100_000 + b"}", "is not JSON"),
    "binary": (bytes(range(256)) * 20, "is not JSON"),
    "too large": (b" " * (MAX_BYTES + 1), "is larger than 32 MB"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_a_reason(tmp_path, kind):
    data, reason = BAD[kind]
    start = time.monotonic()
    got = take(tmp_path, data)
    assert got.notebooks == {} and got.flags == ("unreadable",) and reason in got.reason
    assert time.monotonic() - start < 10


def test_a_link_a_pipe_and_a_missing_file_are_reasons(tmp_path):
    target = handed_in(tmp_path, notebook(), "secret.ipynb").paths[0]
    link, pipe = tmp_path / "link.ipynb", tmp_path / "pipe.ipynb"
    link.symlink_to(target)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path / "none.ipynb", tmp_path):
        got = read(Found("ann", (path,)), RELEASES)
        assert got.notebooks == {} and got.flags == ("unreadable",) and got.reason


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_another_encoding_keeps_its_points(tmp_path, encoding):
    nb = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
    nb["cells"] = [
        {**c, "source": c["source"] + "# größer"}
        for c in notebook()["cells"]
        if colab.marks(c).get("grade_id") in NAMES
    ]
    text = json.dumps(nb, ensure_ascii=False)
    got = take(tmp_path, text.encode(encoding))
    assert earned(got.notebooks[STEM]) == set(NAMES.values())
    assert "größer" in graded(got.notebooks[STEM])[FIRST].source
    assert ("encoding" in got.flags) == (encoding != "utf-8-sig")


def test_nbformat_3(tmp_path):
    cells = [{"cell_type": "heading", "level": 2, "source": ["Mine"]}]
    cells += [{"cell_type": "code", "input": [TYPED[g]], "language": "python", "outputs": []} for g in NAMES]
    got = take(tmp_path, json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]}).encode())
    assert earned(got.notebooks[STEM]) == set(NAMES.values()) and "## Mine" in [
        c.source for c in own(got.notebooks[STEM])
    ]
    assert_canonical(got.notebooks[STEM])


def test_lone_surrogates_and_null_bytes_can_be_stored(tmp_path):
    nb = notebook()
    nb["cells"].append(colab.code_cell("x = '\ud800'\0\r\ny = 1"))
    got = take(tmp_path, json.dumps(nb).encode())
    source = own(got.notebooks[STEM])[0].source
    assert source.encode() and "\0" not in source and "\r" not in source


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 2_000_000,
        "{0}, " * 300_000,
        "def {0}(\n" * 100_000,
        "@a\n" * 500_000,
        "(" * 1_000_000,
        '"""' * 500_001,
        "x" * 9_000_000,
    ],
    ids=["lines", "names", "definitions", "decorators", "brackets", "quotes", "long"],
)
def test_a_text_made_to_be_slow_is_not(tmp_path, text):
    nb = notebook()
    nb["cells"].append(colab.code_cell(text.format(NAMES[FIRST]) if "{" in text else text))
    nb["cells"][colab.answer_cells(nb)[0]]["source"] = graded(RELEASE)[FIRST].source
    start = time.monotonic()
    got = take(tmp_path, nb)
    assert time.monotonic() - start < 20
    assert_canonical(got.notebooks[STEM])
    assert earned(got.notebooks[STEM]) >= set(list(NAMES.values())[1:])
    assert len(nbformat.writes(got.notebooks[STEM])) < 10_000_000


def test_a_thousand_cells_too_many(tmp_path):
    nb = notebook()
    nb["cells"] += [colab.code_cell(f"x = {n}") for n in range(intake.MAX_CELLS)]
    got = take(tmp_path, nb)
    assert "too large" in got.flags and earned(got.notebooks[STEM]) == set(NAMES.values())
    assert len(own(got.notebooks[STEM])) == intake.MAX_CELLS - len(RELEASE.cells)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([FIRST, *GRADE_IDS[:3]]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "cells",
    "metadata",
    "nbformat",
    "cell_type",
    "source",
    "id",
    "outputs",
    "nbgrader",
    "grade_id",
    "points",
    "locked",
]


@st.composite
def mutated(draw):
    """A handed-in notebook in which things are replaced, removed, repeated and moved."""
    nb = notebook()
    nb["cells"] = draw(st.permutations(nb["cells"][:12])) if draw(st.booleans()) else nb["cells"]
    for _ in range(draw(st.integers(1, 6))):
        here = nb
        for _ in range(draw(st.integers(0, 4))):
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            if not keys:
                break
            below = here[draw(st.sampled_from(keys))]
            if not isinstance(below, dict | list):
                break
            here = below
        what = draw(values)
        if isinstance(here, dict):
            here[draw(st.sampled_from([*KEYS, *here]))] = what
        elif here:
            at = draw(st.integers(0, len(here) - 1))
            if draw(st.booleans()):
                here[at] = what
            else:
                here.insert(draw(st.integers(0, len(here))), copy.deepcopy(here[at]))
    return nb


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_no_mutated_notebook_raises_or_leaves_the_form(nb):
    with tempfile.TemporaryDirectory() as folder:
        got = take(Path(folder), json.dumps(nb).encode())
        assert got.reason == "" or (got.reason.endswith(".") and "taken in" not in got.reason)
        for built in got.notebooks.values():
            assert_canonical(built)
            again = take(Path(folder), nbformat.writes(built).encode())
            assert again.notebooks[STEM] == built
        assert got.notebooks or got.reason


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=200) | st.binary(max_size=40).map(lambda b: colab.dumped(notebook()).replace(b"cell_type", b, 3))
)
def test_no_bytes_raise(data):
    with tempfile.TemporaryDirectory() as folder:
        got = take(Path(folder), data)
        assert "taken in" not in got.reason and (got.notebooks or got.reason)


def test_an_unexpected_error_is_a_row_too(tmp_path):
    got = read(handed_in(tmp_path, notebook()), {STEM: None})
    assert got.flags == ("unreadable",) and got.notebooks == {} and "AttributeError" in got.reason


# Where the hand-ins are


@pytest.fixture
def data():
    return colab.dumped(notebook())


def layout(top, files):
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return top


def names(found):
    return {f.student: [p.name for p in f.paths] for f in found}


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def seek(path, **options):
    return find(path, CHAPTER, [STEM], **options)


LAYOUTS = {
    "nbgrader": {"ann/01_basics/basics.ipynb": 1, "bob/01_basics/basics.ipynb": 1, "bob/timestamp.txt": 0},
    "folder per student": {"ann/basics.ipynb": 1, "bob/work/basics.ipynb": 1},
    "flat": {"ann_basics.ipynb": 1, "bob.ipynb": 1, "grades.csv": 0},
    "Canvas": {"ann_12_345_basics.ipynb": 1, "bob_LATE_12_346_basics-1.ipynb": 1},
    "stem first": {"basics_ann.ipynb": 1, "01_basics_bob.ipynb": 1},
    "outer folder": {"all/ann/01_basics/basics.ipynb": 1, "all/bob/01_basics/basics.ipynb": 1},
    "outer flat folder": {"all/ann_basics.ipynb": 1, "all/bob_basics.ipynb": 1},
    "junk": {
        "ann/basics.ipynb": 1,
        "bob/basics.ipynb": 1,
        "__MACOSX/._x.ipynb": 0,
        "ann/.ipynb_checkpoints/b.ipynb": 0,
    },
}


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_layouts(tmp_path, data, kind, packed):
    files = {name: data for name in LAYOUTS[kind]}
    top = zipped(tmp_path / "all.zip", files) if packed else layout(tmp_path / "in", files)
    found = seek(top)
    assert {f.student: len(f.paths) for f in found} == {"ann": 1, "bob": 1}, names(found)
    assert all(f.flags == () and f.reason == "" for f in found)
    assert all(p.read_bytes() == data for f in found for p in f.paths)
    assert earned(read(found[0], RELEASES).notebooks[STEM]) == set(NAMES.values())


def test_other_layouts(tmp_path, data):
    moodle = layout(
        tmp_path / "moodle",
        {"Ann Lee_12_assignsubmission_file_/x.ipynb": data, "Bob_13_assignsubmission_file_/x.ipynb": data},
    )
    assert names(seek(moodle)) == {"Ann Lee_12": ["x.ipynb"], "Bob_13": ["x.ipynb"]}
    underscores = layout(tmp_path / "flat", {"ann_lee_basics.ipynb": data, "ann_kim_basics (1).ipynb": data})
    assert set(names(seek(underscores))) == {"ann_lee", "ann_kim"}
    one = layout(tmp_path / "one" / "ann", {"01_basics/basics.ipynb": data})
    assert names(seek(one)) == names(seek(one.parent)) == {"ann": ["basics.ipynb"]}
    assert names(seek(one / "01_basics" / "basics.ipynb")) == {"basics": ["basics.ipynb"]}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("course/01_basics/basics.ipynb", data)
        archive.writestr("course/README.md", "x")
    inner = layout(tmp_path / "inner", {"ann_basics.zip": buffer.getvalue(), "bob/work.zip": buffer.getvalue()})
    assert names(seek(inner)) == {"ann": ["basics.ipynb"], "bob": ["basics.ipynb"]}
    outer = zipped(
        tmp_path / "outer.zip", {p.name: p.read_bytes() for p in inner.glob("*.zip")} | {"bob_basics.ipynb": data}
    )
    assert names(seek(outer)) == {"ann": ["basics.ipynb"], "bob": ["bob_basics.ipynb"]}


def test_other_chapters_and_empty_folders(tmp_path, data, monkeypatch):
    monkeypatch.setattr("autograder.handins.chapters", lambda: ("01_basics", "02_autograd"))
    files = {
        "ann/02_autograd/autograd.ipynb": data,
        "bob/01_basics/basics.ipynb": data,
        "bob/02_autograd/x.ipynb": data,
    }
    top = layout(tmp_path / "in", files)
    (top / "cem" / "01_basics").mkdir(parents=True)
    layout(top, {"dee/homework.pdf": b"%PDF", "eve_basics.pdf": b"%PDF"})
    found = {f.student: f for f in seek(top)}
    assert set(found) == {"bob", "cem", "dee", "eve"}
    assert [p.name for p in found["bob"].paths] == ["basics.ipynb"]
    assert found["cem"].reason == "No notebook was handed in."
    assert found["dee"].reason == 'No notebook was handed in, only "homework.pdf".'
    assert found["eve"].flags == ("no notebook",) and found["eve"].paths == ()
    got = read(found["dee"], RELEASES)
    assert (got.notebooks, got.flags, got.reason) == ({}, ("no notebook",), found["dee"].reason)


def test_links_are_not_followed(tmp_path, data):
    secret = layout(tmp_path / "secret", {"basics.ipynb": data})
    top = layout(tmp_path / "in", {"bob/01_basics/basics.ipynb": data, "cem/01_basics/x.txt": b""})
    (top / "ann").symlink_to(secret)
    (top / "cem" / "01_basics" / "basics.ipynb").symlink_to(top / "bob" / "01_basics" / "basics.ipynb")
    os.mkfifo(top / "cem" / "01_basics" / "pipe.ipynb")
    found = {f.student: f for f in seek(top)}
    assert found["bob"].flags == () and len(found["bob"].paths) == 1
    assert found["ann"].paths == found["cem"].paths == ()
    assert (
        "refused" in found["cem"].flags
        and "is a link" in found["cem"].reason
        and "is not a file" in found["cem"].reason
    )
    assert "refused" in found["ann"].flags and "is a link" in found["ann"].reason


def test_bad_members_of_a_zip_are_refused_and_the_others_taken(tmp_path, data):
    path = tmp_path / "all.zip"
    link = zipfile.ZipInfo("link_basics.ipynb")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../dots_basics.ipynb", data)
        archive.writestr("/tmp/root_basics.ipynb", data)
        archive.writestr("C:\\back_basics.ipynb", data)
        archive.writestr(link, "/etc/passwd")
        archive.writestr("bomb_basics.ipynb", b" " * (MAX_BYTES + 1))
        archive.writestr("lzma_basics.ipynb", data, zipfile.ZIP_LZMA)
        archive.writestr("inner_basics.zip", b"PK no zip")
        archive.writestr("ann_basics.ipynb", data)
        archive.writestr("cut_basics.ipynb", data)
        archive.writestr("data.bin", b"\0" * 1000)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"cut_basics.ipynb") + 30
    raw[at : at + 30] = b"\xff" * 30  # inside its compressed data
    path.write_bytes(raw)
    scratch = tmp_path / "scratch"
    found = {f.student: f for f in seek(path, scratch=scratch)}
    assert [f.student for f in found.values() if f.paths] == ["ann"]
    refused = {name: f.reason for name, f in found.items() if f.flags == ("no notebook", "refused")}
    words = {
        "link": "is a link",
        "bomb": "larger",
        "lzma": "unusual",
        "inner": "not a zip",
        "cut": "cannot be unpacked",
        "dots": "leads out",
        "root": "leads out",
        "back": "leads out",
    }
    assert all(word in refused[name] for name, word in words.items()), refused
    assert len(refused) == 8
    assert {p.name for p in scratch.rglob("*") if p.is_file()} == {"ann_basics.ipynb"}
    assert not (tmp_path.parent / "dots_basics.ipynb").exists() and not Path("/tmp/root_basics.ipynb").exists()


parts = st.sampled_from(
    ["ann", "bob", "..", ".", "", "01_basics", "=x", "é", "a\nb", "C:", "basics.ipynb", "x.ipynb", "y.zip"]
)
member_names = st.lists(parts, min_size=1, max_size=4).map("/".join) | st.text(max_size=10)


@settings(max_examples=150, deadline=None)
@given(st.lists(member_names, max_size=6), st.binary(max_size=30))
def test_no_zip_raises_or_writes_outside(members, content):
    with tempfile.TemporaryDirectory() as folder:
        path, scratch = Path(folder) / "all.zip", Path(folder) / "scratch"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zipfile, about names that are there twice
            with zipfile.ZipFile(path, "w") as archive:
                for name in members:
                    archive.writestr(zipfile.ZipInfo(name), content)
        found = seek(path, scratch=scratch)
        assert {p for p in Path(folder).iterdir()} <= {path, scratch}
        assert len({f.student for f in found}) == len(found)
        assert all(safe_id(f.student) == f.student and (f.paths or f.reason) for f in found)
        assert all(p.is_relative_to(scratch) and p.read_bytes() == content for f in found for p in f.paths)


def test_a_declared_size_is_not_believed(tmp_path, data):
    path = zipped(tmp_path / "all.zip", {"ann_basics.ipynb": b" " * (MAX_BYTES * 2), "bob_basics.ipynb": data})
    raw = path.read_bytes().replace((MAX_BYTES * 2).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    path.write_bytes(raw)
    found = {f.student: f for f in seek(path)}
    assert (
        found["ann"].paths == () and found["ann"].flags == ("no notebook", "refused") and len(found["bob"].paths) == 1
    )


def test_there_are_limits_for_one_student_and_for_all(tmp_path, data, monkeypatch):
    top = layout(
        tmp_path / "in", {f"ann/{n:03d}.ipynb": data for n in range(MAX_NOTEBOOKS + 5)} | {"bob/basics.ipynb": data}
    )
    found = {f.student: f for f in seek(top)}
    assert len(found["ann"].paths) == MAX_NOTEBOOKS and found["ann"].flags == ("several notebooks",)
    monkeypatch.setattr("autograder.handins.MAX_FILES", 10)
    monkeypatch.setattr("autograder.handins.MAX_UNPACKED", len(data) + 1)
    found = {f.student: f for f in seek(top)}
    assert len(found["ann"].paths) <= 10 and found["ann"].flags == ("refused",) and found["bob"].flags == ()
    three = {f"class/ann/{n}.ipynb": data for n in range(3)} | {"class/bob/basics.ipynb": data}
    found = {f.student: f for f in seek(zipped(tmp_path / "all.zip", three))}
    assert [len(found[name].paths) for name in ("ann", "bob")] == [2, 1]  # what ann uses up is not bob's
    assert "hold more than" in found["ann"].reason and found["bob"].flags == ()


def test_in_an_outer_folder_nobody_uses_up_what_is_a_neighbors(tmp_path, data, monkeypatch):
    monkeypatch.setattr("autograder.handins.MAX_FILES", 5)
    monkeypatch.setattr("autograder.handins.MAX_UNPACKED", len(data) + 1)
    top = layout(
        tmp_path / "in",
        {f"class/ann/{n}.txt": b"x" for n in range(9)} | {"class/bob/basics.ipynb": data},
    )
    (top / "class" / "cem").mkdir()
    zipped(top / "class" / "cem" / "work.zip", {f"{n}.ipynb": data for n in range(4)})
    (top / "class" / "dan").mkdir()
    zipped(top / "class" / "dan" / "work.zip", {"basics.ipynb": data})
    found = {f.student: f for f in seek(top)}
    assert found.keys() == {"ann", "bob", "cem", "dan"}
    assert [len(found[name].paths) for name in found] == [0, 1, 2, 1]


def test_a_zip_whose_list_is_a_bomb_is_not_opened(tmp_path, data, monkeypatch):
    monkeypatch.setattr("autograder.handins.MAX_DIRECTORY", 1000)
    top = layout(tmp_path / "in", {"bob/basics.ipynb": data})
    (top / "ann").mkdir()
    zipped(top / "ann" / "work.zip", {"basics.ipynb": data} | {f"{n}": b"" for n in range(30)})
    found = {f.student: f for f in seek(top)}
    assert "lists too many members" in found["ann"].reason and found["bob"].flags == ()


def test_deep_folders_end(tmp_path, data):
    deep = "/".join(["ann", *"abcdefghijklmnopqrstuvwxyz"])
    found = seek(layout(tmp_path / "in", {f"{deep}/x.ipynb": data, "bob/basics.ipynb": data}))
    assert [f.flags for f in found] == [("no notebook", "refused"), ()] and "too deep" in found[0].reason


def test_what_is_no_hand_in_is_said(tmp_path):
    for path in (tmp_path / "none", layout(tmp_path, {"x.zip": b"PK"}) / "x.zip"):
        with pytest.raises(ValueError, match="not"):
            seek(path)


UNSAFE = [
    "=cmd",
    "+1",
    "-ann",
    "@ann",
    "a/b",
    "a\\b",
    "a\nb",
    "\t=1",
    "",
    " ",
    ".",
    "..",
    ".hidden",
    "a\u202eb",
    "a*b",
    "a" * 300,
    "🙂",
    "\udcff",
]


def test_ids_are_safe_and_different():
    made = [safe_id(name) for name in UNSAFE]
    assert len(set(made)) == len(made)
    for name, student in zip(UNSAFE, made, strict=True):
        assert (
            student != name
            and not re.match(r"[=+\-@.\s]", student)
            and not re.search(r"[/\\\x00-\x1f*?\[\]\u202e]", student)
        )
        assert 0 < len(student.encode()) <= 255 and safe_id(student) == student
    for name in ("ann", "José", "ann.lee-2@example.org", "Lee, Ann", "张伟", "a+b"):
        assert safe_id(name) == name


@given(st.text(max_size=40))
def test_any_id_is_safe(name):
    student = safe_id(name)
    assert (
        not re.match(r"[=+\-@.\s]", student)
        and "/" not in student
        and student.isprintable()
        and safe_id(student) == student
    )


def test_unsafe_ids_are_flagged_in_both_layouts(tmp_path, data):
    top = layout(
        tmp_path / "in",
        {"=1+1/01_basics/basics.ipynb": data, "-x_basics.ipynb": data, "a\nb/x.ipynb": data, "ann/x.ipynb": data},
    )
    found = seek(top)
    assert len({f.student for f in found}) == 4
    assert sorted(f.flags for f in found) == [(), *[("unsafe id",)] * 3]
    assert all("not safe" in f.reason and "\n" not in f.reason for f in found if f.flags)
    got = read(next(f for f in found if f.flags), RELEASES)
    assert got.flags == ("unsafe id",) and earned(got.notebooks[STEM]) == set(NAMES.values())


def test_nothing_stays_in_the_temporary_folder(tmp_path, data):
    import subprocess
    import sys

    path = zipped(tmp_path / "all.zip", {"ann_basics.ipynb": data})
    code = "from pathlib import Path; from autograder.handins import find; "
    code += f"f = find(Path({str(path)!r}), '01_basics', ['basics'])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(f[0].paths[0], f[0].paths[0].exists())"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    unpacked, existed = done.stdout.rsplit(maxsplit=1)
    assert existed == "True" and unpacked.startswith(str(tmp_path)) and list(tmp_path.iterdir()) == [path]
