"""A log whose first records are in a remote store, or missing: no client may take what is here for all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from make_log import batch, segment
from metadata_records import partition, topic, write as metadata_log
from protocol import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, Connection, fetch, only
from served import serving
from test_tiered import STARTS
from writing import STATE, filled

from offsetlog import Server, mirror

OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE = 1, 2


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """Records 6 to 11 of a topic; those before are in the remote store."""
    place = tmp_path / "logs"
    path = filled(place / "orders-0", 6, segments=2)
    for file in path.glob(f"{0:020}.*"):
        file.unlink()
    (path / STATE).unlink()
    (place / STARTS).write_text("0\n1\norders 0 0\n")
    return place


def test_records_in_the_remote_store_are_an_error_and_not_deleted(tiered: Path) -> None:
    """As with Kafka the log begins where it begins there. A broker that cannot reach the remote store answers with an error, too."""
    with Server(tiered) as kafka, Connection(kafka.bootstrap_servers) as wire:
        for offset in range(6):
            part = only(wire.ask(FETCH, 12, fetch("orders", 0, offset)))
            assert part["ErrorCode"] == CORRUPT_MESSAGE, offset
        part = only(wire.ask(FETCH, 12, fetch("orders", 0, 6)))
        assert (part["ErrorCode"], part["LogStartOffset"], part["HighWatermark"]) == (0, 0, 12)
        assert part["Records"]

        def offset_of(timestamp: int) -> tuple[int, int]:
            places = [{"Name": "orders", "Partitions": [{"PartitionIndex": 0, "Timestamp": timestamp}]}]
            found = only(wire.ask(LIST_OFFSETS, 8, {"Topics": places}))
            return found["Offset"], found["ErrorCode"]

        assert [offset_of(when) for when in (-2, -4, -1)] == [(0, 0), (6, 0), (12, 0)]
        # A record that is not here may be the first one at that time.
        assert offset_of(0)[1] == CORRUPT_MESSAGE
        (event,) = [event.text for event in kafka.events() if event.kind == "damage"]
        assert "offsets 0 to 5 are not here" in event


def test_of_a_topic_without_remote_storage_a_broker_had_deleted_them(tiered: Path) -> None:
    """Its broker begins at the first segment, too."""
    raw = bytes(range(16))
    (tiered / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    metadata = metadata_log(tiered.parent / "metadata", [topic("orders", raw), partition(raw, 0, (1,))])
    with Server(tiered, metadata=metadata) as kafka, Connection(kafka.bootstrap_servers) as wire:
        assert only(wire.ask(FETCH, 12, fetch("orders", 0, 0)))["ErrorCode"] == OFFSET_OUT_OF_RANGE
        places = [{"Name": "orders", "Partitions": [{"PartitionIndex": 0, "Timestamp": -2}]}]
        assert only(wire.ask(LIST_OFFSETS, 8, {"Topics": places}))["Offset"] == 6


def test_leader_epochs_begin_with_the_log(tmp_path: Path) -> None:
    """A broker cuts them at the log start, and writes the file later: of a dead one it may have what was deleted."""
    place = tmp_path / "logs"
    place.mkdir()
    segment(place / "in-0", 200, batch(200, [(None, b"v")] * 10, leader_epoch=3))
    (place / "in-0" / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n2 120\n3 180\n")
    with Server(place) as kafka, Connection(kafka.bootstrap_servers) as wire:
        for asked, expected in ((0, (0, 200)), (2, (2, 200)), (3, (3, 210))):
            topics = [{"Topic": "in", "Partitions": [{"Partition": 0, "LeaderEpoch": asked}]}]
            found = only(wire.ask(OFFSET_FOR_LEADER_EPOCH, 3, {"ReplicaId": -1, "Topics": topics}))
            assert (found["LeaderEpoch"], found["EndOffset"]) == expected
        places = [{"Name": "in", "Partitions": [{"PartitionIndex": 0, "Timestamp": -2}]}]
        first = only(wire.ask(LIST_OFFSETS, 8, {"Topics": places}))
        assert (first["Offset"], first["LeaderEpoch"]) == (200, 3)


def test_what_is_not_here_is_said_at_the_start(tiered: Path, tmp_path: Path) -> None:
    with serving([tiered], tmp_path / "out") as kafka:
        assert "orders-0: offsets 0 to 5 are not here" in kafka.logged()


def test_a_mirror_without_the_records_in_the_remote_store_is_not_complete(tiered: Path, tmp_path: Path) -> None:
    with Server(tiered) as kafka:
        report = mirror(kafka.bootstrap_servers, tmp_path / "copy", once=True, give_up_ms=4000)
    assert not report.is_complete
    assert any("CORRUPT_MESSAGE" in (part.problem or "") for part in report.partitions)
