"""What a :class:`~offsetlog.LogDir` says of its cluster beside the records: groups, transactions, producers, metadata, settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from offsetlog import _offsetlog
from offsetlog._cluster import TopicSettings
from offsetlog._config import LogConfig
from offsetlog._groups import groups_of, prometheus_of, reset_csv_of
from offsetlog._held_records import names_of, told
from offsetlog._metadata import metadata_of, strays_of
from offsetlog._options import check_progress, flag, nearest, path_text
from offsetlog._times import optional_millis
from offsetlog._topics import topic_name
from offsetlog._transactions import transactions_of
from offsetlog.errors import LogDirError, OffsetLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from offsetlog._groups import Group, ResetFile
    from offsetlog._held_records import PartitionProducer, WhyAnswer
    from offsetlog._metadata import MetadataImage, Stray
    from offsetlog._options import PathLike, When
    from offsetlog._transactions import Transaction

logger = logging.getLogger("offsetlog")


class _Opened(Protocol):
    """What the questions need of a log dir."""

    @property
    def _paths(self) -> tuple[str, ...]: ...

    def _engine(self) -> _offsetlog.LogDir: ...

    def _another(self, path: str) -> _Opened: ...

    def topics(self) -> dict[str, list[int]]: ...

    def metadata(self) -> MetadataImage | None: ...

    def _known_topics(self, named: list[str], metadata: PathLike | None = None) -> list[str]: ...


class ClusterQuestions:
    """The questions about a cluster that a :class:`~offsetlog.LogDir` answers."""

    __slots__ = ()

    def groups(self: _Opened, *, progress: Callable[[int, int, str], object] | None = None) -> list[Group]:
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

    def groups_prometheus(self: _Opened, *, now: When | None = None, progress: Callable[[int, int, str], object] | None = None) -> str:
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
        self: _Opened, groups: str | Iterable[str] = (), *, progress: Callable[[int, int, str], object] | None = None
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

    def transactions(self: _Opened, *, progress: Callable[[int, int, str], object] | None = None) -> list[Transaction]:
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
        self: _Opened,
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
        self: _Opened,
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
        self: _Opened, *, show_secrets: bool = False, progress: Callable[[int, int, str], object] | None = None
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

    def strays(self: _Opened, *, progress: Callable[[int, int, str], object] | None = None) -> list[Stray] | None:
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

    def topic_settings(self: _Opened, name: str, *, broker: PathLike | None = None, metadata: PathLike | None = None) -> TopicSettings:
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

    def topic_config(self: _Opened, name: str) -> LogConfig:
        """Return the settings that are stored with a topic; defaults are not among them.

        Raises
        ------
        LogDirError
            There is no such topic.
        """
        return LogConfig.from_dict(dict(self._engine().topic_config(topic_name(name))))

    def _known_topics(self: _Opened, named: list[str], metadata: PathLike | None = None) -> list[str]:
        """Return names of topics that there are. Of a mistyped one nothing would be found, which reads as if nothing were wrong."""
        here = self.topics()
        missing = [name for name in named if name not in here]
        if missing:
            try:
                image = (self if metadata is None else self._another(path_text(metadata))).metadata()
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
