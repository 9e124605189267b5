"""Rows 1 to 10 and 20 to 23: Kafka's storage layer in a warm JVM and the Rust engine, round by round in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from data import BUILD, Kafka, LogPair, LogSpec, Sizes, lookup_spec, open_spec, say, scan_spec
from figures import Row, each, gigabytes, microseconds, milliseconds
from processes import BenchError, LineProgram, Round

ROWS = frozenset({*range(1, 11), *range(20, 24)})
WARM_SECONDS = 3.0
ROUND_SECONDS = 0.15
QUERIES = 20_000


@dataclass(frozen=True)
class Comparison:
    """One line of the table to be measured."""

    row: int
    work: str
    request: str
    spec: LogSpec
    floor: float
    target: float
    mapped: bool = False

    @property
    def limited(self) -> bool:
        """Whether reading the file and its CRC alone bound the work."""
        return 2 <= self.row <= 5 and not self.mapped


def scans(sizes: Sizes) -> Iterator[Comparison]:
    """Rows 1 to 9."""
    kb = scan_spec(sizes, "none", 1000)
    single = lookup_spec(sizes, "none", 1000)
    for mapped in (False, True):
        how = "mapped" if mapped else "owned"
        yield Comparison(1, f"headers, 64 KiB batches, {how}", "headers", kb, 5, 10, mapped)
        yield Comparison(1, f"headers, 1 KB batches, {how}", "headers", single, 5, 10, mapped)
        yield Comparison(2, f"CRC, none 1 KB, {how}", "crc", kb, 2.5, 3.5, mapped)
        yield Comparison(2, f"CRC, lz4 1 KB, {how}", "crc", scan_spec(sizes, "lz4", 1000), 2.5, 3.5, mapped)
    owned = {100: (2, 3.5), 1000: (1.5, 2), 10_000: (1.5, 2)}
    trusted = {100: (2.5, 4), 1000: (2.5, 4), 10_000: (2.5, 3.5)}
    for row, size in ((3, 100), (4, 1000), (5, 10_000)):
        spec = scan_spec(sizes, "none", size)
        yield Comparison(row, f"scan none {size} B, owned", "records", spec, *owned[size])
        yield Comparison(row, f"scan none {size} B, mapped", "records", spec, *trusted[size], mapped=True)
    codecs = ((6, "lz4", 1.4, 1.6), (7, "zstd", 1.3, 1.45), (8, "snappy", 1.5, 1.7), (9, "gzip", 2.5, 3.5))
    for row, codec, floor, target in codecs:
        yield Comparison(row, f"scan {codec} 1 KB", "records", scan_spec(sizes, codec, 1000), floor, target)


def same(peer: Round, ours: Round, work: str) -> None:
    """Both sides must have met the same things."""
    if (peer.count, peer.sum) != (ours.count, ours.sum):
        raise BenchError(f"{work}: Kafka met {peer.count} with sum {peer.sum}, ours {ours.count} with sum {ours.sum}")


def warm(run: Callable[[], Round], at_least: float) -> Round:
    """Rounds until the time is over (a JVM compiles while it runs); the last one."""
    end = time.monotonic() + at_least
    last = run()
    while time.monotonic() < end:
        last = run()
    return last


class Beside:
    """What the rows beside Kafka's storage layer share."""

    def __init__(self, kafka: Kafka, ours: Path, sizes: Sizes, rounds: int) -> None:
        self._kafka = kafka
        self._ours = ours
        self._sizes = sizes
        self._rounds = rounds

    def _kafka_program(self) -> LineProgram:
        return LineProgram("Kafka", self._kafka.command("serve"), BUILD / "kafka.log")

    def _our_program(self) -> LineProgram:
        return LineProgram("ours", [str(self._ours)], BUILD / "ours.log")

    def _peers(self) -> tuple[LineProgram, LineProgram]:
        """A new JVM and a new process of ours: what one row taught a JVM shall not slow the next."""
        return self._kafka_program(), self._our_program()


