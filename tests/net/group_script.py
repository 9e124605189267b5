"""A script of group requests, played to a coordinator: each line of it is a question that Kafka's own answer settles.

over 600 lines: one script, played from its first line to its last.

The same requests go to a real broker and to ours. `PYTHONPATH=tests/broker python tests/net/group_script.py` plays it to a 4.3.0 broker and writes
`tests/data/groups/kafka-4.3.0.txt`, which the Rust tests replay to the coordinator: lines of milliseconds, `send`, `recv` or `drop`, the
number of a connection, and of a request its API, its version and its body in hex, of a response its body.
"""

from __future__ import annotations

import itertools
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from protocol import framed, request, response

from broker import ROOT, Broker

RECORDED = ROOT / "tests" / "data" / "groups" / "kafka-4.3.0.txt"
VERSION = "4.3.0"
SETTINGS = {"group.min.session.timeout.ms": 100, "group.max.session.timeout.ms": 60000, "group.max.size": 3}
TOPICS = {"one": 2, "two": 1}

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE, LIST, CREATE_TOPICS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 19, 42, 47
RESPONSE_SECONDS = 300

Value = dict[str, Any]


class Player:
    """Sends requests on connections by number, and writes down what goes to and fro."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._sockets: dict[int, socket.socket] = {}
        self._asked: dict[int, tuple[int, int, int]] = {}
        self._numbers = itertools.count(1)
        self._begin = time.monotonic()
        self.lines: list[str] = []

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()

    def _line(self, *words: object) -> None:
        milliseconds = int((time.monotonic() - self._begin) * 1000)
        self.lines.append(" ".join(str(word) for word in (milliseconds, *words)))

    def send(self, connection: int, api: int, version: int, body: Value) -> None:
        if connection not in self._sockets:
            host, _, port = self._address.partition(":")
            self._sockets[connection] = socket.create_connection((host, int(port)), RESPONSE_SECONDS)
        number = next(self._numbers)
        self._asked[connection] = (api, version, number)
        data = request(api).write(body, version)
        self._line("send", connection, api, version, data.hex() or "-")
        self._sockets[connection].sendall(framed(api, version, number, data))

    def drop(self, connection: int) -> None:
        """End a connection whose answer nobody waits for."""
        self._asked.pop(connection)
        self._sockets.pop(connection).close()
        self._line("drop", connection)

    def recv(self, connection: int) -> Value:
        api, version, number = self._asked.pop(connection)
        (size,) = struct.unpack(">i", self._exactly(connection, 4))
        answer = self._exactly(connection, size)
        assert struct.unpack_from(">i", answer) == (number,)
        answer = answer[5 if version in request(api).flexible else 4 :]
        self._line("recv", connection, answer.hex())
        return response(api).read(answer, version)

    def _exactly(self, connection: int, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._sockets[connection].recv(size - len(parts))
            if not part:
                raise ConnectionError("the connection was closed")
            parts += part
        return bytes(parts)

    def call(self, connection: int, api: int, version: int, **body: object) -> Value:
        self.send(connection, api, version, body)
        return self.recv(connection)


# What members say.


def subscription(*topics: str) -> bytes:
    """Version 0 of a consumer's subscription."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def protocols(*names: str, topics: Sequence[str] = ("one",)) -> list[Value]:
    return [{"Name": name, "Metadata": subscription(*topics)} for name in names or ("range",)]


def joining(group: str, member: str = "", **more: object) -> Value:
    body: Value = {"GroupId": group, "SessionTimeoutMs": 30000, "RebalanceTimeoutMs": 20000, "MemberId": member}
    return {**body, "ProtocolType": "consumer", "Protocols": protocols(), **more}


def joined(player: Player, connection: int, group: str, version: int = 9, **more: Any) -> Value:
    """A member that joins alone."""
    body = joining(group, **more)
    player.send(connection, JOIN, version, body)
    answer = player.recv(connection)
    if answer["ErrorCode"] == 79:
        player.send(connection, JOIN, version, {**body, "MemberId": answer["MemberId"]})
        answer = player.recv(connection)
    return answer


def known(player: Player, connection: int, group: str, **more: Any) -> str:
    """An id for a member that has not joined yet."""
    answer = player.call(connection, JOIN, 9, **joining(group, **more))
    assert answer["ErrorCode"] == 79, answer
    return str(answer["MemberId"])


