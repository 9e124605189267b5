"""Checks a job or a micro-batch that is run again under its name: whether it is published already, and is the same one."""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence

from offsetlog._commit.notes import Commit, digest_of, history_of
from offsetlog._commit.places import check_log_dirs, is_hollow, place_of
from offsetlog._commit.staging import is_let_go, partition_directory
from offsetlog._commit.telling import counts, summary, told_contents, when
from offsetlog._log import Log
from offsetlog.errors import ConfigError, LogDirError

__all__ = ["Fate", "check_repeated", "check_there", "is_done", "was_done"]

logger = logging.getLogger("offsetlog")


class Fate(enum.Enum):
    """What has become of a commit that failed and could not be taken back at once."""

    PUBLISHED = enum.auto()
    UNDOING = enum.auto()
    GONE = enum.auto()
    """Nothing of it is published, nor will be."""
    UNFINISHED = enum.auto()


def was_done(before: Commit, sequence: int | None, given: tuple[tuple[str, int, str], ...] | None, plan: str | None = None) -> bool:
    """Whether what is staged was published before, as the note of its name says; it has to be the same."""
    if not before.covers(sequence):
        return False
    if sequence is None:
        check_repeated(before, given)
    elif given is not None:
        _check_micro_batch(before, sequence, given, plan)
    what = (
        f"published on {when(before)}" if sequence is None else f"micro-batch {sequence} is published, the last is {before.sequence}"
    )
    logger.warning("%s: %s; what was staged again is dropped: %s", before.name, what, summary(before))
    return True


def check_there(before: Commit, paths: Sequence[str]) -> None:
    """Refuse to go on with a stream while partitions that it has published in are not at hand.

    Its topic would look like one that is gone, or of fewer partitions.

    Raises
    ------
    OSError
        The log dir of one is not there.
    """
    for target in before.targets:
        there = partition_directory(paths, target.topic, target.partition)
        if there is None or is_hollow(there):
            check_log_dirs(before._replace(targets=(target,)))


def check_repeated(before: Commit, given: tuple[tuple[str, int, str], ...] | None = None) -> None:
    """Refuse a job that is run again under its name if it is not the same, or if the records it published are gone.

    Parameters
    ----------
    before
        The note of what was published.
    given
        What is to be published now; ``None`` while that is not known.

    Raises
    ------
    ConfigError
        It says what was published, when and where, and what to do.
    """
    reason = None
    for target in before.targets:
        try:
            place = place_of(before, target)
        except LogDirError as error:
            reason = f"but {error.args[0].splitlines()[0]}" if error.args else "but its topic is gone"
            break
        with Log.open(place) as log:
            if target.end > log.log_end_offset:
                reason = f"but {target.name} ends at {log.log_end_offset} now, below {target.end}, where it ended then"
                break
    if reason is None and given is not None:
        if before.contents is not None:
            if given != before.contents:
                reason = f"and this job has other data: {told_contents(given)}"
        elif counts(before) != {topic: count for topic, count, _ in given if count}:
            reason = f"and this job has other data: {told_contents(given)}"
    if reason is not None:
        name = before.name.removeprefix("job ")
        message = (
            f"transactionId {name!r} was used on {when(before)} for {summary(before)}, {reason}. Nothing is written now, and what "
            f"was published stays. Other records take another transactionId, or this one after offsetlog commits --forget {name!r} "
            f"LOG_DIR; records that are published would then be there twice"
        )
        raise ConfigError(message, key="transactionId", value=name)


def _is_same(noted: Commit, sequence: int, given: tuple[tuple[str, int, str], ...], plan: str | None) -> bool | None:
    """Whether a published micro-batch is the one that comes with this; ``None`` where a note does not tell.

    Spark plans a micro-batch once. As long as it is that one, other rows are those of functions that give others each time.
    """
    for number, digest, planned in history_of(noted):
        if number == sequence:
            return (plan is not None and plan == planned) or digest == digest_of(given)
    if noted.sequence == sequence:
        # A note of version 0.
        return counts(noted) == {topic: count for topic, count, _ in given if count}
    return None


def _check_micro_batch(before: Commit, sequence: int, given: tuple[tuple[str, int, str], ...], plan: str | None) -> None:
    """Refuse a micro-batch that is not the one which was published under its number: it would be dropped.

    Spark repeats the last micro-batch of a checkpoint, and that one with the same rows. Others come from a copy of the checkpoint, of
    two streams with one `queryId`, and when a checkpoint was set back.

    Raises
    ------
    ConfigError
        It says what was published, and what to do.
    """
    is_same = _is_same(before, sequence, given, plan)
    if is_same:
        return
    name = before.name.removeprefix("query ")
    if is_same is None:
        what = f"micro-batches up to {before.sequence} are published, and what number {sequence} had is not noted; it has now"
    elif sequence == before.sequence:
        what = f"micro-batch {sequence} was published on {when(before)} with {summary(before)}, and has other data now:"
    else:
        what = f"micro-batch {sequence} was published before {when(before)}, when {before.sequence} was, and has other data now:"
    done = ""
    if sequence == before.sequence:
        how = f"copy commits/{sequence - 1} to commits/{sequence}" if sequence else "write commits/0"
        done = (
            f" If this is the same micro-batch, and its rows differ each time, tell Spark that it is done: {how} in the checkpoint, "
            "as docs/spark.md says."
        )
    message = (
        f"{before.name}: {what} {told_contents(given)}. Nothing is written now, and what was published stays. Spark repeats the last "
        "micro-batch of a stream, with the same rows: so either this is another stream with its name, from a copy of its checkpoint, "
        "which takes a queryId of its own; or the checkpoint was set back; or rows differ each time that they are computed."
        f"{done} offsetlog commits --forget {name!r} LOG_DIR lets be written what comes from here on; what is published of it is then "
        "there twice"
    )
    raise ConfigError(message, key="queryId", value=name)


def is_done(log_dir: str, note: Commit, now: Commit | None) -> bool:
    """Whether somebody else has published a commit, as its note says now. That of a nameless job is removed for it, or let go."""
    if now is None:
        return not note.keep and not is_let_go(log_dir, note)
    # Under the name another micro-batch may have been published with the number of this one.
    has_gone_on = note.sequence is not None and now.sequence is not None and now.sequence > note.sequence
    if not has_gone_on and not now.covers(note.sequence):
        return False
    if note.sequence is None or note.contents is None:
        return note.sequence is not None or now.contents == note.contents
    return _is_same(now, note.sequence, note.contents, note.plan) is True
