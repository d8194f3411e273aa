"""nbgrader's settings for this course; nbgrader reads them through the nbgrader_config.py of the repository's root."""

import os
import secrets
import sys
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearHiddenTests,
    ClearMarkScheme,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    DeduplicateIds,
    IncludeHeaderFooter,
    LockCells,
    OverwriteCells,
    OverwriteKernelspec,
    SaveCells,
)
from nbgrader.server_extensions.formgrader.handlers import template_path

from autograder.collect import Collect
from autograder.harmless import TEMPLATES, Harmless
from autograder.release import OwnSchema, TidyRelease

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
c.ExecutePreprocessor.skip_cells_with_tag = secrets.token_hex(8)  # or a learner's tag would keep a check from failing
# UNDERHOOD_SANDBOX=1: autograde, validate and the formgrader's bolt run notebooks in the grader's sandbox, after
# `python -m autograder kernel`.
if os.environ.get("UNDERHOOD_SANDBOX", "0") != "0":
    c.ExecutePreprocessor.kernel_name = "underhood-sandbox"
    if c.ExecutePreprocessor.kernel_name not in KernelSpecManager().find_kernel_specs():
        sys.exit("UNDERHOOD_SANDBOX is set, and its kernel is not installed. Install it: python -m autograder kernel")
c.OverwriteCells.add_missing_cells = True
c.ExchangeFactory.collect = Collect  # nbgrader's own would follow a learner's link to the solutions
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

c.Autograde.sanitize_preprocessors = [
    OwnSchema,
    ClearOutput,
    DeduplicateIds,
    OverwriteKernelspec,
    OverwriteCells,
    CheckCellMetadata,
]

# The formgrader's view of a submission and the feedback page run nothing of a learner's, and ask no other host for anything.
c.HTMLExporter.preprocessors = [Harmless]
c.HTMLExporter.extra_template_basedirs = [str(TEMPLATES), template_path]
