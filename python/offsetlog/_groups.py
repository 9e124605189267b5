"""Groups of consumers, as the log dirs of their coordinators have them."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from offsetlog._notebook import Rows, report_table
from offsetlog._times import to_datetime
from offsetlog._unread import all_or_raise

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from offsetlog import _offsetlog

    Progress: TypeAlias = Callable[[int, int, str], object] | None

__all__ = ["Group", "GroupMember", "GroupOffset", "ResetFile", "ShareGroupOffset"]

logger = logging.getLogger("offsetlog")


class ResetFile(NamedTuple):
    """Committed offsets as the file that Kafka's tools reset groups from."""

    csv: str
    """The file: lines of ``topic,partition,offset`` if it is of one group, of ``group,topic,partition,offset`` if it is of several."""
    groups: tuple[str, ...]
    """Groups in it for ``kafka-consumer-groups.sh --reset-offsets --from-file``: name each with ``--group``."""
    streams_groups: tuple[str, ...]
    """Groups in it for ``kafka-streams-groups.sh``."""
    with_metadata: int
    """Offsets in it that were committed with metadata, which the file has not."""
    with_leader_epoch: int
    """Offsets in it that were committed with a leader epoch, which the file has not."""
    refused: tuple[tuple[str, str | None, str], ...]
    """What cannot be in it: the group, the topic (``None``: all of the group), and why."""

    def _repr_html_(self) -> str:
        return report_table(self)


class GroupMember(NamedTuple):
    """A member of a group when its coordinator last wrote."""

    member_id: str
    """Its id."""
    instance_id: str | None
    """Its ``group.instance.id``."""
    client_id: str
    """Its ``client.id``."""
    client_host: str
    """The address that it came from."""
    assignment: tuple[tuple[str, tuple[int, ...]], ...]
    """The partitions that it was given, by topic. A topic of which only the id is known, neither here nor in metadata here, has
    that for a name, and so has one that was deleted and whose name another topic has."""


class GroupOffset(NamedTuple):
    """An offset that a group has committed."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: int
    """The next offset to be read."""
    leader_epoch: int | None
    """Leader epoch of the record read last, where the consumer said so."""
    metadata: str
    """What the consumer put beside it."""
    commit_timestamp: int
    """When it was committed, in ms since 1970."""
    log_end_offset: int | None
    """Where the partition's log ends here; ``None`` where it is in none of the log dirs."""
    lag: int | None
    """Offsets between the two."""
    first_unread_timestamp: int | None = None
    """Timestamp of the first record at or after ``offset``, in ms since 1970: the lag as time is its age. It is the record's own, not
    an estimate. Control records and gaps that compaction left are stepped over; an ``offset`` below the log start offset counts as the
    log start offset. ``None`` if everything is read, if the record has no timestamp, if the partition is in none of the log dirs, and
    if damage hides the record, which the logger ``offsetlog`` tells."""
    topic_id: str | None = None
    """Id of the topic that it was committed for, in Kafka's text form; ``None`` where the record has none, as before Kafka 4.1."""
    is_of_another_topic: bool = False
    """The topic that has this name now, here or in the metadata, has another id: the group has read nothing of it. There is no lag."""

    @property
    def commit_datetime(self) -> datetime | None:
        """``commit_timestamp``, aware, UTC."""
        return to_datetime(self.commit_timestamp)

    @property
    def first_unread_datetime(self) -> datetime | None:
        """``first_unread_timestamp``, aware, UTC."""
        return None if self.first_unread_timestamp is None else to_datetime(self.first_unread_timestamp)


class ShareGroupOffset(NamedTuple):
    """Where a share group begins to read a partition, from ``__share_group_state``."""

    topic: str
    """Name of the topic; its id where nothing here has the name, or only the group's records have it, and for two topics."""
    partition: int
    """Number of the partition."""
    start_offset: int | None
    """The first offset that may still be delivered; ``None`` before the group has read the partition."""
    leader_epoch: int | None
    """Leader epoch of the partition when this was written."""
    delivery_complete_count: int | None
    """Number of records at or after ``start_offset`` that need no delivery; ``None`` where the broker, one before Kafka 4.2, did not
    count them."""
    log_end_offset: int | None
    """Where the partition's log ends here; ``None`` where it is in none of the log dirs."""
    lag: int | None
    """Number of records that wait for delivery or acknowledgement, as ``kafka-share-groups --describe`` computes it; ``None`` if a
    part of it is unknown."""
    first_unread_timestamp: int | None
    """As :attr:`GroupOffset.first_unread_timestamp`, of the first record at or after ``start_offset``. It may have been delivered and
    be waiting for its acknowledgement."""


class Group(NamedTuple):
    """A group of consumers."""

    group_id: str
    """Its name."""
    kind: str
    """``"classic"``, ``"consumer"``, ``"share"`` or ``"streams"``; ``"zookeeper"`` of old consumers, out of ZooKeeper's data; empty
    where only offsets are left of it."""
    protocol_type: str | None
    """Of a classic group ``"consumer"``, or what else uses the protocol, such as ``"connect"``."""
    protocol: str | None
    """How a classic group shares out partitions."""
    epoch: int | None
    """Generation of a classic group, epoch of another one."""
    leader: str | None
    """Member id of a classic group's leader."""
    members: tuple[GroupMember, ...]
    """By member id."""
    offsets: tuple[GroupOffset, ...]
    """By topic and partition."""
    state: str = "Empty"
    """Its state with Kafka's names, as a coordinator that loads its records has it: ``"Empty"`` without members, ``"Stable"``; of a
    consumer or streams group also ``"Assigning"`` and ``"Reconciling"``, of a streams group ``"NotReady"``. A rebalance of a classic
    group is not stored."""
    share_offsets: tuple[ShareGroupOffset, ...] = ()
    """Of a share group: where it begins to read, by topic and partition."""

    @property
    def lag(self) -> int:
        """Sum of the lags that are known. A negative one, of an offset behind the end of its log, counts as 0."""
        return sum(max(each.lag, 0) for each in self.offsets if each.lag is not None)

    def _repr_html_(self) -> str:
        return report_table(self)


def groups_of(native: _offsetlog.LogDir, progress: Progress) -> list[Group]:
    """Return what the compiled module found as the public values; log what was left out."""
    found, warnings, unread = native.groups(progress=progress)
    for warning in warnings:
        logger.warning("%s", warning)
    return all_or_raise(Rows(found), unread)


def prometheus_of(native: _offsetlog.LogDir, now: int | None, progress: Progress) -> str:
    """Return the same as Prometheus text; log what was left out."""
    text, warnings, unread = native.groups_prometheus(now, progress=progress)
    for warning in warnings:
        logger.warning("%s", warning)
    return all_or_raise(text, unread)


def reset_csv_of(native: _offsetlog.LogDir, names: list[str], progress: Progress) -> ResetFile:
    """Return the file for these groups, or all; log what was left out."""
    found, warnings, unread = native.groups_reset_csv(names, progress=progress)
    for warning in warnings:
        logger.warning("%s", warning)
    return all_or_raise(found, unread)
