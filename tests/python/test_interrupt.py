"""Ctrl-C ends every long scan at once, and as KeyboardInterrupt, whichever library is pulling the records."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from busy import CLOCK, answer_seconds_max, cpu_seconds, wait_for_work
from make_log import GZIP, batch, move, segment

PRELUDE = f"""
import sys, time
from time import {CLOCK} as clock
import offsetlog
log = offsetlog.Log.open(sys.argv[1])
def matches_nothing(**options):
    return log.scan(keys=[b"nobody has this key"], **options)
"""

EPILOGUE = """
before = time.time()
print("ready", flush=True)
try:
    try:
        work()
    except KeyboardInterrupt:
        print("interrupted", clock(), flush=True)
    except Exception as error:
        print("error", clock(), type(error).__name__, error, flush=True)
        while time.time() < before + 300:
            time.sleep(0.01)
        print("swallowed", clock(), flush=True)
    else:
        print("finished", clock(), flush=True)
except KeyboardInterrupt:
    print("interrupted", clock(), flush=True)
"""

# How long a program computes before it is interrupted.
AT_WORK_S = 0.3

WORK = {
    "records": "def work(): next(iter(matches_nothing()), None)",
    "count": "def work(): matches_nothing().count()",
    "to_arrow": "import pyarrow\ndef work(): matches_nothing().to_arrow()",
    "to_arrow, two threads": "import pyarrow\ndef work(): matches_nothing(threads=2).to_arrow()",
    "to_polars": "import polars\ndef work(): matches_nothing().to_polars()",
    "to_pandas": "import pandas, pyarrow.pandas_compat\ndef work(): matches_nothing().to_pandas()",
    "pyarrow.table": "import pyarrow\ndef work(): pyarrow.table(matches_nothing())",
}

# Consumers that keep the stream, or let go of it before they raise: their own exception comes, and the interrupt right after it.
WORK_OF_OTHERS = {
    "pyarrow reader": "import pyarrow\nreader = pyarrow.RecordBatchReader.from_stream(matches_nothing())\ndef work(): reader.read_all()",
    "polars.DataFrame": "import polars\ndef work(): polars.DataFrame(matches_nothing())",
}


def partition(directory: Path, name: str, value: bytes, bytes_total: int) -> Path:
    """A log of one batch repeated: its checksum does not cover its offset."""
    path = directory / name
    one = batch(0, [(b"key", value)], codec=GZIP)
    segment(path, 0, *(move(one, offset) for offset in range(bytes_total // len(one))))
    return path


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some seconds of work for any library: 512 MiB that decompress to four times as much."""
    value = b"".join(random.Random(number).randbytes(1024) + bytes(3072) for number in range(64))
    return partition(tmp_path_factory.mktemp("interrupt"), "orders-0", value, 512 << 20)


@pytest.fixture(scope="module")
def dense_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 MiB that decompress to a thousand times as much: progress counted in bytes of the file would be far too slow."""
    return partition(tmp_path_factory.mktemp("interrupt"), "dense-0", bytes(1 << 20), 16 << 20)


def interrupted(path: Path, work: str) -> list[tuple[str, float, str]]:
    """Interrupt a program in the middle of its work; what it says, with the seconds that it has computed since the signal."""
    program = PRELUDE + work + EPILOGUE
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_for_work(process.pid, AT_WORK_S)
        sent = cpu_seconds(process.pid)
        process.send_signal(signal.SIGINT)
        output = process.stdout.read()
        process.wait(timeout=300)
    assert output, f"the process died without a word, exit code {process.returncode}"
    words = [(*line.split(maxsplit=2), "")[:3] for line in output.splitlines()]
    return [(outcome, float(when) - sent, text) for outcome, when, text in words]


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_interrupt_ends_a_scan_that_matches_nothing(long_log: Path, name: str) -> None:
    """A scan without matches never comes back to Python by itself: only the engine's own check can notice Ctrl-C."""
    ((outcome, seconds, _),) = interrupted(long_log, WORK[name])
    assert outcome == "interrupted"
    assert seconds < answer_seconds_max()


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_interrupt_ends_a_scan_of_dense_batches(dense_log: Path, name: str) -> None:
    """The same where a few MiB of file are gigabytes of work."""
    ((outcome, seconds, _),) = interrupted(dense_log, WORK[name])
    assert outcome == "interrupted"
    assert seconds < answer_seconds_max()


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK_OF_OTHERS)
def test_interrupt_ends_the_streams_of_others(long_log: Path, name: str) -> None:
    """Their exception says what happened, and Ctrl-C is not lost where a program goes on after it."""
    (outcome, seconds, text), (after, seconds_after, _) = interrupted(long_log, WORK_OF_OTHERS[name])
    assert outcome == "error"
    assert "interrupted: KeyboardInterrupt" in text
    assert seconds < answer_seconds_max()
    assert after == "interrupted"
    assert seconds_after < 2 * answer_seconds_max()


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK_OF_OTHERS)
def test_interrupt_of_the_streams_of_others_ends_a_plain_script(long_log: Path, name: str) -> None:
    """Without any handler: the traceback is whole and names the reason."""
    program = PRELUDE + WORK_OF_OTHERS[name] + "\nprint('ready', flush=True)\nwork()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(long_log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_for_work(process.pid, AT_WORK_S)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode in {1, -signal.SIGINT}
    assert "interrupted: KeyboardInterrupt" in errors


@pytest.mark.slow
def test_interrupt_without_a_handler_of_the_program_ends_it(long_log: Path) -> None:
    """The plain script: no try block, exit code as of any Python program."""
    program = PRELUDE + "print('ready', flush=True)\nmatches_nothing().count()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(long_log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_for_work(process.pid, AT_WORK_S)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_other_handlers_raise_what_they_like(long_log: Path) -> None:
    """A handler's own exception (timeouts of test runners, supervisors) comes out as it is."""
    program = PRELUDE + textwrap.dedent("""
        import signal
        class TooLong(Exception): pass
        def handler(number, frame): raise TooLong(clock())
        signal.signal(signal.SIGALRM, handler)
        # Both before the alarm is set: it may go off before this process has its next turn.
        start = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            matches_nothing().count()
        except TooLong as error:
            print(clock() - error.args[0], time.monotonic() - start)
    """)
    output = subprocess.run([sys.executable, "-c", program, str(long_log)], capture_output=True, text=True, check=True, timeout=300)
    computed, passed = map(float, output.stdout.split())
    assert computed < answer_seconds_max()
    assert passed >= 0.3


def test_other_threads_run_while_the_engine_works(long_log: Path) -> None:
    """The interpreter is released: a second thread gets on with its work during a scan."""
    program = PRELUDE + textwrap.dedent("""
        import threading
        ticks = 0
        done = threading.Event()
        def tick():
            global ticks
            while not done.wait(0.005):
                ticks += 1
        thread = threading.Thread(target=tick)
        thread.start()
        hung = time.monotonic() + 250
        most = 0
        # On a busy machine another program may have the thread's turns.
        while most < 5 and time.monotonic() < hung:
            before = ticks
            log.scan(0, 1000, keys=[b"no"]).count()
            most = max(most, ticks - before)
        done.set()
        thread.join()
        print(most)
    """)
    output = subprocess.run([sys.executable, "-c", program, str(long_log)], capture_output=True, text=True, check=True, timeout=300)
    # Without that it is one at most, before or behind the scan.
    assert int(output.stdout) >= 5
