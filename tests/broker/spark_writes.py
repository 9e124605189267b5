"""Writes with Spark into the log dir of a stopped broker, whose topics are there: rows, a restore with its offsets, a stream in two runs.

Arguments: the log dir, a folder of its own, the log dirs that are restored from.
"""

from __future__ import annotations

import sys
from pathlib import Path

from programs import session

import offsetlog.spark
from offsetlog import LogDir

ROWS, KEPT, STREAMED = "rows", "kept", "streamed"
COUNT = 12_000
BASE_MS = 1_700_000_000_000
RESTORED = "g-compact"


def main() -> None:
    """One job after the other."""
    log_dir, folder, golden = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    spark = session("writes", folder / "warehouse")
    offsetlog.spark.register(spark)
    made = spark.range(0, COUNT, 1, 5).selectExpr(
        "encode(concat('key-', id % 41), 'UTF-8') key",
        "if(id % 17 = 0, null, concat('value-', id)) value",
        f"timestamp_millis({BASE_MS} + id) timestamp",
        "if(id % 3 = 0, array(named_struct('key', 'h', 'value', encode(cast(id as string), 'UTF-8'))), null) headers",
    )
    # The settings of its topics stand in the broker's metadata, which is not read.
    zstd = {"compression.type": "zstd"}
    made.write.format("offsetlog").mode("append").options(topic=ROWS, transactionId="rows", **zstd).save(log_dir)
    made.write.format("offsetlog").mode("append").options(topic=ROWS, transactionId="rows", **zstd).save(log_dir)

    kept = (
        spark.read.format("offsetlog").options(subscribe=RESTORED, columns="partition,offset,timestamp,key,value,headers").load(golden)
    )
    ordered = kept.repartitionByRange(4, "partition", "offset").sortWithinPartitions("partition", "offset")
    ordered.write.format("offsetlog").mode("append").options(topic=KEPT, preserveOffsets="true", transactionId="kept").save(log_dir)

    (folder / "in").mkdir()
    for number in range(2):
        (folder / "in" / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(200)), encoding="ascii")
        stream = spark.readStream.schema("value string").text(str(folder / "in")).writeStream.format("offsetlog")
        stream = stream.options(topic=STREAMED, checkpointLocation=str(folder / "checkpoint")).trigger(availableNow=True)
        stream.start(log_dir).awaitTermination()
        with LogDir.open(log_dir, "a") as topics:
            topics.log(STREAMED, 0).roll()
    spark.stop()


if __name__ == "__main__":
    main()
