"""Publishes the staged records of one partition of a commit, finds those already published, and takes them back.

Batches are recognised by their sizes and checksums, which do not change when a batch gets its offset and epoch. Staged records
are copied, or their segments renamed into the log where they are large enough; the engine then leaves a note beside them with
what their batches are, before it changes the first one, so that the next commit recognises them in whatever state it finds the
files.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from offsetlog._commit.notes import Commit, CommitTarget
from offsetlog._commit.places import SINGLE_REPLICA_OPTION, check, metadata_for
from offsetlog._log import Log
from offsetlog._text import counted
from offsetlog._values import BatchInfo
from offsetlog._writable_log import WritableLog, moving_note
from offsetlog.errors import ClusterError, LogDirError, LogLockedError, OffsetLogError, UnexpectedAppendOffsetError

__all__ = ["Patience", "Superseded", "digest", "holding", "move_to", "opened", "prints", "prints_of", "why_not"]

# Where a batch of magic 2 has its checksum, which covers all but its offset and epoch.
CRC_AT = 17
# Behind it are the attributes. The cleaner sets this one of a batch with tombstones.
_DELETE_HORIZON = 1 << 6
_MAGIC = 2
_FIRST_WAIT, _MOST_WAIT = 0.02, 0.5
# How the engine names the option that allows a write in spite of other replicas.
_ANYWAY = "single_replica=True or --single-replica does it anyway"


class Superseded(Exception):  # noqa: N818  # no error: somebody else has gone on with the commit
    """The note is no longer what it was when this work on it began."""


class Patience:
    """How long one commit waits, in all, for partitions that somebody else writes: from when it meets the first one on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

    def left(self) -> float:
        """Return how many seconds are left."""
        if self._until is None:
            self._until = time.monotonic() + self._seconds
        return self._until - time.monotonic()


class Print(NamedTuple):
    """How a batch is known again."""

    size_bytes: int
    crc: int
    base_offset: int
    last_offset: int
    is_cleaned: bool
    """The cleaner took records out of it, or noted when its tombstones may go: it is no longer as it was appended."""


def move_to(
    commit: Commit, target: CommitTarget, *, still: Callable[[], None], patience: Patience, failed: threading.Event | None = None
) -> int:
    """Publish what is not yet of a partition, and return where its log ends.

    `still` is called when nobody else can work on the partition; it raises :class:`Superseded` where the commit is no longer wanted.
    """
    check(commit, target)
    with opened(target, patience, failed, commit) as log:
        still()
        before = log.log_end_offset
        # Where nobody has appended since, nothing of this is there.
        skip = 0 if before == target.start else _there(log, target, commit)
        left = target.batches - skip
        # Notes of version 0 do not say how many batches each staged log has: those are copied.
        is_known = len(target.marks) == len(target.staged)
        marks: Sequence[tuple[int, str] | None] = target.marks if is_known else [None] * len(target.staged)
        if left and not is_known:
            prints_of(target)
        for path, mark in zip(target.staged, marks, strict=True) if left else ():
            place = Path(target.directory, path)
            if mark is not None and skip >= mark[0]:
                skip -= mark[0]
            elif mark is not None and not commit.preserve_offsets and _rename(log, place, mark[0], skip):
                skip = 0
            else:
                if mark is not None:
                    _known(place, mark)
                skip = _copy(log, place, skip, commit.preserve_offsets)
        try:
            still()
        except Superseded:
            # The process that takes the commit back looked here before these records were there.
            _cut(log, before)
            raise
        log.flush()
        return log.log_end_offset


@contextmanager
def holding(commit: Commit, target: CommitTarget, patience: Patience) -> Iterator[tuple[str | None, Callable[[], None] | None]]:
    """Hold a partition from whose end something of a commit may have to be taken back.

    Gives why that is impossible, if it is, and what does it: as long as this lasts, nobody writes behind it. ``None`` where it is not
    held: nothing of the commit is there now, and somebody else writes it, or it cannot be written.
    """
    with ExitStack() as stack:
        try:
            check(commit, target)
            # Nobody is waited for where nothing is to be taken back.
            waits = patience if _may_have(commit, target) else Patience(0.0)
            log = stack.enter_context(opened(target, waits, None, commit))
        except (OSError, OffsetLogError):
            if _may_have(commit, target):
                raise
            yield None, None
            return
        is_own, reason = _standing(log, target, preserve_offsets=commit.preserve_offsets)

        def cut() -> None:
            if is_own:
                _cut(log, target.start)
                log.flush()

        yield reason, cut


