"""The disk is full: an exception, not a log. The failed call leaves no trace, and all goes on when there is room."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from disks import copy_image, folder, fresh_image, mounted_image, mounted_memory, need_disk, needed, own_mounts
from driver import keeping_evidence
from promises import History, check_again, check_all, owe
from python_driver import PythonDriver
from rows import row

from offsetlog import Log, LogDir, TopicPartition, WritableLogDir, verify
from offsetlog.errors import LogPoisonedError

RUNS = 20
# What is done when there is no room, and how often in a run.
Step = Callable[[PythonDriver, random.Random], None]
STEPS: dict[str, Step] = {
    "append": lambda telling, _: telling.append(),
    "append and flush": lambda telling, _: telling.append(flush=True),
    "roll": lambda telling, _: telling.roll(),
    "truncate": lambda telling, pick: telling.truncate(pick.randrange(1, 9)),
    "flush": lambda telling, _: telling.flush(),
}


@contextmanager
def small_disk(kind: str) -> Iterator[Path]:
    """A file system that is soon full."""
    if kind == "tmpfs":
        with mounted_memory(2 << 20) as mounted:
            yield mounted
        return
    image = folder() / f"full-{kind}"
    copy_image(fresh_image(kind), image)
    with mounted_image(kind, image) as mounted:
        yield mounted


def fill(path: Path, leave: int) -> None:
    """Use all room but for about so many bytes."""
    size = 1 << 20
    with path.open("ab", buffering=0) as file:
        while size >= 512:
            try:
                file.write(bytes(size))
                os.fsync(file.fileno())
            except OSError as error:
                owe(error.errno == errno.ENOSPC, repr(error))
                size //= 2
        file.truncate(max(0, file.tell() - leave))


def is_full(telling: PythonDriver, name: str, pick: random.Random) -> bool:
    """Do a step; whether it was refused for want of room. Any other error is a fault."""
    try:
        STEPS[name](telling, pick)
    except OSError as error:
        owe(error.errno == errno.ENOSPC, f"{name}: {error!r}")
        return True
    return False


def seen_by_reader(directory: Path, history: History) -> None:
    """Another process that reads meanwhile sees what was acknowledged, and no piece of what was refused."""
    with Log.open(str(directory)) as log:
        found = [(batch.base_offset, batch.last_offset) for batch in log.batches()]
    owe(
        found == [(batch.base, batch.last) for batch in history.acked],
        f"a reader sees {found[-3:]} at the end, {history.acked[-3:]} was appended",
    )


def one_run(mounted: Path, pick: random.Random) -> int:
    """Fill the disk several times; how often a call was refused."""
    directory, history, refused = mounted / "topic-0", History(), 0
    history.start(1)
    config: dict[str, int | str] = {
        "internal.segment.bytes": pick.choice((1500, 6000, 100_000)),
        "index.interval.bytes": pick.choice((0, 500)),
        "segment.index.bytes": pick.choice((1200, 100_000)),
        "file.delete.delay.ms": 0,
    }
    telling = PythonDriver(directory, 1, history.feed, config)
    ballast = mounted / "ballast"
    for _ in range(3):
        for _ in range(pick.randrange(10)):
            telling.append()
        fill(ballast, pick.choice((0, 4096, 12_288, 40_000)))
        while not is_full(telling, pick.choice(("append", "append", "append", "append and flush", "roll")), pick):
            pass
        refused += 1
        history.pending = None
        seen_by_reader(directory, history)
        for name in pick.sample(sorted(set(STEPS) - {"truncate"}), 3):
            refused += is_full(telling, name, pick)
            history.pending = None
        ballast.unlink()
        # Room again: nothing needs to be opened anew.
        telling.append()
        seen_by_reader(directory, history)
    if pick.random() < 0.3:
        telling.close()
        check_again(directory, history)
        return refused
    if pick.random() < 0.5:
        fill(ballast, 0)
        # What is cut half-way is cut by the next opening, or not at all.
        refused += is_full(telling, "truncate", pick)
        ballast.unlink()
    # A clean end needs a little room, too; without it, the end is not clean, and nothing is lost.
    fill(ballast, 0)
    try:
        telling.close()
    except (OSError, LogPoisonedError) as error:
        owe(not isinstance(error, OSError) or error.errno == errno.ENOSPC, f"close: {error!r}")
        refused += 1
    ballast.unlink()
    with keeping_evidence(directory, f"full-{pick.random()}", history):
        check_all(directory, history, power=False)
    return refused


@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "xfs"])
def test_full(kind: str) -> None:
    """Appends, rolls, indexes, checkpoints and the closing, each without room now and then."""
    with row(10, f"full {kind}", "runs", RUNS // 3 + 1) as part:
        with needed(part):
            own_mounts()
            if kind != "tmpfs":
                need_disk(kind)
        refused = 0
        for _ in range(part.floor):
            with small_disk(kind) as mounted:
                refused += one_run(mounted, part.random)
            part.count()
        assert refused >= 3 * part.cases


# Settings by which records may go. A compaction needs room itself, and comes first.
KEEPING: dict[str, dict[str, int | str]] = {
    "by size": {"internal.segment.bytes": 1 << 16, "retention.bytes": 1 << 16},
    "by age": {"internal.segment.bytes": 1 << 16, "retention.ms": 0},
    "compacted too": {"internal.segment.bytes": 1 << 16, "retention.bytes": 1 << 16, "cleanup.policy": "compact,delete"},
}


def take_all(folder: Path, settings: dict[str, int | str]) -> tuple[WritableLogDir, list[int]]:
    """Append until nothing goes any more; how many records each partition took."""
    logs = LogDir.open(folder, "a")
    logs.create_topic("t", 2, config=settings)
    counts = [0, 0]
    for number in range(1 << 30):
        try:
            logs.append("t", (b"%d " % number).ljust(900, b"."), key=b"%d" % number, partition=number % 2)
        except OSError as error:
            owe(error.errno == errno.ENOSPC, repr(error))
            break
        counts[number % 2] += 1
    return logs, counts


def take_all_and_end(folder: str, end: str, settings: str) -> None:
    """The same in a process of its own, which then closes the log dir or dies."""
    logs, counts = take_all(Path(folder), json.loads(settings))
    print(json.dumps(counts), flush=True)
    if end == "closed":
        with suppress(OSError):
            logs.close()
    os._exit(0)


def taken_all(folder: Path, end: str, settings: dict[str, int | str]) -> tuple[WritableLogDir, list[int]]:
    """A log dir on a full disk, open for appending, whose last writer is this one, closed it or died."""
    if end == "running":
        return take_all(folder, settings)
    program = "import sys, test_disk_full; test_disk_full.take_all_and_end(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), end, json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    owe(done.returncode == 0, done.stderr[-2000:])
    return LogDir.open(folder, "a"), json.loads(done.stdout)


def expected_start(path: Path, settings: dict[str, int | str], end: int) -> int:
    """Where the log is to begin, from the sizes of its segments alone."""
    sizes = {int(file.stem): file.stat().st_size for file in sorted(path.glob("*.log"))}
    if "retention.ms" in settings:
        return end
    excess = sum(sizes.values()) - int(settings["retention.bytes"])
    starts = [*list(sizes)[1:], end]
    start = min(sizes)
    for size, following in zip(sizes.values(), starts, strict=True):
        if excess < size:
            break
        excess, start = excess - size, following
    return start


@pytest.mark.parametrize(
    ("kind", "end"), [("tmpfs", "closed"), ("tmpfs", "killed"), pytest.param("ext4", "killed", marks=pytest.mark.proof)]
)
def test_room_is_made_wherever_in_a_segment_the_disk_was_full(kind: str, end: str) -> None:
    """Also right behind a roll, where the active segment's index files have no byte on the disk yet."""
    own_mounts()
    if kind != "tmpfs":
        need_disk(kind)
    settings = KEEPING["by size"]
    sizes = set()
    for lead in range(0, 2 * int(settings["internal.segment.bytes"]) + 4096, 8192):
        with small_disk(kind) as mounted:
            (mounted / "lead").write_bytes(bytes(lead))
            folder = mounted / "logs"
            logs, counts = taken_all(folder, end, settings)
            fill(mounted / "ballast", 0)
            active = max((folder / "t-0").glob("*.log"))
            sizes.add(active.stat().st_size)
            with logs:
                ends = logs.end_offsets()
                assert [ends[TopicPartition("t", number)] for number in range(2)] == counts, lead
                assert not logs.maintain().failed, lead
                for number in range(2):
                    log = logs.log("t", number)
                    assert log.append(b"goes on", key=b"key") == counts[number]
                    assert [record.offset for record in log.scan()] == list(range(log.log_start_offset, counts[number] + 1))
            (mounted / "ballast").unlink()
            assert not verify(folder).damaged, lead
    owe(min(sizes) < 4096, "the disk was never full right behind a roll")
    owe(max(sizes) > 40_000, "the disk was never full far behind a roll")


