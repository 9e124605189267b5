"""Each named difference on its own: what Kafka does, what is done here, and that Kafka goes on with the result."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import differences
import log_files
import pytest
from comparing import Arena
from histories import History, Step
from hostile import mutated
from interface import Batch, Clock, Ends, Marker, Opening, Refusal, Row, Side
from kafka_log import KafkaError, KafkaLog, Oracle
from our_log import OurLog
from reports import shows
from runner import play

TIME = 1_700_000_000_000
EPOCHS = "leader-epoch-checkpoint"


@dataclass
class Two:
    """Both sides, each with a directory of its own."""

    oracle: Oracle
    ours: OurLog
    kafka: KafkaLog
    clock: Clock

    def open(self, **config: object) -> None:
        """New logs."""
        self.config = {name.replace("_", "."): str(value) for name, value in config.items()}
        self.each(lambda side: side.open(Opening(self.config, clean=False, recovery_point=0)))

    def each(self, call: Callable[[Side], object]) -> None:
        """The same on both."""
        for side in (self.ours, self.kafka):
            call(side)

    def append(self, *rows: Row, epoch: int = 0, producer: tuple[int, int, int] = (-1, -1, -1), transactional: bool = False) -> None:
        """One batch on both; a refusal is swallowed, as its effects are what is looked at."""
        batch = Batch(rows or (self.row(),), "none", *producer, transactional)
        for side in (self.ours, self.kafka):
            try:
                side.append_rows(batch, "records", epoch)
            except Refusal:
                continue

    def reopen(self, *, clean: bool) -> None:
        """Both are closed, and opened again."""
        end = self.kafka.ends().log_end_offset
        self.each(lambda side: side.close(clean=clean))
        self.each(lambda side: side.open(Opening(self.config, clean, end if clean else 0)))

    def row(self, size: int = 10, at: int = 0) -> Row:
        """A record."""
        return Row(self.clock.now + at, b"key", b"v" * size)

    def epochs(self) -> tuple[str, str]:
        """The epoch files."""
        return (self.ours.directory / EPOCHS).read_text(), (self.kafka.directory / EPOCHS).read_text()

    def bases(self) -> tuple[list[int], list[int]]:
        """The segments."""
        return log_files.bases(self.ours.directory), log_files.bases(self.kafka.directory)

    def kafka_takes_over(self, *, clean: bool = True) -> Ends:
        """Ends our writing; Kafka opens our directory and sees what we saw."""
        before = self.ours.ends()
        self.ours.close(clean=clean)
        taken = KafkaLog(self.oracle, self.ours.directory, "taken")
        point = before.log_end_offset if clean else before.recovery_point
        after = taken.open(Opening(self.config, clean, point, before.log_start_offset))
        taken.append_rows(Batch((self.row(),)), "records", 9)
        taken.close(clean=True)
        assert after.log_end_offset == before.log_end_offset
        assert after.log_start_offset == before.log_start_offset
        return after


@pytest.fixture
def two(oracle: Oracle, folder: Path) -> Iterator[Two]:
    clock = Clock()
    clock.set(TIME)
    shutil.rmtree(folder / "differences", ignore_errors=True)
    ours = OurLog(folder / "differences" / "ours" / "x-0", clock)
    kafka = KafkaLog(oracle, folder / "differences" / "kafka" / "x-0", "difference")
    for side in (ours, kafka):
        side.directory.mkdir(parents=True)
    kafka.follow(clock)
    clock.set(TIME)
    yield Two(oracle, ours, kafka, clock)
    for side in (ours, kafka):
        with contextlib.suppress(AssertionError, KafkaError):
            side.close(clean=False)


@shows(differences.EPOCH_OF_REFUSED)
def test_epoch_of_refused(two: Two) -> None:
    two.open()
    two.append(epoch=1, producer=(5, 0, 0))
    two.append(epoch=4, producer=(5, 0, 7))
    ours, kafkas = two.epochs()
    assert ours == "0\n1\n1 0\n"
    assert kafkas == "0\n2\n1 0\n4 1\n"
    two.append(epoch=2)
    ours, kafkas = two.epochs()
    assert ours == kafkas == "0\n2\n1 0\n2 1\n"
    two.kafka_takes_over()


@shows(differences.EPOCH_AT_END)
def test_epoch_at_end(two: Two) -> None:
    two.open()
    two.append(epoch=3)
    two.each(lambda side: side.delete_records_before(1))
    none, found = "0\n0\n", "0\n1\n3 1\n"
    for clean, kafkas in ((True, none), (False, found), (False, none), (False, found)):
        for side in (two.ours, two.kafka):
            side.close(clean=clean)
            side.open(Opening(two.config, clean, int(clean), 1))
        assert two.epochs() == (none, kafkas)
    two.append(epoch=3)
    assert two.epochs() == (found, found)
    two.kafka_takes_over()


@shows(differences.ROLL_OF_REFUSED)
def test_roll_of_refused(two: Two) -> None:
    two.open(internal_segment_bytes=200)
    two.append(two.row(100), producer=(5, 0, 0))
    two.append(two.row(100), producer=(5, 0, 7))
    assert two.bases() == ([0], [0, 1])
    two.append(two.row(100), producer=(5, 0, 1))
    assert two.bases() == ([0, 1], [0, 1])
    two.kafka_takes_over()


@shows(differences.EARLY_ROLL)
@shows(differences.UNRECOVERABLE)
def test_early_roll(two: Two) -> None:
    """An index of three time entries: opened twice, Kafka's segment has more batches than can ever be indexed again."""
    two.open(internal_segment_bytes=100_000, index_interval_bytes=0, segment_index_bytes=36)
    for number in range(2):
        two.append(two.row(at=number * 10))
        two.append(two.row(at=number * 10 + 5))
        two.reopen(clean=True)
    ours, kafkas = two.bases()
    assert len(ours) > len(kafkas)
    two.kafka.close(clean=False)
    with pytest.raises(KafkaError, match="full"):
        two.kafka.open(Opening(two.config, clean=False, recovery_point=0))
    two.kafka_takes_over(clean=False)


