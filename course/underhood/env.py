"""What this machine runs: versions against the course's ranges, threads, and the CPU features that change results."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from dataclasses import dataclass

# The course's ranges: at least the first, below the second. pyproject.toml names the same; a test compares them.
PYTHON = ((3, 11), (3, 14))
RANGES = {
    "numpy": ((2, 0, 2), (2, 5)),
    "scipy": ((1, 16), (1, 18)),
    "matplotlib": ((3, 10), (3, 12)),
    "tqdm": ((4, 66), (5,)),
    "torch": ((2, 11), (2, 15)),
    "torchvision": ((0, 26), (0, 30)),
}
# AVX-512 VNNI and AVX-VNNI add four products in 32 bits; without them quantized kernels saturate in 16 (chapter 4).
CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "asimddp")


@dataclass(frozen=True)
class Package:
    """A package, the version found (None where missing), and the range asked for."""

    name: str
    version: str | None
    wanted: str
    fits: bool


def _parsed(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d+", version.split("+")[0])[:3])


def packages() -> list[Package]:
    """The course's packages, with whether each is in range."""
    found = []
    for name, (low, high) in RANGES.items():
        wanted = f">={'.'.join(map(str, low))},<{'.'.join(map(str, high))}"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found.append(Package(name, None, wanted, False))
            continue
        found.append(Package(name, version, wanted, low <= _parsed(version) < high))
    return found


def cpu_flags() -> tuple[str, ...]:
    """The CPU features among `CPU_FLAGS` that this machine reports (Linux only, otherwise empty)."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            words = set(file.read().split())
    except OSError:
        return ()
    return tuple(flag for flag in CPU_FLAGS if flag in words)


def environment() -> bool:
    """Print what this machine runs, and whether the course's ranges are met; returns whether they are."""
    python = PYTHON[0] <= sys.version_info[:2] < PYTHON[1]
    print(f"Python      {platform.python_version():<14} {'ok' if python else 'outside 3.11 to 3.13'}")
    found = packages()
    for package in found:
        state = "ok" if package.fits else f"wanted {package.wanted}"
        print(f"{package.name:<11} {package.version or 'missing':<14} {state}")
    torch = sys.modules.get("torch")
    threads = f"{torch.get_num_threads()} in torch, " if torch else ""
    print(f"threads     {threads}{os.cpu_count()} cores")
    print(f"CPU         {platform.machine()} {' '.join(cpu_flags())}".rstrip())
    wrong = [package for package in found if not package.fits]
    if not python:
        print("Next step: install Python 3.11, 3.12 or 3.13 and start again from it.")
    if wrong:
        names = " ".join(f'"{package.name}{package.wanted}"' for package in wrong)
        print(f"Next step: pip install {names}")
    return python and not wrong
