"""kafka-python; see common.py for what comes in and goes out."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from common import READING_SECONDS, Place, Row, crowd_story, group_story, heard, main, named, places, row, security, subscribe_story

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

TIMEOUT_MS = 300_000
SECURITY = {
    "protocol": "security_protocol",
    "ca": "ssl_cafile",
    "certificate": "ssl_certfile",
    "key": "ssl_keyfile",
    "mechanism": "sasl_mechanism",
    "user": "sasl_plain_username",
    "password": "sasl_plain_password",
}


def consumer(bootstrap: str, task: dict[str, Any], **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        **{
            "auto_offset_reset": "none",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 100,
            **security(task, SECURITY),
            **settings,
        },
    )


def told(record: Any) -> Row:
    return row(
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        getattr(record, "leader_epoch", None),
    )


def topics(bootstrap: str, task: dict[str, Any]) -> dict[str, int]:
    client = consumer(bootstrap, task)
    try:
        return {name: len(client.partitions_for_topic(name) or ()) for name in client.topics()}
    finally:
        client.close()


def read(bootstrap: str, task: dict[str, Any]) -> dict[str, list[Row]]:
    wanted = [TopicPartition(*place) for place in places(task)]
    rows: dict[TopicPartition, list[Row]] = {place: [] for place in wanted}
    client = consumer(bootstrap, task, isolation_level=task["isolation"])
    try:
        client.assign(wanted)
        client.seek_to_beginning(*wanted)
        ends = client.end_offsets(wanted)
        end = time.monotonic() + READING_SECONDS
        while any(client.position(place) < ends[place] for place in wanted):
            if time.monotonic() > end:
                raise TimeoutError({named(place): (client.position(place), ends[place]) for place in wanted})
            for place, records in client.poll(200).items():
                rows[place] += map(told, records)
    finally:
        client.close()
    return {named(place): seen for place, seen in rows.items()}


def until_error(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    """What comes from an offset on until the client reports an error or has waited long enough behind the last of it."""
    place = TopicPartition(*task["place"])
    seen: list[int] = []
    try:
        reset = {"error": "none"}.get(task["reset"], task["reset"])
        settings = {"auto_offset_reset": reset, "bootstrap_timeout_ms": task["seconds"] * 1000}
        with heard() as said, contextlib.closing(consumer(bootstrap, task, **settings)) as client:
            client.assign([place])
            client.seek(place, task["offset"])
            end = time.monotonic() + max(task["seconds"], READING_SECONDS)
            while time.monotonic() < end and len(seen) < task["count"]:
                for records in client.poll(200).values():
                    seen += [record.offset for record in records]
                    end = time.monotonic() + task["seconds"]
    except Exception as error:  # noqa: BLE001  # whatever a client raises is its answer
        return {"seen": seen, "error": type(error).__name__, "said": "\n".join(said)}
    return {"seen": seen, "error": None}


def seek(bootstrap: str, task: dict[str, Any]) -> list[list[int]]:
    place = TopicPartition(*task["place"])
    client = consumer(bootstrap, task)
    found = []
    try:
        client.assign([place])
        for offset in task["offsets"]:
            client.seek(place, offset)
            seen: list[int] = []
            end = time.monotonic() + TIMEOUT_MS / 1000
            while len(seen) < task["count"] and time.monotonic() < end:
                for records in client.poll(1000, max_records=task["count"] - len(seen)).values():
                    seen += [record.offset for record in records]
            found.append(seen)
    finally:
        client.close()
    return found


def times(bootstrap: str, task: dict[str, Any]) -> list[list[int] | None]:
    client = consumer(bootstrap, task, isolation_level=task["isolation"])
    found: list[list[int] | None] = []
    try:
        for topic, partition, when in task["queries"]:
            (answer,) = client.offsets_for_times({TopicPartition(topic, partition): when}).values()
            found.append(None if answer is None else [answer.offset, answer.timestamp])
    finally:
        client.close()
    return found


def ends(bootstrap: str, task: dict[str, Any]) -> dict[str, list[int]]:
    wanted = [TopicPartition(*place) for place in places(task)]
    client = consumer(bootstrap, task, isolation_level=task["isolation"])
    try:
        last = client.end_offsets(wanted)
        return {named(place): [offset, last[place]] for place, offset in client.beginning_offsets(wanted).items()}
    finally:
        client.close()


def committed(bootstrap: str, task: dict[str, Any]) -> dict[str, int | None]:
    client = consumer(bootstrap, task, group_id=task["group"])
    try:
        return {named(place): client.committed(TopicPartition(*place)) for place in places(task)}
    finally:
        client.close()


class Member:
    def __init__(self, bootstrap: str, task: dict[str, Any]) -> None:
        self._client = consumer(
            bootstrap,
            task,
            group_id=task["group"],
            auto_offset_reset="earliest",
            session_timeout_ms=45_000,
            heartbeat_interval_ms=300,
            max_poll_records=50,
        )
        self._client.subscribe([task["topic"]])

    def poll(self) -> list[tuple[Place, int]]:
        found = self._client.poll(100)
        return [((place.topic, place.partition), record.offset) for place, records in found.items() for record in records]

    def assigned(self) -> list[Place]:
        return [(each.topic, each.partition) for each in self._client.assignment()]

    def commit(self, offsets: dict[Place, int]) -> None:
        self._client.commit({TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()})

    def close(self) -> None:
        self._client.close()


def group(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    return group_story(task, lambda: Member(bootstrap, task))


def subscribe(bootstrap: str, task: dict[str, Any]) -> dict[str, list[int]]:
    return subscribe_story(task, lambda: Member(bootstrap, task))


def crowd(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    return crowd_story(task, lambda: Member(bootstrap, task))


def produce(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    """One record a mode, and what the client says of it."""
    found: dict[str, Any] = {}
    for name, settings in {"plain": {"enable_idempotence": False}, "idempotent": {"enable_idempotence": True}}.items():
        client = KafkaProducer(
            bootstrap_servers=bootstrap, **security(task, SECURITY), retries=0 if name == "plain" else 3, **settings
        )
        try:
            client.send(task["topic"], b"x").get(20)
            found[name] = None
        except Exception as error:  # noqa: BLE001  # whatever a client raises is its answer
            found[name] = type(error).__name__
        client.close(timeout=5)
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
