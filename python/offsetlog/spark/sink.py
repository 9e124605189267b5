"""Writing from Spark: tasks stage records inside the partition directories, a commit on the driver publishes them, each once.

Where things run: the writer is made in a Python process of the driver and pickled; ``write`` runs in Python workers of the executors;
``commit`` and ``abort`` run in a further process of the driver. So a writer holds plain values only.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow
import pyarrow.compute
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from offsetlog import LogConfig, LogDir, WritableLogDir, arrow_digest, partitions_for
from offsetlog._commit.notes import needed_jobs, note_of, sweep_ready
from offsetlog._commit.places import check_log_dirs, check_topic, metadata_among, topic_id_of
from offsetlog._commit.publishing import commit, finish
from offsetlog._commit.repeated import check_repeated, check_there
from offsetlog._commit.staging import (
    STAGING,
    Stage,
    Staged,
    discard,
    discard_job,
    give_up,
    is_given_up,
    jobs,
    partition_directory,
    sweep,
)
from offsetlog._commit.whereabouts import check_note_is_first, has_marks_of_others, sweep_marks
from offsetlog._text import counted
from offsetlog.errors import ConfigError, LogDirError, OffsetLogError, RecordRejectedError
from offsetlog.spark.first_line import text_first
from offsetlog.spark.sink_options import SinkSettings, job_prefix
from offsetlog.spark.stream_identity import forget_old, inherit, plan_of, query_id

if TYPE_CHECKING:
    from pyspark.sql import Row

__all__ = ["OffsetLogWriter", "RowStreamWriter", "StreamWriter", "TaskMessage", "prepare"]

logger = logging.getLogger("offsetlog")

ROWS_A_BATCH = 10_000
# How long another task may take to make a topic.
MAKING_SECONDS = 30.0


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver."""

    staged: list[tuple[Any, ...]] = field(default_factory=list)
    contents: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each topic the number of records and the sum of their digests."""
    name: str | None = None
    """Of a stream: what it is called, where no option says it."""


class Topic(NamedTuple):
    """What a task has to know of a topic."""

    name: str
    partitions: int
    directories: tuple[str, ...]
    config: LogConfig


def prepare(settings: SinkSettings) -> None:
    """Make what is missing of log dirs and topic, and remove what jobs left that nobody finishes. Called on the driver.

    Of a stream, PySpark also calls this between the tasks of a micro-batch and its commit.

    Raises
    ------
    LogLockedError
        A broker runs on the log dir.
    ConfigError
        A topic that is there has another id than the one that is asked for.
    OSError
        A log dir in which a commit of this name has published, or was to, is not there: perhaps its disk is not mounted.
    """
    if settings.name:
        _check_before(settings.paths, settings.name)
    with LogDir.open(settings.paths, "a") as log_dir:
        topics = log_dir.topics()
        for name, wanted in settings.topic_ids:
            # The first partition is made last: only then is it not somebody's who makes the topic now.
            here = partition_directory(settings.paths, name, 0) if _is_whole(topics.get(name, [])) else None
            found = wanted if here is None else topic_id_of(here)
            if found != wanted:
                message = f"topic {name!r} is there and has the id {found}, found {wanted}"
                raise ConfigError(message, key="topicId", value=wanted)
        # Of a topic that another driver is making it is not known yet how many partitions it has: tasks wait for that.
        counts = {name: len(numbers) for name, numbers in topics.items() if _is_whole(numbers)}
        for name, _ in settings.partitions_of:
            if name in counts:
                settings.check_count(name, counts[name])
        if settings.topic is not None and settings.topic in counts:
            settings.check_count(settings.topic, counts[settings.topic])
        if settings.topic is not None and settings.topic not in topics and not _create_unless_there(log_dir, settings.topic, settings):
            # A topic that another driver made must match the options.
            prepare(settings)
            return
    _tidy(settings.paths)


def _check_before(paths: Sequence[str], name: str) -> None:
    """Refuse a name whose last commit cannot be gone on with here, before a topic that is gone is recreated."""
    check_note_is_first(paths, name)
    before = note_of(paths[0], name)
    if before is None:
        return
    if not before.is_published:
        check_log_dirs(before)
    elif before.sequence is None:
        check_repeated(before)
    else:
        check_there(before, paths)


def _tidy(paths: Sequence[str]) -> None:
    """Finish what stopped half-way, and remove what jobs left that nobody finishes."""
    metadata = metadata_among(paths)
    for path in paths:
        finish(path, metadata=metadata)
    sweep(paths[0])
    sweep_ready(paths[0])
    sweep_marks(paths)
    needed = needed_jobs(paths)
    for path in paths:
        # Notes that are not at hand may need what lies here.
        if needed is not None and not has_marks_of_others(path, paths):
            for directory, job, is_old in jobs(_directories(path)):
                if is_old and job not in needed:
                    discard_job([directory], job)


def _create(log_dir: WritableLogDir, name: str, settings: SinkSettings) -> None:
    # A topic whose log dir is not mounted is not recreated.
    for path in settings.paths:
        check_topic(path, name)
    log_dir.create_topic(name, settings.count_of(name), config=settings.log_config, topic_id=dict(settings.topic_ids).get(name))


def _create_unless_there(log_dir: WritableLogDir, name: str, settings: SinkSettings) -> bool:
    """Make a topic; return ``False`` where another driver or task was first."""
    try:
        _create(log_dir, name, settings)
    except LogDirError:
        # Unless it is wrong for all.
        if name not in LogDir.open(settings.paths).topics():
            raise
        return False
    return True


def _is_whole(numbers: Sequence[int]) -> bool:
    """Return whether all partitions of a topic are there: the first is made last."""
    return bool(numbers) and list(numbers) == list(range(len(numbers)))


def _directories(*paths: str) -> list[str]:
    return [str(entry.parent) for path in paths for entry in Path(path).glob(f"*/{STAGING}")]


class Writer:
    """What batch and stream have in common."""

    def __init__(self, settings: SinkSettings, columns: Sequence[str]) -> None:
        self._settings = settings
        self._columns = tuple(columns)
        self._job = f"{settings.job_prefix}{uuid.uuid4().hex}"

    def stage_rows(self, batches: Iterable[pyarrow.RecordBatch], name: str | None = None) -> TaskMessage:
        """Stage the rows of one task, of the stream that is called so where no option names it."""
        stage = Stage(f"{job_prefix(name)}{self._job}" if name is not None else self._job, uuid.uuid4().hex)
        router = _Router(self._settings)
        try:
            for batch in batches:
                for topic, partition, rows in router.routed(batch.select(self._columns)):
                    directory = topic.directories[partition]
                    stage.append(
                        topic.name, partition, directory, topic.config, rows, preserve_offsets=self._settings.preserve_offsets
                    )
            staged = stage.close()
        except BaseException:
            stage.abandon()
            raise
        if is_given_up(self._settings.paths[0], self._job):
            discard(staged)
            message = f"the job {self._job} has failed meanwhile: what its task staged is removed"
            raise LogDirError(message, path=self._settings.paths[0])
        return TaskMessage([tuple(each) for each in staged], dict(router.contents), name)

    def _publish(self, messages: Sequence[WriterCommitMessage | None], sequence: int | None) -> None:
        told = [message for message in messages if isinstance(message, TaskMessage)]
        staged = [Staged(*each) for message in told for each in message.staged]
        if sequence is not None and not staged:
            # Maybe no task has said whose it is. Nothing is to be published, now or when it is run again.
            return
        contents: dict[str, tuple[int, int]] = {}
        for topic, (count, digest) in (item for message in told for item in message.contents.items()):
            before = contents.get(topic, (0, 0))
            contents[topic] = before[0] + count, (before[1] + digest) % (1 << 128)
        settings = self._settings
        log_dir = settings.paths[0]
        name = settings.name or _name_of(told)
        if name is not None:
            check_note_is_first(settings.paths, name)
            noted = note_of(log_dir, name) if sequence is not None else None
            if noted is not None and noted.is_published:
                check_there(noted, settings.paths)
        metadata = metadata_among(settings.paths)
        for path in settings.paths:
            finish(path, metadata=metadata)
        if sequence is not None and name is not None:
            inherit(log_dir, name, settings.checkpoint, sequence, {topic: count for topic, (count, _) in contents.items()})
        is_new = commit(
            log_dir,
            name or self._job,
            sequence,
            staged,
            contents=contents,
            plan=None if sequence is None else plan_of(settings.checkpoint, sequence),
            preserve_offsets=settings.preserve_offsets,
            keep=name is not None,
            single_replica=settings.single_replica,
            metadata=metadata,
            log_dirs=settings.paths,
        )
        if sequence is not None and name is not None:
            forget_old(log_dir, name, settings.checkpoint)
        self._discard(name)
        records, size = sum(each.records for each in staged), sum(each.size_bytes for each in staged)
        places = counted(len({each.directory for each in staged}), "partition")
        what = f"{counted(records, 'record')}, {counted(size, 'byte')}, {places}"
        logger.info("%s: %s%s", name or self._job, what, "" if is_new else ", published before and dropped")

    def _discard(self, name: str | None = None) -> None:
        """Remove what jobs of this name have staged: this one's, and those of drivers that died. Logs that a note names stay."""
        prefix = job_prefix(name) if name else self._job
        try:
            if name:
                check_note_is_first(self._settings.paths, name)
        except (OSError, OffsetLogError):
            # The note of the name, which says what of the others is needed, may not be at hand.
            prefix = self._job if self._settings.name else f"{prefix}{self._job}"
        needed = needed_jobs(self._settings.paths)
        for directory, job, _ in jobs(_directories(*self._settings.paths)):
            if job.startswith(prefix) and needed is not None and job not in needed:
                discard_job([directory], job)


