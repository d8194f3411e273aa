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

# %% [markdown]
# # Chapter 2 · Autograd
#
# At the end of this chapter you will be able to
#
# - say which tensors are leaves, and where a gradient arrives;
# - explain `y.backward(v)` in three words: vector times Jacobian;
# - walk the graph that PyTorch records, and draw it;
# - check any gradient with differences;
# - build an automatic differentiation engine of your own;
# - cut a history on purpose, and keep nan out of a gradient.
#
# ![sin of the inner product of x and y as a graph: values travel forward from x and y over their product and its sum to the sine, gradients travel back the same way and arrive at x and y](figures/there_and_back.png)
#
# **Before you start:** chapter 1, and the chain rule. **Time:** about 180 minutes, 135 of them for exercises.
# **Exercises:** 9 functions and classes on 8 cards, 34 points.

# %%
import sys

if "google.colab" in sys.modules:  # on Colab: the course's helper package, and nothing else
    package = "underhood @ git+https://github.com/under-the-hood-course/under-the-hood@v1.0.0#subdirectory=course"
    get_ipython().run_line_magic("pip", f'install -q --no-deps "{package}"')

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from underhood import check, ready
from underhood.plots import autograd as draw

# %% [markdown]
# ## Record, then go back
#
# A tensor with `requires_grad=True` is watched. Each operation on it is recorded, and so is what comes out. `backward()` then
# walks the record from the end to the start. That is **reverse-mode automatic differentiation**: multiply along each edge,
# add up where ways meet.
#
# Predict: one of two inputs requires grad. Do the results?

# %%
a = torch.ones(2, requires_grad=True)
b = torch.ones(2)
print((a + b).requires_grad, (b * 2).requires_grad)
print((a + b).grad_fn, (b * 2).grad_fn)

# %% [markdown]
# Only what depends on a watched tensor is recorded. Autograd therefore does not compute "every gradient": it follows the
# paths that lead to tensors that require grad. And only floating-point (and complex) tensors can require grad at all.
#
# Now the picture from the top of this page: f = sin⟨x, y⟩, with ⟨x, y⟩ = 1·5 + 2·6 + 3·7 = 38. Work out ∂f/∂x by
# hand first: it is cos⟨x, y⟩ · y, and cos 38 ≈ 0.955. The cell checks that under `torch.no_grad()`. Without that, the result of your own formula
# would be recorded as well, and carry a `grad_fn` of its own.

# %%
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = torch.tensor([5.0, 6.0, 7.0], requires_grad=True)
f = torch.sin((x * y).sum())
f.backward()
print(f.item(), x.grad, y.grad)
with torch.no_grad():
    by_hand = torch.cos((x * y).sum()) * y
print(by_hand, torch.allclose(by_hand, x.grad))

# %% [markdown]
# ## Leaves
#
# A **leaf** is where a record begins. People say "a leaf is a tensor that the user created", which is half of the rule.
# PyTorch's rule: a tensor is a leaf when it has no `grad_fn`. Two consequences surprise:
#
# - every tensor that requires no grad is a leaf by convention, results of operations included;
# - parameters of a model are leaves too, so leaves are not only "the inputs".
#
# Predict the four answers.

# %%
x = torch.ones(2, requires_grad=True)
print("x           ", x.is_leaf)
print("x * 2       ", (x * 2).is_leaf)
print("ones(2) * 2 ", (torch.ones(2) * 2).is_leaf)
print("x to float64", x.to(torch.float64).is_leaf)

# %% [markdown]
# `backward()` fills `.grad` of leaves that require grad. A classic slip: `torch.tensor(5.0, requires_grad=True) * 0.1` is no
# leaf any more. Its `.grad` stays None. Scale first, then call `requires_grad_()`.
#
# **detach** gives a second tensor on the same memory, outside the record. To see it do something, start with a tensor that
# does require grad. Predict what `A` holds after the last line.

# %%
A = torch.tensor([1.0, 2.0], requires_grad=True)
B = A * 10
D = B.detach()
print(B.is_leaf, D.is_leaf, B.grad_fn is None, D.grad_fn is None)
D[0] = -1.0
print(B)

