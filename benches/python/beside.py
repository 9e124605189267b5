"""What rows are measured beside: Kafka's storage layer in a warm JVM, or (in `commits.py`) the same programs of another commit."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from data import BUILD, Kafka, Maker, Sizes, say
from figures import NotCompared, Row
from processes import BenchError, KafkaProgram, LineProgram, Round

WARM_SECONDS = 3.0
Cost = Literal["cpu", "wall", "p50", "p99"]
Work = Callable[[], Round]
Check = Callable[[Round, Round, str], None]


class DifferentError(BenchError):
    """Both sides did the work, and met different things."""


def same(peer: Round, ours: Round, work: str) -> None:
    """Both sides must have met the same things."""
    if (peer.count, peer.sum) != (ours.count, ours.sum):
        raise DifferentError(f"{work}: the peer met {peer.count} with sum {peer.sum}, ours {ours.count} with sum {ours.sum}")


def warm(run: Work, at_least: float) -> Round:
    """Rounds until the time is over (a JVM compiles while it runs); the last one."""
    end = time.monotonic() + at_least
    last = run()
    while time.monotonic() < end:
        last = run()
    return last


@dataclass
class Turns:
    """Rounds of both sides, in pairs, and of the loop that shows the machine's limit."""

    peer: list[Round] = field(default_factory=list)
    ours: list[Round] = field(default_factory=list)
    limits: list[Round] = field(default_factory=list)

    def costs(self, cost: Cost, share: int = 1) -> tuple[list[float], list[float]]:
        """Seconds of both sides, of each of so many equal parts of a round."""
        return [getattr(found, cost) / share for found in self.peer], [getattr(found, cost) / share for found in self.ours]

    def limit(self, cost: Cost, share: int = 1) -> list[float]:
        """Seconds of the limit."""
        return [getattr(found, cost) / share for found in self.limits]


class Beside(ABC):
    """The two sides of every row, the logs they work on, and how they take turns."""

    # Of the peer in the table.
    name: str
    # Whether the peer is another commit's program: then it is asked what ours is asked.
    comparing: bool
    # A JVM compiles while it runs.
    warm_seconds: float

    def __init__(self, data: Maker, ours: Path, sizes: Sizes, rounds: int) -> None:
        self.data = data
        self.sizes = sizes
        self.rounds = rounds
        self._ours = ours

    @abstractmethod
    def peer_program(self) -> LineProgram:
        """A new process of the peer: what one row taught a JVM shall not slow the next."""

    def our_program(self) -> LineProgram:
        """A new process of ours."""
        return LineProgram("ours", [str(self._ours)], BUILD / "ours.log")

    def programs(self) -> tuple[LineProgram, LineProgram]:
        """Both."""
        return self.peer_program(), self.our_program()

    def for_kafka(self, *words: str | int) -> tuple[str | int, ...]:
        """Words of a request that Kafka's program needs and ours does not take."""
        return () if self.comparing else words

    @abstractmethod
    def line(self, number: int, work: str, measured: Callable[[], Iterable[Row]]) -> Iterator[Row | NotCompared]:
        """The lines of the table that a measurement gives."""

    @abstractmethod
    def turns(
        self,
        programs: Sequence[LineProgram],
        theirs: Work,
        mine: Work,
        work: str,
        decide: Sequence[Cost] = ("cpu",),
        *,
        slow: bool = False,
        check: Check | None = same,
        limit: Work | None = None,
    ) -> Turns:
        """Rounds in turn, as many as it takes; fewer where one takes seconds. `decide` names the costs that are shown."""


class BesideKafka(Beside):
    """Kafka's side stays warm, and both sides take so many turns."""

    name = "Kafka"
    comparing = False
    warm_seconds = WARM_SECONDS

    def __init__(self, kafka: Kafka, ours: Path, sizes: Sizes, rounds: int) -> None:
        super().__init__(kafka, ours, sizes, rounds)
        self._kafka = kafka

    def peer_program(self) -> LineProgram:
        """A new JVM."""
        return KafkaProgram("Kafka", self._kafka.command("serve"), BUILD / "kafka.log")

    def line(self, number: int, work: str, measured: Callable[[], Iterable[Row]]) -> Iterator[Row | NotCompared]:
        """As measured; an error ends the run."""
        say(f"row {number}: {work}")
        yield from measured()

    def turns(
        self,
        programs: Sequence[LineProgram],  # noqa: ARG002 - they stay as they are
        theirs: Work,
        mine: Work,
        work: str,
        decide: Sequence[Cost] = ("cpu",),  # noqa: ARG002 - the number of rounds is given
        *,
        slow: bool = False,
        check: Check | None = same,
        limit: Work | None = None,
    ) -> Turns:
        """One after the other."""
        turns = Turns()
        for _ in range(min(self.rounds, max(3, self.rounds // 2)) if slow else self.rounds):
            turns.peer.append(theirs())
            turns.ours.append(mine())
            if check is not None:
                check(turns.peer[-1], turns.ours[-1], work)
            if limit is not None:
                turns.limits.append(limit())
        return turns
