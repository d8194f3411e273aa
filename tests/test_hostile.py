"""Every hostile and broken submission of `hostile.py` in one batch, with honest ones between: graded as each deserves."""

from __future__ import annotations

import csv
import ctypes
import html.parser
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hostile
import nbformat
import nbgrader
import pytest
from nbconvert.exporters import HTMLExporter
from traitlets.config import Config

import underhood
from autograder import chapters, exercises, gradebook, judge, run, sandbox

# Generous: what is meant to end at a limit takes that long, everything else is done in a second on an idle machine.
LIMITS = {"cell_seconds": 10, "request_seconds": 25, "job_seconds": 240, "grace_seconds": 0.5}
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, <sys/prctl.h>

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces"),
]


@dataclass(frozen=True)
class Batch:
    """What one run left."""

    status: int
    printed: str
    errors: str
    out: Path
    rows: dict[str, dict]
    orphans: list[str]
    temporary: list[str]
    changed: list[str]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def grade(tmp: Path, hand_ins: list[hostile.HandIn], *options: str) -> Batch:
    """Run the command on them; processes that it leaves behind become children of this one, and are seen."""
    submissions, out, temporary = tmp / "submitted", tmp / "out", tmp / "temporary"
    temporary.mkdir()
    for hand_in in hand_ins:
        hand_in.write(submissions)
    before = {path: path.lstat().st_mtime_ns for path in submissions.rglob("*")}
    command = [sys.executable, "-m", "autograder", "grade", hostile.CHAPTER, "--submissions", str(submissions)]
    command += ["--out", str(out), "--seed", str(SEED), "--jobs", "2", *options]
    for name, value in LIMITS.items():
        command += ["--limit", f"{name}={value}"]
    libc = ctypes.CDLL(None)
    mine = set(sandbox.descendants(os.getpid()))
    libc.prctl(SUBREAPER, 1, 0, 0, 0)
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(temporary)})
        left = set(sandbox.descendants(os.getpid())) - mine
        orphans = [command_line(pid) for pid in left]
    finally:
        libc.prctl(SUBREAPER, 0, 0, 0, 0)
    lines = (out / "results.jsonl").read_text().splitlines() if (out / "results.jsonl").is_file() else []
    rows = [json.loads(line) for line in lines]
    assert len({row["student"] for row in rows}) == len(rows)
    after = {path: path.lstat().st_mtime_ns for path in submissions.rglob("*")}
    return Batch(
        done.returncode,
        done.stdout,
        done.stderr,
        out,
        {row["student"]: row for row in rows},
        [line for line in orphans if line],
        [path.name for path in temporary.iterdir()],
        [str(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path)],
    )


SEED = 48_151_623  # digits that occur nowhere else
EVERY = hostile.every()


@pytest.fixture(scope="module")
def batch(tmp_path_factory) -> Batch:
    return grade(tmp_path_factory.mktemp("hostile"), EVERY)


def row_of(batch: Batch, hand_in: hostile.HandIn) -> dict:
    """By the id that it must have got: as it is, or made safe and marked with a hash."""
    if hand_in.row:
        name = next(name for name in batch.rows if re.fullmatch(re.escape(hand_in.row) + "[0-9a-f]{8}", name))
        return batch.rows[name]
    return batch.rows[hand_in.student]


def test_the_batch_comes_to_its_end(batch):
    assert batch.status == 0, batch.errors
    assert len(batch.rows) == len(EVERY)
    assert f"{len(EVERY)} submissions. Grades: " in batch.printed


@pytest.mark.parametrize("hand_in", EVERY, ids=[hand_in.student for hand_in in EVERY])
def test_each_gets_what_it_deserves(batch, hand_in):
    row = row_of(batch, hand_in)
    certain, possible = map(flags, hand_in.flags.partition("|")[::2])
    assert row["points"] == hand_in.points, row
    assert certain <= set(row["flags"]) <= certain | possible, row
    assert hand_in.reason in row["reason"], row
    assert bool(row["flags"]) <= bool(row["reason"]) or row["flags"] == ["encoding"], row
    assert len(row["reason"]) < 2000 and "\n" not in row["reason"]


def flags(text: str) -> set[str]:
    """ "no notebook refused" → {"no notebook", "refused"}."""
    words = ("no notebook", "other chapter", "several notebooks", "unsafe id", "too large", r"\S+")
    return set(re.findall("|".join(words), text))


def test_no_process_and_no_file_is_left_behind(batch):
    assert batch.orphans == []
    assert batch.temporary == []
    assert batch.changed == []
    expected = {"autograded", "feedback", "gradebook.db", "grades.csv", "canvas.csv", "results.jsonl"}
    expected |= {"seed-01_basics.json"}
    assert {path.name for path in batch.out.iterdir()} == expected
    assert not [path for path in batch.out.rglob("*") if path.name.startswith(".")]
    assert not Path("/tmp/LEAK").exists()


def test_nothing_was_read_that_a_submission_must_not_see(batch):
    for path in batch.out.rglob("*.ipynb"):
        outputs = [o for c in nbformat.read(path, 4).cells for o in c.get("outputs", [])]
        assert not any("LEAK" in str(output.get("text", "")) for output in outputs), path
    assert sum(path.stat().st_size for path in batch.out.rglob("*.ipynb")) < len(EVERY) * 400_000


def test_a_forged_answer_costs_no_more_than_a_wrong_one(batch):
    """Without a bound one of them takes minutes in the grader's own process, another fills its pages with megabytes."""
    forged = [row for student, row in batch.rows.items() if student.startswith("f-forged-")]
    assert len(forged) > 6 and max(row["seconds"] for row in forged) < 60
    assert max(path.stat().st_size for path in (batch.out / "feedback").glob("f-forged-*/**/*.html")) < 200_000


