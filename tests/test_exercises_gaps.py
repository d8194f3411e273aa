"""Wrong answers that once got full marks: each is the reference with one change, and loses a point at every seed."""

from __future__ import annotations

import pytest

from autograder import reference
from autograder.chapters import exercise as find
from autograder.judge import answers, questions
from autograder.sample_class import reference_answers
from underhood.probes import observe
from underhood.verdict import assess

SEEDS = (0, 1, 2)
# The exercise, what stands in the reference, and what takes its place.
MUTANTS = (
    ("ordinal_rank_sum", "weights.dim() != 1", "weights.dim() > 1"),
    ("OrdinalPool2d", "self.kernel[0] * self.kernel[1]:", "self.kernel[0] * self.kernel[0]:"),
    ("OrdinalPool2d", "self.kernel[0] * self.kernel[1]:", "self.kernel[1] * self.kernel[1]:"),
    ("OrdinalPool2d", "weights.min() < 0", "weights.min() <= 0"),
    ("to_nchw", "batch.dim() != 4", "batch.dim() < 4"),
    ("standardize", "train.shape[1] != other.shape[1]", "train.shape[1] > other.shape[1]"),
    ("standardize", "train.shape[1] != other.shape[1]", "train.shape[1] < other.shape[1]"),
    ("numeric_grad", "f((point + s).reshape(x.shape))", "f(point + s)"),
    ("numeric_grad", "h: float = 1e-6", "h: float = 1e-5"),
    ("numeric_grad", "h: float = 1e-6", "h: float = 1e-7"),
    ("grad_check", "torch.maximum(numeric.abs(), ", "torch.maximum(numeric, "),
    ("Scalar", "float(self.value > 0)", "float(self.value > 1)"),
    ("Scalar", "float(self.value > 0)", "float(self.value > -1)"),
    ("sgd_step", "direction.clone()", "direction"),
    ("adam_step", "lr: float = 1e-3", "lr: float = 1e-2"),
    ("bce_with_logits", "z.shape != t.shape", "z.shape > t.shape"),
    ("bce_with_logits", "z.shape != t.shape", "z.shape < t.shape"),
    ("fit", "validation_split: float = 0.33", "validation_split: float = 0.2"),
    ("fit", "split(X, y, validation_split)", "split(X, y, 0.33)"),
    ("explain_misses", "sums > 2**15 - 1", "sums > 2**15"),
    ("explain_misses", "sums > 2**15 - 1", "sums >= 2**15 - 1"),
    ("explain_misses", "sums < -(2**15)", "sums <= -(2**15)"),
    ("explain_misses", "sums < -(2**15)", "sums < -(2**15) - 1"),
    ("choose_qparams", "mn, mx = np.float32(mn), np.float32(mx)", "mn, mx = float(mn), float(mx)"),
    ("bracket_root", "math.isnan(ga) or math.isnan(gb)", "math.isnan(gb)"),
    ("detect", "(signs >= 0)", "(signs > 0)"),
    ("apply_event", "= (True, True)", "= (False, False)"),
    ("apply_event", "= (True, True)", "= (True, False)"),
    ("apply_event", "(t, np.array(y))", "(t, y)"),
    ("bounce", "tol: float = 1e-6", "tol: float = 0.5e-6"),
    ("bounce", "tol: float = 1e-6", "tol: float = 2e-6"),
)


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS, ids=[f"{name}: {new}" for name, _, new in MUTANTS])
def test_the_reference_with_one_fault_loses_a_point_at_every_seed(name, old, new):
    exercise = find(name)
    source = reference_answers(exercise.chapter)[name]
    assert old in source, f"the reference of {name} no longer holds {old!r}: say here where its fault goes now"
    names = reference.load(exercise.chapter)
    exec(compile(source.replace(old, new), f"<{name}>", "exec"), names)
    for seed in SEEDS:
        cases = questions(name, seed)
        seen = observe(exercise, names[name], cases, reference.load(exercise.chapter))
        verdict = assess(exercise, cases, answers(name, seed), seen, ())
        assert 0 < verdict.points < exercise.points, f"seed {seed}: {verdict}"
