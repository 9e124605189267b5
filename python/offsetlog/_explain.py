"""The text of ``Scan.explain``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from offsetlog._offsetlog import COLUMNS
from offsetlog._part import Part
from offsetlog._text import counted
from offsetlog._times import to_datetime
from offsetlog.errors import CorruptionError, LogDirError

if TYPE_CHECKING:
    from offsetlog._log import Log
    from offsetlog._options import CheckedScan
    from offsetlog._scan import Ranges

DEFAULT_COLUMNS = COLUMNS[:8]


def explained(ranges: Ranges, options: CheckedScan) -> str:
    """Return the steps of a scan as lines, the partitions first."""
    partitions = len({(log.topic, log.partition) for log, _, _ in ranges})
    lines = [f"scan of {counted(partitions, 'partition')}"]
    if options.offsets is None:
        lines += [f"  {_readable(log, start, stop, options)}" for log, start, stop in ranges]
    else:
        look_ups = counted(len(options.offsets), "look-up")
        lines += [f"  {log.topic}-{log.partition}: {look_ups} by offset" for log, _, _ in ranges]
    lines.append(f"isolation level: {options.isolation_level}")
    lines.append(f"filters: {'; '.join(_filters(options)) or 'none'}")
    if options.limit is not None:
        lines.append(f"limit: {counted(options.limit, 'record')}")
    lines.append(f"columns: {', '.join(options.columns or DEFAULT_COLUMNS)}")
    lines.append(f"checksums: {'verified' if options.verify_checksums else 'not verified'}")
    return "\n".join(lines)


def _readable(log: Log | Part, start: int | None, stop: int | None, options: CheckedScan) -> str:
    """Of several partitions one that cannot be read hides no other."""
    try:
        return _range(log, start, stop, options)
    except (CorruptionError, LogDirError) as error:
        if not isinstance(log, Part):
            raise
        return f"{log.topic}-{log.partition}: cannot be read: {error}"


def _range(log: Log | Part, start: int | None, stop: int | None, options: CheckedScan) -> str:
    start = log.log_start_offset if start is None else start
    end = log.last_stable_offset if options.isolation_level == "read_committed" else log.log_end_offset
    stop = end if stop is None else min(stop, end)
    name = f"{log.topic}-{log.partition}"
    segments = log.segments
    if stop <= start:
        return f"{name}: nothing, the range ends at {stop}, 0 of {counted(len(segments), 'segment')}"
    nexts = [segment.base_offset for segment in segments[1:]]
    touched = sum(
        segment.base_offset < stop and (after is None or after > start)
        for segment, after in zip(segments, [*nexts, None], strict=True)
    )
    return f"{name}: offsets {start} to {stop - 1}, {touched} of {counted(len(segments), 'segment')}"


def _filters(options: CheckedScan) -> list[str]:
    filters = []
    if options.start_timestamp is not None:
        filters.append(f"timestamp >= {_time(options.start_timestamp)}, batches that end earlier are skipped by their headers")
    if options.stop_timestamp is not None:
        filters.append(f"timestamp < {_time(options.stop_timestamp)}")
    if options.keys is not None:
        filters.append(f"key is one of {counted(len(options.keys), 'key')}")
    return filters


def _time(timestamp: int) -> str:
    when: datetime | None = to_datetime(timestamp)
    return str(timestamp) if when is None else f"{timestamp} ({when.isoformat(timespec='milliseconds')})"
