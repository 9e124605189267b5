"""Appends of 1 KB, each flushed, at a steady rate for a long time: the latency curve of `make bench-scale`.

    scale_latency.py DIRECTORY SECONDS WINDOW_SECONDS APPENDS_PER_SECOND

Prints one line of JSON per window. When each append is due is settled before the first one, and nothing moves it. An append that comes
late counts from when it was due, in the window in which it was due: so a stall meets all that could not begin meanwhile, also those
behind a window's end, and so does what `maintain` takes between two windows.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from offsetlog import Log

SEGMENT_BYTES = 16 << 20
PARTS = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
VALUE = bytes(range(250)) * 4


class Appending(Protocol):
    """What is measured of a log."""

    def append(self, value: bytes, /) -> object:
        """Appends a record."""

    def flush(self) -> object:
        """Syncs it."""

    def maintain(self) -> object:
        """Removes what retention lets go."""


def quantiles(name: str, seconds: list[float]) -> dict[str, float]:
    """The quantiles of one window; none of no appends."""
    seconds.sort()
    return {f"{name}, {part}": seconds[min(len(seconds) - 1, int(len(seconds) * share))] for part, share in PARTS if seconds}


@dataclass
class Window:
    """The appends that were due in one stretch of time.

    Attributes
    ----------
    second
        Where it ends, in seconds after the start.
    appends, flushes
        Seconds of each call.
    whole
        Seconds from when each append was due to when it was flushed.
    """

    second: int
    appends: list[float] = field(default_factory=list)
    flushes: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)

    def costs(self) -> dict[str, float]:
        """Quantiles by the names of their lines."""
        return quantiles("append", self.appends) | quantiles("flush", self.flushes) | quantiles("both, from when due", self.whole)


def windows(
    log: Appending,
    seconds: int,
    window: int,
    rate: int,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Window]:
    """Appends until the time is over; each window once all that was due in it is done.

    What was due and has not begun by then counts as having waited until then, which is less than it would have taken.
    """
    start = clock()
    found = Window(min(window, seconds))
    for number in range(seconds * rate):
        due = number / rate
        if due >= found.second:
            yield found
            log.maintain()
            found = Window(min(found.second + window, seconds))
        now = clock() - start
        if now >= seconds:
            found.whole.append(now - due)
            continue
        if now < due:
            sleep(due - now)
        before = clock()
        log.append(VALUE)
        between = clock()
        log.flush()
        after = clock()
        found.appends.append(between - before)
        found.flushes.append(after - between)
        found.whole.append(after - start - due)
    yield found


def main(directory: Path, seconds: int, window: int, rate: int) -> None:
    """Measures and prints."""
    shutil.rmtree(directory, ignore_errors=True)
    with Log.open(directory, mode="a", config={"segment.bytes": SEGMENT_BYTES, "retention.bytes": 4 * SEGMENT_BYTES}) as log:
        for found in windows(log, seconds, window, rate):
            rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(json.dumps({"second": found.second, "costs": found.costs(), "peak_rss": rss}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