class Engine(Beside):
    """Runs the rows."""

    def rows(self, wanted: Collection[int]) -> Iterator[Row]:
        """Measures the wanted rows."""
        for comparison in scans(self._sizes):
            if comparison.row in wanted:
                yield self._scan(comparison)
        if 10 in wanted:
            for codec in ("lz4", "zstd", "snappy", "gzip"):
                yield self._two_threads(codec)
        lookups = (
            (20, "none, 1 record a batch", lookup_spec(self._sizes, "none", 1000), 0.5, 0.33),
            (21, "none, 16 KiB batches", lookup_spec(self._sizes, "none", 16_384), 0.5, 0.37),
            (21, "lz4, 16 KiB batches", lookup_spec(self._sizes, "lz4", 16_384), 0.6, 0.45),
        )
        for row, work, spec, floor, target in lookups:
            if row in wanted:
                for mapped in (False, True):
                    yield from self._lookup(row, f"offset -> record, {work}", "lookup", spec, floor, target, mapped)
        if 22 in wanted:
            for codec in ("none", "lz4"):
                for batch, name in ((1000, "1 record a batch"), (16_384, "16 KiB batches")):
                    spec = lookup_spec(self._sizes, codec, batch)
                    yield from self._lookup(22, f"time -> offset, {codec}, {name}", "time", spec, 0.4, 0.25, mapped=False)
        if 23 in wanted:
            yield self._open()

    def _scan(self, comparison: Comparison) -> Row:
        say(f"row {comparison.row}: {comparison.work}")
        pair = self._kafka.log(comparison.spec)
        request = comparison.request
        ours_request = f"mapped-{request}" if comparison.mapped else request
        kafka, ours = self._peers()
        with kafka, ours:
            first = warm(lambda: kafka.round(request, pair.kafka, 1), WARM_SECONDS)
            repeats = max(1, math.ceil(ROUND_SECONDS / first.cpu))
            same(first, warm(lambda: ours.round(ours_request, pair.ours, 1), 0.3), comparison.work)
            peer_costs: list[float] = []
            our_costs: list[float] = []
            limits: list[float] = []
            for _ in range(self._rounds):
                theirs = kafka.round(request, pair.kafka, repeats)
                our = ours.round(ours_request, pair.ours, repeats)
                same(theirs, our, comparison.work)
                peer_costs.append(theirs.cpu / repeats)
                our_costs.append(our.cpu / repeats)
                if comparison.limited:
                    limits.append(ours.round("limit", pair.ours, repeats).cpu / repeats)
        if request == "headers":
            show = each(first.count, "batch")
        elif request == "crc":
            show = gigabytes(first.count, pair.log_bytes)
        else:
            show = gigabytes(first.count, first.count * (comparison.spec.value_bytes + len("user-00000000")))
        return Row(
            comparison.row, comparison.work, "Kafka", peer_costs, our_costs, show, "times", comparison.floor, comparison.target,
            limit=limits,
        )  # fmt: skip

    def _two_threads(self, codec: str) -> Row:
        work = f"scan {codec} 1 KB, 2 threads"
        say(f"row 10: {work}")
        spec = scan_spec(self._sizes, codec, 1000)
        pair = self._kafka.log(spec)
        with LineProgram("ours", [str(self._ours)], BUILD / "ours.log") as ours:
            one = warm(lambda: ours.round("records", pair.ours, 1), 0.3)
            two = warm(lambda: ours.round("threads-2", pair.ours, 1), 0.3)
            repeats = max(1, math.ceil(ROUND_SECONDS / one.wall))
            single: list[float] = []
            double: list[float] = []
            for _ in range(self._rounds):
                one = ours.round("records", pair.ours, repeats)
                two = ours.round("threads-2", pair.ours, repeats)
                same(one, two, work)
                single.append(one.wall / repeats)
                double.append(two.wall / repeats)
        raw = one.count // repeats * (spec.value_bytes + len("user-00000000"))
        return Row(10, work, "ours, 1 thread", single, double, gigabytes(0, raw), "times", 1.6, 1.85)

    def _lookup(self, row: int, work: str, request: str, spec: LogSpec, floor: float, target: float, mapped: bool) -> Iterator[Row]:
        if mapped:
            work += ", mapped"
        say(f"row {row}: {work}")
        pair = self._kafka.log(spec)
        kafka, ours = self._peers()
        peer: list[Round] = []
        mine: list[Round] = []
        with kafka, ours:
            warm(lambda: kafka.round(request, pair.kafka, QUERIES, 1), WARM_SECONDS)
            our_request = f"mapped-{request}" if mapped else request
            ours.round(our_request, pair.ours, QUERIES, 1)
            for seed in range(2, 2 + self._rounds):
                peer.append(kafka.round(request, pair.kafka, QUERIES, seed))
                mine.append(ours.round(our_request, pair.ours, QUERIES, seed))
                same(peer[-1], mine[-1], work)
        p50 = ([found.p50 for found in peer], [found.p50 for found in mine])
        p99 = ([found.p99 for found in peer], [found.p99 for found in mine])
        yield Row(row, f"{work}, p50", "Kafka", *p50, microseconds, "share", floor, target)
        yield Row(row, f"{work}, p99", "Kafka", *p99, microseconds, "share")

    def _open(self) -> Row:
        pair: LogPair = self._kafka.log(open_spec(self._sizes))
        kafka, ours = self._peers()
        with kafka, ours:
            first = warm(lambda: kafka.round("open", pair.kafka), WARM_SECONDS)
            same(first, warm(lambda: ours.round("open", pair.ours), 0.3), "open")
            work = f"clean open, {len(list(pair.ours.glob('*.log')))} segments"
            say(f"row 23: {work}")
            peer: list[float] = []
            mine: list[float] = []
            for _ in range(self._rounds):
                theirs, our = kafka.round("open", pair.kafka), ours.round("open", pair.ours)
                same(theirs, our, work)
                peer.append(theirs.wall)
                mine.append(our.wall)
        return Row(23, work, "Kafka", peer, mine, milliseconds, "times", 10, 20)


def scan_memory(kafka: Kafka, ours: Path, sizes: Sizes) -> str:
    """Peak memory of a new process that scans the 1 GB log."""
    pair = kafka.log(open_spec(sizes))
    lines = []
    for request, how in (("records", "owned buffers"), ("threads-2", "owned buffers, 2 threads")):
        with LineProgram("ours", [str(ours)], BUILD / "ours.log") as program:
            before = program.round("nothing", pair.ours).peak_rss
            after = program.round(request, pair.ours, 1).peak_rss
        lines.append(
            f"  scan of {pair.log_bytes / 1e9:.2f} GB, {how}: {after / 1e6:.1f} MB (the process before it: {before / 1e6:.1f} MB)"
        )
    return "\n".join(lines)