def syncing(group: str, member: str, generation: int, *given: tuple[str, bytes], **more: object) -> Value:
    body: Value = {
        "GroupId": group,
        "GenerationId": generation,
        "MemberId": member,
        "ProtocolType": "consumer",
        "ProtocolName": "range",
    }
    return {**body, "Assignments": [{"MemberId": to, "Assignment": data} for to, data in given], **more}


def stable(player: Player, connection: int, group: str, **more: Any) -> tuple[str, int]:
    """A group of one member."""
    answer = joined(player, connection, group, **more)
    member, generation = str(answer["MemberId"]), int(answer["GenerationId"])
    protocol = {"ProtocolType": answer["ProtocolType"], "ProtocolName": answer["ProtocolName"]}
    if "GroupInstanceId" in more:
        protocol["GroupInstanceId"] = more["GroupInstanceId"]
    player.call(connection, SYNC, 5, **syncing(group, member, generation, (member, b"mine"), **protocol))
    return member, generation


def two(player: Player, group: str, first: int = 1, second: int = 2, **more: object) -> tuple[str, str, int]:
    """A group of two: a second member comes, the first one joins again. Gives the leader first."""
    leader, generation = stable(player, first, group, **more)
    other = known(player, second, group, **more)
    player.send(second, JOIN, 9, joining(group, other, **more))
    time.sleep(0.05)
    beating(player, first, group, leader, generation)
    player.call(first, JOIN, 9, **joining(group, leader, **more))
    generation = int(player.recv(second)["GenerationId"])
    player.send(second, SYNC, 5, syncing(group, other, generation))
    time.sleep(0.05)
    player.call(first, SYNC, 5, **syncing(group, leader, generation, (leader, b"first"), (other, b"second")))
    player.recv(second)
    return leader, other, generation


def beating(player: Player, connection: int, group: str, member: str, generation: int, **more: object) -> None:
    player.call(connection, HEARTBEAT, 4, GroupId=group, MemberId=member, GenerationId=generation, **more)


def leaving(player: Player, connection: int, group: str, *members: tuple[str, str | None]) -> None:
    named = [{"MemberId": member, "GroupInstanceId": instance} for member, instance in members]
    player.call(connection, LEAVE, 5, GroupId=group, Members=named)


def commit_of(topic: str, *partitions: tuple[int, int, str | None]) -> Value:
    return {
        "Name": topic,
        "Partitions": [
            {"PartitionIndex": number, "CommittedOffset": offset, "CommittedLeaderEpoch": offset % 7, "CommittedMetadata": metadata}
            for number, offset, metadata in partitions
        ],
    }


def committing(player: Player, group: str, *topics: Value, version: int = 9, member: str = "", generation: int = -1) -> None:
    player.call(1, OFFSET_COMMIT, version, GroupId=group, GenerationIdOrMemberEpoch=generation, MemberId=member, Topics=list(topics))


def fetching(player: Player, *groups: str, topics: list[Value] | None = None) -> None:
    asked = [{"GroupId": group, "Topics": topics} for group in groups]
    player.call(1, OFFSET_FETCH, 9, Groups=asked, RequireStable=True)


def describing(player: Player, *groups: str) -> None:
    player.call(1, DESCRIBE, 5, Groups=list(groups), IncludeAuthorizedOperations=False)


# The stories.


