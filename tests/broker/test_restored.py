"""Real brokers serve what ``restore`` made of other brokers' disks, as if they had written it."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from clients import Admin, ReaderOfAll, Writer
from cluster_members import MemberBroker, ZooKeeperMember, wait_for_isr
from golden import DATA, Golden
from peers import Appended
from restoring import (
    AFTERWARDS,
    BUSY,
    HOUR,
    IS_WHOLE,
    KILLED,
    READABLE,
    SOURCES,
    WHOLE_ONLY,
    Case,
    CleanStarts,
    WrittenFiles,
    cases,
    check_damaged,
    check_rows,
    check_that_groups_go_on,
    clock_of,
    committed_offsets,
    expected_commits,
    give_log_dirs,
    is_compacted,
    known_of,
    let_two_hours_pass,
    with_log_dirs,
    with_moved_clock,
)
from test_cluster_again import PROGRAMS

from broker import Broker, ZooKeeperBroker, broker_of, java, run as execute
from conftest import KRAFT
from kafka import TopicPartition
from offsetlog import Log, RestoreReport, restore


class Restored:
    """A broker of a new cluster with two log dirs, whose topics are all restored, before its first start."""

    def __init__(self, version: str, directory: Path, clean_starts: CleanStarts) -> None:
        self._clean_starts = clean_starts
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
                assert writer.send(0, [AFTERWARDS]) == [self._end]
                self._end += 1
            yield self.broker
        self._clean_starts.check_words(self.broker, [golden.name for golden in READABLE])


@pytest.fixture(scope="module", params=KRAFT)
def restored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, clean_starts: CleanStarts, written: WrittenFiles
) -> Restored:
    """One a version; its tests run in their order, each in further runs of the same broker."""
    restored = Restored(str(request.param), tmp_path_factory.mktemp("restored") / "broker", clean_starts)
    written.keep(restored.report)
    return restored


def test_a_cluster_that_starts_with_restored_topics(restored: Restored) -> None:
    """Every topic is there at the first start, and groups go on."""
    assert not restored.report.has_losses
    assert {Path(each.into[0].path).parent for each in restored.report.partitions} == set(restored.log_dirs)
    with restored.running() as broker:
        expected = expected_commits()
        found = committed_offsets(broker, {group for group, _, _ in expected})
        assert expected
        assert {key: found.get(key) for key in expected} == expected
        commits = check_that_groups_go_on(broker, expected)
    with restored.running() as broker:
        check_that_groups_go_on(broker, commits)


def old_settings() -> dict[str, dict[str, str]]:
    """What the old cluster's topics had of their own, by Kafka's classes; but for retention, which is prevented here."""
    images = json.loads(gzip.decompress((DATA / "metadata" / "images.json.gz").read_bytes()))
    # Settings for Kafka's own tests are in no answer of a broker.
    is_left = re.compile(r"retention\.(ms|bytes)|internal\.").match
    return {
        topic: {name: value for name, value in settings.items() if not is_left(name)}
        for kind, topic, settings in images["clean"]["configs"]
        if kind == "topic" and not topic.startswith("__")
    }


def test_topics_have_the_settings_that_they_had(restored: Restored) -> None:
    """Those that the metadata log of a cluster without ZooKeeper had."""
    settings = old_settings()
    assert {"cleanup.policy", "max.message.bytes", "segment.ms", "compression.type"} <= {
        name for own in settings.values() for name in own
    }
    with restored.running() as broker, Admin(broker.address) as admin:
        held = admin.settings(sorted(settings))
    for topic, own in settings.items():
        here = {name: value for name, (value, source) in held[topic].items() if source == "DYNAMIC_TOPIC_CONFIG"}
        assert own.items() <= here.items(), topic
        assert here.keys() <= own.keys() | {"retention.ms", "retention.bytes", "internal.segment.bytes"}, topic


def test_an_hour_of_retention_and_cleaning(restored: Restored, tmp_path: Path) -> None:
    """Restarts and two hours by the broker's clock: retention and the cleaner do their work elsewhere, and change nothing here."""
    clock = with_moved_clock(restored.broker, tmp_path)
    with restored.running() as broker:
        let_two_hours_pass(broker, clock)
        check_rows(broker, READABLE)


