"""Other right solutions of chapter 1, and wrong ones that no Mistake covers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# ----------------------------------------------------------------------------------------------------- tensor_patterns


def patterns_by_loops(n, m):
    if n < 1 or m < 1:
        raise ValueError("sizes start at 1")
    count = itertools.count(3, 3)
    return {
        "odds": torch.tensor([2 * i + 3 for i in range(n)]),
        "diagonal": torch.tensor([[4 if i == j else 1 for j in range(n)] for i in range(n)]),
        "multiples": torch.tensor([[next(count) for _ in range(m)] for _ in range(n)]),
        "squares": torch.tensor([[(i + 1) ** 2] * m for i in range(n)]),
    }


def patterns_by_running_sums(n, m):
    if min(n, m) <= 0:
        raise ValueError(f"no tensor of size {n} by {m}")
    ones = torch.ones(n, m, dtype=torch.long)
    return {
        "squares": ones.cumsum(0) ** 2,
        "multiples": (3 * ones.flatten()).cumsum(0).view(n, m),
        "diagonal": torch.diag(torch.full((n,), 3)).add(1),
        "odds": ones[:, 0].cumsum(0).mul(2).add(1),
    }


# ----------------------------------------------------------------------------------------------------------- row_norms


def norms_by_loops(x):
    if len(x.shape) != 2:
        raise ValueError("rows and columns are needed")
    return torch.tensor([math.sqrt(sum(v * v for v in row)) for row in x.tolist()], dtype=x.dtype)


def norms_by_einsum(x):
    if x.ndim != 2:
        raise ValueError("rows and columns are needed")
    return torch.einsum("nd,nd->n", x, x) ** 0.5


# ------------------------------------------------------------------------------------------------------ sum_above_mean


def above_by_loops(x):
    entries = x.flatten().tolist()
    if not entries:
        raise ValueError("no entries")
    mean = sum(entries) / len(entries)
    return float(sum(v for v in entries if v > mean)), sum(v != 0 for v in entries)


def above_by_where(x):
    if 0 in x.shape:
        raise ValueError("no entries")
    kept = torch.where(x > x.mean(), x, torch.zeros_like(x))
    return float(kept.sum()), len(x.reshape(-1).nonzero())


# ----------------------------------------------------------------------------------------------------- broadcast_shape


def shape_by_pairs(*shapes):
    result = ()
    for shape in shapes:
        pairs = itertools.zip_longest(reversed(result), reversed(shape), fillvalue=1)
        sizes = []
        for a, b in pairs:
            if a != b and 1 not in (a, b):
                raise ValueError(f"{a} against {b}")
            sizes.append(b if a == 1 else a)
        result = tuple(sizes[::-1])
    return result


def shape_by_filling_up(*shapes):
    length = max([len(s) for s in shapes], default=0)
    result = [1] * length
    for shape in shapes:
        for i, size in enumerate(shape, start=length - len(shape)):
            if size != 1 and result[i] not in (1, size):
                raise ValueError("sizes do not fit")
            if size != 1:
                result[i] = size
    return tuple(result)


# ---------------------------------------------------------------------------------------------------- ordinal_rank_sum


def rank_sum_by_loops(x, weights):
    if weights.dim() != 1 or len(weights) > x.shape[-1]:
        raise ValueError("as many weights as values at most, in one dimension")
    rows = [
        sum(w * v for w, v in zip(weights, sorted(row, reverse=True), strict=False))
        for row in x.reshape(-1, x.shape[-1])
    ]
    return torch.stack(rows).reshape(x.shape[:-1])


def rank_sum_by_einsum(x, weights):
    if weights.ndim != 1 or weights.shape[0] > x.shape[-1]:
        raise ValueError("weights do not fit")
    ranked = x.sort(dim=-1, descending=True).values[..., : weights.shape[0]]
    return torch.einsum("...k,k->...", ranked, weights)


# ------------------------------------------------------------------------------------------------------- OrdinalPool2d


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)


class PoolByLoops(nn.Module):
    """One window after the other, on the real cells alone."""

    def __init__(self, weights, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel, self.padding = _pair(kernel_size), _pair(padding)
        self.stride = _pair(kernel_size if stride is None else stride)
        self.register_buffer("rank_weights", weights)
        padded = self.padding != (0, 0)
        too_many = len(weights) > self.kernel[0] * self.kernel[1]
        if too_many or 2 * self.padding[0] > self.kernel[0] or 2 * self.padding[1] > self.kernel[1]:
            raise ValueError("weights or padding do not fit the window")
        if padded and (bool((weights < 0).any()) or not weights[0] > 0):
            raise ValueError("weights that padding cannot rescale")

    def forward(self, x):
        (kh, kw), (sh, sw), (ph, pw) = self.kernel, self.stride, self.padding
        rows = range(-ph, x.shape[2] + ph - kh + 1, sh)
        columns = range(-pw, x.shape[3] + pw - kw + 1, sw)
        w = self.rank_weights
        result = x.new_zeros(*x.shape[:2], len(rows), len(columns))
        for i, top in enumerate(rows):
            for j, left in enumerate(columns):
                cells = x[:, :, max(top, 0) : top + kh, max(left, 0) : left + kw].flatten(2)
                m = min(cells.shape[2], len(w))
                share = w[:m] * (w.sum() / w[:m].sum()) if cells.shape[2] < kh * kw else w[:m]
                result[:, :, i, j] = cells.sort(dim=2, descending=True).values[:, :, :m] @ share
        return result


class PoolByUnfold(nn.Module):
    """F.unfold, with a table of real cells beside the values."""

    def __init__(self, weights, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel_size, self.stride, self.padding = map(_pair, (kernel_size, stride or kernel_size, padding))
        kh, kw = self.kernel_size
        if weights.numel() > kh * kw:
            raise ValueError("too many weights")
        if 2 * self.padding[0] > kh or 2 * self.padding[1] > kw:
            raise ValueError("too much padding")
        if sum(self.padding) > 0 and (min(weights.tolist()) < 0 or weights[0].item() <= 0):
            raise ValueError("no such weights with padding")
        self.register_buffer("weights", weights.clone())

    def cut(self, x):
        n, c, h, w = x.shape
        (kh, kw), (sh, sw), (ph, pw) = self.kernel_size, self.stride, self.padding
        columns = F.unfold(x, self.kernel_size, padding=self.padding, stride=self.stride)
        return columns.view(n, c, kh * kw, (h + 2 * ph - kh) // sh + 1, (w + 2 * pw - kw) // sw + 1)

    def forward(self, x):
        real = self.cut(torch.ones_like(x)) > 0.5
        lowest = x.detach().min() - 1
        order = torch.where(real, self.cut(x), lowest).argsort(dim=2, descending=True)[:, :, : len(self.weights)]
        values, used = self.cut(x).gather(2, order), real.gather(2, order)
        weights = self.weights.view(-1, 1, 1) * used
        pooled = (weights * values).sum(2)
        return pooled * self.weights.sum() / weights.sum(2) if any(self.padding) else pooled


class PoolTheWholeMap(nn.Module):
    """Ranks all cells of a map."""

    def __init__(self, weights, kernel_size, stride=None, padding=0):
        super().__init__()
        self.register_buffer("weights", weights)

    def forward(self, x):
        return (x.flatten(2).topk(len(self.weights), dim=2).values * self.weights).sum(2)


# ----------------------------------------------------------------------------------------------------- binary_accuracy


def accuracy_by_loops(scores, labels, threshold=0.5, from_logits=False):
    values, truth = scores.reshape(-1).tolist(), labels.reshape(-1).tolist()
    if len(values) != len(truth) or not values:
        raise ValueError("as many labels as scores are needed, and at least one")
    if from_logits:
        values = [1 / (1 + math.exp(-z)) for z in values]
    return sum((v > threshold) == bool(t) for v, t in zip(values, truth, strict=True)) / len(values)


def accuracy_by_logits(scores, labels, threshold=0.5, from_logits=False):
    """Moves the threshold instead of the scores."""
    if scores.numel() != labels.numel() or not scores.numel():
        raise ValueError("numbers differ")
    border = math.log(threshold / (1 - threshold)) if from_logits else threshold
    wrong = torch.logical_xor(scores.view(-1) > border, labels.view(-1) == 1)
    return 1 - wrong.sum().item() / wrong.numel()


# ------------------------------------------------------------------------------------------------------------- to_nchw


def nchw_by_numpy(images):
    array = np.asarray(images)
    if array.dtype != np.uint8 or array.ndim != 4:
        raise ValueError("bytes of four axes are needed")
    moved = np.ascontiguousarray(np.moveaxis(array, 3, 1))
    return torch.from_numpy(moved.astype(np.float32) / np.float32(255))


def nchw_by_channels(images):
    batch = torch.tensor(images) if isinstance(images, np.ndarray) else images
    if batch.dtype is not torch.uint8 or len(batch.shape) != 4:
        raise ValueError("bytes of four axes are needed")
    return torch.stack([batch[..., c] for c in range(batch.shape[3])], dim=1).float().mul_(1 / 255)


# ---------------------------------------------------------------------------------------------------------------- pick


def pick_by_gather(scores, index):
    if index.dim() != 1 or len(index) != len(scores):
        raise ValueError("one index a row")
    return scores.gather(1, index[:, None])[:, 0]


def pick_by_mask(scores, index):
    if tuple(index.shape) != (scores.shape[0],):
        raise ValueError("one index a row")
    return (scores * F.one_hot(index, scores.shape[1])).sum(1)


def pick_by_loop(scores, index):
    if index.shape != (len(scores),):
        raise ValueError("one index a row")
    return torch.stack([row[i] for row, i in zip(scores, index, strict=True)])


# --------------------------------------------------------------------------------------------------------- standardize


def standardize_by_columns(train, other):
    if train.size(1) != other.size(1):
        raise ValueError("columns differ")
    columns = []
    for t, o in zip(train.T, other.T, strict=True):
        mean = t.mean()
        spread = ((t - mean) ** 2).mean().sqrt()
        spread = spread if len(set(t.tolist())) > 1 else torch.ones_like(spread)
        columns.append(((t - mean) / spread, (o - mean) / spread))
    return torch.stack([a for a, _ in columns], dim=1), torch.stack([b for _, b in columns], dim=1)


def standardize_by_moments(train, other):
    if train.shape[-1] != other.shape[-1]:
        raise ValueError("columns differ")
    variance, mean = torch.var_mean(train, dim=0, unbiased=False, keepdim=True)
    variance = variance.masked_fill(train.amin(0) == train.amax(0), 1)
    return (train - mean) * variance.rsqrt(), (other - mean) * variance.rsqrt()


# name of the exercise → description → a right solution written in another way
RIGHT = {
    "tensor_patterns": {"nested lists": patterns_by_loops, "running sums": patterns_by_running_sums},
    "row_norms": {"loops": norms_by_loops, "einsum": norms_by_einsum},
    "sum_above_mean": {"loops": above_by_loops, "where": above_by_where},
    "broadcast_shape": {"one shape after the other": shape_by_pairs, "filling up a list": shape_by_filling_up},
    "ordinal_rank_sum": {"loops over rows": rank_sum_by_loops, "sort and einsum": rank_sum_by_einsum},
    "OrdinalPool2d": {"window by window": PoolByLoops, "F.unfold": PoolByUnfold},
    "binary_accuracy": {"loops": accuracy_by_loops, "a moved threshold": accuracy_by_logits},
    "to_nchw": {"numpy": nchw_by_numpy, "channel by channel": nchw_by_channels},
    "pick": {"gather": pick_by_gather, "a one-hot mask": pick_by_mask, "row by row": pick_by_loop},
    "standardize": {"column by column": standardize_by_columns, "var_mean": standardize_by_moments},
}

# name of the exercise → description → a wrong solution that must be named nothing
WRONG = {
    "tensor_patterns": {"ones everywhere": lambda n, m: dict.fromkeys(("odds", "diagonal"), torch.ones(n, n))},
    "row_norms": {
        "the largest entry of each row": lambda x: x.amax(-1),
        "a norm for which nothing is left to write": lambda x: torch.linalg.vector_norm(x, dim=1),
    },
    "sum_above_mean": {"the median instead of the mean": lambda x: (float(x[x > x.median()].sum()), x.numel())},
    "broadcast_shape": {"the longest shape": lambda *shapes: max(shapes, key=len)},
    "ordinal_rank_sum": {"the mean of the row": lambda x, weights: x.mean(-1)},
    "OrdinalPool2d": {"windows as large as the map": PoolTheWholeMap},
    "binary_accuracy": {
        "how near the scores are to the labels": lambda scores, labels, threshold=0.5, from_logits=False: (
            1 - (scores.flatten() - labels.flatten()).abs().mean().item()
        )
    },
    "to_nchw": {"negatives": lambda images: 1 - torch.as_tensor(images).permute(0, 3, 1, 2).contiguous() / 255},
    "pick": {"the first of each row": lambda scores, index: scores[:, 0]},
    "standardize": {"both to the range from 0 to 1": lambda train, other: (train / train.max(), other / train.max())},
}
