"""Spark reads a directory again and again while a program appends to it and keeps it up: segments go, others are compacted.

Each result is what some moment held, or an error that names what retention removed; with ``failOnDataLoss=false`` there is no error.
A record's offset says what its key and value must be, so that none can be invented, and none changed.
"""

from __future__ import annotations

import logging
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from offsetlog import LogDir, WritableLogDir
from spark_rows import load

MEMORY = Path("/dev/shm")  # noqa: S108  # where it exists
SECONDS = 10
"""After so long no further round of queries is begun."""
ROUNDS_MAX = 8
WAIT_SECONDS = 300
KEYS = 2000
STILL = 50
"""Keys of the first records of the compacted topic, of which there are no later ones."""
SMALL: dict[str, str | int] = {"internal.segment.bytes": 8192, "index.interval.bytes": 512, "file.delete.delay.ms": 30}
TOPICS: dict[str, dict[str, str | int]] = {
    "aged": {**SMALL, "retention.bytes": 60_000, "retention.ms": -1},
    "compacted": {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2"},
}
GONE = re.compile(r"offsets (\d+) to (\d+) of aged-0 are gone")


def key_of(offset: int) -> bytes:
    """The key of the record at `offset`, in either topic."""
    return b"still-%d" % offset if offset < STILL else b"key-%d" % (offset * 7919 % KEYS)


def value_of(topic: str, offset: int) -> bytes:
    return b"%s %d " % (topic.encode(), offset) + b"x" * (offset * 31 % 150)


class Writer(threading.Thread):
    """Appends to both topics until it is told to stop; can be told to rest."""

    def __init__(self, log_dir: WritableLogDir, seed: str) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.logs = {topic: log_dir.log(topic, 0) for topic in TOPICS}
        self.failure: Exception | None = None
        self._ended = threading.Event()
        self._pace = threading.Lock()

    def run(self) -> None:
        try:
            while not self._ended.wait(self._random.uniform(0.002, 0.01)):
                with self._pace:
                    self._append("aged", self._random.randint(1, 30))
                    self._append("compacted", self._random.randint(1, 8))
        except Exception as failure:  # noqa: BLE001  # the test raises it
            self.failure = failure

    def _append(self, topic: str, count: int) -> None:
        log = self.logs[topic]
        base = log.log_end_offset
        info = log.append_records([(key_of(offset), value_of(topic, offset)) for offset in range(base, base + count)])
        assert info.base_offset == base

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Nothing is appended."""
        with self._pace:
            yield

    def stop(self) -> None:
        self._ended.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def bounds(self, topic: str) -> tuple[int, int]:
        """First offset and end at this moment."""
        log = self.logs[topic]
        return log.log_start_offset, log.log_end_offset

    def wait_for_start(self, topic: str, offset: int) -> None:
        """Until records below `offset` are gone."""
        end = time.monotonic() + WAIT_SECONDS
        while self.bounds(topic)[0] < offset:
            assert time.monotonic() < end, f"{topic} still begins at {self.bounds(topic)[0]}"
            time.sleep(0.01)


class Reader:
    """Queries, and what each of them may answer."""

    def __init__(self, spark: SparkSession, log_dir: WritableLogDir, writer: Writer, seed: str) -> None:
        self._spark = spark
        self._log_dir = log_dir
        self._path = log_dir.paths[0]
        self._writer = writer
        self._random = random.Random(seed)
        self.seen = dict.fromkeys(("whole", "gone", "planned and gone", "left out", "compacted", "not written since"), 0)

    def _options(self, topic: str, *, strict: bool) -> dict[str, object]:
        return {
            "subscribe": topic,
            "columns": "offset,key,value",
            "failOnDataLoss": str(strict).lower(),
            "maxRecordsPerPartition": self._random.choice((100, 1000, 1 << 40)),
        }

    def _query(self, topic: str, *, strict: bool) -> list[int]:
        """Offsets of one query's records, each of which is right."""
        frame = load(self._spark, str(self._path), **self._options(topic, strict=strict))
        columns = frame.toArrow().to_pydict()
        return right(topic, list(zip(columns["offset"], columns["key"], columns["value"], strict=True)))

    def whole(self) -> None:
        """Nobody appends: nothing goes, so nothing may be missing."""
        with self._writer.resting():
            # What is due now still goes.
            self._log_dir.maintain()
            start, end = self._writer.bounds("aged")
            assert self._query("aged", strict=True) == list(range(start, end))
        self.seen["whole"] += 1

    def racing(self) -> None:
        """While records go: all that were there when the query was planned, or an error."""
        before = self._writer.bounds("aged")
        try:
            found = self._query("aged", strict=True)
        except PythonException as error:
            self._named(str(error), before[0])
            self.seen["gone"] += 1
        else:
            after = self._writer.bounds("aged")
            assert found == list(range(found[0], found[-1] + 1))
            assert before[0] <= found[0] <= after[0]
            assert before[1] <= found[-1] + 1 <= after[1]

    def _named(self, text: str, start: int) -> None:
        """The error names what is gone: what went since, and is not there any more."""
        match = GONE.search(text)
        assert match, text
        first, last = int(match[1]), int(match[2])
        assert start <= first <= last < self._writer.bounds("aged")[0], text

    def planned(self, *, strict: bool) -> None:
        """Planned, and read when the first of the planned segments are gone."""
        _, end = self._writer.bounds("aged")
        rdd = load(self._spark, str(self._path), **self._options("aged", strict=strict)).rdd
        assert rdd.getNumPartitions() > 0
        start, _ = self._writer.bounds("aged")
        self._writer.wait_for_start("aged", start + self._random.randint(1, 500))
        gone = self._writer.bounds("aged")[0]
        if strict:
            with pytest.raises(PythonException) as caught:
                rdd.collect()
            self._named(str(caught.value), 0)
            self.seen["planned and gone"] += 1
            return
        found = right("aged", [(row["offset"], bytes(row["key"]), bytes(row["value"])) for row in rdd.collect()])
        now = self._writer.bounds("aged")[0]
        assert not found or gone <= found[0]
        # What is there still is there in the answer.
        assert set(found) >= set(range(now, end))
        self.seen["left out"] += 1

    def compacted(self) -> None:
        """Of each key the last record that was there before the query began, or a later one was written since."""
        topic, strict = "compacted", self._random.random() < 0.5
        _, before = self._writer.bounds(topic)
        found = self._query(topic, strict=strict)
        _, after = self._writer.bounds(topic)
        since = {key_of(offset) for offset in range(before, after)}
        wanted = {offset for key, offset in {key_of(offset): offset for offset in range(before)}.items() if key not in since}
        assert found[-1] < after
        assert found[:STILL] == list(range(STILL))
        assert wanted <= set(found)
        self.seen["compacted"] += 1
        self.seen["not written since"] += len(wanted)


def right(topic: str, records: list[tuple[int, bytes, bytes]]) -> list[int]:
    """The records' offsets in order: none twice, and each with its own key and value."""
    offsets = sorted(offset for offset, _, _ in records)
    assert len(offsets) == len(set(offsets))
    wrong = [record for record in records if record[1:] != (key_of(record[0]), value_of(topic, record[0]))]
    assert not wrong
    return offsets


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is any: each of the many segments is synced when it is full."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="offsetlog-upkeep-", dir=MEMORY) as made:
        yield Path(made)


def test_spark_reads_beside_a_maintain_loop(spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    seed = os.environ.get("OFFSETLOG_SEED") or str(random.SystemRandom().randrange(10**9))
    print(f"OFFSETLOG_SEED={seed}")
    chosen = random.Random(seed)
    with caplog.at_level(logging.WARNING, logger="offsetlog"), LogDir.open(folder, "a", maintain_every=0.02) as log_dir:
        for topic, config in TOPICS.items():
            log_dir.create_topic(topic, config=config)
        writer = Writer(log_dir, seed)
        writer.start()
        try:
            writer.wait_for_start("aged", 1)
            reader = Reader(spark, log_dir, writer, seed)
            queries = (
                reader.whole,
                reader.racing,
                reader.racing,
                lambda: reader.planned(strict=True),
                lambda: reader.planned(strict=False),
                reader.compacted,
                reader.compacted,
            )
            end = time.monotonic() + SECONDS
            rounds = 0
            while not rounds or (time.monotonic() < end and rounds < ROUNDS_MAX):
                rounds += 1
                for query in chosen.sample(queries, len(queries)):
                    query()
                assert writer.failure is None
            compacted = writer.logs["compacted"]
            hung = time.monotonic() + WAIT_SECONDS
            while compacted.scan().count() >= writer.bounds("compacted")[1]:
                assert time.monotonic() < hung, "nothing was compacted"
                time.sleep(0.1)
        finally:
            writer.stop()
        assert writer.bounds("compacted")[0] == 0
        assert writer.logs["compacted"].scan().count() < writer.bounds("compacted")[1], "nothing was compacted"
    assert not [record.message for record in caplog.records if "maintain" in record.message or "upkeep" in record.message]
    print(rounds, "rounds", reader.seen)
    # Whether a query loses a race is a matter of luck; all else happens in every round.
    assert min(count for name, count in reader.seen.items() if name != "gone") >= rounds
