"""Writes partition directories batch by batch, so that a test can say exactly what is wrong with one.

Written from the format's description and independent of the library under test: what it makes is also what it promises.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

_CRC_TABLE = []
for _byte in range(256):
    _value = _byte
    for _ in range(8):
        _value = (_value >> 1) ^ (0x82F63B78 if _value & 1 else 0)
    _CRC_TABLE.append(_value)

NONE, GZIP = 0, 1


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    """Zig-zag varint."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


Header = tuple[bytes, bytes | None]
Row = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Sequence[Header]]


def record(delta: int, row: Row, timestamp_delta: int = 0) -> bytes:
    """One record of a magic 2 batch."""
    key, value, headers = (*row, ())[:3]
    body = b"\0" + varint(timestamp_delta) + varint(delta) + _bytes(key) + _bytes(value) + varint(len(headers))
    for name, content in headers:
        body += _bytes(name) + _bytes(content)
    return varint(len(body)) + body


def batch(  # noqa: PLR0913  # one parameter a field
    base_offset: int,
    rows: Iterable[Row] = (),
    *,
    codec: int = NONE,
    base_timestamp: int = 1_700_000_000_000,
    attributes: int = 0,
    record_count: int | None = None,
    last_offset_delta: int | None = None,
    payload: bytes | None = None,
    magic: int = 2,
    producer_id: int = -1,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """One magic 2 batch with a right checksum; what is given overrides what would be right."""
    rows = list(rows)
    count = len(rows) if record_count is None else record_count
    if payload is None:
        payload = b"".join(record(delta, row, delta) for delta, row in enumerate(rows))
        if codec == GZIP:
            payload = gzip.compress(payload, mtime=0)
    last = max(len(rows) - 1, 0) if last_offset_delta is None else last_offset_delta
    checked = (
        struct.pack(
            ">hiqqqhii",
            attributes | codec,
            last,
            base_timestamp,
            base_timestamp + max(len(rows) - 1, 0),
            producer_id,
            -1 if producer_id < 0 else producer_epoch,
            -1 if producer_id < 0 else base_sequence,
            count,
        )
        + payload
    )
    head = struct.pack(">ibI", leader_epoch, magic, crc32c(checked))
    return struct.pack(">qi", base_offset, len(head) + len(checked)) + head + checked


def move(data: bytes, base_offset: int) -> bytes:
    """The same batch at another offset, which its checksum does not cover."""
    return struct.pack(">q", base_offset) + data[8:]


def segment(directory: Path, base_offset: int, *batches: bytes) -> Path:
    """Write one ``.log`` file into a partition directory, made if it is missing."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{base_offset:020}.log"
    path.write_bytes(b"".join(batches))
    return path


def orders(directory: Path, count: int = 10) -> Path:
    """A partition `orders-0` with one batch of `count` records."""
    path = directory / "orders-0"
    segment(path, 0, batch(0, [(b"k%d" % n, b"v%d" % n) for n in range(count)]))
    return path
