"""What other solvers do with the inputs of chapter 5: scipy, and torchdiffeq and diffrax where they are installed.

The inputs come from public reports; `REPORTS` names them with their right answers.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from . import ode

RightHandSide = Callable[[float, np.ndarray], Any]


def scipy_with_restarts(
    f: RightHandSide,
    u0: Sequence[float],
    tspan: tuple[float, float],
    threshold: float,
    affect: Callable[[float, np.ndarray, int], None],
    method: str = "RK45",
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> tuple[list[tuple[float, int]], np.ndarray]:
    """scipy has no callbacks: stop where a component falls through the threshold, let the affect act, start again.

    Parameters
    ----------
    f, u0, tspan
        Right-hand side, start, (start, end).
    threshold
        Every component that falls through it is an event.
    affect
        affect(t, u, index) changes u in place.
    method, rtol, atol
        Of `scipy.integrate.solve_ivp`.

    Returns
    -------
    tuple of events, a list of (t, index), and the state at the end, (n,)
    """
    t, u = float(tspan[0]), np.array(u0, dtype=np.float64)
    events: list[tuple[float, int]] = []

    def watch(index: int) -> Callable:
        def condition(t: float, u: np.ndarray) -> float:
            return u[index] - threshold

        condition.terminal, condition.direction = True, -1  # type: ignore[attr-defined]
        return condition

    conditions = [watch(i) for i in range(u.size)]
    while True:
        run = solve_ivp(f, (t, tspan[1]), u, method=method, rtol=rtol, atol=atol, events=conditions)
        t, u = float(run.t[-1]), run.y[:, -1].copy()
        if run.status != 1 or len(events) == 100:
            return events, u
        index = next(i for i, found in enumerate(run.t_events) if found.size)
        events.append((t, index))
        affect(t, u, index)


@dataclass(frozen=True)
class Report:
    """A public report: a problem with one or several conditions, and the right event times.

    Attributes
    ----------
    thread
        Where it was reported.
    f, y0, tspan
        The problem.
    conditions
        g(t, y), one or several; an affect that changes nothing.
    right
        Event times in order.
    direction
        0 both, -1 falling only.
    once
        Whether the run ends at the first event.
    points
        interp_points that see everything.
    """

    thread: str
    f: RightHandSide
    y0: tuple[float, ...]
    tspan: tuple[float, float]
    conditions: tuple[Callable[[float, Any], Any], ...]
    right: tuple[float, ...]
    direction: int = 0
    once: bool = False
    points: int = 10


_ACCELERATION = 1.602176634e-19 / 9.1093837015e-31 * 1e9  # of an electron in 1e9 V/m, m/s²

REPORTS = (
    Report(
        "scipy #9228: a cubic with three roots",
        lambda t, y: [3 * t * t + 12 * t - 4 + 0 * y[0]],
        (-120.0,),
        (-8.0, 4.0),
        (lambda t, y: y[0],),
        (-6.0, -2.0, 2.0),
    ),
    Report(
        "diffrax #507: two roots close together",
        lambda t, y: [1.0 + 0 * y[0]],
        (0.0,),
        (0.0, 10.0),
        (lambda t, y: (y[0] - 2.5) * (y[0] - 2.6),),
        (2.5, 2.6),
        points=100,
    ),
    Report(
        "scipy #9667: the start is a root",
        lambda t, y: [y[1], -0.5 + 0 * y[1]],
        (0.0, 10.0),
        (0.0, 100.0),
        (lambda t, y: y[0],),
        (40.0,),
        once=True,
    ),
    Report(
        "scipy #13018: one condition a component",
        lambda t, y: [-y[0], -y[1]],
        (1.0, 2.0),
        (0.0, 5.0),
        (lambda t, y: y[0] - 0.5, lambda t, y: y[1] - 0.5),
        (math.log(2), math.log(4)),
    ),
    Report(
        "scipy #15262: an event after 1e-13 seconds",
        lambda t, y: [y[1], _ACCELERATION + 0 * y[1]],
        (0.0, 0.0),
        (0.0, 1.0),
        (lambda t, y: y[0] - 1e-6,),
        (math.sqrt(2e-6 / _ACCELERATION),),
        once=True,
    ),
)


def by_parts(parts: Mapping[str, Callable], report: Report) -> list[float]:
    """The event times of a report by the learner's parts."""

    def condition(t: float, y: np.ndarray) -> np.ndarray:
        return np.array([g(t, y) for g in report.conditions])

    def affect(integrator: ode.Integrator, index: int) -> None:
        if report.once:
            integrator.terminate()

    size = len(report.conditions)
    callback = ode.VectorContinuousCallback(condition, affect, size, interp_points=report.points)
    f = lambda t, y: np.array(report.f(t, y))  # noqa: E731
    run = ode.solve(parts, f, report.y0, report.tspan, callback, reltol=1e-8, abstol=1e-10)
    return [event.t for event in run.events]


