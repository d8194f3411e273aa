"""Seconds for `check` of each exercise's reference, after import; and what each reference notebook takes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import nbformat

from autograder import chapters, reference
from autograder.chapters import text_sources
from autograder.execute import execute
from underhood import exercises
from underhood.check import judged

AIM_CHECK = {"fit": 5.0}  # seconds; 0.3 for all others
AIM_NOTEBOOK = 60.0  # CPU seconds
AIM_MEMORY = 1024.0  # MB


def rows() -> list[dict]:
    found = []
    for exercise in exercises():
        names = reference.load(exercise.chapter)
        judged(exercise, names)
        start = time.perf_counter()
        judged(exercise, names)
        seconds, aim = time.perf_counter() - start, AIM_CHECK.get(exercise.name, 0.3)
        found.append(row(f"check {exercise.name}", seconds, "s", aim))
    for chapter in chapters():
        for source in text_sources(chapter):
            with tempfile.TemporaryDirectory() as folder:
                done = execute(nbformat.read(source.with_suffix(".ipynb"), 4), Path(folder))
            found.append(row(f"notebook {source.stem}, CPU", done.cpu_seconds, "s", AIM_NOTEBOOK))
            found.append(row(f"notebook {source.stem}, peak memory", done.peak_megabytes, "MB", AIM_MEMORY))
    return found


def row(name: str, value: float, unit: str, reference_: float) -> dict:
    """A row whose reference is the most that it may be; ratio > 1 is better."""
    return {"name": name, "value": value, "unit": unit, "reference": reference_, "ratio": reference_ / value}
