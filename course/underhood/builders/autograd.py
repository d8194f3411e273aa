"""Builders of chapter 2: functions of tensors, tensors with a history, and graphs to walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def leaf(data: Tensor) -> Tensor:
    """The tensor as a leaf that requires grad."""
    return data.requires_grad_()


def with_grad(data: Tensor, grad: float, requires_grad: bool = False) -> Tensor:
    """The tensor with `.grad` filled with one number already: what the probes of this chapter watch."""
    data.requires_grad_(requires_grad)
    data.grad = torch.full_like(data, grad, requires_grad=False)
    return data


def callers(data: list[Tensor], grads: list[float | None], requires_grad: list[bool]) -> list[Tensor]:
    """Several such tensors; None in `grads` leaves a tensor without a `.grad`."""
    for tensor, grad, required in zip(data, grads, requires_grad, strict=True):
        if grad is None:
            tensor.requires_grad_(required)
        else:
            with_grad(tensor, grad, required)
    return data


# Functions of one or several tensors.


def affine(matrix: Tensor, offset: float = 0.0) -> Callable[[Tensor], Tensor]:
    """x ↦ matrix @ x + offset."""
    return lambda x: matrix.to(x.dtype) @ x + offset


def separable() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """(a, b, c) ↦ 3a + 2b² + log c, element by element."""
    return lambda a, b, c: 3 * a + 2 * b**2 + torch.log(c)


def scaled(factor: float, use: int = 0) -> Callable[..., Tensor]:
    """The function that multiplies one of its inputs by a number and ignores the others."""
    return lambda *inputs: factor * inputs[use]


def inner_sine() -> Callable[[Tensor, Tensor], Tensor]:
    """(x, y) ↦ sin⟨x, y⟩, a tensor of shape ()."""
    return lambda x, y: torch.sin((x * y).sum())


def bilinear(matrix: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """(x, y) ↦ tanh(matrix @ x) · Σy, of the shape of matrix @ x."""
    return lambda x, y: torch.tanh(matrix.to(x.dtype) @ x) * y.sum()


def products() -> Callable[[Tensor], Tensor]:
    """x ↦ [x₀ x₁, x₁², x₀ − x₁] for an x of two numbers."""
    return lambda x: torch.stack([x[0] * x[1], x[1] ** 2, x[0] - x[1]])


def row_products() -> Callable[[Tensor], Tensor]:
    """x ↦ Σⱼ x₀ⱼ x₁ⱼ for an x of two rows, of shape (): another function of the same numbers where x comes flat."""
    return lambda x: (x[0] * x[1]).sum()


def squares_of_product(matrix: Tensor) -> Callable[[Tensor], Tensor]:
    """x ↦ (x @ matrix)², element by element, for x of shape (…, k) and a matrix of shape (k, l)."""
    return lambda x: (x @ matrix.to(x.dtype)) ** 2


def powers(exponents: list[int]) -> Callable[[Tensor], Tensor]:
    """x ↦ Σ over the exponents p of Σᵢ xᵢᵖ, of shape ()."""
    return lambda x: torch.stack([(x**p).sum() for p in exponents]).sum()


def number_to_vector(factors: Tensor) -> Callable[[Tensor], Tensor]:
    """x ↦ factors · x², for an x of shape ()."""
    return lambda x: factors.to(x.dtype) * x**2


def cubes_and_sines() -> Callable[[Tensor], Tensor]:
    """x ↦ Σ xᵢ³ + Π sin xᵢ, of shape ()."""
    return lambda x: (x**3).sum() + torch.sin(x).prod()


def cubes(scale: float = 1.0) -> Callable[[Tensor], Tensor]:
    """x ↦ scale · Σ xᵢ³, of shape ()."""
    return lambda x: scale * (x**3).sum()


class _SumOfSquares(torch.autograd.Function):
    """Σ xᵢ² whose backward multiplies the gradient by `factor`: wrong unless that is 1 everywhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(x, factor)
        return (x**2).sum()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
        x, factor = ctx.saved_tensors
        return cotangent * factor * 2 * x, None


def squares_with_gradient(factor: Tensor) -> Callable[[Tensor], Tensor]:
    """x ↦ Σ xᵢ², with `factor` times the right gradient: what a bug in a hand-written backward looks like."""
    return lambda x: _SumOfSquares.apply(x, factor.to(x.dtype))


def prepared_gradient(gradient: Tensor) -> Callable[..., Tensor]:
    """A stand-in for `numeric_grad` that gives these float64 numbers, whatever it is asked."""
    return lambda f, x, h=1e-6: gradient.double().clone()


# Graphs: each builder returns the tensor at the end and the tensors that went in.


def mean_of_five_sums(data: Tensor) -> tuple[Tensor, list[Tensor]]:
    """C = (5 · (A + A)).mean()."""
    a = data.requires_grad_()
    return (5 * (a + a)).mean(), [a]


def layer(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, list[Tensor]]:
    """tanh(x @ weight + bias).sum(), where x needs no gradient."""
    weight.requires_grad_()
    bias.requires_grad_()
    return torch.tanh(x @ weight + bias).sum(), [x, weight, bias]


def doublings(times: int) -> tuple[Tensor, list[Tensor]]:
    """y = x, then y = y + y so many times."""
    x = torch.tensor(1e-30, requires_grad=True)
    y = x
    for _ in range(times):
        y = y + y
    return y, [x]


def chain(times: int) -> tuple[Tensor, list[Tensor]]:
    """y = x + 1 + 1 + …, so many times."""
    x = torch.tensor(0.0, requires_grad=True)
    y = x
    for _ in range(times):
        y = y + 1.0
    return y, [x]


def behind_detach(data: Tensor) -> tuple[Tensor, list[Tensor]]:
    """a · (b²).detach() + 2: the way to b is cut, 2 is a constant."""
    a, b = data.clone().requires_grad_(), data.clone().requires_grad_()
    return a * (b**2).detach() + 2.0, [a, b]


def without_graph(requires_grad: bool) -> tuple[Tensor, list[Tensor]]:
    """A tensor that nothing has been computed from."""
    x = torch.ones(2, requires_grad=requires_grad)
    return x, [x]


def random_graph(seed: int, leaves: int, steps: int) -> tuple[Tensor, list[Tensor]]:
    """Operations on randomly chosen earlier results; the last one is the end."""
    rng = np.random.default_rng(seed)
    tensors = [torch.tensor(0.1 * (i + 1), requires_grad=True) for i in range(leaves)]
    inputs = list(tensors)
    for _ in range(steps):
        a, b = (tensors[int(i)] for i in rng.integers(max(0, len(tensors) - 3), len(tensors), 2))
        tensors.append([a + b, a * b, torch.tanh(a), torch.sin(a)][int(rng.integers(4))])
    return tensors[-1], inputs
