"""What the controllers of a cluster know: topics, partitions, settings, brokers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from offsetlog import _offsetlog

__all__ = ["BrokerRegistration", "MetadataImage", "PartitionRegistration", "Stray", "TopicImage"]

logger = logging.getLogger("offsetlog")


class PartitionRegistration(NamedTuple):
    """A partition, as the controllers know it."""

    partition: int
    """Its number."""
    replicas: tuple[int, ...]
    """Ids of the brokers that have it, the preferred leader first."""
    isr: tuple[int, ...]
    """Those of them that are in sync."""
    leader: int | None
    """The one that leads it; ``None`` while none does."""
    leader_epoch: int
    """Counts its leaders."""
    partition_epoch: int
    """Counts the changes."""
    adding_replicas: tuple[int, ...]
    """Replicas that a reassignment adds."""
    removing_replicas: tuple[int, ...]
    """Replicas that a reassignment removes."""
    elr: tuple[int, ...]
    """Replicas that are not in sync and may lead all the same."""
    last_known_elr: tuple[int, ...]
    """Those of which that was known last."""
    directories: tuple[str, ...]
    """For each replica the ``directory.id`` of its log dir. ``"AAAAAAAAAAAAAAAAAAAAAA"`` is one that is not known, with ``Q`` at its
    end one that is not assigned, with ``g`` one that is lost."""


class TopicImage(NamedTuple):
    """A topic, as the controllers know it."""

    name: str
    """Its name."""
    topic_id: str | None
    """Its id, as ``partition.metadata`` has it; ``None`` where brokers with ZooKeeper gave none, before 2.8."""
    partitions: tuple[PartitionRegistration, ...]
    """By number."""


class BrokerRegistration(NamedTuple):
    """A broker, as it registered with the controllers."""

    broker_id: int
    """Its ``node.id``."""
    epoch: int
    """The offset of its registration, in ZooKeeper the transaction."""
    rack: str | None
    """Its ``broker.rack``."""
    fenced: bool
    """Whether it may not lead."""
    in_controlled_shutdown: bool
    """Whether it is stopping."""
    endpoints: tuple[tuple[str, str, int], ...]
    """Listener, host and port of each."""
    log_dirs: tuple[str, ...]
    """The ``directory.id`` of each of its log dirs."""


class MetadataImage(NamedTuple):
    """What the metadata log says of a cluster, or ZooKeeper's data, whose transactions stand for offsets."""

    end_offset: int
    """The first offset of the metadata log that is not in it."""
    snapshot_end_offset: int | None
    """The offset, exclusive, up to which it comes from a snapshot; ``None`` without one."""
    features: dict[str, int]
    """Levels of the features that are on; ``metadata.version`` is one. Not read from ZooKeeper's data."""
    brokers: tuple[BrokerRegistration, ...]
    """By id."""
    topics: tuple[TopicImage, ...]
    """By name."""
    configs: dict[tuple[str, str], dict[str, str]]
    """Dynamic settings by type and name of what they are for: ``("topic", "orders")``, ``("broker", "1")``, ``("broker", "")`` for all
    brokers, ``"broker-logger"``, ``"client-metrics"``, ``"group"``. Values as they stand there, passwords too; of ZooKeeper's data
    those of topics and brokers, without passwords."""
    removed_topics: tuple[tuple[str, str], ...]
    """Name and id of topics whose removal stands behind the snapshot; it forgets those before."""


class Stray(NamedTuple):
    """A partition directory that the metadata does not have."""

    topic: str
    """The topic that the directory's name says."""
    partition: int
    """The partition that it says."""
    path: str
    """The directory."""
    topic_id: str | None
    """The topic's id in its ``partition.metadata``; ``None`` without the file."""
    reason: str
    """What the metadata says instead."""


def metadata_of(native: _offsetlog.LogDir) -> MetadataImage | None:
    """Return what the compiled module found as the public values; what was left out is told to the log."""
    found = native.metadata()
    if found is None:
        return None
    image, warnings = found
    for warning in warnings:
        logger.warning("%s", warning)
    return image


def strays_of(native: _offsetlog.LogDir) -> list[Stray] | None:
    """Return what the compiled module found as the public values; what was left out is told to the log."""
    found = native.strays()
    if found is None:
        return None
    strays, warnings = found
    for warning in warnings:
        logger.warning("%s", warning)
    return strays
