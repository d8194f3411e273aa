"""`python -m autograder grade CHAPTER`: the grader's command line."""

from __future__ import annotations

import argparse
import dataclasses
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

if sys.platform == "win32":
    sys.exit(
        "The grader forks a process for each submission, which Windows cannot. Next step: run it in the Windows Subsystem for "
        "Linux. For submissions that you trust, `nbgrader autograde` grades the same notebooks on Windows."
    )

# jsonschema would compile 38 grammars for formats of addresses (3 seconds), which no notebook is checked for.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

from tqdm import tqdm  # noqa: E402

from . import provisioner, selftest  # noqa: E402
from .chapters import chapters  # noqa: E402
from .cluster import ClusterError  # noqa: E402
from .forkserver import ForkServer, ServerError  # noqa: E402
from .gradebook import Locked, Unwritten  # noqa: E402
from .run import CLASS, Busy, Row, grade  # noqa: E402
from .sandbox import Limits, SandboxError  # noqa: E402

AGAIN = "Nothing is lost: the same command goes on where this one stopped."
EPILOG = "Exit status: 0 every submission has a row, 1 not, 2 wrong use or a sandbox that cannot be built here."


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m autograder", description="The grader of Under the Hood.", epilog=EPILOG
    )
    commands = made.add_subparsers(dest="command", required=True)
    one = commands.add_parser("grade", help="grade a batch of submissions of one chapter")
    one.add_argument("chapter", help=", ".join(chapters()))
    one.add_argument("--submissions", type=Path, default=CLASS / "submitted", help="a folder or a zip of notebooks")
    one.add_argument("--out", type=Path, default=CLASS, help="receives gradebook, feedback, grades.csv, results.jsonl")
    one.add_argument("--jobs", type=int, default=2, help="submissions at a time on this machine (default 2)")
    one.add_argument("--scheduler", help="grade on the workers of a Dask cluster: its address, tcp://host:8786")
    one.add_argument("--student", action="append", default=[], help="only this student (may be repeated)")
    one.add_argument("--seed", type=int, help="of the hidden cases; by default the one of the last run")
    one.add_argument("--database", help="another gradebook, as a database URL that nbgrader takes")
    one.add_argument("--trust-submissions", action="store_true", help="run the submissions without any sandbox")
    one.add_argument(
        "--limit",
        action="append",
        default=[],
        type=limit,
        metavar="NAME=NUMBER",
        help="what a submission may use, e.g. cell_seconds=60 or memory_bytes=4e9 (may be repeated); the names and "
        f"defaults: {', '.join(f'{field.name}={field.default:g}' for field in dataclasses.fields(Limits))}",
    )
    commands.add_parser("selftest", help="prove each wall of the sandbox on this machine")
    kernel = commands.add_parser(
        "kernel", help=f"install the Jupyter kernel {provisioner.NAME}, whose notebooks run in the sandbox"
    )
    kernel.add_argument("--remove", action="store_true", help="take it out again")
    kernel.add_argument("--prefix", default=sys.prefix, help="the environment (default: this one)")
    kernel.add_argument(
        "--limit", action="append", default=[], type=limit, metavar="NAME=NUMBER", help="as of grade (may be repeated)"
    )
    return made


def limit(text: str) -> tuple[str, float]:
    """Name and value of a limit, from "cell_seconds=60"."""
    name, _, number = text.partition("=")
    kinds: dict[str, Callable[[float], float]] = {
        name: type(value) for name, value in dataclasses.asdict(Limits()).items()
    }
    if name not in kinds:
        raise argparse.ArgumentTypeError(f"there is no limit {name!r}; the limits are: {', '.join(kinds)}")
    value = float(number)
    if not 0 < value < 2**63:  # the kernel's numbers
        raise argparse.ArgumentTypeError(f"{name} must be a number above zero and below 2 to the power of 63")
    return name, kinds[name](value)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 every submission has a row, 1 not, 2 wrong use."""
    for stream in (sys.stdout, sys.stderr):  # a name may hold letters that the terminal does not have
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    options = parser().parse_args(arguments)
    if options.command == "selftest":
        return selftest.main()
    if options.command == "kernel":
        return kernel(options.remove, dict(options.limit), options.prefix)
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
            limits=Limits(**dict(options.limit)),
            scheduler=options.scheduler,
            progress=progress,
        )
    except (ValueError, Busy, ClusterError) as error:
        print(error, file=sys.stderr)
        return 2
    except SandboxError as error:
        print(f"{error}\nTo grade without a sandbox, say --trust-submissions.", file=sys.stderr)
        return 2
    except (ServerError, Locked, Unwritten) as error:
        print(f"{error}\n{AGAIN}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"The grader could not read or write: {error}.\n{AGAIN}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"Stopped. {AGAIN}", file=sys.stderr)
        return 1
    report(rows, options.out)
    return 0


def kernel(remove: bool, limits: dict[str, float], prefix: str) -> int:
    """Install the sandboxed kernel, or take it out; returns the exit status."""
    if remove:
        provisioner.remove(prefix)
        print(f"The kernel {provisioner.NAME} is not installed any more.")
        return 0
    try:
        with ForkServer(preload=(), answer=None, packages=()):
            pass
    except SandboxError as error:
        print(f"{error}\nThe kernel {provisioner.NAME} is not installed.", file=sys.stderr)
        return 2
    written = provisioner.install(limits, prefix)
    print(f"Installed in {written}. To grade with it: UNDERHOOD_SANDBOX=1 nbgrader autograde CHAPTER")
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
