"""Splits: they tile what was asked for exactly, and they are few."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from golden import CLEAN_PARTITIONS, named
from pyspark.sql import SparkSession

from offsetlog import LogDirError, Scan, Split
from offsetlog.spark import planning, splits
from offsetlog.spark.options import settings_from
from offsetlog.spark.planned import Planned
from offsetlog.spark.planning import plan
from spark_rows import CLEAN_PATH, load

EVERYTHING = {"path": CLEAN_PATH, "subscribe": ",".join(sorted({golden.topic for golden in CLEAN_PARTITIONS}))}
MANY = {"path": CLEAN_PATH, "subscribe": "g-many-entries"}


def planned(options: dict[str, str], slots: int = 2, **more: object) -> list[tuple[Planned, ...]]:
    return plan(settings_from({**options, **{name: str(value) for name, value in more.items()}}), slots=slots)


def check_tiling(tasks: Sequence[Sequence[Split | Planned]], expected: dict[str, tuple[int, int]]) -> None:
    """The ranges of each partition, in the order of the tasks, cover it from start to stop: no gap, nothing twice."""
    found: dict[str, list[tuple[int, int]]] = {}
    for split in (split for task in tasks for split in task):
        assert split.start < split.stop
        assert Path(split.path).is_absolute()
        found.setdefault(f"{split.topic}-{split.partition}", []).append((split.start, split.stop))
    for name, ranges in found.items():
        assert [stop for _, stop in ranges[:-1]] == [start for start, _ in ranges[1:]], name
    assert {name: (ranges[0][0], ranges[-1][1]) for name, ranges in found.items()} == expected


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxBytesPerPartition": 1},
        {"maxBytesPerPartition": 3000},
        {"maxRecordsPerPartition": 1},
        {"maxRecordsPerPartition": 7},
        {"minPartitions": 2},
        {"minPartitions": 97},
        {"minPartitions": 60, "maxRecordsPerPartition": 50, "maxBytesPerPartition": 4000},
    ],
    ids=str,
)
def test_splits_tile_every_partition_exactly(options: dict[str, int]) -> None:
    """Also compacted ones, with batches that no longer exist at the cuts."""
    tasks = planned(EVERYTHING, **options)
    check_tiling(tasks, {golden.name: (golden.start, golden.end) for golden in CLEAN_PARTITIONS if golden.start < golden.end})
    if options:
        rows = sum(Scan.over([each.split for each in task], columns=["offset"]).count() for task in tasks)
        assert rows == sum(golden.counts[0] for golden in CLEAN_PARTITIONS)


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_by_default_there_is_one_task_a_slot(slots: int) -> None:
    """A second wave would only cost the starts of its tasks."""
    assert len(planned(EVERYTHING, slots)) == slots


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a few KiB were a GiB."""
    monkeypatch.setattr(planning, "MIN_TASK_BYTES", 1)
    monkeypatch.setattr(planning, "MAX_TASK_BYTES", 32 << 10)
    monkeypatch.setattr(planning, "MAX_GUESSED_TASK_BYTES", 16 << 10)


def sizes_of(tasks: Sequence[Sequence[Planned]]) -> list[int]:
    return [sum(split.size_bytes for split in task) for task in tasks]


