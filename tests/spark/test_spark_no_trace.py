"""What ``docs/verbs.md`` says of the verbs that read with Spark: no trace, also beside a broker; damage is named; a second call."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from verbs_page import rows, text

from offsetlog.spark import lookup, map_splits, register, scan, splits

TOPIC = "g-plain"
NAMES = ("log-dir-1", "log-dir-2", "metadata-dir")
# The first record of the second segment, in the middle of which a bit is flipped.
SEGMENT = "g-plain-0/00000000000000000062.log"

Answer = list[Any]


def traces(root: Path) -> dict[str, tuple[int, ...]]:
    """Every name, with all that a change of its file or folder would change."""
    found: dict[str, tuple[int, ...]] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        stat = os.lstat(path)
        found[str(path.relative_to(root))] = (
            stat.st_ino,
            stat.st_mode,
            stat.st_nlink,
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ctime_ns,
        )
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    copy = tmp_path / "broker"
    shutil.copytree(CLEAN, copy)
    return copy


def paths(place: Path) -> list[str]:
    return [str(place / name) for name in NAMES]


def read(spark: SparkSession, place: Path, _: Path, **options: str) -> Answer:
    frame = spark.read.format("offsetlog").options(subscribe=TOPIC, **options).load(",".join(paths(place)))
    return sorted((row["partition"], row["offset"], bytes(row["value"] or b"")) for row in frame.collect())


def view(spark: SparkSession, place: Path, _: Path) -> Answer:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW traced USING offsetlog OPTIONS (path '{','.join(paths(place))}', subscribe '{TOPIC}')"
    )
    return sorted(tuple(row) for row in spark.sql("SELECT partition, count(*) FROM traced GROUP BY partition").collect())


def stream(spark: SparkSession, place: Path, aside: Path) -> Answer:
    """Every micro-batch from a checkpoint of its own."""
    frame = spark.readStream.format("offsetlog").options(subscribe=TOPIC, startingOffsets="earliest").load(",".join(paths(place)))
    into = aside / f"stream-{len(list(aside.iterdir()))}"
    writer = frame.select("partition", "offset").writeStream.format("parquet").option("checkpointLocation", str(into / "checkpoint"))
    query = writer.option("path", str(into / "rows")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return sorted(tuple(row) for row in spark.read.parquet(str(into / "rows")).collect())


def planned(_: SparkSession, place: Path, _aside: Path) -> Answer:
    return [str(split) for split in splits(paths(place), subscribe=TOPIC)]


def scanned(spark: SparkSession, place: Path, _: Path) -> Answer:
    results = map_splits(spark, paths(place), lambda batches: sum(batch.num_rows for batch in batches), subscribe=TOPIC)
    return [sum(result.result for result in results)]


def framed(spark: SparkSession, place: Path, _: Path) -> Answer:
    return [scan(spark, paths(place), subscribe=TOPIC).count()]


def looked_up(spark: SparkSession, place: Path, _: Path) -> Answer:
    at = spark.createDataFrame([(TOPIC, 0, 3), (TOPIC, 0, 150)], "topic string, partition int, offset long")
    value = lookup(paths(place), "value")
    return [bytes(row[0] or b"") for row in at.select(value("topic", "partition", "offset")).collect()]


def damage(place: Path) -> None:
    segment = next(path for path in place.glob(f"*/{SEGMENT}"))
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    segment.write_bytes(damaged)


CALLS: dict[str, Callable[[SparkSession, Path, Path], Answer]] = {
    "spark.read": read,
    "CREATE TEMPORARY VIEW … USING offsetlog": view,
    "spark.readStream": stream,
    "offsetlog.spark.splits": planned,
    "offsetlog.spark.scan": framed,
    "offsetlog.spark.map_splits": scanned,
    "offsetlog.spark.lookup": looked_up,
}


def test_every_verb_that_reads_with_spark_is_called() -> None:
    page = [verb for row in rows(text()) if row.group == "Read with Spark" for verb in row.verbs]
    reading = {verb for verb in page if not verb.startswith(("ReadReport.", "offsetlog.spark.register", "offsetlog.spark.o"))}
    # A table is not read.
    assert reading - {"offsetlog.spark.spark_schema", "CREATE TABLE … USING offsetlog"} == set(CALLS)


@pytest.mark.parametrize("verb", CALLS)
def test_no_trace_also_beside_a_broker(
    spark: SparkSession, place: Path, tmp_path: Path, lock_holder: Callable[[Path], None], verb: str
) -> None:
    """The same answer twice, and once more while a broker holds the log dirs."""
    register(spark)
    aside = tmp_path / "aside"
    aside.mkdir()
    for name in NAMES:
        # A broker makes it; the holder opens it.
        (place / name / ".lock").touch()
    before = traces(place)
    first = CALLS[verb](spark, place, aside)
    assert first
    assert CALLS[verb](spark, place, aside) == first
    assert traces(place) == before
    for name in NAMES:
        lock_holder(place / name)
    held = traces(place)
    assert CALLS[verb](spark, place, aside) == first
    assert traces(place) == held


READING = [
    "spark.read",
    "CREATE TEMPORARY VIEW … USING offsetlog",
    "spark.readStream",
    "offsetlog.spark.scan",
    "offsetlog.spark.map_splits",
]


@pytest.mark.parametrize("verb", READING)
def test_damage_is_named_and_changes_nothing(spark: SparkSession, place: Path, tmp_path: Path, verb: str) -> None:
    register(spark)
    aside = tmp_path / "aside"
    aside.mkdir()
    sound = read(spark, place, aside)
    damage(place)
    before = traces(place)
    with pytest.raises(Exception, match=r"00000000000000000062\.log"):
        CALLS[verb](spark, place, aside)
    if verb == "spark.read":
        kept = read(spark, place, aside, onCorrupt="skip")
        assert set(kept) < set(sound)
        assert {row for row in sound if row[0] != 0} == {row for row in kept if row[0] != 0}
    assert traces(place) == before


def test_a_table_is_made_beside_a_broker_without_a_trace_and_is_not_read(
    spark: SparkSession, place: Path, lock_holder: Callable[[Path], None]
) -> None:
    """Spark keeps no options of it, so whoever reads it is told of views. What is damaged is not looked at."""
    register(spark)
    damage(place)
    for name in NAMES:
        (place / name / ".lock").touch()
        lock_holder(place / name)
    before = traces(place)
    statement = f"CREATE TABLE untraced USING offsetlog OPTIONS (path '{{}}', subscribe '{TOPIC}')"
    spark.sql(statement.format(",".join(paths(place))))
    try:
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
            spark.sql(statement.format(",".join(paths(place))))
        with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
            spark.table("untraced").count()
    finally:
        spark.sql("DROP TABLE untraced")
    with pytest.raises(AnalysisException, match="the folder around 3"):
        spark.sql(statement.format(place))
    assert not spark.catalog.tableExists("untraced")
    assert traces(place) == before
