"""Run a notebook from the first cell to the last in a kernel of its own, and measure what it took. For trusted notebooks."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient

# Asked of the kernel after the last cell: CPU seconds, and MB that it needed at its peak. Not getrusage's ru_maxrss: that
# carries over what the process that started the kernel had used. Pages of libraries, which the system can drop and read
# again from their files, are left out: a torch that is built for GPUs maps half a gigabyte of them, one for CPUs next to none.
_USAGE = """import json as _j, time as _t
with open("/proc/self/status") as _s:
    _m = {_l.split()[0]: int(_l.split()[1]) for _l in _s if _l.endswith("kB\\n")}
print(_j.dumps([_t.process_time(), (_m["VmHWM:"] - _m["RssFile:"]) / 1024]))"""


@dataclass(frozen=True)
class Execution:
    """A notebook with its outputs, and what running it took."""

    notebook: nbformat.NotebookNode
    seconds: float
    cpu_seconds: float
    peak_megabytes: float


def execute(notebook: nbformat.NotebookNode, folder: Path, timeout: float = 180) -> Execution:
    """Run all cells, going on after an error as *Run All* does not: the outputs tell which cells failed.

    Parameters
    ----------
    notebook
        Not changed.
    folder
        The kernel's working folder.
    timeout
        Seconds for one cell.
    """
    notebook = nbformat.reads(nbformat.writes(notebook), 4)
    notebook.cells.append(nbformat.v4.new_code_cell(_USAGE))
    start = time.monotonic()
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    seconds = time.monotonic() - start
    cpu, peak = json.loads(notebook.cells.pop().outputs[0].text)
    return Execution(notebook, seconds, cpu, peak)


def errors(notebook: nbformat.NotebookNode) -> list[str]:
    """One line for every cell that ended in an error."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                found.append(f"cell {number}: {output.ename}: {output.evalue[:300]}")
    return found


def points(notebook: nbformat.NotebookNode) -> dict[str, float]:
    """What each graded cell's last expression shows, by grade_id; a cell that shows no number is left out."""
    found = {}
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("grade"):
            for output in cell.get("outputs", []):
                if output.output_type == "execute_result":
                    found[meta["grade_id"]] = float(output.data["text/plain"])
    return found
