"""What `make bench` runs: builds what is needed, measures offsetlog and its peers in turn, and prints one table.

    run.py [--rows 1-5,20] [--rounds 7] [--compare COMMIT]

Sizes come from the environment: BENCH_MIB (64; 256 for figures to quote), BENCH_LOOKUP_MIB, BENCH_SPARK_MIB. A ratio compares
medians of rounds that alternated on the same records, whose counts and checksums were found equal on both sides.

With `--compare` the peer is another commit of this repository, and the table shows each row's ratio with its 95 % interval.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence

from beside import Beside, BesideKafka
from commits import BesideCommit, sides, this_tree
from data import BUILD, Kafka, Sizes, build_ours
from durable import ROWS as DURABLE_ROWS, Durable
from engine import ROWS as ENGINE_ROWS, Engine, scan_memory
from figures import NotCompared, Row, comparison, table
from interpreter_rows import (
    PYTHON_APPENDS,
    PYTHON_ROWS,
    SPARK_ROWS,
    python_appends,
    python_between_commits,
    python_rows,
    spark_between_commits,
    spark_rows,
)
from paired import MOST_PAIRS, NARROW, NOT_SLOWER
from processes import BenchError
from rescue_rows import ROWS as RESCUE_ROWS, Rescue
from safety_rows import ROWS as SAFETY_ROWS, Safety
from serve_rows import ROWS as SERVE_ROWS, Serve
from upkeep_rows import ROWS as UPKEEP_ROWS, Upkeep
from write_rows import ROWS as WRITING_ROWS, Writing

LINE_ROWS = ENGINE_ROWS | WRITING_ROWS | DURABLE_ROWS | SAFETY_ROWS | UPKEEP_ROWS | RESCUE_ROWS
ALL_ROWS = LINE_ROWS | PYTHON_ROWS | SPARK_ROWS | SERVE_ROWS


def rows_of(text: str) -> set[int]:
    """`1-5,20` as numbers."""
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            chosen.update(range(int(first), int(last or first) + 1))
        except ValueError:
            raise BenchError(f"ROWS={text}: {part!r} is no row and no range of rows; 1-5,20 would be") from None
    unknown = chosen - ALL_ROWS
    if not chosen & ALL_ROWS:
        raise BenchError(f"no such row: {sorted(unknown)}; there are {sorted(ALL_ROWS)}")
    return chosen & ALL_ROWS


def line_rows(beside: Beside, wanted: set[int], memory: list[str]) -> Iterator[Row | NotCompared]:
    """The rows of the Rust programs, one after another."""
    if wanted & ENGINE_ROWS:
        yield from Engine(beside).rows(wanted)
    if wanted & WRITING_ROWS:
        yield from Writing(beside).rows(wanted)
    if wanted & DURABLE_ROWS:
        yield from Durable(beside).rows(wanted)
    if wanted & UPKEEP_ROWS:
        yield from Upkeep(beside).rows(wanted, memory)
    if wanted & SAFETY_ROWS:
        yield from Safety(beside).rows(wanted)
    if wanted & RESCUE_ROWS:
        yield from Rescue(beside).rows(wanted)


def measure(wanted: set[int], rounds: int, memory: list[str]) -> Iterator[Row]:
    """All wanted rows beside their peers."""
    sizes = Sizes.from_environment()
    kafka = Kafka()
    ours = build_ours() if wanted & (LINE_ROWS | PYTHON_ROWS) else None
    if ours and wanted & LINE_ROWS:
        for row in line_rows(BesideKafka(kafka, ours, sizes, rounds), wanted, memory):
            assert isinstance(row, Row)
            yield row
        if wanted & {3, 4, 5}:
            memory.insert(0, scan_memory(kafka, ours, sizes))
    yield from python_appends(kafka, sizes, rounds, wanted)
    if ours and wanted & PYTHON_ROWS:
        yield from python_rows(kafka, ours, sizes, rounds, wanted)
    if wanted & SPARK_ROWS:
        yield from spark_rows(kafka, sizes, rounds, wanted & SPARK_ROWS, memory)
    if wanted & SERVE_ROWS:
        yield from Serve(kafka, sizes, rounds).rows(wanted)


def compare(beside: BesideCommit, wanted: set[int]) -> Iterator[Row | NotCompared]:
    """All wanted rows beside another commit."""
    yield from line_rows(beside, wanted, [])
    yield from python_between_commits(beside, wanted)
    yield from spark_between_commits(beside, wanted)


def machine() -> str:
    """Where it ran."""
    return f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"


def show_peers(rows: Sequence[Row]) -> None:
    """The table beside the peers."""
    print(f"\n{machine()}; median of {len(rows[0].ours)} rounds in turn, ± worst deviation of a round.")
    print(
        "CPU seconds decide rows 1 to 9, 11 to 17, 27, 28, 36, 37 and 40, wall time all others. Limit here: the ratio of a program that does"
    )
    print(
        "nothing but read (rows 13 to 16: write, row 40: both) the bytes and compute their CRC; row 1: read the headers;\nrow 11: copy the columns as well.\n"
    )
    print(table(rows))


def show_commits(rows: Sequence[Row | NotCompared], old: str, new: str) -> None:
    """The table beside another commit."""
    print(f"\n{machine()}; {old} beside {new}; median of the pairs, ± worst deviation of one.")
    print("Ratio: cost of the old one over cost of the new one, geometric mean of the pairs; above 1 the new one is faster.")
    print(
        f"Not slower: the 95 % interval begins at {NOT_SLOWER} or above; slower: it ends below 1 and begins below {NOT_SLOWER}. Pairs are"
    )
    print(
        f"added until the interval is within ±{NARROW:.0%}, {MOST_PAIRS} at most. One in twenty intervals misses the truth by chance.\n"
    )
    print(comparison(rows, old, "this tree"))


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=os.environ.get("ROWS", ""), help="such as 1-5,20; all when left out")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("BENCH_ROUNDS", "7")))
    parser.add_argument("--compare", metavar="COMMIT", help="another commit, to be the peer of every row")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds}: one at least")
    rows: list[Row | NotCompared] = []
    memory: list[str] = []
    failures: list[str] = []
    beside: BesideCommit | None = None
    here = ""
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
        wanted = rows_of(arguments.rows) if arguments.rows else set(ALL_ROWS)
        # What was measured before a failure is shown: extend() keeps what it took.
        if arguments.compare is None:
            rows.extend(measure(wanted, arguments.rounds, memory))
        else:
            python = bool(wanted & (PYTHON_ROWS | SPARK_ROWS | set(PYTHON_APPENDS)))
            here = this_tree()
            beside = BesideCommit(*sides(arguments.compare, python=python), Sizes.from_environment(), arguments.rounds)
            rows.extend(compare(beside, wanted))
    except BenchError as error:
        failures.append(f"stopped: {error}")
    if beside is not None:
        failures = [*beside.different, *failures]
    if rows and beside is not None:
        show_commits(rows, beside.name, here)
    elif rows:
        show_peers([row for row in rows if isinstance(row, Row)])
    if memory:
        print("\nPeak resident memory\n" + "\n".join(memory))
    for failure in failures:
        print(f"\nbench: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
