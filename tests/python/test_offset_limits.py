"""Offsets far away: 32-bit distances inside a segment, 63 bits altogether."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from writing import SMALL, Clock, coded, offsets, refused, values

from offsetlog import Log, OffsetOverflowError

LAST = (1 << 63) - 1


def test_a_jump_begins_a_segment(tmp_path: Path) -> None:
    far = [0, (1 << 31) - 1, (1 << 31) + 5, 1 << 32, 1 << 62]
    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=Clock()) as log:
        for offset in far:
            log.append_as_follower(coded(b"%d" % offset, base_offset=offset))
        assert [segment.base_offset for segment in log.segments] == [0, (1 << 31) + 5, 1 << 62]
        assert offsets(log) == far
        assert log.append(b"on") == (1 << 62) + 1
        assert log.locate(1 << 32).segment == (1 << 31) + 5
    with Log.open(tmp_path / "orders-0", "a", clock=Clock(), clean=False, recovery_point=0) as log:
        assert not log.recovery_report.cut
        assert offsets(log) == [*far, (1 << 62) + 1]


def test_the_last_offset_of_all_is_refused(tmp_path: Path) -> None:
    """Behind it there is no log end offset."""
    path = tmp_path / "orders-0"
    with Log.open(path, "a", SMALL, clock=Clock()) as log:
        log.append_as_follower(coded(b"x", base_offset=LAST - 2))
        calls: list[Callable[[], object]] = [
            lambda: log.append_records([b"y", b"z"]),
            lambda: log.append_batches(coded(b"y", b"z")),
            lambda: log.append_as_follower(coded(b"y", base_offset=LAST)),
        ]
        for call in calls:
            refused(log, call, OffsetOverflowError)
        assert log.append(b"fits") == LAST - 1
        for call in (lambda: log.append(b"y"), lambda: log.append_marker(1, 0, commit=True)):
            refused(log, call, OffsetOverflowError)
        assert values(log) == [b"x", b"fits"]
    with Log.open(path, "a", clock=Clock(), clean=False, recovery_point=0) as log:
        assert (log.log_end_offset, values(log)) == (LAST, [b"x", b"fits"])


@pytest.mark.parametrize("clean", [True, False])
def test_truncation_far_away(tmp_path: Path, clean: bool) -> None:
    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=Clock()) as log:
        log.truncate_fully_and_start_at(LAST - 10)
        for number in range(5):
            log.append(b"%d" % number)
        assert log.truncate_to(LAST - 7)
        assert not log.truncate_to(LAST)
    with Log.open(tmp_path / "orders-0", "a", clock=Clock(), clean=clean) as log:
        assert (log.log_start_offset, log.log_end_offset, values(log)) == (LAST - 10, LAST - 7, [b"0", b"1", b"2"])


def test_mapped_writers_read_what_they_write(tmp_path: Path) -> None:
    """The option is for reading copies; a writer takes it and does not map what it changes."""
    with Log.open(tmp_path / "orders-0", "a", SMALL, mapped=True, clock=Clock()) as log:
        for number in range(6):
            log.append(b"%d" % number)
            if number % 2:
                log.roll()
        log.truncate_to(3)
        log.append(b"again")
        assert values(log) == [b"0", b"1", b"2", b"again"]
