"""Row 23. What no other test sees: reads and writes of memory that only happen to go well.

The format crate's tests run in miri, an interpreter that knows all of Rust's undefined behaviour; a short session of Python with the
compiled module runs under valgrind, which sees what Rust, the C codecs and the boundary between them do. Both tools are installed
by CI (``.ci/power``) and by ``make miri``; where they are not there the row is skipped and says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rows import ROOT, row

MIRI_TESTS_MIN = 60
NO_MIRI = "needs `rustup toolchain install nightly --component miri,rust-src`"
NO_VALGRIND = "needs valgrind (apt-get install valgrind)"
# Tests that draw their inputs, read megabytes, or go through each cut of a file take miri minutes each. Others of the same code are left
# to it.
SLOW_IN_MIRI = (
    *("read_back", "reads_back", "never_panic", "or_refused", "is_identity", "or_an_error"),
    *("limits_hold", "counts_make_no_more", "hostile_bytes", "every_cut_and_every_flipped_bit", "a_log_ends_where_nothing"),
    *("sizes_are_those", "of_a_plain_decoder", "a_plain_decoder_finds_it", "by_a_plain_decoder", "every_byte_in_every_value"),
)
# What Python reads before it was written, and what it leaves behind at its end, are no faults of ours.
VALGRIND = ("valgrind", "--quiet", "--error-exitcode=99", "--leak-check=no", "--undef-value-errors=no")
SESSION = """
import tempfile
from pathlib import Path
from offsetlog import Log
folder = Path(tempfile.mkdtemp())
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    path = folder / f"{codec}-0"
    with Log.open(path, mode="a") as log:
        with log.writer(compression=codec) as writer:
            for number in range(50):
                writer.append(b"v" * number, key=b"k", headers=[("h", None)])
        log.flush()
    with Log.open(path) as log:
        assert len(list(log.scan())) == 50
        assert log.get(7).value == b"v" * 7
        log.locate(7), log.verify(), log.offset_for_timestamp(0)
    data = bytearray(next(path.glob("*.log")).read_bytes())
    data[90] ^= 1
    next(path.glob("*.log")).write_bytes(data)
    with Log.open(path) as log:
        list(log.scan(on_corrupt="skip"))
        log.verify()
print("whole")
"""


def works(*command: str) -> bool:
    """Whether a command is there and ends well."""
    # Nothing is installed by asking whether it is there.
    variables = {**os.environ, "RUSTUP_AUTO_INSTALL": "0"}
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False, timeout=300, env=variables).returncode == 0


@pytest.mark.timeout(3600)
def test_the_format_crate_in_miri() -> None:
    with row(23, "miri", "tests", MIRI_TESTS_MIN, fixed=True) as part:
        if not works("cargo", "+nightly", "miri", "--version"):
            part.skip(NO_MIRI)
        # Apart from other builds: they are for another compiler.
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "miri"
        command = ["cargo", "+nightly", "miri", "test", "--locked", "--quiet", "-p", "offsetlog-format", "--target-dir", str(target)]
        chosen = [
            "--lib",
            "--test",
            "refusals",
            "--test",
            "batch",
            "--",
            *(word for name in SLOW_IN_MIRI for word in ("--skip", name)),
        ]
        # Isolated it would let no test look at a file; what a test leaks on purpose is no fault of the crate.
        variables = {**os.environ, "MIRIFLAGS": "-Zmiri-disable-isolation -Zmiri-ignore-leaks"}
        done = subprocess.run([*command, *chosen], cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=3500)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
        part.count(sum(map(int, re.findall(r"(\d+) passed", done.stdout))))


@pytest.mark.timeout(3600)
def test_a_session_under_valgrind(tmp_path: Path) -> None:
    with row(23, "valgrind", "sessions", 1, fixed=True) as part:
        if not works("valgrind", "--version"):
            part.skip(NO_VALGRIND)
        # Python's own allocator hides what lies in one of its blocks.
        variables = {**os.environ, "PYTHONMALLOC": "malloc", "TMPDIR": str(tmp_path)}
        command = [*VALGRIND, sys.executable, "-c", SESSION]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=3500)
        assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr[-8000:]
        part.count()
