"""Grade a batch: intake, sandbox and judge for each submission, one writer for gradebook, feedback and rows.

A row is written when everything else of its submission is; the journal of finished rows lets a killed run go on where it
stopped, so that each submission is graded once. The run's seed is kept beside it: a regrade repeats.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import json
import math
import os
import secrets
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, BinaryIO, Protocol

import nbformat
import numpy as np
from nbformat import NotebookNode

from underhood import Case, Exercise, Verdict
from underhood.exercise import Seen
from underhood.plain import MAX_TEXT, Foreign, in_a_line
from underhood.probes import seen_from_json
from underhood.record import case_to_json
from underhood.verdict import blank, refused

from . import gradebook, intake, judge
from .build import write
from .chapters import COURSE, ROOT, SOLUTIONS, chapters, exercises, known
from .chapters import exercise as find
from .feedback import graded_notebook, page
from .forkserver import PRELOAD, UNDERHOOD, Answer, ForkServer, Job, Limits, Result

ANSWER = "underhood.remote.answer"
CLASS = ROOT / "autograder" / "class"
MAX_ANSWER = 64 << 20  # bytes of one exercise's observations, unpacked
MAX_AXES = 64  # of an array: NumPy's own limit
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
    cpu_seconds: float  # of the submission's own processes
    seed: int
    digest: str  # of the submission's bytes: what the journal recognizes it by
    canvas_id: str = ""  # as in `intake.Found`


@dataclass(frozen=True)
class Graded:
    """A row and the files that go with it."""

    row: Row
    pages: dict[str, str] = field(default_factory=dict)  # feedback, by notebook
    notebooks: dict[str, NotebookNode] = field(default_factory=dict)


def releases(chapter: str) -> dict[str, NotebookNode]:
    """The chapter's released notebooks, by name."""
    return {path.stem: nbformat.read(path, 4) for path in sorted((COURSE / chapter).glob("*.ipynb"))}


def job(chapter: str, notebooks: Mapping[str, NotebookNode], seed: int) -> tuple[Job, dict[int, Verdict]]:
    """What the sandbox is asked to do: run the code cells and put the judge's cases to every exercise.

    Each exercise is asked after where its check cell stands, as the learner saw it, and unless that gave all points once
    more at the end: a name that was overwritten later, or an answer that was mended later, costs nothing. Where something
    is forbidden the hidden cases are others then: cells in between, which it is not forbidden to, may have computed the
    answers to those that were seen.

    Returns
    -------
    Job, dict of int to Verdict
        The job; and where its run leaves the verdicts on early answers, by number of the exercise.
    """
    every = exercises(chapter)
    numbers = {f"{chapter}-{exercise.name}": number for number, exercise in enumerate(every)}
    cells: list[tuple[str, str]] = []
    early: dict[str, list[int]] = {}
    checked_after = {exercise.name: 0 for exercise in every}
    for notebook in notebooks.values():
        for cell in notebook.cells:
            meta = cell.metadata.get("nbgrader", {})
            if cell.cell_type == "code" and not meta.get("grade"):
                cells.append((cell.id, cell.source))
            number = numbers.get(str(meta.get("grade_id")).removesuffix("-check"))
            if meta.get("grade") and number is not None and cells:
                early.setdefault(cells[-1][0], []).append(number)
                checked_after[every[number].name] = len(cells)
    answers = {e.name: {"forbids": list(e.forbids), "checked_after": checked_after[e.name]} for e in every if e.forbids}
    judged: dict[int, Verdict] = {}
    first = [early_seed(exercise, seed) for exercise in every]

    def settled(number: int, answer: Answer) -> bool:
        judged[number] = verdict_on(every[number], answer.value, answer.reason, first[number])
        return judged[number].points == judged[number].max_points

    before = {"cells": [source for _, source in cells], "answers": answers} if answers else None
    # The seed of the hidden cases stays here: the learner's code gets 0.
    asked_first = [request(exercise.name, first[number]) for number, exercise in enumerate(every)]
    return Job(cells, requests(chapter, seed), 0, before, early, asked_first, settled), judged


def early_seed(exercise: Exercise, seed: int) -> int:
    """The seed of the question right after the check cell."""
    return _derived("early", seed) if exercise.forbids else seed


def _derived(purpose: str, seed: int) -> int:
    """Another seed, which tells nothing about this one."""
    return int.from_bytes(hashlib.sha256(f"{purpose} {seed}".encode()).digest()[:4], "big")


