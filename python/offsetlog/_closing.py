"""The end of a ``with`` block of a log: closing may fail as a consequence of what ended the block, and does not hide that."""

from __future__ import annotations

import errno
from collections.abc import Callable

from offsetlog.errors import LogPoisonedError, OffsetLogError

__all__ = ["close_behind"]

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_WRITTEN = _NO_ROOM | {errno.EIO}


def close_behind(error: BaseException | None, close: Callable[[], None]) -> None:
    """Close something whose ``with`` block ended with `error`, or with none.

    Otherwise a log that a full disk ended would report that it cannot be closed, and not why: the failure of `close` becomes a
    note of `error`. Every other failure is raised: records that the block appended may not be durable.
    """
    try:
        close()
    except (OSError, OffsetLogError) as failure:
        if error is None or not _follows(error, failure):
            raise
        error.add_note(f"closing failed too: {failure}")


def _follows(error: BaseException, failure: Exception) -> bool:
    """Whether a log that failed with `error` cannot but fail to close."""
    # Another error may be of another log, and caught by somebody who expects it.
    if not isinstance(error, LogPoisonedError) and not (isinstance(error, OSError) and error.errno in _NOT_WRITTEN):
        return False
    return isinstance(failure, LogPoisonedError) or (isinstance(failure, OSError) and failure.errno in _NO_ROOM)
