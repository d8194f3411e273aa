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
# # Chapter 3 · Optimization
#
# At the end of this chapter you will be able to
#
# - write SGD and Adam yourself, equal to torch's to the twelfth digit;
# - say what a learning rate, momentum, weight decay and a schedule do, and show it on a surface;
# - train a classifier with your own loss, split, batches and loop, and read its curves;
# - say why a sigmoid gives decimals, and where the threshold belongs.
#
# ![A saddle from the side and its contour lines from above. All three start on its ridge: SGD stops near the saddle point, momentum and Adam slide off to one side, down to the minimum.](figures/trajectories.png)
#
# **Before you start**: chapters 1 and 2. **Time**: 115 minutes for the exercises, about 60 for the rest. **Worth**: 33 points in nine functions.

# %%
import math
import sys
from collections.abc import Callable, Iterator

if "google.colab" in sys.modules:  # on Colab: the course's helper package, and nothing else
    package = "underhood @ git+https://github.com/under-the-hood-course/under-the-hood@v1.0.0#subdirectory=course"
    get_ipython().run_line_magic("pip", f'install -q --no-deps "{package}"')

import torch
import torch.nn.functional as F
from torch import Tensor, nn, tensor
from tqdm import tqdm

from underhood import check, ready
from underhood.data import load
from underhood.plots import optimization as plots

# %% [markdown]
# ## Downhill by hand
#
# To *optimize* is to look for the parameters that make a function, the *loss*, small. The gradient points uphill, so **gradient descent** takes a small step the other way:
#
# $$x \leftarrow x - \eta \, f'(x)$$
#
# In words: subtract the gradient, times a step size η, the *learning rate*. Take f(x) = x² from x = 8 with η = 0.1. The gradient is 2x, so every step multiplies x by 1 − 0.2 = 0.8.
#
# **Predict** the first three places after 8. Then run.

# %%
x = tensor([8.0], requires_grad=True)
for step in range(4):
    print(step, round(x.item(), 3))
    x.grad = None
    (x**2).sum().backward()
    with torch.no_grad():
        x -= 0.1 * x.grad

# %% [markdown]
# Three lines of that loop go wrong often.
#
# **`with torch.no_grad()`**: an update is not part of the function, so autograd must not record it. Without the context, `x -= …` raises: a leaf that requires a gradient is used in an in-place operation. Older code writes `x.data -= …`. That works here, but `.data` hides the change from autograd, which elsewhere gives silent wrong gradients. Use `no_grad`.
#
# **`x -= …`, not `x = x - …`**: the second makes a new tensor and ties the name `x` to it. The model still holds the old one.
#
# **`x.grad = None`**: `backward` adds. `optimizer.zero_grad()` sets None as well, so `x.grad.zero_()` after it fails: None has no `zero_`.
#
# **Predict** what the next cell prints for the weight that the model holds.

# %%
model = nn.Linear(1, 1, bias=False)
w = model.weight
with torch.no_grad():
    w.fill_(1.0)
    w.grad = torch.ones_like(w)
    w = w - 0.1 * w.grad
print("the name w:", round(w.item(), 3), "| requires_grad:", w.requires_grad)
print("the model :", model.weight.item())

# %% [markdown]
# The name moved to 0.9, the model stayed at 1.
#
# Now forget to clear the gradient. **Predict**: does w² from 1 still reach 0, only more slowly?

# %%
for clear in (True, False):
    w = tensor([1.0], requires_grad=True)
    places = [w.item()]
    for _ in range(5):
        w.grad = None if clear else w.grad
        (w**2).sum().backward()
        with torch.no_grad():
            w -= 0.3 * w.grad
        places.append(round(w.item(), 3))
    print("cleared    " if clear else "not cleared", places)

# %% [markdown]
# Not cleared, the old gradients push on like a ball without friction: it runs through 0 to the other side.
#
# The learning rate decides as much. On x², a step multiplies x by 1 − 2η. **Predict** what happens for η = 0.9 and for η = 1.02.

# %%
def descend(lr: float) -> list[float]:
    return [8 * (1 - 2 * lr) ** step for step in range(13)]


plots.show_on_curve(lambda x: x**2, {f"η = {lr}": descend(lr) for lr in (0.1, 0.9, 1.02)}, width=11)

# %% [markdown]
# ## Momentum
#
# **Momentum** keeps a *velocity* v: the new gradient plus a share μ of the old velocity.
#
# $$v \leftarrow \mu v + g \qquad x \leftarrow x - \eta v$$
#
# In words: remember μ of where you were going, add the gradient g, go η along the result. Books differ. Some keep η inside the velocity; that agrees until η changes. Some weigh g with 1 − μ; that is ten times slower at μ = 0.9. torch's form is the one above. Its first velocity is the first gradient, even where *dampening* d weighs later ones with 1 − d.
#
# **Nesterov** momentum steps along g + μv: it looks one velocity ahead. **Weight decay** λ adds λx to the gradient, which pulls every parameter toward 0.
#
# ### **Exercise 3.1 · one step of SGD** — *medium · 15 min · 4 points*
#
# Write the step of `torch.optim.SGD`, for a list of parameters, in place. The caller hands you the same `state` dict every time.
#
# *Example.* w² from w = 1 with lr = 0.1 and μ = 0.9. Step 1: g = 2, v = 2, w = 0.8. Step 2: g = 1.6, v = 0.9 · 2 + 1.6 = 3.4, w = 0.46. If lr now drops to 0.01: g = 0.92, v = 3.98, w = 0.4202.

