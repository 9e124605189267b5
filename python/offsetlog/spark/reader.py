"""The data source ``offsetlog`` for batch queries: PySpark's classes over :mod:`offsetlog.spark.planning` and ``offsetlog.Scan``.

Where things run: :class:`OffsetLogSource` is made and asked for its schema in a Python process of the driver, pickled, and asked for
its reader in a second one, which also plans; the reader is pickled once more and reads in Python workers of the executors. So source
and reader hold plain values only, and every process opens the files for itself.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from offsetlog import Log, OffsetOutOfRangeError, Scan, Split, open_cached
from offsetlog.errors import ConfigError, OffsetLogError
from offsetlog.spark.filters import Pushed, push
from offsetlog.spark.options import Settings, settings_from
from offsetlog.spark.planning import check_paths, plan
from offsetlog.spark.schema import checked_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# Spark turns batches into rows one by one and pays for each batch: 1 to 10 MB is where it is fastest.
SPARK_BATCH_BYTES = 2 << 20

__all__ = ["OffsetLogReader", "OffsetLogSource", "PushdownReader", "batches", "register"]

logger = logging.getLogger("offsetlog")

FORMAT = "offsetlog"


class OffsetLogSource(DataSource):
    """Reads the log dirs of Kafka brokers as Spark's Kafka source reads the brokers.

    Name: ``offsetlog``. Options: those of Spark's Kafka source with ``path`` in place of the brokers, and a few more;
    ``docs/spark.md`` lists them, :data:`offsetlog.spark.options.OPTIONS` holds them. An option that is not known fails, with the
    nearest name.

    Schema: ``key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int``; with
    ``includeHeaders`` also ``headers array<struct<key: string, value: binary>>``; others by ``columns`` or ``.schema(...)``.

    Examples
    --------
    >>> frame = (
    ...     spark.read.format("offsetlog")
    ...     .option("subscribe", "g-plain")
    ...     .option("columns", "topic,partition,offset")
    ...     .load("tests/data/kafka-4.3.0/clean/log-dir-1")
    ... )
    >>> frame.orderBy("partition", "offset").show(2)
    +-------+---------+------+
    |  topic|partition|offset|
    +-------+---------+------+
    |g-plain|        0|     0|
    |g-plain|        0|     1|
    +-------+---------+------+
    only showing top 2 rows
    """

    _warned = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format. Called on the driver, when the class is registered or found."""
        return FORMAT

    def schema(self) -> StructType:
        """Check the options and return the schema they give. Called on the driver, once for each ``load()`` without ``.schema()``.

        Raises
        ------
        ConfigError
            An option is unknown, missing or wrong. Spark wraps it in an ``AnalysisException``.
        OSError
            A path is not there.
        """
        return spark_schema(self._checked().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for this schema. Called on the driver, once for each query.

        Parameters
        ----------
        schema
            What :meth:`schema` gave, or what the user gave with ``.schema(...)``: a choice of the known columns in any order.

        Raises
        ------
        ConfigError
            As for :meth:`schema`; or the schema names an unknown column, or a column with another type.
        OSError
            A path is not there.
        """
        settings = self._checked()
        columns = checked_schema(schema)
        if settings.columns_named and columns != settings.columns:
            message = f"option columns: names {', '.join(settings.columns)}, but the schema {', '.join(columns)}: give one of them"
            raise ConfigError(message, key="columns", value=",".join(settings.columns))
        kind = PushdownReader if settings.pushdown else OffsetLogReader
        not_null = tuple(field.name for field in schema.fields if not field.nullable)
        return kind(settings._replace(columns=columns), not_null)

    def _checked(self) -> Settings:
        settings = settings_from(self.options)
        check_paths(settings)
        if not self._warned:
            # Kept when the source is pickled: one warning a load, not one a query.
            self._warned = True
            for warning in settings.warnings:
                logger.warning("%s", warning)
        return settings


class OffsetLogReader(DataSourceReader):
    """One query's reading: plans on the driver, reads on the executors. Holds plain values only, as it is pickled between the two."""

    def __init__(self, settings: Settings, not_null: Sequence[str] = ()) -> None:
        self._settings = settings
        self._not_null = tuple(not_null)
        self._pushed = Pushed(keys=settings.keys)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks as a list. Called on the driver, once for each query; the only place that lists folders.

        Each holds ranges of offsets as plain tuples. Their ends are fixed here, so a retried task reads the same records.
        """
        tasks = plan(self._settings, self._pushed)
        logger.debug("%d tasks for %d ranges", len(tasks), sum(map(len, tasks)))
        return [InputPartition(tuple(tuple(split) for split in task)) for task in tasks]

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Return the record batches of one task. Called on an executor, once for each task and retry.

        Parameters
        ----------
        partition
            One of :meth:`partitions`. Without any, Spark runs one task with ``None``, or with a partition of ``None``.
        """
        ranges = None if partition is None else partition.value
        return self._batches([Split(*entry) for entry in ranges or ()])

    def _batches(self, splits: list[Split]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches(splits, self._settings, self._pushed):
            yield self._as_declared(batch) if self._not_null else batch

    def _as_declared(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Mark the columns that the user's schema declares NOT NULL: Spark compares schemas for equality."""
        fields = [field.with_nullable(field.name not in self._not_null) for field in batch.schema]
        return pyarrow.RecordBatch.from_arrays(batch.columns, schema=pyarrow.schema(fields))


class PushdownReader(OffsetLogReader):
    """The same, with Spark's filters where Spark hands them down (4.1 and later, when the session's conf says so).

    Taken only with the option ``pushdown``. PySpark (up to 4.3 at least) keeps what a reader planned under filters for the loaded
    frame and uses it for *every* scan of that frame: after ``frame.where("offset < 5").count()``, ``frame.count()`` reads as if it
    had the filter too, and of two filtered branches in one query both read what the last one asked for. No reader can see that,
    whatever it hands back; so filters are used only for frames whose maker says that they are used in one place.
    """

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802  # PySpark's name; see _PushFilters
        """What Spark calls with the filters of the query, on the driver, before :meth:`partitions`."""
        return _PushFilters(self)

    def _push(self, filters: list[Any]) -> Iterable[Any]:
        self._pushed = push(filters, self._settings.keys)
        # All go back: Spark looks at the rows again, which costs little beside reading them.
        return filters


class _PushFilters:
    """``pushFilters`` of a reader, callable like the method.

    While the session's conf is off, PySpark refuses every reader that *overrides* ``pushFilters``, also for queries without a filter;
    and a reader cannot see the conf. PySpark tells by comparing ``reader.pushFilters.__func__`` with its own method: this object
    shows that one, so the reader works with the conf on and off. PySpark 4.0 has no such method and never asks.
    """

    def __init__(self, reader: PushdownReader) -> None:
        self._reader = reader
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._reader._push(filters)  # noqa: SLF001  # the other half of PushdownReader


def batches(splits: Sequence[Split], settings: Settings, pushed: Pushed | None = None) -> Iterator[pyarrow.RecordBatch]:
    """Yield the Arrow batches of one task, one at a time, each of some MiB at most unless a single record is larger.

    Raises
    ------
    OffsetOutOfRangeError, FileNotFoundError
        Records that were planned are gone, and ``failOnDataLoss`` is on. Those that went away while the task was reading are
        noticed at its end.
    OSError, OffsetLogError
        A file cannot be read. Errors in the middle of the stream come as pyarrow's, with the whole text.
    """
    pushed = pushed or Pushed(keys=settings.keys)
    left = _still_there(splits, settings)
    if not left:
        return
    try:
        scan = Scan.over(
            left,
            columns=settings.columns,
            keys=pushed.keys,
            start_timestamp=pushed.start_timestamp,
            stop_timestamp=pushed.stop_timestamp,
            isolation_level=settings.isolation_level,
            verify_checksums=settings.verify_checksums,
            batch_bytes=SPARK_BATCH_BYTES,
            **settings.limits,
        )
        with pyarrow.RecordBatchReader.from_stream(scan) as stream:
            for batch in stream:
                if batch.num_rows:
                    yield batch
    except (pyarrow.ArrowException, OSError, OffsetLogError):
        if settings.fail_on_data_loss:
            # Where a file went away under the scan, this says which offsets went with it.
            _still_there(left, settings)
        raise
    _check_not_cut(left, settings)


def _still_there(splits: Sequence[Split], settings: Settings) -> list[Split]:
    """Return what is left of `splits`: a broker may have removed or cut segments, or removed topics, since they were planned.

    A scan cannot tell: to it a log that was cut is a log that ends there, and offsets without records are what compaction leaves.
    """
    left = []
    logs: dict[str, Log] = {}
    for split in splits:
        try:
            log = logs.get(split.path) or logs.setdefault(split.path, _log(split, settings))
            first, end = log.log_start_offset, log.log_end_offset
            readable = min(log.last_stable_offset, end) if settings.isolation_level == "read_committed" else end
        except FileNotFoundError:
            # With the directory in place, a single file went between listing and opening: no reason to leave out all the rest.
            if os.path.isdir(split.path):
                raise
            _lose(split, split, settings, "the partition directory is not there")
            continue
        if first > split.start:
            _lose(split, split._replace(stop=min(first, split.stop)), settings, f"the log now starts at {first}", (first, end))
        if readable < split.stop:
            ends = f"the log now ends at {end}" if readable == end else f"the last stable offset is now {readable}"
            _lose(split, split._replace(start=max(readable, split.start)), settings, ends, (first, end))
        start, stop = max(first, split.start), min(readable, split.stop)
        if start < stop:
            left.append(split._replace(start=start, stop=stop))
    return left


def _check_not_cut(splits: Sequence[Split], settings: Settings) -> None:
    """Look once more when all was read: a file that is cut while it is read just ends there.

    Segments and directories that were removed meanwhile need no second look: what was open is read to its end, and what was not
    fails to open.
    """
    for split in splits:
        try:
            log = open_cached(split.path, **settings.limits)
            first, end = log.log_start_offset, log.log_end_offset
        except FileNotFoundError:
            continue
        if end < split.stop:
            reason = f"the log now ends at {end}"
            _lose(split, split._replace(start=max(end, split.start)), settings, reason, (first, end))


def _log(split: Split, settings: Settings) -> Log:
    # Whether a broker has the log dir, and so bounds the last stable offset by what is replicated, is looked up when a log is opened.
    if settings.isolation_level == "read_committed":
        return Log.open(split.path, **settings.limits)
    return open_cached(split.path, **settings.limits)


def _lose(split: Split, lost: Split, settings: Settings, reason: str, there: tuple[int, int] | None = None) -> None:
    """Say that `lost`, a part of `split` or all of it, cannot be read: an error or a warning, as ``failOnDataLoss`` has it."""
    message = (
        f"offsets {lost.start} to {lost.stop - 1} of {split.topic}-{split.partition} are gone: {reason}; "
        "they were removed after the query was planned, or this worker sees another copy of the log"
    )
    if not settings.fail_on_data_loss:
        logger.warning("%s; what is left is read, as failOnDataLoss is false; path %s", message, split.path)
        return
    message = f"{message} (failOnDataLoss = false reads what is left)"
    if there is None:
        raise FileNotFoundError(errno.ENOENT, message, split.path)
    first, end = there
    raise OffsetOutOfRangeError(message, requested=lost.start, log_start_offset=first, log_end_offset=end, path=split.path)


def register(spark: SparkSession) -> None:
    """Register the format with a session.

    The format is found by its name without this, wherever ``offsetlog`` is installed. Registering makes the first use faster, as
    Spark need not look for it.

    Parameters
    ----------
    spark
        The session.
    """
    try:
        spark.dataSource.register(OffsetLogSource)
    except Exception as error:
        # PySpark 4.0 refuses a name that it has found by itself before; it is the same class.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
