"""Other right solutions of chapter 1, and wrong ones that no Mistake covers."""

from __future__ import annotations

import torch


def rank_sum_by_loops(x, weights):
    if weights.dim() != 1 or len(weights) > x.shape[-1]:
        raise ValueError("as many weights as values at most, in one dimension")
    rows = [sum(w * v for w, v in zip(weights, sorted(row, reverse=True), strict=False)) for row in x.reshape(-1, x.shape[-1])]
    return torch.stack(rows).reshape(x.shape[:-1])


def rank_sum_by_einsum(x, weights):
    if weights.ndim != 1 or weights.shape[0] > x.shape[-1]:
        raise ValueError("weights do not fit")
    ranked = x.sort(dim=-1, descending=True).values[..., : weights.shape[0]]
    return torch.einsum("...k,k->...", ranked, weights)


# name of the exercise → description → a right solution written in another way
RIGHT = {
    "ordinal_rank_sum": {"loops over rows": rank_sum_by_loops, "sort and einsum": rank_sum_by_einsum},
}

# name of the exercise → description → a wrong solution that must be named nothing
WRONG = {
    "ordinal_rank_sum": {"the mean of the row": lambda x, weights: x.mean(-1)},
}
