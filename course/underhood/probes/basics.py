"""Probes of chapter 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def pooling(cls: Callable, arguments: dict[str, Any], x: torch.Tensor) -> dict[str, Any]:
    """Make the layer, run it, and differentiate the sum of its output.

    Returns
    -------
    dict
        `output`, and `gradient`: that of the output's sum with respect to `x`.
    """
    layer = cls(**arguments)
    leaf = x.detach().clone().requires_grad_()
    output = layer(leaf)
    total = output.sum()
    return {"output": output, "gradient": torch.autograd.grad(total, leaf)[0] if total.requires_grad else None}
