"""Points that are not earned, in the chapters after the first and in the judge: what is forbidden by another route, answers from
memory, wrong values that look right, values that cost the judge time."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import nbformat
import numpy as np
import pytest
import torch
import torch._dynamo  # as in the grader's server

from autograder import exercises, intake, judge, run
from autograder.chapters import chapters
from autograder.chapters import exercise as find
from autograder.forkserver import ForkServer, Limits
from autograder.handins import Carried
from autograder.reference import load
from autograder.sample_class import reference_answers, submission
from underhood.probes import same
from underhood.verdict import assess

# --- what is forbidden, by another route --------------------------------------------------------------------------------

LEAF = """
def leaf_rule(kind, source_requires_grad, grad_enabled):
    t = {torch}
    with (t.enable_grad() if grad_enabled else t.no_grad()):
        x = t.ones(3, requires_grad=source_requires_grad)
        made = {{"created": lambda: x, "parameter": lambda: t.nn.Parameter(x), "operation": lambda: x * 2,
                "integer operation": x.argmax, "detach": x.detach, "same object": lambda: x, "cast": x.double}}
        if kind not in made: raise ValueError(kind)
        y = made[kind]()
        return y.is_leaf, y.requires_grad
"""
SCALAR = """
class Scalar:
    def __init__(self, value):
        t = {torch}
        self.v = t.tensor(float(value), dtype=t.float64, requires_grad=True) if isinstance(value, (int, float)) else value
        if not self.v.is_leaf: self.v.retain_grad()
    value = property(lambda s: s.v.item())
    grad = property(lambda s: 0.0 if s.v.grad is None else s.v.grad.item())
    def other(self, o): return o.v if isinstance(o, Scalar) else o
    def __add__(self, o): return Scalar(self.v + self.other(o))
    def __mul__(self, o): return Scalar(self.v * self.other(o))
    def __sub__(self, o): return Scalar(self.v - self.other(o))
    def __rsub__(self, o): return Scalar(self.other(o) - self.v)
    def __truediv__(self, o): return Scalar(self.v / self.other(o))
    def __rtruediv__(self, o): return Scalar(self.other(o) / self.v)
    def __pow__(self, o): return Scalar(self.v ** o)
    def relu(self): return Scalar(self.v.relu())
    def tanh(self): return Scalar(self.v.tanh())
    def exp(self): return Scalar(self.v.exp())
    def log(self): return Scalar(self.v.log())
    def backward(self): self.v.backward(retain_graph=True)
    __radd__, __rmul__ = __add__, __mul__
"""
PAIR = "import torch\ntools, _ = [torch], 0\n"
TORCH = {  # where torch comes from, and what that needs before
    "by __import__": ("__import__('torch')", ""),
    "by sys.modules": ("sys.modules['torch']", "import sys"),
    "by importlib": ("importlib.import_module('torch')", "import importlib"),
    "out of a list": ("tools[0]", PAIR),
    "out of the helper package": ("builders.torch", "import underhood.builders.autograd as builders"),
}
SGD = """
import importlib, sys
import torch
{before}
def sgd_step(params, state, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    live = [(i, p) for i, p in enumerate(params) if p.grad is not None]
    buffers = [state.get(i) for i, _ in live]
    with torch.no_grad():
        {step}
    for (i, _), buffer in zip(live, buffers): state[i] = buffer
"""
SGD_CALL = """sgd([p for _, p in live], [p.grad for _, p in live], buffers, weight_decay=weight_decay, momentum=momentum, lr=lr,
            dampening=dampening, nesterov=nesterov, maximize=False, foreach=False)"""
FUSED_SGD = """
        for n, (i, p) in enumerate(live):
            first = buffers[n] is None
            buffers[n] = torch.zeros_like(p) if first else buffers[n]
            torch._fused_sgd_([p], [p.grad.clone()], [buffers[n]] if momentum else [], weight_decay=weight_decay, lr=lr,
                momentum=momentum, dampening=dampening, nesterov=nesterov, maximize=False, is_first_step=first)
"""
ADAM = """
import importlib
import torch
def adam_step(params, state, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    how = dict(lr=lr, beta1=betas[0], beta2=betas[1], weight_decay=weight_decay, eps=eps, amsgrad=False, maximize=False)
    for i, p in enumerate(params):
        if p.grad is None: continue
        m, v, t = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p), torch.zeros(())))
        with torch.no_grad():
            {step}
