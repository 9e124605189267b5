"""A scan as an Arrow stream: for every library that takes one, as often as asked, in the layouts asked for, without pyarrow."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from make_log import Row, batch, orders, segment

import offsetlog
from offsetlog import Log

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
DEFAULT = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
BASE_TIMESTAMP = 1_700_000_000_000
ROWS: list[Row] = [
    (b"a", b"one", [(b"trace", b"1"), (b"trace", None)]),
    (None, b"two"),
    (b"", None),
    (b"d", b""),
]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Two batches of four records with every kind of null."""
    path = tmp_path / "orders-3"
    segment(path, 0, batch(0, ROWS, producer_id=7, leader_epoch=5), batch(4, ROWS, leader_epoch=6))
    return Log.open(path)


def test_schema_is_that_of_sparks_kafka_source(log: Log) -> None:
    """Spark compares schemas exactly: names, order, types, nullability."""
    assert pa.schema(log.scan()) == DEFAULT
    assert pa.table(log.scan()).schema == DEFAULT
    assert all(field.nullable for field in pa.schema(log.scan()))


def test_values_are_those_of_the_records(log: Log) -> None:
    """Arrow and record objects come from different decoders; they must agree in every field."""
    extra = [*DEFAULT.names, "leaderEpoch", "producerId", "producerEpoch", "sequence"]
    rows = pa.table(log.scan(columns=extra)).to_pylist()
    records = list(log.scan())
    assert len(rows) == len(records) == 8
    for row, record in zip(rows, records, strict=True):
        assert row["key"] == record.key
        assert row["value"] == record.value
        assert (row["topic"], row["partition"], row["offset"]) == ("orders", 3, record.offset)
        assert row["timestamp"] == record.datetime
        assert row["timestampType"] == record.timestamp_type == 0
        headers = None if row["headers"] is None else tuple((pair["key"], pair["value"]) for pair in row["headers"])
        assert headers == (record.headers or None)
        assert row["leaderEpoch"] == record.leader_epoch
        assert row["producerId"] == record.producer_id
        assert row["producerEpoch"] == record.producer_epoch
        assert row["sequence"] == record.sequence
    assert rows[0]["headers"] == [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}]
    assert rows[0]["timestamp"] == dt.datetime.fromtimestamp(BASE_TIMESTAMP / 1000, dt.UTC)


def test_stream_starts_over_each_time(log: Log) -> None:
    """One scan object serves several consumers, and one that asks three times for one query."""
    scan = log.scan(2, 7)
    assert [pa.table(scan)["offset"].to_pylist() for _ in range(3)] == [[2, 3, 4, 5, 6]] * 3
    assert scan.count() == 5
    assert [record.offset for record in scan] == [2, 3, 4, 5, 6]


def test_polars_reads_it(log: Log) -> None:
    """polars takes the capsule in its own way."""
    frame = pl.DataFrame(log.scan(columns=["offset", "value", "timestamp"]))
    assert frame["offset"].to_list() == list(range(8))
    assert frame["value"].to_list() == [b"one", b"two", None, b""] * 2
    assert frame["timestamp"].dtype == pl.Datetime("us", "UTC")
    assert frame.equals(log.scan(columns=["offset", "value", "timestamp"]).to_polars())


def test_duckdb_reads_it_by_name(log: Log) -> None:
    """duckdb asks for the schema and streams several times within one query."""
    scan = log.scan()  # noqa: F841  # found by name in the query
    query = 'select count(*), sum("offset"), count(value) from scan where partition = 3'
    for _ in range(2):
        relation = duckdb.sql(query)
        assert relation is not None
        assert relation.fetchall() == [(8, 28, 6)]


def test_pandas_reads_it(log: Log) -> None:
    """pandas goes through pyarrow; nested columns become objects."""
    frame = log.scan().to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["offset"].tolist() == list(range(8))
    if hasattr(pd.DataFrame, "from_arrow"):  # pandas 3
        assert pd.DataFrame.from_arrow(log.scan(columns=["offset"]))["offset"].tolist() == list(range(8))


def test_to_arrow_is_the_stream_read_whole(log: Log) -> None:
    """The shortcut and the protocol give the same table."""
    assert log.scan().to_arrow() == pa.table(log.scan())


def test_batch_rows_bounds_every_batch(log: Log) -> None:
    """batch_rows is a promise to consumers with fixed buffers."""
    sizes = [len(part) for part in pa.RecordBatchReader.from_stream(log.scan(batch_rows=3))]
    assert sum(sizes) == 8
    assert max(sizes) <= 3


def test_columns_are_given_in_the_order_asked(log: Log) -> None:
    """Spark maps columns by position."""
    table = pa.table(log.scan(columns=["offset", "key"]))
    assert table.schema.names == ["offset", "key"]
    assert table["key"].to_pylist() == [b"a", None, b"", b"d"] * 2


def test_no_columns_still_count_rows(log: Log) -> None:
    """A batch without columns has a number of rows of its own."""
    reader = pa.RecordBatchReader.from_stream(log.scan(columns=[]))
    assert sum(part.num_rows for part in reader) == 8


def ask(log: Log, schema: pa.Schema) -> pa.Table:
    """Read with a requested schema, as pyarrow passes it on."""
    return pa.RecordBatchReader.from_stream(log.scan(), schema=schema).read_all()


