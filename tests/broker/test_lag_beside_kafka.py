"""``examples/consumer_lag.py`` reads from a stopped broker's disks what `kafka-consumer-groups` said while it ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from clients import Admin, Writer
from kafka.structs import OffsetAndMetadata
from peers import Appended

from broker import ROOT, broker_of, java, run
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

TOOLS = {
    "4.3.0": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "3.9.2": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "2.8.2": "kafka.admin.ConsumerGroupCommand",
}
COLUMNS = 6
"""GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG: the tool's other columns are of members, ours of times and metadata."""


def table(printed: str) -> set[tuple[str, ...]]:
    return {tuple(line.split()[:COLUMNS]) for line in printed.splitlines() if line.strip() and not line.startswith("GROUP")}


@pytest.mark.parametrize("version", list(TOOLS))
def test_the_table_is_that_of_kafkas_tool(version: str, tmp_path: Path) -> None:
    broker = broker_of(version, tmp_path / "broker")
    broker.format()
    with broker.running():
        with Admin(broker.address) as admin:
            admin.create("orders", 3, {})
            admin.leader_epochs("orders")
        with Writer(broker.address, "orders") as writer:
            for partition in range(3):
                writer.send(partition, [Appended(b"key", b"value", 1_700_000_000_000)] * (10 * partition + 5))
        for group, offsets in {"one": {0: 3, 1: 15}, "two": {0: 5, 2: 1}}.items():
            consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False)
            for partition, offset in offsets.items():
                consumer.commit({TopicPartition("orders", partition): OffsetAndMetadata(offset, f"é {group}", -1)})
            consumer.close()
        for end in ("commit_transaction", "abort_transaction"):
            producer = KafkaProducer(bootstrap_servers=broker.address, transactional_id=end)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_offsets_to_transaction({TopicPartition("orders", 2): OffsetAndMetadata(20, "", -1)}, end)
            getattr(producer, end)()
            producer.close()
        printed, _ = run(java(version, TOOLS[version], "--bootstrap-server", broker.address, "--describe", "--all-groups"))
    command = [sys.executable, str(ROOT / "examples" / "consumer_lag.py"), str(broker.log_dir)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    said = {row for row in table(printed) if row[1:2] == ("orders",)}
    assert len(said) == 5
    assert ("commit_transaction", "orders", "2", "20", "25", "5") in said
    assert table(found) == said
    assert found.count("é one") == 2
