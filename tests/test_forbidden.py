"""An answer that reaches what its exercise forbids, by any of its names, earns nothing; honest answers are not disturbed."""

from __future__ import annotations

import linecache
import sys
import textwrap
import types

import pytest
import torch
import torch._dynamo  # as in the grader's server

from autograder.chapters import exercise
from autograder.judge import judge
from underhood.check import judged

# Each defines row_norms, right but for what it calls.
WAYS = {
    "in plain sight": "def row_norms(x): return torch.norm(x, dim=1)",
    "as a method": "def row_norms(x): return x.norm(dim=1)",
    "under another name": "n = torch.norm\ndef row_norms(x): return n(x, dim=1)",
    "imported inside": "def row_norms(x):\n    from torch import norm as n\n    return n(x, dim=1)",
    "by getattr": "def row_norms(x): return getattr(torch, 'no' + 'rm')(x, dim=1)",
    "by getattr on the input": "def row_norms(x): return getattr(x, 'no' + 'rm')(dim=1)",
    "by the class's dict": "def row_norms(x): return vars(torch.Tensor)['no' + 'rm'](x, dim=1)",
    "by another module's name": "def row_norms(x): return getattr(torch.functional, 'norm')(x, dim=1)",
    "in a default": "def row_norms(x, n=torch.norm): return n(x, dim=1)",
    "in a list": "tools = [torch.norm]\ndef row_norms(x): return tools[0](x, dim=1)",
    "in a closure": "def make():\n    n = torch.norm\n    return lambda x: n(x, dim=1)\nrow_norms = make()",
    "in a helper": "def helper(x): return torch.norm(x, dim=1)\ndef row_norms(x): return helper(x)",
    "by importlib": (
        "import importlib\ndef row_norms(x): return getattr(importlib.import_module('torch'), 'no' + 'rm')(x, dim=1)"
    ),
    "by eval": "def row_norms(x): return eval('torch.' + 'norm(x, dim=1)')",
    "by torch.ops": "def row_norms(x): return torch.ops.aten.norm(x, 2, [1])",
    "by torch.ops, computed": "def row_norms(x): return getattr(torch.ops.aten, 'linalg_vector_' + 'norm')(x, 2, [1])",
    "by torch._C": "def row_norms(x): return torch._C._linalg.linalg_vector_norm(x, 2, (1,))",
    "by torch._C's table": "def row_norms(x): return torch._C._VariableFunctions.norm(x, 2, (1,))",
    "by the method below": "def row_norms(x): return torch.Tensor.__mro__[1].norm(x, 2, (1,))",
    "by torch._VF": "def row_norms(x): return torch._VF.norm(x, 2, (1,))",
    "by NumPy": "import numpy as np\ndef row_norms(x): return torch.from_numpy(np.linalg.norm(x.numpy(), axis=1))",
    "by NumPy, computed": (
        "import numpy\ndef row_norms(x):\n"
        "    return torch.from_numpy(getattr(numpy.linalg, 'no' + 'rm')(x.numpy(), axis=1))"
    ),
    "in a thread": (
        "import threading\ndef row_norms(x):\n    got, ops = [], torch.ops\n    aten = ops.aten\n"
        "    t = threading.Thread(target=lambda: got.append(aten.linalg_vector_norm(x, 2, [1])))\n"
        "    t.start()\n    t.join()\n    return got[0]"
    ),
    "in a pool of threads, by getattr": (
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
        "def row_norms(x): return pool.submit(getattr(torch._VF, 'norm'), x, 2, (1,)).result()"
    ),
    "with nobody watching the dispatcher": (
        "def row_norms(x):\n    with torch._C._DisableTorchDispatch(): return torch._VF.norm(x, 2, (1,))"
    ),
    "swallowing what the trap raises": (
        "def row_norms(x):\n    try:\n        return x.norm(dim=1)\n    except Exception:\n        return x.norm(dim=1)"
    ),
}


def defined(source: str, name: str = "row_norms") -> types.FunctionType:
    """What the source defines, with a source that `inspect` finds, as in a notebook."""
    filename = f"<cell {abs(hash(source))}>"
    linecache.cache[filename] = (len(source), None, [line + "\n" for line in source.splitlines()], filename)
    names = {"torch": torch, "__name__": "__main__"}
    exec(compile(source, filename, "exec"), names)
    return names[name]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_the_forbidden_function_earns_nothing(way):
    for verdict in (judge("row_norms", defined(WAYS[way])), judged(exercise("row_norms"), {}, defined(WAYS[way]))):
        # Raising ValueError for wrong shapes calls nothing that is forbidden, but none of these does that.
        assert verdict.points == 0, str(verdict)
        assert "does this exercise for you" in str(verdict)


def test_the_traps_are_gone_afterwards():
    judge("row_norms", defined(WAYS["in a closure"]))
    x = torch.tensor([[3.0, 4.0]])
    assert torch.norm(x).item() == x.norm().item() == torch.linalg.vector_norm(x).item() == 5
    assert torch.functional.norm(x).item() == torch.ops.aten.norm(x).item() == 5


@pytest.mark.parametrize(
    "way, name, find",
    [
        ("the class's own module", "sgd_step", lambda: sys.modules["torch.optim.sgd"].SGD),
        ("a class in a list", "sgd_step", lambda: [torch.optim.SGD][0]),
    ],
)
def test_a_forbidden_class_makes_no_object_by_any_name(way, name, find):
    from underhood.forbid import ForbiddenCall, traps

    cls = find()
    parameters = [torch.zeros(2, requires_grad=True)]
    with traps(exercise(name).forbids, {}), pytest.raises(ForbiddenCall):
        cls(parameters, lr=0.1)
    cls(parameters, lr=0.1)


def test_what_only_a_star_matches_stays_allowed_under_its_main_name():
    """torch.autograd.* holds no_grad too, which everybody knows as torch.no_grad."""
    from underhood.forbid import traps

    with traps(("torch.autograd.*",), {}), torch.no_grad():
        assert not torch.is_grad_enabled()
    source = textwrap.dedent("""
        def row_norms(x):
            if x.dim() != 2:
                raise ValueError
            with torch.no_grad():
                return (x * x).sum(1).sqrt()
    """)
    assert judge("row_norms", defined(source)).points == 4
