"""`.ci/steady`: the words of a command reach a reader that is late, also through a pipe that does not block."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

STEADY = str(Path(__file__).resolve().parents[2] / ".ci" / "steady")
# More than a pipe holds.
LINES = 30_000


def read_late(*command: str, waits: bool) -> tuple[bytes, int]:
    """What comes through such a pipe, and the exit code; `waits` if the command does, else it ends before it is read."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process, open(ours, "rb", buffering=0) as reader:
        os.close(theirs)
        if waits:
            time.sleep(0.3)
        else:
            process.wait(60)
        words = b""
        while data := reader.read(4096):
            words += data
        return words, process.wait(60)


def test_nothing_is_lost() -> None:
    program = f"import sys; print('word\\n' * {LINES}, flush=True); print('last', file=sys.stderr); sys.exit(3)"
    words, code = read_late(sys.executable, STEADY, sys.executable, "-c", program, waits=True)
    assert (words.count(b"word"), words[-5:], code) == (LINES, b"last\n", 3)


def test_make_writes_the_words_of_its_parts(tmp_path: Path) -> None:
    """Without it, this is where a run fails of which every test has passed."""
    make = f"all:\n\t@$(MAKE) -j2 --output-sync=target part\npart:\n\t@yes word | head -n {LINES}\n"
    (tmp_path / "Makefile").write_text(make, encoding="utf-8")
    command = ["make", "--no-print-directory", "-C", str(tmp_path)]
    words, code = read_late(*command, waits=False)
    assert code != 0
    assert words.count(b"word") < LINES
    words, code = read_late(sys.executable, STEADY, *command, waits=True)
    assert (words.count(b"word"), code) == (LINES, 0)


def test_a_reader_that_is_gone_changes_no_exit_code() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    program = f"import sys; print('word\\n' * {LINES}, flush=True); sys.exit(4)"
    done = subprocess.run([sys.executable, STEADY, sys.executable, "-c", program], stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert done.returncode == 4
    assert b"some words were lost" in done.stderr


def test_a_command_that_is_killed() -> None:
    done = subprocess.run([sys.executable, STEADY, "sh", "-c", "kill -9 $$"], capture_output=True, check=False)
    assert done.returncode == 128 + 9


def test_what_a_command_leaves_behind_keeps_nobody() -> None:
    started = time.monotonic()
    done = subprocess.run([sys.executable, STEADY, "sh", "-c", "sleep 60 & echo $!"], capture_output=True, check=False)
    os.kill(int(done.stdout), 9)
    assert done.returncode == 0
    assert time.monotonic() - started < 50
