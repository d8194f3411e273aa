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
# # Chapter 1 · Basics
#
# A function from a public forum gave the right answer on one row of numbers. On a picture it stopped with an error, and
# on some inputs it gave wrong numbers without a word. At the end of this chapter you know why, and you have built the
# layer that it wanted to be.
#
# ![One picture of a moon over hills with bright and dark specks, and four smaller versions: max pooling keeps every bright speck, min pooling every dark one, average pooling blurs both, ordinal pooling lies between max and average.](figures/pooling_family.png)
#
# **When you are done you will be able to**
#
# - make tensors, and say their shape, dtype and device;
# - tell a view from a copy, and keep your data safe from in-place changes;
# - predict what broadcasting does, and when it does the wrong thing silently;
# - build max, average, min and ordinal pooling as one layer;
# - turn scores into labels, pictures into batches, tables into comparable columns.
#
# **You need** Python: functions, lists, loops. A little numpy helps. **It takes** about 150 minutes: ten exercises
# worth 43 points. Run a cell with Shift+Enter.
#
# Each exercise has a cell to write in and a check below it. The check shows what you got and what was expected, and
# often why, and gives one point for each part. Run it as often as you like. It hides what your function prints: to see
# that, call it under *Try your own inputs here*.

# %%
import sys

if "google.colab" in sys.modules:  # on Colab: the course's helper package, and nothing else
    package = "underhood @ git+https://github.com/under-the-hood-course/under-the-hood@v1.0.0#subdirectory=course"
    get_ipython().run_line_magic("pip", f'install -q --no-deps "{package}"')

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn, tensor

from underhood import check, ready
from underhood.plots import basics as plots

# %% [markdown]
# ## Making tensors
#
# A **tensor** is a box of numbers of one type, in rows along any number of axes. torch's functions have numpy's names,
# but not always numpy's defaults. The **dtype** is the type of the numbers.
#
# Before you run the cell: in which of the four lines do numpy and torch disagree about the dtype?

# %%
print(np.array([1, 2, 3]).dtype, torch.tensor([1, 2, 3]).dtype)
print(np.array([1.5, 2.5]).dtype, torch.tensor([1.5, 2.5]).dtype)
print(np.zeros((2, 3)).dtype, torch.zeros(2, 3).dtype)
print(np.arange(3, 9, 2).dtype, torch.arange(3, 9, 2).dtype)
print(np.arange(3, 9, 2), torch.arange(3, 9, 2))  # the end is left out by both
print(np.linspace(0, 1, 5), torch.linspace(0, 1, 5))  # the end is in
print(torch.eye(2), torch.full((2, 2), 7), torch.rand(1, 2), sep="\n")

# %% [markdown]
# In the lines with fractions and zeros: numpy computes in float64, torch in float32, which takes half the memory.
#
# Every tensor has a shape, a dtype and a **device**, the processor whose memory holds it. Three traps stand in the next
# cell:
#
# - `torch.Tensor(3)`, with a capital T, is an old constructor: three *uninitialized* float32 numbers. `torch.tensor(3)`
#   is the number 3.
# - A method whose name ends in an underscore works **in place**: `add_` changes its tensor, `add` returns a new one.
# - `*` multiplies entry by entry; `@` is the matrix product.
#
# Predict the last printed line.

# %%
x = tensor([[1.0, 2.0], [3.0, 4.0]])
device = "cuda" if torch.cuda.is_available() else "cpu"
print(x.shape, x.dtype, x.to(device).device)
print(torch.Tensor(3).shape, torch.tensor(3).shape)
print(torch.Tensor([True, False]).dtype, torch.tensor([True, False]).dtype)
print(x * x, x @ x, x.T, sep="\n")
x.add(10)
x.mul_(2)
print(x)

# %% [markdown]
# ### **Exercise 1.1 · patterns without a loop** — *easy · 10 min · 5 points*
#
# Make four integer tensors. Try it without a loop: with `arange`, `eye`, `full`, `reshape` and arithmetic.
#
# For n = 3 and m = 2:
#
# - `odds` is 3 5 7;
# - `diagonal` has 4 on the diagonal and 1 elsewhere: rows 4 1 1, 1 4 1, 1 1 4;
# - `multiples` has the rows 3 6, 9 12, 15 18;
# - `squares` has the rows 1 1, 4 4, 9 9.

