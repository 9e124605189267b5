"""Where answers of a real 4.3.0 broker and of `serve` may differ, how, and why: the table of `docs/COMPATIBILITY.md`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from protocol import (
    API_VERSIONS,
    DELETE_GROUPS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    Value,
)
from random_requests import BROKER, COMMITTING, NAMES, READABLE, Asked

UNKNOWN_SERVER_ERROR = -1
UNSUPPORTED_VERSION = 35
CORRUPT_MESSAGE, COORDINATOR_LOAD_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, INVALID_REQUEST = 2, 14, 22, 25, 42
POLICY_VIOLATION, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FENCED_LEADER_EPOCH = 44, 53, 74
EMPTY, DEAD, GROUP_ID_NOT_FOUND = "Empty", "Dead", 69
GREATEST = -3
"""Asks for the record with the greatest timestamp."""
IDS = 12
"""From this version on Metadata takes ids of topics."""
OF_GROUPS, OF_TRANSACTIONS = 0, 1
"""Kinds of coordinators."""
NODE = 1
"""The broker's number, and so ours."""
NOTHING_ASKED = -(2**31)


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


def is_refused_whole(seen: Seen) -> bool:
    """A topic had neither a name nor an id, or no name in a version that has no ids: the broker tells nothing at all."""
    asked, by_id = seen.asked.value["Topics"] or (), seen.asked.version >= IDS
    nameless = [each for each in asked if each.get("Name", "") is None and not (by_id and each["TopicId"].int)]
    return bool(nameless) and not seen.around[0]["Brokers"] and seen.around[0]["ControllerId"] == -1


def begins_behind_the_newest(seen: Seen) -> bool:
    """Of a partition whose records were all deleted, of which the broker tells the newest one that lies in its file."""
    place = seen.around[-2]["Name"], seen.around[-1]["PartitionIndex"]
    asked = {(topic["Name"], each["PartitionIndex"]): each for topic in seen.asked.value["Topics"] for each in topic["Partitions"]}
    return place == ("g-deleted-prefix", 1) and asked[place]["Timestamp"] == GREATEST and seen.ours == -1 < seen.broker


def are_told_once(seen: Seen) -> bool:
    """Each partition here, where the broker tells some several times."""
    return len(seen.ours) < len(seen.broker) and seen.ours == list({str(each): each for each in seen.broker}.values())


def made_by_a_refused_commit(group: Value) -> bool:
    """It has nothing, and only commits make a group of that name."""
    return group["GroupId"] in COMMITTING and not group.get("ProtocolType") and group.get("GroupState", "Empty") == "Empty"


def lists_more(seen: Seen) -> bool:
    """Such groups are all that ours lack."""
    names = {each["GroupId"] for each in seen.ours}
    return [each for each in seen.broker if each["GroupId"] in names] == seen.ours and all(
        made_by_a_refused_commit(each) for each in seen.broker if each["GroupId"] not in names
    )


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
        METADATA,
        r"\.(Brokers|ClusterId|ControllerId|ClusterAuthorizedOperations|Topics\[\d+\]\.\w+)",
        "one topic without a name or an id, for which a broker refuses all; here only that one is unknown",
        is_refused_whole,
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
        FETCH,
        r"\.(ErrorCode|Responses)",
        "one topic without an id beside others, for which a broker fails; here only that one is unknown",
        lambda seen: (
            seen.asked.version > NAMES
            and any(not each["TopicId"].int for each in seen.asked.value["Topics"])
            and (seen.around[0]["ErrorCode"], seen.around[0]["Responses"]) == (UNKNOWN_SERVER_ERROR, [])
        ),
    ),
    Difference(
        FETCH,
        r"\.Responses",
        "in a session that a newer version began, with something to tell that this one has no field for: here no partition has the error too",
        lambda seen: (
            seen.around[0]["ErrorCode"] == UNSUPPORTED_VERSION
            and seen.ours == []
            and {each["ErrorCode"] for topic in seen.broker for each in topic["Partitions"]} == {UNSUPPORTED_VERSION}
        ),
    ),
    Difference(
        LIST_OFFSETS,
        r"\.Topics\[\d+\]\.Partitions\[\d+\]\.LeaderEpoch",
        "of the end: the epoch that the broker's start began",
        lambda seen: the_epoch_before(seen) and is_of_the_end(seen),
    ),
    Difference(
        LIST_OFFSETS,
        r"\.Topics\[\d+\]\.Partitions\[\d+\]\.(Timestamp|Offset|LeaderEpoch)",
        "of the greatest timestamp where all records are deleted: a broker tells a deleted one that is still in the file",
        begins_behind_the_newest,
    ),
    Difference(
        OFFSET_FETCH,
        r"(\.Groups\[\d+\])?\.Topics\[\d+\]\.Partitions",
        "a partition that is asked for twice is told as often, here once",
        are_told_once,
    ),
    Difference(LIST_GROUPS, r"\.Groups", "groups that a broker made for a commit that it refused for its metadata", lists_more),
    Difference(
        DESCRIBE_GROUPS,
        r"\.Groups\[\d+\]\.GroupState",
        "the same ones",
        lambda seen: seen.pair == (EMPTY, DEAD) and made_by_a_refused_commit(seen.around[-1]),
    ),
    Difference(
        DELETE_GROUPS,
        r"\.Results\[\d+\]\.ErrorCode",
        "which can be deleted",
        lambda seen: seen.pair == (0, GROUP_ID_NOT_FOUND) and seen.around[-1]["GroupId"] in COMMITTING,
    ),
    Difference(
        OFFSET_DELETE,
        r"\.(ErrorCode|Topics)",
        "or asked to delete offsets that they do not have",
        lambda seen: (
            seen.asked.value["GroupId"] in COMMITTING and seen.around[0]["ErrorCode"] == 0 and seen.ours in (GROUP_ID_NOT_FOUND, [])
        ),
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
