"""Directory listings are no snapshots: what a reader makes of one that was taken while a writer rolled."""

from __future__ import annotations

import time
from pathlib import Path

from writing import offsets, running

from offsetlog import Log

ROLLS = """
import sys
from offsetlog import Log
log = Log.open(sys.argv[1], "a", {"internal.segment.bytes": 300, "segment.index.bytes": 100})
print("ready", flush=True)
while log.log_end_offset < 10_000:
    log.append(b"." * 100)
sys.stdin.readline()
"""


def test_a_reader_beside_many_rolls_misses_no_segment(tmp_path: Path) -> None:
    """A listing of a directory may show a file and not an older one, when both were made while it ran."""
    path = tmp_path / "orders-0"
    with running(ROLLS, path):
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            with Log.open(path) as reader:
                bases = [segment.base_offset for segment in reader.segments]
                assert bases == list(range(len(bases)))
                found = offsets(reader)
                assert found == list(range(len(found)))
