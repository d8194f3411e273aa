"""Submissions per minute and CPU per submission, stock nbgrader against the grader of this course; memory; the sandbox.

Both sides grade the same made-up class of chapter 1 and write gradebook and feedback, each as its own command. A command's
time is taken for a small and for the whole batch: the line through both gives the start-up and the time of each further
submission. Stock nbgrader takes a quarter of an hour for a hundred.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from autograder import sample_class
from autograder.chapters import ROOT
from autograder.forkserver import PRELOAD, ForkServer, Job

CHAPTER = "01_basics"
AIM_WITH_START, AIM_WITHOUT = 12.0, 20.0  # times stock nbgrader's rate, at two workers
AIM_PRIVATE = 64.0  # MB of a forked child before the learner's code
AIM_GROWTH = 100.0  # MB of the grader's process over 1,000 submissions
AIM_SANDBOX = 50.0  # ms, for what the walls add to each submission
FEW = 2  # submissions of the small batch


@dataclass(frozen=True)
class Cost:
    """Seconds of wall clock and of CPU, all processes together."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Line:
    """What a command costs: `start` once and `each` for every submission."""

    start: Cost
    each: Cost

    def wall(self, size: int) -> float:
        return self.start.wall + size * self.each.wall


def rows(size: int = 100, growth: int = 1000) -> list[dict]:
    """The measurements.

    Parameters
    ----------
    size
        Submissions of the batch that is compared.
    growth
        Submissions over which the grader's memory is watched.
    """
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        write_class(here / "class", size)
        theirs = line(lambda count, out: stock_nbgrader(here, count, out), size, here)
        found = [
            row("stock nbgrader: start-up", theirs.start.wall, "s"),
            row("stock nbgrader: CPU per submission", theirs.each.cpu, "s"),
        ]
        for jobs in (1, 2):
            ours = line(lambda count, out, jobs=jobs: our_grader(here, count, out, jobs), size, here)  # type: ignore[misc]
            plural = f"{jobs} worker{'s' * (jobs > 1)}"
            name = "submissions per minute" if jobs == 2 else f"submissions per minute, {plural}"
            found += [
                row(name, 60 * size / ours.wall(size), "1/min", 60 * size / theirs.wall(size)),
                row(
                    f"submissions per minute after the start, {plural}",
                    60 / ours.each.wall,
                    "1/min",
                    60 / theirs.each.wall,
                ),
                row(f"grader's start-up, {plural}", ours.start.wall, "s", theirs.start.wall, less=True),
                row(f"CPU per submission, {plural}", ours.each.cpu, "s", theirs.each.cpu, less=True),
            ]
        found.append(
            row("grader's growth over 1,000 submissions", memory_growth(here, growth), "MB", AIM_GROWTH, less=True)
        )
    return found + sandbox_rows()


def row(name: str, value: float, unit: str, reference: float | None = None, less: bool = False) -> dict[str, Any]:
    """A row; ratio > 1 is better than the reference. `less`: a smaller value is better."""
    ratio = None if reference is None else reference / value if less else value / reference
    return {"name": name, "value": value, "unit": unit, "reference": reference, "ratio": ratio}


def write_class(folder: Path, count: int) -> None:
    """`count` honest submissions, below a folder for each size that is measured: the sample class, over and over."""
    pupils = sample_class.pupils(CHAPTER)
    texts = [
        {stem: nbformat.writes(notebook) for stem, notebook in sample_class.submission(CHAPTER, pupil.answers).items()}
        for pupil in pupils
    ]
    for number in range(count):
        home = folder / f"pupil-{number:04d}" / CHAPTER
        home.mkdir(parents=True)
        for stem, text in texts[number % len(texts)].items():
            (home / f"{stem}.ipynb").write_text(text)


def line(command: Any, large: int, here: Path) -> Line:
    """Run it for FEW and for `large` submissions."""
    few, many = (command(count, Path(tempfile.mkdtemp(dir=here))) for count in (FEW, large))
    wall, cpu = ((getattr(many, key) - getattr(few, key)) / (large - FEW) for key in ("wall", "cpu"))
    return Line(Cost(few.wall - FEW * wall, few.cpu - FEW * cpu), Cost(wall, cpu))