# %% [markdown]
# The write went through to `B`: detach shares memory, `detach().clone()` does not. The in-place form `detach_()` turns a
# tensor itself into a leaf; it refuses views, and graphs that were built earlier keep their own edges.
#
# **no_grad** stops recording. It does not reach tensors that are *created* with `requires_grad=True` inside it, nor Parameters.

# %%
with torch.no_grad():
    result = A * 2
    made = torch.ones(2, requires_grad=True)
    weight = nn.Parameter(torch.ones(2))
print(result.requires_grad, made.requires_grad, weight.requires_grad)

# %% [markdown]
# (`torch.inference_mode()` is stricter: its results can never join a record later.)
#
# **Words from old code.** `Variable(x)` used to wrap a tensor to make it watchable. Since version 0.4 it hands back a plain
# `torch.Tensor`, and `volatile=True` does nothing. `FloatTensor(...)` and `torch.Tensor(...)` are legacy too:
# `torch.Tensor(3)` is three uninitialized floats. Write `torch.tensor(3.0)`. And `x.data` was the way around the record, before `detach()`.
# Why it is unsafe: sigmoid's backward needs its own output. Zero that output both ways, and predict which one warns you.

# %%
for way in ("data", "detach"):
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    out = x.sigmoid()
    (out.data if way == "data" else out.detach()).zero_()
    try:
        out.sum().backward()
        print(f"{way}: gradient {x.grad.tolist()}, without a word")
    except RuntimeError as error:
        print(f"{way}: {str(error)[:88]} …")

# %% [markdown]
# The right gradient is [0.197, 0.105, 0.045]. Through `.data` you get zeros and no warning. `detach()` shares a version
# counter with the original, so autograd notices.
#
# ### **Exercise 2.1 · leaf or not** — *easy · 10 min · 4 points*
#
# Predict `(is_leaf, requires_grad)` of a tensor from how it came about, without making it. All 28 combinations of 7 kinds, a
# source that requires grad or not, and recording on or off, follow from a few rules.
#
# *Example.* `x * 2` of a watched x is `(False, True)`. Under `no_grad` the same product is `(True, False)`.
# `x.argmax()` is an integer: `(True, False)`.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Ask one question first: was an operation recorded? If so there is a `grad_fn`, so no leaf, and it requires grad. If not, it is a leaf.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Sort the seven kinds: three do no recordable operation on numbers (created, parameter, same object), two never record (detach, integer operation), two record when they can (operation, cast).
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `recorded = source_requires_grad and grad_enabled` for an operation and a cast: return `(not recorded, recorded)`. For created and same object return `(True, source_requires_grad)`. Which two pairs are left for the other three kinds?
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## Where gradients arrive
#
# Tensors in between get no `.grad`: it would cost memory, and reading it warns. `retain_grad()` asks for one, and must be
# called before `backward()`. Predict ∂C/∂B and ∂C/∂A for C = mean(5 A) over four numbers.

# %%
A = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
B = 5 * A
B.retain_grad()
C = B.mean()
C.backward()
print(B.grad[0, 0].item(), A.grad[0, 0].item())

# %% [markdown]
# 0.25 and 1.25. Now a second backward on the same numbers. Predict the two printed gradients, and what the last
# line does.

# %%
C = (A**2).mean()
A.grad = None
C.backward(retain_graph=True)
print(A.grad[0, 0].item())
C.backward()
print(A.grad[0, 0].item())
try:
    C.backward()
except RuntimeError as error:
    print(str(error)[:66], "…")

# %% [markdown]
# `.grad` is an **accumulator**: each backward *adds*. Set `x.grad = None` between two of them (`optimizer.zero_grad()` does
# that today, which is why `x.grad.zero_()` after it fails). A backward also frees what the graph had saved, unless you say
# `retain_graph=True`. Needing that argument is often a sign that a graph should have been built afresh.
#
# An example that goes round on Stack Overflow: x = [1, 2, 3, 4], z = 2x, four backward calls. z is no single number, so each call
# takes an argument. What it means is the next section; here watch only what is cleared and what adds up.

