"""A plain walk over the frames of a ``.log`` file: the header fields of each batch, read with ``struct`` and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_V2 = struct.Struct(">qiibIhiqqqhii")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Frame(NamedTuple):
    """The header of one batch, or of one message of magic 0 and 1."""

    segment: int
    position: int
    size_bytes: int
    base_offset: int | None
    """Nothing for a compressed message of magic 0 and 1: its header holds its last offset only."""
    last_offset: int
    magic: int
    codec: str
    timestamp_type: int
    leader_epoch: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int | None
    is_transactional: bool
    is_control: bool


def frames(path: Path) -> Iterator[Frame]:
    """Walk the whole batches of one ``.log`` file."""
    segment = int(path.name.partition(".")[0])
    data = path.read_bytes()
    position = 0
    while position + 17 <= len(data):
        offset, length = struct.unpack_from(">qi", data, position)
        size = 12 + length
        if length < 14 or position + size > len(data):
            return
        magic = data[position + 16]
        if magic == 2:
            fields = _V2.unpack_from(data, position)
            (_, _, epoch, _, _, attributes, last_delta, _, max_timestamp, producer, producer_epoch, sequence, count) = fields
            yield Frame(
                segment,
                position,
                size,
                offset,
                offset + last_delta,
                magic,
                CODECS[attributes & 7],
                attributes >> 3 & 1,
                epoch,
                max_timestamp,
                producer,
                producer_epoch,
                sequence,
                count,
                bool(attributes & 16),
                bool(attributes & 32),
            )
        else:
            attributes = data[position + 17]
            compressed = bool(attributes & 7)
            yield Frame(
                segment,
                position,
                size,
                None if compressed else offset,
                offset,
                magic,
                CODECS[attributes & 7],
                attributes >> 3 & 1 if magic else -1,
                -1,
                struct.unpack_from(">q", data, position + 18)[0] if magic else -1,
                -1,
                -1,
                -1,
                None if compressed else 1,
                False,
                False,
            )
        position += size


def logs(directory: Path) -> list[Path]:
    """The ``.log`` files of a partition directory in order."""
    return sorted(directory.glob("*.log"))


def all_frames(directory: Path) -> list[Frame]:
    """All frames of a partition directory in order."""
    return [frame for path in logs(directory) for frame in frames(path)]
