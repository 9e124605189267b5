"""Real brokers serve what ``restore`` made of other brokers' disks, as if they had written it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from clients import Admin, ReaderOfAll, Writer
from cluster_members import MemberBroker, ZooKeeperMember, wait_for_isr
from golden import CLEAN, CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA, OLD_LOG_DIRS, OLD_PARTITIONS, Golden, Row, partitions_of
from moved_clock import MovedClock, why_not
from peers import Appended

from broker import Broker, ZooKeeperBroker, broker_of, dump_files
from conftest import KRAFT
from kafka import KafkaAdminClient, TopicPartition
from offsetlog import Log, RestoreReport, restore

SOURCES = [*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"]
READABLE = [golden for golden in CLEAN_PARTITIONS if not golden.topic.startswith("__")]
BUSY = {
    # Retention and the cleaner look all the time: the records are years old, as after years of waiting.
    "log.retention.ms": 3_600_000,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 500,
    "log.cleaner.backoff.ms": 100,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}
ALWAYS = (
    "Performing controller activation",
    "Attempting to close NetworkClient that has already been closed",
    "could not be established. Node may not be available",
    "was unsuccessful",
    "because the partition is not online or is no longer the leader",
)
"""What each broker may warn of that begins and ends: a controller looks for the broker in its own process before that listens, and a
coordinator begins to load by the metadata of the run before, when its broker does not lead yet."""


def with_log_dirs(version: str, directory: Path, settings: Mapping[str, object], *, count: int = 2) -> tuple[Broker, list[Path]]:
    """A broker that was formatted, or runs with ZooKeeper, and never started."""
    broker = broker_of(version, directory)
    return broker, give_log_dirs(broker, settings, count=count)


def give_log_dirs(broker: Broker, settings: Mapping[str, object], *, count: int = 2) -> list[Path]:
    log_dirs = [broker.log_dir, broker.directory / "logs-2"][:count]
    broker.settings = {"log.dirs": ",".join(map(str, log_dirs)), **settings}
    broker.format()
    return log_dirs


def places(partitions: Iterable[Golden]) -> dict[TopicPartition, Golden]:
    return {TopicPartition(golden.topic, golden.partition): golden for golden in partitions}


def check_rows(broker: Broker, partitions: Iterable[Golden], *, epochs: bool = True) -> None:
    """Every record with offset, time, headers and leader epoch, for both isolation levels, and where the logs begin."""
    wanted = places(partitions)
    with ReaderOfAll(broker.address, list(wanted), "read_uncommitted") as reader:
        found, ranges = reader.everything(), reader.ranges()
    with ReaderOfAll(broker.address, list(wanted), "read_committed") as reader:
        committed = reader.everything()
    for at, golden in wanted.items():
        for seen, expected in ((found[at], golden.rows), (committed[at], golden.committed)):
            had = [row for row in _told(seen, epochs) if row.offset < golden.end]
            if "compact" in golden.topic:
                check_compacted(golden, had, _told(expected, epochs))
            else:
                # Behind an open transaction, which is over now, more is committed.
                assert had[: len(expected)] == _told(expected, epochs), golden.name
        begin, end = ranges[at]
        assert begin == golden.start
        assert end >= golden.end


def _told(rows: Iterable[Row], epochs: bool) -> list[Row]:
    """Old messages have no epoch, and some no type of their timestamp."""
    return list(rows) if epochs else [row._replace(leader_epoch=-1, timestamp_type=max(0, row.timestamp_type)) for row in rows]


def check_compacted(golden: Golden, seen: list[Row], expected: list[Row]) -> None:
    """The broker's cleaner goes on: nothing is new, and the last record of each key stays, unless it deletes the key."""
    assert set(seen) <= set(expected), golden.name
    last = {row.key: row for row in expected}
    assert {key: row for key, row in last.items() if row.value is not None}.items() <= {row.key: row for row in seen}.items()


# What a broker on a busy machine warns of otherwise, such as answers that came late, is not about what was restored.
OF_STORAGE = re.compile(r"kafka\.log\.|storage\.internals|LogManager|ReplicaManager|kafka\.cluster\.|bootstrap|activation")


