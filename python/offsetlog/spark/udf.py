"""A UDF that fetches records by their offsets, through logs that stay open in each worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from pyspark.sql.functions import udf
from pyspark.sql.types import StructField, StructType, TimestampType

from offsetlog import LogDir, OffsetLogError, OffsetOutOfRangeError, open_cached
from offsetlog.spark.first_line import text_first
from offsetlog.spark.options import Paths, folders
from offsetlog.spark.planning import is_partition_directory
from offsetlog.spark.refusal import refuse, shown
from offsetlog.spark.schema import COLUMNS, HEADERS, KAFKA_COLUMNS, column_names

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

    from offsetlog import Record

__all__ = ["lookup"]

RECORD = "record"
CHOICE_SECONDS = 1.0
"""How long the choice of a replica holds, whatever it lacks: a look at the log dirs costs too much for each missing offset."""
LOOK_SHARE = 20
"""Looks for missing offsets take at most one part in so many of a worker's time."""
_BEYOND = 1 << 63
_Got: TypeAlias = "tuple[str, int, Record | None]"
_Get: TypeAlias = Callable[..., _Got]
_ATTRIBUTES = {
    "timestampType": "timestamp_type",
    "leaderEpoch": "leader_epoch",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
}


class _Micros(TimestampType):
    """Spark's timestamps, given in their microseconds: a ``datetime`` ends with the year 9999, and they do not."""

    @classmethod
    def typeName(cls) -> str:  # noqa: N802  # PySpark's name
        """Return the name of the type, as of its parent."""
        return TimestampType.typeName()

    def toInternal(self, dt: int | None) -> int | None:  # type: ignore[override]  # noqa: N802  # PySpark's name
        """Return the microseconds as they are."""
        return dt


_TYPES = {**COLUMNS, "timestamp": _Micros()}


def lookup(paths: Paths, what: str = "value", *, missing: Literal["null", "error"] = "null") -> UserDefinedFunctionLike:
    """Return a UDF of (topic, partition, offset) that gives a record, or one column of it.

    Each Python worker opens a partition once and keeps it open (:func:`offsetlog.open_cached`), so a look-up costs a search in the
    indexes and the decoding of one batch. Sort or cluster the rows by topic and partition when there are many partitions.

    Parameters
    ----------
    paths
        One log dir or several (a list, or commas between them), which every worker sees. For a single partition directory the UDF
        takes the offset alone. Of several replicas a worker reads the newest one. It chooses again if that one is gone, and, once a
        second at most, if it lacks an offset.
    what
        A column of the data source (``"value"``, ``"key"``, ``"timestamp"``, ...), with the values that it has there, or ``"record"``
        for a struct of the columns of Spark's Kafka source with the headers.
    missing
        The result for an offset without a record (compacted away, a commit or abort marker, outside the log): null, or an error
        that fails the task. A partition that is not there is always an error; null arguments always return null.

    Raises
    ------
    ConfigError
        `what` or `missing` is not one of the above.

    Examples
    --------
    >>> value = lookup("tests/data/kafka-4.3.0/clean/log-dir-1")
    >>> wanted = spark.createDataFrame([("g-many-entries", 0, 1000)], "topic string, partition int, offset long")
    >>> wanted.select(value("topic", "partition", "offset").alias("value")).first().value is None
    False
    """
    if missing not in ("null", "error"):
        refuse("missing", missing, f"must be 'null' or 'error', found {shown(missing)}")
    absolute = tuple(os.path.abspath(path) for path in folders(paths))
    columns = (*KAFKA_COLUMNS, HEADERS) if what == RECORD else column_names([what])
    record_type = StructType([StructField(name, _TYPES[name]) for name in columns])
    returned = record_type if what == RECORD else _TYPES[columns[0]]
    kind = _LookUpOffset if len(absolute) == 1 and is_partition_directory(absolute[0]) else _LookUp
    # Rows of single records: Arrow between the JVM and the worker would gain little, and needs pandas.
    return udf(kind(absolute, columns, whole=what == RECORD, missing=missing), returned, useArrow=False)


