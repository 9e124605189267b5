"""Streams through a real Spark: triggers, checkpoints, a writer that goes on, what is refused and what is lost.

Which micro-batches there are is the subject of ``test_spark_stream.py``, which plays the engine; here it is seen that Spark is that engine.
"""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from stream_engine import KINDS, add, append, held

from offsetlog import Log
from offsetlog.spark import offsets_behind
from offsetlog.spark.stream_offsets import Behind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = "topic,partition,offset"
ADMISSION = "asks" in KINDS
Rows = list[tuple[str, int, int]]


class Query:
    """One query with its checkpoint and what its sink holds; started as often as a test wants."""

    def __init__(self, spark: SparkSession, folder: Path, **options: object) -> None:
        self._spark = spark
        self._folder = folder
        self._options = {"subscribePattern": "^t", "columns": COLUMNS, "startingOffsets": "earliest", **options}
        self.batches: dict[int, Rows] = {}

    def start(self, **trigger: Any) -> StreamingQuery:  # noqa: ANN401  # what trigger() takes
        frame = self._spark.readStream.format("offsetlog").options(**self._options).load(str(self._folder / "logs"))  # type: ignore[arg-type]
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self._folder / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, **trigger: Any) -> StreamingQuery:  # noqa: ANN401  # what trigger() takes
        """Start, and wait for the end."""
        query = self.start(**trigger)
        assert query.awaitTermination(240)
        return query

    def _keep(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = [(row["topic"], row["partition"], row["offset"]) for row in frame.toArrow().to_pylist()]

    def sizes(self) -> list[int]:
        return [len(self.batches[number]) for number in sorted(self.batches)]

    def records(self) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in sorted(row for rows in self.batches.values() for row in rows):
            found.setdefault((topic, partition), []).append(offset)
        return found

    def checkpoint(self) -> list[Any]:
        """The offsets of each micro-batch, out of Spark's own files."""
        files = sorted(
            (path for path in (self._folder / "checkpoint" / "offsets").iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        return [json.loads(path.read_text().splitlines()[2]) for path in files]


def test_available_now_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "logs", "t-0", 50)
    append(tmp_path / "logs", "t-1", 50)
    query = Query(spark, tmp_path, maxOffsetsPerTrigger=30)
    done = query.run(availableNow=True)
    if ADMISSION:
        assert query.sizes() == [30, 30, 30, 10]
        behind = [offsets_behind(progress) for progress in done.recentProgress]
        assert [found and found.max_offsets_behind_latest for found in behind] == [35, 20, 5, 0]
    else:
        # No source is told of the trigger there: one micro-batch a run.
        assert query.sizes() == [30]
        for _ in range(3):
            query.run(availableNow=True)
    assert query.records() == held(tmp_path / "logs")
    assert query.checkpoint()[-1] == {"t": {"0": 50, "1": 50, "epochs": {"0": 0, "1": 0}}}
    assert query.checkpoint()[0] == {"t": {"0": 15, "1": 15, "epochs": {"0": 0, "1": 0}, "begins": {"0": 0, "1": 0}}}
    append(tmp_path / "logs", "t-1", 3)
    append(tmp_path / "logs", "t-2", 2)
    query.run(availableNow=True)
    assert query.sizes()[4:] == [5]
    assert query.records() == held(tmp_path / "logs")


def test_a_query_that_starts_at_the_latest_sees_what_comes_then(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "logs", "t-0", 5)
    query = Query(spark, tmp_path, startingOffsets="latest")
    query.run(availableNow=True)
    assert query.checkpoint() == [{"t": {"0": 5, "epochs": {"0": 0}, "begins": {"0": 5}}}]
    append(tmp_path / "logs", "t-0", 2)
    query.run(once=True)
    assert query.records() == {("t", 0): [5, 6]}


def test_a_writer_that_goes_on_while_the_stream_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Two queries beside it, of which one has the file sink; a partition and a topic appear."""
    logs = [Log.open(tmp_path / "logs" / "t-0", "a")]
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for log in logs:
                log.append_records([b"%d" % number for number in range(7)])
            time.sleep(0.1)

    writer = threading.Thread(target=write)
    query = Query(spark, tmp_path, maxOffsetsPerTrigger=2000, maxRecordsPerPartition=700)
    running = query.start(processingTime="100 milliseconds")
    frame = spark.readStream.format("offsetlog").options(subscribePattern="^t", columns=COLUMNS, startingOffsets="earliest")
    sink = frame.load(str(tmp_path / "logs")).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "other"))
    files = sink.option("path", str(tmp_path / "files")).start()
    writer.start()
    try:
        wait_for(lambda: len(query.batches) >= 2)
        logs.append(Log.open(tmp_path / "logs" / "t-1", "a"))
        logs.append(Log.open(tmp_path / "logs" / "tt-0", "a"))
        wait_for(lambda: {("t", 1), ("tt", 0)} <= query.records().keys())
    finally:
        stop.set()
        writer.join()
        for log in logs:
            log.close()
    for each in (running, files):
        each.processAllAvailable()
        each.stop()
    assert query.records() == held(tmp_path / "logs")
    rows = spark.read.parquet(str(tmp_path / "files")).toArrow().to_pylist()
    assert sorted((row["topic"], row["partition"], row["offset"]) for row in rows) == sorted(
        row for batch in query.batches.values() for row in batch
    )
    assert pyarrow.parquet.read_schema(next((tmp_path / "files").glob("*.parquet"))).names == COLUMNS.split(",")


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_records_that_are_gone_end_the_query(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "logs", "t-0", 5)
    query = Query(spark, tmp_path)
    query.run(availableNow=True)
    append(tmp_path / "logs", "t-0", 5)
    with Log.open(tmp_path / "logs" / "t-0", "a") as log:
        log.delete_records_before(8)
    with pytest.raises(StreamingQueryException, match="t-0 starts at 8 now: offsets 5 to 7 are gone"):
        query.run(availableNow=True)
    lenient = Query(spark, tmp_path, failOnDataLoss="false")
    lenient.run(availableNow=True)
    assert lenient.records() == {("t", 0): [8, 9]}


def test_a_micro_batch_that_failed_is_read_again_with_the_same_offsets(spark: SparkSession, tmp_path: Path) -> None:
    """Its end is in the checkpoint: what was appended since belongs to the next one."""
    with Log.open(tmp_path / "logs" / "t-0", "a") as log:
        add(log, 5)
        # Where the log ends is read of its last segment.
        log.roll()
        add(log, 5)
    segment = tmp_path / "logs" / "t-0" / f"{0:020}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:70] + bytes([whole[70] ^ 1]) + whole[71:])
    query = Query(spark, tmp_path)
    with pytest.raises(StreamingQueryException, match=r"t-0/0{20}\.log"):
        query.run(availableNow=True)
    assert query.batches == {}
    assert query.checkpoint() == [{"t": {"0": 10, "epochs": {"0": 0}, "begins": {"0": 0}}}]
    segment.write_bytes(whole)
    append(tmp_path / "logs", "t-0", 3)
    for _ in range(2):
        # All that is there, also where one run comes to one micro-batch.
        query.run(availableNow=True)
    assert sorted(query.batches[0]) == [("t", 0, offset) for offset in range(10)]
    assert query.records() == held(tmp_path / "logs")


@pytest.mark.parametrize("start", [{"startingOffsets": "earliest"}, {"startingTimestamp": "2000"}], ids=str)
def test_a_first_micro_batch_that_is_run_again_begins_where_it_began(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: dict[str, str]
) -> None:
    """Spark keeps its end alone. What is deleted before it runs again is missed."""
    with Log.open(tmp_path / "logs" / "t-0", "a") as log:
        for number in range(10):
            log.append(b"x", timestamp=1000 * number)
    query, begin = Query(spark, tmp_path, **start), 2 if "startingTimestamp" in start else 0

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "the sink is full")

    with monkeypatch.context() as patched:
        patched.setattr(Query, "_keep", full)
        with pytest.raises(StreamingQueryException, match="the sink is full"):
            query.run(availableNow=True)
    assert query.checkpoint() == [{"t": {"0": 10, "epochs": {"0": 0}, "begins": {"0": begin}}}]
    with Log.open(tmp_path / "logs" / "t-0", "a") as log:
        log.append(b"x", timestamp=10_000)
        log.delete_records_before(6)
    with pytest.raises(StreamingQueryException, match=f"t-0 starts at 6 now: offsets {begin} to 5 are gone"):
        query.run(availableNow=True)
    lenient = Query(spark, tmp_path, **start, failOnDataLoss="false")
    for _ in range(2):
        # In PySpark 4.0 one run comes to the micro-batch that failed, and no further.
        lenient.run(availableNow=True)
    assert lenient.records() == {("t", 0): [6, 7, 8, 9, 10]}


def test_what_a_stream_refuses_fails_when_it_starts(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "logs", "t-0", 5)
    with pytest.raises(AnalysisException, match="did you mean 'maxOffsetsPerTrigger'"):
        Query(spark, tmp_path, maxOffsetPerTrigger=3).start()
    with pytest.raises((StreamingQueryException, AnalysisException), match="option endingOffsets: is for batch queries"):
        Query(spark, tmp_path, endingOffsets="latest").run(availableNow=True)
    with pytest.raises((StreamingQueryException, AnalysisException), match="option onCorrupt: stop is for batch queries"):
        Query(spark, tmp_path, onCorrupt="stop").run(availableNow=True)


def test_a_schema_given_by_the_user_chooses_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "logs", "t-0", 5)
    reader = spark.readStream.format("offsetlog").schema("offset long not null, value binary").option("startingOffsets", "earliest")
    frame = reader.option("subscribe", "t").load(str(tmp_path / "logs"))
    query = frame.writeStream.format("memory").queryName("chosen").trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    rows = spark.table("chosen").orderBy("offset").collect()
    assert [(row["offset"], bytes(row["value"])) for row in rows] == [(number, b"%d" % number) for number in range(5)]


def test_offsets_behind_as_each_pyspark_writes_them() -> None:
    """As JSON, as text of JSON, and as PySpark 4.0 makes text of a dict."""
    end, latest = {"t": {"0": 7, "1": 3}}, {"t": {"0": 10, "1": 3}}
    for form in (dict, json.dumps, str):
        source = {"endOffset": form(end), "latestOffset": form(latest)}
        assert offsets_behind({"sources": [source]}) == Behind(0, 3, 1.5)
    for nothing in (None, "null", "None"):
        assert offsets_behind({"sources": [{"endOffset": nothing, "latestOffset": nothing}]}) is None
