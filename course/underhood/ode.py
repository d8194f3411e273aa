"""The driver of chapter 5: an ODE solver with callbacks whose numerical parts the learner writes.

`solve` holds what is bookkeeping: the loop over steps, the callbacks, the saving. Everything that is numerical analysis
it asks of `parts`: `rk_step`, `err_norm`, `pi_control`, `init_dt`, `dense`, `bracket_root`, `detect`, `first_event` and
`apply_event`.

Which callbacks. SciML's callbacks (DifferentialEquations.jl) changed in 2026. This driver follows *generation 6*
(OrdinaryDiffEq.jl 6, DiffEqBase.jl 6), because the question that the chapter answers was asked of it and because its
affects are told one index at a time. In generation 6

- a component whose condition is exactly zero at the start of a step cannot fire in that step before it has left zero;
- the earliest root of a step is the step's only event; of equal roots the lowest index fires;
- after an event the step size is the full length of the step that the event cut short;
- after an event, if the condition is still within 100 times its value at the event, the sign to start from is read a
  hundredth of a step later ("repeat nudge"). This keeps an affect that changes nothing from firing for ever, and lets a
  bouncing ball fall through the floor. One thing is added: of several that fire at one and the same time, all are
  guarded, not only the last, so that two of them cannot set each other off for ever (DifferentialEquations.jl #516);
- `affect` is for crossings from minus to plus, `affect_neg` for those from plus to minus; left out, it is the same
  function;
- where every step is saved, the state before an event is saved whatever `save_positions[0]` says.

In generation 7 the affect of a VectorContinuousCallback receives a mask of all components that fire together (int8: -1
from minus to plus, +1 from plus to minus, 0 not) and there is no `affect_neg`. `simultaneous="mask"` selects that rule;
take it where two conditions can be zero at the same time, since the rule of generation 6 then loses the second one.

Sources: DiffEqBase.jl 6.81 `src/callbacks.jl`; OrdinaryDiffEq.jl 6.6 `src/integrators/integrator_utils.jl`; for
generation 7 OrdinaryDiffEq.jl's `NEWS.md` (VectorContinuousCallback).
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

# --- tableau
# Tsit5: Ch. Tsitouras, Runge-Kutta pairs of order 5(4) satisfying only the first column simplifying assumption,
# Computers & Mathematics with Applications 62 (2011) 770-775; digits as in OrdinaryDiffEq.jl,
# `low_order_rk_tableaus.jl` and `interpolants.jl`.

C = np.array([0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0])
"""Nodes: stage i is evaluated at t + C[i] h."""

A = np.array(
    [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.161, 0.0, 0.0, 0.0, 0.0, 0.0],
        [-0.008480655492356989, 0.335480655492357, 0.0, 0.0, 0.0, 0.0],
        [2.8971530571054935, -6.359448489975075, 4.3622954328695815, 0.0, 0.0, 0.0],
        [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525, 0.0, 0.0],
        [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383, 0.0],
        [0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774],
    ]
)
"""Stages: row i holds the weights of the slopes 0 ... i-1. The last row gives the new state."""

E = np.array(
    [
        -0.00178001105222577714,
        -0.0008164344596567469,
        0.007880878010261995,
        -0.1447110071732629,
        0.5823571654525552,
        -0.45808210592918697,
        1 / 66,
    ]
)
"""Error weights: h E·K estimates the error of the new state (fifth minus fourth order)."""

R = np.array(
    [
        [1.0, -2.763706197274826, 2.9132554618219126, -1.0530884977290216],
        [0.0, 0.13169999999999998, -0.2234, 0.1017],
        [0.0, 3.9302962368947516, -5.941033872131505, 2.490627285651253],
        [0.0, -12.411077166933676, 30.33818863028232, -16.548102889244902],
        [0.0, 37.50931341651104, -88.1789048947664, 47.37952196281928],
        [0.0, -27.896526289197286, 65.09189467479366, -34.87065786149661],
        [0.0, 1.5, -4.0, 2.5],
    ]
)
"""Interpolant: slope i has the weight b_i(theta) = R[i, 0] theta + R[i, 1] theta² + R[i, 2] theta³ + R[i, 3] theta⁴."""

# PI controller of OrdinaryDiffEq.jl (`controllers.jl`, `alg_utils.jl`): how much of the error enters, how the step may
# change.
BETA1, BETA2 = 7 / 50, 2 / 25
GAMMA = 9 / 10
Q_MIN, Q_MAX = 1 / 5, 10.0  # a new step is between Q_MIN and Q_MAX times the old one
ERR_OLD_INIT = 1e-4  # the error "before the first step", and the least that is remembered

for _constant in (C, A, E, R):
    _constant.setflags(write=False)

# --- food web
FOOD_WEB_MATRIX = np.array(
    [
        [-0.7, 0.1, 0.15, -0.2],
        [0.0, -0.3, 0.05, -0.4],
        [-0.15, -0.005, -0.1, 0.0],
        [-1.7, 0.4, 0.0, 0.2],
    ]
)
"""The public question's model, u' = M u: what each species (row) gains or loses per unit of each species (column)."""

FOOD_WEB_START = np.full(4, 10.0)
"""Ten units of biomass of each species at t = 0."""

FOOD_WEB_THRESHOLD = 0.05
"""A species at or below this biomass counts as extinct."""

FOOD_WEB_MATRIX.setflags(write=False)
FOOD_WEB_START.setflags(write=False)


def food_web(t: float, u: np.ndarray) -> np.ndarray:
    """Rate of change of the four biomasses: u' = M u (time does not enter).

    Parameters
    ----------
    t
        Time.
    u
        Biomasses, shape (4,), float64.

    Returns
    -------
    numpy.ndarray
        Shape (4,), float64.
    """
    return FOOD_WEB_MATRIX @ u


RightHandSide = Callable[[float, np.ndarray], np.ndarray]
"""f(t, y) -> slope of y, shape (n,)."""


# --- values
class CallbackLimitError(RuntimeError):
    """A continuous callback fired more often than `max_events` allows."""


class StepSizeError(ArithmeticError):
    """The step size is no number, or so small that adding it to the time changes nothing."""


@dataclass
class Integrator:
    """What an affect sees and may change, named as in DifferentialEquations.jl.

    Attributes
    ----------
    t
        Time of the event.
    u
        State at the event, shape (n,). Change it in place (`integrator.u[3] = 0.0`) or put a new array of the same
        shape there.
    f
        Right-hand side, `f(t, u)`. A new one put there is used from the event on.
    dtmax
        Largest step from here on, positive.
    u_modified
        Set it to False when the affect changed nothing: then no state is saved after the event.
    """

    t: float
    u: np.ndarray
    f: Callable[[float, np.ndarray], Any]
    dtmax: float = math.inf
    u_modified: bool = True
    terminated: bool = False

    def terminate(self) -> None:
        """End the run at this event."""
        self.terminated = True


def terminate(integrator: Integrator, index: Any = None) -> None:
    """An affect that ends the run at the event: `ContinuousCallback(condition, terminate)`."""
    integrator.terminate()


SAME = "same as affect"


def _check_callback(callback: Any) -> None:
    if not callable(callback.condition):
        raise TypeError(f"condition must be a function, got {callback.condition!r}")
    if len(callback.save_positions) != 2:
        raise ValueError(f"save_positions needs two flags (before, after), got {callback.save_positions!r}")


def _check_continuous(callback: Any) -> None:
    _check_callback(callback)
    points = callback.interp_points
    if isinstance(points, bool) or not isinstance(points, int | np.integer) or points < 0:
        raise ValueError(f"interp_points must be an integer of at least 0, got {points!r}")
    if callback.rootfind not in ("left", "right"):
        raise ValueError(f'rootfind must be "left" or "right", got {callback.rootfind!r}')
    if callback.affect is None and callback.affect_neg in (None, SAME):
        raise ValueError("a callback needs an affect, an affect_neg, or both")
    for name in ("affect", "affect_neg"):
        function = getattr(callback, name)
        if function is not None and function is not SAME and not callable(function):
            raise TypeError(f"{name} must be a function or None, got {function!r}")


@dataclass(frozen=True)
class ContinuousCallback:
    """Act when one condition passes through zero.

    Parameters
    ----------
    condition
        `condition(t, u) -> float`; with `batched`, `condition(t (m,), u (m, n)) -> (m,)`.
    affect
        `affect(integrator)` for crossings from minus to plus, or None.
    affect_neg
        The same for crossings from plus to minus; the default is `affect` itself.
    rootfind
        "left": the event is the last float before the sign change, so that no barrier is crossed; "right": the first
        float after.
    interp_points
        Number of equal sub-intervals of a step at whose ends the condition is looked at. 0 looks at the step's ends
        only (as 1 does). Two crossings within one sub-interval cancel and are not seen.
    save_positions
        Whether the state is saved (before, after) the affect.
    repeat_nudge
        Fraction of a step after which the sign is read again when this callback fired last (see the module).
    batched
        Whether the condition takes all times of a step at once.
    name
        What messages call it; the default is the affect's name.

    Raises
    ------
    ValueError
        interp_points below 0, an unknown rootfind, no affect at all.
    """

    condition: Callable[..., Any]
    affect: Callable[..., None] | None
    affect_neg: Callable[..., None] | str | None = SAME
    rootfind: Literal["left", "right"] = "left"
    interp_points: int = 10
    save_positions: tuple[bool, bool] = (True, True)
    repeat_nudge: float = 0.01
    batched: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        _check_continuous(self)


@dataclass(frozen=True)
class VectorContinuousCallback:
    """Act when one of several conditions passes through zero; cheaper than as many ContinuousCallbacks.

    Parameters
    ----------
    condition
        `condition(t, u) -> (length,)`; with `batched`, `condition(t (m,), u (m, n)) -> (m, length)`.
    affect
        `affect(integrator, index)` for crossings from minus to plus, or None. With `simultaneous="mask"` it is
        `affect(integrator, mask)` for both directions; the mask is int8 of shape (length,).
    length
        Number of conditions.
    simultaneous
        "first": of equal roots the lowest index fires (generation 6); "mask": all of them, in one call (generation 7).
    affect_neg, rootfind, interp_points, save_positions, repeat_nudge, batched, name
        As in `ContinuousCallback`.

    Raises
    ------
    ValueError
        As in `ContinuousCallback`; a length below 1; an affect_neg together with "mask".
    """

    condition: Callable[..., Any]
    affect: Callable[..., None] | None
    length: int
    affect_neg: Callable[..., None] | str | None = SAME
    rootfind: Literal["left", "right"] = "left"
    interp_points: int = 10
    save_positions: tuple[bool, bool] = (True, True)
    simultaneous: Literal["first", "mask"] = "first"
    repeat_nudge: float = 0.01
    batched: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        _check_continuous(self)
        if self.length < 1:
            raise ValueError(f"length must be at least 1, got {self.length!r}")
        if self.simultaneous not in ("first", "mask"):
            raise ValueError(f'simultaneous must be "first" or "mask", got {self.simultaneous!r}')
        if self.simultaneous == "mask" and self.affect_neg is not SAME:
            raise ValueError('with simultaneous="mask" there is no affect_neg: the mask tells the direction')


@dataclass(frozen=True)
class DiscreteCallback:
    """Act at the end of a step where a condition is true.

    Parameters
    ----------
    condition
        `condition(t, u) -> bool`, asked at the end of every accepted step, after the continuous callbacks.
    affect
        `affect(integrator)`.
    save_positions
        Whether the state is saved (before, after) the affect.
    name
        What messages call it; the default is the affect's name.
    """

    condition: Callable[..., Any]
    affect: Callable[..., None]
    save_positions: tuple[bool, bool] = (True, True)
    name: str = ""

    def __post_init__(self) -> None:
        _check_callback(self)
        if not callable(self.affect):
            raise TypeError(f"affect must be a function, got {self.affect!r}")


Continuous = ContinuousCallback | VectorContinuousCallback


@dataclass(frozen=True, eq=False)
class Event:
    """A continuous event that was applied.

    Attributes
    ----------
    t
        Its time.
    callback
        The callback's name.
    indices
        The components that fired, lowest first; (0,) for a ContinuousCallback.
    direction
        +1 where the (first) condition rose through zero, -1 where it fell, in the direction of the run.
    u_before, u_after
        The states around the affect, shape (n,).
    """

    t: float
    callback: str
    indices: tuple[int, ...]
    direction: int
    u_before: np.ndarray
    u_after: np.ndarray

    @property
    def index(self) -> int:
        """The lowest component that fired."""
        return self.indices[0]


@dataclass(frozen=True)
class Statistics:
    """What a run cost: calls of f, accepted and rejected steps."""

    nf: int
    naccept: int
    nreject: int


@dataclass(frozen=True, eq=False)
class Solution:
    """A run.

    Attributes
    ----------
    t
        Saved times, shape (m,), float64. At an event a time stands twice.
    u
        Saved states, shape (m, n), float64.
    events
        The continuous events, in order.
    retcode
        "success", or "terminated" when an affect ended the run.
    statistics
        Calls of f, accepted and rejected steps.
    """

    t: np.ndarray
    u: np.ndarray
    events: tuple[Event, ...]
    retcode: Literal["success", "terminated"]
    statistics: Statistics
    pieces: tuple[tuple, ...] = field(default=(), repr=False)  # (t, h, end, y, K) of every accepted step
    interpolant: Callable[..., np.ndarray] | None = field(default=None, repr=False)

    def __call__(self, t: float | Sequence[float] | np.ndarray) -> np.ndarray:
        """The state between the saved points, by the solver's own interpolant; at an event, the state before it.

        Parameters
        ----------
        t
            One time or several, within the run.

        Returns
        -------
        numpy.ndarray
            Shape (n,) for one time, (m, n) for m of them.

        Raises
        ------
        ValueError
            A time outside the run, or a run that kept no interpolant (`dense=False`).
        """
        if not self.pieces or self.interpolant is None:
            raise ValueError("no interpolant was kept: solve with dense=True, over a time span that is not empty")
        times = np.atleast_1d(np.asarray(t, dtype=np.float64))
        direction = 1.0 if self.pieces[0][1] > 0 else -1.0
        ends = np.array([piece[2] for piece in self.pieces])
        if ((times - self.t[0]) * direction < 0).any() or ((times - ends[-1]) * direction > 0).any():
            raise ValueError(f"the run covers {float(self.t[0])!r} to {float(ends[-1])!r}, asked for {t!r}")
        rows = []
        for time, place in zip(times, np.searchsorted(ends * direction, times * direction, side="left"), strict=True):
            start, h, _, y, slopes = self.pieces[place]
            rows.append(self.interpolant((time - start) / h, y, h, slopes))
        return np.array(rows) if np.ndim(t) else rows[0]


# --- pieces that any driver can share
def callback_name(callback: Continuous | DiscreteCallback) -> str:
    """What messages call a callback."""
    function: Any = callback.affect
    if function is None:
        function = getattr(callback, "affect_neg", None)
    return callback.name or getattr(function, "__name__", type(callback).__name__)


def conditions_at(callback: Continuous, times: np.ndarray, states: np.ndarray) -> np.ndarray:
    """All conditions of a callback at several points, shape (m, length).

    Parameters
    ----------
    callback
        A continuous callback with `length` conditions (1 for a ContinuousCallback).
    times, states
        Shapes (m,) and (m, n).

    Raises
    ------
    ValueError
        The condition's result has another number of values.
    """
    length = getattr(callback, "length", 1)
    if callback.batched:
        values = np.asarray(callback.condition(times, states), dtype=np.float64)
    else:
        values = np.array(
            [callback.condition(float(t), u) for t, u in zip(times, states, strict=True)], dtype=np.float64
        )
    if values.size != len(times) * length:
        raise ValueError(
            f"the condition of callback {callback_name(callback)!r} returned shape {values.shape} for {len(times)} "
            f"time{'s' if len(times) != 1 else ''}, expected {length} value{'s' if length != 1 else ''} each"
        )
    return values.reshape(len(times), length)


def directions_of(callback: Continuous) -> int:
    """+1 when only rising crossings fire, -1 when only falling ones, 0 when both do."""
    rising = callback.affect is not None
    falling = rising if callback.affect_neg is SAME else callback.affect_neg is not None
    return int(rising) - int(falling)


def affect_of(callback: Continuous | DiscreteCallback, direction: int, argument: Any) -> Callable[[Integrator], Any]:
    """The affect for a crossing, as a function of the integrator alone."""
    function: Any = callback.affect
    falling: Any = getattr(callback, "affect_neg", SAME)
    if direction < 0 and falling is not SAME:
        function = falling
    if isinstance(callback, VectorContinuousCallback):
        return lambda integrator: function(integrator, argument)
    return function


def run_affect(affect: Callable[[Integrator], Any], integrator: Integrator, u: np.ndarray, name: str) -> None:
    """Let an affect change `u` in place through the integrator.

    Raises
    ------
    ValueError
        The affect changed the state's shape.
    TypeError
        The affect returned something: a new state that is returned would be lost.
    """
    integrator.u = u
    integrator.u_modified = True
    returned = affect(integrator)
    if returned is not None:
        raise TypeError(
            f"the affect of callback {name!r} returned {type(returned).__name__}; a returned state is not used: "
            "change integrator.u in place and return nothing"
        )
    if integrator.u is not u:
        new = np.asarray(integrator.u, dtype=np.float64)
        if new.shape != u.shape:
            raise ValueError(
                f"the affect of callback {name!r} changed the state's shape from {u.shape} to {new.shape} at "
                f"t = {integrator.t!r}; set components to zero instead of removing them"
            )
        u[...] = new
        integrator.u = u


def check_condition(callback: Continuous, values: np.ndarray, times: np.ndarray) -> int:
    """How many leading rows of `values` are free of nan; raises ValueError when the first is not."""
    bad = np.isnan(values).any(axis=1)
    if not bad.any():
        return len(values)
    first = int(bad.argmax())
    if first == 0:
        raise_nan_condition(callback, values[0], float(times[0]))
    return first


def raise_nan_condition(callback: Continuous, row: np.ndarray, t: float) -> None:
    """Say which condition was nan, and when."""
    component = int(np.isnan(row).argmax())
    raise ValueError(
        f"the condition of callback {callback_name(callback)!r} is nan at t = {t!r} (component {component})"
    )


def check_rate(rate: np.ndarray, t: float, u: np.ndarray) -> None:
    """Raise ValueError unless the value of f is finite and has the state's shape."""
    if rate.shape != u.shape:
        raise ValueError(f"f returned shape {rate.shape} at t = {t!r}, expected the state's {u.shape}")
    finite = np.isfinite(rate)
    if not finite.all():
        component = int((~finite).argmax())
        raise ValueError(f"f returned {rate[component]} in component {component} at t = {t!r}, for u = {u.tolist()}")


