"""What waits in a ``Writer`` when the program ends: it is appended, or told, whoever has the writer by then."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from writing import values

from offsetlog import Log

NEVER = 1 << 40
LINGERS = [0, 5, NEVER]
# A program that hangs is an error, not a long wait.
LONGEST = 300
REFUSED = 10**15


def there(path: Path) -> list[bytes | None]:
    with Log.open(path) as log:
        return values(log)


def run(program: str, *arguments: object, warn: str = "always") -> str:
    """Run a program that ends by itself; return what it says on stderr."""
    command = [sys.executable, "-W", warn, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("linger", LINGERS)
@pytest.mark.parametrize("ring", [False, True])
def test_the_end_of_the_program_appends_what_waits(linger: int, *, ring: bool, tmp_path: Path) -> None:
    """Whether somebody still has the writer or not."""
    program = f"""
from offsetlog import Log
log = Log.open({str(tmp_path / "orders-0")!r}, "a")
writer = log.writer(linger_ms={linger})
for number in range(3):
    writer.append(b"%d" % number)
if {ring}:
    def keep(writer=writer): pass
    keep.itself = keep
    del keep, writer
"""
    told = run(program)
    assert there(tmp_path / "orders-0") == [b"0", b"1", b"2"]
    if linger != 5:
        assert "ResourceWarning" in told
        assert "orders-0: a Writer was not closed: 3 records that waited" in told


def test_a_forked_child_leaves_the_parents_records_alone(tmp_path: Path) -> None:
    program = f"""
import os, sys
from offsetlog import Log
log = Log.open({str(tmp_path / "orders-0")!r}, "a")
writer = log.writer(linger_ms=0)
writer.append(b"a")
child = os.fork()
if child == 0:
    del writer
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
writer.append(b"b")
log.close()
"""
    assert run(program, warn="error") == ""
    assert there(tmp_path / "orders-0") == [b"a", b"b"]


DROPPED = """
import os, sys
from offsetlog import Log
def main():
    for path in sys.argv[1:]:
        log = Log.open(path, "a", {"max.message.bytes": 100_000_000})
        writer = log.writer(linger_ms=0, batch_bytes=20_000_000, compression="gzip")
        for _ in range(4000):
            writer.append(os.urandom(1000))
main()
"""


def test_the_end_of_the_program_waits_for_writers_that_were_dropped(tmp_path: Path) -> None:
    """Their batches are large, and their threads have hardly begun."""
    paths = [tmp_path / f"t-{number}" for number in range(4)]
    told = run(DROPPED, *paths)
    assert [len(there(path)) for path in paths] == [4000] * 4
    for path in paths:
        assert f"{path}: a Writer was not closed: 4000 records that waited in it are appended in the background" in told


SLOW = """
import os, sys, threading, time
from offsetlog import Log
def clock():
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.3)
    return time.time_ns() // 1_000_000
def main():
    log = Log.open(sys.argv[1], "a", clock=clock)
    writer = log.writer(linger_ms=int(sys.argv[2]), compression="zstd")
    for number in range(20):
        writer.append(b"%d" % number)
main()
"""


@pytest.mark.parametrize("linger", LINGERS)
def test_the_end_of_the_program_waits_for_a_slow_clock(linger: int, tmp_path: Path) -> None:
    """The thread of a dropped writer asks it, which needs the interpreter."""
    run(SLOW, tmp_path / "t-0", linger)
    assert there(tmp_path / "t-0") == [b"%d" % number for number in range(20)]


def test_a_dropped_writer_whose_records_are_refused_at_the_end_is_told(tmp_path: Path) -> None:
    program = f"""
import sys
from offsetlog import Log
def main():
    writer = Log.open(sys.argv[1], "a").writer(linger_ms=0)
    writer.append(b"x", timestamp={REFUSED})
main()
"""
    for turn in range(5):
        told = run(program, tmp_path / f"t-{turn}")
        assert f"t-{turn}: 1 record of a Writer that was not closed could not be appended: " in told
        assert str(REFUSED) in told.partition("could not be appended")[2]


MANY = f"""
import sys
from offsetlog import Log
refused = int(sys.argv[1])
writers = [Log.open(path, "a").writer(linger_ms=0) for path in sys.argv[2:]]
for number, writer in enumerate(writers):
    writer.append(b"x", timestamp={REFUSED} if number == refused else None)
"""


@pytest.mark.parametrize("refused", range(8))
def test_an_error_of_one_writer_at_the_end_leaves_no_other_out(refused: int, tmp_path: Path) -> None:
    paths = [tmp_path / f"t-{number}" for number in range(8)]
    told = run(MANY, refused, *paths)
    assert [there(path) for path in paths] == [[] if number == refused else [b"x"] for number in range(8)]
    assert f"{paths[refused]}: 1 record of a Writer that was not closed could not be appended: " in told
    assert told.count("could not be appended") == 1
    assert "InvalidTimestampError" in told
    for path in paths:
        assert f"{path}: a Writer was not closed: 1 record that waited in it is appended now" in told


def test_what_a_timer_could_not_append_is_told_at_the_end(tmp_path: Path) -> None:
    program = f"""
import sys, time
from offsetlog import Log
writer = Log.open(sys.argv[1], "a").writer(linger_ms=1)
writer.append(b"x", timestamp={REFUSED})
time.sleep(0.3)
"""
    assert "t-0: 1 record of a Writer that was not closed could not be appended: " in run(program, tmp_path / "t-0")


def test_a_deleted_topic_is_no_error_at_the_end(tmp_path: Path) -> None:
    program = """
