"""Row 20. Files that another process cuts, removes or swaps while they are read: an exception or a clean end, never a signal.

Nor a wrong record: each value says its offset.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from rows import row
from writing import environment

from offsetlog import Log

READER = """
import sys
import pyarrow
from offsetlog import Log, LogDir, OffsetLogError
path = sys.argv[1]
def check(offset, value):
    if not value.startswith(b"%d:" % offset):
        print("wrong record", offset, value[:20], flush=True)
        sys.exit(1)
def records(log):
    for record in log.scan(): check(record.offset, record.value)
def count(log): log.scan().count()
def arrow(log):
    table = log.scan(columns=["offset", "value"]).to_arrow()
    for offset, value in zip(table["offset"].to_pylist(), table["value"].to_pylist()): check(offset, value)
def threads(log): log.scan(threads=2).to_arrow()
def batches(log):
    for batch in log.batches(): pass
def look_ups(log):
    for offset in range(0, 6000, 7):
        record = log.get(offset)
        if record is not None: check(record.offset, record.value)
def times(log):
    for time in range(0, 6000, 101): log.offset_for_timestamp(1_700_000_000_000 + time)
def ends(log):
    for _ in range(50): log.log_end_offset, log.log_start_offset, log.segments
def log_dir(log):
    with LogDir.open(path.rpartition("/")[0]) as found: found.scan().count()
kinds = [records, count, arrow, threads, batches, look_ups, times, ends, log_dir]
print("ready", flush=True)
for line in sys.stdin:
    kind = kinds[int(line)]
    # Opened before the files change, and again while they do.
    try:
        log = Log.open(path)
        print("opened", flush=True)
        for _ in range(2):
            try: kind(log)
            except (OffsetLogError, OSError) as error: print("error", type(error).__name__, error, flush=True)
            log.close()
            log = Log.open(path)
        log.close()
    except (OffsetLogError, OSError) as error: print("error", type(error).__name__, error, flush=True)
    print("done", kind.__name__, flush=True)
"""
KINDS = 9


def written(path: Path, salt: bytes, codec: Literal["lz4"] | None) -> None:
    """A log of four segments, some with an index of many entries; each value begins with its offset."""
    config = {"index.interval.bytes": 500, "segment.index.bytes": 8000}
    with Log.open(path, "a", config, clock=lambda: 1_700_000_000_000) as log:
        offset = 0
        while offset < 5900:
            log.append_records([b"%d:" % number + salt * 100 for number in range(offset, offset + 20)], compression=codec)
            offset += 20
            if offset % 1500 == 0:
                log.roll()


def truncate(path: Path, _: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size + 1))


def empty(path: Path, _: Path, __: random.Random) -> None:
    os.truncate(path, 0)


def delete(path: Path, _: Path, __: random.Random) -> None:
    path.unlink()


def rename(path: Path, _: Path, __: random.Random) -> None:
    path.rename(path.with_name(path.name + ".deleted"))


def swap(path: Path, other: Path, _: random.Random) -> None:
    """The other log's file takes its name at once, as after a cleaning."""
    shutil.copyfile(other / path.name, path.with_name("0.swap-in"))
    path.with_name("0.swap-in").rename(path)


def overwrite(path: Path, other: Path, _: random.Random) -> None:
    """The same bytes of the file become the other log's, in the middle of reading."""
    with path.open("r+b") as file:
        file.write((other / path.name).read_bytes())


def cut_and_grow(path: Path, _: Path, draw: random.Random) -> None:
    size = path.stat().st_size
    os.truncate(path, draw.randrange(size + 1))
    os.truncate(path, size)


ATTACKS: list[Callable[[Path, Path, random.Random], None]] = [truncate, empty, delete, rename, swap, overwrite, cut_and_grow]


def test_files_that_change_under_a_reader(tmp_path: Path) -> None:
    """A directory beside a broker's marks and one without; logs, indexes, everything."""
    with row(20, "files cut under a reader", "rounds", 300) as part:
        draw = part.random
        log_dir = tmp_path / "log-dir"
        path = log_dir / "orders-0"
        one, other = tmp_path / "one" / "orders-0", tmp_path / "other" / "orders-0"
        written(one, b"a", None)
        written(other, b"b", "lz4")
        log_dir.mkdir()
        (log_dir / "meta.properties").touch()
        (log_dir / ".lock").touch()
        errors = 0
        arguments = [sys.executable, "-c", READER, str(path)]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            # Until the reader met enough of it too: it may be slower than who changes the files, or faster.
            while part.cases < part.floor or errors <= part.floor // 20:
                number = part.cases
                assert number < 20 * part.floor, f"{errors} errors: a vandal that is never noticed is none"
                shutil.rmtree(path, ignore_errors=True)
                shutil.copytree(one, path)
                reader.stdin.write(f"{number % KINDS}\n")
                reader.stdin.flush()
                line = reader.stdout.readline()
                time.sleep(draw.uniform(0, 0.015))
                said = []
                for _ in range(draw.randrange(1, 4)):
                    files = sorted(file for file in path.iterdir() if file.suffix in {".log", ".index", ".timeindex"})
                    target = draw.choice(files)
                    attack = draw.choice(ATTACKS)
                    said.append(f"{attack.__name__} {target.name}")
                    attack(target, other, draw)
                    time.sleep(draw.uniform(0, 0.003))
                while not line.startswith("done"):
                    assert line.split()[:1] in (["opened"], ["error"]), (line, said, reader.poll())
                    errors += line.startswith("error")
                    line = reader.stdout.readline()
                part.count()
            reader.stdin.close()
            assert reader.wait(300) == 0
