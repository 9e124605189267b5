"""Upkeep in the background, for programs that keep a log dir open."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from offsetlog._options import refuse
from offsetlog._text import counted
from offsetlog.errors import LogClosedError

if TYPE_CHECKING:
    from offsetlog._values import LogDirMaintainReport

logger = logging.getLogger("offsetlog")

_JOIN_SECONDS = 60


class _Maintained(Protocol):
    def maintain(self) -> LogDirMaintainReport: ...


def checked_interval(every: object) -> float | None:
    """Return an interval in seconds, if it is one."""
    if every is None:
        return None
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        message = f"maintain_every must be seconds or a timedelta, found {type(every).__name__}"
        raise TypeError(message)
    if not 0 < seconds < threading.TIMEOUT_MAX:
        refuse("maintain_every", every, f"must be more than 0, found {every!r}")
    return float(seconds)


class Upkeep:
    """A thread that maintains a log dir now and then, as long as somebody has that and does not close it."""

    def __init__(self, log_dir: _Maintained, seconds: float) -> None:
        self._log_dir = weakref.ref(log_dir, lambda _: ended.set())
        self._ended = ended = threading.Event()
        self._seconds = seconds
        self._pid = os.getpid()
        # A daemon: the end of the program does not wait for it, and what it does may be cut off anywhere, as by a kill.
        self._thread = threading.Thread(target=self._run, name="offsetlog-maintain", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let a round that runs end, and begin none any more. In a forked child, where the thread is not, nothing."""
        self._ended.set()
        if self._pid == os.getpid() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            log_dir = self._log_dir()
            if log_dir is None:
                return
            try:
                _tell(log_dir.maintain())
            except LogClosedError:
                return
            # Whatever it was, as an error of a clock or a panic of the engine: without a thread nothing would be maintained any more.
            except BaseException:
                logger.exception("upkeep failed; it is tried again in %s s", self._seconds)
            # Not held while it sleeps, so that an unused log dir can be freed.
            del log_dir


def _tell(report: LogDirMaintainReport) -> None:
    for partition, kept in report.partitions.items():
        logger.info(
            "%s-%d: %s removed, %s, %s deleted",
            *partition,
            counted(len(kept.removed), "segment"),
            counted(len(kept.compactions), "compaction"),
            counted(len(kept.deleted), "file"),
        )
    for partition, reason in report.failed.items():
        logger.warning("%s-%d was not maintained: %s", *partition, reason)
