"""`offsetlog.spark.write`: how rows are laid out, what is said while they are written and afterwards."""

from __future__ import annotations

import doctest
import inspect
import logging
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, CLEAN_PARTITIONS
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offsetlog import Log, LogConfig, LogDir, commits, partition_for
from offsetlog.errors import ConfigError
from offsetlog.spark import Published, scan, write

ROWS = "cast(id as string) value", "concat('k', id % 7) key", "timestamp_millis(1000 - id) timestamp"


def values(folder: Path, topic: str, partition: int) -> list[str]:
    with LogDir.open(folder) as log_dir:
        return [(record.value or b"").decode() for record in log_dir.log(topic, partition).scan()]


def test_order_and_summary(spark: SparkSession, tmp_path: Path) -> None:
    """One task writes all of a partition in the order that was asked for, wherever its rows come from."""
    told: list[tuple[int, int]] = []
    frame = spark.range(0, 1000, 1, 5).selectExpr(*ROWS)
    done = write(
        frame,
        tmp_path / "new",
        topic="orders",
        partitions=3,
        order_by=["timestamp"],
        settings=LogConfig(compression_type="lz4"),
        progress=lambda done, tasks: told.append((done, tasks)),
    )
    counts = Counter(partition_for(f"k{number % 7}".encode(), 3) for number in range(1000))
    assert [each[:5] for each in done.partitions] == [
        ("orders", number, 0, counts[number], counts[number]) for number in sorted(counts)
    ]
    assert done.records == 1000
    assert done.is_new
    for partition in counts:
        found = [int(value) for value in values(tmp_path / "new", "orders", partition)]
        assert found == sorted(found, reverse=True)
        with Log.open(tmp_path / f"new/orders-{partition}") as log:
            assert {batch.codec for batch in log.batches()} == {"lz4"}
            assert log.size_bytes == next(each.size_bytes for each in done.partitions if each.partition == partition)
    assert told
    assert all(0 <= one <= all_ for one, all_ in told)
    assert not commits(tmp_path / "new")
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_name_is_written_once(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = spark.range(10).selectExpr(*ROWS)
    with caplog.at_level(logging.INFO, "offsetlog"):
        first = write(frame, tmp_path / "new", topic="t", transaction_id="load-1")
    assert "t-0: 10 records up to offset 9" in caplog.text
    again = write(frame, tmp_path / "new", topic="t", transaction_id="load-1")
    assert (first.is_new, again.is_new) == (True, False)
    with Log.open(tmp_path / "new/t-0") as log:
        batches = len(list(log.batches()))
    assert (
        first.partitions
        == again.partitions
        == (Published("t", 0, 0, 10, 10, batches, first.size_bytes, frame.rdd.getNumPartitions()),)
    )
    behind = write(frame, tmp_path / "new", topic="t")
    assert [each[:5] for each in behind.partitions] == [("t", 0, 10, 20, 10)]


def test_a_restore_needs_no_layout_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    """From as many tasks as there are, in any order."""
    columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    frame = scan(
        spark, [str(path) for path in CLEAN_LOG_DIRS], subscribe="g-plain,g-compact", columns=columns, max_records_per_partition=40
    )
    done = write(frame.repartition(7), tmp_path / "new", preserve_offsets=True, partitions=3)
    wanted = {}
    for golden in CLEAN_PARTITIONS:
        if golden.topic in {"g-plain", "g-compact"}:
            wanted[golden.topic, golden.partition] = [
                (row.offset, row.timestamp, row.key, row.value, row.headers) for row in golden.rows
            ]
    assert done.records == sum(map(len, wanted.values()))
    for (topic, partition), rows in wanted.items():
        with LogDir.open(tmp_path / "new") as log_dir:
            found = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in log_dir.log(topic, partition).scan()]
        assert found == rows


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"topic": "t", "order_by": ["when"]}, "no column 'when' found to order by"),
        ({"topic": "t", "order_by": ["timestamp"], "preserve_offsets": True}, "exclude each other"),
        ({"topic": "t", "settings": {"retention.mss": 1}}, "retention.ms"),
    ],
)
def test_refused_before_anything_runs(spark: SparkSession, tmp_path: Path, arguments: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        write(spark.range(3).selectExpr(*ROWS), tmp_path / "new", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_failed_write_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 4).selectExpr("cast(if(id = 99, raise_error('no'), id) as string) value")
    with pytest.raises(Exception, match="no"):
        write(frame, tmp_path / "new", topic="t")
    assert values(tmp_path / "new", "t", 0) == []
    # Spark fails the job while others of its tasks still run: each removes what it staged when it ends.
    deadline = time.monotonic() + 300
    while list((tmp_path / "new").glob("*/offsetlog-staging")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not commits(tmp_path / "new")


def test_the_example(spark: SparkSession, tmp_path: Path) -> None:
    names = {"write": write, "spark": spark, "folder": str(tmp_path / "new")}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(write) or "", names, "write", None, 0)
    assert doctest.DocTestRunner().run(example) == doctest.TestResults(failed=0, attempted=3)


def test_a_partition_that_others_have_needs_the_option(spark: SparkSession, tmp_path: Path) -> None:
    """To the metadata, partitions of `g-plain` are broker 1's; these log dirs are broker 2's."""
    folders = [tmp_path / path.name for path in (*CLEAN_LOG_DIRS, CLEAN / "metadata-dir")]
    for folder in folders:
        shutil.copytree(CLEAN / folder.name, folder)
    for folder in folders[:-1]:
        meta = folder / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    frame = spark.range(3).selectExpr("cast(id as string) value", "0 partition")
    for transaction in (None, "load"):
        with pytest.raises(PySparkException, match=r"broker 1 of the cluster has a replica too: .*the option singleReplica = true"):
            write(frame, folders, topic="g-plain", transaction_id=transaction)
    with pytest.raises(PySparkException, match="singleReplica"):
        frame.write.format("offsetlog").mode("append").option("topic", "g-plain").save(",".join(map(str, folders)))
    assert not commits(folders[0])
    done = write(frame, folders, topic="g-plain", transaction_id="load", single_replica=True)
    assert [(each.topic, each.partition, each.records) for each in done.partitions] == [("g-plain", 0, 3)]
    option = frame.write.format("offsetlog").mode("append").option("topic", "g-plain").option("singleReplica", "true")
    option.save(",".join(map(str, folders)))
    with LogDir.open(folders) as log_dir:
        assert log_dir.log("g-plain", 0).log_end_offset == done.partitions[0].end_offset + 3
