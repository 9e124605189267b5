"""Topics to a Delta Lake table, without Spark: each run appends what is new, by offset, and nothing twice.

    python examples/delta_by_offset.py /mnt/kafka-1 /mnt/kafka-2 --topics orders,payments --into lake/records

How far each partition was exported stands in the table itself. docs/pipelines.md explains it.
"""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterator, Sequence
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from offsetlog import Log, LogDir, Scan, Split

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch")
COMMIT_BYTES = 1 << 30
"""About so many bytes of logs go into one commit: what a run that dies has to do again."""


def exported(table: DeltaTable | None, topic: str, partition: int) -> int:
    """Return the offset behind the last that the table holds of a partition; 0 where there is none."""
    return (table.transaction_version(f"offsetlog {topic}-{partition}") if table is not None else None) or 0


def id_mark(log: Log) -> Transaction | None:
    """Return which topic of the name this is, its id's first 63 bits as the version; ``None`` without an id, as before Kafka 2.8."""
    topic_id = log.topic_id
    if topic_id is None:
        return None
    bits = int.from_bytes(base64.urlsafe_b64decode(topic_id + "==")[:8], "big") >> 1
    return Transaction(f"offsetlog {log.topic}-{log.partition} topic id", bits)


def checked_mark(table: DeltaTable | None, log: Log) -> Transaction | None:
    """Return the topic's mark; fail if the table holds an earlier topic of the name, also one that was there when this run began."""
    mark = id_mark(log)
    known = table.transaction_version(mark.app_id) if table is not None and mark is not None else None
    if mark is not None and known is not None and known != mark.version:
        raise ValueError(f"{log.topic}-{log.partition} is of a topic that was made anew, the table holds the one before")
    return mark


def append(table: DeltaTable | None, into: str | Path, splits: Sequence[Split]) -> None:
    """Append the committed records of these ranges and how far they go, in one commit or not at all.

    Another run that has appended to one of the partitions since `table` was loaded makes the commit fail.
    """
    ends = {(split.topic, split.partition): split.stop for split in splits}
    progress = [Transaction(f"offsetlog {topic}-{partition}", end) for (topic, partition), end in ends.items()]
    for path in {split.path for split in splits}:
        with Log.open(path) as log:
            mark = checked_mark(table, log)
            progress += [] if mark is None else [mark]
    write_deltalake(
        into if table is None else table,
        Scan.over(splits, isolation_level="read_committed", columns=COLUMNS),
        mode="error" if table is None else "append",
        partition_by=["topic"],
        commit_properties=CommitProperties(app_transactions=progress),
    )


def new_ranges(table: DeltaTable | None, log_dirs: Sequence[str | Path], topics: Sequence[str]) -> Iterator[Split]:
    """Yield what the table does not hold yet: to the end of each partition, or to where its open transactions begin.

    Raises
    ------
    ValueError
        A log ends below what was exported of it: it was cut. Or the topic was deleted and made anew, and the table holds the old one.
    """
    with LogDir.open(log_dirs) as logs:
        for topic in topics:
            for partition in logs.topics()[topic]:
                log = logs.log(topic, partition)
                first, start, stop = log.log_start_offset, exported(table, topic, partition), log.last_stable_offset
                checked_mark(table, log)
                if start > log.log_end_offset:
                    raise ValueError(f"{topic}-{partition} ends at {log.log_end_offset}, it was exported up to {start}")
                if start < first:
                    print(f"{topic}-{partition}: offsets {start} to {first - 1} were deleted before they were exported")
                if (start := max(start, first)) < stop:
                    yield from log.splits(start, stop, max_bytes=COMMIT_BYTES)


def export(log_dirs: Sequence[str | Path], topics: Sequence[str], into: str | Path) -> list[Split]:
    """Bring the table up to the ends of the topics, commit by commit; return what was appended."""
    table = DeltaTable(into) if DeltaTable.is_deltatable(str(into)) else None
    done, waiting = [], []
    splits = list(new_ranges(table, log_dirs, topics))
    for split in splits:
        waiting.append(split)
        if split is splits[-1] or sum(one.size_bytes for one in waiting) >= COMMIT_BYTES:
            append(table, into, waiting)
            done += waiting
            table, waiting = DeltaTable(into), []
    return done


def main(arguments: Sequence[str] | None = None) -> None:
    """Export, and say what was new."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log_dirs", nargs="+", type=Path, metavar="LOG_DIR", help="what the broker's `log.dirs` named; it may run")
    parser.add_argument("--topics", required=True, metavar="NAMES", help="with commas between them")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="the table, made if missing")
    given = parser.parse_args(arguments)
    for split in export(given.log_dirs, given.topics.split(","), given.into):
        print(f"{split.topic}-{split.partition}: offsets {split.start:,} to {split.stop:,}")
    table = DeltaTable(given.into)
    print(f"version {table.version()} of {given.into}: {table.count():,} records")


if __name__ == "__main__":
    main()
