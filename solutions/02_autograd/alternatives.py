"""Other right solutions of chapter 2, and wrong ones that no Mistake covers."""

from __future__ import annotations

import math

import torch
from torch import nn

# ------------------------------------------------------------------------------------------------------------ leaf_rule


def leaf_rule_by_table(kind, source_requires_grad, grad_enabled):
    own = {"created": source_requires_grad, "same object": source_requires_grad, "parameter": True}
    never = {"integer operation", "detach"}
    if kind in own:
        return (True, own[kind])
    if kind in never:
        return (True, False)
    if kind not in {"operation", "cast"}:
        raise ValueError("unknown kind")
    return (False, True) if source_requires_grad and grad_enabled else (True, False)


def leaf_rule_by_reasoning(kind, source_requires_grad, grad_enabled):
    match kind:
        case "created" | "same object" | "parameter":
            computed, requires = False, source_requires_grad or kind == "parameter"
        case "operation" | "cast":
            computed, requires = True, all((source_requires_grad, grad_enabled))
        case "integer operation" | "detach":
            computed, requires = True, False
        case _:
            raise ValueError(kind)
    return not (computed and requires), requires


# ------------------------------------------------------------------------------------------------------------------ vjp


def vjp_by_backward(f, inputs, v):
    leaves = [nn.Parameter(x.clone()) for x in inputs]
    y = f(*leaves)
    if tuple(y.shape) != tuple(v.shape):
        raise ValueError("shapes")
    y.backward(v)
    return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]


def vjp_by_weighted_sum(f, inputs, v):
    leaves = [x.clone().detach().requires_grad_(True) for x in inputs]
    y = f(*leaves)
    if y.shape != v.shape:
        raise ValueError("shapes")
    (y * v).sum().backward()
    return [leaf.grad if leaf.grad is not None else 0 * leaf.detach() for leaf in leaves]


def vjp_by_elements(f, inputs, v):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    y = f(*leaves)
    if y.shape != v.shape:
        raise ValueError("shapes")
    totals = [torch.zeros_like(leaf) for leaf in leaves]
    for one, weight in zip(y.flatten(), v.flatten(), strict=True):
        for total, g in zip(
            totals, torch.autograd.grad(one, leaves, retain_graph=True, allow_unused=True), strict=True
        ):
            total += 0 if g is None else weight * g
    return [total.detach() for total in totals]


# -------------------------------------------------------------------------------------------------------- jacobian_rows


def jacobian_by_outputs(f, x):
    leaf = x.clone().detach().requires_grad_()
    rows = []
    for one in f(leaf).flatten():
        leaf.grad = None
        one.backward(retain_graph=True)
        rows.append(leaf.grad.flatten())
    return torch.stack(rows)


def jacobian_batched(f, x):
    leaf = x.detach().requires_grad_()
    y = f(leaf)
    units = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
    return torch.autograd.grad(y, leaf, units, is_grads_batched=True)[0].reshape(y.numel(), -1)


# -------------------------------------------------------------------------------------------------------- graph_summary


def graph_by_layers(t):
    found, layer = [], {t.grad_fn} - {None}
    known = set(layer)
    while layer:
        found += layer
        layer = {after for node in layer for after, _ in node.next_functions if after is not None} - known
        known |= layer
    names = [node.name() for node in found]
    leaves = [node.variable for node, name in zip(found, names, strict=True) if "AccumulateGrad" in name]
    return {"nodes": len(found), "ops": sorted(n for n in names if "AccumulateGrad" not in n), "leaves": leaves}


def graph_by_queue(t):
    from collections import deque

    summary = {"nodes": 0, "ops": [], "leaves": []}
    queue = deque([t.grad_fn] if t.grad_fn is not None else [])
    seen = {id(node): node for node in queue}
    while queue:
        node = queue.popleft()
        summary["nodes"] += 1
        if type(node).__name__ == "AccumulateGrad":
            summary["leaves"].append(node.variable)
        else:
            summary["ops"].append(type(node).__name__)
        for after, _ in node.next_functions:
            if after is not None and id(after) not in seen:
                seen[id(after)] = after
                queue.append(after)
    summary["ops"].sort()
    return summary


