"""Row 22. Clocks that jump a year back or ten years ahead: nothing is deleted, nothing waits for the old time, look-ups stay right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rows import row
from writing import environment

# `jump` sets the clock; values are numbered, `check` looks at everything that was appended.
HEAD = """
import os, select, sys, time
from pathlib import Path
from offsetlog import Log
path, how, years = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
shift = [0]
def clock(): return int(time.time() * 1000) + shift[0]
def jump():
    before = time.time()
    if how == "faketime":
        target = Path(os.environ["FAKETIME_TIMESTAMP_FILE"])
        target.with_suffix(".new").write_text(f"{years * 365:+d}d")
        target.with_suffix(".new").rename(target)
        assert abs(time.time() - before - years * 365 * 86400) < 60, (time.time(), before)
    else:
        shift[0] += years * 365 * 86_400_000
def opened(**config):
    return Log.open(path, "a", {"segment.index.bytes": 1000, **config}, clock=None if how == "faketime" else clock)
# Python's own sleep waits for a time of the clock that `faketime` bends.
def wait(seconds): select.select([], [], [], seconds)
count = [0]
def append(log, n=5):
    for _ in range(n):
        assert log.append(b"%d" % count[0]) == count[0]
        count[0] += 1
def names(): return {name for name in os.listdir(path) if name.endswith(".log")}
def check(log, before=frozenset()):
    assert [(r.offset, r.value) for r in log.scan()] == [(n, b"%d" % n) for n in range(count[0])]
    assert log.log_start_offset == 0 and log.log_end_offset == count[0]
    assert before <= names(), "a segment went"
    stamps = [r.timestamp for r in log.scan()]
    for asked in sorted({s + d for s in stamps for d in (-1, 0, 1)}):
        wanted = next((n for n, stamp in enumerate(stamps) if stamp >= asked), None)
        found = log.offset_for_timestamp(asked)
        assert (found and found.offset) == wanted, (asked, found, wanted)
"""

RUNS = {
    "appending": """
with opened() as log:
    append(log); jump(); append(log); check(log)
with opened() as log: append(log); check(log)
""",
    "a roll by time": """
with opened(**{"segment.ms": 60_000}) as log:
    append(log); jump(); before = names(); append(log); log.roll(); append(log); check(log, before)
with opened() as log: check(log)
""",
    "append times": """
with opened(**{"message.timestamp.type": "LogAppendTime", "segment.ms": 60_000}) as log:
    append(log); before = names(); jump(); append(log); check(log, before)
with opened() as log: append(log); check(log)
""",
    "retention settings": """
settings = {"retention.ms": 1000, "retention.bytes": 100, "cleanup.policy": "delete", "segment.ms": 1000}
with opened(**settings) as log:
    append(log); log.roll(); append(log); jump(); before = names(); append(log); log.flush(); check(log, before)
with opened(**settings) as log: append(log); check(log, before)
""",
    "opening after a kill": """
log = opened(**{"segment.ms": 1000, "retention.ms": 1000})
append(log); log.roll(); append(log)
log._abandon()
jump()
before = names()
with opened(**{"segment.ms": 1000, "retention.ms": 1000}) as log:
    check(log, before); append(log); check(log, before)
with opened() as log: check(log, before)
""",
    # What waits has the time of its coming: a year ahead of the clock it would be refused, as a broker refuses it.
    "a writer that lingers": """
with opened(**{"message.timestamp.after.max.ms": 2**63 - 1}) as log:
    append(log)
    writer = log.writer(linger_ms=20)
    writer.append(b"%d" % count[0]); count[0] += 1
    jump()
    writer.append(b"%d" % count[0]); count[0] += 1
    end = time.monotonic() + 250
    while log.log_end_offset < count[0]:
        assert time.monotonic() < end, "it waits for the old time"
        wait(0.005)
    check(log)
""",
    "flushes by time": """
with opened(**{"flush.ms": 20}) as log:
    append(log); jump(); append(log)
    end = time.monotonic() + 250
    while log.recovery_point < count[0]:
        assert time.monotonic() < end, "it waits for the old time"
        wait(0.005)
    check(log)
""",
}


def library() -> str | None:
    """The library that `faketime` puts in front of a program."""
    found = shutil.which("faketime")
    if found is None:
        return None
    done = subprocess.run([found, "-f", "+0d", "sh", "-c", "echo $LD_PRELOAD"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("how", ["faketime", "clock="])
def test_jumps(tmp_path: Path, how: str) -> None:
    """By the system's clock, as `faketime` bends it, and by the log's own."""
    with row(22, f"jumps by {how}", "runs", 12, fixed=True) as part:
        variables = environment()
        if how == "faketime":
            preload = library()
            if preload is None:
                part.skip("no faketime (apt-get install faketime); the log's own clock jumps in the other test")
            bent = {"LD_PRELOAD": preload, "FAKETIME_TIMESTAMP_FILE": str(tmp_path / "now"), "FAKETIME_NO_CACHE": "1"}
            variables = {**variables, **bent, "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        for years in (-1, 10):
            for name, program in RUNS.items():
                (tmp_path / "now").write_text("+0d")
                path = tmp_path / f"{name} {years}".replace(" ", "_") / "orders-0"
                done = subprocess.run(
                    [sys.executable, "-c", HEAD + program, path, how, str(years)],
                    capture_output=True,
                    text=True,
                    check=False,
                    env=variables,
                    timeout=300,
                )
                assert (done.returncode, done.stderr) == (0, ""), f"{name}, {years} years{os.linesep}{done.stderr}"
                part.count()
