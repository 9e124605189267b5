"""Publishes staged records into their logs, each once, whatever fails or dies in between.

A note in the log dir (:mod:`offsetlog._commit.notes`), one for each name of a job, says what a commit is about to do before it does
anything, and that it is done afterwards. An interrupted commit is finished by the next use of its name, and by the next commit of
any name on the log dir: the note names the staged logs and where each log ended, and the batches that are there already are found
by their checksums. Before the note is written nothing is published; records staged until then belong to nobody.

Order: tasks close their staged logs (durable) - note «publishing» (durable) - batches copied or their segments renamed, several
partitions at once, each log flushed - note «published» (durable) - staged logs removed.

A commit that can never be finished, because staged files are gone or a partition refuses them for good, is taken back when the
same name is used again: note «undoing» (durable) - each log cut to where it ended, unless another program has written behind -
note removed. A job without a name cannot come again, so its own failing commit takes back what it has published; where it cannot,
it puts a prepared note in place, by which the same records are recognised. One job that is run again claims that note. Only a
process that holds a partition's lock and has looked at the note again since works on it; notes are changed and claimed under a
lock of their own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

from offsetlog._commit.beginning import alike_at_work, from_now
from offsetlog._commit.moving import Patience, Superseded, holding, move_to, why_not
from offsetlog._commit.notes import (
    KEPT,
    Commit,
    CommitTarget,
    history_of,
    is_same_work,
    locked,
    make_ready,
    note_of,
    now_ms,
    put_ready,
    readable,
    remove,
    standing,
    write,
)
from offsetlog._commit.places import check_log_dirs, check_others, metadata_now
from offsetlog._commit.repeated import Fate, is_done, was_done
from offsetlog._commit.staging import Staged, discard, is_let_go, targets_of
from offsetlog._commit.telling import noted_contents, summary
from offsetlog._commit.whereabouts import gives_way, mark, rival_of, unmark
from offsetlog.errors import ClusterError, LogDirError, LogLockedError, LogPoisonedError, MetadataFileError, OffsetLogError

__all__ = ["Contents", "commit", "finish", "settled", "undo"]

logger = logging.getLogger("offsetlog")

# One partition is copied and synced while another one waits for the disk.
PARTITIONS_AT_ONCE = 4
# Open logs, of five files each, while they are taken back.
HELD_AT_ONCE = 64
LOCK_SECONDS = 60.0

Progress = Callable[[str, int, int], None]
Contents = Mapping[str, tuple[int, int]]
"""For each topic the number of records, and the sum of their digests modulo 2^128."""


def commit(
    log_dir: str,
    name: str,
    sequence: int | None,
    staged: Sequence[Staged],
    *,
    contents: Contents | None = None,
    plan: str | None = None,
    preserve_offsets: bool = False,
    keep: bool = True,
    single_replica: bool = False,
    metadata: str | None = None,
    log_dirs: Sequence[str] = (),
    lock_seconds: float | None = None,
    progress: Progress | None = None,
) -> bool:
    """Publish staged logs, each record once, and return whether that was done now.

    Parameters
    ----------
    log_dir
        Where the note is kept: one of the log dirs, always the same.
    name, sequence
        What is committed. Under a name, a commit that was done (of a lower or the same sequence) is not done again: the staged
        records are dropped, and a warning is logged.
    staged
        In the order in which they are to stand in each log.
    contents
        What is staged. A batch job or a micro-batch that is run again under its name must have the same.
    plan
        What tells a micro-batch from every other one that was ever planned: one with the plan of the published one is the same.
    preserve_offsets
        Records keep the offsets that they are staged with.
    keep
        Whether the name may be used again: its note is kept.
    single_replica
        Whether partitions of which other brokers have replicas are written all the same.
    metadata
        The log dir with the cluster's metadata, which says whether there are any; one beside a partition is found without it.
    log_dirs
        The log dirs of the job, with `log_dir` as the first; those of its partitions where none are given.
    lock_seconds
        How long to wait in all for partitions that somebody else writes; a minute by default.
    progress
        Called with a partition's directory, and how many of how many are published, in the order in which they are staged.

    Raises
    ------
    ConfigError
        A batch job, or a micro-batch of this number, of this name has published something else.
    ClusterError
        Other brokers have replicas of a partition, and `single_replica` is not set: what was published of others is taken back.
    UnexpectedAppendOffsetError
        With `preserve_offsets`, offsets that overlap, or lie below the end of their log: nothing is published.
    LogLockedError, OSError
        A partition could not be written. With `keep` the commit is finished by the next one; without, what was published is
        taken back. Or another process works on the commit, or on one of a nameless job with the same contents.
    LogDirError
        Another process has taken the commit back.
    """
    patience = Patience(LOCK_SECONDS if lock_seconds is None else lock_seconds)
    given = None if contents is None else noted_contents(contents)

    # The same job may have begun with another one of them as the first.
    all_log_dirs = [log_dir, *(each for each in log_dirs if each != log_dir)]

    def as_given(note: Commit, place: str = log_dir) -> Commit:
        return _as_given(place, note, metadata, single_replica=single_replica)

    while True:
        before = note_of(log_dir, name)
        if before is not None and not before.is_published:
            before = _settle(log_dir, as_given(before), patience, progress)
        if before is not None and was_done(before, sequence, given, plan):
            # Notes of earlier versions have none.
            mark(log_dir, before._replace(log_dirs=tuple(log_dirs)))
            discard(staged)
            return False
        if not keep and given is not None and (failed := _claimed_twin(all_log_dirs, given, as_given, patience)) is not None:
            logger.warning(
                "%s was told that it failed, and is published by now; the same records staged again are dropped", failed.name
            )
            discard(staged)
            return False
        for place in all_log_dirs:
            check_others(place, name, {each.directory for each in staged})
        made = Commit(
            name,
            sequence,
            is_published=False,
            preserve_offsets=preserve_offsets,
            keep=keep,
            targets=targets_of(staged, log_dir, preserve_offsets=preserve_offsets),
            time=now_ms(),
            contents=given,
            single_replica=single_replica,
            metadata=metadata,
            log_dirs=tuple(log_dirs) if len(log_dirs) > 1 else (),
            plan=plan,
            earlier=() if before is None else history_of(before)[:KEPT],
        )
        is_noted = False
        try:
            begun = _begun(all_log_dirs, made, before, patience)
            if begun is None:
                continue
            made, is_noted = begun, True
            way = gives_way(log_dir, made) if keep and before is None else None
            if way is None:
                _publish(log_dir, made, patience, progress)
        except Exception as error:
            if not _told(log_dir, made, error, is_noted=is_noted):
                raise
            way = None
        if way is not None:
            raise way
        return True


def _begun(log_dirs: Sequence[str], made: Commit, before: Commit | None, patience: Patience) -> Commit | None:
    """Write the note of a new commit and its marks; return it, or ``None`` where the name's note is no longer as it was before."""
    try:
        return _noted(log_dirs, made, before, patience, mark(log_dirs[0], made))
    except Exception:
        with suppress(OSError, MetadataFileError), locked(log_dirs[0]):
            if note_of(log_dirs[0], made.name) is None:
                unmark(log_dirs[0], made)
        raise


