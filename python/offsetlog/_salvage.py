"""``salvage``: a sound log of everything that can be read of a damaged one, and what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offsetlog import _offsetlog
from offsetlog._notebook import report_table
from offsetlog._options import check_progress, flag, open_options, path_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from offsetlog._options import Limits, PathLike

__all__ = ["LeftOut", "Loss", "SalvageReport", "TakenBack", "salvage"]


class Loss(NamedTuple):
    """Bytes of a log that cannot be read, and what may be missing with them."""

    path: str
    """The ``.log`` file."""
    position: int
    """Where in it they begin, in bytes."""
    bytes: int
    """How many."""
    start: int
    """First offset that may be missing."""
    stop: int | None
    """Offset behind the last one that may be missing; ``None`` if nobody knows."""
    reason: str
    """What is wrong with the bytes."""
    taken_back: int = 0
    """Offsets of this range that came back from ``offsetlog-cut`` or another replica."""
    records_max: int | None = None
    """The most records that are missing: compaction leaves offsets out too. ``None`` if nobody knows."""
    time_before: int | None = None
    """Greatest timestamp of the batch before, in milliseconds since 1970; ``None`` without one."""
    time_after: int | None = None
    """Greatest timestamp of the batch behind."""


class TakenBack(NamedTuple):
    """Batches that came back from one file that was set aside, or from another replica."""

    path: str
    """The file; of a replica, its directory."""
    batches: int
    """How many batches."""
    records: int
    """Records in them, without control records."""
    first_offset: int
    """Their first offset."""
    last_offset: int
    """Their last offset."""


class LeftOut(NamedTuple):
    """Batches that were left in a file that was set aside, or in another replica."""

    path: str
    """The file; of a replica, its directory."""
    batches: int
    """How many; 0 for bytes that cannot be read."""
    first_offset: int
    """Their first offset."""
    last_offset: int | None
    """Their last offset; ``None`` if nobody knows."""
    reason: str
    """Why."""


class SalvageReport(NamedTuple):
    """What :func:`offsetlog.salvage` made, and what is lost."""

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    source: str
    """The directory that was read."""
    path: str
    """The new partition directory."""
    dry_run: bool
    """Whether nothing was written; all else is what the real run would have reported."""
    records: int
    """Records that can be read in the new log, control records aside."""
    batches: int
    """Batches in it."""
    bytes_written: int
    """Bytes of its segments."""
    log_start_offset: int
    """Lowest offset that can be read."""
    log_end_offset: int
    """Offset that the next record gets."""
    losses: tuple[Loss, ...] = ()
    """What could not be read, in the order of the log; at most 10,000 places. The first one may be before the first segment: by the
    log dir's log start offset the log begins there, with tiered storage in the remote store. The last one may be the end of the log:
    the log dir's high watermark is beyond it, so records that were replicated and acknowledged are not here."""
    loss_count: int = 0
    """Number of such places."""
    torn_tail_bytes: int = 0
    """Bytes behind the last whole batch, which are no batch. What was promised of them is in `losses`."""
    taken_back: tuple[TakenBack, ...] = ()
    """What came back from files that were set aside."""
    left_out: tuple[LeftOut, ...] = ()
    """What was left in them, and why."""
    first_unstable_offset: int | None = None
    """Where the oldest transaction without a marker begins, which ``read_committed`` readers wait for; ``None`` without one."""
    warnings: tuple[str, ...] = ()
    """Files beside the segments that could not be read, and so were not taken over."""

    def _repr_html_(self) -> str:
        return report_table(self)


def salvage(
    source: PathLike,
    into: PathLike,
    *,
    include_truncated: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], object] | None = None,
    **limits: Unpack[Limits],
) -> SalvageReport:
    """Make a new partition directory of everything that can be read of a damaged one, which is not changed.

    Reads on behind each damaged place, as ``scan(on_corrupt="skip")`` does. Each record keeps its offset, timestamp, key, value and
    headers, each batch its producer and its leader epoch, and producers whose records are deleted stay known. So a broker opens the
    new log, and consumers go on in it (tried with 2.8.2, 3.9.2 and 4.3.0). Messages of magic 0 and 1 become magic 2.

    Batches that an earlier :func:`recover` cut off and kept in the folder ``offsetlog-cut`` are restored where damage left a hole
    in the log, and after the end of the log. They never replace offsets that the log has, or had and removed. The report lists
    what was restored and what was not. If the log dir's high watermark, in ``replication-offset-checkpoint`` beside `source`, is
    beyond the end of the new log, what is between them is reported as lost.

    Parameters
    ----------
    source
        The partition directory, or a file of ``offsetlog-cut``. A log dir is salvaged by a loop over its partitions, or by the
        command ``offsetlog salvage``.
    into
        The new partition directory, named ``topic-partition``: not there yet, or empty.
    include_truncated
        Take back batches too that were cut before the log was truncated below them, and whole segments that a truncation removed
        and that wait for their deletion.
    dry_run
        Write nothing; report what would be done. Reads as much as the real run.
    progress
        Called now and then with the bytes that are done and with all of them. What it raises ends the work.
    **limits
        As for :meth:`Log.open`; they hold for `source`.

    Raises
    ------
    LogDirError
        `source` holds no segments, or one of the names is not ``topic-partition``; `into` is not empty, or lies in `source`;
        `source` was truncated meanwhile: call it again.
    LogLockedError
        `into` would lie in the log dir of a running broker.
    DecompressionLimitError, LimitExceededError
        A batch is larger than allowed. Damage is no error: the report lists it.
    OSError
        The disk is full, a directory cannot be written, or the like.

    Notes
    -----
    Every byte is read once, those of files that were set aside twice; memory holds a few batches. The new directory is on the disk
    when this returns, and not there at all after an error or a crash, which leaves at most a folder beside it whose name ends in
    ``-delete``.

    Examples
    --------
    >>> import tempfile
    >>> from offsetlog import Log, salvage
    >>> folder = tempfile.TemporaryDirectory()
    >>> report = salvage("tests/data/kafka-4.3.0/torn/log-dir-1/g-torn-cut-batch-0", f"{folder.name}/g-torn-cut-batch-0")
    >>> [(loss.start, loss.stop, loss.records_max) for loss in report.losses], report.torn_tail_bytes > 0
    ([(92, 96, 4)], True)
    >>> report.records == sum(1 for record in Log.open(report.path).scan())
    True
    >>> folder.cleanup()
    """
    check_progress(progress)
    return _offsetlog.salvage(
        path_text(source),
        path_text(into),
        open_options(**limits),
        include_truncated=flag("include_truncated", include_truncated),
        dry_run=flag("dry_run", dry_run),
        progress=progress,
    )
