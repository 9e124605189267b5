"""A log that is truncated and grows again under another leader: Spark sees that its records are others, and is right where nothing was replaced.

Lengths cannot tell: the log ends where it ended, or behind. The leader epochs of its batches can.
"""

from __future__ import annotations

import copy
import json
import logging
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from make_log import batch, segment
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from stream_engine import KINDS, Checkpoint, Crash, Engine
from truncation import LENIENT, NAME, append, die_when, offsets, query, regrown

import offsetlog.spark
from offsetlog import Log, LogDir, OffsetOutOfRangeError
from offsetlog.spark import OffsetLogSource, tasks
from offsetlog.spark.leader_epochs import epoch_before, replaced_from
from offsetlog.spark.reader import OffsetLogReader
from offsetlog.spark.stream_offsets import from_json, leader_epochs, to_json, topic_ids
from spark_rows import load


def planned(folder: Path, **options: str) -> OffsetLogReader:
    source = OffsetLogSource({"path": str(folder / NAME), "columns": "offset,leaderEpoch", **options})
    made = source.reader(source.schema())
    assert isinstance(made, OffsetLogReader)
    return made


def read(reader: OffsetLogReader, partitions: Iterable[InputPartition]) -> list[tuple[int, int]]:
    found = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    return sorted((row["offset"], row["leaderEpoch"]) for row in found)


# What is compared.


def test_the_epoch_of_the_last_offset_is_that_of_its_batch(tmp_path: Path) -> None:
    append(tmp_path, 2, 5, 5)
    append(tmp_path, 5, 5)
    with Log.open(tmp_path / NAME) as log:
        assert [epoch_before(log, offset) for offset in (-1, 0, 1, 10, 11, 15, 16, 1 << 62)] == [None, None, 2, 2, 5, 5, None, None]


def test_at_the_end_of_a_log_whose_last_batch_was_compacted_the_newest_epoch_counts(tmp_path: Path) -> None:
    append(tmp_path, 2, 5)
    append(tmp_path, 4, 5)
    log_file = tmp_path / NAME / f"{0:020}.log"
    with Log.open(tmp_path / NAME) as log:
        last = list(log.batches())[-1]
    log_file.write_bytes(log_file.read_bytes()[: last.position])
    (tmp_path / NAME / f"{10:020}.log").touch()
    with Log.open(tmp_path / NAME) as log:
        assert log.log_end_offset == 10
        assert epoch_before(log, 10) == 4
        assert [replaced_from(log, 10, epoch) for epoch in (1, 2, 4)] == [0, None, None]


def test_another_leaders_records_are_found_from_the_first_one_on(tmp_path: Path) -> None:
    append(tmp_path, 2, *[3] * 40)
    append(tmp_path, 5, *[3] * 40)
    append(tmp_path, 7, *[3] * 40)
    with Log.open(tmp_path / NAME) as log:
        for first, epoch in ((0, 1), (120, 2), (120, 4), (240, 5), (240, 6)):
            for offset in (first + 1, first + 50, 360, 1000):
                assert replaced_from(log, offset, epoch) == first
            assert replaced_from(log, first, epoch) is None
        assert replaced_from(log, 360, 7) is None
        assert replaced_from(log, 360, None) is None


def test_a_log_without_leader_epochs_is_not_compared(tmp_path: Path) -> None:
    """Batches of before epochs; behind them, those of a leader that has one."""
    segment(tmp_path / NAME, 0, *(batch(offset, [(b"key", b"value")], leader_epoch=-1) for offset in range(6)))
    strict = planned(tmp_path)
    partitions = strict.partitions()
    with Log.open(tmp_path / NAME) as log:
        assert epoch_before(log, 6) is None
        assert replaced_from(log, 6, 3) is None
    append(tmp_path, 4, 5)
    assert [offset for offset, _ in read(strict, partitions)] == list(range(6))
    with Log.open(tmp_path / NAME) as log:
        assert (replaced_from(log, 6, 3), replaced_from(log, 11, 3)) == (None, 6)


