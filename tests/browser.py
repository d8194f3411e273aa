"""A real JupyterLab in a real browser, for the tests: servers on free ports, Chromium through Playwright, people's gestures.

Gestures (menus, keys, buttons) go through the page, as a person's do; what a notebook holds is read from JupyterLab's own
model, because cells outside the window are not drawn.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

WAIT = 120.0  # seconds that a page or a server may take on a busy machine
SETTLE = 3.0  # seconds between "kernel idle" and Run All: the page opens the kernel's websocket three times in its first moments
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
# What other people's code says on the console on every visit, with the reason.
FOREIGN = (
    r"favicon",  # JupyterLab asks for one while the server still starts
    r"sandbox attribute",  # nbgrader shows the formgrader in an iframe
)


def chromium() -> str:
    """Path of Chromium; skips the test where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("Chromium is missing. Install it with: sudo apt-get install chromium fonts-dejavu-core")


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(what: str, done: Callable[[], Any], seconds: float = WAIT, every: float = 0.25) -> Any:
    """Ask until the answer is true, and return it.

    Raises
    ------
    TimeoutError
        After `seconds`, saying what was waited for.
    """
    end = time.monotonic() + seconds
    while True:
        if answer := done():
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(every)


@dataclass
class Server:
    """A running Jupyter server."""

    url: str  # with the base URL, without a slash at its end
    token: str
    folder: Path
    log: Path
    process: subprocess.Popen
    environment: dict[str, str] = field(repr=False)

    def get(self, path: str) -> Any:
        """The JSON that the server answers."""
        request = urllib.request.Request(f"{self.url}/{path}", headers={"Authorization": f"token {self.token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def up(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(
                f"The server ended with status {self.process.returncode}:\n{self.log.read_text()[-3000:]}"
            )
        try:
            # The server writes down where it really listens: where the port is taken it takes another one.
            written = Path(self.environment["JUPYTER_RUNTIME_DIR"]) / f"jpserver-{self.process.pid}.json"
            self.url = json.loads(written.read_text())["url"].rstrip("/")
            return "version" in self.get("api")
        except (urllib.error.URLError, OSError, ValueError):
            return False

    def address(self, path: str, workspace: str = "") -> str:
        """The URL that opens a file (or nothing) in JupyterLab, logged in, in a workspace of its own."""
        tree = f"/tree/{quote(path)}" if path else ""
        return f"{self.url}/lab/workspaces/{workspace or secrets.token_hex(4)}{tree}?token={self.token}"


def private(home: Path, *packages: Path) -> dict[str, str]:
    """An environment in which Jupyter reads and writes nothing of the person's who runs the tests."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("JUPYTER", "UNDERHOOD"))}
    return kept | {
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
        "MPLCONFIGDIR": str(home / "matplotlib"),
        "PATH": programs,
        "PYTHONPATH": os.pathsep.join(map(str, packages)),
    }


@contextlib.contextmanager
def serve(
    folder: Path,
    environment: dict[str, str],
    *options: str,
    base_url: str = "/",
    port: int | None = None,
    command: tuple[str, ...] = (sys.executable, "-m", "jupyter", "lab"),
) -> Iterator[Server]:
    """Start a server in `folder` on a free port, wait until it answers, and end it at the end."""
    port, token = port or free_port(), secrets.token_hex(16)
    log = Path(environment["HOME"]) / f"server-{port}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [
        *command,
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.base_url={base_url}",
        "--LabApp.expose_app_in_browser=True",
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
        *options,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        server = Server("", token, folder, log, process, environment)
        wait_for("the Jupyter server", server.up)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window, with a profile that is thrown away."""
    program = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(FLAGS), headless=True)
        try:
            yield running
        finally:
            running.close()


