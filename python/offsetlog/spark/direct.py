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
from offsetlog.spark.options import LONG_MAX, Paths, Settings, folders, settings_from
from offsetlog.spark.planning import plan
from offsetlog.spark.reader import batches
from offsetlog.spark.refusal import refuse, refusing, shown
from offsetlog.spark.schema import spark_schema

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["scan", "splits"]


def scan(
    spark: SparkSession,
    paths: Paths,
    *,
    keys: Iterable[bytes] | bytes | None = None,
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
        Only records with one of these keys; a single ``bytes`` is one key.
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
        keys=settings.keys if keys is None else _keys(keys),
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
        In order of topic, partition and offset; they tile what was asked for. ``offsetlog.Scan.over`` reads any number of them, and
        of each what is there by then: a log that was cut in between gives fewer records, and no error.

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
    return sorted(split for task in plan(_settings(paths, options), slots=slots) for split in task)


def _read(
    tasks: list[tuple[tuple[Any, ...], ...]], settings: Settings, pushed: Pushed, rows: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Read the tasks whose numbers stand in `rows`. Runs on the executors."""
    for numbers in rows:
        for number in numbers.column(0).to_pylist():
            yield from batches([Split(*entry) for entry in tasks[number]], settings, pushed)


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