def check_words(broker: Broker, directories: Iterable[str], always: Sequence[str] = ALWAYS) -> None:
    """Nothing that a clean start does not say; nothing is recovered, truncated, deleted or set aside."""
    said = broker.output().read_text(encoding="utf-8", errors="replace").splitlines()
    alarms = [line for line in said if re.search(r"\b(WARN|ERROR|FATAL)\b", line)]
    about = [line for line in alarms if OF_STORAGE.search(line) or any(name in line for name in directories)]
    unexpected = [line for line in about if not any(each in line for each in always)]
    assert not unexpected, unexpected[:5]
    names = set(directories)
    touched = [
        line
        for line in said
        if re.search(r"Recovering|Truncat|Deleting|-stray|Rebuilding|incremented log start", line)
        and any(name in line for name in names)
        # A follower says so of each log that it begins to follow.
        and "has no effect" not in line
    ]
    assert not touched, touched[:5]


def committed_offsets(broker: Broker, groups: set[str]) -> dict[tuple[str, str, int], int]:
    """What the broker says that groups have committed."""
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        found = client.list_group_offsets(sorted(groups))
    finally:
        client.close()
    return {(group, at.topic, at.partition): offset.offset for group, offsets in found.items() for at, offset in offsets.items()}


def expected_commits() -> dict[tuple[str, str, int], int]:
    """What Kafka's own decoder read from the old cluster's `__consumer_offsets`; the last record of a key holds."""
    last: dict[tuple[str, str, int], int | None] = {}
    for line in (DATA / "expected" / "kafka-4.3.0-clean" / "committed-offsets.jsonl").read_text(encoding="utf-8").splitlines():
        commit = json.loads(line)
        key, payload = commit["key"], commit["payload"]
        last[key["group"], key["topic"], key["partition"]] = None if payload is None else payload["offset"]
    return {key: offset for key, offset in last.items() if offset is not None}


GAPS = re.compile(r"Non-consecutive offsets in |  -?[0-9]+ is followed by [0-9]+$")
"""What the dump tool complains of in any segment that is not the first, and in compacted ones."""


def check_files(log_dirs: Iterable[Path]) -> None:
    """Kafka's dump tool finds nothing in segments and indexes."""
    files = [file for log_dir in log_dirs for kind in ("log", "index", "timeindex") for file in sorted(log_dir.glob(f"g-*/*.{kind}"))]
    dumped = dump_files("4.3.0", [file for file in files if file.stat().st_size])
    assert dumped
    assert not [line for _, complaints in dumped.values() for line in complaints if not GAPS.match(line)]


class Restored:
    """A broker of a new cluster with two log dirs, whose topics are all restored, before its first start."""

    def __init__(self, version: str, directory: Path) -> None:
        self.broker, self.log_dirs = with_log_dirs(version, directory, BUSY)
        assert self.broker.metadata_dir is not None
        self.report = restore(
            SOURCES, self.log_dirs, metadata=self.broker.metadata_dir, broker=self.broker.properties, new_cluster=True
        )
        self._end = {golden.name: golden.end for golden in READABLE}["g-plain-0"]

    @contextlib.contextmanager
    def running(self) -> Iterator[Broker]:
        """A run in which every record is read and one is written, and after which nothing odd has been said."""
        with self.broker.running():
            check_rows(self.broker, READABLE)
            with Writer(self.broker.address, "g-plain") as writer:
                assert writer.send(0, [Appended(b"key", b"value", 1_800_000_000_000)]) == [self._end]
                self._end += 1
            yield self.broker
        check_words(self.broker, [golden.name for golden in READABLE])


@pytest.fixture(scope="module", params=KRAFT)
def restored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Restored:
    """One a version; its tests run in their order, each in further runs of the same broker."""
    return Restored(str(request.param), tmp_path_factory.mktemp("restored") / "broker")


def test_a_cluster_that_starts_with_restored_topics(restored: Restored) -> None:
    """Every topic is there at the first start, and groups go on."""
    assert not restored.report.has_losses
    assert {Path(each.into[0].path).parent for each in restored.report.partitions} == set(restored.log_dirs)
    check_files(restored.log_dirs)
    with restored.running() as broker:
        expected = expected_commits()
        found = committed_offsets(broker, {group for group, _, _ in expected})
        assert expected
        assert {key: found.get(key) for key in expected} == expected