class OffsetLogWriter(Writer, DataSourceArrowWriter):
    """The sink of one batch job."""

    @text_first
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskMessage:
        """Stage the rows of one task. Called on an executor, once for each task and each time that it is tried again."""
        return self.stage_rows(iterator)

    @text_first
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks staged. Called on the driver, once, when all are done."""
        self._publish(messages, None)

    @text_first
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks staged. Called on the driver when the job failed, while other tasks of it may still be running.

        After a commit that failed, what its note still needs stays for the one that finishes it.
        """
        # Those that are not done: one has failed, others may still run.
        if sum(message is None for message in messages) != 0 or not messages:
            give_up(self._settings.paths[0], self._job)
        self._discard(self._settings.name)


class StreamWriter(Writer):
    """The sink of a stream, whichever way Spark hands over the rows."""

    @text_first
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # PySpark's name
        """Publish a micro-batch. Called on the driver; a micro-batch that is run again is dropped, and another one refused."""
        self._publish(messages, batchId)

    @text_first
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  # as above
        """Remove what the tasks of a micro-batch staged; where none has told its stream, the next micro-batch does it."""
        self._discard(self._settings.name or _name_of([message for message in messages if isinstance(message, TaskMessage)]))

    def stage_named(self, batches: Iterable[pyarrow.RecordBatch]) -> TaskMessage:
        """Stage the rows of one task under the name of its stream."""
        return self.stage_rows(batches, None if self._settings.name else f"query {query_id()}")


