"""`Log.maintain` and `Log.compact`: what is asked, what is told, and what is remembered."""

from __future__ import annotations

import signal
import struct
from pathlib import Path

import pytest
from make_log import batch
from writing import Clock

from offsetlog import ConfigError, Log, LogConfig, LogDir, MaintainReport, TopicPartition, WritableLog
from offsetlog.errors import CorruptionError, UnreadPartitionsError, UnsupportedMagicError

NOW = 1_700_000_000_000
LATE = 4_000_000_000_000
DAY = 86_400_000
SMALL: dict[str, str | int] = {"internal.segment.bytes": 300, "segment.index.bytes": 600}


def filled(path: Path, **settings: str | int) -> WritableLog:
    """A log of several segments in which each of four keys was written ten times."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    log = Log.open(path, "a", config=SMALL | given, clock=lambda: NOW)
    for number in range(40):
        log.append(b"%d" % number, key=b"key-%d" % (number % 4), timestamp=NOW + number)
    log.roll()
    return log


def test_compaction_keeps_the_last_record_of_each_key(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0", cleanup_policy="compact") as log:
        done = log.compact()
        assert (done.first_dirty_offset, done.end_offset, done.first_uncleanable_offset) == (0, 40, 40)
        assert (done.dirty_ratio, done.keys, done.records_before, done.records_after) == (1.0, 4, 40, 4)
        assert done.segments_before >= done.segments_after > 0
        assert done.bytes_before > done.bytes_after == log.size_bytes
        assert [(one.offset, one.key) for one in log.scan()] == [(36 + n, b"key-%d" % n) for n in range(4)]
        assert log.get(35) is None
        assert log.compact().segments_before == 0


@pytest.mark.parametrize("in_log_dir", [False, True])
def test_where_a_pass_ended_is_remembered(tmp_path: Path, *, in_log_dir: bool) -> None:
    if in_log_dir:
        (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAQACAAAAAAAAAAA\n")
    with filled(tmp_path / "t-0", cleanup_policy="compact") as log:
        end = log.compact(map_bytes=24 * 3).end_offset
        assert 0 < end < 40
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    assert checkpoint.exists() == in_log_dir
    assert not in_log_dir or checkpoint.read_text() == f"0\n1\nt 0 {end}\n"
    with Log.open(tmp_path / "t-0", "a") as log:
        assert log.maintain(dry_run=True).compactions[0].first_dirty_offset == end
        log.truncate_to(end - 1)
        assert log.maintain(dry_run=True).compactions == ()
        log.append(b"", key=b"")
        log.roll()
        assert log.compact().first_dirty_offset < end


def test_maintain_does_what_is_due_and_only_that(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0", cleanup_policy="compact,delete", retention_ms=1000, file_delete_delay_ms=0) as log:
        before = sorted(path.name for path in (tmp_path / "t-0").iterdir() if not path.name.startswith("."))
        planned = log.maintain(dry_run=True, now=NOW + 100_000)
        assert planned.dry_run
        assert len(planned.compactions) == 1
        # It leaves a first segment without records, which is as old as its file.
        assert planned.removed == ()
        assert (planned.log_start_offset, planned.log_end_offset) == (0, 40)
        assert sorted(path.name for path in (tmp_path / "t-0").iterdir() if not path.name.startswith(".")) == before
        assert log.maintain(only=[]) == MaintainReport((), (), (), 0, 40)
        assert log.maintain(only="retention").removed == ()
        assert [one.end_offset for one in log.maintain(only="compaction").compactions] == [40]
        # Segments without records are as old as their files.
        removed = log.maintain(only="retention", now=LATE).removed
        assert (removed[0].base_offset, removed[-1].end_offset) == (0, 40)
        assert (log.log_start_offset, list(log.scan())) == (40, [])
        deleted = log.maintain(only="deletes", now=LATE).deleted
        assert deleted
        assert all(path.endswith(".deleted") for path in deleted)
        assert not list((tmp_path / "t-0").glob("*.deleted"))


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
@pytest.mark.parametrize("days", [-2, 2])
def test_another_time_is_one_for_the_ages_of_records_alone(tmp_path: Path, policy: str, days: int) -> None:
    """Producers, and the files that a run deletes, go by the log's clock; what waited before goes by the other time."""
    clock, delay = Clock(NOW), 60_000
    config = {**SMALL, "cleanup.policy": policy, "retention.ms": 1000, "min.cleanable.dirty.ratio": 0, "file.delete.delay.ms": delay}
    with Log.open(tmp_path / "t-0", "a", config=config, clock=clock) as log:
        for number in range(8):
            sent = batch(0, [(b"k", b"v" * 80)], base_timestamp=NOW - 3 * DAY, producer_id=7, base_sequence=number)
            log.append_batches(sent)
        # Of now, and so is the producer.
        sent = batch(0, [(b"k", b"v" * 80)], base_timestamp=NOW, producer_id=7, base_sequence=8)
        log.append_batches(sent)
        other = NOW + days * DAY
        plan = log.maintain(now=other, dry_run=True)
        done = log.maintain(now=other)
        assert plan == done._replace(dry_run=True)
        assert done.deleted == ()
        assert done.removed or done.compactions
        gone = done.removed != () and done.removed[-1].end_offset == 9
        assert gone == (days > 0 and policy == "delete")
        assert log.append_batches(sent).duplicate

        def waiting() -> int:
            return len(list((tmp_path / "t-0").glob("*.deleted")))

        count = waiting()
        assert count > 0
        clock.now += delay - 1
        log.append(b"v", key=b"k")
        assert log.maintain(only="deletes").deleted == ()
        assert log.maintain(only="deletes", now=clock.now - DAY).deleted == ()
        assert waiting() == count
        # The delay of these is over by then.
        planned = log.maintain(only="deletes", now=clock.now + 1, dry_run=True).deleted
        assert planned == log.maintain(only="deletes", now=clock.now + 1).deleted
        assert (len(planned), waiting()) == (count, 0)


