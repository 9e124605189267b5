"""The verbs that write: what a :class:`~offsetlog.Log` opened with mode ``"a"`` can do beside reading."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from offsetlog import _offsetlog
from offsetlog._append_many import AppendingMany, Compression, checked_compression, checked_epoch
from offsetlog._config import LogConfig, to_log_config
from offsetlog._options import (
    bounded,
    integer,
    refuse,
)
from offsetlog._recover import report_of
from offsetlog._times import optional_millis
from offsetlog._values import AppendInfo, RecoveryReport
from offsetlog.errors import ForkedLogError, LogClosedError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from offsetlog._config import SettingValue
    from offsetlog._offsetlog import Record, _Info
    from offsetlog._options import When

__all__ = ["Writer"]

logger = logging.getLogger("offsetlog")

# Above any that a batch can have.
_NEWEST_EPOCH = (1 << 31) - 1

Buffer: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = Iterable[tuple[str, bytes | None]]
NewRecord: TypeAlias = "bytes | tuple[bytes | None, bytes | None] | Record | None"
Origin: TypeAlias = Literal["client", "coordinator"]


class Appending(AppendingMany):
    """What writes. :class:`Log` is this and all that reads."""

    __slots__ = ()

    def _writing(self) -> _offsetlog.Appender:
        """Return the native appender, or say why there is none."""
        raise NotImplementedError

    @property
    def config(self) -> LogConfig:
        """The settings that hold, Kafka's topic settings by their names; stored beside the data. Can be set while the log is open."""
        return LogConfig.from_dict(dict(self._writing().config()))

    @config.setter
    def config(self, config: LogConfig | Mapping[str, SettingValue]) -> None:
        self._writing().set_config(config_pairs(config))

    @property
    def recovery_point(self) -> int:
        """Everything below is on the disk, exclusive: what the last flush reached. Waits for a flush that a roll began."""
        return self._writing().recovery_point()

    @property
    def durable_end_offset(self) -> int:
        """The same as :attr:`recovery_point`: records below survive power loss."""
        return self._writing().recovery_point()

    @property
    def recovery_report(self) -> RecoveryReport:
        """What opening found and changed."""
        return report_of(self._writing().recovery_report())

    def append(  # noqa: PLR0913  # one parameter a field
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: When | None = None,
        leader_epoch: int | None = None,
        flush: bool = False,
    ) -> int:
        """Append one record as a batch of its own and return its offset.

        Parameters
        ----------
        value, key
            Bytes, or ``None``: a record without a value is a tombstone to compaction.
        headers
            Pairs of a name and bytes or ``None``.
        timestamp
            ``int`` of ms since 1970, an aware ``datetime``, or ``None`` for now. -1 is Kafka's «no timestamp».
        leader_epoch
            Epoch of the leader; ``None`` is the newest one of the log, or 0.
        flush
            Whether the record is on the disk when this returns.

        Returns
        -------
        int
            The record's offset.

        Raises
        ------
        RecordTooLargeError
            The batch is larger than ``max.message.bytes``.
        InvalidTimestampError
            The timestamp is further from now than ``message.timestamp.before.max.ms`` or ``after.max.ms`` allow.
        RecordRejectedError
            The topic is compacted and there is no key.
        LimitExceededError
            The log's own limits would not let it be read back: more headers than ``max_headers``, a batch of more than
            ``max_batch_bytes`` or, compressed, of more than ``max_decompressed_bytes``. See :meth:`Log.open`.
        ConfigError
            The name of a header is no Unicode text: it has a lone surrogate that stands for no byte.
        LogPoisonedError
            An earlier failure of the disk: close, and open again, which recovers.
        OSError
            The disk refused. The log is as it was before.

        Notes
        -----
        When this returns, the whole batch has been handed to the operating system: it survives the death of the process. It
        survives power loss after :meth:`flush`, ``flush=True``, or as the settings ``flush.messages`` and ``flush.ms`` say. Many small
        records go faster through :meth:`writer` or :meth:`append_records`.
        """
        return self._writing().append(
            checked_bytes("value", value),
            checked_bytes("key", key),
            checked_headers(headers),
            optional_millis(timestamp, "timestamp"),
            checked_epoch(leader_epoch),
            bool(flush),
        )

    def append_records(  # noqa: PLR0913  # one parameter an option
        self,
        records: Iterable[NewRecord],
        *,
        compression: Compression | None = None,
        leader_epoch: int | None = None,
        flush: bool = False,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> AppendInfo:
        """Append records as one batch: all of them or, after an error, none.

        Parameters
        ----------
        records
            Each is ``bytes`` (a value), ``(key, value)``, ``None`` (a null value) or a :class:`Record`, of which key, value,
            headers and timestamp are taken. Where a record has no timestamp of its own, the time of the call.
        compression
            Codec of the batch where the setting ``compression.type`` is ``producer``; that setting wins otherwise.
        producer_id, producer_epoch, base_sequence, transactional
            Of an idempotent or transactional producer: a batch sent twice is recognised, a gap in the sequence refused.

        Raises
        ------
        OutOfOrderSequenceError, ProducerFencedError, InvalidTxnStateError
            What a broker answers to such a producer.
        RecordRejectedError
            No record at all, or a bad one; and all of :meth:`append`.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Log.open(f"{folder}/orders-0", "a") as log:
        ...     log.append_records([b"new", (b"order-7", b"paid")]).last_offset
        1
        """
        return AppendInfo._make(
            self._writing().append_records(
                records,
                compression=checked_compression(compression),
                leader_epoch=checked_epoch(leader_epoch),
                flush=bool(flush),
                producer_id=bounded("producer_id", producer_id, minimum=-1, bits=64),
                producer_epoch=bounded("producer_epoch", producer_epoch, minimum=-1, bits=16),
                base_sequence=bounded("base_sequence", base_sequence, minimum=-1, bits=32),
                transactional=bool(transactional),
            )
        )

    def append_batches(
        self, data: Buffer, *, leader_epoch: int | None = 0, origin: Origin = "client", flush: bool = False
    ) -> AppendInfo:
        """Append an encoded batch as a leader does: it gives offsets and epoch and checks what a broker checks of a producer.

        A batch that is compressed as the settings want keeps its bytes but for offset and epoch; one of magic 0 or 1, or
        compressed otherwise, is encoded anew.

        Parameters
        ----------
        data
            One batch of magic 2, base offset 0; or messages of magic 0 or 1. An unfinished batch at the end is left out, as by a
            broker; ``left_out_bytes`` and a warning in the logger ``offsetlog`` tell.
        origin
            ``"coordinator"`` may send control batches and any base offset, and its sequences are not checked.

        Raises
        ------
        CorruptBatchError
            Framing or checksum. And all of :meth:`append_records`.
        """
        if origin not in {"client", "coordinator"}:
            refuse("origin", origin, f"must be 'client' or 'coordinator', found {origin!r}")
        native = self._writing().append_batches(_encoded(data), checked_epoch(leader_epoch), origin, bool(flush))
        return self._told(native)

    def append_as_follower(self, data: Buffer, *, leader_epoch: int | None = None, flush: bool = False) -> AppendInfo:
        """Append encoded batches as they are, offsets and epochs kept: what a replica, a mirror or a restore does.

        Gaps before and between batches are fine. They are not unpacked: what is in a batch may be above ``max_decompressed_bytes``
        and ``max_headers``, and is then read with higher ones only.

        Parameters
        ----------
        data
            Batches. An unfinished one at the end, as a fetch has it, is left out; ``left_out_bytes`` and a warning in the logger
            ``offsetlog`` tell.
        leader_epoch
            The newest epoch that a replica has heard of, 0 or more: batches of a newer one are left out with all behind them, as a
            follower does that is sent them again, and told in the same way. ``None`` takes all.

        Raises
        ------
        UnexpectedAppendOffsetError
            The first batch begins below the log end offset.
        OffsetsOutOfOrderError
            The batches do not ascend.
        CorruptBatchError
            Framing or checksum.
        LimitExceededError
            A batch of more than ``max_batch_bytes``.
        """
        epoch = _NEWEST_EPOCH if leader_epoch is None else bounded("leader_epoch", leader_epoch, minimum=0, bits=32)
        return self._told(self._writing().append_as_follower(_encoded(data), epoch, bool(flush)))

    def _told(self, native: _Info) -> AppendInfo:
        info = AppendInfo._make(native)
        if info.left_out_bytes:
            words = "%d of the bytes to append were left out: an unfinished batch at the end, or a newer leader's; %s"
            logger.warning(words, info.left_out_bytes, getattr(self, "path", ""))
        return info

    def append_marker(  # noqa: PLR0913  # one parameter a field
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        leader_epoch: int | None = None,
        timestamp: When | None = None,
        transaction_version: int = 0,
        flush: bool = False,
    ) -> AppendInfo:
        """End a producer's transaction with a marker, as a transaction coordinator does.

        Raises
        ------
        ProducerFencedError, TransactionCoordinatorFencedError
            The epoch of the producer or the coordinator is behind.
        """
        return AppendInfo._make(
            self._writing().append_marker(
                bounded("producer_id", producer_id, minimum=0, bits=64),
                bounded("producer_epoch", producer_epoch, minimum=0, bits=16),
                commit=bool(commit),
                coordinator_epoch=bounded("coordinator_epoch", coordinator_epoch, minimum=0, bits=32),
                leader_epoch=checked_epoch(leader_epoch),
                timestamp=optional_millis(timestamp, "timestamp"),
                transaction_version=bounded("transaction_version", transaction_version, minimum=0, bits=16),
                flush=bool(flush),
            )
        )

    def writer(
        self,
        *,
        batch_bytes: int = 16_384,
        linger_ms: int = 5,
        compression: Compression | None = None,
        leader_epoch: int | None = None,
    ) -> Writer:
        """Return a writer that gathers many small appends into batches.

        Parameters
        ----------
        batch_bytes
            A batch is appended when it has so many bytes before compression.
        linger_ms
            Or when its oldest record has waited so long; 0 waits for size, :meth:`Writer.flush` and closing only.
        compression
            As for :meth:`append_records`.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Log.open(f"{folder}/orders-0", "a") as log:
        ...     with log.writer(compression="lz4") as writer:
        ...         for number in range(1000):
        ...             writer.append(b"paid", key=b"order-%d" % number)
        ...     log.log_end_offset
        1000
        """
        return Writer(
            _offsetlog.Writer(
                self._writing(),
                batch_bytes=integer("batch_bytes", batch_bytes, minimum=1),
                linger_ms=integer("linger_ms", linger_ms, minimum=0),
                compression=checked_compression(compression),
                leader_epoch=checked_epoch(leader_epoch),
            )
        )

    def flush(self) -> None:
        """Make everything appended so far durable: records, indexes, and the names of new files.

        Raises
        ------
        OSError
            The disk refused; nothing more can be appended until the log is opened again, which recovers.
        """
        self._writing().flush()

    def roll(self) -> int:
        """Close the active segment and begin a new one; an empty one stays. Return the active segment's base offset."""
        return self._writing().roll()

    def truncate_to(self, offset: int) -> bool:
        """Take the records from `offset` on away, and return whether there were any.

        Where `offset` lies inside a batch the whole batch goes: its lower records too, and the next append still gets `offset`.
        Compare with :meth:`batches` before, where that matters.
        """
        return self._writing().truncate_to(integer("offset", offset, minimum=0))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Take all records away and go on at `offset`, as a follower whose leader has nothing older."""
        self._writing().truncate_fully_and_start_at(
            integer("offset", offset, minimum=0),
            None if log_start_offset is None else integer("log_start_offset", log_start_offset, minimum=0),
        )

    def delete_records_before(self, offset: int) -> bool:
        """Make `offset` the lowest offset that can be read, and return whether that changed anything.

        No record file is touched: whole segments below go with retention.

        Raises
        ------
        OffsetOutOfRangeError
            `offset` is above the high watermark.
        """
        return self._writing().delete_records_before(integer("offset", offset, minimum=0))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return the greatest leader epoch at or below `epoch` and where it ended, as a leader answers a follower.

        ``None`` where the log knows no such epoch.
        """
        return self._writing().end_offset_for_epoch(bounded("epoch", epoch, minimum=-1, bits=32))

    def _abandon(self) -> None:
        """Let go of files and locks as a killed process would, for tests of recovery."""
        self._writing().abandon()


class Writer:
    """Many small appends, gathered into batches. Made by :meth:`Log.writer`; safe to use from several threads.

    A record counts as appended when its batch is: at the latest after :meth:`flush`, or when the writer is closed. The offsets
    come with :meth:`flush`.
    """

    __slots__ = ("_native", "_pid")

    def __init__(self, native: _offsetlog.Writer) -> None:
        self._native: _offsetlog.Writer | None = native
        self._pid = os.getpid()

    def append(self, value: Buffer | None, *, key: Buffer | None = None, headers: Headers = (), timestamp: When | None = None) -> None:
        """Add a record to the batch, which is appended when it is full or has waited long enough.

        Raises
        ------
        OSError, InvalidTimestampError, RecordTooLargeError
            As :meth:`Log.append`; also for an earlier batch that the writer's timer appended. The records of a batch that was refused
            are not in the log.
        """
        self._open().append(
            value if type(value) is bytes else checked_bytes("value", value),
            key if key is None or type(key) is bytes else checked_bytes("key", key),
            checked_headers(headers) if headers else None,
            None if timestamp is None else optional_millis(timestamp, "timestamp"),
        )

    def flush(self) -> AppendInfo | None:
        """Append what waits, and return what the last append did; ``None`` before the first."""
        last = self._open().flush()
        return None if last is None else AppendInfo._make(last)

    def close(self) -> None:
        """Append what waits and end the writer. Closing twice is fine."""
        native, self._native = self._native, None
        # In a forked child the records that wait are the parent's to append.
        if native is not None and self._pid == os.getpid():
            native.close()

    def _open(self) -> _offsetlog.Writer:
        if self._native is None:
            message = "the writer is closed"
            raise LogClosedError(message)
        if self._pid != os.getpid():
            message = f"the writer was made in process {self._pid}; a child process cannot write through its parent's log"
            raise ForkedLogError(message)
        return self._native

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


def config_pairs(config: object) -> list[tuple[str, str]]:
    """Return settings as the engine takes them."""
    if not isinstance(config, LogConfig | Mapping):
        message = f"config must be a LogConfig or a mapping of Kafka's names, found {type(config).__name__}"
        raise TypeError(message)
    return list(to_log_config(config)._given)  # noqa: SLF001  # same package


def checked_bytes(name: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    message = f"{name} must be bytes or None, found {type(value).__name__}"
    if isinstance(value, str):
        message += ": encode a str, as in text.encode()"
    raise TypeError(message)


def _encoded(data: object) -> bytes:
    found = checked_bytes("data", data)
    if found is None:
        message = "data must be bytes, found NoneType"
        raise TypeError(message)
    return found


def checked_headers(headers: object) -> list[tuple[bytes, bytes | None]]:
    if isinstance(headers, Mapping):
        headers = headers.items()
    if not isinstance(headers, Iterable):
        message = f"headers must be pairs of a str and bytes or None, found {type(headers).__name__}"
        raise TypeError(message)
    checked = []
    for pair in headers:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[0], str):  # noqa: PLR2004  # a pair
            message = f"a header must be a pair of a str and bytes or None, found {pair!r}"
            raise TypeError(message)
        # Names that are not UTF-8 come out of a record with lone surrogates, and go back as they were.
        checked.append((_header_name(pair[0]), checked_bytes("a header's value", pair[1])))
    return checked


def _header_name(name: str) -> bytes:
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        refuse("headers", ascii(name), f"the name {name!a} is no Unicode text: {error.reason} at {error.start}")
