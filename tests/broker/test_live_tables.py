"""A running broker's internal topics, read from its directory while it writes them: what its own clients are told of them."""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

from clients import Writer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from partitions import entries

from broker import Broker, broker_of
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from offsetlog import LogDir, OffsetLogError

NOW = 1_700_000_000_000
TOPICS = {"one": 1, "three": 3, "gone": 2}
SETTINGS = {"retention.ms": "86400000", "cleanup.policy": "compact"}
SECONDS = 300


def until(look: Callable[[], object], wanted: object) -> None:
    """What a broker answers it may write a moment later."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            found = look()
        except OffsetLogError:
            # It is just being changed.
            if time.monotonic() > end:
                raise
            continue
        if found == wanted or time.monotonic() > end:
            break
        time.sleep(0.1)
    assert found == wanted


def topics_of(broker: Broker) -> dict[str, tuple[str | None, int]]:
    """Ids and numbers of partitions, from the files."""
    with LogDir.open([broker.log_dir, broker.directory / "metadata"]) as log_dir:
        image = log_dir.metadata()
    assert image is not None
    return {topic.name: (topic.topic_id, len(topic.partitions)) for topic in image.topics}


def settings_of(broker: Broker, topic: str) -> dict[str, str]:
    with LogDir.open([broker.log_dir, broker.directory / "metadata"]) as log_dir:
        image = log_dir.metadata()
    assert image is not None
    return image.configs.get(("topic", topic), {})


def offsets_of(broker: Broker, group: str) -> dict[tuple[str, int], tuple[int, int | None]]:
    """Committed offsets and lags, from the files."""
    with LogDir.open(broker.log_dir) as log_dir:
        return {
            (found.topic, found.partition): (found.offset, found.lag)
            for each in log_dir.groups()
            if each.group_id == group
            for found in each.offsets
        }


def told_topics(admin: KafkaAdminClient) -> dict[str, tuple[str, int]]:
    """The same, as the broker answers. The client gives ids as Python does, Kafka writes them in base 64."""
    answer: list[dict[str, Any]] = admin.describe_topics()
    ids = {topic["name"]: UUID(str(topic["topic_id"])).bytes for topic in answer}
    return {topic["name"]: (urlsafe_b64encode(ids[topic["name"]]).decode().rstrip("="), len(topic["partitions"])) for topic in answer}


def test_topics_and_groups(tmp_path: Path) -> None:
    broker = broker_of("4.3.0", tmp_path / "broker")
    broker.format()
    with broker.running(), closing(KafkaAdminClient(bootstrap_servers=broker.address)) as admin:
        admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()])
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "one", SETTINGS)])
        until(lambda: settings_of(broker, "one"), SETTINGS)
        until(lambda: {name: count for name, (_, count) in topics_of(broker).items()}, TOPICS)
        admin.delete_topics(["gone"])
        until(lambda: "gone" in topics_of(broker), wanted=False)

        with Writer(broker.address, "three") as writer:
            for partition in range(3):
                writer.send(partition, entries("read by a group", 10, NOW)[: 4 + partition])
        consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id="readers", enable_auto_commit=False)
        committed = {}
        for number in range(3):
            # Each commit takes the place of the one before.
            committed = {
                TopicPartition("three", partition): OffsetAndMetadata(number + partition, f"{number}", -1) for partition in range(3)
            }
            consumer.assign(list(committed))
            consumer.commit(committed)
        consumer.close()
        told = admin.list_group_offsets(["readers"])["readers"]
        wanted = {(at.topic, at.partition): (found.offset, 4 + at.partition - found.offset) for at, found in told.items()}
        assert wanted == {("three", partition): (2 + partition, 2) for partition in range(3)}
        until(lambda: offsets_of(broker, "readers"), wanted)
        until(lambda: topics_of(broker), told_topics(admin))
