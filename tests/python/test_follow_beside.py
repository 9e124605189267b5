"""Followers that read while other threads and another process truncate, delete, roll, compact, close and open the log.

Going on where the error says, each has every record of the log once, and ends when its writer is closed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from writing import environment

from offsetlog import Log, LogConfig, OffsetOutOfRangeError, Record, WritableLog
from offsetlog._options import IsolationLevel

# Opens the log, truncates it where told, and appends as another leader.
OTHER = """
import sys
from offsetlog import Log
path, cut, count, epoch = sys.argv[1], *map(int, sys.argv[2:])
with Log.open(path, "a") as writer:
    writer.truncate_to(cut)
    for number in range(count):
        writer.append(b"other %d" % number, leader_epoch=epoch)
"""

# One leader after the other, in steps that it is told; prints where it truncated.
LEADERS = """
import random, sys
from test_follow_beside import leaders
for cut in leaders(sys.argv[1], random.Random(sys.argv[2]), int(sys.argv[2])):
    print(cut, flush=True)
    sys.stdin.readline()
"""


def begun(log: Log, count: int, start: int = 0) -> Iterator[Record]:
    """A follower that has returned so many records."""
    followed = log.scan(start).follow(timeout_ms=0)
    assert [next(followed).offset for _ in range(count)] == list(range(start, start + count))
    return followed


def cut_of(followed: Iterator[Record]) -> int | None:
    with pytest.raises(OffsetOutOfRangeError) as raised:
        next(followed)
    return raised.value.log_end_offset


def ten(path: Path, epoch: int | None = None) -> WritableLog:
    writer = Log.open(path, "a")
    for number in range(10):
        writer.append(b"%d" % number, leader_epoch=epoch)
    return writer


def by_another_process(path: Path, *, cut: int, count: int, epoch: int) -> None:
    subprocess.run([sys.executable, "-c", OTHER, str(path), str(cut), str(count), str(epoch)], check=True, env=environment())


def test_another_leader_comes_when_the_writer_of_this_process_is_closed(tmp_path: Path) -> None:
    """The follower read beside a writer of its process, which tells the end but no leader epochs: the batches have them."""
    path = tmp_path / "t-0"
    writer = ten(path, epoch=3)
    with Log.open(path) as log:
        followed = begun(log, 10)
        writer.close()
        by_another_process(path, cut=5, count=10, epoch=4)
        assert cut_of(followed) == 5


def test_another_leader_comes_while_a_scan_is_under_way(tmp_path: Path) -> None:
    """The scan began beside a writer of its process. What the other leader wrote stands where it reads next, and is not returned."""
    path = tmp_path / "t-0"
    writer = Log.open(path, "a")
    for number in range(10):
        writer.append(b"%d".ljust(400_000) % number, leader_epoch=3)
    with Log.open(path) as log:
        followed = log.scan().follow(timeout_ms=0)
        assert next(followed).offset == 0
        writer.close()
        by_another_process(path, cut=0, count=20, epoch=4)
        found: list[bytes | None] = []
        with pytest.raises(OffsetOutOfRangeError) as raised:
            found.extend(record.value for record in followed)
        assert raised.value.log_end_offset == 0
        # Some may have been decoded ahead.
        assert found == [b"%d".ljust(400_000) % number for number in range(1, 1 + len(found))]


@pytest.mark.parametrize("when", ["before the first look", "between two writers"])
def test_another_leader_was_there_when_a_writer_of_this_process_opens(tmp_path: Path, when: str) -> None:
    path = tmp_path / "t-0"
    writer = ten(path, epoch=3)
    if when == "before the first look":
        writer.close()
    with Log.open(path) as log:
        followed = begun(log, 10)
        writer.close()
        by_another_process(path, cut=5, count=10, epoch=4)
        with Log.open(path, "a"):
            assert cut_of(followed) == 5


def test_a_new_leader_that_truncates_nothing_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    writer = ten(path, epoch=3)
    with Log.open(path) as log:
        followed = log.scan().follow(timeout_ms=0)
        assert [next(followed).offset for _ in range(10)] == list(range(10))
        writer.append(b"own", leader_epoch=4)
        assert next(followed).offset == 10
        writer.close()
        by_another_process(path, cut=11, count=1, epoch=5)
        assert next(followed).offset == 11
        with Log.open(path, "a") as again:
            again.append(b"own again", leader_epoch=6)
            assert [record.offset for record in followed] == [12]


def test_the_gap_of_a_truncation_inside_a_batch_is_gone_when_the_log_is_opened_again(tmp_path: Path) -> None:
    """The log ended at 8 with nothing from 5 on; opened again, it ends at 5, and that is where the next records are."""
    path = tmp_path / "t-0"
    writer = Log.open(path, "a")
    for _ in range(2):
        writer.append_records([b"old"] * 5)
    with Log.open(path) as log:
        writer.truncate_to(8)
        followed = log.scan(8).follow(timeout_ms=0)
        writer.close()
        with Log.open(path, "a") as again:
            assert again.append_records([b"new"] * 6).base_offset == 5
            assert cut_of(followed) == 5


def after_a_gap(path: Path) -> tuple[WritableLog, Callable[[], list[int] | None]]:
    """A log with records below 40 that ends at 50, and a follower that knows it; what that has got since it was asked last."""
    writer = Log.open(path, "a")
    writer.append_records([b"x"] * 40)
    writer.append_records([b"cut"] * 20)
    writer.truncate_to(50)
    followed = Log.open(path).scan().follow(timeout_ms=0)

    def got() -> list[int] | None:
        return [record.offset for record in followed] or None

    assert got() == list(range(40))
    assert got() is None
    return writer, got


def test_retention_takes_a_gap_at_the_end(tmp_path: Path) -> None:
    """Nothing is gone that was to be returned."""
    writer, got = after_a_gap(tmp_path / "t-0")
    with writer:
        writer.delete_records_before(50)
        assert got() is None
        writer.append(b"new")
        assert got() == [50]


def test_retention_takes_records_behind_a_gap(tmp_path: Path) -> None:
    writer, got = after_a_gap(tmp_path / "t-0")
    with writer:
        writer.append_records([b"new"] * 10)
        writer.delete_records_before(55)
        with pytest.raises(OffsetOutOfRangeError):
            got()


def test_retention_takes_records_that_came_in_place_of_a_gap(tmp_path: Path) -> None:
    writer, got = after_a_gap(tmp_path / "t-0")
    writer.close()
    with Log.open(tmp_path / "t-0", "a") as writer:
        assert writer.append_records([b"new"] * 11) is not None
        assert writer.log_end_offset == 51
        writer.delete_records_before(50)
        with pytest.raises(OffsetOutOfRangeError):
            got()


def test_another_directory_has_the_name(tmp_path: Path) -> None:
    """Without topic ids it may be told by the directory alone; nothing of what was returned is in it."""
    path = tmp_path / "t-0"
    ten(path).close()
    with Log.open(path) as log:
        followed = begun(log, 10)
        # Kept, so that the new directory cannot have its inode.
        path.rename(tmp_path / "aside-0")
        with ten(path) as writer:
            writer.append(b"one more")
            assert cut_of(followed) == 0
        shutil.rmtree(tmp_path / "aside-0")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_takes_a_follower_along(tmp_path: Path) -> None:
    """The child knows of a truncation before the fork, which its parent's follower had not looked at yet."""
    path = tmp_path / "t-0"
    with ten(path) as writer, Log.open(path) as log:
        followed = begun(log, 10)
        writer.truncate_to(5)
        for number in range(10):
            writer.append(b"new %d" % number)
        child = os.fork()
        if child == 0:
            found = 1
            with suppress(BaseException):
                found = 0 if cut_of(followed) == 5 else 2
            os._exit(found)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert cut_of(followed) == 5


