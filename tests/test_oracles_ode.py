"""Chapter 5's reference against independent answers: exact fractions, brentq, brute force, closed forms, other solvers."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from autograder import reference
from underhood import ode, ode_experiments, ode_peers


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    return reference.load("05_ode_callbacks")


def exact_step(M: list[list[int]], drive: list[int], t: Fraction, y: list[Fraction], h: Fraction) -> tuple[list, list]:
    """A step for y' = M y + t d in exact rational arithmetic."""
    a = [[Fraction(float(x)) for x in row] for row in ode.A]
    c = [Fraction(float(x)) for x in ode.C]

    def f(time: Fraction, u: list[Fraction]) -> list[Fraction]:
        return [
            sum((Fraction(m) * v for m, v in zip(row, u, strict=True)), time * d)
            for row, d in zip(M, drive, strict=True)
        ]

    slopes, state = [f(t, y)], y
    for i in range(1, 7):
        state = [y[n] + h * sum(a[i][j] * slopes[j][n] for j in range(i)) for n in range(len(y))]
        slopes.append(f(t + c[i] * h, state))
    return state, slopes


@pytest.mark.parametrize("seed", range(5))
def test_a_step_its_error_and_its_interpolant_are_those_of_exact_arithmetic(parts: dict, seed: int) -> None:
    rng = np.random.default_rng(seed)
    M, drive = rng.integers(-3, 4, (3, 3)).tolist(), rng.integers(-3, 4, 3).tolist()
    y, t, h = rng.integers(-5, 6, 3) / 4, 0.75, float(rng.choice([0.25, -0.125]))
    state, slopes = exact_step(M, drive, Fraction(t), [Fraction(v) for v in y], Fraction(h))
    new, K = parts["rk_step"](lambda time, u: np.array(M) @ u + time * np.array(drive), t, y, h)
    np.testing.assert_allclose(new, [float(v) for v in state], rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(K, [[float(v) for v in row] for row in slopes], rtol=1e-12, atol=1e-12)

    error = [
        Fraction(h) * sum(Fraction(float(e)) * row[n] for e, row in zip(ode.E, slopes, strict=True)) for n in range(3)
    ]
    tolerated = [1e-4 + 1e-3 * max(abs(float(a)), abs(float(b))) for a, b in zip(y, state, strict=True)]
    expected = math.sqrt(sum((float(e) / s) ** 2 for e, s in zip(error, tolerated, strict=True)) / 3)
    assert parts["err_norm"](K, h, y, new, 1e-4, 1e-3) == pytest.approx(expected, rel=1e-9)

    for theta in (Fraction(1, 4), Fraction(2, 3)):
        weights = [sum(Fraction(float(r)) * theta ** (j + 1) for j, r in enumerate(row)) for row in ode.R]
        rates = [sum((j + 1) * Fraction(float(r)) * theta**j for j, r in enumerate(row)) for row in ode.R]
        for wanted, w, derivative in (("state", weights, False), ("slope", rates, True)):
            change = [float(sum(b * row[n] for b, row in zip(w, slopes, strict=True))) for n in range(3)]
            right = np.array(change) if wanted == "slope" else y + h * np.array(change)
            got = parts["dense"](float(theta), y, h, K, derivative)
            np.testing.assert_allclose(got, right, rtol=1e-11, atol=1e-11)


def test_the_interpolant_is_of_fourth_order_and_better_than_the_cubic(parts: dict) -> None:
    errors = []
    for h in (0.4, 0.2, 0.1):
        y = np.array([1.0, 0.0])
        _, K = parts["rk_step"](lambda t, u: np.array([u[1], -u[0]]), 0.0, y, h)
        theta = np.linspace(0, 1, 101)
        exact = np.stack([np.cos(theta * h), -np.sin(theta * h)], axis=1)
        errors.append(np.abs(parts["dense"](theta, y, h, K) - exact).max())
    assert errors[0] < 2e-6  # the cubic through both ends and slopes is off by 5.7e-5
    assert np.log2(np.array(errors[:-1]) / errors[1:]) == pytest.approx([5, 5], abs=0.3)


@pytest.mark.parametrize("seed", range(20))
def test_roots_are_neighbors_of_those_of_brentq(parts: dict, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shift = float(rng.uniform(-0.9, 0.9))
    g = lambda t: math.atan(t) + 0.5 * t - shift  # noqa: E731
    root = brentq(g, -2.0, 2.0, xtol=1e-15, rtol=1e-15)
    for a, b in ((-2.0, 2.0), (2.0, -2.0)):
        left, right = (parts["bracket_root"](g, a, b, side) for side in ("left", "right"))
        assert left == pytest.approx(root, abs=1e-14) and right == pytest.approx(root, abs=1e-14)
        assert left == right or math.nextafter(left, b) == right
        assert g(left) * g(a) > 0 or g(left) == 0


@pytest.mark.parametrize("seed", range(50))
def test_detection_agrees_with_a_walk_from_sign_to_sign(parts: dict, seed: int) -> None:
    rng = np.random.default_rng(seed)
    G = rng.integers(-2, 3, (6, 3)).astype(float)
    directions = rng.integers(-1, 2, 3)
    expected: tuple = (None, [])
    for j in range(5, 0, -1):
        hits = []
        for i in range(3):
            old, new = G[j - 1, i], G[j, i]
            arrives_up, arrives_down = old < 0 <= new, old > 0 >= new
            if (arrives_up and directions[i] >= 0) or (arrives_down and directions[i] <= 0):
                hits.append(i)
        if hits:
            expected = (j, hits)
    row, who = parts["detect"](G, np.sign(G[0]), directions)
    assert (row, list(who)) == expected


def test_the_first_step_of_the_public_run_is_the_printed_one(parts: dict) -> None:
    assert parts["init_dt"](ode.food_web, 0.0, ode.FOOD_WEB_START, 1e-15, 1e-10) == 0.004242012928189618


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_of_an_event_time_is_that_of_a_high_order_solver(parts: dict, seed: int) -> None:
    """A Lotka-Volterra pair crosses a moving level; the start and the level's speed are the parameters."""
    rng = np.random.default_rng(seed)
    start, speed = rng.uniform(0.8, 1.2, 2), float(rng.uniform(0.05, 0.1))
    f = lambda t, y: np.array([y[0] * (1 - y[1]), y[1] * (y[0] - 1.5)])  # noqa: E731

    def event(y0: np.ndarray, speed: float) -> tuple[float, np.ndarray]:
        level = lambda t, y: y[1] - 0.5 - speed * t  # noqa: E731
        level.terminal = True
        run = solve_ivp(f, (0.0, 9.0), y0, "DOP853", events=level, rtol=1e-12, atol=1e-13)
        return run.t_events[0][0], run.y_events[0][0]

    def state(y0: np.ndarray, t: float) -> np.ndarray:
        return solve_ivp(f, (0.0, t), y0, "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]

    t, y = event(start, speed)
    steps = 1e-5 * np.eye(2)
    S = np.stack([(state(start + d, t) - state(start - d, t)) / 2e-5 for d in steps] + [np.zeros(2)], axis=1)
    condition = lambda time, u: u[1] - 0.5 - speed * time  # noqa: E731
    got = parts["event_time_grad"](condition, f, t, y, S, np.array([0.0, 0.0, -t]))
    finite = [(event(start + d, speed)[0] - event(start - d, speed)[0]) / 2e-5 for d in steps]
    finite.append((event(start, speed + 1e-5)[0] - event(start, speed - 1e-5)[0]) / 2e-5)
    np.testing.assert_allclose(got, finite, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("report", ode_peers.REPORTS, ids=[report.thread for report in ode_peers.REPORTS])
def test_the_reports_have_the_answers_that_are_printed_beside_them(parts: dict, report: ode_peers.Report) -> None:
    found = ode_peers.by_parts(parts, report)
    np.testing.assert_allclose(found, report.right, rtol=1e-7, atol=0)


def test_scipy_does_what_the_chapter_says_of_it() -> None:
    cubic, close, start, vector, electron = (ode_peers.by_scipy(report) for report in ode_peers.REPORTS)
    assert len(cubic) == 1 and close == [] and start == [0.0] and len(vector) == 2
    right = ode_peers.REPORTS[4].right[0]
    assert 1e-6 < abs(electron[0] - right) / right < 1e-2


@pytest.mark.parametrize("method", ["RK45", "DOP853"])
def test_scipy_with_restarts_gives_the_public_run(method: str) -> None:
    def zero(t: float, u: np.ndarray, index: int) -> None:
        u[index] = 0.0

    web = ode.food_web, ode.FOOD_WEB_START, (0.0, 10.0), 0.05, zero, method
    events, end = ode_peers.scipy_with_restarts(*web)
    assert [index for _, index in events] == [3, 2]
    np.testing.assert_allclose([t for t, _ in events], [1.1789645459699357, 6.3899961913166577], rtol=1e-8)
    np.testing.assert_allclose(end, [47.84633546, 120.82634906, -13.66147986, -203.4572004], rtol=1e-8)


def test_the_table_tells_every_report_and_every_solver(parts: dict) -> None:
    text = ode_peers.table(parts)
    assert all(report.thread in text for report in ode_peers.REPORTS)
    assert text.count("your solver") == text.count("scipy RK45") == len(ode_peers.REPORTS)


def test_torchdiffeq_stands_in_the_table_where_it_is_installed_and_misses_what_the_reports_say(parts: dict) -> None:
    pytest.importorskip("torchdiffeq", reason="torchdiffeq is not installed, so the table has no row for it")
    assert ode_peers.table(parts).count("torchdiffeq (first only)") == len(ode_peers.REPORTS)
    cubic, close, start, vector, _ = ode_peers.REPORTS
    np.testing.assert_allclose(ode_peers.by_torchdiffeq(cubic), [2.0], atol=1e-9)  # after -6 and -2
    with pytest.raises(AssertionError, match="underflow"):
        ode_peers.by_torchdiffeq(close)
    assert ode_peers.by_torchdiffeq(start) == [0.0]
    np.testing.assert_allclose(ode_peers.by_torchdiffeq(vector), vector.right, rtol=1e-8)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1]))
    return importlib.import_module("benchmarks.ode")


def test_torchdiffeq_with_restarts_solves_the_problems_of_the_benchmark(bench: ModuleType) -> None:
    pytest.importorskip("torchdiffeq", reason="torchdiffeq is not installed, so the benchmark goes without it")
    for problem in (bench.food_web(), bench.ball()):
        assert bench.error(problem, problem.torchdiffeq("dopri5", 1e-12)) < 1e-7, problem.name
    crossings = bench.lorenz()
    times, _, calls = crossings.torchdiffeq("dopri5", 1e-6)
    assert len(times) == len(crossings.times) == 23 and calls > 1000


def test_the_benchmark_tells_that_torchdiffeq_is_missing(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ball = bench.ball()
    monkeypatch.setattr(bench, "problems", lambda: (ball,))
    monkeypatch.setattr(bench, "REPEATS", 1)
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)
    *rows, last = bench.rows()
    assert len(rows) == 4 and not any("torchdiffeq" in row["name"] for row in rows)
    assert last["name"] == "ode: torchdiffeq" and "pip install torchdiffeq" in last["value"]


def test_a_tolerance_counts_only_if_the_next_tighter_one_is_good_too(bench: ModuleType) -> None:
    ball, ladder = bench.ball(), bench.LADDER
    right, wrong = (ball.times.tolist(), ball.end, 1), ([], ball.end, 1)
    cases = [(ladder, ladder[0]), (ladder[1:2] + ladder[4:], ladder[4]), (ladder[-1:], ladder[-1]), ((), None)]
    for good, kept in cases:
        assert bench.tolerance(ball, lambda rtol, good=good: right if rtol in good else wrong) == kept


def test_a_stale_slope_costs_four_orders(parts: dict) -> None:
    def stale(f: Callable, t: float, y: np.ndarray, affect: Callable, index: int, flags: tuple) -> tuple:
        new, _, saved = parts["apply_event"](f, t, y, affect, index, flags)
        return new, f(t, y), saved

    fresh = ode_experiments.jump_errors(parts, [0.1, 0.05])
    old = ode_experiments.jump_errors(parts | {"apply_event": stale}, [0.1, 0.05])
    assert fresh[0] < 2e-9 and math.log2(fresh[0] / fresh[1]) == pytest.approx(5, abs=0.5)
    assert old[0] == pytest.approx(1.4e-2, rel=0.02) and math.log2(old[0] / old[1]) == pytest.approx(1, abs=0.1)


def test_the_ball_falls_through_the_floor_unless_it_may_rest(parts: dict) -> None:
    through = ode_experiments.bouncing_ball(parts, 0.5, None)
    resting = ode_experiments.bouncing_ball(parts, 0.5, parts["bounce"])
    assert len(through.events) == 7 and through.u[-1, 0] < -300
    assert len(resting.events) == 23 and resting.u[-1].tolist() == [0.0, 0.0]


def test_the_death_of_species_4_moves_as_the_exact_answer_says(parts: dict) -> None:
    with torch.no_grad():  # as inside an autograd Function
        t, gradient = ode_experiments.death_of_species_4(parts, ode.FOOD_WEB_START, parts["event_time_grad"])
    assert t == pytest.approx(1.1789645459699357, abs=1e-11)
    exact = [-0.2389236499081976, 0.05573732146623709, -0.01982950299433791, 0.2037523970462095]
    np.testing.assert_allclose(gradient, exact, rtol=1e-9)