def requests(chapter: str, seed: int) -> tuple[dict[str, Any], ...]:
    """One request an exercise."""
    return tuple(request(exercise.name, seed) for exercise in exercises(chapter))


@functools.lru_cache(maxsize=512)
def request(name: str, seed: int) -> dict[str, Any]:
    """What an exercise's answer is asked: the cases' inputs, and nothing of their answers."""
    forbids = list(find(name).forbids)
    return {"exercise": name, "forbids": forbids, "cases": [_question(c) for c in judge.questions(name, seed)]}


def _question(case: Case) -> dict[str, Any]:
    written = case_to_json(case)
    return {"about": "", "part": "", "args": written["args"], "kwargs": written["kwargs"]}


def verdicts(chapter: str, result: Result, early: Mapping[int, Verdict], seed: int) -> dict[str, Verdict]:
    """The judge's verdicts on what came back from the sandbox: of the early and the late answer the better one."""
    said = (result.before.value if result.before else {}) or {}
    found = {}
    for number, (exercise, answer) in enumerate(zip(exercises(chapter), result.answers, strict=True)):
        choices = {"early": early[number]} if number in early else {}
        if number not in early or result.early.get(number) is not answer:
            choices["late"] = verdict_on(exercise, answer.value, answer.reason, seed)
        for when, verdict in choices.items():
            name = said.get(when, {}).get(exercise.name)
            if verdict.points and name:
                choices[when] = refused(exercise, name[:100])
            elif exercise.forbids and when not in said:  # unknown is never full marks
                choices[when] = blank(exercise, "The code could not be read, so this answer is not judged.")
        found[exercise.name] = max(reversed(choices.values()), key=lambda verdict: verdict.points)
    return found


def verdict_on(exercise: Exercise, value: dict | None, reason: str, seed: int) -> Verdict:
    """Untrusted `value`: whatever it is, a verdict comes of it; what is unknown earns nothing."""
    if value is None:
        return blank(exercise, f"No answer came back from the sandbox ({reason}).")
    try:
        # On one line each, so that none looks like a verdict.
        given = value.get("notes")
        notes = [in_a_line(note, 500) for note in given[:5] if type(note) is str] if type(given) is list else []
        if value.get("forbidden"):
            return refused(exercise, in_a_line(str(value["forbidden"]), 100), *notes)
        if value.get("seen") is None:
            return blank(exercise, *notes)
        if len(value["seen"]) != len(judge.questions(exercise.name, seed)):
            raise ValueError("not as many observations as cases")
        seen, left = [], MAX_ANSWER
        for one in value["seen"]:
            left -= unpacked(one)
            seen.append(
                seen_from_json(one) if left >= 0 else Seen(value=Foreign("more numbers than an answer may have"))
            )
        return judge.verdict(exercise, seen, seed, notes)
    except Exception as error:
        return blank(exercise, f"What came back from the sandbox is no observation ({type(error).__name__}).")


def unpacked(written: Any) -> int:
    """Bytes that the arrays in some JSON take once they are unpacked: a few bytes can stand for gigabytes.

    Raises
    ------
    ValueError
        A text is longer than `plain` makes one, or what is written is no array: a shape of thousands of long numbers, of
        which the product would take hours.
    """
    total, waiting = 0, [written]
    while waiting:
        item = waiting.pop()
        if type(item) is list:
            waiting += item
        elif type(item) is str and len(item) > MAX_TEXT:
            raise ValueError("a text that is too long")
        elif type(item) is dict:
            waiting += (value for key, value in item.items() if key != "packed")
            if "shape" in item:
                shape, numbers = item["shape"], item.get("numbers")
                if type(shape) is not list or len(shape) > MAX_AXES or type(numbers) is not str or len(numbers) > 8:
                    raise ValueError("not an array")
                if any(type(n) is not int or n.bit_length() > 63 for n in shape):
                    raise ValueError("not an array")
                if "packed" in item:
                    total += math.prod(shape) * np.dtype(numbers).itemsize
    return total


def material(chapter: str) -> dict[str, Any]:
    """What a submission of the chapter is compared with: its releases, the other chapters', `course_digest`."""
    return {
        "releases": releases(chapter),
        "others": {other: list(releases(other).values()) for other in chapters() if other != chapter},
        "course": course_digest(chapter),
    }


