"""Directory listings are no snapshots: what a reader makes of one that was taken while a writer rolled."""

from __future__ import annotations

import time
from pathlib import Path

from writing import offsets, running

from offsetlog import Log, verify

ROLLS = """
import sys
from offsetlog import Log, verify
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


CHANGES = """
import random, sys
from offsetlog import Log, verify
draw = random.Random(5)
log = Log.open(sys.argv[1], "a", {"internal.segment.bytes": 600, "segment.index.bytes": 100, "file.delete.delay.ms": 0})
print("ready", flush=True)
while True:
    for _ in range(draw.randrange(1, 20)):
        log.append(b"." * draw.randrange(150))
    if draw.random() < 0.3:
        log.truncate_to(draw.randrange(log.log_start_offset, log.log_end_offset + 1))
    if len(log.segments) > 20:
        log.delete_records_before(log.segments[-5].base_offset)
        log.maintain()
"""


def test_what_a_writer_does_meanwhile_is_no_damage(tmp_path: Path) -> None:
    """Rolls, truncations and deletions beside a check: nothing is wrong at any moment."""
    path = tmp_path / "orders-0"
    with running(CHANGES, path):
        deadline, checks = time.monotonic() + 2, 0
        while time.monotonic() < deadline or checks < 500:
            report = verify(path)
            assert not report.damaged, [finding for finding in report.findings if finding.severity != "note"]
            checks += 1
