"""Bytes that Kafka's own builders made, each put into a file and read through the public names."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from golden import Row, rows
from make_log import batch

from offsetlog import AbortedTransaction, BatchInfo, Log

V2 = {
    "three records": "000000000000000000000052ffffffff028b6e5f9000000000000200000000000003e800000000000003edffffffffffffffffffffffffffff0000000320000000026b04763104026802780268010c000a0201000010000104046b320100",
    "commit marker": "00000000000000070000004200000005028f0424c600300000000000000000000007d000000000000007d00000000000000fa00003ffffffff000000012000000008000000010c00000000000900",
    "leader change": "00000000000000000000004f0000000502c2d1890900200000000000000000000007d000000000000007d0ffffffffffffffffffffffffffff000000013a0000000800000002260000000000010200000001000200000001000000",
    "snapshot records": "0000000000000000000000650000000502d414aedf00200000000200000000000007d000000000000007d0ffffffffffffffffffffffffffff000000032a0000000800000003160000000000000000007b00001a000002080000000406000000001e00000408000000050a000000010000",
    "empty": "000000000000006400000031000000050274ef4d99000000000004ffffffffffffffff00000000000007d00000000000000fa000030000000a00000000",
    "before cleaning": "00000000000000640000004b000000050236da288f00000000000200000000000003e800000000000003ea0000000000000fa000030000000a000000031000000002610231000e00020202620100100004040263023300",
    "tombstone with horizon": "00000000000000640000003c000000050281333e1d0040000000020000000005271f5000000000000003e90000000000000fa000030000000a000000011400cdedb8520202620100",
    "append time": "00000000000000000000004300000000021ce5080500080000000100000000000003e80000000000001e61ffffffffffffffffffffffffffff0000000210000000026b02760010000602026b027600",
    "gzip": "00000000000000000000004fffffffff02b775623200010000000000000000000003e800000000000003e8ffffffffffffffffffffffffffff000000011f8b08000000000000ff1362606060ca662933640000f35ab87a0a000000",
    "snappy": "000000000000000000000051ffffffff02b23a14bc00020000000000000000000003e800000000000003e8ffffffffffffffffffffffffffff0000000182534e415050590000000001000000010000000c0a2412000000026b04763100",
    "lz4": "00000000000000000000004affffffff02ecfc2ff800030000000000000000000003e800000000000003e8ffffffffffffffffffffffffffff0000000104224d186040820a00008012000000026b0476310000000000",
    "zstd": "000000000000000000000047ffffffff026ce7b93e00040000000000000000000003e800000000000003e8ffffffffffffffffffffffffffff0000000128b52ffd005850000012000000026b04763100010000",
}
LEGACY = {
    "v0": "000000000000000000000011615054270000000000016b000000027631",
    "v1": "00000000000000000000001943a94d68010000000000000003e8000000016b000000027631",
    "v0 gzip": "0000000000000000000000335f3232b80001ffffffff000000251f8b08000000000000ff63608003c1c4801075308b311b4830951902001a3ad7341d000000",
    "v1 gzip": "00000000000000010000004eb1030c7a010100000000000003edffffffff000000381f8b08000000000000ff6360800349e795be198c500ef30b20c1980d2498ca0ca1622039c9db5c561570456f9114010020acc4374a000000",
    "v1 lz4": "00000000000000010000005e309e5f9e010300000000000003edffffffff0000004804224d186040823900000016000100631943a94d68011000d303e8000000016b0000000276311400001c005019db0a3a780900000200d003ed000000016b00000002763100000000",
    "v0 lz4": "0000000000000000000000329dc95dd30003ffffffff0000002404224d1860401a15000000160001005111615054270f0080016b00000002763100000000",
}
ONE = (Row(0, 1000, 0, -1, b"k", b"v1", ()),)
ONE_V0 = (Row(0, -1, -1, -1, b"k", b"v1", ()),)
TWO_V1 = (Row(0, 1000, 0, -1, b"k", b"v1", ()), Row(1, 1005, 0, -1, b"k", b"v1", ()))

RECORDS: dict[str, tuple[Row, ...]] = {
    "three records": (
        Row(0, 1000, 0, -1, b"k", b"v1", (("h", b"x"), ("h", None))),
        Row(1, 1005, 0, -1, None, b"", ()),
        Row(2, 999, 0, -1, b"k2", None, ()),
    ),
    "commit marker": (),
    "leader change": (),
    "snapshot records": (),
    "empty": (),
    "before cleaning": (
        Row(100, 1000, 0, 5, b"a", b"1", ()),
        Row(101, 1001, 0, 5, b"b", None, ()),
        Row(102, 1002, 0, 5, b"c", b"3", ()),
    ),
    "tombstone with horizon": (Row(101, 1001, 0, 5, b"b", None, ()),),
    "append time": (Row(0, 7777, 1, 0, b"k", b"v", ()), Row(1, 7777, 1, 0, b"k", b"v", ())),
    "gzip": ONE,
    "snappy": ONE,
    "lz4": ONE,
    "zstd": ONE,
    "v0": ONE_V0,
    "v1": ONE,
    "v0 gzip": ONE_V0,
    "v1 gzip": TWO_V1,
    "v1 lz4": TWO_V1,
    "v0 lz4": ONE_V0,
}
VECTORS = {name: bytes.fromhex(text) for name, text in (V2 | LEGACY).items()}

# base offset, last offset, magic, codec, timestamp type, base and max timestamp, epoch, producer, epoch, sequence, count, transactional, control
HEADERS = {
    "three records": (0, 2, 2, "none", 0, 1000, 1005, -1, -1, -1, -1, 3, False, False),
    "commit marker": (7, 7, 2, "none", 0, 2000, 2000, 5, 4000, 3, -1, 1, True, True),
    "leader change": (0, 0, 2, "none", 0, 2000, 2000, 5, -1, -1, -1, 1, False, True),
    "snapshot records": (0, 2, 2, "none", 0, 2000, 2000, 5, -1, -1, -1, 3, False, True),
    "empty": (100, 104, 2, "none", 0, -1, 2000, 5, 4000, 3, 10, 0, False, False),
    "before cleaning": (100, 102, 2, "none", 0, 1000, 1002, 5, 4000, 3, 10, 3, False, False),
    "tombstone with horizon": (100, 102, 2, "none", 0, 86_450_000, 1001, 5, 4000, 3, 10, 1, False, False),
    "append time": (0, 1, 2, "none", 1, 1000, 7777, 0, -1, -1, -1, 2, False, False),
    "gzip": (0, 0, 2, "gzip", 0, 1000, 1000, -1, -1, -1, -1, 1, False, False),
    "snappy": (0, 0, 2, "snappy", 0, 1000, 1000, -1, -1, -1, -1, 1, False, False),
    "lz4": (0, 0, 2, "lz4", 0, 1000, 1000, -1, -1, -1, -1, 1, False, False),
    "zstd": (0, 0, 2, "zstd", 0, 1000, 1000, -1, -1, -1, -1, 1, False, False),
}


def placed(tmp_path: Path, data: bytes, base_offset: int = 0) -> Path:
    """A partition of one segment with these bytes."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{base_offset:020}.log").write_bytes(data)
    return directory


