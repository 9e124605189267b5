"""Cut, flipped and spoilt directories: what offsetlog makes of each is what Kafka makes of it, or safer in a listed way.

The tables are printed at the end of the run and kept in build/oracle/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from damage import MODES, U0, C, Damage, Ground, Mode, Outcome, U, four_segments, six_batches
from damages import DAMAGES
from hostile import FIELDS, RECORDS
from kafka_log import JAR, Oracle
from log_files import headers
from reports import REPORTS

SEGMENT = f"{0:020}.log"


@pytest.fixture(scope="module")
def six(oracle: Oracle, folder: Path) -> Ground:
    """Six batches in one segment."""
    return Ground(oracle, folder / "six", six_batches)


@pytest.fixture(scope="module")
def four(oracle: Oracle, folder: Path) -> Ground:
    """Four segments with everything in them."""
    return Ground(oracle, folder / "four", four_segments)


def tell(title: str, lines: list[str]) -> None:
    """Prints a table at the end, and keeps it."""
    text = "\n".join(lines)
    REPORTS.append((title, text))
    (JAR.parent / f"{title.replace(' ', '-')}.txt").write_text(text + "\n")


def changed(change: bytes) -> Damage:
    def damage(directory: Path) -> None:
        (directory / SEGMENT).write_bytes(change)

    return damage


class Table:
    """Counts what the two made of many damages of a kind, and remembers what is not safe."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.unsafe: list[str] = []

    def add(self, kind: str, name: str, mode: Mode, damage: Damage) -> None:
        ours, kafkas = self.ground.both(mode, damage)
        same = ours == kafkas
        self.counts[(f"{mode.name} {kind}", self.told(kafkas), "the same" if same else self.told(ours))] += 1
        if why := self.ground.unsafe(ours, kafkas):
            self.unsafe.append(f"{mode.name} {kind} {name}: {why}")

    def told(self, outcome: Outcome) -> str:
        return "LEO beyond the end" if outcome.end > self.ground.end else outcome.told()

    def lines(self) -> list[str]:
        made = [f"{count:6}  {kind:28} Kafka: {kafkas:32} here: {ours}" for (kind, kafkas, ours), count in self.counts.items()]
        return sorted(made, key=lambda line: line[8:])


def test_the_six_batches(six: Ground) -> None:
    """What the tables below stand on."""
    assert [(batch.base_offset, batch.last_offset) for batch in six.batches] == [(n, n + 2) for n in range(0, 18, 3)]
    assert len({len(batch.data) for batch in six.batches}) == 1


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_cut(six: Ground, mode: Mode) -> None:
    data = six.files[SEGMENT]
    table = Table(six)
    batches = list(headers(data))
    for length in range(batches[4].position, len(data)):
        inside = next(n for n, batch in enumerate(batches) if length < batch.position + batch.size)
        where = "at a boundary" if length == batches[inside].position else f"in batch {inside + 1} of 6"
        table.add(f"cut {where}", str(length), mode, changed(data[:length]))
    tell(f"damage cuts {mode.name}", table.lines())
    assert not table.unsafe


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_zeros_behind_the_end(six: Ground, mode: Mode) -> None:
    table = Table(six)
    for count in (*range(1, 40), 61, 100, 1000, 20_000):
        kind = "zeros, 17 or fewer" if count <= 17 else "zeros, 18 or more"
        table.add(kind, str(count), mode, changed(six.files[SEGMENT] + bytes(count)))
    tell(f"damage zeros {mode.name}", table.lines())
    assert not table.unsafe


def flips(data: bytes, batch: int) -> Iterator[tuple[str, int, bytes]]:
    """Every bit of a batch: the field it is in, its number, the file with it flipped."""
    header = list(headers(data))[batch]
    fields = sorted([(position, name) for name, (position, _) in FIELDS.items()] + [(17, "crc"), (RECORDS, "records")])
    for bit in range(header.size * 8):
        name = [name for position, name in fields if position <= bit // 8][-1]
        out = bytearray(data)
        out[header.position + bit // 8] ^= 128 >> bit % 8
        yield name, bit, bytes(out)


@pytest.mark.parametrize("batch", [2, pytest.param(5, marks=pytest.mark.proof)], ids=["third", "last"])
@pytest.mark.parametrize("mode", [U0, C], ids=lambda mode: mode.name)
def test_every_bit(six: Ground, mode: Mode, batch: int) -> None:
    table = Table(six)
    for name, bit, data in flips(six.files[SEGMENT], batch):
        table.add(f"batch {batch + 1} {name}", f"bit {bit}", mode, changed(data))
    tell(f"damage flips {mode.name} batch {batch + 1}", table.lines())
    assert not table.unsafe


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_damage(four: Ground, mode: Mode) -> None:
    lines, unsafe = [], []
    for name, damage in DAMAGES.items():
        ours, kafkas = four.both(mode, damage)
        lines.append(f"{mode.name:3} {name:40} Kafka: {kafkas.told():36} here: {told(ours, kafkas)}")
        if why := four.unsafe(ours, kafkas):
            unsafe.append(f"{name}: {why}")
    tell(f"damage rows {mode.name}", lines)
    assert not unsafe


def told(ours: Outcome, kafkas: Outcome) -> str:
    """What is other than in Kafka's outcome."""
    if ours == kafkas:
        return "the same"
    if ours.refused is not None or kafkas.refused is not None:
        return ours.told()
    names = ("end", "start", "bases", "batches", "epochs", "producers", "aborted", "indexes")
    unlike = [name for name in names if getattr(ours, name) != getattr(kafkas, name)]
    return f"{ours.told()}; other {', '.join(unlike)}"


def test_modes_are_three() -> None:
    assert {mode.name for mode in (U0, U, C)} == {"U0", "U", "C"}
