"""Streams a topic of a mirror that still copies, until a file says that there will be no more; prints its rows as a line of JSON.

Arguments: the mirror, a folder of its own, the topic.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path

from programs import session
from pyspark.sql import DataFrame

import offsetlog.spark

ENOUGH = "enough"


def main() -> None:
    """Micro-batches as they come, then all that is left."""
    mirror, folder, topic = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    spark = session("mirror", folder / "warehouse")
    offsetlog.spark.register(spark)
    rows: list[list[object]] = []
    sizes: list[int] = []

    def save(frame: DataFrame, _: int) -> None:
        found = frame.select("partition", "offset", "key", "value").collect()
        sizes.append(len(found))
        rows.extend([row["partition"], row["offset"], *(_text(row[name]) for name in ("key", "value"))] for row in found)

    reader = spark.readStream.format("offsetlog").options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=200)
    frame = reader.option("isolationLevel", "read_committed").load(mirror)
    query = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(save).start()
    while not (folder / ENOUGH).exists():
        assert query.isActive, query.exception()
        time.sleep(0.1)
    query.processAllAvailable()
    query.stop()
    spark.stop()
    print(json.dumps({"rows": rows, "sizes": [size for size in sizes if size]}), flush=True)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


if __name__ == "__main__":
    main()
