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
#
# Somebody simulates four species. One that falls to a biomass of 0.05 is extinct, so a *callback* sets it to zero. Yet "the
# solver seems to almost ignore the callback". You will build a solver with callbacks, see that it ignores nothing, and give the
# answer that was wanted.
#
# ![Two panels of biomass over time. Left, as asked: species 4 is set to zero at t = 1.18 and goes on down, to -203 at t = 10, while species 1 and 2 grow. Right, as wanted: species 4 stays at zero and the others decline slowly.](figures/two_webs.png)
#
# *The reason in one sentence: the callback puts species 4 at zero, where its derivative is −6.8, so the next step takes it
# below zero; only a derivative that is frozen as well keeps it there.*
#
# **When you are done you will be able to**
#
# - build an adaptive Runge–Kutta solver: step, error, step size, interpolation;
# - find an event to the last bit, and say which of several comes first;
# - change the state at an event without leaving anything stale behind;
# - explain events that are missed, doubled, or pile up;
# - differentiate the time of an event.
#
# **You need** numpy, derivatives, and for the last exercise torch's autograd (chapter 2). **It takes** about 160 minutes: ten
# cards with twelve exercises, worth 45 points.

# %%
import sys

if "google.colab" in sys.modules:  # on Colab: the course's helper package, and nothing else
    package = "underhood @ git+https://github.com/under-the-hood-course/under-the-hood@v1.0.0#subdirectory=course"
    get_ipython().run_line_magic("pip", f'install -q --no-deps "{package}"')

import math
from collections.abc import Callable

import numpy as np
import torch

from underhood import check, ode, ode_experiments, ode_peers, ready
from underhood.ode import BETA1, BETA2, GAMMA, Q_MAX, Q_MIN, A, C, E, R, RightHandSide
from underhood.plots import ode as plots

# %% [markdown]
# ## Is the callback ignored?
#
# The model is u′ = M u with ten units of each species at t = 0 (`ode.food_web`). The asker used Julia; here scipy runs the same
# rule: whenever a species falls through 0.05, an **affect** prints a line and sets the species to zero. Affect is the callbacks'
# word for "what is done".
#
# How many lines do you expect until t = 10, and what will species 4 be at the end?

# %%
def reset(t, u, index):
    print(f"t = {t:.6f}: species {index + 1} is at {u[index]:.3f} and becomes 0")
    u[index] = 0.0

start = ode.FOOD_WEB_START
events, u = ode_peers.scipy_with_restarts(ode.food_web, start, (0, 10), 0.05, reset)
print("u(10) =", u.round(4))

# %% [markdown]
# Two lines: the callback is called, and yet species 4 ends at −203. Predict: which of these four methods, at which tolerance, keeps
# species 4 at zero?

# %%
def silent(t, u, index):
    u[index] = 0.0

for method in ("RK45", "DOP853", "Radau", "LSODA"):
    for rtol in (1e-4, 1e-8):
        events, u = ode_peers.scipy_with_restarts(ode.food_web, start, (0, 10), 0.05, silent, method, rtol)
        print(f"{method:7} rtol {rtol:.0e}   species 4 at t = 10: {u[3]:.3f}")

# %% [markdown]
# None. All agree, so the solver is not to blame. Ask the model: how fast does each species change right after the first reset?

# %%
after = np.array([5.34746266, 5.73106247, 7.64667778, 0.0])  # the state at t = 1.178965, species 4 set to zero
print("u' =", ode.food_web(1.178965, after).round(3))
without = ode_peers.scipy_with_restarts(ode.food_web, start, (0, 10), -np.inf, silent)[1]
print("u(10) without any callback:", without.round(3))

