"""A ``restore`` that is killed again and again, then finished by one more call: a real broker starts with all of it."""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from broker_words import alarms, check_alarms, check_untouched
from clients import Admin
from golden import CLEAN, CLEAN_LOG_DIRS, named
from restoring import BUSY, IS_WHOLE, READABLE, CleanStarts, WrittenFiles, check_rows, is_compacted, with_log_dirs

from conftest import VERSIONS
from offsetlog import restore

SETTINGS = {**BUSY, "log.retention.ms": -1, "log.segment.delete.delay.ms": 1000}
KILLS = 60 if IS_WHOLE else 6
SECONDS = 300
HOLED, SHORT = "g-plain-0", "g-plain-1"
"""Each has two replicas. Of the first one the longer one has a hole, which the other fills; of the second one the other is longer."""


OF_HALVES = {
    "Could not find offset index file corresponding to log file PATH": "what a killed call leaves is named for the broker to delete",
    "Found an orphaned index file PATH": "the same",
    "Failed atomic move of PATH to PATH retrying with a non-atomic move": "it deletes indexes that are not there",
}


def several_sources(place: Path) -> list[Path]:
    """The disks of the dead broker, damaged, and another broker's disk."""
    for log_dir in CLEAN_LOG_DIRS:
        shutil.copytree(log_dir, place / log_dir.name)
    other = place / "other"
    other.mkdir()
    text = (CLEAN_LOG_DIRS[0] / "meta.properties").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith(("node.id", "directory.id"))]
    (other / "meta.properties").write_text("\n".join([*lines, "node.id=2", ""]), encoding="utf-8")
    for golden in named(HOLED, SHORT):
        shutil.copytree(golden.directory, other / golden.name)
    max((other / HOLED).glob("*.log")).unlink()
    (holed,) = place.glob(f"log-dir-*/{HOLED}")
    (short,) = place.glob(f"log-dir-*/{SHORT}")
    max(short.glob("*.log")).unlink()
    second = sorted(holed.glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 0xFF
    second.write_bytes(data)
    return [*(place / log_dir.name for log_dir in CLEAN_LOG_DIRS), other, CLEAN / "metadata-dir"]


def done_in(log_dirs: Sequence[Path]) -> int:
    """How many partitions are there with records: a stopped broker has made some without."""
    places = [path for log_dir in log_dirs for path in log_dir.iterdir() if path.name.rpartition("-")[2].isdigit()]
    return sum(any(size_of(file) for file in path.glob("*.log")) for path in places)


def size_of(file: Path) -> int:
    """Of a file that may be gone meanwhile, none."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def killed_often(command: Sequence[str], log_dirs: Sequence[Path], count: int, chosen: random.Random) -> int:
    """Each call is killed when there is a little more than before. Return how many had not come to the end."""
    early = 0
    for number in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            end = time.monotonic() + SECONDS
            while process.poll() is None and done_in(log_dirs) < count * number // KILLS:
                assert time.monotonic() < end
            time.sleep(chosen.uniform(0, 0.03) if number else chosen.uniform(0.05, 0.5))
            process.send_signal(signal.SIGKILL)
            process.wait()
        early += process.returncode == -signal.SIGKILL
    return early


CASES = [("new", "4.3.0"), ("stopped", "3.9.2")]
if IS_WHOLE:
    CASES = [*(("new", version) for version in VERSIONS[:2]), *(("stopped", version) for version in VERSIONS)]


@pytest.mark.parametrize(("target", "version"), CASES)
def test_a_killed_restore_is_finished(
    target: str, version: str, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles
) -> None:
    """Into two log dirs, from replicas of which none has all records."""
    sources = several_sources(tmp_path / "old")
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", SETTINGS)
    partitions = [golden for golden in READABLE if target == "new" or golden.end]
    topics = Counter(golden.topic for golden in partitions)
    if target == "stopped":
        with broker.running(), Admin(broker.address) as admin:
            for topic, number in topics.items():
                admin.create(topic, number, {"cleanup.policy": "compact" if is_compacted(topic) else "delete"})
                admin.leader_epochs(topic)
    metadata = broker.metadata_dir or broker.zookeeper_dir
    assert metadata is not None
    words = [*map(str, sources), *(word for log_dir in log_dirs for word in ("--into", str(log_dir)))]
    words += ["--metadata", str(metadata), "--broker", str(broker.properties), "--quiet"]
    words += ["--new-cluster"] if target == "new" else [word for topic in topics for word in ("-t", topic)]
    command = [sys.executable, "-m", "offsetlog", "restore", *words]
    early = killed_often(command, log_dirs, len(partitions), random.Random(f"{target} {version}"))
    assert early > KILLS // 2
    report = restore(
        sources,
        log_dirs,
        topics=() if target == "new" else list(topics),
        metadata=metadata,
        broker=broker.properties,
        new_cluster=target == "new",
    )
    assert {each.state for each in report.partitions} <= {"restored", "there"}
    assert len([each for each in report.partitions if not each.topic.startswith("__")]) == len(partitions)
    written.keep(report)
    for _ in range(2):
        with broker.running():
            # Those of a stopped broker's cluster are below those of the old one, which are counted anew.
            check_rows(broker, partitions, epochs=target == "new")
            end = time.monotonic() + SECONDS
            while [path for log_dir in log_dirs for path in log_dir.glob("*-delete")]:
                assert time.monotonic() < end
                time.sleep(0.1)
    check_alarms(broker, clean_starts.warnings(broker), OF_HALVES)
    # Kafka 3 does not name the folder that it deletes a segment of. That every record is there was seen.
    halves = "-delete]" if version >= "4" else "Deleting segment"
    allowed = [re.escape(halves)]
    if target == "stopped":
        # A log dir whose writer died is not marked as clean again: this broker recovers first, and finds nothing to cut off. Then it cleans.
        allowed += ["Recovering ", "Rebuilding ", r"partition=\S*compact.* Deleting segment"]
    check_untouched(broker, [golden.name for golden in partitions], "|".join(allowed))
    for run in range(1, broker.runs + 1):
        for line, plain in alarms(broker, run):
            assert "-delete/" in line or not re.search("|".join(OF_HALVES), plain), line
