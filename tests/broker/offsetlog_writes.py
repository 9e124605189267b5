"""Writes through offsetlog's public API, and notes what a reader must find afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import pyarrow as pa
from expected_state import NO_PRODUCER, ExpectedState
from peers import Appended, encoded

from offsetlog import AppendInfo, Log, Record, WritableLog

SETTINGS: Mapping[str, str | int] = {"internal.segment.bytes": 8192, "index.interval.bytes": 512}
"""Small segments with many index entries: every partition of these tests has several."""

Way = Literal["records", "arrow", "kafka-python", "aiokafka"]
"""How a batch is handed over: as records, as columns, or as the bytes that a client built."""
WAYS: tuple[Way, ...] = ("records", "arrow", "kafka-python", "aiokafka")
WITH_PRODUCER: tuple[Way, ...] = ("records", "kafka-python", "aiokafka")
"""Those that can name a producer; columns cannot."""

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = get_args(Codec)


class OffsetlogWrites:
    """One log in mode "a", and what it must hold."""

    def __init__(  # noqa: PLR0913  # one parameter a choice
        self, path: Path, expected: ExpectedState, *, epoch: int, highest_epoch: int, now: int, settings: Mapping[str, str | int]
    ) -> None:
        self.path = path
        self.expected = expected
        self.epoch = epoch
        self.highest_epoch = highest_epoch
        self.now = now
        self._settings = {**SETTINGS, **settings}
        self._stamped = settings.get("message.timestamp.type") == "LogAppendTime"
        self._log: WritableLog | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    @property
    def log(self) -> WritableLog:
        """The open log."""
        assert self._log is not None
        return self._log

    def open(self) -> None:
        """Open the directory for writing; the clock stands still at `now`."""
        self._log = Log.open(self.path, "a", dict(self._settings), clock=lambda: self.now)

    def crash(self, damage: Callable[[Path], None]) -> None:
        """Let go of the files as a killed process does, damage them, and open them again."""
        self.log._abandon()  # noqa: SLF001  # there for tests
        damage(self.path)
        self.open()

    @property
    def _append_time(self) -> int | None:
        return self.now if self._stamped else None

    def one(self, entry: Appended) -> None:
        """A batch of one record."""
        offset = self.log.append(entry.value, key=entry.key, headers=entry.headers, timestamp=entry.timestamp, leader_epoch=self.epoch)
        assert offset == self.expected.batch([entry], epoch=self.epoch, append_time=self._append_time)

    def through_writer(self, entries: Sequence[Appended], *, compression: Codec = "none", batch_bytes: int = 2_000) -> None:
        """Records that the buffering writer packs into batches as it likes."""
        with self.log.writer(leader_epoch=self.epoch, compression=compression, batch_bytes=batch_bytes, linger_ms=1_000) as writer:
            for entry in entries:
                writer.append(entry.value, key=entry.key, headers=entry.headers, timestamp=entry.timestamp)
        self.expected.batch(entries, epoch=self.epoch, append_time=self._append_time)
        assert self.log.log_end_offset == self.expected.end

    def batch(
        self,
        entries: Sequence[Appended],
        way: Way = "records",
        *,
        codec: Codec = "none",
        producer: tuple[int, int, int] = NO_PRODUCER,
        transactional: bool = False,
    ) -> list[int]:
        """One batch; gives the offsets of its records."""
        base = self.expected.batch(
            entries, epoch=self.epoch, producer=producer, transactional=transactional, append_time=self._append_time
        )
        options: dict[str, Any] = {"leader_epoch": self.epoch}
        if way == "records":
            identity, producer_epoch, sequence = producer
            info = self.log.append_records(
                [Record("any", 0, 0, entry.timestamp, key=entry.key, value=entry.value, headers=entry.headers) for entry in entries],
                compression=codec,
                producer_id=identity,
                producer_epoch=producer_epoch,
                base_sequence=sequence,
                transactional=transactional,
                **options,
            )
        elif way == "arrow":
            assert producer == NO_PRODUCER
            info = self.log.append_arrow(columns(entries), compression=codec, batch_bytes=1 << 20, **options)
        else:
            assert not transactional
            info = self.log.append_batches(encoded(way, 2, codec, 0, entries, producer=producer), **options)
        self.agrees(info, base, len(entries))
        return list(range(base, base + len(entries)))

    def agrees(self, info: AppendInfo, base: int, count: int) -> None:
        """What the append answered is what is expected."""
        assert (info.base_offset, info.last_offset, info.duplicate) == (base, base + count - 1, False)
        assert info.log_append_time == (-1 if self._append_time is None else self._append_time)
        # A batch whose times all lie before 1970 has none in its header.
        assert info.max_timestamp == max(-1, *(row.timestamp for row in self.expected.rows[-count:]))
        assert self.log.log_end_offset == self.expected.end

    def copy(self, entries: Sequence[Appended], offset: int, *, codec: Codec, epoch: int) -> None:
        """A batch at its own offset, as a follower gets it from its leader."""
        self.expected.skip_to(offset)
        base = self.expected.batch(entries, epoch=epoch)
        data = encoded("kafka-python", 2, codec, offset, entries, leader_epoch=epoch)
        info = self.log.append_as_follower(data, leader_epoch=max(epoch, self.epoch))
        assert (info.base_offset, info.last_offset) == (base, base + len(entries) - 1)

    def end(self, identity: int, producer_epoch: int, *, commit: bool, timestamp: int, wrote: Sequence[int] = ()) -> None:
        """End a transaction that wrote these offsets here."""
        offset = self.expected.marker(identity, producer_epoch, commit=commit, epoch=self.epoch, timestamp=timestamp)
        info = self.log.append_marker(identity, producer_epoch, commit=commit, leader_epoch=self.epoch, timestamp=timestamp)
        assert info.base_offset == offset
        if not commit:
            self.expected.mark_aborted(wrote)
        assert self.log.last_stable_offset == self.expected.last_stable_offset


def columns(entries: Sequence[Appended]) -> pa.Table:
    """Records as a table."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table(
        {
            "key": pa.array([entry.key for entry in entries], pa.binary()),
            "value": pa.array([entry.value for entry in entries], pa.binary()),
            "timestamp": pa.array([entry.timestamp * 1000 for entry in entries], pa.timestamp("us", "UTC")),
            "headers": pa.array([[{"key": name, "value": value} for name, value in entry.headers] for entry in entries], headers),
        }
    )
