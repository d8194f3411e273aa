"""Probes of chapter 2."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from . import TimeUp, time_limit

WALK = 1.0  # seconds that one walk over a graph may take


def call(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call the function; where an input comes with a `.grad`, report what has become of the inputs' state as well.

    Returns
    -------
    object
        What the function returned, or a dict: `returned`, and the inputs' `grad` and `requires_grad` afterwards.
    """
    tensors = [t for arg in args for t in (arg if type(arg) is list else [arg]) if isinstance(t, Tensor)]
    watched = any(t.grad is not None for t in tensors)
    returned = fn(*args, **kwargs)
    if not watched:
        return returned
    state = {"grad": [t.grad for t in tensors], "requires_grad": [t.requires_grad for t in tensors]}
    return {"returned": returned} | state


def graph(fn: Callable, made: tuple[Tensor, list[Tensor]]) -> Any:
    """Have a graph summarized; leaves are reported as places among the tensors that went in.

    Parameters
    ----------
    made
        The tensor at the end, and the tensors that went in.

    Returns
    -------
    dict or str
        What the function returned, with `leaves` as a sorted list of places (−1: none of them) and more than three
        equal `ops` in a row as "AddBackward0, 40 times"; or a sentence when the walk takes longer than `WALK` seconds.
    """
    end, inputs = made
    try:
        with time_limit(WALK):
            summary = fn(end)
    except TimeUp:
        return f"still walking after {WALK:g} second"
    if type(summary) is not dict:
        return summary
    shown = dict(summary)
    if type(shown.get("leaves")) in (list, tuple):
        shown["leaves"] = sorted(
            next((i for i, one in enumerate(inputs) if one is found), -1) for found in shown["leaves"]
        )
    if type(shown.get("ops")) is list:
        runs = [(name, len(list(same))) for name, same in groupby(shown["ops"])]
        shown["ops"] = [item for name, n in runs for item in ([f"{name}, {n} times"] if n > 3 else [name] * n)]
    return shown


def scalar(
    cls: Callable, values: dict[str, float], steps: list[str], times: int = 1, backward: int = 1
) -> dict[str, Any]:
    """Compute with the learner's numbers, and go backward from the last result.

    Parameters
    ----------
    values
        The numbers to start from, by name; each becomes one object of the class.
    steps
        Assignments with Python's operators and the class's methods, as "c = (a + b).tanh()".
    times
        How often all the steps are carried out.
    backward
        How often `backward()` is called on the last result.

    Returns
    -------
    dict
        `value` of the last result, and `grad` of each of the values.
    """
    start = {name: cls(value) for name, value in values.items()}
    names = {"__builtins__": {}} | start
    for step in [compile(step, "<expression>", "exec") for step in steps] * times:
        exec(step, names)
    end = names[steps[-1].partition("=")[0].strip()]
    for _ in range(backward):
        end.backward()
    return {"value": end.value, "grad": {name: one.grad for name, one in start.items()}}


def differentiable(fn: Callable, x: Tensor) -> Any:
    """Call the function; where x requires grad, report the gradient of the output's sum instead of the output."""
    if not x.requires_grad:
        return fn(x)
    total = fn(x).sum()
    return torch.autograd.grad(total, x)[0] if total.requires_grad else "no gradient: the output does not depend on x"