def versions(player: Player) -> None:
    """Every version of every request, one member."""
    for version in range(7):
        more: Value = {"CoordinatorKeys": ["group", "other"]} if version >= 4 else {"Key": "group"}
        player.call(1, FIND_COORDINATOR, version, **more)
    for version in range(10):
        group = f"versions-{version}"
        answer = joined(player, 1, group, version)
        member, generation = answer["MemberId"], answer["GenerationId"]
        sync = min(version, 5)
        extra = {} if sync >= 5 else {"ProtocolType": None, "ProtocolName": None}
        player.call(1, SYNC, sync, **syncing(group, member, generation, (member, b"mine"), **extra))
        player.call(1, HEARTBEAT, min(version, 4), GroupId=group, MemberId=member, GenerationId=generation)
        committing(player, group, commit_of("one", (0, 5, "five")), version=max(2, version), member=member, generation=generation)
        fetch = max(1, version)
        topics = [{"Name": "one", "PartitionIndexes": [1, 0]}]
        old: Value = {"GroupId": group, "Topics": topics}
        player.call(1, OFFSET_FETCH, fetch, **(old if fetch < 8 else {"Groups": [old]}))
        player.call(1, DESCRIBE, min(version, 6), Groups=[group])
        player.call(1, LIST, min(version, 5))
        leave: Value = {"MemberId": member} if version < 3 else {"Members": [{"MemberId": member}]}
        player.call(1, LEAVE, min(version, 5), GroupId=group, **leave)
        player.call(1, DESCRIBE, min(version, 6), Groups=[group, "absent"])
        player.call(1, DELETE_GROUPS, min(version, 2), GroupsNames=[group])


def requests_that_are_refused(player: Player) -> None:
    """Groups that are not there, names that are empty, sessions that are too short or too long."""
    for version in (0, 5, 6, 7, 9):
        player.call(1, JOIN, version, **joining(""))
        player.call(1, JOIN, version, **joining("refused", SessionTimeoutMs=99))
        player.call(1, JOIN, version, **joining("refused", SessionTimeoutMs=60001))
        player.call(1, JOIN, version, **joining("absent", "nobody"))
        player.call(1, JOIN, version, **joining("refused", ProtocolType=""))
        player.call(1, JOIN, version, **joining("refused", Protocols=[]))
    for version in (0, 3, 5):
        for group in ("", "absent", "refused"):
            player.call(1, SYNC, version, **syncing(group, "nobody", 1))
    player.call(1, SYNC, 5, **syncing("absent", "nobody", 1, ProtocolType=None))
    player.call(1, SYNC, 5, **syncing("absent", "nobody", 1, ProtocolName=None))
    for group in ("", "absent", "refused"):
        beating(player, 1, group, "nobody", 1)
        leaving(player, 1, group, ("nobody", None), ("", "static"), ("", None))
        leaving(player, 1, group)
        player.call(1, LEAVE, 2, GroupId=group, MemberId="nobody")
        player.call(1, OFFSET_DELETE, 0, GroupId=group, Topics=[])
    player.call(1, DELETE_GROUPS, 2, GroupsNames=["absent", "", "absent"])
    describing(player, "", "absent", "refused")


def two_members(player: Player) -> None:
    """A second member comes; generations that are over; a member that leaves."""
    group = "two"
    leader, generation = stable(player, 1, group)
    describing(player, group)
    other = known(player, 2, group)
    describing(player, group)
    player.send(2, JOIN, 9, joining(group, other))
    time.sleep(0.1)
    describing(player, group)
    beating(player, 1, group, leader, generation)
    committing(player, group, commit_of("one", (0, 1, "")), member=leader, generation=generation)
    player.call(1, SYNC, 5, **syncing(group, leader, generation))
    player.call(1, JOIN, 9, **joining(group, leader))
    generation = int(player.recv(2)["GenerationId"])
    describing(player, group)
    # Between joining and assignment.
    beating(player, 1, group, leader, generation)
    beating(player, 2, group, other, generation - 1)
    committing(player, group, commit_of("one", (0, 2, "")), member=leader, generation=generation)
    player.call(1, JOIN, 9, **joining(group, leader))
    player.call(1, JOIN, 9, **joining(group, other))
    player.call(1, SYNC, 5, **syncing(group, other, generation, ProtocolName="roundrobin"))
    player.call(1, SYNC, 5, **syncing(group, other, generation, ProtocolType="connect"))
    player.call(1, SYNC, 5, **syncing(group, other, generation - 1))
    player.call(1, SYNC, 5, **syncing(group, "nobody", generation))
    player.send(2, SYNC, 5, syncing(group, other, generation, (other, b"not the leader")))
    time.sleep(0.1)
    player.call(1, SYNC, 5, **syncing(group, leader, generation, (leader, b"first"), ("nobody", b"nothing")))
    player.recv(2)
    player.call(2, SYNC, 5, **syncing(group, other, generation))
    describing(player, group)
    committing(player, group, commit_of("one", (0, 3, "")), member=leader, generation=generation)
    committing(player, group, commit_of("one", (0, 4, "")), member=leader, generation=generation - 1)
    committing(player, group, commit_of("one", (0, 5, "")), member="nobody", generation=generation)
    committing(player, group, commit_of("one", (0, 6, "")))
    committing(player, group, commit_of("one", (0, 7, "")), member=leader)
    fetching(player, group)
    changed(player, group, leader, other, generation)


