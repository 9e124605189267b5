"""The data source ``offsetlog``: PySpark's classes over :mod:`offsetlog.spark.planning` and ``offsetlog.Scan``.

Where things run: :class:`OffsetLogSource` is made and asked for its schema in a Python process of the driver, pickled, and asked for
its reader in a second one, which also plans; the reader is pickled once more and reads in Python workers of the executors. So source
and reader hold plain values only, and every process opens the files for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)

from offsetlog._text import counted
from offsetlog.errors import ConfigError
from offsetlog.spark.filters import Pushed, push
from offsetlog.spark.first_line import text_first, text_first_of_each
from offsetlog.spark.options import Settings, settings_from
from offsetlog.spark.planning import check_paths, plan
from offsetlog.spark.refusal import refuse
from offsetlog.spark.schema import checked_schema, spark_schema
from offsetlog.spark.sink import OffsetLogWriter, prepare
from offsetlog.spark.sink_options import SinkSettings, sink_columns, sink_settings_from
from offsetlog.spark.stream_options import stream_settings_from
from offsetlog.spark.tasks import input_partitions, read_task
from offsetlog.spark.versions import stream_reader, stream_writer

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

__all__ = ["OffsetLogReader", "OffsetLogSource", "PushdownReader"]

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

    @text_first
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

    @text_first
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
        self._checked()
        settings = settings_from(self.options)
        columns, not_null = _columns(schema, settings)
        for warning in settings.warnings:
            logger.warning("%s", warning)
        if settings.pushdown and not hasattr(DataSourceReader, "pushFilters"):
            refuse("pushdown", "true", "this PySpark hands no filters to Python sources: 4.1 or later is needed")
        kind = PushdownReader if settings.pushdown else OffsetLogReader
        return kind(settings._replace(columns=columns), not_null)

    @text_first
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # PySpark's name
        """Return the reader of a stream with this schema. Called when the stream starts: on the driver, and for its tasks.

        Parameters
        ----------
        schema
            As for :meth:`reader`.

        Raises
        ------
        ConfigError
            As for :meth:`reader`; or an option is not for streams.
        OSError
            A path is not there.
        """
        self._checked()
        settings = stream_settings_from(self.options)
        columns, not_null = _columns(schema, settings.reading)
        return stream_reader(settings._replace(reading=settings.reading._replace(columns=columns)), not_null)

    @text_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # PySpark's signature
        """Return the writer of a batch job. Called on the driver; makes what is missing of log dirs and topic.

        Parameters
        ----------
        schema
            Of the frame: columns as for Spark's Kafka sink, and ``timestamp``; with ``preserveOffsets`` also ``offset`` and
            ``leaderEpoch``. Others are ignored.
        overwrite
            Whether the mode is ``overwrite``, which is refused: a log is appended to.

        Raises
        ------
        ConfigError
            An option or a column is unknown, missing or wrong.
        LogLockedError
            A broker runs on the log dir.
        """
        if overwrite:
            message = 'mode "overwrite" is not supported: a log is appended to, use .mode("append")'
            raise ConfigError(message, key="mode", value="overwrite")
        settings, columns = self._sink(schema, is_stream=False)
        return OffsetLogWriter(settings, columns)

    @text_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802  # as above; all output modes append
        """Return the writer of a stream. Called on the driver when the stream starts.

        Parameters
        ----------
        schema
            As for :meth:`writer`.
        overwrite
            Whether the output mode is ``complete``; every row of a micro-batch is appended in all modes, as by Spark's Kafka sink.

        Raises
        ------
        ConfigError, LogLockedError
            As for :meth:`writer`.
        """
        settings, columns = self._sink(schema, is_stream=True)
        return stream_writer(settings, columns, schema)

    def _sink(self, schema: StructType, *, is_stream: bool) -> tuple[SinkSettings, tuple[str, ...]]:
        settings = sink_settings_from(self.options, is_stream=is_stream)
        columns = sink_columns(schema, settings)
        for warning in settings.warnings:
            logger.warning("%s", warning)
        prepare(settings)
        return settings, columns

    def _checked(self) -> Settings:
        settings = settings_from(self.options, "either")
        check_paths(settings)
        if not self._warned:
            # Kept when the source is pickled: one warning a load, not one a query.
            self._warned = True
            for warning in settings.warnings:
                logger.warning("%s", warning)
        return settings


def _columns(schema: StructType, settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that the schema names, and those among them that it declares NOT NULL."""
    columns = checked_schema(schema)
    if settings.columns_named and columns != settings.columns:
        message = f"option columns: names {', '.join(settings.columns)}, but the schema {', '.join(columns)}: give one of them"
        raise ConfigError(message, key="columns", value=",".join(settings.columns))
    return columns, tuple(field.name for field in schema.fields if not field.nullable)


class OffsetLogReader(DataSourceReader):
    """One query's reading: plans on the driver, reads on the executors. Holds plain values only, as it is pickled between the two."""

    def __init__(self, settings: Settings, not_null: Sequence[str] = ()) -> None:
        self._settings = settings
        self._not_null = tuple(not_null)
        self._pushed = Pushed(keys=settings.keys)

    @text_first
    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks as a list. Called on the driver, once for each query; the only place that lists folders.

        Each holds ranges of offsets as plain tuples. Their ends are fixed here, so a retried task reads the same records.
        """
        tasks = plan(self._settings, self._pushed)
        logger.debug("%s for %s", counted(len(tasks), "task"), counted(sum(map(len, tasks)), "range"))
        return input_partitions(tasks)

    @text_first_of_each
    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Return the record batches of one task. Called on an executor, once for each task and retry.

        Parameters
        ----------
        partition
            One of :meth:`partitions`. Without any, Spark runs one task with ``None``, or with a partition of ``None``.
        """
        return read_task(partition, self._settings, self._pushed, self._not_null)


class PushdownReader(OffsetLogReader):
    """The same, with Spark's filters where Spark hands them down (4.1 and later, when the session's conf says so).

    Taken only with the option ``pushdown``. PySpark (up to 4.3 at least) keeps what a reader planned under filters for the loaded
    frame and uses it for *every* scan of that frame: after ``frame.where("offset < 5").count()``, ``frame.count()`` reads as if it
    had the filter too, and of two filtered branches in one query both read what the last one asked for. No reader can see that,
    whatever it hands back; so filters are used only for frames whose maker says that they are used in one place.

    While the session's conf is off, PySpark refuses a reader with this method, and names the conf: the option would do nothing.
    """

    @text_first
    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  # PySpark's name
        """Take the filters of the query. Called on the driver, before :meth:`partitions`."""
        self._pushed = push(filters, self._settings.keys)
        if self._settings.on_corrupt == "stop":
            # What begins later, or steps over batches by their times, may not see the damage that the whole range ends at.
            self._pushed = self._pushed._replace(start=0, start_timestamp=None, stop_timestamp=None)
        # All go back: Spark looks at the rows again, which costs little beside reading them.
        return filters
