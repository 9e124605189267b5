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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from golden import CLEAN_PARTITIONS
from protocol import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
    ClosedError,
    Connection,
    Value,
    batches,
    only,
    request,
)
from random_requests import BROKER, READABLE, TOPIC, Asked, Epoch, Requests
from served import GoldenBroker, Kafka

pytestmark = pytest.mark.proof

SEED = int(os.environ.get("OFFSETLOG_SEED", "20261126"))
REQUESTS = int(4000 * float(os.environ.get("OFFSETLOG_SCALE", "1")))
TRANSACTIONAL, CONTROL = 16, 32
CLOSED = "the connection ended"
CORRUPT_MESSAGE, COORDINATOR_LOAD_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, INVALID_REQUEST = 2, 14, 22, 25, 42
POLICY_VIOLATION, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FENCED_LEADER_EPOCH = 44, 53, 74
OF_GROUPS, OF_TRANSACTIONS = 0, 1
"""Kinds of coordinators."""
NODE = 1
"""The broker's number, and so ours."""
NOTHING_ASKED = -(2**31)


SEEN_ELSEWHERE = {17, 36}
"""Without SASL nothing is negotiated; tested where it is."""


class Seen(NamedTuple):
    """A place where two answers differ."""

    asked: Asked
    broker: Any
    ours: Any
    around: tuple[Value, ...]
    """The broker's structures that the place is in, the inmost one last."""

    @property
    def pair(self) -> tuple[Any, Any]:
        """The broker's value and ours."""
        return self.broker, self.ours


Allowed = Callable[[Seen], bool]
"""Whether the broker's value and ours may differ so, at that place."""


class Difference(NamedTuple):
    """A place in answers that may differ, how, and why."""

    api: int | None
    """Of this API, or of all."""
    path: str
    """A regular expression for the whole path of the field."""
    reason: str
    allows: Allowed


def the_epoch_before(seen: Seen) -> bool:
    """The broker began one epoch when it started, which was once; ours is the last one of the dead leader."""
    return bool(seen.broker == seen.ours + 1 and seen.ours >= 0)


def of_a_transaction(seen: Seen) -> bool:
    """A producer with a transactional id asks."""
    return seen.asked.value.get("TransactionalId") is not None


def has_no_ids_yet(seen: Seen) -> bool:
    """A broker that still asks the controller for producer ids says so, and the client asks again."""
    return not of_a_transaction(seen) and seen.around[-1]["ErrorCode"] == COORDINATOR_LOAD_IN_PROGRESS


def of_transactions(seen: Seen) -> bool:
    """Their coordinator was asked for."""
    return bool(seen.asked.value.get("KeyType", 0) == OF_TRANSACTIONS)


def announces_less(seen: Seen) -> bool:
    """All that we announce is within what the broker does."""
    broker = {each["ApiKey"]: range(each["MinVersion"], each["MaxVersion"] + 1) for each in seen.broker}
    return bool(seen.ours) and all(
        each["MinVersion"] in broker[each["ApiKey"]] and each["MaxVersion"] in broker[each["ApiKey"]] for each in seen.ours
    )


def tells_less(seen: Seen) -> bool:
    """Of a broker, not of a topic, and nothing that the broker does not tell too."""
    told = {each["Name"]: each for each in seen.broker}
    return seen.around[-1]["ResourceType"] == BROKER and all(
        each["Name"] in told and each["Value"] == told[each["Name"]]["Value"] for each in seen.ours
    )


def is_of_the_end(seen: Seen) -> bool:
    """An end of that partition was found, for one of the isolation levels."""
    name = f"{seen.around[-2]['Name']}-{seen.around[-1]['PartitionIndex']}"
    return any(seen.around[-1]["Offset"] in {each.end, each.last_stable_offset} for each in READABLE if each.name == name)


def refuses_a_transaction(seen: Seen) -> bool:
    """The broker gives it an id, or has none to give yet, or refuses an empty name."""
    if seen.asked.value.get("TransactionalId") == "":
        return seen.pair == (INVALID_REQUEST, POLICY_VIOLATION)
    return of_a_transaction(seen) and seen.broker in {0, COORDINATOR_LOAD_IN_PROGRESS} and seen.ours == POLICY_VIOLATION


