"""Plots of chapter 2: graphs, products of a vector and a Jacobian, errors of differences, gradients with holes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from . import markers, show, style

LEVELS = 12  # of a graph that is still readable


def graph(end: Tensor, names: Mapping[str, Tensor] | None = None) -> None:
    """Draw the graph behind a tensor: the last operation on top, arrows the way backward goes, leaves in gray.

    Parameters
    ----------
    end
        The tensor to start from.
    names
        What to call the leaves.

    Raises
    ------
    ValueError
        Where there is no graph, or more than `LEVELS` levels of it.
    """
    if end.grad_fn is None:
        raise ValueError("This tensor has no grad_fn: nothing was recorded.")
    # A node stands one level below the lowest node that points to it.
    level: dict[torch.autograd.graph.Node, int] = {}
    depth, row = 0, [end.grad_fn]
    while row:
        if depth == LEVELS:
            raise ValueError(f"This graph has more than {LEVELS} levels. Draw a smaller one.")
        level |= dict.fromkeys(row, depth)
        row = list(dict.fromkeys(after for node in row for after, _ in node.next_functions if after is not None))
        depth += 1
    rows = [[node for node in level if level[node] == d] for d in range(depth)]
    place = {node: (i - (len(row) - 1) / 2, -d) for d, row in enumerate(rows) for i, node in enumerate(row)}
    labels = {node: _label(node, names or {}) for node in level}
    with style():
        width = max(len(row) for row in rows)
        figure, axes = plt.subplots(figsize=(max(3.4, 2.0 * width + 1.2), 0.95 * depth + 0.3))
        constants = any(after is None for node in level for after, _ in node.next_functions)
        half = (width - 1) / 2
        axes.set(xlim=(-half - 0.7, half + (1.1 if constants else 0.7)), ylim=(0.6 - depth, 0.45))
        boxes = {}
        for node, (x, y) in place.items():
            leaf = hasattr(node, "variable")
            box = {"boxstyle": "round,pad=0.4" if not leaf else "square,pad=0.4", "fc": "0.86" if leaf else "white"}
            boxes[node] = axes.text(x, y, labels[node], ha="center", va="center", bbox=box | {"ec": "black"}, zorder=3)
        figure.canvas.draw()  # from here on the boxes have sizes, at which arrows can end
        _arrows(axes, place, {node: text.get_bbox_patch() for node, text in boxes.items()})
        axes.axis("off")
    leaves = sum(hasattr(node, "variable") for node in level)
    edges = "; ".join(
        f"{labels[node]} points to {' and '.join(labels[after] if after else 'nothing' for after, _ in node.next_functions)}"
        for node in level
        if node.next_functions
    )
    verdict = f"{len(level)} nodes, {leaves} of them leaves (gray). Arrows show the way backward goes."
    show(figure, verdict, f"Graph of {len(level)} nodes. {edges}.".replace("\n", " "))


def _label(node: torch.autograd.graph.Node, names: Mapping[str, Tensor]) -> str:
    if not hasattr(node, "variable"):
        return node.name()
    name = next((name for name, one in names.items() if one is node.variable), "leaf")
    return f"AccumulateGrad\n{name}, shape {tuple(node.variable.shape)}"


def _arrows(axes: Axes, place: Mapping, boxes: Mapping) -> None:
    """Draw the edges; parallel ones are bent apart, edges to constants are dotted."""
    for node, (x, y) in place.items():
        afters = [after for after, _ in node.next_functions]
        for i, after in enumerate(afters):
            if after is None:
                dots = {"arrowstyle": "-", "ls": ":", "patchA": boxes[node], "shrinkA": 2}
                axes.annotate("", (x + 0.62, y - 0.42), (x, y), arrowprops=dots)
                axes.text(x + 0.64, y - 0.46, "None", ha="left", va="center", fontsize="small")
                continue
            twins = [k for k, other in enumerate(afters) if other is after]
            bend = 0.0 if len(twins) == 1 else 0.35 * (1 if twins.index(i) else -1)
            arrow = {"arrowstyle": "-|>", "fc": "black", "lw": 1.2, "shrinkA": 2, "shrinkB": 2}
            arrow |= {"patchA": boxes[node], "patchB": boxes[after], "connectionstyle": f"arc3,rad={bend}"}
            axes.annotate("", place[after], (x, y), arrowprops=arrow)


def vector_jacobian(jacobian: Tensor, v: Tensor) -> None:
    """Draw v beside the Jacobian and their product vᵀJ below it, with the numbers in the cells.

    Parameters
    ----------
    jacobian
        Shape (m, n).
    v
        Shape (m,).
    """
    product = v @ jacobian
    m, n = jacobian.shape
    with style():
        figure, axes = plt.subplots(figsize=(1.0 * n + 2.4, 0.5 * m + 1.5))
        for i in range(m):
            _cell(axes, 0, -i, v[i].item(), "0.86")
            for j in range(n):
                _cell(axes, 1.6 + j, -i, jacobian[i, j].item(), "white")
        for j in range(n):
            _cell(axes, 1.6 + j, -m - 0.4, product[j].item(), "0.72")
        for x, y, text in ((0, 0.8, "v"), (1.6 + (n - 1) / 2, 0.8, "J: a row per output"), (0, -m - 0.4, "vᵀJ =")):
            axes.text(x, y, text, ha="center", va="center")
        axes.set(xlim=(-0.7, n + 1.3), ylim=(-m - 1.1, 1.2))
        axes.axis("off")
    words = " + ".join(f"{v[i].item():g} × row {i}" for i in range(m))
    verdict = f"Each row of J is weighed by its number in v, then the rows are added: {words}."
    alt = f"v = {_list(v)}, J = [{', '.join(map(_list, jacobian))}], and below them their product {_list(product)}."
    show(figure, verdict, alt)


def _list(numbers: Tensor) -> str:
    return f"[{', '.join(f'{number:g}' for number in numbers.tolist())}]"


def _cell(axes: Axes, x: float, y: float, number: float, fill: str) -> None:
    axes.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, fc=fill, ec="black", lw=0.8))
    axes.text(x, y, f"{number:.6g}", ha="center", va="center")


def difference_errors(steps: Sequence[float], slopes: Mapping[str, Sequence[Tensor]], exact: float) -> None:
    """Draw how far divided differences are from the exact slope, over the step, on logarithmic axes.

    Parameters
    ----------
    steps
        The values of h.
    slopes
        By method: the slope that it gave for each h.
    """
    best = {}
    with style():
        figure, axes = plt.subplots(figsize=(6.2, 3.6))
        for (name, values), marker in zip(slopes.items(), markers(), strict=False):
            errors = np.array([abs(float(value) - exact) for value in values])
            errors = np.maximum(errors, 1e-16)
            axes.loglog(steps, errors, marker=marker, ms=5, label=name)
            best[name] = (steps[int(errors.argmin())], errors.min())
        axes.set(
            xlabel="step h", ylabel="error of the slope", title="Too large a step cuts corners, too small a step drowns"
        )
        figure.legend(loc="outside lower center", ncols=len(slopes))
    found = "; ".join(f"{name}: {error:.0e} at h = {h:.0e}" for name, (h, error) in best.items())
    alt = f"Error over step size for {', '.join(slopes)}: each curve falls with h, then rises again. Smallest: {found}."
    show(figure, f"Smallest error. {found}.", alt)


def windows(by_length: Mapping[int, float], full: float) -> None:
    """Draw the truncated gradient over the length of the window, with the full gradient as a line.

    Parameters
    ----------
    by_length
        dL/dw by k.
    full
        dL/dw with the whole history.
    """
    lengths, values = list(by_length), np.array(list(by_length.values()))
    near = next((k for k in lengths if np.all(np.abs(values[lengths.index(k) :] - full) <= 0.1 * abs(full))), None)
    with style():
        figure, axes = plt.subplots(figsize=(6.2, 3.2))
        axes.axhline(full, ls="--", lw=1.2, label="whole history")
        axes.plot(lengths, values, "-o", ms=4, label="history cut every k steps")
        axes.set(xlabel="k", ylabel="dL/dw", title="The shorter the memory, the more of the gradient is missing")
        axes.legend()
    ends = f"k = {lengths[0]} gives {values[0]:.3f}, the whole history {full:.3f}."
    verdict = ends if near is None else f"{ends} From k = {near} on, the two stay within 10 %."
    show(figure, verdict, f"dL/dw over the window length k, beside the value with the whole history. {verdict}")


def root_and_slope(x: Tensor, y: Tensor, slope: Tensor) -> None:
    """Draw a function and its gradient side by side, with a cross on the axis where a number is nan or infinite.

    Parameters
    ----------
    x, y, slope
        The same shape (n,): points, values, gradients.
    """
    points, holes = x.detach().numpy(), {}
    with style():
        figure, both = plt.subplots(1, 2, figsize=(7.4, 2.9))
        for axes, numbers, title in zip(both, (y, slope), ("value", "gradient"), strict=True):
            data = numbers.detach().numpy()
            missing = ~np.isfinite(data)
            axes.plot(points[~missing], data[~missing], "o", ms=5, ls="none")
            axes.plot(points[missing], np.zeros(missing.sum()), "x", ms=9, mew=2, ls="none")
            axes.axhline(0, lw=0.6, ls="-", color="0.6", zorder=0)
            axes.set(xlabel="x", title=f"{title}: {missing.sum()} of {missing.size} are nan (crosses)")
            holes[title] = int(missing.sum())
    verdict = (
        f"nan or infinite: {holes['value']} of {points.size} values, {holes['gradient']} of {points.size} gradients."
    )
    shape = "The value is 0 up to x = 0 and a square root after it."
    show(figure, verdict, f"Value and gradient over x. {shape} {verdict}")
