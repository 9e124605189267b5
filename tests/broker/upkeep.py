"""The same stopped broker's directories twice: one is kept by a broker that starts on it, one by `maintain`.

A broker makes topics and fills them with segments of all ages, while nothing in it ever looks what is due. It stops, and its directory
is copied: for a broker that looks often, and for us. What the broker's own copy is like when there is nothing left to do is what ours
must be like. The settings come from every layer: of the topic, of the broker, of all brokers, of `server.properties`, and Kafka's.
"""

from __future__ import annotations

import functools
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clients import Admin, ReaderOfAll
from golden import Row, rows
from kafka.structs import OffsetAndMetadata
from peers import Appended, encoded
from test_dry_runs import tree
from wire import Wire

from broker import NODE_ID, STARTED, WITH_ZOOKEEPER, broker_of
from kafka import KafkaConsumer, TopicPartition
from offsetlog import Log, LogDir, TopicSettings, WhyAnswer

HOUR = 3_600_000
DAY = 24 * HOUR
AGES = (400 * DAY, 30 * DAY, 10 * DAY, 5 * DAY, 2 * DAY, 20 * HOUR, 3 * HOUR, 2 * HOUR, HOUR // 2, 0)
"""Of the segments of most topics: between any two of them lies the time of some layer, hours away from either."""
RECORDS = 5
LEAST_SEGMENT = 1 << 20
CUT, CUT_AT = "own-cut", 12
SMALL, SMALL_BYTES = "own-unordered", 2000
UPKEEP_SECONDS = 300
STEADY_SECONDS = 3.0
ROUNDS, STEADY_ROUNDS = 4, 12
"""A broker that went that often over its logs, and so often since its last change, is done: on a slow machine that takes longer."""
INTERNAL = "__consumer_offsets"

ALL_OF_DELETION = {
    "cleanup.policy": "delete",
    "retention.ms": str(DAY),
    "retention.bytes": "-1",
    "file.delete.delay.ms": "60000",
}
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
ALL_OF_COMPACTION = {
    "cleanup.policy": "compact",
    "file.delete.delay.ms": "60000",
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": str(HOUR),
    "max.compaction.lag.ms": str(1000 * DAY),
    "delete.retention.ms": "0",
    "segment.bytes": str(LEAST_SEGMENT),
    "segment.index.bytes": str(LEAST_SEGMENT),
}
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "plain-keyless": {},
    "plain-old": {},
    "own-unordered": {},
    "own-kept": {"retention.ms": "-1"},
    "own-bytes": {"retention.ms": "-1", "retention.bytes": "4000"},
    "own-short": {"retention.ms": str(5 * HOUR // 2)},
    "own-delete": {"cleanup.policy": "delete"},
    "own-compact": {"cleanup.policy": "compact"},
    "own-lag": {"cleanup.policy": "compact", "min.compaction.lag.ms": str(3 * DAY)},
    "own-both": {"cleanup.policy": "compact,delete", "retention.ms": str(5 * HOUR // 2)},
    "own-both-open": {"cleanup.policy": "compact,delete"},
    "own-cut": {"retention.ms": "-1"},
    "all-delete": ALL_OF_DELETION,
    "all-compact": ALL_OF_COMPACTION,
    "own-for-ever": FOR_EVER,
    "own-both-for-ever": {"cleanup.policy": "compact,delete", **FOR_EVER},
    "all-for-ever": {**ALL_OF_DELETION, **FOR_EVER},
}
"""What each topic is given. Those of `all-` are given everything that decides, and need no other layer."""
DECIDING = (*{**ALL_OF_DELETION, **ALL_OF_COMPACTION}, "remote.storage.enable")

NEVER = 1000 * HOUR
DELAY = "log.initial.task.delay.ms"
SLEEPING: Mapping[str, object] = {
    "log.message.timestamp.after.max.ms": 2**63 - 1,
    # One segment a batch, and nobody looks what is due.
    "log.roll.ms": 60_000,
    DELAY: NEVER,
    "log.retention.check.interval.ms": NEVER,
    "log.cleaner.enable": "false",
}
AWAKE: Mapping[str, object] = {
    "log.message.timestamp.after.max.ms": 2**63 - 1,
    DELAY: 0,
    "log.retention.check.interval.ms": 200,
    "log.retention.ms": None,
}
LEVELS = {"kafka.log.LogManager": "debug"}
ROUND = "Log cleanup completed"


@dataclass(frozen=True)
class Case:
    """A state of the cluster, and what `server.properties` says besides."""

    name: str
    state: str
    static: Mapping[str, object]
    decides: Mapping[str, tuple[str, str]]
    """What the broker must say of a topic without settings of its own: the value of each setting, and our name of its layer."""


OWN, BY_DEFAULT, BY_BROKER, DEFAULT_KEEPS, BROKER_KEEPS, BROKER_COMPACTS = (
    "own",
    "by default",
    "by broker",
    "default keeps",
    "broker keeps",
    "broker compacts",
)
"""What the cluster is told, one after the other: at first nothing but the topics' own settings."""
STATES: Mapping[str, Mapping[str, Mapping[str, str | None]]] = {
    BY_DEFAULT: {
        "": {
            "log.retention.ms": str(36 * HOUR),
            "log.retention.bytes": "-1",
            "log.cleanup.policy": "delete",
            "log.segment.delete.delay.ms": "60000",
        },
    },
    BY_BROKER: {
        str(NODE_ID): {"log.retention.ms": str(12 * HOUR), "log.retention.bytes": "5000"},
        "": {"log.cleanup.policy": "compact,delete"},
    },
    DEFAULT_KEEPS: {
        str(NODE_ID): {"log.retention.ms": None, "log.retention.bytes": None},
        "": {"log.retention.ms": "-1", "log.cleanup.policy": "compact"},
    },
    BROKER_KEEPS: {
        str(NODE_ID): {"log.retention.ms": "-1", "log.retention.bytes": "-1", "log.cleanup.policy": "compact,delete"},
        "": {"log.retention.ms": str(12 * HOUR), "log.retention.bytes": "5000"},
    },
    BROKER_COMPACTS: {
        str(NODE_ID): {"log.retention.ms": None, "log.retention.bytes": None, "log.cleanup.policy": "compact"},
        "": {"log.retention.ms": None, "log.retention.bytes": None, "log.cleanup.policy": "compact,delete"},
    },
}
"""What is said then of this broker, or without a name of all brokers; `None` takes a setting back."""

BACKOFF = "log.cleaner.backoff.ms"
LATE = {DELAY: 3000, BACKOFF: 3000}
"""A broker of KRaft leads its partitions for a moment before it takes up dynamic settings of brokers, and one that looks then what is due
goes by `server.properties`. Cases in which that removes more begin to look later. A cleaner has its first look at once whatever it is told:
where it falls into the moment, the broker is given another copy. A slow one, whose moment is longer, is also given more time."""
REMOVED = re.compile(r"Deleting segment|Incremented log start offset|Beginning cleaning")
MOMENTS = 5
"""So often in a row on the slowest machine, it is no chance."""
REMOVES: Mapping[str, object] = {"log.retention.hours": 1, "log.retention.bytes": 4000, "log.cleanup.policy": "delete", **LATE}
"""Most of every log, if no layer above says otherwise."""
CASES = (
    Case(
        "Kafka's defaults",
        OWN,
        {},
        {"retention.ms": (str(7 * DAY), "default"), "retention.bytes": ("-1", "default"), "cleanup.policy": ("delete", "default")},
    ),
    Case(
        "server.properties, hours and compact",
        OWN,
        {"log.retention.hours": 96, "log.cleanup.policy": "compact"},
        # Of hours, the broker does not say from where they are.
        {"retention.ms": (str(96 * HOUR), "default"), "cleanup.policy": ("compact", "broker")},
    ),
    Case(
        "server.properties, all of it",
        OWN,
        {
            "log.retention.hours": 1,
            "log.retention.minutes": 36 * 60,
            "log.retention.bytes": 6000,
            "log.cleanup.policy": "compact,delete",
            "log.cleaner.min.compaction.lag.ms": 3 * DAY,
            "log.segment.delete.delay.ms": 0,
        },
        {"retention.bytes": ("6000", "broker"), "cleanup.policy": ("compact,delete", "broker")},
    ),
    Case(
        "server.properties, for ever",
        OWN,
        {"log.retention.hours": 1, "log.retention.minutes": 60, "log.retention.ms": -1, "log.retention.bytes": -1},
        {"retention.ms": ("-1", "broker"), "retention.bytes": ("-1", "broker"), "cleanup.policy": ("delete", "default")},
    ),
    Case(
        "the default of all brokers",
        BY_DEFAULT,
        {"log.retention.hours": 96},
        {
            "retention.ms": (str(36 * HOUR), "dynamic default broker"),
            "retention.bytes": ("-1", "dynamic default broker"),
            "cleanup.policy": ("delete", "dynamic default broker"),
        },
    ),
    Case(
        "the broker's own",
        BY_BROKER,
        {"log.retention.ms": -1, "log.cleanup.policy": "delete"},
        {
            "retention.ms": (str(12 * HOUR), "dynamic broker"),
            "retention.bytes": ("5000", "dynamic broker"),
            "cleanup.policy": ("compact,delete", "dynamic default broker"),
        },
    ),
    Case(
        "the default of all brokers, for ever and compact",
        DEFAULT_KEEPS,
        REMOVES,
        {
            "retention.ms": ("-1", "dynamic default broker"),
            "retention.bytes": ("-1", "dynamic default broker"),
            "cleanup.policy": ("compact", "dynamic default broker"),
        },
    ),
    Case(
        "the broker's own, for ever and both",
        BROKER_KEEPS,
        REMOVES,
        {
            "retention.ms": ("-1", "dynamic broker"),
            "retention.bytes": ("-1", "dynamic broker"),
            "cleanup.policy": ("compact,delete", "dynamic broker"),
        },
    ),
    Case(
        "the broker's own compact, and for ever when all else is taken back",
        BROKER_COMPACTS,
        {**REMOVES, "log.retention.ms": -1, "log.retention.bytes": -1},
        {"retention.ms": ("-1", "broker"), "retention.bytes": ("-1", "broker"), "cleanup.policy": ("compact", "dynamic broker")},
    ),
)
AT_ONCE = "server.properties, all of it"
CASES_OF = {"3.9.2": tuple(case for case in CASES if case.name not in {"Kafka's defaults", "the default of all brokers"})}
"""Not all of them where another broker does the same by the same code."""


@dataclass
class Kept:
    """What is left of a partition."""

    start: int
    end: int
    segments: list[int]
    rows: list[Row]


def as_given(topic: str, settings: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """What the broker says that decides, as options of ours. Segments that are smaller than today's least have a name of their own."""
    given = {name: settings[name][0] for name in DECIDING}
    if topic == SMALL:
        # A broker that has this name does not tell of it.
        given |= {"internal.segment.bytes": str(SMALL_BYTES), "segment.bytes": str(LEAST_SEGMENT)}
    return given


@dataclass
class Run:
    """One `maintain` of ours, and what it left of each topic."""

    kept: dict[str, Kept]
    failed: dict[str, str]
    internal: set[str]
    changed: set[str]
    """The partition directories in which anything is not as before: a byte, a name, a time."""
    waiting: dict[str, set[str]]


@dataclass
class Outcome:
    """What became of one case."""

    theirs: dict[str, Kept] = field(default_factory=dict)
    theirs_waiting: dict[str, set[str]] = field(default_factory=dict)
    settings: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    """What the broker says that holds, and since which layer."""
    told: dict[str, TopicSettings] = field(default_factory=dict)
    """What we say."""
    runs: dict[str, Run] = field(default_factory=dict)
    """Ours, by what was given."""
    by_command: dict[str, Kept] = field(default_factory=dict)
    why: dict[str, dict[str, WhyAnswer]] = field(default_factory=dict)
    """What we said of each topic's directory before the broker came to it, by question."""
    why_then: dict[str, dict[str, WhyAnswer]] = field(default_factory=dict)
    """The same when the broker had no more to do."""
    compacted: set[str] = field(default_factory=set)
    """Topics that the broker's cleaner had at least one pass over."""
    alone: dict[str, Kept] = field(default_factory=dict)
    """What `Log.maintain` leaves of each topic, which is for one partition what a broker does that has no other."""

    def has_both(self, topic: str) -> bool:
        """Whether the broker says that it compacts the topic, and removes segments of it too: old ones, or those before its beginning."""
        policies = set(self.settings[topic]["cleanup.policy"][0].split(","))
        return policies == {"compact", "delete"} or (topic == CUT and "compact" in policies)


class Upkeep:
    """All of it for one kind of broker."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self.directory = directory
        self.has_zookeeper = version.endswith(WITH_ZOOKEEPER)
        self.broker = broker_of(version, directory / "broker")
        self.seconds: dict[str, float] = {}
        self.failure: Exception | None = None
        self.outcomes: dict[str, Outcome] = {}
        self.cases = CASES_OF.get(version, CASES)
        self.filled: dict[str, Kept] = {}
        """What the broker served of each topic before anybody removed anything."""
        self.sizes: dict[str, dict[int, int]] = {}
        """The bytes of its segments then, by base offset."""
        self._random = random.Random(f"upkeep {version}")

    def live(self) -> None:
        """From beginning to end, or to the first step that fails."""
        steps: list[tuple[str, Callable[[], None]]] = [("made", self.made), ("told", self.told)]
        steps += [(case.name, functools.partial(self.kept, case)) for case in self.cases]
        for name, step in steps:
            began = time.monotonic()
            try:
                step()
            except Exception as failure:  # noqa: BLE001  # whatever it is, a test raises it
                failure.add_note(f"Kafka {self.version}, step `{name}`")
                self.failure = failure
                return
            finally:
                self.seconds[name] = round(time.monotonic() - began, 1)

    def _state(self, name: str) -> Path:
        return self.directory / f"state {name}"

    def _place(self, case: Case) -> Path:
        # Commas part log dirs.
        return self.directory / f"case {self.cases.index(case)}"

    def _store(self, name: str) -> None:
        shutil.copytree(self.broker.directory, self._state(name))

    def _batches(self, topic: str) -> Sequence[tuple[int, list[Appended]]]:
        """The age of each, and its records: few keys, now and then one that is deleted."""
        ages = {"plain-old": [age + 400 * DAY for age in AGES], "own-unordered": [*AGES[:2], AGES[-1], *AGES[2:-1]]}.get(topic, AGES)
        chosen = self._random
        return [
            (
                age,
                [
                    Appended(
                        None if topic == "plain-keyless" else b"key-%d" % chosen.randrange(9),
                        None if n and chosen.random() < 0.2 else chosen.randbytes(chosen.randrange(100, 250)),
                        0,
                        (("trace", b"%d" % n),) if chosen.random() < 0.2 else (),
                    )
                    for n in range(RECORDS)
                ],
            )
            for age in ages
        ]

    def made(self) -> None:
        """Topics with segments of all ages, a group, and a log of which the beginning was deleted by request."""
        self.broker.settings = SLEEPING
        self.broker.format()
        with self.broker.running(), Admin(self.broker.address) as admin:
            # Times that go back begin no segment, bytes do.
            small = "internal.segment.bytes" if self.version >= "4" else "segment.bytes"
            for topic, settings in SETTINGS.items():
                admin.create(topic, 1, {**settings, **({small: str(SMALL_BYTES)} if topic == SMALL else {})})
            for topic in SETTINGS:
                admin.leader_epochs(topic)
            with self._reader() as reader:
                assert set(reader.ranges().values()) == {(0, 0)}
            now = int(time.time() * 1000)
            with Wire(self.broker.address) as wire:
                for topic in SETTINGS:
                    for age, records in self._batches(topic):
                        made = [record._replace(timestamp=now - age) for record in records]
                        answer = wire.produce(topic, 0, encoded("kafka-python", 2, "none", 0, made))
                        assert answer.error == 0, answer
            admin.delete_records_before(CUT, {0: CUT_AT})
            consumer = KafkaConsumer(bootstrap_servers=self.broker.address, group_id="readers", enable_auto_commit=False)
            consumer.commit({TopicPartition("plain", 0): OffsetAndMetadata(3, "", -1)})
            consumer.close()
            self.filled = self._served()
        self._fill_segments(self.filled, self.broker.log_dir)
        for topic, kept in self.filled.items():
            self.sizes[topic] = {
                base: (self.broker.log_dir / f"{topic}-0" / f"{base:020}.log").stat().st_size for base in kept.segments
            }
        self._store(OWN)

    def told(self) -> None:
        """The cluster hears of other settings, and nobody acts by them yet."""
        for state, told in STATES.items():
            with self.broker.running(), Wire(self.broker.address) as wire:
                for name, settings in told.items():
                    wire.alter_broker(name, settings)
            self._store(state)
        assert self._segments(self.broker.log_dir) == {topic: kept.segments for topic, kept in self.filled.items()}

    def _reader(self) -> ReaderOfAll:
        return ReaderOfAll(self.broker.address, [TopicPartition(topic, 0) for topic in SETTINGS], "read_uncommitted")

    def _served(self) -> dict[str, Kept]:
        """What consumers get from the broker that runs."""
        with self._reader() as reader:
            ranges, everything = reader.ranges(), reader.everything()
        return {at.topic: Kept(*ranges[at], [], everything[at]) for at in ranges}

    @staticmethod
    def _segments(log_dir: Path) -> dict[str, list[int]]:
        return {topic: sorted(int(path.stem) for path in (log_dir / f"{topic}-0").glob("*.log")) for topic in SETTINGS}

    def _fill_segments(self, kept: dict[str, Kept], log_dir: Path) -> None:
        for topic, segments in self._segments(log_dir).items():
            kept[topic].segments = segments

    @staticmethod
    def _waiting(log_dir: Path) -> dict[str, set[str]]:
        return {topic: {path.name for path in (log_dir / f"{topic}-0").glob("*.deleted")} for topic in SETTINGS}

    def kept(self, case: Case) -> None:
        """One copy is kept by the broker, the others by us."""
        outcome = Outcome()
        place = self._place(case)
        for nth in range(1, MOMENTS + 1):
            self.broker = broker_of(self.version, self._copy(case, place / f"theirs {nth}"))
            is_late = case.static.keys() >= LATE.keys() and not self.has_zookeeper
            self.broker.settings = {**AWAKE, **case.static, **({DELAY: LATE[DELAY] * nth} if is_late else {})}
            self.broker.levels = LEVELS
            with self.broker.running():
                if is_late and self._removed_before_it_served():
                    assert nth < MOMENTS, f"whenever it starts; see {self.broker.output()}"
                    continue
                self._wait_until_done(STEADY_SECONDS + 2 * int(str(case.static.get(BACKOFF, 0))) / 1000)
                outcome.theirs = self._served()
                with Admin(self.broker.address) as admin:
                    outcome.settings = admin.settings(list(SETTINGS))
                break
        self._fill_segments(outcome.theirs, self.broker.log_dir)
        outcome.theirs_waiting = self._waiting(self.broker.log_dir)
        properties = self.broker.properties
        outcome.compacted = self._compacted(self.broker.log_dir)
        outcome.why_then = self._why(self.broker.directory, properties)
        everything = self._copy(case, place / "all")
        outcome.why = self._why(everything, properties)
        outcome.runs["all"] = self._ours(everything, broker=properties, told=outcome.told)
        # The first of these leave the copy as it is, or the tests fail.
        less = self._copy(case, place / "less")
        outcome.runs["no metadata"] = self._ours(less, broker=properties, metadata=False)
        outcome.runs["nothing"] = self._ours(less, metadata=False)
        outcome.runs["no properties"] = self._ours(less)
        if case.state != OWN:
            outcome.by_command = self._by_command(self._copy(case, place / "command"), properties)
        else:
            options = self._copy(case, place / "options")
            outcome.runs["options"] = self._ours(options, metadata=False, config=outcome.settings)
        outcome.alone = self._alone(self._copy(case, place / "alone"), properties)
        self.outcomes[case.name] = outcome

    def _removed_before_it_served(self) -> bool:
        """Whether the broker said so: when it serves, it has taken up all settings."""
        said = self.broker.output().read_text(encoding="utf-8", errors="replace")
        started = STARTED.search(said)
        return started is not None and REMOVED.search(said, 0, started.start()) is not None

    def _copy(self, case: Case, place: Path) -> Path:
        shutil.copytree(self._state(case.state), place)
        return place

    def _wait_until_done(self, steady_seconds: float) -> None:
        """Wait until nothing has changed for so long: longer than a cleaner waits that found nothing to do."""
        end = time.monotonic() + UPKEEP_SECONDS
        seen, since, before = self._look(), time.monotonic(), 0
        while time.monotonic() < end:
            time.sleep(0.1)
            now = self._look()
            rounds = self.broker.output().read_text(encoding="utf-8", errors="replace").count(ROUND)
            if now != seen or rounds < ROUNDS:
                seen, since, before = now, time.monotonic(), rounds
            if time.monotonic() - since >= steady_seconds and rounds - before >= STEADY_ROUNDS:
                return
        raise TimeoutError(f"upkeep goes on after {UPKEEP_SECONDS} s; see {self.broker.output()}")

    def _look(self) -> dict[str, int | str]:
        """Segments with their sizes, what a pass of the cleaner works at, and how far it came."""
        found: dict[str, int | str] = {}
        for path in self.broker.log_dir.rglob("*"):
            try:
                if path.suffix in {".log", ".cleaned", ".swap"}:
                    found[str(path)] = path.stat().st_size
                elif path.name == "cleaner-offset-checkpoint":
                    found[str(path)] = path.read_text(encoding="ascii")
            except FileNotFoundError:
                found[str(path)] = "it goes"
        return found

    def _dirs(self, place: Path) -> tuple[Path, Path]:
        """The log dir, and the folder that tells of the cluster: of its metadata log, or of ZooKeeper."""
        there = broker_of(self.version, place)
        cluster = there.metadata_dir or there.zookeeper_dir
        assert cluster is not None
        return there.log_dir, cluster

    def _ours(
        self,
        place: Path,
        *,
        broker: Path | None = None,
        metadata: bool = True,
        config: Mapping[str, Mapping[str, tuple[str, str]]] | None = None,
        told: dict[str, TopicSettings] | None = None,
    ) -> Run:
        """Keep a copy with what is given: a `server.properties`, the metadata, or settings for each topic."""
        dirs = self._dirs(place)
        partitions = [path for folder in dirs for path in folder.iterdir() if path.is_dir()]
        before = {path: tree(path) for path in partitions}
        # A metadata log is found beside the log dir, or named.
        named = dirs[1] if metadata and self.has_zookeeper else None
        with LogDir.open(dirs[:1] if named or not metadata else dirs, "a", broker=broker, metadata=named) as log_dir:
            if config is None:
                reports = [log_dir.maintain()]
            else:
                given = {topic: as_given(topic, settings) for topic, settings in config.items()}
                reports = [log_dir.maintain(topics=topic, config=settings) for topic, settings in given.items()]
            if told is not None:
                told.update({topic: log_dir.topic_settings(topic) for topic in SETTINGS})
        return Run(
            kept=self._left(dirs[0]),
            failed={topic: why for report in reports for (topic, _), why in report.failed.items()},
            internal={topic for report in reports for topic, _ in report.internal},
            changed={path.name for path, names in before.items() if tree(path) != names},
            waiting=self._waiting(dirs[0]),
        )

    def _why(self, place: Path, properties: Path) -> dict[str, dict[str, WhyAnswer]]:
        """What keeps the records of each topic."""
        log_dir, metadata = self._dirs(place)
        found: dict[str, dict[str, WhyAnswer]] = {topic: {} for topic in SETTINGS}
        with LogDir.open(log_dir) as logs:
            for answer in logs.why(topics=list(SETTINGS), broker=properties, metadata=metadata):
                found[answer.topic][answer.question] = answer
        return found

    @staticmethod
    def _compacted(log_dir: Path) -> set[str]:
        lines = (log_dir / "cleaner-offset-checkpoint").read_text(encoding="ascii").splitlines()
        return {line.split()[0] for line in lines[2:]}

    def _left(self, log_dir: Path) -> dict[str, Kept]:
        """What is left of each topic, as we read it."""
        found = {}
        for topic, segments in self._segments(log_dir).items():
            with Log.open(log_dir / f"{topic}-0") as log:
                found[topic] = Kept(log.log_start_offset, log.log_end_offset, segments, list(rows(log.scan())))
        return found

    def _alone(self, place: Path, properties: Path) -> dict[str, Kept]:
        """One partition after the other, as if it were the only one."""
        log_dir, metadata = self._dirs(place)
        for topic in SETTINGS:
            with Log.open(log_dir / f"{topic}-0", "a", broker=properties, metadata=metadata) as log:
                log.maintain()
        return self._left(log_dir)

    def _by_command(self, place: Path, properties: Path) -> dict[str, Kept]:
        """The same from a shell."""
        log_dir, metadata = self._dirs(place)
        command = [
            sys.executable,
            "-m",
            "offsetlog",
            "maintain",
            str(log_dir),
            "--metadata",
            str(metadata),
            "--broker",
            str(properties),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=UPKEEP_SECONDS)
        assert done.returncode == 0, done.stderr
        return self._left(log_dir)
