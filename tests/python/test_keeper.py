"""The program of examples/keeper.py over five weeks of a clock that the test sets, with a kill and a restart on the way.

What must be there, and in which round it must have gone, is worked out here from the rules for rolling, retention, compaction and
deletion; nothing of it comes from a reader of ours.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from offsetlog import Log, LogDir, WritableLogDir, partition_for

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")  # noqa: S108  # where it exists
START = 1_767_607_200_000
"""A Monday, ten o'clock."""
HOUR, DAY = 3_600_000, 86_400_000
ROUND_HOURS = 24
RUNS = ((0, 300, "killed"), (300, 500, "closed"), (500, 840, "closed"))
"""From which hour to which each process runs, and how it ends: five weeks."""

DRIVER = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from keeper import Keeper
path, start, first, stop, ending = Path(sys.argv[2]), *map(int, sys.argv[3:6]), sys.argv[6]
now = [start + first * 3_600_000]
orders = json.load(sys.stdin)
with Keeper(path, every=None, clock=lambda: now[0]) as keeper:
    for hour in range(first, stop):
        now[0] = start + hour * 3_600_000
        for order, state in orders[str(hour)]:
            keeper.take(order, state)
        if hour % int(sys.argv[7]) == 0:
            dropped = keeper.drop_old_audits()
            report = keeper.maintain()
            assert not report.failed and not report.busy
            print(json.dumps({
                "hour": hour,
                "dropped": dropped,
                "directories": len(report.removed),
                "removed": [[*at, one.base_offset, one.end_offset, one.reason] for at, kept in report.partitions.items() for one in kept.removed],
                "passes": [[one.first_dirty_offset, one.end_offset] for kept in report.partitions.values() for one in kept.compactions],
                "waiting": sorted(f"{at.parent.name}/{at.name}" for at in path.glob("events-*/*.log.deleted")),
            }), flush=True)
    if ending == "killed":
        os._exit(9)
