"""A topic whose last partitions are not among the paths: by the cluster's metadata it has more, and no key is routed among fewer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from golden import CLEAN

from offsetlog import LogDir, MetadataImage, partition_for
from offsetlog._commit.staging import Staged
from offsetlog.errors import LogDirError
from offsetlog.spark.sink import OffsetLogWriter, TaskMessage, prepare
from offsetlog.spark.sink_options import sink_settings_from

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

FOLDERS = ("log-dir-1", "log-dir-2", "metadata-dir")
KEYS = (b"a", b"b", b"c", b"d", b"e")


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """A cluster's log dirs and metadata; of `g-plain` the last of three partitions is away, as with a disk that is not mounted."""
    for name in FOLDERS:
        shutil.copytree(CLEAN / name, tmp_path / name)
    for name in FOLDERS[:2]:
        shutil.rmtree(tmp_path / name / "g-plain-2", ignore_errors=True)
    return [str(tmp_path / name) for name in FOLDERS]


def written(paths: list[str], columns: dict[str, pa.Array], *, topic: str | None = "g-plain", **options: str) -> TaskMessage:
    """What a task of Spark's sink stages of rows with these columns."""
    named = {"path": ",".join(paths), **options, **({} if topic is None else {"topic": topic})}
    settings = sink_settings_from(named, is_stream=False)
    prepare(settings)
    return OffsetLogWriter(settings, list(columns)).write(iter([pa.RecordBatch.from_pydict(columns)]))


def test_no_key_is_routed_among_the_partitions_that_are_here(paths: list[str]) -> None:
    with LogDir.open(paths, "a") as log_dir:
        metadata = log_dir.metadata()
        assert metadata is not None
        (topic,) = [topic for topic in metadata.topics if topic.name == "g-plain"]
        assert (len(topic.partitions), log_dir.topics()["g-plain"]) == (3, [0, 1])
        before = log_dir.end_offsets()
        for key in KEYS:
            with pytest.raises(
                LogDirError, match=r"'?g-plain.* only the partitions \[0, 1\] are here, .* it has 3: .*name the partition"
            ):
                log_dir.append("g-plain", b"x", key=key)
        assert log_dir.end_offsets() == before
        # Who names it knows where.
        assert log_dir.append("g-plain", b"x", key=KEYS[0], partition=partition_for(KEYS[0], 3) % 2).offset >= 0


def test_without_the_metadata_those_that_are_here_count(paths: list[str]) -> None:
    with LogDir.open(paths[:2], "a") as log_dir:
        for key in KEYS:
            assert log_dir.append("g-plain", b"x", key=key).partition == partition_for(key, 2)


def test_all_that_are_here_count_where_the_metadata_has_no_more(tmp_path: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(CLEAN / name, tmp_path / name)
    with LogDir.open([tmp_path / name for name in FOLDERS], "a") as log_dir:
        for key in KEYS:
            assert log_dir.append("g-plain", b"x", key=key).partition == partition_for(key, 3)


def test_sparks_sink_writes_nothing(paths: list[str]) -> None:
    rows = {"key": pa.array(KEYS), "value": pa.array(KEYS)}
    with pytest.raises(LogDirError, match=r"only the partitions \[0, 1\] are here, .* it has 3: .*name the partition"):
        written(paths, rows)
    with pytest.raises(LogDirError, match=r"it has 3"):
        written(paths, {**rows, "partition": pa.array([0, 1, None, 0, 1], pa.int32())})


@pytest.mark.parametrize("column", ["partition", "no key", "keys that are null", "round_robin"])
def test_sparks_sink_writes_rows_that_no_key_sends(column: str, paths: list[str]) -> None:
    rows = {"key": pa.array(KEYS), "value": pa.array(KEYS)}
    options: dict[str, str] = {}
    if column == "partition":
        rows["partition"] = pa.array([0, 1, 0, 1, 0], pa.int32())
    elif column == "no key":
        del rows["key"]
    elif column == "round_robin":
        options = {"partitioner": "round_robin"}
    else:
        rows["key"] = pa.nulls(len(KEYS), pa.binary())
    message = written(paths, rows, **options)
    assert sum(Staged(*each).records for each in message.staged) == len(KEYS)
    if column == "partition":
        assert sorted((each.partition, each.records) for each in (Staged(*staged) for staged in message.staged)) == [(0, 3), (1, 2)]


def test_sparks_sink_reads_the_metadata_once_in_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FOLDERS:
        shutil.copytree(CLEAN / name, tmp_path / name)
    reads: list[LogDir] = []
    metadata = LogDir.metadata

    def noted(log_dir: LogDir) -> MetadataImage | None:
        reads.append(log_dir)
        return metadata(log_dir)

    monkeypatch.setattr(LogDir, "metadata", noted)
    topics = ["g-plain", "g-codec-lz4", "g-codec-gzip", "g-plain", "g-idem"]
    rows = {"topic": pa.array(topics), "key": pa.array(KEYS), "value": pa.array(KEYS)}
    written([str(tmp_path / name) for name in FOLDERS], rows, topic=None)
    assert len(reads) == 1
    reads.clear()
    written([str(tmp_path / name) for name in FOLDERS], {**rows, "partition": pa.array([0] * len(KEYS), pa.int32())}, topic=None)
    assert not reads


def test_a_topic_made_here_anew_has_those_it_was_given(paths: list[str]) -> None:
    with LogDir.open(paths, "a", single_replica=True) as log_dir:
        with pytest.raises(LogDirError, match="it has 3"):
            log_dir.append("g-plain", b"x", key=b"a")
        log_dir.delete_topic("g-plain")
        log_dir.create_topic("g-plain", 2)
        for key in KEYS:
            assert log_dir.append("g-plain", b"x", key=key).partition == partition_for(key, 2)


def test_a_topic_that_another_program_made_anew_has_those_it_was_given(tmp_path: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(CLEAN / name, tmp_path / name)
    folders = [tmp_path / name for name in FOLDERS]
    with LogDir.open(folders, "a", single_replica=True, max_open_partitions=1) as log_dir:
        assert log_dir.append("g-plain", b"x", key=KEYS[0]).partition == partition_for(KEYS[0], 3)
        # Closes the other: another program may delete it.
        log_dir.append("g-codec-lz4", b"x", partition=0)
        with LogDir.open(folders, "a", single_replica=True) as other:
            other.delete_topic("g-plain")
            other.create_topic("g-plain", 2)
        for key in KEYS:
            assert log_dir.append("g-plain", b"x", key=key).partition == partition_for(key, 2)
