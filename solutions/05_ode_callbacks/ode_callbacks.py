# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Chapter 5 · ODE callbacks

# %%
import sys

if "google.colab" in sys.modules:  # on Colab: the course's helper package, and nothing else
    get_ipython().run_line_magic("pip", "install -q --no-deps git+https://github.com/under-the-hood-course/under-the-hood@v1.0.0")

import math
from collections.abc import Callable

import numpy as np
import torch

from underhood import check, ode, ready
from underhood.ode import BETA1, BETA2, GAMMA, Q_MAX, Q_MIN, A, C, E, R, RightHandSide

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-rk_step", "locked": false, "schema_version": 3, "solution": true, "task": false}
def rk_step(
    f: RightHandSide, t: float, y: np.ndarray, h: float, k1: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """One step of Tsit5, from t to t + h.

    Parameters
    ----------
    f
        Right-hand side, f(t, y) -> float64 (n,).
    t, y
        Where the step starts; y is float64 (n,).
    h
        Step size; negative when time runs backward.
    k1
        The slope at the start, (n,), where it is known already: f is not asked for it again.

    Returns
    -------
    tuple of y_new, float64 (n,), and K, float64 (7, n)
        The new state and the seven slopes. K[0] is the slope at the start, K[6] is f(t + h, y_new).

    Examples
    --------
    >>> rk_step(lambda t, y: t * y, 0.0, np.array([1.0]), 0.5)[0]
    array([1.13314987])
    """
    ### BEGIN SOLUTION
    K = np.empty((7, len(y)))
    K[0] = f(t, y) if k1 is None else k1
    for i in range(1, 7):
        stage = y + h * (A[i, :i] @ K[:i])
        K[i] = f(t + C[i] * h, stage)
    return stage, K  # the last stage is the new state: the last row of A holds the solution's weights
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-rk_step-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("rk_step")
### BEGIN HIDDEN TESTS
check("rk_step", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-err_norm", "locked": false, "schema_version": 3, "solution": true, "task": false}
def err_norm(K: np.ndarray, h: float, y: np.ndarray, y_new: np.ndarray, atol: float, rtol: float) -> float:
    """How large the error of a step is, in units of what is tolerated.

    Parameters
    ----------
    K
        The seven slopes of the step, float64 (7, n).
    h
        Step size.
    y, y_new
        States before and after, float64 (n,).
    atol, rtol
        A component tolerates atol + rtol · max(|y|, |y_new|).

    Returns
    -------
    float
        Root mean square, over the components, of estimated error / tolerated error. At most 1: good enough.

    Examples
    --------
    >>> K = np.zeros((7, 1)); K[6] = 66 * 3e-4
    >>> round(err_norm(K, 1.0, np.ones(1), np.ones(1), 0.0, 1e-3), 12)
    0.3
    """
    ### BEGIN SOLUTION
    tolerated = atol + rtol * np.maximum(np.abs(y), np.abs(y_new))
    return float(np.sqrt(np.mean((h * (E @ K) / tolerated) ** 2)))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-err_norm-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("err_norm")
### BEGIN HIDDEN TESTS
check("err_norm", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-pi_control", "locked": false, "schema_version": 3, "solution": true, "task": false}
def pi_control(err: float, err_old: float, h: float) -> tuple[bool, float, float]:
    """Accept or reject a step, and choose the next step size (a PI controller).

    Parameters
    ----------
    err
        Error of this step, from err_norm; 0 or more.
    err_old
        The error remembered from the last accepted step, at least 1e-4.
    h
        Size of this step, positive.

    Returns
    -------
    tuple of bool, float, float
        Whether err is at most 1, the next step size, and the error to remember.

    Examples
    --------
    >>> accept, h_new, err_old = pi_control(0.5, 0.3, 0.1)
    >>> accept, round(h_new, 6), err_old
    (True, 0.090065, 0.5)
    """
    ### BEGIN SOLUTION
    if err <= 1:
        q = err**BETA1 / err_old**BETA2 / GAMMA
        return True, h / min(max(q, 1 / Q_MAX), 1 / Q_MIN), max(err, 1e-4)
    return False, h / min(err**BETA1 / GAMMA, 1 / Q_MIN), err_old
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-pi_control-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("pi_control")
### BEGIN HIDDEN TESTS
check("pi_control", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-init_dt", "locked": false, "schema_version": 3, "solution": true, "task": false}
def init_dt(f: RightHandSide, t0: float, y0: np.ndarray, atol: float, rtol: float, dt_max: float = math.inf) -> float:
    """A first step size, from the sizes of the state, its slope and its curvature.

    Parameters
    ----------
    f
        Right-hand side, f(t, y) -> (n,).
    t0, y0
        Where the run starts; y0 is float64 (n,).
    atol, rtol
        Sizes are counted in units of atol + rtol · |y0|.
    dt_max
        Neither the trial step nor the result is longer.

    Returns
    -------
    float
        Positive.

    Examples
    --------
    >>> init_dt(lambda t, y: np.array([y[1], -y[0]]), 0.0, np.array([1.0, 0.0]), 1e-6, 1e-3)
    0.0009990009990009992
    """
    ### BEGIN SOLUTION
    def size(x: np.ndarray) -> float:
        return float(np.sqrt(np.mean((x / (atol + rtol * np.abs(y0))) ** 2)))

    f0 = np.asarray(f(t0, y0))
    d0, d1 = size(y0), size(f0)
    dt0 = min(1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1, dt_max)
    d2 = size(np.asarray(f(t0 + dt0, y0 + dt0 * f0)) - f0) / dt0
    steepest = max(d1, d2)
    dt1 = max(1e-6, 1e-3 * dt0) if steepest <= 1e-15 else 10 ** (-(2 + math.log10(steepest)) / 5)
    return min(100 * dt0, dt1, dt_max)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-init_dt-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("init_dt")
### BEGIN HIDDEN TESTS
check("init_dt", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-dense", "locked": false, "schema_version": 3, "solution": true, "task": false}
def dense(theta: float | np.ndarray, y: np.ndarray, h: float, K: np.ndarray, derivative: bool = False) -> np.ndarray:
    """The state within a step, at t + theta · h, or its slope there.

    Parameters
    ----------
    theta
        Fraction of the step, 0 to 1: one number, or an array (m,).
    y
        State at the start of the step, float64 (n,).
    h
        Step size.
    K
        The seven slopes of the step, float64 (7, n).
    derivative
        Give dy/dt instead of y.

    Returns
    -------
    float64 array
        (n,) for one theta, (m, n) for m of them.

    Examples
    --------
    >>> K = np.ones((7, 1))  # y' = 1
    >>> dense(np.array([0.0, 0.5, 1.0]), np.array([2.0]), 0.1, K).round(12).tolist()
    [[2.0], [2.05], [2.1]]
    """
    ### BEGIN SOLUTION
    theta = np.asarray(theta, dtype=np.float64)[..., None]
    powers = np.arange(1, 5)
    if derivative:
        return (powers * theta ** (powers - 1)) @ R.T @ K
    return y + h * (theta**powers @ R.T @ K)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-dense-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("dense")
### BEGIN HIDDEN TESTS
check("dense", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-bracket_root", "locked": false, "schema_version": 3, "solution": true, "task": false}
def bracket_root(g: Callable[[float], float], a: float, b: float, side: str = "left") -> float:
    """The float next to a sign change of g between a and b.

    Parameters
    ----------
    g
        Function of one number.
    a, b
        The bracket. The solver comes from a; when time runs backward, a is the larger one. g(a) is not 0.
    side
        "left": the last float on a's side of the sign change. "right": the first float on b's side.

    Returns
    -------
    float
        A float where g is exactly 0 is returned as soon as it is met, whatever the side; b is looked at first.

    Raises
    ------
    ValueError
        If g is nan somewhere on the way, or does not change its sign between a and b.

    Examples
    --------
    >>> bracket_root(lambda t: t * t - 2, 1.0, 2.0), bracket_root(lambda t: t * t - 2, 1.0, 2.0, "right")
    (1.414213562373095, 1.4142135623730951)
    """
    ### BEGIN SOLUTION
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
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-bracket_root-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("bracket_root")
### BEGIN HIDDEN TESTS
check("bracket_root", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-detect", "locked": false, "schema_version": 3, "solution": true, "task": false}
def detect(G: np.ndarray, prev_sign: np.ndarray, directions: np.ndarray) -> tuple[int | None, np.ndarray]:
    """The first sample at which some condition has crossed zero, and which conditions have.

    Parameters
    ----------
    G
        Conditions at m + 1 sample times, float64 (m + 1, n). Row 0 is the start of the step.
    prev_sign
        Signs to start from, -1, 0 or +1, (n,): those of row 0. Row 1 is compared with them, every later row with the
        signs of the row before it.
    directions
        (n,): +1 only rising crossings count (from minus to plus), -1 only falling ones, 0 both.

    Returns
    -------
    tuple of int or None, and int array
        The first row (1 … m) with a crossing that counts, and the conditions that cross there, lowest first.
        None and an empty array where there is none. Arriving at exactly 0 is a crossing, leaving 0 is none.

    Examples
    --------
    >>> detect(np.array([[1.0], [-1.0], [2.0]]), np.array([1.0]), np.array([0]))
    (1, array([0]))
    """
    ### BEGIN SOLUTION
    signs = np.sign(G[1:])
    before = np.vstack([prev_sign, signs])[:-1]  # the sign that each row is compared with
    rises, falls = (before < 0) & (signs >= 0), (before > 0) & (signs <= 0)
    hits = (rises & (directions >= 0)) | (falls & (directions <= 0))
    if not hits.any():
        return None, np.array([], dtype=np.int64)
    j = int(hits.any(axis=1).argmax())
    return j + 1, np.flatnonzero(hits[j])
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-detect-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("detect")
### BEGIN HIDDEN TESTS
check("detect", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-first_event", "locked": false, "schema_version": 3, "solution": true, "task": false}
def first_event(candidates: list[tuple[int, float]], tdir: int = 1) -> tuple[int, float]:
    """The event that happens first.

    Parameters
    ----------
    candidates
        Pairs (index, time of the root), at least one, in any order.
    tdir
        +1 when time runs forward, -1 when it runs backward.

    Returns
    -------
    tuple of int and float
        Index and time of the earliest one in the direction of time; of equal times the lowest index.

    Examples
    --------
    >>> first_event([(0, 1.0), (1, 0.8)])
    (1, 0.8)
    """
    ### BEGIN SOLUTION
    return min(candidates, key=lambda candidate: (tdir * candidate[1], candidate[0]))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-first_event-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("first_event")
### BEGIN HIDDEN TESTS
check("first_event", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-apply_event", "locked": false, "schema_version": 3, "solution": true, "task": false}
def apply_event(
    f: RightHandSide,
    t: float,
    y: np.ndarray,
    affect: Callable[[np.ndarray, int], None],
    index: int,
    save_positions: tuple[bool, bool] = (True, True),
) -> tuple[np.ndarray, np.ndarray, list[tuple[float, np.ndarray]]]:
    """Let an affect act, and leave nothing stale behind.

    Parameters
    ----------
    f
        Right-hand side, f(t, y) -> (n,).
    t, y
        Time and state of the event; y is float64 (n,) and stays as it is.
    affect
        affect(y, index) changes the array that it is given in place, and returns nothing.
    index
        The condition that fired.
    save_positions
        Whether to save the state (before, after) the affect.

    Returns
    -------
    tuple of y_new (n,), k1 (n,) and saved
        The state after the affect, the slope f(t, y_new), and a list of pairs (t, copy of the state), before first.

    Examples
    --------
    >>> def double(y, index): y[index] *= 2
    >>> apply_event(lambda t, y: -y, 0.5, np.array([1.0, 3.0]), double, 1)[:2]
    (array([1., 6.]), array([-1., -6.]))
    """
    ### BEGIN SOLUTION
    y_new = np.array(y, dtype=np.float64)
    affect(y_new, index)
    k1 = f(t, y_new)
    before, after = save_positions
    return y_new, k1, [(t, np.array(y))] * bool(before) + [(t, y_new.copy())] * bool(after)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-apply_event-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("apply_event")
### BEGIN HIDDEN TESTS
check("apply_event", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-extinct", "locked": false, "schema_version": 3, "solution": true, "task": false}
def extinct(
    f: RightHandSide, y: np.ndarray, alive: np.ndarray, index: int
) -> tuple[np.ndarray, np.ndarray, RightHandSide]:
    """Take a species out of the web for good.

    Parameters
    ----------
    f
        Right-hand side of the whole web, f(t, u) -> (n,).
    y
        State, float64 (n,).
    alive
        float64 (n,): 1 for species that live, 0 for those that died before.
    index
        The species that dies now.

    Returns
    -------
    tuple of y (n,), alive (n,), and a right-hand side
        The species is 0 in both arrays; both are new ones. In g(t, u) every dead species has derivative 0, and the
        others see 0 in its place, whatever u holds there.

    Examples
    --------
    >>> y, alive, g = extinct(lambda t, u: u + u.sum(), np.array([1.0, 2.0]), np.ones(2), 0)
    >>> y, alive, g(0.0, np.array([5.0, 2.0]))
    (array([0., 2.]), array([0., 1.]), array([0., 4.]))
    """
    ### BEGIN SOLUTION
    y, alive = np.array(y, dtype=np.float64), np.array(alive)
    y[index], alive[index] = 0, 0
    return y, alive, lambda t, u: alive * f(t, alive * u)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-extinct-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("extinct")
### BEGIN HIDDEN TESTS
check("extinct", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-bounce", "locked": false, "schema_version": 3, "solution": true, "task": false}
def bounce(h: float, v: float, e: float, g: float = 9.81, tol: float = 1e-6) -> tuple[float, float, bool, float]:
    """A ball meets the floor.

    Parameters
    ----------
    h, v
        Height, 0 up to rounding, and speed in m/s, not positive: down is negative.
    e
        The share of its speed that the ball keeps, between 0 and 1.
    g
        Gravity in m/s², positive.
    tol
        A rebound slower than this does not leave the floor any more.

    Returns
    -------
    tuple of float, float, bool, float
        Height (0), speed, whether the ball rests on the floor from now on, and the longest step to allow: half the time
        of the next flight, inf for a ball that rests.

    Examples
    --------
    >>> bounce(1e-15, -4.0, 0.5, 10.0)
    (0.0, 2.0, False, 0.2)
    """
    ### BEGIN SOLUTION
    v = -e * v
    if v < tol:
        return 0.0, 0.0, True, math.inf
    return 0.0, v, False, v / g  # a flight takes 2 v / g
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-bounce-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("bounce")
### BEGIN HIDDEN TESTS
check("bounce", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "05_ode_callbacks-event_time_grad", "locked": false, "schema_version": 3, "solution": true, "task": false}
def event_time_grad(
    g: Callable, f: RightHandSide, t: float, y: np.ndarray, S: np.ndarray, g_theta: float | np.ndarray = 0.0
) -> np.ndarray:
    """How the time of an event moves when parameters do: the implicit function theorem.

    Parameters
    ----------
    g
        The condition, written in torch: g(t, y) with float64 tensors () and (n,) gives a tensor (). It need not use both.
    f
        Right-hand side in numpy, before the event, f(t, y) -> (n,).
    t, y
        Time and state of the event, before the affect; y is float64 (n,).
    S
        Sensitivity of the state at fixed time t: S[i, p] = d y[i] / d parameter p, float64 (n, p).
    g_theta
        Derivative of g with respect to the parameters themselves, a number or (p,).

    Returns
    -------
    float64 array (p,)
        -(g_y S + g_theta) / (g_t + g_y f), in numpy.

    Raises
    ------
    ValueError
        If the denominator is 0: the solution touches the line without crossing it.

    Examples
    --------
    >>> fall = lambda t, y: np.array([y[1], -10.0])
    >>> event_time_grad(lambda t, y: y[0], fall, 1.0, np.array([0.0, -10.0]), np.array([[1.0], [0.0]]))
    array([0.1])
    """
    ### BEGIN SOLUTION
    time = torch.tensor(t, dtype=torch.float64, requires_grad=True)
    state = torch.tensor(y, dtype=torch.float64, requires_grad=True)
    g_t, g_y = torch.autograd.grad(g(time, state), (time, state), allow_unused=True, materialize_grads=True)
    g_t, g_y = g_t.item(), g_y.numpy()
    rate = g_t + g_y @ np.asarray(f(t, np.asarray(y)), dtype=np.float64)
    if rate == 0:
        raise ValueError("g does not change along the solution: the event time has no gradient")
    return -(g_y @ np.asarray(S) + g_theta) / rate
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "05_ode_callbacks-event_time_grad-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("event_time_grad")
### BEGIN HIDDEN TESTS
check("event_time_grad", hidden=True)
### END HIDDEN TESTS

