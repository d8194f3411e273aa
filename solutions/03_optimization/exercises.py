"""The exercises of chapter 3: cases, known mistakes, hidden cases."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import tensor

from underhood import Build, Case, Exercise, Mistake


def f64(data):
    """A float64 tensor."""
    return tensor(data, dtype=torch.float64)


def drawn(rng, *shape):
    """A float64 tensor of standard normal numbers."""
    return torch.from_numpy(rng.normal(size=shape))


# ------------------------------------------------------------------------------------------------------------ sgd_step


def descent(about, part, params, gradients, options, **more):
    """A case for a step function: what it starts from, the gradients, one dict of arguments a step."""
    return Case(
        about, part, kwargs={"params": params, "gradients": gradients, "options": options} | more.pop("kw", {}), **more
    )


def after(*steps):
    """What a step function should give: the parameters after each step, float64."""
    return {"parameters": [[f64(p) for p in params] for params in steps]}


UNTOUCHED_OTHERWISE = {
    "the same tensors": True,
    "leaves that require a gradient": True,
    "gradients as they were": True,
}
VALLEY = Build("optimization.quadratic", curvature=[f64([2.0, 6.0])])  # x² + 3y²
SQUARE = Build("optimization.quadratic", curvature=[f64([2.0])])  # w²
START = [f64([1.0, -2.0])]


def random_sgd(rng):
    shapes = ((3,), (2, 2), ())
    start = [drawn(rng, *shape) for shape in shapes]
    given = [[drawn(rng, *shape) for shape in shapes] for _ in range(4)]
    lr, mu, damp, wd = (round(float(x), 3) for x in rng.uniform(0.05, 0.8, 4))
    yield descent("random gradients for three parameters", "values", start, given, [{"lr": lr}] * 4)
    narrow = [p.float() for p in start], [[g.float() for g in step] for step in given]
    yield descent("random gradients in float32", "values", *narrow, [{"lr": lr}] * 4, tolerance=1e-5)
    dropping = [{"lr": lr / 3**i, "momentum": mu, "dampening": damp} for i in range(4)]
    yield descent("momentum, dampening, a falling learning rate", "momentum", start, given, dropping)
    yield descent(
        "every gradient in the tensor of the first one",
        "momentum",
        start,
        given,
        dropping,
        kw={"same_grad_tensor": True},
    )
    yield descent(
        "a fresh state before step 3",
        "momentum",
        start,
        given,
        [{"lr": lr, "momentum": mu}] * 4,
        kw={"fresh_state_before": 3},
    )
    full = {"lr": lr, "momentum": mu, "dampening": damp, "weight_decay": wd}
    yield descent("decay, momentum and dampening", "decay and Nesterov", start, given, [full] * 4)
    nesterov = full | {"dampening": 0.0, "nesterov": True}
    yield descent("Nesterov momentum with decay", "decay and Nesterov", start, given, [nesterov] * 4)
    holes = [[g if (i + j) % 3 else None for i, g in enumerate(step)] for j, step in enumerate(given)]
    yield descent("some gradients are None", "in place", start, holes, [full] * 4, kw={"in_place": True})
    twins = [[drawn(rng, 2), drawn(rng, 2)] for _ in range(4)]
    yield descent("two parameters of one shape", "momentum", twins[0], twins[1:], [{"lr": lr, "momentum": mu}] * 3)


def sgd_variant(
    decay="gradient",
    first="gradient",
    new_factor=None,
    inside=False,
    ahead=True,
    missing="skip",
    rebind=False,
    spoil=False,
    remembers=True,
    copies=True,
):
    """SGD with one thing done differently."""

    def sgd_step(params, state, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
        with torch.no_grad():
            for i, p in enumerate(params):
                if p.grad is None and missing == "skip":
                    continue
                g = torch.zeros_like(p) if p.grad is None else p.grad
                if weight_decay and decay == "gradient":
                    g = g.add_(weight_decay * p) if spoil else g + weight_decay * p
                elif weight_decay and decay == "direct":
                    p.mul_(1 - lr * weight_decay)
                factor = 1 - dampening if new_factor is None else new_factor(momentum)
                if momentum:
                    entering = lr * g if inside else g
                    started = remembers and i in state
                    start = entering if first == "gradient" else factor * entering
                    state[i] = (
                        momentum * state[i] + factor * entering if started else start.clone() if copies else start
                    )
                    g = entering + momentum * state[i] if nesterov and ahead else state[i]
                    step = g if inside else lr * g
                else:
                    step = lr * g
                if rebind:
                    params[i] = p - step
                else:
                    p.sub_(step)

    return sgd_step


SGD_STEP = Exercise(
    name="sgd_step",
    title="one step of SGD",
    level="medium",
    minutes=15,
    parts=("values", "momentum", "decay and Nesterov", "in place"),
    probe="optimization.steps",
    tolerance=1e-8,
    forbids=("torch.optim.*", "torch.optim.sgd.sgd", "torch.optim.sgd._*_sgd", "torch._fused_*"),
    cases=(
        descent(
            "four steps on x² + 3y² from (1, -2)",
            "values",
            START,
            VALLEY,
            [{"lr": 0.1}] * 4,
            expected=after([[0.8, -0.8]], [[0.64, -0.32]], [[0.512, -0.128]], [[0.4096, -0.0512]]),
        ),
        descent(
            "two parameters, one of them a single number",
            "values",
            [f64([[1.0, 2.0], [3.0, 4.0]]), f64(5.0)],
            [[f64([[2.0, -2.0], [0.0, 1.0]]), f64(10.0)]],
            [{"lr": 0.5}],
            expected=after([[[0.0, 3.0], [3.0, 3.5]], 0.0]),
        ),
        descent(
            "four steps on x² + 3y² from (1, -2)",
            "momentum",
            START,
            VALLEY,
            [{"lr": 0.05, "momentum": 0.9}] * 4,
            expected=after([[0.9, -1.4]], [[0.72, -0.44]], [[0.486, 0.556]], [[0.2268, 1.2856]]),
        ),
        descent(
            "w² from 1, the learning rate drops before step 3",
            "momentum",
            [f64([1.0])],
            SQUARE,
            [{"lr": 0.1, "momentum": 0.9}] * 2 + [{"lr": 0.01, "momentum": 0.9}],
            expected=after([[0.8]], [[0.46]], [[0.4202]]),
        ),
        descent(
            "w² from 1 with dampening",
            "momentum",
            [f64([1.0])],
            SQUARE,
            [{"lr": 0.1, "momentum": 0.9, "dampening": 0.1}] * 3,
            expected=after([[0.8]], [[0.476]], [[0.09872]]),
        ),
        descent(
            "w² from 1, an empty state before step 3",
            "momentum",
            [f64([1.0])],
            SQUARE,
            [{"lr": 0.1, "momentum": 0.9}] * 3,
            kw={"fresh_state_before": 3},
            expected=after([[0.8]], [[0.46]], [[0.368]]),
        ),
        descent(
            "w² from 1, every gradient in the tensor of the first one",
            "momentum",
            [f64([1.0])],
            SQUARE,
            [{"lr": 0.1, "momentum": 0.9}] * 3,
            kw={"same_grad_tensor": True},
            expected=after([[0.8]], [[0.46]], [[0.062]]),
        ),
        descent(
            "decay without momentum, x² + 3y² from (1, -2)",
            "decay and Nesterov",
            START,
            VALLEY,
            [{"lr": 0.1, "weight_decay": 0.5}] * 2,
            expected=after([[0.75, -0.7]], [[0.5625, -0.245]]),
        ),
        descent(
            "decay, momentum and dampening, x² + 3y² from (1, -2)",
            "decay and Nesterov",
            START,
            VALLEY,
            [{"lr": 0.05, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}] * 4,
            expected=after(
                [[0.895, -1.39]],
                [[0.72532, -0.50184]],
                [[0.51168112, 0.41995296]],
                [[0.27642491392, 1.14709810176]],
            ),
        ),
        descent(
            "Nesterov momentum with decay, x² + 3y² from (1, -2)",
            "decay and Nesterov",
            START,
            VALLEY,
            [{"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}] * 4,
            expected=after(
                [[0.8005, -0.841]],
                [[0.55575025, 0.1404595]],
                [[0.300250550125, 0.71152226975]],
                [[0.06291923411256, 0.85170773995488]],
            ),
        ),
        descent(
            "a gradient that is None, and one that is zero",
            "in place",
            [f64([1.0, 2.0]), f64([3.0])],
            [[f64([1.0, -1.0]), None], [f64([0.0, 0.0]), f64([2.0])], [f64([0.0, 0.0]), None]],
            [{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}] * 3,
            kw={"in_place": True},
            expected=after([[0.89, 2.08], [3.0]], [[0.7821, 2.1312], [2.77]], [[0.677169, 2.155968], [2.77]])
            | UNTOUCHED_OTHERWISE,
        ),
    ),
    hidden=random_sgd,
    mistakes=(
        Mistake(
            "dampening the first velocity too",
            sgd_variant(first="dampened"),
            hint="The first velocity is the gradient itself. Which factor does yours start with?",
        ),
        Mistake(
            "shrinking the parameter directly instead of adding the decay to the gradient",
            sgd_variant(decay="direct"),
            hint="In SGD, weight decay is a term of the gradient: it goes through the velocity like the rest.",
        ),
        Mistake(
            "weighing the new gradient with 1 - momentum",
            sgd_variant(new_factor=lambda mu: 1 - mu),
            hint="That is a moving average. What stands before the gradient in the docstring's formula?",
        ),
        Mistake(
            "keeping the learning rate inside the velocity",
            sgd_variant(inside=True),
            hint="The two agree until the learning rate changes. Where does lr enter: in the velocity, or after it?",
        ),
        Mistake(
            "stepping along the velocity although nesterov is True",
            sgd_variant(ahead=False),
            hint="Nesterov looks one velocity ahead: its step is made of the gradient and the new velocity.",
        ),
        Mistake(
            "treating a gradient that is None as zero",
            sgd_variant(missing="zero"),
            hint="A zero gradient still lets decay and velocity move a parameter. What should None do?",
        ),
        Mistake(
            "putting new tensors into the list",
            sgd_variant(rebind=True),
            hint="The model holds the old tensors. Which method changes a tensor itself?",
        ),
        Mistake(
            "keeping p.grad itself as the velocity",
            sgd_variant(copies=False),
            hint="zero_grad(set_to_none=False) and backward write into the same tensor again. What is your velocity then?",
        ),
        Mistake(
            "forgetting the velocity between the steps",
            sgd_variant(remembers=False),
            hint="The next step gets the same dict, and whatever yours left in it. Where do you look the velocity up?",
        ),
        Mistake(
            "changing p.grad",
            sgd_variant(spoil=True),
            hint="Somebody may still want to read that gradient: it takes in no decay, and it is not cleared here.",
        ),
    ),
)


# ----------------------------------------------------------------------------------------------------------- adam_step


def random_adam(rng):
    shapes = ((3,), (2, 2), ())
    start = [drawn(rng, *shape) for shape in shapes]
    given = [[drawn(rng, *shape) for shape in shapes] for _ in range(5)]
    lr, wd = (round(float(x), 3) for x in rng.uniform(0.05, 0.5, 2))
    betas = tuple(round(float(x), 3) for x in rng.uniform(0.3, 0.95, 2))
    yield descent("random gradients for three parameters", "values", start, given, [{"lr": lr}] * 5)
    yield descent("other betas", "values", start, given, [{"lr": lr, "betas": betas}] * 5)
    tiny = [[1e-3 * g for g in step] for step in given]
    yield descent("gradients of the size of eps", "epsilon", start, tiny, [{"lr": lr, "eps": 1e-3, "betas": betas}] * 5)
    for decoupled in (False, True):
        about = f"random gradients with decay, decoupled={decoupled}"
        arguments = {"lr": lr, "betas": betas, "weight_decay": wd, "decoupled": decoupled}
        yield descent(about, "weight decay", start, given, [arguments] * 5)
    holes = [[g if (i + j) % 3 else None for i, g in enumerate(step)] for j, step in enumerate(given)]
    yield descent("some gradients are None", "in place", start, holes, [{"lr": lr}] * 5, kw={"in_place": True})
    twins = [[drawn(rng, 2), drawn(rng, 2)] for _ in range(4)]
    yield descent("two parameters of one shape", "values", twins[0], twins[1:], [{"lr": lr, "betas": betas}] * 3)


def adam_variant(
    correct=lambda beta, t: 1 - beta**t,
    root="outside",
    count="own",
    decay="by mode",
    stores="averages",
    rebind=False,
):
    """Adam with one thing done differently."""

    def adam_step(params, state, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
        with torch.no_grad():
            if count == "common":
                state["t"] = state.get("t", 0) + 1
            for i, p in enumerate(params):
                if p.grad is None:
                    continue
                g = p.grad
                if decoupled and decay == "by mode":
                    p.mul_(1 - lr * weight_decay)
                elif decoupled and decay == "without lr":
                    p.mul_(1 - weight_decay)
                elif not (decoupled and decay == "late"):
                    g = g + weight_decay * p
                if count == "every parameter":
                    state["t"] = state.get("t", 0) + 1
                t, m, v = state.get(i, (0, torch.zeros_like(p), torch.zeros_like(p)))
                m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
                state[i] = t + 1, m, v
                t = {"own": t + 1, "late": max(t, 1), "zero": t}.get(count, state.get("t"))
                m, c = m / correct(betas[0], t), correct(betas[1], t)
                if stores == "corrected":
                    state[i] = t, m, v / c
                if root == "outside":
                    step = lr * m / ((v / c).sqrt() + eps)
                elif root == "none":
                    step = lr * m / (v / c + eps)
                elif root == "inside":
                    step = lr * m / (v / c + eps).sqrt()
                else:
                    step = lr * m * c**0.5 / (v.sqrt() + eps)
                if rebind:
                    params[i] = p - step
                else:
                    p.sub_(step)
                if decoupled and decay == "late":
                    p.mul_(1 - lr * weight_decay)

    return adam_step


BOWL = Build("optimization.quadratic", curvature=[f64([2.0, 1.0])])  # x² + y²/2
NEAR_AXIS = [f64([1.0, -0.002])]

ADAM_STEP = Exercise(
    name="adam_step",
    title="one step of Adam",
    level="hard",
    minutes=20,
    parts=("values", "epsilon", "weight decay", "in place"),
    probe="optimization.steps",
    tolerance=1e-8,
    forbids=("torch.optim.*", "torch.optim.adam.adam", "torch.optim.adam._*_adam", "torch._fused_*"),
    cases=(
        descent(
            "three steps on w² from 1",
            "values",
            [f64([1.0])],
            SQUARE,
            [{"lr": 0.1}] * 3,
            expected=after([[0.9000000005]], [[0.80041222869]], [[0.70158627295]]),
        ),
        descent(
            "w² from 1, lr left out",
            "values",
            [f64([1.0])],
            SQUARE,
            [{}] * 2,
            expected=after([[0.999000000005]], [[0.998000026214]]),
        ),
        descent(
            "two parameters, other betas",
            "values",
            [f64([[1.0, 2.0], [3.0, 4.0]]), f64([-1.0])],
            Build("optimization.quadratic", curvature=[f64([[2.0, 2.0], [1.0, 1.0]]), f64([3.0])]),
            [{"lr": 0.1, "betas": (0.8, 0.9)}] * 3,
            expected=after(
                [[[0.9000000005, 1.90000000025], [2.90000000033, 3.90000000025]], [-0.90000000033]],
                [[[0.80044681542, 1.80018295583], [2.80011353919, 3.80008206767]], [-0.80044681508]],
                [[[0.70171922686, 1.70068340507], [2.70042045408, 3.70030268038]], [-0.70171922634]],
            ),
        ),
        descent(
            "x² + y²/2 from (1, -0.002), eps 0.001: one gradient is of its size",
            "epsilon",
            NEAR_AXIS,
            BOWL,
            [{"lr": 1e-3, "eps": 1e-3}] * 3,
            expected=after(
                [[0.99900049975, -0.00133333333]], [[0.99800102593, -0.00072243616]], [[0.99700159595, -0.00018861374]]
            ),
        ),
        descent(
            "x² + y²/2 from (1, -0.002), decay in the gradient",
            "weight decay",
            NEAR_AXIS,
            BOWL,
            [{"lr": 0.1, "weight_decay": 0.5}] * 3,
            expected=after(
                [[0.9000000004, 0.09799966667]], [[0.80041222849, 0.02496796982]], [[0.70158627263, -0.04551311305]]
            ),
        ),
        descent(
            "x² + y²/2 from (1, -0.002), decoupled decay",
            "weight decay",
            NEAR_AXIS,
            BOWL,
            [{"lr": 0.1, "weight_decay": 0.5, "decoupled": True}] * 3,
            expected=after(
                [[0.8500000005, 0.0980995]], [[0.70824844336, 0.02016141010]], [[0.57497393074, -0.04900873814]]
            ),
        ),
        descent(
            "equal gradients, parameters 1 and 10, decoupled decay",
            "weight decay",
            [f64([1.0, 10.0])],
            [[f64([1.0, 1.0])]],
            [{"lr": 0.1, "weight_decay": 0.5, "decoupled": True}],
            expected=after([[0.850000001, 9.400000001]]),
        ),
        descent(
            "a parameter whose first gradient comes late",
            "in place",
            [f64([1.0, 2.0]), f64([3.0])],
            [[f64([1.0, -1.0]), None], [f64([2.0, 0.5]), f64([2.0])], [f64([0.0, 1.0]), f64([-1.0])]],
            [{"lr": 0.1}] * 3,
            kw={"in_place": True},
            expected=after(
                [[0.900000001, 2.099999999], [3.0]],
                [[0.80348179903, 2.12663370263], [2.9000000005]],
                [[0.72887294927, 2.09936402381], [2.87336629670]],
            )
            | UNTOUCHED_OTHERWISE,
        ),
    ),
    hidden=random_adam,
    mistakes=(
        Mistake(
            "leaving out the bias correction",
            adam_variant(correct=lambda beta, t: 1.0),
            hint="Both averages start at zero, so they are too small at first. A right first step has length lr.",
        ),
        Mistake(
            "dividing by 1 - beta without the power t",
            adam_variant(correct=lambda beta, t: 1 - beta),
            hint="The correction fades: after many steps it should be almost 1. Which exponent does beta get?",
        ),
        Mistake(
            "storing the corrected averages",
            adam_variant(stores="corrected"),
            hint="The correction is for the step alone. Which m goes into the next average?",
        ),
        Mistake(
            "starting to count at t = 0",
            adam_variant(count="zero"),
            hint="1 − β⁰ is 0, and you divide by it. With which t does the first step run?",
        ),
        Mistake(
            "counting the steps one too late",
            adam_variant(count="late"),
            hint="With which t does the first step run, and with which the second?",
        ),
        Mistake(
            "counting a step for every parameter",
            adam_variant(count="every parameter"),
            hint="With two parameters your count goes up twice a step. Whose steps should t count?",
        ),
        Mistake(
            "one step count for all parameters",
            adam_variant(count="common"),
            hint="A parameter that was skipped has made fewer steps than the others. What is its t?",
        ),
        Mistake(
            "leaving the root out",
            adam_variant(root="none"),
            hint="v averages squares. What of it has the unit of a gradient?",
        ),
        Mistake(
            "adding eps under the root",
            adam_variant(root="inside"),
            hint="sqrt(v) + eps and sqrt(v + eps) differ where the gradient is as small as eps. Which is in the formula?",
        ),
        Mistake(
            "adding eps before the root is corrected",
            adam_variant(root="before"),
            hint="The correction of v belongs to v alone. Is your eps divided by it as well?",
        ),
        Mistake(
            "adding the decay to the gradient although it is decoupled",
            adam_variant(decay="in gradient"),
            hint="Adam divides the gradient by its size, and the decay with it. What did AdamW change?",
        ),
        Mistake(
            "decoupled decay after the step",
            adam_variant(decay="late"),
            hint="What AdamW subtracts is not shrunk. Which of the two comes first in the docstring?",
        ),
        Mistake(
            "decoupled decay without the learning rate",
            adam_variant(decay="without lr"),
            hint="By which factor does one step shrink the parameter? The docstring names two numbers.",
        ),
        Mistake(
            "putting new tensors into the list",
            adam_variant(rebind=True),
            hint="The model holds the old tensors. Which method changes a tensor itself?",
        ),
    ),
)


# --------------------------------------------------------------------------------------------------------------- lr_at


def schedule(about, part, steps, expected=None, **settings):
    """A case for `lr_at`: the steps asked for, and settings other than the defaults."""
    return Case(about, part, kwargs={"steps": steps} | settings, expected=expected)


def random_schedules(rng):
    base, minimum = round(float(rng.uniform(0.2, 2.0)), 3), round(float(rng.uniform(0.001, 0.1)), 4)
    warmup, length = (int(x) for x in rng.integers((2, 20), (9, 60)))
    total = warmup + length
    settings = {"base": base, "warmup": warmup, "total": total, "minimum": minimum}
    yield schedule("other settings, between warm-up and end", "values", list(range(warmup, total)), **settings)
    yield schedule("other settings, during warm-up", "warm-up", list(range(warmup)), **settings)
    yield schedule("no warm-up at all", "warm-up", [0, 1, 2], **settings | {"warmup": 0})
    late = [total, total + 1, total + int(rng.integers(2, length)), total + length, 3 * total + 1]
    yield schedule("other settings, at the end and after it", "after the end", late, **settings)


def lr_variant(ramp=None, progress=None, wave=None, floor=None, end="minimum", longer=0):
    """A schedule with one thing done differently."""
    ramp = ramp or (lambda step, base, warmup, minimum: base * (step + 1) / warmup)
    progress = progress or (lambda step, warmup, total: (step - warmup) / (total - warmup))
    wave = wave or (lambda p: 0.5 * (1 + math.cos(math.pi * p)))
    floor = floor or (lambda base, minimum, w: minimum + (base - minimum) * w)

    def lr_at(step, base=0.1, warmup=4, total=14, minimum=0.01):
        if step < warmup + longer:
            return ramp(step, base, warmup, minimum)
        if step >= total and end == "minimum":
            return minimum
        return floor(base, minimum, wave(progress(step, warmup, total)))

    return lr_at


LR_AT = Exercise(
    name="lr_at",
    title="a learning rate schedule",
    level="easy",
    minutes=10,
    parts=("values", "warm-up", "after the end"),
    probe="optimization.rates",
    forbids=("torch.optim.lr_scheduler.*",),
    tolerance=1e-6,
    cases=(
        schedule(
            "between warm-up and end",
            "values",
            [4, 5, 9, 13],
            [0.1, 0.0977975432332819, 0.055, 0.01220245676671809],
        ),
        schedule(
            "from 1 down to 0 over four steps",
            "values",
            [0, 1, 2, 3],
            [1.0, 0.8535533905932737, 0.5, 0.14644660940672627],
            base=1.0,
            warmup=0,
            total=4,
            minimum=0.0,
        ),
        schedule("the four steps of warm-up", "warm-up", [0, 1, 2, 3], [0.025, 0.05, 0.075, 0.1]),
        schedule("no warm-up at all", "warm-up", [0], [0.1], warmup=0),
        schedule("a warm-up of one step", "warm-up", [0, 1], [0.1, 0.1], warmup=1),
        schedule("the end and later", "after the end", [14, 15, 24, 100], [0.01, 0.01, 0.01, 0.01]),
        schedule("a minimum of 0.5", "after the end", [6, 8], [0.5, 0.5], base=2.0, warmup=2, total=6, minimum=0.5),
    ),
    hidden=random_schedules,
    mistakes=(
        Mistake(
            "warming up from zero",
            lr_variant(ramp=lambda step, base, warmup, minimum: base * step / warmup),
            hint="At step 0 your rate is 0, so the first update moves nothing. What is the rate at step 0 in the docstring?",
        ),
        Mistake(
            "warming up from the minimum",
            lr_variant(ramp=lambda step, base, warmup, minimum: minimum + (base - minimum) * (step + 1) / warmup),
            hint="The minimum is where the rate ends. What is the rate at step 0 in the docstring?",
        ),
        Mistake(
            "staying in the warm-up one step too long",
            lr_variant(longer=1),
            hint="At step warmup your rate is above base. Counted from 0, which is the last of four steps?",
        ),
        Mistake(
            "letting the cosine come up again after the end",
            lr_variant(end="none"),
            hint="The cosine has a period. What should happen from step total on?",
        ),
        Mistake(
            "stretching the cosine over all steps instead of those after the warm-up",
            lr_variant(progress=lambda step, warmup, total: step / total),
            hint="At the first step after the warm-up the cosine should be at its top. Where is yours?",
        ),
        Mistake(
            "falling to zero instead of to the minimum",
            lr_variant(floor=lambda base, minimum, w: base * w),
            hint="What remains when the cosine term is 0?",
        ),
        Mistake(
            "adding the minimum without taking it off the height",
            lr_variant(floor=lambda base, minimum, w: minimum + base * w),
            hint="At the top your rate is base + minimum. How high may the cosine part be?",
        ),
        Mistake(
            "leaving out the ½",
            lr_variant(wave=lambda p: 1 + math.cos(math.pi * p)),
            hint="At the top the cosine is 1, and your rate far above base. How large is 1 + cos 0?",
        ),
        Mistake(
            "leaving π out of the cosine",
            lr_variant(wave=lambda p: 0.5 * (1 + math.cos(p))),
            hint="At q = 1 your cosine is still at 0.54. How far has half a wave to go?",
        ),
        Mistake(
            "giving math.cos degrees",
            lr_variant(wave=lambda p: 0.5 * (1 + math.cos(180 * p))),
            hint="math.cos takes radians. How long is half a wave in radians?",
        ),
        Mistake(
            "falling along a straight line",
            lr_variant(wave=lambda p: 1 - p),
            hint="The middle is right, and the quarters are not: a cosine is flat at both ends.",
        ),
        Mistake(
            "counting from step + 1 in the cosine as well",
            lr_variant(progress=lambda step, warmup, total: (step + 1 - warmup) / (total - warmup)),
            hint="The first step after the warm-up still has the full rate. What is your progress there?",
        ),
    ),
)


# ----------------------------------------------------------------------------------------------------- bce_with_logits


def losses(about, part, z, t, gradient=False, **more):
    """A case for `bce_with_logits`."""
    kwargs = {"z": z, "t": t} | ({"gradient": True} if gradient else {})
    return Case(about, part, kwargs=kwargs, **more)


def random_logits(rng):
    def labels(*shape):
        return torch.from_numpy(rng.integers(0, 2, shape).astype(float))

    z = 3 * drawn(rng, 5)
    yield losses("random logits, hard targets", "values", z, labels(5))
    yield losses(
        "random logits in two dimensions, soft targets",
        "values",
        drawn(rng, 3, 2),
        torch.from_numpy(rng.random((3, 2))),
    )
    far = torch.from_numpy(rng.uniform(720, 900, 4) * [1, -1, 1, -1])  # exp of the positive ones is infinite
    yield losses("large logits, right and wrong", "large logits", far, f64([1.0, 0.0, 0.0, 1.0]))
    yield losses("large logits in float32", "large logits", far.float(), tensor([0.0, 1.0, 1.0, 1.0]))
    yield losses("gradient of random logits", "gradient", z, labels(5), gradient=True)
    yield losses("gradient of large logits", "gradient", far, f64([1.0, 0.0, 0.0, 1.0]), gradient=True)
    column, n = drawn(rng, 4, 1), int(rng.integers(2, 5))
    yield losses("a column and a row", "errors", column, labels(4), raises=ValueError)
    yield losses("one target for all", "errors", drawn(rng, n), labels(1), raises=ValueError)
    yield losses("one logit for all", "errors", drawn(rng, 1), labels(n), raises=ValueError)
    yield losses("a row and a column", "errors", drawn(rng, n), labels(n, 1), raises=ValueError)
    yield losses("a column and a column: allowed", "errors", column, labels(4, 1))
    yield losses("a single logit: allowed", "errors", drawn(rng, 1), labels(1))


def stable(z, t):
    return z.clamp(min=0) - z * t + torch.log1p(torch.exp(-z.abs()))


def checked(z, t):
    if z.shape != t.shape:
        raise ValueError("the shapes differ")


def bce_variant(of, checks=True, reduce=torch.mean):
    """A loss with one thing done differently: `of(z, t)` gives one loss an element."""

    def bce_with_logits(z, t):
        if checks:
            checked(z, t)
        return reduce(of(z, t))

    return bce_with_logits


def of_probabilities(p, t, log=torch.log):
    return -(t * log(p) + (1 - t) * log(1 - p))


BCE_WITH_LOGITS = Exercise(
    name="bce_with_logits",
    title="cross-entropy of logits",
    level="medium",
    minutes=12,
    parts=("values", "large logits", "gradient", "errors"),
    probe="optimization.loss",
    forbids=(
        *("F.binary_cross_entropy*", "torch.binary_cross_entropy*", "nn.BCE*"),
        *("F.*soft_margin_loss", "nn.*SoftMarginLoss", "torch.soft_margin_loss"),
    ),
    tolerance=1e-6,
    cases=(
        losses("three logits", "values", f64([2.0, -1.0, 0.5]), f64([1.0, 0.0, 0.0]), expected=f64(0.471422227580434)),
        losses(
            "soft targets in a column",
            "values",
            f64([[1.5], [-2.0]]),
            f64([[0.3], [0.9]]),
            expected=f64(1.5891706445128624),
        ),
        losses("a logit of 0", "values", tensor([0.0]), tensor([1.0]), expected=tensor(math.log(2))),
        losses(
            "one logit of -200, and wrong",
            "large logits",
            tensor([2.0, -1.0, 0.5, -200.0]),
            tensor([1.0, 0.0, 0.0, 1.0]),
            expected=tensor(50.35356667),
        ),
        losses("±200, both wrong", "large logits", tensor([200.0, -200.0]), tensor([0.0, 1.0]), expected=tensor(200.0)),
        losses("±1000, both right", "large logits", f64([1000.0, -1000.0]), f64([1.0, 0.0]), expected=f64(0.0)),
        losses(
            "three logits",
            "gradient",
            f64([2.0, -1.0, 0.5]),
            f64([1.0, 0.0, 0.0]),
            gradient=True,
            expected=f64([-0.0397343073407059, 0.08964714045666504, 0.20748644373395153]),
        ),
        losses(
            "±200, both wrong",
            "gradient",
            f64([200.0, -200.0]),
            f64([0.0, 1.0]),
            gradient=True,
            expected=f64([0.5, -0.5]),
        ),
        losses(
            "logits (3, 1), targets (3,)",
            "errors",
            f64([[2.0], [-1.0], [0.5]]),
            f64([1.0, 0.0, 0.0]),
            raises=ValueError,
        ),
        losses("logits (3,), one target", "errors", f64([2.0, -1.0, 0.5]), f64([1.0]), raises=ValueError),
        losses("one logit, targets (3,)", "errors", f64([2.0]), f64([1.0, 0.0, 0.0]), raises=ValueError),
        losses(
            "logits and targets (3, 1)",
            "errors",
            f64([[2.0], [-1.0], [0.5]]),
            f64([[1.0], [0.0], [0.0]]),
            expected=f64(0.471422227580434),
        ),
    ),
    hidden=random_logits,
    mistakes=(
        Mistake(
            "taking the sigmoid twice",
            bce_variant(lambda z, t: stable(torch.sigmoid(z), t)),
            hint="The loss takes logits and applies the sigmoid itself. What does it get from you?",
        ),
        Mistake(
            "taking the logarithm of the sigmoid",
            bce_variant(lambda z, t: of_probabilities(torch.sigmoid(z), t)),
            hint="At z = 200 the sigmoid is exactly 1, and 1 - 1 has no logarithm. Combine log and sigmoid by hand first.",
        ),
        Mistake(
            "cutting the probability off near 0 and 1",
            bce_variant(lambda z, t: of_probabilities(torch.sigmoid(z).clamp(1e-7, 1 - 1e-7), t)),
            hint="The loss no longer grows beyond about 16, and its gradient there is 0. Avoid the probability itself.",
        ),
        Mistake(
            "cutting the logarithm off at -100",
            bce_variant(lambda z, t: of_probabilities(torch.sigmoid(z), t, lambda p: torch.log(p).clamp(min=-100))),
            hint="That is what nn.BCELoss does with a probability of 0: a loss of 200 becomes 100.",
        ),
        Mistake(
            "raising e to the power of a large logit",
            bce_variant(lambda z, t: torch.log1p(torch.exp(z)) - z * t),
            hint="In float32, e²⁰⁰ is infinite. Of z, −z and −|z|, which power is never large?",
        ),
        Mistake(
            "raising e to a positive power where the logit is negative",
            bce_variant(lambda z, t: z - z * t + torch.log1p(torch.exp(-z))),
            hint="At z = −200 that is e²⁰⁰. Of z, −z and −|z|, which power is never large?",
        ),
        Mistake(
            "letting the shapes broadcast",
            bce_variant(stable, checks=False),
            hint="(3, 1) and (3,) broadcast to (3, 3): nine losses of three pairs. Compare the shapes first.",
        ),
        Mistake(
            "adding the losses up",
            bce_variant(stable, reduce=torch.sum),
            hint="A sum grows with the number of rows. What does the docstring ask for?",
        ),
        Mistake(
            "leaving max(z, 0) out",
            bce_variant(lambda z, t: torch.log1p(torch.exp(-z.abs())) - z * t),
            hint="Your values are right for negative logits only. Which term vanishes there?",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------- split_last


def numbered(n, *more):
    """n rows that say which they are, float32."""
    size = n * math.prod(more)
    return torch.arange(float(size)).reshape(n, *more)


def random_splits(rng):
    for part, n, fraction in (
        ("values", int(rng.integers(20, 40)), 0.45),
        ("values", 3 * int(rng.integers(5, 9)), 1 / 6),
        ("uneven sizes", 10 * int(rng.integers(3, 9)) + 1, 0.37),
        ("uneven sizes", 10 * int(rng.integers(3, 9)) + 7, 0.23),
        ("other axes", int(rng.integers(11, 19)), 0.3),
    ):
        X, y = (
            drawn(rng, n, 3, 2) if part == "other axes" else drawn(rng, n, 2),
            torch.from_numpy(rng.integers(0, 9, n)),
        )
        yield Case(f"{n} rows", part, (X, y, fraction))


def split_variant(size=lambda n, f: int(n * (1 - f)), order=lambda n: torch.arange(n), pairs=True, back=None):
    """A split with one thing done differently."""

    def split_last(X, y, validation_split):
        k, n = size(len(X), validation_split), len(X)
        rows = order(n)
        X, y = X[rows], y[rows if pairs else order(n)]
        parts = X[:k], y[:k], X[k:], y[k:]
        return back(*parts) if back else parts

    return split_last


def first_rows(X, y, validation_split):
    k = len(X) - int(len(X) * (1 - validation_split))
    return X[k:], y[k:], X[:k], y[:k]


SPLIT_LAST = Exercise(
    name="split_last",
    title="hold out the last rows",
    level="easy",
    minutes=5,
    parts=("values", "uneven sizes", "other axes"),
    cases=(
        Case(
            "ten rows, a fifth held out",
            "values",
            (numbered(10, 2), tensor([0, 1, 0, 1, 0, 1, 0, 1, 1, 1]), 0.2),
            expected=(
                tensor([[0.0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]]),
                tensor([0, 1, 0, 1, 0, 1, 0, 1]),
                tensor([[16.0, 17.0], [18.0, 19.0]]),
                tensor([1, 1]),
            ),
        ),
        Case(
            "ten rows, 0.33",
            "uneven sizes",
            (numbered(10), numbered(10) / 10, 0.33),
            expected=(
                tensor([0.0, 1, 2, 3, 4, 5]),
                tensor([0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
                tensor([6.0, 7, 8, 9]),
                tensor([0.6, 0.7, 0.8, 0.9]),
            ),
        ),
        Case(
            "three rows, 0.33",
            "uneven sizes",
            (numbered(3), numbered(3), 0.33),
            expected=(tensor([0.0, 1.0]), tensor([0.0, 1.0]), tensor([2.0]), tensor([2.0])),
        ),
        Case(
            "four rows, 0.4",
            "uneven sizes",
            (numbered(4), numbered(4), 0.4),
            expected=(tensor([0.0, 1.0]), tensor([0.0, 1.0]), tensor([2.0, 3.0]), tensor([2.0, 3.0])),
        ),
        Case(
            "103 rows, 0.33",
            "uneven sizes",
            (numbered(103), numbered(103), 0.33),
            expected=(numbered(103)[:69], numbered(103)[:69], numbered(103)[69:], numbered(103)[69:]),
        ),
        Case(
            "rows that are matrices, labels in a column",
            "other axes",
            (numbered(4, 1, 2), tensor([[1], [0], [1], [0]]), 0.5),
            expected=(
                tensor([[[0.0, 1.0]], [[2.0, 3.0]]]),
                tensor([[1], [0]]),
                tensor([[[4.0, 5.0]], [[6.0, 7.0]]]),
                tensor([[1], [0]]),
            ),
        ),
    ),
    hidden=random_splits,
    mistakes=(
        Mistake(
            "holding out the first rows",
            first_rows,
            hint="Which rows does the docstring call the validation set?",
        ),
        Mistake(
            "shuffling before the split",
            split_variant(order=torch.randperm),
            hint="validation_split takes the rows as they stand in the file. Shuffling is another step, before this one.",
        ),
        Mistake(
            "shuffling rows and labels differently",
            split_variant(order=torch.randperm, pairs=False),
            hint="A row has lost its label. And here nothing is to be shuffled at all.",
        ),
        Mistake(
            "rounding the number of training rows",
            split_variant(size=lambda n, f: round(n * (1 - f))),
            hint="int cuts off: 6.7 training rows are 6.",
        ),
        Mistake(
            "cutting off the number of validation rows",
            split_variant(size=lambda n, f: n - int(n * f)),
            hint="The number of training rows is cut off, and validation gets the rest. 10 rows and 0.33: 6 and 4.",
        ),
        Mistake(
            "returning both X first, then both y",
            split_variant(back=lambda a, b, c, d: (a, c, b, d)),
            hint="That is the order of another library. In which order does the docstring list the four?",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------------- batches


def passes(about, part, n, batch_size, seed=None, watch_global=False, expected=None):
    """A case for `batches`."""
    kwargs = {"n": n, "batch_size": batch_size}
    kwargs |= {} if seed is None else {"seed": seed}
    return Case(about, part, kwargs=kwargs | ({"watch_global": True} if watch_global else {}), expected=expected)


def shuffled(*sizes):
    return {
        "sizes": list(sizes),
        "dtype": "torch.int64",
        "every row once": True,
        "in order": False,
        "second pass in another order": True,
        "second pass in other batches": True,
        "same seed, same order": True,
    }


def random_batches(rng):
    n, size, seed = (int(x) for x in rng.integers((20, 3, 1), (40, 8, 1000)))
    yield passes("in order", "values", n, size)
    yield passes("one batch larger than all rows", "values", n, n + size)
    yield passes("shuffled", "shuffled", n, size, seed=seed)
    yield passes("torch's global generator", "global generator untouched", n, size, seed=seed, watch_global=True)


def batches_variant(order=None, plain=None, last=True):
    """Batches with one thing done differently."""
    order = order or (lambda n, generator: torch.randperm(n, generator=generator))
    plain = plain or torch.arange

    def batches(n, batch_size, generator=None):
        rows = plain(n) if generator is None else order(n, generator)
        for start in range(0, n if last else n - batch_size + 1, batch_size):
            yield rows[start : start + batch_size]

    return batches


def batches_shuffled_inside(n, batch_size, generator=None):
    """Rows are cut into batches first and shuffled then."""
    for batch in torch.arange(n).split(batch_size):
        yield batch if generator is None else batch[torch.randperm(len(batch), generator=generator)]


BATCHES = Exercise(
    name="batches",
    title="row numbers in batches",
    level="easy",
    minutes=8,
    parts=("values", "shuffled", "global generator untouched"),
    probe="optimization.epochs",
    forbids=("torch.utils.data.*",),
    second_of_card=True,
    cases=(
        passes("five rows", "values", 5, 2, expected=[tensor([0, 1]), tensor([2, 3]), tensor([4])]),
        passes("rows that fit", "values", 4, 2, expected=[tensor([0, 1]), tensor([2, 3])]),
        passes("a batch larger than all rows", "values", 3, 8, expected=[tensor([0, 1, 2])]),
        passes("ten rows from a generator", "shuffled", 10, 4, seed=1, expected=shuffled(4, 4, 2)),
        passes(
            "ten rows from a generator",
            "global generator untouched",
            10,
            4,
            seed=1,
            watch_global=True,
            expected={
                "sizes": [4, 4, 2],
                "dtype": "torch.int64",
                "every row once": True,
                "in order": False,
                "global generator untouched": True,
            },
        ),
    ),
    hidden=random_batches,
    mistakes=(
        Mistake(
            "dropping the last, shorter batch",
            batches_variant(last=False),
            hint="Every row comes once. Which rows does your last batch hold?",
        ),
        Mistake(
            "shuffling with torch's global generator",
            batches_variant(order=lambda n, generator: torch.randperm(n)),
            hint="torch.randperm takes a generator. Without it, it draws from the one that everybody shares.",
        ),
        Mistake(
            "shuffling although there is no generator",
            batches_variant(plain=torch.randperm),
            hint="Without a generator the rows come in order.",
        ),
        Mistake(
            "drawing with replacement",
            batches_variant(order=lambda n, generator: torch.randint(n, (n,), generator=generator)),
            hint="Some rows come twice and others never. Which function draws an order rather than numbers?",
        ),
        Mistake(
            "the same order in every pass",
            batches_variant(order=lambda n, generator: torch.randperm(n, generator=generator.manual_seed(0))),
            hint="A generator moves on with every draw. What sets yours back?",
        ),
        Mistake(
            "shuffling inside of each batch",
            batches_shuffled_inside,
            hint="Row 0 never meets row 9, whatever the epoch. Which comes first, the shuffling or the cutting?",
        ),
    ),
)


# ----------------------------------------------------------------------------------------------------------------- fit


def training(
    about, part, n=70, train=range(46), validation=range(46, 70), in_training_mode=True, expected=None, **kwargs
):
    """A case for `fit`: a 13-16-16-1 network and n rows without chance."""
    given = {
        "model": Build("optimization.network", sizes=[13, 16, 16, 1], training=in_training_mode),
        "X": Build("optimization.wave_rows", n=n),
        "y": Build("optimization.wave_labels", n=n),
        "split": Build("optimization.rows", train=list(train), validation=list(validation)),
    }
    return Case(about, part, kwargs=given | kwargs, expected=expected)


EVEN, ODD = range(0, 20, 2), range(1, 20, 2)
PHASES = ["train, gradients on", "eval, gradients off"] * 2


def random_trainings(rng):
    n = int(rng.integers(26, 34))
    order = rng.permutation(n).tolist()
    rows = {"n": n, "train": order[:17], "validation": order[17:]}
    settings = {"lr": round(float(rng.uniform(0.3, 0.6)), 2), "batch_size": int(rng.integers(3, 6))}
    short = {"epochs": 3, "of_epochs": [1, 2, 3]}
    yield training("other rows and settings", "values", show=["loss", "val_loss"], **rows, **settings, **short)
    asked = {"validation_split": round(float(rng.uniform(0.1, 0.3)), 2), "fractions": True, "epochs": 1}
    yield training("another fraction: what split is asked for", "values", **rows, **settings, **asked)
    for threshold in (0.5, 0.65):
        about = f"other rows, threshold {threshold}"
        more = {"epochs": 9, "of_epochs": [1, 5, 7, 9], "threshold": threshold}
        yield training(about, "accuracy", show=["acc", "val_acc"], **rows, **settings, **more)
    yield training("other rows and settings", "trained network", rows=[0, 5, 9], **rows, **settings, epochs=6)
    mode = bool(rng.integers(2))
    yield training("other rows", "modes", phases=True, in_training_mode=mode, **rows, **settings, epochs=3)


def mean_over_rows(values, sizes):
    return sum(a * b for a, b in zip(values, sizes, strict=True)) / sum(sizes)


def mean_over_batches(values, sizes):
    return sum(values) / len(values)


def fit_variant(
    zero="before",
    average_loss=mean_over_rows,
    average_acc=mean_over_rows,
    squeeze=True,
    squash=False,
    measured="before",
    data=lambda *parts: parts,
    batch=0,
    evaluates=True,
    returns=True,
    positive=lambda z, threshold: torch.sigmoid(z) > threshold,
    late=True,
    number=float,
    grad_off=True,
    restores=True,
    fraction=lambda validation_split: validation_split,
):
    """A training loop with one thing done differently."""

    def measure(model, x, t, threshold):
        z = model(x).squeeze(1) if squeeze else model(x)
        z = torch.sigmoid(z) if squash else z
        return stable(z, t).mean(), ((positive(z, threshold)) == (t == 1)).sum().item()

    def fit(model, X, y, split, validation_split=0.33, batch_size=10, epochs=100, lr=0.1, threshold=0.5):
        X_train, y_train, X_val, y_val = data(*split(X, y, fraction(validation_split)))
        history = {"loss": [], "acc": [], "val_loss": [], "val_acc": []}
        was = model.training

        def validate():
            if evaluates:
                model.eval()
            with torch.set_grad_enabled(not grad_off):
                loss, right = measure(model, X_val, y_val, threshold)
            history["val_loss"].append(number(loss.detach()))
            history["val_acc"].append(right / len(X_val))

        model.train()
        for _ in range(epochs):
            if returns:
                model.train()
            if not late:
                validate()
                model.train()
            losses, rights, sizes = [], [], []
            for start in range(0, len(X_train), batch_size + batch):
                x, t = X_train[start : start + batch_size + batch], y_train[start : start + batch_size + batch]
                loss, right = measure(model, x, t, threshold)
                if zero == "before":
                    model.zero_grad()
                loss.backward()
                if zero == "between":
                    model.zero_grad()
                with torch.no_grad():
                    for p in model.parameters():
                        if p.grad is not None:
                            p -= lr * p.grad
                if measured == "after":
                    _, right = measure(model, x, t, threshold)
                losses.append(number(loss.detach()))
                rights.append(right)
                sizes.append(len(x))
            history["loss"].append(average_loss(losses, sizes))
            history["acc"].append(average_acc([r / s for r, s in zip(rights, sizes, strict=True)], sizes))
            if late:
                validate()
        if restores:
            model.train(was)
        return history

    return fit


FIT = Exercise(
    name="fit",
    title="the training loop",
    level="hard",
    minutes=25,
    parts=("values", "accuracy", "trained network", "modes"),
    probe="optimization.training",
    tolerance=1e-6,
    seconds=20.0,
    cases=(
        training(
            "the first two epochs",
            "values",
            show=["loss", "val_loss"],
            of_epochs=[1, 2],
            epochs=2,
            expected={"epochs": 2, "loss": [0.73359533, 0.68737758], "val_loss": [0.69735003, 0.66824977]},
        ),
        training(
            "everything by default, the first and the last epoch",
            "values",
            n=20,
            train=EVEN,
            validation=ODD,
            show=["loss", "val_loss"],
            of_epochs=[1, 100],
            expected={"epochs": 100, "loss": [0.79957292, 0.12077592], "val_loss": [0.70038709, 0.38474120]},
        ),
        training(
            "validation_split 0.25: what split is asked for",
            "values",
            n=20,
            train=EVEN,
            validation=ODD,
            epochs=1,
            fractions=True,
            validation_split=0.25,
            expected={"split was asked for": [0.25]},
        ),
        training(
            "validation_split left out: what split is asked for",
            "values",
            n=20,
            train=EVEN,
            validation=ODD,
            epochs=1,
            fractions=True,
            expected={"split was asked for": [0.33]},
        ),
        training(
            "the first two epochs",
            "accuracy",
            show=["acc", "val_acc"],
            of_epochs=[1, 2],
            epochs=2,
            expected={"epochs": 2, "acc": [16 / 46, 25 / 46], "val_acc": [9 / 24, 15 / 24]},
        ),
        training(
            "six epochs with learning rate 0.5 and threshold 0.8, the last three",
            "accuracy",
            show=["acc", "val_acc"],
            of_epochs=[4, 5, 6],
            epochs=6,
            lr=0.5,
            threshold=0.8,
            expected={"epochs": 6, "acc": [30 / 46, 34 / 46, 41 / 46], "val_acc": [15 / 24, 20 / 24, 21 / 24]},
        ),
        training(
            "a network of zeros: every probability is 0.5, and not greater",
            "accuracy",
            model=Build("optimization.network", sizes=[13, 16, 16, 1], scale=0.0),
            show=["acc"],
            of_epochs=[1],
            epochs=1,
            batch_size=46,
            expected={"epochs": 1, "acc": [30 / 46]},
        ),
        training(
            "logits of four rows after three epochs",
            "trained network",
            rows=[0, 1, 2, 3],
            epochs=3,
            expected={"logits": f64([-0.32629650, -0.22282927, -0.35357289, -0.20164616])},
        ),
        training(
            "a split that trains on every other row",
            "trained network",
            n=20,
            train=EVEN,
            validation=ODD,
            rows=[0, 1, 2, 3],
            epochs=5,
            batch_size=4,
            lr=0.3,
            expected={"logits": f64([-1.30966977, 0.01253672, -2.02486001, 0.07707831])},
        ),
        training(
            "two epochs, the model came in training mode",
            "modes",
            n=20,
            train=EVEN,
            validation=ODD,
            epochs=2,
            phases=True,
            expected={"phases": PHASES, "left in training mode": True},
        ),
        training(
            "two epochs, the model came in evaluation mode",
            "modes",
            n=20,
            train=EVEN,
            validation=ODD,
            epochs=2,
            phases=True,
            in_training_mode=False,
            expected={"phases": PHASES, "left in training mode": False},
        ),
    ),
    hidden=random_trainings,
    mistakes=(
        Mistake(
            "clearing the gradients between backward and step",
            fit_variant(zero="between"),
            hint="The step then finds no gradient. In which order do zero_grad, backward and step belong?",
        ),
        Mistake(
            "never clearing the gradients",
            fit_variant(zero="never"),
            hint="backward adds to .grad. What is in it from the batch before?",
        ),
        Mistake(
            "averaging the batches' losses as if they had equal sizes",
            fit_variant(average_loss=mean_over_batches),
            hint="46 rows make four batches of 10 and one of 6. How much should that last one count?",
        ),
        Mistake(
            "averaging the batches' accuracies as if they had equal sizes",
            fit_variant(average_acc=mean_over_batches),
            hint="46 rows make four batches of 10 and one of 6. Count the right rows, and divide once.",
        ),
        Mistake(
            "counting the right rows after the update",
            fit_variant(measured="after"),
            hint="The loss and the accuracy of a batch come from the same logits. Which ones does yours count?",
        ),
        Mistake(
            "training on the validation rows as well",
            fit_variant(data=lambda a, b, c, d: (torch.cat((a, c)), torch.cat((b, d)), c, d)),
            hint="Which rows may an update see?",
        ),
        Mistake(
            "exchanging training and validation rows",
            fit_variant(data=lambda a, b, c, d: (c, d, a, b)),
            hint="In which order does split return its four parts?",
        ),
        Mistake(
            "batches of one row too few",
            fit_variant(batch=-1),
            hint="The end of a slice is not in it. How long is your first batch?",
        ),
        Mistake(
            "letting logits (B, 1) broadcast against labels (B,)",
            fit_variant(squeeze=False),
            hint="(10, 1) and (10,) make (10, 10), and an accuracy above 1. Bring both to one shape first.",
        ),
        Mistake(
            "comparing the logit with the threshold",
            fit_variant(positive=lambda z, threshold: z > threshold),
            hint="The threshold is one for probabilities. What turns a logit into one?",
        ),
        Mistake(
            "counting a probability equal to the threshold as positive",
            fit_variant(positive=lambda z, threshold: torch.sigmoid(z) >= threshold),
            hint="Greater, says the docstring. Is 0.5 greater than 0.5?",
        ),
        Mistake(
            "a threshold of 0.5 whatever is asked for",
            fit_variant(positive=lambda z, threshold: z > 0),
            hint="threshold is an argument.",
        ),
        Mistake(
            "taking the sigmoid twice",
            fit_variant(squash=True),
            hint="The loss takes logits and applies the sigmoid itself. What does it get from you?",
        ),
        Mistake(
            "asking split for a third, whatever is given",
            fit_variant(fraction=lambda validation_split: 0.33),
            hint="0.33 is a default. Which argument holds what the caller wants?",
        ),
        Mistake(
            "validating before the epoch's training",
            fit_variant(late=False),
            hint="Your first validation sees the untrained network.",
        ),
        Mistake(
            "keeping the loss as a tensor",
            fit_variant(number=lambda loss: loss),
            hint="The history holds Python floats. Which method takes the number out of a 0-d tensor?",
        ),
        Mistake(
            "validating in training mode",
            fit_variant(evaluates=False),
            hint="no_grad does not switch dropout and batch norm off. Which method of the model does?",
        ),
        Mistake(
            "not going back to training mode after validation",
            fit_variant(returns=False),
            hint="eval() lasts until somebody calls train(). In which mode does your second epoch run?",
        ),
        Mistake(
            "recording gradients during validation",
            fit_variant(grad_off=False),
            hint="eval() does not switch gradients off. Which context does?",
        ),
        Mistake(
            "leaving the model in evaluation mode",
            fit_variant(restores=False),
            hint="model.training says in which mode a model is. Which one was it when it came in?",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------- clip_by_global_norm


def clipping(about, part, gradients, max_norm, in_place=False, **more):
    """A case for `clip_by_global_norm`: the parameters' gradients."""
    kwargs = {"gradients": gradients, "max_norm": max_norm} | ({"in_place": True} if in_place else {})
    return Case(about, part, kwargs=kwargs, **more)