# %% [markdown]
# Species 4 sits at 0 with a derivative of −6.8. One step later it is negative, and a negative species 4 *feeds* species 1 and 2.
# Without any callback u(10) differs by half a percent: on a plot nobody could tell whether it ran.
#
# The cure will be to freeze the derivative. First you build the machine:
#
# | what | your function |
# |---|---|
# | try a step | `rk_step` |
# | how wrong is it? | `err_norm` |
# | keep it? how long is the next? | `pi_control`, `init_dt` |
# | where are we between the ends? | `dense` |
# | did a condition cross zero? | `detect` |
# | when exactly, and which was first? | `bracket_root`, `first_event` |
# | act | `apply_event` |
#
# `ode.solve` holds the loop and calls your functions. Names and rules are those of DifferentialEquations.jl, *generation 6*, which
# the question used: an affect gets one index. In generation 7 (2026) it gets a mask of all components that fire, and the asker's
# code fails; `simultaneous="mask"` selects that rule.

# %% [markdown]
# ## A solver in five functions
#
# ### **Exercise 5.1 · one step of Tsit5** — *medium · 15 min · 4 points*
#
# A Runge–Kutta step samples the slope f(t, y) at seven places and mixes the samples. **Tsit5** (Tsitouras 2011) is the
# asker's method. Slope i is
#
# K[i] = f(t + C[i] · h, y + h · (A[i,0] · K[0] + … + A[i,i−1] · K[i−1])).
#
# The last row of A holds the solution's weights: K[6] is taken at the new state. So it is the next step's K[0] ("first same as
# last"), and may be handed over as `k1`.
#
# For y′ = t y from y(0) = 1 with h = 0.5: K[1] = f(0.0805, 1) = 0.0805, and y_new = 1.1331499, exact to seven digits.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Write K[1] and K[2] for y′ = t y by hand. Which rows of K does each use?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Loop over i = 1 … 6. Each stage starts from y: add h times row i of A (its first i entries) times the first i rows of K.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `stage = y + h * (A[i, :i] @ K[:i])`, then `K[i] = f(t + C[i] * h, stage)`. After the loop, `stage` is the new state.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# The error of one step should fall with the sixth power of h. By which factor, when h is halved?

# %%
if ready("rk_step"):
    sizes, errors = [0.4, 0.2, 0.1, 0.05], []
    for h in sizes:
        y, K = rk_step(lambda t, y: np.array([y[1], -y[0]]), 0.0, np.array([1.0, 0.0]), h)
        errors.append(np.abs(y - [math.cos(h), -math.sin(h)]).max())
    plots.show_errors({"one step": errors}, sizes, "error of one step")

# %% [markdown]
# ### **Exercise 5.2 · how large is the error?** — *easy · 8 min · 3 points*
#
# The seven slopes give a second, less accurate solution for free. The difference, h · (E @ K), estimates the error. A component
# tolerates atol + rtol · max(|y|, |y_new|). Divide, and take the root mean square.
#
# Errors of 3e-4 and 4e-4 where 1e-3 is tolerated: √((0.3² + 0.4²) / 2) = 0.354. Below 1, so the step is good.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Which quantities have one entry a component, and where do they become one number?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Tolerated error (n,), estimated error (n,), root of the mean of the squared ratios.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `np.sqrt(np.mean((h * (E @ K) / tolerated) ** 2))` with `np.maximum(np.abs(y), np.abs(y_new))` inside `tolerated`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ### **Exercise 5.3 · the next step size** — *medium · 20 min · 6 points · uses 5.2*
#
# **`pi_control`** looks at this error and at the last one. With err ≤ 1 the step is kept, and h is divided by
#
# q = err^BETA1 / err_old^BETA2 / GAMMA, no less than 1 / Q_MAX and no more than 1 / Q_MIN;
#
# max(err, 1e-4) is remembered. Otherwise the step is rejected, h is divided by err^BETA1 / GAMMA (at most 1 / Q_MIN), and
# err_old stays. For err = 0.5, err_old = 0.3, h = 0.1: q = 1.1103, the next h is 0.0901.
#
# **`init_dt`**, sizes being root mean squares in units of atol + rtol · |y0|:
#
# 1. d0 and d1 are the sizes of y0 and f0 = f(t0, y0);
# 2. dt0 = 0.01 · d0 / d1, or 1e-6 if d0 or d1 is below 1e-5; at most dt_max;
# 3. d2 = size of f(t0 + dt0, y0 + dt0 · f0) − f0, divided by dt0;
# 4. with m = max(d1, d2): dt1 = 10^(−(2 + log10 m) / 5), or max(1e-6, dt0 / 1000) if m ≤ 1e-15;
# 5. the smallest of 100 · dt0, dt1 and dt_max.
#
# For the oscillator from (1, 0) at tolerances 1e-6 and 1e-3 that is 0.000999.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# For `pi_control`: what should come out for err = 0? For `init_dt`: what are d0 and d1 of a state of zeros?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Two branches in `pi_control`. In `init_dt` a small inner function for the size saves repeating the formula.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `return True, h / min(max(q, 1 / Q_MAX), 1 / Q_MIN), max(err, 1e-4)`; and `min(100 * dt0, dt1, dt_max)`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# Enough for a run without callbacks. How many points do you expect for the food web at the asker's tolerances: about 16, 160 or
# 1600?

