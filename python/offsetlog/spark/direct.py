"""The direct APIs: a scan through ``mapInArrow``, and splits for ``rdd.mapPartitions`` with the work done inside.

Both plan with the same options and the same code as the data source. They are faster than it where its per-query planning process
or its task start count, and where the work can be done on records before Spark makes rows of them.
"""

from __future__ import annotations

import functools
import json
import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from offsetlog import Split
from offsetlog.spark.filters import Pushed, millis
from offsetlog.spark.first_line import text_first, text_first_of_each
from offsetlog.spark.options import LONG_MAX, Paths, Settings, folders, settings_from
from offsetlog.spark.planned import Planned
from offsetlog.spark.planning import plan
from offsetlog.spark.refusal import refuse, refusing, shown
from offsetlog.spark.report import ReadReport, SplitRead
from offsetlog.spark.schema import spark_schema
from offsetlog.spark.tasks import batches, told_batches

if TYPE_CHECKING:
    import pyarrow
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["TaskResult", "map_splits", "scan", "splits"]

logger = logging.getLogger("offsetlog")


def scan(  # one parameter an option
    spark: SparkSession,
    paths: Paths,
    *,
    keys: Iterable[bytes] | bytes | None = None,
    start_timestamp: int | datetime | None = None,
    stop_timestamp: int | datetime | None = None,
    transform: Callable[[Iterator[pyarrow.RecordBatch]], Iterable[pyarrow.RecordBatch]] | None = None,
    schema: StructType | str | None = None,
    report: ReadReport | None = None,
    **options: object,
) -> DataFrame:
    """Return a DataFrame over log dirs, planned now and read through ``mapInArrow``.

    The offsets to be read are fixed by this call, not by the action: every action on the frame reads the same records.

    Parameters
    ----------
    spark
        The session.
    paths
        One log dir, several (a list, or commas between them), or a partition directory; every worker must see them.
    keys
        Only records with one of these keys; a single ``bytes`` is one key. In place of ``keyEquals``, not beside it.
    start_timestamp, stop_timestamp
        Only records with ``start_timestamp <= timestamp < stop_timestamp``: ``int`` ms or an aware ``datetime``. Unlike
        ``startingTimestamp``, which finds one offset, this looks at every record. What lies before the first one that is late enough
        is not opened, and batches that are too old are stepped over.
    transform
        Takes the Arrow batches of one task inside the worker and returns those that become rows: records decoded, filtered or
        aggregated before Spark sees them. Called once for each task, and for each retry.
    schema
        Schema of what `transform` returns, as ``mapInArrow`` takes it; only with `transform`.
    report
        Is told what the workers read, and calls back while they do. Not with Spark Connect.
    **options
        Options of the data source by their names, in any case, with or without underscores: ``subscribe="orders"``,
        ``columns=["key", "value"]``, ``starting_offsets={"orders": {"0": 7}}``. Python values or Spark's texts. What has no effect
        here (options of streams and of Kafka clients, ``pushdown``) is a warning (logger ``offsetlog``).

    Raises
    ------
    ConfigError, OSError, OffsetLogError
        As ``load()`` and the planning of a query would raise them; here with their own classes.

    Examples
    --------
    >>> frame = scan(spark, "tests/data/kafka-4.3.0/clean/log-dir-1", subscribe="g-plain", columns=["offset"])
    >>> frame.count()
    262
    """
    settings, pushed = _asked(paths, options, keys, start_timestamp, stop_timestamp)
    tasks = plan(settings, pushed, _slots(spark))
    if (transform is None) != (schema is None):
        refuse("transform", "", "and schema belong together: give both, or neither")
    count = len(tasks)
    told = None if report is None else report._of(spark, count)  # noqa: SLF001  # same package
    read = functools.partial(_read, [tuple(map(tuple, task)) for task in tasks], settings, pushed, transform, told)
    return spark.range(0, count, 1, max(count, 1)).mapInArrow(read, schema or spark_schema(settings.columns))


