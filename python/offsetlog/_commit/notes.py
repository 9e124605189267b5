"""Notes of commits: the small files of a log dir that say what a write of several partitions has published, or is about to.

A note is one file, ``offsetlog-commit-….json``, which brokers leave alone. It is written before the first record of a commit is
published, and again when the last one is; how records are published is described in :mod:`offsetlog._commit.publishing`. The form
of the file is known here and nowhere else.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog._commit.looks import is_folder, is_same, is_there, named
from offsetlog._notebook import report_table
from offsetlog.errors import MetadataFileError

__all__ = ["Commit", "CommitTarget"]

logger = logging.getLogger("offsetlog")

VERSION = 1
# Notes of version 0 have no contents, topic ids and marks.
VERSIONS = (0, VERSION)
PREFIX = "offsetlog-commit-"
LOCK = "offsetlog-commits.lock"
# Ends the name of a note that waits beside the current one.
READY = ".ready"
# In each log dir in which something was published.
LOG_DIR_ID = "offsetlog-log-dir.id"
# Of so many micro-batches a note knows what they had: as many as Spark keeps in a checkpoint.
KEPT = 100


class CommitTarget(NamedTuple):
    """What a commit adds to one partition."""

    topic: str
    partition: int
    directory: str
    """The partition's directory."""
    start: int
    """Where the log ended before."""
    records: int
    batches: int
    size_bytes: int
    tasks: int
    """How many tasks gave the records."""
    staged: tuple[str, ...]
    """The logs that records are published from, in their order, relative to the directory; empty when all is published."""
    end: int = -1
    """Where the log ended when all was published; -1 until then."""
    topic_id: str | None = None
    """The topic's id; ``None`` where it has none, and in notes of version 0."""
    marks: tuple[tuple[int, str], ...] = ()
    """Of each staged log how many batches it has and a digest of their sizes and checksums; none in notes of version 0."""
    log_dir_id: str | None = None
    """The id of the log dir, by which it is known again: of a disk that is not mounted only an empty folder is there. ``None`` in
    notes of earlier versions."""
    is_beside: bool | None = None
    """Whether the partition lies in the log dir that has the note; ``None`` in notes of earlier versions."""

    @property
    def name(self) -> str:
        """The partition's name."""
        return f"{self.topic}-{self.partition}"


class Commit(NamedTuple):
    """A note: what a commit is about to publish, or has published last under its name."""

    name: str
    """``job`` and the ``transactionId`` of a batch job, ``query`` and the id of a stream."""
    sequence: int | None
    """Number of the micro-batch; ``None`` for a batch job, which has one commit."""
    is_published: bool
    """Whether all is published. Else the commit failed or died, or is at work."""
    preserve_offsets: bool
    keep: bool
    """Whether the note is kept when all is published, because the name may be used again."""
    targets: tuple[CommitTarget, ...]
    time: int = -1
    """When it was noted what is to be published, in ms since 1970."""
    contents: tuple[tuple[str, int, str], ...] | None = None
    """For each topic the number of records and a digest of them that knows no order; ``None`` in notes of version 0."""
    is_undoing: bool = False
    """Whether what was published is being taken back, as the rest cannot be published."""
    has_failed: bool = False
    """Whether a job without a name failed with an error, though its published records could not be taken back."""
    single_replica: bool = False
    """Whether partitions with other replicas are written all the same."""
    metadata: str | None = None
    """The log dir with the cluster's metadata, among those that the job was given; ``None`` where none of them has it."""
    log_dirs: tuple[str, ...] = ()
    """The log dirs that the job was given, if they are several; none in notes of earlier versions."""
    plan: str | None = None
    """Of a micro-batch, what tells it from every other one that Spark ever planned; ``None`` where that is not known."""
    earlier: tuple[tuple[int, str, str | None], ...] = ()
    """The micro-batches published before, the last one first: number, digest of the contents, plan. At most 100."""

    @property
    def file_name(self) -> str:
        """Name of the file."""
        return note_name(self.name)

    @property
    def records(self) -> int:
        """Records of all partitions."""
        return sum(target.records for target in self.targets)

    def covers(self, sequence: int | None) -> bool:
        """Whether what is to be committed under the name is published already."""
        return self.is_published and (self.sequence is None or (sequence is not None and sequence <= self.sequence))

    def _repr_html_(self) -> str:
        return report_table(self)