@shows(differences.EARLY_ROLL)
def test_many_batches_at_once(two: Two) -> None:
    """A follower's append of more batches than the index of the segment has room for."""
    two.open(internal_segment_bytes=100_000, index_interval_bytes=0, segment_index_bytes=36)
    two.append()
    data = b"".join(two.oracle.encode(Batch((two.row(at=offset),)), baseOffset=offset, batchLeaderEpoch=0) for offset in range(1, 4))
    with pytest.raises(KafkaError):
        two.kafka.append_as_follower(data, 0)
    assert two.kafka.ends().log_end_offset == 1
    assert two.ours.append_as_follower(data, 0).last_offset == 3
    two.kafka_takes_over(clean=False)


@shows(differences.EMPTY_ROLL)
def test_empty_roll(two: Two) -> None:
    two.open()
    before = {path.name: path.stat().st_ino for path in two.kafka.directory.glob("*.log")}
    mine = {path.name: path.stat().st_ino for path in two.ours.directory.glob("*.log")}
    two.each(lambda side: side.roll())
    assert {path.name: path.stat().st_ino for path in two.kafka.directory.glob("*.log")} != before
    assert {path.name: path.stat().st_ino for path in two.ours.directory.glob("*.log")} == mine
    two.append()
    two.kafka_takes_over()


@shows(differences.TIME_LOOK_UP)
def test_time_look_up(two: Two) -> None:
    """The only records late enough in the first segment lie before the log start offset."""
    two.open()
    for number in range(6):
        two.append(two.row(at=(number + 1) * 100))
    two.each(lambda side: side.roll())
    two.append(two.row(at=650))
    two.each(lambda side: side.delete_records_before(6))
    asked = [TIME + 600]
    assert two.kafka.offsets_for_times(asked) == [None]
    (found,) = two.ours.offsets_for_times(asked)
    assert found is not None
    assert found.offset == 6
    two.kafka_takes_over()


@shows(differences.STALE_LSO)
def test_stable_offset_after_a_truncation(two: Two) -> None:
    two.open()
    two.append()
    two.append(producer=(5, 0, 0), transactional=True)
    two.append()
    marker = Marker(5, 0, commit=True, coordinator_epoch=0, timestamp=TIME)
    two.each(lambda side: side.append_marker(marker, 0))
    two.append()
    two.each(lambda side: side.truncate_to(3))
    assert two.ours.ends().last_stable_offset == 1
    two.append()
    assert two.ours.ends() == two.kafka.ends()
    two.kafka_takes_over()


@shows(differences.DELETED_FILES)
def test_deleted_files(two: Two) -> None:
    two.open(internal_segment_bytes=100)
    for _ in range(4):
        two.append()
    two.each(lambda side: side.truncate_to(1))
    assert list(two.kafka.directory.glob("*.deleted"))
    two.reopen(clean=False)
    for side in (two.ours, two.kafka):
        assert not list(side.directory.glob("*.deleted"))
    two.kafka_takes_over()


