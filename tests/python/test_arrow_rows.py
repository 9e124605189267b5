"""Arrow batches of drawn logs: each row is the record that was written, and each batch is full exactly when the options say.

Most records have key and value and no headers, and one loop takes all of those; these logs mix them with every other kind.
"""

from __future__ import annotations

import datetime as dt
import gzip
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from make_log import GZIP, NONE, Header, batch, record, segment

from offsetlog import Log

SEED = int(os.environ.get("OFFSETLOG_SEED", "41"))
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NOW = 1_700_000_000_000
#: In microseconds it does not fit into 64 bits.
BEYOND = 1 << 61
COLUMNS = [
    ["key", "value", "offset", "timestamp"],
    ["value"],
    ["key", "offset"],
    ["timestamp", "headers"],
    ["headers", "key", "value"],
    ["sequence", "value", "offset"],
    ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"],
]


class Written(NamedTuple):
    """A record, as it must come back."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int
    headers: list[Header]

    @property
    def size(self) -> int:
        """What counts against `batch_bytes`: of headers their encoding, with a length of one byte before each part and no count."""
        parts = [part for header in self.headers for part in header]
        return len(self.key or b"") + len(self.value or b"") + sum(1 + len(part or b"") for part in parts)

    def cell(self, column: str) -> object:
        """Its value in a column."""
        match column:
            case "timestamp":
                return None if self.timestamp >= BEYOND else EPOCH + dt.timedelta(milliseconds=self.timestamp)
            case "headers":
                return [{"key": name.decode(), "value": content} for name, content in self.headers] or None
            case "topic":
                return "orders"
            case "partition" | "timestampType":
                return 0
            case "sequence":
                return -1
        return getattr(self, column)


def drawn_record(rng: random.Random, offset: int, timestamp: int, odd: float) -> Written:
    """A record with key and value, or with chance `odd` any other."""
    long = 9000 if rng.random() < 0.02 else 130
    key: bytes | None = rng.randbytes(rng.choice([0, 1, 3, 4, 8, 13, 16, 17, 64, 70]))
    value: bytes | None = rng.randbytes(rng.randrange(long))
    headers: list[Header] = []
    if rng.random() < odd:
        kind = rng.randrange(4)
        key = None if kind in {0, 3} else key
        value = None if kind in {1, 3} else value
        headers = [(b"trace", b"1"), (b"", None)] if kind == 2 else []
    return Written(key, value, offset, timestamp, headers)


def drawn(rng: random.Random, path: Path) -> list[Written]:
    """Writes a log and returns its records."""
    written: list[Written] = []
    parts = []
    offset = 0
    for _ in range(30):
        base = offset
        base_timestamp = BEYOND if rng.random() < 0.1 else NOW + 1000 * base
        odd = rng.choice([0, 0, 0.01, 0.3, 1])
        records: list[Written] = []
        for _ in range(rng.choice([1, 2, 30, 200])):
            # Compaction leaves gaps.
            offset += rng.randrange(1, 90) if rng.random() < 0.1 else 0
            step = rng.choice([0, 1, 70, 9000])
            records.append(drawn_record(rng, offset, base_timestamp + step, odd))
            offset += 1
        payload = b"".join(
            record(each.offset - base, (each.key, each.value, each.headers), each.timestamp - base_timestamp) for each in records
        )
        codec = NONE
        if rng.random() < 0.2:
            codec = GZIP
            payload = gzip.compress(payload, mtime=0)
        parts.append(
            batch(
                base,
                codec=codec,
                base_timestamp=base_timestamp,
                record_count=len(records),
                last_offset_delta=offset - 1 - base,
                payload=payload,
            )
        )
        written += records
    segment(path, 0, *parts)
    return written


def table(batches: list[pa.RecordBatch], columns: list[str]) -> list[tuple[object, ...]]:
    """All rows, without pyarrow's own classes."""
    rows = [row for each in batches for row in each.to_pylist()]
    return [tuple(row[column] for column in columns) for row in rows]


