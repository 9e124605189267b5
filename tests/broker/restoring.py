"""What the tests of restored topics share: whose disks, which brokers, and what these must serve, say and keep."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from broker_words import alarms, check_alarms, check_untouched
from clients import Admin, ReaderOfAll, Writer
from golden import CLEAN, CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA, OLD_LOG_DIRS, OLD_PARTITIONS, Golden, Row, partitions_of
from kafka.structs import OffsetAndMetadata
from moved_clock import MovedClock, why_not
from peers import Appended

from broker import WITH_ZOOKEEPER, Broker, ZooKeeperBroker, broker_of, dump_files, sane_indexes
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from offsetlog import RestoredPartition, RestoreReport

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

SECONDS = 300
MEMBER_SECONDS = 20
AFTERWARDS = Appended(b"key", b"value", 1_800_000_000_000)
"""What is written behind restored records."""


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
                check_compacted(golden, had, _told(expected, epochs), epochs)
            else:
                # Behind an open transaction, which is over now, more is committed.
                assert had[: len(expected)] == _told(expected, epochs), golden.name
        begin, end = ranges[at]
        assert begin == golden.start
        assert end >= golden.end


def _told(rows: Iterable[Row], epochs: bool) -> list[Row]:
    """Old messages have no epoch, and some no type of their timestamp."""
    return list(rows) if epochs else [row._replace(leader_epoch=-1, timestamp_type=max(0, row.timestamp_type)) for row in rows]


def check_compacted(golden: Golden, seen: list[Row], expected: list[Row], epochs: bool) -> None:
    """The broker's cleaner goes on: nothing is new, and the last record of each key stays, unless it deletes the key or was aborted."""
    assert set(seen) <= set(expected), golden.name
    undecided = [row for row in golden.rows if row.offset >= golden.last_stable_offset]
    last = {row.key: row for row in _told([*golden.committed, *undecided], epochs)}
    kept = {row for row in last.values() if row.value is not None and row.offset < golden.last_stable_offset}
    assert kept <= set(seen), golden.name


