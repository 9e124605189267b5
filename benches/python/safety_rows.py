"""Rows 36 and 37: what safety costs. Ours beside itself, without the check or without the layer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from data import BUILD, scan_spec
from engine import Beside, same, warm
from figures import Row, gigabytes, per_second
from processes import Round
from write_rows import KEY_BYTES, SINGLE_RECORDS, source_spec

ROWS = frozenset({36, 37})
SCANS = (("none", 100), ("none", 1000), ("lz4", 1000))
# A batch of one record of the benches is its value and so many bytes.
BATCH_OVER_VALUE = 88
REPEATS = 4


@dataclass(frozen=True)
class Sides:
    """The same work twice."""

    number: int
    work: str
    without: str
    bare: Callable[[], Round]
    safe: Callable[[], Round]
    show: Callable[[float], str]


class Safety(Beside):
    """Runs the rows."""

    _folder = BUILD / "safety"

    def rows(self, wanted: Collection[int]) -> Iterator[Row]:
        """Measures the wanted rows."""
        if 36 in wanted:
            for codec, value_bytes in SCANS:
                yield self._checked(codec, value_bytes)
        if 37 in wanted:
            yield self._through_the_trait()

    def _compare(self, sides: Sides) -> Row:
        same(warm(sides.bare, 0.3), warm(sides.safe, 0.3), sides.work)
        rounds = [(sides.bare(), sides.safe()) for _ in range(self._rounds)]
        bare, safe = ([part.cpu for part in side] for side in zip(*rounds, strict=True))
        return Row(sides.number, sides.work, sides.without, bare, safe, sides.show, "share")

    def _checked(self, codec: str, value_bytes: int) -> Row:
        spec = scan_spec(self._sizes, codec, value_bytes)
        log: Path = self._kafka.log(spec).ours
        with self._our_program() as ours:
            count = ours.round("records", log, 1).count * REPEATS
            sides = Sides(
                36,
                f"scan {codec} {value_bytes} B, every CRC checked",
                "unchecked",
                lambda: ours.round("unchecked-records", log, REPEATS),
                lambda: ours.round("records", log, REPEATS),
                gigabytes(0, count * (value_bytes + KEY_BYTES)),
            )
            return self._compare(sides)

    def _through_the_trait(self) -> Row:
        source: Path = self._kafka.log(source_spec(self._sizes, 100)).ours
        with self._our_program() as ours:

            def writes(how: str) -> Callable[[], Round]:
                return lambda: ours.round("disk-writes", self._folder, source, SINGLE_RECORDS, 100 + BATCH_OVER_VALUE, how)

            sides = Sides(
                37,
                "writes of single 100 B records, through the trait",
                "the file itself",
                writes("file"),
                writes("trait"),
                per_second(SINGLE_RECORDS, "writes"),
            )
            row = self._compare(sides)
        shutil.rmtree(self._folder, ignore_errors=True)
        return row
