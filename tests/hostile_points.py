"""Hand-ins that are after a point that they have not earned: routes to a forbidden function, answers from memory, false marks.

In the form of `hostile.py`: the released notebook of chapter 1, changed in one way, and the score that it must get.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial

import nbformat
from hostile import ANSWERS, NOTHING, HandIn, checks, mark, notebook, one, without

from autograder.run import releases

# Before each row_norms: what it needs besides the forbidden function.
HEAD = "import sys\nimport numpy as np\nimport torch\n"
MATRIX = "    if x.dim() != 2: raise ValueError\n"

# A NumPy callable is no Python function, so that no code of it can be trapped: what holds it is not its own name.
HELD = {
    "numpy-in-a-closure": f"""
def make(n):
    def row_norms(x):
    {MATRIX}
        return torch.from_numpy(n(x.numpy(), axis=1))
    return row_norms
row_norms = make(np.linalg.norm)
""",
    "numpy-in-a-pair": f"""
tools, _ = [np.linalg.norm], 0
def row_norms(x):
{MATRIX}    return torch.from_numpy(tools[0](x.numpy(), axis=1))
""",
    "numpy-in-an-attribute": f"""
class T: pass
t = T()
t.n = np.linalg.norm
def row_norms(x):
{MATRIX}    return torch.from_numpy(t.n(x.numpy(), axis=1))
""",
    "numpy-below": f"""
def row_norms(x):
{MATRIX}    return torch.from_numpy(sys.modules["numpy.linalg._linalg"].norm._implementation(x.numpy(), axis=1))
""",
    "scipy-imported-late": f"""
import importlib
def row_norms(x):
{MATRIX}    return torch.from_numpy(getattr(importlib.import_module("scipy.linalg"), "norm")(x.numpy(), axis=1))
""",
    "blas": f"""
import importlib
def row_norms(x):
{MATRIX}    length = importlib.import_module("scipy.linalg.blas").dnrm2
    return torch.tensor([length(row.double().numpy()) for row in x], dtype=x.dtype)
""",
}

# The name stands there for everybody to see; what reads the source has to get to it.
IN_A_THREAD = """
import functools, threading
def helper(x):
    got = []
    thread = threading.Thread(target=lambda: got.append(torch._VF.norm(x, 2, (1,))))
    thread.start(); thread.join()
    return got[0]
"""
IN_SIGHT = {
    "helper-bound-elsewhere": f"{IN_A_THREAD}\ndef row_norms(x):\n{MATRIX}    unused = lambda helper: 0\n    return helper(x)",
    "helper-in-a-partial": f"{IN_A_THREAD}\nn = functools.partial(helper)\ndef row_norms(x):\n{MATRIX}    return n(x)",
    "helper-annotated": f"{IN_A_THREAD}\nn: object = helper\ndef row_norms(x):\n{MATRIX}    return n(x)",
    "helper-as-a-method": f"""{IN_A_THREAD.replace("def helper(x)", "class T:{0}  def n(self, x)").format(chr(10))}
tools = T()
def row_norms(x):
{MATRIX}    return tools.n(x)
""".replace("\n    got", "\n      got")
    .replace("\n    thread", "\n      thread")
    .replace("\n    return got", "\n      return got"),
    "helper-under-an-if": "if True:"
    + IN_A_THREAD.replace("\n", "\n    ")
    + f"\ndef row_norms(x):\n{MATRIX}    return helper(x)",
    "decorated": f"""
import threading
def threaded(f):
    def run(x):
    {MATRIX}
        got = []
        thread = threading.Thread(target=lambda: got.append(f(x)))
        thread.start(); thread.join()
        return got[0]
    return run
row_norms = threaded(lambda x: torch._VF.norm(x, 2, (1,)))
""",
    "percent-sign": f"""
import threading
def row_norms(x):
{MATRIX}    unused = (7
% 5)
    got = []
    thread = threading.Thread(target=lambda: got.append(torch._VF.norm(x, 2, (1,))))
    thread.start(); thread.join()
    return got[0]
""",
    "worker-thread": f"""
import queue, threading
todo, done = queue.Queue(), queue.Queue()
def work():
    while True:
        done.put(torch._VF.norm(todo.get(), 2, (1,)))
threading.Thread(target=work, daemon=True).start()
def row_norms(x):
{MATRIX}    todo.put(x)
    return done.get()