def why_not(commit: Commit, target: CommitTarget) -> str | None:
    """Return why what a commit has published in a partition can be neither taken back nor left, if that is so. Reads only."""
    if not _may_have(commit, target):
        return None
    with Log.open(target.directory) as log:
        return _standing(log, target, preserve_offsets=commit.preserve_offsets)[1]


def _may_have(commit: Commit, target: CommitTarget) -> bool:
    """Whether records of a commit may be in a partition; a process that is about to publish there looks at the note again."""
    try:
        check(commit, target)
    except LogDirError:
        # The records published there were deleted with it.
        return False
    with Log.open(target.directory) as log:
        return log.log_end_offset > target.start


def _cut(log: WritableLog, end: int) -> None:
    if log.log_start_offset > end:
        log.truncate_fully_and_start_at(end)
    elif log.log_end_offset > end:
        log.truncate_to(end)


@contextmanager
def opened(target: CommitTarget, patience: Patience, failed: threading.Event | None, commit: Commit) -> Iterator[WritableLog]:
    """Open a log for appending, waiting for who else writes it unless all is in vain.

    It may be truncated even if its topic is internal: what a commit cuts off there are its own records.

    Raises
    ------
    ClusterError
        Others have replicas of the partition, and the commit must not continue in spite of them; the text names Spark's option.
    OSError
        The cluster's metadata, which told of that when the commit began, is not there.
    """
    directory, metadata = target.directory, metadata_for(commit, target.directory)
    wait = _FIRST_WAIT
    while True:
        try:
            log = Log.open(directory, "a", metadata=metadata, internal_topics=target.topic, single_replica=commit.single_replica)
            break
        except LogLockedError:
            left = patience.left()
            if left <= 0 or (failed is not None and failed.is_set()):
                raise
            if failed is None:
                time.sleep(min(wait, left))
            elif failed.wait(min(wait, left)):
                raise
            wait = min(2 * wait, _MOST_WAIT)
    try:
        with log:
            yield log
    except ClusterError as error:
        error.args = (str(error).replace(_ANYWAY, SINGLE_REPLICA_OPTION),)
        raise


def _standing(log: Log, target: CommitTarget, *, preserve_offsets: bool) -> tuple[bool, str | None]:
    """Return whether only a commit's own records follow its start; or why they can be neither taken back nor left."""
    end = log.log_end_offset
    if end <= target.start:
        return False, None
    # Records that keep their offsets may begin behind where an empty log did.
    if log.log_start_offset > target.start and not preserve_offsets:
        return False, f"{target.name}: offsets {target.start} to {log.log_start_offset - 1} were deleted since"
    where = f"{target.name}: offsets {target.start} to {end - 1} hold records of it and another program's"
    since = max(target.start, log.log_start_offset)
    there = list(prints(log, since))
    # Gaps in offsets that are kept may be those of the records.
    if not preserve_offsets and (cleaned := _cleaned_from(there, since, end)) is not None:
        return False, f"{target.name}: records from offset {cleaned} on were compacted since"
    try:
        expected = prints_of(target)
    except FileNotFoundError:
        return (True, None) if _are_whole_logs(target, there) else (False, where)
    ours = 0
    for found in there:
        ours += ours < len(expected) and found[:2] == expected[ours][:2]
    places = _at_their_places(there, expected) if preserve_offsets else ()
    cleaned_places = [
        (each.base_offset, now is not None)
        for each, now in places
        if each.base_offset < end and each.last_offset >= since and _may_be_cleaned(each, now)
    ]
    # Where nothing else shows that it was here, empty places are no trace of it.
    if cleaned_places and (ours or any(is_trace for _, is_trace in cleaned_places)):
        return False, f"{target.name}: records from offset {cleaned_places[0][0]} on were compacted since"
    return 0 < ours == len(there), (where if 0 < ours < len(there) else None)


def _are_whole_logs(target: CommitTarget, there: Sequence[Print]) -> bool:
    """Whether batches are those of the first staged logs, whole, which are known by their digests."""
    at = 0
    for batches, noted in target.marks:
        if at == len(there):
            break
        if digest(there[at : at + batches]) != noted:
            return False
        at += batches
    return at == len(there)


def _rename(log: WritableLog, path: Path, batches: int, skip: int) -> bool:
    """Rename what is left of a staged log to the end of the log; return ``False`` where it has to be copied.

    Its first `skip` batches are in the log. Once renaming has begun it cannot be copied any more: some of its batches may be numbered
    for their new place, and some of its segments be there.
    """
    if skip and moving_note(str(path)) is None:
        return False
    return log._move_log(str(path), batches - skip) is not None  # noqa: SLF001  # same package


