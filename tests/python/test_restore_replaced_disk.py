"""``restore`` into a stopped broker one of whose disks was replaced: no directory of the partitions is there, and the metadata says where they were."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterable
from pathlib import Path

import metadata_records
import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA, named, row
from restoring import SOURCES, formatted, metadata_of, places_of, states_of, uuid_bytes
from test_convert import check
from test_restore_unmounted import directory_id
from writing import tree

from offsetlog import Log, LogDir, RestoreReport, restore

NEW_ID = "ZZcdefghijklmnopqrstuw"


def replaced(root: Path, number: int) -> tuple[list[Path], Path]:
    """A copy of the golden broker with a new disk for that log dir, on which only its ``meta.properties`` is; and its metadata."""
    shutil.copytree(CLEAN, root)
    dirs = [root / "log-dir-1", root / "log-dir-2"]
    new = dirs[number - 1]
    properties = (new / "meta.properties").read_bytes()
    shutil.rmtree(new)
    new.mkdir()
    (new / "meta.properties").write_bytes(properties)
    return dirs, root / "metadata-dir"


def assigned(metadata: Path, dirs: Iterable[Path]) -> dict[str, Path]:
    """The log dir of each partition by the directory ids in the metadata of the real broker."""
    ids = {directory_id(each): each for each in dirs}
    return {
        f"{topic.name}-{each.partition}": ids[each.directories[0]]
        for topic in metadata_of([metadata]).topics
        for each in topic.partitions
        if each.directories[0] in ids
    }


def names_in(log_dir: Path) -> set[str]:
    """The partitions that the broker had there; those of its coordinators are restored only by name."""
    return {path.name for path in log_dir.glob("*-[0-9]*/") if not path.name.startswith("__") and not path.name.endswith("-delete")}


def parents(report: RestoreReport) -> dict[str, Path]:
    return {name: path.parent for name, path in places_of(report).items()}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("order", [1, -1], ids=["", "the other way round"])
def test_a_replaced_disk_gets_what_the_metadata_has_there(number: int, order: int, tmp_path: Path) -> None:
    """And nothing else: the real broker's metadata names the log dir of each replica by its id."""
    dirs, metadata = replaced(tmp_path / "broker", number)
    new = dirs[number - 1]
    names = names_in(CLEAN_LOG_DIRS[number - 1])
    plan = restore(SOURCES, dirs[::order], metadata=metadata, dry_run=True)
    assert tree(new).keys() == {"meta.properties"}
    report = restore(SOURCES, dirs[::order], metadata=metadata)
    assert (plan.target, report.target) == ("stopped-broker", "stopped-broker")
    assert parents(report) == parents(plan)
    where = assigned(metadata, dirs)
    assert parents(report) == {name: where[name] for name in parents(report)}
    states = {f"{each.topic}-{each.partition}": each.state for each in report.partitions}
    assert {name for name, state in states.items() if state == "restored"} == names
    assert {state for name, state in states.items() if name not in names} == {"there"}
    assert not report.has_losses
    # Those of the coordinators, by name.
    of_brokers = parents(restore(SOURCES, dirs, metadata=metadata, topics="__*", dry_run=True))
    assert len(of_brokers) == 4
    assert of_brokers == {name: where[name] for name in of_brokers}
    assert {path.name for path in new.iterdir() if path.is_dir()} == names
    for golden in CLEAN_PARTITIONS:
        if golden.name in names:
            check(golden, new / golden.name)
    whole = {name: data for name, data in tree(tmp_path).items() if ".lock" not in name}
    assert states_of(restore(SOURCES, dirs, metadata=metadata)) == {"there"}
    assert {name: data for name, data in tree(tmp_path).items() if ".lock" not in name} == whole


def test_a_disk_with_an_id_of_its_own_is_not_the_one_that_is_gone(tmp_path: Path) -> None:
    """The format tool gives a new disk a new id. Until the broker has said that the old one is gone, nothing is made in its place."""
    dirs, metadata = replaced(tmp_path / "broker", 2)
    properties = dirs[1] / "meta.properties"
    old_id = directory_id(dirs[1])
    properties.write_text(properties.read_text().replace(old_id, NEW_ID))
    before = tree(dirs[1])
    report = restore(SOURCES, dirs, metadata=metadata)
    gone = names_in(CLEAN_LOG_DIRS[1])
    refused = {f"{each.topic}-{each.partition}": each.reason or "" for each in report.partitions if each.state == "refused"}
    assert refused.keys() == gone
    for reason in refused.values():
        assert f"directory.id {old_id}" in reason
        assert "start the broker once without it" in reason
    assert {each.state for each in report.partitions} == {"refused", "there"}
    assert {name: data for name, data in tree(dirs[1]).items() if ".lock" not in name} == before
    assert report.has_losses


