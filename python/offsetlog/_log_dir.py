"""``LogDir`` and ``WritableLogDir``: one or several log dirs of a broker, opened as one for reading or for appending."""
# over 600 lines: the documentation of one public class; its code is in _topics, _unread and the engine.

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
from offsetlog._cluster import TopicSettings, cluster_options
from offsetlog._config import LogConfig
from offsetlog._groups import Group, ResetFile, groups_of, prometheus_of, reset_csv_of
from offsetlog._held_records import PartitionProducer, WhyAnswer, names_of, told
from offsetlog._log import Log
from offsetlog._metadata import MetadataImage, Stray, metadata_of, strays_of
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
    check_progress,
    checked_mode,
    checked_scan,
    flag,
    integer,
    isolation_level as checked_isolation,
    nearest,
    open_options,
    path_text,
    refuse,
)
from offsetlog._part import Part
from offsetlog._scan import Scan
from offsetlog._times import optional_millis
from offsetlog._topics import Config, Partitioner, Topics, checked_partitioner, topic_name
from offsetlog._transactions import Transaction, transactions_of
from offsetlog._unread import PartitionGone, ask_each
from offsetlog._upkeep import Upkeep, checked_interval
from offsetlog._values import OffsetAndTimestamp, TopicPartition
from offsetlog._writable_log import WritableLog
from offsetlog.errors import CorruptionError, ForkedLogError, LogClosedError, LogDirError, OffsetLogError, ReadOnlyLogError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack

__all__ = ["LogDir", "WritableLogDir"]

logger = logging.getLogger("offsetlog")


T = TypeVar("T")

# Up to seven files each: below the 1,024 that a process may have open by default.
MAX_OPEN_PARTITIONS = 100


