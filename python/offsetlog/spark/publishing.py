"""How staged records become part of their logs, each once, whatever dies in between.

A journal in the log dir, one small file for each name of a job, says what a commit is about to do before it does anything, and that it
is done afterwards. A commit that died in between is finished by whoever uses the name next, and by the next commit of any name on the
log dir: the journal names the staged logs and where each log ended, and the batches that are there already are found by their
checksums. Before the journal is written nothing is published; what was staged then is nobody's.

Order: tasks close their staged logs (durable) - journal «publishing» (durable) - batches moved, several partitions at once, each log
flushed - journal «published» (durable) - staged logs removed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog import Log
from offsetlog.errors import LogDirError, LogLockedError, MetadataFileError, UnexpectedAppendOffsetError
from offsetlog.spark.staging import Staged, discard

__all__ = ["Journal", "commit", "finish", "forget", "journal_of", "journals"]

logger = logging.getLogger("offsetlog")

VERSION = 0
PREFIX = "offsetlog-commit-"
# Copying and syncing of one partition go on while another one's wait for the disk.
PARTITIONS_AT_ONCE = 4
# Where a batch of magic 2 has its checksum, which covers all but its offset and epoch.
CRC = slice(17, 21)

Progress = Callable[[str, int, int], None]


class Target(NamedTuple):
    """A partition of a commit: its directory, where its log ended before, and the staged logs in their order."""

    topic: str
    partition: int
    directory: str
    start: int
    records: int
    batches: int
    size_bytes: int
    tasks: int
    """How many tasks gave the records."""
    staged: tuple[str, ...]
    """Relative to the directory; empty when all is published."""
    end: int = -1
    """Where the log ended when all was published."""


class Journal(NamedTuple):
    """What a commit is about to do, or did last under its name."""

    name: str
    sequence: int | None
    """Number of the micro-batch; ``None`` for a batch job, which has one commit."""
    is_published: bool
    preserve_offsets: bool
    keep: bool
    """Whether the file stays when all is published, as the name may come again."""
    targets: tuple[Target, ...]

    @property
    def file_name(self) -> str:
        """Name of the file."""
        return _file_name(self.name)

    def covers(self, sequence: int | None) -> bool:
        """Whether what is to be committed under the name is published already."""
        return self.is_published and (self.sequence is None or (sequence is not None and sequence <= self.sequence))


def _file_name(name: str) -> str:
    # Names of jobs may hold anything.
    return f"{PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:24]}.json"


def commit(
    log_dir: str,
    name: str,
    sequence: int | None,
    staged: Sequence[Staged],
    *,
    preserve_offsets: bool = False,
    keep: bool = True,
    lock_seconds: float = 60.0,
    progress: Progress | None = None,
) -> bool:
    """Publish staged logs, each record once, and return whether that was done now.

    Parameters
    ----------
    log_dir
        Where the journal is kept: one of the log dirs, always the same.
    name, sequence
        What is committed. Under a name, a commit that was done (of a lower or the same sequence) is not done again: what is staged is
        dropped.
    staged
        In the order in which they are to stand in each log.
    preserve_offsets
        Records keep the offsets that they are staged with.
    keep
        Whether the name may come again: its journal stays.
    lock_seconds
        How long to wait for a partition that somebody else writes.
    progress
        Called with a partition's directory, and how many of how many are published, in the order in which they are staged.

    Raises
    ------
    UnexpectedAppendOffsetError
        With `preserve_offsets`, offsets that overlap, or lie below the end of their log: nothing is published.
    LogLockedError, OSError
        A partition could not be written. The commit is finished by the next one.
    """
    before = journal_of(log_dir, name)
    if before is not None and not before.is_published:
        _finish(log_dir, before, lock_seconds, progress)
        before = before._replace(is_published=True)
    if before is not None and before.covers(sequence):
        logger.info("%s: %s is published already, what was staged again is dropped", name, "it" if sequence is None else sequence)
        discard(staged)
        return False
    targets = _targets(staged, preserve_offsets)
    journal = Journal(name, sequence, is_published=False, preserve_offsets=preserve_offsets, keep=keep, targets=targets)
    _write(log_dir, journal)
    _publish(log_dir, journal, lock_seconds, progress)
    return True


def finish(log_dir: str, *, lock_seconds: float = 60.0, progress: Progress | None = None) -> list[str]:
    """Finish the commits that died half-way, and return their names.

    Raises
    ------
    LogLockedError, OSError
        As for :func:`commit`.
    """
    names = []
    for journal in journals(log_dir):
        if not journal.is_published:
            _finish(log_dir, journal, lock_seconds, progress)
            names.append(journal.name)
    return names


def journals(log_dir: str) -> Iterator[Journal]:
    """Yield the journals of a log dir.

    Raises
    ------
    MetadataFileError
        A journal cannot be read.
    """
    for path in sorted(Path(log_dir).glob(f"{PREFIX}*.json")):
        yield _parsed(path)


def forget(log_dir: str, name: str) -> None:
    """Remove the journal of a name that does not come again."""
    Path(log_dir, _file_name(name)).unlink(missing_ok=True)
    _sync(log_dir)


def _finish(log_dir: str, journal: Journal, lock_seconds: float, progress: Progress | None) -> None:
    logger.warning("%s: its commit died half-way and is finished now", journal.name)
    _publish(log_dir, journal, lock_seconds, progress)


def _targets(staged: Sequence[Staged], preserve_offsets: bool) -> tuple[Target, ...]:
    by_directory: dict[str, list[Staged]] = {}
    for each in staged:
        by_directory.setdefault(each.directory, []).append(each)
    targets = []
    for directory, of_log in sorted(by_directory.items()):
        with Log.open(directory) as log:
            start = log.log_end_offset
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
        place = of_log[0].topic, of_log[0].partition, directory
        targets.append(Target(*place, start, records, batches, size_bytes, len(paths), paths))
    return tuple(targets)


def _publish(log_dir: str, journal: Journal, lock_seconds: float, progress: Progress | None) -> None:
    try:
        ends = _move_all(journal, lock_seconds, progress)
    except FileNotFoundError as error:
        now = journal_of(log_dir, journal.name)
        if now is None or now != journal:
            # Somebody else has finished it meanwhile.
            return
        message = (
            f"staged records that {journal.name!r} is to publish are gone ({error.filename}); if they were removed on purpose, remove "
            f"the note of its commit too: {Path(log_dir, journal.file_name)}"
        )
        raise LogDirError(message, path=log_dir) from error
    _done(log_dir, journal, ends)


def _move_all(journal: Journal, lock_seconds: float, progress: Progress | None) -> list[int]:
    """Publish what is not yet, several partitions at a time, and return where the logs end."""
    ends: list[int] = []
    moved: list[tuple[Target, Future[int]]] = []
    failed = threading.Event()
    with ThreadPoolExecutor(PARTITIONS_AT_ONCE, "offsetlog-commit") as pool:
        try:
            terms = lock_seconds, failed, journal.preserve_offsets
            moved.extend((target, pool.submit(_move_to, target, *terms)) for target in journal.targets)
            for target, end in moved:
                ends.append(end.result())
                if progress is not None:
                    progress(target.directory, len(ends), len(moved))
        except BaseException as failure:
            # What was begun goes on to its end, but waits for nobody; the next commit finishes the rest.
            failed.set()
            pool.shutdown(cancel_futures=True)
            for target, end in moved:
                other = None if end.cancelled() else end.exception()
                if other is not None and other is not failure:
                    logger.warning("%s-%d could not be published either: %s", target.topic, target.partition, other)
            raise
    return ends


def _move_to(target: Target, lock_seconds: float, failed: threading.Event, preserve_offsets: bool) -> int:
    """Publish what is not yet of a partition, and return where its log ends."""
    with _locked(target.directory, lock_seconds, failed) as log:
        # Where nobody has appended since, nothing of this is there.
        skip = 0 if log.log_end_offset == target.start else _there(log, target, preserve_offsets)
        for path in target.staged:
            skip = _move(log, Path(target.directory, path), skip, preserve_offsets)
        log.flush()
        return log.log_end_offset


def _locked(directory: str, seconds: float, failed: threading.Event) -> Log:
    """Open a log for appending, waiting for who else writes it unless all is in vain."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return Log.open(directory, "a")
        except LogLockedError:
            if time.monotonic() >= deadline or failed.wait(0.1):
                raise


