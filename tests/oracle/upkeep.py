"""Random logs that are kept up by both sides: retention and compaction, each on its own copy of one directory.

A log is written by offsetlog (that both write the same is shown by the histories), closed, and copied; then both do the same upkeep at
the same time, and every file is compared. What comes next is written behind our output, so that each round cleans what the one
before left.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import log_files
from differences import STABLE_IN_BATCH, Uses
from interface import Batch, Clock, Marker, Opening, Refusal, Row
from kafka_log import KafkaLog, Oracle
from our_log import OurLog

NAME = "t-0"
START = 1_700_000_000_000
META = "version=1\ncluster.id=oracle\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
CLEANED = "cleaner-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CODECS = ("none", "none", "none", "none", "gzip", "snappy", "lz4", "zstd")
LEGACY_CODECS = ("none", "none", "gzip", "snappy", "lz4")
PRODUCERS = (5, 8, 4_294_967_301)
KEYS = ("a", "b", "c", "d", "e", "f", "", "a longer key, of forty bytes and something")


class Apart(AssertionError):  # noqa: N818  # a finding
    """The two sides differ."""


@dataclass
class Writer:
    """Writes a random log."""

    random: random.Random
    ours: OurLog
    oracle: Oracle
    clock: Clock
    keyless: bool
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open_transactions: set[int] = field(default_factory=set)
    value: int = 0

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def row(self) -> Row:
        self.value += 1
        key = None if self.keyless and self.chance(0.1) else self.random.choice(KEYS).encode()
        value = None if self.chance(0.2) else b"%d" % self.value + b"x" * self.random.choice((0, 1, 10, 40, 120))
        headers = (("h", b"1"), ("é", None)) if self.chance(0.1) else ()
        when = self.clock.now + self.random.randint(-30, 30)
        return Row(-1 if self.chance(0.05) else when, key, value, headers)

    def rows(self) -> tuple[Row, ...]:
        made = tuple(self.row() for _ in range(self.random.choice((1, 1, 2, 3, 5))))
        return tuple(row._replace(timestamp=-1) for row in made) if self.chance(0.05) else made

    def step(self) -> None:
        """One batch, marker or roll."""
        self.clock.set(self.clock.now + self.random.randint(0, 40))
        kind = self.random.random()
        if kind < 0.45:
            self.append(Batch(self.rows(), self.random.choice(CODECS)))
        elif kind < 0.7:
            self.produce()
        elif kind < 0.8 and self.open_transactions:
            self.end()
        elif kind < 0.86:
            self.follow(2)
        elif kind < 0.9:
            self.follow(self.random.choice((0, 1)))
        else:
            self.ours.roll()

    def append(self, batch: Batch) -> None:
        if self.chance(0.05):
            self.epoch += 1
        self.ours.append_rows(batch, "records", self.epoch)

    def produce(self) -> None:
        producer = self.random.choice(PRODUCERS)
        transactional = producer in self.open_transactions or self.chance(0.6)
        sequence = self.sequences.get(producer, 0)
        batch = Batch(self.rows(), self.random.choice(CODECS), producer, 0, sequence, transactional)
        self.append(batch)
        self.sequences[producer] = sequence + len(batch.rows)
        if transactional:
            self.open_transactions.add(producer)

    def end(self) -> None:
        producer = self.random.choice(sorted(self.open_transactions))
        self.open_transactions.discard(producer)
        self.ours.append_marker(Marker(producer, 0, self.chance(0.5), 0, self.clock.now), self.epoch)

    def follow(self, magic: int) -> None:
        """What a leader stored: with a gap before it, or of an older magic."""
        base = self.ours.ends().log_end_offset + self.random.choice((0, 0, 1, 7))
        codec = self.random.choice(CODECS if magic == 2 else LEGACY_CODECS)
        rows = self.rows() if magic == 2 else tuple(row._replace(headers=()) for row in self.rows())
        data = self.oracle.encode(Batch(rows, codec), magic=magic, baseOffset=base, batchLeaderEpoch=self.epoch)
        self.ours.append_as_follower(data, self.epoch)


class Upkeep:
    """One random log, and both sides keeping it up."""

    def __init__(self, seed: int, oracle: Oracle, folder: Path, uses: Uses) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.oracle = oracle
        self.uses = uses
        self.clock = Clock(START)
        shutil.rmtree(folder, ignore_errors=True)
        self.folders = (folder / "ours", folder / "kafka")
        for one in self.folders:
            one.mkdir(parents=True)
        self.in_log_dir = self.random.random() < 0.4
        if self.in_log_dir:
            (self.folders[0] / "meta.properties").write_text(META)
        self.ours = OurLog(self.folders[0] / NAME, self.clock)
        self.kafka = KafkaLog(oracle, self.folders[1] / NAME, "kafka")
        self.kafka.follow(self.clock)
        self.clock.set(START)
        self.settings = self.config()
        self.writer = Writer(self.random, self.ours, oracle, self.clock, keyless=self.random.random() < 0.2)
        self.rounds: list[str] = []

    def config(self) -> dict[str, str]:
        pick = self.random.choice
        config: dict[str, Any] = {
            "internal.segment.bytes": pick((300, 600, 600, 1000, 3000)),
            "index.interval.bytes": pick((0, 0, 100, 200, 4096)),
            "segment.index.bytes": pick((96, 4096, 65_536, 65_536, 65_536)),
            "delete.retention.ms": pick((0, 200, 1000, 1_000_000)),
            "cleanup.policy": "compact",
        }
        if self.random.random() < 0.25:
            config["message.timestamp.type"] = "LogAppendTime"
        return {name: str(value) for name, value in config.items()}

    def age(self) -> None:
        """Settings by which logs are kept up, of all policies."""
        pick = self.random.choice
        self.settings["cleanup.policy"] = pick(("delete", "delete", "delete", "compact", "compact,delete", ""))
        for name, share, values in (
            ("retention.ms", 0.7, (-1, 0, 50, 300, 2000)),
            ("retention.bytes", 0.5, (-1, 0, 100, 500, 1000, 3000)),
            ("min.cleanable.dirty.ratio", 0.5, (0.0, 0.1, 0.9)),
            ("min.compaction.lag.ms", 0.3, (1, 100, 1000)),
            ("max.compaction.lag.ms", 0.3, (1000, 5000)),
            ("file.delete.delay.ms", 0.3, (0, 1000)),
        ):
            if self.random.random() < share:
                self.settings[name] = str(pick(values))

    def write(self, steps: int) -> None:
        """Writes more behind what is there, and closes the log."""
        config = self.settings
        if self.writer.keyless:
            # Records without key come from before the topic was compacted.
            config = {**config, "cleanup.policy": "delete"}
        self.ours.open(Opening(config))
        for _ in range(steps):
            try:
                self.writer.step()
            except Refusal as refusal:
                if "OutOfOrderSequenceError" in refusal.names:
                    # Its batches are gone, and with them its last sequence.
                    self.writer.sequences.clear()
                elif "RecordBatchTooLargeError" not in refusal.names:
                    raise
        self.ours.close(clean=True)

    def open_both(self) -> None:
        """Gives Kafka a copy, and opens both."""
        ours, kafka = (one / NAME for one in self.folders)
        shutil.rmtree(kafka, ignore_errors=True)
        shutil.copytree(ours, kafka, ignore=shutil.ignore_patterns(".offsetlog*", "offsetlog-*", "*.deleted"))
        start = self.ours.open(Opening(self.settings)).log_start_offset
        self.kafka.open(Opening(self.settings, log_start_offset=start))

    def close_both(self) -> None:
        self.kafka.close(clean=False)
        self.ours.close(clean=True)

    def same(self, what: str, mine: object, theirs: object) -> None:
        if mine != theirs:
            message = f"{what}: {mine}; Kafka: {theirs}"
            raise Apart(message)

    def same_files(self) -> None:
        """Every byte of every file, and the time of every .log."""
        folders = [one / NAME for one in self.folders]
        mine, theirs = (log_files.stored(one) for one in folders)
        if unlike := log_files.unlike(mine, theirs, self.uses):
            raise Apart("\n    ".join(["files", *unlike]))
        times = [[path.stat().st_mtime_ns // 1_000_000 for path in sorted(one.glob("*.log"))[:-1]] for one in folders]
        self.same("times of closed segments", times[0], times[1])
        got, want = self.ours.ends(), self.kafka.ends()
        if want.last_stable_offset != want.log_start_offset == got.last_stable_offset:
            self.uses.count(STABLE_IN_BATCH)
            got = got._replace(last_stable_offset=want.last_stable_offset)
        self.same("ends", got[:4], want[:4])

    def compact(self) -> None:
        """One pass of both."""
        self.clock.set(self.clock.now + self.random.choice((0, 150, 300, 1500)))
        start, end = self.ours.ends().log_start_offset, self.ours.ends().log_end_offset
        first = self.random.choice((start, start, self.last_end(), self.random.randint(start, end)))
        # Kafka's cleaner takes any offset. One behind the last pass would leave offsets out, and is refused here.
        first = min(first, self.last_end())
        map_bytes = 24 * self.random.choice((2, 3, 4, 6, 12, 100, 1000))
        self.rounds.append(f"compact {first} {map_bytes} at {self.clock.now - START}")
        got = self.ours.log.compact(first, map_bytes)
        want = self.kafka.ask("compact", firstDirty=first, mapBytes=map_bytes)
        self.end = got.end_offset
        self.same("end of the pass", got.end_offset, want["end"])
        if got.segments_before:
            self.same("first uncleanable offset", got.first_uncleanable_offset, want["firstUncleanable"])
            self.same("dirty ratio", got.dirty_ratio, want["ratio"])
        self.same_files()

    def last_end(self) -> int:
        ends = self.ours.ends()
        return min(max(getattr(self, "end", 0), ends.log_start_offset), ends.log_end_offset)

    def maintain(self) -> None:
        """What is due, on both."""
        if self.random.random() < 0.3:
            offset = self.random.randint(self.ours.ends().log_start_offset, self.ours.ends().log_end_offset)
            self.ours.delete_records_before(offset)
            self.kafka.delete_records_before(offset)
        self.clock.set(self.clock.now + self.random.choice((0, 10, 100, 500, 2000)))
        self.rounds.append(f"maintain at {self.clock.now - START} {self.settings}")
        planned = self.ours.log.maintain(dry_run=True)
        got = self.ours.log.maintain()
        want = self.kafka.ask("maintain", mapBytes=134_217_728 if self.random.random() < 0.02 else 24 * 5000)
        passes = [[one.first_dirty_offset, one.end_offset, one.first_uncleanable_offset, one.dirty_ratio] for one in got.compactions]
        self.same("passes", passes, want["passes"])
        self.same("segments removed", len(got.removed), want["deleted"])
        self.same("plan", planned, got._replace(dry_run=True))
        self.same_files()
        if self.in_log_dir:
            mine, theirs = (text(one / CLEANED) for one in self.folders)
            self.same(CLEANED, mine or theirs, theirs)


def text(path: Path) -> str:
    """A file, empty where there is none."""
    return path.read_text() if path.exists() else ""
