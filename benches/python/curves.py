"""A curve: one cost against one size, its points, how it is stored as JSON and shown as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from figures import in_columns

UNITS = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9))


def short(value: float, unit: str) -> str:
    """Three digits and a prefix: 0.00123 s is `1.23 ms`."""
    if value == 0:
        return f"0 {unit}".strip()
    prefix, size = next(((prefix, size) for prefix, size in UNITS if abs(value) >= size * 0.9995), UNITS[-1])
    return f"{value / size:.3g} {prefix}{unit}".strip()


@dataclass
class Series:
    """One line of a curve: points of (size, cost)."""

    name: str
    points: list[tuple[float, float]] = field(default_factory=list)

    def add(self, size: float, cost: float) -> None:
        """One more point."""
        self.points.append((size, cost))


@dataclass
class Curve:
    """What grows with what.

    Attributes
    ----------
    name
        Of its files: `scan` makes `scan.json` and `scan.svg`.
    size, size_unit, cost, cost_unit
        Axes. Units are base units: s, B, or empty for a count.
    linear
        Whether the axes are linear; they are logarithmic otherwise.
    """

    name: str
    title: str
    size: str
    size_unit: str
    cost: str
    cost_unit: str
    series: list[Series] = field(default_factory=list)
    linear: bool = False
    notes: list[str] = field(default_factory=list)
    machine: str = ""

    def line(self, name: str) -> Series:
        """The series of a name, made if it is not there."""
        for series in self.series:
            if series.name == name:
                return series
        self.series.append(Series(name))
        return self.series[-1]

    def sizes(self) -> list[float]:
        """Every size that a series has a point at."""
        return sorted({size for series in self.series for size, _ in series.points})

    def table(self) -> str:
        """Sizes down, series across."""
        columns = [dict(series.points) for series in self.series]
        lines = [(self.size, *(series.name for series in self.series))]
        for size in self.sizes():
            cells = (short(column[size], self.cost_unit) if size in column else "" for column in columns)
            lines.append((short(size, self.size_unit), *cells))
        return "\n".join([f"{self.title} ({self.cost})", in_columns(lines), *self.notes])

    def growth(self, series: Series) -> float:
        """By which power of the size the cost grows from the first point to the last: 1 is linear, 0 is not at all."""
        from math import log  # noqa: PLC0415 - the one use

        (first, low), *_, (last, high) = sorted(series.points)
        return log(high / low) / log(last / first)

    def store(self, folder: Path) -> Path:
        """Writes it as JSON."""
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path


def read(path: Path) -> Curve:
    """A stored curve."""
    fields: dict[str, Any] = json.loads(path.read_text())
    series = [Series(line["name"], [(size, cost) for size, cost in line["points"]]) for line in fields.pop("series")]
    return Curve(series=series, **fields)


def stored(folder: Path) -> Iterable[Curve]:
    """All curves of a folder, by name."""
    return [read(path) for path in sorted(folder.glob("*.json"))]
