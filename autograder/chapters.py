"""Where the chapters are, and the full Exercises that their `exercises.py` hold."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from underhood import Exercise

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS = ROOT / "solutions"
COURSE = ROOT / "course"


def chapters() -> tuple[str, ...]:
    """Every chapter's folder name, in course order."""
    return tuple(sorted(path.parent.name for path in SOLUTIONS.glob("[0-9][0-9]_*/exercises.py")))


def known(chapter: str) -> str:
    """The chapter, if it exists.

    Raises
    ------
    ValueError
        With the chapters that there are.
    """
    if chapter not in chapters():
        raise ValueError(f"There is no chapter {chapter!r}. The chapters are: {', '.join(chapters())}.")
    return chapter


def text_sources(chapter: str) -> tuple[Path, ...]:
    """The chapter's notebooks as text (jupytext py:percent), in the order in which they are taken."""
    others = ("exercises.py", "alternatives.py", "figures.py")
    found = sorted(path for path in (SOLUTIONS / chapter).glob("*.py") if path.name not in others)
    return tuple(path for path in found if path.read_text(encoding="utf-8").startswith("# ---\n# jupyter:"))


def module(chapter: str, name: str) -> ModuleType:
    """`solutions/<chapter>/<name>.py`, imported once under a name of its own."""
    full = f"solutions_{chapter}_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, SOLUTIONS / known(chapter) / f"{name}.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"solutions/{chapter}/{name}.py cannot be imported")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[full] = loaded
        try:
            spec.loader.exec_module(loaded)
        except BaseException:
            del sys.modules[full]
            raise
    return sys.modules[full]


@functools.cache
def exercises(chapter: str) -> tuple[Exercise, ...]:
    """The chapter's full Exercises, mistakes' code and hidden cases included, in the order of the notebook."""
    from . import reference

    names: dict[str, Any] = reference.load(chapter)
    found = []
    for exercise in module(chapter, "exercises").EXERCISES:
        signature = str(inspect.signature(names[exercise.name]))
        found.append(replace(exercise, chapter=chapter, signature=signature))
    return tuple(found)


@functools.cache
def exercise(name: str) -> Exercise:
    """The full Exercise of that name.

    Raises
    ------
    ValueError
        Where there is none.
    """
    for chapter in chapters():
        for found in exercises(chapter):
            if found.name == name:
                return found
    raise ValueError(f"There is no exercise named {name!r}.")
