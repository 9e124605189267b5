r"""A stream from one topic to another: records are filtered and changed as they come, each once, whatever dies in between.

    python examples/topic_to_topic.py /mnt/kafka-1 --from orders --into logs --to paid \
        --where "get_json_object(decode(value, 'UTF-8'), '$.state') = 'paid'" --value "upper(decode(value, 'UTF-8'))" \
        --checkpoint checkpoints/paid

It follows the source until it is stopped, or with --once does what is there. Started again with its checkpoint, it goes on where
it was. docs/pipelines.md explains it.
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
from pyspark.sql.streaming.query import StreamingQuery

import offsetlog.spark


def start(  # noqa: PLR0913  # one parameter a choice
    spark: SparkSession,
    sources: Sequence[str | Path],
    topic: str,
    *,
    into: str | Path,
    to: str,
    checkpoint: str | Path,
    where: str = "true",
    value: str = "value",
    once: bool = False,
    every: str = "1 second",
    partitions: int | None = None,
    limit: int | None = None,
) -> StreamingQuery:
    """Start the stream. `where` and `value` are Spark SQL over the columns of a record; key, time and headers stay."""
    offsetlog.spark.register(spark)
    reader = (
        spark.readStream.format("offsetlog")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("isolationLevel", "read_committed")
        .option("includeHeaders", "true")
    )
    if limit is not None:
        reader = reader.option("maxOffsetsPerTrigger", limit)
    records = reader.load(",".join(map(str, sources))).where(where)
    writer = (
        records.selectExpr("key", f"{value} AS value", "timestamp", "headers")
        .writeStream.format("offsetlog")
        .queryName(f"{topic} to {to}")
        .option("topic", to)
        .options(**({} if partitions is None else {"partitions": str(partitions)}))
        # It also names the stream to the sink, under which each micro-batch is published once.
        .option("checkpointLocation", str(Path(checkpoint).absolute()))
    )
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start(str(into))


def main(arguments: Sequence[str] | None = None) -> None:
    """Stream until stopped, and say how far each micro-batch came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, metavar="LOG_DIR", help="where the topic is; others may append to it")
    parser.add_argument("--from", dest="topic", required=True, metavar="TOPIC")
    parser.add_argument("--into", type=Path, required=True, metavar="LOG_DIR", help="made if missing; no broker may run on it")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="made if missing")
    parser.add_argument("--partitions", type=int, help="of a topic that is made (1)")
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="FOLDER", help="of this stream alone")
    parser.add_argument("--where", default="true", metavar="SQL", help="which records")
    parser.add_argument("--value", default="value", metavar="SQL", help="what becomes of the value")
    parser.add_argument("--every", default="1 second", metavar="TIME", help="how often to look (1 second)")
    parser.add_argument("--limit", type=int, metavar="OFFSETS", help="at most so many in a micro-batch")
    parser.add_argument("--once", action="store_true", help="do what is there, and end")
    given = vars(parser.parse_args(arguments))
    spark = SparkSession.builder.appName("topic to topic").getOrCreate()
    query = start(spark, **given)
    told, ended = -1, False
    while not ended:
        ended = bool(query.awaitTermination(1))
        for progress in query.recentProgress:
            if progress.batchId > told and progress.numInputRows:
                told = progress.batchId
                behind = offsetlog.spark.offsets_behind(progress)
                waiting = "" if behind is None else f", the furthest partition is {behind.max_offsets_behind_latest:,} offsets behind"
                print(f"micro-batch {told}: {progress.numInputRows:,} records{waiting}", flush=True)


if __name__ == "__main__":
    main()
