"""Offsets far away: 32-bit distances inside a segment, 63 bits altogether."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from writing import SMALL, Clock, coded, refused, values

from offsetlog import Log, RecordRejectedError

LAST = (1 << 63) - 1


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
            refused(log, call, RecordRejectedError)
        assert log.append(b"fits") == LAST - 1
        for call in (lambda: log.append(b"y"), lambda: log.append_marker(1, 0, commit=True)):
            refused(log, call, RecordRejectedError)
        assert values(log) == [b"x", b"fits"]
    with Log.open(path, "a", clock=Clock(), clean=False, recovery_point=0) as log:
        assert (log.log_end_offset, values(log)) == (LAST, [b"x", b"fits"])


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
