"""Rows 36 and 37: what safety costs. Ours beside itself, without the check or without the layer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from beside import Beside, same, warm
from data import BUILD, scan_spec
from figures import NotCompared, Row, gigabytes, per_second
from write_rows import KEY_BYTES, SINGLE_RECORDS, source_spec

ROWS = frozenset({36, 37})
SCANS = (("none", 100), ("none", 1000), ("lz4", 1000))
# A batch of one record of the benches is its value and so many bytes.
BATCH_OVER_VALUE = 88
REPEATS = 4


@dataclass(frozen=True)
class Sides:
    """The same work twice; another commit is asked for what of it is the engine's."""

    number: int
    work: str
    without: str
    bare: tuple[str | int | Path, ...]
    safe: tuple[str | int | Path, ...]
    show: Callable[[float], str]


class Safety:
    """Runs the rows."""

    _folder = BUILD / "safety"

    def __init__(self, beside: Beside) -> None:
        self._beside = beside

    def rows(self, wanted: Collection[int]) -> Iterator[Row | NotCompared]:
        """Measures the wanted rows."""
        if 36 in wanted:
            for codec, value_bytes in SCANS:
                yield from self._lines(self._checked(codec, value_bytes))
        if 37 in wanted:
            yield from self._lines(self._through_the_trait())
        shutil.rmtree(self._folder, ignore_errors=True)

    def _lines(self, sides: Sides) -> Iterator[Row | NotCompared]:
        line = self._beside.line
        if not self._beside.comparing:
            yield from line(sides.number, sides.work, lambda: self._with_and_without(sides))
            return
        yield from line(sides.number, sides.work, lambda: self._compare(sides, sides.safe, sides.work))
        if sides.number == 36:
            work = sides.work.replace("every CRC checked", sides.without)
            yield from line(36, work, lambda: self._compare(sides, sides.bare, work))

    def _with_and_without(self, sides: Sides) -> Iterator[Row]:
        with self._beside.our_program() as ours:
            bare, safe = (lambda: ours.round(*sides.bare)), (lambda: ours.round(*sides.safe))
            same(warm(bare, 0.3), warm(safe, 0.3), sides.work)
            turns = self._beside.turns((ours,), bare, safe, sides.work)
        yield Row(sides.number, sides.work, sides.without, *turns.costs("cpu"), sides.show, "share")

    def _compare(self, sides: Sides, request: tuple[str | int | Path, ...], work: str) -> Iterator[Row]:
        peer, ours = programs = self._beside.programs()
        with peer, ours:
            turns = self._beside.turns(programs, lambda: peer.round(*request), lambda: ours.round(*request), work)
        yield Row(sides.number, work, "", *turns.costs("cpu"), sides.show)

    def _checked(self, codec: str, value_bytes: int) -> Sides:
        spec = scan_spec(self._beside.sizes, codec, value_bytes)
        log: Path = self._beside.data.log(spec).ours
        with self._beside.our_program() as ours:
            count = ours.round("records", log, 1).count * REPEATS
        return Sides(
            36,
            f"scan {codec} {value_bytes} B, every CRC checked",
            "unchecked",
            ("unchecked-records", log, REPEATS),
            ("records", log, REPEATS),
            gigabytes(0, count * (value_bytes + KEY_BYTES)),
        )

    def _through_the_trait(self) -> Sides:
        source: Path = self._beside.data.log(source_spec(self._beside.sizes, 100)).ours
        request = ("disk-writes", self._folder, source, SINGLE_RECORDS, 100 + BATCH_OVER_VALUE)
        return Sides(
            37,
            "writes of single 100 B records, through the trait",
            "the file itself",
            (*request, "file"),
            (*request, "trait"),
            per_second(SINGLE_RECORDS, "writes"),
        )