def _copy(log: WritableLog, path: Path, skip: int, preserve_offsets: bool) -> int:
    """Append a staged log but for its first `skip` batches; return how many more are to be left out of the next."""
    with Log.open(path) as staged:
        if not skip:
            log.append_log(staged, preserve_offsets=preserve_offsets)
            return 0
        for batch in staged.batches():
            if not skip:
                log.append_log(staged, start=batch.base_offset, preserve_offsets=preserve_offsets)
                return 0
            skip -= 1
        return skip


def _there(log: Log, target: CommitTarget, commit: Commit) -> int:
    """Return how many of the batches, the first ones, a commit that died has published.

    Another program may have appended since: our batches are among others, in order, each recognised by its size and checksum.
    Batches deleted since from the start of the log had been published if one behind them is left.

    Raises
    ------
    LogDirError
        Records were deleted or compacted away, and nothing that is left says whose they were.
    """
    try:
        expected = prints_of(target)
    except FileNotFoundError:
        # All of it is there: the staged files may be gone.
        if target.marks and log.log_start_offset <= target.start and _begins_with(log, target):
            return target.batches
        raise
    if commit.preserve_offsets:
        return _kept_there(log, target, commit, expected)
    count = _first_left(log, target, commit, expected) if log.log_start_offset > target.start else 0
    cleaned: int | None = None
    behind = since = max(target.start, log.log_start_offset)
    for batch in prints(log, since):
        if count == len(expected):
            return count
        if batch[:2] == expected[count][:2]:
            count += 1
        if cleaned is None:
            cleaned = _cleaned_from([batch], behind, batch.last_offset + 1)
        behind = batch.last_offset + 1
    if cleaned is None and behind < log.log_end_offset:
        cleaned = behind
    if count < len(expected) and cleaned is not None:
        raise _undecided(target, commit, f"records from offset {cleaned} on were compacted")
    return count


def _cleaned_from(there: Iterable[Print], since: int, end: int) -> int | None:
    """Return the offset from which the cleaner has changed or removed batches; ``None`` where all are as they were appended."""
    for each in there:
        if each.is_cleaned or each.base_offset > since:
            return since
        since = each.last_offset + 1
    return since if since < end else None


def _undecided(
    target: CommitTarget, commit: Commit, what: str, again: str = "the job, run again after that, publishes all"
) -> LogDirError:
    message = (
        f"{target.name}: {what} since the commit began, and nothing that is left says whether records of it were among them: look, "
        f"then offsetlog commits --forget {commit.name!r} --unfinished, with the first log dir of the job, lets the commit go, and "
        f"{again}"
    )
    return LogDirError(message, path=target.directory)


def _first_left(log: Log, target: CommitTarget, commit: Commit, expected: list[Print]) -> int:
    """Return which of the batches is the first that is left of those published: all before it were published too, and deleted."""
    lasts = [each.last_offset for each in _numbered(expected)]
    places = {target.start + first: number for number, first in enumerate([0, *(last + 1 for last in lasts[:-1])])}
    for batch in prints(log, log.log_start_offset):
        numbers = [number for number, each in enumerate(expected) if each[:2] == batch[:2]]
        number = places.get(batch.base_offset)
        # Equal batches are told apart by their places.
        if number in numbers:
            return int(number)
        if len(numbers) == 1:
            return numbers[0]
        if numbers:
            break
    raise _undecided(target, commit, f"offsets {target.start} to {log.log_start_offset - 1} were deleted")


def _begins_with(log: Log, target: CommitTarget) -> bool:
    there = prints(log, target.start)
    for batches, noted in target.marks:
        part = [each for _, each in zip(range(batches), there, strict=False)]
        if len(part) < batches or digest(part) != noted:
            return False
    return True


def _kept_there(log: Log, target: CommitTarget, commit: Commit, expected: list[Print]) -> int:
    """The same for records that keep their offsets: each batch has one place, where another program's may be by now."""
    there = list(prints(log, max(target.start, log.log_start_offset)))
    for count, (each, found) in enumerate(_at_their_places(there, expected)):
        if each.base_offset >= log.log_end_offset:
            return count
        if each.last_offset < log.log_start_offset or (found is not None and found[:2] == each[:2]):
            continue
        if _may_be_cleaned(each, found):
            again = f"rows that keep their offsets go into {target.name} from offset {log.log_end_offset} on"
            raise _undecided(target, commit, f"records from offset {each.base_offset} on were compacted", again)
        message = (
            f"{target.name}: another program has written at offset {each.base_offset}, where a record was to keep its offset; "
            f"the log ends at {log.log_end_offset}"
        )
        raise UnexpectedAppendOffsetError(message, path=target.directory, offset=each.base_offset)
    return len(expected)


