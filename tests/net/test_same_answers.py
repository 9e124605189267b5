"""A real 4.3.0 broker and `serve` over the same directories get the same requests: their answers differ only where a table says so."""

from __future__ import annotations

import base64
import functools
import os
import random
import re
import struct
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from golden import CLEAN_PARTITIONS
from known_differences import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GREATEST,
    NODE,
    OF_GROUPS,
    OF_TRANSACTIONS,
    POLICY_VIOLATION,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    differences,
    is_allowed,
)
from protocol import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ClosedError,
    Connection,
    Value,
    batches,
    only,
    request,
)
from random_requests import BROKER, READABLE, TOPIC, Asked, Epoch, Requests, Told
from served import GoldenBroker, Kafka

pytestmark = pytest.mark.proof

SEED = int(os.environ.get("OFFSETLOG_SEED", "20261126"))
REQUESTS = int(4000 * float(os.environ.get("OFFSETLOG_SCALE", "1")))
TRANSACTIONAL, CONTROL = 16, 32
CLOSED, UNANSWERED = "the connection ended", "no answer"
SEEN_ELSEWHERE = {SASL_HANDSHAKE, SASL_AUTHENTICATE}
"""Compared where there are users: test_same_sasl.py."""


# What brokers answer in the order of a hash table.
ORDER = {
    "ApiKeys": ("ApiKey",),
    "Topics": ("Name", "Topic", "TopicId"),
    "Partitions": ("PartitionIndex", "Partition"),
    "Brokers": ("NodeId", "BrokerId"),
    "Groups": ("GroupId",),
    "Responses": ("Topic", "Name", "TopicId"),
    "Configs": ("Name",),
    "Results": ("ResourceType", "ResourceName", "GroupId"),
    "Coordinators": ("Key",),
}


def ordered(value: Any, name: str = "") -> Any:
    """Lists that have no order in one that is always the same, and records as what a reader makes of them."""
    if isinstance(value, dict):
        found = {key: ordered(each, key) for key, each in value.items()}
        if value.get("Records") is not None and "AbortedTransactions" in value:
            # A broker's list reaches as far as its index is dense, and names transactions that the cleaner removed.
            found["AbortedTransactions"] = delivered(value["Records"], value["AbortedTransactions"] or [])
        return found
    if isinstance(value, list):
        items = [ordered(each) for each in (of_topics(value) if name in {"Topics", "Responses"} else value)]
        if name in ORDER and all(isinstance(each, dict) for each in items):
            items.sort(key=lambda each: [str(each.get(key)) for key in ORDER[name]])
        return items
    if name == "Records" and isinstance(value, bytes):
        # A broker sends a part of the next batch up to the limit, which every client throws away.
        return [data for _, _, data in batches(value)]
    return value


def of_topics(entries: list[Value]) -> list[Value]:
    """One entry a topic: whether it has several is decided by what stands between its partitions in a broker's tables."""
    found: dict[tuple[object, ...], Value] = {}
    for each in entries:
        key = tuple(each.get(name) for name in ORDER["Topics"])
        if key in found and "Partitions" in each:
            found[key] = {**each, "Partitions": found[key]["Partitions"] + each["Partitions"]}
        else:
            found[(*key, len(found)) if key in found else key] = each
    return list(found.values())


def delivered(records: bytes, aborted: list[Value]) -> list[int]:
    """First offsets of the batches that a reader of committed records delivers, by the consumer's rule."""
    waiting = sorted(aborted, key=lambda each: each["FirstOffset"])
    found, dropped = [], set()
    for base, last, data in batches(records):
        while waiting and waiting[0]["FirstOffset"] <= last:
            dropped.add(waiting.pop(0)["ProducerId"])
        (attributes,) = struct.unpack_from(">h", data, 21)
        (producer,) = struct.unpack_from(">q", data, 43)
        if attributes & CONTROL:
            # Any marker of a transaction that is dropped is its end.
            dropped.discard(producer)
        elif not (attributes & TRANSACTIONAL and producer in dropped):
            found.append(base)
    return found


