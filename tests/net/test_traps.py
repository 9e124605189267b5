"""What fails silently at clients if a server gets it wrong, asked for with requests of our own: one test, at least, for each trap.

Numbers in docstrings are the KIPs and issues where others fell in. What clients do with right answers is in test_traps_clients.py.
"""

from __future__ import annotations

import shutil
import socket
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, OLD_PARTITIONS, Golden, named
from protocol import (
    API_VERSIONS,
    DESCRIBE_ACLS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    NO_UUID,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    ClosedError,
    Connection,
    Value,
    batches,
    fetch,
    framed,
    only,
    request,
    response,
)
from served import Kafka, serving

from offsetlog import Log

LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION = 5, 6, 1, 3
UNSUPPORTED_VERSION, POLICY_VIOLATION, FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, UNKNOWN_TOPIC_ID = 35, 44, 70, 71, 100
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75

ASKED_FOR = {
    PRODUCE: (3, 12),
    FETCH: (4, 16),
    LIST_OFFSETS: (1, 9),
    METADATA: (0, 12),
    OFFSET_COMMIT: (2, 9),
    OFFSET_FETCH: (1, 9),
    FIND_COORDINATOR: (0, 4),
    JOIN_GROUP: (2, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    API_VERSIONS: (0, 3),
    INIT_PRODUCER_ID: (0, 4),
    OFFSET_FOR_LEADER_EPOCH: (2, 4),
    DESCRIBE_CONFIGS: (1, 4),
    DESCRIBE_CLUSTER: (0, 1),
    15: (0, 5),
}
"""What the clients of ten years ask for, by their sources and by what they sent to a probe."""
READABLE = [golden for golden in CLEAN_PARTITIONS if not golden.topic.startswith("__")]


@pytest.fixture
def wire(clean: Kafka) -> Iterator[Connection]:
    with Connection(clean.address) as connection:
        yield connection


def announced(connection: Connection) -> dict[int, tuple[int, int]]:
    answer = connection.ask(API_VERSIONS, 3, {"ClientSoftwareName": "tests", "ClientSoftwareVersion": "1"})
    assert answer["ErrorCode"] == 0
    return {each["ApiKey"]: (each["MinVersion"], each["MaxVersion"]) for each in answer["ApiKeys"]}


def batch_with(offset: int, golden: Golden) -> tuple[int, int]:
    """First and last offset of the batch that holds this offset, from the directory's own bytes."""
    data = b"".join(path.read_bytes() for path in sorted(golden.directory.glob("*.log")))
    return next((base, last) for base, last, _ in batches(data) if base <= offset <= last)


def test_produce_is_announced(wire: Connection) -> None:
    """Without it librdkafka never fetches, and says nothing: it tells message format 2 by Produce 3 and Fetch 4."""
    versions = announced(wire)
    for api, (low, high) in ASKED_FOR.items():
        assert api in versions, request(api).name
        assert versions[api][0] <= low, (request(api).name, versions[api])
        assert versions[api][1] >= high, (request(api).name, versions[api])


def test_old_versions_are_announced_as_kafka_does(wire: Connection) -> None:
    """KAFKA-18659: librdkafka takes compression for missing if Produce does not begin with 0; without JoinGroup 0 it has no groups."""
    versions = announced(wire)
    assert versions[PRODUCE][0] == 0
    assert versions[JOIN_GROUP][0] == 0


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_is_refused_by_partition(wire: Connection, version: int) -> None:
    """By POLICY_VIOLATION: a missing authorization would make librdkafka forget the topic's partitions."""
    assert announced(wire)[PRODUCE][1] == 12
    before = only(wire.ask(LIST_OFFSETS, 7, {"Topics": [{"Name": "g-plain", "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]}))
    data = [{"Index": index, "Records": bytes(80)} for index in (0, 2)]
    found = wire.ask(PRODUCE, version, {"Acks": -1, "TimeoutMs": 1000, "TopicData": [{"Name": "g-plain", "PartitionData": data}]})
    (topic,) = found["Responses"]
    assert [(each["Index"], each["ErrorCode"], each["BaseOffset"]) for each in topic["PartitionResponses"]] == [
        (0, POLICY_VIOLATION, -1),
        (2, POLICY_VIOLATION, -1),
    ]
    after = only(wire.ask(LIST_OFFSETS, 7, {"Topics": [{"Name": "g-plain", "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]}))
    assert after == before


def test_produce_without_acknowledgement_is_refused_too(wire: Connection) -> None:
    """Kafka answers nothing and ends the connection, which is all that such a producer can be told."""
    data = {"Name": "g-plain", "PartitionData": [{"Index": 0, "Records": bytes(80)}]}
    wire.send(PRODUCE, 9, {"Acks": 0, "TimeoutMs": 1000, "TopicData": [data]})
    with pytest.raises(ClosedError):
        wire.receive_frame()


def test_no_commit_is_of_a_later_epoch_than_metadata_says(wire: Connection) -> None:
    """A Java group reads nothing for ever if it is: KIP-1279 keeps the same order."""
    epochs = {
        (topic["Name"], partition["PartitionIndex"]): partition["LeaderEpoch"]
        for topic in wire.ask(METADATA, 12, {"Topics": None})["Topics"]
        for partition in topic["Partitions"]
    }
    checked = 0
    for group in ("g-group-1", "g-group-2", "g-group-3"):
        (answer,) = wire.ask(OFFSET_FETCH, 8, {"Groups": [{"GroupId": group, "Topics": None}]})["Groups"]
        for topic in answer["Topics"]:
            for partition in topic["Partitions"]:
                epoch = epochs[topic["Name"], partition["PartitionIndex"]]
                assert epoch == -1 or epoch >= partition["CommittedLeaderEpoch"]
                checked += 1
    assert checked
    for golden in READABLE:
        epoch = epochs[golden.topic, golden.partition]
        newest = max((row.leader_epoch for row in golden.rows), default=-1)
        assert epoch == -1 or epoch >= newest, golden.name


@pytest.mark.parametrize("version", range(4, 13))
def test_aborted_transactions_are_told_to_committed_readers_only(wire: Connection, version: int) -> None:
    """Left out, aborted records pass for committed ones; told to others, they take records away (redpanda 18852)."""
    for golden in named("g-txn-0", "g-txn-1", "g-compact-txn-0"):
        offset, seen = golden.start, []
        while offset < golden.last_stable_offset:
            found = only(wire.ask(FETCH, version, fetch(golden.topic, golden.partition, offset, committed=True, max_bytes=20_000)))
            assert found["LastStableOffset"] == golden.last_stable_offset
            assert found["AbortedTransactions"] is not None
            seen += [(each["ProducerId"], each["FirstOffset"]) for each in found["AbortedTransactions"]]
            whole = batches(found["Records"])
            assert whole[-1][1] < golden.last_stable_offset, "records behind the last stable offset"
            offset = whole[-1][1] + 1
        assert seen
        plain = only(wire.ask(FETCH, version, fetch(golden.topic, golden.partition, golden.start)))
        assert plain["AbortedTransactions"] is None


@pytest.mark.parametrize("version", range(4, 13))
def test_no_records_are_empty_and_never_null(wire: Connection, version: int) -> None:
    """Java 2.8.2 and kafka-python fail at null."""
    for golden in named("g-plain-0", "g-empty-0"):
        for offset in (golden.end, golden.end + 1, -1):
            found = only(wire.ask(FETCH, version, fetch(golden.topic, golden.partition, offset)))
            assert found["Records"] == b"", (golden.name, offset, found)
    assert only(wire.ask(FETCH, version, fetch("nowhere", 0, 0)))["Records"] == b""


@pytest.fixture(scope="module")
def holes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Partitions 0 and 2 of a topic that had three, on the only disk that is left."""
    folder = tmp_path_factory.mktemp("holes")
    for golden in named("g-plain-0", "g-plain-2"):
        golden.copy(folder / "disk")
    with serving([folder / "disk"], folder / "serve") as server:
        yield server


@pytest.mark.parametrize("version", range(13))
def test_missing_partitions_are_offline_and_listed(holes: Kafka, version: int) -> None:
    with Connection(holes.address) as wire:
        (topic,) = wire.ask(METADATA, version, {"Topics": [{"Name": "g-plain"}]})["Topics"]
        assert topic["ErrorCode"] == 0
        found = {each["PartitionIndex"]: (each["ErrorCode"], each["LeaderId"] >= 0) for each in topic["Partitions"]}
        assert found == {0: (0, True), 1: (LEADER_NOT_AVAILABLE, False), 2: (0, True)}
        offline = only(
            wire.ask(LIST_OFFSETS, 7, {"Topics": [{"Name": "g-plain", "Partitions": [{"PartitionIndex": 1, "Timestamp": -1}]}]})
        )
        assert offline["ErrorCode"] in {LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION}


def test_topics_without_an_id(old: Kafka) -> None:
    """Clusters before 2.8 had none: clients fall back to names, and close with an empty request of the newest version."""
    with Connection(old.address) as wire:
        (topic,) = wire.ask(METADATA, 12, {"Topics": [{"Name": "o-v0-none"}]})["Topics"]
        assert topic["ErrorCode"] == 0
        if topic["TopicId"] != NO_UUID:
            assert only(wire.ask(FETCH, 16, fetch(topic["TopicId"], 0, 0)))["ErrorCode"] == 0
        assert only(wire.ask(FETCH, 12, fetch("o-v0-none", 0, 0)))["Records"]
        assert only(wire.ask(FETCH, 16, fetch(NO_UUID, 0, 0)))["ErrorCode"] == UNKNOWN_TOPIC_ID
        assert only(wire.ask(FETCH, 16, fetch(uuid.uuid4(), 0, 0)))["ErrorCode"] == UNKNOWN_TOPIC_ID
        empty = wire.ask(FETCH, 16, {"MaxWaitMs": 0, "MinBytes": 0, "Topics": []})
        assert (empty["ErrorCode"], empty["Responses"]) == (0, [])


OF_OLD = [golden for golden in OLD_PARTITIONS if golden.topic.startswith("o-")]


@pytest.mark.parametrize("golden", OF_OLD, ids=lambda golden: golden.name)
def test_old_messages_go_out_as_they_lie(old: Kafka, golden: Golden) -> None:
    """Every client that may speak Fetch 4 reads formats 0 and 1: nothing is converted."""
    on_disk = b"".join(path.read_bytes() for path in sorted(golden.directory.glob("*.log")))
    with Connection(old.address) as wire:
        for version in (4, 11, 12):
            found, offset = b"", golden.start
            while offset < golden.end:
                part = only(wire.ask(FETCH, version, fetch(golden.topic, golden.partition, offset)))
                assert (part["ErrorCode"], part["HighWatermark"]) == (0, golden.end)
                assert part["Records"]
                found += part["Records"]
                # Of one segment at a time, as Kafka gives it.
                at = on_disk.startswith(found) and len(found)
                assert at, "other bytes than the disk's"
                offset = golden.end if at == len(on_disk) else _next_offset(on_disk, at)
            assert found == on_disk


def _next_offset(data: bytes, at: int) -> int:
    """The base offset of what lies there; in formats 0 and 1 of a compressed message it is the last one's, which will do."""
    return int(struct.unpack_from(">q", data, at)[0])


def _end(wire: Connection, topic: str) -> int:
    found = only(wire.ask(LIST_OFFSETS, 7, {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]}))
    return int(found["Offset"])


def test_the_high_watermark_is_never_older_than_the_records(tmp_path: Path) -> None:
    """Equal to the fetch offset it is «end of partition» to librdkafka: stale it ends a reader early, going back it stops Spark."""
    with Log.open(tmp_path / "disk" / "grows-0", "a") as log:
        log.append(b"first", flush=True)
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                log.append_records([(None, b"x" * 100)] * 7, flush=True)
                time.sleep(0.001)

        with serving([tmp_path / "disk"], tmp_path / "serve") as server, Connection(server.address) as wire:
            writer = threading.Thread(target=write)
            writer.start()
            try:
                offset = high = answers = 0
                begun = time.monotonic()
                while time.monotonic() < begun + 4 or answers <= 5 or offset <= 100:
                    assert time.monotonic() < begun + 300, "a growing directory is not followed"
                    found = only(wire.ask(FETCH, 12, fetch("grows", 0, offset, wait_ms=200, min_bytes=1)))
                    assert found["ErrorCode"] == 0
                    assert found["HighWatermark"] >= high, "it went back"
                    high = found["HighWatermark"]
                    whole = batches(found["Records"])
                    if whole:
                        answers += 1
                        assert whole[-1][1] < high, "records behind the high watermark"
                        offset = whole[-1][1] + 1
                    else:
                        assert high == offset, "an empty answer below the high watermark"
            finally:
                stop.set()
                writer.join()


def minimal(api: int, version: int) -> Value:
    """A request that any broker answers, of an API that is announced."""
    assert version in request(api).versions
    given: dict[int, Value] = {
        FETCH: {"MaxWaitMs": 0, "MinBytes": 0},
        DESCRIBE_ACLS: {"ResourceTypeFilter": 2, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1},
        API_VERSIONS: {"ClientSoftwareName": "tests", "ClientSoftwareVersion": "1"},
        FIND_COORDINATOR: {"Key": "g"} if version < 4 else {"CoordinatorKeys": ["g"]},
        OFFSET_FETCH: {"GroupId": "g"} if version < 8 else {"Groups": [{"GroupId": "g", "Topics": []}]},
        INIT_PRODUCER_ID: {"TransactionalId": None, "TransactionTimeoutMs": 1000},
        JOIN_GROUP: {"GroupId": "", "SessionTimeoutMs": 10_000, "ProtocolType": "consumer"},
        PRODUCE: {"Acks": 1, "TimeoutMs": 1000},
    }
    return given.get(api, {})


def test_all_that_is_announced_is_answered(clean: Kafka) -> None:
    """A version that the codec cannot do crashed clients of others (estuary/flow 2684)."""
    with Connection(clean.address) as wire:
        versions = announced(wire)
        for api, (low, high) in sorted(versions.items()):
            # Kafka announces Produce from 0 and answers it from 3 on.
            for version in range(max(low, request(api).versions.low), high + 1):
                answer = wire.ask(api, version, minimal(api, version))
                assert set(answer) <= {each.name for each in response(api).fields}
        assert announced(wire) == versions


@pytest.mark.parametrize("name", ["g-codec-lz4-0", "g-codec-none-0", "g-big-0", "g-compact-0", "g-clients-0"])
def test_a_fetch_inside_a_batch_returns_all_of_it(wire: Connection, name: str) -> None:
    """Lower offsets included; a client that gets the next batch instead waits for ever (tansu, Dekaf 2074)."""
    (golden,) = named(name)
    for row in golden.rows[:: max(1, len(golden.rows) // 40)]:
        first, last = batch_with(row.offset, golden)
        found = batches(only(wire.ask(FETCH, 12, fetch(golden.topic, golden.partition, row.offset, max_bytes=1)))["Records"])
        assert found[0][:2] == (first, last), row.offset


@pytest.mark.parametrize("version", [5, 9, 127, 32_767])
def test_an_unknown_version_of_api_versions_is_answered(clean: Kafka, version: int) -> None:
    """By the error in the body of version 0 with the list, and a header without tags: clients then know what to speak."""
    with Connection(clean.address) as wire:
        wire.socket.sendall(framed(API_VERSIONS, version, 7, b"\x02a\x02b\0"))
        frame = wire.receive_frame()
        assert struct.unpack_from(">i", frame) == (7,)
        answer = response(API_VERSIONS).read(frame[4:], 0)
        assert answer["ErrorCode"] == UNSUPPORTED_VERSION
        assert {each["ApiKey"] for each in answer["ApiKeys"]} >= {API_VERSIONS}
        # The connection goes on.
        assert announced(wire)


@pytest.mark.parametrize(("api", "version"), [(FETCH, 3), (FETCH, 99), (METADATA, 99), (PRODUCE, 2), (71, 0), (999, 0), (-1, 0)])
def test_what_is_not_announced_ends_that_connection_only(clean: Kafka, api: int, version: int) -> None:
    """As a broker does: clients that ignore the list (librdkafka 4870) see a closed connection, not silence."""
    with Connection(clean.address) as wire, Connection(clean.address) as other:
        assert announced(other)
        header = struct.pack(">hhih", api, version, 1, -1) + bytes(20)
        wire.socket.sendall(struct.pack(">i", len(header)) + header)
        with pytest.raises(ClosedError):
            wire.receive_frame()
        assert announced(other)


@pytest.mark.parametrize("version", range(4, 13))
def test_out_of_range_tells_no_offsets(wire: Connection, version: int) -> None:
    """Clients then ask for the beginning or the end (mimir 9153)."""
    for golden in named("g-plain-0", "g-deleted-prefix-0"):
        for offset in {golden.end + 1, 10**12, golden.start - 1}:
            found = only(wire.ask(FETCH, version, fetch(golden.topic, golden.partition, offset)))
            assert found["ErrorCode"] == OFFSET_OUT_OF_RANGE
            assert (found["HighWatermark"], found["LastStableOffset"], found.get("LogStartOffset", -1)) == (-1, -1, -1)


@pytest.mark.parametrize("version", range(2, 10))
def test_commits_come_back_with_their_metadata(clean: Kafka, version: int) -> None:
    """On tansu's list of what was missing."""
    group = f"metadata-{version}"
    partition: Value = {"PartitionIndex": 1, "CommittedOffset": 42, "CommittedMetadata": "a note"}
    if version >= 6:
        partition["CommittedLeaderEpoch"] = 0
    with Connection(clean.address) as wire:
        done = wire.ask(OFFSET_COMMIT, version, {"GroupId": group, "Topics": [{"Name": "g-plain", "Partitions": [partition]}]})
        assert only(done)["ErrorCode"] == 0
        for reading in range(1, 10):
            asked = [{"Name": "g-plain", "PartitionIndexes": [0, 1]}]
            answer = wire.ask(
                OFFSET_FETCH,
                reading,
                {"GroupId": group, "Topics": asked} if reading < 8 else {"Groups": [{"GroupId": group, "Topics": asked}]},
            )
            (topic,) = (answer if reading < 8 else answer["Groups"][0])["Topics"]
            found = [
                (each["PartitionIndex"], each["CommittedOffset"], each["Metadata"], each["ErrorCode"]) for each in topic["Partitions"]
            ]
            assert found == [(0, -1, "", 0), (1, 42, "a note", 0)], reading


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_are_described(clean: Kafka, version: int) -> None:
    """On tansu's list of what was missing."""
    with Connection(clean.address) as wire:
        asked = [{"ResourceType": 2, "ResourceName": "g-compact", "ConfigurationKeys": None}]
        (found,) = wire.ask(DESCRIBE_CONFIGS, version, {"Resources": asked})["Results"]
        assert found["ErrorCode"] == 0
        settings = {each["Name"]: each["Value"] for each in found["Configs"]}
        assert settings["cleanup.policy"] == "compact"
        assert {"retention.ms", "segment.bytes", "max.message.bytes"} <= set(settings)
        asked[0]["ConfigurationKeys"] = ["cleanup.policy"]
        (found,) = wire.ask(DESCRIBE_CONFIGS, version, {"Resources": asked})["Results"]
        assert [each["Name"] for each in found["Configs"]] == ["cleanup.policy"]


def session(version: int, number: int, epoch: int, *partitions: Value, forgotten: tuple[int, ...] = ()) -> Value:
    asked: Value = {"MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 1 << 20, "SessionId": number, "SessionEpoch": epoch}
    asked["Topics"] = [{"Topic": "g-plain", "Partitions": list(partitions)}] if partitions else []
    if forgotten:
        asked["ForgottenTopicsData"] = [{"Topic": "g-plain", "Partitions": list(forgotten)}]
    assert version >= 7
    return asked


@pytest.mark.parametrize("version", range(7, 13))
def test_fetch_sessions(wire: Connection, version: int) -> None:
    """Either none at all (id 0), or all of their rules: what did not change is left out, what is forgotten is gone (KIP-227)."""
    at = [
        {"Partition": index, "FetchOffset": golden.end, "PartitionMaxBytes": 1 << 20}
        for index, golden in enumerate(named("g-plain-0", "g-plain-1"))
    ]
    first = wire.ask(FETCH, version, session(version, 0, 0, *at))
    assert first["ErrorCode"] == 0
    assert [each["PartitionIndex"] for each in first["Responses"][0]["Partitions"]] == [0, 1]
    number = first["SessionId"]
    unknown = wire.ask(FETCH, version, session(version, 123_456_789, 1))
    assert (unknown["ErrorCode"], unknown["Responses"]) == (FETCH_SESSION_ID_NOT_FOUND, [])
    if number == 0:
        return
    nothing = wire.ask(FETCH, version, session(version, number, 1))
    assert (nothing["ErrorCode"], nothing["SessionId"], nothing["Responses"]) == (0, number, [])
    moved = wire.ask(FETCH, version, session(version, number, 2, {**at[0], "FetchOffset": 0}, forgotten=(1,)))
    assert [each["PartitionIndex"] for each in moved["Responses"][0]["Partitions"]] == [0]
    assert moved["Responses"][0]["Partitions"][0]["Records"]
    late = wire.ask(FETCH, version, session(version, number, 9))
    assert (late["ErrorCode"], late["Responses"]) == (INVALID_FETCH_SESSION_EPOCH, [])
    closed = wire.ask(FETCH, version, session(version, number, -1))
    assert (closed["ErrorCode"], closed["SessionId"]) == (0, 0)
    gone = wire.ask(FETCH, version, session(version, number, 3))
    assert gone["ErrorCode"] == FETCH_SESSION_ID_NOT_FOUND


def test_limits_hold_behind_the_first_batch(wire: Connection) -> None:
    """The first batch is whole however large it is, else a consumer that allows less never gets on; then limits hold."""
    (big,) = named("g-big-0")
    (large,) = (row.offset for row in big.rows if row.value is not None and len(row.value) > 200_000)
    first, last = batch_with(large, big)
    found = only(wire.ask(FETCH, 12, fetch("g-big", 0, large, max_bytes=1000)))["Records"]
    assert [each[:2] for each in batches(found)] == [(first, last)]
    both = {
        "MaxWaitMs": 0,
        "MinBytes": 0,
        "MaxBytes": 1,
        "Topics": [
            {
                "Topic": "g-plain",
                "Partitions": [{"Partition": index, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20} for index in (0, 1)],
            }
        ],
    }
    (topic,) = wire.ask(FETCH, 12, both)["Responses"]
    one, other = topic["Partitions"]
    assert len(batches(one["Records"])) == 1
    assert other["Records"] == b""
    for limit in (100, 3000, 20_000):
        found = only(wire.ask(FETCH, 12, fetch("g-plain", 0, 0, max_bytes=1 << 20, partition_bytes=limit)))["Records"]
        whole = batches(found)
        assert whole
        assert len(found) <= max(limit, len(whole[0][2]))


def test_the_advertised_address_is_what_clients_are_told(tmp_path: Path) -> None:
    (golden,) = named("g-plain-0")
    golden.copy(tmp_path / "disk")
    with (
        serving([tmp_path / "disk"], tmp_path / "serve", "--advertise", "kafka.example:19092") as server,
        Connection(server.address) as wire,
    ):
        wanted = ("kafka.example", 19092)
        assert {(each["Host"], each["Port"]) for each in wire.ask(METADATA, 12, {"Topics": None})["Brokers"]} == {wanted}
        assert {(each["Host"], each["Port"]) for each in wire.ask(DESCRIBE_CLUSTER, 0)["Brokers"]} == {wanted}
        (found,) = wire.ask(FIND_COORDINATOR, 4, {"CoordinatorKeys": ["g"]})["Coordinators"]
        assert (found["Host"], found["Port"]) == wanted


@pytest.mark.parametrize("version", range(9, 13))
def test_epochs_that_do_not_fit_are_told(wire: Connection, version: int) -> None:
    """What a consumer knows of the leader is checked, so that it notices a cluster that went back."""
    (topic,) = wire.ask(METADATA, 12, {"Topics": [{"Name": "g-plain"}]})["Topics"]
    epoch = next(each["LeaderEpoch"] for each in topic["Partitions"] if each["PartitionIndex"] == 0)
    assert epoch >= 0
    for given, error in ((epoch, 0), (epoch + 1, UNKNOWN_LEADER_EPOCH), (epoch - 1, FENCED_LEADER_EPOCH), (-1, 0)):
        if given < -1:
            continue
        found = only(wire.ask(FETCH, version, fetch("g-plain", 0, 0, CurrentLeaderEpoch=given)))
        assert found["ErrorCode"] == (0 if given == -1 else error), given


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    """And not a server that nobody reaches."""
    (golden,) = named("g-plain-0")
    golden.copy(tmp_path / "disk")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(RuntimeError, match="serve printed no address"),
            serving([tmp_path / "disk"], tmp_path / "serve", "--listen", where),
        ):
            pass


def test_reading_changes_nothing_on_disk(tmp_path: Path) -> None:
    for source in CLEAN_LOG_DIRS:
        shutil.copytree(source, tmp_path / source.name)

    def state() -> dict[str, tuple[int, int, bytes]]:
        files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file() and "serve" not in path.parts]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) for path in files}

    before = state()
    with (
        serving([tmp_path / source.name for source in CLEAN_LOG_DIRS], tmp_path / "serve") as server,
        Connection(server.address) as wire,
    ):
        for golden in READABLE:
            for committed in (False, True):
                wire.ask(FETCH, 12, fetch(golden.topic, golden.partition, golden.start, committed=committed))
        wire.ask(
            OFFSET_COMMIT,
            8,
            {"GroupId": "g", "Topics": [{"Name": "g-plain", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 1}]}]},
        )
    assert state() == before
