"""The table of promises, what the documentation says of it, and the planted bugs agree about the rows that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = {row["row"]: row for row in tomllib.loads((ROOT / "tests/reliability/budget.toml").read_text(encoding="utf-8"))["row"]}
DURABILITY = (ROOT / "docs/DURABILITY.md").read_text(encoding="utf-8")
MUTANTS_MIN = 15
# How much of the code the tests of promises see: no promise itself.
COVERAGE = 25


def test_rows_name_their_tests() -> None:
    paths = [ROOT / path for row in ROWS.values() for path in row["tests"]]
    assert not [path for path in paths if not path.is_file()]


def test_every_row_holds_a_promise() -> None:
    named: set[int] = set()
    for words in re.findall(r"\*Rows? ([^*]+)\.\*", DURABILITY):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", words):
            named |= set(range(int(first), int(last or first) + 1))
    assert named == ROWS.keys() - {COVERAGE}


def test_the_documentation_has_every_row_with_its_floor() -> None:
    """Written by `.ci/rows --docs`; a row that is open may have done less."""
    table = DURABILITY.partition("<!-- rows: ")[2].partition("<!-- end of rows -->")[0]
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 1 and cells[1].isdigit():
            found[int(cells[1])] = cells[2:6]
    wanted = {
        number: [row["name"], f"{row['floor']:,} {row['unit']}", ", ".join(f"`{path}`" for path in row["tests"])]
        for number, row in ROWS.items()
    }
    assert {number: [name, floor, where] for number, (name, floor, _, where) in found.items()} == wanted, "run .ci/rows --docs"
    few = {number: cells[2] for number, cells in found.items() if int(cells[2].replace(",", "")) < ROWS[number]["floor"]}
    assert not {number: cases for number, cases in few.items() if "open" not in ROWS[number]}


def test_every_row_finds_a_planted_bug() -> None:
    patches = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests/mutants").glob("*.patch")}
    assert len(patches) >= MUTANTS_MIN
    found = {int(number) for text in patches.values() for number in re.findall(r"^# row (\d+): ", text, re.MULTILINE)}
    assert found == ROWS.keys()
    for path, text in patches.items():
        files = re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE)
        assert files, path
        assert not [name for name in files if not (ROOT / name).is_file()], path


def test_every_planted_bug_fits() -> None:
    """What a patch takes away, and stands in, is in its file; else `make mutants` would be the first to say so."""
    for path in (ROOT / "tests/mutants").glob("*.patch"):
        name = ""
        for hunk in re.split(r"^(?=@@|--- )", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if hunk.startswith("--- a/"):
                name = hunk.splitlines()[0].removeprefix("--- a/")
            elif hunk.startswith("@@"):
                before = "".join(line[1:] for line in hunk.splitlines(keepends=True)[1:] if line[:1] in {" ", "-"})
                assert before in (ROOT / name).read_text(encoding="utf-8"), path.name
