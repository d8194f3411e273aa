"""The reference solutions of chapter 1 against torch, numpy and exact arithmetic; their docstrings' examples."""

from __future__ import annotations

import doctest
import itertools
import statistics
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from autograder import reference

CHAPTER = "01_basics"
ANSWERS = reference.load(CHAPTER)
NAMES = (
    *("tensor_patterns", "row_norms", "sum_above_mean", "broadcast_shape", "ordinal_rank_sum", "OrdinalPool2d"),
    *("binary_accuracy", "to_nchw", "pick", "standardize"),
)
POOL = ANSWERS["OrdinalPool2d"]
SHAPES = [(), (1,), (0,), (3,), (4, 1), (1, 3), (2, 3), (0, 3), (5, 1, 3), (1, 4, 1)]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_in_the_docstring_is_what_comes_out(name):
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(ANSWERS[name], name, globs=dict(ANSWERS), module=False)
    assert test.examples
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test).failed == 0


@pytest.mark.parametrize("n, m", [(1, 1), (1, 5), (6, 1), (4, 7)])
def test_the_patterns_follow_their_definitions_entry_by_entry(n, m):
    made = ANSWERS["tensor_patterns"](n, m)
    assert all(pattern.dtype == torch.int64 for pattern in made.values())
    assert made["odds"].tolist() == list(itertools.islice((k for k in itertools.count(3) if k % 2), n))
    assert np.array_equal(made["diagonal"].numpy(), np.where(np.eye(n, dtype=bool), 4, 1))
    assert made["multiples"].flatten().tolist() == [k for k in range(1, 3 * n * m + 1) if k % 3 == 0]
    assert made["multiples"].shape == (n, m)
    assert np.array_equal(made["squares"].numpy(), np.fromfunction(lambda i, j: (i + 1) ** 2, (n, m), dtype=int))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_norms_are_those_of_torch(dtype):
    x = torch.randn(6, 5, dtype=dtype, generator=generator(1))
    torch.testing.assert_close(ANSWERS["row_norms"](x), torch.linalg.vector_norm(x, dim=1))


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 2, 3), ()])
def test_the_sum_above_the_mean_is_the_one_of_exact_fractions(shape):
    x = torch.randint(-4, 5, shape, generator=generator(2)).float()
    entries = [Fraction(v) for v in x.flatten().tolist()]
    above = [v for v in entries if v > statistics.mean(entries)]
    assert ANSWERS["sum_above_mean"](x) == (float(sum(above)), sum(v != 0 for v in entries))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_broadcast_shape_agrees_with_numpy_on_every_combination(count):
    for shapes in itertools.product(SHAPES, repeat=count):
        try:
            expected = np.broadcast_shapes(*shapes)
        except ValueError:
            with pytest.raises(ValueError):
                ANSWERS["broadcast_shape"](*shapes)
        else:
            assert ANSWERS["broadcast_shape"](*shapes) == expected


def test_ranking_with_one_weight_is_the_maximum_and_with_equal_weights_the_mean():
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64, generator=generator(3))
    rank_sum = ANSWERS["ordinal_rank_sum"]
    torch.testing.assert_close(rank_sum(x, torch.ones(1).double()), x.amax(-1))
    torch.testing.assert_close(rank_sum(x, torch.full((5,), 0.2).double()), x.mean(-1))
    second = torch.tensor([0.0, 1.0]).double()
    torch.testing.assert_close(rank_sum(x, second), x.kthvalue(4, dim=-1).values)


def test_the_public_row_gives_1_5650():
    row = torch.tensor([[1.9, 0.4, 1.3, 0.8]])
    assert abs(ANSWERS["ordinal_rank_sum"](row, torch.tensor([0.6, 0.25, 0.10, 0.05])).item() - 1.565) < 1e-6


GEOMETRIES = [(2, None, 0), (3, 1, 1), ((2, 3), (1, 2), (1, 0)), (3, 2, 1), ((4, 5), (3, 2), (2, 1))]


