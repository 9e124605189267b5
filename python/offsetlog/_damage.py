"""What a scan did, and what is damaged, as data: what scans left out, and what verifying finds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from offsetlog import _offsetlog, errors
from offsetlog._notebook import report_table
from offsetlog._options import check_progress, open_options, path_text
from offsetlog._unread import all_or_raise
from offsetlog._values import TopicPartition
from offsetlog.errors import CorruptionError, OffsetLogError

if TYPE_CHECKING:
    from typing import Unpack

    from offsetlog._options import Limits, PathLike

__all__ = ["DamageReport", "Finding", "Hole", "ScanReport", "verify"]

logger = logging.getLogger("offsetlog")


class Hole(NamedTuple):
    """Bytes of a ``.log`` file from which no records could be read."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    path: str
    """The ``.log`` file."""
    position: int
    """Where in the file the bytes begin. Of a batch with a bad record it is the first byte; the records before that one were given."""
    size_bytes: int
    """How many bytes."""
    start: int | None
    """First offset that may be missing."""
    stop: int | None
    """Offset behind the last one that may be missing; ``None`` where nothing tells."""
    error: str
    """Name of the error class that ``on_corrupt="raise"`` would have raised, such as ``"CorruptBatchError"``; empty for an
    unfinished end, which is none."""
    reason: str
    """What is wrong, in words."""

    @property
    def offsets(self) -> int | None:
        """How many offsets may be missing; compaction and transactions leave offsets out too, so fewer records may be."""
        return None if self.start is None or self.stop is None else self.stop - self.start


class ScanReport(NamedTuple):
    """What a reading of a :class:`Scan` did and left out, so far."""

    holes: tuple[Hole, ...] = ()
    """In the order of the scan, at most 10,000 of them."""
    hole_count: int = 0
    """How many there are."""
    hole_bytes: int = 0
    """Bytes of all of them."""
    torn_tails: tuple[Hole, ...] = ()
    """Unfinished ends of active segments, at which logs ended: no damage, but what a crash or a write in progress leaves."""
    segments: int = 0
    """Segments that were opened. This and the following fields are as of the segment that was opened last, or of the end."""
    batches: int = 0
    """Record batches whose records were looked at."""
    batches_skipped: int = 0
    """Record batches that were stepped over by their header: outside the range, too old, of an aborted transaction."""
    bytes_read: int = 0
    """Bytes of ``.log`` files that were passed."""

    def _repr_html_(self) -> str:
        return report_table(self)


def scan_report(native: _offsetlog.Scan | None) -> ScanReport:
    """Return the report of the compiled module's scan as the public value."""
    return ScanReport() if native is None else native.report()


def raise_damage(report: ScanReport, result: object) -> None:
    """Raise what a reading of several partitions met that ended at the damage of each, and read the others: that is `result`."""
    if not report.holes:
        return
    failed: dict[TopicPartition, Exception] = {}
    for hole in report.holes:
        kind: type[OffsetLogError] = getattr(errors, hole.error, CorruptionError)
        message = f"{hole.reason}; {hole.path} position {hole.position}, records from offset {hole.start} on are not given"
        error = kind(message, path=hole.path, position=hole.position, offset=hole.start)
        failed.setdefault(TopicPartition(hole.topic, hole.partition), error)
    all_or_raise(result, failed, alone=False)


class Finding(NamedTuple):
    """One thing that :func:`verify` found."""

    severity: str
    """``"error"``: bytes contradict themselves or each other. ``"warning"``: something is missing or unfinished that can be
    rebuilt or cut off without loss. ``"note"``: a running or killed broker leaves it, or Kafka accepts it; nothing is wrong."""
    kind: str
    """The name of the error that reading raises, such as ``"CorruptBatchError"``, or ``"TornTail"``, ``"ZeroTail"``,
    ``"MissingFile"``, ``"Leftover"``, ``"Gap"``, ``"LeaderEpoch"``."""
    path: str
    """The file or folder."""
    position: int | None
    """Where in the file."""
    offset: int | None
    """The offset, where one is known."""
    reason: str
    """What is wrong, in words."""
    found: str | None
    """What was found, where that is a value."""
    expected: str | None
    """What was expected."""
    clean: str
    """What Kafka does with it when it starts after a clean stop."""
    unclean: str
    """What Kafka does with it when it starts after a crash."""
    recover: str
    """What :func:`recover` does with it."""


class DamageReport(NamedTuple):
    """What :func:`verify` found and looked at."""

    findings: tuple[Finding, ...]
    """In the order met, at most 10,000 of them."""
    notes: int
    """How many notes there are."""
    warnings: int
    """How many warnings."""
    errors: int
    """How many errors."""
    partitions: int
    """Partitions looked at."""
    segments: int
    """Segments read."""
    batches: int
    """Whole batches met."""
    records: int
    """Records decoded."""
    bytes_read: int
    """Bytes of ``.log`` files read."""

    @property
    def damaged(self) -> bool:
        """Whether there are warnings or errors."""
        return self.warnings + self.errors > 0

    def _repr_html_(self) -> str:
        return report_table(self)


def verify(
    *paths: PathLike,
    progress: Callable[[int], object] | None = None,
    **limits: Unpack[Limits],
) -> DamageReport:
    """Check partitions, or log dirs with all partitions in them, without changing a byte.

    Reads every batch, decodes every record, and holds against them what lies beside: indexes, leader epochs, transaction indexes,
    producer snapshots, checkpoints, names. Takes no lock, makes no file, works beside a running broker.

    Where the cluster's metadata is among the paths, a directory that it does not have is a warning of the kind ``Stray``, as of
    :meth:`LogDir.strays`: its broker would set it aside.

    Parameters
    ----------
    *paths
        Partition directories or log dirs, and the folder with the cluster's metadata, or ZooKeeper's data.
    progress
        Called every few MiB with the bytes read since it was called last; what it raises ends the work.
    **limits
        As for :meth:`Log.open`.

    Raises
    ------
    OSError
        As the operating system says, with ``errno`` and ``filename``.
    LogDirError
        A path is neither a partition nor a log dir.
    LimitExceededError
        A limit was reached, as by a batch above ``max_batch_bytes``.

    Examples
    --------
    >>> report = verify("tests/data/kafka-4.3.0/torn/log-dir-1/g-torn-flip-old-0")
    >>> [(finding.severity, finding.kind, finding.offset) for finding in report.findings]
    [('error', 'CorruptBatchError', 36)]
    """
    check_progress(progress)
    report, not_compared = _offsetlog.verify([path_text(path) for path in paths], open_options(**limits), progress=progress)
    if not_compared is not None:
        logger.warning("not compared with the metadata: %s", not_compared)
    return report
