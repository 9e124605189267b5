"""A log that was opened for appending, in a forked child: it refuses everything and can hurt nothing."""

from __future__ import annotations

from pathlib import Path

from writing import filled, python, values

from offsetlog import Log

# Each program gets a path; what the child prints is what the test looks at.
HEAD = """
import gc, multiprocessing, os, pickle, sys, time
from offsetlog import ForkedLogError, Log, LogClosedError
def contents(folder):
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            found[path] = (open(path, "rb").read(), os.stat(path).st_mtime_ns)
    return found
path = sys.argv[1]
log = Log.open(path, "a")
log.append(b"before the fork")
"""

USES = (
    HEAD
    + """
writer = log.writer(linger_ms=0)
writer.append(b"waits")
before = contents(path)
if os.fork() == 0:
    uses = [
        lambda: log.append(b""), lambda: log.append_records([b""]), lambda: log.append_batches(b""), lambda: log.append_as_follower(b""),
        lambda: log.append_marker(1, 0, commit=True), log.writer, log.flush, log.roll, lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(0), lambda: log.delete_records_before(1), lambda: log.end_offset_for_epoch(0),
        lambda: log.config, lambda: setattr(log, "config", {}), lambda: log.recovery_point, lambda: log.recovery_report,
        lambda: log.log_end_offset, lambda: log.get(0), lambda: log.scan().count(), log.__enter__,
        lambda: writer.append(b"child"), writer.flush,
    ]
    for number, use in enumerate(uses):
        try: use()
        except ForkedLogError as error:
            assert "a child process cannot write through its parent's log" in str(error)
            assert error.path == path or number >= len(uses) - 2
        else: print("use", number, "was let through")
    assert contents(path) == before
    try: writer.close()
    except ForkedLogError: pass
    log.close()
    log.close()
    del log, writer, uses, use
    gc.collect()
    assert contents(path) == before
    print("refused", flush=True)
    sys.exit(0)
_, status = os.wait()
assert status == 0, status
assert contents(path) == before
log.append(b"after the fork")
writer.close()
log.close()
print("parent done")
"""
)


def test_a_child_can_use_nothing_and_hurts_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    assert python(USES, path) == "refused\nparent done\n"
    with Log.open(path, "a") as log:
        assert log.recovery_report.clean
        assert values(log)[6:] == [b"before the fork", b"after the fork", b"waits"]


CLOSES_FIRST = (
    HEAD
    + """
if os.fork() == 0:
    log.close()
    sys.exit(0)
os.wait()
try: Log.open(path, "a")
except Exception as error: print(type(error).__name__, error.pid == os.getpid())
child = os.fork()
if child == 0:
    try: Log.open(path, "a")
    except Exception as error: print(type(error).__name__, error.pid == os.getppid(), flush=True)
    os._exit(0)
os.wait()
log.append(b"more")
log.close()
print("closed")
"""
)


def test_the_parents_lock_outlives_the_childs_end(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    assert python(CLOSES_FIRST, path) == "LogLockedError True\nLogLockedError True\nclosed\n"
    with Log.open(path) as log:
        assert values(log)[-1] == b"more"


OUTLIVED = (
    HEAD
    + """
reader, writer = os.pipe()
if os.fork() == 0:
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
os.close(reader)
log.close()
with Log.open(path, "a") as again:
    print("opened again", again.recovery_report.clean)
os.close(writer)
os.wait()
"""
)


def test_a_child_that_lives_on_does_not_keep_the_parents_lock(tmp_path: Path) -> None:
    """Locks of open files are shared with children: closing must give the lock back, not only the descriptor."""
    path = filled(tmp_path / "orders-0")
    assert python(OUTLIVED, path) == "opened again True\n"


READS = (
    HEAD
    + """
def child(queue):
    with Log.open(path) as reader:
        queue.put([record.value for record in reader.scan()][-1])
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
print(queue.get())
process.join()
log.close()
"""
)


def test_a_child_may_open_the_log_for_reading(tmp_path: Path) -> None:
    assert python(READS, filled(tmp_path / "orders-0")) == "b'before the fork'\n"


WHILE_THREADS_APPEND = (
    HEAD
    + """
import threading
stop = threading.Event()
def work():
    while not stop.is_set():
        log.append(b"x")
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        try: log.append(b"child")
        except ForkedLogError: log.close(); os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set()
for thread in threads: thread.join()
end = log.log_end_offset
log.close()
with Log.open(path) as reader:
    assert reader.log_end_offset == end
    assert reader.scan().count() == end
    assert not any(record.value == b"child" for record in reader.scan())
print("no child hung")
"""
)


def test_forks_while_threads_append_do_not_hang(tmp_path: Path) -> None:
    """The child must not touch a lock that a thread of the parent held."""
    assert python(WHILE_THREADS_APPEND, filled(tmp_path / "orders-0")) == "no child hung\n"


EXIT = HEAD + "\nprint('leaving')\n"


def test_an_interpreter_that_ends_without_closing(tmp_path: Path) -> None:
    """What was appended is there; the next opening recovers, as after a kill."""
    path = filled(tmp_path / "orders-0")
    assert python(EXIT, path) == "leaving\n"
    with Log.open(path, "a") as log:
        assert values(log)[-1] == b"before the fork"
        assert not log.recovery_report.cut
