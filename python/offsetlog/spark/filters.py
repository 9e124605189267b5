"""Filters that Spark hands down, turned into what a scan can use: partitions, offsets, times, keys.

Spark hands down conjunctions of simple comparisons only. What is taken in full is answered exactly here and needs no second look;
what helps but is not the whole answer (times, sets of offsets) is used and handed back, so that Spark looks again.
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


def push(filters: Iterable[Any], keys: tuple[bytes, ...] | None = None) -> tuple[Pushed, list[Any]]:
    """Take what can be used of `filters`.

    Parameters
    ----------
    filters
        Objects of ``pyspark.sql.datasource``'s filter classes. Looked at by the names of their classes, which PySpark 4.0 does not
        have yet.
    keys
        The only keys wanted so far.

    Returns
    -------
    tuple
        What is left to be read, and the filters (the same objects) that Spark has to apply itself.
    """
    pushed = Pushed(keys=keys)
    refused = []
    for wanted in filters:
        pushed, whole = _taken(pushed, wanted)
        if not whole:
            refused.append(wanted)
    return pushed, refused


def _taken(pushed: Pushed, wanted: Any) -> tuple[Pushed, bool]:  # noqa: ANN401, PLR0911  # a filter of any class; one line a column
    test = type(wanted).__name__
    must_fail = test == "Not"
    if must_fail:
        wanted = wanted.child
        test = type(wanted).__name__
    path: tuple[str, ...] = getattr(wanted, "attribute", ())
    if len(path) != 1:
        return pushed, False
    column = path[0]
    if test in ("IsNull", "IsNotNull"):
        return _null_test(pushed, column, is_null=(test == "IsNull") is not must_fail)
    value = getattr(wanted, "value", None)
    if test not in _TESTS or value is None:
        return pushed, False
    if column in ("topic", "partition"):
        return _partition_test(pushed, column, test, value, must_fail=must_fail)
    if must_fail:
        return pushed, False
    if column == "offset":
        return _offset_test(pushed, test, value)
    if column == "timestamp":
        return _time_test(pushed, test, value), False
    if column == "key":
        return _key_test(pushed, test, value)
    return pushed, False


def _null_test(pushed: Pushed, column: str, *, is_null: bool) -> tuple[Pushed, bool]:
    if column not in _NEVER_NULL:
        return pushed, False
    return (pushed._replace(nothing=True) if is_null else pushed), True


def _partition_test(pushed: Pushed, column: str, test: str, value: Any, *, must_fail: bool) -> tuple[Pushed, bool]:  # noqa: ANN401
    kind = str if column == "topic" else int
    values = value if test == "In" else [value]
    if not all(isinstance(item, kind) for item in values):
        # A null in a list: never true, never false. Spark knows what follows from that.
        return pushed, False
    plain = tuple(value) if test == "In" else value
    return pushed._replace(conditions=(*pushed.conditions, (column, test, plain, must_fail))), True


def _offset_test(pushed: Pushed, test: str, value: Any) -> tuple[Pushed, bool]:  # noqa: ANN401
    values = [item for item in value if item is not None] if test == "In" else [value]
    if not all(isinstance(item, int) for item in values):
        return pushed, False
    if not values:
        return pushed._replace(nothing=True), True
    start, stop = pushed.start, pushed.stop
    if test in ("EqualTo", "EqualNullSafe", "In", "GreaterThanOrEqual"):
        start = max(start, min(values))
    elif test == "GreaterThan":
        start = max(start, value + 1)
    if test in ("EqualTo", "EqualNullSafe", "In", "LessThanOrEqual"):
        stop = _lower(stop, max(values) + 1)
    elif test == "LessThan":
        stop = _lower(stop, value)
    return pushed._replace(start=start, stop=stop), test != "In"


def _time_test(pushed: Pushed, test: str, value: Any) -> Pushed:  # noqa: ANN401
    values = [item for item in value if item is not None] if test == "In" else [value]
    if not values or not all(isinstance(item, datetime) and item.tzinfo is not None for item in values):
        return pushed
    start, stop = pushed.start_timestamp, pushed.stop_timestamp
    # Records have whole ms, Spark's literals have us.
    floor, ceiling = (max(values) - _EPOCH) // _MILLISECOND, millis(min(values))
    if test in ("EqualTo", "EqualNullSafe", "In", "GreaterThanOrEqual"):
        start = _higher(start, ceiling)
    elif test == "GreaterThan":
        start = _higher(start, floor + 1)
    if test in ("EqualTo", "EqualNullSafe", "In", "LessThanOrEqual"):
        stop = _lower(stop, floor + 1)
    elif test == "LessThan":
        stop = _lower(stop, ceiling)
    return pushed._replace(start_timestamp=start, stop_timestamp=stop)


def _key_test(pushed: Pushed, test: str, value: Any) -> tuple[Pushed, bool]:  # noqa: ANN401
    if test not in ("EqualTo", "EqualNullSafe", "In"):
        return pushed, False
    values = [item for item in value if item is not None] if test == "In" else [value]
    if not all(isinstance(item, (bytes, bytearray)) for item in values):
        return pushed, False
    keys = tuple(dict.fromkeys(bytes(item) for item in values))
    if pushed.keys is not None:
        keys = tuple(key for key in pushed.keys if key in keys)
    return pushed._replace(keys=keys, nothing=pushed.nothing or not keys), True


def millis(when: datetime) -> int:
    """Return an aware time in whole ms since 1970, rounded up: ``>=`` and ``<`` stay exact for timestamps of whole ms."""
    return -((_EPOCH - when) // _MILLISECOND)


def _lower(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def _higher(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)