def test_in_a_log_dir_retention_comes_before_compaction(tmp_path: Path) -> None:
    """A broker removes what is old of all its logs before it comes to compact a second one. A dry run tells the same."""
    with filled(tmp_path / "t-0", cleanup_policy="compact,delete", retention_ms=1000) as log:
        log.append(b"kept", key=b"key-0", timestamp=NOW + 100_000)
        log.append(b"kept", key=b"key-1", timestamp=NOW + 100_000)
        log.roll()
    with LogDir.open(tmp_path, "a", clock=lambda: NOW + 100_500) as log_dir:
        partition = TopicPartition("t", 0)
        planned = log_dir.maintain(dry_run=True).partitions[partition]
        done = log_dir.maintain().partitions[partition]
        assert done.removed
        assert done.removed == planned.removed
        assert [one.key for one in log_dir.log("t", 0).scan()] == [b"key-0", b"key-1"]
        assert len(done.compactions) == 1
        assert done.log_start_offset == done.removed[-1].end_offset


def test_what_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0") as log:
        with pytest.raises(ConfigError, match="only: must be some of retention, compaction, deletes, found 'all'"):
            log.maintain(only=["all"])  # type: ignore[list-item]
        with pytest.raises(ConfigError, match="map_bytes"):
            log.compact(map_bytes=24)
        with pytest.raises(ConfigError, match="first_dirty"):
            log.compact(first_dirty=-1)
    with Log.open(tmp_path / "t-0") as log, pytest.raises(ConfigError, match="mode"):
        log.maintain()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("config", "start", "reasons"),
    [
        ({}, 0, ["retention.ms", "retention.ms"]),
        ({}, 10, ["log start offset", "retention.ms"]),
        ({"retention.bytes": -1}, 0, ["retention.bytes", "retention.ms"]),
        ({"cleanup.policy": "compact,delete"}, 10, ["log start offset", "retention.ms"]),
        ({"file.delete.delay.ms": 0}, 0, ["retention.ms", "retention.ms"]),
    ],
)
def test_retention_ends_before_a_segment_whose_times_are_hidden(
    tmp_path: Path, config: dict[str, str | int], start: int, reasons: list[str]
) -> None:
    """What is before it goes, for whatever reason; the damage is named, and what is damaged stays."""
    path = tmp_path / "t-0"
    with LogDir.open(tmp_path, "a", clock=lambda: NOW) as log_dir:
        log_dir.create_topic("t")
        log = log_dir.log("t", 0)
        for base in range(0, 50, 10):
            for number in range(base, base + 10):
                log.append(b"v", key=b"%d" % number, timestamp=NOW - 5000)
            if base < 40:
                log.roll()
        log.delete_records_before(start)
        sizes = [segment.size_bytes for segment in log.segments]
    damaged = path / f"{20:020}.log"
    data = bytearray(damaged.read_bytes())
    data[16] = 0x55
    damaged.write_bytes(data)
    if "retention.bytes" in config:
        config = {"retention.bytes": sum(sizes[1:])}
    with LogDir.open(tmp_path, "a", clock=lambda: NOW) as log_dir:
        log_dir.set_topic_config("t", {"retention.ms": 1000, **config})
        for dry_run in (True, False):
            why = log_dir.why(now=NOW)[0]
            assert (why.question, why.reason, why.segment, why.size_bytes) == ("deletion", "due", 0, sum(sizes[:2]))
            report = log_dir.maintain(dry_run=dry_run)
            kept = report.partitions[TopicPartition("t", 0)]
            assert (kept.log_start_offset, kept.log_end_offset) == (20, 50)
            assert [(one.base_offset, one.reason) for one in kept.removed] == list(zip([0, 10], reasons, strict=True))
            assert damaged.name in str(report.failed[TopicPartition("t", 0)])
        assert bool(kept.deleted) == ("file.delete.delay.ms" in config)
        again = log_dir.maintain()
        assert (again.partitions, [*again.failed]) == ({}, [TopicPartition("t", 0)])
        with pytest.raises((UnsupportedMagicError, UnreadPartitionsError), match=damaged.name):
            log_dir.why(now=NOW)
    assert damaged.read_bytes() == data
    assert sorted(int(found.stem) for found in path.glob("*.log")) == [20, 30, 40]


