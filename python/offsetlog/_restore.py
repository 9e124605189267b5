"""``restore``: topics from a dead broker's disks into a new cluster, a stopped broker's log dirs, or a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offsetlog import _offsetlog
from offsetlog._held_records import names_of
from offsetlog._notebook import report_table
from offsetlog._options import RestoreOptions, bounded, check_progress, flag, integer, open_options, path_text, path_texts
from offsetlog._times import optional_millis
from offsetlog._topics import topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from typing import Unpack

    from offsetlog._options import Limits, PathLike
    from offsetlog._salvage import LeftOut, Loss, TakenBack
    from offsetlog._values import TopicPartition

__all__ = ["NewReplica", "NotRestored", "OtherReplica", "Remaining", "RestoreReport", "RestoredPartition", "restore"]


class OtherReplica(NamedTuple):
    """A replica that was not taken. It fills holes of the one that was, where it has the very batches."""

    path: str
    """Its directory."""
    less: str
    """What it has less than the one that was, or how it failed while it was read."""


class NewReplica(NamedTuple):
    """Where a partition is restored to."""

    node_id: int | None
    """The broker; ``None`` in a folder of no broker."""
    path: str
    """The new directory."""


class RestoredPartition(NamedTuple):
    """What became of one partition, or is to become."""

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    state: str
    """``"planned"`` (a dry run), ``"restored"`` (and read back), ``"there"`` (it was there already, record for record),
    ``"refused"`` (it cannot be restored there) or ``"failed"``."""
    reason: str | None
    """Why it was refused, or failed."""
    source: str
    """The directory of the replica that was taken: of those with the greatest leader epoch the longest, and the next best where that
    one failed while it was read."""
    other_replicas: tuple[OtherReplica, ...]
    """The others, which fill its holes."""
    into: tuple[NewReplica, ...]
    """Where it is restored to."""
    topic_id: str | None
    """The topic's id there."""
    log_start_offset: int
    """First offset."""
    log_end_offset: int | None
    """Offset, exclusive, up to which it is restored; ``None`` where damage hides where the log ends."""
    is_cut: bool
    """Whether the log continues after that, in the source or in what fills it, because of `until` or `ends`."""
    bytes: int
    """Bytes of the segments that are read, at most."""
    newest_timestamp: int | None
    """The greatest timestamp of the last segment that is read, in milliseconds since 1970; ``None`` if no record has one."""
    leader_epoch: int | None
    """The greatest leader epoch of the source."""
    leader_epoch_max: int | None
    """The greatest leader epoch of the new log, where the target's cluster would not take those of the source: they are then
    renumbered, from 0 on. ``None``: they are kept."""
    records: int | None
    """Records that were restored, by this call or an earlier one, control records aside; ``None`` if none were to be now."""
    losses: tuple[Loss, ...]
    """What could not be read of the replica that was taken, and how much of it came back; at most 10,000 places."""
    loss_count: int
    """Number of such places."""
    taken_back: tuple[TakenBack, ...]
    """What came back: from the other replicas, each by its directory, and from files that recovery had set aside."""
    left_out: tuple[LeftOut, ...]
    """What the same have there and was left, and why: where replicas differ, they are not mixed."""
    first_unstable_offset: int | None
    """Where the oldest transaction without a marker begins, which ``read_committed`` readers wait for; ``None`` without one."""


class NotRestored(NamedTuple):
    """A topic or partition that is among the sources and is not restored."""

    name: str
    """Its name."""
    reason: str
    """Why."""


class Remaining(NamedTuple):
    """Something that is left to be done by hand."""

    about: str
    """What it is about: topics, a partition, ``groups``, ``access``, ``first start``."""
    reason: str
    """Why, in a sentence."""
    commands: tuple[str, ...]
    """The commands for it."""


class RestoreReport(NamedTuple):
    """What :func:`offsetlog.restore` did, or would do."""

    target: str
    """``"new-cluster"``, ``"stopped-broker"`` or ``"folder"``."""
    dry_run: bool
    """Whether nothing was written."""
    bytes: int
    """Bytes to be read, at most."""
    reading_seconds_min: int | None
    """Of a dry run: seconds that reading takes at least, by samples of the largest logs. Writing comes on top; what the system has in
    memory comes faster. ``None`` for less than a second, where no sample can be read, and behind the work."""
    has_losses: bool
    """Whether a topic that was asked for or a partition is missing, refused or failed, or records were lost."""
    partitions: tuple[RestoredPartition, ...]
    """By topic and number."""
    missing: tuple[TopicPartition, ...]
    """Partitions that the topics had, and that no source has. In a new cluster they begin empty."""
    left_out: tuple[NotRestored, ...]
    """What is not restored, and why."""
    bootstrap_checkpoints: tuple[str, ...]
    """The files that the topics of a new cluster are written into."""
    remaining: tuple[Remaining, ...]
    """What is left to be done by hand."""
    warnings: tuple[str, ...]
    """What is odd about the sources or the target, or was not done."""

    def _repr_html_(self) -> str:
        return report_table(self)


