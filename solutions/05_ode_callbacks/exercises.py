"""The exercises of chapter 5: cases, known mistakes, hidden cases.

Most mistakes are right but for one thing, so that each shows one thing only.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from underhood import Build, Case, Exercise, Learner, Mistake
from underhood.ode import BETA1, BETA2, GAMMA, Q_MAX, Q_MIN, A, C, E, R

SWING = np.array([[0.0, 1.0], [-1.0, 0.0]])  # the oscillator: y1' = y2, y2' = -y1
OSCILLATOR = Build("ode.linear", matrix=SWING)
GROWING = Build("ode.growing")


def array(*numbers):
    return np.array(numbers, dtype=np.float64)


def random_linear(rng, n):
    """A random linear right-hand side without fast growth."""
    return Build("ode.linear", matrix=rng.normal(size=(n, n)) - np.eye(n))


def random_driven(rng, n):
    return Build("ode.driven", matrix=rng.normal(size=(n, n)) - np.eye(n), drive=rng.normal(size=n))


# ------------------------------------------------------------------------------------------------------------- rk_step


def random_steps(rng):
    """Random linear systems, with a drive that depends on time, and with a first slope that is not f(t, y)."""
    for n in (2, 3):
        h = float(rng.uniform(0.1, 0.4))
        yield Case(f"a random linear system of {n}", "one step", (random_linear(rng, n), 0.0, rng.normal(size=n), h))
    for h in (0.3, -0.2):
        t = float(rng.uniform(0.5, 2.0))
        about = "a random system driven in time" + ", backward" * (h < 0)
        yield Case(about, "time in f", (random_driven(rng, 2), t, rng.normal(size=2), h))
    y, k1 = rng.normal(size=2), rng.normal(size=2)
    yield Case("a random first slope", "k1 from before", (random_driven(rng, 2), 1.0, y, 0.25, k1))


def stepper(
    time=lambda t, c, h: t + c * h,
    stage=lambda y, h, slopes, previous: y + h * slopes,
    reuse=True,
    finish=lambda y, K, y_old, h: (y, K),
    in_place=False,
):
    """A right step, but for the given rules."""

    def rk_step(f, t, y, h, k1=None):
        K = np.zeros((7, len(y)))
        K[0] = f(t, y) if k1 is None or not reuse else k1
        y_new = y
        for i in range(1, 7):
            y_new = stage(y, h, A[i, :i] @ K[:i], y_new)
            K[i] = f(time(t, C[i], h), y_new)
        if in_place:
            y[:] = y_new
        return finish(y_new, K, y, h)

    return rk_step


def without_last_slope(y_new, K, y, h):
    K[6] = 0.0
    return y_new, K


RK_STEP = Exercise(
    name="rk_step",
    title="one step of Tsit5",
    level="medium",
    minutes=15,
    parts=("one step", "time in f", "k1 from before", "inputs untouched"),
    probe="ode.step",
    cases=(
        Case(
            "the oscillator from (1, 0), half a unit",
            "one step",
            (OSCILLATOR, 0.0, array(1, 0), 0.5),
            expected={
                "y_new": array(0.8775817883647173, -0.4794270833333333),
                "K": array(
                    [0.0, -1.0],
                    [-0.0805, -1.0],
                    [-0.1635, -0.9864969036164326],
                    [-0.42054775215818313, -0.8993501500844084],
                    [-0.4440610826289455, -0.8795815182943637],
                    [-0.4502162008906195, -0.8743697316970847],
                    [-0.4794270833333333, -0.8775817883647173],
                ),
            },
        ),
        Case(
            "y' = t y from t = 0",
            "time in f",
            (GROWING, 0.0, array(1), 0.5),
            expected={
                "y_new": array(1.1331498723097477),
                "K": array(
                    [0.0],
                    [0.0805],
                    [0.16570775625871328],
                    [0.4974593815969779],
                    [0.5513308470459246],
                    [0.5651840752091469],
                    [0.5665749361548739],
                ),
            },
        ),
        Case(
            "y' = t y from t = 1 backward",
            "time in f",
            (GROWING, 1.0, array(2), -0.5),
            expected={
                "y_new": array(1.3745801430137463),
                "K": array(
                    [2.0],
                    [1.6909605],
                    [1.4428273107393148],
                    [0.7329385514175717],
                    [0.629373377603545],
                    [0.605909546052882],
                    [0.6872900715068732],
                ),
            },
        ),
        Case(
            "the oscillator, with a first slope that is not f(t, y)",
            "k1 from before",
            (OSCILLATOR, 0.0, array(1, 0), 0.5, array(2, -1)),
            expected={
                "y_new": array(0.961974918658285, -0.5255463894042223),
                "K": array(
                    [2.0, -1.0],
                    [-0.0805, -1.161],
                    [-0.19050619276713474, -0.9780162481240756],
                    [0.10988541364583507, -3.7375987115062683],
                    [0.6647695822462761, -6.079702131103999],
                    [0.7996094328347375, -6.590990126507298],
                    [-0.5255463894042223, -0.961974918658285],
                ),
                "calls of f": 6,
            },
        ),
    ),
    hidden=random_steps,
    mistakes=(
        Mistake(
            "asking every stage at the time where the step starts",
            stepper(time=lambda t, c, h: t),
            hint="The oscillator cannot tell: its f does not look at t. Where in the step does stage i lie? C knows.",
        ),
        Mistake(
            "asking every stage at the time where the step ends",
            stepper(time=lambda t, c, h: t + h),
            hint="Each stage has a time of its own between the two ends. Which constant holds the fractions?",
        ),
        Mistake(
            "leaving the step size out of the times",
            stepper(time=lambda t, c, h: t + c),
            hint="C counts in steps: C[6] is 1, and the last slope is taken at t + h.",
        ),
        Mistake(
            "leaving the step size out of the stages",
            stepper(stage=lambda y, h, slopes, previous: y + slopes),
            hint="A slope is a change per unit of time. How much time passes in one step?",
        ),
        Mistake(
            "starting each stage from the stage before",
            stepper(stage=lambda y, h, slopes, previous: previous + h * slopes),
            hint="The weights of a row already hold all earlier slopes. From which state does every stage start?",
        ),
        Mistake(
            "asking f for the first slope although it was given",
            stepper(reuse=False),
            hint="K[0] should be k1 where there is one. That saves one call of f in every step.",
        ),
        Mistake(
            "leaving the seventh slope at zero",
            stepper(finish=without_last_slope),
            hint="The next step and the interpolant need the slope at the new state. Which row of K is it?",
        ),
        Mistake(
            "going on with the fourth-order solution",
            stepper(finish=lambda y_new, K, y, h: (y_new - h * (E @ K), K)),
            hint="E is the difference between the two solutions: it measures the step, the step does not use it.",
        ),
        Mistake(
            "writing the new state into y",
            stepper(in_place=True),
            hint="A rejected step starts again from the old state. What does y[:] = … do to the caller's array?",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------------ err_norm

FIRST_Y = array(1, 0)
FIRST_NEW, FIRST_K = stepper()(lambda t, y: SWING @ y, 0.0, FIRST_Y, 0.5)


def last_slope(*numbers):
    """Seven slopes of which all but the last are zero, so that E @ K is a 66th of it."""
    K = np.zeros((7, len(numbers)))
    K[6] = numbers
    return K


def random_errors(rng):
    """Random slopes and states; with components that are zero, negative or change much within the step."""
    for n in (2, 4):
        K = rng.normal(size=(7, n))
        y = rng.uniform(0.5, 2, n)
        y_new = y + rng.normal(size=n) * 0.1
        yield Case(f"random slopes of {n}", "values", (K, float(rng.uniform(0.01, 0.1)), y, y_new, 1e-2, 1e-2))
    K = rng.normal(size=(7, 3))
    y, y_new = array(0, -1, 3) * rng.uniform(1, 2), array(1, -2, -1) * rng.uniform(1, 2)
    yield Case("zero and negative components", "tolerances", (K, 0.1, y, y_new, 1e-3, 1e-1))
    yield Case("zero at the end of the step", "tolerances", (K, 0.1, y_new, y, 1e-3, 1e-1))


def norm_of(
    scale=lambda y, y_new, atol, rtol: atol + rtol * np.maximum(np.abs(y), np.abs(y_new)),
    error=lambda K, h: h * (E @ K),
    size=lambda x: np.sqrt(np.mean(x**2)),
):
    """The right norm, but for the given rules."""

    def err_norm(K, h, y, y_new, atol, rtol):
        return float(size(error(K, h) / scale(y, y_new, atol, rtol)))

    return err_norm


ERR_NORM = Exercise(
    name="err_norm",
    title="how large is the error?",
    level="easy",
    minutes=8,
    parts=("values", "tolerances", "inputs untouched"),
    cases=(
        Case(
            "errors of 3e-4 and 4e-4 where 1e-3 is tolerated",
            "values",
            (last_slope(66 * 3e-4, 66 * 4e-4), 1.0, array(1, 1), array(1, 1), 0.0, 1e-3),
            expected=0.3535533905932738,
        ),
        Case(
            "the first step of the oscillator",
            "values",
            (FIRST_K, 0.5, FIRST_Y, FIRST_NEW, 1e-6, 1e-3),
            expected=0.0194424672747,
        ),
        Case(
            "states that are zero, then negative: 3e-4 and 4e-4 are tolerated",
            "tolerances",
            (last_slope(66 * 6e-4, 66 * 8e-4), 0.5, array(0, -3), array(-2, 1), 1e-4, 1e-4),
            expected=1.0,
        ),
    ),
    hidden=random_errors,
    mistakes=(
        Mistake(
            "leaving the step size out of the error",
            norm_of(error=lambda K, h: E @ K),
            hint="E @ K is a slope. What turns a slope into a change of the state?",
        ),
        Mistake(
            "taking the largest component instead of the mean",
            norm_of(size=lambda x: np.max(np.abs(x))),
            hint="That is the maximum norm. Here one bad component is averaged with the good ones.",
        ),
        Mistake(
            "adding the squares without dividing by their number",
            norm_of(size=lambda x: np.sqrt(np.sum(x**2))),
            hint="Ten species should not make a step look worse than two. What does the m in rms stand for?",
        ),
        Mistake(
            "averaging absolute values instead of squares",
            norm_of(size=lambda x: np.mean(np.abs(x))),
            hint="Root mean square: which two of the three words are missing?",
        ),
        Mistake(
            "measuring against the state at the start of the step alone",
            norm_of(scale=lambda y, y_new, atol, rtol: atol + rtol * np.abs(y)),
            hint="A component that starts at zero has almost nothing to be measured against. Both ends count.",
        ),
        Mistake(
            "measuring against the new state alone",
            norm_of(scale=lambda y, y_new, atol, rtol: atol + rtol * np.abs(y_new)),
            hint="The third digit differs: both ends of the step count, the larger one decides.",
        ),
        Mistake(
            "forgetting that states can be negative",
            norm_of(scale=lambda y, y_new, atol, rtol: atol + rtol * np.maximum(y, y_new)),
            hint="The maximum of -3 and 1 is 1, but the state was 3 units away from zero.",
        ),
        Mistake(
            "taking atol for rtol and rtol for atol",
            norm_of(scale=lambda y, y_new, atol, rtol: rtol + atol * np.maximum(np.abs(y), np.abs(y_new))),
            hint="One of the two is multiplied by the state, the other is not. Which one is relative?",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------- pi_control


def random_control(rng):
    """Random errors, accepted and rejected; tiny, huge, and one that is exactly 1."""
    for _ in range(2):
        err, err_old, h = (float(x) for x in (rng.uniform(0.01, 0.9), rng.uniform(0.01, 0.9), rng.uniform(0.01, 1)))
        yield Case("an error below 1", "accepted steps", (err, err_old, h))
        yield Case("an error above 1", "rejected steps", (err + float(rng.uniform(1, 50)), err_old, h))
    yield Case("an error of exactly 1", "accepted steps", (1.0, err_old, h))
    yield Case("an error of zero", "limits", (0.0, err_old, h))
    yield Case("a tiny error", "limits", (err * 1e-12, err_old, h))
    yield Case("a small error", "limits", (err * 1e-6, 1e-4, h))
    yield Case("a huge error", "limits", (1e6 + err, err_old, h))


def controller(
    q=lambda err, err_old: err**BETA1 / err_old**BETA2 / GAMMA,
    q_rejected=lambda err, err_old: err**BETA1 / GAMMA,
    limits=(1 / Q_MAX, 1 / Q_MIN),
    remember=lambda err, err_old: max(err, 1e-4),
    remember_rejected=lambda err, err_old: err_old,
    good=lambda err: err <= 1,
):
    """A right controller, but for the given rules."""

    def pi_control(err, err_old, h):
        low, high = limits
        if good(err):
            return True, h / min(max(q(err, err_old), low), high), remember(err, err_old)
        return False, h / min(q_rejected(err, err_old), high), remember_rejected(err, err_old)

    return pi_control


def multiplying_by_q(err, err_old, h):
    accept, divided, remembered = controller()(err, err_old, h)
    return accept, h * (h / divided), remembered


PI_CONTROL = Exercise(
    name="pi_control",
    title="the next step size",
    level="medium",
    minutes=10,
    parts=("accepted steps", "rejected steps", "limits"),
    cases=(
        Case("the first step", "accepted steps", (0.5, 1e-4, 0.1), expected=(True, 0.04746644526085287, 0.5)),
        Case(
            "a step like the one before", "accepted steps", (0.5, 0.3, 0.1), expected=(True, 0.09006507379812587, 0.5)
        ),
        Case("an error of exactly 1", "accepted steps", (1.0, 1.0, 0.1), expected=(True, 0.09, 1.0)),
        Case("twice what is tolerated", "rejected steps", (2.0, 0.3, 0.1), expected=(False, 0.08167672397854449, 0.3)),
        Case(
            "ten times what is tolerated",
            "rejected steps",
            (10.0, 0.3, 0.2),
            expected=(False, 0.13039847281349823, 0.3),
        ),
        Case("no error at all", "limits", (0.0, 0.3, 0.1), expected=(True, 1.0, 1e-4)),
        Case("an error of 1e-9", "limits", (1e-9, 1e-4, 0.1), expected=(True, 0.7838672309604728, 1e-4)),
        Case("a million times what is tolerated", "limits", (1e6, 0.3, 0.1), expected=(False, 0.02, 0.3)),
    ),
    hidden=random_control,
    mistakes=(
        Mistake(
            "controlling with the present error alone",
            controller(q=lambda err, err_old: err**0.2 / GAMMA, q_rejected=lambda err, err_old: err**0.2 / GAMMA),
            hint="That is the I controller with exponent 1/5. The P in PI looks at the error of the step before as well.",
        ),
        Mistake(
            "remembering errors below 1e-4",
            controller(remember=lambda err, err_old: err),
            hint="A lucky step with error 0 would make the next q infinite. What is the least that is remembered?",
        ),
        Mistake(
            "remembering the error of a rejected step",
            controller(remember_rejected=lambda err, err_old: err),
            hint="A rejected step did not happen. Which error does the next attempt compare with?",
        ),
        Mistake(
            "multiplying by the old error where it divides",
            controller(q=lambda err, err_old: err**BETA1 * err_old**BETA2 / GAMMA),
            hint="If the error was small before and is large now, it is growing: should the next step be longer or shorter?",
        ),
        Mistake(
            "multiplying the step by q",
            multiplying_by_q,
            hint="q is above 1 where the error is large. Should the next step be longer then?",
        ),
        Mistake(
            "leaving out the safety factor",
            controller(q=lambda err, err_old: err**BETA1 / err_old**BETA2, q_rejected=lambda err, err_old: err**BETA1),
            hint="With an error of exactly 1 the next step would be as long as this one, and fail half of the time.",
        ),
        Mistake(
            "rejecting a step whose error is exactly 1",
            controller(good=lambda err: err < 1),
            hint="1 means as large as tolerated. Is that too large?",
        ),
        Mistake(
            "letting the old error in on rejected steps",
            controller(q_rejected=lambda err, err_old: err**BETA1 / err_old**BETA2 / GAMMA),
            hint="After a rejection there is no history to go by: only the present error counts.",
        ),
        Mistake(
            "letting the step grow without limit",
            controller(limits=(1e-300, 1 / Q_MIN)),
            hint="An error of 0 says nothing about how far the step may grow. Q_MAX does.",
        ),
        Mistake(
            "letting the step shrink without limit",
            controller(limits=(1 / Q_MAX, math.inf)),
            hint="One bad estimate should not end in a microscopic step. Q_MIN says how far it may shrink.",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------------- init_dt


def random_starts(rng):
    """Random systems; a state of zeros, a slope of zeros; a small dt_max."""
    for n in (2, 3):
        t0, y0 = float(rng.uniform(0.5, 2)), rng.normal(size=n) * 3
        atol, rtol = float(10.0 ** -rng.uniform(4, 10)), float(10.0 ** -rng.uniform(2, 6))
        yield Case(f"a random driven system of {n}", "values", (random_driven(rng, n), t0, y0, atol, rtol))
    scale = float(rng.uniform(1, 9))
    still = Build("ode.linear", matrix=np.zeros((2, 2)))
    yield Case("nothing moves", "zeros", (still, 0.0, array(scale, 1), 1e-6, 1e-3))
    pushed = Build("ode.driven", matrix=SWING * 1e-3, drive=array(scale, scale) * 1e-3)
    yield Case("it starts at zero", "zeros", (pushed, 1.0, array(0, 0), 1e-2, 1e-3))
    # The limit holds for the trial step as well: the curvature there is that of a much smaller step.
    for dt_max in (0.5, 1e-3):
        args = (random_driven(rng, 2), 0.0, rng.normal(size=2), 1e-6, 1e-3, dt_max * float(rng.uniform(0.01, 0.1)))
        yield Case("a small dt_max", "dt_max", args)


def starter(
    exponent=5,
    trial=lambda d0, d1, dt_max: min(1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1, dt_max),
    curvature=lambda d, dt0: d / dt0,
    time=lambda t0, dt0: t0 + dt0,
    scale=lambda y0, atol, rtol: atol + rtol * np.abs(y0),
    longest=lambda dt0, dt_max: min(100 * dt0, dt_max),
    norm=lambda x: float(np.sqrt(np.mean(x**2))),
):
    """A right first step, but for the given rules."""

    def init_dt(f, t0, y0, atol, rtol, dt_max=math.inf):
        tolerated = scale(y0, atol, rtol)
        f0 = f(t0, y0)
        d0, d1 = norm(y0 / tolerated), norm(f0 / tolerated)
        dt0 = trial(d0, d1, dt_max)
        d2 = curvature(norm((f(time(t0, dt0), y0 + dt0 * f0) - f0) / tolerated), dt0)
        steepest = max(d1, d2)
        dt1 = max(1e-6, 1e-3 * dt0) if steepest <= 1e-15 else 10 ** (-(2 + math.log10(steepest)) / exponent)
        return min(dt1, longest(dt0, dt_max))

    return init_dt


INIT_DT = Exercise(
    name="init_dt",
    title="the first step size",
    level="medium",
    minutes=10,
    parts=("values", "zeros", "dt_max"),
    tolerance=1e-13,
    second_of_card=True,
    cases=(
        Case(
            "the oscillator",
            "values",
            (OSCILLATOR, 0.0, array(1, 0), 1e-6, 1e-3),
            expected=0.0009990009990009992,
        ),
        Case(
            "y' = t y from t = 1",
            "values",
            (GROWING, 1.0, array(2, 1), 1e-6, 1e-3),
            expected=0.08698130118361588,
        ),
        Case(
            "a fast oscillator, driven in time",
            "values",
            (Build("ode.driven", matrix=10 * SWING, drive=array(0, 50)), 0.0, array(1, 0), 1e-3, 1e-3),
            expected=0.045730505192732564,
        ),
        Case(
            "the food web at the asker's tolerances",
            "values",
            (
                Build(
                    "ode.linear",
                    matrix=array(
                        [-0.7, 0.1, 0.15, -0.2], [0, -0.3, 0.05, -0.4], [-0.15, -0.005, -0.1, 0], [-1.7, 0.4, 0, 0.2]
                    ),
                ),
                0.0,
                array(10, 10, 10, 10),
                1e-15,
                1e-10,
            ),
            expected=0.004242012928189618,
        ),
        Case("a state of zeros", "zeros", (OSCILLATOR, 0.0, array(0, 0), 1e-6, 1e-3), expected=1e-6),
        Case(
            "a fall that starts at height 0 with speed 0",
            "zeros",
            (Build("ode.falling"), 0.0, array(0, 0), 1e-6, 1e-3),
            expected=1e-4,
        ),
        Case(
            "a fall that starts 1e-12 above the ground",
            "zeros",
            (Build("ode.falling"), 0.0, array(1e-12, 0), 1e-6, 1e-3),
            expected=1e-4,
        ),
        Case(
            "dt_max below what it would be",
            "dt_max",
            (OSCILLATOR, 0.0, array(1, 0), 1e-6, 1e-3, 1e-4),
            expected=1e-4,
        ),
        Case(
            "dt_max above what it would be",
            "dt_max",
            (OSCILLATOR, 0.0, array(1, 0), 1e-6, 1e-3, 1.0),
            expected=0.0009990009990009992,
        ),
        Case(
            "dt_max below the trial step alone",
            "dt_max",
            (GROWING, 0.01, array(2), 1e-6, 1e-3, 0.2),
            expected=0.0999680466453622,
        ),
    ),
    hidden=random_starts,
    mistakes=(
        Mistake(
            "taking the sixth root",
            starter(exponent=6),
            hint="Textbooks use 1 / (order + 1). OrdinaryDiffEq.jl divides by the order, which is 5.",
        ),
        Mistake(
            "comparing the two slopes without dividing by the time between them",
            starter(curvature=lambda d, dt0: d),
            hint="d2 is a second derivative: a change of slope per unit of time.",
        ),
        Mistake(
            "asking f for both slopes at the same time",
            starter(time=lambda t0, dt0: t0),
            hint="The trial step takes the state to y0 + dt0 f0. Where has the time gone meanwhile?",
        ),
        Mistake(
            "ignoring dt_max",
            starter(
                trial=lambda d0, d1, dt_max: 1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1,
                longest=lambda dt0, dt_max: 100 * dt0,
            ),
            hint="A caller who allows steps of at most 1e-4 does not expect a first one of 1e-3.",
        ),
        Mistake(
            "letting the trial step be longer than dt_max",
            starter(trial=lambda d0, d1, dt_max: 1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1),
            hint="f is asked at t0 + dt0. A caller who sets dt_max may have nothing to say beyond it.",
        ),
        Mistake(
            "letting the first step be as long as the slopes allow",
            starter(longest=lambda dt0, dt_max: dt_max),
            hint="Two slopes that happen to agree do not make the problem easy. How many times dt0 may the step be?",
        ),
        Mistake(
            "measuring sizes with absolute numbers instead of tolerances",
            starter(scale=lambda y0, atol, rtol: np.ones_like(y0)),
            hint="Everything is counted in units of what is tolerated: atol + rtol |y0|.",
        ),
    ),
)


# --------------------------------------------------------------------------------------------------------------- dense


def random_thetas(rng):
    """Random slopes and fractions of the step; forward and backward."""
    for h in (0.3, -0.2):
        y, K = rng.normal(size=3), rng.normal(size=(7, 3))
        yield Case("a random fraction", "one theta", (float(rng.uniform(0.1, 0.9)), y, h, K))
        yield Case("random fractions", "several thetas", (rng.uniform(0, 1, 4), y, h, K))
        yield Case("three fractions of a step of three", "several thetas", (rng.uniform(0, 1, 3), y, h, K))
        yield Case(
            "the slope at a random fraction",
            "derivative",
            (float(rng.uniform(0.1, 0.9)), y, h, K),
            {"derivative": True},
        )
        yield Case("slopes at random fractions", "derivative", (rng.uniform(0, 1, 2), y, h, K), {"derivative": True})


def interpolant(
    weights=lambda theta: sum(R[:, j] * theta ** (j + 1) for j in range(4)),
    slopes=lambda theta: sum((j + 1) * R[:, j] * theta**j for j in range(4)),
    state=lambda b, y, h, K: y + h * (b @ K),
    slope=lambda b, y, h, K: b @ K,
    shape=lambda x: x,
):
    """The right interpolant, but for the given rules."""

    def dense(theta, y, h, K, derivative=False):
        def one(th):
            return slope(slopes(th), y, h, K) if derivative else state(weights(th), y, h, K)

        return one(theta) if np.ndim(theta) == 0 else shape(np.array([one(th) for th in theta]))

    return dense


def hermite(theta, y, h, K, derivative=False):
    """The cubic through both states and both slopes."""
    th = np.asarray(theta, dtype=np.float64)[..., None]
    step = A[6] @ K[:6]  # (y_new - y) / h
    if derivative:
        return K[0] * (1 - 4 * th + 3 * th**2) + step * (6 * th - 6 * th**2) + K[6] * (3 * th**2 - 2 * th)
    return y + h * (K[0] * (th - 2 * th**2 + th**3) + step * (3 * th**2 - 2 * th**3) + K[6] * (th**3 - th**2))


def straight(theta, y, h, K, derivative=False):
    th = np.asarray(theta, dtype=np.float64)[..., None]
    step = A[6] @ K[:6]
    return step + 0 * th if derivative else y + h * th * step


DENSE = Exercise(
    name="dense",
    title="between the steps",
    level="medium",
    minutes=12,
    parts=("one theta", "several thetas", "derivative", "inputs untouched"),
    cases=(
        Case(
            "a quarter of the oscillator's step",
            "one theta",
            (0.25, FIRST_Y, 0.5, FIRST_K),
            expected=array(0.9922006363978589, -0.12467799123164516),
        ),
        Case(
            "half of the oscillator's step",
            "one theta",
            (0.5, FIRST_Y, 0.5, FIRST_K),
            expected=array(0.9689184819133533, -0.24740616011717784),
        ),
        Case(
            "start, quarter and end at once",
            "several thetas",
            (array(0, 0.25, 1), FIRST_Y, 0.5, FIRST_K),
            expected=array(
                [1, 0], [0.9922006363978589, -0.12467799123164516], [0.8775817883647173, -0.4794270833333333]
            ),
        ),
        Case("one theta in an array", "several thetas", (array(0), FIRST_Y, 0.5, FIRST_K), expected=array([1, 0])),
        Case(
            "the slope at the start is K[0], at the end K[6]",
            "derivative",
            (array(0, 1), FIRST_Y, 0.5, FIRST_K),
            {"derivative": True},
            expected=array([0, -1], [-0.4794270833333333, -0.8775817883647173]),
        ),
        Case(
            "the slope after a quarter",
            "derivative",
            (0.25, FIRST_Y, 0.5, FIRST_K),
            {"derivative": True},
            expected=array(-0.12463964250175359, -0.9922155099758667),
        ),
    ),
    hidden=random_thetas,
    mistakes=(
        Mistake(
            "drawing the cubic through both ends and their slopes",
            hermite,
            hint="That curve has an error of order 4: at h = 0.4 it is 40 times as far off. Use all seven slopes and R.",
        ),
        Mistake(
            "drawing a straight line between the ends",
            straight,
            hint="A line misses every curve in between: the event of the food web would move in the fifth digit.",
        ),
        Mistake(
            "starting the powers of theta at 0",
            interpolant(weights=lambda theta: sum(R[:, j] * theta**j for j in range(4))),
            hint="At theta = 0 the state must be y. Which power belongs to the first column of R?",
        ),
        Mistake(
            "reading the columns of R from the highest power",
            interpolant(weights=lambda theta: sum(R[:, 3 - j] * theta ** (j + 1) for j in range(4))),
            hint="numpy.polyval wants the highest power first; the columns of R begin with the lowest.",
        ),
        Mistake(
            "leaving the step size out",
            interpolant(state=lambda b, y, h, K: y + b @ K),
            hint="b(theta) weighs slopes. What turns them into a change of the state?",
        ),
        Mistake(
            "taking the derivative with respect to theta",
            interpolant(slope=lambda b, y, h, K: h * (b @ K)),
            hint="At the end of the step it should be K[6]. theta runs from 0 to 1 while time runs over h.",
        ),
        Mistake(
            "ignoring derivative",
            lambda theta, y, h, K, derivative=False: interpolant()(theta, y, h, K),
            hint="With derivative=True the slope is asked for. How does the formula change?",
        ),
        Mistake(
            "leaving the factor j out of the derivative of the powers",
            interpolant(slopes=lambda theta: sum(R[:, j] * theta**j for j in range(4))),
            hint="The derivative of theta² is 2 theta.",
        ),
        Mistake(
            "returning one column for each theta",
            interpolant(shape=lambda x: np.ascontiguousarray(x.T)),
            hint="The shape should be (m, n): one row for each theta.",
        ),
    ),
)


# -------------------------------------------------------------------------------------------------------- bracket_root


def random_brackets(rng):
    """Jumps at random places: exactly one pair of neighboring floats is right, whatever the method."""

    def jumped(part, side, backward=False, scale=1.0):
        at, rises = float(rng.uniform(0.1, 0.9)) * scale, bool(rng.random() < 0.5)
        ends = (scale, 0.0) if backward else (0.0, scale)
        about = f"a jump {'up' if rises else 'down'}" + ", backward" * backward
        return Case(about, part, (Build("ode.jump", at=at, rises=rises), *ends, side))

    for part, side in (("the left side", "left"), ("the right side", "right")):
        yield from (jumped(part, side) for _ in range(3))
        yield jumped(part, side, scale=1e-12)
        yield jumped(part, side, scale=1e6)
    for side in ("left", "right"):
        yield from (jumped("backward brackets", side, True) for _ in range(3))
    for side in ("left", "right"):
        at = int(rng.integers(1, 64)) / 64
        line = Build("ode.polynomial", coefficients=[-at * 3, 3.0])
        yield Case("a line with a root that is a float", "exact roots", (line, 0.0, 1.0, side))
        yield Case("a root at b", "exact roots", (line, at - 1.0, at, side))
    low = float(rng.uniform(0.5, 2))
    positive = Build("ode.polynomial", coefficients=[low, 0.0, 1.0])
    yield Case("a parabola above zero", "errors", (positive, -1.0, 2.0, "left"), raises=ValueError)
    yield Case(
        "nan at b",
        "errors",
        (Build("ode.undefined_beyond", start=0.9, slope=1.0, offset=-0.5), 0.0, 1.0, "left"),
        raises=ValueError,
    )
    undefined = Build("ode.undefined_beyond", start=1.0, slope=1.0, offset=-float(rng.uniform(0.1, 0.4)))
    yield Case("nan at a", "errors", (undefined, 1.0, 0.0, "left"), raises=ValueError)
    hole = Build("ode.with_a_hole", middle=float(rng.uniform(0.4, 0.6)), radius=0.1)
    yield Case("nan around the root", "errors", (hole, 0.0, 1.0, "right"), raises=ValueError)
    bend = Build("ode.polynomial", coefficients=[-low, 0.0, 1.0])
    yield Case("nearly no sign change: allowed", "errors", (bend, 0.0, math.sqrt(low) * (1 + 1e-9), "left"))
    yield Case(
        "nan only beyond b: allowed",
        "errors",
        (Build("ode.undefined_beyond", start=1.1, slope=1.0, offset=-0.5), 0.0, 1.0, "left"),
    )


def bisect(
    stop=lambda a, b, middle: middle in (a, b),
    pick=lambda a, b, side: a if side == "left" else b,
    exact=True,
    check_sign=True,
    check_nan=True,
    same_side=lambda gm, ga: (gm > 0) == (ga > 0),
):
    """A right bisection, but for the given rules."""

    def bracket_root(g, a, b, side="left"):
        ga, gb = g(a), g(b)
        if check_nan and (math.isnan(ga) or math.isnan(gb)):
            raise ValueError("nan")
        if exact and gb == 0:
            return b
        if check_sign and ga * gb > 0:
            raise ValueError("no sign change")
        for _ in range(3000):
            middle = a + (b - a) / 2
            if stop(a, b, middle):
                break
            gm = g(middle)
            if check_nan and math.isnan(gm):
                raise ValueError("nan")
            if exact and gm == 0:
                return middle
            if same_side(gm, ga):
                a = middle
            else:
                b = middle
        return pick(a, b, side)

    return bracket_root


ON_A, ON_B, ZERO = "the last float on a's side", "the first float on b's side", "where g is exactly 0"
SQUARE = Build("ode.polynomial", coefficients=[-2.0, 0.0, 1.0])
HALF = Build("ode.polynomial", coefficients=[-0.5, 1.0])

BRACKET_ROOT = Exercise(
    name="bracket_root",
    title="the last float before the root",
    level="medium",
    minutes=15,
    parts=("the left side", "the right side", "backward brackets", "exact roots", "errors"),
    probe="ode.root",
    tolerance=1e-14,
    cases=(
        Case(
            "t² - 2 on [1, 2]",
            "the left side",
            (SQUARE, 1.0, 2.0, "left"),
            expected={"root": 1.414213562373095, "place": ON_A},
        ),
        Case(
            "2 - t² on [1, 2], which falls",
            "the left side",
            (Build("ode.polynomial", coefficients=[2.0, 0.0, -1.0]), 1.0, 2.0, "left"),
            expected={"root": 1.414213562373095, "place": ON_A},
        ),
        Case(
            "a jump at 1.1e-13 on [0, 1e-12]: far below any absolute tolerance",
            "the left side",
            (Build("ode.jump", at=1.1e-13), 0.0, 1e-12, "left"),
            expected={"root": 1.1e-13, "place": ON_A},
        ),
        Case(
            "2**-700 * (t² - 2) on [1, 2]: the product of two such numbers is 0",
            "the left side",
            (Build("ode.polynomial", coefficients=[-(2.0**-699), 0.0, 2.0**-700]), 1.0, 2.0, "left"),
            expected={"root": 1.414213562373095, "place": ON_A},
        ),
        Case(
            "t² - 2 on [1, 2]",
            "the right side",
            (SQUARE, 1.0, 2.0, "right"),
            expected={"root": 1.4142135623730951, "place": ON_B},
        ),
        Case(
            "t² - 2 from 2 down to 1: a is the larger end",
            "backward brackets",
            (SQUARE, 2.0, 1.0, "left"),
            expected={"root": 1.4142135623730951, "place": ON_A},
        ),
        Case(
            "t² - 2 from 2 down to 1",
            "backward brackets",
            (SQUARE, 2.0, 1.0, "right"),
            expected={"root": 1.414213562373095, "place": ON_B},
        ),
        Case(
            "t - 0.5 on [0, 1]",
            "exact roots",
            (HALF, 0.0, 1.0, "left"),
            expected={"root": 0.5, "place": ZERO},
        ),
        Case(
            "t - 0.5 on [0, 0.5]: the root is b",
            "exact roots",
            (HALF, 0.0, 0.5, "left"),
            expected={"root": 0.5, "place": ZERO},
        ),
        Case("t² - 2 on [2, 3]: no sign change", "errors", (SQUARE, 2.0, 3.0, "left"), raises=ValueError),
        Case(
            "nan at b",
            "errors",
            (Build("ode.undefined_beyond", start=0.9, slope=1.0, offset=-0.5), 0.0, 1.0, "left"),
            raises=ValueError,
        ),
        Case(
            "nan at a, from 1 down to 0",
            "errors",
            (Build("ode.undefined_beyond", start=1.0, slope=1.0, offset=-0.4), 1.0, 0.0, "left"),
            raises=ValueError,
        ),
        Case(
            "nan around the root",
            "errors",
            (Build("ode.with_a_hole", middle=0.5, radius=0.2), 0.0, 1.0, "left"),
            raises=ValueError,
        ),
        Case(
            "a sign change right at the end: allowed",
            "errors",
            (Build("ode.jump", at=1.0), 0.0, 1.0, "right"),
            expected={"root": 1.0, "place": ON_B},
        ),
    ),
    hidden=random_brackets,
    mistakes=(
        Mistake(
            "stopping when the bracket is short",
            bisect(stop=lambda a, b, middle: abs(b - a) < 1e-10),
            hint="Ten digits are no neighbors yet. When does the middle of a and b equal one of them?",
        ),
        Mistake(
            "stopping at four times the machine epsilon, whatever the size of the numbers",
            bisect(stop=lambda a, b, middle: abs(b - a) < 4 * 2.2e-16),
            hint="Near 1e-13 floats are 1e-29 apart, near 1e6 they are 1e-10 apart. An absolute tolerance fits neither.",
        ),
        Mistake(
            "returning b's side for left and a's for right",
            bisect(pick=lambda a, b, side: b if side == "left" else a),
            hint='"left" is where the solver comes from: there the affect still finds the barrier uncrossed.',
        ),
        Mistake(
            "returning a's side always",
            bisect(pick=lambda a, b, side: a),
            hint="What is the argument side for?",
        ),
        Mistake(
            "returning the smaller float for left",
            bisect(pick=lambda a, b, side: min(a, b) if side == "left" else max(a, b)),
            hint="When time runs backward, a is the larger end. Left means a's side, not the smaller number.",
        ),
        Mistake(
            "taking for granted that a is below b",
            bisect(stop=lambda a, b, middle: b - a <= 0 or middle in (a, b)),
            hint="Time may run backward: then b - a is negative from the start.",
        ),
        Mistake(
            "taking for granted that g rises",
            bisect(same_side=lambda gm, ga: gm < 0),
            hint="2 - t² falls. With which sign should the middle be compared?",
        ),
        Mistake(
            "multiplying two values of g to compare their signs",
            bisect(same_side=lambda gm, ga: not gm * ga < 0),
            hint="1e-200 times 1e-200 is 0 in floats, and 0 has no sign. Compare the signs themselves.",
        ),
        Mistake(
            "passing by a float where g is exactly 0",
            bisect(exact=False, same_side=lambda gm, ga: gm != 0 and (gm > 0) == (ga > 0)),
            hint="At 0.5 the condition is met to the last bit. There is no better answer to look for.",
        ),
        Mistake(
            "looking for a root where there is no sign change",
            bisect(check_sign=False),
            hint="Bisection always ends somewhere. Without a sign change, that is not a root.",
        ),
        Mistake(
            "taking nan for a sign",
            bisect(check_nan=False),
            hint="Every comparison with nan is False, so the search goes on as if nothing had happened. Look at math.isnan.",
        ),
    ),
)


# -------------------------------------------------------------------------------------------------------------- detect


def random_conditions(rng):
    """Random walks of several conditions, with and without zeros, in all directions."""

    def walk(m, n, zeros):
        G = rng.integers(-3, 4, size=(m + 1, n)).astype(float)
        if not zeros:
            G[G == 0] = 0.5
        return G

    for m, n in ((5, 2), (4, 3), (1, 2)):
        G = walk(m, n, False)
        yield Case(f"{n} random conditions", "values", (G, np.sign(G[0]), np.zeros(n)))
    quiet = np.abs(walk(4, 3, False))
    yield Case("nothing crosses: the answer holds None", "values", (quiet, np.ones(3), np.zeros(3)))
    for m, n in ((6, 2), (6, 3), (4, 4)):
        G = walk(m, n, False)
        directions = rng.permutation(array(1, -1, 0, 1))[:n]
        yield Case("random directions", "directions", (G, np.sign(G[0]), directions))
    for _ in range(3):
        G = walk(6, 3, True)
        G[0, 0] = 0
        yield Case("conditions that are exactly zero now and then", "zeros", (G, np.sign(G[0]), np.zeros(3)))
    G = walk(6, 3, True)
    yield Case("zeros and directions", "zeros", (G, np.sign(G[0]), rng.permutation(array(1, -1, 0))))


def sign_changes(
    before=lambda signs, prev: np.vstack([prev, signs[1:-1]]),
    rises=lambda old, new: (old < 0) & (new >= 0),
    falls=lambda old, new: (old > 0) & (new <= 0),
    allow=lambda rising, falling, directions: (rising & (directions >= 0)) | (falling & (directions <= 0)),
    first=lambda hits: int(hits.any(axis=1).argmax()),
    who=lambda hits, j: np.flatnonzero(hits[j]),
    offset=1,
):
    """A right detection, but for the given rules."""

    def detect(G, prev_sign, directions):
        signs = np.sign(G)
        old, new = before(signs, np.asarray(prev_sign)), signs[1:]
        hits = allow(rises(old, new), falls(old, new), np.asarray(directions))
        if not hits.any():
            return None, np.array([], dtype=int)
        j = first(hits)
        return j + offset, who(hits, j)

    return detect


def ends_only(G, prev_sign, directions):
    last, old = np.sign(G[-1]), np.asarray(prev_sign)
    directions = np.asarray(directions)
    hits = ((old < 0) & (last >= 0) & (directions >= 0)) | ((old > 0) & (last <= 0) & (directions <= 0))
    return (len(G) - 1, np.flatnonzero(hits)) if hits.any() else (None, np.array([], dtype=int))


DETECT = Exercise(
    name="detect",
    title="which condition crosses first?",
    level="medium",
    minutes=15,
    parts=("values", "directions", "zeros"),
    probe="ode.crossings",
    cases=(
        Case(
            "1 - t and 1.2 - 1.5 t at t = 0, 0.5, 1, 1.5, 2: the second one falls below zero in row 2",
            "values",
            (
                array([1, 1.2], [0.5, 0.45], [0.25, -0.3], [-0.5, -1.05], [-1, -1.8]),
                array(1, 1),
                array(0, 0),
            ),
            expected=(2, [1]),
        ),
        Case(
            "down and up again within the step",
            "values",
            (array([2], [1], [-1], [1], [2]), array(1), array(0)),
            expected=(2, [0]),
        ),
        Case(
            "two in one row, a third one later",
            "values",
            (array([1, -1, 2], [-1, 1, 1], [-2, 2, -1]), array(1, -1, 1), array(0, 0, 0)),
            expected=(1, [0, 1]),
        ),
        Case(
            "nothing crosses: the answer holds None",
            "values",
            (array([1, -1], [2, -2], [3, -3]), array(1, -1), array(0, 0)),
            expected=(None, []),
        ),
        Case(
            "down, then up, where only rising counts",
            "directions",
            (array([1], [-1], [-2], [3]), array(1), array(1)),
            expected=(3, [0]),
        ),
        Case(
            "one falls where it must rise, one may fall",
            "directions",
            (array([1, 1], [-1, -1], [-1, -1]), array(1, 1), array(1, -1)),
            expected=(1, [1]),
        ),
        Case(
            "a fall that only rising would allow: the answer holds None",
            "directions",
            (array([1], [-1], [-2]), array(1), array(1)),
            expected=(None, []),
        ),
        Case(
            "exactly zero in row 1",
            "zeros",
            (array([1, 2], [0, 1], [-1, -1]), array(1, 1), array(0, 0)),
            expected=(1, [0]),
        ),
        Case(
            "exactly zero in row 2, from below",
            "zeros",
            (array([-2], [-1], [0], [1]), array(-1), array(0)),
            expected=(2, [0]),
        ),
        Case(
            "it starts at zero and goes down: the answer holds None",
            "zeros",
            (array([0], [-1], [-2]), array(0), array(0)),
            expected=(None, []),
        ),
        Case(
            "it starts at zero, goes up, and comes down in row 3",
            "zeros",
            (array([0], [1], [1], [-1]), array(0), array(0)),
            expected=(3, [0]),
        ),
        Case(
            "it touches zero from above where only rising counts: the answer holds None",
            "zeros",
            (array([1], [0], [1]), array(1), array(1)),
            expected=(None, []),
        ),
    ),
    hidden=random_conditions,
    mistakes=(
        Mistake(
            "looking at the ends of the step only",
            ends_only,
            hint="A condition that goes down and up again has the same sign at both ends. The rows in between would show it.",
        ),
        Mistake(
            "counting rows from the first comparison",
            sign_changes(offset=0),
            hint="Row 0 is the start of the step. A crossing between row 0 and row 1 is found in row 1.",
        ),
        Mistake(
            "comparing every row with the sign at the start",
            sign_changes(before=lambda signs, prev: np.vstack([prev] * (len(signs) - 1))),
            hint="Down, then up: the upward crossing is only seen by somebody who noticed that it had gone down.",
        ),
        Mistake(
            "asking for a strict change of sign",
            sign_changes(rises=lambda old, new: (old < 0) & (new > 0), falls=lambda old, new: (old > 0) & (new < 0)),
            hint="A root that falls exactly on a sample is lost: the sign goes from + to 0, then from 0 to -.",
        ),
        Mistake(
            "letting a condition fire that is leaving zero",
            sign_changes(
                rises=lambda old, new: (old <= 0) & (new > old), falls=lambda old, new: (old >= 0) & (new < old)
            ),
            hint="After an event the condition is zero. If leaving zero counts, every event fires twice.",
        ),
        Mistake(
            "ignoring the directions",
            sign_changes(allow=lambda rising, falling, directions: rising | falling),
            hint="+1 wants rising crossings only, -1 falling ones only, 0 both.",
        ),
        Mistake(
            "taking +1 for falling",
            sign_changes(
                allow=lambda rising, falling, directions: (rising & (directions <= 0)) | (falling & (directions >= 0))
            ),
            hint="Rising goes from minus to plus. Which of the two is +1?",
        ),
        Mistake(
            "taking the lowest component instead of the first row",
            sign_changes(
                first=lambda hits: int(hits[:, hits.any(axis=0).argmax()].argmax()),
            ),
            hint="The component with the lowest index need not be the first one to cross. Find the row first.",
        ),
        Mistake(
            "naming every component that crosses anywhere in the step",
            sign_changes(who=lambda hits, j: np.flatnonzero(hits.any(axis=0))),
            hint="What happens after the first event may never happen: the affect changes the state.",
        ),
    ),
)


# --------------------------------------------------------------------------------------------------------- first_event


def random_candidates(rng):
    """Candidates in random order, with and without equal times, forward and backward."""
    for part, tdir in (("values", 1), ("values", 1), ("backward time", -1), ("backward time", -1)):
        times = rng.permutation(rng.uniform(-1, 1, 5))
        indices = [int(i) for i in rng.permutation(9)[:5]]
        yield Case("five candidates", part, (list(zip(indices, times.tolist(), strict=True)), tdir))
    for part, tdir in (("ties", 1), ("ties", 1), ("backward time", -1)):
        time = float(rng.uniform(0.2, 1))
        indices = [int(i) for i in rng.permutation(range(1, 9))[:4]]
        pairs = [(i, time) for i in indices] + [(0, time + tdir * 0.1)]
        yield Case("four at the same time, a fifth one later", part, (pairs, tdir))


def chosen(key):
    """The candidate with the least key, given time, index, place in the list and tdir."""

    def first_event(candidates, tdir=1):
        return min(enumerate(candidates), key=lambda item: key(item[1][1], item[1][0], item[0], tdir))[1]

    return first_event


def place_in_list(candidates, tdir=1):
    place = min(range(len(candidates)), key=lambda k: (tdir * candidates[k][1], candidates[k][0]))
    return place, candidates[place][1]


FIRST_EVENT = Exercise(
    name="first_event",
    title="the earliest root",
    level="easy",
    minutes=5,
    parts=("values", "ties", "backward time"),
    tolerance=0.0,
    second_of_card=True,
    cases=(
        Case("the second is the earlier one", "values", ([(0, 1.0), (1, 0.8)],), expected=(1, 0.8)),
        Case("the earliest has the highest index", "values", ([(2, 0.3), (5, 0.1), (3, 0.2)],), expected=(5, 0.1)),
        Case("a single candidate", "values", ([(3, 2.5)],), expected=(3, 2.5)),
        Case("two at the same time, the higher index first", "ties", ([(2, 0.5), (1, 0.5)],), expected=(1, 0.5)),
        Case(
            "three at the same time, a lower index later",
            "ties",
            ([(2, 0.5), (3, 0.5), (1, 0.5), (0, 0.75)],),
            expected=(1, 0.5),
        ),
        Case("time runs backward", "backward time", ([(0, 0.2), (1, 0.7)], -1), expected=(1, 0.7)),
        Case(
            "backward, two at the same time", "backward time", ([(4, 0.7), (3, 0.7), (0, 0.2)], -1), expected=(3, 0.7)
        ),
    ),
    hidden=random_candidates,
    mistakes=(
        Mistake(
            "taking the lowest index whatever the time",
            chosen(lambda t, i, k, tdir: i),
            hint="Index 0 at t = 1 comes after index 1 at t = 0.8: by then the state is another one.",
        ),
        Mistake(
            "taking the smallest time also when time runs backward",
            chosen(lambda t, i, k, tdir: (t, i)),
            hint="From 1 down to 0 the solver meets 0.7 before 0.2. What does tdir do to the order?",
        ),
        Mistake(
            "taking the first in the list among equal times",
            chosen(lambda t, i, k, tdir: (tdir * t, k)),
            hint="The list is in no order. Of equal times the lowest index fires.",
        ),
        Mistake(
            "taking the highest index among equal times",
            chosen(lambda t, i, k, tdir: (tdir * t, -i)),
            hint="Of equal times the lowest index fires. What does backward time change about that?",
        ),
        Mistake(
            "returning the place in the list instead of the index",
            place_in_list,
            hint="The caller wants to know which condition fired, not where in the list it stood.",
        ),
    ),
)


# --------------------------------------------------------------------------------------------------------- apply_event

SOLVER = ("rk_step", "err_norm", "pi_control", "init_dt", "dense", "bracket_root", "detect", "first_event")


def run_with(*more, **inputs):
    """Inputs of a run with the learner's own solver."""
    names = (*SOLVER, *more)
    return {"_compare": "run", "parts": Build("ode.parts", **{name: Learner(name) for name in names}), **inputs}


