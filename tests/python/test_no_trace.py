"""Reading changes nothing: not a name, a size, a time or a byte, and it works where nothing can be changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from golden import CLEAN, DATA, OLD

import offsetlog
from offsetlog import ConfigError, Log, LogDir, OffsetLogError, Scan, TopicPartition


class Entry(NamedTuple):
    """All that a reader could leave on a file or a folder, but for the time of reading."""

    mode: int
    inode: int
    links: int
    size: int
    blocks: int
    modified_ns: int
    changed_ns: int
    sha256: str


def traces(folder: Path) -> dict[str, Entry]:
    """Everything below a folder, and the folder itself."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
        found[str(path.relative_to(folder))] = Entry(
            status.st_mode,
            status.st_ino,
            status.st_nlink,
            status.st_size,
            status.st_blocks,
            status.st_mtime_ns,
            status.st_ctime_ns,
            digest,
        )
    return found


def read_a_log(path: Path, *, mapped: bool = False) -> int:
    """Every way to read one partition; gives how many records there were."""
    with Log.open(path, mapped=mapped) as log:
        offsets = [record.offset for record in log.scan()]
        list(log.scan(isolation_level="read_committed", threads=2))
        log.scan().to_arrow()
        log.scan().count()
        log.scan().explain()
        list(log.batches())
        splits = log.splits(max_bytes=1000)
        Scan.over(splits).count()
        log.take(offsets[::5]).to_arrow()
        for offset in {*offsets[:3], *offsets[-3:]}:
            log.get(offset)
            str(log.locate(offset))
            log.fetch(offset)
        for when in (0, 1_700_000_000_000, 2**50):
            log.offset_for_timestamp(when)
            log.offset_for_timestamp(when, isolation_level="read_committed")
            log.scan(start_timestamp=when).count()
        repr((log, log.segments, log.topic_id, log.high_watermark, log.leader_epoch, log.size_bytes))
    with offsetlog.open_cached(path) as cached:
        cached.scan(limit=1).count()
    return len(offsets)


def read_log_dirs(folders: list[Path]) -> int:
    """Every way to read several log dirs."""
    with LogDir.open(folders) as log_dir:
        log_dir.beginning_offsets()
        log_dir.end_offsets(isolation_level="read_committed")
        log_dir.offsets_for_times(dict.fromkeys(log_dir.partitions(), 1_700_000_000_000))
        for key in log_dir.partitions():
            assert isinstance(key, TopicPartition)
            log_dir.log(*key).close()
        return log_dir.scan().count()


def log_dirs_of(root: Path) -> list[Path]:
    """The log dirs of a broker's folder."""
    return sorted(folder for folder in root.iterdir() if folder.is_dir() and folder.name != "metadata-dir")


def read_everything(root: Path) -> int:
    """All partitions below a broker's folder in every way; gives how many records there were."""
    total = 0
    for path in sorted(path for path in root.glob("*/*") if path.is_dir()):
        total += read_a_log(path)
        read_a_log(path, mapped=True)
    assert read_log_dirs(log_dirs_of(root))
    return total


