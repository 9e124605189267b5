"""Two cleaners by turns on one compacted topic: a broker's, offsetlog's, the broker's, offsetlog's.

Each has to begin where the other ended, which stands in `cleaner-offset-checkpoint`. What must be left is computed here, from all that
was ever written.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clients import Admin, Isolation, Reader
from expected_state import ExpectedState
from golden import Row, rows
from offsetlog_writes import CODECS, OffsetlogWrites
from peers import Appended, encoded
from wire import Wire

from broker import broker_of
from offsetlog import Compaction, Log, WritableLog

TOPIC = "cleaned"
OURS, TRANSACTIONS, THEIRS = range(3)
"""Partitions: first written and cleaned by us, the same with transactions, first written and cleaned by the broker."""
EVERY = (OURS, TRANSACTIONS, THEIRS)
ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
"""Every closed segment is reason enough to clean; tombstones stay a day, which is longer than any test."""
GIVEN = {
    **SETTINGS,
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "max.compaction.lag.ms": str((1 << 63) - 1),
    "min.compaction.lag.ms": "0",
    "remote.storage.enable": "false",
    "segment.bytes": str(1 << 30),
    "segment.index.bytes": str(10 << 20),
}
"""All by which the broker's partitions are cleaned here: none of its settings are known without its metadata."""
SECTION = re.compile(r"dirty section = \[(\d+), (\d+)\]")
CLEANING_SECONDS = 300
STEP = 250


def point(log_dir: Path, partition: int) -> int | None:
    """First offset that is not compacted, as the log dir says."""
    try:
        lines = (log_dir / "cleaner-offset-checkpoint").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return None
    found = [line.split() for line in lines[2:]]
    return next((int(offset) for topic, number, offset in found if (topic, int(number)) == (TOPIC, partition)), None)


def left(expected: ExpectedState, end: int, isolation: Isolation) -> list[Row]:
    """What compaction up to `end` leaves: below it the last record of each key, tombstones too, of what was not aborted."""
    latest = {row.key: row.offset for row in expected.rows if row.offset < end and row.offset not in expected.aborted}
    readable = expected.readable(committed=isolation == "read_committed")
    return [row for row in readable if row.offset >= end or (latest[row.key] == row.offset and row.offset not in expected.aborted)]


@dataclass
class Seen:
    """What consumers got of each partition at some moment, and what they should have got."""

    found: dict[tuple[int, Isolation], list[Row]] = field(default_factory=dict)
    wanted: dict[tuple[int, Isolation], list[Row]] = field(default_factory=dict)


