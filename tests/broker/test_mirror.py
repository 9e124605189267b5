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
from mirrored_history import SCALE, SEED, History
from mirroring import MIRROR_SECONDS, PROGRAM, log_bytes, mirror, once
from restoring import IS_WHOLE

from broker import Broker, java, run
from conftest import KRAFT
from kafka import KafkaProducer

pytestmark = pytest.mark.proof

TOPICS = {"plain": {}, "packed": {"compression.type": "lz4", "segment.bytes": "1048576"}, "told": {"retention.ms": "86400000000"}}
PARTITIONS = 2
DUMPS = {"4.3.0": "org.apache.kafka.tools.DumpLogSegments", "3.9.2": "kafka.tools.DumpLogSegments"}
"""What kafka-dump-log runs."""
KILLS = round(200 * SCALE) if IS_WHOLE else 8
"""Of a mirror in one history: in a soak 200 in its first round, and more in later ones."""


@pytest.fixture(params=KRAFT)
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


@pytest.mark.parametrize("version", KRAFT)
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
