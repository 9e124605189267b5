"""Streams beside Spark's own Kafka connector on a real broker: the same micro-batches, the same data loss, the same refusals.

The connector needs the Spark that it was built for, so this is a test of `make test-spark40`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyspark
import pytest
from programs import last_line

from broker import Broker

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / "build" / "spark-jars"
CONNECTOR = "4.0"
BROKER = "4.3.0"
PROGRAM = Path(__file__).with_name("stream_beside_kafka.py")

asked = pytest.mark.skipif(
    not os.environ.get("OFFSETLOG_STREAM_KAFKA"),
    reason="OFFSETLOG_STREAM_KAFKA=1: a broker and Spark with its connector for minutes",
)
version = pytest.mark.skipif(
    not pyspark.__version__.startswith(f"{CONNECTOR}."),
    reason=f"Spark's Kafka connector is for PySpark {CONNECTOR}: make test-spark40",
)
pytestmark = [asked, version]


class CheckpointingBroker(Broker):
    """A broker that soon says in its files what it says to clients: how far replication came, and where logs start."""

    def _of_its_kind(self) -> dict[str, object]:
        return {
            **super()._of_its_kind(),
            "replica.high.watermark.checkpoint.interval.ms": 200,
            "log.flush.start.offset.checkpoint.interval.ms": 200,
        }


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program saw."""
    folder = tmp_path_factory.mktemp("beside")
    if not (JARS / ".complete").exists():
        raise FileNotFoundError(f"{JARS.relative_to(ROOT)} is not complete: run `make test-spark40`")
    broker = CheckpointingBroker(BROKER, folder / "broker")
    broker.format()
    with broker.running():
        said = last_line(PROGRAM, broker.address, broker.log_dir, folder, JARS, folder=folder, seconds=900)
    found: dict[str, Any] = json.loads(said)
    return found


def test_the_micro_batches_are_the_same(told: dict[str, Any]) -> None:
    """Numbers, ends, rows with every column; those without rows too."""
    several = 0
    for name, sides in told["batches"].items():
        assert [_shown(batch) for batch in sides["offsetlog"]] == [_shown(batch) for batch in sides["kafka"]], name
        assert [batch for batch in sides["offsetlog"] if batch["rows"]] == [batch for batch in sides["kafka"] if batch["rows"]], name
        several += len(sides["kafka"])
    assert several > 40


def _shown(batch: dict[str, Any]) -> tuple[str, int, int]:
    """Enough of a micro-batch to see where two queries part."""
    return batch["phase"], batch["number"], len(batch["rows"])


def test_data_loss_ends_the_same_queries(told: dict[str, Any]) -> None:
    assert not any(text for phase in ("one", "two") for sides in told["died"][phase].values() for text in sides.values())
    died = {name: {side: bool(text) for side, text in sides.items()} for name, sides in told["died"]["three"].items()}
    assert {name: sides["offsetlog"] for name, sides in died.items()} == {name: sides["kafka"] for name, sides in died.items()}
    assert not died["assigned, what is left"]["offsetlog"]
    failed = [sides["offsetlog"] for sides in told["died"]["three"].values() if sides["offsetlog"]]
    assert len(failed) >= 3
    assert all("t-0 starts at 150 now: offsets" in text for text in failed)


def test_the_same_options_are_refused(told: dict[str, Any]) -> None:
    for tried in told["refused"]:
        assert (tried["offsetlog"], tried["kafka"]) == (tried["wanted"], tried["wanted"]), tried["options"]
