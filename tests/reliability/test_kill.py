"""The process dies: at each of its system calls, and at random moments. What was acknowledged is there all the same."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disks import MEMORY, needed
from driver import Driver, Line, command, keeping_evidence, listen
from promises import History, check_all
from rows import row
from tracing import need_tracing, traced

# Death needs no disk: what was handed to the system stays.
PARENT = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
# Each with the kills that there must be from a new log to its end, so that a fault which does not happen is seen.
CALLS = {
    "write": 30,
    "pwrite64": 8,
    "fsync": 8,
    "fdatasync": 8,
    "rename": 8,
    "unlink": 2,
    "ftruncate": 10,
    "openat": 20,
    "mkdir": 1,
}
# Every kind of change in a few calls: new segments, truncations within one and across several, deleted records, a clean end.
SCRIPT = {
    "appends": 12,
    "flush_every": 3,
    "roll_every": 5,
    "truncate_every": 4,
    "delete_every": 6,
    "retention.ms": -1,
    "internal.segment.bytes": 1500,
}


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="offsetlog-kill-", dir=PARENT) as folder:
        yield Path(folder)


def driven(directory: Path, run: int, call: str, nth: int, appends: int = SCRIPT["appends"]) -> list[Line]:
    """What a driver said that is killed when a thread of it makes that call for the nth time."""
    arguments = command(directory, run, **(SCRIPT | {"appends": appends}))
    with Driver(traced(arguments, f"{call}:signal=KILL:when={nth}")) as driver:
        return driver.lines()


def ended(lines: list[Line]) -> bool:
    """Whether the driver came to its end."""
    return bool(lines) and lines[-1].text == "done"


@pytest.mark.parametrize("call", CALLS)
def test_killed_at_each_call(call: str) -> None:
    """From a new log to its clean end, killed at the first, second, third … call of a kind, until there is no further one."""
    with row(6, f"killed at each {call}", "kills", CALLS[call]) as part, scratch() as folder:
        with needed(part):
            need_tracing()
        # Opening changes little, and is done often.
        for nth in itertools.count(1, 4 if call == "openat" else 1):
            history, directory = History(), folder / f"topic{nth}-0"
            history.start(1)
            lines = driven(directory, 1, call, nth)
            listen(history, lines)
            if ended(lines):
                break
            with keeping_evidence(directory, f"kill-{call}-{nth}", history):
                check_all(directory, history, power=False)
            part.count()


@pytest.mark.parametrize("call", sorted(CALLS.keys() - {"write", "openat", "mkdir"}))
def test_killed_while_recovering(call: str) -> None:
    """The same on a log whose last writer was killed: recovery is killed too, and the one after it finds the same."""
    with row(6, f"killed again at each {call}", "kills", 0) as part, scratch() as folder:
        with needed(part):
            need_tracing()
        # Killed after its truncations and in its third segment, so that there is something to recover.
        before, left = History(), folder / "left/topic-0"
        before.start(1)
        left.parent.mkdir()
        lines = driven(left, 1, "pwrite64", SCRIPT["appends"] - 1)
        assert lines
        assert not ended(lines)
        # Opening changes little, and is done often.
        for nth in itertools.count(1, 4 if call == "openat" else 1):
            history, directory = History(), folder / f"{nth}/topic-0"
            shutil.copytree(left, directory)
            history.start(1)
            listen(history, lines)
            again = driven(directory, 2, call, nth, 2)
            history.start(2)
            listen(history, again)
            if ended(again):
                break
            with keeping_evidence(directory, f"rekill-{call}-{nth}", history):
                check_all(directory, history, power=False)
            part.count()


def test_enough_calls() -> None:
    """The calls above are the ones that a writer makes: nothing that changes a file goes on beside them."""
    with row(6, "calls that were not killed at", "calls", 1) as part, scratch() as folder:
        with needed(part):
            need_tracing()
        output = folder / "calls"
        watched = "rename,renameat,renameat2,unlink,unlinkat,truncate,ftruncate,fallocate,pwritev,pwritev2,writev,sync_file_range,msync,link,linkat"
        arguments = command(folder / "topic-0", 1, **SCRIPT)
        with Driver(["strace", "-f", "-qq", "-o", str(output), "-e", f"trace={watched}", *arguments]) as driver:
            assert ended(driver.lines())
        names = {
            line.split(maxsplit=1)[1].partition("(")[0] for line in output.read_text(encoding="utf-8").splitlines() if "(" in line
        }
        assert names <= set(CALLS)
        part.count(len(names))


KILLS, KILLS_OF_A_LOG = 60, 4


def test_killed_at_random() -> None:
    """A Python process that appends, killed after 1 to 200 ms; the next one goes on with what it left."""
    with row(7, "Python killed at random times", "kills", KILLS) as part, scratch() as folder:
        program = Path(__file__).with_name("appender.py")
        directory, history, acked, pace = folder / "topic0-0", History(), 0, 1.0
        # Until much was appended too, however slow the machine.
        while part.cases < part.floor or acked <= part.cases:
            kill = part.cases
            assert kill < 20 * part.floor, "hardly anything was appended: the child is not at work"
            if kill % KILLS_OF_A_LOG == 0:
                directory, history = folder / f"topic{kill}-0", History()
            history.start(kill + 1)
            arguments = [sys.executable, str(program), str(directory), str(kill + 1), str(part.random.randrange(1 << 30))]
            with Driver(arguments) as child:
                first = child.next_line()
                assert first is not None, "the child did not begin"
                time.sleep(pace * part.random.uniform(0.001, 0.2) * part.random.random())
                child.kill()
                lines = [first, *child.lines()]
            listen(history, lines)
            found = sum(line.text.startswith("acked") for line in lines)
            acked += found
            pace = max(1.0, pace * (0.8 if found else 1.25))
            with keeping_evidence(directory, f"kill-random-{part.seed}-{kill}", history):
                check_all(directory, history, power=False)
            part.count()
