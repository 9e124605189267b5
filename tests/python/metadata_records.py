"""Records of the metadata log, byte by byte, for tests that need one that no real cluster here has."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from offsetlog import LogDir

TOPIC = "__cluster_metadata"


def varint(number: int) -> bytes:
    """Without zig-zag."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def text(value: str | None) -> bytes:
    """A compact string, or null."""
    if value is None:
        return b"\0"
    data = value.encode()
    return varint(len(data) + 1) + data


def numbers(values: Iterable[int]) -> bytes:
    """A compact array of int32."""
    packed = [struct.pack(">i", value) for value in values]
    return varint(len(packed) + 1) + b"".join(packed)


def record(number: int, body: bytes, version: int = 0) -> bytes:
    """A record with its frame and no tagged fields."""
    return b"\1" + varint(number) + varint(version) + body + b"\0"


def topic(name: str, topic_id: bytes) -> bytes:
    """TopicRecord."""
    return record(2, text(name) + topic_id)


def removal(topic_id: bytes) -> bytes:
    """RemoveTopicRecord."""
    return record(9, topic_id)


def partition(
    topic_id: bytes, number: int, replicas: Iterable[int], *, removing: Iterable[int] = (), adding: Iterable[int] = ()
) -> bytes:
    """PartitionRecord; the first replica leads."""
    replicas = list(replicas)
    body = struct.pack(">i", number) + topic_id + numbers(replicas) + numbers(replicas) + numbers(removing) + numbers(adding)
    return record(3, body + struct.pack(">iii", replicas[0] if replicas else -1, 0, 0))


def leader_change(topic_id: bytes, number: int, leader: int) -> bytes:
    """PartitionChangeRecord with the leader alone, its tagged field 1; -1 is nobody."""
    tagged = varint(1) + varint(1) + varint(4) + struct.pack(">i", leader)
    return b"\1" + varint(5) + varint(0) + struct.pack(">i", number) + topic_id + tagged


def replicas_change(topic_id: bytes, number: int, replicas: Iterable[int], directories: Iterable[bytes]) -> bytes:
    """PartitionChangeRecord with the replicas and the log dir of each, its tagged fields 2 and 8."""
    told, ids = numbers(replicas), list(directories)
    packed = varint(len(ids) + 1) + b"".join(ids)
    tagged = varint(2) + varint(2) + varint(len(told)) + told + varint(8) + varint(len(packed)) + packed
    return b"\1" + varint(5) + varint(1) + struct.pack(">i", number) + topic_id + tagged


KINDS = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}


def config(kind: str, name: str, key: str, value: str | None) -> bytes:
    """ConfigRecord."""
    return record(4, bytes([KINDS[kind]]) + text(name) + text(key) + text(value))


class Acl(NamedTuple):
    """What an entry of access control says, by Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def acl(entry_id: bytes, entry: Acl) -> bytes:
    """AccessControlEntryRecord."""
    body = entry_id + bytes([entry.resource_type]) + text(entry.resource_name) + bytes([entry.pattern_type])
    return record(18, body + text(entry.principal) + text(entry.host) + bytes([entry.operation, entry.permission_type]))


def quota(entity: Mapping[str, str | None], key: str, value: float, *, remove: bool = False) -> bytes:
    """ClientQuotaRecord."""
    parts = [text(kind) + text(name) + b"\0" for kind, name in entity.items()]
    return record(14, varint(len(parts) + 1) + b"".join(parts) + text(key) + struct.pack(">d", value) + bytes([remove]))


def scram(user: str, mechanism: int, iterations: int) -> bytes:
    """UserScramCredentialRecord, whose salt and keys no output may have."""
    secret = text("s3cret-salt") + text("s3cret-stored") + text("s3cret-server")
    return record(11, text(user) + bytes([mechanism]) + secret + struct.pack(">i", iterations))


def write(place: Path, values: Iterable[bytes]) -> Path:
    """A folder with a metadata log of these records."""
    with LogDir.open(place, "a") as logs:
        if TOPIC not in logs.topics():
            logs.create_topic(TOPIC)
        logs.log(TOPIC, 0).append_records([(None, value) for value in values])
    return place
