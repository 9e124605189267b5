"""The direct roads: a scan through ``mapInArrow``, and splits for ``rdd.mapPartitions`` with the work done inside.

Both plan with the same options and the same code as the data source. They are faster than it where its per-query planning process
or its task start count, and where the work can be done on records before Spark makes rows of them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from offsetlog import Split
from offsetlog.spark.filters import Pushed, millis
from offsetlog.spark.options import Paths, Settings, folders, refuse, settings_from
from offsetlog.spark.planning import plan
from offsetlog.spark.reader import batches
from offsetlog.spark.schema import spark_schema

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["scan", "splits"]


def scan(
    spark: SparkSession,
    paths: Paths,
    *,
    keys: Iterable[bytes] | None = None,
    start_timestamp: int | datetime | None = None,
    stop_timestamp: int | datetime | None = None,
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
        Only records with one of these keys.
    start_timestamp, stop_timestamp
        Only records with ``start_timestamp <= timestamp < stop_timestamp``: ``int`` ms or an aware ``datetime``. Unlike
        ``startingTimestamp``, which finds one offset, this looks at every record (and steps over batches that are too old).
    **options
        Options of the data source by their names, in any case, with or without underscores: ``subscribe="orders"``,
        ``columns=["key", "value"]``, ``starting_offsets={"orders": {"0": 7}}``. Python values or Spark's texts.

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
    settings = _settings(paths, options)
    pushed = Pushed(
        keys=settings.keys if keys is None else tuple(keys),
        start_timestamp=_millis("start_timestamp", start_timestamp),
        stop_timestamp=_millis("stop_timestamp", stop_timestamp),
    )
    tasks = plan(settings, pushed, _slots(spark))
    read = functools.partial(_read, [tuple(map(tuple, task)) for task in tasks], settings, pushed)
    count = len(tasks)
    return spark.range(0, count, 1, max(count, 1)).mapInArrow(read, spark_schema(settings.columns))


def splits(paths: Paths, *, slots: int | None = None, **options: object) -> list[Split]:
    """Return the ranges of offsets to be read, for work that is done inside the workers.

    Parameters
    ----------
    paths
        One log dir, several (a list, or commas between them), or a partition directory; every worker must see them.
    slots
        How many tasks run at once, as ``spark.sparkContext.defaultParallelism``: large partitions are cut so that each gets its
        share. ``None`` takes the CPUs of this machine.
    **options
        As for :func:`scan`. Options that say how records are read (``columns``, ``isolationLevel``, ...) decide nothing here but the
        ends of the ranges: give them to ``Scan.over`` too.

    Returns
    -------
    list[Split]
        In order of topic, partition and offset; they tile what was asked for. ``offsetlog.Scan.over`` reads any number of them.

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
    return sorted(split for task in plan(_settings(paths, options), slots=slots) for split in task)


def _read(
    tasks: list[tuple[tuple[Any, ...], ...]], settings: Settings, pushed: Pushed, rows: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Read the tasks whose numbers stand in `rows`. Runs on the executors."""
    for numbers in rows:
        for number in numbers.column(0).to_pylist():
            yield from batches([Split(*entry) for entry in tasks[number]], settings, pushed)


def _settings(paths: Paths, options: Mapping[str, object]) -> Settings:
    texts = {name.replace("_", "").lower(): _text(name, value) for name, value in options.items() if value is not None}
    for name in ("path", "paths"):
        if name in texts:
            refuse(name, texts[name], "is the argument paths here")
    texts["paths"] = json.dumps(folders(paths))
    return settings_from(texts)


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
        return json.dumps(value)
    if isinstance(value, Iterable):
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return json.dumps(items) if name.replace("_", "").lower() == "keyequals" else ",".join(items)
    message = f"option {name} must be a str, bool, int, aware datetime, dict or list of str, found {type(value).__name__}"
    raise TypeError(message)


def _millis(name: str, when: int | datetime | None) -> int | None:
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            refuse(name, when, f"is a naive datetime, {when.isoformat()}: give it a time zone")
        return millis(when)
    return when


def _slots(spark: SparkSession) -> int | None:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001  # Spark Connect has no SparkContext, and says so with varying classes
        return None
