"""Reports to the driver what a scan read in the workers, while it runs and when it is done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.accumulators import AccumulatorParam

from offsetlog import Hole, Split
from offsetlog._text import counted
from offsetlog.spark.refusal import refuse

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

__all__ = ["PartitionRead", "ReadReport", "SplitRead", "by_partition"]

logger = logging.getLogger("offsetlog")

# How often something is logged of long work that nobody watches.
TELL_SECONDS = 10.0


class SplitRead(NamedTuple):
    """What a task read of one range of offsets."""

    split: Split
    """The range."""
    records: int
    """Records that were given on."""
    record_bytes: int
    """Bytes of the columns that were given on."""
    batches: int
    """Record batches of the log that were looked into."""
    batches_skipped: int
    """Record batches that were stepped over by their header: outside the range, too old, of an aborted transaction."""
    log_bytes: int
    """Bytes of ``.log`` files that were passed."""
    holes: tuple[Hole, ...]
    """What could not be read, with ``onCorrupt`` other than ``raise``; 10,000 at most."""


class PartitionRead(NamedTuple):
    """What was read of one partition. The sums of its :class:`SplitRead`."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    splits: int
    """Ranges of offsets."""
    records: int
    """As of :class:`SplitRead`, here and below."""
    record_bytes: int
    """Bytes of the columns that were given on."""
    batches: int
    """Record batches that were looked into."""
    batches_skipped: int
    """Record batches that were stepped over."""
    log_bytes: int
    """Bytes of ``.log`` files that were passed."""
    holes: tuple[Hole, ...]
    """What could not be read."""


def by_partition(reads: Iterable[SplitRead]) -> tuple[PartitionRead, ...]:
    """Return the sums of each partition, in order."""
    summed: dict[tuple[str, int], PartitionRead] = {}
    for read in reads:
        key = read.split.topic, read.split.partition
        before = summed.get(key, PartitionRead(*key, 0, 0, 0, 0, 0, 0, ()))
        summed[key] = PartitionRead(
            *key,
            before.splits + 1,
            before.records + read.records,
            before.record_bytes + read.record_bytes,
            before.batches + read.batches,
            before.batches_skipped + read.batches_skipped,
            before.log_bytes + read.log_bytes,
            before.holes + read.holes,
        )
    return tuple(summed[key] for key in sorted(summed))


class ReadReport:
    """What the workers read of a :func:`scan`, for one that was given this as ``report``.

    It grows when a task ends. A task that is run again, by another action on the frame or because an attempt failed, takes its own
    place; one that an action did not need, as under ``limit``, is missing.

    Parameters
    ----------
    progress
        Called on another thread with the tasks that are done and those that are planned, whenever one ends. Without it a line is
        logged every ten seconds.

    Examples
    --------
    >>> from offsetlog.spark import ReadReport, scan
    >>> report = ReadReport()
    >>> scan(spark, "tests/data/kafka-4.3.0/clean/log-dir-1", subscribe="g-plain", report=report).count()
    262
    >>> [(each.topic, each.partition, each.records) for each in report.partitions], report.tasks_done == report.tasks
    ([('g-plain', 0, 200), ('g-plain', 2, 62)], True)
    """

    def __init__(self, progress: Callable[[int, int], None] | None = None) -> None:
        self._progress = progress
        self._tasks: int | None = None
        self._done: dict[int, tuple[SplitRead, ...]] = {}
        self._lock = threading.Lock()
        self._spoken = time.monotonic()

    @property
    def tasks(self) -> int:
        """Tasks that were planned."""
        return self._tasks or 0

    @property
    def tasks_done(self) -> int:
        """Tasks that have ended at least once."""
        return len(self._done)

    @property
    def splits(self) -> tuple[SplitRead, ...]:
        """What was read of each range of offsets by the tasks that ended, in the order of the tasks."""
        with self._lock:
            return tuple(read for task in sorted(self._done) for read in self._done[task])

    @property
    def partitions(self) -> tuple[PartitionRead, ...]:
        """The same by partition."""
        return by_partition(self.splits)

    @property
    def records(self) -> int:
        """Records of all partitions."""
        return sum(each.records for each in self.partitions)

    @property
    def holes(self) -> tuple[Hole, ...]:
        """What could not be read of any partition, with ``onCorrupt`` other than ``raise``."""
        return tuple(hole for each in self.partitions for hole in each.holes)

    def __repr__(self) -> str:
        read = f"{counted(self.records, 'record')}, {counted(len(self.holes), 'hole')}"
        return f"ReadReport({self.tasks_done} of {counted(self.tasks, 'task')}, {read})"

    def _of(self, spark: SparkSession, tasks: int) -> Accumulator[dict[int, tuple[SplitRead, ...]]]:
        """Return where the tasks of a frame tell what they read."""
        if self._tasks is not None:
            refuse("report", "", "is that of another scan: a new one for each")
        try:
            context = spark.sparkContext
        except Exception as error:  # noqa: BLE001  # Spark Connect has none, and says so with varying classes
            refuse("report", "", f"needs a classic session, not Spark Connect ({type(error).__name__})")
        self._tasks = tasks
        return context.accumulator(_Told(self), _ByTask())

    def _tell(self, more: dict[int, tuple[SplitRead, ...]]) -> None:
        with self._lock:
            self._done.update(more)
        done, tasks = self.tasks_done, self.tasks
        if self._progress is not None:
            try:
                self._progress(done, tasks)
            except Exception:
                # Raised here it would end Spark's own thread.
                logger.exception("the progress of a scan could not be told")
                self._progress = None
        elif time.monotonic() - self._spoken >= TELL_SECONDS:
            self._spoken = time.monotonic()
            logger.info("scan: %d of %s done", done, counted(tasks, "task"))
        if done == tasks:
            for each in self.partitions:
                logger.info(
                    "%s-%d: %s of %s read, %s skipped, %s, %s",
                    each.topic,
                    each.partition,
                    counted(each.records, "record"),
                    counted(each.batches, "batch"),
                    counted(each.batches_skipped, "batch"),
                    counted(each.log_bytes, "byte"),
                    counted(len(each.holes), "hole"),
                )


class _Told(dict[int, tuple[SplitRead, ...]]):
    """The accumulator's value on the driver."""

    def __init__(self, report: ReadReport) -> None:
        super().__init__()
        self.report = report


class _ByTask(AccumulatorParam[dict[int, tuple[SplitRead, ...]]]):
    """By the number of the task, so that nothing is counted twice."""

    def zero(self, value: Any) -> dict[int, tuple[SplitRead, ...]]:  # noqa: ANN401, ARG002  # as the base class has it
        return {}

    def addInPlace(  # noqa: N802  # PySpark's name
        self, value1: dict[int, tuple[SplitRead, ...]], value2: dict[int, tuple[SplitRead, ...]]
    ) -> dict[int, tuple[SplitRead, ...]]:
        if isinstance(value1, _Told):
            value1.report._tell(value2)  # noqa: SLF001  # same module
        else:
            value1.update(value2)
        return value1
