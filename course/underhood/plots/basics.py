"""Plots of chapter 1, and the picture that they pool."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import COLORS, show, style


def moonrise(size: int = 48) -> torch.Tensor:
    """A small picture of a moon over hills, with single bright and dark pixels strewn over it.

    Returns
    -------
    float32 Tensor (1, 1, size, size)
        Brightness from 0 to 1, computed from coordinates alone: no file, no random numbers.
    """
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    picture = 0.3 + 0.25 * y
    picture[(x - 0.66) ** 2 + (y - 0.32) ** 2 < 0.045] = 0.85
    for height, shade in ((0.62, 0.22), (0.78, 0.12)):
        picture[y > height + 0.09 * torch.sin(7 * x + 20 * height)] = shade
    cells = torch.arange(size * size).reshape(size, size)
    picture[cells * 37 % 151 == 5] = 1.0
    picture[cells * 53 % 163 == 7] = 0.0
    return picture[None, None]


def family(picture: torch.Tensor, pooled: Mapping[str, torch.Tensor]) -> Figure:
    """The picture and what pooling makes of it, side by side.

    Parameters
    ----------
    picture : Tensor (1, 1, H, W)
    pooled
        Title → Tensor (1, 1, Ho, Wo).
    """
    panels = {f"the picture, {picture.shape[-2]} × {picture.shape[-1]}": picture, **pooled}
    with style():
        figure, axes = plt.subplots(1, len(panels), figsize=(2 * len(panels), 2.3))
        for ax, (title, image) in zip(axes, panels.items(), strict=True):
            ax.imshow(image[0, 0].detach().cpu(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            ax.set_title(title, fontsize="small", loc="center")
            ax.set_axis_off()
    return figure


def show_family(picture: torch.Tensor, pooled: Mapping[str, torch.Tensor]) -> None:
    """Show the picture beside its pooled versions, with their mean brightness in words (see `family`)."""
    means = {title: image.mean().item() for title, image in pooled.items()}
    brightest, darkest = max(means, key=lambda key: means[key]), min(means, key=lambda key: means[key])
    verdict = f"Brightest: {brightest}, {means[brightest]:.2f} on average. Darkest: {darkest}, {means[darkest]:.2f}."
    brightness = ", ".join(f"{title}: {mean:.2f}" for title, mean in means.items())
    alt = f"A moon over hills with bright and dark specks, then the same pooled. Mean brightness: {brightness}."
    show(family(picture, pooled), verdict, alt)


def show_weights_on_axes(ranked: torch.Tensor, weights: torch.Tensor) -> None:
    """Show along which axis weights lie when they meet ranked values: as meant, and as broadcasting lines them up.

    Parameters
    ----------
    ranked : Tensor (M, M)
        Largest values on top: rank runs down the rows.
    weights : Tensor (M,)
    """
    meant, happened = weights[:, None].expand_as(ranked), weights.expand_as(ranked)
    sums = [(w * ranked).sum(0) for w in (meant, happened)]
    with style():
        figure, axes = plt.subplots(1, 3, figsize=(9, 3.2))
        _grid(axes[0], ranked, "{:g}", None, "after topk(dim=1):\nthe largest of each column on top")
        _grid(axes[1], meant, "× {:g}", sums[0], "meant: weights[0] for the top row,\nweights.view(-1, 1)")
        _grid(axes[2], happened, "× {:g}", sums[1], "happened: weights[0] for the\nleft column, weights as they are")
    count = int((~torch.isclose(sums[0], sums[1])).sum())
    numbers = [" ".join(f"{v:.1f}" for v in total.tolist()) for total in sums]
    verdict = f"{count} of {len(weights)} sums are wrong: meant {numbers[0]}, got {numbers[1]}. No error was raised."
    alt = (
        "Three tables. The ranked values, largest on top. The weights as meant, one for each row: their sums are "
        f"{numbers[0]}. The weights as they met the values, one for each column: their sums are {numbers[1]}."
    )
    show(figure, verdict, alt)


def _grid(ax: Axes, values: torch.Tensor, text: str, sums: torch.Tensor | None, title: str) -> None:
    """A table of numbers, shaded by size, with sums below."""
    shades = values / values.max()
    ax.imshow(shades, cmap="gray_r", vmin=0, vmax=1.6, extent=(0, values.shape[1], values.shape[0], 0))
    for (i, j), value in np.ndenumerate(values.numpy()):
        color = "white" if shades[i, j] > 0.75 else "black"
        ax.text(
            j + 0.5,
            i + 0.5,
            text.format(round(float(value), 4)),
            ha="center",
            va="center",
            color=color,
            fontsize="small",
        )
    for j, total in enumerate([] if sums is None else sums.tolist()):
        ax.text(j + 0.5, values.shape[0] + 0.45, f"{total:.1f}", ha="center", va="center", weight="bold")
    if sums is not None:
        ax.text(-0.1, values.shape[0] + 0.45, "sum", ha="right", va="center")
    ax.set(title=title, xlim=(0, values.shape[1]), ylim=(values.shape[0] + 0.8, 0), xticks=(), yticks=())
    ax.spines[:].set_visible(False)


def show_thresholds(logits: torch.Tensor, labels: torch.Tensor, threshold: float = 0.5) -> None:
    """Show scores on the sigmoid, with the threshold where it belongs (probabilities) and where it does not (logits).

    Parameters
    ----------
    logits : Tensor (N,)
    labels : Tensor (N,)
        0 or 1.
    """
    probabilities, z = torch.sigmoid(logits), torch.linspace(-1, 1.5, 200)
    right = [int(((scores > threshold) == labels.bool()).sum()) for scores in (probabilities, logits)]
    with style():
        figure, ax = plt.subplots(figsize=(6.5, 3.4))
        ax.plot(z, torch.sigmoid(z), label="sigmoid")
        ax.axhline(threshold, linestyle="--", color=COLORS[1], label=f"probability = {threshold:g}")
        ax.axvline(
            threshold, linestyle=":", color=COLORS[2], label=f"logit = {threshold:g}: not a threshold for probabilities"
        )
        for label, marker in ((1, "o"), (0, "X")):
            mine = labels == label
            ax.plot(logits[mine], probabilities[mine], marker, color="black", markersize=8, label=f"label {label}")
        ax.set(xlabel="logit, the raw score", ylabel="probability", ylim=(0, 1))
        ax.legend(loc="upper left", fontsize="small")
    total = len(labels)
    verdict = (
        f"Above {threshold:g} as probabilities: {right[0]} of {total} right. "
        f"Logits above {threshold:g}: {right[1]} of {total} right."
    )
    alt = (
        f"The sigmoid curve with {total} scores on it. {right[0]} are on the side of their label of the horizontal line at "
        f"probability {threshold:g}, {right[1]} on that of the vertical line at logit {threshold:g}."
    )
    show(figure, verdict, alt)
