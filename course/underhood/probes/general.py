"""Probes that any chapter can use. A probe gets the learner's object and the case's inputs, and returns what to compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def call(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call the function; what it returns is compared."""
    return fn(*args, **kwargs)


def call_in_place(fn: Callable, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Call a function that works in place; what it returns and what has become of its inputs are compared."""
    return {"returned": fn(*args, **kwargs), "inputs": list(args)}


def iterate(fn: Callable, *args: Any, **kwargs: Any) -> list[Any]:
    """Call a function that yields; the list of what it yields is compared."""
    return list(fn(*args, **kwargs))


def layer(cls: Callable, arguments: dict[str, Any], x: Any) -> Any:
    """Make a layer from its arguments, by name, and run it on `x`."""
    return cls(**arguments)(x)
