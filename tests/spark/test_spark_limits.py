"""Where reading starts and ends: by offsets, by times, against what the broker itself answered."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from golden import Golden, named
from pyspark.sql import SparkSession

from offsetlog import ConfigError, LogDirError, OffsetOutOfRangeError
from offsetlog.spark import splits
from offsetlog.spark.pattern import java_pattern
from spark_rows import CLEAN_PATH, load, offsets, only

PLAIN = named("g-plain-0", "g-plain-1", "g-plain-2")


def span(**options: Any) -> dict[str, tuple[int, int]]:  # noqa: ANN401  # options of every kind  # noqa: ANN401  # options of any kind
    """First and behind-last offset of each partition that is planned."""
    found: dict[str, tuple[int, int]] = {}
    for split in splits(CLEAN_PATH, **options):
        name = f"{split.topic}-{split.partition}"
        start, _ = found.get(name, (split.start, 0))
        found[name] = start, split.stop
    return found


def by_partition(numbers: dict[int, int], topic: str = "g-plain") -> str:
    return json.dumps({topic: {str(partition): number for partition, number in numbers.items()}})


def test_offsets_are_inclusive_at_the_start_and_exclusive_at_the_end(spark: SparkSession) -> None:
    start, end = by_partition({0: 23, 1: -2, 2: 199}), by_partition({0: 42, 1: 10, 2: -1})
    frame = load(spark, subscribe="g-plain", startingOffsets=start, endingOffsets=end)
    expected = {("g-plain", 0): range(23, 42), ("g-plain", 1): range(10), ("g-plain", 2): range(199, 200)}
    assert offsets(frame) == {
        (golden.topic, golden.partition): [
            offset for offset in only(golden.rows) if offset in expected[golden.topic, golden.partition]
        ]
        for golden in PLAIN
    }


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    "golden", named("g-time-0", "g-time-1", "g-time-2", "g-txn-0", "g-appendtime-0", "g-compact-0"), ids=lambda golden: golden.name
)
def test_times_resolve_as_the_broker_resolved_them(golden: Golden, level: str) -> None:
    """Every look-up by time that the broker answered, as a start and as an end."""
    end = golden.end if level == "read_uncommitted" else golden.last_stable_offset
    chosen: dict[str, Any] = {"assign": {golden.topic: [golden.partition]}, "isolationLevel": level}
    queries = [query for query in golden.time_queries if query.isolation_level == level]
    assert queries
    for query in queries:
        answer = end if query.answer is None else query.answer[0]
        started = {golden.name: (answer, end)} if answer < end else {}
        ended = {golden.name: (golden.start, answer)} if answer > golden.start else {}
        assert span(**chosen, startingTimestamp=query.when, startingOffsetsByTimestampStrategy="latest") == started
        assert span(**chosen, endingTimestamp=query.when) == ended
        times = by_partition({golden.partition: query.when}, golden.topic)
        assert span(**chosen, startingOffsetsByTimestamp=times, startingOffsetsByTimestampStrategy="latest") == started
        assert span(**chosen, endingOffsetsByTimestamp=times) == ended


def test_a_time_range_through_spark_reads_between_two_offsets(spark: SparkSession) -> None:
    (golden,) = named("g-codec-lz4-0")
    start, stop = golden.rows[100], golden.rows[700]
    frame = load(spark, subscribe=golden.topic, startingTimestamp=start.timestamp, endingTimestamp=stop.timestamp)
    (found,) = offsets(frame).values()
    first = next(row.offset for row in golden.rows if row.timestamp >= start.timestamp)
    last = next(row.offset for row in golden.rows if row.timestamp >= stop.timestamp)
    assert found == [offset for offset in only(golden.rows) if first <= offset < last]


def test_no_record_at_or_after_the_start_is_an_error_or_the_latest() -> None:
    late = 1 << 60
    with pytest.raises(ConfigError, match=r"option startingTimestamp: g-plain-\d has no record at or after"):
        span(subscribe="g-plain", startingTimestamp=late)
    with pytest.raises(ConfigError, match="option startingOffsetsByTimestamp: g-plain-2 has no record"):
        span(subscribe="g-plain", startingOffsetsByTimestamp=by_partition({0: 0, 1: 0, 2: late}))
    assert span(subscribe="g-plain", startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == {}
    whole = {golden.name: (golden.start, golden.end) for golden in PLAIN}
    assert span(subscribe="g-plain", endingTimestamp=late) == whole


def test_offsets_and_times_name_exactly_the_partitions_that_are_read() -> None:
    with pytest.raises(ConfigError, match=r"option startingOffsets: must name exactly .*without g-plain-1, g-plain-2"):
        span(subscribe="g-plain", startingOffsets=by_partition({0: 1}))
    with pytest.raises(ConfigError, match=r"option endingOffsets: .*with g-plain-3, which is not read"):
        span(subscribe="g-plain", endingOffsets=by_partition({0: 1, 1: 1, 2: 1, 3: 1}))
    with pytest.raises(ConfigError, match=r"option startingOffsetsByTimestamp: .*without g-plain-2"):
        span(subscribe="g-plain", startingOffsetsByTimestamp=by_partition({0: 1, 1: 1}))


def test_a_start_behind_its_end_is_refused() -> None:
    start, end = by_partition({0: 50, 1: 0, 2: 0}), by_partition({0: 49, 1: -1, 2: -1})
    with pytest.raises(ConfigError, match="g-plain-0 would start at offset 50, behind its end 49"):
        span(subscribe="g-plain", startingOffsets=start, endingOffsets=end)
    with pytest.raises(ConfigError, match=r"option startingTimestamp: g-plain-\d would start at offset \d+, behind its end 0"):
        span(subscribe="g-plain", startingTimestamp=PLAIN[0].rows[-1].timestamp - 1, endingTimestamp=0)


def test_offsets_that_are_gone_are_data_loss(caplog: pytest.LogCaptureFixture) -> None:
    """g-deleted-prefix-0 begins at 74: what lies before was deleted through the broker."""
    gone: dict[str, Any] = {"assign": {"g-deleted-prefix": [0]}, "startingOffsets": by_partition({0: 3}, "g-deleted-prefix")}
    with pytest.raises(OffsetOutOfRangeError, match="g-deleted-prefix-0 holds offsets 74 to 150, found 3") as caught:
        span(**gone)
    assert (caught.value.requested, caught.value.log_start_offset, caught.value.log_end_offset) == (3, 74, 150)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert span(**gone, failOnDataLoss=False) == {"g-deleted-prefix-0": (74, 150)}
    assert "g-deleted-prefix-0 holds offsets 74 to 150, found 3" in caplog.text
    beyond: dict[str, Any] = {"assign": {"g-deleted-prefix": [0]}, "endingOffsets": by_partition({0: 151}, "g-deleted-prefix")}
    with pytest.raises(OffsetOutOfRangeError, match="found 151"):
        span(**beyond)
    assert span(**beyond, failOnDataLoss=False) == {"g-deleted-prefix-0": (74, 150)}


def test_a_missing_topic_is_data_loss(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="topic 'g-gone' is not in"):
        span(subscribe="g-plain,g-gone")
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert len(span(subscribe="g-plain,g-gone", failOnDataLoss=False)) == 3
    assert "topic 'g-gone' is not in" in caplog.text


def test_committed_readers_end_at_the_last_stable_offset() -> None:
    (golden,) = named("g-txn-0")
    assert golden.last_stable_offset < golden.end
    chosen: dict[str, Any] = {"assign": {"g-txn": [0]}}
    assert span(**chosen) == {golden.name: (0, golden.end)}
    assert span(**chosen, isolationLevel="read_committed") == {golden.name: (0, golden.last_stable_offset)}
    assert span(**chosen, **{"kafka.isolation.level": "read_committed"}) == {golden.name: (0, golden.last_stable_offset)}


def test_assign_leaves_out_partitions_that_are_not_there() -> None:
    """As Spark's Kafka source does."""
    assert set(span(assign={"g-plain": [2, 0, 7], "g-idem": [1]})) == {"g-plain-0", "g-plain-2", "g-idem-1"}


