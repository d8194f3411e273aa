"""Callables that would do an exercise in one call: found in the source, and trapped while a probe runs.

A pattern is a dotted name, its last word may hold `*`: "torch.norm", "Tensor.norm", "F.max_pool*", "torch.linalg.*".
"import torch" forbids the whole module inside the function. What torch.linalg has under a name of NumPy's or SciPy's is
forbidden there as well.

A trap holds whatever name a forbidden callable is reached by: all modules' names for it, the names in the learner's
code, the function's own code and a class's own methods are trapped, and in the grader PyTorch's operators are watched
where they are dispatched, so that `torch.ops` and `torch._C` are no way around. All of this is in the learner's own
process: code that takes the traps apart gets through, and is seen by who reads it.
"""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import functools
import importlib
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
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
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return _in_nodes([tree], forbids, aliases)


def in_cells(sources: Sequence[str], name: str, forbids: tuple[str, ...]) -> str:
    """The first forbidden name that a notebook's definition of `name` mentions, or one of the functions that it uses.

    Parameters
    ----------
    sources
        The code cells in order. What is no Python (a cell with an error) is passed over.
    """
    if not forbids:
        return ""
    defined: dict[str, ast.AST] = {}
    imports: list[ast.AST] = []
    for source in sources:
        for node in _parsed(source):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.append(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined[node.name] = node
            elif isinstance(node, ast.Assign):
                defined |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
    reached: dict[str, ast.AST] = {}
    waiting = [name]
    while waiting:
        key = waiting.pop()
        if key in defined and key not in reached:
            reached[key] = defined[key]
            waiting += sorted(_free(defined[key]))
    return _in_nodes([*imports, *reached.values()], forbids, {}, reached)


@functools.lru_cache(maxsize=2048)
def _parsed(source: str) -> tuple[ast.AST, ...]:
    """All imports of a cell, and its definitions of functions, classes and other names for something; none if it is no Python."""
    lines = source.split("\n")
    lines = [re.sub(r"\S.*", "pass", line) if line.lstrip().startswith(("%", "!")) else line for line in lines]
    tree = _tree("\n".join(lines))
    if tree is None:
        return ()
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    values = ast.Attribute | ast.Name | ast.Lambda | ast.List | ast.Tuple | ast.Dict
    named = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, values)]
    made = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    return (*imports, *sorted([*named, *made], key=lambda node: node.lineno))


def _tree(text: str) -> ast.Module | None:
    """The code, or where it is IPython's (`name?`) what IPython makes of it."""
    for transformed in (False, True):
        ipython = sys.modules.get("IPython.core.inputtransformer2")
        with contextlib.suppress(Exception):
            if not transformed:
                return ast.parse(text)
            if ipython is not None:
                return ast.parse(ipython.TransformerManager().transform_cell(text))
    return None


def _free(node: ast.AST) -> set[str]:
    """Names that the code reads and does not bind itself."""
    names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    bound = {inner.id for inner in names if not isinstance(inner.ctx, ast.Load)}
    bound |= {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
    return {inner.id for inner in names} - bound


def _in_nodes(
    nodes: Sequence[ast.AST],
    forbids: tuple[str, ...],
    aliases: Mapping[str, str],
    assigned: Mapping[str, ast.AST] | None = None,
) -> str:
    everything = [inner for node in nodes for inner in ast.walk(node)]
    everything += [made for node in everything if (made := _by_getattr(node))]
    known = dict(SHORT) | dict(aliases)
    for node in everything:
        if isinstance(node, ast.Import):
            known |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    named = dict(assigned or {})
    for node in everything:
        if isinstance(node, ast.Assign):
            named |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
    known |= {key: _dotted(value, known) for key, value in named.items() if isinstance(value, ast.Attribute | ast.Name)}
    patterns = _patterns(forbids)
    # PyTorch's own names below the public ones: no trap holds there in a thread, for which no dispatcher is watched.
    below = {name.removeprefix("aten::") for name in _operators(forbids)} if "torch" in sys.modules else set[str]()
    for node in everything:
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = _dotted(node, known)
        private = below.intersection(name.split("."))
        if private and (name.startswith(("torch.ops.", "torch._")) or any(n.startswith("linalg_") for n in private)):
            return name
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


def _by_getattr(node: ast.AST) -> ast.Attribute | None:
    """`getattr(a, "b")` is a.b."""
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]):
            return ast.Attribute(owner, name, ast.Load())
    return None


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
        # What `__wrapped__` points to, and what stands around it.
        sources = dict.fromkeys(map(inspect.getsource, (obj, getattr(obj, "__code__", obj))))
        names = getattr(inspect.unwrap(obj), "__globals__", {})
    except Exception:  # no source to be had, or an object that hides it: the traps still hold
        return ""
    return next(filter(None, (in_source(source, forbids, _aliases(names)) for source in sources)), "")


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
    with contextlib.ExitStack() as stack:
        stack.callback(_put_back, undo)
        originals: dict[int, str] = {}
        for pattern in _patterns(forbids):
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
        if "torch._dynamo" in sys.modules and (operators := _operators(forbids)):
            stack.enter_context(_watching(operators))
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


