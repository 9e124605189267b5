"""Record batches of magic 2, written and parsed here with ``struct`` and the libraries of the codecs, from the published format.

Nothing of the package is used. Source: https://kafka.apache.org/documentation/#recordbatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import cramjam
import lz4.frame

HEADER = struct.Struct(">qiibIhiqqqhii")
STAMPED, TRANSACTIONAL, CONTROL = 8, 16, 32
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# What snappy-java writes around blocks of snappy, version and oldest compatible one included.
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
ABORT, COMMIT = 0, 1


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


class Rec(NamedTuple):
    """One record, control records too."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Batch(NamedTuple):
    """One batch; `control` is None for data, else whether the transaction was committed."""

    base: int
    last: int
    epoch: int
    records: tuple[Rec, ...]
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    control: bool | None = None
    greatest: int = -1
    # Of attributes: the codec, and whether the leader gave its records their timestamp.
    codec: int = 0
    stamped: bool = False
    size: int = 0


def _zigzag(number: int) -> bytes:
    number = number << 1 ^ number >> 63
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(data: bytes | None) -> bytes:
    return _zigzag(-1) if data is None else _zigzag(len(data)) + data


def compressed(codec: int, data: bytes) -> bytes:
    """What a producer sends with a codec."""
    if codec == 1:
        packer = zlib.compressobj(wbits=31)
        return packer.compress(data) + packer.flush()
    if codec == 2:
        block = bytes(cramjam.snappy.compress_raw(data))
        return XERIAL + struct.pack(">i", len(block)) + block
    if codec == 3:
        # Kafka takes no other frames.
        return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))
    return bytes(cramjam.zstd.compress(data)) if codec else data


def decompressed(codec: int, data: bytes) -> bytes:
    """The records of a batch, as bytes."""
    if codec == 1:
        return zlib.decompress(data, wbits=31)
    if codec == 2:
        if not data.startswith(XERIAL[:8]):
            return bytes(cramjam.snappy.decompress_raw(data))
        found, at = b"", len(XERIAL)
        while at < len(data):
            (length,) = struct.unpack_from(">i", data, at)
            found += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + length]))
            at += 4 + length
        return found
    if codec == 3:
        return bytes(lz4.frame.decompress(data))
    return bytes(cramjam.zstd.decompress(data)) if codec else data


def encode(batch: Batch) -> bytes:
    """The bytes of a batch."""
    first = batch.records[0].timestamp
    payload = bytearray()
    for record in batch.records:
        body = bytearray(b"\0")
        body += _zigzag(record.timestamp - first) + _zigzag(record.offset - batch.base)
        body += _bytes(record.key) + _bytes(record.value) + _zigzag(len(record.headers))
        for name, value in record.headers:
            body += _bytes(name.encode()) + _bytes(value)
        payload += _zigzag(len(body)) + body
    attributes = batch.codec | STAMPED * batch.stamped | TRANSACTIONAL * batch.transactional | CONTROL * (batch.control is not None)
    greatest = max(record.timestamp for record in batch.records)
    delta = batch.last - batch.base
    ids = (batch.producer_id, batch.producer_epoch, batch.sequence, len(batch.records))
    checked = struct.pack(">hiqqqhii", attributes, delta, first, greatest, *ids) + compressed(batch.codec, bytes(payload))
    return struct.pack(">qiibI", batch.base, len(checked) + 9, batch.epoch, 2, crc32c(checked)) + checked


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)

    def bytes(self) -> bytes | None:
        length = self.number()
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]


def parse(data: bytes, *, check: bool = False) -> list[Batch]:
    """The batches of `data`, up to zeros or its end; one that is not whole is an error."""
    batches, at = [], 0
    while at < len(data) and data[at : at + 17] != bytes(17)[: len(data) - at]:
        fields = HEADER.unpack_from(data, at)
        base, length, epoch, magic, crc, attributes, delta, first, greatest, producer_id, producer_epoch, sequence, count = fields
        assert magic == 2, f"magic {magic} at {at}"
        end = at + 12 + length
        assert end <= len(data), f"a batch that is not whole at {at}"
        if check:
            assert crc32c(data[at + 21 : end]) == crc, f"checksum at {at}"
        records = []
        payload = decompressed(attributes & 7, data[at + HEADER.size : end])
        reader = _Reader(payload, 0)
        is_stamped = bool(attributes & STAMPED)
        for _ in range(count):
            reader.number()
            reader.at += 1
            timestamp, offset = first + reader.number(), base + reader.number()
            key, value = reader.bytes(), reader.bytes()
            headers = tuple(((reader.bytes() or b"").decode(), reader.bytes()) for _ in range(reader.number()))
            records.append(Rec(offset, greatest if is_stamped else timestamp, key, value, headers))
        assert reader.at == len(payload), f"bytes left at {reader.at}"
        control = None
        if attributes & CONTROL:
            control = bool(records) and struct.unpack_from(">hh", records[0].key or b"\0\0\0\0")[1] == COMMIT
        kind = bool(attributes & TRANSACTIONAL)
        ids = (producer_id, producer_epoch, sequence)
        batch = Batch(base, base + delta, epoch, tuple(records), *ids, kind, control, greatest, attributes & 7, is_stamped, end - at)
        batches.append(batch)
        at = end
    return batches


def segments(folder: Path) -> dict[int, list[Batch]]:
    """The batches of each segment in a partition directory, by base offset."""
    files = sorted(path for path in folder.iterdir() if path.suffix == ".log")
    return {int(path.stem): parse(path.read_bytes()) for path in files}


def stored_epoch(folder: Path) -> int:
    """The newest epoch of ``leader-epoch-checkpoint``, -1 without one."""
    lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return max((int(line.split()[0]) for line in lines), default=-1)


def joined(batches: Sequence[Batch]) -> bytes:
    """Several batches, one behind the other."""
    return b"".join(map(encode, batches))


def data_records(batches: Sequence[Batch]) -> Iterator[tuple[Batch, Rec]]:
    """The records that are no markers."""
    return ((batch, record) for batch in batches if batch.control is None for record in batch.records)
