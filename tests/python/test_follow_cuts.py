"""A log that is truncated while a follower reads it: going on where the error says, a program has each record of the log once.

Before, the follower learned of truncations between its scans only: it returned new records in place of truncated ones that it was about
to return, and then named an offset before them.
"""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from writing import environment, python

from offsetlog import CorruptionError, Log, LogConfig, LogDir, OffsetOutOfRangeError, Record, Scan, Split, WritableLog
from offsetlog._options import IsolationLevel

# Some batches in a segment; and more bytes in one than are read or decoded ahead.
SIZES = {"small segments": (3000, 100), "one segment": (1 << 30, 100), "more than is read ahead": (1 << 30, 60_000)}

OTHER = """
import random, sys
from pathlib import Path
from offsetlog import Log
from test_follow_cuts import append
path, value_bytes = sys.argv[1], int(sys.argv[2])
for line in sys.stdin:
    cut, epoch, count = map(int, line.split())
    with Log.open(path, "a") as writer:
        writer.truncate_to(cut)
        append(writer, random.Random(line), count, value_bytes, epoch)
    print("done", flush=True)
"""


class Tail:
    """A program that follows a log and goes on where an error says that it was cut: with the same iterator, or with a new one.

    Between the error and its next record the log may be changed again, which only the same iterator can know.
    """

    def __init__(self, log: Log, isolation: IsolationLevel, *, is_same: bool, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.log = log
        self.isolation = isolation
        self.is_same = is_same
        self.meanwhile = meanwhile
        self.has: dict[int, bytes] = {}
        self.cuts = 0
        self.begin(0)

    def begin(self, start: int) -> None:
        self.followed = self.log.scan(start, isolation_level=self.isolation).follow(timeout_ms=0)

    def read(self, count: int) -> bool:
        """Read so many records; whether there were as many."""
        for _ in range(count):
            try:
                record = next(self.followed, None)
            except OffsetOutOfRangeError as error:
                self.go_on(error)
                continue
            if record is None:
                # Nothing came in time.
                if not self.is_same:
                    self.begin(max(self.has, default=-1) + 1)
                return False
            assert record.offset not in self.has
            self.has[record.offset] = record.value or b""
        return True

    def go_on(self, error: OffsetOutOfRangeError) -> None:
        cut = error.log_end_offset
        assert cut is not None
        self.cuts += 1
        there = {record.offset: record.value for record in self.log.scan(cut)}
        again = [offset for offset, value in self.has.items() if offset >= cut and there.get(offset) == value]
        assert not again, f"going on at {cut} returns {again} again"
        self.has = {offset: value for offset, value in self.has.items() if offset < cut}
        if self.is_same:
            self.meanwhile()
        else:
            self.begin(cut)

    def end(self) -> None:
        """Read all; what was read is what is there."""
        while self.read(1000):
            pass
        assert sorted(self.has.items()) == [(record.offset, record.value) for record in self.log.scan()]


def test_what_it_was_about_to_return(tmp_path: Path) -> None:
    """The truncation is above what was returned, so there is nothing to be told: the new records come in their place."""
    with Log.open(tmp_path / "t-0", "a") as writer, Log.open(tmp_path / "t-0") as log:
        for number in range(10):
            writer.append(b"%d".ljust(60_000) % number)
        followed = log.scan().follow(timeout_ms=0)
        # Decoded ahead is what fits into 512 KiB, and twice as much each time, so the first record comes alone.
        assert next(followed).offset == 0
        writer.truncate_to(7)
        for number in range(5):
            writer.append(b"new %d".ljust(60_000) % number)
        values = [int((record.value or b"").split()[-1]) for record in followed]
        assert values == [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4]


def append(writer: WritableLog, chance: random.Random, count: int, value_bytes: int, epoch: int = 0) -> None:
    for _ in range(count):
        values = [b"%d" % chance.getrandbits(63) for _ in range(chance.randint(1, 4))]
        writer.append_records([value.ljust(value_bytes) for value in values], leader_epoch=epoch)


def change(writer: WritableLog, chance: random.Random, value_bytes: int) -> None:
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        end = writer.log_end_offset
        writer.truncate_to(chance.randint(max(0, end - 12), end))
        append(writer, chance, chance.choice([0, 1, 3, 8]), value_bytes)
    append(writer, chance, chance.choice([0, 1, 3, 8]), value_bytes)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("whose", ["the writer", "a reader", "writers that come and go"])
@pytest.mark.parametrize("seed", range(4))
def test_in_the_process_that_truncates(tmp_path: Path, whose: str, size: str, isolation: IsolationLevel, seed: int) -> None:
    chance = random.Random(f"{whose} {size} {isolation} {seed}")
    segment_bytes, value_bytes = SIZES[size]
    config = LogConfig.from_dict({"internal.segment.bytes": segment_bytes})
    path = tmp_path / "t-0"
    with Log.open(path, "a", config=config) as first, Log.open(path) as reader:
        append(first, chance, 10, value_bytes)
        if whose == "writers that come and go":
            first.close()

        def changes() -> None:
            if whose == "writers that come and go":
                with Log.open(path, "a", config=config) as writer:
                    change(writer, chance, value_bytes)
            else:
                change(first, chance, value_bytes)

        def meanwhile() -> None:
            if chance.random() < 0.3:
                changes()

        tail = Tail(first if whose == "the writer" else reader, isolation, is_same=seed % 2 == 0, meanwhile=meanwhile)
        for _ in range(60):
            tail.read(chance.choice([0, 1, 2, 5, 20, 200]))
            changes()
        tail.end()
        assert tail.cuts


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_another_leader_in_another_process(tmp_path: Path, size: str, isolation: IsolationLevel, seed: int) -> None:
    """It is known by its epoch, as KIP-320 has it."""
    chance = random.Random(f"{size} {isolation} {seed}")
    segment_bytes, value_bytes = SIZES[size]
    config = LogConfig.from_dict({"internal.segment.bytes": segment_bytes})
    path = tmp_path / "t-0"
    with Log.open(path, "a", config=config) as writer:
        append(writer, chance, 10, value_bytes)
    with Log.open(path) as reader, other_process(path, value_bytes) as told:
        epochs = itertools.count(1)

        def changes() -> None:
            # A broker truncates between batches.
            borders = [batch.base_offset for batch in reader.batches()][-5:] or [reader.log_end_offset]
            told(chance.choice(borders), next(epochs), chance.choice([0, 1, 3, 8]))

        def meanwhile() -> None:
            if chance.random() < 0.3:
                changes()

        tail = Tail(reader, isolation, is_same=seed % 2 == 0, meanwhile=meanwhile)
        for _ in range(40):
            tail.read(chance.choice([0, 1, 2, 5, 20, 200]))
            changes()
        tail.end()
        assert tail.cuts


@contextmanager
def other_process(path: Path, value_bytes: int) -> Iterator[Callable[..., None]]:
    """A function that lets it truncate to an offset, and append so many batches in a leader epoch."""
    command = [sys.executable, "-c", OTHER, str(path), str(value_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def tell(*numbers: int) -> None:
            print(*numbers, file=process.stdin, flush=True)
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"

        yield tell
        process.stdin.close()
        assert process.wait(300) == 0


FAILED = """
import resource, signal, sys
from offsetlog import Log, OffsetLogError, OffsetOutOfRangeError
path = sys.argv[1]
writer = Log.open(path, "a")
reader = Log.open(path)
for number in range(10):
    writer.append(b"%d" % number, leader_epoch=number // 6)
followed = reader.scan().follow(timeout_ms=0)
assert [next(followed).offset for _ in range(10)] == list(range(10))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
try:
    writer.truncate_to(5)
except OSError as error:
    print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
try:
    writer.close()
except OffsetLogError:
    pass
with Log.open(path, "a") as again:
    print(again.log_end_offset)
    for number in range(10):
        again.append(b"other %d" % number, leader_epoch=7)
    try:
        print([record.offset for record in followed])
    except OffsetOutOfRangeError as error:
        print(error.log_end_offset)
"""


def test_a_truncation_that_failed_half_way(tmp_path: Path) -> None:
    """The records are gone, the leader epochs could not be written; who opens the log next writes in the place of what was read."""
    assert python(FAILED, tmp_path / "t-0").split() == ["OSError", "5", "5"]


@pytest.mark.parametrize("whose", ["the writer", "a reader", "a later writer", "another process"])
def test_a_truncation_between_the_error_and_the_next_record(tmp_path: Path, whose: str) -> None:
    """A new follower cannot know it; the same one does, and says so before it returns a record."""
    path = tmp_path / "t-0"
    with ExitStack() as stack:
        writer = stack.enter_context(Log.open(path, "a"))
        for number in range(100):
            writer.append(b"old %d" % number)
        log = writer if whose == "the writer" else stack.enter_context(Log.open(path))
        if whose == "another process":
            writer.close()
            told = stack.enter_context(other_process(path, 10))

        def cut(offset: int, epoch: int) -> None:
            """Cut it, and append more than was there."""
            nonlocal writer
            if whose == "another process":
                told(offset, epoch, 100)
                return
            if whose == "a later writer":
                writer.close()
                writer = stack.enter_context(Log.open(path, "a"))
            writer.truncate_to(offset)
            append(writer, random.Random(epoch), 100, 10)

        followed = log.scan().follow(timeout_ms=0)
        has = {record.offset: record.value for record in followed}
        assert list(has) == list(range(100))
        for epoch, offset in enumerate((70, 40, 40, 20, 0), 1):
            cut(offset, epoch)
            with pytest.raises(OffsetOutOfRangeError) as caught:
                next(followed)
            # The second time nothing that it has from there on is gone.
            assert caught.value.log_end_offset == offset
            has = {offset: value for offset, value in has.items() if offset < caught.value.log_end_offset}
            if epoch == 2:
                has |= {record.offset: record.value for record in followed}
        cut(10, 9)
        has |= {record.offset: record.value for record in followed}
        assert has == {record.offset: record.value for record in log.scan()}


def test_it_goes_on_when_its_time_has_passed(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as writer:
        followed = writer.scan().follow(timeout_ms=0)
        assert list(followed) == []
        for number in range(5):
            writer.append(b"%d" % number)
        assert [record.offset for record in followed] == [0, 1, 2, 3, 4]
        assert list(followed) == []
        # Also over what only one that was there before can know.
        writer.truncate_to(3)
        for number in range(5):
            writer.append(b"new %d" % number)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            next(followed)
        assert caught.value.log_end_offset == 3
        assert [(record.offset, record.value) for record in followed] == [(3 + number, b"new %d" % number) for number in range(5)]


def test_it_goes_on_behind_what_retention_deleted(tmp_path: Path) -> None:
    """It names the new start once, and every other partition is returned whole."""
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", partitions=2)
        for partition in (0, 1):
            for number in range(20):
                log_dir.append("t", b"%d" % number, partition=partition)
        followed = log_dir.scan().follow(timeout_ms=0)
        has = [next(followed)]
        log_dir.log("t", 0).delete_records_before(0)
        before = log_dir.log("t", 0)
        has += followed
        for partition in (0, 1):
            for number in range(20):
                log_dir.append("t", b"%d" % number, partition=partition)
        before.delete_records_before(30)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            has += followed
        assert caught.value.log_start_offset == 30
        has += followed
        assert sorted((record.partition, record.offset) for record in has) == [
            *[(0, offset) for offset in (*range(20), *range(30, 40))],
            *[(1, offset) for offset in range(40)],
        ]


def test_a_limit_counts_over_all_that_it_goes_on_over(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as writer:
        for number in range(5):
            writer.append(b"%d" % number)
        followed = writer.scan(limit=7).follow(timeout_ms=0)
        assert len(list(followed)) == 5
        writer.truncate_to(4)
        for number in range(5):
            writer.append(b"%d" % number)
        with pytest.raises(OffsetOutOfRangeError):
            next(followed)
        assert [record.offset for record in followed] == [4, 5]
        assert list(followed) == []


def test_any_other_error_ends_it(tmp_path: Path) -> None:
    """Records behind damage are not returned as if nothing were missing."""
    path = tmp_path / "t-0"
    with Log.open(path, "a") as writer:
        for number in range(5):
            writer.append(b"%d" % number)
        size = writer.size_bytes
        writer.roll()
        writer.append(b"behind")
    file = path / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[size // 2] ^= 1
    file.write_bytes(data)
    with Log.open(path) as log:
        followed = log.scan().follow(timeout_ms=0)
        with pytest.raises(CorruptionError):
            list(followed)
        assert list(followed) == []


def test_a_log_that_was_shorter_and_has_grown_again(tmp_path: Path) -> None:
    """Its scan found the log shorter; the program came to that when another process had written there again, in the same leader epoch."""
    path = tmp_path / "t-0"
    with Log.open(path, "a", config=LogConfig.from_dict({"internal.segment.bytes": 400})) as writer:
        for number in range(50):
            writer.append(b"%d" % number, leader_epoch=1)
    with Log.open(path) as reader, other_process(path, 10) as told:
        followed = reader.scan().follow(timeout_ms=0)
        # What comes is decoded ahead, some at a time: the next piece comes to where a segment is gone.
        has = {record.offset: record.value for record in itertools.islice(followed, 21)}
        assert list(has) == list(range(21))
        told(15, 1, 0)
        record = next(followed)
        assert (record.offset, record.value) == (21, b"21")
        told(15, 1, 100)
        rest: list[Record] = []
        with pytest.raises(OffsetOutOfRangeError) as caught:
            rest.extend(followed)
        assert all(record.value == b"%d" % record.offset for record in rest)
        assert caught.value.log_end_offset == 15
        has = {offset: value for offset, value in has.items() if offset < 15}
        has |= {record.offset: record.value for record in followed}
        assert has == {record.offset: record.value for record in reader.scan()}


@pytest.mark.parametrize("end", ["stop", "limit"])
def test_a_truncation_of_what_was_decoded_ahead_of_the_last_record(tmp_path: Path, end: str) -> None:
    """All that is wanted was read when the log was truncated: the program is told when it comes to the end."""
    with Log.open(tmp_path / "t-0", "a") as writer:
        for number in range(10):
            writer.append(b"old %d" % number)
        scan = writer.scan(stop=10) if end == "stop" else writer.scan(limit=10)
        followed = scan.follow(timeout_ms=0)
        has = {record.offset: record.value for record in itertools.islice(followed, 6)}
        writer.truncate_to(3)
        for number in range(10):
            writer.append(b"new %d" % number)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            has |= {record.offset: record.value for record in followed}
        assert caught.value.log_end_offset == 3
        has = {offset: value for offset, value in has.items() if offset < 3}
        has |= {record.offset: record.value for record in followed}
        if end == "stop":
            assert has == {record.offset: record.value for record in writer.scan(stop=10)}
        assert list(followed) == []


def test_several_ranges_of_a_log(tmp_path: Path) -> None:
    """A truncation below all of them makes none return what is another's."""
    with Log.open(tmp_path / "t-0", "a") as writer:
        for number in range(100):
            writer.append(b"old %d" % number)
        path = str(tmp_path / "t-0")
        splits = [Split(path, "t", 0, start, start + 50, 1) for start in (0, 50)]
        followed = Scan.over(splits).follow(timeout_ms=0)
        has = {}
        cuts = []
        for cut in (30, 70, 10):
            for record in itertools.islice(followed, 36):
                assert record.offset not in has
                has[record.offset] = record.value
            writer.truncate_to(cut)
            for number in range(cut, 120):
                writer.append(b"new %d %d" % (cut, number))
            for _ in range(100):
                try:
                    for record in followed:
                        assert record.offset not in has, (cut, record.offset)
                        has[record.offset] = record.value
                    break
                except OffsetOutOfRangeError as error:
                    cut_at = error.log_end_offset
                    assert cut_at is not None
                    cuts.append(cut_at)
                    has = {offset: value for offset, value in has.items() if offset < cut_at}
            assert has == {record.offset: record.value for record in writer.scan(stop=100)}
        assert set(cuts) == {30, 70, 10}


def test_an_interrupt_in_place_of_the_error_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program was not told of the truncation, so nothing goes on."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with Log.open(tmp_path / "t-0", "a") as writer:
        writer.append(b"old")
        followed = writer.scan().follow(timeout_ms=0)
        assert [record.offset for record in followed] == [0]
        writer.truncate_to(0)
        writer.append(b"new")
        with monkeypatch.context() as patched:
            patched.setattr(OffsetOutOfRangeError, "__init__", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(followed)
        assert list(followed) == []


def test_several_ranges_of_a_log_that_another_process_truncates(tmp_path: Path) -> None:
    """It has grown again, in the same leader epoch, before all ranges were looked at: one that saw it shorter tells for all of them."""
    path = tmp_path / "t-0"
    with Log.open(path, "a") as writer:
        for number in range(100):
            writer.append(b"%d" % number, leader_epoch=1)
    splits = [Split(str(path), "t", 0, start, start + 50, 1) for start in (0, 50)]
    with other_process(path, 10) as told:
        followed = Scan.over(splits).follow(timeout_ms=0)
        has = {record.offset: record.value for record in followed}
        assert list(has) == list(range(100))
        told(20, 1, 0)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            next(followed)
        assert caught.value.log_end_offset == 20
        told(20, 1, 100)
        has = {offset: value for offset, value in has.items() if offset < 20}
        cuts: list[int | None] = []
        for _ in range(10):
            try:
                has |= {record.offset: record.value for record in followed}
                break
            except OffsetOutOfRangeError as error:
                cuts.append(error.log_end_offset)
        assert set(cuts) == {20}
    with Log.open(path) as reader:
        assert has == {record.offset: record.value for record in reader.scan(stop=100)}


def test_an_empty_range_ends(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as writer:
        writer.append_records([b"old"] * 100)
        followed = writer.scan(50, stop=50).follow(timeout_ms=60_000)
        assert list(followed) == []
        writer.truncate_to(0)
        writer.append_records([b"new"] * 100)
        with pytest.raises(OffsetOutOfRangeError):
            next(followed)
        assert list(followed) == []


@pytest.mark.parametrize("end", ["stop", "limit"])
def test_what_becomes_of_the_log_behind_the_end_is_no_matter(tmp_path: Path, end: str) -> None:
    path = tmp_path / "t-0"
    with Log.open(path, "a") as writer:
        for number in range(10):
            writer.append(b"%d" % number)
    with Log.open(path) as reader:
        scan = reader.scan(stop=5) if end == "stop" else reader.scan(limit=5)
        followed = scan.follow(timeout_ms=60_000)
        has = list(itertools.islice(followed, 4))
        shutil.rmtree(path)
        has += followed
        assert [record.offset for record in has] == [0, 1, 2, 3, 4]
        assert list(followed) == []
