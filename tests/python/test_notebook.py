"""Results in a notebook: a table of every field or of every row, and what stands in a directory's name is text, not markup."""

from __future__ import annotations

import inspect
import pickle
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA

import offsetlog
from offsetlog import LogDir, UnreadPartitionsError, adopt, end_transaction, identity, recover, restore, salvage, verify
from offsetlog._notebook import ROWS_MAX, report_table

TORN = DATA / "kafka-4.3.0" / "torn" / "log-dir-1"
PLACES = (*CLEAN_LOG_DIRS, CLEAN / "metadata-dir")


def returned() -> dict[str, list[str]]:
    """The public named tuples that the verbs return, one or a list of them, each with its verbs; and all that are called a report."""
    kinds = {name for name in offsetlog.__all__ if hasattr(getattr(offsetlog, name), "_fields")}
    found: dict[str, list[str]] = {name: [] for name in kinds if name.endswith("Report")}
    for owner, names in ((offsetlog, offsetlog.__all__), (LogDir, dir(LogDir))):
        for name in names:
            if not name.startswith("_") and inspect.isroutine(verb := getattr(owner, name)):
                words = str(inspect.signature(verb).return_annotation)
                if one := re.fullmatch(r"(?:list\[)?(\w+)\]?(?: \| None)?", words):
                    found.setdefault(one[1], []).append(name)
    return {name: verbs for name, verbs in found.items() if name in kinds}


RETURNED = returned()
BARE = {"TopicPartition"}
"""What other values are found by. Its text says as much."""


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


@pytest.mark.parametrize("kind", sorted(set(RETURNED) - BARE))
def test_every_result_has_a_table(kind: str) -> None:
    assert "_repr_html_" in vars(getattr(offsetlog, kind)), RETURNED[kind]


def test_results_are_found() -> None:
    """Else the test above shows less than it says."""
    assert set(RETURNED) >= {"EndedTransaction", "AdoptedPartition", "WhyAnswer", "PartitionProducer", "DirectoryIdentity", "Group"}
    assert set(RETURNED) >= {"MetadataImage", "ResetFile", "Stray", "Transaction", "TopicSettings", "SalvageReport", "DamageReport"}
    assert RETURNED["WhyAnswer"] == ["why"]


def lists(place: Path) -> dict[str, list[Any]]:
    """What each verb returns that returns a list."""
    with LogDir.open(PLACES) as log_dir:
        names = ("groups", "producers", "transactions", "why", "strays")
        found: dict[str, list[Any]] = {name: getattr(log_dir, name)() for name in names}
    bare = place / "g-plain-0"
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-plain-0", bare)
    found["adopt"] = adopt(bare, topic_id="AAECAwQFBgcICQoLDA0ODw", dry_run=True)
    found["identity"] = identity(*PLACES)
    found["commits"] = offsetlog.commits(CLEAN_LOG_DIRS[0])
    return found


def test_every_list_is_one_table(tmp_path: Path) -> None:
    """Of a plain list a notebook shows the text."""
    found = lists(tmp_path)
    verbs = {name for kind in set(RETURNED) - BARE for name in RETURNED[kind]}
    of_lists = {name for name in verbs if "list[" in str(inspect.signature(getattr(LogDir, name, None) or getattr(offsetlog, name)))}
    assert set(found) == of_lists
    for name, values in found.items():
        page = values._repr_html_()  # type: ignore[attr-defined]  # a list with a table
        if not values:
            assert page == "<p>none</p>", name
            continue
        table = ET.fromstring(f"<p>{page.replace('<br>', '<br/>')}</p>")  # noqa: S314  # our own page
        head, *rows = [["".join(each.itertext()) for each in row] for row in table[0]]
        assert head == list(values[0]._fields), name
        assert len(rows) == min(len(values), ROWS_MAX)
        assert [row[0] for row in rows] == [str(value[0]) for value in values[:ROWS_MAX]], name
        # It is a list in every other way.
        assert values == list(values)
        assert pickle.loads(pickle.dumps(values)) == values
        shown(values[0])
    assert [name for name, values in found.items() if not values] == ["strays", "commits"]


def test_what_could_be_read_is_one_table_too(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    shutil.copytree(CLEAN_LOG_DIRS[1], place)
    (place / "g-txn-0" / f"{0:020}.log").write_bytes(bytes(100))
    for file in place.glob("g-txn-0/*.snapshot"):
        file.unlink()
    with LogDir.open(place) as log_dir, pytest.raises(UnreadPartitionsError) as raised:
        log_dir.producers()
    partial: Any = raised.value.partial
    assert partial
    assert partial._repr_html_().count("<tr>") == 1 + len(partial)


def test_what_one_value_holds() -> None:
    """Each setting and each topic is a row, and of an open transaction its producer is a table."""
    with LogDir.open(PLACES) as log_dir:
        head, *rows = texts(shown(log_dir.topic_settings("g-compact"))["settings"])
        assert head == ["", *offsetlog.EffectiveSetting._fields]
        assert ["cleanup.policy", "compact", "topic", ""] in rows
        image = log_dir.metadata()
        assert image is not None
        assert [row[0] for row in texts(shown(image)["topics"])[1:]] == [topic.name for topic in image.topics]
        shown(log_dir.groups_reset_csv())
    ended = end_transaction(CLEAN_LOG_DIRS, "g-txn", 0, 1000, commit=False, dry_run=True)
    assert ["transactional_id", "g-tx-open"] in texts(shown(ended)["producer"])


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
