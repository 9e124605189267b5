"""Drivers that write in several threads, or by statements of SQL: each record once, and what is refused changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS
from pyspark import InheritableThread
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from writing import LOCK, tree

import offsetlog.spark
from offsetlog import LogDir, commits
from offsetlog.spark import write


def values(place: Path) -> dict[str, list[str]]:
    with LogDir.open(place) as log_dir:
        return {
            topic: sorted((record.value or b"").decode() for number in numbers for record in log_dir.log(topic, number).scan())
            for topic, numbers in log_dir.topics().items()
        }


def unchanged(place: Path) -> dict[str, bytes | None]:
    """All files but those that each opening signs."""
    return tree(place, without=(LOCK, ".lock"))


def in_a_pool(jobs: list[Callable[[], None]]) -> None:
    """As many programs do it: fewer threads than jobs, each used again."""
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def in_threads_of_pyspark(jobs: list[Callable[[], None]]) -> None:
    """A thread each, with a copy of the properties of the one that starts it."""
    failed: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001  # for the thread that asks
            failed.append(error)

    threads = [InheritableThread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.mark.parametrize("way", [in_a_pool, in_threads_of_pyspark])
def test_threads_write_at_once(spark: SparkSession, tmp_path: Path, way: Callable[[list[Callable[[], None]]], None]) -> None:
    """Into one topic and into several, none of which is there before; by one call, and as a source that the thread registers."""
    place = tmp_path / "logs"

    def job(topic: str, number: int) -> Callable[[], None]:
        frame = spark.range(20 * number, 20 * number + 20, 1, 2).selectExpr(
            "cast(id as string) value", "cast(id % 3 as int) partition"
        )

        def run() -> None:
            if number % 2:
                offsetlog.spark.register(spark)
                frame.write.format("offsetlog").mode("append").options(topic=topic, partitions="3").save(str(place))
            else:
                assert write(frame, place, topic=topic, partitions=3, transaction_id=f"load {number}").records == 20

        return run

    way([job("shared", number) for number in range(4)] + [job(f"own-{number}", number) for number in range(4, 7)])
    found = values(place)
    assert found.pop("shared") == sorted(str(number) for number in range(80))
    assert found == {f"own-{own}": sorted(str(number) for number in range(20 * own, 20 * own + 20)) for own in range(4, 7)}
    assert {note.name for note in commits(place)} == {f"job load {number}" for number in (0, 2, 4, 6)}
    assert not list(place.glob("*/offsetlog-staging"))


NO_OPTIONS = "option path: is missing, as are all other options.*CREATE TEMPORARY VIEW"
# How a table is made -> what reading it, inserting into it and replacing its rows say. Where it has no columns Spark refuses the rows.
TABLES = {
    "CREATE TABLE kept USING offsetlog OPTIONS (path '{place}', subscribe 't')": "INSERT_COLUMN_ARITY_MISMATCH",
    "CREATE TABLE kept USING offsetlog OPTIONS (subscribe 't') LOCATION '{place}'": "INSERT_COLUMN_ARITY_MISMATCH",
    "CREATE TABLE kept (value binary, topic string) USING offsetlog OPTIONS (path '{place}', subscribe 't')": NO_OPTIONS,
}
NOT_MADE = {
    "CREATE TABLE kept USING offsetlog": "option path: must name a log dir",
    "CREATE TABLE kept USING offsetlog LOCATION '{place}'": "exactly one of assign, subscribe and subscribePattern",
    "CREATE TABLE kept USING offsetlog OPTIONS (path '{place}', topic 'new') AS SELECT 'a' value": NO_OPTIONS,
    "CREATE TABLE kept USING offsetlog LOCATION '{place}' AS SELECT 'a' value, 't' topic": NO_OPTIONS,
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with LogDir.open(tmp_path / "logs", "a") as log_dir:
        log_dir.create_topic("t", 3)
        log_dir.append("t", b"one", partition=0)
    return tmp_path / "logs"


@pytest.mark.parametrize("made", list(TABLES))
def test_a_table_changes_no_file(spark: SparkSession, place: Path, made: str) -> None:
    """Made, read, inserted into, emptied and dropped: what Spark does not hand to a Python source is refused by name."""
    before = unchanged(place)
    insert = "kept SELECT cast('two' AS binary) value, 't' topic"
    refused = {
        "SELECT count(*) FROM kept": NO_OPTIONS,
        f"INSERT INTO {insert}": TABLES[made],
        f"INSERT OVERWRITE {insert}": TABLES[made] if TABLES[made] != NO_OPTIONS else 'mode "overwrite" is not supported',
        "TRUNCATE TABLE kept": "does not support truncates",
        "DELETE FROM kept": "does not support deletes",
    }
    spark.sql(made.format(place=place))
    try:
        for statement, match in refused.items():
            with pytest.raises(AnalysisException, match=f"(?s){match}"):
                spark.sql(statement).collect()
            assert unchanged(place) == before, statement
    finally:
        spark.sql("DROP TABLE kept PURGE")
    assert unchanged(place) == before


@pytest.mark.parametrize("statement", list(NOT_MADE))
def test_a_table_that_cannot_be_made_is_not_there(spark: SparkSession, place: Path, statement: str) -> None:
    before = unchanged(place)
    with pytest.raises(AnalysisException, match=f"(?s){NOT_MADE[statement]}"):
        spark.sql(statement.format(place=place))
    assert not spark.catalog.tableExists("kept")
    assert unchanged(place) == before


def test_dropping_a_table_that_was_saved_leaves_its_records(spark: SparkSession, place: Path) -> None:
    """`saveAsTable` hands its options over, and writes; the table is a name in Spark's catalog."""
    frame = spark.range(3).selectExpr("cast(id as string) value")
    frame.write.format("offsetlog").options(path=str(place), topic="new").mode("append").saveAsTable("kept")
    before = unchanged(place)
    spark.sql("DROP TABLE kept PURGE")
    assert unchanged(place) == before
    assert values(place) == {"t": ["one"], "new": ["0", "1", "2"]}


