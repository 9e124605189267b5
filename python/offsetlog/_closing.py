"""The end of a ``with`` block: what is closed there may fail, and does not hide the block's own error."""

from __future__ import annotations

from collections.abc import Callable

from offsetlog.errors import OffsetLogError

__all__ = ["close_behind"]


def close_behind(error: BaseException | None, close: Callable[[], None]) -> None:
    """Close something whose ``with`` block ended with `error`, or with none.

    After an error of the block, one of `close` becomes a note of it: a log that a full disk ended would else say that it cannot be
    closed, and not why.
    """
    try:
        close()
    except (OSError, OffsetLogError) as failure:
        if error is None:
            raise
        error.add_note(f"closing failed too: {failure}")
