"""A Python process that appends until somebody ends it, and says what the driver says: ``python appender.py DIRECTORY RUN SEED``."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from promises import Batch, content

from offsetlog import Log, Record


def say(words: str) -> None:
    """One call of ``write``."""
    os.write(1, f"{time.time_ns()} {words}\n".encode())


def main(directory: str, run: int, seed: int) -> None:
    """Append, flush, roll and truncate, as chance has it."""
    pick = random.Random(seed)
    flush, roll, truncate = pick.choice((0.0, 0.05, 0.5)), pick.choice((0.0, 0.02)), pick.choice((0.0, 0.0, 0.02))
    config = {"internal.segment.bytes": pick.choice((3000, 30_000)), "index.interval.bytes": 500, "file.delete.delay.ms": 0}
    generation = 0
    log = Log.open(directory, "a", config)
    say(f"opened {log.log_end_offset}")
    while True:
        batch = Batch.at(run, generation, log.log_end_offset)
        records = [Record(log.topic, log.partition, at, timestamp=when, value=value) for at, when, value in contents(batch)]
        say(f"appending {generation} {batch.base}")
        done = log.append_records(records)
        say(f"acked {generation} {done.base_offset} {done.last_offset}")
        if pick.random() < flush:
            log.flush()
            say(f"flushed {log.log_end_offset}")
        if pick.random() < roll:
            say(f"rolled {log.roll()}")
        if pick.random() < truncate:
            offset = max(0, log.log_end_offset - pick.randrange(1, 30))
            say(f"truncating {offset}")
            generation += 1
            log.truncate_to(offset)
            say(f"truncated {offset}")


def contents(batch: Batch) -> list[tuple[int, int, bytes]]:
    """Offset, timestamp and value of each record."""
    return [(offset, *content(batch.run, batch.generation, offset)) for offset in range(batch.base, batch.last + 1)]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
