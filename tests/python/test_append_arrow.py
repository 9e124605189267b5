"""Arrow data becoming records: every layout, every maker, and refusals that leave the log as it was.

over 600 lines: one table of layouts, refusals and hostile arrays. A *last* offset that is too large is not among these: the length of
a buffer follows from it, and the Arrow C interface gives no other.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, get_args

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from golden import CLEAN
from make_log import batch, record, segment
from writing import NOW, Clock, state, tree

import offsetlog
from offsetlog import AppendInfo, Log, LogDir, Record, WritableLog
from offsetlog._append_arguments import Compression

CODECS = get_args(Compression)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Fields = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    with Log.open(tmp_path / "orders-0", "a", clock=Clock()) as opened:
        yield opened


def fields(record: Record) -> Fields:
    return record.key, record.value, record.timestamp, record.headers


def read(log: Log) -> list[Fields]:
    return [fields(record) for record in log.scan()]


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in log.scan()]


def refused(log: WritableLog, error: type[Exception], match: str, data: object, **options: Any) -> Exception:  # noqa: ANN401  # whatever append_arrow takes
    """Appending `data` raises, and neither files nor state move."""
    before = state(log), tree(Path(log.path))
    with pytest.raises(error, match=match) as caught:
        log.append_arrow(data, **options)  # type: ignore[arg-type]
    assert (state(log), tree(Path(log.path))) == before
    return caught.value


def test_all_columns_arrive(log: WritableLog) -> None:
    table = pa.table(
        {
            "key": pa.array([b"k", None, b""]),
            "value": pa.array([b"v", b"", None]),
            "timestamp": pa.array([1, -1, None], pa.int64()),
            "headers": pa.array([[{"key": "a", "value": b"1"}, {"key": "", "value": None}], [], None], HEADERS),
        }
    )
    assert log.append_arrow(table) == AppendInfo(0, 2, NOW, -1, False)
    assert read(log) == [(b"k", b"v", 1, (("a", b"1"), ("", None))), (None, b"", -1, ()), (b"", None, NOW, ())]
    assert log.append_arrow(table).base_offset == 3


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(5)],
    ids=str,
)
def test_bytes_in_every_layout(log: WritableLog, kind: pa.DataType) -> None:
    """Also sliced ones, and values longer than the twelve bytes that a view holds itself."""
    texts = ["long value" * 3, None, "short", ""] if kind != pa.binary(5) else ["aaaaa", None, "bbbbb", "ccccc"]
    column = (
        pa.array([None if text is None else text.encode() for text in texts]).cast(kind)
        if kind == pa.binary(5)
        else pa.array(texts, pa.string()).cast(kind)
    )
    table = pa.table({"value": column, "key": column}).slice(1)
    log.append_arrow(table)
    expected = [None if text is None else text.encode() for text in texts[1:]]
    assert [(key, value) for key, value, *_ in read(log)] == list(zip(expected, expected, strict=True))


@pytest.mark.parametrize(
    "kind",
    [
        HEADERS,
        pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
        pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.string())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=str,
)
def test_headers_in_every_layout(log: WritableLog, kind: pa.DataType) -> None:
    is_map = pa.types.is_map(kind)
    lists = [[("a", b"x")], None, [], [("b", None), ("b", b"longer than twelve bytes")], [("c", b"y")]]
    as_value = [None if one is None else one if is_map else [{"key": key, "value": value} for key, value in one] for one in lists]
    table = pa.table({"value": pa.array([b"v"] * 5), "headers": pa.array(as_value, kind)})
    log.append_arrow(table.slice(0, 2))
    log.append_arrow(table.slice(2))
    assert [headers for *_, headers in read(log)] == [tuple(one or ()) for one in lists]


def test_headers_below_a_null_list_do_not_count(log: WritableLog) -> None:
    entries = pa.array([{"key": None, "value": b"hidden"}, {"key": "a", "value": b"1"}], HEADERS.value_type)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries, mask=pa.array([True, False]))
    log.append_arrow(pa.table({"value": [b"1", b"2"], "headers": lists}))
    assert [headers for *_, headers in read(log)] == [(), (("a", b"1"),)]


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("s", 1_700_000_000, NOW),
        ("ms", NOW, NOW),
        ("us", NOW * 1000 + 999, NOW),
        ("ns", NOW * 1_000_000 + 999_999, NOW),
        ("us", -1000, -1),
        ("ns", -1_000_000, -1),
        ("ms", -1, -1),
        ("s", 0, 0),
        ("us", 999, 0),
    ],
)
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_of_every_unit(log: WritableLog, unit: str, value: int, expected: int, zone: str | None) -> None:
    column = pa.array([value, None], pa.int64()).cast(pa.timestamp(unit, zone))
    assert log.append_arrow(pa.table({"value": [b"v", b"w"], "timestamp": column})).max_timestamp == max(expected, NOW)
    assert [timestamp for _, _, timestamp, _ in read(log)] == [expected, NOW]


@pytest.mark.parametrize(
    ("unit", "value"), [("s", -1), ("ms", -2), ("us", -1), ("us", -1001), ("ns", -999_999), ("s", 1 << 62), ("us", -(1 << 63))]
)
def test_timestamps_that_no_record_can_have(log: WritableLog, unit: str, value: int) -> None:
    column = pa.array([0, value], pa.int64()).cast(pa.timestamp(unit))
    table = pa.table({"value": [b"v", b"w"], "timestamp": column})
    refused(log, offsetlog.RecordRejectedError, f"row 1: timestamp {value} {unit} found, 0 or more expected", table)


def test_columns_of_nulls_without_a_type(log: WritableLog) -> None:
    """What pyarrow makes of a list of None."""
    none = pa.nulls(2)
    log.append_arrow(pa.table({"value": none, "key": none, "timestamp": none, "headers": none}))
    assert read(log) == [(None, None, NOW, ())] * 2


def test_no_rows_append_nothing(log: WritableLog) -> None:
    schema = pa.schema({"value": pa.binary(), "key": pa.string()})
    before = tree(Path(log.path))
    for empty in (
        schema.empty_table(),
        pa.table({"value": pa.chunked_array([], pa.binary())}),
        pa.record_batch([[], []], schema=schema),
    ):
        assert log.append_arrow(empty) == AppendInfo(-1, -1, -1, -1, False)
    assert tree(Path(log.path)) == before
    refused(log, offsetlog.ConfigError, "no column", pa.table({"values": pa.array([], pa.binary())}))


def makers(table: pa.Table) -> dict[str, object]:
    batch = table.combine_chunks().to_batches()[0]
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return {
        "table": table,
        "chunks": pa.concat_tables([table.slice(at, 7) for at in range(0, table.num_rows, 7)]),
        "batch": batch,
        "reader": pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=11))),
        "structs": batch.to_struct_array(),
        "polars": frame,
        "polars rechunked": pl.concat([frame[:50], frame[50:]], rechunk=False),
        "duckdb": duckdb.connect().from_arrow(table),
        "pandas": table.to_pandas(),
    }


@pytest.mark.parametrize("maker", ["table", "chunks", "batch", "reader", "structs", "polars", "polars rechunked", "duckdb"])
def test_every_maker(log: WritableLog, maker: str) -> None:
    rows = 100
    table = pa.table(
        {
            "value": pa.array([None if at % 7 == 3 else b"%d" % at * (at % 9) for at in range(rows)], pa.binary()),
            "key": pa.array([None if at % 5 == 4 else f"key-{at}" for at in range(rows)]),
            "timestamp": pa.array([NOW * 1000 + at * 1000 for at in range(rows)], pa.timestamp("us", "UTC")),
            "headers": pa.array([[{"key": "n", "value": b"%d" % at}] if at % 3 else None for at in range(rows)], HEADERS),
        }
    )
    assert log.append_arrow(makers(table)[maker]).last_offset == rows - 1  # type: ignore[arg-type]
    assert read(log) == [
        (
            None if at % 5 == 4 else b"key-%d" % at,
            None if at % 7 == 3 else b"%d" % at * (at % 9),
            NOW + at,
            (("n", b"%d" % at),) if at % 3 else (),
        )
        for at in range(rows)
    ]


def test_a_query_of_duckdb_is_appended_without_leaving_it(log: WritableLog) -> None:
    query = duckdb.connect().sql("select 'key-' || i as key, repeat('x', i) as value from range(10000) t(i) where i < 300")
    assert log.append_arrow(query).last_offset == 299
    assert read(log)[7][:2] == (b"key-7", b"x" * 7)


@pytest.mark.parametrize(
    "columns", [None, ("sequence", "headers", "value", "timestamp", "leaderEpoch", "key")], ids=["default", "chosen"]
)
def test_what_a_scan_gives_can_be_appended(tmp_path: Path, columns: tuple[str, ...] | None) -> None:
    """Every partition of a real broker that holds a record, through our own scan."""
    copied = 0
    with LogDir.open(CLEAN / "log-dir-1") as source:
        for partition in source.partitions():
            origin = source.log(*partition)
            records = [fields(record) for record in origin.scan() if not record.is_control]
            if any(timestamp < -1 for _, _, timestamp, _ in records):
                # A broker took them, and no producer sends them.
                with Log.open(tmp_path / "negative-0", "a") as log:
                    refused(log, offsetlog.RecordRejectedError, "timestamp -.* us found", origin.scan(columns=columns))
                continue
            with Log.open(tmp_path / f"{partition.topic}-{partition.partition}", "a") as log:
                info = log.append_arrow(origin.scan(columns=columns))
                assert info.last_offset == len(records) - 1
                assert read(log) == records
                # And what it gives as a stream, which is not read by ourselves.
                log.append_arrow(pa.table(origin.scan(columns=columns)))
                assert read(log) == records * 2
            copied += bool(records)
    assert copied > 5


def test_a_log_can_be_appended_to_itself(log: WritableLog) -> None:
    log.append_records([b"a", (b"k", b"b")])
    assert log.append_arrow(log.scan()) == AppendInfo(2, 3, NOW, -1, False)
    assert values(log) == [b"a", b"b"] * 2


def test_a_damaged_scan_raises_its_own_error(log: WritableLog, tmp_path: Path) -> None:
    with Log.open(tmp_path / "bad-0", "a") as other:
        other.append(b"good")
        other.append(b"worse")
        other.roll()
    first = tmp_path / "bad-0" / f"{0:020}.log"
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    with Log.open(tmp_path / "bad-0") as damaged:
        refused(log, offsetlog.CorruptBatchError, "bad-0", damaged.scan())
        refused(log, RuntimeError, "its maker failed to give it.*bad-0", Foreign(damaged.scan()))


class Foreign:
    """A stream that is not known to be a scan of ours."""

    def __init__(self, data: Any) -> None:  # noqa: ANN401  # any stream
        self.data = data

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.data.__arrow_c_stream__(requested_schema)


def test_a_reader_that_fails_appends_nothing(log: WritableLog) -> None:
    schema = pa.schema({"value": pa.binary()})

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[b"x" * 100_000] * 30], schema=schema)
        message = "the well is dry"
        raise OSError(message)

    refused(log, RuntimeError, "the well is dry", pa.RecordBatchReader.from_batches(schema, batches()))


def test_a_stream_can_be_taken_once(log: WritableLog) -> None:
    reader = pa.RecordBatchReader.from_batches(pa.schema({"value": pa.binary()}), iter(()))
    capsule = reader.__arrow_c_stream__()

    class Twice:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            del requested_schema
            return capsule

    assert log.append_arrow(Twice()).last_offset == -1
    refused(log, RuntimeError, "released", Twice())


def test_an_array_can_be_taken_once(log: WritableLog) -> None:
    capsules = pa.record_batch({"value": [b"a"]}).__arrow_c_array__()

    class Twice:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            del requested_schema
            return capsules

    assert log.append_arrow(Twice()).last_offset == 0
    refused(log, RuntimeError, "taken out", Twice())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("byte", [os.urandom, lambda size: b"a" * size], ids=["random", "same"])
def test_codecs_and_batches_that_fit(log: WritableLog, codec: Compression, byte: Callable[[int], bytes]) -> None:
    """Bytes that do not compress grow; a batch still fits max.message.bytes."""
    rows = [byte(997) for _ in range(3000)]
    info = log.append_arrow(pa.table({"value": rows}), compression=codec)
    assert (info.base_offset, info.last_offset) == (0, 2999)
    assert values(log) == rows
    batches = list(log.batches())
    assert {batch.codec for batch in batches} == {codec}
    assert len(batches) == 3
    assert all(batch.size_bytes <= log.config.max_message_bytes for batch in batches)


@pytest.mark.parametrize("batch_bytes", [1, 200, 10_000, 1 << 40])
def test_batches_keep_to_their_size(log: WritableLog, batch_bytes: int) -> None:
    rows = [b"x" * (at % 50) for at in range(1000)]
    log.append_arrow(pa.table({"value": rows}), batch_bytes=batch_bytes)
    assert values(log) == rows
    sizes = [(batch.size_bytes, batch.last_offset - batch.base_offset + 1) for batch in log.batches()]
    assert all(size <= batch_bytes or count == 1 for size, count in sizes)
    assert len(sizes) == {1: 1000, 1 << 40: 1}.get(batch_bytes, len(sizes))
    if batch_bytes == 10_000:
        assert all(size > 9_800 for size, _ in sizes[:-1])


@pytest.mark.parametrize("codec", CODECS)
def test_a_small_limit_of_the_topic(tmp_path: Path, codec: Compression) -> None:
    with Log.open(tmp_path / "small-0", "a", {"max.message.bytes": 300}) as log:
        rows = [os.urandom(at % 150) for at in range(400)]
        log.append_arrow(pa.table({"value": rows}), compression=codec)
        assert values(log) == rows
        assert all(batch.size_bytes <= 300 for batch in log.batches())


def test_a_record_that_no_batch_can_hold(tmp_path: Path) -> None:
    with Log.open(tmp_path / "small-0", "a", {"max.message.bytes": 300}) as log:
        table = pa.table({"value": [b"a"] * 1000 + [b"b" * 300, b"c"]})
        error = refused(log, offsetlog.RecordTooLargeError, "300", table)
        assert error.__notes__ == ["row 1000 of the data, counted from 0; nothing was appended"]
        # It fits once it is compressed.
        assert log.append_arrow(table, compression="gzip").last_offset == 1001
        assert values(log)[1000] == b"b" * 300
        random = pa.table({"value": [b"a", os.urandom(300)]})
        refused(log, offsetlog.RecordTooLargeError, "300", random, compression="gzip")


def test_the_largest_record_fits_exactly(tmp_path: Path) -> None:
    for size, fits in ((230, True), (231, False)):
        with Log.open(tmp_path / f"exact{size}-0", "a", {"max.message.bytes": 300}, clock=Clock()) as log:
            table = pa.table({"value": [b"x" * size]})
            if fits:
                log.append_arrow(table)
                assert next(log.batches()).size_bytes == 300
            else:
                refused(log, offsetlog.RecordTooLargeError, "301", table)


def test_a_batch_larger_than_a_segment(tmp_path: Path) -> None:
    with Log.open(tmp_path / "small-0", "a", {"internal.segment.bytes": 400}) as log:
        refused(log, offsetlog.RecordBatchTooLargeError, "400", pa.table({"value": [b"a", b"b" * 400]}))
        rows = [b"%d" % at for at in range(200)]
        log.append_arrow(pa.table({"value": rows}))
        assert len(log.segments) > 3
        assert values(log) == rows


def test_log_append_time(tmp_path: Path) -> None:
    clock = Clock()
    with Log.open(tmp_path / "t-0", "a", {"message.timestamp.type": "LogAppendTime"}, clock=clock) as log:
        info = log.append_arrow(pa.table({"value": [b"a", b"b"], "timestamp": pa.array([1, 1 << 55])}))
        assert info == AppendInfo(0, 1, NOW, NOW, False)
        assert [(record.timestamp, record.timestamp_type) for record in log.scan()] == [(NOW, 1)] * 2


def test_bounds_on_timestamps(tmp_path: Path) -> None:
    config = {"message.timestamp.before.max.ms": 1000, "message.timestamp.after.max.ms": 1000}
    with Log.open(tmp_path / "t-0", "a", config, clock=Clock()) as log:
        for bad in (NOW - 1001, NOW + 1001):
            table = pa.table({"value": [b""] * 4, "timestamp": pa.array([NOW, -1, bad, None])})
            refused(log, offsetlog.InvalidTimestampError, f"record 2: .*{bad}", table)
        log.append_arrow(pa.table({"value": [b""] * 4, "timestamp": pa.array([NOW - 1000, -1, NOW + 1000, None])}))
        assert [timestamp for _, _, timestamp, _ in read(log)] == [NOW - 1000, -1, NOW + 1000, NOW]


@pytest.mark.parametrize("keys", [[b"a", b"b", None], None], ids=["one", "all"])
def test_compaction_needs_keys(tmp_path: Path, keys: list[bytes | None] | None) -> None:
    with Log.open(tmp_path / "t-0", "a", {"cleanup.policy": "compact"}) as log:
        table = pa.table({"value": [b""] * 3} | ({"key": keys} if keys else {}))
        refused(log, offsetlog.RecordRejectedError, f"record {2 if keys else 0} has no key", table)
        assert log.append_arrow(pa.table({"value": [None], "key": [b"a"]})).last_offset == 0


def test_settings_of_compression_win(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a", {"compression.type": "lz4"}) as log:
        log.append_arrow(pa.table({"value": [b"a" * 100]}), compression="gzip")
        assert next(log.batches()).codec == "lz4"


def test_leader_epochs_and_flush(log: WritableLog) -> None:
    log.append_arrow(pa.table({"value": [b"a"]}), leader_epoch=3)
    assert (log.leader_epoch, log.recovery_point) == (3, 0)
    log.append_arrow(pa.table({"value": [b"x" * 1000] * 5000}), flush=True)
    assert (log.leader_epoch, log.recovery_point) == (3, 5001)


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ({"valeu": [b""]}, 'no column "valeu" is known; did you mean "value"?'),
        ({"value": [b""], "Key": [b""]}, 'did you mean "key"?'),
        ({"value": [b""], "temperature": [1]}, "value, key, timestamp, headers are read"),
        ({"key": [b""]}, 'no column "value" found'),
        ({"value": [Decimal("1.20")]}, 'column "value" is Decimal128.*, binary or string expected'),
        ({"value": [1]}, 'column "value" is Int64, binary or string expected'),
        ({"value": [b""], "key": [1.5]}, 'column "key" is Float64'),
        ({"value": [b""], "timestamp": [1.5]}, 'column "timestamp" is Float64, timestamp of any unit or int64'),
        ({"value": [b""], "timestamp": pa.array([1], pa.date64())}, 'column "timestamp" is Date64'),
        ({"value": [b""], "timestamp": pa.array([1], pa.int32())}, 'column "timestamp" is Int32'),
        ({"value": [b""], "headers": ["a"]}, 'column "headers" is Utf8, list of struct'),
        ({"value": [b""], "headers": [[b"a"]]}, 'column "headers" is List.*list of struct'),
        ({"value": [b""], "headers": [[{"name": "a", "value": b""}]]}, 'column "headers" is List.*list of struct'),
        ({"value": [b""], "headers": [[{"key": 1, "value": b""}]]}, 'column "headers.key" is Int64, string expected'),
        ({"value": [b""], "headers": [[{"key": "a", "value": 1}]]}, 'column "headers.value" is Int64, binary or string'),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:30],
)
def test_columns_that_cannot_be_used(log: WritableLog, table: dict[str, Any], match: str) -> None:
    error = refused(log, offsetlog.ConfigError, match.replace("?", r"\?"), pa.table(table))
    assert isinstance(error, offsetlog.ConfigError)
    assert error.key == "data"


def test_a_column_that_is_there_twice(log: WritableLog) -> None:
    table = pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], ["value", "value"])
    refused(log, offsetlog.ConfigError, 'column "value" is there twice', table)


def test_rows_that_cannot_be_records(log: WritableLog) -> None:
    def headers(*lists: list[dict[str, Any] | None] | None) -> pa.Table:
        return pa.table({"value": [b""] * len(lists), "headers": pa.array(lists, HEADERS)})

    good = {"key": "a", "value": b""}
    refused(
        log, offsetlog.RecordRejectedError, "row 2: header 1 has no key", headers(None, [good], [good, {"key": None, "value": b""}])
    )
    refused(log, offsetlog.RecordRejectedError, "row 1: header 0 is null", headers([good], [None]))
    nulls = pa.StructArray.from_arrays([pa.array([b"a", b"b"])], ["value"], mask=pa.array([False, True]))
    refused(log, offsetlog.RecordRejectedError, "row 1 is null as a whole", nulls)
    refused(log, offsetlog.RecordRejectedError, "row 1 is null as a whole", pa.chunked_array([nulls]))
    # Rows count through all chunks.
    chunks = pa.concat_tables([headers([good], None), headers([{"key": None, "value": b""}])])
    refused(log, offsetlog.RecordRejectedError, "row 2: header 0 has no key", chunks)


@pytest.mark.parametrize("data", [None, [b"a"], b"a", {"value": [b"a"]}])
def test_data_without_the_interface(log: WritableLog, data: object) -> None:
    refused(log, TypeError, f"data must have __arrow_c_stream__ or __arrow_c_array__, .* found {type(data).__name__}", data)


def test_data_that_is_no_table(log: WritableLog) -> None:
    refused(log, offsetlog.ConfigError, "arrays of Binary found, a table or record batch expected", pa.array([b"a"]))
    refused(log, offsetlog.ConfigError, "arrays of Binary found, a table or record batch expected", pa.chunked_array([[b"a"]]))


def test_capsules_of_the_wrong_name(log: WritableLog) -> None:
    schema, _ = pa.record_batch({"value": [b"a"]}).__arrow_c_array__()

    class Wrong:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            del requested_schema
            return schema

    class NotACapsule:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return requested_schema

    refused(log, ValueError, "incorrect name|arrow_array_stream", Wrong())
    refused(log, TypeError, "PyCapsule", NotACapsule())


class Hostile(NamedTuple):
    """An array that becomes wrong after pyarrow has looked at it for the last time."""

    array: pa.Array
    offsets: bytearray
    spoilt: bytes

    def spoil(self) -> None:
        self.offsets[:] = self.spoilt


def binary(offsets: list[int], data: bytes, kind: pa.DataType) -> Hostile:
    width = "q" if kind in {pa.large_binary(), pa.large_string()} else "i"
    spoilt = struct.pack(f"={len(offsets)}{width}", *offsets)
    raw = bytearray(len(spoilt))
    array = pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(raw), pa.py_buffer(data)])
    return Hostile(array, raw, spoilt)


def view(spoilt: bytes, data: bytes) -> Hostile:
    raw = bytearray(len(spoilt))
    array = pa.Array.from_buffers(pa.binary_view(), len(raw) // 16, [None, pa.py_buffer(raw), pa.py_buffer(data)])
    return Hostile(array, raw, spoilt)


@pytest.mark.parametrize("column", ["value", "key"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: binary([0, 5, 3], b"abcde", pa.binary()),
        lambda: binary([0, 7, 3], b"abc", pa.binary()),
        lambda: binary([-4, 1, 3], b"abc", pa.binary()),
        lambda: binary([0, -1, 3], b"abc", pa.binary()),
        lambda: binary([0, 1 << 40, 3], b"abc", pa.large_binary()),
        lambda: binary([0, 1, -1], b"abc", pa.binary()),
        lambda: binary([0, 1, -(1 << 31)], b"abc", pa.string()),
        lambda: binary([0, 1, -1], b"abc", pa.large_binary()),
        lambda: binary([0, 1, 2], b"\xff\xfe", pa.string()),
        lambda: binary([0, 1, 2], b"\xc3\xa9", pa.large_string()),
        # Length, prefix, buffer, offset: no such buffer; beyond its end; another prefix.
        lambda: view(struct.pack("=i4sii", 16, b"abcd", 9, 0) * 2, b"abcd" * 4),
        lambda: view(struct.pack("=i4sii", 15, b"abcd", 0, 9) * 2, b"abcd" * 4),
        lambda: view(struct.pack("=i4sii", -1, b"abcd", 0, 0) * 2, b"abcd" * 4),
        lambda: view(struct.pack("=i4sii", 16, b"dcba", 0, 0) * 2, b"abcd" * 4),
    ],
)
def test_hostile_offsets_are_refused(log: WritableLog, make: Callable[[], Hostile], column: str) -> None:
    hostile = make()
    batch = pa.record_batch({"value": pa.array([b"a", b"b"])} | {column: hostile.array})
    table = pa.Table.from_batches([batch])
    hostile.spoil()
    refused(log, offsetlog.ConfigError, "not valid Arrow data", table)
    refused(log, offsetlog.ConfigError, "not valid Arrow data", batch)


@pytest.mark.parametrize("offsets", [(0, 2, 1), (0, 1, 9), (-1, 0, 1), (0, 1 << 30, 1)])
def test_hostile_lists_are_refused(log: WritableLog, offsets: tuple[int, ...]) -> None:
    entries = pa.array([{"key": "a", "value": b"1"}], HEADERS.value_type)
    raw = bytearray(12)
    lists = pa.Array.from_buffers(HEADERS, 2, [None, pa.py_buffer(raw)], children=[entries])
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": lists})
    struct.pack_into("=3i", raw, 0, *offsets)
    refused(log, offsetlog.ConfigError, "not valid Arrow data", batch)


def test_hostile_offsets_inside_lists_are_refused(log: WritableLog) -> None:
    names = binary([0, 1, -1], b"ab", pa.string())
    entries = pa.StructArray.from_arrays([names.array, pa.array([b"1", b"2"])], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries)
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": headers})
    names.spoil()
    refused(log, offsetlog.ConfigError, "not valid Arrow data", batch)
    refused(log, offsetlog.ConfigError, "not valid Arrow data", pa.Table.from_batches([batch]))


@pytest.mark.parametrize("first", [-189153672, 7, 1 << 30])
def test_empty_arrays_may_hold_anything(log: WritableLog, first: int) -> None:
    """Arrow's Java library leaves the first offset of an empty array unset: Spark hands over such header names."""
    names, values = binary([first], b"", pa.string()), binary([first], b"", pa.binary())
    entries = pa.StructArray.from_arrays([names.array, values.array], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), entries)
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": headers})
    empty = binary([first], b"", pa.binary())
    nothing = pa.record_batch({"value": empty.array})
    for each in (names, values, empty):
        each.spoil()
    log.append_arrow(batch)
    log.append_arrow(pa.Table.from_batches([batch]))
    log.append_arrow(nothing)
    assert [(record.value, record.headers) for record in log.scan()] == [(b"a", ()), (b"b", ())] * 2


