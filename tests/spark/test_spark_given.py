"""What people give in other ways than options of a reader: views, tables, threads, commas; and what would be ignored in silence."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

import offsetlog.spark
from offsetlog import Log, LogDir
from offsetlog.errors import ConfigError, RecordRejectedError
from offsetlog.spark.options import folders, settings_from
from offsetlog.spark.planning import check_paths
from offsetlog.spark.sink import OffsetLogWriter, prepare
from offsetlog.spark.sink_options import new_folders, sink_settings_from


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with LogDir.open(tmp_path / "logs", "a") as log_dir:
        log_dir.create_topic("t", 3)
        log_dir.append("t", b"one", partition=0)
    return tmp_path / "logs"


def test_views_are_read_and_inserted_into(spark: SparkSession, place: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING offsetlog OPTIONS (path '{place}', subscribe 't', columns 'value,topic')")
    spark.sql("INSERT INTO v SELECT cast('two' AS binary) value, 't' topic")
    assert {bytes(row.value) for row in spark.table("v").collect()} == {b"one", b"two"}


def test_tables_of_the_catalog_say_that_spark_keeps_no_options(spark: SparkSession, place: Path) -> None:
    """When this fails, Spark is mended: say so in the documentation."""
    spark.sql(f"CREATE TABLE kept USING offsetlog OPTIONS (path '{place}', subscribe 't')")
    try:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            spark.table("kept").count()
    finally:
        spark.sql("DROP TABLE kept")


def test_create_table_is_accepted_and_says_the_same(spark: SparkSession, place: Path) -> None:
    """With and without a schema. Nothing of the log dir is changed, also not by DROP TABLE."""
    before = sorted(path for path in place.rglob("*"))
    every = "null, cast('two' AS binary), 't', 0, 0, current_timestamp(), 0"
    one = StructType([StructField("value", BinaryType())])
    for name, schema, row in (("made", None, every), ("chosen", one, "cast('two' AS binary)")):
        spark.catalog.createTable(name, source="offsetlog", schema=schema, path=str(place), subscribe="t")
        try:
            assert name in {table.name for table in spark.catalog.listTables()}
            with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
                spark.table(name).count()
            with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
                spark.sql(f"INSERT INTO {name} SELECT {row}")
        finally:
            spark.sql(f"DROP TABLE {name}")
    assert sorted(path for path in place.rglob("*")) == before
    with pytest.raises(Exception, match="patterns are not expanded"):
        spark.catalog.createTable("none", source="offsetlog", path=f"{place}-*", subscribe="t")


@pytest.mark.parametrize("way", ["by one call", "by register"])
def test_a_thread_of_ones_own_writes(spark: SparkSession, place: Path, way: str) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) value")
    failed: list[BaseException] = []

    def work() -> None:
        try:
            if way == "by one call":
                offsetlog.spark.write(frame, place, topic="u")
            else:
                offsetlog.spark.register(spark)
                frame.write.format("offsetlog").mode("append").option("topic", "u").save(str(place))
        except BaseException as error:  # noqa: BLE001  # for the thread that asks
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed
    with Log.open(place / "u-0") as log:
        assert log.log_end_offset == 3


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"startingOffsets": "earliest"}, "option startingOffsets: is for reading"),
        ({"retention_ms": "1"}, r"did you mean retention.ms"),
        ({"compression": "lz4"}, r"compression.type"),
        ({"kafka.compression.type": "lz4"}, r"the codec is compression.type"),
        ({"partitions": '{"t":0}'}, "whole number from 1"),
        ({"partitions": "{"}, "JSON object of topics and numbers"),
    ],
)
def test_what_a_write_refuses(options: dict[str, str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        sink_settings_from({"path": "x", "topic": "t", **options}, is_stream=False)


def test_none_is_a_codec_too() -> None:
    assert sink_settings_from({"path": "x", "compression.type": "none"}, is_stream=False).log_config.compression_type == "uncompressed"


@pytest.mark.parametrize(
    "options", [{"topic": "t", "partitions": "5"}, {"topic": "t", "partitions": '{"t":5}'}, {"partitions": '{"t":5}'}]
)
def test_a_topic_with_another_number_of_partitions_is_refused(place: Path, options: dict[str, str]) -> None:
    settings = sink_settings_from({"path": str(place), **options}, is_stream=False)
    writer = OffsetLogWriter(settings, ["topic", "value"])
    with pytest.raises(ConfigError, match="option partitions: topic 't' is there and has 3"):
        writer.write(iter([pyarrow.record_batch({"topic": ["t"], "value": ["a"]})]))
    with pytest.raises(ConfigError, match="option partitions: topic 't' is there and has 3"):
        prepare(settings)


def test_a_number_alone_is_for_topics_that_are_made(place: Path) -> None:
    settings = sink_settings_from({"path": str(place), "partitions": "2"}, is_stream=False)
    prepare(settings)
    writer = OffsetLogWriter(settings, ["topic", "value"])
    writer.commit([writer.write(iter([pyarrow.record_batch({"topic": ["t", "u"], "value": ["1", "2"]})]))])
    with LogDir.open(place) as log_dir:
        assert {name: len(numbers) for name, numbers in log_dir.topics().items()} == {"t": 3, "u": 2}


def test_each_topic_gets_its_own_number(place: Path) -> None:
    settings = sink_settings_from({"path": str(place), "partitions": '{"a":2,"b":4}'}, is_stream=False)
    prepare(settings)
    writer = OffsetLogWriter(settings, ["topic", "value"])
    writer.commit([writer.write(iter([pyarrow.record_batch({"topic": ["a", "b", "c"], "value": ["1", "2", "3"]})]))])
    with LogDir.open(place) as log_dir:
        assert {name: len(numbers) for name, numbers in log_dir.topics().items()} == {"a": 2, "b": 4, "c": 1, "t": 3}


def test_a_time_before_1970_is_refused_by_the_name_of_its_record(place: Path) -> None:
    settings = sink_settings_from({"path": str(place), "topic": "t"}, is_stream=False)
    writer = OffsetLogWriter(settings, ["value", "partition", "offset", "timestamp"])
    columns = {
        "value": pyarrow.array(["a", "b"]),
        "partition": pyarrow.array([1, 1], pyarrow.int32()),
        "offset": pyarrow.array([5, 9]),
        "timestamp": pyarrow.array([-1000, -86_400_000_000], pyarrow.timestamp("us", "UTC")),
    }
    with pytest.raises(RecordRejectedError, match=r"t-1, offset 9: timestamp -86400000 ms found"):
        writer.write(iter([pyarrow.record_batch(columns)]))
    # A restore keeps it.
    settings = sink_settings_from({"path": str(place), "topic": "t", "preserveOffsets": "true"}, is_stream=False)
    writer = OffsetLogWriter(settings, ["value", "partition", "offset", "timestamp"])
    writer.commit([writer.write(iter([pyarrow.record_batch(columns)]))])
    with LogDir.open(place) as log_dir:
        assert [(record.offset, record.timestamp) for record in log_dir.log("t", 1).scan()] == [(5, -1), (9, -86_400_000)]


def test_headers_that_columns_leave_out_are_refused() -> None:
    with pytest.raises(ConfigError, match="option includeHeaders: adds a column that columns=offset leaves out"):
        settings_from({"path": "x", "columns": "offset", "includeHeaders": "true"})
    assert settings_from({"path": "x", "columns": "offset,headers", "includeHeaders": "true"}).columns == ("offset", "headers")


def test_a_folder_with_a_comma_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    assert folders(f"{tmp_path}/a,b") == (f"{tmp_path}/a,b",)
    assert folders(f"{tmp_path}/a,{tmp_path}/b") == (f"{tmp_path}/a", f"{tmp_path}/b")


@pytest.mark.parametrize(
    "paths",
    [["/a", ""], ["", "/a"], ["/a", " "], [Path("/a"), ""], ("/a", "", "/b"), "/a,", ",/a", "/a, ,/b", "/a,,/b"],
    ids=str,
)
def test_an_empty_name_among_log_dirs_is_refused(paths: Any) -> None:  # noqa: ANN401  # in whatever way they are named
    """A variable that is not set: without a word a part of the data would be read, or be written to one log dir of two."""
    nothing: Any = None
    calls: list[Callable[[], object]] = [
        lambda: folders(paths),
        lambda: new_folders(paths),
        lambda: settings_from({"path": paths} if isinstance(paths, str) else {"paths": json.dumps([str(path) for path in paths])}),
        lambda: offsetlog.spark.scan(nothing, paths, subscribe="t"),
        lambda: offsetlog.spark.splits(paths, subscribe="t"),
        lambda: offsetlog.spark.map_splits(nothing, paths, list, subscribe="t"),
        lambda: offsetlog.spark.lookup(paths),
        lambda: offsetlog.spark.write(nothing, paths),
    ]
    if isinstance(paths, str):
        calls.append(lambda: sink_settings_from({"path": paths}, is_stream=False))
    for call in calls:
        with pytest.raises(ConfigError, match=r"option path: number \d of \d is empty") as caught:
            call()
        assert caught.value.key == "path"


def values(place: Path) -> list[bytes | None]:
    with Log.open(place / "t-0") as log:
        return [record.value for record in log.scan()]


def test_folders_with_commas_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """One that is there is one folder, and so is each in a list; else commas are between log dirs."""
    comma, new = tmp_path / "a,b", tmp_path / "new, one"
    with LogDir.open(comma, "a") as log_dir:
        log_dir.create_topic("t", 1)
    one = spark.sql("select 'one' value")
    one.write.format("offsetlog").mode("append").option("topic", "t").save(str(comma))
    offsetlog.spark.write(one, [comma], topic="t")
    # A new one has to be in a list, or to have its commas as %2C.
    offsetlog.spark.write(one, [new], topic="t")
    one.write.format("offsetlog").mode("append").option("topic", "t").save(f"file://{tmp_path}/new%2C one")
    one.write.format("offsetlog").mode("append").option("topic", "t").save(f"{tmp_path}/c,{tmp_path}/d")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a,b", "c", "d", "new, one"]
    assert values(comma) == values(new) == [b"one", b"one"]
    for folder in (comma, new):
        frame = spark.read.format("offsetlog").option("subscribe", "t").load([str(folder)])
        assert [bytes(row.value) for row in frame.collect()] == [b"one", b"one"]
    # Two log dirs, each with a topic of its own.
    with pytest.raises(Exception, match="of another topic of this name"):
        spark.read.format("offsetlog").option("subscribe", "t").load([str(comma), str(new)]).count()


def test_a_schema_beside_other_columns_is_refused(spark: SparkSession, place: Path) -> None:
    reader = spark.read.format("offsetlog").option("subscribe", "t").option("columns", "key")
    with pytest.raises(Exception, match="option columns: names key, but the schema offset, value: give one of them"):
        reader.schema("offset long, value binary").load(str(place)).count()


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("{tmp}/kafka-*", r"kafka-\*' is not there, and patterns are not expanded; name the log dirs"),
        ("{tmp}/kafka-?/logs", "patterns are not expanded"),
        ("{tmp}/kafka-[12]", "patterns are not expanded"),
        ("{tmp}/{{a,b}}", "patterns are not expanded"),
        ("file://{tmp}/kafka-*", "patterns are not expanded"),
        ("{tmp}/new,{tmp}/kafka-*", "patterns are not expanded"),
        ("s3a://bucket/logs", "copy or mount them"),
        ("hdfs://name:8020/logs", "copy or mount them"),
        ("file://elsewhere/logs", "copy or mount them"),
    ],
)
@pytest.mark.parametrize("use", ["read", "save", "writeStream", "write"])
def test_paths_that_are_none(tmp_path: Path, path: str, match: str, use: str) -> None:
    path = path.format(tmp=tmp_path)
    if use == "read":
        path = path.removeprefix(f"{tmp_path}/new,")
    uses: dict[str, Callable[[], object]] = {
        "read": lambda: check_paths(settings_from({"path": path, "subscribe": "t"})),
        "save": lambda: sink_settings_from({"path": path, "topic": "t"}, is_stream=False),
        "writeStream": lambda: sink_settings_from({"path": path, "topic": "t"}, is_stream=True),
        # Refused before anything is asked of the frame.
        "write": lambda: offsetlog.spark.write(None, path, topic="t"),  # type: ignore[arg-type]  # as above
    }
    with pytest.raises(ConfigError, match=match) as refused:
        uses[use]()
    assert refused.value.key == "path"
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_called_like_a_pattern(tmp_path: Path) -> None:
    """One that is there is used, and so is a new one inside one."""
    (tmp_path / "kafka-[1]").mkdir()
    (tmp_path / "disk-[1]").mkdir()
    for path in (tmp_path / "kafka-[1]", tmp_path / "disk-[1]" / "new"):
        settings = sink_settings_from({"path": str(path), "topic": "t"}, is_stream=False)
        prepare(settings)
        writer = OffsetLogWriter(settings, ["value"])
        writer.commit([writer.write(iter([pyarrow.record_batch({"value": ["a"]})]))])
        check_paths(settings_from({"path": str(path), "subscribe": "t"}))
        with Log.open(path / "t-0") as log:
            assert log.log_end_offset == 1
    with pytest.raises(FileNotFoundError):
        check_paths(settings_from({"path": f"{tmp_path}/kafka-[1]/other", "subscribe": "t"}))


def test_what_spark_adds_for_a_table_is_passed_over(place: Path) -> None:
    """As PySpark 4.3 hands it over when a table is made."""
    given = {
        "location": f"file:{place}",
        "subscribe": "t",
        "option.subscribe": "t",
        "owner": "root",
        "path": f"file:{place}",
        "provider": "offsetlog",
    }
    assert settings_from(given).paths == (str(place),)
    without = {name: text for name, text in given.items() if name != "path"}
    assert settings_from(without).paths == (str(place),)
    assert settings_from({"option.paths": f'["{place}"]', "location": "file:/elsewhere", "subscribe": "t"}).paths == (str(place),)