def restore(  # noqa: PLR0913  # one parameter a choice
    sources: PathLike | Sequence[PathLike],
    into: PathLike | Sequence[PathLike],
    *,
    topics: str | Sequence[str] = (),
    until: int | datetime | None = None,
    ends: Mapping[tuple[str, int], int] | None = None,
    new_cluster: bool = False,
    metadata: PathLike | Sequence[PathLike] = (),
    broker: PathLike | None = None,
    replication_factor: int | None = None,
    single_replica: bool = False,
    keep_retention: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int, str], object] | None = None,
    **limits: Unpack[Limits],
) -> RestoreReport:
    """Restore topics from a dead broker's disks, records with their offsets, times, headers, producers and transactions.

    Of several replicas of a partition, the one with the greatest leader epoch is used, and of those the longest. If its disk
    fails while it is read, the next best is used, whole, and a warning says what it lacks. Damage is left out, as by
    :func:`salvage`, and reported. Each partition appears whole or not at all, and every byte is read back before that. A
    partition that is already there, record for record, is kept: a restore that was killed continues when it is called again, and
    reports of such a partition what the first call would have reported.

    With `new_cluster`, `into` are the log dirs of brokers that were formatted (``kafka-storage.sh format``, Kafka 3.3 or later;
    tried with 3.9.2 and 4.3.0) and never started. The topics, with their ids, settings and partitions, are written last, into
    ``bootstrap.checkpoint``: they exist when the cluster starts. Producer ids of the old cluster are not given out again. Log dirs
    of several controllers that were formatted for Kafka 3 are taken for stopped brokers', as its brokers would set aside what they
    do not know yet; a warning says so. Without it, `into` are the log dirs of stopped brokers (tried with 2.8.2, 3.9.2 and 4.3.0)
    whose cluster has the topics, without records; or a folder of no broker. Of a stopped broker, a partition is refused if its
    topic's id in the metadata is not that of its directories, if the cluster is about to delete its topic, or if a ``-future``
    directory of it has records; warnings name others that were set aside. Metadata of which a part is missing only tells where
    partitions go.

    Parameters
    ----------
    sources
        Log dirs of dead, stopped or running brokers, several replicas too; their ``metadata.log.dir``, or ZooKeeper's data, which
        tell the topics' ids and settings; or partition directories. They are not changed.
    into
        The log dirs to restore into, of one broker or several.
    topics
        Names, or patterns in which ``*`` stands for any characters and ``?`` for one. Empty: all, but for what only means something
        in its own cluster.
    until
        Restore each partition up to its first record at this time or later, of those that can be read, wherever it comes from: what
        fills a hole may have it, and then the log ends before the end of the plan. A partition whose last records have no timestamp
        (Kafka before 0.10) is refused, unless `ends` has it.
    ends
        Offsets, exclusive, up to which partitions are restored, by topic and partition. One of a partition that no source has is
        an error.
    new_cluster
        Write the topics into the ``bootstrap.checkpoint`` of a cluster that never started.
    metadata
        The ``metadata.log.dir`` of controllers of the target that is none of `into`; or its ZooKeeper's data.
    broker
        A ``server.properties`` of the target's brokers: what holds for a topic that has nothing of its own. Without it
        nobody knows whether their retention deletes what is restored, and a new cluster's topics get -1.
    replication_factor
        Replicas of each partition in a new cluster. Default: as many as it had, at most one a broker.
    single_replica
        Restore partitions although other brokers have replicas, for a cluster that comes back without those.
    keep_retention
        In a new cluster: keep retention and ``cleanup.policy`` although they delete what is restored, at once or soon, or although
        nobody knows whether they do, instead of setting them to -1 and ``delete``.
    dry_run
        Write nothing; return the plan. Reads no record but for a time's, so damage inside the logs is not told.
    progress
        Called now and then with the bytes that are done, all of them, and the partition at work. What it raises ends the work.
    **limits
        As for :meth:`Log.open`; they hold for `sources`.

    Raises
    ------
    ValueError
        No topic is meant by one of `topics`, or no partition by one of `ends`; a path is given twice.
    LogDirError
        `into` is not what is needed, as the text says: for a new cluster, formatted. It is, holds or lies in a source. (A cluster
        that has started is no error: its controllers take no topics any more, so it is restored into as into stopped brokers.)
        A partition that cannot be restored is no error: see :attr:`RestoredPartition.state`.
    LogLockedError
        A broker runs on one of `into`.
    OSError
        The disk is full, a folder cannot be written, or the like.

    Notes
    -----
    Every byte is read once and written once, and read back; memory holds the metadata and a few batches. What is restored is on the
    disk when this returns.

    Examples
    --------
    >>> import tempfile
    >>> from offsetlog import restore
    >>> folder = tempfile.TemporaryDirectory()
    >>> report = restore("tests/data/kafka-4.3.0/clean/log-dir-1", folder.name, topics=["g-plain", "g-codec-*"])
    >>> sorted((each.topic, each.partition, each.records) for each in report.partitions)[-2:]
    [('g-plain', 0, 200), ('g-plain', 2, 200)]
    >>> report.missing
    (TopicPartition(topic='g-plain', partition=1),)
    >>> folder.cleanup()
    """
    check_progress(progress)
    if replication_factor is not None:
        integer("replication_factor", replication_factor, minimum=1)
    values = RestoreOptions(
        topics=names_of(topics),
        until=optional_millis(until, "until"),
        ends=[
            (topic_name(topic), bounded("partition", partition, minimum=0, bits=32), integer("ends", end, minimum=0))
            for (topic, partition), end in (ends or {}).items()
        ],
        new_cluster=flag("new_cluster", new_cluster),
        metadata=path_texts(metadata),
        broker=None if broker is None else path_text(broker),
        replication_factor=replication_factor,
        single_replica=flag("single_replica", single_replica),
        keep_retention=flag("keep_retention", keep_retention),
        dry_run=flag("dry_run", dry_run),
    )
    return _offsetlog.restore(path_texts(sources), path_texts(into), open_options(**limits), values, progress=progress)
