"""Who holds back records: producers, open transactions and their end, and what keeps records from being deleted, compacted or read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from offsetlog import _offsetlog
from offsetlog._notebook import Rows, report_table
from offsetlog._options import PathLike, bounded, check_progress, flag, integer, open_options, path_text, path_texts
from offsetlog._topics import topic_name
from offsetlog._unread import all_or_raise

if TYPE_CHECKING:
    from typing import Unpack

    from offsetlog._options import Limits
    from offsetlog._values import TopicPartition

__all__ = ["DecisiveSetting", "EndedTransaction", "PartitionProducer", "WhyAnswer", "end_transaction"]

logger = logging.getLogger("offsetlog")

T = TypeVar("T")


class PartitionProducer(NamedTuple):
    """A producer as one partition knows it, and what its transaction coordinator says of it."""

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    path: str
    """Its directory."""
    producer_id: int
    """The producer id."""
    producer_epoch: int
    """The producer epoch of its last batch or marker."""
    last_sequence: int | None
    """Sequence of its last record; ``None`` if only markers of that epoch are known."""
    last_offset: int | None
    """Offset of its last record; ``None`` if only markers of that epoch are known."""
    last_timestamp: int | None
    """Greatest timestamp of its last batch, or that of its last marker, in ms since 1970."""
    coordinator_epoch: int | None
    """Epoch of the coordinator that wrote its last marker."""
    transaction_first_offset: int | None
    """First offset of its open transaction; ``None`` without one."""
    transaction_start_timestamp: int | None
    """Timestamp of that record; ``None`` if it has none, or was deleted."""
    transactional_id: str | None
    """Its ``transactional.id``, if a ``__transaction_state`` here has it."""
    state: str | None
    """State of the transactional id, as :attr:`Transaction.state`."""
    timeout_ms: int | None
    """``transaction.timeout.ms`` of the transactional id."""
    standing: str
    """What its open transaction waits for: ``"ongoing"``, ``"committing"`` or ``"aborting"`` (decided, the marker is missing here),
    ``"hanging"`` (no coordinator has it), ``"unknown"`` (its coordinator's partition is not here); ``"none"`` without one."""

    def _repr_html_(self) -> str:
        return report_table(self)


class DecisiveSetting(NamedTuple):
    """A setting that decided."""

    name: str
    """Kafka's name."""
    value: str | None
    """Its value; ``None`` if it is not known."""
    source: str
    """Where the value comes from, as in :attr:`EffectiveSetting.source`."""


class WhyAnswer(NamedTuple):
    """What keeps records of one partition, or that nothing does."""

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    path: str
    """Its directory."""
    question: str
    """``"deletion"``, ``"compaction"`` or ``"read_committed"``."""
    reason: str
    """``"due"`` (nothing holds it), ``"empty"``, ``"policy"``, ``"unlimited"``, ``"not-due"``, ``"later-timestamp"``,
    ``"not-replicated"``, ``"active-segment"``, ``"open-transaction"``, ``"compaction-lag"``, ``"dirty-ratio"``, ``"clean"``,
    ``"cleaner-off"`` (the broker has ``log.cleaner.enable=false``), ``"unknown-setting"`` or ``"tiered"``."""
    sentence: str
    """The answer in a sentence."""
    remedy: str
    """What would free the records; empty if nothing holds them."""
    segment: int | None
    """Base offset of the segment in question."""
    offset: int | None
    """Offset of the record that decides."""
    timestamp: int | None
    """Its timestamp, in ms since 1970."""
    due_timestamp: int | None
    """When that ends by itself, in ms since 1970."""
    size_bytes: int | None
    """Bytes that are kept by this, or due."""
    producer: PartitionProducer | None
    """The producer whose transaction is open."""
    settings: tuple[DecisiveSetting, ...]
    """The settings that decided."""

    def _repr_html_(self) -> str:
        return report_table(self)


class EndedTransaction(NamedTuple):
    """A transaction that :func:`end_transaction` ended."""

    dry_run: bool
    """Whether nothing was appended."""
    committed: bool
    """Whether it was committed; otherwise it was aborted."""
    marker_offset: int | None
    """Offset of the marker; ``None`` for a dry run."""
    last_stable_offset_before: int
    """First offset that ``read_committed`` did not read."""
    last_stable_offset: int
    """The same afterwards."""
    producer: PartitionProducer
    """The producer and what its coordinator knew, before the end."""

    def _repr_html_(self) -> str:
        return report_table(self)


def names_of(names: str | Iterable[str], argument: str = "topics") -> list[str]:
    """Return names of topics, or of what the argument is called; one may stand by itself."""
    named: list[Any] = [names] if isinstance(names, str) else list(names)
    for name in named:
        if not isinstance(name, str):
            message = f"names in {argument} must be str, found {type(name).__name__}"
            raise TypeError(message)
    return named


def told(answer: tuple[list[T], list[str], dict[TopicPartition, Exception]]) -> list[T]:
    """Return what was found; log what was left out."""
    found, warnings, unread = answer
    for warning in warnings:
        logger.warning("%s", warning)
    return all_or_raise(Rows(found), unread)


def end_transaction(  # noqa: PLR0913  # each is an option of its own
    paths: PathLike | Sequence[PathLike],
    topic: str,
    partition: int,
    producer_id: int,
    *,
    commit: bool | None = None,
    without_state: bool = False,
    dry_run: bool = False,
    single_replica: bool = False,
    metadata: PathLike | None = None,
    progress: Callable[[int, int, str], object] | None = None,
    **limits: Unpack[Limits],
) -> EndedTransaction:
    """End the open transaction of a producer in one partition: append its marker, while the broker is stopped.

    The coordinator's record in ``__transaction_state`` decides, as it is in `paths`. ``PrepareCommit`` and ``CompleteCommit`` are
    committed, ``PrepareAbort`` and ``CompleteAbort`` aborted; ``Ongoing`` may be aborted, with ``commit=False``. The marker is on the
    disk when this returns. A refusal changes nothing; other replicas are found when the partition was opened for appending, which may
    have recovered it. Killed brokers of 2.8.2, 3.9.2 and 4.3.0 end their transactions alike.

    Parameters
    ----------
    paths
        The log dirs of the stopped broker, all of them.
    topic, partition, producer_id
        Whose transaction: see :meth:`LogDir.producers`.
    commit
        ``True`` commits and ``False`` aborts a transaction that the coordinator has not decided; by default only its decision is
        carried out.
    without_state
        End it although no coordinator's record tells how, or although the partition ends below its high watermark, so that the
        marker may be lost; `commit` must be given.
    dry_run
        Append nothing, and return what would be done.
    single_replica
        In a broker's log dir: append although other brokers have replicas.
    metadata
        In a broker's log dir: the folder with the cluster's metadata log, if it is none of `paths`.
    progress
        Called before each partition of ``__transaction_state`` with the number of partitions done, the total, and the partition's
        name, and once more at the end; and the same again when the partition is locked. An exception it raises ends the work, and
        no marker is appended.
    **limits
        As for :meth:`Log.open`.

    Raises
    ------
    ConfigError
        There is no such transaction, or the coordinator's record forbids this end; the text says what may be done.
    ClusterError
        Other brokers have replicas of the partition.
    LogLockedError
        The broker runs, or somebody writes the partition.

    Examples
    --------
    >>> clean = "tests/data/kafka-4.3.0/clean"
    >>> dirs = [f"{clean}/log-dir-1", f"{clean}/log-dir-2"]
    >>> ended = end_transaction(dirs, "g-txn", 0, 1000, commit=False, dry_run=True)
    >>> ended.committed, ended.producer.transactional_id, ended.last_stable_offset_before
    (False, 'g-tx-open', 347)
    """
    check_progress(progress)
    ended, warnings = _offsetlog.end_transaction(
        path_texts(paths),
        topic_name(topic),
        bounded("partition", partition, minimum=0, bits=32),
        integer("producer_id", producer_id, minimum=0),
        open_options(**limits),
        commit=None if commit is None else flag("commit", commit),
        without_state=flag("without_state", without_state),
        dry_run=flag("dry_run", dry_run),
        single_replica=flag("single_replica", single_replica),
        metadata=None if metadata is None else path_text(metadata),
        progress=progress,
    )
    for warning in warnings:
        logger.warning("%s", warning)
    return ended
