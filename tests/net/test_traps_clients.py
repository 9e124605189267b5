"""What fails silently at clients if a server gets it wrong, seen from the clients: the same traps as in test_traps.py."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from asking import ask
from client_programs import Client
from damaged import Damaged
from golden import named
from served import Kafka, serving

from offsetlog import Log

LATER_EPOCH = 5


def check_refused(client: Client, kafka: Kafka, **more: int) -> None:
    """A refusal by policy: librdkafka keeps the topic's partitions, unlike behind a missing authorization."""
    (found,) = ask(client, kafka, {"verb": "produce", "topic": "g-plain", **more})
    for mode in ("plain", "idempotent"):
        assert "policy" in (found[mode] or "").lower(), found
        assert found.get(f"{mode} partitions", 3) == 3, found


def test_producers_are_told_at_once_and_go_on(client: Client, clean: Kafka) -> None:
    check_refused(client, clean)


@pytest.fixture(scope="module")
def later_epoch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A cluster whose group committed under a leader epoch that no batch has: the leader wrote nothing before it died."""
    folder = tmp_path_factory.mktemp("later-epoch")
    (golden,) = named("g-codec-lz4-0")
    golden.copy(folder / "disk")
    group, topic = b"of-later-epoch", golden.topic.encode()
    key = struct.pack(">h", 1) + struct.pack(">h", len(group)) + group + struct.pack(">h", len(topic)) + topic + struct.pack(">i", 0)
    # An OffsetCommitValue of version 3: offset, leader epoch, metadata, time of the commit.
    value = struct.pack(">hqihq", 3, 100, LATER_EPOCH, 0, 1_800_000_000_000)
    with Log.open(folder / "disk" / "__consumer_offsets-0", "a") as log:
        log.append(value, key=key, flush=True)
    with serving([folder / "disk"], folder / "serve") as server:
        yield server


def test_a_group_that_committed_under_a_later_epoch_reads_on(client: Client, later_epoch: Kafka) -> None:
    """KIP-1279. Java's groups read nothing for ever if the metadata's epoch is below the commit's."""
    (golden,) = named("g-codec-lz4-0")
    wanted = [row.offset for row in golden.rows if row.offset >= 100]
    task = {"verb": "subscribe", "group": "of-later-epoch", "topic": golden.topic, "records": len(wanted)}
    assert ask(client, later_epoch, task) == [{golden.name: wanted}]


@pytest.fixture(scope="module")
def holes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Partitions 0 and 2 of a topic that had three, on the only disk that is left."""
    folder = tmp_path_factory.mktemp("holes")
    for golden in named("g-plain-0", "g-plain-2"):
        golden.copy(folder / "disk")
    with serving([folder / "disk"], folder / "serve") as server:
        yield server


def test_partitions_beside_a_missing_one_are_read(client: Client, holes: Kafka) -> None:
    """By a group and by assignment; nobody waits for the one that is offline."""
    wanted = {golden.name: [row.offset for row in golden.rows] for golden in named("g-plain-0", "g-plain-2")}
    group = f"holes-{client.name}"
    (found,) = ask(client, holes, {"verb": "subscribe", "group": group, "topic": "g-plain", "records": sum(map(len, wanted.values()))})
    assert found == wanted
    ends = {golden.name: golden.end for golden in named("g-plain-0", "g-plain-2")}
    read = {"verb": "read", "isolation": "read_uncommitted", "places": [["g-plain", 0], ["g-plain", 2]], "ends": ends}
    (rows,) = ask(client, holes, read)
    assert {name: [row[0] for row in seen] for name, seen in rows.items()} == wanted


def test_producers_are_told_at_once_beside_a_missing_partition(client: Client, holes: Kafka) -> None:
    """If metadata leaves a partition out, some producers wait for it until their time is over.

    librdkafka is told the partition: its own choice may be the missing one, for which it waits.
    """
    check_refused(client, holes, partition=0)


def test_out_of_range_is_reset(client: Client, clean: Kafka) -> None:
    """To the beginning, or told; never waited for."""
    (golden,) = named("g-deleted-prefix-0")
    wanted = [row.offset for row in golden.rows]
    task = {"verb": "until_error", "place": [golden.topic, golden.partition], "seconds": 300, "count": len(wanted)}
    for offset in (golden.start - 1, golden.end + 1000):
        (reset,) = ask(client, clean, {**task, "offset": offset, "reset": "earliest"})
        assert (reset["seen"], reset["error"]) == (wanted, None)
    (refused,) = ask(client, clean, {**task, "offset": golden.end + 1000, "reset": "error"})
    assert refused["seen"] == []
    assert refused["error"] is not None


def test_members_that_come_and_go_together(client: Client, clean: Kafka) -> None:
    """UNKNOWN_MEMBER_ID in rebalances that run into each other is on tansu's list of what was wrong."""
    topic = named("g-time-0", "g-time-1", "g-time-2")
    task = {"verb": "crowd", "group": f"crowd-{client.name}", "topic": "g-time", "members": 3, "rounds": 2}
    task["places"] = [[golden.topic, golden.partition] for golden in topic]
    (offsets,) = ask(client, clean, task)
    (found,) = ask(client, clean, {"verb": "committed", "group": task["group"], "places": task["places"]})
    assert found == offsets


def test_damage_stops_a_client_loudly(client: Client, with_damage: Damaged) -> None:
    """All before it is read, then there is an error and not silence; other partitions are served on."""
    golden = with_damage.golden
    task = {
        "verb": "until_error",
        "place": [golden.topic, golden.partition],
        "offset": 0,
        "reset": "error",
        "seconds": 10,
        "count": len(golden.rows),
    }
    (found,) = ask(client, with_damage.kafka, task)
    assert found["seen"] == [row.offset for row in golden.rows if row.offset < with_damage.first]
    assert (found["error"] is not None) == client.tells_damage, found
    assert golden.topic in with_damage.kafka.logged()
    (sound,) = named("g-plain-0")
    read = {"verb": "read", "isolation": "read_uncommitted", "places": [["g-plain", 0]], "ends": {"g-plain-0": sound.end}}
    (rows,) = ask(client, with_damage.kafka, read)
    assert len(rows["g-plain-0"]) == len(sound.rows)