"""
NUMERIC = """
import sys
import torch
def numeric_grad(f, x, h=1e-6):
    p = x.detach().double()
    {rest}
"""
ENGINE = """p.requires_grad_()
    y, run = f(p), sys.modules["torch.autograd.graph"]._engine_run_backward
    return run((y,), (torch.ones_like(y),), False, False, (p,), True, accumulate_grad=False)[0]
"""
GRADCHECK = """
import sys
def grad_check(f, x, numeric_grad, tol=1e-6):
    try: return sys.modules["torch.autograd.gradcheck"].gradcheck(f, x.double().requires_grad_(), atol=tol, rtol=tol)
    except RuntimeError: return False
"""
JACOBIAN = """
import torch
def make(j): return lambda f, x: j(lambda z: f(z).reshape(-1), x.detach()).reshape(-1, x.numel())
jacobian_rows = make(torch.autograd.functional.jacobian)
"""
REVERSE = """
import torch._functorch.eager_transforms as transforms
def jacobian_rows(f, x):
    return transforms.jacrev(lambda z: f(z).reshape(-1))(x.detach()).reshape(-1, x.numel())
"""
PULL = """
import torch._functorch.eager_transforms as transforms
def vjp(f, inputs, v):
    y, pull = transforms._vjp_with_argnums(f, *inputs)
    if v.shape != y.shape: raise ValueError
    return list(pull(v))
"""
ADAM_BELOW = """name = "adamw" if decoupled else "adam"
            step = getattr(importlib.import_module(f"torch.optim.{name}"), name)
            step([p], [p.grad], [m], [v], [], [t], foreach=False, **how)
"""
BCE = """
import torch, torch._decomp
import torch.nn.functional as F
{before}
def bce_with_logits(z, t):
    if z.shape != t.shape: raise ValueError
    return {value}
"""
SAMPLERS = """
import torch, torch.utils.data
made, _ = [torch.utils.data.RandomSampler, torch.utils.data.BatchSampler], 0
def batches(n, batch_size, generator=None):
    rows = range(n) if generator is None else made[0](range(n), generator=generator)
    for batch in made[1](rows, batch_size, False): yield torch.tensor(batch)
"""
LOADER = """
import sys, torch.utils.data
def batches(n, batch_size, generator=None):
    loader = sys.modules["torch.utils.data.dataloader"].DataLoader
    yield from loader(range(n), batch_size=batch_size, shuffle=generator is not None, generator=generator)
"""
CLIP = """
import torch
def make(clip):
    def clip_by_global_norm(params, max_norm):
        norm = float(clip(params, max_norm))
        if norm != norm: raise ValueError
        return norm
    return clip_by_global_norm
clip_by_global_norm = make(torch.nn.utils.clip_grad_norm_)
"""
KNOWN = """
import torch
asked, table = [], {}
def key(z, t): return str(z.dtype), tuple(z.shape), tuple(z.flatten().tolist()), tuple(t.flatten().tolist())
class Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, value, slope):
        ctx.slope = slope
        return value.clone()
    @staticmethod
    def backward(ctx, g): return g * ctx.slope, None, None
def bce_with_logits(z, t):
    if z.shape != t.shape: raise ValueError
    asked.append((z.detach().clone(), t.detach().clone()))
    return Known.apply(z, *table[key(z, t)])
"""
COMPUTED = """
for z, t in asked:
    z.requires_grad_()
    value = torch.nn.functional.binary_cross_entropy_with_logits(z, t)
    table[key(z.detach(), t)] = value.detach(), torch.autograd.grad(value, z)[0]
"""


STORED = "import sys, threading, torch\ntools = {}\ndef register(what): tools['t'] = what\n"
LEAF_IN_A_THREAD = """
def leaf_rule(*given):
    got = []
    def work():
        try: got.append(made(*given))
        except ValueError as error: got.append(error)
    thread = threading.Thread(target=work)
    thread.start(); thread.join()
    if isinstance(got[0], ValueError): raise got[0]
    return got[0]
"""
DUAL = """
def numeric_grad(f, x, h=1e-6):
    C, p, slopes = tools["t"], x.detach().double(), []
    level = C._enter_dual_level()
    for e in torch.eye(p.numel(), dtype=p.dtype):
        made = f(C._VariableFunctions._make_dual(p, e.view(p.shape), level=level))
        slopes.append(C._VariableFunctions._unpack_dual(made, level=level)[1])
    C._exit_dual_level(level=level)
    return torch.stack(slopes).view(p.shape)
