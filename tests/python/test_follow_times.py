"""``cat --follow`` up to a time and from a time that no record has reached yet: what is printed is what ``cat`` prints of the log afterwards."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from offsetlog import Log, WritableLog

COMMAND = [sys.executable, "-m", "offsetlog", "cat", "-f", "%t/%p %o %s\n"]
HALF_AN_HOUR_MS = 1_800_000


def follow(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, "--follow", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def afterwards(*arguments: str) -> list[str]:
    run = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=300)
    return run.stdout.splitlines(keepends=True)


def append(log: WritableLog, *records: tuple[bytes, int]) -> None:
    """Values and timestamps, in one batch."""
    with log.writer(linger_ms=600_000) as writer:
        for value, timestamp in records:
            writer.append(value, timestamp=timestamp)


def now() -> int:
    return time.time_ns() // 1_000_000


def test_it_ends_at_the_first_record_at_or_after_the_time(tmp_path: Path) -> None:
    """Each partition by itself, within a batch too; earlier times behind that record are not printed."""
    stop = now() + HALF_AN_HOUR_MS
    words = [str(tmp_path), "-o", f"e@{stop}"]
    with Log.open(tmp_path / "t-0", "a") as first, Log.open(tmp_path / "t-1", "a") as second:
        first.append(b"before", timestamp=stop - 9)
        program = follow(*words)
        assert program.stdout is not None
        lines = [program.stdout.readline()]
        assert lines == ["t/0 0 before\n"]
        append(first, (b"just before", stop - 1), (b"at it", stop), (b"behind it", stop - 1))
        lines.append(program.stdout.readline())
        first.append(b"earlier, but behind it", timestamp=stop - 5)
        second.append(b"other", timestamp=stop - 1)
        lines.append(program.stdout.readline())
        assert program.poll() is None
        second.append(b"at it", timestamp=stop + 1)
        rest, words_of_it = program.communicate(timeout=300)
    assert (lines, rest, words_of_it) == (["t/0 0 before\n", "t/0 1 just before\n", "t/1 0 other\n"], "", "")
    assert program.returncode == 0
    assert afterwards(*words) == lines


def test_all_before_the_time_is_printed_while_it_grows(tmp_path: Path) -> None:
    """The log is past the time when the command finds that out: what came in between is printed too."""
    start = now() + HALF_AN_HOUR_MS
    words = [str(tmp_path / "t-0"), "-o", f"e@{start + 2000}"]
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append(b"0", timestamp=start)
        program = follow(*words)
        assert program.stdout is not None
        first = program.stdout.readline()
        for number in range(1, 3000):
            log.append(b"%d" % number, timestamp=start + number)
        rest, words_of_it = program.communicate(timeout=300)
    lines = [first, *rest.splitlines(keepends=True)]
    assert words_of_it == ""
    assert lines == [f"t/0 {number} {number}\n" for number in range(2000)]


def test_it_ends_when_the_clock_has_passed_the_time(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append(b"before")
        stop = now() + 3000
        program = follow(str(tmp_path / "t-0"), "-o", f"e@{stop}")
        assert program.stdout is not None
        assert program.stdout.readline() == "t/0 0 before\n"
        log.append(b"later", timestamp=stop - 1)
        assert program.communicate(timeout=300) == ("t/0 1 later\n", "")
        assert now() >= stop
        assert program.returncode == 0


def test_a_time_that_has_passed_prints_what_is_there(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as log:
        append(log, (b"0", 1000), (b"1", 2000))
        for stop, found in [(2000, "t/0 0 0\n"), (3000, "t/0 0 0\nt/0 1 1\n"), (1000, "")]:
            program = follow(str(tmp_path / "t-0"), "-o", f"e@{stop}")
            assert program.communicate(timeout=300) == (found, "")
            assert program.returncode == (0 if found else 1)


def test_records_without_the_time_do_not_keep_it_from_ending(tmp_path: Path) -> None:
    """Somebody who goes on appending old records after the time does not hold it."""
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append(b"old", timestamp=1000)
        stop = now() + 1500
        with subprocess.Popen([*COMMAND, "--follow", str(tmp_path / "t-0"), "-o", f"e@{stop}"], stdout=subprocess.DEVNULL) as program:
            deadline = time.monotonic() + 120
            while program.poll() is None:
                log.append(b"old", timestamp=1000)
                assert time.monotonic() < deadline
        assert program.returncode == 0
        assert now() >= stop


@pytest.mark.parametrize("stops", [False, True])
def test_it_begins_with_the_first_record_at_or_after_the_time(tmp_path: Path, stops: bool) -> None:
    start = now() + HALF_AN_HOUR_MS
    words = [str(tmp_path), "-o", f"s@{start}", *(["-o", f"e@{start + 10}"] if stops else [])]
    with Log.open(tmp_path / "t-0", "a") as first, Log.open(tmp_path / "t-1", "a") as second:
        first.append(b"there", timestamp=start)
        second.append(b"before", timestamp=start - 9)
        program = follow(*words, *([] if stops else ["-c", "3"]))
        assert program.stdout is not None
        lines = [program.stdout.readline()]
        second.append(b"still before", timestamp=start - 1)
        append(second, (b"before too", start - 1), (b"at it", start + 1))
        lines.append(program.stdout.readline())
        second.append(b"earlier, but behind it", timestamp=start - 1)
        lines.append(program.stdout.readline())
        if stops:
            for log in (first, second):
                log.append(b"end", timestamp=start + 10)
        assert program.communicate(timeout=300) == ("", "")
    assert lines == ["t/0 0 there\n", "t/1 3 at it\n", "t/1 4 earlier, but behind it\n"]
    assert program.returncode == 0
    assert afterwards(*words) == lines
