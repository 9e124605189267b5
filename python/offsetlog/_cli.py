"""The ``offsetlog`` command: nearly everything happens in the compiled module."""

from __future__ import annotations

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
    if sys.argv[1:2] == ["commits"] and not {"-h", "--help"} & set(sys.argv):
        from offsetlog._cli_commits import run  # noqa: PLC0415  # only for those who ask for it

        return run(sys.argv[2:])
    return run_cli(sys.argv)
