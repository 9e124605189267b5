"""The pipelines of docs/pipelines.md on directories of real brokers, against what Kafka's own consumer and tools said of them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from types import ModuleType

import pyarrow
import pyarrow.compute
import pyarrow.parquet
import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA, Golden, Row, named, partitions_of, rows
from pyspark.sql import SparkSession  # its usual name

from offsetlog import LogDir
from spark_rows import collected

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["disk_to_parquet", "point_in_time_restore", "parquet_to_topic", "topic_to_topic", "sessions"])
def test_help_shows_how_to_run_it(name: str) -> None:
    """As a process, as people run it."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert f"    python examples/{name}.py " in done.stdout
    assert "docs/pipelines.md" in done.stdout


def users(partitions: list[Golden]) -> list[Golden]:
    """Without Kafka's own topics, without what waits for its deletion, and without partitions that have no committed records."""
    there = [golden for golden in partitions if not golden.name.endswith("-delete") and not golden.topic.startswith("__")]
    return [golden for golden in there if golden.committed]


UNCLEAN_LOG_DIRS = tuple(sorted((DATA / "kafka-4.3.0" / "unclean").glob("log-dir-*")))
DISKS = {
    "clean": (CLEAN_LOG_DIRS, CLEAN_PARTITIONS),
    "unclean": (UNCLEAN_LOG_DIRS, partitions_of(UNCLEAN_LOG_DIRS, "kafka-4.3.0-unclean")),
}


@pytest.mark.parametrize("disks", list(DISKS))
def test_disks_become_parquet(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], disks: str) -> None:
    """Each committed record once, as a consumer saw it; after a kill, as a broker that had recovered served it."""
    log_dirs, partitions = DISKS[disks]
    into = tmp_path / "records.parquet"
    script = example("disk_to_parquet")
    script.main([*map(str, log_dirs), "--into", str(into)])
    expected = {(golden.topic, golden.partition): list(golden.committed) for golden in users(partitions)}
    assert len(expected) > 5
    found = spark.read.parquet(str(into))
    assert collected(found) == expected
    topics = {topic for topic, _ in expected}
    assert {folder.name for folder in into.iterdir() if folder.is_dir()} == {f"topic={topic}" for topic in topics}
    told = capsys.readouterr().out
    for topic in topics:
        assert f"{sum(len(rows) for (name, _), rows in expected.items() if name == topic):,}  {topic}\n" in told
    assert f"{sum(map(len, expected.values())):,}  committed records of {len(topics)} topics" in told


def test_parquet_of_topics_that_look_like_numbers(spark: SparkSession, tmp_path: Path) -> None:
    script = example("disk_to_parquet")
    with LogDir.open(tmp_path / "logs", "a") as logs:
        for topic, count in (("007", 2), ("7", 3), ("other", 1)):
            logs.create_topic(topic)
            for number in range(count):
                logs.append(topic, b"%d" % number)
    into = tmp_path / "parquet"
    assert script.export(spark, [tmp_path / "logs"], into, topics="^[0-9]+$") == {"007": 2, "7": 3}
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        script.export(spark, [tmp_path / "logs"], into)
    assert script.export(spark, [tmp_path / "logs"], into, overwrite=True) == {"007": 2, "7": 3, "other": 1}


RESTORED = ("g-epochs", "g-compact", "g-deleted-prefix", "g-appendtime", "g-txn", "g-empty")
MOMENTS = {"in the middle": "2023-11-14T22:30:00+00:00", "all": "2100-01-01T00:00:00+00:00"}


def cut(golden: Golden, when: int) -> int:
    """The offset at which Kafka finds this time, which is where a restore ends."""
    asked = {query.when: query.answer for query in golden.time_queries if query.isolation_level == "read_committed"}
    if when not in asked:
        return next((row.offset for row in golden.rows if row.timestamp >= when), golden.end)
    answer = asked[when]
    return golden.end if answer is None else answer[0]


