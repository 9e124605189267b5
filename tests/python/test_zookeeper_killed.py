"""ZooKeeper's data as a killed server leaves it: transactions behind the last snapshot are in the tables, and in no snapshot.

The logs are read here byte by byte: `ZKLG`, a version and an id; then entries of an Adler-32, a length, bytes and `B`.
"""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from test_zookeeper_data import EMBEDDED, PLACES, REAL, document, image_of, told

from offsetlog import LogDir, MetadataImage, zookeeper_node

HEAD = struct.Struct(">4siq")
ENTRY = struct.Struct(">qi")
TRANSACTION = struct.Struct(">qiqqi")
CREATE, SET_DATA, MULTI, CREATE_2 = 1, 5, 14, 15


class Transaction(NamedTuple):
    """An entry of a log."""

    zxid: int
    position: int
    kind: int
    body: bytes


def transactions(log: Path) -> Iterator[Transaction]:
    data = log.read_bytes()
    magic, version, _ = HEAD.unpack_from(data)
    assert (magic, version) == (b"ZKLG", 2)
    at = HEAD.size
    while at + ENTRY.size <= len(data):
        checksum, size = ENTRY.unpack_from(data, at)
        if size <= 0:
            return
        body = data[at + ENTRY.size : at + ENTRY.size + size]
        assert data[at + ENTRY.size + size : at + ENTRY.size + size + 1] == b"B", (log, at)
        assert zlib.adler32(body) == checksum, (log, at)
        _, _, zxid, _, kind = TRANSACTION.unpack_from(body)
        yield Transaction(zxid, at, kind, body[TRANSACTION.size :])
        at += ENTRY.size + size + 1


def written(kind: int, body: bytes) -> Iterator[tuple[str, bytes]]:
    """The nodes that a transaction gives data: path and data. Of several at once, one after the other."""
    if kind == MULTI:
        (count,) = struct.unpack_from(">i", body)
        at = 4
        for _ in range(count):
            inner, size = struct.unpack_from(">ii", body, at)
            yield from written(inner, body[at + 8 : at + 8 + size])
            at += 8 + size
    if kind in {CREATE, CREATE_2, SET_DATA}:
        (size,) = struct.unpack_from(">i", body)
        path = body[4 : 4 + size].decode()
        (more,) = struct.unpack_from(">i", body, 4 + size)
        yield path, body[8 + size : 8 + size + max(more, 0)]


def snapshots(place: Path) -> list[int]:
    """The transaction ids that the names of the snapshots say."""
    return sorted(int(path.name.removeprefix("snapshot."), 16) for path in (place / "version-2").glob("snapshot.*"))


def logs(place: Path) -> list[Path]:
    return sorted((place / "version-2").glob("log.*"), key=lambda path: int(path.name.removeprefix("log."), 16))


def behind(place: Path) -> list[Transaction]:
    """The transactions with an id above the newest snapshot's."""
    return [each for log in logs(place) for each in transactions(log) if each.zxid > snapshots(place)[-1]]


def without_them(place: Path, root: Path) -> Path:
    """A copy whose logs end where the newest snapshot does."""
    copy = Path(shutil.copytree(place, root / place.name))
    for log in logs(copy):
        first = next((each for each in transactions(log) if each.zxid > snapshots(place)[-1]), None)
        if first is not None:
            log.write_bytes(log.read_bytes()[: first.position])
    assert behind(copy) == []
    return copy


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_every_server_was_killed_behind_its_last_snapshot(place: Path) -> None:
    found = behind(place)
    assert len(found) == {"kafka-2.8.2": 9, "kafka-3.9.2": 39}.get(place.name, 11)
    # Each one once, without a gap: no log has lost any.
    assert [each.zxid for each in found] == list(range(snapshots(place)[-1] + 1, found[-1].zxid + 1))
    assert {each.kind for each in found} >= {SET_DATA}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_nodes_are_as_the_transactions_behind_the_snapshot_left_them(place: Path) -> None:
    """By the bytes of the log; of those that are still there the client says the same."""
    last = {path: data for each in behind(place) for path, data in written(each.kind, each.body)}
    nodes = told(place)
    kept = {path: data for path, data in last.items() if path in nodes}
    assert len(kept) >= 2
    for path, data in kept.items():
        assert (nodes[path]["data"] or "").encode() == data, path
        assert zookeeper_node(place, path, show_secrets=True) == data, path


def tables(image: MetadataImage) -> dict[str, object]:
    return {name: value for name, value in image._asdict().items() if name not in {"end_offset", "snapshot_end_offset"}}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_only_those_transactions_have_what_the_tables_say(place: Path, tmp_path: Path) -> None:
    """The tables of the snapshot alone are others: as the topic ``first`` was before the leaders changed, or the groups."""
    copy = without_them(place, tmp_path)
    before, after = tables(image_of(copy)), tables(image_of(place))
    with LogDir.open(copy) as old, LogDir.open(place) as new:
        before["groups"], after["groups"] = old.groups(), new.groups()
    changed = {name for name, value in after.items() if value != before[name]}
    assert changed >= ({"topics"} if place in EMBEDDED else {"groups"}), changed
    if place in EMBEDDED:
        states = [
            [(each.leader, each.leader_epoch, each.isr) for each in topic.partitions]
            for image in (image_of(copy), image_of(place))
            for topic in image.topics
            if topic.name == "first"
        ]
        assert states[0] != states[1] == [(2, 0, (2, 0)), (1, 1, (1,)), (1, 0, (1, 2))]


@pytest.mark.parametrize("place", REAL, ids=lambda place: place.name)
def test_leaders_isr_and_partitions_of_first_on_real_brokers(place: Path) -> None:
    """Three partitions and two replicas on three brokers, of which broker 2 was killed: who led with it leads alone."""
    (first,) = image_of(place).topics
    assert first.name == "first"
    assert [(each.partition, each.replicas, each.leader, each.leader_epoch, each.isr) for each in first.partitions] == [
        (0, (2, 0), 0, 1, (0,)),
        (1, (0, 1), 0, 0, (0, 1)),
        (2, (1, 2), 1, 1, (1,)),
    ]
    # As ZooKeeper's client read it.
    for each in first.partitions:
        state = document(place, f"/brokers/topics/first/partitions/{each.partition}/state")
        assert (state["leader"], state["leader_epoch"], state["isr"]) == (each.leader, each.leader_epoch, list(each.isr))
    assert document(place, "/brokers/topics/first")["partitions"] == {"0": [2, 0], "1": [0, 1], "2": [1, 2]}
