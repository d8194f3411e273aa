"""A chapter of two exercises in plain Python, so that a test can start the grader many times in a few seconds each.

`make(folder)` writes a repository with that chapter alone; as a program in there, see `main`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHAPTER = "01_basics"
ROOT = Path(__file__).resolve().parent.parent
EXERCISES = """
from underhood import Case, Exercise, Mistake


def numbers(rng):
    for n in rng.integers(10, 1000, 3):
        yield Case("a number", "values", (int(n),))


def words(rng):
    for n in rng.integers(3, 9, 3):
        yield Case("a word", "values", ("".join(rng.choice(list("abc"), n)),))


EXERCISES = (
    Exercise(
        name="double", title="twice", level="easy", minutes=1, parts=("values",),
        cases=(Case("three", "values", (3,), expected=6),), hidden=numbers,
        mistakes=(Mistake("adding two", lambda x: x + 2, hint="Twice is times two."),),
    ),
    Exercise(
        name="shout", title="louder", level="easy", minutes=1, parts=("values",),
        cases=(Case("a word", "values", ("abc",), expected="ABC!"),), hidden=words,
        mistakes=(Mistake("whispering", lambda text: text.upper(), hint="Something is missing at the end."),),
    ),
)
"""
CARD = """
# %% nbgrader={{"grade": false, "grade_id": "{c}-{n}", "locked": false, "schema_version": 3, "solution": true, "task": false}}
def {n}(x):
    ### BEGIN SOLUTION
    return {answer}
    ### END SOLUTION

# %% nbgrader={{"grade": true, "grade_id": "{c}-{n}-check", "locked": true, "points": 1, "schema_version": 3, "solution": false}}
check("{n}")
"""
HEAD = """# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %%
from underhood import check
"""
RIGHT = {"double": "2 * x", "shout": "x.upper() + '!'"}


def make(folder: Path) -> None:
    """Write a repository with the toy chapter, and build it."""
    for name in ("autograder", "course/underhood", "tests"):
        ignored = shutil.ignore_patterns("class", "__pycache__", "recorded")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored, dirs_exist_ok=True)
    for name in ("nbgrader_config.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "course/underhood/recorded").mkdir()
    chapter = folder / "solutions" / CHAPTER
    chapter.mkdir(parents=True)
    (chapter / "exercises.py").write_text(EXERCISES)
    cards = [CARD.format(c=CHAPTER, n=name, answer=answer) for name, answer in RIGHT.items()]
    (chapter / "basics.py").write_text(HEAD + "".join(cards))
    program(folder, "-m", "autograder.build", check=True)


def program(folder: Path, *arguments: str, check: bool = False, **given: object) -> subprocess.CompletedProcess:
    """Run Python in such a repository."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment(folder), capture_output=True, text=True, check=check,
        **given,  # type: ignore[call-overload]
    )  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    paths = os.pathsep.join(map(str, (folder, folder / "course", folder / "tests")))
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PYTHONPATH": paths, "PATH": programs}


def hand_in(repository: Path, folder: Path, count: int) -> dict[str, float]:
    """Write `count` submissions of the repository's chapter below the folder; returns their right scores."""
    import nbformat

    release = nbformat.read(repository / "course" / CHAPTER / "basics.ipynb", 4)
    scores: dict[str, float] = {}
    for number in range(count):
        student, right = f"student-{number:04d}", number % 4
        for cell in release.cells:
            name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removeprefix(f"{CHAPTER}-")
            if name in RIGHT:
                good = right & (1 << list(RIGHT).index(name))
                cell.source = f"def {name}(x):\n    return {RIGHT[name] if good else number}"
        path = folder / student / CHAPTER / "basics.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(nbformat.writes(release))
        scores[student] = float(right.bit_count())
    return scores


def lighten() -> None:
    """The server imports what the toy exercises need, and no PyTorch."""
    from autograder import run

    run.preload = lambda chapter: ["underhood.remote", "IPython"]


