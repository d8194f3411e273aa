"""nbgrader's gradebook: the chapter's cells, and the scores of submissions. One process writes at a time."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Mapping

from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from sqlalchemy.exc import SAWarning

from .build import configuration


@contextlib.contextmanager
def opened(url: str) -> Iterator[Gradebook]:
    """The gradebook at a database URL, closed again at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # nbgrader's own: "object not in session" for each new submission
        book = Gradebook(url, course_id=configuration().CourseDirectory.course_id)
        try:
            yield book
        finally:
            book.close()


def prepare(url: str, chapter: str) -> None:
    """Have nbgrader save the chapter's current cells in the gradebook, as releasing the chapter does.

    The released notebooks that it writes on the way go to a folder that is thrown away.
    """
    with tempfile.TemporaryDirectory() as scratch:
        config = configuration()
        config.CourseDirectory.db_url = url
        config.CourseDirectory.release_directory = scratch
        result = NbGraderAPI(config=config).generate_assignment(chapter, force=True, create=True)
    if not result["success"]:
        raise RuntimeError(f"nbgrader could not save the cells of {chapter} at {url}:\n{result.get('log', '')[-2000:]}")


def write(book: Gradebook, student: str, chapter: str, scores: Mapping[str, float]) -> None:
    """Write one submission's scores, by grade_id, in one transaction. Writing it again gives the same rows.

    Manual scores and comments stay.
    """
    book.update_or_create_student(student)
    submission = book.update_or_create_submission(chapter, student)
    for notebook in submission.notebooks:
        for grade in notebook.grades:
            grade.auto_score = scores.get(grade.name, 0.0)
            grade.needs_manual_grade = False
    book.db.commit()
