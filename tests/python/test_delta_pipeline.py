"""``examples/delta_by_offset.py`` on directories of a real broker: the table holds what a consumer saw, each record once."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import deltalake
import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, Row, named

from offsetlog import LogDir

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOPICS = ("g-plain", "g-txn", "g-codec-zstd", "g-retained", "g-compact-txn", "g-empty")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("delta_by_offset")


def held(into: Path) -> dict[tuple[str, int], list[Row]]:
    """What a reader of Delta tables finds, by partition, in order of offsets."""
    table = deltalake.DeltaTable(into).to_pyarrow_table()
    stamps = table["timestamp"].cast("int64").to_pylist()
    found: dict[tuple[str, int], list[Row]] = {}
    for row, stamp in zip(table.drop_columns(["timestamp"]).to_pylist(), stamps, strict=True):
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        found.setdefault((row["topic"], row["partition"]), []).append(
            Row(row["offset"], stamp // 1000, row["timestampType"], row["leaderEpoch"], row["key"], row["value"], headers)
        )
    return {partition: sorted(of_one, key=lambda row: row.offset) for partition, of_one in found.items()}


def seen(*topics: str) -> dict[tuple[str, int], list[Row]]:
    """What a consumer saw."""
    every = {(golden.topic, golden.partition): list(golden.committed) for golden in CLEAN_PARTITIONS if golden.topic in topics}
    return {partition: of_one for partition, of_one in every.items() if of_one}


def test_the_table_holds_what_a_consumer_saw(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Committed records up to the last stable offset; a second run finds nothing new."""
    into = tmp_path / "table"
    for version in (0, 0):
        script.main([*map(str, CLEAN_LOG_DIRS), "--topics", ",".join(TOPICS), "--into", str(into)])
        assert held(into) == seen(*TOPICS)
        count = sum(map(len, seen(*TOPICS).values()))
        assert f"version {version} of {into}: {count:,} records" in capsys.readouterr().out
    for golden in named("g-txn-0", "g-plain-1"):
        assert script.exported(deltalake.DeltaTable(into), golden.topic, golden.partition) == golden.last_stable_offset


