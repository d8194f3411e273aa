"""ODE solvers with events at equal error: the fast reference solver against scipy and torchdiffeq with restarts.

Four problems. The error of a run is the larger of the greatest error of an event time and the relative error of the final
state; each method runs at the loosest tolerance of a fixed ladder that keeps it at or below 1e-8, and is timed there. One
thread, one process, the best of several runs, methods in turn so that a busy machine slows all of them alike.

scipy has no affect: a run is stopped by a terminal event, the state changed, and the integration started again. Its events
have a direction, or it would stop at once where it starts; it is asked for the form of the events that is faster for it.

torchdiffeq, where it is installed, is restarted in the same way. Its events have no direction and it never stops by itself: the
end is a second event, a bounce leaves the ball 1e-13 m above the floor, and a crossing that changes nothing is left behind by a
short run without events, or the next one would be found where it starts.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
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
SLOW = 1.0  # seconds: a run that takes longer is timed twice only
SCIPY = ("RK45", "DOP853")
TORCHDIFFEQ = ("dopri5", "dopri8")

Run = tuple[list[float], np.ndarray, int]  # event times, final state, calls of f


@dataclass(frozen=True)
class Problem:
    """A benchmark problem: exact answer, and a run at a tolerance with the fast solver and with a method of the others."""

    name: str
    times: np.ndarray
    end: np.ndarray
    fast: Callable[[float], Run]
    scipy: Callable[[str, float], Run]
    torchdiffeq: Callable[[str, float], Run]


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


def _until(
    f: Callable, t: float, u: Any, end: float, event: Callable, method: str, rtol: float, atol: float
) -> tuple[float, Any, int, bool]:
    """torchdiffeq, from (t, u) to the event or to the end: time, state, calls of f, and whether it was the event."""
    import torch
    from torchdiffeq import odeint_event

    calls = 0

    def rate(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return f(t, u)

    either = lambda t, u: torch.stack((event(t, u), end - t))  # noqa: E731
    with torch.no_grad():
        start = torch.tensor(t, dtype=torch.float64)
        at, states = odeint_event(rate, u, start, event_fn=either, method=method, rtol=rtol, atol=atol)
    return float(at), states[-1].clone(), calls, end - float(at) > 2 * atol  # times are found to atol


def _torch_restarts(
    f: Callable, u0: np.ndarray, end: float, event: Callable, affect: Callable, method: str, rtol: float, atol: float
) -> Run:
    """torchdiffeq, from event to event."""
    import torch

    t, u, times, calls = 0.0, torch.from_numpy(u0.copy()), [], 0
    while True:
        t, u, more, found = _until(f, t, u, end, event, method, rtol, atol)
        calls += more
        if not found:
            return times, u.numpy(), calls
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

    def with_torchdiffeq(method: str, rtol: float) -> Run:
        import torch

        linear, above = torch.from_numpy(matrix.copy()), torch.from_numpy(u0 > limit)

        def event(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            return torch.where(above, u, torch.inf).min() - limit

        def affect(u: torch.Tensor) -> None:
            lowest = int((u - limit).abs().argmin())
            torch.gt(u, limit, out=above)
            u[lowest], above[lowest] = 0.0, False

        return _torch_restarts(lambda t, u: linear @ u, u0, end, event, affect, method, rtol, 1e-3 * rtol)

    exact = expm(matrix * (end - t)) @ u
    fast = lambda rtol: _with_fast(rate, u0, end, callback, rtol, 1e-3 * rtol)  # noqa: E731
    return Problem("food web", np.array(times), exact, fast, with_scipy, with_torchdiffeq)


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

    def with_torchdiffeq(method: str, rtol: float) -> Run:
        import torch

        def f(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            return torch.stack((u[1], down))

        def affect(u: torch.Tensor) -> None:
            u[0] = 1e-13
            u[1] *= -e

        down = torch.tensor(-gravity, dtype=torch.float64)
        return _torch_restarts(f, u0, end, lambda t, u: u[0], affect, method, rtol, rtol)

    fast = lambda rtol: _with_fast(rate, u0, end, callback, rtol, rtol)  # noqa: E731
    highest = np.array([v * v / (2 * gravity), 0.0])
    return Problem("ball with 20 bounces", times, highest, fast, with_scipy, with_torchdiffeq)


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

    def with_torchdiffeq(method: str, rtol: float) -> Run:
        import torch

        rivals, grows = torch.from_numpy(a), torch.from_numpy(growth)
        alive = torch.ones(100, dtype=torch.bool)

        def event(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            return torch.where(alive, u, torch.inf).min() - limit

        def affect(u: torch.Tensor) -> None:
            lowest = int(torch.where(alive, u, torch.inf).argmin())
            u[lowest], alive[lowest] = 0.0, False

        return _torch_restarts(lambda t, u: u * (grows - rivals @ u), u0, end, event, affect, method, rtol, 1e-3 * rtol)

    times, exact, _ = with_scipy("DOP853", 2.3e-14)
    fast = lambda rtol: _with_fast(rate, u0, end, callback, rtol, 1e-3 * rtol)  # noqa: E731
    return Problem("100 species", np.array(times), exact, fast, with_scipy, with_torchdiffeq)


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

    def with_torchdiffeq(method: str, rtol: float) -> Run:
        import torch
        from torchdiffeq import odeint

        calls = 0

        def f(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            x, y, z = u.tolist()
            return torch.tensor((sigma * (y - x), x * (rho - z) - y, x * y - beta * z), dtype=torch.float64)

        t, u, times = 0.0, torch.from_numpy(u0.copy()), []
        while True:
            rising = float(u[2]) < 27.0
            t, u, _, found = _until(f, t, u, end, lambda t, u: u[2] - 27.0, method, rtol, rtol)
            if not found:
                return times, u.numpy(), calls
            if rising:
                times.append(t)
            clear = torch.tensor((t, t + 1e-3), dtype=torch.float64)
            with torch.no_grad():
                t, u = t + 1e-3, odeint(f, u, clear, method=method, rtol=rtol, atol=rtol)[-1]

    times, exact, _ = with_scipy("DOP853", 2.3e-14)
    fast = lambda rtol: _with_fast(rate, u0, end, callback, rtol, rtol)  # noqa: E731
    return Problem("Lorenz section", np.array(times), exact, fast, with_scipy, with_torchdiffeq)


def error(problem: Problem, run: Run) -> float:
    """The larger of the greatest error of an event time and the relative error of the final state; inf for a wrong count."""
    times, end, _ = run
    if len(times) != len(problem.times):
        return math.inf
    of_state = np.abs(end - problem.end).max() / np.abs(problem.end).max()
    return float(max(np.abs(np.array(times) - problem.times).max(), of_state))


def tolerance(problem: Problem, run: Callable[[float], Run]) -> float | None:
    """The loosest tolerance of the ladder that keeps the error, and does so at the next tighter one too."""
    kept = None
    for rtol in LADDER:
        good = error(problem, run(rtol)) <= BOUND
        if good and kept is not None:
            break
        kept = rtol if good else None
    return kept


def seconds(runs: dict[str, Callable[[], Run]]) -> dict[str, float]:
    """The best wall time of each, run in turn; slow ones twice only."""
    best = dict.fromkeys(runs, math.inf)
    for turn in range(REPEATS):
        for name, run in runs.items():
            if turn > 1 and best[name] > SLOW:
                continue
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


@functools.cache
def problems() -> tuple[Problem, ...]:
    """The four problems with their exact answers."""
    return food_web(), ball(), hundred_species(), lorenz()


def torchdiffeq_here() -> str:
    """Its version, or a sentence that it is missing."""
    if importlib.util.find_spec("torchdiffeq") and importlib.util.find_spec("torch"):
        return version("torchdiffeq")
    return "not installed, so not compared: pip install torchdiffeq"


def rows() -> list[dict[str, Any]]:
    """Wall time and calls of f of the fast solver beside each method of scipy, and of torchdiffeq where it is installed.

    Returns
    -------
    list of dict
        `name`, `value` (the fast solver's), `unit`, `reference` (the other's) and `ratio` (reference / value; above 1 the
        fast solver is better). A method that reaches the bound at no tolerance has the reference and the ratio None. The
        last row's value is the version of torchdiffeq, or that it is not installed.
    """
    here = torchdiffeq_here()
    others = {f"scipy {m}": ("scipy", m) for m in SCIPY}
    if here[0].isdigit():
        others |= {f"torchdiffeq {m}": ("torchdiffeq", m) for m in TORCHDIFFEQ}
    table: list[dict[str, Any]] = []
    for problem in problems():
        methods: dict[str, Callable[[float], Run]] = {"fast": problem.fast}
        for name, (package, method) in others.items():
            methods[name] = functools.partial(getattr(problem, package), method)
        chosen = {name: tolerance(problem, run) for name, run in methods.items()}
        if chosen["fast"] is None:
            raise RuntimeError(f"the fast solver does not reach {BOUND} on {problem.name}")
        runs = {name: functools.partial(methods[name], rtol) for name, rtol in chosen.items() if rtol is not None}
        walls = seconds(runs)
        calls = {name: run()[2] for name, run in runs.items()}
        for name in others:
            for what, unit, values in (("wall", "s", walls), ("calls of f", "calls", calls)):
                reference = values.get(name)
                table.append(
                    {
                        "name": f"ode: {problem.name}, {what} against {name} at error {BOUND:g}",
                        "value": values["fast"],
                        "unit": unit,
                        "reference": reference,
                        "ratio": None if reference is None else reference / values["fast"],
                    }
                )
    return [*table, {"name": "ode: torchdiffeq", "value": here, "unit": "", "reference": None, "ratio": None}]


if __name__ == "__main__":
    for row in rows():
        ratio = "" if row["unit"] == "" else "not reached" if row["ratio"] is None else f"{row['ratio']:.2f}"
        value = row["value"] if isinstance(row["value"], str) else f"{row['value']:.6g}"
        print(f"{row['name']:75} {value:>12} {row['unit']:6} {row['reference'] or ''!s:>24} {ratio}")
