"""Every write that reached the disk is known: the disk is put together anew as it may have looked at many moments."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from disks import copy_image, folder, fresh_image, mounted_image, need_disk, needed
from driver import Driver, Line, command, keeping_evidence, listen
from own_disk import Event, own_disk
from promises import History, check_all
from rows import Row, row

SECTOR = 512
SCRIPTS: list[dict[str, int]] = [
    {"appends": 80, "flush_every": 5, "internal.segment.bytes": 3000},
    {"appends": 60, "flush_every": 7, "truncate_every": 9, "roll_every": 8, "internal.segment.bytes": 3000},
    {"appends": 60, "flush_every": 6, "truncate_every": 11, "delete_every": 7, "retention.ms": -1, "internal.segment.bytes": 2000},
    {"appends": 60, "append_flush": 1, "internal.segment.bytes": 20_000, "index.interval.bytes": 0},
]


def recorded(kind: str, script: dict[str, int], image: Path) -> tuple[list[Line], list[Event]]:
    """What a driver said, and what reached the disk meanwhile."""
    with own_disk(kind, image) as disk:
        directory = disk.mounted / "topic-0"
        with Driver(command(directory, 1, pause_us=300, **script)) as driver:
            while driver.process.poll() is None:
                # The system writes pages out whenever it likes; here it likes to often.
                for path in directory.glob("*.log"):
                    try:
                        descriptor = os.open(path, os.O_RDONLY)
                    except FileNotFoundError:
                        continue  # a truncation took it away
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(descriptor)
                time.sleep(0.002)
            lines = driver.lines()
        assert lines[-1].text == "done", lines[-3:]
        return lines, disk.events()


def apply(image: int, event: Event, sectors: Sequence[int] | None = None) -> None:
    """Do a write again, or only some sectors of it."""
    data = event.data or b""
    if sectors is None:
        os.pwrite(image, data, event.position)
        return
    for sector in sectors:
        at = sector * SECTOR
        os.pwrite(image, data[at : at + SECTOR], event.position + at)


def lose(pick: random.Random, image: int, unsure: Sequence[Event]) -> None:
    """The writes since the last flush: all of them, none, some, or some sectors of some."""
    way = pick.choice(("all", "none", "some", "some", "torn", "torn"))
    for event in unsure:
        count = -(-len(event.data or b"") // SECTOR)
        if way == "all" or (way != "none" and pick.random() < 0.5):
            apply(image, event)
        elif way == "torn":
            apply(image, event, [sector for sector in range(count) if pick.random() < 0.5])


def replay(kind: str, script: dict[str, int], part: Row, states: int) -> None:
    """Record one driver, then look at the disk as it was, or may have been, at many moments."""
    image, durable, state = (folder() / f"replay-{kind}-{name}" for name in ("driven", "durable", "state"))
    copy_image(fresh_image(kind), image)
    lines, events = recorded(kind, script, image)
    assert sum(event.data is None for event in events) > script["appends"] / 8, "hardly any flush reached the disk"
    begin = next(slot for slot, event in enumerate(events) if event.time > lines[0].time)
    moments = sorted(part.random.choices(range(begin, len(events) + 1), k=states))
    copy_image(fresh_image(kind), durable)
    done = 0
    for moment in moments:
        # Everything before the last flush is certain.
        flushed = max((slot for slot in range(done, moment) if events[slot].data is None), default=done)
        writer = os.open(durable, os.O_RDWR)
        for event in events[done:flushed]:
            apply(writer, event)
        os.close(writer)
        done = flushed
        copy_image(durable, state)
        writer = os.open(state, os.O_RDWR)
        lose(part.random, writer, [event for event in events[flushed:moment] if event.data is not None])
        os.close(writer)
        history = History()
        history.start(1)
        listen(history, lines, until=events[moment].time if moment < len(events) else None)
        with mounted_image(kind, state) as mounted:
            directory = mounted / "topic-0"
            with keeping_evidence(directory, f"replay-{kind}-{part.seed}-{part.cases}", history):
                check_all(directory, history, power=True)
        part.count()


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_replay(kind: str) -> None:
    """At each moment, whatever the disk had not been told to flush may be missing, out of order, or torn."""
    with row(5, f"replay on {kind}", "states", 75) as part:
        with needed(part):
            need_disk(kind)
        for script in SCRIPTS:
            with needed(part):
                replay(kind, script, part, -(-part.floor // len(SCRIPTS)))
