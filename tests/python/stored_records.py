"""Reads the records of a partition's ``.log`` files with a parser of its own, so that a test need not trust the library with what is there.

Written from the format's description: batches of magic 2, plain or with gzip. Damaged batches are left out, what lies behind them is found.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from make_log import crc32c

HEADER = 61
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_checked: dict[bytes, int] = {}


class Stored(NamedTuple):
    """One record, with what its batch says of the codec."""

    offset: int
    key: bytes | None
    value: bytes | None
    codec: str = "none"
    is_control: bool = False


def _crc(data: bytes) -> int:
    """Remembered: many tests look at copies of the same files."""
    if data not in _checked:
        _checked[data] = crc32c(data)
    return _checked[data]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def _of_batch(data: bytes) -> Iterator[Stored]:
    base, attributes, count = (
        *struct.unpack_from(">q", data),
        *struct.unpack_from(">h", data, 21),
        *struct.unpack_from(">i", data, 57),
    )
    codec = CODECS[attributes & 7]
    if codec not in {"none", "gzip"}:
        # What is inside is nothing that these tests ask for.
        yield from (Stored(base + number, None, None, codec) for number in range(count))
        return
    payload = gzip.decompress(data[HEADER:]) if codec == "gzip" else data[HEADER:]
    at = 0
    for _ in range(count):
        length, at = _varint(payload, at)
        end = at + length
        _, inside = _varint(payload, at + 1)
        delta, inside = _varint(payload, inside)
        key, inside = _bytes(payload, inside)
        value, _ = _bytes(payload, inside)
        yield Stored(base + delta, key, value, codec, bool(attributes & 0x20))
        at = end


def of_file(path: Path) -> Iterator[Stored]:
    """The records of one file whose batches have the right checksum."""
    data = path.read_bytes()
    at = 0
    while at + HEADER <= len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if size < HEADER or at + size > len(data):
            return
        batch = data[at : at + size]
        if struct.unpack_from(">I", batch, 17)[0] == _crc(batch[21:]):
            yield from _of_batch(batch)
        at += size


def of_partition(directory: Path) -> list[Stored]:
    """The records of all segments, in the order of the files' names."""
    return [each for path in sorted(directory.glob("*.log")) if path.is_file() for each in of_file(path)]
