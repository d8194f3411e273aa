"""Make `course/underhood/data/wine.npz` from the copy of the UCI Wine data in scikit-learn.

scikit-learn is needed for this script alone: run it once, in an environment of its own, from the repository's root:

    python solutions/03_optimization/make_wine.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

SHUFFLE_SEED = 3


def main() -> None:
    wine = load_wine()
    order = np.random.default_rng(SHUFFLE_SEED).permutation(len(wine.target))
    names = [name.replace("_", " ") for name in wine.feature_names]
    np.savez_compressed(
        Path(__file__).parents[2] / "course" / "underhood" / "data" / "wine.npz",
        X=wine.data[order].astype(np.float64),
        cultivar=(wine.target[order] + 1).astype(np.int64),
        file_row=order.astype(np.int64),
        features=np.array(names),
    )


if __name__ == "__main__":
    main()
