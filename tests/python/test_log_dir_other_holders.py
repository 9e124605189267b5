"""A log dir keeps lines of its checkpoints for a while. Another process changes a partition that it has closed meanwhile."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from writing import python, running, values

from offsetlog import Log, LogDir, LogDirError, WritableLog, WritableLogDir

START = "log-start-offset-checkpoint"
RECOVERY = "recovery-point-offset-checkpoint"


def lines(folder: Path, name: str) -> dict[str, int]:
    path = folder / name
    entries = path.read_text().splitlines()[2:] if path.exists() else []
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in map(str.split, entries)}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 2)
    return tmp_path


def closed_for_room(place: Path) -> WritableLogDir:
    """A log dir that has closed t-0, of 100 records, because t-1 needed the room."""
    log_dir = LogDir.open(place, "a", max_open_partitions=1)
    for number in range(100):
        log_dir.append("t", b"%d" % number, partition=0)
    log_dir.append("t", b"other", partition=1)
    return log_dir


def elsewhere(place: Path, text: str) -> None:
    python(f"import sys\nfrom offsetlog import Log, LogDir\nplace = sys.argv[1]\n{text}\n", place)


DELETES = 'with Log.open(place + "/t-0", "a") as log:\n    log.delete_records_before(30)'


def test_a_log_start_offset_that_another_process_moved_stays(place: Path) -> None:
    log_dir = closed_for_room(place)
    elsewhere(place, DELETES)
    log_dir.close()
    assert lines(place, START) == {"t-0": 30}
    with Log.open(place / "t-0") as log:
        assert (log.log_start_offset, len(values(log))) == (30, 70)


def test_the_next_use_of_the_partition_sees_it(place: Path) -> None:
    with closed_for_room(place) as log_dir:
        elsewhere(place, DELETES)
        assert log_dir.log("t", 0).log_start_offset == 30
        log_dir.append("t", b"more", partition=0)
    with Log.open(place / "t-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (30, 101)


def test_a_topic_made_anew_by_another_process_keeps_its_lines(place: Path) -> None:
    log_dir = closed_for_room(place)
    log_dir.log("t", 0).close()
    log_dir.log("t", 1).close()
    elsewhere(
        place,
        """
with LogDir.open(place, "a") as log_dir:
    log_dir.delete_topic("t")
    log_dir.create_topic("t", 1)
    for number in range(10):
        log_dir.append("t", b"new", partition=0)
    log_dir.log("t", 0).delete_records_before(4)
""",
    )
    log_dir.close()
    assert lines(place, START) == {"t-0": 4}
    assert lines(place, RECOVERY)["t-0"] == 10
    with Log.open(place / "t-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (4, 10)


def test_nothing_is_called_durable_that_another_process_did_not_flush(place: Path) -> None:
    log_dir = closed_for_room(place)
    elsewhere(
        place,
        """
import os, signal
log = Log.open(place + "/t-0", "a")
log.truncate_to(50)
for number in range(80):
    log.append(b"unflushed")
os._exit(0)
""",
    )
    log_dir.close()
    assert lines(place, RECOVERY)["t-0"] == 50
    with Log.open(place / "t-0", "a") as log:
        assert (log.durable_end_offset, log.log_end_offset) in {(50, 130), (130, 130)}


def test_lines_of_partitions_that_nobody_else_touched_are_written(place: Path) -> None:
    closed_for_room(place).close()
    assert lines(place, RECOVERY) == {"t-0": 100, "t-1": 1}
    with closed_for_room(place) as log_dir:
        log_dir.log("t", 0).delete_records_before(150)
        log_dir.append("t", b"other", partition=1)
        log_dir.append("t", b"again", partition=0)
    assert lines(place, RECOVERY) == {"t-0": 201, "t-1": 3}
    assert lines(place, START) == {"t-0": 150}


def test_a_partition_removed_by_another_process_loses_its_lines(place: Path) -> None:
    log_dir = closed_for_room(place)
    log_dir.log("t", 1).close()
    elsewhere(place, 'with LogDir.open(place, "a") as log_dir:\n    log_dir.delete_topic("t")')
    log_dir.close()
    assert lines(place, RECOVERY) == {}


COMPACTS: dict[str, str | float] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
CLEANED = "cleaner-offset-checkpoint"


def compacted(log: WritableLog) -> None:
    for number in range(25):
        log.append(b"v", key=b"z%d" % number)
    log.roll()
    log.compact()


def test_lines_of_a_log_that_could_not_be_closed_are_not_written(tmp_path: Path) -> None:
    """Its lock is free, while another handle of it is still there."""
    log_dir = LogDir.open(tmp_path, "a", defaults=COMPACTS)
    log_dir.create_topic("t", 1)
    log, kept = log_dir.log("t", 0), log_dir.log("t", 0)
    compacted(log)
    active = Path(log.segments[-1].path)
    active.rename(active.with_suffix(".aside"))
    with pytest.raises(LogDirError, match="is gone"):
        log.close()
    active.with_suffix(".aside").rename(active)
    elsewhere(
        tmp_path,
        """
with Log.open(place + "/t-0", "a") as log:
    log.truncate_to(5)
    for number in range(40):
        log.append(b"n", key=b"w")
""",
    )
    log_dir.close()
    assert kept.closed
    assert lines(tmp_path, CLEANED).get("t-0", 0) <= 5
    assert lines(tmp_path, RECOVERY) == {"t-0": 45}


def test_a_closed_handle_that_goes_late_takes_no_lines_along(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a", defaults=COMPACTS) as log_dir:
        log_dir.create_topic("t", 1)
        first, second = log_dir.log("t", 0), log_dir.log("t", 0)
        first.append(b"1", key=b"a")
        first.close()
        again = log_dir.log("t", 0)
        compacted(again)
        del first, second
        gc.collect()
        again.close()
    assert lines(tmp_path, CLEANED) == {"t-0": 26}


HOLDS = """
import fcntl, sys, time
file = open(sys.argv[1] + "/offsetlog-shared.lock", "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(60)
"""


def test_a_forked_child_drops_what_a_thread_of_its_parent_is_writing(place: Path) -> None:
    log_dir: WritableLogDir | None = LogDir.open(place, "a")
    assert log_dir is not None
    log = log_dir.log("t", 0)
    for _ in range(10):
        log.append(b"v")
    with running(HOLDS, place):
        # It waits for the lock, and holds what all partitions of the log dir share meanwhile.
        waiting = threading.Thread(target=log.delete_records_before, args=(5,))
        waiting.start()
        time.sleep(0.5)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            log_dir = log = None  # type: ignore[assignment]
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    waiting.join()
    log_dir.close()
    assert lines(place, START) == {"t-0": 5}


def test_lines_of_a_log_that_could_not_be_marked_are_not_written(tmp_path: Path) -> None:
    """They wait since an earlier close; the next opening fails after it has written the partition's state file."""
    log_dir = LogDir.open(tmp_path, "a", defaults=COMPACTS)
    log_dir.create_topic("t", 1)
    log = log_dir.log("t", 0)
    compacted(log)
    log.close()
    del log
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    (tmp_path / "offsetlog-unclean.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        log_dir.append("t", b"v", key=b"k")
    (tmp_path / "offsetlog-unclean.tmp").rmdir()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    elsewhere(
        tmp_path,
        """
with Log.open(place + "/t-0", "a") as log:
    log.truncate_to(5)
    for number in range(40):
        log.append(b"n", key=b"w")
""",
    )
    log_dir.close()
    assert lines(tmp_path, CLEANED).get("t-0", 0) <= 5
    assert lines(tmp_path, RECOVERY) == {"t-0": 45}
