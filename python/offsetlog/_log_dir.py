"""``LogDir`` and ``WritableLogDir``: one or several log dirs of a broker, opened as one for reading or for appending."""
# over 600 lines: the documentation of one public class; its code is in _cluster_questions, _topics, _unread and the engine.

from __future__ import annotations

import html
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload
from weakref import WeakSet

from offsetlog import _offsetlog
from offsetlog._append_arguments import config_pairs
from offsetlog._closing import close_behind
from offsetlog._cluster import cluster_options
from offsetlog._cluster_questions import ClusterQuestions
from offsetlog._log import Log
from offsetlog._options import (
    Clock,
    IsolationLevel,
    Limits,
    LogDirOptions,
    OpenOptions,
    PathLike,
    ScanOptions,
    When,
    bounded,
    checked_mode,
    checked_scan,
    flag,
    integer,
    isolation_level as checked_isolation,
    open_options,
    path_text,
    refuse,
)
from offsetlog._part import Part
from offsetlog._scan import Scan
from offsetlog._topics import Config, Partitioner, Topics, checked_partitioner, topic_name
from offsetlog._unread import PartitionGone, ask_each
from offsetlog._upkeep import Upkeep, checked_interval
from offsetlog._values import OffsetAndTimestamp, TopicPartition
from offsetlog._writable_log import WritableLog
from offsetlog.errors import CorruptionError, ForkedLogError, LogClosedError, LogDirError, ReadOnlyLogError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack

__all__ = ["LogDir", "WritableLogDir"]

logger = logging.getLogger("offsetlog")


T = TypeVar("T")

# Up to seven files each: below the 1,024 that a process may have open by default.
MAX_OPEN_PARTITIONS = 100


