"""Checks that a commit publishes where its records were meant to go.

A partition may be gone or recreated, its log dir may not be mounted, and the cluster's metadata, which names the other replicas,
may be missing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from offsetlog._commit.looks import is_folder, is_there
from offsetlog._commit.notes import Commit, CommitTarget, id_of_log_dir, notes, readable
from offsetlog._log import Log
from offsetlog._text import counted
from offsetlog.errors import LogDirError, OffsetLogError

__all__ = [
    "SINGLE_REPLICA_OPTION",
    "check",
    "check_log_dirs",
    "check_others",
    "check_topic",
    "is_hollow",
    "metadata_among",
    "metadata_for",
    "metadata_now",
    "place_of",
    "topic_id_of",
]

SINGLE_REPLICA_OPTION = "the option singleReplica = true does it anyway (single_replica=True of offsetlog.spark.write)"
_METADATA = "__cluster_metadata-0"


def topic_id_of(directory: str) -> str | None:
    """Return the id of a partition's topic; ``None`` where it has none."""
    with Log.open(directory) as log:
        return log.topic_id


def metadata_among(paths: Iterable[str]) -> str | None:
    """Return the log dir that has the cluster's metadata, which says who else has a replica; ``None`` where none has."""
    return next((path for path in paths if _has_metadata(path)), None)


def _has_metadata(log_dir: str, or_else: bool | None = None) -> bool:
    """Return whether the cluster's metadata is in a log dir. A disk that cannot be read is no answer, unless `or_else` is given."""
    try:
        os.stat(os.path.join(log_dir, _METADATA))  # texts are what is kept
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        if or_else is None:
            raise
        return or_else
    return True


def metadata_now(noted: str | None, given: str | None) -> str | None:
    """Return the log dir whose metadata counts for a commit: the one that it began with, or where that is gone the one given now."""
    if noted is None or (given is not None and not _has_metadata(noted, or_else=False)):
        return given
    return noted


def metadata_for(commit: Commit, directory: str) -> str | None:
    """Return the log dir whose metadata says who has replicas of a partition; ``None`` where that beside it does, or nobody.

    Raises
    ------
    OSError
        It was there when the commit began, and is not now.
    """
    if commit.metadata is None or _has_metadata(commit.metadata, or_else=False if commit.single_replica else None):
        return commit.metadata
    if commit.single_replica or _has_metadata(os.path.dirname(directory)):  # as above
        return None
    message = (
        "the cluster's metadata was in this log dir when the commit began and is not there now: nobody can tell whether others have "
        f"replicas of {os.path.basename(directory)}. Mount it or move it back, or run the job again with the log dir that has it; "
        f"{SINGLE_REPLICA_OPTION}"
    )
    raise OSError(errno.ENODEV, message, commit.metadata)


def check(commit: Commit, target: CommitTarget) -> None:
    """Refuse a partition that is no longer the one that the records were for.

    Raises
    ------
    LogDirError
        It is gone, or its topic was recreated: the records published there were deleted with it.
    OSError
        Its disk cannot be read, or its log dir is not the one that was there: what was published there may come back.
    """
    if not _is_there(commit, target):
        if (moved := _moved_to(commit, target)) is not None:
            raise _moved(commit, target, moved)
        message = f"{target.name} is gone: {counted(target.records, 'record')} to be published there"
        raise LogDirError(message, path=target.directory)
    if any(is_folder(os.path.join(target.directory, path)) for path in target.staged):  # as above
        return
    if target.staged:
        # It may have been made in the place of the one where they are.
        _check_log_dir(commit, target)
    if target.topic_id is not None and (found := topic_id_of(target.directory)) != target.topic_id:
        _check_log_dir(commit, target)
        message = (
            f"topic {target.topic!r} was made anew: its id is {found}, with {counted(target.records, 'record')} for {target.topic_id}"
        )
        raise LogDirError(message, path=target.directory)


def place_of(commit: Commit, target: CommitTarget) -> str:
    """Return where a partition is in which a commit has published: a broker may have moved it to another log dir of the job.

    Raises
    ------
    LogDirError, OSError
        As for :func:`check`.
    """
    if target.topic_id is not None and not _is_there(commit, target) and (moved := _moved_to(commit, target)) is not None:
        return moved
    check(commit, target)
    return target.directory


def check_log_dirs(commit: Commit, topic: str | None = None) -> None:
    """Refuse to continue a commit, or to recreate its topics, while a log dir in which it was to publish is missing.

    Raises
    ------
    OSError
        As for :func:`check`.
    """
    for target in commit.targets:
        if topic is None or target.topic == topic:
            with suppress(OffsetLogError):
                check(commit, target)


