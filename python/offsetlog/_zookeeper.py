"""One node of ZooKeeper's data, as Kafka stored it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsetlog import _offsetlog
from offsetlog._options import check_progress, flag, open_options, path_text, utf8

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from offsetlog._options import Limits, PathLike

__all__ = ["zookeeper_node"]


def zookeeper_node(
    folder: PathLike,
    node: str,
    *,
    show_secrets: bool = False,
    progress: Callable[[int, int, str], object] | None = None,
    **limits: Unpack[Limits],
) -> bytes:
    """Return the data of one node out of the data directory of a ZooKeeper server, dead or running.

    Uses the newest snapshot and the transactions after it, byte for byte. ``[hidden]`` replaces passwords and unknown settings;
    if settings cannot be read, it replaces all data.

    Parameters
    ----------
    folder
        ``dataDir``, ``version-2`` in it, or the folder around ``dataDir`` and ``dataLogDir``.
    node
        The path of the node, such as ``/brokers/topics/orders``; of a cluster that has a path of its own, with that.
    show_secrets
        Return secrets too.
    progress
        Called before the snapshot and before each file of transactions, with the number of these that are done, the number known by
        then, and the path; and once more at the end. An exception it raises ends the work.
    **limits
        As for :meth:`Log.open`.

    Returns
    -------
    bytes
        The data; empty of a node that has none.

    Raises
    ------
    KeyError
        There is no such node: the text names the nearest one above, and what is below that.
    ConfigError
        `node` does not begin with a slash.
    LogDirError
        `folder` has no data of ZooKeeper's, or transactions are missing in it.
    MetadataFileError
        The data is damaged.

    Examples
    --------
    >>> zookeeper_node("tests/data/zookeeper/3.8.4", "/brokers/topics/first/partitions/0/state")
    b'{"controller_epoch":2,"leader":2,"version":1,"leader_epoch":0,"isr":[2,0]}'
    """
    check_progress(progress)
    secrets = flag("show_secrets", show_secrets)
    found = _offsetlog.zookeeper_node(path_text(folder), _path(node), open_options(**limits), show_secrets=secrets, progress=progress)
    if isinstance(found, bytes):
        return found
    parent, children = found
    message = f"no node {node} in ZooKeeper's data; the nearest above it is {parent}, and below it: {', '.join(children) or 'nothing'}"
    raise KeyError(message)


def _path(node: object) -> str:
    if not isinstance(node, str):
        message = f"node must be a str, found {type(node).__name__}"
        raise TypeError(message)
    return utf8("node", node)
