"""The guides and the workflows: links lead somewhere, commands are understood, rows and targets exist."""

from __future__ import annotations

import re
import shlex

import pytest
import versions
import yaml

from autograder.__main__ import parser
from autograder.chapters import ROOT

GUIDES = ("README.md", "docs/instructors.md", "docs/contributors.md", "course/README.md", "autograder/README.md")


def guide(name):
    return (ROOT / name).read_text(encoding="utf-8")


def commands(text):
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, flags=re.S))
    inline = "\n".join(re.findall(r"`([^`\n]+)`", text))
    return [line.partition("#")[0].strip() for line in f"{blocks}\n{inline}".splitlines()]


@pytest.mark.parametrize("name", GUIDES)
def test_links_lead_to_files(name):
    folder = (ROOT / name).parent
    for target in re.findall(r"\]\((?!https?:|#)([^)\s#]+)", guide(name)):
        assert (folder / target).exists(), target


@pytest.mark.parametrize("name", GUIDES)
def test_commands_are_understood(name):
    targets = set(re.findall(r"^([\w-]+):", guide("Makefile"), flags=re.M))
    for line in commands(guide(name)):
        words = shlex.split(line) if line.startswith(("make ", "python -m autograder grade")) else [""]
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word and word != "…"} <= targets, line
        elif words[0] == "python" and len(words) > 4 and "--help" not in words:
            parser().parse_args(words[3:])


def test_the_readme_for_learners_is_one_screen():
    assert len(guide("course/README.md").splitlines()) <= 45
    assert len(guide("README.md").splitlines()) <= 75


def test_workflows_run_what_there_is():
    test, weekly = (yaml.safe_load(guide(f".github/workflows/{name}.yml")) for name in ("test", "versions"))
    assert test["jobs"]["test"]["steps"][-1]["run"].startswith("make test")
    rows = [row.name for row in (*versions.ROWS, versions.NEWEST)]
    assert weekly["jobs"]["versions"]["strategy"]["matrix"]["row"] == rows
    assert "schedule" in weekly[True]  # YAML reads the key `on` as true
    pythons = weekly["jobs"]["versions"]["steps"][1]["with"]["python-version"].split()
    assert {row.python for row in versions.ROWS} <= set(pythons)


def test_the_versions_are_written_between_their_marks():
    results = [
        versions.Result(versions.ROWS[0], "3.12.1", "2.11.0 0.26.0", "12 passed", 3.4, True),
        versions.Result(versions.ROWS[2], "3.13", "", "not run: this Python is not installed", 0.0, True),
    ]
    text = guide("docs/contributors.md")
    once = versions.written(text, results, "2026-01-02")
    assert "| 3.12.1 | 2.11.0 0.26.0 | exercises, notebooks, check, verdict | 12 passed | 3 |" in once
    assert "| 3.13 | not run |" in once and "2026-01-02" in once
    assert versions.written(once, results, "2026-01-02") == once
    assert once.partition(versions.START)[0] == text.partition(versions.START)[0]
    assert once.partition(versions.END)[2] == text.partition(versions.END)[2]
    with pytest.raises(ValueError, match="has lost its marks"):
        versions.written("no marks", results, "2026-01-02")


def test_a_python_that_is_not_there_is_no_python():
    assert versions.interpreter("2.2") is None
    assert versions.interpreter(f"{versions.sys.version_info[0]}.{versions.sys.version_info[1]}")
