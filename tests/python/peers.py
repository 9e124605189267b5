"""Other people's readers and writers of record batches: kafka-python and aiokafka, behind one small face."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

with warnings.catch_warnings():
    # kafka-python reads its schemas through a function that newer Pythons call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka.record.default_records as aiokafka_default
    import aiokafka.record.legacy_records as aiokafka_legacy
    import kafka.record.default_records as kafka_default
    import kafka.record.legacy_records as kafka_legacy
    from kafka.record import MemoryRecords

from make_log import crc32c

__all__ = ["CODECS", "WRITERS", "Appended", "MemoryRecords", "encoded"]

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_ROOM = 1 << 30
_BUILDERS: dict[str, tuple[Any, Any]] = {
    "kafka-python": (kafka_default.DefaultRecordBatchBuilder, kafka_legacy.LegacyRecordBatchBuilder),
    "aiokafka": (aiokafka_default.DefaultRecordBatchBuilder, aiokafka_legacy.LegacyRecordBatchBuilder),
}
# Which codecs each of them writes in each magic. aiokafka refuses lz4 in magic 0 (its frames had a wrong checksum there).
WRITERS = {
    (peer, magic): tuple(
        codec for codec in CODECS if not (codec == "zstd" and magic < 2) and not (peer == "aiokafka" and codec == "lz4" and magic == 0)
    )
    for peer in _BUILDERS
    for magic in (0, 1, 2)
}


class Appended(NamedTuple):
    """One record as a program hands it to a producer."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]] = ()


def encoded(  # noqa: PLR0913  # one parameter a choice
    peer: str,
    magic: int,
    codec: str,
    base_offset: int,
    records: Sequence[Appended],
    *,
    leader_epoch: int = 0,
    append_time: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Records as `peer` encodes them, with the offsets, epoch and append time that a broker then sets.

    `producer` is id, epoch and base sequence. Uncompressed records of magic 0 and 1 come as one entry each.
    """
    if magic == 2:
        builder = _BUILDERS[peer][0](magic, CODECS[codec], False, *producer, _ROOM)
        for delta, record in enumerate(records):
            assert builder.append(delta, record.timestamp, record.key, record.value, list(record.headers)) is not None
        return _as_broker_stores_v2(bytes(builder.build()), base_offset, leader_epoch, append_time)
    if codec == "none":
        return b"".join(
            _message(peer, magic, "none", base_offset + n, [record], append_time=append_time) for n, record in enumerate(records)
        )
    return _message(peer, magic, codec, base_offset, records, append_time=append_time)


def _message(  # noqa: PLR0913  # one parameter a choice
    peer: str, magic: int, codec: str, base_offset: int, records: Sequence[Appended], *, append_time: int | None
) -> bytes:
    builder = _BUILDERS[peer][1](magic, CODECS[codec], _ROOM)
    relative = codec != "none" and magic == 1
    for delta, record in enumerate(records):
        offset = delta if relative else base_offset + delta
        assert builder.append(offset, record.timestamp, record.key, record.value) is not None
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base_offset + len(records) - 1)
    if magic == 1:
        if append_time is not None:
            data[17] |= 8
        largest = max(record.timestamp for record in records) if append_time is None else append_time
        struct.pack_into(">q", data, 18, largest)
        struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    return bytes(data)


def _as_broker_stores_v2(batch: bytes, base_offset: int, leader_epoch: int, append_time: int | None) -> bytes:
    data = bytearray(batch)
    struct.pack_into(">q", data, 0, base_offset)
    struct.pack_into(">i", data, 12, leader_epoch)
    if append_time is not None:
        data[22] |= 8
        struct.pack_into(">q", data, 35, append_time)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)
