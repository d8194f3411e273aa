"""Every exercise of every chapter: what is right passes, what is wrong loses points, and the right mistake is named."""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from autograder import reference
from autograder.chapters import module
from autograder.judge import answers, judge, questions, recorded
from underhood import Case, Exercise
from underhood import exercises as faces
from underhood.check import judged
from underhood.exercise import UNTOUCHED, Seen
from underhood.plain import Array
from underhood.probes import observe, same, seen_from_json, seen_to_json
from underhood.record import case_to_json, rounded
from underhood.verdict import assess, right_answers

SEEDS = (0, 1, 2)


def face(exercise: Exercise) -> Exercise:
    return next(e for e in faces() if e.name == exercise.name)


def right(exercise: Exercise):
    return module(exercise.chapter, "alternatives").RIGHT.get(exercise.name, {})


def wrong(exercise: Exercise):
    return module(exercise.chapter, "alternatives").WRONG.get(exercise.name, {})


def test_the_reference_gets_full_marks(exercise):
    names = reference.load(exercise.chapter)
    for seed in SEEDS:
        verdict = judge(exercise.name, names[exercise.name], seed=seed)
        assert verdict.points == exercise.points, str(verdict)
    verdict = judged(face(exercise), names)
    assert verdict.points == exercise.points, str(verdict)


def test_other_right_solutions_get_full_marks(exercise):
    assert len(right(exercise)) >= 2, f"{exercise.name} needs two other right solutions in alternatives.py"
    for name, fn in right(exercise).items():
        for seed in SEEDS:
            verdict = judge(exercise.name, fn, seed=seed)
            assert verdict.points == exercise.points and verdict.mistake is None, f"{name}\n{verdict}"


def test_a_mistake_loses_points_and_is_the_one_named(exercise, mistake):
    for seed in SEEDS[:2]:
        verdict = judge(exercise.name, mistake.fn, seed=seed)
        assert verdict.points < exercise.points
        assert verdict.mistake == mistake.name, str(verdict)
    verdict = judged(face(exercise), reference.load(exercise.chapter), mistake.fn)
    assert verdict.points < exercise.points
    assert verdict.mistake == mistake.name, str(verdict)


def test_wrong_solutions_that_are_no_known_mistake_are_named_nothing(exercise):
    assert wrong(exercise), f"{exercise.name} needs a wrong solution in alternatives.py that no Mistake covers"
    for name, fn in wrong(exercise).items():
        verdict = judge(exercise.name, fn)
        assert verdict.points < exercise.points and verdict.mistake is None, f"{name}\n{verdict}"


def test_there_are_enough_mistakes_and_any_two_differ_on_a_visible_case(exercise):
    enough = 3 if exercise.second_of_card else 5
    assert len(exercise.mistakes) >= enough, f"{exercise.name} needs {enough} mistakes, it has {len(exercise.mistakes)}"
    assert len({m.name for m in exercise.mistakes}) == len(exercise.mistakes), f"{exercise.name}: two have one name"
    shown = [[seen_to_json(replace(s, value=rounded(s.value))) for s in m.seen] for m in recorded(exercise).mistakes]
    for (i, one), (j, other) in itertools.combinations(enumerate(shown), 2):
        assert one != other, f"{exercise.mistakes[i].name} cannot be told from {exercise.mistakes[j].name}"


class Constant:
    """Answers anything with the same value, as a function and as a class."""

    def __init__(self, value):
        self.value = value

    def __call__(self, *args, **kwargs):
        if isinstance(self.value, type):
            raise self.value("always")
        return self.value(*args) if callable(self.value) else self.value


def guesses(exercise: Exercise, rng: np.random.Generator):
    """Constants, zeros and random numbers, shaped like the right answers."""
    like = [seen.value for seen in right_answers(exercise.cases) if not seen.raised]

    def filled(value, fill):
        if isinstance(value, Array):
            data = np.asarray(fill(value.shape)).astype(value.data.dtype)
            return torch.from_numpy(data) if value.kind == "tensor" else data
        if type(value) in (list, tuple):
            return type(value)(filled(item, fill) for item in value)
        if type(value) is dict:
            return {key: filled(item, fill) for key, item in value.items()}
        return type(value)(fill(())) if type(value) in (int, float, bool) else value

    for fill in (np.zeros, np.ones, lambda shape: rng.normal(size=shape) * 3):
        yield Constant(filled(like[0], fill))
    for value in (0, 0.0, 1.0, None, "no", (), torch.zeros(1), np.zeros(1)):
        yield Constant(value)
    for error in (ValueError, RuntimeError, TypeError, ZeroDivisionError):
        yield Constant(error)
    yield Constant(lambda *args: args[0] if args else None)


