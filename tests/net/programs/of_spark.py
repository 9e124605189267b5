"""Spark's own Kafka source: batches, by time and by offset, of many small tasks; streams to the end and of what grows; see common.py.

A task names a folder and the connector's jars; `spark` a topic, a time and offsets as well. `until_error` reads a topic up to an offset, then
all of it, and tells the error of that. `grow` streams what a writer appends meanwhile, and then what is cut: each knows by files in the folder
how far the other is. Runs in an environment with the connector's version of PySpark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Row, main, row
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

GROWING_SECONDS = 240
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


def options(bootstrap: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true", **more}


def spark(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    made = session(task["folder"], task["jars"])
    topic, when, offsets = task["topic"], str(task["time"]), task["offsets"]

    def batch(**more: str) -> dict[str, list[Row]]:
        return rows(made.read.format("kafka").options(**options(bootstrap, **more)).load())

    def stream(name: str, **more: str) -> tuple[int, dict[str, list[Row]]]:
        """Number of micro-batches, and all rows of them, to the end of what there is."""
        frame = made.readStream.format("kafka").options(**options(bootstrap, **more)).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{task['folder']}/checkpoint-{name}")
        query = writer.trigger(availableNow=True).start(f"{task['folder']}/rows-{name}")
        if not query.awaitTermination(120):
            raise TimeoutError(name)
        count = sum(progress["numInputRows"] > 0 for progress in query.recentProgress)
        return count, rows(made.read.parquet(f"{task['folder']}/rows-{name}"))

    by_time = {"subscribe": topic, "startingTimestamp": when, "startingOffsetsByTimestampStrategy": "latest"}
    two = json.dumps({topic: offsets["assigned"]})
    starting, ending = (json.dumps({topic: offsets[name]}) for name in ("starting", "ending"))
    found: dict[str, Any] = {
        "batch": batch(subscribePattern="g-.*"),
        "committed": batch(subscribe="g-txn", **{"kafka.isolation.level": "read_committed"}),
        "by time": batch(**by_time),
        "split": batch(subscribe=topic, minPartitions="9"),
        "assigned": batch(assign=two),
        "between": batch(subscribe=topic, startingOffsets=starting, endingOffsets=ending),
    }
    found["batches"], found["stream"] = stream("all", subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="70")
    _, found["stream by time"] = stream("time", **by_time)
    assigned = json.dumps({topic: {number: offsets["starting"][str(number)] for number in offsets["assigned"]}})
    _, found["stream from"] = stream("assigned", assign=two, startingOffsets=assigned)
    made.stop()
    return found


class Growing:
    """A stream of a topic, with the sizes of its micro-batches so far."""

    def __init__(self, made: SparkSession, bootstrap: str, folder: Path, topic: str) -> None:
        # An end that goes back is believed when it is seen once: by default the source asks again for some seconds.
        strict = {"fetchOffset.numRetries": "1"}
        reader = made.readStream.format("kafka").options(**options(bootstrap, subscribe=topic, startingOffsets="earliest", **strict))
        writer = reader.load().writeStream.format("parquet").option("checkpointLocation", str(folder / f"checkpoint-{topic}"))
        self._where = str(folder / f"rows-{topic}")
        self._made = made
        self._sizes: dict[int, int] = {}
        self.query = writer.start(self._where)

    def sizes(self) -> list[int]:
        for progress in self.query.recentProgress:
            self._sizes[progress["batchId"]] = progress["numInputRows"]
        return [size for _, size in sorted(self._sizes.items()) if size]

    def wait(self, done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + GROWING_SECONDS
        while not done():
            if not self.query.isActive:
                raise RuntimeError(f"the stream ended before {what}: {self.query.exception()}")
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: {self.sizes()}")
            time.sleep(0.05)

    def rows(self) -> dict[str, list[Row]]:
        return rows(self._made.read.parquet(self._where))


def grow(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    folder = Path(task["folder"])
    made = session(task["folder"], task["jars"])
    growing = Growing(made, bootstrap, folder, task["grows"])
    growing.wait(lambda: len(growing.sizes()) >= task["batches"], "micro-batches")
    (folder / "enough").touch()
    growing.wait((folder / "written").exists, "the writer")
    total = int((folder / "written").read_text())
    growing.wait(lambda: sum(growing.sizes()) >= total, "the last records")
    # What came twice would come now.
    growing.query.processAllAvailable()
    growing.query.stop()
    found: dict[str, Any] = {"rows": growing.rows(), "sizes": growing.sizes()}
    cut = Growing(made, bootstrap, folder, task["cut"])
    cut.wait(lambda: sum(cut.sizes()) >= task["before"], "what is there before the cut")
    (folder / "read").touch()
    end = time.monotonic() + GROWING_SECONDS
    while cut.query.isActive and time.monotonic() < end:
        time.sleep(0.05)
    found["error"] = str(cut.query.exception())
    cut.query.stop()
    made.stop()
    return found


def until_error(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    made = session(task["folder"], task["jars"])
    reader = made.read.format("kafka").options(**options(bootstrap, subscribe=task["topic"]))
    found: dict[str, Any] = {"error": None}
    try:
        found["everything"] = rows(reader.load())
    except Py4JJavaError as error:
        found["error"] = str(error)
    found["before"] = rows(reader.option("endingOffsets", json.dumps({task["topic"]: {"0": task["before"]}})).load())
    made.stop()
    return found


if __name__ == "__main__":
    main({"spark": spark, "until_error": until_error, "grow": grow})
