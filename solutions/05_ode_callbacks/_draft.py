"""Reference parts of chapter 5."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from underhood.ode import BETA1, BETA2, GAMMA, Q_MAX, Q_MIN, A, C, E, R

RightHandSide = Callable[[float, np.ndarray], np.ndarray]


def rk_step(
    f: RightHandSide, t: float, y: np.ndarray, h: float, k1: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """One step of Tsit5: the new state and the seven slopes, the last of which is the slope at the new state."""
    K = np.empty((7, len(y)))
    K[0] = f(t, y) if k1 is None else k1
    for i in range(1, 7):
        stage = y + h * (A[i, :i] @ K[:i])
        K[i] = f(t + C[i] * h, stage)
    return stage, K  # the last stage is the new state: the last row of A holds the solution's weights


def err_norm(K: np.ndarray, h: float, y: np.ndarray, y_new: np.ndarray, atol: float, rtol: float) -> float:
    """Root mean square of the error estimate over what is tolerated: a step is good enough up to 1."""
    tolerated = atol + rtol * np.maximum(np.abs(y), np.abs(y_new))
    return float(np.sqrt(np.mean((h * (E @ K) / tolerated) ** 2)))


def pi_control(err: float, err_old: float, h: float) -> tuple[bool, float, float]:
    """Whether to accept a step, the next step size, and the error to remember."""
    if err <= 1:
        q = err**BETA1 / err_old**BETA2 / GAMMA
        return True, h / min(max(q, 1 / Q_MAX), 1 / Q_MIN), max(err, 1e-4)
    return False, h / min(err**BETA1 / GAMMA, 1 / Q_MIN), err_old


def init_dt(f: RightHandSide, t0: float, y0: np.ndarray, atol: float, rtol: float, dt_max: float = math.inf) -> float:
    """A first step size from the sizes of the state, its slope and its curvature."""

    def size(x: np.ndarray) -> float:
        return float(np.sqrt(np.mean((x / (atol + rtol * np.abs(y0))) ** 2)))

    f0 = np.asarray(f(t0, y0))
    d0, d1 = size(y0), size(f0)
    dt0 = min(1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1, dt_max)
    d2 = size(np.asarray(f(t0 + dt0, y0 + dt0 * f0)) - f0) / dt0
    steepest = max(d1, d2)
    dt1 = max(1e-6, 1e-3 * dt0) if steepest <= 1e-15 else 10 ** (-(2 + math.log10(steepest)) / 5)
    return min(100 * dt0, dt1, dt_max)


def dense(theta: float | np.ndarray, y: np.ndarray, h: float, K: np.ndarray, derivative: bool = False) -> np.ndarray:
    """The state (or its slope) at t + theta h, for one theta or several."""
    theta = np.asarray(theta, dtype=np.float64)[..., None]
    powers = np.arange(1, 5)
    if derivative:
        return (powers * theta ** (powers - 1)) @ R.T @ K
    return y + h * (theta**powers @ R.T @ K)


def bracket_root(g: Callable[[float], float], a: float, b: float, side: str = "left") -> float:
    """The float next to a sign change of g between a and b, by bisection: on a's side ("left") or on b's ("right")."""
    ga, gb = g(a), g(b)
    if math.isnan(ga) or math.isnan(gb):
        raise ValueError("g is nan at an end of the bracket")
    if gb == 0:
        return b
    if np.sign(ga) * np.sign(gb) >= 0:
        raise ValueError(f"g has no sign change between {a!r} and {b!r}")
    while True:
        middle = a + (b - a) / 2
        if middle in (a, b):
            return a if side == "left" else b
        gm = g(middle)
        if math.isnan(gm):
            raise ValueError(f"g is nan at {middle!r}")
        if gm == 0:
            return middle
        if np.sign(gm) == np.sign(ga):
            a = middle
        else:
            b = middle


def detect(G: np.ndarray, prev_sign: np.ndarray, directions: np.ndarray) -> tuple[int | None, np.ndarray]:
    """The first row of conditions in which some component crosses zero, and which components do."""
    signs = np.sign(G[1:])
    before = np.vstack([prev_sign, signs])[:-1]  # the sign that each row is compared with
    rises, falls = (before < 0) & (signs >= 0), (before > 0) & (signs <= 0)
    hits = (rises & (directions >= 0)) | (falls & (directions <= 0))
    if not hits.any():
        return None, np.array([], dtype=np.int64)
    j = int(hits.any(axis=1).argmax())
    return j + 1, np.flatnonzero(hits[j])


def first_event(candidates: list[tuple[int, float]], tdir: int = 1) -> tuple[int, float]:
    """The earliest candidate in the direction of time; of equal times the lowest index."""
    return min(candidates, key=lambda candidate: (tdir * candidate[1], candidate[0]))


def apply_event(
    f: RightHandSide,
    t: float,
    y: np.ndarray,
    affect: Callable[[np.ndarray, int], None],
    index: int,
    save_positions: tuple[bool, bool] = (True, True),
) -> tuple[np.ndarray, np.ndarray, list[tuple[float, np.ndarray]]]:
    """Let the affect change a copy of the state, evaluate the slope afresh, and save what the flags ask for."""
    y_new = np.array(y, dtype=np.float64)
    affect(y_new, index)
    k1 = f(t, y_new)
    before, after = save_positions
    return y_new, k1, [(t, np.array(y))] * bool(before) + [(t, y_new.copy())] * bool(after)


def extinct(
    f: RightHandSide, y: np.ndarray, alive: np.ndarray, index: int
) -> tuple[np.ndarray, np.ndarray, RightHandSide]:
    """Take a species out: it is zero, it no longer changes, and the others no longer feel it."""
    y, alive = np.array(y, dtype=np.float64), np.array(alive)
    y[index], alive[index] = 0, 0
    return y, alive, lambda t, u: alive * f(t, alive * u)


def bounce(h: float, v: float, e: float, g: float = 9.81, tol: float = 1e-6) -> tuple[float, float, bool, float]:
    """Turn the ball around at the floor; a rebound below tol stays in contact."""
    v = -e * v
    if v < tol:
        return 0.0, 0.0, True, math.inf
    return 0.0, v, False, v / g  # a flight takes 2 v / g


def event_time_grad(
    g: Callable, f: RightHandSide, t: float, y: np.ndarray, S: np.ndarray, g_theta: float | np.ndarray = 0.0
) -> np.ndarray:
    """How the time of the root of g(t, y) moves with the parameters: implicit function theorem."""
    time = torch.tensor(t, dtype=torch.float64, requires_grad=True)
    state = torch.tensor(y, dtype=torch.float64, requires_grad=True)
    g_t, g_y = torch.autograd.grad(g(time, state), (time, state), allow_unused=True, materialize_grads=True)
    g_t, g_y = g_t.item(), g_y.numpy()
    rate = g_t + g_y @ np.asarray(f(t, np.asarray(y)), dtype=np.float64)
    if rate == 0:
        raise ValueError("g does not change along the solution: the event time has no gradient")
    return -(g_y @ np.asarray(S) + g_theta) / rate
