"""Put cases to a learner's object and report what was seen, as plain values.

`observe` is all that touches the learner's code, in the notebook and in the grader's sandbox alike. A probe (see
`general`) says how one case is put: by calling the function, by making a layer and running it, by watching a side effect.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import importlib
import inspect
import io
import random
import signal
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..exercise import Build, Case, Exercise, Learner, Seen
from ..forbid import ForbiddenCall, traps
from ..plain import Array, back, from_json, in_a_line, plain, to_json, type_name

SEED = 20011  # of the global generators, at the start of every case
KEPT = 2_000  # characters of what the learner's code printed


class TimeUp(BaseException):
    """Raised inside the learner's code when its time is used up; not an `Exception`, so `except Exception` lets it pass."""


class Missing(BaseException):
    """The learner's own earlier work, which a case needs, is not there."""


def observe(exercise: Exercise, obj: Any, cases: Sequence[Case], namespace: dict[str, Any]) -> list[Seen]:
    """Put the cases to the object, one after the other, each with fresh inputs and in a known state.

    Parameters
    ----------
    obj
        What the learner wrote: a function or a class.
    namespace
        Where `Learner` inputs are looked up.

    Returns
    -------
    list of Seen
        One a case. Whatever the object does, nothing is raised.
    """
    probe = _named("underhood.probes", exercise.probe)
    end = time.monotonic() + exercise.seconds
    return [_one(exercise, probe, obj, case, namespace, end) for case in cases]


def _one(exercise: Exercise, probe: Callable, obj: Any, case: Case, namespace: dict[str, Any], end: float) -> Seen:
    left = end - time.monotonic()
    if left <= 0:
        return Seen(raised=("NotRun",))
    out = io.StringIO()
    try:
        with clean_slate(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            args, kwargs = build(case.args, namespace), build(dict(case.kwargs), namespace)
            before = plain(args), plain(kwargs)
            with traps(exercise.forbids, _globals(obj)):
                with time_limit(left), _nobody_looking():
                    value = probe(obj, *args, **kwargs)
                with time_limit(max(left, 5.0)):
                    value = plain(value)
            with time_limit(5.0):
                seen = Seen(value=value, changed=_changed(obj, before, (plain(args), plain(kwargs))))
    except ForbiddenCall as error:
        seen = Seen(forbidden=str(error)[:100])
    except BaseException as error:  # noqa: B036 - whatever the learner's code raises is an observation
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        seen = Seen(raised=_bases(error), message=_message(error))
    return Seen(seen.value, seen.raised, seen.message, seen.changed, out.getvalue()[:KEPT], seen.forbidden)


@contextlib.contextmanager
def _nobody_looking() -> Iterator[None]:
    """What the learner's code hangs into the interpreter (`sys.settrace`, `sys.setprofile`) ends with its call."""
    trace, profile = sys.gettrace(), sys.getprofile()
    try:
        yield
    finally:
        sys.setprofile(profile)
        sys.settrace(trace)


def build(inputs: Any, namespace: Mapping[str, Any]) -> Any:
    """Fresh inputs: arrays and containers copied, `Build`s built, `Learner`s looked up."""
    if isinstance(inputs, Build):
        made = _named("underhood.builders", inputs.name)
        return made(**{key: build(value, namespace) for key, value in inputs.arguments.items()})
    if isinstance(inputs, Learner):
        if inputs.name not in namespace:
            raise Missing(inputs.name)
        return namespace[inputs.name]
    if type(inputs) in (list, tuple):
        return type(inputs)(build(item, namespace) for item in inputs)
    if type(inputs) is dict:
        return {key: build(item, namespace) for key, item in inputs.items()}
    return back(inputs if isinstance(inputs, Array) else plain(inputs))


def _named(package: str, name: str) -> Callable:
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"{package}.{module}"), function)


def _globals(obj: Any) -> dict[str, Any]:
    with contextlib.suppress(Exception):
        if isinstance(obj, type):
            functions = (member for member in vars(obj).values() if isinstance(member, types.FunctionType))
            return next((member.__globals__ for member in functions), {})
        found = getattr(inspect.unwrap(obj), "__globals__", {})
        return found if type(found) is dict else {}
    return {}


