"""``restore`` into a new cluster whose `bootstrap.checkpoint` has the topic already: what a controller replays is what the plan says."""

from __future__ import annotations

import base64
import os
import shutil
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

import metadata_records
import pytest
from golden import CLEAN, CLEAN_LOG_DIRS
from restoring import SOURCES, formatted, metadata_of, metadata_values, states_of, uuid_bytes

from offsetlog import Log, restore


def encoded(topic_id: bytes) -> str:
    """As Kafka writes it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


class Replayed(NamedTuple):
    """A partition, as the last record of it says."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[bytes, ...]


def partitions(file: Path) -> dict[tuple[bytes, int], Replayed]:
    """As Kafka's `ReplicationControlManager` and `TopicDelta` replay `PartitionRecord`: the last one of a partition replaces the others."""
    found: dict[tuple[bytes, int], Replayed] = {}
    for value in metadata_values(file):
        if value.startswith(b"\1\3\1"):
            number, topic_id, at = int.from_bytes(value[3:7]), value[7:23], 23
            lists: list[tuple[int, ...]] = []
            for _ in range(4):
                count = value[at] - 1
                lists.append(struct.unpack_from(f">{count}i", value, at + 1))
                at += 1 + 4 * count
            leader, epoch, _ = struct.unpack_from(">3i", value, at)
            count = value[at + 12] - 1
            ids = tuple(value[at + 13 + 16 * each : at + 29 + 16 * each] for each in range(count))
            assert lists[2:] == [(), ()]
            found[topic_id, number] = Replayed(lists[0], lists[1], leader, epoch, ids)
    return found


def settings(file: Path, topic: str) -> dict[str, bytes]:
    """As Kafka's `ConfigurationControlManager` replays `ConfigRecord`: the last one of a setting holds, and null takes it away."""
    begin = b"\1\4\0\2" + metadata_records.text(topic)
    found: dict[str, bytes] = {}
    for value in metadata_values(file):
        if value.startswith(begin):
            rest = value[len(begin) :]
            name, rest = rest[1 : rest[0]].decode(), rest[rest[0] :]
            if rest[0] == 0:
                found.pop(name, None)
            else:
                found[name] = rest[1 : rest[0]]
    return found


def directory_id(log_dir: Path) -> bytes:
    (line,) = (line for line in (log_dir / "meta.properties").read_text().splitlines() if line.startswith("directory.id="))
    return uuid_bytes(line.removeprefix("directory.id="))


def disks(place: Path) -> tuple[Path, Path]:
    """Two of a dead broker's, one with each partition of `g-epochs`."""
    for number, name in enumerate(("one", "two")):
        (place / name).mkdir()
        shutil.copy(CLEAN_LOG_DIRS[0] / "meta.properties", place / name)
        shutil.copytree(CLEAN_LOG_DIRS[0] / f"g-epochs-{number}", place / name / f"g-epochs-{number}")
    return place / "one", place / "two"


def test_retention_is_set_in_a_topic_that_is_there(tmp_path: Path) -> None:
    """The report says that it is -1 now, so it is; and back, where it is to be kept. A call that changes nothing writes nothing."""
    into = formatted(tmp_path / "new")
    file = into / "bootstrap.checkpoint"
    own = metadata_of(SOURCES).configs.get(("topic", "g-plain"), {})
    for number, keeps in enumerate((True, False, False, True, True)):
        before = file.read_bytes()
        had = settings(file, "g-plain")
        report = restore(SOURCES, into, topics="g-plain", new_cluster=True, keep_retention=keeps)
        expected = {name: value.encode() for name, value in own.items()}
        if not keeps:
            told = [each.reason for each in report.remaining if "=-1 now" in each.reason]
            assert any("retention.ms=-1 now" in reason for reason in told)
            expected |= {name: b"-1" for name in ("retention.ms", "retention.bytes") if any(f"{name}=-1 now" in each for each in told)}
        assert settings(file, "g-plain") == expected
        assert number == 0 or (file.read_bytes() == before) == (had == expected)
    assert states_of(report) == {"there"}


