"""Retention and compaction, example by example: what is done by offsetlog, by Kafka, and what is written here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import log_files
import pytest
from differences import DOUBTFUL, FULL_INDEX, Uses
from interface import Batch, Clock, Marker, Opening, Row
from kafka_log import KafkaError, KafkaLog, Oracle
from our_log import OurLog
from reports import shows

T0 = 1_700_000_000_000
SETTINGS = {"internal.segment.bytes": "10000", "delete.retention.ms": "1000", "cleanup.policy": "compact"}
Shown = tuple[int, int, tuple[tuple[int, str, str | None], ...]]


@dataclass
class Pair:
    """One log on both sides: written by offsetlog, copied, and kept up by both."""

    ours: OurLog
    kafka: KafkaLog
    clock: Clock

    def write(self, settings: dict[str, str], steps: list[Any]) -> None:
        """Batches as lists of (key, value), markers and a leader's bytes as they are; an empty list rolls."""
        self.ours.open(Opening(settings))
        for step in steps:
            self.append(self.ours, step)
        self.ours.close(clean=True)
        shutil.copytree(self.ours.directory, self.kafka.directory, ignore=shutil.ignore_patterns(".offsetlog*"))
        self.ours.open(Opening(settings))
        self.kafka.open(Opening(settings))

    def append(self, side: OurLog | KafkaLog, step: Any) -> None:  # noqa: ANN401  # a step
        if isinstance(step, Marker):
            side.append_marker(step, 0)
        elif isinstance(step, Batch):
            side.append_rows(step, "records", 0)
        elif isinstance(step, bytes):
            side.append_as_follower(step, 0)
        elif step:
            side.append_rows(Batch(rows(step, self.clock.now)), "records", 0)
        else:
            side.roll()

    def also(self, step: Any) -> None:  # noqa: ANN401  # a step
        """One more step of both."""
        self.append(self.ours, step)
        self.append(self.kafka, step)

    def configure(self, settings: dict[str, str]) -> None:
        self.ours.configure(settings)
        self.kafka.configure(settings)

    def at(self, after: int) -> None:
        """Sets the clock of both."""
        self.clock.set(T0 + after)

    def same(self) -> None:
        mine, theirs = (log_files.stored(side.directory) for side in (self.ours, self.kafka))
        assert not log_files.unlike(mine, theirs, Uses())

    def compact(self, first_dirty: int, map_bytes: int = 2_400_000) -> int:
        """One pass of both; where it ended."""
        end = self.ours.log.compact(first_dirty, map_bytes).end_offset
        assert self.kafka.ask("compact", firstDirty=first_dirty, mapBytes=map_bytes)["end"] == end
        self.same()
        return end

    def maintain(self) -> list[int]:
        """Retention of both; base offsets of the segments that went."""
        removed = self.ours.log.maintain(only=["retention"]).removed
        assert self.kafka.ask("retention")["deleted"] == len(removed)
        self.same()
        return [segment.base_offset for segment in removed]

    def headers(self) -> list[log_files.Header]:
        """The batches of the closed segments."""
        logs = sorted(self.ours.directory.glob("*.log"))[:-1]
        return [one for log in logs for one in log_files.headers(log.read_bytes())]

    def batches(self) -> list[tuple[int, int, int]]:
        """First offset, last offset and size of each of them."""
        return [(one.base_offset, one.last_offset, one.size) for one in self.headers()]

    def bases(self) -> list[int]:
        return log_files.bases(self.ours.directory)

    def records(self) -> list[tuple[int, str, str | None]]:
        """The closed segments' data records."""
        end = self.bases()[-1]
        found = self.ours.log.scan(stop=end)
        return [(one.offset, (one.key or b"").decode(), None if one.value is None else one.value.decode()) for one in found]


def rows(pairs: list[tuple[str, str | None]], when: int) -> tuple[Row, ...]:
    """Records of one time."""
    return tuple(Row(when, key.encode(), None if value is None else value.encode()) for key, value in pairs)


@pytest.fixture
def pair(oracle: Oracle, folder: Path) -> Iterator[Pair]:
    """A log that is not there yet."""
    below = folder / "examples"
    shutil.rmtree(below, ignore_errors=True)
    clock = Clock(T0)
    made = Pair(OurLog(below / "ours" / "t-0", clock), KafkaLog(oracle, below / "kafka" / "t-0", "example"), clock)
    made.kafka.follow(clock)
    clock.set(T0)
    for name in ("ours", "kafka"):
        (below / name).mkdir(parents=True)
    yield made
    made.kafka.close(clean=False)
    made.ours.close(clean=False)