def random_gradients(rng):
    g = [drawn(rng, 3), None, drawn(rng, 2, 2), drawn(rng)]
    norm = math.sqrt(sum(float((x**2).sum()) for x in g if x is not None))
    yield clipping("random gradients, half their norm", "values", g, norm / 2)
    yield clipping("random gradients, a tenth of their norm", "values", g, norm / 10)
    yield clipping("random gradients below the limit", "below the limit", g, 1.5 * norm)
    yield clipping("random gradients clipped in place", "in place", g, norm / 3, in_place=True)
    spoilt = [g[0], Build("optimization.with_a_nan", data=g[2])]
    yield clipping("a nan among random gradients", "errors", spoilt, 1.0, raises=ValueError)
    yield clipping("no limit", "errors", g, math.inf)
    yield clipping("zeros only", "errors", [torch.zeros(2, dtype=torch.float64), None], norm)


def clip_variant(clip, norm=lambda gs: math.sqrt(sum(float((g**2).sum()) for g in gs)), raises=True):
    """Clipping with one thing done differently: `clip(params, gradients, norm, max_norm)` gives what is returned."""

    def clip_by_global_norm(params, max_norm):
        gradients = [p.grad for p in params if p.grad is not None]
        size = norm(gradients)
        if raises and math.isnan(size):
            raise ValueError("nan")
        return clip(params, gradients, size, max_norm)

    return clip_by_global_norm