class Asking:
    """One server, asked over connections that may end."""

    def __init__(self, kafka: Kafka) -> None:
        self._address = kafka.address
        self._connection = Connection(self._address)
        self._epochs = {
            f"{named}-{partition['PartitionIndex']}": partition["LeaderEpoch"]
            for topic in self._connection.ask(METADATA, 12, {"Topics": None})["Topics"]
            for partition in topic["Partitions"]
            for named in (topic["Name"], topic["TopicId"])
        }
        self._sessions: dict[int, tuple[int, int]] = {}

    def ask(self, asked: Asked) -> Value | str:
        """Its answer; fetch sessions have the numbers of the test in it."""
        try:
            value = asked.of(Told(self._epochs, self._sessions))
            if asked.api == PRODUCE and asked.value.get("Acks") == 0:
                self._connection.send(asked.api, asked.version, value)
                # What comes next is the answer to this.
                self._connection.ask(API_VERSIONS, 0)
                return UNANSWERED
            answer = self._connection.ask(asked.api, asked.version, value)
        except ClosedError:
            self._connection.close()
            self._connection = Connection(self._address)
            return CLOSED
        if answer.get("SessionId"):
            answer["SessionId"] = self._session(asked.session, answer["SessionId"], begins=value.get("SessionEpoch") == 0)
        return answer

    def _session(self, asked: int, told: int, *, begins: bool) -> int:
        """The number of the session that it said it is in."""
        number = next((number for number, (known, _) in self._sessions.items() if known == told), 0)
        if number:
            self._sessions[number] = told, self._sessions[number][1] + 1
        elif begins:
            number = asked
            self._sessions[number] = told, 1
        return number or -told

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def both(golden_broker: GoldenBroker, beside: Kafka) -> Iterator[tuple[Asking, Asking]]:
    with Connection(golden_broker.address) as wire:
        # It answers before it leads all of its partitions.
        places = [{"Name": golden.topic, "Partitions": [{"PartitionIndex": golden.partition, "Timestamp": -1}]} for golden in READABLE]
        end = time.monotonic() + 300
        while any(only(wire.ask(LIST_OFFSETS, 7, {"Topics": [each]}))["ErrorCode"] for each in places):
            assert time.monotonic() < end, "no leaders"
            time.sleep(0.1)
    pair = Asking(golden_broker), Asking(beside)
    yield pair
    for each in pair:
        each.close()


def topic_ids() -> dict[str, uuid.UUID]:
    """As the brokers' directories say."""
    found = {}
    for golden in CLEAN_PARTITIONS:
        file = golden.directory / "partition.metadata"
        if file.exists():
            text = file.read_text(encoding="ascii").rpartition("topic_id: ")[2].strip()
            found[golden.topic] = uuid.UUID(bytes=_from_base64(text))
    return found


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def announced(server: Asking) -> dict[int, tuple[int, int]]:
    answer = server.ask(Asked(API_VERSIONS, 0, {}))
    assert isinstance(answer, dict)
    return {each["ApiKey"]: (each["MinVersion"], each["MaxVersion"]) for each in answer["ApiKeys"]}


def drawn(versions: dict[int, tuple[int, int]], seed: int, count: int) -> Iterator[Asked]:
    """Requests of all that is announced, the reading ones most often."""
    requests = Requests(seed, topic_ids())
    dice = random.Random(seed)
    weights = {FETCH: 8, LIST_OFFSETS: 5, METADATA: 3, DESCRIBE_CONFIGS: 2}
    known = [api for api in requests.apis() if api in versions]
    every = [
        (api, version) for api in known for version in range(max(versions[api][0], request(api).versions.low), versions[api][1] + 1)
    ]
    # Each version once, then by chance.
    for api, version in every:
        yield requests.one(api, version)
    for _ in range(count):
        api = dice.choices(known, [weights.get(each, 1) for each in known])[0]
        yield requests.one(api, dice.choice([version for other, version in every if other == api]))


