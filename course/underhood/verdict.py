"""The verdict: what a check found, as points, as text and as HTML."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .compare import VALUES, Difference, describe, difference, show
from .exercise import TOGETHER, UNTOUCHED, Build, Case, Exercise, Learner, Mistake, Seen
from .messages import OUTCOMES, say
from .plain import Array, Foreign, inputs
from .record import blur

CORRECT, ERROR, NOT_ATTEMPTED, FORBIDDEN = "correct", "raised an error", "not attempted", "forbidden"
AGAIN = "again: "  # how the case begins that asks the first one a second time


@dataclass(frozen=True)
class Part:
    """What was found about one part."""

    name: str
    outcome: str
    cases: int
    lines: tuple[str, ...] = ()
    mistake: str | None = None
    hint: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a check found about one exercise.

    `repr` is the points, a finite decimal in [0, max_points] (nbgrader reads it as partial credit), `str` the text, and
    Jupyter shows the HTML.
    """

    name: str
    results: tuple[Part, ...]
    notes: tuple[str, ...] = ()
    mistake: str | None = None

    @property
    def max_points(self) -> int:
        return len(self.results)

    @property
    def points(self) -> float:
        return float(sum(part.outcome == CORRECT for part in self.results))

    @property
    def parts(self) -> dict[str, float]:
        """Points by part."""
        return {part.name: float(part.outcome == CORRECT) for part in self.results}

    def __repr__(self) -> str:
        return str(self.points)

    def __str__(self) -> str:
        width = max((len(part.name) for part in self.results), default=0) + 2
        lines = [f"{self.name}   {self.points:.0f} of {self.max_points} points", *(f"  {note}" for note in self.notes)]
        for part in self.results:
            tail = _tail(part)
            lines.append(f"  {_mark(part)}  {part.name:<{width}}{tail[0]}".rstrip())
            lines += [" " * (width + 6) + line for line in tail[1:]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for part in self.results:
            first, *more = map(html.escape, _tail(part))
            detail = f"<div style='white-space:pre-wrap;font-family:monospace;overflow-wrap:anywhere'>{chr(10).join(more)}</div>"
            side = (
                "border-left:4px solid currentColor;"
                if part.outcome != CORRECT
                else "border-left:4px double;opacity:.75;"
            )
            rows.append(
                f"<tr><td style='{side}padding:2px 10px;vertical-align:top;text-align:left'><b>{_mark(part)}</b></td>"
                f"<td style='padding:2px 10px;vertical-align:top;text-align:left'>{html.escape(part.name)}</td>"
                f"<td style='padding:2px 10px;text-align:left'>{first}{detail if more else ''}</td></tr>"
            )
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in self.notes)
        return (
            f"<div><b>{html.escape(self.name)}</b> &nbsp; {self.points:.0f} of {self.max_points} points{notes}"
            f"<table style='margin:4px 0;border-collapse:collapse'>{''.join(rows)}</table></div>"
        )


def _mark(part: Part) -> str:
    return {CORRECT: "ok", NOT_ATTEMPTED: "--"}.get(part.outcome, "no")


def _tail(part: Part) -> list[str]:
    if part.outcome == CORRECT:
        return [f"{part.cases} case{'s' * (part.cases != 1)}" if part.cases else ""]
    lines = list(part.lines) or [OUTCOMES[part.outcome]]
    if part.mistake and part.hint:
        lines += [say("mistake", name=part.mistake), part.hint]
    return lines


def blank(exercise: Exercise, *notes: str) -> Verdict:
    """The verdict on an exercise of which there is nothing to judge yet."""
    return Verdict(exercise.name, tuple(Part(part, NOT_ATTEMPTED, 0) for part in exercise.parts), notes)


def refused(exercise: Exercise, name: str, *notes: str) -> Verdict:
    """The verdict on an answer that uses the forbidden callable `name`."""
    line = (say("forbidden", name=name),)
    return Verdict(exercise.name, tuple(Part(part, FORBIDDEN, 0, line) for part in exercise.parts), notes)


def asked(exercise: Exercise, cases: Sequence[Case] = ()) -> list[Case]:
    """The cases that are put to a learner's object: the given ones (or the visible), then the first one once more."""
    cases = list(cases or exercise.cases)
    return [*cases, replace(cases[0], about=AGAIN + cases[0].about)]


def right_answers(cases: Sequence[Case]) -> list[Seen]:
    """What a right answer shows in visible cases."""
    return [Seen(raised=(c.raises.__name__,)) if c.raises else Seen(value=inputs(c.expected)) for c in cases]


@dataclass(frozen=True)
class _Found:
    """One case, judged."""

    case: Case
    got: Seen
    want: Seen
    difference: Difference | None


