"""Probes of chapter 1. What only the probe reads has a name that starts with an underscore: verdicts do not show it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch


def entry(fn: Callable, n: int, m: int, _key: str) -> Any:
    """One entry of the dict that the function returns, so that each entry is judged by itself."""
    made = fn(n, m)
    if isinstance(made, dict) and _key not in made:
        raise KeyError(f"the dict has no key {_key!r}")
    return made[_key] if isinstance(made, dict) else made


def pooling(cls: Callable, x: torch.Tensor, _compare: str = "output", **arguments: Any) -> Any:
    """Make the layer and run it.

    Parameters
    ----------
    _compare
        "output": what the layer returns. "gradient": that of the output's sum with respect to `x`; zeros where the output
        does not depend on `x` for autograd. "state": how many parameters the layer has, and whether the weights are in its
        `state_dict`.
    arguments
        Of the layer.

    Raises
    ------
    TypeError
        If `cls` is a function.
    """
    if isinstance(cls, types.FunctionType):
        raise TypeError("a function, where a class is asked for: __init__ takes the weights, forward takes x")
    layer = cls(**arguments)
    if _compare == "state":
        weights = arguments["weights"]
        kept = any(
            value.shape == weights.shape and torch.equal(value, weights) for value in layer.state_dict().values()
        )
        return {"state_dict() should hold weights": kept, "number of parameters": len(list(layer.parameters()))}
    if _compare == "output":
        return layer(x)
    leaf = x.detach().clone().requires_grad_()
    return _gradient(layer(leaf), leaf)


def nchw(fn: Callable, images: Any, _compare: str = "images") -> Any:
    """Convert the images; with `_compare="view(-1)"` a tensor is laid out as one row, which needs contiguous memory."""
    converted = fn(images)
    return (
        torch.Tensor.view(converted, -1)
        if _compare == "view(-1)" and isinstance(converted, torch.Tensor)
        else converted
    )


def picked(fn: Callable, scores: torch.Tensor, index: torch.Tensor, _compare: str = "values") -> Any:
    """The picked scores, or with `_compare="gradient"` that of 1·first + 2·second + … with respect to `scores`."""
    if _compare == "values":
        return fn(scores, index)
    leaf = scores.detach().clone().requires_grad_()
    values = fn(leaf, index)
    if not isinstance(values, torch.Tensor):
        return values
    return _gradient(values * torch.arange(1, len(index) + 1).to(values), leaf)


def _gradient(result: Any, leaf: torch.Tensor) -> Any:
    """The gradient of the result's sum; zeros where it does not depend on the leaf, the result itself if it is no tensor."""
    if not isinstance(result, torch.Tensor):
        return result
    total = result.sum()
    return torch.autograd.grad(total, leaf)[0] if total.requires_grad else torch.zeros_like(leaf)
