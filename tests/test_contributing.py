"""docs/contributors.md, followed to the letter in a copy of the repository: add an exercise, build, test."""

from __future__ import annotations

import re
import shlex

import pytest


def steps(text: str) -> dict[str, str]:
    return dict(re.findall(r"<!-- step: (\w+) -->\n```\w+\n(.*?)```", text, flags=re.S))


@pytest.mark.slow
def test_the_worked_example_adds_an_exercise(copy, run):
    step = steps((copy / "docs/contributors.md").read_text())
    folder = copy / "solutions/01_basics"

    exercises = folder / "exercises.py"
    exercises.write_text(exercises.read_text() + "\n\n" + step["exercises"])

    alternatives = folder / "alternatives.py"
    text = alternatives.read_text()
    for name in ("right", "wrong"):
        assert text.count(f"\n{name.upper()} = {{\n") == 1
        text = text.replace(f"\n{name.upper()} = {{\n", f"\n{name.upper()} = {{\n{step[name]}")
    text = text.replace("\nRIGHT = {", f"\n{step['alternatives']}RIGHT = {{")
    alternatives.write_text(text)

    notebook = folder / "basics.py"
    head, closing, tail = notebook.read_text().partition("# %% [markdown]\n# ## Five questions")
    assert closing
    notebook.write_text(head + step["notebook"] + closing + tail)

    for command in step["commands"].strip().splitlines():
        done = run(*shlex.split(command))
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "passed" in done.stdout and "skipped" not in done.stdout
