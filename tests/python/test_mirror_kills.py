"""A mirror that is killed again and again, while its source grows and is cut: in the end the batches are the source's, and what was cut is kept."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path

import pytest
from writing import environment

import offsetlog
from offsetlog import LogDir, Server, mirror

pytestmark = pytest.mark.slow

PARTITIONS = 3
FRAME = struct.Struct(">qi")


def batches(data: bytes) -> list[bytes]:
    """The whole batches of a log, by a parser of its own. A kill may leave half of one behind them."""
    found, at = [], 0
    while at + FRAME.size <= len(data):
        size = FRAME.size + FRAME.unpack_from(data, at)[1]
        if at + size > len(data):
            break
        found.append(data[at : at + size])
        at += size
    return found


def log_bytes(partition: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))


class Source:
    """Partitions that somebody appends to, and that lose their end as after an unclean election."""

    def __init__(self, folder: Path, drawn: random.Random) -> None:
        self.folder, self.drawn, self.epochs = folder, drawn, [0] * PARTITIONS
        self.log_dir = LogDir.open(folder, "a")
        self.log_dir.create_topic("orders", PARTITIONS, config={"internal.segment.bytes": 100_000})
        self.ever: list[set[bytes]] = [set() for _ in range(PARTITIONS)]
        self.cuts = 0

    def change(self) -> None:
        number = self.drawn.randrange(PARTITIONS)
        log = self.log_dir.log("orders", number)
        if self.drawn.random() < 0.15 and log.log_end_offset > 0:
            # A replica leads that had less, in an epoch of its own; the first batch of it tells so.
            log.truncate_to(self.drawn.randrange(max(0, log.log_end_offset - 40), log.log_end_offset))
            self.epochs[number] += 1
            self.cuts += 1
        for _ in range(self.drawn.randrange(1, 6)):
            records = [(b"key", self.drawn.randbytes(self.drawn.randrange(2000))) for _ in range(self.drawn.randrange(1, 8))]
            log.append_records(records, leader_epoch=self.epochs[number])

    def remember(self) -> None:
        for number in range(PARTITIONS):
            self.ever[number] |= set(batches(log_bytes(self.folder / f"orders-{number}")))


def kept_batches(into: Path) -> set[bytes]:
    """Every batch that was cut and kept."""
    return {batch for path in into.glob("orders-*/offsetlog-cut/*.log.*") for batch in batches(path.read_bytes())}


def expect_copies(kafka: Server, source: Source, into: Path) -> None:
    """A mirror that ends complete has what the source has, also where that was cut and grew to the same end again."""
    report = mirror(kafka.bootstrap_servers, into, once=True)
    assert report.is_complete, report
    for number in range(PARTITIONS):
        theirs, ours = (batches(log_bytes(folder / f"orders-{number}")) for folder in (source.folder, into))
        same = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(ours, theirs, strict=False)))
        assert (len(ours), same) == (len(theirs), len(theirs)), f"partition {number}"


@pytest.mark.parametrize(
    ("kills", "seed"),
    [
        pytest.param(20, 1, id="some"),
        pytest.param(50, 2, id="more", marks=pytest.mark.proof),
        pytest.param(200, 2, id="many", marks=[pytest.mark.proof, pytest.mark.newest]),
    ],
)
def test_killed_at_random_moments(kills: int, seed: int, tmp_path: Path) -> None:
    seed = int(os.environ.get("OFFSETLOG_SEED", seed))
    # More of them in each round of a soak.
    kills = max(kills, round(kills * float(os.environ.get("OFFSETLOG_SCALE", "1"))))
    print(f"OFFSETLOG_SEED={seed}")
    drawn = random.Random(seed)
    source, into = Source(tmp_path / "source", drawn), tmp_path / "copy"
    for _ in range(20):
        source.change()
    copied: list[set[bytes]] = [set() for _ in range(PARTITIONS)]
    with Server(source.folder) as kafka:
        command = [
            sys.executable,
            "-m",
            "offsetlog",
            "mirror",
            "--bootstrap",
            kafka.bootstrap_servers,
            "--into",
            str(into),
            "--refresh",
            "1",
        ]
        killed, pace = 0, 1.0
        # Until enough was cut and kept too: on a slow machine a mirror copies nothing for a while.
        while killed < kills or source.cuts <= kills / 10 or len(kept_batches(into)) <= kills / 10:
            assert killed < 20 * kills, f"{source.cuts} cuts, {len(kept_batches(into))} batches kept"
            killed += 1
            before = sum(map(len, copied))
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
            end = time.monotonic() + pace * drawn.uniform(0.05, 0.6)
            while time.monotonic() < end:
                source.change()
                source.remember()
                time.sleep(drawn.uniform(0, 0.05))
            assert process.poll() is None, "it ended by itself"
            process.kill()
            process.wait()
            for number, found in enumerate(copied):
                found |= set(batches(log_bytes(into / f"orders-{number}")))
            pace = max(1.0, pace * (0.8 if sum(map(len, copied)) > before else 1.25))
            if killed % 5 == 0:
                expect_copies(kafka, source, into)
        expect_copies(kafka, source, into)
    source.log_dir.close()
    for number in range(PARTITIONS):
        ours = log_bytes(into / f"orders-{number}")
        files = (into / f"orders-{number}" / "offsetlog-cut").glob("*.log.*")
        kept = {batch for path in files for batch in batches(path.read_bytes())}
        # Nothing that the source never had, and nothing that was here is nowhere.
        assert kept <= source.ever[number]
        assert copied[number] <= kept | set(batches(ours))
    assert offsetlog.verify(into).errors == 0
    print(f"counted {killed} kills of a mirror of a served directory")
