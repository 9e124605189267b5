"""``convert`` of a directory that does not have all records of its log: what is missing is told, never left out without a word."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import CLEAN, DATA
from writing import HOLD, STATE, filled, running

from offsetlog import ConvertReport, Log, convert, restore, salvage

TIERED = DATA / "kafka-4.3.0-tiered" / "log-dir"


def offsetlog(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def told(report: ConvertReport, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of a report, which are logged as well."""
    assert [record.getMessage() for record in caplog.records if record.name == "offsetlog"] == list(report.warnings)
    caplog.clear()
    return list(report.warnings)


def test_records_in_a_remote_store_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of a broker's partition with tiered storage, whose directory has one empty segment."""
    shutil.copytree(TIERED, tmp_path / "broker")
    for number, end in enumerate((29927, 30073)):
        old = tmp_path / "broker" / f"orders-{number}"
        report = convert(old, tmp_path / "new" / old.name)
        assert (report.records, report.log_start_offset, report.missing_offsets) == (0, end, ((0, end),))
        (warning,) = told(report, caplog)
        assert f"offsets 0 to {end - 1} are not in this directory" in warning
        done = offsetlog("convert", "--json", old, tmp_path / "again" / old.name)
        assert done.returncode == 3
        assert f"warning: orders-{number}: {warning}" in done.stderr
        line = json.loads(done.stdout)
        assert line["missing_offsets"] == [{"first_offset": 0, "last_offset": end - 1}]
        assert line["warnings"] == [warning]


def test_a_missing_first_segment_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log dir says that the log begins at 0, and the first segment is gone."""
    log_dir = tmp_path / "logs"
    old = filled(log_dir / "orders-0", 6, segments=2)
    for file in old.glob(f"{0:020}.*"):
        file.unlink()
    (old / STATE).unlink()
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    report = convert(old, tmp_path / "new/orders-0")
    assert (report.records, report.log_start_offset, report.log_end_offset, report.missing_offsets) == (6, 6, 12, ((0, 6),))
    (warning,) = told(report, caplog)
    assert "offsets 0 to 5 are not in this directory" in warning
    # Without the line nobody promises them.
    (log_dir / "log-start-offset-checkpoint").unlink()
    report = convert(old, tmp_path / "other/orders-0")
    assert (report.missing_offsets, told(report, caplog)) == ((), [])


def test_a_missing_end_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The high watermark is beyond the log: acknowledged records are missing."""
    old = filled(tmp_path / "logs/orders-0", 6)
    (old / STATE).unlink()
    (tmp_path / "logs/replication-offset-checkpoint").write_text("0\n1\norders 0 15\n")
    report = convert(old, tmp_path / "new/orders-0")
    with Log.open(report.path) as log:
        assert log.log_end_offset == report.log_end_offset == 12
    assert report.missing_offsets == ((12, 15),)
    (warning,) = told(report, caplog)
    assert "offsets 12 to 14 are not in this directory" in warning
    assert offsetlog("convert", old, tmp_path / "again/orders-0").returncode == 3


def without_a_segment(log_dir: Path, config: str | None = None) -> Path:
    """Four segments of three batches, of which the second is gone; the settings are stored with the log, or unknown."""
    old = filled(log_dir / "orders-0", 12, segments=4)
    for file in old.glob(f"{6:020}.*"):
        file.unlink()
    (old / ".offsetlog.config").unlink(missing_ok=True)
    if config:
        with Log.open(old, "a") as log:
            log.config = {"cleanup.policy": config}
    return old


@pytest.mark.parametrize("config", ["delete", "compact", None])
def test_a_missing_segment_between_others_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, config: str | None) -> None:
    """Only compaction leaves offsets out, and where nobody knows of any, both are said."""
    old = without_a_segment(tmp_path / "plain", config)
    report = convert(old, tmp_path / "new/orders-0")
    assert (report.records, report.log_end_offset) == (18, 24)
    done = offsetlog("convert", "--json", old, tmp_path / "again/orders-0")
    assert report.missing_offsets == (((6, 12),) if config == "delete" else ())
    assert done.returncode == (3 if config == "delete" else 0)
    warnings = told(report, caplog)
    if config == "compact":
        assert warnings == []
        return
    (warning,) = warnings
    assert "offsets 6 to 11 are in no segment of this directory: a segment is missing" in warning
    assert ("so its records are lost" in warning) == (config == "delete")
    assert ("unless the topic is compacted" in warning) == (config is None)
    assert warning in done.stderr


