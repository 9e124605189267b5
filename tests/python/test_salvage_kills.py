"""``salvage`` killed in the middle: the new directory is not there or whole, nothing else looks like a partition, the old one is as it was."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from writing import LOCK, Clock, environment, times, tree

from offsetlog import Log, LogDir

pytestmark = pytest.mark.slow

KILLS = 32
NAME = "orders-0"
# What a broker, or a log dir of ours, takes for a partition that is being deleted, and removes.
ASIDE = re.compile(r"orders-0\.[0-9a-f]{32}-delete")
# Regular files beside partitions are nothing to a broker, or its own.
CHECKPOINTS = {"recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"}
# A broker writes its checkpoints by way of such files too, and the next write replaces them.
FILES = {".lock", "offsetlog-shared.lock", *CHECKPOINTS, *(f"{name}.tmp" for name in CHECKPOINTS)}
BATCHES = 300
DAY = 86_400_000


def command(source: Path, into: Path) -> list[str]:
    return [sys.executable, "-m", "offsetlog", "salvage", str(source), "--into", str(into)]


def started(source: Path, into: Path) -> subprocess.Popen[bytes]:
    """The command, when it has begun the new directory."""
    before = set(into.iterdir())
    process = subprocess.Popen(command(source, into), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    while process.poll() is None and set(into.iterdir()) == before:
        time.sleep(0.0005)
    return process


def made(folder: Path) -> Path:
    """A log of several segments with a damaged one among them."""
    path = folder / "old" / NAME
    chosen = random.Random("salvage")
    with Log.open(path, "a", config={"internal.segment.bytes": 500_000}) as log:
        for _ in range(BATCHES):
            log.append_records([(b"key", chosen.randbytes(1000)) for _ in range(8)])
    damaged = sorted(path.glob("*.log"))[1]
    with damaged.open("r+b") as file:
        file.seek(20_000)
        file.write(bytes(100))
    return path


def without_room(files: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """Without the zeros behind an index's entries: in a log dir the new partition is opened once more for its checkpoints' lines, and who is
    killed then leaves room for entries, as a broker does.
    """
    return {name: data.rstrip(b"\0") if data and name.endswith("index") else data for name, data in files.items()}


@pytest.mark.parametrize("into", ["folder", "log dir"])
def test_killed_at_random_moments(into: str, tmp_path: Path) -> None:
    source, chosen = made(tmp_path), random.Random(into)
    target, other = tmp_path / "new", tmp_path / "whole"
    for folder in (target, other):
        folder.mkdir()
        if into == "log dir":
            # A line of an earlier partition of that name, which may hold for no other.
            (folder / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {1 << 40}\n")
    around = {path.name for path in target.iterdir()}
    before = tree(source), times(source)
    whole = started(source, other)
    began = time.monotonic()
    while not (other / NAME).exists():
        assert time.monotonic() < began + 300
    seconds = time.monotonic() - began
    assert whole.wait(300) == 3
    wanted = kafkas(other / NAME)
    killed = finished = unfinished = attempts = 0
    # Until enough were killed before the work was done, and one after it: the machine may get faster or slower meanwhile.
    while killed < KILLS or unfinished < KILLS // 2 or not finished:
        attempts += 1
        assert attempts < 16 * KILLS
        with started(source, target) as process:
            time.sleep(chosen.uniform(0, 1.2 * seconds))
            process.kill()
        killed += process.returncode != 3
        done = NAME in {path.name for path in target.iterdir()}
        seconds *= 0.9 if done else 1.1
        unfinished += not done
        assert (tree(source), times(source)) == before
        found = {path.name for path in target.iterdir() if path.is_dir()}
        assert all(name == NAME or ASIDE.fullmatch(name) for name in found), found
        others = {path.name for path in target.iterdir()} - found - around
        assert others <= FILES, others
        if NAME in found or around:
            with LogDir.open(target) as logs:
                assert [at.topic for at in logs.partitions()] == ["orders"] * (NAME in found)
        if NAME in found:
            finished += 1
            assert without_room(kafkas(target / NAME)) == without_room(wanted)
            with Log.open(target / NAME) as log:
                assert log.high_watermark == log.log_end_offset
            assert subprocess.run(command(source, target), capture_output=True, env=environment(), check=False).returncode == 2
            assert kafkas(target / NAME) == wanted
            shutil.rmtree(target / NAME)
    # What is left of all those is no hindrance, and a log dir removes it.
    assert subprocess.run(command(source, target), capture_output=True, env=environment(), check=False).returncode == 3
    assert kafkas(target / NAME) == wanted
    clock = Clock()
    with LogDir.open(target, "a", clock=clock) as logs:
        clock.now += DAY
        logs.remove_deleted()
    assert not [path for path in target.iterdir() if path.name.endswith("-delete")]


def kafkas(directory: Path) -> dict[str, bytes | None]:
    """Every file that is Kafka's, with its bytes."""
    return {name: data for name, data in tree(directory, without=(LOCK,)).items() if not name.startswith(".offsetlog")}