def changed(player: Player, group: str, leader: str, other: str, generation: int) -> None:
    """Of two members first one says something else, then both leave."""
    # A follower that says the same gets the same; one that says something else begins a rebalance.
    player.call(2, JOIN, 9, **joining(group, other))
    player.call(3, JOIN, 9, **joining(group, ProtocolType="connect"))
    player.call(3, JOIN, 9, **joining(group, Protocols=protocols("roundrobin")))
    player.call(3, JOIN, 9, **joining(group, "nobody"))
    player.send(2, JOIN, 9, joining(group, other, Protocols=protocols("range", topics=("two",))))
    time.sleep(0.1)
    beating(player, 1, group, leader, generation)
    leaving(player, 1, group, (leader, None))
    answer = player.recv(2)
    generation = answer["GenerationId"]
    player.call(2, SYNC, 5, **syncing(group, other, generation, (other, b"all")))
    describing(player, group)
    leaving(player, 2, group, (other, None), (other, None))
    describing(player, group)
    beating(player, 2, group, other, generation)
    player.call(2, JOIN, 9, **joining(group, other))


def leader_again(player: Player) -> None:
    """A leader that joins a stable group begins a rebalance; one alone completes it at once."""
    group = "leader"
    leader, _ = stable(player, 1, group)
    answer = player.call(1, JOIN, 9, **joining(group, leader))
    player.call(1, JOIN, 9, **joining(group, leader, Protocols=protocols("range", topics=("one", "two"))))
    assert answer["Leader"] == leader
    leaving(player, 1, group, (leader, None))


def static_members(player: Player) -> None:
    """Members with an instance id come back without a rebalance, and fence who has their old id."""
    group, more = "static", {"GroupInstanceId": "a"}
    first, generation = stable(player, 1, group, **more)
    describing(player, group)
    beating(player, 1, group, first, generation, **more)
    beating(player, 1, group, first, generation, GroupInstanceId="b")
    beating(player, 1, group, "nobody", generation, **more)
    for version in (5, 8, 9):
        answer = player.call(1, JOIN, version, **joining(group, **more))
        again = answer["MemberId"]
        beating(player, 1, group, first, generation, **more)
        beating(player, 1, group, first, generation)
        committing(player, group, commit_of("one", (0, 1, "")), member=first, generation=generation)
        player.call(1, SYNC, 5, **syncing(group, again, generation, **more))
        player.call(1, JOIN, version, **joining(group, first, **more))
        first = again
    describing(player, group)
    # A second static member, and the first one comes back while it is being assigned.
    player.send(2, JOIN, 9, joining(group, GroupInstanceId="b"))
    time.sleep(0.1)
    player.call(1, JOIN, 9, **joining(group, first, **more))
    answer = player.recv(2)
    other, generation = answer["MemberId"], answer["GenerationId"]
    player.send(2, SYNC, 5, syncing(group, other, generation, GroupInstanceId="b"))
    time.sleep(0.1)
    player.send(3, JOIN, 9, joining(group, **more))
    player.recv(2)
    beating(player, 1, group, first, generation, **more)
    player.send(2, JOIN, 9, joining(group, other, GroupInstanceId="b"))
    answer = player.recv(2)
    third = player.recv(3)
    assert third["MemberId"] != first
    # It waits for its assignment, and another one takes its place.
    player.send(1, SYNC, 5, syncing(group, other, answer["GenerationId"], GroupInstanceId="b"))
    time.sleep(0.1)
    player.send(2, JOIN, 9, joining(group, GroupInstanceId="b"))
    player.recv(1)
    player.send(3, JOIN, 9, joining(group, third["MemberId"], **more))
    answer = player.recv(3)
    player.recv(2)
    leaving(player, 1, group, ("", "a"), ("", "absent"), ("nobody", "b"))
    beating(player, 1, group, third["MemberId"], answer["GenerationId"], **more)
    leaving(player, 1, group, ("", "b"))
    describing(player, group)


