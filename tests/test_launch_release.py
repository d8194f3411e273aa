"""The learners' zip: complete, without anything of the grader's, and at work in a fresh environment."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autograder import package
from autograder.chapters import COURSE, ROOT, chapters, text_sources

# Runs a notebook in the environment that asks, and prints [errors, points by grade_id].
RUN_ALL = """
import json, sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=300, kernel_name="python3", allow_errors=True).execute()
outputs = [(c, o) for c in notebook.cells if c.cell_type == "code" for o in c.outputs]
errors = [o.evalue for _, o in outputs if o.output_type == "error"]
graded = [(c.metadata.nbgrader.grade_id, o) for c, o in outputs if c.metadata.get("nbgrader", {}).get("grade")]
print(json.dumps([errors, {name: o.data["text/plain"] for name, o in graded if o.output_type == "execute_result"}]))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return package.package(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def unpacked(archive, tmp_path_factory):
    """The zip's folder, in a folder with a space and an umlaut in its name."""
    to = tmp_path_factory.mktemp("Übungen im Herbst")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(to)
    return next(to.iterdir())


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_zip_is_the_same_every_time(archive, tmp_path):
    assert package.package(tmp_path).read_bytes() == archive.read_bytes()
    assert archive.stat().st_size < 20 * 2**20


def test_every_notebook_is_in_it_as_released(chapter, unpacked):
    for source in text_sources(chapter):
        name = f"{chapter}/{source.stem}.ipynb"
        assert (unpacked / name).read_bytes() == (COURSE / name).read_bytes()
    assert (unpacked / f"underhood/recorded/{chapter}.json").is_file()
    assert (unpacked / f"underhood/recorded/notebooks/{chapter}.json").is_file()


def test_nothing_of_the_graders_is_in_it(unpacked):
    found = files(unpacked)
    assert {name.partition("/")[0] for name in found} == {"LICENSE", "README.md", "pyproject.toml", "requirements.txt",
                                                          "underhood", *chapters()}  # fmt: skip
    assert not [name for name in found if "autograder" in name or "solution" in name or "exercises.py" in name]
    for name, data in found.items():
        if not name.endswith(".npz"):
            text = data.decode("utf-8")
            assert "BEGIN HIDDEN" not in text
            assert "### BEGIN SOLUTION\\n" not in text


def test_the_requirements_are_the_repositorys_and_the_helper(unpacked):
    lines = [line for line in (unpacked / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    whole = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert set(lines) - set(whole) == {"."} and {line.split(">")[0] for line in set(whole) - set(lines)} == {"jupytext"}


def test_the_readme_names_what_is_there(unpacked):
    text = (unpacked / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 50
    for name in ("requirements.txt", "01_basics/basics.ipynb", "underhood/data/README.md"):
        assert name in text and (unpacked / name).is_file()


def test_what_must_not_leave_stops_the_release(copy):
    path = sorted((copy / "course" / chapters()[0]).glob("*.ipynb"))[0]
    before = path.read_text(encoding="utf-8")
    notebook = json.loads(before)
    code = next(c for c in notebook["cells"] if c["cell_type"] == "code")
    code["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "mine\n"}]
    path.write_text(json.dumps(notebook))
    with pytest.raises(ValueError, match="has outputs: somebody worked in it. Next step: make course"):
        package.contents(copy)
    path.write_text(before.replace("raise NotImplementedError", "### BEGIN SOLUTION"))
    with pytest.raises(ValueError, match="holds 'BEGIN SOLUTION'"):
        package.contents(copy)


@pytest.mark.slow
def test_it_works_in_a_fresh_environment(unpacked, tmp_path):
    """pip installs the folder for real; what it needs is lent from this environment, which has it in the same ranges."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    site = next((folder / "lib").glob("python3.*")) / "site-packages"
    for path in Path(str(importlib.metadata.distribution("numpy").locate_file(""))).iterdir():
        ours = path.name.endswith(".pth") or "underhood" in path.name or path.name.startswith(("pip", "setuptools"))
        if not ours and not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JUPYTER", "VIRTUAL"))}
    environment |= {"JUPYTER_DATA_DIR": str(tmp_path / "data"), "IPYTHONDIR": str(tmp_path / "ipython")}

    def python(*words):
        command = [str(folder / "bin/python"), *words]
        return subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True, timeout=500)

    done = python("-m", "pip", "install", "--quiet", "-r", "requirements.txt")
    assert done.returncode == 0, done.stderr[-3000:]
    done = python("-m", "underhood")
    assert done.returncode == 0 and "Everything is fine." in done.stdout, done.stdout
    assert done.stdout.count("graded cells intact") == sum(len(text_sources(chapter)) for chapter in chapters())
    done = python("-I", "-c", "import autograder")
    assert "No module named 'autograder'" in done.stderr
    name = f"{chapters()[0]}/{text_sources(chapters()[0])[0].stem}.ipynb"
    run_all = tmp_path / "run_all.py"
    run_all.write_text(RUN_ALL)
    done = python(str(run_all), name)
    errors, points = json.loads(done.stdout.strip().splitlines()[-1])
    assert errors == [] and points and set(points.values()) == {"0.0"}
