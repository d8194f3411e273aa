"""ODE solvers with events at equal error: the fast reference solver against scipy's RK45 and DOP853 with restarts.

Four problems. The error of a run is the larger of the greatest error of an event time and the relative error of the final
state; each method runs at the loosest tolerance of a fixed ladder that keeps it at or below 1e-8, and is timed there. One
thread, one process, the best of several runs, methods in turn so that a busy machine slows all of them alike.

scipy has no affect: a run is stopped by a terminal event, the state changed, and the integration started again. Its events
have a direction, or it would stop at once where it starts; it is asked for the form of the events that is faster for it.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.optimize import brentq

from underhood import ode

BOUND = 1e-8
LADDER = tuple(m * 10.0**-e for e in range(4, 14) for m in (1.0, 0.3))
REPEATS = 7

Run = tuple[list[float], np.ndarray, int]  # event times, final state, calls of f


@dataclass(frozen=True)
class Problem:
    """A benchmark problem: exact answer, and a run at a tolerance with the fast solver and with a method of scipy."""

    name: str
    times: np.ndarray
    end: np.ndarray
    fast: Callable[[float], Run]
    scipy: Callable[[str, float], Run]


def _fast() -> ModuleType:
    path = Path(__file__).resolve().parent.parent / "solutions" / "05_ode_callbacks" / "fast.py"
    spec = importlib.util.spec_from_file_location("ode_fast", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no solver at {path}")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


FAST = _fast()


def _with_fast(f: Callable, u0: np.ndarray, end: float, callback: Any, rtol: float, abstol: float) -> Run:
    settings = {"inplace": True, "reltol": rtol, "abstol": abstol, "save_everystep": False}
    solution = FAST.solve(f, u0, (0.0, end), callback, **settings)
    return [event.t for event in solution.events], solution.u[-1], solution.statistics.nf


def _restarts(
    f: Callable, u0: np.ndarray, end: float, event: Callable, affect: Callable, method: str, rtol: float, atol: float
) -> Run:
    """scipy, from event to event."""
    t, u, times, calls = 0.0, u0.copy(), [], 0
    event.terminal = True
    while True:
        part = solve_ivp(f, (t, end), u, method=method, rtol=rtol, atol=atol, events=event)
        calls += part.nfev
        t, u = part.t[-1], part.y[:, -1].copy()
        if part.status != 1:
            return times, u, calls
        times.append(t)
        affect(u)


def food_web() -> Problem:
    """Four species, extinct at 0.05: set to zero, dynamics as before (the public run), to t = 10; exact by expm."""
    matrix, u0, limit, end = ode.FOOD_WEB_MATRIX, ode.FOOD_WEB_START, ode.FOOD_WEB_THRESHOLD, 10.0
    t, u, times, lives = 0.0, u0.copy(), [], [3, 2]
    for bracket, species in zip(((1.0, 1.5), (6.0, 6.5)), lives, strict=True):
        g = lambda s, t=t, u=u, i=species: (expm(matrix * (s - t)) @ u)[i] - limit  # noqa: E731
        root = brentq(g, *bracket, xtol=1e-15, rtol=1e-15)
        u = expm(matrix * (root - t)) @ u
        u[species], t = 0.0, root
        times.append(root)

    def rate(t: float, u: np.ndarray, out: np.ndarray) -> None:
        np.dot(matrix, u, out=out)

    def zero(integrator: ode.Integrator, index: int) -> None:
        integrator.u[index] = 0.0

    callback = ode.VectorContinuousCallback(lambda t, u: u - limit, None, 4, affect_neg=zero, batched=True)

    def with_scipy(method: str, rtol: float) -> Run:
        above = u0 > limit  # a species that is already below cannot fall through the line again

        def event(t: float, u: np.ndarray) -> float:
            return u[above].min() - limit if above.any() else 1.0

        def affect(u: np.ndarray) -> None:
            above[:] = u > limit
            lowest = int(np.abs(u - limit).argmin())
            u[lowest], above[lowest] = 0.0, False

        event.direction = -1
        return _restarts(lambda t, u: matrix @ u, u0, end, event, affect, method, rtol, 1e-3 * rtol)

    exact = expm(matrix * (end - t)) @ u
    fast = lambda rtol: _with_fast(rate, u0, end, callback, rtol, 1e-3 * rtol)  # noqa: E731
    return Problem("food web", np.array(times), exact, fast, with_scipy)


def ball() -> Problem:
    """A ball from 1 m, 9.81 m/s², e = 0.9, until midway between bounces 20 and 21; exact by the parabola."""
    gravity, e, count = 9.81, 0.9, 20
    first, impact = math.sqrt(2 / gravity), math.sqrt(2 * gravity)
    times = first + np.cumsum([0.0, *(2 * impact * e**k / gravity for k in range(1, count))])
    v = impact * e**count
    end, u0 = times[-1] + v / gravity, np.array([1.0, 0.0])

    def rate(t: float, u: np.ndarray, out: np.ndarray) -> None:
        out[0] = u[1]
        out[1] = -gravity

    def rebound(integrator: ode.Integrator) -> None:
        integrator.u[1] *= -e

    callback = ode.ContinuousCallback(lambda t, u: u[:, 0], None, rebound, batched=True)

    def with_scipy(method: str, rtol: float) -> Run:
        def event(t: float, u: np.ndarray) -> float:
            return u[0]

        def affect(u: np.ndarray) -> None:
            u[1] *= -e

        event.direction = -1
        return _restarts(lambda t, u: (u[1], -gravity), u0, end, event, affect, method, rtol, rtol)

    fast = lambda rtol: _with_fast(rate, u0, end, callback, rtol, rtol)  # noqa: E731
    return Problem("ball with 20 bounces", times, np.array([v * v / (2 * gravity), 0.0]), fast, with_scipy)


def hundred_species() -> Problem:
    """Lotka-Volterra with 100 species to t = 60, extinct at 1e-3; the truth is DOP853 at 2.3e-14."""
    rng = np.random.default_rng(0)
    a = rng.uniform(0, 1, (100, 100)) * (rng.random((100, 100)) < 0.15) * 0.9
    np.fill_diagonal(a, 1.0)
    growth, u0, limit, end = rng.uniform(0.2, 1.0, 100), rng.uniform(0.3, 1.0, 100), 1e-3, 60.0

    def rate(t: float, u: np.ndarray, out: np.ndarray) -> None:
        np.dot(a, u, out=out)
        np.subtract(growth, out, out=out)
        out *= u

    def zero(integrator: ode.Integrator, index: int) -> None:
        integrator.u[index] = 0.0

    callback = ode.VectorContinuousCallback(lambda t, u: u - limit, None, 100, affect_neg=zero, batched=True)

    def with_scipy(method: str, rtol: float) -> Run:
        alive = np.ones(100, dtype=bool)

        def event(t: float, u: np.ndarray) -> float:
            return u[alive].min() - limit

        def affect(u: np.ndarray) -> None:
            lowest = int(np.where(alive, u, np.inf).argmin())
            u[lowest], alive[lowest] = 0.0, False

        event.direction = -1
        return _restarts(lambda t, u: u * (growth - a @ u), u0, end, event, affect, method, rtol, 1e-3 * rtol)

    times, exact, _ = with_scipy("DOP853", 2.3e-14)
    fast = lambda rtol: _with_fast(rate, u0, end, callback, rtol, 1e-3 * rtol)  # noqa: E731
    return Problem("100 species", np.array(times), exact, fast, with_scipy)


def lorenz() -> Problem:
    """Lorenz (10, 28, 8/3) from (1, 1, 1) to t = 15, z rising through 27; the truth is DOP853 at 2.3e-14."""
    sigma, rho, beta, u0, end = 10.0, 28.0, 8 / 3, np.ones(3), 15.0

    def rate(t: float, u: np.ndarray, out: np.ndarray) -> None:
        x, y, z = u.tolist()
        out[0] = sigma * (y - x)
        out[1] = x * (rho - z) - y
        out[2] = x * y - beta * z

    def note(integrator: ode.Integrator) -> None:
        integrator.u_modified = False

    callback = ode.ContinuousCallback(
        lambda t, u: u[:, 2] - 27.0, note, None, batched=True, save_positions=(False, False)
    )

    def with_scipy(method: str, rtol: float) -> Run:
        def f(t: float, u: np.ndarray) -> tuple[float, float, float]:
            x, y, z = u.tolist()
            return sigma * (y - x), x * (rho - z) - y, x * y - beta * z

        def event(t: float, u: np.ndarray) -> float:
            return u[2] - 27.0

        event.direction = 1  # nothing is changed at a crossing: no restart is needed
        part = solve_ivp(f, (0.0, end), u0, method=method, rtol=rtol, atol=rtol, events=event)
        return part.t_events[0].tolist(), part.y[:, -1], part.nfev

    times, exact, _ = with_scipy("DOP853", 2.3e-14)
    fast = lambda rtol: _with_fast(rate, u0, end, callback, rtol, rtol)  # noqa: E731
    return Problem("Lorenz section", np.array(times), exact, fast, with_scipy)


def error(problem: Problem, run: Run) -> float:
    """The larger of the greatest error of an event time and the relative error of the final state; inf for a wrong count."""
    times, end, _ = run
    if len(times) != len(problem.times):
        return math.inf
    of_state = np.abs(end - problem.end).max() / np.abs(problem.end).max()
    return float(max(np.abs(np.array(times) - problem.times).max(), of_state))


def tolerance(problem: Problem, run: Callable[[float], Run]) -> float | None:
    """The loosest tolerance of the ladder that keeps the error, and does so at the next tighter one too."""
    good = [error(problem, run(rtol)) <= BOUND for rtol in LADDER]
    return next((rtol for rtol, *ok in zip(LADDER, good, good[1:] + [True], strict=True) if all(ok)), None)


def seconds(runs: dict[str, Callable[[], Run]]) -> dict[str, float]:
    """The best wall time of each, run in turn."""
    best = dict.fromkeys(runs, math.inf)
    for _ in range(REPEATS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


@cache
def problems() -> tuple[Problem, ...]:
    """The four problems with their exact answers."""
    return food_web(), ball(), hundred_species(), lorenz()


def rows() -> list[dict[str, Any]]:
    """Wall time and calls of f of the fast solver beside each method of scipy.

    Returns
    -------
    list of dict
        `name`, `value` (the fast solver's), `unit`, `reference` (scipy's) and `ratio` (reference / value; above 1 the fast
        solver is better). A method that reaches the bound at no tolerance has the reference and the ratio None.
    """
    table = []
    for problem in problems():
        methods: dict[str, Callable[[float], Run]] = {
            "fast": problem.fast,
            **{m: lambda rtol, p=problem, m=m: p.scipy(m, rtol) for m in ("RK45", "DOP853")},
        }
        chosen = {name: tolerance(problem, run) for name, run in methods.items()}
        if chosen["fast"] is None:
            raise RuntimeError(f"the fast solver does not reach {BOUND} on {problem.name}")
        runs = {name: lambda r=methods[name], rtol=rtol: r(rtol) for name, rtol in chosen.items() if rtol is not None}
        walls = seconds(runs)
        calls = {name: run()[2] for name, run in runs.items()}
        for name in ("RK45", "DOP853"):
            for what, unit, values in (("wall", "s", walls), ("calls of f", "calls", calls)):
                reference = values.get(name)
                table.append(
                    {
                        "name": f"ode: {problem.name}, {what} against scipy {name} at error {BOUND:g}",
                        "value": values["fast"],
                        "unit": unit,
                        "reference": reference,
                        "ratio": None if reference is None else reference / values["fast"],
                    }
                )
    return table


if __name__ == "__main__":
    for row in rows():
        ratio = "not reached" if row["ratio"] is None else f"{row['ratio']:.2f}"
        print(f"{row['name']:70} {row['value']:>12.6g} {row['unit']:6} {row['reference']!s:>24} {ratio}")
