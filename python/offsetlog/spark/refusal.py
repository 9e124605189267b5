"""Refusing an option: the text names it, shows what was found, and can always be written.

What users give may hold anything: megabytes, numbers of thousands of digits, half of a surrogate pair. The text crosses the JVM, so
it is kept short and is always UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from offsetlog.errors import ConfigError

__all__ = ["refuse", "refusing", "shown", "shown_json", "writable"]

_TEXT_MAX = 200
_MESSAGE_MAX = 1500


def refuse(name: str, value: object, reason: str) -> NoReturn:
    """Raise :class:`ConfigError` with a text that begins with the option's name."""
    text = value if isinstance(value, str) else shown(value)
    raise ConfigError(writable(f"option {name}: {reason}"), key=writable(name, _TEXT_MAX), value=writable(text, _TEXT_MAX))


@contextmanager
def refusing(name: str, value: object) -> Iterator[None]:
    """Refuse an option whose value breaks what looks at it: numbers too long to be read, nesting too deep, text that is none."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, OverflowError, RecursionError) as error:
        refuse(name, value, f"cannot be used, found {shown(value)} ({error})")


def shown(value: object) -> str:
    """Return how a value looks, cut to a length that can be read."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _TEXT_MAX else f"{value[:_TEXT_MAX]!r}..."
    if isinstance(value, int) and value.bit_length() > 8 * _TEXT_MAX:
        return f"a number of {value.bit_length()} bits"
    try:
        return repr(value)[:_TEXT_MAX]
    except (ValueError, RecursionError):
        return type(value).__name__


def shown_json(value: object) -> str:
    """Return how a value that was parsed looks as JSON."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        return shown(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def writable(text: str, most: int = _MESSAGE_MAX) -> str:
    """Return a text that UTF-8 can hold, of no more than `most` characters."""
    plain = text[:most].encode("utf-8", "backslashreplace").decode("utf-8")
    return plain if len(text) <= most and len(plain) <= most else f"{plain[: most - 3]}..."
