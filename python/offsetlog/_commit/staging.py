"""Records that a task writes aside, inside the directories of the partitions that they are for.

A staged log is a log as any other: ``<partition>/offsetlog-staging/<job>/<attempt>/<topic>-<partition>``. Brokers leave folders inside
a partition directory alone, and it is the same file system as the log that the records are for. Each attempt of a task has its own
folders, so that one which is tried again, or runs twice, writes beside the first; only a commit says which of them count
(:mod:`offsetlog._commit.publishing`).
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from offsetlog._commit.looks import is_folder, is_there
from offsetlog._commit.moving import digest, prints
from offsetlog._commit.notes import Commit, CommitTarget, jobs_of, make_id_of_log_dir
from offsetlog._commit.places import is_hollow
from offsetlog._config import LogConfig
from offsetlog._log import Log
from offsetlog._writable_log import WritableLog
from offsetlog.errors import UnexpectedAppendOffsetError

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "STAGING",
    "Stage",
    "Staged",
    "discard",
    "discard_job",
    "give_up",
    "is_given_up",
    "is_let_go",
    "jobs",
    "let_go",
    "partition_directory",
    "sweep",
    "targets_of",
]

logger = logging.getLogger("offsetlog")

STAGING = "offsetlog-staging"
GONE = "the partition was there when its rows were routed, and is no more: mount its log dir again, or see who deletes the topic"
# Tells the tasks of a job that failed while they ran.
GIVEN_UP = "offsetlog-given-up-"
# How long such tasks may still run: Spark kills them, which takes seconds.
GIVEN_UP_SECONDS = 3600
# What a job left that nobody finished: a driver that died. Longer than any task runs.
LEFT_AFTER_SECONDS = 7 * 24 * 3600


class Staged(NamedTuple):
    """One staged log, as a task tells the driver of it: plain values."""

    topic: str
    partition: int
    directory: str
    """The partition's directory."""
    path: str
    """The staged log's, relative to it."""
    first_offset: int
    last_offset: int
    records: int
    batches: int
    size_bytes: int
    mark: str = ""
    """Digest of its batches (:func:`offsetlog._commit.moving.digest`)."""


class Stage:
    """The staged records of one attempt of a task. Not for several threads."""

    def __init__(self, job: str, attempt: str) -> None:
        self._place = Path(STAGING, job, attempt)
        self._logs: dict[tuple[str, int], tuple[str, WritableLog]] = {}
        self._records: dict[tuple[str, int], int] = {}

    def append(
        self, topic: str, partition: int, directory: str, config: LogConfig, rows: pyarrow.RecordBatch, *, preserve_offsets: bool
    ) -> None:
        """Append rows for a partition.

        Raises
        ------
        RecordRejectedError
            With `preserve_offsets`, the rows of one partition do not come in the order of their offsets.
        FileNotFoundError
            The partition's directory is gone since it was found.
        """
        key = topic, partition
        if key not in self._logs:
            path = Path(directory, self._place, f"{topic}-{partition}")
            _check_there(directory)
            self._logs[key] = directory, Log.open(path, "a", config)
        _, log = self._logs[key]
        log.append_arrow(rows, preserve_offsets=preserve_offsets)
        self._records[key] = self._records.get(key, 0) + rows.num_rows

    def close(self) -> list[Staged]:
        """Make everything durable, and return what there is."""
        staged = []
        for (topic, partition), (directory, log) in self._logs.items():
            log.close()
            # Read back when it is closed: before that, its indexes are as long as they may become.
            with Log.open(log.path) as closed:
                batches = list(prints(closed))
                found = Staged(
                    topic,
                    partition,
                    directory,
                    os.path.relpath(log.path, directory),
                    batches[0].base_offset,
                    batches[-1].last_offset,
                    self._records[topic, partition],
                    len(batches),
                    sum(each.size_bytes for each in batches),
                    digest(batches),
                )
            staged.append(found)
        self._logs.clear()
        return staged

    def abandon(self) -> None:
        """Close what is open, and remove it."""
        for directory, log in self._logs.values():
            try:
                log.close()
            except OSError as error:
                logger.warning("%s could not be closed: %s", log.path, error)
            place = Path(directory, self._place)
            shutil.rmtree(place, ignore_errors=True)
            # The job may have been discarded before: nobody comes back for its folders.
            _remove_empty(place.parent)
        self._logs.clear()


def partition_directory(paths: Iterable[str], topic: str, partition: int) -> str | None:
    """Return where a partition lies among log dirs; ``None`` where none has it.

    Raises
    ------
    OSError
        It cannot be looked at. That is no answer.
    """
    for path in paths:
        directory = os.path.join(path, f"{topic}-{partition}")  # a text is what is kept
        try:
            if stat.S_ISDIR(os.stat(directory).st_mode):  # as above
                return directory
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def discard(staged: Iterable[Staged]) -> None:
    """Remove staged logs. Logs that cannot be removed now are removed later with other leftovers."""
    for each in staged:
        shutil.rmtree(Path(each.directory, each.path), ignore_errors=True)
        _remove_empty(Path(each.directory, each.path).parent)


