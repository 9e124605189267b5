"""Filters handed down by Spark: the same rows with and without, and less read with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader

from offsetlog.spark.filters import Pushed, push
from offsetlog.spark.options import settings_from
from offsetlog.spark.planning import plan
from offsetlog.spark.reader import PushdownReader
from spark_rows import CLEAN_PATH, load

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
TOPICS = "g-plain,g-time,g-codec-none,g-compact"
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
    "timestamp = timestamp'2023-11-14 22:13:39.000000'",
    "timestamp is null",
    "timestampType = 0 and offset between 10 and 20",
    "offset is null",
    "topic <=> 'g-time' and offset <=> 5",
    "offset > 10 and offset < 5",
    "key = X'6B65792D37' and key = X'00'",
]
NEVER_TRUE = ["timestamp is null", "offset is null", "offset > 10 and offset < 5", "key = X'6B65792D37' and key = X'00'"]


@pytest.fixture(params=["false", "true"], ids=["conf off", "conf on"])
def conf(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """The session's conf, both ways; PySpark 4.0 has none, takes any, and never hands anything down."""
    spark.conf.set(PUSHDOWN_CONF, request.param)
    yield request.param
    spark.conf.unset(PUSHDOWN_CONF)


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_query_works_with_the_conf_on_and_off(spark: SparkSession, conf: str, pushdown: str) -> None:
    """But for the option that would do nothing: that is refused, with the name of the conf."""
    frame = load(spark, subscribe="g-plain", columns="partition,offset", pushdown=pushdown)
    if pushdown == "true" and (conf == "false" or not HANDED_DOWN):
        with pytest.raises(Exception, match=PUSHDOWN_CONF if HANDED_DOWN else "4.1 or later"):
            frame.where("offset < 10").count()
    else:
        assert frame.where("offset < 10").count() == 30


@pytest.mark.usefixtures("conf")
def test_a_frame_may_be_used_again(spark: SparkSession) -> None:
    """Filters of one use do not touch another one, in one query or in the next, unless `pushdown` was asked for."""
    frame = load(spark, subscribe="g-plain", columns="partition,offset")
    early, late = frame.where("offset < 5"), frame.where("partition = 0 and offset >= 193")
    assert early.union(late).count() == 15 + 7
    assert early.count() == 15
    assert frame.count() == 600
    assert early.join(frame, "offset").count() == 45


@pytest.mark.skipif(not HANDED_DOWN, reason="PySpark 4.0 hands no filters to Python sources")
def test_spark_mixes_up_filters_of_one_frame(spark: SparkSession) -> None:
    """The reason why `pushdown` is off unless asked for. When this fails, Spark is mended: see whether it can be on."""
    spark.conf.set(PUSHDOWN_CONF, "true")
    try:
        frame = load(spark, subscribe="g-plain", columns="partition,offset", pushdown="true")
        assert frame.where("offset < 5").count() == 15
        assert frame.count() == 15
    finally:
        spark.conf.unset(PUSHDOWN_CONF)


@pytest.mark.skipif(not HANDED_DOWN, reason="PySpark 4.0 hands no filters to Python sources")
@pytest.mark.parametrize("query", QUERIES)
def test_filters_change_nothing_but_the_work(spark: SparkSession, everything: DataFrame, query: str) -> None:
    """Every query with filters handed down gives the rows that Spark finds by itself."""
    spark.conf.set(PUSHDOWN_CONF, "true")
    try:
        frame = load(spark, subscribe=TOPICS, columns="key,value,topic,partition,offset,timestamp,timestampType", pushdown="true")
        found = rows_of(frame, query)
    finally:
        spark.conf.unset(PUSHDOWN_CONF)
    assert found == rows_of(everything, query)


@pytest.fixture(scope="module")
def everything(spark: SparkSession) -> Iterator[DataFrame]:
    """The same topics, read whole and kept: Spark alone filters."""
    frame = load(spark, subscribe=TOPICS, columns="key,value,topic,partition,offset,timestamp,timestampType").cache()
    yield frame
    frame.unpersist()


def test_the_queries_find_something(everything: DataFrame) -> None:
    """Else the test above would compare nothing with nothing; some of the queries are never true."""
    sizes = [len(rows_of(everything, query)) for query in QUERIES]
    assert [query for query, size in zip(QUERIES, sizes, strict=True) if size == 0] == NEVER_TRUE
    assert max(sizes) < everything.count()


def rows_of(frame: DataFrame, query: str) -> list[tuple[str, int, int]]:
    rows = frame.where(query).select("topic", "partition", "offset").collect()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


