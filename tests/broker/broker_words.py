"""What brokers say of themselves: the alarms of a start beside those of one with nothing to load, and the logs that they touch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set as AbstractSet

from broker import Broker

ALARM = re.compile(r"\b(WARN|WARNING|ERROR|FATAL)\b")
TOUCHED = re.compile(r"Recovering|Truncat|Deleting|-stray|Rebuilding|incremented log start")

AT_TIMES: Mapping[str, str] = {
    r"clients\.NetworkClient ": "who connects to a process that does not listen yet, or no more: a controller to its own broker, too",
    r"\.RequestSendThread ": "the same of a controller with ZooKeeper",
    r"zookeeper\.ClientCnxn |ZooKeeperClient ": "a session on a busy machine",
    r"\.EventPerformanceMonitor |controller event queue overloaded|heartbeat request but received error REQUEST_TIMED_OUT": (
        "a controller on a busy machine is slow"
    ),
    r"Unexpected error handling request RequestHeader\(apiKey=(CONTROLLER_REGISTRATION|BROKER_REGISTRATION|BROKER_HEARTBEAT)": (
        "who registers before the controller is the active one asks again"
    ),
    "because the partition is not online or is no longer the leader": (
        "a coordinator begins to load by the metadata of the run before, when its broker does not lead yet: any topic of its own will do"
    ),
}
"""What a clean start says on a slower machine, or with the first topic that it has, and why."""


def lines_of(broker: Broker, run: int) -> list[str]:
    return broker.output(run).read_text(encoding="utf-8", errors="replace").splitlines()


def alarms(broker: Broker, run: int) -> Iterator[tuple[str, str]]:
    """Each as it was said, and without what differs from one start to the next: times, threads, paths, addresses, ids, numbers."""
    for line in lines_of(broker, run):
        if ALARM.search(line):
            yield line, normalised(line)


def normalised(line: str) -> str:
    plain = re.sub(r"^\d+ \[.*?\] (?=[A-Z]+ )", "", line)
    plain = re.sub(r"/?\d+\.\d+\.\d+\.\d+(:\d+)?", "ADDRESS", plain)
    plain = re.sub(r"(?<![\w.])/[^\s,:;'\")\]]+", "PATH", plain)
    plain = re.sub(r"(?<![\w-])(?=[\w-]*[\d_-])[\w-]{22}(?![\w-])", "ID", plain)
    return re.sub(r"\d+", "#", plain)


def check_alarms(broker: Broker, clean: AbstractSet[str], also: Mapping[str, str] | None = None) -> None:
    """No run of the broker warned of what a clean start does not warn of."""
    allowed = re.compile("|".join([*AT_TIMES, *(also or {})]))
    for run in range(1, broker.runs + 1):
        unexpected = [said for said, plain in alarms(broker, run) if plain not in clean and not allowed.search(plain)]
        assert not unexpected, (run, unexpected[:5])


def check_untouched(broker: Broker, directories: Iterable[str], but: str | None = None) -> None:
    """In no run a log was recovered, truncated, deleted or set aside, but for lines in which this expression is found."""
    names = set(directories)
    for run in range(1, broker.runs + 1):
        touched = [
            line
            for line in lines_of(broker, run)
            if TOUCHED.search(line)
            and any(name in line for name in names)
            # A follower says so of each log that it begins to follow.
            and "has no effect" not in line
            and (but is None or not re.search(but, line))
        ]
        assert not touched, (run, touched[:5])