def timed(*commands: list[str]) -> Cost:
    """Run the commands one after the other."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": programs}, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def stock_nbgrader(here: Path, count: int, out: Path) -> Cost:
    """`nbgrader autograde` and `generate_feedback`; the assignment is in the gradebook before the clock starts."""
    options = [
        f"--CourseDirectory.submitted_directory={part(here, count)}",
        f"--CourseDirectory.autograded_directory={out / 'autograded'}",
        f"--CourseDirectory.feedback_directory={out / 'feedback'}",
        f"--CourseDirectory.db_url=sqlite:///{out / 'gradebook.db'}",
    ]
    nbgrader = [sys.executable, "-m", "nbgrader"]
    release = f"--CourseDirectory.release_directory={out / 'release'}"
    timed([*nbgrader, "generate_assignment", CHAPTER, "--force", release, *options])
    cost = timed([*nbgrader, "autograde", CHAPTER, *options], [*nbgrader, "generate_feedback", CHAPTER, *options])
    graded = len(list((out / "feedback").glob("*/*/*.html")))
    if graded != count:
        raise RuntimeError(f"stock nbgrader wrote {graded} feedback pages, not {count}")
    return cost


def part(here: Path, count: int) -> Path:
    """A folder with the first `count` of the class."""
    folder = here / f"class-{count}"
    if not folder.is_dir():
        for home in sorted((here / "class").iterdir())[:count]:
            for path in home.rglob("*.ipynb"):
                target = folder / path.relative_to(here / "class")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    return folder


def our_grader(here: Path, count: int, out: Path, jobs: int) -> Cost:
    """`python -m autograder grade`."""
    command = [sys.executable, "-m", "autograder", "grade", CHAPTER, "--submissions", str(part(here, count))]
    cost = timed([*command, "--out", str(out), "--jobs", str(jobs), "--seed", "1"])
    graded = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    scores = [one["points"] for one in graded]
    pupils = sample_class.pupils(CHAPTER)
    if scores != [pupils[number % len(pupils)].points for number in range(count)]:
        raise RuntimeError(f"the grader's scores are wrong: {scores}")
    # What runs behind bubblewrap is not in the system's sum over children; each row knows what its submission took.
    return Cost(cost.wall, cost.cpu + sum(one["cpu_seconds"] for one in graded))


GROWTH = """
import re, sys
from pathlib import Path
from autograder import run

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

def progress(rows, total):
    for number, row in enumerate(rows):
        if number == total // 20:
            first.append(resident())
        yield row

first = []
run.grade(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), seed=1, progress=progress)
print("growth", resident() - first[0])
"""


def memory_growth(here: Path, count: int) -> float:
    """MB by which the grader's process grows between a twentieth of `count` submissions and all of them."""
    untouched = {stem: nbformat.writes(notebook) for stem, notebook in sample_class.submission(CHAPTER, {}).items()}
    for number in range(count):
        home = here / "many" / f"pupil-{number:04d}" / CHAPTER
        home.mkdir(parents=True)
        for stem, text in untouched.items():
            (home / f"{stem}.ipynb").write_text(text)
    command = [sys.executable, "-c", GROWTH, CHAPTER, str(here / "many"), str(here / "many-out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"watching the memory failed:\n{done.stderr[-2000:]}")
    found = re.search(r"growth (\S+)", done.stdout)
    return max(float(found[1]) if found else 0.0, 0.1)


def sandbox_rows(rounds: int = 20) -> list[dict]:
    """Milliseconds that the walls add to a submission, and the private memory of a child before it runs anything."""
    times: dict[bool, list[float]] = {True: [], False: []}
    with ForkServer(PRELOAD, walls=True) as walled, ForkServer(PRELOAD, walls=False) as open_:
        for _ in range(rounds):
            for walls, server in ((True, walled), (False, open_)):
                start = time.perf_counter()
                server.run(Job(cells=[]))
                times[walls].append(1000 * (time.perf_counter() - start))
        child = walled._child()
        try:
            private = private_memory(child._pid)
        finally:
            child.close()
    added = statistics.median(times[True]) - statistics.median(times[False])
    return [
        row("sandbox, each submission", max(added, 0.1), "ms", AIM_SANDBOX, less=True),
        row("private memory of a forked child", private, "MB", AIM_PRIVATE, less=True),
    ]


def private_memory(pid: int) -> float:
    """MB that a process shares with nobody."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kilobytes) for kilobytes in re.findall(r"^Private_\w+:\s+(\d+)", text, re.M)) / 1024


if __name__ == "__main__":
    for found in rows(*map(int, sys.argv[1:])):
        print(found)
