"""`mirror --follow-deletes` beside a real broker: what the broker deletes goes, what it has stays, byte for byte."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from clients import Admin
from kafka.structs import OffsetAndMetadata
from mirroring import MIRROR_SECONDS, PROGRAM, log_bytes, once
from restoring import IS_WHOLE
from test_mirror import PARTITIONS, TOPICS, write

from broker import Broker
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

pytestmark = pytest.mark.proof


def committed(into: Path) -> set[tuple[str, int, int]]:
    """What groups have committed, as the copy says."""
    listed = subprocess.run(
        [*PROGRAM, "groups", "--json", str(into)], capture_output=True, text=True, timeout=MIRROR_SECONDS, check=True
    )
    groups = [json.loads(line) for line in listed.stdout.splitlines()]
    return {(each["topic"], each["partition"], each["offset"]) for group in groups for each in group["offsets"]}


def commit(broker: Broker, offsets: dict[tuple[str, int], int]) -> None:
    """As a consumer does."""
    group = KafkaConsumer(bootstrap_servers=broker.address, group_id="readers", enable_auto_commit=False)
    group.commit({TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()})
    group.close()


def directories(into: Path, topic: str) -> list[str]:
    """A topic's partitions that are there, and not renamed for deletion."""
    return sorted(path.name for path in into.glob(f"{topic}-*") if not path.name.endswith("-delete"))


def told(events: list[dict[str, Any]], kind: str) -> list[str]:
    """Of which topics this was said."""
    return sorted(line["topic"] for line in events if line.get("event") == kind)


@pytest.mark.skipif(not IS_WHOLE, reason="OFFSETLOG_WHOLE_MATRIX=1: waits for a broker's rounds, as make soak STEPS=mirror does")
def test_what_the_broker_deletes_is_deleted(tmp_path: Path) -> None:
    """Records and a topic are deleted, and another topic is made anew, between two calls."""
    broker = Broker("4.3.0", tmp_path / "source")
    broker.format()
    broker.start()
    into = tmp_path / "mirror"
    try:
        with Admin(broker.address) as admin:
            for topic, settings in TOPICS.items():
                admin.create(topic, PARTITIONS, settings)
        write(broker.address, 1)
        commit(broker, {("plain", 0): 20, ("packed", 0): 5, ("told", 1): 7})
        once(broker, into, "--follow-deletes")
        assert committed(into) == {("plain", 0, 20), ("packed", 0, 5), ("told", 1, 7)}
        kept = {name: log_bytes(into / name) for name in directories(into, "plain")}
        with Admin(broker.address) as admin:
            admin.delete_records_before("plain", {0: 15})
            admin.delete("packed")
            admin.delete("told")
            time.sleep(2)
            admin.create("told", PARTITIONS, {})
        producer = KafkaProducer(bootstrap_servers=broker.address)
        for number in range(20):
            producer.send("plain", value=b"%d" % number, partition=number % PARTITIONS)
            producer.send("told", value=b"anew %d" % number, partition=number % PARTITIONS)
        producer.close()
        commit(broker, {("told", 1): 2})
        events = once(broker, into, "--follow-deletes")
        *_, whole = events
        assert whole["is_complete"]
        assert not whole["has_losses"]
        assert (told(events, "deleted-topic"), told(events, "recreated")) == (["packed", "told"], ["told"])
        assert told(events, "deleted-records") == ["plain"]
        assert directories(into, "packed") == []
        for name in (*directories(into, "plain"), *directories(into, "told")):
            assert log_bytes(into / name) == log_bytes(broker.log_dir / name), name
        assert all(log_bytes(into / name).startswith(before) for name, before in kept.items())
        (plain,) = [
            line for line in events if line.get("topic") == "plain" and line.get("partition") == 0 and "log_start_offset" in line
        ]
        assert plain["log_start_offset"] == plain["source_log_start_offset"] == 15
        assert committed(into) == {("plain", 0, 20), ("told", 1, 2)}
        verified = subprocess.run([*PROGRAM, "verify", str(into)], capture_output=True, text=True, timeout=MIRROR_SECONDS, check=False)
        assert verified.returncode == 0, verified.stdout
    finally:
        broker.kill()
