"""Writing a frame by one call: the rows laid out as the sink needs them, progress while it runs, a summary at the end."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pyspark.sql import functions

from offsetlog import LogConfig, LogDir, partition_for
from offsetlog._commit.moving import Patience
from offsetlog._commit.notes import Commit, locked, note_of, remove
from offsetlog._commit.publishing import undo
from offsetlog._commit.whereabouts import check_note_is_first, unmark
from offsetlog._text import counted
from offsetlog.errors import ConfigError, LogDirError, OffsetLogError
from offsetlog.spark.options import Paths
from offsetlog.spark.registration import activate
from offsetlog.spark.sink_options import OTHERS, job_name, new_folders, not_blank

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Published", "WriteSummary", "write"]

logger = logging.getLogger("offsetlog")

POLL_SECONDS = 0.5
TELL_SECONDS = 10.0
PUBLISHED = "all of the write is published"


class Published(NamedTuple):
    """What a write added to one partition."""

    topic: str
    partition: int
    start_offset: int
    """Where the log ended before."""
    end_offset: int
    """Where it ends now; between the two, other writers may have appended too."""
    records: int
    """Records of this write."""
    batches: int
    """Record batches that they came in."""
    size_bytes: int
    """Bytes of those, as they lie in the log."""
    tasks: int
    """Tasks that gave them."""


class WriteSummary(NamedTuple):
    """What a write did."""

    partitions: tuple[Published, ...]
    """In order of topic and partition; those without new records are not among them."""
    is_new: bool
    """``False``: all this was published before under the same `transaction_id`, and nothing was added now. ``True`` also where an
    earlier run had died half-way, and this one published the rest."""
    seconds: float

    @property
    def records(self) -> int:
        """Records of all partitions."""
        return sum(each.records for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of all partitions, as they lie in the logs."""
        return sum(each.size_bytes for each in self.partitions)


