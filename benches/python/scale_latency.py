"""Appends of 1 KB, each flushed, at a steady rate for a long time: the latency curve of `make bench-scale`.

    scale_latency.py DIRECTORY SECONDS WINDOW_SECONDS APPENDS_PER_SECOND

Prints one line of JSON per window. An append that comes late because the one before took long counts from when it was due, so a stall
is not hidden by the appends that could not begin meanwhile.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from pathlib import Path

from offsetlog import Log

SEGMENT_BYTES = 16 << 20
PARTS = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))


def quantiles(name: str, seconds: list[float]) -> dict[str, float]:
    """The quantiles of one window."""
    seconds.sort()
    return {f"{name}, {part}": seconds[min(len(seconds) - 1, int(len(seconds) * share))] for part, share in PARTS}


def main(directory: Path, seconds: int, window: int, rate: int) -> None:
    """Appends until the time is over."""
    shutil.rmtree(directory, ignore_errors=True)
    value = bytes(range(250)) * 4
    clock = time.perf_counter
    with Log.open(directory, mode="a", config={"segment.bytes": SEGMENT_BYTES, "retention.bytes": 4 * SEGMENT_BYTES}) as log:
        start = clock()
        appends: list[float] = []
        flushes: list[float] = []
        whole: list[float] = []
        ends = start + window
        begun, number = start, 0
        while (now := clock()) < start + seconds:
            due = begun + number / rate
            if now < due:
                time.sleep(due - now)
            number += 1
            before = clock()
            log.append(value)
            between = clock()
            log.flush()
            after = clock()
            appends.append(between - before)
            flushes.append(after - between)
            whole.append(after - due)
            if after >= ends:
                costs = quantiles("append", appends) | quantiles("flush", flushes) | quantiles("both, from when due", whole)
                rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                print(json.dumps({"second": round(ends - start), "costs": costs, "peak_rss": rss}), flush=True)
                appends, flushes, whole = [], [], []
                log.maintain()
                ends += window
                begun, number = clock(), 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
