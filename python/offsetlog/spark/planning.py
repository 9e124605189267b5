"""From settings to tasks: which partitions, from which offset to which, cut and packed for Spark.

Runs on the driver (in a process of its own that PySpark starts there), once for each query. The result is plain values: ranges of
offsets that tile what was asked for exactly, so a retried task reads the same records again.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from offsetlog import Log, LogDir, Split, TopicPartition, folder_kind
from offsetlog.errors import LogDirError, OffsetOutOfRangeError
from offsetlog.spark.filters import Pushed
from offsetlog.spark.given import refuse_pattern
from offsetlog.spark.options import EARLIEST, LATEST, LONG_MAX, Limit, Settings, Topics, partition_names
from offsetlog.spark.pattern import java_pattern
from offsetlog.spark.planned import Planned, topic_id_of
from offsetlog.spark.refusal import refuse, shown

__all__ = [
    "Listing",
    "Range",
    "check_names",
    "check_paths",
    "is_partition_directory",
    "limit_offset",
    "plan",
    "ranges",
    "readable_range",
    "tasks",
]

logger = logging.getLogger("offsetlog")

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""Topics that a pattern does not find, as with a consumer."""

MIN_TASK_BYTES = 4 << 20
"""A smaller task is not worth its start, unless a slot would be idle."""
MAX_TASK_BYTES = 1 << 30
"""By default no task reads much more, which bounds the cost of a lost task. Not less: PySpark needs 90 ms of CPU to begin one."""
MAX_GUESSED_TASK_BYTES = 512 << 20
"""The same for what does not fit into one task a slot where the slots are a guess: a cluster may have many more of them."""
PIECES = 4
"""The share of a task is cut into so many, which can be packed evenly."""
OPEN_COST_BYTES = 64 << 10
"""What opening a partition weighs beside reading it, so that many small ones are spread."""


class Range(NamedTuple):
    """Offsets of one partition that are to be read."""

    log: Log
    start: int
    """Inclusive."""
    stop: int
    """Exclusive."""


def is_partition_directory(path: str) -> bool:
    """Whether `path` is one partition's directory, by what it holds: a log dir may be named ``log-dir-1``."""
    return folder_kind(path) == "partition"


def check_paths(settings: Settings) -> None:
    """Check that the folders are there, and that it is said what to read of them. Cheap: one look at each folder.

    Raises
    ------
    OSError
        A folder is not there or cannot be read.
    LogDirError
        A folder is the one around log dirs.
    ConfigError
        The path is a log dir and none of ``assign``, ``subscribe`` and ``subscribePattern`` is given.
    """
    for path in settings.paths:
        if not os.path.isdir(path):
            if not os.path.exists(path):
                refuse_pattern(path)
            code = errno.ENOTDIR if os.path.exists(path) else errno.ENOENT
            raise OSError(code, f"option path: {os.strerror(code)}", path)
        if folder_kind(path) == "around_log_dirs":
            # It says which paths work.
            LogDir.open(path, "r", **settings.limits).close()
    if settings.topics is None and not all(map(is_partition_directory, settings.paths)):
        refuse(
            "subscribe",
            "",
            "exactly one of assign, subscribe and subscribePattern must be given to read a log dir, found none; "
            "subscribePattern = .* reads every topic",
        )


def plan(settings: Settings, pushed: Pushed | None = None, slots: int | None = None) -> list[tuple[Planned, ...]]:
    """Return the tasks: for each the ranges that it reads, in order of topic, partition and offset.

    Parameters
    ----------
    settings
        What was asked for.
    pushed
        What Spark's filters leave of it.
    slots
        How many tasks run at once; ``None`` is the option ``taskSlots``, and without it the CPUs of this machine.

    Raises
    ------
    ConfigError
        A topic is not there, offsets or times do not name exactly the partitions that are read, a start lies behind its end, or no
        record is at or after a starting time.
    OffsetOutOfRangeError
        Offsets asked for are gone, and ``failOnDataLoss`` is on.
    OSError, OffsetLogError
        A folder or a file cannot be read.
    """
    return tasks(list(ranges(settings, pushed or Pushed())), settings, slots)


