"""Spark's micro-batch engine as far as a source sees it: which questions it asks, in which order, and what it keeps of the answers.

Written from what Spark 4.0 and 4.3 were seen to ask. A reader is made anew from the options at each start, and again for the tasks;
offsets cross as texts of JSON. It dies wherever it is told to: what outlives it is a :class:`Checkpoint` and a sink that remembers
the numbers of its micro-batches.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition

from offsetlog import Log, WritableLog
from offsetlog.spark.stream import StreamReader
from offsetlog.spark.stream_options import stream_settings_from

try:
    from offsetlog.spark.admission import AdmissionStreamReader
except ImportError:  # PySpark before 4.2
    AdmissionStreamReader = None  # type: ignore[assignment,misc]

KINDS = ["told", *(["asks"] if AdmissionStreamReader is not None else [])]
"""Both protocols, where the installed PySpark has both: «told» is that of 4.0 and 4.1, in which the reader itself remembers."""

Records = dict[tuple[str, int], list[int]]


class Crash(Exception):  # noqa: N818  # it is none
    """The driver is gone."""


class Checkpoint:
    """The two logs of a checkpoint, and the sink."""

    def __init__(self) -> None:
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[tuple[str, int, int]]] = {}

    def records(self) -> Records:
        """What the sink holds, by partition, in order."""
        found: Records = {}
        for rows in self.sink.values():
            for topic, partition, offset in rows:
                found.setdefault((topic, partition), []).append(offset)
        return {partition: sorted(offsets) for partition, offsets in found.items()}

    def sizes(self) -> list[int]:
        """Rows of each micro-batch."""
        return [len(self.sink[number]) for number in sorted(self.sink)]


class Engine:
    """One run of a query, from its start to its end."""

    def __init__(  # noqa: PLR0913  # one parameter a choice
        self,
        options: Mapping[str, str],
        checkpoint: Checkpoint,
        *,
        kind: str,
        trigger: str = "continuous",
        point: Callable[[str], None] = lambda _: None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._trigger = trigger
        self._point = point
        settings = stream_settings_from({"columns": "topic,partition,offset", **options})
        made: Any = StreamReader if kind == "told" else AdmissionStreamReader
        self._reader: Any = made(settings, (), clock)
        self._tasks: Any = pickle.loads(pickle.dumps(made(settings)))
        self._told = kind == "told"
        self._all: str | None = None
        if checkpoint.offsets and self._told:
            # The engine's word for «you have been here before»; later ones say nothing.
            self._partitions(checkpoint.offsets[-1], checkpoint.offsets[-1])
        if trigger == "available now":
            if self._told:
                self._all = json.dumps(self._reader.latestOffset())
            else:
                self._reader.prepareForTriggerAvailableNow()
        if len(checkpoint.offsets) > checkpoint.commits:
            self._run(checkpoint.commits)

    def trigger(self) -> bool:
        """Ask once for more; run a micro-batch if there is."""
        checkpoint = self._checkpoint
        start = checkpoint.offsets[-1] if checkpoint.offsets else None
        self._point("asked")
        end = self._latest(start)
        if end == start:
            return False
        self._point("answered")
        checkpoint.offsets.append(end)
        self._point("written")
        self._run(len(checkpoint.offsets) - 1)
        return True

    def drain(self) -> None:
        """Trigger until there is nothing more."""
        while self.trigger():
            assert len(self._checkpoint.offsets) < 10_000

    def progress(self) -> dict[str, Any]:
        """The part of a query's progress that offsets are in."""
        latest = None if self._told else self._reader.reportLatestOffset()
        return {"sources": [{"endOffset": json.loads(self._checkpoint.offsets[-1]), "latestOffset": latest}]}

    def _latest(self, start: str | None) -> str:
        if self._all is not None:
            return self._all
        if self._told:
            return json.dumps(self._reader.latestOffset())
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        begin = json.dumps(self._reader.initialOffset()) if start is None else start
        limit = ReadAllAvailable() if self._trigger == "once" else self._reader.getDefaultReadLimit()
        return json.dumps(self._reader.latestOffset(json.loads(begin), limit))

    def _run(self, number: int) -> None:
        checkpoint = self._checkpoint
        start = checkpoint.offsets[number - 1] if number else json.dumps(self._reader.initialOffset())
        tasks = self._partitions(start, checkpoint.offsets[number])
        self._point("planned")
        rows = []
        for task in tasks:
            for batch in self._tasks.read(task):
                rows += [(row["topic"], row["partition"], row["offset"]) for row in batch.to_pylist()]
            self._point("read")
        checkpoint.sink[number] = rows
        self._point("in the sink")
        checkpoint.commits = number + 1
        self._point("committed")

    def _partitions(self, start: str, end: str) -> list[InputPartition]:
        made: list[InputPartition] = self._reader.partitions(json.loads(start), json.loads(end))
        assert isinstance(made, list)
        return [pickle.loads(pickle.dumps(task)) for task in made]


def add(log: WritableLog, count: int) -> None:
    """Append so many records in one batch; each value is its record's offset."""
    if count:
        log.append_records([b"%d" % (log.log_end_offset + number) for number in range(count)])


def append(folder: Path, name: str, count: int) -> None:
    """Append so many records to a partition, and make it if it is not there."""
    with Log.open(folder / name, "a") as log:
        add(log, count)


def held(folder: Path) -> Records:
    """What the partitions of a folder hold now, by the engine's iterator."""
    found: Records = {}
    for path in folder.iterdir():
        with Log.open(path) as log:
            found[log.topic, log.partition] = [record.offset for record in log.scan()]
    return {partition: offsets for partition, offsets in found.items() if offsets}
