"""Batches that no client of good will sends."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from aiokafka.record.util import calc_crc32c as crc32c

# Where a field of a batch of magic 2 stands, and its form.
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">H"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
RECORDS = 61
CRC = (17, ">I")
CHECKED = 21


def signed(batch: bytes) -> bytes:
    """The batch with a checksum that is right."""
    out = bytearray(batch)
    struct.pack_into(CRC[1], out, CRC[0], crc32c(bytes(out[CHECKED:])))
    return bytes(out)


def mutated(batch: bytes, mutations: Sequence[Sequence[Any]]) -> bytes:
    """The batch after `["flip", bit]`, `["cut", bytes]`, `["zeros", bytes]`, `["again", cut]` or `["field", name, value]`."""
    data = batch
    for kind, *arguments in mutations:
        if kind == "flip":
            bit = arguments[0] % (len(data) * 8)
            out = bytearray(data)
            out[bit // 8] ^= 1 << bit % 8
            data = bytes(out)
        elif kind == "cut":
            data = data[: max(0, len(data) - arguments[0])]
        elif kind == "zeros":
            data += bytes(arguments[0])
        elif kind == "again":
            data += batch[: len(batch) - arguments[0]]
        elif arguments[0] == "payload":
            out = bytearray(data)
            if len(out) > RECORDS:
                out[RECORDS + arguments[1] % (len(out) - RECORDS)] ^= 0x41
            data = signed(bytes(out))
        else:
            data = _with_field(data, *arguments)
    return data


def _with_field(data: bytes, name: str, value: int) -> bytes:
    position, layout = FIELDS[name]
    out = bytearray(data)
    struct.pack_into(layout, out, position, value)
    return signed(bytes(out))


def moved_back(batch: bytes, by: int) -> bytes:
    """The batch with all its times earlier."""
    data = batch
    for name in ("base_timestamp", "max_timestamp"):
        position, layout = FIELDS[name]
        data = _with_field(data, name, struct.unpack_from(layout, data, position)[0] - by)
    return data
