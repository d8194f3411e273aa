"""The exercises of chapter 2: cases, known mistakes, hidden cases."""

from __future__ import annotations

import itertools
import math

import torch
from torch import tensor

from underhood import Build, Case, Exercise, Mistake

V = tensor([0.1, 1.0, 0.0001])  # the cotangent of the public question that the chapter answers
SQUARE = tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0], [4.0, 0.0, 1.0]])
TALL = tensor([[1.0, 2.0], [0.0, 3.0], [4.0, -1.0]])


def doubles(*numbers):
    """A float64 tensor of the numbers."""
    return tensor(numbers, dtype=torch.float64)


def normal(rng, *shape):
    """Random float64 numbers of that shape."""
    return tensor(rng.normal(size=shape))


# ------------------------------------------------------------------------------------------------------------ leaf_rule

KINDS = ("created", "parameter", "operation", "integer operation", "detach", "same object", "cast")
LEAF_PARTS = dict(zip(KINDS, 2 * ("created",) + 2 * ("computed",) + 3 * ("same numbers, another tensor",), strict=True))


def all_histories(rng):
    """All 28 combinations, then words that are no kind."""
    for kind in KINDS:
        for requires_grad in (True, False):
            for grad_enabled in (True, False):
                about = f"{kind}, {'from' if requires_grad else 'without'} a tensor that requires grad"
                about += "" if grad_enabled else ", under no_grad"
                yield Case(about, LEAF_PARTS[kind], (kind, requires_grad, grad_enabled))
    for word in ("clone of nothing", "Operation", "leaf", " created"):
        yield Case("a word that is no kind", "errors", (word, bool(rng.integers(2)), True), raises=ValueError)
    for grad_enabled in (True, False):
        yield Case("created: a kind", "errors", ("created", False, grad_enabled))


def leaf_truth(kind, source_requires_grad, grad_enabled):
    if kind not in KINDS:
        raise ValueError(kind)
    tracked = source_requires_grad and grad_enabled
    return {
        "created": (True, source_requires_grad),
        "parameter": (True, True),
        "operation": (not tracked, tracked),
        "integer operation": (True, False),
        "detach": (True, False),
        "same object": (True, source_requires_grad),
        "cast": (not tracked, tracked),
    }[kind]


def results_are_no_leaves(kind, source_requires_grad, grad_enabled):
    leaf, requires_grad = leaf_truth(kind, source_requires_grad, grad_enabled)
    return leaf and kind not in ("operation", "integer operation", "cast"), requires_grad


def no_grad_rules_everything(kind, source_requires_grad, grad_enabled):
    leaf, requires_grad = leaf_truth(kind, source_requires_grad, grad_enabled)
    return leaf, requires_grad and grad_enabled


def only_grad_makes_a_leaf(kind, source_requires_grad, grad_enabled):
    leaf, requires_grad = leaf_truth(kind, source_requires_grad, grad_enabled)
    return leaf and requires_grad, requires_grad


def a_cast_stays_a_leaf(kind, source_requires_grad, grad_enabled):
    return leaf_truth("same object" if kind == "cast" else kind, source_requires_grad, grad_enabled)


def to_always_computes(kind, source_requires_grad, grad_enabled):
    return leaf_truth("cast" if kind == "same object" else kind, source_requires_grad, grad_enabled)


def integers_have_gradients(kind, source_requires_grad, grad_enabled):
    return leaf_truth("operation" if kind == "integer operation" else kind, source_requires_grad, grad_enabled)


def detach_is_an_operation(kind, source_requires_grad, grad_enabled):
    return leaf_truth("operation" if kind == "detach" else kind, source_requires_grad, grad_enabled)


def no_grad_forgotten(kind, source_requires_grad, grad_enabled):
    return leaf_truth(kind, source_requires_grad, True)


LEAF_RULE = Exercise(
    name="leaf_rule",
    title="leaf or not",
    level="easy",
    minutes=10,
    parts=("created", "computed", "same numbers, another tensor", "errors"),
    cases=(
        Case("made with requires_grad=True", "created", ("created", True, True), expected=(True, True)),
        Case("made with requires_grad=True, under no_grad", "created", ("created", True, False), expected=(True, True)),
        Case("a Parameter of plain numbers", "created", ("parameter", False, True), expected=(True, True)),
        Case("x * 2, x requires grad", "computed", ("operation", True, True), expected=(False, True)),
        Case("x * 2, x requires no grad", "computed", ("operation", False, True), expected=(True, False)),
        Case("x * 2 under no_grad", "computed", ("operation", True, False), expected=(True, False)),
        Case("x.argmax()", "computed", ("integer operation", True, True), expected=(True, False)),
        Case("x.detach()", "same numbers, another tensor", ("detach", True, True), expected=(True, False)),
        Case(
            "x.to(x.dtype), the object itself",
            "same numbers, another tensor",
            ("same object", True, True),
            expected=(True, True),
        ),
        Case(
            "x.to(torch.float64) of a float32",
            "same numbers, another tensor",
            ("cast", True, True),
            expected=(False, True),
        ),
        Case("a word that is no kind", "errors", ("copied", True, True), raises=ValueError),
        Case("a word that is a kind", "errors", ("parameter", True, True), expected=(True, True)),
    ),
    hidden=all_histories,
    mistakes=(
        Mistake(
            "calling every result of an operation a non-leaf",
            results_are_no_leaves,
            hint="What does is_leaf say of a tensor that requires no grad? Try (torch.ones(2) * 3).is_leaf.",
        ),
        Mistake(
            "letting no_grad decide about tensors that are created inside it",
            no_grad_rules_everything,
            hint="no_grad stops operations from being recorded. Is torch.ones(2, requires_grad=True) an operation?",
        ),
        Mistake(
            "taking only tensors that require grad for leaves",
            only_grad_makes_a_leaf,
            hint="By convention, what is a tensor that requires no grad?",
        ),
        Mistake(
            "taking a cast for the tensor itself",
            a_cast_stays_a_leaf,
            hint="Other numbers in other memory have to come from somewhere. Print x.to(torch.float64).grad_fn.",
        ),
        Mistake(
            "taking .to(the same dtype) for an operation",
            to_always_computes,
            hint="When nothing has to be done, .to does nothing. Try x.to(x.dtype) is x.",
        ),
        Mistake(
            "giving gradients to integers",
            integers_have_gradients,
            hint="An index moves in jumps. Which dtypes may require grad?",
        ),
        Mistake(
            "treating detach like any operation",
            detach_is_an_operation,
            hint="What is detach there for? Print x.detach().grad_fn.",
        ),
        Mistake(
            "leaving grad_enabled out",
            no_grad_forgotten,
            hint="Under no_grad an operation leaves no grad_fn behind. What is its result then?",
        ),
    ),
    forbids=("import torch",),
)

# ------------------------------------------------------------------------------------------------------------------ vjp


def random_products(rng):
    """Matrices that are neither square nor diagonal, functions of two tensors, unused inputs, watched inputs."""
    for m, n in ((2, 5), (4, 3), (3, 3)):
        matrix, x, v = normal(rng, m, n), normal(rng, n), normal(rng, m)
        yield Case(f"a linear map from {n} to {m} numbers", "values", (Build("autograd.affine", matrix=matrix), [x], v))
    x, y = normal(rng, 3), normal(rng, 2, 2)
    f = Build("autograd.bilinear", matrix=normal(rng, 4, 3))
    yield Case("a function of two tensors of different shapes", "values", (f, [x, y], normal(rng, 4)))
    for use in (0, 1):
        f = Build("autograd.scaled", factor=float(rng.normal()), use=use)
        inputs = [normal(rng, 2, 3), normal(rng, 2, 3)]
        yield Case(f"only input {use} is used", "unused inputs", (f, inputs, normal(rng, 2, 3)))
    inputs = Build(
        "autograd.callers",
        data=[normal(rng, 3), normal(rng, 3), abs(normal(rng, 3)) + 1.0],
        grads=[2.0, -1.0, None],
        requires_grad=[True, False, False],
    )
    f = Build("autograd.separable")
    yield Case("three inputs, two of which come with a .grad", "nothing left behind", (f, inputs, normal(rng, 3)))
    f = Build("autograd.affine", matrix=normal(rng, 3, 4))
    for shape in ((4,), (1,), (3, 1), ()):
        wrong = (f, [normal(rng, 4)], normal(rng, *shape))
        yield Case(f"a v of shape {shape} for an output of shape (3,)", "errors", wrong, raises=ValueError)
    number = Build("autograd.inner_sine")
    yield Case(
        "a v of shape (1,) for an output of shape ()", "errors", (number, [x, x], normal(rng, 1)), raises=ValueError
    )
    yield Case("an output and a v of shape ()", "errors", (number, [x, normal(rng, 3)], normal(rng)))
    column = Build("autograd.affine", matrix=normal(rng, 3, 2))
    yield Case("an output and a v of shape (3, 1)", "errors", (column, [normal(rng, 2, 1)], normal(rng, 3, 1)))


