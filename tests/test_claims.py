"""docs/claims.md: each claim stands under the heading that the table names, in the released notebook."""

from __future__ import annotations

import re

import nbformat
import pytest

from autograder.chapters import COURSE, ROOT


def rows() -> list[list[str]]:
    lines = (ROOT / "docs/claims.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[-1] not in ("words",) and not set(row[0]) <= {"-"}]


def sections(chapter: str) -> dict[str, str]:
    """Heading of level 2 → all markdown and code below it, down to the next."""
    found: dict[str, str] = {}
    for path in sorted((COURSE / chapter).glob("*.ipynb")):
        heading = ""
        for cell in nbformat.read(path, 4).cells:
            if cell.cell_type == "markdown":
                for line in cell.source.splitlines():
                    if match := re.match(r"## (.*)", line):
                        heading = match[1]
                    found[heading] = found.get(heading, "") + line + "\n"
            else:
                found[heading] = found.get(heading, "") + cell.source + "\n"
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_the_claim_is_taught_where_the_table_says(row):
    *_, chapter, heading, words = row
    text = sections(chapter)
    assert heading in text, f"no heading {heading!r} in {chapter}; there are {sorted(text)}"
    plain = re.sub(r"\s+", " ", text[heading])
    assert words in plain, f"{words!r} is not said under {heading!r}"


def test_every_claim_has_its_row():
    numbers = [int(row[0]) for row in rows() if row[0].isdigit()]
    assert numbers == list(range(1, 20))
