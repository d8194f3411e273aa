"""Draws the opening picture of chapter 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from autograder import reference
from underhood import ode
from underhood.plots.ode import two_webs


def runs() -> tuple[ode.Solution, ode.Solution]:
    """The public run, and the one in which the dead stay dead, with the reference's parts."""
    parts = reference.load("05_ode_callbacks")
    alive = np.ones(4)

    def zero(integrator: ode.Integrator, index: int) -> None:
        integrator.u[index] = 0.0

    def die(integrator: ode.Integrator, index: int) -> None:
        nonlocal alive
        integrator.u, alive, integrator.f = parts["extinct"](ode.food_web, integrator.u, alive, index)

    def run(affect: Any) -> ode.Solution:
        callback = ode.VectorContinuousCallback(lambda t, u: u - ode.FOOD_WEB_THRESHOLD, affect, 4)
        return ode.solve(parts, ode.food_web, ode.FOOD_WEB_START, (0.0, 10.0), callback, reltol=1e-10, abstol=1e-15)

    return run(zero), run(die)


def draw(folder: Path) -> None:
    """Write `two_webs.png`: the run that was asked about beside the right one."""
    figure = two_webs(*runs())
    figure.savefig(folder / "two_webs.png", dpi=80, metadata={"Software": None})
