"""Many threads on one log dir: every verb at random, and a plain account of what each call promised.

In a process of its own it tells the account line by line, each line after the call that it is about returned, until it is killed.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from offsetlog import LogDir, TopicPartition, WritableLog, WritableLogDir
from offsetlog.errors import LogClosedError, LogDirError

STABLE, PARTITIONS = ("s0", "s1", "s2", "s3"), 2
PASSING = ("x0", "x1")
OPEN_MAX = 3
APPENDERS = 3
FILES_MAX = 8
SETTINGS = {"internal.segment.bytes": 3000, "file.delete.delay.ms": 0, "retention.ms": -1, "segment.index.bytes": 4096}


class Acknowledged(NamedTuple):
    """A record that a call said it had appended; `deletions` of its topic were over when the call began."""

    topic: str
    partition: int
    offset: int
    value: str
    deletions: int


class Account:
    """What was promised, in memory, and on a descriptor where there is one."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.lock = threading.Lock()
        self.descriptor = descriptor
        self.records: list[Acknowledged] = []
        self.begun: Counter[str] = Counter()
        self.over: Counter[str] = Counter()
        self.calls = 0
        self.wrong: list[str] = []

    def tell(self, *words: object) -> None:
        if self.descriptor is not None:
            os.write(self.descriptor, (" ".join(map(str, words)) + "\n").encode())

    def acknowledge(self, record: Acknowledged) -> None:
        with self.lock:
            self.records.append(record)
        self.tell("record", *record)

    def begin(self, topic: str) -> None:
        with self.lock:
            self.begun[topic] += 1
        self.tell("begin", topic)

    def end(self, topic: str) -> None:
        with self.lock:
            self.over[topic] += 1
        self.tell("end", topic)

    @classmethod
    def heard(cls, lines: list[str]) -> Account:
        """The account that a process told before it was killed; its last line may be cut."""
        account = cls()
        for line in lines:
            match line.split():
                case ["record", topic, partition, offset, value, deletions]:
                    account.records.append(Acknowledged(topic, int(partition), int(offset), value, int(deletions)))
                case ["begin", topic]:
                    account.begun[topic] += 1
                case ["end", topic]:
                    account.over[topic] += 1
                case ["wrong", *words]:
                    account.wrong.append(" ".join(words))
                case _:
                    account.wrong.append(f"a line that nobody told: {line!r}")
        return account


