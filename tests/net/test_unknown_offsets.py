"""Committed offsets that nobody knows, or that wait for a transaction: no client may take them for none, and no mirror for a whole copy."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import UnknownError
from make_log import batch, segment
from protocol import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FETCH,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Connection,
    Value,
    fetch,
    only,
)

from kafka import KafkaConsumer
from offsetlog import Server, mirror

UNKNOWN_SERVER_ERROR, UNSTABLE_OFFSET_COMMIT = -1, 88
TRANSACTIONAL, CONTROL = 0x10, 0x20
PRODUCER = 7
SET = "__consumer_offsets"


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def committed(group: str, offset: int) -> tuple[bytes, bytes]:
    """A record of `__consumer_offsets`: the group's offset in `in-0`."""
    key = struct.pack(">h", 1) + text(group) + text("in") + struct.pack(">i", 0)
    return key, struct.pack(">hqi", 3, offset, -1) + text("") + struct.pack(">q", 1_700_000_000_000)


def in_transaction(base_offset: int, *rows: tuple[bytes | None, bytes], sequence: int = 0) -> bytes:
    return batch(base_offset, rows, attributes=TRANSACTIONAL, producer_id=PRODUCER, base_sequence=sequence)


def marker(base_offset: int) -> bytes:
    """The producer's transaction is committed."""
    row = (struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0))
    return batch(base_offset, [row], attributes=TRANSACTIONAL | CONTROL, producer_id=PRODUCER, base_sequence=-1)


