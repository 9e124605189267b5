"""Requests that no client library sends as they are wanted here: a batch just as given, and the bytes of a fetch just as served.

Plain versions without tagged fields, which brokers of 3.x and 4.x both speak.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Mapping
from typing import NamedTuple, Self

PRODUCE, FETCH, OFFSET_FOR_LEADER_EPOCH, INCREMENTAL_ALTER_CONFIGS = 0, 1, 23, 44
BROKER_RESOURCE = 4
SET, DELETE = 0, 1
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
ANSWER_SECONDS = 30


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
            assert part, "the broker closed the connection"
            parts += part
        return bytes(parts)

    def produce(self, topic: str, partition: int, batch: bytes) -> Produced:
        """Send one batch just as it is, and wait until it is in the log."""
        body = struct.pack(">hhi", -1, -1, ANSWER_SECONDS * 1000) + struct.pack(">i", 1) + _text(topic)
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
        body = struct.pack(">ib", 1, BROKER_RESOURCE) + _text(name) + struct.pack(">i", len(settings))
        for key, value in settings.items():
            body += _text(key) + (struct.pack(">bh", DELETE, -1) if value is None else struct.pack(">b", SET) + _text(value))
        answer = self._ask(INCREMENTAL_ALTER_CONFIGS, 0, body + struct.pack(">b", 0))
        answer.take("i")
        assert answer.take("i") == 1
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