def pieces_of(path: str, segments: list[int], most: int) -> list[Split]:
    """As the engine cuts a partition by bytes: what is left of a segment is a piece by itself where the next one would not fit."""
    sizes: list[int] = []
    for size in segments:
        whole, crumb = divmod(size, most)
        sizes += [most] * whole + ([crumb] if crumb else [])
    ends = list(itertools.accumulate(sizes))
    return [Split(path, "t", 0, end - size, end, size) for size, end in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize(
    ("slots", "segments"),
    [
        (4, [[1024] * 3 + [922]]),
        (2, [[1024] * 5 + [735]]),
        (4, [[1365]] * 3),
        (3, [[1024, 1024, 100], [300], [1024, 700]]),
        (8, [[1024] * 30]),
    ],
    ids=str,
)
def test_crumbs_at_the_ends_of_segments_make_no_task_large(slots: int, segments: list[list[int]]) -> None:
    """In MiB; tasks are in order, and so a task that has crumbs may not get as many whole pieces instead."""
    total = sum(map(sum, segments)) << 20
    there = planning.Slots(slots, is_known=True)
    share = total / there.tasks(total)
    pieces: list[Split] = []
    for number, sizes in enumerate(segments):
        most = planning.piece_bytes(sum(sizes) << 20, -(-int(share) // planning.PIECES))
        pieces += pieces_of(f"/t-{number}", [size << 20 for size in sizes], most)
    tasks = planning.pack(list(reversed(pieces)), settings_from({"path": "/", "subscribe": "t"}), there)
    assert len(tasks) == there.tasks(total)
    assert max(sum(split.size_bytes for split in task) for task in tasks) <= 1.25 * share
    for number, sizes in enumerate(segments):
        found = [(split.start, split.stop) for task in tasks for split in task if split.path == f"/t-{number}"]
        assert found[0][0] == 0
        assert found[-1][1] == sum(sizes) << 20
        assert [stop for _, stop in found[:-1]] == [start for start, _ in found[1:]]


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("slots", [1, 2, 3, 8, 40])
def test_no_task_reads_too_much_and_all_slots_have_as_many(slots: int) -> None:
    total = sum(sizes_of(planned(EVERYTHING, 1)))
    tasks = planned(EVERYTHING, slots)
    assert len(tasks) == slots * -(-total // (slots * (32 << 10)))
    # One batch is larger by itself, and the indexes of these small logs name every third batch or so.
    assert sorted(sizes_of(tasks))[-2] <= 1.25 * (32 << 10)
    check_tiling(tasks, {golden.name: (golden.start, golden.end) for golden in CLEAN_PARTITIONS if golden.start < golden.end})


@pytest.mark.usefixtures("small_tasks")
def test_where_the_slots_are_a_guess_more_tasks_are_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be many more slots; but what fits into one task a slot is no more tasks than that."""
    total = sum(sizes_of(planned(EVERYTHING, 1)))
    for cpus in (1, 2, 3, 8, 40):
        monkeypatch.setattr(planning, "_cpus", lambda cpus=cpus: cpus)
        expected = cpus if total <= cpus * (32 << 10) else cpus * -(-total // (cpus * (16 << 10)))
        assert len(plan(settings_from(EVERYTHING))) == expected
        assert len(plan(settings_from({**EVERYTHING, "taskSlots": str(cpus)}))) == cpus * -(-total // (cpus * (32 << 10)))


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("slots", [2, 3, 5])
def test_one_partition_is_shared_out_evenly_and_each_task_reads_one_range(slots: int) -> None:
    tasks = planned(MANY, slots)
    assert all(len(task) == 1 for task in tasks)
    assert max(sizes_of(tasks)) < 1.5 * min(sizes_of(tasks))


@pytest.mark.parametrize("about", [1, 7, 8, 1000, 4 << 20])
def test_pieces_of_a_range_are_alike(about: int) -> None:
    """The last one is no crumb, and none is much larger than asked for."""
    for size in {
        number for count in range(1, 40) for number in (count * about - 1, count * about, count * about + 1, count * about * 9 // 8)
    }:
        piece = planning.piece_bytes(size, about)
        count = -(-size // max(piece, 1))
        assert 8 * piece <= 9 * about + 8
        assert size <= about or 2 * piece >= about
        assert size - (count - 1) * piece > 0 or size == 0


def test_small_data_still_uses_every_slot() -> None:
    assert len(planned(EVERYTHING, 2)) == 2
    assert len(planned(EVERYTHING, 8)) == 8


def test_tasks_have_about_the_same_to_do() -> None:
    sizes = [sum(split.size_bytes for split in task) for task in planned(EVERYTHING, 2)]
    assert max(sizes) < 1.5 * min(sizes)


def test_task_slots_wins_over_what_is_found() -> None:
    assert len(planned(EVERYTHING, 2, taskSlots=5)) == 5


@pytest.mark.parametrize(("most", "count"), [(1, 1500), (100, 15), (400, 4), (1499, 2), (1500, 1), (10**12, 1)])
def test_max_records_cuts_into_near_equal_parts(most: int, count: int) -> None:
    """Spark's arithmetic: ceil(size / most) parts, the last with the remainder."""
    tasks = planned(MANY, maxRecordsPerPartition=most)
    sizes = [split.stop - split.start for task in tasks for split in task]
    assert len(tasks) == count
    assert max(sizes) <= most
    assert sizes[:-1] == [1500 // count] * (count - 1)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 1500, 5000])
def test_min_partitions_gives_at_least_about_so_many_tasks(count: int) -> None:
    tasks = planned(MANY, minPartitions=count)
    assert min(count, 1500) <= len(tasks) <= max(2 * count, 4)
    check_tiling(tasks, {"g-many-entries-0": (0, 1500)})


def test_min_partitions_cuts_large_ranges_and_leaves_small_ones() -> None:
    """As Spark shares them out: by size, small ones whole."""
    tasks = planned({"path": CLEAN_PATH, "subscribe": "g-many-entries,g-roll-ms,g-recreated"}, minPartitions=10)
    ranges = [split for task in tasks for split in task]
    assert sum(split.topic != "g-many-entries" for split in ranges) == 2
    assert len(tasks) >= 10


def test_min_partitions_can_cut_within_a_batch() -> None:
    """One batch, several tasks: then cuts by offset are the only ones there are."""
    (golden,) = named("g-codec-zstd-0")
    tasks = planned({"path": str(golden.directory)}, minPartitions=500)
    assert len(tasks) >= 500
    assert sorted(record.offset for task in tasks for record in Scan.over([each.split for each in task])) == [
        row.offset for row in golden.rows
    ]


def test_max_bytes_holds_but_for_single_batches() -> None:
    (golden,) = named("g-many-entries-0")
    largest = golden.directory.joinpath("0" * 20 + ".log").stat().st_size
    tasks = planned({"path": str(golden.directory)}, maxBytesPerPartition=8192)
    # Cuts are found through the index, whose entries lie up to 4 KiB apart.
    assert len(tasks) >= largest // (8192 + 4096)
    assert all(sum(split.size_bytes for split in task) <= 8192 + 4096 for task in tasks)


def test_a_short_range_of_a_long_log_weighs_what_it_holds() -> None:
    (golden,) = named("g-many-entries-0")
    starting = '{"g-many-entries":{"0":1490}}'
    ((split,),) = planned({"path": CLEAN_PATH, "assign": '{"g-many-entries":[0]}', "startingOffsets": starting})
    assert (split.start, split.stop) == (1490, 1500)
    assert split.size_bytes < golden.directory.joinpath("0" * 20 + ".log").stat().st_size / 10


def test_of_directories_with_the_same_partition_the_newest_valid_replica_is_read(tmp_path: Path) -> None:
    """Whichever is named last: as of replicas in several log dirs."""
    (golden,) = named("g-plain-0")
    whole, short, damaged = (golden.copy(tmp_path / name, checkpoints=False) for name in ("whole", "short", "damaged"))
    for segment in sorted(short.glob("*.log"))[2:]:
        segment.unlink()
    first = min(damaged.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    orders = [
        [whole, short],
        [short, whole],
        [damaged, whole],
        [whole, damaged],
        [short, damaged, whole],
        [whole, damaged, short],
    ]
    for order in orders:
        ranges = splits(order)
        assert {split.path for split in ranges} == {str(whole)}
        assert (ranges[0].start, ranges[-1].stop) == (0, golden.end)
    # The damaged one has records of a newer leader, which the short one lacks: damage is met, not passed over.
    assert {split.path for split in splits([damaged, short])} == {str(damaged)}
    assert {split.path for split in splits([short, damaged])} == {str(damaged)}
    # A log dir and a partition directory together: the same rule.
    assert {split.path for split in splits([tmp_path / "whole", short], subscribe="g-plain")} == {str(whole)}
    assert {split.path for split in splits([short, tmp_path / "whole"], subscribe="g-plain")} == {str(whole)}


def test_partition_directories_named_one_by_one_are_read_together(tmp_path: Path) -> None:
    (one, other) = named("g-plain-0", "g-plain-1")
    paths = [one.copy(tmp_path / "a", checkpoints=False), other.copy(tmp_path / "b", checkpoints=False)]
    assert {split.path for split in splits(paths)} == set(map(str, paths))
    assert {split.path for split in splits([*paths, paths[0]], assign={"g-plain": [0]})} == {str(paths[0])}


@pytest.mark.parametrize("name", ["g-plain-2147483648", "g-\udcff-0"])
def test_a_partition_directory_with_an_impossible_name_is_not_left_out(tmp_path: Path, name: str) -> None:
    (golden,) = named("g-plain-0")
    right = golden.copy(tmp_path / "a", checkpoints=False)
    wrong = golden.copy(tmp_path / "b", checkpoints=False).rename(tmp_path / "b" / name)
    for paths in ([wrong], [right, wrong], [wrong, right]):
        with pytest.raises(LogDirError, match="is not topic-partition"):
            splits(paths)


def test_two_hundred_partitions_are_read_by_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """A task costs tens of milliseconds; a partition should not."""
    (golden,) = named("g-roll-ms-0")
    for number in range(200):
        shutil.copytree(golden.directory, tmp_path / f"tiny-{number}")
    frame = load(spark, str(tmp_path), subscribe="tiny", taskSlots=2, columns="partition,offset")
    assert frame.rdd.getNumPartitions() == 2
    rows = frame.groupBy("partition").count().collect()
    assert len(rows) == 200
    assert {row["count"] for row in rows} == {len(golden.rows)}


def test_spark_runs_as_many_tasks_as_planned(spark: SparkSession) -> None:
    assert load(spark, subscribe="g-many-entries", maxRecordsPerPartition=100).rdd.getNumPartitions() == 15
    assert load(spark, subscribe="g-many-entries", minPartitions=3).rdd.getNumPartitions() >= 3