# contract: three segments of one record each, of the times t0, t0 + 1000 and t0 + 2000.
def three(pair: Pair, settings: dict[str, str]) -> None:
    base = {"internal.segment.bytes": "100", "cleanup.policy": "delete", "retention.ms": "-1"}
    pair.write(
        base | settings,
        [Batch((Row(T0 + 1000 * n, b"k", b"v"),)) for n in range(3)],
    )
    assert pair.bases() == [0, 1, 2]
    assert pair.ours.log.size_bytes % 3 == 0


def test_retention_by_time(pair: Pair) -> None:
    three(pair, {"retention.ms": "10000"})
    for after, gone in ((10_000, []), (10_001, [0]), (11_001, [1]), (12_000, []), (12_001, [2])):
        pair.at(after)
        assert pair.maintain() == gone, after
    assert pair.bases() == [3]
    assert pair.ours.ends().log_start_offset == 3
    assert (pair.ours.directory / f"{3:020}.snapshot").exists()
    assert pair.maintain() == []


def test_retention_by_size(pair: Pair) -> None:
    three(pair, {})
    size = pair.ours.log.size_bytes // 3
    base = {"internal.segment.bytes": "100", "cleanup.policy": "delete", "retention.ms": "-1"}
    for limit, gone in (
        (3 * size + 80, []),
        (3 * size, []),
        (3 * size - 1, []),
        (2 * size + 1, []),
        (2 * size, [0]),
        (2 * size - 1, []),
        (size, [1]),
        (size - 1, []),
        (1, []),
        (0, [2]),
    ):
        pair.configure(base | {"retention.bytes": str(limit)})
        assert pair.maintain() == gone, limit
    assert pair.bases() == [3]


def test_retention_by_start(pair: Pair) -> None:
    three(pair, {})
    for offset, gone in ((1, [0]), (3, [1])):
        pair.ours.delete_records_before(offset)
        pair.kafka.delete_records_before(offset)
        assert pair.maintain() == gone
    assert (pair.bases(), pair.ours.ends().log_start_offset) == ([2], 3)


def test_a_future_record_keeps_its_segment_and_all_behind(pair: Pair) -> None:
    future = {"message.timestamp.after.max.ms": str(1 << 50)}
    pair.write(
        {"internal.segment.bytes": "100", "cleanup.policy": "delete", "retention.ms": "1000"} | future,
        [Batch((Row(when, b"k", b"v"),)) for when in (T0 + 1_000_000, T0, T0)],
    )
    pair.at(100_000)
    assert pair.maintain() == []


@pytest.mark.parametrize(("policy", "gone"), [("", []), ("compact", []), ("compact,delete", [0])])
def test_retention_by_policy(pair: Pair, policy: str, gone: list[int]) -> None:
    three(pair, {"retention.ms": "5000", "cleanup.policy": policy})
    pair.at(5_500)
    assert pair.maintain() == gone


def test_retention_ends_at_the_high_watermark(pair: Pair) -> None:
    """A leader that waits for its followers keeps what they have not got. Ours is the only replica: all that it holds counts as
    replicated, as in a broker whose followers have everything."""
    three(pair, {"retention.ms": "0"})
    pair.at(2500)
    pair.kafka.ask("hw", offset=1)
    assert pair.kafka.ask("retention")["deleted"] == 1
    assert log_files.bases(pair.kafka.directory) == [1, 2]
    pair.kafka.ask("hw", offset=3)
    assert pair.kafka.ask("retention")["deleted"] == 2
    assert pair.ours.ends().high_watermark == pair.ours.ends().log_end_offset == 3
    assert [segment.base_offset for segment in pair.ours.log.maintain(only="retention").removed] == [0, 1, 2]
    pair.same()
    assert pair.bases() == [3]
    assert pair.maintain() == []


def test_segments_roll_by_the_time_of_records(pair: Pair) -> None:
    """By the wall clock only where the first batch has no time."""
    pair.write({"segment.ms": "10000"}, [Batch((Row(T0, b"k", b"v"),))])
    pair.at(60_000)
    for after, rolled in ((5_000, []), (10_000, []), (10_001, [3])):
        pair.also(Batch((Row(T0 + after, b"k", b"v"),)))
        assert pair.bases() == [0, *rolled], after
        pair.same()