def test_nothing_that_learners_see_or_run_tells_the_seed(batch):
    shown = [path for kind in ("feedback/**/*.html", "autograded/**/*.ipynb") for path in batch.out.glob(kind)]
    assert len(shown) > len(EVERY)
    assert not [path for path in shown if str(SEED) in path.read_text()]
    first, second = (run.job(hostile.CHAPTER, {}, seed)[0] for seed in (SEED, SEED + 1))
    assert first.requests != second.requests
    assert first.seed == second.seed == 0  # what the learner's own code starts from


def test_what_the_sandbox_is_asked_holds_no_answer():
    for request in run.requests(hostile.CHAPTER, 5):
        assert request.keys() == {"exercise", "forbids", "cases"}
        for case in request["cases"]:
            assert case.keys() == {"about", "part", "args", "kwargs"} and case["about"] == case["part"] == ""


def test_nothing_in_the_helper_package_is_an_answer():
    """Whatever there bears an exercise's name, as a stand-in does, earns nothing."""
    found = 0
    names = {e.name: e for chapter in chapters() for e in exercises(chapter)}
    for module in pkgutil.walk_packages(underhood.__path__, "underhood."):
        if module.name.endswith("__main__"):
            continue
        for key, value in vars(importlib.import_module(module.name)).items():
            exercise = names.get(key.strip("_"))
            if exercise and callable(value):
                found += 1
                assert judge.judge(exercise.name, value).points == 0, f"{module.name}.{key}"
    assert found or not any(e.chapter == "04_quantization" for e in names.values())


def test_the_gradebook_has_the_same_scores_as_the_rows(batch):
    with gradebook.opened(f"sqlite:///{batch.out}/gradebook.db") as book:
        scores = {s.student.id: s.score for s in book.assignment_submissions(hostile.CHAPTER)}
    assert scores == {student: row["points"] for student, row in batch.rows.items()}


def test_the_table_holds_no_formula(batch):
    with (batch.out / "grades.csv").open(newline="") as file:
        for line in csv.reader(file):
            for value in line:
                assert not value.startswith(("=", "+", "-", "@", "\t", "\r")), line
                assert value.isprintable(), line


class Page(html.parser.HTMLParser):
    """Collects what a page could run or fetch: elements, attributes that hold code, and addresses of other hosts."""

    TAGS = (
        "script",
        "iframe",
        "object",
        "embed",
        "img",
        "form",
        "base",
        "link",
        "svg",
        "audio",
        "video",
        "input",
        "style",
    )

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        values = " ".join(f"{name}={value}" for name, value in attributes)
        if tag in self.TAGS or hostile.HOST in values or "javascript:" in values or " on" in f" {values}".lower():
            self.active.append(f"{tag} {values}")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in ("script", "style") and hostile.HOST in data:
            self.active.append(f"{self.inside}: {data}")


def active(text: str) -> set[str]:
    page = Page()
    page.feed(text)
    return set(page.active)


def test_feedback_pages_run_nothing_and_fetch_nothing(batch):
    pages = list((batch.out / "feedback").rglob("*.html"))
    assert len(pages) == len(EVERY)
    for path in pages:
        text = path.read_text()
        assert active(text) <= {"style "}, path
        assert "default-src 'none'" in text
        # No name of an error makes a line of its own that says what only a verdict says.
        if path.parts[-3].startswith("r-looks-right"):
            assert re.search(r"^  ok  certainly", text, re.M) is None


@pytest.mark.parametrize("template", ["feedback", "formgrade", "lab", "classic"])
def test_graded_notebooks_run_and_fetch_no_more_than_the_release_does(batch, template):
    """As nbgrader's feedback, the formgrader and nbconvert show them."""
    formgrader = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader"
    config = Config()
    config.HTMLExporter.template_name = template
    config.HTMLExporter.extra_template_basedirs = [str(formgrader / "templates")]
    config.HTMLExporter.extra_template_paths = [str(formgrader / "static/node_modules/bootstrap/dist/css")]
    exporter = HTMLExporter(config=config)
    fields = (
        "assignment notebook submission_id notebook_id base_url mathjax_url next prev notebook_uuid student first_name "
        "last_name toc message assignment_id notebook_path"
    )
    numbers = {"index": 1, "total": 2, "score": 1, "max_score": 2, "late_penalty": 0}

    def shown(path: Path) -> set[str]:
        notebook = nbformat.read(path, 4)
        for cell in notebook.cells:  # as nbgrader's GetGrades fills it in
            if "nbgrader" in cell.metadata:
                cell.metadata["nbgrader"] |= {"score": 0, "points": 0, "comment": ""}
        given = dict.fromkeys(fields.split(), "") | numbers
        text, _ = exporter.from_notebook_node(notebook, resources={**given, "nbgrader": given})
        return active(text)

    honest = shown(batch.out / "autograded" / "s01-reference" / hostile.CHAPTER / "basics.ipynb")
    assert not any(hostile.HOST in what for what in honest)
    paths = sorted((batch.out / "autograded").glob("r-*/*/*.ipynb"))
    assert paths
    for path in paths:
        more = shown(path) - honest
        assert not more, f"{path}: {more}"


def every_flag(rows: dict[str, dict]) -> Iterator[str]:
    for row in rows.values():
        yield from row["flags"]


def test_every_kind_of_end_occurs(batch):
    """The submissions do what they are meant to: none of the walls stands there untried."""
    assert set(every_flag(batch.rows)) >= {
        "killed", "timeout", "garbage", "tampered", "repaired", "unreadable", "encoding", "refused", "unsafe id",
        "several notebooks", "other chapter", "no notebook",
    }  # fmt: skip
