"""Row 19. Ctrl-C at any moment of any long or short work: answered at once, with a log that is consistent and can be used on.

``tests/python/test_interrupt.py`` has the long scans of every library; here the moments are random, and what was being written counts.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from busy import ANSWER_S_MAX, answer_seconds_max, cpu_seconds
from rows import row
from writing import environment, filled, values

from offsetlog import Log

# On a machine whose cores are all taken, a process that is ready waits for one: what it computed meanwhile is held against the promise.
HUNG_S = 300.0

# Each kind of work defines `work(log)`, which goes on until it is interrupted, and counts in `done` the batches that were acknowledged.
# `done[0]` may lag one behind: the interrupt may come between the call's return and the counting.
HEAD = """
import sys, time
from offsetlog import Log
path = sys.argv[1]
SMALL = {"segment.bytes": 1 << 20}
done = [0]
def opened():
    return Log.open(path, "a", SMALL)
"""

LOOP = """
for _ in range(int(sys.argv[2])):
    try:
        # Inside: the signal may come as soon as that was read, before this process has its next turn.
        print("ready", flush=True)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            work()
        print("never", flush=True)
    except KeyboardInterrupt:
        print(time.time(), done[0], flush=True)
    else:
        sys.exit(1)
    after()
print("ended", flush=True)
"""

# Appends: 1 batch a call, numbered by its first record's value.
APPENDS = """
log = opened()
def work():
    {call}
    done[0] += 1
def after():
    # What was interrupted is there whole, or not at all; and the log goes on.
    end = log.log_end_offset
    batches = list(log.batches())
    assert batches[-1].last_offset + 1 == end
    found = len(batches) - before
    assert done[0] <= found <= done[0] + 1, (done, found)
    done[0] = found
before = sum(1 for _ in log.batches())
"""

WORK = {
    "append": APPENDS.format(call='log.append(b"%d" % done[0])'),
    "append with flush": APPENDS.format(call='log.append(b"%d" % done[0], flush=True)'),
    "append_records": "rows = [b'v' * 100] * 20_000\n"
    + APPENDS.format(call='log.append_records([b"%d" % done[0], *rows[:9_000]], compression="zstd")'),
    "append_arrow": "import pyarrow\ntable = pyarrow.table({'value': [b'v' * 40] * 20_000})\n"
    + APPENDS.format(call="log.append_arrow(table, batch_bytes=1_000_000)"),
    "writer": """
log = opened()
before = log.log_end_offset
writer = log.writer(linger_ms=1, batch_bytes=2_000)
def work():
    writer.append(b"%d" % done[0])
    done[0] += 1
def after():
    # One may wait that was not counted; none is lost or doubled.
    writer.flush()
    found = log.log_end_offset - before
    assert done[0] <= found <= done[0] + 1, (done, found)
    done[0] = found
""",
    "roll and truncate": """
log = opened()
def work():
    for _ in range(20):
        log.append_records([b"a", b"b"])
    log.roll()
    log.truncate_to(log.log_end_offset - 10)
def after():
    assert [r.offset for r in log.scan()][-1] + 1 == log.log_end_offset
    log.append(b"goes on")
""",
    "recovery": """
def work():
    log = Log.open(path, "a", {"segment.bytes": 64 << 20}, clean=False, recovery_point=0)
    # Left as a killed process leaves it.
    log._abandon()
with Log.open(path) as reader: end = reader.log_end_offset
def after():
    with Log.open(path) as reader: assert reader.log_end_offset == end, (reader.log_end_offset, end, reader.segments)
""",
    "close": """
def work():
    with opened() as log:
        log.append_records([b"v" * 100] * 2_000)
        done[0] += 1
        log.roll()
        log.append(b"a")
before = None
def after():
    global before
    with opened() as log:
        offsets = [r.offset for r in log.scan()]
        assert offsets == list(range(log.log_end_offset))
        assert before is None or len(offsets) >= before
        before = len(offsets)
""",
    "scan": """
log = Log.open(path)
def work():
    log.scan(keys=[b"nobody"]).count()
def after():
    assert log.get(0) is not None
""",
    "records": """
log = Log.open(path)
def work():
    for record in log.scan(): pass
def after():
    assert log.get(0) is not None
