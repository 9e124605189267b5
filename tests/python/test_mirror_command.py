"""``offsetlog mirror``, the command: what it selects, what it prints while it runs, how much memory it takes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS

from offsetlog import Log, LogDir, Server

CODECS = {f"g-codec-{name}" for name in ("gzip", "lz4", "none", "snappy", "zstd")}

MEASURED = """
import sys
from offsetlog._offsetlog import run_cli
code = run_cli(["offsetlog", *sys.argv[1:]], [])
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(status["VmHWM"].split()[0], file=sys.stderr)
sys.exit(code)
"""


def command(kafka: Server, into: Path, *words: str) -> list[str]:
    """Without committed offsets."""
    bootstrap = ["--bootstrap", kafka.bootstrap_servers]
    return [sys.executable, "-m", "offsetlog", "mirror", *bootstrap, "--into", str(into), "--no-groups", *words]


@pytest.mark.parametrize("is_json", [False, True])
def test_topics_and_patterns_are_selected(is_json: bool, tmp_path: Path) -> None:
    with Server(CLEAN_LOG_DIRS) as kafka:
        line = command(kafka, tmp_path / "copy", "--once", "-t", "g-plain", "--pattern", "g-codec-*", *(["--json"] * is_json))
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    with LogDir.open(tmp_path / "copy") as copy:
        assert set(copy.topics()) == {"g-plain", *CODECS}
    if is_json:
        rows = [json.loads(row) for row in done.stdout.splitlines()]
        assert {row["topic"] for row in rows if "log_end_offset" in row} == {"g-plain", *CODECS}
        assert sum(row["log_end_offset"] for row in rows if row.get("topic") == "g-plain" and "lag" in row) == 600


def test_a_running_one_tells_rate_and_lag(tmp_path: Path) -> None:
    """Until it is interrupted, which is its end."""
    with Server(CLEAN_LOG_DIRS) as kafka:
        line = command(kafka, tmp_path / "copy", "-t", "g-plain", "--json")
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = (json.loads(row) for row in process.stdout)
            progress = next(row for row in told if row.get("progress") and row["partitions_done"] == 3)
            assert progress["lag"] == 0
            assert progress["bytes_per_second"] >= 0
            process.send_signal(signal.SIGINT)
            whole = list(told)[-1]
            assert whole["bytes"] > 0
        assert process.returncode == 130


@pytest.mark.parametrize(("fetch", "mib_max"), [(None, 110), (1 << 20, 100)])
def test_memory_does_not_grow_with_the_topic(fetch: int | None, mib_max: int, tmp_path: Path) -> None:
    """A few responses are in it, and the interpreter."""
    payload = os.urandom(250_000)
    for number in range(4):
        with Log.open(tmp_path / "source" / f"big-{number}", "a") as log, log.writer(batch_bytes=900_000) as writer:
            for _ in range(200):
                writer.append(payload)
    with Server(tmp_path / "source") as kafka:
        line = command(kafka, tmp_path / "copy", "--once", *([] if fetch is None else ["--fetch-max-bytes", str(fetch)]))
        # Of a child the system also counts what its parent had when it forked: the process itself knows better.
        done = subprocess.run([sys.executable, "-c", MEASURED, *line[3:]], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    kib = int(done.stderr.split()[-1])
    with Log.open(tmp_path / "copy" / "big-3") as copy:
        assert copy.log_end_offset == 200
    assert kib < mib_max << 10, f"{kib >> 10} MiB for 200 MB of records"
