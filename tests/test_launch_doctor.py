"""The doctor and bad surroundings: each trouble gets one clear sentence with the next step, and an exit status."""

from __future__ import annotations

import copy as copies
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from browser import free_port, home, private, serve

import underhood.doctor  # noqa: F401 - the name underhood.doctor is the function
from autograder import build
from autograder.chapters import COURSE, ROOT, text_sources

doctor = sys.modules["underhood.doctor"]
PACKAGES = Path(next(p for p in sys.path if p.endswith("site-packages")))


def released(chapter):
    """(notebook as the doctor reads it, its slots) of the chapter's first notebook."""
    path = sorted((COURSE / chapter).glob("*.ipynb"))[0]
    return doctor.read(path), doctor.releases()[f"{chapter}/{path.name}"]


def cell_of(notebook, grade_id):
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def answered(notebook, slot):
    """Type an answer that can be told from the stub."""
    cell = cell_of(notebook, slot.grade_id)
    cell["source"] = f"def {slot.name}(*given):\n    first = 41\n    return first + 1"
    return cell


# --- notebooks --------------------------------------------------------------------------------------------------------


def test_the_record_of_graded_cells_is_what_the_build_writes(chapter, tmp_path):
    (tmp_path / "course").mkdir()
    shutil.copytree(COURSE / chapter, tmp_path / "course" / chapter)
    assert build.marks(chapter, tmp_path).read_bytes() == (doctor.RECORDED / f"{chapter}.json").read_bytes()
    text = (doctor.RECORDED / f"{chapter}.json").read_text(encoding="utf-8")
    assert "def " not in text and "raise" not in text


def test_an_untouched_and_an_answered_copy_are_intact(chapter):
    notebook, slots = released(chapter)
    assert doctor.damages(notebook, slots) == []
    for slot in slots:
        if not slot.locked:
            answered(notebook, slot)
    notebook["cells"].insert(3, {"cell_type": "code", "metadata": {}, "source": "mine = 1"})
    assert doctor.damages(notebook, slots) == []
    assert doctor.release_of(notebook).startswith(chapter)


def copied(notebook, slot):
    cell = answered(notebook, slot)
    at = notebook["cells"].index(cell)
    notebook["cells"].insert(at, copies.deepcopy(cell) | {"source": f"def {slot.name}(*given): return 'an older try'"})


def copied_check(notebook, slot):
    answered(notebook, slot)
    cell = cell_of(notebook, f"{slot.grade_id}-check")
    notebook["cells"].append(copies.deepcopy(cell))


def split(notebook, slot):
    cell = answered(notebook, slot)
    at = notebook["cells"].index(cell)
    lines = cell["source"].splitlines()
    cell["source"] = "\n".join(lines[:2])
    notebook["cells"].insert(at + 1, copies.deepcopy(cell) | {"source": lines[2]})


def deleted(notebook, slot):
    answered(notebook, slot)
    notebook["cells"].remove(cell_of(notebook, f"{slot.grade_id}-check"))


def retyped(notebook, slot):
    cell = answered(notebook, slot)
    cell["metadata"] = {}
    cell["id"] = "typed-anew"


def edited_check(notebook, slot):
    answered(notebook, slot)
    cell_of(notebook, f"{slot.grade_id}-check")["source"] = "4.0  # full marks"


def edited_marks(notebook, slot):
    answered(notebook, slot)
    cell_of(notebook, f"{slot.grade_id}-check")["metadata"]["nbgrader"]["points"] = 400


CASES = {
    copied: ("copied", "is there 2 times"),
    copied_check: ("copied", "is there 2 times"),
    split: ("split", "Merge Selected Cells"),
    deleted: ("deleted", "was deleted"),
    retyped: ("retyped", "typed into a new cell"),
    edited_check: ("edited", "it is graded as released"),
    edited_marks: ("edited", "marks on the cell check("),
}


