"""nbgrader's settings for this course; nbgrader reads them through the nbgrader_config.py of the repository's root."""

from pathlib import Path

from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearHiddenTests,
    ClearMarkScheme,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    IncludeHeaderFooter,
    LockCells,
    SaveCells,
)

from autograder.release import TidyRelease

c = get_config()  # noqa: F821 - nbgrader's configuration loader provides it

root = Path(__file__).resolve().parent.parent
c.CourseDirectory.root = str(root)
c.CourseDirectory.course_id = "under-the-hood"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "course"
c.CourseDirectory.submitted_directory = "autograder/class/submitted"
c.CourseDirectory.autograded_directory = "autograder/class/autograded"
c.CourseDirectory.feedback_directory = "autograder/class/feedback"
c.CourseDirectory.solution_directory = "autograder/class/solution"
(root / "autograder" / "class").mkdir(exist_ok=True)  # personal data, never committed; SQLite makes no folders
c.CourseDirectory.db_url = f"sqlite:///{root}/autograder/class/gradebook.db"
# The text sources, the exercises and the picture files stay with the instructor.
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "*.py", "*.npz", "figures", "frozen", "*.md"]

c.ClearSolutions.code_stub = {"python": "raise NotImplementedError"}
c.ClearSolutions.enforce_metadata = True
c.ExecutePreprocessor.timeout = 120
c.OverwriteCells.add_missing_cells = True
c.GenerateAssignment.preprocessors = [
    IncludeHeaderFooter,
    ClearSolutions,
    LockCells,
    ComputeChecksums,
    SaveCells,
    CheckCellMetadata,
    ClearOutput,
    ClearHiddenTests,
    ClearMarkScheme,
    ComputeChecksums,
    CheckCellMetadata,
    TidyRelease,
]
