"""The look-up that every description of Kafka's storage tells: segment by name, index entry by binary search, scan."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from golden import rows
from make_log import batch, segment

from offsetlog import IndexEntry, Log, OffsetOutOfRangeError

SMALLEST = 68
"""Bytes of a batch of one record without key and value."""


def one_record(offset: int, size_bytes: int) -> bytes:
    """A batch of one record that takes so many bytes."""
    value = b"v" * (size_bytes - SMALLEST) if size_bytes > SMALLEST else None
    data = batch(offset, [(None, value)])
    assert len(data) == size_bytes
    return data


def index(directory: Path, base_offset: int, entries: Iterable[tuple[int, int]]) -> None:
    """Write an offset index: absolute offsets with positions."""
    data = b"".join(struct.pack(">ii", offset - base_offset, position) for offset, position in entries)
    (directory / f"{base_offset:020}.index").write_bytes(data)


def sized(first: int, sizes: Sequence[int]) -> list[bytes]:
    """One batch of one record a size."""
    return [one_record(first + n, size) for n, size in enumerate(sizes)]


@pytest.fixture
def textbook(tmp_path: Path) -> Path:
    """Segments 0, 10 and 20; the middle one's index holds (10, 0), (14, 340), (17, 700)."""
    directory = tmp_path / "t-0"
    segment(directory, 0, *sized(0, [80] * 10))
    segment(directory, 10, *sized(10, [85] * 4 + [120] * 3 + [90] * 3))
    segment(directory, 20, *sized(20, [80] * 7))
    index(directory, 10, [(10, 0), (14, 340), (17, 700)])
    return directory


def test_look_up_goes_segment_then_index_then_scan(textbook: Path) -> None:
    """Offset 15: segment 10 of 0, 10, 20; entry 14 at byte 340; from there two batches to 15."""
    with Log.open(textbook) as log:
        location = log.locate(15)
        assert (location.segment, location.segment_slot, location.segment_count) == (10, 1, 3)
        assert location.segment_path.endswith("/t-0/00000000000000000010.log")
        assert location.entry == IndexEntry(slot=1, offset=14, position=340)
        assert location.index_entries == 3
        assert (location.scanned_batches, location.scanned_bytes) == (2, 240)
        assert location.batch is not None
        assert (location.batch.base_offset, location.batch.last_offset, location.batch.position) == (15, 15, 460)
        text = str(location)
        places = [text.index(word) for word in ("00000000000000000010.log", "offset 14", "340", "2 batch", "460")]
        assert places == sorted(places), text


@pytest.mark.parametrize(
    ("offset", "entry", "position", "scanned"),
    [
        (10, IndexEntry(0, 10, 0), 0, 1),
        (13, IndexEntry(0, 10, 0), 255, 4),
        (14, IndexEntry(1, 14, 340), 340, 1),
        (16, IndexEntry(1, 14, 340), 580, 3),
        (17, IndexEntry(2, 17, 700), 700, 1),
        (19, IndexEntry(2, 17, 700), 880, 3),
    ],
)
def test_every_offset_of_the_segment_starts_at_its_entry(
    textbook: Path, offset: int, entry: IndexEntry, position: int, scanned: int
) -> None:
    """The largest entry at or below the offset, then forward."""
    with Log.open(textbook) as log:
        location = log.locate(offset)
        assert location.entry == entry
        assert location.batch is not None
        assert (location.segment, location.batch.position, location.scanned_batches) == (10, position, scanned)


@pytest.mark.parametrize(("offset", "base"), [(0, 0), (9, 0), (20, 20), (26, 20)])
def test_segment_without_index_is_scanned_from_its_start(textbook: Path, offset: int, base: int) -> None:
    """No entry, no shortcut: the scan begins at the first byte and finds the same record."""
    with Log.open(textbook) as log:
        location = log.locate(offset)
        assert (location.segment, location.entry, location.index_entries) == (base, None, 0)
        assert location.scanned_batches == offset - base + 1
        assert location.batch is not None
        assert location.batch.position == 80 * (offset - base)
        record = log.get(offset)
        assert record is not None
        assert record.offset == offset
        with pytest.raises(OffsetOutOfRangeError):
            log.locate(27)


def test_entry_of_a_batch_of_several_records_may_name_its_first_or_its_last_offset(tmp_path: Path) -> None:
    """Old brokers index the first offset at a position, new ones the last: an entry only promises that nothing is missed."""
    for name, entries in (("first", [(14, 340), (17, 700)]), ("last", [(16, 340), (19, 700)])):
        directory = tmp_path / name / "t-0"
        directory.parent.mkdir()
        values = [b"x" * 83, b"x" * 89, b"x" * 83]
        parts = []
        for base, count, size, value in ((10, 4, 340, values[0]), (14, 3, 360, values[1]), (17, 3, 330, values[2])):
            empty = len(batch(base, [(None, b"")] * count))
            padding = size - empty
            first, rest = divmod(padding, count)
            filled = batch(base, [(None, value[:1] * (first + (rest if n == 0 else 0))) for n in range(count)])
            for _ in range(8):  # a longer value may take a longer length field
                if len(filled) == size:
                    break
                rest -= len(filled) - size
                filled = batch(base, [(None, value[:1] * (first + (rest if n == 0 else 0))) for n in range(count)])
            assert len(filled) == size
            parts.append(filled)
        segment(directory, 10, *parts)
        index(directory, 10, entries)
        with Log.open(directory) as log:
            location = log.locate(15)
            assert location.batch is not None
            assert (location.batch.base_offset, location.batch.position) == (14, 340)
            assert location.entry == (IndexEntry(0, 14, 340) if name == "first" else None)
            assert [record.offset for record in log.scan()] == list(range(10, 20))
            assert [None if record is None else record.offset for record in map(log.get, range(10, 20))] == list(range(10, 20))


def test_look_up_of_70_goes_through_64_at_4616(tmp_path: Path) -> None:
    """The other textbook picture: a sparse index in one segment; 70 is found by scanning on from (64, 4616)."""
    directory = tmp_path / "t-0"
    batches = sized(0, [72] * 63 + [80] + [100] * 36)
    segment(directory, 0, *batches)
    index(directory, 0, [(32, 32 * 72), (64, 4616), (96, 4616 + 32 * 100)])
    with Log.open(directory) as log:
        location = log.locate(70)
        assert location.entry == IndexEntry(slot=1, offset=64, position=4616)
        assert (location.segment, location.index_entries) == (0, 3)
        assert (location.scanned_batches, location.scanned_bytes) == (7, 700)
        assert location.batch is not None
        assert (location.batch.base_offset, location.batch.position) == (70, 5216)
        record = log.get(70)
        assert record is not None
        assert rows([record]) == rows(record for record in log.scan() if record.offset == 70)