def test_a_wrong_count_of_nulls_is_refused(log: WritableLog) -> None:
    buffers = [pa.py_buffer(b"\x01"), *pa.array([b"a", b"b"]).buffers()[1:]]
    lying = pa.Array.from_buffers(pa.binary(), 2, buffers, null_count=2)
    refused(log, offsetlog.ConfigError, "not valid Arrow data", pa.table({"value": lying}))


def test_options_are_checked_first(log: WritableLog) -> None:
    reader = pa.RecordBatchReader.from_batches(pa.schema({"value": pa.binary()}), iter([pa.record_batch({"value": [b"a"]})]))
    refused(log, offsetlog.ConfigError, "compression", reader, compression="brotli")
    refused(log, offsetlog.ConfigError, "batch_bytes", reader, batch_bytes=0)
    refused(log, TypeError, "batch_bytes", reader, batch_bytes=1.5)
    refused(log, offsetlog.ConfigError, "leader_epoch", reader, leader_epoch=-1)
    assert log.append_arrow(reader).last_offset == 0, "the reader was not touched"


def test_closed_logs_and_readers(tmp_path: Path) -> None:
    table = pa.table({"value": [b"a"]})
    log = Log.open(tmp_path / "orders-0", "a")
    log.append_arrow(table)
    log.close()
    with pytest.raises(offsetlog.LogClosedError):
        log.append_arrow(table)
    with Log.open(tmp_path / "orders-0") as reader, pytest.raises(offsetlog.ConfigError, match="mode"):
        reader.append_arrow(table)  # type: ignore[attr-defined]


