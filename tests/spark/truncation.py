"""Logs that are truncated and grow again under another leader, for the tests of what Spark notices of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stream_engine import Checkpoint, Crash

from offsetlog import Log

__all__ = ["LENIENT", "NAME", "append", "at", "die_when", "offsets", "query", "regrown"]

LENIENT = {"failOnDataLoss": "false"}
NAME = "t-0"


def append(folder: Path, epoch: int | None, *sizes: int, name: str = NAME) -> None:
    """Append batches of so many records; each key is its record's offset."""
    with Log.open(folder / name, "a") as log:
        for size in sizes:
            rows = [(b"%d" % (log.log_end_offset + row), b"in epoch %d" % (epoch or 0)) for row in range(size)]
            log.append_records(rows, leader_epoch=epoch)


def regrown(folder: Path, offset: int, epoch: int, *sizes: int, name: str = NAME) -> None:
    """What a follower does whose leader has fewer records, and then those of the next leader."""
    with Log.open(folder / name, "a") as log:
        log.truncate_to(offset)
    append(folder, epoch, *sizes, name=name)


def query(folder: Path, **options: str) -> dict[str, str]:
    return {"path": str(folder), "subscribe": "t", "startingOffsets": "earliest", **options}


def offsets(checkpoint: Checkpoint, topic: str = "t") -> list[int]:
    return checkpoint.records().get((topic, 0), [])


def at(wanted: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Do something the first time that an engine comes to a point."""
    left = [act]

    def then(point: str) -> None:
        if point == wanted and left:
            left.pop()()

    return then


def die_when(wanted: str) -> Callable[[str], None]:
    def die(point: str) -> None:
        if point == wanted:
            raise Crash

    return die