def scaled(params, gradients, size, max_norm):
    for g in gradients:
        if size > max_norm:
            g.mul_(max_norm / (size + 1e-6))
    return size


def scaled_bare(params, gradients, size, max_norm):
    for g in gradients:
        if size > max_norm:
            g.mul_(max_norm / size)
    return size


def each_alone(params, gradients, size, max_norm):
    for g in gradients:
        g.mul_(min(1.0, max_norm / (float(g.norm()) + 1e-6)))
    return size


def each_value(params, gradients, size, max_norm):
    for g in gradients:
        g.clamp_(-max_norm, max_norm)
    return size


def always(params, gradients, size, max_norm):
    for g in gradients:
        if size > 0 and max_norm < math.inf:
            g.mul_(max_norm / (size + 1e-6))
    return size


def new_tensors(params, gradients, size, max_norm):
    for p in params:
        if p.grad is not None and size > max_norm:
            p.grad = p.grad * (max_norm / (size + 1e-6))
    return size


def the_parameters(params, gradients, size, max_norm):
    with torch.no_grad():
        for p in params:
            if p.grad is not None and size > max_norm:
                p.mul_(max_norm / (size + 1e-6))
    return size


CLIP_BY_GLOBAL_NORM = Exercise(
    name="clip_by_global_norm",
    title="clip by the global norm",
    level="medium",
    minutes=10,
    parts=("values", "below the limit", "in place", "errors"),
    probe="optimization.clipping",
    forbids=(
        "nn.utils.clip_grad*",
        "nn.utils.clip_grad.*",
        "nn.utils.get_total_norm",
    ),
    tolerance=1e-6,
    cases=(
        clipping(
            "gradients [3, 4], None and [[12]], at most 6.5",
            "values",
            [tensor([3.0, 4.0]), None, tensor([[12.0]])],
            6.5,
            expected={"returned": 13.0, "gradients": [tensor([1.5, 2.0]), None, tensor([[6.0]])]},
        ),
        clipping(
            "one gradient, one entry above the limit",
            "values",
            [f64([2.0, -3.0, 6.0])],
            3.5,
            expected={"returned": 7.0, "gradients": [f64([1.0, -1.5, 3.0])]},
        ),
        clipping(
            "a norm of 0.001, at most 0.0001",
            "values",
            [f64([6e-4, -8e-4])],
            1e-4,
            expected={"returned": 1e-3, "gradients": [f64([6e-4, -8e-4]) * (1e-4 / 1.001e-3)]},
            tolerance=1e-9,
        ),
        clipping(
            "norm 0.5, at most 5",
            "below the limit",
            [tensor([0.3, 0.4])],
            5.0,
            expected={"returned": 0.5, "gradients": [tensor([0.3, 0.4])]},
        ),
        clipping(
            "norm 5, at most 5",
            "below the limit",
            [tensor([3.0]), tensor([4.0])],
            5.0,
            expected={"returned": 5.0, "gradients": [tensor([3.0]), tensor([4.0])]},
        ),
        clipping(
            "gradients [6] and [8], at most 5",
            "in place",
            [tensor([6.0]), None, tensor([8.0])],
            5.0,
            in_place=True,
            expected={
                "returned": 10.0,
                "gradients": [tensor([3.0]), None, tensor([4.0])],
                "the same gradient tensors": True,
                "parameters untouched": True,
            },
        ),
        clipping(
            "a nan among the gradients", "errors", [tensor([1.0, math.nan]), tensor([2.0])], 1.0, raises=ValueError
        ),
        clipping(
            "gradients of zero",
            "errors",
            [tensor([0.0, 0.0])],
            1.0,
            expected={"returned": 0.0, "gradients": [tensor([0.0, 0.0])]},
        ),
        clipping(
            "an infinite norm, which is no nan",
            "errors",
            [tensor([math.inf, 2.0]), tensor([1.0])],
            1.0,
            expected={"returned": math.inf, "gradients": [tensor([math.nan, 0.0]), tensor([0.0])]},
        ),
        clipping("no gradient at all", "errors", [None], 1.0, expected={"returned": 0.0, "gradients": [None]}),
        clipping(
            "no limit",
            "errors",
            [tensor([3.0, 4.0])],
            math.inf,
            expected={"returned": 5.0, "gradients": [tensor([3.0, 4.0])]},
        ),
    ),
    hidden=random_gradients,
    mistakes=(
        Mistake(
            "clipping every gradient by its own norm",
            clip_variant(each_alone),
            hint="That changes the direction of the whole step. One norm, one factor for all.",
        ),
        Mistake(
            "clipping every value by itself",
            clip_variant(each_value),
            hint="clamp bends the gradient. Clipping by norm keeps its direction.",
        ),
        Mistake(
            "scaling small gradients up",
            clip_variant(always),
            hint="Where the norm is below the limit nothing should happen.",
        ),
        Mistake(
            "returning the norm after clipping",
            clip_variant(lambda *a: min(scaled(*a), a[3])),
            hint="A training log wants the norm as it was. When do you measure?",
        ),
        Mistake(
            "adding up the norms",
            clip_variant(scaled, norm=lambda gs: sum(float(g.norm()) for g in gs)),
            hint="Norms add like the sides of a right triangle: [3, 4] and [12] make 13.",
        ),
        Mistake(
            "leaving the root out",
            clip_variant(scaled, norm=lambda gs: sum(float((g**2).sum()) for g in gs)),
            hint="[3, 4] has the norm 5, not 25.",
        ),
        Mistake(
            "leaving the gradients as they were",
            clip_variant(lambda params, gradients, size, max_norm: size),
            hint="g = g * … makes a new tensor and ties the name g to it. Which operation changes the tensor itself?",
        ),
        Mistake(
            "the norm of absolute values",
            clip_variant(scaled, norm=lambda gs: sum(float(g.abs().sum()) for g in gs)),
            hint="[3, 4] has the Euclidean norm 5.",
        ),
        Mistake(
            "giving the parameters new gradient tensors",
            clip_variant(new_tensors),
            hint="Others may hold the same gradient. Which method scales a tensor in place?",
        ),
        Mistake(
            "scaling the parameters",
            clip_variant(the_parameters),
            hint="The parameters themselves stay. What of them is to be scaled?",
        ),
        Mistake(
            "dividing by the norm alone",
            clip_variant(scaled_bare),
            hint="Torch adds 1e-6 to the norm: no division by zero, and small gradients become a little smaller still.",
        ),
        Mistake(
            "letting nan through",
            clip_variant(scaled, raises=False),
            hint="nan > max_norm is False, so nothing is clipped and nobody hears of it.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------- accumulated_grad


def accumulating(about, part, model, chunks, stale=None, expected=None):
    """A case for `accumulated_grad`."""
    kwargs = {"model": model, "chunks": chunks} | ({} if stale is None else {"stale": stale})
    return Case(about, part, kwargs=kwargs, expected=expected)


def cut(x, y, *sizes):
    """x and y in chunks of these sizes."""
    return list(zip(x.split(list(sizes)), y.split(list(sizes)), strict=True))


ONE_WEIGHT = Build("optimization.network", sizes=[1, 1], scale=0.0, bias=False)
SIX_NUMBERS = Build("optimization.network", sizes=[2, 2], scale=0.0)
LINE = f64([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0]])
PLANE_X = f64([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [2.0, 2.0], [1.0, -1.0], [0.5, 0.5]])
PLANE_Y = f64([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [2.0, -1.0], [0.5, 1.0]])


def random_chunks(rng):
    a, b, c = (int(n) for n in rng.integers(1, 6, 3))
    network = Build("optimization.network", sizes=[3, 4, 2], pace=round(float(rng.uniform(0.5, 2.5)), 2))
    for part, stale in (("values", None), ("any network", None), ("stale gradients", round(float(rng.normal()), 2))):
        n = 2 * a + b + c + 4
        x, y = (drawn(rng, n, 1), drawn(rng, n, 1)) if part == "values" else (drawn(rng, n, 3), drawn(rng, n, 2))
        chunks = cut(x, y, a, b + 2, c + 1, a + 1)
        model = Build("optimization.network", sizes=[1, 1], pace=1.0) if part == "values" else network
        yield accumulating("random rows in chunks of random sizes", part, model, chunks, stale)


def accumulation_variant(weight, clears="before", loss=F.mse_loss, flat=False):
    """Accumulation with one thing done differently: `weight(rows, chunks)` is a chunk's factor."""

    def accumulated_grad(model, chunks):
        if clears == "before":
            model.zero_grad()
        for x, y in chunks:
            if clears == "inside":
                model.zero_grad()
            out = model(x)
            (loss(out, y) * weight(len(x), chunks)).backward()
        return [p.grad.clone() for p in model.parameters()]

    return accumulated_grad


def all_in_one_piece(model, chunks):
    """One pass over all chunks put together."""
    x, y = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return list(torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters())))