def by_scipy(report: Report) -> list[float]:
    """The event times of a report by scipy's RK45."""
    watched = []
    for g in report.conditions:
        event = lambda t, y, g=g: g(t, y)  # noqa: E731
        event.terminal, event.direction = report.once, report.direction  # type: ignore[attr-defined]
        watched.append(event)
    run = solve_ivp(report.f, report.tspan, report.y0, events=watched, rtol=1e-8, atol=1e-10)
    return sorted(float(t) for found in run.t_events for t in found)


def by_torchdiffeq(report: Report) -> list[float]:
    """The first event time of a report by torchdiffeq, which stops there."""
    import torch
    from torchdiffeq import odeint_event

    found = []
    for g in report.conditions:
        f = lambda t, y: torch.stack([torch.as_tensor(v, dtype=y.dtype) for v in report.f(t, y)])  # noqa: E731
        start = torch.tensor(report.y0, dtype=torch.float64)
        at = torch.tensor(report.tspan[0], dtype=torch.float64)
        time, _ = odeint_event(f, start, at, event_fn=g, rtol=1e-8, atol=1e-10, options={"max_num_steps": 10_000})
        found.append(float(time))
    return sorted(found)


def by_diffrax(report: Report) -> list[float]:
    """The first event time of a report by diffrax, which stops there; refined by a Newton method."""
    import diffrax
    import jax
    import jax.numpy as jnp
    import optimistix

    jax.config.update("jax_enable_x64", True)
    found = []
    for g in report.conditions:
        condition = lambda t, y, args, g=g, **_: g(t, y)  # noqa: E731
        run = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: jnp.stack([jnp.asarray(v, dtype=y.dtype) for v in report.f(t, y)])),
            diffrax.Tsit5(),
            *report.tspan,
            None,
            jnp.array(report.y0),
            stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-10),
            event=diffrax.Event(condition, optimistix.Newton(1e-10, 1e-10)),
        )
        if bool(run.event_mask):
            found.append(float(run.ts[-1]))
    return sorted(found)


def table(parts: Mapping[str, Callable]) -> str:
    """All reports by all solvers that are there, as text; a solver that fails is told by its error's name."""
    columns: dict[str, Callable[[Report], list[float]]] = {
        "your solver": lambda report: by_parts(parts, report),
        "scipy RK45": by_scipy,
    }
    if importlib.util.find_spec("torchdiffeq"):
        columns["torchdiffeq (first only)"] = by_torchdiffeq
    if importlib.util.find_spec("diffrax"):
        columns["diffrax (first only)"] = by_diffrax
    lines = []
    for report in REPORTS:
        lines += [report.thread, f"    {'right':<25}{_words(report.right)}"]
        for name, solver in columns.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found = _words(solver(report))
                except Exception as error:
                    found = type(error).__name__
            lines.append(f"    {name:<25}{found}")
    return "\n".join(lines)


def _words(times: Sequence[float]) -> str:
    return ", ".join(f"{t:.9g}" for t in times) or "none"
