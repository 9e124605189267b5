"""Row 16. One writer at a time: in this process, in others, beside a broker; and what the locks do to nobody else."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rows import ROOT, counted, row
from writing import LOCK, SMALL, abandon, filled, offsets, python, running, times, tree, values

from offsetlog import Log, LogDir, LogLockedError, WritableLog, recover

HOLD = """
import sys
from offsetlog import Log
log = Log.open(sys.argv[1], "a")
log.append(b"from the other process")
print("ready", flush=True)
sys.stdin.readline()
log.close()
print("closed", flush=True)
sys.stdin.readline()
"""

TRY = """
import sys
from offsetlog import Log, LogLockedError
try:
    with Log.open(sys.argv[1], "a") as log:
        print("opened", log.log_end_offset)
except LogLockedError as error:
    print("locked", error.pid)
"""

# What a broker does: a POSIX lock for the whole file, by fcntl.
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("refused", flush=True)
else:
    print("ready", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def broker(log_dir: Path) -> Iterator[int]:
    """A broker that runs on a log dir; gives its process id."""
    with running(BROKER, log_dir / ".lock") as process:
        yield process.pid


class Java:
    """A Java program that locks files as a broker does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, line: str) -> str:
        """Its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    """The program; it takes about a second to start."""
    if shutil.which("javac") is None:
        with row(16, "Java", "cases", 0) as part:
            part.skip("no Java compiler")
    source = ROOT / "tests/reliability/java/Locks.java"
    with subprocess.Popen(["java", str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Java(process)
        process.kill()


@counted(16, "cases")
def test_a_second_opening_in_the_same_process(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    with Log.open(path, "a") as log:
        before = tree(tmp_path), times(tmp_path)
        for spelling in (path, str(path) + "/", path.parent / "." / path.name, os.path.relpath(path)):
            with pytest.raises(LogLockedError, match=f"process {os.getpid()} writes this log") as caught:
                Log.open(spelling, "a", {"segment.ms": 7})
            assert caught.value.pid == os.getpid()
            assert caught.value.path is not None
            assert caught.value.path.endswith(LOCK)
        assert (tree(tmp_path), times(tmp_path)) == before
        log.append(b"still ours")
    Log.open(path, "a").close()


@counted(16, "cases")
def test_a_link_to_the_directory_is_the_same_log(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    (tmp_path / "linked-5").symlink_to(path)
    with Log.open(path, "a"), pytest.raises(LogLockedError):
        Log.open(tmp_path / "linked-5", "a")


@counted(16, "cases")
def test_another_process(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    with running(HOLD, path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = tree(tmp_path)
        for _ in range(2):
            with pytest.raises(LogLockedError, match=f"process {process.pid} writes this log") as caught:
                Log.open(path, "a", SMALL)
            assert caught.value.pid == process.pid
        with pytest.raises(LogLockedError):
            recover(path)
        assert tree(tmp_path) == before
        with Log.open(path) as reader:
            assert values(reader)[-1] == b"from the other process"
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "closed\n"
        # The process lives; its lock does not.
        with Log.open(path, "a") as log:
            assert log.recovery_report.clean
            assert log.append(b"ours") == 7


@counted(16, "cases")
def test_other_partitions_are_free(tmp_path: Path) -> None:
    with Log.open(tmp_path / "orders-0", "a", SMALL), Log.open(tmp_path / "orders-1", "a", SMALL) as other:
        assert other.append(b"a") == 0
        assert python(TRY, tmp_path / "orders-2") == "opened 0\n"


@counted(16, "cases")
def test_a_killed_process_frees_the_log(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    with running(HOLD, path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Log.open(path, "a") as log:
            assert not log.recovery_report.clean
            assert values(log)[-1] == b"from the other process"


@counted(16, "cases")
def test_the_lock_survives_reading_in_the_same_process(tmp_path: Path) -> None:
    """A POSIX lock would end with the first reader that closes its files; ours stays."""
    path = filled(tmp_path / "orders-0")
    (tmp_path / "meta.properties").touch()
    with Log.open(path, "a") as log:
        for _ in range(3):
            with Log.open(path) as reader:
                assert reader.scan().count() == 6
            with LogDir.open(tmp_path) as log_dir:
                assert log_dir.scan().count() == 6
        for name in (path / LOCK, tmp_path / ".lock"):
            with name.open("rb"):
                pass
        with pytest.raises(LogLockedError):
            Log.open(path, "a")
        assert python(TRY, path) == f"locked {os.getpid()}\n"
        assert python(BROKER, tmp_path / ".lock") == "refused\n"
        log.append(b"still ours")


@pytest.mark.parametrize("way", ["close", "with", "abandon", "forgotten", "refused"])
@counted(16, "cases")
def test_the_lock_ends_with_the_log(tmp_path: Path, way: str) -> None:
    path = filled(tmp_path / "orders-0")
    if way == "refused":
        (path / "foo.log").touch()
        with pytest.raises(Exception, match="foo"):
            Log.open(path, "a")
        (path / "foo.log").unlink()
    else:
        log = Log.open(path, "a")
        if way == "close":
            log.close()
        elif way == "with":
            with log:
                pass
        elif way == "abandon":
            abandon(log)
        else:
            del log
            gc.collect()
    assert python(TRY, path) == "opened 6\n"
    Log.open(path, "a").close()


@counted(16, "cases")
def test_iterators_that_go_on_hold_no_lock(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    log = Log.open(path, "a")
    iterator = iter(log.scan())
    next(iterator)
    log.close()
    assert python(TRY, path) == "opened 6\n"
    assert len(list(iterator)) == 5


@counted(16, "cases")
def test_a_foreign_lock_without_a_name(tmp_path: Path) -> None:
    """Somebody else's lock on our file: who it is stands in the file, or is not known."""
    path = filled(tmp_path / "orders-0")
    (path / LOCK).write_bytes(b"not a number")
    with running(BROKER, path / LOCK), pytest.raises(LogLockedError) as caught:
        Log.open(path, "a")
    assert caught.value.pid is None
    assert "another process, or another opening in this one, writes this log" in str(caught.value)


