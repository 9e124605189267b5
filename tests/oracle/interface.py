"""What the two sides of a comparison have in common: the verbs of one partition log and the form of their answers.

`KafkaLog` (``kafka_log.py``) is Kafka's own storage layer, `OurLog` (``our_log.py``) the public Python API of offsetlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

TOPIC_ID = "bVl1dG9waWNpZC1vcmFjbA"
ANY_ERROR = "any error"


class Refusal(Exception):  # noqa: N818  # an answer like any other
    """A side refused; `names` are the error classes of offsetlog that say the same."""

    def __init__(self, names: frozenset[str], text: str) -> None:
        super().__init__(text)
        self.names = names
        self.text = text

    def agrees(self, other: Refusal) -> bool:
        """Whether both may mean the same."""
        return ANY_ERROR in self.names or ANY_ERROR in other.names or bool(self.names & other.names)


class Row(NamedTuple):
    """One record as a program hands it over."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    """Records with what a producer says of them."""

    rows: tuple[Row, ...]
    codec: str = "none"
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


@dataclass(frozen=True)
class Marker:
    """The end of a transaction."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    timestamp: int
    transaction_version: int = 0


class Info(NamedTuple):
    """What an append answers; `None` where a form of appending does not say."""

    base_offset: int | None
    last_offset: int | None
    max_timestamp: int | None = None
    log_append_time: int | None = None
    duplicate: bool | None = None

    def agrees(self, other: Info) -> bool:
        """Whether both say the same as far as both say it. Of a duplicate, only the first append's offsets count."""
        fields = 2 if self.duplicate and other.duplicate else 5
        return all(
            mine is None or theirs is None or mine == theirs for mine, theirs in zip(self[:fields], other[:fields], strict=True)
        )


class Ends(NamedTuple):
    """The named offsets."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    recovery_point: int


class Fetched(NamedTuple):
    """One fetch."""

    records: bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]


class Read(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Timed(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int | None


@dataclass(frozen=True)
class Opening:
    """How a log is opened.

    `clean` says how the last one that had it open ended; `recovery_point` and `log_start_offset` are what its log dir would
    remember. In a log dir with checkpoints both sides find all three there themselves.
    """

    config: dict[str, str]
    clean: bool = True
    recovery_point: int | None = None
    log_start_offset: int = 0
    checkpoints: bool = False


@dataclass
class Clock:
    """The time on both sides."""

    now: int = 1_700_000_000_000
    listeners: list[Any] = field(default_factory=list)

    def set(self, now: int) -> None:
        """Moves the clock of both sides."""
        self.now = now
        for listener in self.listeners:
            listener(now)


class Side(Protocol):
    """One partition log, open or closed. Every verb may raise a `Refusal`."""

    name: str
    directory: Path

    def open(self, opening: Opening) -> Ends: ...
    def close(self, *, clean: bool) -> None: ...
    def ends(self) -> Ends: ...
    def configure(self, config: dict[str, str]) -> None: ...
    def append_rows(self, batch: Batch, form: str, leader_epoch: int, *, flush: bool = False) -> Info: ...
    def append_bytes(self, data: bytes, leader_epoch: int, origin: str, *, flush: bool = False) -> Info: ...
    def append_as_follower(self, data: bytes, leader_epoch: int) -> Info: ...
    def append_marker(self, marker: Marker, leader_epoch: int) -> Info: ...
    def roll(self) -> int: ...
    def flush(self) -> None: ...
    def truncate_to(self, offset: int) -> bool: ...
    def truncate_fully(self, offset: int, log_start_offset: int | None) -> None: ...
    def delete_records_before(self, offset: int) -> bool: ...
    def fetch(self, offset: int, max_bytes: int, *, committed: bool) -> Fetched: ...
    def offsets_for_times(self, timestamps: Sequence[int]) -> list[Timed | None]: ...
    def records(self) -> list[Read]: ...
    def ends_of_epochs(self, epochs: Sequence[int]) -> list[tuple[int, int] | None]: ...
