"""One address for two servers: what writes goes to a real broker, what reads goes to `serve` over that broker's directories.

So tests of other projects that produce their own records, which most do, read them from `serve` without a change.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self

from protocol import API_VERSIONS, FIND_COORDINATOR, METADATA, PRODUCE, Reader, Value, body_of, request, response

WRITING = frozenset({0, 19, 20, 21, 22, 24, 25, 26, 27, 28, 29, 30, 31, 33, 37, 44, 45, 46, 47, 61, 65, 66})
"""Producing, transactions, and what changes topics, settings, access."""
SECONDS = 300


class Splitter:
    """Listens on a free port; ends with its last connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._readers = self._writers = ""
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.routed: dict[str, int] = {}
        """Requests by where they went."""

    def begin(self, readers: str, writers: str) -> Self:
        """Answer from these two servers from now on."""
        self._readers, self._writers = readers, writers
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            sockets, self._sockets = [self._listener, *self._sockets], set()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream: dict[str, socket.socket] = {}
        self._keep(client)
        try:
            while True:
                frame = _frame(client)
                answer = self._answer(frame, upstream)
                if answer is not None:
                    client.sendall(struct.pack(">i", len(answer)) + answer)
        except (OSError, EOFError):
            pass
        finally:
            for each in (client, *upstream.values()):
                self._forget(each)

    def _keep(self, made: socket.socket) -> None:
        with self._lock:
            self._sockets.add(made)

    def _forget(self, ended: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(ended)
        ended.close()

    def _answer(self, frame: bytes, upstream: dict[str, socket.socket]) -> bytes | None:
        api, version, number = struct.unpack_from(">hhi", frame)
        if api == API_VERSIONS and version in response(api).versions:
            mine = body_of(self._ask("readers", frame, upstream), api, version, number)
            theirs = body_of(self._ask("writers", frame, upstream), api, version, number)
            return struct.pack(">i", number) + response(api).write(_both(mine, theirs), version)
        where = "writers" if api in WRITING or _is_for_a_transaction(api, version, frame) else "readers"
        with self._lock:
            self.routed[where] = self.routed.get(where, 0) + 1
        if where == "readers" and (api == FIND_COORDINATOR or _creates_topics(api, version, frame)):
            # A broker creates what is asked for, and __consumer_offsets for the first coordinator: `serve` then shows it.
            self._ask("writers", frame, upstream)
        if api == PRODUCE and _body(frame, api, version)["Acks"] == 0:
            self._send(where, frame, upstream)
            return None
        return self._ask(where, frame, upstream)

    def _send(self, where: str, frame: bytes, upstream: dict[str, socket.socket]) -> socket.socket:
        if where not in upstream:
            host, _, port = (self._readers if where == "readers" else self._writers).rpartition(":")
            upstream[where] = socket.create_connection((host, int(port)), SECONDS)
            upstream[where].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._keep(upstream[where])
        upstream[where].sendall(struct.pack(">i", len(frame)) + frame)
        return upstream[where]

    def _ask(self, where: str, frame: bytes, upstream: dict[str, socket.socket]) -> bytes:
        return _frame(self._send(where, frame, upstream))


def _both(mine: Value, theirs: Value) -> Value:
    """The reading APIs of one and the writing ones of the other."""
    apis = [each for each in mine["ApiKeys"] if each["ApiKey"] not in WRITING]
    apis += [each for each in theirs["ApiKeys"] if each["ApiKey"] in WRITING]
    found: Value = {**mine, "ApiKeys": sorted(apis, key=lambda each: each["ApiKey"])}
    for name in ("SupportedFeatures", "FinalizedFeatures", "FinalizedFeaturesEpoch"):
        if name in theirs:
            found[name] = theirs[name]
    return found


def _body(frame: bytes, api: int, version: int) -> Value:
    """What a request asks; its header is skipped."""
    reader = Reader(frame)
    reader.take(8)
    reader.take(max(reader.fixed("h"), 0))
    if version in request(api).flexible:
        for _ in range(reader.varint()):
            reader.varint()
            reader.take(reader.varint())
    # librdkafka 2.12's Metadata 13 has bytes behind it.
    return request(api).read_front(frame[reader.at :], version)


def _is_for_a_transaction(api: int, version: int, frame: bytes) -> bool:
    """Coordinators of transactions are the broker's, those of groups ours."""
    return api == FIND_COORDINATOR and version >= 1 and _body(frame, api, version)["KeyType"] == 1


def _creates_topics(api: int, version: int, frame: bytes) -> bool:
    """Whether it names topics that a broker may make."""
    return (
        api == METADATA
        and bool(_body(frame, api, version)["Topics"])
        and _body(frame, api, version).get("AllowAutoTopicCreation", True)
    )


def _frame(connection: socket.socket) -> bytes:
    size = struct.unpack(">i", _exactly(connection, 4))[0]
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