def check_topic(log_dir: str, topic: str) -> None:
    """Refuse to make a topic of which a commit, finished or not, has a partition in a log dir that is not there.

    Raises
    ------
    OSError
        As for :func:`check`.
    """
    for note in notes(log_dir):
        if isinstance(note, Commit):
            check_log_dirs(note, topic)


def check_others(log_dir: str, name: str, directories: Collection[str]) -> None:
    """Refuse to write behind where another commit still has records to put at offsets of their own, or to take away.

    Raises
    ------
    LogDirError
        It names the commit, and what to do.
    """
    for note in readable(log_dir):
        if note.name == name or note.is_published or not (note.preserve_offsets or note.is_undoing):
            continue
        for target in note.targets:
            if target.directory in directories:
                what = "has records to be taken back" if note.is_undoing else "waits for records that keep their offsets"
                message = (
                    f"{target.name} {what}, of {note.name!r}, whose commit stopped half-way; nothing can be written behind them. Each "
                    f"write to this log dir tries to go on with it and logs what hinders it. To leave things as they are: "
                    f"offsetlog commits --forget {note.name!r} --unfinished {log_dir}; its job, run again after that, publishes all "
                    f"its records, also those that are here"
                )
                raise LogDirError(message, path=target.directory)


def _is_there(commit: Commit, target: CommitTarget) -> bool:
    """Return whether there is a partition. A disk that is not mounted is no answer, nor one that cannot be read."""
    try:
        os.stat(target.directory)  # as above
    except (FileNotFoundError, NotADirectoryError):
        if is_there(target.directory, follow=False):
            raise _not_at_hand(commit, target, target.directory, "this link leads nowhere") from None
        _check_log_dir(commit, target)
        return False
    # The mount point of a disk may be the partition's own directory.
    if target.topic_id is not None and is_hollow(target.directory):
        raise _not_at_hand(commit, target, target.directory, "this folder has no log")
    return True


def is_hollow(directory: str) -> bool:
    """Return whether a folder has nothing of a partition: the mount point of one whose disk is not mounted."""
    try:
        return not any(path.name == "partition.metadata" or path.suffix == ".log" for path in Path(directory).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _moved_to(commit: Commit, target: CommitTarget) -> str | None:
    """Return where the partition is now, if it is in another log dir of the job: a broker moves partitions between its own."""
    places = {*commit.log_dirs, *(os.path.dirname(each.directory) for each in commit.targets)}  # as above
    for log_dir in sorted(places | ({commit.metadata} if commit.metadata else set())):
        directory = os.path.join(log_dir, target.name)  # as above
        if is_folder(directory) and (target.topic_id is None or topic_id_of(directory) == target.topic_id):
            return directory
    return None


def _moved(commit: Commit, target: CommitTarget, directory: str) -> OSError:
    if commit.is_published:
        message = (
            f"{target.name}, in which {commit.name!r} has published {counted(target.records, 'record')}, was moved here from "
            f"{os.path.dirname(target.directory)}. Name this log dir among those of the job, or move the directory back. "
            f"Else offsetlog commits --forget {commit.name!r}, with the first log dir of the job, lets the name be used anew; the "
            "job, run again after that, publishes all of its records, also those that are here"
        )
        return OSError(errno.EXDEV, message, directory)
    message = (
        f"{target.name} was moved here from {os.path.dirname(target.directory)} while the commit of {commit.name!r} was half-way: "
        f"what of its {counted(target.records, 'record')} was published came along, what was staged may be gone. Move the directory "
        f"back, and run the job again. If its staged records are gone: offsetlog commits --forget {commit.name!r} --unfinished, with "
        "the first log dir of the job, lets the commit go; the job, run again after that, publishes all of its records, also those "
        "that are in its partitions already"
    )
    return OSError(errno.EXDEV, message, directory)


def _check_log_dir(commit: Commit, target: CommitTarget) -> None:
    log_dir = os.path.dirname(target.directory)  # as above
    if not is_folder(log_dir):
        raise _not_at_hand(commit, target, log_dir, "this log dir is not there")
    if target.log_dir_id is not None and id_of_log_dir(log_dir) != target.log_dir_id:
        raise _not_at_hand(commit, target, log_dir, "another folder is in the place of this log dir")


def _not_at_hand(commit: Commit, target: CommitTarget, place: str, what: str) -> OSError:
    has, unfinished = ("has published", "") if commit.is_published else ("has, or is to publish,", " --unfinished")
    message = (
        f"{what}, in which {commit.name!r} {has} {counted(target.records, 'record')} of {target.name}. Mount it, "
        "or have a link at its path lead to where it is now, and run the job again. Only if it is gone for good: "
        f"offsetlog commits --forget {commit.name!r}{unfinished}, with the first log dir of the job, lets the commit go; what it has "
        "published in other log dirs stays, and the job, run again after that, publishes it a second time"
    )
    return OSError(errno.ENODEV, message, place)