HOUR = 3600
YOUNG = {
    # By the broker's own retention, an hour.
    "young-deleted": {"cleanup.policy": "delete"},
    "young-compacted": {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(1000 * HOUR),
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.01",
    },
}
"""Topics of the new cluster itself, for which an hour makes a difference."""


def young_values(broker: Broker) -> dict[str, list[bytes | None]]:
    """What can be read of them."""
    with ReaderOfAll(broker.address, [TopicPartition(topic, 0) for topic in YOUNG], "read_committed") as reader:
        return {at.topic: [row.value for row in rows] for at, rows in reader.everything().items()}


def test_an_hour_of_retention_and_cleaning(restored: Restored, tmp_path: Path) -> None:
    """Two restarts and two hours by the broker's clock: retention and the cleaner do their work elsewhere, and change nothing here."""
    if reason := why_not():
        pytest.skip(reason)
    with restored.running():
        pass
    clock = MovedClock(tmp_path)
    restored.broker.environment = clock.environment
    with restored.running() as broker:
        with Admin(broker.address) as admin:
            for topic, settings in YOUNG.items():
                admin.create(topic, 1, settings)
                admin.leader_epochs(topic)
        for topic in YOUNG:
            with Writer(broker.address, topic) as writer:
                for value in (b"before", b"then"):
                    writer.send(0, [Appended(b"key", value, int(1000 * time.time()))])
        # Retention looks every half second, the cleaner ten times a second.
        time.sleep(2)
        assert young_values(broker) == {topic: [b"before", b"then"] for topic in YOUNG}
        clock.move(2 * HOUR)
        with Writer(broker.address, "young-compacted") as writer:
            # Its segment is old now, and is rolled.
            writer.send(0, [Appended(b"other", b"last", int(1000 * (time.time() + 2 * HOUR)))])
        end = time.monotonic() + 300
        while (values := young_values(broker)) != {"young-deleted": [], "young-compacted": [b"then", b"last"]}:
            assert time.monotonic() < end, values
            time.sleep(0.2)
        check_rows(broker, READABLE)


KILLED = ("unclean", "live")


def known_of(kind: str) -> tuple[Sequence[Path], list[Golden]]:
    """A dead cluster's disks, and their partitions."""
    if kind == "clean":
        return SOURCES, CLEAN_PARTITIONS
    if kind == "2.8.2":
        return OLD_LOG_DIRS, OLD_PARTITIONS
    log_dirs = [DATA / "kafka-4.3.0" / kind / name for name in ("log-dir-1", "log-dir-2")]
    return log_dirs, partitions_of(log_dirs, f"kafka-4.3.0-{kind}")


class Case(NamedTuple):
    """Whose disks, into which broker, with how many log dirs."""

    kind: str
    version: str
    log_dirs: int


IS_WHOLE = bool(os.environ.get("OFFSETLOG_WHOLE_MATRIX"))


def cases(pairwise: Sequence[tuple[str, str, int]], kinds: Sequence[str], versions: Sequence[str]) -> list[Case]:
    """Those that stand for all of them; all, where there is time (`make soak`)."""
    if IS_WHOLE:
        return [Case(*each) for each in itertools.product(kinds, versions, (1, 2))]
    return [Case(*each) for each in pairwise]


@pytest.mark.parametrize(
    "case",
    cases(
        [
            ("clean", "4.3.0", 1),
            ("clean", "3.9.2", 1),
            ("unclean", "4.3.0", 2),
            ("unclean", "3.9.2", 1),
            ("live", "4.3.0", 1),
            ("2.8.2", "4.3.0", 1),
            ("2.8.2", "3.9.2", 2),
        ],
        ("clean", *KILLED, "2.8.2"),
        KRAFT,
    ),
    ids=lambda case: "-".join(map(str, case)),
)
def test_a_cluster_with_one_log_dir_or_two(case: Case, tmp_path: Path) -> None:
    """Of a broker that was stopped or killed, and of three old ones with messages of magic 0 and 1, which give no metadata.

    Every pair of disks and version, each disk with one log dir and with two, each version too; two log dirs of clean disks are
    `Restored`. Each start makes a new leader epoch.
    """
    kind, version, count = case
    sources, known = known_of(kind)
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", BUSY, count=count)
    assert broker.metadata_dir is not None
    report = restore(sources, log_dirs, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True)
    assert not report.has_losses
    taken = {each.source for each in report.partitions}
    partitions = [golden for golden in known if str(golden.directory) in taken and not golden.topic.startswith("__")]
    assert len(partitions) == len([each for each in report.partitions if not each.topic.startswith("__")])
    for _ in range(2):
        with broker.running():
            check_rows(broker, partitions, epochs=False)
        check_words(broker, [golden.name for golden in partitions])


