"""Plots of chapter 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from underhood.ode import Solution

from . import COLORS, LINES, MARKERS, show, style


def species(ax: Axes, run: Solution, labels: bool = True) -> None:
    """Draw the four biomasses of a run, and a marker where a species reached the threshold."""
    for i in range(run.u.shape[1]):
        (line,) = ax.plot(run.t, run.u[:, i], color=COLORS[i], linestyle=LINES[i], label=f"species {i + 1}")
        for event in run.events:
            if event.index == i:
                ax.plot(
                    event.t,
                    event.u_before[i],
                    MARKERS[i],
                    color=line.get_color(),
                    markersize=7,
                    markerfacecolor="white",
                )
    ax.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    ax.set_xlabel("time")
    if labels:
        ax.set_ylabel("biomass")
    ax.set_xlim(run.t[0], run.t[-1])
    ax.margins(y=0.08)


def two_webs(asked: Solution, right: Solution) -> Figure:
    """The run as it was asked about beside the run in which the dead stay dead."""
    with style():
        figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.0))
        for ax, run, title in zip(
            axes, (asked, right), ("u[i] := 0, and on it goes", "u[i] := 0, and frozen"), strict=True
        ):
            species(ax, run, labels=ax is axes[0])
            ax.set_title(title)
        axes[0].annotate(
            "species 4 is set to 0 here …",
            (asked.events[0].t, 0.05),
            (0.3, 95.0),
            fontsize="small",
            arrowprops={"arrowstyle": "-", "color": "0.4"},
        )
        axes[0].annotate("… and goes on down", (8.0, -110.0), (3.9, -150.0), fontsize="small")
        axes[1].legend(fontsize="small")
    return figure


def show_web(run: Solution) -> None:
    """Show one run of the food web: biomasses above, who died when in words."""
    with style():
        figure, ax = plt.subplots(figsize=(6.4, 3.0))
        species(ax, run)
        ax.set_yscale("symlog", linthresh=0.1, linscale=0.4)
        ax.set_yticks([0.0, 0.1, 1.0, 10.0], ["0", "0.1", "1", "10"])
        ax.minorticks_off()
        ax.set_ylabel("biomass (logarithmic above 0.1)")
        ax.legend(fontsize="small")
    deaths = ", ".join(f"species {event.index + 1} at t = {event.t:.6f}" for event in run.events) or "nobody"
    alt = f"Four biomasses fall from 10 toward zero; each stays at zero once it has reached the threshold: {deaths}."
    show(figure, f"Extinct: {deaths}.", alt)


def show_errors(errors: Mapping[str, Sequence[float]], sizes: Sequence[float], what: str) -> None:
    """Show errors against step size on logarithmic axes, with the order that the last two sizes give.

    Parameters
    ----------
    errors
        Label → one error a size.
    sizes
        Step sizes, falling.
    what
        What the errors are of, for the axis.
    """
    orders = {}
    with style():
        figure, ax = plt.subplots(figsize=(5.2, 3.2))
        for (label, values), marker in zip(errors.items(), MARKERS, strict=False):
            ax.loglog(sizes, values, marker=marker, label=label)
            orders[label] = np.log(values[-2] / values[-1]) / np.log(sizes[-2] / sizes[-1])
        ax.set_xticks(sizes, [f"{size:g}" for size in sizes])
        ax.minorticks_off()
        ax.set_xlabel("step size h")
        ax.set_ylabel(what)
        ax.legend(fontsize="small")
    words = "; ".join(f"{label}: the error falls like h^{order:.1f}" for label, order in orders.items())
    alt = f"{what} against step size, both axes logarithmic. {words}."
    show(figure, words[0].upper() + words[1:] + ".", alt)


def show_balls(runs: Mapping[str, Solution], until: float = 3.0) -> None:
    """Show the height of bouncing balls over time, one panel a run, between the floor and the start.

    Parameters
    ----------
    runs
        Title → run with the states (height, speed), kept dense.
    until
        The time at which the picture ends.
    """
    with style():
        figure, axes = plt.subplots(1, len(runs), figsize=(4.1 * len(runs), 2.9), squeeze=False, sharey=True)
        for ax, (title, run) in zip(axes[0], runs.items(), strict=True):
            times = np.linspace(run.t[0], until, 1500)
            ax.plot(times, run(times)[:, 0], color=COLORS[0], linewidth=1.2)
            ax.axhline(0.0, color="0.6", linewidth=0.8)
            ax.set_ylim(-1.0, 1.1)
            ax.set_title(title)
            ax.set_xlabel("time in s")
        axes[0, 0].set_ylabel("height in m")
    words = "; ".join(
        f"{title}: {len(run.events)} bounces, h = {run.u[-1, 0]:.3g} m at t = {run.t[-1]:g} s"
        for title, run in runs.items()
    )
    alt = "Height over time of a ball whose bounces get smaller. Where the floor is lost, the curve drops out of the picture."
    show(figure, words + ".", alt)
