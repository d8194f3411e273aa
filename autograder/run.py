"""Grade a batch: intake, sandbox and judge for each submission, one writer for gradebook, feedback and rows.

A row is written when everything else of its submission is; the journal of finished rows lets a killed run go on where it
stopped, so that each submission is graded once. The run's seed is kept beside it: a regrade repeats.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from underhood import Exercise, Verdict
from underhood.probes import seen_from_json
from underhood.record import case_to_json
from underhood.verdict import blank, refused

from . import gradebook, intake, judge
from .build import write
from .chapters import COURSE, ROOT, chapters, exercises, known
from .feedback import graded_notebook, page
from .forkserver import ForkServer, Job, Result

ANSWER = "underhood.remote.answer"
CLASS = ROOT / "autograder" / "class"
Progress = Callable[[Iterable, int], Iterable]


@dataclass(frozen=True)
class Row:
    """What is known of one graded submission: a line of `results.jsonl`."""

    student: str
    chapter: str
    points: float
    max_points: int
    parts: dict[str, dict[str, float]]  # exercise → part → points
    mistakes: dict[str, str]  # exercise → name, where one was recognized
    flags: list[str]  # tampered, timeout, memory, killed, …
    reason: str  # one sentence, "" where there is nothing to say
    seconds: float
    seed: int
    digest: str  # of the submission's bytes: what the journal recognizes it by


@dataclass(frozen=True)
class Graded:
    """A row and the files that go with it."""

    row: Row
    pages: dict[str, str] = field(default_factory=dict)  # feedback, by notebook
    notebooks: dict[str, NotebookNode] = field(default_factory=dict)


def releases(chapter: str) -> dict[str, NotebookNode]:
    """The chapter's released notebooks, by name."""
    return {path.stem: nbformat.read(path, 4) for path in sorted((COURSE / chapter).glob("*.ipynb"))}


def job(chapter: str, notebooks: Mapping[str, NotebookNode], seed: int) -> Job:
    """What the sandbox is asked to do: run the code cells, then put the judge's cases to every exercise."""
    cells = [
        (cell.id, cell.source)
        for notebook in notebooks.values()
        for cell in notebook.cells
        if cell.cell_type == "code" and not cell.metadata.get("nbgrader", {}).get("grade")
    ]
    return Job(cells=cells, requests=requests(chapter, seed), seed=seed)


def requests(chapter: str, seed: int) -> list[dict[str, Any]]:
    """One request an exercise: the cases' inputs, without any answer."""
    return [
        {
            "exercise": exercise.name,
            "cases": [_question(case_to_json(case)) for case in judge.questions(exercise.name, seed)],
        }
        for exercise in exercises(chapter)
    ]


def _question(written: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in written.items() if key not in ("expected", "raises", "about", "part")} | {
        "about": "", "part": "",
    }  # fmt: skip


def verdicts(chapter: str, result: Result, seed: int) -> dict[str, Verdict]:
    """The judge's verdicts on what came back from the sandbox."""
    return {
        exercise.name: _verdict(exercise, answer.value, answer.reason, seed)
        for exercise, answer in zip(exercises(chapter), result.answers, strict=True)
    }


def _verdict(exercise: Exercise, value: dict | None, reason: str, seed: int) -> Verdict:
    """Untrusted `value`: whatever it is, a verdict comes of it; what is unknown earns nothing."""
    if value is None:
        return blank(exercise, f"No answer came back from the sandbox ({reason}).")
    try:
        notes = [note[:500] for note in value.get("notes", []) if type(note) is str][:5]
        if value.get("forbidden"):
            return refused(exercise, str(value["forbidden"])[:100], *notes)
        if value.get("seen") is None:
            return blank(exercise, *notes)
        seen = [seen_from_json(one) for one in value["seen"]]
        if len(seen) != len(judge.questions(exercise.name, seed)):
            raise ValueError("not as many observations as cases")
        return judge.verdict(exercise, seen, seed, notes)
    except Exception as error:
        return blank(exercise, f"What came back from the sandbox is no observation ({type(error).__name__}).")