def grade_one(chapter: str, found: intake.Found, server: ForkServer, seed: int, given: Mapping[str, Any]) -> Graded:
    """Grade one submission. Never raises for what a submission holds or does."""
    start = time.monotonic()
    taken = intake.read(found, given["releases"], given["others"])
    if taken.notebooks:
        asked, early = job(chapter, taken.notebooks, seed)
        result = server.run(asked)
        judged = verdicts(chapter, result, early, seed)
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
        cpu_seconds=round(result.cpu_seconds, 3) if result else 0.0,
        seed=seed,
        digest=digest(found, rules(given["course"], server.limits, server.walls)),
        canvas_id=found.canvas_id,
    )
    by_name = {exercise.name: exercise for exercise in exercises(chapter)}
    outputs = {cell.id: cell.output for cell in result.cells} if result else {}
    pages, notebooks = {}, {}
    for stem in taken.notebooks or given["releases"]:
        notebook = taken.notebooks.get(stem)
        pages[stem] = page(found.student, chapter, by_name, judged, _answers(chapter, notebook), reason)
        if notebook is not None:
            notebooks[stem] = graded_notebook(notebook, given["releases"][stem], judged, outputs)
    return Graded(row, pages, notebooks)


def _answers(chapter: str, notebook: NotebookNode | None) -> dict[str, str]:
    """The learner's source by exercise."""
    found = {}
    for cell in notebook.cells if notebook is not None else []:
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("solution"):
            found[meta["grade_id"].removeprefix(f"{chapter}-")] = cell.source
    return found


def rules(course: str, limits: Limits, walls: bool) -> str:
    """What decides a submission's row, beside itself and the seed: `course_digest`, what it may use, and whether walls stand."""
    return f"{course} {limits} {walls}"


def digest(found: intake.Found, graded_by: str) -> str:
    """A hash of the submission's bytes, of whose it is, and of `rules`."""
    parts = [graded_by.encode(), found.student.encode("utf-8", "replace"), found.canvas_id.encode()]
    for path in found.paths:
        try:
            parts.append(intake.slurp(path))
        except intake.Unreadable as error:
            parts.append(str(error).encode())
    # Each hashed by itself: where one ends is nobody's choice.
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def course_digest(chapter: str) -> str:
    """A hash of what decides the chapter's scores: the release, the exercises, the helper package, all data, the grader."""
    value = hashlib.sha256()
    places = [SOLUTIONS / chapter, COURSE / "underhood"]
    kinds = ("*.py", "*.ipynb", "*.json", "*.npz", "*.npy", "*.pt")
    files = [path for place in places for kind in kinds for path in place.rglob(kind)]
    # Hand-ins and results may lie below these two.
    files += [*(ROOT / "autograder").glob("*.py"), *(COURSE / chapter).glob("*.*")]
    for path in sorted(files):
        if path.is_file() and ".ipynb_checkpoints" not in path.parts:
            value.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return value.hexdigest()


# --- the batch --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """What all submissions of a run are graded by."""

    chapter: str
    seed: int
    course: str  # `course_digest`
    limits: Limits
    trust: bool

    def server(self) -> ForkServer:
        """A fork server for them, not started."""
        prepare = {"prepare": self.chapter}
        return ForkServer(preload(self.chapter), self.limits, ANSWER, prepare=prepare, walls=not self.trust)

    def answer(self) -> None:
        """Have the judge's answers ready."""
        for exercise in exercises(self.chapter):
            for seed in {self.seed, early_seed(exercise, self.seed)}:
                judge.answers(exercise.name, seed)
                judge.errors(exercise.name, seed)


class Place(Protocol):
    """Where submissions are graded: on this machine (`Here`), or on a cluster's workers (`cluster.Cluster`)."""

    def start(self) -> None:
        """Get ready, as far as that can go on beside other work."""

    def grade(self, todo: Sequence[intake.Found]) -> Generator[Graded, None, None]:
        """Grade them, in any order; whoever closes the iterator early ends what is being graded."""

    def close(self) -> None:
        """End everything that was started."""


