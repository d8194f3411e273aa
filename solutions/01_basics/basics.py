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

# %%
import sys

if "google.colab" in sys.modules:  # on Colab: the course's helper package, and nothing else
    # %pip install -q --no-deps "underhood @ git+https://github.com/under-the-hood-course/under-the-hood@v1.0.0"

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn, tensor

from underhood import check, ready

# %% nbgrader={"grade": false, "grade_id": "01_basics-tensor_patterns", "locked": false, "schema_version": 3, "solution": true, "task": false}
def tensor_patterns(n: int, m: int) -> dict[str, Tensor]:
    """Four integer tensors, made without a loop.

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
    >>> ordinal_rank_sum(tensor([[5.0, 1.0, 3.0]]), tensor([2.0, -1.0]))
    tensor([7.])
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

    def __init__(self, weights: Tensor, kernel_size, stride=None, padding=0) -> None:
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
        scores[n, index[n]] for each n; gradients flow back to scores.

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

# %% nbgrader={"grade": false, "grade_id": "01_basics-standardize", "locked": false, "schema_version": 3, "solution": true, "task": false}
def standardize(train: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract each column's mean and divide by its standard deviation, both taken from the training rows.

    Parameters
    ----------
    train : float Tensor (N, D)
    other : float Tensor (M, D)

    Returns
    -------
    tuple of Tensor (N, D) and Tensor (M, D)
        The standard deviation is the biased one: divide by N, not N - 1. A column of equal training values is divided by 1.

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
