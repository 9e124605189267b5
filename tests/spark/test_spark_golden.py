"""Spark reads what a real consumer read: every partition of the directories that real brokers wrote, field by field."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from golden import CLEAN_PARTITIONS, OLD_LOG_DIRS, OLD_PARTITIONS, Golden, Row, expected_names
from pyspark.sql import SparkSession

from spark_rows import ALL_COLUMNS, CLEAN_PATH, collected, load

OLD_PATH = ",".join(map(str, OLD_LOG_DIRS))


def _topics(partitions: Iterable[Golden]) -> str:
    # Named, not by pattern: a pattern leaves Kafka's internal topics out.
    return ",".join(sorted({golden.topic for golden in partitions}))


def _expected(partitions: Iterable[Golden], *, committed: bool) -> dict[tuple[str, int], list[Row]]:
    rows = {(golden.topic, golden.partition): list(golden.committed if committed else golden.rows) for golden in partitions}
    return {partition: found for partition, found in rows.items() if found}


@pytest.mark.parametrize("committed", [False, True], ids=["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    ("path", "partitions", "expected"),
    [(CLEAN_PATH, CLEAN_PARTITIONS, "kafka-4.3.0-clean"), (OLD_PATH, OLD_PARTITIONS, "kafka-2.8.2")],
    ids=["kafka-4.3.0", "kafka-2.8.2"],
)
def test_every_partition_is_read_as_a_consumer_saw_it(
    spark: SparkSession, path: str, partitions: list[Golden], expected: str, *, committed: bool
) -> None:
    """Keys, values, headers, timestamps, their types and leader epochs; each offset once; nothing else."""
    assert {golden.name for golden in partitions} == expected_names(expected)
    level = "read_committed" if committed else "read_uncommitted"
    frame = load(spark, path, subscribe=_topics(partitions), columns=ALL_COLUMNS, isolationLevel=level)
    found = collected(frame)
    wanted = _expected(partitions, committed=committed)
    assert found.keys() == wanted.keys()
    for partition, rows in wanted.items():
        assert found[partition] == rows, partition


def test_the_two_isolation_levels_differ_where_transactions_are(spark: SparkSession) -> None:
    """Else the test above could not tell one from the other."""
    sizes = {
        level: load(spark, subscribe="g-txn", columns="offset", isolationLevel=level).count()
        for level in ("read_uncommitted", "read_committed")
    }
    golden = [golden for golden in CLEAN_PARTITIONS if golden.topic == "g-txn"]
    assert sizes["read_uncommitted"] == sum(golden.counts[0] for golden in golden)
    assert sizes["read_committed"] == sum(golden.counts[1] for golden in golden)
    assert sizes["read_committed"] < sizes["read_uncommitted"]


def test_a_partition_directory_is_read_without_naming_its_topic(spark: SparkSession) -> None:
    """The path says all there is to say."""
    golden = next(golden for golden in CLEAN_PARTITIONS if golden.name == "g-codec-zstd-0")
    found = collected(load(spark, str(golden.directory), columns=ALL_COLUMNS))
    assert found == {("g-codec-zstd", 0): list(golden.rows)}