def _at_their_places(there: Sequence[Print], expected: Sequence[Print]) -> Iterator[tuple[Print, Print | None]]:
    """Yield with each batch of records that keep their offsets the first one that has any of these now."""
    at = 0
    for each in expected:
        while at < len(there) and there[at].last_offset < each.base_offset:
            at += 1
        yield each, there[at] if at < len(there) and there[at].base_offset <= each.last_offset else None


def _may_be_cleaned(each: Print, found: Print | None) -> bool:
    """Whether what is in a batch's place may be what the cleaner left of it. It keeps the first and the last offset."""
    return found is None or (found.is_cleaned and found[:2] != each[:2] and found[2:4] == each[2:4])


def _numbered(expected: Iterable[Print]) -> Iterator[Print]:
    """Count offsets through staged logs, each of which restarts at 0."""
    shift, before = 0, -1
    for each in expected:
        if each.last_offset <= before:
            shift += before + 1
        before = each.last_offset
        yield each._replace(last_offset=shift + each.last_offset)


def prints_of(target: CommitTarget) -> list[Print]:
    """Return how the batches of a partition's staged logs are known.

    Raises
    ------
    FileNotFoundError
        They are not all there. A log whose files are gone opens as an empty one, so that what it holds is compared with the note.
    """
    if target.marks:
        return [
            each for path, mark in zip(target.staged, target.marks, strict=True) for each in _known(Path(target.directory, path), mark)
        ]
    found = [each for path in target.staged for each in _staged_prints(Path(target.directory, path))]
    if len(found) != target.batches:
        raise _gone(Path(target.directory, target.staged[0]), len(found), target.batches)
    return found


def _known(path: Path, mark: tuple[int, str]) -> list[Print]:
    """Return how the batches of a staged log are known, which are those that its mark is of; raise as :func:`prints_of` does."""
    found = list(_staged_prints(path))
    if (len(found), digest(found)) != mark:
        raise _gone(path, len(found), mark[0])
    return found


def _gone(path: Path, found: int, expected: int) -> FileNotFoundError:
    what = f"{counted(found, 'batch')} found, {expected} expected" if found != expected else "other batches than those staged found"
    return FileNotFoundError(errno.ENOENT, what, str(path))


def _staged_prints(path: Path) -> Iterator[Print]:
    noted = moving_note(str(path))
    if noted is not None:
        # The files themselves have new offsets by now, or were moved.
        next_offset = 0
        for size_bytes, crc, last_offset_delta in noted:
            yield Print(size_bytes, crc, next_offset, next_offset + last_offset_delta, is_cleaned=False)
            next_offset += last_offset_delta + 1
        return
    with Log.open(path) as log:
        yield from prints(log)


def prints(log: Log, start: int | None = None) -> Iterator[Print]:
    """Yield how the batches of a log are known again, from `start` on."""
    if start is not None and start >= log.log_end_offset:
        return
    files: dict[int, int] = {}
    try:
        for batch in log.batches() if start is None else log.batches(start):
            if batch.segment not in files:
                for descriptor in files.values():
                    os.close(descriptor)
                files = {batch.segment: os.open(Path(log.path, f"{batch.segment:020d}.log"), os.O_RDONLY | os.O_CLOEXEC)}
            yield _print(files[batch.segment], batch)
    finally:
        for descriptor in files.values():
            os.close(descriptor)


def _print(descriptor: int, batch: BatchInfo) -> Print:
    crc, attributes = struct.unpack(">IH", os.pread(descriptor, 6, batch.position + CRC_AT))
    count = batch.record_count
    is_short = count is not None and count < batch.last_offset - batch.base_offset + 1
    is_cleaned = is_short or (batch.magic == _MAGIC and bool(attributes & _DELETE_HORIZON))
    return Print(batch.size_bytes, crc, batch.base_offset, batch.last_offset, is_cleaned)


def digest(batches: Iterable[Print]) -> str:
    """Return a digest of batches, as a note keeps it of a staged log."""
    found = hashlib.sha256()
    for each in batches:
        found.update(struct.pack(">QI", each.size_bytes, each.crc))
    return found.hexdigest()[:32]
