"""Plots of chapter 4: matrices with their numbers, maps of misses, pairs of products, hit rates by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import COLORS, LINES, MARKERS, show, style

INT16 = (-(2**15), 2**15 - 1)


def show_matrices(original: np.ndarray, codes: np.ndarray, reconstructed: np.ndarray) -> None:
    """Show a matrix of real numbers, its codes, and the numbers that the codes stand for, each with its values.

    Parameters
    ----------
    original, reconstructed : float32 arrays (rows, columns)
    codes : uint8 or int8 array of the same shape
    """
    panels = (("original", original), ("quantized", codes), ("reconstructed", reconstructed))
    rows, columns = original.shape
    with style():
        figure, axes = plt.subplots(1, 3, figsize=(9.5, 0.75 + 0.42 * rows))
        for ax, (title, values) in zip(axes, panels, strict=True):
            _numbers(ax, values, title)
    error = np.abs(original - reconstructed)
    at = tuple(int(n) for n in np.unravel_index(error.argmax(), error.shape))
    became = f"{original[at]:.4g} became {reconstructed[at]:.4g}"
    verdict = f"Largest error {error.max():.4g}, at row {at[0]}, column {at[1]}: {became}."
    rows_in_words = "; ".join(" ".join(str(int(n)) for n in row) for row in codes)
    alt = f"Three tables of {rows} by {columns} numbers: original, codes, reconstructed. The codes are {rows_in_words}."
    show(figure, verdict, alt)


def _numbers(ax: Axes, values: np.ndarray, title: str) -> None:
    """A table of numbers, shaded from the smallest to the largest of all."""
    low, high = float(values.min()), float(values.max())
    shades = (values.astype(np.float64) - low) / max(high - low, 1e-12)
    ax.imshow(shades, cmap="gray_r", vmin=-0.1, vmax=1.5, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        text = f"{value:d}" if values.dtype.kind in "iu" else f"{value:.4g}"
        ax.text(
            j, i, text, ha="center", va="center", fontsize="small", color="white" if shades[i, j] > 0.85 else "black"
        )
    ax.set(title=title, xticks=(), yticks=())
    ax.spines[:].set_visible(False)


def misses(stages: Mapping[str, np.ndarray], kernel: np.ndarray) -> Figure:
    """One map for each stage: how many channels of each place differ from the kernel's output.

    Parameters
    ----------
    stages
        Title → codes (OC, H, W), of any number type.
    kernel : uint8 array (OC, H, W)
    """
    columns = min(len(stages), 3)
    lines = -(-len(stages) // columns)
    with style():
        figure, axes = plt.subplots(lines, columns, figsize=(2.9 * columns, 3.0 * lines), squeeze=False)
        for ax in axes.flat:
            ax.set_axis_off()
        for ax, (title, codes) in zip(axes.flat, stages.items(), strict=False):
            wrong = codes != kernel
            # A square root lets one missed channel be seen beside twenty.
            ax.imshow(np.sqrt(wrong.sum(axis=0)), cmap="gray_r", vmin=0, vmax=np.sqrt(12), interpolation="nearest")
            ax.set(xlim=(-3.5, wrong.shape[2] + 2.5), ylim=(wrong.shape[1] + 2.5, -3.5))  # a margin inside the frame
            ax.set_title(f"{title}\n{_percent(codes, kernel)}, {wrong.sum():,} misses", fontsize="small")
            frame = plt.Rectangle((0, 0), 1, 1, transform=ax.transAxes, fill=False, linewidth=0.8, clip_on=False)
            ax.add_patch(frame)
            if not wrong.any():
                ax.text(0.5, 0.5, "no miss", transform=ax.transAxes, ha="center", va="center", style="italic")
    return figure


def show_misses(stages: Mapping[str, np.ndarray], kernel: np.ndarray) -> None:
    """Show where each stage differs from the kernel, with its hit rate and its largest miss (see `misses`)."""
    words = []
    for title, codes in stages.items():
        off = np.abs(codes.astype(np.int64) - kernel)
        words.append(f"{title}: {_percent(codes, kernel)}, {np.count_nonzero(off):,} misses, largest {off.max()}")
    alt = f"Maps of misses, darker where more channels differ from the kernel. {'. '.join(words)}."
    show(misses(stages, kernel), "\n".join(words), alt)


def _percent(codes: np.ndarray, kernel: np.ndarray) -> str:
    """The hit rate with four decimals; 100.0000 % stands for no miss at all."""
    rate = f"{100 * np.mean(codes == kernel):.4f}"
    return f"{'99.9999' if rate == '100.0000' and (codes != kernel).any() else rate} %"


def show_pairs(x: np.ndarray, w: np.ndarray) -> None:
    """Show the sums of adjacent pairs of products beside the range of 16 bits.

    Parameters
    ----------
    x : uint8 array (K,)
        Codes in the order of the kernel (row, column, channel).
    w : int8 array (K,)
    """
    products = x.astype(np.int64) * w
    sums = np.add.reduceat(products, np.arange(0, len(products), 2))
    kept = np.clip(sums, *INT16)
    cut = np.flatnonzero(kept != sums)
    places = np.arange(len(sums))
    with style():
        figure, ax = plt.subplots(figsize=(8, 3.4))
        ax.bar(places, sums, color="0.85", edgecolor="black", hatch="//", label="exact sum of the pair")
        ax.bar(places, kept, color="0.45", edgecolor="black", label="what 16 bits keep")
        for end in INT16:
            ax.axhline(end, linestyle="--", color=COLORS[2], linewidth=1.2)
            ax.annotate(
                f"{end:,}", (len(sums) - 0.4, end), va="bottom" if end > 0 else "top", ha="right", fontsize="small"
            )
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set(xlabel="pair of products, in the order of the kernel", xticks=places, ylabel="sum")
        ax.set_ylim(min(1.35 * INT16[0], 1.15 * sums.min()), max(1.35 * INT16[1], 1.15 * sums.max()))
        ax.legend(fontsize="small", loc="upper left", ncols=2)
    lost = int(sums.sum() - kept.sum())
    verdict = f"{len(cut)} of {len(sums)} pairs leave 16 bits. Exact total {sums.sum():,}, kept {kept.sum():,}: {lost:,} is lost."
    parts = [
        f"pair {k}: {x[2 * k]}·{w[2 * k]} + {x[2 * k + 1]}·{w[2 * k + 1]} = {sums[k]:,}"
        for k in cut
        if 2 * k + 1 < len(x)
    ]
    alt = f"Bars of the sums of {len(sums)} pairs, with lines at the ends of 16 bits. Beyond them: {'; '.join(parts) or 'none'}."
    show(figure, verdict, alt)


def show_hit_rates(names: Sequence[str], rates: Mapping[str, Sequence[float]]) -> None:
    """Show the hit rate of each layer of a network, one line for each way of running it.

    Parameters
    ----------
    names
        Kind of each layer, in the order in which they run.
    rates
        Label → hit rates, 0 to 1, one a layer.
    """
    with style():
        figure, ax = plt.subplots(figsize=(9, 3.6))
        for k, (label, values) in enumerate(rates.items()):
            ax.plot(
                100 * np.asarray(values),
                linestyle=LINES[k % len(LINES)],
                color=COLORS[k % len(COLORS)],
                marker=MARKERS[k % len(MARKERS)],
                markersize=4,
                linewidth=1,
                label=label,
            )
        ax.set(xlabel="layer", ylabel="hit rate in %")
        ax.ticklabel_format(axis="y", useOffset=False)  # 99.995, not 0.005 beside a "+9.999e1"
        ax.legend(fontsize="small", loc="lower right")
    words = []
    for label, values in rates.items():
        worst = int(np.argmin(values))
        full = sum(value == 1 for value in values)
        words.append(
            f"{label}: {full} of {len(values)} layers without a miss; lowest {100 * values[worst]:.4f} % "
            f"(layer {worst}, {names[worst]})"
        )
    alt = f"Lines of hit rates over the layers of a network. {'. '.join(words)}."
    show(figure, "\n".join(words), alt)