# %%
for zeroing in (True, False):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    z = 2 * x
    for v in ([1.0, 0, 0, 0], [0.0, 1, 0, 0], [1.0, 1, 1, 1], [1.0, 1, 1, 1]):
        x.grad = None if zeroing else x.grad
        z.backward(torch.tensor(v), retain_graph=True)
        print(x.grad.tolist(), end="  ")
    print("cleared" if zeroing else "added up")

# %% [markdown]
# ## What `backward(v)` means
#
# The question that many people arrive with: in `y.backward(torch.tensor([0.1, 1.0, 0.0001]))`, what are these three numbers?
# Neither learning rates nor an accumulator. y has three elements, and each has its own gradient. The **Jacobian** J holds them: row i
# is the gradient of yᵢ. The numbers v say how much each row counts:
#
# $$ v^\top J = 0.1 \cdot \text{row}_0 + 1 \cdot \text{row}_1 + 0.0001 \cdot \text{row}_2 $$
#
# Aloud: v transposed times J, a weighted sum of the outputs' *gradients*. v is called the **cotangent**: v = ∂L/∂y for some final
# number L that depends on y. Predict the three gradients of y = 3a + 2b² + log c.

# %%
a, b, c = (torch.tensor(numbers, requires_grad=True) for numbers in ([1.0, 2, 3], [3.0, 4, 5], [6.0, 7, 8]))
v = torch.tensor([0.1, 1.0, 0.0001])
y = 3 * a + 2 * b**2 + torch.log(c)
y.backward(v)
print(a.grad.tolist(), b.grad.tolist(), c.grad.tolist(), sep="\n")

# %% [markdown]
# You often read that the Jacobian here is [3, 4b, 1/c]. It is three 3 × 3 matrices, and those are their diagonals. On a diagonal
# matrix, vᵀJ, Jv and "v times the gradient of the sum" all agree, so this example cannot tell them apart. Take one that is
# neither diagonal nor square. Multiply on paper before you run it.

# %%
J = torch.tensor([[1.0, 2.0], [0.0, 3.0], [4.0, -1.0]])
x = torch.tensor([1.0, 2.0], requires_grad=True)
(J @ x).backward(v)
print(x.grad.tolist())
draw.vector_jacobian(J, v)

# %% [markdown]
# Three traps around that argument. Which of the three lines do you expect to work?

# %%
w = torch.tensor([1.0, 2.0], requires_grad=True)
number, vector = (w**2).sum(), (w**2).sum(dim=0, keepdim=True)
for about, y, v1 in (("() with (1,)", number, torch.ones(1)), ("(1,) with (1,)", vector, torch.ones(1)),
                     ("(1,) with (3,)", vector, torch.ones(3))):
    try:
        y.backward(v1)
        print(f"{about}: {w.grad.tolist()}")
    except RuntimeError as error:
        print(f"{about}: {str(error)[:30]} …")

# %% [markdown]
# v must have exactly the shape of y. `loss.backward()` is short for `loss.backward(torch.tensor(1.0))`, and the default 1 exists
# for one-element outputs only. (The best-known answer to that question mixes (1,) with (3,) in its third example: as printed it
# does not run. It also builds its inputs with `torch.empty`, whose numbers are undefined.)
#
# A *list* of losses has no `backward`. `torch.autograd.backward` takes one. What you get is one weighted **sum** in `w.grad`, not several gradients side by side:

# %%
w.grad = None
losses = [w[0] * 2, w[1] * 3, w.sum()]
torch.autograd.backward(losses, [torch.tensor(n) for n in (-0.1, 1.0, 0.0001)])
print(w.grad.tolist(), "=", [-0.1 * 2 + 0.0001, 1.0 * 3 + 0.0001])