""",
}


def repeated(path: Path, rows: list[bytes], count: int) -> None:
    """The same batch so many times, in a segment of its own."""
    with Log.open(path, "a", {"segment.bytes": 1 << 30, "max.message.bytes": 4 << 20}) as log:
        log.roll()
        first = log.append_records(rows, compression="zstd").base_offset
    segment = path / f"{first:020}.log"
    # The base offset is the one field that no checksum covers.
    rest = segment.read_bytes()[8:]
    offsets = range(first, first + count * len(rows), len(rows))
    segment.write_bytes(b"".join(offset.to_bytes(8, "big") + rest for offset in offsets))


# Kinds whose single call goes on for longer than an answer may take: what takes a recovery long is batches,
# what takes a scan long is values, here 40 GiB of them in a file of some MiB.
LONG = {"recovery": ([b"v"], 5_000_000), "scan": ([bytes(1 << 20)] * 2, 20_000)}
# Else nobody would notice that a call does not look for signals.
LONG_S_MIN = 2 * ANSWER_S_MAX
LONGER_MAX = 5
MEASURED = "began = time.monotonic()\nwork()\nprint(time.monotonic() - began, flush=True)\n"


def at_work(path: Path, kind: str, signals: int) -> subprocess.Popen[str]:
    """A process that does it again and again; what has to take long is given more to do until it does, on this machine and now."""
    program = HEAD + WORK[kind] + (MEASURED if kind in LONG else "") + LOOP
    arguments = [sys.executable, "-c", program, str(path), str(signals)]
    for _ in range(LONGER_MAX):
        if kind in LONG:
            repeated(path, *LONG[kind])
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        assert process.stdout is not None
        if kind not in LONG or float(process.stdout.readline()) > LONG_S_MIN:
            return process
        process.kill()
        process.communicate()
    raise TimeoutError(f"{kind} is over in less than {LONG_S_MIN} s, {LONGER_MAX} times as long as well")


@pytest.mark.parametrize("kind", WORK)
def test_interrupts_at_random_moments(tmp_path: Path, kind: str) -> None:
    """The answer comes within 0.2 s of the signal; a call that the system is in the middle of (a sync) ends first.

    On a busy machine they are seconds of the process's own time.
    """
    with row(19, f"Ctrl-C in {kind}", "signals", 5) as part:
        path = filled(tmp_path / "orders-0")
        with at_work(path, kind, part.floor) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for _ in range(part.floor):
                line = process.stdout.readline()
                assert line == "ready\n", line + process.stderr.read()
                time.sleep(part.random.uniform(0, 0.25))
                sent, computed = time.time(), cpu_seconds(process.pid)
                process.send_signal(signal.SIGINT)
                line = process.stdout.readline()
                assert line[:1].isdigit(), line + process.stderr.read()
                answered = float(line.split()[0]) - sent
                assert answered < HUNG_S
                assert answered < ANSWER_S_MAX or cpu_seconds(process.pid) - computed < answer_seconds_max()
                part.count()
            _, errors = process.communicate(timeout=300)
            assert (process.returncode, errors) == (0, "")
        with Log.open(path, "a") as log:
            assert not log.recovery_report.cut
            if kind not in LONG:
                assert [record.offset for record in log.scan()] == list(range(log.log_end_offset))
            log.append(b"goes on")


# What a program leaves behind when its interpreter ends; `ended` is printed by the program's last line.
ENDINGS = {
    "threads still append": """
log = Log.open(path, "a")
def work():
    for _ in range(300): log.append(b"t")
for _ in range(3): threading.Thread(target=work).start()
""",
    "daemon threads append for ever": """
log = Log.open(path, "a")
def work():
    while True: log.append(b"t")
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
""",
    "daemon threads with a clock in Python": """
log = Log.open(path, "a", clock=lambda: int(time.time() * 1000))
def work():
    while True: log.append(b"t")
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
""",
    "a daemon thread inside a clock in Python": """
def clock():
    while threading.current_thread() is not threading.main_thread(): pass
    return 0
log = Log.open(path, "a", clock=clock)
threading.Thread(target=log.append, args=(b"t",), daemon=True).start()
time.sleep(0.1)
sys.ends_late = EndsLate()
""",
    "a daemon thread inside a generator of records": """
log = Log.open(path, "a")
def records():
    while True: yield b"t"
threading.Thread(target=log.append_records, args=(records(),), daemon=True).start()
time.sleep(0.1)
sys.ends_late = EndsLate()
""",
    "a daemon thread inside a generator that never yields": """