def _patterns(forbids: tuple[str, ...]) -> list[str]:
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
    direct = _named(pattern)
    places = list(direct)
    deep: dict[int, str] = {}
    for owner, attribute, name in direct:
        value = getattr(owner, attribute)
        # torch.autograd.no_grad is torch.no_grad, and torch.autograd.cast is typing's: a `*` does not mean those.
        main = sys.modules[name.split(".")[0]]
        label = getattr(value, "__name__", "")
        home = owner.__name__ if isinstance(owner, types.ModuleType) else str(getattr(owner, "__module__", None))
        if not f"{getattr(value, '__module__', None)}.".startswith(f"{home}."):
            continue
        if getattr(main, label, None) is value and not fnmatch.fnmatchcase(f"{main.__name__}.{label}", pattern):
            continue
        deep[id(value)] = name
        if isinstance(value, types.FunctionType) and not value.__code__.co_freevars:
            places.append((value, "__code__", name))
        elif isinstance(value, type):
            own = {k for k, v in vars(value).items() if isinstance(v, types.FunctionType)}
            own = {k for k in own if not k.startswith("__")} | own & {"__init__", "__new__", "__call__"}
            places += [(value, method, name) for method in sorted(own)]
    for module in [m for key, m in list(sys.modules.items()) if key.split(".")[0] in ("torch", "numpy", "scipy")]:
        if isinstance(module, types.ModuleType):
            places += [(module, key, deep[id(v)]) for key, v in list(vars(module).items()) if id(v) in deep]
    return tuple({(id(owner), attribute): (owner, attribute, name) for owner, attribute, name in places}.values())


OPERATORS = {"torch": "", "torch.Tensor": "", "torch.nn.functional": "", "torch.linalg": "linalg_"}  # prefixes in aten


@functools.cache
def _operators(forbids: tuple[str, ...]) -> dict[str, str]:
    """The names of PyTorch's operators that the patterns mean: {"aten::linalg_vector_norm": "torch.linalg.*"}."""
    torch = sys.modules["torch"]
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    found: dict[str, str] = {}
    for pattern in _patterns(forbids):
        path, _, last = pattern.rpartition(".")
        if path in OPERATORS:
            wanted = OPERATORS[path] + last
            meant = fnmatch.filter(names, f"aten::{wanted}")
            if path != "torch.Tensor":
                meant += fnmatch.filter(names, f"aten::_{wanted}")
            found |= dict.fromkeys(meant, pattern)
    return found


def _watching(operators: Mapping[str, str]) -> contextlib.AbstractContextManager:
    """While this lasts, running one of PyTorch's operators by any of its names raises `ForbiddenCall`."""
    return _watch_class()(operators)


@functools.cache
def _watch_class() -> type:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __init__(self, operators: Mapping[str, str]) -> None:
            super().__init__()
            self.operators = operators

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = self.operators.get(func._schema.name)
            if name is not None:
                raise ForbiddenCall(name)
            return func(*args, **(kwargs or {}))

    return Watch


def _named(pattern: str) -> tuple[tuple[Any, str, str], ...]:
    """Owner, attribute and full name of each callable that the pattern names."""
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
