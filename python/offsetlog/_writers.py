"""Writers that nobody has closed when the process ends: what waits in them is appended then, with a warning."""

from __future__ import annotations

import atexit
import logging  # noqa: F401  # its own end comes after the one that is registered here
import os
import sys
from typing import TYPE_CHECKING

from offsetlog import _offsetlog

if TYPE_CHECKING:
    from offsetlog._offsetlog import Writer

__all__ = ["remembered"]

# After all that `multiprocessing` ends but its temporary folders.
_PRIORITY = -50

# Process for whose end `multiprocessing` was told.
_told = 0

atexit.register(_offsetlog.end_writers, stay_open=False)


def remembered(writer: Writer) -> Writer:
    """Have what waits in a writer appended at the end of the process.

    Children of ``multiprocessing`` end without ``atexit``, except where they were spawned. Their threads go on after what runs
    instead at the end, so that the writers stay open.
    """
    global _told  # noqa: PLW0603  # once a process
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None and _told != os.getpid():
        from multiprocessing.util import Finalize  # noqa: PLC0415  # only where it is in use

        Finalize(None, _offsetlog.end_writers, kwargs={"stay_open": True}, exitpriority=_PRIORITY)
        _told = os.getpid()
    return writer
