"""Kafka's own programs and kcat say of `serve` what they say of the broker whose directories it serves."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from asking import LEVELS, READABLE, commits
from clients import console_rows
from golden import CLEAN, CLEAN_LOG_DIRS, Golden, Level, Row, named
from protocol import DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_FETCH, Connection, Value
from served import GoldenBroker, Kafka, serving
from writing import tree

from broker import java, run

VERSION = "4.3.0"
PACKAGE = "org.apache.kafka.tools"
KCAT = shutil.which("kcat")
needs_kcat = pytest.mark.skipif(KCAT is None, reason="no kcat (apt-get install kcat)")


class Tools(NamedTuple):
    """Kafka's programs against one server; also what `console_rows` needs to know of a broker."""

    address: str
    version: str = VERSION

    def printed(self, program: str, *arguments: str) -> str:
        """What a program prints."""
        return run(java(VERSION, program, "--bootstrap-server", self.address, *arguments))[0]

    def lines(self, program: str, *arguments: str) -> list[str]:
        """What a program prints, in the order of the alphabet."""
        return sorted(line.rstrip() for line in self.printed(program, *arguments).splitlines() if line.strip())


@pytest.fixture
def ours(beside: Kafka) -> Tools:
    return Tools(beside.address)


@pytest.fixture
def theirs(golden_broker: GoldenBroker) -> Tools:
    return Tools(golden_broker.address)


def without_places(lines: Sequence[str]) -> list[str]:
    """Of a description of topics: without who leads and what replicas there are; settings in the order of the alphabet."""
    lines = [re.sub(r"(?<=Configs: )\S+", lambda found: ",".join(sorted(found[0].split(","))), line) for line in lines]
    return [re.sub(r"\t(Leader|Replicas|Isr|Elr|LastKnownElr):[^\t]*", "", line) for line in lines]


@pytest.mark.proof
def test_kafka_topics(ours: Tools, theirs: Tools) -> None:
    program = f"{PACKAGE}.TopicCommand"
    assert ours.lines(program, "--list") == theirs.lines(program, "--list")
    mine = without_places(ours.lines(program, "--describe"))
    assert mine == without_places(theirs.lines(program, "--describe"))
    assert sum("\tPartition: " in line for line in mine) >= len(READABLE)


@pytest.mark.proof
def test_kafka_get_offsets(ours: Tools) -> None:
    check_ends(ours)


def check_ends(ours: Tools) -> None:
    """Ends, beginnings and look-ups by time, as a broker told them."""
    program = f"{PACKAGE}.GetOffsetShell"
    ends = {f"{golden.topic}:{golden.partition}:{golden.end}" for golden in READABLE}
    assert set(ours.lines(program, "--exclude-internal-topics")) == ends
    starts = {f"{golden.topic}:{golden.partition}:{golden.start}" for golden in READABLE}
    assert set(ours.lines(program, "--exclude-internal-topics", "--time", "-2")) == starts
    for golden in named("g-time-0", "g-txn-0"):
        for query in golden.time_queries[::8]:
            if query.isolation_level == "read_uncommitted" and query.when > 0:
                asked = ("--topic-partitions", golden.name.replace("-0", ":0"), "--time", str(query.when))
                wanted = golden.end if query.answer is None else query.answer[0]
                assert ours.lines(program, *asked) == [f"{golden.topic}:0:{wanted}"], query
                break


