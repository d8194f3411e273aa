"""The values that chapter 4 passes around. The rest of that chapter is written by the learner, in plain numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class QParams:
    """How a tensor of 8-bit codes stands for real numbers: `real = scale * (code - zero_point)`.

    Parameters
    ----------
    scale
        Real units per step of the code, positive; kept in float32, as PyTorch's kernels compute with it.
    zero_point
        The code that stands for exactly 0.0, in code units: 0 to 255 for uint8 codes. Always a whole number.

    Notes
    -----
    The affine scheme of Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference", equation 1.

    Examples
    --------
    >>> QParams(0.1, 11)
    QParams(scale=np.float32(0.1), zero_point=11)
    """

    scale: np.float32
    zero_point: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", np.float32(self.scale))
        object.__setattr__(self, "zero_point", int(self.zero_point))


def load_layers(stored: Mapping[str, np.ndarray]) -> list[dict]:
    """The layers of a network, in the order in which they run, from the arrays of `data.load("digits_cnn")` and the like.

    Returns
    -------
    list of dict
        Each with "op" ("conv", "linear", "add" or "avgpool"), "stride", "padding", "groups" (int), "relu" (bool),
        "add_from" (index of the earlier layer whose output is added, or None) and, where the operation has weights, "w"
        and "bias" (float32, real units). A float network has float32 "w" and "range": the smallest and the largest
        output seen in calibration, in real units. A quantized one has int8 "w", its scales "s_w" float32 (OC,), and
        "q_in" and "q_out" (`QParams`).
    """
    layers: list[dict] = []
    for op in (str(name) for name in stored["ops"]):
        prefix = f"{len(layers)}."
        fields = {key.removeprefix(prefix): value for key, value in stored.items() if key.startswith(prefix)}
        stride, padding, groups, relu, add_from = (int(n) for n in fields.pop("geometry"))
        geometry = {"stride": stride, "padding": padding, "groups": groups, "relu": bool(relu)}
        layer: dict = {"op": op, **geometry, "add_from": None if add_from < 0 else add_from}
        for key, value in fields.items():
            layer[key] = QParams(*value) if key in ("q_in", "q_out") else value
        layers.append(layer)
    return layers
