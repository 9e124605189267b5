"""``recover``: repairs a log that was not closed cleanly, or is damaged, so that it can be appended to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsetlog import _offsetlog
from offsetlog._options import (
    check_progress,
    flag,
    integer,
    open_options,
    path_text,
)
from offsetlog._values import RecoveryReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from offsetlog._options import PathLike

__all__ = ["recover"]


def recover(
    path: PathLike,
    *,
    from_offset: int | None = None,
    dry_run: bool = False,
    progress: Callable[[int], object] | None = None,
) -> RecoveryReport:
    """Make a log that was not closed cleanly, or is damaged, one that can be appended to.

    Reads the segments whole, cuts them at the first bytes that are not a batch, with everything after, and rebuilds indexes,
    leader epochs and producer snapshots. The cut bytes are kept in the folder ``offsetlog-cut`` of the partition directory.
    Opening with mode ``"a"`` does the same where only an unfinished end has to be cut; if whole batches follow the damage it
    refuses, and only this call cuts them (a broker does so without asking).

    Parameters
    ----------
    path
        The partition directory.
    from_offset
        Read only the segments from the one that holds this offset on; ``None``: all.
    dry_run
        Change nothing, take no lock, and say what would be done.
    progress
        Called every few MiB with the bytes read since it was called last. What it raises ends the work; the next call begins again.

    Raises
    ------
    LogLockedError
        Somebody writes the log.
    LogDirError
        The name is not ``topic-partition``, or a file in it has an impossible name.

    Notes
    -----
    Reads every byte of those segments once; the data stay where they are.
    """
    check_progress(progress)
    options = open_options()
    start = None if from_offset is None else integer("from_offset", from_offset, minimum=0)
    return _offsetlog.recover(path_text(path), options, from_offset=start, dry_run=flag("dry_run", dry_run), progress=progress)