# %% nbgrader={"grade": false, "grade_id": "03_optimization-sgd_step", "locked": false, "schema_version": 3, "solution": true, "task": false}
def sgd_step(
    params: list[Tensor],
    state: dict,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> None:
    """One step of stochastic gradient descent, in place, as `torch.optim.SGD` takes it.

    Parameters
    ----------
    params : list of Tensor
        Leaf tensors of any shape, their gradients in `.grad`. One whose `.grad` is None is skipped.
    state : dict
        {} before the first step. Keep in it what the next step needs.
    lr : float
        Step size, > 0. It may change from step to step.
    momentum : float
        μ: velocity ← μ · velocity + (1 − dampening) · gradient. The first velocity is the gradient itself.
    dampening : float
        See momentum.
    weight_decay : float
        λ: λ · parameter is added to the gradient, before the velocity. `p.grad` itself stays as it is.
    nesterov : bool
        Step along gradient + μ · velocity, not along the velocity.

    Examples
    --------
    >>> p = tensor([1.0, -2.0], requires_grad=True)
    >>> p.grad = tensor([2.0, -12.0])
    >>> sgd_step([p], {}, lr=0.1)
    >>> p.tolist()  # rounded
    [0.8, -0.8]
    """
    ### BEGIN SOLUTION
    with torch.no_grad():
        for i, p in enumerate(params):
            if p.grad is None:
                continue
            direction = p.grad
            if weight_decay:
                direction = direction.add(p, alpha=weight_decay)
            if momentum:
                if i in state:
                    state[i].mul_(momentum).add_(direction, alpha=1 - dampening)
                else:
                    state[i] = direction.clone()
                direction = direction.add(state[i], alpha=momentum) if nesterov else state[i]
            p.add_(direction, alpha=-lr)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "03_optimization-sgd_step-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("sgd_step")
### BEGIN HIDDEN TESTS
check("sgd_step", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>Nothing may be recorded: put the loop under <code>torch.no_grad()</code>. Methods with a final underscore change a tensor itself.</details>
# <details><summary>Hint 2 · method</summary>Per parameter: skip None; add the decay to a new tensor; look up the velocity by the parameter's position; choose the direction; step.</details>
# <details><summary>Hint 3 · almost code</summary><code>v = g.clone()</code> where <code>i not in state</code>, else <code>v = momentum * state[i] + (1 - dampening) * g</code>; keep it; the direction is <code>g + momentum * v</code> with Nesterov, else <code>v</code>; <code>p -= lr * direction</code>.</details>

# %%
# Try your own inputs here.

# %% [markdown]
# Now beside torch's own. The cells run both for 50 steps in float64, once with dampening and once with Nesterov, and print the largest difference. You will see numbers below 10⁻¹².

# %%
def beside_torch(step: Callable, optimizer: type, mine: dict, theirs: dict) -> float:
    p = [tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True) for _ in range(2)]
    state, other = {}, optimizer([p[1]], **theirs)
    for _ in range(50):
        for q in p:
            q.grad = torch.cos(q.detach()) + q.detach()
        step([p[0]], state, **mine)
        other.step()
    return (p[0] - p[1]).abs().max().item()

# %%
if ready("sgd_step"):
    for extra in ({"dampening": 0.2}, {"nesterov": True}):
        options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1} | extra
        print(extra, f"{beside_torch(sgd_step, torch.optim.SGD, options, options):.1e}")

# %% [markdown]
# ## Adam
#
# One learning rate for all parameters is a compromise. **Adam** divides each gradient by its own recent size. It keeps two moving averages, of the gradient and of its square, and corrects both for having started at 0:
#
# $$m \leftarrow \beta_1 m + (1-\beta_1) g \qquad v \leftarrow \beta_2 v + (1-\beta_2) g^2$$
#
# $$x \leftarrow x - \eta \, \frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \varepsilon}$$
#
# In words: average gradient over average size, both corrected; t counts the steps from 1. In step 1 the fraction is g/|g|, so every parameter moves by η, whatever its gradient. Without the correction it would move 0.1/√0.001 = 3.16 times as far, with the usual β₁ = 0.9 and β₂ = 0.999.
#
# Weight decay in the gradient gets divided by that size too. **AdamW** *decouples* it: it first multiplies the parameter by 1 − ηλ. For parameters 1 and 10 with equal positive gradients, η = 0.1, λ = 0.5, the first step of Adam gives 0.9 and 9.9, that of AdamW 0.85 and 9.4.
#
# ### **Exercise 3.2 · one step of Adam** — *hard · 20 min · 4 points · uses 3.1*
#
# Write the step of `torch.optim.Adam`, and of `torch.optim.AdamW` where `decoupled` is True. A parameter that was skipped has made one step fewer than the others.
#
# *Example.* w = 1, g = 2, η = 0.1, the first step: m = 0.2, corrected 2; v = 0.004, corrected 4; w = 1 − 0.1 · 2/(2 + ε) = 0.9.

