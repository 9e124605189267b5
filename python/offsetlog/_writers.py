"""Writers that nobody has closed when the program ends: what waits in them is appended then, with a warning."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from offsetlog._offsetlog import Writer

__all__ = ["remembered"]

_REMEMBERED: WeakSet[Writer] = WeakSet()


def remembered(writer: Writer) -> Writer:
    """Have a writer closed at the end of the program, if nobody does it before."""
    _REMEMBERED.add(writer)
    return writer


@atexit.register
def _end_all() -> None:
    for writer in list(_REMEMBERED):
        writer._end()  # noqa: SLF001  # same package
