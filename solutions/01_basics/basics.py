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
# # Chapter 1: Basics

# %%
import sys

if "google.colab" in sys.modules:  # on Colab: the course's helper package, and nothing else
    # %pip install -q --no-deps "underhood @ git+https://github.com/under-the-hood-course/under-the-hood@v1.0.0"

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from underhood import check, ready

# %% [markdown]
# **Exercise 1.5 · rank, then weigh** — *medium · 10 min · 4 points*

# %% nbgrader={"grade": false, "grade_id": "01_basics-ordinal_rank_sum", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ordinal_rank_sum(x: Tensor, weights: Tensor) -> Tensor:
    """Weigh the largest values of the last axis by their rank."""
    ### BEGIN SOLUTION
    if weights.dim() != 1 or len(weights) > x.shape[-1]:
        raise ValueError(f"weights of shape {tuple(weights.shape)} do not rank {x.shape[-1]} values")
    ranked = x.topk(len(weights), dim=-1).values
    return (weights * ranked).sum(-1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-ordinal_rank_sum-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("ordinal_rank_sum")
### BEGIN HIDDEN TESTS
check("ordinal_rank_sum", hidden=True)
### END HIDDEN TESTS
