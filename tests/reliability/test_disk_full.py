"""The disk is full: an exception, not a log. The failed call leaves no trace, and all goes on when there is room."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disks import copy_image, folder, fresh_image, mounted_image, mounted_memory, need_disk, needed, own_mounts
from driver import keeping_evidence
from promises import History, check_again, check_all, owe
from rows import row
from telling import Telling

from offsetlog import Log
from offsetlog.errors import LogPoisonedError

RUNS = 20
# What is done when there is no room, and how often in a run.
Step = Callable[[Telling, random.Random], None]
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


def is_full(telling: Telling, name: str, pick: random.Random) -> bool:
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
    telling = Telling(directory, 1, history.feed, config)
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
