"""Probes of chapter 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..quantization import QParams


def parameters(fn: Callable, *args: Any) -> Any:
    """Call the function; scale and zero point of what it returns are compared."""
    result = fn(*args)
    if not isinstance(result, QParams):
        return result
    return {"scale": float(result.scale), "zero_point": int(result.zero_point)}