def splits(paths: Paths, *, slots: int | None = None, start_timestamp: int | datetime | None = None, **options: object) -> list[Split]:
    """Return the ranges of offsets to be read, for work that is done inside the workers.

    Parameters
    ----------
    paths
        One log dir, several (a list, or commas between them), or a partition directory; every worker must see them.
    slots
        How many tasks run at once, as ``spark.sparkContext.defaultParallelism``: large partitions are cut so that each gets its
        share. ``None`` takes the CPUs of this machine.
    start_timestamp
        Leave out everything before the first record at or after this time: those segments are not opened. Everything after it is
        there, including records of earlier times.
    **options
        As for :func:`scan`. Options that say how records are read (``columns``, ``isolationLevel``, ...) decide nothing here but
        which ranges there are: give them to ``Scan.over`` too.

    Returns
    -------
    list[Split]
        In order of topic, partition and offset; they tile what was asked for. ``offsetlog.Scan.over`` reads any number of them, and
        of each what is there by then: a log that was truncated in between gives fewer records, or those of another leader, and no
        error. With ``onCorrupt="stop"`` each partition is one range: a log ends at its damage within one scan only.

    Raises
    ------
    ConfigError, OSError, OffsetLogError
        As for :func:`scan`.

    Examples
    --------
    >>> from offsetlog import Scan
    >>> ranges = splits("tests/data/kafka-4.3.0/clean/log-dir-1", subscribe="g-plain")
    >>> counts = spark.sparkContext.parallelize(ranges, 2).mapPartitions(lambda mine: [Scan.over(mine).count()])
    >>> counts.sum()
    262
    """
    if slots is not None and slots < 1:
        refuse("slots", slots, f"must be at least 1, found {shown(slots)}")
    pushed = Pushed(start_timestamp=_millis("start_timestamp", start_timestamp))
    return sorted(each.split for task in plan(_settings(paths, options), pushed, slots) for each in task)


T = TypeVar("T")


class TaskResult(NamedTuple, Generic[T]):
    """What one task of :func:`map_splits` did."""

    splits: tuple[Split, ...]
    """The ranges that it was given."""
    result: T
    """What the function returned."""
    reads: tuple[SplitRead, ...]
    """What was read of each range, as far as the function took it."""
    seconds: float
    """Wall time, reading and the function together."""
    host: str
    """The machine that did it."""

    @property
    def records(self) -> int:
        """Records that the function took."""
        return sum(each.records for each in self.reads)

    @property
    def record_bytes(self) -> int:
        """Bytes of the columns that it took of them."""
        return sum(each.record_bytes for each in self.reads)


def map_splits(  # one parameter an option
    spark: SparkSession,
    paths: Paths,
    function: Callable[[Iterator[pyarrow.RecordBatch]], T],
    *,
    keys: Iterable[bytes] | bytes | None = None,
    start_timestamp: int | datetime | None = None,
    stop_timestamp: int | datetime | None = None,
    report: ReadReport | None = None,
    **options: object,
) -> list[TaskResult[T]]:
    """Run a function over the records of each task inside the workers, and return its results with what each task read.

    For work that returns little: counts, sums, sketches, or files that the function writes itself. Nothing becomes a row of Spark.

    Parameters
    ----------
    spark
        The session; a classic one, as Spark Connect has no RDDs.
    paths, keys, start_timestamp, stop_timestamp
        As for :func:`scan`.
    function
        Takes the Arrow batches of one task, in order of topic, partition and offset, and returns anything that pickles. A task that is
        tried again calls it again.
    report
        Is told the same as the result while the tasks end, and calls back.
    **options
        As for :func:`scan`.

    Returns
    -------
    list[TaskResult]
        One for each task, in order of directories and offsets.

    Raises
    ------
    ConfigError, OSError, OffsetLogError
        As for :func:`scan`; what fails in a worker comes as Spark's error.

    Examples
    --------
    >>> done = map_splits(spark, "tests/data/kafka-4.3.0/clean/log-dir-1", lambda batches: max(
    ...     (batch.column("offset")[-1].as_py() for batch in batches), default=None), subscribe="g-plain", columns=["offset"])
    >>> sum(task.records for task in done)
    262
    """
    settings, pushed = _asked(paths, options, keys, start_timestamp, stop_timestamp)
    tasks = plan(settings, pushed, _slots(spark))
    told = None if report is None else report._of(spark, len(tasks))  # noqa: SLF001  # same package
    work = functools.partial(_mapped, function, settings, pushed, told)
    done: list[TaskResult[T]] = spark.sparkContext.parallelize(list(enumerate(tasks)), max(len(tasks), 1)).map(work).collect()
    return done


Told = dict[int, tuple[SplitRead, ...]]


@text_first
def _mapped(
    function: Callable[[Iterator[pyarrow.RecordBatch]], T],
    settings: Settings,
    pushed: Pushed,
    told: Accumulator[Told] | None,
    task: tuple[int, tuple[Planned, ...]],
) -> TaskResult[T]:
    """Run the function over one task. Runs on the executors."""
    began = time.perf_counter()
    number, ranges = task
    reads: list[SplitRead] = []
    with closing(told_batches(ranges, settings, pushed, reads)) as found:
        result = function(found)
    if told is not None:
        told.add({number: tuple(reads)})
    return TaskResult(tuple(each.split for each in ranges), result, tuple(reads), time.perf_counter() - began, socket.gethostname())