def check_damaged(broker: Broker, report: RestoreReport, known: Iterable[Golden]) -> None:
    """What a real broker kept of damaged logs is served as that had it, and of all other offsets each is served too, or told as lost."""
    ends = {TopicPartition(each.topic, each.partition): each.log_end_offset for each in report.partitions}
    lost = {TopicPartition(each.topic, each.partition): each.losses for each in report.partitions}
    with ReaderOfAll(broker.address, list(ends), "read_committed") as reader:
        found, ranges = reader.everything(), reader.ranges()
    for at, golden in places(known).items():
        rows = {row.offset: row for row in _told(found[at], epochs=False)}
        assert {row.offset: row for row in _told(golden.rows, epochs=False)}.items() <= rows.items(), golden.name
        begin, end = ranges[at]
        assert (begin, end) == (golden.start, ends[at])
        told = {offset for loss in lost[at] for offset in range(loss.start, end if loss.stop is None else loss.stop)}
        assert rows.keys() == set(range(begin, end)) - told, golden.name
        assert end >= golden.rows[-1].offset + 1


@pytest.mark.parametrize(
    "case", cases([("torn", "4.3.0", 2), ("torn", "3.9.2", 1)], ["torn"], KRAFT), ids=lambda case: "-".join(map(str, case))
)
def test_damaged_disks(case: Case, tmp_path: Path) -> None:
    """Each with another damage: brokers find nothing of it, and nothing to recover, in one run or the next."""
    sources, known = known_of(case.kind)
    broker, log_dirs = with_log_dirs(case.version, tmp_path / "broker", BUSY, count=case.log_dirs)
    assert broker.metadata_dir is not None
    report = restore(sources, log_dirs, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True)
    assert {each.state for each in report.partitions} == {"restored"}
    assert {f"{each.topic}-{each.partition}" for each in report.partitions} == {golden.name for golden in known}
    check_files(log_dirs)
    for _ in range(2):
        with broker.running():
            check_damaged(broker, report, known)
        check_words(broker, [golden.name for golden in known])


@pytest.mark.parametrize(
    "case",
    cases([("3.9.2-zookeeper", "4.3.0", 2), ("2.8.2-zookeeper", "3.9.2", 1)], ["3.9.2-zookeeper", "2.8.2-zookeeper"], KRAFT),
    ids=lambda case: "-".join(map(str, case)),
)
def test_topics_that_zookeeper_had(case: Case, tmp_path: Path) -> None:
    """Its data says which topics there are, with their settings and ids; a new cluster without ZooKeeper has them all."""
    old = DATA / f"kafka-{case.kind}"
    broker, log_dirs = with_log_dirs(case.version, tmp_path / "broker", BUSY, count=case.log_dirs)
    assert broker.metadata_dir is not None
    report = restore(
        [old / "log-dir", old / "zookeeper"], log_dirs, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True
    )
    assert not report.has_losses
    settings = json.loads((old / "settings.json").read_text(encoding="utf-8"))
    topics = Counter(each.topic for each in report.partitions)
    assert topics.keys() == settings.keys()
    for _ in range(2):
        with broker.running():
            with Admin(broker.address) as admin:
                held = admin.settings(list(topics))
                for topic, number in topics.items():
                    assert len(admin.leader_epochs(topic)) == number
                    own = {name: value for name, (value, source) in settings[topic].items() if source == "DYNAMIC_TOPIC_CONFIG"}
                    assert own.items() <= {name: value for name, (value, _) in held[topic].items()}.items()
            for topic, number in topics.items():
                with Writer(broker.address, topic) as writer:
                    ends = [
                        writer.send(partition, [Appended(b"key", b"value", int(1000 * time.time()))]) for partition in range(number)
                    ]
                assert ends == [[broker.runs - 1]] * number
        check_words(broker, [f"{each.topic}-{each.partition}" for each in report.partitions])


