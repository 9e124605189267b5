"""Runs one history on both sides and compares after each step: what was answered or refused, the offsets, the files."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import log_files
from comparing import CLEAN, CLEAN_MARKER, EPOCHS, NAME, START, Arena, Comparison, EndedEarly, Mismatch, outcome
from differences import (
    BEHIND_A_HOLE,
    EARLY_ROLL,
    EMPTY_ROLL,
    EPOCH_OF_REFUSED,
    EPOCHS_FOUND,
    GAP_OF_ANOTHER,
    KAFKA_FAILS,
    OVERLAPPING,
    ROLL_OF_REFUSED,
    START_ABOVE_END,
    UNRECOVERABLE,
    UNTOUCHED,
    UNTRUE_RECORDS,
)
from histories import SMALL_INDEX, History, Step, rows
from hostile import mutated
from interface import Batch, Ends, Info, Marker, Opening, Refusal, Side
from kafka_log import KafkaError, KafkaLog

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
# As often Kafka looks for producers to forget.
LEAP = 600_000
# Loads that fail on what Kafka itself has written.
CANNOT_LOAD = ("full time index", "full index", "InvalidTxnStateException")
# Version and count, of a checkpoint without entries.
NO_LINES = 2
# Kept for steps that send a batch again.
SENT = 12


def play(history: History, arena: Arena) -> Mismatch | None:
    """Runs a history; the finding, if there is one."""
    shutil.rmtree(arena.folder, ignore_errors=True)
    run = Run(history, arena)
    arena.seen["histories in turns" if history.turns else "histories"] += 1
    try:
        run.all()
    except EndedEarly:
        arena.seen["histories ended early"] += 1
        return None
    except Mismatch as mismatch:
        return mismatch
    finally:
        run.abandon()
        arena.seen["steps"] += run.number
    return None


class Run(Comparison):
    """One run of one history."""

    # The whole

    def all(self) -> None:
        """Every step, the end, the look-ups."""
        self.clock.set(START)
        self.open(Opening(self.config, clean=False, recovery_point=0, checkpoints=self.history.turns))
        for step in self.history.steps:
            self.do(step)
            self.number += 1
        self.finish()

    def do(self, step: Step) -> None:
        """One step."""
        handler = getattr(self, f"step_{step.verb}")
        self.seen[f"step: {step.verb}"] += 1
        try:
            handler(step.fields)
        except EndedEarly:
            raise
        except Exception as error:
            told = str(error) if isinstance(error, Mismatch) else f"{type(error).__name__}: {error}"
            message = f"step {self.number} ({step}) by {self.side.name}: {told}"
            raise Mismatch(message) from error

    def finish(self) -> None:
        """The files while the logs are open, after they were closed, and after they were opened again; then the look-ups."""
        try:
            self.same_files("at the end")
            clean = self.history.seed % 3 > 0
            self.reopen(clean=clean, point="live", side=self.history.seed // 3 % 2)
            self.same_files("after the last opening")
            self.look_ups()
        except EndedEarly:
            raise
        except Exception as error:
            told = str(error) if isinstance(error, Mismatch) else f"{type(error).__name__}: {error}"
            message = f"after the last step, by {self.side.name}: {told}"
            raise Mismatch(message) from error

    def abandon(self) -> None:
        """Closes what is open, without a word."""
        for side in (*self.sides, self.kafka):
            # Whatever fails here was told before, or does not matter any more.
            with contextlib.suppress(Exception):
                side.close(clean=False)

    # Opening and closing

    def open(self, opening: Opening) -> None:
        """Both sides, each from its own directory."""
        got, want = outcome(lambda: self.side.open(opening)), outcome(lambda: self.kafka.open(opening))
        if isinstance(want, Refusal) and not isinstance(got, Refusal) and any(text in want.text for text in CANNOT_LOAD):
            self.uses.count(UNRECOVERABLE)
            raise EndedEarly
        is_above = isinstance(got, Refusal) and "is above the log end offset" in got.text
        is_emptied = isinstance(want, Ends) and want.log_start_offset == want.log_end_offset
        if is_above and is_emptied and not opening.clean and (opening.recovery_point or 0) < self.ends.log_start_offset:
            # Records below the start are there, and nothing says that the log ever reached it.
            self.uses.count(START_ABOVE_END)
            raise EndedEarly
        if self.compare(got, want, lambda _one, _other: True) is None:
            raise EndedEarly
        if (
            isinstance(got, Ends)
            and isinstance(want, Ends)
            and not opening.clean
            and (self.is_empty_behind(got.log_end_offset) or self.is_emptied_below(got))
        ):
            self.uses.count(BEHIND_A_HOLE)
            raise EndedEarly
        if (
            isinstance(got, Ends)
            and not opening.clean
            and self.killed
            and self.after_broker
            and self.is_cut_at_gap(got.log_end_offset)
        ):
            self.uses.count(GAP_OF_ANOTHER)
            raise EndedEarly
        if self.history.turns and not opening.clean and not self.changed and self.number:
            self.uses.count(UNTOUCHED)
            raise EndedEarly
        mine, theirs = ((side.directory / EPOCHS).read_bytes() for side in (self.side, self.kafka))
        if mine != theirs and log_files.more_epochs(mine, theirs) and log_files.true_epochs(self.side.directory, mine):
            # The last one went with a truncation, and the ones before with an older leader's append.
            self.uses.count(EPOCHS_FOUND)
            self.epochs_apart = True
        self.same_ends()

    def is_empty_behind(self, offset: int) -> bool:
        """Whether our log ends before Kafka's, whose segments from there on hold nothing."""
        later = [base for base in log_files.bases(self.kafka.directory) if base > offset]
        missing = [base for base in later if base not in log_files.bases(self.side.directory)]
        files = [self.kafka.directory / f"{base:020}.log" for base in later]
        return bool(missing) and not any(any(log_files.headers(file.read_bytes())) for file in files)

    def is_emptied_below(self, ends: Ends) -> bool:
        """Whether our log has nothing but an empty segment at its start, and Kafka's has older ones below that one."""
        mine, theirs = (log_files.bases(side.directory) for side in (self.side, self.kafka))
        start = ends.log_start_offset
        is_empty = start == ends.log_end_offset and mine == [start] == theirs[-1:]
        return is_empty and len(theirs) > 1 and not (self.kafka.directory / f"{start:020}.log").stat().st_size

    def is_cut_at_gap(self, offset: int) -> bool:
        """Whether our log ends at a gap between Kafka's segments, and all that stands behind is in the folder for what is cut."""
        later = [base for base in log_files.bases(self.kafka.directory) if base > offset]
        kept = {path.name for path in (self.side.directory / "offsetlog-cut").glob("*")}
        within = any(
            batch.base_offset <= offset <= batch.last_offset
            for path in self.kafka.directory.glob("*.log")
            for batch in log_files.headers(path.read_bytes())
        )
        return bool(later) and not within and all(any(name.startswith(f"{base:020}.log") for name in kept) for base in later)

    def reopen(self, *, clean: bool, point: str, side: int = 0, config: dict[str, str] | None = None) -> None:
        """Closes both and opens them again, the next side in turn."""
        before = self.kafka.ends()
        self.both(lambda log: log.close(clean=clean))
        self.same_files("after the clean close" if clean else "after a kill", closed=clean)
        self.cut_base = -1
        self.changed = self.changed and not clean
        self.config = {**self.config, **(config or {})}
        self.reconfigured = False
        ends = before.recovery_point
        recovery_point = {"live": ends, "zero": 0, "half": ends // 2}[point] if not clean else before.log_end_offset
        if self.history.turns and not clean:
            if not isinstance(self.side, KafkaLog):
                # A broker writes its points down now and then; ours is on the disk before anything counts on it.
                recovery_point = max(recovery_point, stored_point(self.side.directory.parent))
            for directory in (self.side.directory, self.kafka.directory):
                write_checkpoints(directory, recovery_point, before.log_start_offset)
        if self.history.turns and clean:
            self.mark_clean()
        self.after_broker = isinstance(self.side, KafkaLog)
        self.killed = self.killed if self.after_broker else not clean
        self.side = self.sides[side % len(self.sides)]
        self.marked = (self.side.directory.parent / CLEAN_MARKER).exists()
        self.truncated = False
        opening = Opening(self.config, clean, recovery_point, before.log_start_offset, self.history.turns)
        self.open(opening)
        if self.refused_epoch and self.epoch_files_differ():
            # The epoch of the refused append was there while Kafka recovered, and went then.
            self.uses.count(EPOCH_OF_REFUSED)
            self.epochs_apart = True
        self.restarted = log_files.bases(self.kafka.directory)[-1]

    def mark_clean(self) -> None:
        """The clean marker of a log dir: we restore what we found, and a broker's next clean stop makes a new one."""
        marker = self.side.directory.parent / CLEAN_MARKER
        if self.marked and not marker.exists():
            message = f"{CLEAN_MARKER} was there when the log was opened, and is not there after it was closed"
            raise Mismatch(message)
        marker.write_text(CLEAN)

    # Appends

    def appended(self, call: Callable[[Side], Info], epoch: int, data: bytes | None = None, how: str = "leader") -> Info | None:
        """An append on both sides, with what may differ around it."""
        files = self.without_indexes()
        segments, theirs = log_files.bases(self.side.directory), log_files.bases(self.kafka.directory)
        early = self.may_roll_early()
        got = outcome(lambda: call(self.side))
        if isinstance(got, Refusal) and self.without_indexes() != files and not isinstance(self.side, KafkaLog):
            message = f"refused ({got.text}), and yet the files changed: {files} to {self.without_indexes()}"
            raise Mismatch(message)
        rolled = log_files.bases(self.side.directory) != segments
        if rolled and early and not isinstance(got, Refusal) and got.base_offset in {self.ends.log_end_offset, None}:
            # Whether Kafka would roll here by itself or not, it ends where both are alike.
            self.kafka.roll()
            self.uses.count(EARLY_ROLL)
        want = outcome(lambda: call(self.kafka))
        if early and isinstance(want, KafkaError) and want.kind in {"IllegalArgumentException", "InvalidOffsetException"}:
            # An index filled up half-way through the append: Kafka's log is beyond help now.
            self.uses.count(EARLY_ROLL)
            raise EndedEarly
        info = self.compare(got, want, Info.agrees)
        if info is not None and info.duplicate:
            self.seen["duplicates"] += 1
        if info is None or info.duplicate:
            self.not_appended(epoch, theirs)
        elif info.last_offset != -1:
            if self.refused_epoch and self.epoch_files_differ():
                # It began where the refused append would have stood, and Kafka goes by that.
                self.uses.count(EPOCH_OF_REFUSED)
                self.epochs_apart = True
            self.refused_epoch = False
            self.truncated = False
            self.leapt = False
            self.changed = True
            self.highest_epoch = max(self.highest_epoch, epoch)
            if data is not None:
                self.sent = [*self.sent[-SENT:], (data, how)]
        if early and log_files.bases(self.side.directory) != log_files.bases(self.kafka.directory):
            self.uses.count(EARLY_ROLL)
            raise EndedEarly
        self.same_ends()
        return info

    def may_roll_early(self) -> bool:
        """Whether the index is so small that the number of its entries may decide, and Kafka may have counted too few."""
        small = int(self.config.get("segment.index.bytes", 10_485_760)) <= SMALL_INDEX
        return small and (self.many or self.restarted == log_files.bases(self.kafka.directory)[-1])

    def not_appended(self, epoch: int, before: list[int]) -> None:
        """After a refusal or a duplicate Kafka may have written an epoch, and may have rolled; `before` are the segments it had."""
        mine, theirs = log_files.bases(self.side.directory), log_files.bases(self.kafka.directory)
        if theirs != before and theirs[-1] > self.ends.log_end_offset:
            # Rolled to the offset of what was refused: no append reaches that segment, or one that begins below it.
            self.uses.count(KAFKA_FAILS)
            raise EndedEarly
        if theirs[:-1] == mine:
            self.side.roll()
            self.uses.count(ROLL_OF_REFUSED)
        elif theirs[-1] == self.ends.log_end_offset:
            self.after_empty_roll()
        if self.epoch_files_differ():
            self.refused_epoch = True
            if epoch < self.highest_epoch:
                self.epochs_apart = True

    def after_empty_roll(self) -> None:
        """Kafka may have rolled an empty segment to where it was."""
        mine, theirs = (log_files.bytes_of_logs(side.directory) for side in (self.side, self.kafka))
        if mine != theirs and self.config.get("preallocate") == "true":
            # The file that takes an empty one's place is as long as a new one.
            self.uses.count(ROLL_OF_REFUSED)
            raise EndedEarly
        if self.side.ends().recovery_point < self.kafka.ends().recovery_point == self.ends.log_end_offset:
            # The flush after the roll moved it.
            self.side.flush()
            self.uses.count(ROLL_OF_REFUSED)

    def batch(self, fields: dict[str, Any]) -> Batch:
        """The batch of a step."""
        made = rows(fields["rows"], self.clock.now)
        producer = fields.get("producer")
        if producer is None:
            return Batch(made, fields["codec"])
        sequence = producer["sequence"]
        following = self.sequences.get(producer["id"], 0)
        if sequence in {"next", "gap"}:
            sequence = (following + (5 if sequence == "gap" else 0)) % (1 << 31)
        return Batch(made, fields["codec"], producer["id"], producer["epoch"], sequence, producer["txn"])

    def counted(self, batch: Batch) -> None:
        """Remembers the sequence of a batch that was accepted."""
        if batch.producer_id >= 0:
            self.sequences[batch.producer_id] = (batch.base_sequence + len(batch.rows)) % (1 << 31)

    def step_append(self, fields: dict[str, Any]) -> None:
        """A leader's append, of bytes or of records."""
        batch, form, epoch, flush = self.batch(fields), fields["form"], fields["epoch"], fields.get("flush", False)
        if form == "arrow" and len(self.oracle.encode(batch)) * 3 > self.largest() * 2:
            # A table becomes several batches where one would be too large.
            form = "records"
        if form != "bytes":
            self.rows_form = True
            if self.appended(lambda side: side.append_rows(batch, form, epoch, flush=flush), epoch) is not None:
                self.counted(batch)
            self.rows_form = False
            return
        origin = fields.get("origin", "client")
        data = self.oracle.encode(batch, magic=fields.get("magic", 2))
        info = self.appended(lambda side: side.append_bytes(data, epoch, origin, flush=flush), epoch, data, origin)
        if info is not None and not info.duplicate:
            self.counted(batch)

    def largest(self) -> int:
        """Bytes of the largest batch that is accepted."""
        return min(int(self.config.get("max.message.bytes", 1 << 20)), int(self.config.get("internal.segment.bytes", 1 << 20)))

    def step_again(self, fields: dict[str, Any]) -> None:
        """Bytes that were appended before, once more."""
        if not self.sent:
            return
        data, origin = self.sent[-1 - fields["back"] % len(self.sent)]
        self.appended(lambda side: side.append_bytes(data, fields["epoch"], origin), fields["epoch"])

    def step_hostile(self, fields: dict[str, Any]) -> None:
        """Bytes that no client sends."""
        batch, epoch = self.batch(fields), fields["epoch"]
        if fields.get("as") == "follower":
            data = self.oracle.encode(batch, baseOffset=self.ends.log_end_offset, batchLeaderEpoch=epoch)
            self.hostile = data = mutated(data, fields["mutations"])
            end, before = self.ends.log_end_offset, log_files.bytes_of_logs(self.kafka.directory)
            if self.appended(lambda side: side.append_as_follower(data, epoch), epoch) is not None:
                self.spoilt = True
            on_kafka = isinstance(self.side, KafkaLog)
            if on_kafka and self.ends.log_end_offset == end and log_files.bytes_of_logs(self.kafka.directory) != before:
                # It ends before it begins, and its bytes are there.
                self.uses.count(KAFKA_FAILS)
                raise EndedEarly
        else:
            self.hostile = data = mutated(self.oracle.encode(batch), fields["mutations"])
            info = self.appended(lambda side: side.append_bytes(data, epoch, fields.get("origin", "client")), epoch)
            if info is not None and isinstance(self.side, KafkaLog) and not self.oracle.reads_whole(data):
                self.uses.count(UNTRUE_RECORDS)
                raise EndedEarly
        self.hostile = b""

    def step_follower(self, fields: dict[str, Any]) -> None:
        """What a leader stored, appended as it is."""
        offset = self.ends.log_end_offset
        data, batches = b"", []
        for part in fields["batches"]:
            offset += part.get("gap", 0)
            if offset < 0:
                return
            if "marker" in part:
                data += self.oracle.encode_marker(self.marker(part["marker"]), offset, part["epoch"])
                offset += 1
                continue
            batch = self.batch(part)
            data += self.oracle.encode(batch, baseOffset=offset, batchLeaderEpoch=part["epoch"])
            offset += len(batch.rows)
            if part["epoch"] <= fields["epoch"]:
                batches.append(batch)
        self.many = len(fields["batches"]) > 1
        info = self.appended(lambda side: side.append_as_follower(data, fields["epoch"]), fields["epoch"])
        self.many = False
        if info is not None and isinstance(self.side, KafkaLog) and any(part.get("gap", 0) < 0 for part in fields["batches"]):
            # Ours would have refused, and refuses to read that.
            self.uses.count(OVERLAPPING)
            raise EndedEarly
        if info is not None:
            for batch in batches:
                self.counted(batch)

    def marker(self, fields: dict[str, Any]) -> Marker:
        """The marker of a step."""
        (row,) = rows([[fields.get("time", 0), None, None]], self.clock.now)
        # Kafka builds no marker of before 1970.
        time = max(-1, row.timestamp)
        return Marker(fields["id"], fields["epoch"], fields["commit"], fields["coordinator"], time, fields.get("version", 0))

    def step_marker(self, fields: dict[str, Any]) -> None:
        """The end of a transaction, by its coordinator."""
        marker, epoch = self.marker(fields), fields["leader_epoch"]
        info = self.appended(lambda side: side.append_marker(marker, epoch), epoch)
        if info is not None and fields.get("version"):
            self.sequences[marker.producer_id] = 0

    # All the other verbs

    def step_roll(self, _: dict[str, Any]) -> None:
        """A forced roll."""
        active = max(self.kafka.directory.glob("*.log"))
        empty = int(active.stem) == self.ends.log_end_offset
        if empty and (self.config.get("preallocate") == "true" or self.reconfigured):
            # The file that takes the empty one's place is as long as a new one; the segment takes new settings.
            return
        self.both(lambda side: side.roll())
        self.changed = self.changed or not empty
        if empty:
            self.uses.count(EMPTY_ROLL)
            if self.side.ends().recovery_point < self.kafka.ends().recovery_point:
                # The flush after the roll moved it.
                self.side.flush()
        self.same_ends()

    def step_configure(self, fields: dict[str, Any]) -> None:
        """Other settings, while the log is open."""
        self.config = {**self.config, **fields["config"]}
        self.reconfigured = True
        self.both(lambda side: side.configure(self.config))
        self.same_ends()

    def step_flush(self, _: dict[str, Any]) -> None:
        """A flush."""
        self.both(lambda side: side.flush())
        self.same_ends()

    def step_truncate(self, fields: dict[str, Any]) -> None:
        """The end cut off."""
        offset = max(0, self.ends.log_end_offset - fields["back"])
        self.truncated = True
        if self.both(lambda side: side.truncate_to(offset)):
            self.changed = True
        self.restarted = self.cut_base = log_files.bases(self.kafka.directory)[-1]
        self.cut_bases.add(self.cut_base)
        self.refused_epoch = False
        self.same_ends()

    def step_truncate_fully(self, fields: dict[str, Any]) -> None:
        """Everything dropped, a new beginning."""
        self.changed = True
        offset = max(0, self.ends.log_end_offset + fields["ahead"])
        start = None if fields["start"] is None else max(0, offset + fields["start"])
        self.truncated = True
        self.both(lambda side: side.truncate_fully(offset, start))
        self.refused_epoch = False
        self.epochs_apart = False
        self.highest_epoch = 0
        self.cut_bases.clear()
        self.same_ends()

    def step_delete_records(self, fields: dict[str, Any]) -> None:
        """The beginning taken away."""
        offset = self.ends.log_end_offset if fields["end"] else self.ends.log_start_offset + fields["on"]
        if offset < 0:
            return
        segments = log_files.bases(self.side.directory)
        if self.both(lambda side: side.delete_records_before(offset)):
            # What a broker deletes without taking a segment away changes nothing that our mark of a clean end speaks of.
            ours = not isinstance(self.side, KafkaLog)
            self.changed = self.changed or ours or log_files.bases(self.side.directory) != segments
        self.same_ends()

    def step_clock(self, fields: dict[str, Any]) -> None:
        """Time goes by. After a leap, Kafka forgets producers at once and we when we next look: not a moment later."""
        if self.leapt and fields["add"] < LEAP:
            return
        self.leapt = self.leapt or fields["add"] >= LEAP
        self.clock.set(self.clock.now + fields["add"])
        self.same_ends()

    def step_fetch(self, fields: dict[str, Any]) -> None:
        """One fetch somewhere in the log or just outside it."""
        start, end = self.ends.log_start_offset, self.ends.log_end_offset
        offset = round(start - 1 + fields["at"] * (end - start + 2))
        committed = fields["committed"] and not self.truncated
        if offset >= 0 and self.history.exact:
            self.fetch(offset, fields["max"], committed=committed)
            self.same_ends()

    def step_check(self, _: dict[str, Any]) -> None:
        """All files, while both logs are open."""
        self.same_files("files")

    def step_reopen(self, fields: dict[str, Any]) -> None:
        """Both are closed, and opened again."""
        self.reopen(clean=fields["clean"], point=fields.get("point", "live"), side=fields.get("side", 0), config=fields.get("config"))


def stored_point(log_dir: Path) -> int:
    """The recovery point that stands in a log dir, 0 where none does."""
    file = log_dir / RECOVERY_POINTS
    return int(file.read_text().split()[-1]) if file.exists() and file.read_text().count("\n") > NO_LINES else 0


def write_checkpoints(directory: Path, recovery_point: int, log_start_offset: int) -> None:
    """What a broker's timers would have written before it was killed: of a log that is not tiered no start at its first segment or below."""
    topic, partition = NAME.rsplit("-", 1)
    is_above = log_start_offset > log_files.bases(directory)[0]
    for name, offset, has_line in ((RECOVERY_POINTS, recovery_point, True), (START_OFFSETS, log_start_offset, is_above)):
        line = f"1\n{topic} {partition} {offset}\n" if has_line else "0\n"
        (directory.parent / name).write_text(f"0\n{line}")
