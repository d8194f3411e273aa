"""Builders of chapter 5: right-hand sides, affects, and conditions in numpy and in torch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

RightHandSide = Callable[[float, np.ndarray], np.ndarray]


def parts(**functions: Callable) -> dict[str, Callable]:
    """The functions by name, as `underhood.ode.solve` takes them."""
    return functions


# --- right-hand sides
def linear(matrix: np.ndarray) -> RightHandSide:
    """y' = M y."""
    return lambda t, y: matrix @ y


def driven(matrix: np.ndarray, drive: np.ndarray) -> RightHandSide:
    """y' = M y + t d: time enters."""
    return lambda t, y: matrix @ y + t * drive


def growing() -> RightHandSide:
    """y' = t y, whose solution is y(0) exp(t²/2)."""
    return lambda t, y: t * y


def falling(gravity: float = 9.81) -> RightHandSide:
    """y = (height, speed): a fall without air."""
    return lambda t, y: np.array([y[1], -gravity])


def logistic(growth: np.ndarray, matrix: np.ndarray) -> RightHandSide:
    """u' = u (r - A u), elementwise: species that compete."""
    return lambda t, u: u * (growth - matrix @ u)


# --- functions of one number
def polynomial(coefficients: list[float]) -> Callable[[float], float]:
    """c[0] + c[1] t + c[2] t² + …"""

    def g(t: float) -> float:
        value = 0.0
        for c in reversed(coefficients):
            value = value * t + c
        return value

    return g


def jump(at: float, rises: bool = True) -> Callable[[float], float]:
    """-1 before `at`, +1 from there on; the other way round where it does not rise. Never zero."""
    return lambda t: 1.0 if (t >= at) == rises else -1.0


def undefined_beyond(start: float, slope: float, offset: float) -> Callable[[float], float]:
    """offset + slope t, but nan from `start` on."""
    return lambda t: offset + slope * t if t < start else math.nan


def with_a_hole(middle: float, radius: float) -> Callable[[float], float]:
    """t - middle, but nan closer than `radius` to the middle."""
    return lambda t: t - middle if abs(t - middle) >= radius else math.nan


# --- affects
def set_to(value: float) -> Callable[[np.ndarray, int], None]:
    """y[index] := value."""

    def affect(y: np.ndarray, index: int) -> None:
        y[index] = value

    return affect


def scale_all_but(factor: float) -> Callable[[np.ndarray, int], None]:
    """Every component but y[index] times `factor`."""

    def affect(y: np.ndarray, index: int) -> None:
        kept = y[index]
        y *= factor
        y[index] = kept

    return affect


# --- conditions in torch
def level(index: int, height: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """g(t, y) = y[index] - height."""
    return lambda t, y: y[index] - height


def moving_level(index: int, speed: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """g(t, y) = y[index] - speed t."""
    return lambda t, y: y[index] - speed * t


def swinging_level(weights: torch.Tensor, rate: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """g(t, y) = w·y - sin(rate t)."""
    return lambda t, y: (weights * y).sum() - torch.sin(rate * t)


def circle(radius: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """g(t, y) = |y|² - radius²."""
    return lambda t, y: (y * y).sum() - radius**2


def alarm(at: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """g(t, y) = t - at: the state does not enter."""
    return lambda t, y: t - at
