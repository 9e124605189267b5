"""``Scan``: a range of records as Python objects or as an Arrow stream; each read starts again."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from offsetlog import _offsetlog
from offsetlog._damage import ScanReport, raise_damage, scan_report
from offsetlog._explain import explained
from offsetlog._options import (
    SCAN_OPTIONS,
    CheckedScan,
    OverOptions,
    apart,
    checked_scan,
    refuse,
)

if TYPE_CHECKING:
    from typing import Unpack

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from offsetlog._log import Log
    from offsetlog._offsetlog import Record
    from offsetlog._part import Part
    from offsetlog._values import Split

    Ranges = tuple[tuple[Log | Part, int | None, int | None], ...]

__all__ = ["Scan"]

T = TypeVar("T")


class Scan:
    """A lazy, restartable scan: nothing is read until it is iterated, exported or counted, and every time it starts over.

    Made by :meth:`Log.scan`, :meth:`Log.take`, :meth:`LogDir.scan` and :meth:`Scan.over`. It is an iterable of
    :class:`Record`, and an Arrow stream for everything that takes ``__arrow_c_stream__``: ``pyarrow.table(scan)``,
    ``polars.DataFrame(scan)``, ``duckdb.sql("select ... from scan")``, ``pandas.DataFrame.from_arrow(scan)``.

    Where a range has no end, it ends at the log end offset at the moment reading starts, or later if this process truncated,
    compacted or deleted segments meanwhile. Memory holds a few batches per thread, whatever the size of the log. A scan pickles as
    paths and options; where it is unpickled, the logs are opened again.

    Columns of the Arrow stream, in Spark's order, all nullable:

    ================  ============================================  ==========================================
    name              Arrow type                                    meaning
    ================  ============================================  ==========================================
    key               binary                                        null when the record has none
    value             binary                                        null is a tombstone
    topic             string
    partition         int32
    offset            int64
    timestamp         timestamp[us, tz=UTC]                         1 ms before 1970 when the record has none (magic 0)
    timestampType     int32                                         0 create time, 1 log append time, -1 none
    headers           list<struct<key: string, value: binary>>      null when the record has none
    leaderEpoch       int32                                         only on request, as the ones below
    producerId        int64
    producerEpoch     int32
    sequence          int32
    ================  ============================================  ==========================================

    Control records (commit and abort markers) never appear in the Arrow stream.
    """

    __slots__ = ("__weakref__", "_durable", "_last", "_options", "_raises_last", "_ranges")

    _durable: bool
    # Of several partitions damage is an error only when the others were read.
    _raises_last: bool
    _ranges: Ranges
    _options: CheckedScan
    _last: _offsetlog.Scan | None

    def __init__(self) -> None:
        message = "a Scan is made by Log.scan(), Log.take(), LogDir.scan() or Scan.over()"
        raise TypeError(message)

    @classmethod
    def _of(cls, ranges: Ranges, options: CheckedScan, *, raises_last: bool = False, durable: bool = False) -> Scan:
        scan = object.__new__(cls)
        scan._ranges = ranges
        scan._durable = durable
        scan._raises_last = raises_last and options.on_corrupt == "raise" and len(ranges) > 1
        scan._options = options
        scan._last = None
        return scan

    @classmethod
    def over(
        cls,
        splits: Iterable[Split],
        *,
        mapped: bool = False,
        **options: Unpack[OverOptions],
    ) -> Scan:
        """Return one scan over several ranges, of one or of several partitions, in the order given.

        This is what one task of a distributed job runs: the driver cuts with :meth:`Log.splits`, sends the splits, and each
        task scans its own.

        Parameters
        ----------
        splits
            Ranges from :meth:`Log.splits`, or any :class:`Split`; only ``path``, ``start`` (inclusive) and ``stop``
            (exclusive) are used.
        mapped
            As for :meth:`Log.open`.
        **options
            As for :meth:`Log.scan`, without ``start`` and ``stop``; ``limit`` counts over all ranges together. And the limits of
            :meth:`Log.open`.

        Raises
        ------
        ConfigError
            An option has a value that cannot be used.
        OSError, LogDirError
            A partition directory cannot be opened.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     splits = log.splits(max_bytes=4096)
        ...     len(splits) > 1, Scan.over(splits).count() == log.scan().count()
        (True, True)
        """
        from offsetlog._log import Log  # noqa: PLC0415  # the two classes make each other

        opened: dict[str, Log] = {}
        limits, chosen = apart(options)
        ranges = []
        for split in splits:
            if split.path not in opened:
                opened[split.path] = Log.open(split.path, mapped=mapped, **limits)
            ranges.append((opened[split.path], split.start, split.stop))
        return cls._of(tuple(ranges), checked_scan(**chosen))

    def _native(self, *, raises_last: bool = True) -> _offsetlog.Scan:
        ranges = [(log._engine(), start, self._stop(log, start, stop)) for log, start, stop in self._ranges]  # noqa: SLF001  # same package
        self._last = _offsetlog.Scan(ranges, vars(self._options), raises_last=raises_last and self._raises_last)
        return self._last

    def _whole(self, read: Callable[[_offsetlog.Scan], T]) -> T:
        """Return what `read` makes of a reading; where that met damage in one of several partitions, the error has it."""
        native = self._native()
        result = read(native)
        if self._raises_last:
            raise_damage(scan_report(native), result)
        return result

    def _batches(self) -> _offsetlog.Batches:
        """Return everything, or raise the scan's own errors: what is read whole before it is used."""
        native = self._native()
        found = native.read_all()
        if self._raises_last:
            raise_damage(scan_report(native), None)
        return found

    @staticmethod
    def _records(native: _offsetlog.Scan, records: _offsetlog.RecordIterator) -> Iterator[Record]:
        yield from records
        raise_damage(scan_report(native), None)

    def _stop(self, log: Log | Part, start: int | None, stop: int | None) -> int | None:
        if not self._durable:
            return stop
        # Only a single log is asked for what is durable.
        known = cast("Log", log)._durable_end()  # noqa: SLF001  # same package
        return max(start or 0, known if stop is None else min(stop, known))

    @property
    def report(self) -> ScanReport:
        """What the reading that was begun last has left out so far, with ``on_corrupt`` ``"skip"`` or ``"stop"``.

        May be asked while that reading runs (it reads a little ahead) and after it, however it was read: iterated, as Arrow,
        counted. Each reading starts a new report. Empty before the first one, and in a scan that was unpickled.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/torn/log-dir-1/g-torn-flip-old-0") as log:
        ...     scan = log.scan(on_corrupt="skip")
        ...     count = scan.count()
        ...     [(hole.start, hole.stop, hole.error) for hole in scan.report.holes]
        [(36, 40, 'CorruptBatchError')]
        """
        return scan_report(self._last)

    def __iter__(self) -> Iterator[Record]:
        """Return an iterator over whole :class:`Record` objects, in the order of the ranges and then of offsets.

        ``columns`` and ``batch_rows`` do not apply. Batches are read and decompressed without the interpreter lock.

        Raises
        ------
        CorruptionError
            On the first damaged batch, after all records before it were given, unless ``on_corrupt`` says otherwise.
        UnreadPartitionsError
            Of a scan of several partitions by :meth:`LogDir.scan`, in its place and at the end: the partitions that damage ended,
            each with its error, when all records of the others and those before the damage were given.
        """
        native = self._native()
        records = native.records()
        return self._records(native, records) if self._raises_last else records

    def follow(self, *, timeout_ms: int | None = None, poll_interval_ms: int = 1000) -> Iterator[Record]:
        """Return an iterator over the records that are there, and then over those that come, each once, in the order of their offsets.

        For programs that tail logs which others write: a broker, another process, another thread. Between records it sleeps until
        the system tells of a change (inotify on Linux), and looks by itself every `poll_interval_ms`, which is all there is on file
        systems and systems that tell nothing. The interpreter is free meanwhile, and Ctrl-C wakes it. Of several partitions those that
        have something are read in their order.

        When `timeout_ms` has passed the loop ends, but not the iterator: the next loop over it continues where that one was. It
        also continues after an ``OffsetOutOfRangeError``, at the offset that the error names. Any other error ends it.

        The filters of the scan hold; ``stop`` and ``limit`` end it. With ``read_committed`` records come when their transaction has
        ended. Damage is handled by ``on_corrupt``, and :attr:`report` lists it for everything that was read.

        Parameters
        ----------
        timeout_ms
            End the loop when nothing was appended for so long; ``None`` waits for ever.
        poll_interval_ms
            How often to look without being told.

        Raises
        ------
        OffsetOutOfRangeError
            A log was cut below what was read (``requested`` is above ``log_end_offset``): drop your records of that log, which is
            at ``path``, from ``log_end_offset`` on, and keep reading from the same iterator. It continues there, and you have
            each record once. Or retention deleted the next records (``requested`` is below ``log_start_offset``): it continues at
            the log start offset, and nothing is to be dropped.
        FileNotFoundError
            A partition is gone. One whose topic was deleted and made again has another topic id, and is gone too.
        ConfigError
            For a scan of single offsets, for one of what is durable, and for times that are no times.

        Examples
        --------
        >>> from offsetlog import Log, OffsetOutOfRangeError
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     [record.offset for record in log.scan(197).follow(timeout_ms=10)]
        [197, 198, 199]

        >>> def keep(store, records):  # a copy of the log that stays one, also when it is cut
        ...     while True:
        ...         try:
        ...             for record in records:
        ...                 store[record.offset] = record.value
        ...             return
        ...         except OffsetOutOfRangeError as error:
        ...             for offset in [offset for offset in store if offset >= error.log_end_offset]:
        ...                 del store[offset]
        """
        if self._options.offsets is not None:
            refuse("offsets", "", "are all there is to a take: only a scan can be followed")
        if self._durable:
            # It would end where the log is durable now, and wait there for ever.
            refuse("durable", True, "cannot be followed, as its end is that of one moment: scan again from where the last scan ended")
        for name, value in (("timeout_ms", timeout_ms), ("poll_interval_ms", poll_interval_ms)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                message = f"{name} must be an int, found {type(value).__name__}"
                raise TypeError(message)
            if value is not None and not 0 <= value < 1 << 63:
                refuse(name, value, f"must be 0 or more, found {value}")
        return self._native(raises_last=False).follow(poll_interval_ms, timeout_ms)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new Arrow stream of this scan as a PyCapsule.

        Parameters
        ----------
        requested_schema
            Capsule of an Arrow schema. Columns are chosen from it by name; binary and string columns come as large or view
            types and timestamps in other units or zones when it says so. A request that cannot be met as a whole is answered
            with the scan's own schema, as the Arrow PyCapsule interface allows.

        Notes
        -----
        The stream reads lazily, on the thread that pulls it. Errors come through the stream with their whole text, but as
        the consumer's own class, and so may Ctrl-C: as ``KeyboardInterrupt`` from ``pyarrow.table``, as the consumer's error
        with the text "interrupted" (and ``KeyboardInterrupt`` a moment later) from others. :meth:`to_arrow`,
        :meth:`to_polars` and :meth:`to_pandas` raise the classes of :mod:`offsetlog.errors` and ``KeyboardInterrupt``.
        """
        return self._native().arrow_stream(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema of the Arrow stream as a PyCapsule, without reading anything."""
        return _offsetlog.arrow_schema(self._options.columns)

    def to_arrow(self) -> pa.Table:
        """Read everything into a ``pyarrow.Table``.

        Raises
        ------
        ImportError
            pyarrow is not installed; the text names the extra that brings it.
        OffsetLogError, OSError
            As for iterating; ``partial`` of :class:`UnreadPartitionsError` is the table of what could be read.
        """
        pyarrow = _required("pyarrow", "arrow")
        table: pa.Table = self._whole(lambda native: pyarrow.table(native.read_all()))
        return table

    def to_polars(self) -> pl.DataFrame:
        """Read everything into a ``polars.DataFrame``. Errors as for :meth:`to_arrow`."""
        polars = _required("polars", "polars")
        frame: pl.DataFrame = self._whole(lambda native: polars.DataFrame(native.read_all()))
        return frame

    def to_pandas(self) -> pd.DataFrame:
        """Read everything into a ``pandas.DataFrame`` through pyarrow. Errors as for :meth:`to_arrow`."""
        _required("pandas", "pandas")
        pyarrow = _required("pyarrow", "arrow")
        frame: pd.DataFrame = self._whole(lambda native: pyarrow.table(native.read_all()).to_pandas())
        return frame

    def count(self) -> int:
        """Return how many rows the Arrow stream would have, without making them.

        Decompresses only what the filters and the format force it to; still reads every byte of the ranges when
        ``verify_checksums`` is on.
        """
        return self._whole(lambda native: native.count())

    def explain(self) -> str:
        """Return what a reading would do now, as text: partitions, offset ranges, segments, filters, columns.

        Looks at file names and sizes only; which batches the filters skip shows when they are read.

        Examples
        --------
        >>> from offsetlog import Log
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-many-entries-0") as log:
        ...     print(log.scan(1000, 1010, columns=["offset"], limit=5).explain())
        scan of 1 partition
          g-many-entries-0: offsets 1000 to 1009, 1 of 1 segments
        isolation level: read_uncommitted
        filters: none
        limit: 5 records
        columns: offset
        checksums: verified
        """
        return explained(self._ranges, self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self._ranges, self._options, self._raises_last, self._durable))

    def __repr__(self) -> str:
        shown = [_range_text(*entry) for entry in self._ranges[:3]]
        if len(self._ranges) > len(shown):
            shown.append(f"and {len(self._ranges) - len(shown)} more")
        for name, value in vars(self._options).items():
            if value == SCAN_OPTIONS[name].default:
                continue
            if name in {"keys", "offsets"}:
                shown.append(f"{name}: {len(value)}")
            elif name == "columns":
                shown.append(f"columns={list(value)!r}")
            else:
                shown.append(f"{name}={value!r}")
        return f"Scan({', '.join(shown)})"


def _rebuilt(ranges: Ranges, options: CheckedScan, raises_last: bool = False, durable: bool = False) -> Scan:
    return Scan._of(ranges, options, raises_last=raises_last, durable=durable)  # noqa: SLF001  # the other half of Scan.__reduce__


def _range_text(log: Log | Part, start: int | None, stop: int | None) -> str:
    name = f"{log.topic}-{log.partition}"
    if start is None and stop is None:
        return name
    return f"{name} [{'' if start is None else start}, {'' if stop is None else stop})"


def _required(module: str, extra: str) -> Any:  # noqa: ANN401  # a module
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = f"{module} is needed here and cannot be imported ({error}); pip install 'offsetlog[{extra}]'"
        raise ImportError(message, name=module) from error