@pytest.mark.parametrize("mark", ["meta.properties", ".lock", "recovery-point-offset-checkpoint"])
@counted(16, "cases")
def test_a_broker_keeps_us_out(tmp_path: Path, mark: str) -> None:
    path = filled(tmp_path / "orders-0")
    (tmp_path / mark).touch()
    if not mark.startswith((".lock", "meta")):
        (tmp_path / mark).write_text("0\n0\n")
    (tmp_path / ".lock").touch()
    before = tree(tmp_path)
    with broker(tmp_path) as pid:
        for action in (lambda: Log.open(path, "a"), lambda: Log.open(tmp_path / "new-0", "a"), lambda: recover(path)):
            with pytest.raises(LogLockedError) as caught:
                action()
            assert caught.value.pid == pid
            assert caught.value.path == str(tmp_path / ".lock")
        with Log.open(path) as reader:
            assert reader.scan().count() == 6
        assert not list((tmp_path / "new-0").glob("*"))
    assert {name: data for name, data in tree(tmp_path).items() if name != "new-0"} == before
    with Log.open(path, "a") as log:
        log.append(b"now")


@counted(16, "cases")
def test_we_keep_a_broker_out(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    (tmp_path / "meta.properties").touch()
    with Log.open(path, "a") as one:
        assert python(BROKER, tmp_path / ".lock") == "refused\n"
        with Log.open(tmp_path / "orders-1", "a", SMALL) as two:
            two.append(b"beside it")
        # The first one's share of the lock is still there.
        assert python(BROKER, tmp_path / ".lock") == "refused\n"
        one.append(b"on")
    with broker(tmp_path), pytest.raises(LogLockedError):
        Log.open(path, "a")


@counted(16, "cases")
def test_a_folder_that_is_no_log_dir_gets_no_lock_of_a_broker(tmp_path: Path) -> None:
    with Log.open(tmp_path / "orders-0", "a", SMALL) as log:
        log.append(b"a")
    assert [entry.name for entry in tmp_path.iterdir()] == ["orders-0"]


TURNS = """
import sys, time
from offsetlog import Log, LogLockedError
print("ready", flush=True)
done = 0
while done < 15:
    try:
        with Log.open(sys.argv[1], "a") as log:
            log.append_records([sys.argv[2].encode()] * 2)
        done += 1
    except LogLockedError:
        time.sleep(0.001)
print("done", flush=True)
"""


@counted(16, "cases")
def test_processes_take_turns(tmp_path: Path) -> None:
    """Several processes want the same log at once: every append is whole, nothing is lost, offsets are given once."""
    path = filled(tmp_path / "orders-0")
    with running(TURNS, path, "a") as one, running(TURNS, path, "b") as two, running(TURNS, path, "c") as three:
        for process in (one, two, three):
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
    with Log.open(path, "a") as log:
        assert log.recovery_report.clean
        assert offsets(log) == list(range(6 + 3 * 15 * 2))
        assert sorted(values(log)[6:], key=bytes) == [b"a"] * 30 + [b"b"] * 30 + [b"c"] * 30  # type: ignore[arg-type]  # none is None


@counted(16, "cases")
def test_the_lock_files_are_never_removed(tmp_path: Path) -> None:
    """Removing one would let two processes lock two files of the same name."""
    path = filled(tmp_path / "orders-0")
    inode = (path / LOCK).stat().st_ino
    for _ in range(3):
        Log.open(path, "a").close()
    assert (path / LOCK).stat().st_ino == inode
    with (path / LOCK).open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@counted(16, "cases")
def test_another_thread(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    found: list[BaseException] = []

    def second() -> None:
        try:
            Log.open(path, "a")
        except LogLockedError as error:
            found.append(error)

    with Log.open(path, "a") as log:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(300)
        assert not thread.is_alive()
        assert [getattr(error, "pid", None) for error in found] == [os.getpid()]
        log.append(b"still ours")


@counted(16, "cases")
def test_threads_that_open_at_once(tmp_path: Path) -> None:
    """Of eight that try at the same moment one gets the log."""
    path = filled(tmp_path / "orders-0")
    start = threading.Barrier(8)
    opened: list[WritableLog] = []
    refused: list[int | None] = []

    def attempt() -> None:
        start.wait()
        try:
            opened.append(Log.open(path, "a"))
        except LogLockedError as error:
            refused.append(error.pid)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(opened) == 1
    # Between the winner's lock and its name in the file, who it is cannot be known.
    assert len(refused) == 7
    assert set(refused) <= {os.getpid(), None}
    opened[0].append(b"a")
    opened[0].close()


CHILDREN = """
import multiprocessing, os, sys
from offsetlog import Log, LogLockedError
def attempt(path):
    try: Log.open(path, "a")
    except LogLockedError as error: print("locked", error.pid == os.getppid(), flush=True)
    else: print("opened", flush=True)
if __name__ == "__main__":
    log = Log.open(sys.argv[1], "a")
    for _ in range(3):
        log.append(b"a")
        process = multiprocessing.get_context("fork").Process(target=attempt, args=(sys.argv[1],))
        process.start()
        process.join()
    if os.fork() == 0:
        attempt(sys.argv[1])
        os._exit(0)
    os.wait()
    log.close()
"""


@counted(16, "cases")
def test_children_that_open_it_again(tmp_path: Path) -> None:
    assert python(CHILDREN, filled(tmp_path / "orders-0")) == "locked True\n" * 4


@counted(16, "cases")
def test_java_keeps_us_out(tmp_path: Path, java: Java) -> None:
    """The lock that a broker takes, by the same call: its process is named."""
    path = filled(tmp_path / "orders-0")
    (tmp_path / "meta.properties").touch()
    assert java.ask(f"lock {tmp_path / '.lock'}") == "held"
    before = tree(tmp_path)
    for partition in (path, tmp_path / "orders-1"):
        with pytest.raises(LogLockedError) as caught:
            Log.open(partition, "a", SMALL)
        assert caught.value.pid == java.process.pid
    with Log.open(path) as reader:
        assert reader.scan().count() == 6
    assert {name: data for name, data in tree(tmp_path).items() if name != "orders-1"} == before
    assert java.ask(f"unlock {tmp_path / '.lock'}") == "free"
    with Log.open(path, "a") as log:
        assert log.recovery_report.clean


@counted(16, "cases")
def test_we_keep_java_out(tmp_path: Path, java: Java) -> None:
    """As long as any of our partitions is open, in whichever process, and also behind readers that come and go."""
    path = filled(tmp_path / "orders-0")
    other = filled(tmp_path / "orders-1")
    third = filled(tmp_path / "orders-2")
    (tmp_path / "meta.properties").touch()
    lock = f"lock {tmp_path / '.lock'}"
    with Log.open(path, "a") as log:
        with running(HOLD, other) as process, running(HOLD, third) as last:
            assert java.ask(lock) == "refused"
            for holder in (process, last):
                assert holder.stdin is not None
                assert holder.stdout is not None
                holder.stdin.write("\n")
                holder.stdin.flush()
                assert holder.stdout.readline() == "closed\n"
                assert java.ask(lock) == "refused"
            with Log.open(other) as reader:
                assert reader.scan().count() == 7
            assert java.ask(lock) == "refused"
        assert java.ask(f"lock {path / LOCK}") == "refused"
        log.append(b"still ours")
    assert java.ask(lock) == "held"
    with pytest.raises(LogLockedError):
        Log.open(path, "a")
    assert java.ask(f"unlock {tmp_path / '.lock'}") == "free"


@counted(16, "cases")
def test_a_process_that_is_killed_frees_the_log_dir(tmp_path: Path, java: Java) -> None:
    path = filled(tmp_path / "orders-0")
    (tmp_path / "meta.properties").touch()
    with running(HOLD, path) as process:
        assert java.ask(f"lock {tmp_path / '.lock'}") == "refused"
        process.kill()
        process.wait()
        assert java.ask(f"lock {tmp_path / '.lock'}") == "held"
        assert java.ask(f"unlock {tmp_path / '.lock'}") == "free"


SIDE_BY_SIDE = """
import sys
from offsetlog import Log
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    with Log.open(sys.argv[1], "a") as log:
        log.append(b"%d" % number)
print("done", flush=True)
"""


@counted(16, "cases")
def test_processes_on_partitions_of_one_log_dir(tmp_path: Path) -> None:
    """They share the log dir's lock and write its checkpoints: none loses another's lines, none waits."""
    (tmp_path / "meta.properties").touch()
    paths = [tmp_path / f"orders-{number}" for number in range(4)]
    for path in paths:
        filled(path)
    with running(SIDE_BY_SIDE, paths[0], 20) as a, running(SIDE_BY_SIDE, paths[1], 20) as b, running(SIDE_BY_SIDE, paths[2], 20) as c:
        with Log.open(paths[3], "a") as log:
            for number in range(20):
                log.append(b"%d" % number)
                log.flush()
        for process in (a, b, c):
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
    points = (tmp_path / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert points[:2] == ["0", "4"]
    assert sorted(points[2:]) == [f"orders {number} 26" for number in range(4)]
    for path in paths:
        with Log.open(path, "a") as log:
            assert log.recovery_report.clean
            assert values(log)[6:] == [b"%d" % number for number in range(20)]
