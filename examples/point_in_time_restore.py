"""Restore topics as they were at a point in time: the records before it, with their offsets, times and leader epochs.

    python examples/point_in_time_restore.py /mnt/kafka-1 --topics orders,payments --until 2026-03-04T11:55Z --into logs

The sources are only read. The target is a new folder, or the log dir of a stopped broker in which these topics are empty. Run
again after a crash, it finishes what it began. docs/pipelines.md explains it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

# Spark's workers would else run whichever `python3` comes first on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

from offsetlog import LogDir, TopicPartition

COLUMNS = "key,value,topic,partition,offset,timestamp,headers"


def restore(  # noqa: PLR0913  # one parameter a choice
    spark: SparkSession,
    sources: Sequence[str | Path],
    topics: Sequence[str],
    until: datetime,
    into: str | Path,
    *,
    new_cluster: bool = False,
) -> dict[TopicPartition, tuple[int, int]]:
    """Restore each partition up to its first record at or after `until`; return first and end offset of each.

    Only committed records are restored, as the producers that had a transaction open are gone. With `new_cluster` the leader epochs
    begin anew, as those of topics do that were just created.
    """
    with LogDir.open(sources) as old, LogDir.open(into, "a") as new:
        numbers = {topic: old.topics()[topic] for topic in topics}
        for topic in topics:
            if topic not in new.topics():
                # Retention is for the one who takes the restored topic over: what is restored is old.
                new.create_topic(topic, max(numbers[topic]) + 1, config={"retention.ms": -1})
        starts = old.beginning_offsets((topic, number) for topic in topics for number in numbers[topic])
    records = (
        spark.read.format("offsetlog")
        .option("subscribe", ",".join(topics))
        .option("endingTimestamp", int(until.timestamp() * 1000))
        .option("isolationLevel", "read_committed")
        .option("columns", COLUMNS if new_cluster else f"{COLUMNS},leaderEpoch")
        .load([str(path) for path in sources])
    )
    (
        records.repartitionByRange("topic", "partition", "offset")
        .sortWithinPartitions("topic", "partition", "offset")
        .write.format("offsetlog")
        .mode("append")
        .option("preserveOffsets", "true")
        # What was published under this name is not published again.
        .option("transactionId", f"restore {','.join(topics)} from {','.join(map(str, sources))} until {until.isoformat()}")
        .save(str(into))
    )
    with LogDir.open(into, "a") as new:
        for partition, start in starts.items():
            log = new.log(*partition)
            # What had been deleted from the start of the old log is no part of the new one either.
            log.delete_records_before(min(start, log.log_end_offset))
        beginnings, ends = new.beginning_offsets(starts), new.end_offsets(starts)
    return {partition: (beginnings[partition], ends[partition]) for partition in starts}


def moment(text: str) -> datetime:
    """Return a time that has a zone."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise argparse.ArgumentTypeError("needs a time zone, as in 2026-03-04T11:55:00+00:00")
    return when


def main(arguments: Sequence[str] | None = None) -> None:
    """Restore, and say what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, metavar="LOG_DIR", help="what the old broker's `log.dirs` named")
    parser.add_argument("--topics", required=True, metavar="NAMES", help="with commas between them")
    parser.add_argument("--until", required=True, type=moment, metavar="TIME", help="exclusive")
    parser.add_argument("--into", type=Path, required=True, metavar="LOG_DIR", help="a log dir of its own; no broker may run on it")
    parser.add_argument("--new-cluster", action="store_true", help="leader epochs begin anew")
    given = parser.parse_args(arguments)
    spark = SparkSession.builder.appName("point-in-time restore").getOrCreate()
    restored = restore(spark, given.sources, given.topics.split(","), given.until, given.into, new_cluster=given.new_cluster)
    for (topic, partition), (start, end) in sorted(restored.items()):
        print(f"{topic}-{partition}: offsets {start:,} to {end:,}")
    print(f"{len(restored)} partitions as of {given.until.isoformat()} in {given.into}")


if __name__ == "__main__":
    main()
