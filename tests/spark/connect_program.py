"""A driver of Spark Connect, which has neither a JVM nor a SparkContext: reads, scans, writes, looks up and streams.

Arguments: a log dir with a topic `t` of one partition, and a folder of its own. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import offsetlog.spark


def main() -> None:
    """One session."""
    logs, folder = sys.argv[1], Path(sys.argv[2])
    written = str(folder / "written")
    spark = SparkSession.builder.remote("local[2]").config("spark.driver.host", "127.0.0.1").getOrCreate()
    offsetlog.spark.register(spark)
    found: dict[str, object] = {"kind": type(spark).__module__}
    found["read"] = spark.read.format("offsetlog").option("subscribe", "t").load(logs).count()
    found["scan"] = offsetlog.spark.scan(spark, logs, subscribe="t", columns=["offset"]).count()
    rows = spark.range(5).selectExpr("cast(id as string) value", "cast(id as string) key")
    done = offsetlog.spark.write(rows, written, topic="o", partitions=2, order_by=["key"])
    found["write"] = [done.records, sum(each.end_offset for each in done.partitions)]
    lookup = offsetlog.spark.lookup(logs, "value")
    offsets = spark.createDataFrame([("t", 0, 0), ("t", 0, 7)], "topic string, partition int, offset long")
    found["lookup"] = [row[0].decode() for row in offsets.select(lookup("topic", "partition", "offset")).collect()]
    record = offsetlog.spark.lookup(logs, "record")
    looked_up = offsets.select(record("topic", "partition", "offset").alias("record")).selectExpr("unix_millis(record.timestamp)")
    found["timestamp"] = [row[0] for row in looked_up.collect()]
    source = spark.readStream.format("offsetlog").options(subscribe="t", startingOffsets="earliest").load(logs)
    sink = source.select("value").writeStream.format("offsetlog").options(topic="s", checkpointLocation=str(folder / "checkpoint"))
    sink.trigger(availableNow=True).start(written).awaitTermination(120)
    found["stream"] = spark.read.format("offsetlog").option("subscribe", "s").load(written).count()
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
