# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %%
import math
from collections.abc import Callable

import torch
from torch import Tensor

from underhood import check, ready

# %% nbgrader={"grade": false, "grade_id": "02_autograd-leaf_rule", "locked": false, "schema_version": 3, "solution": true, "task": false}
def leaf_rule(kind: str, source_requires_grad: bool, grad_enabled: bool) -> tuple[bool, bool]:
    """Predict `(is_leaf, requires_grad)` of a tensor from how it came about, without making it.

    Parameters
    ----------
    kind
        What was done, with `x` a float32 leaf whose `requires_grad` is `source_requires_grad`:
        "created" (x itself), "parameter" (nn.Parameter(x)), "operation" (x * 2), "integer operation" (x.argmax()),
        "detach" (x.detach()), "same object" (x.to(torch.float32)), "cast" (x.to(torch.float64)).
    source_requires_grad
        Whether x requires grad.
    grad_enabled
        False where all of it, the making of x included, happens under `torch.no_grad()`.

    Returns
    -------
    tuple of two bools
        is_leaf, requires_grad.

    Raises
    ------
    ValueError
        For any other `kind`.

    Examples
    --------
    >>> leaf_rule("operation", True, True)
    (False, True)
    """
    ### BEGIN SOLUTION
    if kind in ("created", "same object"):
        return True, source_requires_grad
    if kind == "parameter":
        return True, True
    if kind in ("integer operation", "detach"):
        return True, False
    if kind in ("operation", "cast"):
        recorded = source_requires_grad and grad_enabled
        return not recorded, recorded
    raise ValueError(f"{kind!r} is no way for a tensor to come about")
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "02_autograd-leaf_rule-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("leaf_rule")
### BEGIN HIDDEN TESTS
check("leaf_rule", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "02_autograd-vjp", "locked": false, "schema_version": 3, "solution": true, "task": false}
def vjp(f: Callable[..., Tensor], inputs: list[Tensor], v: Tensor) -> list[Tensor]:
    """Multiply the cotangent v by the Jacobian of f with respect to each input: vᵀJ.

    Parameters
    ----------
    f
        Called as `f(*inputs)`; returns one floating-point tensor of any shape.
    inputs
        Floating-point tensors of any shapes. They need not require grad.
    v
        The cotangent: one number per element of the output, in the output's shape and dtype.

    Returns
    -------
    list of Tensor
        One per input, in its shape and dtype; zeros for an input that f does not use.
        The caller's tensors keep their `.grad` and `requires_grad`.

    Raises
    ------
    ValueError
        Where the shape of v is not the shape of the output.

    Examples
    --------
    >>> vjp(lambda x: 2 * x, [torch.tensor([1.0, 5.0])], torch.tensor([1.0, 3.0]))
    [tensor([2., 6.])]
    """
    ### BEGIN SOLUTION
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = f(*leaves)
    if v.shape != y.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}, the output has shape {tuple(y.shape)}")
    return list(torch.autograd.grad(y, leaves, grad_outputs=v, allow_unused=True, materialize_grads=True))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "02_autograd-vjp-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("vjp")
