"""Answers requests inside the sandbox, for the tests of the fork server."""

from __future__ import annotations

from typing import Any


def answer(request: dict, namespace: dict) -> dict:
    """Call the learner's function, or do what a hostile probe would."""
    if "deep" in request:
        value: list = []
        for _ in range(request["deep"]):
            value = [value]
        return {"value": value}
    if "long" in request:
        return {"value": "x" * request["long"]}
    if "wide" in request:
        return {"value": [[]] * request["wide"]}
    if "no json" in request:
        return {"value": object()}
    if "no dict" in request:
        return [1]  # type: ignore[return-value]
    value: Any = namespace[request["call"]](*request.get("args", ()))
    return {"value": value}
