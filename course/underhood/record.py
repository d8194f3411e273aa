"""The record: what a learner's copy knows of the exercises, written by the course's build, read here."""

from __future__ import annotations

import builtins
import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .exercise import Case, Exercise, Mistake
from .plain import Array, from_json, inputs, to_json
from .probes import seen_from_json, seen_to_json

FOLDER = Path(__file__).parent / "recorded"
PLAIN_FIELDS = (
    "name title level minutes parts forbids probe tolerance seconds same_dtype second_of_card signature chapter".split()
)


@functools.cache
def exercises() -> tuple[Exercise, ...]:
    """Every exercise's public face, in course order."""
    found: list[Exercise] = []
    for path in sorted(FOLDER.glob("*.json")):
        written = json.loads(path.read_text(encoding="utf-8"))
        found += [_read(item) for item in written["exercises"]]
    return tuple(found)


def _read(written: dict[str, Any]) -> Exercise:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in written.items()}
    return Exercise(
        **{key: fields[key] for key in PLAIN_FIELDS},
        cases=tuple(_read_case(case) for case in written["cases"]),
        mistakes=tuple(
            Mistake(m["name"], None, m["hint"], tuple(seen_from_json(seen) for seen in m["seen"]))
            for m in written["mistakes"]
        ),
    )


def _read_case(written: dict[str, Any]) -> Case:
    raises = written.get("raises")
    return Case(
        about=written["about"],
        part=written["part"],
        args=from_json(written["args"]),
        kwargs=from_json(written["kwargs"]),
        expected=from_json(written.get("expected")),
        raises=getattr(builtins, raises) if raises else None,
        tolerance=written.get("tolerance"),
    )


def case_to_json(case: Case) -> dict[str, Any]:
    """JSON of a case: for the record, and (without the answer) from the judge to the sandbox."""
    written = {"about": case.about, "part": case.part, "args": to_json(inputs(case.args))}
    written["kwargs"] = to_json(inputs(dict(case.kwargs)))
    if case.raises:
        written["raises"] = case.raises.__name__
    elif case.expected is not None:
        written["expected"] = to_json(inputs(case.expected))
    if case.tolerance is not None:
        written["tolerance"] = case.tolerance
    return written


case_from_json = _read_case


def exercise_to_json(exercise: Exercise) -> dict[str, Any]:
    """JSON of an exercise's public face. The mistakes must have been run: their `seen` is what is kept."""
    return {key: getattr(exercise, key) for key in PLAIN_FIELDS} | {
        "cases": [case_to_json(case) for case in exercise.cases],
        "mistakes": [
            {"name": m.name, "hint": m.hint, "seen": [seen_to_json(replace(s, value=rounded(s.value))) for s in m.seen]}
            for m in exercise.mistakes
        ],
    }


def blur(value: Any) -> float:
    """By how much, relative to a number, rounding may have moved the numbers of a recorded value."""
    items = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    narrow = isinstance(value, Array) and value.data.dtype.kind == "f" and value.data.dtype.itemsize <= 4
    return max(map(blur, items), default=6e-6 if narrow else 6e-9)


def rounded(value: Any) -> Any:
    """The plain value with its floating-point numbers rounded to nine significant digits (six in float32 and narrower
    types, which have seven), so that machines agree.
    """
    if isinstance(value, Array) and value.data.dtype.kind == "f":
        form = ".9g" if value.data.dtype.itemsize > 4 else ".6g"
        numbers = np.array([float(f"{x:{form}}") for x in value.data.ravel()], dtype=value.data.dtype)
        return Array(value.kind, value.dtype, numbers.reshape(value.shape))
    if type(value) is float:
        return float(f"{value:.9g}")
    if type(value) in (list, tuple):
        return type(value)(rounded(item) for item in value)
    if type(value) is dict:
        return {key: rounded(item) for key, item in value.items()}
    return value
