"""The reader of a stream beside a model of Spark's engine that may die anywhere: every record once, whatever happens in between.

What the engine asks, and that it asks so, is seen through Spark itself in ``test_spark_stream_queries.py``.
"""

from __future__ import annotations

import copy
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS, named
from stream_engine import KINDS, Checkpoint, Crash, Engine, append, held

from offsetlog import ConfigError, Log, LogDir, OffsetOutOfRangeError, TopicPartition
from offsetlog.spark import offsets_behind
from offsetlog.spark.reader import OffsetLogSource
from offsetlog.spark.stream_offsets import Behind, from_json, rate_limited, to_json, topic_ids, waiting
from offsetlog.spark.stream_options import stream_settings_from

EARLIEST = {"startingOffsets": "earliest"}


def query(folder: Path, **options: str) -> dict[str, str]:
    return {"path": str(folder), "subscribe": "t", **EARLIEST, **options}


def parts(**numbers: int) -> dict[TopicPartition, int]:
    return {TopicPartition(name, 0): number for name, number in numbers.items()}


# Limits. The expected values are worked out by hand from Spark's rule: limit * size / total, down, but up below 1.


@pytest.mark.parametrize(
    ("limit", "start", "latest", "expected"),
    [
        (30, {"a": 0, "b": 0}, {"a": 50, "b": 50}, {"a": 15, "b": 15}),
        (30, {"a": 15, "b": 15}, {"a": 57, "b": 50}, {"a": 31, "b": 28}),  # 16.4 and 13.6
        (10, {"a": 0, "b": 0, "c": 0}, {"a": 1000, "b": 1, "c": 1}, {"a": 9, "b": 1, "c": 1}),
        (1, {"a": 0, "b": 0}, {"a": 7, "b": 7}, {"a": 1, "b": 1}),
        (100, {"a": 3, "b": 9}, {"a": 5, "b": 9}, {"a": 5, "b": 9}),
        (100, {"a": 0, "b": 0}, {"a": 0, "b": 0}, {"a": 0, "b": 0}),
        # Less than before: stays, so that what is lost is told.
        (4, {"a": 9, "b": 0}, {"a": 5, "b": 8}, {"a": 5, "b": 4}),
        # Rounded as doubles are: 3 * (1 / 3.0) is 1.0, 49 * (1 / 49.0) is less than 1.
        (3, {"a": 0, "b": 0, "c": 0}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}),
        ((1 << 63) - 1, {"a": 1 << 62, "b": 0}, {"a": (1 << 63) - 1, "b": 7}, {"a": (1 << 63) - 1, "b": 7}),
    ],
)
def test_a_limit_is_shared_out_as_spark_does(
    limit: int, start: dict[str, int], latest: dict[str, int], expected: dict[str, int]
) -> None:
    assert rate_limited(limit, parts(**start), parts(**latest)) == parts(**expected)


def test_new_partitions_count_from_zero_when_the_least_is_asked_for() -> None:
    """As in Spark's Kafka source, also where they start above."""
    assert waiting(parts(a=5), parts(a=9, b=100)) == 104


