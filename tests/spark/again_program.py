"""Writes what was written before: a job twice under its name, and a stream whose last micro-batch Spark repeats.

Arguments: the log dir and a folder of its own. Prints the name of the stream. Its log messages are left as Python and Spark have them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from programs import session

import offsetlog.spark


def main() -> None:
    """Each is done twice."""
    place, folder = sys.argv[1], Path(sys.argv[2])
    spark = session("again", folder / "warehouse")
    frame = spark.range(10).selectExpr("cast(id as string) value")
    for _ in range(2):
        frame.write.format("offsetlog").mode("append").options(topic="job", transactionId="by-save").save(place)
        offsetlog.spark.write(frame, place, topic="call", transaction_id="by-call")
    source, checkpoint = folder / "in", folder / "checkpoint"
    source.mkdir()
    for number in range(2):
        (source / f"{number}.txt").write_text(f"{number}\n")
        for is_again in (False, True):
            writer = spark.readStream.schema("value string").text(str(source)).writeStream.format("offsetlog")
            writer = writer.options(topic="stream", checkpointLocation=str(checkpoint)).trigger(availableNow=True)
            writer.start(place).awaitTermination()
            # As if the driver had died behind the sink's commit: the file and its checksum file.
            for path in () if is_again else (checkpoint / "commits").glob(f"*{number}*"):
                path.unlink()
    print(json.loads((checkpoint / "metadata").read_text())["id"])
    spark.stop()


if __name__ == "__main__":
    main()
