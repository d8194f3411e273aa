"""Where the course is published: written once, in pyproject.toml under [tool.underhood], and brought to every place from there.

python -m autograder.badges      writes README's table and addresses, and the notebooks' install line; then run make course
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from . import reference
from .build import write
from .chapters import COURSE, ROOT, chapters, exercises, text_sources

START, END = "<!-- chapters: written by autograder/badges.py -->\n", "<!-- end of chapters -->"
GUARD = re.compile(r'^if "google\.colab" in sys\.modules:.*\n(?:    .*\n)+', flags=re.M)
HEAD = "| chapter | exercises | minutes | points | on Colab | on Binder |\n|---|---|---|---|---|---|\n"
ON_COLAB = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({})"
ON_BINDER = "[![Open in Binder](https://mybinder.org/badge_logo.svg)]({})"


@dataclass(frozen=True)
class Place:
    """Where the course is published on GitHub."""

    organization: str
    repository: str
    tag: str

    @property
    def address(self) -> str:
        return f"https://github.com/{self.organization}/{self.repository}"

    @property
    def package(self) -> str:
        """What pip installs on Colab: the helper package at the tag."""
        return f"underhood @ git+{self.address}@{self.tag}#subdirectory=course"

    @property
    def guard(self) -> str:
        """How a notebook's first cell begins, after `import sys`: on Colab it installs the helper, and nothing else."""
        return (
            'if "google.colab" in sys.modules:  # on Colab: the course\'s helper package, and nothing else\n'
            f'    package = "{self.package}"\n'
            """    get_ipython().run_line_magic("pip", f'install -q --no-deps "{package}"')\n"""
        )

    def colab(self, path: str) -> str:
        """The address that opens a notebook of the repository on Colab."""
        where = f"{self.organization}/{self.repository}/blob/{self.tag}/{quote(path)}"
        return f"https://colab.research.google.com/github/{where}"

    def binder(self, path: str) -> str:
        """The address that opens a notebook of the repository in JupyterLab on Binder."""
        where = f"{self.organization}/{self.repository}/{self.tag}"
        return f"https://mybinder.org/v2/gh/{where}?urlpath={quote('lab/tree/' + quote(path), safe='')}"


def place(root: Path = ROOT) -> Place:
    """The one setting.

    Raises
    ------
    ValueError
        Where a name holds what GitHub does not allow in it.
    """
    given = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["underhood"]
    found = Place(given["organization"], given["repository"], given["tag"])
    for name in (found.organization, found.repository, found.tag):
        if not re.fullmatch(r"[\w.-]+", name):
            raise ValueError(f"[tool.underhood] of pyproject.toml: {name!r} is no name that GitHub gives.")
    return found


def table(where: Place) -> str:
    """README's table of chapters: a row a notebook."""
    rows = []
    for chapter in chapters():
        for source in text_sources(chapter):
            path = f"course/{chapter}/{source.stem}.ipynb"
            first = reference.read(source).cells[0].source
            title = re.findall(r"^# (?:Chapter )?(.*)$", first, flags=re.M)[0]
            every = exercises(chapter)
            cells = [
                f"[{title}]({path})",
                str(len(every)),
                str(sum(e.minutes for e in every)),
                str(sum(e.points for e in every)),
                ON_COLAB.format(where.colab(path)),
                ON_BINDER.format(where.binder(path)),
            ]
            rows.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(rows)


def readme(text: str, where: Place) -> str:
    """README with the table and the addresses of the setting."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"README.md has lost its marks: {START.strip()} and {END}")
    fresh = f"{before}{START}{table(where)}{END}{after}"
    return re.sub(r"(git clone )https://github\.com/[\w.-]+/[\w.-]+ && cd [\w.-]+",
                  rf"\g<1>{where.address} && cd {where.repository}", fresh)  # fmt: skip


def guarded(text: str, where: Place) -> str:
    """A notebook's text with the setting's package in its install line."""
    return GUARD.sub(lambda _: where.guard, text, count=1)


def fresh(root: Path = ROOT) -> dict[Path, str]:
    """Every file that names the place, as it should be."""
    where = place(root)
    files = {root / "README.md": readme((root / "README.md").read_text(encoding="utf-8"), where)}
    for chapter in chapters():
        for source in text_sources(chapter):
            files[source] = guarded(source.read_text(encoding="utf-8"), where)
    return files


def main() -> int:
    for path, text in fresh().items():
        if path.read_text(encoding="utf-8") != text:
            write(path, text)
            print(f"written: {path.relative_to(ROOT)}")
    missing = [c for c in chapters() for s in text_sources(c) if not (COURSE / c / f"{s.stem}.ipynb").is_file()]
    if missing:
        print(f"Not built yet: {', '.join(missing)}. Next step: make course")
    return 0


if __name__ == "__main__":
    sys.exit(main())
