"""``adopt``: what is odd about the directory, its topic and the cluster is a note, or a refusal."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import metadata_records as records
import pytest
from golden import CLEAN_LOG_DIRS
from test_metadata_again_settings import zookeeper
from test_restore_retention import ID, ID_TEXT, now, stopped
from writing import HOLD, running, tree

from offsetlog import ClusterError, Log, adopt, restore

UUID = "0123456789abcdef0123456789abcdef"


def with_zookeeper(place: Path, *, deleting: bool) -> tuple[Path, Path]:
    """ZooKeeper's data of a cluster that has `orders`, or is about to delete it, and a log dir of its broker."""
    topic = json.dumps({"version": 3, "partitions": {"0": [1]}, "topic_id": ID_TEXT})
    state = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1]}
    parents = dict.fromkeys(("/brokers", "/brokers/topics", "/config", "/config/topics", "/admin", "/admin/delete_topics", "/cluster"))
    nodes = {
        **parents,
        "/cluster/id": '{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}',
        "/brokers/topics/orders": topic,
        "/brokers/topics/orders/partitions": None,
        "/brokers/topics/orders/partitions/0": None,
        "/brokers/topics/orders/partitions/0/state": json.dumps(state),
        "/admin/delete_topics/" + ("orders" if deleting else "another"): None,
    }
    log_dir = place / "logs"
    log_dir.mkdir(parents=True)
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    return zookeeper(place / "zookeeper", nodes), log_dir


@pytest.mark.parametrize("deleting", [False, True])
def test_a_topic_that_is_about_to_be_deleted_takes_nothing(deleting: bool, tmp_path: Path) -> None:
    """The controller goes on with the deletion when it starts, whatever is in the topic then."""
    metadata, log_dir = with_zookeeper(tmp_path, deleting=deleting)
    with Log.open(tmp_path / "old" / "orders-0", "a", topic_id=ID_TEXT) as log:
        for _ in range(5):
            log.append(b"x", timestamp=now())
    stray = log_dir / f"orders-0.{UUID}-stray"
    shutil.copytree(tmp_path / "old" / "orders-0", stray)
    locks = (".lock", "offsetlog-shared.lock")
    before = tree(log_dir, without=locks)
    if deleting:
        with pytest.raises(ClusterError, match="/admin/delete_topics/orders"):
            adopt(stray, metadata=metadata)
    else:
        (dry,) = adopt(stray, metadata=metadata, dry_run=True)
        assert any('topic "another" is about to be deleted' in note for note in dry.notes)
    report = restore([tmp_path / "old"], [log_dir], metadata=[metadata], dry_run=deleting is False)
    (each,) = report.partitions
    assert each.state == ("refused" if deleting else "planned")
    assert ("/admin/delete_topics/orders" in (each.reason or "")) == deleting
    assert any("is about to be deleted" in warning for warning in report.warnings)
    assert tree(log_dir, without=locks) == before


def broken(place: Path, *configs: bytes) -> tuple[Path, Path, Path]:
    """A stopped broker's log dir without its `orders-0`, its metadata, and a directory of three segments of three records elsewhere."""
    log_dir, metadata = stopped(place, *configs)
    shutil.rmtree(log_dir / "orders-0")
    directory = place / "orders-0"
    with Log.open(directory, "a", topic_id="ZQIDBAUGBwgJCgsMDQ4PEA") as log:
        for segment in range(3):
            for number in range(3):
                log.append(b"x%d%d" % (segment, number), timestamp=now())
            log.roll()
    for path in directory.glob(".offsetlog*"):
        path.unlink()
    return log_dir, metadata, directory


def notes_of(directory: Path, metadata: Path, words: str) -> list[str]:
    """The notes with these words, which are the same of a dry run and of the real one."""
    (dry,) = adopt(directory, metadata=metadata, dry_run=True)
    before = [note for note in dry.notes if words in note]
    (done,) = adopt(directory, metadata=metadata)
    assert [note for note in done.notes if words in note] == before
    return before


@pytest.mark.parametrize("policy", [None, "delete", "compact"])
def test_a_lost_segment_is_told(policy: str | None, tmp_path: Path) -> None:
    configs = [records.config("topic", "orders", "cleanup.policy", policy)] if policy else []
    log_dir, metadata, directory = broken(tmp_path, *configs)
    for path in directory.glob(f"{3:020}.*"):
        path.unlink()
    stray = Path(shutil.move(directory, log_dir / f"orders-0.{UUID}-stray"))
    notes = notes_of(stray, metadata, "in no segment")
    # Compaction leaves such places, where the last records of a segment went.
    assert len(notes) == (policy != "compact")
    assert all(note.startswith("offsets 3 to 5 are in no segment: records are missing") for note in notes)


def test_a_lost_end_and_a_lost_start_are_told_before_their_lines_go(tmp_path: Path) -> None:
    log_dir, metadata, directory = broken(tmp_path)
    for base in (0, 6, 9):
        for path in directory.glob(f"{base:020}.*"):
            path.unlink()
    live = Path(shutil.move(directory, log_dir / "orders-0"))
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\norders 0 9\n")
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    (dry,) = adopt(live, metadata=metadata, dry_run=True)
    (done,) = adopt(live, metadata=metadata)
    assert done.notes == dry.notes
    assert any("ends at offset 6, and the high watermark of its log dir is 9" in note for note in done.notes)
    assert any("offsets 1 to 2 are not in this directory" in note for note in done.notes)
    assert "orders 0 9" not in (log_dir / "replication-offset-checkpoint").read_text()


