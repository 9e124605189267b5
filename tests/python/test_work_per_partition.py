"""A log dir of 2,000 partitions: what each of them costs in system calls and bytes is what it costs among 200."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from writing import environment

# What a program does to a log dir of so many partitions. Nothing is written to standard output.
SETUP = """
import sys
from offsetlog import LogDir
place, count = sys.argv[1], int(sys.argv[2])
config = {"segment.index.bytes": 100, "retention.ms": 1}
"""
PROGRAMS = {
    "made": """
with LogDir.open(place, "a") as log_dir:
    log_dir.create_topic("t", count, config=config)
""",
    "appended": """
with LogDir.open(place, "a") as log_dir:
    for number in range(count):
        log_dir.append("t", b"value", partition=number, timestamp=1)
""",
    "committed": """
import pyarrow as pa
from offsetlog import LogConfig
from offsetlog._commit.publishing import commit
from offsetlog._commit.staging import Stage
staged = []
for task in range(2):
    stage = Stage("job", f"attempt{task}")
    for number in range(count):
        rows = pa.RecordBatch.from_pydict({"value": pa.array([f"{task}.{number}"])})
        stage.append("t", number, f"{place}/t-{number}", LogConfig.from_dict(config), rows, preserve_offsets=False)
    staged += stage.close()
commit(place, "job", None, staged)
""",
    "read": """
with LogDir.open(place) as log_dir:
    log_dir.end_offsets()
    log_dir.beginning_offsets()
    assert log_dir.scan().count() == 3 * count
    log_dir.groups()
    log_dir.producers()
""",
    "kept": """
with LogDir.open(place, "a") as log_dir:
    assert not log_dir.maintain().failed
    log_dir.flush()
    log_dir.delete_topic("t")
""",
}
# Calls that cost something; of those with bytes, how many bytes.
CALLS = "openat,read,pread64,pwrite64,fsync,fdatasync,rename,getdents64"
WITH_BYTES = {"read", "pread64", "pwrite64", "getdents64"}
# A call that another thread's interrupted is resumed in a line of its own, which has the result.
LINE = re.compile(r"^\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed>).*= (\d+)$")
# A log that is opened alone reads the log dir's checkpoints, and a commit writes them: files with a line for each partition. So many
# bytes of each line.
LINE_BYTES = {"committed": 100, "kept": 30}


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder where a sync costs nothing, if the machine has one."""
    parent = Path("/dev/shm")  # noqa: S108  # an own directory is made in it
    with tempfile.TemporaryDirectory(dir=parent if parent.is_dir() else None) as name:
        yield Path(name)


def work(folder: Path, count: int) -> dict[str, Counter[str]]:
    """Of each program the calls, and under a name of their own their bytes, to a log dir of so many partitions."""
    place, found = folder / f"logs-{count}", {}
    for name, program in PROGRAMS.items():
        trace = folder / f"trace-{name}"
        command = ["strace", "-f", "-qq", "--seccomp-bpf", "-s", "0", "-o", str(trace), "-e", f"trace={CALLS}"]
        command += [sys.executable, "-B", "-c", SETUP + program, str(place), str(count)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False, timeout=900)
        assert done.returncode == 0, done.stderr[-2000:]
        counts: Counter[str] = Counter()
        with trace.open() as lines:
            for line in lines:
                if match := LINE.match(line.rstrip()):
                    counts[match[1]] += 1
                    if match[1] in WITH_BYTES:
                        counts[f"bytes of {match[1]}"] += int(match[2])
        found[name] = counts
        trace.unlink()
    shutil.rmtree(place)
    return found


@pytest.mark.proof
def test_a_partition_among_many_costs_what_it_costs_among_few(memory: Path) -> None:
    """A checkpoint, a note or a listing that is read for each partition would cost ten times as much."""
    if shutil.which("strace") is None:
        pytest.skip("strace is missing: apt-get install strace")
    few, some, many = (work(memory, count) for count in (20, 200, 2000))
    wrong = []
    for name in PROGRAMS:
        for call in sorted({*some[name], *many[name]}):
            # What the interpreter and the first ones cost is in both.
            among_few = (some[name][call] - few[name][call]) / 180
            among_many = (many[name][call] - some[name][call]) / 1800
            slack = 1.0
            if call.startswith("bytes"):
                slack = 100 + (LINE_BYTES.get(name, 0) * 2000 if call != "bytes of read" else 0)
            print(f"{name:10} {call:20} {among_few:10.2f} {among_many:10.2f}")
            if among_many > 1.5 * among_few + slack:
                wrong.append(f"{name}: {call}: {among_few:.2f} a partition among 200, {among_many:.2f} among 2,000")
    assert not wrong, "\n".join(wrong)