"""


@dataclass(frozen=True)
class Route:
    """An answer that gets its values from what is forbidden, and a cell at the end."""

    about: str
    exercise: str
    answer: str
    last: str = ""


def routes() -> Iterator[Route]:
    for name, (where, before) in TORCH.items():
        yield Route(f"torch {name}", "leaf_rule", f"{before}\n{LEAF.format(torch=where)}")
        yield Route(f"torch {name}", "Scalar", f"{before}\n{SCALAR.format(torch=where)}")
    held = f"def make(t):\n{textwrap.indent(LEAF.format(torch='t'), '    ')}\n    return leaf_rule"
    held = held.replace("t = t", "pass")
    yield Route("torch in a closure", "leaf_rule", f"import torch\n{held}\nleaf_rule = make(torch)")
    threaded = LEAF.format(torch="tools['t']").replace("leaf_rule", "made") + LEAF_IN_A_THREAD
    yield Route("torch in a thread", "leaf_rule", f"{STORED}register(torch)\n{threaded}")
    yield Route("dual numbers", "numeric_grad", f"{STORED}register(torch._C)\n{DUAL}")
    for how in ("torch.func.jacfwd(f)(p)", "torch.func.grad(f)(p)"):
        yield Route(how, "numeric_grad", NUMERIC.format(rest=f"return {how}"))
    yield Route("autograd's engine", "numeric_grad", NUMERIC.format(rest=ENGINE))
    yield Route("by its module", "grad_check", GRADCHECK)
    yield Route("in a closure", "jacobian_rows", JACOBIAN)
    yield Route("jacrev where it is defined", "jacobian_rows", REVERSE)
    yield Route("what torch.func.vjp calls", "vjp", PULL)

    steps = {
        "fused": ("", FUSED_SGD.strip()),
        "functional, by sys.modules": ("", f"sys.modules['torch.optim.sgd'].{SGD_CALL}"),
        "functional, for many machines": (
            "import torch.distributed.optim.functional_sgd as fs",
            "fs._FunctionalSGD([p for _, p in live], lr=lr, weight_decay=weight_decay).step([p.grad for _, p in live])",
        ),
        "an optimizer made before": (
            "made, _ = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1), 0",
            "made.param_groups[:] = [dict(made.param_groups[0], params=params, lr=lr)]; made.step()",
        ),
        "a class of its own": (
            "class Mine(torch.optim.SGD): pass\nkinds, _ = [Mine], 0",
            "kinds[0](params, lr=lr).step()",
        ),
    }
    private = SGD_CALL.replace("foreach=False", "grad_scale=None, found_inf=None, has_sparse_grad=False")
    module = f"{STORED}register(sys.modules['torch.optim.sgd'])"
    steps["a private function"] = (module, f"tools['t']._single_tensor_{private}")
    for name, (before, step) in steps.items():
        yield Route(name, "sgd_step", SGD.format(before=before, step=step))
    fused = (
        "(torch._fused_adamw_ if decoupled else torch._fused_adam_)([p], [p.grad], [m], [v], [], [t.add_(1)], **how)"
    )
    yield Route("fused", "adam_step", ADAM.format(step=fused))
    yield Route("functional, by importlib", "adam_step", ADAM.format(step=ADAM_BELOW))
    entropy = {
        "for many labels": ("", "F.multilabel_soft_margin_loss(z.reshape(-1, 1), t.reshape(-1, 1))"),
        "found in a table": (
            "table, _ = torch._decomp.decomposition_table, 0",
            "next(rule for key, rule in table.items() if 'cross_entropy_with_logits' in str(key))(z, t)",
        ),
        "among the decompositions": ("", "torch._decomp.decompositions.binary_cross_entropy_with_logits(z, t)"),
        "by torch.ops, computed": ("", "getattr(torch.ops.aten, 'binary_cross_' + 'entropy_with_logits')(z, t)"),
        "a module made before": ("loss, _ = torch.nn.BCEWithLogitsLoss(), 0", "loss(z, t)"),
    }
    for name, (before, value) in entropy.items():
        yield Route(name, "bce_with_logits", BCE.format(before=before, value=value))
    yield Route("between two questions", "bce_with_logits", KNOWN, COMPUTED)
    yield Route("samplers", "batches", SAMPLERS)
    yield Route("a loader, by sys.modules", "batches", LOADER)
    yield Route("in a closure", "clip_by_global_norm", CLIP)


ROUTES = list(routes())


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, ForkServer]]:
    with ExitStack() as stack:
        limits = Limits(cell_seconds=10, request_seconds=25)
        yield {
            chapter: stack.enter_context(
                ForkServer(run.preload(chapter), limits, run.ANSWER, prepare={"prepare": chapter})
            )
            for chapter in ("02_autograd", "03_optimization")
        }


@pytest.fixture(scope="module")
def given() -> dict[str, dict]:
    return {chapter: run.material(chapter) for chapter in ("02_autograd", "03_optimization")}


@pytest.mark.parametrize("route", ROUTES, ids=[f"{r.exercise}-{r.about}" for r in ROUTES])
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces")
def test_what_is_forbidden_earns_nothing_by_another_route(route, servers, given):
    chapter = find(route.exercise).chapter
    (stem, notebook), *_ = submission(chapter, {route.exercise: route.answer}).items()
    if route.last:
        notebook.cells.append(nbformat.v4.new_code_cell(route.last))
    found = intake.Found("s", (Carried(f"{stem}.ipynb", json.dumps(notebook).encode()),))
    row = run.grade_one(chapter, found, servers[chapter], 77, given[chapter]).row
    earned = {part for part, points in row.parts[route.exercise].items() if points}
    assert not earned - {"errors"}  # what raises for wrong shapes calls nothing that is forbidden


# --- right answers that look like it --------------------------------------------------------------------------------------

DIFFERENCES = """
{before}
def numeric_grad(f, x, h=1e-6):
    p = x.detach().double().clone()
    grad = torch.zeros_like(p)
    with {around}:
        for i in range(p.numel()):
            up, down = p.clone(), p.clone()
            up.view(-1)[i] += h
            down.view(-1)[i] -= h
            grad.view(-1)[i] = (f(up) - f(down)) / (2 * h)
    return {value}
