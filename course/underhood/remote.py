"""Answer the grader's requests in the process that ran the learner's notebook: inputs come in, what was seen goes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .check import find, look_up
from .probes import observe, seen_to_json
from .reading import in_cells, in_object
from .record import case_from_json, exercises


def answer(request: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    """Put the request's cases to the learner's object.

    Parameters
    ----------
    request
        `{"prepare": chapter}` (see `prepare`); before the first cell `{"cells": [source, …], "answers": {exercise:
        {"forbids": […], "checked_after": number of cells}}}` (see `scan`); then `{"exercise": name, "forbids": […],
        "cases": [case as JSON, without its answer]}`.
    namespace
        The notebook's names at this moment.

    Returns
    -------
    dict
        `notes` on how the object was found, `forbidden` (the name of a forbidden callable in its source, or ""), and
        `seen`, one observation a case, or None where there is nothing to judge. For cells: see `scan`.
    """
    if "prepare" in request:
        return prepare(request["prepare"])
    if "cells" in request:
        return scan(request["cells"], request["answers"])
    exercise = find(request["exercise"])
    if exercise is None:
        raise ValueError(f"there is no exercise {request['exercise']!r}")
    # What is forbidden is the grader's to say: the record in this process may have been changed. It puts about twice as many
    # cases as the learner's own check, so it gives twice the time.
    exercise = replace(exercise, forbids=tuple(request["forbids"]), seconds=2 * exercise.seconds)
    obj, notes, stop = look_up(exercise, namespace)
    if stop:
        return {"notes": notes, "forbidden": "", "seen": None}
    if name := in_object(obj, exercise.forbids):
        return {"notes": notes, "forbidden": name, "seen": None}
    seen = observe(exercise, obj, [case_from_json(case) for case in request["cases"]], namespace)
    return {"notes": notes, "forbidden": "", "seen": [seen_to_json(one) for one in seen]}


def prepare(chapter: str) -> dict[str, Any]:
    """Put a chapter's cases to an answer that does nothing: what that loads and looks up need not be done again after a fork."""
    for exercise in exercises():
        if exercise.chapter == chapter:
            observe(exercise, _nothing, exercise.cases, {})
    return {}


def _nothing(*args: Any, **kwargs: Any) -> None:
    """An answer that does nothing."""


def scan(cells: Sequence[str], answers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Read the code without running it, before any of it ran in this process.

    Returns
    -------
    dict
        `early` and `late`: exercise → the forbidden name that its answer mentions, as the answer stands at its check
        cell and at the notebook's end.
    """
    found: dict[str, dict[str, str]] = {"early": {}, "late": {}}
    for exercise, given in answers.items():
        forbids = tuple(given["forbids"])
        for when, count in (("early", given["checked_after"]), ("late", len(cells))):
            if name := in_cells(cells[:count], exercise, forbids):
                found[when][exercise] = name
    return found
