"""What the client programs share: tasks come as one JSON object on standard input, each answer is a line of JSON.

A program imports one client library and runs in that library's environment, so that the tests need none of them. A row is
`[offset, timestamp, timestamp type, key, value, headers, leader epoch]`, bytes in base64, -1 or null for what the client does not tell.
A task may name another server than the others do (`bootstrap`), and how to connect (`security`): of `protocol` by Kafka's name, `ca`,
`certificate` and `key` (paths of PEM files), `mechanism`, `user` and `password` those that its server asks for.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

Place = tuple[str, int]
Row = list[Any]

READING_SECONDS = 300
GROUP_SECONDS = 300


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def row(
    offset: int,
    timestamp: int,
    kind: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    epoch: int | None = None,
) -> Row:
    pairs = [[name, encoded(content)] for name, content in headers]
    return [offset, timestamp, kind, encoded(key), encoded(value), pairs, -1 if epoch is None else epoch]


def named(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def places(task: dict[str, Any]) -> list[Place]:
    return [(topic, partition) for topic, partition in task["places"]]


def security(task: dict[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """A task's settings for how to connect, under a library's own names."""
    return {names[name]: value for name, value in task.get("security", {}).items()}


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """What a library logs as a warning or worse: where it fails to connect, some tell only there why."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield messages
    finally:
        logging.getLogger().removeHandler(handler)


class Member(Protocol):
    """One consumer of a group, used by one thread."""

    def poll(self) -> list[tuple[Place, int]]:
        """Place and offset of records that came within a short time."""

    def assigned(self) -> list[Place]: ...

    def commit(self, offsets: dict[Place, int]) -> None: ...

    def close(self) -> None: ...


class _Running:
    """A member in a thread of its own, as two processes would be."""

    def __init__(self, make: Callable[[], Member]) -> None:
        self.assigned: list[Place] = []
        self.read: dict[Place, list[int]] = {}
        self.failed: str | None = None
        self._committing: dict[Place, int] | None = None
        self._committed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make,), daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], Member]) -> None:
        try:
            member = make()
            while not self._ended.is_set():
                for place, offset in member.poll():
                    self.read.setdefault(place, []).append(offset)
                self.assigned = sorted(member.assigned())
                if self._committing is not None and self._commits(member, self._committing):
                    self._committing = None
                    self._committed.set()
            member.close()
        except Exception:  # noqa: BLE001  # whatever a client raises is its answer
            self.failed = traceback.format_exc()

    @staticmethod
    def _commits(member: Member, offsets: dict[Place, int]) -> bool:
        """Whether it is done. In a rebalance, which may begin at any moment while members come, clients say to poll and to try again."""
        try:
            member.commit(offsets)
        except Exception as error:
            if "rebalanceinprogress" in f"{type(error).__name__} {error}".lower().replace("_", ""):
                return False
            raise
        return True

    def commit(self, offsets: dict[Place, int]) -> None:
        self._committed.clear()
        self._committing = offsets
        wait(self._committed.is_set, [self], "a commit")

    def close(self) -> None:
        self._ended.set()
        self._thread.join(GROUP_SECONDS)
        if self.failed or self._thread.is_alive():
            raise RuntimeError(self.failed or "a member did not close")


def wait(done: Callable[[], bool], members: Sequence[_Running], what: str) -> None:
    end = time.monotonic() + GROUP_SECONDS
    while not done():
        failed = [member.failed for member in members if member.failed]
        if failed or time.monotonic() > end:
            state = [(member.assigned, {named(place): len(seen) for place, seen in member.read.items()}) for member in members]
            raise RuntimeError(failed[0] if failed else f"{what} took over {GROUP_SECONDS} s: {state}")
        time.sleep(0.02)


def group_story(task: dict[str, Any], make: Callable[[], Member]) -> dict[str, Any]:
    """One member, two, one again behind a commit; what each was assigned and read."""
    expected = places(task)
    total = task["records"]
    first = _Running(make)
    wait(lambda: first.assigned == expected, [first], "the first assignment")
    alone = list(first.assigned)
    second = _Running(make)
    both = [first, second]
    wait(lambda: all(m.assigned for m in both) and sorted(first.assigned + second.assigned) == expected, both, "the rebalance")
    shared = [list(member.assigned) for member in both]

    def read() -> dict[Place, set[int]]:
        return {place: {offset for member in both for offset in list(member.read.get(place, ()))} for place in expected}

    wait(lambda: sum(map(len, read().values())) >= total, both, "reading")
    seen = read()
    where = {place: min(seen[place]) + task["behind"] for place in expected}
    for member in both:
        member.commit({place: offset for place, offset in where.items() if place in member.assigned})
    second.close()
    wait(lambda: first.assigned == expected, [first], "the rebalance after a member left")
    first.close()
    third = _Running(make)
    left = {place: sum(offset >= where[place] for offset in seen[place]) for place in expected}
    wait(lambda: all(len(third.read.get(place, ())) >= left[place] for place in expected), [third], "continuing")
    third.close()
    return {
        "alone": alone,
        "shared": shared,
        "read": {named(place): sorted(offsets) for place, offsets in seen.items()},
        "committed": {named(place): offset for place, offset in where.items()},
        "continued": {named(place): offsets for place, offsets in third.read.items()},
    }


def subscribe_story(task: dict[str, Any], make: Callable[[], Member]) -> dict[str, list[int]]:
    """What one member of a group reads until it has so many records, and for a moment more."""
    member = _Running(make)
    wait(lambda: sum(map(len, list(member.read.values()))) >= task["records"], [member], "reading in a group")
    time.sleep(0.5)
    member.close()
    return {named(place): offsets for place, offsets in member.read.items()}


def crowd_story(task: dict[str, Any], make: Callable[[], Member]) -> dict[str, Any]:
    """Members that come together, leave and come again while others do: rebalances that run into each other."""
    expected = places(task)

    def covered() -> bool:
        return sorted(place for member in crowd for place in member.assigned) == expected

    crowd = [_Running(make) for _ in range(task["members"])]
    wait(covered, crowd, "the first assignment of a crowd")
    for _ in range(task["rounds"]):
        leaving = crowd[: len(crowd) // 2]
        crowd = crowd[len(leaving) :] + [_Running(make) for _ in leaving]
        # Two leave and two come at the same time.
        for member in leaving:
            member.close()
        wait(covered, crowd, "a rebalance of a crowd")
    # Without those that came last the others cover all too, and may not commit once these join.
    wait(lambda: covered() and all(member.assigned for member in crowd), crowd, "an assignment of all that came")
    offsets = {place: 7 + place[1] for place in expected}
    for member in crowd:
        member.commit({place: offsets[place] for place in member.assigned})
    for member in crowd:
        member.close()
    return {named(place): offset for place, offset in offsets.items()}


def main(verbs: dict[str, Callable[[str, dict[str, Any]], Any]]) -> None:
    """Run the tasks of standard input one by one."""
    asked = json.load(sys.stdin)
    for task in asked["tasks"]:
        try:
            answer = {"answer": verbs[task["verb"]](task.get("bootstrap", asked["bootstrap"]), task)}
        except Exception:  # noqa: BLE001  # whatever a client raises is its answer
            answer = {"error": traceback.format_exc()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