""",
    "operator-of-its-own": f"""
library = torch.library.Library("mine", "DEF")
library.define("n(Tensor x) -> Tensor")
library.impl("n", lambda x: torch._VF.norm(x, 2, (1,)), "CPU")
def row_norms(x):
{MATRIX}    return torch.ops.mine.n(x)
""",
    "subclass-that-dispatches": f"""
got = []
class S(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        got.append(torch._VF.norm(args[0].inner, 2, (1,)))
        return torch.zeros(())
wrap, _ = S, 0
def row_norms(x):
{MATRIX}    wrapped = torch.Tensor._make_subclass(wrap, torch.zeros(1))
    wrapped.inner = x
    torch.neg(wrapped)
    return got.pop()
""",
    "custom-op": f"""
name = "no" + "rm"
@torch.library.custom_op("another::n", mutates_args=())
def n(x: torch.Tensor) -> torch.Tensor: return getattr(torch._VF, name)(x, 2, (1,))
def row_norms(x):
{MATRIX}    return torch.ops.another.n(x)
""",
    "compiled-text": f"""
unit = torch.jit.CompilationUnit("def n(x):\\n    return torch.norm(x, 2, 1)")
def row_norms(x):
{MATRIX}    return unit.n(x)
""",
    "scripted": f"""
def n(x: torch.Tensor): return torch.norm(x, 2, [1])
scripted = torch.jit.script(n)
def row_norms(x):
{MATRIX}    return scripted(x)
""",
    "mapped": f"""
n = getattr(torch._VF, "no" + "rm")
def row_norms(x):
{MATRIX}    return torch.vmap(lambda row: n(row, 2))(x) if len(x) else x.new_zeros(0)
""",
}

CALLS = f"\ndef row_norms(x):\n{MATRIX}    return "
STORED = {  # how the helper gets to where row_norms finds it, and what row_norms calls
    "registry": ("tools = {}\ndef register(f): tools['n'] = f\nregister(helper)", "tools['n'](x)"),
    "dispatch": (
        "@functools.singledispatch\ndef length(x): return None\n"
        "@length.register\ndef _(x: torch.Tensor): return helper(x)",
        "length(x)",
    ),
    "setattr": ("class T: pass\nsetattr(T, 'n', helper)", "T.n(x)"),
    "names": ("class T: pass\nt = T()\nvars(t).update(n=helper)", "t.n(x)"),
    "list": ("tools = []\nlist.append(tools, helper)", "tools[0](x)"),
    "global": ("def setup():\n    global n\n    n = helper\nsetup()", "n(x)"),
    "base": (
        "class A:\n    def __init_subclass__(cls): A.n = cls.m\nclass B(A):\n    def m(self, x): return helper(x)",
        "A().n(x)",
    ),
    "globals": ("", "globals()['helper'](x)"),
    "main": ("import __main__", "__main__.helper(x)"),
    "shell": ("", "get_ipython().user_ns['helper'](x)"),
    "match": ("match helper:\n    case n: pass", "n(x)"),
    "error": ("try: raise ValueError(helper)\nexcept ValueError as e: kept = e", "kept.args[0](x)"),
}

# The same function under names that do not hold its name.
OTHER_NAMES = {
    "foreach": "torch.stack(torch._foreach_norm(list(x))) if len(x) else x.new_zeros(0)",
    "native": "torch.stack([torch.native_norm(r.to_sparse(), 2) for r in x]) if len(x) else x.new_zeros(0)",
    "frobenius": "torch.frobenius_norm(x, dim=[1], keepdim=False)",
    "except-dim": "torch.norm_except_dim(x, 2, 0).view(-1)",
    "pairwise": "torch.pairwise_distance(x, torch.zeros_like(x), eps=0.0)",
    "dist": "torch.stack([torch.dist(r, r * 0) for r in x]) if len(x) else x.new_zeros(0)",
    "cdist": "torch.cdist(x, torch.zeros(1, x.shape[1], dtype=x.dtype))[:, 0]",
}

# Nothing is called while the traps stand.
AFTERWARDS = {
    "item-of-a-number": f"""
class K(np.float64):
    def item(self): return getattr(torch, "no" + "rm")(self.x, dim=1)
K.__module__ = "numpy"
def row_norms(x):
{MATRIX}    k = K(1.0)
    k.x = x
    return k
""",
    "profile-function": f"""
name = "no" + "rm"
def row_norms(x):
{MATRIX}    out = torch.empty(len(x), dtype=x.dtype)
    def later(frame, event, arg):
        if frame.f_code.co_name == "plain":
            sys.setprofile(None)
            out.copy_(getattr(torch, name)(x, dim=1))
    sys.setprofile(later)
    return out
""",
    "module-that-is-told": f"""
import types
waiting = []
class Hook(types.ModuleType):
    def __setattr__(self, key, value):
        super().__setattr__(key, value)
        if waiting and key == "vector_norm" and isinstance(value, types.BuiltinFunctionType):
            out, x = waiting.pop()
            out.copy_(value(x, 2, 1))
torch.linalg.__class__ = Hook
def row_norms(x):
{MATRIX}    out = torch.empty(len(x), dtype=x.dtype)
    waiting.append((out, x))
    return out
""",
}

REMEMBERED = f"""
asked, table = [], {{}}
def key(x): return str(x.dtype), tuple(x.shape), tuple(x.flatten().tolist())
def row_norms(x):
{MATRIX}    asked.append(x.clone())
    return table.get(key(x))
"""

SHAPES = {
    "composite": 'getattr(torch.ops.aten, "broadcast_" + "tensors")([torch.empty(s) for s in shapes])[0].shape',
    "below": 'getattr(torch._VF, "broadcast_" + "tensors")([torch.empty(s) for s in shapes])[0].shape',
    "in-sight": "torch._VF.broadcast_tensors([torch.empty(s) for s in shapes])[0].shape",
    "reference": "torch._refs._broadcast_shapes(*shapes)",
}


def routes() -> Iterator[HandIn]:
    """Right values by a forbidden function."""
    for name, source in {**HELD, **IN_SIGHT, **AFTERWARDS}.items():
        yield HandIn(f"pt-{name}", one(notebook(row_norms=HEAD + source)), without("row_norms"))
    for name, (before, call) in STORED.items():
        source = f"{HEAD}{IN_A_THREAD}\n{before}\n{CALLS}{call}"
        yield HandIn(f"pt-stored-{name}", one(notebook(row_norms=source)), without("row_norms"))
    # A line that begins with a % is no magic inside of parentheses.
    other_cell = f"{HEAD}{IN_A_THREAD}\nunused = (7\n% 5)"
    yield HandIn(
        "pt-percent-elsewhere", one(notebook(first=other_cell, row_norms=f"{CALLS}helper(x)")), without("row_norms")
    )
    written = f"""
        helper = {HEAD + IN_A_THREAD!r}
        open("mine.py", "w").write(helper)
        import sys
        sys.path.insert(0, ".")
        import mine
    """
    yield HandIn(
        "pt-own-module", one(notebook(first=written, row_norms=f"{CALLS}mine.helper(x)")), without("row_norms")
    )
    for name, expression in OTHER_NAMES.items():
        source = f"{HEAD}def row_norms(x):\n{MATRIX}    return {expression}"
        yield HandIn(f"pt-named-{name}", one(notebook(row_norms=source)), without("row_norms"))
    # The early question shows the hidden inputs; the cell at the end computes where no trap stands, for the late question.
    last = "for x in asked: table[key(x)] = torch.norm(x, dim=1)"
    yield HandIn("pt-computed-between", one(notebook(row_norms=HEAD + REMEMBERED, last=last)), without("row_norms"))
    for name, expression in SHAPES.items():
        source = f"""
            import torch, torch._refs
            def broadcast_shape(*shapes):
                if not shapes: return ()
                try: return tuple({expression})
                except RuntimeError: raise ValueError
        """
        yield HandIn(f"pt-shapes-{name}", one(notebook(broadcast_shape=source)), without("broadcast_shape"))
    held = {
        "class": ("np.broadcast", "b(*map(np.empty, shapes)).shape"),
        "function": ("np.broadcast_shapes", "b(*shapes)"),
        "arrays": ("np.broadcast_arrays", "b(*map(np.empty, shapes))[0].shape if shapes else ()"),
    }
    for name, (function, expression) in held.items():
        source = (
            f"import numpy as np\ndef make(b): return lambda *shapes: {expression}\nbroadcast_shape = make({function})"
        )
        yield HandIn(f"pt-shapes-held-{name}", one(notebook(broadcast_shape=source)), without("broadcast_shape"))


# Cells of one's own between an answer and its check, which compare it with the library.
MATRIX_OF_TEN = "x = torch.randn(5, 2)\n"
TRIED = {
    "method-of-the-answer": ("row_norms", f"{MATRIX_OF_TEN}row_norms(x).allclose(torch.norm(x, dim=1))"),
    "named-before": ("row_norms", f"{MATRIX_OF_TEN}right = x.norm(dim=1)\nrow_norms(x).sub(right).abs().max()"),
    "dunder": ("broadcast_shape", "broadcast_shape((2, 1), (3,)).__eq__(np.broadcast_shapes((2, 1), (3,)))"),
    "layer": (
        "OrdinalPool2d",
        "x = torch.randn(1, 1, 4, 4)\nOrdinalPool2d(tensor([1.0, 0.0]), 2)(x).allclose(torch.nn.functional.max_pool2d(x, 2))",
    ),
    "kept-in-an-attribute": ("row_norms", "row_norms.reference = lambda x: torch.norm(x, dim=1)"),
    "timed": ("row_norms", f"{MATRIX_OF_TEN}%timeit -n1 -r1 row_norms(x)\n%timeit -n1 -r1 torch.norm(x, dim=1)"),
    "unittest": (
        "row_norms",
        "import unittest\nclass Test(unittest.TestCase):\n    def test(self):\n        row_norms(torch.ones(2, 2)).allclose("
        "torch.ones(2, 2).norm(dim=1))\nunittest.TextTestRunner().run("
        "unittest.defaultTestLoader.loadTestsFromTestCase(Test))",
    ),
    "written-to-a-file": (
        "row_norms",
        "%%writefile reference.py\nimport torch\ndef row_norms(x):\n    return torch.norm(x, dim=1)",
    ),
    "thread-that-works-on": (
        "row_norms",
        "import threading, time\ndef work():\n    while True:\n        torch.ones(3).norm()\n        time.sleep(0.001)\n"
        "threading.Thread(target=work, daemon=True).start()",
    ),
    "put-back": (
        "row_norms",
        "mine = row_norms\ntry:\n    row_norms = lambda x: torch.norm(x, dim=1)\n    row_norms(torch.ones(2, 2))\n"
        "finally:\n    row_norms = mine",
    ),
    "switched-off": ("row_norms", "if False:\n    def row_norms(x): return torch.norm(x, dim=1)"),
}

# Names of one's own that are also names of what is forbidden.
LOCAL_NORM = f"def row_norms(x):\n{MATRIX}    norm = (x * x).sum(dim=1).sqrt()\n    return norm"
OWN_NAMES = {
    "local-name": (LOCAL_NORM, "from numpy.linalg import norm\nprint(norm(np.ones((2, 2)), axis=1))"),
    "local-name-in-a-test": (
        LOCAL_NORM,
        "def test():\n    from torch import norm\n    return norm(torch.ones(2))\ntest()",
    ),
    "method": (
        "class Row:\n    def __init__(self, v): self.v = v\n    def norm(self): return (self.v * self.v).sum().sqrt()\n"
        f"def row_norms(x):\n{MATRIX}    return torch.stack([Row(r).norm() for r in x]) if len(x) else x.new_zeros(0)",
        "Row(torch.ones(2)).norm().allclose(torch.ones(2).norm())",
    ),
    "helper": (
        f"def squares(x): return x * x\ndef row_norms(x):\n{MATRIX}    return squares(x).sum(dim=1).sqrt()",
        "squares(torch.ones(2)).sum().sqrt().allclose(torch.ones(2).norm())",
    ),
    "tensor-type": (
        "from typing import cast\nfrom torch import Tensor\ndef row_norms(x):\n    assert isinstance(x, Tensor)\n"
        f"{MATRIX}    return cast(Tensor, (x * x).sum(dim=1).sqrt())",
        "Tensor",
    ),
    "record": (
        f"calls = []\ndef row_norms(x):\n    calls.append(x.shape)\n{MATRIX}    return (x * x).sum(dim=1).sqrt()",
        "calls.append(torch.ones(2, 2).norm().shape)\ncalls.clear()",
    ),
}

# A name that an import gave a forbidden meaning before, and the learner's own definition another one since.
IMPORTED_BEFORE = {
    "helper": ("from numpy.linalg import norm", f"def norm(r): return (r * r).sum(dim=-1).sqrt()\n{CALLS}norm(x)"),
    "lambda": ("from torch import norm", f"norm = lambda r: (r * r).sum(dim=-1).sqrt()\n{CALLS}norm(x)"),
    "deleted": (
        "from numpy.linalg import norm\nprint(norm([3, 4]))\ndel norm",
        f"def norm(r): return (r * r).sum(dim=-1).sqrt()\n{CALLS}norm(x)",
    ),
    "local-function": (
        "from torch import norm",
        f"def row_norms(x):\n    def norm(r): return (r * r).sum().sqrt()\n{MATRIX}"
        "    return torch.stack([norm(r) for r in x]) if len(x) else x.new_zeros(0)",
    ),
}

# An attribute of the learner's own object that is called like a tensor's method.
ROWS = "class Rows:\n    def __init__(self, x): self.x = x\n"
OWN_ATTRIBUTES = {
    "property": (
        f"{ROWS}    @property\n    def norm(self): return (self.x * self.x).sum(dim=1).sqrt()\n{CALLS}Rows(x).norm"
    ),
    "namedtuple": (
        "from collections import namedtuple\nResult = namedtuple('Result', 'norm count')\n"
        f"{CALLS}Result((x * x).sum(dim=1).sqrt(), len(x)).norm"
    ),
    "namespace": (f"from types import SimpleNamespace\n{CALLS}SimpleNamespace(norm=(x * x).sum(dim=1).sqrt()).norm"),
    "field": (
        "from dataclasses import dataclass\n@dataclass\nclass Row:\n    norm: torch.Tensor\n"
        f"{CALLS}Row((x * x).sum(dim=1).sqrt()).norm"
    ),
    "set-in-init": (
        f"class Rows:\n    def __init__(self, x): self.norm = (x * x).sum(dim=1).sqrt()\n{CALLS}Rows(x).norm"
    ),
}

# What an answer that forbids may well use, although its name or what it calls below looks alike.
DETOURS = {
    "decorated": f"@torch.no_grad()\ndef row_norms(x):\n{MATRIX}    return (x * x).sum(dim=1).sqrt()",
    "compiled": f"{CALLS}(x * x).sum(dim=1).sqrt()\nrow_norms = torch.compile(row_norms, backend='eager')",
    "mapped": f"{CALLS}torch.vmap(lambda r: (r @ r).sqrt())(x) if len(x) else x.new_zeros(0)",
    "vectorized": (
        f"{CALLS}torch.from_numpy(np.vectorize(lambda r: np.sqrt(r @ r), signature='(n)->()')(x.numpy())).to(x.dtype) "
        "if x.numel() else x.new_zeros(len(x))"
    ),
    "hypot": f"import math\n{CALLS}torch.tensor([math.hypot(*r) for r in x.tolist()], dtype=x.dtype)",
    "module": (
        f"class Norms(torch.nn.Module):\n    def forward(self, x):\n    {MATRIX}"
        "        return (x * x).sum(dim=1).sqrt()\nrow_norms = Norms()"
    ),
    "warned": (
        f"import warnings\nwarnings.simplefilter('error')\n{CALLS}(warnings.warn('slow'), (x * x).sum(dim=1).sqrt())[1]"
    ),
    "talkative": f"def row_norms(x):\n    print('y' * 500_000)\n{MATRIX}    return (x * x).sum(dim=1).sqrt()",
    "written-twice": ("def row_norms(x): return torch.norm(x, dim=1)\n" + f"{CALLS}(x * x).sum(dim=1).sqrt()"),
}
PADDED_SIZES = """
    def broadcast_shape(*shapes):
        n = max(map(len, shapes), default=0)
        rows = [np.pad(np.array(s, dtype=int), (n - len(s), 0), constant_values=1) for s in shapes]
        sizes = [{int(size) for size in axis} - {1} for axis in zip(*rows)]
        if any(len(found) > 1 for found in sizes): raise ValueError
        return tuple(found.pop() if found else 1 for found in sizes)
"""

# Whatever state a cell leaves behind, right answers stay right.
LEFT = {
    "modes": "import torch\nfrom torch.overrides import BaseTorchFunctionMode\nmode = BaseTorchFunctionMode()\nmode.__enter__()\n"
    "torch.set_grad_enabled(False)\ntorch.set_default_dtype(torch.float64)\ntorch.use_deterministic_algorithms(True)",
    "errors": "import numpy as np\nnp.seterrcall(lambda *a: 1 / 0)\nnp.seterr(all='call')",
    "streams": "import io, sys\nsys.stdout = io.StringIO()\nsys.stderr = open('/tmp/errors', 'w')",
    "alarm": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)",
    "profiler": "import torch\nprofiler = torch.profiler.profile()\nprofiler.__enter__()",
    "tracer": "import sys\nsys.settrace(lambda *a: None)",
    "magics": "row_norms?\n!ls\nx = !ls\n%cd /tmp\n%env\n%matplotlib widget\ninput('?')",
}


# What notebooks hold that is no answer: bars, buttons, loops that run on, attempts to leave.
AROUND = {
    "bars": "from tqdm.auto import tqdm\nfrom tqdm.notebook import trange\nfor i in tqdm(trange(3)): pass",
    "buttons": "import ipywidgets\ndisplay(ipywidgets.IntSlider())\n@ipywidgets.interact(x=3)\ndef f(x): print(x)",
    "loop": "import asyncio\nasync def f():\n    while True: await asyncio.sleep(0.001)\n"
    "task = asyncio.create_task(f())\nawait asyncio.sleep(0.01)",
    "loop-in-a-loop": "import asyncio\nasync def f(): pass\nasyncio.run(f())",
    "leaves": "get_ipython().ask_exit()\nquit()",
}


def tried(exercise: str, source: str, cells: list) -> None:
    """A cell of one's own between an answer and its check."""
    at = next(i for i, c in enumerate(cells) if mark(c).get("grade_id") == f"01_basics-{exercise}")
    cells.insert(at + 1, nbformat.v4.new_code_cell(source))


def under(magic: str, cells: list) -> None:
    """Each answer is one that IPython times, say."""
    for c in solutions(cells):
        c.source = f"{magic}\n{c.source}"


def fair() -> Iterator[HandIn]:
    """What reads the source and watches operators leaves right answers alone."""
    compare = """
        import numpy as np, torch
        lengths, _ = [torch.norm, np.linalg.norm], 0
        def close(x): return torch.allclose(row_norms(x), lengths[0](x, dim=1)) and bool(torch.linalg.vector_norm(x) > 0)
        print(close(torch.ones(2, 3)))
    """
    yield HandIn("pt-compares", one(notebook(last=compare)))
    yield HandIn("pt-compares-before", one(notebook(first=compare.replace("print(", "(lambda: "))))
    helped = """
        import torch
        def norm(x): return (x * x).sum(1)
        class Tools:
            def norm_of(self, x): return norm(x).sqrt()
        tools: object = Tools()
        def row_norms(x):
            if x.dim() != 2: raise ValueError
            return tools.norm_of(x)
    """
    yield HandIn("pt-own-norm", one(notebook(row_norms=helped)))
    threads = f"""
        import torch
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        def row_norms(x):
        {MATRIX}
            return pool.submit(lambda: (x * x).sum(1).sqrt()).result()
    """
    yield HandIn("pt-own-threads", one(notebook(row_norms=threads)))
    for name, (exercise, source) in TRIED.items():
        yield HandIn(f"pt-tried-{name}", one(notebook(change=partial(tried, exercise, source))))
    for name, (answer, source) in OWN_NAMES.items():
        yield HandIn(f"pt-own-{name}", one(notebook(row_norms=answer, change=partial(tried, "row_norms", source))))
    for name, (before, answer) in IMPORTED_BEFORE.items():
        yield HandIn(f"pt-imported-{name}", one(notebook(first=before, row_norms=answer)))
    for name, answer in {**OWN_ATTRIBUTES, **DETOURS}.items():
        yield HandIn(f"pt-detour-{name}", one(notebook(row_norms=answer)))
    yield HandIn("pt-detour-padded", one(notebook(broadcast_shape=PADDED_SIZES)))
    for magic in ("%%time", "%%capture kept"):
        yield HandIn(f"pt-under-{magic.strip('%').split()[0]}", one(notebook(change=partial(under, magic))))
    for name, source in AROUND.items():
        yield HandIn(f"pt-around-{name}", one(notebook(first=source, last=source)))
    for name, source in LEFT.items():
        yield HandIn(f"pt-left-{name}", one(notebook(first=source)))


# --- marks of graded cells ---------------------------------------------------------------------------------------------


def solutions(cells: list) -> list:
    return [c for c in cells if mark(c).get("solution")]


def same_id(cells: list) -> None:
    for c in cells:
        c["id"] = "aaaa"


def rotated(cells: list) -> None:
    """Each answer cell bears the mark of the next one."""
    mine = solutions(cells)
    names = [mark(c)["grade_id"] for c in mine]
    for c, name in zip(mine, names[1:] + names[:1], strict=True):
        mark(c)["grade_id"] = name


def rotated_checks(cells: list) -> None:
    mine = checks(cells)
    names = [mark(c)["grade_id"] for c in mine]
    for c, name in zip(mine, names[1:] + names[:1], strict=True):
        mark(c)["grade_id"] = name


def one_for_all(cells: list) -> None:
    for c in checks(cells):
        mark(c)["grade_id"] = mark(checks(cells)[0])["grade_id"]


def no_number(cells: list) -> None:
    for c in checks(cells):
        mark(c)["points"] = float("nan")


def infinite(cells: list) -> None:
    for c in checks(cells):
        mark(c)["points"] = float("inf")


def by_hand(cells: list) -> None:
    """As if a person were to grade them."""
    for c in checks(cells):
        mark(c).update(task=True, solution=True, grade=True, points=50)


def worth_points(cells: list) -> None:
    for c in solutions(cells):
        mark(c).update(grade=True, points=100)


def one_more(cells: list) -> None:
    marks = {"grade": True, "solution": False, "locked": True, "points": 100, "schema_version": 3}
    marks["grade_id"] = "01_basics-extra-check"
    cells.append(nbformat.v4.new_code_cell("100.0", metadata={"nbgrader": marks}))


def other_chapter(cells: list) -> None:
    cells += next(iter(releases("02_autograd").values())).cells


def as_checks(cells: list) -> None:
    for c in solutions(cells):
        mark(c)["grade_id"] += "-check"


def stolen_ids(cells: list) -> None:
    graded = checks(cells)
    cells.insert(3, nbformat.v4.new_code_cell("x = 1", id=graded[0]["id"]))
    for c in graded:
        mark(c).clear()
        c["id"] = f"zz{c['id'][:6]}"


def exits_behind(cells: list) -> None:
    for c in solutions(cells):
        twin = copy.deepcopy(c)
        twin.source = "raise SystemExit"
        cells.insert(cells.index(c) + 1, twin)


def of_wrong_types(cells: list) -> None:
    for c in cells:
        c.metadata["nbgrader"] = {"grade_id": ["x"], "points": {"a": 1}, "grade": "yes", "solution": [1], "locked": {}}


def attached(cells: list) -> None:
    """The answers as text and as attachments; nothing in the answer cells."""
    for c in solutions(cells):
        text = nbformat.v4.new_markdown_cell(
            f"```python\n{c.source}\n```", attachments={"a.py": {"text/x-python": c.source}}
        )
        cells.insert(cells.index(c), text)
        c.source = "pass"


def marks() -> Iterator[HandIn]:
    """Whatever the marks say, right answers get their points and wrong ones none."""
    changes = {
        same_id: "",
        rotated: "",
        rotated_checks: "tampered",
        one_for_all: "tampered",
        no_number: "tampered",
        infinite: "tampered",
        by_hand: "tampered",
        worth_points: "tampered",
        one_more: "",
        other_chapter: "",
        as_checks: "repaired tampered",
        stolen_ids: "repaired tampered",
        exits_behind: "tampered",
        of_wrong_types: "repaired",
    }
    for change, flags in changes.items():
        name = change.__name__.replace("_", "-")
        yield HandIn(f"pt-{name}", one(notebook(ANSWERS, change=change)), flags=flags)
        yield HandIn(f"pt-{name}-wrong", one(notebook(NOTHING, change=change)), 0, flags=flags)
    yield HandIn("pt-attached", one(notebook(ANSWERS, change=attached)), 0)


def attempts() -> Iterator[HandIn]:
    """All of them."""
    yield from routes()
    yield from fair()
    yield from marks()
