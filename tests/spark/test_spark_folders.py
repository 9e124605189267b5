"""The folder around log dirs in place of a log dir: refused by every way to read and write, with the paths that work, and left as it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN_LOG_DIRS
from pyspark.sql import SparkSession

import offsetlog.spark
from offsetlog import commits, forget_commit
from offsetlog.spark import OffsetLogSource
from spark_rows import load, reader

Use = Callable[[SparkSession, str], Any]


@pytest.fixture
def around(tmp_path: Path) -> Path:
    """A folder with two log dirs, whose names look like partitions'."""
    for log_dir in CLEAN_LOG_DIRS:
        shutil.copytree(log_dir, tmp_path / "around" / log_dir.name)
    return tmp_path / "around"


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in (folder, *folder.rglob("*"))}


def rows(spark: SparkSession) -> Any:  # noqa: ANN401  # a frame
    return spark.sql("select 't' topic, cast('v' as binary) value")


def streamed(spark: SparkSession, path: str) -> None:
    reading = spark.readStream.format("offsetlog").option("subscribe", "g-plain").load(path)
    place = f"{path}/../checkpoint"
    reading.writeStream.format("noop").option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination(60)


def looked_up(spark: SparkSession, path: str) -> None:
    value = offsetlog.spark.lookup(path)
    spark.createDataFrame([("g-plain", 0, 1)], "topic string, partition int, offset long").select(
        value("topic", "partition", "offset")
    ).collect()


USES: dict[str, Use] = {
    "load": lambda spark, path: load(spark, path, subscribe="g-plain"),
    "load everything": lambda spark, path: load(spark, path, subscribePattern=".*"),
    "load without topics": load,
    "load with a log dir": lambda spark, path: load(spark, f"{path}/log-dir-1,{path}", subscribe="g-plain"),
    "load with a schema": lambda spark, path: reader(spark, subscribe="g-plain").schema("offset long").load(path).count(),
    "readStream": streamed,
    "scan": lambda spark, path: offsetlog.spark.scan(spark, path, subscribe="g-plain"),
    "map_splits": lambda spark, path: offsetlog.spark.map_splits(spark, path, list, subscribe="g-plain"),
    "splits": lambda _, path: offsetlog.spark.splits(path, subscribe="g-plain"),
    "lookup": looked_up,
    "write": lambda spark, path: offsetlog.spark.write(rows(spark), path),
    "save": lambda spark, path: rows(spark).write.format("offsetlog").mode("append").save(path),
}


@pytest.mark.parametrize("name", USES)
def test_the_folder_around_log_dirs_is_refused_with_the_paths_that_work(spark: SparkSession, around: Path, name: str) -> None:
    before = tree(around)
    with pytest.raises(Exception, match="not a log dir itself, but the folder around 2: give them instead") as caught:
        USES[name](spark, str(around))
    for log_dir in CLEAN_LOG_DIRS:
        assert str(around / log_dir.name) in str(caught.value)
    assert tree(around) == before


def test_it_is_refused_by_load_and_not_only_by_the_query(around: Path) -> None:
    source = OffsetLogSource({"path": str(around), "subscribe": "g-plain"})
    with pytest.raises(offsetlog.LogDirError, match="the folder around 2"):
        source.schema()


def test_the_paths_that_it_names_work(spark: SparkSession, around: Path) -> None:
    both = ",".join(str(around / log_dir.name) for log_dir in CLEAN_LOG_DIRS)
    assert load(spark, both, subscribe="g-plain").count() == load(spark, subscribe="g-plain").count() > 0
    assert commits(around / "log-dir-1") == []
    with pytest.raises(offsetlog.LogDirError, match="no commit is called 'x'"):
        forget_commit(around / "log-dir-1", "x")
