"""Appending from Python, in a process of its own: offsetlog's verbs beside the batch builders of aiokafka and kafka-python, in turn.

The peers build batches and write their bytes to a file, offsets patched in, so that the file is a log; there is no validation, index
or lock on their side. Prints one line of JSON per figure. CPU seconds of this process, threads of the writer included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from offsetlog import Log

FIRST_TIMESTAMP = 1_700_000_000_000
PER_BATCH = 1000
WRITER_BATCH_BYTES = 16_384
Pair = tuple[bytes, bytes]
# The class of a peer; neither has types.
Builder = Callable[..., Any]
# A new directory in; records appended as given.
Work = Callable[[Path, list[Pair]], None]


def built(builder: Builder, pairs: list[Pair], per_batch: int, batch_bytes: int) -> Iterator[bytes]:
    """Whole batches: by number of records, or by size where that comes first."""
    offset, left = 0, iter(pairs)
    pending = next(left, None)
    while pending is not None:
        batch = builder(
            magic=2,
            compression_type=0,
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=batch_bytes,
        )
        count = 0
        while pending is not None and count < per_batch:
            key, value = pending
            if batch.append(count, FIRST_TIMESTAMP + offset + count, key, value, []) is None:
                break
            count += 1
            pending = next(left, None)
        data = batch.build()
        # Base offset and leader epoch, as a leader sets them; the checksum does not cover them.
        struct.pack_into(">q", data, 0, offset)
        struct.pack_into(">i", data, 12, 0)
        offset += count
        yield data


def by_peer(builder: Builder, per_batch: int, batch_bytes: int = 1 << 30) -> Work:
    """A peer's builder, and a file."""

    def work(directory: Path, pairs: list[Pair]) -> None:
        directory.mkdir()
        file = os.open(directory / f"{0:020}.log", os.O_WRONLY | os.O_CREAT)
        for data in built(builder, pairs, per_batch, batch_bytes):
            os.write(file, data)
        os.close(file)

    return work


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
        log.append_arrow(batch)  # type: ignore[attr-defined]  # newer than the stubs
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
    """What a log holds: records, bytes of keys and values, sum of the offsets, and a hash of all keys and values in order."""
    with Log.open(directory) as log:
        table = log.scan(columns=["key", "value", "offset"]).to_arrow()
    lengths = sum(pc.sum(pc.binary_length(table[name])).as_py() for name in ("key", "value"))
    content = hash(tuple(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)))
    return table.num_rows, lengths, pc.sum(table["offset"]).as_py(), content


def records_of(source: Path, count: int) -> list[Pair]:
    """The first records of a log."""
    with Log.open(source) as log:
        table = log.scan(columns=["key", "value"], limit=count).to_arrow()
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def main() -> None:
    """Measures one size of values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--works", nargs="+", required=True)
    parser.add_argument("--records", type=int, required=True)
    arguments = parser.parse_args()
    pairs = records_of(arguments.source, arguments.records)
    table = arrow_table(pairs)
    works: dict[str, tuple[Work, int, int]] = {
        "append": (append_one_by_one, 1, 1 << 30),
        "writer.append": (append_by_writer, 1 << 30, WRITER_BATCH_BYTES),
        "append_records": (append_records, PER_BATCH, 1 << 30),
        "append_arrow": (lambda directory, _: append_arrow(directory, table), PER_BATCH, 1 << 30),
    }
    for name in arguments.works:
        if name != "writer.append" and not hasattr(Log, name):
            print(json.dumps({"work": name, "missing": "Log has no such method"}), flush=True)
            continue
        ours, per_batch, batch_bytes = works[name]
        sides: dict[str, Work] = {
            "ours": ours,
            "aiokafka": by_peer(AiokafkaBuilder, per_batch, batch_bytes),
            "kafka-python": by_peer(KafkaPythonBuilder, per_batch, batch_bytes),
        }
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        contents = {}
        for turn in range(arguments.rounds + 1):
            for side, work in sides.items():
                directory = arguments.scratch / f"python-{side}-0"
                shutil.rmtree(directory, ignore_errors=True)
                start = time.process_time()
                work(directory, pairs)
                if turn > 0:
                    seconds[side].append(time.process_time() - start)
                else:
                    contents[side] = found(directory)
        if len(set(contents.values())) != 1:
            raise SystemExit(f"{name}: the sides wrote different records: {contents}")
        figure = {"work": name, "count": len(pairs), "ours": seconds.pop("ours"), "peers": seconds}
        print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