class Tail(threading.Thread):
    """A program that follows a log until it is stopped, and goes on where an error says."""

    def __init__(self, log: Log, isolation: IsolationLevel = "read_uncommitted") -> None:
        super().__init__()
        self.log = log
        self.isolation = isolation
        self.has: dict[int, bytes | None] = {}
        self.next = 0
        # A log that is truncated while a follower of it begins tells that follower nothing: neither is done beside the other.
        self.beginning = threading.Lock()
        self.lowest: int | None = None
        self.is_last = False
        self.cuts = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while True:
                # Asked first: it reads to the end once more.
                is_last = self.is_last
                with suppress(OffsetOutOfRangeError):
                    self.read()
                    if is_last:
                        return
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self.failed = error

    def read(self) -> None:
        try:
            for record in self.begin():
                assert record.offset >= self.next
                assert record.offset not in self.has
                self.has[record.offset] = record.value
                self.next = record.offset + 1
        except OffsetOutOfRangeError as error:
            start, end = error.log_start_offset, error.log_end_offset
            assert start is not None
            assert end is not None
            self.cuts += end < self.next
            self.drop(end)
            self.next = max(self.next, start)
            raise

    def begin(self) -> Iterator[Record]:
        with self.beginning:
            if self.lowest is not None:
                self.drop(self.lowest)
            self.lowest = None
            return self.log.scan(self.next, isolation_level=self.isolation).follow(timeout_ms=100, poll_interval_ms=5)

    def drop(self, cut: int) -> None:
        self.next = min(self.next, cut)
        self.has = {offset: value for offset, value in self.has.items() if offset < cut}

    def ended(self, *, is_compacted: bool) -> None:
        """Wait until it has all, and see that it has what is there."""
        self.is_last = True
        self.join(60)
        assert not self.is_alive()
        if self.failed is not None:
            raise self.failed
        there = {record.offset: record.value for record in self.log.scan(isolation_level=self.isolation)}
        kept = {offset: value for offset, value in self.has.items() if offset >= self.log.log_start_offset}
        if is_compacted:
            kept = {offset: value for offset, value in kept.items() if offset in there}
        assert kept == there


