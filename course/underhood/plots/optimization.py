"""Plots of chapter 3: steps on a curve, trajectories on surfaces, schedules, training curves, thresholds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d.art3d import Line3D
from torch import Tensor

from . import COLORS, LINES, _display, markers, show, style

Surface = Callable[[Tensor, Tensor], Tensor]

# name → (function, where to start, half the width of the part that is drawn)
SURFACES: dict[str, tuple[Surface, tuple[float, float], float]] = {
    "valley": (lambda x, y: x**2 / 20 + y**2, (-4.5, 2.4), 5.0),
    "saddle": (lambda x, y: (x**2 - y**2) / 4 + y**4 / 40, (-2.6, 0.01), 3.0),
    "banana": (lambda x, y: torch.log1p((1 - x) ** 2 + 5 * (y - x**2) ** 2), (-1.3, 1.0), 2.0),
    "many minima": (lambda x, y: (x**2 + y**2) / 10 - torch.cos(2 * x) * torch.cos(2 * y), (2.6, -1.9), 3.5),
}


def trace(
    step: Callable, f: Callable[..., Tensor], start: Sequence[float], steps: int, schedule: Any = None, **options: Any
) -> np.ndarray:
    """Let a step function walk on f.

    Parameters
    ----------
    step
        `step(params, state, **options)`, in place: `sgd_step` or `adam_step`.
    f
        Of as many numbers as `start` has.
    schedule
        `schedule(i)` gives the learning rate of step i; otherwise `options` hold it.

    Returns
    -------
    float64 array (steps + 1, len(start))
        The places, the start included.
    """
    point, state = torch.tensor(start, dtype=torch.float64, requires_grad=True), dict[str, Any]()
    places = [point.detach().tolist()]
    for i in range(steps):
        point.grad = None
        f(*point).backward()
        step([point], state, **options if schedule is None else options | {"lr": schedule(i)})
        places.append(point.detach().tolist())
    return np.array(places)


def on_curve(f: Callable[[Tensor], Tensor], paths: Mapping[str, Sequence[float]], width: float) -> Figure:
    """Steps on a curve, one panel a path, the curve drawn from -width to width."""
    x = torch.linspace(-width, width, 401, dtype=torch.float64)
    top = float(f(x).max())
    with style():
        figure, axes = plt.subplots(1, len(paths), figsize=(3.1 * len(paths), 2.9), sharey=True, squeeze=False)
        for ax, (name, path) in zip(axes[0], paths.items(), strict=True):
            places = torch.as_tensor(path, dtype=torch.float64)
            ax.plot(x, f(x), color="0.65", linestyle="-")
            ax.plot(places, f(places), color=COLORS[1], linestyle=":", marker="o", markersize=4, linewidth=1)
            ax.plot(places[:1], f(places[:1]), color=COLORS[0], marker="s", markersize=7, linestyle="none")
            ax.set(title=name, xlabel="x", xlim=(-width, width), ylim=(float(f(x).min()) - 0.05 * top, 1.05 * top))
        axes[0][0].set_ylabel("f(x)")
    return figure


def show_on_curve(f: Callable[[Tensor], Tensor], paths: Mapping[str, Sequence[float]], width: float) -> None:
    """Show steps on a curve (see `on_curve`)."""
    ends = "; ".join(
        f"{name}: from {path[0]:g} to {path[-1]:.3g} in {len(path) - 1} steps" for name, path in paths.items()
    )
    alt = f"A curve with the places that gradient descent visits, one panel a run. {ends}."
    show(on_curve(f, paths, width), f"{ends}.", alt)


def _heights(f: Surface, width: float, points: int) -> tuple[Tensor, Tensor, Tensor]:
    side = torch.linspace(-width, width, points, dtype=torch.float64)
    x, y = torch.meshgrid(side, side, indexing="xy")
    return x, y, f(x, y)


def _draw_paths(
    ax: Axes, f: Surface, paths: Mapping[str, np.ndarray], lift: float | None, upto: int | None = None
) -> None:
    """Paths on a contour plot, or, with `lift`, above a surface."""
    for (name, path), color, line, marker in zip(
        paths.items(), COLORS[2:] + COLORS[:2], LINES, markers(), strict=False
    ):
        flat = [path[:, 0], path[:, 1]]
        if lift is not None:
            flat.append(f(torch.from_numpy(flat[0]), torch.from_numpy(flat[1])).numpy() + lift)
        every = max(1, len(path) // 12)
        ax.plot(*flat, color=color, linestyle=line, marker=marker, markersize=4, markevery=every, label=name, zorder=5)


def landscape(f: Surface, paths: Mapping[str, np.ndarray], width: float) -> Figure:
    """Trajectories on a surface from the side, and on its contour lines from above.

    Parameters
    ----------
    f
        Of x and y.
    paths
        Name → array (steps + 1, 2).
    width
        Drawn from -width to width in both directions.
    """
    inside = {name: np.where(np.abs(path) <= width, path, np.nan) for name, path in paths.items()}
    with style():
        figure = plt.figure(figsize=(8.4, 3.7))
        side = figure.add_subplot(1, 2, 1, projection="3d", computed_zorder=False)
        x, y, z = _heights(f, width, 61)
        side.plot_surface(
            x.numpy(), y.numpy(), z.numpy(), cmap="Greys_r", alpha=0.75, linewidth=0, rstride=2, cstride=2
        )
        _draw_paths(side, f, inside, lift=0.02 * float(z.max() - z.min()))
        side.view_init(elev=42, azim=-62)
        side.set(xlabel="x", ylabel="y")
        side.tick_params(labelsize="x-small", pad=0)
        above = figure.add_subplot(1, 2, 2)
        x, y, z = _heights(f, width, 161)
        above.contour(x, y, z, levels=18, colors="0.7", linestyles="-", linewidths=0.8)
        _draw_paths(above, f, inside, lift=None)
        start = next(iter(paths.values()))[0]
        above.plot(*start, color=COLORS[0], marker="*", markersize=12, linestyle="none", label="start")
        above.set(xlabel="x", ylabel="y", aspect="equal", xlim=(-width, width), ylim=(-width, width))
        figure.legend(*above.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _ends(f: Surface, paths: Mapping[str, np.ndarray]) -> str:
    heights = {name: float(f(*torch.from_numpy(path[-1]))) for name, path in paths.items()}
    return ", ".join(f"{name} {height:.3f}" for name, height in heights.items())


def show_landscape(name: str, paths: Mapping[str, np.ndarray]) -> None:
    """Show trajectories on one of `SURFACES` (see `landscape`)."""
    f, start, width = SURFACES[name]
    steps = len(next(iter(paths.values()))) - 1
    before = float(f(*map(torch.tensor, start)))
    verdict = f"{name}: f is {before:.3f} at the start and after {steps} steps: {_ends(f, paths)}."
    alt = f"The surface '{name}' from the side and its contour lines from above, with the trajectories of {', '.join(paths)}."
    show(landscape(f, paths, width), verdict, alt)


# The film's buttons, which matplotlib draws with a font from the network, as characters.
BUTTONS = {
    "minus": "−",
    "fast-backward": "|◀◀",
    "step-backward": "|◀",
    "play fa-flip-horizontal": "◀",
    "pause": "❚❚",
    "play": "▶",
    "step-forward": "▶|",
    "fast-forward": "▶▶|",
    "plus": "+",
}


def film(f: Surface, paths: Mapping[str, np.ndarray], width: float, frames: int) -> str:
    """The landscape as an HTML page with `frames` pictures and buttons: needs neither a widget nor the network."""
    from matplotlib.animation import FuncAnimation

    figure = landscape(f, paths, width)
    figure.set_dpi(64)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # the layout stays as it is in the whole picture
    steps = len(next(iter(paths.values()))) - 1
    lines = [line for ax in figure.axes for line in ax.lines if line.get_label() in paths]
    whole = [line.get_data_3d() if hasattr(line, "get_data_3d") else line.get_data() for line in lines]

    def draw(frame: int) -> None:
        upto = 1 + round(steps * frame / (frames - 1))
        for line, data in zip(lines, whole, strict=True):
            cut = [np.asarray(values)[:upto] for values in data]
            (line.set_data_3d if isinstance(line, Line3D) else line.set_data)(*cut)

    page = FuncAnimation(figure, draw, frames=frames, interval=150).to_jshtml()
    plt.close(figure)
    page = re.sub(r"<link[^>]*>", "", page)
    return re.sub(r'<i class="fa fa-([a-z -]+)"></i>', lambda found: BUTTONS[found[1]], page)


def animate_landscape(name: str, paths: Mapping[str, np.ndarray], frames: int = 24) -> None:
    """Show trajectories on one of `SURFACES` as a film, embedded in the notebook as pictures with a play button."""
    from IPython.display import HTML

    f, _, width = SURFACES[name]
    page = film(f, paths, width, frames)
    steps = len(next(iter(paths.values()))) - 1
    print(f"{name}: {steps} steps in {frames} pictures. After the last: {_ends(f, paths)}.")
    display = _display()
    if display is not None:
        display(HTML(page))


def show_rates(rates: Mapping[str, Sequence[float]]) -> None:
    """Show learning rates by step."""
    with style():
        figure, ax = plt.subplots(figsize=(6.4, 2.9))
        for (name, values), marker in zip(rates.items(), markers(), strict=False):
            ax.plot(values, marker=marker, markersize=4, label=name)
        ax.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        ax.legend()
    tops = {name: max(values) for name, values in rates.items()}
    verdict = "; ".join(
        f"{name}: starts at {values[0]:g}, highest {tops[name]:g}, ends at {values[-1]:.3g}"
        for name, values in rates.items()
    )
    show(figure, f"{verdict}.", f"Learning rate by step. {verdict}.")


def _curves(figure: Figure, histories: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    axes = figure.subplots(2, len(histories), sharex=True, sharey="row", squeeze=False)
    for column, (name, history) in enumerate(histories.items()):
        for ax, key, label in ((axes[0, column], "loss", "loss"), (axes[1, column], "acc", "accuracy")):
            epochs = range(1, len(history[key]) + 1)
            ax.plot(epochs, history[key], color=COLORS[0], linestyle="-", label="training")
            ax.plot(epochs, history[f"val_{key}"], color=COLORS[2], linestyle="--", label="validation")
            ax.set_ylabel(label if column == 0 else "")
        axes[0, column].set_title(name)
        axes[1, column].set(xlabel="epoch", ylim=(-0.03, 1.03))
    axes[0, 0].legend()


def show_history(histories: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Show loss and accuracy by epoch, one column a run: name → what `fit` returns."""
    with style():
        figure = plt.figure(figsize=(1.5 + 3.2 * len(histories), 4.2))
        _curves(figure, histories)
    verdict = "; ".join(
        f"{name}: training {history['acc'][-1]:.1%}, validation {history['val_acc'][-1]:.1%} right at the end"
        for name, history in histories.items()
    )
    show(figure, f"{verdict}.", f"Loss and accuracy by epoch, for training and validation rows. {verdict}.")