def random_events(rng):
    """Random states, systems and affects; the food web from another start."""
    for part, compare in (("values", "state"), ("fresh slope", "slope"), ("saved points", "saved")):
        for flags in ((True, True), (False, True), (True, False)) if compare == "saved" else ((True, True),) * 2:
            n = int(rng.integers(2, 5))
            affect = Build("ode.set_to", value=float(rng.uniform(2, 4)))
            args = (
                random_driven(rng, n),
                float(rng.uniform(0.5, 2)),
                rng.normal(size=n),
                affect,
                int(rng.integers(0, n)),
            )
            yield Case(f"a random state of {n}", part, (*args, flags), {"_compare": compare})
    scaled = Build("ode.scale_all_but", factor=float(rng.uniform(2, 3)))
    args = (random_driven(rng, 3), 1.0, rng.normal(size=3), scaled, 1)
    yield Case("an affect that changes all others", "values", args)
    start = rng.uniform(9, 11, 4)
    yield Case(
        "the food web from another start", "together", (), run_with(u0=start, threshold=0.05, end=8.0), tolerance=1e-8
    )


def applying(
    state=lambda y, affect, index: changed_copy(y, affect, index),
    slope=lambda f, t, y, y_new: f(t, y_new),
    saved=lambda t, y, y_new, before, after: [(t, y.copy())] * before + [(t, y_new.copy())] * after,
):
    """A right event, but for the given rules."""

    def apply_event(f, t, y, affect, index, save_positions=(True, True)):
        y_new = state(y, affect, index)
        k1 = slope(f, t, y, y_new)
        return y_new, k1, saved(t, y, y_new, bool(save_positions[0]), bool(save_positions[1]))

    return apply_event


