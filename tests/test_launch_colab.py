"""Colab and the badges: one setting, the same install line everywhere, and what that line does to an environment."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

import underhood
from autograder import badges, chapters, exercises
from autograder.chapters import COURSE, ROOT, text_sources
from underhood.env import PYTHON, RANGES, _parsed

# Read from Colab's public lists of what its images hold: (Python, packages).
PAIR = {"torch": "2.11.0", "torchvision": "0.26.0", "scipy": "1.16.3", "matplotlib": "3.10.0"}
COLAB = {"current": ("3.13.15", PAIR | {"numpy": "2.1.3"}), "2026.07": ("3.12.13", PAIR | {"numpy": "2.0.2"})}


def first_code(chapter):
    """(path in the repository, source of the first code cell) of each released notebook of the chapter."""
    for path in sorted((COURSE / chapter).glob("*.ipynb")):
        notebook = nbformat.read(path, 4)
        yield path.relative_to(ROOT).as_posix(), next(c.source for c in notebook.cells if c.cell_type == "code")


def tracked() -> set[str]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    return set(names.stdout.splitlines())


STALE = "run: python -m autograder.badges, then make course"


def test_the_notebooks_name_the_place_of_the_setting(chapter):
    for path in text_sources(chapter):
        text = path.read_text(encoding="utf-8")
        assert text == badges.guarded(text, badges.place()) and badges.place().guard in text, STALE


def test_the_readme_is_up_to_date():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == badges.readme(text, badges.place()), STALE


def test_no_other_address_of_the_course_is_written_down():
    where = badges.place()
    for name in ("README.md", "docs/contributors.md", "docs/instructors.md", "autograder/README.md"):
        text = (ROOT / name).read_text(encoding="utf-8") if (ROOT / name).is_file() else ""
        for found in re.findall(r"github\.com/[\w.-]+/[\w.-]+|mybinder\.org/v2/gh/[\w.-]+/[\w.-]+/[\w.-]+", text):
            assert f"{where.organization}/{where.repository}" in found or "jupyter" in found, f"{name}: {found}"


def test_the_badges_lead_to_the_notebooks_of_the_repository(chapter):
    where = badges.place()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    released = [f"course/{chapter}/{source.stem}.ipynb" for source in text_sources(chapter)]
    assert released and tracked().issuperset(released)
    rows = [line for line in text.splitlines() if f"](course/{chapter}/" in line]
    assert len(rows) == len(released)
    for row, path in zip(rows, released, strict=True):
        colab, binder = (urlsplit(link) for link in re.findall(r"\]\((https://[^)\s]+)\)\s*\|", row))
        assert (colab.hostname, colab.query) == ("colab.research.google.com", "")
        assert colab.path == f"/github/{where.organization}/{where.repository}/blob/{where.tag}/{path}"
        assert binder.hostname == "mybinder.org"
        assert binder.path == f"/v2/gh/{where.organization}/{where.repository}/{where.tag}"
        assert "/" not in binder.query and unquote(unquote(binder.query)) == f"urlpath=lab/tree/{path}"
        every = exercises(chapter)
        assert f"| {len(every)} | {sum(e.minutes for e in every)} | {sum(e.points for e in every)} |" in row


def test_another_setting_reaches_every_place(chapter):
    other = replace(badges.place(), organization="some-school", repository="hood-2030", tag="v9.1")
    text = badges.readme((ROOT / "README.md").read_text(encoding="utf-8"), other)
    assert "under-the-hood-course" not in text
    assert "git clone https://github.com/some-school/hood-2030 && cd hood-2030" in text
    assert f"some-school/hood-2030/blob/v9.1/course/{chapter}/" in text
    assert f"/gh/some-school/hood-2030/v9.1?urlpath=lab%2Ftree%2Fcourse%2F{chapter}%2F" in text
    for source in text_sources(chapter):
        text = badges.guarded(source.read_text(encoding="utf-8"), other)
        assert text.count("hood-2030@v9.1#subdirectory=course") == 1 and "under-the-hood-course" not in text


def test_a_path_with_spaces_is_written_as_services_read_it():
    where = badges.Place("o", "r", "v1")
    assert where.colab("course/my notes/ä.ipynb").endswith("/o/r/blob/v1/course/my%20notes/%C3%A4.ipynb")
    assert where.binder("course/my notes/a.ipynb").endswith(
        "/o/r/v1?urlpath=lab%2Ftree%2Fcourse%2Fmy%2520notes%2Fa.ipynb"
    )


def test_a_wrong_setting_is_said_clearly(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.underhood]\norganization = "a b"\nrepository = "r"\ntag = "v1"\n')
    with pytest.raises(ValueError, match="'a b' is no name that GitHub gives"):
        badges.place(tmp_path)
    with pytest.raises(ValueError, match="has lost its marks"):
        badges.readme("# no table here\n", badges.place())


def test_the_first_cell_installs_the_helper_on_colab_and_nothing_else(chapter):
    for path, source in first_code(chapter):
        before, guard, after = source.partition(badges.place().guard)
        assert guard and "import sys\n" in before, path
        assert not re.search(r"(import|from) (numpy|torch|underhood)", before), "the package first, then what needs it"
        assert "pip" not in before + after and re.search(r"^from underhood ", after, flags=re.M)


@pytest.mark.parametrize("image", COLAB)
def test_what_colab_brings_is_in_range(image):
    python, versions = COLAB[image]
    assert PYTHON[0] <= _parsed(python)[:2] < PYTHON[1]
    for name, version in versions.items():
        assert RANGES[name][0] <= _parsed(version) < RANGES[name][1], f"{name} {version}"


# --- the first cell, executed -----------------------------------------------------------------------------------------

COLAB_SESSION = """
import sys, types
sys.modules["google.colab"] = types.ModuleType("google.colab")
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import builtins
builtins.get_ipython = lambda: shell
done = shell.run_cell(open(sys.argv[1], encoding="utf-8").read())
if not done.success:
    sys.exit(f"the first cell failed: {done.error_in_exec or done.error_before_exec!r}")