def test_each_run_appends_what_is_new(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for golden in named("g-plain-0", "g-plain-1", "g-plain-2"):
        golden.copy(tmp_path / "logs")
    into = tmp_path / "table"
    assert len(script.export([tmp_path / "logs"], ["g-plain"], into)) == 3
    expected = seen("g-plain")
    with LogDir.open(tmp_path / "logs", "a") as logs:
        for number in range(7):
            logs.append("g-plain", b"%d" % number, partition=1, timestamp=number)
    (new,) = script.export([tmp_path / "logs"], ["g-plain"], into)
    assert (new.partition, new.start, new.stop) == (1, 200, 207)
    found = held(into)
    assert [row.value for row in found["g-plain", 1][200:]] == [b"%d" % number for number in range(7)]
    found["g-plain", 1] = found["g-plain", 1][:200]
    assert found == expected
    with LogDir.open(tmp_path / "logs", "a") as logs:
        logs.append("g-plain", b"deleted", partition=1)
        logs.append("g-plain", b"kept", partition=1)
        logs.log("g-plain", 1).delete_records_before(208)
        logs.log("g-plain", 2).truncate_to(150)
    with pytest.raises(ValueError, match="g-plain-2 ends at 148, it was exported up to 200"):
        script.export([tmp_path / "logs"], ["g-plain"], into)
    shutil.rmtree(tmp_path / "logs" / "g-plain-2")
    script.export([tmp_path / "logs"], ["g-plain"], into)
    assert "g-plain-1: offsets 207 to 207 were deleted before they were exported" in capsys.readouterr().out
    assert [(row.offset, row.value) for row in held(into)["g-plain", 1][207:]] == [(208, b"kept")]


def test_a_topic_that_was_made_anew_is_refused(script: ModuleType, tmp_path: Path) -> None:
    """Also where the new one is longer than the old one was: its first records would be missing."""
    logs, into = tmp_path / "logs", tmp_path / "table"
    for count in (3, 5):
        with LogDir.open(logs, "a") as log_dir:
            if count == 5:
                log_dir.delete_topic("t")
            log_dir.create_topic("t")
            log_dir.log("t", 0).append_records([b"%d" % count] * count)
        if count == 3:
            script.export([logs], ["t"], into)
    for _ in range(2):
        with pytest.raises(ValueError, match="t-0 is of a topic that was made anew, the table holds the one before"):
            script.export([logs], ["t"], into)
        assert [row.value for row in held(into)["t", 0]] == [b"3"] * 3


def test_a_topic_without_an_id_gets_one(script: ModuleType, tmp_path: Path) -> None:
    """As under a broker since Kafka 2.8: it is the same topic, and known by its id from then on."""
    (golden,) = named("g-plain-0")
    golden.copy(tmp_path / "logs")
    about, into = tmp_path / "logs" / "g-plain-0" / "partition.metadata", tmp_path / "table"
    stored = about.read_bytes()
    about.unlink()
    script.export([tmp_path / "logs"], ["g-plain"], into)
    about.write_bytes(stored)
    for number in range(2):
        with LogDir.open(tmp_path / "logs", "a") as logs:
            logs.append("g-plain", b"%d" % number, partition=0)
        assert len(script.export([tmp_path / "logs"], ["g-plain"], into)) == 1
    about.write_bytes(stored.replace(b"topic_id: p", b"topic_id: q"))
    with pytest.raises(ValueError, match="made anew"):
        script.export([tmp_path / "logs"], ["g-plain"], into)


def test_records_that_were_deleted_before_the_first_export_are_told(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, into = tmp_path / "logs", tmp_path / "table"
    with LogDir.open(logs, "a") as log_dir:
        log_dir.create_topic("t", partitions=2)
        log_dir.append("t", b"x", partition=0)
    script.export([logs], ["t"], into)
    assert "deleted" not in capsys.readouterr().out
    with LogDir.open(logs, "a") as log_dir:
        log_dir.log("t", 1).append_records([b"%d" % number for number in range(10)])
        log_dir.log("t", 1).delete_records_before(6)
    script.export([logs], ["t"], into)
    assert capsys.readouterr().out == "t-1: offsets 0 to 5 were deleted before they were exported\n"
    assert [row.offset for row in held(into)["t", 1]] == [6, 7, 8, 9]


def test_a_run_that_died_is_repeated(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends in the middle of its second commit; what the next one appends is the rest."""
    monkeypatch.setattr(script, "COMMIT_BYTES", 20_000)
    for golden in named("g-plain-0", "g-plain-1", "g-plain-2"):
        golden.copy(tmp_path / "logs")
    into, last = tmp_path / "table", tmp_path / "logs" / "g-plain-2" / "00000000000000000000.log"
    whole = last.read_bytes()
    last.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
    with pytest.raises(Exception, match="checksum"):
        script.export([tmp_path / "logs"], ["g-plain"], into)
    before = {partition: len(of_one) for partition, of_one in held(into).items()}
    assert before
    assert ("g-plain", 2) not in before
    last.write_bytes(whole)
    assert all(before.get(("g-plain", split.partition), 0) == 0 for split in script.export([tmp_path / "logs"], ["g-plain"], into))
    assert held(into) == seen("g-plain")


def test_two_runs_at_once_do_not_both_append(script: ModuleType, tmp_path: Path) -> None:
    """The one that comes second fails, as the other has moved the offsets of its partition."""
    golden, other = named("g-plain-0", "g-codec-zstd-0")
    for one in (golden, other):
        one.copy(tmp_path / "logs")
    into = tmp_path / "table"
    script.export([tmp_path / "logs"], [other.topic], into)
    early: Any = deltalake.DeltaTable(into)
    splits = list(script.new_ranges(early, [tmp_path / "logs"], [golden.topic]))
    script.export([tmp_path / "logs"], [golden.topic], into)
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        script.append(early, into, splits)
    assert held(into) == {(golden.topic, 0): list(golden.committed), (other.topic, 0): list(other.committed)}


def test_progress_without_records(script: ModuleType, tmp_path: Path) -> None:
    """What a transaction wrote that was aborted moves the offsets on, also where it is all there is."""
    with LogDir.open(tmp_path / "logs", "a") as logs:
        logs.create_topic("t")
        log = logs.log("t", 0)
        log.append_records([b"no"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_marker(1, 0, commit=False)
        into = tmp_path / "table"
        for _ in range(2):
            script.export([tmp_path / "logs"], ["t"], into)
            assert script.exported(deltalake.DeltaTable(into), "t", 0) == 2
            assert deltalake.DeltaTable(into).version() == 0
        log.append_records([b"no"], producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
        assert script.export([tmp_path / "logs"], ["t"], into) == []
        log.append_marker(1, 0, commit=False)
        script.export([tmp_path / "logs"], ["t"], into)
        assert script.exported(deltalake.DeltaTable(into), "t", 0) == 4
        assert held(into) == {}