def test_empty_partitions_make_no_task() -> None:
    assert splits(CLEAN_PATH, subscribe="g-empty") == []
    assert "g-deleted-prefix-1" not in span(subscribe="g-deleted-prefix")


def test_an_empty_topic_reads_as_no_rows(spark: SparkSession) -> None:
    frame = load(spark, subscribe="g-empty")
    assert frame.collect() == []


def test_a_pattern_is_found_anywhere_and_skips_internal_topics(spark: SparkSession) -> None:
    """Java's find, not match; and a consumer's pattern never gives Kafka's own topics."""
    frame = load(spark, subscribePattern="time", columns="topic,partition,offset")
    assert {topic for topic, _ in offsets(frame)} == {"g-time", "g-appendtime"}
    everything = set(span(subscribePattern=".*"))
    assert everything
    assert not any(name.startswith("__") for name in everything)
    assert {name.rpartition("-")[0] for name in span(subscribePattern="^g-t[a-z]*$")} == {"g-time", "g-txn"}
    assert span(subscribePattern="no such topic") == {}
    assert "__consumer_offsets-0" in span(subscribe="__consumer_offsets")


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        (r"\Qa.b\E", ["xa.bx"], ["axb"]),
        (r"\p{Lower}+\d", ["AB-c1"], ["A1"]),
        (r"^\p{Alpha}+\z", ["abC"], ["ab1"]),
        (r"[\p{Digit}_]$", ["a_", "a7"], ["a-"]),
        (r"(?<word>ab)-\k<word>", ["ab-ab"], ["ab-ba"]),
        (r"(?<=x)y(?!z)", ["xy"], ["xyz", "ay"]),
        (r"(?i)ORDERS", ["my-orders"], ["order"]),
        (r"a++b", ["aab"], ["aa"]),
        (r"\P{Digit}", ["1a"], ["12"]),
        (r"[^]a]b", ["cb"], ["ab", "]b"]),
    ],
)
def test_java_patterns_mean_the_same_here(pattern: str, found: list[str], not_found: list[str]) -> None:
    compiled = java_pattern(pattern)
    assert all(compiled.search(name) for name in found)
    assert not any(compiled.search(name) for name in not_found)


@pytest.mark.parametrize("pattern", ["[a-z&&[^b]]", "[a[bc]]", r"\p{IsGreek}", "*a"])
def test_java_patterns_without_an_equal_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="option subscribePattern: ") as caught:
        java_pattern(pattern)
    assert repr(pattern) in str(caught.value)


def test_log_dir_errors_keep_their_class(tmp_path: object) -> None:
    """A log dir that is a file, or that does not exist, says so."""
    with pytest.raises((OSError, LogDirError), match="No such file or directory"):
        splits(f"{tmp_path}/none", subscribe="t")
