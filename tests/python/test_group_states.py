"""States of groups and what share groups have read, out of records that an encoder of these tests wrote as Kafka 4.3.0 lays them out."""

from __future__ import annotations

import base64
import json
import logging
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS
from make_log import batch, segment

from offsetlog import Group, Log, LogDir, OffsetLogError, ShareGroupOffset, UnreadPartitionsError

OFFSETS, SHARE = "__consumer_offsets", "__share_group_state"
NOW = 1_700_000_000_000
UNKNOWN = bytes(range(16))
Entry = tuple[bytes, bytes | None]


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def compact(value: str) -> bytes:
    return bytes([len(value.encode()) + 1]) + value.encode()


def number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def key(kind: int, *names: str) -> bytes:
    return number(kind, 2) + b"".join(map(text, names))


def epoch(kind: int, value: int, *, validated: int | None = None, group: str = "g") -> Entry:
    """Metadata of a group: consumer 3, share 11, streams 17."""
    tagged = b"\0" if validated is None else b"\1\0\4" + number(validated)
    hash_ = b"" if kind == 3 else number(0, 8)
    return key(kind, group), b"\0\0" + number(value) + hash_ + tagged


def assignment_epoch(kind: int, value: int | None, group: str = "g") -> Entry:
    """Metadata of the target assignment: consumer 6, share 12, streams 20."""
    return key(kind, group), None if value is None else b"\0\0" + number(value) + b"\0"


def member(kind: int, name: str, group: str = "g") -> Entry:
    """Metadata of a member: consumer 5, share 10, streams 19."""
    client = compact("app") + compact("/10.0.0.7")
    value = {
        5: b"\0\0" + b"\0" + b"\0" + client + b"\1" + b"\0" + number(0) + b"\0" + b"\0",
        10: b"\0\0" + b"\0" + client + b"\1" + b"\0",
        19: b"\0\0" + b"\0" + b"\0" + client + number(0) + number(1) + compact("p") + b"\xff" + b"\1" + b"\0",
    }[kind]
    return key(kind, group, name), value


def reached(kind: int, name: str, state: int, at: int, group: str = "g") -> Entry:
    """The current assignment of a member, without partitions or tasks: consumer 8, share 14, streams 22."""
    lists = {8: b"\1\1", 14: b"\1", 22: b"\1" * 6}[kind]
    return key(kind, group, name), b"\0\0" + number(at) + number(at - 1) + number(state, 1) + lists + b"\0"


def topology(value: int | None, group: str = "g") -> Entry:
    return key(23, group), None if value is None else b"\0\0" + number(value) + b"\1" + b"\0"


def classic(members: int) -> Entry:
    one = text("m") + b"\xff\xff" + text("app") + text("/10.0.0.7") + bytes(8) + bytes(8)
    value = b"\0\3" + text("consumer") + number(5) + text("range") + text("m") + bytes(8) + number(members) + one * members
    return key(2, "g"), value


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with LogDir.open(tmp_path / "logs", "a") as logs:
        logs.create_topic(OFFSETS)
        logs.create_topic(SHARE)
    return tmp_path / "logs"


def append(place: Path, topic: str, *records: Entry) -> None:
    with Log.open(place / f"{topic}-0", "a") as log:
        log.append_records(list(records))


def groups(place: Path, *records: Entry) -> list[Group]:
    """What is there once these records of the groups' coordinator are, too."""
    if records:
        append(place, OFFSETS, *records)
    with LogDir.open(place) as logs:
        return logs.groups()


CONSUMER = [epoch(3, 7), member(5, "a"), member(5, "b"), assignment_epoch(6, 7)]
STREAMS = [epoch(17, 7, validated=2), topology(2), member(19, "a"), assignment_epoch(20, 7)]