@pytest.mark.parametrize(("times", "forged"), [((NOW - 5000, NOW - 4000), NOW + DAY), ((NOW, NOW - 5000), NOW - 4500)])
def test_a_wrong_time_index_does_not_age_the_active_segment(tmp_path: Path, times: tuple[int, int], forged: int) -> None:
    """Neither does it keep old records for good, nor does it delete young ones."""
    path = tmp_path / "t-0"
    config: dict[str, str | int] = {"retention.ms": 1000, "index.interval.bytes": 100}
    with Log.open(path, "a", config=config, clock=lambda: NOW) as log:
        for number in range(10):
            log.append(bytes(80), timestamp=times[number > 0])
    index = path / f"{0:020}.timeindex"
    data = bytearray(index.read_bytes())
    assert len(data) >= 12
    data[-12:-4] = struct.pack(">q", forged)
    index.write_bytes(data[-12:])
    with Log.open(path, "a", clock=lambda: NOW) as log:
        assert index.read_bytes() == data[-12:]
        removed = [segment.base_offset for segment in log.maintain(dry_run=True).removed]
        assert removed == ([] if NOW in times else [0])
        assert [segment.base_offset for segment in log.maintain().removed] == removed


def test_damage_stops_a_compaction_and_not_retention(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0", cleanup_policy="compact,delete", retention_ms=1000, file_delete_delay_ms=0) as log:
        log.delete_records_before(10)
        first = [segment.base_offset for segment in log.segments][1]
        assert first < 10
        path = Path(log.segments[-2].path)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptionError, match=path.name) as raised:
            log.maintain(dry_run=True)
        assert not hasattr(raised.value, "__notes__")
        with pytest.raises(CorruptionError, match=path.name) as raised:
            log.maintain()
        assert log.segments[0].base_offset > first
        # The report is lost with the exception, so this tells what is gone.
        (note,) = raised.value.__notes__
        assert note.startswith(f"done before that: offsets 0 to {first - 1} removed (")
        assert not list((tmp_path / "t-0").glob("*.deleted"))


def test_ctrl_c_tells_what_was_done_by_then(tmp_path: Path) -> None:
    """The note names the partitions that have lost something, and no others."""
    topics = [f"t{number:02}" for number in range(60)]
    settings = SMALL | {"retention.ms": 1000, "file.delete.delay.ms": 0}
    with LogDir.open(tmp_path, "a", clock=lambda: NOW) as log_dir:
        for topic in topics:
            log_dir.create_topic(topic, config=settings)
            for number in range(12):
                log_dir.append(topic, b"%d" % number, key=b"key", timestamp=NOW - DAY + number)
    first = [tmp_path / f"{topic}-0" / f"{0:020}.log" for topic in topics]

    def stop(*_: object) -> None:
        if not first[0].exists():
            raise KeyboardInterrupt

    with LogDir.open(tmp_path, "a", clock=lambda: NOW) as log_dir:
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        try:
            with pytest.raises(KeyboardInterrupt) as raised:
                log_dir.maintain()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        (note,) = raised.value.__notes__
        gone = [path.parent.name for path in first if not path.exists()]
        assert 0 < len(gone) < len(topics)
        told = note.removeprefix("done before that: ").split("; ")
        assert [words.split(": ")[0] for words in told] == gone
        assert all(": offsets 0 to " in words and " removed (" in words for words in told), note
        report = log_dir.maintain()
        left = {path.parent.name for path in first} - set(gone)
        assert {f"{topic}-{number}" for topic, number in report.partitions} >= left


def test_damage_stops_a_compaction_and_stays(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0", cleanup_policy="compact") as log:
        path = tmp_path / "t-0" / f"{0:020}.log"
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
        with pytest.raises(Exception, match="checksum") as raised:
            log.compact()
        assert path.name in str(raised.value)
        assert path.read_bytes() == data
        assert not list((tmp_path / "t-0").glob("*.cleaned"))


def test_an_earlier_time_gives_tombstones_no_shorter_life(tmp_path: Path) -> None:
    """Whoever reads behind the compaction still has `delete.retention.ms` for them, by the log's clock."""
    day = 86_400_000
    clock = Clock(NOW)
    config = LogConfig.from_dict({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "delete.retention.ms": day})
    with Log.open(tmp_path / "t-0", "a", config, clock=clock) as log:

        def more() -> None:
            log.append(b"x", key=b"other")
            log.roll()

        log.append(b"x", key=b"gone")
        log.append(None, key=b"gone")
        more()
        log.maintain(now=NOW - 30 * day)
        for later, keys in ((day - 1, [b"gone", b"other"]), (day, [b"other"])):
            clock.now = NOW + later
            more()
            log.maintain()
            assert sorted({record.key or b"" for record in log.scan()}) == keys
