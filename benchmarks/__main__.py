"""`make bench [ONLY=name]`: run the measurements, print one table, write `latest.json`."""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # one thread, before numpy and torch are imported

import argparse  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
import pkgutil  # noqa: E402
import platform  # noqa: E402
from importlib.metadata import version  # noqa: E402
from pathlib import Path  # noqa: E402

import benchmarks  # noqa: E402
from underhood.env import cpu_flags  # noqa: E402

LATEST = Path(__file__).parent / "latest.json"


def machine() -> str:
    """One line on the machine that measures."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scipy"))
    return f"{model}, {os.cpu_count()} cores, {' '.join(cpu_flags())}; Python {platform.python_version()}, {packages}"


def main() -> None:
    known = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_")]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("only", nargs="*", choices=[*known, []], help="these measurements only")
    chosen = parser.parse_args().only or known
    kept = [] if chosen == known or not LATEST.is_file() else json.loads(LATEST.read_text(encoding="utf-8"))
    for name in chosen:
        print(f"measuring {name} …", flush=True)
        fresh = importlib.import_module(f"benchmarks.{name}").rows()
        names = {row["name"] for row in fresh}
        kept = [row for row in kept if row["name"] not in names] + fresh
    kept = [row for row in kept if row["name"] != "machine"]
    kept.insert(0, {"name": "machine", "value": machine(), "unit": "", "reference": None, "ratio": None})
    LATEST.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    table(kept)


def table(rows: list[dict]) -> None:
    """Print the rows in columns."""
    print(f"\n{rows[0]['value']}\n")
    width = max(len(row["name"]) for row in rows)
    print(f"{'name':<{width}}  {'value':>12} {'unit':<22} {'reference':>12} {'ratio':>8}")
    for row in rows[1:]:
        cells = [_number(row[key]) for key in ("value", "reference", "ratio")]
        print(f"{row['name']:<{width}}  {cells[0]:>12} {row['unit']:<22} {cells[1]:>12} {cells[2]:>8}")


def _number(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
