"""Directories of two topics under one name: one was deleted and created again, and a log dir that was away meanwhile has the first still."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

import metadata_records
import pytest

import offsetlog
import offsetlog.spark
from offsetlog import Log, LogDir, TopicPartition
from offsetlog.errors import LogDirError, OffsetLogError, UnreadPartitionsError

FIRST, AGAIN = uuid.UUID(int=0x4A_F7), uuid.UUID(int=0x1_4A_F8)


def name_of(topic_id: uuid.UUID) -> str:
    """A topic id as Kafka shows it."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def logged(folder: Path, topic_id: uuid.UUID, counts: dict[int, int], mark: bytes) -> Path:
    """A log dir with a topic `t` of so many records in these partitions, and one with a record beside it."""
    with LogDir.open(folder, "a") as log_dir:
        log_dir.create_topic("t", max(counts) + 1, topic_id=name_of(topic_id))
        log_dir.create_topic(f"beside-{mark.decode()}", 1)
        log_dir.log(f"beside-{mark.decode()}", 0).append(b"beside")
        for partition, count in counts.items():
            for _ in range(count):
                log_dir.log("t", partition).append(mark)
    for partition in range(max(counts) + 1):
        if partition not in counts:
            for path in (folder / f"t-{partition}").iterdir():
                path.unlink()
            (folder / f"t-{partition}").rmdir()
    return folder


@pytest.fixture
def replicas(tmp_path: Path) -> list[Path]:
    """The same partition, longer of the deleted topic."""
    return [logged(tmp_path / "away", FIRST, {0: 20}, b"deleted"), logged(tmp_path / "there", AGAIN, {0: 3}, b"current")]


@pytest.fixture
def partitions(tmp_path: Path) -> list[Path]:
    """The topic had more partitions before it was deleted."""
    return [logged(tmp_path / "there", AGAIN, {0: 3, 1: 2}, b"current"), logged(tmp_path / "away", FIRST, {2: 20}, b"deleted")]


def check_said(error: Exception | str, *log_dirs: Path) -> None:
    """Both ids and both places."""
    said = f"{error.path}: {error}" if isinstance(error, OffsetLogError) else str(error)
    for part in (name_of(FIRST), name_of(AGAIN), *map(str, log_dirs)):
        assert part in said


def values(records: Iterable[offsetlog.Record]) -> list[bytes | None]:
    return [record.value for record in records]


@pytest.mark.parametrize("turn", [1, -1])
def test_a_directory_of_another_topic_is_no_replica(replicas: list[Path], turn: int) -> None:
    """The longest would be the deleted topic's."""
    with LogDir.open(replicas[::turn]) as log_dir:
        with pytest.raises(LogDirError) as refused:
            log_dir.log("t", 0)
        check_said(refused.value, *replicas)
        with pytest.raises(UnreadPartitionsError) as unread:
            log_dir.end_offsets()
        assert unread.value.partial == {TopicPartition("beside-current", 0): 1, TopicPartition("beside-deleted", 0): 1}
        check_said(unread.value.failed[TopicPartition("t", 0)], *replicas)
    for options in ({"subscribe": "t"}, {"assign": '{"t":[0]}'}, {"subscribe": "t", "fail_on_data_loss": False}):
        with pytest.raises(LogDirError) as refused:
            offsetlog.spark.splits(replicas[::turn], **options)
        check_said(refused.value, *replicas)
    for log_dir_of, value, count in zip(replicas, (b"deleted", b"current"), (20, 3), strict=True):
        with LogDir.open(log_dir_of) as log_dir:
            assert values(log_dir.scan([("t", 0)])) == [value] * count