class Here:
    """A fork server, and as many submissions at a time as there are jobs."""

    def __init__(self, terms: Terms, given: Mapping[str, Any], jobs: int) -> None:
        self.terms, self.given, self.jobs = terms, given, jobs
        self.server = terms.server()
        self._starter = ThreadPoolExecutor(1)

    def start(self) -> None:
        self._started = self._starter.submit(self.server.start)

    def grade(self, todo: Sequence[intake.Found]) -> Generator[Graded, None, None]:
        self.terms.answer()
        self._started.result()
        return self._graded(todo)

    def _graded(self, todo: Sequence[intake.Found]) -> Generator[Graded, None, None]:
        terms, pool = self.terms, ThreadPoolExecutor(self.jobs)
        futures = {pool.submit(grade_one, terms.chapter, f, self.server, terms.seed, self.given) for f in todo}
        try:
            for future in as_completed(futures):
                futures.discard(future)  # it holds what it gave
                yield future.result()
        finally:
            for future in futures:
                future.cancel()
            self.server.close()  # or what is being graded would have to come to its end
            pool.shutdown()

    def close(self) -> None:
        self.server.close()
        self._starter.shutdown()


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
    limits: Limits | None = None,
    scheduler: str | None = None,
    progress: Progress = lambda rows, total: rows,
) -> list[Row]:
    """Grade a batch of submissions of one chapter.

    Parameters
    ----------
    submissions
        A folder or a zip, as `intake.find` takes it.
    out
        Receives gradebook.db, results.jsonl, grades.csv, canvas.csv, feedback/ and autograded/.
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
    limits
        What a submission may use.
    scheduler
        Address of a Dask scheduler, whose workers grade then; how many submissions at a time is theirs to say.
    progress
        Wraps the iteration over finished submissions; gets their number too.

    Returns
    -------
    list of Row
        One a submission, in order of student.

    Raises
    ------
    SandboxError
        Where a wall cannot be built on this machine, or a worker's, and `trust` is not given.
    ClusterError
        Where the scheduler cannot be reached, or its workers have another state of the course.
    ValueError
        Unknown chapter, missing folder, no submission found (of one of `students`), no address of a database, a damaged file in
        `out`, an `out` that lies in `submissions`, a negative seed, no job at all. What a run before has written is as it was.
    """
    known(chapter)
    if url is not None:
        gradebook.check(url)
    elif "?" in str(out.resolve()):
        raise ValueError(f"The gradebook cannot lie in {out}: what follows a question mark is no part of its address.")
    if jobs < 1 or (seed is not None and seed < 0):
        raise ValueError("There must be at least one job, and the seed must not be negative.")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file. Next step: name a folder for the grades.")
    if submissions.is_dir() and out.resolve().is_relative_to(submissions.resolve()):
        raise ValueError(
            f"{out} lies in {submissions}, where results would be taken for hand-ins. Next step: name another folder."
        )
    out.mkdir(parents=True, exist_ok=True)
    with alone(out) as scratch:  # where notebooks out of zips lie
        given = material(chapter)
        wanted = set(students)
        found = intake.find(submissions, chapter, list(given["releases"]), scratch)
        killed = [asdict(row) for each in chapters() for row in unfinished(out, each).values()]
        found = _apart(found, earlier(out) + killed)
        if missing := sorted(wanted - {f.student for f in found}):
            raise ValueError(
                f"There is no submission of {chapter} by {', '.join(map(repr, missing))} in {submissions}."
            )
        found = [f for f in found if not wanted or f.student in wanted]
        if not found:
            raise ValueError(f"There is no submission of {chapter} in {submissions}.")
        run = Run(chapter, out, _seed(chapter, out, seed), url or f"sqlite:///{out.resolve()}/gradebook.db")
        terms = Terms(chapter, run.seed, given["course"], limits or Limits(), trust)
        place: Place
        if scheduler:
            from .cluster import Cluster  # which is the only one to need Dask

            place = Cluster(terms, scheduler)
        else:
            place = Here(terms, given, jobs)
        return run.batch(found, rules(terms.course, terms.limits, not trust), place, scratch, progress)


def earlier(out: Path) -> list[dict[str, Any]]:
    """The rows that earlier runs left in `out`.

    Raises
    ------
    ValueError
        One of them is no row.
    """
    path, rows = out / "results.jsonl", []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                rows.append(asdict(Row(**json.loads(line))))
            except (ValueError, TypeError):
                raise ValueError(
                    f"{path} is damaged in line {number}. Mend it or move it away, then run again."
                ) from None
    return rows


def unfinished(out: Path, chapter: str) -> dict[str, Row]:
    """The rows of runs that did not get to their end, by digest; a line cut short by that is no row."""
    journal, rows = out / f"journal-{chapter}.jsonl", {}
    for line in journal.read_bytes().splitlines() if journal.is_file() else ():
        with contextlib.suppress(ValueError, TypeError):
            row = Row(**json.loads(line))
            rows[row.digest] = row
    return rows


