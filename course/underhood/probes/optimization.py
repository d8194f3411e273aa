"""Probes of chapter 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


def steps(
    fn: Callable,
    params: list[Tensor],
    gradients: Callable[[list[Tensor]], list[Tensor]] | list[list[Tensor | None]],
    options: list[dict[str, Any]],
    fresh_state_before: int | None = None,
    in_place: bool = False,
    same_grad_tensor: bool = False,
) -> dict[str, Any]:
    """Take one step after the other with an optimizer's step function `fn(params, state, **options)`.

    Parameters
    ----------
    params
        Where the parameters start.
    gradients
        One list a step, or a function of the parameters; None for a parameter that has no gradient.
    options
        The arguments of each step, by name: as many steps as there are items.
    fresh_state_before
        Number of the step (from 1) at which an empty state is handed over in place of the old one.
    in_place
        Report side effects as well.
    same_grad_tensor
        Write every later gradient into the tensor of the first one, as zero_grad(set_to_none=False) and backward do.

    Returns
    -------
    dict
        `parameters` after each step. With `in_place` also whether the parameters are the same tensors as at the start and
        still leaves that require a gradient, and whether their `.grad` is what it was.
    """
    before = [p.detach().clone().requires_grad_() for p in params]
    current, state = list(before), dict[str, Any]()
    path, kept = [], True
    for number, arguments in enumerate(options, 1):
        if number == fresh_state_before:
            state = {}
        given = gradients(current) if callable(gradients) else gradients[number - 1]
        handed = [None if g is None else g.detach().clone() for g in given]
        for p, g in zip(current, handed, strict=True):
            if same_grad_tensor and p.grad is not None and g is not None:
                p.grad.copy_(g)
            else:
                p.grad = g
        handed = [p.grad for p in current]
        fn(current, state, **arguments)
        kept = kept and all(
            p.grad is h and (h is None or g is None or torch.equal(h, g))
            for p, h, g in zip(current, handed, given, strict=True)
        )
        path.append([p.detach().clone() for p in current])
    seen: dict[str, Any] = {"parameters": path}
    if in_place:
        seen["the same tensors"] = len(current) == len(before) and all(
            a is b for a, b in zip(current, before, strict=True)
        )
        seen["leaves that require a gradient"] = all(p.is_leaf and p.requires_grad for p in current)
        seen["gradients as they were"] = kept
    return seen


def rates(fn: Callable, steps: Sequence[int], **settings: Any) -> list[Any]:
    """Ask a schedule for the learning rate of each of the steps."""
    return [fn(step, **settings) for step in steps]


def loss(fn: Callable, z: Tensor, t: Tensor, gradient: bool = False) -> Any:
    """The loss of logits and targets, or its gradient with respect to the logits."""
    if not gradient:
        return fn(z, t)
    leaf = z.detach().clone().requires_grad_()
    result = fn(leaf, t)
    if not isinstance(result, Tensor):
        return result
    if not result.requires_grad:
        return "no gradient: the loss does not depend on z"
    return torch.autograd.grad(result, leaf)[0]


def epochs(fn: Callable, n: int, batch_size: int, seed: int | None = None, watch_global: bool = False) -> Any:
    """Go through batches of row numbers.

    Returns
    -------
    list or dict
        Without a seed the batches. With one, what holds of them: sizes, dtype, whether every row comes once, whether most
        rows stand beside their neighbors, whether a second pass with the same generator gives another order and other
        batches, and the same seed the same order; with `watch_global` also whether torch's global generator was left alone.
    """
    if seed is None:
        return list(fn(n, batch_size))
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(seed)
    first = list(fn(n, batch_size, generator))
    second = list(fn(n, batch_size, generator))
    again = list(fn(n, batch_size, torch.Generator().manual_seed(seed)))
    flat, flat_second, flat_again = (torch.cat(batches).tolist() for batches in (first, second, again))
    seen: dict[str, Any] = {
        "sizes": [len(batch) for batch in first],
        "dtype": str(first[0].dtype),
        "every row once": sorted(flat) == list(range(n)) == sorted(flat_second),
        "in order": 4 * sum((b - a) % n in (1, n - 1) for a, b in pairwise(flat)) > 3 * (n - 1),
    }
    if watch_global:
        return seen | {"global generator untouched": torch.equal(before, torch.get_rng_state())}
    return seen | {
        "second pass in another order": flat != flat_second,
        "second pass in other batches": _rows_together(first) != _rows_together(second),
        "same seed, same order": flat == flat_again,
    }


def _rows_together(batches: Sequence[Tensor]) -> set[frozenset[int]]:
    return {frozenset(batch.tolist()) for batch in batches}


def training(
    fn: Callable,
    model: nn.Module,
    X: Tensor,
    y: Tensor,
    split: Callable,
    show: Sequence[str] = (),
    of_epochs: Sequence[int] = (),
    rows: Sequence[int] = (),
    phases: bool = False,
    fractions: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train a network and look at what a case asks for.

    Parameters
    ----------
    show, of_epochs
        Keys of the history, and the epochs (from 1) whose entries are reported.
    rows
        Rows of X for which the trained network's logits are reported.
    phases
        Report the phases in which the network was called, and the mode in which it was left.
    fractions
        Report the different fractions that `split` was asked for.
    """
    asked: list[Any] = []

    def watched(X: Tensor, y: Tensor, validation_split: float) -> tuple[Tensor, ...]:
        asked.append(validation_split)
        return split(X, y, validation_split)

    history = fn(model, X, y, watched, **settings)
    seen: dict[str, Any] = {}
    if fractions:
        seen["split was asked for"] = list(dict.fromkeys(asked))
    if show:
        seen["epochs"] = len(history[show[0]])
        seen |= {key: [history[key][epoch - 1] for epoch in of_epochs] for key in show}
    if phases:
        seen |= {
            "phases": list(model.phases),  # type: ignore[arg-type]
            "left in training mode": model.training,
        }
    if rows:
        model.eval()
        with torch.no_grad():
            seen["logits"] = model(X[list(rows)]).squeeze(-1)
    return seen