def test_the_clusters_metadata_says_which_one_is_the_topic(
    replicas: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = [metadata_records.topic("t", AGAIN.bytes), metadata_records.partition(AGAIN.bytes, 0, [1])]
    metadata = metadata_records.write(tmp_path / "cluster", records)
    with LogDir.open([*replicas, metadata]) as log_dir:
        assert values(log_dir.scan([("t", 0)])) == [b"current"] * 3
    (said,) = [message for message in caplog.messages if "left out" in message]
    check_said(said, replicas[0])


def test_the_topics_own_directory_cannot_be_read(replicas: list[Path], tmp_path: Path) -> None:
    """Then another topic's is not read in its place."""
    records = [metadata_records.topic("t", AGAIN.bytes), metadata_records.partition(AGAIN.bytes, 0, [1])]
    metadata = metadata_records.write(tmp_path / "cluster", records)
    (replicas[1] / "t-0/1.log").write_bytes(b"")
    with LogDir.open([*replicas, metadata]) as log_dir, pytest.raises(OffsetLogError, match=r"1\.log"):
        log_dir.log("t", 0)


def test_newer_metadata_names_another_topic(replicas: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def told(topic_id: uuid.UUID) -> Path:
        records = [metadata_records.topic("t", topic_id.bytes), metadata_records.partition(topic_id.bytes, 0, [1])]
        return metadata_records.write(tmp_path / "cluster", records)

    with LogDir.open([*replicas, told(FIRST)]) as log_dir:
        assert values(log_dir.log("t", 0).scan()) == [b"deleted"] * 20
        shutil.rmtree(tmp_path / "cluster")
        told(AGAIN)
        for _ in range(2):
            caplog.clear()
            log_dir.refresh()
            assert values(log_dir.log("t", 0).scan()) == [b"current"] * 3
            (said,) = [message for message in caplog.messages if "left out" in message]
            assert f"{replicas[0]}/t-0 is left out" in said


def test_metadata_of_a_third_topic_does_not_choose(replicas: list[Path], tmp_path: Path) -> None:
    third = uuid.UUID(int=0x33_33).bytes
    metadata = metadata_records.write(
        tmp_path / "cluster", [metadata_records.topic("t", third), metadata_records.partition(third, 0, [1])]
    )
    with LogDir.open([*replicas, metadata]) as log_dir, pytest.raises(LogDirError) as refused:
        log_dir.log("t", 0)
    check_said(refused.value, *replicas)


def test_a_directory_without_an_id_is_a_replica(replicas: list[Path]) -> None:
    """As of brokers before 2.8."""
    (replicas[0] / "t-0/partition.metadata").unlink()
    with LogDir.open(replicas) as log_dir:
        assert values(log_dir.scan([("t", 0)])) == [b"deleted"] * 20


def test_one_scan_does_not_return_two_topics_under_one_name(partitions: list[Path]) -> None:
    wanted = [("t", 0), ("t", 2), ("t", 1), ("beside-deleted", 0)]
    with LogDir.open(partitions) as log_dir:
        with pytest.raises(UnreadPartitionsError) as unread:
            log_dir.scan(wanted).count()
        assert unread.value.partial == 3 + 2 + 1
        check_said(unread.value.failed[TopicPartition("t", 2)], *partitions)
        scan = log_dir.scan(wanted, on_corrupt="skip")
        assert values(scan) == [b"current"] * 5 + [b"beside"]
        (hole,) = scan.report.holes
        check_said(hole.reason, partitions[0])
        assert hole.path == str(partitions[1] / "t-2")
        with pytest.raises(LogDirError) as refused:
            next(iter(log_dir.scan(wanted).follow(timeout_ms=1)))
        check_said(refused.value, *partitions)
        # Each by itself can be read.
        assert values(log_dir.scan([("t", 2)])) == [b"deleted"] * 20
        assert log_dir.log("t", 2).log_end_offset == 20


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "offsetlog", *map(str, words)], capture_output=True, text=True, check=False)


def test_from_a_shell(partitions: list[Path]) -> None:
    done = command("cat", "--json", "-t", "t", *partitions)
    assert done.returncode == 2
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["partition"] for line in lines if "offset" in line} == {0, 1}
    (unread,) = [line for line in lines if "offset" not in line]
    assert (unread["topic"], unread["partition"]) == ("t", 2)
    check_said(done.stderr, partitions[0])
    assert "away/t-2" in done.stderr
    found = command("grep", "current|deleted", "-t", "t", *partitions)
    assert found.returncode == 2
    assert "deleted" not in found.stdout
    check_said(found.stderr, partitions[0])
    done = command("cat", "--json", "-t", "t", "-p", "2", *partitions)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 20


def test_spark_plans_no_query_over_both(partitions: list[Path]) -> None:
    for options in ({"subscribe": "t"}, {"assign": '{"t":[0,2]}'}, {"subscribe": "t", "fail_on_data_loss": False}):
        with pytest.raises(LogDirError) as refused:
            offsetlog.spark.splits(partitions, **options)
        check_said(refused.value, *partitions)
    found = offsetlog.spark.splits(partitions, assign='{"t":[2]}')
    assert [(split.partition, split.stop) for split in found] == [(2, 20)]


def test_a_query_compares_the_partitions_that_have_an_id(partitions: list[Path]) -> None:
    """The first one has none, as of a broker before 2.8."""
    (partitions[0] / "t-0/partition.metadata").unlink()
    with pytest.raises(LogDirError) as refused:
        offsetlog.spark.splits(partitions, subscribe="t")
    check_said(refused.value, *partitions)
    with LogDir.open(partitions) as log_dir, pytest.raises(UnreadPartitionsError):
        log_dir.scan([("t", 0), ("t", 1), ("t", 2)]).count()


def test_the_only_log_dir_has_both(partitions: list[Path]) -> None:
    """Two directories in one log dir, as after a broker that died before it removed what the metadata had deleted."""
    (partitions[1] / "t-2").rename(partitions[0] / "t-2")
    with LogDir.open(partitions[0]) as log_dir, pytest.raises(UnreadPartitionsError) as unread:
        list(log_dir.scan())
    check_said(unread.value.failed[TopicPartition("t", 2)], partitions[0])
    with Log.open(partitions[0] / "t-2") as log:
        assert log.log_end_offset == 20