def tracked(inputs):
    """Fresh leaves with the same numbers."""
    return [t.detach().clone().requires_grad_() for t in inputs]


def fitting(y, v):
    if v.shape != y.shape:
        raise ValueError("v does not have the output's shape")
    return y


def gradients(y, leaves, v):
    return list(torch.autograd.grad(y, leaves, v, allow_unused=True, materialize_grads=True))


def jacobian_times_v(f, inputs, v):
    leaves = tracked(inputs)
    y = fitting(f(*leaves), v).reshape(-1)
    rows = [torch.autograd.grad(one, leaves, retain_graph=True, allow_unused=True, materialize_grads=True) for one in y]
    columns = zip(*rows, strict=True)
    return [
        (torch.stack([g.reshape(-1) for g in column]) @ v.reshape(-1)).reshape(leaf.shape)
        for column, leaf in zip(columns, leaves, strict=True)
    ]


def v_times_gradient_of_sum(f, inputs, v):
    leaves = tracked(inputs)
    y = fitting(f(*leaves), v)
    return [v * g for g in gradients(y, leaves, torch.ones_like(y))]


def without_v(f, inputs, v):
    leaves = tracked(inputs)
    y = fitting(f(*leaves), v)
    return gradients(y, leaves, torch.ones_like(y))


def into_the_callers_grad(f, inputs, v):
    for t in inputs:
        t.requires_grad_()
    fitting(f(*inputs), v).backward(v)
    return [torch.zeros_like(t) if t.grad is None else t.grad.clone() for t in inputs]


def copies_that_are_no_leaves(f, inputs, v):
    copies = [t.clone().requires_grad_() for t in inputs]
    fitting(f(*copies), v).backward(v)
    return [t.grad if t.is_leaf and t.grad is not None else torch.zeros_like(t) for t in copies]


def broadcasting_v(f, inputs, v):
    leaves = tracked(inputs)
    y = (f(*leaves) * v).sum()
    return gradients(y, leaves, torch.ones_like(y))


def leaving_it_to_autograd(f, inputs, v):
    leaves = tracked(inputs)
    return gradients(f(*leaves), leaves, v)


def none_for_unused(f, inputs, v):
    leaves = tracked(inputs)
    return list(torch.autograd.grad(fitting(f(*leaves), v), leaves, v, allow_unused=True))


def requires_grad_left_on(f, inputs, v):
    for t in inputs:
        t.requires_grad_()
    return gradients(fitting(f(*inputs), v), inputs, v)


VJP = Exercise(
    name="vjp",
    title="vector times Jacobian",
    level="medium",
    minutes=15,
    parts=("values", "unused inputs", "nothing left behind", "errors"),
    cases=(
        Case(
            "[[1 2 0] [0 1 3] [4 0 1]] @ x",
            "values",
            (Build("autograd.affine", matrix=SQUARE), [tensor([1.0, 1.0, 1.0])], V),
            expected=[tensor([0.1004, 1.2, 3.0001])],
        ),
        Case(
            "[[1 2] [0 3] [4 −1]] @ x",
            "values",
            (Build("autograd.affine", matrix=TALL), [tensor([1.0, 2.0])], V),
            expected=[tensor([0.1004, 3.1999])],
        ),
        Case(
            "y = 3a + 2b² + log c at a = [1 2 3], b = [3 4 5], c = [6 7 8]",
            "values",
            (
                Build("autograd.separable"),
                [tensor([1.0, 2.0, 3.0]), tensor([3.0, 4.0, 5.0]), tensor([6.0, 7.0, 8.0])],
                V,
            ),
            expected=[
                tensor([0.3, 3.0, 0.0003]),
                tensor([1.2, 16.0, 0.002]),
                tensor([0.01666667, 0.14285714, 0.0000125]),
            ],
        ),
        Case(
            "y = 2a, b unused",
            "unused inputs",
            (
                Build("autograd.scaled", factor=2.0, use=0),
                [tensor([5.0, 6.0]), tensor([[7.0, 8.0]])],
                tensor([1.0, 3.0]),
            ),
            expected=[tensor([2.0, 6.0]), tensor([[0.0, 0.0]])],
        ),
        Case(
            "y = 3a + 2b² + log c; a and b come with a .grad full of 7, a requires grad",
            "nothing left behind",
            (
                Build("autograd.separable"),
                Build(
                    "autograd.callers",
                    data=[tensor([1.0, 2.0]), tensor([3.0, 4.0]), tensor([5.0, 8.0])],
                    grads=[7.0, 7.0, None],
                    requires_grad=[True, False, False],
                ),
                tensor([1.0, 10.0]),
            ),
            expected={
                "returned": [tensor([3.0, 30.0]), tensor([12.0, 160.0]), tensor([0.2, 1.25])],
                "grad": [tensor([7.0, 7.0]), tensor([7.0, 7.0]), None, None],  # of a, b, c, v
                "requires_grad": [True, False, False, False],
            },
        ),
        Case(
            "a v of two numbers for an output of three",
            "errors",
            (Build("autograd.affine", matrix=TALL), [tensor([1.0, 2.0])], tensor([0.1, 1.0])),
            raises=ValueError,
        ),
        Case(
            "a v of one number, which would broadcast, for an output of three",
            "errors",
            (Build("autograd.affine", matrix=TALL), [tensor([1.0, 2.0])], tensor([1.0])),
            raises=ValueError,
        ),
        Case(
            "y = sin⟨a, b⟩ at a = [1 2], b = [0 0]: output and v of shape ()",
            "errors",
            (Build("autograd.inner_sine"), [tensor([1.0, 2.0]), tensor([0.0, 0.0])], tensor(3.0)),
            expected=[tensor([0.0, 0.0]), tensor([3.0, 6.0])],
        ),
    ),
    hidden=random_products,
    mistakes=(
        Mistake(
            "multiplying the Jacobian by v from the other side, J v",
            jacobian_times_v,
            hint="v has one number per output. Which axis of J counts the outputs, its rows or its columns?",
        ),
        Mistake(
            "multiplying the gradient of y.sum() by v",
            v_times_gradient_of_sum,
            hint="Each output has its own gradient. At which moment may v weigh it: before or after they are added up?",
        ),
        Mistake(
            "leaving v out",
            without_v,
            hint="backward on y.sum() is the same as a v full of ones.",
        ),
        Mistake(
            "reading the callers' .grad after backward",
            into_the_callers_grad,
            hint="backward adds to what .grad already holds. Which function hands the gradients to you instead?",
        ),
        Mistake(
            "reading the .grad of copies that are no leaves",
            copies_that_are_no_leaves,
            hint="clone of a tensor that requires grad is an operation, and is recorded. What comes off the record first?",
        ),
        Mistake(
            "letting v broadcast against the output",
            broadcasting_v,
            hint="(y * v).sum() accepts shapes that are not y's. Compare v.shape with y.shape first.",
        ),
        Mistake(
            "leaving the check of v's shape to torch.autograd.grad",
            leaving_it_to_autograd,
            hint="Torch raises a RuntimeError there; the caller asks for a ValueError. Which shapes have to agree?",
        ),
        Mistake(
            "handing back None for an input that is not used",
            none_for_unused,
            hint="If y does not change with an input, what is its gradient, and which shape has it?",
        ),
        Mistake(
            "switching requires_grad on in the caller's tensors",
            requires_grad_left_on,
            hint="requires_grad_() works in place. How do you get another tensor with the same numbers?",
        ),
    ),
    forbids=("torch.func.vjp", "torch.autograd.functional.*"),
    probe="autograd.call",
)

# -------------------------------------------------------------------------------------------------------- jacobian_rows