@pytest.mark.proof
def test_kafka_get_offsets_beside_a_missing_partition(tmp_path: Path) -> None:
    """As at a broker one of whose disks has failed: the others' ends, and that one was waited for."""
    broker = GoldenBroker(tmp_path / "broker")
    broker.format()
    lost = broker.log_dirs[1]
    shutil.rmtree(lost)
    lost.write_text("no folder", encoding="utf-8")
    (tmp_path / "client").write_text("default.api.timeout.ms=10000\nrequest.timeout.ms=10000\n", encoding="utf-8")
    command = (f"{PACKAGE}.GetOffsetShell", "--topic", "g-plain", "--command-config", str(tmp_path / "client"))
    told = []
    with broker.running(), serving([CLEAN_LOG_DIRS[0], CLEAN / "metadata-dir"], tmp_path / "serve") as ours:
        for address in (broker.address, ours.address):
            printed, said = run(java(VERSION, *command, "--bootstrap-server", address))
            told.append((sorted(printed.split()), [line.partition("Exception")[0] for line in said.splitlines() if line.strip()]))
    here = [golden for golden in named("g-plain-0", "g-plain-2") if (CLEAN_LOG_DIRS[0] / golden.name).exists()]
    skipped = "Skip getting offsets for topic-partition g-plain-1 due to error: org.apache.kafka.common.errors.Timeout"
    assert told[0] == (sorted(f"{golden.topic}:{golden.partition}:{golden.end}" for golden in here), [skipped])
    assert len(here) == 2
    assert told[1] == told[0]


@pytest.mark.proof
def test_kafka_consumer_groups(ours: Tools, theirs: Tools) -> None:
    program = f"{PACKAGE}.consumer.group.ConsumerGroupCommand"
    groups = sorted(commits())
    assert set(groups) <= set(ours.lines(program, "--list"))
    for group in groups:
        mine = ours.lines(program, "--describe", "--group", group)
        assert mine == theirs.lines(program, "--describe", "--group", group)
        assert len(mine) == 1 + len(commits()[group])
    # A group that nobody has made yet is set, and seen by others.
    reset = ("--reset-offsets", "--group", "reset-here", "--topic", "g-plain:1", "--to-offset", "17", "--execute")
    ours.lines(program, *reset)
    (line,) = [line for line in ours.lines(program, "--describe", "--group", "reset-here") if line.startswith("reset-here")]
    assert line.split()[1:4] == ["g-plain", "1", "17"]


GROUPS = f"{PACKAGE}.consumer.group.ConsumerGroupCommand"


def _described(kafka: Kafka, group: str, *options: str) -> list[dict[str, str]]:
    """What is told of a group, line by line, by the titles of the columns."""
    rows = [line.split() for line in Tools(kafka.address).lines(GROUPS, "--describe", "--group", group, *options)]
    titles = [row for row in rows if row[0] == "GROUP"]
    return [dict(zip(*titles, row, strict=True)) for row in rows if row[0] == group]


@needs_kcat
@pytest.mark.proof
def test_kafka_consumer_groups_with_members(clean: Kafka, tmp_path: Path) -> None:
    """Members, what they have and the group's state, before a rebalance, behind it, and when they have left."""
    group, tools = "watched", Tools(clean.address)

    def state() -> tuple[str, str, str]:
        (told,) = _described(clean, group, "--state")
        return told["ASSIGNMENT-STRATEGY"], told["STATE"], told["#MEMBERS"]

    def members() -> list[tuple[str, str, str]]:
        told = _described(clean, group, "--members", "--verbose")
        return sorted((each["CLIENT-ID"], each["#PARTITIONS"], each["CURRENT-ASSIGNMENT"]) for each in told)

    with _Member(clean, tmp_path / "one", "g-plain", group) as one:
        _wait(lambda: one.assigned() == [0, 1, 2])
        assert state() == ("range", "Stable", "1")
        assert members() == [("rdkafka", "3", "g-plain:0,1,2")]
        with _Member(clean, tmp_path / "two", "g-plain", group) as two:
            _wait(lambda: sorted(one.assigned() + two.assigned()) == [0, 1, 2] and one.assigned() and two.assigned())
            shared = [each.assigned() for each in (one, two)]
            assert state() == ("range", "Stable", "2")
            assert members() == sorted(("rdkafka", str(len(part)), f"g-plain:{','.join(map(str, part))}") for part in shared)
            told = {int(each["PARTITION"]): each["CONSUMER-ID"] for each in _described(clean, group)}
            assert sorted(told) == [0, 1, 2]
            owners = [{told[number] for number in part} for part in shared]
            assert [len(each) for each in owners] == [1, 1]
            assert owners[0] != owners[1]
            # What has members is not deleted, nor its offsets in what they read.
            assert any("GroupNotEmptyException" in line for line in tools.lines(GROUPS, "--delete", "--group", group))
            refused = tools.lines(GROUPS, "--delete-offsets", "--group", group, "--topic", "g-plain:1")
            assert any("subscribed" in line for line in refused), refused
        _wait(lambda: one.assigned() == [0, 1, 2])
        assert members() == [("rdkafka", "3", "g-plain:0,1,2")]
    assert members() == []
    assert state()[1:] == ("Empty", "0")