TOPICS = {"g-plain": 3, "g-epochs": 2, "g-codec-zstd": 1, "g-compact": 1, "g-deleted-prefix": 2, "g-idem": 2}


@pytest.mark.parametrize(
    "case",
    cases(
        [
            ("clean", "4.3.0", 2),
            ("clean", "3.9.2-zookeeper", 2),
            ("clean", "2.8.2", 2),
            ("unclean", "2.8.2", 1),
            ("2.8.2", "2.8.2", 1),
            ("torn", "2.8.2", 2),
        ],
        ("clean", *KILLED, "2.8.2", "torn"),
        ("4.3.0", "3.9.2-zookeeper", "2.8.2"),
    ),
    ids=lambda case: "-".join(map(str, case)),
)
def test_a_stopped_broker_takes_restored_topics(case: Case, tmp_path: Path) -> None:
    """Topics that the cluster has, empty: with its metadata, or with what the empty directories tell; epochs that it takes."""
    kind, version, count = case
    quiet = {**BUSY, "log.retention.ms": -1}
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", quiet, count=count)
    sources, known = known_of(kind)
    chosen = {each.source for each in restore(sources, tmp_path / "plan", dry_run=True).partitions}
    partitions = [
        golden
        for golden in known
        if str(golden.directory) in chosen
        and (golden.topic in TOPICS if kind == "clean" else re.fullmatch(r"(g|o|first)-[a-z0-9-]+", golden.directory.name))
    ]
    topics = Counter(golden.topic for golden in partitions)
    with broker.running(), Admin(broker.address) as admin:
        for topic, number in topics.items():
            admin.create(topic, number, {"cleanup.policy": "compact" if topic == "g-compact" else "delete"})
            admin.leader_epochs(topic)
    metadata = broker.metadata_dir or broker.zookeeper_dir
    report = restore(sources, log_dirs, topics=list(topics), metadata=() if metadata is None else metadata)
    assert {each.state for each in report.partitions} == {"restored"}
    assert len(partitions) == len(report.partitions)
    assert kind != "clean" or topics == TOPICS
    if kind == "torn":
        for _ in range(2):
            with broker.running():
                check_damaged(broker, report, partitions)
            check_words(broker, [golden.name for golden in partitions])
        return
    with broker.running():
        # The cluster's epochs are below those of the old one, which are counted anew.
        check_rows(broker, partitions, epochs=False)
        topic = "first" if kind == "2.8.2" else "g-plain"
        with Writer(broker.address, topic) as writer:
            for golden in partitions:
                if golden.topic == topic:
                    assert writer.send(golden.partition, [Appended(b"key", b"value", 1_800_000_000_000)]) == [golden.end]
    with broker.running():
        check_rows(broker, partitions, epochs=False)
    check_words(broker, [golden.name for golden in partitions])


@pytest.mark.parametrize("version", KRAFT)
def test_hundreds_of_topics(version: str, tmp_path: Path) -> None:
    """All of them are there at the first start, each with its record."""
    count = 300
    with Log.open(tmp_path / "old" / "topic-0-0", "a") as log:
        log.append(b"value", timestamp=1_700_000_000_000)
    for number in range(1, count):
        shutil.copytree(tmp_path / "old" / "topic-0-0", tmp_path / "old" / f"topic-{number}-0")
        (tmp_path / "old" / f"topic-{number}-0" / "partition.metadata").unlink(missing_ok=True)
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", BUSY)
    assert broker.metadata_dir is not None
    report = restore(tmp_path / "old", log_dirs, metadata=broker.metadata_dir, new_cluster=True)
    assert len(report.partitions) == count
    with (
        broker.running(),
        ReaderOfAll(broker.address, [TopicPartition(f"topic-{number}", 0) for number in range(count)], "read_committed") as all_,
    ):
        assert {at.topic: [row.value for row in rows] for at, rows in all_.everything().items()} == {
            f"topic-{number}": [b"value"] for number in range(count)
        }
    check_words(broker, [f"topic-{number}-0" for number in range(count)])


