"""A damaged partition beside sound ones, served: real clients read the sound ones, and its own error comes with it alone."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from partition_damage import DAMAGED, KINDS, PARTITIONS, RECORDS, SOUND, made
from writing import environment

from offsetlog import Server

with warnings.catch_warnings():
    # kafka-python reads its schemas through a function that newer Pythons call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import KafkaError

    from kafka import KafkaConsumer, TopicPartition

# Kafka's error codes.
NONE, CORRUPT_MESSAGE, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER = 0, 2, 5, 6
SECONDS = 300
SERVED = [kind for kind in KINDS if kind != "a folder that nobody may list"]
EVERY = list(range(RECORDS))


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


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return made(tmp_path / "logs")


def read(address: str, partitions: list[int]) -> Iterator[tuple[int, int, bytes]]:
    """What a real consumer gets of these partitions together, until it has all of the sound ones, whatever it raises meanwhile."""
    consumer = KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="none", enable_auto_commit=False, fetch_max_wait_ms=50, max_poll_records=3
    )
    try:
        wanted = [TopicPartition("orders", number) for number in partitions]
        consumer.assign(wanted)
        for each in wanted:
            consumer.seek(each, 0)
        end = time.monotonic() + SECONDS
        left = {each for each in wanted if each.partition != 1}
        while left:
            assert time.monotonic() < end, left
            try:
                polled = consumer.poll(100)
            except KafkaError:
                continue
            for place, records in polled.items():
                for record in records:
                    yield place.partition, record.offset, record.value
                    if record.offset == RECORDS - 1:
                        left.discard(place)
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", SERVED)
def test_a_damaged_partition_has_an_error_of_its_own(kind: str, log_dir: Path) -> None:
    opens, lost = KINDS[kind].opens, KINDS[kind].lost
    KINDS[kind].damage(log_dir)
    with Server(log_dir) as kafka:
        found = list(read(kafka.bootstrap_servers, list(range(PARTITIONS))))
        for partition in (0, 2, 3):
            seen = [(offset, value) for number, offset, value in found if number == partition]
            assert seen == [(offset, b"%d" % (4 * offset + partition) * 10) for offset in EVERY], partition
        of_it = [offset for number, offset, _ in found if number == 1]
        wire = Wire(kafka.bootstrap_servers)
        sound = {0: 0, 2: 0, 3: 0}
        expected = dict.fromkeys(range(PARTITIONS), NONE)
        assert wire.metadata() == (expected if opens else expected | {1: LEADER_NOT_AVAILABLE})
        for offset in EVERY:
            answers = wire.fetch({1: offset, **sound})
            assert all(answers[partition].error == NONE and answers[partition].size > 0 for partition in sound), answers
            if not opens:
                assert answers[1] == (NOT_LEADER_OR_FOLLOWER, 0)
            elif offset == lost:
                assert answers[1] == (CORRUPT_MESSAGE, 0)
            else:
                assert answers[1].error == NONE
                assert answers[1].size > 0
        wire.socket.close()
        told = [event.text for event in kafka.events() if event.level in {"warn", "error"}]
    if opens:
        assert of_it == EVERY[: len(of_it)]
        assert len(of_it) <= (RECORDS if lost is None else lost)
    else:
        assert of_it == []
    if not opens or lost is not None:
        assert any("orders-1" in text or DAMAGED in text for text in told), told
    assert not any(name in text for text in told for name in SOUND if name != "pay-0"), told


@pytest.mark.parametrize("kind", ["a pipe for a segment", "a garbage batch", "garbage checkpoints"])
def test_the_list_of_what_is_served_names_it(kind: str, log_dir: Path) -> None:
    KINDS[kind].damage(log_dir)
    command = [sys.executable, "-m", "offsetlog", "serve", "--listen", "127.0.0.1:0", "--json", str(log_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    listed = {f"{topic['topic']}-{each['partition']}": each for topic in json.loads(line)["topics"] for each in topic["partitions"]}
    assert set(listed) == {*SOUND, DAMAGED}
    for name, each in listed.items():
        fields = [each[field] for field in ("log_start_offset", "log_end_offset", "last_stable_offset")]
        if name == DAMAGED and not KINDS[kind].opens:
            assert fields == [None] * 3
            assert DAMAGED in each["problem"]
        else:
            end = 1 if name == "pay-0" else RECORDS
            assert (fields, each["problem"]) == ([0, end, end], None)