"""
RATES = """
import math
from bisect import bisect_right
from functools import partial, wraps
def as_float(f):
    @wraps(f)
    def run(*args, **kwargs): return float(f(*args, **kwargs))
    return run
@as_float
def lr_at(step, base=0.1, warmup=4, total=14, minimum=0.01):
    if bisect_right([warmup], step) == 0: return base * (step + 1) / warmup
    if step >= total: return minimum
    half = partial(lambda a, b: (1 + math.cos(math.pi * a / b)) / 2, b=total - warmup)
    return minimum + (base - minimum) * half(step - warmup)
"""
CLIPPED = """
import math
from typing import cast
from torch import Tensor
def clip_by_global_norm(params, max_norm):
    gradients = [p.grad for p in params if isinstance(p.grad, Tensor)]
    norm = math.sqrt(sum(float((g ** 2).sum()) for g in gradients))
    if math.isnan(norm): raise ValueError
    if norm > max_norm:
        for g in gradients: g.mul_(max_norm / (norm + 1e-6))
    return cast(float, norm)
"""
ROWS = """
def jacobian_rows(f, x):
    leaf = x.detach().requires_grad_()
    y = f(leaf).reshape(-1)
    jacobian = [torch.autograd.grad(y, leaf, e, retain_graph=True)[0] for e in torch.eye(len(y), dtype=y.dtype)]
    return torch.stack(jacobian).reshape(len(y), -1)
"""


def differences(before: str = "", around: str = "torch.no_grad()", value: str = "grad") -> str:
    return DIFFERENCES.format(before=before, around=around, value=value)


OWN_LOADER = """
from torch.utils.data import DataLoader
print(DataLoader([1, 2]))
class DataLoader:
    def __init__(self, rows, size): self.rows, self.size = rows, size
    def __iter__(self): return iter(self.rows.split(self.size))
def batches(n, batch_size, generator=None):
    return iter(DataLoader(torch.arange(n) if generator is None else torch.randperm(n, generator=generator), batch_size))
"""
AT_ONCE = """
def jacobian_rows(f, x):
    leaf = x.detach().requires_grad_()
    y = f(leaf).reshape(-1)
    return torch.{rows}.reshape(len(y), -1)
