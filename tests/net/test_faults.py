"""Connections that end anywhere, bytes that are no request, a thousand clients, and directories that change while they are served."""

from __future__ import annotations

import resource
import select
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from golden import named
from protocol import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    ClosedError,
    Connection,
    Value,
    batches,
    body_of,
    fetch,
    framed,
    only,
    request,
)
from served import Served, serving

from offsetlog import Log, WritableLog

OFFSET_OUT_OF_RANGE = 1
# The answer that is cut at every byte.
EVERY_BYTE = (FETCH, 12)
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
MIB = 1 << 20

Cut = tuple[int, int, Value]
REQUESTS: tuple[Cut, ...] = (
    (API_VERSIONS, 3, {"ClientSoftwareName": "tests", "ClientSoftwareVersion": "1"}),
    (METADATA, 12, {"Topics": [{"Name": "g-plain"}, {"Name": "g-txn"}]}),
    (FETCH, 12, fetch("g-plain", 0, 0, max_bytes=3000)),
    (FETCH, 4, fetch("g-txn", 0, 0, committed=True, max_bytes=3000)),
    (LIST_OFFSETS, 7, {"Topics": [{"Name": "g-plain", "Partitions": [{"PartitionIndex": 0, "Timestamp": 1}]}]}),
    (
        OFFSET_COMMIT,
        8,
        {"GroupId": "cut", "Topics": [{"Name": "g-plain", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 5}]}]},
    ),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One of its own: what it holds open is counted."""
    folder = tmp_path_factory.mktemp("faults")
    for golden in named("g-plain-0", "g-plain-1", "g-txn-0", "g-big-0"):
        golden.copy(folder / "disk", checkpoints=False)
    with serving([folder / "disk"], folder / "serve") as made:
        yield made


def frame(cut: Cut, number: int = 1) -> bytes:
    api, version, value = cut
    return framed(api, version, number, request(api).write(value, version))


def connected(server: Served, *, reset: bool = False) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    made = socket.create_connection((host, int(port)), 300)
    if reset:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    return made


def settled(measure: Callable[[], int], most: int, seconds: float = 300) -> int:
    """Wait until this is no more than that; what it is."""
    end = time.monotonic() + seconds
    # The last of them counts: the server looks at its folders now and then.
    while (found := measure()) > most and time.monotonic() < end:
        time.sleep(0.05)
    return found


@pytest.fixture
def holds_nothing(server: Served) -> Iterator[None]:
    """What a test leaves behind in the server: no descriptors, no memory to speak of, and answers as before."""
    with Connection(server.address) as wire:
        before = {cut: wire.ask(*cut) for cut in map(_hashable, REQUESTS)}
    descriptors = server.descriptors()
    yield
    assert settled(server.descriptors, descriptors + 2) <= descriptors + 2
    assert server.resident() < 300 * MIB
    with Connection(server.address) as wire:
        assert {cut: wire.ask(*cut) for cut in map(_hashable, REQUESTS)} == before
    assert server.process.poll() is None


class _hashable(tuple[int, int, Value]):  # noqa: N801, SLOT001  # a key, no more
    def __hash__(self) -> int:
        return id(self[2])


@pytest.mark.usefixtures("holds_nothing")
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_requests_cut_at_every_byte(server: Served, reset: bool) -> None:
    for cut in REQUESTS:
        data = frame(cut)
        for size in range(len(data)):
            with connected(server, reset=reset) as client:
                client.sendall(data[:size])


@pytest.mark.usefixtures("holds_nothing")
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_answers_cut_at_every_byte(server: Served, reset: bool) -> None:
    for cut in REQUESTS:
        data = frame(cut)
        with Connection(server.address) as wire:
            wire.socket.sendall(data)
            whole = wire.receive_frame()
        # Of one answer with records every byte; every byte of every kind is cut where no sockets are (transport/tests/cuts.rs).
        step = 1 if cut[:2] == EVERY_BYTE else 7
        for size in (*range(min(len(whole) + 4, 200)), *range(200, len(whole) + 4, step)):
            with connected(server, reset=reset) as client:
                client.sendall(data)
                left = size
                while left:
                    part = client.recv(left)
                    assert part
                    left -= len(part)


@pytest.mark.usefixtures("holds_nothing")
def test_half_closed_connections_get_their_answer(server: Served) -> None:
    """The client will send no more, and reads on."""
    for cut in REQUESTS:
        with Connection(server.address) as wire:
            wire.socket.sendall(frame(cut))
            wire.socket.shutdown(socket.SHUT_WR)
            assert body_of(wire.receive_frame(), cut[0], cut[1], 1)
            with pytest.raises(ClosedError):
                wire.receive_frame()


@pytest.mark.usefixtures("holds_nothing")
def test_slow_requests_are_answered(server: Served) -> None:
    with Connection(server.address) as wire:
        for number, cut in enumerate(REQUESTS, 1):
            for byte in frame(cut, number):
                wire.socket.sendall(bytes([byte]))
            assert body_of(wire.receive_frame(), cut[0], cut[1], number)


@pytest.mark.usefixtures("holds_nothing")
def test_requests_one_behind_the_other_are_answered_in_order(server: Served) -> None:
    with Connection(server.address) as wire:
        wire.socket.sendall(b"".join(frame(cut, number) for number, cut in enumerate(REQUESTS * 5)))
        for number, cut in enumerate(REQUESTS * 5):
            assert body_of(wire.receive_frame(), cut[0], cut[1], number)


@pytest.mark.usefixtures("holds_nothing")
@pytest.mark.parametrize("size", [0, 1, 7, -1, -(2**31), 2**31 - 1, 200 * MIB], ids=str)
def test_lengths_that_no_request_has(server: Served, size: int) -> None:
    """Refused by their four bytes; nothing is allocated for them."""
    with Connection(server.address) as wire:
        wire.socket.sendall(struct.pack(">i", size) + bytes(min(max(size, 0), 100)))
        with pytest.raises(ClosedError):
            wire.receive_frame()


@pytest.mark.usefixtures("holds_nothing")
def test_lengths_inside_that_no_request_has(server: Served) -> None:
    """An array of two thousand million topics in a request of thirty bytes."""
    for api, version, body in (
        (METADATA, 4, struct.pack(">i", 2**31 - 1)),
        (METADATA, 12, b"\xff\xff\xff\xff\x07"),
        (FETCH, 4, struct.pack(">iiiibi", -1, 0, 0, 100, 0, 2**31 - 1)),
        (LIST_OFFSETS, 1, struct.pack(">ii", -1, 2**31 - 1)),
        (OFFSET_COMMIT, 2, struct.pack(">h", 2**15 - 1) + b"g"),
        (API_VERSIONS, 3, b"\xff\xff\xff\xff\xff\xff\xff"),
    ):
        with Connection(server.address) as wire:
            wire.socket.sendall(framed(api, version, 1, body))
            with pytest.raises(ClosedError):
                wire.receive_frame()


@pytest.mark.usefixtures("holds_nothing")
def test_a_client_that_does_not_read_keeps_nobody(server: Served) -> None:
    """Its answers stay in its own buffers; the server holds a bounded part of them."""
    with connected(server, reset=True) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.settimeout(2)
        asked = frame((FETCH, 12, fetch("g-big", 0, 0, max_bytes=8 * MIB)))
        try:
            for _ in range(2000):
                stuck.sendall(asked)
        except TimeoutError:
            pass
        with Connection(server.address) as wire:
            for _ in range(20):
                assert only(wire.ask(FETCH, 12, fetch("g-plain", 0, 0)))["Records"]
        assert server.resident() < 300 * MIB


@pytest.mark.proof
@pytest.mark.usefixtures("holds_nothing")
def test_a_thousand_connections(server: Served) -> None:
    """All wait for records; one more is answered at once, and then each of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        before = server.resident()
        with ExitStack() as stack:
            wires = [stack.enter_context(Connection(server.address)) for _ in range(1000)]
            (golden,) = named("g-plain-0")
            # On a slow machine the first wait ends before the last one begins.
            for wait_ms in (8000, 40_000, 200_000):
                waiting = fetch("g-plain", 0, golden.end, wait_ms=wait_ms, min_bytes=1)
                numbers = [wire.send(FETCH, 12, waiting) for wire in wires]
                with Connection(server.address) as wire:
                    assert only(wire.ask(FETCH, 12, fetch("g-plain", 0, 0)))["Records"]
                all_wait = not _readable(wires)
                assert server.resident() - before < 100 * MIB
                for wire, number in zip(wires, numbers, strict=True):
                    assert only(wire.receive(FETCH, 12, number))["HighWatermark"] == golden.end
                if all_wait:
                    break
            assert all_wait, "it is answered before they are"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _readable(wires: Sequence[Connection]) -> int:
    """How many of them have an answer that nobody read."""
    poll = select.poll()
    for wire in wires:
        poll.register(wire.socket, select.POLLIN)
    return len(poll.poll(0))


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[tuple[Served, WritableLog]]:
    """A partition that this process writes, beside one that stays."""
    (stays,) = named("g-plain-1")
    stays.copy(tmp_path / "disk")
    with Log.open(tmp_path / "disk" / "changes-0", "a") as log:
        for number in range(600):
            log.append(b"value-%d" % number + b"x" * 100, key=b"key-%d" % (number % 50), flush=number % 100 == 99)
            if number % 100 == 99:
                log.roll()
        with serving([tmp_path / "disk"], tmp_path / "serve") as made:
            yield made, log