def changed_copy(y, affect, index):
    y_new = y.copy()
    affect(y_new, index)
    return y_new


def lost_copy(y, affect, index):
    affect(y.copy(), index)
    return y.copy()


def changed_in_place(f, t, y, affect, index, save_positions=(True, True)):
    saved = [(t, y.copy())] if save_positions[0] else []
    affect(y, index)
    return y.copy(), f(t, y), saved + ([(t, y.copy())] if save_positions[1] else [])


PLAIN = Build("ode.driven", matrix=array([-1, 2], [0, 1]), drive=array(1, 10))  # f = (-y1 + 2 y2 + t, y2 + 10 t)
TO_ZERO = Build("ode.set_to", value=0.0)

APPLY_EVENT = Exercise(
    name="apply_event",
    title="the event itself",
    level="hard",
    minutes=20,
    parts=("values", "fresh slope", "saved points", "inputs untouched", "together"),
    probe="ode.event",
    cases=(
        Case("component 1 is set to 0", "values", (PLAIN, 0.5, array(3, 4), TO_ZERO, 1), expected=array(3, 0)),
        Case("component 0 is set to 0", "values", (PLAIN, 0.5, array(3, 4), TO_ZERO, 0), expected=array(0, 4)),
        Case(
            "f(0.5, (3, 0)), not f(0.5, (3, 4))",
            "fresh slope",
            (PLAIN, 0.5, array(3, 4), TO_ZERO, 1),
            {"_compare": "slope"},
            expected=array(-2.5, 5),
        ),
        Case(
            "before and after",
            "saved points",
            (PLAIN, 0.5, array(3, 4), TO_ZERO, 1, (True, True)),
            {"_compare": "saved"},
            expected=[(0.5, array(3, 4)), (0.5, array(3, 0))],
        ),
        Case(
            "save_positions left out: before and after",
            "saved points",
            (PLAIN, 0.5, array(3, 4), TO_ZERO, 0),
            {"_compare": "saved"},
            expected=[(0.5, array(3, 4)), (0.5, array(0, 4))],
        ),
        Case(
            "after only",
            "saved points",
            (PLAIN, 0.5, array(3, 4), TO_ZERO, 1, (False, True)),
            {"_compare": "saved"},
            expected=[(0.5, array(3, 0))],
        ),
        Case(
            "before only",
            "saved points",
            (PLAIN, 0.5, array(3, 4), TO_ZERO, 1, (True, False)),
            {"_compare": "saved"},
            expected=[(0.5, array(3, 4))],
        ),
        Case(
            "the public run: events of species 4 and 3, and 165 points",
            "together",
            (),
            run_with(u0=array(10, 10, 10, 10), threshold=0.05, end=10.0),
            tolerance=1e-8,
            expected={
                "saved points": 165,
                "species": [4, 3],
                "times": [1.1789645459699358, 6.3899961913166577],
                "end": array(47.8463354603727194, 120.826349058194769, -13.6614798599565533, -203.457200350391971),
            },
        ),
    ),
    hidden=random_events,
    mistakes=(
        Mistake(
            "keeping the slope from before the affect",
            applying(slope=lambda f, t, y, y_new: f(t, y)),
            hint="The state has jumped, so has the slope. The steps that follow are rejected until it is fresh again.",
        ),
        Mistake(
            "changing a copy and going on with the old state",
            applying(state=lost_copy),
            hint="The affect works in place on what it is given. Is that what is returned?",
        ),
        Mistake(
            "letting the affect change the caller's array",
            changed_in_place,
            hint="The state before the event belongs to the caller, who still needs it. Work on a copy.",
        ),
        Mistake(
            "counting components from 1",
            applying(state=lambda y, affect, index: changed_copy(y, affect, index - 1)),
            hint="Julia counts from 1, Python from 0: species 4 is index 3.",
        ),
        Mistake(
            "saving the new state twice",
            applying(saved=lambda t, y, y_new, before, after: [(t, y_new.copy())] * (before + after)),
            hint="The point before the affect shows where the jump starts. Is it still there when you save?",
        ),
        Mistake(
            "saving the state that the solver goes on with",
            applying(saved=lambda t, y, y_new, before, after: [(t, y)] * before + [(t, y_new)] * after),
            hint="The solver will change that array. What was saved changes with it, unless it is a copy.",
        ),
        Mistake(
            "taking the first flag for after",
            applying(saved=lambda t, y, y_new, before, after: [(t, y.copy())] * after + [(t, y_new.copy())] * before),
            hint="save_positions is (before, after).",
        ),
        Mistake(
            "not saving the state after the affect",
            applying(saved=lambda t, y, y_new, before, after: [(t, y.copy())] * before),
            hint="163 points instead of 165: the two jumps are missing from the solution.",
        ),
        Mistake(
            "leaving out the time of the event in f",
            applying(slope=lambda f, t, y, y_new: f(0.0, y_new)),
            hint="f takes two arguments. The food web does not look at the first one; the right-hand side here does.",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------------- extinct


def random_extinctions(rng):
    """Random competitors; a second species that dies; the food web from another start."""
    for _ in range(2):
        y, alive = rng.uniform(1, 3, 4), np.ones(4)
        f = Build("ode.linear", matrix=rng.normal(size=(4, 4)))
        first, second = (int(i) for i in rng.permutation(4)[:2])
        yield Case("one of four random species", "state", (f, y, alive, first))
        yield Case("two of four random species", "state", (f, y, alive, first), {"then": second})
        at = rng.normal(size=4)
        yield Case("asked anywhere", "derivative", (f, y, alive, first), {"_compare": "rate", "at": at})
        yield Case(
            "two dead, asked anywhere",
            "derivative",
            (f, y, alive, first),
            {"_compare": "rate", "at": at, "then": second},
        )
    start = rng.uniform(9, 11, 4)
    inputs = run_with("apply_event", u0=start, threshold=0.05, end=30.0)
    yield Case("the food web from another start", "together", (), inputs, tolerance=1e-7)


def dying(
    state=lambda y, index: zeroed(y, index),
    mask=lambda alive, index: zeroed(alive, index),
    rate=lambda f, alive, index: lambda t, u: alive * f(t, alive * u),
):
    """A right extinction, but for the given rules."""

    def extinct(f, y, alive, index):
        y_new, alive_new = state(y, index), mask(alive, index)
        return y_new, alive_new, rate(f, alive_new, index)

    return extinct


def zeroed(x, index):
    x = x.copy()
    x[index] = 0.0
    return x


def zeroed_in_place(x, index):
    x[index] = 0.0
    return x


def writing_into_u(f, alive, index):
    def masked(t, u):
        u *= alive
        return alive * f(t, u)

    return masked


def this_one_only(f, alive, index):
    mask = np.ones_like(alive)
    mask[index] = 0.0
    return lambda t, u: mask * f(t, mask * u)


COUPLED = Build("ode.linear", matrix=array([1, 10, 100], [2, 20, 200], [3, 30, 300]))

EXTINCT = Exercise(
    name="extinct",
    title="dead is dead",
    level="medium",
    minutes=15,
    parts=("state", "derivative", "inputs untouched", "together"),
    probe="ode.extinction",
    cases=(
        Case(
            "the second of three dies",
            "state",
            (COUPLED, array(5, 6, 7), array(1, 1, 1), 1),
            expected={"y": array(5, 0, 7), "alive": array(1, 0, 1)},
        ),
        Case(
            "the second dies, the first has been dead for long",
            "state",
            (COUPLED, array(0, 6, 7), array(0, 1, 1), 1),
            expected={"y": array(0, 0, 7), "alive": array(0, 0, 1)},
        ),
        Case(
            "the second is dead, all are asked at one unit",
            "derivative",
            (COUPLED, array(5, 6, 7), array(1, 1, 1), 1),
            {"_compare": "rate", "at": array(1, 1, 1)},
            expected=array(101, 0, 303),
        ),
        Case(
            "the second is dead, the others are below zero",
            "derivative",
            (COUPLED, array(5, 6, 7), array(1, 1, 1), 1),
            {"_compare": "rate", "at": array(-1, 0, -2)},
            expected=array(-201, 0, -603),
        ),
        Case(
            "the second dies, the first has been dead for long",
            "derivative",
            (COUPLED, array(0, 6, 7), array(0, 1, 1), 1),
            {"_compare": "rate", "at": array(1, 1, 1)},
            expected=array(0, 0, 300),
        ),
        Case(
            "first the second dies, then the third",
            "derivative",
            (COUPLED, array(5, 6, 7), array(1, 1, 1), 1),
            {"_compare": "rate", "at": array(1, 1, 1), "then": 2},
            expected={"after the second": array(1, 0, 0), "after the first": array(101, 0, 303)},
        ),
        Case(
            "the u that g is asked about is left as it was",
            "derivative",
            (COUPLED, array(5, 6, 7), array(1, 1, 1), 1),
            {"_compare": "asked", "at": array(1, 2, 3)},
            expected=array(1, 2, 3),
        ),
        Case(
            "what the asker wanted: one extinction before t = 10, four before t = 40",
            "together",
            (),
            run_with("apply_event", u0=array(10, 10, 10, 10), threshold=0.05, end=40.0),
            tolerance=1e-8,
            expected={
                "species": [4, 1, 2, 3],
                "times": [1.1789645459699358, 25.563642770045911, 25.899600155400186, 36.296151303425296],
                "u(10)": array(0.634253319818984704, 0.832482828396113011, 1.64548912864885048, 0.0),
                "end": array(0, 0, 0, 0),
            },
        ),
    ),
    hidden=random_extinctions,
    mistakes=(
        Mistake(
            "setting the species to zero and letting its derivative run on",
            dying(rate=lambda f, alive, index: f),
            hint="That is the asker's program: the callback runs, and the next step pulls the species below zero.",
        ),
        Mistake(
            "freezing the dead species without hiding it from the others",
            dying(rate=lambda f, alive, index: lambda t, u: alive * f(t, u)),
            hint="Its own derivative is zero, but what do the others see when its entry in u is not?",
        ),
        Mistake(
            "hiding the dead species from the others without freezing it",
            dying(rate=lambda f, alive, index: lambda t, u: f(t, alive * u)),
            hint="Nobody sees it, but its own derivative still moves it. The mask belongs in two places.",
        ),
        Mistake(
            "clipping the state at zero inside the right-hand side",
            dying(rate=lambda f, alive, index: lambda t, u: f(t, np.maximum(u, 0.0))),
            hint="f sees no negative numbers, and still pulls the state down. Being dead is not the same as being below zero.",
        ),
        Mistake(
            "freezing the species where its last value was",
            dying(state=lambda y, index: y.copy()),
            hint="It stays at 0.05 for ever. Extinct means zero.",
        ),
        Mistake(
            "changing the caller's mask",
            dying(mask=zeroed_in_place),
            hint="The right-hand side from before the event still holds that mask. Work on a copy.",
        ),
        Mistake(
            "writing zeros into the state that the solver asks about",
            dying(rate=writing_into_u),
            hint="g reads u. The solver still needs it as it was: multiply into a new array.",
        ),
        Mistake(
            "forgetting who died before",
            dying(rate=this_one_only),
            hint="The second extinction brings the first species back to life. What is alive for?",
        ),
        Mistake(
            "stopping everybody",
            dying(rate=lambda f, alive, index: lambda t, u: 0.0 * u),
            hint="The others live on. Whose derivative is zero?",
        ),
    ),
)


# -------------------------------------------------------------------------------------------------------------- bounce


def random_bounces(rng):
    """Random impacts; rebounds around the limit; another ball."""
    for _ in range(3):
        v, e, g = float(rng.uniform(1, 9)), float(rng.uniform(0.3, 0.95)), float(rng.uniform(1, 20))
        yield Case("a random impact", "bouncing", (float(rng.uniform(0, 1e-14)), -v, e, g, 1e-6))
        yield Case("a rebound below the limit", "contact", (1e-16, -v, e, g, e * v * 1.01))
        yield Case("a rebound above the limit", "contact", (1e-16, -v, e, g, e * v * 0.99))
    height, e = float(rng.uniform(0.5, 1)), float(rng.uniform(0.4, 0.6))
    inputs = run_with("apply_event", height=height, e=e, tol=1e-3)
    yield Case("a ball from another height", "together", (), inputs, tolerance=1e-8)


def bouncing(
    speed=lambda v, e: -e * v,
    rests=lambda v, rebound, tol: rebound < tol,
    resting=lambda h, rebound, g: (0.0, 0.0, True, math.inf),
    flying=lambda h, v, rebound, g: (0.0, rebound, False, rebound / g),
):
    """A right bounce, but for the given rules."""

    def bounce(h, v, e, g=9.81, tol=1e-6):
        rebound = speed(v, e)
        return resting(h, rebound, g) if rests(v, rebound, tol) else flying(h, v, rebound, g)

    return bounce


BOUNCE = Exercise(
    name="bounce",
    title="the ball and the floor",
    level="medium",
    minutes=12,
    parts=("bouncing", "contact", "together"),
    probe="ode.impact",
    cases=(
        Case(
            "4 m/s down, half of it comes back",
            "bouncing",
            (1e-15, -4.0, 0.5, 10.0),
            tolerance=0.0,
            expected=(0.0, 2.0, False, 0.2),
        ),
        Case(
            "the ball from one meter",
            "bouncing",
            (0.0, -4.4294469180700204, 0.9),
            expected=(0.0, 3.9865022262630184, False, 0.4063712768871578),
        ),
        Case(
            "a rebound below the limit", "contact", (1e-16, -1e-3, 0.9, 9.81, 1e-3), expected=(0.0, 0.0, True, math.inf)
        ),
        Case(
            "a rebound of exactly the limit still flies",
            "contact",
            (1e-16, -0.5, 0.5, 10.0, 0.25),
            expected=(0.0, 0.25, False, 0.025),
        ),
        Case(
            "a rebound of 0.9e-6 m/s, tol left out",
            "contact",
            (0.0, -1.8e-6, 0.5, 10.0),
            tolerance=1e-12,
            expected=(0.0, 0.0, True, math.inf),
        ),
        Case(
            "a rebound of 1.1e-6 m/s, tol left out",
            "contact",
            (0.0, -2.2e-6, 0.5, 10.0),
            tolerance=1e-12,
            expected=(0.0, 1.1e-6, False, 1.1e-7),
        ),
        Case(
            "a ball that is at rest",
            "contact",
            (0.0, 0.0, 0.9, 9.81, 1e-6),
            expected=(0.0, 0.0, True, math.inf),
        ),
        Case(
            "a ball with e = 0.5 comes to rest: 13 bounces, and the floor holds",
            "together",
            (),
            run_with("apply_event", height=1.0, e=0.5, tol=1e-3),
            tolerance=1e-8,
            expected={"bounces": 13, "last bounce": 1.3543504524293675, "end": array(0, 0)},
        ),
    ),
    hidden=random_bounces,
    mistakes=(
        Mistake(
            "keeping the height as it came in",
            bouncing(flying=lambda h, v, rebound, g: (h, rebound, False, rebound / g)),
            hint="The ball is at the floor. Whatever the last bit of h says, the height is 0.",
        ),
        Mistake(
            "turning around without losing speed",
            bouncing(speed=lambda v, e: -v),
            hint="A ball with e = 0.9 keeps nine tenths of its speed.",
        ),
        Mistake(
            "leaving the speed pointing down",
            bouncing(speed=lambda v, e: e * v),
            hint="Upward is positive: which sign does v have when the ball comes in, and which when it leaves?",
        ),
        Mistake(
            "comparing the speed before the bounce with tol",
            bouncing(rests=lambda v, rebound, tol: -v < tol),
            hint="The rebound is what has to be too small to fly.",
        ),
        Mistake(
            "resting at a rebound of exactly tol",
            bouncing(rests=lambda v, rebound, tol: rebound <= tol),
            hint="Below tol, says the rule.",
        ),
        Mistake(
            "allowing one step as long as the whole next flight",
            bouncing(flying=lambda h, v, rebound, g: (0.0, rebound, False, 2 * rebound / g)),
            hint="A step over the whole flight starts and ends at the floor. Half a flight shows the ball in the air.",
        ),
        Mistake(
            "taking the flight that lies behind",
            bouncing(flying=lambda h, v, rebound, g: (0.0, rebound, False, -v / g)),
            hint="The next flight starts with the rebound's speed, which is smaller.",
        ),
        Mistake(
            "leaving a last bit of speed in a ball that rests",
            bouncing(resting=lambda h, rebound, g: (0.0, rebound, True, math.inf)),
            hint="In contact the speed is 0, not nearly 0.",
        ),
        Mistake(
            "never coming to rest",
            bouncing(rests=lambda v, rebound, tol: False),
            hint="The bounces get closer and closer and would never end. What is tol for?",
        ),
        Mistake(
            "limiting the steps of a ball that rests",
            bouncing(resting=lambda h, rebound, g: (0.0, 0.0, True, rebound / g)),
            hint="Nothing happens any more: the solver may take steps of any length. What does dt_max = inf mean?",
        ),
    ),
)


# ----------------------------------------------------------------------------------------------------- event_time_grad


def random_gradients(rng):
    """Random linear systems and sensitivities, several conditions; states where the event time has no gradient."""
    f = random_linear(rng, 3)
    y, S = rng.normal(size=3) + 2, rng.normal(size=(3, 4))
    t = float(rng.uniform(0.5, 2))
    weights = torch.tensor(rng.normal(size=3) + 2)
    level = Build("ode.level", index=int(rng.integers(0, 3)), height=0.3)
    swinging = Build("ode.swinging_level", weights=weights, rate=float(rng.uniform(0.5, 2)))
    yield Case("a level of a random component", "values", (level, f, t, y, S))
    yield Case("a circle", "values", (Build("ode.circle", radius=2.0), f, t, y, S))
    yield Case("a level that swings in time", "a moving condition", (swinging, f, t, y, S))
    yield Case(
        "a moving level in a driven system",
        "a moving condition",
        (Build("ode.moving_level", index=1, speed=0.5), random_driven(rng, 3), t, y, S),
    )
    yield Case("the level itself is a parameter", "its own parameters", (level, f, t, y, S, rng.normal(size=4)))
    yield Case("one number for all parameters", "its own parameters", (swinging, f, t, y, S, float(rng.normal())))
    still = Build("ode.linear", matrix=np.zeros((3, 3)))
    yield Case("nothing moves", "errors", (level, still, t, y, S), raises=ValueError)
    yield Case(
        "a ball at the top of its flight",
        "errors",
        (Build("ode.level", index=0, height=1.0), Build("ode.falling"), t, array(1, 0), S[:2]),
        raises=ValueError,
    )
    yield Case("nothing moves but the condition: allowed", "errors", (swinging, still, t, y, S))
    yield Case(
        "a slow ball: allowed",
        "errors",
        (Build("ode.level", index=0, height=1.0), Build("ode.falling"), t, array(1, -1e-3), S[:2]),
    )


def implicit(
    result=lambda g_y, S, g_theta, g_t, rate: -(g_y @ S + g_theta) / (g_t + rate),
    check=True,
    slope=lambda f, t, y: f(t, y),
    finish=lambda x: x,
):
    """The right gradient, but for the given rules."""

    def event_time_grad(g, f, t, y, S, g_theta=0.0):
        time = torch.tensor(t, dtype=torch.float64, requires_grad=True)
        state = torch.tensor(y, dtype=torch.float64, requires_grad=True)
        value = g(time, state) + 0.0 * time + 0.0 * state.sum()
        g_t, g_y = torch.autograd.grad(value, (time, state))
        g_t, g_y = g_t.item(), g_y.numpy()
        rate = float(g_y @ slope(f, t, y))
        if check and g_t + rate == 0:
            raise ValueError("no gradient")
        return finish(result(g_y, S, g_theta, g_t, rate))

    return event_time_grad


BALL = Build("ode.falling")
DROP = array([1], [0])  # d(height, speed) / d(start height)

EVENT_TIME_GRAD = Exercise(
    name="event_time_grad",
    title="how an event time moves",
    level="hard",
    minutes=20,
    parts=("values", "a moving condition", "its own parameters", "errors", "inputs untouched"),
    cases=(
        Case(
            "a ball from 1 m, the floor at 0: dt/dh = 1 / (g t)",
            "values",
            (Build("ode.level", index=0, height=0.0), BALL, 0.4515236409857309, array(0, -4.42944691807002), DROP),
            expected=array(0.22576182049286544),
        ),
        Case(
            "a point on a circle of radius 5, moving outward",
            "values",
            (
                Build("ode.circle", radius=5.0),
                Build("ode.linear", matrix=np.eye(2)),
                1.0,
                array(3, 4),
                array([1, 0, 1], [0, 1, 1]),
            ),
            expected=array(-0.12, -0.16, -0.28),
        ),
        Case(
            "the same ball, while the floor rises with 0.1 m/s",
            "a moving condition",
            (
                Build("ode.moving_level", index=0, speed=0.1),
                BALL,
                0.4414450135958354,
                array(0.04414450135958354, -4.330575583375145),
                DROP,
            ),
            expected=array(0.22570430888309442),
        ),
        Case(
            "an alarm at t = 2: no start moves it",
            "a moving condition",
            (Build("ode.alarm", at=2.0), BALL, 2.0, array(-18.62, -19.62), DROP),
            expected=array(0),
        ),
        Case(
            "how the ball's landing moves with the height of the floor: g_theta = -1",
            "its own parameters",
            (
                Build("ode.level", index=0, height=0.0),
                BALL,
                0.4515236409857309,
                array(0, -4.42944691807002),
                array([1, 0], [0, 0]),
                array(0, -1),
            ),
            expected=array(0.22576182049286544, -0.22576182049286544),
        ),
        Case(
            "a ball at the top of its flight touches the line: no gradient",
            "errors",
            (Build("ode.level", index=0, height=1.0), BALL, 1.0, array(1, 0), DROP),
            raises=ValueError,
        ),
        Case(
            "a ball that is slow, but moves",
            "errors",
            (Build("ode.level", index=0, height=1.0), BALL, 1.0, array(1, 0.5), DROP),
            expected=array(-2),
        ),
    ),
    hidden=random_gradients,
    mistakes=(
        Mistake(
            "dropping the minus sign",
            implicit(result=lambda g_y, S, g_theta, g_t, rate: (g_y @ S + g_theta) / (g_t + rate)),
            hint="A ball that starts higher lands later: dt/dh is positive, though the ball moves down.",
        ),
        Mistake(
            "leaving out the denominator",
            implicit(result=lambda g_y, S, g_theta, g_t, rate: -(g_y @ S + g_theta)),
            hint="That is by how much g is off. How long does it take g to make up for it?",
        ),
        Mistake(
            "forgetting that the condition can depend on time",
            implicit(result=lambda g_y, S, g_theta, g_t, rate: -(g_y @ S + g_theta) / (rate or 1.0)),
            hint="When the floor rises, it comes to meet the ball. Which derivative of g says so?",
        ),
        Mistake(
            "forgetting that the condition can depend on the parameters",
            implicit(result=lambda g_y, S, g_theta, g_t, rate: -(g_y @ S) / (g_t + rate)),
            hint="A higher threshold is reached at another time, even if the states do not change at all.",
        ),
        Mistake(
            "multiplying by the rate where it divides",
            implicit(result=lambda g_y, S, g_theta, g_t, rate: -(g_y @ S + g_theta) * (g_t + rate)),
            hint="The faster g moves, the less the time of its root changes.",
        ),
        Mistake(
            "dividing by zero where the condition is only touched",
            implicit(check=False),
            hint="inf is no gradient. What should happen when the denominator is 0?",
        ),
        Mistake(
            "returning a torch tensor",
            implicit(finish=lambda x: torch.as_tensor(x)),
            hint="The solver lives in numpy: the result should be a float64 array.",
        ),
        Mistake(
            "leaving the speed of the state out",
            implicit(slope=lambda f, t, y: np.ones_like(y)),
            hint="How fast g changes along the solution depends on f: g_y · f.",
        ),
    ),
)


EXERCISES = (
    RK_STEP,
    ERR_NORM,
    PI_CONTROL,
    INIT_DT,
    DENSE,
    BRACKET_ROOT,
    DETECT,
    FIRST_EVENT,
    APPLY_EVENT,
    EXTINCT,
    BOUNCE,
    EVENT_TIME_GRAD,
)