def _noted(log_dirs: Sequence[str], made: Commit, before: Commit | None, patience: Patience, holder: str | None) -> Commit | None:
    log_dir = log_dirs[0]
    while True:
        with locked(log_dir):
            if note_of(log_dir, made.name) != before:
                # Another driver has gone on under the name since: its note must stay, and may say that all is published.
                return None
            alike = alike_at_work(log_dirs, made)
            if alike is None:
                made = from_now(made)
                if not made.keep:
                    # Once something is published, the disk may be too full to write that it failed.
                    make_ready(log_dir, made._replace(has_failed=True))
                if holder is not None:  # who forgot the name meanwhile may have removed them
                    mark(log_dir, made, holder)
                write(log_dir, made)
                return made
        alike.wait(patience)


def finish(log_dir: str, *, metadata: str | None = None, lock_seconds: float = 0.0, progress: Progress | None = None) -> list[str]:
    """Finish the commits that failed or died half-way, and return their names.

    One that cannot be finished now is logged and left: it does not concern who writes elsewhere. `metadata` is where the cluster's
    metadata is now, for those that began with another place.
    """
    names = []
    patience = Patience(lock_seconds)
    for note in readable(log_dir):
        if note.is_published:
            continue
        try:
            # One that began without metadata is not asked for it now.
            unfinished = _as_given(log_dir, note, None if note.metadata is None else metadata, single_replica=False)
            if note.is_undoing:
                undo(log_dir, unfinished, patience)
                continue
            check_log_dirs(unfinished)
            if (rival := rival_of(log_dir, note)) is not None:
                logger.warning("%s: its commit is left as it is: another one of its name has its note in %s", note.name, rival)
                continue
            logger.warning("%s: its commit stopped half-way and is finished now: %s", note.name, summary(note))
            _publish(log_dir, unfinished, patience, progress)
            names.append(note.name)
        except (OSError, OffsetLogError) as error:
            logger.warning("%s: its commit cannot be finished now, other writes go on: %s", note.name, error)
    return names