def test_requested_schema_chooses_columns(log: Log) -> None:
    """A consumer that needs two columns must not pay for eight."""
    table = ask(log, pa.schema([("offset", pa.int64()), ("value", pa.binary())]))
    assert table.schema == pa.schema([("offset", pa.int64()), ("value", pa.binary())])
    assert table["value"].to_pylist() == [b"one", b"two", None, b""] * 2


@pytest.mark.parametrize(
    ("name", "data_type"),
    [
        ("value", pa.large_binary()),
        ("value", pa.binary_view()),
        ("topic", pa.large_string()),
        ("topic", pa.string_view()),
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("offset", pa.int64()),
        ("partition", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestamp", pa.timestamp("ns", "UTC")),
        ("timestamp", pa.timestamp("us")),
        ("timestamp", pa.timestamp("us", "Europe/Berlin")),
        ("headers", pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))),
        ("headers", pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())]))),
    ],
    ids=str,
)
def test_requested_schema_chooses_layouts(log: Log, name: str, data_type: pa.DataType) -> None:
    """Other layouts of the same values: nothing is lost, so the values compare equal."""
    table = ask(log, pa.schema([(name, data_type)]))
    assert table.schema.field(name).type == data_type
    values = pa.table(log.scan(columns=[name]))[name].to_pylist()
    if data_type == pa.timestamp("us"):
        values = [value.replace(tzinfo=None) for value in values]
    assert table[name].to_pylist() == values


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("nothing", pa.int64())]),
        pa.schema([("offset", pa.string())]),
        pa.schema([("timestamp", pa.timestamp("s", "UTC"))]),
        pa.schema([("value", pa.string())]),
    ],
    ids=str,
)
def test_request_that_cannot_be_met_gives_the_default(log: Log, schema: pa.Schema) -> None:
    """The interface's rule; seconds would drop milliseconds and bytes may not be text, so these are not casts of ours."""
    capsule = log.scan().__arrow_c_stream__(schema.__arrow_c_schema__())
    assert pa.RecordBatchReader._import_from_c_capsule(capsule).read_all().schema == DEFAULT  # noqa: SLF001


def test_schema_capsule_follows_the_columns(log: Log) -> None:
    """duckdb plans from it, so it must be what the stream gives."""
    scan = log.scan(columns=["timestamp", "sequence"])
    assert pa.schema(scan) == pa.table(scan).schema == pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("sequence", pa.int32())])


def test_damage_in_a_stream_is_told_with_its_place(tmp_path: Path) -> None:
    """The consumer chooses the class of the error; the text must say where."""
    path = tmp_path / "orders-0"
    bad = bytearray(batch(4, ROWS))
    bad[-1] ^= 1
    segment(path, 0, batch(0, ROWS), bytes(bad))
    segment(path, 8, batch(8, ROWS))
    scan = Log.open(path).scan()
    with pytest.raises((pa.ArrowInvalid, OSError), match=r"checksum mismatch.*orders-0/00000000000000000000\.log.*position"):
        pa.table(scan)
    with pytest.raises(offsetlog.CorruptBatchError) as caught:
        scan.to_arrow()
    assert caught.value.offset == 4


def test_stream_outlives_its_log(tmp_path: Path) -> None:
    """A stream owns its files."""
    with Log.open(orders(tmp_path)) as log:
        reader = pa.RecordBatchReader.from_stream(log.scan())
    assert reader.read_all().num_rows == 10


def test_scan_pickles_and_reads_elsewhere(log: Log) -> None:
    """A Spark task gets a scan by pickle."""
    scan = pickle.loads(pickle.dumps(log.scan(1, 6, columns=["offset"], limit=3)))
    assert pa.table(scan)["offset"].to_pylist() == [1, 2, 3]


WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None  # any import of it fails, and looking for it finds nothing
import offsetlog
log = offsetlog.Log.open(sys.argv[1])
"""


def run_without_pyarrow(program: str, path: Path) -> str:
    """Run a program in an interpreter that cannot import pyarrow."""
    program = WITHOUT_PYARROW + textwrap.dedent(program)
    result = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_polars_reads_without_pyarrow(tmp_path: Path) -> None:
    """The base package needs no pyarrow, and neither does the stream."""
    output = run_without_pyarrow(
        """
        import polars
        print(polars.DataFrame(log.scan())["value"].to_list() == [b"v%d" % n for n in range(10)])
        print(log.scan().to_polars().shape)
        print(sum(1 for record in log.scan()), sys.modules["pyarrow"])
        """,
        orders(tmp_path),
    )
    assert output.split("\n")[:3] == ["True", "(10, 8)", "10 None"]


def test_missing_library_is_named_with_its_extra(tmp_path: Path) -> None:
    """The user reads what to install."""
    output = run_without_pyarrow(
        """
        for call in (log.scan().to_arrow, log.scan().to_pandas):
            try:
                call()
            except ImportError as error:
                print(error.name, "pip install 'offsetlog[arrow]'" in str(error))
        """,
        orders(tmp_path),
    )
    assert output.split("\n")[:2] == ["pyarrow True", "pyarrow True"]


def test_import_loads_no_arrow_library() -> None:
    """Start-up time and the promise of an optional dependency."""
    program = "import sys, offsetlog; print([m for m in ('pyarrow', 'polars', 'pandas', 'pyspark', 'duckdb') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert output.stdout == "[]\n"