def _apart(found: list[intake.Found], rows: list[dict[str, Any]]) -> list[intake.Found]:
    """A user of Canvas keeps the name of earlier rows, and no other user gets it: who cannot keep a name has a number to it."""
    names = {row["canvas_id"]: row["student"] for row in rows if row["canvas_id"].isdecimal()}
    users: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        users[row["student"].casefold()].add(row["canvas_id"])
    taken: set[str] = set()
    apart = []
    for one in sorted(
        found, key=lambda one: (one.canvas_id not in names, one.canvas_id)
    ):  # of the others those without
        name, number = one.student, one.canvas_id
        numbered = intake.safe_id(f"{name}_{number}") if number.isdecimal() else name
        for student in (names.get(number, name), numbered, intake.marked(numbered, f"{name} {number}")):
            others = users[student.casefold()] - {"", number} if number else ()
            if student.casefold() not in taken and not others:
                break
        taken.add(student.casefold())
        apart.append(replace(one, student=student))
    return sorted(apart, key=lambda one: one.student)


class Busy(RuntimeError):
    """Another run writes into the same folder."""


@contextlib.contextmanager
def alone(out: Path) -> Iterator[Path]:
    """Hold `out` against other runs; gives a folder for temporary files, which an earlier run may have left behind.

    Raises
    ------
    Busy
        Another run holds it.
    """
    with contextlib.ExitStack() as stack:
        try:
            while True:
                lock = stack.enter_context((out / ".running").open("ab"))
                hold(lock)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(lock.fileno()), (out / ".running").stat()):
                        break  # else it was another run's, which removed it at its end
        except (BlockingIOError, PermissionError) as error:
            if isinstance(error, PermissionError) and sys.platform != "win32":
                raise  # the folder may not be written to
            raise Busy(
                f"Another run is grading into {out}. Wait for its end, or give this one another --out."
            ) from None
        scratch = out / ".scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            (out / ".running").unlink(missing_ok=True)


def hold(lock: BinaryIO) -> None:
    """Lock an open file for this process; the system lets go of it when the process ends, however it ends."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def preload(chapter: str) -> list[str]:
    """What the warm server imports: the libraries, and the chapter's probes and builders."""
    topic = chapter.partition("_")[2]
    names = [(kind, m.name) for kind in ("probes", "builders") for m in iter_modules([str(UNDERHOOD / kind)])]
    fitting = [f"underhood.{kind}.{name}" for kind, name in names if name == "general" or topic.startswith(name)]
    return [*PRELOAD, *fitting]


