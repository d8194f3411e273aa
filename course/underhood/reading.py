"""Callables that would do an exercise in one call, found by reading the source.

It follows the names from an answer's definition through the notebook. What it does not find the traps of `forbid` catch
while a probe runs; what neither finds a person who reads the answer sees.
"""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import functools
import inspect
import re
import symtable
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, cast

from .forbid import SHORT, operators, patterns

# PyTorch in Python, written once more: no answer to an exercise in which something of PyTorch's is forbidden.
BENEATH = ("torch._refs.", "torch._decomp.", "torch._functorch.", "torch._prims", "torch.distributed.optim.")


def in_source(
    source: str, forbids: tuple[str, ...], aliases: Mapping[str, str], methods: Set[str] = frozenset()
) -> str:
    """The first forbidden name that the source mentions, or "".

    Parameters
    ----------
    source
        Python code (a function, a class or a whole notebook's code).
    aliases
        What names mean in that code: {"t": "torch", "norm": "torch.norm"}; imports inside the source are added.
    methods
        Names of methods of own classes, which are no tensor's.
    """
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return _in_nodes([tree], forbids, dict(SHORT) | dict(aliases), methods)


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
            elif binding.afresh:
                known.pop(binding.name, None)
            if binding.name == name and name in defined and not binding.afresh:
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


def _in_nodes(
    nodes: Sequence[ast.AST], forbids: tuple[str, ...], meaning: Mapping[str, str], methods: Set[str] = frozenset()
) -> str:
    """The first forbidden name in the code.

    Parameters
    ----------
    meaning
        What names mean that the code does not bind itself.
    methods
        Of the learner's own classes, beside those in the code.
    """
    inside = [(node, [inner for inner in ast.walk(node)]) for node in nodes]
    methods = methods | {one for _, inner in inside for node in inner for one in _members(node)}
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


def _members(node: ast.AST) -> Iterator[str]:
    """Names of an own object's members: a class's functions and fields, `self.norm = …`, `Row(norm=…)`."""
    match node:
        case ast.ClassDef():
            for one in node.body:
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield one.name
                targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
                yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.Attribute(attr=name, ctx=ast.Store()) | ast.keyword(arg=str(name)):
            yield name
        case ast.Call(func=ast.Name(id="namedtuple") | ast.Attribute(attr="namedtuple"), args=[_, fields]):
            for text in ast.walk(fields):
                if isinstance(text, ast.Constant) and type(text.value) is str:
                    yield from text.value.replace(",", " ").split()


def _mentioned(
    everything: Sequence[ast.AST], forbids: tuple[str, ...], known: Mapping[str, str], methods: Set[str]
) -> str:
    """The first forbidden name among these; `methods` are the code's own."""
    wanted = patterns(forbids)
    # PyTorch's own names below the public ones: no trap holds there in a thread, for which no dispatcher is watched.
    library = any(pattern.removeprefix("import ").startswith("torch") for pattern in wanted)
    below = {name.removeprefix("aten::") for name in operators(forbids)} if "torch" in sys.modules else set[str]()
    for node in everything:
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = _dotted(node, known)
        if library and name.startswith(BENEATH):
            return name
        private = below.intersection(name.split("."))
        if private and (name.startswith(("torch.ops.", "torch._")) or any(n.startswith("linalg_") for n in private)):
            return name
        for pattern in wanted:
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
        classes = [v for v in list(names.values()) if type(v) is type and v.__module__ == names.get("__name__")]
        methods = {member for cls in classes for member in (*vars(cls), *getattr(cls, "__annotations__", ()))}
        functions = [value for cls in classes for value in vars(cls).values() if type(value) is types.FunctionType]
        methods |= {name for function in functions for name in function.__code__.co_names}  # self.norm = …
    except Exception:  # no source to be had, or an object that hides it: the traps still hold
        return ""
    return next(filter(None, (in_source(source, forbids, _aliases(names), methods) for source in sources)), "")


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
        elif key in SHORT:  # their own, whatever it is
            found[key] = key
    return found