class LogDir(ClusterQuestions):
    """The log dirs of a broker (``log.dirs``), one or several as one, or any folder that holds partition directories.

    Made by :meth:`LogDir.open`. Reading takes no lock, makes no file and changes nothing. If a partition is in two of the folders,
    the newest valid replica is used: that of the newest leader epoch, of those the one that can be read furthest, and of equals the
    one that lacks the fewest offsets between its segments. Folders that are no partitions are left out, with a warning in the
    logger ``offsetlog`` where a broker would refuse to start. Opened with mode ``"a"`` it makes and deletes topics and appends
    records by topic.

    After a fork the child opens again; pickles as absolute paths and options.

    All calls may overlap in several threads. Of one that was opened for appending this is what threads can rely on:

    * Two calls never meet each other's lock: :class:`LogLockedError` names somebody else, or a :class:`Log` that was opened apart
      from this object. Appends to one partition come one after the other, those to different ones at the same time.
    * At most `max_open_partitions` are open, and those that a running call or a :class:`Log` of :meth:`log` holds. Calls over all
      partitions (:meth:`scan`, :meth:`end_offsets`, :meth:`maintain`, ...) hold one at a time. Following a scan holds all of its.
      What was held beyond that is closed by later calls.
    * A partition that another thread closes (:meth:`Log.close` of what :meth:`log` gave) is opened again by the next call here; a call
      that was about to use it does so too. That :class:`Log` itself, and others of the partition, stay closed.
    * While a topic is deleted, calls that name it wait, and then raise :class:`LogDirError`; calls over all partitions leave it out. A
      scan that is in the middle of it may end with :class:`FileNotFoundError`. What was appended before is deleted with it.
    * :meth:`create_topic`, :meth:`delete_topic` and :meth:`set_topic_config` come one after the other, and so do removals by
      :meth:`remove_deleted` and :meth:`maintain`, and upkeep of one partition: each does what the one before has left.
    * :meth:`flush` returns when all is durable that was appended before it was called.
    * :meth:`close` waits for what runs on a partition. Everything later, here and on logs of :meth:`log`, raises
      :class:`LogClosedError`, and no file stays open.

    Examples
    --------
    >>> with LogDir.open(["tests/data/kafka-4.3.0/clean/log-dir-1", "tests/data/kafka-4.3.0/clean/log-dir-2"]) as log_dir:
    ...     log_dir.topics()["g-plain"]
    [0, 1, 2]
    """

    __slots__ = (
        "__weakref__",
        "_absolute",
        "_appender",
        "_lent",
        "_lent_lock",
        "_native",
        "_options",
        "_partitioner",
        "_paths",
        "_pid",
        "_upkeep",
    )

    _appender: _offsetlog.LogDirAppender | None
    _lent: WeakSet[Log]
    _lent_lock: Lock
    _partitioner: Partitioner
    _upkeep: Upkeep | None
    _native: _offsetlog.LogDir | None
    _options: OpenOptions
    _paths: tuple[str, ...]
    _absolute: tuple[str, ...]
    _pid: int

    def __init__(self) -> None:
        message = "open log dirs with LogDir.open(paths)"
        raise TypeError(message)

    @overload
    @classmethod
    def open(
        cls, paths: PathLike | Sequence[PathLike], mode: Literal["r"] = "r", *, mapped: bool = False, **limits: Unpack[Limits]
    ) -> LogDir: ...

    @overload
    @classmethod
    def open(
        cls,
        paths: PathLike | Sequence[PathLike],
        mode: Literal["a"],
        *,
        defaults: Config | None = None,
        partitioner: Partitioner | None = None,
        max_open_partitions: int | None = None,
        seed: int | None = None,
        maintain_every: float | timedelta | None = None,
        broker: PathLike | None = None,
        metadata: PathLike | None = None,
        internal_topics: str | Iterable[str] = (),
        single_replica: bool = False,
        clock: Clock | None = None,
        mapped: bool = False,
        **limits: Unpack[Limits],
    ) -> WritableLogDir: ...

    @overload
    @classmethod
    def open(
        cls,
        paths: PathLike | Sequence[PathLike],
        mode: Literal["r", "a"],
        *,
        defaults: Config | None = None,
        partitioner: Partitioner | None = None,
        max_open_partitions: int | None = None,
        seed: int | None = None,
        maintain_every: float | timedelta | None = None,
        broker: PathLike | None = None,
        metadata: PathLike | None = None,
        internal_topics: str | Iterable[str] = (),
        single_replica: bool = False,
        clock: Clock | None = None,
        mapped: bool = False,
        **limits: Unpack[Limits],
    ) -> LogDir: ...

    @classmethod
    def open(  # noqa: PLR0913  # one parameter a limit
        cls,
        paths: PathLike | Sequence[PathLike],
        mode: Literal["r", "a"] = "r",
        *,
        defaults: Config | None = None,
        partitioner: Partitioner | None = None,
        max_open_partitions: int | None = None,
        seed: int | None = None,
        maintain_every: float | timedelta | None = None,
        broker: PathLike | None = None,
        metadata: PathLike | None = None,
        internal_topics: str | Iterable[str] = (),
        single_replica: bool = False,
        clock: Clock | None = None,
        mapped: bool = False,
        **limits: Unpack[Limits],
    ) -> LogDir:
        """Open one or several log dirs.

        Parameters
        ----------
        paths
            One folder, or several. For reading, the data of the cluster's ZooKeeper may be among them: :meth:`metadata`.
        mode
            ``"r"``: read only. ``"a"``: read and append; makes folders that are missing, unless another one is in use, and takes a
            shared lock on each one's ``.lock``, which a running broker holds.
        defaults
            Settings for topics that do not set them themselves, for appending: a :class:`LogConfig`, such as
            :attr:`BrokerSettings.topic_defaults`, or a mapping of Kafka's names. They are not stored.
        partitioner
            How :meth:`append` routes: ``"default"`` as today's Java producer, ``"round_robin"``, or a callable that is given topic,
            key, value and the number of partitions, and returns a partition.
        max_open_partitions
            How many partitions are open for appending at a time that nobody holds, default 100; each takes up to seven files.
            The least recently used one is closed, which flushes it.
        seed
            Makes what is drawn at random (partitions, ids) the same in each run.
        maintain_every
            Has a thread call :meth:`maintain` at this interval in seconds (or a :class:`~datetime.timedelta`), until the log dir
            is closed. What it did, and what failed, goes to the logger ``offsetlog``; after any error the next round tries again. A
            forked child has no such thread.
        broker
            Path of the broker's ``server.properties``, for appending and maintaining in a broker's log dir: the layer below the
            cluster's own settings. Elsewhere as `defaults`.
        metadata
            In a broker's log dir, the folder that holds ``__cluster_metadata-0``, where that is none of `paths`; of a cluster with
            ZooKeeper the data of that.
        internal_topics
            Names of brokers' own topics, as ``"__consumer_offsets"``, that may be deleted, cut and maintained all the same.
        single_replica
            Whether records may be changed though other brokers have replicas of their partition.
        clock, mapped, **limits
            As for :meth:`Log.open`; they hold for every partition.

        Raises
        ------
        FileNotFoundError, NotADirectoryError, PermissionError
            As the operating system says, with ``errno`` and ``filename``.
        ConfigError
            An argument has a value that cannot be used.
        LogLockedError
            For appending: a broker runs on one of the folders; a partition is open for appending in a folder that was no log dir yet.
        LogDirError
            A folder is something else than a log dir, or nothing of a log dir is in it, as in the mount point of a disk that is not
            mounted. For appending: one is missing or empty while another one is in use, since keys would go to other partitions; all
            of them may be new. To add a log dir on purpose, open it alone for appending first.

        Notes
        -----
        Lists the folders; partitions are opened, and recovered where that is due, when they are asked for. A checkpoint that does not
        parse counts as none, as in a broker; :func:`offsetlog.verify` names it.
        """
        checked_mode(mode, clock)
        given: dict[str, object] = {"defaults": defaults, "partitioner": partitioner, "max_open_partitions": max_open_partitions}
        given |= {"seed": seed, "maintain_every": maintain_every, "broker": broker, "metadata": metadata}
        given |= {"internal_topics": internal_topics or None, "single_replica": flag("single_replica", single_replica) or None}
        for name, value in given.items():
            if mode == "r" and value is not None:
                refuse(name, value, "is for appending; open with mode 'a'")
        options = open_options(mapped=mapped, **limits)
        listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        texts = tuple(path_text(path) for path in listed)
        seconds = checked_interval(maintain_every)
        appender = None
        if mode == "a":
            many = MAX_OPEN_PARTITIONS if max_open_partitions is None else max_open_partitions
            write = LogDirOptions(
                defaults=[] if defaults is None else config_pairs(defaults),
                clock=clock,
                max_open_partitions=integer("max_open_partitions", many, minimum=1),
                seed=None if seed is None else integer("seed", seed, minimum=0),
                cluster=cluster_options(metadata, broker, internal_topics, single_replica=single_replica),
            )
            appender = _offsetlog.LogDirAppender.open(texts, options, write)
        native = _offsetlog.LogDir.open(texts, options) if appender is None else appender.log_dir()
        for warning in native.warnings():
            logger.warning("%s", warning)
        log_dir = object.__new__(cls if appender is None else WritableLogDir)
        log_dir._native = native
        log_dir._appender = appender
        log_dir._partitioner = checked_partitioner("default" if partitioner is None else partitioner)
        log_dir._options = options
        log_dir._paths = texts
        log_dir._absolute = tuple(os.path.abspath(path) for path in texts)
        log_dir._pid = _offsetlog.process_id()
        log_dir._lent = WeakSet()
        log_dir._lent_lock = Lock()
        log_dir._upkeep = Upkeep(log_dir, seconds) if isinstance(log_dir, WritableLogDir) and seconds is not None else None
        return log_dir

    def _engine(self) -> _offsetlog.LogDir:
        native = self._native
        if native is None:
            message = f"log dir is closed; {', '.join(self._paths)}"
            raise LogClosedError(message, path=self._paths[0] if self._paths else None)
        if self._pid != _offsetlog.process_id():
            if self._appender is not None:
                message = (
                    f"{', '.join(self._paths)}: opened for appending in process {self._pid}; a child process cannot write through "
                    "its parent's log dir: open it there with mode 'r'"
                )
                raise ForkedLogError(message, path=self._paths[0])
            native = _offsetlog.LogDir.open(self._absolute, self._options)
            self._native = native
            self._pid = _offsetlog.process_id()
        return native

    def _later(self, key: tuple[str, int], *, required: bool) -> _offsetlog.Later:
        engine = self._engine()
        return engine.later(*key) if self._appender is None else self._appender.later(*key, required)

    def _appending(self) -> _offsetlog.LogDirAppender:
        self._engine()
        if self._appender is None:
            message = "the log dir was opened for reading; open it with mode 'a' to write"
            raise ReadOnlyLogError(message, key="mode", value="r")
        return self._appender

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in vars(Topics) and not name.startswith("_"):
                self._appending()
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(text)

    @property
    def paths(self) -> tuple[str, ...]:
        """The folders, as given to :meth:`open`."""
        return self._paths

    @property
    def mode(self) -> str:
        """``"r"`` or ``"a"``."""
        return "r" if self._appender is None else "a"

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._native is None

    def refresh(self) -> None:
        """Look again at what other processes may have changed.

        Lists the folders to find added and removed partitions. If several folders have a replica of a partition and one of them
        has changed, the next opening of it chooses again; open logs keep their replica. The next question about settings reads
        the cluster's metadata again. What is made or deleted through this object is known without it. For what logs see, see
        :class:`Log`.

        Raises
        ------
        OSError, LogDirError
            A folder cannot be listed, or nothing of a log dir is in it any more; what is known is then unchanged.
        """
        self._engine().refresh()

    def topics(self) -> dict[str, list[int]]:
        """Return the topics in order of their names, each with its partition numbers in order."""
        topics: dict[str, list[int]] = {}
        for topic, partition in self._engine().partitions():
            topics.setdefault(topic, []).append(partition)
        return topics

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions, ordered by topic and number."""
        return self._engine().partitions()

    def log(self, topic: str, partition: int) -> Log:
        """Open one partition.

        Of a log dir that was opened for appending it is the one log that appends: closing it closes it for all, and the next use
        opens it again.

        Parameters
        ----------
        topic
            Name of the topic.
        partition
            Number of the partition.

        Raises
        ------
        LogDirError
            No folder holds this partition; or several do, with different topic ids, and no metadata among the folders has one of them:
            a topic was deleted and created again, and a folder that was away meanwhile has the first.

        Examples
        --------
        >>> with LogDir.open("tests/data/kafka-4.3.0/clean/log-dir-1") as log_dir:
        ...     log_dir.log("g-many-entries", 0).log_end_offset
        1500
        """
        log = self._log(topic, partition, required=True)
        assert log is not None  # noqa: S101  # else it is an error
        return log

    def _log(self, topic: str, partition: int, *, required: bool) -> Log | None:
        engine = self._engine()
        topic, partition = topic_name(topic), bounded("partition", partition, minimum=-(1 << 31), bits=32)
        if self._appender is not None:
            appender = self._appender.log(topic, partition, required)
            if appender is None:
                return None
            native = appender.log()
            log = WritableLog._writing_to(native, native.path, self._options, appender)  # noqa: SLF001  # same package
            with self._lent_lock:
                self._lent.add(log)
            return log
        known = set(engine.warnings())
        native = engine.log(topic, partition)
        new = (warning for warning in engine.warnings() if warning not in known)
        for warning in (*new, *native.warnings()):
            logger.warning("%s", warning)
        return Log._of(native, native.path, self._options)  # noqa: SLF001  # same package

    def scan(self, partitions: Iterable[tuple[str, int]] | None = None, **options: Unpack[ScanOptions]) -> Scan:
        """Return one scan over several partitions, one after the other. Nothing is read yet.

        Damage in one partition hides no other: with ``on_corrupt="raise"`` a read returns the records before the damage and all
        records of the other partitions, and at its end raises :class:`UnreadPartitionsError`, whose ``failed`` has the error of
        each damaged partition and whose ``partial`` has what ``to_arrow``, ``to_polars``, ``to_pandas`` or ``count`` would have
        returned. The same holds for a partition that cannot be opened because of its folder's contents, or whose topic id is not that
        of the topic's partitions before it; with ``"skip"`` and ``"stop"`` the report lists it. For a single partition the error is
        raised as it is. Errors of the operating system are raised as they are, at once.

        Parameters
        ----------
        partitions
            Which ones, in this order; ``None`` is all of :meth:`partitions`. Of more than 100 each is opened when its turn comes.
        **options
            As for :meth:`Log.scan`, without ``start`` and ``stop``. ``limit`` counts over all partitions together.

        Raises
        ------
        LogDirError
            One of the partitions is not there.
        ConfigError
            An option has a value that cannot be used.

        Examples
        --------
        >>> with LogDir.open("tests/data/kafka-4.3.0/clean/log-dir-1") as log_dir:
        ...     log_dir.scan([("g-plain", 0), ("g-plain", 2)], limit=5).count()
        5
        """
        checked = checked_scan(**options)
        wanted = self._wanted(partitions)
        # Each open log holds a file: of many partitions, a process may not have as many.
        if self._appender is not None or len(wanted) > MAX_OPEN_PARTITIONS:
            required = partitions is not None
            chosen = self._chosen(wanted if required else None)
            opener = self if self._appender is not None else self._unclosed()
            ranges = tuple((Part(opener, key, required=required), None, None) for key in chosen)
            return Scan._of(ranges, checked, raises_last=True)  # noqa: SLF001
        opened = tuple((self._opened(key, alone=len(wanted) == 1), None, None) for key in wanted)
        return Scan._of(opened, checked, raises_last=True)  # noqa: SLF001

    def beginning_offsets(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition, inclusive; ``None`` asks for all partitions.

        Raises
        ------
        UnreadPartitionsError
            Of several partitions some cannot be read; its ``partial`` has the offsets of the others. Of a single one the error is
            raised as it is.
        """
        return self._ask(partitions, lambda log: log.log_start_offset)

    def end_offsets(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> dict[TopicPartition, int]:
        """Return the end of each partition, exclusive; ``None`` asks for all partitions.

        With ``"read_uncommitted"`` that is the log end offset, with ``"read_committed"`` the last stable offset.

        Raises
        ------
        UnreadPartitionsError
            As for :meth:`beginning_offsets`.
        """
        committed = checked_isolation(isolation_level) == "read_committed"
        return self._ask(partitions, lambda log: log.last_stable_offset if committed else log.log_end_offset)

    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, When] | Mapping[tuple[str, int], When],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, for each partition, the first record at or after its time: :meth:`Log.offset_for_timestamp` for many.

        Parameters
        ----------
        timestamps
            Partition to time: ``int`` of ms since 1970, or an aware ``datetime``.
        isolation_level
            As for :meth:`Log.offset_for_timestamp`.

        Raises
        ------
        UnreadPartitionsError
            As for :meth:`beginning_offsets`.
        """
        given: object = timestamps
        if not isinstance(given, Mapping):
            message = f"timestamps must be a mapping of partitions to times, found {type(given).__name__}"
            raise TypeError(message)
        whens = {TopicPartition(*key): when for key, when in timestamps.items()}

        def at(key: TopicPartition) -> OffsetAndTimestamp | None:
            when = partial(Log.offset_for_timestamp, when=whens[key], isolation_level=isolation_level)
            return self._ask_one(key, when, required=True)

        return ask_each(self._chosen(whens), at)

    @staticmethod
    def _another(path: str) -> LogDir:
        return LogDir.open(path)

    def _unclosed(self) -> LogDir:
        """Return the same engine behind an object that nobody closes: a scan for reading continues when this one is closed."""
        self._engine()
        other = LogDir.__new__(LogDir)
        for name in LogDir.__slots__:
            if name != "__weakref__":
                setattr(other, name, getattr(self, name))
        return other

    def _wanted(self, partitions: Iterable[tuple[str, int]] | None) -> list[TopicPartition]:
        chosen = self.partitions() if partitions is None else [TopicPartition(*key) for key in partitions]
        return list(dict.fromkeys(chosen))

    def _opened(self, key: TopicPartition, *, alone: bool) -> Log | Part:
        """Return the log; of several, one that cannot be opened waits for its turn, which reports it."""
        try:
            return self.log(*key)
        except (LogDirError, CorruptionError):
            if alone or key not in self.partitions():
                raise
            return Part(self, key, required=True)

    def _chosen(self, partitions: Iterable[tuple[str, int]] | None) -> list[TopicPartition]:
        """Return what is asked for, once it is known to be there."""
        chosen = self._wanted(partitions)
        known = frozenset(self.partitions())
        for key in chosen if partitions is not None else ():
            if key not in known:
                # Says what is there.
                self.log(*key)
        return chosen

    def _ask(self, partitions: Iterable[tuple[str, int]] | None, question: Callable[[Log], T]) -> dict[TopicPartition, T]:
        """Ask one partition after the other, each held alone. Of all partitions, those that are deleted meanwhile are left out."""
        required = partitions is not None
        return ask_each(self._chosen(partitions), lambda key: self._ask_one(key, question, required=required))

    def _ask_one(self, key: TopicPartition, question: Callable[[Log], T], *, required: bool) -> T:
        while True:
            log = self._log(*key, required=required)
            if log is None:
                raise PartitionGone
            try:
                return question(log)
            except (LogClosedError, FileNotFoundError):
                # Closed or deleted by another thread: the next look says which.
                if not log.closed:
                    raise

    def close(self) -> None:
        """Let go of the files. Closing twice is fine; logs and scans of a log dir that was opened for reading continue.

        One that was opened for appending closes all its partitions cleanly, as :meth:`Log.close`, those too that somebody has from
        :meth:`log`; what waits in a :class:`Writer` of one is appended before. A round of ``maintain_every`` that runs is waited for,
        up to a minute; Ctrl-C ends the wait, and the log dir is closed all the same. Calls of other threads that run meanwhile end
        before, or raise :class:`LogClosedError`.
        """
        self._native = None
        if self._appender is None or self._pid != _offsetlog.process_id():
            return
        # Ctrl-C may end the wait for a round of upkeep, or come before it: all is closed even so, and by a second call where not here.
        try:
            if self._upkeep is not None:
                self._upkeep.stop()
        finally:
            try:
                self._appender.close()
            finally:
                self._take_back(None)

    def _take_back(self, topic: str | None) -> None:
        """Let the logs that were handed out go of their files: they are closed, and nothing can be asked of them any more."""
        with self._lent_lock:
            # A topic of the same name may have been made meanwhile.
            lent = [log for log in self._lent if topic is None or (log.topic == topic and log._is_done())]  # noqa: SLF001  # same package
        for log in lent:
            log.close()

    def __enter__(self) -> Self:
        self._engine()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        close_behind(error, self.close)

    def __reduce__(self) -> tuple[Any, ...]:
        self._engine()
        if self._appender is not None:
            message = "a log dir that is open for appending does not pickle; pickle its paths, or one opened for reading"
            raise TypeError(message)
        return (_reopened, (self._absolute, self._options))

    def __repr__(self) -> str:
        where = ", ".join(map(repr, self._paths))
        if self._native is None:
            return f"LogDir({where}, closed)"
        partitions = self._engine().partitions()
        topics = len({topic for topic, _ in partitions})
        return f"LogDir({where}, {topics} topic{'s' * (topics != 1)}, {len(partitions)} partition{'s' * (len(partitions) != 1)})"

    def _repr_html_(self) -> str:
        if self._native is None:
            return f"<p>{html.escape(repr(self))}</p>"
        head = "<tr><th>topic</th><th>partitions</th></tr>"
        rows = "".join(f"<tr><td>{html.escape(topic)}</td><td>{len(numbers)}</td></tr>" for topic, numbers in self.topics().items())
        return f"<p>{html.escape(', '.join(self._paths))}</p><table>{head}{rows}</table>"


class WritableLogDir(Topics, LogDir):
    """A :class:`LogDir` that is open for appending: ``LogDir.open(paths, "a")``."""

    __slots__ = ()

    def log(self, topic: str, partition: int) -> WritableLog:
        """Return the log of a partition, as :meth:`LogDir.log`; it can be appended to."""
        log = super().log(topic, partition)
        assert isinstance(log, WritableLog)  # noqa: S101  # as `_log` makes them here
        return log


def _reopened(paths: tuple[str, ...], options: OpenOptions) -> LogDir:
    return LogDir.open(paths, mapped=options["mapped"], **options["limits"])
