"""A log as plain values: what each reading verb has to answer, worked out by walking over all batches every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from codec import Batch, Rec, data_records, parse

Question = tuple[str, dict[str, Any]]
OUT_OF_RANGE = ("error", "OffsetOutOfRangeError")
# What a column of Arrow holds of a record.
COLUMNS: dict[str, Callable[[Batch, Rec], Any]] = {
    "key": lambda _, record: record.key,
    "value": lambda _, record: record.value,
    "topic": lambda _, __: "t",
    "partition": lambda _, __: 0,
    "offset": lambda _, record: record.offset,
    "timestamp": lambda _, record: record.timestamp,
    "timestampType": lambda batch, _: int(batch.stamped),
    "headers": lambda _, record: [{"key": name, "value": value} for name, value in record.headers] or None,
    "leaderEpoch": lambda batch, _: batch.epoch,
    "producerId": lambda batch, _: batch.producer_id,
    "producerEpoch": lambda batch, _: batch.producer_epoch,
    "sequence": lambda batch, record: batch.sequence + record.offset - batch.base if batch.sequence >= 0 else -1,
}


class State(NamedTuple):
    """A log between two verbs. Batches below the log start offset are there until retention takes their segment."""

    segments: tuple[tuple[int, tuple[Batch, ...]], ...]
    start: int
    end: int
    epoch: int | None
    # First offset of each leader epoch, as ``leader-epoch-checkpoint`` has them.
    epochs: tuple[tuple[int, int], ...] = ()
    # What the writer has synced; known to its process alone.
    durable: int = 0

    @property
    def batches(self) -> list[Batch]:
        """All batches, in order."""
        return [batch for _, batches in self.segments for batch in batches]

    @property
    def data_end(self) -> int:
        """Where the last segment ends."""
        base, batches = self.segments[-1]
        return max(base, batches[-1].last + 1 if batches else base)

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset of each transaction without a marker, by producer."""
        found: dict[int, int] = {}
        for batch in self.batches:
            if batch.control is not None:
                found.pop(batch.producer_id, None)
            elif batch.transactional:
                found.setdefault(batch.producer_id, batch.base)
        return found

    @property
    def stable(self) -> int:
        """The last stable offset."""
        first = min(self.open_transactions.values(), default=self.end)
        return min(max(first, self.start), self.end)

    def aborted(self) -> list[tuple[int, int, int]]:
        """Producer, first offset and marker of each aborted transaction."""
        found: list[tuple[int, int, int]] = []
        began: dict[int, int] = {}
        for batch in self.batches:
            if batch.control is None and batch.transactional:
                began.setdefault(batch.producer_id, batch.base)
            elif batch.control is not None:
                first = began.pop(batch.producer_id, None)
                if batch.control is False and first is not None:
                    found.append((batch.producer_id, first, batch.base))
        return found

    def ask(self, question: Question) -> Any:
        """The right answer."""
        name, options = question
        return getattr(self, f"_{name}")(**options)

    def _ends(self) -> Any:
        return (self.start, self.end, self.end, self.stable, self.epoch)

    def _property(self, which: str) -> Any:
        known = {"log_start_offset": self.start, "last_stable_offset": self.stable, "leader_epoch": self.epoch}
        return known.get(which, self.end)

    def _recovery_point(self) -> Any:
        return (self.durable, self.durable)

    def _epoch_end(self, epoch: int) -> Any:
        """What a leader answers to OffsetsForLeaderEpoch."""
        if not self.epochs or not 0 <= epoch <= self.epochs[-1][0]:
            return None
        if epoch == self.epochs[-1][0]:
            return (epoch, self.end)
        ends = next(start for other, start in self.epochs if other > epoch)
        return (max((other for other, _ in self.epochs if other <= epoch), default=epoch), ends)

    def _segments(self) -> Any:
        return [(base, sum(batch.size for batch in batches)) for base, batches in self.segments]

    def _get(self, offset: int) -> Any:
        if not self.start <= offset < self.end:
            return OUT_OF_RANGE
        return next((row(batch, record) for batch, record in data_records(self.batches) if record.offset == offset), None)

    def _locate(self, offset: int) -> Any:
        if not self.start <= offset < self.end:
            return OUT_OF_RANGE
        return next(((batch.base, batch.last) for batch in self.batches if batch.base <= offset <= batch.last), None)

    def _take(self, offsets: list[int]) -> Any:
        if not all(self.start <= offset < self.end for offset in offsets):
            return OUT_OF_RANGE
        rows = [self._get(offset) for offset in offsets]
        return [found for found in rows if found is not None]

    def _chosen(  # the options of the verb; some must change nothing
        self,
        start: int | None = None,
        stop: int | None = None,
        isolation_level: str = "read_uncommitted",
        keys: list[bytes] | None = None,
        limit: int | None = None,
        start_timestamp: int | None = None,
        stop_timestamp: int | None = None,
        **_without_effect: Any,
    ) -> list[tuple[Batch, Rec]] | None:
        """The records of a scan, None for a start out of range."""
        if start is not None and not self.start <= start <= self.end:
            return None
        first = self.start if start is None else start
        until = self.end if stop is None else stop
        committed = isolation_level == "read_committed"
        gone = self.aborted() if committed else []
        if committed:
            until = min(until, self.stable)
        chosen = []
        for batch, record in data_records(self.batches):
            is_aborted = any(batch.producer_id == producer and begin <= batch.base < marker for producer, begin, marker in gone)
            if (
                first <= record.offset < until
                and not (batch.transactional and is_aborted)
                and (keys is None or record.key in keys)
                and (start_timestamp is None or record.timestamp >= start_timestamp)
                and (stop_timestamp is None or record.timestamp < stop_timestamp)
            ):
                chosen.append((batch, record))
        return chosen[:limit]

    def _scan(self, **options: Any) -> Any:
        chosen = self._chosen(**options)
        return OUT_OF_RANGE if chosen is None else [row(batch, record) for batch, record in chosen]

    def _count(self, **options: Any) -> Any:
        chosen = self._chosen(**options)
        return OUT_OF_RANGE if chosen is None else len(chosen)

    def _arrow(self, columns: list[str], **options: Any) -> Any:
        chosen = self._chosen(**options)
        if chosen is None:
            return OUT_OF_RANGE
        return [tuple(COLUMNS[name](batch, record) for name in columns) for batch, record in chosen]

    def _over(self, start: int | None, stop: int | None, **_how_cut: Any) -> Any:
        return self._scan(start=start, stop=stop)

    def _log_dir_scan(self, **options: Any) -> Any:
        return self._scan(**options)

    def _durable(self) -> Any:
        return self._scan(stop=self.durable)

    def _follow(self, start: int | None, isolation_level: str) -> Any:
        return self._scan(start=start, isolation_level=isolation_level)

    def _batches(self, start: int | None, stop: int | None) -> Any:
        if start is not None and not self.start <= start <= self.end:
            return OUT_OF_RANGE
        first = self.start if start is None else start
        until = 1 << 62 if stop is None else stop
        found = [batch for batch in self.batches if batch.last >= first and batch.base < until]
        return [(batch.base, batch.last, len(batch.records), batch.epoch, batch.control is not None) for batch in found]

    def _time(self, when: int, isolation_level: str) -> Any:
        for batch in self.batches:
            for record in batch.records:
                if record.offset >= self.start and record.timestamp >= when:
                    if isolation_level == "read_committed" and record.offset >= self.stable:
                        return None
                    return (record.offset, record.timestamp, batch.epoch)
        return None

    def _log_dir_time(self, when: int, isolation_level: str) -> Any:
        return self._time(when, isolation_level)

    def _splits(self, start: int | None, stop: int | None, **_how_cut: Any) -> Any:
        if start is not None and not self.start <= start <= self.end:
            return OUT_OF_RANGE
        first = self.start if start is None else start
        until = self.end if stop is None else min(stop, self.end)
        return (first, until) if first < until else None

    def _verify(self) -> Any:
        # A start in the gap that a truncation inside a batch left is an error: a broker that comes now begins anew there.
        return (int(self.start > self.data_end), len(self.batches))

    def _fetch(self, offset: int, max_bytes: int, isolation_level: str) -> Any:
        first = self.segments[0][0]
        if not max(self.start, first) <= offset <= self.end:
            return OUT_OF_RANGE
        limit = self.stable if isolation_level == "read_committed" else self.end
        taken: list[Batch] = []
        slot = max(0, sum(base <= offset for base, _ in self.segments) - 1)
        for _, batches in self.segments[slot:]:
            for batch in batches:
                if batch.last < offset:
                    continue
                if batch.base >= limit or (taken and sum(one.size for one in taken) + batch.size > max_bytes):
                    break
                taken.append(batch)
            if taken:
                break
        aborted = []
        if isolation_level == "read_committed" and taken:
            aborted = [(one, begin) for one, begin, marker in self.aborted() if marker >= offset and begin < taken[-1].last + 1]
        return (taken, self.end, self.stable, self.start, sorted(aborted))


def row(batch: Batch, record: Rec) -> tuple[Any, ...]:
    """A record as the handles' answers are made plain."""
    return (*record, batch.epoch, batch.producer_id, batch.transactional)


def fetched(data: bytes) -> list[Batch]:
    """What a fetch gave, each checksum compared."""
    return parse(data, check=True)
