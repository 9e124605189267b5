"""What a :class:`~offsetlog.WritableLogDir` can do beside reading: topics, and records by topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from offsetlog import _offsetlog
from offsetlog._append_arguments import checked_bytes, checked_epoch, checked_headers, config_pairs
from offsetlog._config import LogConfig
from offsetlog._maintain import maintain_options
from offsetlog._options import bounded, checked_topic_id, flag, nearest, path_text, refuse, utf8
from offsetlog._times import optional_millis
from offsetlog._values import LogDirMaintainReport, RecordMetadata

if TYPE_CHECKING:
    from offsetlog._append_arguments import Buffer, Headers
    from offsetlog._config import SettingValue
    from offsetlog._maintain import Upkeep
    from offsetlog._options import PathLike, When

__all__ = ["BrokerSettings", "partition_for", "partitions_for"]

PartitionerCall: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
Partitioner: TypeAlias = Literal["default", "round_robin"] | PartitionerCall
Config: TypeAlias = "LogConfig | Mapping[str, SettingValue]"

_PARTITIONERS = ("default", "round_robin")


class BrokerSettings(NamedTuple):
    r"""What a broker's ``server.properties`` says about storage.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "server.properties")
    ...     _ = path.write_text("log.dirs=/data/a,/data/b\nlog.retention.hours=24\nlog.retention.minutes=5")
    ...     settings = BrokerSettings.read(path)
    >>> settings.log_dirs, settings.topic_defaults.retention_ms
    (('/data/a', '/data/b'), 300000)
    """

    topic_defaults: LogConfig
    """Defaults for topics that do not set them."""
    log_dirs: tuple[str, ...]
    """``log.dirs``, or else ``log.dir``, or else Kafka's own default."""

    @classmethod
    def read(cls, path: PathLike) -> BrokerSettings:
        """Read a ``server.properties``; ignore settings that are not about storage.

        Of several names for one setting the one that Kafka prefers counts: ``log.retention.ms`` before ``.minutes`` before
        ``.hours``, ``log.roll.ms`` before ``log.roll.hours``, ``log.dirs`` before ``log.dir``.

        Raises
        ------
        ConfigError
            A value that a broker would refuse.
        MetadataFileError
            The file is no properties text.
        OSError
            The file cannot be read.

        Notes
        -----
        Source: Kafka 4.3.0, ``KafkaConfig``.
        """
        pairs, dirs = _offsetlog.broker_settings(path_text(path))
        return cls(LogConfig.from_dict(dict(pairs)), tuple(dirs))


def partition_for(key: Buffer, partitions: int) -> int:
    """Return the partition to which every Java producer sends a key, in a topic with this many partitions.

    Parameters
    ----------
    key
        The serialized key; an empty one is a key as well.
    partitions
        How many partitions the topic has, 1 or more.

    Notes
    -----
    ``(murmur2(key) & 0x7fffffff) % partitions``. Source: Kafka's ``BuiltInPartitioner``.

    Examples
    --------
    >>> partition_for(b"user1", 12), partition_for(b"user2", 12)
    (6, 5)
    """
    found = checked_bytes("key", key)
    if found is None:
        message = "key must be bytes, found NoneType: without a key a record goes anywhere"
        raise TypeError(message)
    return _offsetlog.partition_for(found, bounded("partitions", partitions, minimum=1, bits=32))


def partitions_for(keys: Iterable[Buffer | None], partitions: int) -> list[int | None]:
    """Return for each of many keys what :func:`partition_for` says; ``None`` where there is no key.

    Parameters
    ----------
    keys
        Serialized keys, as ``pyarrow.Array.to_pylist`` gives those of a binary column; an empty one is a key as well.
    partitions
        How many partitions the topic has, 1 or more.

    Raises
    ------
    TypeError
        A key is neither bytes nor ``None``.
    ConfigError
        `partitions` is below 1 or above 2^31 - 1.

    Examples
    --------
    >>> partitions_for([b"user1", None, b"user2"], 12)
    [6, None, 5]
    """
    checked = [key if type(key) is bytes else checked_bytes("key", key) for key in keys]
    return _offsetlog.partitions_for(checked, bounded("partitions", partitions, minimum=1, bits=32))


def checked_partitioner(partitioner: object) -> Partitioner:
    """Return `partitioner` if it is one of the names or a callable."""
    if callable(partitioner):
        return partitioner
    if partitioner not in _PARTITIONERS:
        reason = f"must be 'default', 'round_robin' or a callable, found {partitioner!r}{nearest(str(partitioner), _PARTITIONERS)}"
        refuse("partitioner", partitioner, reason)
    return partitioner  # type: ignore[return-value]  # the check above is the narrowing