def _seed(chapter: str, out: Path, seed: int | None) -> int:
    kept = out / f"seed-{chapter}.json"
    if seed is None and kept.is_file():
        try:
            return int(json.loads(kept.read_text(encoding="utf-8"))["seed"])
        except (ValueError, TypeError, KeyError, OverflowError):
            raise ValueError(
                f"{kept} is damaged. Write the seed into it again, or move it away for a new one."
            ) from None
    seed = secrets.randbelow(2**63) if seed is None else seed  # too many to try: `job` gives away a hash of it
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
        graded_by: str,
        place: Place,
        scratch: Path,
        progress: Progress,
    ) -> list[Row]:
        """Grade what the journal does not hold yet; returns every row."""
        done = {key: row for key, row in self.journaled().items() if row.seed == self.seed}
        digests = {f.student: digest(f, graded_by) for f in found}
        todo = [f for f in found if digests[f.student] not in done]
        rows = {f.student: done[digests[f.student]] for f in found if digests[f.student] in done}
        if rows:  # the gradebook may be another one than that of the run before
            gradebook.prepare(self.url, self.chapter, scratch)
            with gradebook.opened(self.url) as book:
                for row in rows.values():
                    self._enter(row, book)
        if todo:
            with contextlib.ExitStack() as stack:
                # While the server imports its libraries, the gradebook is made ready here.
                stack.callback(place.close)
                place.start()
                gradebook.prepare(self.url, self.chapter, scratch)
                book = stack.enter_context(gradebook.opened(self.url))
                journal = stack.enter_context(self.journal.open("ab"))
                if journal.tell():
                    journal.write(b"\n")  # the last line may have been cut
                finished = stack.enter_context(contextlib.closing(place.grade(todo)))
                for graded in progress(finished, len(todo)):
                    self._keep(graded, book, journal)
                    rows[graded.row.student] = graded.row
        kept = [rows[f.student] for f in found]
        self._close(kept)
        return kept

    def journaled(self) -> dict[str, Row]:
        """As in `unfinished`."""
        return unfinished(self.out, self.chapter)

    def _keep(self, graded: Graded, book: Any, journal: Any) -> None:
        row = graded.row
        # An earlier hand-in may have had notebooks that this one has not.
        for folder, kind, stems in (
            ("feedback", "html", set(graded.pages)),
            ("autograded", "ipynb", set(graded.notebooks)),
        ):
            for path in (self.out / folder / row.student / self.chapter).glob(f"*.{kind}"):
                if path.stem not in stems:
                    path.unlink()
        for stem, text in graded.pages.items():
            write(self.out / "feedback" / row.student / self.chapter / f"{stem}.html", text)
        for stem, notebook in graded.notebooks.items():
            path = self.out / "autograded" / row.student / self.chapter / f"{stem}.ipynb"
            write(
                path, nbformat.v4.writes_json(notebook) + "\n"
            )  # the checks of nbformat.writes take longer than the writing
        self._enter(row, book)
        journal.write(json.dumps(asdict(row)).encode() + b"\n")
        journal.flush()
        os.fsync(journal.fileno())

    def _enter(self, row: Row, book: Any) -> None:
        scores = {f"{self.chapter}-{name}-check": sum(parts.values()) for name, parts in row.parts.items()}
        gradebook.write(book, row.student, self.chapter, scores)

    def _close(self, rows: list[Row]) -> None:
        """The run got to its end: its rows take the place of the chapter's earlier ones."""
        results, graded = self.out / "results.jsonl", {row.student for row in rows}
        kept = [row for row in earlier(self.out) if row["chapter"] != self.chapter or row["student"] not in graded]
        everything = kept + [asdict(row) for row in rows]
        everything.sort(key=lambda row: (row["chapter"], row["student"]))
        write(results, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in everything))
        write_csv(self.out / "grades.csv", everything)
        write_canvas(self.out / "canvas.csv", everything)
        users = {(row.student, row.canvas_id) for row in rows}
        others = [row for row in self.journaled().values() if (row.student, row.canvas_id) not in users]
        if others:  # of a run that did not get to its end, when this one was for some students
            write(self.journal, "".join(json.dumps(asdict(row)) + "\n" for row in others))
        else:
            self.journal.unlink(missing_ok=True)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write grades.csv: a line a submission, a column an exercise."""
    names = list(dict.fromkeys(name for row in rows for name in row["parts"]))
    lines = [["student", "chapter", "points", "max_points", *names, "flags", "reason"]]
    for row in rows:
        scores = [f"{sum(row['parts'][name].values()):g}" if name in row["parts"] else "" for name in names]
        head = [row["student"], row["chapter"], f"{row['points']:g}", row["max_points"]]
        lines.append([*head, *scores, " ".join(row["flags"]), row["reason"]])
    _write_table(path, lines)


def write_canvas(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write canvas.csv, which the gradebook of Canvas imports: a line a student, a column a chapter.

    Canvas looks for a student by "ID", the user's number in Canvas, which the names of downloaded files hold; where that is
    not known, by "SIS Login ID". A line whose first cell holds "Points Possible" sets the assignments' points, so nobody
    may be called that. (Canvas's lib/gradebook_importer.rb.)
    """
    points = {row["chapter"]: row["max_points"] for row in rows}
    known_ids: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        known_ids[row["student"]].update({row["canvas_id"]} - {""})
    scores: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for row in rows:
        ids = known_ids[row["student"]]
        canvas_id = row["canvas_id"] or (min(ids) if len(ids) == 1 else "")
        scores[row["student"], canvas_id][row["chapter"]] = f"{row['points']:g}"
    lines = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *points]]
    lines.append(["    Points Possible", "", "", "", "", *points.values()])
    for (student, canvas_id), theirs in sorted(scores.items()):
        name = student.replace("Points Possible", "Points_Possible")
        known_id = "" if canvas_id == intake.UNCLEAR else canvas_id
        login = "" if canvas_id else student
        lines.append([name, known_id, "", login, "", *(theirs.get(chapter, "") for chapter in points)])
    _write_table(path, lines)


def _write_table(path: Path, lines: list[list[Any]]) -> None:
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    os.replace(fresh, path)
