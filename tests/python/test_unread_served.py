"""A damaged partition beside sound ones, served: real clients read the sound ones, and its own error comes with it alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_wire import CORRUPT_MESSAGE, LEADER_NOT_AVAILABLE, NONE, NOT_LEADER_OR_FOLLOWER, SECONDS, Wire
from partition_damage import DAMAGED, KINDS, PARTITIONS, RECORDS, SOUND, made
from writing import environment

from offsetlog import Server

with warnings.catch_warnings():
    # kafka-python reads its schemas through a function that newer Pythons call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import KafkaError

    from kafka import KafkaConsumer, TopicPartition

SERVED = [kind for kind in KINDS if kind != "a folder that nobody may list"]
EVERY = list(range(RECORDS))


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