@pytest.fixture(params=[CLEAN, OLD], ids=["kafka-4.3.0-clean", "kafka-2.8.2"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A writable copy of a broker's folder."""
    to = tmp_path / "copy"
    shutil.copytree(request.param, to)
    for path in to.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return to


def check_no_trace(folder: Path, read: Callable[[], object]) -> None:
    """The folder is the same before and after."""
    before = traces(folder)
    read()
    assert traces(folder) == before


@pytest.mark.slow
def test_every_kind_of_read_leaves_no_trace(copied: Path) -> None:
    """On a copy where everything could be written."""
    check_no_trace(copied, lambda: read_everything(copied))


@pytest.mark.slow
def test_the_brokers_own_files_are_as_they_were(copied: Path) -> None:
    """The copy is still what the broker wrote; the repository's data too."""
    original = CLEAN if (copied / "log-dir-1").exists() else OLD
    check_no_trace(original, lambda: read_everything(original))
    read_everything(copied)
    before = {name: entry.sha256 for name, entry in traces(original).items()}
    assert {name: entry.sha256 for name, entry in traces(copied).items()} == before


def test_damaged_and_live_folders_are_read_without_repairing_them(tmp_path: Path) -> None:
    """Where a broker would cut, rebuild and delete, a reader does nothing, also when it fails."""
    for name in ("live", "unclean", "torn"):
        root = tmp_path / name
        shutil.copytree(DATA / "kafka-4.3.0" / name, root)
        before = traces(root)
        opened = failed = 0
        for path in sorted(path for path in root.glob("*/*") if path.is_dir()):
            try:
                read_a_log(path)
                opened += 1
            except OffsetLogError:
                failed += 1
        with suppress(OffsetLogError):
            read_log_dirs(log_dirs_of(root))
        assert opened >= 10, name
        assert failed or name != "torn"
        assert traces(root) == before, name


def test_failed_opens_leave_no_trace(copied: Path) -> None:
    """Names that are no partition, folders that are not there, offsets that are out of range."""

    def fail() -> None:
        some = next(path for path in copied.glob("*/*") if path.is_dir())
        for wrong in (copied, some / "nothing-0", some.parent / "absent-0", next(iter(some.glob("*.log")))):
            with pytest.raises((OffsetLogError, OSError)):
                Log.open(wrong)
        with pytest.raises(ConfigError, match="mode"):
            Log.open(some, mode="w")  # type: ignore[call-overload]  # what it must refuse
        with pytest.raises(LookupError), Log.open(some) as log:
            log.get(10**12)

    check_no_trace(copied, fail)


LOCK_EVERYTHING = """
import fcntl, os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        with open(os.path.join(folder, name), "rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def test_reading_takes_no_lock(copied: Path) -> None:
    """A broker can start beside an open log: every file can be locked by another process."""
    paths = sorted(path for path in copied.glob("*/*") if path.is_dir())
    logs = [Log.open(path) for path in paths]
    scans = [iter(log.scan()) for log in logs]
    for scan in scans:
        next(scan, None)
    subprocess.run([sys.executable, "-c", LOCK_EVERYTHING, str(copied)], check=True)
    with LogDir.open(log_dirs_of(copied)) as log_dir:
        log_dir.beginning_offsets()
        subprocess.run([sys.executable, "-c", LOCK_EVERYTHING, str(copied)], check=True)


READ_ON_READ_ONLY = """
import errno, sys
from pathlib import Path
import test_no_trace
root = Path(sys.argv[1])
try:
    (root / "probe").touch()
except OSError as error:
    assert error.errno in (errno.EROFS, errno.EACCES), error
else:
    sys.exit("the folder is writable: this would prove nothing")
before = test_no_trace.traces(root)
count = test_no_trace.read_everything(root)
assert test_no_trace.traces(root) == before
print(count)
"""

# A mount namespace of its own: whatever happens, the mount ends with the process.
MOUNTED = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'
UNSHARE = {"mount as root": ["unshare", "--mount"], "mount in a user namespace": ["unshare", "--user", "--map-root-user", "--mount"]}


def ways_to_make_read_only() -> str:
    """The best way that works here: a mount, else permissions."""
    for way, unshare in UNSHARE.items():
        with suppress(OSError):
            probe = 'd=$(mktemp -d) && mount --bind "$d" "$d" && mount -o remount,bind,ro "$d"; s=$?; umount "$d"; rmdir "$d"; exit $s'
            if subprocess.run([*unshare, "sh", "-c", probe], capture_output=True, check=False).returncode == 0:
                return way
    return "permissions"


WAY = ways_to_make_read_only()


@pytest.mark.slow
@pytest.mark.parametrize("way", [WAY])
def test_read_only_mount_is_read_like_any_other_and_shows_no_trace(copied: Path, way: str) -> None:
    """The test's name says how the folder was made read-only on this machine."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    before = traces(copied)
    if way == "permissions":
        folders = [path for path in [copied, *copied.rglob("*")] if path.is_dir()]
        assert os.geteuid() != 0, "root writes whatever the permissions say, and no mount works here: nothing can be proven"
        for folder in folders:
            folder.chmod(0o555)
        before = traces(copied)
        command = [sys.executable, "-c", READ_ON_READ_ONLY, str(copied)]
    else:
        command = [*UNSHARE[way], "sh", "-c", MOUNTED, "sh", str(copied), sys.executable, READ_ON_READ_ONLY]
    try:
        output = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert output.returncode == 0, output.stderr
        assert traces(copied) == before
    finally:
        if way == "permissions":
            for folder in folders:
                folder.chmod(0o755)
    assert int(output.stdout) == read_everything(copied)
