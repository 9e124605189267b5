"""Backfill a topic from Parquet: keys routed as Java's producer does, times from a column, nothing published twice.

    python examples/parquet_to_topic.py orders.parquet --into logs --topic orders --partitions 6 \
--key order_id --timestamp created_at --job backfill-2026-03

The rest of the columns becomes a JSON object, or one column is the value (--value). docs/pipelines.md explains it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Spark's workers would else run whichever `python3` comes first on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import Column, DataFrame, SparkSession, functions as fn
from pyspark.sql.types import BinaryType, TimestampType

from offsetlog import LogDir


def records(rows: DataFrame, *, key: str, timestamp: str, value: str | None = None) -> DataFrame:
    """Return the columns of a record: `key` as text or bytes, the time, and the value, by default all columns as a JSON object."""

    def content(name: str) -> Column:
        return fn.col(name) if isinstance(rows.schema[name].dataType, BinaryType) else fn.col(name).cast("string")

    # A cast would make years of numbers, and midnight in the session's zone of dates.
    if not isinstance(rows.schema[timestamp].dataType, TimestampType):
        message = f"column {timestamp!r} must be a timestamp, found {rows.schema[timestamp].dataType.simpleString()}"
        raise TypeError(message)
    return rows.select(
        content(key).alias("key"),
        (fn.to_json(fn.struct("*")) if value is None else content(value)).alias("value"),
        fn.col(timestamp).alias("timestamp"),
    )


def publish(  # noqa: PLR0913  # one parameter a choice
    spark: SparkSession,
    parquet: str | Path,
    into: str | Path,
    topic: str,
    job: str,
    *,
    key: str,
    timestamp: str,
    value: str | None = None,
    partitions: int | None = None,
) -> dict[int, int]:
    """Publish every row once, however often a job of this name is run; return where each partition ends.

    In each partition the records stand in the order of their times, of equal ones in that of their keys.
    """
    rows = records(spark.read.parquet(str(parquet)), key=key, timestamp=timestamp, value=value)
    (
        # A task has a range of times, and tasks are published in their order.
        rows.repartitionByRange("timestamp", "key")
        .sortWithinPartitions("timestamp", "key")
        .write.format("offsetlog")
        .mode("append")
        .option("topic", topic)
        .options(**({} if partitions is None else {"partitions": str(partitions)}))
        .option("compression.type", "zstd")
        # History is older than any retention: whoever takes the topic over decides what stays.
        .option("retention.ms", -1)
        .option("transactionId", job)
        .save(str(into))
    )
    with LogDir.open(into) as logs:
        ends = logs.end_offsets((topic, number) for number in logs.topics()[topic])
    return {partition.partition: end for partition, end in ends.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish, and say what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parquet", type=Path, help="a file or a folder")
    parser.add_argument("--into", type=Path, required=True, metavar="LOG_DIR", help="made if missing; no broker may run on it")
    parser.add_argument("--topic", required=True, help="made if missing")
    parser.add_argument("--partitions", type=int, help="of a topic that is made (1)")
    parser.add_argument("--key", required=True, metavar="COLUMN", help="routes the record")
    parser.add_argument("--timestamp", required=True, metavar="COLUMN", help="time of the record")
    parser.add_argument("--value", metavar="COLUMN", help="the record's value (all columns, as JSON)")
    parser.add_argument("--job", required=True, metavar="NAME", help="under one name, rows are published once")
    given = parser.parse_args(arguments)
    spark = SparkSession.builder.appName(given.job).getOrCreate()
    columns = {"key": given.key, "timestamp": given.timestamp, "value": given.value}
    ends = publish(spark, given.parquet, given.into, given.topic, given.job, partitions=given.partitions, **columns)
    for partition, end in sorted(ends.items()):
        print(f"{given.topic}-{partition}: {end:,} records")
    print(f"{sum(ends.values()):,} records in {given.into}")


if __name__ == "__main__":
    main()