def undo(log_dir: str, note: Commit, patience: Patience, begun: threading.Event | None = None) -> bool:
    """Take back what an unfinished commit has published, and remove its note and what it staged.

    Returns ``False`` where somebody else has finished it meanwhile, or gone on under its name: nothing is taken back then. `begun` is
    set once the note says «undoing»: from then on nobody publishes it.

    Raises
    ------
    LogDirError
        Another program has written behind it: nothing is taken back then, unless it wrote in this very moment, in a partition
        that is not held from the look to the end: beyond the first 64, or one in which nothing was and somebody else was at work.
    LogLockedError, OSError
        A partition could not be written; the next commit continues.
    """
    first, others = note.targets[:HELD_AT_ONCE], list(note.targets[HELD_AT_ONCE:])
    with ExitStack() as stack:
        held = [stack.enter_context(holding(note, target, patience)) for target in first]
        impossible = [reason for reason, _ in held] + [why_not(note, target) for target in others]
        others += [target for target, (_, cut) in zip(first, held, strict=True) if cut is None]
        taken = _noted_undoing(log_dir, note, begun, is_possible=not any(impossible))
        if taken is None:
            return False
        if not any(impossible):
            for _, cut in held:
                if cut is not None:
                    cut()
    if not any(impossible):
        try:
            with _wanted(log_dir, taken) as still:
                impossible = [_taken_back(taken, target, still, patience) for target in others]
        except Superseded:
            # Another process has taken it back, and the name may have been used again.
            return True
    if any(impossible):
        message = (
            f"{note.name!r} can be neither finished nor taken back: {'; '.join(filter(None, impossible))}; look, then offsetlog "
            f"commits --forget {note.name!r} --unfinished, with the first log dir of the job, lets it go"
        )
        raise LogDirError(message, path=log_dir)
    with locked(log_dir):
        if is_same_work(taken, note_of(log_dir, taken.name)):
            remove(log_dir, taken.name)
            unmark(log_dir, taken)
    _discard(taken)
    logger.warning("%s: what its commit had published was taken back", taken.name)
    return True


def _noted_undoing(log_dir: str, note: Commit, begun: threading.Event | None, *, is_possible: bool) -> Commit | None:
    """Note that a commit is taken back; return its note, or ``None`` where somebody else has finished it or gone on under its name."""
    with locked(log_dir):
        now = note_of(log_dir, note.name)
        if now is None or now.is_published or now.targets != note.targets:
            return None
        if is_possible and not now.is_undoing:
            now = now._replace(is_undoing=True)
            try:
                write(log_dir, now)
            finally:
                # If only its last sync failed, others take it back as well.
                if begun is not None and note_of(log_dir, now.name) == now:
                    begun.set()
        elif begun is not None and now.is_undoing:
            begun.set()
        return now


def _taken_back(note: Commit, target: CommitTarget, still: Callable[[], None], patience: Patience) -> str | None:
    with holding(note, target, patience) as (reason, cut):
        still()
        if cut is not None:
            cut()
        return reason


def settled(log_dir: str, name: str, lock_seconds: float | None = None) -> Commit | None:
    """Return the note of a name whose last commit is finished or taken back by now.

    Raises
    ------
    LogDirError, LogLockedError, OSError
        As for :func:`commit`.
    """
    found = note_of(log_dir, name)
    if found is None or found.is_published:
        return found
    return _settle(log_dir, found, Patience(LOCK_SECONDS if lock_seconds is None else lock_seconds), None)


def _settle(log_dir: str, before: Commit, patience: Patience, progress: Progress | None) -> Commit | None:
    """Finish or take back a commit of a name that is used again; return its note, if one is kept, which is published then."""
    # Nothing more is published while a part of it is not at hand.
    check_log_dirs(before)
    if not before.is_undoing:
        logger.warning("%s: its commit stopped half-way and is finished now: %s", before.name, summary(before))
        try:
            _publish(log_dir, before, patience, progress)
            return _published(log_dir, before)
        except (LogLockedError, LogPoisonedError):
            # The next time may go better.
            raise
        except OffsetLogError as error:
            logger.warning("%s: it cannot be finished, and what it published is taken back: %s", before.name, error)
            reason = error
        try:
            undo(log_dir, before, patience)
        except LogDirError as error:
            raise error from reason
        return _published(log_dir, before)
    undo(log_dir, before, patience)
    return _published(log_dir, before)