# %% [markdown]
# ### **Exercise 2.2 · vector times Jacobian** — *medium · 15 min · 4 points · uses 2.1*
#
# Write `vjp(f, inputs, v)`: vᵀJ for every input, and leave no trace in the caller's tensors. `.grad` and `requires_grad` stay
# as they were, and an input that f ignores gets zeros.
#
# *Example.* f multiplies by [[1 2 0] [0 1 3] [4 0 1]], v = [0.1, 1, 0.0001]: the product is [0.1004, 1.2, 3.0001].
# (J v would be [2.1, 1.0003, 0.4001], and v times the column sums [0.5, 3, 0.0004].)

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Which tensors may you switch `requires_grad` on for? Make some with the same numbers that belong to you.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `torch.autograd.grad(outputs, inputs, grad_outputs)` *returns* gradients in place of adding them to `.grad`. Look up what it does with an input that was not used.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# Make leaves with `x.detach().requires_grad_()`, compute `y = f(*leaves)`, compare the two shapes, then call `torch.autograd.grad(y, leaves, …)` with v, `allow_unused=True` and `materialize_grads=True`.
#
# </details>

# %%
# Try your own inputs here.

# %%
if ready("vjp"):
    inputs = [torch.tensor([1.0, 2, 3]), torch.tensor([3.0, 4, 5]), torch.tensor([6.0, 7, 8])]
    products = vjp(lambda a, b, c: 3 * a + 2 * b**2 + torch.log(c), inputs, v)
    for leaf, product in zip((a, b, c), products, strict=True):
        print(torch.equal(leaf.grad, product), product.tolist())

# %% [markdown]
# ### **Exercise 2.3 · the Jacobian, row by row** — *medium · 10 min · 3 points · uses 2.2*
#
# One backward pass gives one weighted sum of rows. A cotangent with a single 1 picks a single row. Build the whole (m, n) Jacobian
# that way; x and f(x) may have any shapes and are counted in reading order.
#
# *Example.* f = [x₀x₁, x₁², x₀ − x₁] at (2, 3) has the Jacobian [[3 2] [0 6] [1 −1]].

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Which v makes vᵀJ equal to row 1 of J?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# The rows of the identity matrix, `torch.eye(m)`, are the cotangents. Flatten the output first. The graph is needed m times.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `y = f(leaf).reshape(-1)`; for each `unit` in `torch.eye(len(y))` take `torch.autograd.grad(y, leaf, unit, retain_graph=True)[0].reshape(-1)`; stack them.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# m rows cost m backward passes. A loss has m = 1: one pass for millions of inputs, which is why deep learning goes backward.
# (*Forward-mode* differentiation, `torch.func.jvp`, gives J v: one pass per input. It is another method, not the "forward pass".)

# %%
if ready("vjp", "jacobian_rows"):
    f = lambda x: torch.stack([x[0] * x[1], x[1] ** 2, x[0] - x[1]])
    point = torch.tensor([2.0, 3.0])
    print(v @ jacobian_rows(f, point), vjp(f, [point], v)[0])

# %% [markdown]
# ## The graph under the hood
#
# `C.grad_fn` is the last node, and `next_functions` leads on: one `(node, index)` pair per input. Predict how many edges the node of
# `A + A` has, and where they lead.

# %%
A = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
C = (5 * (A + A)).mean()
mul = C.grad_fn.next_functions[0][0]
add = mul.next_functions[0][0]
print(C.grad_fn.name(), "→", mul.name(), "→", add.name())
print(mul.next_functions)
(left, _), (right, _) = add.next_functions
print(left.name(), left is right, left.variable is A)
draw.graph(C, {"A": A})

# %% [markdown]
# Both edges of `A + A` lead to the *same* node. So the record is no tree but a **directed acyclic graph** (DAG), and gradients add up
# where its ways meet. The constant 5 shows as `None`. AccumulateGrad is where a leaf's gradient arrives, and its `.variable`
# is the leaf. Walking `[0][0]` only, as one often sees it, follows the first input and misses the rest.
#
# ### **Exercise 2.4 · walking the graph** — *medium · 20 min · 4 points · uses 2.1*
#
# Summarize the graph behind a tensor: how many nodes, the operations' names (one per node, sorted), and the leaf tensors, each once.
#
# *Example.* For C above: 4 nodes, `['AddBackward0', 'MeanBackward0', 'MulBackward0']`, and `[A]`.
# After y = x and forty times y = y + y there are 41 nodes, but 2⁴⁰ ways from top to bottom: about 10¹². And 5,000 additions in a row are deeper than Python's call stack.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# What do you need to remember so that a node is not visited twice?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Keep a list of nodes still to visit and a set of nodes visited. No recursion: the list is your stack. `hasattr(node, "variable")` tells a leaf's node.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `while to_visit:` pop a node; if it is None or visited, go on; otherwise add it to the set, and add the first item of each of its `next_functions` pairs to the list.
#
# </details>

