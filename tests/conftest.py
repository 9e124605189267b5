"""What all tests share: skipped ones are written down for the closing lines of ``make test``, and Ctrl-C works."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Tests that a shell started in the background: what they start would ignore Ctrl-C too, and some tests are about Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Append the reason of each skipped test to the file named by ``OFFSETLOG_SKIPS``."""
    into = os.environ.get("OFFSETLOG_SKIPS")
    skipped = terminalreporter.stats.get("skipped", [])
    if not into or not skipped:
        return
    with Path(into).open("a", encoding="utf-8") as file:
        for report in skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            file.write(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}\n")
