"""The ``offsetlog`` command: nearly everything happens in the compiled module."""

from __future__ import annotations

import os
import signal
import sys

from offsetlog._offsetlog import run_cli

__all__ = ["main"]


def main() -> int:
    """Run the command line with ``sys.argv`` and return its exit code."""
    # No Python code runs from here on that could turn Ctrl-C into an exception: let it end the process, as of any command.
    # A shell that started the command in the background ignores the signal on its behalf; that stays so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Python has no object for a stream that was closed when it began. Its number is taken, or a file that is opened from here on would
    # get it: a lock file would be read as input, or records be printed into one.
    closed = [number for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)) if stream is None]
    for number in closed:
        taken = os.open(os.devnull, os.O_RDWR)
        if taken > number:
            os.close(taken)
    if sys.argv[1:2] == ["commits"] and not {"-h", "--help"} & set(sys.argv):
        from offsetlog._cli_commits import run  # noqa: PLC0415  # only for those who ask for it

        return run(sys.argv[2:])
    return run_cli(sys.argv, closed, owns_signals=True)
