"""Rows 18 and 19: appends that are on the disk when they return, from one caller and from 32 at a time.

Kafka's storage layer syncs each append with `flush.messages=1`; okaywal shares syncs between callers as ours does. These rows are the
disk's, so they are written below the build directory whatever BENCH_WRITE_DIR says, and wall time decides.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from data import BENCHES, BUILD, CARGO_HINT, need, run, say
from engine import Beside, same, warm
from figures import Row, microseconds, per_second
from processes import BenchError, LineProgram, Round
from write_rows import KEY_BYTES, source_spec

ROWS = frozenset({18, 19})
CALLERS = 32
# Of a round: enough for a p99 of one caller, and for 250 appends of each of many callers.
APPENDS = 1000
SHARED_APPENDS = 8000
WARM_SECONDS = 2.0


def build_okaywal() -> Path:
    """Builds the peer, a Cargo workspace of its own, and gives its path."""
    cargo = need("cargo", CARGO_HINT)
    say("building the okaywal peer")
    manifest = BENCHES / "peers" / "okaywal" / "Cargo.toml"
    target = BUILD / "okaywal"
    run([cargo, "build", "--release", "--locked", "-q", "--manifest-path", str(manifest), "--target-dir", str(target)])
    return target / "release" / "okaywal-peer"


class Durable(Beside):
    """Runs the rows."""

    _folder = BUILD / "durable"

    def rows(self, wanted: Collection[int]) -> Iterator[Row]:
        """Measures the wanted rows."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if 18 in wanted:
            yield from self._one_caller("", 0.75, 0.5)
            yield from self._one_caller("preallocate", None, None)
        if 19 in wanted:
            yield self._beside_kafka()
            yield self._beside_okaywal()
        shutil.rmtree(self._folder)

    def _one_caller(self, setting: str, floor: float | None, target: float | None) -> Iterator[Row]:
        work = f"durable append, 1 caller, 100 B{', preallocate' if setting else ''}"
        say(f"row 18: {work}")
        source = self._kafka.log(source_spec(self._sizes, 100))
        settings = [setting] if setting else []
        with self._kafka_program() as kafka, self._our_program() as ours:

            def theirs() -> Round:
                return kafka.round("durable", self._folder / "kafka-0", source.kafka, APPENDS, 1, *settings)

            def mine() -> Round:
                return ours.round("durable", self._folder / "ours-0", source.ours, APPENDS, 1, *settings)

            same(warm(theirs, WARM_SECONDS), warm(mine, 0.3), work)
            rounds: list[tuple[Round, Round]] = []
            limits: list[Round] = []
            for _ in range(self._rounds):
                rounds.append((theirs(), mine()))
                # The sum is over the bytes of the `.log`.
                same(*rounds[-1], work)
                if not setting:
                    limits.append(ours.round("sync-limit", self._folder / "limit-0", source.ours, APPENDS))
        p50 = [[part.p50 for part in side] for side in (*zip(*rounds, strict=True), limits)]
        p99 = [[part.p99 for part in side] for side in (*zip(*rounds, strict=True), limits)]
        yield Row(18, f"{work}, p50", "Kafka", p50[0], p50[1], microseconds, "share", floor, target, limit=p50[2])
        yield Row(18, f"{work}, p99", "Kafka", p99[0], p99[1], microseconds, "share", limit=p99[2])

    def _shared(self, ours: LineProgram, value_bytes: int) -> float:
        """Seconds that ours takes for an append by one of many callers."""
        source = self._kafka.log(source_spec(self._sizes, value_bytes))
        found = ours.round("durable", self._folder / "ours-0", source.ours, SHARED_APPENDS, CALLERS)
        if found.count != SHARED_APPENDS:
            raise BenchError(f"{found.count} records found after {SHARED_APPENDS} durable appends")
        return found.wall / found.count

    def _beside_kafka(self) -> Row:
        work = f"durable append, {CALLERS} callers, 100 B"
        say(f"row 19: {work}, beside one caller of Kafka")
        source = self._kafka.log(source_spec(self._sizes, 100))
        peer: list[float] = []
        mine: list[float] = []
        with self._kafka_program() as kafka, self._our_program() as ours:

            def theirs() -> float:
                found = kafka.round("durable", self._folder / "kafka-0", source.kafka, APPENDS, 1)
                return found.wall / found.count

            theirs()
            theirs()
            self._shared(ours, 100)
            # The same records by callers in turn: the two logs hold the same, in another order.
            kafka.round("durable", self._folder / "kafka-0", source.kafka, SHARED_APPENDS, 1)
            there, here = (kafka.round("records", self._folder / name, 1) for name in ("kafka-0", "ours-0"))
            same(there, here, work)
            for _ in range(self._rounds):
                peer.append(theirs())
                mine.append(self._shared(ours, 100))
        return Row(19, work, "Kafka, 1 caller", peer, mine, per_second(1, "rec"), "times", 6, 12)

    def _beside_okaywal(self) -> Row:
        work = f"durable append, {CALLERS} callers, 1 KB"
        say(f"row 19: {work}, beside okaywal")
        request = (self._folder / "okaywal", 1000 + KEY_BYTES, SHARED_APPENDS, CALLERS)
        peer: list[float] = []
        mine: list[float] = []
        program = LineProgram("okaywal", [str(build_okaywal())], BUILD / "okaywal.log")
        with program as okaywal, self._our_program() as ours:
            for turn in range(self._rounds + 1):
                there = okaywal.round("durable", *request)
                if there.count != SHARED_APPENDS:
                    raise BenchError(f"okaywal numbered {there.count} entries, not {SHARED_APPENDS}")
                here = self._shared(ours, 1000)
                if turn > 0:
                    peer.append(there.wall / there.count)
                    mine.append(here)
        return Row(19, work, f"okaywal, {CALLERS} callers", peer, mine, per_second(1, "rec"), "times", None, 1.5)
