"""Callables that would do an exercise in one call: trapped while a probe runs. `reading` finds them in the source.

A pattern is a dotted name, its last word may hold `*`: "torch.norm", "Tensor.norm", "F.max_pool*", "torch.linalg.*".
"import torch" forbids the whole module inside the function. What torch.linalg has under a name of NumPy's or SciPy's is
forbidden there as well.

A trap holds whatever name a forbidden callable is reached by: all modules' names for it, the names in the learner's
code, the function's own code and a class's own methods are trapped. In the grader PyTorch's kernels for them are replaced
and its dispatcher is watched, so that neither `torch.ops` and `torch._C` nor a thread is a way around. All of this is in
the learner's own process: code that takes the traps apart gets through, and is seen by who reads it.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import importlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

SHORT = {"F": "torch.nn.functional", "nn": "torch.nn", "np": "numpy", "Tensor": "torch.Tensor"}


class ForbiddenCall(BaseException):
    """Raised by a trap. Not an `Exception`, so that a learner's `except Exception` does not swallow it."""


def full_name(pattern: str) -> str:
    """The pattern with its first word written out: "F.relu" is "torch.nn.functional.relu"."""
    head, dot, rest = pattern.partition(".")
    return SHORT.get(head, head) + dot + rest


@contextlib.contextmanager
def traps(forbids: tuple[str, ...], names: dict[str, Any]) -> Iterator[None]:
    """While this context lasts, calling a forbidden callable raises `ForbiddenCall` with its name.

    `names` are the globals of the learner's code: names in it that hold a forbidden callable or module are trapped too.
    """
    if not forbids:
        yield
        return
    undo: list[tuple[Any, str, Any]] = []
    with contextlib.ExitStack() as stack:
        stack.callback(_put_back, undo)
        originals: dict[int, str] = {}
        for pattern in patterns(forbids):
            for owner, attribute, name in _targets(pattern):
                value = getattr(owner, attribute)
                originals.setdefault(id(value), name)
                undo.append((owner, attribute, value))
                setattr(owner, attribute, _trap_code(name) if attribute == "__code__" else _trap(name))
        modules = tuple(p.removeprefix("import ") for p in forbids if p.startswith("import "))
        for key, value in list(names.items()):
            whole = isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in modules
            if whole or id(value) in originals:
                undo.append((names, key, value))
                names[key] = _Module(value.__name__) if whole else _trap(originals[id(value)])
        # PyTorch's dispatch modes import torch._dynamo, which takes seconds: they are for the grader, which has it warm.
        named = operators(forbids) if "torch._dynamo" in sys.modules else {}
        every = "torch._dynamo" in sys.modules and "torch" in modules
        if named or every:
            stack.enter_context(_kernels_replaced(forbids))
            for watch in _watch_classes():
                stack.enter_context(watch(named, every))
        yield


def _put_back(undo: list[tuple[Any, str, Any]]) -> None:
    for owner, attribute, value in reversed(undo):
        if type(owner) is dict:
            owner[attribute] = value
        else:
            setattr(owner, attribute, value)


@functools.cache
def _trap(name: str) -> Any:
    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise ForbiddenCall(name)

    return forbidden


@functools.cache
def _trap_code(name: str) -> types.CodeType:
    """Code for a function of another module: it cannot use the names of this one."""
    source = (
        f"def forbidden(*args, **kwargs):\n    from {__name__} import ForbiddenCall\n    raise ForbiddenCall({name!r})"
    )
    scope: dict[str, Any] = {}
    exec(source, scope)
    return scope["forbidden"].__code__


class _Module:
    """Stands in for a forbidden module."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattribute__(self, attribute: str) -> Any:
        raise ForbiddenCall(object.__getattribute__(self, "_name"))


def patterns(forbids: tuple[str, ...]) -> list[str]:
    """The patterns written out, and those of the same functions in NumPy and SciPy."""
    patterns = [full_name(pattern) for pattern in forbids]
    linear = [pattern.removeprefix("torch.") for pattern in patterns if pattern.startswith("torch.linalg.")]
    return patterns + [f"{package}.{rest}" for package in ("numpy", "scipy") for rest in linear]


def _targets(pattern: str) -> tuple[tuple[Any, str, str], ...]:
    """Owner, attribute and full name of everything to trap for the pattern; nothing is imported for SciPy's sake."""
    if pattern.startswith("scipy.") and pattern.rpartition(".")[0] not in sys.modules:
        return ()
    return _places(pattern)


@functools.cache
def _places(pattern: str) -> tuple[tuple[Any, str, str], ...]:
    direct = [place for place in _named(pattern) if "*" not in pattern or _is_meant(place, pattern)]
    places = list(direct)
    deep: dict[int, str] = {}
    for owner, attribute, name in direct:
        value = getattr(owner, attribute)
        home = owner.__name__ if isinstance(owner, types.ModuleType) else str(getattr(owner, "__module__", None))
        if not f"{getattr(value, '__module__', None)}.".startswith(f"{home}."):
            continue
        deep[id(value)] = name
        written = getattr(value, "_implementation", value)  # what stands behind NumPy's dispatcher
        if isinstance(written, types.FunctionType) and not written.__code__.co_freevars:
            places.append((written, "__code__", name))
        elif isinstance(value, type):
            own = {k for k, v in vars(value).items() if isinstance(v, types.FunctionType)}
            own = {k for k in own if not k.startswith("__")} | own & {"__init__", "__new__", "__call__"}
            places += [(value, method, name) for method in sorted(own)]
    for module in [m for key, m in list(sys.modules.items()) if key.split(".")[0] in ("torch", "numpy", "scipy")]:
        if isinstance(module, types.ModuleType):
            places += [(module, key, deep[id(v)]) for key, v in list(vars(module).items()) if id(v) in deep]
    return tuple({(id(owner), attribute): (owner, attribute, name) for owner, attribute, name in places}.values())


