"""Where a commit publishes: whether it is still the place that the records were for.

A partition may be gone or made anew, its log dir not mounted, and the cluster's metadata, which says who else has a replica, not at
hand.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress

from offsetlog._commit.notes import Commit, CommitTarget
from offsetlog._log import Log
from offsetlog._text import counted
from offsetlog.errors import LogDirError, OffsetLogError

__all__ = ["SINGLE_REPLICA_OPTION", "check", "check_log_dirs", "metadata_among", "metadata_for", "topic_id_of"]

SINGLE_REPLICA_OPTION = "the option singleReplica = true does it anyway (single_replica=True of offsetlog.spark.write)"
_METADATA = "__cluster_metadata-0"


def topic_id_of(directory: str) -> str | None:
    """Return the id of a partition's topic; ``None`` where it has none."""
    with Log.open(directory) as log:
        return log.topic_id


def metadata_among(paths: Iterable[str]) -> str | None:
    """Return the log dir that has the cluster's metadata, which says who else has a replica; ``None`` where none has."""
    return next((path for path in paths if _has_metadata(path)), None)


def _has_metadata(log_dir: str) -> bool:
    """Return whether the cluster's metadata is in a log dir. A disk that cannot be read is no answer."""
    try:
        os.stat(os.path.join(log_dir, _METADATA))  # texts are what is kept
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def metadata_for(commit: Commit, directory: str) -> str | None:
    """Return the log dir whose metadata says who has replicas of a partition; ``None`` where that beside it does, or nobody.

    Raises
    ------
    OSError
        It was there when the commit began, and is not now.
    """
    if commit.metadata is None or _has_metadata(commit.metadata):
        return commit.metadata
    if commit.single_replica or _has_metadata(os.path.dirname(directory)):  # as above
        return None
    message = (
        "the cluster's metadata was in this log dir when the commit began and is not there now: nobody can tell whether others have "
        f"replicas of {os.path.basename(directory)}. Mount it or move it back, or run the job again with the log dir that has it; "
        f"{SINGLE_REPLICA_OPTION}"
    )
    raise OSError(errno.ENODEV, message, commit.metadata)


def check(target: CommitTarget) -> None:
    """Refuse a partition that is no longer the one that the records were for.

    Raises
    ------
    LogDirError
        It is gone, or its topic was made anew: what was published there went with it.
    OSError
        Its disk cannot be read, or another folder stands where its log dir was: what was published there may come back.
    """
    try:
        os.stat(target.directory)  # a text is what is kept
    except (FileNotFoundError, NotADirectoryError):
        _check_log_dir(target)
        message = f"{target.name} is gone: {counted(target.records, 'record')} to be published there"
        raise LogDirError(message, path=target.directory) from None
    if target.staged and not any(os.path.isdir(os.path.join(target.directory, path)) for path in target.staged):  # as above
        # It may have been made in the place of the one where they are.
        _check_log_dir(target)
    if target.topic_id is not None and (found := topic_id_of(target.directory)) != target.topic_id:
        _check_log_dir(target)
        message = (
            f"topic {target.topic!r} was made anew: its id is {found}, with {counted(target.records, 'record')} for {target.topic_id}"
        )
        raise LogDirError(message, path=target.directory)


def check_log_dirs(commit: Commit) -> None:
    """Refuse to go on with a commit, or to make its topics anew, while a log dir in which it was to publish is not there.

    Raises
    ------
    OSError
        As for :func:`check`.
    """
    for target in commit.targets:
        with suppress(OffsetLogError):
            check(target)


def _check_log_dir(target: CommitTarget) -> None:
    """Refuse to take a partition for gone if its log dir is not the one that it was in, as where a disk is not mounted."""
    log_dir = os.path.dirname(target.directory)  # as above
    try:
        if target.log_dir_inode in (None, os.stat(log_dir).st_ino):
            return
        what = "another folder than then is there"
    except (FileNotFoundError, NotADirectoryError):
        what = "it is not there"
    message = (
        f"{counted(target.records, 'record')} were to be published in {target.name} of this log dir, and {what}. Mount it or move it "
        "back, and run the job again. Only if it is gone for good, with what was published there, let the note of the commit go: "
        "offsetlog commits --forget NAME --unfinished"
    )
    raise OSError(errno.ENODEV, message, log_dir)
