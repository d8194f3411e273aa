"""Binder: repo2docker's own code reads the recipe; its steps are executed; every notebook runs."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import binder_recipe as binder
import pytest
from browser import Lab, browser, failures, grade_of, home, private, serve, shown_points

from autograder.chapters import COURSE, ROOT

MEMORY = 1600  # MB of the 2 GB that Binder gives


@pytest.fixture(scope="module")
def recipe(copy):
    return binder.recipe(copy)


def test_repo2docker_reads_the_recipe(recipe):
    assert (recipe.pack, recipe.python) == ("PythonBuildPack", "3.12")
    assert recipe.pip.endswith('pip install --no-cache-dir -r "binder/requirements.txt"')
    assert recipe.post_build == ["binder/postBuild"] and recipe.start == "${REPO_DIR}/binder/start"
    steps = [
        recipe.dockerfile.index(words) for words in (recipe.pip, "COPY --chown=1000:1000 src/ ", "./binder/postBuild")
    ]
    assert steps == sorted(steps), (
        "torch is installed before the course is copied: a new commit does not install it again"
    )
    assert recipe.pins["jupyterlab"].startswith("4.")


def test_the_requirements_are_self_contained_and_pinned_like_the_tests():
    assert not [line for line in binder.requirements(ROOT) if line.startswith(("-r", "-c", "-e", ".", "/", "git+"))]
    pinned = dict(line.split("==") for line in binder.requirements(ROOT) if "==" in line)
    assert pinned.pop("torch") == "2.11.0+cpu" and pinned.pop("torchvision") == "0.26.0+cpu"
    tested = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.M))
    assert pinned == {name: tested[name] for name in pinned}
    assert [line for line in binder.requirements(ROOT) if "==" not in line] == [f"--extra-index-url {binder.INDEX}"]
    assert {"numpy", "scipy", "matplotlib", "tqdm", "nbgrader"} == set(pinned)
    assert "jupyterlab" not in "".join(binder.requirements(ROOT)), "Binder brings its own"


def test_scripts_can_be_executed_and_read():
    for name in ("postBuild", "start"):
        path = ROOT / "binder" / name
        assert os.access(path, os.X_OK) and path.read_text().startswith("#!/bin/bash\n")
        assert subprocess.run(["bash", "-n", str(path)]).returncode == 0
    assert (ROOT / "binder/start").read_text().endswith('exec "$@"\n')
    assert sorted(p.name for p in (ROOT / "binder").iterdir()) == [
        "postBuild",
        "requirements.txt",
        "runtime.txt",
        "start",
    ]
    assert (ROOT / "binder/runtime.txt").read_text() == "python-3.12\n"


def test_the_helper_says_of_itself_what_the_repository_says():
    own = tomllib.loads((COURSE / "pyproject.toml").read_text())
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for key in ("name", "version", "description", "license", "requires-python", "dependencies"):
        assert own["project"][key] == whole["project"][key]
    assert own["tool"]["setuptools"]["package-data"] == whole["tool"]["setuptools"]["package-data"]


# --- the recipe's steps, executed -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(recipe, copy, tmp_path_factory):
    """A fresh environment with Binder's Jupyter, in which the recipe's commands were executed; its folder."""
    folder = tmp_path_factory.mktemp("binder") / "env"
    binder.build(recipe, copy, folder)
    return folder


@pytest.fixture(scope="module")
def server(environment, recipe, copy):
    """The server as Binder starts it: through binder/start, below a base URL, in the copy of the repository."""
    start = recipe.start.replace("${REPO_DIR}", str(copy))
    with home() as folder:
        settings = private(folder) | {"PATH": os.pathsep.join([str(environment / "bin"), "/usr/bin", "/bin"])}
        del settings["PYTHONPATH"]
        command = (start, str(environment / "bin/jupyter-lab"))
        with serve(copy, settings, base_url="/user/under-the-hood-ab12cd/", command=command) as running:
            peak = binder.Peak(running.process.pid)
            peak.start()
            yield running, peak
            peak.stop()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_environment_holds_the_helper_and_nothing_of_the_graders(environment):
    ask = "import importlib.util as u; print(bool(u.find_spec('underhood')), bool(u.find_spec('autograder')))"
    done = subprocess.run([environment / "bin/python", "-I", "-c", ask], capture_output=True, text=True, cwd="/")
    assert done.stdout == "True False\n", done.stderr
    done = subprocess.run([environment / "bin/pip", "check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_notebook_runs_on_binder(chapter, server, copy, tmp_path_factory, record_property):
    running, peak = server
    shots = Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    with browser() as chromium:
        lab = Lab(chromium, running, shots)
        for path in sorted((copy / "course" / chapter).glob("*.ipynb")):
            lab.open(path.relative_to(copy).as_posix())
            cells = lab.run_all()
            lab.shot(f"binder-{chapter}-{path.stem}")
            assert failures(cells) == []
            graded = [grade_of(c) for c in cells if c["metadata"].get("nbgrader", {}).get("grade")]
            assert graded and shown_points(cells) == dict.fromkeys(graded, 0.0)
            assert lab.page.get_by_role("button", name="Validate").first.is_visible()
            assert lab.page.locator(".lm-MenuBar-item", has_text="Nbgrader").count() == 0
            assert lab.page.get_by_text("Create Assignment").count() == 0
            assert lab.page.get_by_text("notified about official Jupyter news").count() == 0
            lab.shut_down()
        assert lab.errors == [] and lab.outside == []
        lab.close()
    record_property("peak_pss_megabytes", round(peak.megabytes))
    print(f"\npeak of the server and its kernel: {peak.megabytes:.0f} MB")
    assert 100 < peak.megabytes < MEMORY
