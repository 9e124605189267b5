"""A driver that is made to die: two queries over the same logs, started again whenever they end, until a file says that it is enough.

One query's micro-batches are handed to Python, the other's are written to a topic of two partitions.

Arguments: the log dir and a folder of its own. Prints a line of JSON for each thing that happens; the last one holds all that its sinks hold.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
from programs import session

import offsetlog.spark
from offsetlog import LogDir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = "topic,partition,offset,value"


def say(what: str, **more: object) -> None:
    """One line."""
    print(json.dumps({"what": what, **more}), flush=True)


class Driver:
    """One life of the driver."""

    def __init__(self, logs: str, folder: Path) -> None:
        self._logs = logs
        self._folder = folder
        # Of a stream that begins anew, most of the time was its processes' imports.
        settings = {"spark.python.daemon.module": "preloaded_daemon"}
        self.spark = session("kills", folder / "warehouse", settings, master="local[2,8]")
        offsetlog.spark.register(self.spark)
        (folder / "each").mkdir(parents=True, exist_ok=True)
        self.queries = {name: self._start(name) for name in ("each", "topic")}

    def _start(self, name: str) -> StreamingQuery:
        reader = self.spark.readStream.format("offsetlog").option("subscribePattern", "^t").option("columns", COLUMNS)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 300).option("maxRecordsPerPartition", 100)
        checkpoint = str(self._folder / "checkpoint" / name)
        frame = reader.load(self._logs)
        if name == "each":
            return frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(self._save).start()
        copied = frame.selectExpr("concat_ws(' ', topic, partition, offset, value) value")
        writer = copied.writeStream.format("offsetlog").options(topic="copy", partitions=2, checkpointLocation=checkpoint)
        return writer.start(str(self._folder / "written"))

    def _save(self, frame: DataFrame, number: int) -> None:
        """Idempotent: a micro-batch that comes again takes the place of the one before."""
        target = self._folder / "each" / f"{number}.parquet"
        table = frame.toArrow()
        if random.random() < 0.5:
            time.sleep(0.2)
        pyarrow.parquet.write_table(table, f"{target}.half")
        os.replace(f"{target}.half", target)
        say("micro-batch", number=number, rows=table.num_rows)

    def run(self) -> None:
        """Until it is told to end."""
        say("running")
        enough = self._folder / "enough"
        while not enough.exists():
            self._revive()
            time.sleep(0.05)
        done: set[str] = set()
        while len(done) < len(self.queries):
            self._revive()
            for name, query in self.queries.items():
                try:
                    query.processAllAvailable()
                    done.add(name)
                except Exception as error:  # noqa: BLE001  # a kill that came last; the query is started again
                    say("died", query=name, text=str(error)[:300])
        for query in self.queries.values():
            query.stop()

    def _revive(self) -> None:
        for name, query in self.queries.items():
            if not query.isActive:
                say("died", query=name, text=str(query.exception())[:300])
                self.queries[name] = self._start(name)

    def held(self) -> dict[str, list[list[object]]]:
        """What the sinks hold, in order."""
        tables = [pyarrow.parquet.read_table(path) for path in (self._folder / "each").glob("*.parquet")]
        with LogDir.open(self._folder / "written") as written:
            values = [(record.value or b"").decode() for number in range(2) for record in written.log("copy", number).scan()]
        copied: list[list[object]] = []
        for topic, partition, offset, value in (text.split(" ") for text in values):
            copied.append([topic, int(partition), int(offset), value])
        return {"topic": sorted(copied), "each": rows(tables)}


def rows(tables: list[pyarrow.Table]) -> list[list[object]]:
    """Topic, partition, offset and value of each row."""
    return sorted(
        [row["topic"], row["partition"], row["offset"], row["value"].decode()] for table in tables for row in table.to_pylist()
    )


def main() -> None:
    """Live until it is enough, or until somebody kills this."""
    driver = Driver(sys.argv[1], Path(sys.argv[2]))
    driver.run()
    say("held", **driver.held())
    driver.spark.stop()


if __name__ == "__main__":
    main()
