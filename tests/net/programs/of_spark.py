"""Spark's own Kafka source: a batch, one by time, one of many small tasks, and a stream to the end; see common.py.

Its task names a folder, the connector's jars, a topic and a time. Another reads a topic up to an offset, then all of it, and tells the
error of that. Runs in an environment with the connector's version of PySpark.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from common import Row, main, row
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

# Jars that PySpark brings itself; a second copy on the class path would shadow it.
IN_PYSPARK = ("scala-", "slf4j-", "hadoop-client", "lz4-java", "snappy-java", "jsr305", "spark-tags")


def session(folder: str, jars: str) -> SparkSession:
    paths = [str(path) for path in sorted(Path(jars).glob("*.jar")) if not path.name.startswith(IN_PYSPARK)]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.jars": ",".join(paths),
        "spark.driver.extraClassPath": ":".join(paths),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("offsetlog-net")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def rows(frame: DataFrame) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    columns = "topic, partition, offset, unix_millis(timestamp) as at, timestampType as kind, key, value, headers"
    # Not by Spark: to sort it reads a partition twice, the second time with a consumer that fetched on behind the query's end.
    read = frame.selectExpr(*columns.split(", ")).collect()
    for each in sorted(read, key=lambda found: (found["topic"], found["partition"], found["offset"])):
        headers = [(header["key"], _plain(header["value"])) for header in each["headers"] or ()]
        told = row(each["offset"], each["at"], each["kind"], _plain(each["key"]), _plain(each["value"]), headers)
        found.setdefault(f"{each['topic']}-{each['partition']}", []).append(told)
    return found


def _plain(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def spark(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    made = session(task["folder"], task["jars"])
    common = {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true"}
    reader = made.read.format("kafka").options(**common)
    found: dict[str, Any] = {"batch": rows(reader.options(subscribePattern="g-.*").load())}
    committed = {"subscribe": "g-txn", "kafka.isolation.level": "read_committed"}
    found["committed"] = rows(made.read.format("kafka").options(**common, **committed).load())
    by_time = {"subscribe": task["topic"], "startingTimestamp": str(task["time"]), "startingOffsetsByTimestampStrategy": "latest"}
    found["by time"] = rows(made.read.format("kafka").options(**common, **by_time).load())
    split = {"subscribe": task["topic"], "minPartitions": "9"}
    found["split"] = rows(made.read.format("kafka").options(**common, **split).load())
    stream = made.readStream.format("kafka").options(
        **common, subscribe=task["topic"], startingOffsets="earliest", maxOffsetsPerTrigger="70"
    )
    where = f"{task['folder']}/rows"
    query = (
        stream.load()
        .writeStream.format("parquet")
        .trigger(availableNow=True)
        .option("checkpointLocation", f"{task['folder']}/checkpoint")
        .start(where)
    )
    query.awaitTermination(120)
    found["batches"] = sum(progress["numInputRows"] > 0 for progress in query.recentProgress)
    found["stream"] = rows(made.read.parquet(where))
    made.stop()
    return found


def until_error(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    made = session(task["folder"], task["jars"])
    reader = made.read.format("kafka").options(
        **{"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true", "subscribe": task["topic"]}
    )
    found: dict[str, Any] = {"error": None}
    try:
        found["everything"] = rows(reader.load())
    except Py4JJavaError as error:
        found["error"] = str(error)
    found["before"] = rows(reader.option("endingOffsets", json.dumps({task["topic"]: {"0": task["before"]}})).load())
    made.stop()
    return found


if __name__ == "__main__":
    main({"spark": spark, "until_error": until_error})