def commits(player: Player) -> None:
    """Consumers in no group; what is too long; partitions that are not there; several groups at once."""
    group = "commits"
    describing(player, group)
    topics = [{"Name": "one", "PartitionIndexes": [0, 1, 9]}, {"Name": "absent", "PartitionIndexes": [0]}]
    fetching(player, group, topics=topics)
    fetching(player, group)
    player.call(1, OFFSET_FETCH, 5, GroupId=group, Topics=None)
    committing(player, group, commit_of("absent", (0, 1, "")), commit_of("one", (2, 1, "")))
    describing(player, group)
    committing(player, group, commit_of("one", (0, 1, "m" * 4097), (1, 2, "m" * 4096)), commit_of("absent", (0, 3, "")))
    committing(player, group, commit_of("one", (0, 4, None)), commit_of("two", (0, -5, "\N{GREEK SMALL LETTER ALPHA}")))
    fetching(player, group)
    describing(player, group)
    committing(player, group, commit_of("one", (1, 7, "seven")), version=2)
    committing(player, "", commit_of("one", (0, 8, "no name")))
    fetching(player, group, "", "absent", topics=topics)
    for version in (2, 5):
        player.call(1, OFFSET_FETCH, version, GroupId=group, Topics=topics)
    for version in (7, 8, 9):
        committing(player, "absent", commit_of("one", (0, 1, "")), version=version, member="me", generation=3)
        committing(player, group, commit_of("one", (0, 1, "")), version=version, member="me", generation=3)
    committing(player, group, commit_of("one", (0, 1, "")), member="me")
    committing(player, group, commit_of("one", (0, 9, "m" * 4097)), member="me", generation=3)
    fetching(player, group)
    player.call(1, OFFSET_FETCH, 9, Groups=[])
    committing(player, group)


def deletions(player: Player) -> None:
    """Offsets and groups are deleted, unless somebody reads them."""
    group = "deletions"
    asked = [
        {"Name": "one", "Partitions": [{"PartitionIndex": number} for number in (0, 1, 2)]},
        {"Name": "two", "Partitions": [{"PartitionIndex": 0}]},
        {"Name": "absent", "Partitions": [{"PartitionIndex": 0}]},
    ]
    leader, generation = stable(player, 1, group)
    committing(
        player, group, commit_of("one", (0, 1, ""), (1, 1, "")), commit_of("two", (0, 2, "")), member=leader, generation=generation
    )
    player.call(1, OFFSET_DELETE, 0, GroupId=group, Topics=asked)
    fetching(player, group)
    player.call(1, DELETE_GROUPS, 2, GroupsNames=[group])
    leaving(player, 1, group, (leader, None))
    player.call(1, OFFSET_DELETE, 0, GroupId=group, Topics=asked[:1])
    fetching(player, group)
    committing(player, group, commit_of("one", (0, 3, "")))
    player.call(1, DELETE_GROUPS, 2, GroupsNames=[group, "absent"])
    fetching(player, group)
    describing(player, group)
    player.call(1, OFFSET_DELETE, 0, GroupId=group, Topics=asked)
    connect, _ = stable(player, 1, "connect", ProtocolType="connect")
    player.call(1, OFFSET_DELETE, 0, GroupId="connect", Topics=asked)
    leaving(player, 1, "connect", (connect, None))
    player.call(1, OFFSET_DELETE, 0, GroupId="connect", Topics=asked)


def lists(player: Player) -> None:
    """Groups by state and type."""
    leader, _ = stable(player, 1, "listed")
    for states, types in (
        ([], []),
        (["Stable"], []),
        (["empty ", "dead"], []),
        (["nonsense"], []),
        ([], ["Classic"]),
        ([], ["consumer"]),
        (["STABLE"], ["x"]),
    ):
        player.call(1, LIST, 5, StatesFilter=states, TypesFilter=types)
    leaving(player, 1, "listed", (leader, None))
    player.call(1, LIST, 4, StatesFilter=["Stable"])


