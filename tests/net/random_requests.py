"""Random requests of every API and version, valid and not, about the golden directories; the same ones for the same seed."""

from __future__ import annotations

import enum
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from golden import CLEAN_PARTITIONS, Golden
from protocol import (
    API_VERSIONS,
    DELETE_GROUPS,
    DESCRIBE_ACLS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    NO_UUID,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SYNC_GROUP,
    Field,
    Value,
    request,
)

READABLE = [golden for golden in CLEAN_PARTITIONS if not golden.topic.startswith("__")]
GROUPS = ("g-group-1", "g-group-2", "g-group-3", "nobody", "")
COMMITTING = ("random-a", "random-b", "")
"""Those that commits alone make."""
TOPIC, BROKER, NO_RESOURCE = 2, 4, 7
NAMES = 12
"""Until this version a Fetch names topics."""
SESSIONS = 7
"""From this version on it has sessions."""


class Epoch(enum.Enum):
    """A leader epoch beside the one that a server told: each server has its own, since a broker leads anew with each start."""

    NONE = "none"
    SAME = "same"
    BELOW = "below"
    ABOVE = "above"

    def of(self, told: int) -> int:
        """The number for a server that told this one."""
        return {Epoch.NONE: -1, Epoch.SAME: told, Epoch.BELOW: max(told - 1, 0), Epoch.ABOVE: told + 1}[self]


class InSession(NamedTuple):
    """What a Fetch says of its session, which each server numbers in its own way."""

    is_epoch: bool
    number: int
    """Which of the sessions that were begun."""
    shift: int = 0
    """How far from the right id or epoch."""


class Told(NamedTuple):
    """What a server told, and requests say again."""

    epochs: Mapping[str, int]
    """Leader epochs of `topic-partition`."""
    sessions: Mapping[int, tuple[int, int]]
    """Id and next epoch of the fetch sessions."""


class Asked(NamedTuple):
    """One request."""

    api: int
    version: int
    value: Value
    session: int = 0
    """The number of the fetch session that it begins or goes on with."""

    def of(self, told: Told) -> Value:
        """The request for a server that told this."""
        found: Value = _told(self.value, told, "")
        return found

    def __str__(self) -> str:
        return f"{request(self.api).name} {self.version} {self.value}"


class Session(NamedTuple):
    """A fetch session that was begun, and perhaps ended."""

    number: int
    by_id: bool
    topics: list[Value]
    """What was asked for in it."""


