"""Reports in a notebook: a table of every field, and what stands in a directory's name is text, not markup."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from golden import DATA

import offsetlog
from offsetlog import recover, restore, salvage, verify
from offsetlog._notebook import ROWS_MAX, report_table

TORN = DATA / "kafka-4.3.0" / "torn" / "log-dir-1"
REPORTS = [value for name, value in vars(offsetlog).items() if inspect.isclass(value) and name.endswith("Report")]


def shown(report: Any) -> dict[str, ET.Element]:  # noqa: ANN401  # any report
    """The cell of each field; the page must be well formed to be read at all."""
    table = ET.fromstring(report._repr_html_().replace("<br>", "<br/>"))  # noqa: S314  # our own page
    assert table.tag == "table"
    cells = {row[0].text or "": row[1] for row in table}
    assert tuple(cells) == report._fields
    return cells


def texts(cell: ET.Element) -> list[list[str]]:
    """The rows of a table in a cell, its head first."""
    table = cell.find("table")
    assert table is not None
    return [["".join(each.itertext()) for each in row] for row in table]


@pytest.mark.parametrize("kind", REPORTS, ids=lambda kind: kind.__name__)
def test_every_report_has_a_table(kind: type) -> None:
    if issubclass(kind, tuple):
        assert "_repr_html_" in vars(kind)


def test_what_salvage_reports(tmp_path: Path) -> None:
    report = salvage(TORN / "g-torn-cut-batch-0", tmp_path / "g-torn-cut-batch-0", dry_run=True)
    cells = shown(report)
    assert cells["records"].text == str(report.records)
    assert cells["first_unstable_offset"].text is None
    head, *rows = texts(cells["losses"])
    assert head == list(offsetlog.Loss._fields)
    assert rows == [["" if value is None else str(value) for value in loss] for loss in report.losses]
    assert rows


def test_what_restore_and_verify_report(tmp_path: Path) -> None:
    plan = restore(TORN, tmp_path / "new", topics="g-torn-*", dry_run=True)
    head, *rows = texts(shown(plan)["partitions"])
    assert head == list(offsetlog.RestoredPartition._fields)
    assert [row[0] for row in rows] == [each.topic for each in plan.partitions]
    found = verify(TORN / "g-torn-flip-old-0")
    assert [row[4] for row in texts(shown(found)["findings"])[1:]] == [str(each.offset) for each in found.findings]


def test_names_are_text(tmp_path: Path) -> None:
    place = tmp_path / "<script>alert(1)</script>&" / "g-torn-cut-batch-0"
    shutil.copytree(TORN / "g-torn-cut-batch-0", place)
    report = recover(place, dry_run=True)
    assert report.cut
    assert "<script>" not in report._repr_html_()
    assert texts(shown(report)["cut"])[1][0] == report.cut[0].path


def test_a_long_list_is_cut() -> None:
    """And says by how much."""
    kept = tuple(f"/mnt/{number}" for number in range(ROWS_MAX + 7))
    report = offsetlog.RecoveryReport(cut=(), kept=kept, rebuilt=(("a", "b"),), log_end_offset=1)
    page = report._repr_html_()
    assert page == report_table(report)
    assert (f"/mnt/{ROWS_MAX - 1}<" in page, f"/mnt/{ROWS_MAX}" in page) == (True, False)
    assert "<p>and 7 more</p>" in page
    losses = tuple(offsetlog.Loss("p", n, 1, n, n + 1, "r") for n in range(ROWS_MAX + 1))
    assert report_table(offsetlog.Loss("p", 0, 1, 0, 1, "r")).count("<tr>") == len(offsetlog.Loss._fields)
    salvaged = offsetlog.SalvageReport("t", 0, "s", "p", False, 1, 1, 1, 0, 1, losses)  # as the engine makes it
    assert len(texts(shown(salvaged)["losses"])) == ROWS_MAX + 1
    assert "<p>and 1 more</p>" in salvaged._repr_html_()
