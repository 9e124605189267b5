"""Reports what a broker would do with each directory in its log dirs, and how to recreate a cluster's topics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from offsetlog import _offsetlog
from offsetlog._held_records import names_of
from offsetlog._notebook import Rows, report_table
from offsetlog._options import check_progress, flag, open_options, path_text, utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Unpack

    from offsetlog._options import Limits, PathLike

__all__ = ["DirectoryIdentity", "identity", "metadata_as_commands", "metadata_as_yaml"]

logger = logging.getLogger("offsetlog")


class DirectoryIdentity(NamedTuple):
    """A log dir or a directory in it, and what a broker does with it when it starts."""

    path: str
    """The directory."""
    kind: str
    """``"log-dir"``; of a partition's directory, by its name, ``"live"``, ``"future"``, ``"delete"`` or ``"stray"``; ``"other"`` is a
    folder in a log dir that is not called topic-partition."""
    outcome: str
    """``"serves"``, ``"moves"`` (goes on copying, then takes it for the current one), ``"strays"`` (renames it to ``-stray``),
    ``"ignores"``, ``"deletes"``, ``"fails"`` (it or its log dir goes offline), ``"stops"`` (the broker does not start),
    ``"unknown"``."""
    reason: str
    """Why."""
    topic: str | None
    """The topic in its name; in names with ``-delete`` and ``-stray`` it may be cut short."""
    partition: int | None
    """The partition in its name."""
    topic_id: str | None
    """The id in its ``partition.metadata``."""
    version: int | None
    """The version of the log dir's ``meta.properties``: 0 of a broker with ZooKeeper, 1 of one without."""
    cluster_id: str | None
    """Its ``cluster.id``."""
    node_id: int | None
    """Its ``node.id`` or ``broker.id``."""
    directory_id: str | None
    """Its ``directory.id``."""

    def _repr_html_(self) -> str:
        return report_table(self)


def identity(
    *paths: PathLike, progress: Callable[[int, int, str], object] | None = None, **limits: Unpack[Limits]
) -> list[DirectoryIdentity]:
    """Return what a broker would do with each log dir, and with each directory in it.

    Topic ids and assignments are compared with the cluster's metadata, where that is among the paths: a ``metadata.log.dir``, or the
    data of its ZooKeeper. Without it, what depends on it is ``"unknown"``. A broker without ZooKeeper is taken for one of Kafka 4.3;
    what it does with strays all do since 3.7. Changes nothing, takes no lock, makes no file.

    Parameters
    ----------
    *paths
        Log dirs, the folder with the metadata, single partition directories. Of several brokers, each is looked at for itself.
    progress
        Called before each directory in a log dir with the number of directories done, the number known by then, and the
        directory; and once more at the end. An exception it raises ends the work.
    **limits
        As for :meth:`Log.open`.

    Returns
    -------
    list of DirectoryIdentity
        Each log dir in the order given, behind it the directories in it by name. Warnings, and metadata that cannot be read, are
        logged by the logger ``offsetlog``.

    Raises
    ------
    OSError
        A folder cannot be listed.
    LogDirError
        None of the paths has anything of a log dir, or one is the folder around log dirs, or a file that was set aside from a log.
        Damage is no error, but a reason.

    Examples
    --------
    >>> clean = "tests/data/kafka-4.3.0/clean"
    >>> rows = identity(f"{clean}/log-dir-1", f"{clean}/metadata-dir")
    >>> {row.outcome for row in rows}
    {'serves'}
    >>> rows[0].kind, rows[0].node_id
    ('log-dir', 1)
    """
    check_progress(progress)
    rows, warnings, error = _offsetlog.identity([path_text(path) for path in paths], open_options(**limits), progress=progress)
    for warning in warnings:
        logger.warning("%s", warning)
    if error is not None:
        logger.warning("the metadata cannot be read: %s", error)
    return Rows(rows)


def metadata_as_commands(
    *paths: PathLike,
    topics: str | Iterable[str] = (),
    bootstrap_server: str = "localhost:9092",
    replica_assignment: bool = False,
    show_secrets: bool = False,
    progress: Callable[[int, int, str], object] | None = None,
    **limits: Unpack[Limits],
) -> str:
    r"""Return a script for ``sh`` that makes a cluster's topics and settings again, with Kafka's own programs.

    Uses the cluster's metadata if it is among the paths, else the directories; what is unknown or left out becomes a comment.
    With `topics` only those, and nothing else. Changes nothing.

    Parameters
    ----------
    *paths
        As for :func:`identity`.
    topics
        Names of topics; by default all but those that brokers make for themselves.
    bootstrap_server
        The server in the commands.
    replica_assignment
        Name the brokers of each partition, in the place of their number.
    show_secrets
        Put settings in it that are secrets. Passwords of users for SCRAM are never there.
    progress
        As for :func:`identity`.
    **limits
        As for :meth:`Log.open`.

    Raises
    ------
    OSError, LogDirError
        As for :func:`identity`. Metadata that cannot be read is logged by the logger ``offsetlog``, and the directories are used.

    Examples
    --------
    >>> script = metadata_as_commands("tests/data/kafka-4.3.0/clean/metadata-dir", topics="g-plain")
    >>> [line for line in script.splitlines() if line.startswith("kafka-topics.sh")]
    ['kafka-topics.sh --bootstrap-server localhost:9092 --create --topic g-plain --partitions 3 --replication-factor 1 \\']
    """
    check_progress(progress)
    return _told(
        _offsetlog.metadata_as_commands(
            [path_text(path) for path in paths],
            open_options(**limits),
            topics=names_of(topics),
            bootstrap_server=utf8("bootstrap_server", bootstrap_server),
            replica_assignment=flag("replica_assignment", replica_assignment),
            show_secrets=flag("show_secrets", show_secrets),
            progress=progress,
        )
    )


def metadata_as_yaml(
    *paths: PathLike,
    topics: str | Iterable[str] = (),
    strimzi_cluster: str = "my-cluster",
    show_secrets: bool = False,
    progress: Callable[[int, int, str], object] | None = None,
    **limits: Unpack[Limits],
) -> str:
    """Return a cluster's topics as YAML for the operator of Strimzi 0.49 or later: resources of kind ``KafkaTopic``.

    Parameters
    ----------
    *paths, topics, show_secrets, progress, **limits
        As for :func:`metadata_as_commands`.
    strimzi_cluster
        The Kafka resource that the topics are for.

    Raises
    ------
    ConfigError
        No Kafka resource can be called `strimzi_cluster`.
    OSError, LogDirError
        As for :func:`metadata_as_commands`.

    Examples
    --------
    >>> text = metadata_as_yaml("tests/data/kafka-4.3.0/clean/metadata-dir", topics="g-plain", strimzi_cluster="new")
    >>> '    strimzi.io/cluster: "new"' in text.splitlines()
    True
    """
    check_progress(progress)
    return _told(
        _offsetlog.metadata_as_yaml(
            [path_text(path) for path in paths],
            open_options(**limits),
            topics=names_of(topics),
            strimzi_cluster=utf8("strimzi_cluster", strimzi_cluster),
            show_secrets=flag("show_secrets", show_secrets),
            progress=progress,
        )
    )


def _told(answer: tuple[str, list[str], Exception | None]) -> str:
    text, warnings, error = answer
    for warning in warnings:
        logger.warning("%s", warning)
    if error is not None:
        logger.warning("topics are those of the directories, as the metadata cannot be read: %s", error)
    return text