def test_segments_without_times_roll_by_the_clock(pair: Pair) -> None:
    pair.write({"segment.ms": "10000"}, [Batch((Row(-1, b"k", b"v"),))])
    for after, rolled in ((10_000, []), (10_001, [2])):
        pair.at(after)
        pair.also(Batch((Row(-1, b"k", b"v"),)))
        assert pair.bases() == [0, *rolled], after
        pair.same()


def test_records_without_times_are_as_old_as_their_file(pair: Pair) -> None:
    pair.write(
        {"internal.segment.bytes": "100", "cleanup.policy": "delete", "retention.ms": "1000"},
        [Batch((Row(-1, b"k", b"v"),)), Batch((Row(-1, b"k", b"v"),))],
    )
    for side in (pair.ours, pair.kafka):
        for number, path in enumerate(sorted(side.directory.glob("*.log"))):
            os.utime(path, ns=((T0 + number * 5000) * 1_000_000,) * 2)
    pair.at(1000)
    assert pair.maintain() == []
    pair.at(1001)
    assert pair.maintain() == [0]
    pair.at(6000)
    assert pair.maintain() == []
    pair.at(6001)
    assert pair.maintain() == [1]


def test_files_of_removed_segments_go_after_their_delay(pair: Pair) -> None:
    three(pair, {"retention.ms": "0", "file.delete.delay.ms": "500"})
    pair.at(1500)
    assert pair.maintain() == [0, 1]
    log = pair.ours.log
    waiting = sorted(path.name for path in pair.ours.directory.glob("*.deleted"))
    assert waiting == sorted(path.name for path in pair.kafka.directory.glob("*.deleted"))
    pair.at(1999)
    assert log.maintain(dry_run=True, only="deletes").deleted == ()
    pair.at(2000)
    assert sorted(Path(path).name for path in log.maintain(dry_run=True, only="deletes").deleted) == waiting
    assert sorted(Path(path).name for path in log.maintain(only="deletes").deleted) == waiting
    assert not list(pair.ours.directory.glob("*.deleted"))
    assert not list(pair.kafka.directory.glob("*.deleted"))


def test_compaction_tombstones_and_horizon(pair: Pair) -> None:
    pair.write(
        SETTINGS,
        [
            [("a", "1"), ("b", "1"), ("c", "1")],
            [("a", "2"), ("b", None)],
            [],
            [("a", "3")],
            [("d", "4")],
            [],
            [("c", "9")],
        ],
    )
    pair.at(100)
    assert pair.compact(0) == 7
    assert pair.bases() == [0, 7]
    assert pair.records() == [(2, "c", "1"), (4, "b", None), (5, "a", "3"), (6, "d", "4")]
    assert [one[:2] for one in pair.batches()] == [(0, 2), (3, 4), (5, 5), (6, 6)]
    pair.also([])
    pair.also([("e", "1")])
    pair.also([])
    pair.at(1099)
    assert pair.compact(7) == 9
    assert [one[0] for one in pair.records()] == [4, 5, 6, 7, 8]
    pair.also([("f", "1")])
    pair.also([])
    pair.at(1100)
    assert pair.compact(9) == 10
    assert [one[0] for one in pair.records()] == [5, 6, 7, 8, 9]


def test_compaction_keeps_sequences(pair: Pair) -> None:
    def of(producer: int, sequence: int, *keys: str) -> Batch:
        return Batch(rows([(key, "1") for key in keys], T0), "none", producer, 0, sequence)

    pair.write(SETTINGS, [of(10, 0, "a", "b"), of(10, 2, "a"), of(11, 0, "a", "b"), [("a", "1")], [], [("a", "2"), ("b", "2")], []])
    pair.compact(0)
    headers = [header for log in sorted(pair.ours.directory.glob("*.log")) for header in log_files.headers(log.read_bytes())]
    shown = [(one.base_offset, one.last_offset, one.record_count, one.producer_id, one.base_sequence, one.size) for one in headers]
    assert shown[:2] == [(2, 2, 0, 10, 2, 61), (3, 4, 0, 11, 0, 61)]
    assert shown[2][:3] == (6, 7, 2)


