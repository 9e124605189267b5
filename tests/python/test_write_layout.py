"""`offsetlog.spark.write` with `order_by`: rows get their partitions before the sink sees them, and go where it would send them."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from golden import CLEAN
from test_write_arguments import Frame

from offsetlog import LogDir, partition_for
from offsetlog.errors import ConfigError, LogDirError
from offsetlog.spark import WriteSummary, write
from offsetlog.spark.sink import OffsetLogWriter, prepare
from offsetlog.spark.sink_options import sink_settings_from

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

KEYS = [b"k%d" % number for number in range(12)]
Row = dict[str, Any]
Column = Callable[[Row], Any]


class Functions:
    """Those of Spark's functions that lay rows out; a column is what returns its value of a row."""

    @staticmethod
    def lit(value: object) -> Column:
        return lambda _: value

    @staticmethod
    def col(name: str) -> Column:
        return lambda row: row[name]

    @staticmethod
    def udf(function: Callable[..., object], kind: str) -> Callable[..., Column]:
        assert kind == "int"
        return lambda *columns: lambda row: function(*(column(row) for column in columns))

    @staticmethod
    def coalesce(*columns: Column) -> Column:
        return lambda row: next((value for column in columns if (value := column(row)) is not None), None)


@pytest.fixture(autouse=True)
def _without_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("offsetlog.spark.write"), "functions", Functions)


class Rows(Frame):
    """A frame whose layout is computed here, and which one task writes."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__([])
        self.rows = rows
        self.columns = tuple(rows[0])  # type: ignore[assignment]  # others than those of the class

    def withColumn(self, name: str, column: Column) -> Self:  # noqa: N802  # Spark's name
        return type(self)([{**row, name: column(row)} for row in self.rows])

    def repartition(self, *_: str) -> Self:
        return self

    def sortWithinPartitions(self, *columns: str) -> Self:  # noqa: N802  # Spark's name
        return type(self)(sorted(self.rows, key=lambda row: [(row[name] is None, row[name]) for name in columns]))

    def save(self, path: str) -> None:
        settings = sink_settings_from({"path": path, **self.given}, is_stream=False)
        prepare(settings)
        writer = OffsetLogWriter(settings, self.columns)
        kinds = {"topic": pa.string(), "partition": pa.int32()}
        rows = {name: pa.array([row[name] for row in self.rows], kinds.get(name, pa.binary())) for name in self.columns}
        writer.commit([writer.write(iter([pa.RecordBatch.from_pydict(rows)]))])


def written(rows: list[Row], paths: list[Path], **arguments: Any) -> WriteSummary:  # noqa: ANN401  # those of `write`
    plain: Any = Rows(rows)
    return write(plain, paths, order_by=["value"], **arguments)


def rows_of(**more: object) -> list[Row]:
    return [{"key": key, "value": key, **more} for key in KEYS]


def keys_of(paths: list[Path], topic: str) -> dict[int, set[bytes]]:
    """The keys of this test in each partition of a topic."""
    found = {}
    with LogDir.open(paths) as log_dir:
        for number in log_dir.topics()[topic]:
            found[number] = {record.key for record in log_dir.log(topic, number).scan() if record.key in KEYS}
    return found


def by_key(count: int) -> dict[int, set[bytes]]:
    """Where a producer sends them."""
    return {number: {key for key in KEYS if partition_for(key, count) == number} for number in range(count)}


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """A cluster's log dirs and metadata; of `g-plain` the last of three partitions is away, as with a disk that is not mounted."""
    folders = [tmp_path / name for name in ("log-dir-1", "log-dir-2", "metadata-dir")]
    for folder in folders:
        shutil.copytree(CLEAN / folder.name, folder)
        shutil.rmtree(folder / "g-plain-2", ignore_errors=True)
    return folders


@pytest.mark.parametrize("topic", ["g-plain", None])
@pytest.mark.parametrize("partitions", [None, {"g-plain": 2}])
def test_no_key_goes_to_a_partition_that_a_producer_does_not_choose(
    paths: list[Path], topic: str | None, partitions: dict[str, int] | None
) -> None:
    """As without `order_by`: the sink refuses it."""
    rows = rows_of() if topic is not None else rows_of(topic="g-plain")
    with LogDir.open(paths) as log_dir:
        before = log_dir.end_offsets()
    with pytest.raises(LogDirError, match=r'"g-plain" only the partitions \[0, 1\] are here, .* it has 3: .*name the partition'):
        written(rows, paths, topic=topic, partitions=partitions)
    with LogDir.open(paths) as log_dir:
        assert log_dir.end_offsets() == before


