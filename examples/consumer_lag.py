"""How far each consumer group is behind, from a broker's disks: what `kafka-consumer-groups --describe` says of a running one.

    python examples/consumer_lag.py /mnt/kafka-1 /mnt/kafka-2 --groups '^billing'

The broker may run, or be dead for a year. docs/pipelines.md explains it; `offsetlog groups` prints the same.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from offsetlog import LogDir


class Lag(NamedTuple):
    """What one group has committed of one partition, and where that ends."""

    group: str
    topic: str
    partition: int
    offset: int
    """The next offset to be read."""
    end: int | None
    """End of the log; nothing where the partition is not on these disks."""
    lag: int | None
    committed_at: datetime | None
    metadata: str


def lags(log_dirs: Sequence[str | Path], groups: str = "") -> list[Lag]:
    """Return what the groups that `groups` (a regular expression) is found in have committed, in order."""
    with LogDir.open(log_dirs) as logs:
        return [
            Lag(group.group_id, *each[:3], each.log_end_offset, each.lag, each.commit_datetime, each.metadata)
            for group in logs.groups()
            if re.search(groups, group.group_id)
            for each in group.offsets
        ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log_dirs", nargs="+", type=Path, metavar="LOG_DIR", help="what the broker's `log.dirs` named")
    parser.add_argument("--groups", default="", metavar="REGEX", help="which groups (all)")
    given = parser.parse_args(arguments)
    rows: list[tuple[str, ...]] = [
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "COMMITTED-AT", "METADATA")
    ]
    for found in lags(given.log_dirs, given.groups):
        when = found.committed_at and found.committed_at.isoformat(timespec="milliseconds")
        shown = [*found[:6], when, found.metadata]
        rows.append(tuple("-" if value is None or value == "" else str(value) for value in shown))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
