"""The exercises of chapter 1: cases, known mistakes, hidden cases.

Most mistakes check their arguments as they should, so that each shows one thing only; the one that does not check is a
mistake of its own.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn, tensor

from underhood import Build, Case, Exercise, Mistake


def ramp(*shape):
    """0, 1, 2, … in the given shape, float32."""
    return torch.arange(float(torch.tensor(shape).prod())).reshape(shape)


# ----------------------------------------------------------------------------------------------------- tensor_patterns


def random_sizes(rng):
    """Sizes from 2 to 9, the smallest, and sizes that do not exist."""
    n, m = (int(size) for size in rng.permutation(range(2, 10))[:2])
    for key in ("odds", "diagonal", "multiples", "squares"):
        yield Case(f"{key} for n = {n} and m = {m}", key, (n, m), {"_key": key})
        yield Case(f"{key} for n = {m} and m = {n}", key, (m, n), {"_key": key})
        yield Case(f"{key} for n = 1", key, (1, m), {"_key": key})
    yield Case("no rows", "errors", (0, m), {"_key": "odds"}, raises=ValueError)
    yield Case("a negative number of columns", "errors", (n, -m), {"_key": "multiples"}, raises=ValueError)
    yield Case("two negative sizes", "errors", (-n, -m), {"_key": "odds"}, raises=ValueError)
    yield Case("one column: allowed", "errors", (n, 1), {"_key": "multiples"})
    yield Case("one row: allowed", "errors", (1, m), {"_key": "squares"})


def patterns(refused=lambda n, m: min(n, m) < 1, **others):
    """A right answer, but for the sizes that are refused and the entries, all given as functions of n and m."""
    rules = {
        "odds": lambda n, m: torch.arange(n) * 2 + 3,
        "diagonal": lambda n, m: torch.full((n, n), 1).fill_diagonal_(4),
        "multiples": lambda n, m: 3 + 3 * torch.arange(n * m).view(n, m),
        "squares": lambda n, m: torch.arange(1, n + 1).square().view(n, 1).expand(n, m),
    } | others

    def tensor_patterns(n, m):
        if refused(n, m):
            raise ValueError("sizes start at 1")
        return {key: rule(n, m) for key, rule in rules.items()}

    return tensor_patterns


TENSOR_PATTERNS = Exercise(
    name="tensor_patterns",
    title="patterns without a loop",
    level="easy",
    minutes=10,
    parts=("odds", "diagonal", "multiples", "squares", "errors"),
    probe="basics.entry",
    cases=(
        Case("three odd numbers", "odds", (3, 4), {"_key": "odds"}, expected=tensor([3, 5, 7])),
        Case("one odd number", "odds", (1, 2), {"_key": "odds"}, expected=tensor([3])),
        Case(
            "three by three",
            "diagonal",
            (3, 4),
            {"_key": "diagonal"},
            expected=tensor([[4, 1, 1], [1, 4, 1], [1, 1, 4]]),
        ),
        Case(
            "three rows of four",
            "multiples",
            (3, 4),
            {"_key": "multiples"},
            expected=tensor([[3, 6, 9, 12], [15, 18, 21, 24], [27, 30, 33, 36]]),
        ),
        Case(
            "three rows of two",
            "squares",
            (3, 2),
            {"_key": "squares"},
            expected=tensor([[1, 1], [4, 4], [9, 9]]),
        ),
        Case("as many rows as columns", "squares", (2, 2), {"_key": "squares"}, expected=tensor([[1, 1], [4, 4]])),
        Case("no rows", "errors", (0, 2), {"_key": "odds"}, raises=ValueError),
        Case("a negative number of columns", "errors", (2, -1), {"_key": "squares"}, raises=ValueError),
        Case("two negative sizes", "errors", (-1, -2), {"_key": "odds"}, raises=ValueError),
        Case("multiples at the smallest sizes", "errors", (1, 1), {"_key": "multiples"}, expected=tensor([[3]])),
    ),
    hidden=random_sizes,
    mistakes=(
        Mistake(
            "starting the odd numbers at 1",
            patterns(odds=lambda n, m: torch.arange(1, 2 * n, 2)),
            hint="The first of them is 3. Which argument of arange says where it starts?",
        ),
        Mistake(
            "an arange that ends one number early",
            patterns(odds=lambda n, m: torch.arange(3, 2 * n + 1, 2)),
            hint="arange leaves its end out. For n = 3 the last number is 7: which ends let 7 in?",
        ),
        Mistake(
            "4 off the diagonal and 1 on it",
            patterns(diagonal=lambda n, m: torch.full((n, n), 4).fill_diagonal_(1)),
            hint="Look at the entry [0, 0]: row and column are the same there, so it is on the diagonal.",
        ),
        Mistake(
            "zeros off the diagonal",
            patterns(diagonal=lambda n, m: 4 * torch.eye(n, dtype=torch.int64)),
            hint="eye is 0 off the diagonal. What has to be added to it, and what is then left to add on the diagonal?",
        ),
        Mistake(
            "keeping the float32 that torch.eye and torch.ones give",
            patterns(diagonal=lambda n, m: 3 * torch.eye(n) + torch.ones(n, n)),
            hint="The values are right, their type is not. Which argument of eye and ones decides the dtype?",
        ),
        Mistake(
            "counting down the columns",
            patterns(multiples=lambda n, m: (3 * torch.arange(1, n * m + 1)).reshape(m, n).T),
            hint="6 stands to the right of 3, not below it. Which shape should the numbers be poured into?",
        ),
        Mistake(
            "starting the multiples at 0",
            patterns(multiples=lambda n, m: 3 * torch.arange(n * m).reshape(n, m)),
            hint="0 is three times 0; the first multiple here is 3.",
        ),
        Mistake(
            "filling columns with the squares instead of rows",
            patterns(squares=lambda n, m: (torch.arange(1, m + 1) ** 2).repeat(n, 1)),
            hint="All entries of one row are equal. Along which axis does the number i change?",
        ),
        Mistake(
            "squaring the row's index instead of its number",
            patterns(squares=lambda n, m: (torch.arange(n) ** 2).unsqueeze(1).repeat(1, m)),
            hint="Row 0 is filled with 1. What is squared there?",
        ),
        Mistake(
            "taking any sizes",
            patterns(refused=lambda n, m: False),
            hint="torch makes empty tensors of size 0 without a word, and fails on negative sizes with an error of its own.",
        ),
        Mistake(
            "looking at the product of the sizes only",
            patterns(refused=lambda n, m: n * m < 1),
            hint="-1 times -2 is 2. Each size has to be looked at by itself.",
        ),
    ),
)


# ----------------------------------------------------------------------------------------------------------- row_norms


def random_matrices(rng):
    """Random matrices, in unusual layouts too, and inputs with one or three axes."""
    for shape in ((4, 3), (3, 5), (6, 6)):
        yield Case(f"random numbers, {shape[0]} by {shape[1]}", "values", (tensor(rng.normal(size=shape)),))
    data = tensor(rng.normal(size=(3, 6)))
    yield Case("a transposed view", "edge cases", (Build("basics.transposed", data=data),))
    yield Case("every second column of a matrix", "edge cases", (Build("basics.every_other", data=data),))
    yield Case("a single row", "edge cases", (data[:1].float(),), tolerance=1e-5)
    yield Case("one axis", "errors", (data[0],), raises=ValueError)
    yield Case("three axes", "errors", (data.reshape(3, 2, 3),), raises=ValueError)
    yield Case("one row and one column: allowed", "errors", (data[:1, :1],))


def norms(rule):
    """The rule, with the check that it needs."""

    def row_norms(x):
        if x.dim() != 2:
            raise ValueError("not a matrix")
        return rule(x)

    return row_norms


ROW_NORMS = Exercise(
    name="row_norms",
    title="the length of every row",
    level="easy",
    minutes=8,
    parts=("values", "edge cases", "errors", "inputs untouched"),
    forbids=(
        *("torch.norm", "Tensor.norm", "torch.linalg.*", "F.normalize", "torch.dist", "Tensor.dist", "torch.cdist"),
        *("F.pairwise_distance", "torch.pairwise_distance", "nn.PairwiseDistance"),
    ),
    cases=(
        Case("two rows of two", "values", (tensor([[3.0, 4.0], [-5.0, 12.0]]),), expected=tensor([5.0, 13.0])),
        Case("two rows of three", "values", (tensor([[1.0, 2.0, 2.0], [2.0, 3.0, 6.0]]),), expected=tensor([3.0, 7.0])),
        Case("a row of zeros", "edge cases", (tensor([[0.0, 0.0], [0.0, 2.0]]),), expected=tensor([0.0, 2.0])),
        Case("no rows at all", "edge cases", (torch.zeros(0, 3),), expected=torch.zeros(0)),
        Case(
            "float64, and a view whose memory is in another order",
            "edge cases",
            (Build("basics.transposed", data=tensor([[3.0, 0.0], [4.0, 1.0]]).double()),),
            expected=tensor([5.0, 1.0]).double(),
        ),
        Case("a single row without a second axis", "errors", (tensor([3.0, 4.0]),), raises=ValueError),
        Case("three axes", "errors", (ramp(2, 2, 2),), raises=ValueError),
        Case("one row and one column", "errors", (tensor([[-2.0]]),), expected=tensor([2.0])),
    ),
    hidden=random_matrices,
    mistakes=(
        Mistake(
            "adding up each column instead of each row",
            norms(lambda x: (x * x).sum(dim=0).sqrt()),
            hint="dim names the axis that disappears. Which of the two should be gone in the result?",
        ),
        Mistake(
            "leaving out the square root",
            norms(lambda x: (x * x).sum(dim=1)),
            hint="The row (3, 4) is 5 long. What has to be done with 25?",
        ),
        Mistake(
            "adding absolute values",
            norms(lambda x: x.abs().sum(dim=1)),
            hint="That is another norm, the one of city blocks. The Euclidean one squares first.",
        ),
        Mistake(
            "one norm of the whole matrix",
            norms(lambda x: (x * x).sum().sqrt()),
            hint="Without dim, sum adds up everything. There should be one number for each row.",
        ),
        Mistake(
            "keeping the summed axis",
            norms(lambda x: (x * x).sum(dim=1, keepdim=True).sqrt()),
            hint="The shape should be (N,). What does keepdim keep?",
        ),
        Mistake(
            "averaging the squares",
            norms(lambda x: (x * x).mean(dim=1).sqrt()),
            hint="That is the root of the mean square: it is smaller by the square root of the number of columns.",
        ),
        Mistake(
            "squaring the input in place",
            norms(lambda x: x.pow_(2).sum(dim=1).sqrt()),
            hint="x *= x, like x.mul_(x), writes into the caller's tensor. Which way of squaring makes a new one?",
        ),
        Mistake(
            "taking any number of axes",
            lambda x: (x * x).sum(dim=-1).sqrt(),
            hint="A tensor with one or three axes has no rows and columns. Look at x.dim() first.",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------ sum_above_mean


def random_entries(rng):
    """Random numbers with some zeros, of zero to four axes."""
    for shape in ((9,), (12,)):
        yield Case("random numbers and zeros, one axis", "values", (sparse(rng, shape),))
    for shape in ((4, 5), (2, 3, 4), (2, 1, 3, 2)):
        yield Case(f"random numbers and zeros, {len(shape)} axes", "any shape", (sparse(rng, shape),))
    yield Case("a single number", "any shape", (tensor(float(rng.normal())).double(),))
    yield Case("no columns", "errors", (torch.zeros(int(rng.integers(2, 5)), 0),), raises=ValueError)
    yield Case("one entry: allowed", "errors", (tensor([[float(rng.normal())]]).double(),))
    yield Case("two entries: allowed", "errors", (tensor(rng.normal(size=2)),))


def sparse(rng, shape):
    """Normal numbers, about a quarter of them replaced by zero."""
    return tensor(rng.normal(size=shape) * (rng.random(shape) > 0.25))


def above(total=lambda x: x[x > x.mean()].sum().item(), count=lambda x: int(x.count_nonzero())):
    """A right answer, but for the given rules."""

    def sum_above_mean(x):
        if x.numel() == 0:
            raise ValueError("empty")
        return total(x), count(x)

    return sum_above_mean


def count_first(x):
    if x.numel() == 0:
        raise ValueError("empty")
    return int(x.count_nonzero()), x[x > x.mean()].sum().item()


SUM_ABOVE_MEAN = Exercise(
    name="sum_above_mean",
    title="masks that count and choose",
    level="easy",
    minutes=8,
    parts=("values", "any shape", "errors", "inputs untouched"),
    tolerance=1e-6,
    cases=(
        Case("the mean is 2", "values", (tensor([0.0, 1.0, 2.0, 5.0]),), expected=(5.0, 3)),
        Case(
            "entries that equal the mean, and negative ones",
            "values",
            (tensor([-3.0, 1.0, 1.0, 5.0, 1.0]),),
            expected=(5.0, 5),
        ),
        Case("the mean is below zero", "values", (tensor([-6.0, -1.0, 0.0, -1.0]),), expected=(-2.0, 3)),
        Case("two axes", "any shape", (tensor([[1.0, 0.0, 4.0], [0.0, 9.0, 1.0]]),), expected=(13.0, 4)),
        Case("three axes", "any shape", (ramp(2, 2, 2),), expected=(22.0, 7)),
        Case("a single number without axes", "any shape", (tensor(3.0),), expected=(0.0, 1)),
        Case("no entries", "errors", (torch.zeros(0),), raises=ValueError),
        Case("two rows without columns", "errors", (torch.zeros(2, 0),), raises=ValueError),
        Case("a single zero", "errors", (tensor([0.0]),), expected=(0.0, 0)),
    ),
    hidden=random_entries,
    mistakes=(
        Mistake(
            "taking in entries that equal the mean",
            above(total=lambda x: x[x >= x.mean()].sum().item()),
            hint="Strictly above: is an entry that equals the mean in or out?",
        ),
        Mistake(
            "counting the entries above the mean instead of adding them",
            above(total=lambda x: float((x > x.mean()).sum())),
            hint="The sum of a mask counts its True. Which entries does the mask choose, and what do they add up to?",
        ),
        Mistake(
            "adding how far the entries are above the mean",
            above(total=lambda x: (x - x.mean()).clamp(min=0).sum().item()),
            hint="The entries themselves are added, not their distance from the mean.",
        ),
        Mistake(
            "comparing with zero instead of the mean",
            above(total=lambda x: x[x > 0].sum().item()),
            hint="The mask compares with a number that depends on x.",
        ),
        Mistake(
            "counting positive entries only",
            above(count=lambda x: int((x > 0).sum())),
            hint="-3 is not zero either.",
        ),
        Mistake(
            "counting the coordinates that nonzero returns",
            above(count=lambda x: x.nonzero().numel()),
            hint="nonzero gives one row for each entry that it finds, with one coordinate for each axis.",
        ),
        Mistake(
            "a separate mean for each column",
            above(total=lambda x: x[x > x.mean(0)].sum().item()),
            hint="mean(0) averages down one axis. How many means does the exercise speak of?",
        ),
        Mistake(
            "the count first and the sum second",
            count_first,
            hint="Both numbers are right. In which order does the docstring name them?",
        ),
        Mistake(
            "returning tensors instead of Python numbers",
            above(total=lambda x: x[x > x.mean()].sum(), count=lambda x: (x != 0).sum()),
            hint="A tensor with one entry is still a tensor. Which method gives the number in it?",
        ),
        Mistake(
            "taking the mean of nothing",
            lambda x: (x[x > x.mean()].sum().item(), int((x != 0).sum())),
            hint="The mean of no entries is nan, and no comparison with nan is true. Look at x.numel() first.",
        ),
    ),
)


# ----------------------------------------------------------------------------------------------------- broadcast_shape


def random_shapes(rng):
    """Random shapes that fit, made by setting sizes of one shape to 1 and dropping leading axes; and ones that do not."""

    def fitting(whole):
        shape = tuple(int(size) if rng.random() < 0.6 else 1 for size in whole)
        return shape[int(rng.integers(0, len(whole))) :]

    for part, count in (("values", 2), ("values", 2), ("any number of shapes", 3), ("any number of shapes", 4)):
        whole = tuple(int(size) for size in rng.integers(2, 9, size=4))
        shapes = [fitting(whole) for _ in range(count - 1)]
        yield Case(f"{count} random shapes", part, (*shapes, whole))
    n = int(rng.integers(3, 9))
    yield Case("a size of zero in the middle", "sizes of zero and one", ((n, 0, 1), (1, n)))
    yield Case("a single number and a matrix", "sizes of zero and one", ((), (n, 1)))
    yield Case("three shapes, one has a zero", "sizes of zero and one", ((1, n), (0, 1), (1,)))
    yield Case("sizes that differ by one", "errors", ((2, n), (2, n + 1)), raises=ValueError)
    yield Case("three shapes, the last does not fit", "errors", ((1,), (n,), (n + 2,)), raises=ValueError)
    yield Case("three shapes, the outer two do not fit", "errors", ((n,), (1,), (n + 2,)), raises=ValueError)
    yield Case("a zero against a size above one", "errors", ((n, 0), (n, n)), raises=ValueError)
    yield Case("equal sizes: allowed", "errors", ((n, 2), (n, 2)))
    yield Case("a one in between: allowed", "errors", ((n, 2), (1, 2), (2,)))


def merged(sizes):
    """The one size that all of them broadcast to."""
    others = set(sizes) - {1}
    if len(others) > 1:
        raise ValueError("sizes do not fit")
    return others.pop() if others else 1


def aligned(shapes, left=False):
    """The shapes, filled up with 1 to equal length."""
    longest = max(map(len, shapes), default=0)
    ones = [(1,) * (longest - len(shape)) for shape in shapes]
    return [shape + fill if left else fill + shape for shape, fill in zip(shapes, ones, strict=True)]


def by_columns(shapes, rule, left=False):
    return tuple(rule(sizes) for sizes in zip(*aligned(shapes, left), strict=True))


def larger_if_fitting(sizes):
    if len({size for size in sizes if size > 1}) > 1:
        raise ValueError("sizes do not fit")
    return max(sizes)


def compared_with_the_first(sizes):
    if any(1 not in (size, sizes[0]) and size != sizes[0] for size in sizes):
        raise ValueError("sizes do not fit")
    return next((size for size in sizes if size != 1), 1)


def compared_with_the_next(sizes):
    if any(1 not in pair and pair[0] != pair[1] for pair in itertools.pairwise(sizes)):
        raise ValueError("sizes do not fit")
    return next((size for size in sizes if size != 1), 1)


def without_leading_axes(*shapes):
    shortest = min(map(len, shapes), default=0)
    return by_columns([shape[len(shape) - shortest :] for shape in shapes], merged)


BROADCAST_SHAPE = Exercise(
    name="broadcast_shape",
    title="the rule of broadcasting",
    level="medium",
    minutes=15,
    parts=("values", "sizes of zero and one", "any number of shapes", "errors"),
    forbids=("torch.broadcast_*", "np.broadcast*"),
    cases=(
        Case("a column and a row", "values", ((4, 1), (3,)), expected=(4, 3)),
        Case("four axes and three", "values", ((5, 3, 4, 1), (3, 1, 1)), expected=(5, 3, 4, 1)),
        Case("ones on both sides", "values", ((8, 1, 6, 1), (7, 1, 5)), expected=(8, 7, 6, 5)),
        Case("a size of zero against one", "sizes of zero and one", ((0,), (1,)), expected=(0,)),
        Case("a single number and a row of two", "sizes of zero and one", ((), (2,)), expected=(2,)),
        Case("a zero under a longer shape", "sizes of zero and one", ((3, 1), (0,)), expected=(3, 0)),
        Case("no shape at all", "any number of shapes", (), expected=()),
        Case("one shape", "any number of shapes", ((2, 3),), expected=(2, 3)),
        Case("three shapes", "any number of shapes", ((3, 1), (1, 4), (2, 1, 1)), expected=(2, 3, 4)),
        Case("four weights against sixteen columns", "errors", ((4,), (1, 4, 16)), raises=ValueError),
        Case("two rows of three against two", "errors", ((2, 3), (2,)), raises=ValueError),
        Case("a size of zero against two", "errors", ((0,), (2,)), raises=ValueError),
        Case("three shapes, the last two do not fit", "errors", ((1,), (3,), (4,)), raises=ValueError),
        Case("three shapes, the outer two do not fit", "errors", ((3,), (1,), (4,)), raises=ValueError),
        Case("two rows of three against three", "errors", ((2, 3), (3,)), expected=(2, 3)),
    ),
    hidden=random_shapes,
    mistakes=(
        Mistake(
            "lining the shapes up at their first axes",
            lambda *shapes: by_columns(shapes, merged, left=True),
            hint="Shapes are compared from one end. Which one, if (4, 1) and (3,) give (4, 3)?",
        ),
        Mistake(
            "taking the larger of two sizes",
            lambda *shapes: by_columns(shapes, larger_if_fitting),
            hint="A size of 1 gives way to any other size. 0 is another size.",
        ),
        Mistake(
            "looking at two shapes only",
            lambda *shapes: by_columns(shapes[:2], merged) if len(shapes) > 1 else shapes[0],
            hint="The star in front of shapes collects as many as are given: none, one, two, three, …",
        ),
        Mistake(
            "stopping where the shorter shape ends",
            without_leading_axes,
            hint="zip stops with the shorter one. What happens to the leading axes of the longer shape?",
        ),
        Mistake(
            "never refusing sizes that differ",
            lambda *shapes: by_columns(shapes, lambda sizes: next((s for s in sizes if s != 1), 1)),
            hint="4 and 16 cannot be stretched to each other: only a size of 1 can be stretched.",
        ),
        Mistake(
            "comparing every shape with the first one",
            lambda *shapes: by_columns(shapes, compared_with_the_first),
            hint="With sizes 1, 3 and 4, each fits the first. Do all of them fit each other?",
        ),
        Mistake(
            "comparing every shape with the next one only",
            lambda *shapes: by_columns(shapes, compared_with_the_next),
            hint="With sizes 3, 1 and 4, each fits the next. Do all of them fit each other?",
        ),
        Mistake(
            "a result written from the last axis to the first",
            lambda *shapes: by_columns(shapes, merged)[::-1],
            hint="You compare from the right; the result is written from the left.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------- ordinal_rank_sum

WEIGHTS = tensor([0.6, 0.25, 0.10, 0.05])


def random_rows(rng):
    """Rows of random numbers in one to four dimensions; weights shorter than the axis; errors and their near misses."""
    for shape, m in (((5, 6), 3), ((3, 70), 2), ((7,), 7), ((3, 4, 5), 5), ((2, 3, 4, 6), 4)):
        x, w = tensor(rng.normal(size=shape)), tensor(rng.normal(size=m))
        part = "values" if len(shape) == 2 else "any leading axes"
        yield Case(f"random numbers in {len(shape)} dimensions, {m} weights", part, (x, w))
    square = tensor(rng.normal(size=(4, 4, 4)))
    yield Case("a cube whose axes all have the length of the weights", "any leading axes", (square, WEIGHTS.double()))
    few = tensor(rng.integers(0, 3, size=(3, 6))).double()
    yield Case("rows with equal values", "values", (few, tensor(rng.normal(size=4))))
    row = tensor(rng.normal(size=(2, 5)))
    yield Case("one weight more than values", "errors", (row, torch.ones(6).double()), raises=ValueError)
    yield Case("weights in two dimensions", "errors", (row, torch.ones(2, 2).double()), raises=ValueError)
    yield Case("a weight without an axis", "errors", (row, tensor(rng.normal())), raises=ValueError)
    yield Case("as many weights as values: allowed", "errors", (row, tensor(rng.normal(size=5))))
    yield Case("a single weight: allowed", "errors", (row, tensor(rng.normal(size=1))))


def weighing(rank, scale=lambda weights: weights):
    """A right answer, but for the rule that puts values in order, or for what is done to the weights first."""

    def ordinal_rank_sum(x, weights):
        if weights.dim() != 1 or len(weights) > x.shape[-1]:
            raise ValueError("weights do not fit")
        return (scale(weights) * rank(x, len(weights))).sum(-1)

    return ordinal_rank_sum


def ranked(x, m):
    return x.sort(dim=-1, descending=True).values[..., :m]


def equal_values_once(x, weights):
    if weights.dim() != 1 or len(weights) > x.shape[-1]:
        raise ValueError("weights do not fit")
    rows = [row.unique().flip(0)[: len(weights)] for row in x.reshape(-1, x.shape[-1])]
    return torch.stack([(weights[: len(row)] * row).sum() for row in rows]).reshape(x.shape[:-1])


def along_axis_1(x, weights):
    if weights.dim() != 1 or len(weights) > x.shape[-1]:
        raise ValueError("weights do not fit")
    return (weights * x.topk(len(weights), dim=1).values).sum(1)


ORDINAL_RANK_SUM = Exercise(
    name="ordinal_rank_sum",
    title="rank, then weigh",
    level="medium",
    minutes=10,
    parts=("values", "any leading axes", "errors", "inputs untouched"),
    cases=(
        Case("one row of four", "values", (tensor([[1.9, 0.4, 1.3, 0.8]]), WEIGHTS), expected=tensor([1.565])),
        Case(
            "a row of negative numbers",
            "values",
            (tensor([[-1.0, -4.0, -2.0, -3.0]]), WEIGHTS),
            expected=tensor([-1.6]),
        ),
        Case(
            "fewer weights than values, not summing to 1",
            "values",
            (tensor([[5.0, 1.0, 3.0, 2.0, 4.0]]), tensor([2.0, -0.5])),
            expected=tensor([8.0]),
        ),
        Case(
            "a row with equal values",
            "values",
            (tensor([[3.0, 1.0, 3.0, 2.0]]), tensor([1.0, 0.5, 0.25])),
            expected=tensor([5.0]),
        ),
        Case(
            "0 to 63 in mixed order",  # at this length, topk(sorted=False) shows
            "values",
            (ramp(1, 64) * 37 % 64, WEIGHTS),
            expected=tensor([62.4]),
        ),
        Case(
            "a last axis as long as the weights",
            "any leading axes",
            (ramp(1, 4, 4), WEIGHTS),
            expected=tensor([[2.4, 6.4, 10.4, 14.4]]),
        ),
        Case("a single row without a batch axis", "any leading axes", (ramp(4), WEIGHTS), expected=tensor(2.4)),
        Case(
            "five weights on four values",
            "errors",
            (ramp(1, 4), tensor([0.4, 0.3, 0.1, 0.1, 0.1])),
            raises=ValueError,
        ),
        Case("weights in two dimensions", "errors", (ramp(1, 4), tensor([[0.5, 0.5]])), raises=ValueError),
        Case("one weight of shape ()", "errors", (ramp(1, 4), tensor(0.5)), raises=ValueError),
        Case("as many weights as values", "errors", (tensor([[2.0, 3.0]]), tensor([1.0, 0.5])), expected=tensor([4.0])),
    ),
    hidden=random_rows,
    mistakes=(
        Mistake(
            "ranking along axis 1",
            along_axis_1,
            hint="dim=1 is the second axis. Which axis holds the values that compete with each other?",
        ),
        Mistake(
            "weighing the values in the order in which they stand",
            weighing(lambda x, m: x[..., :m]),
            hint="The first weight belongs to the largest value, wherever that stands.",
        ),
        Mistake(
            "ranking from the smallest up",
            weighing(lambda x, m: x.sort(dim=-1).values[..., :m]),
            hint="sort starts with the smallest value. Which end should meet weights[0]?",
        ),
        Mistake(
            "ranking by absolute value",
            weighing(lambda x, m: x.gather(-1, x.abs().topk(m, dim=-1).indices)),
            hint="-4 is smaller than -1, although it is farther from zero.",
        ),
        Mistake(
            "counting equal values once",
            equal_values_once,
            hint="3 stands in the row twice, so it has two ranks. What do set and unique leave of it?",
        ),
        Mistake(
            "normalizing the weights first",
            weighing(ranked, lambda weights: weights / weights.sum()),
            hint="The weights are used as they are given, whatever they add up to.",
        ),
        Mistake(
            "topk with sorted=False",
            weighing(lambda x, m: x.topk(m, dim=-1, sorted=False).values),
            hint="It finds the largest values, but promises nothing about their order. Do the weights care?",
        ),
        Mistake(
            "sorting the input in place",
            weighing(lambda x, m: x.copy_(x.sort(dim=-1, descending=True).values)[..., :m]),
            hint="The caller still needs x as it was.",
        ),
        Mistake(
            "ranking without looking at the weights' shape",
            lambda x, weights: (weights * x.topk(weights.numel(), dim=-1).values).sum(-1),
            hint="What do topk and broadcasting do with too many weights, and with weights of shape (1, 2)?",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------- OrdinalPool2d


def pool(about, part, x, expected=None, raises=None, **arguments):
    """A case for the layer: its input, and its arguments by name."""
    return Case(about, part, kwargs={"x": x, **arguments}, expected=expected, raises=raises)


def random_maps(rng):
    """Random feature maps; height, width, channels and batch all differ, or all agree."""
    x = tensor(rng.normal(size=(2, 3, 6, 8)))
    falling = tensor(sorted(rng.random(4), reverse=True))
    yield pool("random maps", "values", x, weights=falling, kernel_size=2)
    yield pool("random maps, weights of both signs", "values", x, weights=tensor(rng.normal(size=9)), kernel_size=3)
    cube = tensor(rng.normal(size=(4, 4, 4, 4)))
    yield pool("all axes of the same length", "values", cube, weights=falling, kernel_size=2)
    for kernel, stride in (((2, 3), None), ((3, 1), (1, 2)), (4, 3), (3, 2)):
        about = f"random maps, windows of {kernel}, stride {stride}"
        weights = tensor(rng.random(3))
        yield pool(about, "windows and strides", x, weights=weights, kernel_size=kernel, stride=stride)
    below = -1 - x.abs()
    for kernel, stride, padding in ((3, 1, 1), ((2, 5), (2, 3), (1, 2)), ((4, 1), 2, (2, 0))):
        about = f"negative maps, windows of {kernel}, stride {stride}, padding {padding}"
        yield pool(about, "padding", below, weights=falling, kernel_size=kernel, stride=stride, padding=padding)
    gaps = tensor([float(rng.uniform(0.1, 1)), 0.0, float(rng.uniform(0.1, 1)), 0.0]).double()
    yield pool("padding, and weights of zero", "padding", below, weights=gaps, kernel_size=(2, 3), padding=(0, 1))
    yield pool("random maps", "gradient and weights", x, weights=falling, kernel_size=2, _compare="gradient")
    yield pool(
        "random maps, overlapping windows with padding",
        "gradient and weights",
        x,
        weights=falling,
        kernel_size=3,
        stride=2,
        padding=1,
        _compare="gradient",
    )
    yield pool(
        "the weights belong to the layer", "gradient and weights", x, weights=falling, kernel_size=3, _compare="state"
    )
    yield pool("one weight too many", "errors", x, weights=tensor(rng.random(7)), kernel_size=(2, 3), raises=ValueError)
    yield pool(
        "padding above half of the width",
        "errors",
        x,
        weights=falling,
        kernel_size=(4, 2),
        padding=(1, 2),
        raises=ValueError,
    )
    for kernel in ((2, 3), (3, 2)):
        weights = tensor(rng.random(6))
        yield pool(f"as many weights as cells, windows of {kernel}", "errors", x, weights=weights, kernel_size=kernel)
    flat = {"weights": tensor(rng.random(4)), "kernel_size": (3, 1)}
    yield pool("one weight too many, windows of (3, 1)", "errors", x, **flat, raises=ValueError)
    signs = tensor([1.0, -rng.random()]).double()
    yield pool("padding and a negative weight", "errors", x, weights=signs, kernel_size=2, padding=1, raises=ValueError)
    for side, padding, kernel in (("above and below", (1, 0), (2, 4)), ("left and right", (0, 1), (4, 2))):
        given = {"kernel_size": kernel, "raises": ValueError}
        yield pool(f"padding {side}, and a negative weight", "errors", x, weights=signs, padding=padding, **given)
        wide = tuple(2 * p for p in padding)
        yield pool(f"padding above half of the window, {side}", "errors", x, weights=falling, padding=wide, **given)
    yield pool("a negative weight without padding: allowed", "errors", x, weights=signs, kernel_size=2)
    yield pool("padding that is half of the window: allowed", "errors", x, weights=falling, kernel_size=2, padding=1)


class Pooling(nn.Module):
    """A right answer in small steps: each mistake below gets one of them wrong."""

    def __init__(self, weights, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel = self.pair(kernel_size)
        self.stride = self.default_stride() if stride is None else self.pair(stride)
        self.padding = self.pair(padding)
        self.check(weights)
        self.keep(weights)

    def pair(self, size):
        return (size, size) if isinstance(size, int) else tuple(size)

    def default_stride(self):
        return self.kernel

    def check(self, weights):
        if len(weights) > self.kernel[0] * self.kernel[1]:
            raise ValueError("more weights than cells")
        if any(2 * p > k for p, k in zip(self.padding, self.kernel, strict=True)):
            raise ValueError("too much padding")
        if any(self.padding) and (weights.min() < 0 or weights[0] <= 0):
            raise ValueError("padding with such weights")

    def keep(self, weights):
        self.register_buffer("weights", weights)

    def fill(self):
        return -torch.inf

    def ring(self):
        ph, pw = self.padding
        return pw, pw, ph, ph

    def windows(self, x):
        """Windows (N, C, Ho, Wo, kh · kw) of the padded x, and which of their cells are real."""
        (kh, kw), (sh, sw) = self.kernel, self.stride
        cut = (F.pad(t, self.ring(), value=v).unfold(2, kh, sh).unfold(3, kw, sw) for t, v in self.padded(x))
        return tuple(cells.flatten(-2) for cells in cut)

    def padded(self, x):
        return (x, self.fill()), (torch.ones_like(x), 0.0)

    def rank(self, cells):
        return cells.topk(len(self.weights), dim=-1).values

    def scale(self, used):
        return self.weights.sum() / (self.weights * used).sum(-1) if any(self.padding) else 1.0

    def forward(self, x):
        cells, real = self.windows(x)
        used = torch.arange(len(self.weights)) < real.sum(-1, keepdim=True)
        ranked = torch.where(self.rank(cells) > -torch.inf, self.rank(cells), 0)
        return (self.weights * used * ranked).sum(-1) * self.scale(used)


class ZeroPadding(Pooling):
    def fill(self):
        return 0.0

    def forward(self, x):
        return (self.weights * self.rank(self.windows(x)[0])).sum(-1)


class NoRescaling(Pooling):
    def scale(self, used):
        return 1.0


class ScaledToOne(Pooling):
    def scale(self, used):
        return 1 / (self.weights * used).sum(-1) if any(self.padding) else 1.0


class HeightPaddedFirst(Pooling):
    def ring(self):
        ph, pw = self.padding
        return ph, ph, pw, pw


class StrideOne(Pooling):
    def default_stride(self):
        return (1, 1)


class WidthFirst(Pooling):
    def pair(self, size):
        return super().pair(size)[::-1]


class Ceiling(Pooling):
    def padded(self, x):
        """Fills up to the right and below until the last window is whole."""
        sizes = [n + 2 * p for n, p in zip(x.shape[2:], self.padding, strict=True)]
        down, right = (-(n - k) % s for n, k, s in zip(sizes, self.kernel, self.stride, strict=True))
        return tuple((F.pad(t, (0, right, 0, down), value=v), v) for t, v in super().padded(x))

    def scale(self, used):
        return self.weights.sum() / (self.weights * used).sum(-1)


class Ascending(Pooling):
    def rank(self, cells):
        return cells.sort(dim=-1).values[..., : len(self.weights)]


class InReadingOrder(Pooling):
    def rank(self, cells):
        return cells[..., : len(self.weights)]


class AcrossChannels(Pooling):
    def forward(self, x):
        cells, _ = self.windows(x)
        return (self.weights.view(-1, 1, 1, 1) * cells.topk(len(self.weights), dim=1).values).sum(1).movedim(-1, 1)


class MixedChannels(Pooling):
    def windows(self, x):
        """F.unfold lists channel by channel: (N, C · kh · kw, L). Read here as if it went cell by cell."""
        return tuple(
            cells.permute(0, 1, 4, 2, 3)
            .reshape(len(x), cells.shape[-1], x.shape[1], *cells.shape[2:4])
            .permute(0, 2, 3, 4, 1)
            for cells in super().windows(x)
        )


class Detached(Pooling):
    def forward(self, x):
        return super().forward(x.detach())


class PlainWeights(Pooling):
    def keep(self, weights):
        self.weights = weights


class LearnedWeights(Pooling):
    def keep(self, weights):
        self.weights = nn.Parameter(weights.clone())

    def forward(self, x):
        return super().forward(x).clone()


class NoZeroWeights(Pooling):
    def check(self, weights):
        super().check(weights)
        if any(self.padding) and weights.min() <= 0:
            raise ValueError("padding with such weights")


class FirstPaddingChecked(Pooling):
    def check(self, weights):
        whole, self.padding = self.padding, (self.padding[0], 0)
        super().check(weights)
        self.padding = whole


class Unchecked(Pooling):
    def check(self, weights):
        pass


ROOM = ramp(1, 1, 4, 4) + 1
FALLING = -(ramp(1, 1, 3, 3) + 1)
FOUR_MAPS = (ramp(1, 4, 2, 2) * 5) % 16  # four channels, as many as weights and cells

ORDINAL_POOL_2D = Exercise(
    name="OrdinalPool2d",
    title="a pooling layer that ranks",
    level="hard",
    minutes=30,
    parts=("values", "windows and strides", "padding", "gradient and weights", "errors"),
    forbids=(
        *(
            "F.max_pool*",
            "F.avg_pool*",
            "torch.max_pool*",
            "torch.avg_pool*",
            "F.adaptive_*",
            "torch.adaptive_*",
            "F.lp_pool*",
        ),
        *(
            "nn.MaxPool*",
            "nn.AvgPool*",
            "nn.AdaptiveMaxPool*",
            "nn.AdaptiveAvgPool*",
            "nn.LPPool*",
            "nn.FractionalMaxPool*",
        ),
    ),
    probe="basics.pooling",
    cases=(
        pool(
            "1 to 16 on one map", "values", ROOM, tensor([[[[5.1, 7.1], [13.1, 15.1]]]]), weights=WEIGHTS, kernel_size=2
        ),
        pool(
            "four channels of one window each",
            "values",
            FOUR_MAPS,
            tensor([12.0, 11.2, 10.6, 10.6]).view(1, 4, 1, 1),
            weights=WEIGHTS,
            kernel_size=2,
        ),
        pool(
            "two images of two channels, the maximum",
            "values",
            ramp(2, 2, 2, 2),
            tensor([3.0, 7.0, 11.0, 15.0]).view(2, 2, 1, 1),
            weights=tensor([1.0]),
            kernel_size=2,
        ),
        pool(
            "the minimum",
            "values",
            ROOM,
            tensor([[[[1.0, 3.0], [9.0, 11.0]]]]),
            weights=tensor([0.0, 0.0, 0.0, 1.0]),
            kernel_size=2,
        ),
        pool(
            "windows two high and three wide",
            "windows and strides",
            ramp(1, 1, 4, 6),
            tensor([[[[7.5, 10.5], [19.5, 22.5]]]]),
            weights=tensor([0.5, 0.5]),
            kernel_size=(2, 3),
        ),
        pool(
            "five rows and columns: the last ones are left over",
            "windows and strides",
            ramp(1, 1, 5, 5),
            tensor([[[[6.0, 8.0], [16.0, 18.0]]]]),
            weights=tensor([1.0]),
            kernel_size=2,
        ),
        pool(
            "a stride of its own for each axis",
            "windows and strides",
            ramp(1, 1, 3, 4),
            tensor([[[[5.0, 7.0], [9.0, 11.0]]]]),
            weights=tensor([1.0]),
            kernel_size=2,
            stride=(1, 2),
        ),
        pool(
            "-1 to -9 with one ring of padding",
            "padding",
            FALLING,
            tensor([[[[-1.0, -39 / 17], [-83 / 17, -5.75]]]]),
            weights=WEIGHTS,
            kernel_size=2,
            padding=1,
        ),
        pool(
            "-1 to -9 with one ring of padding, weights that add up to 3",
            "padding",
            FALLING,
            tensor([[[[-3.0, -7.0], [-15.0, -16.0]]]]),
            weights=tensor([2.0, 1.0]),
            kernel_size=2,
            padding=1,
        ),
        pool(
            "padding above and below only",
            "padding",
            FALLING,
            tensor([[[[-1.0, -2.0, -3.0], [-5.5, -6.5, -7.5]]]]),
            weights=tensor([0.5, 0.5]),
            kernel_size=(2, 1),
            padding=(1, 0),
        ),
        pool(
            "the maximum as weights 1, 0, 0, 0, one ring of padding",
            "padding",
            FALLING,
            tensor([[[[-1.0, -2.0], [-4.0, -5.0]]]]),
            weights=tensor([1.0, 0.0, 0.0, 0.0]),
            kernel_size=2,
            padding=1,
        ),
        pool(
            "where the gradient goes",
            "gradient and weights",
            ROOM,
            tensor([[0.05, 0.1, 0.05, 0.1], [0.25, 0.6, 0.25, 0.6]]).repeat(2, 1).view(1, 1, 4, 4),
            weights=WEIGHTS,
            kernel_size=2,
            _compare="gradient",
        ),
        pool(
            "what the layer keeps",
            "gradient and weights",
            ROOM,
            {"state_dict() should hold weights": True, "number of parameters": 0},
            weights=WEIGHTS,
            kernel_size=2,
            _compare="state",
        ),
        pool("five weights on four cells", "errors", ROOM, weights=torch.ones(5), kernel_size=2, raises=ValueError),
        pool(
            "six weights on windows two high and three wide",
            "errors",
            ramp(1, 1, 2, 3),
            tensor([[[[2.5]]]]),
            weights=tensor([0.5, 0.0, 0.0, 0.0, 0.0, 0.5]),
            kernel_size=(2, 3),
        ),
        pool(
            "padding 2 around windows of 3",
            "errors",
            ROOM,
            weights=WEIGHTS,
            kernel_size=3,
            padding=2,
            raises=ValueError,
        ),
        pool(
            "padding and a negative weight",
            "errors",
            ROOM,
            weights=tensor([1.0, -0.5]),
            kernel_size=2,
            padding=1,
            raises=ValueError,
        ),
        pool(
            "padding and a first weight of zero",
            "errors",
            ROOM,
            weights=tensor([0.0, 1.0]),
            kernel_size=2,
            padding=1,
            raises=ValueError,
        ),
        pool(
            "padding 2 to the left and right of windows of 3",
            "errors",
            ROOM,
            weights=WEIGHTS,
            kernel_size=3,
            padding=(0, 2),
            raises=ValueError,
        ),
        pool(
            "padding to the left and right, and a negative weight",
            "errors",
            ROOM,
            weights=tensor([1.0, -0.5]),
            kernel_size=2,
            padding=(0, 1),
            raises=ValueError,
        ),
        pool(
            "a negative weight without padding",
            "errors",
            ROOM,
            tensor([[[[3.5, 4.5], [7.5, 8.5]]]]),
            weights=tensor([1.0, -0.5]),
            kernel_size=2,
        ),
    ),
    hidden=random_maps,
    mistakes=(
        Mistake(
            "padding with zeros that take part",
            ZeroPadding,
            hint="Among negative numbers a zero is the largest. Which number is smaller than every real one?",
        ),
        Mistake(
            "padding without rescaling the weights",
            NoRescaling,
            hint="A window in the corner has one real cell and uses weights[0] alone. What should its weights add up to?",
        ),
        Mistake(
            "scaling the weights to 1 instead of to their old sum",
            ScaledToOne,
            hint="Weights of 2 and 1 add up to 3. What should the weights of a corner window add up to?",
        ),
        Mistake(
            "handing F.pad the height before the width",
            HeightPaddedFirst,
            hint="F.pad counts axes from the last one: its first two numbers are left and right.",
        ),
        Mistake(
            "a stride of 1 where none is given",
            StrideOne,
            hint="Without a stride the windows stand side by side, without overlap.",
        ),
        Mistake(
            "taking pairs as width first",
            WidthFirst,
            hint="In a pair, and in the shape (N, C, H, W), the height comes first.",
        ),
        Mistake(
            "windows that reach over the edge",
            Ceiling,
            hint="A window that does not fit is left out: the number of windows is rounded down.",
        ),
        Mistake(
            "ranking from the smallest up",
            Ascending,
            hint="The first weight belongs to the largest value of the window.",
        ),
        Mistake(
            "weighing the cells in reading order",
            InReadingOrder,
            hint="That is a convolution. Pooling by rank has to put the values of each window in order first.",
        ),
        Mistake(
            "ranking across the channels",
            AcrossChannels,
            hint="Which cells compete: those of one window, or those at one place in all channels?",
        ),
        Mistake(
            "reading F.unfold as if channels came last",
            MixedChannels,
            hint="F.unfold gives (N, C · kh · kw, L), one channel after the other. In which order do the axes have to be split?",
        ),
        Mistake(
            "cutting the result off from its input",
            Detached,
            hint="detach, .data, .item() and numpy all end the gradient's way back. Compute with x itself.",
        ),
        Mistake(
            "keeping the weights as a plain attribute",
            PlainWeights,
            hint="model.to(device) and state_dict know parameters and buffers, and nothing else.",
        ),
        Mistake(
            "making the weights trainable",
            LearnedWeights,
            hint="A Parameter is changed by the optimizer. What does a module keep fixed tensors in?",
        ),
        Mistake(
            "refusing weights of zero where there is padding",
            NoZeroWeights,
            hint="Zero is not negative. Which weights make the maximum, and are all of them positive?",
        ),
        Mistake(
            "looking at the padding's height only",
            FirstPaddingChecked,
            hint="Padding is a pair. Which of its two numbers can break the rules under Raises?",
        ),
        Mistake(
            "taking any weights and any padding",
            Unchecked,
            hint="Three rules stand under Raises. When should they be looked at: in __init__ or in forward?",
        ),
    ),
)


# ----------------------------------------------------------------------------------------------------- binary_accuracy


def random_scores(rng):
    """Random probabilities and logits, with labels that agree with most of them."""
    for n in (9, 14):
        scores = tensor(rng.random(n))
        labels = tensor((rng.random(n) < 0.7).astype(int))
        yield Case(f"{n} random probabilities", "values", (scores, labels))
        yield Case(f"{n} random probabilities, threshold 0.8", "values", (scores, labels, 0.8))
        logits = tensor(rng.normal(size=n) * 0.7)
        yield Case(f"{n} random logits", "logits", (logits, labels), {"from_logits": True})
        yield Case(
            f"{n} random logits, threshold 0.6", "logits", (logits, labels), {"threshold": 0.6, "from_logits": True}
        )
        yield Case("a column of scores, a row of labels", "columns and rows", (scores.view(n, 1), labels.float()))
        yield Case("a row of scores, a column of labels", "columns and rows", (scores, labels.view(n, 1)))
        small = tensor(rng.random(n))
        yield Case(f"{n} random logits from 0 to 1", "logits", (small, labels), {"from_logits": True, "threshold": 0.6})
    yield Case("one label too many", "errors", (scores, tensor([1] * 15)), raises=ValueError)
    yield Case("a single label for many scores", "errors", (scores, tensor([1])), raises=ValueError)
    yield Case("one score and one label: allowed", "errors", (scores[:1], labels[:1]))
    yield Case("one score as a column: allowed", "errors", (scores[:1].view(1, 1), labels[:1]))


def share(yes=lambda p, threshold: p > threshold, probability=None, result=lambda right: right.float().mean().item()):
    """A right answer, but for the given rules."""

    def binary_accuracy(scores, labels, threshold=0.5, from_logits=False):
        if scores.numel() != labels.numel() or scores.numel() == 0:
            raise ValueError("numbers differ")
        p = scores.sigmoid() if from_logits else scores
        p = p if probability is None else probability(scores, from_logits)
        return result(yes(p.flatten(), threshold).int() == labels.flatten())

    return binary_accuracy


def broadcast_accuracy(scores, labels, threshold=0.5, from_logits=False):
    if len(scores) != len(labels) or len(scores) == 0:
        raise ValueError("numbers differ")
    p = scores.sigmoid() if from_logits else scores
    return ((p > threshold).int() == labels).float().mean().item()


def unchecked_accuracy(scores, labels, threshold=0.5, from_logits=False):
    p = scores.flatten().sigmoid() if from_logits else scores.flatten()
    return ((p > threshold).int() == labels.flatten()).float().mean().item()


BINARY_ACCURACY = Exercise(
    name="binary_accuracy",
    title="from scores to labels",
    level="medium",
    minutes=10,
    parts=("values", "logits", "columns and rows", "errors", "inputs untouched"),
    tolerance=1e-6,
    cases=(
        Case(
            "a score exactly at the threshold",
            "values",
            (tensor([0.5, 0.7, 0.2, 0.9, 0.500001]), tensor([0, 1, 0, 1, 1])),
            expected=1.0,
        ),
        Case("a threshold of 0.7", "values", (tensor([0.6, 0.71, 0.65]), tensor([0, 1, 0]), 0.7), expected=1.0),
        Case(
            "one of four wrong", "values", (tensor([0.1, 0.9, 0.8, 0.3]), tensor([0.0, 1.0, 0.0, 0.0])), expected=0.75
        ),
        Case(
            "logits between 0 and 0.5",
            "logits",
            (tensor([0.3, -0.2, 0.8, 0.49]), tensor([1, 0, 1, 1])),
            {"from_logits": True},
            expected=1.0,
        ),
        Case(
            "logits that could be probabilities",
            "logits",
            (tensor([0.3, 0.8, 0.1]), tensor([1, 1, 1])),
            {"from_logits": True},
            expected=1.0,
        ),
        Case(
            "logits and a threshold of 0.7",
            "logits",
            (tensor([0.8, 0.9, -1.0, 3.0]), tensor([0, 1, 0, 1])),
            {"threshold": 0.7, "from_logits": True},
            expected=1.0,
        ),
        Case(
            "a column of scores, a row of labels",
            "columns and rows",
            (tensor([[0.5], [0.7], [0.2], [0.9], [0.500001]]), tensor([0, 1, 0, 1, 1])),
            expected=1.0,
        ),
        Case(
            "a row of scores, a column of labels",
            "columns and rows",
            (tensor([0.9, 0.1, 0.8]), tensor([[1], [1], [1]])),
            expected=2 / 3,
        ),
        Case("three scores and two labels", "errors", (tensor([0.1, 0.2, 0.9]), tensor([0, 1])), raises=ValueError),
        Case("three scores and one label", "errors", (tensor([0.1, 0.2, 0.9]), tensor([0])), raises=ValueError),
        Case("no scores", "errors", (torch.zeros(0), torch.zeros(0)), raises=ValueError),
        Case("one score and one label", "errors", (tensor([0.4]), tensor([[0.0]])), expected=1.0),
    ),
    hidden=random_scores,
    mistakes=(
        Mistake(
            "counting a score at the threshold as 1",
            share(yes=lambda p, threshold: p >= threshold),
            hint="Strictly above, says the docstring. On which side is 0.5 itself?",
        ),
        Mistake(
            "comparing a column with a row",
            broadcast_accuracy,
            hint="(5, 1) and (5,) broadcast to a table of 5 by 5. Print the shape of the comparison.",
        ),
        Mistake(
            "comparing logits with a threshold for probabilities",
            share(probability=lambda scores, from_logits: scores),
            hint="A logit of 0.3 is a probability of 0.574. What turns the one into the other?",
        ),
        Mistake(
            "rounding instead of comparing with the threshold",
            share(yes=lambda p, threshold: p.round()),
            hint="round knows one threshold only, and the caller may ask for another.",
        ),
        Mistake(
            "comparing logits with zero, whatever the threshold",
            share(
                yes=lambda p, threshold: p > threshold,
                probability=lambda s, from_logits: (s > 0).float() if from_logits else s,
            ),
            hint="Zero is where the sigmoid passes 0.5. Where does it pass 0.7?",
        ),
        Mistake(
            "guessing from the scores whether they are logits",
            share(probability=lambda s, from_logits: s.sigmoid() if s.min() < 0 or s.max() > 1 else s),
            hint="Logits may lie between 0 and 1, too. Which argument says what the scores are?",
        ),
        Mistake(
            "a sigmoid on top of probabilities",
            share(probability=lambda scores, from_logits: scores.sigmoid()),
            hint="The sigmoid of anything positive is above 0.5. When is it needed?",
        ),
        Mistake(
            "counting the right answers without dividing",
            share(result=lambda right: float(right.sum())),
            hint="An accuracy is a share: five right out of five is 1.0.",
        ),
        Mistake(
            "a percentage instead of a share",
            share(result=lambda right: 100 * right.float().mean().item()),
            hint="The docstring says from 0.0 to 1.0.",
        ),
        Mistake(
            "returning a tensor",
            share(result=lambda right: right.float().mean()),
            hint="The result is a Python float. Which method takes the number out of a tensor?",
        ),
        Mistake(
            "taking different numbers of scores and labels",
            unchecked_accuracy,
            hint="Broadcasting compares three scores with one label without a word, and the mean of nothing is nan.",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------------- to_nchw


def random_images(rng):
    """Random bytes; in every batch but the dark one some pixel is 255."""

    def images(*shape):
        made = rng.integers(0, 256, size=shape).astype("uint8")
        made.flat[int(rng.integers(made.size))] = 255
        return made

    yield Case("random images", "values", (torch.from_numpy(images(2, 4, 5, 3)),))
    yield Case("random images with one channel", "values", (torch.from_numpy(images(3, 2, 4, 1)),))
    yield Case("random images, a numpy array", "numpy and torch", (images(2, 5, 3, 3),))
    yield Case("dark images, a numpy array", "numpy and torch", (images(2, 3, 4, 2) // 2,))
    yield Case(
        "random images, laid out as one row", "contiguous memory", (images(2, 3, 5, 2),), {"_compare": "view(-1)"}
    )
    yield Case(
        "a torch batch, laid out as one row",
        "contiguous memory",
        (torch.from_numpy(images(3, 4, 2, 3)),),
        {"_compare": "view(-1)"},
    )
    batch = images(2, 2, 3, 3)
    yield Case("images of float64", "errors", (torch.from_numpy(batch / 255),), raises=ValueError)
    yield Case("one image without a batch axis", "errors", (torch.from_numpy(batch[0]),), raises=ValueError)
    yield Case("five axes", "errors", (torch.from_numpy(batch[:, None]),), raises=ValueError)
    yield Case("images of int64, a numpy array", "errors", (batch.astype("int64"),), raises=ValueError)
    for kind in ("int8", "int16", "bool"):
        yield Case(f"images of {kind}, a numpy array", "errors", ((batch // 2).astype(kind),), raises=ValueError)
    yield Case("a batch of one image: allowed", "errors", (torch.from_numpy(images(1, 3, 2, 4)),))
    yield Case("a batch of one image of one pixel: allowed", "errors", (torch.from_numpy(images(1, 1, 1, 3)),))


def converting(layout=lambda batch: batch.permute(0, 3, 1, 2).contiguous(), scale=lambda batch: batch.float() / 255):
    """A right answer, but for the given rules."""

    def to_nchw(images):
        batch = torch.as_tensor(images)
        if batch.dtype != torch.uint8 or batch.dim() != 4:
            raise ValueError("not uint8 of four axes")
        return scale(layout(batch))

    return to_nchw


def numpy_division(images):
    if str(images.dtype).removeprefix("torch.") != "uint8" or len(images.shape) != 4:
        raise ValueError("not uint8 of four axes")
    return torch.from_numpy(torch.as_tensor(images).numpy().transpose(0, 3, 1, 2) / 255.0).contiguous()


def torch_only(images):
    if images.dtype != torch.uint8 or images.dim() != 4:
        raise ValueError("not uint8 of four axes")
    return images.permute(0, 3, 1, 2).contiguous() / 255


def unchecked_images(images):
    return torch.as_tensor(images).permute(0, 3, 1, 2).contiguous().float() / 255


BYTES = torch.arange(36, dtype=torch.uint8).reshape(2, 2, 3, 3)
BYTES[1, 1, 2, 2] = 255  # the last one
TALL = tensor([[[[0], [51]], [[102], [153]], [[204], [255]]]], dtype=torch.uint8)  # (1, 3, 2, 1)
PAIR = tensor([[[[10, 20], [30, 255]]], [[[40, 50], [60, 100]]]], dtype=torch.uint8)  # (2, 1, 2, 2)

TO_NCHW = Exercise(
    name="to_nchw",
    title="pictures for a network",
    level="medium",
    minutes=10,
    parts=("values", "numpy and torch", "contiguous memory", "errors"),
    probe="basics.nchw",
    cases=(
        Case(
            "0 to 34 and 255, in two images of 2 by 3 by 3",
            "values",
            (BYTES,),
            expected=tensor(
                [
                    [
                        [[0, 3, 6], [9, 12, 15]],
                        [[1, 4, 7], [10, 13, 16]],
                        [[2, 5, 8], [11, 14, 17]],
                    ],
                    [
                        [[18, 21, 24], [27, 30, 33]],
                        [[19, 22, 25], [28, 31, 34]],
                        [[20, 23, 26], [29, 32, 255]],
                    ],
                ]
            )
            / 255,
        ),
        Case(
            "one channel, three rows of two",
            "values",
            (TALL,),
            expected=tensor([[[[0.0, 0.2], [0.4, 0.6], [0.8, 1.0]]]]),
        ),
        Case(
            "a numpy array",
            "numpy and torch",
            (PAIR.numpy(),),
            expected=tensor([[[[10, 30]], [[20, 255]]], [[[40, 60]], [[50, 100]]]]) / 255,
        ),
        Case(
            "dark images, a numpy array",
            "numpy and torch",
            ((PAIR // 5).numpy(),),
            expected=tensor([[[[2, 6]], [[4, 51]]], [[[8, 12]], [[10, 20]]]]) / 255,
        ),
        Case(
            "laid out as one row",
            "contiguous memory",
            (PAIR,),
            {"_compare": "view(-1)"},
            expected=tensor([10, 30, 20, 255, 40, 60, 50, 100]) / 255,
        ),
        Case("images of float32", "errors", (BYTES / 255,), raises=ValueError),
        Case("one image without a batch axis", "errors", (BYTES[0],), raises=ValueError),
        Case("five axes", "errors", (BYTES[None],), raises=ValueError),
        Case("a numpy array of int64", "errors", (PAIR.long().numpy(),), raises=ValueError),
        Case(
            "one image of one pixel",
            "errors",
            (tensor([[[[51, 255, 102]]]], dtype=torch.uint8),),
            expected=tensor([0.2, 1.0, 0.4]).view(1, 3, 1, 1),
        ),
    ),
    hidden=random_images,
    mistakes=(
        Mistake(
            "reshaping where axes have to be moved",
            converting(layout=lambda b: b.reshape(b.shape[0], b.shape[3], b.shape[1], b.shape[2])),
            hint="reshape keeps the order in memory and cuts it into other rows. Which method moves axes?",
        ),
        Mistake(
            "moving width before height",
            converting(layout=lambda b: b.permute(0, 3, 2, 1).contiguous()),
            hint="The result is (N, C, H, W). Which axis of the input is H?",
        ),
        Mistake(
            "dividing bytes as integers",
            converting(scale=lambda b: (b // 255).float()),
            hint="// rounds down: everything below 255 becomes 0. Which division gives fractions?",
        ),
        Mistake(
            "leaving values from 0 to 255",
            converting(scale=lambda b: b.float()),
            hint="A white pixel is 255 in the input and 1 in the result.",
        ),
        Mistake(
            "dividing by 256",
            converting(scale=lambda b: b.float() / 256),
            hint="Which byte is the largest, and what should become of it?",
        ),
        Mistake(
            "dividing by the brightest pixel of the batch",
            converting(scale=lambda b: b.float() / b.max()),
            hint="Then a dark picture comes out as bright as any other. The scale is the same for all pictures.",
        ),
        Mistake(
            "float64, which is what numpy's division gives",
            numpy_division,
            hint="Networks compute in float32. What is the dtype after numpy divides?",
        ),
        Mistake(
            "moved axes over memory in the old order",
            converting(layout=lambda b: b.permute(0, 3, 1, 2)),
            hint="permute changes the strides, not the memory, and later steps keep that. Which method lays it out afresh?",
        ),
        Mistake(
            "expecting torch tensors only",
            torch_only,
            hint="A numpy array's dtype is not a torch dtype, and it has no permute. Make a tensor of it first.",
        ),
        Mistake(
            "taking any dtype",
            unchecked_images,
            hint="Pictures of float32 are in [0, 1] already; dividing again makes them black. Look at dtype and dim first.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------------- pick


def random_picks(rng):
    """Random scores, more rows than columns, fewer, and as many."""
    for n, c in ((5, 3), (3, 6), (4, 4), (1, 5)):
        scores, index = tensor(rng.normal(size=(n, c))), tensor(rng.integers(0, c, size=n))
        yield Case(f"{n} random rows of {c}", "values", (scores, index))
        yield Case(f"{n} random rows of {c}", "gradient", (scores, index), {"_compare": "gradient"})
    scores = tensor(rng.normal(size=(4, 3)))
    index = tensor(rng.integers(0, 3, size=4))
    yield Case("one index too few", "errors", (scores, index[:3]), raises=ValueError)
    yield Case("one index for all rows", "errors", (scores, index[:1]), raises=ValueError)
    yield Case("indices in a column", "errors", (scores, index.view(4, 1)), raises=ValueError)
    yield Case("as many indices as rows: allowed", "errors", (scores, index))
    yield Case("one row, one index: allowed", "errors", (scores[:1], index[:1]))


def picking(rule):
    """The rule, with the check that it needs."""

    def pick(scores, index):
        if index.shape != scores.shape[:1]:
            raise ValueError("numbers differ")
        return rule(scores, index)

    return pick


SQUARE = ramp(3, 3)

PICK = Exercise(
    name="pick",
    title="one score of each row",
    level="medium",
    minutes=8,
    parts=("values", "gradient", "errors", "inputs untouched"),
    probe="basics.picked",
    cases=(
        Case("as many rows as columns", "values", (SQUARE, tensor([2, 0, 1])), expected=tensor([2.0, 3.0, 7.0])),
        Case("two rows of four", "values", (ramp(2, 4), tensor([3, 1])), expected=tensor([3.0, 5.0])),
        Case("one row", "values", (ramp(1, 3), tensor([1])), expected=tensor([1.0])),
        Case("float64", "values", (ramp(2, 3).double() / 4, tensor([1, 2])), expected=tensor([0.25, 1.25]).double()),
        Case(
            "the gradient of 1·first + 2·second",
            "gradient",
            (ramp(2, 3), tensor([2, 0])),
            {"_compare": "gradient"},
            expected=tensor([[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]),
        ),
        Case("two indices for three rows", "errors", (SQUARE, tensor([0, 1])), raises=ValueError),
        Case("one index for three rows", "errors", (SQUARE, tensor([2])), raises=ValueError),
        Case("indices in a column", "errors", (SQUARE, tensor([[2], [0], [1]])), raises=ValueError),
        Case("one row, one column, one index", "errors", (tensor([[4.0]]), tensor([0])), expected=tensor([4.0])),
    ),
    hidden=random_picks,
    mistakes=(
        Mistake(
            "taking whole columns",
            picking(lambda scores, index: scores[:, index]),
            hint="scores[:, index] takes those columns of every row: one score for each pair. How are pairs named?",
        ),
        Mistake(
            "taking whole rows",
            picking(lambda scores, index: scores[index]),
            hint="scores[index] uses the index for the first axis. Which axis is it meant for?",
        ),
        Mistake(
            "gathering along axis 0",
            picking(lambda scores, index: scores.gather(0, index.unsqueeze(0)).squeeze(0)),
            hint="gather's dim is the axis that the index counts along. Along which axis do the columns lie?",
        ),
        Mistake(
            "indexing the flattened scores",
            picking(lambda scores, index: scores.take(index)),
            hint="take counts through all scores from the first row on, so it never leaves that row here.",
        ),
        Mistake(
            "leaving a column behind gather",
            picking(lambda scores, index: scores.gather(1, index.unsqueeze(1))),
            hint="gather gives the shape of its index: (N, 1). Which axis has to go?",
        ),
        Mistake(
            "squeezing every axis of length 1",
            picking(lambda scores, index: scores.gather(1, index.unsqueeze(1)).squeeze()),
            hint="squeeze without a number takes all axes of length 1. What is left when there is one row?",
        ),
        Mistake(
            "the largest score of each row",
            picking(lambda scores, index: scores.max(dim=1).values),
            hint="The index says which score is meant, largest or not.",
        ),
        Mistake(
            "a new tensor of copied numbers",
            picking(
                lambda scores, index: torch.tensor(
                    [row[i] for row, i in zip(scores.tolist(), index.tolist(), strict=True)]
                ).to(scores)
            ),
            hint="torch.tensor, tolist and item leave the graph: no gradient comes back to scores.",
        ),
        Mistake(
            "not comparing the shapes",
            lambda scores, index: scores.gather(1, index.view(-1, 1)).squeeze(1),
            hint="Fewer indices than rows give fewer scores, without a word. Which shape should index have?",
        ),
        Mistake(
            "letting the index broadcast over the rows",
            lambda scores, index: scores[torch.arange(len(scores)), index],
            hint="One index for three rows is stretched to all of them, without a word. Which shape should index have?",
        ),
    ),
)


# --------------------------------------------------------------------------------------------------------- standardize


def random_tables(rng):
    """Random tables, one of them square; a constant column; wrong numbers of columns."""
    for n, m, d in ((6, 4, 3), (4, 5, 4)):
        train, other = tensor(rng.normal(size=(n, d)) * 3 + 2), tensor(rng.normal(size=(m, d)))
        yield Case(f"random tables, {n} and {m} rows of {d}", "values", (train, other))
        steady = train.clone()
        steady[:, 1] = float(rng.integers(2, 9))
        yield Case(f"a constant column among {d}", "constant columns", (steady, other))
    yield Case("a single training row", "constant columns", (train[:1], other))
    ends = torch.cat([train, train[:1]])
    yield Case("columns that end as they start", "constant columns", (ends, other))
    near = 1e5 + tensor(rng.random((5, 1)))  # float32 would see the differences, too
    yield Case("values that differ by a hundred-thousandth", "constant columns", (near, near[:2]), tolerance=1e-3)
    n, value = int(rng.integers(7, 11)), float(rng.choice([0.1, 0.7]))
    for dtype in (torch.float32, torch.float64):
        same = torch.full((n, 1), value, dtype=dtype)
        yield Case(f"{n} rows of {value}, {dtype}", "constant columns", (same, other[:, :1].to(dtype)))
    yield Case("one column too few", "errors", (train, other[:, 1:]), raises=ValueError)
    yield Case("one column against many", "errors", (train, other[:, :1]), raises=ValueError)
    yield Case("many columns against one", "errors", (train[:, :1], other), raises=ValueError)
    yield Case("a single other row: allowed", "errors", (train, other[:1]))
    yield Case("a single column: allowed", "errors", (train[:, :1], other[:, :1]))


def deviation(x, axis=0, correction=0):
    """Standard deviation, 1 where all values are equal."""
    return torch.where(x.amax(axis) == x.amin(axis), 1.0, x.std(axis, correction=correction))


def scaling(mean=lambda t, o: t.mean(0), divisor=lambda t, o: deviation(t)):
    """A right answer, but for the given rules of train and other."""

    def standardize(train, other):
        if train.shape[1] != other.shape[1]:
            raise ValueError("columns differ")
        shift, scale = mean(train, other), divisor(train, other)
        return (train - shift) / scale, (other - shift) / scale

    return standardize


def unless_zero(t, o):
    """The deviation, 1 where it is exactly 0: rounding leaves some constant columns a deviation above 0."""
    spread = t.std(0, correction=0)
    return torch.where(spread == 0, 1.0, spread)


def own_statistics(train, other):
    if train.shape[1] != other.shape[1]:
        raise ValueError("columns differ")
    return tuple((x - x.mean(0)) / deviation(x) for x in (train, other))


def standardize_in_place(train, other):
    if train.shape[1] != other.shape[1]:
        raise ValueError("columns differ")
    shift, scale = train.mean(0), deviation(train)
    return train.sub_(shift).div_(scale), other.sub_(shift).div_(scale)


def unchecked_columns(train, other):
    shift, scale = train.mean(0), deviation(train)
    return (train - shift) / scale, (other - shift) / scale


def by_rows(train, other):
    if train.shape[1] != other.shape[1]:
        raise ValueError("columns differ")
    shift, scale = train.mean(1), deviation(train, 1)
    return (train - shift) / scale, (other - shift) / scale


TRAIN = tensor([[1.0, 10.0, 5.0], [2.0, 20.0, 5.0], [3.0, 60.0, 5.0]])

STANDARDIZE = Exercise(
    name="standardize",
    title="columns on one scale",
    level="medium",
    minutes=12,
    parts=("values", "constant columns", "errors", "inputs untouched"),
    cases=(
        Case(
            "means 2 and 20, deviations 1 and 10",
            "values",
            (tensor([[1.0, 10.0], [3.0, 30.0]]), tensor([[4.0, 25.0], [2.0, 20.0], [0.0, 0.0]])),
            expected=(tensor([[-1.0, -1.0], [1.0, 1.0]]), tensor([[2.0, 0.5], [0.0, 0.0], [-2.0, -2.0]])),
        ),
        Case(
            "as many rows as columns",
            "values",
            (tensor([[0.0, 1.0, 4.0], [0.0, 1.0, 4.0], [3.0, 7.0, 1.0]]), tensor([[1.0, 3.0, 3.0]])),
            expected=(
                tensor([[-1.0, -1.0, 1.0], [-1.0, -1.0, 1.0], [2.0, 2.0, -2.0]]) / 2**0.5,
                tensor([[0.0, 0.0, 0.0]]),
            ),
        ),
        Case(
            "float64",
            "values",
            (tensor([[1.0], [3.0]]).double(), tensor([[2.5]]).double()),
            expected=(tensor([[-1.0], [1.0]]).double(), tensor([[0.5]]).double()),
        ),
        Case(
            "a column of fives",
            "constant columns",
            (TRAIN, tensor([[4.0, 30.0, 7.0]])),
            expected=(
                tensor([[-1.2247449, -0.9258201, 0.0], [0.0, -0.46291, 0.0], [1.2247449, 1.3887301, 0.0]]),
                tensor([[2.4494897, 0.0, 2.0]]),
            ),
        ),
        Case(
            "a single training row",
            "constant columns",
            (tensor([[2.0, 3.0]]), tensor([[2.5, 1.0]])),
            expected=(tensor([[0.0, 0.0]]), tensor([[0.5, -2.0]])),
        ),
        Case(
            "seven rows of 0.1",  # float32: their mean is rounded, so it is not 0.1, and the deviation is 7e-9
            "constant columns",
            (torch.full((7, 1), 0.1), tensor([[0.5]])),
            expected=(torch.zeros(7, 1), tensor([[0.4]])),
        ),
        Case(
            "1 / 2³⁰ and 3 / 2³⁰, which differ",
            "constant columns",
            (tensor([[1.0], [3.0]]).double() / 2**30, tensor([[2.0]]).double() / 2**30),
            expected=(tensor([[-1.0], [1.0]]).double(), tensor([[0.0]]).double()),
        ),
        Case(
            "a column that ends as it starts",
            "constant columns",
            (tensor([[1.0], [5.0], [1.0], [5.0], [5.0], [1.0]]), tensor([[4.0]])),
            expected=(tensor([[-1.0], [1.0], [-1.0], [1.0], [1.0], [-1.0]]), tensor([[0.5]])),
        ),
        Case(
            "200,000 and 200,001, which differ",
            "constant columns",
            (tensor([[200_000.0], [200_001.0]]).double(), tensor([[200_002.0]]).double()),
            expected=(tensor([[-1.0], [1.0]]).double(), tensor([[3.0]]).double()),
            tolerance=1e-3,
        ),
        Case("three columns against two", "errors", (TRAIN, ramp(2, 2)), raises=ValueError),
        Case("three columns against one", "errors", (TRAIN, ramp(2, 1)), raises=ValueError),
        Case("one column against three", "errors", (TRAIN[:, :1], ramp(2, 3)), raises=ValueError),
        Case(
            "one column each",
            "errors",
            (tensor([[1.0], [3.0]]), tensor([[2.0]])),
            expected=(tensor([[-1.0], [1.0]]), tensor([[0.0]])),
        ),
    ),
    hidden=random_tables,
    mistakes=(
        Mistake(
            "taking mean and deviation of rows",
            by_rows,
            hint="dim names the axis that disappears. Is one number left for each column, or for each row?",
        ),
        Mistake(
            "dividing by N - 1",
            scaling(divisor=lambda t, o: deviation(t, correction=1)),
            hint="torch.std divides by N - 1 unless told otherwise. Which argument tells it?",
        ),
        Mistake(
            "giving each table statistics of its own",
            own_statistics,
            hint="At test time there may be one row only. Which table do mean and deviation come from?",
        ),
        Mistake(
            "taking the statistics of both tables together",
            scaling(lambda t, o: torch.cat([t, o]).mean(0), lambda t, o: deviation(torch.cat([t, o]))),
            hint="Then the training rows know something about the others: a leak. Which table do the statistics come from?",
        ),
        Mistake(
            "dividing by the variance",
            scaling(divisor=lambda t, o: torch.where(t.amax(0) == t.amin(0), 1.0, t.var(0, correction=0))),
            hint="The standard deviation is the square root of the variance.",
        ),
        Mistake(
            "dividing by zero",
            scaling(divisor=lambda t, o: t.std(0, correction=0)),
            hint="A column of equal values has a deviation of 0, and 0 / 0 is nan.",
        ),
        Mistake(
            "looking for a deviation of exactly 0",
            scaling(divisor=unless_zero),
            hint="The mean of seven 0.1s is rounded, and their deviation is 7e-9. How else can equal values be told?",
        ),
        Mistake(
            "taking a small deviation for none",
            scaling(divisor=lambda t, o: torch.where(deviation(t) < 1e-6, 1.0, deviation(t))),
            hint="Two tiny values may differ: perhaps their unit is large. What tells equal values whatever the unit?",
        ),
        Mistake(
            "taking nearly equal values for equal",
            scaling(divisor=lambda t, o: torch.where(t.isclose(t[:1]).all(0), 1.0, t.std(0, correction=0))),
            hint="isclose calls 200,000 and 200,001 equal. Are they?",
        ),
        Mistake(
            "comparing the first value with the last one only",
            scaling(divisor=lambda t, o: torch.where(t[0] == t[-1], 1.0, t.std(0, correction=0))),
            hint="A column may end as it starts and change in between. How are all of its values compared?",
        ),
        Mistake(
            "adding a small number to the deviation",
            scaling(divisor=lambda t, o: t.std(0, correction=0) + 1e-8),
            hint="That saves the training rows. What becomes of another row with 7 in a column of fives?",
        ),
        Mistake(
            "subtracting the mean without dividing",
            scaling(divisor=lambda t, o: 1.0),
            hint="Columns of different spread should come out with the same spread.",
        ),
        Mistake(
            "one mean and one deviation for the whole table",
            scaling(lambda t, o: t.mean(), lambda t, o: deviation(t.flatten())),
            hint="Each column has a unit of its own, so each needs a mean and a deviation of its own.",
        ),
        Mistake(
            "changing the tables in place",
            standardize_in_place,
            hint="The caller's data is gone after sub_ and div_. Which operators make a new tensor?",
        ),
        Mistake(
            "taking any number of columns",
            unchecked_columns,
            hint="A table of one column broadcasts against three without a word. Compare the numbers of columns first.",
        ),
    ),
)


EXERCISES = (
    TENSOR_PATTERNS,
    ROW_NORMS,
    SUM_ABOVE_MEAN,
    BROADCAST_SHAPE,
    ORDINAL_RANK_SUM,
    ORDINAL_POOL_2D,
    BINARY_ACCURACY,
    TO_NCHW,
    PICK,
    STANDARDIZE,
)