def _is_meant(place: tuple[Any, str, str], pattern: str) -> bool:
    """Whether a `*` means it, and not only stands in that module because it is used there.

    torch.autograd.no_grad is torch.no_grad, torch.autograd.cast is typing's, and everybody may use those.
    """
    owner, attribute, name = place
    value = getattr(owner, attribute)
    if isinstance(value, type) and issubclass(value, BaseException):
        return False
    main = sys.modules[name.split(".")[0]]
    label = str(getattr(value, "__name__", ""))
    if getattr(main, label, None) is value and not fnmatch.fnmatchcase(f"{main.__name__}.{label}", pattern):
        return False
    module = str(getattr(value, "__module__", None) or main.__name__)
    inside = f"{module}.".startswith(f"{getattr(owner, '__name__', main.__name__)}.")
    private = any(word.startswith("_") for word in module.split(".")) and module.split(".")[0] == main.__name__
    return inside or private or module == main.__name__


OPERATORS = {"torch": "", "torch.Tensor": "", "torch.nn.functional": "", "torch.linalg": "linalg_"}  # prefixes in aten


@functools.cache
def operators(forbids: tuple[str, ...]) -> dict[str, str]:
    """The names of PyTorch's operators that the patterns mean: {"aten::linalg_vector_norm": "torch.linalg.*"}."""
    torch = sys.modules["torch"]
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    found: dict[str, str] = {}
    for pattern in patterns(forbids):
        path, _, last = pattern.rpartition(".")
        if path in OPERATORS:
            wanted = OPERATORS[path] + last
            meant = fnmatch.filter(names, f"aten::{wanted}")
            if path != "torch.Tensor":
                meant += fnmatch.filter(names, f"aten::_{wanted}") + fnmatch.filter(names, f"aten::_foreach_{wanted}")
            found |= dict.fromkeys(meant, pattern)
    return found


MAKERS = ("empty", "empty_strided", "lift_fresh", "_to_copy", "scalar_tensor")  # what making a tensor comes down to


@contextlib.contextmanager
def _kernels_replaced(forbids: tuple[str, ...]) -> Iterator[None]:
    """While this lasts, PyTorch's CPU kernels of the forbidden operators raise: also in other threads and operators."""
    library = sys.modules["torch.library"].Library("aten", "IMPL")
    try:
        for overload, pattern in _overloads(forbids):
            library.impl(overload, _trap(pattern), "CPU")
        yield
    finally:
        library._destroy()


@functools.cache
def _overloads(forbids: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """All variants of the forbidden operators: (("norm.ScalarOpt_dim", "torch.norm"), …)."""
    torch = sys.modules["torch"]
    meant = {name.removeprefix("aten::"): pattern for name, pattern in operators(forbids).items()}
    if "import torch" in forbids:
        meant |= dict.fromkeys(MAKERS, "torch")
    names = {n.removeprefix("aten::") for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")}
    return tuple(sorted((name, meant[name.partition(".")[0]]) for name in names if name.partition(".")[0] in meant))


@functools.cache
def _watch_classes() -> tuple[type, type]:
    """While one of these lasts, running one of PyTorch's operators by any of its names raises `ForbiddenCall`.

    The first sees what is dispatched, the second what Python calls: operators that are made of others come no further.
    """
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch:
        def __init__(self, operators: Mapping[str, str], every: bool) -> None:
            super().__init__()
            self.operators, self.every = operators, every

        def look(self, name: str) -> None:
            pattern = "torch" if self.every else self.operators.get(name)
            if pattern is not None:
                raise ForbiddenCall(pattern)

    class Dispatched(Watch, TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.look(func._schema.name)
            return func(*args, **(kwargs or {}))

    class Called(Watch, TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            self.look(f"aten::{name.partition('.')[0]}" if type(name) is str else "")
            return func(*args, **(kwargs or {}))

    return Dispatched, Called


def _named(pattern: str) -> tuple[tuple[Any, str, str], ...]:
    """Owner, attribute and full name of each callable that the pattern names."""
    if pattern.startswith("import "):
        return ()
    path, _, last = pattern.rpartition(".")
    owner = _locate(path)
    open_ = last.startswith("_")  # to names that begin so
    found = [n for n in vars(owner) if (open_ or not n.startswith("_")) and fnmatch.fnmatchcase(n, last)]
    if "*" not in last:
        found = [last]  # an attribute that the owner inherits counts too
    return tuple((owner, name, f"{path}.{name}") for name in found if callable(getattr(owner, name, None)))


def _locate(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        head, _, last = path.rpartition(".")
        return getattr(importlib.import_module(head), last)
