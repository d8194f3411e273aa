"""Probes of chapter 5."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import ode

LIMITS: dict[str, Any] = {"maxiters": 800, "max_events": 100}  # of the runs below: a wrong part must not take for ever


def answers(result: Any, *names: str) -> tuple:
    """What a function returned in place of several values, or a TypeError that says which were expected."""
    if isinstance(result, tuple | list) and len(result) == len(names):
        return tuple(result)
    kind = f"one {type(result).__name__}"
    if result is None:
        kind = "None: is a return statement missing?"
    elif isinstance(result, tuple | list):
        kind = f"a {type(result).__name__} of {len(result)}"
    raise TypeError(f"return {len(names)} values, {', '.join(names[:-1])} and {names[-1]}, not {kind}")


def whole(value: Any) -> int:
    """A whole number of any kind as an int; TypeError for anything else."""
    number = int(value)
    if not bool(number == value):
        raise TypeError(f"a whole number is expected, not {value!r}")
    return number


def real(value: Any) -> float:
    """A number of any kind as a float; TypeError for a text, which Python would read as one."""
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(f"a number is expected, not {value!r}")
    return float(value)


def step(fn: Callable, f: Callable, t: float, y: np.ndarray, h: float, k1: np.ndarray | None = None) -> dict[str, Any]:
    """One step; with a first slope given, how often f was called as well."""
    calls = 0

    def counted(time: float, state: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return f(time, state)

    if k1 is None:
        y_new, slopes = answers(fn(counted, t, y, h), "y_new", "K")
        return {"y_new": y_new, "K": slopes}
    y_new, slopes = answers(fn(counted, t, y, h, k1), "y_new", "K")
    return {"y_new": y_new, "K": slopes, "calls of f": calls}


def root(fn: Callable, g: Callable[[float], float], a: float, b: float, side: str = "left") -> dict[str, Any]:
    """The root to twelve digits, and where its last bit lies: that is decided by g, not by one right answer."""
    found = real(fn(g, a, b, side))
    value, before = g(found), g(a)
    if not min(a, b) <= found <= max(a, b):
        place = "outside the bracket"
    elif value == 0:
        place = "where g is exactly 0"
    elif (value > 0) == (before > 0):
        beyond = g(math.nextafter(found, b))
        last = beyond == 0 or (beyond > 0) != (value > 0)
        place = "the last float on a's side" if last else "on a's side, but not the last float"
    else:
        previous = g(math.nextafter(found, a))
        first = previous == 0 or (previous > 0) != (value > 0)
        place = "the first float on b's side" if first else "on b's side, but not the first float"
    return {"root": found, "place": place}


def crossings(fn: Callable, G: np.ndarray, prev_sign: np.ndarray, directions: np.ndarray) -> tuple[Any, list[int]]:
    """The row and the components, as plain integers whatever kind of array or list holds them."""
    row, indices = answers(fn(G, prev_sign, directions), "the row", "the conditions")
    return row if row is None else whole(row), [whole(i) for i in indices]


def event(fn: Callable, *args: Any, _compare: str = "state", **run: Any) -> Any:
    """Apply an affect.

    Parameters
    ----------
    args
        Of the function.
    run
        With "run", inputs of `reset_run`.
    _compare
        The new "state", its "slope", what is "saved" once the solver goes on with the state, or a whole "run".
    """
    if _compare == "run":
        return reset_run(fn, **run)
    y_new, k1, saved = answers(fn(*args), "y_new", "k1", "saved")
    if _compare == "state":
        return y_new
    if _compare == "slope":
        return k1
    y = args[2]
    before = np.array(y)
    y += 1000.0  # the caller may use its array again, and the solver goes on with the new one
    y_new += 1000.0  # what was saved must not change with either
    kept = [(float(time), np.array(state)) for time, state in saved]
    y[:] = before
    return kept


def extinction(
    fn: Callable,
    *args: Any,
    _compare: str = "state",
    at: np.ndarray | None = None,
    then: int | None = None,
    **run: Any,
) -> Any:
    """Let a species die, and perhaps a second one after it.

    Parameters
    ----------
    args
        Of the function.
    run
        With "run", inputs of `extinction_run`.
    _compare
        "state": the new state and mask. "rate": the new right-hand side, asked at time 0 for the state `at`. "asked":
        that state afterwards. "run": a whole run.
    then
        A second species that dies afterwards. With "rate" both new right-hand sides are asked, the first one again.
    """
    if _compare == "run":
        return extinction_run(fn, **run)
    y_new, mask, rate = answers(fn(*args), "y", "alive", "a right-hand side")
    if _compare != "state" and not callable(rate):
        raise TypeError(f"the third value should be a function of t and u, not a {type(rate).__name__}")
    if _compare == "asked":
        asked = np.array(at)
        rate(0.0, asked)
        return asked
    if then is None:
        return {"y": y_new, "alive": mask} if _compare == "state" else rate(0.0, np.array(at))
    y_last, mask_last, rate_last = fn(args[0], y_new, mask, then)
    if _compare == "state":
        return {"y": y_last, "alive": mask_last}
    return {"after the second": rate_last(0.0, np.array(at)), "after the first": rate(0.0, np.array(at))}


def impact(fn: Callable, *args: Any, _compare: str = "returned", **run: Any) -> Any:
    """What the function returns, or with "run" what `bouncing_run` gives."""
    return bouncing_run(fn, **run) if _compare == "run" else fn(*args)


# --- the parts "together": the learner's own chain, with the driver of the course
def reset_run(fn: Callable, parts: Mapping[str, Callable], u0: np.ndarray, threshold: float, end: float) -> dict:
    """The public run: a species at the threshold is set to zero, and the dynamics go on as before."""

    def zero(integrator: ode.Integrator, index: int) -> None:
        integrator.u[index] = 0.0

    callback = ode.VectorContinuousCallback(lambda t, u: u - threshold, zero, 4, batched=True)
    settings: dict[str, Any] = {"reltol": 1e-10, "abstol": 1e-15, "dense": False} | LIMITS
    run = ode.solve({**parts, "apply_event": fn}, ode.food_web, u0, (0.0, end), callback, **settings)
    return {
        "saved points": len(run.t),
        "species": [event.index + 1 for event in run.events],
        "times": [event.t for event in run.events],
        "end": run.u[-1],
    }


def extinction_run(fn: Callable, parts: Mapping[str, Callable], u0: np.ndarray, threshold: float, end: float) -> dict:
    """The asker's goal: who dies stays dead, and the others do not feel it any more."""
    alive = np.ones(4)

    def die(integrator: ode.Integrator, index: int) -> None:
        nonlocal alive
        integrator.u, alive, integrator.f = fn(ode.food_web, integrator.u, alive, index)

    callback = ode.VectorContinuousCallback(lambda t, u: u - threshold, None, 4, affect_neg=die, batched=True)
    settings: dict[str, Any] = {"reltol": 1e-10, "abstol": 1e-13, "tstops": [10.0], "dense": False} | LIMITS
    run = ode.solve(parts, ode.food_web, u0, (0.0, end), callback, **settings)
    return {
        "species": [event.index + 1 for event in run.events],
        "times": [event.t for event in run.events],
        "u(10)": run.u[run.t == 10.0][-1],
        "end": run.u[-1],
    }


def bouncing_run(fn: Callable, parts: Mapping[str, Callable], height: float, e: float, tol: float) -> dict:
    """A ball dropped from a height, for ten seconds."""
    contact = False

    def ball(t: float, y: np.ndarray) -> np.ndarray:
        return np.zeros(2) if contact else np.array([y[1], -9.81])

    def floor(integrator: ode.Integrator) -> None:
        nonlocal contact
        h, v, contact, integrator.dtmax = fn(*(float(x) for x in integrator.u), e, 9.81, tol)
        integrator.u[:] = h, v

    callback = ode.ContinuousCallback(lambda t, y: y[0], None, floor)
    run = ode.solve(parts, ball, [height, 0.0], (0.0, 10.0), callback, dense=False, **LIMITS)
    last = run.events[-1].t if run.events else 0.0
    return {"bounces": len(run.events), "last bounce": last, "end": run.u[-1]}
