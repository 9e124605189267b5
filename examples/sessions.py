"""Sessions of each key straight from the logs: who was there, from when to when, and with which record it began.

    python examples/sessions.py /mnt/kafka-1 /mnt/kafka-2 --topic clicks --gap 1800 --into sessions.parquet

A session ends where nothing comes for longer than the gap (seconds). docs/pipelines.md explains it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

# Spark's workers would else run whichever `python3` comes first on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession, Window, functions as fn

import offsetlog.spark


def sessions(spark: SparkSession, log_dirs: Sequence[str | Path], topic: str, gap: timedelta) -> DataFrame:
    """Return a row for each session: key, first and last time, number of records, first record's place and value.

    Values are not read to find the sessions, which needs keys and times alone; the few that are wanted are looked up by offset.
    """
    paths = [str(path) for path in log_dirs]
    records = offsetlog.spark.scan(
        spark, paths, subscribe=topic, columns=["key", "timestamp", "partition", "offset"], isolation_level="read_committed"
    ).where("key is not null")
    # Equal times: in the order of the log, as one key has one partition.
    of_key = Window.partitionBy("key").orderBy("timestamp", "partition", "offset")
    pause = fn.unix_micros("timestamp") - fn.lag(fn.unix_micros("timestamp")).over(of_key)
    begins = (pause.isNull() | (pause > gap // timedelta(microseconds=1))).cast("int")
    first = fn.struct("timestamp", "partition", "offset")
    found = (
        records.withColumn("begins", begins)
        .withColumn("session", fn.sum("begins").over(of_key))
        .groupBy("key", "session")
        .agg(fn.min(first).alias("first"), fn.max("timestamp").alias("ended"), fn.count("*").alias("records"))
    )
    value = offsetlog.spark.lookup(paths, "value", missing="error")
    return found.select(
        "key",
        fn.col("first.timestamp").alias("began"),
        "ended",
        "records",
        fn.col("first.partition").alias("partition"),
        fn.col("first.offset").alias("offset"),
        value(fn.lit(topic), "first.partition", "first.offset").alias("first_value"),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the sessions, and show the longest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log_dirs", nargs="+", type=Path, metavar="LOG_DIR", help="what the broker's `log.dirs` named")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--gap", type=float, default=1800, metavar="SECONDS", help="the pause that ends a session (1800)")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="where the Parquet goes")
    given = parser.parse_args(arguments)
    spark = SparkSession.builder.appName("sessions").getOrCreate()
    sessions(spark, given.log_dirs, given.topic, timedelta(seconds=given.gap)).write.parquet(str(given.into))
    written = spark.read.parquet(str(given.into))
    totals = written.agg(fn.count("*"), fn.count_distinct("key"), fn.sum("records")).head()
    if totals is None or not totals[0]:
        print(f"no sessions: {given.topic} holds no records with a key")
        return
    print(f"{totals[0]:,} sessions of {totals[1]:,} keys, {totals[2]:,} records, in {given.into}. The largest:")
    largest = written.orderBy(fn.desc("records"), "began").withColumn("key", fn.col("key").cast("string"))
    largest.select("key", "began", "ended", "records", "partition", "offset").show(10, truncate=32)


if __name__ == "__main__":
    main()
