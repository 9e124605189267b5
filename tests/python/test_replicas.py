"""One partition in several log dirs: the replica of the newest leader epoch is read, of those the longest valid one, and of equals the
one that lacks the fewest offsets between its segments.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from golden import OLD_LOG_DIRS, named, rows
from held_records import offsetlog
from make_log import batch, segment

from offsetlog import CorruptBatchError, LogDir, TopicPartition, restore


def batches_of(count: int, mark: bytes) -> list[bytes]:
    """So many batches of two records, which tell from which replica they come."""
    return [batch(2 * n, [(b"a", mark), (b"b", mark)]) for n in range(count)]


def check_taken(log_dirs: Sequence[Path], mark: bytes, end: int) -> None:
    """Whatever the order of the log dirs."""
    for order in itertools.permutations(log_dirs):
        with LogDir.open(order) as log_dir:
            assert log_dir.partitions() == [TopicPartition("orders", 0)]
            assert log_dir.topics() == {"orders": [0]}
            assert log_dir.end_offsets() == {TopicPartition("orders", 0): end}
            with log_dir.log("orders", 0) as log:
                assert log.log_end_offset == end
                records = list(log.scan())
            assert [record.offset for record in records] == list(range(end))
            assert {record.value for record in records} == ({mark} if end else set())
            assert list(log_dir.scan()) == records


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[Path]:
    """Three empty log dirs."""
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    return folders


def test_longest_of_three_replicas_is_read(log_dirs: list[Path]) -> None:
    """One behind, one empty."""
    segment(log_dirs[0] / "orders-0", 0, *batches_of(3, b"short"))
    segment(log_dirs[1] / "orders-0", 0, *batches_of(5, b"long"))
    segment(log_dirs[2] / "orders-0", 0)
    check_taken(log_dirs, b"long", 10)


def test_length_counts_over_all_segments(log_dirs: list[Path]) -> None:
    """A replica that rolled more often has shorter files and may still be the longer one."""
    every = batches_of(6, b"rolled")
    for first in (0, 2, 4):
        segment(log_dirs[0] / "orders-0", 2 * first, *every[first : first + 2])
    segment(log_dirs[1] / "orders-0", 0, *batches_of(5, b"one file"))
    check_taken(log_dirs[:2], b"rolled", 12)


def test_torn_tail_does_not_make_a_replica_longer(log_dirs: list[Path]) -> None:
    """More bytes, fewer whole batches."""
    *whole, last = batches_of(4, b"torn")
    segment(log_dirs[0] / "orders-0", 0, *whole, last[:-1])
    segment(log_dirs[1] / "orders-0", 0, *batches_of(4, b"whole"))
    check_taken(log_dirs[:2], b"whole", 8)


def test_zeros_do_not_make_a_replica_longer(log_dirs: list[Path]) -> None:
    """Preallocated space is no data."""
    segment(log_dirs[0] / "orders-0", 0, *batches_of(2, b"zeros"), bytes(100_000))
    segment(log_dirs[1] / "orders-0", 0, *batches_of(3, b"data"))
    check_taken(log_dirs[:2], b"data", 6)


def test_damaged_last_batch_does_not_make_a_replica_longer(log_dirs: list[Path]) -> None:
    """A batch whose checksum is wrong is not valid, whatever its header says."""
    *whole, last = batches_of(5, b"flipped")
    segment(log_dirs[0] / "orders-0", 0, *whole[:3], whole[3][:-1] + bytes([whole[3][-1] ^ 1]), last)
    segment(log_dirs[1] / "orders-0", 0, *batches_of(4, b"good"))
    check_taken(log_dirs[:2], b"good", 8)


def test_damage_in_the_middle_does_not_make_a_replica_longer(log_dirs: list[Path]) -> None:
    """Valid is valid from the start on, also in segments that were closed long ago."""
    every = batches_of(6, b"flipped")
    segment(log_dirs[0] / "orders-0", 0, every[0], every[1][:-1] + bytes([every[1][-1] ^ 1]))
    segment(log_dirs[0] / "orders-0", 4, *every[2:])
    segment(log_dirs[1] / "orders-0", 0, *batches_of(4, b"good"))
    check_taken(log_dirs[:2], b"good", 8)


def test_of_equal_replicas_the_first_log_dir_is_read(log_dirs: list[Path]) -> None:
    """The order of the arguments decides, so that the answer is the same every time."""
    segment(log_dirs[0] / "orders-0", 0, *batches_of(3, b"one"))
    segment(log_dirs[1] / "orders-0", 0, *batches_of(3, b"two"))
    for order, mark in ((log_dirs[:2], b"one"), (log_dirs[1::-1], b"two")):
        with LogDir.open(order) as log_dir:
            assert {record.value for record in log_dir.scan()} == {mark}


def test_refresh_chooses_again_where_a_replica_has_changed(log_dirs: list[Path]) -> None:
    """And not before it: a choice holds between two looks."""
    every = batches_of(5, b"grows")
    segment(log_dirs[0] / "orders-0", 0, *batches_of(3, b"stays"))
    segment(log_dirs[1] / "orders-0", 0, *every[:2])
    end = TopicPartition("orders", 0)
    with LogDir.open(log_dirs[:2]) as log_dir, log_dir.log("orders", 0) as held:
        assert log_dir.end_offsets() == {end: 6}
        log_dir.refresh()
        assert log_dir.end_offsets() == {end: 6}
        segment(log_dirs[1] / "orders-0", 0, *every)
        assert log_dir.end_offsets() == {end: 6}
        log_dir.refresh()
        assert log_dir.end_offsets() == {end: 10}
        assert {record.value for record in log_dir.scan()} == {b"grows"}
        assert {record.value for record in held.scan()} == {b"stays"}, "a log that is open stays where it is"
        # The one that was chosen is cut, or removed.
        segment(log_dirs[1] / "orders-0", 0, *every[:1])
        log_dir.refresh()
        assert {record.value for record in log_dir.scan()} == {b"stays"}
        # A log dir, though without partitions.
        (log_dirs[0] / ".lock").touch()
        shutil.rmtree(log_dirs[0] / "orders-0")
        log_dir.refresh()
        assert log_dir.end_offsets() == {end: 2}


def test_second_replica_is_told_of(log_dirs: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    """A broker refuses to start on this; a reader says which one it left."""
    segment(log_dirs[0] / "orders-0", 0, *batches_of(1, b"short"))
    segment(log_dirs[1] / "orders-0", 0, *batches_of(2, b"long"))
    with caplog.at_level(logging.WARNING, logger="offsetlog"), LogDir.open(log_dirs[:2]) as log_dir:
        log_dir.log("orders", 0).close()
    assert any("orders-0" in record.getMessage() for record in caplog.records)


def test_lagging_broker_of_three_is_made_up_for_by_the_others(tmp_path: Path) -> None:
    """The disks of a real cluster, one of which lost the end of everything it holds."""
    folders = []
    for broker in OLD_LOG_DIRS:
        for golden in named("first-0", "first-1", "first-2"):
            replica = golden._replace(directory=broker / golden.name)
            if not replica.directory.exists():
                continue
            copied = replica.copy(tmp_path / broker.name)
            if broker.name == "broker-3":
                last = max(copied.glob("*.log"))
                last.write_bytes(last.read_bytes()[:-1])
        folders.append(tmp_path / broker.name)
    for order in itertools.permutations(folders):
        with LogDir.open(order) as log_dir:
            for golden in named("first-0", "first-1", "first-2"):
                with log_dir.log(golden.topic, golden.partition) as log:
                    assert rows(log.scan()) == golden.rows


def test_a_replica_that_cannot_be_read_is_named(log_dirs: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    """It may be the longest one. When it can be read, the next look has it."""
    segment(log_dirs[0] / "orders-0", 0, *batches_of(3, b"short"))
    broken = log_dirs[1] / "orders-0"
    (broken / f"{0:020}.log").mkdir(parents=True)
    with LogDir.open(log_dirs[:2]) as log_dir:
        assert {record.value for record in log_dir.log("orders", 0).scan()} == {b"short"}
        (warning,) = [text for text in caplog.messages if "left out" in text]
        assert f"the replica in {broken} is left out" in warning
        assert "perhaps is the newest" in warning
        shutil.rmtree(broken)
        segment(broken, 0, *batches_of(5, b"long"))
        caplog.clear()
        log_dir.refresh()
        assert {record.value for record in log_dir.log("orders", 0).scan()} == {b"long"}
        assert not [text for text in caplog.messages if "left out" in text]


def of_epoch(count: int, mark: bytes, epoch: int, base: int = 0) -> list[bytes]:
    return [batch(base + 2 * n, [(b"a", mark), (b"b", mark)], leader_epoch=epoch) for n in range(count)]


def test_a_longer_replica_of_an_older_leader_is_not_read(log_dirs: list[Path]) -> None:
    """The leader died with records that nobody else has; the next one went on without them, and Kafka would cut them off."""
    common = of_epoch(2, b"both", 4)
    segment(log_dirs[0] / "orders-0", 0, *common, *of_epoch(5, b"never replicated", 5, 4))
    segment(log_dirs[1] / "orders-0", 0, *common, *of_epoch(2, b"newer", 6, 4))
    segment(log_dirs[2] / "orders-0", 0, *common, *of_epoch(1, b"newer", 6, 4))
    for order in itertools.permutations(log_dirs):
        with LogDir.open(order) as log_dir:
            assert [record.value for record in log_dir.scan()] == [b"both"] * 4 + [b"newer"] * 4


def test_damage_in_the_newest_replica_does_not_make_a_stale_one_the_newest(log_dirs: list[Path]) -> None:
    """What it has behind the damage tells how new it is: the damage is met, and nobody takes the stale one for all there is."""
    damaged = bytearray(of_epoch(1, b"damaged", 4)[0])
    damaged[-1] ^= 1
    segment(log_dirs[0] / "orders-0", 0, bytes(damaged), *of_epoch(4, b"newer", 6, 2))
    segment(log_dirs[1] / "orders-0", 0, *of_epoch(3, b"older", 4))
    for order in itertools.permutations(log_dirs[:2]):
        with LogDir.open(order) as log_dir:
            with pytest.raises(CorruptBatchError):
                list(log_dir.log("orders", 0).scan())
            scan = log_dir.log("orders", 0).scan(on_corrupt="skip")
            assert [record.value for record in scan] == [b"newer"] * 8


def test_of_one_epoch_the_longest_sound_one_is_read_and_a_longer_damaged_one_is_named(
    log_dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    damaged = bytearray(of_epoch(1, b"damaged", 4)[0])
    damaged[-1] ^= 1
    segment(log_dirs[0] / "orders-0", 0, bytes(damaged), *of_epoch(4, b"longer", 4, 2))
    segment(log_dirs[1] / "orders-0", 0, *of_epoch(3, b"sound", 4))
    check_taken(log_dirs[:2], b"sound", 6)
    assert any("ends at offset 10 in leader epoch 4" in text and "the first is damaged" in text for text in caplog.messages)
    done = offsetlog("salvage", *log_dirs[:2], "--into", log_dirs[2])
    assert (done.returncode, "the first is damaged" in done.stderr) == (3, True)


def test_a_replica_that_ends_behind_the_newest_one_is_named(log_dirs: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    segment(log_dirs[0] / "orders-0", 0, *of_epoch(5, b"longer", 5))
    segment(log_dirs[1] / "orders-0", 0, *of_epoch(2, b"newer", 6))
    with LogDir.open(log_dirs[:2]) as log_dir:
        assert [record.value for record in log_dir.scan()] == [b"newer"] * 4
    (warning,) = [text for text in caplog.messages if "ends at offset 10 in leader epoch 5" in text]
    assert f"the replica in {log_dirs[0] / 'orders-0'} ends" in warning
    assert "which ends at 4 in epoch 6" in warning


def test_a_replica_whose_records_retention_removed_is_still_the_newest(log_dirs: list[Path]) -> None:
    """Its leader epochs tell: the records of an older replica were deleted."""
    segment(log_dirs[0] / "orders-0", 8)
    (log_dirs[0] / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n6 8\n")
    segment(log_dirs[1] / "orders-0", 0, *of_epoch(4, b"deleted", 4))
    for order in itertools.permutations(log_dirs[:2]):
        with LogDir.open(order) as log_dir, log_dir.log("orders", 0) as log:
            assert (log.log_start_offset, log.log_end_offset) == (8, 8)
            assert list(log_dir.scan()) == []


def replica(log_dir: Path, *bases: int, end: int = 12, mark: bytes = b"same", epoch: int = 4) -> Path:
    """Segments of four offsets with these base offsets; the last one reaches to the end."""
    for base in bases:
        count = (end - base if base == max(bases) else 4) // 2
        segment(log_dir / "orders-0", base, *of_epoch(count, mark, epoch, base))
    return log_dir / "orders-0"


def replicas_warned_of(order: Sequence[Path], caplog: pytest.LogCaptureFixture) -> tuple[list[int], list[str]]:
    """The offsets that are read, and what is told of replicas that are not."""
    caplog.clear()
    with LogDir.open(order) as log_dir:
        offsets = [record.offset for record in log_dir.scan()]
    return offsets, sorted({text for text in caplog.messages if "the replica in" in text})


@pytest.mark.parametrize("lost", [(4, 8), (0, 8)], ids=["the first segment", "a segment between two others"])
def test_of_equal_replicas_one_that_lost_a_segment_is_not_read(
    lost: tuple[int, ...], log_dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Also not with an empty active segment, as after a restart of the broker."""
    replica(log_dirs[0], *lost)
    replica(log_dirs[1], 0, 4, 8)
    for _ in range(2):
        for order in (log_dirs[:2], log_dirs[1::-1]):
            assert replicas_warned_of(order, caplog) == ([*range(12)], [])
            into = log_dirs[2] / str(len(list(log_dirs[2].iterdir())))
            done = offsetlog("salvage", *order, "--into", into)
            assert (done.returncode, "12 records salvaged" in done.stdout) == (0, True), done.stdout
        for log_dir in log_dirs[:2]:
            segment(log_dir / "orders-0", 12)


