"""Chapter 3's reference solutions against torch, hand-written backpropagation, exact fractions and published numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autograder.chapters import exercise
from autograder.reference import load
from underhood import data
from underhood.builders import optimization as builders
from underhood.plots import optimization as plots
from underhood.probes import optimization as probes

REFERENCE = load("03_optimization")
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def normal(rng, *shape):
    return torch.from_numpy(rng.normal(size=shape))


def walk(rng, step, optimizer, mine, theirs, rates, holes=False):
    """Both optimizers on the same gradients, compared after every step."""
    shapes = ((4,), (2, 3), ())
    start = [normal(rng, *shape) for shape in shapes]
    left, right = ([p.clone().requires_grad_() for p in start] for _ in range(2))
    state, other = {}, optimizer(right, **theirs, foreach=False)
    for number, lr in enumerate(rates):
        for i, (p, q) in enumerate(zip(left, right, strict=True)):
            g = None if holes and (number + i) % 3 == 0 else normal(rng, *shapes[i])
            p.grad, q.grad = g, None if g is None else g.clone()
        other.param_groups[0]["lr"] = lr
        step(left, state, lr=lr, **mine)
        other.step()
        for p, q in zip(left, right, strict=True):
            torch.testing.assert_close(p, q, **CLOSE)


FALLING = [0.2 / (1 + i) for i in range(25)]


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.7, "dampening": 0.4},
        {"weight_decay": 0.3},
        {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1},
        {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    ],
)
def test_sgd_step_is_torch_sgd_to_the_twelfth_digit(options, holes):
    walk(
        np.random.default_rng(1), REFERENCE["sgd_step"], torch.optim.SGD, options, {"lr": 0.1} | options, FALLING, holes
    )


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"betas": (0.5, 0.7)}, {"eps": 0.1}, {"weight_decay": 0.4}, {"betas": (0.0, 0.9), "weight_decay": 0.1}],
)
def test_adam_step_is_torch_adam_and_adamw_to_the_twelfth_digit(options, decoupled, holes):
    options = {"weight_decay": 0.0} | options  # AdamW's own default is 0.01
    optimizer = torch.optim.AdamW if decoupled else torch.optim.Adam
    mine = options | {"decoupled": decoupled}
    walk(np.random.default_rng(2), REFERENCE["adam_step"], optimizer, mine, {"lr": 0.1} | options, FALLING, holes)


def warm_cosine(optimizer, warmup, total, minimum):
    schedulers = torch.optim.lr_scheduler
    rise = schedulers.LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)
    fall = schedulers.CosineAnnealingLR(optimizer, total - warmup, eta_min=minimum)
    return schedulers.SequentialLR(optimizer, [rise, fall], milestones=[warmup])


@pytest.mark.parametrize(
    ("base", "warmup", "total", "minimum"), [(0.1, 4, 14, 0.01), (2.0, 10, 60, 0.0), (0.3, 2, 5, 0.2)]
)
def test_lr_at_is_two_schedulers_of_torch_in_sequence(base, warmup, total, minimum):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
    scheduler = warm_cosine(optimizer, warmup, total, minimum)
    for step in range(total + 1):
        assert REFERENCE["lr_at"](step, base, warmup, total, minimum) == pytest.approx(
            scheduler.get_last_lr()[0], abs=1e-12
        )
        optimizer.step()
        scheduler.step()
    assert REFERENCE["lr_at"](10 * total, base, warmup, total, minimum) == minimum


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bce_with_logits_is_torchs_in_value_and_gradient(dtype):
    rng = np.random.default_rng(3)
    tolerance = {"rtol": 1e-6, "atol": 1e-7} if dtype is torch.float32 else CLOSE
    for scale in (1.0, 10.0, 1e3, 1e30):
        z, t = (scale * normal(rng, 6, 2)).to(dtype).requires_grad_(), torch.from_numpy(rng.random((6, 2))).to(dtype)
        mine, theirs = REFERENCE["bce_with_logits"](z, t), F.binary_cross_entropy_with_logits(z, t)
        torch.testing.assert_close(mine, theirs, **tolerance)
        grads = (torch.autograd.grad(loss, z)[0] for loss in (mine, theirs))
        torch.testing.assert_close(*grads, **tolerance)


def test_split_last_cuts_where_keras_does():
    """int(n · (1 - f)) in floating point, as keras.src.trainers.data_adapters.data_adapter_utils.train_validation_split."""
    for n, fraction, train in ((10, 0.33, 6), (100, 0.33, 67), (303, 0.33, 203), (3, 0.33, 2), (178, 0.33, 119)):
        X, y = torch.arange(2.0 * n).reshape(n, 2), torch.arange(n)
        parts = REFERENCE["split_last"](X, y, fraction)
        assert [len(part) for part in parts] == [train, train, n - train, n - train]
        assert torch.equal(torch.cat(parts[::2]), X) and torch.equal(torch.cat(parts[1::2]), y)


def test_batches_are_the_data_loaders_batches():
    rows = range(23)
    for size in (1, 4, 23, 40):
        loader = torch.utils.data.DataLoader(rows, batch_size=size)
        mine = REFERENCE["batches"](23, size)
        assert all(torch.equal(a, b) for a, b in zip(mine, loader, strict=True))
    generator = torch.Generator().manual_seed(5)
    before = torch.get_rng_state()
    first, second = (torch.cat(list(REFERENCE["batches"](23, 4, generator))) for _ in range(2))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(rows) and not torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def numpy_fit(X, y, n_train, sizes, epochs, batch, lr, threshold):
    """The same training without torch: backpropagation written out."""
    numbers = 0.3 * np.cos(1.3 * np.arange(sum(m * n + n for m, n in pairwise(sizes))))
    weights, biases, k = [], [], 0
    for m, n in pairwise(sizes):
        weights.append(numbers[k : k + m * n].reshape(n, m))
        biases.append(numbers[k + m * n : k + m * n + n])
        k += m * n + n

    def forward(x):
        values = [x]
        for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
            z = values[-1] @ w.T + b
            values.append(z if i == len(weights) - 1 else np.maximum(z, 0))
        return values

    def measure(z, t):
        return np.logaddexp(0, z) - z * t, (1 / (1 + np.exp(-z)) > threshold) == (t == 1)

    history = {"loss": [], "acc": [], "val_loss": [], "val_acc": []}
    for _ in range(epochs):
        losses, rights = [], []
        for start in range(0, n_train, batch):
            x, t = X[start : min(start + batch, n_train)], y[start : min(start + batch, n_train)]
            values = forward(x)
            z = values.pop()[:, 0]
            loss, right = measure(z, t)
            losses.extend(loss)
            rights.extend(right)
            delta = ((1 / (1 + np.exp(-z)) - t) / len(t))[:, None]
            for i in reversed(range(len(weights))):
                grad_w, grad_b = delta.T @ values[i], delta.sum(0)
                delta = (delta @ weights[i]) * (values[i] > 0)
                weights[i] = weights[i] - lr * grad_w
                biases[i] = biases[i] - lr * grad_b
        loss, right = measure(forward(X[n_train:])[-1][:, 0], y[n_train:])
        for key, value in zip(history, (losses, rights, loss, right), strict=True):
            history[key].append(float(np.mean(value)))
    return history


@pytest.mark.parametrize(("batch", "lr", "threshold"), [(10, 0.1, 0.5), (7, 0.3, 0.8)])
def test_fit_is_backpropagation_by_hand(batch, lr, threshold):
    sizes = (13, 16, 16, 1)
    X, y = builders.wave_rows(70), builders.wave_labels(70)
    model, split = builders.network(sizes), builders.rows(range(46), range(46, 70))
    history = REFERENCE["fit"](model, X, y, split, batch_size=batch, epochs=100, lr=lr, threshold=threshold)
    wanted = numpy_fit(X.numpy(), y.numpy(), 46, sizes, 100, batch, lr, threshold)
    for key, values in history.items():
        np.testing.assert_allclose(values, wanted[key], rtol=1e-8, atol=1e-9, err_msg=key)
    if batch == 10:
        assert history["loss"][0] == pytest.approx(0.733595, abs=5e-7)
        assert history["val_loss"][99] == pytest.approx(0.008515, abs=5e-7)


@pytest.mark.parametrize(
    ("name", "loss", "val_loss"),
    [
        ("never clearing the gradients", 0.607778, 0.605121),
        ("averaging the batches' losses as if they had equal sizes", 0.685892, None),
        ("training on the validation rows as well", 0.672506, None),
        ("batches of one row too few", 0.671932, None),
        ("letting logits (B, 1) broadcast against labels (B,)", 0.693017, None),
    ],
)
def test_a_mistake_in_the_loop_gives_its_own_loss_in_epoch_two(name, loss, val_loss):
    """The wrong loops were measured once, outside this repository; the variants here must give those numbers."""
    wrong = next(m.fn for m in exercise("fit").mistakes if m.name == name)
    split = builders.rows(range(46), range(46, 70))
    history = wrong(
        builders.network((13, 16, 16, 1)), builders.wave_rows(70), builders.wave_labels(70), split, epochs=2
    )
    assert history["loss"][1] == pytest.approx(loss, abs=1e-6)
    assert val_loss is None or history["val_loss"][1] == pytest.approx(val_loss, abs=1e-6)


@pytest.mark.parametrize(
    ("loss", "shown"),
    [(lambda z, t: 0.5, 0.5), (lambda z, t: z.detach().mean(), "no gradient: the loss does not depend on z")],
)
def test_a_loss_that_has_no_gradient_is_shown_and_does_not_raise(loss, shown):
    assert probes.loss(loss, torch.ones(2), torch.zeros(2), gradient=True) == shown


@pytest.mark.parametrize("limit", [0.1, 1.0, 3.0, 1e6, math.inf])
def test_clip_by_global_norm_is_torchs(limit):
    rng = np.random.default_rng(4)
    left = [torch.ones(2, 3), torch.ones(4), torch.ones(())]
    right = [p.clone() for p in left]
    for p, q in zip(left, right, strict=True):
        p.grad = normal(rng, *p.shape).float().double().to(p.dtype)
        q.grad = p.grad.clone()
    left.append(torch.ones(2))
    norm = REFERENCE["clip_by_global_norm"](left, limit)
    theirs = nn.utils.clip_grad_norm_(right, limit, foreach=False)
    assert norm == pytest.approx(theirs.item(), rel=1e-6)
    for p, q in zip(left[:3], right, strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-6, atol=1e-7)


def test_clip_by_global_norm_is_torchs_to_the_twelfth_digit_in_float64():
    rng = np.random.default_rng(6)
    left = [torch.ones(5, dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64)]
    right = [p.clone() for p in left]
    for p, q in zip(left, right, strict=True):
        p.grad = normal(rng, *p.shape)
        q.grad = p.grad.clone()
    assert REFERENCE["clip_by_global_norm"](left, 0.5) == pytest.approx(
        nn.utils.clip_grad_norm_(right, 0.5).item(), rel=1e-14
    )
    for p, q in zip(left, right, strict=True):
        torch.testing.assert_close(p.grad, q.grad, **CLOSE)


@pytest.mark.parametrize("sizes", [(7,), (3, 3, 1), (1, 1, 5), (1,) * 7])
def test_accumulated_grad_is_the_full_batch_gradient(sizes):
    x = torch.arange(1.0, 8.0, dtype=torch.float64)[:, None]
    chunks = list(zip(x.split(list(sizes)), (2 * x + 1).split(list(sizes)), strict=True))
    exact = Fraction(-2, 7) * sum(i * (2 * i + 1) for i in range(1, 8))
    (got,) = REFERENCE["accumulated_grad"](builders.network((1, 1), scale=0.0, bias=False), chunks)
    assert exact == -88 and got.item() == pytest.approx(-88.0, abs=1e-12)
    rng = np.random.default_rng(7)
    model, rows, wanted = builders.network((3, 5, 2)), normal(rng, 7, 3), normal(rng, 7, 2)
    whole = torch.autograd.grad(F.mse_loss(model(rows), wanted), list(model.parameters()))
    chunks = list(zip(rows.split(list(sizes)), wanted.split(list(sizes)), strict=True))
    for a, b in zip(REFERENCE["accumulated_grad"](model, chunks), whole, strict=True):
        torch.testing.assert_close(a, b, **CLOSE)


def test_a_step_function_that_keeps_its_own_memory_is_found_out():
    """State kept on the parameters survives the fresh state that one case hands over."""

    def hoards(params, state, lr, momentum=0.0, **rest):
        with torch.no_grad():
            for p in params:
                p.velocity = momentum * getattr(p, "velocity", 0.0) + p.grad
                p -= lr * p.velocity

    case = next(c for c in exercise("sgd_step").cases if "empty state" in c.about)
    given = {k: v for k, v in case.kwargs.items() if k != "gradients"}
    square = builders.quadratic([torch.tensor([2.0], dtype=torch.float64)])
    path = probes.steps(hoards, gradients=square, **given)["parameters"]
    assert path[-1][0].item() == pytest.approx(0.062) and case.expected["parameters"][-1][0].item() == 0.368


def test_the_wine_data_is_the_public_file_shuffled_once():
    wine = data.load("wine")
    in_file = np.argsort(wine["file_row"])
    assert np.bincount(wine["cultivar"]).tolist() == [0, 59, 71, 48]
    assert (np.diff(wine["cultivar"][in_file]) >= 0).all() and sorted(wine["file_row"]) == list(range(178))
    first = [14.23, 1.71, 2.43, 15.6, 127, 2.8, 3.06, 0.28, 2.29, 5.64, 1.04, 3.92, 1065]  # the public file's first row
    assert wine["X"][in_file[0]].tolist() == first and len(wine["features"]) == 13
    validation = wine["cultivar"][119:] == 1
    assert 0.25 < validation.mean() < 0.45, "both labels among the held-out rows"
    assert not (wine["cultivar"][in_file][119:] == 1).any(), "none in the sorted file"


def test_confusion_counts_are_those_of_a_loop():
    rng = np.random.default_rng(8)
    p, y = torch.from_numpy(rng.random(40)), torch.from_numpy(rng.integers(0, 2, 40))
    counts = np.zeros((2, 2), int)
    for probability, label in zip(p.tolist(), y.tolist(), strict=True):
        counts[label, int(probability > 0.3)] += 1
    assert plots.confusion(p, y, 0.3).tolist() == counts.tolist()


def test_a_trace_is_torchs_descent():
    f, start, _ = plots.SURFACES["banana"]
    path = plots.trace(REFERENCE["sgd_step"], f, start, 20, lr=0.05, momentum=0.9)
    point = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([point], lr=0.05, momentum=0.9)
    for place in path:
        np.testing.assert_allclose(point.detach().numpy(), place, rtol=1e-10, atol=1e-12)
        optimizer.zero_grad()
        f(*point).backward()
        optimizer.step()


def test_the_film_holds_its_pictures_and_needs_no_widget(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "_display", lambda: shown.append)
    f, start, _ = plots.SURFACES["saddle"]
    plots.animate_landscape("saddle", {"SGD": plots.trace(REFERENCE["sgd_step"], f, start, 6, lr=0.1)}, frames=3)
    page = shown[0].data
    assert page.count("data:image/png;base64,") == 3 and "widget" not in page and "http" not in page
    assert "▶" in page and "fa-" not in page
    assert "6 steps in 3 pictures" in capsys.readouterr().out
