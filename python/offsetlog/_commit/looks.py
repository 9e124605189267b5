"""Looks at files and folders, for which only the disk's own word «there is none» means that: a look that fails raises.

What the standard library has for this takes some failures for an answer, which ones depends on its version: an unreadable folder would
be one without notes, and what these say would be done twice.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from pathlib import Path

__all__ = ["is_folder", "is_same", "is_there", "named"]

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


def _look(path: str | os.PathLike[str], *, follow: bool = True) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def is_there(path: str | os.PathLike[str], *, follow: bool = True) -> bool:
    """Return whether anything is there; without `follow`, also a link that leads nowhere."""
    return _look(path, follow=follow) is not None


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder is there."""
    found = _look(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_same(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Return whether both are there, and are one file or folder."""
    found = _look(one), _look(other)
    return found[0] is not None and found[1] is not None and os.path.samestat(found[0], found[1])


def named(folder: str | os.PathLike[str], pattern: str) -> list[Path]:
    """Return what a folder has whose name is like a pattern, in order; nothing of a missing one."""
    return [Path(folder, name) for name in sorted(_names(folder)) if fnmatch.fnmatchcase(name, pattern)]


def _names(folder: str | os.PathLike[str]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except OSError as error:
        if error.errno in _ABSENT:
            return []
        raise
