"""librdkafka by its Python binding; see common.py for what comes in and goes out."""

from __future__ import annotations

import time
from typing import Any

from common import READING_SECONDS, Place, Row, crowd_story, group_story, main, named, places, row, security, subscribe_story
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

TIMEOUT = 300
SECURITY = {
    "protocol": "security.protocol",
    "ca": "ssl.ca.location",
    "certificate": "ssl.certificate.location",
    "key": "ssl.key.location",
    "mechanism": "sasl.mechanism",
    "user": "sasl.username",
    "password": "sasl.password",
}
REFUSED = {KafkaError._AUTHENTICATION, KafkaError._SSL}  # noqa: SLF001  # the library's own names of its errors


def consumer(bootstrap: str, task: dict[str, Any], **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "confluent",
            "enable.auto.commit": False,
            "check.crcs": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            **security(task, SECURITY),
            **{name if callable(value) else name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def told(message: Message) -> Row:
    kind, timestamp = message.timestamp()
    epoch = message.leader_epoch() if hasattr(message, "leader_epoch") else None
    # 0 stands for "not available", 1 for the producer's clock, 2 for the broker's.
    return row(message.offset(), timestamp, kind - 1, message.key(), message.value(), message.headers() or (), epoch)


def topics(bootstrap: str, task: dict[str, Any]) -> dict[str, int]:
    found = AdminClient({"bootstrap.servers": bootstrap, **security(task, SECURITY)}).list_topics(timeout=TIMEOUT).topics
    return {name: len(topic.partitions) for name, topic in found.items()}


def read(bootstrap: str, task: dict[str, Any]) -> dict[str, list[Row]]:
    wanted = places(task)
    rows: dict[Place, list[Row]] = {place: [] for place in wanted}
    left = set(wanted)
    client = consumer(bootstrap, task, isolation_level=task["isolation"], enable_partition_eof=True, **task.get("settings", {}))
    try:
        client.assign([TopicPartition(*place, task.get("offset", -2)) for place in wanted])
        end = time.monotonic() + READING_SECONDS
        while left:
            if time.monotonic() > end:
                raise TimeoutError(f"{left} not read, { ({named(place): len(seen) for place, seen in rows.items()}) }")
            for message in client.consume(1000, 0.2):
                error = message.error()
                place = (message.topic(), message.partition())
                if error is None:
                    rows[place].append(told(message))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    left.discard(place)
                else:
                    raise KafkaException(error)
    finally:
        client.close()
    return {named(place): seen for place, seen in rows.items()}


def until_error(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    """What comes from an offset on until the client reports an error or has waited long enough behind the last of it."""
    # Why it cannot connect it only says aside, and tries again for ever.
    aside: list[KafkaError] = []
    client = consumer(bootstrap, task, auto_offset_reset=task["reset"], error_cb=aside.append)
    seen: list[int] = []
    try:
        client.assign([TopicPartition(*task["place"], task["offset"])])
        end = time.monotonic() + max(task["seconds"], READING_SECONDS)
        while time.monotonic() < end and len(seen) < task["count"]:
            for message in client.consume(100, 0.2):
                if message.error():
                    return {"seen": seen, "error": message.error().name()}
                seen.append(message.offset())
                end = time.monotonic() + task["seconds"]
            # What a server says of a certificate it calls a failed connection, with TLS's own word for it.
            refused = [error for error in aside if error.code() in REFUSED or " alert " in error.str()]
            if refused:
                return {"seen": seen, "error": refused[0].name(), "said": refused[0].str()}
    finally:
        client.close()
    return {"seen": seen, "error": None}


def seek(bootstrap: str, task: dict[str, Any]) -> list[list[int]]:
    topic, partition = task["place"]
    client = consumer(bootstrap, task)
    found = []
    try:
        client.assign([TopicPartition(topic, partition, task["offsets"][0])])
        client.consume(1, 20)  # a seek needs a partition that is being fetched
        for offset in task["offsets"]:
            client.seek(TopicPartition(topic, partition, offset))
            seen: list[int] = []
            end = time.monotonic() + TIMEOUT
            while len(seen) < task["count"] and time.monotonic() < end:
                for message in client.consume(task["count"] - len(seen), 1):
                    if message.error():
                        raise KafkaException(message.error())
                    seen.append(message.offset())
            found.append(seen)
    finally:
        client.close()
    return found


def times(bootstrap: str, task: dict[str, Any]) -> list[list[int] | None]:
    client = consumer(bootstrap, task, isolation_level=task["isolation"])
    found: list[list[int] | None] = []
    try:
        for topic, partition, when in task["queries"]:
            (answer,) = client.offsets_for_times([TopicPartition(topic, partition, when)], timeout=TIMEOUT)
            if answer.error:
                raise KafkaException(answer.error)
            found.append(None if answer.offset < 0 else [answer.offset, -1])
    finally:
        client.close()
    return found


def ends(bootstrap: str, task: dict[str, Any]) -> dict[str, list[int]]:
    client = consumer(bootstrap, task, isolation_level=task["isolation"])
    try:
        return {named(place): list(client.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT)) for place in places(task)}
    finally:
        client.close()


def committed(bootstrap: str, task: dict[str, Any]) -> dict[str, int | None]:
    client = consumer(bootstrap, task, group_id=task["group"])
    try:
        found = client.committed([TopicPartition(*place) for place in places(task)], timeout=TIMEOUT)
    finally:
        client.close()
    return {named((each.topic, each.partition)): None if each.offset < 0 else each.offset for each in found}


class Member:
    def __init__(self, bootstrap: str, task: dict[str, Any]) -> None:
        self._client = consumer(
            bootstrap, task, group_id=task["group"], auto_offset_reset="earliest", session_timeout_ms=45_000, heartbeat_interval_ms=300
        )
        self._client.subscribe([task["topic"]])

    def poll(self) -> list[tuple[Place, int]]:
        messages = self._client.consume(50, 0.1)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        return [((message.topic(), message.partition()), message.offset()) for message in messages]

    def assigned(self) -> list[Place]:
        return [(each.topic, each.partition) for each in self._client.assignment()]

    def commit(self, offsets: dict[Place, int]) -> None:
        self._client.commit(offsets=[TopicPartition(*place, offset) for place, offset in offsets.items()], asynchronous=False)

    def close(self) -> None:
        self._client.close()


def group(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    return group_story(task, lambda: Member(bootstrap, task))


def subscribe(bootstrap: str, task: dict[str, Any]) -> dict[str, list[int]]:
    return subscribe_story(task, lambda: Member(bootstrap, task))


def crowd(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    return crowd_story(task, lambda: Member(bootstrap, task))


def produce(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    """One record a mode, and what the client says of it; then whether it still knows the topic."""
    from confluent_kafka import Producer

    found: dict[str, Any] = {}
    for name, settings in {"plain": {}, "idempotent": {"enable.idempotence": True}}.items():
        client = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 15000, **security(task, SECURITY), **settings})
        said: list[Any] = []
        # -1 is librdkafka's choice.
        partition = task.get("partition", -1)
        client.produce(
            task["topic"], b"x", partition=partition, on_delivery=lambda error, _, said=said: said.append(error and error.name())
        )
        left = client.flush(TIMEOUT)
        found[name] = said[0] if said and not left else "nothing"
        found[name + " partitions"] = len(client.list_topics(task["topic"], timeout=TIMEOUT).topics[task["topic"]].partitions)
    return found


if __name__ == "__main__":
    main(
        {
            "topics": topics,
            "read": read,
            "seek": seek,
            "times": times,
            "ends": ends,
            "committed": committed,
            "group": group,
            "crowd": crowd,
            "subscribe": subscribe,
            "until_error": until_error,
            "produce": produce,
        }
    )