@pytest.mark.parametrize("kept", [True, False])
def test_neither_a_missing_nor_a_damaged_epoch_checkpoint_matters(tmp_path: Path, *, kept: bool) -> None:
    append(tmp_path, 2, 5, 5)
    checkpoint = tmp_path / NAME / "leader-epoch-checkpoint"
    checkpoint.write_text("?") if kept else checkpoint.unlink()
    strict = planned(tmp_path)
    partitions = strict.partitions()
    assert read(strict, partitions) == [(offset, 2) for offset in range(10)]
    checkpoint.unlink(missing_ok=True)
    regrown(tmp_path, 5, 3, 5)
    checkpoint.write_text("?") if kept else checkpoint.unlink()
    with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 9 of t-0 are gone"):
        read(strict, partitions)


# Batch queries.


@pytest.mark.parametrize("more", [5, 12], ids=["the same end", "a later end"])
def test_a_log_that_was_truncated_and_grew_before_the_task_runs(tmp_path: Path, more: int, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path, 2, 5, 5)
    strict, lenient = planned(tmp_path), planned(tmp_path, **LENIENT)
    partitions = strict.partitions()
    regrown(tmp_path, 5, 3, more)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        read(strict, partitions)
    text = str(caught.value)
    assert "offsets 5 to 9 of t-0 are gone: the log was truncated to 5 or below and grew again" in text
    assert "leader epochs above 2" in text
    assert "failOnDataLoss = false reads what is left" in text
    assert (caught.value.requested, caught.value.log_start_offset, caught.value.log_end_offset) == (5, 0, 5 + more)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert read(lenient, partitions) == [(offset, 2) for offset in range(5)]
    assert "offsets 5 to 9 of t-0 are gone" in caplog.text
    # A new plan is of the log as it is.
    again = planned(tmp_path)
    assert read(again, again.partitions()) == [(offset, 2 if offset < 5 else 3) for offset in range(5 + more)]


def test_a_shorter_log_has_lost_what_another_leader_wrote_below_its_end_too(tmp_path: Path) -> None:
    append(tmp_path, 2, 5, 5)
    strict, lenient = planned(tmp_path), planned(tmp_path, **LENIENT)
    partitions = strict.partitions()
    regrown(tmp_path, 5, 3, 2)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 9 of t-0 are gone"):
        read(strict, partitions)
    assert read(lenient, partitions) == [(offset, 2) for offset in range(5)]


def test_only_the_tasks_whose_records_were_replaced_fail(tmp_path: Path) -> None:
    append(tmp_path, 2, *[5] * 8)
    strict = planned(tmp_path, maxRecordsPerPartition="10")
    partitions = strict.partitions()
    assert len(partitions) == 4
    regrown(tmp_path, 25, 3, *[5] * 5)
    assert read(strict, partitions[:2]) == [(offset, 2) for offset in range(20)]
    with pytest.raises(OffsetOutOfRangeError, match="offsets 25 to 29 of t-0 are gone"):
        read(strict, partitions[2:3])
    with pytest.raises(OffsetOutOfRangeError, match="offsets 30 to 39 of t-0 are gone"):
        read(strict, partitions[3:])


@pytest.mark.parametrize("strict", [True, False])
def test_a_log_that_is_truncated_and_grows_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, strict: bool
) -> None:
    """Between the look at what is there and the scan: what comes is of the new leader, and the task says so at its end."""
    append(tmp_path, 2, 5, 5)
    reader = planned(tmp_path, failOnDataLoss=str(strict).lower())
    partitions = reader.partitions()
    looked = tasks._still_there  # noqa: SLF001  # the look that the truncation follows

    def then_it_is_truncated(*arguments: object) -> object:
        left = looked(*arguments)  # type: ignore[arg-type]  # whatever they are
        regrown(tmp_path, 5, 3, 5)
        return left

    monkeypatch.setattr(tasks, "_still_there", then_it_is_truncated)
    if strict:
        with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 9 of t-0 are gone"):
            read(reader, partitions)
        return
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        read(reader, partitions)
    assert "offsets 5 to 9 of t-0 are gone" in caplog.text