def grade_one(chapter: str, found: intake.Found, server: ForkServer, seed: int, given: Mapping[str, Any]) -> Graded:
    """Grade one submission. Never raises for what a submission holds or does."""
    start = time.monotonic()
    taken = intake.read(found, given["releases"], given["others"])
    if taken.notebooks:
        result = server.run(job(chapter, taken.notebooks, seed))
        judged = verdicts(chapter, result, seed)
    else:
        result = None
        judged = {exercise.name: blank(exercise) for exercise in exercises(chapter)}
    flags = sorted({*found.flags, *taken.flags, *(result.flags if result else ())})
    reason = " ".join(filter(None, (taken.reason or found.reason, result.reason if result else "")))
    row = Row(
        student=found.student,
        chapter=chapter,
        points=sum(v.points for v in judged.values()),
        max_points=sum(v.max_points for v in judged.values()),
        parts={name: v.parts for name, v in judged.items()},
        mistakes={name: v.mistake for name, v in judged.items() if v.mistake},
        flags=flags,
        reason=reason,
        seconds=round(time.monotonic() - start, 3),
        seed=seed,
        digest=digest(found),
    )
    by_name = {exercise.name: exercise for exercise in exercises(chapter)}
    outputs = {cell.id: cell.output for cell in result.cells} if result else {}
    pages, notebooks = {}, {}
    for stem, notebook in (taken.notebooks or {stem: None for stem in given["releases"]}).items():
        pages[stem] = page(found.student, chapter, by_name, judged, _answers(chapter, notebook), reason, seed)
        if notebook is not None:
            notebooks[stem] = graded_notebook(notebook, judged, outputs)
    return Graded(row, pages, notebooks)


def _answers(chapter: str, notebook: NotebookNode | None) -> dict[str, str]:
    """The learner's source by exercise."""
    found = {}
    for cell in notebook.cells if notebook is not None else []:
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("solution"):
            found[meta["grade_id"].removeprefix(f"{chapter}-")] = cell.source
    return found


def digest(found: intake.Found) -> str:
    """A hash of the submission's bytes, and of the course that it is judged by."""
    value = hashlib.sha256(found.student.encode("utf-8", "replace"))
    for path in found.paths:
        try:
            value.update(path.read_bytes())
        except OSError as error:
            value.update(str(error).encode())
    return value.hexdigest()


# --- the batch --------------------------------------------------------------------------------------------------------


def grade(
    chapter: str,
    submissions: Path,
    out: Path,
    *,
    jobs: int = 2,
    students: Iterable[str] = (),
    seed: int | None = None,
    trust: bool = False,
    url: str | None = None,
    progress: Progress = lambda rows, total: rows,
) -> list[Row]:
    """Grade a batch of submissions of one chapter.

    Parameters
    ----------
    submissions
        A folder or a zip, as `intake.find` takes it.
    out
        Receives gradebook.db, results.jsonl, grades.csv, feedback/ and autograded/.
    jobs
        Submissions at a time.
    students
        Only these, if given.
    seed
        Of the hidden cases; by default the one of the last run into `out`, else a new one.
    trust
        Run without any sandbox. For submissions that are trusted.
    url
        Another database than `out`/gradebook.db.
    progress
        Wraps the iteration over finished submissions; gets their number too.

    Returns
    -------
    list of Row
        One a submission, in order of student.

    Raises
    ------
    SandboxError
        Where a wall cannot be built on this machine and `trust` is not given.
    ValueError
        Unknown chapter, missing folder, no submission found.
    """
    known(chapter)
    given: dict[str, Any] = {
        "releases": releases(chapter),
        "others": {other: list(releases(other).values()) for other in chapters() if other != chapter},
    }
    wanted = set(students)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:  # where notebooks out of zips lie
        found = intake.find(submissions, chapter, list(given["releases"]), Path(scratch))
        found = [f for f in found if not wanted or f.student in wanted]
        if not found:
            raise ValueError(f"There is no submission of {chapter} in {submissions}.")
        run = Run(chapter, out, _seed(chapter, out, seed), url or f"sqlite:///{out.resolve()}/gradebook.db")
        with ForkServer(answer=ANSWER, walls=not trust) as server:
            return run.batch(found, given, server, jobs, progress)


