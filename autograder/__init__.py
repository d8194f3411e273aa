"""The instructor's side of Under the Hood: the full exercises, the reference solutions, the judge and the grader."""

from .chapters import chapters, exercises

__all__ = ["chapters", "exercises"]
