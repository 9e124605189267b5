"""Rows of ``docs/verbs.md`` for writing with Spark, where a whole Spark is needed: every way to write, beside a broker and with damage.

``tests/python/test_verbs_of_spark.py`` binds each cell to the tests that show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from test_spark_folders import tree

from offsetlog import LogDir, commits
from offsetlog.spark import write


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A log dir with a topic, and the lock file that a broker leaves behind."""
    with LogDir.open(tmp_path / "logs", "a") as log_dir:
        log_dir.create_topic("t", 2)
        log_dir.append("t", b"before", partition=0)
    (tmp_path / "logs/.lock").touch()
    return tmp_path / "logs"


def values(place: Path, topic: str) -> list[bytes | None]:
    with LogDir.open(place) as log_dir:
        return [record.value for number in log_dir.topics().get(topic, []) for record in log_dir.log(topic, number).scan()]


def start(spark: SparkSession, place: Path, topic: str) -> StreamingQuery:
    """A stream of the lines of files beside the log dir: to partition 0, or 1 where the line says so."""
    source, checkpoint = place.parent / "in", place.parent / "checkpoint"
    source.mkdir(exist_ok=True)
    if not list(source.iterdir()):
        (source / "0.txt").write_text("new\n1\n")
    frame = spark.readStream.schema("value string").text(str(source)).selectExpr("value", "if(value = '1', 1, 0) partition")
    writer = frame.writeStream.format("offsetlog").options(topic=topic, partitions="2", checkpointLocation=str(checkpoint))
    return writer.trigger(availableNow=True).start(str(place))


def saved(spark: SparkSession, place: Path, topic: str) -> None:
    spark.sql("select 'new' value").write.format("offsetlog").mode("append").option("topic", topic).save(str(place))


def inserted(spark: SparkSession, place: Path, topic: str) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING offsetlog OPTIONS (path '{place}', subscribe '{topic}', columns 'value,topic')"
    )
    spark.sql(f"INSERT INTO v SELECT cast('new' AS binary) value, '{topic}' topic")


WAYS: dict[str, Callable[[SparkSession, Path, str], object]] = {
    "DataFrame.write": saved,
    "offsetlog.spark.write": lambda spark, place, topic: write(spark.sql("select 'new' value"), place, topic=topic),
    "INSERT INTO": inserted,
    "DataFrame.writeStream": lambda spark, place, topic: start(spark, place, topic).awaitTermination(300),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write_is_refused_beside_a_running_broker(
    spark: SparkSession, place: Path, way: str, lock_holder: Callable[[Path], None]
) -> None:
    """Nothing changes, for a topic that is there and for a new one."""
    lock_holder(place)
    before = tree(place)
    for topic in ("t", "new"):
        with pytest.raises(Exception, match=r"LogLockedError: process \d+ writes this log"):
            WAYS[way](spark, place, topic)
        assert tree(place) == before


def test_insert_into_writes_again(spark: SparkSession, place: Path) -> None:
    """It has no name."""
    for _ in range(2):
        inserted(spark, place, "t")
    assert sorted(values(place, "t")) == [b"before", b"new", b"new"]  # type: ignore[type-var]  # no tombstones
    assert not commits(place)


@contextmanager
def damaged(file: Path) -> Iterator[None]:
    """A file that cannot be read, which is as it was afterwards."""
    good = file.read_bytes() if file.exists() else None
    file.write_bytes(b"\xffgarbage\n")
    try:
        yield
    finally:
        if good is None:
            file.unlink()
        else:
            file.write_bytes(good)


def test_spark_runs_each_task_of_a_refused_write_once(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    """This session tries a task once; the sink does not try again by itself, and waits for nothing."""
    seen = tmp_path / "seen"
    seen.mkdir()

    def told(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        (seen / f"{context.partitionId()}-{context.attemptNumber()}").touch()
        yield from batches

    rows = spark.range(0, 30, 1, 3).selectExpr("cast(id as string) value", "cast(if(id = 29, 7, 0) as int) partition")
    frame = rows.mapInArrow(told, rows.schema)
    with pytest.raises(Exception, match="partition 7 found, topic 't' has 0 to 1"):
        frame.write.format("offsetlog").mode("append").option("topic", "t").save(str(place))
    attempts = {path.name for path in seen.iterdir()}
    assert "2-0" in attempts
    assert attempts <= {"0-0", "1-0", "2-0"}
    assert values(place, "t") == [b"before"]
    assert not commits(place)


def test_spark_runs_a_commit_that_fails_once(spark: SparkSession, place: Path) -> None:
    """One job with one attempt of each task; its records are published when it runs again under its name."""
    rows = spark.range(0, 6, 1, 3).selectExpr("cast(id as string) value", "cast(id % 2 as int) partition")

    def save() -> None:
        rows.write.format("offsetlog").mode("append").options(topic="t", transactionId="load").save(str(place))

    with damaged(place / "t-1/leader-epoch-checkpoint"):
        with pytest.raises(Exception, match=r"CheckpointError: leader epoch checkpoint line 1: .*t-1"):
            save()
        assert len({path.name for path in place.glob("t-?/offsetlog-staging/*")}) == 1
        for partition in range(2):
            assert len(list(place.glob(f"t-{partition}/offsetlog-staging/*/*"))) == 3
        assert [note.is_published for note in commits(place)] == [False]
    save()
    assert sorted(values(place, "t")) == [*(b"%d" % number for number in range(6)), b"before"]  # type: ignore[type-var]  # as above
    assert not list(place.glob("*/offsetlog-staging"))


def test_a_commit_that_fails_ends_the_query_which_goes_on_when_it_is_started_again(spark: SparkSession, place: Path) -> None:
    """Damage in one of two partitions, then mended: each record is there once, and Spark does not try the commit again by itself."""
    with damaged(place / "t-1/leader-epoch-checkpoint"):
        query = start(spark, place, "t")
        with pytest.raises(Exception, match=r"CheckpointError: leader epoch checkpoint line 1: .*t-1"):
            query.awaitTermination(300)
        assert not query.isActive
        (note,) = commits(place)
        assert (note.name, note.sequence, note.is_published) == (f"query {query.id}", 0, False)
    again = start(spark, place, "t")
    assert again.awaitTermination(300)
    assert sorted(values(place, "t")) == [b"1", b"before", b"new"]  # type: ignore[type-var]  # as above
    assert [(note.name, note.is_published) for note in commits(place)] == [(f"query {query.id}", True)]
    assert not list(place.glob("*/offsetlog-staging"))