def test_compaction_of_transactions(pair: Pair) -> None:
    def of(producer: int, sequence: int, key: str) -> Batch:
        return Batch(rows([(key, "1")], T0), "none", producer, 0, sequence, transactional=True)

    def end(producer: int, *, commit: bool) -> Marker:
        return Marker(producer, 0, commit, 0, T0)

    pair.write(
        SETTINGS,
        [
            of(20, 0, "a"),
            of(21, 0, "b"),
            end(20, commit=False),
            end(21, commit=True),
            of(20, 1, "c"),
            end(20, commit=True),
            [],
            [("b", "2")],
            [],
        ],
    )
    pair.compact(0)
    assert [one[:2] for one in pair.batches()] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)]
    assert (pair.ours.directory / f"{0:020}.txnindex").stat().st_size == 34
    pair.also([("x", "1")])
    pair.also([])
    pair.compact(7)
    assert [size for first, _, size in pair.batches() if first == 2] == [79]
    assert not (pair.ours.directory / f"{0:020}.txnindex").exists()
    pair.also([("y", "1")])
    pair.also([])
    pair.at(1000)
    pair.compact(8)
    assert [first for first, _, _ in pair.batches()][:4] == [1, 3, 4, 5]


def test_passes_of_a_small_map(pair: Pair) -> None:
    one = [[(key, "1")] for key in ("k0", "k1", "k2", "k3", "k4", "k0", "k1", "k2")]
    pair.write(SETTINGS, [*one[:4], [], *one[4:], []])
    ends, end = [], 0
    while end < 8:
        end = pair.compact(end, 24 * 4)
        ends.append(end)
    assert ends == [3, 6, 8]
    assert [(offset, key) for offset, key, _ in pair.records()] == [(3, "k3"), (4, "k4"), (5, "k0"), (6, "k1"), (7, "k2")]


def test_a_pass_may_end_inside_a_batch(pair: Pair) -> None:
    pair.write(SETTINGS, [[("a", "1"), ("b", "1")], [(key, "2") for key in "abcde"], [("a", "3")], []])
    assert pair.compact(0, 24 * 4) == 5
    assert [offset for offset, _, _ in pair.records()] == [2, 3, 4, 5, 6, 7]
    assert pair.compact(5, 24 * 4) == 8
    assert [offset for offset, _, _ in pair.records()] == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression_is_kept(pair: Pair, codec: str) -> None:
    pair.write(SETTINGS, [Batch(rows([("a", "1"), ("b", "1"), ("a", "2")], T0), codec), []])
    pair.compact(0)
    assert pair.records() == [(1, "b", "1"), (2, "a", "2")]


HORIZON = 64
"""Attribute of a batch whose first timestamp says when its tombstones go."""


def test_compaction_drops_records_without_keys(pair: Pair) -> None:
    """The last batch of the round stays, emptied, until there is a later one."""
    plain = SETTINGS | {"cleanup.policy": "delete"}
    pair.write(plain, [[("a", "1")], *[Batch((Row(T0, None, b"1"),))] * 2, []])
    pair.configure(SETTINGS)
    assert pair.compact(0) == 3
    assert pair.records() == [(0, "a", "1")]
    assert pair.batches()[1:] == [(2, 2, 61)]
    for step in ([("a", "2")], [("a", "3")], []):
        pair.also(step)
    assert pair.compact(3) == 5
    assert [one[:2] for one in pair.batches()] == [(4, 4)]
    assert pair.bases() == [0, 5]


def test_compaction_keeps_the_time_of_the_append(pair: Pair) -> None:
    pair.write(SETTINGS | {"message.timestamp.type": "LogAppendTime"}, [[("a", "1"), ("b", "1"), ("a", "2"), ("c", None)], []])
    assert pair.batches() == [(0, 3, 96)]
    pair.at(100)
    pair.compact(0)
    (header,) = pair.headers()
    assert (header.base_offset, header.last_offset, header.size) == (0, 3, 90)
    assert (header.attributes & HORIZON, header.base_timestamp, header.max_timestamp) == (HORIZON, T0 + 1100, T0)
    assert [(one.offset, one.timestamp) for one in pair.ours.log.scan()] == [(1, T0), (2, T0), (3, T0)]


def test_compaction_makes_old_messages_new(pair: Pair) -> None:
    """Of magic 1: a batch for each message, or for each wrapper; a tombstone has its horizon at once."""
    batch = Batch(rows([("a", "1"), ("b", "1"), ("a", "2"), ("c", None)], T0))
    old = pair.kafka.oracle.encode(batch, magic=1, baseOffset=0)
    assert len(old) == 36 + 36 + 36 + 35
    pair.write(SETTINGS, [old, []])
    pair.compact(0)
    assert pair.batches() == [(1, 1, 70), (2, 2, 70), (3, 3, 70)]
    assert {(one.magic, one.leader_epoch) for one in pair.headers()} == {(2, -1)}
    assert [one.attributes & HORIZON for one in pair.headers()] == [0, 0, HORIZON]
    assert pair.headers()[2].base_timestamp == T0 + 1000
    assert pair.records() == [(1, "b", "1"), (2, "a", "2"), (3, "c", None)]


