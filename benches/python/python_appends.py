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

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from offsetlog import WritableLog
from python_works import FIRST_TIMESTAMP, PER_BATCH, WRITER_BATCH_BYTES, Pair, Work, appended, found, records_of, table_of

# The class of a peer; neither has types.
Builder = Callable[..., Any]


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


def ours_of(name: str, source: Path, records: int) -> Work:
    """The verb of that name."""
    return lambda directory, _: appended(name, directory, source, records)


def main() -> None:
    """Measures one size of values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--works", nargs="+", required=True)
    parser.add_argument("--records", type=int, required=True)
    arguments = parser.parse_args()
    source, records = arguments.source, arguments.records
    pairs = records_of(source, records)
    # Read before a clock starts.
    table_of(source, records)
    # Records and bytes of the peers' batches.
    batches = {
        "append": (1, 1 << 30),
        "writer.append": (1 << 30, WRITER_BATCH_BYTES),
        "append_records": (PER_BATCH, 1 << 30),
        "append_arrow": (PER_BATCH, 1 << 30),
    }
    for name in arguments.works:
        if name != "writer.append" and not hasattr(WritableLog, name):
            print(json.dumps({"work": name, "missing": "WritableLog has no such method"}), flush=True)
            continue
        per_batch, batch_bytes = batches[name]
        sides: dict[str, Work] = {
            "ours": ours_of(name, source, records),
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
