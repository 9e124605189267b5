"""A directory that was made here, opened by Kafka: it repairs nothing, and reads what is expected."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import log_files
from differences import Uses
from interface import Clock, Read
from kafka_log import KafkaLog, Oracle

from offsetlog import Log

# All producers of the golden directories have expired by then, for both sides.
LATER = 1_900_000_000_000


def check(oracle: Oracle, directory: Path, start: int, expected: list[Read], *, closed_between: bool = False) -> None:
    """Kafka opens copies, once as closed in order and once as after a crash.

    A log that was `closed_between` has a time entry for each time, as Kafka's would; recovery makes none of those again.
    """
    for clean in (True, False):
        copy = directory.parent / f"{directory.name}-{clean}" / directory.name
        shutil.copytree(directory, copy)
        kafka = KafkaLog(oracle, copy, "converted")
        kafka.follow(Clock(LATER))
        with Log.open(directory) as log:
            ends = (log.log_start_offset, log.log_end_offset, log.last_stable_offset)
        fields: dict[str, Any] = {"config": {}, "clean": clean, "recoveryPoint": 0, "logStartOffset": start, "useCheckpoints": False}
        theirs = kafka.ask("open", dir=str(copy), **fields)
        assert (theirs["start"], theirs["leo"], theirs["lso"]) == ends
        assert kafka.records() == expected
        kafka.close(clean=True)
        differences = log_files.unlike(log_files.stored(directory), log_files.stored(copy), Uses())
        # A log that never had a batch needs no snapshot; Kafka writes one without a producer all the same.
        empty = (
            [] if any(path.stat().st_size for path in directory.glob("*.log")) else [f"{start:020}.snapshot: missing, Kafka: (1, [])"]
        )
        if closed_between and not clean:
            differences = [text for text in differences if ".timeindex" not in text]
        assert not set(differences) - set(empty), f"clean: {clean}: {differences}"
