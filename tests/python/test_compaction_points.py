"""Up to where a log was compacted: too high, and a deleted value comes back. A tombstone is removed before the value that it deletes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlog import ConfigError, Log, LogDir, WritableLog, recover

SETTINGS: dict[str, str | float] = {"cleanup.policy": "compact", "delete.retention.ms": 1000, "min.cleanable.dirty.ratio": 0.01}


class Hour:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Hour:
    return Hour()


def opened(path: Path, clock: Hour, config: dict[str, str | float] | None = None) -> WritableLog:
    return Log.open(path, "a", SETTINGS if config is None else config, clock=clock)


def append(log: WritableLog, clock: Hour, key: bytes, value: bytes | None) -> int:
    return log.append(value, key=key, timestamp=clock.now)


def grow(log: WritableLog, clock: Hour, count: int = 25) -> None:
    for number in range(count):
        append(log, clock, b"z%d" % number, b"v")
    log.roll()


def compact_past_the_horizon(log: WritableLog, clock: Hour) -> None:
    """Tombstones go, once they were seen and `delete.retention.ms` has passed."""
    for number in range(3):
        clock.now += 5000
        log.compact()
        for _ in range(3):
            append(log, clock, b"y%d" % number, b"v")
        log.roll()


def of_key(log: Log, key: bytes) -> Iterator[bytes | None]:
    return (record.value for record in log.scan() if record.key == key)


def test_truncation_and_growth(tmp_path: Path, clock: Hour) -> None:
    """Also where the policy was another one at the truncation: `compact` does its work whatever the policy says."""
    for policy in ("compact", "delete"):
        path = tmp_path / policy / "t-0"
        with opened(path, clock, {**SETTINGS, "cleanup.policy": policy}) as log:
            append(log, clock, b"a", b"secret")
            grow(log, clock)
            log.compact()
            log.truncate_to(5)
            append(log, clock, b"a", None)
            grow(log, clock)
            compact_past_the_horizon(log, clock)
            assert list(of_key(log, b"a")) == [], policy


def test_truncation_by_a_program_that_does_not_know_the_policy(tmp_path: Path, clock: Hour) -> None:
    with LogDir.open(tmp_path, "a", defaults=SETTINGS, clock=clock) as log_dir:
        log_dir.create_topic("t", 1)
        append(log_dir.log("t", 0), clock, b"a", b"secret")
        grow(log_dir.log("t", 0), clock)
        log_dir.maintain()
    with Log.open(tmp_path / "t-0", "a") as log:
        log.truncate_to(5)
    with LogDir.open(tmp_path, "a", defaults=SETTINGS, clock=clock) as log_dir:
        log = log_dir.log("t", 0)
        append(log, clock, b"a", None)
        grow(log, clock)
        compact_past_the_horizon(log, clock)
        assert list(of_key(log, b"a")) == []


def test_a_restart_below_the_first_segment(tmp_path: Path, clock: Hour) -> None:
    with opened(tmp_path / "t-0", clock) as log:
        log.truncate_fully_and_start_at(10)
        grow(log, clock)
        log.compact()
        log.truncate_fully_and_start_at(5)
        append(log, clock, b"a", b"secret")
        append(log, clock, b"a", None)
        grow(log, clock)
        compact_past_the_horizon(log, clock)
        assert list(of_key(log, b"a")) == []


@pytest.mark.parametrize("in_a_log_dir", [False, True])
def test_recovery_that_cuts(tmp_path: Path, clock: Hour, in_a_log_dir: bool) -> None:
    path = tmp_path / "t-0"
    if in_a_log_dir:
        (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    with opened(path, clock) as log:
        append(log, clock, b"a", b"secret")
        grow(log, clock)
        log.compact()
        position = next(log.batches(start=5)).position
        segment = Path(log.segments[0].path)
    damaged = bytearray(segment.read_bytes())
    damaged[position + 65] ^= 1
    segment.write_bytes(damaged)
    assert recover(path).log_end_offset == 5
    with opened(path, clock) as log:
        assert append(log, clock, b"a", None) == 5
        grow(log, clock)
        compact_past_the_horizon(log, clock)
        assert list(of_key(log, b"a")) == []


def test_a_lower_point_that_could_not_be_stored_is_stored_with_the_next_change(tmp_path: Path, clock: Hour) -> None:
    with LogDir.open(tmp_path, "a", defaults=SETTINGS, clock=clock) as log_dir:
        log_dir.create_topic("t", 1, config=SETTINGS)
        log = log_dir.log("t", 0)
        append(log, clock, b"a", b"secret")
        grow(log, clock)
        log.compact()
        position = next(log.batches(start=5)).position
        segment = Path(log.segments[0].path)
    damaged = bytearray(segment.read_bytes())
    damaged[position + 65] ^= 1
    segment.write_bytes(damaged)
    obstacle = tmp_path / "cleaner-offset-checkpoint.tmp"
    obstacle.mkdir()
    with pytest.raises(IsADirectoryError):
        recover(tmp_path / "t-0")
    with Log.open(tmp_path / "t-0", "a", SETTINGS, clock=clock) as log:
        with pytest.raises(IsADirectoryError):
            append(log, clock, b"a", None)
        obstacle.rmdir()
        assert append(log, clock, b"a", None) == 5
        grow(log, clock)
    with Log.open(tmp_path / "t-0", "a", SETTINGS, clock=clock) as log:
        compact_past_the_horizon(log, clock)
        assert list(of_key(log, b"a")) == []


def test_a_pass_that_would_leave_offsets_out_is_refused(tmp_path: Path, clock: Hour) -> None:
    with opened(tmp_path / "t-0", clock) as log:
        append(log, clock, b"a", b"secret")
        append(log, clock, b"a", None)
        grow(log, clock)
        with pytest.raises(ConfigError, match="first_dirty: 8 found, at most 0 expected, where the last pass ended"):
            log.compact(first_dirty=8)
        end = log.compact(first_dirty=0).end_offset
        grow(log, clock)
        with pytest.raises(ConfigError, match=f"at most {end} expected"):
            log.compact(first_dirty=end + 1)
        log.compact(first_dirty=end)
        compact_past_the_horizon(log, clock)
        assert list(of_key(log, b"a")) == []


def test_records_are_deleted_once_that_is_noted(tmp_path: Path) -> None:
    """The leader epochs cannot be written then: those below the start do no harm."""
    path = tmp_path / "t-0"
    with Log.open(path, "a") as log:
        for epoch in (1, 2, 3):
            for _ in range(10):
                log.append(b"v", leader_epoch=epoch)
        log.flush()
        (path / "leader-epoch-checkpoint.tmp").mkdir()
        assert log.delete_records_before(15)
        assert log.log_start_offset == 15
        assert not log.delete_records_before(15)
        (path / "leader-epoch-checkpoint.tmp").rmdir()
        assert log.delete_records_before(16)
    with Log.open(path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (16, 30)
