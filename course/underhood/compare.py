"""Compare a plain value with the expected one, and say in what way they differ."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .messages import say
from .plain import Array, Foreign

SHAPE, VALUES = "wrong shape or dtype", "wrong values"


@dataclass(frozen=True)
class Difference:
    """How a value differs from the expected one: the outcome, and lines for the verdict."""

    outcome: str
    lines: tuple[str, ...]


def difference(got: Any, expected: Any, tolerance: float | None = None, same_dtype: bool = True) -> Difference | None:
    """None where `got` is right, otherwise the first way in which it is not.

    Parameters
    ----------
    got, expected
        Plain values.
    tolerance
        |got - expected| <= tolerance * max(1, |expected|) counts as equal; None means 1e-10 for float64 and Python
        floats, 1e-6 for the narrower types. Integers, booleans and strings must be equal.
    same_dtype
        Whether arrays must have the expected dtype.
    """
    return _difference(got, expected, tolerance, same_dtype, "")


def _difference(got: Any, expected: Any, tolerance: float | None, same_dtype: bool, path: str) -> Difference | None:
    def wrong(outcome: str, *lines: str) -> Difference:
        return Difference(outcome, (say("where", path=path),) * bool(path) + lines)

    if isinstance(expected, Array):
        return _arrays(got, expected, tolerance, same_dtype, wrong)
    if got is None and expected is not None and not path:
        return wrong(SHAPE, say("returned none", expected=describe(expected)))
    if type(expected) in (list, tuple):
        if type(got) is not type(expected):
            return wrong(SHAPE, say("type", expected=describe(expected), got=describe(got)))
        if len(got) != len(expected):
            return wrong(SHAPE, say("length", expected=len(expected), got=len(got)), *_both(got, expected))
        if all(type(item) in (int, float, str, bool, complex, type(None)) for item in expected):
            wrongs = [_difference(g, e, tolerance, same_dtype, "") for g, e in zip(got, expected, strict=True)]
            if any(wrongs):
                outcome = next(w.outcome for w in wrongs if w)
                first = next(i for i, w in enumerate(wrongs) if w)
                count = sum(map(bool, wrongs))
                tail = say("values differ", count=count, total=len(expected), first=f", first at [{first}]")
                return wrong(outcome, *_both(got, expected), tail)
            return None
        pairs = [(f"{path}[{i}]", g, e) for i, (g, e) in enumerate(zip(got, expected, strict=True))]
    elif type(expected) is dict:
        if type(got) is not dict:
            return wrong(SHAPE, say("type", expected=describe(expected), got=describe(got)))
        if set(got) != set(expected):
            return wrong(SHAPE, say("keys", expected=_keys(expected), got=_keys(got)))
        pairs = [(f"{path}[{key!r}]", got[key], expected[key]) for key in expected]
    else:
        return _scalars(got, expected, tolerance, wrong)
    return next((d for p, g, e in pairs if (d := _difference(g, e, tolerance, same_dtype, p))), None)


def _scalars(got: Any, expected: Any, tolerance: float | None, wrong: Any) -> Difference | None:
    number = type(expected) in (int, float, complex)
    if type(got) is not type(expected) and not (number and type(got) in (int, float, complex)):
        return wrong(SHAPE, say("type", expected=describe(expected), got=describe(got)))
    if (type(expected) is int and type(got) is not int) or (type(got) is complex and type(expected) is not complex):
        return wrong(SHAPE, say("type", expected=describe(expected), got=describe(got)))
    if got == expected or (number and got != got and expected != expected):
        return None
    if number and type(expected) is not int:
        allowed = 1e-10 if tolerance is None else tolerance
        with contextlib.suppress(OverflowError):  # an int beyond the floats, a complex number longer than them
            if math.inf not in (abs(got), abs(expected)) and abs(got - expected) <= allowed * max(1.0, abs(expected)):
                return None
    return wrong(VALUES, *_both(got, expected))


def _arrays(got: Any, expected: Array, tolerance: float | None, same_dtype: bool, wrong: Any) -> Difference | None:
    if got is None:
        return wrong(SHAPE, say("returned none", expected=describe(expected)))
    if not isinstance(got, Array):
        return wrong(SHAPE, say("type", expected=describe(expected), got=describe(got)))
    if got.kind != expected.kind:
        return wrong(SHAPE, say("numpy for torch" if got.kind == "array" else "torch for numpy"))
    if got.shape != expected.shape:
        small = max(got.data.size, expected.data.size) <= 24
        lines = _both(got, expected) if small else ()
        return wrong(SHAPE, say("shape", expected=expected.shape, got=got.shape), *lines)
    floating = expected.data.dtype.kind in "fc"
    if got.dtype != expected.dtype and (same_dtype or (got.data.dtype.kind in "fc") != floating):
        return wrong(SHAPE, say("dtype", expected=expected.dtype, got=got.dtype))
    if not floating:
        off = got.data != expected.data
        apart = np.abs(got.data.astype(np.int64) - expected.data.astype(np.int64))
        key, allowed = "integers differ", 0.0
    else:
        allowed = tolerance if tolerance is not None else (1e-10 if expected.dtype.endswith(("64", "128")) else 1e-6)
        g, e = got.data.astype(np.complex128), expected.data.astype(np.complex128)
        with np.errstate(all="ignore"):
            apart = np.abs(g - e)
            same = (got.data == expected.data) | (np.isnan(g) & np.isnan(e))
            off = ~(same | (np.isfinite(e) & (apart <= allowed * np.maximum(1.0, np.abs(e)))))
        key = "floats differ" if np.isfinite(apart[off]).all() else "not finite"
    if not off.any():
        return None
    at = tuple(int(i) for i in np.argwhere(off)[0])
    tail = say(
        key,
        count=int(off.sum()),
        total=off.size,
        first=f", first at {list(at)}" if at else "",
        largest=apart[off].max(),
        tolerance=allowed,
        steps=_steps(int((apart[off] == 1).sum()), int((apart[off] > 1).sum())),
    )
    return wrong(VALUES, *_both(got, expected, at), tail)


def _steps(ones: int, more: int) -> str:
    return say("some by one" if ones and more else "all by one" if ones else "all by more", ones=ones, more=more)


def _both(got: Any, expected: Any, at: tuple[int, ...] = ()) -> tuple[str, str]:
    if isinstance(expected, Array) and isinstance(got, Array) and max(expected.data.size, got.data.size) > 24 and at:
        # A large array: the row around the first difference.
        place = f"[{', '.join(map(str, at[:-1]))}{', ' * (len(at) > 1)}{at[-1]}:]"
        expected, got = (_show(x.data[at[:-1]][at[-1] : at[-1] + 6]) + " from " + place for x in (expected, got))
        return say("expected", expected=expected), say("got", got=got)
    one, other = show(expected), show(got)
    if one == other:  # they differ in digits that are not shown
        one, other = (show(value, digits=12) for value in (expected, got))
    return say("expected", expected=one), say("got", got=other)


def show(value: Any, width: int = 300, digits: int = 6, depth: int = 0) -> str:
    """The value for a person, in at most `width` characters."""
    if isinstance(value, Array):
        text = _show(value.data, digits) if value.data.size <= 24 else describe(value)
    elif isinstance(value, Foreign):
        text = value.what
    elif type(value) is float:
        text = f"{value:.{digits + 4}g}"
        text += ".0" * (text.lstrip("-").isdigit())
    elif type(value) in (list, tuple):
        inside = ", ".join(_item(item, digits, depth) for item in value[:12]) + ", …" * (len(value) > 12)
        text = f"[{inside}]" if type(value) is list else f"({inside}{',' * (len(value) == 1)})"
    elif type(value) is dict:
        text = "{" + ", ".join(f"{k!r}: {_item(v, digits, depth)}" for k, v in list(value.items())[:12]) + "}"
    else:
        text = repr(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def _item(value: Any, digits: int, depth: int) -> str:
    """Inside a container: an array says that it is one, so that a tensor is not taken for a number."""
    # The twelve of the twelve of the twelve … would take seconds.
    text = describe(value) if depth > 1 and type(value) in (list, tuple, dict) else show(value, 60, digits, depth + 1)
    return f"{'tensor' if value.kind == 'tensor' else 'array'}({text})" if isinstance(value, Array) else text


def _show(data: np.ndarray, digits: int = 6) -> str:
    def number(x: float) -> str:
        return f"{x:.0f}." if float(x).is_integer() and abs(x) < 10**digits else f"{x:.{digits}g}"

    with np.printoptions(threshold=30, linewidth=100, formatter={"float_kind": number}):  # type: ignore
        return " ".join(np.array2string(data).split()).replace("[ ", "[")


def describe(value: Any) -> str:
    """What kind of value it is: "a torch tensor of shape (2, 3), dtype float32"."""
    if isinstance(value, Array):
        name = "a torch tensor" if value.kind == "tensor" else "a numpy array"
        return f"{name} of shape {value.shape}, dtype {value.dtype}"
    if isinstance(value, Foreign):
        return value.what
    if value is None:
        return "None"
    if type(value) in (list, tuple, dict):
        return f"a {type(value).__name__} of {len(value)}"
    article = "an" if type(value) is int else "a"
    names = {int: "int", float: "float", str: "str", bool: "bool", complex: "complex number"}
    return f"{article} {names.get(type(value), type(value).__name__)} ({show(value, 60)})"


def _keys(value: dict) -> str:
    return ", ".join(sorted(map(repr, list(value)[:100])))[:200]