class Run:
    """Threads on one log dir."""

    def __init__(self, log_dir: WritableLogDir, account: Account, seed: int, seconds: float, run: str) -> None:
        self.log_dir, self.account, self.seed, self.run = log_dir, account, seed, run
        self.until = time.monotonic() + seconds
        self.numbers = Counter[str]()
        self.files = 0

    def call(self, what: str, action: Callable[[], object], *allowed: type[Exception]) -> bool:
        """Does one call; says whether it went through. What is not allowed is written down."""
        with self.account.lock:
            self.account.calls += 1
        try:
            action()
        except allowed:
            return False
        except Exception:  # noqa: BLE001  # the point of the test
            told = f"{what}: {traceback.format_exc(limit=-3)}"
            self.account.wrong.append(told)
            self.account.tell("wrong", told.replace("\n", " | "))
            return False
        return True

    def append(self, topic: str, by: str, *, held: WritableLog | None, partition: int | None, flush: bool) -> None:
        self.numbers[by] += 1
        value = f"{self.run}-{by}-{self.numbers[by]}"
        deletions = self.account.over[topic]

        def append() -> None:
            if held is not None:
                where, offset = held.partition, held.append(value.encode(), flush=flush)
            else:
                done = self.log_dir.append(topic, value.encode(), partition=partition, flush=flush)
                where, offset = done.partition, done.offset
            self.account.acknowledge(Acknowledged(topic, where, offset, value, deletions))

        allowed: list[type[Exception]] = [LogDirError] if topic in PASSING else []
        # Of a log that somebody has, others may close the partition.
        self.call(f"append to {topic}", append, *allowed, *([LogClosedError] if held is not None else []))

    def appender(self, number: int) -> None:
        draw = random.Random(f"{self.seed} {number}")
        while time.monotonic() < self.until:
            topic = draw.choice(STABLE * 3 + PASSING)
            partition = draw.randrange(PARTITIONS)
            held: list[WritableLog] = []
            if draw.random() < 0.3:
                allowed = (LogDirError,) if topic in PASSING else ()
                self.call("log", lambda held=held, at=(topic, partition): held.append(self.log_dir.log(*at)), *allowed)  # type: ignore[misc]
            log = held[0] if held else None
            self.append(topic, f"a{number}", held=log, partition=draw.choice([None, partition]), flush=draw.random() < 0.1)
            if log is not None and draw.random() < 0.4:
                self.call("close of a log", log.close)

    def makes_topics(self, number: int) -> None:
        draw = random.Random(f"{self.seed} topics {number}")
        while time.monotonic() < self.until:
            topic = draw.choice(PASSING)
            if draw.random() < 0.6:
                self.call("create_topic", lambda topic=topic: self.log_dir.create_topic(topic, PARTITIONS), LogDirError)  # type: ignore[misc]
                self.append(topic, f"t{number}", held=None, partition=None, flush=False)
            else:
                self.account.begin(topic)
                self.call("delete_topic", lambda topic=topic: self.log_dir.delete_topic(topic), LogDirError)  # type: ignore[misc]
                self.account.end(topic)

    def reads(self) -> None:
        draw = random.Random(f"{self.seed} reads")
        everything = [TopicPartition(topic, partition) for topic in STABLE for partition in range(PARTITIONS)]
        while time.monotonic() < self.until:
            with self.account.lock:
                known = [record for record in self.account.records if record.topic in STABLE]
            match draw.randrange(12):
                case 0:
                    self.call("end_offsets", lambda known=known: self.check_ends(known))  # type: ignore[misc]
                case 1:
                    self.call("beginning_offsets", self.log_dir.beginning_offsets)
                case 2:
                    self.call("scan of all", lambda: self.log_dir.scan().count(), FileNotFoundError, LogDirError)
                case 3:
                    self.call("scan", lambda known=known: self.check_scan(known, everything))  # type: ignore[misc]
                case 4:
                    self.call("offsets_for_times", lambda: self.log_dir.offsets_for_times(dict.fromkeys(everything, 0)))
                case 5:
                    self.call("refresh", self.log_dir.refresh)
                    self.call("end_offsets after refresh", lambda known=known: self.check_ends(known))  # type: ignore[misc]
                case 6:
                    topic = draw.choice(STABLE * 2 + PASSING)
                    allowed = (LogDirError,) if topic in PASSING else ()
                    self.call("topic_settings", lambda topic=topic: self.check_settings(topic), *allowed)  # type: ignore[misc]
                case 7:
                    self.call("groups", self.check_groups)
                case 8:
                    self.call("follow", lambda known=known: self.check_followed(known, everything))  # type: ignore[misc]
                case 9 | 10:
                    self.asks(draw, everything)
                case _:
                    self.call("topics", self.log_dir.topics)
                    self.call("repr", lambda: repr(self.log_dir))

    def asks(self, draw: random.Random, everything: list[TopicPartition]) -> None:
        """What operators ask of a log dir without coordinators, metadata and idempotent producers."""
        match draw.randrange(4):
            case 0:
                self.call("transactions", lambda: self.check_nothing(self.log_dir.transactions()))
                self.call("groups_reset_csv", self.log_dir.groups_reset_csv)
                self.call("groups_prometheus", self.log_dir.groups_prometheus)
            case 1:
                self.call("producers", lambda: self.check_nothing(self.log_dir.producers(topics=STABLE)))
                self.call("why", lambda: self.log_dir.why(topics=STABLE))
            case 2:
                self.call("metadata", lambda: self.check_nothing(self.log_dir.metadata()))
                self.call("strays", lambda: self.check_nothing(self.log_dir.strays()))
            case _:
                self.call("topic_config", lambda: self.log_dir.topic_config(draw.choice(STABLE)))
                self.call("partitions", lambda: self.check_partitions(everything))

    @staticmethod
    def check_nothing(found: object) -> None:
        assert not found, found

    def check_partitions(self, known: list[TopicPartition]) -> None:
        missing = {*known} - {*self.log_dir.partitions()}
        assert not missing, missing

    def check_settings(self, topic: str) -> None:
        found = self.log_dir.topic_settings(topic).settings
        assert found["internal.segment.bytes"].value == str(SETTINGS["internal.segment.bytes"]), (topic, found)

    def check_groups(self) -> None:
        groups = self.log_dir.groups()
        assert not groups, groups

    def check_followed(self, known: list[Acknowledged], partitions: list[TopicPartition]) -> None:
        """What was appended before is given once, whatever comes meanwhile."""
        owed = {(one.topic, one.partition, one.offset): one.value.encode() for one in known}
        given = set()
        # Where one of them never comes, this ends when nobody appends any more.
        for record in self.log_dir.scan(partitions).follow(timeout_ms=20, poll_interval_ms=5):
            key = record.topic, record.partition, record.offset
            assert key not in given, f"{key} was given twice"
            given.add(key)
            value = owed.pop(key, record.value)
            assert value == record.value, f"{value!r} was appended at {key}, a follower has {record.value!r}"
            if not owed:
                return
        assert not owed, f"{len(owed)} records were appended and are not followed: {min(owed)}"

    def check_ends(self, known: list[Acknowledged]) -> None:
        ends = self.log_dir.end_offsets()
        for record in known:
            key = TopicPartition(record.topic, record.partition)
            assert ends[key] > record.offset, f"{record} was appended, and {key} ends at {ends[key]}"

    def check_scan(self, known: list[Acknowledged], partitions: list[TopicPartition]) -> None:
        found = {(record.topic, record.partition, record.offset): record.value for record in self.log_dir.scan(partitions)}
        for record in known:
            value = found.get((record.topic, record.partition, record.offset))
            assert value == record.value.encode(), f"{record} was appended, a scan has {value!r}"

    def keeps(self, number: int) -> None:
        draw = random.Random(f"{self.seed} keeps {number}")
        while time.monotonic() < self.until:
            match draw.randrange(4):
                case 0:
                    self.call("maintain", self.maintain)
                case 1:
                    self.call("remove_deleted", self.log_dir.remove_deleted)
                case 2:
                    self.call("flush", self.log_dir.flush)
                case _:
                    topic = draw.choice(STABLE)
                    config = {**SETTINGS, "retention.bytes": draw.randrange(1 << 40, 1 << 41)}
                    self.call("set_topic_config", lambda at=(topic, config): self.log_dir.set_topic_config(*at))  # type: ignore[misc]
            time.sleep(0.001)

    def maintain(self) -> None:
        report = self.log_dir.maintain()
        # A topic that goes, and comes again, while upkeep looks at it.
        failed = {key: reason for key, reason in report.failed.items() if key.topic not in PASSING}
        assert not failed, failed
        assert not report.busy, report.busy

    def looks_at_files(self, folder: Path) -> None:
        while time.monotonic() < self.until:
            self.files = max(self.files, open_files(folder))
            time.sleep(0.002)

    def all(self, folder: Path) -> None:
        work: list[Callable[[], None]] = [lambda at=at: self.appender(at) for at in range(APPENDERS)]  # type: ignore[misc]
        work += [lambda at=at: self.makes_topics(at) for at in range(2)]  # type: ignore[misc]
        work += [lambda at=at: self.keeps(at) for at in range(2)]  # type: ignore[misc]
        work += [self.reads, lambda: self.looks_at_files(folder)]
        threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
            if thread.is_alive():
                self.account.wrong.append("a thread did not come back within ten minutes")

    # Each running call may hold one partition, and its log.
    allowed_files = FILES_MAX * (OPEN_MAX + 2 * APPENDERS + 5) + 4


