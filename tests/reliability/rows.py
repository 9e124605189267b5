"""The rows of the table of promises: each test of one counts its cases and leaves a file, from which the summary table is made.

A test that counts fewer cases than its floor fails. One that cannot run here says why; the table prints the reason.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCALE = float(os.environ.get("OFFSETLOG_SCALE", "1"))


def folder() -> Path:
    """Where rows leave their files."""
    return Path(os.environ.get("OFFSETLOG_ROWS", ROOT / "build/rows"))


class Row:
    """One test's part of a row.

    Attributes
    ----------
    floor
        The fewest cases that count as done, scaled by ``OFFSETLOG_SCALE``.
    seed
        Where all randomness of the test comes from: ``OFFSETLOG_SEED``, or drawn anew. It is printed, and stands in the file.
    """

    def __init__(self, number: int, name: str, unit: str, floor: int) -> None:
        self.number, self.name, self.unit = number, name, unit
        self.floor = math.ceil(floor * SCALE)
        self.seed = int(os.environ.get("OFFSETLOG_SEED") or random.SystemRandom().randrange(10**9))
        self.random = random.Random(self.seed)
        self.cases = 0
        self.skipped: str | None = None

    def count(self, n: int = 1) -> None:
        """So many more cases went through."""
        self.cases += n

    def skip(self, reason: str) -> NoReturn:
        """This part cannot run here: end the test, and say so in the table."""
        self.skipped = reason
        pytest.skip(reason)

    def write(self, seconds: float) -> None:
        """Leave the file."""
        slug = re.sub(r"\W+", "-", self.name.lower()).strip("-")
        folder().mkdir(parents=True, exist_ok=True)
        said = {
            "row": self.number,
            "name": self.name,
            "cases": self.cases,
            "unit": self.unit,
            "floor": self.floor,
            "seconds": round(seconds, 2),
            "skipped": self.skipped,
            "seed": self.seed,
        }
        (folder() / f"{self.number}-{slug}.json").write_text(json.dumps(said) + "\n", encoding="utf-8")


@contextmanager
def row(number: int, name: str, unit: str, floor: int) -> Iterator[Row]:
    """Count the cases of one test of a row; a test that fails leaves no file, so that its row is missing from the table."""
    part = Row(number, name, unit, floor)
    print(f"row {number}, {name}: OFFSETLOG_SEED={part.seed}")
    start = time.monotonic()
    try:
        yield part
    except pytest.skip.Exception:
        part.write(time.monotonic() - start)
        raise
    assert part.cases >= part.floor, f"row {number}, {name}: {part.cases} {part.unit}, at least {part.floor} are asked for"
    part.write(time.monotonic() - start)
