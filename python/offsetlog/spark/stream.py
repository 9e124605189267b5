"""The reader of a stream: PySpark's class over :mod:`offsetlog.spark.stream_planning`.

Where things run: a reader lives in one Python process of the driver for as long as its query runs, and answers there what the next
micro-batch ends at and which tasks it has; a copy of it, made again from the options, reads in Python workers of the executors.
The checkpoint is Spark's: each micro-batch is written there as its end offsets before it runs, and after a crash the last one is
run again with the same offsets.

PySpark 4.2 and later tell a reader where a micro-batch starts, and whether it is bound by limits (:mod:`offsetlog.spark.admission`).
Before, there is only a question without arguments: the reader here remembers what it answered last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from offsetlog import TopicPartition
from offsetlog._text import counted
from offsetlog.spark.filters import Pushed
from offsetlog.spark.first_line import text_first, text_first_of_each
from offsetlog.spark.planning import tasks
from offsetlog.spark.stream_offsets import (
    Behind,
    Known,
    OffsetJson,
    Offsets,
    TopicIds,
    from_json,
    rate_limited,
    to_json,
    waiting,
    without_begins,
)
from offsetlog.spark.stream_options import StreamSettings
from offsetlog.spark.stream_planning import Follower
from offsetlog.spark.tasks import input_partitions, read_task

if TYPE_CHECKING:
    import pyarrow

__all__ = ["StreamReader"]

logger = logging.getLogger("offsetlog")


class StreamReader(DataSourceStreamReader):
    """One query's reading. Pickles as plain values: what it remembers is of its process."""

    def __init__(self, settings: StreamSettings, not_null: Sequence[str] = (), clock: Callable[[], int] | None = None) -> None:
        self._settings = settings
        self._not_null = tuple(not_null)
        self._clock = clock
        self._follower: Follower | None = None
        self._initial: Offsets | None = None
        self._standing: frozenset[TopicPartition] | None = None
        self._begins: Offsets = {}
        self._seen: Offsets | None = None
        self._last: Offsets | None = None
        self._last_json: OffsetJson = {}
        self._given: Offsets | None = None
        self._latest: Offsets | None = None
        self._last_trigger_ms = 0

    @text_first
    def initialOffset(self) -> OffsetJson:  # noqa: N802  # PySpark's name
        """Return where a new query starts. Called on the driver, once; after a crash in the first micro-batch, once more.

        Raises
        ------
        ConfigError
            A topic is not there; offsets or times do not name exactly the partitions that are read; no record is at or after a
            starting time.
        """
        return self._json(self._start())

    @text_first
    def latestOffset(self) -> OffsetJson:  # type: ignore[override]  # noqa: N802  # PySpark's name, and its form before 4.2
        """Return where the next micro-batch ends. Called on the driver for each trigger, by PySpark 4.0 and 4.1.

        Raises
        ------
        ConfigError
            A topic is not there.
        """
        start = self._start() if self._last is None else self._last
        self._last = self._limited(start, Known.of(self._last_json))
        found = self._json(self._last, self._last_json, start)
        # That the first micro-batch is over is no news.
        if found != without_begins(self._last_json):
            self._last_json = found
        return self._last_json

    @text_first
    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch. Called on the driver, once for each; the ends in `end` are exclusive.

        PySpark before 4.2 also calls this with the last offsets of the checkpoint, twice the same, when a query resumes.

        Raises
        ------
        OffsetOutOfRangeError, FileNotFoundError
            Records that were not read yet are gone, another leader wrote in place of what was read, or a topic was recreated, and
            ``failOnDataLoss`` is on.
        """
        begin, stop = from_json(start), from_json(end)
        if start == end:
            if self._initial is None:
                self._seen = self._last = stop
                self._last_json = end
            return []
        known = Known.of(start)
        if self._is_first_again(begin, stop):
            begin = self._initial = self._began(end)
            self._standing, self._last, self._last_json = None, stop, end
            # What Spark gives for a start is of now: topics that were made anew since are other ones. Epochs are those of the end.
            known = Known.of(end)._replace(epochs={}, gone={})
        reading = self._settings.reading
        found = list(self._following().ranges(begin, stop, known, Known.of(end)))
        made = tasks(found, reading)
        self._tell(stop, sum(span.stop - span.start for span in found), len(made))
        return input_partitions(made)

    @text_first_of_each
    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Return the record batches of one task. Called on an executor, once for each task and retry."""
        reading = self._settings.reading
        return read_task(partition, reading, Pushed(keys=reading.keys), self._not_null)

    def commit(self, end: OffsetJson) -> None:
        """Do nothing: Spark's checkpoint records what was read. Called on the driver when a micro-batch is done."""

    def _following(self) -> Follower:
        if self._follower is None:
            self._follower = Follower(self._settings.reading)
            for warning in (*self._settings.reading.warnings, *self._own_warnings()):
                logger.warning("%s", warning)
        return self._follower

    def _json(self, offsets: Offsets, before: OffsetJson | None = None, begin: Offsets | None = None) -> OffsetJson:
        """Return offsets with topic ids and leader epochs; of partitions that stay where they were `before`, those of then.

        The end of the first micro-batch has also where that one begins: after a crash, nothing else tells. And of partitions that went
        away since `begin`, or before, it has where they were read up to: read from their start, records would come twice.
        """
        begins, self._begins = self._begins, {}
        following, start, known = self._following(), from_json(before or {}), Known.of(before or {})
        stay = {partition.topic for partition, offset in offsets.items() if start.get(partition) == offset}
        away = {**known.gone, **start, **(begin or {})}
        away = {partition: offset for partition, offset in away.items() if partition not in offsets}
        # Where the topic was made anew meanwhile, they will not come back.
        away = {each: offset for each, offset in away.items() if _is_same(each.topic, known.ids, following.ids)}
        stay |= {partition.topic for partition in away}
        ids = {topic: known_id for topic, known_id in known.ids.items() if topic in stay}
        epochs = {each: epoch for each, epoch in known.epochs.items() if each in away}
        return to_json(offsets, {**ids, **following.ids}, {**epochs, **following.epochs(offsets, start, known)}, begins, away)

    def _own_warnings(self) -> list[str]:
        """Return what this PySpark cannot do with the options."""
        if self._settings.max_offsets is None:
            return []
        return [
            "option maxOffsetsPerTrigger: before PySpark 4.2, Trigger.AvailableNow and Trigger.Once end after one such micro-batch"
        ]

    def _start(self) -> Offsets:
        """Return where the query starts, or started."""
        if self._initial is None:
            if self._seen is None:
                self._initial, self._standing = self._following().initial()
            else:
                self._initial = self._began(self._last_json)
        return self._initial

    def _began(self, end: OffsetJson) -> Offsets:
        """Return where the first micro-batch began that ends at `end`, which another process gave."""
        # Older versions did not write it.
        return Known.of(end).begins or self._following().initial_again(from_json(end))

    def _is_first_again(self, begin: Offsets, stop: Offsets) -> bool:
        """Whether this is the first micro-batch once more, whose end another process gave: where it began is to be found out again."""
        return self._seen is None and begin == self._initial and stop != self._given

    def _now(self, start: Offsets, known: Known) -> Offsets:
        """Return where reading ends for now."""
        latest = self._there(start, known)
        if self._standing is not None and self._initial is not None:
            # The first micro-batch: of partitions that start at the latest it reads nothing, and leaves new ones to the next one, so
            # that its end in the checkpoint says where the query started, also to older versions (see Follower.initial_again).
            begun = self._initial
            latest = {
                partition: begun[partition] if partition in self._standing else offset
                for partition, offset in latest.items()
                if partition in begun
            }
            self._standing = None
            self._begins = {partition: begun[partition] for partition in latest}
        return latest

    def _there(self, start: Offsets, known: Known) -> Offsets:
        return self._following().latest(start, known)

    def _limited(self, start: Offsets, known: Known, *, least: bool = True, most: bool = True) -> Offsets:
        """Return where the micro-batch that begins at `start` ends.

        Parameters
        ----------
        start
            Where it begins.
        known
            What the checkpoint has beside that.
        least, most
            Whether ``minOffsetsPerTrigger`` and ``maxOffsetsPerTrigger`` hold.
        """
        self._given = self._within_limits(start, known, least=least, most=most)
        return self._given

    def _within_limits(self, start: Offsets, known: Known, *, least: bool, most: bool) -> Offsets:
        self._latest = latest = self._now(start, known)
        settings = self._settings
        new = latest.keys() - start.keys()
        again = self._following().again(new, known)
        if least and settings.min_offsets is not None and self._waits(settings.min_offsets, {**start, **again}, latest):
            return start
        if not most or settings.max_offsets is None:
            return latest
        begin = {**start, **self._following().earliest(new - again.keys()), **again} if new else start
        # A partition deleted since it was listed has no start: it stays as it is, and planning reports that it is gone.
        limited = rate_limited(settings.max_offsets, begin, {one: end for one, end in latest.items() if one in begin})
        return {**latest, **limited}

    def _waits(self, least: int, start: Offsets, latest: Offsets) -> bool:
        """Whether a micro-batch is put off until more waits."""
        now = int(time.time() * 1000) if self._clock is None else self._clock()
        if now - self._last_trigger_ms < self._settings.max_delay_ms and waiting(start, latest) < least:
            return True
        self._last_trigger_ms = now
        return False

    def _tell(self, end: Offsets, count: int, task_count: int) -> None:
        behind = Behind.of(end, self._latest or end)
        logger.info(
            "micro-batch of %s in %s; behind the latest: %d at least, %d at most, %.1f on average",
            counted(count, "offset"),
            counted(task_count, "task"),
            *behind,
        )


def _is_same(topic: str, then: TopicIds, now: TopicIds) -> bool:
    """Whether both ids are of one topic, as far as they are known."""
    return topic not in then or topic not in now or then[topic] == now[topic]
