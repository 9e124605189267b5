"""Marks in log dirs that say which other log dir has the note of a job.

A note lies in the first of the log dirs that a job writes to. Were that one not mounted, or named second the next time, nothing in the
others would tell that the job has published there, and it would publish all of it again.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from offsetlog._commit.looks import is_folder, is_same, is_there, named
from offsetlog._commit.notes import (
    PREFIX,
    Commit,
    id_of_log_dir,
    is_same_work,
    locked,
    make_id_of_log_dir,
    note_name,
    note_of,
    remove,
    sync,
)
from offsetlog._text import counted
from offsetlog.errors import LogDirError, LogLockedError, MetadataFileError

__all__ = ["check_note_is_first", "gives_way", "has_marks_of_others", "mark", "rival_of", "sweep_marks", "unmark"]

logger = logging.getLogger("offsetlog")

# Ends the name of a mark; before it stands the name of the note.
MARK = ".at"
# How long a mark may be written beside its place.
ASIDE_SECONDS = 3600


def mark(log_dir: str, note: Commit, holder: str | None = None) -> str | None:
    """Mark the other log dirs of a commit's job, durable when this returns. They stay marked until :func:`unmark`.

    Returns the id that the marks have, ``None`` where there are no others. Who holds the lock of the notes gives it as `holder`: that
    lock is taken to make one.
    """
    others = _others(log_dir, note)
    if not others:
        return None
    holder = holder or make_id_of_log_dir(log_dir)
    for other in others:
        path = _mark_of(other, note.name)
        if _holder(path) == holder:
            continue
        # Several drivers may mark one log dir.
        aside = Path(f"{path}.{uuid.uuid4().hex}.tmp")
        try:
            with aside.open("wb") as file:
                file.write(f"{holder}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise
        sync(other)
    return holder


def unmark(log_dir: str, note: Commit) -> None:
    """Remove the marks of a note that is gone. One that stays hinders nobody while its log dir is at hand."""
    try:
        holder, others = id_of_log_dir(log_dir), _others(log_dir, note)
    except OSError as error:
        logger.warning("%s: its marks stay: %s", note.name, error)
        return
    for other in others:
        path = _mark_of(other, note.name)
        try:
            if holder is not None and _holder(path) == holder:
                path.unlink(missing_ok=True)
        except (OSError, MetadataFileError) as error:
            logger.warning("%s: %s stays: %s", note.name, path, error)


def rival_of(log_dir: str, note: Commit) -> str | None:
    """Return another log dir of a commit's job that has a note of its name too; ``None`` where none has."""
    return next((other for other in _others(log_dir, note) if note.keep and note_of(other, note.name) is not None), None)


def gives_way(log_dir: str, note: Commit) -> LogLockedError | None:
    """Remove a new note, of which nothing is published, where another driver has begun under its name in another log dir.

    Returns the error that says so. Both may have looked before either wrote its note; of two that look again, one sees the other.
    """
    rival = rival_of(log_dir, note)
    with locked(log_dir):
        if not is_same_work(note, note_of(log_dir, note.name)):
            # The one that has gone on with it is told by the note.
            return None
        if rival is None:
            # It is of a note that was elsewhere once.
            _mark_of(log_dir, note.name).unlink(missing_ok=True)
            return None
        remove(log_dir, note.name)
        unmark(log_dir, note)
    message = (
        f"another driver is at work on {note.name!r}, with its note in this log dir, and nothing is published now: run the job again "
        "with this log dir as the first"
    )
    return LogLockedError(message, path=rival)


def check_note_is_first(paths: Sequence[str], name: str) -> None:
    """Refuse to use a name whose note is not in the first of the log dirs, where it is looked for.

    Raises
    ------
    OSError
        The log dir that has it is not among them, or not mounted.
    LogDirError
        It is among them, but not the first.
    MetadataFileError
        A mark or a note cannot be read.
    """
    if note_of(paths[0], name) is None:
        for path in paths[1:]:
            if note_of(path, name) is not None:
                raise _not_first(name, path)
    ids = [id_of_log_dir(path) for path in paths]
    for path in paths:
        at = _mark_of(path, name)
        holder = _holder(at)
        if holder is None or (holder == ids[0] and (not is_same(path, paths[0]) or note_of(path, name) is not None)):
            continue
        # A log dir with the same id as the one that has the mark is a copy of it, or the other way round.
        having = [each for each, its_id in zip(paths, ids, strict=True) if its_id == holder and not is_same(each, path)]
        if not having:
            copy = ", which this log dir has too: one is a copy of the other" if id_of_log_dir(path) == holder else ""
            message = (
                f"{name!r} has published in this log dir, and its note is in another one, which is not at hand: the log dir with the "
                f"id {holder} (offsetlog-log-dir.id){copy}. Mount it, or name it first among the log dirs. If it is gone for good, "
                f"remove {at.name} here; the job then publishes all of its records, also those that are here already"
            )
            raise OSError(errno.ENODEV, message, path)
        for first in having:
            if note_of(first, name) is not None:
                raise _not_first(name, first)


