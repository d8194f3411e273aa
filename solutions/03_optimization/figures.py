"""Draws the opening picture of chapter 3."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from autograder import reference
from underhood.plots.optimization import SURFACES, landscape, trace

COLORS = 160  # a palette keeps the shaded surface small


def draw(folder: Path) -> None:
    """Write `trajectories.png`: the reference's optimizers on one surface."""
    names = reference.load("03_optimization")
    f, start, width = SURFACES["saddle"]
    paths = {
        "SGD": trace(names["sgd_step"], f, start, 60, lr=0.1),
        "momentum": trace(names["sgd_step"], f, start, 60, lr=0.1, momentum=0.9),
        "Adam": trace(names["adam_step"], f, start, 60, lr=0.2),
    }
    figure = landscape(f, paths, width)
    figure.set_dpi(80)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(folder / "trajectories.png", optimize=True)
