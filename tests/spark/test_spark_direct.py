"""The direct roads, and how Spark finds the format."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, named
from pyspark.errors import PythonException
from pyspark.sql import SparkSession, functions as fn

import offsetlog.spark
from offsetlog import ConfigError, LogDir, Scan, Split, open_cached
from offsetlog.spark import lookup, map_splits, register, scan, splits
from spark_rows import ALL_COLUMNS, CLEAN_PATH, collected, header_pairs, load, offsets, only

EVERYTHING = ",".join(sorted({golden.topic for golden in CLEAN_PARTITIONS}))


def test_the_format_is_found_by_its_name(spark: SparkSession) -> None:
    """Nothing here registers it: Spark imports pyspark_offsetlog by itself."""
    assert load(spark, subscribe="g-plain").count() == 600


def test_sql_reads_it_too(spark: SparkSession) -> None:
    spark.sql(f"create or replace temporary view plain using offsetlog options (path '{CLEAN_PATH}', subscribe 'g-plain')")
    assert spark.sql("select count(distinct partition) as partitions from plain").collect()[0]["partitions"] == 3


def test_registering_is_fine_before_and_after_it_was_found(spark: SparkSession) -> None:
    session = spark.newSession()
    register(session)
    assert load(session, subscribe="g-plain").where("partition = 0 and offset < 7").count() == 7
    register(session)
    register(spark)
    assert load(spark, subscribe="g-plain").count() == 600


def test_a_scan_through_map_in_arrow_reads_every_partition(spark: SparkSession) -> None:
    frame = scan(spark, CLEAN_LOG_DIRS, subscribe=EVERYTHING, columns=ALL_COLUMNS.split(","))
    expected = {(golden.topic, golden.partition): list(golden.rows) for golden in CLEAN_PARTITIONS if golden.rows}
    assert collected(frame) == expected
    assert frame.rdd.getNumPartitions() <= 4


def test_a_scan_takes_python_values(spark: SparkSession) -> None:
    (golden,) = named("g-codec-lz4-0")
    row = golden.rows[len(golden.rows) // 2]
    assert row.key is not None
    frame = scan(spark, golden.directory, keys=[row.key], start_timestamp=row.timestamp, columns=["topic", "partition", "offset"])
    (found,) = offsets(frame).values()
    assert found == only(other for other in golden.rows if other.key == row.key and other.timestamp >= row.timestamp)
    when = datetime.fromtimestamp(row.timestamp / 1000, UTC)
    late = scan(spark, str(golden.directory), stop_timestamp=when, starting_offsets={golden.topic: {"0": 100}}, include_headers=True)
    assert late.count() == len([other for other in golden.rows if other.timestamp < row.timestamp and other.offset >= 100])
    assert late.columns[-1] == "headers"


def test_a_scan_of_nothing_is_empty(spark: SparkSession) -> None:
    assert scan(spark, CLEAN_LOG_DIRS, subscribe="g-empty").count() == 0


def test_a_scan_refuses_what_the_source_refuses(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="did you mean 'subscribe'"):
        scan(spark, CLEAN_LOG_DIRS, subscrib="g-plain")
    with pytest.raises(ConfigError, match="option path: is the argument paths here"):
        scan(spark, CLEAN_LOG_DIRS, path="/logs", subscribe="g-plain")
    with pytest.raises(ConfigError, match="option startingTimestamp: is a time before 1970, found -1"):
        splits(CLEAN_LOG_DIRS, subscribe="g-plain", starting_timestamp=datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC))
    with pytest.raises(TypeError, match="option minPartitions must be"):
        splits(CLEAN_LOG_DIRS, subscribe="g-plain", minPartitions=1.5)


@pytest.mark.parametrize("name", ["key_equals", "keyEquals"])
def test_keys_are_given_in_one_way(spark: SparkSession, name: str) -> None:
    """Neither of the two wins in silence."""
    options: dict[str, Any] = {"subscribe": "g-codec-none", "columns": ["key"], name: "key-7"}
    for keys in ([b"key-9"], b"key-7"):
        with pytest.raises(ConfigError, match="option keyEquals: says which keys are wanted, and so does the argument keys"):
            scan(spark, CLEAN_LOG_DIRS, keys=keys, **options)
        with pytest.raises(ConfigError, match="option keyEquals: says which keys are wanted, and so does the argument keys"):
            map_splits(spark, CLEAN_LOG_DIRS, list, keys=keys, **options)
    by_option = scan(spark, CLEAN_LOG_DIRS, **options).collect()
    # PySpark 4.0 has bytearrays.
    assert {bytes(row.key) for row in by_option} == {b"key-7"}
    del options[name]
    assert len(by_option) == scan(spark, CLEAN_LOG_DIRS, keys=b"key-7", **options).count() > 0


@pytest.mark.parametrize("call", ["scan", "splits", "map_splits"])
def test_what_has_no_effect_is_told(spark: SparkSession, call: str, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {
        "subscribe": "g-roll-ms",
        "columns": "offset",
        "maxOffsetsPerTrigger": 7,
        "pushdown": True,
        "groupIdPrefix": "x",
        "kafka.bootstrap.servers": "broker:9092",
    }
    calls: dict[str, Callable[[], object]] = {
        "scan": lambda: scan(spark, CLEAN_LOG_DIRS, **options),
        "splits": lambda: splits(CLEAN_LOG_DIRS, **options),
        "map_splits": lambda: map_splits(spark, CLEAN_LOG_DIRS, lambda batches: sum(1 for _ in batches), **options),
    }
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        calls[call]()
    assert [record.getMessage() for record in caplog.records if record.name == "offsetlog"] == [
        "options for a Kafka client are ignored, there is no broker: groupIdPrefix, kafka.bootstrap.servers",
        "options for streams are ignored in a batch query: maxOffsetsPerTrigger",
        "option pushdown is ignored: Spark hands filters to the data source alone; give keys, times or offsets here",
    ]


def test_work_is_done_inside_the_workers_over_splits(spark: SparkSession) -> None:
    """No record becomes a row of Spark: each worker reads its ranges and hands back one result."""
    ranges = splits(CLEAN_LOG_DIRS, slots=2, subscribePattern="^g-", maxRecordsPerPartition=100)
    assert len(ranges) > 20

    def codecs(mine: Iterable[Split]) -> Iterator[Counter[str]]:
        mine = list(mine)
        found = Counter(record.topic for record in Scan.over(mine))
        found["rows"] = Scan.over(mine, columns=["offset"]).count()
        yield found

    total: Counter[str] = sum(spark.sparkContext.parallelize(ranges, 3).mapPartitions(codecs).collect(), Counter())
    expected = Counter({golden.topic: 0 for golden in CLEAN_PARTITIONS})
    for golden in CLEAN_PARTITIONS:
        if golden.topic.startswith("g-"):
            expected[golden.topic] += golden.counts[0]
    assert total.pop("rows") == sum(expected.values())
    assert total == +expected


# Look-ups.


def test_a_udf_looks_records_up_by_offset(spark: SparkSession) -> None:
    wanted = [
        (golden.topic, golden.partition, row.offset)
        for golden in named("g-plain-0", "g-plain-1", "g-txn-0")
        for row in golden.rows[::7]
    ]
    frame = spark.createDataFrame(wanted, "topic string, partition int, offset long").repartition(3)
    record = lookup(CLEAN_LOG_DIRS, "record")
    found = (
        frame.withColumn("record", record("topic", "partition", "offset"))
        .select("topic", "partition", "offset", "record")
        .toArrow()
        .to_pylist()
    )
    expected = {
        (golden.topic, golden.partition, row.offset): row
        for golden in named("g-plain-0", "g-plain-1", "g-txn-0")
        for row in golden.rows
    }
    assert len(found) == len(wanted)
    for entry in found:
        row, seen = expected[entry["topic"], entry["partition"], entry["offset"]], entry["record"]
        assert (seen["key"], seen["value"], seen["offset"]) == (row.key, row.value, row.offset)
        assert seen["timestamp"] == datetime.fromtimestamp(row.timestamp / 1000, UTC)
        assert header_pairs(seen["headers"]) == row.headers


def test_a_partition_directory_is_looked_up_by_offset_alone(spark: SparkSession) -> None:
    (golden,) = named("g-compact-0")
    value, kind = lookup(golden.directory), lookup(golden.directory, "timestamptype")
    frame = spark.range(golden.start, golden.end).select("id", value("id").alias("value"), kind("id").alias("kind"))
    found = {row["id"]: row["value"] for row in frame.collect() if row["kind"] is not None}
    assert {offset: None if seen is None else bytes(seen) for offset, seen in found.items()} == {
        row.offset: row.value for row in golden.rows
    }
    assert len(found) < golden.end - golden.start


def test_what_is_missing_is_null_or_an_error(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("g-plain", 0, 10_000), ("g-txn", 0, 16), (None, 0, 1)], "topic string, partition int, offset long")
    value = lookup(CLEAN_LOG_DIRS)("topic", "partition", "offset")
    assert [row[0] for row in frame.select(value).collect()] == [None, None, None]
    strict = lookup(CLEAN_LOG_DIRS, missing="error")("topic", "partition", "offset")
    with pytest.raises(PythonException, match="offset 10000 is out of range"):
        frame.where("offset = 10000").select(strict).collect()
    with pytest.raises(PythonException, match="offset 16 holds no record"):
        frame.where("offset = 16").select(strict).collect()
    with pytest.raises(PythonException, match="no-such-topic"):
        frame.select(lookup(CLEAN_LOG_DIRS)(fn.lit("no-such-topic"), "partition", "offset")).collect()
    with pytest.raises(ConfigError, match="did you mean 'value'"):
        lookup(CLEAN_LOG_DIRS, "valeu")
    with pytest.raises(ConfigError, match="must be 'null' or 'error'"):
        lookup(CLEAN_LOG_DIRS, missing="skip")  # type: ignore[arg-type]


def test_a_worker_keeps_its_logs_open(spark: SparkSession) -> None:
    """open_cached gives one worker the same log in every task: a module's state lives as long as the worker."""
    (golden,) = named("g-plain-0")
    path = str(golden.directory)

    def who(_: Iterable[int]) -> Iterator[tuple[int, int]]:
        import os

        assert open_cached(path) is open_cached(path)
        yield os.getpid(), id(open_cached(path))

    seen = [pair for _ in range(3) for pair in spark.sparkContext.parallelize(range(2), 2).mapPartitions(who).collect()]
    logs: dict[int, set[int]] = {}
    for pid, log in seen:
        logs.setdefault(pid, set()).add(log)
    assert all(len(ids) == 1 for ids in logs.values())
    assert any(count > 1 for count in Counter(pid for pid, _ in seen).values())


# The package itself.


def test_the_public_names_are_all_there() -> None:
    assert sorted(offsetlog.spark.__all__) == offsetlog.spark.__all__ or set(offsetlog.spark.__all__) == {
        name for name in dir(offsetlog.spark) if not name.startswith("_")
    } & set(offsetlog.spark.__all__)
    assert all(hasattr(offsetlog.spark, name) for name in offsetlog.spark.__all__)


def test_without_pyspark_the_extra_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None\nimport offsetlog.spark"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 1
    assert "pip install 'offsetlog[spark]'" in run.stderr


def test_the_log_dirs_used_here_hold_what_is_expected() -> None:
    """The tests above would pass on two empty folders in several places."""
    with LogDir.open(CLEAN_LOG_DIRS) as log_dir:
        assert len(log_dir.partitions()) == len(CLEAN_PARTITIONS)
