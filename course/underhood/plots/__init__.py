"""Plots of the course: static, readable in greyscale, each with one sentence that says what it shows.

The chapters' own plots are in modules beside this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.figure import Figure

# Dark to light in greyscale, distinguishable with the common color-vision deficiencies (Okabe and Ito 2008); line styles and
# markers differ as well, so that no plot depends on color.
COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")

STYLE: dict[str, Any] = {
    "axes.prop_cycle": cycler(color=COLORS) + cycler(linestyle=LINES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.size": 10,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


@contextmanager
def style() -> Iterator[None]:
    """The course's plot style, for the figures made inside."""
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        yield


def markers() -> Iterator[str]:
    """One marker after the other, for series that lines alone would not tell apart."""
    return cycle(MARKERS)


def show(figure: Figure, verdict: str, alt: str) -> None:
    """Print the verdict, then show the figure with its alternative text.

    Parameters
    ----------
    verdict
        One sentence: what a reader should see in the figure.
    alt
        What the figure shows, for readers who do not see it.
    """
    print(verdict)
    plt.close(figure)
    display, metadata = _display(), {"image/png": {"alt": alt}}
    if display is not None:
        display(figure, metadata=metadata)


def _display() -> Any:
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    return display if get_ipython() is not None else None
