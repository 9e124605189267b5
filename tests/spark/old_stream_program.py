"""Continues a stream of ``tests/data/spark-log-dirs`` in the folder in which this runs, as the program that an upgrade starts again.

Appends 6 records to its input when it has caught up. Prints what its topic held before that and holds then: offsets and values, by
partition.
"""

from __future__ import annotations

import json
from pathlib import Path

from old_log_dirs import holds
from programs import session

import offsetlog.spark
from offsetlog import LogDir

SMALL = {"segment.index.bytes": "1024"}


def main() -> None:
    """One life of the driver."""
    spark = session("old", Path("warehouse"))
    offsetlog.spark.register(spark)
    reader = spark.readStream.format("offsetlog").options(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="4")
    frame = reader.load("input").selectExpr("value", "cast(offset % 2 as int) partition").coalesce(1)
    writer = frame.writeStream.format("offsetlog").options(topic="out", partitions="2", checkpointLocation="checkpoint", **SMALL)
    query = writer.start("logs")
    query.processAllAvailable()
    before = holds(Path("logs"), "out", 2)
    with LogDir.open("input", "a") as log_dir:
        for number in range(8, 14):
            log_dir.log("in", 0).append(f"in {number}".encode())
    query.processAllAvailable()
    query.stop()
    spark.stop()
    print(json.dumps([before, holds(Path("logs"), "out", 2)]))


if __name__ == "__main__":
    main()