def random_jacobians(rng):
    """Maps from n to m numbers with m ≠ n, tensors of several axes, a number in or out, a watched input."""
    for m, n in ((4, 3), (2, 5), (3, 3)):
        f = Build("autograd.affine", matrix=normal(rng, m, n), offset=1.0)
        yield Case(f"a linear map from {n} to {m} numbers", "values", (f, normal(rng, n)))
    yield Case("[x₀ x₁, x₁², x₀ − x₁] somewhere", "values", (Build("autograd.products"), normal(rng, 2)))
    f = Build("autograd.squares_of_product", matrix=normal(rng, 3, 2))
    yield Case("an x of shape (2, 3), an output of shape (2, 2)", "any shape", (f, normal(rng, 2, 3)))
    yield Case("an output of shape ()", "any shape", (Build("autograd.cubes_and_sines"), normal(rng, 2, 2)))
    yield Case(
        "an x of shape ()", "any shape", (Build("autograd.number_to_vector", factors=normal(rng, 4)), normal(rng))
    )
    x = Build("autograd.with_grad", data=normal(rng, 2), grad=3.0, requires_grad=bool(rng.integers(2)))
    yield Case("an x that comes with a .grad", "nothing left behind", (Build("autograd.products"), x))


def flat(f, x):
    leaf = x.detach().clone().requires_grad_()
    return f(leaf).reshape(-1), leaf


def row(y, leaf):
    return torch.autograd.grad(y, leaf, retain_graph=True)[0].reshape(-1)


def rows_that_add_up(f, x):
    y, leaf = flat(f, x)
    rows = []
    for one in y:
        one.backward(retain_graph=True)
        rows.append(leaf.grad.reshape(-1).clone())
    return torch.stack(rows)


def rows_that_are_one_grad(f, x):
    y, leaf = flat(f, x)
    rows = []
    for one in y:
        one.backward(retain_graph=True)
        rows.append(leaf.grad.reshape(-1))
    return torch.stack(rows)


def transposed_rows(f, x):
    y, leaf = flat(f, x)
    return torch.stack([row(one, leaf) for one in y], dim=1)


def one_row_of_sums(f, x):
    y, leaf = flat(f, x)
    return row(y.sum(), leaf)[None]


def only_the_diagonal(f, x):
    y, leaf = flat(f, x)
    return torch.diag(row(y.sum(), leaf))


def graph_freed(f, x):
    y, leaf = flat(f, x)
    return torch.stack([torch.autograd.grad(one, leaf)[0].reshape(-1) for one in y])


def rows_keep_the_shape(f, x):
    leaf = x.detach().clone().requires_grad_()
    y = f(leaf)
    return torch.stack([torch.autograd.grad(one, leaf, retain_graph=True)[0] for one in (y if y.dim() else [y])])


def jacobian_through_the_callers_grad(f, x):
    x.requires_grad_()
    rows = []
    for one in f(x).reshape(-1):
        x.grad = None
        one.backward(retain_graph=True)
        rows.append(x.grad.reshape(-1))
    return torch.stack(rows)


JACOBIAN_ROWS = Exercise(
    name="jacobian_rows",
    title="the Jacobian, row by row",
    level="medium",
    minutes=10,
    parts=("values", "any shape", "nothing left behind"),
    cases=(
        Case(
            "f = [x₀ x₁, x₁², x₀ − x₁]",
            "values",
            (Build("autograd.products"), tensor([2.0, 3.0])),
            expected=tensor([[3.0, 2.0], [0.0, 6.0], [1.0, -1.0]]),
        ),
        Case(
            "f = [[1 2 0] [0 1 3]] @ x",
            "values",
            (Build("autograd.affine", matrix=SQUARE[:2]), tensor([1.0, 1.0, 1.0])),
            expected=SQUARE[:2],
        ),
        Case(
            "f = (x @ [[1] [2]])², x of shape (2, 2), output of shape (2, 1)",
            "any shape",
            (Build("autograd.squares_of_product", matrix=tensor([[1.0], [2.0]])), tensor([[1.0, 1.0], [0.0, 2.0]])),
            expected=tensor([[6.0, 12.0, 0.0, 0.0], [0.0, 0.0, 8.0, 16.0]]),
        ),
        Case(
            "f = x₀³ + x₁³, output of shape ()",
            "any shape",
            (Build("autograd.cubes"), tensor([1.0, 2.0])),
            expected=tensor([[3.0, 12.0]]),
        ),
        Case(
            "f = [x², 5x²], x of shape ()",
            "any shape",
            (Build("autograd.number_to_vector", factors=tensor([1.0, 5.0])), tensor(3.0)),
            expected=tensor([[6.0], [30.0]]),
        ),
        Case(
            "f = [x₀ x₁, x₁², x₀ − x₁]; x comes with a .grad full of 7 and requires no grad",
            "nothing left behind",
            (Build("autograd.products"), Build("autograd.with_grad", data=tensor([1.0, 4.0]), grad=7.0)),
            expected={
                "returned": tensor([[4.0, 1.0], [0.0, 8.0], [1.0, -1.0]]),
                "grad": [tensor([7.0, 7.0])],
                "requires_grad": [False],
            },
        ),
    ),
    hidden=random_jacobians,
    mistakes=(
        Mistake(
            "letting the rows add up in .grad",
            rows_that_add_up,
            hint="Row 2 holds row 1 as well. What does backward do with a .grad that is there already?",
        ),
        Mistake(
            "making every row the sum of all rows",
            rows_that_are_one_grad,
            hint="Is your v full of ones? Or are your rows one .grad, to which every backward adds in place?",
        ),
        Mistake(
            "writing the rows as columns",
            transposed_rows,
            hint="Row i belongs to output i: the result has as many rows as f has outputs.",
        ),
        Mistake(
            "differentiating the sum of all outputs",
            one_row_of_sums,
            hint="That is one cotangent full of ones, and adds all rows. Which cotangent picks a single output?",
        ),
        Mistake(
            "taking the gradient of the sum for the diagonal",
            only_the_diagonal,
            hint="Only elementwise functions have a diagonal Jacobian. Where does output 0 depend on x₁?",
        ),
        Mistake(
            "giving the graph away after the first row",
            graph_freed,
            hint="A backward pass frees what the graph has saved. Which argument keeps it for the next row?",
        ),
        Mistake(
            "not flattening x and the output",
            rows_keep_the_shape,
            hint="The result always has two axes: m outputs by n inputs, whatever the shapes of x and f(x).",
        ),
        Mistake(
            "working with the caller's x and its .grad",
            jacobian_through_the_callers_grad,
            hint="x.grad and x.requires_grad belong to the caller. Take another tensor with the same numbers.",
        ),
    ),
    forbids=("torch.autograd.functional.*", "torch.func.*"),
    probe="autograd.call",
)

# -------------------------------------------------------------------------------------------------------- graph_summary


def random_graphs(rng):
    """Random graphs, then sharing, length and ends in other sizes than the visible ones."""
    for steps in (4, 7, 9):
        made = Build("autograd.random_graph", seed=int(rng.integers(10**6)), leaves=2, steps=steps)
        yield Case(f"{steps} random operations", "values", (made,))
    sizes = {"x": normal(rng, 2, 3), "weight": normal(rng, 3, 2), "bias": normal(rng, 2)}
    yield Case("tanh(x @ w + b).sum()", "values", (Build("autograd.layer", **sizes),))
    for times in (7, 13):
        yield Case(f"{times} doublings y = y + y", "shared nodes", (Build("autograd.doublings", times=times),))
    made = Build("autograd.random_graph", seed=int(rng.integers(10**6)), leaves=1, steps=14)
    yield Case("14 random operations that start from one leaf", "shared nodes", (made,))
    times = int(rng.integers(4000, 6000))
    yield Case(f"{times} additions one after the other", "long chains", (Build("autograd.chain", times=times),))
    yield Case("a · (b²).detach() + 2", "ends", (Build("autograd.behind_detach", data=normal(rng, 3)),))
    yield Case("a leaf that requires grad", "ends", (Build("autograd.without_graph", requires_grad=True),))


NOTHING = {"nodes": 0, "ops": [], "leaves": []}


def summary(
    t,
    *,
    visited=True,
    first_only=False,
    skip_none=True,
    accumulate=False,
    per_edge=False,
    count_leaves=True,
    each_name_once=False,
    recursive=False,
    copies=False,
):
    """A walk with its faults switched on one by one."""
    if t.grad_fn is None:
        return dict(NOTHING, ops=[], leaves=[])
    nodes, leaves = [t.grad_fn], []

    def follow(node):
        for following, _ in node.next_functions[: 1 if first_only else None]:
            if following is None and skip_none:
                continue
            end = len(following.next_functions) == 0 and hasattr(following, "variable")
            if end and (per_edge or not visited or following not in seen):
                leaves.append(following.variable)
            if visited and following in seen:
                continue
            seen.add(following)
            nodes.append(following)
            if recursive:
                follow(following)

    seen = {t.grad_fn}
    if recursive:
        follow(t.grad_fn)
    else:
        for node in nodes:
            follow(node)
    ops = [node.name() for node in nodes if accumulate or not hasattr(node, "variable")]
    ops = sorted(set(ops) if each_name_once else ops)
    leaves = [leaf.detach() for leaf in leaves] if copies else leaves
    return {"nodes": len(nodes) if count_leaves else len(ops), "ops": ops, "leaves": leaves}


