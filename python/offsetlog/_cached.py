"""``open_cached``: logs kept open per process, for workers that look records up again and again."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offsetlog._log import Log
from offsetlog._options import open_options, path_text

if TYPE_CHECKING:
    from typing import Unpack

    from offsetlog._options import Limits, PathLike

__all__ = ["open_cached"]

CACHED_LOGS = 64
"""How many logs one process keeps open; the least recently used one is closed first."""

_Key = tuple[Any, ...]
_logs: OrderedDict[_Key, tuple[int, Log]] = OrderedDict()
_lock = threading.Lock()


def open_cached(
    path: PathLike,
    *,
    mapped: bool = False,
    **limits: Unpack[Limits],
) -> Log:
    """Return a log that stays open in this process, so that a Spark worker opens it once and not once per task or row.

    The same object comes back for the same directory and options, until the directory itself changes (a segment was added or
    removed); then it is opened again. It sees what any :class:`Log` sees, so what was truncated, deleted or appended is seen without
    that. Do not close it: others in this process may hold it too.

    Parameters
    ----------
    path, mapped, **limits
        As for :meth:`Log.open`.

    Raises
    ------
    OSError, LogDirError, ConfigError
        As for :meth:`Log.open`.

    Notes
    -----
    At most 64 logs per process are kept; a forked child starts with none. Costs one ``stat`` when the log is there.

    Examples
    --------
    >>> path = "tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0"
    >>> open_cached(path) is open_cached(path)
    True
    """
    options = open_options(mapped=mapped, **limits)
    real = os.path.realpath(path_text(path))
    key = (os.getpid(), real, options["mapped"], *options["limits"].values())
    changed = Path(real).stat().st_mtime_ns
    with _lock:
        entry = _logs.get(key)
        if entry is not None and entry[0] == changed and not entry[1].closed:
            _logs.move_to_end(key)
            return entry[1]
    # Opened outside the lock: one slow disk does not hold up look-ups elsewhere. Two threads may open the same log; one wins.
    log = Log.open(real, mapped=options["mapped"], **options["limits"])
    with _lock:
        _logs[key] = (changed, log)
        _logs.move_to_end(key)
        while len(_logs) > CACHED_LOGS:
            _logs.popitem(last=False)
    return log


def _forget_after_fork() -> None:
    # The lock may be held by a thread that does not exist in the child.
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _logs.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
