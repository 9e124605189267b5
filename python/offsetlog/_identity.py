"""What a broker would do with each directory that it finds in its log dirs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from offsetlog import _offsetlog
from offsetlog._options import open_options, path_text

if TYPE_CHECKING:
    from typing import Unpack

    from offsetlog._options import Limits, PathLike

__all__ = ["DirectoryIdentity", "identity"]

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


def identity(*paths: PathLike, **limits: Unpack[Limits]) -> list[DirectoryIdentity]:
    """Return what a broker would do with each log dir, and with each directory in it.

    Topic ids and assignments are compared with the cluster's metadata, where that is among the paths: a ``metadata.log.dir``, or the
    data of its ZooKeeper. Without it, what depends on it is ``"unknown"``. A broker without ZooKeeper is taken for one of Kafka 4.3;
    what it does with strays all do since 3.7. Changes nothing, takes no lock, makes no file.

    Parameters
    ----------
    *paths
        Log dirs, the folder with the metadata, single partition directories. Of several brokers, each is looked at for itself.
    **limits
        As for :meth:`Log.open`.

    Returns
    -------
    list of DirectoryIdentity
        Each log dir in the order given, behind it the directories in it by name. Warnings, and metadata that cannot be read, are told
        to the logger ``offsetlog``.

    Raises
    ------
    OSError
        A folder cannot be listed.
    LogDirError
        None of the paths has anything of a log dir, or one is the folder around log dirs. Damage is no error, but a reason.

    Examples
    --------
    >>> clean = "tests/data/kafka-4.3.0/clean"
    >>> rows = identity(f"{clean}/log-dir-1", f"{clean}/metadata-dir")
    >>> {row.outcome for row in rows}
    {'serves'}
    >>> rows[0].kind, rows[0].node_id
    ('log-dir', 1)
    """
    rows, warnings, error = _offsetlog.identity([path_text(path) for path in paths], open_options(**limits))
    for warning in warnings:
        logger.warning("%s", warning)
    if error is not None:
        logger.warning("the metadata cannot be read: %s", error)
    return rows