GRAPH_SUMMARY = Exercise(
    name="graph_summary",
    title="walking the graph",
    level="medium",
    minutes=20,
    parts=("values", "shared nodes", "long chains", "ends"),
    cases=(
        Case(
            "C = (5 · (A + A)).mean(), A at place 0",
            "values",
            (Build("autograd.mean_of_five_sums", data=tensor([[1.0, 2.0], [3.0, 4.0]])),),
            expected={"nodes": 4, "ops": ["AddBackward0", "MeanBackward0", "MulBackward0"], "leaves": [0]},
        ),
        Case(
            "tanh(x @ w + b).sum() with x, w, b at places 0, 1, 2; x requires no grad",
            "values",
            (
                Build(
                    "autograd.layer",
                    x=tensor([[1.0, 2.0]]),
                    weight=tensor([[0.5], [0.25]]),
                    bias=tensor([0.125]),
                ),
            ),
            expected={
                "nodes": 6,
                "ops": ["AddBackward0", "MmBackward0", "SumBackward0", "TanhBackward0"],
                "leaves": [1, 2],
            },
        ),
        Case(
            "y = x, then three times y = y + y",
            "shared nodes",
            (Build("autograd.doublings", times=3),),
            expected={"nodes": 4, "ops": ["AddBackward0"] * 3, "leaves": [0]},
        ),
        Case(
            "y = x, then forty times y = y + y",
            "shared nodes",
            (Build("autograd.doublings", times=40),),
            expected={"nodes": 41, "ops": ["AddBackward0, 40 times"], "leaves": [0]},
        ),
        Case(
            "y = x, then 5,000 times y = y + 1",
            "long chains",
            (Build("autograd.chain", times=5000),),
            expected={"nodes": 5001, "ops": ["AddBackward0, 5000 times"], "leaves": [0]},
        ),
        Case(
            "a · (b²).detach() + 2 with a, b at places 0, 1",
            "ends",
            (Build("autograd.behind_detach", data=tensor([1.0, 2.0])),),
            expected={"nodes": 3, "ops": ["AddBackward0", "MulBackward0"], "leaves": [0]},
        ),
        Case(
            "a tensor without a grad_fn",
            "ends",
            (Build("autograd.without_graph", requires_grad=False),),
            expected=NOTHING,
        ),
    ),
    hidden=random_graphs,
    mistakes=(
        Mistake(
            "walking without remembering where you have been",
            lambda t: summary(t, visited=False),
            hint="y + y reaches one node along two edges. After forty doublings, how many ways lead down?",
        ),
        Mistake(
            "a recursive walk",
            lambda t: summary(t, recursive=True),
            hint="Python stops at a depth of about 1,000 calls. Keep the nodes still to visit in a list of your own.",
        ),
        Mistake(
            "following only the first input of each node",
            lambda t: summary(t, first_only=True),
            hint="next_functions has one entry per input. Which of them does [0] leave out?",
        ),
        Mistake(
            "stepping onto the None that stands for a constant",
            lambda t: summary(t, skip_none=False),
            hint="Print (x * 5).grad_fn.next_functions. What stands there for the 5?",
        ),
        Mistake(
            "listing AccumulateGrad among the operations",
            lambda t: summary(t, accumulate=True),
            hint="AccumulateGrad computes nothing: it is where a leaf's gradient arrives. Where do leaves belong?",
        ),
        Mistake(
            "adding a leaf once for every edge that leads to it",
            lambda t: summary(t, per_edge=True),
            hint="A + A has two edges to one leaf. Add the leaf where you meet its node for the first time.",
        ),
        Mistake(
            "handing back copies of the leaves",
            lambda t: summary(t, copies=True),
            hint="−1 is a tensor that stands at none of the places: detach and clone make new ones.",
        ),
        Mistake(
            "counting the operations only",
            lambda t: summary(t, count_leaves=False),
            hint="Each leaf's AccumulateGrad is a node of the graph too.",
        ),
        Mistake(
            "listing each operation's name once",
            lambda t: summary(t, each_name_once=True),
            hint="Three additions are three nodes. How many names does the list need?",
        ),
    ),
    probe="autograd.graph",
)

# --------------------------------------------------------------------------------------------------------- numeric_grad


def random_slopes(rng):
    """Smooth functions at random points, float32 inputs that float64 must take over, other steps."""
    yield Case("Σx³ + Π sin x at random numbers", "values", (Build("autograd.cubes_and_sines"), normal(rng, 2, 3)))
    f = Build("autograd.powers", exponents=[2, 3, 4])
    yield Case("Σx² + Σx³ + Σx⁴ at random numbers", "values", (f, normal(rng, 4)))
    yield Case("Σx³, x of shape ()", "values", (Build("autograd.cubes"), normal(rng)))
    yield Case("row 0 times row 1, summed", "values", (Build("autograd.row_products"), normal(rng, 2, 4)))
    for shape in ((3,), (2, 2)):
        x = normal(rng, *shape).float()
        yield Case(f"float32 numbers of shape {shape}", "float32 inputs", (Build("autograd.cubes_and_sines"), x))
    h = float(rng.uniform(0.1, 0.9))
    yield Case(f"Σx³ with h = {h:.3f}", "the step h", (Build("autograd.cubes"), normal(rng, 3), h))
    f = Build("autograd.powers", exponents=[4])
    yield Case("Σx⁴ with h = 0.25", "the step h", (f, normal(rng, 2, 2)), {"h": 0.25})


def differences(
    f, x, h=1e-6, *, dtype=torch.float64, forward=False, undo=True, own_copy=True, whole=False, width=2.0, flat=False
):
    """Divided differences with their faults switched on one by one."""
    point = x.to(dtype)
    point = point.clone() if own_copy else point
    result = torch.zeros_like(point, dtype=torch.float64)
    values, slopes = point.reshape(-1), result.reshape(-1)
    point = values if flat else point
    for i in range(len(values)):
        at = slice(None) if whole else i
        start = values[at].clone()
        low = f(point) if forward else None
        values[at] += h
        high = f(point)
        if not forward:
            values[at] = start - h if own_copy else values[at] - 2 * h
            low = f(point)
        slopes[i] = (high - low) / (h if forward else width * h)
        if undo and own_copy:
            values[at] = start
        elif undo:
            values[at] += h
    return result


