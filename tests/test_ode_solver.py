"""The driver of chapter 5 with the reference's parts, and the fast solver, against exact answers and public reports."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.optimize import brentq

from autograder import reference
from underhood import ode
from underhood.ode import ContinuousCallback, DiscreteCallback, VectorContinuousCallback

HERE = Path(__file__).resolve().parent.parent / "solutions" / "05_ode_callbacks"
LN2 = math.log(2)


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ode_{path.stem}", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def reference_parts() -> dict[str, Any]:
    """The reference's functions by name, from the notebook's solution cells."""
    return reference.load("05_ode_callbacks")


def runners() -> dict[str, Callable[..., ode.Solution]]:
    """Both solvers behind one call: run(f, u0, tspan, callbacks, **settings)."""
    parts = reference_parts()
    return {"driver": lambda *a, **k: ode.solve(parts, *a, **k), "fast": module(HERE / "fast.py").solve}


RUNNERS = runners()


@pytest.fixture(scope="module")
def parts() -> SimpleNamespace:
    return SimpleNamespace(**reference_parts())


@pytest.fixture(params=list(RUNNERS))
def run(request: pytest.FixtureRequest) -> Callable[..., ode.Solution]:
    return RUNNERS[request.param]


def nothing(*_: Any) -> None:
    """An affect that changes nothing."""


def times(solution: ode.Solution) -> list[float]:
    return [event.t for event in solution.events]


def indices(solution: ode.Solution) -> list[int]:
    return [event.index for event in solution.events]


# --- the food web
SEED_EVENTS = (  # matrix exponential at 40 digits: time, species counted from 0, state before
    (1.1789645459699357513, 3, (5.34746266215967546, 5.73106246908783842, 7.64667777801351177, 0.05)),
    (6.3899961913166577098, 2, (12.9684990974303523, 30.5063719447161356, 0.05, -53.5210856347141424)),
)
SEED_END = (47.8463354603727194, 120.826349058194769, -13.6614798599565533, -203.457200350391971)
EXTINCTIONS = (
    (1.178964545969935751308, 3),
    (25.56364277004591162462, 0),
    (25.89960015540018591317, 1),
    (36.2961513034252959975, 2),
)


def zero_species(integrator: ode.Integrator, index: int) -> None:
    integrator.u[index] = 0.0


def seed_callback(batched: bool = False, **settings: Any) -> VectorContinuousCallback:
    condition = lambda t, u: u - ode.FOOD_WEB_THRESHOLD  # noqa: E731
    return VectorContinuousCallback(condition, zero_species, 4, interp_points=1000, batched=batched, **settings)


def masked_web(extinct: Callable[..., tuple]) -> VectorContinuousCallback:
    """The asker's goal: an extinct species is zero, stays zero, and is not felt by the others."""
    alive = np.ones(4)

    def die(integrator: ode.Integrator, index: int) -> None:
        nonlocal alive
        integrator.u, alive, integrator.f = extinct(ode.food_web, integrator.u, alive, index)

    return VectorContinuousCallback(lambda t, u: u - ode.FOOD_WEB_THRESHOLD, die, 4)


@pytest.mark.parametrize("batched", [False, True])
def test_the_public_run_has_165_points_and_events_4_then_3(run: Callable, batched: bool) -> None:
    solution = run(ode.food_web, [10, 10, 10, 10], (0.0, 10.0), seed_callback(batched), reltol=1e-10, abstol=1e-15)
    assert len(solution.t) == len(solution.u) == 165
    assert (solution.statistics.naccept, solution.statistics.nreject) == (162, 0)
    assert indices(solution) == [3, 2]
    for event, (t, index, before) in zip(solution.events, SEED_EVENTS, strict=True):
        assert event.t == pytest.approx(t, rel=1e-9)
        np.testing.assert_allclose(event.u_before, before, rtol=1e-9)
        np.testing.assert_allclose(np.delete(event.u_after, index), np.delete(before, index), rtol=1e-9)
        assert event.u_after[index] == 0.0 and event.u_before[index] >= ode.FOOD_WEB_THRESHOLD
        assert (solution.t == event.t).sum() == 2
    np.testing.assert_allclose(solution.u[-1], SEED_END, rtol=1e-9)
    np.testing.assert_allclose(solution.t[:5], [0.0, 0.004242012928189618, *solution.t[2:5]], rtol=1e-12)


def test_without_the_callback_there_are_163_points(run: Callable) -> None:
    solution = run(ode.food_web, ode.FOOD_WEB_START, (0.0, 10.0), reltol=1e-10, abstol=1e-15)
    assert len(solution.t) == 163
    expected = (47.6135588913082333, 120.212573726994777, -13.5455731268246065, -202.445208880123943)
    np.testing.assert_allclose(solution.u[-1], expected, rtol=1e-9)


@pytest.mark.slow
def test_event_times_are_within_2e_12_of_the_exact_ones(run: Callable, parts: Any) -> None:
    settings = {"reltol": 1e-13, "abstol": 1e-16}
    seed = run(ode.food_web, ode.FOOD_WEB_START, (0.0, 10.0), seed_callback(), **settings)
    np.testing.assert_allclose(times(seed), [t for t, _, _ in SEED_EVENTS], rtol=0, atol=2e-12)
    goal = run(ode.food_web, ode.FOOD_WEB_START, (0.0, 60.0), masked_web(parts.extinct), **settings)
    assert indices(goal) == [i for _, i in EXTINCTIONS]
    np.testing.assert_allclose(times(goal), [t for t, _ in EXTINCTIONS], rtol=0, atol=2e-12)


def test_the_alive_mask_gives_the_exact_answer(run: Callable, parts: Any) -> None:
    start, mask = ode.FOOD_WEB_START, masked_web(parts.extinct)
    solution = run(ode.food_web, start, (0.0, 60.0), mask, reltol=1e-10, abstol=1e-15, tstops=[10.0, 20.0, 30.0])
    assert indices(solution) == [3, 0, 1, 2]
    at = dict(zip(solution.t.tolist(), solution.u, strict=True))
    expected = {
        10.0: (0.634253319818984704, 0.832482828396113011, 1.64548912864885048, 0.0),
        20.0: (0.119821150618867904, 0.132329007716894037, 0.343852172503233053, 0.0),
        30.0: (0.0, 0.0, 0.0938444041483104276, 0.0),
        60.0: (0.0, 0.0, 0.0, 0.0),
    }
    for t, u in expected.items():
        np.testing.assert_allclose(at[t], u, rtol=1e-9)
    for event in solution.events:
        later = np.flatnonzero(solution.t == event.t)[-1]
        assert (solution.u[later:, event.index] == 0.0).all()