# --------------------------------------------------------------------------------------------- numeric_grad, grad_check


def numeric_in_a_copy(f, x, h=1e-6):
    point = x.detach().clone().double().contiguous()
    result = torch.zeros_like(point)
    for i in range(point.numel()):
        old = point.view(-1)[i].item()
        point.view(-1)[i] = old + h
        above = f(point).item()
        point.view(-1)[i] = old - h
        below = f(point).item()
        point.view(-1)[i] = old
        result.view(-1)[i] = (above - below) / 2 / h
    return result


def numeric_by_unit_vectors(f, x, h=1e-6):
    point = x.to(torch.float64)
    units = torch.eye(x.numel(), dtype=torch.float64).reshape(-1, *x.shape)
    return torch.stack([(f(point + h * e) - f(point - h * e)) / (2 * h) for e in units]).reshape(x.shape).detach()


def check_by_loop(f, x, numeric_grad, tol=1e-6):
    leaf = torch.tensor(x.tolist(), dtype=torch.float64, requires_grad=True)
    f(leaf).backward()
    pairs = zip(leaf.grad.flatten().tolist(), numeric_grad(f, x.detach()).flatten().tolist(), strict=True)
    return all(abs(a - n) <= tol * max(1.0, abs(n)) for a, n in pairs)


def check_by_isnan(f, x, numeric_grad, tol=1e-6):
    leaf = nn.Parameter(x.detach().double().clone())
    analytic = torch.autograd.grad(f(leaf), [leaf])[0]
    numeric = numeric_grad(f, x.detach().double().clone())
    off = (analytic - numeric).abs()
    beyond = off > torch.where(numeric.abs() > 1, tol * numeric.abs(), tol)
    return not (beyond | off.isnan()).any().item()


# --------------------------------------------------------------------------------------------------------------- Scalar


class TapeScalar:
    """Every operation gets a serial number: going down by it is a topological order."""

    made = 0

    def __init__(self, value, inputs=()):
        TapeScalar.made += 1
        self.serial, self.value, self.grad, self.inputs = TapeScalar.made, float(value), 0.0, inputs

    def __add__(self, other):
        o = tape(other)
        return TapeScalar(self.value + o.value, ((self, 1.0), (o, 1.0)))

    def __sub__(self, other):
        o = tape(other)
        return TapeScalar(self.value - o.value, ((self, 1.0), (o, -1.0)))

    def __mul__(self, other):
        o = tape(other)
        return TapeScalar(self.value * o.value, ((self, o.value), (o, self.value)))

    def __truediv__(self, other):
        o = tape(other)
        return TapeScalar(self.value / o.value, ((self, 1 / o.value), (o, -self.value / o.value**2)))

    def __radd__(self, other):
        return tape(other) + self

    def __rsub__(self, other):
        return tape(other) - self

    def __rmul__(self, other):
        return tape(other) * self

    def __rtruediv__(self, other):
        return tape(other) / self

    def __pow__(self, n):
        return TapeScalar(self.value**n, ((self, n * self.value ** (n - 1)),))

    def relu(self):
        return TapeScalar(self.value, ((self, 1.0),)) if self.value > 0 else TapeScalar(0.0)

    def tanh(self):
        e = math.exp(2 * self.value)
        return TapeScalar((e - 1) / (e + 1), ((self, 4 * e / (e + 1) ** 2),))

    def exp(self):
        return TapeScalar(math.e**self.value, ((self, math.e**self.value),))

    def log(self):
        return TapeScalar(math.log(self.value), ((self, self.value**-1),))

    def backward(self):
        found, to_visit = {self.serial: self}, [self]
        while to_visit:
            for one, _ in to_visit.pop().inputs:
                if one.serial not in found:
                    found[one.serial] = one
                    to_visit.append(one)
        flow = dict.fromkeys(found, 0.0)
        flow[self.serial] = 1.0
        for serial in sorted(found, reverse=True):
            found[serial].grad += flow[serial]
            for one, slope in found[serial].inputs:
                flow[one.serial] += slope * flow[serial]