def clipping(fn: Callable, gradients: list[Tensor | None], max_norm: float, in_place: bool = False) -> dict[str, Any]:
    """Clip the gradients of parameters that are all ones.

    Returns
    -------
    dict
        `returned`, and the `gradients` afterwards; with `in_place` also whether they are the same tensors as before, and
        whether the parameters are still ones.
    """
    handed = [None if g is None else g.detach().clone() for g in gradients]
    params = [torch.ones(2 if g is None else g.shape, dtype=None if g is None else g.dtype) for g in handed]
    for p, g in zip(params, handed, strict=True):
        p.requires_grad_()
        p.grad = g
    seen: dict[str, Any] = {"returned": fn(params, max_norm), "gradients": [p.grad for p in params]}
    if in_place:
        seen["the same gradient tensors"] = all(p.grad is g for p, g in zip(params, handed, strict=True))
        seen["parameters untouched"] = all(bool((p == 1).all()) for p in params)
    return seen


def accumulation(
    fn: Callable, model: nn.Module, chunks: list[tuple[Tensor, Tensor]], stale: float | None = None
) -> dict[str, Any] | list[Any]:
    """Ask for the gradient of all chunks together; `stale` stands in every `.grad` before.

    Returns
    -------
    list or dict
        The gradients; with `stale` also whether the parameters kept their values, and whether no more rows than the largest
        chunk's went through the network at a time.
    """
    before = [p.detach().clone() for p in model.parameters()]
    if stale is None:
        return fn(model, chunks)
    for p in model.parameters():
        p.grad = torch.full_like(p, stale)
    passes: list[int] = []
    model.register_forward_pre_hook(lambda module, args: passes.append(len(args[0])))
    found = fn(model, chunks)
    kept = all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    in_chunks = max(passes, default=0) <= max(len(x) for x, _ in chunks)
    return {"gradients": found, "parameters untouched": kept, "one chunk at a time": in_chunks}