def test_offsets_are_in_sparks_form() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(to_json(offsets)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert from_json(to_json(offsets)) == offsets


def test_behind_is_over_all_partitions() -> None:
    assert Behind.of(parts(a=5, b=7), parts(a=9, b=7, c=2)) == Behind(0, 4, 2.0)
    assert Behind.of({}, {}) == Behind(0, 0, 0.0)


# Options.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets: is for batch queries"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":1}}'}, "option endingOffsetsByTimestamp: is for batch queries"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger: is 9, higher than maxOffsetsPerTrigger, which is 8",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: must be a whole number from 1"),
        ({"maxOffsetsPerTrigger": "many"}, "option maxOffsetsPerTrigger: must be a whole number from 1"),
        ({"minOffsetsPerTrigger": "-3"}, "option minOffsetsPerTrigger: must be a whole number from 1"),
        ({"maxTriggerDelay": "15 minutes"}, "option maxTriggerDelay: must be a time as 90s, 15m or 2h"),
        ({"maxTriggerDelay": "1.5h"}, "option maxTriggerDelay: must be a time"),
        ({"startingOffsets": "newest"}, "option startingOffsets: must be 'earliest', 'latest' or JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "t-0 must be an offset, -2 (earliest) or -1 (latest)"),
        (
            {"startingTimestamp": "-1"},
            "option startingTimestamp: is a time before 1970, found -1: the latest (-1) and the earliest (-2)",
        ),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-2}}'}, "t-0 has a time before 1970, found -2"),
        ({"kafka.auto.offset.reset": "earliest"}, "is not supported, as in Spark's Kafka source"),
        ({"subscribePattern": "t"}, "exactly one of assign, subscribe and subscribePattern"),
    ],
)
def test_what_a_stream_refuses(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stream_settings_from({"path": "/logs", "subscribe": "t", **options})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("250", 250),
        ("250ms", 250),
        ("5min", 300_000),
        ("1500us", 1),
    ],
)
def test_a_delay_is_written_as_spark_writes_times(text: str, expected: int) -> None:
    assert stream_settings_from({"path": "/logs", "subscribe": "t", "maxTriggerDelay": text}).max_delay_ms == expected


def test_a_stream_starts_at_the_latest_unless_told() -> None:
    assert stream_settings_from({"path": "/logs", "subscribe": "t"}).reading.start == ("startingOffsets", "latest", None)
    assert stream_settings_from({"path": "/logs", "subscribe": "t"}).max_delay_ms == 15 * 60 * 1000


