"""What real brokers wrote reads as real clients read it: every partition, every record, every answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from frames import Frame, all_frames
from golden import (
    CLEAN,
    CLEAN_LOG_DIRS,
    CLEAN_PARTITIONS,
    DATA,
    LEVELS,
    OLD_LOG_DIRS,
    OLD_PARTITIONS,
    PARTITIONS,
    Golden,
    Level,
    Row,
    expected_names,
    named,
    row,
    rows,
)
from peers import MemoryRecords

from offsetlog import Log, LogDir, OffsetOutOfRangeError, Scan, TopicPartition

every_partition = pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
    ]
)


def seeded(golden: Golden) -> random.Random:
    """The same choices in every run."""
    return random.Random(golden.id)


@pytest.fixture
def log(golden: Golden) -> Iterator[Log]:
    """The partition, opened."""
    with Log.open(golden.directory) as log:
        yield log


def test_all_partitions_of_the_brokers_are_there() -> None:
    """A test over files proves nothing where files are missing."""
    assert {golden.name for golden in CLEAN_PARTITIONS} == expected_names("kafka-4.3.0-clean")
    assert {golden.name for golden in OLD_PARTITIONS} == expected_names("kafka-2.8.2")
    assert (len(CLEAN_PARTITIONS), len(OLD_PARTITIONS)) == (40, 29)
    for golden in PARTITIONS:
        assert (len(golden.rows), len(golden.committed)) == golden.counts
        assert len(golden.time_queries) >= 2 * 20
    assert sum(len(golden.time_queries) for golden in CLEAN_PARTITIONS) == 2922


@every_partition
def test_offsets_are_the_brokers(golden: Golden, log: Log) -> None:
    """Begin, end and last stable offset bound everything else."""
    assert (log.topic, log.partition) == (golden.topic, golden.partition)
    assert log.log_start_offset == golden.start
    assert log.log_end_offset == golden.end
    assert log.high_watermark == golden.end
    assert log.last_stable_offset == golden.last_stable_offset
    if golden in CLEAN_PARTITIONS:
        assert log.leader_epoch == golden.leader_epoch
    else:
        # Asked before the three brokers stopped one after another, which moved leaders once more; and logs of magic 0 and 1
        # hold no epochs, whatever the controller knew.
        checkpoint = golden.directory / "leader-epoch-checkpoint"
        entries = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        assert log.leader_epoch == (int(entries[-1].split()[0]) if entries else None)


@every_partition
@pytest.mark.parametrize("mapped", [False, True], ids=["owned", "mapped"])
@pytest.mark.parametrize("threads", [1, 2])
def test_scan_yields_the_consumers_records(golden: Golden, mapped: bool, threads: int) -> None:
    """The heart of it: all records, all fields, in order; and only committed ones where that is asked."""
    with Log.open(golden.directory, mapped=mapped) as log:
        scan = log.scan(threads=threads)
        records = list(scan)
        assert rows(records) == golden.rows
        assert {(record.topic, record.partition, record.is_control) for record in records} <= {(golden.topic, golden.partition, False)}
        assert rows(scan) == golden.rows, "a scan reads again from its start"
        assert scan.count() == len(golden.rows)
        committed = log.scan(isolation_level="read_committed", threads=threads)
        assert rows(committed) == golden.committed
        assert committed.count() == len(golden.committed)
        assert rows(log.scan(verify_checksums=False, threads=threads)) == golden.rows


@every_partition
def test_get_finds_every_record_and_nothing_else(golden: Golden, log: Log) -> None:
    """Each offset of the log is a record, or a marker or a gap that gives None."""
    expected = {seen.offset: seen for seen in golden.rows}
    for offset in range(golden.start, golden.end):
        record = log.get(offset)
        assert (None if record is None else row(record)) == expected.get(offset), offset


@every_partition
def test_outside_the_log_is_out_of_range(golden: Golden, log: Log) -> None:
    """An offset outside the log is a mistake of the caller's, not an absent record."""
    for offset in (golden.start - 1, golden.end, golden.end + 1, 2**62):
        if offset < 0:
            continue
        with pytest.raises(OffsetOutOfRangeError) as raised:
            log.get(offset)
        error = raised.value
        assert (error.requested, error.log_start_offset, error.log_end_offset) == (offset, golden.start, golden.end)


