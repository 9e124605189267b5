"""aiokafka; see common.py for what comes in and goes out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.helpers import create_ssl_context
from common import READING_SECONDS, Place, Row, crowd_story, group_story, heard, main, named, places, row, security, subscribe_story

SECONDS = 300
SECURITY = {
    "protocol": "security_protocol",
    "ca": "cafile",
    "certificate": "certfile",
    "key": "keyfile",
    "mechanism": "sasl_mechanism",
    "user": "sasl_plain_username",
    "password": "sasl_plain_password",
}


def secured(task: dict[str, Any]) -> dict[str, Any]:
    """Its settings for how to connect: files are read into a context."""
    settings = security(task, SECURITY)
    files = {name: settings.pop(name) for name in ("cafile", "certfile", "keyfile") if name in settings}
    return {**settings, "ssl_context": create_ssl_context(**files) if files else None}


@contextlib.asynccontextmanager
async def consumer(bootstrap: str, task: dict[str, Any], **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    client = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        **{"auto_offset_reset": "none", "enable_auto_commit": False, "fetch_max_wait_ms": 100, **secured(task), **settings},
    )
    try:
        await client.start()
        yield client
    finally:
        await client.stop()


def told(record: Any) -> Row:
    return row(record.offset, record.timestamp, record.timestamp_type, record.key, record.value, record.headers)


async def topics(bootstrap: str, task: dict[str, Any]) -> dict[str, int]:
    async with consumer(bootstrap, task) as client:
        # A consumer keeps the partitions of what it is assigned only.
        cluster = await client._client.fetch_all_metadata()  # noqa: SLF001
        return {name: len(cluster.partitions_for_topic(name) or ()) for name in await client.topics()}


async def read(bootstrap: str, task: dict[str, Any]) -> dict[str, list[Row]]:
    wanted = [TopicPartition(*place) for place in places(task)]
    rows: dict[TopicPartition, list[Row]] = {place: [] for place in wanted}
    async with consumer(bootstrap, task, isolation_level=task["isolation"]) as client:
        client.assign(wanted)
        await client.seek_to_beginning(*wanted)
        # Always the high watermark, whatever the isolation level: what cannot be read is not waited for.
        ends = {place: task["ends"][named(place)] for place in wanted}
        end = time.monotonic() + READING_SECONDS
        while any([await client.position(place) < ends[place] for place in wanted]):
            if time.monotonic() > end:
                raise TimeoutError({named(place): (await client.position(place), ends[place]) for place in wanted})
            for place, records in (await client.getmany(timeout_ms=200)).items():
                rows[place] += map(told, records)
    return {named(place): seen for place, seen in rows.items()}


async def until_error(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    """What comes from an offset on until the client reports an error or has waited long enough behind the last of it."""
    place = TopicPartition(*task["place"])
    seen: list[int] = []
    reset = {"error": "none"}.get(task["reset"], task["reset"])
    try:
        with heard() as said:
            async with consumer(bootstrap, task, auto_offset_reset=reset) as client:
                client.assign([place])
                client.seek(place, task["offset"])
                end = time.monotonic() + max(task["seconds"], READING_SECONDS)
                while time.monotonic() < end and len(seen) < task["count"]:
                    for records in (await client.getmany(timeout_ms=200)).values():
                        seen += [record.offset for record in records]
                        end = time.monotonic() + task["seconds"]
    except Exception as error:  # noqa: BLE001  # whatever a client raises is its answer
        return {"seen": seen, "error": type(error).__name__, "said": "\n".join(said)}
    return {"seen": seen, "error": None}


async def seek(bootstrap: str, task: dict[str, Any]) -> list[list[int]]:
    place = TopicPartition(*task["place"])
    found = []
    async with consumer(bootstrap, task) as client:
        client.assign([place])
        for offset in task["offsets"]:
            client.seek(place, offset)
            seen: list[int] = []
            end = time.monotonic() + SECONDS
            while len(seen) < task["count"] and time.monotonic() < end:
                for records in (await client.getmany(timeout_ms=1000, max_records=task["count"] - len(seen))).values():
                    seen += [record.offset for record in records]
            found.append(seen)
    return found


async def times(bootstrap: str, task: dict[str, Any]) -> list[list[int] | None]:
    found: list[list[int] | None] = []
    async with consumer(bootstrap, task, isolation_level=task["isolation"]) as client:
        for topic, partition, when in task["queries"]:
            (answer,) = (await client.offsets_for_times({TopicPartition(topic, partition): when})).values()
            found.append(None if answer is None else [answer.offset, answer.timestamp])
    return found


async def ends(bootstrap: str, task: dict[str, Any]) -> dict[str, list[int]]:
    wanted = [TopicPartition(*place) for place in places(task)]
    async with consumer(bootstrap, task, isolation_level=task["isolation"]) as client:
        last = await client.end_offsets(wanted)
        return {named(place): [offset, last[place]] for place, offset in (await client.beginning_offsets(wanted)).items()}


async def committed(bootstrap: str, task: dict[str, Any]) -> dict[str, int | None]:
    async with consumer(bootstrap, task, group_id=task["group"]) as client:
        return {named(place): await client.committed(TopicPartition(*place)) for place in places(task)}


class Member:
    """One consumer with an event loop of its own, for a thread."""

    def __init__(self, bootstrap: str, task: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._client: AIOKafkaConsumer = self._loop.run_until_complete(self._made(bootstrap, task))

    async def _made(self, bootstrap: str, task: dict[str, Any]) -> AIOKafkaConsumer:
        client = AIOKafkaConsumer(
            task["topic"],
            bootstrap_servers=bootstrap,
            group_id=task["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=45_000,
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=100,
            **secured(task),
        )
        await client.start()
        return client

    def poll(self) -> list[tuple[Place, int]]:
        found = self._loop.run_until_complete(self._client.getmany(timeout_ms=100, max_records=50))
        return [((place.topic, place.partition), record.offset) for place, records in found.items() for record in records]

    def assigned(self) -> list[Place]:
        return [(each.topic, each.partition) for each in self._client.assignment()]

    def commit(self, offsets: dict[Place, int]) -> None:
        self._loop.run_until_complete(self._client.commit({TopicPartition(*place): offset for place, offset in offsets.items()}))

    def close(self) -> None:
        self._loop.run_until_complete(self._client.stop())
        self._loop.close()


def group(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    return group_story(task, lambda: Member(bootstrap, task))


def subscribe(bootstrap: str, task: dict[str, Any]) -> dict[str, list[int]]:
    return subscribe_story(task, lambda: Member(bootstrap, task))


def crowd(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    return crowd_story(task, lambda: Member(bootstrap, task))


async def produce(bootstrap: str, task: dict[str, Any]) -> dict[str, Any]:
    """One record a mode, and what the client says of it."""
    found: dict[str, Any] = {}
    for name, settings in {"plain": {}, "idempotent": {"enable_idempotence": True}}.items():
        client = AIOKafkaProducer(bootstrap_servers=bootstrap, **secured(task), **settings)
        await client.start()
        try:
            await asyncio.wait_for(client.send_and_wait(task["topic"], b"x"), SECONDS)
            found[name] = None
        except Exception as error:  # noqa: BLE001  # whatever a client raises is its answer
            found[name] = type(error).__name__
        # A producer that failed for good raises the error once more.
        with contextlib.suppress(Exception):
            await client.stop()
    return found


def run(verb: Callable[[str, dict[str, Any]], Awaitable[Any]]) -> Callable[[str, dict[str, Any]], Any]:
    async def limited(bootstrap: str, task: dict[str, Any]) -> Any:
        return await asyncio.wait_for(verb(bootstrap, task), READING_SECONDS + SECONDS)

    return lambda bootstrap, task: asyncio.run(limited(bootstrap, task))


if __name__ == "__main__":
    main(
        {
            "topics": run(topics),
            "read": run(read),
            "seek": run(seek),
            "times": run(times),
            "ends": run(ends),
            "committed": run(committed),
            "group": group,
            "crowd": crowd,
            "subscribe": subscribe,
            "until_error": run(until_error),
            "produce": run(produce),
        }
    )
