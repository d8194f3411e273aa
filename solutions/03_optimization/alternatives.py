"""Other right solutions of chapter 3, and wrong ones that no Mistake covers."""

from __future__ import annotations

import cmath
import copy
import itertools
import math

import torch
import torch.nn.functional as F


def sgd_by_data(params, state, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    velocities = state.setdefault("velocity", {})
    for p in params:
        if p.grad is None:
            continue
        g = p.grad.detach() + weight_decay * p.data
        if momentum != 0:
            old = velocities.get(id(p))
            velocities[id(p)] = g if old is None else momentum * old + (1 - dampening) * g
            g = g + momentum * velocities[id(p)] if nesterov else velocities[id(p)]
        p.data -= lr * g


def sgd_entry_by_entry(params, state, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    for k, p in enumerate(params):
        if p.grad is None:
            continue
        values, slopes = p.detach().reshape(-1), p.grad.reshape(-1)
        for i in range(len(values)):
            g = slopes[i].item() + weight_decay * values[i].item()
            v = momentum * state[k, i] + (1 - dampening) * g if (k, i) in state else g
            state[k, i] = v
            step = g if momentum == 0 else g + momentum * v if nesterov else v
            values[i] = values[i].item() - lr * step


def adam_by_formula(params, state, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    b1, b2 = betas
    for p in params:
        if p.grad is not None:
            memory = state.setdefault(id(p), {"t": 0, "m": 0.0, "v": 0.0})
            g = p.grad if decoupled else p.grad + weight_decay * p.detach()
            memory["t"] += 1
            memory["m"] = b1 * memory["m"] + (1 - b1) * g
            memory["v"] = b2 * memory["v"] + (1 - b2) * g**2
            m_hat = memory["m"] / (1 - b1 ** memory["t"])
            v_hat = memory["v"] / (1 - b2 ** memory["t"])
            shrunk = p.detach() * (1 - lr * weight_decay) if decoupled else p.detach()
            p.data.copy_(shrunk - lr * m_hat / (v_hat.sqrt() + eps))


def adam_from_all_gradients(params, state, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    """Keeps every gradient and weighs them anew in each step."""
    with torch.no_grad():
        for i, p in enumerate(params):
            if p.grad is None:
                continue
            past = state.setdefault(i, [])
            past.append(p.grad + (0 if decoupled else weight_decay) * p)
            ages = range(len(past) - 1, -1, -1)
            m, v = (
                sum(beta**age * g**power for age, g in zip(ages, past, strict=True)) / sum(beta**age for age in ages)
                for beta, power in zip(betas, (1, 2), strict=True)
            )
            if decoupled:
                p -= lr * weight_decay * p
            p -= lr * m / (v.sqrt() + eps)


def lr_by_half_angle(step, base=0.1, warmup=4, total=14, minimum=0.01):
    if step < warmup:
        return (step + 1) * base / warmup
    if step > total - 1:
        return minimum
    return minimum + (base - minimum) * math.cos(math.pi / 2 * (step - warmup) / (total - warmup)) ** 2


def lr_by_turning(step, base=0.1, warmup=4, total=14, minimum=0.01):
    if step < warmup:
        return base / warmup * (step + 1)
    turned = cmath.exp(1j * math.pi * (min(step, total) - warmup) / (total - warmup))
    return (base + minimum) / 2 + (base - minimum) / 2 * turned.real


def lr_in_float32(step, base=0.1, warmup=4, total=14, minimum=0.01):
    rise = torch.tensor(base) * (step + 1) / max(warmup, 1)
    q = min(1.0, (step - warmup) / (total - warmup))
    fall = minimum + 0.5 * (base - minimum) * (1 + torch.cos(torch.tensor(math.pi * q)))
    return (rise if step < warmup else fall).item()


def bce_by_softplus(z, t):
    if z.shape != t.shape:
        raise ValueError("shapes")
    return (t * F.softplus(-z) + (1 - t) * F.softplus(z)).mean()


def bce_by_two_classes(z, t):
    if z.shape != t.shape:
        raise ValueError("shapes")
    log_p = F.log_softmax(torch.stack((torch.zeros_like(z), z)), dim=0)
    return -torch.stack((1 - t, t)).mul(log_p).sum(0).mean()


def bce_by_logsigmoid(z, t):
    if list(z.size()) != list(t.size()):
        raise ValueError("shapes")
    return -(t * F.logsigmoid(z) + (1 - t) * F.logsigmoid(-z)).sum() / z.numel()


def split_by_torch(X, y, validation_split):
    k = int(X.shape[0] * (1.0 - validation_split))
    (a, c), (b, d) = torch.tensor_split(X, (k,)), torch.tensor_split(y, (k,))
    return a, b, c, d


def split_by_rows(X, y, validation_split):
    n = len(X)
    k = math.floor(n * (1 - validation_split))
    train, validation = torch.arange(k), torch.arange(k, n)
    return X[train], y[train], X[validation], y[validation]


def batches_by_split(n, batch_size, generator=None):
    order = torch.arange(n)
    if generator is not None:
        order = torch.rand(n, generator=generator, dtype=torch.float64).argsort()
    return iter(order.split(batch_size))


def batches_by_lists(n, batch_size, generator=None):
    rows = list(range(n))
    if generator is not None:
        for i in range(n - 1, 0, -1):
            j = int(torch.randint(i + 1, (1,), generator=generator))
            rows[i], rows[j] = rows[j], rows[i]
    rows = iter(rows)
    while batch := list(itertools.islice(rows, batch_size)):
        yield torch.tensor(batch)


def fit_by_hand(model, X, y, split, validation_split=0.33, batch_size=10, epochs=100, lr=0.1, threshold=0.5):
    X_train, y_train, X_val, y_val = split(X, y, validation_split)
    mode, params = model.training, list(model.parameters())
    history = {key: [] for key in ("val_acc", "val_loss", "acc", "loss")}
    for _ in range(epochs):
        model.train()
        losses, hits = [], []
        for x, t in zip(X_train.split(batch_size), y_train.split(batch_size), strict=True):
            z = model(x).flatten()
            each = t * F.softplus(-z) + (1 - t) * F.softplus(z)
            for p, g in zip(params, torch.autograd.grad(each.mean(), params), strict=True):
                p.data -= lr * g
            losses += each.tolist()
            hits += ((z > math.log(threshold / (1 - threshold))) == t.bool()).tolist()
        history["loss"].append(sum(losses) / len(losses))
        history["acc"].append(sum(hits) / len(hits))
        model.eval()
        with torch.inference_mode():
            p = torch.sigmoid(model(X_val)[:, 0])
            history["val_loss"].append(F.binary_cross_entropy(p, y_val).item())
            history["val_acc"].append(((p > threshold).to(y_val.dtype) == y_val).double().mean().item())
    model.train(mode)
    return history


def fit_by_loader(model, X, y, split, validation_split=0.33, batch_size=10, epochs=100, lr=0.1, threshold=0.5):
    from torch.utils.data import DataLoader, TensorDataset

    X_train, y_train, X_val, y_val = split(X, y, validation_split)
    loader = DataLoader(TensorDataset(X_train, y_train[:, None]), batch_size=batch_size)
    loss_of = torch.nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    was, history = model.training, {"loss": [], "acc": [], "val_loss": [], "val_acc": []}
    for _ in range(epochs):
        model.train()
        total = hits = 0.0
        for x, t in loader:
            z = model(x)
            loss = loss_of(z, t)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += float(loss) * t.numel()
            hits += float(((z.sigmoid() > threshold) == t.bool()).sum())
        model.eval()
        with torch.no_grad():
            z = model(X_val).reshape(-1)
            history["val_loss"].append(float(loss_of(z, y_val)))
            history["val_acc"].append(float(((z.sigmoid() > threshold) == y_val.bool()).sum()) / len(y_val))
        history["loss"].append(total / len(X_train))
        history["acc"].append(hits / len(X_train))
    model.train(was)
    return history


def clip_as_one_vector(params, max_norm):
    gradients = [p.grad.reshape(-1).double() for p in params if p.grad is not None]
    norm = float(torch.cat(gradients).norm()) if gradients else 0.0
    if norm != norm:
        raise ValueError("nan")
    for p in params:
        if p.grad is not None:
            p.grad *= min(1.0, max_norm / (norm + 1e-6))
    return norm


def clip_by_hypot(params, max_norm):
    norm = math.hypot(*(v for p in params if p.grad is not None for v in p.grad.flatten().tolist()))
    if math.isnan(norm):
        raise ValueError("nan")
    if norm > max_norm:
        for p in params:
            if p.grad is not None:
                p.grad.copy_(p.grad / (norm + 1e-6) * max_norm)
    return norm


def accumulated_by_autograd(model, chunks):
    params, entries = list(model.parameters()), sum(y.numel() for _, y in chunks)
    total = [torch.zeros_like(p) for p in params]
    for x, y in chunks:
        loss = ((model(x) - y) ** 2).sum() / entries
        for whole, g in zip(total, torch.autograd.grad(loss, params), strict=True):
            whole += g
    return total


def accumulated_on_a_copy(model, chunks):
    twin = copy.deepcopy(model)
    twin.zero_grad()
    entries = sum(y.numel() for _, y in chunks)
    for row, target in ((x[i : i + 1], y[i : i + 1]) for x, y in chunks for i in range(len(x))):
        (F.mse_loss(twin(row), target, reduction="sum") / entries).backward()
    return [p.grad for p in twin.parameters()]


# name of the exercise → description → a right solution written in another way
RIGHT = {
    "sgd_step": {"through .data, state by id": sgd_by_data, "entry by entry": sgd_entry_by_entry},
    "adam_step": {"the formulas": adam_by_formula, "all gradients kept": adam_from_all_gradients},
    "lr_at": {
        "half-angle formula": lr_by_half_angle,
        "a turning complex number": lr_by_turning,
        "in float32": lr_in_float32,
    },
    "bce_with_logits": {
        "softplus": bce_by_softplus,
        "two classes": bce_by_two_classes,
        "logsigmoid": bce_by_logsigmoid,
    },
    "split_last": {"tensor_split": split_by_torch, "row numbers": split_by_rows},
    "batches": {
        "Tensor.split, argsort of random numbers": batches_by_split,
        "lists, Fisher and Yates": batches_by_lists,
    },
    "fit": {"autograd.grad and softplus": fit_by_hand, "DataLoader and BCEWithLogitsLoss": fit_by_loader},
    "clip_by_global_norm": {"one long vector": clip_as_one_vector, "math.hypot": clip_by_hypot},
    "accumulated_grad": {"autograd.grad": accumulated_by_autograd, "a copy, row by row": accumulated_on_a_copy},
}


def sgd_uphill(params, state, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    with torch.no_grad():
        for p in params:
            if p.grad is not None:
                p += lr * p.grad


def sign_descent(params, state, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    with torch.no_grad():
        for p in params:
            if p.grad is not None:
                p -= lr * p.grad.sign()


def fit_nothing(model, X, y, split, validation_split=0.33, batch_size=10, epochs=100, lr=0.1, threshold=0.5):
    return {key: [0.5] * epochs for key in ("loss", "acc", "val_loss", "val_acc")}


def clip_halves(params, max_norm):
    for p in params:
        if p.grad is not None:
            p.grad /= 2
    return float(max_norm)


# name of the exercise → description → a wrong solution that must be named nothing
WRONG = {
    "sgd_step": {"uphill": sgd_uphill},
    "adam_step": {"the sign of the gradient": sign_descent},
    "lr_at": {"halved at every step": lambda step, base=0.1, warmup=4, total=14, minimum=0.01: base / 2**step},
    "bce_with_logits": {"squared error of probabilities": lambda z, t: ((torch.sigmoid(z) - t) ** 2).mean()},
    "split_last": {"half and half": lambda X, y, validation_split: (*zip(*(v.chunk(2) for v in (X, y)), strict=True),)},
    "batches": {"backwards": lambda n, batch_size, generator=None: iter(torch.arange(n).flip(0).split(batch_size))},
    "fit": {"a history without training": fit_nothing},
    "clip_by_global_norm": {"halving": clip_halves},
    "accumulated_grad": {"zeros": lambda model, chunks: [torch.zeros_like(p) for p in model.parameters()]},
}
