"""A raw Kafka client of three requests, which reads a partition and looks into it no more than it must: the next offset of each response."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Self

METADATA, FETCH, LIST_OFFSETS = 3, 1, 2
RECEIVE_BYTES = 4 << 20
SECONDS = 60
# Up to the leader epoch of a batch: base offset, length. From there to the last offset delta.
HEADER = struct.Struct(">qi")
LAST_DELTA = struct.Struct(">i")
LAST_DELTA_AT = 23
BATCH_MIN = 61


class WireError(RuntimeError):
    """A server answered what this client does not expect."""


class Wire:
    """One connection; a response lies in a buffer that is used again."""

    def __init__(self, address: str, authority: str | None = None) -> None:
        host, _, port = address.rpartition(":")
        plain = socket.create_connection((host, int(port)), SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._socket: socket.socket = plain
        if authority is not None:
            import ssl  # noqa: PLC0415 - not every Python has it, and tests of the rows import this

            context = ssl.create_default_context(cafile=authority)
            self._socket = context.wrap_socket(plain, server_hostname=host)
        self._buffer = bytearray(1 << 20)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, api: int, version: int, body: bytes) -> memoryview:
        """The response behind its correlation id."""
        self._correlation += 1
        head = struct.pack(">hhih5s", api, version, self._correlation, 5, b"bench")
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (length,) = struct.unpack(">i", self._received(4))
        response = self._received(length)
        if struct.unpack_from(">i", response)[0] != self._correlation:
            raise WireError("another request's response")
        return response[4:]

    def _received(self, length: int) -> memoryview:
        if length > len(self._buffer):
            self._buffer = bytearray(length)
        view, at = memoryview(self._buffer)[:length], 0
        while at < length:
            count = self._socket.recv_into(view[at:])
            if count == 0:
                raise WireError(f"the server closed the connection after {at} of {length} bytes")
            at += count
        return view

    def partitions(self) -> int:
        """Partitions of all topics together (Metadata 1)."""
        response = self.ask(METADATA, 1, struct.pack(">i", -1))
        brokers, at, count = struct.unpack_from(">i", response)[0], 4, 0
        for _ in range(brokers):
            at += 4
            at += 2 + struct.unpack_from(">h", response, at)[0] + 4
            at += 2 + max(0, struct.unpack_from(">h", response, at)[0])
        topics, at = struct.unpack_from(">i", response, at + 4)[0], at + 8
        for _ in range(topics):
            at += 2
            at += 2 + struct.unpack_from(">h", response, at)[0] + 1
            found, at = struct.unpack_from(">i", response, at)[0], at + 4
            count += found
            for _ in range(found):
                at += 10
                for _ in range(2):
                    at += 4 + 4 * struct.unpack_from(">i", response, at)[0]
        return int(count)

    def end_offset(self, topic: str, partition: int) -> int:
        """The high watermark (ListOffsets 1)."""
        name = topic.encode()
        body = struct.pack(f">iih{len(name)}siiq", -1, 1, len(name), name, 1, partition, -1)
        response = self.ask(LIST_OFFSETS, 1, body)
        error, _, end = struct.unpack_from(">hqq", response, 4 + 2 + len(name) + 4 + 4)
        if error != 0:
            raise WireError(f"ListOffsets: error {error}")
        return int(end)

    def records(self, topic: str, partition: int, most: int) -> Iterator[memoryview]:
        """The bytes of a partition, response after response (Fetch 4). Each is valid until the next one is asked for."""
        name, offset, end = topic.encode(), 0, self.end_offset(topic, partition)
        while offset < end:
            head = struct.pack(">iiiibi", -1, 500, 1, most, 0, 1)
            body = head + struct.pack(f">h{len(name)}siiqi", len(name), name, 1, partition, offset, most)
            response = self.ask(FETCH, 4, body)
            at = 4 + 4 + 2 + len(name) + 4 + 4
            error, _, _, aborted = struct.unpack_from(">hqqi", response, at)
            if error != 0:
                raise WireError(f"Fetch at {offset}: error {error}")
            at += 2 + 8 + 8 + 4 + 16 * max(0, aborted)
            length = struct.unpack_from(">i", response, at)[0]
            records = response[at + 4 : at + 4 + length]
            following = next_offset(records)
            if following <= offset:
                raise WireError(f"Fetch at {offset}: {length} bytes without a whole batch")
            yield records
            offset = following


def next_offset(records: memoryview) -> int:
    """The offset after the last whole batch; -1 if there is none."""
    at, following = 0, -1
    while at + BATCH_MIN <= len(records):
        base, length = HEADER.unpack_from(records, at)
        if at + HEADER.size + length > len(records):
            break
        following = base + LAST_DELTA.unpack_from(records, at + LAST_DELTA_AT)[0] + 1
        at += HEADER.size + length
    return int(following)
