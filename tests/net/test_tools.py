"""Kafka's own programs and kcat say of `serve` what they say of the broker whose directories it serves."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from asking import LEVELS, READABLE, commits
from clients import console_rows
from golden import Golden, Level, Row, named
from served import GoldenBroker, Kafka

from broker import java, run

VERSION = "4.3.0"
PACKAGE = "org.apache.kafka.tools"


class Tools(NamedTuple):
    """Kafka's programs against one server; also what `console_rows` needs to know of a broker."""

    address: str
    version: str = VERSION

    def lines(self, program: str, *arguments: str) -> list[str]:
        """What a program prints, in the order of the alphabet, with all that names a server taken out."""
        printed, _ = run(java(VERSION, program, "--bootstrap-server", self.address, *arguments))
        return sorted(line.rstrip() for line in printed.splitlines() if line.strip())


@pytest.fixture
def ours(beside: Kafka) -> Tools:
    return Tools(beside.address)


@pytest.fixture
def theirs(golden_broker: GoldenBroker) -> Tools:
    return Tools(golden_broker.address)


def _without_places(lines: Sequence[str]) -> list[str]:
    """Of a description of topics: without who leads and what replicas there are; settings in the order of the alphabet."""
    lines = [re.sub(r"(?<=Configs: )\S+", lambda found: ",".join(sorted(found[0].split(","))), line) for line in lines]
    return [re.sub(r"\t(Leader|Replicas|Isr|Elr|LastKnownElr):[^\t]*", "", line) for line in lines]


@pytest.mark.proof
def test_kafka_topics(ours: Tools, theirs: Tools) -> None:
    program = f"{PACKAGE}.TopicCommand"
    assert ours.lines(program, "--list") == theirs.lines(program, "--list")
    mine = _without_places(ours.lines(program, "--describe"))
    assert mine == _without_places(theirs.lines(program, "--describe"))
    assert sum("\tPartition: " in line for line in mine) >= len(READABLE)


@pytest.mark.proof
def test_kafka_get_offsets(ours: Tools) -> None:
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


KCAT = shutil.which("kcat")
needs_kcat = pytest.mark.skipif(KCAT is None, reason="no kcat (apt-get install kcat)")


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

    def __init__(self, kafka: Kafka, folder: Path, topic: str) -> None:
        folder.mkdir()
        self._output, self._errors = folder / "output", folder / "errors"
        assert KCAT is not None
        settings = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=45000", "-X", "heartbeat.interval.ms=300")
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [KCAT, "-b", kafka.address, "-G", "kcat-group", "-u", *settings, "-f", "%p %o\\n", topic],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(300)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

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


def _whole_lines(file: Path) -> list[str]:
    """Without buffers each piece of a line is a write of its own: the last one may be under way."""
    return file.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()


def _wait(done: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)
