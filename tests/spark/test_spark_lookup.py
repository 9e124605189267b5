"""Look-ups by a UDF: which replica they read, and that they give the columns of the data source. The rest is in ``test_spark_direct.py``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from make_log import batch, segment
from pyspark.sql import SparkSession

from offsetlog import Log, LogDir, LogDirError, OffsetOutOfRangeError
from offsetlog.spark import lookup, udf
from spark_rows import ALL_COLUMNS, load


def looked_up(folders: list[Path], missing: str = "null") -> Callable[[int], bytes | None]:
    """The function that a worker calls for each row, for partition t-0."""
    function = lookup(folders, missing=missing).func  # type: ignore[arg-type]  # one of the two
    return lambda offset: function("t", 0, offset)


def append(folder: Path, count: int) -> None:
    with Log.open(folder / "t-0", "a") as log:
        for _ in range(count):
            log.append(b"%d" % log.log_end_offset)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the worker, in seconds."""
    now = [1000.0]
    monkeypatch.setattr(f"{udf.__name__}.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was asked for each time that log dirs were listed."""
    found: list[object] = []

    def counted(paths: tuple[str, ...]) -> LogDir:
        found.append(paths)
        return LogDir.open(paths)

    monkeypatch.setattr(udf, "LogDir", SimpleNamespace(open=counted))
    return found


def test_a_replica_that_grows_beyond_the_chosen_one_is_read(tmp_path: Path, clock: list[float], looks: list[object]) -> None:
    """Within a second at most: the choice is not for the life of the worker."""
    one, other = tmp_path / "b1", tmp_path / "b2"
    append(one, 5)
    append(other, 3)
    value = looked_up([one, other])
    strict = looked_up([one, other], "error")
    assert (value(4), value(5)) == (b"4", None)
    append(other, 10)
    assert len(looks) == 1
    assert value(10) is None
    clock[0] += udf.CHOICE_SECONDS
    assert (value(10), value(4)) == (b"10", b"4")
    assert len(looks) == 2
    append(one, 20)
    clock[0] += udf.CHOICE_SECONDS / 2
    with pytest.raises(OffsetOutOfRangeError):
        strict(20)
    clock[0] += udf.CHOICE_SECONDS / 2
    assert strict(20) == b"20"


def test_missing_offsets_do_not_list_the_log_dirs_again_and_again(tmp_path: Path, clock: list[float], looks: list[object]) -> None:
    append(tmp_path, 5)
    value = looked_up([tmp_path])
    for second in range(3):
        clock[0] += udf.CHOICE_SECONDS
        assert [value(offset) for offset in range(100, 400)] == [None] * 300
        assert len(looks) == second + 1


def test_offsets_that_were_deleted_are_not_looked_for(tmp_path: Path, clock: list[float], looks: list[object]) -> None:
    append(tmp_path, 5)
    with Log.open(tmp_path / "t-0", "a") as log:
        log.delete_records_before(3)
    value = looked_up([tmp_path])
    for _ in range(3):
        clock[0] += udf.CHOICE_SECONDS
        assert [value(offset) for offset in range(5)] == [None, None, None, b"3", b"4"]
    assert len(looks) == 1


def test_looks_take_a_small_part_of_the_time(tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever one costs, which may read every replica whole, and of however many partitions offsets are missing."""
    for number in range(3):
        with Log.open(tmp_path / f"t-{number}", "a") as log:
            log.append(b"x")
    looks = 0

    def slow(paths: tuple[str, ...]) -> LogDir:
        nonlocal looks
        looks += 1
        clock[0] += 7
        return LogDir.open(paths)

    monkeypatch.setattr(udf, "LogDir", SimpleNamespace(open=slow))
    function = lookup([tmp_path], missing="null").func
    first = [function("t", number, 0) for number in range(3)]
    assert (first, looks) == ([b"x"] * 3, 3)
    began = clock[0]
    for _ in range(1000):
        clock[0] += 1
        assert [function("t", number, 9) for number in range(3)] == [None] * 3
    assert 1 < looks - 3 <= (clock[0] - began) / 7 / udf.LOOK_SHARE


def test_a_look_that_fails_makes_no_record_missing(tmp_path: Path, clock: list[float]) -> None:
    """A replica that cannot be asked may have it. What the chosen one has is found."""
    one, other = tmp_path / "b1", tmp_path / "b2"
    for folder in (one, other):
        append(folder, 5)
    value = looked_up([one, other])
    assert value(4) == b"4"
    shutil.rmtree(other)
    for _ in range(2):
        clock[0] += udf.CHOICE_SECONDS
        for _ in range(2):
            with pytest.raises(FileNotFoundError, match="b2"):
                value(5)
        assert value(4) == b"4"
    append(other, 6)
    assert value(5) == b"5"


def test_a_partition_that_moves_to_another_log_dir_is_found(tmp_path: Path, clock: list[float]) -> None:
    one, other = tmp_path / "b1", tmp_path / "b2"
    append(one, 5)
    for folder in (one, other):
        Log.open(folder / "u-0", "a").close()
    value = looked_up([one, other])
    assert value(4) == b"4"
    shutil.move(one / "t-0", other / "t-0")
    assert value(4) == b"4"
    shutil.rmtree(other / "t-0")
    with pytest.raises(LogDirError, match='no topic "t"'):
        value(4)
    assert clock == [1000.0]


# No time, the last ones that a `datetime` and a timestamp of Spark hold and the ones behind, and those before 1970.
LONG_MAX = (1 << 63) - 1
TIMES = [
    -1,
    0,
    1_700_000_000_123,
    253_402_300_799_999,
    253_402_300_800_000,
    10**15,
    LONG_MAX // 1000,
    LONG_MAX // 1000 + 1,
    1_700_000_000_000_000_000,
    LONG_MAX,
    -2,
    -62_135_596_800_001,
    -(10**15),
    -LONG_MAX // 1000,
    -LONG_MAX // 1000 - 1,
]


def test_a_look_up_gives_the_columns_of_the_data_source(spark: SparkSession, tmp_path: Path) -> None:
    """Of the times also those that a Python datetime does not hold, and the one that stands for none."""
    segment(tmp_path / "t-0", 0, *(batch(offset, [(b"k", b"v")], base_timestamp=at) for offset, at in enumerate(TIMES)))
    columns = [name for name in ALL_COLUMNS.split(",") if name != "leaderEpoch"]
    source = load(spark, str(tmp_path), subscribe="t", includeHeaders="true").orderBy("offset")
    offsets = spark.range(len(TIMES)).selectExpr("'t' topic", "0 partition", "id offset")
    place = ["topic", "partition", "offset"]
    alone, whole = lookup(tmp_path, "timestamp"), lookup(tmp_path, "record")
    found = offsets.select(*place, alone(*place).alias("alone"), whole(*place).alias("whole")).orderBy("offset")
    assert found.schema["alone"].dataType == source.schema["timestamp"].dataType
    assert found.select("whole.*").schema == source.select(*columns).schema
    micros = [row[0] for row in source.selectExpr("unix_micros(timestamp)").collect()]
    assert micros == [at * 1000 if -(1 << 63) <= at * 1000 <= LONG_MAX else None for at in TIMES]
    assert [tuple(row) for row in found.selectExpr("unix_micros(alone)", "unix_micros(whole.timestamp)").collect()] == [
        (at, at) for at in micros
    ]
    assert found.select("whole.*").drop("timestamp").collect() == source.select(*columns).drop("timestamp").collect()
