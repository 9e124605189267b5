"""Rows 40 to 42: what operators do beside what does the least of it: `salvage` beside a scan, `why` beside `ls`, `restore` beside `cp`."""

from __future__ import annotations

import filecmp
import functools
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from beside import Beside, Check, Cost, DifferentError, warm
from data import BUILD, open_spec, scan_spec
from figures import NotCompared, Row, gigabytes, milliseconds
from processes import Round
from upkeep_rows import PARTITIONS, many_partitions, scaled
from write_rows import KEY_BYTES

ROWS = frozenset({40, 41, 42})
SALVAGED = (("none", 1000), ("lz4", 1000), ("none", 100))
GOAL = 0.7
FLOOR = {42: 0.5}


@dataclass(frozen=True)
class Sides:
    """The work, and what only reads the same; another commit is asked for the work."""

    number: int
    work: str
    plain_name: str
    plain: tuple[str | Path, ...]
    rescue: tuple[str | Path, ...]
    costs: tuple[Cost, ...]
    """By the first it is judged."""
    check: Check
    show: Callable[[float], str]
    limit: tuple[str | Path, ...] = ()
    """What the machine itself needs for the work."""


def named(sides: Sides) -> list[tuple[Cost, str]]:
    """Its costs, each with the name of its line."""
    first, *others = sides.costs
    return [(first, sides.work), *((cost, f"{sides.work}, {cost}") for cost in others)]


def nothing_lost(scan: Round, salvage: Round, work: str) -> None:
    """Of a sound log the new one has every record."""
    if scan.count != salvage.count:
        raise DifferentError(f"{work}: {scan.count} records were met, the new log has {salvage.count}")


def every_partition(least: int, listed: Round, explained: Round, work: str) -> None:
    """Both print a line a partition."""
    if min(listed.count, explained.count) < least:
        raise DifferentError(f"{work}: {listed.count} and {explained.count} lines for {least} partitions")


def log_bytes(place: Path) -> int:
    """Bytes of all segments below a folder."""
    return sum(file.stat().st_size for file in place.rglob("*.log"))


class Whole:
    """Nothing is missing in a copy and a restored log dir: every byte and every record once, the sizes in each round."""

    def __init__(self, source: Path, copied: Path, restored: Path, records: Callable[[Path], Round]) -> None:
        self._source, self._copied, self._restored = source, copied, restored
        self._records = records
        self._is_read = False

    def __call__(self, _copied: Round, restored: Round, work: str) -> None:
        partitions = sorted(place.name for place in self._source.iterdir())
        expected = log_bytes(self._source)
        for place in (self._copied, self._restored):
            if log_bytes(place) != expected:
                raise DifferentError(f"{work}: {expected} bytes in the source, {log_bytes(place)} in {place.name}")
        if restored.count != len(partitions):
            raise DifferentError(f"{work}: {len(partitions)} partitions in the source, {restored.count} restored")
        if not self._is_read:
            for name in partitions:
                self._read(name, work)
        self._is_read = True

    def _read(self, name: str, work: str) -> None:
        files = sorted(file.name for file in (self._source / name).glob("*.log"))
        _, other, missing = filecmp.cmpfiles(self._source / name, self._copied / name, files, shallow=False)
        if other or missing:
            raise DifferentError(f"{work}: {(other + missing)[0]} of {name} is another one in the copy")
        met, again = self._records(self._source / name), self._records(self._restored / name)
        if (met.count, met.sum) != (again.count, again.sum):
            raise DifferentError(
                f"{work}: {name} has {met.count} records with sum {met.sum}, restored {again.count} with sum {again.sum}"
            )


class Rescue:
    """Runs the rows."""

    _folder = BUILD / "rescue"

    def __init__(self, beside: Beside) -> None:
        self._beside = beside

    def rows(self, wanted: Collection[int]) -> Iterator[Row | NotCompared]:
        """Measures the wanted rows."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if 40 in wanted:
            for codec, value_bytes in SALVAGED:
                yield from self._line(self._salvage(codec, value_bytes))
        if 41 in wanted:
            yield from self._line(self._why())
        if 42 in wanted:
            yield from self._line(self._restore())
        shutil.rmtree(self._folder, ignore_errors=True)

    def _line(self, sides: Sides) -> Iterator[Row | NotCompared]:
        measured = self._compare if self._beside.comparing else self._beside_itself
        return self._beside.line(sides.number, sides.work, functools.partial(measured, sides))

    def _beside_itself(self, sides: Sides) -> Iterator[Row]:
        with self._beside.our_program() as ours:
            plain, rescue = (lambda: ours.round(*sides.plain)), (lambda: ours.round(*sides.rescue))
            sides.check(warm(plain, 0.3), warm(rescue, 0.3), sides.work)
            limit = (lambda: ours.round(*sides.limit)) if sides.limit else None
            turns = self._beside.turns((ours,), plain, rescue, sides.work, sides.costs, check=sides.check, limit=limit)
        floor = FLOOR.get(sides.number, GOAL)
        for cost, work in named(sides):
            yield Row(sides.number, work, sides.plain_name, *turns.costs(cost), sides.show, "times", floor, GOAL, turns.limit(cost))

    def _compare(self, sides: Sides) -> Iterator[Row]:
        peer, ours = programs = self._beside.programs()
        with peer, ours:
            work = (lambda: peer.round(*sides.rescue)), (lambda: ours.round(*sides.rescue))
            turns = self._beside.turns(programs, *work, sides.work, sides.costs)
        for cost, line in named(sides):
            yield Row(sides.number, line, "", *turns.costs(cost), sides.show)

    def _salvage(self, codec: str, value_bytes: int) -> Sides:
        log: Path = self._beside.data.log(scan_spec(self._beside.sizes, codec, value_bytes)).ours
        with self._beside.our_program() as ours:
            count = ours.round("records", log, 1).count
        return Sides(
            40,
            f"salvage, {codec} {value_bytes} B",
            "a scan of every record",
            ("records", log),
            ("salvage", log, self._folder / log.name),
            ("cpu", "wall"),
            nothing_lost,
            gigabytes(0, count * (value_bytes + KEY_BYTES)),
            ("copy", log, self._folder / log.name),
        )

    def _why(self) -> Sides:
        count = scaled(self._beside.sizes, PARTITIONS)
        log_dir = many_partitions(self._beside, count).ours
        return Sides(
            41,
            f"why of {count} partitions",
            "ls of the same",
            ("verb", "ls", log_dir),
            ("verb", "why", log_dir),
            ("wall",),
            functools.partial(every_partition, count),
            milliseconds,
        )

    def _restore(self) -> Sides:
        log: Path = self._beside.data.log(open_spec(self._beside.sizes)).ours
        source = self._folder / "disk"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(log, source / "orders-0")
        count = log_bytes(source)
        copied, restored = self._folder / "copied", self._folder / "restored"
        return Sides(
            42,
            f"restore of {count / 1e9:.2f} GB",
            "cp --reflink=never and sync",
            ("cp", source, copied),
            ("restore", source, restored),
            ("wall",),
            Whole(source, copied, restored, self._met),
            gigabytes(0, count),
        )

    def _met(self, log: Path) -> Round:
        with self._beside.our_program() as ours:
            return ours.round("records", log, 1)
