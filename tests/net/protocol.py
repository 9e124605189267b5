"""Kafka's requests and responses by the message schemas in Kafka's own client jar, for requests that no client library sends.

`Schema` describes a message, `Connection` speaks it. Values are dicts of the schemas' names; a field that is not given has its default.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import socket
import struct
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from broker import ROOT

Value = dict[str, Any]

JARS = (
    ROOT / "build" / "brokers" / "4.3.0" / "kafka-clients-4.3.0.jar",
    ROOT / "build" / "oracle" / "lib" / "kafka-clients-4.3.0.jar",
)
"""One of them is there: both are the same jar."""

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 10, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, API_VERSIONS = 15, 16, 17, 18
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_ACLS, DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS = 22, 23, 29, 32, 35
SASL_AUTHENTICATE, DELETE_GROUPS, OFFSET_DELETE, DESCRIBE_CLUSTER = 36, 42, 47, 60

CLIENT_ID = "tests"
ANSWER_SECONDS = 300
FIXED = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}
NO_UUID = uuid.UUID(int=0)


@dataclass(frozen=True)
class Versions:
    """A range of versions, both ends inclusive."""

    low: int
    high: int

    @classmethod
    def of(cls, text: str | None) -> Self:
        if text is None or text == "none":
            return cls(1, 0)
        low, separator, high = text.partition("-")
        if separator:
            return cls(int(low), int(high))
        return cls(int(text[:-1]), 2**15 - 1) if text.endswith("+") else cls(int(text), int(text))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


@dataclass(frozen=True)
class Field:
    """One field of a message or structure."""

    name: str
    kind: str
    """The type; of an array that of its elements."""
    is_array: bool
    fields: tuple[Field, ...] | None
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    flexible: Versions | None
    """Where it differs from the message's."""
    default: Any = None
    entity: str = ""

    def is_flexible(self, version: int, *, message: bool) -> bool:
        return message if self.flexible is None else version in self.flexible


@dataclass(frozen=True)
class Schema:
    """A request or a response."""

    api: int
    name: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...] = field(repr=False)

    def write(self, value: Mapping[str, Any], version: int) -> bytes:
        """The body of a message."""
        out = bytearray()
        _write_struct(out, self.fields, value, version, version in self.flexible)
        return bytes(out)

    def read(self, data: bytes, version: int) -> Value:
        """A body's fields; all of its bytes are used."""
        reader = Reader(data)
        value = _read_struct(reader, self.fields, version, version in self.flexible)
        assert reader.at == len(data), f"{self.name} {version}: {len(data) - reader.at} bytes behind its end"
        return value

    def read_front(self, data: bytes, version: int) -> Value:
        """A body's fields; as a broker does, it leaves bytes behind them alone."""
        return _read_struct(Reader(data), self.fields, version, version in self.flexible)


def _plain_json(text: str) -> Any:
    """Kafka's schemas have comments, which JSON does not."""
    return json.loads(re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda found: found[1] or "", text))


def _default(kind: str, *, is_array: bool, given: object) -> Any:
    if given == "null":
        return None
    if is_array:
        return []
    if kind in FIXED:
        if kind == "bool":
            return str(given).lower() == "true"
        return int(str(given), 0) if given not in (None, "") else 0
    return {"string": given or "", "uuid": NO_UUID, "bytes": b"", "records": None}.get(kind, {})


def _fields(raw: list[dict[str, Any]], common: Mapping[str, list[dict[str, Any]]]) -> tuple[Field, ...]:
    found = []
    for each in raw:
        kind = each["type"].removeprefix("[]")
        is_array = each["type"].startswith("[]")
        inner = each.get("fields") or common.get(kind)
        found.append(
            Field(
                each["name"],
                kind,
                is_array,
                _fields(inner, common) if inner else None,
                Versions.of(each["versions"]),
                Versions.of(each.get("nullableVersions")),
                Versions.of(each.get("taggedVersions")),
                each.get("tag", -1),
                Versions.of(each["flexibleVersions"]) if "flexibleVersions" in each else None,
                # Not every request says so itself: whoever asks is a consumer.
                -1 if each["name"] == "ReplicaId" else _default(kind, is_array=is_array, given=each.get("default")),
                each.get("entityType", ""),
            )
        )
    return tuple(found)


