"""PyTorch's own quantized kernels, where this machine has them: to compare with, never to grade by.

Their answers depend on the CPU: without VNNI, x86, fbgemm and onednn keep sums of two products in 16 bits (pytorch#44939,
FBGEMM#125). Weights are packed afresh for every call, since some engines remember an earlier call's parameters.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .env import cpu_flags
from .quantization import QParams

ENGINES = ("x86", "fbgemm", "onednn", "qnnpack")


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Within, quantized layers are packed for and run by the engine `name` ("x86", "fbgemm", "onednn" or "qnnpack").

    The warnings that quantized tensors and `torch.ao.quantization` are deprecated (pytorch#184982) stay silent within.
    """
    import torch

    before = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.quantized.engine = name
        try:
            yield
        finally:
            torch.backends.quantized.engine = before


def conv2d(
    name: str,
    x: np.ndarray,
    q_in: QParams,
    w: np.ndarray,
    s_w: np.ndarray,
    bias: np.ndarray,
    q_out: QParams,
    stride: int = 1,
    padding: int = 0,
    relu: bool = False,
) -> np.ndarray:
    """One quantized convolution by the engine `name`.

    Parameters
    ----------
    x : uint8 array (C, H, W)
    w : int8 array (OC, C, kh, kw)
    s_w, bias : float32 arrays (OC,)

    Returns
    -------
    uint8 array (OC, Ho, Wo)
    """
    import torch

    with engine(name):
        scales, zeros = torch.from_numpy(s_w).double(), torch.zeros(len(w), dtype=torch.long)
        weight = torch._make_per_channel_quantized_tensor(torch.from_numpy(w), scales, zeros, 0)
        geometry = [stride, stride], [padding, padding], [1, 1], 1
        packed = torch.ops.quantized.conv2d_prepack(weight, torch.from_numpy(bias), *geometry)
        codes = torch.from_numpy(np.ascontiguousarray(x))[None]
        image = torch._make_per_tensor_quantized_tensor(codes, float(q_in.scale), q_in.zero_point)
        run: Any = torch.ops.quantized.conv2d_relu if relu else torch.ops.quantized.conv2d
        return run(image, packed, float(q_out.scale), q_out.zero_point).int_repr().numpy()[0]


@functools.cache
def saturates(name: str) -> bool | None:
    """Whether the engine's kernel keeps sums of two products in 16 bits on this CPU; None where it cannot be run.

    Asked of the kernel itself: 255 * 127 + 255 * 127 = 64770 in steps of 300 is 216, or 109 once it is clamped to 32767.
    """
    x, w = np.full((2, 1, 1), 255, np.uint8), np.full((1, 2, 1, 1), 127, np.int8)
    one, none = np.ones(1, np.float32), np.zeros(1, np.float32)
    try:
        return int(conv2d(name, x, QParams(np.float32(1), 0), w, one, none, QParams(np.float32(300), 0)).item()) == 109
    except (ImportError, AttributeError, RuntimeError, NotImplementedError):
        return None


def available() -> tuple[str, ...]:
    """The engines of `ENGINES` that run here."""
    return tuple(name for name in ENGINES if saturates(name) is not None)


def report() -> None:
    """Print the engines of this machine, the CPU features that decide how they add, and what that changes."""
    flags = cpu_flags()
    print("CPU features:", " ".join(flags) if flags else "not known (they are read on Linux only)")
    for name in ENGINES:
        words = {True: "saturates in 16 bits", False: "adds exactly", None: "cannot be run here"}
        print(f"{name:<8} {words[saturates(name)]}")
    if not available():
        print("This torch has no quantized kernels: the frozen outputs stand for them.")
    elif saturates("x86"):
        print("So your own torch gives the frozen outputs, saturation and all.")
    else:
        print("So your own torch gives the exact outputs. The frozen ones come from a CPU that saturates.")
