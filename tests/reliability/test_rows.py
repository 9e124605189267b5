"""The table fails where it must: a row that is missing, below its floor, or skipped without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rows import ROOT, Row, row

BUDGET = tomllib.loads((ROOT / "tests/reliability/budget.toml").read_text(encoding="utf-8"))["row"]


def table(folder: Path) -> tuple[int, str]:
    """What `.ci/rows` says of lane `spark`, which has two rows, 18 and 26."""
    environment = {**os.environ, "OFFSETLOG_ROWS": str(folder), "OFFSETLOG_SCALE": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / ".ci/rows", "spark"], capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )
    return done.returncode, done.stdout


def part(name: str, cases: int, skipped: str | None = None) -> Row:
    """A part of row 18 that counted so many jobs."""
    found = Row(18, name, "jobs", 1)
    found.count(cases)
    found.skipped = skipped
    return found


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETLOG_ROWS", str(tmp_path))
    other = Row(27, "Spark streams", "kills", 100)
    other.count(100)
    other.write(1)
    code, text = table(tmp_path)
    assert (code, "row 18, Spark workers: nothing ran" in text) == (1, True)
    part("one", 4).write(1.25)
    code, text = table(tmp_path)
    assert (code, "4 jobs, at least 6 are asked for" in text) == (1, True)
    part("two", 2).write(2.25)
    code, text = table(tmp_path)
    assert (code, "3.5" in text) == (0, True)
    part("two", 0, "no Java").write(0)
    code, text = table(tmp_path)
    assert (code, "skipped: row 18, two: no Java" in text) == (0, True)
    (tmp_path / "99-x.json").write_text(json.dumps({**json.loads((tmp_path / "18-two.json").read_text()), "row": 99}))
    code, text = table(tmp_path)
    assert (code, "row 99 is not in tests/reliability/budget.toml" in text) == (1, True)


def test_a_part_below_its_floor_fails_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETLOG_ROWS", str(tmp_path))
    with pytest.raises(AssertionError, match="at least"), row(16, "Too few", "cases", 2, fixed=True) as few:
        few.count()
    with pytest.raises(KeyError), row(16, "Broken", "cases", 0):
        raise KeyError
    assert not list(tmp_path.iterdir())
    with row(16, "Enough: just", "cases", 2, fixed=True) as enough:
        enough.count(enough.floor)
    with pytest.raises(pytest.skip.Exception), row(16, "Not here", "cases", 2) as nothing:
        nothing.skip("no such thing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["16-enough-just.json", "16-not-here.json"]


def test_the_budget_names_each_row_once() -> None:
    assert [entry["row"] for entry in BUDGET] == list(range(1, 30))
    assert {entry["lane"] for entry in BUDGET} == {"A", "B", "spark"}
    assert all(entry["floor"] > 0 and entry["seconds"] > 0 for entry in BUDGET)
