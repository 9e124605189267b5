"""What `offsetlog groups` reads beside what Kafka's own tools say of the same broker, and what they do with the file that it writes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from clients import Admin, Writer
from kafka.structs import OffsetAndMetadata
from peers import Appended
from restoring import CleanStarts
from test_lag_beside_kafka import TOOLS

from broker import Broker, broker_of, java, run
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from offsetlog import restore

NOW = 1_700_000_000_000
SECONDS = 300
NAMES = ["plain", 'a, "quoted" one', " spaces ", "#no comment", "tab\tand é", "back\\slash", "it's", "carriage\rreturn", '"', "7"]
"""Of groups: Kafka lets any text be one. Names of topics have no character that CSV knows, but they may be numbers."""
TOPICS = {"orders": 2, "7": 1}


def groups(broker: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", "groups", str(broker.log_dir), *arguments]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def told(broker: Broker) -> dict[str, dict[str, Any]]:
    """Group by group, from the files."""
    return {line["group"]: line for line in map(json.loads, groups(broker, "--json").stdout.splitlines())}


def commit(broker: Broker, group: str, offsets: dict[tuple[str, int], int], note: str = "") -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False)
    consumer.commit({TopicPartition(*place): OffsetAndMetadata(offset, note, -1) for place, offset in offsets.items()})
    consumer.close()


def committed(broker: Broker, names: list[str]) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
    """What the broker says that groups have committed, with its metadata."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    answer = admin.list_group_offsets(names)
    admin.close()
    return {
        group: {(at.topic, at.partition): (found.offset, found.metadata) for at, found in offsets.items()}
        for group, offsets in answer.items()
    }


def with_topics(broker: Broker) -> None:
    with Admin(broker.address) as admin:
        for topic, partitions in TOPICS.items():
            admin.create(topic, partitions, {})
            admin.leader_epochs(topic)
    for topic, partitions in TOPICS.items():
        with Writer(broker.address, topic) as writer:
            for partition in range(partitions):
                writer.send(partition, [Appended(None, b"value", NOW + number) for number in range(20)])


def reset(broker: Broker, tool: str, told: str, file: Path) -> None:
    """Run the command that was printed, as a shell would read it."""
    (line,) = [line for line in told.splitlines() if "kafka-consumer-groups.sh" in line]
    printed = line.partition("kafka-consumer-groups.sh ")[2].partition(" --dry-run")[0]
    script = f"for word in {printed}; do printf '%s\\0' \"$word\"; done"
    words = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.decode().split("\0")[:-1]
    known = {"HOST:9092": broker.address, "FILE": str(file)}
    said, _ = run(java(broker.version, tool, *(known.get(word, word) for word in words), "--execute"))
    assert "Error" not in said, said


@pytest.mark.parametrize("version", list(TOOLS))
def test_kafka_resets_offsets_from_the_file(version: str, tmp_path: Path) -> None:
    """One group and several, of any name: what Kafka's tool makes of the file is what was committed when it was written."""
    broker = broker_of(version, tmp_path / "broker")
    broker.format()
    with broker.running():
        with_topics(broker)
        wanted = {}
        for number, name in enumerate(NAMES):
            offsets = {("orders", 0): number, ("orders", 1): 20 - number, ("7", 0): 5}
            commit(broker, name, offsets, "a note" if number else "")
            wanted[name] = {place: (offset, "") for place, offset in offsets.items()}
        commit(broker, "two\nlines", {("orders", 0): 3})
        for names in (NAMES[1:2], NAMES):
            asked = [word for name in [*names, "two\nlines"] for word in ("-g", name)]
            written = groups(broker, "--reset-csv", *asked)
            assert written.returncode == 2
            assert r"group two\nlines is not in the file: the name has a line feed" in written.stderr
            assert "committed with metadata" in written.stderr
            file = tmp_path / "reset.csv"
            file.write_bytes(written.stdout.encode())
            assert {line.count(b",") for line in file.read_bytes().splitlines() if b'"' not in line} <= {2 if len(names) == 1 else 3}
            for name in names:
                commit(broker, name, {("orders", 0): 1, ("orders", 1): 1, ("7", 0): 1}, "moved")
            reset(broker, TOOLS[version], written.stderr, file)
            assert committed(broker, names) == {name: wanted[name] for name in names}
        # A group that the cluster does not have is made: that of a cluster that was lost.
        written = groups(broker, "--reset-csv", "-g", "plain")
        assert written.stdout == "7,0,5\norders,0,0\norders,1,20\n"
        file.write_bytes(written.stdout.encode())
        reset(broker, TOOLS[version], written.stderr.replace("--group plain", "--group restored"), file)
        assert committed(broker, ["restored"]) == {"restored": wanted["plain"]}


