"""`make sample-class`: a made-up class of twelve, each with other answers, whose right scores are known.

Answers come from the reference, the alternatives and the mistakes, written out as a learner would have typed them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat

from underhood import Exercise
from underhood.exercise import TOGETHER

from . import reference
from .build import write
from .chapters import SOLUTIONS, exercises, known, text_sources
from .judge import judge
from .run import CLASS, releases

STUDENTS = ("ada", "ben", "chen", "dora", "elif", "femi", "gita", "hugo", "ines", "jun", "kofi", "lena")


@dataclass(frozen=True)
class Pupil:
    """A made-up student: what was answered to each exercise, as source (exercises left out are untouched), and the score."""

    name: str
    about: str
    answers: dict[str, str]
    points: float


def pupils(chapter: str) -> list[Pupil]:
    """The class: the reference, two with other right answers, seven with mistakes, one untouched, one half done."""
    every = exercises(known(chapter))
    right = reference_answers(chapter)
    full = float(sum(exercise.points for exercise in every))
    found = [Pupil(STUDENTS[0], "the reference", right, full)]
    for position in (0, 1):
        answers = {e.name: alternative(e, position) for e in every}
        found.append(Pupil(STUDENTS[1 + position], f"other right answers, set {position + 1}", answers, full))
    for position in range(7):
        # Every other exercise is answered with a mistake, each pupil with another one. The part "together" runs what
        # else the pupil wrote, so those exercises stay right themselves and lose that point only.
        chosen = [e for i, e in enumerate(every) if (i + position) % 2 == 0 and TOGETHER not in e.parts]
        answers, names = dict(right), reference.load(chapter)
        for exercise in chosen:
            mistake = exercise.mistakes[position % len(exercise.mistakes)]
            answers[exercise.name] = written(chapter, exercise.name, mistake.name)
            names[exercise.name] = mistake.fn
        points = sum(judge(e.name, names[e.name], namespace=names).points for e in every)
        found.append(Pupil(STUDENTS[3 + position], f"mistakes, set {position + 1}", answers, points))
    found.append(Pupil(STUDENTS[10], "untouched", {}, 0.0))
    half = every[: len(every) // 2]
    answers = {e.name: right[e.name] for e in half}
    found.append(Pupil(STUDENTS[11], "half done", answers, float(sum(e.points for e in half))))
    return found


def reference_answers(chapter: str) -> dict[str, str]:
    """The source of each exercise's solution cell."""
    prefix = f"{chapter}-"
    return {
        cell.metadata["nbgrader"]["grade_id"].removeprefix(prefix): cell.source
        for source in text_sources(chapter)
        for cell in reference.solution_cells(reference.read(source))
    }


def submission(chapter: str, answers: Mapping[str, str]) -> dict[str, nbformat.NotebookNode]:
    """The released notebooks with these answers typed in."""
    filled = releases(chapter)
    for notebook in filled.values():
        for cell in notebook.cells:
            meta = cell.metadata.get("nbgrader", {})
            name = meta.get("grade_id", "").removeprefix(f"{chapter}-")
            if meta.get("solution") and name in answers:
                cell.source = answers[name]
    return filled


def alternative(exercise: Exercise, position: int) -> str:
    """The source of one of the exercise's other right solutions."""
    tree = _tree(exercise.chapter, "alternatives")
    table = next(node.value for node in tree.body if isinstance(node, ast.Assign) and _target(node) == "RIGHT")
    solutions = dict(zip(map(ast.literal_eval, table.keys), table.values, strict=True))[exercise.name]  # type: ignore
    expression = solutions.values[position % len(solutions.values)]
    return _standalone(tree, exercise.name, expression)


def written(chapter: str, exercise: str, mistake: str) -> str:
    """The source of a mistake's wrong variant, with all that it needs."""
    tree = _tree(chapter, "exercises")
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _called(call) == "Exercise" and _argument(call, "name", 0) == exercise:
            for inner in ast.walk(call):
                if (
                    isinstance(inner, ast.Call)
                    and _called(inner) == "Mistake"
                    and _argument(inner, "name", 0) == mistake
                ):
                    named = [k.value for k in inner.keywords if k.arg == "fn"]
                    return _standalone(tree, exercise, named[0] if named else inner.args[1])
    raise ValueError(f"no Mistake {mistake!r} is written inside the Exercise {exercise!r} of {chapter}")


def _standalone(tree: ast.Module, name: str, expression: ast.expr) -> str:
    """Source that defines `name` as the expression, with the module's definitions that it needs, imports first."""
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        for key in _defines(node):
            defined[key] = node
    needed: list[ast.stmt] = []
    waiting = _names(expression)
    while waiting:
        found = defined.get(waiting.pop())
        if found is not None and found not in needed:
            needed.append(found)
            waiting |= _names(found)
    imports = [n for n in tree.body if n in needed and isinstance(n, ast.Import | ast.ImportFrom)]
    others = [n for n in tree.body if n in needed and n not in imports]
    parts = [ast.unparse(node) for node in imports] + [ast.unparse(node) for node in others]
    if not (isinstance(expression, ast.Name) and expression.id == name):
        parts.append(f"{name} = {ast.unparse(expression)}")
    return "\n".join(parts)


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign):
        return [found.id for target in node.targets for found in ast.walk(target) if isinstance(found, ast.Name)]
    return []


def _names(node: ast.AST) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


def _tree(chapter: str, name: str) -> ast.Module:
    return ast.parse((SOLUTIONS / chapter / f"{name}.py").read_text(encoding="utf-8"))


def _target(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _argument(call: ast.Call, key: str, position: int) -> object:
    given = [k.value for k in call.keywords if k.arg == key] or call.args[position : position + 1]
    return given[0].value if given and isinstance(given[0], ast.Constant) else None


def main(chapters: list[str], out: Path = CLASS / "submitted") -> int:
    """Write the class's submissions."""
    for chapter in chapters:
        for pupil in pupils(chapter):
            for stem, notebook in submission(chapter, pupil.answers).items():
                path = out / pupil.name / chapter / f"{stem}.ipynb"
                write(path, nbformat.writes(notebook) + "\n")
            print(f"{pupil.name:<6} {pupil.points:5.1f} points  {pupil.about}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["01_basics"]))
