"""What ``adopt`` tells of retention: a broker deletes old records half a minute after its start, also those that were just taken in."""

from __future__ import annotations

import os
from pathlib import Path

import metadata_records as records
import pytest
from test_restore_retention import CASES, DAY, ID_TEXT, KEPT, now, stopped

from offsetlog import AdoptedPartition, Log, adopt

STRAY = "orders-0.0123456789abcdef0123456789abcdef-stray"


def set_aside(log_dir: Path, *, age: int = DAY, size: int = 100_000, timestamp: int | None = None) -> Path:
    """Five records of this age, set aside; the empty directory of the topic is gone."""
    directory = log_dir / STRAY
    with Log.open(log_dir.parent / "orders-0", "a", topic_id=ID_TEXT) as log:
        for _ in range(5):
            log.append(bytes(size), timestamp=now() - age if timestamp is None else timestamp)
    (log_dir.parent / "orders-0").rename(directory)
    for path in (log_dir / "orders-0").iterdir():
        path.unlink()
    (log_dir / "orders-0").rmdir()
    return directory


def of_retention(adopted: AdoptedPartition) -> list[str]:
    return [note for note in adopted.notes if "kafka-configs.sh" in note]


@pytest.mark.parametrize("case", CASES)
def test_retention_is_what_holds_on_the_broker(case: str, tmp_path: Path) -> None:
    """The same settings, records and words as of ``restore`` into the same log dir."""
    configs, text, expected = CASES[case]
    log_dir, metadata = stopped(tmp_path, *configs)
    (tmp_path / "server.properties").write_text(text)
    directory = set_aside(log_dir)
    for dry_run in (True, False):
        (adopted,) = adopt(directory, metadata=metadata, broker=tmp_path / "server.properties", dry_run=dry_run)
        notes = of_retention(adopted)
        assert len(notes) == len(expected), notes
        for setting, why in expected.items():
            (note,) = [note for note in notes if f"--entity-name orders --add-config {setting}={KEPT[setting]}" in note]
            assert note.startswith(why), note


def test_the_topics_own_is_told_without_a_file(tmp_path: Path) -> None:
    """Records of a day, and a retention of an hour."""
    configs = [
        records.config("topic", "orders", name, value) for name, value in (("retention.ms", "3600000"), ("retention.bytes", "-1"))
    ]
    log_dir, metadata = stopped(tmp_path, *configs)
    (adopted,) = adopt(set_aside(log_dir), metadata=metadata)
    (note,) = of_retention(adopted)
    assert note.startswith("retention.ms=3600000 deletes records 30 s after the broker's start")


def test_what_nobody_knows_is_told(tmp_path: Path) -> None:
    """Without metadata, or without ``server.properties`` where the topic has nothing of its own."""
    log_dir, metadata = stopped(tmp_path)
    directory = set_aside(log_dir)
    (adopted,) = adopt(directory, metadata=metadata, dry_run=True)
    (note,) = of_retention(adopted)
    assert note.startswith("the brokers' retention.ms and retention.bytes are not known (--broker)")
    assert note.endswith("--entity-name orders --add-config retention.ms=-1,retention.bytes=-1")
    (adopted,) = adopt(directory, topic_id=ID_TEXT)
    (note,) = of_retention(adopted)
    assert "no metadata of the cluster is here" in note
    assert note.endswith("--entity-name orders --add-config retention.ms=-1,retention.bytes=-1")


def test_records_without_a_time_are_told(tmp_path: Path) -> None:
    """Their age is that of their file, which is kept."""
    log_dir, metadata = stopped(tmp_path, records.config("topic", "orders", "retention.ms", "3600000"))
    (tmp_path / "server.properties").write_text("")
    (adopted,) = adopt(set_aside(log_dir, timestamp=-1), metadata=metadata, broker=tmp_path / "server.properties")
    (note,) = of_retention(adopted)
    assert "no timestamp" in note
    assert "new files" not in note


