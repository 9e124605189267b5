"""Watch a partition be written, then Spark read directories of a real Kafka broker and write new ones. Run by ``make demo``.

    python examples/demo.py [--log-dirs DIR ...] [--out DIR]

It appends to a new partition first, and reads it again. Then it reads a broker's two log dirs that lie in this repository, writes a
topic out of them and streams that on into another. Nothing in them is changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Spark's workers would else run whichever `python3` comes first on PATH.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import DataFrame, SparkSession, functions as fn

import offsetlog
import offsetlog.spark
from offsetlog import Log, LogDir

HERE = Path(__file__).resolve().parent.parent
CLEAN = HERE / "tests" / "data" / "kafka-4.3.0" / "clean"
STEPS = 8
NAME_WIDTH = 32


@contextmanager
def step(number: int, what: str) -> Iterator[None]:
    """Say what comes, and how long it took."""
    print(f"\n[{number}/{STEPS}] {what}", flush=True)
    begin = time.perf_counter()
    yield
    print(f"    ({time.perf_counter() - begin:.1f} s)", flush=True)


def append_some(path: Path) -> None:
    """A partition of our own: one record, one batch, many small appends; then how a look-up in it goes."""
    shutil.rmtree(path, ignore_errors=True)
    with Log.open(path, "a", {"segment.bytes": 1 << 20, "compression.type": "zstd"}) as log:
        first = log.append(b"paid", key=b"order-7", headers=[("trace", b"1")])
        batch = log.append_records([(b"order-8", b"new"), (b"order-9", b"new")])
        with log.writer() as writer:
            for number in range(20_000):
                writer.append(b'{"state":"paid","amount":%d}' % number, key=b"order-%d" % (number % 500))
        log.flush()
        print(f"    record {first}, batch {batch.base_offset} to {batch.last_offset}, then 20,000 small appends")
        print(f"    {log!r}, {log.size_bytes:,} bytes")
    files = sorted(file.name for file in path.iterdir() if not file.name.startswith("."))
    print(f"    {', '.join(files)}")
    with Log.open(path) as log:
        for line in str(log.locate(12_345)).splitlines():
            print(f"    {line}")
        print(f"    -> {log.get(12_345)!r}")
        print(f"    a scan of its keys: {len({record.key for record in log.scan()}):,} different ones")


def list_topics(log_dir: LogDir) -> None:
    """Names, offsets and sizes: from file names, checkpoints and the end of the last segment alone."""
    print(f"    {'topic':<{NAME_WIDTH}} {'partitions':>10} {'offsets':>8} {'segments':>8} {'bytes':>9}")
    for topic, partitions in log_dir.topics().items():
        logs = [log_dir.log(topic, partition) for partition in partitions]
        offsets = sum(log.log_end_offset - log.log_start_offset for log in logs)
        segments = sum(len(log.segments) for log in logs)
        size = sum(log.size_bytes for log in logs)
        shown = topic if len(topic) <= NAME_WIDTH else f"{topic[: NAME_WIDTH - 3]}..."
        print(f"    {shown:<{NAME_WIDTH}} {len(partitions):>10} {offsets:>8,} {segments:>8} {size:>9,}")


def explain_one_lookup(log_dir: LogDir) -> None:
    """One look-up by offset, step by step, in the partition with the most segments."""
    logs = [log_dir.log(*partition) for partition in log_dir.partitions() if not partition.topic.startswith("__")]
    log = max(logs, key=lambda log: (len(log.segments), log.size_bytes))
    offset = (log.log_start_offset + log.log_end_offset) // 2
    for line in str(log.locate(offset)).splitlines():
        print(f"    {line}")
    record = log.get(offset)
    print(f"    -> {record!r}" if record is not None else "    -> no record there: compacted away, or a marker")


def read_with_spark(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Every record of every topic but Kafka's internal ones, as Spark's Kafka source would show it."""
    records = (
        spark.read.format("offsetlog")
        .option("subscribePattern", ".*")
        .option("includeHeaders", "true")
        .option("isolationLevel", "read_committed")
        .load(",".join(paths))
    )
    for field in records.schema:
        print(f"    {field.name:<14} {field.dataType.simpleString()}")
    print(f"    {records.count():,} committed records, {records.rdd.getNumPartitions()} tasks")
    return records


def aggregate(records: DataFrame, into: Path) -> DataFrame:
    """Count by topic and hour, into Parquet."""
    hours = (
        records.groupBy("topic", fn.date_trunc("hour", "timestamp").alias("hour"))
        .agg(
            fn.count("*").alias("records"),
            fn.sum(fn.octet_length("value")).alias("value_bytes"),
            fn.count_distinct("key").alias("keys"),
            fn.sum(fn.when(fn.col("value").isNull(), 1).otherwise(0)).alias("tombstones"),
        )
        .orderBy("topic", "hour")
    )
    hours.coalesce(1).write.mode("overwrite").parquet(str(into))
    files = sorted(into.glob("*.parquet"))
    print(f"    {sum(file.stat().st_size for file in files):,} bytes in {len(files)} Parquet file{'s' * (len(files) != 1)}")
    return records.sparkSession.read.parquet(str(into))


