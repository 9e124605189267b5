"""Rows 26 to 28 and 38: whole log dirs, and compaction. Kafka's LogManager and Cleaner (or another commit) beside ours.

Compaction works on copies of a log that Kafka wrote, anew in each round: `.log` files are linked, as neither side changes one. Once
the files of both outcomes are compared, byte for byte. CPU seconds decide there, ours of all threads; both sync what they wrote, which
wall time shows.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from beside import Beside, DifferentError, same, warm
from data import BUILD, LogPair, Sizes, twin
from figures import NotCompared, Row, gigabytes, per_second, wall_seconds
from processes import LineProgram, Round
from write_rows import equal_files, source_spec

ROWS = frozenset({26, 27, 28, 38})
VALUE_BYTES = 1000
# Of the default BENCH_MIB, 64.
PARTITIONS = 10_000
NEW_PARTITIONS = 500
MEMORY_BOUND_MB = 200


@dataclass(frozen=True)
class Compaction:
    """One line of rows 27 and 28."""

    row: int
    codec: str
    keys: str
    floor: float
    target: float

    @property
    def work(self) -> str:
        """What is done."""
        how = "second half repeats the first" if self.keys == "halves" else "shuffled"
        return f"compaction, {self.codec} 1 KB, keys {how}"


# How all are opened, words of the request, those of the limit, floor and target.
OPENINGS: tuple[tuple[str, tuple[str, ...], tuple[str, ...] | None, float | None, float | None], ...] = (
    ("each for reading, its end asked, all held", (), ("bare",), 20, 50),
    ("each for appending, 100 held at a time", ("append",), None, None, None),
)
COMPACTIONS = (
    Compaction(27, "none", "halves", 2.5, 3.5),
    Compaction(27, "none", "mixed", 2.5, 3.5),
    Compaction(28, "lz4", "halves", 1.5, 2),
    Compaction(28, "lz4", "mixed", 1.5, 2),
)


def scaled(sizes: Sizes, count: int) -> int:
    """So many of the default size, fewer of a smaller one."""
    return max(100, count * min(64, sizes.scan) // 64)


def many_partitions(beside: Beside, count: int, use: str = "read") -> LogPair:
    """A log dir of `count` partitions of one record as a broker leaves it, twice. For each use another: who appends leaves files of ours."""
    data = beside.data
    pair = data.pair(f"many-{use}-{count}")

    def make() -> None:
        source = data.log(source_spec(beside.sizes, 100))
        data.make("make-many", str(pair.peer), str(source.peer), str(count))
        twin(pair.peer, pair.ours)

    data.once(pair.ours.name, "", (pair.peer, pair.ours), make)
    return data.shared(pair)


class Upkeep:
    """Runs the rows."""

    _folder = BUILD / "upkeep"

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._sizes = beside.sizes

    def rows(self, wanted: Collection[int], memory: list[str]) -> Iterator[Row | NotCompared]:
        """Measures the wanted rows."""
        line = self._beside.line
        if 26 in wanted:
            count = scaled(self._sizes, PARTITIONS)
            for how, request, bare, floor, target in OPENINGS:
                work = f"clean open of {count} partitions: {how}"
                measured = functools.partial(self._open_all, work, count, request, bare, (floor, target), memory)
                yield from line(26, work, measured)
        for compaction in COMPACTIONS:
            if compaction.row in wanted:
                yield from line(compaction.row, compaction.work, functools.partial(self._compact, compaction))
        if 38 in wanted:
            yield from line(38, "partitions created, appended to once and closed", self._create)
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- log dirs ----

    def _open_all(
        self,
        work: str,
        count: int,
        words: tuple[str, ...],
        bare: tuple[str, ...] | None,
        goals: tuple[float | None, float | None],
        memory: list[str],
    ) -> Iterator[Row]:
        pair = many_partitions(self._beside, count, words[0] if words else "read")
        peer, ours = programs = self._beside.programs()
        with peer, ours:

            def theirs() -> Round:
                return peer.round("open-all", pair.peer, *words)

            def mine() -> Round:
                return ours.round("open-all", pair.ours, *words)

            def least() -> Round:
                return ours.round("open-all", pair.ours, *(bare or ()))

            before = ours.round("nothing", pair.ours).peak_rss
            first = mine()
            same(theirs(), first, work)
            limit = least if bare else None
            if limit is not None:
                same(limit(), first, work)
            turns = self._beside.turns(programs, theirs, mine, work, ("wall",), slow=True, limit=limit)
        held = first.peak_rss / 1e6
        verdict = f"bound {MEMORY_BOUND_MB}{'' if held < MEMORY_BOUND_MB else ': NO'}"
        memory.append(f"  {work}: {held:.1f} MB (the process before it: {before / 1e6:.1f} MB; {verdict})")
        peer_name = "Kafka's LogManager, all for appending, 2 threads"
        yield Row(26, work, peer_name, *turns.costs("wall"), wall_seconds, "times", *goals, turns.limit("wall"))

    def _create(self) -> Iterator[Row]:
        count = scaled(self._sizes, NEW_PARTITIONS)
        work = "partitions created, appended to once and closed"
        source = self._beside.data.log(source_spec(self._sizes, 100))
        self._folder.mkdir(parents=True, exist_ok=True)
        peer, ours = programs = self._beside.programs()
        with peer, ours:

            def theirs() -> Round:
                return peer.round("create", self._folder / "peer", source.peer, count)

            def mine() -> Round:
                return ours.round("create", self._folder / "ours", source.ours, count)

            same(warm(theirs, self._beside.warm_seconds), mine(), work)
            turns = self._beside.turns(programs, theirs, mine, work, ("wall",), slow=True)
        yield Row(38, work, "Kafka's LogManager", *turns.costs("wall"), per_second(count, "partitions"))

    # ---- compaction ----

    def _compact(self, compaction: Compaction) -> Iterator[Row]:
        # As row 24: the default BENCH_MIB makes it 1 GB.
        mib = min(1000, 16 * self._sizes.scan)
        source = self._compactable(compaction, mib)
        pair = LogPair(self._folder / "peer-0", self._folder / "ours-0")
        self._folder.mkdir(parents=True, exist_ok=True)

        def one(program: LineProgram, directory: Path) -> Round:
            shutil.rmtree(directory, ignore_errors=True)
            twin(source, directory)
            return program.round("compact", directory)

        work = f"{compaction.work}, {mib * 1.048576 / 1000:.2f} GB of values"
        peer, ours = programs = self._beside.programs()
        with peer, ours:
            same(warm(lambda: one(peer, pair.peer), self._beside.warm_seconds), one(ours, pair.ours), work)
            if not equal_files(pair.peer, pair.ours):
                raise DifferentError(f"{work}: the files of {pair.peer} and {pair.ours} differ")
            turns = self._beside.turns(
                programs, lambda: one(peer, pair.peer), lambda: one(ours, pair.ours), work, ("cpu", "wall"), slow=True
            )
        records = (mib << 20) // VALUE_BYTES
        show = gigabytes(records, records * (VALUE_BYTES + len("user-00000000")))
        goals = (compaction.floor, compaction.target)
        yield Row(compaction.row, work, "Kafka's Cleaner", *turns.costs("cpu"), show, "times", *goals)
        yield Row(compaction.row, f"{work}, wall", "Kafka's Cleaner", *turns.costs("wall"), show)

    def _compactable(self, compaction: Compaction, mib: int) -> Path:
        """A log in segments of 64 MiB in which each key comes twice."""
        name = f"compact-{compaction.codec}-{compaction.keys}"
        data = self._beside.data
        directory = data.pair(f"{name}-0").peer
        words = ("make-compactable", str(directory), compaction.codec, compaction.keys, str(mib))
        data.once(name, str(mib), (directory,), lambda: data.make(*words))
        return directory
