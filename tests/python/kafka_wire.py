"""Kafka's protocol by hand, for the few requests whose answers a test looks at byte by byte. Needs no client."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import NamedTuple

# Kafka's error codes.
NONE, CORRUPT_MESSAGE, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER = 0, 2, 5, 6
SECONDS = 300


class Fetched(NamedTuple):
    """What a Fetch has of one partition."""

    error: int
    size: int


class Wire:
    """One connection, and the few requests that are asked by hand."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS)

    def _read(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            part = self.socket.recv(count - len(got))
            assert part, "the server ended the connection"
            got += part
        return got

    def ask(self, api: int, version: int, body: bytes) -> bytes:
        request = struct.pack(">hhih", api, version, 7, -1) + body
        self.socket.sendall(struct.pack(">i", len(request)) + request)
        answer = self._read(*struct.unpack(">i", self._read(4)))
        assert answer[:4] == struct.pack(">i", 7)
        return answer[4:]

    def metadata(self) -> dict[int, int]:
        """Metadata 1 of `orders`: the error of each partition."""
        answer = self.ask(3, 1, struct.pack(">ih6s", 1, 6, b"orders"))
        at = 4
        for _ in range(*struct.unpack_from(">i", answer)):
            # Node id, host, port, rack.
            (host,) = struct.unpack_from(">h", answer, at + 4)
            (rack,) = struct.unpack_from(">h", answer, at + 10 + host)
            at += 12 + host + max(rack, 0)
        # The controller, and one topic: error, name, not internal.
        _, topics, error, length = struct.unpack_from(">iihh", answer, at)
        assert (topics, error, length) == (1, NONE, 6)
        at += 12 + length + 1
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        found = {}
        for _ in range(count):
            error, partition, _, replicas = struct.unpack_from(">hiii", answer, at)
            (in_sync,) = struct.unpack_from(">i", answer, at + 14 + 4 * replicas)
            found[partition] = error
            at += 18 + 4 * (replicas + in_sync)
        assert at == len(answer)
        return found

    def fetch(self, offsets: Mapping[int, int]) -> dict[int, Fetched]:
        """Fetch 4 of these partitions of `orders` in one request."""
        body = struct.pack(">iiiibih6si", -1, 0, 0, 1 << 20, 0, 1, 6, b"orders", len(offsets))
        body += b"".join(struct.pack(">iqi", partition, offset, 1 << 20) for partition, offset in offsets.items())
        answer = self.ask(1, 4, body)
        _, topics, length, _, count = struct.unpack_from(">iih6si", answer)
        assert (topics, length) == (1, 6)
        at = 20
        found = {}
        for _ in range(count):
            partition, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
            at += 26 + 16 * max(aborted, 0)
            (size,) = struct.unpack_from(">i", answer, at)
            found[partition] = Fetched(error, max(size, 0))
            at += 4 + max(size, 0)
        assert at == len(answer)
        return found
