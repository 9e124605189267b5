"""A dead broker's disks to Parquet: one folder a topic, committed records only.

    python examples/disk_to_parquet.py /mnt/kafka-1 /mnt/kafka-2 --into records.parquet
    python examples/disk_to_parquet.py /mnt/kafka-1 --topics '^(orders|payments)$' --into records.parquet

The disks are only read: mount them read-only. docs/pipelines.md explains it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Spark's workers would else run whichever `python3` comes first on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType,headers,leaderEpoch"
"""All that a restore needs again."""


def export(
    spark: SparkSession, log_dirs: Sequence[str | Path], into: str | Path, *, topics: str = ".*", overwrite: bool = False
) -> dict[str, int]:
    """Write the committed records of all topics that `topics` (a regular expression) is found in; return how many each has.

    Kafka's own topics are left out. Damage fails the job and names file, position and offset; what a broker that died left
    unfinished at the end of a log is no damage.
    """
    records = (
        spark.read.format("offsetlog")
        .option("subscribePattern", topics)
        .option("isolationLevel", "read_committed")
        .option("columns", COLUMNS)
        .load([str(path) for path in log_dirs])
    )
    writer = records.write.mode("overwrite" if overwrite else "errorifexists")
    writer.partitionBy("topic").parquet(str(into))
    # Counted in what was written, not in what was read. The schema keeps a topic `007` from becoming the number 7.
    written = spark.read.schema(records.schema).parquet(str(into))
    return {row["topic"]: row["count"] for row in written.groupBy("topic").count().collect()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Export, and say what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log_dirs", nargs="+", type=Path, metavar="LOG_DIR", help="what the broker's `log.dirs` named")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="where the Parquet goes")
    parser.add_argument("--topics", default=".*", metavar="REGEX", help="which topics, as in `subscribePattern` (all but Kafka's own)")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there, such as what a run left that died")
    given = parser.parse_args(arguments)
    spark = SparkSession.builder.appName("disk to Parquet").getOrCreate()
    counts = export(spark, given.log_dirs, given.into, topics=given.topics, overwrite=given.overwrite)
    for topic, count in sorted(counts.items()):
        print(f"{count:>12,}  {topic}")
    print(f"{sum(counts.values()):>12,}  committed records of {len(counts)} topics in {given.into}")


if __name__ == "__main__":
    main()
