"""Finds another commit at work that has batches like those of a new one, and where the logs of the new one end.

A batch is known again by its size and checksum. So of two commits with equal batches for one partition the second waits for the first:
else each would take what the other one published for its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from offsetlog._commit.moving import Patience, prints_of
from offsetlog._commit.notes import Commit, CommitTarget, readable
from offsetlog._log import Log
from offsetlog.errors import LogLockedError

__all__ = ["Alike", "alike_at_work", "from_now"]

_WAIT = 0.1


class Alike(NamedTuple):
    """Another commit with batches like those of a new one."""

    log_dir: str
    """Where its note is."""
    note: Commit
    target: CommitTarget

    def wait(self, patience: Patience) -> None:
        """Wait a moment for its end.

        Raises
        ------
        LogLockedError
            The time is over.
        """
        left = patience.left()
        if left <= 0:
            message = (
                f"{self.target.name}: the commit of {self.note.name!r} is not done, and has records that cannot be told from these: "
                f"run this again when it is. If nobody finishes it, offsetlog commits --forget {self.note.name!r} --unfinished "
                f"{self.log_dir} lets it go"
            )
            raise LogLockedError(message, path=self.target.directory)
        time.sleep(min(_WAIT, left))


def from_now(made: Commit) -> Commit:
    """Return a commit that begins where the logs end now. Records that keep their offsets have their places already."""
    return made if made.preserve_offsets else made._replace(targets=tuple(map(_from_now, made.targets)))


def _from_now(target: CommitTarget) -> CommitTarget:
    with Log.open(target.directory) as log:
        return target._replace(start=log.log_end_offset)


def alike_at_work(log_dirs: Sequence[str], made: Commit) -> Alike | None:
    """Return another commit that is not done, with a batch like one of these for the same partition."""
    ours = {target.directory: target for target in made.targets}
    for place in log_dirs:
        for note in readable(place):
            if note.name == made.name or note.is_published or note.preserve_offsets:
                continue
            for theirs in note.targets:
                mine = ours.get(theirs.directory)
                if mine is not None and _share(mine, theirs):
                    return Alike(place, note, theirs)
    return None


def _share(ours: CommitTarget, theirs: CommitTarget) -> bool:
    try:
        known = {each[:2] for each in prints_of(theirs)}
    except (FileNotFoundError, NotADirectoryError):
        # Its staged logs are gone, or not at hand: whole ones are known by their digests.
        return not {digest for _, digest in ours.marks}.isdisjoint(digest for _, digest in theirs.marks)
    return any(each[:2] in known for each in prints_of(ours))
