"""Whether a log still holds the records that were read or planned: it may have been truncated and have grown past them again.

Source: KIP-320. A log's leader epochs only rise, so a batch below an offset whose epoch is above the one that was read there was
appended by a later leader, in place of what that one truncated. This reads batch headers: unlike ``leader-epoch-checkpoint`` they
are in every copy of a log, and compaction and retention remove some without moving the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsetlog.errors import OffsetLogError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from offsetlog import BatchInfo, Log

__all__ = ["epoch_before", "newest_epoch", "replaced_from"]

_LOOKS = 3
"""How often a log that changes meanwhile is looked at."""


def epoch_before(log: Log, offset: int) -> int | None:
    """Return the leader epoch of the last offset below `offset`, as the header of its batch has it.

    If compaction removed that batch, the next one has an epoch that is not below it, and no later leader has one below that: it is
    returned, so that a truncation is found, and never reported where there was none.

    Returns
    -------
    int | None
        ``None`` if nothing can be compared later: the log starts at `offset` or ends below it, its batches have no epochs, or
        damage hides them.

    Notes
    -----
    Costs one look-up of an offset.
    """
    try:
        if not log.log_start_offset < offset <= log.log_end_offset:
            return None
        batch = _batch(log, offset - 1)
        epoch = newest_epoch(log) if batch is None else batch.leader_epoch
    except (OffsetLogError, FileNotFoundError):
        # The reader reports what is damaged or gone.
        return None
    return None if epoch is None or epoch < 0 else epoch


def replaced_from(log: Log, offset: int, epoch: int | None) -> int | None:
    """Return from where on another leader wrote below `offset`, where the last offset had the leader epoch `epoch` before.

    Returns
    -------
    int | None
        The first offset whose records are others now; ``None`` if nothing below `offset` was replaced, as far as the log shows.

    Notes
    -----
    Costs a small file if no leader has come since, else one look-up of an offset; a binary search over the log if the answer is not
    ``None``.
    """
    newest = None if epoch is None else newest_epoch(log)
    if epoch is None or (newest is not None and newest <= epoch):
        return None
    for _ in range(_LOOKS):
        try:
            return _replaced_from(log, offset, epoch)
        except OffsetOutOfRangeError:
            # The log was truncated, or retention removed its first segment, since its bounds were looked up.
            continue
        except (OffsetLogError, FileNotFoundError):
            break
    return None


def newest_epoch(log: Log) -> int | None:
    """Return an epoch that none of the batches is above; ``None`` if only the batches can tell."""
    try:
        return log.leader_epoch
    except (OffsetLogError, FileNotFoundError, PermissionError):
        # The checkpoint of epochs cannot be read, is gone, or is another user's.
        return None


def _replaced_from(log: Log, offset: int, epoch: int) -> int | None:
    low, stop = log.log_start_offset, min(offset, log.log_end_offset)
    if low >= stop or not _is_above(_batch(log, stop - 1), epoch):
        return None
    high = stop - 1
    while low < high:
        middle = (low + high) // 2
        if _is_above(_batch(log, middle), epoch):
            high = middle
        else:
            low = middle + 1
    batch = _batch(log, low)
    # If compaction left nothing from there to `stop`, this batch is one that nobody has read yet.
    return low if batch is not None and batch.leader_epoch > epoch and batch.base_offset < stop else None


def _batch(log: Log, offset: int) -> BatchInfo | None:
    """Return the header of the batch that holds an offset, or of the next one."""
    return next(iter(log.batches(offset)), None)


def _is_above(batch: BatchInfo | None, epoch: int) -> bool:
    # Behind the last batch comes that of a later leader, or nothing.
    return batch is None or batch.leader_epoch > epoch
