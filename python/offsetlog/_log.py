"""``Log``: one partition directory, and all that reads it; over 600 lines: one class, two thirds of it documentation."""

from __future__ import annotations

import html
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from offsetlog import _offsetlog
from offsetlog._append_arguments import config_pairs
from offsetlog._closing import close_behind
from offsetlog._cluster import cluster_options
from offsetlog._damage import DamageReport, verify
from offsetlog._options import (
    CheckedScan,
    Clock,
    IsolationLevel,
    Limits,
    OnCorrupt,
    OpenOptions,
    PathLike,
    When,
    WriteOptions,
    beyond,
    checked_mode,
    checked_scan,
    checked_topic_id,
    flag,
    integer,
    isolation_level as checked_isolation,
    open_options,
    optional_offset,
    path_text,
    refuse,
)
from offsetlog._scan import Scan
from offsetlog._times import to_millis
from offsetlog._values import (
    BatchInfo,
    FetchResult,
    Location,
    OffsetAndTimestamp,
    Segment,
    Split,
)
from offsetlog.errors import LogClosedError, ReadOnlyLogError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import NoReturn, Self, Unpack

    from offsetlog._config import LogConfig, SettingValue
    from offsetlog._offsetlog import Record
    from offsetlog._writable_log import WritableLog

__all__ = ["Log"]

logger = logging.getLogger("offsetlog")

SPLIT_BYTES = 128 << 20