def _open_names(folder: Path) -> Iterator[str]:
    """The open files below the folder, by their paths in it."""
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            path = str(descriptor.readlink())
        except OSError:
            continue
        if path.startswith(f"{folder}/"):
            yield path.removeprefix(f"{folder}/")


def open_files(folder: Path) -> int:
    """How many files below the folder this process has open."""
    return sum(1 for _ in _open_names(folder))


def open_partitions(folder: Path) -> set[str]:
    """The partitions in the folder of which this process has a file open."""
    return {name.partition("/")[0] for name in _open_names(folder) if "/" in name}


def opened(folder: Path) -> WritableLogDir:
    """The log dir with the topics that stay."""
    log_dir = LogDir.open(folder, "a", max_open_partitions=OPEN_MAX, seed=1, defaults=SETTINGS)
    for topic in STABLE:
        if topic not in log_dir.topics():
            log_dir.create_topic(topic, PARTITIONS)
    return log_dir


def check(log_dir: LogDir, account: Account) -> None:
    """Holds what is there against the account: each acknowledged record once and where it was said to be, no other one twice."""
    found: dict[tuple[str, int, int], str] = {}
    for record in log_dir.scan():
        found[record.topic, record.partition, record.offset] = (record.value or b"").decode()
    twice = [value for value, count in Counter(found.values()).items() if count > 1]
    assert not twice, f"more than once: {twice[:5]}"
    for one in account.records:
        topic = one.topic
        in_doubt = account.begun[topic] != account.over[topic] or one.deletions != account.over[topic]
        if topic in PASSING and in_doubt:
            continue
        value = found.get((topic, one.partition, one.offset))
        assert value == one.value, f"{one} was acknowledged, {value!r} found"


def main() -> None:
    """`log_dir_threads.py FOLDER SEED RUN`: until somebody kills it."""
    folder, seed, run = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    logging.disable(logging.WARNING)
    account = Account(sys.stdout.fileno())
    log_dir = opened(folder)
    os.write(sys.stdout.fileno(), b"ready\n")
    Run(log_dir, account, seed, 60, run).all(folder)


if __name__ == "__main__":
    main()