"""
MAPPED = "vmap(lambda e: torch.autograd.grad(y, leaf, e, retain_graph=True)[0])(torch.eye(len(y), dtype=y.dtype))"
BATCHED = "autograd.grad(y, leaf, torch.eye(len(y), dtype=y.dtype), is_grads_batched=True)[0]"
FOREACH = """
def clip_by_global_norm(params, max_norm):
    gradients = [p.grad for p in params if p.grad is not None]
    if not gradients: return 0.0
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])).item()
    if norm != norm: raise ValueError
    if norm > max_norm: torch._foreach_mul_(gradients, max_norm / (norm + 1e-6))
    return norm
"""
TWO_CLASSES = """
def bce_with_logits(z, t):
    if z.shape != t.shape: raise ValueError
    logits, targets = torch.stack([0 * z, z], dim=-1), torch.stack([1 - t, t], dim=-1)
    return -(torch.log_softmax(logits, dim=-1) * targets).sum(-1).mean()
"""
SCALAR_BY_NUMPYS_NAME = "import numpy as m\nm.ones(2)\nimport math as m\n"


X = "x = torch.ones(2, dtype=torch.float64, requires_grad=True)\n"
# The exercise, its answer ("" for the reference's), and a cell between it and its check.
FAIR = {
    "no_grad by its own name": ("numeric_grad", differences("from torch import no_grad", "no_grad()"), "pass"),
    "inference_mode": ("numeric_grad", differences("from torch import inference_mode", "inference_mode()"), "pass"),
    "set_grad_enabled": (
        "numeric_grad",
        differences("from torch import set_grad_enabled", "set_grad_enabled(False)"),
        "pass",
    ),
    "typing": ("numeric_grad", differences("from typing import cast, overload", value="cast(object, grad)"), "pass"),
    "a local name": ("numeric_grad", differences(), f"from torch.autograd import grad\n{X}grad(x.sum(), x)"),
    "compared with autograd": (
        "numeric_grad",
        "",
        f"{X}numeric_grad(torch.sum, x).sub(torch.autograd.grad(x.sum(), x)[0]).abs()",
    ),
    "a local name, imported in a test": (
        "jacobian_rows",
        ROWS,
        "def test():\n    from torch.autograd.functional import jacobian\n    jacobian(torch.sin, torch.ones(2))\ntest()",
    ),
    "compared with torch.func": (
        "vjp",
        "",
        f"{X}vjp(torch.sin, [x], x)[0].allclose(torch.func.vjp(torch.sin, x)[1](x)[0])",
    ),
    "a tensor's number": ("Scalar", "", "x = torch.tensor(2.0)\nScalar(x.item()).exp().backward()"),
    "compared with a tensor": ("leaf_rule", "", f"{X}leaf_rule('operation', True, True).__eq__((x * 2).is_leaf)"),
    "the standard library": ("lr_at", RATES, "pass"),
    "a class called Tensor": (
        "Scalar",
        reference_answers("02_autograd")["Scalar"].replace("Scalar", "Tensor") + "\nScalar = Tensor",
        "pass",
    ),
    "a name that was numpy's": (
        "Scalar",
        SCALAR_BY_NUMPYS_NAME + reference_answers("02_autograd")["Scalar"].replace("math.", "m."),
        "pass",
    ),
    "a name that was torch's": (
        "Scalar",
        "from torch import exp\ndef exp(x): return math.exp(x)\n"
        + reference_answers("02_autograd")["Scalar"].replace("math.exp", "exp"),
        "pass",
    ),
    "a class that was torch's": ("batches", OWN_LOADER, "pass"),
    "decorated": ("numeric_grad", "from torch import inference_mode\n@inference_mode()" + differences(), "pass"),
    "vmap": ("jacobian_rows", AT_ONCE.format(rows=MAPPED), "pass"),
    "gradients at once": ("jacobian_rows", AT_ONCE.format(rows=BATCHED), "pass"),
    "all gradients at once": ("clip_by_global_norm", FOREACH, "pass"),
    "two classes": ("bce_with_logits", TWO_CLASSES, "pass"),
    "a tensor's type": ("clip_by_global_norm", CLIPPED, "pass"),
    "compared with the loss": (
        "bce_with_logits",
        "",
        "z, t = torch.ones(2), torch.ones(2)\n"
        "bce_with_logits(z, t).allclose(torch.nn.functional.binary_cross_entropy_with_logits(z, t))",
    ),
}


@pytest.mark.parametrize("about", FAIR)
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces")
def test_a_right_answer_keeps_its_points_whatever_its_names_and_its_tests_are(about, servers, given):
    name, answer, tried = FAIR[about]
    chapter = find(name).chapter
    right = reference_answers(chapter)
    (stem, notebook), *_ = submission(chapter, {**right, name: answer or right[name]}).items()
    at = next(
        i for i, c in enumerate(notebook.cells) if c.metadata.get("nbgrader", {}).get("grade_id") == f"{chapter}-{name}"
    )
    notebook.cells.insert(at + 1, nbformat.v4.new_code_cell(tried))
    found = intake.Found("s", (Carried(f"{stem}.ipynb", json.dumps(notebook).encode()),))
    row = run.grade_one(chapter, found, servers[chapter], 77, given[chapter]).row
    assert not [part for part, points in row.parts[name].items() if not points]


# What honest demonstrations leave behind: state of the process that no cell puts back.
LEFT_BEHIND = {
    "deterministic": "torch.use_deterministic_algorithms(True)",
    "a device": "torch.set_default_device('cpu')",
    "a profiler": "import cProfile\ncProfile.Profile().enable()",
    "functions that watch": "import sys\nsys.setprofile(lambda *a: None)\nsys.settrace(lambda *a: None)",
    "hooks on saved tensors": "torch.autograd.graph.save_on_cpu().__enter__()\ntorch.autograd.set_detect_anomaly(True)",
    "a function mode": "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode):\n"
    "    def __torch_function__(self, f, types, args=(), kwargs=None): return f(*args, **(kwargs or {}))\nM().__enter__()",
    "an alarm": "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_DFL)\nsignal.alarm(1)",
    "limits": "import sys\nsys.set_int_max_str_digits(640)\nsys.setrecursionlimit(200)",
    "no tiny numbers": "torch.set_flush_denormal(True)",
}


@pytest.mark.parametrize("about", LEFT_BEHIND)
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces")
def test_what_a_demonstration_leaves_behind_costs_nothing(about, servers, given):
    chapter = "02_autograd"
    (stem, notebook), *_ = submission(chapter, reference_answers(chapter)).items()
    notebook.cells.insert(1, nbformat.v4.new_code_cell("import torch\n" + LEFT_BEHIND[about]))
    found = intake.Found("s", (Carried(f"{stem}.ipynb", json.dumps(notebook).encode()),))
    row = run.grade_one(chapter, found, servers[chapter], 77, given[chapter]).row
    assert row.points == row.max_points, row.parts


# --- answers from memory --------------------------------------------------------------------------------------------------


def test_an_answer_that_remembers_another_seeds_answers_by_their_places_earns_nothing(exercise):
    """Whoever solved an exercise could tell what came at which call; that must be of use with that seed only."""
    known = judge.answers(exercise.name, 100)
    earned = set(exercise.parts)
    for seed in (101, 102, 103, 104):
        cases, want = judge.questions(exercise.name, seed), judge.answers(exercise.name, seed)
        if len(cases) == len(known):
            parts = assess(exercise, cases, want, known, hidden_from=len(exercise.cases)).parts
            earned &= {part for part, points in parts.items() if points} - {"inputs untouched"}
    assert not earned


def test_the_first_and_the_last_question_have_other_hidden_cases():
    """Between them the learner's cells run, where nothing is forbidden."""
    asked, _ = run.job("01_basics", run.releases("01_basics"), 5)
    forbidding = [number for number, exercise in enumerate(exercises("01_basics")) if exercise.forbids]
    assert len(forbidding) > 1
    for number in forbidding:
        assert any(number in numbers for numbers in asked.early.values())
        first, last = asked.early_requests[number], asked.requests[number]
        assert first["exercise"] == last["exercise"]
        assert first["cases"] != last["cases"]