# %%
me = globals()  # your functions, by name
asked = {"reltol": 1e-10, "abstol": 1e-15}
if ready("rk_step", "err_norm", "pi_control", "init_dt"):
    run = ode.solve(me, ode.food_web, start, (0.0, 10.0), dense=False, **asked)
    print(len(run.t), "points,", run.statistics.nf, "calls of f,", run.statistics.nreject, "steps rejected")
    print("u(10) =", run.u[-1])

# %% [markdown]
# ### **Exercise 5.4 · between the steps** — *medium · 12 min · 4 points · uses 5.1*
#
# An event seldom falls on the end of a step. With θ the fraction of the step, the seven slopes give the state anywhere inside:
#
# y(t + θh) = y + h · (b₀(θ) K[0] + … + b₆(θ) K[6]), with bᵢ(θ) = R[i,0] θ + R[i,1] θ² + R[i,2] θ³ + R[i,3] θ⁴.
#
# At θ = 1 this is y_new. The derivative with respect to time needs no h: at θ = 0 it is K[0], at θ = 1 it is K[6]. Half of the
# oscillator's step of 0.5 from (1, 0): (0.9689185, −0.2474062).

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# What is bᵢ(θ) for all i at once, as a product of R with something?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Powers of θ in rows: (m, 4) @ (4, 7) @ (7, n). The derivative replaces θʲ by j θʲ⁻¹.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `theta = np.asarray(theta)[..., None]`, `powers = np.arange(1, 5)`, then `theta**powers @ R.T @ K`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## Events
#
# ### **Exercise 5.5 · the last float before the root** — *medium · 15 min · 5 points*
#
# An event is a root of a **condition** g. The best answer is one of two *neighboring* floats with different signs of g. The left
# one, where the solver comes from, keeps a ball above the floor and a species above the threshold.
#
# t² − 2 on [1, 2]: left 1.414213562373095, right 1.4142135623730951, and no float in between. t − 0.5 on [0, 1] is exactly 0 at
# 0.5: return 0.5 for either side. An absolute tolerance would be wrong: it makes scipy miss an event at 1e-13 by 0.003 percent.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# When are a and b neighbors? Look at what a + (b − a) / 2 becomes then.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Check both ends (nan, exact root at b, no sign change). Then bisect: replace the end whose sign the middle shares; stop when the middle equals an end.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `while True: middle = a + (b - a) / 2` … `if middle in (a, b): return a if side == "left" else b`. Nothing here needs a < b.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ### **Exercise 5.6 · which condition crosses first?** — *medium · 20 min · 6 points*
#
# The solver asks all conditions at m + 1 times within a step. **`detect`** finds the first row in which any has crossed zero, and
# which have. A condition crosses upward from − to 0 or +, downward from + to 0 or −; one that is at 0 has left nothing yet and
# cannot fire. `directions` may forbid a crossing; the sign has changed all the same.
#
# Conditions 1 − t and 1.2 − 1.5 t at t = 0, 0.5, 1, 1.5, 2: the second is −0.3 in row 2, the first is 0.25 there. Answer: row 2,
# condition 1.
#
# Each hit gets its root from `bracket_root`. **`first_event`** then picks the earliest *in the direction of time*: [(0, 1.0), (1, 0.8)]
# gives (1, 0.8). Of equal times the lowest index wins.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Write the signs of one condition under each other. Which two signs does each row compare?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Stack prev_sign on the signs of rows 1 … m: the sign *before* each row. Rising: before < 0 and sign ≥ 0. Mask with directions; take the first row with a hit. `first_event` is a `min` with a key of two entries.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `before = np.vstack([prev_sign, signs])[:-1]` with `signs = np.sign(G[1:])`; `hits.any(axis=1).argmax()`; `key=lambda c: (tdir * c[1], c[0])`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ### **Exercise 5.7 · the event itself** — *hard · 20 min · 5 points · uses 5.1, 5.2, 5.3, 5.4, 5.5 and 5.6*
#
# Now act. Copy the state, let `affect(y_new, index)` change the copy, ask f for the slope *of the new state*, and save what the two
# flags ask for: the state before, the state after. Copies, for the solver goes on with its array.
#
# f(t, y) = −y, y = (1, 3) at t = 0.5, an affect that doubles component 1: y_new = (1, 6), k1 = (−1, −6), saved: (0.5, (1, 3)) and
# (0.5, (1, 6)).
#
# The part *together* is the asker's run with your whole solver: species 4, then 3, and 165 points, as printed in the question.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# The next step starts with k1. If it is the old slope, what does that step believe?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Copy first, act on the copy, then f(t, y_new). Build the list from the untouched y and the changed copy.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `saved = [(t, y.copy())] if before else []`, and the same with y_new for after.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# The question again, this time with your solver. 163 points without a callback: where do two more come from?

