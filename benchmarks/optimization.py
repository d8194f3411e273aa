"""How fast the reference solutions of chapter 3 are, beside torch.optim without its fused and multi-tensor kernels.

The parameters of the chapter's 13-16-16-1 network, and of one that is a thousand times as large; one thread, medians of CPU
time, the contenders taking turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

SIZES = {"13-16-16-1": (13, 16, 16, 1), "512-512-512-1": (512, 512, 512, 1)}
ROUNDS, STEPS = 31, 40


def rows() -> list[dict]:
    """Microseconds of one step over all parameters.

    Returns
    -------
    list of dict
        Keys "name", "value", "unit", "reference" (torch.optim) and "ratio" (above 1: faster than torch.optim).
    """
    from autograder.reference import load

    reference = load("03_optimization")
    momentum = {"lr": 1e-3, "momentum": 0.9}
    contenders = {
        "sgd_step": (reference["sgd_step"], torch.optim.SGD, {"lr": 1e-3}, {"lr": 1e-3}),
        "sgd_step with momentum": (reference["sgd_step"], torch.optim.SGD, momentum, momentum),
        "adam_step": (reference["adam_step"], torch.optim.Adam, {"lr": 1e-3}, {"lr": 1e-3}),
    }
    found = []
    for name, (step, optimizer, mine, theirs) in contenders.items():
        for size, layers in SIZES.items():
            ours = step_of(step, mine, parameters(layers))
            torchs = optimizer(parameters(layers), foreach=False, fused=False, **theirs).step
            value, other = medians(ours, torchs)
            found.append(
                {
                    "name": f"{name}, {size}",
                    "value": value,
                    "unit": "µs a step",
                    "reference": other,
                    "ratio": other / value,
                }
            )
    return found


def parameters(sizes: tuple[int, ...]) -> list[nn.Parameter]:
    """Weights and biases of fully connected layers, with gradients."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for m, n in zip(sizes, sizes[1:], strict=False):
        for shape in ((n, m), (n,)):
            p = nn.Parameter(torch.randn(shape, generator=generator))
            p.grad = torch.randn(shape, generator=generator)
            found.append(p)
    return found


def step_of(step: Callable, options: dict, params: list[nn.Parameter]) -> Callable[[], None]:
    """The step function with everything given."""
    state: dict = {}
    return lambda: step(params, state, **options)


def medians(*contenders: Callable[[], object]) -> list[float]:
    """Median CPU microseconds of one call of each, taking turns."""
    times: list[list[float]] = [[] for _ in contenders]
    for _ in range(ROUNDS):
        for call, kept in zip(contenders, times, strict=True):
            start = time.process_time()
            for _ in range(STEPS):
                call()
            kept.append((time.process_time() - start) / STEPS * 1e6)
    return [statistics.median(kept) for kept in times]