class _Appends(Protocol):
    _partitioner: Partitioner

    def _appending(self) -> _offsetlog.LogDirAppender: ...

    def _take_back(self, topic: str | None) -> None: ...


class Topics:
    """The verbs of a :class:`~offsetlog.WritableLogDir`."""

    __slots__ = ()

    def create_topic(
        self: _Appends,
        name: str,
        partitions: int = 1,
        *,
        config: Config | None = None,
        topic_id: str | None = None,
    ) -> str:
        """Make a topic, each partition in the folder that has the fewest, and return the topic's id.

        Parameters
        ----------
        name
            Letters, digits, ``.``, ``_`` and ``-``, at most 249.
        partitions
            How many, 1 or more.
        config
            Settings of the topic, as a :class:`~offsetlog.LogConfig` or a mapping of Kafka's names; stored with each
            partition. What is not given holds as by the `defaults` of :meth:`LogDir.open`.
        topic_id
            The topic's id (22 characters of base64); ``None`` draws one.

        Raises
        ------
        LogDirError
            There is such a topic, or one that differs in ``.`` and ``_`` only, which Kafka does not allow.
        ConfigError
            A name, number or setting that cannot be.

        Notes
        -----
        Durable when this returns. A crash on the way leaves fewer partitions. Files of segments are made at the first append, so
        that thousands of partitions cost little. Source: Kafka's ``LogManager.nextLogDirs``.

        Examples
        --------
        >>> import tempfile
        >>> from offsetlog import LogDir
        >>> with tempfile.TemporaryDirectory() as folder, LogDir.open(folder, "a") as log_dir:
        ...     topic_id = log_dir.create_topic("orders", 3, config={"retention.ms": -1})
        ...     log_dir.append("orders", b"paid", key=b"order-7")
        RecordMetadata(topic='orders', partition=1, offset=0)
        """
        return self._appending().create_topic(
            topic_name(name),
            partitions=bounded("partitions", partitions, minimum=1, bits=32),
            config=[] if config is None else config_pairs(config),
            topic_id=checked_topic_id(topic_id),
        )

    def delete_topic(self: _Appends, name: str) -> None:
        """Delete a topic as a broker does: gone at once, its directories removed by a later maintenance.

        The directories are renamed to ``name-0.<32 digits>-delete`` and removed when ``file.delete.delay.ms`` of the log dir's
        `defaults` (a minute) has passed, whoever keeps the log dir then.

        Raises
        ------
        LogDirError
            There is no such topic.
        ClusterError
            It is a topic that brokers keep for themselves, and `internal_topics` of :meth:`LogDir.open` does not name it.
        LogLockedError
            Another process writes to one of its partitions; nothing was changed.
        """
        self._appending().delete_topic(topic_name(name))
        self._take_back(name)

    def remove_deleted(self: _Appends, *, dry_run: bool = False) -> list[str]:
        """Remove the directories of deleted topics whose time has come; return them, and with `dry_run` do only that.

        A folder in which a conversion of another program builds, which has such a name too, stays until that is over.

        Raises
        ------
        OSError
            A directory cannot be removed: the first of them; the others are removed, and a note of the exception names them.
        """
        return self._appending().remove_deleted(flag("dry_run", dry_run))

    def set_topic_config(self: _Appends, name: str, config: Config) -> None:
        """Change the settings of a topic, of all its partitions. They replace the stored ones.

        Raises
        ------
        LogDirError
            There is no such topic.
        ClusterError
            The topic is a broker's, which has the cluster's settings: none are stored with it.
        ConfigError
            A setting that cannot be, or that contradicts the `defaults` of the log dir.
        """
        self._appending().set_topic_config(topic_name(name), config_pairs(config))

    def append(  # noqa: PLR0913  # one parameter a field
        self: _Appends,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: When | None = None,
        partition: int | None = None,
        leader_epoch: int | None = None,
        flush: bool = False,
    ) -> RecordMetadata:
        """Append one record to the partition that a producer would choose, and return where it went.

        Parameters
        ----------
        topic
            Name of a topic that is there.
        value, key, headers, timestamp, leader_epoch, flush
            As for :meth:`WritableLog.append`.
        partition
            The partition, instead of routing.

        Raises
        ------
        LogDirError
            There is no such topic or partition; or a partition of the topic between others is missing here; or nobody can say where a
            key belongs: the cluster's metadata is at hand, and has more partitions, or does not tell how many there are.
        ConfigError
            The caller's partitioner returned a number that is not a partition.

        Notes
        -----
        With the `partitioner` ``"default"`` a key decides by its hash (:func:`~offsetlog.partition_for`), and records without
        one go to one partition until 16,384 bytes went there, then to another one drawn at random; ``"round_robin"`` takes the
        partitions in turn. The partition is opened at its first use and may be closed again when others are used: see
        `max_open_partitions`. All else as :meth:`WritableLog.append`.

        Source: Kafka's ``BuiltInPartitioner`` (KIP-794), ``RoundRobinPartitioner``.
        """
        appender = self._appending()
        name, checked_key, checked_value = topic_name(topic), checked_bytes("key", key), checked_bytes("value", value)
        by = self._partitioner
        if partition is not None:
            partition = bounded("partition", partition, minimum=0, bits=32)
        named = by if isinstance(by, str) else "default"
        chosen, among = partition, None
        checked, millis = checked_headers(headers), optional_millis(timestamp, "timestamp")
        epoch, flush = checked_epoch(leader_epoch), flag("flush", flush)
        while True:
            if partition is None and not isinstance(by, str):
                among = appender.partition_count(name)
                chosen = _given(by(name, checked_key, checked_value, among), among)
            appended = appender.append(
                name,
                value=checked_value,
                key=checked_key,
                headers=checked,
                timestamp=millis,
                partition=chosen,
                among=among,
                partitioner=named,
                leader_epoch=epoch,
                flush=flush,
            )
            # Otherwise another process has recreated the topic with another number of partitions.
            if appended is not None:
                return appended

    def maintain(
        self: _Appends,
        *,
        now: When | None = None,
        dry_run: bool = False,
        only: Iterable[Upkeep] = ("retention", "compaction", "deletes"),
        topics: str | Iterable[str] | None = None,
        config: Config | None = None,
    ) -> LogDirMaintainReport:
        """Do what is due now for every partition, once, and remove the directories of topics that were deleted long enough ago.

        Parameters
        ----------
        now, dry_run, only
            As for :meth:`WritableLog.maintain`; ``"deletes"`` are those of topics too. With `dry_run` no file is made or changed: a
            partition whose last writer was killed is recovered in memory.
        topics
            Only these; ``None`` is all. Of deleted topics too only the directories of these are removed, and none whose name was cut
            to Kafka's 255 characters when it was renamed. Of several, one that is not here is in ``failed``, as its partition 0.
        config
            Settings that count above all others, this once; only with `topics`.

        Raises
        ------
        LogDirError
            None of `topics` is here, nor a directory of one that waits for its removal.

        Notes
        -----
        In a broker's log dir a topic's settings are the cluster's (:meth:`LogDir.topic_settings`), and a partition is refused, in
        ``failed``, where one that decides is not known. Topics that brokers keep for themselves are left alone, and told in
        ``internal``, unless `internal_topics` of :meth:`LogDir.open` names them.

        Partitions that were made and never used cost a look at their directory; others are opened, and closed again beyond
        `max_open_partitions`. If one fails, the others are still maintained: see ``failed`` of the report. Appends and readers
        continue meanwhile. What was done before an exception that ends the work, such as ``KeyboardInterrupt``, is in a note of it. To
        have it done in the background: `maintain_every` of :meth:`LogDir.open`.
        """
        if config is not None and topics is None:
            refuse("config", config, "is for some topics only: give topics too")
        named = [] if topics is None else [topics] if isinstance(topics, str) else list(map(topic_name, topics))
        if topics is not None and not named:
            refuse("topics", topics, "names no topic")
        appender = self._appending()
        settings = None if config is None else config_pairs(config)
        return appender.maintain(maintain_options(now, only, settings, dry_run=dry_run), topics=named)

    def flush(self: _Appends) -> None:
        """Make everything durable that was appended to any partition.

        Raises
        ------
        OSError
            A partition could not be made durable; nothing more can be appended to it until it is opened again.
        """
        self._appending().flush()


def _given(partition: object, count: int) -> int:
    """Return what the caller's partitioner gave, if it is the number of a partition."""
    if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < count:
        refuse("partitioner", partition, f"must give 0 to {count - 1}, gave {partition!r}")
    return partition


def topic_name(name: object) -> str:
    """Return `name` if it is text; whether a topic may have it is not asked."""
    if not isinstance(name, str):
        message = f"a topic's name must be a str, found {type(name).__name__}"
        raise TypeError(message)
    return utf8("topic", name)