@pytest.mark.parametrize(
    ("records", "kind", "state"),
    [
        ([classic(0)], "classic", "Empty"),
        ([classic(2)], "classic", "Stable"),
        ([epoch(3, 7)], "consumer", "Empty"),
        ([*CONSUMER, reached(8, "a", 0, 7), reached(8, "b", 0, 7)], "consumer", "Stable"),
        ([*CONSUMER, reached(8, "a", 0, 7), reached(8, "b", 1, 7)], "consumer", "Reconciling"),
        ([*CONSUMER, reached(8, "a", 0, 7), reached(8, "b", 0, 6)], "consumer", "Reconciling"),
        ([*CONSUMER, reached(8, "a", 0, 7)], "consumer", "Reconciling"),
        ([*CONSUMER, epoch(3, 8), reached(8, "a", 0, 7), reached(8, "b", 0, 7)], "consumer", "Assigning"),
        ([*CONSUMER, assignment_epoch(6, None)], "consumer", "Assigning"),
        ([*CONSUMER, (member(5, "a")[0], None), (member(5, "b")[0], None)], "consumer", "Empty"),
        ([epoch(11, 3), assignment_epoch(12, 2), reached(14, "a", 0, 1)], "share", "Empty"),
        ([epoch(11, 3), member(10, "a"), assignment_epoch(12, 2)], "share", "Stable"),
        ([epoch(17, 7, validated=2), topology(2)], "streams", "Empty"),
        ([*STREAMS, reached(22, "a", 1, 7)], "streams", "Stable"),
        ([*STREAMS, reached(22, "a", 2, 7)], "streams", "Reconciling"),
        ([*STREAMS, reached(22, "a", 1, 6)], "streams", "Reconciling"),
        ([*STREAMS, epoch(17, 8, validated=2)], "streams", "Assigning"),
        ([*STREAMS, topology(3), reached(22, "a", 1, 7)], "streams", "NotReady"),
        ([*STREAMS, topology(None), reached(22, "a", 1, 7)], "streams", "NotReady"),
        ([*STREAMS, epoch(17, 7), reached(22, "a", 1, 7)], "streams", "NotReady"),
    ],
)
def test_states(records: list[Entry], kind: str, state: str, place: Path) -> None:
    """As Kafka's coordinator has them when it has loaded the same records."""
    (group,) = groups(place, *records)
    assert (group.kind, group.state) == (kind, state)


def test_deletions_make_no_group(place: Path) -> None:
    """What compaction leaves of a group that is gone are null values, the group's own before those of its parts or behind."""
    deletions = [(key(kind, "g", "a"), None) for kind in (5, 8, 10, 14, 19, 22)]
    deletions += [(key(kind, "g"), None) for kind in (3, 6, 11, 12, 15, 17, 20, 23)]
    assert groups(place, *deletions, *reversed(deletions)) == []


def test_states_of_a_real_broker() -> None:
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        assert {(group.kind, group.state, group.share_offsets) for group in logs.groups()} == {("classic", "Empty", ())}


def share_key(kind: int, topic: bytes, partition: int, group: str = "s") -> bytes:
    return number(kind, 2) + text(group) + topic + number(partition)


def counted(count: int | None) -> bytes:
    return b"\0" if count is None else b"\1\0\4" + number(count)


def snapshot(topic: bytes, partition: int, start: int, count: int | None = 0, *, group: str = "s") -> Entry:
    batch = number(start, 8) + number(start + 1, 8) + number(0, 1) + number(1, 2) + b"\0"
    epochs = number(1) + number(2) + number(3)
    value = b"\0\0" + epochs + number(start, 8) + number(NOW, 8) * 2 + b"\2" + batch + counted(count)
    return share_key(0, topic, partition, group), value


def update(topic: bytes, partition: int, start: int, count: int | None = 0, leader: int = -1) -> Entry:
    value = b"\0\0" + number(1) + number(leader) + number(start, 8) + b"\1" + counted(count)
    return share_key(1, topic, partition), value


