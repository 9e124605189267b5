"""The public Python API of offsetlog as the other side of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow
from interface import TOPIC_ID, Batch, Clock, Ends, Fetched, Info, Marker, Opening, Read, Refusal, Timed

from offsetlog import AppendInfo, Log, OffsetLogError, Record, WritableLog

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
T = TypeVar("T")
CODECS: dict[str, Codec | None] = {"none": None, "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}
# One batch, however much is in it.
ROOM = 1 << 24


def answer(ask: Callable[[], T]) -> T:
    """Asks, and turns an error of offsetlog's into a refusal. Any other exception is a fault and stays one."""
    try:
        return ask()
    except OffsetLogError as error:
        name = type(error).__name__
        raise Refusal(frozenset({name}), f"{name}: {error}") from error


def told(info: AppendInfo) -> Info:
    """What an append answers, as far as Kafka does too."""
    return Info(*info[:5])


class OurLog:
    """`offsetlog.Log` in mode "a"."""

    name = "offsetlog"

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self._log: WritableLog | None = None
        self._config: dict[str, str] | None = None

    @property
    def log(self) -> WritableLog:
        """The open log."""
        assert self._log is not None
        return self._log

    def open(self, opening: Opening) -> Ends:
        # What was given once stands in the directory.
        config = None if opening.config == self._config else dict(opening.config)

        def ask() -> WritableLog:
            return Log.open(
                str(self.directory),
                mode="a",
                config=config,
                clock=lambda: self._clock.now,
                topic_id=TOPIC_ID,
                # A clean end is found in the directory; in a log dir, everything is.
                recovery_point=None if opening.clean else opening.recovery_point,
                clean=None if opening.clean or opening.checkpoints else False,
            )

        self._log = answer(ask)
        self._config = opening.config
        return self.ends()

    def close(self, *, clean: bool) -> None:
        log = self.log
        self._log = None
        answer(log.close if clean else log._abandon)  # noqa: SLF001  # as after a kill

    def configure(self, config: dict[str, str]) -> None:
        def ask() -> None:
            self.log.config = config

        answer(ask)
        self._config = config

    def ends(self) -> Ends:
        log = self.log
        return Ends(log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset, log.recovery_point)

    def append_rows(self, batch: Batch, form: str, leader_epoch: int, *, flush: bool = False) -> Info:
        return answer(lambda: self._append_rows(batch, form, leader_epoch, flush=flush))

    def _append_rows(self, batch: Batch, form: str, leader_epoch: int, *, flush: bool) -> Info:
        log, rows = self.log, batch.rows
        codec: Codec | None = CODECS[batch.codec]
        if form == "single":
            (row,) = rows
            offset = log.append(
                row.value, key=row.key, headers=row.headers, timestamp=row.timestamp, leader_epoch=leader_epoch, flush=flush
            )
            return Info(offset, offset)
        if form == "writer":
            with log.writer(batch_bytes=ROOM, linger_ms=600_000, compression=codec, leader_epoch=leader_epoch) as writer:
                for row in rows:
                    writer.append(row.value, key=row.key, headers=row.headers, timestamp=row.timestamp)
                written = writer.flush()
            if flush:
                log.flush()
            return Info(None, None) if written is None else told(written)
        if form == "arrow":
            info = log.append_arrow(_table(batch), compression=codec, leader_epoch=leader_epoch, flush=flush, batch_bytes=ROOM)
            return told(info)
        records = [
            Record(log.topic, log.partition, 0, timestamp=row.timestamp, key=row.key, value=row.value, headers=row.headers)
            for row in rows
        ]
        info = log.append_records(
            records,
            compression=codec,
            leader_epoch=leader_epoch,
            flush=flush,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.transactional,
        )
        return told(info)

    def append_bytes(self, data: bytes, leader_epoch: int, origin: str, *, flush: bool = False) -> Info:
        sender: Literal["client", "coordinator"] = "coordinator" if origin == "coordinator" else "client"

        def ask() -> Info:
            return told(self.log.append_batches(data, leader_epoch=leader_epoch, origin=sender, flush=flush))

        return answer(ask)

    def append_as_follower(self, data: bytes, leader_epoch: int) -> Info:
        return answer(lambda: told(self.log.append_as_follower(data, leader_epoch=leader_epoch)))

    def append_marker(self, marker: Marker, leader_epoch: int) -> Info:
        def ask() -> Info:
            return told(
                self.log.append_marker(
                    marker.producer_id,
                    marker.producer_epoch,
                    commit=marker.commit,
                    coordinator_epoch=marker.coordinator_epoch,
                    leader_epoch=leader_epoch,
                    timestamp=marker.timestamp,
                    transaction_version=marker.transaction_version,
                )
            )

        return answer(ask)

    def roll(self) -> int:
        return answer(self.log.roll)

    def flush(self) -> None:
        answer(self.log.flush)

    def truncate_to(self, offset: int) -> bool:
        return answer(lambda: self.log.truncate_to(offset))

    def truncate_fully(self, offset: int, log_start_offset: int | None) -> None:
        answer(lambda: self.log.truncate_fully_and_start_at(offset, log_start_offset))

    def delete_records_before(self, offset: int) -> bool:
        return answer(lambda: self.log.delete_records_before(offset))

    def fetch(self, offset: int, max_bytes: int, *, committed: bool) -> Fetched:
        level: IsolationLevel = "read_committed" if committed else "read_uncommitted"
        found = answer(lambda: self.log.fetch(offset, max_bytes=max_bytes, isolation_level=level))
        aborted = tuple((entry.producer_id, entry.first_offset) for entry in found.aborted)
        return Fetched(bytes(found.records), found.high_watermark, found.last_stable_offset, found.log_start_offset, aborted)

    def offsets_for_times(self, timestamps: Sequence[int]) -> list[Timed | None]:
        found = answer(lambda: [self.log.offset_for_timestamp(when) for when in timestamps])
        return [None if one is None else Timed(*one) for one in found]

    def records(self) -> list[Read]:
        found = answer(lambda: list(self.log.scan()))
        return [Read(one.offset, one.timestamp, one.key, one.value, one.headers) for one in found]

    def ends_of_epochs(self, epochs: Sequence[int]) -> list[tuple[int, int] | None]:
        return answer(lambda: [self.log.end_offset_for_epoch(epoch) for epoch in epochs])


def _table(batch: Batch) -> pyarrow.Table:
    rows = batch.rows
    headers = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
    return pyarrow.table(
        {
            "key": pyarrow.array([row.key for row in rows], pyarrow.binary()),
            "value": pyarrow.array([row.value for row in rows], pyarrow.binary()),
            "timestamp": pyarrow.array([row.timestamp for row in rows], pyarrow.timestamp("ms", tz="UTC")),
            "headers": pyarrow.array(
                [[{"key": name, "value": value} for name, value in row.headers] if row.headers else None for row in rows], headers
            ),
        }
    )
