"""Wrong batches: framing, offsets, headers and records of magic 2 (numbers 1 to 42)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from bad_inputs import AFTER, GOOD, ROWS, Reading, active, bad, closed, damaged, fine, of, rescued, told, torn
from make_log import GZIP, batch, move, record, segment, varint

from offsetlog import CorruptBatchError, Log, LogDirError, recover

BAD = batch(3, ROWS)


def with_length(length: int) -> bytes:
    return BAD[:8] + struct.pack(">i", length) + BAD[12:]


def flipped(data: bytes, at: int = -1) -> bytes:
    out = bytearray(data)
    out[at] ^= 1
    return bytes(out)


@bad(1)
def length_below_any_message(tmp_path: Path) -> None:
    damaged(tmp_path, with_length(13), "CorruptBatchError")
    damaged(tmp_path, with_length(0), "CorruptBatchError")


@bad(2)
def negative_length(tmp_path: Path) -> None:
    damaged(tmp_path, with_length(-5), "CorruptBatchError")


@bad(3)
def length_below_a_header(tmp_path: Path) -> None:
    for length in (14, 48):
        damaged(tmp_path, with_length(length), "CorruptBatchError")


@bad(4)
def length_beyond_the_file(tmp_path: Path) -> None:
    damaged(tmp_path, with_length(0x7FFFFFFF), "CorruptBatchError")
    torn(active(tmp_path, GOOD, with_length(0x7FFFFFFF)), len(GOOD), len(BAD), 0, 1, 2)


@bad(5)
def last_batch_cut(tmp_path: Path) -> None:
    path = active(tmp_path, GOOD, BAD[:-4])
    torn(path, len(GOOD), len(BAD) - 4, 0, 1, 2)
    with Log.open(path, "a") as log:
        assert log.append(b"next") == 3
        assert [cut.position for cut in log.recovery_report.cut] == [len(GOOD)]
    fine(path, 0, 1, 2, 3)


@bad(6)
def stray_bytes(tmp_path: Path) -> None:
    for count in (1, 11, 12, 17):
        torn(active(tmp_path, GOOD, b"\xab" * count), len(GOOD), count, 0, 1, 2)


@bad(7)
def zero_tail(tmp_path: Path) -> None:
    torn(active(tmp_path, GOOD, bytes(500)), len(GOOD), 500, 0, 1, 2, words="zero tail")


@bad(8)
def nothing_but_zeros(tmp_path: Path) -> None:
    torn(active(tmp_path, bytes(4096)), 0, 4096, words="zero tail")


@bad(9)
def unknown_magic(tmp_path: Path) -> None:
    damaged(tmp_path, batch(3, ROWS, magic=3), "UnsupportedMagicError")


@bad(10)
def negative_magic(tmp_path: Path) -> None:
    damaged(tmp_path, batch(3, ROWS, magic=-1), "UnsupportedMagicError")


@bad(11)
def magic_of_another_format(tmp_path: Path) -> None:
    damaged(tmp_path, batch(3, ROWS, magic=1), "CorruptBatchError")


@bad(12)
def flipped_bit(tmp_path: Path) -> None:
    damaged(tmp_path, flipped(BAD), "CorruptBatchError")
    damaged(tmp_path, flipped(BAD, 61), "CorruptBatchError")
    with Log.open(closed(tmp_path, flipped(BAD)), "r") as log, pytest.raises(CorruptBatchError, match=r"stored 0x.*computed 0x"):
        log.scan().to_arrow()


@bad(13)
def flipped_bit_below_the_recovery_point(tmp_path: Path) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nbad 0 1003\n")
    path = tmp_path / "bad-0"
    segment(path, 0, GOOD, flipped(BAD), batch(6, ROWS))
    segment(path, 1000, batch(1000, ROWS))
    assert of(path) == Reading((0, 1, 2), "CorruptBatchError", len(GOOD))


@bad(14)
def altered_base_offset(tmp_path: Path) -> None:
    damaged(tmp_path, move(BAD, 2), "OffsetOrderError")
    damaged(tmp_path, move(BAD, 998), "OffsetOrderError")
    # In order, and no checksum covers it: nothing tells.
    assert of(closed(tmp_path, GOOD, move(BAD, 500))).offsets == (0, 1, 2, 500, 501, 502, 1000, 1001, 1002)


@bad(15)
def negative_base_offset(tmp_path: Path) -> None:
    damaged(tmp_path, move(BAD, -1), "OffsetOrderError")


@bad(16)
def leader_epoch_goes_back(tmp_path: Path) -> None:
    path = closed(tmp_path, batch(0, ROWS, leader_epoch=9), batch(3, ROWS, leader_epoch=2))
    fine(path, 0, 1, 2, 3, 4, 5, 1000, 1001, 1002)
    told(path, "LeaderEpoch", "MissingFile", severity="warning")


@bad(17)
def batch_below_its_segment(tmp_path: Path) -> None:
    path = tmp_path / "bad-0"
    segment(path, 100, batch(4, ROWS), batch(103, ROWS))
    assert of(path) == Reading((), "OffsetOrderError", 0)
    assert of(path, on_corrupt="skip").offsets == (103, 104, 105)


@bad(18)
def offset_beyond_its_segment(tmp_path: Path) -> None:
    path = active(tmp_path, GOOD, batch(1 << 31, ROWS))
    fine(path, 0, 1, 2, (1 << 31), (1 << 31) + 1, (1 << 31) + 2)
    told(path, "OffsetOverflowError")


@bad(19)
def lower_offsets_later(tmp_path: Path) -> None:
    path = closed(tmp_path, batch(10, ROWS), batch(0, ROWS), batch(3, ROWS), batch(13, ROWS))
    assert of(path) == Reading((10, 11, 12), "OffsetOrderError", len(GOOD))
    assert of(path, on_corrupt="skip").offsets == (10, 11, 12, 13, 14, 15, 1000, 1001, 1002)
    report = recover(path, dry_run=True)
    assert report.log_end_offset == 13


@bad(20)
def batch_twice(tmp_path: Path) -> None:
    path = closed(tmp_path, GOOD, GOOD, BAD)
    assert of(path) == Reading((0, 1, 2), "OffsetOrderError", len(GOOD))
    with Log.open(path) as log:
        scan = log.scan(on_corrupt="skip")
        assert [record.offset for record in scan] == [0, 1, 2, 3, 4, 5, 1000, 1001, 1002]
        assert [(hole.start, hole.stop, hole.offsets) for hole in scan.report.holes] == [(3, 3, 0)]


@bad(21)
def negative_last_offset_delta(tmp_path: Path) -> None:
    damaged(tmp_path, batch(3, ROWS, last_offset_delta=-1), "InvalidRecordError")


@bad(22)
def last_offset_beyond_the_numbers(tmp_path: Path) -> None:
    path, base = tmp_path / "bad-0", (1 << 63) - 5
    segment(path, base, batch(base, ROWS, last_offset_delta=100))
    assert of(path) == Reading((), "OffsetOverflowError", 0)
    assert of(path, on_corrupt="skip") == Reading((), None, None)


@bad(23)
def unknown_attributes(tmp_path: Path) -> None:
    fine(closed(tmp_path, batch(0, ROWS, attributes=0x7F80)), 0, 1, 2, 1000, 1001, 1002)


@bad(24)
def unknown_codecs(tmp_path: Path) -> None:
    for codec in (5, 6, 7):
        damaged(tmp_path, batch(3, ROWS, attributes=codec), "UnsupportedCodecError")


@bad(25)
def plain_bytes_called_gzip(tmp_path: Path) -> None:
    damaged(tmp_path, batch(3, ROWS, attributes=GZIP), "DecompressionError")


@bad(26)
def count_too_big(tmp_path: Path) -> None:
    damaged(tmp_path, batch(3, ROWS, record_count=4), "InvalidRecordError", partly=(3, 4, 5))


@bad(27)
def count_too_small(tmp_path: Path) -> None:
    damaged(tmp_path, batch(3, ROWS, record_count=2), "InvalidRecordError", partly=(3, 4))


@bad(28)
def count_of_nothing(tmp_path: Path) -> None:
    fine(closed(tmp_path, GOOD, batch(3, ROWS, record_count=0), batch(6, ROWS)), 0, 1, 2, *AFTER)


@bad(29)
def negative_count(tmp_path: Path) -> None:
    damaged(tmp_path, batch(3, ROWS, record_count=-1), "InvalidRecordError")


def of_payload(payload: bytes, count: int = 3) -> bytes:
    return batch(3, payload=payload, record_count=count, last_offset_delta=2)


FIRST = record(0, ROWS[0])


def body(data: bytes) -> bytes:
    """A record of these bytes, its length right."""
    return varint(len(data)) + data


@bad(30)
def endless_length(tmp_path: Path) -> None:
    damaged(tmp_path, of_payload(FIRST + b"\xff\xff\xff\xff\xff\x01" + FIRST), "InvalidRecordError", partly=(3,))


@bad(31)
def wrong_lengths(tmp_path: Path) -> None:
    rest = record(1, ROWS[0])[1:]
    for wrong in (varint(-3), varint(len(rest) - 1), varint(5000)):
        damaged(tmp_path, of_payload(FIRST + wrong + rest), "InvalidRecordError", partly=(3,))


def marker(key: bytes | None, value: bytes | None, producer_id: int = 4) -> bytes:
    return batch(3, [(key, value)], attributes=0x30, producer_id=producer_id)


def bad_marker(tmp_path: Path, wrong: bytes) -> None:
    """A control batch whose marker cannot be understood: the records of its transaction are of unknown fate."""
    data = batch(0, ROWS, attributes=0x10, producer_id=4)
    path = closed(tmp_path, data, wrong, batch(6, ROWS))
    fine(path, 0, 1, 2, *AFTER)
    assert of(path, isolation_level="read_committed").error == "InvalidRecordError"
    with Log.open(path) as log:
        scan = log.scan(isolation_level="read_committed", on_corrupt="skip")
        assert [found.offset for found in scan] == list(AFTER)
        (hole,) = scan.report.holes
        assert (hole.start, hole.stop, hole.error) == (0, 3, "InvalidRecordError")
        assert "transaction" in hole.reason
    # A broker does not start on such a marker, so it is left out, and its transaction is open.
    report = rescued(path, 0, 1, 2, *AFTER)
    assert [(loss.position, loss.start, loss.stop) for loss in report.losses] == [(len(data), 3, 4)]
    assert report.first_unstable_offset == 0


@bad(32)
def marker_with_a_short_key(tmp_path: Path) -> None:
    bad_marker(tmp_path, marker(b"\0", bytes(6)))


@bad(33)
def marker_with_a_short_value(tmp_path: Path) -> None:
    for value in (bytes(3), None):
        path = closed(tmp_path, batch(0, ROWS, attributes=0x10, producer_id=4), marker(b"\0\0\0\1", value), batch(6, ROWS))
        fine(path, 0, 1, 2, *AFTER)
        told(path, "InvalidRecordError")


@bad(34)
def control_batch_that_ends_no_transaction(tmp_path: Path) -> None:
    path = closed(tmp_path, GOOD, marker(b"\0\0\0\2", bytes(3)), batch(6, ROWS))
    fine(path, 0, 1, 2, *AFTER)
    told(path, "InvalidRecordError")


@bad(35)
def unknown_control_type(tmp_path: Path) -> None:
    path = closed(tmp_path, GOOD, marker(b"\0\0\0\x4d", bytes(6)), batch(6, ROWS))
    fine(path, 0, 1, 2, *AFTER)
    assert of(path, isolation_level="read_committed").offsets == (0, 1, 2, *AFTER)


@bad(36)
def lengths_beyond_the_record(tmp_path: Path) -> None:
    for wrong in (b"\0\0\2" + varint(400) + b"k", b"\0\0\2" + varint(-1) + varint(400) + b"v"):
        damaged(tmp_path, of_payload(FIRST + body(wrong + bytes(8))), "InvalidRecordError", partly=(3,))


@bad(37)
def header_counts(tmp_path: Path) -> None:
    for count in (-1, 1000):
        damaged(tmp_path, of_payload(FIRST + body(b"\0\0\2" + varint(-1) * 2 + varint(count))), "InvalidRecordError", partly=(3,))


@bad(38)
def header_without_a_name(tmp_path: Path) -> None:
    wrong = b"\0\0\2" + varint(-1) * 2 + varint(1) + varint(-1) * 2
    damaged(tmp_path, of_payload(FIRST + body(wrong)), "InvalidRecordError", partly=(3,))


@bad(39)
def header_name_that_is_no_text(tmp_path: Path) -> None:
    path = closed(tmp_path, batch(0, [(b"k", b"v", [(b"\xff", b"x")])]))
    fine(path, 0, 1000, 1001, 1002)
    with Log.open(path) as log:
        found = log.get(0)
        assert found is not None
        try:
            ((name, value),) = found.headers
        except UnicodeDecodeError:
            return
        assert (name.encode("utf-8", "surrogateescape"), value) == (b"\xff", b"x") or name == "\ufffd"


@bad(40)
def endless_timestamp(tmp_path: Path) -> None:
    damaged(tmp_path, of_payload(FIRST + body(b"\0" + b"\xff" * 10 + b"\1\2\1\1\0")), "InvalidRecordError", partly=(3,))


@bad(41)
def bits_above_an_int(tmp_path: Path) -> None:
    wrong = b"\0\0\2" + b"\x81\x80\x80\x80\x70" + varint(-1) + b"\0"
    damaged(tmp_path, of_payload(FIRST + body(wrong)), "InvalidRecordError", partly=(3,))


@bad(42)
def offset_deltas(tmp_path: Path) -> None:
    damaged(tmp_path, of_payload(record(1, ROWS[0]) + FIRST + record(2, ROWS[0])), "OffsetOrderError", partly=(4,))
    damaged(tmp_path, of_payload(FIRST + record(9, ROWS[0]) + record(2, ROWS[0])), "OffsetOrderError", partly=(3,))
    with pytest.raises(LogDirError):
        recover(tmp_path)
