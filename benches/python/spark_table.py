"""What the Spark rows read: which topic, which columns, and what is done with them. Without Spark, for who only asks."""

from __future__ import annotations

from dataclasses import dataclass

FIVE_COLUMNS = "key,value,partition,offset,timestamp"
COLUMN_NAMES = {"offset": ", columns=offset", FIVE_COLUMNS: ", 5 columns"}


@dataclass(frozen=True)
class Read:
    """One frame of ours and what is done with it: count, sum (of the values' lengths) or noop. No columns: all of them."""

    row: int
    codec: str
    value_bytes: int
    work: str
    columns: str = ""

    @property
    def topic(self) -> str:
        """As the broker of the benches has it."""
        return f"bench-{self.codec}-{self.value_bytes}"

    @property
    def what(self) -> str:
        """As the table has it."""
        data = f"{self.codec} {'1 KB' if self.value_bytes == 1000 else f'{self.value_bytes} B'}"
        if self.work == "noop":
            return f"{'5' if self.columns else 'all'} columns to noop, {data}"
        return f"{'count()' if self.work == 'count' else 'sum(length(value))'}, {data}{COLUMN_NAMES[self.columns]}"


AGAINST_CONNECTOR = tuple(
    read
    for codec in ("none", "lz4")
    for read in (
        Read(29, codec, 1000, "count", "offset"),
        Read(30, codec, 1000, "sum", FIVE_COLUMNS),
        Read(31, codec, 1000, "noop"),
    )
)
SMALL_VALUES = (Read(32, "none", 100, "sum", FIVE_COLUMNS), Read(32, "none", 100, "noop", FIVE_COLUMNS))
AGAINST_CONSTANTS = (
    Read(29, "none", 1000, "count", "offset"),
    Read(30, "none", 1000, "sum", FIVE_COLUMNS),
    Read(31, "none", 1000, "noop"),
    *SMALL_VALUES,
)
BETWEEN_COMMITS = (*AGAINST_CONNECTOR, *SMALL_VALUES)