@shows(differences.LAZY_INDEX)
def test_indexes_without_entries(two: Two) -> None:
    two.open()
    two.append()
    two.each(lambda side: side.roll())
    assert not (two.kafka.directory / f"{1:020}.index").exists()
    two.append()
    names = [sorted(log_files.sizes(side.directory)) for side in (two.ours, two.kafka)]
    assert names[0] == names[1]
    two.kafka_takes_over(clean=False)


def whole_entries(path: Path) -> int:
    """How many entries an index holds before the zeros."""
    return len(log_files.entries(path.name, path.read_bytes()))


@shows(differences.LATE_STRETCH)
def test_late_stretch(two: Two) -> None:
    two.open(segment_index_bytes=1003, index_interval_bytes=0)
    two.append()
    two.append()
    two.reopen(clean=True)
    name = f"{0:020}.index"
    assert [(side.directory / name).stat().st_size for side in (two.ours, two.kafka)] == [8, 1000]
    two.append()
    assert [(side.directory / name).stat().st_size for side in (two.ours, two.kafka)] == [1000, 1000]
    two.kafka_takes_over(clean=False)


@shows(differences.WAITING_ENTRIES)
def test_waiting_index_entries(two: Two) -> None:
    two.open(segment_index_bytes=1003, index_interval_bytes=0)
    name = f"{0:020}.index"
    counts = []
    for _ in range(11):
        two.append()
        counts.append(tuple(whole_entries(side.directory / name) for side in (two.ours, two.kafka)))
    # The first batch of a segment has no entry.
    assert counts == [(entries // 8 * 8, entries) for entries in range(11)]
    # After a kill they are not there; a broker rebuilds them.
    two.kafka_takes_over(clean=False)
    assert whole_entries(two.ours.directory / name) == 10


@shows(differences.STALE_ENTRIES)
def test_stale_index_entries(two: Two) -> None:
    two.open(segment_index_bytes=1003, index_interval_bytes=0)
    for _ in range(4):
        two.append()
    two.each(lambda side: side.truncate_to(2))
    counts = [whole_entries(side.directory / f"{0:020}.index") for side in (two.ours, two.kafka)]
    assert counts == [1, 3]
    two.each(lambda side: side.flush())
    two.kafka_takes_over()


@shows(differences.WHOLE_BATCHES)
def test_a_fetch_ends_with_a_whole_batch(two: Two) -> None:
    two.open()
    two.append()
    two.append()
    size = log_files.sizes(two.ours.directory)[f"{0:020}.log"] // 2
    ours, kafkas = (side.fetch(0, size + 20, committed=False) for side in (two.ours, two.kafka))
    assert len(kafkas.records) == size + 20
    assert ours.records == kafkas.records[:size]
    two.kafka_takes_over()


@shows(differences.ABORTED_WITHIN)
def test_aborted_transactions_of_a_fetch(two: Two) -> None:
    two.open()
    two.append()
    two.append(producer=(5, 0, 0), transactional=True)
    marker = Marker(5, 0, commit=False, coordinator_epoch=0, timestamp=TIME)
    two.each(lambda side: side.append_marker(marker, 0))
    size = len(two.ours.fetch(0, 1, committed=True).records)
    ours, kafkas = (side.fetch(0, size, committed=True) for side in (two.ours, two.kafka))
    assert ours.records == kafkas.records
    assert (ours.aborted, kafkas.aborted) == ((), ((5, 1),))
    ours, kafkas = (side.fetch(1, 10_000, committed=True) for side in (two.ours, two.kafka))
    assert ours == kafkas
    assert ours.aborted == ((5, 1),)
    two.kafka_takes_over()


@shows(differences.ABORTED_WITHIN)
def test_a_transaction_index_made_anew(arena: Arena) -> None:
    """The transaction began below the log start offset; the truncation has made Kafka forget it, and the recovery at the end makes ours anew."""
    producer = {"id": 5, "epoch": 0, "sequence": "next", "txn": True}
    appended = {"form": "bytes", "rows": [[0, "a", 1]], "codec": "none", "epoch": 7}
    steps = (
        Step("append", {**appended, "producer": producer}),
        Step("delete_records", {"on": 1, "end": True}),
        Step("append", {**appended, "producer": producer}),
        Step("append", appended),
        Step("truncate", {"back": 1}),
        Step("marker", {"id": 5, "epoch": 0, "commit": False, "coordinator": 0, "leader_epoch": 15, "time": 26}),
        Step("reopen", {"clean": True, "config": {"internal.segment.bytes": "400"}}),
        Step("append", {**appended, "rows": [[0, "a longer key, of forty bytes and something", 80]], "epoch": 15}),
    )
    before = arena.uses.counts[differences.ABORTED_WITHIN.name]
    assert play(History(0, {"internal.segment.bytes": "20000"}, steps), arena) is None
    assert arena.uses.counts[differences.ABORTED_WITHIN.name] > before


@shows(differences.STABLE_IN_BATCH)
def test_a_stable_offset_inside_a_batch(two: Two) -> None:
    two.open()
    two.append(two.row(), two.row(), two.row(), producer=(5, 0, 0), transactional=True)
    two.append()
    two.each(lambda side: side.delete_records_before(2))
    assert [side.ends().last_stable_offset for side in (two.ours, two.kafka)] == [2, 0]
    two.kafka_takes_over()


@shows(differences.LARGEST_TIMESTAMP)
def test_the_largest_timestamp_after_a_truncation(two: Two) -> None:
    two.open()
    two.append()
    two.append(two.row(at=100))
    two.reopen(clean=True)
    two.each(lambda side: side.truncate_to(1))
    two.each(lambda side: side.roll())
    counts = [whole_entries(side.directory / f"{0:020}.timeindex") for side in (two.ours, two.kafka)]
    assert counts == [1, 0]
    two.kafka_takes_over()


@shows(differences.WHICH_REASON)
def test_which_of_two_reasons(two: Two) -> None:
    two.open(max_message_bytes=100, message_timestamp_before_max_ms=10)
    batch = Batch((two.row(size=200, at=-1000),))
    with pytest.raises(Refusal, match="InvalidTimestampError"):
        two.ours.append_rows(batch, "records", 0)
    with pytest.raises(Refusal, match="RecordTooLargeException"):
        two.kafka.append_rows(batch, "records", 0)
    with pytest.raises(Refusal, match="RecordTooLargeError"):
        two.ours.append_bytes(two.oracle.encode(batch), 0, "client")
    two.kafka_takes_over()


@shows(differences.WHICH_REASON)
def test_a_contradiction_comes_before_the_producer(arena: Arena) -> None:
    """Kafka looks at no lengths of compressed records."""
    producer = {"id": 8, "epoch": 0, "sequence": 2147483647, "txn": True}
    hostile = {"rows": [[0, "a", 1]], "codec": "zstd", "mutations": [["field", "payload", 9]], "producer": producer, "epoch": 15}
    steps = (
        Step("marker", {"id": 8, "epoch": 0, "commit": False, "coordinator": 1, "leader_epoch": 13, "time": 9}),
        Step("hostile", hostile),
    )
    before = arena.uses.counts[differences.WHICH_REASON.name]
    assert play(History(0, {"internal.segment.bytes": "2000"}, steps), arena) is None
    assert arena.uses.counts[differences.WHICH_REASON.name] == before + 1


@shows(differences.OVERLAPPING)
def test_overlapping_batches(two: Two) -> None:
    two.open()
    parts = ((0, (two.row(),)), (0, (two.row(), two.row())))
    data = b"".join(two.oracle.encode(Batch(rows), baseOffset=base, batchLeaderEpoch=0) for base, rows in parts)
    assert two.kafka.append_as_follower(data, 0).last_offset == 1
    with pytest.raises(Refusal, match="OffsetsOutOfOrderError"):
        two.ours.append_as_follower(data, 0)
    assert two.ours.ends().log_end_offset == 0
    two.kafka_takes_over()


@shows(differences.UNTRUE_RECORDS)
def test_batches_that_contradict_themselves(two: Two) -> None:
    """Two offsets and three records, from a coordinator."""
    two.open()
    data = mutated(two.oracle.encode(Batch((two.row(),) * 3)), [["field", "last_offset_delta", 1]])
    two.kafka.append_bytes(data, 0, "coordinator")
    assert not two.oracle.reads_whole(two.kafka.fetch(0, 1000, committed=False).records)
    with pytest.raises(Refusal, match="RecordRejectedError"):
        two.ours.append_bytes(data, 0, "coordinator")
    two.append()
    two.kafka_takes_over()


@shows(differences.KAFKA_FAILS)
def test_offsets_too_far_apart(two: Two) -> None:
    """The refused append leaves a segment of Kafka's that no append can reach; here it leaves nothing."""
    two.open()
    two.append()
    parts = (2, 3_000_000_000)
    data = b"".join(two.oracle.encode(Batch((two.row(),)), baseOffset=base, batchLeaderEpoch=0) for base in parts)
    for side in (two.ours, two.kafka):
        with pytest.raises(Refusal):
            side.append_as_follower(data, 0)
    assert two.bases() == ([0], [0, 2])
    with pytest.raises(KafkaError, match="Trying to roll"):
        two.kafka.append_rows(Batch((two.row(),)), "records", 0)
    assert two.ours.append_rows(Batch((two.row(),)), "records", 0).base_offset == 1
    two.kafka_takes_over()


@shows(differences.KAFKA_FAILS)
def test_a_batch_that_ends_before_it_begins(two: Two) -> None:
    """A follower's, with a last offset delta of -1: its bytes stay in Kafka's log, refused or not."""
    two.open(index_interval_bytes=0)
    two.append()
    for times in (1, 2):
        data = two.oracle.encode(Batch((two.row(),)), baseOffset=two.kafka.ends().log_end_offset, batchLeaderEpoch=0)
        data = mutated(data, [["field", "last_offset_delta", -1]])
        before = (two.kafka.directory / f"{0:020}.log").stat().st_size
        with contextlib.suppress(KafkaError):
            two.kafka.append_as_follower(data, 0)
        assert (two.kafka.directory / f"{0:020}.log").stat().st_size == before + len(data)
        with pytest.raises(Refusal, match="RecordRejectedError"):
            two.ours.append_as_follower(data, 0)
        two.append()
        assert two.ours.ends().log_end_offset == 1 + times
    two.kafka_takes_over()


@shows(differences.BEHIND_A_HOLE)
def test_an_empty_segment_behind_a_hole(two: Two) -> None:
    two.open()
    two.append()
    two.append(two.row(), two.row(), two.row())
    two.each(lambda side: side.truncate_to(3))
    two.each(lambda side: side.roll())
    assert two.bases() == ([0, 3], [0, 3])
    two.reopen(clean=False)
    assert (two.ours.ends().log_end_offset, two.kafka.ends().log_end_offset) == (1, 3)
    two.append()
    two.kafka_takes_over(clean=False)


@shows(differences.BEHIND_A_HOLE)
def test_an_empty_segment_at_the_start_behind_a_hole(two: Two) -> None:
    """What lies below the start goes at once, where a broker's retention would take it."""
    two.open()
    two.append()
    two.append(two.row(), two.row(), two.row())
    two.each(lambda side: side.delete_records_before(4))
    two.each(lambda side: side.truncate_to(3))
    two.each(lambda side: side.roll())
    assert two.bases() == ([0, 3], [0, 3])
    start = two.kafka.ends().log_start_offset
    two.each(lambda side: side.close(clean=False))
    two.each(lambda side: side.open(Opening(two.config, clean=False, recovery_point=0, log_start_offset=start)))
    assert [(side.ends().log_start_offset, side.ends().log_end_offset) for side in (two.ours, two.kafka)] == [(3, 3)] * 2
    assert two.bases() == ([3], [0, 3])
    two.append()
    two.kafka_takes_over(clean=False)


@shows(differences.UNTOUCHED)
def test_killed_without_a_change(two: Two) -> None:
    two.open()
    two.append()
    for clean in (True, False):
        two.ours.close(clean=clean)
        # Nothing is told: what the end was is found in the directory.
        ends = two.ours.open(Opening(two.config, checkpoints=True))
        assert ends.recovery_point == ends.log_end_offset == 1
    two.ours.append_rows(Batch((two.row(),)), "records", 0)
    two.ours.close(clean=False)
    assert two.ours.open(Opening(two.config, checkpoints=True)).recovery_point == 1
    two.kafka_takes_over(clean=False)


@shows(differences.GAP_OF_ANOTHER)
def test_gap_of_another(arena: Arena) -> None:
    row = [0, "a", 1]
    steps = (
        Step("reopen", {"clean": False, "point": "live", "side": 1}),
        Step("append", {"form": "bytes", "rows": [row], "codec": "none", "epoch": 6}),
        Step("follower", {"batches": [{"rows": [[1639, "a", 1]], "codec": "none", "gap": 2, "epoch": 6}], "epoch": 6}),
        Step("reopen", {"clean": False, "point": "zero", "side": 0}),
    )
    before = arena.uses.counts[differences.GAP_OF_ANOTHER.name]
    assert play(History(0, {"internal.segment.bytes": "20000", "segment.ms": "1000"}, steps, turns=True), arena) is None
    assert arena.uses.counts[differences.GAP_OF_ANOTHER.name] == before + 1
