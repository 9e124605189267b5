"""Settings that appending honours, how they are stored, and the clock that every decision about time comes from."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Unpack

import pytest
from frames import all_frames
from golden import CLEAN
from make_log import batch
from writing import CONFIG, NOW, SMALL, Clock, coded, filled, tree, values

from offsetlog import ConfigError, Log, LogConfig, WritableLog
from offsetlog._append_arguments import Compression
from offsetlog._config import CompressionType, Settings

HOUR = 3_600_000


def opened(tmp_path: Path, clock: Clock | None = None, **settings: Unpack[Settings]) -> WritableLog:
    """A new log with these settings, by Kafka's names with underscores."""
    settings.setdefault("segment_index_bytes", 1000)
    return Log.open(tmp_path / "orders-0", "a", LogConfig(**settings), clock=clock or Clock())


def test_create_time_keeps_the_callers_time(tmp_path: Path) -> None:
    with opened(tmp_path, message_timestamp_type="CreateTime") as log:
        info = log.append_records([b"a"])
        log.append(b"b", timestamp=5)
        assert info.log_append_time == -1
        assert [(r.timestamp, r.timestamp_type) for r in log.scan()] == [(NOW, 0), (5, 0)]


def test_log_append_time_is_the_clocks(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, message_timestamp_type="LogAppendTime") as log:
        log.append(b"a", timestamp=5)
        clock.now += 10
        info = log.append_records([b"b", b"c"])
        assert (info.log_append_time, info.max_timestamp) == (NOW + 10, NOW + 10)
        clock.now += 10
        assert log.append_batches(coded(b"d", b"e")).log_append_time == NOW + 20
        assert [(r.timestamp, r.timestamp_type) for r in log.scan()] == [(NOW, 1), *[(NOW + 10, 1)] * 2, *[(NOW + 20, 1)] * 2]
        assert {frame.timestamp_type for frame in all_frames(Path(log.path))} == {1}
        # A follower stores what its leader decided.
        log.append_as_follower(coded(b"f", base_offset=5, base_timestamp=7))
        assert list(log.scan())[-1].timestamp == 7


def test_log_append_time_takes_any_time_of_the_caller(tmp_path: Path) -> None:
    with opened(tmp_path, message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0) as log:
        log.append(b"", timestamp=NOW * 2)
        assert [r.timestamp for r in log.scan()] == [NOW]