class LogDir:
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

    def groups(self, *, progress: Callable[[int, int, str], object] | None = None) -> list[Group]:
        """Return the groups of consumers whose coordinators kept them here, by name: what they committed, and how far behind it is.

        Reads ``__consumer_offsets`` and ``__share_group_state`` from front to back, and of each partition that was committed where
        its log ends. Each offset that was committed below that end costs one look-up more, of the first record that is unread. A
        commit within a transaction counts when that is committed; of one without an end a warning tells, unless a broker is
        running. An offset of an earlier topic of the name has no lag, and neither has one of a log that ends below the high
        watermark of its log dir, nor one of a partition whose directory has another topic id than complete metadata has. Of replicas,
        where the log dirs of several brokers are given, one is taken. Records of types that are not known are left out, with a
        warning in the logger ``offsetlog``.

        Parameters
        ----------
        progress
            Called before each partition with the number of partitions done, the total, and the partition's name, and once more at
            the end. The total grows when the internal topics have been read and the partitions with committed offsets are known.
            An exception it raises ends the work.

        Raises
        ------
        UnreadPartitionsError
            Some partitions cannot be read; its ``partial`` has the groups all the same. A partition of the topic that is damaged,
            or holds a record that is not a coordinator's or is newer than Kafka 4.3's, is not reported: records after the damage
            may say otherwise. One that ends below the high watermark of its log dir is, with what is left, which may be old. If
            only the end of a log is unknown, the lag is ``None``. Damaged metadata of the cluster is such a partition too: it
            does not tell names of topics then, nor missing partitions.
        LogDirError
            The log dirs are of several clusters, by ``cluster.id`` in ``meta.properties``; so for `groups_prometheus`,
            `groups_reset_csv`, `transactions`, `producers` and `why`.

        Examples
        --------
        >>> with LogDir.open(["tests/data/kafka-4.3.0/clean/log-dir-1", "tests/data/kafka-4.3.0/clean/log-dir-2"]) as log_dir:
        ...     group = log_dir.groups()[0]
        ...     group.group_id, group.kind, [(each.topic, each.partition, each.offset, each.lag) for each in group.offsets[:2]]
        ('g-group-1', 'classic', [('g-codec-lz4', 0, 798, 0), ('g-plain', 0, 18, 182)])
        """
        check_progress(progress)
        return groups_of(self._engine(), progress)

    def groups_prometheus(self, *, now: When | None = None, progress: Callable[[int, int, str], object] | None = None) -> str:
        r"""Return what :meth:`groups` returns as Prometheus text, for an endpoint or the text files of ``node_exporter``.

        Gauges with the names and labels of ``kafka_exporter``: ``kafka_consumergroup_current_offset`` and ``kafka_consumergroup_lag``,
        the sums of both by topic, and ``kafka_consumergroup_members``. Besides these, ``kafka_consumergroup_lag_seconds`` is the age
        of the first record that is unread, 0 if everything is read; ``kafka_consumergroup_state`` is 1; and
        ``kafka_sharegroup_start_offset``, ``_lag`` and ``_lag_seconds`` are of share groups. A lag that is unknown is left out, and so
        is a sum over it. Costs as much as :meth:`groups`.

        Parameters
        ----------
        now
            The time up to which ages are counted: ``int`` of ms since 1970 or an aware ``datetime``; by default that of the log dir's
            clock.
        progress
            As for :meth:`groups`.

        Raises
        ------
        UnreadPartitionsError
            As for :meth:`groups`; its ``partial`` is the text of all others.

        Examples
        --------
        >>> with LogDir.open(["tests/data/kafka-4.3.0/clean/log-dir-1", "tests/data/kafka-4.3.0/clean/log-dir-2"]) as log_dir:
        ...     text = log_dir.groups_prometheus()
        >>> lags = (line for line in text.splitlines() if line.startswith("kafka_consumergroup_lag{"))
        >>> next(lags)
        'kafka_consumergroup_lag{consumergroup="g-group-1",topic="g-codec-lz4",partition="0"} 0'
        """
        check_progress(progress)
        return prometheus_of(self._engine(), optional_millis(now, "now"), progress)

    def groups_reset_csv(
        self, groups: str | Iterable[str] = (), *, progress: Callable[[int, int, str], object] | None = None
    ) -> ResetFile:
        """Return committed offsets as the file of ``kafka-consumer-groups.sh --reset-offsets --from-file``.

        Looks at no partition that the groups read. The file has offsets only: what was committed beside them is counted. Share groups,
        names with a line feed, and offsets of an earlier topic of the name are refused by name and are not in it. The logger
        ``offsetlog`` warns of a group that is not here.

        Parameters
        ----------
        groups
            Names of groups; by default all.
        progress
            As for :meth:`groups`; only the internal topics are read.

        Raises
        ------
        UnreadPartitionsError
            As for :meth:`groups`; its ``partial`` is the file of all others.

        Examples
        --------
        >>> with LogDir.open(["tests/data/kafka-4.3.0/clean/log-dir-1", "tests/data/kafka-4.3.0/clean/log-dir-2"]) as log_dir:
        ...     file = log_dir.groups_reset_csv("g-group-1")
        >>> file.csv.splitlines()[:2], file.groups
        (['g-codec-lz4,0,798', 'g-plain,0,18'], ('g-group-1',))
        """
        check_progress(progress)
        return reset_csv_of(self._engine(), names_of(groups, "groups"), progress)

    def transactions(self, *, progress: Callable[[int, int, str], object] | None = None) -> list[Transaction]:
        """Return the transactional ids whose coordinators kept them here, by name: producer, state, partitions, times.

        Reads ``__transaction_state`` from front to back; the last record of each id counts. Records of types that are not known are
        left out, with a warning in the logger ``offsetlog``.

        Parameters
        ----------
        progress
            As for :meth:`producers`; only ``__transaction_state`` is read.

        Raises
        ------
        UnreadPartitionsError
            A partition of the topic is damaged, or holds a record that is no coordinator's or newer than Kafka 4.3's: it is not
            reported; the error's ``partial`` has the ids of the others.

        Examples
        --------
        >>> with LogDir.open(["tests/data/kafka-4.3.0/clean/log-dir-1", "tests/data/kafka-4.3.0/clean/log-dir-2"]) as log_dir:
        ...     [(each.transactional_id, each.partitions) for each in log_dir.transactions() if each.state == "Ongoing"]
        [('g-tx-open', (('g-txn', (0,)),))]
        """
        check_progress(progress)
        return transactions_of(self._engine(), progress)

    def producers(
        self,
        *,
        topics: str | Iterable[str] = (),
        open_only: bool = False,
        progress: Callable[[int, int, str], object] | None = None,
    ) -> list[PartitionProducer]:
        """Return the producers that the partitions know, by partition; also those that ``__transaction_state`` does not know.

        They come from the newest producer snapshot that agrees with the log, and from the batches behind it. A broker forgets
        producers that were idle for ``producer.id.expiration.ms``; here they are returned as long as the files show them.
        ``"hanging"`` is only said if all partitions of ``__transaction_state`` are in these log dirs by the :meth:`metadata`, and
        can be read. Costs a walk over the batch headers behind the snapshot of each partition.

        Parameters
        ----------
        topics
            Only these topics; all by default.
        open_only
            Only producers with an open transaction, the oldest transaction of each partition first.
        progress
            Called before each partition with the number of partitions done, the total, and the partition's name, and once more at
            the end. An exception it raises ends the work.

        Raises
        ------
        UnreadPartitionsError
            Some partitions cannot be read; its ``partial`` has the producers of the others.
        LogDirError
            There is no topic of a name in `topics`, neither here nor in the cluster's metadata. Of one that is in the metadata alone
            the logger ``offsetlog`` has a warning.

        Examples
        --------
        >>> with LogDir.open(["tests/data/kafka-4.3.0/clean/log-dir-1", "tests/data/kafka-4.3.0/clean/log-dir-2"]) as log_dir:
        ...     [(each.topic, each.transactional_id, each.standing) for each in log_dir.producers(open_only=True)]
        [('g-txn', 'g-tx-open', 'ongoing')]
        """
        check_progress(progress)
        only, named = flag("open_only", open_only), self._known_topics(names_of(topics))
        return told(_offsetlog.producers(self._engine(), topics=named, open_only=only, progress=progress))

    def why(
        self,
        *,
        topics: str | Iterable[str] = (),
        broker: PathLike | None = None,
        metadata: PathLike | None = None,
        now: When | None = None,
        progress: Callable[[int, int, str], object] | None = None,
    ) -> list[WhyAnswer]:
        """Return what keeps records of each partition from being deleted, compacted, or read with ``read_committed``.

        By partition: an answer about deletion, one about compaction if it is compacted, and one about reading if
        ``read_committed`` ends before the log does. Applies Kafka's rules to the settings of :meth:`topic_settings`. Changes
        nothing.

        Parameters
        ----------
        topics
            Only these topics; by default all but the cluster's metadata log.
        broker
            Path of the broker's ``server.properties``.
        metadata
            The folder with ``__cluster_metadata-0``, if it is in none of the log dirs; of a cluster with ZooKeeper its data.
        now
            The time by which ages count: ``int`` of ms since 1970 or an aware ``datetime``. The clock of the log dir by default.
        progress
            As for :meth:`producers`.

        Raises
        ------
        UnreadPartitionsError
            Some partitions cannot be read; its ``partial`` has the answers of the others, and those of them that the
            damage does not touch.
        LogDirError
            Neither a metadata log nor ZooKeeper's data is in `metadata`; and for `topics` as for :meth:`producers`.

        Examples
        --------
        >>> with LogDir.open("tests/data/kafka-4.3.0/clean/log-dir-2") as log_dir:
        ...     [(each.question, each.reason, each.offset) for each in log_dir.why(topics="g-txn") if each.question != "deletion"]
        [('read_committed', 'open-transaction', 347)]
        """
        check_progress(progress)
        answers = _offsetlog.why(
            self._engine(),
            topics=self._known_topics(names_of(topics), metadata),
            broker=None if broker is None else path_text(broker),
            metadata=None if metadata is None else path_text(metadata),
            now=optional_millis(now, "now"),
            progress=progress,
        )
        return told(answers)

    def metadata(
        self, *, show_secrets: bool = False, progress: Callable[[int, int, str], object] | None = None
    ) -> MetadataImage | None:
        """Return what the cluster's metadata says: topics with ids and partitions, settings, brokers; ``None`` where it is not here.

        ``__cluster_metadata-0`` is in ``metadata.log.dir`` of a controller or broker; without that setting in the first of its log
        dirs. The newest snapshot comes first, then the log behind it. Records of a metadata transaction count once it has ended;
        records that the quorum has not committed yet are not distinguished. Records of unknown types, and changes to things that
        do not exist, are left out, with a warning in the logger ``offsetlog``. A file that was set aside from the log, as in
        ``offsetlog-cut``, is read if it is given alone, and a warning says that it is a part.

        Of a cluster with ZooKeeper it is what the data of one of ZooKeeper's servers says, where that folder (``dataDir``, or the one
        around ``dataDir`` and ``dataLogDir``) is among the paths, or is the `metadata` with which log dirs were opened for appending.

        Parameters
        ----------
        show_secrets
            Return values of dynamic settings that are passwords, or that Kafka does not know. Otherwise they are ``"[hidden]"``:
            a broker does not return them either. SCRAM credentials are never returned.
        progress
            Called before the snapshot and before the log behind it, of ZooKeeper's data before each of its files, with the number of
            these that are done, the number known by then, and the path; and once more at the end. An exception it raises ends the
            work.

        Raises
        ------
        CorruptionError, UnsupportedVersionError
            The log or the snapshot is damaged, or holds a record that is not a metadata record or is newer than Kafka 4.3's.
        MetadataFileError, LogDirError
            ZooKeeper's data is damaged; transactions are missing in it, it is another cluster's, or the cluster has moved to KRaft.
            Or a file that was set aside from the log is given beside log dirs.

        Examples
        --------
        >>> with LogDir.open("tests/data/kafka-4.3.0/clean/metadata-dir") as log_dir:
        ...     image = log_dir.metadata()
        >>> [(topic.topic_id, len(topic.partitions)) for topic in image.topics if topic.name == "g-plain"]
        [('pf7cXgbVTTeuM8IYSzk58w', 3)]
        >>> image.configs["topic", "g-plain"]["internal.segment.bytes"]
        '8192'
        >>> stopped = "tests/data/kafka-3.9.2-zookeeper"
        >>> with LogDir.open([f"{stopped}/log-dir", f"{stopped}/zookeeper"]) as log_dir:
        ...     image = log_dir.metadata()
        >>> image.configs["topic", "own"]["cleanup.policy"]
        'compact,delete'
        """
        check_progress(progress)
        return metadata_of(self._engine(), progress, show_secrets=flag("show_secrets", show_secrets))

    def strays(self, *, progress: Callable[[int, int, str], object] | None = None) -> list[Stray] | None:
        """Return the partition directories here that the :meth:`metadata` does not have; ``None`` where it cannot be told.

        That is without metadata here, or with one of which a part is missing: the logger ``offsetlog`` then has a warning.

        Topic ids decide; if a directory or the topic has no id, its name does. So a topic that was deleted and made again is told
        apart. A topic that was made behind :attr:`MetadataImage.end_offset` is not in the metadata. Reads the metadata, and of each
        directory a small file.

        Parameters
        ----------
        progress
            As for :meth:`metadata`, and then before each directory.

        Raises
        ------
        MetadataFileError
            A ``partition.metadata`` is malformed.
        CorruptionError, UnsupportedVersionError, LogDirError
            As for :meth:`metadata`.

        Examples
        --------
        >>> with LogDir.open(["tests/data/kafka-4.3.0/clean/log-dir-1", "tests/data/kafka-4.3.0/clean/metadata-dir"]) as log_dir:
        ...     log_dir.strays()
        []
        """
        check_progress(progress)
        return strays_of(self._engine(), progress)

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

    def _known_topics(self, named: list[str], metadata: PathLike | None = None) -> list[str]:
        """Return names of topics that there are. Of a mistyped one nothing would be found, which reads as if nothing were wrong."""
        here = self.topics()
        missing = [name for name in named if name not in here]
        if missing:
            try:
                image = (self if metadata is None else LogDir.open(path_text(metadata))).metadata()
            except (OffsetLogError, OSError) as error:
                # It may know them, and does not tell.
                near = nearest(missing[0], here)
                message = f"no partition of topic {missing[0]!r} is here{near}; the cluster's metadata cannot be read: {error}"
                raise LogDirError(message, path=self._paths[0] if self._paths else None) from error
            cluster = {topic.name for topic in image.topics} if image is not None else set()
            for name in missing:
                if name not in cluster:
                    message = f"there is no topic {name!r}{nearest(name, [*here, *cluster])}"
                    raise LogDirError(message, path=self._paths[0] if self._paths else None)
                logger.warning("no partition of topic %r is here", name)
        return named

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

    def topic_settings(self, name: str, *, broker: PathLike | None = None, metadata: PathLike | None = None) -> TopicSettings:
        """Return the effective settings of a topic, each with the layer that it comes from.

        In a broker's log dir the layers are, highest first: the topic's own settings in the cluster, the broker's dynamic
        settings, the cluster's dynamic defaults, `broker`'s ``server.properties``, Kafka's default. Elsewhere they are the
        settings stored beside the topic, then the `defaults`. A setting that may be in a missing layer is ``"unknown"``.

        Parameters
        ----------
        name
            Name of the topic.
        broker
            Path of the broker's ``server.properties``.
        metadata
            The folder that holds ``__cluster_metadata-0``, where that is none of the log dirs; of a cluster with ZooKeeper the data of
            that.

        Raises
        ------
        LogDirError
            There is no such topic, or neither a metadata log nor data of ZooKeeper's in `metadata`.

        Examples
        --------
        >>> clean = "tests/data/kafka-4.3.0/clean"
        >>> with LogDir.open([f"{clean}/log-dir-1", f"{clean}/metadata-dir"]) as log_dir:
        ...     found = log_dir.topic_settings("g-compact").settings
        >>> found["cleanup.policy"][:2], found["retention.ms"][:2]
        (('compact', 'topic'), (None, 'unknown'))
        """
        return self._engine().topic_settings(
            name,
            broker=None if broker is None else path_text(broker),
            metadata=None if metadata is None else path_text(metadata),
        )

    def topic_config(self, name: str) -> LogConfig:
        """Return the settings that are stored with a topic; defaults are not among them.

        Raises
        ------
        LogDirError
            There is no such topic.
        """
        return LogConfig.from_dict(dict(self._engine().topic_config(topic_name(name))))

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
