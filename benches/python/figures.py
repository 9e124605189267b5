"""What a measured row is, how its figures are compared, and the table that shows them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paired import interval


def gigabytes(count: int, raw_bytes: int) -> Callable[[float], str]:
    """Seconds of one round as GB/s."""
    del count
    return lambda seconds: f"{raw_bytes / seconds / 1e9:.2f} GB/s"


def per_second(count: int, unit: str) -> Callable[[float], str]:
    """Seconds of one round as things a second."""

    def shown(seconds: float) -> str:
        rate = count / seconds
        if rate >= 1e6:
            return f"{rate / 1e6:.2f} M {unit}/s"
        return f"{rate / 1e3:.0f} k {unit}/s" if rate >= 1e4 else f"{rate:.0f} {unit}/s"

    return shown


def each(count: int, unit: str) -> Callable[[float], str]:
    """Seconds of one round as the time of one thing."""
    return lambda seconds: f"{seconds / count * 1e9:.0f} ns/{unit}"


def microseconds(seconds: float) -> str:
    """Seconds as microseconds."""
    return f"{seconds * 1e6:.2f} us"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds."""
    return f"{seconds * 1e3:.1f} ms"


def wall_seconds(seconds: float) -> str:
    """Seconds."""
    return f"{seconds:.2f} s"


@dataclass
class Row:
    """One line of the table: costs (seconds, less is better) of the same work by a peer and by offsetlog.

    Attributes
    ----------
    number
        Row of the list of figures; several lines may belong to one row.
    goal
        "times": the ratio says how many times less ours costs, and shall be at least floor. "share": the ratio is ours over
        the peer's, and shall be at most floor.
    limit
        What the machine itself takes for the bytes, measured in the same rounds: no program that does the work can be below.
    of_limit
        Whether floor and target are parts of the ratio that the limit reaches, instead of ratios.
    """

    number: int
    work: str
    peer_name: str
    peer: list[float]
    ours: list[float]
    show: Callable[[float], str]
    goal: Literal["times", "share"] = "times"
    floor: float | None = None
    target: float | None = None
    limit: list[float] = field(default_factory=list)
    of_limit: bool = False

    @property
    def ratio(self) -> float:
        """Median over median."""
        return self.ratio_of(self.ours)

    def ratio_of(self, costs: list[float]) -> float:
        """The ratio that these costs would give."""
        peer, own = statistics.median(self.peer), statistics.median(costs)
        return own / peer if self.goal == "share" else peer / own

    def part(self, bound: float) -> float:
        """The ratio as a part of a floor or target."""
        if self.of_limit:
            bound *= self.ratio_of(self.limit)
        return bound / self.ratio if self.goal == "share" else self.ratio / bound

    def reaches(self, bound: float | None) -> bool | None:
        """Whether the ratio keeps to a bound."""
        return None if bound is None else self.part(bound) >= 1

    @property
    def verdict(self) -> str:
        """How far the row got."""
        bounds = [bound for bound in (self.floor, self.target) if bound is not None]
        if not bounds:
            return ""
        if self.of_limit and not self.limit:
            return "no limit"
        if self.reaches(self.target):
            return "target"
        if self.reaches(self.floor):
            return "floor"
        return f"NO ({self.part(bounds[0]):.0%} of {'target' if self.floor is None else 'floor'})"


def with_spread(costs: Sequence[float], show: Callable[[float], str]) -> str:
    """Median, and the worst deviation of a round from it."""
    middle = statistics.median(costs)
    spread = max(abs(cost - middle) for cost in costs) / middle
    return f"{show(middle)} ±{spread:.0%}"


def bound(row: Row, value: float | None) -> str:
    """A floor or target as text."""
    if value is None:
        return ""
    return f"{'<=' if row.goal == 'share' else '>='} {value:g}{' of limit' if row.of_limit else 'x'}"


HEADINGS = ("row", "work", "peer", "peer's figure", "offsetlog", "ratio", "floor", "target", "reached", "limit here")


def cells(row: Row) -> tuple[str, ...]:
    """The texts of one line."""
    return (
        str(row.number),
        row.work,
        row.peer_name,
        with_spread(row.peer, row.show),
        with_spread(row.ours, row.show),
        f"{row.ratio:.2f}x",
        bound(row, row.floor),
        bound(row, row.target),
        row.verdict,
        f"{row.ratio_of(row.limit):.2f}x" if row.limit else "",
    )


def table(rows: Sequence[Row]) -> str:
    """All lines, in columns."""
    return in_columns([HEADINGS, *(cells(row) for row in sorted(rows, key=lambda row: row.number))])


@dataclass(frozen=True)
class NotCompared:
    """A line of the table that could not be measured on both sides."""

    number: int
    work: str
    why: str


def compared(row: Row) -> tuple[str, ...]:
    """The texts of one line of a comparison: the peer is the old commit."""
    found = interval(row.peer, row.ours)
    return (
        str(row.number),
        row.work,
        with_spread(row.peer, row.show),
        with_spread(row.ours, row.show),
        f"{found.ratio:.3f}x",
        f"{found.low:.3f} to {found.high:.3f}",
        str(found.pairs),
        found.verdict,
    )


def comparison(rows: Sequence[Row | NotCompared], old: str, new: str) -> str:
    """All lines of a comparison, in columns."""
    lines: list[tuple[str, ...]] = [("row", "work", old, new, "ratio", "95 % interval", "pairs", "verdict")]
    for row in sorted(rows, key=lambda row: row.number):
        left = (str(row.number), row.work, "", "", "", "", "")
        lines.append((*left, row.why) if isinstance(row, NotCompared) else compared(row))
    return in_columns(lines)


def in_columns(lines: list[tuple[str, ...]]) -> str:
    """Lines of cells below their headings."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)
