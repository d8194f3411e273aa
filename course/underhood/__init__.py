"""Under the Hood: the helper package of the course. Notebooks use `check`, `ready`, `plots` and `data`."""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - pip is not the only way in
    raise ImportError(
        f"Under the Hood needs Python 3.11, 3.12 or 3.13, and this is Python {sys.version_info[0]}.{sys.version_info[1]}. "
        "Next step: install one of these and start again from it, for example with: make start PYTHON=python3.12"
    )

from .check import check, ready
from .doctor import doctor, glance
from .env import environment
from .exercise import Build, Case, Exercise, Learner, Mistake
from .record import exercises
from .verdict import Verdict

__version__ = "1.0.0"
__all__ = [
    "Build",
    "Case",
    "Exercise",
    "Learner",
    "Mistake",
    "Verdict",
    "check",
    "doctor",
    "environment",
    "exercises",
    "ready",
]

if "ipykernel" in sys.modules and "UNDERHOOD_GRADING" not in os.environ:
    if _message := glance():
        print(_message)
