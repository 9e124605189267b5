"""Writing from Spark: what comes out of a job is in the logs once, where it should be."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import (
    DataFrame,
    Row,
    SparkSession,  # its usual name
)

from offsetlog import Log, LogDir, commits, partition_for
from offsetlog.errors import LogDirError
from offsetlog.spark import write
from offsetlog.spark.sink import OffsetLogWriter, _batches, prepare
from offsetlog.spark.sink_options import sink_settings_from

CLEAN = Path(__file__).resolve().parents[1] / "data/kafka-4.3.0/clean"


def records(place: Path, topic: str) -> dict[int, list[Any]]:
    with LogDir.open(place) as log_dir:
        return {number: list(log_dir.log(topic, number).scan()) for number in log_dir.topics()[topic]}


def save(frame: DataFrame, place: Path, **options: str) -> None:
    frame.write.format("offsetlog").mode("append").options(**options).save(str(place))


def left(place: Path) -> list[Path]:
    return list(place.glob("*/offsetlog-staging"))


def test_rows_become_records(spark: SparkSession, tmp_path: Path) -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)
    rows = [(f"k{number % 7}".encode(), f"v{number}", when, [("h", b"1")]) for number in range(100)]
    schema = "key binary, value string, timestamp timestamp, headers array<struct<key: string, value: binary>>"
    save(
        spark.createDataFrame(rows, schema).repartition(3),
        tmp_path / "new",
        topic="orders",
        partitions="4",
        **{"compression.type": "zstd"},
    )
    found = records(tmp_path / "new", "orders")
    assert len(found) == 4
    for partition, of_partition in found.items():
        assert [record.offset for record in of_partition] == list(range(len(of_partition)))
        assert {partition_for(record.key, 4) for record in of_partition} <= {partition}
    every = [record for of_partition in found.values() for record in of_partition]
    assert sorted(record.value for record in every) == sorted(f"v{number}".encode() for number in range(100))
    assert {record.timestamp for record in every} == {int(when.timestamp() * 1000)}
    assert {record.headers for record in every} == {(("h", b"1"),)}
    with Log.open(tmp_path / "new/orders-0") as log:
        assert {batch.codec for batch in log.batches()} == {"zstd"}
    assert not left(tmp_path / "new")
    assert not commits(tmp_path / "new")


def test_topics_and_partitions_of_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(40).selectExpr(
        "concat('t', id % 2) topic", "cast(id % 3 as int) partition", "cast(id as string) value", "id ignored"
    )
    save(frame.repartition(4), tmp_path / "new", partitions="3")
    for topic in (0, 1):
        for partition, found in records(tmp_path / "new", f"t{topic}").items():
            expected = {str(number).encode() for number in range(40) if (number % 2, number % 3) == (topic, partition)}
            assert {record.value for record in found} == expected
            assert len(found) == len(expected)


def test_a_restore_keeps_offsets_times_and_epochs(spark: SparkSession, tmp_path: Path) -> None:
    columns = "key,value,topic,partition,offset,timestamp,headers,leaderEpoch"
    frame = (
        spark.read.format("offsetlog")
        .options(subscribe="g-compact,g-plain", columns=columns)
        .load(str(CLEAN / "log-dir-1") + "," + str(CLEAN / "log-dir-2"))
    )
    ordered = frame.repartitionByRange(5, "topic", "partition", "offset").sortWithinPartitions("topic", "partition", "offset")
    save(ordered, tmp_path / "new", preserveOffsets="true", partitions="3")
    with LogDir.open([CLEAN / "log-dir-1", CLEAN / "log-dir-2"]) as old, LogDir.open(tmp_path / "new") as new:
        for topic in ("g-compact", "g-plain"):
            for partition in old.topics()[topic]:

                def fields(log_dir: LogDir, topic: str = topic, partition: int = partition) -> list[Any]:
                    return [
                        (r.offset, r.timestamp, r.key, r.value, r.headers, r.leader_epoch)
                        for r in log_dir.log(topic, partition).scan()
                    ]

                assert fields(new) == fields(old)


def test_a_job_under_a_name_publishes_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(10).selectExpr("cast(id as string) value")
    for _ in range(2):
        save(frame, tmp_path / "new", topic="t", transactionId="backfill-7")
    assert len(records(tmp_path / "new", "t")[0]) == 10
    save(frame, tmp_path / "new", topic="t")
    assert len(records(tmp_path / "new", "t")[0]) == 20
    assert not left(tmp_path / "new")


def test_options_hold_for_what_is_written_to_a_topic_that_is_there(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr("cast(id as string) value")
    for codec in ("lz4", "gzip"):
        save(frame, tmp_path / "new", topic="t", **{"compression.type": codec})
    with Log.open(tmp_path / "new/t-0") as log:
        assert [batch.codec for batch in log.batches()] == ["lz4", "lz4", "gzip", "gzip"]
    with LogDir.open(tmp_path / "new") as log_dir:
        assert log_dir.topic_config("t").compression_type == "lz4"


def test_topics_get_the_ids_that_a_cluster_knows(spark: SparkSession, tmp_path: Path) -> None:
    """Of one topic, of several; one that is there keeps its own."""
    one, two = "b2Zmc2V0bG9nLXRvcGljLQ", "b2Zmc2V0bG9nLXRvcGljLg"
    save(spark.range(3).selectExpr("cast(id as string) value"), tmp_path / "new", topic="a", topicId=one)
    frame = spark.range(4).selectExpr("cast(id as string) value", "if(id % 2 = 0, 'a', 'b') topic")
    write(frame, tmp_path / "new", partitions=2, topic_ids={"b": two})
    for name, wanted in (("a-0", one), ("b-0", two), ("b-1", two)):
        assert (tmp_path / "new" / name / "partition.metadata").read_text() == f"version: 0\ntopic_id: {wanted}"
    with pytest.raises(Exception, match=f"topic 'a' is there and has the id {one}"):
        save(frame, tmp_path / "new", topicId=f'{{"a":"{two}"}}')
    assert len(records(tmp_path / "new", "a")[0]) == 5


def test_records_of_a_partition_stay_in_their_order(spark: SparkSession, tmp_path: Path) -> None:
    """Through as many tasks as there are, each with pieces of several partitions."""
    for partition in range(3):
        with Log.open(tmp_path / f"old/t-{partition}", "a", {"internal.segment.bytes": 4_000}) as log:
            for begin in range(0, 400 + 100 * partition, 20):
                log.append_records([(b"k", b"%d %d" % (partition, offset)) for offset in range(begin, begin + 20)])
    frame = (
        spark.read.format("offsetlog")
        .options(subscribe="t", maxBytesPerPartition="2500", columns="key,value")
        .load(str(tmp_path / "old"))
    )
    assert frame.rdd.getNumPartitions() > 6
    save(frame, tmp_path / "new", topic="t")
    found: dict[int, list[int]] = {}
    for record in records(tmp_path / "new", "t")[0]:
        partition, offset = map(int, record.value.split())
        found.setdefault(partition, []).append(offset)
    assert found == {partition: list(range(400 + 100 * partition)) for partition in range(3)}


def test_a_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, 1, 4).selectExpr("cast(if(id = 990, raise_error('no'), id) as string) value")
    with pytest.raises(Exception, match="no"):
        save(frame, tmp_path / "new", topic="t")
    assert records(tmp_path / "new", "t")[0] == []
    # Spark fails the job while others of its tasks still run: each removes what it staged when it ends.
    end = time.monotonic() + 300
    while left(tmp_path / "new"):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_what_a_killed_task_stages_behind_its_job_goes_too(tmp_path: Path) -> None:
    """Spark says that a job failed while it kills the job's other tasks; nobody waits for those."""
    # Who waits, waits each time; once, a busy machine may take as long.
    for _ in range(5):
        settings = sink_settings_from({"path": str(tmp_path / "new"), "topic": "t"}, is_stream=False)
        prepare(settings)
        writer = OffsetLogWriter(settings, ["value"])
        began = time.monotonic()
        writer.abort([None, None])
        seconds = time.monotonic() - began
        if seconds < 1:
            break
    assert seconds < 1
    with pytest.raises(LogDirError, match="has failed meanwhile"):
        writer.write(iter([pyarrow.record_batch({"value": pyarrow.array(["late"])})]))
    assert not left(tmp_path / "new")