def table(printed: str) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Group, topic and partition of Kafka's tool for share groups, and the rest of the row."""
    rows = [line.split() for line in printed.splitlines() if line.strip() and not line.startswith("GROUP")]
    return {tuple(row[:3]): tuple(row[3:]) for row in rows}


def shared(broker: Broker) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The same from the files."""
    return {
        (group, each["topic"], str(each["partition"])): tuple(
            "-" if each[name] is None else str(each[name]) for name in ("leader_epoch", "start_offset", "lag")
        )
        for group, line in told(broker).items()
        for each in line["share_offsets"]
    }


def states(broker: Broker) -> dict[str, str]:
    """What the broker says of its groups, by Kafka's tool."""
    printed, _ = run(java("4.3.0", TOOLS["4.3.0"], "--bootstrap-server", broker.address, "--list", "--state"))
    rows = [line.split() for line in printed.splitlines() if line.strip()]
    return {row[0]: row[-1] for row in rows}


SHARING = {
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 2,
}


def shares(broker: Broker) -> dict[tuple[str, ...], tuple[str, ...]]:
    """What Kafka's tool for share groups says of `sharing`, once the files say the same."""
    describe = ("--bootstrap-server", broker.address, "--describe", "--group", "sharing", "--verbose")
    end = time.monotonic() + SECONDS
    while True:
        printed, _ = run(java("4.3.0", "org.apache.kafka.tools.consumer.group.ShareGroupCommand", *describe))
        said = table(printed)
        if shared(broker) == said or time.monotonic() > end:
            break
    assert shared(broker) == said
    assert {row[:2] for row in said} == {("sharing", "orders")}
    return said


def share(broker: Broker, count: int) -> set[tuple[int, int]]:
    """Partition and offset of so many records that a member of `sharing` is given; it acknowledges them."""
    consume = ("--bootstrap-server", broker.address, "--topic", "orders", "--group", "sharing", "--max-messages", str(count))
    shown = [word for name in ("partition", "offset") for word in ("--formatter-property", f"print.{name}=true")]
    printed, _ = run(java("4.3.0", "org.apache.kafka.tools.consumer.ConsoleShareConsumer", *consume, *shown))
    found = re.findall(r"^Partition:(\d+)\tOffset:(\d+)\tvalue$", printed, re.MULTILINE)
    assert len(found) == count, printed
    return {(int(partition), int(offset)) for partition, offset in found}


def check_shares_go_on(
    broker: Broker, new: Broker, seen: set[tuple[int, int]], said: dict[tuple[str, ...], tuple[str, ...]], clean_starts: CleanStarts
) -> None:
    """A new cluster with all that the stopped one had: a member of the share group is given what nobody had acknowledged, and no more.

    The cluster's own default would begin at the end of the topic.
    """
    new.settings = SHARING
    new.format()
    assert broker.metadata_dir is not None
    assert new.metadata_dir is not None
    sources = [broker.log_dir, broker.metadata_dir]
    report = restore(sources, new.log_dir, metadata=new.metadata_dir, broker=new.properties, new_cluster=True)
    assert {each.state for each in report.partitions} == {"restored"}
    assert {each.partition for each in report.partitions if each.topic == "__share_group_state"} == {0, 1}
    left = {(partition, offset) for partition in range(2) for offset in range(20)} - seen
    with new.running():
        # The leader epoch is that of the old cluster until somebody reads.
        assert {row: rest[1:] for row, rest in shares(new).items()} == {row: rest[1:] for row, rest in said.items()}
        assert share(new, len(left)) == left
        assert {lag for _, _, lag in shares(new).values()} == {"0"}
    clean_starts.check_words(new, [f"{each.topic}-{each.partition}" for each in report.partitions])