@pytest.mark.parametrize("name", VECTORS)
def test_vector_reads_as_the_records_it_was_made_of(tmp_path: Path, name: str) -> None:
    """Records, header fields and the end that follows from them."""
    data, expected = VECTORS[name], RECORDS[name]
    first = HEADERS[name][0] if name in HEADERS else 0
    with Log.open(placed(tmp_path, data, first)) as log:
        assert rows(log.scan()) == expected
        assert rows(log.scan(threads=2, verify_checksums=False)) == expected
        assert log.log_start_offset == first
        [info] = log.batches()
        assert (info.position, info.size_bytes, info.segment) == (0, len(data), first)
        assert log.log_end_offset == info.last_offset + 1
        for seen in expected:
            record = log.get(seen.offset)
            assert record is not None
            assert rows([record]) == (seen,)
        present = {seen.offset for seen in expected}
        assert all(log.get(offset) is None for offset in range(first, log.log_end_offset) if offset not in present)
        if name in HEADERS:
            assert info == BatchInfo(*HEADERS[name][:2], 0, len(data), *HEADERS[name][2:], first)  # type: ignore[arg-type]
        else:
            codec = name[3:] or "none"
            assert (info.last_offset, info.magic, info.codec) == (len(expected) - 1, int(name[1]), codec)
        table = log.scan(columns=["offset", "key", "value", "timestampType"]).to_arrow()
        assert table.to_pylist() == [
            {"offset": seen.offset, "key": seen.key, "value": seen.value, "timestampType": seen.timestamp_type} for seen in expected
        ]