@pytest.mark.parametrize(
    ("columns", "options", "match"),
    [
        ("id", {"topic": "t"}, "no column 'value'"),
        ("cast(id as string) value", {}, "no column 'topic'"),
        ("id value", {"topic": "t"}, "'value' must be binary or string, found bigint"),
        ("cast(id as string) value, id partition", {"topic": "t"}, "'partition' must be int"),
        ("cast(id as string) value", {"topic": "t", "preserveOffsets": "true"}, "no column 'offset'"),
        ("cast(id as string) value", {"topic": "t", "preserveOfsets": "true"}, "did you mean 'preserveOffsets'"),
        ("cast(id as string) value", {"topic": "t", "retention.ms": "soon"}, "retention.ms"),
        ("cast(id as string) value", {"topic": "t", "partitions": "0"}, "partitions"),
        ("cast(id as string) value", {"topic": "t", "topicId": "short"}, "topic_id"),
        ("cast(id as string) value, 't' topic", {"topicId": "b2Zmc2V0bG9nLXRvcGljLQ"}, "found no option topic"),
        ("cast(id as string) value, cast(7 as int) partition", {"topic": "t"}, "partition 7 found"),
        ("cast(id as string) value, cast(null as string) topic", {}, "a row has no topic"),
    ],
)
def test_refused(spark: SparkSession, tmp_path: Path, columns: str, options: dict[str, str], match: str) -> None:
    with pytest.raises(Exception, match=match):
        save(spark.range(3).selectExpr(*columns.split(", ")), tmp_path / "new", **options)


