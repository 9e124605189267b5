"""Rows 13 to 17, 24 and 25: what writes. Kafka's storage layer (or another commit) and the Rust engine append the same records to logs of their own.

A round makes a new log and drops it without a flush, so that the figure is that of appending and not of the disk. One round more is
closed, and there the files must be the same, byte for byte; where a codec's library may write other bytes, each side must read the
same records from both logs.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from beside import Beside, DifferentError, same, warm
from data import BUILD, LogPair, LogSpec, Sizes
from figures import NotCompared, Row, gigabytes, milliseconds, per_second
from processes import LineProgram, Round

ROWS = frozenset({*range(13, 18), 24, 25})
KEY_BYTES = len("user-00000000")
PER_BATCH = 1000
# What the largest round writes, as a multiple of a scanned log: shorter rounds are at the mercy of the scheduler.
ROUND_FACTOR = 4
SINGLE_RECORDS = 200_000


@dataclass(frozen=True)
class Comparison:
    """One line of the table."""

    row: int
    work: str
    request: str
    value_bytes: int
    floor: float
    target: float
    per_batch: int = PER_BATCH
    codec: str = "none"

    def records(self, sizes: Sizes) -> int:
        """Records of a round."""
        mib = sizes.scan * ROUND_FACTOR if self.codec == "none" else max(16, sizes.scan // 2)
        records = (mib << 20) // (self.value_bytes + 20)
        if self.per_batch == 1:
            records = min(records, SINGLE_RECORDS)
        # The peer's 16 batches are appended in turn.
        step = 16 * self.per_batch
        return max(step, records // step * step)


COMPARISONS = (
    Comparison(13, "append built, none 100 B x 1000", "append", 100, 2, 2.7),
    Comparison(14, "append built, none 1 KB x 1000", "append", 1000, 1.2, 1.4),
    Comparison(15, "append as follower, none 1 KB x 1000", "follow", 1000, 1, 1.2),
    Comparison(15, "append as follower, none 100 B x 1000", "follow", 100, 1, 1.2),
    Comparison(16, "append one by one, none 100 B", "append", 100, 2, 2.6, per_batch=1),
    Comparison(16, "append one by one, none 1 KB", "append", 1000, 1.7, 1.9, per_batch=1),
    Comparison(17, "append built, lz4 1 KB x 1000", "append", 1000, 1, 1.9, codec="lz4"),
    Comparison(17, "append built, zstd 1 KB x 1000", "append", 1000, 1, 1.9, codec="zstd"),
)


def source_spec(sizes: Sizes, value_bytes: int) -> LogSpec:
    """The log whose records and batches are appended: batches of 1000 records."""
    return LogSpec(f"append-none-{value_bytes}", "none", value_bytes, max(32, sizes.scan // 2), PER_BATCH * (value_bytes + 20))


def recovery_spec(sizes: Sizes, segments: str) -> LogSpec:
    """A log to recover: one segment, or segments of 1 MiB. The default BENCH_MIB makes them 1 GB; a segment holds no more."""
    mib = min(1000, 16 * sizes.scan)
    return LogSpec(f"recover-{segments}", "none", 1000, mib, 16_384, 2_000_000_000 if segments == "one" else 1 << 20)


def written_directory() -> Path:
    """Where the appended logs lie: BENCH_WRITE_DIR, such as a folder of /dev/shm, or the build directory."""
    return Path(os.environ.get("BENCH_WRITE_DIR", str(BUILD / "append")))


def equal_files(peer: Path, ours: Path) -> bool:
    """Whether the `.log` and both indexes are the same bytes under the same names."""
    names = sorted(path.name for path in peer.iterdir() if path.suffix in {".log", ".index", ".timeindex"})
    return all((ours / name).exists() and (peer / name).read_bytes() == (ours / name).read_bytes() for name in names)


class Writing:
    """Runs the rows."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._sizes = beside.sizes

    def rows(self, wanted: Collection[int]) -> Iterator[Row | NotCompared]:
        """Measures the wanted rows."""
        line = self._beside.line
        for comparison in COMPARISONS:
            if comparison.row in wanted:
                yield from line(comparison.row, comparison.work, functools.partial(self._append, comparison))
        shutil.rmtree(written_directory(), ignore_errors=True)
        if 24 in wanted:
            yield from line(24, "recovery, one segment", lambda: self._recover(24, "one", 3, 3.8, anew=False))
        if 25 in wanted:
            yield from line(25, "recovery, many segments", lambda: self._recover(25, "many", 30, 60, anew=False))
            yield from line(25, "recovery, indexes lost", lambda: self._recover(25, "many", 30, 60, anew=True))

    def _append(self, comparison: Comparison) -> Iterator[Row]:
        source = self._beside.data.log(source_spec(self._sizes, comparison.value_bytes))
        folder = written_directory()
        folder.mkdir(parents=True, exist_ok=True)
        pair = LogPair(folder / "peer-0", folder / "ours-0")
        records = comparison.records(self._sizes)
        how = (comparison.per_batch, comparison.codec) if comparison.request == "append" else ()

        def one(program: LineProgram, source: Path, target: Path, *ending: str) -> Round:
            return program.round(comparison.request, target, source, records, *how, *ending)

        peer, ours = programs = self._beside.programs()
        with peer, ours:
            warm(lambda: one(peer, source.peer, pair.peer), self._beside.warm_seconds)
            warm(lambda: one(ours, source.ours, pair.ours), 0.3)
            one(peer, source.peer, pair.peer, "close")
            one(ours, source.ours, pair.ours, "close")
            work = comparison.work
            if not equal_files(pair.peer, pair.ours):
                if comparison.codec == "none":
                    raise DifferentError(f"{work}: the files of {pair.peer} and {pair.ours} differ")
                for reader in (peer, ours):
                    same(reader.round("records", pair.peer, 1), reader.round("records", pair.ours, 1), work)
                work += " (other bytes)"
            log_bytes = pair.log_bytes
            blocks = records // comparison.per_batch
            exact = comparison.codec == "none"
            turns = self._beside.turns(
                programs,
                lambda: one(peer, source.peer, pair.peer),
                lambda: one(ours, source.ours, pair.ours),
                work,
                check=same if exact else None,
                limit=(lambda: ours.round("write-limit", folder / "limit-0", source.ours, blocks, log_bytes // blocks))
                if exact
                else None,
            )
        if comparison.row in {13, 16}:
            show = per_second(records, "rec")
        else:
            show = gigabytes(0, records * (comparison.value_bytes + KEY_BYTES))
        yield Row(
            comparison.row, work, "Kafka", *turns.costs("cpu"), show, "times", comparison.floor, comparison.target, limit=turns.limit("cpu")
        )  # fmt: skip

    def _recover(self, row: int, segments: str, floor: float, target: float, *, anew: bool) -> Iterator[Row]:
        spec = recovery_spec(self._sizes, segments)
        pair = self._beside.data.log(spec)
        count = len(list(pair.ours.glob("*.log")))
        work = f"recovery, {pair.log_bytes / 1e9:.2f} GB in {count} segment{'s' if count > 1 else ''}"
        if anew:
            work += ", indexes lost"
        words = self._beside.for_kafka(spec.segment_bytes if count > 1 else 1 << 30)

        lost = BUILD / "lost"
        lost.mkdir(exist_ok=True)
        names = itertools.count()

        def lose(directory: Path) -> None:
            for path in directory.iterdir() if anew else ():
                if path.suffix in {".index", ".timeindex", ".snapshot"}:
                    # Not removed yet: making files is slow where ext4 has just freed as many inodes.
                    path.rename(lost / str(next(names)))

        def theirs() -> Round:
            lose(pair.peer)
            return peer.round("recover", pair.peer, *words)

        def mine() -> Round:
            lose(pair.ours)
            return ours.round("recover", pair.ours)

        # A round of the peer over many segments takes many seconds, and warms it.
        peer, ours = programs = self._beside.programs()
        with peer, ours:
            same(warm(theirs, self._beside.warm_seconds), warm(mine, 0.3), work)
            if not equal_files(pair.peer, pair.ours):
                raise DifferentError(f"{work}: the files of {pair.peer} and {pair.ours} differ")
            turns = self._beside.turns(
                programs, theirs, mine, work, ("wall",), slow=count > 1, limit=lambda: ours.round("limit", pair.ours, 1)
            )
        shutil.rmtree(lost)
        yield Row(row, work, "Kafka", *turns.costs("wall"), milliseconds, "times", floor, target, limit=turns.limit("wall"))