def share(rows, chunks):
    return rows / sum(len(x) for x, _ in chunks)


ACCUMULATED_GRAD = Exercise(
    name="accumulated_grad",
    title="gradients in chunks",
    level="medium",
    minutes=10,
    parts=("values", "any network", "stale gradients", "inputs untouched"),
    probe="optimization.accumulation",
    tolerance=1e-8,
    cases=(
        accumulating(
            "y = 2x + 1 at 1 … 7 in chunks of 3, 3, 1",
            "values",
            ONE_WEIGHT,
            cut(LINE, 2 * LINE + 1, 3, 3, 1),
            expected=[f64([[-88.0]])],
        ),
        accumulating(
            "y = 2x + 1 at 1 … 4 in chunks of 2, 2",
            "values",
            ONE_WEIGHT,
            cut(LINE[:4], 2 * LINE[:4] + 1, 2, 2),
            expected=[f64([[-35.0]])],
        ),
        accumulating(
            "weights and a bias, two outputs, chunks of 2, 3, 1",
            "any network",
            SIX_NUMBERS,
            cut(PLANE_X, PLANE_Y, 2, 3, 1),
            expected=[f64([[-0.375, 0.125], [0.25, -0.75]]), f64([-0.75, -1 / 3])],
        ),
        accumulating(
            "7 stands in every .grad before",
            "stale gradients",
            ONE_WEIGHT,
            cut(LINE, 2 * LINE + 1, 3, 3, 1),
            stale=7.0,
            expected={"gradients": [f64([[-88.0]])], "parameters untouched": True, "one chunk at a time": True},
        ),
    ),
    hidden=random_chunks,
    mistakes=(
        Mistake(
            "averaging the chunks as if they had equal sizes",
            accumulation_variant(lambda rows, chunks: 1 / len(chunks)),
            hint="A chunk of one row should count a third of a chunk of three.",
        ),
        Mistake(
            "adding the chunks' mean gradients up",
            accumulation_variant(lambda rows, chunks: 1.0),
            hint="More chunks, larger gradient: that is a sum of means. Which share of all rows has a chunk?",
        ),
        Mistake(
            "clearing the gradients before every chunk",
            accumulation_variant(share, clears="inside"),
            hint="Only the last chunk's gradient is left. How often should the gradients be cleared?",
        ),
        Mistake(
            "adding to the gradients from before",
            accumulation_variant(share, clears="never"),
            hint="backward adds to what stands in .grad. What stood there when you began?",
        ),
        Mistake(
            "adding up squared errors without dividing by the rows",
            accumulation_variant(lambda rows, chunks: 1.0, loss=lambda out, y: F.mse_loss(out, y, reduction="sum")),
            hint="The loss is a mean over all rows. What do you divide by?",
        ),
        Mistake(
            "dividing by the rows alone where there are several outputs",
            accumulation_variant(
                lambda rows, chunks: 1 / sum(len(x) for x, _ in chunks),
                loss=lambda out, y: F.mse_loss(out, y, reduction="sum"),
            ),
            hint="The mean squared error is a mean over all entries. How many has y?",
        ),
        Mistake(
            "putting the chunks together first",
            all_in_one_piece,
            hint="Chunks are for rows that do not fit into memory at once. How many may be in it at a time?",
        ),
    ),
)

EXERCISES = (
    SGD_STEP,
    ADAM_STEP,
    LR_AT,
    BCE_WITH_LOGITS,
    SPLIT_LAST,
    BATCHES,
    FIT,
    CLIP_BY_GLOBAL_NORM,
    ACCUMULATED_GRAD,
)
