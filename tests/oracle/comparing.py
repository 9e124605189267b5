"""Holds two sides against each other: answers, refusals, named offsets, files, look-ups. Knows every difference that may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import log_files
from differences import (
    ABORTED_WITHIN,
    EPOCH_AT_END,
    EPOCH_OF_REFUSED,
    KAFKA_FAILS,
    LARGEST_TIMESTAMP,
    OVERLAPPING,
    STABLE_IN_BATCH,
    STALE_LSO,
    TIME_LOOK_UP,
    UNTRUE_RECORDS,
    WHICH_REASON,
    WHOLE_BATCHES,
    Uses,
)
from histories import History
from interface import Clock, Ends, Fetched, Refusal, Side, Timed
from kafka_log import KafkaError, KafkaLog, Oracle

T = TypeVar("T")
EPOCHS = "leader-epoch-checkpoint"
NO_EPOCHS = b"0\n0\n"
META = "version=1\ncluster.id=oracle\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
CLEAN_MARKER = ".kafka_cleanshutdown"
CLEAN = '{"version":0,"brokerEpoch":-1}'
NAME = "t-0"
START = 1_700_000_000_000
# A batch that contradicts itself may also stand where no batch may, or be of a producer that may not send it.
SELF_CONTRADICTION = frozenset({"RecordRejectedError", "InvalidRecordError", "OffsetOrderError", "CorruptBatchError"})
MISPLACED = frozenset(
    {
        "UnexpectedAppendOffsetError",
        "OffsetsOutOfOrderError",
        "RecordRejectedError",
        "RecordBatchTooLargeError",
        "InvalidTimestampError",
        "OutOfOrderSequenceError",
        "ProducerFencedError",
        "InvalidTxnStateError",
        "TransactionCoordinatorFencedError",
    }
)


class Mismatch(AssertionError):  # noqa: N818  # a finding
    """The two sides differ where nothing allows it."""


class EndedEarly(Exception):  # noqa: N818  # no error
    """The history cannot go on, for a reason that is no finding."""


@dataclass
class Arena:
    """Where histories are run: a program, a folder, and a maker of the side that is compared with Kafka."""

    oracle: Oracle
    folder: Path
    make: Callable[[Path, Clock], Side]
    uses: Uses = field(default_factory=Uses)
    # What was done and met: verbs, refusals by Kafka's class, histories, steps.
    seen: Counter[str] = field(default_factory=Counter)


def outcome(ask: Callable[[], T]) -> T | Refusal:
    """The answer or the refusal."""
    try:
        return ask()
    except Refusal as refusal:
        return refusal


class Comparison:
    """Two logs, and what has happened to them as far as it decides what may differ."""

    def __init__(self, history: History, arena: Arena) -> None:
        self.history = history
        self.uses = arena.uses
        self.seen = arena.seen
        self.oracle = arena.oracle
        self.clock = Clock(START)
        folders = (arena.folder / "subject", arena.folder / "kafka")
        for folder in folders:
            (folder / NAME).mkdir(parents=True)
            if history.turns:
                (folder / "meta.properties").write_text(META)
                (folder / CLEAN_MARKER).write_text(CLEAN)
        self.kafka = KafkaLog(arena.oracle, folders[1] / NAME, "kafka")
        self.kafka.follow(self.clock)
        # In turns, this one and Kafka take the same directory after each other.
        self.sides: list[Side] = [arena.make(folders[0] / NAME, self.clock)]
        if history.turns:
            self.sides.append(KafkaLog(arena.oracle, folders[0] / NAME, "turn"))
        self.side = self.sides[0]
        self.config = dict(history.config)
        self.number = 0
        self.ends = Ends(0, 0, 0, 0, 0)
        self.sequences: dict[int, int] = {}
        self.sent: list[tuple[bytes, str]] = []
        self.highest_epoch = 0
        # Base offset of the segment that was active when its counter started again.
        self.restarted = -1
        # Base offset of the segment that was active when the log was truncated last, and of all that ever were.
        self.cut_base = -1
        self.cut_bases: set[int] = set()
        # Whether the append has several batches, or is of records rather than of bytes.
        self.many = False
        self.rows_form = False
        # Whether the log dir said that it was clean when our side opened the log.
        self.marked = history.turns
        # Whether one of ours was killed when it last had the log, and whether a broker has had it since.
        self.killed = False
        self.after_broker = False
        # Whether anything was changed since the last clean end.
        self.changed = True
        # Whether the settings were changed since the log was opened.
        self.reconfigured = False
        # Whether time leapt since the last append.
        self.leapt = False
        # What is appended, if it was spoilt.
        self.hostile = b""
        # Whether followers stored what may be no records at all.
        self.spoilt = False
        self.refused_epoch = False
        self.epochs_apart = False
        self.truncated = False

    # Comparing

    def both(self, call: Callable[[Side], T], *, same: Callable[[T, T], bool] | None = None) -> T | None:
        """One call on both sides; its answer, or `None` if both refuse alike."""
        return self.compare(outcome(lambda: call(self.side)), outcome(lambda: call(self.kafka)), same)

    def compare(self, got: T | Refusal, want: T | Refusal, same: Callable[[T, T], bool] | None = None) -> T | None:
        """Holds two outcomes against each other."""
        self.kafka_fails(got, want)
        if isinstance(want, KafkaError):
            self.seen[f"refused: {want.kind}"] += 1
        if isinstance(got, Refusal) and isinstance(want, Refusal):
            late = bool(got.names & {"InvalidTimestampError", "RecordRejectedError", "InvalidRecordError"})
            overlap = self.many and "OffsetsOutOfOrderError" in got.names
            untrue = bool(self.hostile) and bool(got.names & SELF_CONTRADICTION) and bool(want.names & MISPLACED)
            if overlap or untrue or (late and self.rows_form and ("RecordTooLargeError" in want.names or "without key" in want.text)):
                self.uses.count(WHICH_REASON)
            elif not got.agrees(want):
                message = f"refused as {got.text}; Kafka: {want.text}"
                raise Mismatch(message)
            return None
        if isinstance(got, Refusal):
            message = f"refused as {got.text}; Kafka: {want}"
            raise Mismatch(message)
        if isinstance(want, Refusal):
            message = f"accepted with {got}; Kafka: {want.text}"
            raise Mismatch(message)
        if not (same(got, want) if same else got == want):
            message = f"{got}; Kafka: {want}"
            raise Mismatch(message)
        return want

    def kafka_fails(self, got: object, want: object) -> None:
        """Ends the history where one of the sides does what the other cannot follow."""
        if isinstance(want, KafkaError) and isinstance(got, Refusal) and want.kind == "InvalidOffsetException":
            # The index refuses what the log took already.
            self.uses.count(KAFKA_FAILS)
            raise EndedEarly
        if isinstance(want, KafkaError) and not isinstance(got, Refusal):
            if want.kind == "UnsupportedOperationException" or "Trying to roll a new log segment" in want.text:
                self.uses.count(KAFKA_FAILS)
                raise EndedEarly
        elif isinstance(got, Refusal) and not isinstance(want, Refusal) and "OffsetsOutOfOrderError" in got.names and self.many:
            self.uses.count(OVERLAPPING)
            raise EndedEarly
        elif isinstance(got, Refusal) and not isinstance(want, Refusal) and self.hostile and not self.oracle.reads_whole(self.hostile):
            self.uses.count(UNTRUE_RECORDS)
            raise EndedEarly

    def same_ends(self) -> None:
        """The named offsets, and names and sizes of the files."""
        self.same_offsets(self.side.ends(), self.kafka.ends())
        mine, theirs = log_files.sizes(self.side.directory), log_files.sizes(self.kafka.directory)
        for base in self.cut_bases:
            # Looked at when the bytes are compared.
            mine.pop(f"{base:020}.timeindex", None)
            theirs.pop(f"{base:020}.timeindex", None)
        if self.epochs_apart or self.refused_epoch or (mine.get(EPOCHS) != theirs.get(EPOCHS) and self.epoch_at_end()):
            mine.pop(EPOCHS, None)
            theirs.pop(EPOCHS, None)
        unlike = log_files.unlike_sizes(mine, theirs, self.uses, exact=self.history.exact)
        self.expect_none(unlike, "files")

    def same_offsets(self, got: Ends, want: Ends) -> None:
        """The named offsets."""
        self.ends = want
        if self.truncated and got.last_stable_offset != want.last_stable_offset:
            self.uses.count(STALE_LSO)
            got = got._replace(last_stable_offset=want.last_stable_offset)
        if want.last_stable_offset != want.log_start_offset == got.last_stable_offset:
            self.uses.count(STABLE_IN_BATCH)
            got = got._replace(last_stable_offset=want.last_stable_offset)
        if got != want:
            message = f"{got}; Kafka: {want}"
            raise Mismatch(message)

    def same_files(self, when: str, *, closed: bool = False) -> None:
        """Every byte of every file that counts."""
        mine, theirs = log_files.stored(self.side.directory), log_files.stored(self.kafka.directory)
        if mine.get(EPOCHS) == b"" and theirs.get(EPOCHS) == NO_EPOCHS:
            # An epoch was written for an append that was refused, and went with a truncation.
            mine[EPOCHS] = NO_EPOCHS
        if mine.get(EPOCHS) != theirs.get(EPOCHS) and (self.epochs_apart or self.refused_epoch):
            left, right = (self.told_epochs(files.pop(EPOCHS, b"")) for files in (mine, theirs))
            if not self.epochs_apart and left != right:
                message = f"{when}: {EPOCHS}: {left}, Kafka: {right}"
                raise Mismatch(message)
            self.uses.count(EPOCH_OF_REFUSED)
        if mine.get(EPOCHS) != theirs.get(EPOCHS) and self.epoch_at_end():
            mine.pop(EPOCHS, None)
            theirs.pop(EPOCHS, None)
        for base in self.cut_bases:
            name, log = f"{base:020}.timeindex", f"{base:020}.log"
            if mine.get(name) != theirs.get(name) and log_files.true_times(base, mine.get(name, b""), mine.get(log, b"")):
                self.uses.count(LARGEST_TIMESTAMP)
                mine.pop(name, None)
                theirs.pop(name, None)
        for name in mine.keys() & theirs.keys():
            if name.endswith(".txnindex") and log_files.begin_earlier(mine[name], theirs[name], self.ends.log_start_offset):
                self.uses.count(ABORTED_WITHIN)
                mine[name] = theirs[name]
        truncated = -1 if closed else self.cut_base
        alike = all(data == theirs.get(name) for name, data in mine.items() if name.endswith(".log"))
        unlike = log_files.unlike(mine, theirs, self.uses, ordinals=not self.history.exact and not alike, truncated=truncated)
        self.expect_none(unlike, when)
        if not self.history.exact:
            self.seen["recompressed: the same bytes" if alike else "recompressed: other bytes"] += 1
        if not self.history.exact and not alike:
            self.expect_none(log_files.same_batches(self.side.directory, self.kafka.directory, self.oracle.decode), when)

    def told_epochs(self, text: bytes) -> list[tuple[int, int]]:
        """The epochs that describe something stored."""
        lines = text.decode().splitlines()[2:]
        pairs = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
        return [(epoch, start) for epoch, start in pairs if start < self.ends.log_end_offset]

    @staticmethod
    def expect_none(found: Iterable[str], when: str) -> None:
        """Raises what was found."""
        every = list(found)
        if every:
            message = "\n    ".join([when, *every])
            raise Mismatch(message)

    def epoch_files_differ(self) -> bool:
        """Whether the epoch files say different things."""
        mine, theirs = ((side.directory / EPOCHS).read_bytes() or NO_EPOCHS for side in (self.side, self.kafka))
        return mine != theirs

    def epoch_at_end(self) -> bool:
        """Whether the epoch files of a log without records differ in one line, of an epoch that begins at its end."""
        (few, many) = sorted(((side.directory / EPOCHS).read_bytes() or NO_EPOCHS for side in (self.side, self.kafka)), key=len)
        lines = many.decode().splitlines()[2:]
        empty = self.ends.log_start_offset == self.ends.log_end_offset
        if not empty or few != NO_EPOCHS or [line.split()[1] for line in lines] != [str(self.ends.log_end_offset)]:
            return False
        self.uses.count(EPOCH_AT_END)
        return True

    def without_indexes(self) -> dict[str, int]:
        """Names and sizes of our files but for the indexes, which an append may stretch before it is refused."""
        return {name: size for name, size in log_files.sizes(self.side.directory).items() if not name.endswith("index")}

    def fetch(self, offset: int, size: int, *, committed: bool) -> None:
        """One fetch. Where Kafka's ends in the middle of a batch, ours ends before it."""

        def same(got: Fetched, want: Fetched) -> bool:
            if got.records != want.records:
                want = want._replace(records=log_files.whole(want.records))
                self.uses.count(WHOLE_BATCHES)
            if got.aborted != want.aborted:
                last = max((header.last_offset for header in log_files.headers(want.records)), default=-1)
                # One that began below the log start offset hides the same records as one that begins there, or at the first of them: a
                # broker that was killed has forgotten what began below.
                start = want.log_start_offset
                below = {who for who, first in got.aborted if first < start and self.first_hidden(who, start) > last}
                mine, theirs = (
                    {(who, self.first_hidden(who, max(first, start))) for who, first in side.aborted} for side in (got, want)
                )
                mine = {one for one in mine if one[1] <= last or one[0] not in below}
                reaching = {entry for entry in theirs if entry[1] <= last}
                got = got._replace(aborted=tuple(sorted(one for one in mine if one in reaching or one[1] > start)))
                want = want._replace(aborted=tuple(sorted(reaching)))
                self.uses.count(ABORTED_WITHIN)
            if got.last_stable_offset == got.log_start_offset:
                want = want._replace(last_stable_offset=want.log_start_offset)
            return got == want

        self.both(lambda side: side.fetch(offset, size, committed=committed), same=same)

    def first_hidden(self, producer_id: int, offset: int) -> int:
        """Offset of the first record of a producer's transactions from an offset on, or that offset where there is none."""
        every = (batch for path in self.kafka.directory.glob("*.log") for batch in log_files.headers(path.read_bytes()))
        transactional, control = 0x10, 0x20
        firsts = [
            max(batch.base_offset, offset)
            for batch in every
            if batch.producer_id == producer_id
            and batch.last_offset >= offset
            and batch.attributes & (transactional | control) == transactional
        ]
        return min(firsts, default=offset)

    # Look-ups

    def look_ups(self) -> None:
        """Fetches, times and epochs."""
        start, end = self.ends.log_start_offset, self.ends.log_end_offset
        span = max(1, (end - start) // 6)
        if self.history.exact:
            for number, offset in enumerate([*range(start, end, span), end, end + 1]):
                size = (1, 200, 1000, 1 << 20)[number % 4]
                for committed in (False, True):
                    self.fetch(offset, size, committed=committed)
        if not self.epochs_apart and not self.refused_epoch and not self.epoch_at_end():
            self.both(lambda side: side.ends_of_epochs([-1, *range(self.highest_epoch + 3)]))
        self.times()

    def times(self) -> None:
        """Look-ups by time: around the records' own, and far away."""
        batches = [
            batch for path in sorted(self.kafka.directory.glob("*.log")) for batch in self.oracle.decode(path) if "end" not in batch
        ]
        if self.spoilt:
            return
        self.both(lambda side: side.records())
        stored = sorted({record["ts"] for batch in batches for record in batch["records"]})
        asked = sorted({0, self.clock.now, *(max(0, time + by) for time in stored[:: max(1, len(stored) // 5)] for by in (-1, 0, 1))})
        got, want = self.side.offsets_for_times(asked), self.kafka.offsets_for_times(asked)
        for time, mine, theirs in zip(asked, got, want, strict=True):
            if mine == theirs:
                continue
            if mine == first_at(batches, time, self.ends.log_start_offset):
                self.uses.count(TIME_LOOK_UP)
                continue
            message = f"time {time}: {mine}; Kafka: {theirs}"
            raise Mismatch(message)


def first_at(batches: list[dict[str, Any]], time: int, start: int) -> Timed | None:
    """The first record, in file order, with at least this time."""
    for batch in batches:
        for record in batch["records"]:
            if batch["maxTs"] >= time and record["ts"] >= time and record["offset"] >= start:
                epoch = batch["leaderEpoch"]
                return Timed(record["offset"], record["ts"], None if epoch < 0 else epoch)
    return None