NUMERIC_GRAD = Exercise(
    name="numeric_grad",
    title="a gradient without autograd",
    level="medium",
    minutes=10,
    parts=("values", "float32 inputs", "the step h", "inputs untouched"),
    cases=(
        Case(
            "Σx³ + Π sin x at [[0.5 −1.2] [2 0.3]]",
            "values",
            (Build("autograd.cubes_and_sines"), tensor([[0.5, -1.2], [2.0, 0.3]], dtype=torch.float64)),
            expected=tensor([[0.530206293, 4.366682259], [12.054952704, -0.118166113]], dtype=torch.float64),
        ),
        Case(
            "Σx² + Σx³ at [1 0.3 −2]",
            "values",
            (Build("autograd.powers", exponents=[2, 3]), doubles(1.0, 0.3, -2.0)),
            expected=doubles(5.0, 0.87, 8.0),
        ),
        Case(
            "row 0 times row 1, summed, at [[1 2 3] [4 5 6]]: f looks at rows",
            "values",
            (Build("autograd.row_products"), tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)),
            expected=tensor([[4.0, 5.0, 6.0], [1.0, 2.0, 3.0]], dtype=torch.float64),
        ),
        Case(
            "Σx³ at [0.5 2], float32",
            "float32 inputs",
            (Build("autograd.cubes"), tensor([0.5, 2.0])),
            expected=doubles(0.75, 12.0),
        ),
        Case(
            "Σx³ at [1 2] with h = 0.5: the central difference is 3x² + h²",
            "the step h",
            (Build("autograd.cubes"), doubles(1.0, 2.0), 0.5),
            expected=doubles(3.25, 12.25),
        ),
        Case(
            "10¹² · Σx³ at [0 0], h left out: the central difference is 10¹² · h²",
            "the step h",
            (Build("autograd.cubes", scale=1e12), doubles(0.0, 0.0)),
            expected=doubles(1.0, 1.0),
        ),
    ),
    hidden=random_slopes,
    mistakes=(
        Mistake(
            "a one-sided difference",
            lambda f, x, h=1e-6: differences(f, x, h, forward=True),
            hint="(f(x + h) − f(x)) / h is off by h/2 · f″. What does a step to both sides do to that error?",
        ),
        Mistake(
            "taking the steps in the dtype of x",
            lambda f, x, h=1e-6: differences(f, x, h, dtype=x.dtype),
            hint="Near 2, neighboring float32 numbers are 2.4e-7 apart. How well do they hold a step of 1e-6?",
        ),
        Mistake(
            "not taking the step back before the next element",
            lambda f, x, h=1e-6: differences(f, x, h, undo=False),
            hint="When you come to element 1, where does element 0 stand?",
        ),
        Mistake(
            "stepping in the caller's own numbers",
            lambda f, x, h=1e-6: differences(f, x, h, own_copy=False),
            hint="x.double() of a float64 tensor is x itself, not a copy. And (x + h) − h is not always x.",
        ),
        Mistake(
            "dividing by h in place of 2h",
            lambda f, x, h=1e-6: differences(f, x, h, width=1.0),
            hint="How far are x + h and x − h apart?",
        ),
        Mistake(
            "always stepping by 1e-6",
            lambda f, x, h=1e-6: differences(f, x),
            hint="h is an argument.",
        ),
        Mistake(
            "a single difference for all elements",
            lambda f, x, h=1e-6: (f(x.double() + h) - f(x.double() - h)) / (2 * h),
            hint="x + h moves every element. A partial derivative moves one and leaves the others where they are.",
        ),
        Mistake(
            "handing f a flat copy of x",
            lambda f, x, h=1e-6: differences(f, x, h, flat=True),
            hint="f may look at the rows of a matrix. Which shape does it need to get?",
        ),
        Mistake(
            "moving all elements at once",
            lambda f, x, h=1e-6: differences(f, x, h, whole=True),
            hint="A partial derivative moves one element and leaves the others where they are.",
        ),
    ),
    forbids=("torch.autograd.*", "torch.func.*", "torch._make_dual", "torch._unpack_dual", "Tensor.backward"),
    tolerance=1e-7,
)

# ----------------------------------------------------------------------------------------------------------- grad_check


def right_gradient(x):
    """What `prepared_gradient` has to hand out for Σ x², computed as a formula."""
    return Build("autograd.prepared_gradient", gradient=2 * x.double())


def squares(x, factor=1.0):
    factors = torch.full_like(x, 1.0, dtype=torch.float64) * factor
    return Build("autograd.squares_with_gradient", factor=factors)


def random_checks(rng):
    """Right and wrong backwards at random numbers, differences on both sides of the tolerance."""
    x = abs(normal(rng, 2, 3)) + 0.5
    yield Case("a right backward at random numbers", "values", (squares(x), x, right_gradient(x)))
    yield Case("a backward with a factor missing", "values", (squares(x, 0.5), x, right_gradient(x)))
    one = torch.ones(2, 3, dtype=torch.float64)
    one[1, int(rng.integers(3))] = -1.0
    yield Case("one sign wrong among six", "values", (squares(x, one), x, right_gradient(x)))
    big = 1000 * x
    yield Case(
        "large negative gradients, off by a little", "tolerance", (squares(big, 1 + 9e-7), -big, right_gradient(-big))
    )
    yield Case("large gradients, off by a little", "tolerance", (squares(big, 1 + 9e-7), big, right_gradient(big)))
    one = torch.ones(2, 3, dtype=torch.float64)
    one[0, int(rng.integers(3))] = 1 + 1e-4
    uneven = x * torch.tensor([[1.0], [1e4]], dtype=torch.float64)
    yield Case("a small gradient off by too much", "tolerance", (squares(uneven, one), uneven, right_gradient(uneven)))
    yield Case("large gradients, off by too much", "tolerance", (squares(big, 1 + 3e-6), big, right_gradient(big)))
    small = 1e-3 * x
    yield Case("no difference and no tolerance", "tolerance", (squares(x), x, right_gradient(x), 0.0))
    yield Case("small gradients, off by half", "tolerance", (squares(small, 1.5), small, right_gradient(small), 1e-2))
    yield Case("small gradients, off by half", "tolerance", (squares(small, 1.5), small, right_gradient(small), 1e-4))
    single = x.float()
    for tol in (1e-2, 1e-10, 1e-12):
        about = f"float32 numbers, tol = {tol:g}"
        yield Case(
            about,
            "float32 inputs",
            (
                Build("autograd.cubes"),
                single,
                Build("autograd.prepared_gradient", gradient=3 * single.double() ** 2),
                tol,
            ),
        )
    yield Case(
        "float32 numbers, off by 1e-3", "float32 inputs", (squares(single, 1.001), single, right_gradient(single))
    )
    for factor in (1.0, 2.0):
        watched = Build("autograd.with_grad", data=x, grad=3.0, requires_grad=False)
        about = f"an x that comes with a .grad; a backward {factor:g} times the right one"
        yield Case(about, "nothing left behind", (squares(x, factor), watched, right_gradient(x)))


def compared(
    f,
    x,
    numeric_grad,
    tol=1e-6,
    *,
    relative=True,
    signed=False,
    floor=1.0,
    dtype=torch.float64,
    any_larger=False,
    whole=False,
    largest=False,
    added=False,
    own=True,
    reads=False,
):
    """The comparison with its faults switched on one by one."""
    leaf = x.to(dtype)
    leaf = leaf.detach().clone().requires_grad_() if own else leaf.requires_grad_()
    if reads:
        f(leaf).backward()
    analytic = leaf.grad if reads else torch.autograd.grad(f(leaf), leaf)[0]
    numeric = numeric_grad(f, x.detach().double())
    size = numeric if signed else numeric.abs().amax() if largest else numeric.abs()
    allowed = tol * (size.clamp_min(floor) + added if relative else torch.ones_like(numeric))
    off = (analytic.double() - numeric).abs()
    if whole:
        return bool((analytic.double() - numeric).mean().abs() <= tol)
    return bool(not (off > allowed).any() if any_larger else (off <= allowed).all())


