"""A partition with damage in its middle, for those who serve it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from golden import Golden, Row
from served import Served


def damaged(golden: Golden, into: Path) -> int:
    """Copy a partition and flip a byte among the records of a batch in the middle; the first offset of that batch."""
    place = golden.copy(into)
    log = max(place.glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    at = 0
    while at < len(data) // 2:
        _, size = struct.unpack_from(">qi", data, at)
        at += 12 + size
    data[at + 70] ^= 0x55
    log.write_bytes(data)
    (offset,) = struct.unpack_from(">q", data, at)
    return int(offset)


class Damaged(NamedTuple):
    """A served partition with a batch whose checksum is wrong."""

    kafka: Served
    golden: Golden
    first: int
    """First offset of that batch."""

    @property
    def before(self) -> list[Row]:
        """What can be read."""
        return [row for row in self.golden.rows if row.offset < self.first]
