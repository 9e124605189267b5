"""A driver on a cluster of two workers: batch and stream over a folder that all see, then over one that only some see.

Arguments: the master's address, the logs, how many records they hold, and whether workers are used again. The path
``/proc/self/cwd/logs`` is another one in each executor: each has a working directory of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from programs import session
from pyspark.sql import SparkSession

import offsetlog.spark

EVERYWHERE_ELSE = "/proc/self/cwd/logs"


def working_directory(numbers: Iterable[int]) -> Iterator[str]:
    """Of the executor that runs this; slowly, so that each of them gets some."""
    for _ in numbers:
        time.sleep(0.5)
        yield os.getcwd()


def read(spark: SparkSession, path: str, **options: str) -> int:
    """The number of records, by many small tasks."""
    return spark.read.format("offsetlog").options(subscribe="t", maxRecordsPerPartition="50", **options).load(path).count()


def refused(spark: SparkSession, **options: str) -> str:
    """The text of the error that there must be."""
    try:
        read(spark, EVERYWHERE_ELSE, **options)
    except Exception as error:  # noqa: BLE001  # its class is Spark's, its text is what users see
        return str(error)
    return ""


def main() -> None:
    """One life."""
    master, logs, count, reuse = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.python.worker.reuse": reuse,
        # Else a task that fails on one executor may be tried again on the other.
        "spark.task.maxFailures": "1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    spark = session("cluster", Path("warehouse").resolve(), settings, master=master)
    offsetlog.spark.register(spark)
    found: dict[str, object] = {"batch": read(spark, logs)}

    stream = spark.readStream.format("offsetlog").options(subscribe="t", startingOffsets="earliest", maxRecordsPerPartition="50")
    writer = stream.load(logs).writeStream.format("parquet").option("checkpointLocation", os.path.abspath("checkpoint"))
    writer.option("path", os.path.abspath("parquet")).trigger(availableNow=True).start().awaitTermination()
    found["stream"] = spark.read.parquet(os.path.abspath("parquet")).count()

    directories = sorted(set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(working_directory).collect()))
    found["executors"] = len(directories)
    Path("logs").symlink_to(logs)
    Path(directories[0], "logs").symlink_to(logs)
    found["strict"], found["lenient"] = refused(spark), refused(spark, failOnDataLoss="false")
    for directory in directories[1:]:
        Path(directory, "logs").symlink_to(logs)
    found["mounted"] = read(spark, EVERYWHERE_ELSE)
    found["wanted"] = count
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
