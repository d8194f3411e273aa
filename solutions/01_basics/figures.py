"""Draws the opening picture of chapter 1."""

from __future__ import annotations

from pathlib import Path

import torch

from autograder import reference
from underhood.plots.basics import family, moonrise

# On windows of 4 by 4: weights by rank.
RANKS = {
    "max": torch.tensor([1.0]),
    "ordinal": torch.tensor([0.6, 0.25, 0.10, 0.05]),
    "average": torch.full((16,), 1 / 16),
    "min": torch.tensor([0.0] * 15 + [1.0]),
}


def draw(folder: Path) -> None:
    """Write `pooling_family.png`: one picture, pooled in four ways by the reference's layer."""
    layer = reference.load("01_basics")["OrdinalPool2d"]
    picture = moonrise()
    figure = family(picture, {name: layer(weights, kernel_size=4)(picture) for name, weights in RANKS.items()})
    figure.savefig(folder / "pooling_family.png", dpi=110, metadata={"Software": None})