def test_compaction_makes_an_old_wrapper_one_batch(pair: Pair) -> None:
    batch = Batch(rows([("a", "1"), ("b", "1"), ("a", "2"), ("c", None)], T0), "gzip")
    pair.write(SETTINGS, [pair.kafka.oracle.encode(batch, magic=1, baseOffset=0), []])
    pair.compact(0)
    (header,) = pair.headers()
    assert (header.base_offset, header.last_offset, header.record_count) == (1, 3, 3)
    assert (header.magic, header.attributes) == (2, 1 | HORIZON)


def test_compaction_leaves_a_producer_its_last_batch(pair: Pair) -> None:
    """As a 4.3.0 broker cleaned it: sections of one batch, and of two at once; where it ended stands in the log dir."""
    (pair.ours.directory.parent / "meta.properties").write_text("version=1\ncluster.id=oracle\nnode.id=1\n")

    def of(number: int) -> Batch:
        return Batch(rows([(f"k{n % 4}", str(number)) for n in range(20)], T0), "none", 9, 0, 20 * number)

    pair.write(SETTINGS, [of(0), []])
    sections = [(0, 20)]
    assert pair.compact(0) == 20
    for following in ((1,), (2,), (3, 4)):
        for number in following:
            pair.also(of(number))
            pair.also([])
        begin = sections[-1][1]
        sections.append((begin, pair.compact(begin)))
    pair.also(of(5))
    assert sections == [(0, 20), (20, 40), (40, 60), (60, 100)]
    (header,) = pair.headers()
    assert (header.base_offset, header.last_offset, header.record_count, header.base_sequence) == (80, 99, 4, 80)
    assert [offset for offset, _, _ in pair.records()] == [96, 97, 98, 99]
    assert pair.bases() == [0, 100]
    log_dir = pair.ours.directory.parent
    assert (log_dir / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 100\n"
    assert pair.ours.ends().log_start_offset == 0
    starts = log_dir / "log-start-offset-checkpoint"
    assert not starts.exists() or starts.read_text() == "0\n0\n"


@shows(DOUBTFUL)
def test_data_is_kept_where_markers_and_the_transaction_index_disagree(pair: Pair) -> None:
    """The index says that the wrong one of two transactions was aborted."""

    def of(producer: int, key: str) -> Batch:
        return Batch(rows([(key, "1")], T0), "none", producer, 0, 0, transactional=True)

    def end(producer: int, *, commit: bool) -> Marker:
        return Marker(producer, 0, commit, 0, T0)

    pair.write(
        SETTINGS,
        [of(20, "aborted"), of(21, "committed"), end(20, commit=False), end(21, commit=True), [("x", "1")], []],
    )
    for side in (pair.ours, pair.kafka):
        path = side.directory / f"{0:020}.txnindex"
        (entry,) = log_files.TXN_ENTRY.iter_unpack(path.read_bytes())
        assert entry[:4] == (0, 20, 0, 2)
        with path.open("r+b") as file:
            file.write(log_files.TXN_ENTRY.pack(0, 21, 1, 3, entry[4]))
    assert pair.ours.log.compact(0).end_offset == 5
    pair.kafka.ask("compact", firstDirty=0)
    assert [key for _, key, _ in pair.records()] == ["aborted", "committed", "x"]
    assert [one.key for one in pair.ours.log.scan(isolation_level="read_committed")] == [b"committed", b"x"]
    # Kafka believes the index: what was committed is gone, what was aborted stays.
    assert [one.key for one in pair.kafka.records()] == [b"aborted", b"x"]


@shows(FULL_INDEX)
def test_more_entries_than_an_index_holds(pair: Pair) -> None:
    settings = SETTINGS | {"index.interval.bytes": "0"}
    pair.write(settings, [*([(f"key {number}", "x" * 40)] for number in range(12)), []])
    pair.configure(settings | {"segment.index.bytes": "24"})
    before = pair.records()
    pair.ours.log.compact(0)
    assert pair.records() == before
    with pytest.raises(KafkaError, match="Attempt to append to a full"):
        pair.kafka.ask("compact", firstDirty=0)