def test_of_equal_compacted_replicas_one_that_lost_a_segment_between_two_gaps_is_not_read(
    log_dirs: list[Path], tmp_path: Path
) -> None:
    """Compaction left a gap before that segment and one behind it: without it there is one gap, and one less."""
    (golden,) = named("g-compact-0")
    for log_dir in log_dirs[:2]:
        golden.copy(log_dir)
    for file in (log_dirs[1] / golden.name).glob(f"{635:020}.*"):
        file.unlink()
    for order in (log_dirs[:2], log_dirs[1::-1]):
        with LogDir.open(order) as both:
            assert rows(both.scan()) == golden.rows
        (restored,) = restore(order, tmp_path / "restored" / order[0].name, topics=golden.topic).partitions
        assert restored.records == len(golden.rows)


def test_of_equal_replicas_one_that_lost_the_segment_before_the_empty_active_one_is_not_read(
    log_dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    for log_dir, bases in zip(log_dirs, ((0,), (0, 4)), strict=False):
        replica(log_dir, *bases, end=4 * len(bases))
        segment(log_dir / "orders-0", 8)
        (log_dir / "orders-0/leader-epoch-checkpoint").write_text("0\n1\n4 0\n")
    for order in (log_dirs[:2], log_dirs[1::-1]):
        assert replicas_warned_of(order, caplog) == ([*range(8)], [])


def test_of_a_lost_beginning_and_a_lost_middle_the_beginning_is_named(log_dirs: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    """As ``restore`` chooses: a log that begins late may owe that to retention, and a gap is owed to nothing."""
    late, torn = replica(log_dirs[0], 4, 8), replica(log_dirs[1], 0, 8)
    for order in (log_dirs[:2], log_dirs[1::-1]):
        offsets, (warning,) = replicas_warned_of(order, caplog)
        assert offsets == [*range(4, 12)]
        assert f"the replica in {torn} begins at offset 0; {late} is read, which begins at 4" in warning


def test_a_replica_with_what_a_longer_or_newer_one_lacks_is_named(log_dirs: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    longer, whole = replica(log_dirs[0], 4, 8, end=14), replica(log_dirs[1], 0, 4, 8)
    newer = replica(log_dirs[2], 0, 8, epoch=5)
    offsets, (warning,) = replicas_warned_of(log_dirs[:2], caplog)
    assert offsets == [*range(4, 14)]
    assert f"the replica in {whole} begins at offset 0; {longer} is read, which begins at 4" in warning
    offsets, (warning,) = replicas_warned_of(log_dirs[1:], caplog)
    assert offsets == [*range(4), *range(8, 12)]
    assert f"the replica in {whole} has offset 7; {newer} is read, where it is missing before segment {8:020}" in warning
    # What compaction leaves out is no loss.
    (log_dirs[2] / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 8\n")
    assert replicas_warned_of(log_dirs[1:], caplog) == (offsets, [])


def test_records_that_were_deleted_on_purpose_are_not_missed(log_dirs: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    """The log start offset lies inside of the first segment: a client's ``DeleteRecords``, which has not reached the other one. Both are
    whole, and of equals the first one is read.
    """
    replica(log_dirs[0], 4, 8)
    (log_dirs[0] / "log-start-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    replica(log_dirs[1], 0, 4, 8)
    assert replicas_warned_of(log_dirs[:2], caplog) == ([*range(6, 12)], [])
    assert replicas_warned_of(log_dirs[1::-1], caplog) == ([*range(12)], [])


def checkpointed(log_dir: Path, *entries: str) -> None:
    (log_dir / "orders-0/leader-epoch-checkpoint").write_text("\n".join(("0", str(len(entries)), *entries, "")))


def test_a_leader_that_has_no_record_yet_is_newer_than_a_longer_replica(
    log_dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A broker stores a new leader's epoch when it begins, before its first record: the other one cuts off what it has more."""
    newer, longer = replica(log_dirs[0], 0, 4, 8), replica(log_dirs[1], 0, 4, 8, end=14)
    checkpointed(log_dirs[0], "4 0", "5 12")
    checkpointed(log_dirs[1], "4 0")
    for order in (log_dirs[:2], log_dirs[1::-1]):
        offsets, (warning,) = replicas_warned_of(order, caplog)
        assert offsets == [*range(12)]
        assert f"the replica in {longer} ends at offset 14 in leader epoch 4; {newer} is read, which ends at 12 in epoch 5" in warning


def test_an_epoch_behind_the_end_does_not_count(log_dirs: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    """Its leader had the records before it; they are lost here. A broker drops such an entry when it loads the log."""
    replica(log_dirs[0], 0, 4, 8)
    replica(log_dirs[1], 0, 4, 8, end=14)
    checkpointed(log_dirs[0], "4 0", "5 13")
    checkpointed(log_dirs[1], "4 0")
    for order in (log_dirs[:2], log_dirs[1::-1]):
        assert replicas_warned_of(order, caplog) == ([*range(14)], [])


def test_a_new_leader_epoch_is_seen_by_the_next_look(log_dirs: list[Path]) -> None:
    replica(log_dirs[0], 0, 4, 8)
    replica(log_dirs[1], 0, 4, 8, end=14)
    partition = TopicPartition("orders", 0)
    with LogDir.open(log_dirs[:2]) as log_dir:
        assert log_dir.end_offsets() == {partition: 14}
        checkpointed(log_dirs[0], "4 0", "5 12")
        log_dir.refresh()
        assert log_dir.end_offsets() == {partition: 12}