def test_options_of_batches_are_named_in_one_warning(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    append(tmp_path, "t-0", 3)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        Engine(query(tmp_path, endingTimestamp="5", pushdown="true"), Checkpoint(), kind="told").drain()
    assert [record.getMessage() for record in caplog.records] == [
        "options for batch queries are ignored in a stream: endingTimestamp, pushdown"
    ]


def test_a_stream_is_made_for_what_a_batch_query_refuses() -> None:
    """At ``load()`` it is not known which of the two it will be."""
    options = {"path": str(CLEAN_LOG_DIRS[0]), "subscribe": "g-plain", "startingoffsets": "latest"}
    source = OffsetLogSource(options)
    schema = source.schema()
    source.streamReader(schema)
    with pytest.raises(ConfigError, match="latest gives no records in a batch query"):
        source.reader(schema)


# Where a query starts.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_stream_gives_what_a_consumer_saw(kind: str, level: str) -> None:
    """Markers, aborted records, gaps of compaction, an open transaction at the end."""
    goldens = named("g-txn-0", "g-compact-0", "g-compact-txn-0", "g-plain-0", "g-deleted-prefix-0")
    assigned: dict[str, list[int]] = {}
    for golden in goldens:
        assigned.setdefault(golden.topic, []).append(golden.partition)
    options = {
        "path": ",".join(map(str, CLEAN_LOG_DIRS)),
        "assign": json.dumps(assigned),
        "isolationLevel": level,
        "maxOffsetsPerTrigger": "100",
        **EARLIEST,
    }
    checkpoint = Checkpoint()
    Engine(options, checkpoint, kind=kind).drain()
    assert len(checkpoint.sizes()) > 5
    rows = {(golden.topic, golden.partition): golden.rows if level == "read_uncommitted" else golden.committed for golden in goldens}
    assert checkpoint.records() == {partition: [row.offset for row in found] for partition, found in rows.items() if found}
    ends = from_json(json.loads(checkpoint.offsets[-1]))
    assert ends == {
        (golden.topic, golden.partition): golden.end if level == "read_uncommitted" else golden.last_stable_offset
        for golden in goldens
    }


@pytest.mark.parametrize("kind", KINDS)
def test_starts_by_offset(kind: str, tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, f"t-{number}", 10)
    checkpoint = Checkpoint()
    engine = Engine(query(tmp_path, startingOffsets='{"t":{"0":7,"1":-2,"2":-1}}'), checkpoint, kind=kind)
    engine.drain()
    append(tmp_path, "t-2", 2)
    engine.drain()
    assert checkpoint.records() == {("t", 0): [7, 8, 9], ("t", 1): list(range(10)), ("t", 2): [10, 11]}


@pytest.mark.parametrize("kind", KINDS)
def test_starts_by_time(kind: str, tmp_path: Path) -> None:
    for number in range(2):
        with Log.open(tmp_path / f"t-{number}", "a") as log:
            for at in range(10):
                log.append(b"x", timestamp=1000 * at)
    found = []
    for options in (
        {"startingTimestamp": "7000"},
        {"startingOffsetsByTimestamp": '{"t":{"0":8500,"1":0}}'},
        {"startingOffsetsByTimestamp": '{"t":{"0":8500,"1":99999}}', "startingOffsetsByTimestampStrategy": "latest"},
    ):
        checkpoint = Checkpoint()
        Engine(query(tmp_path, **options), checkpoint, kind=kind).drain()
        found.append({partition: offsets[0] for (_, partition), offsets in checkpoint.records().items()})
    assert found == [{0: 7, 1: 7}, {0: 9, 1: 0}, {0: 9}]
    with pytest.raises(ConfigError, match=r"option startingTimestamp: t-\d has no record at or after 99999"):
        Engine(query(tmp_path, startingTimestamp="99999"), Checkpoint(), kind=kind).drain()


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_names_exactly_the_partitions_that_are_read(kind: str, tmp_path: Path) -> None:
    append(tmp_path, "t-0", 1)
    append(tmp_path, "t-1", 1)
    with pytest.raises(ConfigError, match=r"option startingOffsets: must name exactly .*without t-1"):
        Engine(query(tmp_path, startingOffsets='{"t":{"0":0}}'), Checkpoint(), kind=kind).drain()
    with pytest.raises(ConfigError, match="topic 'u' is not in"):
        Engine(query(tmp_path, subscribe="u"), Checkpoint(), kind=kind).drain()


# Limits, through the engine.


@pytest.mark.parametrize("kind", KINDS)
def test_the_most_of_a_trigger(kind: str, tmp_path: Path) -> None:
    append(tmp_path, "t-0", 50)
    append(tmp_path, "t-1", 50)
    checkpoint = Checkpoint()
    engine = Engine(query(tmp_path, maxOffsetsPerTrigger="30"), checkpoint, kind=kind)
    engine.trigger()
    if kind == "asks":
        assert offsets_behind(engine.progress()) == Behind(35, 35, 35.0)
    engine.drain()
    assert checkpoint.sizes() == [30, 30, 30, 10]
    if kind == "asks":
        assert offsets_behind(engine.progress()) == Behind(0, 0, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_of_a_trigger_and_its_delay(kind: str, tmp_path: Path) -> None:
    append(tmp_path, "t-0", 3)
    clock = [1_000_000]
    checkpoint = Checkpoint()
    options = query(tmp_path, minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    engine = Engine(options, checkpoint, kind=kind, clock=lambda: clock[0])
    # The first comes at once: nothing came before it.
    assert engine.trigger()
    append(tmp_path, "t-0", 4)
    assert not engine.trigger()
    append(tmp_path, "t-0", 6)
    assert engine.trigger()
    append(tmp_path, "t-0", 1)
    clock[0] += 4_999
    assert not engine.trigger()
    clock[0] += 1
    assert engine.trigger()
    assert checkpoint.sizes() == [3, 10, 1]


@pytest.mark.skipif("asks" not in KINDS, reason="PySpark 4.2 and later tell a source of AvailableNow and Once")
def test_available_now_ends_where_it_began_and_once_knows_no_limit(tmp_path: Path) -> None:
    append(tmp_path, "t-0", 25)
    options = query(tmp_path, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10")
    checkpoint = Checkpoint()
    engine = Engine(options, checkpoint, kind="asks", trigger="available now")
    append(tmp_path, "t-0", 5)
    append(tmp_path, "t-1", 5)
    engine.drain()
    # Also the rest, which is below the least.
    assert checkpoint.sizes() == [10, 10, 5]
    Engine(options, checkpoint, kind="asks", trigger="once").trigger()
    assert checkpoint.sizes() == [10, 10, 5, 10]
    assert checkpoint.records() == held(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_sparks_kafka_source_goes_on_here(kind: str, tmp_path: Path) -> None:
    """The offsets of one, in its spelling without blanks."""
    append(tmp_path, "t-0", 9)
    append(tmp_path, "t-1", 9)
    checkpoint = Checkpoint()
    checkpoint.offsets, checkpoint.commits, checkpoint.sink = ['{"t":{"0":7,"1":9}}'], 1, {0: []}
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    assert checkpoint.records() == {("t", 0): [7, 8]}


# What appears, and what goes.


@pytest.mark.parametrize("kind", KINDS)
def test_what_appears_later_is_read_from_its_start(kind: str, tmp_path: Path) -> None:
    """Also where the query starts at the latest."""
    append(tmp_path, "t-0", 5)
    checkpoint = Checkpoint()
    options = {"path": str(tmp_path), "subscribePattern": "^[tu]", "maxOffsetsPerTrigger": "4"}
    engine = Engine(options, checkpoint, kind=kind)
    engine.drain()
    for name in ("t-1", "u-0", "v-0"):
        append(tmp_path, name, 6)
    engine.drain()
    assert checkpoint.records() == {("t", 1): list(range(6)), ("u", 0): list(range(6))}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_pattern_that_finds_nothing_yet(kind: str, start: str, tmp_path: Path) -> None:
    append(tmp_path, "v-0", 6)
    checkpoint = Checkpoint()
    engine = Engine({"path": str(tmp_path), "subscribePattern": "^t", "startingOffsets": start}, checkpoint, kind=kind)
    engine.drain()
    append(tmp_path, "t-0", 6)
    engine.drain()
    assert checkpoint.records() == {("t", 0): list(range(6))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_partition_that_does_not_start_at_zero_is_data_loss(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path, "t-0", 5)
    strict, lenient = Checkpoint(), Checkpoint()
    engine = Engine(query(tmp_path), strict, kind=kind)
    other = Engine(query(tmp_path, failOnDataLoss="false"), lenient, kind=kind)
    engine.drain()
    other.drain()
    append(tmp_path, "t-1", 6)
    with Log.open(tmp_path / "t-1", "a") as log:
        log.delete_records_before(4)
    with pytest.raises(OffsetOutOfRangeError, match="t-1 is new, and starts at 4 instead of 0: offsets 0 to 3 are gone"):
        engine.drain()
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        other.drain()
    assert "t-1 is new, and starts at 4 instead of 0" in caplog.text
    assert lenient.records() == held(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_records_that_retention_removed_before_they_were_read(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path, "t-0", 5)
    strict, lenient = Checkpoint(), Checkpoint()
    Engine(query(tmp_path), strict, kind=kind).drain()
    Engine(query(tmp_path), lenient, kind=kind).drain()
    append(tmp_path, "t-0", 5)
    with Log.open(tmp_path / "t-0", "a") as log:
        log.delete_records_before(8)
    for _ in range(2):
        # Again and again, until somebody decides.
        with pytest.raises(OffsetOutOfRangeError, match="t-0 starts at 8 now: offsets 5 to 7 are gone") as caught:
            Engine(query(tmp_path), strict, kind=kind).drain()
    assert (caught.value.requested, caught.value.log_start_offset, caught.value.log_end_offset) == (5, 8, 10)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        Engine(query(tmp_path, failOnDataLoss="false"), lenient, kind=kind).drain()
    assert [record.getMessage() for record in caplog.records if "gone" in record.getMessage()] == [
        f"t-0 starts at 8 now: offsets 5 to 7 are gone; what is there is read, as failOnDataLoss is false; path {tmp_path / 't-0'}"
    ]
    assert lenient.records() == {("t", 0): [0, 1, 2, 3, 4, 8, 9]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("running", [True, False])
def test_a_log_that_was_cut_below_what_was_read(kind: str, running: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The query fails; or goes on from the new end, so that what is written there now is not left out."""
    for _ in range(5):
        append(tmp_path, "t-0", 2)
    strict, lenient = Checkpoint(), Checkpoint()
    loose = query(tmp_path, failOnDataLoss="false")
    engine, other = Engine(query(tmp_path), strict, kind=kind), Engine(loose, lenient, kind=kind)
    engine.drain()
    other.drain()
    with Log.open(tmp_path / "t-0", "a") as log:
        log.truncate_to(4)
    if not running:
        engine, other = Engine(query(tmp_path), strict, kind=kind), Engine(loose, lenient, kind=kind)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 was read up to 10, and now ends at 4: offsets 4 to 9 are gone"):
        engine.drain()
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        other.drain()
    assert "t-0 was read up to 10, and now ends at 4" in caplog.text
    append(tmp_path, "t-0", 3)
    other.drain()
    assert lenient.records() == {("t", 0): [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9]}


@pytest.mark.parametrize("kind", KINDS)
def test_topics_that_were_deleted(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path, "t-0", 3)
    append(tmp_path, "u-0", 3)
    options = {"path": str(tmp_path), "subscribePattern": ".*", **EARLIEST}
    strict, lenient = Checkpoint(), Checkpoint()
    engine = Engine(options, strict, kind=kind)
    other = Engine({**options, "failOnDataLoss": "false"}, lenient, kind=kind)
    engine.drain()
    other.drain()
    shutil.rmtree(tmp_path / "u-0")
    append(tmp_path, "t-0", 1)
    with pytest.raises(FileNotFoundError, match="u-0: their topics were deleted"):
        engine.drain()
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        other.drain()
        # A topic of the same name is another one, from its start.
        append(tmp_path, "u-0", 2)
        other.drain()
    assert caplog.text.count("u-0: their topics were deleted") == 1
    assert lenient.records() == {("t", 0): [0, 1, 2, 3], ("u", 0): [0, 0, 1, 1, 2]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_subscribed_topic_that_is_not_there_yet(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Told once, though an idle query asks a hundred times a second."""
    append(tmp_path, "t-0", 3)
    checkpoint = Checkpoint()
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        engine = Engine(query(tmp_path, subscribe="t,u", failOnDataLoss="false"), checkpoint, kind=kind)
        engine.drain()
        for _ in range(5):
            assert not engine.trigger()
    assert caplog.text.count("topic 'u' is not in") == 1
    append(tmp_path, "u-0", 2)
    engine.drain()
    assert checkpoint.records() == held(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_batch_is_not_seen(kind: str, tmp_path: Path) -> None:
    """A live writer has written part of its batch; then the rest."""
    append(tmp_path, "t-0", 3)
    checkpoint = Checkpoint()
    engine = Engine(query(tmp_path), checkpoint, kind=kind)
    engine.drain()
    append(tmp_path / "other", "t-0", 3)
    append(tmp_path / "other", "t-0", 4)
    segment = f"{0:020}.log"
    whole = (tmp_path / "other" / "t-0" / segment).read_bytes()
    size = (tmp_path / "t-0" / segment).stat().st_size
    shutil.rmtree(tmp_path / "other")
    for end in (size + 1, size + 30, len(whole) - 1):
        (tmp_path / "t-0" / segment).write_bytes(whole[:end])
        assert not engine.trigger()
    (tmp_path / "t-0" / segment).write_bytes(whole)
    assert engine.trigger()
    assert checkpoint.records() == {("t", 0): list(range(7))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_last_stable_offset_that_goes_back_is_waited_for(kind: str, tmp_path: Path, lock_holder: Callable[[Path], None]) -> None:
    """A broker takes the log dir, and its replication has not confirmed yet what was read without it: nothing is lost."""
    append(tmp_path, "t-0", 10)
    checkpoint = Checkpoint()
    options = query(tmp_path, isolationLevel="read_committed")
    Engine(options, checkpoint, kind=kind).drain()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    lock_holder(tmp_path)
    with Log.open(tmp_path / "t-0") as log:
        assert (log.last_stable_offset, log.log_end_offset) == (4, 10)
    engine = Engine(options, checkpoint, kind=kind)
    for _ in range(3):
        assert not engine.trigger()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    assert not engine.trigger()
    assert checkpoint.records() == {("t", 0): list(range(10))}


# Topics that are made anew under a checkpoint.


def topic(folder: Path, values: int, *, anew: bool = False) -> None:
    with LogDir.open(folder, "a") as log_dir:
        if anew:
            log_dir.delete_topic("t")
        if "t" not in log_dir.topics():
            log_dir.create_topic("t", 2)
        for number in range(values):
            log_dir.append("t", b"%d" % number, partition=number % 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [0, 20, 21, 400])
def test_a_topic_made_anew_is_no_other_topics_rest(kind: str, values: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With fewer records, as many, or more than were read of the old one."""
    topic(tmp_path, 20)
    checkpoint = Checkpoint()
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    (old,) = topic_ids(json.loads(checkpoint.offsets[-1])).values()
    assert from_json(json.loads(checkpoint.offsets[-1])) == {("t", 0): 10, ("t", 1): 10}
    topic(tmp_path, values, anew=True)
    for _ in range(2):
        failed = Checkpoint()
        failed.__dict__.update(copy.deepcopy(checkpoint.__dict__))
        with pytest.raises(OffsetOutOfRangeError, match=f"topic 't' was made anew .* up to offset 10 with the id {old}") as caught:
            Engine(query(tmp_path), failed, kind=kind).drain()
        assert "new checkpoint" in str(caught.value)
    # The micro-batch that failed may stand in the checkpoint.
    for going_on in (checkpoint, failed):
        engine = Engine(query(tmp_path, failOnDataLoss="false", maxOffsetsPerTrigger="100"), going_on, kind=kind)
        engine.drain()
        rows = going_on.records()
        for number in range(2):
            assert rows["t", number] == sorted([*range(10), *range((values + 1 - number) // 2)])
        assert old not in topic_ids(json.loads(going_on.offsets[-1])).values()
        assert not engine.trigger()
    assert "from its start, as failOnDataLoss is false" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_planned_micro_batch_of_the_old_topic_reads_nothing_of_the_new_one(kind: str, tmp_path: Path) -> None:
    topic(tmp_path, 20)
    checkpoint = Checkpoint()
    engine = Engine(query(tmp_path), checkpoint, kind=kind)
    engine.drain()
    topic(tmp_path, 10)

    def die(point: str) -> None:
        if point == "written":
            raise Crash

    with pytest.raises(Crash):
        Engine(query(tmp_path), checkpoint, kind=kind, point=die).drain()
    assert len(checkpoint.offsets) == checkpoint.commits + 1
    topic(tmp_path, 100, anew=True)
    with pytest.raises(OffsetOutOfRangeError, match="was made anew"):
        Engine(query(tmp_path), copy.deepcopy(checkpoint), kind=kind)
    Engine(query(tmp_path, failOnDataLoss="false"), checkpoint, kind=kind).drain()
    assert checkpoint.records() == {("t", number): sorted([*range(10), *range(50)]) for number in range(2)}


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_of_older_checkpoints_have_no_ids_and_hold(kind: str, tmp_path: Path) -> None:
    topic(tmp_path, 20)
    checkpoint = Checkpoint()
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    checkpoint.offsets = [json.dumps(to_json(from_json(json.loads(text)))) for text in checkpoint.offsets]
    assert json.loads(checkpoint.offsets[-1]) == {"t": {"0": 10, "1": 10}}
    batches = len(checkpoint.offsets)
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    if kind == "asks":
        # Ids alone are no news.
        assert len(checkpoint.offsets) == batches
    topic(tmp_path, 10)
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    assert checkpoint.records() == {("t", number): list(range(15)) for number in range(2)}
    assert topic_ids(json.loads(checkpoint.offsets[-1])).keys() == {"t"}
    # What has no id that can be read is read as it is.
    append(tmp_path, "t-0", 1)
    for path in tmp_path.glob("t-*/partition.metadata"):
        path.write_text("version: 0\ntopic_id: ?\n")
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    assert checkpoint.records()["t", 0] == list(range(16))
