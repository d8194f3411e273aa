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
import symtable
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, cast

# PyTorch in Python, written once more: no answer to an exercise in which something of PyTorch's is forbidden.
BENEATH = ("torch._refs.", "torch._decomp.", "torch._functorch.", "torch._prims", "torch.distributed.optim.")
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
    return _in_nodes([tree], forbids, dict(SHORT) | dict(aliases))


def in_cells(sources: Sequence[str], name: str, forbids: tuple[str, ...]) -> str:
    """The first forbidden name that a notebook's definition of `name` mentions, or one of the functions that it uses.

    Parameters
    ----------
    sources
        The code cells in order. What is no Python (a cell with an error) is passed over.
    """
    if not forbids:
        return ""
    defined: dict[str, list[ast.AST]] = {}
    known = dict(SHORT)
    for source in sources:
        for binding in _bindings(source):
            if isinstance(binding.means, ast.Import | ast.ImportFrom):
                known |= _imports(binding.means)
            if binding.name == name in defined and not binding.afresh:
                continue  # perhaps undone, or never reached: the live object's own source tells, see `in_object`
            if binding.afresh:
                defined[binding.name] = []
            defined.setdefault(binding.name, []).append(binding.means)
    reached: dict[str, list[ast.AST]] = {}
    waiting = [name]
    while waiting:
        key = waiting.pop()
        if key in defined and key not in reached:
            reached[key] = defined[key]
            for node in defined[key]:
                waiting += sorted(_free(node))
    for key, nodes in reached.items():
        if (dotted := _dotted(nodes[-1], known)) and not dotted.startswith("…"):
            known[key] = dotted
    return _in_nodes([node for nodes in reached.values() for node in nodes], forbids, known)


@functools.lru_cache(maxsize=2048)
def _parsed(source: str) -> tuple[ast.AST, ...]:
    """A cell's statements; none if it is no Python."""
    lines = source.split("\n")
    lines = [re.sub(r"\S.*", "pass", line) if line.lstrip().startswith(("%", "!")) else line for line in lines]
    tree = _tree(source) or _tree("\n".join(lines))
    return tuple(tree.body) if tree is not None else ()


@dataclass(frozen=True)
class Binding:
    """A place at a cell's top level that gives a name a meaning.

    What is stored in attributes and containers later is not followed: a learner's own tests look the same.
    """

    name: str
    means: ast.AST
    afresh: bool  # what the name meant before is gone; otherwise it may mean either


@functools.lru_cache(maxsize=2048)
def _bindings(source: str) -> tuple[Binding, ...]:
    return tuple(binding for node in _parsed(source) for binding in _bound_by(node, afresh=True))


def _bound_by(node: ast.AST, afresh: bool) -> Iterator[Binding]:
    """What a statement binds: a definition, an import, an assignment, a loop."""
    match node:
        case ast.Import() | ast.ImportFrom():
            yield from (Binding(name, node, afresh) for name in _imports(node))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield Binding(node.name, node, afresh)
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() | ast.For() | ast.AsyncFor():
            value = node.iter if isinstance(node, ast.For | ast.AsyncFor) else node.value
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            anew = afresh and isinstance(node, ast.Assign | ast.AnnAssign)
            names = [name for target in targets for name in _names(target)] if value is not None else []
            yield from (Binding(name, value or node, anew) for name in names)
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
            yield from (Binding(name, value, False) for name in _names(target))
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for inner in ast.iter_child_nodes(node):
            yield from _bound_by(inner, afresh=False)


def _names(target: ast.AST) -> list[str]:
    """The names in `a, (b, *c)`; `d.e` and `f[0]` are none."""
    if isinstance(target, ast.Tuple | ast.List):
        return [name for inner in target.elts for name in _names(inner)]
    if isinstance(target, ast.Starred):
        return _names(target.value)
    return [target.id] if isinstance(target, ast.Name) else []


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


