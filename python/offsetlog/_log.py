"""``Log``: one partition directory, opened for reading."""

from __future__ import annotations

import html
import logging
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from offsetlog import _offsetlog
from offsetlog._options import (
    MAX_BATCH_BYTES,
    MAX_DECOMPRESSED_BYTES,
    MAX_OPEN_FILES,
    CheckedScan,
    Clock,
    IsolationLevel,
    OpenOptions,
    PathLike,
    When,
    checked_mode,
    checked_scan,
    integer,
    isolation_level as checked_isolation,
    open_options,
    path_text,
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
    Segment,
    Split,
)
from offsetlog.errors import LogClosedError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from offsetlog._offsetlog import Record

__all__ = ["Log"]

logger = logging.getLogger("offsetlog")

SPLIT_BYTES = 128 << 20


class Log:
    """One partition of a topic: a directory such as ``orders-0`` with the segments that a Kafka broker keeps there.

    Made by :meth:`Log.open`. Reading takes no lock, makes no file and changes nothing, also beside a running broker or on a
    read-only mount. All offsets are Kafka's; every range has an inclusive start and an exclusive end.

    A log is safe to use from several threads. After a fork the child opens the directory again at first use. A log pickles as
    its absolute path and its options, and opens where it is unpickled.

    Examples
    --------
    >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
    ...     record = log.get(log.log_start_offset)
    ...     record.topic, record.partition, record.offset
    ('g-plain', 0, 0)
    """

    __slots__ = ("__weakref__", "_absolute", "_native", "_options", "_partition", "_path", "_pid", "_topic")

    _native: _offsetlog.Log | None
    _options: OpenOptions
    _path: str
    _absolute: str
    _pid: int
    _topic: str
    _partition: int

    def __init__(self) -> None:
        message = "open a log with Log.open(path)"
        raise TypeError(message)

    @classmethod
    def open(  # noqa: PLR0913  # one parameter a limit
        cls,
        path: PathLike,
        mode: Literal["r"] = "r",
        config: None = None,
        *,
        clock: Clock | None = None,
        mapped: bool = False,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        max_open_files: int = MAX_OPEN_FILES,
    ) -> Log:
        """Open a partition directory.

        Parameters
        ----------
        path
            The directory; its name is ``topic-partition``, as ``orders-0``.
        mode
            ``"r"``: read only.
        config
            Topic settings, for appending; not available in this version.
        clock
            Callable that gives the time in ms. Reading takes no decision from the time, so it is only checked to be callable.
        mapped
            Read segments through memory maps. Faster, and only for copies that nobody writes to: a file that shrinks under
            the map ends the process (SIGBUS).
        max_batch_bytes
            Largest batch on disk that is accepted, in bytes.
        max_decompressed_bytes
            Largest batch after decompression, in bytes.
        max_open_files
            How many files the log may hold open at once.

        Returns
        -------
        Log

        Raises
        ------
        FileNotFoundError, NotADirectoryError, PermissionError
            As the operating system says, with ``errno`` and ``filename``.
        LogDirError
            The name of the directory is not ``topic-partition``, or a file in it has an impossible name.
        ConfigError
            An argument has a value that cannot be used.

        Notes
        -----
        Lists the directory and reads the end of the last segment: the cost does not grow with the size of the log. What is
        odd but harmless is logged as a warning of the logger ``offsetlog``.

        Examples
        --------
        >>> log = Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-deleted-prefix-0")
        >>> log.log_start_offset
        74
        >>> log.close()
        """
        checked_mode(mode, clock)
        if config is not None:
            refuse("config", config, "settings are for appending, which is not available in this version yet")
        options = open_options(
            mapped=mapped,
            max_batch_bytes=max_batch_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
            max_open_files=max_open_files,
        )
        text = path_text(path)
        native = _offsetlog.Log.open(text, **options)
        for warning in native.warnings():
            logger.warning("%s", warning)
        return cls._of(native, text, options)

    @classmethod
    def _of(cls, native: _offsetlog.Log, path: str, options: OpenOptions) -> Log:
        log = object.__new__(cls)
        log._native = native
        log._options = options
        log._path = path
        log._absolute = os.path.abspath(path)
        log._pid = os.getpid()
        log._topic = native.topic
        log._partition = native.partition
        return log

    def _engine(self) -> _offsetlog.Log:
        """Return the native log: that of this process, if a fork has come between."""
        native = self._native
        if native is None:
            message = f"log is closed; {self._topic}-{self._partition}"
            raise LogClosedError(message, path=self._path)
        if self._pid != os.getpid():
            # The parent's caches may be locked by a thread that does not exist here: leave them alone, open again.
            native = _offsetlog.Log.open(self._absolute, **self._options)
            self._native = native
            self._pid = os.getpid()
        return native

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self._partition

    @property
    def topic_id(self) -> str | None:
        """The topic's id as Kafka writes it (22 characters of base64), from ``partition.metadata``; ``None`` without that file."""
        return self._engine().topic_id()

    @property
    def path(self) -> str:
        """The directory, as given to :meth:`open`."""
        return self._path

    @property
    def mode(self) -> str:
        """``"r"``."""
        return "r"

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._native is None

    @property
    def log_start_offset(self) -> int:
        """Lowest offset that can be read, inclusive: from the log dir's checkpoint, else the first segment's base offset."""
        return self._engine().log_start_offset()

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record will get, exclusive, as of now: a torn tail of the active segment does not count."""
        return self._engine().log_end_offset()

    @property
    def high_watermark(self) -> int:
        """End of what replication confirmed, exclusive, from the log dir's checkpoint; without one, the log end offset."""
        return self._engine().high_watermark()

    @property
    def last_stable_offset(self) -> int:
        """End of what ``read_committed`` may see, exclusive: where the oldest open transaction begins, or the high watermark."""
        return self._engine().last_stable_offset()

    @property
    def leader_epoch(self) -> int | None:
        """Greatest leader epoch of ``leader-epoch-checkpoint`` and the last batch; ``None`` when neither has one."""
        return self._engine().leader_epoch()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in order of their base offsets."""
        return tuple(map(Segment._make, self._engine().segments()))

    @property
    def size_bytes(self) -> int:
        """Bytes of all ``.log`` files together."""
        return self._engine().size_bytes()

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
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-2/g-txn-0") as log:
        ...     print(log.get(16))  # a commit marker
        None
        """
        return self._engine().get(offset)

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
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-many-entries-0") as log:
        ...     location = log.locate(1000)
        >>> location.segment, location.batch.base_offset
        (0, 1000)
        """
        place, entry, counts, batch, text = self._engine().locate(offset)
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

        Raises
        ------
        ConfigError
            An unknown column or isolation level (the text names the nearest known one), or a naive ``datetime``.
        LogClosedError
            The log is closed.

        Examples
        --------
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
        )
        return self._scan(
            None if start is None else integer("start", start, minimum=0),
            None if stop is None else integer("stop", stop, minimum=0),
            options,
        )

    def _scan(self, start: int | None, stop: int | None, options: CheckedScan) -> Scan:
        self._engine()
        return Scan._of(((self, start, stop),), options)  # noqa: SLF001  # same package

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
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-clients-0") as log:
        ...     sorted({batch.codec for batch in log.batches()})
        ['gzip', 'lz4', 'none', 'snappy', 'zstd']
        """
        return map(BatchInfo._make, self._engine().batches(start, stop))

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
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-many-entries-0") as log:
        ...     splits = log.splits(count=3)
        >>> splits[0].start, splits[-1].stop
        (0, 1500)
        """
        if max_bytes is not None and count is not None:
            refuse("count", count, "give max_bytes or count, not both")
        engine = self._engine()
        if count is not None:
            whole = engine.splits(start, stop, (1 << 63) - 1)
            max_bytes = max(1, -(-sum(size for _, _, size in whole) // integer("count", count, minimum=1)))
        elif max_bytes is None:
            max_bytes = SPLIT_BYTES
        cut = engine.splits(start, stop, integer("max_bytes", max_bytes, minimum=1))
        return [Split(self._absolute, self._topic, self._partition, *piece) for piece in cut]

    def close(self) -> None:
        """Let go of the files. Closing twice is fine; iterators and streams that are already running go on."""
        self._native = None

    def __enter__(self) -> Self:
        self._engine()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._engine()
        return (_reopened, (self._absolute, self._options))

    def __repr__(self) -> str:
        if self._native is None:
            return f"Log({self._path!r}, closed)"
        engine = self._engine()
        count = len(engine.segments())
        offsets = f"{engine.log_start_offset()} to {engine.log_end_offset()}"
        return f"Log({self._path!r}, offsets {offsets}, {count} segment{'s' * (count != 1)})"

    def _repr_html_(self) -> str:
        if self._native is None:
            return f"<p>{html.escape(repr(self))}</p>"
        engine = self._engine()
        rows = {
            "log": f"{self._topic}-{self._partition}",
            "path": self._path,
            "offsets": f"{engine.log_start_offset()} to {engine.log_end_offset()}",
            "segments": str(len(engine.segments())),
            "bytes": f"{engine.size_bytes():,}",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{cells}</table>"


def _reopened(path: str, options: OpenOptions) -> Log:
    return Log.open(path, **options)
