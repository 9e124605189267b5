"""Of a topic with tiered storage a new broker serves what its dead broker's disk had; what the remote store alone had is told as lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from clients import ReaderOfAll, Writer
from golden import DATA
from peers import Appended
from restoring import BUSY, CleanStarts, WrittenFiles, with_log_dirs

from kafka import TopicPartition
from offsetlog import restore

TIERED = DATA / "kafka-4.3.0-tiered" / "log-dir"
MISSING = 3
"""The exit code of what is done, and lacks something."""


def ends() -> dict[TopicPartition, int]:
    """Where the dead broker had flushed each partition to, by its own checkpoint; all of it was in the remote store."""
    lines = (TIERED / "recovery-point-offset-checkpoint").read_text(encoding="ascii").splitlines()[2:]
    return {TopicPartition(topic, int(partition)): int(end) for topic, partition, end in map(str.split, lines) if topic == "orders"}


def test_what_only_the_remote_store_has_is_told(tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """No record is made up for it, and no offset is given twice."""
    broker, log_dirs = with_log_dirs("4.3.0", tmp_path / "broker", BUSY)
    assert broker.metadata_dir is not None
    command = [sys.executable, "-m", "offsetlog", "restore", str(TIERED), "--new-cluster", "--json"]
    command += ["--metadata", str(broker.metadata_dir), "--broker", str(broker.properties)]
    done = subprocess.run(
        [*command, *(word for log_dir in log_dirs for word in ("--into", str(log_dir)))],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == MISSING, done.stderr
    # The dead broker's log began at 0, by its checkpoint, wherever the records were.
    assert (TIERED / "log-start-offset-checkpoint").read_text(encoding="ascii").splitlines()[2:] == ["orders 0 0", "orders 1 0"]
    _, *each_partition, whole = (json.loads(line) for line in done.stdout.splitlines())
    assert [line["records"] for line in each_partition] == [0] * len(ends())
    for at, end in ends().items():
        begin = f"{at.topic}-{at.partition}: offsets 0 to {end - 1} are not restored"
        assert [warning.startswith(begin) for warning in whole["warnings"]].count(True) == 1
    report = restore(TIERED, log_dirs, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True)
    assert ({each.state for each in report.partitions}, report.has_losses) == ({"there"}, True)
    written.keep(report)
    for run in range(2):
        with broker.running():
            with ReaderOfAll(broker.address, list(ends()), "read_uncommitted") as reader:
                assert reader.ranges() == {at: (end, end + run) for at, end in ends().items()}
                assert {at: [row.offset for row in rows] for at, rows in reader.everything().items()} == {
                    at: list(range(end, end + run)) for at, end in ends().items()
                }
            with Writer(broker.address, "orders") as writer:
                for at, end in ends().items():
                    assert writer.send(at.partition, [Appended(b"key", b"value", int(1000 * time.time()))]) == [end + run]
    clean_starts.check_words(broker, [f"{at.topic}-{at.partition}" for at in ends()])