def linear_web(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 0.4 * rng.standard_normal((4, 4)) - 0.5 * np.eye(4), rng.uniform(1.0, 10.0, 4)


def extinctions_by_matrix_exponential(matrix: np.ndarray, u0: np.ndarray, end: float) -> tuple[list, np.ndarray]:
    """Extinctions at 0.05 as (time, species), and the state at the end; grid for the bracket, expm for the root."""
    t, u, alive, events = 0.0, u0.copy(), np.ones(4, dtype=bool), []
    while True:
        now = matrix * np.outer(alive, alive)
        span = np.linspace(0.0, end - t, 1001)
        step, states = expm(now * span[1]), [u]
        for _ in span[1:]:
            states.append(step @ states[-1])
        start = u
        low = alive & (np.array(states[1:]) <= 0.05)
        if not low.any():
            return events, expm(now * (end - t)) @ u
        row = int(low.any(axis=1).argmax())
        roots = []
        for i in np.flatnonzero(low[row]).tolist():
            g = lambda s, i=i, now=now, start=start: (expm(now * s) @ start)[i] - 0.05  # noqa: E731
            roots.append((brentq(g, span[row], span[row + 1], xtol=1e-13, rtol=1e-14), i))
        after, species = min(roots)
        t, u = t + after, expm(now * after) @ u
        u[species], alive[species] = 0.0, False
        events.append((t, species))


def compare_with_matrix_exponential(run: Callable, extinct: Callable, seeds: range) -> int:
    total = 0
    for seed in seeds:
        matrix, u0 = linear_web(seed)
        alive = np.ones(4)

        def web(t: float, u: np.ndarray, matrix: np.ndarray = matrix) -> np.ndarray:
            return matrix @ u

        def die(integrator: ode.Integrator, index: int, web: Callable = web) -> None:
            nonlocal alive
            integrator.u, alive, integrator.f = extinct(web, integrator.u, alive, index)

        callback = VectorContinuousCallback(lambda t, u: u - 0.05, None, 4, affect_neg=die, batched=True)
        solution = run(web, u0, (0.0, 5.0), callback, reltol=1e-10, abstol=1e-12)
        events, end = extinctions_by_matrix_exponential(matrix, u0, 5.0)
        assert indices(solution) == [i for _, i in events], f"web {seed}"
        np.testing.assert_allclose(times(solution), [t for t, _ in events], rtol=0, atol=1e-7, err_msg=f"web {seed}")
        np.testing.assert_allclose(solution.u[-1], end, rtol=1e-7, atol=1e-7, err_msg=f"web {seed}")
        total += len(events)
    return total


def test_random_linear_food_webs_agree_with_the_matrix_exponential(run: Callable, parts: Any) -> None:
    assert compare_with_matrix_exponential(run, parts.extinct, range(10)) > 5


@pytest.mark.slow
def test_a_thousand_random_linear_food_webs_agree_with_the_matrix_exponential(run: Callable, parts: Any) -> None:
    assert compare_with_matrix_exponential(run, parts.extinct, range(1000)) > 500


# --- public reports: input and right answer
def test_all_three_roots_of_a_cubic_are_found_when_the_step_is_sampled(run: Callable) -> None:
    """scipy#9228: y' = 3x² + 12x - 4, y(-8) = -120."""
    cubic = lambda x, y: np.array([3 * x * x + 12 * x - 4])  # noqa: E731
    for points in (3, 10):
        callback = ContinuousCallback(lambda x, y: y[0], nothing, interp_points=points)
        solution = run(cubic, [-120.0], (-8.0, 10.0), callback)
        np.testing.assert_allclose(times(solution), [-6.0, -2.0, 2.0], atol=1e-9)


@pytest.mark.parametrize("points, found", [(0, []), (10, []), (100, [2.5, 2.6])])
def test_a_double_crossing_needs_a_sample_between_its_roots(run: Callable, points: int, found: list) -> None:
    """diffrax#507: y' = 1, g = (y - 2.5)(y - 2.6)."""
    condition = lambda t, y: (y[0] - 2.5) * (y[0] - 2.6)  # noqa: E731
    callback = ContinuousCallback(condition, nothing, interp_points=points)
    solution = run(lambda t, y: np.ones(1), [0.0], (0.0, 10.0), callback)
    np.testing.assert_allclose(times(solution), found, atol=1e-12)


def test_a_start_on_a_root_is_no_event(run: Callable) -> None:
    """scipy#9667, torchdiffeq PR 285: thrown up from the ground with 10 m/s under -0.5 m/s², down again at 40 s."""
    cannon = lambda t, y: np.array([y[1], -0.5])  # noqa: E731
    solution = run(cannon, [0.0, 10.0], (0.0, 100.0), ContinuousCallback(lambda t, y: y[0], ode.terminate))
    assert times(solution) == pytest.approx([40.0], abs=1e-9)
    assert solution.retcode == "terminated" and solution.t[-1] == solution.events[0].t
    np.testing.assert_allclose(solution.u[-1], [0.0, -10.0], atol=1e-9)


def test_a_ball_that_rebounds_at_the_floor_meets_the_floor_again(run: Callable) -> None:
    """Restarting at the root with scipy and direction 0 stays there, or falls through."""

    def rebound(integrator: ode.Integrator) -> None:
        integrator.u[1] *= -0.9

    ball = lambda t, y: np.array([y[1], -9.81])  # noqa: E731
    solution = run(ball, [1.0, 0.0], (0.0, 3.0), ContinuousCallback(lambda t, y: y[0], rebound))
    expected = [0.451523640986, 1.264266194760, 1.995734493157, 2.654055961714]
    np.testing.assert_allclose(times(solution), expected, atol=1e-11)


def test_an_event_at_1e_13_seconds_is_as_exact_as_any_other(run: Callable) -> None:
    """scipy#15262: an electron from rest in 1e9 V/m, after 1e-6 m; its root tolerance was absolute."""
    acceleration = 1.602176634e-19 / 9.1093837015e-31 * 1e9
    exact = math.sqrt(2 * 1e-6 / acceleration)
    assert exact == pytest.approx(1.0663611125041267e-13, rel=1e-9)
    electron = lambda t, y: np.array([y[1], acceleration])  # noqa: E731
    callback = ContinuousCallback(lambda t, y: y[0] - 1e-6, ode.terminate)
    solution = run(electron, [0.0, 0.0], (0.0, 1.0), callback)
    assert times(solution) == pytest.approx([exact], rel=1e-12, abs=0)


def test_one_vector_condition_gives_an_event_for_each_component(run: Callable) -> None:
    """scipy#13018: y' = -y from (1, 2), g = y - 0.5."""
    callback = VectorContinuousCallback(lambda t, y: y - 0.5, nothing, 2)
    solution = run(lambda t, y: -y, [1.0, 2.0], (0.0, 5.0), callback, reltol=1e-10, abstol=1e-12)
    assert indices(solution) == [0, 1]
    np.testing.assert_allclose(times(solution), [LN2, 2 * LN2], atol=1e-9)


def test_the_state_at_a_terminal_event_is_the_last_that_is_saved(run: Callable) -> None:
    """scipy#12100 and #10319: with a wished-for time after the event nothing was returned."""
    cannon = lambda t, y: np.array([y[1], -0.5])  # noqa: E731
    callback = ContinuousCallback(lambda t, y: y[0], ode.terminate)
    solution = run(cannon, [0.0, 10.0], (0.0, 100.0), callback, tstops=[99.0], save_everystep=False)
    assert solution.t[-1] == pytest.approx(40.0, abs=1e-9)
    np.testing.assert_allclose(solution.u[-1], [0.0, -10.0], atol=1e-9)


def test_a_short_pulse_is_integrated_with_stops_at_its_edges(run: Callable) -> None:
    """scipy#18039: y' = 1 on [4.9, 5.1), 0 elsewhere, to t = 100."""
    on = False

    def switch(integrator: ode.Integrator) -> None:
        nonlocal on
        on = not on

    edges = [4.9, 5.1]
    callback = DiscreteCallback(lambda t, y: t in edges, switch)
    solution = run(lambda t, y: np.array([float(on)]), [0.0], (0.0, 100.0), callback, tstops=edges)
    assert solution.u[-1, 0] == pytest.approx(0.2, abs=1e-12)


@pytest.mark.parametrize("points", [0, 10])
def test_a_root_on_the_end_of_a_step_is_one_event(run: Callable, points: int) -> None:
    """scipy reports it twice: g = t - 0.5, steps of 0.25."""
    callback = ContinuousCallback(lambda t, y: t - 0.5, nothing, interp_points=points)
    solution = run(lambda t, y: np.zeros(1), [1.0], (0.0, 1.0), callback, dt=0.25, dtmax=0.25)
    assert times(solution) == [0.5]


def test_a_condition_cubed_finds_the_same_event(run: Callable) -> None:
    """DiffEqBase.jl#671: a fall of 50 m under 9.8 m/s²."""
    fall = lambda t, y: np.array([y[1], -9.8])  # noqa: E731
    for power in (1, 3):
        callback = ContinuousCallback(lambda t, y, power=power: y[0] ** power, ode.terminate)
        solution = run(fall, [50.0, 0.0], (0.0, 10.0), callback, reltol=1e-10, abstol=1e-12)
        assert times(solution) == pytest.approx([math.sqrt(100 / 9.8)], abs=2e-6 if power == 3 else 1e-12)


def test_simultaneous_events_all_fire_under_the_mask_rule(run: Callable) -> None:
    """DiffEqBase.jl#837, #889: out = [t - 1, t - 1], u_i += 1, u' = -u from (1, 1) to t = 5."""
    masks = []

    def add(integrator: ode.Integrator, mask: np.ndarray) -> None:
        masks.append(mask.copy())
        integrator.u[mask != 0] += 1.0

    callback = VectorContinuousCallback(lambda t, u: np.array([t - 1, t - 1]), add, 2, simultaneous="mask")
    solution = run(lambda t, u: -u, [1.0, 1.0], (0.0, 5.0), callback, reltol=1e-10, abstol=1e-12)
    np.testing.assert_allclose(solution.u[-1], 0.025053585888, atol=1e-10)
    assert len(masks) == 1 and masks[0].dtype == np.int8 and masks[0].tolist() == [-1, -1]
    assert [event.indices for event in solution.events] == [(0, 1)]


def test_simultaneous_events_lose_the_second_under_the_rule_of_generation_6(run: Callable) -> None:
    def add(integrator: ode.Integrator, index: int) -> None:
        integrator.u[index] += 1.0

    callback = VectorContinuousCallback(lambda t, u: np.array([t - 1, t - 1]), add, 2)
    solution = run(lambda t, u: -u, [1.0, 1.0], (0.0, 5.0), callback, reltol=1e-10, abstol=1e-12)
    np.testing.assert_allclose(solution.u[-1], [0.025053585888, 0.00673794700], atol=1e-10)
    assert indices(solution) == [0]


def test_the_mask_names_only_what_fires_and_in_which_direction(run: Callable) -> None:
    seen = []
    condition = lambda t, u: np.array([t - 1, 1 - t, t - 2, t + 1])  # noqa: E731
    affect = lambda integrator, mask: seen.append((integrator.t, mask.tolist()))  # noqa: E731
    run(lambda t, u: -u, [1.0], (0.0, 5.0), VectorContinuousCallback(condition, affect, 4, simultaneous="mask"))
    assert seen == [(1.0, [-1, 1, 0, 0]), (2.0, [0, 0, -1, 0])]


def test_close_events_of_several_components_come_in_order_in_backward_time(run: Callable) -> None:
    """DiffEqBase.jl#1245: from 1 to -1 the conditions t - 1e-8, t - 2e-8, t - 2e-7 and t are met last first."""
    condition = lambda t, u: np.array([t, t - 1e-8, t - 2e-8, t - 2e-7])  # noqa: E731
    callback = VectorContinuousCallback(condition, nothing, 4)
    solution = run(lambda t, u: np.zeros(1), [1.0], (1.0, -1.0), callback)
    assert indices(solution) == [3, 2, 1, 0]
    np.testing.assert_allclose(times(solution), [2e-7, 2e-8, 1e-8, 0.0], atol=1e-15)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_affect_sees_the_side_of_the_root_that_was_asked_for(run: Callable, side: str) -> None:
    """DifferentialEquations.jl#551: a ball with e = 0.8."""
    heights = []

    def rebound(integrator: ode.Integrator) -> None:
        heights.append(integrator.u[0])
        integrator.u[1] *= -0.8

    ball = lambda t, y: np.array([y[1], -9.81])  # noqa: E731
    run(ball, [1.0, 0.0], (0.0, 2.5), ContinuousCallback(lambda t, y: y[0], None, rebound, rootfind=side))
    assert len(heights) == 4 and max(map(abs, heights)) < 1e-12
    assert all(h >= 0 for h in heights) if side == "left" else all(h <= 0 for h in heights)


def test_an_event_at_time_zero_inside_the_run_is_found_once(run: Callable) -> None:
    """DifferentialEquations.jl#601: x = -10 + t from t = -10."""
    callback = ContinuousCallback(lambda t, x: t, nothing)
    solution = run(lambda t, x: np.ones(1), [-20.0], (-10.0, 10.0), callback)
    assert times(solution) == [0.0]


def test_a_condition_that_turns_nan_after_its_root_still_gives_the_root(run: Callable) -> None:
    """sundials#258: y = 2 - t, g = log y, one step to t = 3."""

    def condition(t: float, y: np.ndarray) -> float:
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(np.log(y[0]))

    down = lambda t, y: -np.ones(1)  # noqa: E731
    solution = run(down, [2.0], (0.0, 3.0), ContinuousCallback(condition, ode.terminate), dt=3.0)
    assert times(solution) == pytest.approx([1.0], abs=1e-14)
    with pytest.raises(ValueError, match="condition of callback 'terminate' is nan at t = 3.0"):
        run(down, [2.0], (0.0, 3.0), ContinuousCallback(condition, ode.terminate, interp_points=0), dt=3.0)


def test_an_event_that_never_happens_ends_with_the_run(run: Callable) -> None:
    """torchdiffeq hangs: u' = -u, g = u + 1."""
    solution = run(lambda t, u: -u, [1.0], (0.0, 100.0), ContinuousCallback(lambda t, u: u[0] + 1, ode.terminate))
    assert solution.events == () and solution.retcode == "success" and solution.t[-1] == 100.0


def test_a_steady_state_keeps_its_states(run: Callable) -> None:
    """diffrax#720: y' = 0 from 10, stopped at the first step where the rate is zero."""
    callback = DiscreteCallback(lambda t, y: True, ode.terminate)
    solution = run(lambda t, y: np.zeros(1), [10.0], (0.0, 1.0), callback)
    assert solution.retcode == "terminated" and (solution.u == 10.0).all() and len(solution.u) >= 2


# --- the bouncing ball
def bounces(run: Callable, bounce: Callable, e: float, tol: float, cured: bool = True) -> list[float]:
    resting = False

    def ball(t: float, y: np.ndarray) -> np.ndarray:
        return np.zeros(2) if resting else np.array([y[1], -9.81])

    def floor(integrator: ode.Integrator) -> None:
        nonlocal resting
        if cured:
            h, v, resting, integrator.dtmax = bounce(*integrator.u, e, 9.81, tol)
            integrator.u[:] = h, v
        else:
            integrator.u[1] *= -e

    return times(run(ball, [1.0, 0.0], (0.0, 10.0), ContinuousCallback(lambda t, y: y[0], None, floor)))


@pytest.mark.parametrize(
    "e, tol, count",
    [(0.9, 1e-3, 80), (0.9, 1e-6, 146), (0.9, 1e-9, 211), (0.5, 1e-3, 13), (0.5, 1e-6, 23), (0.5, 1e-9, 33)],
)
def test_the_ball_bounces_as_often_as_the_formula_says(
    run: Callable, parts: Any, e: float, tol: float, count: int
) -> None:
    impact = math.sqrt(2 * 9.81)
    assert count == math.ceil(math.log(tol / impact) / math.log(e))
    found = bounces(run, parts.bounce, e, tol)
    assert len(found) == count
    first = math.sqrt(2 / 9.81)
    flights = [2 * impact * e**k / 9.81 for k in range(1, count)]
    np.testing.assert_allclose(found, first + np.cumsum([0.0, *flights]), rtol=0, atol=1e-11)


@pytest.mark.parametrize("e, count, last", [(0.9, 43, 8.481643), (0.7, 13, 2.529468), (0.5, 7, 1.340461)])
def test_without_the_cure_the_ball_falls_through_the_floor(
    run: Callable, parts: Any, e: float, count: int, last: float
) -> None:
    """The repeat nudge of generation 6: the sign is read below the floor, and no crossing is ever seen again."""
    found = bounces(run, parts.bounce, e, 1e-6, cured=False)
    assert len(found) == count and found[-1] == pytest.approx(last, abs=2e-6)


# --- what a step owes to an event
def test_the_slope_after_an_event_is_fresh(run: Callable) -> None:
    """y' = -y, y := 3 at t = 0.5, fixed steps: an old first slope costs 1.4e-2, a fresh one 6e-10."""

    def reset(integrator: ode.Integrator) -> None:
        integrator.u[0] = 3.0

    callback = DiscreteCallback(lambda t, y: t == 0.5, reset)
    errors = []
    for h in (0.1, 0.05, 0.025):
        stops = (np.arange(1, round(1 / h)) * h).tolist() + [0.5]
        solution = run(lambda t, y: -y, [1.0], (0.0, 1.0), callback, dt=h, dtmax=h, tstops=stops)
        errors.append(abs(solution.u[-1, 0] - 3 * math.exp(-0.5)))
    assert errors[0] < 2e-9 and errors[1] < 1e-10 and errors[2] < 5e-12


def test_stale_slopes_are_what_the_driver_would_show() -> None:
    """A part that hands back the slope of before the event is seen in the answer, so the test above can fail."""
    parts = reference_parts()
    apply_event = parts["apply_event"]

    def stale(f: Callable, t: float, y: np.ndarray, affect: Callable, index: Any, save_positions: tuple) -> tuple:
        new, _, saved = apply_event(f, t, y, affect, index, save_positions)
        return new, f(t, y), saved

    def reset(integrator: ode.Integrator) -> None:
        integrator.u[0] = 3.0

    wrong = {**parts, "apply_event": stale}
    callback = DiscreteCallback(lambda t, y: t == 0.5, reset)
    stops = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    solution = ode.solve(wrong, lambda t, y: -y, [1.0], (0, 1), callback, dt=0.1, dtmax=0.1, tstops=stops, abstol=1.0)
    assert abs(solution.u[-1, 0] - 3 * math.exp(-0.5)) == pytest.approx(1.4e-2, rel=0.02)


@pytest.mark.parametrize(
    "flags, copies", [((True, True), 2), ((False, True), 2), ((True, False), 1), ((False, False), 1)]
)
def test_save_positions_count_as_in_generation_6(run: Callable, flags: tuple, copies: int) -> None:
    def jump(integrator: ode.Integrator) -> None:
        integrator.u[0] += 1.0

    callback = ContinuousCallback(lambda t, u: t - 0.5, jump, save_positions=flags)
    solution = run(lambda t, u: -u, [1.0], (0.0, 1.0), callback)
    assert (solution.t == 0.5).sum() == copies
    assert solution.u[solution.t == 0.5][0, 0] == pytest.approx(math.exp(-0.5), abs=1e-4)


def test_without_every_step_only_the_ends_and_the_event_are_saved(run: Callable) -> None:
    def jump(integrator: ode.Integrator) -> None:
        integrator.u[0] = 2.0

    for flags, count in (((True, True), 4), ((False, True), 3), ((True, False), 3), ((False, False), 2)):
        callback = ContinuousCallback(lambda t, u: t - 0.5, jump, save_positions=flags)
        solution = run(lambda t, u: -u, [1.0], (0.0, 1.0), callback, save_everystep=False)
        assert len(solution.t) == count
        assert solution.t[0] == 0.0 and solution.t[-1] == 1.0


def test_an_affect_that_says_it_changed_nothing_saves_nothing_after_it(run: Callable) -> None:
    def look(integrator: ode.Integrator) -> None:
        integrator.u_modified = False

    solution = run(lambda t, u: -u, [1.0], (0.0, 1.0), ContinuousCallback(lambda t, u: t - 0.5, look))
    assert (solution.t == 0.5).sum() == 1


def test_the_earliest_root_wins_over_the_lowest_index(run: Callable) -> None:
    condition = lambda t, u: np.array([1 - t, 1.2 - 1.5 * t])  # noqa: E731
    solution = run(lambda t, u: np.zeros(1), [1.0], (0.0, 2.0), VectorContinuousCallback(condition, nothing, 2), dt=2.0)
    assert indices(solution) == [1, 0]
    np.testing.assert_allclose(times(solution), [0.8, 1.0], atol=1e-15)


def test_the_earliest_of_several_callbacks_is_applied_first(run: Callable) -> None:
    order = []
    callbacks = [
        ContinuousCallback(lambda t, u: t - 0.7, lambda integrator: order.append("late")),
        ContinuousCallback(lambda t, u: t - 0.3, lambda integrator: order.append("early"), interp_points=3),
        DiscreteCallback(lambda t, u: t == 1.0, lambda integrator: order.append("end")),
    ]
    run(lambda t, u: np.zeros(1), [1.0], (0.0, 1.0), callbacks, dt=1.0)
    assert order == ["early", "late", "end"]


@pytest.mark.parametrize("tspan", [(0.0, 7.0), (7.0, 0.0)])
def test_affect_is_for_rising_and_affect_neg_for_falling_crossings_along_the_run(run: Callable, tspan: tuple) -> None:
    up, down = [], []
    rising = ContinuousCallback(lambda t, u: math.sin(t - 0.5), lambda i: up.append(i.t), lambda i: down.append(i.t))
    only_up = ContinuousCallback(lambda t, u: math.sin(t - 0.5), nothing, None, name="up")
    solution = run(lambda t, u: np.zeros(1), [1.0], tspan, [rising, only_up], dtmax=1.0)
    forward = tspan[0] == 0.0
    at_up = [0.5, 0.5 + 2 * math.pi] if forward else [0.5 + math.pi]
    at_down = [0.5 + math.pi] if forward else [0.5 + 2 * math.pi, 0.5]
    np.testing.assert_allclose(up, at_up, atol=1e-14)
    np.testing.assert_allclose(down, at_down, atol=1e-14)
    assert all(event.direction == (1 if event.t in up else -1) for event in solution.events)


def test_ties_between_callbacks_fire_once_each_and_do_not_set_each_other_off(run: Callable) -> None:
    """DifferentialEquations.jl#516: an infinite loop. Nowhere is sin(t - 0.5) exactly zero but at t = 0.5."""
    condition = lambda t, u: math.sin(t - 0.5)  # noqa: E731
    callbacks = [ContinuousCallback(condition, nothing, name=name) for name in "abc"]
    solution = run(lambda t, u: np.zeros(1), [1.0], (1.0, 7.0), callbacks, dtmax=1.0)
    assert [event.callback for event in solution.events] == ["a", "b", "c"] * 2
    np.testing.assert_allclose(times(solution), np.repeat([0.5 + math.pi, 0.5 + 2 * math.pi], 3), atol=1e-14)


def test_ties_between_components_that_are_never_exactly_zero_fire_one_after_the_other(run: Callable) -> None:
    condition = lambda t, u: np.array([1.0, -2.0, 3.0]) * math.sin(t - 0.5)  # noqa: E731
    callback = VectorContinuousCallback(condition, nothing, 3)
    solution = run(lambda t, u: np.zeros(1), [1.0], (1.0, 7.0), callback, dtmax=1.0)
    assert indices(solution) == [0, 1, 2, 0, 1, 2]
    assert [event.direction for event in solution.events] == [-1, 1, -1, 1, -1, 1]


def test_running_backward_undoes_running_forward(run: Callable) -> None:
    settings = {"reltol": 1e-11, "abstol": 1e-13}
    forward = run(ode.food_web, ode.FOOD_WEB_START, (0.0, 2.0), **settings)
    backward = run(ode.food_web, forward.u[-1], (2.0, 0.0), **settings)
    np.testing.assert_allclose(backward.u[-1], ode.FOOD_WEB_START, rtol=1e-9)
    assert (np.diff(backward.t) < 0).all()


def test_the_solution_can_be_asked_between_its_points(run: Callable) -> None:
    def jump(integrator: ode.Integrator) -> None:
        integrator.u[0] = 2.0

    settings = {"reltol": 1e-10, "abstol": 1e-12, "dense": True}
    solution = run(lambda t, u: -u, [1.0], (0.0, 1.0), ContinuousCallback(lambda t, u: t - 0.5, jump), **settings)
    asked = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    exact = np.where(asked <= 0.5, np.exp(-asked), 2 * np.exp(0.5 - asked))
    np.testing.assert_allclose(solution(asked)[:, 0], exact, atol=1e-8)
    assert solution(0.25).shape == (1,)
    with pytest.raises(ValueError, match="covers 0.0 to 1.0"):
        solution(1.5)


def test_an_empty_time_span_returns_the_start(run: Callable) -> None:
    solution = run(lambda t, u: -u, [1.0], (2.0, 2.0))
    assert solution.t.tolist() == [2.0] and solution.u.tolist() == [[1.0]]


def test_both_solvers_take_the_same_steps() -> None:
    settings = {"reltol": 1e-6, "abstol": 1e-8}
    a, b = (run(ode.food_web, [10.0] * 4, (0.0, 10.0), seed_callback(), **settings) for run in RUNNERS.values())
    # A short first step's error is a difference of nearly equal numbers, and steers the second: last bits grow to 1e-7.
    np.testing.assert_allclose(a.t, b.t, rtol=1e-5)
    np.testing.assert_allclose(a.u, b.u, rtol=1e-5, atol=1e-6)


def test_the_fast_solver_takes_right_hand_sides_that_write_in_place() -> None:
    def web(t: float, u: np.ndarray, out: np.ndarray) -> None:
        np.dot(ode.FOOD_WEB_MATRIX, u, out=out)

    fast = RUNNERS["fast"]
    settings = {"reltol": 1e-10, "abstol": 1e-15}
    solution = fast(web, [10] * 4, (0.0, 10.0), seed_callback(batched=True), inplace=True, **settings)
    np.testing.assert_allclose(solution.u[-1], SEED_END, rtol=1e-9)


def test_the_gradient_of_an_event_time_is_that_of_finite_differences(run: Callable, parts: Any) -> None:
    def event_time(u0: np.ndarray) -> float:
        callback = ContinuousCallback(lambda t, u: u[3] - 0.05, ode.terminate)
        solution = run(ode.food_web, u0, (0.0, 2.0), callback, reltol=1e-11, abstol=1e-13)
        return solution.events[0].t

    t, _, u = SEED_EVENTS[0]
    sensitivity = expm(ode.FOOD_WEB_MATRIX * t)
    gradient = parts.event_time_grad(lambda time, y: y[3] - 0.05, ode.food_web, t, np.array(u), sensitivity)
    expected = [-0.2389236499081976, 0.05573732146623709, -0.01982950299433791, 0.2037523970462095]
    np.testing.assert_allclose(gradient, expected, rtol=1e-11)
    for i, step in enumerate(1e-4 * np.eye(4)):
        start = ode.FOOD_WEB_START
        assert gradient[i] == pytest.approx((event_time(start + step) - event_time(start - step)) / 2e-4, abs=1e-7)


# --- no event is lost or doubled
@st.composite
def polynomials(draw: st.DrawFn) -> list[list[float]]:
    """Roots of one to three polynomials in (0, 10), all at least 0.15 apart from each other and from the ends."""
    places = draw(st.lists(st.integers(1, 48), unique=True, max_size=9))
    jitter = draw(st.lists(st.floats(-0.025, 0.025), min_size=len(places), max_size=len(places)))
    roots: list[list[float]] = [[] for _ in range(draw(st.integers(1, 3)))]
    for place, shift in zip(places, jitter, strict=True):
        roots[draw(st.integers(0, len(roots) - 1))].append(0.2 * place + shift)
    return roots


@pytest.mark.parametrize("name", list(RUNNERS))
@settings(max_examples=50, deadline=None)
@given(
    roots=polynomials(),
    sign=st.sampled_from([1.0, -1.0]),
    wanted=st.sampled_from([0, 1, -1]),
    backward=st.booleans(),
    side=st.sampled_from(["left", "right"]),
    scale=st.floats(1e-6, 1e6),
)
def test_no_event_is_lost_or_doubled(
    name: str, roots: list, sign: float, wanted: int, backward: bool, side: str, scale: float
) -> None:
    """Samples are at most 0.1 apart, roots at least 0.15; the affect changes a component the conditions do not see."""

    def condition(t: float, u: np.ndarray) -> list[float]:
        return [scale * sign * math.prod(u[0] - r for r in rs) for rs in roots]

    def jump(integrator: ode.Integrator, index: int) -> None:
        integrator.u[1] += 1.0

    callback = VectorContinuousCallback(
        condition,
        jump if wanted >= 0 else None,
        len(roots),
        affect_neg=jump if wanted <= 0 else None,
        rootfind=side,
    )
    t0, t1 = (10.0, 0.0) if backward else (0.0, 10.0)
    solution = RUNNERS[name](lambda t, u: np.array([1.0, -u[1]]), [t0, 0.0], (t0, t1), callback, dtmax=1.0)
    expected = []
    for i, rs in enumerate(roots):
        before = np.sign(sign * math.prod(t0 - r for r in rs))
        for r in sorted(rs, reverse=backward):
            if wanted in (0, -before):
                expected.append((r, i))
            before = -before
    expected.sort(reverse=backward)
    assert indices(solution) == [i for _, i in expected]
    np.testing.assert_allclose(times(solution), [r for r, _ in expected], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", list(RUNNERS))
@settings(max_examples=30, deadline=None)
@given(
    root=st.floats(0.5, 9.5),
    slopes=st.lists(st.floats(0.1, 10.0) | st.floats(-10.0, -0.1), min_size=1, max_size=5),
    backward=st.booleans(),
)
def test_ties_all_fire_once_under_the_mask_rule(name: str, root: float, slopes: list, backward: bool) -> None:
    count = np.zeros(len(slopes), dtype=int)

    def tally(integrator: ode.Integrator, mask: np.ndarray) -> None:
        nonlocal count
        count = count + np.abs(mask)

    callback = VectorContinuousCallback(
        lambda t, u: np.array(slopes) * (t - root), tally, len(slopes), simultaneous="mask"
    )
    RUNNERS[name](lambda t, u: -u, [1.0], (10.0, 0.0) if backward else (0.0, 10.0), callback, dtmax=1.0)
    assert (count == 1).all()


ADJACENT_ROOT = module(HERE / "fast.py").adjacent_root
BRACKET_ROOT = reference_parts()["bracket_root"]


@settings(max_examples=100, deadline=None)
@given(
    root=st.floats(-10.0, 10.0),
    left=st.floats(1e-6, 10.0),
    right=st.floats(1e-6, 10.0),
    shape=st.sampled_from([lambda x: x, math.sinh, math.atan, lambda x: x**3, lambda x: x + x**5, math.expm1]),
    rising=st.booleans(),
    reverse=st.booleans(),
    side=st.sampled_from(["left", "right"]),
)
def test_the_fast_root_finder_gives_the_float_that_bisection_gives(
    root: float, left: float, right: float, shape: Callable, rising: bool, reverse: bool, side: str
) -> None:
    calls = 0

    def g(t: float) -> float:
        nonlocal calls
        calls += 1
        return shape(t - root) if rising else -shape(t - root)

    a, b = root - left, root + right
    if reverse:
        a, b = b, a
    if g(a) == 0 or g(b) == 0 or math.copysign(1, g(a)) == math.copysign(1, g(b)):
        return
    calls = 0
    expected = BRACKET_ROOT(g, a, b, side)
    by_bisection, calls = calls, 0
    found = ADJACENT_ROOT(g, a, b, g(a), g(b), side)
    assert calls <= 4 * max(by_bisection, 60)
    assert g(found) == 0 == g(expected) or found == expected


# --- bad input
def test_nan_from_f_names_time_and_component(run: Callable) -> None:
    broken = lambda t, u: np.array([-u[0], math.nan if t > 0.5 else 0.0])  # noqa: E731
    with pytest.raises(ValueError, match=r"f returned nan in component 1 at t = 0\.\d+"):
        run(broken, [1.0, 1.0], (0.0, 1.0))


def test_a_rate_of_the_wrong_shape_is_named(run: Callable) -> None:
    with pytest.raises(ValueError, match=r"f returned shape \(1,\) at t = 0.0, expected the state's \(2,\)"):
        run(lambda t, u: np.ones(1), [1.0, 1.0], (0.0, 1.0))


def test_nan_from_a_condition_names_the_callback(run: Callable) -> None:
    callback = ContinuousCallback(lambda t, u: math.nan if t > 0.5 else 1.0, nothing, name="sensor")
    with pytest.raises(ValueError, match="condition of callback 'sensor' is nan at t = "):
        run(lambda t, u: -u, [1.0], (0.0, 1.0), callback)


def test_a_step_below_the_resolution_of_the_time_is_named(run: Callable) -> None:
    with pytest.raises(ode.StepSizeError, match=r"below the machine's resolution at t = (1\.0|0\.9999)"):
        run(lambda t, u: u * u, [1.0], (0.0, 2.0))


@pytest.mark.parametrize(
    "keyword, meant", [("cb", "callbacks"), ("callback", "callbacks"), ("rtol", "reltol"), ("abs_tol", "abstol")]
)
def test_an_unknown_keyword_is_named_with_the_one_that_was_meant(run: Callable, keyword: str, meant: str) -> None:
    """DifferentialEquations.jl#677: `cb=` was ignored without a word."""
    with pytest.raises(TypeError, match=f"no keyword '{keyword}'; did you mean {meant}"):
        run(lambda t, u: -u, [1.0], (0.0, 1.0), **{keyword: None})


@pytest.mark.parametrize("points", [-1, 2.5, True])
def test_interp_points_must_be_a_count(points: Any) -> None:
    with pytest.raises(ValueError, match="interp_points must be an integer of at least 0"):
        ContinuousCallback(lambda t, u: t, nothing, interp_points=points)
    with pytest.raises(ValueError, match="interp_points must be an integer of at least 0"):
        VectorContinuousCallback(lambda t, u: t, nothing, 1, interp_points=points)


def test_an_affect_that_changes_the_shape_is_named(run: Callable) -> None:
    def remove(integrator: ode.Integrator) -> None:
        integrator.u = integrator.u[:1]

    with pytest.raises(
        ValueError, match=r"affect of callback 'remove' changed the state's shape from \(2,\) to \(1,\)"
    ):
        run(lambda t, u: -u, [1.0, 2.0], (0.0, 1.0), ContinuousCallback(lambda t, u: t - 0.5, remove))


def test_an_affect_may_put_a_new_state_of_the_same_shape(run: Callable) -> None:
    def swap(integrator: ode.Integrator) -> None:
        integrator.u = integrator.u[::-1]

    solution = run(lambda t, u: np.zeros(2), [1, 2], (0.0, 1.0), ContinuousCallback(lambda t, u: t - 0.5, swap))
    assert solution.u[-1].tolist() == [2.0, 1.0]
    assert solution.events[0].u_before.tolist() == [1.0, 2.0]


def test_an_affect_that_returns_the_new_state_is_told_so(run: Callable) -> None:
    callback = ContinuousCallback(lambda t, u: t - 0.5, lambda integrator: integrator.u * 0, name="reset")
    with pytest.raises(TypeError, match="affect of callback 'reset' returned ndarray; .* in place"):
        run(lambda t, u: -u, [1.0], (0.0, 1.0), callback)


def test_a_callback_that_fires_for_ever_is_stopped_with_time_and_name(run: Callable) -> None:
    """A ball whose rebounds pile up at 1.3546 s, without a flag for contact."""

    def floor(integrator: ode.Integrator) -> None:
        integrator.u[1] *= -0.5
        integrator.dtmax = max(integrator.u[1] / 9.81, 1e-300)

    callback = ContinuousCallback(lambda t, u: u[0], None, floor)
    with pytest.raises(ode.CallbackLimitError, match=r"'floor' has fired more than 20 times, last at t = 1\.354"):
        run(lambda t, u: np.array([u[1], -9.81]), [1.0, 0.0], (0.0, 10.0), callback, max_events=20)


def test_steps_of_a_few_floats_still_tell_falling_from_rising(run: Callable, parts: Any) -> None:
    """Without a rest rule the flights shrink to nothing: several sample times are one float then."""

    def floor(integrator: ode.Integrator) -> None:
        h, v, _, integrator.dtmax = parts.bounce(*integrator.u, 0.5, 9.81, 0.0)
        integrator.u[:] = h, v

    callback = ContinuousCallback(lambda t, u: u[0], None, floor)
    with pytest.raises((ode.CallbackLimitError, ode.StepSizeError), match=r"t = 1\.354"):
        run(lambda t, u: np.array([u[1], -9.81]), [1.0, 0.0], (0.0, 10.0), callback, max_events=200)


def test_an_affect_that_throws_the_state_back_over_the_line_is_stopped(run: Callable) -> None:
    def push(integrator: ode.Integrator) -> None:
        integrator.u[0] = -1e-9

    callback = ContinuousCallback(lambda t, u: u[0], push)
    with pytest.raises(ode.CallbackLimitError, match=r"'push' has fired more than 100 times, last at t = 1\.0"):
        run(lambda t, u: np.ones(1), [-1.0], (0.0, 2.0), callback, max_events=100)


def test_integers_are_promoted(run: Callable) -> None:
    solution = run(lambda t, u: -u, [1, 2], (0, 1), reltol=1e-10, abstol=1e-12)
    assert solution.u.dtype == np.float64 and solution.t.dtype == np.float64
    np.testing.assert_allclose(solution.u[-1], np.exp(-1) * np.array([1, 2]), rtol=1e-9)


def test_the_start_is_left_as_it_is(run: Callable) -> None:
    start = np.array([1.0, 2.0])
    callback = ContinuousCallback(lambda t, u: t - 0.5, lambda integrator: integrator.u.fill(9.0))
    run(lambda t, u: -u, start, (0.0, 1.0), callback)
    assert start.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "u0, error, words",
    [
        ([1 + 2j], TypeError, "real numbers"),
        (["a"], TypeError, "real numbers"),
        ([math.nan], ValueError, "finite"),
        ([], ValueError, "vector"),
        ([[1.0]], ValueError, "vector"),
    ],
)
def test_a_start_that_is_no_vector_of_numbers_is_refused(run: Callable, u0: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        run(lambda t, u: -u, u0, (0.0, 1.0))


@pytest.mark.parametrize(
    "setting, words",
    [
        ({"reltol": -1.0}, "reltol"),
        ({"reltol": 0.0, "abstol": 0.0}, "both 0"),
        ({"dtmax": 0.0}, "dtmax"),
        ({"dt": -0.1}, "dt must be positive"),
        ({"max_events": 0}, "max_events"),
        ({"abstol": math.nan}, "abstol"),
    ],
)
def test_a_setting_out_of_range_is_named(run: Callable, setting: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run(lambda t, u: -u, [1.0], (0.0, 1.0), **setting)


def test_a_run_that_needs_too_many_steps_says_how_far_it_came(run: Callable) -> None:
    with pytest.raises(RuntimeError, match="3 steps were tried and t = 0"):
        run(lambda t, u: -u, [1.0], (0.0, 100.0), maxiters=3)


def test_a_callback_needs_an_affect_and_a_known_side() -> None:
    with pytest.raises(ValueError, match="needs an affect"):
        ContinuousCallback(lambda t, u: t, None)
    with pytest.raises(ValueError, match='"left" or "right"'):
        ContinuousCallback(lambda t, u: t, nothing, rootfind="middle")
    with pytest.raises(ValueError, match="no affect_neg"):
        VectorContinuousCallback(lambda t, u: t, nothing, 1, affect_neg=nothing, simultaneous="mask")
    with pytest.raises(ValueError, match="length"):
        VectorContinuousCallback(lambda t, u: t, nothing, 0)


def test_something_that_is_no_callback_is_refused(run: Callable) -> None:
    with pytest.raises(TypeError, match="callbacks takes"):
        run(lambda t, u: -u, [1.0], (0.0, 1.0), [nothing])


def test_a_condition_of_the_wrong_length_is_named(run: Callable) -> None:
    callback = VectorContinuousCallback(lambda t, u: u, nothing, 3, name="web")
    with pytest.raises(ValueError, match="condition of callback 'web' returned shape .* expected 3 values each"):
        run(lambda t, u: -u, [1.0, 1.0], (0.0, 1.0), callback)


def test_a_missing_part_is_named(parts: Any) -> None:
    some = {name: getattr(parts, name) for name in ("rk_step", "err_norm", "pi_control", "init_dt", "dense")}
    assert ode.solve(some, lambda t, u: -u, [1.0], (0.0, 1.0)).t[-1] == 1.0
    with pytest.raises(TypeError, match="needs the function detect among its parts"):
        ode.solve(some, lambda t, u: -u, [1.0], (0.0, 1.0), ContinuousCallback(lambda t, u: t - 0.5, nothing))


def test_the_progress_bar_is_plain_and_on_standard_output(parts: Any, capsys: pytest.CaptureFixture) -> None:
    ode.solve(parts, lambda t, u: -u, [1.0], (0.0, 1.0), progress=True)
    seen = capsys.readouterr()
    assert "100%" in seen.out and seen.err == ""
    ode.solve(parts, lambda t, u: -u, [1.0], (0.0, 1.0))
    assert capsys.readouterr().out == ""


def test_the_tableau_is_of_fifth_order_and_its_interpolant_joins_smoothly() -> None:
    c, a = ode.C, ode.A
    np.testing.assert_allclose(a.sum(axis=1), c, atol=1e-14)
    weights = a[6]
    for power in range(1, 5):
        assert weights @ c[:6] ** power == pytest.approx(1 / (power + 1), abs=1e-14)
    np.testing.assert_allclose(ode.R.sum(axis=1), [*weights, 0.0], atol=1e-14)
    np.testing.assert_allclose(ode.R @ [1, 2, 3, 4], [0, 0, 0, 0, 0, 0, 1], atol=1e-13)
    assert abs(ode.E.sum()) < 1e-15
