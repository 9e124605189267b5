"""Rows 1 to 10 and 20 to 23: Kafka's storage layer in a warm JVM (or another commit) and the Rust engine, round by round in turn."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from beside import Beside, same, warm
from data import BUILD, Kafka, LogPair, LogSpec, Sizes, lookup_spec, open_spec, scan_spec
from figures import NotCompared, Row, each, gigabytes, microseconds, milliseconds
from processes import LineProgram

ROWS = frozenset({*range(1, 11), *range(20, 24)})
ROUND_SECONDS = 0.15
QUERIES = 20_000
# Batches up to this size are read with what lies between their headers.
MANY_AT_ONCE = 8192


@dataclass(frozen=True)
class Comparison:
    """One line of the table to be measured."""

    row: int
    work: str
    request: str
    spec: LogSpec
    floor: float
    target: float | None
    mapped: bool = False
    of_limit: bool = False

    @property
    def limit(self) -> str | None:
        """What bounds the work: reading the file and its CRC alone, or each header by a call of its own."""
        if self.mapped or self.row > 5:
            return None
        if self.row > 1:
            return "limit"
        # Small batches are read many at a time, which bare reads of headers are not.
        return "headers-limit" if self.spec.batch_bytes > MANY_AT_ONCE else None


@dataclass(frozen=True)
class Lookup:
    """Two lines of the table, for half of the look-ups and the slowest hundredth."""

    row: int
    work: str
    request: str
    spec: LogSpec
    floor: float
    target: float
    mapped: bool = False


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
    # Where the machine's limit is near the peer, a ratio to the peer says nothing: a part of the limit does.
    owned: dict[int, tuple[float, float]] = {100: (2, 3.5), 1000: (0.85, 0.95), 10_000: (0.85, 0.95)}
    trusted = {100: (2.5, 4), 1000: (2.5, 4), 10_000: (2.5, 3.5)}
    for row, size in ((3, 100), (4, 1000), (5, 10_000)):
        spec = scan_spec(sizes, "none", size)
        yield Comparison(row, f"scan none {size} B, owned", "records", spec, *owned[size], of_limit=row > 3)
        yield Comparison(row, f"scan none {size} B, mapped", "records", spec, *trusted[size], mapped=True)
    codecs = ((6, "lz4", 1.4, 1.6), (7, "zstd", 1.3, 1.45), (8, "snappy", 1.5, 1.7), (9, "gzip", 2.5, 3.5))
    for row, codec, floor, target in codecs:
        yield Comparison(row, f"scan {codec} 1 KB", "records", scan_spec(sizes, codec, 1000), floor, target)


class Engine:
    """Runs the rows."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._sizes = beside.sizes

    def rows(self, wanted: Collection[int]) -> Iterator[Row | NotCompared]:
        """Measures the wanted rows."""
        line = self._beside.line
        for comparison in scans(self._sizes):
            if comparison.row in wanted:
                yield from line(comparison.row, comparison.work, functools.partial(self._scan, comparison))
        if 10 in wanted:
            for codec in ("lz4", "zstd", "snappy", "gzip"):
                work = f"scan {codec} 1 KB, 2 threads"
                yield from line(10, work, functools.partial(self._two_threads, codec, work))
        lookups = [
            Lookup(row, f"offset -> record, {work}{', mapped' if mapped else ''}", "lookup", spec, floor, target, mapped)
            for row, work, spec, floor, target in (
                (20, "none, 1 record a batch", lookup_spec(self._sizes, "none", 1000), 0.5, 0.33),
                (21, "none, 16 KiB batches", lookup_spec(self._sizes, "none", 16_384), 0.5, 0.37),
                (21, "lz4, 16 KiB batches", lookup_spec(self._sizes, "lz4", 16_384), 0.6, 0.45),
            )
            for mapped in (False, True)
        ]
        for codec in ("none", "lz4"):
            for batch, name in ((1000, "1 record a batch"), (16_384, "16 KiB batches")):
                spec = lookup_spec(self._sizes, codec, batch)
                lookups.append(Lookup(22, f"time -> offset, {codec}, {name}", "time", spec, 0.4, 0.25))
        for lookup in lookups:
            if lookup.row in wanted:
                yield from line(lookup.row, lookup.work, functools.partial(self._lookup, lookup))
        if 23 in wanted:
            yield from line(23, "clean open", self._open)

    def _scan(self, comparison: Comparison) -> Iterator[Row]:
        pair = self._beside.data.log(comparison.spec)
        request = f"mapped-{comparison.request}" if comparison.mapped else comparison.request
        limit = comparison.limit
        peer, ours = programs = self._beside.programs()
        with peer, ours:
            first = warm(lambda: peer.round(request, pair.peer, 1), self._beside.warm_seconds)
            repeats = max(1, math.ceil(ROUND_SECONDS / first.cpu))
            same(first, warm(lambda: ours.round(request, pair.ours, 1), 0.3), comparison.work)
            turns = self._beside.turns(
                programs,
                lambda: peer.round(request, pair.peer, repeats),
                lambda: ours.round(request, pair.ours, repeats),
                comparison.work,
                limit=(lambda: ours.round(limit, pair.ours, repeats)) if limit else None,
            )
        if comparison.request == "headers":
            show = each(first.count, "batch")
        elif comparison.request == "crc":
            show = gigabytes(first.count, pair.log_bytes)
        else:
            show = gigabytes(first.count, first.count * (comparison.spec.value_bytes + len("user-00000000")))
        yield Row(
            comparison.row, comparison.work, "Kafka", *turns.costs("cpu", repeats), show, "times", comparison.floor, comparison.target,
            limit=turns.limit("cpu", repeats), of_limit=comparison.of_limit,
        )  # fmt: skip

    def _two_threads(self, codec: str, work: str) -> Iterator[Row]:
        spec = scan_spec(self._sizes, codec, 1000)
        pair = self._beside.data.log(spec)
        with contextlib.ExitStack() as running:
            ours = running.enter_context(self._beside.our_program())
            peer = running.enter_context(self._beside.peer_program()) if self._beside.comparing else ours
            request = "threads-2" if self._beside.comparing else "records"
            one = warm(lambda: peer.round(request, pair.peer, 1), 0.3)
            warm(lambda: ours.round("threads-2", pair.ours, 1), 0.3)
            repeats = max(1, math.ceil(ROUND_SECONDS / one.wall))
            turns = self._beside.turns(
                (peer, ours),
                lambda: peer.round(request, pair.peer, repeats),
                lambda: ours.round("threads-2", pair.ours, repeats),
                work,
                ("wall",),
            )
        raw = one.count * (spec.value_bytes + len("user-00000000"))
        yield Row(10, work, "ours, 1 thread", *turns.costs("wall", repeats), gigabytes(0, raw), "times", 1.6, 1.85)

    def _lookup(self, lookup: Lookup) -> Iterator[Row]:
        pair = self._beside.data.log(lookup.spec)
        request = f"mapped-{lookup.request}" if lookup.mapped else lookup.request
        peer, ours = programs = self._beside.programs()
        # The first of each is met while warming; each side then meets the others in the same order.
        seeds = itertools.count(2), itertools.count(2), itertools.count(2)
        with peer, ours:
            warm(lambda: peer.round(request, pair.peer, QUERIES, 1), self._beside.warm_seconds)
            ours.round(request, pair.ours, QUERIES, 1)
            turns = self._beside.turns(
                programs,
                lambda: peer.round(request, pair.peer, QUERIES, next(seeds[0])),
                lambda: ours.round(request, pair.ours, QUERIES, next(seeds[1])),
                lookup.work,
                ("p50", "p99"),
                limit=None if lookup.mapped else lambda: ours.round("lookup-limit", pair.ours, QUERIES, next(seeds[2])),
            )
        yield Row(
            lookup.row, f"{lookup.work}, p50", "Kafka", *turns.costs("p50"), microseconds, "share", lookup.floor, lookup.target,
            limit=turns.limit("p50"),
        )  # fmt: skip
        yield Row(lookup.row, f"{lookup.work}, p99", "Kafka", *turns.costs("p99"), microseconds, "share")

    def _open(self) -> Iterator[Row]:
        pair: LogPair = self._beside.data.log(open_spec(self._sizes))
        peer, ours = programs = self._beside.programs()
        work = f"clean open, {len(list(pair.ours.glob('*.log')))} segments"
        with peer, ours:
            first = warm(lambda: peer.round("open", pair.peer), self._beside.warm_seconds)
            same(first, warm(lambda: ours.round("open", pair.ours), 0.3), work)
            turns = self._beside.turns(
                programs, lambda: peer.round("open", pair.peer), lambda: ours.round("open", pair.ours), work, ("wall",)
            )
        yield Row(23, work, "Kafka", *turns.costs("wall"), milliseconds, "times", 10, 20)


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