"""


@dataclass
class Entry:
    """A record as it must be."""

    offset: int
    timestamp: int
    key: str
    value: str | None
    horizon: int | None = None
    """When it goes, if it is a tombstone that a pass has seen."""


@dataclass
class Partition:
    """A log by the rules: segments by the time of their records."""

    segment_ms: int
    segments: list[list[Entry]] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    end: int = 0
    first_dirty: int = 0
    first_time: int = 0
    """Of the active segment."""

    def append(self, timestamp: int, key: str, value: str | None) -> None:
        if not self.segments or timestamp - self.first_time > self.segment_ms:
            self.segments.append([])
            self.bases.append(self.end)
            self.first_time = timestamp
        self.segments[-1].append(Entry(self.end, timestamp, key, value))
        self.end += 1

    def retain(self, now: int, retention_ms: int) -> list[tuple[int, int]]:
        """First offset and end of the segments that go. There are always younger records."""
        gone = []
        while now - max(entry.timestamp for entry in self.segments[0]) > retention_ms:
            gone.append((self.bases[0], self.bases[1]))
            del self.segments[0], self.bases[0]
        return gone

    def compact(self, now: int, end: int, keep_ms: int) -> None:
        """One pass over what lies below `end`: all closed segments."""
        below = [entry for segment in self.segments for entry in segment if entry.offset < end]
        latest = {entry.key: entry.offset for entry in below}
        kept = []
        for entry in below:
            if latest[entry.key] != entry.offset or (entry.horizon is not None and now >= entry.horizon):
                continue
            if entry.value is None and entry.horizon is None:
                entry.horizon = now + keep_ms
            kept.append(entry)
        self.segments = [kept, self.segments[-1]]
        self.bases = [self.bases[0], end]
        self.first_dirty = end

    def oldest_dirty(self) -> int | None:
        """Time of the first record of closed segments that was never compacted."""
        return min(
            (entry.timestamp for segment in self.segments[:-1] for entry in segment if entry.offset >= self.first_dirty), default=None
        )

    def rows(self) -> list[tuple[int, int, bytes, bytes | None]]:
        return [
            (entry.offset, entry.timestamp, entry.key.encode(), None if entry.value is None else entry.value.encode())
            for segment in self.segments
            for entry in segment
        ]


def week(now: int) -> str:
    return datetime.fromtimestamp(now / 1000, UTC).strftime("audit-%G-w%V")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is any: with an hour between two records, the state of a log is written for each of them."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="offsetlog-keeper-", dir=MEMORY) as made:
        yield Path(made)


@pytest.mark.slow
def test_five_weeks(folder: Path) -> None:  # one story
    chosen = random.Random("five weeks")
    orders = {
        hour: [
            (f"order-{chosen.randrange(30)}", None if chosen.random() < 0.2 else f"state {hour} {n}")
            for n in range(chosen.randint(1, 3))
        ]
        for hour in range(RUNS[-1][1])
    }
    events = {number: Partition(DAY) for number in range(2)}
    latest = Partition(DAY)
    audits: dict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
    waiting_directories = passes = removed = dropped = 0
    for first, stop, ending in RUNS:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, ROOT / "examples", folder, *map(str, (START, first, stop)), ending, str(ROUND_HOURS)],
            input=json.dumps(orders),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == (9 if ending == "killed" else 0), done.stderr[-3000:]
        rounds = {told["hour"]: told for told in map(json.loads, done.stdout.splitlines())}
        for hour in range(first, stop):
            now = START + hour * HOUR
            for order, state in orders[hour]:
                value = state or "over"
                events[partition_for(order.encode(), 2)].append(now, order, value)
                latest.append(now, order, state)
                audits[week(now)].append((order.encode(), value.encode()))
            if hour % ROUND_HOURS:
                continue
            told = rounds[hour]
            old = sorted(name for name in audits if name < week(now - int(timedelta(weeks=3).total_seconds() * 1000)))
            assert told["dropped"] == old
            for name in old:
                del audits[name]
            assert told["directories"] == waiting_directories
            waiting_directories = len(old)
            dropped += len(old)
            gone = [
                ["events", number, *segment, "retention.ms"]
                for number, partition in events.items()
                for segment in partition.retain(now, 7 * DAY)
            ]
            assert told["removed"] == gone
            removed += len(gone)
            # Those of this round; a minute has passed since the one before.
            assert told["waiting"] == [f"events-{number}/{base:020}.log.deleted" for _, number, base, _, _ in gone]
            if told["passes"]:
                assert told["passes"] == [[latest.first_dirty, latest.bases[-1]]]
                latest.compact(now, latest.bases[-1], DAY)
                passes += 1
            oldest = latest.oldest_dirty()
            assert oldest is None or oldest >= now - DAY, f"hour {hour}: overdue"
        with LogDir.open(folder) as log_dir:
            assert log_dir.topics() == {"events": [0, 1], "latest": [0], **{name: [0] for name in sorted(audits)}}
            for number, partition in events.items():
                log = log_dir.log("events", number)
                assert [(one.offset, one.timestamp, one.key, one.value) for one in log.scan()] == partition.rows()
                assert log.log_start_offset == partition.bases[0]
            assert [(one.offset, one.timestamp, one.key, one.value) for one in log_dir.log("latest", 0).scan()] == latest.rows()
            for name, written in audits.items():
                assert [(one.key, one.value) for one in log_dir.log(name, 0).scan()] == written
    # About four weeks of events went day by day, in both partitions.
    assert (dropped > 0, removed > 40, passes > 20) == (True, True, True)
    assert any(entry.value is None for segment in latest.segments for entry in segment)
    assert len(latest.rows()) < latest.end / 10


def test_a_full_disk_makes_the_program_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    example = importlib.import_module("keeper")
    waits = list(example.FULL_DISK_WAITS)
    waited: list[float] = []
    with example.Keeper(tmp_path, every=None, clock=lambda: START, sleep=waited.append) as keeper:
        append, full = WritableLogDir.append, [1]

        def refused(log_dir: WritableLogDir, topic: str, *arguments: object, **named: object) -> object:
            if full[0]:
                full[0] -= 1
                raise OSError(28, "No space left on device")
            return append(log_dir, topic, *arguments, **named)  # type: ignore[arg-type]  # passed on

        monkeypatch.setattr(WritableLogDir, "append", refused)
        keeper.take("order-1", "new")
        assert waited == waits[:1]
        full[0] = 1 + len(waits)
        with pytest.raises(OSError, match="No space left"):
            keeper.take("order-2", "new")
        assert waited[1:] == waits
        keeper.take("order-3", "new")
        assert {record.key for record in keeper.log_dir.scan([("latest", 0)])} == {b"order-1", b"order-3"}


def test_the_program_takes_lines_and_ends_cleanly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "keeper.py", tmp_path, "--every", "0.05"],
        input="order-1\tnew\norder-2\tnew\norder-1\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "keeper INFO latest: " in done.stderr
    with Log.open(tmp_path / "latest-0") as log:
        assert [(record.key, record.value) for record in log.scan()] == [
            (b"order-1", b"new"),
            (b"order-2", b"new"),
            (b"order-1", None),
        ]
