"""Row 17. A log that was opened for appending, in a forked child: it refuses everything and can hurt nothing."""

from __future__ import annotations

from pathlib import Path

from rows import counted, row
from writing import filled, python, running, values

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


@counted(17, "forks")
def test_a_child_can_use_nothing_and_hurts_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    assert python(USES, path) == "refused\nparent done\n"
    with Log.open(path, "a") as log:
        assert log.recovery_report.clean
        assert values(log)[6:] == [b"before the fork", b"after the fork", b"waits"]


FORKED_BY_C = (
    HEAD
    + """
import ctypes, threading
writer = log.writer(linger_ms=0)
writer.append(b"waits")
reader = Log.open(path)
before = contents(path)
def refused(use):
    try: use()
    except ForkedLogError: return True
    return False
# As uWSGI or R fork: no hook of Python runs. Neither on the main thread nor on another one.
def fork():
    child = ctypes.CDLL(None).fork()
    if child == 0:
        uses = [lambda: log.append(b""), lambda: log.append_records([b""]), log.flush, lambda: writer.append(b"child"), writer.flush]
        # The child may fork too.
        grandchild = ctypes.CDLL(None).fork()
        uses = uses[:3] if grandchild else [lambda: log.append(b"")]
        right = all([refused(use) for use in uses]) and len([record.value for record in reader.scan()]) == 7
        writer.close()
        right = right and contents(path) == before
        if grandchild:
            right = right and os.waitpid(grandchild, 0)[1] == 0
        os._exit(0 if right else 1)
    print("child", os.waitpid(child, 0)[1], flush=True)
def fork_beside_a_sleeper():
    # The child is left with Python's own lock as it is now: the main thread must have given it up and wait in join.
    while open(f"/proc/self/task/{os.getpid()}/stat").read().rpartition(") ")[2][0] != "S":
        time.sleep(0.001)
    fork()
fork()
thread = threading.Thread(target=fork_beside_a_sleeper)
thread.start()
thread.join()
log.append(b"after")
writer.close()
log.close()
"""
)


@counted(17, "forks")
def test_a_child_that_a_c_library_forked_can_use_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    assert python(FORKED_BY_C, path) == "child 0\nchild 0\n"
    with Log.open(path) as log:
        assert values(log)[6:] == [b"before the fork", b"after", b"waits"]


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


@counted(17, "forks")
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


@counted(17, "forks")
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


@counted(17, "forks")
def test_a_child_may_open_the_log_for_reading(tmp_path: Path) -> None:
    assert python(READS, filled(tmp_path / "orders-0")) == "b'before the fork'\n"


WHILE_THREADS_APPEND = (
    HEAD
    + """
import random, signal, threading
count, seed = int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(seed)
writer = log.writer(linger_ms=1)
stop = threading.Event()
done = [0, 0, 0]
def work(me):
    use = writer.append if me == 2 else log.append
    while not stop.is_set():
        use(b"%d %d" % (me, done[me]))
        done[me] += 1
        if done[me] % 10 == 0: time.sleep(0.001)
threads = [threading.Thread(target=work, args=(me,)) for me in range(3)]
for thread in threads: thread.start()
def refused(use):
    try: use()
    except ForkedLogError: return
    os._exit(1)
def appends(): refused(lambda: log.append(b"child"))
def appends_many(): refused(lambda: log.append_records([b"child"] * 3))
def writes(): refused(lambda: writer.append(b"child"))
def flushes(): refused(log.flush)
def closes(): log.close()
def drops():
    global log, writer
    del log, writer
    gc.collect()
def reads():
    with Log.open(path) as reader: reader.get(0)
def nothing(): pass
def exits(): raise SystemExit(7)
def ends(): os._exit(7)
def aborts():
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    os.abort()
def crashes(): os.kill(os.getpid(), signal.SIGSEGV)
def is_killed(): os.kill(os.getpid(), signal.SIGKILL)
uses = [appends, appends_many, writes, flushes, closes, drops, reads, nothing]
leaves = {exits: 7, ends: 7, aborts: -signal.SIGABRT, crashes: -signal.SIGSEGV, is_killed: -signal.SIGKILL}
fork = multiprocessing.get_context("fork")
slowest = 0.0
SLOW = 9
def forked(number):
    start = time.monotonic()
    def child():
        use()
        if time.monotonic() - start > 1: os._exit(SLOW)
        leave()
    if number % 4 == 0:
        process = fork.Process(target=child)
        process.start()
        process.join(300)
        status = process.exitcode
    else:
        pid = os.fork()
        if pid == 0:
            child()
        deadline = time.monotonic() + 300
        status = None
        while status is None and time.monotonic() < deadline:
            found, raw = os.waitpid(pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(raw) if found else None
            time.sleep(0.0005)
    return status, time.monotonic() - start
for number in range(count):
    use, leave = draw.choice(uses), draw.choice(list(leaves))
    # What waits for something waits each time; once, a child may have no turn for as long.
    for _ in range(5):
        status, seconds = forked(number)
        if status != SLOW: break
    if status != leaves[leave]:
        print(number, use.__name__, leave.__name__, status, flush=True)
        os._exit(1)
    slowest = max(slowest, seconds)
stop.set()
for thread in threads: thread.join()
writer.close()
end = log.log_end_offset
log.close()
with Log.open(path) as reader:
    assert reader.log_end_offset == end
    found = [[], [], []]
    for record in reader.scan(7):
        me, place = record.value.split()
        found[int(me)].append(int(place))
    for me in range(3): assert found[me] == list(range(done[me])), me
with Log.open(path, "a") as again: assert again.recovery_report.clean
print(count, end, round(slowest, 3))
"""
)


def test_forks_while_threads_append(tmp_path: Path) -> None:
    """Nobody hangs, whatever the parent's threads held at that moment; no record of a child, none lost, none twice."""
    with row(17, "forks while threads append", "forks", 200) as part:
        path = filled(tmp_path / "orders-0")
        printed = python(WHILE_THREADS_APPEND, path, part.floor, part.seed, seconds=600).split()
        assert int(printed[1]) > part.floor, "the parent appended beside its forks"
        part.count(int(printed[0]))


EXIT = HEAD + "\nprint('leaving')\n"


@counted(17, "forks")
def test_an_interpreter_that_ends_without_closing(tmp_path: Path) -> None:
    """What was appended is there; the next opening recovers, as after a kill."""
    path = filled(tmp_path / "orders-0")
    assert python(EXIT, path) == "leaving\n"
    with Log.open(path, "a") as log:
        assert values(log)[-1] == b"before the fork"
        assert not log.recovery_report.cut


SERVES = (
    HEAD
    + """
import subprocess
program = "import os; print(sum('orders-0' in os.readlink('/proc/self/fd/' + n) for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)))"
print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, close_fds=False).stdout.strip())
log.close()
"""
)


@counted(17, "forks")
def test_programs_that_are_started_inherit_no_file(tmp_path: Path) -> None:
    assert python(SERVES, filled(tmp_path / "orders-0")) == "0\n"


ORPHANED = (
    HEAD
    + """
if os.fork() == 0:
    print("ready", flush=True)
    sys.stdin.readline()
    os._exit(0)
os.kill(os.getpid(), 9)
"""
)


@counted(17, "forks")
def test_a_child_of_a_killed_parent_does_not_keep_the_log(tmp_path: Path) -> None:
    """A worker that lives on must not lock everybody out of its dead parent's log."""
    path = filled(tmp_path / "orders-0")
    with running(ORPHANED, path) as process:
        process.wait(300)
        with Log.open(path, "a") as log:
            assert values(log)[-1] == b"before the fork"
