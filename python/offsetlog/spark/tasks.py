"""Runs a task on an executor: reads its ranges as Arrow batches, and notices records that are gone.

The same for batch queries, streams and direct scans.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence

import pyarrow
from pyspark.sql.datasource import InputPartition

from offsetlog import Log, OffsetOutOfRangeError, Scan, ScanReport, open_cached
from offsetlog._commit.looks import is_folder
from offsetlog._text import counted
from offsetlog.errors import OffsetLogError
from offsetlog.spark.filters import Pushed
from offsetlog.spark.leader_epochs import replaced_from
from offsetlog.spark.options import Settings
from offsetlog.spark.planned import Planned, topic_id_of
from offsetlog.spark.report import SplitRead

__all__ = ["batches", "input_partitions", "read_task", "told_batches"]

logger = logging.getLogger("offsetlog")

# Spark turns batches into rows one by one and pays for each batch: 1 to 10 MB is where it is fastest.
SPARK_BATCH_BYTES = 2 << 20
HOLES_LOGGED = 100
# How often retention may be quicker than a task that has just looked what is there.
BEGINNINGS = 5


def input_partitions(tasks: Sequence[Sequence[Planned]]) -> list[InputPartition]:
    """Return tasks as Spark takes them, each as plain tuples: they are pickled."""
    return [InputPartition(tuple(tuple(split) for split in task)) for task in tasks]


def read_task(
    partition: InputPartition | None, settings: Settings, pushed: Pushed | None = None, not_null: Sequence[str] = ()
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches of one of :func:`input_partitions`; nothing for ``None``, which Spark passes if there is none.

    Parameters
    ----------
    partition
        The task.
    settings, pushed
        What to read of its ranges.
    not_null
        Columns that the user's schema declares NOT NULL: Spark compares schemas for equality.
    """
    ranges = None if partition is None else partition.value
    for batch in batches([Planned(*entry) for entry in ranges or ()], settings, pushed):
        if not_null:
            fields = [field.with_nullable(field.name not in not_null) for field in batch.schema]
            yield pyarrow.RecordBatch.from_arrays(batch.columns, schema=pyarrow.schema(fields))
        else:
            yield batch


def told_batches(
    splits: Sequence[Planned], settings: Settings, pushed: Pushed, told: list[SplitRead]
) -> Generator[pyarrow.RecordBatch, None, None]:
    """Yield the batches of one task as :func:`batches`, one range after the other, and note in `told` what was read of each."""
    for split in splits:
        records = record_bytes = 0
        reports: list[ScanReport] = []
        try:
            for batch in batches([split], settings, pushed, reports.append):
                records += batch.num_rows
                record_bytes += batch.nbytes
                yield batch
        finally:
            report = reports[-1] if reports else ScanReport()
            counts = report.batches, report.batches_skipped, report.bytes_read
            told.append(SplitRead(split.split, records, record_bytes, *counts, report.holes))


def batches(
    splits: Sequence[Planned], settings: Settings, pushed: Pushed | None = None, told: Callable[[ScanReport], object] | None = None
) -> Generator[pyarrow.RecordBatch, None, None]:
    """Yield the Arrow batches of one task, one at a time, each of some MiB at most unless a single record is larger.

    After each scan `told` is called with what was done, and what was left out is logged. There is one scan; without ``failOnDataLoss``
    there is one for each range.

    Raises
    ------
    OffsetOutOfRangeError, FileNotFoundError
        Records that were planned are gone, and ``failOnDataLoss`` is on. Those that went away while the task was reading are
        noticed at its end.
    OSError, OffsetLogError
        A file cannot be read. Errors in the middle of the stream come as pyarrow's, with the whole text.
    """
    pushed = pushed or Pushed(keys=settings.keys)
    # What went away before a range is come to is left out with a warning, and not found by a scan that is under way.
    parts = [splits] if settings.fail_on_data_loss else [[split] for split in splits]
    for part in parts:
        yield from _read(part, settings, pushed, told)