# %%
def zero(integrator, index):
    print(f"t = {integrator.t:.6f}: species {index + 1} becomes 0")
    integrator.u[index] = 0.0

if ready("dense", "bracket_root", "detect", "first_event", "apply_event"):
    callback = ode.VectorContinuousCallback(lambda t, u: u - 0.05, zero, 4, interp_points=1000, batched=True)
    wrong = ode.solve(me, ode.food_web, [10, 10, 10, 10], (0.0, 10.0), callback, progress=True, **asked)
    print(len(wrong.t), "points, u(10) =", wrong.u[-1])

# %% [markdown]
# Each event stands twice in the solution, before and after, and cuts one step in two: 163 + 4 − 2 = 165.
#
# ### Break it on purpose: a stale slope
#
# What if `apply_event` returned the slope from *before* the affect? Nothing crashes. The cell integrates y′ = −y with y := 3 at
# t = 0.5, in steps of fixed size, with your function and with a broken one. Predict both orders.

# %%
def stale(f, t, y, affect, index, save_positions):
    y_new, k1, saved = apply_event(f, t, y, affect, index, save_positions)
    return y_new, f(t, y), saved

if ready("rk_step", "apply_event"):
    sizes = [0.1, 0.05, 0.025]
    errors = {"fresh slope": ode_experiments.jump_errors(me, sizes), "stale slope": ode_experiments.jump_errors(me | {"apply_event": stale}, sizes)}
    plots.show_errors(errors, sizes, "error at t = 1")