@pytest.mark.parametrize("version", KRAFT)
def test_replicas_on_two_brokers(version: str, tmp_path: Path) -> None:
    """Each has two log dirs. Both are in sync from the start, each leads some, and when one goes the other has every record."""
    first = broker_of(version, tmp_path / "first")
    second = MemberBroker(first, tmp_path / "second", 2)
    log_dirs = {broker: give_log_dirs(broker, BUSY) for broker in (first, second)}
    topics = ["g-plain", "g-codec-lz4", "g-epochs", "g-deleted-prefix"]
    assert first.metadata_dir is not None
    report = restore(
        SOURCES,
        [*log_dirs[first], *log_dirs[second]],
        topics=topics,
        metadata=first.metadata_dir,
        new_cluster=True,
        replication_factor=2,
    )
    assert {tuple(sorted(place.node_id or 0 for place in each.into)) for each in report.partitions} == {(1, 2)}
    assert {Path(place.path).parent for each in report.partitions for place in each.into} == {*log_dirs[first], *log_dirs[second]}
    partitions = [golden for golden in READABLE if golden.topic in topics]
    with first.running():
        with second.running():
            leaders = wait_for_isr(first, topics, {1, 2})
            check_rows(first, partitions)
            check_rows(second, partitions)
        assert set(wait_for_isr(first, topics, {1}).values()) == {1}
        check_rows(first, partitions)
        with second.running():
            wait_for_isr(first, topics, {1, 2})
            check_rows(second, partitions)
    assert set(leaders.values()) == {1, 2}
    for golden in partitions:
        logs = [b"".join(file.read_bytes() for file in sorted(directory_of(golden, dirs).glob("*.log"))) for dirs in log_dirs.values()]
        assert logs[0] == logs[1], golden.name


def test_a_leader_change_with_zookeeper(tmp_path: Path) -> None:
    """Two stopped brokers of 2.8.2, whose cluster has the topics: when one goes the other has every record, and takes more."""
    quiet = {**BUSY, "log.retention.ms": -1}
    first = ZooKeeperBroker("2.8.2", tmp_path / "first")
    second = ZooKeeperMember(first, tmp_path / "second", 2)
    log_dirs = {broker: give_log_dirs(broker, quiet) for broker in (first, second)}
    partitions = [golden for golden in READABLE if golden.topic in TOPICS]
    with first.running(), second.running(), Admin(first.address) as admin:
        for topic, number in TOPICS.items():
            brokers = {partition: [1, 2] if partition % 2 else [2, 1] for partition in range(number)}
            admin.create_on(topic, brokers, {"cleanup.policy": "compact" if topic == "g-compact" else "delete"})
        wait_for_isr(first, TOPICS, {1, 2})
    assert first.zookeeper_dir is not None
    report = restore(SOURCES, [*log_dirs[first], *log_dirs[second]], topics=list(TOPICS), metadata=first.zookeeper_dir)
    assert {each.state for each in report.partitions} == {"restored"}
    assert {tuple(sorted(place.node_id or 0 for place in each.into)) for each in report.partitions} == {(1, 2)}
    with first.running():
        with second.running():
            # The first one leads all that the second one was not there for.
            wait_for_isr(first, TOPICS, {1, 2})
            with Admin(first.address) as admin:
                for topic in TOPICS:
                    admin.elect_preferred(topic)
            leaders = wait_for_isr(first, TOPICS, {1, 2})
            check_rows(first, partitions, epochs=False)
        assert set(wait_for_isr(first, TOPICS, {1}).values()) == {1}
        check_rows(first, partitions, epochs=False)
        with Writer(first.address, "g-plain") as writer:
            for golden in partitions:
                if golden.topic == "g-plain":
                    assert writer.send(golden.partition, [Appended(b"key", b"value", 1_800_000_000_000)]) == [golden.end]
        with second.running():
            wait_for_isr(first, TOPICS, {1, 2})
            check_rows(second, partitions, epochs=False)
    assert 2 in leaders.values()
    for broker in (first, second):
        # Of a broker that goes: its controller has no other leader for what it leads alone, and it fetches no more.
        allowed = [*ALWAYS, "failed to change state for partition", "marked as failed"]
        check_words(broker, [golden.name for golden in partitions], allowed)


def directory_of(golden: Golden, log_dirs: Iterable[Path]) -> Path:
    """Where a broker has the partition."""
    (found,) = (log_dir / golden.name for log_dir in log_dirs if (log_dir / golden.name).exists())
    return found