log = Log.open(path, "a")
def records():
    while True: pass
    yield b"t"
threading.Thread(target=log.append_records, args=(records(),), daemon=True).start()
time.sleep(0.1)
sys.ends_late = EndsLate()
""",
    "a daemon thread inside a progress in Python": """
from offsetlog import verify
def progress(done):
    while True: pass
threading.Thread(target=verify, args=(path,), kwargs={"progress": progress}, daemon=True).start()
time.sleep(0.1)
sys.ends_late = EndsLate()
""",
    "daemon threads scan for ever": """
log = Log.open(path, "a")
def work():
    while True:
        for record in log.scan(): pass
        log.scan(threads=2).count()
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
""",
    "a writer whose records wait": """
log = Log.open(path, "a")
writer = log.writer(linger_ms=60_000)
writer.append(b"waits")
""",
    "a writer that is about to append": """
log = Log.open(path, "a")
writer = log.writer(linger_ms=1)
for _ in range(1000): writer.append(b"w")
""",
    "in a cycle of objects": """
class Keeper:
    def __del__(self): pass
keeper = Keeper()
keeper.log = Log.open(path, "a")
keeper.log.append(b"t")
keeper.itself = keeper
import builtins
builtins.keeper = keeper
del keeper
""",
    "appends at exit": """
log = Log.open(path, "a")
def last():
    log.append(b"last")
    log.close()
atexit.register(last)
""",
    "an exception": """
log = Log.open(path, "a")
log.append(b"t")
def fails(): raise SystemExit(0)
print("ended", flush=True)
fails()
""",
    "rolls that are being flushed": """
log = Log.open(path, "a", {"segment.bytes": 1 << 20, "flush.ms": 1})
for _ in range(20):
    log.append_records([bytes(1000)] * 900)
""",
    "a close in a thread": """
log = Log.open(path, "a")
log.append_records([bytes(1000)] * 900)
threading.Thread(target=log.close, daemon=True).start()
""",
}

# The words of those that leave a writer open; with a short linger, its records may all be in the log before.
LEFT_OPEN = r"\S+/orders-0: a Writer was not closed: [0-9]+ records? that waited in it (is|are) appended now; .+\n"
SAYS = {"a writer whose records wait": LEFT_OPEN, "a writer that is about to append": f"({LEFT_OPEN})?"}


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_hangs_when_the_interpreter_ends(tmp_path: Path, ending: str) -> None:
    """It ends at once, without a word of a panic, and the log opens."""
    path = filled(tmp_path / "orders-0")
    program = (
        "import atexit, sys, threading, time\nfrom offsetlog import Log\npath = sys.argv[1]\n"
        # While it sleeps, other threads learn that the interpreter ends.
        "class EndsLate:\n    def __del__(self, sleep=time.sleep): sleep(0.2)\n" + ENDINGS[ending] + "\nprint('ended', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, env=environment(), check=False, timeout=300
    )
    assert (done.returncode, done.stdout.splitlines()[:1]) == (0, ["ended"]), done.stderr
    assert re.fullmatch(SAYS.get(ending, ""), done.stderr), done.stderr
    with Log.open(path, "a") as log:
        assert not log.recovery_report.cut
        assert len(values(log)) == log.log_end_offset
        log.append(b"goes on")


def test_an_interrupt_in_the_main_thread_leaves_other_threads_alone(tmp_path: Path) -> None:
    """Ctrl-C is the main thread's: what another one appends at that moment is not cut short."""
    path = filled(tmp_path / "orders-0")
    program = HEAD + (
        "import threading\nlog = opened()\nrows = [b'v' * 100] * 5_000\nfailed = []\nenough = threading.Event()\n"
        "def work():\n"
        "    try:\n"
        "        while not enough.is_set(): log.append_records(rows, compression='gzip')\n"
        "    except BaseException as error: failed.append(error)\n"
        "thread = threading.Thread(target=work)\nthread.start()\n"
        "for _ in range(5):\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        "        while True: log.append_records(rows, compression='gzip')\n"
        "    except KeyboardInterrupt: print('answered', flush=True)\n"
        "enough.set()\nthread.join()\nprint(failed)\nlog.close()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        draw = random.Random(0)
        for _ in range(5):
            assert process.stdout.readline() == "ready\n"
            time.sleep(draw.uniform(0.02, 0.1))
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "answered\n"
        assert process.stdout.read() == "[]\n"
        assert process.wait(300) == 0
