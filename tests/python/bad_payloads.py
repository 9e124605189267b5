"""Wrong payloads: compressed records and messages of magic 0 and 1 (numbers 43 to 66)."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from pathlib import Path

from bad_inputs import AFTER, GOOD, ROWS, Reading, bad, closed, damaged, fine, of, read, told
from make_log import batch, record, segment, varint
from test_vectors import VECTORS

from offsetlog import Log

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
ONE = {codec: VECTORS[name][61:] for codec, name in ((GZIP, "gzip"), (SNAPPY, "snappy"), (LZ4, "lz4"), (ZSTD, "zstd"))}
MASK = 0xFFFFFFFF


def of_codec(codec: int, payload: bytes, count: int = 1) -> bytes:
    """A batch for the offsets 3 to 5 whose payload is this."""
    return batch(3, attributes=codec, payload=payload, record_count=count, last_offset_delta=2)


def read_all(tmp_path: Path, middle: bytes, *offsets: int) -> None:
    fine(closed(tmp_path, GOOD, middle, batch(6, ROWS)), 0, 1, 2, *offsets, *AFTER)


@bad(43)
def bytes_behind_gzip_and_lz4(tmp_path: Path) -> None:
    for codec in (GZIP, LZ4):
        read_all(tmp_path, of_codec(codec, ONE[codec] + b"behind"), 3)


@bad(44)
def bytes_behind_snappy_and_zstd(tmp_path: Path) -> None:
    for codec in (SNAPPY, ZSTD):
        damaged(tmp_path, of_codec(codec, ONE[codec] + b"behind"), "DecompressionError")


@bad(45)
def second_lz4_frame(tmp_path: Path) -> None:
    damaged(tmp_path, of_codec(LZ4, ONE[LZ4] * 2, count=2), "InvalidRecordError", partly=(3,))


@bad(46)
def compressed_payload_cut(tmp_path: Path) -> None:
    for codec, payload in ONE.items():
        damaged(tmp_path, of_codec(codec, payload[:-3]), "DecompressionError")


@bad(47)
def gzip_checksum(tmp_path: Path) -> None:
    payload = bytearray(gzip.compress(record(0, ROWS[0])))
    payload[-8] ^= 1
    damaged(tmp_path, of_codec(GZIP, bytes(payload)), "DecompressionError")


def xxh32(data: bytes) -> int:
    """XXH32 of fewer than 16 bytes, seed 0."""

    def rotated(number: int, by: int) -> int:
        return (number << by | number >> (32 - by)) & MASK

    hashed = 374761393 + len(data)
    while len(data) >= 4:
        (word,) = struct.unpack_from("<I", data)
        hashed = rotated((hashed + word * 3266489917) & MASK, 17) * 668265263 & MASK
        data = data[4:]
    for byte in data:
        hashed = rotated((hashed + byte * 374761393) & MASK, 11) * 2654435761 & MASK
    hashed = (hashed ^ hashed >> 15) * 2246822519 & MASK
    hashed = (hashed ^ hashed >> 13) * 3266489917 & MASK
    return hashed ^ hashed >> 16


def lz4_frame(flags: int, block: int, data: bytes, *, tail: bytes = b"", size: int | None = None) -> bytes:
    """An lz4 frame with one block of plain bytes; the checksum of its header is right."""
    descriptor = bytes([flags, block])
    length = (len(data) if size is None else size) | 1 << 31
    return (
        struct.pack("<I", 0x184D2204)
        + descriptor
        + bytes([xxh32(descriptor) >> 8 & 0xFF])
        + struct.pack("<I", length)
        + data
        + bytes(4)
        + tail
    )


PLAIN = record(0, ROWS[0])


@bad(48)
def lz4_header_checksum(tmp_path: Path) -> None:
    frame = bytearray(lz4_frame(0x60, 0x40, PLAIN))
    read_all(tmp_path, of_codec(LZ4, bytes(frame)), 3)
    frame[6] ^= 1
    damaged(tmp_path, of_codec(LZ4, bytes(frame)), "DecompressionError")
    # Kafka's own clients wrote a wrong one in messages of magic 0: there it is not looked at, here it is the old wrong one.
    path = tmp_path / "old-0"
    segment(path, 0, VECTORS["v0 lz4"])
    fine(path, 0)


@bad(49)
def lz4_frames_of_other_kinds(tmp_path: Path) -> None:
    too_large = lz4_frame(0x60, 0x40, PLAIN, size=1 << 20)
    for frame in (too_large, lz4_frame(0x40, 0x40, PLAIN), lz4_frame(0x20, 0x40, PLAIN), lz4_frame(0x60, 0x30, PLAIN)):
        damaged(tmp_path, of_codec(LZ4, frame), "DecompressionError")


@bad(50)
def lz4_content_checksum(tmp_path: Path) -> None:
    read_all(tmp_path, of_codec(LZ4, lz4_frame(0x64, 0x40, PLAIN, tail=b"\1\2\3\4")), 3)
    damaged(tmp_path, of_codec(LZ4, lz4_frame(0x64, 0x40, PLAIN)), "DecompressionError")


def snappy_frame(length: int, chunk: bytes) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, length) + chunk


@bad(51)
def snappy_chunk_lengths(tmp_path: Path) -> None:
    for length in (-1, 0x7FFFFFFF):
        damaged(tmp_path, of_codec(SNAPPY, snappy_frame(length, b"\0")), "DecompressionError")


@bad(52)
def raw_snappy_block(tmp_path: Path) -> None:
    block = bytes([len(PLAIN), (len(PLAIN) - 1) << 2]) + PLAIN
    assert len(PLAIN) < 60
    read_all(tmp_path, of_codec(SNAPPY, block), 3)


def message(offset: int, value: bytes | None, *, key: bytes | None = None, attributes: int = 0, **fields: int) -> bytes:
    """A message of magic 1, its checksum right; `key_length` and `size` override what would be right."""

    def nullable(data: bytes | None, length: int | None = None) -> bytes:
        stored = -1 if data is None else len(data)
        return struct.pack(">i", stored if length is None else length) + (data or b"")

    body = struct.pack(">bbq", 1, attributes, 1000) + nullable(key, fields.get("key_length")) + nullable(value)
    framed = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, fields.get("size", len(framed))) + framed


def wrapper(inner: bytes, *, offset: int = 5, codec: int = GZIP) -> bytes:
    """A compressed set of magic 1 for the offsets 3 to 5."""
    return message(offset, gzip.compress(inner, mtime=0) if codec == GZIP else inner, attributes=codec)


INNER = b"".join(message(number, b"v") for number in range(3))


@bad(53)
def zstd_in_an_old_wrapper(tmp_path: Path) -> None:
    # The header alone does not tell its first offset: what is missing is known from its neighbours only.
    path = closed(tmp_path, GOOD, wrapper(ONE[ZSTD], codec=ZSTD), batch(6, ROWS))
    assert of(path) == Reading((0, 1, 2), "UnsupportedCodecError", len(GOOD))
    assert of(path, on_corrupt="skip").offsets == (0, 1, 2, *AFTER)


def zstd_of_runs(head: bytes, size: int, tail: bytes) -> bytes:
    """A zstd frame of raw bytes, a long run of one byte, and raw bytes."""

    def header(kind: int, length: int, *, last: bool = False) -> bytes:
        return (length << 3 | kind << 1 | last).to_bytes(3, "little")

    most = 128 << 10
    blocks = header(0, len(head)) + head
    for _ in range(size // most):
        blocks += header(1, most) + b"x"
    if size % most:
        blocks += header(1, size % most) + b"x"
    return b"\x28\xb5\x2f\xfd" + bytes([0x00, 0x58]) + blocks + header(0, len(tail), last=True) + tail


@bad(54)
def decompression_bomb(tmp_path: Path) -> None:
    size = 200 << 20
    value = b"\0\0\0" + varint(-1) + varint(size)
    head = varint(len(value) + size + 1) + value
    bomb = of_codec(ZSTD, zstd_of_runs(head, size, b"\0"))
    assert len(bomb) < 7000
    path = closed(tmp_path, GOOD, bomb, batch(6, ROWS))
    with Log.open(path) as log:
        assert [len(found.value or b"") for found in log.scan(3, 6)] == [size]
    with Log.open(path, max_decompressed_bytes=100 << 20) as log:
        # A limit is the caller's wish, and no damage.
        for scan in (log.scan(), log.scan(on_corrupt="skip")):
            assert read(scan) == Reading((0, 1, 2), "DecompressionLimitError", len(GOOD))


@bad(55)
def small_payload_with_a_huge_record(tmp_path: Path) -> None:
    damaged(tmp_path, of_codec(GZIP, gzip.compress(varint((1 << 31) - 1) + b"\0\0\0", mtime=0)), "InvalidRecordError")


def bad_set(tmp_path: Path, middle: bytes, error: str, *partly: int) -> None:
    """A compressed set of magic 1 for the offsets 3 to 5 that is refused, and skipped when that is asked for."""
    path = closed(tmp_path, GOOD, middle, batch(6, ROWS))
    assert of(path) == Reading((0, 1, 2, *partly), error, len(GOOD))
    told(path, error)
    with Log.open(path) as log:
        for threads in (1, 2):
            scan = log.scan(on_corrupt="skip", threads=threads)
            assert scan.to_arrow()["offset"].to_pylist() == [0, 1, 2, *partly, *AFTER]
            (hole,) = scan.report.holes
            assert (hole.position, hole.size_bytes, hole.stop, hole.error) == (len(GOOD), len(middle), 6, error)


@bad(56)
def wrapper_below_its_last_message(tmp_path: Path) -> None:
    bad_set(tmp_path, wrapper(b"".join(message(number, b"v") for number in range(9)), offset=5), "InvalidRecordError")


@bad(57)
def compressed_message_in_a_wrapper(tmp_path: Path) -> None:
    bad_set(tmp_path, wrapper(message(0, b"v") + message(2, gzip.compress(INNER), attributes=GZIP)), "InvalidRecordError")


@bad(58)
def wrapper_of_nothing(tmp_path: Path) -> None:
    bad_set(tmp_path, message(5, None, attributes=GZIP), "InvalidRecordError")


@bad(59)
def wrapper_without_a_whole_message(tmp_path: Path) -> None:
    bad_set(tmp_path, wrapper(INNER[:20]), "InvalidRecordError")


@bad(60)
def last_message_of_a_wrapper_cut(tmp_path: Path) -> None:
    read_all(tmp_path, wrapper(INNER[:-3]), 4, 5)
    told(closed(tmp_path, GOOD, wrapper(INNER[:-3])), "CutMessage", "Gap", severity="note")


@bad(61)
def message_of_a_wrapper_too_short(tmp_path: Path) -> None:
    bad_set(tmp_path, wrapper(message(0, b"v") + message(2, b"v", size=13)), "InvalidRecordError")


@bad(62)
def checksum_within_a_wrapper(tmp_path: Path) -> None:
    wrong = bytearray(INNER)
    wrong[12] ^= 1
    read_all(tmp_path, wrapper(bytes(wrong)), 3, 4, 5)
    told(closed(tmp_path, GOOD, wrapper(bytes(wrong))), "CorruptBatchError")


@bad(63)
def wrapper_of_garbage(tmp_path: Path) -> None:
    bad_set(tmp_path, message(5, b"garbage", attributes=GZIP), "DecompressionError")


@bad(64)
def key_beyond_its_message(tmp_path: Path) -> None:
    middle = message(5, b"v", key=b"k", key_length=4000)
    bad_set(tmp_path, middle, "InvalidRecordError")


@bad(65)
def message_of_magic_1_with_the_size_of_magic_0(tmp_path: Path) -> None:
    body = struct.pack(">bb", 1, 0) + bytes(8)
    wrong = struct.pack(">qi", 5, 14) + struct.pack(">I", zlib.crc32(body)) + body
    path = closed(tmp_path, GOOD, wrong, batch(6, ROWS))
    assert of(path) == Reading((0, 1, 2), "CorruptBatchError", len(GOOD))
    assert of(path, on_corrupt="skip").offsets == (0, 1, 2, *AFTER)


@bad(66)
def segment_too_large(tmp_path: Path) -> None:
    path = closed(tmp_path, GOOD)
    os.truncate(path / f"{0:020}.log", 1 << 31)
    assert of(path) == Reading((), "SegmentTooLargeError", None)
    with Log.open(path) as log:
        scan = log.scan(on_corrupt="skip")
        assert [found.offset for found in scan] == [1000, 1001, 1002]
        assert [(hole.start, hole.stop, hole.size_bytes) for hole in scan.report.holes] == [(0, 1000, 1 << 31)]
