"""Real clients: kafka-python's consumer, producer and admin, and Kafka's own console consumer, all giving the same rows."""

from __future__ import annotations

import base64
import re
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Self, TypeAlias

from golden import Row
from peers import Appended

from broker import Broker, java, run

with warnings.catch_warnings():
    # kafka-python reads its schemas through a function that newer Pythons call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

READING_SECONDS = 300
IDLE_MS = 60_000
"""How long the console consumer waits for a record that it was promised: a broker on a busy machine answers late."""
NULL = "(null)"
"""How the console consumer prints what is null; no record of these tests holds it."""
_BYTES = "org.apache.kafka.common.serialization.BytesDeserializer"
PREFERRED = 0
"""Of the two kinds of election, the clean one."""
_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


class Admin:
    """Questions to a broker about its partitions, and the few orders that tests give."""

    def __init__(self, address: str) -> None:
        self._client = KafkaAdminClient(bootstrap_servers=address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        self._client.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(settings))])

    def create_on(self, topic: str, replicas: Mapping[int, list[int]], settings: Mapping[str, str] | None = None) -> None:
        """A topic with these brokers for each partition."""
        self._client.create_topics([NewTopic(topic, replica_assignments=dict(replicas), topic_configs=dict(settings or {}))])

    def elect_preferred(self, topic: str) -> None:
        """Each partition is led by the first of its brokers."""
        self._client.elect_leaders(PREFERRED, [topic], raise_errors=False)

    def grow(self, topic: str, partitions: int) -> None:
        """A topic has so many partitions then."""
        self._client.create_partitions({topic: partitions})

    def topics(self, names: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Id, as brokers write it, and number of partitions of each."""
        return {
            each["name"]: (
                base64.urlsafe_b64encode(uuid.UUID(each["topic_id"]).bytes).decode().rstrip("="),
                len(each["partitions"]),
            )
            for each in self._client.describe_topics(list(names))
        }

    def committed(self, groups: Sequence[str]) -> dict[tuple[str, str, int], tuple[int, str]]:
        """Group, topic and partition -> offset that is committed, and its metadata. A group that the broker does not know has none."""
        known = {each["group_id"] for each in self._client.list_groups()} & set(groups)
        found = self._client.list_group_offsets(sorted(known)) if known else {}
        return {
            (group, at.topic, at.partition): (each.offset, each.metadata)
            for group, offsets in found.items()
            for at, each in offsets.items()
        }

    def delete(self, topic: str) -> None:
        self._client.delete_topics([topic])

    def leader_epochs(self, topic: str) -> dict[int, int]:
        """The leader epoch of each partition; waits until every one has a leader."""
        end = time.monotonic() + READING_SECONDS
        while time.monotonic() < end:
            (answer,) = self._client.describe_topics([topic])
            partitions = answer["partitions"]
            if partitions and all(partition["error_code"] == 0 and partition["leader_id"] >= 0 for partition in partitions):
                return {partition["partition_index"]: partition["leader_epoch"] for partition in partitions}
            time.sleep(0.1)
        raise TimeoutError(f"no leaders of {topic}: {answer}")

    def producers(self, topic: str, partitions: Sequence[int]) -> dict[int, dict[int, tuple[int, int, int, int]]]:
        """Partition -> producer id -> epoch, last sequence, coordinator epoch, first offset of the open transaction."""
        answer = self._client.describe_producers([TopicPartition(topic, partition) for partition in partitions])
        return {
            at.partition: {
                state.producer_id: (
                    state.producer_epoch,
                    state.last_sequence,
                    state.coordinator_epoch,
                    state.current_transaction_start_offset,
                )
                for state in partition.active_producers
            }
            for at, partition in answer.items()
        }

    def settings(self, topics: Sequence[str]) -> dict[str, dict[str, tuple[str, str]]]:
        """What holds for each topic: name of the setting -> its value, and the layer that the broker takes it from."""
        wanted = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
        answer = self._client.describe_configs(wanted, config_filter="all")["topic"]
        return {topic: {name: (entry["value"], entry["config_source"]) for name, entry in answer[topic].items()} for topic in topics}

    def delete_records_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        self._client.delete_records({TopicPartition(topic, partition): offset for partition, offset in offsets.items()})


class ReaderOfAll:
    """kafka-python's consumer over these partitions, which may be of different topics."""

    def __init__(self, address: str, places: Sequence[TopicPartition], isolation: Isolation) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=address,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            max_partition_fetch_bytes=4 << 20,
        )
        self._all = list(places)
        self._consumer.assign(self._all)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """First offset and end of each partition."""
        ends = self._consumer.end_offsets(self._all)
        return {at: (offset, ends[at]) for at, offset in self._consumer.beginning_offsets(self._all).items()}

    def everything(self) -> dict[TopicPartition, list[Row]]:
        """Every record from the beginning to the end, partition by partition."""
        seen: dict[TopicPartition, list[Row]] = {at: [] for at in self._all}
        self._consumer.seek_to_beginning(*self._all)
        ends = self._consumer.end_offsets(self._all)
        limit = time.monotonic() + READING_SECONDS
        while any(self._consumer.position(at) < ends[at] for at in self._all):
            assert time.monotonic() < limit, {at: (self._consumer.position(at), ends[at]) for at in self._all}
            for at, records in self._consumer.poll(timeout_ms=200).items():
                seen[at] += [
                    Row(
                        record.offset,
                        record.timestamp,
                        record.timestamp_type,
                        record.leader_epoch,
                        record.key,
                        record.value,
                        tuple((name, value) for name, value in record.headers),
                    )
                    for record in records
                ]
        return seen


