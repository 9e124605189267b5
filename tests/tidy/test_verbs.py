"""``docs/verbs.md`` has a row for every public verb, none for one that is gone, and an answer in every cell."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
import verbs_page
from pyspark.sql.datasource import DataSource

import offsetlog
import offsetlog.spark
from offsetlog._offsetlog import run_cli

PAGE = verbs_page.text()
ROWS = list(verbs_page.rows(PAGE))
RULES = {rule.name: rule for rule in verbs_page.rules(PAGE)}
# Fields, no verbs: what is there was read before.
VALUES = {"Record", "LogConfig"}
# What Spark calls when these are used; the class itself nobody does.
FORMATS = {
    "name": "spark.read",
    "schema": "spark.read",
    "reader": "spark.read",
    "streamReader": "spark.readStream",
    "writer": "DataFrame.write",
    "streamWriter": "DataFrame.writeStream",
}
# No table of Spark's lists what its SQL can do with a format.
STATEMENTS = {"CREATE TABLE … USING offsetlog", "CREATE TEMPORARY VIEW … USING offsetlog", "INSERT INTO"}


def members(kind: type) -> Iterator[tuple[str, object]]:
    """What a class of ours has that is public, with what it has of its other classes of ours."""
    for each in kind.__mro__:
        if each.__module__.split(".")[0] == "offsetlog":
            yield from ((name, value) for name, value in vars(each).items() if not name.startswith("_"))


def of_class(kind: type) -> Iterator[str]:
    """Methods, and of what is open the properties too: they ask the files."""
    for name, value in members(kind):
        is_method = callable(value) or isinstance(value, (classmethod, staticmethod))
        is_handle = not issubclass(kind, tuple) and kind.__name__ not in VALUES
        if is_method or (is_handle and isinstance(value, property)):
            # The page names what writes by the class that a user opens, which gives a log that can write.
            yield f"{kind.__name__.removeprefix('Writable')}.{name}"


def of_module(module: object, prefix: str) -> Iterator[str]:
    for name in module.__all__:  # type: ignore[attr-defined]  # a module
        value = getattr(module, name)
        if not inspect.isclass(value):
            if callable(value):
                yield prefix + name
        elif issubclass(value, DataSource):
            yield from (FORMATS.get(method, f"{name}.{method}") for method, _ in members(value))
        elif not issubclass(value, BaseException):
            yield from of_class(value)


def command_help() -> str:
    return subprocess.run([sys.executable, "-m", "offsetlog", "--help"], capture_output=True, text=True, check=True).stdout


def of_command() -> list[str]:
    """The subcommands that the command lists itself."""
    listed = command_help().partition("\nRead records and state:\n")[2].partition("\nOptions:")[0]
    return [f"offsetlog {name}" for name in re.findall(r"^  (\w[\w-]*)", listed, re.MULTILINE) if name != "help"]


def public() -> set[str]:
    python = of_module(offsetlog, "")
    spark = of_module(offsetlog.spark, "offsetlog.spark.")
    commands = of_command()
    assert len(commands) > 10
    return {*python, *spark, *commands, *STATEMENTS}


def test_every_verb_has_a_row_and_no_row_is_left_over() -> None:
    told = {verb for row in ROWS for verb in row.verbs}
    known = public()
    missing, gone = sorted(known - told), sorted(told - known)
    assert not missing, f"docs/verbs.md has no row for {', '.join(missing)}: say what they change, lock, ask and leave"
    assert not gone, f"docs/verbs.md has rows for what is not there: {', '.join(gone)}"


def test_no_verb_is_told_of_twice() -> None:
    twice = [call for call, count in Counter(call for row in ROWS for call in row.calls).items() if count > 1]
    # By its words behind the code: read by one who writes.
    assert not twice


def test_every_cell_answers() -> None:
    empty = [(row.calls, column) for row in ROWS for column, cell in row.cells.items() if not re.search(r"\w", cell)]
    assert not empty
    assert all(re.match(r"(yes|no)\b", row.cells["changes files"]) for row in ROWS)
    assert set(verbs_page.headings(PAGE)) == {verbs_page.COLUMNS}


@pytest.mark.parametrize("row", ROWS, ids=[row.calls[0] for row in ROWS])
def test_rules_that_a_row_names_are_there(row: verbs_page.Row) -> None:
    for cell in row.cells.values():
        for name in verbs_page.named_rules(cell):
            assert name in RULES, f"no rule {name!r}"


def test_rules_are_numbered_and_each_is_named() -> None:
    assert [rule.number for rule in RULES.values()] == list(range(1, len(RULES) + 1))
    named = {name for row in ROWS for cell in row.cells.values() for name in verbs_page.named_rules(cell)}
    assert not set(RULES) - named, "a rule that no row names"
    # What does not hold is no rule, and is said where it is meant.
    assert "⚠" not in PAGE


@pytest.mark.parametrize("told", ["offsetlog --help", "docs/cli.md"])
def test_the_help_and_its_page_name_the_verbs_that_only_read(told: str) -> None:
    reads, changes = (
        {verb.removeprefix("offsetlog ") for row in ROWS for verb in row.verbs if re.match(answer, row.cells["changes files"])}
        & {verb.removeprefix("offsetlog ") for verb in of_command()}
        for answer in ("no", "yes")
    )
    page = verbs_page.PAGE.with_name("cli.md").read_text(encoding="utf-8") if told.endswith(".md") else command_help()
    words = " ".join(page.replace("`", "").split())
    found = re.search(r"([\w, ]+) only read, as do ([\w ]+) that are not told to change anything\.", words)
    assert found is not None, words
    always, sometimes = (set(re.findall(r"\w+", names)) - {"and"} for names in found.groups())
    assert (always, sometimes) == (reads - changes, reads & changes)


@pytest.mark.parametrize("verb", of_command())
def test_dry_runs_are_where_the_rows_have_them(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What only reads needs none."""
    cells = [row.cells["changes files"] for row in ROWS if verb in row.verbs]
    assert run_cli([*verb.split(), "--help"], []) == 0
    has_option = re.search(r"^ +(-n, )?--dry-run\b", capfd.readouterr().out, re.MULTILINE) is not None
    assert has_option == any("dry run" in cell for cell in cells)
    assert not (has_option and all(cell.startswith("no") for cell in cells))
