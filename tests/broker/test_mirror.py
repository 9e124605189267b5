"""A mirror of a real broker has its batches, byte for byte: through kills of the mirror, a restart of the broker, and transactions."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients import Admin
from kafka.structs import OffsetAndMetadata
from mirrored_history import SCALE, SEED, History
from mirroring import MIRROR_SECONDS, PROGRAM, log_bytes, mirror, once
from restoring import IS_WHOLE

from broker import Broker, java, run
from conftest import KRAFT
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

pytestmark = pytest.mark.proof

TOPICS = {"plain": {}, "packed": {"compression.type": "lz4", "segment.bytes": "1048576"}, "told": {"retention.ms": "86400000000"}}
PARTITIONS = 2
DUMPS = {"4.3.0": "org.apache.kafka.tools.DumpLogSegments", "3.9.2": "kafka.tools.DumpLogSegments"}
"""What kafka-dump-log runs."""
ROUNDS = 12
KILLS = round((200 if IS_WHOLE else 10) * SCALE)
"""Of a mirror in one random history. A soak has 200 in its first round, and more in later ones."""


@pytest.fixture(params=KRAFT if IS_WHOLE else KRAFT[:1])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker that a mirror copies."""
    broker = Broker(request.param, tmp_path / "source")
    broker.format()
    broker.start()
    yield broker
    broker.kill()


def write(address: str, seed: int) -> None:
    """Batches of all kinds: with and without compression, idempotent, in transactions that commit and abort."""
    drawn = random.Random(seed)
    for codec in (None, "gzip", "lz4"):
        with_batches = KafkaProducer(
            bootstrap_servers=address, compression_type=codec, batch_size=drawn.choice([500, 16384]), linger_ms=5
        )
        for _ in range(200):
            topic = drawn.choice(sorted(TOPICS))
            with_batches.send(topic, key=b"%d" % drawn.randrange(50), value=drawn.randbytes(drawn.randrange(400)))
        with_batches.close()
    within = KafkaProducer(bootstrap_servers=address, transactional_id=f"writer-{seed % 3}")
    within.init_transactions()
    for _ in range(4):
        within.begin_transaction()
        for _ in range(drawn.randrange(1, 20)):
            within.send(drawn.choice(sorted(TOPICS)), value=drawn.randbytes(100))
        within.flush()
        if drawn.random() < 0.5:
            within.commit_transaction()
        else:
            within.abort_transaction()
    within.close()


def assert_same(broker: Broker, into: Path) -> None:
    """Every byte of every partition is the same."""
    for topic in TOPICS:
        for number in range(PARTITIONS):
            name = f"{topic}-{number}"
            theirs = log_bytes(broker.log_dir / name)
            assert theirs, f"{name} has no batch"
            assert log_bytes(into / name) == theirs, name


def test_mirrored_bytes_are_the_brokers(source: Broker, tmp_path: Path) -> None:
    """Killed again and again while it copies, and the broker restarted in between."""
    into = tmp_path / "mirror"
    drawn = random.Random(7)
    with Admin(source.address) as admin:
        for topic, settings in TOPICS.items():
            admin.create(topic, PARTITIONS, settings)
    for number in range(ROUNDS):
        with (tmp_path / "said").open("wb") as said:
            running = subprocess.Popen(mirror(source, into), stdout=said, stderr=said)
            write(source.address, number)
            time.sleep(drawn.random())
            running.kill()
            running.wait()
        if number == ROUNDS // 2:
            source.stop()
            source.start()
    group = KafkaConsumer(bootstrap_servers=source.address, group_id="readers", enable_auto_commit=False)
    committed = {TopicPartition("plain", number): OffsetAndMetadata(10 + number, "here", -1) for number in range(PARTITIONS)}
    group.commit(committed)
    group.close()
    *_, whole = once(source, into)
    assert whole["is_complete"]
    assert not whole["has_losses"]
    assert_same(source, into)
    # The same again finds nothing to do.
    *_, again = once(source, into)
    assert again["batches"] == 0
    verified = subprocess.run([*PROGRAM, "verify", str(into)], capture_output=True, text=True, timeout=MIRROR_SECONDS, check=False)
    assert verified.returncode == 0, verified.stdout
    listed = subprocess.run(
        [*PROGRAM, "groups", "--json", str(into)], capture_output=True, text=True, timeout=MIRROR_SECONDS, check=True
    )
    found = [json.loads(line) for line in listed.stdout.splitlines()]
    (readers,) = [group for group in found if group["group"] == "readers"]
    kept = {(each["topic"], each["partition"], each["offset"], each["metadata"]) for each in readers["offsets"]}
    assert kept == {("plain", 0, 10, "here"), ("plain", 1, 11, "here")}
    for partition in sorted(into.glob("told-*")):
        for segment in partition.glob("*.log"):
            told, _ = run(java(source.version, DUMPS[source.version], "--files", str(segment), "--deep-iteration"))
            assert "isvalid: true" in told
            assert "isvalid: false" not in told


@pytest.mark.parametrize("version", KRAFT if IS_WHOLE else KRAFT[:1])
def test_a_random_history(version: str, tmp_path: Path) -> None:
    """Killed again and again while it copies, and the broker restarted in between: see `mirrored_history.py`."""
    print(f"{version}: OFFSETLOG_SEED={SEED}")
    history = History(version, tmp_path, SEED, KILLS)
    history.live()
    # It showed something.
    assert history.grown
    assert history.restarts
    assert history.was_cleaned()
    verified = subprocess.run(
        [*PROGRAM, "verify", str(history.into)], capture_output=True, text=True, timeout=MIRROR_SECONDS, check=False
    )
    assert verified.returncode == 0, verified.stdout
    segments = [path for path in sorted(history.into.glob("stamped-*/*.log")) if path.stat().st_size]
    told, _ = run(java(version, DUMPS[version], "--files", ",".join(map(str, segments)), "--deep-iteration"))
    assert "isvalid: true" in told
    assert "isvalid: false" not in told


def test_a_recreated_topic_is_never_mixed(source: Broker, tmp_path: Path) -> None:
    """A topic of the same name and another id is refused, and the copy stays as it is."""
    into = tmp_path / "mirror"
    with Admin(source.address) as admin:
        for topic in TOPICS:
            admin.create(topic, PARTITIONS, {})
    write(source.address, 1)
    once(source, into)
    before = log_bytes(into / "plain-0")
    with Admin(source.address) as admin:
        admin.delete("plain")
        time.sleep(2)
        admin.create("plain", PARTITIONS, {})
    write(source.address, 2)
    done = subprocess.run(mirror(source, into, "--once"), capture_output=True, text=True, timeout=MIRROR_SECONDS, check=False)
    assert done.returncode == 2, done.stdout
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["topic"] for line in events if line.get("event") == "recreated"] == ["plain"]
    assert log_bytes(into / "plain-0") == before
