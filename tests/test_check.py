"""`check` and `ready` as a learner meets them: every kind of slip gets its own sentence, and nothing raises."""

from __future__ import annotations

import ast
import functools
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from autograder import reference
from underhood import Case, Exercise, check, ready
from underhood.reading import in_source
from underhood.verdict import Verdict

module = sys.modules["underhood.check"]

# A small exercise of the tests' own: `double(x)` for a tensor. What is tested here is the machinery, not a chapter.
DOUBLE = Exercise(
    name="double",
    title="twice",
    level="easy",
    minutes=1,
    parts=("values", "errors", "inputs untouched"),
    cases=(
        Case("two numbers", "values", (torch.tensor([1.0, 2.0]),), expected=torch.tensor([2.0, 4.0])),
        Case("nothing", "errors", (torch.tensor([]),), raises=ValueError),
        Case("one number", "errors", (torch.tensor([3.0]),), expected=torch.tensor([6.0])),
    ),
    mistakes=(),
    forbids=("torch.mul", "Tensor.mul"),
    signature="(x)",
    seconds=20.0,
)


def double(x):
    if not len(x):
        raise ValueError("nothing to double")
    return x + x


@pytest.fixture
def judge(monkeypatch):
    """Check an answer to `double` as the notebook would."""
    monkeypatch.setattr(module, "find", lambda name: DOUBLE if name == "double" else None)

    def run(fn=None, seconds=DOUBLE.seconds, **namespace):
        names = namespace if fn is None else {"double": fn}
        return module.judged(replace(DOUBLE, seconds=seconds), names)

    return run


def quiet(fn):
    """The answer with its error case handled, so that only what is tested here goes wrong."""

    def answer(x):
        if not len(x):
            raise ValueError("nothing")
        return fn(x)

    answer.__name__ = answer.__qualname__ = "double"
    return answer


def test_a_right_answer_gets_every_point(judge):
    assert judge(double).points == 3


def test_not_defined_yet(judge):
    verdict = judge(other=1)
    assert verdict.points == 0
    assert "double is not defined yet" in str(verdict)
    assert {part.outcome for part in verdict.results} == {"not attempted"}


def test_a_wrong_name_is_recognized(judge):
    verdict = judge(doubel=double)
    assert verdict.points == 0 and "double is not defined, but doubel is" in str(verdict)


def test_a_stub_is_not_attempted(judge):
    def stub(x):
        raise NotImplementedError

    verdict = judge(stub)
    assert verdict.points == 0 and {part.outcome for part in verdict.results} == {"not attempted"}


def test_a_wrong_signature(judge):
    verdict = judge(lambda x, y: x)
    assert verdict.points == 0 and "cannot be called like double(x): missing a required argument: 'y'" in str(verdict)


def test_something_that_is_no_function(judge):
    assert "double is an object of type int, not a function" in str(judge(3))


def test_a_lambda_a_wrapped_and_a_renamed_function_are_judged(judge):
    @functools.wraps(double)
    def wrapped(x):
        return double(x)

    def twice(x):
        return double(x)

    for fn, word in ((lambda x: double(x), "is a lambda"), (wrapped, "is wrapped"), (twice, "another name for twice")):
        verdict = judge(fn)
        assert verdict.points == 3 and word in str(verdict)
    assert judge(functools.partial(double)).points == 3


def test_returning_none(judge):
    verdict = judge(quiet(lambda x: None))
    assert verdict.points == 0 and "Is a return statement missing?" in str(verdict)


def test_printing_instead_of_returning(judge):
    verdict = judge(quiet(lambda x: print((x + x).tolist())))
    assert verdict.points == 0 and "Your function prints its answer: return it instead." in str(verdict)


def test_changing_the_input(judge):
    def answer(x):
        if not len(x):
            raise ValueError
        x.copy_(x + x)
        return x.clone()

    verdict = judge(answer)
    assert verdict.parts == {"values": 1, "errors": 1, "inputs untouched": 0}
    assert "the input x was changed. Work on a copy." in str(verdict)


