"""Answer the grader's requests in the process that ran the learner's notebook: inputs come in, what was seen goes out."""

from __future__ import annotations

from typing import Any

from .check import find, look_up
from .forbid import in_object
from .probes import observe, seen_to_json
from .record import case_from_json


def answer(request: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    """Put the request's cases to the learner's object.

    Parameters
    ----------
    request
        `{"exercise": name, "cases": [case as JSON, without its answer]}`.
    namespace
        The notebook's names after its last cell.

    Returns
    -------
    dict
        `notes` on how the object was found, `forbidden` (the name of a forbidden callable in its source, or ""), and
        `seen`, one observation a case, or None where there is nothing to judge.
    """
    exercise = find(request["exercise"])
    if exercise is None:
        raise ValueError(f"there is no exercise {request['exercise']!r}")
    obj, notes, stop = look_up(exercise, namespace)
    if stop:
        return {"notes": notes, "forbidden": "", "seen": None}
    if name := in_object(obj, exercise.forbids):
        return {"notes": notes, "forbidden": name, "seen": None}
    seen = observe(exercise, obj, [case_from_json(case) for case in request["cases"]], namespace)
    return {"notes": notes, "forbidden": "", "seen": [seen_to_json(one) for one in seen]}
