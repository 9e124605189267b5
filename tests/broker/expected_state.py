"""What a partition must hold, kept by the test that writes it: no answer here comes from offsetlog or from a broker."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from golden import Row
from peers import Appended

NO_PRODUCER = (-1, -1, -1)


class Marker(NamedTuple):
    """The end of a transaction."""

    offset: int
    timestamp: int | None
    """Nothing where a broker took the time from its own clock."""
    commit: bool
    leader_epoch: int


@dataclass
class Producer:
    """What a partition remembers of a producer."""

    epoch: int
    last_sequence: int = -1
    coordinator_epoch: int = -1
    transaction_start: int = -1
    last_base: int = -1
    last_entries: Sequence[Appended] = ()
    """The last batch, which is all that a snapshot keeps for recognising duplicates."""

    @property
    def last_base_sequence(self) -> int:
        return self.last_sequence - len(self.last_entries) + 1


@dataclass
class ExpectedState:
    """One partition, offset by offset."""

    log_start_offset: int = 0
    end: int = 0
    rows: list[Row] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    producers: dict[int, Producer] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Leader epochs and the first offset of each."""
    gaps: set[tuple[int, int]] = field(default_factory=set)
    """Neighbours with offsets between them that nobody has."""
    aborted_transactions: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer id, first offset, offset of the marker."""

    def _epoch_at(self, epoch: int, offset: int) -> None:
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs.append((epoch, offset))

    def skip_to(self, offset: int) -> None:
        """Leave out the offsets before `offset`, as a follower does when it copies a compacted log."""
        if offset > self.end and self.end > self.log_start_offset:
            self.gaps.add((self.end - 1, offset))
        self.end = offset

    def batch(  # one parameter a choice
        self,
        entries: Sequence[Appended],
        *,
        epoch: int,
        producer: tuple[int, int, int] = NO_PRODUCER,
        transactional: bool = False,
        append_time: int | None = None,
    ) -> int:
        """Write down a batch at the end; returns its base offset."""
        base = self.end
        self._epoch_at(epoch, base)
        for delta, entry in enumerate(entries):
            timestamp = entry.timestamp if append_time is None else append_time
            timestamp_type = 0 if append_time is None else 1
            self.rows.append(Row(base + delta, timestamp, timestamp_type, epoch, entry.key, entry.value, tuple(entry.headers)))
        self.end = base + len(entries)
        identity, producer_epoch, sequence = producer
        if identity >= 0:
            state = self.producers.setdefault(identity, Producer(producer_epoch))
            state.epoch = producer_epoch
            state.last_sequence = sequence + len(entries) - 1
            state.last_base, state.last_entries = base, tuple(entries)
            if transactional and state.transaction_start < 0:
                state.transaction_start = base
        return base

    def marker(  # noqa: PLR0913  # one parameter a choice
        self, identity: int, producer_epoch: int, *, commit: bool, epoch: int, timestamp: int | None, coordinator_epoch: int = 0
    ) -> int:
        """Write down the end of a transaction; returns the marker's offset."""
        offset = self.end
        self._epoch_at(epoch, offset)
        self.markers.append(Marker(offset, timestamp, commit, epoch))
        self.end = offset + 1
        state = self.producers.setdefault(identity, Producer(producer_epoch))
        if state.epoch != producer_epoch:
            state.epoch, state.last_sequence = producer_epoch, -1
        state.coordinator_epoch = coordinator_epoch
        if state.transaction_start >= 0 and not commit:
            self.aborted_transactions.append((identity, state.transaction_start, offset))
        state.transaction_start = -1
        return offset

    def broker_marker(self, *, commit: bool, epoch: int) -> None:
        """Write down a marker that a broker appended for a producer of its own."""
        self._epoch_at(epoch, self.end)
        self.markers.append(Marker(self.end, None, commit, epoch))
        self.end += 1

    def mark_aborted(self, offsets: Sequence[int]) -> None:
        """Say which records an aborted transaction wrote."""
        self.aborted.update(offsets)

    def cut(self, offset: int) -> None:
        """Forget all from `offset` on. Books of partitions with producers are not cut."""
        assert not self.producers
        self.rows = [row for row in self.rows if row.offset < offset]
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < offset]
        self.end = offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, else the end."""
        return min((state.transaction_start for state in self.producers.values() if state.transaction_start >= 0), default=self.end)

    @property
    def leader_epoch(self) -> int:
        """The latest epoch that wrote."""
        return self.epochs[-1][0]

    def readable(self, *, committed: bool) -> list[Row]:
        """What a consumer gets."""
        end = self.last_stable_offset if committed else self.end
        hidden = self.aborted if committed else ()
        return [row for row in self.rows if self.log_start_offset <= row.offset < end and row.offset not in hidden]

    def times(self) -> list[tuple[int, int]]:
        """Offset and timestamp of all that is readable, markers included."""
        found = [(row.offset, row.timestamp) for row in self.rows]
        for marker in self.markers:
            assert marker.timestamp is not None, "a broker's clock"
            found.append((marker.offset, marker.timestamp))
        return sorted(pair for pair in found if pair[0] >= self.log_start_offset)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """The first one that is not before `timestamp`, markers included."""
        return next((pair for pair in self.times() if pair[1] >= timestamp), None)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch`, and where it ends; (-1, -1) where nothing is known."""
        known = [number for number, _ in self.epochs]
        if not known or epoch > known[-1]:
            return (-1, -1)
        place = bisect.bisect_right(known, epoch)
        if place == 0:
            return (epoch, self.epochs[0][1])
        end = self.epochs[place][1] if place < len(known) else self.end
        return (known[place - 1], end)
