"""`check`: judge what the notebook holds under an exercise's name. `ready`: whether a demonstration can run."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from .exercise import Exercise
from .messages import say
from .plain import type_name
from .probes import observe
from .reading import in_object
from .record import exercises
from .verdict import Verdict, asked, assess, blank, refused, right_answers

_last: dict[str, tuple[Any, Verdict]] = {}  # name → (weak reference to what was judged, its verdict), for `ready`


def check(name: str, fn: Any = None, *, hidden: bool = False) -> Verdict:
    """Judge the learner's answer to an exercise.

    Parameters
    ----------
    name
        The exercise: the name of the function or class that it asks for.
    fn
        The answer; by default what the notebook holds under that name.
    hidden
        Judge the hidden cases too. Needs the instructor's `autograder` package.

    Returns
    -------
    Verdict
        Shows as the verdict; its `repr` is the points. Nothing that the answer does raises here.

    Raises
    ------
    RuntimeError
        With `hidden=True` where `autograder` is not installed (silence would count as full marks).
    """
    namespace = _notebook(sys._getframe(1).f_globals)
    if hidden:
        return _grader()(name, namespace.get(name) if fn is None else fn, namespace)
    exercise = find(name)
    if exercise is None:
        known = [e.name for e in exercises()]
        nearest = difflib.get_close_matches(str(name), known, n=1, cutoff=0) or ["none: there are no exercises"]
        return Verdict(str(name), (), (say("unknown", name=name, nearest=nearest[0]),))
    verdict = judged(exercise, namespace, fn)
    _last[name] = (_reference(namespace.get(name) if fn is None else fn), verdict)
    return verdict


def judged(exercise: Exercise, namespace: dict[str, Any], fn: Any = None) -> Verdict:
    """Put the visible cases to the answer and compare with the record."""
    obj, notes, stop = look_up(exercise, namespace, fn)
    if stop:
        return blank(exercise, *notes)
    if name := in_object(obj, exercise.forbids):
        return refused(exercise, name, *notes)
    cases = asked(exercise)
    got = observe(exercise, obj, cases, namespace)
    return assess(exercise, cases, right_answers(cases), got, [(m, m.seen) for m in exercise.mistakes], notes)


@functools.cache
def _by_name() -> dict[str, Exercise]:
    return {exercise.name: exercise for exercise in exercises()}


def find(name: str) -> Exercise | None:
    """The exercise's public face, or None."""
    return _by_name().get(name)


def ready(*names: str) -> bool:
    """Whether the learner's answers to these exercises pass their checks; prints what to finish first where not.

    A demonstration that needs the learner's code stands under `if ready("rk_step", "dense"):`. While a submission is
    graded, demonstrations are skipped: nobody looks at them.
    """
    if "UNDERHOOD_GRADING" in os.environ:
        return False
    namespace = _notebook(sys._getframe(1).f_globals)
    missing = []
    for name in names:
        exercise = find(name)
        if exercise is None:
            raise KeyError(f"There is no exercise named {name!r}.")
        obj = namespace.get(name)
        kept = _last.get(name)
        if kept is None or kept[0]() is not obj or obj is None or exercise.parts != tuple(kept[1].parts):
            _last[name] = kept = (_reference(obj), judged(exercise, namespace))
        if kept[1].points < exercise.points:
            missing.append(name)
    if missing:
        print(say("not ready", names=" and ".join(missing), it="it" if len(missing) == 1 else "them"))
    return not missing


def look_up(exercise: Exercise, namespace: dict[str, Any], fn: Any = None) -> tuple[Any, list[str], bool]:
    """The learner's object, notes on how it was found, and whether there is nothing to judge.

    Never raises, whatever the object is.
    """
    name = exercise.name
    obj = namespace.get(name) if fn is None else fn
    if obj is None:
        others = difflib.get_close_matches(name, [k for k, v in namespace.items() if _is_answer(v)], n=1, cutoff=0.8)
        notes = [say("renamed", name=name, other=others[0])] if others else [say("not defined", name=name)]
        return None, notes, True
    if not callable(obj):
        return None, [say("not callable", name=name, what=f"an object of type {type_name(obj)}")], True
    notes = []
    try:
        if inspect.isfunction(obj) and hasattr(obj, "__wrapped__"):
            notes.append(say("wrapped", name=name, what="by a decorator"))
        elif isinstance(obj, functools.partial):
            notes.append(say("wrapped", name=name, what="by functools.partial"))
        elif inspect.isfunction(obj) and obj.__name__ == "<lambda>":
            notes.append(say("lambda", name=name))
        elif (inspect.isfunction(obj) or inspect.isclass(obj)) and obj.__name__ != name:
            notes.append(say("alias", name=name, other=obj.__name__[:80]))
        if why := _cannot_be_called(exercise, obj):
            got, expected = str(inspect.signature(obj)), exercise.signature
            return None, [*notes, say("signature", name=name, got=got, expected=expected, why=why)], True
    except Exception:
        notes = notes[:1]  # an object that hides its name or signature is judged by what it does
    return obj, notes, False


def _is_answer(value: Any) -> bool:
    return issubclass(type(value), types.FunctionType | type)  # isinstance would ask the object itself


def _cannot_be_called(exercise: Exercise, obj: Callable) -> str:
    """Why the object cannot take the exercise's arguments, or "". By name too: a learner may be asked for keywords."""
    if exercise.probe not in ("general.call", "general.call_in_place", "general.iterate"):
        return ""
    try:
        signature = inspect.signature(obj)
    except (TypeError, ValueError):
        return ""
    why = ""
    for case in exercise.cases:
        try:
            signature.bind(*case.args, **case.kwargs)
        except TypeError as error:
            why = why or str(error)
        else:
            return ""  # the cases that can be put to it are judged, the others say why not
    return why


def _reference(obj: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: None


def _notebook(caller: dict[str, Any]) -> dict[str, Any]:
    """The notebook's names: IPython's where there is one and the caller is the notebook, otherwise the caller's."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell.user_ns if shell is not None and caller is shell.user_ns else caller


def _grader() -> Callable[[str, Any, dict[str, Any]], Verdict]:
    try:
        from autograder.judge import judge_in_notebook
    except ImportError:
        raise RuntimeError(say("no grader")) from None
    return judge_in_notebook