def _part(wire: Connection, offset: int, **more: Any) -> Value:
    return only(wire.ask(FETCH, 12, fetch("changes", 0, offset, **more)))


def _eventually(look: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "not seen"
        time.sleep(0.05)


def _stays(server: Served) -> None:
    """Another partition, on a new connection."""
    (golden,) = named("g-plain-1")
    with Connection(server.address) as wire:
        assert only(wire.ask(FETCH, 12, fetch("g-plain", 1, 0)))["HighWatermark"] == golden.end


def test_a_truncation_while_it_is_served(changing: tuple[Served, WritableLog]) -> None:
    server, log = changing
    with Connection(server.address) as wire:
        assert _part(wire, 0)["HighWatermark"] == 600
        log.truncate_to(250)
        _eventually(lambda: _part(wire, 0)["HighWatermark"] == 250)
        assert _part(wire, 300)["ErrorCode"] == OFFSET_OUT_OF_RANGE
        assert _part(wire, 249)["Records"]
        log.append(b"other", flush=True)
        _eventually(lambda: _part(wire, 250)["HighWatermark"] == 251)
        assert b"other" in _part(wire, 250)["Records"]
    _stays(server)


def test_a_truncation_below_one_that_waits(changing: tuple[Served, WritableLog]) -> None:
    """It is told soon, and not when records come again at that offset."""
    server, log = changing
    with Connection(server.address) as wire:
        number = wire.send(FETCH, 12, fetch("changes", 0, 600, wait_ms=15_000, min_bytes=1))
        time.sleep(0.3)
        log.truncate_to(100)
        assert only(wire.receive(FETCH, 12, number))["ErrorCode"] in {0, OFFSET_OUT_OF_RANGE}
        _eventually(lambda: _part(wire, 600)["ErrorCode"] == OFFSET_OUT_OF_RANGE)
    _stays(server)


def test_deleted_records_while_they_are_served(changing: tuple[Served, WritableLog]) -> None:
    server, log = changing
    with Connection(server.address) as wire:
        assert _part(wire, 0)["Records"]
        log.delete_records_before(400)
        _eventually(lambda: _part(wire, 0)["ErrorCode"] == OFFSET_OUT_OF_RANGE)
        assert _part(wire, 400)["LogStartOffset"] == 400
        asked = {"Topics": [{"Name": "changes", "Partitions": [{"PartitionIndex": 0, "Timestamp": -2}]}]}
        assert only(wire.ask(LIST_OFFSETS, 7, asked))["Offset"] == 400
    _stays(server)


def test_a_compaction_while_it_is_served(changing: tuple[Served, WritableLog]) -> None:
    """A reader gets whole batches in order all the time, and in the end the last value of each key."""
    server, log = changing
    stop, failed = threading.Event(), []

    def read() -> None:
        try:
            with Connection(server.address) as wire:
                while not stop.is_set():
                    offset = 0
                    while offset < 600:
                        part = _part(wire, offset, max_bytes=5000)
                        assert part["ErrorCode"] == 0, part
                        whole = batches(part["Records"])
                        assert whole, offset
                        assert whole[-1][1] >= offset
                        offset = whole[-1][1] + 1
        except Exception as error:  # noqa: BLE001  # told by the test
            failed.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for each in readers:
        each.start()
    try:
        for _ in range(3):
            log.roll()
            log.maintain(config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0})
            time.sleep(0.3)
    finally:
        stop.set()
        for each in readers:
            each.join()
    assert not failed, failed
    with Connection(server.address) as wire:

        def keys() -> int:
            offset = count = 0
            while offset < 600:
                whole = batches(_part(wire, offset)["Records"])
                count += sum(struct.unpack_from(">i", data, 57)[0] for _, _, data in whole)
                offset = whole[-1][1] + 1
            return count

        _eventually(lambda: keys() == sum(1 for _ in log.scan()))
        assert keys() < 200
    _stays(server)


