"""``WritableLog``: one partition directory that is open for appending; over 600 lines: one class, two thirds of it documentation."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from offsetlog import _offsetlog
from offsetlog._append_arguments import (
    ArrowArrayable,
    ArrowStreamable,
    Buffer,
    Compression,
    Headers,
    NewRecord,
    Origin,
    append_options,
    checked_compression,
    checked_epoch,
    config_pairs,
    encoded,
)
from offsetlog._config import LogConfig
from offsetlog._log import Log
from offsetlog._maintain import UPKEEP, Upkeep, maintain_options, pairs_of
from offsetlog._options import MarkerOptions, OpenOptions, bounded, flag, integer, refuse
from offsetlog._scan import Scan
from offsetlog._times import optional_millis
from offsetlog._values import AppendInfo, Compaction, MaintainReport, RecoveryReport
from offsetlog._writers import remembered
from offsetlog.errors import ForkedLogError

if TYPE_CHECKING:
    from offsetlog._config import SettingValue
    from offsetlog._offsetlog import Writer
    from offsetlog._options import When

__all__ = ["WritableLog", "moving_note"]

logger = logging.getLogger("offsetlog")

# Above any that a batch can have.
_NEWEST_EPOCH = (1 << 31) - 1


class WritableLog(Log):
    """A :class:`Log` that is open for appending: ``Log.open(path, "a")``. Its process is the only one that writes the partition.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Log.open(f"{folder}/orders-0", "a") as log:
    ...     log.append(b"paid", key=b"order-7")
    0
    """

    __slots__ = ("_appender",)

    _appender: _offsetlog.Appender | None

    @classmethod
    def _writing_to(cls, native: _offsetlog.Log, path: str, options: OpenOptions, appender: _offsetlog.Appender) -> WritableLog:
        log = cls._of(native, path, options)
        log._appender = appender  # noqa: SLF001  # its own
        return log

    def _after_fork(self) -> NoReturn:
        message = (
            f"{self._topic}-{self._partition} was opened for appending in process {self._pid}; "
            "a child process cannot write through its parent's log: open it there with mode 'r'"
        )
        raise ForkedLogError(message, path=self._path)

    def _writing(self) -> _offsetlog.Appender:
        """Return the native appender of a log that is not closed."""
        self._engine()
        appender = self._appender
        assert appender is not None  # noqa: S101  # `close` takes both away
        return appender

    def _refuse_use(self) -> NoReturn:
        """Raise the error of a log that is closed, or that was opened in the parent process."""
        self._writing()
        raise AssertionError

    def _is_done(self) -> bool:
        appender = self._appender
        return appender is not None and appender.is_closed()

    def _durable_end(self) -> int:
        return self.durable_end_offset

    @property
    def mode(self) -> Literal["r", "a"]:
        """``"a"``."""
        return "a"

    def close(self) -> None:
        """Flush, trim the indexes, write a producer snapshot and the mark of a clean end, and give the locks back.

        What waits in a :class:`Writer` is appended before; an error of that is raised, with a note of how many records are not in the
        log. Closing twice is fine; iterators and streams that are already running go on. After an error the log is closed all the
        same, and the next opening recovers it.
        """
        native, self._native = self._native, None
        if native is not None and self._pid == os.getpid():
            # Its files go with it.
            appender, self._appender = self._appender, None
            if appender is not None:
                appender.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._engine()
        message = "a log that is open for appending does not pickle; pickle its path, or a log opened for reading"
        raise TypeError(message)

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
        return self._writing().recovery_report()

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
        appender = self._appender
        if flush is not False:
            flag("flush", flush)
        # All else is checked there: a few calls in Python cost as much as the append.
        offset = None if appender is None else appender.append(value, key, headers, timestamp, leader_epoch, flush)
        return self._refuse_use() if offset is None else offset

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
        return self._writing().append_records(
            records,
            compression=checked_compression(compression),
            leader_epoch=checked_epoch(leader_epoch),
            flush=flag("flush", flush),
            producer_id=bounded("producer_id", producer_id, minimum=-1, bits=64),
            producer_epoch=bounded("producer_epoch", producer_epoch, minimum=-1, bits=16),
            base_sequence=bounded("base_sequence", base_sequence, minimum=-1, bits=32),
            transactional=flag("transactional", transactional),
        )

    def append_batches(
        self, data: Buffer, *, leader_epoch: int | None = None, origin: Origin = "client", flush: bool = False
    ) -> AppendInfo:
        """Append an encoded batch as a leader does: it gives offsets and epoch and checks what a broker checks of a producer.

        A batch that is compressed as the settings want keeps its bytes except offset and epoch; one of magic 0 or 1, or
        compressed otherwise, is re-encoded.

        Parameters
        ----------
        data
            One batch of magic 2, base offset 0; or messages of magic 0 or 1. An unfinished batch at the end is left out, as by a
            broker; ``left_out_bytes`` and a warning in the logger ``offsetlog`` tell.
        leader_epoch
            Epoch of the leader; ``None`` is the newest one of the log, or 0. One below the newest makes the log forget where the
            newer ones began, as a broker does.
        origin
            ``"coordinator"`` may send control batches and any base offset, and its sequences are not checked.

        Raises
        ------
        RecordRejectedError
            The bytes are malformed (framing, checksum, counts, payload), or a leader does not take the batch. And all of
            :meth:`append_records`.
        UnsupportedMagicError, UnsupportedCodecError
            A newer Kafka may have made the batch.
        """
        if origin not in {"client", "coordinator"}:
            refuse("origin", origin, f"must be 'client' or 'coordinator', found {origin!r}")
        appender = self._writing()
        epoch = checked_epoch(leader_epoch)
        return self._told(appender.append_batches(encoded(data), leader_epoch=epoch, origin=origin, flush=flag("flush", flush)))

    def append_as_follower(self, data: Buffer, *, leader_epoch: int | None = None, flush: bool = False) -> AppendInfo:
        """Append encoded batches as they are, offsets and epochs kept: what a replica, a mirror or a restore does.

        Gaps before and between batches are fine. They are not unpacked: a batch's contents may exceed ``max_decompressed_bytes``
        and ``max_headers``, and are then readable only with higher limits.

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
        RecordRejectedError
            The bytes are malformed: framing or checksum.
        LimitExceededError
            A batch of more than ``max_batch_bytes``.
        """
        epoch = _NEWEST_EPOCH if leader_epoch is None else bounded("leader_epoch", leader_epoch, minimum=0, bits=32)
        return self._told(self._writing().append_as_follower(encoded(data), leader_epoch=epoch, flush=flag("flush", flush)))

    def _told(self, info: AppendInfo) -> AppendInfo:
        if info.left_out_bytes:
            words = "%d of the bytes to append were left out: an unfinished batch at the end, or a newer leader's; %s"
            logger.warning(words, info.left_out_bytes, self.path)
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
        return self._writing().append_marker(
            MarkerOptions(
                producer_id=bounded("producer_id", producer_id, minimum=0, bits=64),
                producer_epoch=bounded("producer_epoch", producer_epoch, minimum=0, bits=16),
                commit=flag("commit", commit),
                coordinator_epoch=bounded("coordinator_epoch", coordinator_epoch, minimum=0, bits=32),
                timestamp=optional_millis(timestamp, "timestamp"),
                transaction_version=bounded("transaction_version", transaction_version, minimum=0, bits=16),
            ),
            append_options(leader_epoch, flush=flush),
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

        Close it, or use it in a ``with`` block. Closing the log appends what waits, too.

        Parameters
        ----------
        batch_bytes
            Greatest size of a batch before compression, header included; a larger record gets a batch of its own. Producers call it
            ``batch.size``.
        linger_ms
            A batch is appended when the next record does not fit, or when its oldest record has waited so long; 0 waits for size,
            :meth:`Writer.flush` and closing only.
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
        writer = self._writing().writer(
            batch_bytes=integer("batch_bytes", batch_bytes, minimum=1),
            linger_ms=integer("linger_ms", linger_ms, minimum=0),
            compression=checked_compression(compression),
            leader_epoch=checked_epoch(leader_epoch),
        )
        return remembered(writer)

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

        If `offset` is inside a batch, the whole batch is deleted, its lower records too; the next append still gets `offset`.
        Compare with :meth:`batches` before, where that matters.
        """
        return self._writing().truncate_to(integer("offset", offset, minimum=0))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Delete all records and continue at `offset`, as a follower whose leader has nothing older."""
        self._writing().truncate_fully_and_start_at(
            integer("offset", offset, minimum=0),
            None if log_start_offset is None else integer("log_start_offset", log_start_offset, minimum=0),
        )

    def delete_records_before(self, offset: int) -> bool:
        """Make `offset` the lowest offset that can be read, and return whether that changed anything.

        No record file is touched: whole segments below go with retention. An offset below the first segment of a topic with tiered
        storage is only stored: its broker then deletes what is below it in the remote store.

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

    def _move_log(self, source: str, batches: int) -> AppendInfo | None:
        """Move the segments of a staged log, which nobody has open, to the end of this one by renaming.

        ``None``, and nothing is changed, where its batches are to be copied; `batches` is how many they are. After an error or a crash
        a part of the segments may be in the log: `moving_note` has the batches of all.
        """
        return self._writing().move_log(source, batches, None)

    def _abandon(self) -> None:
        """Let go of files and locks as a killed process would, for tests of recovery."""
        self._writing().abandon()

    def append_arrow(  # noqa: PLR0913  # one parameter an option
        self,
        data: ArrowStreamable | ArrowArrayable,
        *,
        compression: Compression | None = None,
        leader_epoch: int | None = None,
        flush: bool = False,
        batch_bytes: int = 1 << 20,
        preserve_offsets: bool = False,
    ) -> AppendInfo:
        """Append the rows of Arrow data as records, encoded column by column without a Python object a row.

        Parameters
        ----------
        data
            Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``: a ``pyarrow`` table, record batch or reader, a
            ``polars.DataFrame``, a DuckDB relation, a :class:`Scan`. Its columns are found by name:

            ==============  ================================================  =============================================
            ``value``       binary or string in any layout, dictionaries      null is a tombstone
                            and run ends too; required
            ``key``         the same                                          null or no column: no key
            ``timestamp``   timestamp of any unit, or int64 ms since 1970     null or no column: the time of the call
            ``headers``     list of struct<key: string, value: binary>, map   null or no column: none
            ==============  ================================================  =============================================

            Finer parts of a timestamp than ms are cut off, the zone does not matter, and -1 ms is Kafka's «no timestamp». The other
            columns of a scan (``topic``, ``partition``, ``timestampType``, ``producerId``, ``producerEpoch``, ``sequence``, and
            without `preserve_offsets` ``offset`` and ``leaderEpoch``) are left out: the log gives its own. Any other name is
            refused.
        compression
            Codec of the batches where the setting ``compression.type`` is ``producer``; that setting wins otherwise.
        leader_epoch, flush
            As for :meth:`append`; with `flush`, all rows are on the disk when this returns.
        batch_bytes
            The rows become batches of at most this many bytes before compression, and of what ``max.message.bytes`` and
            ``segment.bytes`` allow. A larger record is a batch of its own.
        preserve_offsets
            A restore: each row keeps the offset of its column ``offset`` (int64, ascending, from the log end offset on), and the
            epoch of ``leaderEpoch`` (int32, null or -1 for that of the row before), if there is one. Gaps stay gaps. As with
            :meth:`append_as_follower`, timestamps and missing keys are not judged again. A timestamp below -1, which a broker stores
            where a producer sent one, stays; the batch's greatest one is then -1 or more, as in Kafka.

        Returns
        -------
        AppendInfo
            First and last offset of all rows (-1 without rows, when nothing is appended), the greatest timestamp, the last append
            time.

        Raises
        ------
        ConfigError
            A column has a name or type that cannot be used, or is missing; the buffers are not what their type says.
        RecordRejectedError
            A negative timestamp without `preserve_offsets`, a header without a key, no key in a compacted topic, a row that is null as
            a whole.
        InvalidTimestampError, RecordTooLargeError, RecordBatchTooLargeError, LimitExceededError
            As for :meth:`append`.
        UnexpectedAppendOffsetError
            With `preserve_offsets`, the first offset is below the log end offset.
        RuntimeError
            The maker of `data` failed to give it; the text is its own. A :class:`Scan` raises its own errors instead, that of several
            partitions :class:`UnreadPartitionsError`, and nothing is appended, of the sound ones neither. With ``on_corrupt``
            ``"skip"`` or ``"stop"`` what can be read is appended, and :attr:`Scan.report` has the rest.
        LogPoisonedError, OSError
            As for :meth:`append`.

        Notes
        -----
        All rows are read and checked before the first one is appended, so whatever the data can have wrong leaves the log as it
        was. A stream is held in memory meanwhile (a table's buffers are used where they are): append one that is too large for
        that piece by piece, ``for batch in reader: log.append_arrow(batch)``.

        Each batch is appended whole or not at all. Between two of them only the disk, Ctrl-C, or another thread that closes
        the log or changes its settings can end the work; the batches before then stay, and a note of the exception says how
        many rows those are and at which offsets. Batches that other threads append meanwhile may be between those of this call.
        The interpreter is free while rows are read, encoded and written.

        Examples
        --------
        >>> import tempfile, pyarrow
        >>> orders = pyarrow.table({"key": ["order-7", "order-8"], "value": [b"paid", None]})
        >>> with tempfile.TemporaryDirectory() as folder, Log.open(f"{folder}/orders-0", "a") as log:
        ...     log.append_arrow(orders).last_offset
        1
        """
        appender = self._writing()
        options, keep = append_options(leader_epoch, flush=flush), flag("preserve_offsets", preserve_offsets)
        codec, size = checked_compression(compression), integer("batch_bytes", batch_bytes, minimum=1)
        # Read by ourselves a scan's errors keep their classes.
        rows = data._batches() if isinstance(data, Scan) else data  # noqa: SLF001  # same package
        return _offsetlog.append_arrow(appender, rows, options, compression=codec, batch_bytes=size, keep_offsets=keep)

    def append_log(
        self,
        source: Log,
        *,
        start: int | None = None,
        preserve_offsets: bool = False,
        leader_epoch: int | None = None,
        flush: bool = False,
    ) -> AppendInfo:
        """Append the batches of another log behind the end of this one, without decoding or compressing them.

        Offset and leader epoch are 12 bytes of a batch that its checksum does not cover: only they change, and with
        `preserve_offsets` not even those. This is what publishes records that were written aside, and what puts copies together.

        Only whole batches are appended, and nothing else of `source`: if its log start offset is inside a batch, the records of
        that batch that were deleted there come along; a log end offset behind its last batch is not taken over. To copy a partition
        with both its ends, use :func:`salvage` or :func:`convert`.

        Parameters
        ----------
        source
            A log opened in any mode. Records appended to it meanwhile are left out.
        start
            First offset of `source`, the first one of a batch; its log start offset by default.
        preserve_offsets
            Offsets and epochs stay: the first one must not be below the log end offset.
        leader_epoch, flush
            As for :meth:`append`.

        Returns
        -------
        AppendInfo
            First and last offset here (-1 without batches) and the greatest timestamp.

        Raises
        ------
        ConfigError
            `start` is inside a batch, or a batch has magic 0 or 1: :func:`convert` rewrites such directories.
        UnexpectedAppendOffsetError
            With `preserve_offsets`, offsets below the log end offset.
        CorruptionError, OffsetOutOfRangeError, OSError
            As for reading `source`; the records appended until then stay.

        Notes
        -----
        Settings of the log (``compression.type``, timestamps, keys under compaction) are not applied. Of the limits only
        ``max_batch_bytes`` is compared, as by :meth:`append_as_follower`. Each batch is appended whole
        or not at all; after an error or a crash the first ones may be in the log.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with Log.open(f"{folder}/aside-0", "a") as aside, Log.open(f"{folder}/orders-0", "a") as orders:
        ...     _ = aside.append_records([b"paid", b"sent"])
        ...     _ = orders.append(b"first")
        ...     orders.append_log(aside).last_offset
        2
        """
        engine: Callable[[], _offsetlog.Log] | None = getattr(source, "_engine", None)
        native = engine() if engine is not None else None
        if not isinstance(native, _offsetlog.Log):
            message = f"source must be a Log, found {type(source).__name__}"
            raise TypeError(message)
        return self._writing().append_log(
            native,
            append_options(leader_epoch, flush=flush),
            start=None if start is None else integer("start", start, minimum=0),
            keep_offsets=flag("preserve_offsets", preserve_offsets),
        )

    def maintain(
        self,
        *,
        now: When | None = None,
        dry_run: bool = False,
        only: Upkeep | Iterable[Upkeep] = UPKEEP,
        config: LogConfig | Mapping[str, SettingValue] | None = None,
    ) -> MaintainReport:
        """Do the upkeep that is due now, once; appends and readers continue meanwhile.

        Parameters
        ----------
        now
            The time from which the ages of records are reckoned, and by which files that were deleted before have waited long enough;
            the log's clock by default. What this run deletes waits by the log's clock all the same.
        dry_run
            Change nothing, and return the report of what would be done now. A compaction that is due is done aside for that:
            it takes as long, and room for what would be written, in memory and beyond 256 MiB in a file without a name in the folder
            for temporary ones. ``only=["retention", "deletes"]`` leaves it out.
        only
            ``"compaction"`` cleans a log with the policy ``compact`` where it is dirty enough, ``"retention"`` removes segments by
            the retention settings and the log start offset, ``"deletes"`` removes files whose ``file.delete.delay.ms`` is over.
        config
            Settings that count above all others, this once.

        Raises
        ------
        CorruptionError
            A batch that was to be compacted is damaged, and its segment is left as it is; or damage hides the times of a segment, and
            retention removed only those before it. All else was done.
        ClusterError
            In a broker's log dir, or of a partition that offsetlog did not make: a setting that decides is not known. Or the topic is
            one that brokers keep for themselves.
        OSError
            The disk refused.

        Notes
        -----
        Compaction reads the dirty segments twice and those before them once, and holds at most 128 MiB of keys. What was done before
        an exception is in a note of it.
        """
        appender = self._writing()
        settings = None if config is None else pairs_of(config)
        return appender.maintain(maintain_options(now, only, settings, dry_run=dry_run))

    def compact(self, first_dirty: int | None = None, map_bytes: int | None = None) -> Compaction:
        """Run one pass of the cleaner, whatever the policy and however clean the log is.

        Of the records below the active segment with the same key, those go that a later one at or beyond `first_dirty` replaced.
        Tombstones stay for ``delete.retention.ms`` after the first pass that saw them.

        Parameters
        ----------
        first_dirty
            First offset that counts as not compacted yet; where the last pass ended by default, and at most.
        map_bytes
            Most bytes of the table of keys, 24 a key; 128 MiB by default. With less, a log takes more passes.

        Raises
        ------
        ConfigError
            `map_bytes` is too small for a single key, or `first_dirty` is above where the last pass ended.
        CorruptionError
            A batch is damaged; its segment is left as it is.
        OSError
            The disk refused.
        """
        return self._writing().compact(
            first_dirty=None if first_dirty is None else integer("first_dirty", first_dirty, minimum=0),
            map_bytes=None if map_bytes is None else integer("map_bytes", map_bytes, minimum=0),
        )


def moving_note(source: str) -> list[tuple[int, int, int]] | None:
    """Return size, checksum and last offset delta of each batch of a staged log that is being moved; ``None`` if that has not begun.

    Raises
    ------
    LogDirError
        The note in its directory is not one that this version has written.
    """
    return _offsetlog.moving_note(source)