class Reader(ReaderOfAll):
    """kafka-python's consumer over all partitions of a topic."""

    def __init__(self, address: str, topic: str, partitions: Sequence[int], isolation: Isolation) -> None:
        super().__init__(address, [TopicPartition(topic, partition) for partition in partitions], isolation)

    def beginning_offsets(self) -> dict[int, int]:
        return {at.partition: offset for at, offset in self._consumer.beginning_offsets(self._all).items()}

    def end_offsets(self) -> dict[int, int]:
        """Ends for this isolation level: high watermarks or last stable offsets."""
        return {at.partition: offset for at, offset in self._consumer.end_offsets(self._all).items()}

    def offset_for_timestamp(self, partition: int, timestamp: int) -> tuple[int, int] | None:
        (found,) = self._consumer.offsets_for_times({TopicPartition(self._all[0].topic, partition): timestamp}).values()
        return None if found is None else (found.offset, found.timestamp)

    def rows(self) -> dict[int, list[Row]]:
        """Every record from the beginning to the end, partition by partition."""
        return {at.partition: rows for at, rows in self.everything().items()}


class Writer:
    """kafka-python's producer, one acknowledged batch after the other."""

    def __init__(self, address: str, topic: str, **options: str | bool | None) -> None:
        self._producer = KafkaProducer(bootstrap_servers=address, linger_ms=20, **options)
        self._topic = topic
        if "transactional_id" in options:
            self._producer.init_transactions()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def send(self, partition: int, entries: Sequence[Appended]) -> list[int]:
        """Produce these records and give the offsets that the broker gave them."""
        sent = [
            self._producer.send(
                self._topic,
                partition=partition,
                key=entry.key,
                value=entry.value,
                headers=list(entry.headers),
                timestamp_ms=entry.timestamp,
            )
            for entry in entries
        ]
        return [future.get(READING_SECONDS).offset for future in sent]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()


def console_rows(broker: Broker, topic: str, isolation: Isolation, count: int, group: str | None = None) -> dict[int, list[Row]]:
    """The first `count` records that Kafka's own console consumer prints of a topic; it does not print leader epochs (-1 here).

    In a group it begins where that left off, and from the beginning where it has committed nothing.

    It ends after that many. One that it should not print takes the place of another, or is the last of all: `Reader` sees that one.

    Its deserializer for bytes escapes all but printable characters and the backslash, so tabs and line ends are only separators.
    """
    properties = {
        **dict.fromkeys(("print.timestamp", "print.partition", "print.offset", "print.headers", "print.key", "print.value"), "true"),
        **dict.fromkeys(("key.deserializer", "value.deserializer", "headers.deserializer"), _BYTES),
        "key.separator": "\t",
        "headers.separator": "\x01",
        "null.literal": NULL,
    }
    form = [part for name, value in properties.items() for part in ("--property", f"{name}={value}")]
    version = max(broker.version, "3.9.2")  # before, it was another program with other options
    level = ["--command-property" if version >= "4.2" else "--consumer-property", f"isolation.level={isolation}"]
    program = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.address]
    until = ["--max-messages", str(count), "--timeout-ms", str(IDLE_MS), *([] if group is None else ["--group", group])]
    printed, said = run(java(version, *program, "--topic", topic, "--from-beginning", *until, *form, *level))
    seen: dict[int, list[Row]] = {}
    for partition, row in _console_lines(printed):
        seen.setdefault(partition, []).append(row)
    assert f"Processed a total of {sum(map(len, seen.values()))} messages" in said, said
    return seen


def _console_lines(printed: str) -> Iterator[tuple[int, Row]]:
    for line in printed.split("\n"):
        if not line or line.startswith("Option "):
            continue
        stamp, partition, offset, headers, key, value = line.split("\t")
        kind, _, timestamp = stamp.partition(":")
        pairs = [] if headers == "NO_HEADERS" else [text.partition(":") for text in headers.split("\x01")]
        yield (
            int(partition.removeprefix("Partition:")),
            Row(
                int(offset.removeprefix("Offset:")),
                int(timestamp),
                _TYPES[kind],
                -1,
                _plain(key),
                _plain(value),
                tuple((name, _plain(content)) for name, _, content in pairs),
            ),
        )


def _plain(text: str) -> bytes | None:
    if text == NULL:
        return None
    return re.sub(rb"\\x([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode("ascii"))
