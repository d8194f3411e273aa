"""The judge: visible and hidden cases, the reference's answers, and the mistake that explains a wrong one."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from underhood import Case, Exercise, Mistake, Verdict
from underhood.check import look_up
from underhood.exercise import Seen
from underhood.probes import observe
from underhood.reading import in_object
from underhood.verdict import asked, assess, blank, refused, right_answers

from . import reference
from .chapters import exercise as find


@functools.lru_cache(maxsize=512)
def questions(name: str, seed: int) -> tuple[Case, ...]:
    """All cases that the judge puts for one seed: visible, hidden in an order of the seed's, the first one again."""
    exercise, rng = find(name), np.random.default_rng(seed)
    hidden = list(exercise.hidden(rng)) if exercise.hidden else []
    order = rng.permutation(len(hidden))  # or the place of a case would tell its answer at every seed
    return tuple(asked(exercise, exercise.cases + tuple(hidden[i] for i in order)))


_observing = threading.RLock()  # a probe changes the process's state while it lasts: one at a time


@functools.lru_cache(maxsize=512)
def answers(name: str, seed: int) -> tuple[Seen, ...]:
    """What the reference shows in those cases; for visible ones what the exercise says."""
    exercise, cases = find(name), questions(name, seed)
    visible = len(exercise.cases)
    names = reference.load(exercise.chapter)
    with _observing:
        hidden = observe(exercise, names[name], cases[visible:-1], names)
    known = right_answers(exercise.cases)
    return (*known, *hidden, known[0])


@functools.lru_cache(maxsize=512)
def errors(name: str, seed: int) -> tuple[tuple[Mistake, tuple[Seen, ...]], ...]:
    """What each known mistake shows in those cases."""
    exercise, cases = find(name), questions(name, seed)
    names = reference.load(exercise.chapter)
    with _observing:
        return tuple((m, tuple(observe(exercise, m.fn, cases[:-1], names))) for m in exercise.mistakes)


def judge(name: str, fn: Any, seed: int = 0, namespace: dict[str, Any] | None = None) -> Verdict:
    """Judge an answer in this process, on visible and hidden cases. For trusted code.

    Parameters
    ----------
    name
        The exercise.
    fn
        The answer: a function or class.
    seed
        Of the hidden cases.
    namespace
        Where the part "together" looks the learner's earlier work up; by default the reference's.

    Returns
    -------
    Verdict
        With `.points`, `.max_points`, `.parts` (points by part) and `.mistake` (a name or None).
    """
    exercise = find(name)
    names = reference.load(exercise.chapter) if namespace is None else namespace
    obj, notes, stop = look_up(exercise, names, fn)
    if stop:
        return blank(exercise, *notes)
    if forbidden := in_object(obj, exercise.forbids):
        return refused(exercise, forbidden, *notes)
    return verdict(exercise, observe(exercise, obj, questions(name, seed), names), seed, notes)


def verdict(exercise: Exercise, got: Sequence[Seen], seed: int, notes: Sequence[str] = ()) -> Verdict:
    """The verdict on what was seen in the judge's cases of that seed."""
    name = exercise.name
    cases, want = questions(name, seed), answers(name, seed)
    hidden_from = len(exercise.cases)
    found = assess(exercise, cases, want, got, (), notes, hidden_from)
    if found.points == found.max_points or all(part.outcome == "not attempted" for part in found.results):
        return found
    return assess(exercise, cases, want, got, errors(name, seed), notes, hidden_from)


def judge_in_notebook(name: str, fn: Any, namespace: dict[str, Any]) -> Verdict:
    """What `check(name, hidden=True)` calls: judges in the kernel, so it trusts the learner's code."""
    exercise = find(name)
    if fn is None:
        _, notes, _ = look_up(exercise, namespace)
        return blank(exercise, *notes)
    return judge(name, fn, namespace=namespace)


def recorded(exercise: Exercise) -> Exercise:
    """The exercise with what each mistake shows on the visible cases filled in, for the record."""
    names = reference.load(exercise.chapter)
    kept = []
    for mistake in exercise.mistakes:
        seen = observe(exercise, mistake.fn, exercise.cases, names)
        # What was printed, and the line of code that raised, stay here: the record holds no variant's code.
        seen = [replace(s, printed="", message=s.message.partition("\n")[0]) for s in seen]
        kept.append(replace(mistake, seen=tuple(seen)))
    return replace(exercise, mistakes=tuple(kept))
