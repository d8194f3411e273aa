"""nbgrader's `collect` for an exchange that everybody may write to: it takes from a hand-in what is really the learner's.

nbgrader's own follows links with the instructor's rights, so a link to the solutions, or to a classmate's notebook, would
become the hand-in of whoever made the link; and one hand-in that cannot be copied would end the collection for all.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbgrader.exchange.default import ExchangeCollect

from .handins import opened


class Collect(ExchangeCollect):
    """Collects regular files, whatever else lies in the hand-in; says in the log what was left out."""

    def do_copy(self, src: str, dest: str, log: Any = None) -> None:
        """Copy a hand-in.

        Parameters
        ----------
        src
            The learner's folder in the exchange, which may change while it is read.
        dest
            The folder of the class that nbgrader chose for it.
        log
            As nbgrader's own takes it, which does not use it.
        """
        try:
            self._copy(Path(os.path.abspath(src)), dest)
        except (OSError, RuntimeError) as error:  # RuntimeError: nbgrader's limit of size, or folders that never end
            shutil.rmtree(dest, ignore_errors=True)
            self.log.error("Not collected: %r. %s", src, error)

    def _copy(self, source: Path, dest: str) -> None:
        if source.is_symlink():
            raise OSError("It is a link, not a folder of the learner's own.")

        def links(folder: str, names: Sequence[str]) -> set[str]:
            found = {name for name in names if os.path.islink(os.path.join(folder, name))}
            for name in sorted(found):
                self.log.error("Left out of what is collected, as it is a link: %r", os.path.join(folder, name))
            return found

        if self.get_size(str(source)) > 1000 * self.coursedir.max_dir_size:
            raise RuntimeError("It is larger than CourseDirectory.max_dir_size.")
        with tempfile.TemporaryDirectory() as place:
            own = os.path.join(place, "own")
            real = source.parent.resolve() / source.name  # links that lead to the exchange are the instructor's own
            shutil.copytree(real, own, ignore=links, copy_function=_taken)
            super().do_copy(own, dest)  # which leaves out what the course's settings say


def _taken(source: str, dest: str) -> None:
    """A regular file only, also where a link has taken its place since the folder was listed."""
    with opened(Path(source)) as file, open(dest, "wb") as copy:
        shutil.copyfileobj(file, copy)
