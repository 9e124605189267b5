"""The directories that real brokers wrote, beside what a real consumer and the broker itself said of them.

Every expected value comes from ``tests/data/expected``: nothing here was made by the library under test.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

DATA = Path(__file__).resolve().parents[1] / "data"
CLEAN = DATA / "kafka-4.3.0" / "clean"
CLEAN_LOG_DIRS = (CLEAN / "log-dir-1", CLEAN / "log-dir-2")
OLD = DATA / "kafka-2.8.2"
OLD_LOG_DIRS = (OLD / "broker-1", OLD / "broker-2", OLD / "broker-3")

_TIMESTAMP_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}
Level: TypeAlias = Literal["read_uncommitted", "read_committed"]
LEVELS: dict[Level, str] = {"read_uncommitted": "uncommitted", "read_committed": "committed"}


class Row(NamedTuple):
    """What a consumer sees of one record."""

    offset: int
    timestamp: int
    timestamp_type: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordLike(Protocol):
    """The fields of ``offsetlog.Record`` that a consumer sees."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


class TimeQuery(NamedTuple):
    """One look-up by time and the broker's answer: (offset, timestamp, leader epoch) or nothing."""

    when: int
    isolation_level: Level
    answer: tuple[int, int, int | None] | None


class Golden(NamedTuple):
    """One partition directory of a real broker."""

    expected: Path
    directory: Path

    @property
    def name(self) -> str:
        """``topic-partition``."""
        return self.directory.name

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.name.rpartition("-")[0]

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return int(self.name.rpartition("-")[2])

    @property
    def id(self) -> str:
        """For the names of tests: short, and different for each replica."""
        name = self.name if len(self.name) < 40 else f"{self.name[:24]}..."
        return f"{self.directory.parent.name}/{name}"

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every record, as a ``read_uncommitted`` consumer saw it."""
        return _records(self.expected, self.name)[0]

    @property
    def committed(self) -> tuple[Row, ...]:
        """The records that a ``read_committed`` consumer saw."""
        return _records(self.expected, self.name)[1]

    @property
    def start(self) -> int:
        """Beginning offset."""
        return int(_lookups(self.expected)[self.name]["beginningOffset"])

    @property
    def end(self) -> int:
        """End offset."""
        return int(_lookups(self.expected)[self.name]["endOffset"])

    @property
    def last_stable_offset(self) -> int:
        """Last stable offset."""
        return int(_lookups(self.expected)[self.name]["lastStableOffset"])

    @property
    def leader_epoch(self) -> int | None:
        """The epoch that the broker gave with the end offset."""
        epoch: int | None = _lookups(self.expected)[self.name]["listOffsets"]["latest"]["leaderEpoch"]
        return epoch

    @property
    def counts(self) -> tuple[int, int]:
        """How many records there are, and how many are committed, as counted while they were read."""
        partition = _lookups(self.expected)[self.name]
        return partition["records"], partition["committedRecords"]

    @property
    def time_queries(self) -> tuple[TimeQuery, ...]:
        """Look-ups by time with the broker's answers.

        A segment that the cleaner emptied counts for a broker as holding timestamps up to its file's modification time, which
        no copy keeps: those answers (``lookups-exceptions.json``) are replaced by the plain rule that all others follow.
        """
        return _time_queries(self.expected, self.name)

    def copy(self, into: Path, *, checkpoints: bool = True) -> Path:
        """Copy the directory, with the checkpoints of its log dir unless told otherwise; return the partition's new place."""
        into.mkdir(parents=True, exist_ok=True)
        to = into / self.name
        to.mkdir()
        for file in sorted(self.directory.iterdir()):
            shutil.copyfile(file, to / file.name)
        if checkpoints:
            for file in self.directory.parent.glob("*-checkpoint"):
                shutil.copyfile(file, into / file.name)
        return to


def row(record: RecordLike) -> Row:
    """What a consumer sees of `record`."""
    return Row(
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.leader_epoch,
        record.key,
        record.value,
        record.headers,
    )


def rows(records: Iterable[RecordLike]) -> tuple[Row, ...]:
    """What a consumer sees of `records`."""
    return tuple(map(row, records))


def partitions_of(log_dirs: Iterable[Path], expected: str) -> list[Golden]:
    """All partition directories below these log dirs."""
    found = [directory for log_dir in log_dirs for directory in sorted(log_dir.iterdir()) if directory.is_dir()]
    return [Golden(DATA / "expected" / expected, directory) for directory in found]


CLEAN_PARTITIONS = partitions_of(CLEAN_LOG_DIRS, "kafka-4.3.0-clean")
OLD_PARTITIONS = partitions_of(OLD_LOG_DIRS, "kafka-2.8.2")
PARTITIONS = CLEAN_PARTITIONS + OLD_PARTITIONS


def named(*names: str) -> list[Golden]:
    """The partitions with these names; of replicas the first."""
    first = {golden.name: golden for golden in reversed(PARTITIONS)}
    return [first[name] for name in names]


def expected_names(expected: str) -> set[str]:
    """Every partition that the broker answered for."""
    return set(_lookups(DATA / "expected" / expected))


@functools.cache
def _lookups(expected: Path) -> dict[str, Any]:
    lookups: dict[str, Any] = json.loads((expected / "lookups.json").read_text())
    return lookups


@functools.cache
def _exceptions(expected: Path) -> dict[str, Any]:
    exceptions: dict[str, Any] = json.loads((expected / "lookups-exceptions.json").read_text())
    return exceptions


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@functools.cache
def _records(expected: Path, name: str) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    every: list[Row] = []
    committed: list[Row] = []
    with gzip.open(expected / f"{name}.jsonl.gz", "rt") as lines:
        for line in lines:
            fields = json.loads(line)
            seen = Row(
                fields["offset"],
                fields["timestamp"],
                _TIMESTAMP_TYPES[fields["timestampType"]],
                -1 if fields["leaderEpoch"] is None else fields["leaderEpoch"],
                _decoded(fields["key"]),
                _decoded(fields["value"]),
                tuple((key, _decoded(value)) for key, value in fields["headers"]),
            )
            every.append(seen)
            if fields["committed"]:
                committed.append(seen)
    return tuple(every), tuple(committed)


def _first_at_or_after(rows: Iterable[Row], when: int) -> tuple[int, int, int | None] | None:
    for seen in rows:
        if seen.timestamp >= when:
            return seen.offset, seen.timestamp, None if seen.leader_epoch < 0 else seen.leader_epoch
    return None


@functools.cache
def _time_queries(expected: Path, name: str) -> tuple[TimeQuery, ...]:
    exceptions = _exceptions(expected).get(name, {})
    queries = []
    for query in _lookups(expected)[name]["offsetsForTimes"]:
        when = query["query"]
        for level, short in LEVELS.items():
            found = query[short]
            answer = None if found is None else (found["offset"], found["timestamp"], found["leaderEpoch"])
            if when in exceptions.get(short, ()):
                # No control records in these logs, and nothing aborted: the records alone give the rule's answer.
                answer = _first_at_or_after(_records(expected, name)[0], when)
            queries.append(TimeQuery(when, level, answer))
    return tuple(queries)