def test_constants_zeros_random_numbers_and_errors_earn_nothing_and_are_named_nothing(exercise):
    for guess in guesses(exercise, np.random.default_rng(7)):
        verdict = judge(exercise.name, guess)
        assert verdict.mistake is None, f"{guess.value!r}\n{verdict}"
        assert verdict.points <= exercise.points / 2, f"{guess.value!r}\n{verdict}"
        assert verdict.results[0].outcome != "correct", f"{guess.value!r}\n{verdict}"


def test_an_answer_that_knows_only_the_visible_cases_gets_no_point_for_values(exercise):
    """Its observations are right on every visible case, and nothing on the hidden ones."""
    cases, want = questions(exercise.name, 0), answers(exercise.name, 0)
    visible = len(exercise.cases)
    hidden = cases[visible:-1]
    parts = [p for p in exercise.parts if p != UNTOUCHED]
    for part in parts:
        assert any(case.part == part for case in hidden), f"no hidden case for {part}"
    for silence in (Seen(value=None), Seen(raised=("KeyError", "LookupError", "Exception"))):
        got = [*want[:visible], *(silence for _ in hidden), want[0]]
        verdict = assess(exercise, cases, want, got, hidden_from=visible)
        assert verdict.points == 0, str(verdict)
    raising = Seen(raised=("ValueError", "Exception"))
    got = [*want[:visible], *(raising for _ in hidden), want[0]]
    verdict = assess(exercise, cases, want, got, hidden_from=visible)
    assert verdict.points == 0, f"always raising on unseen inputs earns a point\n{verdict}"


def test_hidden_cases_repeat_with_the_seed_and_differ_between_seeds(exercise):
    assert exercise.hidden is not None
    made = [list(exercise.hidden(np.random.default_rng(seed))) for seed in (0, 0, 1)]
    assert list(map(case_to_json, made[0])) == list(map(case_to_json, made[1]))
    assert list(map(case_to_json, made[0])) != list(map(case_to_json, made[2]))


def test_the_face_is_complete_and_in_order(exercise):
    public = face(exercise)
    assert public.hidden is None and all(m.fn is None and m.seen for m in public.mistakes)
    assert (public.points, public.parts, public.signature) == (exercise.points, exercise.parts, exercise.signature)
    assert exercise.level in ("easy", "medium", "hard") and exercise.minutes > 0
    assert 2 <= exercise.points <= 5
    used = {case.part for case in exercise.cases}
    assert used == set(exercise.parts) - {UNTOUCHED}
    for case in exercise.cases:
        assert case.raises or case.expected is not None or "None" in case.about
        assert isinstance(case, Case) and case.about


def test_the_state_of_the_notebook_changes_no_verdict(exercise):
    """A different default dtype, grad mode, seed, print options, warnings as errors: honest answers keep their points."""
    names = reference.load(exercise.chapter)
    limit = sys.getrecursionlimit()
    try:
        with warnings.catch_warnings(), torch.no_grad(), np.errstate(all="raise"), np.printoptions(precision=1):
            warnings.simplefilter("error")
            torch.set_default_dtype(torch.float64)
            sys.setrecursionlimit(600)
            torch.manual_seed(99)
            verdict = judged(face(exercise), names)
    finally:
        torch.set_default_dtype(torch.float32)
        sys.setrecursionlimit(limit)
    assert verdict.points == exercise.points, str(verdict)


def test_observations_survive_the_way_through_json(exercise):
    names = reference.load(exercise.chapter)
    for seen in observe(exercise, names[exercise.name], exercise.cases, names):
        again = seen_from_json(json.loads(json.dumps(seen_to_json(seen))))
        assert same(again.value, seen.value) and again.raised == seen.raised and again.changed == seen.changed


@pytest.mark.parametrize("seed", SEEDS)
def test_the_judge_is_repeatable(exercise, seed):
    fn = exercise.mistakes[0].fn
    assert str(judge(exercise.name, fn, seed=seed)) == str(judge(exercise.name, fn, seed=seed))
