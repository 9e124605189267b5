"""Marks in log dirs that say which other log dir has the note of a job.

A note lies in the first of the log dirs that a job writes to. Were that one not mounted, or named second the next time, nothing in the
others would tell that the job has published there, and it would publish all of it again.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from offsetlog._commit.notes import Commit, id_of_log_dir, make_id_of_log_dir, note_name, note_of, sync
from offsetlog.errors import LogDirError, MetadataFileError

__all__ = ["check_note_is_first", "mark", "unmark"]

logger = logging.getLogger("offsetlog")

# Ends the name of a mark; before it stands the name of the note.
MARK = ".at"


def mark(log_dir: str, note: Commit) -> None:
    """Mark the other log dirs of a commit's job, durable when this returns. They stay marked until :func:`unmark`."""
    others = _others(log_dir, note)
    if not others:
        return
    holder = make_id_of_log_dir(log_dir)
    for other in others:
        path = _mark_of(other, note.name)
        if _holder(path) == holder:
            continue
        aside = path.with_suffix(".tmp")
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


def unmark(log_dir: str, note: Commit) -> None:
    """Remove the marks of a note that is gone. One that stays hinders nobody while its log dir is at hand."""
    holder = id_of_log_dir(log_dir)
    for other in _others(log_dir, note):
        path = _mark_of(other, note.name)
        try:
            if holder is not None and _holder(path) == holder:
                path.unlink(missing_ok=True)
        except (OSError, MetadataFileError) as error:
            logger.warning("%s: %s stays: %s", note.name, path, error)


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
        if holder is None or holder == ids[0]:
            continue
        if holder not in ids:
            message = (
                f"{name!r} has published in this log dir, and its note is in another one, which is not at hand: the log dir with the "
                f"id {holder} (offsetlog-log-dir.id). Mount it, or name it first among the log dirs. If it is gone for good, remove "
                f"{at.name} here; the job then publishes all of its records, also those that are here already"
            )
            raise OSError(errno.ENODEV, message, path)
        first = paths[ids.index(holder)]
        if note_of(first, name) is not None:
            raise _not_first(name, first)


def _not_first(name: str, path: str) -> LogDirError:
    message = (
        f"the note of {name!r} is in this log dir: name it first among the log dirs, as before. offsetlog commits --forget {name!r} "
        f"{path} lets the name be used anew; its job then publishes all of its records, also those that are here already"
    )
    return LogDirError(message, path=path)


def _others(log_dir: str, note: Commit) -> list[str]:
    """Return the log dirs of a commit's job, and of its partitions, without the one that has its note."""
    # Of a note that was copied with its log dir, or moved, the places may be those of somebody else.
    given = note.log_dirs if any(_is_same(place, log_dir) for place in note.log_dirs) else ()
    places = sorted({*given, *(os.path.dirname(target.directory) for target in note.targets)})  # texts are what is kept
    return [place for place in places if os.path.isdir(place) and not _is_same(place, log_dir)]  # as above


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # as above
    except OSError:
        return False


def _mark_of(log_dir: str, name: str) -> Path:
    return Path(log_dir, note_name(name)).with_suffix(MARK)


def _holder(path: Path) -> str | None:
    """Return the id of the log dir that has the note; ``None`` without a mark."""
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    found = re.fullmatch(rb"([0-9a-f]{32})\n", text)
    if found is None:
        message = f"{len(text)} bytes found, the id of the log dir that has a note expected"
        raise MetadataFileError(message, path=str(path))
    return found[1].decode()