@pytest.mark.slow
@every_partition
def test_take_keeps_order_and_repeats_and_leaves_out_what_is_absent(golden: Golden, log: Log) -> None:
    """Many look-ups at once agree with single ones."""
    expected = {seen.offset: seen for seen in golden.rows}
    rng = seeded(golden)
    asked = [*range(golden.start, golden.end)]
    asked += rng.choices(asked, k=50) if asked else []
    rng.shuffle(asked)
    wanted = tuple(expected[offset] for offset in asked if offset in expected)
    taken = log.take(asked)
    assert rows(taken) == wanted
    assert taken.to_arrow().column("offset").to_pylist() == [seen.offset for seen in wanted]
    assert log.take(asked, columns=["value", "offset"]).to_arrow().to_pylist() == [
        {"value": seen.value, "offset": seen.offset} for seen in wanted
    ]
    assert log.take([]).count() == 0
    for outside in (golden.start - 1, golden.end):
        if outside >= 0:
            with pytest.raises(OffsetOutOfRangeError):
                log.take([*asked[:3], outside]).count()


def arrow_row(golden: Golden, seen: Row) -> dict[str, Any]:
    """A record as a row of the Arrow stream."""
    return {
        "key": seen.key,
        "value": seen.value,
        "topic": golden.topic,
        "partition": golden.partition,
        "offset": seen.offset,
        "timestamp": EPOCH + timedelta(milliseconds=seen.timestamp),  # -1 without one, as in Spark's source
        "timestampType": seen.timestamp_type,
        "headers": [{"key": key, "value": value} for key, value in seen.headers] or None,
    }


@every_partition
def test_arrow_holds_the_consumers_records(golden: Golden, log: Log) -> None:
    """The same records as columns, with Spark's names, types and order."""
    expected: dict[Level, tuple[Row, ...]] = {"read_uncommitted": golden.rows, "read_committed": golden.committed}
    for level, seen in expected.items():
        table = log.scan(isolation_level=level).to_arrow()
        assert table.schema == SCHEMA
        assert table.to_pylist() == [arrow_row(golden, one) for one in seen]
        table.validate(full=True)


@every_partition
def test_arrow_gives_the_columns_asked_for(golden: Golden, log: Log) -> None:
    """Columns beyond Spark's, in any order, and in batches of any size."""
    scan = log.scan(columns=["sequence", "offset", "leaderEpoch", "producerId", "producerEpoch"], batch_rows=7)
    table = scan.to_arrow()
    assert [(field.name, field.type) for field in table.schema] == [
        ("sequence", pa.int32()),
        ("offset", pa.int64()),
        ("leaderEpoch", pa.int32()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int32()),
    ]
    assert table.num_rows == len(golden.rows)
    by_offset: dict[int, Frame] = {}
    for frame in all_frames(golden.directory):
        if frame.base_offset is not None and frame.magic == 2:  # messages of magic 0 and 1 know no producer
            by_offset.update(dict.fromkeys(range(frame.base_offset, frame.last_offset + 1), frame))
    for got, seen in zip(table.to_pylist(), golden.rows, strict=True):
        assert got["offset"] == seen.offset
        batch = by_offset.get(seen.offset)
        if batch is None or batch.base_offset is None:
            continue
        sequence = batch.base_sequence if batch.base_sequence < 0 else batch.base_sequence + seen.offset - batch.base_offset
        assert (got["leaderEpoch"], got["producerId"], got["producerEpoch"], got["sequence"]) == (
            batch.leader_epoch,
            batch.producer_id,
            batch.producer_epoch,
            sequence,
        )


@every_partition
def test_time_look_ups_are_the_brokers(golden: Golden, log: Log) -> None:
    """Exact times, a millisecond beside them, between, before and after all of them, in both isolation levels."""
    for when, level, answer in golden.time_queries:
        found = log.offset_for_timestamp(when, isolation_level=level)
        assert (None if found is None else tuple(found)) == answer, (when, level)


@pytest.mark.slow
@every_partition
def test_ranges_are_slices_of_the_whole(golden: Golden, log: Log) -> None:
    """From any offset to any other, also from the middle of a batch or of an aborted transaction."""
    rng = seeded(golden)
    for _ in range(40):
        start, stop = sorted(rng.choices(range(golden.start, golden.end + 1), k=2))
        assert rows(log.scan(start, stop)) == tuple(seen for seen in golden.rows if start <= seen.offset < stop), (start, stop)
        assert rows(log.scan(start, stop, isolation_level="read_committed")) == tuple(
            seen for seen in golden.committed if start <= seen.offset < stop
        ), (start, stop)
    for limit in (0, 1, 10, 10**6):
        assert rows(log.scan(limit=limit)) == golden.rows[:limit]
        assert rows(log.scan(limit=limit, isolation_level="read_committed")) == golden.committed[:limit]


