"""`python -m autograder grade CHAPTER`: the grader's command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tqdm import tqdm

from . import selftest
from .chapters import chapters
from .forkserver import ServerError
from .run import CLASS, Row, grade
from .sandbox import SandboxError


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m autograder", description="The grader of Under the Hood.")
    commands = made.add_subparsers(dest="command", required=True)
    one = commands.add_parser("grade", help="grade a batch of submissions of one chapter")
    one.add_argument("chapter", help=", ".join(chapters()))
    one.add_argument("--submissions", type=Path, default=CLASS / "submitted", help="a folder or a zip of notebooks")
    one.add_argument("--out", type=Path, default=CLASS, help="receives gradebook, feedback, grades.csv, results.jsonl")
    one.add_argument("--jobs", type=int, default=2, help="submissions at a time (default 2)")
    one.add_argument("--student", action="append", default=[], help="only this student (may be repeated)")
    one.add_argument("--seed", type=int, help="of the hidden cases; by default the one of the last run")
    one.add_argument("--database", help="another gradebook, as a database URL that nbgrader takes")
    one.add_argument("--trust-submissions", action="store_true", help="run the submissions without any sandbox")
    commands.add_parser("selftest", help="prove each wall of the sandbox on this machine")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 every submission has a row, 1 not, 2 wrong use."""
    options = parser().parse_args(arguments)
    if options.command == "selftest":
        return selftest.main()
    if options.trust_submissions:
        print("Trusting the submissions: they run without a sandbox, with your rights.", file=sys.stderr)
    try:
        rows = grade(
            options.chapter,
            options.submissions,
            options.out,
            jobs=options.jobs,
            students=options.student,
            seed=options.seed,
            trust=options.trust_submissions,
            url=options.database,
            progress=progress,
        )
    except (ValueError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    except SandboxError as error:
        print(f"{error}\nTo grade without a sandbox, say --trust-submissions.", file=sys.stderr)
        return 2
    except ServerError as error:
        print(f"{error}\nNothing is lost: the same command goes on where this one stopped.", file=sys.stderr)
        return 1
    report(rows, options.out)
    return 0


def progress(rows: Iterable, total: int) -> Iterable:
    """A bar with the time that is left."""
    return tqdm(rows, total=total, unit="submission", desc="grading", file=sys.stderr)


def report(rows: list[Row], out: Path) -> None:
    """Print a line a submission, then where everything is."""
    width = max(len(row.student) for row in rows)
    for row in sorted(rows, key=lambda row: row.student):
        print(f"{row.student:<{width}}  {row.points:5.1f} of {row.max_points}  {' '.join(row.flags)}".rstrip())
    print(f"{len(rows)} submissions. Grades: {out / 'grades.csv'}, feedback: {out / 'feedback'}/")


if __name__ == "__main__":
    sys.exit(main())