def options(rng: random.Random) -> Iterator[tuple[list[str], int | None, int | None, int]]:
    """Columns, limits of a batch, and threads."""
    for columns in COLUMNS:
        for threads in (1, 2):
            yield columns, rng.choice([None, 1, 3, 64, 500]), rng.choice([None, 1, 100, 4096, 40_000]), threads


@pytest.mark.parametrize("seed", range(SEED, SEED + 6))
def test_every_row_is_the_record_that_was_written(tmp_path: Path, seed: int) -> None:
    """With every column, limit and number of threads; from any offset to any other."""
    rng = random.Random(seed)
    path = tmp_path / "orders-0"
    written = drawn(rng, path)
    assert any(each.headers for each in written)
    assert any(each.key is None for each in written)
    end = written[-1].offset + 1
    with Log.open(path) as log:
        for columns, batch_rows, batch_bytes, threads in options(rng):
            start, stop = sorted(rng.choices(range(end + 1), k=2)) if rng.random() < 0.5 else (0, end)
            scan = log.scan(start, stop, columns=columns, batch_rows=batch_rows, batch_bytes=batch_bytes, threads=threads)
            batches = list(pa.RecordBatchReader.from_stream(scan))
            expected = [each for each in written if start <= each.offset < stop]
            cells = [tuple(each.cell(column) for column in columns) for each in expected]
            assert table(batches, columns) == cells
            if threads == 1:
                check_borders(batches, expected, batch_rows or 32_768, batch_bytes or 384 << 10)


def check_borders(batches: list[pa.RecordBatch], expected: list[Written], batch_rows: int, batch_bytes: int) -> None:
    """Each batch ends with the row that makes it full."""
    first = 0
    for number, each in enumerate(batches):
        assert each.num_rows > 0
        rows = expected[first : first + each.num_rows]
        first += each.num_rows
        sizes = [row.size for row in rows]
        assert len(rows) <= batch_rows
        assert sum(sizes[:-1]) < batch_bytes
        if number < len(batches) - 1:
            assert len(rows) == batch_rows or sum(sizes) >= batch_bytes


@pytest.mark.parametrize("good", [0, 1, 2, 40])
def test_rows_before_a_bad_record_come_first(tmp_path: Path, good: int) -> None:
    """A record that does not decode, behind plain ones of its batch: they are told, then the error with its place."""
    records = [record(delta, (b"key", b"value %d" % delta), delta) for delta in range(good)]
    # The key is longer than the record.
    records += [b"\x20\0" + b"\0" + bytes([2 * good]) + b"\x7e" + 12 * b"x", record(good + 1, (b"key", b"last"))]
    path = tmp_path / "orders-0"
    segment(path, 0, batch(0, record_count=good + 2, last_offset_delta=good + 1, payload=b"".join(records)))
    with Log.open(path) as log:
        values: list[bytes] = []
        with pytest.raises((pa.ArrowInvalid, OSError), match=r"00000000000000000000\.log.*position 0"):
            values.extend(
                row["value"] for each in pa.RecordBatchReader.from_stream(log.scan(columns=["value"])) for row in each.to_pylist()
            )
        assert values == [b"value %d" % delta for delta in range(good)]
        scan = log.scan(columns=["value", "offset"], on_corrupt="skip")
        assert scan.to_arrow()["offset"].to_pylist() == list(range(good))
        assert [hole.start for hole in scan.report.holes] == [good]


def test_a_long_scan_uses_the_same_buffers_again(tmp_path: Path) -> None:
    """Who holds one batch at a time makes the scan use three buffers a column in turn: fresh ones cost a page fault every 4 KiB."""
    directory = tmp_path / "orders-0"
    batches = [batch(base, [(b"k%d" % n, b"v" * 1000) for n in range(20)]) for base in range(0, 4000, 20)]
    segment(directory, 0, *batches)
    places: dict[str, list[int]] = {"key": [], "value": []}
    with Log.open(directory) as log:
        for found in pa.RecordBatchReader.from_stream(log.scan(columns=["key", "value"], batch_bytes=130_000)):
            for name, seen in places.items():
                seen.append(found.column(name).buffers()[2].address)
    assert len(places["value"]) > 25
    # The first ones grow.
    for seen in places.values():
        assert len(set(seen[10:])) <= 3
