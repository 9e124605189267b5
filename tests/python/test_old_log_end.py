"""The end of a log of Kafka 0.7: an interrupted write is left out and told, everything else that is wrong is damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from old_layout import message, partition

from offsetlog import CorruptBatchError, Log, OldLog, convert

ONE = message(b"one")


def flipped(entry: bytes) -> bytes:
    """The same with another last byte, which its checksum does not fit."""
    return entry[:-1] + bytes([entry[-1] ^ 1])


def lost(entry: bytes, at: int) -> bytes:
    """An entry at this position of which a loss of power left the first sector: the file has its new size, and zeros."""
    kept = -at % 512 or 512
    assert kept < len(entry)
    return entry[:kept] + bytes(len(entry) - kept)


DAMAGE = {
    "the last entry": flipped(message(b"two")),
    "the last entry of magic 0": flipped(message(b"two", magic=0)),
    "two entries": flipped(message(b"two")) + flipped(message(b"three")),
    "before entries without payload": flipped(message(b"two")) + message(b"", magic=0) * 3,
    "a length before entries without payload": b"\x7f" + message(b"two")[1:] + message(b"", magic=0) * 3,
    "a length before one without payload at the end": b"\x7f" + message(b"two")[1:] + message(b"", magic=0),
    "a length before those of magic 1": b"\x7f" + message(b"two")[1:] + message(b"") * 2,
    "zeros within a sector": message(b"x" * 100)[:50] + bytes(len(message(b"x" * 100)) - 50),
    "zeros before other bytes": lost(message(b"x" * 2000), 13) + flipped(message(b"two")),
}
UNFINISHED = {
    "cut short": message(b"two")[:-2],
    "cut short in the length": message(b"two")[:3],
    "zeros": bytes(100),
    "zeros from a sector on": lost(message(b"x" * 2000), 13),
    "zeros from a sector on, and more of them": lost(message(b"x" * 2000), 13) + bytes(5000),
    "cut short, with what looks like an entry": (message(b"\0" * 50 + message(b"", magic=0) + b"\1" * 100))[:-50],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_no_write_can_leave_is_damage(tmp_path: Path, name: str) -> None:
    """The message before it is given, then the error, with the place."""
    path = partition(tmp_path / "old/clicks-7", [ONE + DAMAGE[name]])
    scan = OldLog.open(path).scan()
    assert next(scan).value == b"one"
    with pytest.raises(CorruptBatchError) as caught:
        list(scan)
    assert (caught.value.position, caught.value.offset) == (len(ONE), len(ONE))
    with pytest.raises(CorruptBatchError):
        convert(path, tmp_path / "new/clicks-7")
    assert list((tmp_path / "new").iterdir()) == []
    with pytest.raises(CorruptBatchError):
        OldLog.open(path).read(len(ONE))


@pytest.mark.parametrize("name", UNFINISHED)
def test_what_an_interrupted_write_leaves_is_told(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It was never acknowledged; who reads the messages alone would not know of it."""
    path = partition(tmp_path / "old/clicks-7", [ONE + UNFINISHED[name]])
    log = OldLog.open(path)
    scan = log.scan()
    assert next(scan).value == b"one"
    assert not caplog.records
    assert list(scan) == []
    words = f"left out: {len(UNFINISHED[name])} bytes at the end of {path}/{0:020}.kafka, from position {len(ONE)}: "
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith(words)
    caplog.clear()
    assert log.read(0)[0].value == b"one"
    assert not caplog.records
    assert log.read(len(ONE)) == ()
    assert [record.getMessage() for record in caplog.records] == [said]
    report = convert(path, tmp_path / "new/clicks-7")
    assert report.dropped_bytes == len(UNFINISHED[name])
    assert said == words + str(report.dropped_reason)
    with Log.open(report.path) as new:
        assert [record.value for record in new.scan()] == [b"one"]