def test_raising_shows_the_error_and_the_line(judge):
    verdict = judge(quiet(lambda x: x / len([])))
    text = str(verdict)
    assert "got ZeroDivisionError" not in text or "raised in your line" in text
    verdict = judge(quiet(lambda x: torch.tensor([]).max()))
    assert "raised in your line" in str(verdict) and verdict.points == 0


def test_never_returning_ends_with_a_sentence(judge):
    def answer(x):
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                pass

    start = time.monotonic()
    verdict = judge(answer, seconds=1.0)
    assert time.monotonic() - start < 15
    assert verdict.points == 0 and "did not come back within 1 seconds" in str(verdict)


def test_never_returning_in_one_part_is_not_taken_for_another_answer_in_the_first(judge):
    def answer(x):
        while len(x) != 2:
            time.sleep(0.01)
        return x + x

    text = str(judge(answer, seconds=1.0))
    assert "did not come back within 1 seconds" in text and "asked a second time" not in text


@pytest.mark.parametrize(
    ("name", "answer", "sentence"),
    [
        ("choose_qparams", lambda mn, mx: (1.0, 0), "return QParams(scale, zero_point), not a tuple"),
        ("choose_qparams", lambda mn, mx: {"scale": (mx - mn) / 255, "zero_point": 85}, "QParams(scale, zero_point)"),
        ("rk_step", lambda f, t, y, h, k1=None: y + h * f(t, y), "return 2 values, y_new and K, not one ndarray"),
        ("rk_step", lambda f, t, y, h, k1=None: None, "not None: is a return statement missing?"),
        ("detect", lambda G, prev_sign, directions: (1, [0], 2), "not a tuple of 3"),
        ("extinct", lambda f, y, alive, index: (y, alive, y), "the third value should be a function of t and u"),
    ],
)
def test_an_answer_of_another_shape_than_the_probe_takes_apart_is_told_what_to_return(name, answer, sentence):
    verdict = module.judged(module.find(name), {name: answer})
    assert sentence in str(verdict) and verdict.results[-1].outcome != "correct"


def test_inputs_that_cannot_be_shown_are_described_and_how_a_probe_looks_is_not_said():
    text = str(module.judged(module.find("quantized_network"), {"quantized_network": lambda x, layers, ops: x}))
    assert "layers = a list of 3, ops" not in text and "layers = a list of 3" in text and "Build(" not in text
    assert "ops = a dict of 4" in text and "Learner(" not in text
    text = str(module.judged(module.find("apply_event"), {"apply_event": lambda *_: (0, 0, [])}))
    assert "index = 1" in text and "compare" not in text


def test_never_returning_outside_the_main_thread(judge):
    """Where no alarm signal can be used: kernels on Windows, checks in a thread."""
    found: list[Verdict] = []

    def answer(x):
        while True:
            pass

    thread = threading.Thread(target=lambda: found.append(judge(answer, seconds=1.0)))
    thread.start()
    thread.join(60)
    assert found and "did not come back" in str(found[0])


def test_numpy_instead_of_torch_and_back(judge):
    assert "expected a torch tensor, got a numpy array" in str(judge(quiet(lambda x: (x + x).numpy())))
    from underhood.compare import difference
    from underhood.plain import plain

    found = difference(plain(torch.ones(2)), plain(np.ones(2)))
    assert found is not None and "expected a numpy array, got a torch tensor" in found.lines[0]


def test_wrong_shape_and_wrong_dtype(judge):
    assert "expected shape (2,), got (1, 2)" in str(judge(quiet(lambda x: (x + x)[None])))
    verdict = judge(quiet(lambda x: (x + x).double()))
    assert "expected dtype float32, got float64" in str(verdict)
    assert verdict.results[0].outcome == "wrong shape or dtype"


