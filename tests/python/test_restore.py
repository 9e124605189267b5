"""``restore``: golden brokers' disks into folders, formatted and stopped log dirs; what it refuses; what a killed one leaves."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import metadata_records
import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, CLEAN_PARTITIONS, OLD_LOG_DIRS, OLD_PARTITIONS, named, row, rows
from test_convert import check
from test_on_corrupt import PARTITIONS as TORN
from writing import environment, filled, times, tree

import offsetlog
from offsetlog import Log, LogDir, LogDirError, LogLockedError, RestoreReport, restore

SOURCES = [*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"]
NOW = 1_800_000_000_000


def formatted(place: Path, *, node: int = 1) -> Path:
    """A log dir as ``kafka-storage format`` of 4.3.0 leaves it."""
    place.mkdir(parents=True)
    text = (CLEAN / "metadata-dir" / "meta.properties").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("node.id", "directory.id"))]
    directory = f"{'ABCDEFGH'[node]}bcdefghijklmnopqrstuw"
    (place / "meta.properties").write_text("\n".join([*lines, f"node.id={node}", f"directory.id={directory}", ""]))
    shutil.copy(CLEAN / "metadata-dir" / "bootstrap.checkpoint", place)
    return place


def places_of(report: RestoreReport) -> dict[str, Path]:
    """Where each partition was restored to first."""
    return {f"{each.topic}-{each.partition}": Path(each.into[0].path) for each in report.partitions}


def states_of(report: RestoreReport) -> set[str]:
    return {each.state for each in report.partitions}


def metadata_values(file: Path) -> list[bytes]:
    """The values of the data records in a snapshot, read as a log."""
    folder = file.parent / "decoded-0"
    folder.mkdir()
    shutil.copy(file, folder / f"{0:020}.log")
    with Log.open(folder) as log:
        values = [record.value for record in log.scan()]
        ends = [(batch.base_offset, batch.last_offset + 1) for batch in log.batches()]
    shutil.rmtree(folder)
    assert [first for first, _ in ends] == [0, *(end for _, end in ends[:-1])], "offsets are dense, header and footer among them"
    return [value for value in values if value is not None]


def test_a_dead_brokers_disks_into_a_folder(tmp_path: Path) -> None:
    """Every partition with what a real consumer saw of it; the sources stay as they are; the second call finds all there."""
    before = [(tree(place), times(place)) for place in SOURCES]
    dry = restore(SOURCES, tmp_path / "new", dry_run=True)
    assert not (tmp_path / "new").exists()
    report = restore(SOURCES, tmp_path / "new")
    assert [(tree(place), times(place)) for place in SOURCES] == before
    assert (report.target, report.missing, report.left_out, states_of(report)) == ("folder", (), (), {"restored"})
    plan = [each._replace(state="restored") for each in dry.partitions]
    told = [each._replace(records=None, losses=(), first_unstable_offset=None) for each in report.partitions]
    assert (states_of(dry), plan) == ({"planned"}, told)
    places = places_of(report)
    assert sorted(places) == sorted(golden.name for golden in CLEAN_PARTITIONS)
    ids = {topic.name: topic.topic_id for topic in _metadata(SOURCES).topics}
    for golden in CLEAN_PARTITIONS:
        check(golden, places[golden.name])
        with Log.open(places[golden.name]) as log:
            assert (log.topic_id, log.last_stable_offset) == (ids[golden.topic], golden.last_stable_offset)
    assert not offsetlog.verify(tmp_path / "new").damaged
    whole = tree(tmp_path / "new")
    again = restore(SOURCES, tmp_path / "new")
    assert (states_of(again), again.has_losses) == ({"there"}, False)
    assert tree(tmp_path / "new") == whole


def _metadata(paths: Sequence[Path]) -> offsetlog.MetadataImage:
    with LogDir.open(paths) as log_dir:
        image = log_dir.metadata()
    assert image is not None
    return image


def test_the_best_of_three_replicas(tmp_path: Path) -> None:
    """Three brokers of 2.8.2, killed while replicas differed: of each partition the longest replica of the newest epoch."""
    report = restore(OLD_LOG_DIRS, tmp_path / "new")
    assert states_of(report) == {"restored"}
    for each in report.partitions:
        name = f"{each.topic}-{each.partition}"
        replicas = [golden for golden in OLD_PARTITIONS if golden.name == name]
        assert len(each.other_replicas) == len(replicas) - 1
        ends = {}
        for golden in replicas:
            with Log.open(golden.directory) as log:
                ends[str(golden.directory)] = (log.leader_epoch or -1, log.log_end_offset)
        assert ends[each.source] == max(ends.values())
        for golden in replicas:
            if str(golden.directory) == each.source:
                check(golden, Path(each.into[0].path))
        for other in each.other_replicas:
            assert (other.less == "has as much") == (ends[other.path] == ends[each.source])


def test_a_shorter_replica_of_a_newer_epoch_wins(tmp_path: Path) -> None:
    """The longer one has what the newer leader never had: records that were cut off in the cluster."""
    for place, counts in (("old", [(0, 5)]), ("new", [(0, 3), (1, 1)])):
        with Log.open(tmp_path / place / "orders-0", "a") as log:
            for epoch, count in counts:
                for number in range(count):
                    log.append(b"%d" % number, leader_epoch=epoch)
    report = restore([tmp_path / "old", tmp_path / "new"], tmp_path / "restored")
    (each,) = report.partitions
    assert Path(each.source).parent.name == "new"
    assert [other.less for other in each.other_replicas] == ["ends at offset 5 in leader epoch 0, before 1"]
    assert each.records == 4


@pytest.mark.parametrize("name", ["g-plain-0", "g-time-0", "g-txn-0", "g-codec-zstd-0", "g-compact-0"])
def test_up_to_a_time(name: str, tmp_path: Path) -> None:
    """Each partition ends before the first record at the time or later, also in the middle of a batch."""
    (golden,) = named(name)
    for number, query in enumerate(query for query in golden.time_queries if query.isolation_level == "read_uncommitted"):
        answer = query.answer
        end = golden.end if answer is None else answer[0]
        report = restore(golden.directory, tmp_path / str(number), until=query.when)
        (each,) = report.partitions
        assert (each.log_end_offset, each.is_cut) == (end, end < golden.end)
        with Log.open(each.into[0].path) as log:
            assert rows(log.scan()) == tuple(seen for seen in golden.rows if seen.offset < end)
            assert (log.log_end_offset, log.verify().damaged) == (end, False)
        assert states_of(restore(golden.directory, tmp_path / str(number), until=query.when)) == {"there"}


@pytest.mark.parametrize("name", ["g-codec-gzip-0", "g-txn-0", "g-idem-0", "g-compact-0"])
def test_up_to_any_offset(name: str, tmp_path: Path) -> None:
    """Wherever the end falls: every record before it, none behind, and a log that goes on there."""
    (golden,) = named(name)
    for end in range(golden.start, golden.end + 1, 7):
        into = tmp_path / str(end)
        (each,) = restore(golden.directory, into, ends={(golden.topic, golden.partition): end}).partitions
        with Log.open(each.into[0].path, "a") as log:
            assert (log.log_end_offset, log.recovery_report.clean) == (end, True)
            assert rows(log.scan()) == tuple(seen for seen in golden.rows if seen.offset < end)
            assert log.append(b"next") == end


def test_names_patterns_and_what_is_missing(tmp_path: Path) -> None:
    """Patterns as in a shell; a name that nobody has is refused; partitions that no source has are told."""
    report = restore(SOURCES, tmp_path / "a", topics=["g-codec-*", "g-tim?"], dry_run=True)
    assert {each.topic for each in report.partitions} == {
        golden.topic for golden in CLEAN_PARTITIONS if golden.topic.startswith("g-codec-") or golden.topic == "g-time"
    }
    with pytest.raises(ValueError, match="g-nobody"):
        restore(SOURCES, tmp_path / "a", topics=["g-plain", "g-nobody"])
    report = restore([SOURCES[0], SOURCES[2]], tmp_path / "a", topics="g-plain", dry_run=True)
    assert ([each.partition for each in report.partitions], report.missing) == ([0, 2], (("g-plain", 1),))
    assert report.has_losses
    gone = restore(SOURCES[2], tmp_path / "a", topics="g-plain", dry_run=True)
    assert (gone.partitions, [each.partition for each in gone.missing]) == ((), [0, 1, 2])


@pytest.mark.parametrize("name", ["g-torn-flip-old-0", "g-torn-cut-batch-0"])
def test_damage_is_told_and_the_rest_restored(name: str, tmp_path: Path) -> None:
    """As salvage: what a skipping scan reads, and what is lost."""
    golden = TORN[name]
    report = restore(golden.directory, tmp_path / "new")
    (each,) = report.partitions
    with Log.open(golden.directory) as source, Log.open(each.into[0].path) as log:
        assert list(map(row, log.scan())) == list(map(row, source.scan(on_corrupt="skip")))
    assert report.has_losses == bool(each.losses) == (each.loss_count > 0)
    assert {each.state for each in restore(golden.directory, tmp_path / "new").partitions} == {"there"}


def test_a_new_cluster_gets_its_topics_before_it_starts(tmp_path: Path) -> None:
    """`bootstrap.checkpoint` keeps what it had, and has each topic with id, partitions and settings; once, however often it runs."""
    into = [formatted(tmp_path / "one"), formatted(tmp_path / "two")]
    (tmp_path / "two" / "bootstrap.checkpoint").unlink()
    formatted_values = metadata_values(into[0] / "bootstrap.checkpoint")
    report = restore(SOURCES, into, new_cluster=True)
    assert (report.target, report.bootstrap_checkpoints) == ("new-cluster", (str(into[0] / "bootstrap.checkpoint"),))
    values = metadata_values(into[0] / "bootstrap.checkpoint")
    assert values[: len(formatted_values)] == formatted_values
    new = values[len(formatted_values) :]
    image = _metadata(SOURCES)
    for topic in image.topics:
        raw = _uuid(topic.topic_id or "")
        assert new.count(metadata_records.topic(topic.name, raw)) == 1
    of_partitions = [value for value in new if value.startswith(b"\1\3\1")]
    assert len(of_partitions) == len(CLEAN_PARTITIONS)
    epochs = {value[3:23]: value for value in of_partitions}
    assert len(epochs) == len(of_partitions)
    plain = next(topic for topic in image.topics if topic.name == "g-compact")
    for key, value in image.configs["topic", "g-compact"].items():
        assert new.count(metadata_records.config("topic", plain.name, key, value)) == 1
    # Kafka hands out no id below it: those of the old cluster's producers, the open transaction's is 1000.
    (ids,) = (value for value in new if value.startswith(b"\1\17\0"))
    assert int.from_bytes(ids[15:23]) > 1000
    assert {(tmp_path / place / ".kafka_cleanshutdown").exists() for place in ("one", "two")} == {True}
    whole = tree(tmp_path)
    assert not restore(SOURCES, into, new_cluster=True).has_losses
    assert tree(tmp_path) == whole


def _uuid(text: str) -> bytes:
    import base64

    return base64.urlsafe_b64decode(text + "==")


def test_retention_does_not_delete_what_was_just_restored(tmp_path: Path) -> None:
    """Old records: the topic keeps them until somebody sets retention back, with the command that is told; or it is as it was."""
    into = formatted(tmp_path / "one")
    report = restore(SOURCES, into, topics=["g-plain", "g-retained-bytes"], new_cluster=True)
    values = metadata_values(into / "bootstrap.checkpoint")
    assert metadata_records.config("topic", "g-plain", "retention.ms", "-1") in values
    commands = [command for each in report.remaining for command in each.commands]
    assert any("--entity-name g-plain --delete-config retention.ms" in command for command in commands)
    kept = formatted(tmp_path / "two")
    restore(SOURCES, kept, topics=["g-plain"], new_cluster=True, keep_retention=True)
    assert metadata_records.config("topic", "g-plain", "retention.ms", "-1") not in metadata_values(kept / "bootstrap.checkpoint")


def test_retention_that_nobody_knows_deletes_nothing(tmp_path: Path) -> None:
    """New records, and brokers of which nothing is known: they may keep an hour, or a megabyte."""
    with Log.open(tmp_path / "old" / "orders-0", "a") as log:
        log.append(b"value")
    (tmp_path / "server.properties").write_text("log.retention.hours=1\n")
    for number, (broker, expected) in enumerate(((None, True), (tmp_path / "server.properties", False))):
        into = formatted(tmp_path / str(number))
        report = restore(tmp_path / "old", into, broker=broker, new_cluster=True)
        values = metadata_values(into / "bootstrap.checkpoint")
        for setting in ("retention.ms", "retention.bytes"):
            assert (metadata_records.config("topic", "orders", setting, "-1") in values) == expected
            assert any(setting in command for each in report.remaining for command in each.commands) == expected


def test_a_topic_without_any_partition_here_begins_empty(tmp_path: Path) -> None:
    """It is told as missing, and the new cluster has it all the same, with its id and settings."""
    into = formatted(tmp_path / "one")
    report = restore(SOURCES[2], into, topics="g-compact", new_cluster=True)
    assert (report.partitions, report.missing) == ((), (("g-compact", 0),))
    values = metadata_values(into / "bootstrap.checkpoint")
    image = _metadata(SOURCES)
    (topic,) = (topic for topic in image.topics if topic.name == "g-compact")
    assert metadata_records.topic("g-compact", _uuid(topic.topic_id or "")) in values
    assert sum(value.startswith(b"\1\3\1") for value in values) == 1


def test_retention_looks_behind_segments_that_compaction_emptied(tmp_path: Path) -> None:
    """Their policy is not known without metadata, and their first segments have no record whose age would tell."""
    (tmp_path / "server.properties").write_text("# Kafka's defaults\n")
    report = restore(OLD_LOG_DIRS, formatted(tmp_path / "one"), broker=tmp_path / "server.properties", new_cluster=True)
    values = metadata_values(tmp_path / "one" / "bootstrap.checkpoint")
    kept = {
        topic
        for topic in {each.topic for each in report.partitions}
        if metadata_records.config("topic", topic, "retention.ms", "-1") in values
    }
    old = {golden.topic for golden in OLD_PARTITIONS if any(0 <= seen.timestamp < 1_710_000_000_000 for seen in golden.rows)}
    untimed = {golden.topic for golden in OLD_PARTITIONS if not any(seen.timestamp >= 0 for seen in golden.rows)}
    assert "o-v2-compact" in old
    assert old <= kept
    assert untimed
    assert not untimed & kept, "a broker takes the time of the new file"


def test_replicas_in_a_new_cluster(tmp_path: Path) -> None:
    """Each replica is a copy of its own; a cluster with fewer brokers gets fewer."""
    into = [formatted(tmp_path / str(node), node=node) for node in (1, 2, 3)]
    report = restore(SOURCES, into, topics=["g-plain"], new_cluster=True, replication_factor=2)
    nodes = [tuple(place.node_id for place in each.into) for each in report.partitions]
    assert len({node for pair in nodes for node in pair}) == 3
    for each in report.partitions:
        (golden,) = named(f"g-plain-{each.partition}")
        assert len(set(each.into)) == 2
        for place in each.into:
            check(golden, Path(place.path))
    one = restore(SOURCES, formatted(tmp_path / "alone"), topics=["g-plain"], new_cluster=True, replication_factor=3, dry_run=True)
    assert {len(each.into) for each in one.partitions} == {1}


def stopped(place: Path, *, epoch: int = 7, node: int = 1, replicas: Sequence[int] = (1,)) -> tuple[Path, Path]:
    """A stopped broker's log dir, and its metadata: it has the topic `g-epochs` of another id, without a record."""
    log_dir = formatted(place / "logs", node=node)
    (log_dir / "bootstrap.checkpoint").unlink()
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    metadata = place / "metadata"
    topic_id = bytes(range(1, 17))
    body = [metadata_records.topic("g-epochs", topic_id)]
    for number in (0, 1):
        record = bytearray(metadata_records.partition(topic_id, number, replicas))
        # leader, leader epoch, partition epoch and the tags end it.
        record[-9:-5] = epoch.to_bytes(4)
        body.append(bytes(record))
    metadata_records.write(metadata, body)
    for number in (0, 1):
        with Log.open(log_dir / f"g-epochs-{number}", "a", topic_id="AQIDBAUGBwgJCgsMDQ4PEA", single_replica=True):
            pass
    return log_dir, metadata


