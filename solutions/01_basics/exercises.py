"""The exercises of chapter 1: cases, known mistakes, hidden cases."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn, tensor

from underhood import Build, Case, Exercise, Mistake

WEIGHTS = tensor([0.6, 0.25, 0.10, 0.05])


def ramp(*shape):
    """0, 1, 2, … in the given shape, float32."""
    return torch.arange(float(torch.tensor(shape).prod())).reshape(shape)


# ---------------------------------------------------------------------------------------------------- ordinal_rank_sum


def random_rows(rng):
    """Rows of random numbers in one to four dimensions; weights shorter than the axis; errors and their near misses."""
    for shape, m in (((7,), 7), ((5, 6), 3), ((3, 4, 5), 5), ((2, 3, 4, 6), 4)):
        x, w = tensor(rng.normal(size=shape)), tensor(rng.normal(size=m))
        part = "values" if len(shape) < 3 else "any leading axes"
        yield Case(f"random numbers in {len(shape)} dimensions, {m} weights", part, (x, w))
    square = tensor(rng.normal(size=(4, 4, 4)))
    yield Case("a cube whose axes all have the length of the weights", "any leading axes", (square, WEIGHTS.double()))
    row = tensor(rng.normal(size=(2, 5)))
    yield Case("one weight more than values", "errors", (row, torch.ones(6).double()), raises=ValueError)
    yield Case("weights in two dimensions", "errors", (row, torch.ones(2, 2).double()), raises=ValueError)
    yield Case("as many weights as values: allowed", "errors", (row, tensor(rng.normal(size=5))))
    yield Case("a single weight: allowed", "errors", (row, tensor(rng.normal(size=1))))


def rank_unchecked(x, weights):
    return (weights * x.topk(weights.numel(), dim=-1).values).sum(-1)


ORDINAL_RANK_SUM = Exercise(
    name="ordinal_rank_sum",
    title="rank, then weigh",
    level="medium",
    minutes=10,
    parts=("values", "any leading axes", "errors", "inputs untouched"),
    cases=(
        Case("one row of four", "values", (tensor([[1.9, 0.4, 1.3, 0.8]]), WEIGHTS), expected=tensor([1.565])),
        Case(
            "a row of negative numbers", "values", (tensor([[-1.0, -4.0, -2.0, -3.0]]), WEIGHTS), expected=tensor([-1.6])
        ),
        Case(
            "fewer weights than values, not summing to 1",
            "values",
            (tensor([[5.0, 1.0, 3.0, 2.0, 4.0]]), tensor([2.0, -1.0])),
            expected=tensor([6.0]),
        ),
        Case(
            "a last axis as long as the weights",
            "any leading axes",
            (ramp(1, 4, 4), WEIGHTS),
            expected=tensor([[2.4, 6.4, 10.4, 14.4]]),
        ),
        Case("a single row without a batch axis", "any leading axes", (ramp(4), WEIGHTS), expected=tensor(2.4)),
        Case(
            "five weights on four values",
            "errors",
            (ramp(1, 4), tensor([0.4, 0.3, 0.1, 0.1, 0.1])),
            raises=ValueError,
        ),
        Case("weights in two dimensions", "errors", (ramp(1, 4), tensor([[0.5, 0.5]])), raises=ValueError),
        Case("as many weights as values", "errors", (tensor([[2.0, 3.0]]), tensor([1.0, 0.5])), expected=tensor([4.0])),
    ),
    hidden=random_rows,
    mistakes=(
        Mistake(
            "ranking along axis 1",
            lambda x, weights: (weights * x.topk(len(weights), dim=1).values).sum(1),
            hint="dim=1 is the second axis. Which axis holds the values that compete with each other?",
        ),
        Mistake(
            "weighing the values in the order in which they stand",
            lambda x, weights: (weights * x[..., : len(weights)]).sum(-1),
            hint="The first weight belongs to the largest value, wherever that stands.",
        ),
        Mistake(
            "ranking from the smallest up",
            lambda x, weights: (weights * x.sort(dim=-1).values[..., : len(weights)]).sum(-1),
            hint="sort starts with the smallest value. Which end should meet weights[0]?",
        ),
        Mistake(
            "ranking by absolute value",
            lambda x, weights: (weights * x.gather(-1, x.abs().topk(len(weights), dim=-1).indices)).sum(-1),
            hint="-4 is smaller than -1, although it is farther from zero.",
        ),
        Mistake(
            "normalizing the weights first",
            lambda x, weights: (weights / weights.sum() * x.topk(len(weights), dim=-1).values).sum(-1),
            hint="The weights are used as they are given, whatever they add up to.",
        ),
        Mistake(
            "ranking without looking at the weights' shape",
            rank_unchecked,
            hint="What do topk and broadcasting do with too many weights, and with weights of shape (1, 2)?",
        ),
    ),
)

EXERCISES = (ORDINAL_RANK_SUM,)
