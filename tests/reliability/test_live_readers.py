"""Row 15. Readers in other processes beside a writer that appends, rolls, removes, compacts and, in the second half, truncates.

Each value says its offset and what else is in it, so that a wrong record cannot pass for a right one. As long as nothing is truncated a
reader meets every offset once, in order, from where the log starts, and no error but that what it wanted next was deleted; where the
end is taken away under it, it may end or fail, but not read what was never there.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rows import SCALE, row
from writing import environment

from offsetlog import Log

SECONDS = 30
BATCHES = 200_000

COMMON = """
import json, os, random, signal, struct, sys, time
import numpy, pyarrow
from offsetlog import Log, OffsetLogError, OffsetOutOfRangeError
MIX = 0x9E3779B97F4A7C15
def value(offset, lap):
    return struct.pack(">QQQ", offset, lap, (offset * MIX ^ lap) % (1 << 64)) + b"." * (offset % 50)
path, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
draw = random.Random(seed)
"""

WRITER = (
    COMMON
    + """
settings = {"internal.segment.bytes": 400_000, "segment.index.bytes": 8000, "index.interval.bytes": 500, "file.delete.delay.ms": 0,
    "retention.ms": -1, "cleanup.policy": "compact,delete", "delete.retention.ms": 0}
log = Log.open(path, "a", settings)
log.append_records([(b"%d" % offset, value(offset, 0)) for offset in range(3)])
print("ready", flush=True)
done = dict.fromkeys(("appends", "rolls", "deletes", "cleaned", "truncations"), 0)
lap, begin = 0, time.monotonic()
half = begin + seconds / 2
# Until everything was done and everybody has read enough, however slow the machine.
while (now := time.monotonic()) < begin + seconds or not all(done.values()) or not os.path.exists(path + ".enough"):
    if now >= half and not lap:
        # From here on offsets come again with other values.
        lap = 1
        open(path + ".truncates", "w").close()
    for _ in range(20):
        base = log.log_end_offset
        log.append_records([(b"%d" % offset, value(offset, lap)) for offset in range(base, base + draw.randrange(1, 40))],
            compression=draw.choice((None, None, "lz4")))
        done["appends"] += 1
    what = draw.random()
    if what < 0.04:
        log.roll()
        done["rolls"] += 1
    elif what < 0.1:
        done["cleaned"] += log.compact(*([0] if draw.random() < 0.3 else [])).segments_before
    elif what < 0.2:
        start, end = log.log_start_offset, log.log_end_offset
        if end - start > 50_000:
            log.delete_records_before(end - draw.randrange(5_000, 40_000))
            done["deletes"] += len(log.maintain(only=["retention", "deletes"]).removed)
    elif lap and what < 0.5:
        lap += 1
        # Never inside the batch where the log starts: docs/limitations.md says what readers then meet.
        done["truncations"] += log.truncate_to(max(log.log_start_offset + 40, log.log_end_offset - draw.randrange(1, 3_000)))
log.close()
print(json.dumps(done), flush=True)
"""
)

READER = (
    COMMON
    + """
kind = sys.argv[4]
told = {"batches": 0, "records": 0, "passes": 0, "deleted": 0, "errors": []}
scan = None
def ended(*_):
    # A pass may be as long as the test where the machine has much to do.
    if scan is not None: told["batches"] += scan.report.batches
    print(json.dumps(told), flush=True)
    os._exit(0)
is_telling = False
def asked(*_):
    global is_telling
    # Asked again before it had the turns to answer: one answer is enough, and a second one inside it would take its file away.
    if is_telling: return
    is_telling = True
    batches = told["batches"] + (scan.report.batches if scan is not None else 0)
    with open(f"{path}.{kind}.new", "w") as file: print(batches, told["records"], file=file)
    os.rename(f"{path}.{kind}.new", f"{path}.{kind}")
    is_telling = False
signal.signal(signal.SIGTERM, ended)
signal.signal(signal.SIGUSR1, asked)
def wrong(why, *more):
    print("WRONG", kind, why, *more, flush=True)
    os._exit(1)
def right(offset, found, lax):
    at, lap, mixed = struct.unpack(">QQQ", found[:24])
    if at != offset or mixed != (offset * MIX ^ lap) % (1 << 64) or len(found) != 24 + offset % 50 or (lap and not lax()):
        wrong("record", offset, found)
def is_lax():
    return os.path.exists(path + ".truncates")