# %% nbgrader={"grade": false, "grade_id": "01_basics-tensor_patterns", "locked": false, "schema_version": 3, "solution": true, "task": false}
def tensor_patterns(n: int, m: int) -> dict[str, Tensor]:
    """Four integer tensors; try to make them without a loop.

    Parameters
    ----------
    n, m : int
        Sizes, at least 1.

    Returns
    -------
    dict of int64 tensors
        `odds` (n,): 3, 5, 7, …
        `diagonal` (n, n): 4 on the diagonal, 1 elsewhere.
        `multiples` (n, m): 3, 6, 9, …, row by row.
        `squares` (n, m): row i is filled with (i + 1)².

    Raises
    ------
    ValueError
        If n or m is less than 1.

    Examples
    --------
    >>> tensor_patterns(3, 2)["squares"].tolist()
    [[1, 1], [4, 4], [9, 9]]
    """
    ### BEGIN SOLUTION
    if n < 1 or m < 1:
        raise ValueError(f"sizes start at 1, got n = {n} and m = {m}")
    return {
        "odds": torch.arange(3, 2 * n + 2, 2),
        "diagonal": 1 + 3 * torch.eye(n, dtype=torch.int64),
        "multiples": torch.arange(3, 3 * n * m + 1, 3).reshape(n, m),
        "squares": (torch.arange(1, n + 1) ** 2).unsqueeze(1).repeat(1, m),
    }
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-tensor_patterns-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("tensor_patterns")
### BEGIN HIDDEN TESTS
check("tensor_patterns", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# How many numbers does each tensor hold, and what is the rule for the k-th of them?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `arange(start, end, step)` leaves its end out. A diagonal of 4 on 1 is 1 plus three times the identity. A column of
# shape (n, 1) can be repeated along the second axis.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `torch.arange(3, 2 * n + 2, 2)`, `torch.eye(n, dtype=torch.int64)`, `torch.arange(…).reshape(n, m)`, `(… **
# 2).unsqueeze(1).repeat(1, m)`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## Rows, columns, reductions
#
# `x[1]` is a row, `x[:, 1]` a column, `x[..., -1]` the last entry along the last axis. A **reduction** such as `sum`,
# `mean` or `max` makes an axis disappear, and **`dim` names the axis that disappears**. With `keepdim=True` it stays,
# with length 1.
#
# The tensor below has the shape (2, 3). Which shape has `x.sum(dim=0)`, and which numbers are in it?

# %%
x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
print(x[1], x[:, 1], x[..., -1], x[0, 1:])
print(x.sum(), x.sum().item())  # a tensor without axes, and the Python number in it
print(x.sum(dim=0), x.sum(dim=1))
print(x.mean(dim=1, keepdim=True).shape)
print(x.max(dim=1))  # values, and where they stand; with ties, at any of the places

# %% [markdown]
# ### **Exercise 1.2 · the length of every row** — *easy · 8 min · 4 points*
#
# The **Euclidean norm** of a row is its length: the square root of the sum of its squares. For the rows (3, 4) and (-5,
# 12) the answer is (5, 13), because 9 + 16 = 25 and 25 + 144 = 169. The check refuses `torch.norm`,
# `torch.linalg` and `F.normalize`.

# %% nbgrader={"grade": false, "grade_id": "01_basics-row_norms", "locked": false, "schema_version": 3, "solution": true, "task": false}
def row_norms(x: Tensor) -> Tensor:
    """Euclidean norm of each row: the square root of the sum of squares.

    Parameters
    ----------
    x : float Tensor (N, D)

    Returns
    -------
    Tensor (N,)
        In the dtype of x.

    Raises
    ------
    ValueError
        If x does not have two axes.

    Examples
    --------
    >>> row_norms(tensor([[3.0, 4.0], [-5.0, 12.0]]))
    tensor([ 5., 13.])
    """
    ### BEGIN SOLUTION
    if x.dim() != 2:
        raise ValueError(f"expected rows and columns, got shape {tuple(x.shape)}")
    return (x * x).sum(dim=1).sqrt()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-row_norms-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("row_norms")
### BEGIN HIDDEN TESTS
check("row_norms", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Square, add up, take the root. Which of the three steps makes an axis disappear?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `x * x` squares every entry. The sum should leave one number for each row, so the axis of the columns goes.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `(x * x).sum(dim=…).sqrt()`, after a look at `x.dim()`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## Masks
#
# A comparison gives a tensor of True and False, a **mask**. As an index it chooses entries. Summed, it counts, since
# True is 1. Combine masks with `&`, `|` and `~`, with parentheses around each comparison.

# %%
x = tensor([[0.0, -2.0, 7.0], [3.0, 0.0, 5.0]])
mask = x > 2
print(mask, mask.dtype)
print(x[mask], mask.sum(), x[(x > 2) & (x < 6)])
print(torch.where(mask, x, 0.0))
print(x.nonzero())  # one row for each entry found: its coordinates

# %% [markdown]
# ### **Exercise 1.3 · masks that count and choose** — *easy · 8 min · 4 points*
#
# Return two Python numbers: the sum of the entries strictly above the mean, and how many entries are not zero. For (0,
# 1, 2, 5) the mean is 2. Only 5 is above it, and three entries are not zero: `(5.0, 3)`.

# %% nbgrader={"grade": false, "grade_id": "01_basics-sum_above_mean", "locked": false, "schema_version": 3, "solution": true, "task": false}
def sum_above_mean(x: Tensor) -> tuple[float, int]:
    """Sum of the entries strictly above the mean, and number of entries that are not zero.

    Parameters
    ----------
    x : float Tensor, any shape

    Returns
    -------
    tuple of float and int
        Python numbers, not tensors.

    Raises
    ------
    ValueError
        If x has no entries.

    Examples
    --------
    >>> sum_above_mean(tensor([0.0, 1.0, 2.0, 5.0]))
    (5.0, 3)
    """
    ### BEGIN SOLUTION
    if x.numel() == 0:
        raise ValueError("an empty tensor has no mean")
    return x[x > x.mean()].sum().item(), (x != 0).sum().item()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-sum_above_mean-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("sum_above_mean")
### BEGIN HIDDEN TESTS
check("sum_above_mean", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Two masks: one compares with the mean, the other with zero. One of them chooses, the other counts.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `x[mask]` is a row of the chosen entries, whatever the shape of x. A tensor with one entry becomes a Python number
# with `.item()`.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `x[x > …].sum().item()`, and `.sum().item()` of a second mask. An empty tensor has `x.numel() == 0`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## One memory, many views
#
# A tensor is a strip of memory and a way to read it. Slicing, `view`, `reshape`, `T`, `permute` and `expand` give a new
# way to read the *same* strip wherever they can. That is a **view**: it costs nothing, and a change through one shows
# in the other.
#
# `reshape` gives a view where the strip can be read in the new order, and a copy where it cannot. `view` raises an
# error instead of copying. Below, -9 is written through four tensors. Which of them change `x`?

# %%
x = torch.arange(6.0)
x.reshape(2, 3)[0, 0] = -9  # reshape
x[1:3][0] = -9  # slice
x.reshape(2, 3).T.reshape(6)[5] = -9  # reshape of a transposed view
x[tensor([3, 4])][0] = -9  # indexing with a tensor
print(x)
turned = x.reshape(2, 3).T
print(turned.stride(), turned.is_contiguous(), turned.contiguous().stride())

# %% [markdown]
# The first two do. A transposed strip cannot be read straight through, so `reshape` copied; an index tensor always
# copies. **Contiguous** means that the memory lies in reading order; **strides** say how many numbers to skip for one
# step along each axis.
#
# `torch.from_numpy(a)` and `t.numpy()` share memory with the original; `torch.tensor(a)` and `t.clone()` copy. Below, a
# training loop saves its weights three times. What is in `history`?

# %%
a = np.arange(3.0)
shared, copied = torch.from_numpy(a), torch.tensor(a)
a += 1  # in place: the shared tensor sees it. a = a + 1 would make a new array
print(shared, copied)
weights, history, snapshots = torch.zeros(2), [], []
for _ in range(3):
    weights += 1
    history.append(weights.numpy())
    snapshots.append(weights.clone().numpy())
print(history, snapshots, sep="\n")

# %% [markdown]
# Three times the last state: all three entries are one memory. Clone what you want to keep, and return new tensors from
# your functions. The part *inputs untouched* of the checks looks at that.
#
# ## Broadcasting
#
# When two shapes differ, torch compares them **from the right**. Two sizes fit if they are equal or one of them is 1. A
# size of 1, or a missing axis, is stretched to the other size. No number is copied for that.
#
# ```
# (4, 1)             (8, 1, 6, 1)             (4,)
#    (3,)               (7, 1, 5)       (1, 4, 16)
# (4, 3)             (8, 7, 6, 5)       error: 4 against 16
# ```
#
# A model predicts 0, 2 and 5, and the targets are 0, 2 and 5. What is its mean squared error below?

# %%
column, row = torch.arange(4).view(4, 1), tensor([0, 10, 20])
print(column + row)
prediction, target = tensor([[0.0], [2.0], [5.0]]), tensor([0.0, 2.0, 5.0])
print(((prediction - target) ** 2).mean())
print(prediction - target)
print(((prediction - target.unsqueeze(1)) ** 2).mean())

# %% [markdown]
# It is 8.44 for a perfect model. A column against a row made a table of all nine pairs, and the mean is taken over the
# table. Training on that loss pulls every prediction to the mean of the targets. **Print shapes before you subtract.**
# `unsqueeze(1)` adds an axis of length 1, `squeeze(1)` takes one away.
#
# ### **Exercise 1.4 · the rule of broadcasting** — *medium · 15 min · 4 points*
#
# Write the rule in plain Python, for any number of shapes. `broadcast_shape((4, 1), (3,))` is `(4, 3)`. `(0,)` and
# `(1,)` give `(0,)`: the 1 is stretched to zero entries. `(2, 3)` and `(2,)` raise a ValueError, because 3 stands
# against 2.

# %% nbgrader={"grade": false, "grade_id": "01_basics-broadcast_shape", "locked": false, "schema_version": 3, "solution": true, "task": false}
def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these shapes broadcast to, in plain Python.

    Parameters
    ----------
    *shapes : tuples of int
        Any number of them; () is the shape of a single number.

    Returns
    -------
    tuple of int
        () where no shape is given.

    Raises
    ------
    ValueError
        If two sizes differ and neither is 1.

    Examples
    --------
    >>> broadcast_shape((4, 1), (3,))
    (4, 3)
    """
    ### BEGIN SOLUTION
    result = []
    for axis in range(max(map(len, shapes), default=0)):  # counted from the right
        sizes = {shape[-1 - axis] for shape in shapes if axis < len(shape)} - {1}
        if len(sizes) > 1:
            raise ValueError(f"axis {-1 - axis} of {shapes} has sizes {sorted(sizes)}")
        result.append(sizes.pop() if sizes else 1)
    return tuple(reversed(result))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-broadcast_shape-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("broadcast_shape")
### BEGIN HIDDEN TESTS
check("broadcast_shape", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Write two shapes below each other, flush right. What do you do at each position, and what stands in an empty place?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Go through the positions from the right: -1, -2, … At each, collect the sizes of all shapes that are long enough.
# Leave out the ones. How many different sizes may be left?
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `sizes = {shape[-1 - axis] for shape in shapes if axis < len(shape)} - {1}`, then: more than one left is an error, one
# is the answer, none means 1. Turn the result around at the end.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## The function that was right on one row
#
# **Pooling** replaces a group of numbers by one: their maximum, their average. *Ordinal* pooling sorts them first and
# gives each rank a weight: 0.6 for the largest, then 0.25, 0.10 and 0.05. Here is the function from the forum, with its
# example. By hand: 0.6 · 1.9 + 0.25 · 1.3 + 0.10 · 0.8 + 0.05 · 0.4.

# %%
WEIGHTS = tensor([0.6, 0.25, 0.10, 0.05])


def public_pooling(x):
    top = torch.topk(x, 4, dim=1).values  # the four largest along dim 1, largest first
    return (WEIGHTS * top).sum(dim=1)


print(public_pooling(tensor([[1.9, 0.4, 1.3, 0.8]])))

# %% [markdown]
# 1.5650, as it should be. Now break it on purpose. A **feature map** has the shape (channels, height, width), and a
# batch of them (N, C, H, W). First try (1, 4, 16). After `topk` its shape is (1, 4, 16) again, and the four weights
# have the shape (4,). What will broadcasting say?

# %%
try:
    public_pooling(torch.rand(1, 4, 16))
except RuntimeError as error:
    print(error)

# %% [markdown]
# 4 against 16, from the right: the weights met the *last* axis, while the ranks run along dim 1. An error is the lucky
# case. Now let the last axis have 4 entries too. Nothing complains. The input is 0, 1, 2, … 15, so every column is
# ranked 12, 8, 4, 0 and so on. The picture shows where each weight should have gone and where it went.

# %%
x = torch.arange(16.0).reshape(1, 4, 4)
print(public_pooling(x))
plots.show_weights_on_axes(x.topk(4, dim=1).values[0], WEIGHTS)

# %% [markdown]
# The cause is two axes that have to be the same and are not: ranking runs along dim 1, the weights lie along the last.
# On one row of shape (1, 4) both are dim 1, so the example could not show it. The answers online say that a batch axis
# is missing. It is not: the function already takes a batch of rows.
#
# Ranking down the columns with weights that follow gives [9.6, 10.6, 11.6, 12.6], which the author wanted. Ranking the
# last axis gives [2.4, 6.4, 10.4, 14.4], which you write next. The public function gives neither.
#
# ### **Exercise 1.5 · rank, then weigh** — *medium · 10 min · 4 points · uses 1.4*
#
# Rank the **last** axis, whatever comes before it, and weigh the largest values. (5, 1, 3, 2, 4) with the weights (2,
# -0.5) gives 2 · 5 - 0.5 · 4 = 8. There may be fewer weights than values, and they need not add up to 1.

# %% nbgrader={"grade": false, "grade_id": "01_basics-ordinal_rank_sum", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ordinal_rank_sum(x: Tensor, weights: Tensor) -> Tensor:
    """Weigh the largest values of the last axis by their rank, and add them up.

    Parameters
    ----------
    x : float Tensor (..., K)
    weights : float Tensor (M,)
        M <= K, used as they are: weights[0] belongs to the largest value, weights[1] to the next.

    Returns
    -------
    Tensor (...)
        In the dtype of x.

    Raises
    ------
    ValueError
        If weights does not have one axis, or is longer than the last axis of x.

    Examples
    --------
    >>> ordinal_rank_sum(tensor([[5.0, 1.0, 3.0, 2.0, 4.0]]), tensor([2.0, -0.5]))
    tensor([8.])
    """
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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# In which axis do the values compete, and in which do the weights lie?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `topk(k, dim=-1)` gives the k largest of the last axis in falling order. Weights of shape (M,) line up with a last
# axis of length M.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# Compare `weights.dim()` and `len(weights)` with `x.shape[-1]` first. Then `x.topk(len(weights), dim=-1).values`, times
# the weights, summed over -1.
#
# </details>

# %%
# Try your own inputs here.

# %%
if ready("ordinal_rank_sum"):
    x = torch.arange(16.0).reshape(1, 4, 4)
    print("last axis:", ordinal_rank_sum(x, WEIGHTS))
    print("axis 1:   ", ordinal_rank_sum(x.transpose(1, 2), WEIGHTS))
    print("(2, 3, 5, 16) becomes", tuple(ordinal_rank_sum(torch.rand(2, 3, 5, 16), WEIGHTS).shape))

# %% [markdown]
# ## From rows to windows
#
# A pooling layer ranks neither rows nor channels. It slides a **window** over each channel: 2 cells high and 2 wide,
# with a **stride**, the step from one window to the next. `x.unfold(axis, size, step)` cuts windows along one axis, as
# a view. Cut along the height, then along the width. What shape has `windows`? `F.unfold` makes both cuts at once and
# lays each window down as a column. How long is a column for 3 channels?

# %%
x = torch.arange(1.0, 17).reshape(1, 1, 4, 4)
windows = x.unfold(2, 2, 2).unfold(3, 2, 2)
print(windows.shape)  # (N, C, rows of windows, columns of windows, window height, window width)
print(windows[0, 0, 0, 1])
columns = F.unfold(x.repeat(1, 3, 1, 1), kernel_size=2, stride=2)
print(columns.shape)  # (N, C · 4, 4): channel after channel, then cells; not (N, 4, C, 4)

# %% [markdown]
# (1, 1, 2, 2, 2, 2): two rows of two windows, each two by two. A column of `F.unfold` is 12 long: the four cells of
# channel 0, then those of channels 1 and 2.
#
# ### **Exercise 1.6 · a pooling layer that ranks** — *hard · 30 min · 5 points · uses 1.5*
#
# On the map 1 … 16 with windows of 2, the first window holds 1, 2, 5, 6: 0.6 · 6 + 0.25 · 5 + 0.10
# · 2 + 0.05 · 1 = 5.1, and the output is 5.1 7.1 / 13.1 15.1.
#
# **Padding** puts a ring of cells around the map. Padded cells never take part: zeros would win in a map of negative
# numbers. A window with m real cells uses the first m weights, scaled up to the old sum. On the map -1 … -9 with
# windows of 2 and padding 1, the corner window holds -1 alone: 0.6 · (-1) · 1 / 0.6 = -1. The next one holds -2 and -3:
# (0.6 · (-2) + 0.25 · (-3)) / 0.85 = -2.294.
#
# The weights are a **buffer**: a tensor that is saved and moved with the layer, but not trained.

# %% nbgrader={"grade": false, "grade_id": "01_basics-OrdinalPool2d", "locked": false, "schema_version": 3, "solution": true, "task": false}
class OrdinalPool2d(nn.Module):
    """Pool each window by rank: its largest value times weights[0], the next times weights[1], and so on.

    Parameters
    ----------
    weights : float Tensor (M,)
        M at most the number of cells of a window; kept as a buffer.
    kernel_size, stride, padding : int or pair of int
        In cells, height first. `stride=None` means kernel_size. Padded cells never take part: a window with m < M real
        cells uses the first m weights, times sum(weights) / sum(weights[:m]).

    Raises
    ------
    ValueError
        If M is larger than the window, if 2 · padding > kernel_size, or if there is padding and a weight is negative or
        weights[0] is not positive.

    Examples
    --------
    >>> x = tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> OrdinalPool2d(tensor([0.5, 0.5]), kernel_size=2)(x)
    tensor([[[[3.5000]]]])
    """

    def __init__(
        self,
        weights: Tensor,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        ### BEGIN SOLUTION
        super().__init__()
        stride = kernel_size if stride is None else stride
        pairs = [(size, size) if isinstance(size, int) else tuple(size) for size in (kernel_size, stride, padding)]
        self.kernel, self.stride, self.padding = pairs
        if len(weights) > self.kernel[0] * self.kernel[1]:
            raise ValueError(f"{len(weights)} weights for a window of {self.kernel[0]} by {self.kernel[1]}")
        if any(2 * p > k for p, k in zip(self.padding, self.kernel, strict=True)):
            raise ValueError(f"padding {self.padding} is more than half of the window {self.kernel}")
        if any(self.padding) and (weights.min() < 0 or weights[0] <= 0):
            raise ValueError("with padding, no weight may be negative, and the first must be positive")
        self.register_buffer("weights", weights)
        ### END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, C, Ho, Wo) with Ho = (H + 2 · padding - kernel) // stride + 1, and Wo likewise."""
        ### BEGIN SOLUTION
        (kh, kw), (sh, sw), (ph, pw) = self.kernel, self.stride, self.padding
        padded = F.pad(x, (pw, pw, ph, ph), value=-torch.inf)  # below every real value, so ranked last
        windows = padded.unfold(2, kh, sh).unfold(3, kw, sw).flatten(-2)
        ranked = windows.topk(len(self.weights), dim=-1).values
        if not any(self.padding):
            return (self.weights * ranked).sum(-1)
        real = ranked > -torch.inf
        scale = self.weights.sum() / (self.weights * real).sum(-1)
        return scale * (self.weights * ranked.where(real, 0)).sum(-1)
        ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-OrdinalPool2d-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("OrdinalPool2d")
### BEGIN HIDDEN TESTS
check("OrdinalPool2d", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# First without padding: cut windows, put each window's cells on one last axis, and do what you did in 1.5.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `flatten(-2)` joins the last two axes. For padding, fill with a number that ranks below every real one. After ranking,
# these cells stand last, so the cells that are left are the first m.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `F.pad(x, (pw, pw, ph, ph), value=-torch.inf)`, then `unfold`, `flatten(-2)`, `topk`. With padding, `real = ranked >
# -torch.inf`; replace the rest by 0 with `where`, and multiply by `weights.sum() / (weights * real).sum(-1)`.
# `self.register_buffer("weights", weights)`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# What you have built is a family. With one weight the layer is max pooling, with equal weights average pooling, with
# all weight on the last rank min pooling. torch has the first two. The next cell compares with padding that does not
# count: max and min exactly, the average to float32 rounding.
#
# Then look at the picture from the top of the chapter, pooled by *your* layer. Which version keeps the bright specks,
# which the dark ones? The fifth puts its weight on the middle ranks: the **median**. What will it do with single
# specks?

# %%
if ready("OrdinalPool2d"):
    x = torch.randn(2, 3, 9, 11) - 2
    largest = OrdinalPool2d(tensor([1.0]), 3, stride=2, padding=1)(x)
    print("max:    ", torch.equal(largest, F.max_pool2d(x, 3, 2, 1)))
    average = OrdinalPool2d(torch.full((9,), 1 / 9), 3, stride=2, padding=1)(x)
    print("average:", torch.allclose(average, F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), atol=1e-6))
    smallest = OrdinalPool2d(tensor([0.0, 0.0, 0.0, 1.0]), 2)(x)
    print("min:    ", torch.equal(smallest, -F.max_pool2d(-x, 2)))

# %%
if ready("OrdinalPool2d"):
    ranks = torch.arange(16)
    family = {"max": (ranks == 0).float(), "ordinal": WEIGHTS, "average": torch.full((16,), 1 / 16)}
    family |= {"min": (ranks == 15).float(), "median": ((ranks == 7) | (ranks == 8)) / 2}
    picture = plots.moonrise()
    pooled = {name: OrdinalPool2d(weights, kernel_size=4)(picture) for name, weights in family.items()}
    plots.show_family(picture, pooled)

# %% [markdown]
# ## A score is not a label
#
# A classifier's last layer gives a raw score, a **logit**: any number. The **sigmoid**, 1 / (1 + e⁻ᶻ), makes a
# probability of it. Both are decimals; people often expect 0 or 1. A **label** needs a threshold. 0.5 is the threshold
# for *probabilities*. For logits it is 0, where the sigmoid passes 0.5.
#
# Below, compare 0.5 with the logits themselves. How many of the four labels come out right?

# %%
logits, labels = tensor([0.3, -0.2, 0.8, 0.4]), tensor([1, 0, 1, 1])
print(torch.sigmoid(logits), (torch.sigmoid(logits) > 0.5).int())
print(torch.sigmoid(tensor([16.0, 17.0])) == 1)  # between 0 and 1 on paper; in float32 it reaches 1 near 16.64
print(tensor([0.5, 1.5, 2.5]).round())  # halves go to the even neighbor
plots.show_thresholds(logits, labels)

# %% [markdown]
# ### **Exercise 1.7 · from scores to labels** — *medium · 10 min · 5 points · uses 1.4*
#
# The **accuracy** is the share of right answers. A probability *strictly* above the threshold means 1. The scores (0.5,
# 0.7) with the labels (0, 1) give 1.0: 0.5 is not above 0.5. Scores and labels come as (N,) or as columns (N, 1), in
# any combination.

# %% nbgrader={"grade": false, "grade_id": "01_basics-binary_accuracy", "locked": false, "schema_version": 3, "solution": true, "task": false}
def binary_accuracy(scores: Tensor, labels: Tensor, threshold: float = 0.5, from_logits: bool = False) -> float:
    """Share of the right yes-or-no answers.

    Parameters
    ----------
    scores : float Tensor (N,) or (N, 1)
        Probabilities, or logits with `from_logits=True`: then a sigmoid makes probabilities of them first.
    labels : Tensor (N,) or (N, 1)
        0 or 1, integers or floats.
    threshold : float
        A probability strictly above it means 1.

    Returns
    -------
    float
        From 0.0 to 1.0, a Python number.

    Raises
    ------
    ValueError
        If the numbers of scores and labels differ, or there are none.

    Examples
    --------
    >>> binary_accuracy(tensor([0.5, 0.7]), tensor([0, 1]))
    1.0
    """
    ### BEGIN SOLUTION
    if scores.numel() != labels.numel() or scores.numel() == 0:
        raise ValueError(f"{scores.numel()} scores and {labels.numel()} labels")
    probabilities = torch.sigmoid(scores) if from_logits else scores
    predicted = probabilities.flatten() > threshold
    return (predicted == labels.flatten()).double().mean().item()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-binary_accuracy-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("binary_accuracy")
### BEGIN HIDDEN TESTS
check("binary_accuracy", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Are these probabilities, which shapes do they have, and is there one label for each score?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Make both of them rows with `flatten`. A mask `>` gives the predictions. The mean of the mask "prediction equals
# label" is the accuracy.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `p = torch.sigmoid(scores) if from_logits else scores`, then `(p.flatten() > threshold) == labels.flatten()`,
# `.double().mean().item()`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## From pictures and tables to batches
#
# Picture files are bytes from 0 to 255, channel last: (N, H, W, C). torch's layers expect float32 and (N, C, H, W). Two
# methods give the right *shape*. `reshape` cuts the strip of numbers anew; `permute` moves axes. The picture below has
# 2 × 2 pixels with 3 channels, numbered 0 to 11. Channel 0 is 0, 3, 6, 9. Which line finds it?

# %%
picture = torch.arange(12).reshape(2, 2, 3)
print(picture.reshape(3, 2, 2)[0])
print(picture.permute(2, 0, 1)[0])
print(picture.permute(2, 0, 1).is_contiguous())
try:
    picture.permute(2, 0, 1).view(-1)
except RuntimeError as error:
    print(error)

# %% [markdown]
# `permute` does. `reshape` took the first four numbers in memory. A permuted view is not contiguous, so `view` refuses.
#
# ### **Exercise 1.8 · pictures for a network** — *medium · 10 min · 4 points*
#
# Take a batch of pictures, numpy or torch, and return float32 of shape (N, C, H, W), from 0 to 1, in contiguous memory
# of its own. A pixel (255, 0, 51) becomes 1.0 in channel 0, 0.0 in channel 1 and 0.2 in channel 2.

# %% nbgrader={"grade": false, "grade_id": "01_basics-to_nchw", "locked": false, "schema_version": 3, "solution": true, "task": false}
def to_nchw(images: np.ndarray | Tensor) -> Tensor:
    """Make a batch of pictures ready for a network.

    Parameters
    ----------
    images : uint8 array or Tensor (N, H, W, C)
        Numpy or torch, values 0 to 255.

    Returns
    -------
    float32 Tensor (N, C, H, W)
        Values 0 to 1, in contiguous memory of its own.

    Raises
    ------
    ValueError
        If images is not uint8, or does not have four axes.

    Examples
    --------
    >>> to_nchw(np.full((1, 2, 2, 3), 255, dtype=np.uint8)).shape
    torch.Size([1, 3, 2, 2])
    """
    ### BEGIN SOLUTION
    batch = torch.as_tensor(images)
    if batch.dtype != torch.uint8 or batch.dim() != 4:
        raise ValueError(f"expected uint8 (N, H, W, C), got {batch.dtype} {tuple(batch.shape)}")
    return batch.permute(0, 3, 1, 2).contiguous() / 255
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-to_nchw-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("to_nchw")
### BEGIN HIDDEN TESTS
check("to_nchw", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Three steps: one tensor type, the right order of axes, the right scale. Which of them leaves the memory in the old
# order?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `torch.as_tensor` takes both kinds. `permute` lists where each new axis comes from. `contiguous()` writes the memory
# in reading order.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# Check `dtype` and `dim()`, then `batch.permute(0, …).contiguous()`, divided by the largest byte. Dividing uint8 by a
# number with `/` gives float32.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## One entry of each row
#
# A classifier gives (N, C) scores, and for the loss you want the score of the right class, one for each row. Two index
# tensors of the same length are read in **pairs**. A slice beside an index tensor is not. For three rows and three
# classes, all of the following run. Which line picks 2, 3 and 7?

# %%
scores, index = torch.arange(9.0).reshape(3, 3), tensor([2, 0, 1])
print(scores[:, index])
print(scores[index])
print(scores[tensor([0, 1, 2]), index])

# %% [markdown]
# The last one: it reads the pairs (0, 2), (1, 0), (2, 1). The first takes whole columns, the second whole rows.
#
# ### **Exercise 1.9 · one score of each row** — *medium · 8 min · 4 points*
#
# Return `scores[n, index[n]]` for each row n. For the scores above the answer is (2, 3, 7). Gradients must flow back to
# the scores, so stay with tensors.

# %% nbgrader={"grade": false, "grade_id": "01_basics-pick", "locked": false, "schema_version": 3, "solution": true, "task": false}
def pick(scores: Tensor, index: Tensor) -> Tensor:
    """Pick one score of each row.

    Parameters
    ----------
    scores : float Tensor (N, C)
    index : int64 Tensor (N,)
        The column to take, row by row.

    Returns
    -------
    Tensor (N,)
        scores[n, index[n]] for each n, in the dtype of scores; gradients flow back to scores.

    Raises
    ------
    ValueError
        If index does not have the shape (N,).

    Examples
    --------
    >>> pick(tensor([[0.1, 0.9], [0.8, 0.2]]), tensor([1, 0]))
    tensor([0.9000, 0.8000])
    """
    ### BEGIN SOLUTION
    if index.shape != scores.shape[:1]:
        raise ValueError(f"{tuple(index.shape)} indices for {len(scores)} rows")
    return scores[torch.arange(len(scores)), index]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-pick-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("pick")
### BEGIN HIDDEN TESTS
check("pick", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Name pairs (row, column). The columns are given; which rows go with them?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `scores[rows, index]` with rows 0, 1, …, N - 1. Or `gather` along axis 1, which wants an index of two axes.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `scores[torch.arange(…), index]`, after comparing `index.shape` with the first entry of `scores.shape`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## Columns on one scale
#
# One column is an age in years, the next an income. To **standardize** a column, subtract its mean and divide by its
# standard deviation. Both come from the *training* rows and are used for all others: a test row of its own has no
# spread, and statistics of test rows would leak into training. torch divides by N - 1 unless you say `correction=0`.
# How many of the columns below get no numbers at all? And is the deviation of seven times 0.1 zero?

# %%
train = tensor([[1.0, 10.0, 5.0], [2.0, 20.0, 5.0], [3.0, 60.0, 5.0]])
print(train.std(dim=0), train.std(dim=0, correction=0), sep="\n")
print((train - train.mean(dim=0)) / train.std(dim=0))
print(torch.full((7, 1), 0.1).std(dim=0, correction=0))

# %% [markdown]
# One: in the column of fives, 0 / 0 is nan. Seven 0.1s have a deviation of 7e-9, not 0, because their mean is rounded.
# Dividing by that makes 54 million of a new 0.5.
#
# ### **Exercise 1.10 · columns on one scale** — *medium · 12 min · 4 points · uses 1.2*
#
# Standardize both tables with the mean and the biased deviation of the first. A column of equal values is divided by 1:
# 5, 5, 5 becomes 0, 0, 0, and a 7 in the other table becomes 2. For `train` above, column 0 becomes -1.2247, 0, 1.2247,
# and a 4 becomes 2.4495.

# %% nbgrader={"grade": false, "grade_id": "01_basics-standardize", "locked": false, "schema_version": 3, "solution": true, "task": false}
def standardize(train: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract each column's mean and divide by its standard deviation, both taken from the training rows.

    Parameters
    ----------
    train : float Tensor (N, D)
    other : float Tensor (M, D)
        In the dtype of train.

    Returns
    -------
    tuple of Tensor (N, D) and Tensor (M, D)
        In the dtype of train. The standard deviation is the biased one: divide by N, not N - 1. A column of equal
        training values is divided by 1.

    Raises
    ------
    ValueError
        If the numbers of columns differ.

    Examples
    --------
    >>> standardize(tensor([[1.0], [3.0]]), tensor([[4.0]]))
    (tensor([[-1.],
            [ 1.]]), tensor([[2.]]))
    """
    ### BEGIN SOLUTION
    if train.shape[1] != other.shape[1]:
        raise ValueError(f"{train.shape[1]} columns to train, {other.shape[1]} in the other rows")
    mean, deviation = train.mean(dim=0), train.std(dim=0, correction=0)
    divisor = torch.where((train == train[0]).all(dim=0), 1.0, deviation)
    return (train - mean) / divisor, (other - mean) / divisor
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "01_basics-standardize-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("standardize")
### BEGIN HIDDEN TESTS
check("standardize", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# From train come a mean, a deviation and a divisor for each column. Then treat both tables alike.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `mean(dim=0)` leaves one number for each column, and broadcasting lines it up with every row. Replace the divisor
# where a column is constant.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `(train == train[0]).all(dim=0)` marks constant columns; `torch.where(constant, 1.0, deviation)` is the divisor.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## Five questions
#
# <details><summary>1. What does <code>dim</code> name in a reduction?</summary>
#
# The axis that disappears. `x.sum(dim=0)` of (2, 3) has the shape (3,).
#
# </details>
#
# <details><summary>2. What do shapes (5, 1) and (5,) give when you compare them?</summary>
#
# A table (5, 5) of all pairs. Flatten both first.
#
# </details>
#
# <details><summary>3. When does <code>reshape</code> copy?</summary>
#
# When the memory cannot be read in the new order without moving numbers, as after a transpose.
#
# </details>
#
# <details><summary>4. Why did the public pooling function fail on feature maps?</summary>
#
# It ranked along dim 1 and laid the weights along the last axis. On one row these are the same axis.
#
# </details>
#
# <details><summary>5. Your logits are 0.3 and -0.2. Which threshold gives labels?</summary>
#
# 0 for the logits, or 0.5 after the sigmoid.
#
# </details>

# %% [markdown]
# ## What you can now do
#
# - Make tensors of a chosen dtype.
# - Say which operations share memory, and which copy.
# - Apply the rule of broadcasting.
# - Write a layer with buffers, windows, strides and padding.
# - Prepare scores, pictures and tables for the next chapters.
#
# ## Keep your work
#
# - **Binder** forgets everything after a pause of ten minutes. Download this notebook: *File → Download*. Upload it
#   again next time.
# - **Colab** opens a copy that is yours once you choose *File → Save a copy in Drive*.
# - **On your own machine** the file is saved where you opened it.
#
# ← this is the first chapter · [Chapter 2 · Autograd](../02_autograd/autograd.ipynb) →
