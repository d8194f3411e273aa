"""What an exercise is. One object serves the learner's check, the judge, the tests and the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Build:
    """An input that is made, not written down: `name` is "module.function" in `underhood.builders`.

    Builders take plain arguments only and are called afresh for every case, so no learner's code can keep or change
    what another case receives. Example: `Build("basics.transposed", data=[[1.0, 2.0]])`.
    """

    name: str
    arguments: Mapping[str, Any]

    def __init__(self, name: str, **arguments: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", arguments)


@dataclass(frozen=True)
class Learner:
    """An input that is the learner's own earlier work: the object of that name in the notebook (parts "together")."""

    name: str


@dataclass(frozen=True)
class Case:
    """One question put to the learner's object.

    Parameters
    ----------
    about
        What is special about the input, as a phrase that a verdict can print: "a last axis as long as the weights".
    part
        The part of the exercise that this case belongs to.
    args, kwargs
        The inputs: numbers, strings, lists, tuples, dicts, arrays, tensors, `Build`, `Learner`.
    expected
        For visible cases the right answer: a literal that a person can check.
    raises
        The exception that is the right answer, instead of `expected`.
    tolerance
        Takes the place of the exercise's for this case.
    """

    about: str
    part: str
    args: tuple = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = None
    raises: type[Exception] | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class Seen:
    """What a probe saw when it put one case to an object: plain values only (see `underhood.plain`)."""

    value: Any = None
    raised: tuple[str, ...] = ()  # class names, the exception's own first, then its bases
    message: str = ""
    changed: tuple[str, ...] = ()  # names of inputs that are not what they were
    printed: str = ""
    forbidden: str = ""  # the forbidden callable that was reached

    @property
    def not_implemented(self) -> bool:
        return self.raised[:1] == ("NotImplementedError",)


@dataclass(frozen=True)
class Mistake:
    """A known misconception.

    Parameters
    ----------
    name
        What was done, as a phrase that completes "This is what comes out of …": "ranking along axis 1".
    fn
        The wrong variant, runnable. It stays with the instructor: a learner's copy holds `seen` in its place.
    hint
        What was confused and where to look, without the answer.
    seen
        What the variant gives on each visible case, recorded by the build.
    """

    name: str
    fn: Callable | None
    hint: str
    seen: tuple[Seen, ...] = ()


TOGETHER = "together"  # the part that runs what else the learner wrote
UNTOUCHED = "inputs untouched"  # the one part without cases of its own: it is watched on all of them


@dataclass(frozen=True)
class Exercise:
    """A function or class that the learner writes, and everything that is known about it.

    Parameters
    ----------
    name
        The function or class that the learner writes.
    title
        The card's title: "per-channel weights".
    level, minutes
        "easy", "medium" or "hard"; how long it takes somebody who meets it for the first time.
    parts
        Named properties, one point each. `"inputs untouched"` has no cases of its own: it is earned when no case of
        the exercise changes its inputs and the first part is right.
    cases
        The cases that the learner may see, in the order of `parts`.
    mistakes
        Known misconceptions; any two differ on some visible case.
    hidden
        `hidden(rng)` with a `numpy.random.Generator` gives further cases, without `expected`: the judge asks the reference.
    forbids
        Callables that would do the work: "torch.norm", "Tensor.norm", "torch.linalg.*".
    probe
        "module.function" in `underhood.probes`: how a case is put to the learner's object.
    tolerance
        Absolute and relative, for floating-point values; None means 1e-6, or 1e-10 where the expected value is float64.
    seconds
        Time limit of one check or judgement.
    same_dtype
        Whether an array's dtype must be the expected one.
    second_of_card
        Whether this is the second function of a card (three mistakes are enough then).
    signature, chapter
        Filled in by the build and the loader.
    """

    name: str
    title: str
    level: str
    minutes: int
    parts: tuple[str, ...]
    cases: tuple[Case, ...]
    mistakes: tuple[Mistake, ...]
    hidden: Callable[[np.random.Generator], Iterable[Case]] | None = None
    forbids: tuple[str, ...] = ()
    probe: str = "general.call"
    tolerance: float | None = None
    seconds: float = 10.0
    same_dtype: bool = True
    second_of_card: bool = False
    signature: str = ""
    chapter: str = ""

    @property
    def points(self) -> int:
        """One point a part."""
        return len(self.parts)

    def __repr__(self) -> str:
        return f"Exercise({self.name!r})"

    def public(self) -> Exercise:
        """The learner's copy: without the mistakes' code and the hidden cases."""
        return replace(self, hidden=None, mistakes=tuple(replace(m, fn=None) for m in self.mistakes))