def test_all_that_is_announced_is_drawn(both: tuple[Asking, Asking]) -> None:
    """An API that this test does not know is a gap of the test."""
    unknown = set(announced(both[1])) - set(Requests(0, {}).apis())
    assert unknown <= SEEN_ELSEWHERE, {request(api).name for api in unknown}
    broker = announced(both[0])
    for api, (low, high) in announced(both[1]).items():
        assert broker[api][0] <= low, request(api).name
        assert high <= broker[api][1], request(api).name


def test_random_requests(both: tuple[Asking, Asking]) -> None:
    """Answers are compared field by field; what is not in the table fails."""
    print(f"OFFSETLOG_SEED={SEED}")
    broker, ours = both
    found: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    asked_of: Counter[str] = Counter()
    for asked in drawn(announced(ours), SEED, REQUESTS):
        asked_of[request(asked.api).name] += 1
        one, other = ordered(broker.ask(asked)), ordered(ours.ask(asked))
        for path, seen in differences(asked, one, other):
            if not is_allowed(path, seen):
                kind = request(asked.api).name, re.sub(r"\[\d+\]", "[]", path)
                found[kind] += 1
                examples.setdefault(kind, f"{asked}\n      broker: {_short(seen.broker)}\n      ours:   {_short(seen.ours)}")
    told = "\n".join(f"  {number} x {api}{path}: {examples[api, path]}" for (api, path), number in found.most_common())
    assert not found, f"seed {SEED}\n{told}"
    assert sum(asked_of.values()) > REQUESTS
    print(f"counted {sum(asked_of.values())} requests to serve and to a broker")
    print(dict(asked_of))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}..."


class Planted(NamedTuple):
    """A request, and a wrong value in our answer to it."""

    asked: Asked
    place: tuple[str | int, ...]
    """Keys and indexes from the answer to the value; lists have the order in which they are compared."""
    wrong: Any

    def __str__(self) -> str:
        return f"{request(self.asked.api).name} {'.'.join(map(str, self.place))}={self.wrong}"