# %% nbgrader={"grade": false, "grade_id": "03_optimization-adam_step", "locked": false, "schema_version": 3, "solution": true, "task": false}
def adam_step(
    params: list[Tensor],
    state: dict,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> None:
    """One step of Adam (Kingma and Ba 2015), or of AdamW (Loshchilov and Hutter 2019) where decoupled, in place.

    Parameters
    ----------
    params : list of Tensor
        Leaf tensors of any shape, their gradients in `.grad`. One whose `.grad` is None is skipped.
    state : dict
        {} before the first step. Keep in it what the next step needs.
    lr : float
        Step size η, > 0.
    betas : tuple of float
        β₁ and β₂. Every parameter counts its own steps t, from 1.
    eps : float
        ε, added after the root.
    weight_decay : float
        λ: λ · parameter is added to the gradient.
    decoupled : bool
        Instead, the parameter is first multiplied by 1 − η · λ, and the gradient stays as it is.

    Examples
    --------
    >>> p = tensor([1.0], requires_grad=True)
    >>> p.grad = tensor([2.0])
    >>> adam_step([p], {}, lr=0.1)
    >>> p.tolist()  # rounded
    [0.9]
    """
    ### BEGIN SOLUTION
    beta1, beta2 = betas
    with torch.no_grad():
        for i, p in enumerate(params):
            if p.grad is None:
                continue
            gradient = p.grad
            if weight_decay and decoupled:
                p.mul_(1 - lr * weight_decay)
            elif weight_decay:
                gradient = gradient.add(p, alpha=weight_decay)
            t, mean, square = state.get(i) or (0, torch.zeros_like(p), torch.zeros_like(p))
            t += 1
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            root = square.sqrt().div_((1 - beta2**t) ** 0.5).add_(eps)
            p.addcdiv_(mean, root, value=-lr / (1 - beta1**t))
            state[i] = t, mean, square
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "03_optimization-adam_step-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("adam_step")
### BEGIN HIDDEN TESTS
check("adam_step", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>Each parameter needs three things in the state: a count and two averages.</details>
# <details><summary>Hint 2 · method</summary>Count first, then average, then correct, then step. ε stands outside the root, and after the correction.</details>
# <details><summary>Hint 3 · almost code</summary><code>t, m, v = state.get(i, (0, 0.0, 0.0))</code>; t + 1; the two averages; <code>m_hat = m / (1 - b1**t)</code>, <code>v_hat = v / (1 - b2**t)</code>; <code>p -= lr * m_hat / (v_hat.sqrt() + eps)</code>. Decoupled: <code>p *= 1 - lr * weight_decay</code> before.</details>

# %%
# Try your own inputs here.

# %%
if ready("adam_step"):
    options = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}
    for decoupled, optimizer in ((False, torch.optim.Adam), (True, torch.optim.AdamW)):
        difference = beside_torch(adam_step, optimizer, options | {"decoupled": decoupled}, options)
        print(f"{optimizer.__name__:5} {difference:.1e}")

# %% [markdown]
# torch has more of them. On x²/20 + y² from (−4.5, 2.4), 50 steps each, the cell prints how low they come. `LBFGS` wants a *closure*, a function that it may call several times a step. No order here holds for all problems, or for other learning rates.

# %%
def lowest(name: str, lr: float) -> float:
    p = tensor([-4.5, 2.4], requires_grad=True)
    optimizer = getattr(torch.optim, name)([p], lr=lr)

    def closure() -> Tensor:
        optimizer.zero_grad()
        (loss := p[0] ** 2 / 20 + p[1] ** 2).backward()
        return loss

    return [optimizer.step(closure).item() for _ in range(50)][-1]

# %%
candidates = {"SGD": 0.5, "Adagrad": 1.0, "RMSprop": 0.1, "Adadelta": 30.0, "Adam": 0.2, "LBFGS": 1.0}
for name, lr in candidates.items():
    print(f"{name:9} lr {lr:<4}  f = {lowest(name, lr):.1e}")

# %% [markdown]
# ## Trajectories
#
# First in one dimension: x²/10 + sin(2x) has several valleys. From 7, **predict** who gets out of the first one.

# %%
def bumps(x: Tensor) -> Tensor:
    return x**2 / 10 + torch.sin(2 * x)


if ready("sgd_step", "adam_step"):
    paths = {"SGD": plots.trace(sgd_step, bumps, [7.0], 60, lr=0.05)[:, 0]}
    paths["momentum"] = plots.trace(sgd_step, bumps, [7.0], 60, lr=0.05, momentum=0.9)[:, 0]
    paths["Adam"] = plots.trace(adam_step, bumps, [7.0], 60, lr=0.3)[:, 0]
    plots.show_on_curve(bumps, paths, width=9)

# %% [markdown]
# Now on surfaces: a long valley, a saddle, a bent valley, many minima. Plain SGD zigzags across the valley, and near the saddle point, where the gradient is almost 0, it nearly stops.

# %%
def race(surface: str, rates: tuple[float, float, float], steps: int = 60) -> dict:
    f, start, _ = plots.SURFACES[surface]
    paths = {"SGD": plots.trace(sgd_step, f, start, steps, lr=rates[0])}
    paths["momentum"] = plots.trace(sgd_step, f, start, steps, lr=rates[1], momentum=0.9)
    return paths | {"Adam": plots.trace(adam_step, f, start, steps, lr=rates[2])}

# %%
rates = {"valley": (0.9, 0.1, 0.2), "saddle": (0.1, 0.1, 0.2), "banana": (0.05, 0.05, 0.1), "many minima": (0.1, 0.1, 0.2)}
if ready("sgd_step", "adam_step"):
    for surface in rates:
        plots.show_landscape(surface, race(surface, rates[surface]))

# %% [markdown]
# To watch one as a film, set `animated = True`. It takes about ten seconds and adds about 2 MB to your notebook.

# %%
animated = False
if animated and ready("sgd_step", "adam_step"):
    plots.animate_landscape("saddle", race("saddle", rates["saddle"]))

# %% [markdown]
# ## Learning rates over time
#
# A large rate is fast at first and noisy at the end. A **schedule** changes it step by step. A common one rises in a straight line (*warm-up*), then falls along half a cosine:
#
# $$\eta = \eta_{min} + \tfrac12 (\eta_0 - \eta_{min}) (1 + \cos \pi q), \qquad q = \frac{step - warmup}{total - warmup}$$
#
# In words: q runs from 0 at the end of the warm-up to 1 at step `total`; the cosine term runs from 1 down to 0. After that the rate stays at its minimum.
#
# ### **Exercise 3.3 · a learning rate schedule** — *easy · 10 min · 3 points*
#
# *Example.* base 0.1, warm-up of 4 steps, total 14, minimum 0.01. Step 0 has 0.1 · 1/4 = 0.025, step 3 and step 4 have 0.1. Step 9 is half-way: 0.01 + ½ · 0.09 · (1 + 0) = 0.055. From step 14 on: 0.01.

# %% nbgrader={"grade": false, "grade_id": "03_optimization-lr_at", "locked": false, "schema_version": 3, "solution": true, "task": false}
def lr_at(step: int, base: float = 0.1, warmup: int = 4, total: int = 14, minimum: float = 0.01) -> float:
    """The learning rate of one step: linear warm-up, then half a cosine down, then constant.

    Parameters
    ----------
    step : int
        Number of updates already made: 0, 1, 2, …
    base : float
        The rate at the top.
    warmup : int
        Steps of warm-up, in which the rate is base · (step + 1) / warmup. May be 0.
    total : int
        From this step on the rate is minimum. Between warmup and total it follows half a cosine.
    minimum : float
        The rate at the end.

    Returns
    -------
    float

    Examples
    --------
    >>> [round(lr_at(step), 3) for step in (0, 3, 4, 9, 14, 100)]
    [0.025, 0.1, 0.1, 0.055, 0.01, 0.01]
    """
    ### BEGIN SOLUTION
    if step < warmup:
        return base * (step + 1) / warmup
    if step >= total:
        return minimum
    progress = (step - warmup) / (total - warmup)
    return minimum + 0.5 * (base - minimum) * (1 + math.cos(math.pi * progress))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "03_optimization-lr_at-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("lr_at")
### BEGIN HIDDEN TESTS
check("lr_at", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>Three phases, three returns.</details>
# <details><summary>Hint 2 · method</summary>Ask for the warm-up first, then for the end; between them, compute q. With a warm-up of 0 the first question is never true.</details>
# <details><summary>Hint 3 · almost code</summary><code>if step &lt; warmup: …</code>, <code>if step &gt;= total: return minimum</code>, <code>q = (step - warmup) / (total - warmup)</code>, then the formula with <code>math.cos(math.pi * q)</code>.</details>

# %%
# Try your own inputs here.

# %% [markdown]
# torch builds the same from two schedulers in sequence. In its loop `scheduler.step()` stands *after* `optimizer.step()`: the other way round skips the first rate. And `get_last_lr()` is the rate in use; `get_lr()` is internal and shows other numbers at the boundaries.

# %%
from torch.optim import lr_scheduler


def rates_of(build: Callable, steps: int = 14, lr: float = 0.1) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler, rates = build(optimizer), []
    for _ in range(steps):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates

# %%
def warm_cosine(o):
    rise, fall = lr_scheduler.LinearLR(o, 0.25, 1.0, 3), lr_scheduler.CosineAnnealingLR(o, 10, eta_min=0.01)
    return lr_scheduler.SequentialLR(o, [rise, fall], milestones=[4])


if ready("lr_at"):
    theirs = rates_of(warm_cosine)
    print(f"largest difference {max(abs(a - lr_at(i)) for i, a in enumerate(theirs)):.1e}")
    others = {"StepLR": lambda o: lr_scheduler.StepLR(o, 5, 0.5), "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.8)}
    plots.show_rates({"lr_at": [lr_at(i) for i in range(14)]} | {k: rates_of(v) for k, v in others.items()})

# %%
# Two more, in numbers: MultiStepLR drops at named steps, LambdaLR multiplies by what your function returns.
print([round(r, 4) for r in rates_of(lambda o: lr_scheduler.MultiStepLR(o, [3, 6], 0.1), 8)])
print([round(r, 4) for r in rates_of(lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)), 8)])

# %% [markdown]
# ## Why a sigmoid gives decimals
#
# Somebody trained a yes-or-no network with a sigmoid at its end and asked: "I expected 0 or 1, and I get decimals." The **sigmoid** σ(z) = 1/(1 + e⁻ᶻ) turns any number, the *logit* z, into a *probability* between 0 and 1. A **threshold** makes a label of it, in a step of its own.
#
# **Predict** the last column: where does z itself have to be cut?

# %%
z = tensor([-3.0, -0.1, 0.0, 0.4, 20.0])
p = torch.sigmoid(z)
print([round(v, 4) for v in p.tolist()])
print("p > 0.5:", (p > 0.5).int().tolist(), " z > 0:", (z > 0).int().tolist(), " z > 0.5:", (z > 0.5).int().tolist())
print("round(0.5) =", round(0.5), " sigmoid(20) == 1:", bool(p[-1] == 1))

# %% [markdown]
# A threshold of 0.5 belongs to probabilities. For logits it is 0: `z > 0.5` loses the 0.4. Keras' `BinaryAccuracy` compares with a strict `>`, so 0.5 itself counts as no; rounding happens to agree, because 0.5 rounds to the even 0. In mathematics σ never reaches 1; in float32 it does from about z = 16.64.
#
# That last fact breaks the loss. **Binary cross-entropy** is −log of the probability given to the right label: −t log p − (1 − t) log(1 − p). At p = 1 and t = 0 it is infinite. Written in the logit it stays finite:
#
# $$\ell(z, t) = \max(z, 0) - z t + \log(1 + e^{-|z|})$$
#
# In words: for a large wrong logit the loss is about |z|, and e is never raised to a positive power.
#
# ### **Exercise 3.4 · cross-entropy of logits** — *medium · 12 min · 4 points*
#
# The mean over all entries. Shapes must agree: (3, 1) and (3,) broadcast to nine losses of three pairs.
#
# *Example.* z = 2, t = 1: 2 − 2 + log(1 + e⁻²) = 0.12693. z = −200, t = 1: 0 + 200 + log(1 + e⁻²⁰⁰) = 200.

# %% nbgrader={"grade": false, "grade_id": "03_optimization-bce_with_logits", "locked": false, "schema_version": 3, "solution": true, "task": false}
def bce_with_logits(z: Tensor, t: Tensor) -> Tensor:
    """Mean binary cross-entropy of logits: finite, with a finite gradient, for logits of any size.

    Parameters
    ----------
    z : float Tensor, any shape
        Logits.
    t : float Tensor, the same shape and dtype
        Targets in [0, 1].

    Returns
    -------
    Tensor ()
        In the dtype of z, differentiable in z.

    Raises
    ------
    ValueError
        If the shapes differ: nothing is broadcast.

    Examples
    --------
    >>> bce_with_logits(tensor([2.0, -1.0, 0.5]), tensor([1.0, 0.0, 0.0]))
    tensor(0.4714)
    """
    ### BEGIN SOLUTION
    if z.shape != t.shape:
        raise ValueError(f"logits of shape {tuple(z.shape)} and targets of shape {tuple(t.shape)}")
    return (z.clamp(min=0) - z * t + torch.log1p(torch.exp(-z.abs()))).mean()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "03_optimization-bce_with_logits-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("bce_with_logits")
### BEGIN HIDDEN TESTS
check("bce_with_logits", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>Compare the shapes before anything else.</details>
# <details><summary>Hint 2 · method</summary>Write the formula with torch functions, entry by entry, then take the mean. <code>torch.log1p(u)</code> is log(1 + u), exact for tiny u.</details>
# <details><summary>Hint 3 · almost code</summary><code>(z.clamp(min=0) - z * t + torch.log1p(torch.exp(-z.abs()))).mean()</code></details>

# %%
# Try your own inputs here.

# %% [markdown]
# Check its gradient as in chapter 2, by central differences. Paste your `numeric_grad` and `grad_check` into the empty cell above to have them used too. You will see three times the same numbers, the middle ones from (σ(z) − t)/n.

# %%
if ready("bce_with_logits"):
    z, t = tensor([2.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True), tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    print("autograd  ", torch.autograd.grad(bce_with_logits(z, t), z)[0].tolist())
    print("by formula", ((torch.sigmoid(z) - t) / 3).tolist())
    h = 1e-6 * torch.eye(3, dtype=torch.float64)
    print("numerical ", [((bce_with_logits(z + e, t) - bce_with_logits(z - e, t)) / 2e-6).item() for e in h])
    if {"grad_check", "numeric_grad"} <= (yours := globals()).keys():
        print("grad_check", yours["grad_check"](lambda z: bce_with_logits(z, t), z.detach(), yours["numeric_grad"]))

# %% [markdown]
# Now two logits of ±200, both wrong. `nn.BCELoss` of the sigmoid cuts the logarithm off at −100. **Predict** its gradient.

# %%
z, t = tensor([200.0, -200.0], requires_grad=True), tensor([0.0, 1.0])
clipped = F.binary_cross_entropy(torch.sigmoid(z), t)
print("BCELoss of the sigmoid:", clipped.item(), "gradient", torch.autograd.grad(clipped, z)[0].tolist())
if ready("bce_with_logits"):
    loss = bce_with_logits(z, t)
    print("yours:                 ", loss.item(), "gradient", torch.autograd.grad(loss, z)[0].tolist())

# %% [markdown]
# ## Rows to train on, rows to be honest with
#
# A network can learn its rows by heart. To know what it does with new ones, hold some out: the **validation** rows, which no update sees. Keras' `validation_split=0.33` takes the **last** rows of the file, before any shuffling, and trains on the first int(n · (1 − 0.33)). Answers that say "a random third" are wrong.
#
# The training rows come in **batches**: one update each. The last batch is often shorter.
#
# ### **Exercise 3.5 · hold out the last rows** — *easy · 13 min · 6 points*
#
# Two functions: `split_last` cuts rows and labels at one place, `batches` gives row numbers.
#
# *Example.* 10 rows with 0.33: int(6.7) = 6 train, the last 4 validate. Five rows in batches of 2: [0, 1], [2, 3], [4].

# %% nbgrader={"grade": false, "grade_id": "03_optimization-split_last", "locked": false, "schema_version": 3, "solution": true, "task": false}
def split_last(X: Tensor, y: Tensor, validation_split: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hold out the last rows for validation, as Keras does. Nothing is shuffled.

    Parameters
    ----------
    X, y : Tensor
        n rows each, any further axes, any dtype.
    validation_split : float
        Fraction f between 0 and 1: the first int(n · (1 − f)) rows train.

    Returns
    -------
    tuple of Tensor
        X_train, y_train, X_val, y_val.

    Examples
    --------
    >>> [len(part) for part in split_last(torch.ones(10, 2), torch.ones(10), 0.33)]
    [6, 6, 4, 4]
    """
    ### BEGIN SOLUTION
    n_train = int(len(X) * (1 - validation_split))
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "03_optimization-split_last-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("split_last")
### BEGIN HIDDEN TESTS
check("split_last", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "03_optimization-batches", "locked": false, "schema_version": 3, "solution": true, "task": false}
def batches(n: int, batch_size: int, generator: torch.Generator | None = None) -> Iterator[Tensor]:
    """Yield the row numbers 0 … n − 1 in batches, every one once.

    Parameters
    ----------
    n, batch_size : int
        At least 1.
    generator : torch.Generator or None
        None: in order. Otherwise in a random order drawn from this generator, a new one in every pass. torch's global
        generator is left alone.

    Yields
    ------
    int64 Tensor (batch_size,)
        The last one is as long as what is left.

    Examples
    --------
    >>> [batch.tolist() for batch in batches(5, 2)]
    [[0, 1], [2, 3], [4]]
    """
    ### BEGIN SOLUTION
    order = torch.arange(n) if generator is None else torch.randperm(n, generator=generator)
    for start in range(0, n, batch_size):
        yield order[start : start + batch_size]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "03_optimization-batches-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("batches")
### BEGIN HIDDEN TESTS
check("batches", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>One number decides the split. One tensor of row numbers decides the batches.</details>
# <details><summary>Hint 2 · method</summary>Slices take care of the rest: <code>X[:k]</code> and <code>X[k:]</code>; a slice that reaches beyond the end stops at the end.</details>
# <details><summary>Hint 3 · almost code</summary><code>order</code> is <code>torch.arange(n)</code> or <code>torch.randperm(n, generator=generator)</code>; <code>for start in range(0, n, batch_size): yield order[start : start + batch_size]</code>.</details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## The training loop
#
# An **epoch** is one pass over the training rows. Two traps wait in it. The epoch's loss counts every *row* the same: batches of 10, 10, 10, 10 and 6 rows do not count alike. And `model.eval()` lasts until somebody calls `model.train()`; `no_grad` is another switch and does not replace it.

# %%
losses, rows = tensor([1.0, 1.0, 31.0]), tensor([5, 5, 1])
print("mean of the batch means:", losses.mean().item(), " mean over the rows:", round(((losses * rows).sum() / 11).item(), 4))
torch.manual_seed(0)
dropout = nn.Dropout(0.5)
with torch.no_grad():
    print("no_grad, training mode:", dropout(torch.ones(6)).tolist())
    print("no_grad, eval mode:    ", dropout.eval()(torch.ones(6)).tolist())

# %% [markdown]
# ### **Exercise 3.6 · the training loop** — *hard · 25 min · 4 points · uses 3.5*
#
# Train a classifier, keep its history. Here you may use `torch.optim.SGD` and `F.binary_cross_entropy_with_logits`, or your own. The model gives (B, 1), the labels are (B,): bring them to one shape. Wrap the epochs in `tqdm(range(epochs), leave=False)` for a progress bar.
#
# *Example.* 46 training rows, batches of 10. Of the five batches the loss counts 10/46, 10/46, 10/46, 10/46, 6/46. 16 right rows are an accuracy of 0.3478.

# %% nbgrader={"grade": false, "grade_id": "03_optimization-fit", "locked": false, "schema_version": 3, "solution": true, "task": false}
def fit(
    model: nn.Module,
    X: Tensor,
    y: Tensor,
    split: Callable,
    validation_split: float = 0.33,
    batch_size: int = 10,
    epochs: int = 100,
    lr: float = 0.1,
    threshold: float = 0.5,
) -> dict[str, list[float]]:
    """Train a binary classifier with plain gradient descent on batches of rows in order.

    Parameters
    ----------
    model : Module
        Maps (N, D) to logits (N, 1). It is trained in place.
    X, y : Tensor (n, D), Tensor (n,)
        Features, and labels 0.0 or 1.0, in the model's dtype.
    split : callable
        split(X, y, validation_split) gives X_train, y_train, X_val, y_val.
    validation_split, batch_size, epochs, lr
        The fraction that `split` gets; rows a batch; passes over the training rows; step size.
    threshold : float
        Of the probability: a row counts as positive where its probability is greater.

    Returns
    -------
    dict of lists
        Under "loss", "acc", "val_loss" and "val_acc" one Python float an epoch. loss and acc come from the predictions
        made before each batch's update, every row counting the same. val_loss and val_acc are measured after the
        epoch's last update.

    Notes
    -----
    Training passes run in training mode. Validation runs in evaluation mode and without gradients. Afterwards the
    model is in the mode in which it came.

    Examples
    --------
    >>> history = fit(net, X, y, split_last, epochs=3)
    >>> sorted(history), len(history["loss"])
    (['acc', 'loss', 'val_acc', 'val_loss'], 3)
    """
    ### BEGIN SOLUTION
    X_train, y_train, X_val, y_val = split(X, y, validation_split)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    was_training = model.training
    history: dict[str, list[float]] = {"loss": [], "acc": [], "val_loss": [], "val_acc": []}

    def measure(x: Tensor, t: Tensor) -> tuple[Tensor, int]:
        z = model(x).squeeze(1)
        right = (torch.sigmoid(z) > threshold) == (t == 1)
        return F.binary_cross_entropy_with_logits(z, t), int(right.sum())

    for _ in tqdm(range(epochs), desc="epochs", leave=False):
        model.train()
        total, correct = 0.0, 0
        for start in range(0, len(X_train), batch_size):
            x, t = X_train[start : start + batch_size], y_train[start : start + batch_size]
            loss, right = measure(x, t)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
            correct += right
        history["loss"].append(total / len(X_train))
        history["acc"].append(correct / len(X_train))
        model.eval()
        with torch.no_grad():
            loss, right = measure(X_val, y_val)
        history["val_loss"].append(loss.item())
        history["val_acc"].append(right / len(X_val))
    model.train(was_training)
    return history
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "03_optimization-fit-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("fit")
### BEGIN HIDDEN TESTS
check("fit", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>Write what happens to one batch first: logits, loss, clear, backward, step. Then the loops around it, then the bookkeeping.</details>
# <details><summary>Hint 2 · method</summary>Per epoch: <code>model.train()</code>; over batches, add up loss · rows and the number of right rows; divide by the training rows; <code>model.eval()</code> and <code>no_grad</code> for the validation rows. Keep <code>model.training</code> before you start, put it back at the end.</details>
# <details><summary>Hint 3 · almost code</summary><code>z = model(x).squeeze(1)</code>; <code>loss = F.binary_cross_entropy_with_logits(z, t)</code>; <code>optimizer.zero_grad()</code>; <code>loss.backward()</code>; <code>optimizer.step()</code>; <code>total += loss.item() * len(x)</code>; <code>right += ((z.sigmoid() > threshold) == (t == 1)).sum().item()</code>.</details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## 178 wines
#
# Thirteen numbers from the chemical analysis of 178 wines (S. Aeberhard and M. Forina, UCI Machine Learning Repository, CC BY 4.0), three cultivars. Is a wine of cultivar 1? The rows come shuffled, once and for all. Proline reaches 1,680 and hue 1.7, so every column is standardized, with the mean and spread of the training rows alone.

# %%
wine = load("wine")


def prepare(order) -> tuple[Tensor, Tensor]:
    X = torch.from_numpy(wine["X"][order]).float()
    y = torch.from_numpy(wine["cultivar"][order] == 1).float()
    train = X[: int(len(X) * 0.67)]
    return (X - train.mean(0)) / train.std(0, correction=0), y

# %% [markdown]
# The network of the person with the decimals: 13 features, two layers of 16 with ReLU, one output. It ends in the logit; the sigmoid sits in the loss. (In today's Keras the old `output_dim` and `nb_epoch` are called `units` and `epochs`.) You will see loss and accuracy over 100 epochs.

# %%
def classifier(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))


if ready("fit", "split_last"):
    X, y = prepare(range(178))
    net = classifier()
    shuffled = fit(net, X, y, split_last)
    plots.show_history({"rows shuffled": shuffled})

# %% [markdown]
# The validation loss turns up while the training loss goes to 0: the network grows more certain, on wrong rows too. That is **overfitting**, and the reason to look at both curves.
#
# What it gives are probabilities. A label needs the threshold; what the threshold should be depends on which error costs more.

# %%
def predict(net: nn.Module, X: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.sigmoid(net(X).squeeze(1))


if ready("fit", "split_last"):
    _, _, X_val, y_val = split_last(X, y, 0.33)
    p = predict(net, X_val)
    print("probabilities", [round(v, 4) for v in p[:6].tolist()], " labels", (p > 0.5).int()[:6].tolist())
    plots.show_thresholds(p, y_val, [0.02, 0.5, 0.98])

# %% [markdown]
# ## Break it on purpose: the sorted file
#
# The original file is sorted by cultivar: 59 wines of the first, 71 of the second, 48 of the third. Train on it as it stands, and once read backwards. Everything else stays the same.
#
# **Predict** the validation accuracies. Which rows are the last third?

# %%
if ready("fit", "split_last"):
    file = wine["file_row"].argsort()
    runs = {"rows shuffled": shuffled}
    for name, order in (("file order", file), ("file backwards", file[::-1].copy())):
        runs[name] = fit(classifier(), *prepare(order), split_last)
    plots.show_history(runs)
    print("cultivars in the last 59 rows of the file:", sorted(set(wine["cultivar"][file][119:].tolist())))

# %% [markdown]
# The training curves are perfect in all three. In file order not one validation row is of cultivar 1, and most are of cultivar 3, which training never saw: a network that always says no would score 100 %. Backwards, training sees no wine of cultivar 1, learns to say no, and every validation row is a yes: 0 %.
#
# The cause is `validation_split` on a sorted file. The cure: one permutation for rows and labels, before the split, as in `order = torch.randperm(n)` and then `X[order], y[order]`. `shuffle=True` in Keras does not help: it shuffles the training rows, after the split.

# %% [markdown]
# ## Two tools for large models
#
# One bad batch can throw a network far away. **Clipping by the global norm** measures all gradients together, as one long vector, and shortens it where it is too long. Its direction stays.
#
# ### **Exercise 3.7 · clip by the global norm** — *medium · 10 min · 4 points*
#
# *Example.* Gradients [3, 4], None and [[12]]: √(9 + 16 + 144) = 13. With max_norm 6.5 the factor is 6.5/(13 + 10⁻⁶), and they become [1.5, 2] and [[6]]. The function returns 13.0, the norm *before*: a training log wants to see the jump.

# %% nbgrader={"grade": false, "grade_id": "03_optimization-clip_by_global_norm", "locked": false, "schema_version": 3, "solution": true, "task": false}
def clip_by_global_norm(params: list[Tensor], max_norm: float) -> float:
    """Scale all gradients by one factor, in place, where their common norm is greater than max_norm.

    Parameters
    ----------
    params : list of Tensor
        Their gradients in `.grad`; None is skipped.
    max_norm : float
        > 0, may be inf. The factor is max_norm / (norm + 1e-6), as in torch.

    Returns
    -------
    float
        The Euclidean norm of all gradient entries together, before clipping. 0.0 where there are none.

    Raises
    ------
    ValueError
        If that norm is nan.

    Examples
    --------
    >>> p = torch.zeros(2)
    >>> p.grad = tensor([3.0, 4.0])
    >>> clip_by_global_norm([p], 1.0), p.grad  # rounded
    (5.0, tensor([0.6000, 0.8000]))
    """
    ### BEGIN SOLUTION
    gradients = [p.grad for p in params if p.grad is not None]
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
    if math.isnan(norm):
        raise ValueError("a gradient is nan: clipping would hide it")
    if norm > max_norm:
        for g in gradients:
            g.mul_(max_norm / (norm + 1e-6))
    return norm
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "03_optimization-clip_by_global_norm-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("clip_by_global_norm")
### BEGIN HIDDEN TESTS
check("clip_by_global_norm", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>Squares add up over all tensors; the root comes once, at the end.</details>
# <details><summary>Hint 2 · method</summary>Collect the gradients that are not None, compute the norm as a float, raise on nan, scale in place where the norm is too large, return the norm.</details>
# <details><summary>Hint 3 · almost code</summary><code>norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))</code>; <code>if norm > max_norm:</code> <code>g.mul_(max_norm / (norm + 1e-6))</code> for each.</details>

# %%
# Try your own inputs here.

# %% [markdown]
# x⁴ from 3 with learning rate 0.1: the gradient is 108. **Predict** where the first step lands without clipping, and with a norm of at most 1.

# %%
if ready("clip_by_global_norm", "sgd_step"):
    for limit in (math.inf, 1.0):
        x, places = tensor([3.0], requires_grad=True), []
        for _ in range(4):
            x.grad = None
            (x**4).sum().backward()
            clip_by_global_norm([x], limit)
            sgd_step([x], {}, lr=0.1)
            places.append(x.item())
        print("at most", limit, [f"{place:.3g}" for place in places])

# %% [markdown]
# **Accumulation** is for batches that do not fit into memory: run them in chunks and add the gradients up. Each chunk's loss is a mean over *its* rows, so it must be weighted by its share of all rows.
#
# ### **Exercise 3.8 · gradients in chunks** — *medium · 10 min · 4 points*
#
# *Example.* The line y = 2x + 1 at x = 1 … 7, one weight, w = 0, chunks of 3, 3 and 1 rows. The whole batch has the gradient −2 · mean(xy) = −88. The mean over chunks would be −115.1, their sum −345.3.

# %% nbgrader={"grade": false, "grade_id": "03_optimization-accumulated_grad", "locked": false, "schema_version": 3, "solution": true, "task": false}
def accumulated_grad(model: nn.Module, chunks: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """The gradient of the mean squared error over all rows, computed one chunk at a time.

    Parameters
    ----------
    model : Module
        Its output for x has the shape of y.
    chunks : list of tuple
        (x, y) pairs; any number of rows each.

    Returns
    -------
    list of Tensor
        One gradient a parameter, in the order of `model.parameters()`. What stood in `.grad` before does not count.

    Examples
    --------
    >>> line = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(line.weight)
    >>> x = torch.arange(1.0, 8.0)[:, None]
    >>> accumulated_grad(line, [(x[:3], 2 * x[:3] + 1), (x[3:6], 2 * x[3:6] + 1), (x[6:], 2 * x[6:] + 1)])  # rounded
    [tensor([[-88.]])]
    """
    ### BEGIN SOLUTION
    rows = sum(len(x) for x, _ in chunks)
    model.zero_grad()
    for x, y in chunks:
        loss = F.mse_loss(model(x), y) * len(x) / rows
        loss.backward()
    return [p.grad.clone() for p in model.parameters()]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "03_optimization-accumulated_grad-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("accumulated_grad")
### BEGIN HIDDEN TESTS
check("accumulated_grad", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary><code>backward</code> adds to <code>.grad</code>: for once that is what you want. When must it be empty?</details>
# <details><summary>Hint 2 · method</summary>Clear once. For every chunk: its mean squared error, times its rows over all rows, backward. Return the gradients.</details>
# <details><summary>Hint 3 · almost code</summary><code>(F.mse_loss(model(x), y) * len(x) / rows).backward()</code> in the loop; then <code>[p.grad.clone() for p in model.parameters()]</code>.</details>

# %%
# Try your own inputs here.

# %%
if ready("accumulated_grad"):
    net, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double(), torch.randn(10, 3).double()
    y = torch.stack((x.sum(1), x.prod(1)), dim=1)
    whole = torch.autograd.grad(F.mse_loss(net(x), y), list(net.parameters()))
    chunks = list(zip(x.split([4, 4, 2]), y.split([4, 4, 2]), strict=True))
    pairs = zip(whole, accumulated_grad(net, chunks), strict=True)
    print(f"largest difference {max((a - b).abs().max().item() for a, b in pairs):.1e}")

# %% [markdown]
# ## Five questions
#
# 1. Why does `w = w - lr * w.grad` leave a model as it was? <details><summary>Answer</summary>It makes a new tensor and ties the name to it; the model holds the old one. Change the tensor in place under no_grad.</details>
# 2. How long is Adam's first step, and why? <details><summary>Answer</summary>η for every parameter: corrected, the averages are g and g², and g/√g² is ±1.</details>
# 3. Where is the threshold 0.5 of probabilities on the logits? <details><summary>Answer</summary>At 0, since σ(0) = 0.5.</details>
# 4. Which rows does validation_split=0.33 take? <details><summary>Answer</summary>The last ones, before any shuffling. Shuffle rows and labels together first.</details>
# 5. What does clipping by the global norm keep, and clipping by value not? <details><summary>Answer</summary>The direction of the gradient.</details>
#
# ## What you can now do
#
# You wrote two optimizers, a schedule, a loss, a split, a training loop, clipping and accumulation, and compared them with torch's. You can read a loss curve, choose a threshold, and tell a sorted file from its curves.
#
# ## Keep your work
#
# On Binder and Colab your work is gone when the session ends. In Jupyter: *File → Download*. In Colab: *File → Download → Download .ipynb*, or *Save a copy in Drive*.
#
# Previous: [Chapter 2 · Autograd](../02_autograd/autograd.ipynb) · Next: [Chapter 4 · Quantization](../04_quantization/quantization.ipynb)