def check_step(dt: float, t: float) -> None:
    """Raise StepSizeError when a step of size `dt` from `t` is no step."""
    if not dt > 0 or math.isinf(dt):
        raise StepSizeError(f"the step size at t = {t!r} is {dt!r}; it must be positive and finite")
    if dt < math.ulp(t):
        raise StepSizeError(
            f"the step size {dt!r} is below the machine's resolution at t = {t!r}: the tolerances cannot be met there "
            "(the solution may grow without bound, or abstol and reltol are too small)"
        )


def start_state(u0: Any) -> np.ndarray:
    """A float64 copy of the initial state, shape (n,); integers are promoted.

    Raises
    ------
    TypeError
        Complex or not a number.
    ValueError
        Empty, more than one axis, or not finite.
    """
    array = np.asarray(u0)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"u0 must hold real numbers, got dtype {array.dtype}")
    array = np.atleast_1d(array).astype(np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"u0 must be a vector, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"u0 must be finite, got {array.tolist()}")
    return array


def stops_of(tspan: Sequence[float], tstops: Iterable[float]) -> list[float]:
    """The times at which a step must end, in the order of the run; the last is the end of the time span."""
    if len(tspan) != 2 or not all(math.isfinite(t) for t in tspan):
        raise ValueError(f"tspan needs two finite times (start, end), got {tspan!r}")
    start, end = (float(t) for t in tspan)
    if start == end:
        return []
    low, high = min(start, end), max(start, end)
    return sorted({float(t) for t in tstops if low < t < high} | {end}, reverse=end < start)


def check_settings(**settings: Any) -> None:
    """Raise ValueError for a tolerance, step or limit that makes no sense."""
    for name in ("reltol", "abstol"):
        value = settings[name]
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and at least 0, got {value!r}")
    if settings["reltol"] == 0 and settings["abstol"] == 0:
        raise ValueError("reltol and abstol are both 0: no step can meet that")
    for name in ("dt", "dtmax"):
        value = settings[name]
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive, also when time runs backward, got {value!r}")
    for name in ("maxiters", "max_events"):
        if settings[name] < 1:
            raise ValueError(f"{name} must be at least 1, got {settings[name]!r}")


def split_callbacks(callbacks: Any) -> tuple[list[Continuous], list[DiscreteCallback]]:
    """Continuous and discrete callbacks of one callback or an iterable of them."""
    if isinstance(callbacks, ContinuousCallback | VectorContinuousCallback | DiscreteCallback):
        callbacks = [callbacks]
    continuous, discrete = [], []
    for callback in callbacks:
        if isinstance(callback, DiscreteCallback):
            discrete.append(callback)
        elif isinstance(callback, ContinuousCallback | VectorContinuousCallback):
            continuous.append(callback)
        else:
            raise TypeError(
                f"callbacks takes ContinuousCallback, VectorContinuousCallback and DiscreteCallback, got {callback!r}"
            )
    return continuous, discrete


def reject_unknown(unknown: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise TypeError for keywords that do not exist, naming the one that was probably meant."""
    for name in unknown:
        usual = {"cb": "callbacks", "callback": "callbacks", "rtol": "reltol", "atol": "abstol", "max_step": "dtmax"}
        close = difflib.get_close_matches(name, known, n=1)
        meant = usual.get(name) or (close[0] if close else "")
        question = f"; did you mean {meant}?" if meant in known else "; it takes " + ", ".join(known)
        raise TypeError(f"solve has no keyword {name!r}{question}")


def raise_limit(callback: Continuous, t: float, limit: int) -> None:
    """Say which callback fires for ever, and when it was stopped."""
    raise CallbackLimitError(
        f"callback {callback_name(callback)!r} has fired more than {limit} times, last at t = {t!r}. Its affect may "
        "leave the condition at zero, or the events may pile up towards one time; if so many are right, raise "
        "max_events"
    )


def raise_maxiters(limit: int, t: float, end: float) -> None:
    """Say how far a run came before it was stopped."""
    raise RuntimeError(
        f"{limit} steps were tried and t = {t!r} is reached of {end!r}; raise maxiters or the tolerances"
    )


# --- the driver
def _part(parts: Any, name: str) -> Callable:
    function = parts.get(name) if isinstance(parts, Mapping) else getattr(parts, name, None)
    if not callable(function):
        raise TypeError(f"solve needs the function {name} among its parts: finish that exercise first")
    return function


@dataclass(frozen=True)
class _Hit:
    """The step's earliest event."""

    callback: Continuous
    t: float
    y: np.ndarray
    indices: tuple[int, ...]
    signs: tuple[int, ...]  # of the conditions before the event
    residuals: Mapping[int, float]


def _condition(
    callback: Continuous, i: int, known: Mapping[float, float], state: Callable[[float], np.ndarray]
) -> Callable[[float], float]:
    """Condition i within a step as a function of time; at the times in `known` it is what detection saw there."""

    def g(time: float) -> float:
        if time in known:
            return known[time]
        return float(conditions_at(callback, np.array([time]), state(time)[None])[0, i])

    return g


def _find_event(
    parts: Any,
    continuous: Sequence[Continuous],
    fired: Mapping[int, Mapping[int, float]],
    step: tuple[float, float, np.ndarray, float, np.ndarray, np.ndarray],
) -> _Hit | None:
    """The earliest event of the step (t, h, y, t_new, y_new, K), or None.

    `fired` says what fired at the time where the step starts: callback's id, component, |condition| there.
    """
    t, h, y, t_new, y_new, slopes = step
    dense = _part(parts, "dense")
    detect = _part(parts, "detect")
    candidates, found, offset = [], {}, 0

    def state(time: float) -> np.ndarray:
        if time == t:
            return y
        return y_new if time == t_new else dense((time - t) / h, y, h, slopes)

    for callback in continuous:
        intervals = max(callback.interp_points, 1)
        times = t + np.arange(intervals + 1) / intervals * h
        times[-1] = t_new
        states = np.empty((intervals + 1, y.size))
        states[0], states[-1] = y, y_new
        if intervals > 1:
            states[1:-1] = dense(np.arange(1, intervals) / intervals, y, h, slopes)
        values = conditions_at(callback, times, states)
        length = values.shape[1]
        starts = np.full(length, t)
        usable = check_condition(callback, values, times)
        again = [i for i, r in fired.get(id(callback), {}).items() if abs(values[0, i]) <= 100 * r]
        if again:
            nudged = t + callback.repeat_nudge * h
            later = conditions_at(callback, np.array([nudged]), state(nudged)[None])
            check_condition(callback, later, np.array([nudged]))
            passed = np.abs(times - t) <= abs(nudged - t)
            for i in again:
                values[passed, i] = later[0, i]
                starts[i] = nudged
        prev_sign = np.sign(values[0])
        directions = np.full(length, directions_of(callback))
        row, indices = detect(values[:usable], prev_sign, directions)
        if row is None:
            if usable < len(values):
                raise_nan_condition(callback, values[usable], float(times[usable]))
        else:
            for i in (int(i) for i in indices):
                a, b = float(max(starts[i], times[row - 1], key=lambda time: abs(time - t))), float(times[row])
                ends = {a: float(values[row - 1, i]), b: float(values[row, i])}
                g = _condition(callback, i, ends, state)
                before = int(np.sign(values[row - 1, i]))  # not of ends[a]: in a tiny step a and b are one float
                root = b if a == b else _part(parts, "bracket_root")(g, a, b, callback.rootfind)
                candidates.append((offset + i, float(root)))
                found[offset + i] = (callback, i, before, g)
        offset += length
    if not candidates:
        return None
    winner, time = _part(parts, "first_event")(candidates, 1 if h > 0 else -1)
    callback, index, before, g = found[winner]
    indices, signs = [index], [before]
    if getattr(callback, "simultaneous", "first") == "mask":
        together = []
        for place, root in candidates:
            other, i, sign, condition = found[place]
            if other is callback and (root == time or condition(time) == 0):
                together.append((i, sign))
        indices, signs = [i for i, _ in together], [sign for _, sign in together]
    at = state(time)
    now = conditions_at(callback, np.array([time]), at[None])[0]
    residuals = {i: abs(float(now[i])) for i in indices}
    return _Hit(callback, float(time), np.array(at), tuple(indices), tuple(signs), residuals)


def solve(
    parts: Mapping[str, Callable] | Any,
    f: Callable[[float, np.ndarray], Any],
    u0: Any,
    tspan: Sequence[float],
    callbacks: Any = (),
    *,
    reltol: float = 1e-3,
    abstol: float = 1e-6,
    dt: float | None = None,
    dtmax: float | None = None,
    tstops: Iterable[float] = (),
    save_everystep: bool = True,
    dense: bool = True,
    maxiters: int = 100_000,
    max_events: int = 1000,
    progress: bool = False,
    **unknown: Any,
) -> Solution:
    """Integrate u' = f(t, u) with the learner's parts, and apply callbacks.

    Parameters
    ----------
    parts
        The functions of chapter 5, in a mapping or as attributes: `rk_step`, `err_norm`, `pi_control`, `init_dt`,
        `dense`; with continuous callbacks also `bracket_root`, `detect`, `first_event`; with any callback
        `apply_event`.
    f
        Right-hand side, `f(t, u) -> (n,)`.
    u0
        Initial state, shape (n,). Integers are promoted to float64.
    tspan
        (start, end). Time runs backward when the end is the smaller one; "rising" and "falling" then mean along the
        run.
    callbacks
        One callback or several: ContinuousCallback, VectorContinuousCallback, DiscreteCallback.
    reltol, abstol
        A step is accepted when the root mean square of error / (abstol + reltol max(abs(u))) is at most 1.
    dt
        First step size, positive; by default `init_dt` chooses it.
    dtmax
        Largest step size, positive; by default the length of the time span.
    tstops
        Times at which a step must end.
    save_everystep
        Whether the end of every accepted step is saved. Without it, the start, the end and what `save_positions` asks
        for.
    dense
        Whether the solution keeps its interpolant, so that it can be called.
    maxiters
        Most attempted steps.
    max_events
        How often one continuous callback may fire.
    progress
        Whether to show a plain progress bar on standard output.

    Returns
    -------
    Solution

    Raises
    ------
    TypeError
        An unknown keyword, a missing part, something that is no callback, an affect that returns a value, a u0 of no
        real numbers.
    ValueError
        nan from f or from a condition, a value of the wrong shape, an affect that changes the state's shape, a setting
        out of range.
    StepSizeError
        The step size fell below the machine's resolution.
    CallbackLimitError
        A callback fires for ever.
    RuntimeError
        maxiters was reached.
    """
    reject_unknown(unknown, KEYWORDS)
    check_settings(reltol=reltol, abstol=abstol, dt=dt, dtmax=dtmax, maxiters=maxiters, max_events=max_events)
    continuous, discrete = split_callbacks(callbacks)
    y = start_state(u0)
    stops = stops_of(tspan, tstops)
    t, end = float(tspan[0]), float(tspan[1])
    direction = 1.0 if end >= t else -1.0
    rk_step, err_norm, pi_control = (_part(parts, name) for name in ("rk_step", "err_norm", "pi_control"))
    interpolant = _part(parts, "dense") if dense or continuous else None
    integrator = Integrator(t, y, f, abs(end - t) if dtmax is None else float(dtmax))
    saved_t, saved_u, events, pieces = [t], [y.copy()], [], []
    calls = accepted = rejected = 0
    counts: dict[int, int] = {}
    fired: dict[int, dict[int, float]] = {}
    err_old, k1 = ERR_OLD_INIT, None

    def rate(time: float, u: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        time = float(time)
        value = np.array(integrator.f(time, u), dtype=np.float64)
        check_rate(value, time, u)
        return value

    def keep(pairs: Iterable[tuple[float, np.ndarray]]) -> None:
        for time, u in pairs:
            saved_t.append(float(time))
            saved_u.append(np.array(u, dtype=np.float64))

    def act(callback: Any, sign: int, argument: Any, flags: tuple[bool, bool]) -> tuple[np.ndarray, np.ndarray]:
        """Apply an affect at (t, y) through the learner's apply_event; the new state and its slope."""
        integrator.t = t
        wanted = affect_of(callback, sign, argument)
        new, slope, pairs = _part(parts, "apply_event")(
            rate, t, y, lambda u, index: run_affect(wanted, integrator, u, callback_name(callback)), argument, flags
        )
        keep(pairs if integrator.u_modified else list(pairs)[: int(flags[0])])
        return np.asarray(new, dtype=np.float64), slope

    if dt is None and stops:
        # time runs backward as forward for the mirrored right-hand side
        mirrored = rate if direction > 0 else lambda time, u: -rate(2 * float(tspan[0]) - time, u)
        dt = _part(parts, "init_dt")(mirrored, t, y, abstol, reltol, integrator.dtmax)

    bar = tqdm(
        total=abs(end - t),
        unit="t",
        file=sys.stdout,
        bar_format="{l_bar}{bar}| {n:.4g}/{total:.4g}",
        disable=not progress,
    )
    with bar:
        while stops and not integrator.terminated:
            if accepted + rejected >= maxiters:
                raise_maxiters(maxiters, t, end)
            dt = float(min(dt or 0.0, integrator.dtmax))
            remaining = abs(stops[0] - t)
            step = min(dt, remaining)
            if not step >= remaining:  # also where it is nan
                check_step(step, t)
            h = direction * step
            y_new, slopes = rk_step(rate, t, y, h, k1)
            err = err_norm(slopes, h, y, y_new, abstol, reltol)
            accept, proposed, err_old = pi_control(err, err_old, step)
            if not accept:
                rejected += 1
                check_step(proposed, t)
                dt, k1 = proposed, slopes[0]
                continue
            accepted += 1
            t_new = t + h
            if step == remaining or abs(stops[0] - t_new) <= 100 * math.ulp(max(abs(t_new), abs(stops[0]))):
                t_new = stops[0]
            hit = _find_event(parts, continuous, fired, (t, h, y, t_new, y_new, slopes)) if continuous else None
            reached = t_new if hit is None else hit.t
            if dense and reached != t:
                pieces.append((t, h, reached, y, slopes))
            bar.update(abs(reached - t))
            if reached != t:
                fired = {}
            t = reached
            if hit is None:
                y, k1, dt = y_new, slopes[6], proposed
                if save_everystep:
                    keep([(t, y)])
            else:
                callback, before = hit.callback, hit.y
                counts[id(callback)] = counts.get(id(callback), 0) + 1
                if counts[id(callback)] > max_events:
                    raise_limit(callback, t, max_events)
                argument: Any = hit.indices[0]
                if isinstance(callback, VectorContinuousCallback) and callback.simultaneous == "mask":
                    argument = np.zeros(callback.length, dtype=np.int8)
                    argument[list(hit.indices)] = hit.signs
                y, dt = before, step
                flags = (bool(callback.save_positions[0]) or save_everystep, bool(callback.save_positions[1]))
                sign = -hit.signs[0]
                y, k1 = act(callback, 0 if isinstance(argument, np.ndarray) else sign, argument, flags)
                events.append(Event(t, callback_name(callback), hit.indices, sign, before.copy(), y.copy()))
                fired.setdefault(id(callback), {}).update(hit.residuals)
            for watcher in discrete:
                if watcher.condition(t, y):
                    flags = (bool(watcher.save_positions[0]) and not save_everystep, bool(watcher.save_positions[1]))
                    y, k1 = act(watcher, 0, 0, flags)
            if t == stops[0]:
                stops.pop(0)
    if not save_everystep and (saved_t[-1] != t or not np.array_equal(saved_u[-1], y)):
        keep([(t, y)])
    return Solution(
        np.array(saved_t),
        np.array(saved_u),
        tuple(events),
        "terminated" if integrator.terminated else "success",
        Statistics(calls, accepted, rejected),
        tuple(pieces),
        interpolant,
    )


KEYWORDS = ("callbacks", *(solve.__kwdefaults__ or ()))
