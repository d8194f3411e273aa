"""Whatever an answer returns, the verdict stands: no exception, and points that are a decimal in [0, points]."""

from __future__ import annotations

import json
import math
import string
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from underhood import Case, Exercise, Mistake
from underhood.check import judged
from underhood.compare import difference
from underhood.exercise import Seen
from underhood.messages import MESSAGES, say
from underhood.plain import Array, Foreign, from_json, plain, to_json
from underhood.probes import same
from underhood.record import rounded


def exercise(expected):
    return Exercise(
        "f", "f", "easy", 1, ("values", "inputs untouched"), (Case("one", "values", (1,), expected=expected),),
        mistakes=(Mistake("m", None, "h"),), signature="(x)",
    )  # fmt: skip


class Hostile:
    """Lies and raises wherever it can."""

    def __getattribute__(self, name):
        raise RuntimeError("no")

    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __len__ = __iter__ = __float__ = __array__ = __bool__ = __hash__ = __repr__

    def __eq__(self, other):
        return True


class Agreeable(float):
    def __eq__(self, other):
        return True

    __hash__ = float.__hash__


class TensorLike(torch.Tensor):
    pass


def recursive():
    items: list = []
    items.append(items)
    return items


STRANGE = lambda: [  # noqa: E731 - made afresh: pytest looks at what a module holds
    None, Hostile(), Agreeable(3.0), float("nan"), float("inf"), -float("inf"), 10**5000, "x" * 10**6, [], {}, set(),
    object, Hostile, lambda: 1, (i for i in range(3)), recursive(), [[1, 2], [3]], {"a": {"b": Hostile()}},
    np.ma.masked_array([1.0], mask=[True]), np.array([object()]), np.array([]), np.float32(3), np.array("s"),
    np.zeros((0, 3)), np.array([1 + 2j]), np.datetime64("2020-01-01"), torch.zeros(0), torch.zeros(3, device="meta"),
    torch.eye(2).to_sparse(), torch.tensor(float("nan")), torch.zeros(2).as_subclass(TensorLike),
    torch.nn.Parameter(torch.ones(2)), torch.nn.Linear(1, 1), torch.ones(2, dtype=torch.bfloat16), torch.tensor([1 + 1j]),
    Exception("x"), b"bytes", range(3), 1e308, -0.0, True,
]  # fmt: skip
EXPECTED = [3.0, 3, "s", [1, 2], (1.0, 2), {"a": 1}, torch.ones(2), np.ones(2), torch.ones(2, dtype=torch.int64), True]

values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(string.printable, max_size=20), st.complex_numbers(),
    arrays(st.sampled_from([np.float32, np.float64, np.int8, np.uint8, np.bool_]), array_shapes(min_dims=0, max_side=4)),
    arrays(np.float32, array_shapes(max_side=4)).map(torch.from_numpy),
)  # fmt: skip
nested = st.recursive(values, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3))


def sound(verdict):
    points = float(repr(verdict))
    assert math.isfinite(points) and 0 <= points <= verdict.max_points == 2
    assert repr(verdict).replace(".", "").isdigit()
    assert str(verdict) and verdict._repr_html_().startswith("<div>")
    return points


@pytest.mark.parametrize("index", range(41))
def test_strange_outputs(index):
    strange = STRANGE()[index]
    for expected in EXPECTED:
        verdict = judged(exercise(expected), {"f": lambda x: strange})
        points = sound(verdict)
        if not issubclass(type(strange), bool | np.generic | torch.nn.Parameter):
            assert points == 0, f"{type(strange)} passes for {expected!r}"


@settings(max_examples=150, deadline=None)
@given(nested, nested)
def test_any_output_against_any_expectation(got, expected):
    sound(judged(exercise(expected), {"f": lambda x: got}))


@settings(max_examples=150, deadline=None)
@given(nested)
def test_a_value_equals_itself_and_survives_json(value):
    once = plain(value)
    assert difference(once, plain(value)) is None
    assert same(from_json(json.loads(json.dumps(to_json(once)))), once)


@pytest.mark.parametrize(
    "error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, StopIteration]
)
def test_strange_errors(error):
    def f(x):
        raise error("stop")

    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):  # the learner's own interrupt button goes on working
            judged(exercise(1), {"f": f})
    else:
        assert sound(judged(exercise(1), {"f": f})) == 0