### BEGIN HIDDEN TESTS
check("vjp", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "02_autograd-jacobian_rows", "locked": false, "schema_version": 3, "solution": true, "task": false}
def jacobian_rows(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian of f at x, one backward pass per row.

    Parameters
    ----------
    f
        Called as `f(x)`; returns a floating-point tensor of any shape with m elements.
    x
        Floating-point tensor of any shape with n elements. It need not require grad.

    Returns
    -------
    Tensor
        Shape (m, n), dtype of x: element (i, j) is the derivative of element i of f(x) with respect to element j of x,
        both counted in reading order. The caller's x keeps its `.grad` and `requires_grad`.

    Examples
    --------
    >>> jacobian_rows(lambda x: torch.stack([x[0] * x[1], x[1] ** 2]), torch.tensor([2.0, 3.0]))
    tensor([[3., 2.],
            [0., 6.]])
    """
    ### BEGIN SOLUTION
    leaf = x.detach().requires_grad_()
    y = f(leaf).reshape(-1)
    rows = [torch.autograd.grad(y, leaf, unit, retain_graph=True)[0] for unit in torch.eye(len(y), dtype=y.dtype)]
    return torch.stack(rows).reshape(len(y), x.numel())
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "02_autograd-jacobian_rows-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("jacobian_rows")
### BEGIN HIDDEN TESTS
check("jacobian_rows", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "02_autograd-graph_summary", "locked": false, "schema_version": 3, "solution": true, "task": false}
def graph_summary(t: Tensor) -> dict[str, int | list]:
    """Walk the graph behind a tensor.

    Parameters
    ----------
    t
        Any tensor.

    Returns
    -------
    dict
        `nodes`: how many nodes can be reached from `t.grad_fn`, itself included, each counted once.
        `ops`: the `name()` of each node that is no AccumulateGrad, one entry a node, sorted.
        `leaves`: the leaf tensors themselves, each once, in any order.
        For a tensor without a `grad_fn`: 0 and two empty lists.

    Examples
    --------
    >>> A = torch.ones(2, 2, requires_grad=True)
    >>> graph_summary((5 * (A + A)).mean())["ops"]
    ['AddBackward0', 'MeanBackward0', 'MulBackward0']
    """
    ### BEGIN SOLUTION
    to_visit = [t.grad_fn]
    visited = set()
    while to_visit:
        node = to_visit.pop()
        if node is not None and node not in visited:
            visited.add(node)
            to_visit += [following for following, _ in node.next_functions]
    leaves = [node.variable for node in visited if hasattr(node, "variable")]
    ops = sorted(node.name() for node in visited if not hasattr(node, "variable"))
    return {"nodes": len(visited), "ops": ops, "leaves": leaves}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "02_autograd-graph_summary-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("graph_summary")
### BEGIN HIDDEN TESTS
check("graph_summary", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "02_autograd-numeric_grad", "locked": false, "schema_version": 3, "solution": true, "task": false}
def numeric_grad(f: Callable[[Tensor], Tensor], x: Tensor, h: float = 1e-6) -> Tensor:
    """The gradient of f at x by central differences, without autograd.

    Parameters
    ----------
    f
        Called with a float64 tensor of x's shape; returns a number as a tensor of shape ().
    x
        Floating-point tensor of any shape and dtype. It is not changed.
    h
        The step to either side.

    Returns
    -------
    Tensor
        Shape of x, float64: element i is (f(x + h eᵢ) − f(x − h eᵢ)) / 2h, all of it computed in float64.

    Examples
    --------
    >>> numeric_grad(lambda x: (x**3).sum(), torch.tensor([1.0, 2.0]), h=0.5)
    tensor([ 3.2500, 12.2500], dtype=torch.float64)
    """
    ### BEGIN SOLUTION
    point = x.detach().to(torch.float64).flatten()
    slopes = torch.empty_like(point)
    for i in range(len(point)):
        step = torch.zeros_like(point)
        step[i] = h
        above, below = (f((point + s).reshape(x.shape)) for s in (step, -step))
        slopes[i] = (above - below) / (2 * h)
    return slopes.reshape(x.shape)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "02_autograd-numeric_grad-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("numeric_grad")
### BEGIN HIDDEN TESTS
check("numeric_grad", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "02_autograd-grad_check", "locked": false, "schema_version": 3, "solution": true, "task": false}
def grad_check(
    f: Callable[[Tensor], Tensor], x: Tensor, numeric_grad: Callable[..., Tensor], tol: float = 1e-6
) -> bool:
    """Whether autograd's gradient of f at x agrees with the numeric one.

    Parameters
    ----------
    f
        Called with a float64 tensor of x's shape; returns a tensor of shape ().
    x
        Floating-point tensor of any shape and dtype; both gradients are taken in float64.
        Its `.grad` and `requires_grad` stay as they are.
    numeric_grad
        `numeric_grad(f, x)` gives the gradient by differences, in float64.
    tol
        True where |analytic − numeric| ≤ tol · max(1, |numeric|) holds for every element. A nan is never within.

    Examples
    --------
    >>> grad_check(lambda x: (x**3).sum(), torch.tensor([1.0, 2.0]), numeric_grad)
    True
    """
    ### BEGIN SOLUTION
    leaf = x.detach().to(torch.float64, copy=True).requires_grad_()
    (analytic,) = torch.autograd.grad(f(leaf), leaf)
    numeric = numeric_grad(f, leaf.detach())
    allowed = tol * torch.maximum(numeric.abs(), torch.ones_like(numeric))
    return bool(((analytic - numeric).abs() <= allowed).all())
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "02_autograd-grad_check-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("grad_check")
### BEGIN HIDDEN TESTS
check("grad_check", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "02_autograd-Scalar", "locked": false, "schema_version": 3, "solution": true, "task": false}
class Scalar:
    """A number that remembers how it was computed, and can go back.

    Parameters
    ----------
    value
        An int or a float.

    Attributes
    ----------
    value : float
    grad : float
        The derivative of the number on which `backward()` was called with respect to this one; 0.0 at first.

    Notes
    -----
    `+ - * /` take a Scalar, an int or a float on either side; `**` takes a number as its exponent; `relu()`, `tanh()`,
    `exp()` and `log()` are methods. Each gives a new Scalar. `relu` of a positive number has slope 1, of a negative
    one slope 0.

    Examples
    --------
    >>> a = Scalar(3.0)
    >>> b = a + a
    >>> (b * b).backward()
    >>> a.grad
    24.0
    """

    def __init__(self, value: float, inputs: tuple[tuple["Scalar", float], ...] = ()) -> None:
        """Keep the value, and (input, slope) for each number that it was computed from."""
        ### BEGIN SOLUTION
        self.value = float(value)
        self.grad = 0.0
        self.inputs = inputs
        ### END SOLUTION

    def __add__(self, other: "Scalar | float") -> "Scalar":
        ### BEGIN SOLUTION
        other = as_scalar(other)
        return Scalar(self.value + other.value, ((self, 1.0), (other, 1.0)))
        ### END SOLUTION

    def __mul__(self, other: "Scalar | float") -> "Scalar":
        ### BEGIN SOLUTION
        other = as_scalar(other)
        return Scalar(self.value * other.value, ((self, other.value), (other, self.value)))
        ### END SOLUTION

    def __pow__(self, exponent: float) -> "Scalar":
        ### BEGIN SOLUTION
        return Scalar(self.value**exponent, ((self, exponent * self.value ** (exponent - 1)),))
        ### END SOLUTION

    def __sub__(self, other: "Scalar | float") -> "Scalar":
        ### BEGIN SOLUTION
        return self + as_scalar(other) * -1
        ### END SOLUTION

    def __truediv__(self, other: "Scalar | float") -> "Scalar":
        ### BEGIN SOLUTION
        return self * as_scalar(other) ** -1
        ### END SOLUTION

    def __radd__(self, other: float) -> "Scalar":
        """other + self, where other is a number."""
        ### BEGIN SOLUTION
        return as_scalar(other) + self
        ### END SOLUTION

    def __rmul__(self, other: float) -> "Scalar":
        """other * self, where other is a number."""
        ### BEGIN SOLUTION
        return as_scalar(other) * self
        ### END SOLUTION

    def __rsub__(self, other: float) -> "Scalar":
        """other - self, where other is a number."""
        ### BEGIN SOLUTION
        return as_scalar(other) - self
        ### END SOLUTION

    def __rtruediv__(self, other: float) -> "Scalar":
        """other / self, where other is a number."""
        ### BEGIN SOLUTION
        return as_scalar(other) / self
        ### END SOLUTION

    def relu(self) -> "Scalar":
        ### BEGIN SOLUTION
        return Scalar(max(self.value, 0.0), ((self, float(self.value > 0)),))
        ### END SOLUTION

    def tanh(self) -> "Scalar":
        ### BEGIN SOLUTION
        t = math.tanh(self.value)
        return Scalar(t, ((self, 1 - t**2),))
        ### END SOLUTION

    def exp(self) -> "Scalar":
        ### BEGIN SOLUTION
        e = math.exp(self.value)
        return Scalar(e, ((self, e),))
        ### END SOLUTION

    def log(self) -> "Scalar":
        ### BEGIN SOLUTION
        return Scalar(math.log(self.value), ((self, 1 / self.value),))
        ### END SOLUTION

    def backward(self) -> None:
        """Add the derivative of this number with respect to each number behind it to that number's `grad`."""
        ### BEGIN SOLUTION
        # How many uses of each number lie between it and this one.
        uses = {self: 0}
        to_visit = [self]
        while to_visit:
            for number, _ in to_visit.pop().inputs:
                if number not in uses:
                    uses[number] = 0
                    to_visit.append(number)
                uses[number] += 1
        # A number passes its gradient on once all its uses have reported theirs.
        flow = dict.fromkeys(uses, 0.0)
        flow[self] = 1.0
        complete = [self]
        while complete:
            number = complete.pop()
            number.grad += flow[number]
            for one, slope in number.inputs:
                flow[one] += slope * flow[number]
                uses[one] -= 1
                if uses[one] == 0:
                    complete.append(one)
        ### END SOLUTION


def as_scalar(number: "Scalar | float") -> Scalar:
    """The Scalar itself, or a number as a new one."""
    return number if isinstance(number, Scalar) else Scalar(number)


# %% nbgrader={"grade": true, "grade_id": "02_autograd-Scalar-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("Scalar")
### BEGIN HIDDEN TESTS
check("Scalar", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "02_autograd-truncated_grad", "locked": false, "schema_version": 3, "solution": true, "task": false}
def truncated_grad(w: float, xs: list[float], k: int) -> float:
    """The gradient of a recurrence that forgets its past every k steps.

    The recurrence starts from h = 0 and computes h ← tanh(w · h + xₜ) for t = 0, 1, …; L is the sum of all these h.

    Parameters
    ----------
    w
        The weight, shared by all steps.
    xs
        The inputs x₀, x₁, …; at least one.
    k
        The length of a window. Before each update with t % k == 0, h is detached: its value stays, its history goes.
        With k = 0 nothing is ever detached.

    Returns
    -------
    float
        dL/dw, computed in float64.

    Examples
    --------
    >>> round(truncated_grad(0.5, [1.0, 0.5, -0.3, 0.8, 0.2], 2), 6)
    1.818848
    """
    ### BEGIN SOLUTION
    weight = torch.tensor(w, dtype=torch.float64, requires_grad=True)
    h = torch.zeros((), dtype=torch.float64)
    loss = torch.zeros((), dtype=torch.float64)
    for t, x in enumerate(xs):
        if k > 0 and t % k == 0:
            h = h.detach()
        h = torch.tanh(weight * h + x)
        loss = loss + h
    loss.backward()
    return weight.grad.item()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "02_autograd-truncated_grad-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("truncated_grad")
### BEGIN HIDDEN TESTS
check("truncated_grad", hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": false, "grade_id": "02_autograd-safe_sqrt", "locked": false, "schema_version": 3, "solution": true, "task": false}
def safe_sqrt(x: Tensor) -> Tensor:
    """The square root where x > 0, and 0 with gradient 0 everywhere else.

    Parameters
    ----------
    x
        Floating-point tensor of any shape. It is not changed.

    Returns
    -------
    Tensor
        Shape and dtype of x; differentiable, and its gradient holds no nan and no infinity where x ≤ 0.

    Examples
    --------
    >>> safe_sqrt(torch.tensor([-1.0, 0.0, 4.0]))
    tensor([0., 0., 2.])
    """
    ### BEGIN SOLUTION
    positive = x > 0
    root = torch.sqrt(torch.where(positive, x, torch.ones_like(x)))
    return torch.where(positive, root, torch.zeros_like(x))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "02_autograd-safe_sqrt-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("safe_sqrt")
### BEGIN HIDDEN TESTS
check("safe_sqrt", hidden=True)
### END HIDDEN TESTS
