"""Times between Python and Kafka: an ``int`` of milliseconds since 1970, or an aware ``datetime``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from offsetlog.errors import ConfigError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MIN_MS, _MAX_MS = -(1 << 63), (1 << 63) - 1

type_names = "an int of milliseconds since 1970-01-01T00:00:00Z or an aware datetime"


def to_millis(when: int | datetime, name: str) -> int:
    """Return `when` in whole milliseconds since 1970, rounded up.

    Kafka's timestamps are whole milliseconds, so ``timestamp >= when`` and ``timestamp < when`` both stay exact only when a
    finer `when` is rounded up.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None or when.utcoffset() is None:
            message = f"{name} is a naive datetime, {when.isoformat()}: give it a time zone, as in datetime(..., tzinfo=timezone.utc)"
            raise ConfigError(message, key=name, value=when.isoformat())
        return -((EPOCH - when) // _MILLISECOND)
    if isinstance(when, bool) or not isinstance(when, int):
        message = f"{name} must be {type_names}, found {type(when).__name__}"
        raise TypeError(message)
    if not _MIN_MS <= when <= _MAX_MS:
        message = f"{name} does not fit 64 bits: {when}"
        raise ConfigError(message, key=name, value=str(when))
    return when


def optional_millis(when: int | datetime | None, name: str) -> int | None:
    """Return :func:`to_millis` of `when`, or ``None`` for ``None``."""
    return None if when is None else to_millis(when, name)


def to_datetime(timestamp: int) -> datetime | None:
    """Return the aware UTC datetime of a record's `timestamp` in ms; ``None`` for -1 (no timestamp) and outside years 1 to 9999."""
    if timestamp == -1:
        return None
    try:
        return EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return None