@pytest.mark.parametrize("name", VECTORS)
def test_any_flipped_bit_under_the_checksum_is_seen(tmp_path: Path, name: str) -> None:
    """In the active segment that is where the log ends for now; nothing of such a batch is ever given out."""
    data = VECTORS[name]
    under_checksum = range(21 if data[16] == 2 else 17, len(data))
    directory = placed(tmp_path, data)
    [log_file] = directory.glob("*.log")
    for position in under_checksum:
        for bit in (0, 7):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            log_file.write_bytes(damaged)
            with Log.open(directory) as log:
                assert list(log.scan()) == [], (position, bit)
                assert log.scan().count() == 0, (position, bit)


def test_aborted_transaction_index_entry_hides_what_it_names(tmp_path: Path) -> None:
    """Producer 4000 from offset 5 to the marker at 10, last stable offset 11: records of others stay."""
    entry = bytes.fromhex("00000000000000000fa00000000000000005000000000000000a000000000000000b")
    transactional, control = 16, 32
    abort = batch(
        10,
        record_count=1,
        attributes=transactional | control,
        producer_id=4000,
        payload=bytes.fromhex("2000000008000000000c00000000000000"),
    )
    data = (
        batch(0, [(b"k", b"%d" % n) for n in range(5)], attributes=transactional, producer_id=4001)
        + batch(5, [(b"k", b"gone")] * 3, attributes=transactional, producer_id=4000)
        + batch(8, [(b"k", b"plain")])
        + batch(9, [(b"k", b"gone")], attributes=transactional, producer_id=4000)
        + abort
        + batch(
            11,
            record_count=1,
            attributes=transactional | control,
            producer_id=4001,
            payload=bytes.fromhex("2000000008000000010c00000000000000"),
        )
    )
    directory = placed(tmp_path, data)
    (directory / f"{0:020}.txnindex").write_bytes(entry)
    assert struct.unpack(">hqqqq", entry) == (0, 4000, 5, 10, 11)
    with Log.open(directory) as log:
        assert (log.log_end_offset, log.last_stable_offset) == (12, 12)
        assert [record.offset for record in log.scan()] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        assert [record.offset for record in log.scan(isolation_level="read_committed")] == [0, 1, 2, 3, 4, 8]
        for start in range(12):
            assert [record.offset for record in log.scan(start, isolation_level="read_committed")] == [
                offset for offset in (0, 1, 2, 3, 4, 8) if offset >= start
            ]
        assert log.fetch(0, isolation_level="read_committed").aborted == (AbortedTransaction(4000, 5),)
        assert log.fetch(0).aborted == ()


def test_topic_id_of_partition_metadata(tmp_path: Path) -> None:
    """The text form is what Kafka's tools print."""
    directory = placed(tmp_path, VECTORS["three records"])
    with Log.open(directory) as log:
        assert log.topic_id is None
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: MWJ6FHTfRYy67jzwZdeqSQ\n")
    with Log.open(directory) as log:
        assert log.topic_id == "MWJ6FHTfRYy67jzwZdeqSQ"


def test_producer_snapshot_beside_the_log_is_left_alone(tmp_path: Path) -> None:
    """A reader has no use for it, whatever it holds."""
    snapshot = bytes.fromhex(
        "00018f53ccc7000000010000000000000fa000030000000b00000000000000690000000100000000000007d0ffffffff0000000000000068"
    )
    directory = placed(tmp_path, VECTORS["before cleaning"], 100)
    for name, content in (("00000000000000000103", snapshot), ("00000000000000000102", b"garbage"), ("00000000000000000101", b"")):
        (directory / f"{name}.snapshot").write_bytes(content)
    with Log.open(directory) as log:
        assert rows(log.scan()) == RECORDS["before cleaning"]