class RowStreamWriter(StreamWriter, DataSourceStreamWriter):
    """The sink of a stream before PySpark 4.1, which hands over rows."""

    def __init__(self, settings: SinkSettings, columns: Sequence[str], schema: pyarrow.Schema) -> None:
        super().__init__(settings, columns)
        self._schema = schema

    @text_first
    def write(self, iterator: Iterator[Row]) -> TaskMessage:
        """Stage the rows of one task. Called on an executor, once for each task and each time that it is tried again."""
        return self.stage_named(_batches(iterator, self._schema))


def _name_of(messages: Iterable[TaskMessage]) -> str | None:
    """Return the name of the stream that tasks told; ``None`` of a batch job."""
    names = sorted({message.name for message in messages if message.name is not None})
    if len(names) > 1:
        message = f"tasks of one micro-batch are of several streams: {', '.join(names)}"
        raise LogDirError(message)
    return names[0] if names else None


def _check_times(topic: str, partitions: pyarrow.Array, rows: pyarrow.RecordBatch) -> None:
    """Refuse times before 1970 by the name of the record: a broker's log may hold such, and no writer of Kafka's makes one.

    A restore keeps them, as a follower does.
    """
    if "timestamp" not in rows.schema.names:
        return
    # Finer parts are cut off, to the earlier millisecond; -1 means no timestamp.
    times = pyarrow.compute.cast(rows.column("timestamp").cast(pyarrow.timestamp("us", "UTC")), pyarrow.int64())
    wrong = pyarrow.compute.and_(pyarrow.compute.less(times, 0), pyarrow.compute.not_equal(times, -1000))
    if wrong.true_count:
        at = pyarrow.compute.index(wrong, value=True).as_py()
        offset = f", offset {rows.column('offset')[at].as_py()}" if "offset" in rows.schema.names else ""
        when = times[at].as_py() // 1000
        message = (
            f"{topic}-{partitions[at].as_py()}{offset}: timestamp {when} ms found, 0 or more, or -1 for none, "
            "expected: Kafka's writers refuse such a time; replace it in a select before the write, or restore the record as it was "
            "with its offset (preserveOffsets = true)"
        )
        raise RecordRejectedError(message)