@pytest.mark.parametrize("total", [1, 3])  # what the weights add up to, padded or not
@pytest.mark.parametrize("kernel, stride, padding", GEOMETRIES)
def test_max_and_average_pooling_are_special_cases(kernel, stride, padding, total):
    x = torch.randn(2, 3, 9, 11, dtype=torch.float64, generator=generator(4)) - 2
    cells = np.prod(kernel) if isinstance(kernel, tuple) else kernel**2
    largest = POOL(torch.full((1,), total).double(), kernel, stride, padding)(x)
    torch.testing.assert_close(largest, total * F.max_pool2d(x, kernel, stride, padding))
    average = POOL(torch.full((int(cells),), total / cells).double(), kernel, stride, padding)(x)
    torch.testing.assert_close(average, total * F.avg_pool2d(x, kernel, stride, padding, count_include_pad=False))


def test_min_pooling_is_max_pooling_of_the_negative():
    x = torch.randn(2, 3, 8, 6, generator=generator(5))
    torch.testing.assert_close(POOL(torch.tensor([0.0, 0.0, 0.0, 1.0]), 2)(x), -F.max_pool2d(-x, 2))


@pytest.mark.parametrize("kernel, stride, padding", GEOMETRIES)
def test_the_gradient_of_pooling_is_that_of_finite_differences(kernel, stride, padding):
    x = torch.randn(1, 2, 6, 7, dtype=torch.float64, generator=generator(6)).requires_grad_()
    layer = POOL(torch.tensor([0.5, 0.3, 0.2]).double(), kernel, stride, padding)
    assert torch.autograd.gradcheck(layer, x)


def test_pooling_weights_travel_with_the_layer():
    layer = POOL(torch.tensor([0.5, 0.5]), 2)
    assert not list(layer.parameters()) and layer.double().weights.dtype == torch.float64


@pytest.mark.parametrize("from_logits", [False, True])
@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
def test_binary_accuracy_agrees_with_a_count_in_numpy(from_logits, threshold):
    scores = torch.randn(200, 1, generator=generator(7)) if from_logits else torch.rand(200, generator=generator(7))
    labels = torch.randint(0, 2, (200,), generator=generator(8))
    z = scores.numpy().ravel().astype(np.float64)
    p = 1 / (1 + np.exp(-z)) if from_logits else z
    expected = np.count_nonzero((p > threshold) == labels.numpy().astype(bool)) / 200
    assert ANSWERS["binary_accuracy"](scores, labels, threshold, from_logits) == pytest.approx(expected)


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_pictures_agree_with_numpy_and_own_their_memory(make):
    images = np.random.default_rng(9).integers(0, 256, size=(2, 3, 5, 4)).astype(np.uint8)
    expected = (np.transpose(images, (0, 3, 1, 2)) / 255).astype(np.float32)
    converted = ANSWERS["to_nchw"](make(images))
    images[:] = 0
    assert converted.is_contiguous() and converted.dtype == torch.float32
    np.testing.assert_allclose(converted.numpy(), expected, rtol=1e-6)


def test_pick_agrees_with_the_loss_of_torch():
    """nll_loss without reduction is minus the picked log probabilities."""
    scores = torch.randn(6, 4, generator=generator(10))
    index = torch.randint(0, 4, (6,), generator=generator(11))
    torch.testing.assert_close(ANSWERS["pick"](scores, index), -F.nll_loss(scores, index, reduction="none"))


def test_standardize_agrees_with_scipy_and_leaves_constant_columns_alone():
    from scipy.stats import zmap

    rng = np.random.default_rng(12)
    train, other = rng.normal(3, 2, size=(8, 3)), rng.normal(size=(5, 3))
    for got, scores in zip(
        ANSWERS["standardize"](torch.tensor(train), torch.tensor(other)), (train, other), strict=True
    ):
        np.testing.assert_allclose(got.numpy(), zmap(scores, train, axis=0), atol=1e-12)
    for rows in (4, 7, 11):  # the mean of 7 is rounded
        constant, moved = ANSWERS["standardize"](torch.full((rows, 1), 0.1), torch.full((1, 1), 2.1))
        assert constant.abs().max() < 1e-6 and moved.item() == pytest.approx(2, abs=1e-6)
