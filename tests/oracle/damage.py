"""Damage done to a directory that Kafka wrote, what each side makes of it, and when ours may differ.

A side opens the damaged directory for writing and closes it cleanly; then Kafka opens what is left and says what it sees. So
both outcomes are told by the same observer, and whatever we leave behind is a directory that Kafka opens.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import log_files
from interface import Batch, Clock, Marker, Opening, Refusal, Row, Side
from kafka_log import KafkaLog, Oracle
from log_files import Header, headers
from our_log import OurLog

NAME = "d-0"
TIME = 1_700_000_000_000
META = "version=1\ncluster.id=oracle\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
CLEAN_MARKER = ".kafka_cleanshutdown"
CONFIG = {"internal.segment.bytes": "100000", "index.interval.bytes": "200", "segment.index.bytes": "1000"}
# Begins the refusal of an observer.
THEN = "then Kafka: "
Damage = Callable[[Path], None]


@dataclass(frozen=True)
class Mode:
    """How the last run ended, by what it left in the log dir."""

    name: str
    clean: bool
    at_end: bool

    def opening(self) -> Opening:
        """Everything else is found in the log dir."""
        return Opening(CONFIG, self.clean, checkpoints=True)


U0 = Mode("U0", clean=False, at_end=False)
U = Mode("U", clean=False, at_end=True)
C = Mode("C", clean=True, at_end=True)
MODES = (U0, U, C)


@dataclass(frozen=True)
class Stored:
    """One batch as an observer finds it: where it says it stands, and whether its bytes are the original ones."""

    base_offset: int
    last_offset: int
    data: bytes

    def __repr__(self) -> str:
        return f"{self.base_offset}-{self.last_offset}"


@dataclass(frozen=True)
class Outcome:
    """What became of a directory."""

    refused: str | None
    end: int = -1
    start: int = -1
    bases: tuple[int, ...] = ()
    batches: tuple[Stored, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    producers: tuple[tuple[int, ...], ...] = ()
    aborted: tuple[tuple[int, ...], ...] = ()
    indexes: tuple[Any, ...] = ()
    # Batches that lay in a segment before, and lie nowhere in the directory afterwards.
    vanished: tuple[Stored, ...] = field(default=(), compare=False)

    def told(self) -> str:
        """Short, for a table."""
        if self.refused is not None:
            return f"refused ({self.refused})"
        return f"LEO {self.end}" + (f" start {self.start}" if self.start else "")


class Ground:
    """A log dir with one partition that Kafka wrote, copied for every try."""

    def __init__(self, oracle: Oracle, folder: Path, make: Callable[[KafkaLog], None]) -> None:
        self.oracle = oracle
        self.folder = folder
        self.clock = Clock(TIME)
        shutil.rmtree(folder, ignore_errors=True)
        self.original = folder / "original" / NAME
        self.original.mkdir(parents=True)
        oracle.ask("time", set=TIME)
        log = KafkaLog(oracle, self.original, "make")
        log.open(Opening(CONFIG, clean=False, recovery_point=0))
        make(log)
        log.close(clean=True)
        self.end = log.open(Opening(CONFIG, clean=True, recovery_point=0)).log_end_offset
        log.close(clean=True)
        self.files = log_files.stored(self.original)
        self.batches = tuple(batch for name, data in sorted(self.files.items()) if name.endswith(".log") for batch in stored(data))

    def damaged(self, who: str, mode: Mode, damage: Damage) -> Path:
        """A copy with the damage done, in a log dir that says how the last run ended."""
        log_dir = self.folder / who
        shutil.rmtree(log_dir, ignore_errors=True)
        directory = log_dir / NAME
        directory.mkdir(parents=True)
        for name, data in self.files.items():
            (directory / name).write_bytes(data)
        (log_dir / "meta.properties").write_text(META)
        topic, partition = NAME.rsplit("-", 1)
        point = self.end if mode.at_end else 0
        (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{topic} {partition} {point}\n")
        if mode.clean:
            (log_dir / CLEAN_MARKER).write_text('{"version":0,"brokerEpoch":-1}')
        damage(directory)
        return directory

    def outcome(self, side: Side, mode: Mode) -> Outcome:
        """What a side makes of its directory, told by Kafka."""
        try:
            side.open(mode.opening())
        except Refusal as refusal:
            return Outcome(refusal.text.split(":", 1)[0])
        side.close(clean=True)
        try:
            return self.observed(side.directory)
        except Refusal as refusal:
            return Outcome(f"{THEN}{refusal.text.split(':', 1)[0]}")

    def observed(self, directory: Path) -> Outcome:
        """What Kafka sees in a directory that was closed cleanly."""
        log = KafkaLog(self.oracle, directory, "observe")
        log.open(Opening(CONFIG, clean=True, checkpoints=True))
        state: Any = log.ask("state")
        indexes: Any = log.ask("index")
        batches: list[Stored] = []
        at = state["start"]
        try:
            while at < state["leo"]:
                data = base64.b64decode(log.ask("read", offset=at)["data"])
                found = stored(data)
                if not found:
                    break
                batches.extend(found)
                at = found[-1].last_offset + 1
        except Refusal:
            pass
        log.close(clean=False)
        producers = tuple(
            (entry["pid"], entry["epoch"], entry["batches"][-1][1] if entry["batches"] else -1, entry["txnFirst"])
            for entry in state["producers"]
        )
        return Outcome(
            None,
            state["leo"],
            state["start"],
            tuple(segment["base"] for segment in state["segmentList"]),
            tuple(batches),
            tuple((epoch, start) for epoch, start in state["epochs"]),
            producers,
            tuple(tuple(entry) for segment in indexes for entry in segment["txn"]),
            tuple((segment["base"], tuple(map(tuple, segment["offset"])), tuple(map(tuple, segment["time"]))) for segment in indexes),
        )

    def both(self, mode: Mode, damage: Damage) -> tuple[Outcome, Outcome]:
        """What we make of a damage, and what Kafka makes of it."""
        ours = OurLog(self.damaged("ours", mode, damage), self.clock)
        kafkas = KafkaLog(self.oracle, self.damaged("kafka", mode, damage), "damaged")
        before = self._lying(ours.directory, "*.log")
        outcome = self.outcome(ours, mode)
        vanished = tuple(batch for batch in before if batch not in self._lying(ours.directory, "**/*"))
        return replace(outcome, vanished=vanished), self.outcome(kafkas, mode)

    def _lying(self, directory: Path, pattern: str) -> list[Stored]:
        """The original batches that lie in these files."""
        content = b"\n".join(path.read_bytes() for path in directory.glob(pattern) if path.is_file())
        return [batch for batch in self.batches if batch.data in content]

    def loses(self, outcome: Outcome) -> list[Stored]:
        """Original batches that are not there any more."""
        there = {batch.data for batch in outcome.batches}
        # What lies below the log start offset was given up; a start behind the end gives up everything, and may be wrong.
        start = outcome.start if outcome.start <= self.end else 0
        return [batch for batch in self.batches if batch.data not in there and batch.base_offset >= start]

    def wrong(self, outcome: Outcome) -> list[Stored]:
        """Batches that are there and are not original."""
        original = {batch.data for batch in self.batches}
        return [batch for batch in outcome.batches if batch.data not in original]

    def unsafe(self, ours: Outcome, kafkas: Outcome) -> str | None:
        """Why ours is no better than Kafka's outcome; `None` if it is the same or safer. Sound batches never vanish."""
        if ours.vanished and kafkas.start <= self.end:
            return f"{ours.vanished} vanished; Kafka: {kafkas.told()}"
        if ours.refused is not None and ours != kafkas:
            bad = self.loses(kafkas) or self.wrong(kafkas)
            if kafkas.refused is not None or (bad and not ours.refused.startswith(THEN)):
                return None
            return f"{ours.told()} where Kafka opens"
        known = [] if kafkas.refused is not None else self.wrong(kafkas)
        if extra := [batch for batch in self.wrong(ours) if batch not in known]:
            return f"serves {extra}, which nobody wrote"
        if kafkas.refused is not None or known or ours == kafkas:
            return None
        return self._less(ours, kafkas)

    def _less(self, ours: Outcome, kafkas: Outcome) -> str | None:
        """What of Kafka's sound outcome is not in ours."""
        before = self.loses(kafkas)
        if lost := [batch for batch in self.loses(ours) if batch not in before]:
            return f"loses {lost}, which Kafka keeps"
        for what in ("aborted", "producers", "epochs"):
            mine, theirs = getattr(ours, what), getattr(kafkas, what)
            if not set(mine) >= set(theirs):
                return f"{what} {mine}, Kafka: {theirs}"
        return None