def test_settings_of_an_earlier_restore_stay_where_the_sources_have_none(tmp_path: Path) -> None:
    """A disk that comes later, without the metadata, does not take `cleanup.policy` away."""
    into = formatted(tmp_path / "new")
    restore(SOURCES, into, topics="g-compact", new_cluster=True)
    whole = (into / "bootstrap.checkpoint").read_bytes()
    assert settings(into / "bootstrap.checkpoint", "g-compact")["cleanup.policy"] == b"compact"
    restore(CLEAN_LOG_DIRS, into, topics="g-compact", new_cluster=True)
    assert (into / "bootstrap.checkpoint").read_bytes() == whole


def test_settings_of_an_earlier_restore_stay_where_a_part_of_the_metadata_is_missing(tmp_path: Path) -> None:
    """A metadata log whose end did not reach the disk has the topic, and what it says of its settings is not all."""
    into, logs, identity = formatted(tmp_path / "new"), tmp_path / "old", bytes(range(1, 17))
    with Log.open(logs / "orders-0", "a") as log:
        log.append(b"value", key=b"key", timestamp=time.time_ns() // 1_000_000)
    (logs / "orders-0" / ".offsetlog.config").unlink()
    told = [metadata_records.topic("orders", identity), metadata_records.partition(identity, 0, (1,))]
    told.append(metadata_records.config("topic", "orders", "max.message.bytes", "2000000"))
    metadata = metadata_records.write(tmp_path / "metadata", told)
    metadata_records.write(metadata, [metadata_records.config("topic", "orders", "cleanup.policy", "compact")])
    restore([logs, metadata], into, new_cluster=True)
    whole = {"max.message.bytes": b"2000000", "cleanup.policy": b"compact"}
    assert settings(into / "bootstrap.checkpoint", "orders") == whole
    segment = metadata / "__cluster_metadata-0" / f"{0:020}.log"
    os.truncate(segment, segment.stat().st_size - 1)
    restore([logs, metadata], into, new_cluster=True)
    assert settings(into / "bootstrap.checkpoint", "orders") == whole
    # What it says of others holds.
    later = [*told[:2], metadata_records.config("topic", "orders", "max.message.bytes", "3000000")]
    other = metadata_records.write(tmp_path / "other", later)
    metadata_records.write(other, [metadata_records.config("topic", "orders", "cleanup.policy", "delete")])
    os.truncate(torn := other / "__cluster_metadata-0" / segment.name, torn.stat().st_size - 1)
    restore([logs, other], into, new_cluster=True)
    assert settings(into / "bootstrap.checkpoint", "orders") == {**whole, "max.message.bytes": b"3000000"}


def test_a_policy_of_metadata_that_is_not_whole_comes_before_a_guess(tmp_path: Path) -> None:
    """Without metadata the first call sets `delete` where the brokers compact. The second knows better."""
    into, logs, identity = formatted(tmp_path / "new"), tmp_path / "old", bytes(range(1, 17))
    with Log.open(logs / "orders-0", "a") as log:
        log.append(b"value", key=b"key", timestamp=time.time_ns() // 1_000_000)
    (logs / "orders-0" / ".offsetlog.config").unlink()
    (logs / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {encoded(identity)}\n", encoding="utf-8")
    properties = tmp_path / "server.properties"
    properties.write_text("log.cleanup.policy=compact\n")
    restore(logs, into, new_cluster=True, broker=properties)
    assert settings(into / "bootstrap.checkpoint", "orders")["cleanup.policy"] == b"delete"
    told = [metadata_records.topic("orders", identity), metadata_records.partition(identity, 0, (1,))]
    told.append(metadata_records.config("topic", "orders", "cleanup.policy", "compact"))
    metadata = metadata_records.write(tmp_path / "metadata", told)
    metadata_records.write(metadata, [metadata_records.config("topic", "orders", "max.message.bytes", "2000000")])
    segment = metadata / "__cluster_metadata-0" / f"{0:020}.log"
    os.truncate(segment, segment.stat().st_size - 1)
    restore([logs, metadata], into, new_cluster=True, broker=properties)
    assert settings(into / "bootstrap.checkpoint", "orders")["cleanup.policy"] == b"compact"


def test_more_replicas_are_in_the_file(tmp_path: Path) -> None:
    """Each new one is a copy, in sync, with its log dir; the first leader stays. A call without a number keeps them, fewer are refused."""
    into = [formatted(tmp_path / str(node), node=node) for node in (1, 2, 3)]
    file = into[0] / "bootstrap.checkpoint"
    restore(SOURCES, into, topics="g-compact", new_cluster=True)
    ((key, first),) = partitions(file).items()
    assert len(first.replicas) == 1
    (each,) = restore(SOURCES, into, topics="g-compact", new_cluster=True, replication_factor=3).partitions
    assert {place.node_id for place in each.into} == {1, 2, 3}
    ids = {node: directory_id(place) for node, place in zip((1, 2, 3), into, strict=True)}
    for place in into:
        ((again, known),) = partitions(place / "bootstrap.checkpoint").items()
        assert (again, known.leader, set(known.isr), set(known.replicas)) == (key, first.leader, {1, 2, 3}, {1, 2, 3})
        assert known.replicas[0] == first.leader
        assert known.directories == tuple(ids[node] for node in known.replicas)
        assert known.leader_epoch == first.leader_epoch
    whole = [(place / "bootstrap.checkpoint").read_bytes() for place in into]
    assert states_of(restore(SOURCES, into, topics="g-compact", new_cluster=True)) == {"there"}
    (fewer,) = restore(SOURCES, into, topics="g-compact", new_cluster=True, replication_factor=1).partitions
    assert fewer.state == "refused"
    assert "more than --replication-factor 1" in (fewer.reason or "")
    (absent,) = restore(SOURCES, into[:2], topics="g-compact", new_cluster=True).partitions
    assert absent.state == "refused"
    assert "broker 3" in (absent.reason or "")
    assert [(place / "bootstrap.checkpoint").read_bytes() for place in into] == whole


@pytest.mark.parametrize("first", [0, 1])
def test_a_disk_that_comes_later(first: int, tmp_path: Path) -> None:
    """Its partition began empty with leader epoch 0: then the epoch is above that of its records, and the other partition stays as it is."""
    into = formatted(tmp_path / "new")
    file = into / "bootstrap.checkpoint"
    both = disks(tmp_path)
    metadata = CLEAN / "metadata-dir"
    report = restore([both[first], metadata], into, topics="g-epochs", new_cluster=True)
    assert report.missing == (("g-epochs", 1 - first),)
    before = partitions(file)
    report = restore([both[1 - first], metadata], into, topics="g-epochs", new_cluster=True)
    assert states_of(report) == {"restored"}
    (topic,) = (topic for topic in metadata_of(SOURCES).topics if topic.name == "g-epochs")
    raw = uuid_bytes(topic.topic_id or "")
    after = partitions(file)
    assert set(after) == set(before) == {(raw, 0), (raw, 1)}
    assert after[raw, first] == before[raw, first]
    for number in (0, 1):
        with Log.open(into / f"g-epochs-{number}") as log:
            assert after[raw, number].leader_epoch > max(record.leader_epoch for record in log.scan())
        last = (CLEAN_LOG_DIRS[0] / f"g-epochs-{number}" / "leader-epoch-checkpoint").read_text().split()[-2]
        assert after[raw, number].leader_epoch == int(last) + 1
        assert after[raw, number]._replace(leader_epoch=0) == before[raw, number]._replace(leader_epoch=0)
    whole = file.read_bytes()
    assert states_of(restore([*both, metadata], into, topics="g-epochs", new_cluster=True)) == {"there"}
    assert file.read_bytes() == whole


def test_retention_of_an_earlier_disk_stays_in_the_file(tmp_path: Path) -> None:
    """The second disk has only new records, and says nothing about how old those of the first one are."""
    into = formatted(tmp_path / "new")
    file = into / "bootstrap.checkpoint"
    one, two = disks(tmp_path)
    identity = (two / "g-epochs-1" / "partition.metadata").read_bytes()
    shutil.rmtree(two / "g-epochs-1")
    with Log.open(two / "g-epochs-1", "a") as log:
        log.append(b"new", timestamp=time.time_ns() // 1_000_000)
    (two / "g-epochs-1" / "partition.metadata").write_bytes(identity)
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=1\nprocess.roles=broker,controller\ncontroller.quorum.voters=1@localhost:9093\nlog.dirs={into}\n")
    metadata = CLEAN / "metadata-dir"
    how: dict[str, Any] = {"topics": "g-epochs", "new_cluster": True, "broker": properties}
    restore([one, metadata], into, **how)
    assert settings(file, "g-epochs")["retention.ms"] == b"-1"
    report = restore([two, metadata], into, **how)
    assert states_of(report) == {"restored"}
    assert settings(file, "g-epochs")["retention.ms"] == b"-1"
    assert ["an earlier restore set retention.ms=-1" in each.reason for each in report.remaining if each.about == "g-epochs"] == [True]
    restore([two, metadata], into, keep_retention=True, **how)
    assert "retention.ms" not in settings(file, "g-epochs")


def test_what_retention_was_kept_from_is_told_again(tmp_path: Path) -> None:
    """The first call may have ended behind the file, and have told nobody. Nothing else says what the topic had."""
    into = formatted(tmp_path / "new")
    one, two = disks(tmp_path)
    how: dict[str, Any] = {"topics": "g-epochs", "new_cluster": True}

    def commands(**more: Any) -> list[str]:  # noqa: ANN401  # options
        report = restore([one, two], into, **how, **more)
        told = [each for each in report.remaining if each.about == "g-epochs"]
        return [command for each in told for command in each.commands if "retention.ms" in command]

    first = commands()
    assert first
    assert settings(into / "bootstrap.checkpoint", "g-epochs")["retention.ms"] == b"-1"
    assert commands() == first
    assert commands(dry_run=True) == first
    assert commands(keep_retention=True) == first


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_what_compaction_was_kept_from_is_told_again(policy: str, tmp_path: Path) -> None:
    """The topic would grow for ever, and nobody would know how to change that."""
    into = formatted(tmp_path / "new")
    one, two = disks(tmp_path)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.cleanup.policy={policy}\n")
    how: dict[str, Any] = {"topics": "g-epochs", "new_cluster": True, "broker": properties}

    def commands(**more: Any) -> list[str]:  # noqa: ANN401  # options
        report = restore([one, two], into, **how, **more)
        told = [each for each in report.remaining if each.about == "g-epochs"]
        return [command for each in told for command in each.commands if "cleanup.policy" in command]

    first = commands()
    assert bool(first) == (policy == "compact")
    assert settings(into / "bootstrap.checkpoint", "g-epochs").get("cleanup.policy") == (b"delete" if first else None)
    assert commands() == first
    assert commands(dry_run=True) == first
    assert commands(keep_retention=True) == first


def test_a_policy_stays_while_that_of_the_brokers_is_not_known(tmp_path: Path) -> None:
    """The first call knew by `broker` that they compact. One that does not know this does not give them what was never compacted."""
    into, old, identity = formatted(tmp_path / "new"), tmp_path / "old", bytes(range(1, 17))
    with Log.open(old / "orders-0", "a") as log:
        log.append(b"value", timestamp=time.time_ns() // 1_000_000)
    (old / "orders-0" / ".offsetlog.config").unlink()
    told = [metadata_records.topic("orders", identity), metadata_records.partition(identity, 0, (1,))]
    sources = [old, metadata_records.write(tmp_path / "metadata", told)]
    properties = {policy: tmp_path / f"{policy}.properties" for policy in ("compact", "delete")}
    for policy, file in properties.items():
        file.write_text(f"log.cleanup.policy={policy}\n")

    def policies(**more: Any) -> tuple[bytes | None, list[str]]:  # noqa: ANN401  # options
        report = restore(sources, into, new_cluster=True, **more)
        commands = [command for each in report.remaining if each.about == "orders" for command in each.commands]
        changes = [command.partition("--entity-name orders ")[2] for command in commands if "cleanup.policy" in command]
        return settings(into / "bootstrap.checkpoint", "orders").get("cleanup.policy"), changes

    stays = (b"delete", ["--delete-config cleanup.policy"])
    assert policies(broker=properties["compact"]) == stays
    assert policies() == stays
    assert policies(dry_run=True) == stays
    assert policies() == stays
    assert policies(broker=properties["delete"]) == (None, [])
    assert policies() == (None, [])
    assert policies(broker=properties["compact"]) == stays
    # Who wants it as it was has it so, and is told what that may mean.
    assert policies(keep_retention=True) == (None, ["--add-config cleanup.policy=delete"])


def test_what_kafka_itself_keeps_for_ever_is_not_to_be_taken_back(tmp_path: Path) -> None:
    """Share groups' state has retention.ms=-1 of its own."""
    into, source = formatted(tmp_path / "new"), tmp_path / "logs"
    with Log.open(source / "__share_group_state-0", "a") as log:
        log.append(b"state", key=b"group")
    for _ in range(2):
        report = restore(source, into, new_cluster=True, topics="__share_group_state")
        assert not [command for each in report.remaining for command in each.commands if "retention.ms" in command]
