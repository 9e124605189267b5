"""Filters handed down by Spark: the same rows with and without, and less read with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader

from offsetlog.spark.filters import Pushed, push
from offsetlog.spark.options import settings_from
from offsetlog.spark.planning import plan
from offsetlog.spark.reader import PUSHDOWN_CONF, PushdownReader
from spark_rows import CLEAN_PATH, load

HANDED_DOWN = hasattr(DataSourceReader, "pushFilters")
TIME = datetime(2023, 11, 14, 22, 13, 30, tzinfo=UTC)
TIME_MS = 1_700_000_010_000

QUERIES = [
    "offset >= 100 and offset < 120",
    "offset = 77",
    "offset in (3, 99, 1000000)",
    "offset > 190 or partition = 1",
    "partition = 2 and topic = 'g-plain'",
    "partition <> 0",
    "topic like 'g-co%'",
    "topic in ('g-plain', 'g-time') and partition >= 1",
    "not (topic = 'g-plain')",
    "key = X'6B65792D37'",
    "key in (X'6B65792D37', X'6B65792D39')",
    "key is null",
    "key is not null and value is null",
    "timestamp >= timestamp'2023-11-14 22:13:30' and timestamp < timestamp'2023-11-14 22:14:00'",
    "timestamp = timestamp'2023-11-14 22:13:30'",
    "timestamp is null",
    "timestampType = 0 and offset between 10 and 20",
    "offset is null",
    "topic <=> 'g-time' and offset <=> 5",
    "offset > 10 and offset < 5",
    "key = X'6B65792D37' and key = X'00'",
]


@pytest.fixture(params=["false", "true"], ids=["conf off", "conf on"])
def handing_down(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    """The session's conf, both ways; PySpark 4.0 has none and never hands anything down."""
    spark.conf.set(PUSHDOWN_CONF, request.param)
    yield request.param == "true" and HANDED_DOWN
    spark.conf.unset(PUSHDOWN_CONF)


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_query_works_with_the_conf_on_and_off(spark: SparkSession, *, handing_down: bool, pushdown: str) -> None:
    """A plain pushFilters would fail every query while the conf is off, and a reader cannot see the conf."""
    if handing_down and pushdown == "false":
        pytest.skip("Spark itself refuses nothing here: covered by the other three")
    frame = load(spark, subscribe="g-plain", columns="partition,offset", pushdown=pushdown)
    assert frame.where("offset < 10").count() == 30


def test_filters_change_nothing_but_the_work(spark: SparkSession) -> None:
    """Every query with filters handed down gives the rows that Spark finds by itself."""
    topics = "g-plain,g-time,g-codec-none,g-compact"
    frames = {
        pushdown: load(spark, subscribe=topics, columns="key,value,topic,partition,offset,timestamp,timestampType", pushdown=pushdown)
        for pushdown in ("true", "false")
    }
    everything = frames["false"].cache()
    try:
        expected = {query: rows_of(everything, query) for query in QUERIES}
    finally:
        everything.unpersist()
    assert sum(map(len, expected.values())) > 500
    if HANDED_DOWN:
        spark.conf.set(PUSHDOWN_CONF, "true")
    try:
        for query in QUERIES:
            assert rows_of(frames["true"], query) == expected[query], query
    finally:
        if HANDED_DOWN:
            spark.conf.unset(PUSHDOWN_CONF)


def rows_of(frame: Any, query: str) -> list[tuple[str, int, int]]:  # noqa: ANN401
    rows = frame.where(query).select("topic", "partition", "offset").collect()
    return sorted(map(tuple, rows))


@pytest.mark.skipif(not HANDED_DOWN, reason="PySpark 4.0 hands no filters to Python sources")
def test_spark_knows_what_was_taken(spark: SparkSession) -> None:
    """The plan shows it, and an accepted filter is not applied a second time."""
    spark.conf.set(PUSHDOWN_CONF, "true")
    try:
        frame = load(spark, subscribe="g-plain").where("partition = 1 and offset < 5 and length(value) > 2")
        text = frame._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001  # PySpark shows the plan no other way
        assert frame.rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset(PUSHDOWN_CONF)
    assert "PushedFilters" in text
    assert "(partition" not in text.partition("PushedFilters")[0] or "length(value" in text


# What is taken, without a Spark: stand-ins of the same shape, as PySpark 4.0 has no filter classes.


@dataclass(frozen=True)
class _Compared:
    attribute: tuple[str, ...]
    value: Any = None


class EqualTo(_Compared): ...


class EqualNullSafe(_Compared): ...


class GreaterThan(_Compared): ...


class GreaterThanOrEqual(_Compared): ...


class LessThan(_Compared): ...


class LessThanOrEqual(_Compared): ...


class In(_Compared): ...


class StringStartsWith(_Compared): ...


class StringContains(_Compared): ...


class IsNull(_Compared): ...


class IsNotNull(_Compared): ...


@dataclass(frozen=True)
class Not:
    child: Any


OFFSET, TOPIC, PARTITION, KEY, WHEN = ("offset",), ("topic",), ("partition",), ("key",), ("timestamp",)


