"""A topic whose last partitions are not among the paths: by the cluster's metadata it has more, and no key is routed among fewer.

Nor is one where metadata that is among the paths does not tell how many there are. Records without a key may go to any partition: Kafka's
producers too take one that they reach (`BuiltInPartitioner`, `RoundRobinPartitioner`: "available partitions").
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from golden import CLEAN

from offsetlog import LogDir, partition_for
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


def metadata_log(root: Path) -> Path:
    return root / "metadata-dir" / "__cluster_metadata-0" / f"{0:020}.log"


def damage(root: Path) -> None:
    data = bytearray(metadata_log(root).read_bytes())
    data[len(data) // 2] ^= 1
    metadata_log(root).write_bytes(data)


def tear(root: Path) -> None:
    """As an end that did not reach the disk leaves it: the last batch is there in part."""
    metadata_log(root).write_bytes(metadata_log(root).read_bytes()[:-1])


def replace(root: Path) -> None:
    """Another cluster's, with a topic of the name, and directories that do not tell which of the two they are of."""
    properties = root / "metadata-dir" / "meta.properties"
    own = next(line for line in properties.read_text().splitlines() if line.startswith("cluster.id="))
    properties.write_text(properties.read_text().replace(own, "cluster.id=AQIDBAUGBwgJCgsMDQ4PEA"))
    for path in root.glob("log-dir-*/g-plain-*/partition.metadata"):
        path.unlink()


UNTOLD: dict[str, tuple[Callable[[Path], None], str]] = {
    "damaged": (damage, "cannot be read"),
    "torn": (tear, "a part of its metadata is missing"),
    "another cluster's": (replace, "is the metadata of cluster"),
}


@pytest.mark.parametrize("how", UNTOLD)
def test_metadata_that_does_not_tell_is_not_taken_for_none(how: str, paths: list[str], tmp_path: Path) -> None:
    spoil, why = UNTOLD[how]
    spoil(tmp_path)
    expected = rf"g-plain.*the partitions \[0, 1\] are here, .*not known.*{why}.*name the partition"
    here = [("g-plain", 0), ("g-plain", 1)]
    with LogDir.open(paths, "a", single_replica=True) as log_dir:
        # Not of all: opening the metadata's log would mend its end.
        before = log_dir.end_offsets(here)
        for key in KEYS:
            with pytest.raises(LogDirError, match=expected):
                log_dir.append("g-plain", b"x", key=key)
        assert log_dir.end_offsets(here) == before
        for key in KEYS:
            assert log_dir.append("g-plain", key).partition in {0, 1}
    rows = {"key": pa.array(KEYS), "value": pa.array(KEYS)}
    with pytest.raises(LogDirError, match=expected):
        written(paths, rows)
    message = written(paths, {"value": rows["value"]})
    assert sum(Staged(*each).records for each in message.staged) == len(KEYS)


@pytest.mark.parametrize("partitioner", ["default", "round_robin"])
def test_records_that_no_key_sends_go_to_those_that_are_here(partitioner: Literal["default", "round_robin"], paths: list[str]) -> None:
    """As in Spark's sink."""
    with LogDir.open(paths, "a", partitioner=partitioner) as log_dir:
        for key in KEYS if partitioner == "round_robin" else [None] * len(KEYS):
            assert log_dir.append("g-plain", b"x", key=key).partition in {0, 1}


def test_a_function_of_the_callers_is_not_told_fewer_than_there_are(paths: list[str]) -> None:
    with (
        LogDir.open(paths, "a", partitioner=lambda _topic, _key, _value, count: count - 1) as log_dir,
        pytest.raises(LogDirError, match="it has 3"),
    ):
        log_dir.append("g-plain", b"x")


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


def test_sparks_sink_reads_the_metadata_once_in_a_task(tmp_path: Path) -> None:
    """What becomes of it behind that changes nothing for the other topics of the task."""
    for name in FOLDERS:
        shutil.copytree(CLEAN / name, tmp_path / name)
    paths = [str(tmp_path / name) for name in FOLDERS]
    topics = ["g-codec-lz4", "g-codec-gzip", "g-plain", "g-idem", "g-plain"]
    rows = {"topic": pa.array(topics), "key": pa.array(KEYS), "value": pa.array(KEYS)}
    settings = sink_settings_from({"path": ",".join(paths)}, is_stream=False)
    prepare(settings)

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({**rows, "topic": pa.array(["g-plain"] * len(KEYS))})
        damage(tmp_path)
        yield pa.RecordBatch.from_pydict(rows)

    message = OffsetLogWriter(settings, list(rows)).write(batches())
    assert sum(Staged(*each).records for each in message.staged) == 2 * len(KEYS)
    with pytest.raises(LogDirError, match="cannot be read"):
        written(paths, rows, topic=None)
    # Who names the partition asks nobody.
    written(paths, {**rows, "partition": pa.array([0] * len(KEYS), pa.int32())}, topic=None)


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