def _move(log: Log, path: Path, skip: int, preserve_offsets: bool) -> int:
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


def _there(log: Log, target: Target, preserve_offsets: bool) -> int:
    """Return how many of the batches, the first ones, a commit that died has published.

    Somebody else may have appended since: ours stand in their order among others, each known by its size and checksum. What was
    deleted since from the start of the log was published.
    """
    expected = [fingerprint for path in target.staged for fingerprint in _fingerprints(Path(target.directory, path))]
    if preserve_offsets:
        return sum(last < log.log_end_offset for _, _, last in expected)
    count = 0
    deleted = log.log_start_offset - target.start
    if deleted > 0:
        published = 0
        for _, _, last in _numbered(expected):
            published += last < deleted
        count = published
    with Log.open(target.directory) as reader:
        start = max(target.start, reader.log_start_offset)
        for batch in reader.batches(start):
            if count == len(expected):
                break
            size, crc, _ = expected[count]
            if batch.size_bytes == size and _crc(reader, batch.base_offset) == crc:
                count += 1
    return count


def _numbered(expected: Iterable[tuple[int, bytes, int]]) -> Iterator[tuple[int, bytes, int]]:
    """Count offsets through staged logs, each of which begins anew at 0."""
    shift, before = 0, -1
    for size, crc, last in expected:
        if last <= before:
            shift += before + 1
        before = last
        yield size, crc, shift + last


