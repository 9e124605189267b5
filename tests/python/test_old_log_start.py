"""``OldLog`` reads from the position of an entry only, also where a payload looks like entries."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from old_layout import gzipped, message, partition

from offsetlog import ConfigError, CorruptBatchError, OldLog, OldRecord

INNER = [message(b"one"), message(b"two", magic=0), message(b"three")]


def test_entries_within_a_payload_are_no_entries(tmp_path: Path) -> None:
    """Each position but those of the real ones is refused, from a new log and from one that has read before."""
    entries = [message(b"first"), message(b"".join(INNER)), message(b"last"), message(b"".join(INNER), magic=0)]
    path = partition(tmp_path / "clicks-7", [b"".join(entries), b"".join(entries[::-1])])
    used = OldLog.open(path)
    records = {record.offset: record for record in used.scan()}
    assert len(records) == 2 * len(entries)
    positions = list(range(used.log_end_offset))
    random.Random(7).shuffle(positions)
    for at in positions:
        for log in (used, OldLog.open(path)):
            if at in records:
                assert log.read(at) == (records[at],)
                assert next(log.scan(at)) == records[at]
                continue
            with pytest.raises(ConfigError, match=f"start: {at} found, the position of an entry expected"):
                log.read(at)
            with pytest.raises(ConfigError, match="the position of an entry expected"):
                next(log.scan(at))


def test_reading_on_from_entry_to_entry(tmp_path: Path) -> None:
    """As a consumer did, over several files and sets; and back again."""
    files = [message(b"%d" % number) * 40 + gzipped(b"".join(INNER)) for number in range(3)]
    log = OldLog.open(partition(tmp_path / "clicks-7", files, start=1000))
    wanted, at = list(log.scan()), log.log_start_offset
    found: list[OldRecord] = []
    while at < log.log_end_offset:
        entry = log.read(at)
        found += entry
        at = entry[-1].next_offset
    assert found == wanted
    for record in reversed(wanted):
        assert record in log.read(record.offset)


def test_damage_on_the_way_is_told_as_damage(tmp_path: Path) -> None:
    """A length that leads nowhere hides whether an entry begins behind it, but whole entries in a row; within an unfinished end none does."""
    whole = message(b"one") + message(b"two")
    bad = b"\x7f" + message(b"bad")[1:]
    log = OldLog.open(partition(tmp_path / "clicks-0", [whole + bad + whole]))
    for start in (len(whole), len(whole + bad) - 3):
        with pytest.raises(CorruptBatchError) as caught:
            log.read(start)
        assert (caught.value.position, caught.value.offset) == (len(whole), len(whole))
    # Nothing else gives back what stands behind damage.
    assert [record.value for record in log.scan(len(whole + bad))] == [b"one", b"two"]
    assert log.read(len(whole + bad))[0].value == b"one"
    log = OldLog.open(partition(tmp_path / "clicks-1", [whole + bytes(100)]))
    with pytest.raises(ConfigError, match="the position of an entry expected"):
        log.read(len(whole) + 50)
    assert log.read(len(whole) + 100) == ()