def tasks(found: list[Range], settings: Settings, slots: int | None = None) -> list[tuple[Planned, ...]]:
    """Cut ranges as the options ask, and put them into tasks; `slots` as for :func:`plan`."""
    there = Slots.of(settings.task_slots or slots)
    logs = {os.path.abspath(span.log.path): (span.log, topic_id_of(span.log)) for span in found}
    packed = pack(_pieces(found, settings, there), settings, there)
    return [tuple(Planned.of(split, *logs[os.path.abspath(split.path)]) for split in task) for task in packed]


def ranges(settings: Settings, pushed: Pushed) -> Iterator[Range]:
    """Yield what is to be read of each partition, without the empty ones."""
    check_paths(settings)
    listing = Listing(settings)
    chosen = listing.chosen()
    for limit in (settings.start, settings.end):
        check_names(limit, chosen)
    for partition in chosen:
        if not pushed.admits(*partition):
            continue
        try:
            log = listing.log(partition)
            start, stop = _bounds(settings, partition, log)
            start = max(start, _first_at(log, pushed.start_timestamp, stop))
        except FileNotFoundError:
            if settings.fail_on_data_loss:
                raise
            logger.warning("%s-%d is gone; left out, as failOnDataLoss is false", *partition)
            continue
        start, stop = max(start, pushed.start), stop if pushed.stop is None else min(stop, pushed.stop)
        if start < stop:
            yield Range(log, start, stop)


