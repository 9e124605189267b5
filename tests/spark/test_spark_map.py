"""Work inside the workers: functions over a task's batches, what they return, and what is left out before anything is opened."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from golden import CLEAN_PARTITIONS, Golden, named
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from offsetlog import ConfigError, Scan
from offsetlog.spark import map_splits, scan, splits
from spark_rows import CLEAN_PATH

Batches = Iterator[pa.RecordBatch]


@pytest.mark.parametrize("golden", CLEAN_PARTITIONS, ids=lambda golden: golden.id)
def test_splits_begin_with_the_first_record_that_is_late_enough(golden: Golden) -> None:
    """Nothing that is late enough is left out, by a real consumer's rows; and the start is the one that the broker found."""
    for when in sorted({row.timestamp for row in golden.rows})[:: max(1, len(golden.rows) // 40)]:
        wanted = [row.offset for row in golden.rows if row.timestamp >= when]
        found = splits(golden.directory, start_timestamp=when)
        assert found[0].start <= wanted[0]
        assert [record.offset for record in Scan.over(found, start_timestamp=when)] == wanted
    for query in golden.time_queries:
        if query.isolation_level == "read_uncommitted":
            starts = [split.start for split in splits(golden.directory, start_timestamp=query.when)]
            assert starts[:1] == ([] if query.answer is None else [query.answer[0]])
    assert splits(golden.directory, start_timestamp=1 << 60) == []


def test_segments_before_the_time_are_not_opened() -> None:
    (golden,) = named("g-plain-0")
    middle = golden.rows[150].timestamp
    whole, late = (sum(split.size_bytes for split in splits(golden.directory, **more)) for more in ({}, {"start_timestamp": middle}))
    assert 0 < late < whole / 2


def lengths() -> Callable[[Batches], tuple[int, int]]:
    """A function that gives rows, and bytes of their values; made here, as workers do not find the modules of tests."""

    def added(batches: Batches) -> tuple[int, int]:
        rows = size = 0
        for batch in batches:
            rows += batch.num_rows
            size += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
        return rows, size

    return added


def test_a_function_runs_in_the_workers_and_tells_what_it_read(spark: SparkSession) -> None:
    goldens = named("g-plain-0", "g-plain-1", "g-plain-2")
    done = map_splits(spark, CLEAN_PATH, lengths(), subscribe="g-plain", columns=["value"], maxRecordsPerPartition=50)
    assert len(done) == 12
    assert sum(task.records for task in done) == sum(task.result[0] for task in done) == 600
    assert sum(task.result[1] for task in done) == sum(len(row.value or b"") for golden in goldens for row in golden.rows)
    assert all(task.record_bytes >= task.result[1] and task.seconds > 0 for task in done)
    assert {task.host for task in done} == {socket.gethostname()}
    ranges = sorted((split.partition, split.start, split.stop) for task in done for split in task.splits)
    assert ranges == [(partition, start, start + 50) for partition in range(3) for start in range(0, 200, 50)]


def test_a_function_over_nothing(spark: SparkSession) -> None:
    assert map_splits(spark, CLEAN_PATH, lengths(), subscribe="g-empty") == []
    (golden,) = named("g-plain-0")
    assert map_splits(spark, golden.directory, lengths(), start_timestamp=1 << 60) == []


def test_a_function_that_fails_fails_the_call(spark: SparkSession) -> None:
    def fails(batches: Batches) -> None:
        raise KeyError(next(batches).num_rows)

    with pytest.raises(Exception, match="KeyError: 200") as caught:
        map_splits(spark, named("g-plain-0")[0].directory, fails, taskSlots=1, maxRecordsPerPartition=200)
    assert not isinstance(caught.value, PythonException) or "KeyError" in str(caught.value)


def test_a_transform_makes_other_rows(spark: SparkSession) -> None:
    """One row a task: partial counts by partition."""

    def counted(batches: Batches) -> Iterator[pa.RecordBatch]:
        counts: Counter[int] = Counter()
        for batch in batches:
            counts.update(batch.column("partition").to_pylist())
        yield pa.RecordBatch.from_pydict({"partition": pa.array(counts, pa.int32()), "records": pa.array(counts.values(), pa.int64())})

    frame = scan(
        spark,
        CLEAN_PATH,
        subscribe="g-plain",
        columns=["partition"],
        maxRecordsPerPartition=60,
        transform=counted,
        schema="partition int, records long",
    )
    rows: dict[Any, Any] = {row["partition"]: row["sum(records)"] for row in frame.groupBy("partition").sum("records").collect()}
    assert rows == {0: 200, 1: 200, 2: 200}
    assert frame.count() == 12


def test_a_transform_comes_with_its_schema(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="option transform: and schema belong together"):
        scan(spark, CLEAN_PATH, subscribe="g-plain", schema="partition int")