@functools.lru_cache(maxsize=4096)
def _free(node: ast.AST) -> frozenset[str]:
    """Names that the code reads from outside of itself, by Python's own rules."""
    body = node if isinstance(node, ast.Module | ast.stmt) else ast.Expr(cast(ast.expr, node))
    try:
        text = ast.unparse(ast.fix_missing_locations(body))
        waiting, found = [symtable.symtable(text, "<cell>", "exec")], set[str]()
    except (SyntaxError, ValueError, RecursionError):
        return frozenset(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        inside = table.get_type() != "module"
        found |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (s.is_global() or not inside)}
    return frozenset(found)


def _imports(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """What an import has names mean."""
    if isinstance(node, ast.ImportFrom):
        return {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names} if node.module else {}
    return {a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names}


def _in_nodes(nodes: Sequence[ast.AST], forbids: tuple[str, ...], meaning: Mapping[str, str]) -> str:
    """The first forbidden name in the code, in which names that it does not bind itself have this meaning."""
    inside = [(node, [inner for inner in ast.walk(node)]) for node in nodes]
    methods = {
        one.name
        for _, inner in inside
        for cls in inner
        if isinstance(cls, ast.ClassDef)
        for one in cls.body
        if isinstance(one, ast.FunctionDef)
    }
    for node, inner in inside:
        free = _free(node)
        known = {name: meant for name, meant in meaning.items() if name in free}
        for one in inner:
            if isinstance(one, ast.Import | ast.ImportFrom):
                known |= _imports(one)
        for one in inner:
            if isinstance(one, ast.Assign):
                dotted = _dotted(one.value, known)
                for name in () if dotted.startswith("…") else [n for target in one.targets for n in _names(target)]:
                    known[name] = dotted
        if found := _mentioned([*inner, *filter(None, map(_by_getattr, inner))], forbids, known, methods):
            return found
    return ""


def _mentioned(
    everything: Sequence[ast.AST], forbids: tuple[str, ...], known: Mapping[str, str], methods: Set[str]
) -> str:
    """The first forbidden name among these; `methods` are the code's own."""
    patterns = _patterns(forbids)
    # PyTorch's own names below the public ones: no trap holds there in a thread, for which no dispatcher is watched.
    library = any(pattern.removeprefix("import ").startswith("torch") for pattern in patterns)
    below = {name.removeprefix("aten::") for name in _operators(forbids)} if "torch" in sys.modules else set[str]()
    for node in everything:
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = _dotted(node, known)
        if library and name.startswith(BENEATH):
            return name
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
                own = node.attr in methods  # or a tensor's after all: the trap tells
                if fnmatch.fnmatchcase(f"torch.Tensor.{node.attr}", pattern) and not own and not _is_module(owner):
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
    head = known.get(node.id, node.id) if isinstance(node, ast.Name) else _imported(node) or "…"
    return ".".join([head, *reversed(words)])


def _imported(node: ast.AST) -> str:
    """The module of `__import__("a.b")`, `importlib.import_module("a.b")` and `sys.modules["a.b"]`, or ""."""
    match node:
        case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(name)), *_]):
            return name.partition(".")[0]
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return name
        case ast.Subscript(
            value=ast.Attribute(attr="modules") | ast.Name(id="modules"), slice=ast.Constant(value=str(name))
        ):
            return name
    return ""


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
            label = str(getattr(value, "__name__", key))
            main = getattr(sys.modules.get("torch"), label, None) is value  # torch.no_grad, wherever it is defined
            found[key] = f"torch.{label}" if main else f"{value.__module__}.{label}"
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
        if "torch._dynamo" in sys.modules and ((operators := _operators(forbids)) or "torch" in modules):
            stack.enter_context(_kernels_replaced(forbids))
            for watch in _watch_classes():
                stack.enter_context(watch(operators, "torch" in modules))
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
    meant = {name.removeprefix("aten::"): pattern for name, pattern in _operators(forbids).items()}
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