def write_a_topic(records: DataFrame, log_dirs: list[Path], into: Path) -> str:
    """Transform the broker's largest topic into a new one whose records keep their offsets and times; return its name."""
    shutil.rmtree(into, ignore_errors=True)
    with LogDir.open(log_dirs) as log_dir:
        topics = {name: numbers for name, numbers in log_dir.topics().items() if not name.startswith("__")}
        largest = max(topics, key=lambda name: sum(log_dir.log(name, number).log_end_offset for number in topics[name]))
    told = records.where((fn.col("topic") == largest) & fn.col("value").isNotNull())
    told = told.select("key", fn.sha2("value", 256).alias("value"), "partition", "offset", "timestamp")
    done = offsetlog.spark.write(told, into, topic="hashes", partitions=len(topics[largest]), preserve_offsets=True)
    print(f"    {largest}: {done.records:,} records hashed, {done.size_bytes:,} bytes")
    for each in done.partitions[:4]:
        print(f"    hashes-{each.partition}: {each.records:,} records, up to offset {each.end_offset - 1:,}")
    return "hashes"


def stream_on(spark: SparkSession, topic: str, place: Path) -> None:
    """Stream a topic into another one, what there is of it; called again it would go on from its checkpoint."""
    source = spark.readStream.format("offsetlog").option("subscribe", topic).option("startingOffsets", "earliest").load(str(place))
    short = source.select("key", fn.substring("value", 1, 8).alias("value"), "timestamp")
    sink = short.writeStream.format("offsetlog").options(topic="short", checkpointLocation=str(place.parent / "checkpoint"))
    sink.trigger(availableNow=True).start(str(place)).awaitTermination()
    with LogDir.open(place) as written, written.log("short", 0) as log:
        print(f"    {log!r}")


def look_up(spark: SparkSession, log_dir: LogDir, paths: list[str]) -> None:
    """Fetch single records by offset in a UDF; each worker opens a partition once and keeps it open."""
    partitions = [partition for partition in log_dir.partitions() if not partition.topic.startswith("__")]
    largest = sorted(partitions, key=lambda partition: log_dir.log(*partition).log_end_offset, reverse=True)[:3]
    wanted = [
        (topic, partition, log.log_start_offset + (log.log_end_offset - log.log_start_offset) * part // 4)
        for topic, partition in largest
        for log in [log_dir.log(topic, partition)]
        for part in (1, 3)
    ]
    record = offsetlog.spark.lookup(paths, "record")
    frame = spark.createDataFrame(wanted, "topic string, partition int, offset long")
    frame = frame.withColumn("record", record("topic", "partition", "offset"))
    frame.select(
        "topic",
        "partition",
        "offset",
        fn.col("record.timestamp"),
        fn.decode("record.key", "UTF-8").alias("key"),
        fn.octet_length("record.value").alias("value_bytes"),
    ).show(truncate=24)
    print("    (no timestamp: no record at that offset any more; compaction removed it, or it was a marker)")


def main() -> None:
    """Run all steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--log-dirs", nargs="+", type=Path, default=[CLEAN / "log-dir-1", CLEAN / "log-dir-2"], metavar="DIR")
    parser.add_argument("--out", type=Path, default=HERE / "build" / "demo", metavar="DIR", help="where all goes that is written")
    arguments = parser.parse_args()
    written = arguments.out / "log-dir"
    paths = [str(path) for path in (*arguments.log_dirs, written)]
    parquet, copied = arguments.out / "records-by-hour.parquet", arguments.out / "copied"
    shutil.rmtree(arguments.out / "checkpoint", ignore_errors=True)
    begin = time.perf_counter()
    print(f"offsetlog {offsetlog.__version__} writes and reads, without a broker:")
    for path in paths:
        print(f"    {path}")

    with step(1, "a partition of our own, written from Python"):
        append_some(written / "orders-0")
    with LogDir.open(paths) as log_dir:
        with step(2, "the topics"):
            list_topics(log_dir)
        with step(3, "one look-up, step by step"):
            explain_one_lookup(log_dir)
        with step(4, "every topic with Spark (the JVM starts first; its own lines are not ours)"):
            builder = SparkSession.builder.master("local[2]").appName("offsetlog demo")
            builder = builder.config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.session.timeZone", "UTC")
            builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2")
            spark = builder.getOrCreate()
            spark.sparkContext.setLogLevel("ERROR")
            print(f"    Spark {spark.version}, found the format by its name")
            records = read_with_spark(spark, paths)
        with step(5, "records by topic and hour, into Parquet"):
            hours = aggregate(records, parquet)
        with step(6, "transformed, into a new topic with offsets and times kept"):
            topic = write_a_topic(records, arguments.log_dirs, copied)
        with step(7, "and streamed on into another"):
            stream_on(spark, topic, copied)
    paths.append(str(copied))
    with LogDir.open(paths) as log_dir, step(8, "a few records by their offsets, in a UDF"):
        look_up(spark, log_dir, paths)

    print("\nThe busiest hours:\n")
    hours.orderBy(fn.desc("records"), "topic").show(12, truncate=32)
    print(f"Parquet: {parquet}")
    print(f"All in {time.perf_counter() - begin:.1f} s.")
    spark.stop()


if __name__ == "__main__":
    main()
