"""Requests that no client library sends as they are wanted here: a batch just as given, and the bytes of a fetch just as served.

Plain versions without tagged fields, which brokers of 3.x and 4.x both speak.
"""

from __future__ import annotations

import itertools
import socket
import struct
import uuid
from collections.abc import Mapping
from typing import NamedTuple, Self

PRODUCE, FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, ADD_PARTITIONS_TO_TXN = 0, 1, 10, 22, 23, 24
END_TXN, INCREMENTAL_ALTER_CONFIGS, BROKER_REGISTRATION = 26, 44, 62
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1
TOO_FEW_REPLICAS = {19, 20}
"""Found before the append, or behind it: then the records are in the log, and not acknowledged."""
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
ANSWER_SECONDS = 300


class Produced(NamedTuple):
    """A broker's answer to one batch."""

    error: int
    base_offset: int
    log_append_time: int
    log_start_offset: int


class Fetched(NamedTuple):
    """A broker's answer to one fetch of one partition."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of each aborted transaction in reach."""
    records: bytes


class _Answer:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self._data, self._at)
        self._at += struct.calcsize(form)
        assert isinstance(value, int)
        return value

    def bytes(self) -> bytes:
        size = max(self.take("i"), 0)
        value = self._data[self._at : self._at + size]
        self._at += size
        return value

    def text(self) -> None:
        size = self.take("h")
        self._at += size


FEATURES = (
    "metadata.version",
    "kraft.version",
    "transaction.version",
    "group.version",
    "share.version",
    "streams.version",
    "eligible.leader.replicas.version",
)


