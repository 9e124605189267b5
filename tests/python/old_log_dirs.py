"""The log dirs that the Spark sink of commit 87ffd2d left, with notes of version 0, and what was put into them.

How they were made is in ``tests/data/spark-log-dirs``. Nothing here was read from them.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from offsetlog import Log, LogDir

__all__ = ["ALL", "JOBS", "STREAMS", "holds", "of_partition", "stream_id", "unpack"]

DATA = Path(__file__).resolve().parents[1] / "data/spark-log-dirs"

JOBS = (
    "job-published",
    "job-not-tidied",
    "job-staged",
    "job-noted",
    "job-in-a-partition",
    "job-in-several-partitions",
    "job-in-many-segments",
    "job-not-flushed",
    "job-all-moved",
    "job-note-aside",
    "job-in-two-log-dirs",
)
"""Of ``transactionId`` day-1: 30 records, "job 0" to "job 29", the n-th into partition n % 3, behind 6 of a job before."""

STREAMS = {
    # Name: the last micro-batch that was noted, and whether it was published.
    "stream-published": (1, True),
    "stream-not-committed": (1, True),
    "stream-in-its-first": (0, False),
    "stream-in-its-second": (1, False),
    "stream-noted": (1, False),
    "stream-all-moved": (1, False),
}
"""Of a checkpoint that was called ``checkpoint``: "in 0" to "in 3" and "in 4" to "in 7", the n-th into partition n % 2."""

ALL = (*JOBS, "job-failed", "nameless", "restore", *STREAMS)


def unpack(name: str, folder: Path) -> Path:
    """Unpack a case, with its files' times; return the log dir that has the note."""
    with tarfile.open(DATA / f"{name}.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder / "logs"


def stream_id(folder: Path) -> str:
    """The id that Spark gave a stream."""
    return str(json.loads((folder / "checkpoint/metadata").read_text())["id"])


def of_partition(partition: int) -> list[str]:
    """What a partition of a job holds once, in its order."""
    before = [f"before {number}" for number in range(partition, 6, 3)]
    return before + [f"job {number}" for number in range(partition, 30, 3)]


def holds(log_dirs: Path | list[Path], topic: str, partitions: int) -> list[list[tuple[int, str]]]:
    """Offset and value of each record, by partition."""
    with LogDir.open(log_dirs) as log_dir:
        assert log_dir.topics()[topic] == list(range(partitions))
        paths = [log_dir.log(topic, number).path for number in range(partitions)]
    found = []
    for path in paths:
        with Log.open(path) as log:
            found.append([(record.offset, (record.value or b"").decode()) for record in log.scan()])
    return found
