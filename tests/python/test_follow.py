"""Scans that go on as logs grow: each record once, in its order, from whoever writes; and what ends them."""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from offsetlog import ConfigError, Log, LogConfig, LogDir, OffsetOutOfRangeError, Record

SMALL = LogConfig.from_dict({"internal.segment.bytes": 3000})
# Longer than any test waits: what comes earlier was told by the system.
NEVER_MS = 3_600_000
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of changes")


@contextmanager
def running(work: Callable[[], object]) -> Iterator[None]:
    """Beside it, on another thread, whose error is raised here."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(300)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def later(seconds: float, work: Callable[[], object]) -> Callable[[], object]:
    """The work, after a while."""

    def waited() -> None:
        time.sleep(seconds)
        work()

    return waited


def values(records: Iterator[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("poll_interval_ms", [pytest.param(NEVER_MS, marks=LINUX), 20])
def test_another_process_appends(tmp_path: Path, poll_interval_ms: int) -> None:
    """Rolls segments, pauses, and appends single records and many at once."""
    code = f"""
import random, time
from offsetlog import Log, LogConfig
draw = random.Random(7)
number = 0
with Log.open({str(tmp_path / "t-0")!r}, "a", LogConfig.from_dict({{"internal.segment.bytes": 3000}})) as log:
    while number < 3000:
        count = draw.choice((1, 1, 1, 40, 200))
        log.append_records([b"%d" % (number + each) for each in range(count)])
        number += count
        time.sleep(draw.choice((0, 0, 0.01, 0.1)))