def _compact(value: str) -> bytes:
    """A string in requests of flexible versions, where each structure ends with the number of its tagged fields."""
    return bytes([len(value) + 1]) + value.encode()


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class Wire:
    """One connection to a broker."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_SECONDS)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _ask(self, api: int, version: int, body: bytes) -> _Answer:
        number = next(self._numbers)
        request = struct.pack(">hhi", api, version, number) + _text("tests") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(size)
        assert struct.unpack_from(">i", answer) == (number,)
        return _Answer(answer[4:])

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)

    def produce(self, topic: str, partition: int, batch: bytes, *, transactional_id: str | None = None) -> Produced:
        """Send one batch just as it is, and wait until it is in the log."""
        whose = struct.pack(">h", -1) if transactional_id is None else _text(transactional_id)
        body = whose + struct.pack(">hi", -1, ANSWER_SECONDS * 1000) + struct.pack(">i", 1) + _text(topic)
        answer = self._ask(PRODUCE, 7, body + struct.pack(">iii", 1, partition, len(batch)) + batch)
        answer.take("i")
        answer.text()
        answer.take("i")
        answer.take("i")
        return Produced(answer.take("h"), answer.take("q"), answer.take("q"), answer.take("q"))

    def fetch(self, topic: str, partition: int, offset: int, *, committed: bool = False, max_bytes: int = 4 << 20) -> Fetched:
        """Ask for the batches from the one that holds `offset` on."""
        body = struct.pack(">iiiibii", -1, 100, 0, max_bytes, committed, 0, -1) + struct.pack(">i", 1) + _text(topic)
        answer = self._ask(FETCH, 10, body + struct.pack(">iiiqqii", 1, partition, -1, offset, -1, max_bytes, 0))
        answer.take("i")
        error = answer.take("h")
        assert error == 0, error
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        answer.take("i")
        error, high_watermark, last_stable, log_start = answer.take("h"), answer.take("q"), answer.take("q"), answer.take("q")
        aborted = tuple((answer.take("q"), answer.take("q")) for _ in range(max(answer.take("i"), 0)))
        return Fetched(error, high_watermark, last_stable, log_start, aborted, answer.bytes())

    def alter_broker(self, name: str, settings: Mapping[str, str | None]) -> None:
        """Set, or with `None` take away, dynamic settings of a broker, or of all of them if `name` is empty.

        As kafka-configs does with `--entity-name` or `--entity-default`.
        """
        self._alter(BROKER_RESOURCE, name, settings)

    def alter_topic(self, name: str, settings: Mapping[str, str | None]) -> None:
        """The same of a topic."""
        self._alter(TOPIC_RESOURCE, name, settings)

    def _alter(self, resource: int, name: str, settings: Mapping[str, str | None]) -> None:
        body = struct.pack(">ib", 1, resource) + _text(name) + struct.pack(">i", len(settings))
        for key, value in settings.items():
            body += _text(key) + (struct.pack(">bh", DELETE, -1) if value is None else struct.pack(">b", SET) + _text(value))
        answer = self._ask(INCREMENTAL_ALTER_CONFIGS, 0, body + struct.pack(">b", 0))
        answer.take("i")
        assert answer.take("i") == 1
        error = answer.take("h")
        assert error == 0, error

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> tuple[int, int, int]:
        """Error, producer id and epoch for a transactional id; what it has open is aborted."""
        # The first one that asks for a coordinator has its topic made.
        self._ask(FIND_COORDINATOR, 1, _text(transactional_id) + struct.pack(">b", 1))
        answer = self._ask(INIT_PRODUCER_ID, 1, _text(transactional_id) + struct.pack(">i", timeout_ms))
        answer.take("i")
        return answer.take("h"), answer.take("q"), answer.take("h")

    def add_partition(self, transactional_id: str, producer: tuple[int, int], topic: str, partition: int) -> int:
        """Take a partition into a producer's transaction, which begins with the first one. Gives the error."""
        body = _text(transactional_id) + struct.pack(">qhi", *producer, 1) + _text(topic) + struct.pack(">ii", 1, partition)
        answer = self._ask(ADD_PARTITIONS_TO_TXN, 1, body)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        answer.take("i")
        return answer.take("h")

    def end_transaction(
        self, transactional_id: str, producer: tuple[int, int], *, commit: bool, raises_epoch: bool
    ) -> tuple[int, int]:
        """Error, and the epoch from now on. `raises_epoch`: as a client with `transaction.version` 2 asks, whose epochs grow with each end."""
        if not raises_epoch:
            answer = self._ask(END_TXN, 2, _text(transactional_id) + struct.pack(">qhb", *producer, commit))
            answer.take("i")
            return answer.take("h"), producer[1]
        body = _compact(transactional_id) + struct.pack(">qhb", *producer, commit) + b"\0"
        answer = self._ask(END_TXN, 5, b"\0" + body)
        answer.take("b")
        answer.take("i")
        error, _, epoch = answer.take("h"), answer.take("q"), answer.take("h")
        return error, epoch if error == 0 else producer[1]

    def register_broker(self, number: int, cluster_id: str) -> None:
        """Tell a controller of a broker, of which it then never hears again: a replica that stays away."""
        listener = _compact("PLAINTEXT") + _compact("127.0.0.1") + struct.pack(">Hh", 1, 0) + b"\0"
        features = b"".join(_compact(name) + struct.pack(">hh", 0, 1000) + b"\0" for name in FEATURES)
        body = struct.pack(">i", number) + _compact(cluster_id) + uuid.uuid4().bytes + b"\2" + listener
        body += bytes([len(FEATURES) + 1]) + features + b"\0\0" + b"\2" + uuid.uuid4().bytes + struct.pack(">q", -1) + b"\0"
        answer = self._ask(BROKER_REGISTRATION, 4, b"\0" + body)
        answer.take("b")
        answer.take("i")
        error = answer.take("h")
        assert error == 0, error

    def end_offset_for_epoch(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that the partition knows, and where it ends; (-1, -1) where there is none."""
        body = struct.pack(">i", 1) + _text(topic) + struct.pack(">iiii", 1, partition, -1, epoch)
        answer = self._ask(OFFSET_FOR_LEADER_EPOCH, 2, body)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        error = answer.take("h")
        assert error == 0, error
        answer.take("i")
        return answer.take("i"), answer.take("q")
