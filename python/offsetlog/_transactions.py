"""Transactional ids, as the log dirs of their coordinators have them."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from offsetlog._notebook import Rows, report_table
from offsetlog._times import to_datetime
from offsetlog._unread import all_or_raise

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from offsetlog import _offsetlog

    Progress: TypeAlias = Callable[[int, int, str], object] | None

__all__ = ["Transaction"]

logger = logging.getLogger("offsetlog")


class Transaction(NamedTuple):
    """A transactional id and its transaction, the last one or the one that is open."""

    transactional_id: str
    """The producer's ``transactional.id``."""
    producer_id: int
    """The producer id."""
    previous_producer_id: int | None
    """The producer id before, where the record has it."""
    next_producer_id: int | None
    """The producer id that comes with the end of the transaction, where the record has it."""
    producer_epoch: int
    """The producer epoch."""
    next_producer_epoch: int | None
    """The epoch that comes with the end of the transaction, where the record has it."""
    state: str
    """``"Empty"``, ``"Ongoing"``, ``"PrepareCommit"``, ``"PrepareAbort"``, ``"CompleteCommit"``, ``"CompleteAbort"``, ``"Dead"`` or
    ``"PrepareEpochFence"``; ``"Unknown(9)"`` for a number that Kafka 4.3 does not have."""
    timeout_ms: int
    """``transaction.timeout.ms`` of the producer."""
    partitions: tuple[tuple[str, tuple[int, ...]], ...]
    """The partitions of the transaction, by topic; none once it is complete."""
    start_timestamp: int | None
    """When the transaction began, in ms since 1970; ``None`` before the first one."""
    last_update_timestamp: int
    """When the coordinator last changed the record, in ms since 1970."""
    client_transaction_version: int | None
    """The client's ``transaction.version``, where the record has it."""
    partition: int
    """Partition of ``__transaction_state`` that holds the record."""
    offset: int
    """Its offset there."""

    @property
    def start_datetime(self) -> datetime | None:
        """When the transaction began, aware, UTC."""
        return None if self.start_timestamp is None else to_datetime(self.start_timestamp)

    @property
    def last_update_datetime(self) -> datetime | None:
        """When the coordinator last changed the record, aware, UTC."""
        return to_datetime(self.last_update_timestamp)

    def _repr_html_(self) -> str:
        return report_table(self)


def transactions_of(native: _offsetlog.LogDir, progress: Progress) -> list[Transaction]:
    """Return what the compiled module found as the public values; log what was left out."""
    found, warnings, unread = native.transactions(progress=progress)
    for warning in warnings:
        logger.warning("%s", warning)
    return all_or_raise(Rows(found), unread)