@every_partition
def test_filters_keep_what_they_say(golden: Golden, log: Log) -> None:
    """Times and keys are filters: whatever the engine skips, the answer is that of looking at every record."""
    rng = seeded(golden)
    times = sorted({seen.timestamp for seen in golden.rows})
    for _ in range(20 if times else 0):
        start, stop = sorted(rng.choices(times, k=2))
        start, stop = start + rng.choice([-1, 0, 1]), stop + rng.choice([-1, 0, 1])
        kept = tuple(seen for seen in golden.rows if start <= seen.timestamp < stop)
        assert rows(log.scan(start_timestamp=start, stop_timestamp=stop)) == kept, (start, stop)
        assert log.scan(start_timestamp=start, stop_timestamp=stop).count() == len(kept), (start, stop)
    keys = sorted({seen.key for seen in golden.rows if seen.key is not None})
    for _ in range(10 if keys else 0):
        chosen = rng.sample(keys, k=min(3, len(keys)))
        assert rows(log.scan(keys=chosen)) == tuple(seen for seen in golden.rows if seen.key in chosen)


@every_partition
def test_splits_tile_the_log(golden: Golden, log: Log) -> None:
    """Whatever the size of the pieces, together they are the log, without gap or overlap."""
    for max_bytes in (1, 1000, 5000, 1 << 30):
        splits = log.splits(max_bytes=max_bytes)
        ends = [golden.start, *(split.stop for split in splits)]
        assert [split.start for split in splits] == ends[:-1]
        assert not splits or ends[-1] == golden.end
        assert all(split.start < split.stop for split in splits)
        assert rows(Scan.over(splits)) == golden.rows
        assert rows(record for split in splits for record in Scan.over([split])) == golden.rows


@every_partition
def test_batches_are_the_frames_of_the_files(golden: Golden, log: Log) -> None:
    """Batch headers against a plain walk over the bytes."""
    begins = [frame for frame in all_frames(golden.directory) if frame.last_offset >= golden.start]
    for info, frame in zip(log.batches(), begins, strict=True):
        got = Frame(
            info.segment,
            info.position,
            info.size_bytes,
            None if frame.base_offset is None else info.base_offset,
            info.last_offset,
            info.magic,
            info.codec,
            info.timestamp_type,
            info.leader_epoch,
            info.max_timestamp,
            info.producer_id,
            info.producer_epoch,
            info.base_sequence,
            info.record_count,
            info.is_transactional,
            info.is_control,
        )
        assert got == frame


@every_partition
def test_locate_tells_the_batch_that_get_decodes(golden: Golden, log: Log) -> None:
    """The explained look-up is the look-up."""
    walked = [frame for frame in all_frames(golden.directory) if frame.last_offset >= golden.start]
    segments = [segment.base_offset for segment in log.segments]
    for offset in sorted(seeded(golden).sample(range(golden.start, golden.end), k=min(60, golden.end - golden.start))):
        location = log.locate(offset)
        assert (location.topic, location.partition, location.offset) == (golden.topic, golden.partition, offset)
        assert location.segment == max(base for base in segments if base <= offset)
        assert (location.segment_slot, location.segment_count) == (segments.index(location.segment), len(segments))
        frame = next(frame for frame in walked if frame.last_offset >= offset)
        if location.batch is None:
            assert log.get(offset) is None
        else:
            assert location.batch.last_offset >= offset
            assert (location.batch.segment, location.batch.position) == (frame.segment, frame.position)
        assert str(offset) in str(location)


