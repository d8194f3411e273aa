"""nbgrader's gradebook: the chapter's cells, and the scores of submissions. One process writes at a time.

It lies in an SQLite file, or in any database that SQLAlchemy has a driver for; PostgreSQL is tested.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import nbformat
from nbgrader.api import Gradebook, InvalidEntry, MissingEntry
from nbgrader.apps import NbGraderAPI
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SAWarning, SQLAlchemyError

from .build import configuration
from .chapters import COURSE, SOLUTIONS

# PostgreSQL's lock_not_available and deadlock_detected; unique_violation and duplicate_table, where another run was quicker.
LOCKED = frozenset({"55P03", "40P01", "23505", "42P07"})
SAID = re.compile(r"database (table )?is locked|UNIQUE constraint failed|table \S+ already exists")  # by SQLite
DRIVER = "for postgresql:// run `pip install -e '.[postgresql]'`"


def check(url: str) -> None:
    """See that a database's address is one, and that its driver is installed.

    Raises
    ------
    ValueError
        With the next step. The address is not repeated: it may hold a password.
    """
    try:
        make_url(url).get_dialect().import_dbapi()
    except ImportError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"The database's driver is not installed ({reason}): {DRIVER}.") from error
    except (SQLAlchemyError, ValueError) as error:
        raise ValueError(
            "This is no address of a database that is known here. Such an address looks like "
            "postgresql://user:password@host/database or sqlite:////folder/gradebook.db."
        ) from error


@contextlib.contextmanager
def opened(url: str) -> Iterator[Gradebook]:
    """The gradebook at a database URL, closed again at the end.

    Raises
    ------
    Locked, Unwritten
        It cannot be opened.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # nbgrader's own: "object not in session" for each new submission
        logging.getLogger("tornado.application").setLevel(logging.CRITICAL)  # where nbgrader logs what it raises
        book = patiently(lambda: Gradebook(url, course_id=configuration().CourseDirectory.course_id))
        try:
            if book.engine.dialect.name == "postgresql":
                event.listen(book.engine, "connect", _wait_briefly)
                book.close()  # its connections; the next ones will be so
            yield book
        finally:
            book.close()


def _wait_briefly(connection: Any, record: object) -> None:
    """Have PostgreSQL wait for a lock as long as SQLite does, not without end and without a word."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '5s'")
    connection.commit()


def prepare(url: str, chapter: str, scratch: Path) -> None:
    """Have nbgrader save the chapter's current cells in the gradebook, as releasing the chapter does, unless it has them.

    The released notebooks that it writes on the way go to `scratch`.

    Raises
    ------
    Unwritten
        nbgrader could not.
    """
    if patiently(lambda: prepared(url, chapter)):
        return

    def save() -> dict[str, Any]:
        config = configuration()
        config.CourseDirectory.db_url = url
        config.CourseDirectory.release_directory = str(scratch / "release")
        return NbGraderAPI(config=config).generate_assignment(chapter, force=True, create=True)

    place, tempfile.tempdir = tempfile.tempdir, str(scratch)  # what it leaves when it is killed is removed with that
    try:
        result = patiently(save, lambda result: not result["success"] and _says_locked(str(result)))
    finally:
        tempfile.tempdir = place
    if not result["success"]:
        log = str(result.get("log", ""))
        if "[ERROR] Canceled" in log:  # how nbgrader takes Ctrl-C
            raise KeyboardInterrupt
        errors = re.findall(r"^\s*([\w.]+(?:Error|Exception): .*)$", log, re.M) or log.strip().splitlines() or ["?"]
        raise Unwritten(f"nbgrader could not save the cells of {chapter} in the gradebook: {errors[-1][:500]}")


def prepared(url: str, chapter: str) -> bool:
    """Whether the gradebook holds the chapter's cells as they are now."""
    address = make_url(url)
    if address.drivername.startswith("sqlite") and not Path(address.database or "").is_file():
        return False  # opening it would make it
    with opened(url) as book:
        try:
            for path in sorted((SOLUTIONS / chapter).glob("*.ipynb")):
                saved = {cell.name: cell.source for cell in book.find_notebook(path.stem, chapter).source_cells}
                worth = {cell.name: cell.max_score for cell in book.find_notebook(path.stem, chapter).grade_cells}
                source, released = nbformat.read(path, 4), nbformat.read(COURSE / chapter / path.name, 4)
                current, points = {}, {}
                for ours, theirs in ((source, False), (released, True)):
                    for cell in ours.cells:
                        meta = cell.metadata.get("nbgrader", {})
                        # What is saved of an answer cell is the stub, of a check cell the hidden tests too.
                        if meta and bool(meta.get("solution")) is theirs:
                            current[meta["grade_id"]] = cell.source
                        if meta.get("grade"):
                            points[meta["grade_id"]] = float(meta["points"])
                if saved != current or worth != points:
                    return False
        except MissingEntry:
            return False
    return True


def write(book: Gradebook, student: str, chapter: str, scores: Mapping[str, float]) -> None:
    """Write one submission's scores, by grade_id, in one transaction. Writing it again gives the same rows.

    Manual scores and comments stay.
    """
    patiently(lambda: _write(book, student, chapter, scores))


def _write(book: Gradebook, student: str, chapter: str, scores: Mapping[str, float]) -> None:
    try:
        book.update_or_create_student(student)
        submission = book.update_or_create_submission(chapter, student)
        for notebook in submission.notebooks:
            for grade in notebook.grades:
                grade.auto_score = scores.get(grade.name, 0.0)
                grade.needs_manual_grade = False
        book.db.commit()
    except BaseException:
        with contextlib.suppress(SQLAlchemyError):
            book.db.rollback()
        raise


T = TypeVar("T")
WAIT_SECONDS = 600.0  # for another program, such as the formgrader, to let go of the database


class Unwritten(RuntimeError):
    """Something could not be written into the gradebook."""


class Locked(RuntimeError):
    """Another program held the database for longer than `WAIT_SECONDS`."""


def patiently(do: Callable[[], T], locked: Callable[[T], bool] = lambda result: False) -> T:
    """Do it, and while another program has locked the database say so, wait, and do it again.

    Parameters
    ----------
    locked
        Whether the result says that the database is locked, where no exception does.

    Raises
    ------
    Locked
        After `WAIT_SECONDS`.
    Unwritten
        The database is faulty in another way, the disk full for example.
    """
    end, said = time.monotonic() + WAIT_SECONDS, False
    while True:
        try:
            result = do()
            if not locked(result):
                return result
        except (SQLAlchemyError, InvalidEntry) as error:  # nbgrader makes the one of the other
            if not _locked(error):
                cause = getattr(error, "orig", None)  # without the SQL
                reason = " ".join(str(cause).split()) if cause else str(error).partition("\n")[0]
                raise Unwritten(f"The gradebook could not be written: {reason[:500].rstrip('.')}.") from error
        if time.monotonic() > end:
            raise Locked("The gradebook is still locked by another program. Close the formgrader, then try again.")
        if not said:
            print("The gradebook is locked by another program (the formgrader?). Waiting for it.", file=sys.stderr)
            said = True
        time.sleep(0.5)


def _locked(error: BaseException) -> bool:
    """Whether an error, or the one that nbgrader made it of, is about another program that writes now."""
    for each in filter(None, (error, error.__context__)):
        cause = getattr(each, "orig", None)
        if LOCKED.intersection({getattr(cause, "sqlstate", None), getattr(cause, "pgcode", None)}):
            return True
    return _says_locked(str(error))


def _says_locked(message: str) -> bool:
    return SAID.search(message) is not None