def hashed(group: str, count: int) -> int:
    """The partition in which Kafka stores a group: Java's hash of its name."""
    value = 0
    for char in group:
        value = (value * 31 + ord(char)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % count


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A log dir with a topic of 100 records."""
    place = tmp_path / "logs"
    place.mkdir()
    (place / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    segment(place / "in-0", 0, batch(0, [(None, b"v")] * 100))
    return place


@pytest.fixture
def damaged(place: Path) -> Path:
    """The groups' offsets are behind a batch that is damaged, and in front of it."""
    later = bytearray(batch(1, [committed("early", 90)]))
    later[-5] ^= 0xFF
    segment(place / f"{SET}-0", 0, batch(0, [committed("early", 50)]), bytes(later), batch(2, [committed("late", 70)]))
    return place


class Asking:
    """A client that asks for what groups have committed."""

    def __init__(self, kafka: Server) -> None:
        self.wire = Connection(kafka.bootstrap_servers)

    def offset(self, group: str, version: int = 7, *, stable: bool = False) -> tuple[int, int]:
        """The offset in `in-0`, and the error of the group, or of the partition."""
        topics = [{"Name": "in", "PartitionIndexes": [0]}]
        return self._of(group, version, topics, stable=stable)

    def all(self, group: str, version: int = 7, *, stable: bool = False) -> tuple[int, int]:
        """The same, asked for all topics."""
        return self._of(group, version, None, stable=stable)

    def _of(self, group: str, version: int, topics: list[Value] | None, *, stable: bool) -> tuple[int, int]:
        body: dict[str, Any] = {"GroupId": group, "Topics": topics}
        if version >= 8:
            body = {"Groups": [body]}
        if version >= 7:
            body["RequireStable"] = stable
        answer = self.wire.ask(OFFSET_FETCH, version, body)
        found = answer["Groups"][0] if version >= 8 else answer
        if found.get("ErrorCode"):
            assert not found["Topics"]
            return -1, found["ErrorCode"]
        if not found["Topics"]:
            return -1, 0
        part = found["Topics"][0]["Partitions"][0]
        return part["CommittedOffset"], part["ErrorCode"]

    def commit(self, group: str, offset: int) -> int:
        """Outside of any generation, as the tools of administrators do. Returns the error."""
        partition = {"PartitionIndex": 0, "CommittedOffset": offset, "CommittedLeaderEpoch": -1, "CommittedMetadata": ""}
        topics = [{"Name": "in", "Partitions": [partition]}]
        answer = self.wire.ask(OFFSET_COMMIT, 8, {"GroupId": group, "GenerationIdOrMemberEpoch": -1, "Topics": topics})
        code: int = answer["Topics"][0]["Partitions"][0]["ErrorCode"]
        return code

    def described(self, group: str) -> int:
        code: int = self.wire.ask(DESCRIBE_GROUPS, 5, {"Groups": [group]})["Groups"][0]["ErrorCode"]
        return code

    def deleted(self, group: str) -> int:
        code: int = self.wire.ask(DELETE_GROUPS, 2, {"GroupsNames": [group]})["Results"][0]["ErrorCode"]
        return code

    def listed(self) -> set[str]:
        return {each["GroupId"] for each in self.wire.ask(LIST_GROUPS, 4, {})["Groups"]}


def told(kafka: Server, kind: str) -> list[str]:
    return [event.text for event in kafka.events() if event.kind == kind]


def test_offsets_in_a_damaged_partition_are_an_error_and_not_none(damaged: Path) -> None:
    with Server(damaged) as kafka:
        ask = Asking(kafka)
        for group in ("early", "late", "new"):
            for version in (1, 2, 5, 7, 8, 9):
                assert ask.offset(group, version) == (-1, UNKNOWN_SERVER_ERROR), (group, version)
                if version > 1:
                    assert ask.all(group, version) == (-1, UNKNOWN_SERVER_ERROR), (group, version)
            assert ask.described(group) == UNKNOWN_SERVER_ERROR
            assert ask.deleted(group) == UNKNOWN_SERVER_ERROR
        events = told(kafka, "group-unknown")
        assert [event.split()[1] for event in events] == ["early", "late", "new"]
        assert all(f"{SET}-0 cannot be read" in event and "--without-offsets" in event for event in events)
        # What a client commits is known from then on.
        assert ask.commit("late", 70) == 0
        assert ask.offset("late") == (70, 0)
        assert ask.all("late") == (-1, UNKNOWN_SERVER_ERROR)
        assert ask.described("late") == 0
    with Server(damaged, without_offsets=True) as kafka:
        assert Asking(kafka).offset("early") == Asking(kafka).all("late") == (-1, 0)


def test_half_a_batch_at_the_end_may_be_a_commit(place: Path) -> None:
    """What is known stays known; a group that is not may have committed in what a power cut left."""
    torn = batch(1, [committed("late", 70)])[:-10]
    segment(place / f"{SET}-0", 0, batch(0, [committed("early", 50)]), torn)
    with Server(place) as kafka:
        ask = Asking(kafka)
        assert ask.offset("late") == (-1, UNKNOWN_SERVER_ERROR)
        assert ask.offset("early") == (50, 0)


def test_what_was_committed_here_counts_in_the_next_run(damaged: Path, tmp_path: Path) -> None:
    for number in range(2):
        with Server(damaged, groups=tmp_path / "groups") as kafka:
            ask = Asking(kafka)
            assert ask.offset("early") == (-1, UNKNOWN_SERVER_ERROR)
            assert number or ask.commit("late", 71) == 0
            assert ask.offset("late") == (71, 0)


def test_a_mirror_of_a_source_with_a_damaged_partition_is_not_complete(damaged: Path, tmp_path: Path) -> None:
    with Server(damaged) as kafka:
        report = mirror(kafka.bootstrap_servers, tmp_path / "copy", once=True, give_up_ms=4000)
    assert not report.is_complete
    assert any("__consumer_offsets" in event.message for event in report.events), report.events
    with Server(damaged, without_offsets=True) as kafka:
        report = mirror(kafka.bootstrap_servers, tmp_path / "copy", once=True, give_up_ms=4000)
    assert report.is_complete


def test_groups_in_a_partition_that_is_not_here_get_an_error(place: Path) -> None:
    """One broker of three: without the cluster's metadata nobody knows how many partitions there are."""
    groups = [f"g{number}" for number in range(100)]
    for number in (0, 2, 4):
        rows = [committed(group, 50) for group in groups if hashed(group, 6) == number]
        segment(place / f"{SET}-{number}", 0, batch(0, rows))
    with Server(place) as kafka:
        ask = Asking(kafka)
        for group in groups:
            expected = (50, 0) if hashed(group, 6) % 2 == 0 else (-1, UNKNOWN_SERVER_ERROR)
            assert ask.offset(group) == ask.all(group, 8) == expected
        assert ask.listed() == {group for group in groups if hashed(group, 6) % 2 == 0}


def test_a_partition_that_lost_its_beginning_is_known_in_part(place: Path) -> None:
    segment(place / f"{SET}-0", 5, batch(5, [committed("here", 50)]))
    with Server(place) as kafka:
        ask = Asking(kafka)
        assert ask.offset("here") == (50, 0)
        assert ask.offset("other") == (-1, UNKNOWN_SERVER_ERROR)


STATES = {"PrepareCommit": 2, "PrepareAbort": 3, "Ongoing": 1}


def decided(place: Path, state: str) -> None:
    """What the coordinator of the transaction stored: it wrote to `out` and committed offsets."""
    key = struct.pack(">h", 0) + text("tid")
    value = struct.pack(">hqhibi", 0, PRODUCER, 0, 60_000, STATES[state], 2)
    for topic in ("out", SET):
        value += text(topic) + struct.pack(">ii", 1, 0)
    value += struct.pack(">qq", 1_700_000_000_000, 1_700_000_000_000)
    segment(place / "__transaction_state-0", 0, batch(0, [(key, value)]))


@pytest.fixture
def pending(place: Path) -> Path:
    """A group has committed 50 in a transaction, and 100 in one that has no end; another has committed 100 in the latter alone."""
    rows = [committed("app", 100), committed("new", 100)]
    offsets = [in_transaction(0, committed("app", 50)), marker(1), in_transaction(2, *rows, sequence=1)]
    segment(place / f"{SET}-0", 0, *offsets, batch(4, [committed("plain", 3)]))
    segment(place / "out-0", 0, in_transaction(0, (None, b"o")), marker(1), in_transaction(2, (None, b"p"), sequence=1))
    return place


def stable_end(kafka: Server) -> int:
    with Connection(kafka.bootstrap_servers) as wire:
        end: int = only(wire.ask(FETCH, 12, fetch("out", 0, 0, committed=True)))["LastStableOffset"]
        return end


def test_offsets_of_an_open_transaction_are_unstable(pending: Path, tmp_path: Path) -> None:
    for number in range(2):
        with Server(pending, groups=tmp_path / "groups") as kafka:
            ask = Asking(kafka)
            assert ask.offset("app") == ask.all("app") == (50, 0)
            # As a coordinator of Kafka: of all topics it tells those with an offset.
            for version in (7, 8, 9):
                assert ask.offset("app", version, stable=True) == ask.all("app", version, stable=True) == (-1, UNSTABLE_OFFSET_COMMIT)
            assert ask.offset("plain", stable=True) == (3, 0)
            if number == 0:
                assert ask.offset("new") == ask.all("new") == (-1, 0)
                assert ask.offset("new", stable=True) == (-1, UNSTABLE_OFFSET_COMMIT)
                # Nobody will ever end the transaction. What is committed here counts, in the next run too.
                assert ask.commit("new", 7) == 0
            assert ask.offset("new", stable=True) == (7, 0)
            assert stable_end(kafka) == 2


@pytest.mark.parametrize("state", STATES)
def test_offsets_are_decided_with_the_records_of_their_transaction(pending: Path, state: str) -> None:
    decided(pending, state)
    commit = state == "PrepareCommit"
    with Server(pending, open_transactions="decide") as kafka:
        ask = Asking(kafka)
        assert stable_end(kafka) == 3
        for stable in (False, True):
            assert ask.offset("app", stable=stable) == ask.all("app", stable=stable) == ((100, 0) if commit else (50, 0))
            assert ask.offset("new", stable=stable) == ((100, 0) if commit else (-1, 0))
        assert ("new" in ask.listed()) == commit
    with Server(pending) as kafka:
        assert Asking(kafka).offset("app", stable=True) == (-1, UNSTABLE_OFFSET_COMMIT)


def test_a_later_commit_of_the_group_wins(pending: Path) -> None:
    log = pending / f"{SET}-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes() + batch(5, [committed("app", 60)]))
    decided(pending, "PrepareCommit")
    for how in ("wait", "decide"):
        with Server(pending, open_transactions=how) as kafka:
            assert Asking(kafka).offset("app", stable=True) == (60, 0)


def test_a_consumer_of_such_a_group_stops_instead_of_skipping(damaged: Path) -> None:
    """It would begin at the end otherwise. Tried with Java's 4.3.0 and librdkafka, too, which report it as well."""
    with (
        Server(damaged) as kafka,
        contextlib.closing(
            KafkaConsumer(
                "in",
                bootstrap_servers=kafka.bootstrap_servers,
                group_id="early",
                auto_offset_reset="latest",
                consumer_timeout_ms=60_000,
            )
        ) as consumer,
        pytest.raises(UnknownError),
    ):
        next(consumer)