class Requests:
    """Draws requests from a seed."""

    def __init__(self, seed: int, topic_ids: dict[str, uuid.UUID]) -> None:
        self._random = random.Random(seed)
        self._ids = topic_ids
        self._sessions: list[Session] = []

    def one(self, api: int, version: int) -> Asked:
        """A request of this API and version."""
        value = self._kinds()[api](version)
        session = 0
        if api == FETCH and version >= SESSIONS and self._random.random() < 0.5:
            session = self._session(value, version)
        return Asked(api, version, _known(request(api).fields, value, version), session)

    def _kinds(self) -> dict[int, Callable[[int], Value]]:
        return {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            METADATA: self._metadata,
            OFFSET_COMMIT: self._offset_commit,
            OFFSET_FETCH: self._offset_fetch,
            FIND_COORDINATOR: self._find_coordinator,
            JOIN_GROUP: self._join_group,
            HEARTBEAT: self._of_a_member,
            LEAVE_GROUP: self._of_a_member,
            SYNC_GROUP: self._of_a_member,
            DESCRIBE_GROUPS: lambda _: {"Groups": self._some(GROUPS), "IncludeAuthorizedOperations": self._seldom()},
            LIST_GROUPS: lambda _: {
                "StatesFilter": self._some(("Empty", "Stable", "Dead")),
                "TypesFilter": self._some(("classic", "consumer")),
            },
            API_VERSIONS: lambda _: {
                "ClientSoftwareName": self._pick(("tests", "", "a b", "x" * 300)),
                "ClientSoftwareVersion": self._pick(("1", "1.0-x", "?")),
            },
            INIT_PRODUCER_ID: lambda _: {
                "TransactionalId": self._pick((None, "t", "")),
                "TransactionTimeoutMs": self._pick((1000, 60_000)),
            },
            OFFSET_FOR_LEADER_EPOCH: self._leader_epochs,
            DESCRIBE_CONFIGS: self._describe_configs,
            DELETE_GROUPS: lambda _: {"GroupsNames": self._some(("nobody", "nobody-else", ""))},
            OFFSET_DELETE: self._offset_delete,
            DESCRIBE_ACLS: lambda _: {
                "ResourceTypeFilter": self._pick((1, 2, 3)),
                "ResourceNameFilter": self._pick((None, "g-plain")),
                "PatternTypeFilter": self._pick((1, 3)),
                "PrincipalFilter": None,
                "HostFilter": None,
                "Operation": 1,
                "PermissionType": 1,
            },
            DESCRIBE_LOG_DIRS: self._describe_log_dirs,
            DESCRIBE_CLUSTER: lambda _: {
                "IncludeClusterAuthorizedOperations": self._seldom(),
                "EndpointType": self._pick((1, 1, 1, 2, 9)),
            },
        }

    def apis(self) -> Sequence[int]:
        """Those that it knows."""
        return tuple(self._kinds())

    def _pick(self, values: Sequence[Any]) -> Any:
        return self._random.choice(values)

    def _some(self, values: Sequence[Any]) -> list[Any]:
        return self._random.sample(values, self._random.randint(0, min(3, len(values))))

    def _seldom(self) -> bool:
        return self._random.random() < 0.1

    def _golden(self) -> Golden:
        found: Golden = self._pick(READABLE)
        return found

    def _place(self) -> tuple[str, int, Golden]:
        """Mostly one that is there."""
        golden = self._golden()
        if self._seldom():
            return self._pick(("nowhere", "no/topic", "", "g-plain")), self._pick((0, 77, -1)), golden
        return golden.topic, golden.partition, golden

    def _topic_id(self, topic: str) -> uuid.UUID:
        return self._ids.get(topic) or self._pick((NO_UUID, uuid.UUID(int=self._random.getrandbits(128))))

    def _offset(self, golden: Golden) -> int:
        return int(
            self._pick(
                (
                    golden.start,
                    golden.end,
                    golden.last_stable_offset,
                    self._random.randint(golden.start, max(golden.start, golden.end)),
                    self._random.randint(golden.start, max(golden.start, golden.end)),
                    self._random.randint(golden.start, max(golden.start, golden.end)),
                    self._pick((golden.start - 1, golden.end + 1, -1, 2**62)),
                )
            )
        )

    def _current(self) -> Epoch:
        """What the client believes to be the leader's epoch, told from what the server says it is."""
        found: Epoch = self._pick((Epoch.NONE, Epoch.NONE, Epoch.SAME, Epoch.SAME, Epoch.SAME, Epoch.BELOW, Epoch.ABOVE))
        return found

    def _fetched(self) -> int:
        return int(self._pick((-1, -1, -1, -1, 0, 1, 2, 3, 90)))

    def _wanted(self) -> Value:
        """A place to fetch from."""
        topic, partition, golden = self._place()
        at = {
            "Partition": partition,
            "FetchOffset": self._offset(golden),
            "PartitionMaxBytes": self._pick((0, 1, 500, 20_000, 1 << 20, 1 << 20)),
            "CurrentLeaderEpoch": self._current(),
            "LastFetchedEpoch": self._fetched(),
            "LogStartOffset": self._pick((-1, 0, 7)),
        }
        return {"Topic": topic, "TopicId": self._topic_id(topic), "Partitions": [at]}

    def _fetch(self, version: int) -> Value:
        topics = [self._wanted() for _ in range(self._pick((1, 1, 1, 2, 4)))]
        # The part of a batch that a broker sends up to a limit counts against the next partition; we send none.
        limits = (0, 1, 700, 50_000, 8 << 20, 8 << 20) if len(topics) < 2 else (0, 1, 8 << 20, 8 << 20)
        return {
            "MaxWaitMs": self._pick((0, 0, 1)),
            "MinBytes": self._pick((0, 0, 1, 100_000)),
            "MaxBytes": self._pick(limits),
            "IsolationLevel": self._pick((0, 1)),
            "Topics": topics,
            "RackId": self._pick(("", "a")),
        }

    def _session(self, value: Value, version: int) -> int:
        """Make it a fetch that begins a session, goes on with one or ends it, rightly or not; the session's number."""
        known = self._sessions[-3:]
        by_id = version > NAMES
        if by_id:
            # A broker that fails for one of these is then elsewhere in the session.
            value["Topics"] = [each for each in value["Topics"] if each["TopicId"] != NO_UUID]
        fitting = [each for each in known if each.by_id == by_id] if not self._seldom() else known
        kind = self._pick(("begin", "again", "end", *["go on"] * 9)) if fitting else "begin"
        old: Session | None = self._pick(fitting) if fitting else None
        if kind in {"begin", "again"}:
            new = Session(self._sessions[-1].number + 1 if self._sessions else 1, by_id, [])
            self._sessions.append(new)
            new.topics.extend(value["Topics"])
            value["SessionId"] = InSession(False, old.number) if old is not None and kind == "again" else 0
            value["SessionEpoch"] = 0
            if self._seldom():
                value["Topics"] = []
            return new.number
        assert old is not None
        value["SessionId"] = InSession(False, old.number, self._pick((0,) * 20 + (1,)))
        if kind == "end":
            value["SessionEpoch"] = -1
            return old.number
        value["SessionEpoch"] = InSession(True, old.number, self._pick((0,) * 20 + (-1, 1)))
        # What other partitions get is decided by the order in which all of them are read.
        value["MaxBytes"] = self._pick((0, 1, 8 << 20, 8 << 20))
        if self._pick((True, True, False)):
            value["Topics"] = []
        if self._pick((True, False, False)):
            value["ForgottenTopicsData"] = [
                {**each, "Partitions": [at["Partition"] for at in each["Partitions"]]}
                for each in self._random.sample(old.topics, min(len(old.topics), self._pick((1, 1, 2, 9))))
            ]
        old.topics.extend(value["Topics"])
        return old.number

    def _list_offsets(self, version: int) -> Value:
        topics: list[Value] = []
        for _ in range(self._pick((1, 1, 2, 5))):
            topic, partition, golden = self._place()
            times = [query.when for query in golden.time_queries] or [0]
            special = (-1, -2, -3, -4, -5)
            at = {
                "PartitionIndex": partition,
                "Timestamp": self._pick((*special, self._pick(times), self._pick(times), self._pick(times), -9)),
                "CurrentLeaderEpoch": self._current(),
            }
            topics.append({"Name": topic, "Partitions": [at]})
        return {"ReplicaId": -1, "IsolationLevel": self._pick((0, 1)), "Topics": topics, "TimeoutMs": 1000}

    def _metadata(self, version: int) -> Value:
        names = sorted({self._place()[0] for _ in range(self._pick((0, 1, 1, 3)))})
        topics: list[Value] | None = [{"Name": name} for name in names]
        if version >= 12 and self._seldom():
            topics = [{"Name": None, "TopicId": self._topic_id(name)} for name in names]
        if version >= 10 and self._seldom():
            topics = [*(topics or ()), {"Name": None, "TopicId": self._pick((NO_UUID, NO_UUID, uuid.UUID(int=5)))}]
        if version >= 1 and self._seldom():
            topics = None
        return {
            "Topics": topics,
            "AllowAutoTopicCreation": self._seldom(),
            "IncludeClusterAuthorizedOperations": self._seldom(),
            "IncludeTopicAuthorizedOperations": self._seldom(),
        }

    def _offset_commit(self, version: int) -> Value:
        topic, partition, golden = self._place()
        at = {
            "PartitionIndex": partition,
            "CommittedOffset": self._offset(golden),
            "CommittedLeaderEpoch": self._pick((-1, 0)),
            "CommittedMetadata": self._pick((None, "", "note", "x" * 5000)),
        }
        return {
            "GroupId": self._pick(COMMITTING),
            "GenerationIdOrMemberEpoch": self._pick((-1, -1, -1, 5)),
            "MemberId": self._pick(("", "", "m")),
            "Topics": [{"Name": topic, "Partitions": [at]}],
        }

    def _offset_fetch(self, version: int) -> Value:
        def topics() -> list[Value] | None:
            if version >= 2 and self._seldom():
                return None
            places = [self._place() for _ in range(self._pick((1, 2, 4)))]
            return [{"Name": topic, "PartitionIndexes": [partition]} for topic, partition, _ in places]

        groups = self._some(("g-group-1", "g-group-2", "g-group-3", "nobody", "random-a"))
        return {
            "GroupId": self._pick(("g-group-1", "g-group-2", "g-group-3", "nobody", "random-a")),
            "Topics": topics() if version < 8 else None,
            "Groups": [{"GroupId": group, "Topics": topics()} for group in groups],
            "RequireStable": self._seldom(),
        }

    def _find_coordinator(self, version: int) -> Value:
        return {
            "Key": self._pick(("g-group-1", "g", "")),
            "KeyType": self._pick((0, 0, 0, 1, 7)),
            "CoordinatorKeys": self._some(("g-group-1", "g", "")),
        }

    def _join_group(self, version: int) -> Value:
        """Only what is refused: groups that come about are compared by stories."""
        wrong = self._pick(("group", "member", "timeout", "protocols"))
        return {
            "GroupId": "" if wrong == "group" else "random-join",
            "MemberId": "unknown" if wrong == "member" else "",
            "SessionTimeoutMs": 1 if wrong == "timeout" else 10_000,
            "RebalanceTimeoutMs": 1000,
            "ProtocolType": "" if wrong == "protocols" else "consumer",
            "Protocols": [] if wrong == "protocols" else [{"Name": "range", "Metadata": b""}],
        }

    def _of_a_member(self, version: int) -> Value:
        return {
            "GroupId": self._pick(GROUPS),
            "GenerationId": self._pick((-1, 0, 5)),
            "MemberId": self._pick(("", "m")),
            "Members": [
                {"MemberId": self._pick(("", "m")), "GroupInstanceId": self._pick((None, "i"))} for _ in range(self._pick((0, 1, 2)))
            ],
            "ProtocolType": self._pick((None, "consumer")),
            "ProtocolName": self._pick((None, "range")),
        }

    def _leader_epochs(self, version: int) -> Value:
        topics: list[Value] = []
        for _ in range(self._pick((1, 2, 4))):
            topic, partition, _golden = self._place()
            at = {"Partition": partition, "CurrentLeaderEpoch": self._current(), "LeaderEpoch": self._pick((-1, 0, 1, 2, 3, 4, 90))}
            topics.append({"Topic": topic, "Partitions": [at]})
        return {"ReplicaId": -1, "Topics": topics}

    def _describe_configs(self, version: int) -> Value:
        resources: dict[tuple[int, str], Value] = {}
        for _ in range(self._pick((1, 1, 2))):
            kind = self._pick((TOPIC, TOPIC, TOPIC, BROKER, NO_RESOURCE))
            name = self._place()[0] if kind == TOPIC else self._pick(("1", "", "2", "x"))
            keys = self._pick((None, None, [], ["retention.ms"], ["cleanup.policy", "nothing", "segment.bytes"]))
            resources[kind, name] = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
        return {
            "Resources": list(resources.values()),
            "IncludeSynonyms": self._seldom(),
            "IncludeDocumentation": False,
        }

    def _offset_delete(self, version: int) -> Value:
        topic, partition, _golden = self._place()
        return {
            "GroupId": self._pick(("nobody", "random-a", "")),
            "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": partition}]}],
        }

    def _describe_log_dirs(self, version: int) -> Value:
        topic, partition, _golden = self._place()
        return {"Topics": self._pick((None, [{"Topic": topic, "Partitions": [partition]}], []))}

    def _produce(self, version: int) -> Value:
        topic, partition, _golden = self._place()
        data = [{"Index": partition, "Records": bytes(80)}]
        topics = [{"Name": topic, "TopicId": self._topic_id(topic), "PartitionData": data}]
        return {
            "Acks": self._pick((1, -1, 0, 0, 2)),
            "TimeoutMs": 1000,
            "TopicData": [] if self._seldom() else topics,
        }


def _told(value: Any, told: Told, topic: str) -> Any:
    if isinstance(value, list):
        return [_told(each, told, topic) for each in value]
    if isinstance(value, InSession):
        return told.sessions.get(value.number, (0, 0))[value.is_epoch] + value.shift
    if not isinstance(value, dict):
        return value
    topic = str(value.get("Topic") or value.get("Name") or value.get("TopicId") or topic)
    place = f"{topic}-{value.get('Partition', value.get('PartitionIndex'))}"
    return {
        name: each.of(told.epochs.get(place, 0)) if isinstance(each, Epoch) else _told(each, told, topic)
        for name, each in value.items()
    }


def _known(fields: tuple[Field, ...], value: Value, version: int) -> Value:
    """Without what this version does not have, or may not be null in it."""
    found: Value = {}
    for each in fields:
        if each.name not in value or version not in each.versions:
            continue
        given = value[each.name]
        if given is None and version not in each.nullable:
            continue
        if each.fields is not None and isinstance(given, list):
            given = [_known(each.fields, item, version) for item in given]
        elif each.fields is not None and isinstance(given, dict):
            given = _known(each.fields, given, version)
        elif isinstance(given, list) and None in given:
            given = [item for item in given if item is not None]
        found[each.name] = given
    return found