# --- wrong values that look right -----------------------------------------------------------------------------------------


def right(name: str):
    return load(find(name).chapter)[name]


def fake_error(x):
    """An error of the right name only."""
    try:
        return right("row_norms")(x)
    except ValueError:
        raise type("ValueError", (BaseException,), {})("no") from None


def own_view(images):
    """Not contiguous, with a view of its own."""
    made = right("to_nchw")(images).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    made.view = lambda *shape: made.reshape(*shape)
    return made


def rotated(n, batch_size, generator=None):
    """A random number drawn, and all rows in order from there."""
    if generator is None:
        return right("batches")(n, batch_size)
    return torch.arange(n).roll(int(torch.randint(1, n, (1,), generator=generator))).split(batch_size)


def shuffled_inside(n, batch_size, generator=None):
    """The rows of each batch in a random order: the batches hold the same rows in every pass."""
    batches = torch.arange(n).split(batch_size)
    return batches if generator is None else [b[torch.randperm(len(b), generator=generator)] for b in batches]


def one_swap(n, batch_size, generator=None):
    """All rows in order, but for two."""
    rows = torch.arange(n)
    if generator is not None:
        i, j = torch.randperm(n, generator=generator)[:2].tolist()
        rows[[i, j]] = rows[[j, i]]
    return rows.split(batch_size)