def test_a_directory_that_is_removed_while_it_is_served(changing: tuple[Served, WritableLog]) -> None:
    """That partition ends with an error; the server and other partitions go on."""
    server, log = changing
    log.close()
    with Connection(server.address) as wire, Connection(server.address) as waiting:
        number = waiting.send(FETCH, 12, fetch("changes", 0, 600, wait_ms=5000, min_bytes=1))
        shutil.rmtree(log.path)
        _eventually(lambda: _part(wire, 0)["ErrorCode"] != 0)
        waiting.receive(FETCH, 12, number)
    _stays(server)


def test_a_file_cut_behind_the_servers_back(changing: tuple[Served, WritableLog]) -> None:
    """Not by an engine that tells: its clients see an error or a closed connection, never other bytes."""
    server, log = changing
    log.close()
    segments = sorted(Path(log.path).glob("*.log"))
    last = segments[-1]
    with Connection(server.address) as wire:
        assert _part(wire, 0)["Records"]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size // 2)

    def look() -> bool:
        try:
            with Connection(server.address) as wire:
                offset = 0
                while True:
                    part = _part(wire, offset)
                    whole = batches(part["Records"])
                    if part["ErrorCode"] or not whole:
                        return True
                    offset = whole[-1][1] + 1
        except ClosedError:
            return True

    _eventually(look)
    _stays(server)