def _batches(rows: Iterator[Row], schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    waiting: list[Row] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == ROWS_A_BATCH:
            yield _batch(waiting, schema)
            waiting = []
    if waiting:
        yield _batch(waiting, schema)


def _batch(rows: Sequence[Row], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    columns = []
    for at, kind in enumerate(schema):
        values = [row[at] for row in rows]
        if pyarrow.types.is_timestamp(kind.type):
            # PySpark hands over times of this machine's zone without saying so; to Arrow a time without a zone is one of UTC.
            values = [None if value is None else value.astimezone(UTC) for value in values]
        columns.append(pyarrow.array(values, kind.type))
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


class _Router:
    """Where the rows of one task go."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._topics: dict[str, Topic] = {}
        self._random = random.Random()  # noqa: S311  # where rows go is no secret
        self._turns: dict[str, int] = {}
        self._asked: LogDir | None = None
        self._whole: set[str] = set()
        self.contents: dict[str, tuple[int, int]] = {}

    def routed(self, batch: pyarrow.RecordBatch) -> Iterator[tuple[Topic, int, pyarrow.RecordBatch]]:
        """Yield the rows of each partition, in their order."""
        for topic, rows in self._by_topic(batch):
            partitions = self._partitions(topic, rows)
            data = rows.select([name for name in rows.schema.names if name not in {"topic", "partition"}])
            if not self._settings.preserve_offsets:
                _check_times(topic.name, partitions, data)
            self._count(topic, rows, data)
            for partition in pyarrow.compute.unique(partitions).to_pylist():
                mask = pyarrow.compute.equal(partitions, partition)
                yield topic, partition, data if mask.true_count == len(mask) else data.filter(mask)

    def _count(self, topic: Topic, rows: pyarrow.RecordBatch, data: pyarrow.RecordBatch) -> None:
        """Add rows to what the job is known by. A partition belongs to it where the row names it, and not where we choose it."""
        parts = [(data, 1)]
        if "partition" in rows.schema.names:
            given = rows.column("partition")
            masks = {number: pyarrow.compute.equal(given, number) for number in pyarrow.compute.unique(given.drop_null()).to_pylist()}
            # Different odd factors: rows of one partition are not taken for rows of another.
            parts = [(data.filter(mask), 2 * number + 3) for number, mask in masks.items()]
            parts.append((data.filter(given.is_null()), 1))
        count, total = self.contents.get(topic.name, (0, 0))
        for part, factor in parts:
            found, digest = arrow_digest(part, preserve_offsets=self._settings.preserve_offsets)
            count, total = count + found, (total + factor * digest) % (1 << 128)
        self.contents[topic.name] = count, total

    def _by_topic(self, batch: pyarrow.RecordBatch) -> Iterator[tuple[Topic, pyarrow.RecordBatch]]:
        if self._settings.topic is not None:
            yield self._topic(self._settings.topic), batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            message = "a row has no topic: the column is null there, and there is no option topic"
            raise ConfigError(message, key="topic", value="")
        for name in pyarrow.compute.unique(topics).to_pylist():
            mask = pyarrow.compute.equal(topics, name)
            yield self._topic(name), batch if mask.true_count == len(mask) else batch.filter(mask)

    def _partitions(self, topic: Topic, rows: pyarrow.RecordBatch) -> pyarrow.Array:
        if "partition" not in rows.schema.names:
            return self._chosen(topic, rows)
        given = rows.column("partition")
        wrong = pyarrow.compute.or_(pyarrow.compute.less(given, 0), pyarrow.compute.greater_equal(given, topic.partitions))
        if wrong.true_count:
            partition = given.filter(wrong)[0].as_py()
            message = (
                f"partition {partition} found, topic {topic.name!r} has 0 to {topic.partitions - 1}; a topic that is made gets as "
                f'many as the option partitions says: a number, or {{"{topic.name}":{partition + 1}}}'
            )
            raise ConfigError(message, key="partition", value=str(partition))
        if not given.null_count:
            return given
        missing = given.is_null()
        return pyarrow.compute.replace_with_mask(given, missing, self._chosen(topic, rows.filter(missing)))

    def _chosen(self, topic: Topic, rows: pyarrow.RecordBatch) -> pyarrow.Array:
        """Return where rows go that say nothing of it."""
        count = rows.num_rows
        sticky = self._random.randrange(topic.partitions)
        if self._settings.partitioner == "round_robin":
            turn = self._turns.get(topic.name, sticky)
            self._turns[topic.name] = (turn + count) % topic.partitions
            return pyarrow.array([at % topic.partitions for at in range(turn, turn + count)], pyarrow.int32())
        if "key" not in rows.schema.names:
            return pyarrow.array([sticky] * count, pyarrow.int32())
        keys = rows.column("key").cast(pyarrow.large_binary()).to_pylist()
        if topic.name not in self._whole and rows.column("key").null_count < count:
            self._check_whole(topic)
        chosen = pyarrow.array(partitions_for(keys, topic.partitions), pyarrow.int32())
        return chosen.fill_null(sticky) if chosen.null_count else chosen

    def _check_whole(self, topic: Topic) -> None:
        """Refuse keys where appends to these log dirs do: with fewer partitions they would go to others than producers choose.

        Rows without a key may go to any partition, and producers too take one that they reach.
        """
        if self._asked is None or self._asked.topics().get(topic.name) != list(range(topic.partitions)):
            # It may have been made meanwhile.
            self._asked = LogDir.open(self._settings.paths)
        try:
            self._asked._engine().partition_count(topic.name)  # noqa: SLF001  # same package
        except LogDirError as error:
            error.add_note("the partition of a row is named in the column partition")
            raise
        self._whole.add(topic.name)

    def _topic(self, name: str) -> Topic:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = self._look_up(name)
        return found

    def _look_up(self, name: str) -> Topic:
        settings = self._settings
        deadline = time.monotonic() + MAKING_SECONDS
        while True:
            log_dir = LogDir.open(settings.paths)
            numbers = log_dir.topics().get(name, [])
            # Else another task or driver is making it.
            if _is_whole(numbers):
                directories = [partition_directory(settings.paths, name, number) for number in numbers]
                there = tuple(directory for directory in directories if directory is not None)
                # Else it is being deleted.
                if len(there) == len(numbers):
                    # The options apply to what is written here, even if the topic itself has other settings.
                    config = LogConfig.from_dict({**log_dir.topic_config(name).to_dict(), **dict(settings.config)})
                    settings.check_count(name, len(numbers))
                    return Topic(name, len(numbers), there, config)
            if time.monotonic() > deadline:
                message = f"of topic {name!r} only the partitions {numbers} are here: how many it has is not known"
                raise LogDirError(message, path=settings.paths[0])
            if numbers:
                time.sleep(0.05)
            else:
                self._make(name)

    def _make(self, name: str) -> None:
        settings = self._settings
        with LogDir.open(settings.paths, "a") as log_dir:
            _create_unless_there(log_dir, name, settings)
