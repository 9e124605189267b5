"""Spark's own Kafka source reads what `serve` answers: in batches, by offsets and by time, in more tasks than partitions, as a stream."""

from __future__ import annotations

import base64
import contextlib
import math
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from asking import READABLE, ask, expected
from client_programs import PROGRAMS, Client
from damaged import Damaged
from golden import Level, named
from served import Kafka, serving

from broker import ROOT
from offsetlog import LogDir, WritableLogDir

pytestmark = pytest.mark.proof

SPARK = Client("spark", (str(ROOT / ".venv-spark40" / "bin" / "python"), str(PROGRAMS / "of_spark.py")), epochs=False)
JARS = ROOT / "build" / "spark-jars"


def test_spark(clean: Kafka, tmp_path: Path) -> None:
    check_reading(clean, tmp_path)


def check_reading(kafka: Kafka, folder: Path) -> None:
    """Batches and streams, by pattern, by assignment, from and to offsets, from a time."""
    topic = named("g-time-0", "g-time-1", "g-time-2")
    when = topic[0].rows[len(topic[0].rows) // 2].timestamp
    # From an offset, the beginning (-2), an offset; up to an offset, the end (-1), an offset.
    start, stop = topic[0].rows[5].offset, topic[0].rows[-5].offset
    first, last = topic[2].rows[1].offset, topic[2].rows[2].offset
    offsets = {
        "assigned": [0, 2],
        "starting": {"0": start, "1": -2, "2": first},
        "ending": {"0": stop, "1": -1, "2": last},
    }
    (found,) = ask(SPARK, kafka, {**at(folder), "verb": "spark", "topic": "g-time", "time": when, "offsets": offsets})
    for golden in READABLE:
        assert found["batch"].get(golden.name, []) == expected(SPARK, golden.rows), golden.name
    for golden in named("g-txn-0", "g-txn-1"):
        assert found["committed"].get(golden.name, []) == expected(SPARK, golden.committed), golden.name
    level: Level = "read_uncommitted"
    for golden in topic:
        everything = expected(SPARK, golden.rows)
        assert found["split"].get(golden.name, []) == everything
        assert found["stream"].get(golden.name, []) == everything
        answers = [query.answer for query in golden.time_queries if query.when == when and query.isolation_level == level]
        at_time = next((row.offset for row in golden.rows if row.timestamp >= when), golden.end)
        assert all((answer[0] if answer else golden.end) == at_time for answer in answers)
        later = [row for row in everything if int(str(row[0])) >= at_time]
        assert found["by time"].get(golden.name, []) == later
        assert found["stream by time"].get(golden.name, []) == later
    # At most 70 records at once.
    assert found["batches"] >= sum(len(golden.rows) for golden in topic) // 70
    whole = {golden.name: expected(SPARK, golden.rows) for golden in topic}
    assert found["assigned"] == {name: whole[name] for name in ("g-time-0", "g-time-2")}

    def between(name: str, low: int, high: float) -> list[list[object]]:
        return [row for row in whole[name] if low <= int(str(row[0])) < high]

    assert found["between"] == {
        "g-time-0": between("g-time-0", start, stop),
        "g-time-1": whole["g-time-1"],
        "g-time-2": between("g-time-2", first, last),
    }
    assert found["stream from"] == {
        "g-time-0": between("g-time-0", start, math.inf),
        "g-time-2": between("g-time-2", first, math.inf),
    }


def at(folder: Path) -> dict[str, str]:
    """Where a query has its files, and the connector."""
    assert (JARS / ".complete").exists(), f"{JARS.relative_to(ROOT)} is not complete: run `make test-net`"
    return {"folder": str(folder), "jars": str(JARS)}


def test_a_stream_of_a_directory_that_grows(tmp_path: Path) -> None:
    """Micro-batch by micro-batch while it is written, each record comes once. An end that goes back would end the stream: it does where that happens."""
    folder, before, after = tmp_path / "spark", 20, 5
    folder.mkdir()
    with LogDir.open(tmp_path / "disk", "a") as logs:
        # Some batches a segment, so that streams read over many ends of segments.
        logs.create_topic("grows", 2, config={"internal.segment.bytes": 4_000})
        logs.create_topic("cut")
        for _ in range(before // after):
            logs.log("cut", 0).append_records([(None, b"x")] * after, flush=True)
        with serving([tmp_path / "disk"], tmp_path / "serve") as server, _writing(logs, folder, after) as written:
            task = {**at(folder), "verb": "grow", "grows": "grows", "batches": 8, "cut": "cut", "before": before}
            (found,) = ask(SPARK, server, task)
        segments = len(list((tmp_path / "disk" / "grows-0").glob("*.log")))
    told = {name: [(row[0], row[4]) for row in rows] for name, rows in found["rows"].items()}
    assert told == {
        f"grows-{number}": [(offset, base64.b64encode(value).decode()) for offset, value in enumerate(values)]
        for number, values in written.items()
    }
    assert len(found["sizes"]) >= 8
    assert sum(found["sizes"]) == sum(map(len, written.values()))
    assert segments > 5
    assert f"cut-0 offset was changed from {before} to {after}" in found["error"].replace("'s", ""), found["error"]


@contextlib.contextmanager
def _writing(logs: WritableLogDir, folder: Path, after: int) -> Iterator[dict[int, list[bytes]]]:
    """Append to a topic until the stream has enough, and truncate another one when that was read; what was appended, by partition."""
    written: dict[int, list[bytes]] = {0: [], 1: []}
    is_over = threading.Event()

    def come(name: str) -> bool:
        return is_over.is_set() or (folder / name).exists()

    def write() -> None:
        sizes = random.Random(7)
        while not come("enough"):
            for number, values in written.items():
                more = [b"%d-" % (len(values) + each) + b"x" * sizes.randrange(300) for each in range(sizes.randrange(1, 9))]
                logs.log("grows", number).append_records([(None, value) for value in more], flush=sizes.random() < 0.2)
                values.extend(more)
            time.sleep(0.03)
        (folder / "count").write_text(str(sum(map(len, written.values()))))
        (folder / "count").rename(folder / "written")
        while not come("read"):
            time.sleep(0.05)
        logs.log("cut", 0).truncate_to(after)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            yield written
        finally:
            is_over.set()
            writer.result()


def test_damage_fails_a_query(with_damage: Damaged, tmp_path: Path) -> None:
    """A batch that reads over it fails; one that ends before it has every record."""
    golden = with_damage.golden
    task = {**at(tmp_path), "verb": "until_error", "topic": golden.topic, "before": with_damage.first}
    (found,) = ask(SPARK, with_damage.kafka, task)
    assert f"offset {with_damage.first} for topic-partition {golden.name}" in (found["error"] or ""), found["error"]
    assert found["before"] == {golden.name: expected(SPARK, with_damage.before)}
