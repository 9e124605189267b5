"""How long an answer may take on a machine with other work: in seconds of a processor, which other programs do not take."""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path

ANSWER_S_MAX = 0.2
"""How long an answer may take where nothing else runs, on a machine on which `LOOPS` turns of a loop take `LOOPS_S` seconds."""

LOOPS, LOOPS_S = 5_000_000, 0.08

CLOCK = "process_time" if sys.platform == "linux" else "time"
"""The function of `time` whose seconds another process sees with `cpu_seconds`."""


def cpu_seconds(pid: int) -> float:
    """What a running process has computed so far, all its threads together; the time of day where the system does not say."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return time.time()
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_work(pid: int, seconds: float) -> None:
    """Wait until a process has computed for this much longer."""
    begun, hung = cpu_seconds(pid), time.monotonic() + 300
    while cpu_seconds(pid) < begun + seconds:
        assert time.monotonic() < hung, "it does not work"
        time.sleep(0.01)


@functools.cache
def answer_seconds_max() -> float:
    """Seconds of a processor that an answer may take on this machine."""
    begun = time.process_time()
    for _ in range(LOOPS):
        pass
    return ANSWER_S_MAX * max(1.0, (time.process_time() - begun) / LOOPS_S)
