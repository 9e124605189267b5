"""``adopt``: directories that a broker set aside, or would set aside for their topic id, made partitions again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offsetlog import _offsetlog
from offsetlog._notebook import Rows, report_table
from offsetlog._options import check_progress, checked_topic_id, flag, open_options, path_text, path_texts
from offsetlog._topics import topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from offsetlog._options import Limits, PathLike

__all__ = ["AdoptedPartition", "adopt"]


class AdoptedPartition(NamedTuple):
    """A directory that :func:`adopt` made a partition."""

    directory: str
    """The directory under its name before."""
    path: str
    """The partition's directory."""
    topic: str
    """The topic."""
    partition: int
    """The partition."""
    topic_id_before: str | None
    """The id that its ``partition.metadata`` named before; ``None`` without a file that can be read."""
    topic_id: str | None
    """The id that it names now; ``None`` of a topic that has none (ZooKeeper before Kafka 2.8)."""
    dry_run: bool
    """Whether nothing was changed."""
    changed: bool
    """Whether anything was, or would be, changed."""
    set_aside: tuple[tuple[str, str | None], ...]
    """What was in its place: the directory, and the name that it has now; ``None`` for a dry run."""
    records: int
    """Number of records in the log, control records aside; 0 if nothing was to be done."""
    log_start_offset: int
    """Lowest offset that can be read."""
    log_end_offset: int
    """Offset that the next record gets."""
    notes: tuple[str, ...]
    """What is missing, stuck or goes, what a broker does with it that may surprise, and what is not known; a sentence each."""

    def _repr_html_(self) -> str:
        return report_table(self)


def adopt(  # noqa: PLR0913  # each is an option of its own
    *directories: PathLike,
    log_dirs: PathLike | Sequence[PathLike] = (),
    metadata: PathLike | None = None,
    broker: PathLike | None = None,
    topic: str | None = None,
    topic_id: str | None = None,
    set_aside: bool = False,
    single_replica: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int, str], object] | None = None,
    **limits: Unpack[Limits],
) -> list[AdoptedPartition]:
    """Make each directory its topic's partition in its log dir, while the broker is stopped.

    A directory is one that a broker set aside (``orders-0.<id>-stray``), would set aside or refuse because its ``partition.metadata``
    has another topic id, or that waits for its deletion (``-delete``) or was on its way from another log dir (``-future``). It stays
    in its log dir. Its ``partition.metadata`` gets the topic id that the cluster's metadata has, its lines in the log dir's
    checkpoints are rewritten, and it gets the name ``topic-partition``. Every batch is read and checked before.

    A refusal changes nothing. The same call finishes the interrupted adoption of a directory, even after a crash, and tells again what
    has gone by then. Of several directories, those that were taken in before an error are named in a note of it, and have to be left
    out of the next call, which gets their log dirs as `log_dirs`.

    Parameters
    ----------
    *directories
        Directories of partitions. Nothing is changed before all of them have been looked at.
    log_dirs
        The broker's other log dirs: no directory of the partition may be in them, nor in those around the other `directories`.
    metadata
        The folder with the cluster's metadata log, or ZooKeeper's data, if it is none of the log dirs.
    broker
        The broker's ``server.properties``. Without it nobody knows whether its retention deletes what is taken in, half a minute after
        its start, and a note says so.
    topic
        The topic, where its name is cut short in the directory's name.
    topic_id
        The topic's id, where no metadata tells it. Then nothing is compared.
    set_aside
        Rename the directory in the partition's place to ``-stray`` first, as a broker does it. If a topic was recreated, that is
        the new topic's directory, most often an empty one.
    single_replica
        Do it although other brokers have replicas of the partition.
    dry_run
        Change nothing, and return what would be done. Reads as much.
    progress
        Called while the directories are checked, with the bytes that are done, the total, and the current directory. An exception
        it raises ends the work; it is not called after the first change.
    **limits
        As for :meth:`Log.open`.

    Returns
    -------
    list of AdoptedPartition
        One for each directory, in the order given. A directory that already has the right id and name has ``changed=False``.

    Raises
    ------
    ClusterError
        The metadata does not have the topic or the partition, has it with other brokers, or with others too.
    LogDirError
        Another directory stands in the place, the log is damaged, a log dir that matters is not among the paths, a path is no
        directory of a partition, or was one and may have been taken in before.
    ConfigError
        No metadata is here and no `topic_id` was given, or it is not the metadata's.
    LogLockedError
        The broker runs, or somebody writes one of the directories.
    OSError
        A directory is not there, or cannot be written.

    Examples
    --------
    >>> import shutil, tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> copied = Path(folder.name) / "orders-0"
    >>> _ = shutil.copytree("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0", copied)
    >>> (adopted,) = adopt(copied, topic_id="AAECAwQFBgcICQoLDA0ODw")
    >>> adopted.topic_id_before, adopted.topic_id, adopted.log_end_offset
    ('pf7cXgbVTTeuM8IYSzk58w', 'AAECAwQFBgcICQoLDA0ODw', 200)
    >>> folder.cleanup()
    """
    if topic is not None:
        topic_name(topic)
    check_progress(progress)
    adopted = _offsetlog.adopt(
        [path_text(path) for path in directories],
        open_options(**limits),
        log_dirs=path_texts(log_dirs),
        metadata=None if metadata is None else path_text(metadata),
        broker=None if broker is None else path_text(broker),
        topic=topic,
        topic_id=checked_topic_id(topic_id),
        set_aside=flag("set_aside", set_aside),
        single_replica=flag("single_replica", single_replica),
        dry_run=flag("dry_run", dry_run),
        progress=progress,
    )
    return Rows(adopted)