def has_marks_of_others(log_dir: str, paths: Sequence[str]) -> bool:
    """Return whether a log dir has a mark, or one that cannot be read, whose note is in a log dir that is not among these."""
    ids = {id_of_log_dir(path) for path in paths if not is_same(path, log_dir)}
    try:
        return any(_holder(path) not in ids for path in named(log_dir, f"{PREFIX}*{MARK}"))
    except (OSError, MetadataFileError) as error:
        logger.warning("nothing staged in %s is removed: %s", log_dir, error)
        return True


def sweep_marks(paths: Sequence[str]) -> None:
    """Remove marks whose log dir is at hand and has no note of them, and what was left beside marks."""
    ids = {path: id_of_log_dir(path) for path in paths}
    for path in paths:
        others = {each: its_id for each, its_id in ids.items() if not is_same(each, path)}
        for aside in named(path, f"{PREFIX}*{MARK}.*.tmp"):
            with suppress(OSError):
                if time.time() - aside.stat().st_mtime > ASIDE_SECONDS:
                    aside.unlink()
        for found in named(path, f"{PREFIX}*{MARK}"):
            try:
                _sweep_mark(found, others)
            except (OSError, MetadataFileError) as error:
                logger.warning("%s is not looked at: %s", found, error)


def _sweep_mark(path: Path, others: Mapping[str, str | None]) -> None:
    holder = _holder(path)
    of_it = [other for other, its_id in others.items() if holder is not None and its_id == holder]
    # One that has a copy beside it may be either of them.
    if len(of_it) != 1 or is_there(Path(of_it[0], path.with_suffix(".json").name)):
        return
    with locked(of_it[0]):
        # Its note may have been written meanwhile.
        if not is_there(Path(of_it[0], path.with_suffix(".json").name)) and _holder(path) == holder:
            path.unlink(missing_ok=True)


def _not_first(name: str, path: str) -> LogDirError:
    message = (
        f"the note of {name!r} is in this log dir: name it first among the log dirs, as before. offsetlog commits --forget {name!r} "
        f"{path} lets the name be used anew; its job then publishes all of its records, also those that are here already"
    )
    return LogDirError(message, path=path)


def _others(log_dir: str, note: Commit) -> list[str]:
    """Return the log dirs of a commit's job, and of its partitions, without the one that has its note."""
    # Of a note that was copied with its log dir, or moved, the places may be those of somebody else.
    given = note.log_dirs if any(is_same(place, log_dir) for place in note.log_dirs) else ()
    places = sorted({*given, *(os.path.dirname(target.directory) for target in note.targets)})  # texts are what is kept
    return [place for place in places if is_folder(place) and not is_same(place, log_dir)]


def _mark_of(log_dir: str, name: str) -> Path:
    return Path(log_dir, note_name(name)).with_suffix(MARK)


def _holder(path: Path) -> str | None:
    """Return the id of the log dir that has the note; ``None`` without a mark."""
    try:
        # A pipe is not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise _unreadable(path, "a link that leads nowhere") from error
        return None
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO}:
            raise
        raise _unreadable(path, f"no file ({error.strerror})") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(path, "no file")
        found = re.fullmatch(rb"([0-9a-f]{32})\n", os.read(descriptor, 64))
    finally:
        os.close(descriptor)
    if found is None:
        raise _unreadable(path, counted(status.st_size, "byte"))
    return found[1].decode()


def _unreadable(path: Path, what: str) -> MetadataFileError:
    message = (
        f"{what} found, the id of the log dir that has a note expected: a job has published in this log dir, and has its note in "
        "another one. Remove it only if that log dir is at hand and named first: the job finds its note there, and makes the mark "
        "anew. Without the note the job publishes all of its records, also those that are here already"
    )
    return MetadataFileError(message, path=str(path))
