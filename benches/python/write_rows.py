"""Rows 13 to 17, 24 and 25: what writes. Kafka's storage layer and the Rust engine append the same records to logs of their own.

A round makes a new log and drops it without a flush, so that the figure is that of appending and not of the disk. One round more is
closed, and there the files must be the same, byte for byte; where a codec's library may write other bytes, each side must read the
same records from both logs.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from data import BUILD, LogPair, LogSpec, Sizes, say
from engine import WARM_SECONDS, Beside, same, warm
from figures import Row, gigabytes, milliseconds, per_second
from processes import BenchError, LineProgram, Round

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
    Comparison(16, "append one by one, none 100 B", "append", 100, 2, 2.8, per_batch=1),
    Comparison(16, "append one by one, none 1 KB", "append", 1000, 2, 2.8, per_batch=1),
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


def equal_files(kafka: Path, ours: Path) -> bool:
    """Whether the `.log` and both indexes are the same bytes under the same names."""
    names = sorted(path.name for path in kafka.iterdir() if path.suffix in {".log", ".index", ".timeindex"})
    return all((ours / name).exists() and (kafka / name).read_bytes() == (ours / name).read_bytes() for name in names)


class Writing(Beside):
    """Runs the rows."""

    def rows(self, wanted: Collection[int]) -> Iterator[Row]:
        """Measures the wanted rows."""
        for comparison in COMPARISONS:
            if comparison.row in wanted:
                yield self._append(comparison)
        shutil.rmtree(written_directory(), ignore_errors=True)
        if 24 in wanted:
            yield self._recover(24, "one", 3, 6, anew=False)
        if 25 in wanted:
            yield self._recover(25, "many", 30, 60, anew=False)
            yield self._recover(25, "many", 30, 60, anew=True)

    def _append(self, comparison: Comparison) -> Row:
        say(f"row {comparison.row}: {comparison.work}")
        source = self._kafka.log(source_spec(self._sizes, comparison.value_bytes))
        folder = written_directory()
        folder.mkdir(parents=True, exist_ok=True)
        pair = LogPair(folder / "kafka-0", folder / "ours-0")
        records = comparison.records(self._sizes)
        how = (comparison.per_batch, comparison.codec) if comparison.request == "append" else ()

        def one(program: LineProgram, source: Path, target: Path, *ending: str) -> Round:
            return program.round(comparison.request, target, source, records, *how, *ending)

        kafka, ours = self._peers()
        with kafka, ours:
            warm(lambda: one(kafka, source.kafka, pair.kafka), WARM_SECONDS)
            warm(lambda: one(ours, source.ours, pair.ours), 0.3)
            one(kafka, source.kafka, pair.kafka, "close")
            one(ours, source.ours, pair.ours, "close")
            work = comparison.work
            if not equal_files(pair.kafka, pair.ours):
                if comparison.codec == "none":
                    raise BenchError(f"{work}: the files of {pair.kafka} and {pair.ours} differ")
                for reader in (kafka, ours):
                    same(reader.round("records", pair.kafka, 1), reader.round("records", pair.ours, 1), work)
                work += " (other bytes)"
            peer: list[float] = []
            mine: list[float] = []
            limits: list[float] = []
            log_bytes = pair.log_bytes
            blocks = records // comparison.per_batch
            for _ in range(self._rounds):
                theirs, our = one(kafka, source.kafka, pair.kafka), one(ours, source.ours, pair.ours)
                if comparison.codec == "none":
                    same(theirs, our, work)
                peer.append(theirs.cpu)
                mine.append(our.cpu)
                if comparison.codec == "none":
                    limit = ours.round("write-limit", folder / "limit-0", source.ours, blocks, log_bytes // blocks)
                    limits.append(limit.cpu)
        if comparison.row in {13, 16}:
            show = per_second(records, "rec")
        else:
            show = gigabytes(0, records * (comparison.value_bytes + KEY_BYTES))
        return Row(
            comparison.row, work, "Kafka", peer, mine, show, "times", comparison.floor, comparison.target, limit=limits
        )  # fmt: skip

    def _recover(self, row: int, segments: str, floor: float, target: float, *, anew: bool) -> Row:
        spec = recovery_spec(self._sizes, segments)
        pair = self._kafka.log(spec)
        count = len(list(pair.ours.glob("*.log")))
        work = f"recovery, {pair.log_bytes / 1e9:.2f} GB in {count} segment{'s' if count > 1 else ''}"
        if anew:
            work += ", indexes lost"
        say(f"row {row}: {work}")
        segment_bytes = spec.segment_bytes if count > 1 else 1 << 30

        lost = BUILD / "lost"
        lost.mkdir(exist_ok=True)
        names = itertools.count()

        def lose(directory: Path) -> None:
            for path in directory.iterdir() if anew else ():
                if path.suffix in {".index", ".timeindex", ".snapshot"}:
                    # Not removed yet: making files is slow where ext4 has just freed as many inodes.
                    path.rename(lost / str(next(names)))

        def theirs() -> Round:
            lose(pair.kafka)
            return kafka.round("recover", pair.kafka, segment_bytes)

        def mine() -> Round:
            lose(pair.ours)
            return ours.round("recover", pair.ours)

        # A round of the peer over many segments takes many seconds, and warms it.
        rounds = self._rounds if count == 1 else max(3, self._rounds // 2)
        kafka, ours = self._peers()
        with kafka, ours:
            same(warm(theirs, WARM_SECONDS), warm(mine, 0.3), work)
            if not equal_files(pair.kafka, pair.ours):
                raise BenchError(f"{work}: the files of {pair.kafka} and {pair.ours} differ")
            peer: list[float] = []
            our: list[float] = []
            limits: list[float] = []
            for _ in range(rounds):
                there, here = theirs(), mine()
                same(there, here, work)
                peer.append(there.wall)
                our.append(here.wall)
                limits.append(ours.round("limit", pair.ours, 1).wall)
        shutil.rmtree(lost)
        return Row(row, work, "Kafka", peer, our, milliseconds, "times", floor, target, limit=limits)