class Cleaners:
    """All of it for one version of the broker."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self.broker = broker_of(version, directory / "broker")
        self.expected = {number: ExpectedState() for number in EVERY}
        self.now = int(time.time() * 1000) - 3_600_000
        self.seconds: dict[str, float] = {}
        self.failure: Exception | None = None
        self.points: list[dict[int, int | None]] = []
        """Where compaction ended after each step."""
        self.passes: list[tuple[int, int, Compaction]] = []
        """Our passes: the step, the partition, what was done."""
        self.seen: list[Seen] = []
        self._random = random.Random(f"cleaners {version}")

    def live(self) -> None:
        """From beginning to end, or to the first step that fails."""
        steps: Sequence[Callable[[], None]] = (self.theirs_first, self.ours_next, self.theirs_again, self.ours_last)
        for step in steps:
            began = time.monotonic()
            try:
                step()
            except Exception as failure:  # noqa: BLE001  # whatever it is, a test raises it
                failure.add_note(f"Kafka {self.version}, step `{step.__name__}`")
                self.failure = failure
                return
            finally:
                self.seconds[step.__name__] = round(time.monotonic() - began, 1)
            self.points.append({number: point(self.broker.log_dir, number) for number in EVERY})

    def path(self, number: int) -> Path:
        """Where a partition lies."""
        return self.broker.log_dir / f"{TOPIC}-{number}"

    def _entries(self) -> list[Appended]:
        """Some records, all with keys, of which there are few; every fifth or so deletes its key."""
        chosen = self._random
        return [
            Appended(
                b"key-%d" % chosen.randrange(12),
                None if chosen.random() < 0.2 else chosen.randbytes(chosen.randrange(150)),
                self.now + chosen.randrange(STEP),
                (("trace", b"%d" % chosen.randrange(9)),) if chosen.random() < 0.2 else (),
            )
            for _ in range(chosen.randint(1, 9))
        ]

    def _produce(self, number: int, epoch: int, batches: int) -> None:
        with Wire(self.broker.address) as wire:
            for n in range(batches):
                self.now += STEP
                made = self._entries()
                # These requests are older than zstd.
                answer = wire.produce(TOPIC, number, encoded("kafka-python", 2, CODECS[n % 4], 0, made))
                wanted = self.expected[number].batch(made, epoch=epoch)
                assert (answer.error, answer.base_offset) == (0, wanted), (answer, wanted)

    def _wait_for_cleaner(self, number: int) -> None:
        """Until all closed segments are compacted."""
        end = time.monotonic() + CLEANING_SECONDS
        while time.monotonic() < end:
            active = max(int(path.stem) for path in self.path(number).glob("*.log"))
            if point(self.broker.log_dir, number) == active:
                return
            time.sleep(0.1)
        raise TimeoutError(f"{TOPIC}-{number} was not cleaned: {point(self.broker.log_dir, number)}; see {self.broker.output()}")

    def _look(self) -> None:
        seen = Seen()
        self.seen.append(seen)
        for isolation in ISOLATIONS:
            with Reader(self.broker.address, TOPIC, EVERY, isolation) as reader:
                found = reader.rows()
            for number in EVERY:
                seen.found[number, isolation] = found[number]
                seen.wanted[number, isolation] = left(self.expected[number], point(self.broker.log_dir, number) or 0, isolation)

    def theirs_first(self) -> None:
        """The broker makes the topic, and writes and cleans one partition."""
        self.broker.format()
        small = "internal.segment.bytes" if self.version >= "4" else "segment.bytes"
        with self.broker.running(), Admin(self.broker.address) as admin:
            admin.create(TOPIC, len(EVERY), {**SETTINGS, small: "8192", "index.interval.bytes": "512"})
            epoch = admin.leader_epochs(TOPIC)[THEIRS]
            with Reader(self.broker.address, TOPIC, EVERY, "read_uncommitted") as reader:
                # Tries again until the broker itself knows that it leads, which the metadata say before.
                assert set(reader.end_offsets().values()) == {0}
            self._produce(THEIRS, epoch, 80)
            self._wait_for_cleaner(THEIRS)

    def _compact(self, log: WritableLog, number: int) -> None:
        """What is due, which is one pass."""
        (done,) = log.maintain(only="compaction").compactions
        self.passes.append((len(self.points), number, done))

    def ours_next(self) -> None:
        """We write all partitions, and clean them."""
        for number in EVERY:
            expected = self.expected[number]
            epoch = expected.leader_epoch if expected.rows else 0
            with OffsetlogWrites(self.path(number), expected, epoch=epoch, highest_epoch=epoch, now=self.now, settings=GIVEN) as hand:
                if number == TRANSACTIONS:
                    self._transactions(hand)
                for n in range(80):
                    hand.now += STEP
                    hand.batch(self._entries(), codec=CODECS[n % 5])
                self._compact(hand.log, number)
                self.now = max(self.now, hand.now)

    def _transactions(self, hand: OffsetlogWrites) -> None:
        """Two producers by turns; every other transaction is aborted."""
        sequences, wrote = {7001: 0, 7002: 0}, dict[int, list[int]]()
        for n in range(60):
            hand.now += STEP
            identity = 7001 + n % 2
            made = self._entries()
            producer = (identity, 0, sequences[identity])
            wrote.setdefault(identity, []).extend(hand.batch(made, codec=CODECS[n % 5], producer=producer, transactional=True))
            sequences[identity] += len(made)
            if n % 6 >= 4:
                hand.end(identity, 0, commit=n % 4 < 2, timestamp=hand.now, wrote=wrote.pop(identity))

    def theirs_again(self) -> None:
        """The broker serves what we left, is given more, and cleans."""
        with self.broker.running(), Admin(self.broker.address) as admin:
            epochs = admin.leader_epochs(TOPIC)
            self._look()
            for number in EVERY:
                self._produce(number, epochs[number], 60)
            for number in EVERY:
                self._wait_for_cleaner(number)
            self._look()

    def ours_last(self) -> None:
        """We read what the broker left, roll, and clean once more."""
        seen = Seen()
        self.seen.append(seen)
        for number in EVERY:
            with Log.open(self.path(number), "a", config=GIVEN, clock=lambda: self.now) as log:
                for isolation in ISOLATIONS:
                    seen.found[number, isolation] = list(rows(log.scan(isolation_level=isolation)))
                    seen.wanted[number, isolation] = left(self.expected[number], self.points[-1][number] or 0, isolation)
                log.roll()
                self._compact(log, number)
            with Log.open(self.path(number)) as log:
                assert list(rows(log.scan())) == left(self.expected[number], self.expected[number].end, "read_uncommitted")

    def sections(self, number: int) -> list[tuple[int, int]]:
        """Begin and end of each pass of the broker's cleaner in its last run, as it said."""
        found = (SECTION.search(line) for line in self.broker.said_of(f"{TOPIC}-{number}"))
        return [(int(match[1]), int(match[2])) for match in found if match]