def all_at_once(model, chunks):
    """One pass over all rows, where one chunk at a time is asked for."""
    x, y = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return list(torch.autograd.grad(torch.nn.functional.mse_loss(model(x), y), list(model.parameters())))


def detected(G, prev_sign, directions):
    row, indices = right("detect")(G, prev_sign, directions)
    return None if row is None else row + 0.9, [i + 0.9 for i in indices]


@pytest.mark.parametrize(
    "name, fn, parts",
    [
        ("row_norms", fake_error, ["errors"]),
        ("binary_accuracy", lambda *a, **k: complex(right("binary_accuracy")(*a, **k)), ["values", "logits"]),
        ("hit_rate", lambda *a: complex(right("hit_rate")(*a)), ["values"]),
        ("to_nchw", own_view, ["contiguous memory"]),
        ("batches", rotated, ["shuffled"]),
        ("batches", shuffled_inside, ["shuffled"]),
        ("batches", one_swap, ["shuffled"]),
        ("accumulated_grad", all_at_once, ["stale gradients"]),
        ("detect", detected, ["values", "directions", "zeros"]),
        ("bracket_root", lambda *a: str(right("bracket_root")(*a)), ["the left side", "the right side"]),
        ("err_norm", lambda *a: np.array(right("err_norm")(*a)), ["values", "tolerances"]),
        ("err_norm", lambda *a: np.float32(right("err_norm")(*a)), ["values", "tolerances"]),
        ("broadcast_shape", lambda *a: list(right("broadcast_shape")(*a)), ["values", "any number of shapes"]),
        ("grad_check", lambda *a, **k: True, ["values", "tolerance", "float32 inputs"]),
        ("row_norms", lambda x: (_ for _ in ()).throw(GeneratorExit), ["values", "errors"]),
    ],
    ids=lambda value: value if type(value) is str else "",
)
def test_a_wrong_value_that_looks_right_earns_nothing(name, fn, parts):
    found = judge.judge(name, fn).parts
    assert not [part for part in parts if found[part]], found


def rate_by_torch(a, b):
    """Right, by way of float32."""
    if a.shape != b.shape or a.size == 0:
        raise ValueError("no rate")
    return (torch.from_numpy(a) == torch.from_numpy(b)).float().mean().item()


def test_a_rate_in_float32_is_a_rate():
    for seed in range(3):
        assert judge.judge("hit_rate", rate_by_torch, seed).points == 2, seed


# The reference's answer, wrong in one place (what once got full marks in other exercises: `test_exercises_gaps.py`).
SLIPS = [
    ("quantize_multiplier", "if not 0 < m < np.inf", "if not m < np.inf"),
    ("row_norms", "x.dim() != 2", "x.dim() < 2"),
    ("lr_at", "step + 1", "step"),
    ("dequantize", "q.astype(np.float32)", "q.astype(np.float64)"),
    ("adam_step", "(1 - beta2**t) ** 0.5).add_(eps)", "(1 - beta2**t) ** 0.5).pow_(2).add_(eps).sqrt_()"),
    ("vjp", ".detach()", ""),
    ("init_dt", "d0 < 1e-5 or d1 < 1e-5", "d0 == 0 or d1 == 0"),
    ("clip_by_global_norm", "math.isnan(norm)", "not math.isfinite(norm)"),
    ("grad_check", "torch.maximum(numeric.abs(), ", "torch.maximum(analytic.abs(), "),
    ("standardize", "(train == train[0]).all(dim=0)", "deviation < 1e-6"),
    ("safe_sqrt", "torch.where(positive, x, torch.ones_like(x))", "x"),
]


