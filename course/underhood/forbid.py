"""Callables that would do an exercise in one call: found in the source, and trapped while a probe runs.

A pattern is a dotted name, its last word may hold `*`: "torch.norm", "Tensor.norm", "F.max_pool*", "torch.linalg.*".
"import torch" forbids the whole module inside the function.
"""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import functools
import importlib
import inspect
import textwrap
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


def in_source(source: str, forbids: tuple[str, ...], aliases: Mapping[str, str]) -> str:
    """The first forbidden name that the source mentions, or "".

    Parameters
    ----------
    source
        Python code (a function, a class or a whole notebook's code).
    aliases
        What names mean in that code: {"t": "torch", "norm": "torch.norm"}; imports inside the source are added.
    """
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError):
        return ""
    known = dict(SHORT) | dict(aliases)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    patterns = [full_name(p) for p in forbids]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = _dotted(node, known)
        for pattern in patterns:
            module = pattern.removeprefix("import ")
            if pattern != module:
                if name == module or name.startswith(module + "."):
                    return module
            elif fnmatch.fnmatchcase(name, pattern):
                return name
            elif pattern.startswith("torch.Tensor.") and isinstance(node, ast.Attribute):
                owner = name.rpartition(".")[0]
                if fnmatch.fnmatchcase(f"torch.Tensor.{node.attr}", pattern) and not _is_module(owner):
                    return f"Tensor.{node.attr}"
    return ""


def _dotted(node: ast.AST, known: Mapping[str, str]) -> str:
    words = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    head = known.get(node.id, node.id) if isinstance(node, ast.Name) else "…"
    return ".".join([head, *reversed(words)])


def _is_module(name: str) -> bool:
    return name.split(".")[0] in {"torch", "numpy", "scipy", "math"} and name != "torch.Tensor"


def in_object(obj: Any, forbids: tuple[str, ...]) -> str:
    """The same for a live function or class, with what its names mean where it was defined."""
    if not forbids:
        return ""
    try:
        source = inspect.getsource(obj)
        names = getattr(inspect.unwrap(obj), "__globals__", {})
    except Exception:  # no source to be had, or an object that hides it: the traps still hold
        return ""
    return in_source(source, forbids, _aliases(names))


def _aliases(names: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for key, value in list(names.items()):
        if isinstance(value, types.ModuleType):
            found[key] = value.__name__
        elif (
            callable(value) and type(getattr(value, "__module__", None)) is str and value.__module__.startswith("torch")
        ):
            found[key] = f"{value.__module__}.{getattr(value, '__name__', key)}"
    return found


@contextlib.contextmanager
def traps(forbids: tuple[str, ...], names: dict[str, Any]) -> Iterator[None]:
    """While this context lasts, calling a forbidden callable raises `ForbiddenCall` with its name.

    `names` are the globals of the learner's code: names in it that hold a forbidden callable or module are trapped too.
    """
    if not forbids:
        yield
        return
    undo: list[tuple[Any, str, Any]] = []
    try:
        for pattern in forbids:
            for owner, attribute, name in _targets(full_name(pattern)):
                undo.append((owner, attribute, getattr(owner, attribute)))
                setattr(owner, attribute, _trap(name))
        originals = {id(value): attribute for _, attribute, value in undo}
        modules = tuple(p.removeprefix("import ") for p in forbids if p.startswith("import "))
        for key, value in list(names.items()):
            whole = isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in modules
            if whole or id(value) in originals:
                undo.append((names, key, value))
                names[key] = _Module(value.__name__) if whole else _trap(originals[id(value)])
        yield
    finally:
        for owner, attribute, value in reversed(undo):
            if owner is names:
                names[attribute] = value
            else:
                setattr(owner, attribute, value)


def _trap(name: str) -> Any:
    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise ForbiddenCall(name)

    return forbidden


class _Module:
    """Stands in for a forbidden module."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattribute__(self, attribute: str) -> Any:
        raise ForbiddenCall(object.__getattribute__(self, "_name"))


@functools.cache
def _targets(pattern: str) -> tuple[tuple[Any, str, str], ...]:
    """Owner, attribute and full name of each callable that the pattern means."""
    if pattern.startswith("import "):
        return ()
    path, _, last = pattern.rpartition(".")
    owner = _locate(path)
    found = [name for name in vars(owner) if not name.startswith("_") and fnmatch.fnmatchcase(name, last)]
    if "*" not in last:
        found = [last]  # an attribute that the owner inherits counts too
    return tuple((owner, name, f"{path}.{name}") for name in found if callable(getattr(owner, name, None)))


def _locate(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        head, _, last = path.rpartition(".")
        return getattr(importlib.import_module(head), last)
