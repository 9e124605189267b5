"""The first line of an error that Spark shows says what is wrong: it is all that summaries print."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from golden import CLEAN_LOG_DIRS
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offsetlog import Log, LogDir
from offsetlog.errors import ConfigError, LimitExceededError
from offsetlog.spark import lookup, map_splits, scan
from offsetlog.spark.first_line import text_first
from spark_rows import CLEAN_PATH, load


def first_line(run: Callable[[], object]) -> str:
    """The first line, behind those of PySpark's own that say no more than that a worker failed; 4.0 has an empty one in front."""
    with pytest.raises(PySparkException) as caught:
        run()
    lines = (line.strip() for line in str(caught.value).splitlines())
    return next(line for line in lines if line and not line.startswith("An exception was thrown from the Python worker"))


def damaged(place: Path) -> Path:
    """A log dir with a damaged batch in a closed segment."""
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t")
        for _ in range(2):
            log_dir.append("t", b"x" * 200, partition=0)
        log_dir.log("t", 0).roll()
    segment = place / "t-0" / f"{0:020}.log"
    content = bytearray(segment.read_bytes())
    content[100] ^= 0xFF
    segment.write_bytes(bytes(content))
    return place


def test_options_and_planning(spark: SparkSession) -> None:
    assert "offsetlog.errors.ConfigError: unknown option 'colums'; did you mean 'columns'?" in first_line(
        lambda: load(spark, subscribe="g-plain", colums="key").count()
    )
    frame = load(spark, subscribe="g-plain,no-such")
    assert "offsetlog.errors.ConfigError: " in first_line(frame.count)
    assert "no-such" in first_line(frame.count)


@pytest.mark.skipif(pyspark.__version__.startswith("4.0."), reason="PySpark 4.0 gives the JVM's error where a job's task failed")
def test_tasks(spark: SparkSession, tmp_path: Path) -> None:
    place = str(damaged(tmp_path / "logs"))
    for run in (
        spark.read.format("offsetlog").option("subscribe", "t").load(place).count,
        scan(spark, place, subscribe="t").count,
        lambda: map_splits(spark, place, lambda batches: sum(batch.num_rows for batch in batches), subscribe="t"),
    ):
        assert "checksum" in first_line(run)
    value = lookup(CLEAN_PATH, missing="error")
    wanted = spark.createDataFrame([("g-plain", 0, 1 << 40)], "topic string, partition int, offset long")
    assert "OffsetOutOfRangeError: offset 1099511627776" in first_line(
        wanted.select(value("topic", "partition", "offset").alias("value")).collect
    )


def test_writes(spark: SparkSession, tmp_path: Path) -> None:
    def write(frame_of: str, **options: str) -> Callable[[], object]:
        frame = spark.range(1).selectExpr(frame_of)
        return lambda: frame.write.format("offsetlog").mode("append").options(**options).save(str(tmp_path / "new"))

    assert "offsetlog.errors.ConfigError: no column 'topic' found" in first_line(write("'a' value"))
    timed = "struct('a' value, timestamp_millis(-86400000) timestamp) row"
    writer = spark.range(1).selectExpr(timed).select("row.*").write.format("offsetlog").mode("append").option("topic", "t")
    assert "t-0: timestamp -86400000 ms found" in first_line(lambda: writer.save(str(tmp_path / "new")))
    # A commit: the name has published something else.
    write("'a' value", topic="t", transactionId="one")()
    assert "transactionId 'one' was used on " in first_line(write("'b' value", topic="t", transactionId="one"))


def test_streams(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("offsetlog").option("subscribe", "no-such").load(str(CLEAN_LOG_DIRS[0]))
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    line = first_line(query.processAllAvailable)
    assert "no-such" in line


@pytest.mark.parametrize("simplified", [True, False])
def test_the_text_stands_before_what_caused_it(simplified: bool) -> None:
    def fails(error: Exception) -> None:
        raise error

    @text_first
    @text_first
    def fail(error: Exception, before: Exception | None) -> None:
        try:
            fails(before or error)
        except Exception as caught:
            if caught is error:
                raise
            raise error from caught

    kinds = (ConfigError("one\ntwo", key="k"), FileNotFoundError(2, "one\ntwo", "/none"), ValueError("one\ntwo"))
    for error in kinds:
        for before in (None, ValueError("first")):
            with pytest.raises(type(error)) as caught:
                fail(error, before)
            if simplified:
                # As PySpark does by default.
                caught.value.__cause__ = None
            printed = "".join(traceback.format_exception(caught.value)).splitlines()
            name = f"{type(error).__module__}.".removeprefix("builtins.") + type(error).__name__
            assert printed[0] == f"{name}: {str(error).splitlines()[0]}"
            assert "\n".join(printed).endswith(f"{name}: {error}")
            assert sum(line == printed[0] for line in printed) == 2
            assert type(caught.value).__mro__[1] in type(error).__mro__
            assert getattr(caught.value, "key", None) == getattr(error, "key", None)
            assert getattr(caught.value, "filename", None) == getattr(error, "filename", None)
    # A cause that comes round again is no reason to go round for ever.
    one, two = KeyError("one"), KeyError("two")
    one.__context__, two.__context__ = two, one
    with pytest.raises(KeyError):
        fail(one, None)


@pytest.mark.skipif(pyspark.__version__.startswith("4.0."), reason="PySpark 4.0 gives the JVM's error where a job's task failed")
def test_a_limit_has_the_name_of_its_option(spark: SparkSession, tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t")
        log_dir.append("t", b"x" * 2000, partition=0)
    read = spark.read.format("offsetlog").option("subscribe", "t").option("maxBatchBytes", 1000).load(str(tmp_path))
    line = first_line(read.collect)
    assert "limit maxBatchBytes reached: 2070 met, 1000 allowed; give a higher maxBatchBytes to read on" in line


def test_what_the_sink_cannot_take_says_who_can(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a", max_batch_bytes=1000) as log, pytest.raises(LimitExceededError) as caught:
        text_first(log.append)(b"x" * 2000)
    assert "Log.append of a log that is opened with a higher max_batch_bytes takes it" in str(caught.value)
    assert "its readers then need a higher maxBatchBytes" in str(caught.value)