def votes(player: Player) -> None:
    """The protocol that all know and most want; of equals the one that Java's hash map has first."""
    for number, (one, other) in enumerate(
        (
            (("range", "roundrobin"), ("roundrobin", "range")),
            (("sticky", "cooperative-sticky", "range"), ("cooperative-sticky", "range", "sticky")),
            (("a", "b"), ("b", "c")),
        )
    ):
        group = f"votes-{number}"
        leader = joined(player, 1, group, Protocols=protocols(*one))["MemberId"]
        second = known(player, 2, group, Protocols=protocols(*other))
        player.send(2, JOIN, 9, joining(group, second, Protocols=protocols(*other)))
        time.sleep(0.05)
        player.call(1, JOIN, 9, **joining(group, leader, Protocols=protocols(*one)))
        player.recv(2)
        leaving(player, 1, group, (leader, None), (second, None))


def sessions(player: Player) -> None:
    """Members that are silent are gone; an id that nobody joins with is, too."""
    group, brief = "sessions", {"SessionTimeoutMs": 600}
    leader, generation = stable(player, 1, group, **brief)
    time.sleep(0.3)
    beating(player, 1, group, leader, generation)
    time.sleep(0.4)
    committing(player, group, commit_of("one", (0, 1, "")), member=leader, generation=generation)
    time.sleep(0.4)
    beating(player, 1, group, leader, generation)
    time.sleep(1)
    beating(player, 1, group, leader, generation)
    describing(player, group)
    asked = known(player, 1, group, **brief)
    time.sleep(1)
    player.call(1, JOIN, 9, **joining(group, asked, **brief))
    # Of two the one that is silent.
    leader, other, generation = two(player, group, **brief)
    for _ in range(4):
        time.sleep(0.25)
        beating(player, 2, group, other, generation)
    describing(player, group)
    player.call(2, JOIN, 9, **joining(group, other, **brief))
    time.sleep(1)
    describing(player, group)


def slow_rebalance(player: Player) -> None:
    """Who does not join in time is out, and who does not ask for its assignment."""
    group, brief = "slow", {"RebalanceTimeoutMs": 500}
    leader, other, generation = two(player, group, **brief)
    player.send(2, JOIN, 9, joining(group, other, Protocols=protocols("range", topics=("two",)), **brief))
    answer = player.recv(2)
    assert answer["Leader"] == other
    beating(player, 1, group, leader, generation)
    player.call(2, SYNC, 5, **syncing(group, other, answer["GenerationId"], (other, b"all")))
    # The leader does not assign.
    third = known(player, 3, group, **brief)
    player.send(3, JOIN, 9, joining(group, third, **brief))
    time.sleep(0.05)
    player.call(2, JOIN, 9, **joining(group, other, **brief))
    generation = int(player.recv(3)["GenerationId"])
    player.call(3, SYNC, 5, **syncing(group, third, generation))
    beating(player, 2, group, other, generation)
    answer = player.call(3, JOIN, 9, **joining(group, third, **brief))
    assert answer["Leader"] == third
    leaving(player, 3, group, (third, None))


def full_group(player: Player) -> None:
    """A group of three takes no fourth."""
    group = "full"
    members = [str(joined(player, 1, group)["MemberId"])]
    for connection in (2, 3):
        member = known(player, connection, group)
        player.send(connection, JOIN, 9, joining(group, member))
        time.sleep(0.05)
        for number, earlier in enumerate(members[1:], 2):
            player.send(number, JOIN, 9, joining(group, earlier))
        player.call(1, JOIN, 9, **joining(group, members[0]))
        members.append(member)
        for number in range(2, len(members) + 1):
            player.recv(number)
    player.call(4, JOIN, 9, **joining(group))
    player.call(4, JOIN, 3, **joining(group))
    leaving(player, 1, group, *[(member, None) for member in members])
    describing(player, group)


def ids_that_are_given_back(player: Player) -> None:
    """A member leaves before it has joined."""
    group = "given-back"
    member = known(player, 1, group)
    describing(player, group)
    leaving(player, 1, group, (member, None))
    player.call(1, JOIN, 9, **joining(group, member))
    player.call(1, DELETE_GROUPS, 2, GroupsNames=[group])
    # A rebalance waits for it, until it leaves.
    leader, _ = stable(player, 1, group)
    member = known(player, 2, group)
    player.send(1, JOIN, 9, joining(group, leader))
    time.sleep(0.1)
    describing_elsewhere(player, group)
    player.call(2, LEAVE, 2, GroupId=group, MemberId=member)
    player.recv(1)
    leaving(player, 1, group, (leader, None))