@pytest.mark.proof
def test_kafka_consumer_groups_deletes(tmp_path: Path) -> None:
    """A group, and a group's offset, in the server alone. The next one has both again; with `--groups` they stay deleted."""
    paths = [*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"]
    before = tree(CLEAN)
    gone, kept = sorted(commits())

    def stored(kafka: Kafka) -> dict[str, dict[str, int]]:
        with Connection(kafka.address) as wire:
            groups = [each["GroupId"] for each in wire.ask(LIST_GROUPS, 4, {})["Groups"]]
            told = {group: wire.ask(OFFSET_FETCH, 5, {"GroupId": group, "Topics": None})["Topics"] for group in groups}
        return {
            group: {
                f"{topic['Name']}-{part['PartitionIndex']}": part["CommittedOffset"]
                for topic in topics
                for part in topic["Partitions"]
            }
            for group, topics in told.items()
        }

    left = {kept: {name: offset for name, offset in commits()[kept].items() if name != "g-plain-1"}}
    for words in ((), ("--groups", str(tmp_path / "groups"))):
        with serving(paths, tmp_path / "serve", *words) as kafka:
            assert stored(kafka) == commits()
            tools = Tools(kafka.address)
            said = tools.printed(GROUPS, "--delete", "--group", gone)
            assert f"Deletion of requested consumer groups ('{gone}') was successful." in said
            said = tools.printed(GROUPS, "--delete-offsets", "--group", kept, "--topic", "g-plain:1")
            assert f"Request succeeded for deleting offsets from group {kept}." in said
            assert stored(kafka) == left
        with serving(paths, tmp_path / "serve", *words) as kafka:
            assert stored(kafka) == (left if words else commits())
    assert tree(CLEAN) == before


@pytest.mark.proof
def test_kafka_configs(ours: Tools, theirs: Tools) -> None:
    program = "kafka.admin.ConfigCommand"
    for topic in ("g-plain", "g-compact", "g-retained", "g-roll-ms"):
        asked = ("--describe", "--entity-type", "topics", "--entity-name", topic)
        assert ours.lines(program, *asked) == theirs.lines(program, *asked)
        assert [line.split(" sensitive=")[0] for line in ours.lines(program, *asked, "--all")] == [
            line.split(" sensitive=")[0] for line in theirs.lines(program, *asked, "--all")
        ]


@pytest.mark.proof
@pytest.mark.parametrize("level", LEVELS)
def test_console_consumer(ours: Tools, level: Level) -> None:
    for names in (("g-plain-0", "g-plain-1", "g-plain-2"), ("g-txn-0", "g-txn-1"), ("g-codec-zstd-0",)):
        partitions = named(*names)
        wanted = {golden.partition: list(golden.rows if level == "read_uncommitted" else golden.committed) for golden in partitions}
        seen = console_rows(ours, partitions[0].topic, level, sum(map(len, wanted.values())))  # type: ignore[arg-type]  # all it needs of a broker
        told = {partition: [row._replace(leader_epoch=-1) for row in rows] for partition, rows in wanted.items() if rows}
        assert seen == told


def printed_by_the_console_consumer(kafka: Kafka, topic: str, *arguments: str) -> list[tuple[int, int]]:
    """Partition and offset of each record that it prints until it has none for a while or enough of them, sorted."""
    form = [part for name in ("partition", "offset") for part in ("--formatter-property", f"print.{name}=true")]
    command = [f"{PACKAGE}.consumer.ConsoleConsumer", "--bootstrap-server", kafka.address, "--topic", topic, *arguments]
    printed, said = run(java(VERSION, *command, *form, "--formatter-property", "print.value=false"))
    found = [tuple(int(each.partition(":")[2]) for each in line.split("\t")) for line in printed.splitlines()]
    assert f"Processed a total of {len(found)} messages" in said, said
    return sorted((partition, offset) for partition, offset in found)


@pytest.mark.proof
def test_console_consumer_in_a_group(clean: Kafka) -> None:
    """The second run goes on behind the first, which commits as it ends."""
    wanted = sorted((golden.partition, row.offset) for golden in named("g-plain-0", "g-plain-1", "g-plain-2") for row in golden.rows)
    half = len(wanted) // 2
    group = ("--group", "console-twice", "--from-beginning", "--timeout-ms", "60000", "--max-messages")
    first = printed_by_the_console_consumer(clean, "g-plain", *group, str(half))
    second = printed_by_the_console_consumer(clean, "g-plain", *group, str(len(wanted) - half))
    assert len(first) == half
    assert sorted(first + second) == wanted


@pytest.mark.proof
def test_console_consumers_in_a_group_of_two(clean: Kafka, tmp_path: Path) -> None:
    """The second joins while the first reads: both read, each record is printed once, and who stays takes all over."""
    group = "console-two"
    wanted = sorted((golden.partition, row.offset) for golden in named("g-plain-0", "g-plain-1", "g-plain-2") for row in golden.rows)
    with _Console(clean, tmp_path / "one", group) as one:
        one.take(1)
        assert _shared(clean, group) == [[0, 1, 2]]
        with _Console(clean, tmp_path / "two", group) as two:
            _wait(lambda: len(_members(clean, group)) == 2)
            while len([part for part in _shared(clean, group) if part]) < 2:
                # It looks for the others between two records.
                one.take(200)
                time.sleep(0.1)
            assert _shared(clean, group) in ([[0], [1, 2]], [[0, 1], [2]])
            one.take_all()
            two.take_all()
            _wait(lambda: len(one.read()) + len(two.read()) >= len(wanted))
            assert one.read()
            assert two.read()
            one.end()
            _wait(lambda: _shared(clean, group) == [[0, 1, 2]])
    assert sorted(one.read() + two.read()) == wanted
    assert printed_by_the_console_consumer(clean, "g-plain", "--group", group, "--timeout-ms", "10000") == []


class _Console:
    """The console consumer in a group. It reads no more than is taken of what it prints."""

    def __init__(self, kafka: Kafka, folder: Path, group: str) -> None:
        folder.mkdir()
        self._output = folder / "output"
        self._output.touch()
        self._reading, writing = os.pipe()
        # One page, and what a JVM keeps, are a part of the topic; with one record a poll it goes on to read when that is printed.
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        shown = ("partition", "offset", "timestamp", "headers", "key")
        form = [part for name in shown for part in ("--formatter-property", f"print.{name}=true")]
        settings = ("--command-property", "max.poll.records=1", "--command-property", "heartbeat.interval.ms=300")
        asked = ("--bootstrap-server", kafka.address, "--topic", "g-plain", "--group", group, "--from-beginning")
        with (folder / "errors").open("wb") as errors:
            self._process = subprocess.Popen(
                java(VERSION, f"{PACKAGE}.consumer.ConsoleConsumer", *asked, *settings, *form),
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=errors,
            )
        os.close(writing)
        self._taking: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def take(self, size: int) -> None:
        """Take so much of what it prints, once there is something."""
        assert select.select([self._reading], [], [], 300)[0]
        with self._output.open("ab") as output:
            output.write(os.read(self._reading, size))

    def take_all(self) -> None:
        """Take what it prints, whenever it does."""
        self._taking = threading.Thread(target=self._take)
        self._taking.start()

    def _take(self) -> None:
        with open(self._reading, "rb", buffering=0) as reading, self._output.open("ab", buffering=0) as output:
            shutil.copyfileobj(reading, output)

    def end(self) -> None:
        """As an operator does: it commits what it printed, and leaves."""
        if self._taking is None:
            self.take_all()
        _ended(self._process)
        if self._taking is not None:
            self._taking.join()

    def read(self) -> list[tuple[int, int]]:
        """Partition and offset of each record."""
        found = re.findall(rb"^CreateTime:\d+\tPartition:(\d+)\tOffset:(\d+)\t", self._output.read_bytes(), re.MULTILINE)
        return [(int(partition), int(offset)) for partition, offset in found]


def _members(kafka: Kafka, group: str) -> list[Value]:
    with Connection(kafka.address) as wire:
        found: list[Value] = wire.ask(DESCRIBE_GROUPS, 5, {"Groups": [group]})["Groups"][0]["Members"]
    return found


def _shared(kafka: Kafka, group: str) -> list[list[int]]:
    """The partitions of its only topic that each member has."""
    found = []
    for member in _members(kafka, group):
        data = member["MemberAssignment"]
        # A version, a number of topics, a name, a number of partitions, and these.
        at = 8 + int.from_bytes(data[6:8], "big") if data[2:6] == b"\0\0\0\1" else len(data)
        found.append(
            sorted(
                number for (number,) in struct.iter_unpack(">i", data[at + 4 : at + 4 + 4 * int.from_bytes(data[at : at + 4], "big")])
            )
        )
    return sorted(found)


@pytest.mark.proof
def test_console_consumer_from_an_offset(clean: Kafka) -> None:
    (golden,) = named("g-codec-lz4-0")
    offset = golden.rows[len(golden.rows) // 2].offset + 1
    wanted = [(golden.partition, row.offset) for row in golden.rows if row.offset >= offset]
    place = (
        "--partition",
        str(golden.partition),
        "--offset",
        str(offset),
        "--timeout-ms",
        "60000",
        "--max-messages",
        str(len(wanted)),
    )
    assert printed_by_the_console_consumer(clean, golden.topic, *place) == wanted


def kcat(address: str, *arguments: str) -> bytes:
    """What kcat prints."""
    assert KCAT is not None
    done = subprocess.run([KCAT, "-b", address, "-q", *arguments], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout


FORM = "%o %T %K %S "
HEAD = re.compile(rb"(-?\d+) (-?\d+) (-?\d+) (-?\d+) ")


def kcat_rows(address: str, golden: Golden, *arguments: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Offset, time, key and value of each record that kcat prints of a partition."""
    data = kcat(address, "-C", "-t", golden.topic, "-p", str(golden.partition), "-e", "-f", FORM + "%k%s\\n", *arguments)
    found, at = [], 0
    while at < len(data):
        match = HEAD.match(data, at)
        assert match is not None, data[at : at + 40]
        offset, timestamp, key_size, size = (int(each) for each in match.groups())
        at = match.end() + max(key_size, 0)
        key = None if key_size < 0 else data[match.end() : at]
        value = None if size < 0 else data[at : at + size]
        at += max(size, 0) + 1
        found.append((offset, timestamp, key, value))
    return found


def _told(rows: Sequence[Row]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(row.offset, row.timestamp, row.key, row.value) for row in rows]


@needs_kcat
def test_kcat_lists_and_reads(clean: Kafka) -> None:
    listed = kcat(clean.address, "-L").decode()
    for topic in {golden.topic for golden in READABLE}:
        assert f'topic "{topic}" with {sum(golden.topic == topic for golden in READABLE)} partitions' in listed
    for golden in named("g-plain-0", "g-codec-gzip-0", "g-codec-snappy-0", "g-codec-zstd-0", "g-codec-lz4-0", "g-compact-0"):
        assert kcat_rows(clean.address, golden, "-o", "beginning") == _told(golden.rows)
    (golden,) = named("g-plain-0")
    middle = golden.rows[77].offset
    assert kcat_rows(clean.address, golden, "-o", str(middle)) == _told([row for row in golden.rows if row.offset >= middle])


@needs_kcat
def test_kcat_reads_committed_records_only(clean: Kafka) -> None:
    for golden in named("g-txn-0", "g-txn-1"):
        assert kcat_rows(clean.address, golden, "-o", "beginning", "-X", "isolation.level=read_committed") == _told(golden.committed)


@needs_kcat
def test_kcat_asks_by_time(clean: Kafka) -> None:
    asked = [query for query in named("g-time-0")[0].time_queries if query.isolation_level == "read_uncommitted" and query.when > 0]
    for query in asked[::4]:
        (line,) = kcat(clean.address, "-Q", "-t", f"g-time:0:{query.when}").decode().splitlines()
        assert int(line.rsplit(" ", 1)[1]) == (-1 if query.answer is None else query.answer[0]), (query, line)


@needs_kcat
def test_kcat_reads_by_time(clean: Kafka) -> None:
    """From the record that a broker found for the time on; none if it found none. And up to a time."""
    (golden,) = named("g-time-0")
    asked = [query for query in golden.time_queries if query.isolation_level == "read_uncommitted" and query.when > 0]
    found = [query for query in asked if query.answer is not None]
    nothing = [query for query in asked if query.answer is None]
    for query in (found[len(found) // 2], found[-1], nothing[0]):
        first = golden.end if query.answer is None else query.answer[0]
        wanted = [row for row in golden.rows if row.offset >= first]
        assert kcat_rows(clean.address, golden, "-o", f"s@{query.when}") == _told(wanted), query
    stop = golden.rows[len(golden.rows) // 2].timestamp
    wanted = list(itertools.takewhile(lambda row: row.timestamp < stop, golden.rows))
    assert 0 < len(wanted) < len(golden.rows)
    assert kcat_rows(clean.address, golden, "-o", "beginning", "-o", f"e@{stop}") == _told(wanted)


@needs_kcat
def test_kcat_in_a_group_of_two(clean: Kafka, tmp_path: Path) -> None:
    """Each gets a part; together they print every record once, and what is committed is not read again."""
    wanted = sorted((golden.partition, row.offset) for golden in named("g-plain-0", "g-plain-1", "g-plain-2") for row in golden.rows)
    with _Member(clean, tmp_path / "one", "g-plain") as one, _Member(clean, tmp_path / "two", "g-plain") as two:
        _wait(lambda: len(one.assigned()) + len(two.assigned()) == 3 and one.assigned() and two.assigned())
        assert sorted(one.assigned() + two.assigned()) == [0, 1, 2]
        _wait(lambda: len(set(one.read() + two.read())) == len(wanted))
    assert sorted(set(one.read() + two.read())) == wanted
    with _Member(clean, tmp_path / "three", "g-plain") as three:
        _wait(lambda: three.assigned() == [0, 1, 2])
        time.sleep(1)
    assert three.read() == []


class _Member:
    """kcat in a group, until it is told to end; then it commits what it printed."""

    def __init__(self, kafka: Kafka, folder: Path, topic: str, group: str = "kcat-group") -> None:
        folder.mkdir()
        self._output, self._errors = folder / "output", folder / "errors"
        assert KCAT is not None
        settings = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=45000", "-X", "heartbeat.interval.ms=300")
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [KCAT, "-b", kafka.address, "-G", group, "-u", *settings, "-f", "%p %o\\n", topic],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _ended(self._process)

    def assigned(self) -> list[int]:
        """Partitions by the last rebalance that it printed."""
        lines = [line for line in _whole_lines(self._errors) if "rebalanced" in line]
        if not lines or "assigned: " not in lines[-1] or "unassigned" in lines[-1]:
            return []
        return sorted(int(number) for number in re.findall(r"\[(\d+)\]", lines[-1].partition("assigned: ")[2]))

    def read(self) -> list[tuple[int, int]]:
        """Partition and offset of each record."""
        lines = _whole_lines(self._output)
        return [(int(partition), int(offset)) for partition, _, offset in (line.partition(" ") for line in lines)]


def _ended(process: subprocess.Popen[bytes]) -> None:
    """As an operator ends it; a program that does not go is not left behind."""
    process.terminate()
    try:
        process.wait(300)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _whole_lines(file: Path) -> list[str]:
    """Without buffers each piece of a line is a write of its own: the last one may be under way."""
    return file.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()


def _wait(done: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)