@pytest.mark.parametrize("line", ["", "orders 0 20\n"])
def test_a_brokers_cleaner_says_whether_a_segment_is_missing(tmp_path: Path, line: str) -> None:
    old = without_a_segment(tmp_path / "broker")
    (old.parent / "cleaner-offset-checkpoint").write_text(f"0\n{line.count('orders')}\n{line}")
    report = convert(old, tmp_path / "new/orders-0")
    assert report.missing_offsets == (() if line else ((6, 12),))


# A broker's partition of a topic that is not compacted, in messages of magic 2 and in compressed ones of magic 0, and where its second segment begins.
EMPTIED = [(CLEAN / "log-dir-1", "g-plain-0", 62), (DATA / "kafka-2.8.2" / "broker-1", "o-v0-gzip-0", 44)]


@pytest.mark.parametrize(("log_dir", "name", "second"), EMPTIED, ids=["magic 2", "magic 0"])
def test_a_first_segment_without_its_bytes_is_told(tmp_path: Path, log_dir: Path, name: str, second: int) -> None:
    """The log begins where it did, and its first batch is the second segment's."""
    old = tmp_path / "dead" / name
    shutil.copytree(
        log_dir, old.parent, ignore=lambda folder, names: [each for each in names if Path(folder, each).is_dir() and each != name]
    )
    (old / f"{0:020}.log").write_bytes(b"")
    report = convert(old, tmp_path / "new" / name)
    assert (report.log_start_offset, report.missing_offsets) == (0, ((0, second),))
    salvaged = salvage(old, tmp_path / "salvaged" / name)
    (loss,) = salvaged.losses
    assert (loss.start, loss.stop) == (0, second)
    assert "no segment has these offsets" in loss.reason
    (restored,) = restore([old.parent], tmp_path / "restored", topics=old.name[:-2]).partitions
    assert [(loss.start, loss.stop) for loss in restored.losses] == [(0, second)]
    assert offsetlog("salvage", old, "--into", tmp_path / "again").returncode == 3


def test_segments_without_any_bytes_are_told(tmp_path: Path) -> None:
    """A log of several segments, of which none has a batch, is not one that never had a record."""
    old = filled(tmp_path / "logs" / "orders-0", 12, segments=4)
    for segment in old.glob("*.log"):
        segment.write_bytes(b"")
    assert convert(old, tmp_path / "new" / "orders-0").missing_offsets == ((0, 18),)
    (loss,) = salvage(old, tmp_path / "salvaged" / "orders-0").losses
    assert (loss.start, loss.stop) == (0, 18)


def test_what_is_odd_and_harmless_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A checkpoint that cannot be parsed: nothing is known to be missing."""
    old = filled(tmp_path / "logs/orders-0", 6)
    (tmp_path / "logs/log-start-offset-checkpoint").write_text("nonsense")
    report = convert(old, tmp_path / "new/orders-0")
    assert (report.records, report.missing_offsets) == (12, ())
    (warning,) = told(report, caplog)
    assert "log-start-offset-checkpoint" in warning
    assert offsetlog("convert", old, tmp_path / "again/orders-0").returncode == 0


def test_what_a_running_broker_has_just_deleted_is_no_loss(tmp_path: Path) -> None:
    """Its line in the checkpoint is written once a minute."""
    log_dir = tmp_path / "broker"
    with Log.open(log_dir / "t-0", "a", config={"internal.segment.bytes": 200}) as log:
        for _ in range(10):
            log.append(b"x" * 50)
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    for path in (log_dir / "t-0").glob(f"{0:020}.*"):
        path.unlink()
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    (log_dir / "t-0" / STATE).unlink()
    report = convert(log_dir / "t-0", tmp_path / "one" / "t-0")
    assert report.missing_offsets == ((0, report.log_start_offset),)
    lock = log_dir / ".lock"
    lock.touch()
    with running(HOLD, lock):
        report = convert(log_dir / "t-0", tmp_path / "two" / "t-0")
    assert report.missing_offsets == ()
    assert any("a broker deleted them and had not yet noted it" in text for text in report.warnings)


@pytest.mark.parametrize("verb", [convert, salvage])
def test_leader_epochs_that_cannot_be_read_keep_no_records_back(tmp_path: Path, verb: Callable[[Path, Path], object]) -> None:
    with Log.open(tmp_path / "old" / "t-0", "a") as log:
        log.append(b"x")
    epochs = tmp_path / "old" / "t-0" / "leader-epoch-checkpoint"
    epochs.unlink(missing_ok=True)
    epochs.mkdir()
    verb(tmp_path / "old" / "t-0", tmp_path / "new" / "t-0")
    with Log.open(tmp_path / "new" / "t-0") as log:
        assert [record.value for record in log.scan()] == [b"x"]