PLAIN, LOOKED_UP = {"Name": "g-plain"}, {"Name": "g-plain", "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}
NEWEST = {"Name": "g-deleted-prefix", "Partitions": [{"PartitionIndex": 0, "Timestamp": GREATEST}]}
IN_PLAIN, FIRST = ("Topics", 0, "Partitions", 0), ("Responses", 0, "Partitions", 0)
FENCED = {
    "Topic": "g-plain",
    "Partitions": [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1, "CurrentLeaderEpoch": Epoch.BELOW}],
}
SESSION = {
    "SessionEpoch": 0,
    "MaxBytes": 1,
    "Topics": [{"Topic": "g-plain", "Partitions": [{"Partition": 0, "PartitionMaxBytes": 1}]}],
}
REFUSED = {"Acks": 1, "TimeoutMs": 1000, "TopicData": [{"Name": "g-plain", "PartitionData": [{"Index": 0, "Records": bytes(80)}]}]}
OF_PLAIN = {"Resources": [{"ResourceType": TOPIC, "ResourceName": "g-plain", "ConfigurationKeys": None}]}
OF_NODE = {"Resources": [{"ResourceType": BROKER, "ResourceName": str(NODE), "ConfigurationKeys": None}]}
PLAIN_ON_DISKS = {"Topics": [{"Topic": "g-plain", "Partitions": [0]}]}
WITHOUT, WITH = ({"TransactionalId": given, "TransactionTimeoutMs": 1000} for given in (None, "t"))
PLANTED = (
    Planted(Asked(INIT_PRODUCER_ID, 4, WITHOUT), ("ErrorCode",), POLICY_VIOLATION),
    Planted(Asked(INIT_PRODUCER_ID, 4, WITHOUT), ("ProducerId",), -1),
    Planted(Asked(INIT_PRODUCER_ID, 4, WITHOUT), ("ProducerEpoch",), 1),
    Planted(Asked(INIT_PRODUCER_ID, 4, WITH), ("ErrorCode",), TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    Planted(Asked(INIT_PRODUCER_ID, 4, WITH), ("ProducerId",), 7),
    Planted(Asked(FETCH, 16, {"MaxBytes": 1, "Topics": [FENCED]}), (*FIRST, "ErrorCode"), 0),
    Planted(Asked(FETCH, 16, {"MaxBytes": 1, "Topics": [FENCED]}), (*FIRST, "CurrentLeader"), {"LeaderId": 7, "LeaderEpoch": 5}),
    Planted(Asked(FETCH, 12, SESSION, 10_001), ("SessionId",), 0),
    Planted(Asked(FETCH, 12, SESSION, 10_002), ("SessionId",), 10_001),
    Planted(Asked(LIST_GROUPS, 4, {}), ("Groups",), []),
    Planted(Asked(DESCRIBE_GROUPS, 5, {"Groups": ["g-group-1"]}), ("Groups", 0, "GroupState"), "Dead"),
    Planted(Asked(METADATA, 9, {"Topics": [PLAIN]}), (*IN_PLAIN, "LeaderEpoch"), 0),
    Planted(Asked(METADATA, 9, {"Topics": [PLAIN]}), (*IN_PLAIN, "LeaderId"), 7),
    Planted(Asked(METADATA, 9, {"Topics": [PLAIN]}), (*IN_PLAIN, "ReplicaNodes"), [7]),
    Planted(Asked(LIST_OFFSETS, 5, {"Topics": [LOOKED_UP]}), (*IN_PLAIN, "LeaderEpoch"), -1),
    Planted(Asked(LIST_OFFSETS, 7, {"Topics": [NEWEST]}), (*IN_PLAIN, "Offset"), -1),
    Planted(Asked(PRODUCE, 8, REFUSED), ("Responses", 0, "PartitionResponses", 0, "ErrorCode"), 0),
    Planted(Asked(PRODUCE, 8, REFUSED), ("Responses", 0, "PartitionResponses", 0, "BaseOffset"), 5),
    Planted(Asked(FIND_COORDINATOR, 3, {"Key": "g", "KeyType": OF_GROUPS}), ("NodeId",), -1),
    Planted(Asked(FIND_COORDINATOR, 3, {"Key": "g", "KeyType": OF_TRANSACTIONS}), ("ErrorCode",), 15),
    Planted(Asked(API_VERSIONS, 3, {"ClientSoftwareName": "tests", "ClientSoftwareVersion": "1"}), ("ApiKeys", 0, "MaxVersion"), 99),
    Planted(Asked(DESCRIBE_CONFIGS, 4, OF_PLAIN), ("Results", 0, "Configs"), []),
    Planted(Asked(DESCRIBE_CONFIGS, 4, OF_NODE), ("Results", 0, "Configs", 0, "Value"), "x"),
    Planted(Asked(DESCRIBE_LOG_DIRS, 4, PLAIN_ON_DISKS), ("Results", 0, "Topics", 0, "Partitions", 0, "PartitionSize"), 1),
)


def settled(server: Asking, asked: Asked) -> Value | str:
    """Its answer, once it has what it fetches at the first request: a broker's first block of producer ids comes from the controller."""
    end = time.monotonic() + 60
    while isinstance(answer := server.ask(asked), dict) and answer.get("ErrorCode") == COORDINATOR_LOAD_IN_PROGRESS:
        assert time.monotonic() < end, answer
        time.sleep(0.05)
    return answer


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_a_wrong_value_is_found(both: tuple[Asking, Asking], planted: Planted) -> None:
    """An entry of the table that is too wide hides errors."""
    broker, ours = (ordered(settled(server, planted.asked)) for server in both)
    assert all(is_allowed(path, seen) for path, seen in differences(planted.asked, broker, ours))
    *way, last = planted.place
    inmost = functools.reduce(lambda value, key: value[key], way, ours)
    inmost[last] = planted.wrong
    found = [path for path, seen in differences(planted.asked, broker, ours) if not is_allowed(path, seen)]
    assert len(found) == 1