def what_may_be_done(player: Player) -> None:
    """What a client may do with a group, of one that is there and one that is not."""
    leader, _ = stable(player, 1, "allowed")
    for version in (3, 5, 6):
        player.call(1, DESCRIBE, version, Groups=["allowed", "absent"], IncludeAuthorizedOperations=True)
    leaving(player, 1, "allowed", (leader, None))
    member = known(player, 1, "allowed")
    player.call(1, JOIN, 9, **joining("allowed", member, GroupInstanceId="a"))
    player.call(1, JOIN, 9, **joining("allowed", member))
    leaving(player, 1, "allowed", (member, None))


def rejoining_while_it_waits(player: Player) -> None:
    """A client gives a join up and asks again on another connection."""
    group = "again"
    leader, generation = stable(player, 1, group)
    other = known(player, 2, group)
    player.send(2, JOIN, 9, joining(group, other))
    time.sleep(0.1)
    player.drop(2)
    time.sleep(0.1)
    player.send(3, JOIN, 9, joining(group, other))
    time.sleep(0.1)
    beating(player, 1, group, leader, generation)
    player.call(1, JOIN, 9, **joining(group, leader))
    answer = player.recv(3)
    generation = answer["GenerationId"]
    player.send(3, SYNC, 5, syncing(group, other, generation))
    time.sleep(0.1)
    player.drop(3)
    player.send(2, SYNC, 5, syncing(group, other, generation))
    time.sleep(0.1)
    player.call(1, SYNC, 5, **syncing(group, leader, generation, (leader, b"first"), (other, b"second")))
    player.recv(2)
    leaving(player, 1, group, (leader, None), (other, None))


def describing_elsewhere(player: Player, group: str) -> None:
    player.call(3, DESCRIBE, 5, Groups=[group])


STORIES: tuple[Callable[[Player], None], ...] = (
    versions,
    requests_that_are_refused,
    two_members,
    leader_again,
    static_members,
    commits,
    deletions,
    lists,
    votes,
    sessions,
    slow_rebalance,
    full_group,
    ids_that_are_given_back,
    what_may_be_done,
    rejoining_while_it_waits,
)


def play(address: str) -> list[str]:
    """All stories, each with a line in front that names it."""
    player = Player(address)
    try:
        for story in STORIES:
            player.lines.append(f"# {story.__name__}")
            story(player)
    finally:
        player.close()
    return player.lines


def prepare(address: str) -> None:
    """Topics, and a coordinator that has loaded."""
    player = Player(address)
    topics = [{"Name": name, "NumPartitions": count, "ReplicationFactor": 1} for name, count in TOPICS.items()]
    answer = player.call(1, CREATE_TOPICS, 7, Topics=topics, timeoutMs=20000)
    assert not any(each["ErrorCode"] for each in answer["Topics"]), answer
    end = time.monotonic() + RESPONSE_SECONDS
    while True:
        found = player.call(1, FIND_COORDINATOR, 3, Key="group")
        answer = player.call(1, HEARTBEAT, 4, GroupId="absent", MemberId="", GenerationId=1)
        if found["ErrorCode"] == 0 and answer["ErrorCode"] == 25:
            break
        assert time.monotonic() < end, (found, answer)
        time.sleep(0.2)
    # A commit to a partition that the broker does not know yet is refused.
    while True:
        commit = player.call(
            1, OFFSET_COMMIT, 9, GroupId="prepared", Topics=[commit_of("one", (1, 1, "")), commit_of("two", (0, 1, ""))]
        )
        if not any(each["ErrorCode"] for topic in commit["Topics"] for each in topic["Partitions"]):
            break
        assert time.monotonic() < end, commit
        time.sleep(0.2)
    player.call(1, DELETE_GROUPS, 2, GroupsNames=["prepared"])
    player.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(VERSION, Path(folder) / "broker")
        broker.settings = SETTINGS
        broker.format()
        with broker.running():
            prepare(broker.address)
            lines = play(broker.address)
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
