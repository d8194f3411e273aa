"""Chapter 2's reference solutions against torch, exact formulas and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from autograder.reference import load
from underhood.builders import autograd as builders
from underhood.plots import autograd as plots

REFERENCE = load("02_autograd")


def normal(rng, *shape):
    return torch.tensor(rng.normal(size=shape))


@pytest.mark.parametrize("seed", range(5))
def test_vjp_is_torch_func_vjp(seed):
    rng = np.random.default_rng(seed)
    m, n = rng.integers(1, 6, 2)
    f = builders.bilinear(normal(rng, m, n))
    inputs, v = [normal(rng, n), normal(rng, 2, 3)], normal(rng, m)
    expected = torch.func.vjp(f, *inputs)[1](v)
    for got, want in zip(REFERENCE["vjp"](f, inputs, v), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_vjp_gives_the_public_example_its_right_values():
    a, b, c = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([3.0, 4.0, 5.0]), torch.tensor([6.0, 7.0, 8.0])
    v = torch.tensor([0.1, 1.0, 0.0001])
    got = REFERENCE["vjp"](builders.separable(), [a, b, c], v)
    for one, slope in zip(got, (torch.full((3,), 3.0), 4 * b, 1 / c), strict=True):
        torch.testing.assert_close(one, v * slope)


def test_the_alt_text_of_the_product_says_the_numbers_in_the_cells(monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "show", lambda figure, verdict, alt: shown.append(alt))
    plots.vector_jacobian(torch.tensor([[1.0, 2.0], [0.0, 3.0]]), torch.tensor([0.1, 0.0001]))
    assert shown == ["v = [0.1, 0.0001], J = [[1, 2], [0, 3]], and below them their product [0.1, 0.2003]."]


@pytest.mark.parametrize("seed", range(5))
def test_jacobian_rows_is_torch_func_jacrev(seed):
    rng = np.random.default_rng(seed)
    f = builders.squares_of_product(normal(rng, 3, 2))
    x = normal(rng, int(rng.integers(1, 4)), 3)
    expected = torch.func.jacrev(f)(x).reshape(-1, x.numel())
    torch.testing.assert_close(REFERENCE["jacobian_rows"](f, x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_graph_summary_finds_what_was_built(seed):
    # The graph is written down while it is built, and the part that leads to the end is found on paper, not in torch.
    rng = np.random.default_rng(seed)
    leaves = [torch.tensor(0.3, requires_grad=True), torch.tensor(0.7, requires_grad=True)]
    tensors, sources, names = list(leaves), [(), ()], ["", ""]
    for _ in range(12):
        i, j = (int(k) for k in rng.integers(0, len(tensors), 2))
        kind = int(rng.integers(3))
        a, b = tensors[i], tensors[j]
        tensors.append([a + b, a * b, torch.tanh(a)][kind])
        sources.append((i,) if kind == 2 else (i, j))
        names.append(["AddBackward0", "MulBackward0", "TanhBackward0"][kind])
    needed = {len(tensors) - 1}
    for k in reversed(range(len(tensors))):
        if k in needed:
            needed |= set(sources[k])
    summary = REFERENCE["graph_summary"](tensors[-1])
    assert summary["nodes"] == len(needed)
    assert summary["ops"] == sorted(names[k] for k in needed if k > 1)
    assert {id(leaf) for leaf in summary["leaves"]} == {id(leaves[k]) for k in needed if k < 2}
    assert len(summary["leaves"]) == len(needed & {0, 1})


@pytest.mark.parametrize("times", (1, 60, 5000))
def test_graph_summary_survives_sharing_and_depth(times):
    build = builders.doublings if times < 100 else builders.chain
    end, (leaf,) = build(times)
    summary = REFERENCE["graph_summary"](end)
    assert summary["nodes"] == times + 1 and summary["ops"] == ["AddBackward0"] * times
    assert len(summary["leaves"]) == 1 and summary["leaves"][0] is leaf


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_numeric_grad_is_near_torch_func_grad(seed, dtype):
    x = normal(np.random.default_rng(seed), 2, 3).to(dtype)
    f = builders.cubes_and_sines()
    expected = torch.func.grad(f)(x.double())
    torch.testing.assert_close(REFERENCE["numeric_grad"](f, x), expected, rtol=1e-8, atol=1e-8)


def test_numeric_grad_of_a_cube_is_off_by_the_step_squared():
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    torch.testing.assert_close(REFERENCE["numeric_grad"](builders.cubes(), x, 0.25), 3 * x**2 + 0.0625)


@pytest.mark.parametrize("factor", (1.0, 0.5, 1.001))
def test_grad_check_agrees_with_torch_gradcheck(factor):
    x = torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64)
    f = builders.squares_with_gradient(torch.full_like(x, factor))
    expected = torch.autograd.gradcheck(f, (x.clone().requires_grad_(),), raise_exception=False, atol=1e-6, rtol=1e-6)
    assert REFERENCE["grad_check"](f, x, REFERENCE["numeric_grad"]) is expected


EXPRESSIONS = (
    lambda a, b, c: (a * b + b**3) / (1 + a * a) - c,
    lambda a, b, c: 2 - (a - 3) / (b * b + 1) + 1 / c,
    lambda a, b, c: (a + b).tanh() * c.exp() + c.log() * a.relu(),
    lambda a, b, c: ((a * c).exp() + 1).log() ** 2.5 - (3 - b).relu() * 0.5,
)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_scalar_gives_what_torch_gives(seed, expression):
    numbers = np.random.default_rng(seed).uniform(0.2, 2.0, 3) * (1, -1, 1)
    ours = [REFERENCE["Scalar"](float(n)) for n in numbers]
    theirs = [torch.tensor(n, requires_grad=True) for n in numbers]
    y, z = expression(*ours), expression(*theirs)
    for _ in range(2):
        y.backward()
        z.backward(retain_graph=True)
    assert y.value == pytest.approx(z.item(), rel=1e-12)
    assert [one.grad for one in ours] == pytest.approx([one.grad.item() for one in theirs], rel=1e-10, abs=1e-12)


def test_scalar_has_the_published_values():
    a, b = REFERENCE["Scalar"](0.4), REFERENCE["Scalar"](-0.7)
    y = (a * b + b**3).tanh() / (1 + a.relu())
    y.backward()
    assert (y.value, a.grad, b.grad) == pytest.approx((-0.395152, -0.064726, 0.926926), abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", (0, 1, 2, 3, 7))
def test_truncated_grad_is_the_slope_of_windows_with_their_first_state_held(seed, k):
    rng = np.random.default_rng(seed)
    xs, w = [float(x) for x in rng.normal(size=7)], float(rng.normal())

    def states(weight, start, part):
        for x in part:
            start = math.tanh(weight * start + x)
            yield start

    total, h, step = 0.0, 0.0, 1e-5
    for i in range(0, 7, k or 7):
        part = xs[i : i + (k or 7)]
        total += (sum(states(w + step, h, part)) - sum(states(w - step, h, part))) / (2 * step)
        *_, h = states(w, h, part)
    assert REFERENCE["truncated_grad"](w, xs, k) == pytest.approx(total, abs=1e-8)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_safe_sqrt_has_the_slope_of_the_root_and_no_nan(dtype):
    x = torch.tensor([-2.0, -0.0, 0.0, 1e-10, 0.3, 9.0], dtype=dtype, requires_grad=True)
    y = REFERENCE["safe_sqrt"](x)
    y.sum().backward()
    root = x.detach().numpy().clip(min=0) ** 0.5
    slope = np.divide(0.5, root, out=np.zeros_like(root), where=root > 0)
    np.testing.assert_allclose(y.detach().numpy(), root, rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-6)


MAKE = {
    "created": lambda x: x,
    "parameter": nn.Parameter,
    "operation": lambda x: x * 2,
    "integer operation": lambda x: x.argmax(),
    "detach": lambda x: x.detach(),
    "same object": lambda x: x.to(torch.float32),
    "cast": lambda x: x.to(torch.float64),
}


@pytest.mark.parametrize("enabled", (True, False))
@pytest.mark.parametrize("requires_grad", (True, False))
@pytest.mark.parametrize("kind", tuple(MAKE))
def test_leaf_rule_predicts_what_torch_does(kind, requires_grad, enabled):
    with torch.set_grad_enabled(enabled):
        made = MAKE[kind](torch.ones(2, requires_grad=requires_grad))
    assert REFERENCE["leaf_rule"](kind, requires_grad, enabled) == (made.is_leaf, made.requires_grad)