def test_up_to_a_time_and_to_offsets(tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """A new cluster serves what is below an offset, also in the middle of a batch, and before the first record of a time; and goes on there."""
    known = {golden.name: golden for golden in READABLE}
    times = sorted(row.timestamp for row in known["g-time-0"].rows)
    until = times[len(times) // 2]
    ends = {("g-plain", 0): 101, ("g-codec-lz4", 0): 333}
    broker, log_dirs = with_log_dirs("4.3.0", tmp_path / "broker", {})
    assert broker.metadata_dir is not None
    into = functools.partial(restore, SOURCES, log_dirs, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True)
    report = into(topics=["g-plain", "g-codec-lz4"], ends=ends)
    assert {each.state for each in report.partitions} == {"restored"}
    written.keep(report)
    report = into(topics="g-time", until=until)
    assert {each.state for each in report.partitions} == {"restored"}
    written.keep(report)
    first = next(row.offset for row in known["g-time-0"].rows if row.timestamp >= until)
    wanted = {
        **{TopicPartition(*at): [row for row in known[f"{at[0]}-{at[1]}"].rows if row.offset < end] for at, end in ends.items()},
        TopicPartition("g-time", 0): [row for row in known["g-time-0"].rows if row.offset < first],
    }
    assert all(0 < len(rows) < len(known[f"{at.topic}-{at.partition}"].rows) for at, rows in wanted.items())
    with broker.running():
        with ReaderOfAll(broker.address, list(wanted), "read_uncommitted") as reader:
            found, ranges = reader.everything(), reader.ranges()
        assert {at: list(rows) for at, rows in found.items()} == wanted
        for at, rows in wanted.items():
            assert ranges[at][1] == rows[-1].offset + 1
            with Writer(broker.address, at.topic) as writer:
                assert writer.send(at.partition, [AFTERWARDS]) == [rows[-1].offset + 1]
    clean_starts.check_words(broker, [f"{at.topic}-{at.partition}" for at in wanted])


def test_a_cluster_that_started_gets_its_topics_by_the_printed_commands(
    tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles
) -> None:
    """Its controller takes no topics from a file any more. The commands make what it lacks, and keep its retention from what is restored."""
    broker, log_dirs = with_log_dirs("4.3.0", tmp_path / "broker", BUSY)
    with broker.running():
        pass
    names = ["g-plain", "g-codec-lz4", "g-deleted-prefix"]
    known = [golden for golden in READABLE if golden.topic in names]
    assert broker.metadata_dir is not None
    into = functools.partial(
        restore, SOURCES, log_dirs, topics=names, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True
    )
    for told, program, state in ((into(), "kafka-topics.sh", "refused"), (None, "kafka-configs.sh", "planned")):
        report = told or into(dry_run=True)
        assert {each.state for each in report.partitions} == {state}
        commands = [shlex.split(command) for remaining in report.remaining for command in remaining.commands]
        meant = [words[1:] for words in commands if words[0] == program]
        assert len(meant) == len(names)
        with broker.running():
            for words in meant:
                java_words = (broker.address if word == "localhost:9092" else word for word in words)
                execute(java(broker.version, PROGRAMS[program], *java_words))
    report = into()
    assert {each.state for each in report.partitions} == {"restored"}
    assert len(report.partitions) == len(known)
    written.keep(report)
    for _ in range(2):
        with broker.running():
            # The cluster's epochs are below those of the old one, which are counted anew.
            check_rows(broker, known, epochs=False)
    clean_starts.check_words(broker, [golden.name for golden in known])


@pytest.mark.parametrize(
    "case",
    cases(
        [
            ("unclean", "4.3.0", 2),
            ("2.8.2", "3.9.2", 1),
        ],
        ("clean", *KILLED, "2.8.2"),
        KRAFT,
    ),
    ids=lambda case: "-".join(map(str, case)),
)
def test_a_cluster_with_one_log_dir_or_two(case: Case, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """Of a broker that was stopped or killed, and of three old ones with messages of magic 0 and 1, which give no metadata.

    All disks, versions and numbers of log dirs; two log dirs of clean disks are `Restored`. Each start makes a new leader epoch.
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
    written.keep(report)
    commits = expected_commits() if kind == "clean" else {}
    for last in (False, False, True):
        clock = clock_of(broker, tmp_path, "new", case) if last else None
        with broker.running():
            check_rows(broker, partitions, epochs=False)
            if commits:
                commits = check_that_groups_go_on(broker, commits)
            if clock is not None:
                let_two_hours_pass(broker, clock)
                check_rows(broker, partitions, epochs=False)
    clean_starts.check_words(broker, [golden.name for golden in partitions])


@pytest.mark.parametrize("case", cases([("torn", "4.3.0", 2)], ["torn"], KRAFT), ids=lambda case: "-".join(map(str, case)))
def test_damaged_disks(case: Case, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """Each with another damage: brokers find nothing of it, and nothing to recover, in one run or the next."""
    sources, known = known_of(case.kind)
    broker, log_dirs = with_log_dirs(case.version, tmp_path / "broker", BUSY, count=case.log_dirs)
    assert broker.metadata_dir is not None
    report = restore(sources, log_dirs, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True)
    assert {each.state for each in report.partitions} == {"restored"}
    assert {f"{each.topic}-{each.partition}" for each in report.partitions} == {golden.name for golden in known}
    written.keep(report)
    for last in (False, False, True):
        clock = clock_of(broker, tmp_path, "new", case) if last else None
        with broker.running():
            check_damaged(broker, report, known)
            if clock is not None:
                let_two_hours_pass(broker, clock)
                check_damaged(broker, report, known)
    clean_starts.check_words(broker, [golden.name for golden in known])


@pytest.mark.parametrize(
    "case",
    cases([("3.9.2-zookeeper", "4.3.0", 2)], ["3.9.2-zookeeper", "2.8.2-zookeeper"], KRAFT),
    ids=lambda case: "-".join(map(str, case)),
)
def test_topics_that_zookeeper_had(case: Case, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """Its data says which topics there are, with their settings and ids; a new cluster without ZooKeeper has them all."""
    old = DATA / f"kafka-{case.kind}"
    # The old broker's retention.
    broker, log_dirs = with_log_dirs(
        case.version, tmp_path / "broker", {**BUSY, "log.retention.ms": 12 * HOUR * 1000}, count=case.log_dirs
    )
    assert broker.metadata_dir is not None
    report = restore(
        [old / "log-dir", old / "zookeeper"], log_dirs, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True
    )
    assert not report.has_losses
    settings = json.loads((old / "settings.json").read_text(encoding="utf-8"))
    topics = Counter(each.topic for each in report.partitions)
    assert topics.keys() == settings.keys()
    written.keep(report)

    def check() -> None:
        with Admin(broker.address) as admin:
            held = admin.settings(list(topics))
            for topic, number in topics.items():
                assert len(admin.leader_epochs(topic)) == number
                own = {name: value for name, (value, source) in settings[topic].items() if source == "DYNAMIC_TOPIC_CONFIG"}
                assert own.items() <= {name: value for name, (value, _) in held[topic].items()}.items()

    for last in (False, False, True):
        clock = clock_of(broker, tmp_path, "zookeeper", case) if last else None
        with broker.running():
            check()
            for topic, number in topics.items():
                with Writer(broker.address, topic) as writer:
                    ends = [
                        writer.send(partition, [Appended(b"key", b"value", int(1000 * time.time()))]) for partition in range(number)
                    ]
                assert ends == [[broker.runs - 1]] * number
            if clock is not None:
                let_two_hours_pass(broker, clock)
                check()
                places = [TopicPartition(topic, partition) for topic, number in topics.items() for partition in range(number)]
                with ReaderOfAll(broker.address, places, "read_committed") as reader:
                    assert {at: [row.offset for row in rows] for at, rows in reader.everything().items()} == {
                        at: list(range(broker.runs)) for at in places
                    }
    clean_starts.check_words(broker, [f"{each.topic}-{each.partition}" for each in report.partitions])


@pytest.mark.parametrize("version", KRAFT)
def test_hundreds_of_topics(version: str, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
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
    written.keep(report)
    with (
        broker.running(),
        ReaderOfAll(broker.address, [TopicPartition(f"topic-{number}", 0) for number in range(count)], "read_committed") as all_,
    ):
        assert {at.topic: [row.value for row in rows] for at, rows in all_.everything().items()} == {
            f"topic-{number}": [b"value"] for number in range(count)
        }
    clean_starts.check_words(broker, [f"topic-{number}-0" for number in range(count)])


OF_TWO = {
    "marked as failed": "a follower of what the other leads ends, before or after that",
    r"Fetcher.*(Error in response for|Error when sending) ": "the leader that is followed goes, or has not come yet",
}


BESIDE = ("torn", "unclean", "2.8.2")
"""What is restored by later calls: damaged disks with 4.3.0, those of a killed broker with 3.9.2; all three, where there is time."""


def beside(version: str) -> Sequence[str]:
    """The kinds of this version's run. The two of killed brokers have topics of the same names: each version has one of them."""
    at = KRAFT.index(version)
    return [KILLED[at] if kind in KILLED else kind for kind in BESIDE] if IS_WHOLE else [BESIDE[at]]


def restored_beside(
    version: str, into: Callable[..., RestoreReport], topics: Sequence[str]
) -> dict[str, tuple[RestoreReport, list[Golden]]]:
    """What later calls restore of other disks, for each kind of them; topics that are there already are left out."""
    more: dict[str, tuple[RestoreReport, list[Golden]]] = {}
    there = set(topics)
    for kind in beside(version):
        sources, known = known_of(kind)
        known = [golden for golden in known if golden.topic not in there and not golden.topic.startswith(("__", "g-removed"))]
        names = sorted({golden.topic for golden in known})
        assert names
        also = into(sources, topics=names)
        assert {each.state for each in also.partitions} == {"restored"}
        # Of several replicas one is restored.
        partitions_known = {(golden.topic, golden.partition) for golden in known}
        known = [golden for golden in known if str(golden.directory) in {each.source for each in also.partitions}]
        assert {(golden.topic, golden.partition) for golden in known} == partitions_known
        assert len(also.partitions) == len(known) == len(partitions_known)
        more[kind] = also, known
        there |= set(names)
    return more


@pytest.mark.parametrize("version", KRAFT if IS_WHOLE else KRAFT[:1])
def test_replicas_on_two_brokers(version: str, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """Each has two log dirs. Both are in sync from the start, each leads some, and when one goes the other has every record."""
    first = broker_of(version, tmp_path / "first")
    second = MemberBroker(first, tmp_path / "second", 2)
    log_dirs = {broker: give_log_dirs(broker, BUSY) for broker in (first, second)}
    topics = ["g-plain", "g-codec-lz4", "g-epochs", "g-deleted-prefix"]
    assert first.metadata_dir is not None
    into = functools.partial(
        restore,
        into=[*log_dirs[first], *log_dirs[second]],
        metadata=first.metadata_dir,
        broker=first.properties,
        new_cluster=True,
        replication_factor=2,
    )
    report = into(SOURCES, topics=topics)
    # Brokers of Kafka 3 must not be there before the controller has the topics.
    assert any(each.about == "first start" for each in report.remaining) == (version < "4")
    assert {tuple(sorted(place.node_id or 0 for place in each.into)) for each in report.partitions} == {(1, 2)}
    assert {Path(place.path).parent for each in report.partitions for place in each.into} == {*log_dirs[first], *log_dirs[second]}
    written.keep(report)
    partitions = [golden for golden in READABLE if golden.topic in topics]
    more = restored_beside(version, into, topics)
    for also, _ in more.values():
        written.keep(also)
    topics += sorted({golden.topic for _, known in more.values() for golden in known})

    def check(broker: Broker) -> None:
        check_rows(broker, partitions)
        for kind, (also, known) in more.items():
            if kind == "torn":
                check_damaged(broker, also, known)
            else:
                check_rows(broker, known, epochs=False)

    with first.running():
        with second.running():
            leaders = wait_for_isr(first, topics, {1, 2})
            check(first)
            check(second)
        assert set(wait_for_isr(first, topics, {1}).values()) == {1}
        check(first)
        with second.running():
            wait_for_isr(first, topics, {1, 2})
            check(second)
    assert set(leaders.values()) == {1, 2}
    if IS_WHOLE:
        clock = with_moved_clock(first, tmp_path)
        second.environment = clock.environment
        with first.running(), second.running():
            wait_for_isr(first, topics, {1, 2})
            let_two_hours_pass(first, clock)
            check(first)
            check(second)
    everything = [*partitions, *(golden for _, known in more.values() for golden in known)]
    for broker in (first, second):
        clean_starts.check_words(broker, [golden.name for golden in everything], OF_TWO)
    for golden in everything:
        if is_compacted(golden.topic):
            # Each broker has a cleaner of its own.
            continue
        logs = [b"".join(file.read_bytes() for file in sorted(directory_of(golden, dirs).glob("*.log"))) for dirs in log_dirs.values()]
        assert logs[0] == logs[1], golden.name


OF_A_CONTROLLER_THAT_GOES = {
    "failed to change state for partition|Retrying controlled shutdown|Proceeding to do an unclean shutdown": (
        "no other broker is left to lead what the last one leads; its logs are closed as ever"
    ),
    "Received UNKNOWN_TOPIC_OR_PARTITION from the leader": "a follower learned of a new topic first",
}
TOPICS = {"g-plain": 3, "g-epochs": 2, "g-codec-zstd": 1, "g-compact": 1, "g-deleted-prefix": 2, "g-idem": 2}


@pytest.mark.skipif(not IS_WHOLE, reason=WHOLE_ONLY)
def test_a_leader_change_with_zookeeper(tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """Two stopped brokers of 2.8.2, whose cluster has the topics: when one goes the other has every record, and takes more."""
    # The broker that goes last has nobody to hand its partitions to, and asks three times.
    quiet = {**BUSY, "log.retention.ms": -1, "controlled.shutdown.retry.backoff.ms": 100}
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
    written.keep(report)
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
                    assert writer.send(golden.partition, [AFTERWARDS]) == [golden.end]
        with second.running():
            wait_for_isr(first, TOPICS, {1, 2})
            check_rows(second, partitions, epochs=False)
    assert 2 in leaders.values()
    for broker in (first, second):
        clean_starts.check_words(broker, [golden.name for golden in partitions], {**OF_TWO, **OF_A_CONTROLLER_THAT_GOES})


def directory_of(golden: Golden, log_dirs: Iterable[Path]) -> Path:
    """Where a broker has the partition."""
    (found,) = (log_dir / golden.name for log_dir in log_dirs if (log_dir / golden.name).exists())
    return found
