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

# %%
import math
import sys
from collections.abc import Callable, Iterator

if "google.colab" in sys.modules:  # on Colab: the course's helper package, and nothing else
    # %pip install -q --no-deps "underhood @ git+https://github.com/under-the-hood-course/under-the-hood@v1.0.0"

import torch
import torch.nn.functional as F
from torch import Tensor, nn, tensor
from tqdm import tqdm

from underhood import check, ready

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

