"""What a log owes after a crash: the history that its driver told, and the check of what is there now.

The driver (``rust/offsetlog-faults/examples/drive.rs``) appends batches whose content is a function of its run, the number of truncations
before (the generation) and the offset, and says what was acknowledged and flushed. So a record that was never appended, that stands
in the wrong place or that was cut off earlier is known by its bytes. Files are read here by a parser of a few lines, ours only
afterwards: both must see the same.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from offsetlog import Log, Record, RecoveryReport, WritableLog

MASK = (1 << 64) - 1
TIME = 1_700_000_000_000
# What the checker appends is a run of its own.
GROWTH = 1 << 40
RECORDS, VALUE_BYTES = 4, 200
LEFTOVERS = (".tmp", ".cleaned", ".swap")


def mix(run: int, generation: int, offset: int) -> int:
    """The driver's ``mix``: a number that looks random."""
    x = (run * 0x9E3779B97F4A7C15 + generation * 0xBF58476D1CE4E5B9 + offset * 0x94D049BB133111EB) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def content(run: int, generation: int, offset: int, value_bytes: int = VALUE_BYTES) -> tuple[int, bytes]:
    """Timestamp and value of a record."""
    random = mix(run, generation, offset)
    filling = random % (value_bytes + 1)
    head = struct.pack("<QQQ", run, generation, offset)
    tail = random.to_bytes(8, "little") * (filling // 8 + 1)
    return TIME + offset + (random & 0xFF), head + tail[:filling]


class Batch(NamedTuple):
    """A batch by what determines its content."""

    run: int
    generation: int
    base: int
    last: int

    @classmethod
    def at(cls, run: int, generation: int, base: int, records: int = RECORDS) -> Batch:
        """The batch that the driver appends there."""
        return cls(run, generation, base, base + mix(run, generation, base) % records)


class BrokenPromiseError(AssertionError):
    """The log does not hold what it promised."""


def owe(condition: object, sentence: str) -> None:
    """Fail unless the condition holds."""
    if not condition:
        raise BrokenPromiseError(sentence)


@dataclass
class History:
    """What was appended, acknowledged and made durable, as the driver told it.

    Attributes
    ----------
    branches
        Batches in order; the last branch is what a reader saw. Earlier ones end in what a truncation cut that was not flushed yet:
        after power loss they may be there still.
    durable
        Everything below was flushed, exclusive.
    pending
        The batch that was handed in and not acknowledged.
    cutting
        Offset of the truncation that was begun and has not returned.
    starts
        Where the log may start: at the last deletion that returned, or at one that was begun since. Whole batches below may be gone, and
        a log whose start lies behind its last batch ends there too.
    """

    run: int = 1
    branches: list[list[Batch]] = field(default_factory=lambda: [[]])
    end: int = 0
    durable: int = 0
    pending: Batch | None = None
    cutting: int | None = None
    starts: set[int] = field(default_factory=lambda: {0})
    #: Ends that truncations set: a log may end there, behind its last batch, until something else is appended.
    ends: set[int] = field(default_factory=set)
    #: Base of the first batch whose append failed and that is in the log all the same: from there on nothing was promised.
    refused: int | None = None
    opened: bool = False
    #: Something has changed since the opening, and no closing has begun.
    unclean: bool = False
    closed: bool = False
    failures: list[tuple[str, int, str, str]] = field(default_factory=list)
    value_bytes: int = VALUE_BYTES
    records: int = RECORDS

    @property
    def acked(self) -> list[Batch]:
        """The batches that a reader saw last."""
        return self.branches[-1]

    def start(self, run: int) -> None:
        """A new run of the driver begins on what is there."""
        self.run, self.opened, self.unclean, self.closed = run, False, False, False
        self.failures = []

    def feed(self, line: str) -> None:
        """Take one line of the driver."""
        word, _, rest = line.partition(" ")
        if word == "failed":
            call, errno, kind, message = rest.split(" ", 3)
            self.failures.append((call, int(errno), kind, message))
            return
        numbers = [int(text) for text in rest.split()]
        match word:
            case "opened":
                self._opened(*numbers)
            case "appending":
                generation, base = numbers
                self._leave_pending(base)
                self.pending = Batch.at(self.run, generation, base, self.records)
            case "acked":
                self._acked(*numbers)
            case "flushed":
                # Of several threads the one that waited longer may speak later.
                self.durable = max(self.durable, *numbers)
                del self.branches[:-1]
            case "truncating" | "deleting":
                self._begun(word, *numbers)
            case "truncated":
                self._truncated(*numbers)
            case "deleted":
                self._deleted(*numbers)
            case "closed":
                self.closed, self.durable = True, self.end
                del self.branches[:-1]
            case "closing":
                self.unclean, self.pending = False, None
            case "rolled" | "done":
                pass
            case _:
                msg = f"the driver said {line!r}"
                raise ValueError(msg)

    def _opened(self, end: int) -> None:
        """An opening that nobody checked: its end must be one that may be."""
        floor = min(self.durable, self.end if self.cutting is None else self.cutting)
        # A truncation inside a batch sets an end behind the last record, where the log ends only until it is opened again.
        lowest = min(max((batch.last + 1 for batch in branch if batch.last < floor), default=0) for branch in self.branches)
        owe(end >= lowest, f"opened with end {end}, but {lowest} was durable")
        kept = []
        for branch in self.branches:
            whole = [*branch, self.pending] if self.pending and branch is self.acked else branch
            prefix = [batch for batch in whole if batch.last < end]
            if end in {prefix[-1].last + 1 if prefix else 0, self.end, *self.starts}:
                kept.append(prefix)
        owe(kept, f"opened with end {end}, inside a batch")
        self.branches, self.end, self.pending, self.cutting, self.opened = kept, end, None, None, True
        self.durable = min(self.durable, end)

    def _acked(self, generation: int, base: int, last: int) -> None:
        batch = Batch(self.run, generation, base, last)
        owe(batch == self.pending, f"{self.pending} was appended and {batch} acknowledged")
        owe(base >= self.end, f"offset {base} was given twice: the log ended at {self.end}")
        self.acked.append(batch)
        self.end, self.pending, self.unclean = last + 1, None, True

    def _leave_pending(self, base: int) -> None:
        """The next batch begins behind the one that failed: that one is in the log, and nobody was promised it."""
        if self.pending is not None and base == self.pending.last + 1:
            self.acked.append(self.pending)
            self.refused, self.end = self.refused or self.pending.base, base

    def _begun(self, word: str, offset: int) -> None:
        if word == "deleting":
            self.starts.add(offset)
        else:
            self.cutting, self.pending = offset, None

    def _deleted(self, offset: int) -> None:
        self.starts, self.unclean = {offset}, True
        # What is passed over has to be on the disk, and with it all before.
        self.durable = max(self.durable, offset)

    def _truncated(self, offset: int) -> None:
        self.ends.add(offset)
        self.branches.append([batch for batch in self.acked if batch.last < offset])
        self.end, self.cutting, self.durable, self.unclean = offset, None, min(self.durable, offset), True

    def check(self, found: list[Batch], *, power: bool) -> None:
        """F1, F2 and F4: durable or acknowledged batches are there, in order, with nothing between and nothing else behind."""
        floor = self.durable if power else self.end
        floor = min([floor, *(end for end in (self.cutting, self.refused) if end is not None)])
        problems = []
        for branch in self.branches if power else [self.acked]:
            deleted = sum(batch.last < max(self.starts) for batch in branch)
            # Deleted records stay until no other is in their segment.
            gone = next((slot for slot in range(deleted) if found and branch[slot] == found[0]), deleted)
            whole = [*branch, self.pending] if self.pending is not None and branch is self.acked else branch
            whole, branch = whole[gone:], branch[gone:]  # noqa: PLW2901
            needed = sum(batch.last < floor for batch in branch)
            if found != whole[: len(found)]:
                wrong = next(slot for slot, pair in enumerate(zip(found, [*whole, None], strict=False)) if pair[0] != pair[1])
                problems.append(f"batch {wrong} is {found[wrong]}, {whole[wrong] if wrong < len(whole) else 'nothing'} was appended")
            elif len(found) < needed:
                problems.append(
                    f"{len(found)} batches, but {needed} were {'flushed' if power else 'acknowledged'}: {branch[len(found)]} is lost"
                )
            else:
                return
        raise BrokenPromiseError(
            "; ".join(problems)
            + f" (end {self.end}, durable {self.durable}, pending {self.pending}, cutting {self.cutting}, starts {self.starts})"
        )

    def settle(self, found: list[Batch], start: int, end: int) -> None:
        """What was found is now what is."""
        self.branches, self.starts, self.end, self.durable = [list(found)], {start}, end, end
        self.pending = self.cutting = self.refused = None
        self.ends = {end}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _records(data: bytes, at: int, base: int, time: int, count: int) -> Iterator[tuple[int, int, bytes]]:
    for _ in range(count):
        length, at = _varint(data, at)
        stop = at + length
        time_delta, at = _varint(data, at + 1)
        offset_delta, at = _varint(data, at)
        key, at = _varint(data, at)
        value, at = _varint(data, at + max(key, 0))
        yield base + offset_delta, time + time_delta, data[at : at + value]
        at = stop


class Stored(NamedTuple):
    """A batch as it stands in a file."""

    batch: Batch
    position: int
    max_timestamp: int


def read_segment(path: Path, history: History) -> list[Stored]:
    """The batches of a ``.log`` file, each record compared with what it must be (F3, F4)."""
    data = path.read_bytes()
    stored, position = [], 0
    while position < len(data):
        owe(len(data) - position >= 61, f"{path.name}: {len(data) - position} bytes at {position} are no batch")
        base, length, _, magic, _, attributes, delta, time, max_time = struct.unpack_from(">qiibIhiqq", data, position)
        owe((magic, attributes & 7) == (2, 0), f"{path.name}: no batch at {position}")
        owe(position + 12 + length <= len(data), f"{path.name}: half a batch at {position}")
        (count,) = struct.unpack_from(">i", data, position + 57)
        records = list(_records(data, position + 61, base, time, count))
        run, generation, _ = struct.unpack_from("<QQQ", records[0][2])
        batch = Batch(run, generation, base, base + delta)
        owe(batch == Batch.at(run, generation, base, history.records), f"{path.name}: {batch} at {position} was never appended")
        for offset, timestamp, value in records:
            known = content(run, generation, offset, history.value_bytes) == (timestamp, value)
            owe(known, f"{path.name}: the record at offset {offset} was never appended")
        owe(max_time == max(record[1] for record in records), f"{path.name}: max_timestamp of the batch at {position}")
        stored.append(Stored(batch, position, max_time))
        position += 12 + length
    return stored


def _check_indexes(path: Path, stored: list[Stored]) -> None:
    """F7: entries point to batches, ascend, and promise nothing wrong about times. Zeros behind the last entry do not count."""
    base, size = int(path.stem), path.stat().st_size
    lasts = {entry.position: entry.batch.last for entry in stored}
    index = path.with_suffix(".index").read_bytes()
    entries = [(base + relative, position) for relative, position in struct.iter_unpack(">ii", index[: len(index) // 8 * 8])]
    while entries and entries[-1] == (base, 0):
        entries.pop()
    owe(entries == sorted(set(entries)), f"{path.stem}.index does not ascend: {entries}")
    for offset, position in entries:
        owe(position < size and lasts.get(position) == offset, f"{path.stem}.index: ({offset}, {position}) is no batch")
    times = path.with_suffix(".timeindex").read_bytes()
    marks = list(struct.iter_unpack(">qi", times[: len(times) // 12 * 12]))
    while marks and marks[-1] == (0, 0):
        marks.pop()
    owe(marks == sorted(marks), f"{path.stem}.timeindex does not ascend: {marks}")
    for timestamp, relative in marks:
        later = [entry for entry in stored if entry.batch.last <= base + relative and entry.max_timestamp > timestamp]
        owe(not later, f"{path.stem}.timeindex: ({timestamp}, {base + relative}) hides {later}")
        owe(
            not stored or base + relative <= stored[-1].batch.last,
            f"{path.stem}.timeindex: offset {base + relative} is not in the segment",
        )


def read_files(directory: Path, history: History, *, open_now: bool) -> list[Batch]:
    """All batches of a directory; its layout (F6) and its indexes are checked on the way."""
    logs = sorted(directory.glob("*.log"))
    found: list[Batch] = []
    for slot, path in enumerate(logs):
        stored = read_segment(path, history)
        base = int(path.stem)
        owe(stored or slot == len(logs) - 1, f"{path.name} is empty and not the last segment")
        owe(not stored or stored[0].batch.base >= base, f"{path.name} begins with {stored[:1]}")
        owe(not found or base > found[-1].last, f"{path.name} begins inside {found[-1:]}")
        if stored or not open_now:
            _check_indexes(path, stored)
        found.extend(entry.batch for entry in stored)
    owe(all(later.base > earlier.last for earlier, later in itertools.pairwise(found)), "offsets do not ascend")
    left = [path.name for path in directory.iterdir() if path.name.endswith(LEFTOVERS)]
    owe(not left, f"leftovers: {left}")
    return found


def stored_recovery_point(directory: Path) -> tuple[int, bool]:
    """The recovery point that the next opening starts from, and whether the end is said to be clean."""
    state = directory / ".offsetlog.state"
    if not state.exists():
        return 0, False
    words = dict(line.split(": ", 1) for line in state.read_text(encoding="utf-8").splitlines())
    return int(words["recovery_point"]), "clean" in words


def check_through_reader(log: Log, found: list[Batch], history: History) -> None:
    """Our reader sees what the files hold."""
    seen = [(record.offset, record.timestamp, record.value) for record in log.scan()]
    expected = [
        (offset, *content(batch.run, batch.generation, offset, history.value_bytes))
        for batch in found
        for offset in range(max(batch.base, log.log_start_offset), batch.last + 1)
    ]
    owe(seen == expected, f"a scan gives {len(seen)} records, {len(expected)} are in the files")
    for offset, _, _ in (*expected[:1], *expected[-1:]):
        record = log.get(offset)
        owe(record is not None and record.offset == offset, f"offset {offset} is not found")


def check_opening(directory: Path, history: History, *, power: bool) -> RecoveryReport:
    """Open for writing after a crash, check every promise, and leave the log open by nobody, as after a kill.

    Parameters
    ----------
    directory
        The partition.
    history
        What the driver told; becomes what was found.
    power
        Whether the power was lost: only what was flushed must be there. Otherwise all that was acknowledged.
    """
    recovery_point, clean = stored_recovery_point(directory)
    owe(not (clean and history.unclean), "the log is marked clean, and nobody closed it")
    with Log.open(str(directory), "a") as log:
        report = log.recovery_report
        # Lost power may leave a hole with later batches behind it; what was flushed lies before it, which `history.check` demands.
        cut = [piece for piece in report.cut if piece.had_batches and not power]
        owe(not cut, f"whole batches were cut: {cut}")
        found = read_files(directory, history, open_now=True)
        history.check(found, power=power)
        end = found[-1].last + 1 if found else 0
        # A truncation to the middle of a batch leaves a gap that is not in the files.
        known = log.log_end_offset in {end, history.cutting, *history.ends, *history.starts} and log.log_end_offset >= end
        owe(known, f"the log ends at {log.log_end_offset}, its last batch at {end}")
        owe(log.log_start_offset in history.starts, f"the log starts at {log.log_start_offset}, not at {history.starts}")
        sound = recovery_point <= log.log_end_offset or recovery_point in {history.cutting, *history.ends}
        owe(sound, f"the recovery point was {recovery_point}, the log ends at {log.log_end_offset}")
        check_through_reader(log, found, history)
        history.settle(found, log.log_start_offset, log.log_end_offset)
        _grow(log, history, 3)
    return report


def _grow(log: WritableLog, history: History, count: int) -> None:
    """Append like the driver (F12)."""
    for _ in range(count):
        batch = Batch.at(GROWTH, 0, history.end, history.records)
        records = [(offset, *content(GROWTH, 0, offset, history.value_bytes)) for offset in range(batch.base, batch.last + 1)]
        log.append_records(Record(log.topic, log.partition, offset, timestamp=time, value=value) for offset, time, value in records)
        owe(log.log_end_offset == batch.last + 1, f"{batch} was appended, the log ends at {log.log_end_offset}")
        history.acked.append(batch)
        history.end = batch.last + 1
    log.flush()
    history.durable = history.end


def check_again(directory: Path, history: History) -> None:
    """F12 and F9: the clean log opens as it was closed, holds exactly what it held, and a second opening changes no byte."""
    with Log.open(str(directory), "a") as log:
        owe(log.recovery_report.clean, f"closed and not clean: {log.recovery_report}")
        owe(log.log_end_offset == history.end, f"closed at {history.end}, opened at {log.log_end_offset}")
    found = read_files(directory, history, open_now=False)
    owe(found == history.acked, f"{found[-3:]} stands at the end, {history.acked[-3:]} was appended")


def check_all(directory: Path, history: History, *, power: bool) -> RecoveryReport:
    """The whole check after a crash."""
    report = check_opening(directory, history, power=power)
    check_again(directory, history)
    return report


def tell(history: History, lines: Iterable[str]) -> None:
    """Feed several lines."""
    for line in lines:
        history.feed(line)