def test_an_error_whose_text_raises():
    class Nasty(Exception):
        def __str__(self):
            raise RuntimeError

    def f(x):
        raise Nasty

    verdict = judged(exercise(1), {"f": f})
    assert sound(verdict) == 0 and "Nasty" in str(verdict)


@pytest.mark.parametrize("make", [lambda: Hostile, lambda: Hostile()], ids=["class", "instance"])
def test_strange_objects_in_place_of_a_function(make):
    verdict = judged(exercise(1), {"f": make(), "g": make()})
    assert float(repr(verdict)) == 0 and str(verdict) and verdict._repr_html_()


def test_plain_takes_known_kinds_only():
    assert plain(np.float32(0.5)) == 0.5 and type(plain(np.int8(3))) is int
    assert isinstance(plain(np.ma.masked_array([1.0])), Foreign)
    assert isinstance(plain(torch.zeros(2).as_subclass(TensorLike)), Foreign)
    assert isinstance(plain(Agreeable(1)), Foreign)
    parameter = plain(torch.nn.Parameter(torch.ones(2)))
    assert isinstance(parameter, Array) and (parameter.kind, parameter.dtype) == ("tensor", "float32")


def test_json_that_is_no_plain_value_is_refused():
    huge = {"array": "float64", "shape": [10**9, 10**9], "numbers": "<f8", "data": []}
    pickled = {"array": "object", "shape": [1], "numbers": "|O", "data": [1]}
    bomb = {"array": "uint8", "shape": [10], "numbers": "|u1", "packed": "eJztwTEBAAAAwqD1T20ND6AAAAAAAAAAAAAAAAAAAA"}
    negative = {"array": "f", "shape": [-1], "numbers": "<f8", "data": []}
    for wrong in (huge, pickled, bomb, negative, {"x": 1}, {"tuple": 3}, object()):
        with pytest.raises((ValueError, TypeError)):
            from_json(wrong)


def test_none_inside_an_answer_is_no_missing_return_statement():
    found = difference(plain((None, [])), plain((3, [0])))
    assert found is not None and not any("return statement" in line for line in found.lines)


def test_differences_of_integers_tell_off_by_one_from_more():
    want = np.zeros((4, 4), np.uint8)
    got = want.copy()
    got[0, 1], got[2, 2] = 1, 45
    found = difference(plain(got), plain(want))
    assert found is not None
    assert "2 of 16 differ, first at [0, 1]: 1 by one, 1 by more, largest by 45" in found.lines[-1]


@pytest.mark.parametrize("doing", ["", " in comparison", " while calling a Python object"])
def test_a_recursion_that_is_too_deep_is_the_mistakes_whatever_python_was_doing_at_the_limit(doing):
    raised = ("RecursionError", "RuntimeError", "Exception", "BaseException", "object")
    seen = (Seen(raised=raised, message=f"maximum recursion depth exceeded{doing}"),)
    recorded = replace(exercise(5), mistakes=(Mistake("recursion", None, "Use a stack.", seen),))

    def f(x):
        return f(x)

    assert judged(recorded, {"f": f}).mistake == "recursion"


def test_what_is_recorded_is_the_same_where_machines_differ_in_a_last_bit_and_is_found_again():
    for dtype, value in ((np.float32, 5.830952), (np.float64, 0.8775817883647168)):
        here = np.array([value, 1.000004, -3.0], dtype)
        there = np.nextafter(here, np.float64(9).astype(dtype))
        kept, other = (rounded(plain(x)) for x in (here, there))
        assert kept.same_as(other)
        recorded = replace(exercise(plain(here + 1)), mistakes=(Mistake("m", None, "h", (Seen(kept),)),))
        assert judged(recorded, {"f": lambda x, there=there: there.copy()}).mistake == "m"
        assert judged(recorded, {"f": lambda x, far=there: far * far.dtype.type(1 + 2e-5)}).mistake is None


def test_every_sentence_stands_in_the_table_and_can_be_said():
    for key in MESSAGES:
        assert say(key)
    assert say("no such key") == "no such key"