def tape(number):
    return number if isinstance(number, TapeScalar) else TapeScalar(number)


class ClosureScalar:
    """Each result keeps a function that sends a gradient to what it was computed from."""

    def __init__(self, value):
        self.value, self.grad = value * 1.0, 0.0
        self.parents, self.send = (), None

    @classmethod
    def of(cls, number):
        return number if isinstance(number, cls) else cls(number)

    @classmethod
    def made(cls, value, parents, slopes):
        out = cls(value)
        out.parents = parents
        out.send = lambda g: [g * slope for slope in slopes]
        return out

    def __add__(self, other):
        other = self.of(other)
        return self.made(self.value + other.value, (self, other), (1.0, 1.0))

    def __neg__(self):
        return self.made(-self.value, (self,), (-1.0,))

    def __mul__(self, other):
        other = self.of(other)
        return self.made(self.value * other.value, (self, other), (other.value, self.value))

    def __sub__(self, other):
        return self + (-self.of(other))

    def __truediv__(self, other):
        return self * self.of(other) ** -1

    def __radd__(self, other):
        return self + other

    def __rmul__(self, other):
        return self * other

    def __rsub__(self, other):
        return -self + other

    def __rtruediv__(self, other):
        return other * self**-1

    def __pow__(self, n):
        return self.made(self.value**n, (self,), (n * self.value ** (n - 1),))

    def relu(self):
        return self.made(self.value if self.value > 0 else 0.0, (self,), (1.0 if self.value > 0 else 0.0,))

    def tanh(self):
        value = math.tanh(self.value)
        return self.made(value, (self,), (1 - value * value,))

    def exp(self):
        value = math.exp(self.value)
        return self.made(value, (self,), (value,))

    def log(self):
        return self.made(math.log(self.value), (self,), (1 / self.value,))

    def backward(self):
        order, seen, stack = [], set(), [(self, iter(self.parents))]
        while stack:
            node, rest = stack[-1]
            parent = next(rest, None)
            if parent is None:
                order.append(node)
                stack.pop()
            elif parent not in seen:
                seen.add(parent)
                stack.append((parent, iter(parent.parents)))
        arrived = {node: 0.0 for node in order}
        arrived[self] = 1.0
        for node in reversed(order):
            node.grad += arrived[node]
            for parent, g in zip(node.parents, node.send(arrived[node]) if node.send else (), strict=True):
                arrived[parent] += g


class ForwardOnly:
    """Computes, but never goes back."""

    def __init__(self, value):
        self.value, self.grad = float(value), 0.0

    def backward(self):
        self.grad = 1.0

    def of(self, value):
        return ForwardOnly(value)

    def __add__(self, other):
        return ForwardOnly(self.value + getattr(other, "value", other))

    def __mul__(self, other):
        return ForwardOnly(self.value * getattr(other, "value", other))

    def __sub__(self, other):
        return ForwardOnly(self.value - getattr(other, "value", other))

    def __truediv__(self, other):
        return ForwardOnly(self.value / getattr(other, "value", other))

    def __rsub__(self, other):
        return ForwardOnly(other - self.value)

    def __rtruediv__(self, other):
        return ForwardOnly(other / self.value)

    def __pow__(self, n):
        return ForwardOnly(self.value**n)

    __radd__, __rmul__ = __add__, __mul__

    def relu(self):
        return ForwardOnly(max(self.value, 0.0))

    def tanh(self):
        return ForwardOnly(math.tanh(self.value))

    def exp(self):
        return ForwardOnly(math.exp(self.value))

    def log(self):
        return ForwardOnly(math.log(self.value))


# ------------------------------------------------------------------------------------------------------- truncated_grad