def topic_with_records(place: Path, records: int) -> bytes:
    """The id of a topic with this many records in its only partition."""
    with LogDir.open(place, "a") as logs:
        logs.create_topic("orders")
        log = logs.log("orders", 0)
        log.append_records([b"x"] * records)
        assert log.topic_id is not None
        return base64.urlsafe_b64decode(log.topic_id + "==")


def test_where_share_groups_begin(place: Path) -> None:
    """A snapshot replaces, an update changes what it names, a null value deletes: as Kafka's share coordinator replays them."""
    orders = topic_with_records(place, 10)
    with Log.open(place / "orders-0") as log:
        times = [record.timestamp for record in log.scan()]
    append(
        place,
        SHARE,
        snapshot(orders, 0, 2, 1),
        update(orders, 0, 5, 2),
        update(orders, 0, -1, 3, leader=4),
        snapshot(UNKNOWN, 1, 7),
        snapshot(UNKNOWN, 2, -1, None),
        update(UNKNOWN, 3, 8, None, leader=6),
        snapshot(UNKNOWN, 4, 1),
        (snapshot(UNKNOWN, 4, 1)[0], None),
        (update(UNKNOWN, 3, 8)[0], None),
    )
    (group,) = groups(place, epoch(11, 3, group="s"), member(10, "a", "s"))
    unknown = base64.urlsafe_b64encode(UNKNOWN).decode().rstrip("=")
    assert (group.group_id, group.kind, group.state, group.offsets) == ("s", "share", "Stable", ())
    assert sorted(group.share_offsets) == sorted(
        (
            ShareGroupOffset("orders", 0, 5, 4, 3, 10, 2, times[5]),
            ShareGroupOffset(unknown, 1, 7, 3, 0, None, None, None),
            ShareGroupOffset(unknown, 2, None, 3, None, None, None, None),
            ShareGroupOffset(unknown, 3, 8, 6, None, None, None, None),
        )
    )
    # The group's own records know the topic's name.
    named = compact("far") + b"\3" + number(1) + number(2) + b"\0"
    stored = b"\0\0" + b"\1" + b"\2" + UNKNOWN + named + b"\1" + b"\0"
    (group,) = groups(place, (key(15, "s"), stored))
    assert [each[:2] for each in group.share_offsets] == [("far", 1), ("far", 2), ("far", 3), ("orders", 0)]


def test_a_share_group_without_its_coordinators_records(place: Path) -> None:
    """They may be in the log dirs of another broker."""
    append(place, SHARE, snapshot(UNKNOWN, 0, 2))
    (group,) = groups(place)
    assert (group.group_id, group.kind, group.state, len(group.share_offsets)) == ("s", "share", "Empty", 1)


def test_partitions_of_the_state_that_are_missing_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As those of the other topic: each holds a part of what share groups have read."""
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS)
        logs.create_topic(SHARE, partitions=4)
    append(tmp_path, SHARE, snapshot(UNKNOWN, 0, 2))
    hidden = "where share groups read is not shown as far as it is in"
    for missing, said in (
        (1, f"1 partition of {SHARE} is not here (1), and {hidden} it"),
        (2, f"2 partitions of {SHARE} are not here (1, 2), and {hidden} them"),
    ):
        shutil.rmtree(tmp_path / f"{SHARE}-{missing}")
        caplog.clear()
        with caplog.at_level(logging.WARNING, "offsetlog"):
            assert [group.group_id for group in groups(tmp_path)] == ["s"]
        assert [record.getMessage() for record in caplog.records] == [said]


def names_of_topics(initialized: list[bytes], deleting: list[bytes]) -> Entry:
    """What a share group's coordinator stores of the partition 0 of topics called `orders`, and of those that it is about to forget."""
    named = compact("orders")
    started = b"".join(topic + named + b"\2" + number(0) + b"\0" for topic in initialized)
    ended = b"".join(topic + named + b"\0" for topic in deleting)
    lengths = (number(len(topics) + 1, 1) for topics in (initialized, deleting))
    return key(15, "s"), b"\0\0" + b"\1" + next(lengths) + started + next(lengths) + ended + b"\0"


