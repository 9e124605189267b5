"""Rows 11 and 12, in a process of its own: aiokafka's record decoder and offsetlog's Python scan, in turn on the same file.

Prints one line of JSON per figure. aiokafka is handed the file's bytes in memory; offsetlog opens and reads the file.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import aiokafka
import pyarrow.compute as pc
from aiokafka.record.memory_records import MemoryRecords

from data import BUILD
from offsetlog import Log
from processes import LineProgram
from python_works import COLUMNS, Sums, batches_of, offsetlog_batches, offsetlog_records


def aiokafka_records(data: bytes) -> Sums:
    """Decodes every record, CRC checked."""
    batches = MemoryRecords(data)
    count = total = 0
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise SystemExit("aiokafka: wrong CRC")
        for record in batch:
            total += len(record.key) + len(record.value) + record.offset
            count += 1
    return count, total


def sums_of_batches(directory: Path) -> Sums:
    """What the Arrow batches hold."""
    with Log.open(directory) as log:
        table = log.scan(columns=COLUMNS).to_arrow()
    total = sum(pc.sum(pc.binary_length(table[name])).as_py() for name in ("key", "value"))
    return table.num_rows, total + pc.sum(table["offset"]).as_py()


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Measures one directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--rows", type=int, nargs="+", required=True)
    parser.add_argument("--ours", type=Path, required=True, help="the program `ours`")
    arguments = parser.parse_args()
    directory: Path = arguments.directory
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    expected = aiokafka_records(data)
    if "_crecords" not in MemoryRecords.__module__:
        raise SystemExit(f"aiokafka {aiokafka.__version__} runs without its C extension: it would be no fair peer")
    # A map is worth having where it is kept: the peer has the bytes in memory too.
    mapped = Log.open(directory, mapped=True)
    works: dict[int, dict[str, Callable[[], object]]] = {
        11: {"": lambda: offsetlog_batches(directory), ", kept mapped": lambda: batches_of(mapped)},
        12: {"": lambda: offsetlog_records(directory)},
    }
    checks: dict[int, Callable[[], Sums]] = {
        11: lambda: sums_of_batches(directory),
        12: lambda: offsetlog_records(directory),
    }
    with LineProgram("ours", [str(arguments.ours)], BUILD / "columns-limit.log") as bare:
        # Where a map is kept nothing is read: another limit, which no program shows yet.
        limits: dict[tuple[int, str], Callable[[], float]] = {(11, ""): lambda: bare.round("columns-limit", directory, 1).cpu}
        for row in arguments.rows:
            found = checks[row]()
            if found != expected:
                raise SystemExit(f"row {row}: aiokafka met {expected}, ours {found}")
            for how, work in works[row].items():
                work()
                limit = limits.get((row, how))
                costs: dict[str, list[float]] = {"peer": [], "ours": [], "limit": []}
                for _ in range(arguments.rounds):
                    costs["peer"].append(cpu_seconds(lambda: aiokafka_records(data)))
                    costs["ours"].append(cpu_seconds(work))
                    if limit:
                        costs["limit"].append(limit())
                print(json.dumps({"row": row, "how": how, "count": expected[0], **costs}), flush=True)


if __name__ == "__main__":
    main()
