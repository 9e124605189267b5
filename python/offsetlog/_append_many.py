"""The verbs that append many records at once: columns of Arrow data, and whole logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from offsetlog import _offsetlog
from offsetlog._maintain import Maintaining
from offsetlog._options import bounded, integer
from offsetlog._values import AppendInfo
from offsetlog.errors import ConfigError

if TYPE_CHECKING:
    from offsetlog._log import Log

Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class ArrowStreamable(Protocol):
    """Data that comes as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule of the Arrow PyCapsule interface."""


class ArrowArrayable(Protocol):
    """Data that comes as one Arrow array of structs."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Return two capsules of the Arrow PyCapsule interface."""


_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class AppendingMany(Maintaining):
    """What appends many records at once. :class:`Log` has it."""

    __slots__ = ()

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
            The rows become batches of at most so many bytes before compression, and of what ``max.message.bytes`` and
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
            The maker of `data` failed to give it; the text is its own. A :class:`Scan` raises its own errors instead.
        LogPoisonedError, OSError
            As for :meth:`append`.

        Notes
        -----
        All rows are read and checked before the first one is appended, so whatever the data can have wrong leaves the log as it
        was. A stream is held in memory meanwhile (a table's buffers are used where they are): append one that is too large for
        that piece by piece, ``for batch in reader: log.append_arrow(batch)``.

        Each batch is appended whole or not at all. Between two of them only the disk, Ctrl-C, or another thread that closes
        the log or changes its settings can end the work; the batches before then stay, and a note of the exception says how
        many rows those are and at which offsets. Batches that other threads append meanwhile may stand between those of this
        call. The interpreter is free while rows are read, encoded and written.

        Examples
        --------
        >>> import tempfile, pyarrow
        >>> orders = pyarrow.table({"key": ["order-7", "order-8"], "value": [b"paid", None]})
        >>> with tempfile.TemporaryDirectory() as folder, Log.open(f"{folder}/orders-0", "a") as log:
        ...     log.append_arrow(orders).last_offset
        1
        """
        from offsetlog._scan import Scan  # noqa: PLC0415  # only those who append Arrow data need it

        appender = self._writing()
        return AppendInfo._make(
            _offsetlog.append_arrow(
                appender,
                # Read by ourselves a scan's errors keep their classes.
                data._native().read_all() if isinstance(data, Scan) else data,  # noqa: SLF001  # same package
                compression=checked_compression(compression),
                leader_epoch=checked_epoch(leader_epoch),
                flush=bool(flush),
                batch_bytes=integer("batch_bytes", batch_bytes, minimum=1),
                keep_offsets=bool(preserve_offsets),
            )
        )

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

        Parameters
        ----------
        source
            A log opened in any mode. What is appended to it meanwhile is left out.
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
            `start` is inside a batch, or a batch has magic 0 or 1: :func:`convert` makes such directories new.
        UnexpectedAppendOffsetError
            With `preserve_offsets`, offsets below the log end offset.
        CorruptionError, OffsetOutOfRangeError, OSError
            As for reading `source`; what was appended until then stays.

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
        return AppendInfo._make(
            self._writing().append_log(
                native,
                start=None if start is None else integer("start", start, minimum=0),
                keep_offsets=bool(preserve_offsets),
                leader_epoch=checked_epoch(leader_epoch),
                flush=bool(flush),
            )
        )


def checked_epoch(leader_epoch: int | None) -> int | None:
    if leader_epoch is None:
        return None
    return bounded("leader_epoch", leader_epoch, minimum=0, bits=32)


def checked_compression(compression: str | None) -> str | None:
    """Return `compression` if it names a codec."""
    if compression is not None and compression not in _COMPRESSIONS:
        message = f"compression: must be one of {', '.join(_COMPRESSIONS)}, found {compression!r}"
        raise ConfigError(message, key="compression", value=str(compression))
    return compression