def confusion(p: Tensor, y: Tensor, threshold: float) -> np.ndarray:
    """Counts, int64 array (2, 2): rows are the labels 0 and 1, columns the predictions 0 and 1 (p > threshold)."""
    predicted = (p > threshold).long()
    return torch.bincount(2 * y.long() + predicted, minlength=4).reshape(2, 2).numpy()


def show_thresholds(p: Tensor, y: Tensor, thresholds: Sequence[float]) -> None:
    """Show probabilities by label with the thresholds, and the confusion at each of them.

    Parameters
    ----------
    p, y : Tensor (n,)
        Probabilities, and labels 0 or 1.
    """
    with style():
        figure, axes = plt.subplots(
            1, 1 + len(thresholds), figsize=(4.2 + 2.1 * len(thresholds), 2.9), width_ratios=[2, *[1] * len(thresholds)]
        )
        for label, marker in ((0, "o"), (1, "s")):
            of = torch.sort(p[y == label]).values
            axes[0].plot(
                of,
                np.linspace(0.1, 0.9, len(of)) + label,
                marker=marker,
                color=COLORS[1 + label],
                linestyle="none",
                markersize=4,
            )
        for threshold, line in zip(thresholds, LINES[1:] * 2, strict=False):
            axes[0].axvline(threshold, color=COLORS[0], linestyle=line, linewidth=1)
        axes[0].set(
            xlabel="probability",
            yticks=[0.5, 1.5],
            yticklabels=["no", "yes"],
            ylabel="label",
            xlim=(-0.03, 1.03),
            title="every row",
        )
        axes[1].set_ylabel("label")
        for ax, threshold in zip(axes[1:], thresholds, strict=True):
            counts = confusion(p, y, threshold)
            ax.imshow(counts, cmap="Greys", vmax=1.6 * counts.max())
            for (i, j), count in np.ndenumerate(counts):
                ax.text(
                    j, i, str(count), ha="center", va="center", fontsize="large", weight="bold" if i == j else "normal"
                )
            ax.set(
                xticks=[0, 1], yticks=[0, 1], xticklabels=["no", "yes"], yticklabels=["no", "yes"], xlabel="predicted"
            )
            ax.set_title(f"threshold {threshold:g}")
            ax.spines[:].set_visible(False)
    said = "; ".join(
        f"at {t:g} {c[0, 1]} false yes and {c[1, 0]} false no" for t in thresholds for c in (confusion(p, y, t),)
    )
    alt = f"Probabilities of rows labeled no and yes with the thresholds marked, and a 2 by 2 table of counts for each: {said}."
    show(figure, f"Of {len(y)} rows, {said}.", alt)
