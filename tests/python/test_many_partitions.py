"""Ten thousand partitions in one process: what is not used costs nothing, and what was used leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPICS = 100
# Twice the bytes that they are seen to take; where memory is short they lie on the disk, where all is synced.
ROOM = 2 << 30

# In a process of its own, so that its memory is that of this work.
PROGRAM = """
import json, os, sys
from pathlib import Path
from typing import TYPE_CHECKING
from offsetlog import LogDir

place, topics, partitions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
now = 1_700_000_000_000
names = [f"t{number}" for number in range(topics)]
most = 0

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def mib():
    # Not ru_maxrss, which begins with what the process had that started this one.
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) // 1024

def look(done):
    global most
    most = max(most, descriptors())
    print(done, descriptors(), mib(), file=sys.stderr, flush=True)

before = descriptors()
with LogDir.open([place / "a", place / "b"], "a", clock=lambda: now) as log_dir:
    for number, name in enumerate(names):
        policy = "compact,delete" if number % 2 else "delete"
        config = {
            "cleanup.policy": policy, "retention.ms": "1000000", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0",
            "internal.segment.bytes": "2000",
        }
        log_dir.create_topic(name, partitions, config=config)
    look("created")
    for value in (b"first", b"second", b"third"):
        for name in names:
            for partition in range(partitions):
                log_dir.append(name, value, key=b"key", partition=partition)
            most = max(most, descriptors())
        look(f"appended {value}")
        now += 5_000
    compacted = log_dir.maintain()
    look("compacted")
    with LogDir.open([place / "a", place / "b"]) as reader:
        counts = [sum(1 for _ in reader.log(name, partition).scan()) for name in names for partition in range(partitions)]
    look("read")
    now += 10_000_000
    aged = log_dir.maintain()
    look("aged")
    left = sum(1 for name in names[:10] for partition in range(partitions) for _ in log_dir.log(name, partition).scan())
    look("read again")
    for name in names:
        log_dir.delete_topic(name)
    look("deleted")
    now += 10_000_000
    removed = log_dir.maintain()
    look("removed")
print(json.dumps({
    "most": most, "before": before, "after": descriptors(), "mib": mib(),
    "compacted": [compacted.looked_at, len(compacted.partitions), len(compacted.failed)],
    "counts": sorted(set(zip([number // partitions % 2 for number in range(len(counts))], counts))),
    "aged": [aged.looked_at, len(aged.partitions), len(aged.failed)], "left": left, "removed": len(removed.removed),
}))
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is room, as each of some hundred thousand syncs would cost its milliseconds."""
    memory = Path("/dev/shm")  # noqa: S108  # an own directory is made in it
    if memory.is_dir() and os.access(memory, os.W_OK):
        space = os.statvfs(memory)
        if space.f_bavail * space.f_frsize > ROOM:
            with tempfile.TemporaryDirectory(dir=memory) as name:
                yield Path(name)
            return
    yield tmp_path


@pytest.mark.parametrize(
    "partitions", [pytest.param(10, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.proof)], ids=["1000", "10000"]
)
def test_many_partitions_live_in_one_process(place: Path, partitions: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place), str(TOPICS), str(partitions)],
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    print(run.stderr)
    found = json.loads(run.stdout)
    every = TOPICS * partitions
    assert found["most"] <= 1_000
    assert found["after"] == found["before"]
    assert found["mib"] < 200
    # Half of the topics are compacted: of three values the last closed one and the one in the active segment are left.
    assert found["compacted"] == [every, every // 2, 0]
    assert found["counts"] == [[0, 3], [1, 2]]
    # All is old by then.
    assert found["aged"] == [every, every, 0]
    assert found["left"] == 0
    assert found["removed"] == every
    for log_dir in (place / "a", place / "b"):
        assert not [path for path in log_dir.iterdir() if path.is_dir()]
        for checkpoint in log_dir.glob("*-checkpoint"):
            assert checkpoint.read_text() == "0\n0\n", checkpoint
