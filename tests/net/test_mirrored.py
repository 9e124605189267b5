"""A mirror of a real broker on the golden directories: the broker's bytes, and what clients of others and Spark read when it is served.

What a broker does meanwhile, and what becomes of its groups elsewhere, is in `tests/broker/test_mirror.py` and `test_mirrored_cluster.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asking
import pytest
import test_clients
import test_spark_source
import test_tools
from asking import READABLE, STATE, ask, commits
from client_programs import CLIENTS, Client
from clients import console_rows
from frames import frames
from golden import named
from served import GoldenBroker, Kafka, command, serving
from symptom_claims import shown_if_aborted
from test_tools import PACKAGE, Tools, kcat_rows, needs_kcat, without_places

from offsetlog import LogDir

pytestmark = pytest.mark.proof

MIRROR_SECONDS = 600
TRANSACTIONS = "__transaction_state"
"""The one topic of a broker's own that a mirror copies, if it is named."""


@pytest.fixture(scope="session")
def copied(golden_broker: GoldenBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror of all topics, of the groups, and of what the coordinator of transactions knows."""
    into = tmp_path_factory.mktemp("mirrored") / "copy"
    chosen = ("--pattern", "*", "-t", TRANSACTIONS)
    line = command("mirror", "--bootstrap", golden_broker.address, "--into", str(into), "--once", "--json", *chosen)
    done = subprocess.run(line, capture_output=True, text=True, timeout=MIRROR_SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    whole = json.loads(done.stdout.splitlines()[-1])
    assert whole["is_complete"]
    assert not whole["has_losses"]
    return into


@pytest.fixture(scope="session")
def mirrored(copied: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """What serves it."""
    with serving([copied], tmp_path_factory.mktemp("mirrored") / "serve") as server:
        yield server


def bytes_from(partition: Path, start: int) -> bytes:
    """A partition's batches, one segment behind the other, from the one that holds this offset on."""
    found = []
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        found += [data[frame.position : frame.position + frame.size_bytes] for frame in frames(path) if frame.last_offset >= start]
    return b"".join(found)


def test_every_byte_is_the_brokers(golden_broker: GoldenBroker, copied: Path) -> None:
    assert {path.name for path in copied.glob("g-*")} == {golden.name for golden in READABLE}
    compared = 0
    for golden in READABLE:
        (theirs,) = (log_dir / golden.name for log_dir in golden_broker.log_dirs if (log_dir / golden.name).exists())
        ours = bytes_from(copied / golden.name, 0)
        assert ours == bytes_from(theirs, golden.start), golden.name
        compared += len(ours)
    assert compared > 500_000


def test_every_byte_of_the_coordinator_is_the_brokers(golden_broker: GoldenBroker, copied: Path) -> None:
    """All that the golden broker had stored, and what this one had when it was copied: other tests ask it for producer ids."""
    wanted = [golden for golden in STATE if golden.topic == TRANSACTIONS]
    assert {path.name for path in copied.glob(f"{TRANSACTIONS}-*")} == {golden.name for golden in wanted}
    compared = 0
    for golden in wanted:
        (theirs,) = (log_dir / golden.name for log_dir in golden_broker.log_dirs if (log_dir / golden.name).exists())
        ours = bytes_from(copied / golden.name, 0)
        assert bytes_from(theirs, golden.start).startswith(ours), golden.name
        assert ours.startswith(bytes_from(golden.directory, golden.start)), golden.name
        compared += len(ours)
    assert compared > 0


def test_open_transactions_of_a_copy_are_decided(copied: Path, tmp_path: Path) -> None:
    """By the coordinator's copied records: what was ongoing is not shown, and what others committed behind it is."""
    partitions = named("g-txn-0", "g-txn-1")
    client = CLIENTS[0]
    ends = {golden.name: golden.end for golden in partitions}
    task = {"verb": "read", "places": asking.places(partitions), "isolation": "read_committed", "ends": ends}
    with serving([copied], tmp_path / "serve", "--open-transactions", "decide") as server:
        (found,) = ask(client, server, task)
    for golden in partitions:
        assert asking.told(client, found[golden.name]) == asking.expected(client, shown_if_aborted(golden)), golden.name
    assert len(found["g-txn-0"]) > len(partitions[0].committed)


def test_a_mirror_that_was_there_before_the_broker(tmp_path: Path) -> None:
    """It asks while the broker starts and knows of no group, and ends with the offsets of all."""
    broker = GoldenBroker(tmp_path / "broker")
    broker.format()
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(broker.start)
        try:
            while not broker.properties.exists():
                assert not started.done() or started.result() is None
                time.sleep(0.01)
            into = tmp_path / "copy"
            # One topic: it is copied before the groups are loaded.
            line = command("mirror", "--bootstrap", broker.address, "--into", str(into), "--once", "--json", "-t", "g-plain")
            done = subprocess.run(line, capture_output=True, text=True, timeout=MIRROR_SECONDS, check=False)
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        finally:
            started.exception()
            broker.kill()
    with LogDir.open(into) as log_dir:
        found = {
            group.group_id: {f"{each.topic}-{each.partition}": each.offset for each in group.offsets} for group in log_dir.groups()
        }
    expected = {
        group: {name: at for name, at in offsets.items() if name.startswith("g-plain-")} for group, offsets in commits().items()
    }
    assert found == {group: offsets for group, offsets in expected.items() if offsets}


@pytest.mark.parametrize(
    "check",
    [
        test_clients.test_topics,
        test_clients.test_every_record,
        test_clients.test_seeks,
        test_clients.test_times,
        test_clients.test_ends,
        test_clients.test_groups_begin_where_the_old_cluster_left_them,
    ],
)
def test_clients_read_what_the_broker_served(client: Client, mirrored: Kafka, check: Callable[[Client, Kafka], None]) -> None:
    check(client, mirrored)


def test_a_group_goes_on_where_it_was(client: Client, mirrored: Kafka) -> None:
    """Behind what it committed at the broker, and not from the beginning."""
    (group, offsets), *_ = sorted(commits().items())
    places = named("g-plain-0", "g-plain-1", "g-plain-2")
    left = {golden.name: [row.offset for row in golden.rows if row.offset >= offsets[golden.name]] for golden in places}
    task = {"verb": "subscribe", "group": group, "topic": "g-plain", "records": sum(map(len, left.values()))}
    (found,) = ask(client, mirrored, task)
    assert found == {name: rows for name, rows in left.items() if rows}
    assert 0 < sum(map(len, left.values())) < sum(len(golden.rows) for golden in places)


def test_a_group_of_two(client: Client, mirrored: Kafka) -> None:
    test_clients.check_group(client, mirrored, "g-time")


def test_kafka_consumer_groups(golden_broker: GoldenBroker, mirrored: Kafka) -> None:
    """The tool tells of each group what it tells of it at the source: offsets, ends and lags."""
    program = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    ours, theirs = Tools(mirrored.address), Tools(golden_broker.address)
    asked = [part for group in sorted(commits()) for part in ("--group", group)]
    mine = ours.lines(program, "--describe", *asked)
    assert mine == theirs.lines(program, "--describe", *asked)
    told = {tuple(line.split()[:4]) for line in mine}
    for group, offsets in commits().items():
        assert {(group, *name.rsplit("-", 1), str(at)) for name, at in offsets.items()} <= told


def test_kafka_topics(golden_broker: GoldenBroker, mirrored: Kafka) -> None:
    """Topics with their ids, and each partition."""
    ours, theirs = Tools(mirrored.address), Tools(golden_broker.address)
    asked = (f"{PACKAGE}.TopicCommand", "--exclude-internal")
    listed = ours.lines(*asked, "--list")
    assert listed == theirs.lines(*asked, "--list")
    assert set(listed) == {golden.topic for golden in READABLE}
    mine = without_places(ours.lines(*asked, "--describe"))
    # The settings of the broker, which this tool shows as well, are not the topic's own: test_settings_by_kafka_configs is about those.
    without = [
        [line.partition("\tConfigs: ")[0] for line in lines] for lines in (mine, without_places(theirs.lines(*asked, "--describe")))
    ]
    assert without[0] == without[1]
    assert sum("\tPartition: " in line for line in mine) == len(READABLE)


def test_kafka_get_offsets(mirrored: Kafka) -> None:
    test_tools.check_ends(Tools(mirrored.address))


def test_settings_by_kafka_configs(golden_broker: GoldenBroker, mirrored: Kafka) -> None:
    """What was set for each topic at the source, and nothing else."""
    ours, theirs = Tools(mirrored.address), Tools(golden_broker.address)
    program = "kafka.admin.ConfigCommand"
    asked = ("--describe", "--entity-type", "topics")

    def told(tools: Tools) -> dict[str, list[str]]:
        """By topic; without the other layers' values, which a copy does not have."""
        found: dict[str, list[str]] = {}
        topic = ""
        for line in tools.printed(program, *asked).splitlines():
            if heading := re.fullmatch(r"Dynamic configs for topic (\S+) are:", line):
                topic = heading[1]
                found[topic] = []
            elif line.strip():
                found[topic].append(line.split(" sensitive=")[0].strip())
        return {topic: sorted(lines) for topic, lines in found.items() if not topic.startswith("__")}

    mine = told(ours)
    assert mine == told(theirs)
    assert mine.keys() == {golden.topic for golden in READABLE}
    assert "cleanup.policy=compact" in mine["g-compact"]
    assert sum(map(len, mine.values())) > 10


def test_the_console_consumer(mirrored: Kafka) -> None:
    for topic in ("g-plain", "g-txn"):
        wanted = {golden.partition: list(golden.committed) for golden in READABLE if golden.topic == topic}
        count = sum(map(len, wanted.values()))
        seen = console_rows(Tools(mirrored.address), topic, "read_committed", count)  # type: ignore[arg-type]  # all it needs of a broker
        assert seen == {number: [row._replace(leader_epoch=-1) for row in rows] for number, rows in wanted.items() if rows}


@needs_kcat
def test_kcat(mirrored: Kafka) -> None:
    for golden in READABLE:
        told = [(row.offset, row.timestamp, row.key, row.value) for row in golden.committed]
        assert kcat_rows(mirrored.address, golden, "-o", "beginning", "-X", "isolation.level=read_committed") == told, golden.name


def test_spark_reads_by_its_own_source(mirrored: Kafka, tmp_path: Path) -> None:
    test_spark_source.check_reading(mirrored, tmp_path)
