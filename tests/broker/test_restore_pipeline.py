"""A real broker serves what ``examples/point_in_time_restore.py`` restored from the disks of another one."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from clients import Admin, Reader, Writer
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS
from peers import Appended

from broker import ROOT, broker_of

TOPICS = {"g-plain": 3, "g-epochs": 2, "g-compact": 1, "g-deleted-prefix": 2}
UNTIL = datetime(2023, 11, 16, 12, tzinfo=UTC)
"""In the middle of `g-plain`, behind the others."""


def test_a_broker_serves_restored_topics(tmp_path: Path) -> None:
    """Every record before the moment with its offset, time and epoch, and new ones behind them; nothing is repaired."""
    broker = broker_of("4.3.0", tmp_path / "broker")
    broker.format()
    with broker.running(), Admin(broker.address) as admin:
        for topic, partitions in TOPICS.items():
            admin.create(topic, partitions, {"retention.ms": "-1"})
            admin.leader_epochs(topic)
    # The old cluster's epochs go up to 4, and a new leader's must not be below.
    while broker.runs * broker.epochs_a_run < 4:
        with broker.running():
            pass
    command = [sys.executable, str(ROOT / "examples" / "point_in_time_restore.py"), *map(str, CLEAN_LOG_DIRS)]
    command += ["--topics", ",".join(TOPICS), "--until", UNTIL.isoformat(), "--into", str(broker.log_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    until = int(UNTIL.timestamp() * 1000)
    whole = set()
    with broker.running():
        for topic, partitions in TOPICS.items():
            places = {golden.partition: golden for golden in CLEAN_PARTITIONS if golden.topic == topic}
            assert len(places) == partitions
            wanted = {}
            for number, golden in places.items():
                end = next((row.offset for row in golden.rows if row.timestamp >= until), golden.end)
                wanted[number] = [row for row in golden.committed if row.offset < end]
                whole.add(end == golden.end)
                assert f"{golden.name}: offsets {golden.start if wanted[number] else 0:,} to " in done.stdout
            with Reader(broker.address, topic, list(places), "read_committed") as reader:
                assert reader.rows() == wanted
                starts = {number: golden.start if wanted[number] else 0 for number, golden in places.items()}
                ends = {number: seen[-1].offset + 1 if seen else 0 for number, seen in wanted.items()}
                assert (reader.beginning_offsets(), reader.end_offsets()) == (starts, ends)
                for number, seen in wanted.items():
                    for row in (seen[len(seen) // 2], seen[-1]) if seen and topic == "g-plain" else ():
                        first = next(one for one in seen if one.timestamp >= row.timestamp)
                        assert reader.offset_for_timestamp(number, row.timestamp) == (first.offset, first.timestamp)
            with Writer(broker.address, topic) as writer:
                for number in places:
                    assert writer.send(number, [Appended(b"key", b"value", until)]) == [ends[number]]
            for golden in places.values():
                said = broker.said_of(golden.name)
                assert said
                assert not [line for line in said if "WARN" in line or "ERROR" in line or "tray" in line]
    assert whole == {True, False}
