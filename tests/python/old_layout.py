"""Partitions of Kafka 0.7, byte by byte as ``docs/FORMAT.md`` («Message of Kafka 0.7») has them.

No broker of that age runs here, so the bytes are made by this module alone: it shares nothing with the library.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

GZIP, SNAPPY = 1, 2
# A chunk of Java's snappy framing holds at most so much.
CHUNK = 32 << 10


def message(payload: bytes, *, magic: int = 1, codec: int = 0) -> bytes:
    """A length and a message."""
    head = bytes([magic]) if magic == 0 else bytes([magic, codec])
    body = head + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def gzipped(entries: bytes) -> bytes:
    """A compressed set."""
    return message(gzip.compress(entries, mtime=0), codec=GZIP)


def snappied(entries: bytes) -> bytes:
    """A compressed set: the frame of Java's snappy, around blocks that hold literals only."""
    frame = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for at in range(0, len(entries), CHUNK):
        block = _literals(entries[at : at + CHUNK])
        frame += struct.pack(">i", len(block)) + block
    return message(frame, codec=SNAPPY)


def _literals(data: bytes) -> bytes:
    """A raw snappy block: its length as a varint, then literals of up to 60 bytes."""
    block, left = b"", len(data)
    while left > 0x7F:
        block += bytes([left & 0x7F | 0x80])
        left >>= 7
    block += bytes([left])
    for at in range(0, len(data), 60):
        literal = data[at : at + 60]
        block += bytes([(len(literal) - 1) << 2]) + literal
    return block


def partition(path: Path, files: Iterable[bytes], *, start: int = 0) -> Path:
    """A partition directory with these files, each named by where it begins."""
    path.mkdir(parents=True)
    for content in files:
        (path / f"{start:020}.kafka").write_bytes(content)
        start += len(content)
    return path
