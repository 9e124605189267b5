"""A clock that a broker takes for the system's, and that a test moves while the broker runs."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def why_not() -> str | None:
    """Why no clock can be moved here."""
    if not sys.platform.startswith("linux"):
        return "the time of day of one process is bent on Linux only"
    return None if shutil.which("cc") else "no C compiler"


class MovedClock:
    """Bends the time of day alone: timeouts and timers, which go by the time since the machine's start, run as ever.

    (``faketime`` does the same, and takes so long for each look at the clock that a broker needs minutes for seconds.)
    """

    def __init__(self, directory: Path) -> None:
        self._library, self._ahead = directory / "moved_clock.so", directory / "ahead"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", self._library, SOURCE, "-ldl"], check=True)
        self.move(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the process whose clock it is."""
        return {"LD_PRELOAD": str(self._library), "OFFSETLOG_CLOCK": str(self._ahead)}

    def move(self, seconds: int) -> None:
        """From now on the clock is this much ahead of the system's."""
        with self._ahead.open("r+b" if self._ahead.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))
