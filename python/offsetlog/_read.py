"""The verbs that read: what every :class:`~offsetlog.Log` can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from offsetlog import _offsetlog
from offsetlog._damage import DamageReport, verify
from offsetlog._options import (
    CheckedScan,
    IsolationLevel,
    OnCorrupt,
    OpenOptions,
    When,
    beyond,
    checked_scan,
    integer,
    isolation_level as checked_isolation,
    optional_offset,
    refuse,
)
from offsetlog._scan import Scan
from offsetlog._times import to_millis
from offsetlog._values import (
    AbortedTransaction,
    BatchInfo,
    FetchResult,
    IndexEntry,
    Location,
    OffsetAndTimestamp,
    Split,
)

if TYPE_CHECKING:
    from offsetlog._log import Log
    from offsetlog._offsetlog import Record

SPLIT_BYTES = 128 << 20


class Reading:
    """What reads. :class:`Log` is this and all that writes."""

    __slots__ = ()

    _absolute: str
    _options: OpenOptions
    _topic: str
    _partition: int

    def _engine(self) -> _offsetlog.Log:
        """Return the native log, or say that it is closed."""
        raise NotImplementedError

    def get(self, offset: int) -> Record | None:
        """Return the record with this offset.

        Parameters
        ----------
        offset
            At least ``log_start_offset`` and below ``log_end_offset``.

        Returns
        -------
        Record | None
            ``None`` when compaction removed it, or when the offset is a commit or abort marker's.

        Raises
        ------
        OffsetOutOfRangeError
            ``offset`` is outside the log. The bounds are attributes of the error.
        CorruptionError
            The batch that should hold it is damaged.

        Notes
        -----
        One binary search over the segments, one in the offset index, a scan of batch headers of about
        ``index.interval.bytes``, and the decoding of one batch.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-2/g-txn-0") as log:
        ...     print(log.get(16))  # a commit marker
        None
        """
        try:
            return self._engine().get(offset)
        except OverflowError:
            beyond("offset", offset)

    def take(self, offsets: Iterable[int], *, columns: Iterable[str] | None = None) -> Scan:
        """Return the records with these offsets as a scan, in the order asked.

        Parameters
        ----------
        offsets
            Offsets in any order, each within the log. Repeated ones are given as often as they are asked for; those without a
            record (compacted away, commit and abort markers) are left out.
        columns
            As for :meth:`scan`.

        Raises
        ------
        OffsetOutOfRangeError
            When reading starts: one of them is outside the log.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     [record.offset for record in log.take([7, 3, 7])]
        [7, 3, 7]
        """
        return self._scan(None, None, checked_scan(columns=columns, offsets=offsets))

    def locate(self, offset: int) -> Location:
        """Return how a look-up of `offset` goes: the segment, the index entry, the scan from there and the batch found.

        Parameters
        ----------
        offset
            At least ``log_start_offset`` and below ``log_end_offset``.

        Raises
        ------
        OffsetOutOfRangeError
            ``offset`` is outside the log.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-many-entries-0") as log:
        ...     location = log.locate(1000)
        >>> location.segment, location.batch.base_offset
        (0, 1000)
        """
        try:
            place, entry, counts, batch, text = self._engine().locate(offset)
        except OverflowError:
            beyond("offset", offset)
        return Location(
            *place,
            None if entry is None else IndexEntry._make(entry),
            *counts,
            None if batch is None else BatchInfo._make(batch),
            text,
        )

    def scan(  # noqa: PLR0913  # one parameter an option
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        start_timestamp: When | None = None,
        stop_timestamp: When | None = None,
        columns: Iterable[str] | None = None,
        keys: Iterable[bytes] | bytes | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        limit: int | None = None,
        batch_rows: int | None = None,
        batch_bytes: int | None = None,
        verify_checksums: bool = True,
        threads: int = 1,
        on_corrupt: OnCorrupt = "raise",
        durable: bool = False,
    ) -> Scan:
        """Return a scan of the records from `start` to `stop`, in offset order. Nothing is read yet.

        Parameters
        ----------
        start
            First offset, inclusive; ``None`` is the log start offset. Offsets may have gaps (compaction, markers): the first
            record may be above `start`, never below.
        stop
            End, exclusive; ``None`` is the log end offset when reading starts.
        start_timestamp, stop_timestamp
            Keep records with ``start_timestamp <= timestamp < stop_timestamp``; ``int`` of ms or an aware ``datetime``.
            Records are not ordered by time, so this is a filter over all of the range; batches and segments whose largest
            timestamp is too small are skipped whole.
        columns
            Columns of the Arrow stream, in this order; default: the eight of Spark's Kafka source (see :class:`Scan`).
            Columns not asked for cost nothing.
        keys
            Keep records whose key is one of these; a single ``bytes`` is one key.
        isolation_level
            ``"read_committed"`` stops at the last stable offset and leaves out records of aborted transactions.
        limit
            At most so many records, after all filters.
        batch_rows
            At most so many rows in one Arrow batch; by default 32,768.
        batch_bytes
            Bytes of keys, values and headers beyond which an Arrow batch is full; by default 512 KiB, which stays in the
            processor's cache. Consumers that pay for each batch want more.
        verify_checksums
            ``False`` trusts the bytes: frames and bounds are still checked.
        threads
            How many threads decompress and decode; the order of the records does not depend on it.
        on_corrupt
            What happens at damaged bytes. ``"raise"``: the records before them are given, then their :class:`CorruptionError` is
            raised. ``"skip"``: the scan goes on at the next whole batch whose offsets fit, and :attr:`Scan.report` lists what was
            left out. ``"stop"``: the log ends there in silence, and the report says so. An unfinished end of the active segment
            is the end for now in all three. Limits of :meth:`Log.open` stay errors. See ``docs/damage.md``.
        durable
            Stop at the durable end offset at the moment reading starts, so that nothing is returned that power loss could still take
            away. Only the log's writer knows that offset.

        Raises
        ------
        ConfigError
            An unknown column or isolation level (the text names the nearest known one), a naive ``datetime``, or `durable` in a log
            that was opened for reading.
        LogClosedError
            The log is closed.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     [record.offset for record in log.scan(5, 8)]
        [5, 6, 7]
        """
        options = checked_scan(
            start_timestamp=start_timestamp,
            stop_timestamp=stop_timestamp,
            columns=columns,
            keys=keys,
            isolation_level=isolation_level,
            limit=limit,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            verify_checksums=verify_checksums,
            threads=threads,
            on_corrupt=on_corrupt,
        )
        end = None if stop is None else integer("stop", stop, minimum=0)
        if durable:
            # Refuses a reader now; the offset is asked for again when reading starts.
            _ = cast("Log", self).durable_end_offset  # the one class that this is a part of
        scan = self._scan(None if start is None else integer("start", start, minimum=0), end, options)
        scan._durable = bool(durable)  # noqa: SLF001  # same package
        return scan

    def _scan(self, start: int | None, stop: int | None, options: CheckedScan) -> Scan:
        self._engine()
        log = cast("Log", self)  # the one class that this is a part of
        return Scan._of(((log, start, stop),), options)  # noqa: SLF001  # same package

    def batches(self, start: int | None = None, stop: int | None = None) -> Iterator[BatchInfo]:
        """Return an iterator over batch headers, control batches and empty ones included. Payloads are not read.

        Parameters
        ----------
        start
            The first batch is the one that holds this offset, or the next one; ``None`` is the log start offset.
        stop
            Batches that begin below it, exclusive; ``None`` is the log end offset.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-clients-0") as log:
        ...     sorted({batch.codec for batch in log.batches()})
        ['gzip', 'lz4', 'none', 'snappy', 'zstd']
        """
        return map(BatchInfo._make, self._engine().batches(optional_offset("start", start), optional_offset("stop", stop)))

    def verify(self, *, progress: Callable[[int], object] | None = None) -> DamageReport:
        """Check this partition without changing a byte: :func:`offsetlog.verify` of its directory, with the limits of this log.

        Parameters
        ----------
        progress
            Called every few MiB with the bytes read since it was called last.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     log.verify().damaged
        False
        """
        self._engine()
        return verify(self._absolute, progress=progress, **self._options["limits"])

    def fetch(self, offset: int, *, max_bytes: int = 1 << 20, isolation_level: IsolationLevel = "read_uncommitted") -> FetchResult:
        """Return encoded batches from `offset` on, as a broker would answer a fetch.

        Parameters
        ----------
        offset
            First offset wanted, inclusive; the log end offset is allowed and gives no records. The first batch returned may
            begin below it.
        max_bytes
            Upper bound on the bytes returned; at least one batch is returned even if it is larger.
        isolation_level
            ``"read_committed"`` stops at the last stable offset and lists the aborted transactions; their records are
            still in the bytes, as with a broker.

        Raises
        ------
        OffsetOutOfRangeError
            ``offset`` is below the log start offset or above the log end offset.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     result = log.fetch(0, max_bytes=1000)
        >>> int.from_bytes(result.records[:8], "big")  # the base offset of the first batch
        0
        """
        native = self._engine().fetch(
            integer("offset", offset, minimum=0),
            integer("max_bytes", max_bytes, minimum=1),
            checked_isolation(isolation_level),
        )
        records, high_watermark, last_stable_offset, log_start_offset, aborted = native
        transactions = tuple(map(AbortedTransaction._make, aborted))
        return FetchResult(records, high_watermark, last_stable_offset, log_start_offset, transactions)

    def offset_for_timestamp(self, when: When, *, isolation_level: IsolationLevel = "read_uncommitted") -> OffsetAndTimestamp | None:
        """Return the first record in offset order whose timestamp is at or after `when`.

        Control records count, as they do for a broker (``ListOffsets``).

        Parameters
        ----------
        when
            ``int`` of ms since 1970, or an aware ``datetime``.
        isolation_level
            ``"read_committed"`` gives ``None`` where the answer would be at or above the last stable offset.

        Returns
        -------
        OffsetAndTimestamp | None
            ``None`` when no record is that late.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     log.offset_for_timestamp(0).offset
        0
        """
        found = self._engine().offset_for_timestamp(to_millis(when, "when"), checked_isolation(isolation_level))
        return None if found is None else OffsetAndTimestamp._make(found)

    def splits(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        max_bytes: int | None = None,
        count: int | None = None,
    ) -> list[Split]:
        """Cut a range of offsets into pieces of about equal bytes, for parallel tasks.

        The pieces tile ``[start, stop)`` exactly, without gap or overlap. Cuts fall where batches begin, found through the
        offset indexes: no payload is read.

        Parameters
        ----------
        start
            First offset, inclusive; ``None`` is the log start offset.
        stop
            End, exclusive; ``None`` is the log end offset as of now.
        max_bytes
            Aim for at most so many bytes a piece (a single batch may be larger). Default 128 MiB.
        count
            Instead of `max_bytes`: aim for so many pieces.

        Raises
        ------
        ConfigError
            Both `max_bytes` and `count` are given.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-many-entries-0") as log:
        ...     splits = log.splits(count=3)
        >>> splits[0].start, splits[-1].stop
        (0, 1500)
        """
        if max_bytes is not None and count is not None:
            refuse("count", count, "give max_bytes or count, not both")
        engine = self._engine()
        start, stop = optional_offset("start", start), optional_offset("stop", stop)
        if count is not None:
            whole = engine.splits(start, stop, (1 << 63) - 1)
            max_bytes = max(1, -(-sum(size for _, _, size in whole) // integer("count", count, minimum=1)))
        elif max_bytes is None:
            max_bytes = SPLIT_BYTES
        cut = engine.splits(start, stop, integer("max_bytes", max_bytes, minimum=1))
        return [Split(self._absolute, self._topic, self._partition, *piece) for piece in cut]