# %%
# Try your own inputs here.

# %%
if ready("graph_summary"):
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    out = net(torch.ones(4, 3)).mean()
    summary = graph_summary(out)
    print(summary["nodes"], summary["ops"])
    names = {name: p for name, p in net.named_parameters()}
    print(sorted(n for n, p in names.items() if any(p is leaf for leaf in summary["leaves"])))
    draw.graph(out, names)

# %% [markdown]
# Linear layers show as AddmmBackward0 (add, after a matrix multiplication), whose weight is transposed first (TBackward0).
#
# ## Trust, but check
#
# A gradient can be wrong and training still limps along. Differences find out: move one element a little to both sides, and see
# how much f changes. This **central difference** has an error of about h²/6 · f‴; a one-sided one has h/2 · f″. Take h too small, and the rounding
# errors of f, divided by 2h, take over. And stay away from kinks: what autograd returns there is a convention, and conventions change
# (`clamp` at its bounds gives 1 in torch 2.11 and 0 in 2.14).
#
# ### **Exercise 2.5 · a gradient without autograd** — *medium · 20 min · 8 points · uses 2.2*
#
# Two functions. `numeric_grad(f, x, h)` takes central differences, in float64 whatever the dtype of x. `grad_check(f, x, numeric_grad, tol)`
# says whether autograd agrees: |analytic − numeric| ≤ tol · max(1, |numeric|) for every element.
#
# *Example.* f = Σx³ at 1 with h = 0.5: (3.375 − 0.125) / 1 = 3.25, which is 3x² + h². With h = 1e-6 you get 3 to ten digits.
# A backward that lacks a factor 2 must give False. So must a nan.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# One element moves, the others stay. What must be true again before you move the next one?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Copy x to float64 and flatten it. For each i, build a step that is h at i and 0 elsewhere, and call f with x's shape.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `above = f((point + step).reshape(x.shape))`, `below` with minus, and `slopes[i] = (above - below) / (2 * h)`.
#
# </details>

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# `x.double()` of a float64 tensor is x itself. Whose `requires_grad` would you be switching on?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Make a float64 leaf of your own, differentiate `f(leaf)` with respect to it, and compare element by element. Every comparison with nan is False: ask a question to which False is the right answer.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `(analytic - numeric).abs() <= tol * torch.maximum(numeric.abs(), torch.ones_like(numeric))`, then `.all()` and `bool`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# The slope of eˣ at 1 is e. Predict the best h for your central difference in float64, for a one-sided one, and for float32.

# %%
if ready("numeric_grad"):
    hs = [10.0**-k for k in range(1, 13)]
    one, f = torch.tensor([1.0], dtype=torch.float64), lambda x: torch.exp(x).sum()
    slopes = {
        "yours, central": [numeric_grad(f, one, h) for h in hs],
        "one-sided": [(f(one + h) - f(one)) / h for h in hs],
        "central in float32": [(f(one.float() + h) - f(one.float() - h)) / (2 * h) for h in hs],
    }
    draw.difference_errors(hs, slopes, exact=math.e)

# %% [markdown]
# In float32 the best you can get is four or five digits: a failing check in float32 proves nothing. Now check the function
# of the first page, and one whose detach hides a factor from autograd.

# %%
if ready("numeric_grad", "grad_check"):
    x = torch.tensor([0.3, -1.2, 2.0])
    print(grad_check(lambda x: torch.sin((x * x).sum()), x, numeric_grad))
    print(grad_check(lambda x: (x.detach() * x).sum(), x, numeric_grad))