def append(writer: WritableLog, chance: random.Random, most: int, epoch: int = 0) -> None:
    for _ in range(chance.randint(0, most)):
        rows = [
            (b"%d" % chance.randint(0, 9), b"%d" % chance.getrandbits(chance.choice([20, 900]))) for _ in range(chance.randint(1, 4))
        ]
        writer.append_records(rows, leader_epoch=epoch)


def keep(writer: WritableLog, chance: random.Random, policy: str) -> None:
    """What a broker does with its logs."""
    what = chance.choice(["roll", "delete", "maintain", "compact"])
    writer.flush()
    if what == "roll":
        writer.roll()
    elif what == "delete":
        writer.delete_records_before(max(writer.log_start_offset, writer.high_watermark - 40))
    elif what == "maintain":
        writer.maintain()
    elif policy == "compact":
        writer.compact()


@pytest.mark.parametrize(("policy", "isolation"), [("delete", "read_uncommitted"), ("compact", "read_committed")])
def test_threads_follow_what_another_thread_truncates(tmp_path: Path, policy: str, isolation: IsolationLevel) -> None:
    chance = random.Random(f"{policy} {isolation}")
    config = LogConfig.from_dict({"internal.segment.bytes": 3000, "cleanup.policy": policy, "min.cleanable.dirty.ratio": 0.01})
    path = tmp_path / "t-0"
    writer = Log.open(path, "a", config=config)
    with Log.open(path) as log, Log.open(path) as other:
        tails = [Tail(log, isolation), Tail(other, isolation)]
        for tail in tails:
            tail.start()
        for _ in range(80):
            what = chance.choice(["append"] * 6 + ["truncate"] * 3 + ["keep"] * 4 + ["restart", "open", "open"])
            if what == "append":
                append(writer, chance, 10)
            elif what == "keep":
                keep(writer, chance, policy)
            else:
                with tails[0].beginning, tails[1].beginning:
                    cut = max(0, writer.log_end_offset - chance.randint(0, 12))
                    if what == "truncate":
                        writer.truncate_to(cut)
                    elif what == "restart":
                        writer.truncate_fully_and_start_at(cut)
                    else:
                        writer.close()
                        writer = Log.open(path, "a", config=config)
                    # A batch has at most four records.
                    cut = max(0, cut - 4)
                    for tail in tails:
                        tail.lowest = cut if tail.lowest is None else min(cut, tail.lowest)
                    append(writer, chance, 8)
        for tail in tails:
            tail.ended(is_compacted=policy == "compact")
        assert any(tail.cuts for tail in tails)
    writer.close()


def leaders(path: str, chance: random.Random, epoch: int) -> Iterator[int]:
    """Append, and now and then truncate between batches and append as the next leader; yield where each step truncated."""
    with Log.open(path, "a", config=LogConfig.from_dict({"internal.segment.bytes": 3000})) as writer:
        for _ in range(20):
            append(writer, chance, 10, epoch)
            cut = writer.log_end_offset
            borders = [batch.base_offset for batch in writer.batches(max(writer.log_start_offset, cut - 20))]
            if borders and chance.random() < 0.5:
                cut = chance.choice(borders)
                writer.truncate_to(cut)
                epoch += 1
                append(writer, chance, 10, epoch)
            yield cut


def in_another_process(path: Path, epoch: int) -> Iterator[int]:
    command = [sys.executable, "-c", LEADERS, str(path), str(epoch)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            yield int(line)
            print(file=process.stdin, flush=True)
    assert process.returncode == 0


def test_another_process_and_this_one_lead_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    ten(path, epoch=0).close()
    with Log.open(path) as log:
        tail = Tail(log)
        tail.start()
        for turn in range(1, 5):
            epoch = turn * 1000
            steps = in_another_process(path, epoch) if turn % 2 else leaders(str(path), random.Random(epoch), epoch)
            while True:
                with tail.beginning:
                    cut = next(steps, None)
                    if cut is None:
                        break
                    tail.lowest = cut if tail.lowest is None else min(tail.lowest, cut)
        tail.ended(is_compacted=False)
        assert tail.cuts
