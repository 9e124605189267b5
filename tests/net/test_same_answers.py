"""A real 4.3.0 broker and `serve` over the same directories get the same requests: their answers differ only where a table says so."""

from __future__ import annotations

import base64
import os
import random
import re
import struct
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
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
from random_requests import READABLE, TOPIC, Asked, Requests
from served import GoldenBroker, Kafka

pytestmark = pytest.mark.proof

SEED = int(os.environ.get("OFFSETLOG_SEED", "20261126"))
REQUESTS = int(4000 * float(os.environ.get("OFFSETLOG_SCALE", "1")))
TRANSACTIONAL, CONTROL = 16, 32
CLOSED = "the connection ended"
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, POLICY_VIOLATION = 22, 25, 44
NOTHING_ASKED = -(2**31)


SEEN_ELSEWHERE = {17, 36}
"""Without SASL nothing is negotiated; tested where it is."""


Allowed = Callable[[Asked, Any, Any], bool]
"""Whether the broker's value and ours may differ so, for that request."""


class Difference(NamedTuple):
    """A place in answers that may differ, how, and why."""

    api: int | None
    """Of this API, or of all."""
    path: str
    """A regular expression for the whole path of the field."""
    reason: str
    allows: Allowed


def of_some_node(_: Asked, broker: Any, ours: Any) -> bool:
    """Both name a broker, or both none."""
    return isinstance(broker, list | dict) or (broker >= 0) == (ours >= 0)


def an_epoch_later(_: Asked, broker: int, ours: int) -> bool:
    """The broker began an epoch when it started; ours is the last one of the dead leader, or none is known."""
    return broker > ours >= -1


def of_no_group(asked: Asked, _: Any, __: Any) -> bool:
    """A coordinator of anything but groups was asked for."""
    return bool(asked.value.get("KeyType", 0) != 0)


def of_a_transaction(asked: Asked, broker: Any, ours: Any) -> bool:
    """A transactional id was given; without one both give some id, or the broker has none to give yet."""
    return asked.value.get("TransactionalId") is not None or ours >= 0 or broker == -1


def of_a_broker(asked: Asked, _: Any, __: Any) -> bool:
    """Its settings were asked for."""
    return any(each["ResourceType"] != TOPIC for each in asked.value["Resources"])


def anything(_: Asked, __: Any, ___: Any) -> bool:
    """Nothing can be said of it."""
    return True


DIFFERENCES = (
    Difference(None, r".*(Host|Port)", "each listens where it does", lambda _, broker, ours: type(broker) is type(ours)),
    Difference(None, r".*ThrottleTimeMs", "we do not throttle", lambda _, __, ours: ours == 0),
    Difference(
        None, r".*(NodeEndpoints|NodeId|BrokerId|ControllerId|LeaderId|Leader).*", "one broker each, of another number", of_some_node
    ),
    Difference(None, r".*(ReplicaNodes|IsrNodes|OfflineReplicas|EligibleLeaderReplicas|LastKnownElr).*", "the same", of_some_node),
    Difference(
        API_VERSIONS,
        r"\.(ApiKeys|SupportedFeatures|FinalizedFeatures|FinalizedFeaturesEpoch|ZkMigrationReady).*",
        "we serve less; what we announce, the test above compares",
        anything,
    ),
    Difference(METADATA, r".*LeaderEpoch", "the broker became leader anew at its start, we are no new leader", an_epoch_later),
    Difference(
        METADATA,
        r".*TopicAuthorizedOperations",
        "of topics that do not exist, of which a broker tells what it would allow",
        lambda _, __, ours: ours == NOTHING_ASKED,
    ),
    Difference(FETCH, r".*SessionId", "drawn by chance", lambda _, broker, ours: (broker == 0) == (ours == 0)),
    Difference(FETCH, r".*CurrentLeader.*", "the epoch of the line before, and the broker's number", anything),
    Difference(
        LIST_OFFSETS,
        r"\.Topics\[.*\]\.Partitions\[.*\]\.LeaderEpoch",
        "of the end: the epoch that the broker's start began",
        an_epoch_later,
    ),
    Difference(
        OFFSET_COMMIT,
        r".*ErrorCode",
        "a broker makes a group, which it does not list yet, for a commit that it refuses for its metadata: then its members are unknown",
        lambda _, broker, ours: (broker, ours) == (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION),
    ),
    Difference(
        PRODUCE,
        r".*ErrorCode",
        "read-only: every record is refused by policy",
        lambda _, __, ours: ours == POLICY_VIOLATION,
    ),
    Difference(PRODUCE, r".*(ErrorMessage|RecordErrors|LogStartOffset|BaseOffset|LogAppendTimeMs)", "what goes with it", anything),
    Difference(FIND_COORDINATOR, r".*(ErrorCode|ErrorMessage|NodeId|Host|Port)", "nobody coordinates transactions", of_no_group),
    Difference(
        DESCRIBE_LOG_DIRS, r".*(LogDir|TotalBytes|UsableBytes)", "each has its own disk", lambda _, broker, ours: bool(broker and ours)
    ),
    Difference(
        DESCRIBE_LOG_DIRS,
        r".*PartitionSize",
        "the broker's own groups write, and it preallocates",
        lambda _, broker, ours: broker > ours >= 0,
    ),
    Difference(DESCRIBE_CONFIGS, r"\.Results\[\d+\]\.Configs", "of a broker: only what server.properties gives", of_a_broker),
    Difference(
        INIT_PRODUCER_ID, r"\.(ProducerId|ProducerEpoch|ErrorCode)", "ids are drawn; transactions are refused", of_a_transaction
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


def differences(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path and both values wherever they differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif one != other:
        yield path, one, other


def is_allowed(asked: Asked, path: str, broker: Any, ours: Any) -> bool:
    """Whether an entry of the table is about this difference."""
    return any(
        each.api in {None, asked.api} and re.fullmatch(each.path, path) and each.allows(asked, broker, ours) for each in DIFFERENCES
    )


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
        for path, left, right in differences(one, other):
            if not is_allowed(asked, path, left, right):
                kind = request(asked.api).name, re.sub(r"\[\d+\]", "[]", path)
                found[kind] += 1
                examples.setdefault(kind, f"{asked}\n      broker: {_short(left)}\n      ours:   {_short(right)}")
    told = "\n".join(f"  {number} x {api}{path}: {examples[api, path]}" for (api, path), number in found.most_common())
    assert not found, f"seed {SEED}\n{told}"
    assert sum(asked_of.values()) > REQUESTS
    print(f"counted {sum(asked_of.values())} requests to serve and to a broker")
    print(dict(asked_of))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}..."