def _read(
    splits: Sequence[Planned], settings: Settings, pushed: Pushed, told: Callable[[ScanReport], object] | None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches of ranges that one scan reads."""
    left = _still_there(splits, settings)
    for attempt in range(1, BEGINNINGS + 1):
        if not left:
            return
        has_begun = False
        try:
            scan, stream, left = _begun(left, settings, pushed)
            try:
                with stream:
                    for batch in stream:
                        if batch.num_rows:
                            has_begun = True
                            yield batch
            finally:
                _tell(scan.report, told)
            break
        except (pyarrow.ArrowException, OSError, OffsetLogError):
            if settings.fail_on_data_loss:
                # Where a file went away under the scan, this says which offsets went with it.
                _still_there(left, settings)
            if settings.fail_on_data_loss or has_begun or attempt == BEGINNINGS:
                raise
            before, left = left, _still_there(left, settings)
            # Retention was quicker than the first batch: what is left is read.
            if left == before:
                raise
    _check_not_cut(left, settings)


def _begun(splits: list[Planned], settings: Settings, pushed: Pushed) -> tuple[Scan, pyarrow.RecordBatchReader, list[Planned]]:
    """Return a scan that has begun, and the ranges that it reads: less than `splits` where retention was quicker than this."""
    attempts = 1 if settings.fail_on_data_loss else BEGINNINGS
    while True:
        attempts -= 1
        scan = Scan.over(
            [each.split for each in splits],
            columns=settings.columns,
            keys=pushed.keys,
            start_timestamp=pushed.start_timestamp,
            stop_timestamp=pushed.stop_timestamp,
            isolation_level=settings.isolation_level,
            verify_checksums=settings.verify_checksums,
            on_corrupt=settings.on_corrupt,
            batch_bytes=SPARK_BATCH_BYTES,
            **settings.limits,
        )
        try:
            return scan, pyarrow.RecordBatchReader.from_stream(scan), splits
        except OffsetOutOfRangeError:
            if not attempts:
                raise
            splits = _still_there(splits, settings)


def _tell(report: ScanReport, told: Callable[[ScanReport], object] | None) -> None:
    for hole in report.holes[:HOLES_LOGGED]:
        size = counted(hole.size_bytes, "byte")
        logger.warning("left out %s at position %d of %s: %s", size, hole.position, hole.path, hole.reason)
    if report.hole_count > HOLES_LOGGED:
        logger.warning("left out %s more", counted(report.hole_count - HOLES_LOGGED, "place"))
    if told is not None:
        told(report)


def _still_there(splits: Sequence[Planned], settings: Settings) -> list[Planned]:
    """Return what is left of `splits`: a broker may have removed or cut segments, or removed topics, since they were planned.

    A scan cannot tell: to it a log that was cut is a log that ends there, and offsets without records are what compaction leaves.
    """
    left = []
    logs: dict[str, Log] = {}
    for split in splits:
        try:
            log = logs.get(split.path) or logs.setdefault(split.path, _log(split, settings))
            first, end = log.log_start_offset, log.log_end_offset
            readable = min(log.last_stable_offset, end) if settings.isolation_level == "read_committed" else end
        except FileNotFoundError:
            # With the directory in place, a single file went between listing and opening: no reason to leave out all the rest.
            if is_folder(split.path):
                raise
            _check_mounted(split)
            _lose(split, split, settings, "the partition directory is not there")
            continue
        if _was_made_anew(split, log, settings, (first, end)):
            continue
        if first > split.start:
            _lose(split, split._replace(stop=min(first, split.stop)), settings, f"the log now starts at {first}", (first, end))
        stop, why = _readable(split, log, end, readable)
        if stop < split.stop:
            _lose(split, split._replace(start=max(stop, split.start)), settings, why, (first, end))
        start, stop = max(first, split.start), min(stop, split.stop)
        if start < stop:
            left.append(split._replace(start=start, stop=stop))
    return left


def _readable(split: Planned, log: Log, end: int, readable: int) -> tuple[int, str]:
    """Return up to which offset a range can be read as it was planned, and why not further."""
    replaced = replaced_from(log, split.stop, split.leader_epoch)
    if replaced is not None and replaced < readable:
        return replaced, (
            f"the log was truncated to {replaced} or below and grew again, and its records from there on are of leader epochs above "
            f"{split.leader_epoch}, that of offset {split.stop - 1} when it was planned"
        )
    return readable, f"the log now ends at {end}" if readable == end else f"the last stable offset is now {readable}"


def _was_made_anew(split: Planned, log: Log, settings: Settings, there: tuple[int, int]) -> bool:
    """Say that a topic is another one of the same name, if both have ids: nothing of what was planned is there."""
    found = None if split.topic_id is None else topic_id_of(log)
    if found is None or found == split.topic_id:
        return False
    _lose(split, split, settings, f"the topic was made anew: it had the id {split.topic_id}, and has {found} now", there)
    return True


def _check_mounted(split: Planned) -> None:
    """Refuse to take a folder that this machine does not see for a topic that was deleted, whatever ``failOnDataLoss`` says."""
    folder = os.path.dirname(split.path)
    if not os.path.isdir(folder):
        message = (
            f"host {socket.gethostname()} does not see the folder of {split.topic}-{split.partition}: "
            "every worker must see log dirs under the paths that the driver has for them"
        )
        raise FileNotFoundError(errno.ENOENT, message, folder)


def _check_not_cut(splits: Sequence[Planned], settings: Settings) -> None:
    """Look once more when all was read: a file that is cut while it is read just ends there, or continues with other records.

    Segments and directories that were removed meanwhile need no second look: what was open is read to its end, and what was not
    fails to open.
    """
    for split in splits:
        try:
            log = open_cached(split.path, **settings.limits)
            first, end = log.log_start_offset, log.log_end_offset
            if _was_made_anew(split, log, settings, (first, end)):
                continue
            stop, why = _readable(split, log, end, end)
        except FileNotFoundError:
            continue
        if stop < split.stop:
            _lose(split, split._replace(start=max(stop, split.start)), settings, why, (first, end))


def _log(split: Planned, settings: Settings) -> Log:
    # Whether a broker has the log dir, and so bounds the last stable offset by what is replicated, is looked up when a log is opened.
    if settings.isolation_level == "read_committed":
        return Log.open(split.path, "r", **settings.limits)
    return open_cached(split.path, **settings.limits)


def _lose(split: Planned, lost: Planned, settings: Settings, reason: str, there: tuple[int, int] | None = None) -> None:
    """Say that `lost`, a part of `split` or all of it, cannot be read: an error or a warning, as ``failOnDataLoss`` has it."""
    message = (
        f"offsets {lost.start} to {lost.stop - 1} of {split.topic}-{split.partition} are gone: {reason}; "
        f"they were removed after the query was planned, or this worker, on host {socket.gethostname()}, sees another copy of the log"
    )
    if not settings.fail_on_data_loss:
        logger.warning("%s; what is left is read, as failOnDataLoss is false; path %s", message, split.path)
        return
    message = f"{message} (failOnDataLoss = false reads what is left)"
    if there is None:
        raise FileNotFoundError(errno.ENOENT, message, split.path)
    first, end = there
    raise OffsetOutOfRangeError(message, requested=lost.start, log_start_offset=first, log_end_offset=end, path=split.path)