import sys
from offsetlog import LogDir
log_dir = LogDir.open(sys.argv[1], "a")
log_dir.create_topic("t", 1)
writer = log_dir.log("t", 0).writer(linger_ms=0)
writer.append(b"x")
log_dir.delete_topic("t")
"""
    told = run(program, tmp_path)
    assert "t-0: 1 record that waited in a Writer went with the topic" in told
    assert "Error" not in told


CLOSED_BY_A_DAEMON = """
import sys, threading, time
from offsetlog import Log
asked = threading.Event()
def clock():
    if threading.current_thread() is not threading.main_thread():
        asked.set()
        time.sleep(600)
    return time.time_ns() // 1_000_000
writer = Log.open(sys.argv[1], "a", clock=clock).writer(linger_ms=0)
writer.append(b"x")
threading.Thread(target=writer.close, daemon=True).start()
asked.wait()
"""


def test_a_writer_that_a_daemon_thread_closes_at_the_end(tmp_path: Path) -> None:
    """Nobody waits for such a thread."""
    run(CLOSED_BY_A_DAEMON, tmp_path / "t-0")
    assert there(tmp_path / "t-0") == [b"x"]


APPENDED_BY_A_DAEMON = """
import sys, threading
from offsetlog import Log
writer = Log.open(sys.argv[1], "a").writer(linger_ms=1, batch_bytes=1000)
begun = threading.Event()
def work():
    number = 0
    while True:
        writer.append(b"%d" % number)
        number += 1
        if number > 1000:
            begun.set()
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""


def test_a_daemon_thread_that_appends_does_not_hold_up_the_end(tmp_path: Path) -> None:
    run(APPENDED_BY_A_DAEMON, tmp_path / "t-0")
    found = there(tmp_path / "t-0")
    assert len(found) > 1000
    assert found == [b"%d" % number for number in range(len(found))]


INTERRUPTED = """
import sys, threading, time
from offsetlog import Log
def clock():
    if threading.current_thread() is not threading.main_thread():
        print("asked", flush=True)
        time.sleep(600)
    return time.time_ns() // 1_000_000
def main():
    writer = Log.open(sys.argv[1], "a", clock=clock).writer(linger_ms=0)
    writer.append(b"x")
main()
other = Log.open(sys.argv[2], "a").writer(linger_ms=0)
other.append(b"y")
"""


def test_ctrl_c_ends_the_wait_for_one_writer_and_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "t-0"), str(tmp_path / "t-1")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "asked\n"
            # It waits: nothing else ends it.
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(2)
            running.send_signal(signal.SIGINT)
            _, told = running.communicate(timeout=LONGEST)
        finally:
            running.kill()
    assert f"{tmp_path / 't-0'}: what waited in a Writer that was not closed may not be in the log: interrupted" in told
    assert "KeyboardInterrupt" in told
    assert (there(tmp_path / "t-0"), there(tmp_path / "t-1")) == ([], [b"y"])


FORKED_MEANWHILE = """
import os, sys, threading, time
from offsetlog import Log
asked, go_on = threading.Event(), threading.Event()
def clock():
    if threading.current_thread() is not threading.main_thread():
        asked.set()
        go_on.wait()
    return time.time_ns() // 1_000_000
def main():
    writer = Log.open(sys.argv[1], "a", clock=clock).writer(linger_ms=0)
    writer.append(b"x")
main()
asked.wait()
child = os.fork()
if child == 0:
    Log.open(sys.argv[2], "a").writer(linger_ms=0).append(b"y")
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
go_on.set()
"""


def test_a_child_does_not_wait_for_its_parents_writers(tmp_path: Path) -> None:
    """A thread of the parent has one in hand; no such thread is in the child."""
    run(FORKED_MEANWHILE, tmp_path / "t-0", tmp_path / "t-1")
    assert (there(tmp_path / "t-0"), there(tmp_path / "t-1")) == ([b"x"], [b"y"])


CHILD = """
import multiprocessing, sys
from offsetlog import Log
method, kept, path, parents = sys.argv[1:]
KEEP = []
def child():
    writer = Log.open(path, "a", {"max.message.bytes": 100_000_000}).writer(linger_ms=0, batch_bytes=20_000_000, compression="gzip")
    if kept == "kept":
        KEEP.append(writer)
    for number in range(20_000):
        writer.append(b"%d" % number)
if __name__ == "__main__":
    writer = Log.open(parents, "a").writer(linger_ms=0)
    writer.append(b"parent")
    process = multiprocessing.get_context(method).Process(target=child)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("kept", ["kept", "dropped"])
def test_children_of_multiprocessing(method: str, kept: str, tmp_path: Path) -> None:
    """Most of them end by ``os._exit``, without ``atexit``."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    command = [sys.executable, str(script), method, kept, str(tmp_path / "t-0"), str(tmp_path / "t-1")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    assert there(tmp_path / "t-0") == [b"%d" % number for number in range(20_000)]
    assert there(tmp_path / "t-1") == [b"parent"]
    assert done.stderr.count(f"{tmp_path / 't-0'}: a Writer was not closed: 20000 records that waited in it are appended") == 1


THREAD_IN_A_CHILD = """
import multiprocessing, multiprocessing.util, sys, threading
from offsetlog import Log
def child():
    log = Log.open(sys.argv[1], "a")
    writer = log.writer(linger_ms=0)
    writer.append(b"a")
    over = threading.Event()
    def work():
        over.wait()
        writer.append(b"b")
        log.close()
    threading.Thread(target=work).start()
    multiprocessing.util.Finalize(None, over.set, exitpriority=-1000)
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def test_a_thread_of_a_child_of_multiprocessing_goes_on(tmp_path: Path) -> None:
    """The child waits for it after all else: its writer is not closed under it."""
    told = run(THREAD_IN_A_CHILD, tmp_path / "t-0")
    assert there(tmp_path / "t-0") == [b"a", b"b"]
    assert "Traceback" not in told
