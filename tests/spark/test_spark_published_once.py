"""Row 27 beside the kills: what a stream and a job are known by when they come again, through a real Spark."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rows import counted

import offsetlog.spark
from offsetlog import LogDir, commits, forget_commit
from offsetlog.errors import ConfigError
from offsetlog.spark import write
from offsetlog.spark.stream_identity import PROPERTY, query_id


def values(place: Path, topic: str = "t") -> list[str]:
    with LogDir.open(place) as log_dir:
        return sorted(
            (record.value or b"").decode() for number in log_dir.topics()[topic] for record in log_dir.log(topic, number).scan()
        )


def repeat_last(checkpoint: Path) -> None:
    """Let Spark repeat its last micro-batch: as if the driver had died behind the sink's commit. The file has a checksum file."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for path in (checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()


@counted(27, "streams")
def test_streams_are_known_by_the_ids_in_their_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    """However the location is given. All write one topic at once; a checkpoint that is removed is another stream's from then on."""
    # Spark's driver has the working directory of this process's start.
    near = Path(os.path.relpath(tmp_path))
    session = tmp_path / "session"
    # Where the checkpoint lies -> how two starts name it. Of `named` the session's configuration says it.
    spelt = {
        tmp_path / "plain": [str(tmp_path / "plain"), f"file://{tmp_path}/plain/"],
        tmp_path / "two words": [f"file:{tmp_path}/two words", str(tmp_path / "two words")],
        tmp_path / "near": [str(near / "near"), str(tmp_path / "near")],
        session / "named": ["", ""],
    }
    place = tmp_path / "logs"
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 2)
    offsetlog.spark.register(spark)

    def start(checkpoint: Path, location: str) -> StreamingQuery:
        source = tmp_path / "in" / checkpoint.name
        writer = spark.readStream.schema("value string").text(str(source)).writeStream.format("offsetlog").option("topic", "t")
        writer = writer.option("checkpointLocation", location) if location else writer.queryName(checkpoint.name)
        return writer.trigger(availableNow=True).start(str(place))

    def add(number: int) -> list[str]:
        lines = {path: [f"{path.name} {number}.{line}" for line in range(5)] for path in spelt}
        for path, of_stream in lines.items():
            source = tmp_path / "in" / path.name
            source.mkdir(parents=True, exist_ok=True)
            (source / f"{number}.txt").write_text("\n".join(of_stream) + "\n")
        return [line for of_stream in lines.values() for line in of_stream]

    def run(at: int) -> set[str]:
        queries = [start(path, locations[at]) for path, locations in spelt.items()]
        for query in queries:
            assert query.awaitTermination(300)
        return {f"query {json.loads((path / 'metadata').read_text())['id']}" for path in spelt}

    spark.conf.set("spark.sql.streaming.checkpointLocation", str(session))
    try:
        expected = add(0)
        ids = run(0)
        assert values(place) == sorted(expected)
        assert {note.name for note in commits(place)} == ids
        for path in spelt:
            repeat_last(path)
        expected += add(1)
        assert run(1) == ids
        assert values(place) == sorted(expected)
        assert {(note.name, note.sequence) for note in commits(place)} == {(name, 1) for name in ids}
        for path in spelt:
            shutil.rmtree(path)
        others = run(0)
        assert not others & ids
        assert values(place) == sorted(2 * expected)
        assert {note.name for note in commits(place)} == ids | others
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert not list(place.glob("*/offsetlog-staging"))


def test_tasks_find_the_id_in_their_context(spark: SparkSession) -> None:
    """In Spark's own; where it is not there, the option is asked for."""
    context = spark.sparkContext

    def told(_: int) -> str:
        try:
            return query_id()
        except ConfigError as error:
            return str(error)

    (refused,) = context.parallelize([0], 1).map(told).collect()
    assert refused.startswith("option queryId: is needed here")
    assert "sql.streaming.queryId" in refused
    context.setLocalProperty(PROPERTY, "an id")
    try:
        assert context.parallelize([0, 1], 2).map(told).collect() == ["an id", "an id"]
    finally:
        context.setLocalProperty(PROPERTY, None)  # type: ignore[arg-type]  # none removes it


