"""A Python process that appends until somebody ends it, and says what the driver says: ``python appender.py DIRECTORY RUN SEED``."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from python_driver import PythonDriver


def say(words: str) -> None:
    """One call of ``write``."""
    os.write(1, f"{time.time_ns()} {words}\n".encode())


def main(directory: str, run: int, seed: int) -> None:
    """Append, flush, roll and truncate, as chance has it."""
    pick = random.Random(seed)
    flush, roll, truncate = pick.choice((0.0, 0.05, 0.5)), pick.choice((0.0, 0.02)), pick.choice((0.0, 0.0, 0.02))
    config: dict[str, int | str] = {
        "internal.segment.bytes": pick.choice((3000, 30_000)),
        "index.interval.bytes": 500,
        "file.delete.delay.ms": 0,
    }
    telling = PythonDriver(Path(directory), run, say, config)
    pause = pick.choice((0.0002, 0.001, 0.003))
    while True:
        time.sleep(pause * pick.random())
        telling.append(flush=pick.random() < flush / 4)
        if pick.random() < flush:
            telling.flush()
        if pick.random() < roll:
            telling.roll()
        if pick.random() < truncate:
            telling.truncate(pick.randrange(1, 30))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