class Log:
    """One partition of a topic: a directory such as ``orders-0`` with the segments that a Kafka broker keeps there.

    Made by :meth:`Log.open`. Reading takes no lock, makes no file and changes nothing, also beside a running broker or on a
    read-only mount. All offsets are Kafka's; every range has an inclusive start and an exclusive end.

    When a method that changes a log returns, every later call in this process sees the change, on any object of the log, and so
    does every scan that begins later: deleted and truncated records do not come back. Each call answers from one state of the
    log. If another process writes, that is a state between the last look at the directory and the answer: every call looks,
    except :meth:`get`, :meth:`offset_for_timestamp` and scans with a ``stop``, for which a look is good for about ten
    milliseconds. :meth:`refresh` looks at once. ``docs/DURABILITY.md`` has the whole rule.

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

    @overload
    @classmethod
    def open(cls, path: PathLike, mode: Literal["r"] = "r", *, mapped: bool = False, **limits: Unpack[Limits]) -> Log: ...

    @overload
    @classmethod
    def open(
        cls,
        path: PathLike,
        mode: Literal["a"],
        config: LogConfig | Mapping[str, SettingValue] | None = None,
        *,
        clock: Clock | None = None,
        topic_id: str | None = None,
        clean: bool | None = None,
        recovery_point: int | None = None,
        broker: PathLike | None = None,
        metadata: PathLike | None = None,
        internal_topics: str | Iterable[str] = (),
        single_replica: bool = False,
        mapped: bool = False,
        **limits: Unpack[Limits],
    ) -> WritableLog: ...

    @overload
    @classmethod
    def open(
        cls,
        path: PathLike,
        mode: Literal["r", "a"],
        config: LogConfig | Mapping[str, SettingValue] | None = None,
        *,
        clock: Clock | None = None,
        topic_id: str | None = None,
        clean: bool | None = None,
        recovery_point: int | None = None,
        broker: PathLike | None = None,
        metadata: PathLike | None = None,
        internal_topics: str | Iterable[str] = (),
        single_replica: bool = False,
        mapped: bool = False,
        **limits: Unpack[Limits],
    ) -> Log: ...

    @classmethod
    def open(  # noqa: PLR0913  # one parameter a limit
        cls,
        path: PathLike,
        mode: Literal["r", "a"] = "r",
        config: LogConfig | Mapping[str, SettingValue] | None = None,
        *,
        clock: Clock | None = None,
        topic_id: str | None = None,
        clean: bool | None = None,
        recovery_point: int | None = None,
        broker: PathLike | None = None,
        metadata: PathLike | None = None,
        internal_topics: str | Iterable[str] = (),
        single_replica: bool = False,
        mapped: bool = False,
        **limits: Unpack[Limits],
    ) -> Log:
        """Open a partition directory.

        Parameters
        ----------
        path
            The directory; its name is ``topic-partition``, as ``orders-0``.
        mode
            ``"r"``: read only; takes no lock and changes nothing. ``"a"``: read and append; makes the directory if it is missing,
            takes an exclusive lock on it and, in a log dir, a shared one on its ``.lock``, which a running broker holds.
        config
            Kafka's topic settings, as a :class:`LogConfig` or a mapping of their names, for appending. They replace the stored ones
            and are stored beside the data; ``None`` keeps what is stored.
        clock
            Callable that returns the time in ms since 1970, used for every decision about time; default: the wall clock. Each
            call asks it once, before anything changes: an exception it raises ends the call. A timer's thread has no caller to
            raise it in: there the wall clock is used, and the failure goes to :func:`sys.unraisablehook`.
        topic_id
            The topic's id (22 characters), for a partition that has none yet; another id than the stored one is refused.
        clean, recovery_point
            What to believe of the last writer's end in place of its marks: whether it was clean, and from where on the log is
            to be read if not. For tests, and for copies whose marks are known to be wrong.
        broker, metadata, internal_topics, single_replica
            For appending in a broker's log dir, as for :meth:`LogDir.open`.
        mapped
            Read segments through memory maps. Faster, and only for copies that nobody writes to: a file that shrinks under
            the map ends the process (SIGBUS).
        **limits
            Bounds on what damaged or hostile files can make this process do; exceeding one raises :class:`LimitExceededError`
            with its name. They apply to appending too: an append that a reader with the same limits could not read back is
            refused. So records written with the defaults can be read with the defaults:

            * ``max_batch_bytes``: largest batch on disk, in bytes; default 64 MiB.
            * ``max_decompressed_bytes``: largest batch after decompression, in bytes; default 256 MiB.
            * ``max_headers``: most headers of one record; default 10,000.
            * ``max_segments``: most segments of the partition; default 1,000,000.
            * ``max_state_file_bytes``: largest checkpoint, producer snapshot or metadata file, in bytes; default 16 MiB. Those that
              reading can do without are left out with a warning.
            * ``max_open_files``: how many files the log holds open at once; default 256. Files beyond are opened again when needed.

        Returns
        -------
        Log
            With mode ``"a"`` a :class:`WritableLog`, which has the verbs that write.

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
        given: dict[str, object] = {"config": config, "topic_id": topic_id, "clean": clean, "recovery_point": recovery_point}
        given |= {"broker": broker, "metadata": metadata}
        given |= {"internal_topics": internal_topics or None, "single_replica": flag("single_replica", single_replica) or None}
        for name, value in given.items():
            if mode == "r" and value is not None:
                refuse(name, value, "is for appending; open with mode 'a'")
        options = open_options(mapped=mapped, **limits)
        text = path_text(path)
        if mode == "r":
            return cls._of(_warned(_offsetlog.Log.open(text, options)), text, options)
        write = WriteOptions(
            config=None if config is None else config_pairs(config),
            clock=clock,
            topic_id=checked_topic_id(topic_id),
            clean=None if clean is None else flag("clean", clean),
            recovery_point=None if recovery_point is None else integer("recovery_point", recovery_point, minimum=0),
            cluster=cluster_options(metadata, broker, internal_topics, single_replica=single_replica),
        )
        appender = _offsetlog.Appender.open(text, options, write)
        from offsetlog._writable_log import WritableLog  # noqa: PLC0415  # it is a Log itself

        return WritableLog._writing_to(_warned(appender.log()), text, options, appender)  # noqa: SLF001  # same package

    @classmethod
    def _of(cls, native: _offsetlog.Log, path: str, options: OpenOptions) -> Self:
        log = object.__new__(cls)
        log._native = native
        log._options = options
        log._path = path
        log._absolute = os.path.abspath(path)
        log._pid = _offsetlog.process_id()
        log._topic = native.topic
        log._partition = native.partition
        return log

    def _engine(self) -> _offsetlog.Log:
        """Return the native log: that of this process, if a fork has come between."""
        native = self._native
        if native is None:
            message = f"log is closed; {self._topic}-{self._partition}"
            raise LogClosedError(message, path=self._path)
        return native if self._pid == _offsetlog.process_id() else self._after_fork()

    def _after_fork(self) -> _offsetlog.Log:
        # The parent's caches may be locked by a thread that does not exist here: leave them alone, open again.
        native = _offsetlog.Log.open(self._absolute, self._options)
        self._native = native
        self._pid = _offsetlog.process_id()
        return native

    def _is_done(self) -> bool:
        """Whether the log that appends was closed, perhaps by somebody else."""
        return False

    def _durable_end(self) -> int:
        """Only the log's writer knows up to where it is durable."""
        self._refuse_to_write()

    def _refuse_to_write(self) -> NoReturn:
        self._engine()
        message = f"{self._topic}-{self._partition} was opened for reading; open it with mode 'a' to write"
        raise ReadOnlyLogError(message, key="mode", value="r")

    if not TYPE_CHECKING:

        def _no_config(self, *_: object) -> NoReturn:
            """Settings are the writer's."""
            self._refuse_to_write()

        # Set, it would be an attribute that slots have no place for.
        config = property(_no_config, _no_config)

        def __getattr__(self, name: str) -> NoReturn:
            from offsetlog._writable_log import WritableLog  # noqa: PLC0415  # it is a Log itself

            if name in vars(WritableLog) and not name.startswith("_"):
                self._refuse_to_write()
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(text)

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
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     [record.offset for record in log.take([7, 3, 7])]
        [7, 3, 7]
        """
        return self._scan(None, None, checked_scan(columns=columns, offsets=offsets))

    def locate(self, offset: int) -> Location:
        """Return the steps of a look-up of `offset`: the segment, the index entry, the scan from there and the batch found.

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
        try:
            return self._engine().locate(offset)
        except OverflowError:
            beyond("offset", offset)

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
            At most this many records, after all filters.
        batch_rows
            At most this many rows in one Arrow batch; by default 32,768.
        batch_bytes
            Bytes of keys, values and headers beyond which an Arrow batch is full; by default 384 KiB, which stays in the
            processor's cache. Consumers that pay for each batch want more.
        verify_checksums
            ``False`` trusts the bytes: frames and bounds are still checked.
        threads
            How many threads decompress and decode; the order of the records does not depend on it.
        on_corrupt
            What happens at damaged bytes. ``"raise"``: the records before them are returned, then their :class:`CorruptionError`
            is raised. ``"skip"``: the scan continues at the next whole batch whose offsets fit, and :attr:`Scan.report` lists
            what was left out. ``"stop"``: the log ends there without an error, and the report records it. An unfinished end of
            the active segment is the end for now in all three. Limits of :meth:`Log.open` stay errors. See ``docs/damage.md``.
        durable
            Stop at the durable end offset at the moment reading starts, so that nothing is returned that power loss could still take
            away. Only the log's writer knows that offset. Such a scan cannot be followed.

        Raises
        ------
        ConfigError
            An unknown column or isolation level (the text names the nearest known one), a naive ``datetime``, or `durable` in a log
            that was opened for reading.
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
            on_corrupt=on_corrupt,
        )
        end = None if stop is None else integer("stop", stop, minimum=0)
        if flag("durable", durable):
            # Refuses a reader now; the offset is asked for again when reading starts.
            self._durable_end()
        return self._scan(None if start is None else integer("start", start, minimum=0), end, options, durable=durable)

    def _scan(self, start: int | None, stop: int | None, options: CheckedScan, *, durable: bool = False) -> Scan:
        self._engine()
        return Scan._of(((self, start, stop),), options, durable=durable)  # noqa: SLF001  # same package

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
        return self._engine().batches(optional_offset("start", start), optional_offset("stop", stop))

    def verify(self, *, progress: Callable[[int], object] | None = None) -> DamageReport:
        """Check this partition without changing a byte: :func:`offsetlog.verify` of its directory, with the limits of this log.

        Parameters
        ----------
        progress
            Called every few MiB with the bytes read since it was called last.

        Examples
        --------
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
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     result = log.fetch(0, max_bytes=1000)
        >>> int.from_bytes(result.records[:8], "big")  # the base offset of the first batch
        0
        """
        return self._engine().fetch(
            integer("offset", offset, minimum=0),
            max_bytes=integer("max_bytes", max_bytes, minimum=1),
            isolation_level=checked_isolation(isolation_level),
        )

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
        return self._engine().offset_for_timestamp(to_millis(when, "when"), checked_isolation(isolation_level))

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
            Aim for at most this many bytes a piece (a single batch may be larger). Default 128 MiB.
        count
            Instead of `max_bytes`: aim for this many pieces.

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
        start, stop = optional_offset("start", start), optional_offset("stop", stop)
        if count is not None:
            whole = engine.splits(start, stop, max_bytes=(1 << 63) - 1)
            max_bytes = max(1, -(-sum(split.size_bytes for split in whole) // integer("count", count, minimum=1)))
        elif max_bytes is None:
            max_bytes = SPLIT_BYTES
        cut = engine.splits(start, stop, max_bytes=integer("max_bytes", max_bytes, minimum=1))
        # The engine knows the path as it was given.
        return [split._replace(path=self._absolute) for split in cut]

    def refresh(self) -> None:
        """Look at the directory now, so that every later question sees what other processes have done so far.

        Changes by this process are seen without it, and most calls look by themselves (see :class:`Log`). For programs that learn
        by other means that the log has changed.

        Raises
        ------
        FileNotFoundError
            The directory is gone.

        Notes
        -----
        Costs four looks at files where nothing changed; a listing of the directory where a segment came or went.

        Examples
        --------
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     log.refresh()
        ...     log.log_end_offset
        200
        """
        self._engine().refresh()

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
    def mode(self) -> Literal["r", "a"]:
        """``"r"``; of a :class:`WritableLog` ``"a"``."""
        return "r"

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called; of a log of a :class:`LogDir` that appends, here or on any log of its partition."""
        return self._native is None or self._is_done()

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
        return tuple(self._engine().segments())

    @property
    def size_bytes(self) -> int:
        """Bytes of all ``.log`` files together."""
        return self._engine().size_bytes()

    def close(self) -> None:
        """Let go of the files. Closing twice is fine; iterators and streams that are already running continue."""
        self._native = None

    def __enter__(self) -> Self:
        self._engine()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        close_behind(error, self.close)

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


def _warned(native: _offsetlog.Log) -> _offsetlog.Log:
    for warning in native.warnings():
        logger.warning("%s", warning)
    return native


def _reopened(path: str, options: OpenOptions) -> Log:
    return Log.open(path, mapped=options["mapped"], **options["limits"])


# A lock must end with the process that took it, whatever became of its children.
os.register_at_fork(after_in_child=_offsetlog.close_inherited_locks)