@pytest.mark.parametrize("harm", CASES, ids=lambda harm: harm.__name__)
def test_what_happened_to_a_graded_cell_is_named_and_mended(chapter, harm, tmp_path, capsys):
    notebook, slots = released(chapter)
    for slot in [s for s in slots if not s.locked][::2]:
        changed = copies.deepcopy(notebook)
        harm(changed, slot)
        kind, words = CASES[harm]
        found = doctor.damages(changed, slots)
        assert [d.kind for d in found] == [kind], found
        assert slot.grade_id in found[0].grade_id and words in found[0].sentence
        better = doctor.mended(changed, slots)
        for cell in better["cells"]:
            cell["source"] = "".join(cell["source"])
        assert doctor.damages(better, slots) == []
        assert (
            "first = 41" in cell_of(better, slot.grade_id)["source"]
            and "return first + 1" in cell_of(better, slot.grade_id)["source"]
        )
        assert ("an older try" in json.dumps(better)) == ("an older try" in json.dumps(changed))
    path = tmp_path / "my own folder ü" / "basics.ipynb"
    path.parent.mkdir()
    path.write_text(json.dumps(changed), encoding="utf-8")
    assert doctor.main([str(path)]) == 1
    assert words in (said := capsys.readouterr().out) and f'python -m underhood --mend "{path}"' in said
    assert doctor.main(["--mend", str(path)]) == 0
    mended = nbformat.read(path.with_name("basics.mended.ipynb"), 4)
    nbformat.validate(mended)
    assert len({cell.id for cell in mended.cells}) == len(mended.cells)
    capsys.readouterr()
    doctor.main([str(path.with_name("basics.mended.ipynb"))])
    assert f"{len(slots)} of {len(slots)} graded cells intact" in capsys.readouterr().out


def test_a_deleted_answer_cell_comes_back_as_an_empty_one(chapter):
    notebook, slots = released(chapter)
    slot = next(s for s in slots if not s.locked)
    notebook["cells"].remove(cell_of(notebook, slot.grade_id))
    assert [d.kind for d in doctor.damages(notebook, slots)] == ["deleted"]
    better = doctor.mended(notebook, slots)
    ids = [c["metadata"].get("nbgrader", {}).get("grade_id") for c in better["cells"]]
    assert ids.index(slot.grade_id) < ids.index(f"{slot.grade_id}-check")


def test_a_notebook_that_is_not_ours_and_a_file_that_is_none(tmp_path, capsys):
    other = tmp_path / "other.ipynb"
    other.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    assert doctor.main([str(other)]) == 1
    assert "none of the course's graded cells. Next step:" in capsys.readouterr().out
    for content in ("", "[1]", '{"cells": 3}', '{"cells": [3]}'):
        other.write_text(content)
        assert doctor.main([str(other)]) == 1
        assert "is not a notebook. Next step:" in capsys.readouterr().out
    assert doctor.main([str(tmp_path / "nowhere.ipynb")]) == 1
    assert "cannot be read (No such file or directory). Next step:" in capsys.readouterr().out
    assert doctor.main(["--mend", str(other)]) == 2
    assert "is not a notebook" in capsys.readouterr().err


def test_wrong_use_and_help(capsys):
    for words in (["--fix"], ["--mend"], ["a.ipynb", "--mend"]):
        assert doctor.main(words) == 2
        assert "Next step: python -m underhood --help" in capsys.readouterr().err
    assert doctor.main(["--help"]) == 0
    assert "--mend basics.ipynb" in capsys.readouterr().out


# --- the machine ------------------------------------------------------------------------------------------------------


