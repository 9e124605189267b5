"""``convert``: a partition directory of any age made a current one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from offsetlog import _offsetlog
from offsetlog._append_arguments import checked_compression, config_pairs
from offsetlog._options import (
    check_progress,
    open_options,
    path_text,
)
from offsetlog._values import ConvertReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from offsetlog._append_arguments import Compression
    from offsetlog._config import LogConfig, SettingValue
    from offsetlog._options import Limits, PathLike

    Progress: TypeAlias = Callable[[int, int], object]

__all__ = ["convert"]

logger = logging.getLogger("offsetlog")


def convert(  # one parameter an option
    old: PathLike,
    new: PathLike,
    *,
    compression: Compression | None = None,
    config: LogConfig | Mapping[str, SettingValue] | None = None,
    progress: Progress | None = None,
    **limits: Unpack[Limits],
) -> ConvertReport:
    """Make a new partition directory of the current format with the records of an old one, which is not changed.

    Takes directories of any Kafka since 0.7: it upgrades messages of magic 0 and 1 to magic 2, recompresses, and imports the
    ``.kafka`` files of 0.7. Offsets and their gaps, timestamps, keys, values, headers, leader epochs, producers, transactions and
    the log start offset are kept, and the topic's id where the topic keeps its name. So is what producer snapshots know of producers
    whose records are deleted. A batch of magic 2 that is in the wanted
    codec already is moved as it is.

    Messages of Kafka 0.7 have no offsets of today's kind (theirs are positions in files), no keys and no timestamps: they are
    numbered 0, 1, 2, ..., with the key ``None`` and the timestamp -1.

    Parameters
    ----------
    old
        The partition directory. A log dir is converted by a loop over its partitions.
    new
        The new partition directory, named ``topic-partition``: not there yet, or empty.
    compression
        Codec of all batches with records; ``None``: each keeps its own.
    config
        Settings of the new log, stored with it; ``None``: those stored with the old one. They say how long segments are and at
        which level a codec compresses; their ``compression.type`` is not looked at here.
    progress
        Called now and then with the bytes of the old segments that are done, and their total. An exception it raises ends the
        work.
    **limits
        As for :meth:`Log.open`; they hold for the old log.

    Raises
    ------
    LogDirError
        `old` holds no segments, or one of the names is not ``topic-partition``; `new` is not empty, or lies in `old`; `old` was
        truncated meanwhile: call it again.
    CorruptionError
        Damage in the old log, with file, position and offset, or records that cannot be decoded. An unfinished write at its end is not
        damage; it is left out and reported.
    LogLockedError
        `new` would lie in the log dir of a running broker.
    DecompressionLimitError, LimitExceededError
        A batch of the old log is larger than allowed.
    RecordBatchTooLargeError
        A batch does not fit the setting ``segment.bytes``.
    ConfigError
        An argument or a setting that makes no sense.
    OSError
        The disk is full, a directory cannot be written, or the like.

    Notes
    -----
    What is odd about `old` is logged, as by :meth:`Log.open`, and in the report. So is which records its log dir promises and its
    directory does not have (``missing_offsets``): with tiered storage they are in the remote store, and the new log begins or ends
    without them.

    Every byte is read once, and written once; memory holds a few batches. Every record is decoded, those of batches that are copied
    unchanged too: a batch with a right checksum whose records nobody can read is damage. So a copy of compressed batches takes as long
    as reading them. Records that another writer appends to `old` meanwhile are left out.

    The new directory is on the disk when this returns, and not there at all after an error or a crash: it is built in a folder
    beside it and renamed. A crash leaves that folder, whose name ends in ``-delete``: brokers and :class:`LogDir` remove such folders
    from a log dir, elsewhere it may be removed by hand. As long as the conversion runs it is locked, and left alone.

    Source: FORMAT.md, "Record batch, magic 2", "Message, magic 0 and 1", "Message of Kafka 0.7".

    Examples
    --------
    >>> import tempfile
    >>> from offsetlog import Log, convert
    >>> folder = tempfile.TemporaryDirectory()
    >>> old = "tests/data/kafka-2.8.2/broker-1/o-v0-gzip-0"
    >>> report = convert(old, f"{folder.name}/o-v0-gzip-0", compression="zstd")
    >>> report.records == sum(1 for record in Log.open(old).scan())
    True
    >>> {batch.magic for batch in Log.open(report.path).batches()}
    {2}
    >>> folder.cleanup()
    """
    options = open_options(**limits)
    check_progress(progress)
    report = _offsetlog.convert(
        path_text(old),
        path_text(new),
        options,
        compression=checked_compression(compression),
        config=None if config is None else config_pairs(config),
        progress=progress,
    )
    for warning in report.warnings:
        logger.warning("%s", warning)
    return report