def test_a_start_behind_the_end_is_told_and_goes(tmp_path: Path) -> None:
    log_dir, metadata, directory = broken(tmp_path)
    live = Path(shutil.move(directory, log_dir / "orders-0"))
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 12\n")
    notes = notes_of(live, metadata, "log start offset 12")
    assert notes == ["log start offset 12 is above the log end offset 9, and is not kept"]


def test_an_open_transaction_is_told(tmp_path: Path) -> None:
    """g-txn-0 has one that no marker ends, by FORMAT.md and by Kafka's own txnindex."""
    (golden,) = (place / "g-txn-0" for place in CLEAN_LOG_DIRS if (place / "g-txn-0").exists())
    log_dir, _ = stopped(tmp_path)
    body = [records.topic("g-txn", ID), records.partition(ID, 0, (1,))]
    metadata = records.write(tmp_path / "two", body)
    stray = log_dir / f"g-txn-0.{UUID}-stray"
    shutil.copytree(golden, stray)
    with Log.open(golden) as log:
        first, end = log.last_stable_offset, log.log_end_offset
    assert first < end
    notes = notes_of(stray, metadata, "a transaction is open")
    assert len(notes) == 1
    assert notes[0].startswith(f"a transaction is open from offset {first} on, ")


@pytest.mark.parametrize("high_watermark", [0, 5, 9])
def test_what_is_not_replicated_yet_is_no_open_transaction(high_watermark: int, tmp_path: Path) -> None:
    """Beside a running broker read_committed ends at the high watermark."""
    log_dir, metadata, directory = broken(tmp_path)
    live = Path(shutil.move(directory, log_dir / "orders-0"))
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {high_watermark}\n")
    lock = log_dir / ".lock"
    lock.touch()
    with running(HOLD, lock):
        with Log.open(live) as log:
            assert log.last_stable_offset == high_watermark
        (adopted,) = adopt(live, metadata=metadata, dry_run=True)
    assert not [note for note in adopted.notes if "transaction" in note]


def test_segments_that_wait_for_their_deletion_are_told(tmp_path: Path) -> None:
    log_dir, metadata, directory = broken(tmp_path)
    for path in directory.glob(f"{0:020}.*"):
        path.rename(path.with_name(f"{path.name}.deleted"))
    (directory / f"{3:020}.log.deleted").write_bytes(b"no batch")
    stray = Path(shutil.move(directory, log_dir / f"orders-0.{UUID}-stray"))
    (note,) = notes_of(stray, metadata, "deletion")
    assert note.startswith("2 segments in it wait for their deletion, and go when it is taken in: ")
    assert f"{0:020}.log.deleted (offsets 0 to 2)" in note
    assert f"{3:020}.log.deleted (without a batch that can be read)" in note
    assert "copy these files first" in note
    assert not list((log_dir / "orders-0").glob("*.deleted"))


@pytest.mark.parametrize("next_id", [None, 10, 1_000_000])
def test_producer_ids_that_the_cluster_gives_out_again_are_told(next_id: int | None, tmp_path: Path) -> None:
    """Without a ProducerIdsRecord the first block begins at 0 (Kafka's ``ProducerIdControlManager``)."""
    (golden,) = (place / "g-txn-0" for place in CLEAN_LOG_DIRS if (place / "g-txn-0").exists())
    with Log.open(golden) as log:
        greatest = max(record.producer_id for record in log.scan())
    log_dir, _ = stopped(tmp_path)
    body = [records.topic("g-txn", ID), records.partition(ID, 0, (1,))]
    if next_id is not None:
        body.append(records.record(15, struct.pack(">iqq", 1, 1, next_id)))
    metadata = records.write(tmp_path / "two", body)
    stray = log_dir / f"g-txn-0.{UUID}-stray"
    shutil.copytree(golden, stray)
    (dry,) = adopt(stray, metadata=metadata, dry_run=True)
    told = [note for note in dry.notes if "producer ids" in note]
    assert len(told) == (next_id != 1_000_000)
    words = f"has producer ids up to {greatest}, and the cluster gives out ids from {next_id or 0} on"
    assert all(words in note for note in told)
    shutil.rmtree(stray)
    with Log.open(log_dir / "g-txn-0", "a", topic_id=ID_TEXT, single_replica=True):
        pass
    shutil.copytree(golden, tmp_path / "old" / "g-txn-0")
    report = restore([tmp_path / "old"], [log_dir], metadata=[metadata])
    told = [warning for warning in report.warnings if "producer ids" in warning]
    assert len(told) == (next_id != 1_000_000)
    assert all(words in warning for warning in told)


def test_records_without_a_producer_id_are_not_told(tmp_path: Path) -> None:
    log_dir, metadata, directory = broken(tmp_path)
    stray = Path(shutil.move(directory, log_dir / f"orders-0.{UUID}-stray"))
    assert not notes_of(stray, metadata, "producer ids")
