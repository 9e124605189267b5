"""``OldLog`` and ``convert`` of Kafka 0.7's files that shrink after they were opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from old_layout import message, partition

from offsetlog import LogDirError, OldLog, convert


@pytest.mark.parametrize("cut", [0, 13, 14, 25])
@pytest.mark.parametrize("slot", [0, 1])
def test_a_file_that_was_cut_since_is_no_end(tmp_path: Path, slot: int, cut: int) -> None:
    """In the middle its records would be missing without a word, and at the end nobody would know."""
    files = [message(b"one") + message(b"two"), message(b"six") + message(b"ten")]
    path = partition(tmp_path / "clicks-7", files)
    log = OldLog.open(path)
    os.truncate(path / f"{slot * 26:020}.kafka", cut)
    scan = log.scan()
    if slot:
        assert [next(scan).value, next(scan).value] == [b"one", b"two"]
    with pytest.raises(LogDirError, match=r"26 bytes expected, as when the log was opened, and it ends at .* truncated meanwhile"):
        list(scan)
    with pytest.raises(LogDirError, match="truncated meanwhile"):
        log.read(13 + slot * 26)


def test_a_file_that_is_cut_during_a_conversion(tmp_path: Path) -> None:
    """Nothing is made: the other files would close up over what is missing."""
    files = [b"".join(message(b"%d-%d" % (slot, number) + bytes(1000)) for number in range(1500)) for slot in range(3)]
    path = partition(tmp_path / "old/clicks-7", files)
    middle = path / f"{len(files[0]):020}.kafka"

    def cut(_done: int, _total: int) -> None:
        os.truncate(middle, 10_000)

    with pytest.raises(LogDirError, match="truncated meanwhile"):
        convert(path, tmp_path / "new/clicks-7", progress=cut)
    assert list((tmp_path / "new").iterdir()) == []
