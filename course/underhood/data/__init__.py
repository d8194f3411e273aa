"""Small data sets that travel with the course. README.md in this folder names the source and licence of each."""

from __future__ import annotations

from importlib.resources import files

import numpy as np


def load(name: str) -> dict[str, np.ndarray]:
    """The arrays of `<name>.npz`, by name.

    Raises
    ------
    ValueError
        With the names that there are.
    """
    folder = files(__package__)
    known = sorted(p.name.removesuffix(".npz") for p in folder.iterdir() if p.name.endswith(".npz"))
    if name not in known:
        raise ValueError(f"There is no data set {name!r}. There are: {', '.join(known)}.")
    with (folder / f"{name}.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}