def _published(log_dir: str, before: Commit) -> Commit | None:
    """Return the note of a name if one is left. Nobody may write over one whose commit another process works on."""
    now = note_of(log_dir, before.name)
    if now is not None and not now.is_published:
        raise _at_work(log_dir, now)
    return now


def _at_work(log_dir: str, now: Commit) -> LogLockedError:
    what = "takes back" if now.is_undoing else "goes on with"
    return LogLockedError(f"another process {what} the commit of {now.name!r}", path=log_dir)


def _claimed_twin(
    log_dirs: Sequence[str], given: tuple[tuple[str, int, str], ...], as_given: Callable[[Commit, str], Commit], patience: Patience
) -> Commit | None:
    """Remove and return the note of a nameless job that failed with an error, has the same contents, and is published by now.

    Its records count as those of one job that is run again: of several with the same contents, one gets the note.
    """
    while True:
        twins = (
            (log_dir, note)
            for log_dir in log_dirs
            for note in readable(log_dir)
            if note.has_failed and not note.keep and note.contents == given
        )
        log_dir, found = next(twins, ("", None))
        if found is None:
            return None
        if not found.is_published:
            found = _settle(log_dir, as_given(found, log_dir), patience, None)
        # None: it was taken back, or another job has it; there may be one more.
        if found is not None and _claimed(log_dir, found):
            return found


def _claimed(log_dir: str, failed: Commit) -> bool:
    with locked(log_dir):
        if note_of(log_dir, failed.name) != failed:
            return False
        try:
            remove(log_dir, failed.name)
        except OSError as error:
            if note_of(log_dir, failed.name) is not None:
                raise
            # If this commit failed here, its job would be run again and find no note.
            logger.warning("%s: its note may come back after a power failure: %s", failed.name, error)
        unmark(log_dir, failed)
    return True


def _publish(log_dir: str, note: Commit, patience: Patience, progress: Progress | None) -> None:
    """Publish what is not yet of a commit; where another process has gone on with it meanwhile, that has to have published all.

    Raises
    ------
    LogDirError
        Another process has taken it back or forgotten it; and as for :func:`commit`.
    LogLockedError
        Another process works on it, or on a partition.
    """
    try:
        ends = _move_all(log_dir, note, patience, progress)
    except Superseded:
        _check_done(log_dir, note)
        return
    except FileNotFoundError as error:
        if not is_same_work(note, note_of(log_dir, note.name)):
            _check_done(log_dir, note)
            return
        message = f"staged records that {note.name!r} is to publish are gone: {error.filename} ({error.strerror})"
        raise LogDirError(message, path=log_dir) from error
    if not _done(log_dir, note, ends):
        _check_done(log_dir, note)


def _check_done(log_dir: str, note: Commit) -> None:
    now = note_of(log_dir, note.name)
    if is_done(log_dir, note, now):
        return
    if now is None:
        message = f"another process has taken back or forgotten the commit of {note.name!r}"
        raise LogDirError(message, path=log_dir)
    raise _at_work(log_dir, now)


def _move_all(log_dir: str, note: Commit, patience: Patience, progress: Progress | None) -> list[int]:
    """Publish what is not yet, several partitions at a time, and return where the logs end."""
    with _wanted(log_dir, note) as still:
        return _move_each(note, still, patience, progress)


@contextmanager
def _wanted(log_dir: str, note: Commit) -> Iterator[Callable[[], None]]:
    """Give what raises :class:`Superseded` as soon as the note is no longer as it is here."""
    with standing(log_dir, note) as is_wanted:

        def still() -> None:
            if not is_wanted():
                raise Superseded

        yield still


def _move_each(note: Commit, still: Callable[[], None], patience: Patience, progress: Progress | None) -> list[int]:
    ends: list[int] = []
    moved: list[tuple[CommitTarget, Future[int]]] = []
    failed = threading.Event()
    with ThreadPoolExecutor(PARTITIONS_AT_ONCE, "offsetlog-commit") as pool:
        try:
            moved.extend(
                (target, pool.submit(move_to, note, target, still=still, patience=patience, failed=failed)) for target in note.targets
            )
            for target, end in moved:
                ends.append(end.result())
                if progress is not None:
                    progress(target.directory, len(ends), len(moved))
        except BaseException as failure:
            # Work that was begun is completed, but waits for nobody; the next commit finishes the rest.
            failed.set()
            pool.shutdown(cancel_futures=True)
            for target, end in moved:
                other = None if end.cancelled() else end.exception()
                if other is not None and other is not failure:
                    logger.warning("%s could not be published either: %s", target.name, other)
            raise
    return ends


