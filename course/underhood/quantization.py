"""The values that chapter 4 passes around. Everything else in that chapter is written by the learner, in plain numpy."""

from __future__ import annotations

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