@text_first_of_each
def _read(
    tasks: list[tuple[tuple[Any, ...], ...]],
    settings: Settings,
    pushed: Pushed,
    transform: Callable[[Iterator[pyarrow.RecordBatch]], Iterable[pyarrow.RecordBatch]] | None,
    told: Accumulator[Told] | None,
    rows: Iterable[pyarrow.RecordBatch],
) -> Iterator[pyarrow.RecordBatch]:
    """Read the tasks whose numbers are in `rows`. Runs on the executors."""
    for numbers in rows:
        for number in numbers.column(0).to_pylist():
            task = [Planned(*entry) for entry in tasks[number]]
            reads: list[SplitRead] = []
            found = batches(task, settings, pushed) if told is None else told_batches(task, settings, pushed, reads)
            # One that stops early leaves a reading that has not said yet what it has passed, and holds its files.
            with closing(found):
                yield from found if transform is None else transform(found)
            if told is not None:
                told.add({number: tuple(reads)})


def _asked(
    paths: Paths,
    options: Mapping[str, object],
    keys: Iterable[bytes] | bytes | None,
    start_timestamp: int | datetime | None,
    stop_timestamp: int | datetime | None,
) -> tuple[Settings, Pushed]:
    settings = _settings(paths, options)
    if keys is not None and settings.keys is not None:
        refuse("keyEquals", settings.keys[0].decode(), "says which keys are wanted, and so does the argument keys: give one of them")
    return settings, Pushed(
        keys=settings.keys if keys is None else _keys(keys),
        start_timestamp=_millis("start_timestamp", start_timestamp),
        stop_timestamp=_millis("stop_timestamp", stop_timestamp),
    )


def _settings(paths: Paths, options: Mapping[str, object]) -> Settings:
    given: dict[str, str] = {}
    texts = {}
    for name, value in options.items():
        plain = name.replace("_", "").lower()
        if value is None:
            continue
        if plain in given:
            refuse(name, "", f"is given twice, also as {shown(given[plain])}")
        given[plain] = name
        with refusing(name, value):
            texts[plain] = _text(name, value)
    for name in ("path", "paths"):
        if name in texts:
            refuse(name, texts[name], "is the argument paths here")
    texts["paths"] = json.dumps(folders(paths))
    settings = settings_from(texts)
    for warning in (*settings_from(texts, "either").warnings, *settings.warnings):
        logger.warning("%s", warning)
    if settings.pushdown:
        logger.warning("option pushdown is ignored: Spark hands filters to the data source alone; give keys, times or offsets here")
    return settings


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return str(_millis(name, value))
    if isinstance(value, Mapping):
        return _json(name, value)
    if isinstance(value, Iterable):
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return json.dumps(items) if name.replace("_", "").lower() == "keyequals" else ",".join(items)
    message = f"option {name} must be a str, bool, int, aware datetime, dict or list of str, found {type(value).__name__}"
    raise TypeError(message)


def _json(name: str, value: Mapping[Any, Any]) -> str:
    def plain(part: object) -> object:
        if isinstance(part, Mapping):
            return dict(part)
        message = f"found {type(part).__name__}"
        raise TypeError(message)

    try:
        return json.dumps(dict(value), default=plain)
    except TypeError as error:
        message = f"option {name} must hold str, int, dict and list only: {error}"
        raise TypeError(message) from error


def _keys(keys: Iterable[object] | bytes) -> tuple[bytes, ...]:
    return tuple(map(_key, [keys] if isinstance(keys, (bytes, bytearray, memoryview, str)) else keys))


def _key(key: object) -> bytes:
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    message = f"keys must be bytes, found {type(key).__name__}: encode a str, as in key.encode()"
    raise TypeError(message)


def _millis(name: str, when: int | datetime | None) -> int | None:
    if when is None:
        return None
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            refuse(name, when.isoformat(), f"is a naive datetime, {when.isoformat()}: give it a time zone")
        return millis(when)
    if isinstance(when, bool) or not isinstance(when, int):
        message = f"{name} must be an int of ms since 1970-01-01T00:00:00Z or an aware datetime, found {type(when).__name__}"
        raise TypeError(message)
    if not -LONG_MAX <= when <= LONG_MAX:
        refuse(name, when, f"does not fit 64 bits, found {shown(when)}")
    return when


def _slots(spark: SparkSession) -> int | None:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001  # Spark Connect has no SparkContext, and says so with varying classes
        return None
