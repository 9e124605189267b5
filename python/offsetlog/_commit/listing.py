"""What a person asks of the notes of commits: which there are, and that one is forgotten."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from offsetlog._commit.notes import Commit, locked, notes, remove
from offsetlog._commit.staging import let_go
from offsetlog._commit.whereabouts import unmark
from offsetlog._folder import folder_kind
from offsetlog._log_dir import LogDir
from offsetlog._notebook import Rows
from offsetlog._options import flag, path_text
from offsetlog._text import counted
from offsetlog.errors import LogDirError, MetadataFileError

__all__ = ["commits", "forget_commit"]


def commits(path: str | os.PathLike[str]) -> list[Commit]:
    """Return the notes of commits in a log dir, in the order of their names. Reads only.

    Parameters
    ----------
    path
        A log dir; of several that are written to as one, the first.

    Raises
    ------
    MetadataFileError
        A note cannot be read.
    LogDirError
        The folder around log dirs, or a partition's directory.
    FileNotFoundError
        The folder is not there.

    Examples
    --------
    >>> commits("tests/data/kafka-4.3.0/clean/log-dir-1")
    []
    """
    return Rows(_readable_notes(_log_dir(path)))


def forget_commit(path: str | os.PathLike[str], name: str, *, unfinished: bool = False) -> Commit:
    """Remove the note of a name, and return it. Published records stay.

    The name may then be used again. A job that runs again under it publishes all of its records: those that are published already
    are then there twice.

    Parameters
    ----------
    path
        As for :func:`commits`.
    name
        As the note has it, or without the word ``job`` or ``query`` before it.
    unfinished
        Even if not all is published: the rest is dropped, with its staged files.

    Raises
    ------
    LogDirError
        There is no such note, or several; or it is unfinished, and `unfinished` is not set; and as for :func:`commits`.
    MetadataFileError, FileNotFoundError
        As for :func:`commits`.
    """
    flag("unfinished", unfinished)
    place = _log_dir(path)
    # A folder without the note gets no lock file.
    _named(place, name)
    with locked(place):
        note = _named(place, name)
        if not note.is_published and not unfinished:
            left = f"{counted(note.records, 'record')} in {counted(len(note.targets), 'partition')}"
            message = (
                f"{note.name!r} is not finished: its job run again, or another write to the log dir, goes on with it; to drop what is "
                f"not published yet of {left}, say --unfinished: what is published of them stays, and is there twice if the job runs "
                "again, which publishes all of them"
            )
            raise LogDirError(message, path=place)
        if not note.is_published:
            let_go(place, note)
        remove(place, note.name)
        unmark(place, note)
    for target in note.targets:
        for staged in target.staged:
            # <staging folder>/<job>/<attempt>/<log>: folders that are empty then go too.
            place_of = Path(target.directory, staged)
            shutil.rmtree(place_of, ignore_errors=True)
            for folder in list(place_of.parents)[:3]:
                with suppress(OSError):
                    folder.rmdir()
    return note


def _log_dir(path: str | os.PathLike[str]) -> str:
    """Return the path of a folder in which notes can be: a missing one is not a folder without notes."""
    place = path_text(path)
    kind = folder_kind(place)
    if kind == "around_log_dirs":
        # It says which paths work.
        LogDir.open(place).close()
    if kind == "partition":
        raise LogDirError("a partition's directory found, the log dir around it expected", path=place)
    return place


def _readable_notes(log_dir: str) -> list[Commit]:
    found = []
    for note in notes(log_dir):
        if isinstance(note, MetadataFileError):
            raise note
        found.append(note)
    return sorted(found, key=lambda note: note.name)


def _named(log_dir: str, name: str) -> Commit:
    """Return the one note that is called so."""
    noted = _readable_notes(log_dir)
    found = [note for note in noted if name in (note.name, *note.name.split(" ", 1)[1:])]
    exact = [note for note in found if note.name == name] or found
    if len(exact) != 1:
        names = ", ".join(repr(note.name) for note in exact or noted) or "none"
        message = f"no commit is called {name!r}" if not exact else f"several commits are called {name!r}"
        raise LogDirError(f"{message}; those noted here: {names}", path=log_dir)
    return exact[0]