DIFFERENCES = (
    Difference(
        None,
        r"(\.Brokers\[\d+\]|\.Coordinators\[\d+\]|)\.Port",
        "each listens where it does",
        lambda seen: 0 < seen.broker != seen.ours > 0,
    ),
    Difference(API_VERSIONS, r"\.ApiKeys", "we serve less", announces_less),
    Difference(
        API_VERSIONS,
        r"\.(SupportedFeatures|FinalizedFeatures|FinalizedFeaturesEpoch)",
        "of a cluster, which we are not",
        lambda seen: bool(seen.broker) and seen.ours is None,
    ),
    Difference(
        METADATA,
        r"\.Topics\[\d+\]\.Partitions\[\d+\]\.LeaderEpoch",
        "the broker became leader anew at its start, we are no new leader",
        the_epoch_before,
    ),
    Difference(
        METADATA,
        r"\.Topics\[\d+\]\.TopicAuthorizedOperations",
        "of topics that do not exist, of which a broker tells what it would allow",
        lambda seen: seen.ours == NOTHING_ASKED and seen.broker > 0 and seen.around[-1]["ErrorCode"] != 0,
    ),
    Difference(
        FETCH,
        r"\.Responses\[\d+\]\.Partitions\[\d+\]\.CurrentLeader",
        "to a fetch with an old epoch a broker also tells the new one; of us clients ask for the metadata",
        lambda seen: (
            seen.around[-1]["ErrorCode"] == FENCED_LEADER_EPOCH
            and seen.ours is None
            and seen.broker["LeaderId"] == NODE
            and seen.broker["LeaderEpoch"] > 0
        ),
    ),
    Difference(
        FETCH,
        r"\.NodeEndpoints",
        "where that leader listens",
        lambda seen: seen.ours is None and [each["NodeId"] for each in seen.broker] == [NODE],
    ),
    Difference(
        LIST_OFFSETS,
        r"\.Topics\[\d+\]\.Partitions\[\d+\]\.LeaderEpoch",
        "of the end: the epoch that the broker's start began",
        lambda seen: the_epoch_before(seen) and is_of_the_end(seen),
    ),
    Difference(
        OFFSET_COMMIT,
        r"\.Topics\[\d+\]\.Partitions\[\d+\]\.ErrorCode",
        "a broker makes a group, which it does not list yet, for a commit that it refuses for its metadata: then its members are unknown",
        lambda seen: seen.pair == (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION),
    ),
    Difference(
        PRODUCE,
        r"\.Responses\[\d+\]\.PartitionResponses\[\d+\]\.ErrorCode",
        "read-only: every record is refused by policy, also what a broker refuses because no batch is so small",
        lambda seen: seen.pair == (CORRUPT_MESSAGE, POLICY_VIOLATION),
    ),
    Difference(
        PRODUCE,
        r"\.Responses\[\d+\]\.PartitionResponses\[\d+\]\.ErrorMessage",
        "which is said",
        lambda seen: seen.around[-1]["ErrorCode"] == CORRUPT_MESSAGE and "nothing can be produced" in seen.ours,
    ),
    Difference(
        FIND_COORDINATOR,
        r"(\.Coordinators\[\d+\]|)\.ErrorCode",
        "nobody coordinates transactions",
        lambda seen: of_transactions(seen) and seen.pair == (0, TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ),
    Difference(
        FIND_COORDINATOR,
        r"(\.Coordinators\[\d+\]|)\.(NodeId|Host|Port)",
        "so it is nowhere",
        lambda seen: of_transactions(seen) and seen.around[-1]["ErrorCode"] == 0 and seen.ours in {-1, ""},
    ),
    Difference(
        FIND_COORDINATOR,
        r"(\.Coordinators\[\d+\]|)\.ErrorMessage",
        "which is said, as what is said of kinds of coordinators that there are not",
        lambda seen: (
            seen.asked.value.get("KeyType", 0) != OF_GROUPS
            and seen.ours in {"", "Transactional Id authorization failed.", "This server knows coordinators of groups only."}
        ),
    ),
    Difference(
        DESCRIBE_LOG_DIRS,
        r"\.Results\[\d+\]\.LogDir",
        "the broker has copies",
        lambda seen: Path(seen.broker).name == Path(seen.ours).name,
    ),
    Difference(
        DESCRIBE_LOG_DIRS,
        r"\.Results\[\d+\]\.(TotalBytes|UsableBytes)",
        "we do not tell how large a disk is",
        lambda seen: seen.broker > 0 and seen.ours == -1,
    ),
    Difference(
        DESCRIBE_LOG_DIRS,
        r"\.Results\[\d+\]\.Topics\[\d+\]\.Partitions\[\d+\]\.PartitionSize",
        "of the topics that the broker itself goes on writing",
        lambda seen: seen.around[-2]["Name"] in {"__consumer_offsets", "__transaction_state"} and seen.broker > seen.ours > 0,
    ),
    Difference(DESCRIBE_CONFIGS, r"\.Results\[\d+\]\.Configs", "of a broker: only what server.properties gives", tells_less),
    Difference(
        INIT_PRODUCER_ID,
        r"\.ErrorCode",
        "transactions are refused",
        refuses_a_transaction,
    ),
    Difference(INIT_PRODUCER_ID, r"\.ErrorCode", "ids are there at once", lambda seen: has_no_ids_yet(seen) and seen.ours == 0),
    Difference(
        INIT_PRODUCER_ID,
        r"\.(ProducerId|ProducerEpoch)",
        "a transaction that is refused has none",
        lambda seen: of_a_transaction(seen) and seen.around[-1]["ErrorCode"] == 0 and seen.broker >= 0 and seen.ours == -1,
    ),
    Difference(
        INIT_PRODUCER_ID,
        r"\.ProducerId",
        "ids are drawn, where the broker has any",
        lambda seen: not of_a_transaction(seen) and seen.ours >= 0 and (seen.broker >= 0 or has_no_ids_yet(seen)),
    ),
    Difference(
        INIT_PRODUCER_ID,
        r"\.ProducerEpoch",
        "of no id",
        lambda seen: has_no_ids_yet(seen) and seen.pair == (-1, 0),
    ),
)

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
        items = [ordered(each) for each in value]
        if name in ORDER and all(isinstance(each, dict) for each in items):
            items.sort(key=lambda each: [str(each.get(key)) for key in ORDER[name]])
        return items
    if name == "Records" and isinstance(value, bytes):
        # A broker sends a part of the next batch up to the limit, which every client throws away.
        return [data for _, _, data in batches(value)]
    return value


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


def differences(asked: Asked, one: Any, other: Any, path: str = "", around: tuple[Value, ...] = ()) -> Iterator[tuple[str, Seen]]:
    """Path and both values wherever they differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(asked, one.get(key), other.get(key), f"{path}.{key}", (*around, one))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(asked, left, right, f"{path}[{index}]", around)
    elif one != other:
        yield path, Seen(asked, one, other, around)


def is_allowed(path: str, seen: Seen) -> bool:
    """Whether an entry of the table is about this difference."""
    return any(each.api in {None, seen.asked.api} and re.fullmatch(each.path, path) and each.allows(seen) for each in DIFFERENCES)


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

    def ask(self, asked: Asked) -> Value | str:
        try:
            return self._connection.ask(asked.api, asked.version, asked.with_epochs(self._epochs))
        except ClosedError:
            self._connection.close()
            self._connection = Connection(self._address)
            return CLOSED

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
IN_PLAIN, FIRST = ("Topics", 0, "Partitions", 0), ("Responses", 0, "Partitions", 0)
FENCED = {
    "Topic": "g-plain",
    "Partitions": [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1, "CurrentLeaderEpoch": Epoch.BELOW}],
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
    Planted(Asked(METADATA, 9, {"Topics": [PLAIN]}), (*IN_PLAIN, "LeaderEpoch"), 0),
    Planted(Asked(METADATA, 9, {"Topics": [PLAIN]}), (*IN_PLAIN, "LeaderId"), 7),
    Planted(Asked(METADATA, 9, {"Topics": [PLAIN]}), (*IN_PLAIN, "ReplicaNodes"), [7]),
    Planted(Asked(LIST_OFFSETS, 5, {"Topics": [LOOKED_UP]}), (*IN_PLAIN, "LeaderEpoch"), -1),
    Planted(Asked(PRODUCE, 8, REFUSED), ("Responses", 0, "PartitionResponses", 0, "ErrorCode"), 0),
    Planted(Asked(PRODUCE, 8, REFUSED), ("Responses", 0, "PartitionResponses", 0, "BaseOffset"), 5),
    Planted(Asked(FIND_COORDINATOR, 3, {"Key": "g", "KeyType": OF_GROUPS}), ("NodeId",), -1),
    Planted(Asked(FIND_COORDINATOR, 3, {"Key": "g", "KeyType": OF_TRANSACTIONS}), ("ErrorCode",), 15),
    Planted(Asked(API_VERSIONS, 3, {"ClientSoftwareName": "tests", "ClientSoftwareVersion": "1"}), ("ApiKeys", 0, "MaxVersion"), 99),
    Planted(Asked(DESCRIBE_CONFIGS, 4, OF_PLAIN), ("Results", 0, "Configs"), []),
    Planted(Asked(DESCRIBE_CONFIGS, 4, OF_NODE), ("Results", 0, "Configs", 0, "Value"), "x"),
    Planted(Asked(DESCRIBE_LOG_DIRS, 4, PLAIN_ON_DISKS), ("Results", 0, "Topics", 0, "Partitions", 0, "PartitionSize"), 1),
)


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_a_wrong_value_is_found(both: tuple[Asking, Asking], planted: Planted) -> None:
    """An entry of the table that is too wide hides errors."""
    broker, ours = (ordered(server.ask(planted.asked)) for server in both)
    assert all(is_allowed(path, seen) for path, seen in differences(planted.asked, broker, ours))
    *way, last = planted.place
    inmost = functools.reduce(lambda value, key: value[key], way, ours)
    inmost[last] = planted.wrong
    found = [path for path, seen in differences(planted.asked, broker, ours) if not is_allowed(path, seen)]
    assert len(found) == 1