def stored(data: bytes) -> list[Stored]:
    """The batches of a file."""

    def one(header: Header) -> Stored:
        return Stored(header.base_offset, header.last_offset, data[header.position : header.position + header.size])

    return [one(header) for header in headers(data)]


# What Kafka writes before anything is damaged


def six_batches(log: KafkaLog) -> None:
    """Six equal batches of three records; an index entry at every second one."""
    for number in range(6):
        made = tuple(Row(TIME + number * 100 + n, b"key-%d" % n, b"value-%02d-%d" % (number, n)) for n in range(3))
        log.append_rows(Batch(made), "records", 1)


def _rows(count: int, at: int) -> tuple[Row, ...]:
    return tuple(Row(TIME + at * 100 + n, b"key-%d" % (n % 3), b"value %d of %d" % (n, at)) for n in range(count))


def four_segments(log: KafkaLog) -> None:
    """Segments at 0, 9, 17, 26 and the end at 29; epochs 1, 2 from 12, 3 from 26; producers 5 and 8; an aborted transaction."""
    for number in range(3):
        log.append_rows(Batch(_rows(3, number), producer_id=5, producer_epoch=0, base_sequence=number * 3), "records", 1)
    log.roll()
    log.append_rows(Batch(_rows(3, 3)), "records", 1)
    transaction = Batch(_rows(3, 4), producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_rows(transaction, "records", 2)
    log.append_rows(Batch(_rows(1, 5)), "records", 2)
    log.append_marker(Marker(8, 0, commit=False, coordinator_epoch=0, timestamp=TIME + 600), 2)
    log.roll()
    for number in range(3):
        sequence = 9 + number * 3
        log.append_rows(Batch(_rows(3, 7 + number), producer_id=5, producer_epoch=0, base_sequence=sequence), "records", 2)
    log.roll()
    log.append_rows(Batch(_rows(1, 10)), "records", 3)
    log.append_rows(Batch(_rows(1, 11)), "records", 3)
    log.append_rows(Batch(_rows(1, 12)), "records", 3)
