"""A sync fails: it is said once and for all, nothing counts as flushed afterwards, and opening again finds out what is there."""

from __future__ import annotations

import errno
import itertools
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from disks import copy_image, drop_caches, folder, fresh_image, mounted_image, need_disk, needed
from driver import Driver, command, keeping_evidence, listen
from own_disk import OwnDisk, own_disk
from promises import History, check_again, check_all, owe, read_files
from python_driver import PythonDriver
from rows import row
from tracing import need_tracing, traced

from offsetlog import Log
from offsetlog.errors import LogPoisonedError

# A number that stands in no block of a file system's own.
RUN = int.from_bytes(b"offset\x01g", "little")
# Which of a directory's files hold records, or say which files there are. The others are written to a new file each time.
RECORDS = re.compile(r"\.(?:log|index|timeindex|snapshot)>|/topic\d*-0>")
SCRIPT: dict[str, int | str] = {"appends": 14, "flush_every": 4, "roll_every": 5, "truncate_every": 6, "internal.segment.bytes": 1500}


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_nth_sync_fails(call: str) -> None:
    """Each sync of a life fails once. What it was for is not promised, and no later sync is believed."""
    with row(9, f"each {call} fails", "cases", 0) as part, tempfile.TemporaryDirectory() as scratch:
        with needed(part):
            need_tracing()
        for nth in itertools.count(1):
            directory, output, history = Path(scratch, f"topic{nth}-0"), Path(scratch, "calls"), History()
            history.start(1)
            script = {**SCRIPT, "append_flush": nth % 2, "probe": 1}
            with Driver(traced(command(directory, 1, **script), f"{call}:error=EIO:when={nth}", output)) as driver:
                lines = driver.lines()
            injected = [line for line in output.read_text(encoding="utf-8").splitlines() if "(INJECTED)" in line]
            if not injected:
                assert lines[-1].text == "done"
                break
            words = [line.text for line in lines]
            failed = [word for word in words if word.startswith("failed")]
            owe(failed, f"{injected[0]} failed, and nobody was told")
            owe(failed[0].split()[2] == str(errno.EIO) or " poisoned " in failed[0], f"{failed[0]!r} does not say EIO")
            if RECORDS.search(injected[0]) and words[0].startswith("opened"):
                after = words[words.index(failed[0]) :]
                later = [word for word in after if word.split()[0] in {"acked", "flushed", "rolled", "closed"}]
                owe(not later, f"{injected[0]}: the log goes on with {later}")
            # The failure was made up: no page was lost.
            listen(history, lines)
            with keeping_evidence(directory, f"sync-{call}-{nth}", history):
                check_all(directory, history, power=False)
            part.count()


def by_flush(telling: PythonDriver) -> None:
    """The caller syncs."""
    telling.append()
    telling.flush()


def by_append(telling: PythonDriver) -> None:
    """The append syncs."""
    telling.append(flush=True)


def by_roll(telling: PythonDriver) -> None:
    """A thread of its own syncs what was rolled; whoever comes next is told."""
    telling.append()
    telling.roll()
    time.sleep(0.2)
    telling.append()
    telling.flush()


WAYS: dict[str, Callable[[PythonDriver], None]] = {"flush": by_flush, "append": by_append, "roll": by_roll}


def answers(call: Callable[[], object]) -> type[Exception] | None:
    """What a call raises."""
    try:
        call()
    except (OSError, LogPoisonedError) as error:
        owe(not isinstance(error, OSError) or error.errno == errno.EIO, repr(error))
        return type(error)
    return None