class Listing:
    """The partitions below the paths: of one or several log dirs as one, or partition directories named one by one.

    Parameters
    ----------
    settings
        Which paths, and which of their partitions.
    warn
        What is called with (format, *arguments) about what is asked for and not there.
    """

    def __init__(self, settings: Settings, warn: Callable[..., None] = logger.warning) -> None:
        self._settings = settings
        self._warn = warn
        paths = [os.path.abspath(path) for path in settings.paths]
        self._log_dir = LogDir.open(paths, "r", **settings.limits)
        # Made once: this is asked for each partition.
        self._there = self._log_dir.topics()
        self._first: dict[str, Log] = {}
        self._ids: dict[str, tuple[str, str | None]] = {}
        self._checked: set[str] = set()

    def holds(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition, asked for or not."""
        return partition.partition in self._there.get(partition.topic, ())

    def log(self, partition: TopicPartition) -> Log:
        """Return the log of a partition: its newest valid replica.

        Raises
        ------
        LogDirError
            Its topic id is not that of another partition of the topic that was asked for before: a topic was deleted and created
            again, and a log dir that was away meanwhile still has partitions of the first.
        """
        log = self._log_dir.log(*partition)
        self._check_topic(log)
        return log

    def _check_topic(self, log: Log) -> None:
        """Refuse a log whose topic id is not that of the topic's logs before it: as the engine's scans do, for all tasks together."""
        if log.path in self._checked:
            return
        first = self._first.setdefault(log.topic, log)
        # An id is a file: it is read only if there is another partition to compare with.
        if first.path != log.path:
            known_path, known = self._ids.get(log.topic) or (first.path, topic_id_of(first))
            found = topic_id_of(log)
            if None not in (known, found) and known != found:
                message = (
                    f"of another topic of this name, as after a topic is deleted and created again: its topic id is {found}, and "
                    f"that of {known_path} is {known}, by partition.metadata. Give the log dirs, or assign the partitions, of one"
                )
                raise LogDirError(message, path=log.path)
            self._ids[log.topic] = (known_path, known) if found is None or known is not None else (log.path, found)
        self._checked.add(log.path)

    def chosen(self) -> list[TopicPartition]:
        """Return the partitions that are asked for and there, in order.

        Raises
        ------
        ConfigError
            A topic is not there, and ``failOnDataLoss`` is on.
        """
        there = self._there
        topics = self._settings.topics
        if topics is None:
            wanted = dict(there)
        elif topics.option == "subscribePattern":
            found = java_pattern(topics.value).search
            wanted = {topic: numbers for topic, numbers in there.items() if topic not in INTERNAL_TOPICS and found(topic)}
        else:
            wanted = {}
            for topic in topics.value:
                if topic in there:
                    wanted[topic] = there[topic]
                else:
                    self._missing_topic(topics, topic, there)
            if topics.option == "assign":
                wanted = {topic: self._assigned(topic, topics.value[topic], numbers) for topic, numbers in wanted.items()}
        return [TopicPartition(topic, number) for topic in sorted(wanted) for number in wanted[topic]]

    def _missing_topic(self, topics: Topics, topic: str, there: Iterable[str]) -> None:
        near = get_close_matches(topic, list(there), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        reason = f"topic {shown(topic)} is not in {', '.join(self._settings.paths)}{hint}"
        if self._settings.fail_on_data_loss:
            refuse(topics.option, topic, f"{reason} (failOnDataLoss = false reads what is there)")
        self._warn("option %s: %s; left out, as failOnDataLoss is false", topics.option, reason)

    def _assigned(self, topic: str, wanted: Iterable[int], there: Iterable[int]) -> list[int]:
        present = sorted(set(wanted) & set(there))
        missing = sorted(set(wanted) - set(there))
        if missing:
            self._warn("option assign: topic %r has no partition %s; left out", topic, ", ".join(map(str, missing)))
        return present


def check_names(limit: Limit, chosen: Iterable[TopicPartition]) -> None:
    """Refuse offsets or times that do not name exactly the partitions that are read."""
    if limit.kind not in ("offsets", "timestamps"):
        return
    assigned, named = set(chosen), set(limit.value)
    if assigned == named:
        return
    use = " (-2 is the earliest, -1 the latest)" if limit.kind == "offsets" else ""
    parts = []
    if assigned - named:
        parts.append(f"without {partition_names(assigned - named)}")
    if named - assigned:
        parts.append(f"with {partition_names(named - assigned)}, which is not read")
    refuse(limit.option, "", f"must name exactly the partitions that are read{use}, found {' and '.join(parts)}")


def _behind(settings: Settings, partition: TopicPartition, start: int, stop: int) -> None:
    refuse(
        settings.start.option,
        start,
        f"{partition.topic}-{partition.partition} would start at offset {start}, behind its end {stop} ({settings.end.option})",
    )


def _first_at(log: Log, when: int | None, stop: int) -> int:
    """Return the first offset that a record at or after a time can have; `stop` where there is none, and 0 without a time.

    Times are not in order, so behind it there may be earlier ones; before it there is none that is late enough.
    """
    if when is None:
        return 0
    found = log.offset_for_timestamp(when)
    return stop if found is None else found.offset


def readable_range(settings: Settings, log: Log) -> tuple[int, int, int]:
    """Return where a log starts, where reading ends for now, and where the log ends."""
    first, behind_last = log.log_start_offset, log.log_end_offset
    # What a reader may see ends here: earlier than the log does when a transaction is open.
    end = min(log.last_stable_offset, behind_last) if settings.isolation_level == "read_committed" else behind_last
    return first, max(end, first), behind_last


def _bounds(settings: Settings, partition: TopicPartition, log: Log) -> tuple[int, int]:
    """Return start and stop of one partition, within what the log holds."""
    first, end, behind_last = readable_range(settings, log)
    start = limit_offset(settings, settings.start, partition, log, (first, end))
    stop = limit_offset(settings, settings.end, partition, log, (first, end))
    if start > stop and settings.start.kind != "earliest":
        _behind(settings, partition, start, stop)
    _check_there(settings, partition, log, (start, stop), (first, behind_last))
    if settings.end.kind == "offsets" and end < stop <= behind_last:
        name = f"{partition.topic}-{partition.partition}"
        logger.warning("option %s: %s ends at its last stable offset %d for now, found %d", settings.end.option, name, end, stop)
    start, stop = (min(max(offset, first), end) for offset in (start, stop))
    return start, stop


def limit_offset(settings: Settings, limit: Limit, partition: TopicPartition, log: Log, there: tuple[int, int]) -> int:
    """Return the offset that a start or an end means in a partition that can be read within `there`."""
    first, end = there
    if limit.kind == "earliest":
        return first
    if limit.kind == "latest":
        return end
    number: int = limit.value if limit.kind == "timestamp" else limit.value[partition]
    if limit.kind == "offsets":
        return {EARLIEST: first, LATEST: end}.get(number, number)
    found = log.offset_for_timestamp(number, isolation_level=settings.isolation_level)
    if found is not None:
        return found.offset
    if limit is settings.start and settings.no_record == "error":
        name = f"{partition.topic}-{partition.partition}"
        refuse(
            limit.option,
            number,
            f"{name} has no record at or after {number} ms (startingOffsetsByTimestampStrategy = latest reads nothing of it)",
        )
    return end


def _check_there(settings: Settings, partition: TopicPartition, log: Log, wanted: tuple[int, int], there: tuple[int, int]) -> None:
    """Refuse offsets that the log does not hold, or say what is left out."""
    for limit, offset in zip((settings.start, settings.end), wanted, strict=True):
        if limit.kind == "offsets" and not there[0] <= offset <= there[1]:
            name = f"{partition.topic}-{partition.partition}"
            reason = f"option {limit.option}: {name} holds offsets {there[0]} to {there[1]}, found {offset}"
            if settings.fail_on_data_loss:
                message = f"{reason}; records may be lost (failOnDataLoss = false reads what is left)"
                raise OffsetOutOfRangeError(
                    message, requested=offset, log_start_offset=there[0], log_end_offset=there[1], path=log.path
                )
            logger.warning("%s; what is left is read, as failOnDataLoss is false", reason)


class Slots(NamedTuple):
    """How many tasks run at once."""

    at_once: int
    is_known: bool

    @classmethod
    def of(cls, known: int | None) -> Slots:
        """Return what was said, or the CPUs of this machine."""
        return cls(known or _cpus(), known is not None)

    def tasks(self, size_bytes: int) -> int:
        """Return how many tasks read so many bytes: one a slot, or so many more for each slot that none reads too much."""
        most = MAX_TASK_BYTES if self.is_known or size_bytes <= self.at_once * MAX_TASK_BYTES else MAX_GUESSED_TASK_BYTES
        return self.at_once * max(1, -(-size_bytes // (self.at_once * most)))


def _pieces(found: list[Range], settings: Settings, slots: Slots) -> list[Split]:
    """Cut ranges as the options ask: by records and number as Spark's Kafka source does, by bytes where batches begin."""
    if settings.on_corrupt == "stop":
        # Only the scan that meets the damage stops: another one of the same partition would begin behind it.
        return [piece for span in found for piece in _cut(span, _size_bytes(span), None)]
    if settings.min_partitions is None and settings.max_records is None:
        sizes = list(map(_size_bytes, found))
        share = -(-sum(sizes) // slots.tasks(sum(sizes)))
        about = MIN_TASK_BYTES if share < MIN_TASK_BYTES else -(-share // PIECES)
        most = [min(piece_bytes(size_bytes, about), settings.max_bytes or LONG_MAX) for size_bytes in sizes]
        return list(itertools.chain.from_iterable(map(_cut, found, sizes, most)))
    spans = [Range(log, *part) for log, start, stop in found for part in _equal(start, stop, settings.max_records)]
    if settings.min_partitions is not None and settings.min_partitions > len(spans):
        spans = list(_shared(spans, settings.min_partitions, by_bytes=settings.max_records is None))
    return [piece for span in spans for piece in _cut(span, _size_bytes(span), settings.max_bytes)]


def piece_bytes(size_bytes: int, about: int) -> int:
    """Return how large the pieces of a range are if they are alike: no crumb is left at its end, which would weigh as much as they do.

    A range that is an eighth larger than `about` is one piece.
    """
    return -(-size_bytes // max(1, -(-(8 * size_bytes - about) // (8 * about))))


def _cut(span: Range, size_bytes: int, most: int | None) -> list[Split]:
    """Cut where batches begin, into parts of about `most` bytes."""
    log, start, stop = span
    if most is None or size_bytes <= most:
        return [Split(os.path.abspath(log.path), log.topic, log.partition, start, stop, size_bytes)]
    return _splits(span, max_bytes=most)


def _splits(span: Range, *, max_bytes: int | None = None, count: int | None = None) -> list[Split]:
    """Cut a range where batches begin, as :meth:`Log.splits` does, but always all of it.

    Records deleted since the range was resolved stay in it: the task that gets it reports them as gone.
    """
    log, start, stop = span
    try:
        cuts = log.splits(start, stop, max_bytes=max_bytes, count=count)
    except (FileNotFoundError, OffsetOutOfRangeError):
        cuts = []
    if not cuts:
        return [Split(os.path.abspath(log.path), log.topic, log.partition, start, stop, 0)]
    return [*cuts[:-1], cuts[-1]._replace(stop=stop)]


def _size_bytes(span: Range) -> int:
    """Return about how many bytes a range takes on disk."""
    try:
        if (span.start, span.stop) == (span.log.log_start_offset, span.log.log_end_offset):
            return span.log.size_bytes
    except FileNotFoundError:
        return 0
    return sum(split.size_bytes for split in _splits(span, max_bytes=LONG_MAX))


def _equal(start: int, stop: int, most: int | None) -> Iterator[tuple[int, int]]:
    """Yield near-equal parts of at most `most` offsets."""
    return _parts(start, stop, 1 if most is None else -(-(stop - start) // most))


def _parts(start: int, stop: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield `count` parts by integer division, the last with the remainder; fewer where there are fewer offsets."""
    count = max(1, min(count, stop - start))
    size = (stop - start) // count
    for slot in range(count):
        yield start + slot * size, stop if slot == count - 1 else start + (slot + 1) * size


def _shared(spans: list[Range], count: int, *, by_bytes: bool) -> Iterator[Range]:
    """Cut into about `count` parts as Spark does: small ranges stay whole, the rest is shared out by size.

    Where `by_bytes` allows it and there are batches enough, the cuts of one range fall where batches begin, so that no batch is
    decoded twice; else by offsets, as Spark cuts.
    """
    total = sum(stop - start for _, start, stop in spans)
    whole = {slot for slot, (_, start, stop) in enumerate(spans) if _rounded((stop - start) * count, total) <= 1}
    rest = sum(stop - start for slot, (_, start, stop) in enumerate(spans) if slot not in whole)
    left = count - len(whole)
    for slot, (log, start, stop) in enumerate(spans):
        parts = 1 if slot in whole else max(1, _rounded((stop - start) * left, rest))
        cuts = _splits(Range(log, start, stop), count=parts) if by_bytes and parts > 1 else []
        if parts <= len(cuts) <= 2 * parts:
            yield from (Range(log, cut.start, cut.stop) for cut in cuts)
        else:
            yield from (Range(log, *part) for part in _parts(start, stop, parts))


def _rounded(numerator: int, denominator: int) -> int:
    """Round half up, as Java does."""
    return (2 * numerator + denominator) // (2 * denominator)


def pack(pieces: list[Split], settings: Settings, slots: Slots) -> list[tuple[Split, ...]]:
    """Put the pieces into tasks: the largest first, each to the task with the least to do, or to a new one if that one is full.

    Tasks are in order, and so are the pieces of each partition from task to task: reading them one after the other, or writing
    their output one after the other, keeps the order of the log.
    """
    count = max(slots.tasks(sum(piece.size_bytes for piece in pieces)), settings.min_partitions or 1)
    tasks = [_Task() for _ in range(min(count, len(pieces)))]
    queue = [(0, slot) for slot in range(len(tasks))]
    for piece in sorted(pieces, key=lambda piece: piece.size_bytes, reverse=True):
        weight, slot = queue[0]
        if tasks[slot].has_room(piece, settings):
            heapq.heapreplace(queue, (weight + piece.size_bytes + OPEN_COST_BYTES, slot))
        else:
            slot = len(tasks)
            tasks.append(_Task())
            heapq.heappush(queue, (piece.size_bytes + OPEN_COST_BYTES, slot))
        tasks[slot].add(piece)
    return list(_ordered([task.pieces for task in tasks], settings))


def _ordered(packed: list[list[Split]], settings: Settings) -> Iterator[tuple[Split, ...]]:
    """Sort the tasks, and deal the pieces of each partition to those that had some of it, in order.

    Each gets about as many bytes as it had.
    """
    packed = sorted(sorted(task) for task in packed)
    tasks: list[list[Split]] = [[] for _ in packed]
    for path in sorted({piece.path for task in packed for piece in task}):
        its = [[piece for piece in task if piece.path == path] for task in packed]
        slots = [slot for slot, pieces in enumerate(its) if pieces]
        pieces = sorted(itertools.chain.from_iterable(its))
        wanted = list(itertools.accumulate(sum(piece.size_bytes for piece in its[slot]) for slot in slots))
        for slot, share in zip(slots, _dealt(pieces, wanted), strict=True):
            tasks[slot] += share
    for pieces in tasks:
        task = _Task()
        for piece in pieces:
            if not task.has_room(piece, settings):
                yield tuple(_joined(task.pieces))
                task = _Task()
            task.add(piece)
        yield tuple(_joined(task.pieces))


def _dealt(pieces: list[Split], wanted: list[int]) -> Iterator[list[Split]]:
    """Cut a list where the sum of the sizes is nearest to each of `wanted`, which ascend; each part has a piece at least."""
    at, before = 0, 0
    for left, most in zip(reversed(range(len(wanted))), wanted, strict=True):
        start = at
        while at < len(pieces) - left and (at == start or left == 0 or 2 * before + pieces[at].size_bytes <= 2 * most):
            before += pieces[at].size_bytes
            at += 1
        yield pieces[start:at]


class _Task:
    """What one task will read."""

    def __init__(self) -> None:
        self.pieces: list[Split] = []
        self.records = 0
        self.size_bytes = 0

    def has_room(self, piece: Split, settings: Settings) -> bool:
        if not self.pieces:
            return True
        records, size_bytes = self.records + piece.stop - piece.start, self.size_bytes + piece.size_bytes
        return (settings.max_records is None or records <= settings.max_records) and (
            settings.max_bytes is None or size_bytes <= settings.max_bytes
        )

    def add(self, piece: Split) -> None:
        self.pieces.append(piece)
        self.records += piece.stop - piece.start
        self.size_bytes += piece.size_bytes


def _joined(splits: Iterable[Split]) -> Iterator[Split]:
    """Join ranges that touch: one scan instead of two."""
    last: Split | None = None
    for split in splits:
        if last is not None and last.path == split.path and last.stop == split.start:
            last = last._replace(stop=split.stop, size_bytes=last.size_bytes + split.size_bytes)
            continue
        if last is not None:
            yield last
        last = split
    if last is not None:
        yield last


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