def test_overwriting_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="overwrite"):
        spark.range(1).selectExpr("'x' value").write.format("offsetlog").mode("overwrite").option("topic", "t").save(str(tmp_path))


def test_a_stream_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs from one checkpoint; a fourth repeats the last micro-batch, as after a crash behind its commit."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"

    spellings = iter([str(checkpoint), f"file://{checkpoint}", f"{checkpoint}/", str(checkpoint)])

    def run() -> None:
        frame = spark.readStream.schema("value string").text(str(source))
        query = (
            frame.writeStream.format("offsetlog")
            .options(topic="t", partitions="2", checkpointLocation=next(spellings))
            .trigger(availableNow=True)
            .start(str(tmp_path / "new"))
        )
        query.awaitTermination()

    source.mkdir()
    for number in range(3):
        (source / f"{number}.txt").write_text("".join(f"{number}.{line}\n" for line in range(10)))
        run()
    # The file and its checksum file.
    for commit in sorted((checkpoint / "commits").glob("*2*")):
        commit.unlink()
    run()
    found = [record.value.decode() for of_partition in records(tmp_path / "new", "t").values() for record in of_partition]
    assert sorted(found) == sorted(f"{number}.{line}" for number in range(3) for line in range(10))
    assert not left(tmp_path / "new")
    identity = json.loads((checkpoint / "metadata").read_text())["id"]
    assert [(note.name, note.sequence) for note in commits(tmp_path / "new")] == [(f"query {identity}", 2)]


def test_a_checkpoint_that_is_made_anew_is_a_new_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Its micro-batches begin at 0 again, and are written; the location may also be a setting of the session."""
    for _ in range(2):
        query = (
            spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=3, numPartitions=1)
            .load()
            .selectExpr("cast(value as string) value")
            .writeStream.format("offsetlog")
            .options(topic="t", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(once=True)
            .start(str(tmp_path / "new"))
        )
        query.awaitTermination()
        shutil.rmtree(tmp_path / "checkpoint")
    assert len(records(tmp_path / "new", "t")[0]) == 6


def test_a_stream_keeps_times(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("1700000000123\n1700000000999\n")
    frame = spark.readStream.schema("value string").text(str(tmp_path / "in"))
    query = (
        frame.selectExpr("value", "timestamp_millis(cast(value as bigint)) as timestamp")
        .writeStream.format("offsetlog")
        .options(topic="t", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "new"))
    )
    query.awaitTermination()
    found = records(tmp_path / "new", "t")[0]
    assert [(record.timestamp, record.value) for record in found] == [(int(record.value), record.value) for record in found]
    assert len(found) == 2


def test_times_of_rows_are_of_this_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.0 hands a stream's rows over with local times that name no zone."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        rows = [Row(at=datetime(2026, 1, 2, 3, 4, 5)), Row(at=None)]  # noqa: DTZ001  # as PySpark gives it
        schema = pyarrow.schema([("at", pyarrow.timestamp("us", "UTC"))])
        (batch,) = _batches(iter(rows), schema)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert batch.column("at").to_pylist() == [datetime(2026, 1, 2, 8, 4, 5, tzinfo=UTC), None]
