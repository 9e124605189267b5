"""A system that does not tell who holds the lock of a log dir: a broker may be there, unless the file system has no locks at all."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from failing import Point, can_filter, in_child, refuse_to_tell_locks
from golden import CLEAN_LOG_DIRS, named

from offsetlog import Log, LogDir, recover

NAME = "g-plain-0"
END = named(NAME)[0].end
# The files of the tests are smaller.
NO_LIMIT = Point(1 << 40, kills=False)

pytestmark = pytest.mark.skipif(not can_filter(), reason="needs a filter of system calls, for Linux on x86_64")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    copied = Path(shutil.copytree(CLEAN_LOG_DIRS[0], tmp_path / "logs"))
    (copied / ".lock").touch()
    return copied


def end(partition: Path) -> str:
    """What ``read_committed`` reads: beside a broker not beyond the high watermark."""
    with Log.open(partition) as log:
        return str(log.last_stable_offset)


def end_in_log_dir(partition: Path) -> str:
    with LogDir.open(partition.parent) as log_dir:
        return str(log_dir.log("g-plain", 0).last_stable_offset)


def planned(partition: Path) -> str:
    return str(recover(partition, dry_run=True).log_end_offset)


def asked(error: int, what: Callable[[Path], str], partition: Path) -> str:
    def call() -> str:
        refuse_to_tell_locks(error)
        return what(partition)

    return in_child(lambda: call, NO_LIMIT).failure


@pytest.mark.parametrize("what", [end, end_in_log_dir])
@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EIO])
def test_who_cannot_ask_takes_it_for_no_free_lock(error: int, what: Callable[[Path], str], log_dir: Path) -> None:
    """``ENOLCK`` is no want of locks: by fcntl(2) a table is full, or the lock server of a network file system cannot be asked."""
    assert asked(error, what, log_dir / NAME) == f"OSError: [Errno {error}] {os.strerror(error)}: '{log_dir / '.lock'}'"


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_can_be_read(error: int, log_dir: Path) -> None:
    assert asked(error, end, log_dir / NAME) == str(END)


def test_a_broker_that_got_its_lock_before_stays_one(log_dir: Path) -> None:
    """Its high watermark is below the end: behind it nothing is committed."""
    checkpoint = log_dir / "replication-offset-checkpoint"
    lines = checkpoint.read_text(encoding="utf-8").splitlines()
    text = "\n".join("g-plain 0 3" if line.startswith("g-plain 0 ") else line for line in lines)
    checkpoint.write_text(f"{text}\n", encoding="utf-8")
    with (log_dir / ".lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert in_child(lambda: lambda: end(log_dir / NAME), NO_LIMIT).failure == "3"
        assert "No locks available" in asked(errno.ENOLCK, end, log_dir / NAME)
    assert end(log_dir / NAME) == str(END)


def test_a_dry_run_takes_no_lock_and_asks_for_none(log_dir: Path) -> None:
    assert asked(errno.ENOLCK, planned, log_dir / NAME) == str(END)