def truncated_by_hand(w, xs, k):
    """Forward mode: carry dh/dw along, and drop it at the start of a window."""
    h = slope = total = 0.0
    for t, x in enumerate(xs):
        if k and t % k == 0:
            slope = 0.0
        new = math.tanh(w * h + x)
        slope = (1 - new * new) * (h + w * slope)
        h, total = new, total + slope
    return total


def truncated_by_windows(w, xs, k):
    """One backward a window, on the window's own sum."""
    weight = torch.tensor(w, dtype=torch.float64, requires_grad=True)
    h = torch.tensor(0.0, dtype=torch.float64)
    length = k or len(xs)
    for start in range(0, len(xs), length):
        hs = []
        for x in xs[start : start + length]:
            h = torch.tanh(weight * h + x)
            hs.append(h)
        sum(hs).backward()
        h = h.detach()
    return float(weight.grad)


# ------------------------------------------------------------------------------------------------------------ safe_sqrt


def sqrt_of_the_positive(x):
    result = torch.zeros_like(x)
    positive = x > 0
    result[positive] = torch.sqrt(x[positive])
    return result


def sqrt_by_masked_fill(x):
    negative = ~(x > 0)
    return x.masked_fill(negative, 4.0).sqrt().masked_fill(negative, 0.0)


def sqrt_by_power(x):
    positive = (x > 0).to(x.dtype)
    inside = torch.where(x > 0, x, 1.0)
    return positive * inside**0.5


# name of the exercise → description → a right solution written in another way
RIGHT = {
    "leaf_rule": {"tables": leaf_rule_by_table, "computed and requires": leaf_rule_by_reasoning},
    "vjp": {
        "Parameters and backward": vjp_by_backward,
        "backward on the weighted sum": vjp_by_weighted_sum,
        "element by element": vjp_by_elements,
    },
    "jacobian_rows": {"backward on every output": jacobian_by_outputs, "one batched call": jacobian_batched},
    "graph_summary": {"layer by layer": graph_by_layers, "a queue": graph_by_queue},
    "numeric_grad": {"steps in a copy": numeric_in_a_copy, "unit vectors": numeric_by_unit_vectors},
    "grad_check": {"Python numbers": check_by_loop, "any beyond or nan": check_by_isnan},
    "Scalar": {"serial numbers": TapeScalar, "closures and a sorted graph": ClosureScalar},
    "truncated_grad": {"forward mode by hand": truncated_by_hand, "a backward a window": truncated_by_windows},
    "safe_sqrt": {
        "only the positive ones": sqrt_of_the_positive,
        "masked_fill twice": sqrt_by_masked_fill,
        "a power": sqrt_by_power,
    },
}

# name of the exercise → description → a wrong solution that must be named nothing
WRONG = {
    "leaf_rule": {
        "leaf means no grad": lambda kind, source_requires_grad, grad_enabled: (not grad_enabled, grad_enabled)
    },
    "vjp": {
        "v itself": lambda f, inputs, v: [v.clone() for _ in inputs],
        "the inputs": lambda f, inputs, v: list(inputs),
    },
    "jacobian_rows": {"the identity": lambda f, x: torch.eye(x.numel(), dtype=x.dtype)},
    "graph_summary": {"one node": lambda t: {"nodes": 1, "ops": [t.grad_fn.name()] if t.grad_fn else [], "leaves": []}},
    "numeric_grad": {"the values": lambda f, x, h=1e-6: x.double() + h},
    "grad_check": {
        "always yes": lambda f, x, numeric_grad, tol=1e-6: True,
        "always no": lambda f, x, numeric_grad, tol=1e-6: False,
    },
    "Scalar": {"forward only": ForwardOnly},
    "truncated_grad": {"the sum of the inputs": lambda w, xs, k: w * sum(xs)},
    "safe_sqrt": {"a power without a guard": lambda x: (x * x) ** 0.25 + x, "half": lambda x: x / 2},
}
