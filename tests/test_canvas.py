"""A download from Canvas keeps its students' ids, and comes back as a table that Canvas's gradebook imports."""

from __future__ import annotations

import csv
import sys
import zipfile
from pathlib import Path

import pytest
import toy

from autograder.handins import find
from autograder.run import write_canvas

HEAD = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]


def handed_in(tmp_path: Path, *names: str) -> dict[str, str]:
    """Student → id in Canvas, of files with these names."""
    folder = tmp_path / "submissions"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    return {found.student: found.canvas_id for found in find(folder, "01_basics", ["basics"])}


def table(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def row(student: str, points: float, canvas_id: str = "", chapter: str = "01_basics") -> dict:
    return {"student": student, "chapter": chapter, "points": points, "max_points": 43, "canvas_id": canvas_id}


def test_the_id_is_the_first_number_after_the_name(tmp_path):
    names = ["leeann_12_345_basics.ipynb", "bob_LATE_13_346_basics-1.ipynb", "cy_basics.ipynb"]
    assert handed_in(tmp_path, *names) == {"leeann": "12", "bob": "13", "cy": ""}


def test_two_students_of_one_name_are_two(tmp_path):
    names = ["liwei_12_345_basics.ipynb", "liwei_13_346_basics.ipynb", "liwei_13_347_notes.ipynb"]
    assert handed_in(tmp_path, *names) == {"liwei_12": "12", "liwei_13": "13"}


def test_a_name_that_ends_in_a_number_takes_no_other_students_id(tmp_path):
    """Somebody who calls himself "ann_7" is written `ann_7_12_345_basics.ipynb`; 7 is another user.

    Canvas takes underscores around a number out of a name, and spaces after that: "cy_ 8_ 9_ x" is written `cy_8_9_x`.
    """
    names = ["ann_7_12_345_basics.ipynb", "bob_13_346_2_basics.ipynb", "cy_8_9_x_14_347_basics.ipynb"]
    assert handed_in(tmp_path, *names) == {name.removesuffix(".ipynb"): "?" for name in names}


def test_a_file_that_is_called_like_the_chapter_takes_no_id_away(tmp_path):
    assert handed_in(tmp_path, "ann_7_12_01_basics.ipynb", "bob_8_13_01_basics-2.zip") == {"ann": "7", "bob": "8"}


def test_no_name_of_a_file_makes_one_of_two_students(tmp_path):
    """Who calls himself as another does, and his file "7_basics.ipynb", stays another."""
    names = ["liwei_12_345_basics.ipynb", "liwei_13_346_7_basics.ipynb"]
    assert handed_in(tmp_path, *names) == {"liwei": "12", "liwei_13_346_7_basics": "?"}


def test_a_name_may_hold_underscores_and_a_title(tmp_path):
    names = ["ann_7_1_x.ipynb", "ann_basics_8_2_x.ipynb", "basics_ann_9_3_.ipynb", "anon_Ab1_4_basics.ipynb"]
    assert handed_in(tmp_path, *names) == {"ann": "7", "ann_basics": "8", "basics_ann": "9", "anon_Ab1": ""}


def test_a_number_that_is_open_joins_nobody(tmp_path):
    """Three who are written with a 7 after "ann": the user 7, and two whose own name may end so."""
    names = ["ann_7_1_a.ipynb", "ann_8_2_a.ipynb", "ann_7_9_3_a.ipynb", "ann_7_5_2_a.ipynb"]
    assert sorted(handed_in(tmp_path, *names).values()) == ["7", "8", "?", "?"]


def test_a_line_a_student_and_a_column_a_chapter(tmp_path):
    rows = [
        row("ann", 43.0, "12"),
        row("bob", 2.5),
        row("ann", 7.0, chapter="02_autograd"),
        row("liwei", 1.0, "13"),
        row("liwei", 2.0, "14", chapter="02_autograd"),
        row("mo_7", 3.0, "?"),
    ]
    write_canvas(tmp_path / "canvas.csv", rows)
    assert table(tmp_path / "canvas.csv") == [
        [*HEAD, "01_basics", "02_autograd"],
        ["    Points Possible", "", "", "", "", "43", "43"],
        ["ann", "12", "", "", "", "43", "7"],
        ["bob", "", "", "bob", "", "2.5", ""],
        ["liwei", "13", "", "", "", "1", ""],
        ["liwei", "14", "", "", "", "", "2"],
        ["mo_7", "", "", "", "", "3", ""],
    ]


def test_a_student_who_is_called_points_possible_sets_no_points(tmp_path):
    write_canvas(tmp_path / "canvas.csv", [row("my Points Possible", 9.0)])
    assert [line[0] for line in table(tmp_path / "canvas.csv")].count("    Points Possible") == 1
    assert sum("Points Possible" in line[0] for line in table(tmp_path / "canvas.csv")) == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is built from Linux's namespaces")
def test_a_download_from_canvas_is_graded_and_its_table_imports(tmp_path):
    toy.make(tmp_path / "toy")
    right = toy.hand_in(tmp_path / "toy", tmp_path / "class", 4)
    students = ["ann", "bob_LATE", "=cmd()", "liwei"]
    with zipfile.ZipFile(tmp_path / "submissions.zip", "w") as archive:
        for number, (student, name) in enumerate(zip(right, students, strict=True)):
            archive.write(
                tmp_path / "class" / student / toy.CHAPTER / "basics.ipynb",
                f"{name}_{60 + number}_{900 + number}_a.ipynb",
            )
    arguments = [
        "grade",
        toy.CHAPTER,
        "--submissions",
        str(tmp_path / "submissions.zip"),
        "--out",
        str(tmp_path / "out"),
    ]
    done = toy.program(tmp_path / "toy", "tests/toy.py", *arguments)
    assert done.returncode == 0, done.stderr
    head, possible, *lines = table(tmp_path / "out" / "canvas.csv")
    assert head == [*HEAD, toy.CHAPTER] and possible == ["    Points Possible", "", "", "", "", "2"]
    assert {line[1]: float(line[5]) for line in lines} == dict(
        zip(["60", "61", "62", "63"], right.values(), strict=True)
    )
    assert [line[0] for line in lines if line[1] != "62"] == ["ann", "bob", "liwei"]
    assert not any(cell.startswith(("=", "+", "-", "@")) for line in lines for cell in line)