# %% [markdown]
# ## An engine of your own
#
# Everything so far fits into one small class. A number remembers what it was computed from, and with which **slope**: for
# y = a · b, the slope toward a is b, and toward b it is a. Going back, a number's gradient is the sum, over its uses, of slope times the
# gradient of the number computed there.
#
# The order matters. Take a = 3, b = a + a, y = b · b. Both edges from y reach b, and b must wait for both (6 + 6 = 12) before it tells a. Then
# a gets 12 + 12 = 24. An engine that passes b's gradient on after each arrival sends 6, then 12: a gets 12 + 24 = 36.
#
# ### **Exercise 2.6 · an engine of your own** — *hard · 40 min · 5 points · uses 2.4*
#
# Write `Scalar`, without torch or numpy. Gradients of a value used twice add up. A second `backward()` adds once more to every `.grad`, starting
# afresh and not from the gradients that are there. A chain of 5,000 operations works, and so do forty
# doublings y = y + y.
#
# *Example.* a = 2, b = 3, c = 5, y = a·b + a·c: value 16, gradients 8, 2, 2. The helper `as_scalar` at the end of the cell is given.

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Store pairs (input, slope) when you compute. Then going back needs no case distinction: every operation looks the same.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Going back, visit each number after everything that uses it. Count uses, or sort the graph, with a list as your stack. Collect this pass's gradients in a dict of their own, and add them to `.grad` as you go.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `flow = {self: 1.0}`; in topological order: `number.grad += flow[number]`, and for each (input, slope): `flow[input] += slope * flow[number]`, starting from 0.0. `a - b` can be `a + b * -1`, and `a / b` can be `a * b ** -1`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# Does it learn? One neuron, tanh(weight · x + bias), shall say −1 for small x and +1 for large x. Watch the loss fall from step to step.

# %%
if ready("Scalar"):
    weight, bias = Scalar(0.5), Scalar(0.0)
    for step in range(101):
        loss = sum(((weight * x + bias).tanh() - t) ** 2 for x, t in ((0, -1), (1, -1), (2, 1), (3, 1)))
        weight.grad = bias.grad = 0.0
        loss.backward()
        weight.value -= 0.1 * weight.grad
        bias.value -= 0.1 * bias.grad
        if step % 25 == 0:
            print(f"step {step:3}  loss {loss.value:.4f}  weight {weight.value:.3f}  bias {bias.value:.3f}")

# %% [markdown]
# ## In place, and out of time
#
# "In-place operations are not differentiable" is a common belief, and not the rule. Predict which of these four raise.

# %%
x = torch.ones(3, requires_grad=True)
changes = {"(x * 2).mul_(3)": lambda: (x * 2).mul_(3), "(x * 2).zero_()": lambda: (x * 2).zero_(),
           "x.zero_()": lambda: x.zero_(), "x.exp().add_(1)": lambda: x.exp().add_(1)}
for name, change in changes.items():
    try:
        print(f"{name:16}", torch.autograd.grad(change().sum(), x)[0].tolist())
    except RuntimeError as error:
        print(f"{name:16} raises: {str(error)[:70]} …")

# %% [markdown]
# Two rules explain all four. A leaf that requires grad (or a view of one) must not be overwritten while recording is on. And what backward has
# saved must not be overwritten: exp saved its output. That is why weights are updated under `torch.no_grad()`, with
# `w -= lr * w.grad`. Writing `w = w - lr * w.grad` makes a new tensor that is no leaf.
#
# **Histories grow.** A recurrent net carries a state h from step to step, and with it the record of all steps before. The error
# "Trying to backward through the graph a second time" tempts people to add `retain_graph=True`. It goes away, and each step then
# goes back through everything. If you meant to learn from recent steps only, cut the history: detach h.
#
# ### **Exercise 2.7 · forgetting the past on purpose** — *medium · 10 min · 3 points · uses 2.1*
#
# h starts at 0, h ← tanh(w · h + xₜ), L is the sum of all h. Before each update with t % k == 0, the history of h is dropped (k = 0: never). Return
# dL/dw in float64.
#
# *Example.* w = 0.5, xs = [1, 0.5, −0.3, 0.8, 0.2]: 2.162399 with the whole history, 1.628768 for k = 1, 1.818848 for k = 2 (steps 0 1 | 2 3 | 4).

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# `h.detach()` changes nothing in h. What do you do with what it returns?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# One loop, one sum, one backward at the end. The cut comes first in the loop, before the update.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `if k > 0 and t % k == 0: h = h.detach()`, then the update, then `loss = loss + h`. Make w with `dtype=torch.float64, requires_grad=True`.
#
# </details>