@pytest.mark.parametrize(("days", "is_due"), [(30, True), (0, False)])
def test_records_without_a_time_go_by_their_old_files(days: int, is_due: bool, tmp_path: Path) -> None:
    """A broker counts from the modification time of a segment's file (``LogSegment.largestTimestamp``), which adopt leaves as it is."""
    log_dir, metadata = stopped(tmp_path, records.config("topic", "orders", "retention.ms", "3600000"))
    (tmp_path / "server.properties").write_text("")
    directory = set_aside(log_dir, timestamp=-1)
    then = now() / 1000 - days * DAY / 1000
    for path in directory.iterdir():
        os.utime(path, (then, then))
    (adopted,) = adopt(directory, metadata=metadata, broker=tmp_path / "server.properties")
    (note,) = of_retention(adopted)
    assert note.startswith("retention.ms=3600000 deletes records 30 s after the broker's start") == is_due
    # A broker's own round.
    settings: dict[str, str | int | float | bool] = {"retention.ms": 3_600_000, "file.delete.delay.ms": 0}
    with Log.open(log_dir / "orders-0", "a", config=settings, single_replica=True) as log:
        log.maintain()
        assert (log.log_start_offset > 0) == is_due


@pytest.mark.parametrize(("segment_records", "is_told"), [(5, False), (2, True)])
def test_the_age_is_that_of_the_first_segment(segment_records: int, is_told: bool, tmp_path: Path) -> None:
    """The directory stays as it is: a segment goes when its newest record is due. Of five records the first two are."""
    log_dir, metadata = stopped(tmp_path, records.config("topic", "orders", "retention.ms", str(DAY)))
    (tmp_path / "server.properties").write_text("")
    (log_dir / "orders-0").rename(tmp_path / "empty")
    with Log.open(tmp_path / "orders-0", "a", topic_id=ID_TEXT) as log:
        for number in range(5):
            log.append(b"value", timestamp=now() - (3 * DAY if number < 2 else 1000))
            if (number + 1) % segment_records == 0:
                log.roll()
    (tmp_path / "orders-0").rename(log_dir / STRAY)
    (adopted,) = adopt(log_dir / STRAY, metadata=metadata, broker=tmp_path / "server.properties")
    assert bool(of_retention(adopted)) == is_told
    # A broker's own round, by the same settings.
    settings: dict[str, str | int | float | bool] = {"retention.ms": DAY, "file.delete.delay.ms": 0}
    with Log.open(log_dir / "orders-0", "a", config=settings, single_replica=True) as log:
        log.maintain()
        assert (log.log_start_offset > 0) == is_told


@pytest.mark.parametrize(("text", "is_told"), [(None, True), ("0\n1\norders 0 3\n", False), ("no checkpoint\n", True)])
def test_a_cleaners_checkpoint_that_cannot_be_read_does_not_hide_compaction(text: str | None, is_told: bool, tmp_path: Path) -> None:
    """Only one with a line of the partition says that its records were compacted before."""
    log_dir, metadata = stopped(tmp_path, records.config("topic", "orders", "cleanup.policy", "compact"))
    # Of one that was set aside there is no line.
    live = set_aside(log_dir).rename(log_dir / "orders-0")
    (live / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    if text is not None:
        (log_dir / "cleaner-offset-checkpoint").write_text(text)
    (adopted,) = adopt(live, metadata=metadata, dry_run=True)
    assert any("--add-config cleanup.policy=delete" in note for note in adopted.notes) == is_told


def test_an_empty_one_loses_nothing(tmp_path: Path) -> None:
    log_dir, metadata = stopped(tmp_path, records.config("topic", "orders", "retention.ms", "1"))
    (log_dir / "orders-0").rename(log_dir / STRAY)
    (adopted,) = adopt(log_dir / STRAY, metadata=metadata)
    assert not of_retention(adopted)


def test_a_server_properties_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    log_dir, metadata = stopped(tmp_path)
    directory = set_aside(log_dir)
    before = sorted(path.name for path in log_dir.rglob("*"))
    with pytest.raises(FileNotFoundError, match=r"server\.properties"):
        adopt(directory, metadata=metadata, broker=tmp_path / "server.properties")
    assert sorted(path.name for path in log_dir.rglob("*")) == before