def _seed(chapter: str, out: Path, seed: int | None) -> int:
    kept = out / f"seed-{chapter}.json"
    if seed is None and kept.is_file():
        return int(json.loads(kept.read_text(encoding="utf-8"))["seed"])
    seed = secrets.randbelow(2**31) if seed is None else seed
    write(kept, json.dumps({"seed": seed}) + "\n")
    return seed


class Run:
    """One run over a batch: who is done, and the one place that writes."""

    def __init__(self, chapter: str, out: Path, seed: int, url: str) -> None:
        self.chapter, self.out, self.seed, self.url = chapter, out, seed, url
        self.journal = out / f"journal-{chapter}.jsonl"

    def batch(
        self,
        found: list[intake.Found],
        given: Mapping[str, Any],
        server: ForkServer,
        jobs: int,
        progress: Progress,
    ) -> list[Row]:
        """Grade what the journal does not hold yet; returns every row."""
        done = self.journaled()
        todo = [f for f in found if digest(f) not in done]
        rows = {f.student: done[digest(f)] for f in found if digest(f) in done}
        preparing = threading.Thread(target=self._warm)
        preparing.start()
        gradebook.prepare(self.url, self.chapter)
        preparing.join()
        with ThreadPoolExecutor(jobs) as pool, gradebook.opened(self.url) as book, self.journal.open("ab") as journal:
            futures = [pool.submit(grade_one, self.chapter, f, server, self.seed, given) for f in todo]
            try:
                for graded in progress(_finished(futures), len(futures)):
                    self._keep(graded, book, journal)
                    rows[graded.row.student] = graded.row
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        kept = [rows[f.student] for f in found]
        self._close(kept)
        return kept

    def _warm(self) -> None:
        for exercise in exercises(self.chapter):
            judge.answers(exercise.name, self.seed)

    def journaled(self) -> dict[str, Row]:
        """The rows of an earlier run that did not get to its end, by digest; a line cut short by its end is no row."""
        rows: dict[str, Row] = {}
        if self.journal.is_file():
            for line in self.journal.read_bytes().splitlines():
                try:
                    row = Row(**json.loads(line))
                except (ValueError, TypeError):
                    continue
                if row.seed == self.seed:
                    rows[row.digest] = row
        return rows

    def _keep(self, graded: Graded, book: Any, journal: Any) -> None:
        row = graded.row
        for stem, text in graded.pages.items():
            write(self.out / "feedback" / row.student / self.chapter / f"{stem}.html", text)
        for stem, notebook in graded.notebooks.items():
            path = self.out / "autograded" / row.student / self.chapter / f"{stem}.ipynb"
            write(path, nbformat.writes(notebook) + "\n")
        scores = {f"{self.chapter}-{name}-check": sum(parts.values()) for name, parts in row.parts.items()}
        gradebook.write(book, row.student, self.chapter, scores)
        journal.write(json.dumps(asdict(row)).encode() + b"\n")
        journal.flush()
        os.fsync(journal.fileno())

    def _close(self, rows: list[Row]) -> None:
        """The run got to its end: its rows take the place of the chapter's earlier ones."""
        results = self.out / "results.jsonl"
        graded = {row.student for row in rows}
        kept = []
        if results.is_file():
            earlier = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
            kept = [row for row in earlier if row["chapter"] != self.chapter or row["student"] not in graded]
        everything = kept + [asdict(row) for row in rows]
        everything.sort(key=lambda row: (row["chapter"], row["student"]))
        write(results, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in everything))
        write_csv(self.out / "grades.csv", everything)
        self.journal.unlink(missing_ok=True)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write grades.csv: a line a submission, a column an exercise."""
    names = list(dict.fromkeys(name for row in rows for name in row["parts"]))
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["student", "chapter", "points", "max_points", *names, "flags", "reason"])
        for row in rows:
            scores = [f"{sum(row['parts'][name].values()):g}" if name in row["parts"] else "" for name in names]
            head = [row["student"], row["chapter"], f"{row['points']:g}", row["max_points"]]
            writer.writerow([*head, *scores, " ".join(row["flags"]), row["reason"]])
    os.replace(fresh, path)


def _finished(futures: list[Future]) -> Iterator[Graded]:
    for future in as_completed(futures):
        yield future.result()