print(number)
"""
    with Log.open(tmp_path / "t-0", "a", SMALL):
        pass
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with Log.open(tmp_path / "t-0") as log:
        seen = []
        for record in log.scan().follow(timeout_ms=300_000, poll_interval_ms=poll_interval_ms):
            seen.append((record.offset, int(record.value or b"")))
            # The last batch is the one that reaches so many.
            if 3000 <= record.offset + 1 == log.log_end_offset:
                break
        assert len(log.segments) > 5
    printed, _ = writer.communicate(timeout=300)
    assert seen == [(number, number) for number in range(int(printed))]


@LINUX
def test_it_wakes_when_told(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as writer, Log.open(tmp_path / "t-0") as log:
        followed = log.scan().follow(poll_interval_ms=NEVER_MS)
        for number in range(5):
            with running(later(0.1, functools.partial(writer.append, b"%d" % number))):
                assert next(followed).offset == number


def test_silence_ends_it(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as writer, Log.open(tmp_path / "t-0") as log:
        writer.append(b"0")
        began = time.monotonic()
        assert values(log.scan().follow(timeout_ms=300)) == [0]
        assert time.monotonic() - began >= 0.3
        assert values(log.scan(1).follow(timeout_ms=0)) == []


def test_a_writer_follows_itself_until_it_is_closed(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "t-0", "a")
    followed = log.scan().follow()
    log.append(b"0")
    assert next(followed).value == b"0"
    with running(later(0.2, log.close)):
        assert list(followed) == []


def test_stop_and_limit_end_it(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a", SMALL) as writer, Log.open(tmp_path / "t-0") as log:

        def write() -> None:
            for number in range(100):
                writer.append(b"%d" % number)

        with running(write):
            assert values(log.scan(stop=90).follow()) == list(range(90))
        assert values(log.scan(10, limit=7).follow()) == list(range(10, 17))
        assert values(log.scan(10, 12, limit=7).follow()) == [10, 11]


def test_filters_hold(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a", SMALL) as writer, Log.open(tmp_path / "t-0") as log:

        def write() -> None:
            for number in range(300):
                writer.append(b"%d" % number, key=b"k%d" % (number % 3), timestamp=number)

        with running(write):
            followed = log.scan(keys=[b"k1"], start_timestamp=100, stop=300).follow()
            assert values(followed) == [number for number in range(100, 300) if number % 3 == 1]


def test_partitions_of_a_log_dir(tmp_path: Path) -> None:
    draw = random.Random(11)
    wanted: dict[int, list[int]] = {0: [], 1: [], 2: []}
    with LogDir.open(tmp_path / "logs", "a") as writer:
        writer.create_topic("t", 3, config=SMALL)
        log_dir = LogDir.open(tmp_path / "logs")

        def write() -> None:
            for number in range(500):
                partition = draw.randrange(3)
                wanted[partition].append(number)
                writer.append("t", b"%d" % number, partition=partition)

        with running(write):
            seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
            for record in log_dir.scan().follow(timeout_ms=300_000):
                seen[record.partition].append(int(record.value or b""))
                if sum(map(len, seen.values())) == 500:
                    break
    assert seen == wanted


def test_committed_records_come_with_their_marker(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as writer, Log.open(tmp_path / "t-0") as log:
        writer.append_records([b"0"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        committed = log.scan(isolation_level="read_committed")
        assert list(committed.follow(timeout_ms=200)) == []
        followed = committed.follow(timeout_ms=300_000)
        with running(later(0.2, lambda: writer.append_marker(7, 0, commit=True))):
            assert next(followed).offset == 0


def test_a_log_that_is_cut_is_an_error(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as writer, Log.open(tmp_path / "t-0") as log:
        for number in range(10):
            writer.append(b"%d" % number)
        followed = log.scan().follow(poll_interval_ms=20)
        assert [next(followed).offset for _ in range(10)] == list(range(10))
        writer.truncate_to(5)
        with pytest.raises(OffsetOutOfRangeError, match="10") as caught:
            next(followed)
        assert (caught.value.requested, caught.value.log_end_offset) == (10, 5)


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_writer_that_cut_and_closed_is_an_error(tmp_path: Path, comes_back: bool) -> None:
    """Also where the log is longer by then, and another writer has it."""
    with Log.open(tmp_path / "t-0", "a") as writer, Log.open(tmp_path / "t-0") as log:
        for number in range(10):
            writer.append(b"%d" % number)
        followed = log.scan().follow(poll_interval_ms=20)
        assert [next(followed).offset for _ in range(10)] == list(range(10))
        writer.truncate_to(5)
        for number in range(6):
            writer.append(b"other %d" % number)
        writer.close()
        if comes_back:
            with Log.open(tmp_path / "t-0", "a") as next_one:
                next_one.append(b"more")
                with pytest.raises(OffsetOutOfRangeError, match="10") as caught:
                    next(followed)
        else:
            with pytest.raises(OffsetOutOfRangeError, match="10") as caught:
                next(followed)
        assert (caught.value.requested, caught.value.log_end_offset) == (10, 5)


def test_a_writer_that_comes_and_cuts_is_an_error(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as writer:
        for number in range(10):
            writer.append(b"%d" % number)
    with Log.open(tmp_path / "t-0") as log:
        followed = log.scan().follow(poll_interval_ms=20)
        assert [next(followed).offset for _ in range(10)] == list(range(10))
        with Log.open(tmp_path / "t-0", "a") as writer:
            writer.truncate_to(5)
            for number in range(6):
                writer.append(b"other %d" % number)
            with pytest.raises(OffsetOutOfRangeError, match="10"):
                next(followed)


@pytest.mark.parametrize("follows_first", [False, True])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_writer_that_cut_between_two_looks_is_an_error(tmp_path: Path, follows_first: bool, comes_back: bool) -> None:
    """It came after a look and went before the next, and the log is longer by then."""
    path = tmp_path / "t-0"
    first = Log.open(path, "a")
    for number in range(10):
        first.append(b"%d" % number)
    if not follows_first:
        first.close()
    with Log.open(path) as log:
        followed = log.scan().follow(poll_interval_ms=20)
        assert [next(followed).offset for _ in range(10)] == list(range(10))
        first.close()
        for cut in (7, 3, 5):
            with Log.open(path, "a") as writer:
                writer.truncate_to(cut)
                for number in range(20):
                    writer.append(b"other %d" % number)
        last = Log.open(path, "a") if comes_back else None
        with pytest.raises(OffsetOutOfRangeError) as caught:
            next(followed)
        assert (caught.value.requested, caught.value.log_end_offset) == (10, 3)
        followed = log.scan(3).follow(poll_interval_ms=20)
        assert [next(followed).offset for _ in range(22)] == list(range(3, 25))
        if last is not None:
            last.close()


@pytest.mark.parametrize("more", [-2, 0, 3])
def test_another_leader_that_writes_as_much_is_an_error(tmp_path: Path, more: int) -> None:
    """By another process, which tells nobody: the log is shorter than before, as long, or longer."""
    kept, shown = tmp_path / "kept" / "t-0", tmp_path / "shown" / "t-0"
    shown.mkdir(parents=True)

    def show() -> None:
        for name in ("00000000000000000000.log", "leader-epoch-checkpoint"):
            (shown / "new").write_bytes((kept / name).read_bytes())
            (shown / "new").replace(shown / name)

    with Log.open(kept, "a") as writer:
        for number in range(10):
            writer.append(b"%d" % number, leader_epoch=4)
    show()
    with Log.open(shown) as log:
        followed = log.scan().follow(poll_interval_ms=20)
        assert [next(followed).offset for _ in range(10)] == list(range(10))
        with Log.open(kept, "a") as writer:
            writer.truncate_to(5)
            for number in range(5 + more):
                writer.append(b"%d" % number, leader_epoch=6)
        show()
        with pytest.raises(OffsetOutOfRangeError, match="10") as caught:
            next(followed)
        assert (caught.value.requested, caught.value.log_end_offset) == (10, 5)


def test_retention_that_overtakes_is_an_error(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a", SMALL) as writer, Log.open(tmp_path / "t-0") as log:
        writer.append(b"0")
        followed = log.scan().follow(poll_interval_ms=20)
        assert next(followed).offset == 0
        for number in range(1, 50):
            writer.append(b"%d" % number)
        writer.delete_records_before(40)
        with pytest.raises(OffsetOutOfRangeError):
            next(followed)


def test_a_partition_that_goes_is_an_error(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as writer:
        writer.append(b"0")
    with Log.open(tmp_path / "t-0") as log:
        followed = log.scan().follow()
        assert next(followed).offset == 0
        with running(later(0.2, lambda: (tmp_path / "t-0").rename(tmp_path / "gone-0"))), pytest.raises(FileNotFoundError):
            next(followed)


@pytest.mark.parametrize("records", [0, 1, 5])
def test_a_topic_that_was_made_again_is_gone(tmp_path: Path, records: int) -> None:
    """Its offsets begin anew: those behind the last one that was read are not what comes next."""
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t")
        for _ in range(3):
            log_dir.append("t", b"old")
        logs = [log_dir.log("t", 0), Log.open(tmp_path / "t-0"), LogDir.open(tmp_path).log("t", 0)]
        followed = [log.scan().follow(timeout_ms=1000, poll_interval_ms=20) for log in logs]
        assert [[next(each).offset for _ in range(3)] for each in followed] == [[0, 1, 2]] * 3
        log_dir.delete_topic("t")
        log_dir.create_topic("t")
        for _ in range(records):
            log_dir.append("t", b"new")
        for each in followed:
            with pytest.raises(FileNotFoundError, match="made again"):
                next(each)


@pytest.mark.parametrize("damage", [b"", b"garbage"])
def test_a_topic_whose_id_cannot_be_read_is_followed_as_it_is_scanned(tmp_path: Path, damage: bytes) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t")
        log_dir.append("t", b"7")
    metadata = tmp_path / "t-0" / "partition.metadata"
    sound = metadata.read_bytes()
    metadata.write_bytes(damage)
    with Log.open(tmp_path / "t-0") as log:
        assert values(iter(log.scan())) == [7]
        followed = log.scan().follow(timeout_ms=1000, poll_interval_ms=20)
        assert [record.value for record in itertools.islice(followed, 1)] == [b"7"]
        metadata.write_bytes(sound)
        assert list(followed) == []


def test_ctrl_c_wakes_it(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a"), Log.open(tmp_path / "t-0") as log:
        followed = log.scan().follow(poll_interval_ms=NEVER_MS)
        timer = threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT))

        def wait_for_it() -> None:
            # Where it is expected: elsewhere an early one would end the whole run of tests.
            timer.start()
            next(followed)

        with pytest.raises(KeyboardInterrupt):
            wait_for_it()
        timer.join()


def test_other_threads_go_on_while_it_waits(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a"), Log.open(tmp_path / "t-0") as log:
        turns = 0

        def turn() -> None:
            nonlocal turns
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                time.sleep(0.001)
                turns += 1

        # On a busy machine another program may have the thread's turns.
        for _ in range(20):
            turns = 0
            with running(turn):
                assert list(log.scan().follow(timeout_ms=500)) == []
            if turns > 20:
                break
        assert turns > 20


def test_damage_is_listed_for_all_that_was_read(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a", LogConfig.from_dict({"internal.segment.bytes": 500})) as writer:
        for number in range(30):
            writer.append(b"%d" % number)
    with Log.open(tmp_path / "t-0") as log:
        first, second = log.segments[0].path, log.segments[1]
    for path in (first, second.path):
        data = bytearray(Path(path).read_bytes())
        data[65] ^= 1
        Path(path).write_bytes(data)
    with Log.open(tmp_path / "t-0") as log:
        scan = log.scan(on_corrupt="skip")
        seen = values(scan.follow(timeout_ms=0))
    assert seen == [number for number in range(30) if number not in {0, second.base_offset}]
    assert [hole.start for hole in scan.report.holes] == [0, second.base_offset]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"timeout_ms": -1}, ConfigError, "timeout_ms: must be 0 or more"),
        ({"timeout_ms": 1.5}, TypeError, "timeout_ms must be an int"),
        ({"poll_interval_ms": True}, TypeError, "poll_interval_ms must be an int"),
        ({"poll_interval_ms": 1 << 63}, ConfigError, "poll_interval_ms"),
    ],
)
def test_refused(tmp_path: Path, options: dict[str, int], error: type[Exception], match: str) -> None:
    with Log.open(tmp_path / "t-0", "a") as log, pytest.raises(error, match=match):
        log.scan().follow(**options)


def test_single_offsets_cannot_be_followed(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append(b"0")
        with pytest.raises(ConfigError, match="only a scan"):
            log.take([0]).follow()


def cat(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "offsetlog", "cat", *arguments, "-f", "%t/%p %o %s\n"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_command_prints_what_comes(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as first, Log.open(tmp_path / "t-1", "a") as second:
        first.append(b"before")
        program = cat(str(tmp_path), "--follow", "-c", "3")
        assert program.stdout is not None
        assert program.stdout.readline() == "t/0 0 before\n"
        second.append(b"one")
        assert program.stdout.readline() == "t/1 0 one\n"
        first.append_records([b"two", b"too many"])
        assert program.communicate(timeout=300) == ("t/0 1 two\n", "")
        assert program.returncode == 0


def test_the_command_begins_at_the_end_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append(b"before")
        program = cat(str(tmp_path / "t-0"), "--follow", "-o", "end")
        assert program.stdout is not None
        # Where the end is, it looks up when it has started: what comes before that is not printed.
        told = threading.Event()

        def write() -> None:
            while not told.wait(0.05):
                log.append(b"after")

        with running(write):
            line = program.stdout.readline()
            told.set()
        assert re.fullmatch(r"t/0 [1-9]\d* after\n", line)
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=300)
        # What a shell shows as 130.
        assert program.returncode == -signal.SIGINT


def test_the_command_says_that_a_log_was_cut(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append_records([b"%d" % number for number in range(3)])
        log.append(b"3")
        program = cat(str(tmp_path / "t-0"), "--follow")
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(4)][-1] == "t/0 3 3\n"
        log.truncate_to(3)
        _, words = program.communicate(timeout=300)
        assert "offset 4 is out of range" in words
        assert program.returncode == 2