def test_what_stands_after_the_disk_refused_in_the_middle(tmp_path: Path) -> None:
    """Whole batches, and the exception says how far the rows came."""
    log = Log.open(tmp_path / "orders-0", "a", {"segment.index.bytes": 1200})
    rows = [b"%03d" % at * 300 for at in range(100)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (35_000, before[1]))
    try:
        with pytest.raises(OSError, match=r"too large|File too large") as caught:
            log.append_arrow(pa.table({"value": rows}), batch_bytes=10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    count = log.log_end_offset
    assert caught.value.__notes__ == [f"the first {count} of 100 rows are in the log, at offsets 0 to {count - 1}"]
    assert values(log) == rows[:count]
    assert [batch.last_offset + 1 for batch in log.batches()] == [10, 20, 30]
    log.append_arrow(pa.table({"value": rows[count:]}))
    assert values(log) == rows
    log.close()


@pytest.mark.slow
def test_ctrl_c_leaves_whole_batches(tmp_path: Path) -> None:
    with Log.open(tmp_path / "orders-0", "a") as log:
        table = pa.table({"value": pa.array([b"x" * 100]).take(pa.array([0] * 3_000_000))})
        timer = threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt) as caught:
            log.append_arrow(table, batch_bytes=300)
        timer.join()
        count = log.log_end_offset
        expected = [f"the first {count} of 3000000 rows are in the log, at offsets 0 to {count - 1}"] if count else []
        assert getattr(caught.value, "__notes__", []) == expected
        assert log.append(b"next") == count


