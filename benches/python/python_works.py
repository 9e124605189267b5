"""What offsetlog does in the Python rows. As a program it answers `WORK DIRECTORY [ARGUMENTS]` line by line, as `bin/ours.rs` does, so
that the packages of two commits can take turns in two interpreters.

`scan-arrow DIRECTORY` and `scan-records DIRECTORY` read a log. `append DIRECTORY SOURCE RECORDS`, `writer.append ...`,
`append_records ...` and `append_arrow ...` append the first records of the log in SOURCE to a new one. CPU seconds of the process.
"""

from __future__ import annotations

import functools
import pickle
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from offsetlog import Log

COLUMNS = ["key", "value", "offset", "timestamp"]
FIRST_TIMESTAMP = 1_700_000_000_000
PER_BATCH = 1000
WRITER_BATCH_BYTES = 16_384
Sums = tuple[int, int]
Pair = tuple[bytes, bytes]
# A new directory in; records appended as given.
Work = Callable[[Path, list[Pair]], None]


def offsetlog_records(directory: Path) -> Sums:
    """Iterates record objects."""
    count = total = 0
    with Log.open(directory) as log:
        for record in log.scan():
            total += len(record.key) + len(record.value) + record.offset  # type: ignore[arg-type]  # none is null here
            count += 1
    return count, total


def offsetlog_batches(directory: Path) -> int:
    """Opens a log and takes every Arrow batch."""
    with Log.open(directory) as log:
        return batches_of(log)


def batches_of(log: Log) -> int:
    """Takes every Arrow batch of a log that is open."""
    reader = pa.RecordBatchReader.from_stream(log.scan(columns=COLUMNS))
    return sum(batch.num_rows for batch in reader)


def chunks(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Records of a batch."""
    return (pairs[start : start + PER_BATCH] for start in range(0, len(pairs), PER_BATCH))


def append_one_by_one(directory: Path, pairs: list[Pair]) -> None:
    """`append`."""
    log = Log.open(directory, mode="a")
    for offset, (key, value) in enumerate(pairs):
        log.append(value, key=key, timestamp=FIRST_TIMESTAMP + offset)
    log._abandon()


def append_by_writer(directory: Path, pairs: list[Pair]) -> None:
    """`writer.append`."""
    log = Log.open(directory, mode="a")
    with log.writer(batch_bytes=WRITER_BATCH_BYTES) as writer:
        for offset, (key, value) in enumerate(pairs):
            writer.append(value, key=key, timestamp=FIRST_TIMESTAMP + offset)
    log._abandon()


def append_records(directory: Path, pairs: list[Pair]) -> None:
    """`append_records`, with the time of the call: pairs have none of their own."""
    log = Log.open(directory, mode="a")
    for chunk in chunks(pairs):
        log.append_records(chunk)
    log._abandon()


def append_arrow(directory: Path, table: pa.Table) -> None:
    """`append_arrow`, a batch of records a call."""
    log = Log.open(directory, mode="a")
    for batch in table.to_batches(max_chunksize=PER_BATCH):
        log.append_arrow(batch)
    log._abandon()


def arrow_table(pairs: list[Pair]) -> pa.Table:
    """The records as columns."""
    times = pa.array(range(FIRST_TIMESTAMP, FIRST_TIMESTAMP + len(pairs)), pa.int64())
    return pa.table(
        {
            "key": pa.array([key for key, _ in pairs], pa.binary()),
            "value": pa.array([value for _, value in pairs], pa.binary()),
            "timestamp": times.cast(pa.timestamp("ms", "UTC")),
        }
    )


def found(directory: Path) -> tuple[int, int, int, int]:
    """What a log holds: records, bytes of keys and values, sum of the offsets, and a checksum of all keys and values in order."""
    with Log.open(directory) as log:
        table = log.scan(columns=["key", "value", "offset"]).to_arrow()
    content = 0
    for name in ("key", "value"):
        content = zlib.crc32(b"".join(table[name].to_pylist()), content)
    lengths = sum(pc.sum(pc.binary_length(table[name])).as_py() for name in ("key", "value"))
    return table.num_rows, lengths, pc.sum(table["offset"]).as_py(), content


@functools.cache
def records_of(source: Path, count: int) -> list[Pair]:
    """The first records of a log, from a file beside it: where reading the log leaves them in memory decides what appending them costs."""
    kept = source.parent / f"{source.name}-{count}.pairs"
    if not kept.exists() or kept.stat().st_mtime < source.stat().st_mtime:
        with Log.open(source) as log:
            table = log.scan(columns=["key", "value"], limit=count).to_arrow()
        pairs = list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
        made = kept.with_suffix(".making")
        made.write_bytes(pickle.dumps(pairs))
        made.replace(kept)
    found: list[Pair] = pickle.loads(kept.read_bytes())  # noqa: S301  # written above
    return found


@functools.cache
def table_of(source: Path, count: int) -> pa.Table:
    """The same as columns."""
    return arrow_table(records_of(source, count))


def scanned(work: str, directory: Path) -> Sums:
    """A round of reading."""
    return (offsetlog_batches(directory), 0) if work == "scan-arrow" else offsetlog_records(directory)


def appended(work: str, directory: Path, source: Path, count: int) -> None:
    """A round of appending."""
    if work == "append_arrow":
        append_arrow(directory, table_of(source, count))
        return
    works = {"append": append_one_by_one, "writer.append": append_by_writer, "append_records": append_records}
    works[work](directory, records_of(source, count))


def answer(work: str, directory: Path, *arguments: str) -> str:
    """One round."""
    if work.startswith("scan-"):
        cpu, wall = time.process_time(), time.perf_counter()
        count, total = scanned(work, directory)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    else:
        source, records = Path(arguments[0]), int(arguments[1])
        # Read before the clock starts.
        _ = table_of(source, records)
        shutil.rmtree(directory, ignore_errors=True)
        cpu, wall = time.process_time(), time.perf_counter()
        appended(work, directory, source, records)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        count, lengths, offsets, content = found(directory)
        total = lengths + offsets + content
    return f"cpu={cpu:.9f} wall={wall:.9f} count={count} sum={total}"


def main() -> None:
    """Answers."""
    print("ready", flush=True)
    for line in sys.stdin:
        work, directory, *arguments = line.split()
        try:
            print(answer(work, Path(directory), *arguments), flush=True)
        except Exception as error:  # noqa: BLE001 - the other side shall read it, whatever it is
            print("error", f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
