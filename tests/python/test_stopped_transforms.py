"""A function in a scan's tasks that stops early: the report has what it took, and what was left out until then. Without a session."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden import DATA

from offsetlog.spark import SplitRead, direct
from offsetlog.spark.filters import Pushed
from offsetlog.spark.options import settings_from
from offsetlog.spark.planning import plan

TORN = DATA / "kafka-4.3.0/torn/log-dir-1"
# One batch of four records is damaged, offsets 36 to 39.
RECORDS = 92

Batches = Iterator[pa.RecordBatch]


class Told:
    """In the place of Spark's accumulator."""

    def __init__(self) -> None:
        self.of_tasks: dict[int, tuple[SplitRead, ...]] = {}

    def add(self, more: dict[int, tuple[SplitRead, ...]]) -> None:
        self.of_tasks.update(more)


def looked_at(batches: Batches) -> Batches:
    yield next(batches)


def kept_open(batches: Batches) -> Batches:
    KEPT.append(batches)
    return itertools.islice(batches, 1)


KEPT: list[Batches] = []
TRANSFORMS: list[tuple[Callable[[Batches], Iterable[pa.RecordBatch]] | None, int]] = [
    (None, RECORDS),
    (lambda batches: batches, RECORDS),
    (list, RECORDS),
    (lambda batches: itertools.islice(batches, 1), RECORDS),
    (looked_at, RECORDS),
    (kept_open, RECORDS),
    (lambda _: (), 0),
]


def open_logs() -> list[str]:
    """Of this file's data: what other tests left open in this process may be collected at any time."""
    names = (os.path.realpath(path) for path in Path("/proc/self/fd").iterdir())
    return sorted(name for name in names if name.endswith(".log") and Path(name).is_relative_to(TORN.resolve()))


@pytest.mark.parametrize(("transform", "taken"), TRANSFORMS)
@pytest.mark.parametrize("is_told", [False, True])
def test_what_was_taken_is_told(transform: Callable[[Batches], Iterable[pa.RecordBatch]] | None, taken: int, is_told: bool) -> None:
    settings = settings_from({"path": str(TORN), "subscribe": "g-torn-flip-old", "onCorrupt": "skip"})
    tasks: list[Any] = [tuple(map(tuple, task)) for task in plan(settings)]
    told = Told()
    numbers = [pa.RecordBatch.from_pydict({"id": pa.array(range(len(tasks)), pa.int64())})]
    # Logs that stay open in a worker, for whatever it reads next.
    assert sum(batch.num_rows for batch in direct._read(tasks, settings, Pushed(), None, None, numbers)) == RECORDS  # noqa: SLF001
    before = open_logs()
    accumulator: Any = told if is_told else None
    rows = sum(batch.num_rows for batch in direct._read(tasks, settings, Pushed(), transform, accumulator, numbers))  # noqa: SLF001
    assert rows == taken
    assert open_logs() == before
    assert sorted(told.of_tasks) == (list(range(len(tasks))) if is_told else [])
    reads = [read for of_task in told.of_tasks.values() for read in of_task]
    assert sum(read.records for read in reads) == (taken if is_told else 0)
    assert [(hole.start, hole.stop) for read in reads for hole in read.holes] == ([(36, 40)] if is_told and taken else [])
