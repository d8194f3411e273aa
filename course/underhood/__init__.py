"""Under the Hood: the helper package of the course. Notebooks use `check`, `ready`, `plots` and `data`."""

from .check import check, ready
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
    "environment",
    "exercises",
    "ready",
]