# %% [markdown]
# Order 5 falls to order 1: the first step after the jump goes off in the old direction. An adaptive solver hides it behind
# rejected steps, 50 of them in the food web.
#
# ## Dead is dead
#
# ### **Exercise 5.8 · dead is dead** — *medium · 15 min · 4 points · uses 5.7*
#
# Give every species a flag: `alive` is 1 or 0. The right-hand side becomes g(t, u) = alive · f(t, alive · u). The inner mask hides the
# dead from the living, the outer one freezes them. Clipping u at zero inside f is not enough: f sees 0 and still pulls down.
#
# f(t, u) = u + (sum of u), u = (1, 2), and species 0 dies: y = (0, 2), alive = (0, 1), and g(0, (5, 2)) = (0, 4).

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
        others see 0 in its place, whatever u holds there. g leaves u as it is.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Which of the three results must be new objects, so that nothing old changes?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Copy y and alive, set the entry of both to 0, and return a function that uses the *new* mask.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `return y, alive, lambda t, u: alive * f(t, alive * u)`
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# The right answer to the question. Who dies before t = 10? And later?

# %%
alive = np.ones(4)
def die(integrator, index):
    global alive
    integrator.u, alive, integrator.f = extinct(ode.food_web, integrator.u, alive, index)

if ready("apply_event", "extinct"):
    callback = ode.VectorContinuousCallback(lambda t, u: u - 0.05, None, 4, affect_neg=die)
    web = ode.solve(me, ode.food_web, start, (0.0, 40.0), callback, **asked)
    plots.show_web(web)
    print("u(10) =", web(10.0))

# %% [markdown]
# Species 4 alone dies before t = 10; then 1, 2 and 3. Exact, by the matrix exponential: t = 1.178964545970 and u(10) = (0.634253320,
# 0.832482828, 1.645489129, 0). The asker's second event came from a species 4 of −53.
#
# The asker's real threshold was 10e-30, which is 1e-29, under abstol = 1e-15. Let u′ = −u fall from 1: it reaches 1e-29
# at t = 29 · ln 10 = 66.775. When does the solver say?

# %%
def time_of(f, u0, level, abstol=1e-15):
    callback = ode.ContinuousCallback(lambda t, u: u[0] - level, ode.terminate)
    return ode.solve(me, f, [u0], (0.0, 100.0), callback, reltol=1e-10, abstol=abstol, dense=False).t[-1]

if ready("apply_event", "detect", "bracket_root"):
    print(f"1e-29 under abstol 1e-15:  {time_of(lambda t, u: -u, 1.0, 1e-29):.6f}")
    print(f"a threshold of 1e-9:       {time_of(lambda t, u: -u, 1.0, 1e-9):.6f}  right: {9 * math.log(10):.6f}")
    print(f"abstol 1e-35:              {time_of(lambda t, u: -u, 1.0, 1e-29, 1e-35):.6f}")
    print(f"v = log u, v' = -1:        {time_of(lambda t, v: -np.ones(1), 0.0, math.log(1e-29)):.6f}")

# %% [markdown]
# Wrong by 26 units of time. Below abstol u is noise. Three cures: raise the threshold above abstol, lower abstol (or scale u)
# below the threshold, or take logarithms.
#
# ## The harder world
#
# Five inputs from public bug reports. Predict each before you run the cell:
#
# 1. g = (t − 2.5)(t − 2.6), looked at 10, then 100 times a step;
# 2. g = t − 0.5, where 0.5 is the end of a step;
# 3. g = t, where the run starts at 0;
# 4. conditions t, t − 1e-8, t − 2e-7, with time running from 1 to −1;
# 5. two conditions that are zero at the same time: an affect that takes one index, then one that takes a mask.

# %%
def times(*conditions, tspan=(0.0, 10.0), points=10, **settings):
    g = lambda t, u: np.array([condition(t) for condition in conditions])
    callback = ode.VectorContinuousCallback(g, lambda integrator, index: None, len(conditions), interp_points=points)
    run = ode.solve(me, lambda t, u: np.ones(1), [0.0], tspan, callback, **settings)
    return [(event.index, event.t) for event in run.events]