def test_wrong_values_say_how_many_and_where(judge):
    text = str(judge(quiet(lambda x: x + 1)))
    assert "expected [2. 4.]" in text and "got      [2. 3.]" in text
    assert "1 of 2 differ, first at [1], largest by 1" in text


def test_keeping_something_between_calls(judge):
    calls = []

    def answer(x):
        if not len(x):
            raise ValueError
        calls.append(1)
        return x + x if len(calls) < 3 else x

    text = str(judge(answer))
    assert "asked a second time, two numbers gives another answer" in text


def test_forbidden_calls_are_found_in_the_source_and_trapped(judge):
    def in_plain_sight(x):
        return torch.mul(x, 2)

    verdict = judge(in_plain_sight)
    assert verdict.points == 0 and "torch.mul does this exercise for you" in str(verdict)

    sneaky = getattr(torch, "mu" + "l")

    def hidden_away(x):
        if not len(x):
            raise ValueError
        try:
            return getattr(torch, "m" + "ul")(x, 2)
        except Exception:
            return x + x

    verdict = judge(hidden_away)
    assert verdict.points == 0 and "torch.mul does this exercise for you" in str(verdict)
    assert torch.mul is sneaky, "the trap is gone afterwards"
    assert judge(lambda x: double(x)).points == 3


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    return torch.norm(x)",
        "import torch as t\ndef f(x):\n    return t.norm(x)",
        "from torch import norm as n\ndef f(x):\n    return n(x)",
        "def f(x):\n    return x.norm()",
        "def f(x):\n    return (x + 1).norm(dim=1)",
        "def f(x):\n    return torch.linalg.vector_norm(x)",
        "from torch import linalg\ndef f(x):\n    return linalg.norm(x)",
        "import torch.nn.functional as G\ndef f(x):\n    return G.normalize(x)",
    ],
)
def test_the_ways_to_write_a_forbidden_name(source):
    assert in_source(source, ("torch.norm", "Tensor.norm", "torch.linalg.*", "F.normalize"), {"torch": "torch"})


def test_a_harmless_source_is_not_forbidden():
    source = 'def f(x):\n    "torch.norm would do it"\n    norm = (x * x).sum()  # torch.norm\n    return norm ** 0.5'
    assert in_source(source, ("torch.norm", "Tensor.norm", "torch.linalg.*"), {"torch": "torch"}) == ""


def test_an_unknown_exercise_names_the_nearest():
    verdict = check("ordinal_rank_summ")
    assert verdict.points == 0 and "The nearest name is ordinal_rank_sum." in str(verdict)


def test_what_the_answer_prints_and_warns_does_not_reach_the_notebook(judge, capfd):
    import warnings

    def answer(x):
        print("out")
        print("err", file=sys.stderr)
        warnings.warn("careful", stacklevel=1)
        return double(x)

    assert judge(answer).points == 3
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == ""


def test_ready_says_what_to_finish_first(capsys):
    names = reference.load("01_basics")
    space = {"ready": ready, "ordinal_rank_sum": lambda x, weights: x}
    assert eval("ready('ordinal_rank_sum')", space) is False
    assert "Finish it first" in capsys.readouterr().out
    space["ordinal_rank_sum"] = names["ordinal_rank_sum"]
    assert eval("ready('ordinal_rank_sum')", space) is True
    assert capsys.readouterr().out == ""


def test_check_with_hidden_cases_refuses_where_the_grader_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "autograder.judge", None)
    with pytest.raises(RuntimeError, match="hidden checks need the autograder package"):
        check("ordinal_rank_sum", hidden=True)


def test_the_core_of_the_helper_package_stays_small():
    """Statements, without imports and docstrings. A chapter's own probes, builders and plots do not count."""
    folder = Path(module.__file__).parent
    files = "exercise plain compare verdict check record env probes/__init__ probes/general".split()
    count = 0
    for name in files:
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            count += isinstance(node, ast.stmt) and not docstring and not isinstance(node, ast.Import | ast.ImportFrom)
    assert count <= 870, count