class CleanStarts:
    """What brokers warn of that have no topic: of each kind one, started twice when it is asked for first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, frozenset[str]] = {}

    def warnings(self, broker: Broker) -> frozenset[str]:
        """Of a broker of the same kind, whichever log dirs it has and whoever else is in its cluster."""
        has_both = isinstance(broker, ZooKeeperBroker) and broker.version >= "3"
        kind = broker.version + (WITH_ZOOKEEPER if has_both else "")
        if kind not in self._known:
            empty, _ = with_log_dirs(kind, self._directory / kind, BUSY)
            for _ in range(2):
                with empty.running():
                    pass
            self._known[kind] = frozenset(plain for run in (1, 2) for _, plain in alarms(empty, run))
        return self._known[kind]

    def check_words(self, broker: Broker, directories: Iterable[str], also: Mapping[str, str] | None = None) -> None:
        """In no run did it warn of what these do not warn of; nothing was recovered, truncated, deleted or set aside."""
        check_alarms(broker, self.warnings(broker), also)
        check_untouched(broker, directories)


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


def check_that_groups_go_on(broker: Broker, commits: Mapping[tuple[str, str, int], int]) -> dict[tuple[str, str, int], int]:
    """A member of each group begins where the group had committed; it commits behind what it read first, which is given back.

    Where a group had read all there is, a record is written for it.
    """
    golden = places(READABLE)
    read = {TopicPartition(topic, partition) for _, topic, partition in commits}
    with ReaderOfAll(broker.address, list(read), "read_uncommitted") as reader:
        ends = {at: end for at, (_, end) in reader.ranges().items()}
    for (_, topic, partition), offset in commits.items():
        at = TopicPartition(topic, partition)
        if offset == ends[at]:
            with Writer(broker.address, topic) as writer:
                assert writer.send(partition, [AFTERWARDS]) == [offset]
            ends[at] += 1
    behind: dict[tuple[str, str, int], int] = {}
    for group in sorted({group for group, _, _ in commits}):
        wanted = {TopicPartition(topic, partition): offset for (name, topic, partition), offset in commits.items() if name == group}
        first = _first_of_each(broker, group, set(wanted))
        for at, offset in wanted.items():
            expected = next(
                ((row.offset, row.timestamp, row.key, row.value) for row in golden[at].rows if row.offset >= offset),
                (offset, AFTERWARDS.timestamp, AFTERWARDS.key, AFTERWARDS.value),
            )
            assert first[at] == expected, (group, at)
            behind[group, at.topic, at.partition] = expected[0] + 1
    return behind


def _first_of_each(
    broker: Broker, group: str, wanted: set[TopicPartition]
) -> dict[TopicPartition, tuple[int, int, bytes | None, bytes | None]]:
    """The first record that a member of the group is given of each partition; it commits behind them.

    A member of kafka-python that leads the group before it knows a topic assigns nothing, and waits: then another one comes.
    """
    first: dict[TopicPartition, tuple[int, int, bytes | None, bytes | None]] = {}
    end, patience = time.monotonic() + SECONDS, MEMBER_SECONDS
    while not wanted <= first.keys():
        assert time.monotonic() < end, (group, first)
        consumer = KafkaConsumer(
            bootstrap_servers=broker.address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        topics = sorted({at.topic for at in wanted})
        try:
            for topic in topics:
                consumer.partitions_for_topic(topic)
            consumer.subscribe(topics)
            until = time.monotonic() + patience
            # On a slow machine a member may take as long to join: the next one has more time.
            patience *= 2
            while not wanted <= first.keys() and time.monotonic() < until:
                for at, records in consumer.poll(timeout_ms=200).items():
                    record = records[0]
                    if at in wanted and at not in first:
                        first[at] = (record.offset, record.timestamp, record.key, record.value)
                        consumer.commit({at: OffsetAndMetadata(record.offset + 1, "", -1)})
        finally:
            consumer.close(autocommit=False)
    return first


GAPS = "Non-consecutive offsets in "
GAP = re.compile(r"  (-?[0-9]+) is followed by ([0-9]+)$")
"""What the dump tool complains of in compacted segments, in each that does not begin with offset 0, and where records are missing."""


def is_expected_gap(file: Path, each: RestoredPartition, before: int, offset: int) -> bool:
    """Whether the tool would say so of a sound log: it always looks for offset 0 first, and compaction leaves gaps; or the loss is told."""
    if is_compacted(each.topic) or (before == -1 and offset == int(file.stem)):
        return True
    lost = (range(loss.start, offset if loss.stop is None else loss.stop) for loss in each.losses)
    return any(before + 1 in offsets and offset - 1 in offsets for offsets in lost)


def is_compacted(topic: str) -> bool:
    """By its name, as all of them have it."""
    return "compact" in topic or topic.startswith("__")


ARGUMENT_BYTES = 100_000
"""Linux takes at most 128 KiB for one argument of a program."""


class WrittenFiles:
    """What was restored, before a broker had it. Kafka's dump tool looks at all of it in the end, many files a run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[Path, RestoredPartition] = {}

    def keep(self, report: RestoreReport) -> None:
        """Each partition, its copy on each broker too."""
        case = self._directory / str(len(list(self._directory.iterdir())))
        folders = [(place.node_id, Path(place.path), each) for each in report.partitions for place in each.into]
        assert folders
        for node_id, folder, each in folders:
            copy = case / str(node_id or 0) / folder.name
            shutil.copytree(folder, copy)
            logs = sorted(copy.glob("*.log"))
            assert logs, folder
            others = [file for kind in ("index", "timeindex", "txnindex", "snapshot") for file in sorted(copy.glob(f"*.{kind}"))]
            self._files |= {file: each for file in [*logs, *others] if file.stat().st_size}

    def check(self) -> None:
        """The tool finds nothing in segments, indexes and snapshots: on its output, on its error output, and by its check of indexes."""
        at_once = max(1, ARGUMENT_BYTES // max((len(str(file)) + 1 for file in self._files), default=1))
        all_files = list(self._files)
        for files in (all_files[begin : begin + at_once] for begin in range(0, len(all_files), at_once)):
            dumped = dump_files("4.3.0", files)
            assert dumped.keys() == set(files)
            indexes = [file for file in files if file.suffix in {".index", ".timeindex"}]
            assert not indexes or set(sane_indexes("4.3.0", indexes)) == set(indexes)
            for file, (lines, complaints) in dumped.items():
                assert lines or file.suffix != ".log", file
                wrong = [line for line in lines if "isvalid: false" in line]
                assert not wrong, (file, wrong[0])
                for line in complaints:
                    gap = GAP.match(line)
                    is_expected = (
                        line.startswith(GAPS) if gap is None else is_expected_gap(file, self._files[file], int(gap[1]), int(gap[2]))
                    )
                    assert is_expected, (file, line)


HOUR = 3600
YOUNG = {
    "young-deleted": {"cleanup.policy": "delete", "retention.ms": str(1000 * HOUR)},
    "young-compacted": {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(1000 * HOUR),
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.01",
    },
}
"""Topics of the cluster itself, for which an hour makes a difference."""


def young_values(broker: Broker) -> dict[str, list[bytes | None]]:
    """What can be read of them."""
    with ReaderOfAll(broker.address, [TopicPartition(topic, 0) for topic in YOUNG], "read_committed") as reader:
        return {at.topic: [row.value for row in rows] for at, rows in reader.everything().items()}


def with_moved_clock(broker: Broker, directory: Path) -> MovedClock:
    """The clock that the broker has from its next start on."""
    if reason := why_not():
        pytest.skip(reason)
    clock = MovedClock(directory)
    broker.environment = clock.environment
    return clock


def let_two_hours_pass(broker: Broker, clock: MovedClock) -> None:
    """By the broker's clock, with retention and the cleaner at work: they are done with what was young."""
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
    end = time.monotonic() + SECONDS
    while (values := young_values(broker)) != {"young-deleted": [], "young-compacted": [b"then", b"last"]}:
        assert time.monotonic() < end, values
        time.sleep(0.2)


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
WHOLE_ONLY = "OFFSETLOG_WHOLE_MATRIX=1: minutes of brokers, as make soak STEPS=restored has them"


def cases(chosen: Sequence[tuple[str, str, int]], kinds: Sequence[str], versions: Sequence[str]) -> list[Case]:
    """Those in which each kind, version and number of log dirs comes; all combinations, where there is time (`make soak`)."""
    if IS_WHOLE:
        return [Case(*each) for each in itertools.product(kinds, versions, (1, 2))]
    return [Case(*each) for each in chosen]


HOURS = {
    "new": [Case("unclean", "4.3.0", 2), Case("2.8.2", "3.9.2", 1), Case("torn", "4.3.0", 2)],
    "stopped": [Case("torn", "4.3.0", 2), Case("live", "3.9.2", 1), Case("clean", "2.8.2", 2)],
    "zookeeper": [Case("3.9.2-zookeeper", "4.3.0", 2)],
}
"""Those whose last run lasts two hours by the broker's clock: of each kind of disks one; all, where there is time. (2.8.2 looks for old
segments first after half a minute, by a clock that cannot be moved.)"""


def clock_of(broker: Broker, directory: Path, target: str, case: Case) -> MovedClock | None:
    """The clock of the broker's last run, if it moves."""
    return with_moved_clock(broker, directory) if IS_WHOLE or case in HOURS[target] else None


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