def digest_of(contents: Sequence[tuple[str, int, str]]) -> str:
    """Return what contents are known by when no more is kept of them."""
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()[:32]


def history_of(note: Commit) -> tuple[tuple[int, str, str | None], ...]:
    """Return what is known of micro-batches: the one of a note, if its contents are, and those before it."""
    if note.sequence is None or note.contents is None:
        return note.earlier
    return ((note.sequence, digest_of(note.contents), note.plan), *note.earlier)


def note_name(name: str) -> str:
    """Return the name of the file that has a commit's note."""
    # Names of jobs may hold anything.
    return f"{PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:24]}.json"


@contextmanager
def locked(log_dir: str) -> Iterator[None]:
    """Keep others from changing notes meanwhile: programs and threads. For the moment of a change, never while records move."""
    descriptor = os.open(Path(log_dir, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def notes(log_dir: str) -> Iterator[Commit | MetadataFileError]:
    """Yield the notes of a log dir, or why one cannot be read.

    Raises
    ------
    OSError
        Which there are cannot be seen. That is no answer.
    """
    for path in named(log_dir, f"{PREFIX}*.json"):
        try:
            found = _parsed(path)
        except MetadataFileError as error:
            yield error
            continue
        # One that has gone since was finished by its owner.
        if found is None:
            continue
        if path.name != found.file_name:
            # Under its name it would be looked for in vain again and again.
            yield MetadataFileError(f"a copy of the note of {found.name!r} found, which is named {found.file_name}", path=str(path))
            continue
        yield found


def readable(log_dir: str) -> Iterator[Commit]:
    """Yield the notes that can be read. One that cannot concerns its own name alone."""
    for found in notes(log_dir):
        if isinstance(found, MetadataFileError):
            logger.warning("a commit that may have stopped half-way is not looked at: %s", found)
        else:
            yield found


def needed_jobs(log_dirs: Iterable[str]) -> set[str] | None:
    """Return the jobs whose staged logs unfinished commits are still to publish; ``None`` where a note cannot be read."""
    waiting = []
    try:
        all_notes = [note for log_dir in log_dirs for note in notes(log_dir)]
    except OSError as error:
        logger.warning("nothing staged is removed: %s", error)
        return None
    for found in all_notes:
        if isinstance(found, MetadataFileError):
            logger.warning("nothing staged is removed: %s", found)
            return None
        if not found.is_published:
            waiting.append(found)
    return {job for note in waiting for job in jobs_of(note)}


def jobs_of(note: Commit) -> set[str]:
    """Return the jobs that staged what a commit is still to publish, by their staging folders."""
    return {path.split("/")[1] for target in note.targets for path in target.staged}


def note_of(log_dir: str, name: str) -> Commit | None:
    """Return the note of a name, if there is one.

    Raises
    ------
    MetadataFileError
        It cannot be read.
    """
    return _parsed(Path(log_dir, note_name(name)))


def is_same_work(note: Commit, now: Commit | None) -> bool:
    """Whether the note that is there now wants the same as `note`: that its job failed, or said more of replicas, is no other work."""
    if now is None:
        return False
    return now._replace(has_failed=note.has_failed, single_replica=note.single_replica, metadata=note.metadata) == note


@contextmanager
def standing(log_dir: str, note: Commit) -> Iterator[Callable[[], bool]]:
    """Give what tells, again and again, whether a note is still as it is here.

    It is read once and known again as the file that it is, which is open meanwhile: a note is never changed, but replaced. A commit
    into thousands of partitions asks twice for each of them, and its note is as long as they are many.
    """
    path = Path(log_dir, note.file_name)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield lambda: False
        return
    with file:
        is_it = is_same_work(note, _parse(path, file.read()))
        opened = os.fstat(file.fileno())

        def is_same() -> bool:
            try:
                if os.path.samestat(opened, path.stat()):
                    return is_it
            except FileNotFoundError:
                return False
            # It may say no more than that its job has failed meanwhile.
            return is_same_work(note, _parsed(path))

        yield is_same


def remove(log_dir: str, name: str) -> None:
    """Remove the note of a name that is not used again."""
    path = Path(log_dir, note_name(name))
    # Without its note nobody would remove it.
    path.with_suffix(READY).unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    sync(log_dir)


def write(log_dir: str, note: Commit) -> None:
    """Write a note, durable when this returns; in the place of the name's last one, whole or not at all."""
    path = Path(log_dir, note.file_name)
    _write(path.with_suffix(".tmp"), note, is_durable=True)
    _put(path.with_suffix(".tmp"), path)


def make_ready(log_dir: str, note: Commit) -> None:
    """Write a note that :func:`put_ready` can put in the place of the current one, however full the disk is by then."""
    _write(Path(log_dir, note.file_name).with_suffix(READY), note, is_durable=False)


def put_ready(log_dir: str, name: str) -> bool:
    """Put the note that was made ready in the place of the current one, durable when this returns. It needs no room.

    Returns ``False`` where none was made ready.
    """
    path = Path(log_dir, note_name(name))
    ready = path.with_suffix(READY)
    try:
        with ready.open("rb") as file:
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    _put(ready, path)
    return True


def sweep_ready(log_dir: str) -> None:
    """Remove what was made ready and has no note: its job died before it published anything, or could not write the note."""
    try:
        if named(log_dir, f"{PREFIX}*{READY}"):
            with locked(log_dir):
                for ready in named(log_dir, f"{PREFIX}*{READY}"):
                    _sweep(ready)
    except OSError as error:
        logger.warning("what was made ready for notes of commits is not looked through: %s", error)


def _sweep(ready: Path) -> None:
    try:
        if not is_there(ready.with_suffix(".json")):
            ready.unlink(missing_ok=True)
    except OSError as error:
        # It may be another user's.
        logger.warning("%s has no note and stays: %s", ready, error)


def _put(aside: Path, path: Path) -> None:
    try:
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    sync(str(path.parent))


def _write(path: Path, note: Commit, *, is_durable: bool) -> None:
    fields = {
        "version": VERSION,
        "name": note.name,
        "sequence": note.sequence,
        "published": note.is_published,
        "undoing": note.is_undoing,
        "failed": note.has_failed,
        "preserve_offsets": note.preserve_offsets,
        "keep": note.keep,
        "time": note.time,
        "contents": note.contents,
        "targets": [target._asdict() for target in note.targets],
        # Of few: others keep their form.
        **({"single_replica": True} if note.single_replica else {}),
        **({} if note.metadata is None else {"metadata": note.metadata}),
        **({"log_dirs": note.log_dirs} if note.log_dirs else {}),
        **({} if note.plan is None else {"plan": note.plan}),
        **({"earlier": note.earlier} if note.earlier else {}),
    }
    try:
        with path.open("wb") as file:
            file.write(json.dumps(fields).encode())
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def sync(folder: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def id_of_log_dir(log_dir: str) -> str | None:
    """Return the id by which a log dir is known again; ``None`` where it has none."""
    try:
        with Path(log_dir, LOG_DIR_ID).open("rb") as file:
            return _parsed_id(file.read(64))
    except (FileNotFoundError, NotADirectoryError):
        return None


def make_id_of_log_dir(log_dir: str) -> str:
    """Return the id of a log dir, which gets one where it has none; durable when this returns. It moves with the log dir."""
    if (found := id_of_log_dir(log_dir)) is not None:
        return found
    with locked(log_dir):
        if (found := id_of_log_dir(log_dir)) is not None:
            return found
        path, made = Path(log_dir, LOG_DIR_ID), uuid.uuid4().hex
        aside = path.with_suffix(".tmp")
        try:
            with aside.open("wb") as file:
                file.write(f"{made}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise
        _put(aside, path)
        return made


def _parsed_id(text: bytes) -> str | None:
    found = re.fullmatch(rb"([0-9a-f]{32})\n", text)
    return None if found is None else found[1].decode()


def now_ms() -> int:
    """Return the time, in ms since 1970."""
    return time.time_ns() // 1_000_000


def _text(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _parsed(path: Path) -> Commit | None:
    text = _text(path)
    return None if text is None else _parse(path, text)


def _changed(path: Path) -> int:
    """Return when a note without a time was written, in ms since 1970; 0 if it was removed since."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0


def _parse(path: Path, text: bytes) -> Commit:
    try:
        fields: dict[str, Any] = json.loads(text)
        version = fields["version"]
        if version not in VERSIONS:
            message = f"version {version!r} found, {' or '.join(map(str, VERSIONS))} expected: a newer offsetlog wrote this note"
            raise MetadataFileError(message, path=str(path))
        contents, sequence = fields.get("contents"), fields["sequence"]
        return Commit(
            str(fields["name"]),
            None if sequence is None else int(sequence),
            is_published=bool(fields["published"]),
            preserve_offsets=bool(fields["preserve_offsets"]),
            keep=bool(fields["keep"]),
            targets=tuple(_target(path.parent, each) for each in fields["targets"]),
            time=int(fields["time"]) if "time" in fields else _changed(path),
            contents=None if contents is None else tuple((str(topic), int(count), str(digest)) for topic, count, digest in contents),
            is_undoing=bool(fields.get("undoing", False)),
            # Means nothing for a name that may be used again; older versions recorded it there all the same.
            has_failed=bool(fields.get("failed", False)) and not fields["keep"],
            single_replica=bool(fields.get("single_replica", False)),
            metadata=None if fields.get("metadata") is None else str(fields["metadata"]),
            log_dirs=tuple(map(str, fields.get("log_dirs", ()))),
            plan=None if fields.get("plan") is None else str(fields["plan"]),
            earlier=tuple(
                (int(number), str(digest), None if plan is None else str(plan)) for number, digest, plan in fields.get("earlier", ())
            ),
        )
    except (ValueError, KeyError, TypeError) as error:
        message = f"the note of a commit cannot be read ({error}); it says which staged records are published"
        raise MetadataFileError(message, path=str(path)) from error


def _target(log_dir: Path, fields: dict[str, Any]) -> CommitTarget:
    directory = str(fields["directory"])
    is_beside = None if fields.get("is_beside") is None else bool(fields["is_beside"])
    beside = log_dir / Path(directory).name
    # The log dir may have been moved or copied, or was named from another working directory: the note is of the one that it lies in.
    if is_beside and not is_same(Path(directory).parent, log_dir):
        directory = str(beside)
    if is_beside is None and is_folder(beside) and not is_same(beside, directory):
        directory = str(beside)
    # Or a broker has moved the partition there.
    if is_beside is False and not is_there(directory) and any(is_folder(beside / path) for path in fields["staged"]):
        directory = str(beside)
    topic_id = fields.get("topic_id")
    return CommitTarget(
        str(fields["topic"]),
        int(fields["partition"]),
        directory,
        int(fields["start"]),
        int(fields["records"]),
        int(fields["batches"]),
        int(fields["size_bytes"]),
        int(fields["tasks"]),
        tuple(map(str, fields["staged"])),
        int(fields["end"]),
        None if topic_id is None else str(topic_id),
        tuple((int(batches), str(digest)) for batches, digest in fields.get("marks", ())),
        None if fields.get("log_dir_id") is None else str(fields["log_dir_id"]),
        is_beside,
    )