@counted(27, "jobs")
def test_a_name_that_comes_again_is_for_the_same_records(spark: SparkSession, tmp_path: Path) -> None:
    """They are known in any order and from any number of tasks; others are refused, however many they are."""
    place = tmp_path / "logs"

    def rows(first: int, last: int, tasks: int) -> DataFrame:
        return spark.range(first, last, 1, tasks).selectExpr("cast(id as string) value", "cast(id % 2 as int) partition")

    expected = sorted(str(number) for number in range(40))
    assert write(rows(0, 40, 3), place, topic="t", partitions=2, transaction_id="load").is_new
    again = write(rows(0, 40, 1).orderBy("value", ascending=False), place, topic="t", transaction_id="load")
    assert (again.is_new, again.records) == (False, 40)
    for others, topic in ((rows(1, 41, 3), "t"), (rows(0, 39, 3), "t"), (rows(0, 41, 3), "t"), (rows(0, 40, 3), "u")):
        with pytest.raises(PySparkException, match=r"transactionId 'load' was used on .* for 40 records of topic 't'.* other data"):
            write(others, place, topic=topic, partitions=2, transaction_id="load")
        assert values(place) == expected
    assert values(place, "u") == []
    forget_commit(place, "load")
    assert write(rows(1, 41, 3), place, topic="t", transaction_id="load").is_new
    assert values(place) == sorted([*expected, *(str(number) for number in range(1, 41))])


def test_a_copied_checkpoint_is_another_stream_and_a_repeated_micro_batch_is_not(spark: SparkSession, tmp_path: Path) -> None:
    """Though the rows differ each time that they are computed, and the copy has the same id."""
    place, source, checkpoint, fork = (tmp_path / name for name in ("logs", "in", "checkpoint", "fork"))
    source.mkdir()
    offsetlog.spark.register(spark)

    def run(at: Path, **options: str) -> None:
        rows = spark.readStream.schema("value string").text(str(source)).selectExpr("concat(value, ' ', uuid()) value")
        writer = rows.writeStream.format("offsetlog").options(topic="t", checkpointLocation=str(at), **options)
        query = writer.trigger(availableNow=True).start(str(place))
        assert query.awaitTermination(300)

    (source / "0.txt").write_text("a\nb\n")
    run(checkpoint)
    published = values(place)
    (note,) = commits(place)
    assert (note.sequence, note.plan is None) == (0, False)
    repeat_last(checkpoint)
    shutil.copytree(checkpoint, fork)
    run(checkpoint)
    assert values(place) == published
    assert [line.split()[0] for line in published] == ["a", "b"]
    with pytest.raises(PySparkException, match=r"micro-batch 0 was published on 20.* has other data now: 2 records of topic 't'"):
        run(fork)
    assert values(place) == published
    run(fork, queryId="fork")
    assert len(values(place)) == 4
    (source / "1.txt").write_text("c\n")
    run(checkpoint)
    assert len(values(place)) == 5


@pytest.mark.parametrize("number", [0, 1])
def test_a_micro_batch_that_is_refused_though_it_is_the_same_is_marked_as_done(
    spark: SparkSession, tmp_path: Path, number: int
) -> None:
    """As docs/spark.md says, of a checkpoint that was moved: by its path the plan is not known again."""
    place, source, checkpoint, moved = (tmp_path / name for name in ("logs", "in", "checkpoint", "moved"))
    source.mkdir()
    offsetlog.spark.register(spark)

    def run(at: Path) -> None:
        rows = spark.readStream.schema("value string").text(str(source)).selectExpr("concat(value, ' ', uuid()) value")
        writer = rows.writeStream.format("offsetlog").options(topic="t", checkpointLocation=str(at))
        assert writer.trigger(availableNow=True).start(str(place)).awaitTermination(300)

    for at in range(number + 1):
        (source / f"{at}.txt").write_text(f"{at}\n")
        run(checkpoint)
    published = values(place)
    assert [line.split()[0] for line in published] == [str(at) for at in range(number + 1)]
    repeat_last(checkpoint)
    checkpoint.rename(moved)
    how = f"copy commits/{number - 1} to commits/{number}" if number else "write commits/0"
    with pytest.raises(PySparkException, match=f"micro-batch {number} was published on 20.*tell Spark that it is done: {how} in"):
        run(moved)
    if number:
        shutil.copy(moved / "commits" / str(number - 1), moved / "commits" / str(number))
    else:
        (moved / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    run(moved)
    assert values(place) == published
    (source / "next.txt").write_text("next\n")
    run(moved)
    assert [line.split()[0] for line in values(place)] == [*(str(at) for at in range(number + 1)), "next"]