# %%
# Try your own inputs here.

# %%
if ready("truncated_grad"):
    xs = [0.1] * 40
    by_length = {k: truncated_grad(0.9, xs, k) for k in range(1, 41)}
    draw.windows(by_length, full=truncated_grad(0.9, xs, 0))

# %% [markdown]
# ## Break it on purpose: a gradient full of nan
#
# A square root that gives 0 below zero. `torch.where` picks the good values, so the values are fine. Predict the gradients.

# %%
x = torch.linspace(-2, 4, 13, requires_grad=True)
y = torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x))
y.sum().backward()
draw.root_and_slope(x, y, x.grad)

# %% [markdown]
# **The cause.** `where` computes both branches, and backward goes through both. The branch that was not taken gets the cotangent 0. The slope
# of sqrt is infinite at 0 and nan below, and 0 · inf = nan. Mending the value afterwards cannot help: the root must not see the bad numbers at
# all.
#
# ### **Exercise 2.8 · a square root without nan** — *medium · 10 min · 3 points*
#
# √x for x > 0, otherwise value 0 and gradient 0, without a small number added under the root.
#
# *Example.* [−1, 0, 4] → [0, 0, 2], with gradients [0, 0, 0.25].

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

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Which numbers may sqrt see, so that its slope is finite everywhere?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Use `torch.where` twice: once before the root, to replace what the root must not see, and once after it.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# Before: `torch.where(x > 0, x, 1)`, in x's dtype. Then the root. After: `torch.where(x > 0, root, 0)`.
#
# </details>

# %%
# Try your own inputs here.

# %%
if ready("safe_sqrt"):
    x = torch.linspace(-2, 4, 13, requires_grad=True)
    y = safe_sqrt(x)
    y.sum().backward()
    draw.root_and_slope(x, y, x.grad)

# %% [markdown]
# ## Five questions
#
# 1. What is v in `y.backward(v)`, and which shape must it have?
#
# <details><summary>Answer</summary>The cotangent ∂L/∂y: it weighs the rows of the Jacobian, vᵀJ. It has exactly y's shape.</details>
#
# 2. Is `torch.ones(2) * 3` a leaf?
#
# <details><summary>Answer</summary>Yes. It requires no grad, so nothing was recorded, and a tensor without a grad_fn is a leaf.</details>
#
# 3. Why does the second of two backward calls double `.grad`?
#
# <details><summary>Answer</summary>.grad accumulates: each backward adds. Set it to None in between.</details>
#
# 4. Why does a walk over the graph need a memory of visited nodes?
#
# <details><summary>Answer</summary>The graph is a DAG, no tree. Forty doublings have 41 nodes and about 10¹² ways through them.</details>
#
# 5. `torch.where` hides the bad values. Why is the gradient nan?
#
# <details><summary>Answer</summary>Both branches are differentiated. The unused one gets 0 times an infinite slope, which is nan.</details>
#
# ## What you can now do
#
# You can tell leaves from results, read `backward(v)` as vᵀJ, build a Jacobian, walk and draw a graph, check a gradient by
# differences, write a reverse-mode engine, cut a history, and keep nan out of a gradient. Chapter 3 uses `vjp` and `grad_check` again.
#
# ## Keep your work
#
# On Binder the machine is deleted when you leave: use *File → Download* for this notebook, and upload it next time. On Colab
# use *File → Save a copy in Drive*, or *File → Download → Download .ipynb*. In JupyterLab on your own machine it is saved where it is.
#
# Previous: [Chapter 1 · Basics](../01_basics/basics.ipynb) · Next: [Chapter 3 · Optimization](../03_optimization/optimization.ipynb)