import os
import underhood
print("FROM", os.path.realpath(underhood.__file__))
print("EXERCISES", len(underhood.exercises()))
"""


@pytest.fixture(scope="module")
def published(copy):
    """git's settings under which the course's address leads to a repository made of the copy, tagged as the setting says."""
    where = badges.place()
    settings = {"user.name": "A", "user.email": "a@example.org", "commit.gpgsign": "false", "init.defaultBranch": "main",
                f"url.{copy.as_uri()}.insteadOf": where.address}  # fmt: skip
    environment = {"GIT_CONFIG_COUNT": str(len(settings)), "GIT_CONFIG_GLOBAL": os.devnull}
    for number, (key, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "published"], ["tag", where.tag]):
        subprocess.run(["git", *words], cwd=copy, env=os.environ | environment, check=True)
    return environment


@pytest.fixture(scope="module")
def colab(tmp_path_factory):
    """An environment with everything that is installed here but our own packages, as Colab has before the first cell."""
    folder = tmp_path_factory.mktemp("colab") / "env"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    site = next((folder / "lib").glob("python3.*")) / "site-packages"
    here = Path(str(importlib.metadata.distribution("numpy").locate_file("")))
    for path in here.iterdir():
        ours = (
            path.name.endswith(".pth") or "underhood" in path.name or path.name.startswith(("pip", "setuptools", "__"))
        )
        if not ours and not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    return folder


def freeze(folder, environment):
    command = [str(folder / "bin/python"), "-m", "pip", "freeze", "--all"]
    return set(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines())


@pytest.mark.slow
def test_the_first_cell_installs_exactly_the_helper(colab, published, tmp_path):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL", "JUPYTER"))}
    environment = (
        kept
        | published
        | {"IPYTHONDIR": str(tmp_path), "PATH": os.pathsep.join([str(colab / "bin"), os.environ["PATH"]])}
    )
    before = freeze(colab, environment)
    assert not any("underhood" in line for line in before) and any(line.startswith("torch==") for line in before)
    session = tmp_path / "session.py"
    session.write_text(COLAB_SESSION)
    path, source = next(first_code(chapters()[0]))  # the others begin with the same lines, as a test above says
    cell = tmp_path / "cell.py"
    cell.write_text(source, encoding="utf-8")
    command = [str(colab / "bin/python"), str(session), str(cell)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{path}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert f"EXERCISES {len(underhood.exercises())}" in done.stdout
    assert f"FROM {os.path.realpath(colab)}" in done.stdout
    added = freeze(colab, environment) - before
    assert freeze(colab, environment) >= before and len(added) == 1
    assert added.pop().startswith(f"underhood @ git+{badges.place().address}@")
    ask = "import importlib.util as u; print(u.find_spec('autograder'))"
    done = subprocess.run([str(colab / "bin/python"), "-I", "-c", ask], capture_output=True, text=True, cwd="/")
    assert done.stdout == "None\n"