def assess(
    exercise: Exercise,
    cases: Sequence[Case],
    want: Sequence[Seen],
    got: Sequence[Seen],
    mistakes: Sequence[tuple[Mistake, Sequence[Seen]]] = (),
    notes: Sequence[str] = (),
    hidden_from: int | None = None,
) -> Verdict:
    """Judge what was seen.

    Parameters
    ----------
    cases
        As `asked` gives them.
    want, got
        What a right answer shows, and what the learner's showed, case by case.
    mistakes
        What each known mistake shows on the first of the cases, in the same order.
    hidden_from
        Index of the first hidden case: these are described in words only.
    """
    if got and all(seen.not_implemented for seen in got):
        return blank(exercise, *notes)
    found = [_Found(c, g, w, _judge(exercise, c, g, w)) for c, g, w in zip(cases, got, want, strict=True)]
    hidden = set(map(id, found[hidden_from:-1] if hidden_from is not None else ()))
    suspects = _suspects(exercise, found, mistakes)
    results: list[Part] = []
    for name in exercise.parts:
        mine = found if name == UNTOUCHED else [f for f in found if f.case.part == name]
        part = _untouched(exercise, mine, results) if name == UNTOUCHED else _part(exercise, name, mine, hidden)
        likely = _likely(found, name, suspects) if part.outcome not in (CORRECT, NOT_ATTEMPTED) else None
        part = replace(part, mistake=likely.name, hint=likely.hint) if likely else part
        results.append(_shortened(part, results))
    named = [part.mistake for part in results if part.mistake]
    return Verdict(exercise.name, tuple(results), tuple(notes), max(named, key=named.count) if named else None)


def _judge(exercise: Exercise, case: Case, got: Seen, want: Seen) -> Difference | None:
    if got.forbidden:
        return Difference(FORBIDDEN, (say("forbidden", name=got.forbidden),))
    if got.not_implemented:
        return Difference(NOT_ATTEMPTED, (say("stub"),))
    if got.raised == ("Missing",):  # the probe's own; a learner's error of that name has more bases
        return Difference(NOT_ATTEMPTED, (say("needs", name="".join(got.message.splitlines()[:1])),))
    if got.raised == ("TimeUp",):
        return Difference(ERROR, (say("timed out", seconds=exercise.seconds),))
    if got.raised == ("NotRun",):
        return Difference(ERROR, (say("not run"),))
    if want.raised:
        if want.raised[0] in got.raised:
            return None
        return _instead(want.raised[0], got)
    if got.raised:
        return Difference(ERROR, _raised("raised", got))
    if got.value is None and want.value is not None and got.printed.strip():
        return Difference(VALUES, (say("printed"),))
    tolerance = case.tolerance if case.tolerance is not None else exercise.tolerance
    try:
        return difference(got.value, want.value, tolerance, exercise.same_dtype)
    except Exception as error:  # a value that cannot be compared or shown is a wrong one, never a traceback
        return Difference(VALUES, (say("broken", error=type(error).__name__),))


def _instead(error: str, got: Seen) -> Difference:
    if got.raised:
        return Difference(ERROR, _raised("raised instead", got, error))
    if isinstance(got.value, Foreign) and got.value.what.endswith(f" {error}"):
        return Difference(VALUES, (say("returned the error", expected=error),))
    return Difference(VALUES, (say("returned instead", expected=error, got=show(got.value)),))


def _raised(key: str, got: Seen, expected: str = "") -> tuple[str, ...]:
    message, _, line = got.message.partition("\n")
    said = say(key, expected=expected, error=got.raised[0], message=f": {message}" if message else "")
    return (said, say("raised at", line=line)) if line else (said,)


def _part(exercise: Exercise, name: str, found: list[_Found], hidden: set[int]) -> Part:
    wrong = [(f, f.difference) for f in found if f.difference]
    count = len([f for f in found if not f.case.about.startswith(AGAIN)])
    if not wrong:
        return Part(name, CORRECT, count)
    first, how = wrong[0]
    if first.case.about.startswith(AGAIN) and first.got.raised != ("NotRun",):
        lines: tuple[str, ...] = (say("state", about=first.case.about.removeprefix(AGAIN)),)
    elif id(first) in hidden:
        lines = (say("hidden", about=first.case.about, outcome=OUTCOMES[how.outcome]),)
    else:
        given = _inputs(exercise, first.case)
        lines = (say("case" if given else "bare case", about=first.case.about, inputs=given), *how.lines)
    return Part(name, how.outcome, count, lines)


def _shortened(part: Part, before: Sequence[Part]) -> Part:
    """The part, its lines cut to a reference where an earlier part says the same of another input."""
    for other in before:
        same = other.lines[1:] == part.lines[1:] and (other.mistake, other.hint) == (part.mistake, part.hint)
        if same and part.lines[1:] and other.outcome == part.outcome:
            return replace(part, lines=(part.lines[0], say("same", part=other.name)), hint="")
    if part.mistake in [other.mistake for other in before]:
        return replace(part, hint="")  # said once
    return part