def test_share_groups_and_states(tmp_path: Path, clean_starts: CleanStarts) -> None:
    broker = broker_of("4.3.0", tmp_path / "broker")
    broker.settings = SHARING
    broker.format()
    with broker.running():
        with_topics(broker)
        address = ("--bootstrap-server", broker.address)
        config = ("--alter", "--entity-type", "groups", "--entity-name", "sharing", "--add-config", "share.auto.offset.reset=earliest")
        run(java("4.3.0", "kafka.admin.ConfigCommand", *address, *config))
        seen = share(broker, 30)
        commit(broker, "reading", {("orders", 0): 3})
        said = shares(broker)
        assert sum(int(lag) for _, _, lag in said.values()) == 40 - 30
        found = told(broker)
        for (_, _, partition), (_, start, _) in said.items():
            (each,) = [each for each in found["sharing"]["share_offsets"] if each["partition"] == int(partition)]
            assert each["first_unread_timestamp"] == NOW + int(start)
        assert {name: (line["kind"], line["state"]) for name, line in found.items()} == {
            "sharing": ("share", "Empty"),
            "reading": (None, "Empty"),
        }
        # It may lead the group before it knows the topic, and then assigns nothing: that it has joined is enough.
        consumer = KafkaConsumer("orders", bootstrap_servers=broker.address, group_id="reading")
        end = time.monotonic() + SECONDS
        while states(broker).get("reading") != "Stable":
            assert time.monotonic() < end
            consumer.poll(timeout_ms=200)
        reading = told(broker)["reading"]
        assert (reading["kind"], reading["state"], len(reading["members"])) == ("classic", "Stable", 1)
        consumer.close()
    with broker.running():
        # With a leader epoch above those of the records: the state's coordinator refuses a lower one than it knows.
        seen |= share(broker, 4)
        said = shares(broker)
    check_shares_go_on(broker, broker_of("4.3.0", tmp_path / "new"), seen, said, clean_starts)


def test_a_group_of_the_new_protocol(tmp_path: Path) -> None:
    """KIP-848: the broker assigns. While a member reads, and when it has left with its offsets committed."""
    broker = broker_of("4.3.0", tmp_path / "broker")
    broker.format()
    with broker.running():
        with_topics(broker)
        program = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.address)
        what = ("--topic", "orders", "--from-beginning", "--group", "newer", "--consumer-property", "group.protocol=consumer")
        with (tmp_path / "read").open("w+") as read:
            member = subprocess.Popen(java("4.3.0", *program, *what), stdout=read)
            try:
                end = time.monotonic() + SECONDS
                while states(broker).get("newer") != "Stable" or (tmp_path / "read").read_text().count("value") < 40:
                    assert time.monotonic() < end
                found = told(broker)["newer"]
                assert (found["kind"], found["state"], len(found["members"])) == ("consumer", "Stable", 1)
            finally:
                member.terminate()
                member.wait(SECONDS)
        while states(broker)["newer"] != "Empty":
            assert time.monotonic() < end
        found = told(broker)["newer"]
        assert (found["kind"], found["state"], found["members"]) == ("consumer", "Empty", [])
        (offsets,) = committed(broker, ["newer"]).values()
        assert {place: offset for place, (offset, _) in offsets.items()} == {("orders", 0): 20, ("orders", 1): 20}
        assert {(each["topic"], each["partition"]): each["offset"] for each in found["offsets"]} == {
            place: offset for place, (offset, _) in offsets.items()
        }