def write(
    frame: DataFrame,
    path: Paths,
    *,
    topic: str | None = None,
    partitions: int | Mapping[str, int] | None = None,
    topic_ids: Mapping[str, str] | None = None,
    order_by: Sequence[str] = (),
    preserve_offsets: bool = False,
    single_replica: bool = False,
    transaction_id: str | None = None,
    settings: LogConfig | Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> WriteSummary:
    """Write a frame to topics, each record once, and return what was written.

    The rows are laid out first, where that matters: with `preserve_offsets` by topic, partition and offset; with `order_by` so that
    one task writes all that goes to a partition, in that order. Else each task writes the rows that it has.

    Parameters
    ----------
    frame
        Columns as for ``frame.write.format("offsetlog")``: ``value``, and as wanted ``key``, ``topic``, ``partition``, ``headers``,
        ``timestamp``, ``offset``, ``leaderEpoch``.
    path
        One log dir, or several (a list, in which names may have commas, or commas between them); made if missing. All workers and the
        driver must see them, and no broker may run on them.
    topic
        Topic of all rows; ``None`` takes the column.
    partitions
        Partitions of topics that are made, of every one or by topic, with ``"*"`` for the others; 1 by default. `topic`, and those
        named, must have as many where they are there; with ``"*"`` all must.
    topic_ids
        Ids of topics that are made (22 characters of base64), as a cluster knows them; others are drawn.
    order_by
        Columns by which the records of a partition are ordered. Rows with neither ``partition`` nor key go through one task then.
        Keys get their partitions when this is called: if another program makes a topic meanwhile, or adds partitions to one, the
        write is refused.
    preserve_offsets
        A restore: rows keep their ``offset``, and ``leaderEpoch`` where the column is there.
    single_replica
        In a broker's log dir, write also into partitions of which other brokers have replicas, who do not get what is written and
        may have it cut off; without it such a write is refused, and nothing of it is published.
    transaction_id
        Name of this write. Called again under the same name, also after a crash anywhere, it publishes nothing twice. Blanks around
        it do not count, and it must not be blank: of a variable that is not set each run would write all again.
    settings
        Settings of the topics that are made, by Kafka's names; those that shape batches hold for what is written in any case.
    progress
        Called on another thread with the tasks that are done and those that are known, about twice a second while they change.
        Without it a line is logged every ten seconds.

    Raises
    ------
    ConfigError
        Columns or options that do not fit; raised before a job runs where the arguments show it.
    pyspark.errors.PySparkException
        What failed in a worker or in the commit, as text. What was not published is removed.
    KeyboardInterrupt
        Spark may go on without this call. A note of the exception says what is published, and under which `transaction_id` to call
        again so that nothing is there twice.

    Examples
    --------
    >>> rows = spark.range(100).selectExpr("cast(id as string) value", "concat('k', id % 7) key", "timestamp_millis(id) timestamp")
    >>> done = write(rows, folder, topic="orders", partitions=2, order_by=["timestamp"])
    >>> done.records, [(each.partition, each.start_offset, each.end_offset) for each in done.partitions]
    (100, [(0, 0, 42), (1, 0, 58)])
    """
    _check_flag("preserve_offsets", preserve_offsets)
    _check_flag("single_replica", single_replica)
    paths = new_folders(path)
    # As the sink takes them: under another spelling neither the note would be found nor the topic.
    topic, transaction_id = _named("topic", topic), _named("transaction_id", transaction_id)
    transaction = transaction_id or f"write-{uuid.uuid4().hex}"
    name = job_name(transaction)
    check_note_is_first(paths, name)
    before = note_of(paths[0], name)
    options = dict(LogConfig.from_dict(settings).to_dict() if isinstance(settings, Mapping) else (settings or LogConfig()).to_dict())
    options.update(transactionId=transaction, preserveOffsets=preserve_offsets, singleReplica=single_replica)
    options.update({} if topic is None else {"topic": topic})
    given = partitions if partitions is None or isinstance(partitions, int) else dict(partitions)
    # Rows get their partitions by these: where a topic has another number by then, the write is refused.
    routes = _routes(paths, topic, given) if order_by and not preserve_offsets else None
    numbers = given if routes is None else routes.counts
    options.update({} if numbers is None else {"partitions": json.dumps(numbers)})
    options.update({} if topic_ids is None else {"topicId": json.dumps(dict(topic_ids))})
    laid_out = _laid_out(frame, topic, routes, tuple(order_by), preserve_offsets=preserve_offsets)
    began = time.monotonic()
    try:
        activate(frame.sparkSession)
        with _watched(frame.sparkSession, progress):
            laid_out.write.format("offsetlog").mode("append").options(**options).save(",".join(map(_as_item, paths)))
    except (Exception, KeyboardInterrupt) as error:
        if transaction_id is not None:
            if isinstance(error, KeyboardInterrupt):
                error.add_note(_told_of(paths[0], name, transaction, before))
            raise
        # Of a name that was generated nobody knows, and where Spark is still at work its note is what tells the next call.
        if not _published_even_so(paths[0], name, transaction, error):
            raise
        if isinstance(error, KeyboardInterrupt):
            _forget_published(paths[0], name)
            raise
    try:
        journal = note_of(paths[0], name)
        if transaction_id is None:
            _forget_published(paths[0], name)
    except KeyboardInterrupt as error:
        error.add_note(PUBLISHED)
        raise
    targets = () if journal is None else journal.targets
    published = sorted(
        Published(each.topic, each.partition, each.start, each.end, each.records, each.batches, each.size_bytes, each.tasks)
        for each in targets
        if each.records
    )
    # A note that was not published is of a run that died: its records were finished, or taken back and written anew, just now.
    was_there = before is not None and before.is_published and journal is not None and journal.time == before.time
    summary = WriteSummary(tuple(published), not was_there, time.monotonic() - began)
    for each in published:
        logger.info(
            "%s-%d: %s up to offset %d, %s, %s, %s",
            *each[:2],
            counted(each.records, "record"),
            each.end_offset - 1,
            counted(each.batches, "batch"),
            counted(each.size_bytes, "byte"),
            counted(each.tasks, "task"),
        )
    return summary


def _check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False: every text counts as true in Python, "false" too."""
    if not isinstance(value, bool):
        message = f"{name}: must be True or False, found {value!r:.40}"
        raise ConfigError(message, key=name, value=str(value)[:200])


def _named(argument: str, name: object) -> str | None:
    if name is not None and not isinstance(name, str):
        message = f"{argument} must be a str or None, found {type(name).__name__}"
        raise TypeError(message)
    return None if name is None else not_blank(argument, name)


def _as_item(path: str) -> str:
    """Return a path so that it is one of those between commas in the option."""
    return path if path == path.strip() and "," not in path else f"file://{quote(os.path.abspath(path))}"


def _again(transaction: str) -> str:
    return f"call write again with transaction_id={transaction!r}, which publishes each record once"


def _told_of(log_dir: str, name: str, transaction: str, before: Commit | None) -> str:
    """Return what is known of a write with a name of the caller's that was interrupted. Its note stays, for the next call."""
    try:
        note = note_of(log_dir, name)
    except (OSError, OffsetLogError):
        note = None
    # One that was there before is perhaps of other data.
    if note is not None and note.is_published and (before is None or before.time != note.time or not before.is_published):
        return PUBLISHED
    return f"the write was interrupted, and Spark may still be at work on it: {_again(transaction)}"


def _published_even_so(log_dir: str, name: str, transaction: str, error: BaseException) -> bool:
    """Return whether all of a write that failed or was interrupted is published; else take it back, and say how to go on."""
    again = _again(transaction)
    try:
        note = note_of(log_dir, name)
        if note is not None and not note.is_published and not undo(log_dir, note, Patience(0.0)):
            text = f"another process works on it; {again}"
            # Somebody else has gone on with it.
            note = note_of(log_dir, name)
        elif note is not None:
            text = "nothing of it is published"
        else:
            # Where only the connection broke, the job may go on.
            text = f"nothing of it is published yet; where Spark may still be at work on it, {again}"
        if note is not None and note.is_published:
            logger.warning("%s: all of it is published, in spite of an error: %s", name, str(error) or type(error).__name__)
            error.add_note(PUBLISHED)
            return True
    except (OSError, OffsetLogError) as failure:
        text = f"a part of it may be published, and could not be taken back ({failure}); {again}"
    logger.warning("%s: %s", name, text)
    error.add_note(f"the write failed: {text}")
    return False


def _forget_published(log_dir: str, name: str) -> None:
    """Remove the note of a write that nobody repeats; one that died half-way stays, for the next write to finish it."""
    try:
        if note_of(log_dir, name) is None:
            return
        with locked(log_dir):
            journal = note_of(log_dir, name)
            if journal is not None and journal.is_published:
                remove(log_dir, name)
                unmark(log_dir, journal)
    except (OSError, OffsetLogError) as error:
        logger.warning("%s: its note may stay: %s", name, error)


def _laid_out(
    frame: DataFrame,
    topic: str | None,
    routes: _Routes | None,
    order_by: tuple[str, ...],
    *,
    preserve_offsets: bool,
) -> DataFrame:
    """Return the frame with the rows of a partition together and in order, where that is asked for."""
    for name in order_by:
        if name not in frame.columns:
            message = f"no column {name!r} found to order by; the columns are {', '.join(frame.columns)}"
            raise ConfigError(message, key="order_by", value=name)
    if preserve_offsets:
        if order_by:
            message = "order_by and preserve_offsets exclude each other: offsets are the order"
            raise ConfigError(message, key="order_by", value=",".join(order_by))
        # A missing column is refused by the sink, which says more.
        columns = [name for name in ("topic", "partition", "offset") if name in frame.columns]
        return frame.repartitionByRange(*columns).sortWithinPartitions(*columns) if columns else frame
    if routes is None:
        return frame
    placed = frame.withColumn("partition", _partition(frame, routes, topic))
    columns = [name for name in ("topic", "partition") if name in placed.columns]
    return placed.repartition(*columns).sortWithinPartitions(*columns, *order_by)


class _Routes(NamedTuple):
    """By what keys get their partitions when the rows are laid out."""

    counts: dict[str, int]
    """How many partitions each topic has or gets, as the option takes it. One that somebody is just making is not known."""
    left: frozenset[str]
    """Topics with partitions that are not here: their keys are left to the sink, which refuses them."""

    def partition_of(self, topic: str | None, key: bytes | str | None) -> int | None:
        """Return a row's partition; ``None`` if it is the sink that has to choose or refuse."""
        if key is None or topic is None or topic in self.left:
            return None
        count = self.counts[topic] if topic in self.counts else self.counts[OTHERS]
        return partition_for(key.encode() if isinstance(key, str) else bytes(key), count)


def _routes(paths: Sequence[str], topic: str | None, given: int | Mapping[str, int] | None) -> _Routes:
    there, found = _topics(paths)
    known = {name: len(numbers) for name, numbers in found.items() if numbers == set(range(len(numbers)))}
    if isinstance(given, int):
        counts = {OTHERS: given, **known, **({} if topic is None else {topic: given})}
    elif given is not None and OTHERS in given:
        # Those that are here must have as many too.
        counts = dict(given)
    else:
        counts = {OTHERS: 1, **known, **(given or {})}
    left = _left(there, known if topic is None else known.keys() & {topic})
    return _Routes(counts if topic is None else {topic: counts.get(topic, counts[OTHERS])}, frozenset(left))


def _left(there: Sequence[str], names: Collection[str]) -> set[str]:
    """Return those of the topics to whose keys appends give no partition, as not all of it is here, or may not be."""
    left = set[str]()
    if not names:
        return left
    with LogDir.open(there) as log_dir:
        for name in names:
            try:
                log_dir._engine().partition_count(name)  # noqa: SLF001  # same package
            except (OffsetLogError, OSError):
                left.add(name)
    return left


def _topics(paths: Sequence[str]) -> tuple[list[str], dict[str, set[int]]]:
    """Return the log dirs that are there, and the partitions that each topic has in them."""
    there, found = list[str](), dict[str, set[int]]()
    for path in paths:
        try:
            with LogDir.open(path) as log_dir:
                topics = log_dir.topics()
        except (FileNotFoundError, LogDirError):
            # Nothing is in it: the write makes a log dir of it, or refuses it.
            continue
        there.append(path)
        for name, numbers in topics.items():
            found.setdefault(name, set()).update(numbers)
    return there, found


def _partition(frame: DataFrame, routes: _Routes, topic: str | None) -> Column:
    """Return a row's partition by its column or its key; null if it has neither."""

    def by_key(name: str | None, key: bytes | str | None) -> int | None:
        return routes.partition_of(name, key)

    named = functions.lit(topic) if topic is not None else functions.col("topic")
    routed = functions.udf(by_key, "int")(named, functions.col("key")) if "key" in frame.columns else functions.lit(None).cast("int")
    return functions.coalesce(functions.col("partition"), routed) if "partition" in frame.columns else routed


@contextmanager
def _watched(spark: SparkSession, progress: Callable[[int, int], None] | None) -> Iterator[None]:
    """Tell of the tasks of the jobs that this thread runs meanwhile."""
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001  # Spark Connect has none, and says so with varying classes
        yield
        return
    properties = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    old = {key: context.getLocalProperty(key) for key in properties}
    group = f"offsetlog-{uuid.uuid4().hex}"
    context.setJobGroup(group, "offsetlog: write")
    enough = threading.Event()

    def watch() -> None:
        told, spoken = (0, 0), time.monotonic()
        while not enough.wait(POLL_SECONDS):
            tracker = context.statusTracker()
            infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for info in infos if info is not None for stage in info.stageIds]
            counts = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
            now = sum(done for done, _ in counts), sum(tasks for _, tasks in counts)
            if now == told:
                continue
            told = now
            if progress is not None:
                progress(*now)
            elif time.monotonic() - spoken >= TELL_SECONDS:
                spoken = time.monotonic()
                logger.info("write: %d of %s done", now[0], counted(now[1], "task"))

    watcher = threading.Thread(target=watch, name="offsetlog-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        enough.set()
        watcher.join()
        for key, value in old.items():
            context.setLocalProperty(key, value)  # type: ignore[arg-type]  # none removes it