@pytest.mark.parametrize("is_deleting", [False, True])
def test_the_state_of_a_deleted_topic_is_not_that_of_the_next_one(
    place: Path, caplog: pytest.LogCaptureFixture, *, is_deleting: bool
) -> None:
    """The group's records have the name of both; until the coordinator has deleted what it knows of the first, so has the state."""
    orders = topic_with_records(place, 10)
    append(place, SHARE, snapshot(UNKNOWN, 0, 300), snapshot(orders, 0, 4))
    known = names_of_topics([orders], [UNKNOWN]) if is_deleting else names_of_topics([UNKNOWN, orders], [])
    with caplog.at_level(logging.WARNING, "offsetlog"):
        (group,) = groups(place, epoch(11, 3, group="s"), known)
    assert [(each.topic, each.start_offset, each.lag) for each in group.share_offsets] == [("orders", 4, 6)]
    unknown = base64.urlsafe_b64encode(UNKNOWN).decode().rstrip("=")
    assert [record.getMessage() for record in caplog.records] == [
        f'left out: where share group "s" read topic "orders" with the id {unknown}; the topic of this name has another id now'
    ]
    # Without a topic of the name nobody knows which of the two has it; rows of one name would be one series twice.
    shutil.rmtree(place / "orders-0")
    (group,) = groups(place)
    both = [(base64.urlsafe_b64encode(topic).decode().rstrip("="), start) for topic, start in ((UNKNOWN, 300), (orders, 4))]
    assert [(each.topic, each.start_offset) for each in group.share_offsets] == sorted(both)
    (group,) = groups(place, names_of_topics([orders], []))
    assert ("orders", 4) in [(each.topic, each.start_offset) for each in group.share_offsets]


def test_damage_in_one_topic_hides_nothing_of_the_other(place: Path) -> None:
    append(place, SHARE, snapshot(UNKNOWN, 0, 2))
    append(place, OFFSETS, classic(1))
    for topic, left in ((SHARE, "g"), (OFFSETS, "s")):
        path = place / f"{topic}-0" / f"{0:020}.log"
        sound = path.read_bytes()
        path.write_bytes(sound[:-3] + bytes([sound[-3] ^ 0xFF]) + sound[-2:] + sound)
        with LogDir.open(place) as logs, pytest.raises(UnreadPartitionsError) as caught:
            logs.groups()
        assert [group.group_id for group in caught.value.partial] == [left]
        assert [partition.topic for partition in caught.value.failed] == [topic]
        path.write_bytes(sound)


@pytest.mark.parametrize("value", ["0000", "0009" + "00" * 60, "0000" + "ff" * 200])
def test_share_state_that_cannot_be_read_is_an_error(value: str, place: Path) -> None:
    append(place, SHARE, snapshot(UNKNOWN, 0, 2), (share_key(0, UNKNOWN, 1), bytes.fromhex(value)))
    with pytest.raises(OffsetLogError) as caught:
        groups(place)
    assert caught.value.offset == 1


def test_share_state_of_types_that_are_not_known_is_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(place, SHARE, (b"\0\x7fwhat", b"is this"), (b"\0\x7fwhat", None))
    with caplog.at_level(logging.WARNING, "offsetlog"):
        assert groups(place) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"{SHARE}-0: 2 records left out, their type is not known; the first at offset 0: type 127"
    ]