@pytest.mark.parametrize("wanted", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", ["none", "gzip", "zstd"])
def test_compression(tmp_path: Path, wanted: CompressionType, sent: Compression) -> None:
    rows = [b"compress me %d " % n * 20 for n in range(20)]
    with opened(tmp_path, compression_type=wanted) as log:
        log.append_records(rows, compression=sent)
        if sent == "gzip":
            log.append_batches(batch(0, [(None, row) for row in rows], codec=1, base_timestamp=NOW))
        expected: str = {"producer": sent, "uncompressed": "none"}.get(wanted, str(wanted))
        assert {frame.codec for frame in all_frames(Path(log.path))} == {expected}
        assert values(log) == rows * (2 if sent == "gzip" else 1)


def test_compression_level_changes_the_size(tmp_path: Path) -> None:
    words = b" ".join(b"%d" % (n * n % 7919) for n in range(20_000))
    sizes = {}
    for level in (1, 9):
        with Log.open(tmp_path / f"level-{level}", "a", LogConfig(compression_type="gzip", compression_gzip_level=level)) as log:
            log.append(words)
            sizes[level] = log.size_bytes
            assert values(log) == [words]
    assert sizes[9] < sizes[1] < len(words)


def test_legacy_messages_are_encoded_anew(tmp_path: Path) -> None:
    import zlib

    body = struct.pack(">bbq", 1, 0, NOW) + struct.pack(">i", 1) + b"k" + struct.pack(">i", 1) + b"v"
    message = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    with opened(tmp_path) as log:
        log.append(b"first")
        assert log.append_batches(message + message)[:2] == (1, 2)
        assert [(r.offset, r.key, r.timestamp) for r in log.scan(start=1)] == [(1, b"k", NOW), (2, b"k", NOW)]
        assert {frame.magic for frame in all_frames(Path(log.path))} == {2}


@pytest.mark.parametrize(("interval", "entries"), [(0, 9), (150, 4), (1 << 20, 0)])
def test_index_interval(tmp_path: Path, interval: int, entries: int) -> None:
    """By the counter: an entry for each batch that more than so many bytes stand before, counted from the last one."""
    with opened(tmp_path, index_interval_bytes=interval) as log:
        for _ in range(10):
            log.append(bytes(20))
        size = log.size_bytes // 10
        assert size < 150 < 2 * size
    # Of the closed log.
    with Log.open(log.path) as written:
        assert written.segments[0].index_entries == entries
        indexed = [written.locate(offset) for offset in range(10)]
        assert all(location.batch is not None and location.batch.base_offset == location.offset for location in indexed)
        assert max(location.scanned_batches for location in indexed) == {9: 1, 4: 2, 0: 10}[entries]


def test_compacted_topics(tmp_path: Path) -> None:
    with opened(tmp_path, cleanup_policy="compact, delete") as log:
        with pytest.raises(ValueError, match="has no key"):
            log.append(b"v")
        assert log.append(b"v", key=b"") == 0
        assert log.append(None, key=b"k") == 1


def test_config_can_change_while_the_log_is_open(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.config = LogConfig(max_message_bytes=100)
        assert log.config == LogConfig(max_message_bytes=100)
        with pytest.raises(ValueError, match="at most 100 bytes"):
            log.append(bytes(200))
        log.config = {"max.message.bytes": "1000", "message.timestamp.type": "LogAppendTime"}
        log.append(bytes(200), timestamp=1)
        assert [record.timestamp for record in log.scan()] == [NOW]
    with Log.open(tmp_path / "orders-0", "a") as log:
        assert log.config.to_dict() == {"max.message.bytes": 1000, "message.timestamp.type": "LogAppendTime"}


def test_config_is_stored_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    config = LogConfig(segment_ms=HOUR, cleanup_policy="compact", retention_ms=-1)
    Log.open(path, "a", config).close()
    assert (path / CONFIG).read_text() == "version: 0\ncleanup.policy=compact\nretention.ms=-1\nsegment.ms=3600000\n"
    with Log.open(path, "a") as log:
        assert log.config == config
    with Log.open(path, "a", {"segment.ms": "5"}) as log:
        assert log.config == LogConfig(segment_ms=5)
    with Log.open(path, "a") as log:
        assert log.config == LogConfig(segment_ms=5)
    with Log.open(path, "a", {}) as log:
        assert log.config == LogConfig()
    with Log.open(path, "a") as log:
        assert log.config == LogConfig()


def test_a_log_that_is_made_without_settings_stores_that_it_has_none(tmp_path: Path) -> None:
    """It tells a log of ours from one that was copied from a broker."""
    Log.open(tmp_path / "orders-0", "a").close()
    assert tree(tmp_path / "orders-0")[CONFIG] == b"version: 0\n"
    shutil.copytree(CLEAN / "log-dir-1" / "g-plain-0", tmp_path / "g-plain-0")
    Log.open(tmp_path / "g-plain-0", "a").close()
    assert CONFIG not in tree(tmp_path / "g-plain-0")


def test_a_broken_file_of_settings_can_be_replaced(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    (path / CONFIG).write_bytes(b"\xffnonsense")
    before = tree(path)
    with pytest.raises(Exception, match=r"\.offsetlog\.config"):
        Log.open(path, "a")
    assert tree(path) == before
    with Log.open(path) as log:
        assert log.scan().count() == 6
    (path / CONFIG).unlink()
    with Log.open(path, "a", SMALL) as log:
        assert log.config.to_dict() == SMALL


def test_refused_settings_leave_the_stored_ones(tmp_path: Path) -> None:
    with opened(tmp_path, segment_ms=5) as log:
        before = tree(tmp_path)
        for bad in ({"segment.ms": 0}, {"no.such": 1}, {"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 5}):
            with pytest.raises(ConfigError):
                log.config = bad
        assert log.config.segment_ms == 5
        assert tree(tmp_path) == before


def test_the_clock_gives_every_time(tmp_path: Path) -> None:
    clock = Clock(123)
    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=clock) as log:
        log.append(b"a")
        log.append_records([b"b"])
        log.append_marker(1, 0, commit=True)
        with log.writer() as writer:
            writer.append(b"c")
        clock.now = 456
        log.append(b"d")
        assert [record.timestamp for record in log.scan()] == [123, 123, 123, 456]
        assert next(frame for frame in all_frames(Path(log.path)) if frame.is_control).max_timestamp == 123


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fault", ["raises", "text"])
def test_a_clock_that_fails_ends_the_call_and_appends_nothing(tmp_path: Path, fault: str) -> None:
    """What needs no time of its own goes on by the wall clock, and the failure goes to ``sys.unraisablehook``."""
    fails = [False]

    def clock() -> int:
        if not fails[0]:
            return NOW
        if fault == "raises":
            message = "no time"
            raise RuntimeError(message)
        return "late"  # type: ignore[return-value]  # what it must cope with

    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=clock) as log:
        log.append(b"a")
        fails[0] = True
        kind = RuntimeError if fault == "raises" else TypeError
        for way in (lambda: log.append(b"b"), lambda: log.append_records([b"b", b"c"]), lambda: log.append_marker(1, 0, commit=True)):
            with pytest.raises(kind):
                way()
        log.roll()
        fails[0] = False
        log.append(b"d")
        assert values(log) == [b"a", b"d"]
        assert all(record.timestamp == NOW for record in log.scan())
    with Log.open(tmp_path / "orders-0", "a") as log:
        assert log.recovery_report.clean


def test_a_clock_may_ask_the_log(tmp_path: Path) -> None:
    """Nothing is locked that reading needs while the clock is asked."""
    asked: list[int] = []

    def clock() -> int:
        if held:
            asked.append(held[0].log_end_offset)
        return NOW

    held: list[Log] = []
    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=clock) as log:
        held.append(log)
        log.append(b"a")
        log.append(b"b")
        assert asked[-1] == 1
        held.clear()