def shared_with(metadata: Path, topic: str, node: int) -> None:
    """The cluster has given each partition of the topic a second replica, on another broker."""
    (image,) = [each for each in metadata_of([metadata]).topics if each.name == topic]
    assert image.topic_id is not None
    changes = [
        metadata_records.replicas_change(
            uuid_bytes(image.topic_id), each.partition, (*each.replicas, node), map(uuid_bytes, (*each.directories, NEW_ID))
        )
        for each in image.partitions
    ]
    metadata_records.write(metadata, changes)
    (image,) = [each for each in metadata_of([metadata]).topics if each.name == topic]
    assert {each.replicas for each in image.partitions} == {(1, node)}


def told_of_others(report: RestoreReport) -> dict[str, tuple[str, tuple[str, ...]]]:
    """What remains to be done about replicas on other brokers."""
    return {each.about: (each.reason, each.commands) for each in report.remaining if "replicas" in each.reason}


@pytest.mark.parametrize("number", [1, 2])
def test_replicas_on_other_brokers_are_told_of(number: int, tmp_path: Path) -> None:
    """Nobody gave their disks. They would cut what is made on the new disk: it is refused, or their removal remains, in each call again."""
    dirs, metadata = replaced(tmp_path / "broker", number)
    new = dirs[number - 1]
    shared_with(metadata, "g-plain", 2)
    names = names_in(CLEAN_LOG_DIRS[number - 1])
    shared = {f"g-plain-{partition}" for partition in range(3)}
    assert names & shared
    report = restore(SOURCES, dirs, metadata=metadata)
    refused = {f"{each.topic}-{each.partition}": each.reason or "" for each in report.partitions if each.state == "refused"}
    assert refused.keys() == shared
    for reason in refused.values():
        assert "replicas on broker 2 too" in reason
        assert "kafka-reassign-partitions.sh" in reason
        assert "--single-replica" in reason
    assert (told_of_others(report), report.has_losses) == ({}, True)
    # All others, of which there is no replica elsewhere, are on the new disk now.
    assert {path.name for path in new.iterdir() if path.is_dir()} == names - shared
    plan = restore(SOURCES, dirs, metadata=metadata, single_replica=True, dry_run=True)
    assert {path.name for path in new.iterdir() if path.is_dir()} == names - shared
    report = restore(SOURCES, dirs, metadata=metadata, single_replica=True)
    states = {f"{each.topic}-{each.partition}": each.state for each in report.partitions}
    assert {name for name, state in states.items() if state == "restored"} == names & shared
    assert {state for name, state in states.items() if name not in names & shared} == {"there"}
    assert {path.name for path in new.iterdir() if path.is_dir()} == names
    for golden in CLEAN_PARTITIONS:
        if golden.name in names:
            check(golden, new / golden.name)
    again = restore(SOURCES, dirs, metadata=metadata, single_replica=True)
    assert states_of(again) == {"there"}
    for told in map(told_of_others, (plan, report, again)):
        assert told.keys() == shared
        for reason, commands in told.values():
            assert "replicas on broker 2 " in reason
            assert "if one of them leads, this one is cut to what it has" in reason
            assert [command.split()[0] for command in commands] == ["kafka-reassign-partitions.sh"]


def alone(place: Path, count: int) -> list[Path]:
    """Log dirs of one broker, each with an id of its own and nothing in it."""
    dirs = []
    for number in range(count):
        log_dir = formatted(place / f"disk-{number}")
        (log_dir / "bootstrap.checkpoint").unlink()
        text = (log_dir / "meta.properties").read_text()
        (log_dir / "meta.properties").write_text(text.replace(directory_id(log_dir), f"{'ABC'[number]}{NEW_ID[1:]}"))
        dirs.append(log_dir)
    return dirs


def without_directory_ids(place: Path, *topics: str) -> Path:
    """Metadata of these golden topics as before Kafka 3.7: no replica says in which log dir it is."""
    body: list[bytes] = []
    for topic in metadata_of(SOURCES).topics:
        if topic.name in topics:
            raw = base64.urlsafe_b64decode((topic.topic_id or "") + "==")
            body.append(metadata_records.topic(topic.name, raw))
            for each in topic.partitions:
                record = bytearray(metadata_records.partition(raw, each.partition, (1,)))
                # The leader epoch: one that takes those of the source.
                record[-9:-5] = (9).to_bytes(4)
                body.append(bytes(record))
    return metadata_records.write(place, body)


def bytes_of(name: str) -> int:
    (golden,) = named(name)
    return sum(path.stat().st_size for path in golden.directory.glob("*.log"))


@pytest.mark.parametrize("count", [2, 3])
def test_without_directory_ids_the_fullest_disk_gets_nothing(count: int, tmp_path: Path) -> None:
    """Each partition goes to the log dir with the fewest bytes by then, the first of equals."""
    dirs = alone(tmp_path, count)
    topics = ("g-big", "g-epochs", "g-plain", "g-time")
    metadata = without_directory_ids(tmp_path / "metadata", *topics)
    plan = restore(SOURCES, dirs, metadata=metadata, topics=topics, dry_run=True)
    report = restore(SOURCES, dirs, metadata=metadata, topics=topics)
    assert states_of(report) == {"restored"}
    filled = dict.fromkeys(dirs, 0)
    expected = {}
    for each in report.partitions:
        name = f"{each.topic}-{each.partition}"
        least = min(dirs, key=lambda log_dir: filled[log_dir])
        filled[least] += bytes_of(name)
        expected[name] = least
    assert parents(report) == expected == parents(plan)
    assert set(expected.values()) == set(dirs)
    for name, log_dir in expected.items():
        (golden,) = named(name)
        check(golden, log_dir / name)
    assert states_of(restore(SOURCES, dirs, metadata=metadata, topics=topics)) == {"there"}


