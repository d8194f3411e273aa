"""Probes of chapter 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def entry(fn: Callable, n: int, m: int, key: str) -> Any:
    """One entry of the dict that the function returns, so that each entry is judged by itself."""
    made = fn(n, m)
    if isinstance(made, dict) and key not in made:
        raise KeyError(f"the dict has no key {key!r}")
    return made[key] if isinstance(made, dict) else made


def pooling(cls: Callable, x: torch.Tensor, compare: str = "output", **arguments: Any) -> Any:
    """Make the layer and run it.

    Parameters
    ----------
    compare
        "output": what the layer returns. "gradient": that of the output's sum with respect to `x`; zeros where the output
        does not depend on `x` for autograd. "state": how many parameters the layer has, and whether `weights` is in its
        `state_dict`.
    arguments
        Of the layer.
    """
    layer = cls(**arguments)
    if compare == "state":
        weights = arguments["weights"]
        kept = any(
            value.shape == weights.shape and torch.equal(value, weights) for value in layer.state_dict().values()
        )
        return {"parameters": len(list(layer.parameters())), "weights in state_dict": kept}
    if compare == "output":
        return layer(x)
    leaf = x.detach().clone().requires_grad_()
    total = layer(leaf).sum()
    return torch.autograd.grad(total, leaf)[0] if total.requires_grad else torch.zeros_like(x)


def nchw(fn: Callable, images: Any, compare: str = "images") -> Any:
    """Convert the images; with `compare="view(-1)"` the result is laid out as one row, which needs contiguous memory."""
    converted = fn(images)
    return converted.view(-1) if compare == "view(-1)" else converted


def picked(fn: Callable, scores: torch.Tensor, index: torch.Tensor, compare: str = "values") -> torch.Tensor:
    """The picked scores, or with `compare="gradient"` that of 1·first + 2·second + … with respect to `scores`."""
    if compare == "values":
        return fn(scores, index)
    leaf = scores.detach().clone().requires_grad_()
    values = fn(leaf, index)
    total = (values * torch.arange(1, len(index) + 1).to(values)).sum()
    return torch.autograd.grad(total, leaf)[0] if total.requires_grad else torch.zeros_like(scores)