class _Fetch:
    """Fetches from logs by path; pickles as plain values."""

    def __init__(self, paths: tuple[str, ...], columns: tuple[str, ...], *, whole: bool, missing: str) -> None:
        self._paths = paths
        self._columns = columns
        self._whole = whole
        self._missing = missing

    def _fetched(self, get: _Get, *place: Any) -> Any:  # noqa: ANN401  # the value of a column of any type
        try:
            path, offset, record = get(*place)
        except OffsetOutOfRangeError:
            if self._missing == "error":
                raise
            return None
        if record is None:
            if self._missing == "error":
                message = f"offset {offset} holds no record: compacted away, or a marker; {os.path.basename(path)}"
                raise OffsetOutOfRangeError(message, requested=offset, path=path, offset=offset)
            return None
        values = tuple(_value(record, column) for column in self._columns)
        return values if self._whole else values[0]


class _LookUp(_Fetch):
    """By topic, partition and offset."""

    __name__ = "lookup"

    @text_first
    def __call__(self, topic: str | None, partition: int | None, offset: int | None) -> Any:  # noqa: ANN401
        if topic is None or partition is None or offset is None:
            return None
        return self._fetched(_get_from_newest, self._paths, topic, partition, offset)


class _LookUpOffset(_Fetch):
    """By offset, in one partition directory."""

    __name__ = "lookup"

    @text_first
    def __call__(self, offset: int | None) -> Any:  # noqa: ANN401
        return None if offset is None else self._fetched(_get, self._paths[0], offset)


class _Choice(NamedTuple):
    """The newest replica of a partition, when it was looked for."""

    path: str
    at: float
    """By the monotonic clock."""


_choices: dict[tuple[int, tuple[str, ...], str, int], _Choice] = {}
"""By partition, in this process: a forked worker looks for itself."""
_next_look: dict[tuple[int, tuple[str, ...]], float] = {}
"""Before that time no missing offset makes a worker look again at these log dirs: a look may read every replica whole."""


def _get_from_newest(paths: tuple[str, ...], topic: str, partition: int, offset: int) -> _Got:
    """Fetch from the newest replica: that of the last look, unless it is gone or may have been overtaken by another one."""
    process = os.getpid()
    key, budget = (process, paths, topic, partition), (process, paths)
    choice = _choices.get(key)
    missing = None
    if choice is not None:
        try:
            return _get(choice.path, offset)
        except FileNotFoundError:
            # A broker moved the partition to another log dir, or it was deleted: the look at all of them tells.
            pass
        except OffsetOutOfRangeError as error:
            now = time.monotonic()
            is_deleted = error.log_start_offset is not None and offset < error.log_start_offset
            if is_deleted or now - choice.at < CHOICE_SECONDS or now < _next_look.get(budget, now):
                raise
            missing = error
    began = time.monotonic()
    try:
        with LogDir.open(paths) as log_dir:
            path = log_dir.log(topic, partition).path
    except (OSError, OffsetLogError) as failure:
        # Another replica may have the record: that none has it is not known, so the next call looks again.
        raise failure from missing
    ended = time.monotonic()
    _next_look[budget] = ended + LOOK_SHARE * (ended - began)
    _choices[key] = _Choice(path, ended)
    return _get(path, offset)


def _get(path: str, offset: int) -> _Got:
    return path, offset, open_cached(path).get(offset)


def _value(record: Record, column: str) -> Any:  # noqa: ANN401
    if column == HEADERS:
        return list(record.headers) or None
    if column == "timestamp":
        micros = record.timestamp * 1000
        # As in the data source: -1 ms is a time too, and what 64 bits do not hold is none.
        return micros if -_BEYOND <= micros < _BEYOND else None
    return getattr(record, _ATTRIBUTES.get(column, column))