def _fingerprints(path: Path) -> Iterator[tuple[int, bytes, int]]:
    """Yield size, checksum and last offset of a staged log's batches."""
    with Log.open(path) as log:
        for batch in log.batches():
            yield batch.size_bytes, _crc(log, batch.base_offset), batch.last_offset


def _crc(log: Log, base_offset: int) -> bytes:
    return log.fetch(base_offset, max_bytes=1).records[CRC]


def _done(log_dir: str, journal: Journal, ends: Sequence[int]) -> None:
    if journal.keep:
        published = [target._replace(staged=(), end=end) for target, end in zip(journal.targets, ends, strict=True)]
        _write(log_dir, journal._replace(is_published=True, targets=tuple(published)))
    else:
        forget(log_dir, journal.name)
    for target in journal.targets:
        discard(Staged("", 0, target.directory, path, 0, 0, 0, 0, 0) for path in target.staged)


def journal_of(log_dir: str, name: str) -> Journal | None:
    """Return the journal of a name, if there is one.

    Raises
    ------
    MetadataFileError
        It cannot be read.
    """
    path = Path(log_dir, _file_name(name))
    return _parsed(path) if path.exists() else None


def _parsed(path: Path) -> Journal:
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        if fields["version"] != VERSION:
            message = f"version {fields['version']!r} found, {VERSION} expected"
            raise MetadataFileError(message, path=str(path))
        targets = tuple(
            Target(
                str(each["topic"]),
                int(each["partition"]),
                str(each["directory"]),
                int(each["start"]),
                int(each["records"]),
                int(each["batches"]),
                int(each["size_bytes"]),
                int(each["tasks"]),
                tuple(map(str, each["staged"])),
                int(each["end"]),
            )
            for each in fields["targets"]
        )
        sequence = fields["sequence"]
        return Journal(
            str(fields["name"]),
            None if sequence is None else int(sequence),
            is_published=bool(fields["published"]),
            preserve_offsets=bool(fields["preserve_offsets"]),
            keep=bool(fields["keep"]),
            targets=targets,
        )
    except (ValueError, KeyError, TypeError) as error:
        message = f"the journal of a commit cannot be read ({error}); it says which staged records are published"
        raise MetadataFileError(message, path=str(path)) from error


def _write(log_dir: str, journal: Journal) -> None:
    fields = {
        "version": VERSION,
        "name": journal.name,
        "sequence": journal.sequence,
        "published": journal.is_published,
        "preserve_offsets": journal.preserve_offsets,
        "keep": journal.keep,
        "targets": [target._asdict() for target in journal.targets],
    }
    path = Path(log_dir, journal.file_name)
    aside = path.with_suffix(".tmp")
    with aside.open("wb") as file:
        file.write(json.dumps(fields).encode())
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    _sync(log_dir)


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
