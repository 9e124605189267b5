"""``convert`` and ``salvage`` of a log that changes meanwhile: the new log is that of one moment, or nothing is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from offsetlog import Log, LogDirError, OffsetOutOfRangeError, WritableLog, convert, salvage

BEFORE, CUT, AGAIN = 3000, 1500, 400


def large(path: Path, count: int = BEFORE) -> WritableLog:
    """A log of several segments, longer than the work between two calls of ``progress``."""
    log = Log.open(path, "a", config={"segment.bytes": 1 << 20, "file.delete.delay.ms": 0})
    with log.writer() as writer:
        for slot in range(count):
            writer.append(b"old%06d" % slot * 110, key=b"%d" % slot)
    assert len(log.segments) > 2
    return log


def once(work: Callable[[], object]) -> Callable[[int, int], None]:
    """A callback that does this when it is called first."""
    left = [work]

    def progress(_done: int, _total: int) -> None:
        if left:
            left.pop()()

    return progress


def truncated(log: WritableLog, again: int, epoch: int) -> None:
    """The log is cut, and others are appended in their place."""
    log.truncate_to(CUT)
    for slot in range(again):
        log.append(b"new%06d" % slot * 110, leader_epoch=epoch)


@pytest.mark.parametrize("again", [0, AGAIN, 2 * BEFORE], ids=["shorter", "short again", "longer"])
@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("verb", ["convert", "salvage"])
def test_a_log_that_is_truncated_meanwhile_is_refused(tmp_path: Path, verb: str, again: int, epoch: int) -> None:
    """Its copy would mix old records and new ones, and have offsets up to an end that is gone. The next call copies what is there."""
    folder = tmp_path / "new"
    call = convert if verb == "convert" else salvage
    with large(tmp_path / "old/t-0") as log:
        with pytest.raises(LogDirError, match=r"it was truncated meanwhile, to offset \d+: .*; call it again"):
            call(log.path, folder / "t-0", progress=once(lambda: truncated(log, again, epoch)))
        assert not folder.exists() or list(folder.iterdir()) == []
        call(log.path, folder / "t-0")
        with Log.open(folder / "t-0") as copy:
            assert copy.log_end_offset == log.log_end_offset == CUT + again
            assert [record.value for record in copy.scan()] == [record.value for record in log.scan()]


def test_a_truncation_by_another_handle_of_the_same_records_is_refused(tmp_path: Path) -> None:
    """Even if the very same records are there again: nobody compares them."""
    with large(tmp_path / "old/t-0") as log:
        kept = [record.value for record in log.scan(start=CUT)]

        def cut_and_append() -> None:
            log.truncate_to(CUT)
            log.append_records(kept[:10])

        with pytest.raises(LogDirError, match="truncated meanwhile"):
            convert(log.path, tmp_path / "new/t-0", progress=once(cut_and_append))


@pytest.mark.parametrize("verb", ["convert", "salvage"])
def test_what_was_read_stays_whatever_is_appended_meanwhile(tmp_path: Path, verb: str) -> None:
    """A log that only grows is converted as it was at the beginning."""
    call = convert if verb == "convert" else salvage
    with large(tmp_path / "old/t-0") as log:
        call(log.path, tmp_path / "new/t-0", progress=once(lambda: log.append(b"late")))
        with Log.open(tmp_path / "new/t-0") as copy:
            values = [record.value for record in copy.scan()]
        # What salvage reads ends with its view of the log.
        assert values == [record.value for record in log.scan(stop=BEFORE)]


def test_retention_and_compaction_meanwhile(tmp_path: Path) -> None:
    """Records that are gone before they are read end the work; what compaction leaves is the same log."""
    with large(tmp_path / "old/t-0", 3 * BEFORE) as log:

        def delete() -> None:
            log.delete_records_before(3 * BEFORE - 100)
            log.maintain()

        with pytest.raises(OffsetOutOfRangeError):
            convert(log.path, tmp_path / "new/t-0", progress=once(delete))
        assert list((tmp_path / "new").iterdir()) == []
    with large(tmp_path / "other/t-0") as log:
        report = convert(log.path, tmp_path / "new/t-0", progress=once(log.compact))
        with Log.open(report.path) as copy:
            assert copy.log_end_offset == BEFORE
            assert [record.offset for record in copy.scan(start=log.segments[-1].base_offset)][-1] == BEFORE - 1
