"""Spark's own Kafka source reads what `serve` answers: in a batch, by time, in more tasks than partitions, as a stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from asking import READABLE, ask, expected
from client_programs import PROGRAMS, Client
from damaged import Damaged
from golden import Level, named
from served import Kafka

from broker import ROOT

pytestmark = pytest.mark.proof

SPARK = Client("spark", (str(ROOT / ".venv-spark40" / "bin" / "python"), str(PROGRAMS / "of_spark.py")), epochs=False)
JARS = ROOT / "build" / "spark-jars"


def test_spark(clean: Kafka, tmp_path: Path) -> None:
    assert (JARS / ".complete").exists(), f"{JARS.relative_to(ROOT)} is not complete: run `make test-net`"
    topic = named("g-time-0", "g-time-1", "g-time-2")
    when = topic[0].rows[len(topic[0].rows) // 2].timestamp
    task = {"verb": "spark", "folder": str(tmp_path), "jars": str(JARS), "topic": "g-time", "time": when}
    (found,) = ask(SPARK, clean, task)
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
        first = next((row.offset for row in golden.rows if row.timestamp >= when), golden.end)
        assert all((answer[0] if answer else golden.end) == first for answer in answers)
        assert found["by time"].get(golden.name, []) == [row for row in everything if int(str(row[0])) >= first]
    # At most 70 records at once.
    assert found["batches"] >= sum(len(golden.rows) for golden in topic) // 70


def test_damage_fails_a_query(with_damage: Damaged, tmp_path: Path) -> None:
    """A batch that reads over it fails; one that ends before it has every record."""
    golden = with_damage.golden
    task = {"verb": "until_error", "folder": str(tmp_path), "jars": str(JARS), "topic": golden.topic, "before": with_damage.first}
    (found,) = ask(SPARK, with_damage.kafka, task)
    assert f"offset {with_damage.first} for topic-partition {golden.name}" in (found["error"] or ""), found["error"]
    assert found["before"] == {golden.name: expected(SPARK, with_damage.before)}
