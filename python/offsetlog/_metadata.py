"""What the controllers of a cluster know: topics, partitions, settings, brokers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from offsetlog._notebook import Rows, report_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from offsetlog import _offsetlog

    Progress: TypeAlias = Callable[[int, int, str], object] | None

__all__ = [
    "AccessControlEntry",
    "BrokerRegistration",
    "ClientQuota",
    "MetadataImage",
    "PartitionRegistration",
    "ScramCredential",
    "Stray",
    "TopicImage",
]

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


class AccessControlEntry(NamedTuple):
    """An entry of an access control list. Numbers are Kafka's, as the record has them."""

    resource_type: int
    """2 a topic, 3 a group, 4 the cluster, 5 a transactional id, 6 a delegation token, 7 a user."""
    resource_name: str
    """Which one: its name, the beginning of it, or ``*``."""
    pattern_type: int
    """3 for the whole name, 4 for its beginning."""
    principal: str
    """Whom it is about, such as ``User:alice``."""
    host: str
    """From where; ``*`` is anywhere."""
    operation: int
    """2 anything, 3 read, 4 write, and so on."""
    permission_type: int
    """2 forbids it, 3 allows it."""


class ClientQuota(NamedTuple):
    """Limits of a user, a client, an address, or of several of these together."""

    entity: tuple[tuple[str, str | None], ...]
    """``user``, ``client-id`` or ``ip``, and which one; ``None`` is the default for all others."""
    quotas: dict[str, float]
    """Limits by name, such as ``producer_byte_rate``."""


class ScramCredential(NamedTuple):
    """That a user has a password for SCRAM; what it is made of is left out."""

    user: str
    """The user."""
    mechanism: int
    """1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    iterations: int
    """How often it is hashed."""


class MetadataImage(NamedTuple):
    """A cluster's metadata, from its metadata log, or from ZooKeeper's data with transaction numbers as offsets."""

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
    brokers, ``"broker-logger"``, ``"client-metrics"``, ``"group"``. Secrets are ``"[hidden]"`` unless they were asked for. Of
    ZooKeeper's data those of topics and brokers, without passwords."""
    removed_topics: tuple[tuple[str, str], ...]
    """Name and id of topics whose removal is in the log after the snapshot; the snapshot has no earlier ones."""
    acls: tuple[AccessControlEntry, ...] = ()
    """Who may do what. Not read from ZooKeeper's data, as are the next two."""
    client_quotas: tuple[ClientQuota, ...] = ()
    """Limits of users, clients and addresses."""
    scram_credentials: tuple[ScramCredential, ...] = ()
    """Who has a password, not which."""

    def _repr_html_(self) -> str:
        return report_table(self)


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

    def _repr_html_(self) -> str:
        return report_table(self)


def metadata_of(native: _offsetlog.LogDir, progress: Progress, *, show_secrets: bool) -> MetadataImage | None:
    """Return what the compiled module found as the public values; log what was left out."""
    found = native.metadata(show_secrets=show_secrets, progress=progress)
    if found is None:
        return None
    image, warnings = found
    for warning in warnings:
        logger.warning("%s", warning)
    return image


def strays_of(native: _offsetlog.LogDir, progress: Progress) -> list[Stray] | None:
    """Return what the compiled module found as the public values; log what was left out."""
    found = native.strays(progress=progress)
    if found is None:
        return None
    strays, warnings = found
    for warning in warnings:
        logger.warning("%s", warning)
    return None if strays is None else Rows(strays)
