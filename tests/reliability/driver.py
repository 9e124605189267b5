"""Starts the driver, and listens."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from promises import BrokenPromiseError, History

from offsetlog.errors import OffsetLogError

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(os.environ.get("OFFSETLOG_DRIVE", ROOT / "target/debug/examples/drive"))
SMALL = {"internal.segment.bytes": 6000, "index.interval.bytes": 500, "file.delete.delay.ms": 0}


class Line(NamedTuple):
    """A line of the driver, with the time in ns at which it was said."""

    time: int
    text: str


def command(path: Path, run: int, **options: int | str) -> list[str]:
    """The driver's command line. What is not an option of its own is a setting of Kafka's."""
    given: dict[str, int | str] = {"path": str(path), "run": run, **SMALL, **options}
    return [str(DRIVER), *(f"{name}={value}" for name, value in given.items())]


class Driver:
    """A driver at work."""

    def __init__(self, arguments: Sequence[str], *, before: Callable[[], None] | None = None) -> None:
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Room for all that it says while nobody listens.
            pipesize=1 << 20,
            preexec_fn=before,  # noqa: PLW1509  # sets limits of the child
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def kill(self) -> None:
        """End it at once."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(300)

    def lines(self) -> list[Line]:
        """All that it said, once it has ended. A line that was cut in the middle was not said."""
        assert self.process.stdout is not None
        # Not `communicate`, which overlooks what reading a first line has read already.
        *whole, _ = self.process.stdout.read().decode().split("\n")
        self.process.wait(300)
        return [Line(int(time), text) for time, _, text in (line.partition(" ") for line in whole)]

    def next_line(self) -> Line | None:
        """The next thing that it says."""
        assert self.process.stdout is not None
        time, _, text = self.process.stdout.readline().decode().rstrip("\n").partition(" ")
        return Line(int(time), text) if time else None


def listen(history: History, lines: Sequence[Line], *, until: int | None = None, power_until: int | None = None) -> None:
    """Tell a history what was said, up to a moment.

    What is said to be flushed once the switch of the power was touched does not count: while a file system shuts down, a sync may
    succeed because there is nothing left to wait for, which no process lives to see when the power really goes.
    """
    for line in lines:
        if until is not None and line.time >= until:
            return
        if power_until is None or line.time < power_until or not line.text.startswith(("flushed", "closed")):
            history.feed(line.text)


def broken_folder(name: str) -> Path:
    """Where what shows a broken promise is kept."""
    broken = ROOT / "build/broken" / name
    broken.mkdir(parents=True, exist_ok=True)
    return broken


@contextmanager
def keeping_evidence(directory: Path, name: str, history: History) -> Iterator[None]:
    """Copy a directory before it is checked; the copy stays, with the history, when the check fails."""
    broken = broken_folder(name)
    # A crash may come before there is any.
    if directory.exists():
        shutil.copytree(directory, broken, dirs_exist_ok=True)
    (broken / "history.txt").write_text(f"{history}\n", encoding="utf-8")
    try:
        yield
    except (BrokenPromiseError, OffsetLogError, OSError) as error:
        msg = f"{error} (files as they were before the check: {broken})"
        raise AssertionError(msg) from error
    shutil.rmtree(broken)