def rows_so_far(out: Path) -> int:
    """How many submissions an unfinished run has written."""
    journal = out / f"journal-{CHAPTER}.jsonl"
    return journal.read_bytes().count(b"\n") if journal.is_file() else 0


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


BOOKED = """SELECT student_id, SUM(grade.auto_score) FROM grade
    JOIN submitted_notebook ON grade.notebook_id = submitted_notebook.id
    JOIN submitted_assignment ON submitted_notebook.assignment_id = submitted_assignment.id GROUP BY student_id"""


def scores(out: Path, connect: Callable[[], Any] | None = None) -> dict[str, float]:
    """What the rows and the gradebook say, which must be the same."""
    lines = (out / "results.jsonl").read_text().splitlines()
    rows = [(row["student"], row["points"]) for row in map(json.loads, lines)]
    with contextlib.closing(connect() if connect else sqlite3.connect(out / "gradebook.db")) as book:
        booked = dict(book.execute(BOOKED).fetchall())
    assert dict(rows) == booked and len(dict(rows)) == len(rows), (rows, booked)
    return dict(rows)


def fork_run(submissions: Path, out: Path) -> int:
    """A grading run in a process of its own, which this one has already paid the imports of."""
    from autograder.__main__ import main as command

    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        log = os.open(out.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = command(["grade", CHAPTER, "--submissions", str(submissions), "--out", str(out), "--seed", "3"])
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 70
    os._exit(status)


def main() -> int:
    """`python tests/toy.py grade …` is the grader's command line, `worker ADDRESS …` Dask's, `kill KILLS SEED` see `kill`."""
    from autograder.__main__ import main as command

    lighten()
    if sys.argv[1] == "worker":
        from distributed.cli.dask_worker import main as worker

        return worker(sys.argv[2:])
    if sys.argv[1] == "kill":
        kill(int(sys.argv[2]), random.Random(int(sys.argv[3])))
        return 0
    return command(sys.argv[1:])


def kill(wanted: int, rng: random.Random) -> None:
    """Kill runs, their servers and their workers at random moments until `wanted` were; print what was seen."""
    from autograder.sandbox import descendants

    here = Path.cwd()
    right = hand_in(here, here / "submitted", 24)
    kills = {"run": 0, "server": 0, "worker": 0}
    rounds = stops = 0
    pid = 0
    out = here / "out-0"
    end = time.monotonic() + 900
    while time.monotonic() < end:
        if not pid:
            out.mkdir(exist_ok=True)
            pid = fork_run(here / "submitted", out)
        time.sleep(rng.uniform(0.05, 1.0))
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            if os.waitstatus_to_exitcode(status) == 1:  # the server was killed during its start, again and again
                assert out.with_suffix(".log").read_text().endswith("goes on where this one stopped.\n")
                stops, pid = stops + 1, 0
                continue
            assert os.waitstatus_to_exitcode(status) == 0, out.with_suffix(".log").read_text()[-3000:]
            assert scores(out) == right
            rounds, pid = rounds + 1, 0
            if sum(kills.values()) >= wanted and all(kills.values()):
                break
            out = here / f"out-{rounds}"
            continue
        if sum(kills.values()) >= wanted and all(kills.values()):
            continue  # let it come to its end
        family = descendants(pid)
        bodies = [p for p in family if b"autograder.warm" in _command(p)]
        kind = rng.choices(["run", "server", "worker"], [1, 2, 4])[0]
        # Of the server's processes the last are the children that run submissions; those before it are bubblewrap's.
        victims = {"run": [pid], "server": bodies[:4], "worker": bodies[4:]}[kind]
        if not victims:
            continue
        try:
            os.kill(rng.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            continue
        kills[kind] += 1
        if kind == "run":
            os.waitpid(pid, 0)
            pid = 0
    time.sleep(1)
    left = [p for p in descendants(os.getpid()) if p != os.getpid()]
    print(json.dumps({"kills": kills, "rounds": rounds, "left": left, "stops": stops}))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main())