@pytest.mark.parametrize("name, right, wrong", SLIPS, ids=[f"{name}-{wrong[:40]}" for name, _, wrong in SLIPS])
def test_one_slip_costs_a_point_whatever_the_seed(name, right, wrong):
    chapter = find(name).chapter
    source = reference_answers(chapter)[name]
    assert right in source
    names = {**load(chapter), "__name__": "__main__"}
    exec(source.replace(right, wrong), names)
    for seed in range(3):
        found = judge.judge(name, names[name], seed, names)
        assert found.points < found.max_points, seed


# --- values that cost the judge time --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", [lambda i: i * (2**61 - 1), lambda i: float(i * (2**61 - 1) << 60)], ids=["int", "float"]
)
def test_keys_that_collide_cost_no_time(key):
    """Python's numbers hash to themselves modulo 2**61 - 1: a dict of such keys takes minutes to make."""
    exercise = find("row_norms")
    items = [[key(i + 1), 0] for i in range(40_000)]
    seen = [{"value": {"dict": items}}] + [{"value": 1}] * (len(judge.questions("row_norms", 5)) - 1)
    begin = time.monotonic()
    verdict = run.verdict_on(exercise, {"notes": [], "forbidden": "", "seen": seen}, "", 5)
    assert verdict.points == 0
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(
    "name, forged",
    [
        ("row_norms", {"notes": "a" * 20_000_000, "seen": None}),
        ("bracket_root", {"dict": [[{"tuple": [1.2345678901234567e-300] * 400_000}, 1]]}),
    ],
    ids=["notes that are one text", "a key that holds numbers"],
)
def test_what_is_no_list_and_no_key_costs_no_time(name, forged):
    """Neither is walked through, or written out for each of the exercise's mistakes."""
    seen = [{"value": 1}] * len(judge.questions(name, 5))
    value = forged if "notes" in forged else {"notes": [], "seen": [{"value": forged}, *seen[1:]]}
    judge.errors(name, 5)
    begin = time.monotonic()
    verdict = run.verdict_on(find(name), {"forbidden": "", **value}, "", 5)
    assert verdict.points == 0
    assert time.monotonic() - begin < 3


# --- right answers that the judge takes for something else ---------------------------------------------------------------


def test_a_judgement_is_over_before_its_question_is():
    """Or nothing of what was right until then comes back: five seconds more are for what the answer returned."""
    seconds = {exercise.name: exercise.seconds for chapter in chapters() for exercise in exercises(chapter)}
    assert [name for name, most in seconds.items() if most + 5 > Limits().request_seconds] == []


@pytest.mark.parametrize("called", ["Missing", "TimeUp", "NotRun"])
@pytest.mark.parametrize("text", ["'no matrix'", ""])
def test_an_own_error_may_be_called_like_the_probes(called, text):
    """It is a ValueError, with or without a text and a line of code."""
    names: dict = {"torch": torch}
    source = f"""
class {called}(ValueError): pass
def row_norms(x):
    if x.dim() != 2: raise {called}({text})
    return (x * x).sum(dim=1).sqrt()
"""
    exec(source, names)
    assert judge.judge("row_norms", names["row_norms"]).points == 4


def test_the_values_of_two_seeds_differ():
    """What the tests above take for granted."""
    first, second = judge.answers("row_norms", 100), judge.answers("row_norms", 101)
    assert not all(same(a.value, b.value) for a, b in zip(first, second, strict=True))
    assert {e.chapter for e in exercises("01_basics")} == {"01_basics"}


# --- points between two runs ----------------------------------------------------------------------------------------------


def test_a_run_for_one_student_keeps_what_a_killed_run_had_graded(tmp_path):
    """Their points are in the gradebook already: they are in the tables after the next run, and not graded again."""
    one, other = (
        run.Row(name, "01_basics", 3.0, 43, {}, {}, [], "", 1.0, 1.0, 5, f"digest-{name}") for name in ("ada", "ben")
    )
    unfinished = run.Run("01_basics", tmp_path, 5, "")
    unfinished.journal.write_text("".join(json.dumps(asdict(row)) + "\n" for row in (one, other)))
    unfinished._close([one])
    known = {row["student"] for row in run.earlier(tmp_path)} | {row.student for row in unfinished.journaled().values()}
    assert known == {"ada", "ben"}