def _done(log_dir: str, note: Commit, ends: Sequence[int]) -> bool:
    """Note that all is published; return ``False`` where somebody else has finished it, and may have gone on under the name."""
    with locked(log_dir):
        now = note_of(log_dir, note.name)
        if now is None or not is_same_work(note, now):
            return False
        if now.keep or now.has_failed:
            published = [target._replace(staged=(), end=end) for target, end in zip(note.targets, ends, strict=True)]
            write(log_dir, now._replace(is_published=True, targets=tuple(published)))
        else:
            try:
                remove(log_dir, note.name)
            except OSError as error:
                # All is published: the next commit finds that, and tries again.
                logger.warning("%s is published, but its note may stay: %s", note.name, error)
                return True
            unmark(log_dir, note)
    _discard(note)
    return True


def _discard(note: Commit) -> None:
    for target in note.targets:
        discard(Staged("", 0, target.directory, path, 0, 0, 0, 0, 0) for path in target.staged)


def _told(log_dir: str, note: Commit, error: Exception, *, is_noted: bool) -> bool:
    """Say with the error of a commit what became of it; take back what a job without a name has published.

    Returns whether all is published in spite of it: somebody else has finished it.
    """
    if note.keep and not isinstance(error, ClusterError):
        text = "what is not published yet follows when the job runs again, or with the next write to this log dir; each record once"
    else:
        begun = threading.Event()
        text = "nothing of it is published"
        try:
            now = note_of(log_dir, note.name)
            if is_noted and is_done(log_dir, note, now):
                return True
            if now is not None:
                # It is there even if writing it raised.
                is_noted = True
                if not undo(log_dir, note, Patience(0.0), begun):
                    now = note_of(log_dir, note.name)
                    if is_done(log_dir, note, now):
                        return True
                    if now is not None:
                        text = "another process has gone on under its name"
        except Exception as failure:  # noqa: BLE001  # whatever it was, the first error is the one to raise
            fate = _fate(log_dir, note, is_noted=is_noted, has_begun=begun.is_set())
            if fate is Fate.PUBLISHED:
                return True
            if fate is not Fate.GONE:
                is_undoing = fate is Fate.UNDOING
                follows = "what is published of it is taken back" if is_undoing else "a part of it is published, the rest follows"
                text = f"{follows} with the next write to this log dir ({failure})"
    if is_noted and is_let_go(log_dir, note):
        text = "somebody let it go: what was published of it until then stays, and is there twice if the job runs again"
    error.add_note(f"the commit of {note.name!r}, {summary(note)}, stopped: {text}")
    logger.warning("%s: %s: %s", note.name, text, error)
    return False


def _as_given(log_dir: str, note: Commit, metadata: str | None, *, single_replica: bool) -> Commit:
    """Let a commit that stopped half-way continue as its job says now: in spite of other replicas, or where the metadata is."""
    lets_already = note.single_replica or not single_replica
    if lets_already and note.metadata == metadata_now(note.metadata, metadata):
        return note
    with locked(log_dir):
        now = note_of(log_dir, note.name)
        if now is None or not is_same_work(note, now):
            return note
        now = now._replace(single_replica=now.single_replica or single_replica, metadata=metadata_now(now.metadata, metadata))
        write(log_dir, now)
    return now


def _fate(log_dir: str, note: Commit, *, is_noted: bool, has_begun: bool) -> Fate:
    """Look again at a commit that could not be taken back; record that a job without a name got that error.

    Such a job is recognised by the note when it is run again. A name is recognised anyway.
    """
    try:
        with locked(log_dir):
            now = note_of(log_dir, note.name)
            # Nobody publishes a commit whose note says «undoing», or that has none.
            if is_noted and not has_begun and is_done(log_dir, note, now):
                return Fate.PUBLISHED
            if now is None:
                return Fate.GONE
            if now.is_undoing:
                return Fate.UNDOING
            if not now.keep and not (now == note and _is_put(log_dir, note)):
                write(log_dir, now._replace(has_failed=True))
    except (OSError, MetadataFileError) as error:
        logger.warning("%s: that it failed could not be noted: %s", note.name, error)
    return Fate.UNFINISHED


def _is_put(log_dir: str, note: Commit) -> bool:
    try:
        return put_ready(log_dir, note.name)
    except OSError as error:
        logger.warning("%s: the note made ready cannot be used, another one is written: %s", note.name, error)
        return False
