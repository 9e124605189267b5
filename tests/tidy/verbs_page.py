"""What ``docs/verbs.md`` says: its rules, and of each verb a row of cells; and whether tests that are named for a cell are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs/verbs.md"
COLUMNS = (
    "verb",
    "changes files",
    "locks",
    "settings",
    "other replicas",
    "running broker",
    "stopped broker's directory",
    "damaged directory",
    "full disk",
    "second call",
    "failure leaves",
)


class Row(NamedTuple):
    """What the page says of some verbs."""

    group: str
    verbs: tuple[str, ...]
    """Without their arguments: ``Log.open``, ``offsetlog ls``."""
    calls: tuple[str, ...]
    """As they are written: ``Log.open(path, "a")``."""
    cells: dict[str, str]
    """By column."""


class Rule(NamedTuple):
    """One that cells name."""

    number: int
    name: str


def text() -> str:
    """The page."""
    return PAGE.read_text(encoding="utf-8")


def verb_of(call: str) -> str:
    """A call without its arguments."""
    if call.startswith("offsetlog "):
        return " ".join(call.split()[:2])
    found = re.match(r"[A-Za-z_][\w.]*", call)
    # What is written in SQL stays as it is.
    return call if found is None or " " in call.partition("(")[0].partition(" =")[0] else found[0]


def rows(page: str) -> Iterator[Row]:
    """Every row of the tables behind ``<!-- verbs -->``."""
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        group = section.splitlines()[0].strip()
        for table in section.split("<!-- verbs -->\n")[1:]:
            lines = table.partition("\n\n")[0].strip().splitlines()
            for line in (lines[0], *lines[2:]):
                cells = [cell.strip() for cell in line.strip("|").split("|")]
                if len(cells) != len(COLUMNS):
                    message = f"{group}: {len(cells)} cells found, {len(COLUMNS)} expected: {line}"
                    raise ValueError(message)
                if cells[0] == COLUMNS[0]:
                    continue
                calls = tuple(call for call in re.findall(r"`([^`]+)`", cells[0]) if not call.startswith("-"))
                yield Row(group, tuple(map(verb_of, calls)), calls, dict(zip(COLUMNS, cells, strict=True)))


def headings(page: str) -> list[tuple[str, ...]]:
    """The first line of each table."""
    lines = [table.lstrip().splitlines()[0] for table in page.split("<!-- verbs -->")[1:]]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def rules(page: str) -> list[Rule]:
    """The numbered rules."""
    section = page.partition("\n## Rules\n")[2].partition("\n## ")[0]
    found = []
    for part in re.split(r"^(?=\d+\. )", section, flags=re.MULTILINE)[1:]:
        number, name = re.match(r"(\d+)\. \*\*([^*]+)\.\*\*", part).groups()  # type: ignore[union-attr]  # else the page is wrong
        found.append(Rule(int(number), name.lower()))
    return found


def named_rules(cell: str) -> list[str]:
    """The rules that a cell names."""
    return re.findall(r"\*([^*]+)\*", cell)


@cache
def functions(file: str) -> frozenset[str]:
    """The tests of a file, which is named below the folder of all tests."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def missing_tests(named: Iterable[str]) -> list[str]:
    """Those of `named`, each as ``file::function``, that are not there."""
    pairs = {test: test.partition("::") for test in named}
    return [test for test, (file, _, name) in pairs.items() if not (TESTS / file).is_file() or name not in functions(file)]
