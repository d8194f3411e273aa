"""Builders of chapter 3: gradients, splits, generators, networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def quadratic(curvature: list[Tensor]) -> Callable[[list[Tensor]], list[Tensor]]:
    """The gradient of ½ Σ c·p², as a function of the parameters: c·p for each of them."""

    def gradients(params: list[Tensor]) -> list[Tensor]:
        return [c * p.detach() for c, p in zip(curvature, params, strict=True)]

    return gradients


def with_a_nan(data: Tensor) -> Tensor:
    """The tensor with nan in its last place."""
    spoilt = data.clone()
    spoilt.view(-1)[-1] = torch.nan
    return spoilt


def rows(train: Sequence[int], validation: Sequence[int]) -> Callable[[Tensor, Tensor, float], tuple[Tensor, ...]]:
    """A split by row numbers, whatever fraction it is asked for: `split(X, y, fraction)`."""

    def split(X: Tensor, y: Tensor, validation_split: float) -> tuple[Tensor, ...]:
        return X[list(train)], y[list(train)], X[list(validation)], y[list(validation)]

    return split


def wave_rows(n: int) -> Tensor:
    """n rows of 13 features without chance: sin(0.7 i + 0.1 row), i counting all entries; float64."""
    i = torch.arange(13.0 * n, dtype=torch.float64).reshape(n, 13)
    return torch.sin(0.7 * i + 0.1 * torch.arange(n, dtype=torch.float64)[:, None])


def wave_labels(n: int) -> Tensor:
    """Labels of `wave_rows(n)`: 1.0 where x0 − x3/2 + x7·x1 > 0, else 0.0; float64, shape (n,)."""
    X = wave_rows(n)
    return (X[:, 0] - 0.5 * X[:, 3] + X[:, 7] * X[:, 1] > 0).double()


class Network(nn.Module):
    """Linear layers with ReLU between them that remember in which phases they were called."""

    def __init__(self, sizes: Sequence[int], scale: float, pace: float, bias: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for m, n in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(m, n, bias=bias, dtype=torch.float64), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        self.phases: list[str] = []
        k = 0
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(scale * torch.cos(pace * torch.arange(k, k + p.numel(), dtype=p.dtype)).reshape(p.shape))
                k += p.numel()

    def forward(self, x: Tensor) -> Tensor:
        """The output layer's values (logits), shape (N, last size)."""
        phase = f"{'train' if self.training else 'eval'}, gradients {'on' if torch.is_grad_enabled() else 'off'}"
        if self.phases[-1:] != [phase]:
            self.phases.append(phase)
        return self.layers(x)


def network(
    sizes: Sequence[int], scale: float = 0.3, pace: float = 1.3, bias: bool = True, training: bool = True
) -> Network:
    """A network without chance: the k-th of all its parameters, in order, is scale·cos(pace·k); float64."""
    return Network(sizes, scale, pace, bias).train(training)