def break_and_heal(disk: OwnDisk, telling: PythonDriver, history: History, way: str) -> None:
    """Fail a sync in one of the ways, and see that the log knows it."""
    for _ in range(5):
        telling.append()
    telling.flush()
    certain = history.durable
    # The head of each value of this run.
    disk.refuse(telling.run.to_bytes(8, "little") + telling.generation.to_bytes(8, "little"))
    for _ in range(3):
        telling.append()
    owe(answers(lambda: WAYS[way](telling)), "the disk refused the bytes and nobody was told")
    owe(disk.heal() > 0, "the disk refused nothing: the test tests nothing")
    # The disk is well again; the log is not.
    for call in (telling.append, telling.flush, telling.roll, lambda: telling.append(flush=True)):
        owe(answers(call) is LogPoisonedError, "a log whose sync failed goes on")
    owe(
        telling.log.durable_end_offset == certain == history.durable,
        f"{telling.log.durable_end_offset} is said to be durable, {certain} is",
    )
    offsets = [record.offset for record in telling.log.scan(durable=True)]
    owe(offsets[-1:] == [certain - 1], f"a durable scan ends with {offsets[-1:]}, {certain} is durable")
    seen = [batch.base_offset for batch in telling.log.batches()]
    owe(seen[: len(history.acked)] == [batch.base for batch in history.acked], "reading stopped")


def open_again(directory: Path, history: History, *, all_of_it: bool) -> None:
    """Open: what is there now is promised anew."""
    with Log.open(str(directory), "a") as log:
        found = read_files(directory, history, open_now=True)
        history.check(found, power=not all_of_it)
        report = log.recovery_report
        owe(
            found == history.acked or report.cut,
            f"{len(found)} of {len(history.acked)} batches are there, and nobody is told: {report}",
        )
        log.flush()
        history.settle(found, log.log_start_offset, log.log_end_offset)
        owe(log.durable_end_offset == log.log_end_offset, "flushed and not durable")


# What happens between the failure and the next opening: whether the cache still shows the bytes then.
BETWEEN = {"closed": True, "killed": True, "cache dropped": False}
CASES = [
    ("flush", "closed"),
    ("append", "killed"),
    ("roll", "closed"),
    ("flush", "cache dropped"),
    ("roll", "cache dropped"),
    ("flush", "killed"),
]


def drive_in_child(disk: OwnDisk, directory: Path, history: History, way: str) -> None:
    """The same in a process that is killed then, with what it knew."""
    output, into = os.pipe()
    child = os.fork()
    if child == 0:
        told = History()
        told.start(RUN)

        def say(words: str) -> None:
            told.feed(words)
            os.write(into, words.encode() + b"\n")

        try:
            break_and_heal(disk, PythonDriver(directory, RUN, say), told, way)
            os.write(into, b"well\n")
        except BaseException as error:  # noqa: BLE001  # the parent tells it
            os.write(into, f"{error!r}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(into)
    with os.fdopen(output) as lines:
        *said, last = [line.rstrip("\n") for line in lines]
    os.waitpid(child, 0)
    owe(last == "well", last)
    for words in said:
        history.feed(words)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_disk_refuses(kind: str) -> None:
    """A disk that refuses the bytes, loses them, and is well again: what an opening finds later is there when the cache is gone."""
    with row(9, f"disk that refuses, {kind}", "cases", len(CASES)) as part:
        with needed(part):
            need_disk(kind)
        for slot, (way, between) in enumerate(CASES):
            image = folder() / f"refuse-{kind}-{slot}"
            copy_image(fresh_image(kind), image)
            history = History()
            history.start(RUN)
            with needed(part), own_disk(kind, image) as disk:
                directory = disk.mounted / "topic-0"
                if between == "killed":
                    drive_in_child(disk, directory, history, way)
                else:
                    telling = PythonDriver(directory, RUN, history.feed)
                    break_and_heal(disk, telling, history, way)
                    owe(answers(telling.log.close), "a broken log closes as if it were whole")
                    del telling
                if between == "cache dropped":
                    drop_caches()
                open_again(directory, history, all_of_it=BETWEEN[between])
                # Whatever only the cache showed goes here.
                drop_caches()
                check_again(directory, history)
            with mounted_image(kind, image) as mounted:
                check_again(mounted / "topic-0", history)
            image.unlink()
            part.count()
