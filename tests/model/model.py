"""A log as plain values: what each reading verb has to answer, worked out by walking over all batches every time."""

from __future__ import annotations

from typing import Any, NamedTuple

from codec import Batch, Rec, data_records, parse

Question = tuple[str, dict[str, Any]]
OUT_OF_RANGE = ("error", "OffsetOutOfRangeError")


class State(NamedTuple):
    """A log between two verbs. Batches below the log start offset are there until retention takes their segment."""

    segments: tuple[tuple[int, tuple[Batch, ...]], ...]
    start: int
    end: int
    epoch: int | None
    topic: str = "t"

    @property
    def batches(self) -> list[Batch]:
        """All batches, in order."""
        return [batch for _, batches in self.segments for batch in batches]

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

    def _scan(  # the options of the verb
        self,
        start: int | None,
        stop: int | None,
        isolation_level: str,
        keys: list[bytes] | None = None,
        limit: int | None = None,
        start_timestamp: int | None = None,
        stop_timestamp: int | None = None,
    ) -> Any:
        if start is not None and not self.start <= start <= self.end:
            return OUT_OF_RANGE
        first = self.start if start is None else start
        until = self.end if stop is None else stop
        committed = isolation_level == "read_committed"
        gone = self.aborted() if committed else []
        if committed:
            until = min(until, self.stable)
        rows = []
        for batch, record in data_records(self.batches):
            is_aborted = any(batch.producer_id == producer and begin <= batch.base < marker for producer, begin, marker in gone)
            if (
                first <= record.offset < until
                and not (batch.transactional and is_aborted)
                and (keys is None or record.key in keys)
                and (start_timestamp is None or record.timestamp >= start_timestamp)
                and (stop_timestamp is None or record.timestamp < stop_timestamp)
            ):
                rows.append(row(batch, record))
        return rows[:limit]

    def _count(self, **options: Any) -> Any:
        rows = self._scan(**options)
        return rows if rows == OUT_OF_RANGE else len(rows)

    def _arrow(self, **options: Any) -> Any:
        rows = self._scan(**options)
        return rows if rows == OUT_OF_RANGE else [(found[0], found[1], found[2], found[3]) for found in rows]

    def _durable(self, end: int) -> Any:
        return self._scan(None, end, "read_uncommitted")

    def _follow(self, start: int | None, isolation_level: str) -> Any:
        return self._scan(start, None, isolation_level)

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

    def _splits(self, max_bytes: int) -> Any:
        del max_bytes
        return (self.start, self.end)

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