@pytest.mark.parametrize("way", ["a stream", "INSERT INTO"])
def test_a_partition_that_others_have_is_refused_in_each_way(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """As a batch write: to the metadata, partitions of `g-plain` are broker 1's; these log dirs are broker 2's."""
    folders = [tmp_path / path.name for path in (*CLEAN_LOG_DIRS, CLEAN / "metadata-dir")]
    for folder in folders:
        shutil.copytree(CLEAN / folder.name, folder)
    for folder in folders[:-1]:
        meta = folder / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    paths = ",".join(map(str, folders))
    rows = [(b"new", "g-plain", 0)]
    spark.createDataFrame(rows, "value binary, topic string, partition int").createOrReplaceTempView("new_rows")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW others USING offsetlog OPTIONS (path '{paths}', subscribe 'g-plain', columns 'value,topic,partition')"
    )

    def end() -> int:
        with LogDir.open(folders) as log_dir:
            return log_dir.log("g-plain", 0).log_end_offset

    def stream(**options: str) -> None:
        frame = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1, numPartitions=1).load()
        writer = frame.selectExpr("cast(value as string) value", "'g-plain' topic", "0 partition").writeStream.format("offsetlog")
        writer = writer.options(checkpointLocation=str(tmp_path / "checkpoint"), **options)
        assert writer.trigger(once=True).start(paths).awaitTermination(300)

    before = end()
    refusal = r"broker 1 of the cluster has a replica too: .*the option singleReplica = true"
    for _ in range(2):
        with pytest.raises((StreamingQueryException, PySparkException), match=refusal):
            stream() if way == "a stream" else spark.sql("INSERT INTO others SELECT * FROM new_rows")
        assert end() == before
        assert not commits(folders[0])
        assert not [path for folder in folders for path in folder.glob("*/offsetlog-staging")]
    if way == "a stream":
        stream(singleReplica="true")
        assert end() == before + 1


RESTORES = {
    "the number of partitions of a topic that is there": ({"partitions": {"a": 2, "t": 4, "z": 2}}, "topic 't' is there and has 3"),
    "the id of a topic that is there": (
        {"partitions": 2, "topic_ids": {"a": "b2Zmc2V0bG9nLXRvcGljLQ", "t": "b2Zmc2V0bG9nLXRvcGljLg"}},
        "topic 't' is there and has the id",
    ),
    "a setting": ({"settings": {"retention.ms": "soon"}}, "retention.ms"),
}


@pytest.mark.parametrize("why", list(RESTORES))
def test_a_refused_restore_of_several_topics_leaves_none_behind(spark: SparkSession, place: Path, why: str) -> None:
    """One of them is refused; those beside it are not made."""
    before = unchanged(place)
    arguments, match = RESTORES[why]
    rows = [(topic, partition, offset, b"v") for topic in ("a", "t", "z") for partition in range(2) for offset in (5, 7)]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset long, value binary")
    for transaction in (None, "restore"):
        with pytest.raises(Exception, match=match):
            write(frame, place, preserve_offsets=True, transaction_id=transaction, **arguments)  # type: ignore[arg-type]
        assert unchanged(place) == before
    assert values(place) == {"t": ["one"]}


def test_a_restore_that_a_task_refuses_leaves_empty_topics_alone(spark: SparkSession, place: Path) -> None:
    """Records are staged in the partitions that they are for, so that topics are made before a row is refused. No record stays."""
    rows = [("a", 0, 5, b"v"), ("t", 0, 7, b"v"), ("z", 9, 5, b"v")]
    columns = "topic string, partition int, offset long, value binary"
    with pytest.raises(PySparkException, match="partition 9 found, topic 'z' has 0 to 1"):
        write(spark.createDataFrame(rows, columns), place, preserve_offsets=True, partitions=2, transaction_id="restore")
    assert {topic: found for topic, found in values(place).items() if found} == {"t": ["one"]}
    assert not commits(place)
    rows[2] = ("z", 1, 5, b"v")
    assert write(spark.createDataFrame(rows, columns), place, preserve_offsets=True, transaction_id="restore").records == 3
    assert values(place) == {"a": ["v"], "t": ["one", "v"], "z": ["v"]}
