"""Ways in which one partition of several is damaged or cannot be read, for tests of what the others still answer."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from writing import environment

from offsetlog import LogDir

# Topic `orders`: four partitions of ten records, one a batch and two a segment; the second one is damaged. Topic `pay`: one partition.
PARTITIONS = 4
RECORDS = 10
DAMAGED = "orders-1"
SOUND = ["orders-0", "orders-2", "orders-3", "pay-0"]
CHECKPOINTS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
# The second segment, which is closed, holds offsets 2 and 3; every segment is found by its base offset.
SEGMENT = f"{2:020}.log"
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24


def made(place: Path) -> Path:
    """A log dir with the two topics, closed cleanly."""
    with LogDir.open(place, "a", clock=lambda: 1_700_000_000_000) as log_dir:
        log_dir.create_topic("orders", PARTITIONS, config={"internal.segment.bytes": 200})
        log_dir.create_topic("pay", 1)
        for number in range(PARTITIONS * RECORDS):
            log_dir.append("orders", b"%d" % number * 10, partition=number % PARTITIONS)
        log_dir.append("pay", b"paid", partition=0)
    assert len(list((place / DAMAGED).glob("*.log"))) == RECORDS // 2
    return place


def _in_the_place(put: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(place: Path) -> None:
        segment = place / DAMAGED / SEGMENT
        segment.unlink()
        put(segment)

    return damage


def _garbage_batch(place: Path) -> None:
    """The first batch of the segment is not what its checksum says."""
    segment = place / DAMAGED / SEGMENT
    data = bytearray(segment.read_bytes())
    data[70] ^= 0xFF
    segment.write_bytes(data)


def _cut(place: Path) -> None:
    """The last batch of the closed segment lacks its last bytes."""
    segment = place / DAMAGED / SEGMENT
    os.truncate(segment, segment.stat().st_size - 10)


def _checkpoints(place: Path) -> None:
    for name in CHECKPOINTS:
        (place / name).write_bytes(b"\xff nonsense")


class Kind(NamedTuple):
    """One kind of damage."""

    damage: Callable[[Path], object]
    opens: bool
    """Whether the partition can be opened: else none of its records can be read."""
    lost: int | None
    """The record that cannot be read where others can."""


KINDS: dict[str, Kind] = {
    "a folder for a segment": Kind(_in_the_place(Path.mkdir), opens=False, lost=None),
    "a pipe for a segment": Kind(_in_the_place(os.mkfifo), opens=False, lost=None),
    "a dangling link for a segment": Kind(_in_the_place(lambda path: path.symlink_to("nowhere")), opens=False, lost=None),
    "a folder that nobody may list": Kind(lambda place: (place / DAMAGED).chmod(0), opens=False, lost=None),
    "a garbage batch": Kind(_garbage_batch, opens=True, lost=2),
    "a cut closed segment": Kind(_cut, opens=True, lost=3),
    "garbage checkpoints": Kind(_checkpoints, opens=True, lost=None),
}


def _as_anybody() -> None:
    """Root lists and reads whatever the permissions say, unless its bounding set lacks these."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        assert libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())


def anybody(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, to which permissions apply."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environment(),
        check=False,
        preexec_fn=_as_anybody if os.geteuid() == 0 else None,
    )


def mend(place: Path) -> None:
    """Let whoever removes the folder list it."""
    for path in place.glob("*"):
        if path.is_dir():
            path.chmod(0o755)


def copied(place: Path, to: Path) -> Path:
    """A copy of a log dir with what stands in it; pipes and links too."""
    return Path(shutil.copytree(place, to, symlinks=True))
