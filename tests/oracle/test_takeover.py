"""What a real broker closed, opened by both: what opening changes of it, and closing it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import log_files
import pytest
from differences import Uses
from interface import Clock
from kafka_log import ROOT, KafkaLog, Oracle

from offsetlog import Log

CLEAN = ROOT / "tests" / "data" / "kafka-4.3.0" / "clean"
# By then all of its producers have expired, and nobody has opened it before.
LATER = 1_900_000_000_000
ROUNDS = 3


@pytest.mark.parametrize("now", [1_700_000_000_000, LATER])
@pytest.mark.parametrize("name", ["log-dir-1", "log-dir-2"])
def test_opening_and_closing_changes_what_kafka_changes(oracle: Oracle, folder: Path, name: str, now: int) -> None:
    """Nothing is rebuilt; of the files that a broker knows, every byte is what Kafka leaves, opened and closed three times."""
    copies = {side: folder / f"takeover-{now}" / side / name for side in ("ours", "kafka")}
    for copy in copies.values():
        shutil.copytree(CLEAN / name, copy)
        for path in copy.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
    partitions = sorted(path.name for path in copies["ours"].iterdir() if path.is_dir())
    assert len(partitions) > 10
    clock = Clock(now)
    for turn in range(ROUNDS):
        for partition in partitions:
            directory = copies["ours"] / partition
            kafka = KafkaLog(oracle, copies["kafka"] / partition, "takeover")
            kafka.follow(clock)
            clock.set(now)
            log = Log.open(directory, "a", clock=lambda: now)
            fields = {"config": {}, "clean": True, "recoveryPoint": 0, "logStartOffset": 0, "useCheckpoints": True}
            theirs = kafka.ask("open", dir=str(kafka.directory), **fields)
            where = f"{partition}, opened {turn + 1} times"
            assert (log.log_start_offset, log.log_end_offset) == (theirs["start"], theirs["leo"]), where
            report = log.recovery_report
            assert (report.clean, report.cut, report.rebuilt, report.tidied) == (True, (), (), ()), where
            assert not unlike(directory, kafka.directory), where
            log.close()
            kafka.close(clean=True)
            assert not unlike(directory, kafka.directory), where


def unlike(one: Path, other: Path) -> list[str]:
    """In what the files differ."""
    return log_files.unlike(log_files.stored(one), log_files.stored(other), Uses())