def test_a_topic_that_is_made_anew_before_the_task_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its directories have ids: that the new topic has as many records of the same epoch changes nothing."""

    def topic() -> str:
        with LogDir.open(tmp_path, "a") as log_dir:
            if "t" in log_dir.topics():
                log_dir.delete_topic("t")
            log_dir.create_topic("t", 1)
            for _ in range(10):
                log_dir.append("t", b"value", partition=0)
        with Log.open(tmp_path / NAME) as log:
            return str(log.topic_id)

    old = topic()
    strict, lenient = planned(tmp_path), planned(tmp_path, **LENIENT)
    partitions = strict.partitions()
    assert len(read(strict, partitions)) == 10
    new = topic()
    with pytest.raises(OffsetOutOfRangeError, match=f"the topic was made anew: it had the id {old}, and has {new} now"):
        read(strict, partitions)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert read(lenient, partitions) == []
    assert "offsets 0 to 9 of t-0 are gone" in caplog.text


def test_spark_fails_the_query_and_the_direct_scan(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path, 2, 5, 5)
    frame = load(spark, str(tmp_path / NAME), columns="offset").rdd
    assert frame.getNumPartitions() > 0
    direct = offsetlog.spark.scan(spark, tmp_path / NAME, columns=["offset"])
    lenient = offsetlog.spark.scan(spark, tmp_path / NAME, columns=["offset"], fail_on_data_loss=False)
    assert direct.count() == 10
    regrown(tmp_path, 5, 3, 7)
    for count in (frame.count, direct.count):
        with pytest.raises(PythonException, match="offsets 5 to 9 of t-0 are gone: the log was truncated"):
            count()
    assert lenient.count() == 5


# Streams.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("running", [True, False], ids=["running", "restarted"])
@pytest.mark.parametrize("more", [3, 6, 9], ids=["a lower end", "the same end", "a later end"])
def test_a_stream_reports_what_another_leader_wrote_below_its_position(
    kind: str, running: bool, more: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The query fails, whether it runs or is started again; or goes on where the other leader began, so that nothing is left out."""
    append(tmp_path, 2, 4, 6)
    strict, lenient = Checkpoint(), Checkpoint()
    engine, other = Engine(query(tmp_path), strict, kind=kind), Engine(query(tmp_path, **LENIENT), lenient, kind=kind)
    engine.drain()
    other.drain()
    regrown(tmp_path, 4, 3, more)
    if not running:
        engine, other = Engine(query(tmp_path), strict, kind=kind), Engine(query(tmp_path, **LENIENT), lenient, kind=kind)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 was read up to 10, and has been truncated since to 4 or below") as caught:
        engine.drain()
    assert "offset 9 had leader epoch 2, and later ones begin below it now): offsets 4 to 9 are gone" in str(caught.value)
    assert caught.value.requested == 4
    with pytest.raises(OffsetOutOfRangeError, match="offsets 4 to 9 are gone"):
        # Again and again, until somebody decides.
        Engine(query(tmp_path), strict, kind=kind).drain()
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        other.drain()
    assert caplog.text.count("t-0 was read up to 10, and has been truncated since") == 1
    append(tmp_path, 3, 2)
    other.drain()
    assert not other.trigger()
    assert offsets(lenient) == sorted([*range(10), *range(4, 4 + more + 2)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fails", [True, False])
def test_a_micro_batch_that_was_planned_before_the_truncation(kind: str, fails: bool, tmp_path: Path) -> None:
    """The driver dies between the plan and the tasks; the offsets of the plan are in the checkpoint."""
    append(tmp_path, 2, 5)
    checkpoint = Checkpoint()
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    append(tmp_path, 2, 3, 2)
    with pytest.raises(Crash):
        Engine(query(tmp_path), checkpoint, kind=kind, point=die_when("written")).drain()
    assert len(checkpoint.offsets) == checkpoint.commits + 1
    regrown(tmp_path, 8, 3, 9)
    if fails:
        with pytest.raises(OffsetOutOfRangeError, match=r"t-0 was to be read up to 10, .* offsets 8 to 9 are gone"):
            Engine(query(tmp_path), checkpoint, kind=kind).drain()
        return
    Engine(query(tmp_path, **LENIENT), checkpoint, kind=kind).drain()
    assert offsets(checkpoint) == list(range(17))


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncation_between_the_answer_and_the_plan_of_the_first_micro_batch(kind: str, tmp_path: Path) -> None:
    append(tmp_path, 2, 5, 5)

    def truncate(point: str) -> None:
        if point == "answered":
            regrown(tmp_path, 5, 3, 9)

    with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 9 are gone"):
        Engine(query(tmp_path), Checkpoint(), kind=kind, point=truncate).drain()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_starts_at_the_latest_and_has_read_nothing(kind: str, tmp_path: Path) -> None:
    append(tmp_path, 2, 5, 5)
    checkpoint = Checkpoint()
    Engine(query(tmp_path, startingOffsets="latest"), checkpoint, kind=kind).drain()
    regrown(tmp_path, 5, 3, 9)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 9 are gone"):
        Engine(query(tmp_path, startingOffsets="latest"), checkpoint, kind=kind).drain()


@pytest.mark.parametrize("kind", KINDS)
def test_available_now_does_not_end_well_on_a_log_of_the_same_length(kind: str, tmp_path: Path) -> None:
    append(tmp_path, 2, 5, 5)
    checkpoint = Checkpoint()
    Engine(query(tmp_path), checkpoint, kind=kind, trigger="available now").drain()
    regrown(tmp_path, 5, 3, 5)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 9 are gone"):
        Engine(query(tmp_path), checkpoint, kind=kind, trigger="available now").drain()


def test_a_query_of_spark_fails_until_it_may_lose_data(spark: SparkSession, tmp_path: Path) -> None:
    """Through Spark itself: the epochs are in its checkpoint, and are compared when the query is started again."""
    append(tmp_path / "logs", 2, 5, 5)

    def run(**options: str) -> int:
        reading = spark.readStream.format("offsetlog").options(**query(tmp_path / "logs", **options)).load()
        writing = reading.select("offset").writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        started = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        started.awaitTermination(120)
        return spark.read.parquet(str(tmp_path / "rows")).count()

    assert run() == 10
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(newest.read_text().splitlines()[-1])["t"] == {"0": 10, "epochs": {"0": 2}, "begins": {"0": 0}}
    append(tmp_path / "logs", 3, 2)
    assert run() == 12
    regrown(tmp_path / "logs", 5, 4, 9)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="t-0 was read up to 12, and has been truncated since to 5 or below"):
            run()
    assert run(**LENIENT) == 12 + 9
    assert run() == 12 + 9


# The form in the checkpoint, and those of older versions.


def test_epochs_are_beside_the_offsets() -> None:
    found = {("a", 0): 3, ("b", 9): 2, ("b", 10): 1}
    epochs = {("b", 10): 4, ("b", 9): 7}
    text = json.dumps(to_json(found, {"b": "id"}, epochs))  # type: ignore[arg-type]  # named tuples are tuples
    assert text == '{"a": {"0": 3}, "b": {"9": 2, "10": 1, "id": "id", "epochs": {"9": 7, "10": 4}}}'
    assert from_json(json.loads(text)) == found
    assert leader_epochs(json.loads(text)) == epochs
    assert topic_ids(json.loads(text)) == {"b": "id"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_without_epochs_goes_on_and_gets_them(kind: str, tmp_path: Path) -> None:
    append(tmp_path, 2, 5, 5)
    checkpoint = Checkpoint()
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    assert json.loads(checkpoint.offsets[-1])["t"] == {"0": 10, "epochs": {"0": 2}, "begins": {"0": 0}}
    checkpoint.offsets = [json.dumps(to_json(from_json(json.loads(text)))) for text in checkpoint.offsets]
    old = copy.deepcopy(checkpoint)
    engine = Engine(query(tmp_path), checkpoint, kind=kind)
    engine.drain()
    if kind == "asks":
        # Epochs alone are no news.
        assert len(checkpoint.offsets) == len(old.offsets)
    append(tmp_path, 2, 5)
    engine.drain()
    assert offsets(checkpoint) == list(range(15))
    assert leader_epochs(json.loads(checkpoint.offsets[-1])) == {("t", 0): 2}
    # What is not known is not compared.
    regrown(tmp_path, 5, 3, 20)
    Engine(query(tmp_path), old, kind=kind).drain()
    assert offsets(old) == list(range(25))
    with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 14 are gone"):
        Engine(query(tmp_path), checkpoint, kind=kind).drain()


# No false alarm.


@pytest.mark.parametrize("kind", KINDS)
def test_later_leaders_that_append_are_no_news_below(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Elections, and a follower that cuts what nobody has read and fetches it again."""
    checkpoint, cautious = Checkpoint(), Checkpoint()
    append(tmp_path, None, 3)
    engine = Engine(query(tmp_path), checkpoint, kind=kind)
    slow = Engine(query(tmp_path, maxOffsetsPerTrigger="2"), cautious, kind=kind)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        for epoch in range(1, 9):
            append(tmp_path, epoch, 2, 3)
            engine.drain()
            slow.trigger()
            assert not engine.trigger()
            engine = Engine(query(tmp_path), checkpoint, kind=kind)
            with Log.open(tmp_path / NAME, "a") as log:
                end = log.log_end_offset
            append(tmp_path, epoch, 4)
            regrown(tmp_path, end, epoch + 1, 4)
        slow.drain()
        engine.drain()
    assert offsets(checkpoint) == offsets(cautious) == list(range(3 + 8 * 9))
    assert "gone" not in caplog.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read_up_to", range(1, 20))
def test_compaction_and_retention_raise_no_alarm(kind: str, read_up_to: int, tmp_path: Path) -> None:
    """A position within what the cleaner takes out, at every offset: batches go, and so does the one that holds the last offset."""
    with Log.open(tmp_path / NAME, "a") as log:
        for epoch in range(10):
            log.append_records([(b"a", b"%d" % epoch), (b"b" if epoch % 3 else b"c", b"%d" % epoch)], leader_epoch=epoch)
            if epoch in (4, 8):
                log.roll()
    checkpoint = Checkpoint()
    engine = Engine(query(tmp_path, maxOffsetsPerTrigger=str(read_up_to)), checkpoint, kind=kind)
    engine.trigger()
    assert from_json(json.loads(checkpoint.offsets[-1])) == {("t", 0): read_up_to}
    lazy = planned(tmp_path, maxRecordsPerPartition=str(read_up_to))
    partitions = lazy.partitions()
    with Log.open(tmp_path / NAME, "a") as log:
        log.compact()
        left = [record.offset for record in log.scan()]
        assert len(left) < 20
    # The plan of before, a plan of now, and the stream.
    assert [offset for offset, _ in read(lazy, partitions)] == left
    again = planned(tmp_path, maxRecordsPerPartition=str(read_up_to))
    assert [offset for offset, _ in read(again, again.partitions())] == left
    engine.drain()
    assert offsets(checkpoint) == sorted({*range(read_up_to), *left})
    replica = copy.deepcopy(checkpoint)
    Engine(query(tmp_path), replica, kind=kind).drain()
    with Log.open(tmp_path / NAME, "a") as log:
        log.delete_records_before(log.log_end_offset)
    append(tmp_path, 12, 3)
    Engine(query(tmp_path), replica, kind=kind).drain()
    assert offsets(replica)[-3:] == [20, 21, 22]


def test_a_plan_on_a_compacted_replica_holds_for_one_that_is_not(tmp_path: Path) -> None:
    """The batch of the last offset was gone when the plan was made, and is there when the task runs."""
    with Log.open(tmp_path / NAME, "a") as log:
        for epoch in range(8):
            log.append_records([(b"a", b"%d" % epoch)], leader_epoch=epoch)
        log.roll()
        log.append_records([(b"b", b"end")], leader_epoch=9)
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / NAME, whole)
    with Log.open(tmp_path / NAME, "a") as log:
        log.compact()
    readers = [planned(tmp_path, maxRecordsPerPartition=str(most)) for most in range(1, 9)]
    plans = [reader.partitions() for reader in readers]
    shutil.rmtree(tmp_path / NAME)
    whole.rename(tmp_path / NAME)
    for reader, partitions in zip(readers, plans, strict=True):
        assert [offset for offset, _ in read(reader, partitions)] == list(range(9))


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_made_anew_is_not_compared_with_the_old_one(kind: str, tmp_path: Path) -> None:
    """Its epochs begin at 0 again and rise, above that of the old topic's last record."""

    def topic(epochs: Iterable[int]) -> None:
        with LogDir.open(tmp_path, "a") as log_dir:
            if "t" in log_dir.topics():
                log_dir.delete_topic("t")
            log_dir.create_topic("t", 1)
        for epoch in epochs:
            append(tmp_path, epoch, 5)

    topic([1, 2])
    checkpoint = Checkpoint()
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    topic([0, 4, 7])
    with pytest.raises(OffsetOutOfRangeError, match="was made anew"):
        Engine(query(tmp_path), copy.deepcopy(checkpoint), kind=kind).drain()
    Engine(query(tmp_path, **LENIENT), checkpoint, kind=kind).drain()
    assert offsets(checkpoint) == sorted([*range(10), *range(15)])
    append(tmp_path, 7, 5)
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    assert offsets(checkpoint) == sorted([*range(10), *range(20)])