def _changed(obj: Any, before: tuple, after: tuple) -> tuple[str, ...]:
    try:
        names = list(inspect.signature(obj).parameters)
    except (TypeError, ValueError):
        names = []
    names += [f"argument {i + 1}" for i in range(len(names), len(before[0]))]
    pairs = list(zip(names, before[0], after[0], strict=False))
    pairs += [(key, before[1][key], after[1].get(key)) for key in before[1]]
    return tuple(name for name, old, new in pairs if not same(old, new))


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are equal bit for bit (nan equals nan)."""
    if isinstance(a, Array) and isinstance(b, Array):
        return a.same_as(b)
    if type(a) is not type(b):
        return False
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is dict:
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b or (a != a and b != b)


def _bases(error: BaseException) -> tuple[str, ...]:
    """The names of its classes; one that bears a built-in exception's name and is another says so."""
    bases = [base for base in type.mro(type(error)) if base not in (BaseException, object)]
    names = (str(base.__name__)[:80] for base in bases)
    own = (f"another {n}" if getattr(builtins, n, b) is not b else n for n, b in zip(names, bases, strict=True))
    return tuple(own)[:8] or (type_name(error),)


def _message(error: BaseException) -> str:
    """The first line of the error's text and, on a second line, the learner's own line that it came from."""
    try:
        text = str(error)
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.line and _own(frame.filename)]
        where = f"\n{in_a_line(str(frames[-1].line), 200)}" if frames else ""
        return plain(in_a_line(text.splitlines()[0], 300) if text else "") + plain(where)
    except BaseException:  # noqa: B036 - an exception whose own text cannot be had
        return ""


def _own(filename: str) -> bool:
    return "site-packages" not in filename and "underhood" not in filename and not filename.startswith("<frozen")


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` in this thread when the time is over, and again every half second until it gets through.

    By an alarm signal where there is one and this is the main thread (it interrupts `time.sleep` as well), otherwise by an
    exception set from a watching thread, which arrives with the next line of Python.
    """
    if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():

        def ring(signum: int, frame: Any) -> None:
            raise TimeUp

        previous = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        return
    done, thread = threading.Event(), threading.get_ident()

    def watch() -> None:
        wait = seconds
        while not done.wait(wait):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeUp))
            wait = 0.5

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


@contextlib.contextmanager
def clean_slate() -> Iterator[None]:
    """A known state around a case, whatever earlier cells left behind; the learner's own state comes back afterwards.

    Covers warnings, the random generators, the recursion limit, numpy's error state and print options, torch's default
    dtype, grad mode, anomaly detection and number of threads.
    """
    torch = sys.modules.get("torch")
    limit, python_state, numpy_state = sys.getrecursionlimit(), random.getstate(), np.random.get_state()
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(np.errstate(all="ignore"))
        stack.enter_context(np.printoptions())
        if torch is not None:
            # The CPU's generator alone: torch.manual_seed would also queue a seed for every device.
            generator = torch.default_generator
            stack.callback(generator.set_state, generator.get_state())
            generator.manual_seed(SEED)
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(torch.autograd.set_detect_anomaly(False))
            dtype = torch.get_default_dtype()
            stack.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        random.seed(SEED)
        np.random.seed(SEED)
        sys.setrecursionlimit(1000 + sum(1 for _ in traceback.walk_stack(None)))
        try:
            yield
        finally:
            sys.setrecursionlimit(limit)
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def seen_to_json(seen: Seen) -> dict[str, Any]:
    """JSON of what was seen: for the record, and from the sandbox to the judge."""
    written = {
        "value": to_json(seen.value),
        "raised": list(seen.raised),
        "message": seen.message,
        "changed": list(seen.changed),
        "printed": seen.printed,
        "forbidden": seen.forbidden,
    }
    return {key: value for key, value in written.items() if value or key == "value"}


def seen_from_json(written: Any) -> Seen:
    """What `seen_to_json` wrote; ValueError on anything else."""
    if type(written) is not dict or any(
        type(written.get(k, "")) is not str for k in ("message", "printed", "forbidden")
    ):
        raise ValueError("not an observation")
    words = [tuple(written.get(key, ())) for key in ("raised", "changed")]
    if any(type(word) is not str for word in words[0] + words[1]):
        raise ValueError("not an observation")
    return Seen(
        value=from_json(written.get("value")),
        raised=tuple(in_a_line(word, 80) for word in words[0][:8]),
        message="\n".join(in_a_line(line, 300) for line in written.get("message", "")[:600].splitlines()[:2]),
        changed=tuple(in_a_line(word, 80) for word in words[1][:50]),
        printed=written.get("printed", "")[:KEPT],
        forbidden=in_a_line(written.get("forbidden", ""), 100),
    )