def discard_job(directories: Iterable[str], job: str) -> None:
    """Remove all that a job staged, also what attempts left that nobody counts."""
    for directory in directories:
        place = Path(directory, STAGING, job)
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            _remove_empty(place.parent)


def jobs(directories: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield (partition directory, job, whether it is old) of what is staged."""
    now = time.time()
    for directory in directories:
        try:
            entries = list(os.scandir(Path(directory, STAGING)))
        except OSError:
            continue
        for entry in entries:
            try:
                newest = max(path.stat().st_mtime for path in [Path(entry.path), *Path(entry.path).iterdir()])
            except OSError:
                continue
            yield directory, entry.name, now - newest > LEFT_AFTER_SECONDS


def _check_there(directory: str) -> None:
    """Refuse a partition's directory that went away since it was found: another one of its name would hide the log."""
    if is_hollow(directory) or not is_folder(directory):
        raise FileNotFoundError(errno.ENOENT, GONE, directory)


def let_go(log_dir: str, note: Commit) -> None:
    """Make the note of an unfinished commit a file that tells its driver, which may be at work, that nobody is to finish it.

    That needs no room. Where it cannot be, the note stays as it is.
    """
    place = Path(log_dir, note.file_name)
    for job in jobs_of(note):
        told = Path(log_dir, GIVEN_UP + job)
        try:
            if is_there(place):
                place.rename(told)
            told.touch()
        except OSError as error:
            logger.warning("a job at work may not hear that %r was let go: %s", note.name, error)


def is_let_go(log_dir: str, note: Commit) -> bool:
    """Return whether somebody said so."""
    return any(is_given_up(log_dir, job) for job in jobs_of(note))


def give_up(log_dir: str, job: str) -> None:
    """Tell tasks of a job that still run that nobody waits for what they stage."""
    try:
        Path(log_dir, GIVEN_UP + job).touch()
    except OSError as error:
        logger.warning("tasks of a job that failed may leave files below %s: %s", log_dir, error)


def is_given_up(log_dir: str, job: str) -> bool:
    """Return whether a job failed while its tasks run."""
    return is_there(Path(log_dir, GIVEN_UP + job))


def sweep(log_dir: str) -> None:
    """Remove what was left for tasks that have ended long ago."""
    for path in Path(log_dir).glob(f"{GIVEN_UP}*"):
        try:
            if time.time() - path.stat().st_mtime > GIVEN_UP_SECONDS:
                path.unlink()
        except OSError:
            continue


def _remove_empty(folder: Path) -> None:
    """Remove a folder and those above it inside the staging place, as far as they are empty."""
    while folder.name != STAGING and STAGING in folder.parts:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
    try:
        folder.rmdir()
    except OSError:
        return


def targets_of(staged: Sequence[Staged], log_dir_of_note: str, *, preserve_offsets: bool) -> tuple[CommitTarget, ...]:
    """Return what is published of each partition, behind where its log ends now."""
    by_directory: dict[str, list[Staged]] = {}
    for each in staged:
        by_directory.setdefault(each.directory, []).append(each)
    targets = []
    ids: dict[str, str] = {}
    for directory, of_log in sorted(by_directory.items()):
        _check_there(directory)
        with Log.open(directory) as log:
            start, topic_id = log.log_end_offset, log.topic_id
        if preserve_offsets:
            of_log.sort(key=lambda each: each.first_offset)
            end, what = start, "the log end offset"
            for each in of_log:
                if each.first_offset < end:
                    message = (
                        f"{each.topic}-{each.partition}: offset {each.first_offset} found, {end} or more expected ({what}); rows that "
                        "keep their offsets go into a log that ends before them, and each task has a range of its own: "
                        "repartitionByRange and sort by topic, partition, offset"
                    )
                    raise UnexpectedAppendOffsetError(message, path=directory)
                end, what = each.last_offset + 1, "behind another task's"
        records, batches, size_bytes = (sum(counts) for counts in zip(*(each[6:9] for each in of_log), strict=True))
        paths = tuple(each.path for each in of_log)
        marks = tuple((each.batches, each.mark) for each in of_log) if all(each.mark for each in of_log) else ()
        log_dir = os.path.dirname(directory)  # as above
        if log_dir not in ids:
            ids[log_dir] = make_id_of_log_dir(log_dir)
        of_partition = CommitTarget(
            of_log[0].topic,
            of_log[0].partition,
            directory,
            start,
            records,
            batches,
            size_bytes,
            len(paths),
            paths,
            topic_id=topic_id,
            marks=marks,
            log_dir_id=ids[log_dir],
            is_beside=os.path.samefile(log_dir, log_dir_of_note),  # as above
        )
        targets.append(of_partition)
    return tuple(targets)