def test_the_stand_ins_are_named_as_sparks_filters() -> None:
    if not HANDED_DOWN:
        pytest.skip("PySpark 4.0 has no filter classes")
    import pyspark.sql.datasource as pyspark_filters

    for kind in (
        EqualTo,
        EqualNullSafe,
        GreaterThan,
        GreaterThanOrEqual,
        LessThan,
        LessThanOrEqual,
        In,
        StringStartsWith,
        StringContains,
        IsNull,
        IsNotNull,
        Not,
    ):
        theirs = getattr(pyspark_filters, kind.__name__)
        fields = {"child"} if kind is Not else {"attribute"} | ({"value"} if kind not in (IsNull, IsNotNull) else set())
        assert fields <= set(theirs.__dataclass_fields__), kind


@pytest.mark.parametrize(
    ("filters", "pushed", "refused"),
    [
        ([GreaterThan(OFFSET, 4), LessThanOrEqual(OFFSET, 9)], Pushed(start=5, stop=10), 0),
        ([GreaterThanOrEqual(OFFSET, 4), LessThan(OFFSET, 9), IsNotNull(OFFSET)], Pushed(start=4, stop=9), 0),
        ([EqualTo(OFFSET, 4)], Pushed(start=4, stop=5), 0),
        ([In(OFFSET, [9, 4, None])], Pushed(start=4, stop=10), 1),
        ([Not(EqualTo(OFFSET, 4))], Pushed(), 1),
        ([EqualTo(KEY, b"a")], Pushed(keys=(b"a",)), 0),
        ([In(KEY, [b"a", b"b"]), EqualTo(KEY, b"b")], Pushed(keys=(b"b",)), 0),
        ([EqualTo(KEY, b"a"), EqualTo(KEY, b"b")], Pushed(keys=(), nothing=True), 0),
        ([IsNull(KEY)], Pushed(), 1),
        ([IsNull(TOPIC)], Pushed(nothing=True), 0),
        ([Not(IsNull(TOPIC))], Pushed(), 0),
        ([GreaterThan(WHEN, TIME)], Pushed(start_timestamp=TIME_MS + 1), 1),
        ([GreaterThan(WHEN, TIME + timedelta(microseconds=1))], Pushed(start_timestamp=TIME_MS + 1), 1),
        ([GreaterThanOrEqual(WHEN, TIME + timedelta(microseconds=1))], Pushed(start_timestamp=TIME_MS + 1), 1),
        ([LessThan(WHEN, TIME)], Pushed(stop_timestamp=TIME_MS), 1),
        ([LessThan(WHEN, TIME + timedelta(microseconds=1))], Pushed(stop_timestamp=TIME_MS + 1), 1),
        ([LessThanOrEqual(WHEN, TIME)], Pushed(stop_timestamp=TIME_MS + 1), 1),
        ([EqualTo(WHEN, TIME)], Pushed(start_timestamp=TIME_MS, stop_timestamp=TIME_MS + 1), 1),
        ([GreaterThan(WHEN, TIME.replace(tzinfo=None))], Pushed(), 1),
        ([EqualTo(("value",), b"a")], Pushed(), 1),
        ([EqualTo(("headers", "key"), "a")], Pushed(), 1),
        ([GreaterThan(TOPIC, "a"), In(PARTITION, [1, None])], Pushed(conditions=(("topic", "GreaterThan", "a", False),)), 1),
    ],
    ids=str,
)
def test_what_is_taken_of_a_filter(filters: list[Any], pushed: Pushed, refused: int) -> None:
    found, left = push(filters)
    assert found == pushed
    assert len(left) == refused
    assert all(any(one is other for other in filters) for one in left)


def test_partitions_are_chosen_by_their_names() -> None:
    pushed, refused = push([StringStartsWith(TOPIC, "g-"), Not(EqualTo(PARTITION, 0)), Not(StringContains(TOPIC, "time"))])
    assert not refused
    assert pushed.admits("g-plain", 1)
    assert not pushed.admits("g-plain", 0)
    assert not pushed.admits("g-time", 1)
    assert not pushed.admits("h-plain", 1)


def test_filters_leave_less_to_read() -> None:
    """Ten of fifteen hundred offsets, one of three partitions."""
    settings = settings_from({"path": CLEAN_PATH, "subscribe": "g-many-entries,g-plain"})
    reader = PushdownReader(settings)
    assert list(reader.pushFilters([GreaterThanOrEqual(OFFSET, 700), LessThan(OFFSET, 710)])) == []
    ((entry,),) = [partition.value for partition in reader.partitions()]
    assert entry[1:5] == ("g-many-entries", 0, 700, 710)
    pushed, _ = push([EqualTo(TOPIC, "g-plain"), EqualTo(PARTITION, 1)])
    assert [(split.topic, split.partition) for task in plan(settings, pushed) for split in task] == [("g-plain", 1)]
    nothing, _ = push([IsNull(OFFSET)])
    assert plan(settings, nothing) == []