@pytest.fixture
def packages(tmp_path):
    """Make a folder of links to the installed packages, without some; returns what runs Python on it."""

    def make(*without, **added):
        folder = tmp_path / "packages"
        folder.mkdir()
        for path in PACKAGES.iterdir():
            name = path.name.lower().partition("-")[0].partition(".")[0]
            if name not in without and not path.name.endswith(".pth"):
                (folder / path.name).symlink_to(path)
        for name, text in added.items():
            path = folder / name.replace("__dist", ".dist-info/METADATA").replace("__init", "/__init__.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        def python(*words):
            places = os.pathsep.join([str(COURSE), str(folder)])
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONHOME"} | {"PYTHONPATH": places}
            command = [sys.executable, "-S", *words]
            return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

        return python

    return make


def metadata(name, version, *requires):
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(
        f"Requires-Dist: {r}\n" for r in requires
    )


def test_a_good_machine_has_status_0(tmp_path):
    shutil.copytree(COURSE / "01_basics", tmp_path / "01_basics")
    environment = os.environ | {"PYTHONPATH": str(COURSE)}
    command = [sys.executable, "-m", "underhood"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "graded cells intact" in done.stdout and done.stdout.endswith("Everything is fine.\n")
    for word in ("Python ", "torch ", "threads ", "CPU ", "memory "):
        assert f"\n{word}" in f"\n{done.stdout}"


def test_missing_torch(packages):
    python = packages("torch", "torchvision")
    done = python("-m", "underhood")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert 'Next step: pip install "torch>=2.11,<2.15" "torchvision>=0.26,<0.30"' in done.stdout
    done = python("-c", "import ipykernel, underhood")  # as in a notebook's first cell
    assert done.stdout.count("\n") == 1 and "torch missing" in done.stdout and "Next step: pip install" in done.stdout


def test_torchvision_for_another_torch(packages):
    python = packages("torch", "torchvision", torch__dist=metadata("torch", "2.14.1+cpu"),
                      torchvision__dist=metadata("torchvision", "0.28.0", "numpy", "torch==2.13.0"))  # fmt: skip
    done = python("-m", "underhood")
    wanted = "torchvision 0.28.0 was built for torch 2.13.0, and this is torch 2.14.1+cpu. "
    wanted += 'Next step: pip install "torch==2.13.0"\n'
    assert done.returncode == 1 and wanted in done.stdout
    assert python("-c", "import ipykernel, underhood").stdout == wanted
    assert python("-c", "import os; os.environ['UNDERHOOD_GRADING'] = '1'; import ipykernel, underhood").stdout == ""


def test_torchvision_that_does_not_start_with_this_torch(packages):
    broken = "raise RuntimeError('operator torchvision::nms does not exist')"
    python = packages("torch", "torchvision", torch__dist=metadata("torch", "2.13.0+cpu"), torch__init="",
                      torchvision__dist=metadata("torchvision", "0.28.0", "torch==2.13.0"), torchvision__init=broken)  # fmt: skip
    done = python("-m", "underhood")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert (
        "torchvision is installed and does not start (RuntimeError: operator torchvision::nms does not exist)"
        in done.stdout
    )
    assert "pip install --force-reinstall torch torchvision" in done.stdout


def test_a_package_outside_its_range(packages):
    python = packages("tqdm", tqdm__dist=metadata("tqdm", "3.0"), tqdm__init="")
    done = python("-m", "underhood")
    assert done.returncode == 1 and 'Next step: pip install "tqdm>=4.66,<5"' in done.stdout


@pytest.mark.parametrize("version", ["3.8", "3.10"])
def test_an_old_python(version, tmp_path):
    """The real thing where that Python is installed, a claimed version number otherwise."""
    program = shutil.which(f"python{version}")
    if program and subprocess.run([program, "--version"], capture_output=True).returncode == 0:
        command, claimed = [program, "-m", "underhood"], ""
    else:
        claimed = f"sys.version_info = ({version.replace('.', ', ')}, 1, 'final', 0)"
        command = [sys.executable, "-c", f"import sys; {claimed}; import underhood"]
    environment = os.environ | {"PYTHONPATH": str(COURSE)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "needs Python 3.11, 3.12 or 3.13" in last and f"this is Python {version}" in last and "Next step:" in last


@pytest.mark.parametrize("version", ["3.9", "3.14"])
def test_make_refuses_a_python_that_is_too_old_or_too_new(copy, version):
    claimed = f"sys.version_info = ({version.replace('.', ', ')}, 1)"
    old = copy / "another python"
    old.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import sys; {claimed}; exec(sys.argv[1])' \"$2\"\n")
    old.chmod(0o755)
    done = subprocess.run(["make", "start", f"PYTHON='{old}'"], cwd=copy, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and f"Python {version} is too old or too new" in done.stdout + done.stderr
    assert "make start PYTHON=python3.12" in done.stdout + done.stderr
    assert not (copy / ".venv").exists()


def test_make_without_the_python_that_was_named(copy):
    done = subprocess.run(["make", "start", "PYTHON=python3.99"], cwd=copy, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "python3.99 does not start. Next step: install Python 3.11, 3.12 or 3.13" in done.stdout
    assert not (copy / ".venv").exists()


@pytest.mark.parametrize("why", ["a colon in the folder's name", "a folder that cannot be written"])
def test_make_where_no_environment_can_be_made(copy, tmp_path, why):
    """The first by Python itself, which refuses it; the second claimed, since root may write anywhere."""
    folder, python = tmp_path / "course", sys.executable
    if why.startswith("a colon"):
        folder = tmp_path / "a:b"
    else:
        python = tmp_path / "python"
        python.write_text(
            "#!/bin/sh\n"
            f'test "$2" = venv && {{ echo "Error: [Errno 30] Read-only file system: $3" >&2; exit 1; }}\n'
            f'exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
    folder.mkdir()
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(copy / name, folder)
    command = ["make", "start", f"PYTHON={python}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert (
        f"The environment could not be made in {folder}/.venv: the lines above say why. Next step: copy" in done.stdout
    )
    assert ("PATH separator" if why.startswith("a colon") else "Read-only file system") in done.stderr + done.stdout
    assert "Installing what the course needs" not in done.stdout


@pytest.mark.slow
def test_make_without_a_network(copy):
    nowhere = f"http://127.0.0.1:{free_port()}/simple"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    environment = kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": nowhere,
        "PIP_RETRIES": "0",
        "PIP_NO_CACHE_DIR": "1",
    }
    command = ["make", "start", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "The packages could not be installed" in said and "Next step: check the network" in said
    shutil.rmtree(copy / ".venv")


def test_a_folder_that_cannot_be_written():
    assert doctor.writable(Path("/proc")).startswith("Nothing can be saved in /proc (")
    assert "Next step: copy the course's folder to your home folder" in doctor.writable(Path("/proc"))
    assert doctor.writable(ROOT) == ""


def test_little_memory(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(doctor, "memory", lambda: (0.4, 2.0))
    monkeypatch.chdir(tmp_path)
    assert doctor.doctor() is False
    assert "Less than 1.5 GB of memory are free. Next step: close other notebooks" in capsys.readouterr().out


def test_in_a_notebook_the_doctor_looks_at_that_notebook(chapter, monkeypatch, capsys, tmp_path):
    path = tmp_path / "a copy.ipynb"
    notebook, slots = released(chapter)
    deleted(notebook, next(s for s in slots if not s.locked))
    path.write_text(json.dumps(notebook))
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    assert doctor.doctor() is False
    assert f"{len(slots) - 1} of {len(slots)} graded cells intact" in capsys.readouterr().out


@pytest.mark.slow
def test_a_port_in_use_is_no_obstacle(tmp_path):
    import socket

    with home() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serve(tmp_path, private(folder, COURSE), "--ServerApp.port_retries=50", port=port) as server:
            log = server.log.read_text()
            assert f"The port {port} is already in use, trying another port." in log
            assert server.url != f"http://127.0.0.1:{port}"


def test_a_path_with_spaces_and_other_letters(chapter, tmp_path, capsys):
    folder = tmp_path / "Kurs für alle" / "Kapitel ∂"
    shutil.copytree(COURSE / chapter, folder)
    for path in sorted(folder.glob("*.ipynb")):
        doctor.main([str(path)])
        assert "graded cells intact" in capsys.readouterr().out
    assert [p.stem for p in doctor.notebooks(tmp_path)] == sorted(p.stem for p in text_sources(chapter))