@functools.cache
def schemas(kind: str) -> dict[int, Schema]:
    """All requests or responses of the newest Kafka, by their number."""
    jar: Path | None = next((path for path in JARS if path.exists()), None)
    assert jar is not None, "no kafka-clients jar: run `make build/oracle/oracle.jar`"
    found = {}
    with zipfile.ZipFile(jar) as entries:
        for name in entries.namelist():
            if not re.fullmatch(rf"common/message/\w+{kind.title()}\.json", name):
                continue
            raw = _plain_json(entries.read(name).decode())
            if raw.get("type") == kind:
                common = {each["name"]: each["fields"] for each in raw.get("commonStructs", ())}
                found[raw["apiKey"]] = Schema(
                    raw["apiKey"],
                    raw["name"],
                    Versions.of(raw["validVersions"]),
                    Versions.of(raw.get("flexibleVersions")),
                    _fields(raw.get("fields", []), common),
                )
    return found


def request(api: int) -> Schema:
    return schemas("request")[api]


def response(api: int) -> Schema:
    return schemas("response")[api]


class Reader:
    """Bytes from the front; a short read is an error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        assert 0 <= size <= len(self._data) - self.at, f"{size} bytes wanted at {self.at} of {len(self._data)}"
        self.at += size
        return self._data[self.at - size : self.at]

    def fixed(self, form: str) -> Any:
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise AssertionError("a varint of more than five bytes")


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _length(form: str, size: int | None, *, flexible: bool) -> bytes:
    """A length as Kafka writes it; nothing has -1."""
    if flexible:
        return varint(0 if size is None else size + 1)
    return struct.pack(">" + form, -1 if size is None else size)


def _write_value(out: bytearray, each: Field, value: Any, version: int, message: bool) -> None:
    flexible = each.is_flexible(version, message=message)
    if value is None:
        assert version in each.nullable, f"{each.name} is not nullable in {version}"
    if each.is_array:
        out += _length("i", None if value is None else len(value), flexible=flexible)
        for item in value or ():
            _write_item(out, each, item, version, message)
        return
    if each.fields is not None and version in each.nullable:
        out += struct.pack(">b", -1 if value is None else 1)
        if value is None:
            return
    _write_item(out, each, value, version, message)


def _write_item(out: bytearray, each: Field, value: Any, version: int, message: bool) -> None:
    flexible = each.is_flexible(version, message=message)
    if each.kind in FIXED:
        out += struct.pack(">" + FIXED[each.kind], value)
    elif each.kind == "uuid":
        out += value.bytes
    elif each.kind == "string":
        data = None if value is None else value.encode()
        out += _length("h", None if data is None else len(data), flexible=flexible) + (data or b"")
    elif each.kind in {"bytes", "records"}:
        out += _length("i", None if value is None else len(value), flexible=flexible) + (value or b"")
    else:
        assert each.fields is not None
        _write_struct(out, each.fields, value, version, message)


def _write_struct(out: bytearray, fields: tuple[Field, ...], value: Mapping[str, Any], version: int, flexible: bool) -> None:
    unknown = set(value) - {each.name for each in fields}
    assert not unknown, unknown
    tagged: list[tuple[int, bytes]] = []
    for each in fields:
        if version not in each.versions:
            continue
        given = value.get(each.name, each.default)
        if version not in each.tagged:
            _write_value(out, each, given, version, flexible)
        elif each.name in value:
            content = bytearray()
            _write_value(content, each, given, version, flexible)
            tagged.append((each.tag, bytes(content)))
    if flexible:
        out += varint(len(tagged))
        for tag, data in sorted(tagged):
            out += varint(tag) + varint(len(data)) + data


def _read_length(reader: Reader, form: str, *, flexible: bool) -> int:
    return reader.varint() - 1 if flexible else int(reader.fixed(form))


def _read_value(reader: Reader, each: Field, version: int, message: bool) -> Any:
    flexible = each.is_flexible(version, message=message)
    if each.is_array:
        size = _read_length(reader, "i", flexible=flexible)
        return None if size < 0 else [_read_item(reader, each, version, message) for _ in range(size)]
    if each.fields is not None and version in each.nullable and reader.fixed("b") < 0:
        return None
    return _read_item(reader, each, version, message)


def _read_item(reader: Reader, each: Field, version: int, message: bool) -> Any:
    flexible = each.is_flexible(version, message=message)
    if each.kind in FIXED:
        return reader.fixed(FIXED[each.kind])
    if each.kind == "uuid":
        return uuid.UUID(bytes=reader.take(16))
    if each.kind == "string":
        size = _read_length(reader, "h", flexible=flexible)
        return None if size < 0 else reader.take(size).decode()
    if each.kind in {"bytes", "records"}:
        size = _read_length(reader, "i", flexible=flexible)
        return None if size < 0 else reader.take(size)
    assert each.fields is not None
    return _read_struct(reader, each.fields, version, message)


def _read_struct(reader: Reader, fields: tuple[Field, ...], version: int, flexible: bool) -> Value:
    value: Value = {}
    tagged = {}
    for each in fields:
        if version in each.tagged:
            tagged[each.tag] = each
        elif version in each.versions:
            value[each.name] = _read_value(reader, each, version, flexible)
    if flexible:
        before = -1
        for _ in range(reader.varint()):
            tag, size = reader.varint(), reader.varint()
            assert tag > before, "tags out of order"
            before = tag
            inner = Reader(reader.take(size))
            assert tag in tagged, f"tag {tag} is not one of version {version}"
            value[tagged[tag].name] = _read_value(inner, tagged[tag], version, flexible)
            assert inner.at == size
    return value


def framed(api: int, version: int, number: int, body: bytes, *, client_id: str | None = CLIENT_ID) -> bytes:
    """A whole request with its length."""
    header = struct.pack(">hhi", api, version, number)
    header += struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id.encode())) + client_id.encode()
    if version in request(api).flexible:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


class ClosedError(ConnectionError):
    """The server ended the connection."""


class Connection:
    """One connection to a broker, one request at a time unless asked otherwise."""

    def __init__(self, address: str, seconds: float = ANSWER_SECONDS) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, api: int, version: int, value: Mapping[str, Any]) -> int:
        """Send a request; its number."""
        number = next(self._numbers)
        self.socket.sendall(framed(api, version, number, request(api).write(value, version)))
        return number

    def receive_frame(self) -> bytes:
        """The next answer, without its length."""
        (size,) = struct.unpack(">i", self.exactly(4))
        assert size >= 4, size
        return self.exactly(size)

    def receive(self, api: int, version: int, number: int) -> Value:
        """The answer to a request that was sent."""
        return body_of(self.receive_frame(), api, version, number)

    def ask(self, api: int, version: int, value: Mapping[str, Any] | None = None) -> Value:
        """One request and its answer."""
        return self.receive(api, version, self.send(api, version, value or {}))

    def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError as error:
                raise ClosedError(f"reset behind {len(data)} of {size} bytes") from error
            if not part:
                raise ClosedError(f"closed behind {len(data)} of {size} bytes")
            data += part
        return bytes(data)


def body_of(frame: bytes, api: int, version: int, number: int) -> Value:
    """A response's fields; the header is what Kafka sends for this version."""
    assert struct.unpack_from(">i", frame) == (number,), "another request's answer"
    at = 4
    # The answer to ApiVersions has no tags in its header: who asks does not know yet what is spoken.
    if version in response(api).flexible and api != API_VERSIONS:
        assert frame[4] == 0, "tags in the header"
        at = 5
    return response(api).read(frame[at:], version)