@pytest.mark.skipif(not HANDED_DOWN, reason="PySpark 4.0 hands no filters to Python sources")
def test_filters_reach_the_plan_through_spark(spark: SparkSession) -> None:
    """One task instead of fifteen: the ranges are cut after the filter."""
    options = {"subscribe": "g-many-entries", "columns": "offset", "maxRecordsPerPartition": "100"}
    spark.conf.set(PUSHDOWN_CONF, "true")
    try:
        taken = load(spark, **options, pushdown="true").where("offset >= 700 and offset < 710")
        assert (taken.rdd.getNumPartitions(), taken.count()) == (1, 10)
        left = load(spark, **options).where("offset >= 700 and offset < 710")
        assert (left.rdd.getNumPartitions(), left.count()) == (15, 10)
    finally:
        spark.conf.unset(PUSHDOWN_CONF)


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
    ("filters", "pushed"),
    [
        ([GreaterThan(OFFSET, 4), LessThanOrEqual(OFFSET, 9)], Pushed(start=5, stop=10)),
        ([GreaterThanOrEqual(OFFSET, 4), LessThan(OFFSET, 9), IsNotNull(OFFSET)], Pushed(start=4, stop=9)),
        ([EqualTo(OFFSET, 4)], Pushed(start=4, stop=5)),
        ([In(OFFSET, [9, 4, None])], Pushed(start=4, stop=10)),
        ([Not(EqualTo(OFFSET, 4))], Pushed()),
        ([EqualTo(KEY, b"a")], Pushed(keys=(b"a",))),
        ([In(KEY, [b"a", b"b"]), EqualTo(KEY, b"b")], Pushed(keys=(b"b",))),
        ([EqualTo(KEY, b"a"), EqualTo(KEY, b"b")], Pushed(keys=(), nothing=True)),
        ([IsNull(KEY)], Pushed()),
        ([IsNull(TOPIC)], Pushed(nothing=True)),
        ([Not(IsNull(TOPIC))], Pushed()),
        ([GreaterThan(WHEN, TIME)], Pushed(start_timestamp=TIME_MS + 1)),
        ([GreaterThan(WHEN, TIME + timedelta(microseconds=1))], Pushed(start_timestamp=TIME_MS + 1)),
        ([GreaterThanOrEqual(WHEN, TIME + timedelta(microseconds=1))], Pushed(start_timestamp=TIME_MS + 1)),
        ([LessThan(WHEN, TIME)], Pushed(stop_timestamp=TIME_MS)),
        ([LessThan(WHEN, TIME + timedelta(microseconds=1))], Pushed(stop_timestamp=TIME_MS + 1)),
        ([LessThanOrEqual(WHEN, TIME)], Pushed(stop_timestamp=TIME_MS + 1)),
        ([EqualTo(WHEN, TIME)], Pushed(start_timestamp=TIME_MS, stop_timestamp=TIME_MS + 1)),
        ([GreaterThan(WHEN, TIME.replace(tzinfo=None))], Pushed()),
        ([EqualTo(("value",), b"a")], Pushed()),
        ([EqualTo(("headers", "key"), "a")], Pushed()),
        ([GreaterThan(TOPIC, "a"), In(PARTITION, [1, None])], Pushed(conditions=(("topic", "GreaterThan", "a", False),))),
    ],
    ids=str,
)
def test_what_is_taken_of_a_filter(filters: list[Any], pushed: Pushed) -> None:
    assert push(filters) == pushed


def test_every_filter_goes_back_to_spark() -> None:
    """The very objects: Spark tells them by identity."""
    filters = [EqualTo(OFFSET, 4), EqualTo(("value",), b"a")]
    reader = PushdownReader(settings_from({"path": CLEAN_PATH, "subscribe": "g-plain"}))
    returned = list(reader.pushFilters(filters))
    assert all(one is other for one, other in zip(returned, filters, strict=True))


def test_partitions_are_chosen_by_their_names() -> None:
    pushed = push([StringStartsWith(TOPIC, "g-"), Not(EqualTo(PARTITION, 0)), Not(StringContains(TOPIC, "time"))])
    assert pushed.admits("g-plain", 1)
    assert not pushed.admits("g-plain", 0)
    assert not pushed.admits("g-time", 1)
    assert not pushed.admits("h-plain", 1)


def test_filters_leave_less_to_read() -> None:
    """Ten of fifteen hundred offsets, one of three partitions."""
    settings = settings_from({"path": CLEAN_PATH, "subscribe": "g-many-entries,g-plain"})
    reader = PushdownReader(settings)
    reader.pushFilters([GreaterThanOrEqual(OFFSET, 700), LessThan(OFFSET, 710)])
    ((entry,),) = [partition.value for partition in reader.partitions()]
    assert entry[1:5] == ("g-many-entries", 0, 700, 710)
    pushed = push([EqualTo(TOPIC, "g-plain"), EqualTo(PARTITION, 1)])
    assert [(split.topic, split.partition) for task in plan(settings, pushed) for split in task] == [("g-plain", 1)]
    nothing = push([IsNull(OFFSET)])
    assert plan(settings, nothing) == []
