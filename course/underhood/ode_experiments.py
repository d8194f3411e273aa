"""Experiments of chapter 5 with the learner's solver, each one call: demonstrations stay short."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.linalg import expm

from . import ode

Parts = Mapping[str, Callable]


def jump_errors(parts: Parts, sizes: Sequence[float]) -> list[float]:
    """y' = -y from 1 with y := 3 at t = 0.5, in steps of fixed size: the errors at t = 1.

    Parameters
    ----------
    sizes
        Step sizes that divide 0.5.
    """

    def reset(integrator: ode.Integrator) -> None:
        integrator.u[0] = 3.0

    callback = ode.DiscreteCallback(lambda t, y: t == 0.5, reset)
    errors = []
    for h in sizes:
        stops = [0.5 + k * h for k in range(round(-0.5 / h) + 1, round(0.5 / h))]
        settings: dict[str, Any] = {
            "dt": h,
            "dtmax": h,
            "tstops": stops,
            "abstol": 1.0,
        }  # a tolerance that never rejects
        run = ode.solve(parts, lambda t, y: -y, [1.0], (0.0, 1.0), callback, **settings)
        errors.append(abs(float(run.u[-1, 0]) - 3 * math.exp(-0.5)))
    return errors


def bouncing_ball(parts: Parts, e: float, bounce: Callable | None, tol: float = 1e-6) -> ode.Solution:
    """A ball dropped from one meter, for ten seconds; the state is (height, speed).

    Parameters
    ----------
    e
        The share of its speed that the ball keeps at a bounce.
    bounce
        The learner's function, or None to turn the speed around and do nothing else.
    tol
        A rebound slower than this does not fly.
    """
    contact = False

    def ball(t: float, y: np.ndarray) -> np.ndarray:
        return np.zeros(2) if contact else np.array([y[1], -9.81])

    def floor(integrator: ode.Integrator) -> None:
        nonlocal contact
        if bounce is None:
            integrator.u[1] *= -e
            return
        h, v, contact, integrator.dtmax = bounce(*map(float, integrator.u), e, 9.81, tol)
        integrator.u[:] = h, v

    return ode.solve(parts, ball, [1.0, 0.0], (0.0, 10.0), ode.ContinuousCallback(lambda t, y: y[0], None, floor))


def death_of_species_4(parts: Parts, u0: np.ndarray, gradient: Callable) -> tuple[float, np.ndarray]:
    """When species 4 of the food web reaches the threshold, and how that time moves with the starting values.

    Parameters
    ----------
    u0
        Starting values, (4,).
    gradient
        The learner's `event_time_grad`. The model is linear, so its sensitivity is the matrix exponential exp(M t).

    Returns
    -------
    tuple of float and float64 array (4,)
    """
    threshold = ode.FOOD_WEB_THRESHOLD
    callback = ode.ContinuousCallback(lambda t, u: u[3] - threshold, ode.terminate)
    run = ode.solve(parts, ode.food_web, u0, (0.0, 5.0), callback, reltol=1e-12, abstol=1e-14, dense=False)
    t, u = run.events[0].t, run.events[0].u_before
    sensitivity = expm(ode.FOOD_WEB_MATRIX * t)
    with torch.enable_grad():  # inside an autograd Function's forward, grad mode is off
        return t, gradient(lambda t, y: y[3] - threshold, ode.food_web, t, u, sensitivity)