GRAD_CHECK = Exercise(
    name="grad_check",
    title="checking a backward",
    level="medium",
    minutes=10,
    parts=("values", "tolerance", "float32 inputs", "nothing left behind"),
    cases=(
        Case(
            "f = Σx² at [1 −3] with a right backward",
            "values",
            (
                squares(doubles(1, -3)),
                doubles(1.0, -3.0),
                Build("autograd.prepared_gradient", gradient=doubles(2.0, -6.0)),
            ),
            expected=True,
        ),
        Case(
            "f = Σx² at [1 −3] whose backward lacks the factor 2",
            "values",
            (
                squares(doubles(1, -3), 0.5),
                doubles(1.0, -3.0),
                Build("autograd.prepared_gradient", gradient=doubles(2.0, -6.0)),
            ),
            expected=False,
        ),
        Case(
            "twice the right gradient at [1 −1]: the errors 2 and −2 cancel in the mean",
            "values",
            (
                Build("autograd.squares_with_gradient", factor=doubles(2.0, 2.0)),
                doubles(1.0, -1.0),
                Build("autograd.prepared_gradient", gradient=doubles(2.0, -2.0)),
            ),
            expected=False,
        ),
        Case(
            "numeric 2000, analytic 2000.001: within 1e-6 of 2000",
            "tolerance",
            (
                squares(doubles(1000), 1.0000005),
                doubles(1000.0),
                Build("autograd.prepared_gradient", gradient=doubles(2000.0)),
            ),
            expected=True,
        ),
        Case(
            "numeric −2000, analytic −2000.001: within 1e-6 of 2000",
            "tolerance",
            (
                squares(doubles(1000), 1.0000005),
                doubles(-1000.0),
                Build("autograd.prepared_gradient", gradient=doubles(-2000.0)),
            ),
            expected=True,
        ),
        Case(
            "numeric 0.002, analytic 0.003, tol 0.01: below 1 the tolerance is absolute",
            "tolerance",
            (
                squares(doubles(1), 1.5),
                doubles(0.001),
                Build("autograd.prepared_gradient", gradient=doubles(0.002)),
                0.01,
            ),
            expected=True,
        ),
        Case(
            "numeric 1, analytic 3, tol 0.8: the numeric one says how large",
            "tolerance",
            (squares(doubles(1), 3.0), doubles(0.5), Build("autograd.prepared_gradient", gradient=doubles(1.0)), 0.8),
            expected=False,
        ),
        Case(
            "numeric 2, analytic 2.001",
            "tolerance",
            (squares(doubles(1), 1.0005), doubles(1.0), Build("autograd.prepared_gradient", gradient=doubles(2.0))),
            expected=False,
        ),
        Case(
            "numeric 2, analytic 2.0000025: more than 2e-6 apart",
            "tolerance",
            (squares(doubles(1), 1.00000125), doubles(1.0), Build("autograd.prepared_gradient", gradient=doubles(2.0))),
            expected=False,
        ),
        Case(
            "numeric [2000 2], analytic [2000 2.001]",
            "tolerance",
            (
                squares(doubles(1, 1), doubles(1.0, 1.0005)),
                doubles(1000.0, 1.0),
                Build("autograd.prepared_gradient", gradient=doubles(2000.0, 2.0)),
            ),
            expected=False,
        ),
        Case(
            "an analytic gradient of nan",
            "tolerance",
            (
                squares(doubles(1, 1), doubles(1.0, math.nan)),
                doubles(1.0, 2.0),
                Build("autograd.prepared_gradient", gradient=doubles(2.0, 4.0)),
            ),
            expected=False,
        ),
        Case(
            "a right backward at float32 numbers, tol = 1e-12",
            "float32 inputs",
            (
                Build("autograd.cubes", scale=0.1),
                tensor([0.5, 0.75]),
                Build("autograd.prepared_gradient", gradient=doubles(0.075, 0.16875)),
                1e-12,
            ),
            expected=True,
        ),
        Case(
            "a right backward at float32 numbers, tol = 1e-3",
            "float32 inputs",
            (
                Build("autograd.cubes", scale=0.1),
                tensor([0.5, 0.75]),
                Build("autograd.prepared_gradient", gradient=doubles(0.075, 0.16875)),
                1e-3,
            ),
            expected=True,
        ),
        Case(
            "a backward that is 1.01 times the right one, at float32 numbers",
            "float32 inputs",
            (
                squares(doubles(1, 1), 1.01),
                tensor([0.5, 0.75]),
                Build("autograd.prepared_gradient", gradient=doubles(1, 1.5)),
            ),
            expected=False,
        ),
        Case(
            "x comes with a .grad full of 7 and requires no grad; a right backward",
            "nothing left behind",
            (
                squares(doubles(1, 1)),
                Build("autograd.with_grad", data=doubles(1.0, 2.0), grad=7.0),
                Build("autograd.prepared_gradient", gradient=doubles(2.0, 4.0)),
            ),
            expected={"returned": True, "grad": [doubles(7.0, 7.0)], "requires_grad": [False]},
        ),
        Case(
            "x comes with a .grad full of 7 and requires no grad; a wrong backward",
            "nothing left behind",
            (
                squares(doubles(1, 1), 3.0),
                Build("autograd.with_grad", data=doubles(1.0, 2.0), grad=7.0),
                Build("autograd.prepared_gradient", gradient=doubles(2.0, 4.0)),
            ),
            expected={"returned": False, "grad": [doubles(7.0, 7.0)], "requires_grad": [False]},
        ),
    ),
    hidden=random_checks,
    mistakes=(
        Mistake(
            "an absolute tolerance at every size",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, relative=False),
            hint="A gradient of 2000 carries rounding errors of its own size. What does the tolerance grow with?",
        ),
        Mistake(
            "a purely relative tolerance",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, floor=0.0),
            hint="Near a gradient of zero, tol · |numeric| allows next to nothing. What does max(1, …) do there?",
        ),
        Mistake(
            "differentiating in the dtype of x",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, dtype=x.dtype),
            hint="In float32 a right gradient is off by 1e-8 here. In which dtype can both sides agree to 1e-12?",
        ),
        Mistake(
            "asking whether any difference is too large",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, any_larger=True),
            hint="Every comparison with nan is False. Which question gives False for nan: all within, or none beyond?",
        ),
        Mistake(
            "comparing the mean difference",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, whole=True),
            hint="Errors of opposite sign cancel in a mean. The bound holds for every element.",
        ),
        Mistake(
            "comparing the largest difference with the largest slope",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, largest=True),
            hint="Beside a slope of 2000, a slope of 2 may then be off by 0.002. Which |numeric| bounds which difference?",
        ),
        Mistake(
            "a tolerance that grows with positive slopes only",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, signed=True),
            hint="max(1, −2000) is 1. What stands between the bars in |numeric|?",
        ),
        Mistake(
            "adding an absolute and a relative tolerance",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, floor=0.0, added=True),
            hint="torch.allclose allows atol + rtol · |numeric|. The docstring asks for the larger of two, not for their sum.",
        ),
        Mistake(
            "switching requires_grad on in the caller's x",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, own=False),
            hint="x.double() of a float64 tensor is x itself. Take a detached copy before you switch requires_grad on.",
        ),
        Mistake(
            "reading the .grad of the caller's x",
            lambda f, x, numeric_grad, tol=1e-6: compared(f, x, numeric_grad, tol, own=False, reads=True),
            hint="x.double() of a float64 tensor is x itself, and backward adds to the 7 that its .grad holds already.",
        ),
    ),
    forbids=("torch.autograd.gradcheck",),
    probe="autograd.call",
    second_of_card=True,
)

# --------------------------------------------------------------------------------------------------------------- Scalar


def random_expressions(rng):
    """Expressions with random numbers; every operation is on the way, kinks are not."""
    a, b, c = (float(x) for x in rng.uniform(0.3, 1.7, 3))
    sign = float(rng.choice([-1.0, 1.0]))
    for step in (
        "y = (a * b).tanh() - c / a",
        "y = (a + b).log() ** 3 * c.exp()",
        "y = (a - 3).relu() + (b + 1).relu() ** 2 + c ** -1.5",
        "y = (a - 3) ** 3 * b + (c - 3) ** 2",
    ):
        yield Case(f"{step} at random numbers", "values", ({"a": a, "b": b, "c": c}, [step]))
    near = {"a": float(rng.uniform(0.05, 0.95)), "b": -float(rng.uniform(0.05, 0.95))}
    yield Case("y = a.relu() + b.relu(), both between −1 and 1", "values", (near, ["y = a.relu() + b.relu()"]))
    steps = ["d = a * b", "e = d + d * c", "y = d * e - e / d + e"]
    yield Case("; ".join(steps), "reused values", ({"a": sign * a, "b": b, "c": c}, steps))
    steps = ["u = v * v", "v = u + u"]
    yield Case("u = v * v; v = u + u, three times", "reused values", ({"v": 0.1 * a}, steps), {"times": 3})
    step = "y = 2 * a - a * 3 + (5 - b) / 2 + 4 / b + (c - 1) + (1 + c) * 0.5"
    yield Case(step, "numbers on both sides", ({"a": sign * a, "b": b, "c": c}, [step]))
    case = ({"a": a, "b": b}, ["d = a * b + a", "y = d * d / b"])
    yield Case("d = a * b + a; y = d * d / b, three times backward", "backward twice", case, {"backward": 3})
    case = ({"y": a, "x": b / 5000}, ["y = y + x * y"])
    times = int(rng.integers(4500, 5500))
    yield Case(f"y = y + x * y, {times} times", "long chains", case, {"times": times})


