"""Keep a directory of topics for weeks: orders come in, old events go, the latest states are compacted, old audits are dropped.

    tail -f orders.tsv | python examples/keeper.py DIRECTORY [--every SECONDS]

Each line is ``order<TAB>state``, or ``order`` alone for one that is over. docs/keeping.md explains it.
"""

from __future__ import annotations

import argparse
import errno
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from offsetlog import LogDir, LogDirMaintainReport, RecordMetadata

DAY_MS = 86_400_000
AUDITS_KEPT = timedelta(weeks=3)
AUDIT = "audit-%G-w%V"
FULL_DISK_WAITS = (1, 10, 70)
"""Seconds between tries to append when the disk is full: what upkeep removes makes room a minute later."""

Settings = Mapping[str, str | int]
TOPICS: dict[str, tuple[int, Settings]] = {
    # Everything that happened in the last seven days. What a day wrote goes together, so segments are of a day.
    "events": (2, {"retention.ms": 7 * DAY_MS, "segment.ms": DAY_MS}),
    # The state of every order that is not over: what was replaced goes a day later at most, what ended two.
    "latest": (1, {"cleanup.policy": "compact", "max.compaction.lag.ms": DAY_MS, "delete.retention.ms": DAY_MS}),
}

logger = logging.getLogger("keeper")


class Keeper:
    """A log dir, its topics, and their upkeep."""

    def __init__(
        self,
        paths: Path | list[Path],
        *,
        every: timedelta | None = timedelta(minutes=5),
        clock: Callable[[], int] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)
        self._sleep = sleep
        # Recovers each partition when it is used first, if the last run did not end well. `every` has a thread do the upkeep.
        self.log_dir = LogDir.open(paths, "a", maintain_every=every, clock=self._clock)
        for topic, (partitions, settings) in TOPICS.items():
            self._topic(topic, partitions, settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        # Waits for a round of upkeep that runs, makes all durable, and marks the partitions as closed.
        self.log_dir.close()

    def _topic(self, name: str, partitions: int, settings: Settings) -> None:
        if name not in self.log_dir.topics():
            self.log_dir.create_topic(name, partitions, config=settings)
        else:
            # A newer version of this program may want other settings.
            self.log_dir.set_topic_config(name, settings)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock() / 1000, UTC)

    def take(self, order: str, state: str | None) -> None:
        """Write down that an order has this state now; ``None``: it is over."""
        key, value = order.encode(), None if state is None else state.encode()
        self._append("events", value or b"over", key)
        self._append("latest", value, key)
        audit = self._now().strftime(AUDIT)
        if audit not in self.log_dir.topics():
            self.log_dir.create_topic(audit, config={"retention.ms": -1})
        self._append(audit, value or b"over", key)

    def _append(self, topic: str, value: bytes | None, key: bytes) -> RecordMetadata:
        for seconds in FULL_DISK_WAITS:
            try:
                return self.log_dir.append(topic, value, key=key)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                # The log is as before. What may go goes, and whoever sends orders has to wait.
                logger.warning("no room for %s, next try in %s s: %s", topic, seconds, error)
                self.maintain()
                self._sleep(seconds)
        return self.log_dir.append(topic, value, key=key)

    def drop_old_audits(self) -> list[str]:
        """Delete the topics of weeks that nobody asks for any more; their files go when a minute has passed."""
        # Names of weeks sort as their days do.
        oldest = (self._now() - AUDITS_KEPT).strftime(AUDIT)
        old = [topic for topic in self.log_dir.topics() if topic.startswith("audit-") and topic < oldest]
        for topic in old:
            self.log_dir.delete_topic(topic)
        return old

    def maintain(self) -> LogDirMaintainReport:
        """Do one round of upkeep now, and say what somebody should look at."""
        report = self.log_dir.maintain()
        for partition, reason in report.failed.items():
            logger.error("%s-%d cannot be kept up: %s", *partition, reason)
        for partition in report.busy:
            logger.warning("%s-%d is written by another process", *partition)
        return report

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Bytes and offsets of each topic, for a graph of them: one that only grows is the first sign of trouble."""
        found = {}
        for topic, numbers in self.log_dir.topics().items():
            logs = [self.log_dir.log(topic, number) for number in numbers]
            found[topic] = (sum(log.size_bytes for log in logs), sum(log.log_end_offset - log.log_start_offset for log in logs))
        return found


def run(keeper: Keeper, lines: Iterable[str]) -> None:
    """Take orders line by line; once a day, drop old audits and say how large all is."""
    day = None
    for line in lines:
        order, _, state = line.rstrip("\n").partition("\t")
        keeper.take(order, state or None)
        today = keeper._now().date()  # noqa: SLF001  # one program
        if today != day:
            day = today
            keeper.drop_old_audits()
            for topic, (size, records) in keeper.sizes().items():
                logger.info("%s: %d bytes, %d offsets", topic, size, records)


def main() -> None:
    """Run until the input ends, or a signal asks to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="+", help="a folder for the topics, or one on each disk")
    parser.add_argument("--every", type=float, default=300, help="seconds between two rounds of upkeep (300)")
    arguments = parser.parse_args()
    # What upkeep did, and what it could not do, is told to the logger `offsetlog`.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    # As Ctrl-C: the log dir is closed on the way out. A kill costs no record either, only a recovery at the next start.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Keeper(arguments.directory, every=timedelta(seconds=arguments.every)) as keeper:
        run(keeper, sys.stdin)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