def columns(table, before):
    offsets = table["offset"].combine_chunks().to_numpy()
    if not len(offsets): return before
    values = table["value"].combine_chunks()
    ends = numpy.frombuffer(values.buffers()[1], dtype=numpy.int32, count=len(values) + values.offset + 1)[values.offset:]
    data = numpy.frombuffer(values.buffers()[2], dtype=numpy.uint8)
    heads = data[ends[:-1, None] + numpy.arange(24)].reshape(-1).view(">u8").reshape(-1, 3).astype(numpy.uint64)
    mixed = offsets.astype(numpy.uint64) * numpy.uint64(MIX) ^ heads[:, 1]
    if (heads[:, 0] != offsets).any() or (heads[:, 2] != mixed).any() or (numpy.diff(ends) != 24 + offsets % 50).any():
        wrong("columns")
    steps = numpy.diff(offsets)
    if (steps <= 0).any(): wrong("order", offsets[:-1][steps <= 0][:3])
    if ((steps != 1).any() or (before is not None and offsets[0] != before + 1) or heads[:, 1].any()) and not is_lax():
        wrong("gap", before, offsets[0], offsets[:-1][steps != 1][:3])
    return int(offsets[-1])
log = None
def once():
    global log, scan
    if log is None or kind == "anew":
        if log is not None: log.close()
        log = Log.open(path)
    scan = log.scan(columns=["offset", "value"], threads=2, batch_rows=5000) if kind == "columns" else log.scan()
    try:
        read(scan)
    finally:
        # Also of what was cut short: who follows the end of a log that always grows comes to none.
        told["batches"] += scan.report.batches
        scan = None
def read(scan):
    before = None
    if kind == "columns":
        for batch in pyarrow.RecordBatchReader.from_stream(scan):
            before = columns(pyarrow.Table.from_batches([batch]), before)
            told["records"] += batch.num_rows
    else:
        # One follows the end, the other reads what there is and begins again.
        for record in scan.follow(timeout_ms=50) if kind == "follows" else scan:
            right(record.offset, record.value, is_lax)
            if before is not None and record.offset != before + 1 and (record.offset <= before or not is_lax()):
                wrong("gap", before, record.offset)
            before = record.offset
            told["records"] += 1
        if kind == "anew" and before is not None:
            found = log.get(draw.randrange(max(0, before - 1000), before + 1))
            if found is not None: right(found.offset, found.value, is_lax)
print("ready", flush=True)
while True:
    try:
        once()
        told["passes"] += 1
    except OffsetOutOfRangeError:
        told["deleted"] += 1
    except (OffsetLogError, OSError, pyarrow.ArrowInvalid) as error:
        # Through Arrow's stream an error is only its words.
        if isinstance(error, pyarrow.ArrowInvalid) and " is out of range: readable offsets are " in str(error):
            told["deleted"] += 1
            continue
        if not is_lax(): wrong("error", type(error).__name__, error)
        if len(told["errors"]) < 1000: told["errors"].append(type(error).__name__)
"""
)
KINDS = ("columns", "follows", "anew")


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python program that said that it is ready."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def wait_until_enough_was_read(path: Path, processes: Mapping[str, subprocess.Popen[str]], floor: int) -> None:
    """Each reader says how far it came, when it is asked."""
    hung = time.monotonic() + 1200
    while True:
        told = {kind: Path(f"{path}.{kind}") for kind in processes}
        read = {kind: list(map(int, file.read_text().split())) if file.exists() else [0, 0] for kind, file in told.items()}
        if sum(batches for batches, _ in read.values()) >= floor and all(
            batches > 100 and records for batches, records in read.values()
        ):
            return
        assert time.monotonic() < hung, read
        for kind, process in processes.items():
            assert process.poll() is None, kind
            process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)


def test_three_readers_beside_a_writer(tmp_path: Path) -> None:
    """Nothing but whole and right records, no signal, and every reader got somewhere."""
    with row(15, "readers beside a writer", "batches read", BATCHES) as part:
        path = tmp_path / "orders-0"
        seconds = SECONDS * max(SCALE, 0.1)
        processes = [started(WRITER, path, part.seed, seconds)]
        try:
            processes += [started(READER, path, part.seed, seconds, kind) for kind in KINDS]
            writer, *readers = processes
            wait_until_enough_was_read(path, dict(zip(KINDS, readers, strict=True)), part.floor)
            Path(f"{path}.enough").touch()
            written, _ = writer.communicate(timeout=seconds + 300)
            assert writer.returncode == 0
            told = {}
            for kind, reader in zip(KINDS, readers, strict=True):
                reader.send_signal(signal.SIGTERM)
                said, _ = reader.communicate(timeout=300)
                assert reader.returncode == 0, f"{kind} ended with {reader.returncode}: {said[-2000:]}"
                told[kind] = json.loads(said.splitlines()[-1])
                part.count(told[kind]["batches"])
        finally:
            for process in processes:
                process.kill()
                process.communicate()
        done = json.loads(written)
        print({kind: {**found, "errors": len(found["errors"])} for kind, found in told.items()}, done)
        assert all(done.values()), done
        assert all(found["batches"] > 100 and found["records"] for found in told.values()), told
        with Log.open(path) as log:
            assert log.scan().count() > 0