@pytest.mark.parametrize("seed", range(4))
def test_hostile_records_are_errors_or_passed_over(seed: int, tmp_path: Path) -> None:
    """Whatever stands in a record, an error names its place."""
    draw = random.Random(seed)
    sound = [
        *CONSUMER,
        *STREAMS,
        classic(2),
        reached(8, "a", 0, 7),
        reached(22, "a", 1, 7),
        snapshot(UNKNOWN, 0, 2),
        update(UNKNOWN, 0, 3),
    ]
    for topic in (OFFSETS, SHARE):
        for _ in range(40):
            name, value = (bytearray(part or b"") for part in draw.choice(sound))
            for part in draw.choices([name, value], k=3):
                if part and draw.random() < 0.7:
                    part[draw.randrange(len(part))] = draw.choice([0, 1, 0x7F, 0x80, 0xFF])
                else:
                    del part[draw.randrange(len(part) + 1) :]
            segment(tmp_path / f"{topic}-0", 0, batch(0, [(bytes(name), bytes(value))]))
            with LogDir.open(tmp_path) as logs:
                errors: list[Exception] = []
                for ask in (logs.groups, logs.groups_prometheus):
                    try:
                        ask()
                    except OffsetLogError as error:
                        errors += error.failed.values() if isinstance(error, UnreadPartitionsError) else [error]
                assert {getattr(error, "offset", None) for error in errors} <= {0}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", "groups", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_command(place: Path) -> None:
    orders = topic_with_records(place, 10)
    append(place, SHARE, snapshot(orders, 0, 4, 1, group="s\x1b\n"), snapshot(orders, 1, -1, None, group="s\x1b\n"))
    commit = b"\0\1" + text("g") + text("orders") + number(0), b"\0\0" + number(3, 8) + bytes(10)
    append(place, OFFSETS, classic(1), commit, epoch(11, 3, group="s\x1b\n"))
    with Log.open(place / "orders-0") as log:
        times = [record.timestamp for record in log.scan()]
    now = times[4] + 11_000
    printed = run(str(place), "--now", str(now)).stdout.splitlines()
    assert [line.split() for line in printed[3:]] == [
        ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LOG-END-OFFSET", "LAG", "TIME-LAG"],
        [r"s\x1b\n", "orders", "0", "3", "4", "10", "5", "11s"],
        [r"s\x1b\n", "orders", "1", "3", "-", "-", "-", "-"],
    ]
    assert printed[1].split()[:6] == ["g", "orders", "0", "3", "10", "7"]
    assert printed[2] == ""
    assert [line.split() for line in run(str(place), "--state").stdout.splitlines()] == [
        ["GROUP", "KIND", "STATE", "EPOCH", "ASSIGNMENT-STRATEGY", "MEMBERS"],
        ["g", "classic", "Stable", "5", "range", "1"],
        [r"s\x1b\n", "share", "Empty", "3", "-", "0"],
    ]
    first, second = map(json.loads, run(str(place), "--json", "--now", str(now)).stdout.splitlines())
    assert (first["state"], first["share_offsets"]) == ("Stable", [])
    assert (second["group"], second["state"], second["offsets"]) == ("s\x1b\n", "Empty", [])
    assert second["share_offsets"][0] == {
        "topic": "orders",
        "partition": 0,
        "start_offset": 4,
        "leader_epoch": 3,
        "delivery_complete_count": 1,
        "log_end_offset": 10,
        "lag": 5,
        "first_unread_timestamp": times[4],
        "time_lag_ms": 11_000,
    }
    exported = run(str(place), "--prometheus", "--now", str(now)).stdout
    assert 'kafka_consumergroup_state{consumergroup="g",state="Stable"} 1\n' in exported
    assert [line for line in exported.splitlines() if line.startswith("kafka_sharegroup")] == [
        'kafka_sharegroup_start_offset{sharegroup="s\x1b\\n",topic="orders",partition="0"} 4',
        'kafka_sharegroup_lag{sharegroup="s\x1b\\n",topic="orders",partition="0"} 5',
        'kafka_sharegroup_lag_seconds{sharegroup="s\x1b\\n",topic="orders",partition="0"} 11.000',
    ]
