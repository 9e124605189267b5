"""Readers in another process while a log is truncated below its start: they see it before or after, and never as empty at its old start.

Between the cut and the lower log start offset that is stored behind it, the files look as after a truncation inside a batch, where the log is
empty at its start.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from writing import environment

from offsetlog import Log, LogDir, OffsetOutOfRangeError

ROUNDS = 15
# From 5 to 45, all readable from 25 on, and back.
CUT, START, END = 5, 25, 45
# In the batch that begins at 5: the records end there, and the log here.
INSIDE = 7
WRITER = """
import sys
from offsetlog import Log, LogConfig, LogDir
place, verb, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = LogConfig.from_dict({"internal.segment.bytes": 2000})
if place.endswith("-0"):
    log = Log.open(place, "a", config=config)
else:
    log_dir = LogDir.open(place, "a")
    log_dir.create_topic("t", 1, config=config)
    log = log_dir.log("t", 0)
log.append_records([b"old"] * 5)
print("begun", flush=True)
for _ in range(rounds):
    log.append_records([b"x"] * 40)
    if verb == "over segments":
        log.roll()
        log.append_records([b"y"] * 2)
        log.truncate_to(45)
    log.delete_records_before(25)
    if verb == "starts again":
        log.truncate_fully_and_start_at(5)
    elif verb == "inside a batch":
        log.truncate_to(7)
        log.truncate_to(5)
    else:
        log.truncate_to(5)
"""


@pytest.mark.parametrize("verb", ["in one segment", "over segments", "starts again", "inside a batch"])
@pytest.mark.parametrize("where", ["t-0", "logs"])
def test_nobody_sees_it_empty_at_its_old_start(tmp_path: Path, where: str, verb: str) -> None:
    place = tmp_path / where
    command = [sys.executable, "-c", WRITER, str(place), verb, str(ROUNDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        ends = {CUT, END} | {"over segments": {END + 2}, "inside a batch": {INSIDE}}.get(verb, set())
        with Log.open(place if where == "t-0" else place / "t-0") as log:
            while writer.poll() is None:
                assert log.log_end_offset in ends
                assert log.last_stable_offset in ends
                ask(log, ends)
        assert writer.returncode == 0


def ask(log: Log, ends: set[int]) -> None:
    """Each question may also come when its offsets are not there."""
    for offset in (CUT, START):
        try:
            assert log.fetch(offset).last_stable_offset in ends
        except OffsetOutOfRangeError as error:
            assert error.log_end_offset in ends  # noqa: PT017  # there may be none
    try:
        for record in log.scan().follow(timeout_ms=0):
            assert record.offset < max(ends)
    except OffsetOutOfRangeError as error:
        assert error.log_end_offset in ends  # noqa: PT017


def test_a_writer_that_was_killed_in_between(tmp_path: Path) -> None:
    """The next one begins where the files end, and the note of the cut goes."""
    path = tmp_path / "logs" / "t-0"
    with LogDir.open(tmp_path / "logs", "a") as log_dir:
        log_dir.create_topic("t", 1)
        log_dir.log("t", 0).append_records([b"x"] * 40)
    state = path / ".offsetlog.state"
    state.write_text(state.read_text().replace("clean: ", "cutting: 5\nclean: "))
    with Log.open(path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 40)
    with LogDir.open(tmp_path / "logs", "a") as log_dir:
        log = log_dir.log("t", 0)
        assert log.append(b"y") == 40
        assert "cutting" not in state.read_text()


HALF_WAY = """
import resource, signal, sys
from offsetlog import Log
log = Log.open(sys.argv[1], "a")
log.append_records([b"old"] * 5)
log.append_records([b"x"] * 40)
log.delete_records_before(25)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    log.truncate_to(5)
except OSError:
    print("failed", flush=True)
sys.stdin.read()
"""


def test_a_truncation_that_stands_still_half_way(tmp_path: Path) -> None:
    """The records are cut, the index could not be made anew, and the writer still has the log."""
    command = [sys.executable, "-c", HALF_WAY, str(tmp_path / "t-0")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "failed\n"
        with Log.open(tmp_path / "t-0") as log:
            for _ in range(3):
                assert log.log_end_offset == CUT
                log.refresh()
        writer.stdin.close()
    # The next one finds records that end below the start, and is empty there, as on a broker; the same call finishes it.
    with Log.open(tmp_path / "t-0", "a") as log:
        assert (log.log_start_offset, log.log_end_offset) == (START, START)
        assert log.truncate_to(CUT)
        assert (log.log_start_offset, log.log_end_offset) == (CUT, CUT)
