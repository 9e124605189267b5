"""The power goes at a random moment while a process appends: real file systems, shut down without writing their journal out."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disks import LOG_FLUSH, NO_LOG_FLUSH, copy_image, cut_power, folder, fresh_image, mounted_image, need_disk, needed, write_out
from driver import Driver, Line, broken_folder, command, keeping_evidence, listen
from promises import BrokenPromiseError, History, check_all
from rows import Row, row

# Cycles before the file system is made anew.
CYCLES_OF_AN_IMAGE = 25


def options(pick: random.Random) -> dict[str, int]:
    """What a driver does, drawn anew each time; rare things are not rare here."""
    return {
        "appends": pick.choice((3, 30, 300, 600)),
        "flush_every": pick.choice((0, 1, 3, 10, 50)),
        "roll_every": pick.choice((0, 0, 1, 7)),
        "truncate_every": pick.choice((0, 0, 0, 4, 20)),
        "delete_every": pick.choice((0, 0, 5, 20)),
        "retention.ms": -1,
        "append_flush": pick.choice((0, 0, 0, 1)),
        "pause_us": pick.choice((0, 0, 200)),
        "close": pick.choice((0, 1)),
        "threads": pick.choice((1, 1, 1, 4)),
        "internal.segment.bytes": pick.choice((1200, 3000, 20_000, 1_000_000)),
    }


class Cycles:
    """Power losses one after the other, on one kind of file system."""

    def __init__(self, kind: str, mount_options: str, part: Row) -> None:
        self.kind, self.mount_options, self.part = kind, mount_options, part
        self.image, self.kept = folder() / f"power-{kind}", folder() / f"power-{kind}-kept"
        self.found = folder() / f"power-{kind}-found"
        self.name, self.history = "", History()
        self.said: list[str] = []
        self.run = self.batches = self.recovered = 0
        self.pace = 1.0

    def go(self) -> None:
        """All of them."""
        # Until much was appended and recovered too, however slow the machine.
        while self.part.cases < self.part.floor or self.batches <= self.part.cases or self.recovered <= self.part.cases / 4:
            told = f"{self.batches} batches, {self.recovered} recovered in {self.part.cases} cycles: the driver is not at work"
            assert self.part.cases < 20 * self.part.floor, told
            copy_image(fresh_image(self.kind), self.image)
            for cycle in range(CYCLES_OF_AN_IMAGE):
                copy_image(self.image, self.found)
                with mounted_image(self.kind, self.image, self.mount_options) as mounted:
                    looked = self.look(mounted)
                    if not self.name or (looked and self.part.random.random() < 0.6):
                        self.name, self.history, self.said = f"topic{cycle}-0", History(), []
                    self.lose_power(mounted)
                self.kept.replace(self.image)
            with mounted_image(self.kind, self.image, self.mount_options) as mounted:
                self.look(mounted)
            self.name = ""
            self.image.unlink()

    def lose_power(self, mounted: Path) -> None:
        """Drive, and cut the power meanwhile."""
        pick = self.part.random
        self.run += 1
        self.history.start(self.run)
        with Driver(command(mounted / self.name, self.run, **options(pick))) as driver:
            time.sleep(self.pace * pick.choice((0.003, 0.01, 0.03)) * pick.random())
            if pick.random() < 0.2:
                write_out(mounted)
                time.sleep(0.005 * pick.random())
            switched = time.time_ns()
            # A journal that is written out first shows names and sizes whose bytes may not be there.
            cut_power(mounted, pick.choice((NO_LOG_FLUSH, NO_LOG_FLUSH, LOG_FLUSH)))
            # The disk as it is now: unmounting may still write to it.
            copy_image(self.image, self.kept)
            driver.kill()
            lines = driver.lines()
        # Of a slow machine's time more is spent before the first append.
        is_at_work = any(line.text.startswith("acked") for line in lines)
        self.pace = max(1.0, self.pace * (0.8 if is_at_work else 1.25))
        # What failed, failed because the disk was gone.
        with self.told(lines, switched):
            listen(self.history, [line for line in lines if not line.text.startswith("failed")], power_until=switched)

    @contextmanager
    def told(self, lines: list[Line], switched: int) -> Iterator[None]:
        """Keep what the drivers said, and the disk that the last one found, when an opening that nobody looked at went wrong."""
        self.said += [f"run {self.run}", *(f"{line.time - switched} {line.text}" for line in lines)]
        try:
            yield
        except BrokenPromiseError as error:
            broken = broken_folder(f"power-{self.kind}-{self.part.seed}-{self.part.cases}")
            copy_image(self.found, broken / "found.image")
            (broken / "history.txt").write_text("\n".join([str(self.history), *self.said, ""]), encoding="utf-8")
            msg = f"{error} (the disk that it found, and what was said: {broken})"
            raise AssertionError(msg) from error

    def look(self, mounted: Path) -> bool:
        """Check what the last power loss left. Now and then nobody looks, and the next driver recovers: says so."""
        if not self.name or self.part.random.random() < 0.2:
            return False
        with keeping_evidence(mounted / self.name, f"power-{self.kind}-{self.part.seed}-{self.part.cases}", self.history):
            report = check_all(mounted / self.name, self.history, power=True)
        self.batches += len(self.history.acked)
        self.recovered += not report.clean
        self.part.count()
        return True


FILE_SYSTEMS = {
    "ext4": ("ext4", "", 150),
    "ext4 nodelalloc": ("ext4", "nodelalloc", 150),
    "xfs": ("xfs", "", 150),
}


@pytest.mark.parametrize("name", FILE_SYSTEMS)
def test_real_power_loss(name: str) -> None:
    """What was flushed is there, what was not is a prefix of what was appended; then the log goes on."""
    kind, mount_options, floor = FILE_SYSTEMS[name]
    with row(4, f"power loss on {name}", "cycles", floor) as part:
        with needed(part):
            need_disk(kind)
        Cycles(kind, mount_options, part).go()
