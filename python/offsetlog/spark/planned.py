"""A planned range of offsets, as a task gets it: where it is, and how to check that the log still holds it."""

from __future__ import annotations

from typing import NamedTuple

from offsetlog import Log, Split
from offsetlog.errors import MetadataFileError
from offsetlog.spark.leader_epochs import epoch_before

__all__ = ["Planned", "topic_id_of"]


class Planned(NamedTuple):
    """A range of offsets for a task. Plain values, as it is pickled. The first fields are those of :class:`offsetlog.Split`."""

    path: str
    """Partition directory."""
    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    start: int
    """First offset, inclusive."""
    stop: int
    """End, exclusive."""
    size_bytes: int
    """About how many bytes it has on disk."""
    leader_epoch: int | None
    """Leader epoch of the last offset when this was planned, see :func:`offsetlog.spark.leader_epochs.epoch_before`."""
    topic_id: str | None
    """The topic's id then; ``None`` if it has none."""

    @classmethod
    def of(cls, split: Split, log: Log, topic_id: str | None) -> Planned:
        """Return a range of this log as it is now, with the id that :func:`topic_id_of` returned: that reads a file."""
        return cls(*split, epoch_before(log, split.stop), topic_id)

    @property
    def split(self) -> Split:
        """The range alone."""
        return Split(*self[:6])


def topic_id_of(log: Log) -> str | None:
    """Return the id of a log's topic, if it is known: reading does not depend on it."""
    try:
        return log.topic_id
    except (MetadataFileError, FileNotFoundError, PermissionError):
        return None