@pytest.mark.parametrize("new_cluster", [False, True], ids=["kept", "new"])
@pytest.mark.parametrize("until", list(MOMENTS))
def test_topics_are_restored_to_a_moment(spark: SparkSession, tmp_path: Path, until: str, *, new_cluster: bool) -> None:
    """Run twice: the second run finds its work done."""
    script = example("point_in_time_restore")
    when = datetime.fromisoformat(MOMENTS[until])
    places = [golden for golden in CLEAN_PARTITIONS if golden.topic in RESTORED]
    for _ in range(2):
        told = script.restore(spark, CLEAN_LOG_DIRS, RESTORED, when, tmp_path / "new", new_cluster=new_cluster)
    assert told.keys() == {(golden.topic, golden.partition) for golden in places}
    whole = set()
    with LogDir.open(tmp_path / "new") as new:
        assert {topic: len(numbers) for topic, numbers in new.topics().items()} == Counter(golden.topic for golden in places)
        for golden in places:
            log = new.log(golden.topic, golden.partition)
            end = cut(golden, int(when.timestamp() * 1000))
            expected = [row for row in golden.committed if row.offset < end]
            found = rows(log.scan())
            # What a broker stamped once is stamped for good: the time is a record's own from here on.
            assert found == tuple(
                row._replace(timestamp_type=0, leader_epoch=0 if new_cluster else row.leader_epoch) for row in expected
            ), golden.name
            if expected:
                assert log.log_start_offset == golden.start
                assert told[golden.topic, golden.partition] == (golden.start, expected[-1].offset + 1)
            whole.add(len(expected) == len(golden.committed))
    assert whole == ({True, False} if until == "in the middle" else {True})


def test_restoring_needs_a_time_zone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        example("point_in_time_restore").main(["old", "--topics", "t", "--until", "2026-03-04T11:55:00", "--into", "new"])
    assert "needs a time zone" in capsys.readouterr().err


def routed() -> list[tuple[bytes, int]]:
    """Keys, and the partition of twelve that Kafka's own client gives each."""
    lines = (DATA / "routing" / "murmur2.txt").read_text().splitlines()
    found = [line.split("|") for line in lines if not line.startswith("#")]
    return [(bytes.fromhex(key), int(numbers.split()[2])) for key, numbers in found]


