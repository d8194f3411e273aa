"""Notebooks in the sandboxed kernel: nbclient, a kernel manager and nbgrader's own commands run them behind the walls."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from test_sandbox import as_nobody

from autograder import exercises, gradebook, provisioner, sandbox, selftest
from autograder.build import write
from autograder.forkserver import CellResult, Result
from autograder.sample_class import reference_answers, submission

REPOSITORY = Path(__file__).resolve().parents[1]
NAME = provisioner.NAME

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces"),
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A place for kernels that Jupyter looks into; at the end, no process and no folder may be left."""
    prefix = tmp_path_factory.mktemp("prefix")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))
        yield prefix
    provisioner.close()
    assert [pid for pid in sandbox.descendants(os.getpid())[1:] if "autograder" in command(pid)] == []
    assert folders() == []


@pytest.fixture
def kernel(kernels):
    provisioner.install({}, str(kernels))


def command(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def folders():
    return list(Path(tempfile.gettempdir()).glob(f"{NAME}-{os.getpid()}-*"))


def execute(*cells, **settings):
    """Run cells in the kernel; returns what each printed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    settings = {"timeout": 60, "allow_errors": True} | settings
    NotebookClient(notebook, kernel_name=NAME, **settings).execute()
    return notebook.cells


def printed(cell):
    return "".join(output.get("text", "") for output in cell.outputs if output.get("name") == "stdout")


def raised(cell):
    return [output.ename for output in cell.outputs if output.output_type == "error"]


def test_a_notebook_runs_as_in_any_kernel(kernel):
    before = len(sandbox.descendants(os.getpid()))
    result, said, system, figure, error, random = execute(
        "40 + 2", "import sys; print('out'); print('err', file=sys.stderr)", "!echo from a program",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]);", "1 / 0",
        "import torch; print(torch.rand(1).item())",
    )  # fmt: skip
    assert result.outputs[0].data["text/plain"] == "42" and result.execution_count == 1
    assert sorted((o.name, o.text) for o in said.outputs) == [("stderr", "err\n"), ("stdout", "out\n")]
    assert printed(system).strip() == "from a program"
    assert "image/png" in figure.outputs[0].data
    assert raised(error) == ["ZeroDivisionError"] and "division" in error.outputs[0].evalue
    begin = time.monotonic()
    assert printed(execute("import torch; print(torch.rand(1).item())")[0]) != printed(random)
    assert time.monotonic() - begin < 4  # forked: importing torch alone takes that long
    assert len(sandbox.descendants(os.getpid())) > before  # the warm server waits for a next one
    assert folders() == []


# The others end a submission's process, for which a kernel has no second one, or look at what a kernel has of its own.
KEPT = ("network", "files", "privileges", "system calls", "processes: no other", "processes: a daemon")
WALLS = [wall for wall in selftest.walls() if wall.name.startswith(KEPT) and "nothing stays" not in wall.name]


def test_the_walls_of_the_grader_stand_around_the_kernel(kernels):
    provisioner.install(dataclasses.asdict(selftest.LIMITS), str(kernels))
    assert len(WALLS) > 8
    broken = []
    for wall in WALLS:
        attack, after = execute(wall.attack, "print('honest')")
        cells = (
            CellResult("attack", "error" if raised(attack) else "ok", output=printed(attack)),
            CellResult("after", "ok", output=printed(after)),
        )
        if not wall.holds(Result(cells, ())):
            broken.append((wall.name, attack.outputs))
    assert broken == []


def test_neither_the_answers_nor_the_judge_nor_a_server_of_this_machine_can_be_reached(kernel):
    solution = REPOSITORY / "solutions/01_basics/basics.py"
    assert solution.is_file()
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0underhood-test-{os.getpid()}")
        abstract.listen()
        cells = execute(
            f"open({str(solution)!r})",
            "import autograder.reference",
            "import autograder.chapters",
            f"import socket; socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 2)",
            f"s = socket.socket(socket.AF_UNIX); s.connect('\\0underhood-test-{os.getpid()}')",
            f"import glob\nprint(glob.glob('{tempfile.gettempdir()}/{NAME}*'))",
        )
    assert [raised(cell) for cell in cells] == [
        ["FileNotFoundError"], ["ModuleNotFoundError"], ["ModuleNotFoundError"], ["OSError"],
        ["ConnectionRefusedError"], [],
    ]  # fmt: skip
    assert printed(cells[-1]) == "[]\n"


def test_an_endless_loop_is_interrupted_and_the_next_cell_runs(kernel):
    timeout = {"ename": "CellTimeoutError", "evalue": "", "traceback": []}
    loop, after = execute(
        "while True: pass", "print('honest')", timeout=2, interrupt_on_timeout=True, error_on_timeout=timeout
    )
    assert "KeyboardInterrupt" in raised(loop)
    assert printed(after) == "honest\n"


def test_a_kernel_stays_below_its_limits_and_a_dead_one_is_dead_for_jupyter(kernels):
    provisioner.install({"memory_bytes": 200e6, "job_seconds": 6}, str(kernels))
    try:
        hog, after = execute("blocks = []\nwhile True: blocks.append(bytearray(b'x' * (16 << 20)))", "print('honest')")
        assert raised(hog) == ["MemoryError"] and printed(after) == "honest\n"
    except DeadKernelError:
        pass
    stubborn = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    for source in ("import os; os._exit(0)", stubborn):
        with pytest.raises(DeadKernelError):
            execute(source)
    assert folders() == []


def test_restart_and_shutdown(kernel):
    manager = KernelManager(kernel_name=NAME)
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)

    def value(expression):
        reply = client.execute_interactive("", user_expressions={"value": expression}, timeout=30)
        return reply["content"]["user_expressions"]["value"]["data"]["text/plain"]

    client.execute_interactive("x = 7; import subprocess; p = subprocess.Popen(['sleep', '60'])", timeout=30)
    assert value("x") == "7" and len(folders()) == 1
    child = manager.provisioner._child
    pids = sandbox.descendants(child._pid)
    assert len(pids) == 2
    manager.restart_kernel()
    client.wait_for_ready(timeout=60)
    assert value("'x' in globals()") == "False"
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    manager.shutdown_kernel(now=True)
    client.stop_channels()
    assert not manager.is_alive() and folders() == []


def test_a_folder_that_a_killed_process_left_is_swept(kernel):
    left = Path(tempfile.gettempdir(), f"{NAME}-4194305-left")  # above the largest process id
    left.mkdir(exist_ok=True)
    execute("1")
    assert not left.exists()


AS_NOBODY = """
import os, sys, tempfile
home = tempfile.mkdtemp()
os.environ.update(HOME=home, JUPYTER_PATH=home + "/share/jupyter", IPYTHONDIR=home)
sys.path.insert(0, "tests")
from nbclient.exceptions import DeadKernelError
from autograder import provisioner, sandbox
from test_provisioner import execute, printed
provisioner.install({"memory_bytes": 200e6}, home)
check = "print(check('broadcast_shape', lambda *shapes: None, hidden=True))"
who, verdict = execute("import os; print(os.getuid())", "from underhood import check; " + check)
print(printed(who), printed(verdict).split("points")[0])
fork = "if os.fork() == 0: b = bytearray(b'x' * (60 << 20)); time.sleep(20)"
try:
    execute("import os, time\\nfor i in range(6):\\n    " + fork + "\\ntime.sleep(20)")
except DeadKernelError:
    print("dead")
provisioner.close()
print(len(sandbox.descendants(os.getpid())))
"""


def test_an_ordinary_user_gets_the_same_kernel_and_its_memory_is_watched():
    finished = as_nobody([sys.executable, "-c", AS_NOBODY])
    expected = ["65534", "broadcast_shape", "0", "of", "4", "dead", "1"]
    assert finished.stdout.split() == expected, finished.stdout + finished.stderr


# --- nbgrader's own commands --------------------------------------------------------------------------------------------


def hand_in(copy, student, answers, opening=""):
    for stem, notebook in submission("01_basics", answers).items():
        if opening:
            notebook.cells.insert(1, nbformat.v4.new_code_cell(opening))
        path = copy / "autograder/class/submitted" / student / "01_basics" / f"{stem}.ipynb"
        write(path, nbformat.writes(notebook) + "\n")


THIEF = """
import glob, os
def found(root):
    return [os.path.join(place, name) for place, _, names in os.walk(root) for name in names
            if name in ("exercises.py", "alternatives.py", "gradebook.db") or name.endswith(".ipynb")]
print("STOLEN", found({root!r}), found("/tmp"), found("."), os.environ.get("NBGRADER_EXECUTION"))
"""


def test_nbgrader_grades_and_validates_in_the_sandbox(copy, run, kernels):
    chapter = "01_basics"
    most = float(sum(e.points for e in exercises(chapter)))
    hand_in(copy, "reference", reference_answers(chapter))
    hand_in(copy, "untouched", {})
    hand_in(copy, "thief", reference_answers(chapter), THIEF.format(root=str(copy)))
    done = run("nbgrader", "generate_assignment", chapter, "--force", "--create")
    assert done.returncode == 0, done.stderr[-3000:]

    sandboxed = ("env", "UNDERHOOD_SANDBOX=1", f"JUPYTER_PATH={kernels}/share/jupyter")
    shutil.rmtree(kernels / "share/jupyter/kernels", ignore_errors=True)
    if NAME not in KernelSpecManager().find_kernel_specs():
        done = run(*sandboxed, "nbgrader", "autograde", chapter)
        assert done.returncode == 1 and "python -m autograder kernel" in done.stderr
        assert "Traceback" not in done.stderr

    provisioner.install({}, str(kernels))
    done = run(*sandboxed, "nbgrader", "autograde", chapter)
    assert done.returncode == 0, done.stderr[-3000:]
    with gradebook.opened(f"sqlite:///{copy}/autograder/class/gradebook.db") as book:
        for student, points in {"reference": most, "untouched": 0.0, "thief": most}.items():
            found = book.find_submission(chapter, student)
            assert (found.score, found.max_score, found.needs_manual_grade) == (points, most, False), student
    (graded,) = (copy / "autograder/class/autograded/thief" / chapter).glob("*.ipynb")
    assert "STOLEN [] [] [] autograde" in json.dumps(json.loads(graded.read_text()))

    (source,) = (copy / "solutions" / chapter).glob("*.ipynb")
    done = run(*sandboxed, "nbgrader", "validate", str(source))
    assert done.returncode == 0 and "Success" in done.stdout + done.stderr, done.stderr[-3000:]


def test_the_command_installs_and_removes_the_kernel_and_names_a_wall_that_is_missing(run, tmp_path):
    words = (sys.executable, "-m", "autograder", "kernel", "--prefix", str(tmp_path))
    written = tmp_path / "share/jupyter/kernels" / NAME / "kernel.json"
    done = run("env", "PATH=/nowhere", *words)
    assert done.returncode == 2 and "bwrap is not installed" in done.stderr and not written.exists()
    assert "Traceback" not in done.stderr
    done = run(*words, "--limit", "memory_bytes=3e9")
    assert done.returncode == 0, done.stderr
    asked = json.loads(written.read_text())["metadata"]["kernel_provisioner"]
    assert asked == {"provisioner_name": NAME, "config": {"limits": {"memory_bytes": 3_000_000_000}}}
    assert run(*words, "--remove").returncode == 0 and not written.exists()