@every_partition
@pytest.mark.parametrize("level", LEVELS)
def test_a_consumer_reads_what_fetch_answers(golden: Golden, log: Log, level: Level) -> None:
    """Fetched bytes, decoded by another library and filtered as a consumer does it, are the expected records."""
    offset, got = golden.start, []
    while True:
        result = log.fetch(offset, max_bytes=3000, isolation_level=level)
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (
            golden.end,
            golden.last_stable_offset,
            golden.start,
        )
        if not result.records:
            break
        assert level == "read_committed" or not result.aborted
        pending = sorted(result.aborted, key=lambda transaction: transaction.first_offset)
        aborting: set[int] = set()
        next_offset = offset
        for batch in MemoryRecords(result.records):
            decoded = list(batch)
            if batch.magic == 2:
                next_offset = batch.next_offset
                while pending and pending[0].first_offset <= batch.last_offset:
                    aborting.add(pending.pop(0).producer_id)
                if batch.is_control_batch:
                    if decoded and decoded[0].abort:
                        aborting.discard(batch.producer_id)
                    continue
                if batch.is_transactional and batch.producer_id in aborting:
                    continue
            else:
                next_offset = decoded[-1].offset + 1
            got += [record for record in decoded if record.offset >= offset]
        assert next_offset > offset
        offset = next_offset
    wanted = golden.committed if level == "read_committed" else golden.rows
    assert [(record.offset, record.key, record.value, tuple(record.headers)) for record in got] == [
        (seen.offset, seen.key, seen.value, seen.headers) for seen in wanted
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log_dirs", "partitions"),
    [(CLEAN_LOG_DIRS, CLEAN_PARTITIONS), (OLD_LOG_DIRS, named(*sorted(expected_names("kafka-2.8.2"))))],
    ids=["kafka-4.3.0-clean", "kafka-2.8.2"],
)
def test_log_dirs_read_as_one(log_dirs: tuple[Path, ...], partitions: list[Golden]) -> None:
    """Several log dirs, or the disks of several brokers, are one place; a replica counts once."""
    by_key = {TopicPartition(golden.topic, golden.partition): golden for golden in partitions}
    with LogDir.open(log_dirs) as log_dir:
        assert log_dir.partitions() == sorted(by_key)
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(by_key):
            topics.setdefault(topic, []).append(partition)
        assert log_dir.topics() == topics
        assert log_dir.beginning_offsets() == {key: golden.start for key, golden in by_key.items()}
        assert log_dir.end_offsets() == {key: golden.end for key, golden in by_key.items()}
        assert log_dir.end_offsets(isolation_level="read_committed") == {
            key: golden.last_stable_offset for key, golden in by_key.items()
        }
        for key, golden in by_key.items():
            with log_dir.log(*key) as log:
                assert rows(log.scan()) == golden.rows
                assert rows(log.scan(isolation_level="read_committed")) == golden.committed
        scan = log_dir.scan()
        assert [(record.topic, record.partition, row(record)) for record in scan] == [
            (*key, seen) for key, golden in sorted(by_key.items()) for seen in golden.rows
        ]
        assert scan.to_arrow().select(["topic", "partition", "offset"]).to_pylist() == [
            {"topic": key.topic, "partition": key.partition, "offset": seen.offset}
            for key, golden in sorted(by_key.items())
            for seen in golden.rows
        ]
        for level in LEVELS:
            asked: dict[int, dict[TopicPartition, int]] = {}
            answers: dict[int, dict[TopicPartition, tuple[int, int, int | None] | None]] = {}
            for key, golden in by_key.items():
                for number, query in enumerate(query for query in golden.time_queries if query.isolation_level == level):
                    asked.setdefault(number, {})[key] = query.when
                    answers.setdefault(number, {})[key] = query.answer
            for number, timestamps in asked.items():
                found = log_dir.offsets_for_times(timestamps, isolation_level=level)
                assert {key: None if answer is None else tuple(answer) for key, answer in found.items()} == answers[number]


def test_metadata_log_reads_as_any_partition() -> None:
    """The KRaft metadata log holds the same batches; its control batches are not data."""
    directory = CLEAN / "metadata-dir" / "__cluster_metadata-0"
    walked = all_frames(directory)
    with Log.open(directory) as log:
        assert log.log_end_offset == walked[-1].last_offset + 1
        assert [(info.base_offset, info.record_count) for info in log.batches()] == [
            (frame.base_offset, frame.record_count) for frame in walked
        ]
        assert log.scan().count() == sum(frame.record_count or 0 for frame in walked if not frame.is_control)


def test_topic_ids_are_the_brokers() -> None:
    """``partition.metadata`` is read as it stands there."""
    for golden in PARTITIONS:
        metadata = golden.directory / "partition.metadata"
        text = metadata.read_text().split("topic_id: ")[1].strip() if metadata.exists() else None
        with Log.open(golden.directory) as log:
            assert log.topic_id == text
    assert DATA.is_dir()