def test_an_empty_directory_keeps_its_disk(tmp_path: Path) -> None:
    """The broker made it there; the emptier disk does not matter."""
    dirs = alone(tmp_path, 2)
    metadata = without_directory_ids(tmp_path / "metadata", "g-epochs")
    (golden,) = named("g-epochs-0")
    topic_id = (golden.directory / "partition.metadata").read_text().rpartition("topic_id: ")[2].strip()
    for number in (0, 1):
        with Log.open(dirs[1] / f"g-epochs-{number}", "a", topic_id=topic_id, single_replica=True):
            pass
    report = restore(SOURCES, dirs, metadata=metadata, topics="g-epochs")
    assert states_of(report) == {"restored"}
    assert parents(report) == {"g-epochs-0": dirs[1], "g-epochs-1": dirs[1]}


def test_a_broker_with_zookeeper_has_no_directory_ids(tmp_path: Path) -> None:
    """A real broker of 2.8.2 whose only disk was replaced by two: topics, ids and assignments are ZooKeeper's. It had no records."""
    old = Path(shutil.copytree(DATA / "kafka-2.8.2-zookeeper", tmp_path / "old"))
    for size, directory in enumerate(sorted((old / "log-dir").glob("*-[0-9]*/"))):
        with Log.open(directory, "a", metadata=old / "zookeeper", single_replica=True) as log:
            log.append_records([(b"key %d" % number, b"value") for number in range(size + 1)])
    dirs = [tmp_path / "one", tmp_path / "two"]
    for log_dir in dirs:
        log_dir.mkdir()
        shutil.copy(old / "log-dir" / "meta.properties", log_dir)
    report = restore(old / "log-dir", dirs, metadata=old / "zookeeper")
    assert report.target == "stopped-broker"
    names = {path.name for path in (old / "log-dir").glob("*-[0-9]*/")}
    assert set(places_of(report)) == names
    assert states_of(report) == {"restored"}
    filled = dict.fromkeys(dirs, 0)
    for each in report.partitions:
        name = f"{each.topic}-{each.partition}"
        least = min(dirs, key=lambda log_dir: filled[log_dir])
        assert parents(report)[name] == least, name
        filled[least] += sum(path.stat().st_size for path in (old / "log-dir" / name).glob("*.log"))
    with LogDir.open(old / "log-dir") as source, LogDir.open(dirs) as made:
        assert made.end_offsets() == source.end_offsets()
        found = sorted(map(row, made.scan()))
        assert found == sorted(map(row, source.scan()))
        assert len(found) == 1 + 2 + 3 + 4
        assert {path.parent for path in places_of(report).values()} == set(dirs)


def test_a_full_disk_gets_nothing_beside_a_new_one(tmp_path: Path) -> None:
    """What a log dir holds already counts, where no directory id tells."""
    dirs = alone(tmp_path, 2)
    metadata = without_directory_ids(tmp_path / "metadata", "g-epochs")
    (full,) = named("g-big-0")
    shutil.copytree(full.directory, dirs[0] / "other-0")
    (dirs[0] / "other-0" / "partition.metadata").unlink()
    report = restore(SOURCES, dirs, metadata=metadata, topics="g-epochs")
    assert states_of(report) == {"restored"}
    assert set(parents(report).values()) == {dirs[1]}


def test_a_call_after_a_killed_one_completes_the_recovery_points(tmp_path: Path) -> None:
    """The empty partition of a stopped broker has one of 0; a broker that starts with it reads all that was restored."""
    (log_dir,) = alone(tmp_path, 1)
    metadata = without_directory_ids(tmp_path / "metadata", "g-epochs")
    (golden,) = named("g-epochs-0")
    topic_id = (golden.directory / "partition.metadata").read_text().rpartition("topic_id: ")[2].strip()
    for number in (0, 1):
        with Log.open(log_dir / f"g-epochs-{number}", "a", topic_id=topic_id, single_replica=True):
            pass
    first = restore(SOURCES, log_dir, metadata=metadata, topics="g-epochs")
    checkpoint = log_dir / "recovery-point-offset-checkpoint"
    whole = checkpoint.read_text()
    assert {f"g-epochs {each.partition} {each.log_end_offset}" for each in first.partitions} <= set(whole.splitlines())
    # As a call leaves it that is killed when the directory is in place and its line not yet written.
    checkpoint.write_text("0\n2\ng-epochs 0 0\ng-epochs 1 40\n")
    assert states_of(restore(SOURCES, log_dir, metadata=metadata, topics="g-epochs")) == {"there"}
    assert checkpoint.read_text() == whole