if ready("apply_event", "detect", "bracket_root", "first_event"):
    twice = lambda t: (t - 2.5) * (t - 2.6)
    print("1.", times(twice), times(twice, points=100))

# %%
def add(integrator, who):
    integrator.u[who if isinstance(who, int) else who != 0] += 1.0

if ready("apply_event", "detect", "bracket_root", "first_event"):
    print("2.", times(lambda t: t - 0.5, dt=0.25, dtmax=0.25), "\n3.", times(lambda t: t))
    print("4.", times(lambda t: t, lambda t: t - 1e-8, lambda t: t - 2e-7, tspan=(1.0, -1.0)))
    for rule in ("first", "mask"):
        both = ode.VectorContinuousCallback(lambda t, u: [t - 1, t - 1], add, 2, simultaneous=rule)
        print("5.", rule, ode.solve(me, lambda t, u: -u, [1.0, 1.0], (0.0, 5.0), both).u[-1].round(4))

# %% [markdown]
# 1. Two crossings between two looks cancel. More looks find them: `interp_points` is a promise about how close events can be.
# 2. One event. Asked with "≤" at both ends it would fire twice.
# 3. None: a condition that starts at zero has crossed nothing.
# 4. Latest first, to the last bit.
# 5. With one index the second is lost: after the first affect its condition is at zero. The mask gets both.
#
# After an event the condition is still about zero. So that it does not fire for ever, the solver reads the sign a hundredth of a
# step later. The ball shows the price.

# %% [markdown]
# ### **Exercise 5.9 · the ball and the floor** — *medium · 12 min · 3 points · uses 5.7*
#
# At the floor the speed turns around and shrinks: v becomes −e · v. Each flight lasts 2 v / g, shorter and shorter, and infinitely
# many of them fit into a finite time (for e = 0.9 and one meter: 8.58 s). Two rules end this:
#
# - a rebound slower than `tol` does not fly: height 0, speed 0, in contact, dt_max = inf;
# - otherwise the next step may be as long as *half* the next flight, v / g, so that the ball is seen in the air.
#
# 4 m/s down, e = 0.5, g = 10: (0.0, 2.0, False, 0.2).

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Compute the rebound first. Every other answer depends on it.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Two returns: one for a rebound below tol, one for the others.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `v = -e * v`, then `if v < tol: return 0.0, 0.0, True, math.inf`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# First the affect turns the speed around, nothing else; then with your function. How many bounces do you expect for e = 0.5, whose
# flights add up to 1.35 s?

# %%
if ready("apply_event", "bounce"):
    plain = ode_experiments.bouncing_ball(me, e=0.5, bounce=None)
    cured = ode_experiments.bouncing_ball(me, e=0.5, bounce=bounce, tol=1e-6)
    plots.show_balls({"turned around": plain, "with contact": cured})

# %% [markdown]
# After 7 bounces the flight is shorter than a hundredth of a step: where the sign is read, the ball is below the floor already, and no
# crossing is seen any more. Short steps cure that. With contact there are 23 bounces, as ⌈ln(tol / v₁) / ln e⌉ says.
#
# ## The gradient of an event time
#
# ### **Exercise 5.10 · how an event time moves** — *hard · 20 min · 5 points*
#
# When a parameter moves by δ, the state at the old event time moves by S δ, and g by (g_y S + g_θ) δ. Along the solution g changes by
# g_t + g_y f a unit of time. The event moves by as much time as makes up for it (implicit function theorem):
#
# dt/dθ = −(g_y S + g_θ) / (g_t + g_y f), with f from *before* the affect.
#
# A ball falls from h = 1 m to g = y[0] = 0 with speed −4.429: S = (1, 0), so dt/dh = −1 / −4.429 = 0.2258. torchdiffeq loses the g_θ
# term: a parameter inside the condition gets the gradient None.
#
# Let autograd find g_t and g_y. A condition may ignore t or y: then that gradient is zero, not an error.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Which derivatives does autograd have to find, and with respect to which two tensors?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Make float64 leaves of t and y, call g once, ask `torch.autograd.grad` for both gradients, and go back to numpy.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `torch.autograd.grad(g(time, state), (time, state), allow_unused=True, materialize_grads=True)`; then `rate = g_t + g_y @ f(t, y)`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# Test it as in chapter 2, against finite differences: the event time of species 4 becomes a torch function of the four starting
# values, with your gradient. Paste your `numeric_grad` and `grad_check` into the next cell; without them torch's own check is used.