# Requests that several tests send.


def fetch(
    topic: str | uuid.UUID,
    partition: int,
    offset: int,
    *,
    committed: bool = False,
    max_bytes: int = 8 << 20,
    partition_bytes: int | None = None,
    wait_ms: int = 0,
    min_bytes: int = 0,
    **more: Any,
) -> Value:
    """A Fetch of one partition; by topic id from version 13 on. `more` goes into the partition."""
    which = {"TopicId": topic} if isinstance(topic, uuid.UUID) else {"Topic": topic}
    at = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": partition_bytes or max_bytes, **more}
    return {
        "MaxWaitMs": wait_ms,
        "MinBytes": min_bytes,
        "MaxBytes": max_bytes,
        "IsolationLevel": int(committed),
        "Topics": [{**which, "Partitions": [at]}],
    }


def only(answer: Value) -> Value:
    """The one partition of an answer."""
    ((topic),) = answer["Responses"] if "Responses" in answer else answer["Topics"]
    (partition,) = topic.get("Partitions") or topic["PartitionResponses"]
    found: Value = partition
    return found


def batches(records: bytes) -> list[tuple[int, int, bytes]]:
    """First offset, last offset and bytes of each whole batch of format 2."""
    found = []
    at = 0
    while at + 61 <= len(records):
        base, size = struct.unpack_from(">qi", records, at)
        (last,) = struct.unpack_from(">i", records, at + 23)
        if at + 12 + size > len(records):
            break
        found.append((base, base + last, records[at : at + 12 + size]))
        at += 12 + size
    return found
