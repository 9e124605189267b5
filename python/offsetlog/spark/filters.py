"""Filters that Spark hands down, turned into what a scan can use: partitions, offsets, times, keys.

Spark hands down conjunctions of simple comparisons only. Filters that are used here are handed back too, so that Spark checks
every row again: a scan may read more than the filters let pass, never less.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

__all__ = ["Pushed", "millis", "push"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda found, values: found in values,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}
_FROM = frozenset({"EqualTo", "EqualNullSafe", "In", "GreaterThanOrEqual"})
_UP_TO = frozenset({"EqualTo", "EqualNullSafe", "In", "LessThanOrEqual"})
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestampType"})


class Pushed(NamedTuple):
    """What the filters of one query leave to be read. Plain values, as the reader that holds it is pickled."""

    conditions: tuple[tuple[str, str, Any, bool], ...] = ()
    """Tests of a partition: column (``topic`` or ``partition``), name of the test, value, whether it must fail."""
    start: int = 0
    """Lowest offset, inclusive."""
    stop: int | None = None
    """Highest offset, exclusive."""
    start_timestamp: int | None = None
    """Earliest time, ms, inclusive."""
    stop_timestamp: int | None = None
    """Latest time, ms, exclusive."""
    keys: tuple[bytes, ...] | None = None
    """The only keys wanted."""
    nothing: bool = False
    """Whether no record can pass."""

    def admits(self, topic: str, partition: int) -> bool:
        """Whether the records of this partition can pass."""
        values = {"topic": topic, "partition": partition}
        return not self.nothing and all(
            _TESTS[test](values[column], value) is not must_fail for column, test, value, must_fail in self.conditions
        )


def push(filters: Iterable[Any], keys: tuple[bytes, ...] | None = None) -> Pushed:
    """Return what `filters` leave to be read.

    Parameters
    ----------
    filters
        Objects of ``pyspark.sql.datasource``'s filter classes. Looked at by the names of their classes, which PySpark 4.0 does not
        have yet.
    keys
        The only keys wanted so far.
    """
    pushed = Pushed(keys=keys)
    for wanted in filters:
        must_fail = type(wanted).__name__ == "Not"
        pushed = _taken(pushed, wanted.child if must_fail else wanted, must_fail=must_fail)
    return pushed


def _taken(pushed: Pushed, wanted: Any, *, must_fail: bool) -> Pushed:  # noqa: ANN401  # a filter of any class
    test = type(wanted).__name__
    path: tuple[str, ...] = getattr(wanted, "attribute", ())
    if len(path) != 1:
        return pushed
    column = path[0]
    value = getattr(wanted, "value", None)
    if test == "IsNull" and column in _NEVER_NULL and not must_fail:
        return pushed._replace(nothing=True)
    if test not in _TESTS or value is None:
        return pushed
    if column in ("topic", "partition"):
        return _partition_test(pushed, column, test, value, must_fail=must_fail)
    by_column = {"offset": _offset_test, "timestamp": _time_test, "key": _key_test}
    return pushed if must_fail or column not in by_column else by_column[column](pushed, test, value)


def _partition_test(pushed: Pushed, column: str, test: str, value: Any, *, must_fail: bool) -> Pushed:  # noqa: ANN401
    kind = str if column == "topic" else int
    values = value if test == "In" else [value]
    if not all(isinstance(item, kind) for item in values):
        # A null in a list: never true, never false. Spark knows what follows from that.
        return pushed
    plain = tuple(value) if test == "In" else value
    return pushed._replace(conditions=(*pushed.conditions, (column, test, plain, must_fail)))


def _offset_test(pushed: Pushed, test: str, value: Any) -> Pushed:  # noqa: ANN401
    values = [item for item in value if item is not None] if test == "In" else [value]
    if not all(isinstance(item, int) for item in values):
        return pushed
    if not values:
        return pushed._replace(nothing=True)
    start, stop = pushed.start, pushed.stop
    if test in _FROM:
        start = max(start, min(values))
    elif test == "GreaterThan":
        start = max(start, value + 1)
    if test in _UP_TO:
        stop = _lower(stop, max(values) + 1)
    elif test == "LessThan":
        stop = _lower(stop, value)
    return pushed._replace(start=start, stop=stop)


def _time_test(pushed: Pushed, test: str, value: Any) -> Pushed:  # noqa: ANN401
    values = [item for item in value if item is not None] if test == "In" else [value]
    if not values or not all(isinstance(item, datetime) and item.tzinfo is not None for item in values):
        return pushed
    start, stop = pushed.start_timestamp, pushed.stop_timestamp
    # Records have whole ms, Spark's literals have us.
    floor, ceiling = (max(values) - _EPOCH) // _MILLISECOND, millis(min(values))
    if test in _FROM:
        start = _higher(start, ceiling)
    elif test == "GreaterThan":
        start = _higher(start, floor + 1)
    if test in _UP_TO:
        stop = _lower(stop, floor + 1)
    elif test == "LessThan":
        stop = _lower(stop, ceiling)
    return pushed._replace(start_timestamp=start, stop_timestamp=stop)


def _key_test(pushed: Pushed, test: str, value: Any) -> Pushed:  # noqa: ANN401
    values = [item for item in value if item is not None] if test == "In" else [value]
    if test not in ("EqualTo", "EqualNullSafe", "In") or not all(isinstance(item, (bytes, bytearray)) for item in values):
        return pushed
    keys = tuple(dict.fromkeys(bytes(item) for item in values))
    if pushed.keys is not None:
        keys = tuple(key for key in pushed.keys if key in keys)
    return pushed._replace(keys=keys, nothing=pushed.nothing or not keys)


def millis(when: datetime) -> int:
    """Return an aware time in whole ms since 1970, rounded up: ``>=`` and ``<`` stay exact for timestamps of whole ms."""
    return -((_EPOCH - when) // _MILLISECOND)


def _lower(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def _higher(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)