class Lab:
    """One JupyterLab page: gestures, and what the page said or asked for meanwhile."""

    def __init__(self, browser: Any, server: Server, shots: Path) -> None:
        self.server, self.shots = server, shots
        self.context = browser.new_context(viewport={"width": 1360, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT * 1000)
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(f"page error: {error}"))
        self.context.on("request", self._request)

    def _console(self, message: Any) -> None:
        text = f"{message.text} ({message.location.get('url', '')})"
        if message.type == "error" and not any(re.search(pattern, text) for pattern in FOREIGN):
            self.errors.append(text)

    def _request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in ("127.0.0.1", "localhost"):
            self.outside.append(request.url)

    def close(self) -> None:
        self.context.close()

    def shot(self, name: str) -> Path:
        """Take a picture of the page."""
        self.shots.mkdir(parents=True, exist_ok=True)
        path = self.shots / f"{name}.png"
        self.page.screenshot(path=str(path))
        return path

    # --- notebooks ----------------------------------------------------------------------------------------------------

    def open(self, path: str, settle: float = SETTLE) -> None:
        """Open a notebook by its URL and wait until its kernel can take a Run All."""
        self.page.goto(self.server.address(path))
        self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell").first.wait_for()
        wait_for("the kernel", lambda: self._ask("w => w.sessionContext.session?.kernel?.status") == "idle")
        self.page.wait_for_timeout(settle * 1000)

    def _ask(self, function: str, *arguments: Any) -> Any:
        """What a JavaScript function answers on the notebook in front."""
        return self.page.evaluate(
            f"given => ({function})(window.jupyterapp.shell.currentWidget, ...given)", list(arguments)
        )

    def cells(self) -> list[dict[str, Any]]:
        """The notebook's cells as JupyterLab holds them."""
        return self._ask("w => w.content.model.toJSON().cells")

    def busy(self) -> bool:
        """Whether a cell waits or runs."""
        return self._ask(
            "w => w.sessionContext.session?.kernel?.status !== 'idle'"
            " || w.content.widgets.some(c => c.model.type === 'code' && c.model.executionState === 'running')"
            " || w.content.widgets.some(c => c.model.type === 'code' && c.promptNode?.textContent?.includes('[*]'))"
        )

    def menu(self, name: str, item: str) -> None:
        """Choose an item of the menu bar."""
        self.page.locator(".lm-MenuBar-item", has_text=re.compile(f"^{name}$")).click()
        self.page.locator(".lm-Menu-item", has_text=re.compile(f"^{re.escape(item)}")).first.click()

    def run_all(self, seconds: float = 240) -> list[dict[str, Any]]:
        """Run All Cells, wait until the last one is done; returns the cells."""
        self.menu("Run", "Run All Cells")
        last = "w => w.content.widgets.filter(c => c.model.type === 'code' && c.model.sharedModel.getSource().trim())"
        wait_for("Run All", lambda: self._ask(f"w => ({last})(w).at(-1).model.executionCount > 0"), seconds)
        wait_for("the kernel to rest", lambda: not self.busy(), seconds)
        return self.cells()

    def save(self) -> None:
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+s")
        wait_for("the notebook to be saved", lambda: not self._ask("w => w.context.model.dirty"))

    def shut_down(self) -> None:
        """End the kernel of the notebook in front, if there is one."""
        self._ask("async w => { await w?.sessionContext?.shutdown(); return true }")

    def show(self, grade_id: str) -> Any:
        """Scroll to a graded cell, make it the active one, and return where it is."""
        index = next(i for i, c in enumerate(self.cells()) if grade_of(c) == grade_id)
        self._ask("(w, i) => { w.content.activeCellIndex = i; w.content.scrollToItem(i, 'center') }", index)
        cell = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell.jp-mod-active")
        cell.wait_for()
        return cell

    def type_into(self, grade_id: str, source: str) -> None:
        """Replace a cell's text by typing."""
        cell = self.show(grade_id)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)

    def run_cell(self, grade_id: str) -> dict[str, Any]:
        """Shift+Enter on a cell; returns it when it has run."""
        self.show(grade_id).locator(".cm-content").click()
        before = next(c for c in self.cells() if grade_of(c) == grade_id).get("execution_count")

        def found() -> dict[str, Any]:
            return next(c for c in self.cells() if grade_of(c) == grade_id)

        self.page.keyboard.press("Shift+Enter")
        wait_for(f"cell {grade_id}", lambda: found()["execution_count"] not in (None, before) and not self.busy())
        return found()


def grade_of(cell: dict[str, Any]) -> str:
    """The cell's grade_id, or ""."""
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def failures(cells: list[dict[str, Any]]) -> list[str]:
    """One line for each cell that ended in an error."""
    found = []
    for number, cell in enumerate(cells):
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                found.append(f"cell {number}: {output['ename']}: {output['evalue'][:300]}")
    return found


def shown_points(cells: list[dict[str, Any]]) -> dict[str, float]:
    """What each graded cell's last expression shows, by grade_id."""
    found = {}
    for cell in cells:
        if cell["metadata"].get("nbgrader", {}).get("grade"):
            for output in cell.get("outputs", []):
                if output["output_type"] == "execute_result":
                    found[grade_of(cell)] = float("".join(output["data"]["text/plain"]))
    return found


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """A home folder that is thrown away; its path is short, as sockets' paths must be."""
    with tempfile.TemporaryDirectory(prefix="uh", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
