"""The instructor's side of Under the Hood: the full exercises, the reference solutions, the judge and the grader."""

import os
import sys

# `python -m autograder` looks for modules in the current folder first: in a folder of hand-ins, a tqdm.py there would run.
if sys.argv[0] == "-m" and sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    del sys.path[0]

from .chapters import chapters, exercises  # noqa: E402

__all__ = ["chapters", "exercises"]