def _untouched(exercise: Exercise, found: list[_Found], before: list[Part]) -> Part:
    touched = next((f for f in found if f.got.changed), None)
    if touched:
        about = touched.case.about.removeprefix(AGAIN)
        names = touched.got.changed
        said = f"the input {names[0]} was" if len(names) == 1 else f"the inputs {' and '.join(names)} were"
        return Part(UNTOUCHED, VALUES, 0, (say("changed", about=about, names=said),))
    if before and before[0].outcome != CORRECT:
        return Part(UNTOUCHED, NOT_ATTEMPTED, 0, (say("changed first", part=before[0].name),))
    return Part(UNTOUCHED, CORRECT, 0)


def _inputs(exercise: Exercise, case: Case) -> str:
    """The case's inputs by name; larger arrays by shape: "x of shape (1, 4, 4), weights = [0.6 0.25 0.1 0.05]"."""
    names = [argument.arg for argument in _arguments(exercise.signature)]
    words = []
    for i, value in enumerate([*case.args, *case.kwargs.values()]):
        key = (names + [""] * 9)[i] if i < len(case.args) else list(case.kwargs)[i - len(case.args)]
        if key.startswith("_"):
            continue  # how the probe looks, not what the learner's code gets
        value = inputs(value)
        if isinstance(value, Array) and not 0 < value.data.size <= 8:
            words.append(f"{key or 'input'} of shape {value.shape}")
        elif not isinstance(value, Build | Learner):
            # What holds things that are built where the learner's code runs can only be described.
            words.append(f"{key} = " * bool(key) + (describe(value) if "(name='" in repr(value) else show(value, 120)))
    return ", ".join(words)


def _arguments(signature: str) -> list[ast.arg]:
    try:
        function = ast.parse(f"def f{signature}: ...").body[0]
    except SyntaxError:
        return []
    return function.args.args if isinstance(function, ast.FunctionDef) else []


@dataclass(frozen=True)
class _Suspect:
    """A mistake that may be what happened: where it gives what the learner's object gave."""

    mistake: Mistake
    alike: tuple[bool, ...]
    changed: tuple[bool, ...]  # whether it changes the same inputs
    share: float  # of all cases that are alike


def _suspects(
    exercise: Exercise, found: list[_Found], mistakes: Sequence[tuple[Mistake, Sequence[Seen]]]
) -> list[_Suspect]:
    """The mistakes that give the learner's answers in at least half of all cases, some of them wrong values or errors
    with the same words, and that go wrong nowhere in another way than the learner's object does; the likeliest first.
    How a whole run goes wrong says little: a hundred steps can grow a last bit that differs between machines.
    """
    suspects = []
    for mistake, shown in mistakes:
        pairs = list(zip(found, shown, strict=False))
        alike = tuple(_alike(exercise, f, seen) for f, seen in pairs)
        changed = tuple(f.got.changed == seen.changed for f, seen in pairs)
        telling = any(
            a and f.difference and (f.got.message or not f.got.raised) for (f, _), a in zip(pairs, alike, strict=True)
        )
        telling = telling or any(f.got.changed and c for (f, _), c in zip(pairs, changed, strict=True))
        if not telling or sum(alike) < len(alike) / 2:
            continue
        if all(
            a or f.got.raised or f.case.part == TOGETHER or not _judge(exercise, f.case, seen, f.want)
            for (f, seen), a in zip(pairs, alike, strict=True)
        ):
            suspects.append(_Suspect(mistake, alike, changed, sum(alike) / len(alike)))
    return sorted(suspects, key=lambda suspect: -suspect.share)


def _likely(found: list[_Found], part: str, suspects: list[_Suspect]) -> Mistake | None:
    """The likeliest mistake that gives what the learner's object gave in every case of the part."""
    for suspect in suspects:
        if part == UNTOUCHED:
            here = list(suspect.changed)
        else:
            here = [a for a, f in zip(suspect.alike, found, strict=False) if f.case.part == part]
        if here and all(here):
            return suspect.mistake
    return None


def _said(seen: Seen) -> str:
    """An error's first line; of a RecursionError what every Python says (3.11 adds what it was doing at the limit)."""
    return re.sub(r"(?<=^maximum recursion depth exceeded).*", "", seen.message.partition("\n")[0])


def _alike(exercise: Exercise, found: _Found, seen: Seen) -> bool:
    got = found.got
    if got.raised or seen.raised:
        text, other = _said(got), _said(seen)
        expected = found.want.raised and found.want.raised[0] in got.raised and found.want.raised[0] in seen.raised
        return got.raised[:1] == seen.raised[:1] and (bool(expected) or text == other)
    if got.forbidden != seen.forbidden or got.changed != seen.changed:
        return False
    tolerance = found.case.tolerance if found.case.tolerance is not None else exercise.tolerance
    # The record's numbers are rounded.
    return difference(got.value, seen.value, max(tolerance or 1e-6, blur(seen.value)), exercise.same_dtype) is None