@pytest.mark.parametrize("kind", ["tmpfs", pytest.param("ext4", marks=pytest.mark.proof)])
@pytest.mark.parametrize("end", ["running", "closed", "killed"])
@pytest.mark.parametrize("keeping", list(KEEPING))
def test_room_is_made_with_none_left(kind: str, end: str, keeping: str) -> None:
    """Not a byte is free: opening and upkeep make room, what they take is what is due, and the rest is all there."""
    own_mounts()
    if kind != "tmpfs":
        need_disk(kind)
    with small_disk(kind) as mounted:
        folder = mounted / "logs"
        logs, counts = taken_all(folder, end, KEEPING[keeping])
        fill(mounted / "ballast", 0)
        owe(os.statvfs(mounted).f_bavail == 0, "the disk is not full")
        with logs:
            ends = logs.end_offsets()
            assert [ends[TopicPartition("t", number)] for number in range(2)] == counts
            expected = [expected_start(folder / f"t-{number}", KEEPING[keeping], counts[number]) for number in range(2)]
            assert all(expected)
            # By age goes what is older than 0 ms, and not yet what was appended in this one.
            time.sleep(0.01)
            assert not logs.maintain().failed
            starts = logs.beginning_offsets()
            assert [starts[TopicPartition("t", number)] for number in range(2)] == expected
            assert os.statvfs(mounted).f_bavail > 0
            for number in range(2):
                log = logs.log("t", number)
                found = {record.offset: record.value for record in log.scan()}
                assert list(found) == list(range(expected[number], counts[number]))
                assert all(value and value.startswith(b"%d " % (offset * 2 + number)) for offset, value in found.items())
                assert log.append(b"goes on", key=b"key") == counts[number]
            assert not logs.maintain().failed
        (mounted / "ballast").unlink()
        assert not verify(folder).damaged
        for number in range(2):
            with Log.open(folder / f"t-{number}") as reader:
                assert reader.log_start_offset >= expected[number]
                assert reader.log_end_offset == counts[number] + 1