def test_rows_that_no_key_sends_are_written(paths: list[Path]) -> None:
    named = [{**row, "partition": number % 2} for number, row in enumerate(rows_of())]
    assert written(named, paths, topic="g-plain", single_replica=True).records == len(KEYS)
    assert keys_of(paths, "g-plain") == {0: set(KEYS[::2]), 1: set(KEYS[1::2])}
    keyless = [{**row, "key": None} for row in rows_of()]
    assert written(keyless, paths, topic="g-plain", single_replica=True).records == len(KEYS)
    # Of a topic that is whole, keys are routed.
    assert written(rows_of(), paths, topic="g-codec-lz4", single_replica=True).records == len(KEYS)


def test_one_of_the_others_has_another_number(tmp_path: Path) -> None:
    """With «*» each topic must have as many."""
    place = tmp_path / "logs"
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 3)
    for partitions in ({"*": 4}, {"u": 3, "*": 4}):
        for topic in ("t", None):
            rows = rows_of() if topic is not None else rows_of(topic="t")
            with pytest.raises(ConfigError, match="partitions: topic 't' is there and has 3, which stay"):
                written(rows, [place], topic=topic, partitions=partitions)
    assert written(rows_of(topic="t"), [place], partitions={"*": 3}).records == len(KEYS)
    assert written(rows_of(topic="t"), [place], partitions={"*": 4, "t": 3}).records == len(KEYS)
    assert keys_of([place], "t") == by_key(3)


@pytest.mark.parametrize("there", ["missing", "empty", "of the system"])
def test_a_folder_without_anything_becomes_a_log_dir(tmp_path: Path, there: str) -> None:
    place = tmp_path / "logs"
    if there != "missing":
        place.mkdir()
    if there == "of the system":
        (place / "lost+found").mkdir()
    assert written(rows_of(), [place], topic="t", partitions=3).records == len(KEYS)
    assert keys_of([place], "t") == by_key(3)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_topic_that_is_there_counts_beside_a_log_dir_that_is_new(tmp_path: Path, is_first: bool) -> None:
    place, other = tmp_path / "logs", tmp_path / "other"
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 3)
    paths = [other, place] if is_first else [place, other]
    with pytest.raises(LogDirError, match="is the disk of this one mounted"):
        written(rows_of(), paths, topic="t")
    other.mkdir()
    (other / ".lock").touch()
    assert written(rows_of(), paths, topic="t").records == len(KEYS)
    assert keys_of(paths, "t") == by_key(3)


@pytest.fixture
def unread(paths: list[Path]) -> Path:
    """What says which topic `g-codec-gzip` is, as on a disk that fails there: nobody can ask how many partitions it has."""
    (found,) = [path for folder in paths for path in folder.glob("g-codec-gzip-0/partition.metadata")]
    found.unlink()
    found.mkdir()
    with LogDir.open(paths) as log_dir, pytest.raises(OSError, match=r"partition\.metadata"):
        log_dir._engine().partition_count("g-codec-gzip")  # noqa: SLF001  # as the layout asks
    return found


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("topic", ["g-codec-lz4", None])
def test_a_topic_that_cannot_be_asked_about_is_no_concern_of_the_others(paths: list[Path], topic: str | None) -> None:
    rows = rows_of() if topic is not None else rows_of(topic="g-codec-lz4")
    assert written(rows, paths, topic=topic, single_replica=True).records == len(KEYS)
    with LogDir.open(paths) as log_dir:
        count = len(log_dir.topics()["g-codec-lz4"])
    assert keys_of(paths, "g-codec-lz4") == by_key(count)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("topic", ["g-codec-gzip", None])
def test_keys_of_a_topic_that_cannot_be_asked_about_are_refused_by_the_sink(paths: list[Path], topic: str | None) -> None:
    rows = rows_of() if topic is not None else rows_of(topic="g-codec-gzip")
    with LogDir.open(paths) as log_dir:
        before = log_dir.end_offsets()
    with pytest.raises(OSError, match=r"partition\.metadata") as refused:
        written(rows, paths, topic=topic, single_replica=True)
    assert "_check_whole" in {entry.name for entry in refused.traceback}
    with LogDir.open(paths) as log_dir:
        assert log_dir.end_offsets() == before