@pytest.mark.parametrize("epoch", [7, 4, 3, 1, 0])
def test_leader_epochs_that_the_cluster_takes(epoch: int, tmp_path: Path) -> None:
    """Kept, where the cluster's is not below; else counted anew, so that the history stays as long as it can."""
    log_dir, metadata = stopped(tmp_path, epoch=epoch)
    report = restore(SOURCES, log_dir, topics=["g-epochs"], metadata=metadata)
    assert (report.target, states_of(report)) == ("stopped-broker", {"restored"})
    for each in report.partitions:
        (golden,) = named(f"g-epochs-{each.partition}")
        with Log.open(each.into[0].path) as log:
            assert log.topic_id == "AQIDBAUGBwgJCgsMDQ4PEA"
            found = rows(log.scan())
            assert [seen._replace(leader_epoch=0) for seen in found] == [seen._replace(leader_epoch=0) for seen in golden.rows]
            had = [seen.leader_epoch for seen in golden.rows]
            if epoch >= 4:
                expected = had
            else:
                order = sorted(set(had))
                expected = [min(order.index(each), epoch) for each in had]
            assert [seen.leader_epoch for seen in found] == expected
            assert log.verify().damaged is False
    whole = tree(log_dir)
    assert states_of(restore(SOURCES, log_dir, topics=["g-epochs"], metadata=metadata)) == {"there"}
    assert tree(log_dir) == whole
    assert (log_dir / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":3}'


def _as(place: Path, *, node: int) -> None:
    text = (place / "meta.properties").read_text().replace("node.id=1", f"node.id={node}")
    (place / "meta.properties").write_text(text)


REFUSALS: dict[str, tuple[str, Callable[[Path, Path], RestoreReport]]] = {
    "the cluster has started": (
        "has started already",
        lambda log_dir, metadata: restore(SOURCES, log_dir, metadata=metadata, new_cluster=True),
    ),
    "a source": ("holds the source", lambda log_dir, metadata: restore([log_dir, metadata], log_dir)),
    "a folder of a source": ("holds the source", lambda log_dir, _: restore(log_dir, log_dir / "deeper")),
    "around a source": ("holds the source", lambda log_dir, _: restore(log_dir, log_dir.parent)),
    "a partition": ("not a partition|a log dir expected", lambda log_dir, _: restore(SOURCES, log_dir / "g-epochs-0")),
    "no metadata of a new cluster": (
        "bootstrap.checkpoint",
        lambda log_dir, _: restore(SOURCES, log_dir, new_cluster=True),
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_change_nothing(case: str, tmp_path: Path) -> None:
    """Each says what is wrong."""
    log_dir, metadata = stopped(tmp_path)
    before = tree(tmp_path)
    match, act = REFUSALS[case]
    with pytest.raises(LogDirError, match=match):
        act(log_dir, metadata)
    assert tree(tmp_path) == before


def test_partitions_that_a_stopped_broker_cannot_take(tmp_path: Path) -> None:
    """Not in the cluster, of other brokers too, not empty: each is told, with what to do, and the others are restored."""
    log_dir, metadata = stopped(tmp_path / "a")
    report = restore(SOURCES, log_dir, topics=["g-epochs", "g-plain"], metadata=metadata)
    assert {(each.topic, each.state) for each in report.partitions} == {("g-epochs", "restored"), ("g-plain", "refused")}
    assert all("make it with kafka-topics.sh" in (each.reason or "") for each in report.partitions if each.topic == "g-plain")
    other, metadata = stopped(tmp_path / "b", replicas=(1, 2))
    before = tree(other)
    report = restore(SOURCES, other, topics=["g-epochs"], metadata=metadata)
    assert states_of(report) == {"refused"}
    assert all("broker 2" in (each.reason or "") for each in report.partitions)
    assert {name: data for name, data in tree(other).items() if "offsetlog" not in name and ".lock" not in name} == {
        name: data for name, data in before.items() if "offsetlog" not in name and ".lock" not in name
    }
    alone = restore(SOURCES, other, topics=["g-epochs"], metadata=metadata, single_replica=True)
    assert states_of(alone) == {"restored"}
    assert any("broker 2" in each.reason for each in alone.remaining)
    used, metadata = stopped(tmp_path / "c")
    with Log.open(used / "g-epochs-0", "a", single_replica=True) as log:
        log.append(b"new record of the new topic", leader_epoch=7)
    report = restore(SOURCES, used, topics=["g-epochs"], metadata=metadata)
    assert [each.state for each in report.partitions] == ["refused", "restored"]
    with Log.open(used / "g-epochs-0") as log:
        assert [record.value for record in log.scan()] == [b"new record of the new topic"]


def test_an_empty_partition_with_records_set_aside_is_not_replaced(tmp_path: Path) -> None:
    """Recovery cut them off and kept them: they would go with the directory."""
    log_dir, metadata = stopped(tmp_path)
    kept = log_dir / "g-epochs-0" / "offsetlog-cut"
    kept.mkdir()
    data = (CLEAN_LOG_DIRS[0] / "g-epochs-0" / f"{0:020}.log").read_bytes()
    (kept / f"{0:020}.log.0").write_bytes(data)
    report = restore(SOURCES, log_dir, topics=["g-epochs"], metadata=metadata)
    assert [each.state for each in report.partitions] == ["refused", "restored"]
    assert "set aside" in (report.partitions[0].reason or "")
    assert (kept / f"{0:020}.log.0").read_bytes() == data


def test_without_any_metadata(tmp_path: Path) -> None:
    """The empty directories of a stopped broker tell ids and places; no leader is known, so epochs begin at 0."""
    log_dir, _ = stopped(tmp_path)
    report = restore(CLEAN_LOG_DIRS, log_dir, topics=["g-epochs"])
    assert states_of(report) == {"restored"}
    for each in report.partitions:
        with Log.open(each.into[0].path) as log:
            assert log.topic_id == "AQIDBAUGBwgJCgsMDQ4PEA"
            assert {seen.leader_epoch for seen in log.scan()} == {0}


def test_a_running_broker_is_not_restored_into(tmp_path: Path) -> None:
    """It holds the lock of its log dir."""
    log_dir, metadata = stopped(tmp_path)
    program = (
        "import fcntl, sys, time\nlock = open(sys.argv[1], 'w')\nfcntl.lockf(lock, fcntl.LOCK_EX)\nprint(flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(log_dir / ".lock")], stdout=subprocess.PIPE) as broker:
        try:
            assert broker.stdout is not None
            broker.stdout.readline()
            before = tree(log_dir)
            with pytest.raises(LogLockedError):
                restore(SOURCES, log_dir, topics=["g-epochs"], metadata=metadata)
            assert tree(log_dir) == before
        finally:
            broker.kill()


def test_what_cannot_be_opened_keeps_a_new_cluster_waiting(tmp_path: Path) -> None:
    """It is no partition that begins empty: the topics are not written before it is restored, or left out."""
    shutil.copytree(CLEAN_LOG_DIRS[0], tmp_path / "old")
    shutil.rmtree(tmp_path / "old" / "g-plain-0")
    (tmp_path / "old" / "g-plain-0").write_text("no folder")
    (tmp_path / "old" / "g-plain-0").rename(tmp_path / "old" / "aside")
    (tmp_path / "old" / "g-plain-0").mkdir()
    ((tmp_path / "old" / "g-plain-0") / f"{0:020}.log").mkdir()
    into = formatted(tmp_path / "one")
    before = (into / "bootstrap.checkpoint").read_bytes()
    report = restore(tmp_path / "old", into, topics=["g-plain"], new_cluster=True)
    states = {each.partition: each.state for each in report.partitions}
    assert states[2] == "restored"
    assert states[0] in {"refused", "failed"}
    assert report.has_losses
    assert (into / "bootstrap.checkpoint").read_bytes() == before
    assert report.warnings


def test_settings_that_may_not_be_all_are_not_stored(tmp_path: Path) -> None:
    """By the topic's own alone, a later upkeep of the folder would take Kafka's defaults for the rest, and delete."""
    report = restore(SOURCES, tmp_path / "new", topics=["g-plain", "g-compact"])
    for each in report.partitions:
        assert not (Path(each.into[0].path) / ".offsetlog.config").exists()
    with LogDir.open(tmp_path / "new", "a") as log_dir:
        before = log_dir.end_offsets(), log_dir.beginning_offsets()
        log_dir.log("g-plain", 0)
        log_dir.maintain(now=4_000_000_000_000)
        assert (log_dir.end_offsets(), log_dir.beginning_offsets()) == before
    with Log.open(tmp_path / "own" / "orders-0", "a", {"retention.ms": -1}) as log:
        log.append(b"value")
    (each,) = restore(tmp_path / "own", tmp_path / "kept").partitions
    stored = (tmp_path / "own" / "orders-0" / ".offsetlog.config").read_bytes()
    assert b"retention.ms" in stored
    assert (Path(each.into[0].path) / ".offsetlog.config").read_bytes() == stored


def test_what_a_broker_set_aside_is_told(tmp_path: Path) -> None:
    """It holds records, and somebody may look for them."""
    (tmp_path / "old").mkdir()
    for name in ("g-plain-0", f"g-plain-2.{'0' * 32}-stray", f"g-epochs-0.{'1' * 32}-delete"):
        shutil.copytree(CLEAN_LOG_DIRS[0] / name.partition(".")[0], tmp_path / "old" / name)
    report = restore(tmp_path / "old", tmp_path / "new")
    assert [(each.topic, each.partition) for each in report.partitions] == [("g-plain", 0)]
    assert sorted(("-stray" in warning, "-delete" in warning) for warning in report.warnings) == [(False, True), (True, False)]


def test_log_dirs_of_two_clusters(tmp_path: Path) -> None:
    """Nobody serves topics whose halves are in two clusters."""
    into = [formatted(tmp_path / "one"), formatted(tmp_path / "two", node=2)]
    properties = into[1] / "meta.properties"
    properties.write_text(
        "\n".join("cluster.id=other" if line.startswith("cluster.id") else line for line in properties.read_text().splitlines())
    )
    with pytest.raises(LogDirError, match=r"cluster\.id"):
        restore(SOURCES, into, topics=["g-plain"], new_cluster=True)


def test_progress_and_its_end(tmp_path: Path) -> None:
    """It is told of every partition, and what it raises ends the work: what is whole stays, the rest comes with the next call."""
    for number in range(3):
        filled(tmp_path / "old" / f"orders-{number}")
        with Log.open(tmp_path / "old" / f"orders-{number}", "a") as log:
            for _ in range(30):
                log.append(bytes(100_000))
    seen: list[tuple[int, int, str]] = []

    def tell(done: int, total: int, name: str) -> None:
        seen.append((done, total, name))
        if name == "orders-1":
            raise KeyError(name)

    with pytest.raises(KeyError):
        restore(tmp_path / "old", tmp_path / "new", progress=tell)
    assert {name for _, _, name in seen} == {"orders-0", "orders-1"}
    assert all(done <= total for done, total, _ in seen)
    report = restore(tmp_path / "old", tmp_path / "new")
    assert [each.state for each in report.partitions] == ["there", "restored", "restored"]


def shell(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", "restore", *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)


def test_the_command(tmp_path: Path) -> None:
    """The same from a shell: the plan first, then what became of it; JSON beside text; exit codes."""
    done = shell(*SOURCES, "--into", tmp_path / "a", "-t", "g-plain", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "plan: 3 partitions into a folder of no broker, 83K to read"
    assert not (tmp_path / "a").exists()
    offsets = tmp_path / "offsets.csv"
    offsets.write_text('g-plain,0,10\n"g-plain","1",20\n')
    done = shell(*SOURCES, "--into", tmp_path / "a", "-t", "g-plain", "--offsets", offsets, "--json")
    *lines, whole = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0
    assert [(line["topic"], line["partition"], line["state"], line["log_end_offset"]) for line in lines] == [
        ("g-plain", 0, "restored", 10),
        ("g-plain", 1, "restored", 20),
        ("g-plain", 2, "restored", 200),
    ]
    assert (whole["target"], whole["missing"]) == ("folder", [])
    done = shell(SOURCES[0], "--into", tmp_path / "b", "-t", "g-plain")
    assert done.returncode == 3
    assert "missing: g-plain-1 is in none of the sources\n" in done.stdout
    assert shell(*SOURCES, "--into", tmp_path / "c", "-t", "nobody").returncode == 2
    offsets.write_text("g-plain,0\n")
    bad = shell(*SOURCES, "--into", tmp_path / "c", "--offsets", offsets)
    assert (bad.returncode, "topic,partition,offset expected" in bad.stderr) == (2, True)


KILLS = 100


@pytest.mark.proof
def test_a_killed_restore_goes_on(tmp_path: Path) -> None:
    """Killed a hundred times at random moments: whole partitions or none, no topic before its records, and the last run ends it."""
    into = formatted(tmp_path / "one")
    bootstrap = (into / "bootstrap.checkpoint").read_bytes()
    chance = random.Random(20_261_125)
    command = [sys.executable, "-m", "offsetlog", "restore", *map(str, SOURCES), "--into", str(into), "--new-cluster", "-q"]
    began = time.monotonic()
    subprocess.run([*command, "--dry-run"], env=environment(), check=True, capture_output=True)
    start_seconds = time.monotonic() - began
    partial = 0
    golden = {each.name: each for each in CLEAN_PARTITIONS}
    for number in range(KILLS):
        with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(start_seconds * chance.uniform(0.5, 2.5))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        there = [place for place in into.iterdir() if place.name in golden]
        if (into / "bootstrap.checkpoint").read_bytes() != bootstrap:
            assert len(there) == len(golden)
        for place in there:
            with Log.open(place) as log:
                assert (log.log_start_offset, log.log_end_offset) == (golden[place.name].start, golden[place.name].end)
        partial += 0 < len(there) < len(golden)
        if len(there) == len(golden) or number % 5 == 0:
            # Begins anew, with what a kill left beside it.
            for place in there:
                shutil.rmtree(place)
            (into / "bootstrap.checkpoint").write_bytes(bootstrap)
    subprocess.run(command, env=environment(), check=True, capture_output=True)
    for name, each in golden.items():
        check(each, into / name)
    leftover = {place.name for place in into.iterdir() if place.is_dir()} - golden.keys()
    assert all(name.endswith("-delete") for name in leftover), leftover
    assert partial > KILLS // 5, "kills that hit the middle of the work"
