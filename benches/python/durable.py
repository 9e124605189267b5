"""Rows 18 and 19: appends that are on the disk when they return, from one caller and from 32 at a time.

Kafka's storage layer syncs each append with `flush.messages=1`; okaywal shares syncs between callers as ours does. These rows are the
disk's, so they are written below the build directory whatever BENCH_WRITE_DIR says, and wall time decides.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from beside import Beside, same, warm
from data import BENCHES, BUILD, CARGO_HINT, LogPair, need, run, say
from figures import NotCompared, Row, microseconds, per_second
from processes import BenchError, LineProgram, Round
from write_rows import KEY_BYTES, source_spec

ROWS = frozenset({18, 19})
CALLERS = 32
# Of a round: enough for a p99 of one caller, and for 250 appends of each of many callers.
APPENDS = 1000
SHARED_APPENDS = 8000


def build_okaywal() -> Path:
    """Builds the peer, a Cargo workspace of its own, and gives its path."""
    cargo = need("cargo", CARGO_HINT)
    say("building the okaywal peer")
    manifest = BENCHES / "peers" / "okaywal" / "Cargo.toml"
    target = BUILD / "okaywal"
    run([cargo, "build", "--release", "--locked", "-q", "--manifest-path", str(manifest), "--target-dir", str(target)])
    return target / "release" / "okaywal-peer"


def each_of(found: Round, appends: int) -> Round:
    """A round as one of its appends, after a look at how many were found."""
    if found.count != appends:
        raise BenchError(f"{found.count} records found after {appends} durable appends")
    return replace(found, wall=found.wall / appends)


class Durable:
    """Runs the rows."""

    _folder = BUILD / "durable"

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._sizes = beside.sizes

    def rows(self, wanted: Collection[int]) -> Iterator[Row | NotCompared]:
        """Measures the wanted rows."""
        self._folder.mkdir(parents=True, exist_ok=True)
        line = self._beside.line
        if 18 in wanted:
            work = "durable append, 1 caller, 100 B"
            yield from line(18, work, lambda: self._one_caller(work, (), 0.75, 0.5))
            prepared = f"{work}, preallocate"
            yield from line(18, prepared, lambda: self._one_caller(prepared, ("preallocate",), None, None))
        if 19 in wanted:
            small, large = (f"durable append, {CALLERS} callers, {size}" for size in ("100 B", "1 KB"))
            if self._beside.comparing:
                yield from line(19, small, lambda: self._many_callers(small, 100))
                yield from line(19, large, lambda: self._many_callers(large, 1000))
            else:
                yield from line(19, small, lambda: self._beside_kafka(small))
                yield from line(19, large, lambda: self._beside_okaywal(large))
        shutil.rmtree(self._folder)

    def _one_caller(self, work: str, settings: tuple[str, ...], floor: float | None, target: float | None) -> Iterator[Row]:
        source = self._beside.data.log(source_spec(self._sizes, 100))
        places = self._beside.data.shared(LogPair(self._folder / "peer-0", self._folder / "ours-0"))
        peer, ours = programs = self._beside.programs()
        with peer, ours:

            def theirs() -> Round:
                return peer.round("durable", places.peer, source.peer, APPENDS, 1, *settings)

            def mine() -> Round:
                return ours.round("durable", places.ours, source.ours, APPENDS, 1, *settings)

            def limit() -> Round:
                return ours.round("sync-limit", self._folder / "limit-0", source.ours, APPENDS)

            same(warm(theirs, self._beside.warm_seconds), warm(mine, 0.3), work)
            # The sum is over the bytes of the `.log`.
            turns = self._beside.turns(programs, theirs, mine, work, ("p50", "p99"), limit=None if settings else limit)
        yield Row(18, f"{work}, p50", "Kafka", *turns.costs("p50"), microseconds, "share", floor, target, limit=turns.limit("p50"))
        yield Row(18, f"{work}, p99", "Kafka", *turns.costs("p99"), microseconds, "share", limit=turns.limit("p99"))

    def _shared(self, program: LineProgram, name: str, value_bytes: int) -> Round:
        """Appends by many callers; the time of one."""
        source = self._beside.data.log(source_spec(self._sizes, value_bytes))
        found = program.round("durable", self._folder / name, source.ours, SHARED_APPENDS, CALLERS)
        return each_of(found, SHARED_APPENDS)

    def _many_callers(self, work: str, value_bytes: int) -> Iterator[Row]:
        peer, ours = programs = self._beside.programs()
        with peer, ours:
            # Callers come in another order each time: the bytes differ, `each_of` has looked at their number.
            turns = self._beside.turns(
                programs,
                lambda: self._shared(peer, "log-0", value_bytes),
                lambda: self._shared(ours, "log-0", value_bytes),
                work,
                ("wall",),
                check=None,
            )
            found = []
            for program in programs:
                self._shared(program, "log-0", value_bytes)
                found.append(ours.round("records", self._folder / "log-0", 1))
            same(*found, work)
        yield Row(19, work, "", *turns.costs("wall"), per_second(1, "rec"))

    def _beside_kafka(self, work: str) -> Iterator[Row]:
        source = self._beside.data.log(source_spec(self._sizes, 100))
        kafka, ours = programs = self._beside.programs()
        with kafka, ours:

            def theirs(appends: int = APPENDS) -> Round:
                return each_of(kafka.round("durable", self._folder / "peer-0", source.peer, appends, 1), appends)

            theirs()
            theirs()
            self._shared(ours, "ours-0", 100)
            # The same records by callers in turn: the two logs hold the same, in another order.
            theirs(SHARED_APPENDS)
            there, here = (kafka.round("records", self._folder / name, 1) for name in ("peer-0", "ours-0"))
            same(there, here, work)
            turns = self._beside.turns(programs, theirs, lambda: self._shared(ours, "ours-0", 100), work, ("wall",), check=None)
        yield Row(19, work, "Kafka, 1 caller", *turns.costs("wall"), per_second(1, "rec"), "times", 6, 12)

    def _beside_okaywal(self, work: str) -> Iterator[Row]:
        request = (self._folder / "okaywal", 1000 + KEY_BYTES, SHARED_APPENDS, CALLERS)
        program = LineProgram("okaywal", [str(build_okaywal())], BUILD / "okaywal.log")
        with program as okaywal, self._beside.our_program() as ours:

            def theirs() -> Round:
                return each_of(okaywal.round("durable", *request), SHARED_APPENDS)

            def mine() -> Round:
                return self._shared(ours, "ours-0", 1000)

            theirs()
            mine()
            turns = self._beside.turns((okaywal, ours), theirs, mine, work, ("wall",), check=None)
        yield Row(19, work, f"okaywal, {CALLERS} callers", *turns.costs("wall"), per_second(1, "rec"), "times", None, 1.5)