# %%
# Paste numeric_grad and grad_check from chapter 2 here, if you like.

# %%
class EventTime(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u0):
        t, ctx.gradient = ode_experiments.death_of_species_4(me, u0.detach().numpy(), event_time_grad)
        return u0.new_tensor(t)

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * torch.from_numpy(ctx.gradient)

# %%
if ready("apply_event", "event_time_grad"):
    u0 = torch.full((4,), 10.0, dtype=torch.float64, requires_grad=True)
    time = EventTime.apply(u0)
    time.backward()
    print(f"t = {time.item():.9f}, dt/du0 =", u0.grad.numpy().round(8))
    if "grad_check" in me and "numeric_grad" in me:
        agree = me["grad_check"](EventTime.apply, u0.detach(), me["numeric_grad"])
    else:
        agree = torch.autograd.gradcheck(EventTime.apply, u0, eps=1e-4)
    print("agrees with finite differences:", agree)

# %% [markdown]
# ## What others do
#
# The same tiny inputs, all from public reports, through your solver and scipy, and through torchdiffeq and diffrax where they are
# installed (both stop at the first event of a condition). In which rows will scipy differ?

# %%
if ready("apply_event", "detect", "bracket_root", "first_event"):
    print(ode_peers.table(me))

# %% [markdown]
# scipy compares signs at the ends of steps only, reports a start on a root as an event, and finds roots to an absolute tolerance. It
# has no affect: stop, change, start again.
#
# ## Five questions
#
# 1. The callback sets u[3] = 0, and u[3] is negative one step later. Why?
#
# <details><summary>Answer</summary>
#
# The derivative there is −6.8. A callback changes the state once; the right-hand side goes on as before.
#
# </details>
#
# 2. Why does `bracket_root` return the float *before* the root?
#
# <details><summary>Answer</summary>
#
# There the barrier is not crossed yet: the ball is above the floor, the species at or above the threshold.
#
# </details>
#
# 3. A condition crosses zero twice in one step and no event is found. What helps?
#
# <details><summary>Answer</summary>
#
# More looks a step (`interp_points`) or shorter steps (`dtmax`). No sign change was seen, so a tighter root does not help.
#
# </details>
#
# 4. What goes stale when an affect changes the state?
#
# <details><summary>Answer</summary>
#
# The last slope, which "first same as last" would reuse. The solver does not crash, it loses accuracy or rejects steps.
#
# </details>
#
# 5. Why is a threshold of 1e-29 meaningless under abstol = 1e-15?
#
# <details><summary>Answer</summary>
#
# Each step may be wrong by 1e-15: below that, u is noise.
#
# </details>
#
# ## What you can now do
#
# You can build an adaptive solver with events, and ask of any solver where it looks, which roots it misses, what it does at a start on
# a root, and whether its event times have gradients. And you can answer the question: *the callback ran; freeze the derivative.*
#
# ## Keep your work
#
# On Binder and Colab your changes disappear with the session. Download this notebook before you close it: *File → Download* in
# JupyterLab and Binder, *File → Download → Download .ipynb* in Colab.
#
# [← Chapter 4 · Quantization](../04_quantization/quantization.ipynb) · [Chapter 1 · Basics](../01_basics/basics.ipynb)