class Engine:
    """A right engine; the classes below break it in one place each."""

    def __init__(self, value, inputs=()):
        self.value, self.grad, self.inputs = float(value), 0.0, inputs

    def _new(self, value, *inputs):
        return type(self)(value, inputs)

    def _wrap(self, other):
        return other if isinstance(other, Engine) else type(self)(other)

    def __add__(self, other):
        other = self._wrap(other)
        return self._new(self.value + other.value, (self, 1.0), (other, 1.0))

    def __mul__(self, other):
        other = self._wrap(other)
        return self._new(self.value * other.value, (self, other.value), (other, self.value))

    def __sub__(self, other):
        return self + self._wrap(other) * -1.0

    def __truediv__(self, other):
        return self * self._wrap(other) ** -1.0

    def __rsub__(self, other):
        return self._wrap(other) - self

    def __rtruediv__(self, other):
        return self._wrap(other) / self

    def __pow__(self, n):
        return self._new(self.value**n, (self, n * self.value ** (n - 1)))

    __radd__, __rmul__ = __add__, __mul__

    def relu(self):
        return self._new(max(self.value, 0.0), (self, float(self.value > 0)))

    def tanh(self):
        return self._new(math.tanh(self.value), (self, 1 - math.tanh(self.value) ** 2))

    def exp(self):
        return self._new(math.exp(self.value), (self, math.exp(self.value)))

    def log(self):
        return self._new(math.log(self.value), (self, 1 / self.value))

    def order(self):
        """This node and all before it, each after everything that uses it."""
        found, done, stack = [], set(), [(self, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                found.append(node)
            elif node not in done:
                done.add(node)
                stack.append((node, True))
                stack += [(one, False) for one, _ in node.inputs]
        return found[::-1]

    def backward(self):
        flow = {node: 0.0 for node in self.order()}
        flow[self] = 1.0
        for node in flow:
            node.grad += flow[node]
            for one, slope in node.inputs:
                flow[one] += slope * flow[node]


class Assigning(Engine):
    def backward(self):
        self.grad = 1.0
        for node in self.order():
            for one, slope in node.inputs:
                one.grad = slope * node.grad


class Recursing(Engine):
    def backward(self):
        self.grad = 1.0
        self.follow()

    def follow(self):
        for one, slope in self.inputs:
            one.grad += slope * self.grad
            one.follow()


class Queueing(Engine):
    def backward(self):
        self.grad, queue = 1.0, [self]
        for node in itertools.islice(queue, 20_000):  # enough for every case that shows it; it would never end on some
            for one, slope in node.inputs:
                one.grad += slope * node.grad
                queue.append(one)


class KeepingTheLastUse(Engine):
    def backward(self):
        flow = {self: 1.0}
        for node in self.order():
            node.grad += flow[node]
            for one, slope in node.inputs:
                flow[one] = slope * flow[node]


class InOrderOfDiscovery(Engine):
    def order(self):
        found, queue = {self}, [self]
        for node in queue:
            for one, _ in node.inputs:
                if one not in found:
                    found.add(one)
                    queue.append(one)
        return queue


class Reusing(Engine):
    def backward(self):
        self.grad = 1.0
        for node in self.order():
            for one, slope in node.inputs:
                one.grad += slope * node.grad


class Resetting(Engine):
    def backward(self):
        for node in self.order():
            node.grad = 0.0
        Engine.backward(self)


class SortingRecursively(Engine):
    def order(self):
        found, done = [], set()

        def visit(node):
            if node not in done:
                done.add(node)
                for one, _ in node.inputs:
                    visit(one)
                found.append(node)

        visit(self)
        return found[::-1]


class Mirrored(Engine):
    def __rsub__(self, other):
        return self - other

    def __rtruediv__(self, other):
        return self / other


class SlopeOfInput(Engine):
    def tanh(self):
        return self._new(math.tanh(self.value), (self, 1 - self.value**2))


class PowerWithoutChain(Engine):
    def __pow__(self, n):
        return self._new(self.value**n, (self, n * self.value**n))


SCALAR = Exercise(
    name="Scalar",
    title="an engine of your own",
    level="hard",
    minutes=40,
    parts=("values", "reused values", "numbers on both sides", "backward twice", "long chains"),
    cases=(
        Case(
            "y = a * b + c",
            "values",
            ({"a": 2.0, "b": 3.0, "c": 5.0}, ["y = a * b + c"]),
            expected={"value": 11.0, "grad": {"a": 3.0, "b": 2.0, "c": 1.0}},
        ),
        Case(
            "y = a / b - c ** 3",
            "values",
            ({"a": 1.0, "b": 4.0, "c": 2.0}, ["y = a / b - c ** 3"]),
            expected={"value": -7.75, "grad": {"a": 0.25, "b": -0.0625, "c": -12.0}},
        ),
        Case(
            "y = a.tanh() + b.relu() + c.relu()",
            "values",
            ({"a": math.log(2.0), "b": -0.5, "c": 0.25}, ["y = a.tanh() + b.relu() + c.relu()"]),
            expected={"value": 0.85, "grad": {"a": 0.64, "b": 0.0, "c": 1.0}},
        ),
        Case(
            "y = a.log().exp()",
            "values",
            ({"a": 1.7}, ["y = a.log().exp()"]),
            expected={"value": 1.7, "grad": {"a": 1.0}},
        ),
        Case(
            "b = a + a; y = b * b",
            "reused values",
            ({"a": 3.0}, ["b = a + a", "y = b * b"]),
            expected={"value": 36.0, "grad": {"a": 24.0}},
        ),
        Case(
            "y = a * b + a * c",
            "reused values",
            ({"a": 2.0, "b": 3.0, "c": 5.0}, ["y = a * b + a * c"]),
            expected={"value": 16.0, "grad": {"a": 8.0, "b": 2.0, "c": 2.0}},
        ),
        Case(
            "y = a / a + a",
            "reused values",
            ({"a": 2.0}, ["y = a / a + a"]),
            expected={"value": 3.0, "grad": {"a": 1.0}},
        ),
        Case(
            "y = 2 * a + 1 + (1 - b) + 1 / c",
            "numbers on both sides",
            ({"a": 3.0, "b": 5.0, "c": 4.0}, ["y = 2 * a + 1 + (1 - b) + 1 / c"]),
            expected={"value": 3.25, "grad": {"a": 2.0, "b": -1.0, "c": -0.0625}},
        ),
        Case(
            "y = 3 + a * 2 - 1",
            "numbers on both sides",
            ({"a": 3.0}, ["y = 3 + a * 2 - 1"]),
            expected={"value": 8.0, "grad": {"a": 2.0}},
        ),
        Case(
            "y = a ** 2 - a * 3, backward two times",
            "backward twice",
            ({"a": 2.0}, ["y = a ** 2 - a * 3"]),
            {"backward": 2},
            expected={"value": -2.0, "grad": {"a": 2.0}},
        ),
        Case(
            "y = y + a, 5,000 times",
            "long chains",
            ({"y": 1.0, "a": 0.5}, ["y = y + a"]),
            {"times": 5000},
            expected={"value": 2501.0, "grad": {"y": 1.0, "a": 5000.0}},
        ),
    ),
    hidden=random_expressions,
    mistakes=(
        Mistake(
            "writing a gradient over the one that is there",
            Assigning,
            hint="A value that is used twice gets two contributions. What happens to the first one?",
        ),
        Mistake(
            "passing a gradient on before all its contributions are in",
            Recursing,
            hint="b = a + a; b * b reaches b along two edges. When may b tell a its gradient?",
        ),
        Mistake(
            "passing a gradient on once for every arrival",
            Queueing,
            hint="b = a + a; b * b puts b into the queue twice, and each time it tells a all it has. How often may it?",
        ),
        Mistake(
            "keeping only the flow from the last use",
            KeepingTheLastUse,
            hint="Two edges lead to b, and each brings a share. What happens to the first share when the second comes?",
        ),
        Mistake(
            "visiting the numbers in the order in which they are found",
            InOrderOfDiscovery,
            hint="In a / a + a, the sum finds a at once, and the quotient has not spoken yet. Who has to come before a?",
        ),
        Mistake(
            "starting the second backward from the gradients of the first",
            Reusing,
            hint="In the second pass only the new flow may travel on. What do the values in between still hold?",
        ),
        Mistake(
            "setting all gradients to zero before each backward",
            Resetting,
            hint="As in torch, a second backward adds to .grad. Who clears it?",
        ),
        Mistake(
            "walking the graph by recursion",
            SortingRecursively,
            hint="5,000 additions are 5,000 calls deep; Python stops at about 1,000. Keep a stack in a list.",
        ),
        Mistake(
            "taking 1 − x for x − 1, and 1 / x for x / 1",
            Mirrored,
            hint="In __rsub__ and __rtruediv__, self stands on the right.",
        ),
        Mistake(
            "the slope 1 − x² for tanh x",
            SlopeOfInput,
            hint="tanh′ = 1 − tanh². Which of input and output is squared?",
        ),
        Mistake(
            "the slope n · xⁿ for xⁿ",
            PowerWithoutChain,
            hint="Check the slope of x³ at 2 by a small step: is it 12 or 24?",
        ),
    ),
    forbids=("import torch", "import numpy"),
    probe="autograd.scalar",
)

# ------------------------------------------------------------------------------------------------------- truncated_grad


def random_sequences(rng):
    """Random sequences with windows that divide their length and windows that do not."""

    def numbers(n):
        return [float(x) for x in rng.normal(size=n)]

    yield Case("k = 0 on seven numbers", "full history", (float(rng.normal()), numbers(7), 0))
    yield Case("k = 9 on seven numbers", "full history", (float(rng.normal()), numbers(7), 9))
    for n, k in ((7, 1), (7, 2), (8, 3), (9, 4)):
        yield Case(f"k = {k} on {n} numbers", "truncated history", (float(rng.normal()), numbers(n), k))
    for n, k in ((6, 0), (4, 5)):
        case = (float(rng.normal()), numbers(n), k)
        yield Case(f"k = {k} on {n} numbers, to eleven digits", "float64", case, tolerance=1e-11)


def unrolled(w, xs, k, *, detach="h", after=False, last_only=False, fresh=False, dtype=torch.float64, per_window=False):
    """The recurrence with its faults switched on one by one."""
    weight = torch.tensor(w, dtype=dtype, requires_grad=True)
    h, used, total = torch.zeros((), dtype=dtype), weight, torch.zeros((), dtype=dtype)
    for t, x in enumerate(xs):
        cut = k > 0 and t % k == 0
        if cut and not after and t:
            if per_window:
                total.backward(retain_graph=True)
            if detach == "h":
                h = torch.zeros((), dtype=dtype) if fresh else h.detach()
            elif detach == "w":
                used = weight.detach()
        h = torch.tanh(used * h + x)
        total = h if last_only else total + h
        if cut and after:
            h = h.detach()
    total.backward()
    return weight.grad.item()


XS = [1.0, 0.5, -0.3, 0.8, 0.2]

TRUNCATED_GRAD = Exercise(
    name="truncated_grad",
    title="forgetting the past on purpose",
    level="medium",
    minutes=10,
    parts=("full history", "truncated history", "float64"),
    cases=(
        Case("k = 0: nothing is cut", "full history", (0.5, XS, 0), expected=2.162399),
        Case("k = 5: one window holds everything", "full history", (0.5, XS, 5), expected=2.162399),
        Case("k = 1: every step stands alone", "truncated history", (0.5, XS, 1), expected=1.628768),
        Case("k = 2: windows of 2, 2, 1", "truncated history", (0.5, XS, 2), expected=1.818848),
        Case("k = 3: windows of 3, 2", "truncated history", (0.5, XS, 3), expected=1.829680),
        Case("k = 0, to eleven digits", "float64", (0.5, XS, 0), expected=2.16239923528, tolerance=1e-11),
    ),
    hidden=random_sequences,
    mistakes=(
        Mistake(
            "throwing away what h.detach() returns",
            lambda w, xs, k: unrolled(w, xs, k, detach=""),
            hint="detach() changes nothing in h: it returns another tensor.",
        ),
        Mistake(
            "cutting after the update in place of before",
            lambda w, xs, k: unrolled(w, xs, k, after=True),
            hint="Write down for k = 2 which steps share a window: 0 1 | 2 3 | 4.",
        ),
        Mistake(
            "a backward at the end of every window, on the sum so far",
            lambda w, xs, k: unrolled(w, xs, k, per_window=True),
            hint="The first h is in every one of these sums. How often does it reach .grad?",
        ),
        Mistake(
            "detaching w",
            lambda w, xs, k: unrolled(w, xs, k, detach="w"),
            hint="The steps of every window depend on w. Which tensor carries the past from window to window?",
        ),
        Mistake(
            "taking the last h for the loss",
            lambda w, xs, k: unrolled(w, xs, k, last_only=True),
            hint="L is the sum of h over all steps.",
        ),
        Mistake(
            "starting each window from h = 0",
            lambda w, xs, k: unrolled(w, xs, k, fresh=True),
            hint="The window forgets where h came from, not its value.",
        ),
        Mistake(
            "computing in float32",
            lambda w, xs, k: unrolled(w, xs, k, dtype=torch.float32),
            hint="torch.tensor(0.5) is float32. Which argument makes it float64?",
        ),
    ),
    tolerance=1e-6,
)

# ------------------------------------------------------------------------------------------------------------ safe_sqrt


def random_roots(rng):
    """Numbers on both sides of zero and zero itself, in both dtypes, in several shapes."""
    x = normal(rng, 3, 4)
    x[1, 2] = 0.0
    yield Case("random float64 numbers and a zero", "values", (x,))
    yield Case("the same, with requires_grad", "gradients", (Build("autograd.leaf", data=x),))
    single = torch.cat([normal(rng, 5), doubles(0.0, -0.0)]).float()
    yield Case("random float32 numbers and zeros", "values", (single,))
    yield Case("the same, with requires_grad", "gradients", (Build("autograd.leaf", data=single),))
    yield Case("positive numbers of shape (2, 1, 3)", "values", (abs(normal(rng, 2, 1, 3)) + 0.1,))
    tiny = doubles(*(10.0 ** rng.uniform(-30, -6, 3)))
    yield Case("numbers between 1e-30 and 1e-6", "gradients", (Build("autograd.leaf", data=tiny),))


def filled_in_place(x):
    x[x <= 0] = 0.0
    return torch.where(x > 0, x, torch.ones_like(x)).sqrt() * (x > 0)


SAFE_SQRT = Exercise(
    name="safe_sqrt",
    title="a square root without nan",
    level="medium",
    minutes=10,
    parts=("values", "gradients", "inputs untouched"),
    cases=(
        Case("[−1 0 4]", "values", (tensor([-1.0, 0.0, 4.0]),), expected=tensor([0.0, 0.0, 2.0])),
        Case(
            "[[−9 0.25]] in float64",
            "values",
            (tensor([[-9.0, 0.25]], dtype=torch.float64),),
            expected=tensor([[0.0, 0.5]], dtype=torch.float64),
        ),
        Case("a single number of shape ()", "values", (tensor(2.25),), expected=tensor(1.5)),
        Case("[[[16]] [[−16]]]", "values", (tensor([[[16.0]], [[-16.0]]]),), expected=tensor([[[4.0]], [[0.0]]])),
        Case(
            "[−1 0 4]: the gradient of the sum",
            "gradients",
            (Build("autograd.leaf", data=tensor([-1.0, 0.0, 4.0])),),
            expected=tensor([0.0, 0.0, 0.25]),
        ),
        Case(
            "1e-8 and 1e-24 in float64: the gradients are large, and right",
            "gradients",
            (Build("autograd.leaf", data=doubles(1e-8, 1e-24)),),
            expected=doubles(5e3, 5e11),
        ),
    ),
    hidden=random_roots,
    mistakes=(
        Mistake(
            "where around the root only",
            lambda x: torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x)),
            hint="where sends 0 to the branch that was not taken, and 0 · inf is nan. What does sqrt get to see there?",
        ),
        Mistake(
            "the root of x ≥ 0 in place of x > 0",
            lambda x: torch.where(x >= 0, torch.sqrt(torch.where(x >= 0, x, torch.ones_like(x))), torch.zeros_like(x)),
            hint="How steep is the root at 0 itself?",
        ),
        Mistake(
            "the root of |x| times a mask",
            lambda x: torch.sqrt(x.abs()) * (x > 0),
            hint="At 0 the slope of the root is infinite, and the mask multiplies it by 0.",
        ),
        Mistake(
            "adding a small number under the root",
            lambda x: torch.sqrt(torch.relu(x) + 1e-6),
            hint="√1e-6 is 0.001, not 0; and the slope near zero is no longer that of the root.",
        ),
        Mistake(
            "letting the root see nothing below a small number",
            lambda x: torch.where(x > 0, torch.sqrt(x.clamp(min=1e-12)), torch.zeros_like(x)),
            hint="Between 0 and your small number the root is steepest, and your slope 0. What may stand in for x ≤ 0 alone?",
        ),
        Mistake(
            "replacing nan after the root",
            lambda x: torch.nan_to_num(torch.sqrt(x)),
            hint="The value is mended, the slope of sqrt at −1 and 0 is not. What could be mended before the root?",
        ),
        Mistake(
            "the root of |x|",
            lambda x: torch.sqrt(x.abs()),
            hint="What is asked for at −1?",
        ),
        Mistake(
            "computing behind detach",
            lambda x: torch.where(x > 0, x.detach(), torch.zeros_like(x)).sqrt(),
            hint="detach (like .data) cuts the graph: the gradient at 4 is gone with the nan.",
        ),
        Mistake(
            "writing zeros into x",
            filled_in_place,
            hint="x is the caller's. And a leaf that requires grad does not let you write into it.",
        ),
    ),
    probe="autograd.differentiable",
)

EXERCISES = (
    LEAF_RULE,
    VJP,
    JACOBIAN_ROWS,
    GRAPH_SUMMARY,
    NUMERIC_GRAD,
    GRAD_CHECK,
    SCALAR,
    TRUNCATED_GRAD,
    SAFE_SQRT,
)
