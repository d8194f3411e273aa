"""Every sentence that a check can say, in one table. Braces are filled in by `say`."""

from __future__ import annotations

# What a part's line ends with, by outcome.
OUTCOMES = {
    "correct": "correct",
    "not attempted": "not attempted",
    "raised an error": "raised an error",
    "wrong shape or dtype": "wrong shape or dtype",
    "wrong values": "wrong values",
    "forbidden": "uses what the exercise forbids",
}

MESSAGES = {
    # the learner's object
    "unknown": "There is no exercise named {name}. The nearest name is {nearest}.",
    "not defined": "{name} is not defined yet. Write it in the cell above, run that cell, then run this one again.",
    "renamed": "{name} is not defined, but {other} is. Should it be called {name}?",
    "not callable": "{name} is {what}, not a function or class. Was the name used for something else further down?",
    "lambda": "{name} is a lambda. That is fine, it is judged like a function.",
    "wrapped": "{name} is wrapped ({what}). The wrapped version is what is judged.",
    "alias": "{name} is another name for {other}. That is fine, {other} is what is judged.",
    "signature": "{name}{got} cannot be called like {name}{expected}: {why}.",
    # a case
    "case": "{about}: {inputs}",
    "bare case": "{about}",
    "stub": "It still raises NotImplementedError.",
    "raised": "raised {error}{message}",
    "raised at": "raised in your line: {line}",
    "raised instead": "expected a {expected}, got {error}{message}",
    "returned instead": "expected a {expected}, returned {got}",
    "returned the error": "expected a {expected} to be raised, it was returned: write raise, not return",
    "same": "the same as in {part}",
    "timed out": "did not come back within {seconds:g} seconds. Is there a loop whose end is never reached?",
    "not run": "not run: an earlier case used up the time",
    "printed": "expected a returned value, got None. Your function prints its answer: return it instead.",
    "returned none": "expected {expected}, got None. Is a return statement missing?",
    "type": "expected {expected}, got {got}",
    "numpy for torch": "expected a torch tensor, got a numpy array: torch.from_numpy makes one of the other.",
    "torch for numpy": "expected a numpy array, got a torch tensor: its .numpy() gives the array.",
    "dtype": "expected dtype {expected}, got {got}",
    "shape": "expected shape {expected}, got {got}",
    "length": "expected {expected} items, got {got}",
    "keys": "expected the keys {expected}, got {got}",
    "expected": "expected {expected}",
    "got": "got      {got}",
    "integers differ": "{count} of {total} differ{first}: {steps}, largest by {largest}",
    "all by one": "all by one",
    "all by more": "all by more than one",
    "some by one": "{ones} by one, {more} by more",
    "floats differ": "{count} of {total} differ{first}, largest by {largest:.3g} (tolerance {tolerance:.0e})",
    "not finite": "{count} of {total} differ{first}: nan or infinity where a number belongs",
    "values differ": "{count} of {total} differ{first}",
    "where": "at {path}",
    "changed": "{about}: {names} changed. Work on a copy.",
    "changed first": "counts once the part {part} is right",
    "state": "asked a second time, {about} gives another answer. Does the function keep something between calls?",
    "forbidden": "{name} does this exercise for you. Build it from smaller steps.",
    "needs": "needs {name} first: finish that exercise, then come back.",
    # the likely mistake
    "mistake": "This is what comes out of {name}.",
    "hint": "{hint}",
    # ready
    "not ready": "The next cells use your {names}. Finish {it} first, then run this cell again.",
    # the judge
    "no grader": (
        "The hidden checks need the autograder package of the course repository, which is not installed here. "
        "Run `make start` or `pip install -e .` at its root, then grade again."
    ),
    "hidden": "hidden input: {about} ({outcome})",
    "broken": "The check could not read what your code returned ({error}). That counts as a wrong value.",
}


def say(key: str, **fields: object) -> str:
    """The sentence of that key. Never raises: a sentence that cannot be filled in is returned as it stands."""
    try:
        return MESSAGES[key].format(**fields)
    except Exception:
        return MESSAGES.get(key, key)
