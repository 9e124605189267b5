"""Rows 26 to 28 and 38: whole log dirs, and compaction. Kafka's LogManager and Cleaner beside ours.

Compaction works on copies of a log that Kafka wrote, anew in each round: `.log` files are linked, as neither side changes one. Once
the files of both outcomes are compared, byte for byte. CPU seconds decide there, ours of all threads; both sync what they wrote, which
wall time shows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from data import BUILD, LogPair, say, twin
from engine import WARM_SECONDS, Beside, same, warm
from figures import Row, gigabytes, per_second, wall_seconds
from processes import BenchError, LineProgram, Round
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


COMPACTIONS = (
    Compaction(27, "none", "halves", 2.5, 3.5),
    Compaction(27, "none", "mixed", 2.5, 3.5),
    Compaction(28, "lz4", "halves", 1.5, 2),
    Compaction(28, "lz4", "mixed", 1.5, 2),
)


def walls(rounds: list[tuple[Round, Round]]) -> tuple[list[float], list[float]]:
    """Wall seconds of both sides."""
    return [kafka.wall for kafka, _ in rounds], [ours.wall for _, ours in rounds]


class Upkeep(Beside):
    """Runs the rows."""

    _folder = BUILD / "upkeep"

    def rows(self, wanted: Collection[int], memory: list[str]) -> Iterator[Row]:
        """Measures the wanted rows."""
        if 26 in wanted:
            yield from self._open_all(memory)
        for compaction in COMPACTIONS:
            if compaction.row in wanted:
                yield from self._compact(compaction)
        if 38 in wanted:
            yield self._create()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _scaled(self, count: int) -> int:
        return max(100, count * min(64, self._sizes.scan) // 64)

    def _rounds_of(self, theirs: Callable[[], Round], mine: Callable[[], Round], work: str) -> list[tuple[Round, Round]]:
        """Rounds in turn; each one takes seconds, so there are fewer."""
        rounds: list[tuple[Round, Round]] = []
        for _ in range(max(3, self._rounds // 2)):
            rounds.append((theirs(), mine()))
            same(*rounds[-1], work)
        return rounds

    # ---- log dirs ----

    def _open_all(self, memory: list[str]) -> Iterator[Row]:
        count = self._scaled(PARTITIONS)
        pair = self._log_dirs(count)
        works = (
            ("each for reading, its end asked, all held", (), 20.0, 50.0),
            ("each for appending, 100 held at a time", ("append",), None, None),
        )
        for how, request, floor, target in works:
            work = f"clean open of {count} partitions: {how}"
            say(f"row 26: {work}")
            kafka, ours = self._peers()
            with kafka, ours:

                def theirs(kafka: LineProgram = kafka) -> Round:
                    return kafka.round("open-all", pair.kafka)

                def mine(ours: LineProgram = ours, request: tuple[str, ...] = request) -> Round:
                    return ours.round("open-all", pair.ours, *request)

                before = ours.round("nothing", pair.ours).peak_rss
                first = mine()
                same(theirs(), first, work)
                costs = walls(self._rounds_of(theirs, mine, work))
            held = first.peak_rss / 1e6
            verdict = f"bound {MEMORY_BOUND_MB}{'' if held < MEMORY_BOUND_MB else ': NO'}"
            memory.append(f"  {work}: {held:.1f} MB (the process before it: {before / 1e6:.1f} MB; {verdict})")
            yield Row(26, work, "Kafka's LogManager, all for appending, 2 threads", *costs, wall_seconds, "times", floor, target)

    def _log_dirs(self, count: int) -> LogPair:
        """A log dir of `count` partitions of one record as a broker leaves it, twice."""
        pair = LogPair(BUILD / "kafka" / f"many-{count}", BUILD / "ours" / f"many-{count}")
        marker = BUILD / f"many-{count}.made"
        if not marker.exists():
            say(f"making {count} partitions")
            for path in (pair.kafka, pair.ours):
                shutil.rmtree(path, ignore_errors=True)
                path.parent.mkdir(parents=True, exist_ok=True)
            source = self._kafka.log(source_spec(self._sizes, 100))
            self._kafka.run("make-many", str(pair.kafka), str(source.kafka), str(count))
            twin(pair.kafka, pair.ours)
            marker.touch()
        return pair

    def _create(self) -> Row:
        count = self._scaled(NEW_PARTITIONS)
        work = "partitions created, appended to once and closed"
        say(f"row 38: {work}")
        source = self._kafka.log(source_spec(self._sizes, 100))
        self._folder.mkdir(parents=True, exist_ok=True)
        kafka, ours = self._peers()
        with kafka, ours:

            def theirs() -> Round:
                return kafka.round("create", self._folder / "kafka", source.kafka, count)

            def mine() -> Round:
                return ours.round("create", self._folder / "ours", source.ours, count)

            same(warm(theirs, WARM_SECONDS), mine(), work)
            costs = walls(self._rounds_of(theirs, mine, work))
        return Row(38, work, "Kafka's LogManager", *costs, per_second(count, "partitions"))

    # ---- compaction ----

    def _compact(self, compaction: Compaction) -> Iterator[Row]:
        say(f"row {compaction.row}: {compaction.work}")
        # As row 24: the default BENCH_MIB makes it 1 GB.
        mib = min(1000, 16 * self._sizes.scan)
        source = self._compactable(compaction, mib)
        pair = LogPair(self._folder / "kafka-0", self._folder / "ours-0")
        self._folder.mkdir(parents=True, exist_ok=True)

        def one(program: LineProgram, directory: Path) -> Round:
            shutil.rmtree(directory, ignore_errors=True)
            twin(source, directory)
            return program.round("compact", directory)

        work = f"{compaction.work}, {mib * 1.048576 / 1000:.2f} GB of values"
        kafka, ours = self._peers()
        with kafka, ours:
            same(warm(lambda: one(kafka, pair.kafka), WARM_SECONDS), one(ours, pair.ours), work)
            if not equal_files(pair.kafka, pair.ours):
                raise BenchError(f"{work}: the files of {pair.kafka} and {pair.ours} differ")
            rounds = self._rounds_of(lambda: one(kafka, pair.kafka), lambda: one(ours, pair.ours), work)
        records = (mib << 20) // VALUE_BYTES
        show = gigabytes(records, records * (VALUE_BYTES + len("user-00000000")))
        cpu = [kafka.cpu for kafka, _ in rounds], [ours.cpu for _, ours in rounds]
        yield Row(compaction.row, work, "Kafka's Cleaner", *cpu, show, "times", compaction.floor, compaction.target)
        yield Row(compaction.row, f"{work}, wall", "Kafka's Cleaner", *walls(rounds), show)

    def _compactable(self, compaction: Compaction, mib: int) -> Path:
        """A log in segments of 64 MiB in which each key comes twice."""
        name = f"compact-{compaction.codec}-{compaction.keys}"
        directory = BUILD / "kafka" / f"{name}-0"
        marker = BUILD / f"{name}.made"
        if not marker.exists() or marker.read_text() != str(mib):
            say(f"making {name}, {mib} MiB")
            shutil.rmtree(directory, ignore_errors=True)
            directory.parent.mkdir(parents=True, exist_ok=True)
            self._kafka.run("make-compactable", str(directory), compaction.codec, compaction.keys, str(mib))
            marker.write_text(str(mib))
        return directory
