"""The rows of the table of promises: each test of one counts its cases and leaves a file, from which the summary table is made.

A test that counts fewer cases than its floor fails. One that cannot run here says why; the table prints the reason.
"""

from __future__ import annotations

import functools
import json
import math
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, ParamSpec

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCALE = float(os.environ.get("OFFSETLOG_SCALE", "1"))
P = ParamSpec("P")


def folder() -> Path:
    """Where rows leave their files."""
    return Path(os.environ.get("OFFSETLOG_ROWS", ROOT / "build/rows"))


class Row:
    """One test's part of a row.

    Attributes
    ----------
    floor
        The fewest cases that count as done, scaled by ``OFFSETLOG_SCALE`` unless they are ``fixed``.
    seed
        Where all randomness of the test comes from: ``OFFSETLOG_SEED``, drawn anew in a soak (a scale of 1 or more), else the row's
        number. It is printed, and stands in the file.
    """

    def __init__(self, number: int, name: str, unit: str, floor: int, *, fixed: bool = False) -> None:
        self.number, self.name, self.unit = number, name, unit
        self.floor = floor if fixed else math.ceil(floor * SCALE)
        # The same choices each time, so that a change is judged by what it changes, and the first of them in a quick look; a soak draws
        # others.
        drawn = random.SystemRandom().randrange(10**9) if "OFFSETLOG_SCALE" in os.environ and SCALE >= 1 else number
        self.seed = int(os.environ.get("OFFSETLOG_SEED") or drawn)
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
def row(number: int, name: str, unit: str, floor: int, *, fixed: bool = False) -> Iterator[Row]:
    """Count the cases of one test of a row; a test that fails leaves no file, so that its row is missing from the table."""
    part = Row(number, name, unit, floor, fixed=fixed)
    print(f"row {number}, {name}: OFFSETLOG_SEED={part.seed}")
    start = time.monotonic()
    try:
        yield part
    except pytest.skip.Exception:
        part.write(time.monotonic() - start)
        raise
    assert part.cases >= part.floor, f"row {number}, {name}: {part.cases} {part.unit}, at least {part.floor} are asked for"
    part.write(time.monotonic() - start)


def counted(number: int, unit: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A test that is one case of a row."""

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def inner(*args: P.args, **kwargs: P.kwargs) -> None:
            name = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].removesuffix(" (call)")
            with row(number, name, unit, 1, fixed=True) as part:
                test(*args, **kwargs)
                part.count()

        return inner

    return decorate
