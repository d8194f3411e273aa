"""Draws the opening picture of chapter 4."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autograder import reference
from underhood import data
from underhood.plots.quantization import misses
from underhood.quantization import QParams

MEAN = np.float32([0.485, 0.456, 0.406])[:, None, None]  # of ImageNet, per color
STD = np.float32([0.229, 0.224, 0.225])[:, None, None]


def draw(folder: Path) -> None:
    """Write `misses.png`: where three stages of rebuilding a quantized convolution miss the kernel's output."""
    answer, stored = reference.load("04_quantization"), data.load("photo_stem")
    x = (stored["photo"] / np.float32(255) - MEAN) / STD
    q_in, q_out, kernel = QParams(*stored["q_in"]), QParams(*stored["q_out"]), stored["kernel"]
    w, s_w = answer["quantize_weight_per_channel"](stored["w"])

    def attempt(codes: np.ndarray, qp: QParams) -> np.ndarray:
        acc = answer["conv_acc"](codes, qp.zero_point, w, 2, 1)
        multiplier, shift = np.float64(qp.scale) * s_w / q_out.scale, np.float64(stored["bias"]) / q_out.scale
        return np.maximum(np.rint(acc * multiplier[:, None, None] + shift[:, None, None]), 0)

    scale = (x.max() - x.min()) / np.float32(255)
    own = QParams(scale, int(-x.min() / scale))
    stages = {
        "the public attempt": attempt(answer["quantize"](x, own), own),
        "the network's own scale": attempt(answer["quantize"](x, q_in), q_in),
        "sums as the kernel keeps them": kernel,
    }
    figure = misses(stages, kernel)
    figure.savefig(folder / "misses.png", dpi=75, metadata={"Software": None})