@pytest.mark.usefixtures("spark")
def test_parquet_becomes_a_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where Kafka's client would send each row, in the order of times; a second run under the name adds nothing, another name does."""
    keys = [(key.decode(), partition) for key, partition in routed() if key.isascii()]
    assert len({partition for _, partition in keys}) > 9
    table = pyarrow.table(
        {
            "id": [key for key, _ in keys] * 3,
            "amount": list(range(3 * len(keys))),
            "at": pyarrow.array(
                [(997 * at % 1000) * 1_000_000 + 123_000 for at in range(3 * len(keys))], pyarrow.timestamp("us", "UTC")
            ),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "orders.parquet")
    words = [str(tmp_path / "orders.parquet"), "--into", str(tmp_path / "logs"), "--topic", "orders", "--partitions", "12"]
    words += ["--key", "id", "--timestamp", "at"]
    script = example("parquet_to_topic")
    for job, times in (("first", 1), ("first", 1), ("second", 2)):
        script.main([*words, "--job", job])
        assert f"{times * table.num_rows:,} records in" in capsys.readouterr().out
        with LogDir.open(tmp_path / "logs") as logs:
            found = {number: list(logs.log("orders", number).scan()) for number in logs.topics()["orders"]}
        expected = Counter(
            (partition, key.encode(), (997 * at % 1000) * 1000 + 123, at) for at, (key, partition) in enumerate(3 * keys)
        )
        assert Counter(
            (number, record.key, record.timestamp, json.loads(record.value or b"")["amount"])
            for number in found
            for record in found[number]
        ) == Counter({row: times * count for row, count in expected.items()})
        for of_partition in found.values():
            stamps = [record.timestamp for record in of_partition[: len(of_partition) // times]]
            assert stamps == sorted(stamps)
    first = json.loads(found[keys[0][1]][0].value or b"")
    assert first.keys() == {"id", "amount", "at"}


def test_binary_columns_stay_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Keys and values of a broker's topic, null ones too, as a consumer saw them."""
    (golden,) = named("g-plain-0")
    columns = {
        "k": pyarrow.array([row.key for row in golden.rows], pyarrow.binary()),
        "v": pyarrow.array([row.value for row in golden.rows], pyarrow.binary()),
        "at": pyarrow.array([row.timestamp * 1000 for row in golden.rows], pyarrow.timestamp("us", "UTC")),
        "day": pyarrow.array([0 for _ in golden.rows], pyarrow.date32()),
    }
    assert None in [row.key for row in golden.rows]
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "plain.parquet")
    script = example("parquet_to_topic")
    ends = script.publish(spark, tmp_path / "plain.parquet", tmp_path / "logs", "t", "job", key="k", timestamp="at", value="v")
    assert ends == {0: len(golden.rows)}
    with LogDir.open(tmp_path / "logs") as logs:
        found = [(record.timestamp, record.key, record.value) for record in logs.log("t", 0).scan()]
    assert Counter(found) == Counter((row.timestamp, row.key, row.value) for row in golden.rows)
    with pytest.raises(TypeError, match="'day' must be a timestamp, found date"):
        script.publish(spark, tmp_path / "plain.parquet", tmp_path / "logs", "t", "job", key="k", timestamp="day")


def test_a_topic_flows_into_another(spark: SparkSession, tmp_path: Path) -> None:
    """Killed between its micro-batches, started again with its checkpoint, and once more when something is new."""
    places = named("g-plain-0", "g-plain-1", "g-plain-2")
    for golden in places:
        golden.copy(tmp_path / "source")
    rest = {"where": "key is not null", "value": "concat(value, X'21')", "partitions": 2}
    words = [sys.executable, str(EXAMPLES / "topic_to_topic.py"), str(tmp_path / "source"), "--from", "g-plain"]
    words += ["--into", str(tmp_path / "logs")]
    words += ["--to", "kept", "--checkpoint", str(tmp_path / "checkpoint"), "--limit", "30", "--every", "0 seconds"]
    words += [word for name, value in rest.items() for word in (f"--{name}", str(value))]
    # With Spark's processes a group of its own, which dies as a whole.
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(2)]
        os.killpg(process.pid, signal.SIGKILL)
    assert all(re.match(r"micro-batch \d+: \d+ records", line) for line in told), told

    expected = Counter(
        (row.timestamp, row.key, None if row.value is None else row.value + b"!", row.headers)
        for golden in places
        for row in golden.rows
        if row.key is not None
    )

    def found() -> list[tuple[int, bytes | None, bytes | None, object]]:
        with LogDir.open(tmp_path / "logs") as logs:
            return [(record.timestamp, record.key, record.value, record.headers) for record in logs.scan([("kept", 0), ("kept", 1)])]

    assert 0 < len(found()) < expected.total()
    script = example("topic_to_topic")
    for number in range(2):
        if number == 1:
            with LogDir.open(tmp_path / "source", "a") as source:
                source.append("g-plain", b"new", key=b"key", timestamp=7)
            expected[7, b"key", b"new!", ()] += 1
        # Before PySpark 4.2, a run that finishes a micro-batch of the last one does no other.
        for _ in range(2):
            options = {"into": tmp_path / "logs", "to": "kept", "checkpoint": tmp_path / "checkpoint", "once": True, **rest}
            query = script.start(spark, [tmp_path / "source"], "g-plain", **options)
            assert query.awaitTermination(120)
        assert Counter(found()) == expected


def sessions_of(rows_of_topic: list[tuple[int, Row]], gap_ms: int) -> list[tuple[bytes, int, int, int, int, int, bytes | None]]:
    """Key, first and last time, records, place and value of the first: counted one by one in what a consumer saw."""
    found = []
    by_key: dict[bytes, list[tuple[int, int, int, bytes | None]]] = {}
    for partition, row in rows_of_topic:
        if row.key is not None:
            by_key.setdefault(row.key, []).append((row.timestamp, partition, row.offset, row.value))
    for key, of_key in by_key.items():
        of_key.sort(key=lambda one: one[:3])
        begin = 0
        for at in range(1, len(of_key) + 1):
            if at == len(of_key) or of_key[at][0] - of_key[at - 1][0] > gap_ms:
                first = of_key[begin]
                found.append((key, first[0], of_key[at - 1][0], at - begin, first[1], first[2], first[3]))
                begin = at
    return sorted(found, key=lambda one: (one[0], one[1]))


@pytest.mark.parametrize(("topic", "gap_ms"), [("g-plain", 1_000), ("g-codec-zstd", 20_000), ("g-txn", 20_000)])
def test_sessions_of_keys(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], topic: str, gap_ms: int) -> None:
    expected = sessions_of(
        [(golden.partition, row) for golden in CLEAN_PARTITIONS if golden.topic == topic for row in golden.committed], gap_ms
    )
    assert len({one[0] for one in expected}) < len(expected), "no key has two sessions"
    assert max(one[3] for one in expected) > 1, "no session has two records"
    into = tmp_path / "sessions"
    example("sessions").main([*map(str, CLEAN_LOG_DIRS), "--topic", topic, "--gap", str(gap_ms / 1000), "--into", str(into)])
    assert f"{len(expected):,} sessions of {len({one[0] for one in expected}):,} keys" in capsys.readouterr().out
    table = spark.read.parquet(str(into)).toArrow()
    for name in ("began", "ended"):
        table = table.set_column(table.schema.get_field_index(name), name, pyarrow.compute.divide(table[name].cast("int64"), 1000))
    found = sorted((tuple(row.values()) for row in table.to_pylist()), key=lambda one: (one[0], one[1]))
    assert found == expected