def test_threads_may_append_beside_it(log: WritableLog) -> None:
    table = pa.table({"value": [b"x" * 100] * 2000, "key": ["arrow"] * 2000})
    threads = [threading.Thread(target=log.append_arrow, args=(table,), kwargs={"batch_bytes": 5000}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for at in range(100):
        log.append(b"%d" % at)
    for thread in threads:
        thread.join()
    records = list(log.scan())
    assert [record.offset for record in records] == list(range(8100))
    assert [record.value for record in records if record.key is None] == [b"%d" % at for at in range(100)]


def test_times_are_what_scans_of_times_find(log: WritableLog) -> None:
    frame = pl.DataFrame({"value": ["a", "b"], "timestamp": [datetime(2023, 1, 1, tzinfo=UTC), datetime(2023, 1, 2, tzinfo=UTC)]})
    log.append_arrow(frame)
    found = log.offset_for_timestamp(datetime(2023, 1, 1, 12, tzinfo=UTC))
    assert found is not None
    assert found.offset == 1


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_times_before_1970_are_restored_as_a_broker_stored_them(tmp_path: Path, codec: str) -> None:
    """A broker stores a producer's batch as it comes, and the greatest timestamp of such a one is -1; no writer of records makes one."""
    mixed = b"".join(record(delta, (b"k", b"v"), step) for delta, step in enumerate([0, 86_400_000, 86_399_999, 86_400_007]))
    segment(
        tmp_path / "broker-0",
        0,
        batch(0, [(b"k", b"v")] * 2, base_timestamp=-86_400_000),
        batch(2, [(b"k", b"v")] * 4, base_timestamp=-86_400_000, payload=mixed),
        batch(6, [(b"k", b"v")], base_timestamp=-(1 << 53)),
    )
    with Log.open(tmp_path / "broker-0") as source:
        table = pa.table(source.scan())
        expected = [(each.offset, each.timestamp) for each in source.scan()]
    assert expected[2:6] == [(2, -86_400_000), (3, 0), (4, -1), (5, 7)]
    with Log.open(tmp_path / "restored-0", "a", {"compression.type": codec}, clock=Clock()) as log:
        for rows in (table.slice(0, 2), table.slice(2, 4), table.slice(6)):
            log.append_arrow(rows, preserve_offsets=True)
        assert [(each.offset, each.timestamp) for each in log.scan()] == expected
        assert [each.max_timestamp for each in log.batches()] == [-1, 7, -1]
        assert log.scan().to_arrow().column("timestamp").equals(table.column("timestamp"))
        with pytest.raises(offsetlog.RecordRejectedError, match="timestamp -86400000000 us found, 0 or more expected"):
            log.append_arrow(table)
        seconds = pa.table({"value": ["x"], "offset": [7], "timestamp": pa.array([-(1 << 62)], pa.timestamp("s"))})
        with pytest.raises(offsetlog.RecordRejectedError, match="timestamp"):
            log.append_arrow(seconds, preserve_offsets=True)
    with Log.open(tmp_path / "restored-0", "a") as log:
        assert log.recovery_report.cut == ()
        assert log.log_end_offset == 7
    assert not offsetlog.verify(tmp_path / "restored-0").damaged
