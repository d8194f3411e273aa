"""Builders of chapter 4: quantization parameters, and stand-ins for the operations of a network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..quantization import QParams

LARGEST = 251  # stand-ins answer with codes below this prime


def qparams(scale: float, zero_point: int) -> QParams:
    """Quantization parameters."""
    return QParams(np.float32(scale), zero_point)


def stand_ins() -> dict[str, Callable]:
    """Operations with the right arguments and shapes, but with arithmetic of their own.

    Whoever runs a network with them shows how the layers are wired: each result depends on every argument.
    """
    return {"conv_acc": _conv_acc, "requantize": _requantize, "qadd": _qadd, "avgpool": _avgpool}


def _conv_acc(
    x: np.ndarray, zx: int, w: np.ndarray, stride: int = 1, padding: int = 0, groups: int = 1, zw: int = 0
) -> np.ndarray:
    places = np.arange(1, x.size + 1)
    level = int(np.sum(x.ravel().astype(np.int64) * places)) + 3 * zx + 5 * stride + 7 * padding + 11 * groups + 13 * zw
    codes = w.reshape(len(w), -1).astype(np.int64)
    rows, columns = ((n + 2 * padding - k) // stride + 1 for n, k in zip(x.shape[1:], w.shape[2:], strict=True))
    acc = level + codes @ np.arange(1, codes.shape[1] + 1)
    return (acc[:, None, None] + np.arange(rows * columns).reshape(rows, columns)).astype(np.int32)


def _requantize(
    acc: np.ndarray,
    bias: np.ndarray | None,
    s_in: float,
    s_w: np.ndarray | float,
    s_out: float,
    zo: int,
    relu: bool = False,
) -> np.ndarray:
    column = (-1, *[1] * (acc.ndim - 1))
    shift = 0 if bias is None else np.rint(1000 * bias.astype(np.float64)).reshape(column)
    scales = 3 * _steps(s_in) + _steps(s_w).reshape(column) + 7 * _steps(s_out)
    return ((acc + shift + scales + zo + 17 * bool(relu)) % LARGEST).astype(np.uint8)


def _qadd(a: np.ndarray, qa: QParams, b: np.ndarray, qb: QParams, qout: QParams, relu: bool = False) -> np.ndarray:
    total = a * _word(qa) + b * _word(qb) + 11 * _word(qout) + 17 * bool(relu)
    return (total % LARGEST).astype(np.uint8)


def _avgpool(x: np.ndarray, qp: QParams) -> np.ndarray:
    return ((x.max(axis=(1, 2)) + _word(qp)) % LARGEST).astype(np.uint8)


def _steps(scale: np.ndarray | float) -> np.ndarray:
    """float64: the scale in units of 1e-5."""
    return np.rint(1e5 * np.asarray(scale, np.float64))


def _word(qp: QParams) -> np.ndarray:
    """float64: one number that depends on both parameters."""
    return _steps(float(qp.scale)) + qp.zero_point
