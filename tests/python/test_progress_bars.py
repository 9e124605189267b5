"""The bar that long work of the command line draws on a terminal, and nowhere else."""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA
from writing import environment

from offsetlog import Log

WORKS: dict[str, tuple[tuple[object, ...], str]] = {
    "salvage": (("old", "--into", "new"), "orders-0"),
    "restore": (("old", "--into", "new"), "orders-0"),
    "adopt": (
        ("log-dir/g-plain-0", "--metadata", CLEAN / "metadata-dir", "--log-dir", CLEAN_LOG_DIRS[1], "--dry-run"),
        "g-plain-0",
    ),
    "groups": (CLEAN_LOG_DIRS, "__consumer_offsets-0"),
    "why": (("old",), "orders-0"),
    "producers": (CLEAN_LOG_DIRS, "__consumer_offsets-0"),
    "transactions": (CLEAN_LOG_DIRS, "__transaction_state-"),
    "metadata --directories": (("old",), "orders-0"),
    "metadata": ((CLEAN / "metadata-dir",), "__cluster_metadata-0"),
    "metadata --configs": ((CLEAN / "metadata-dir",), "__cluster_metadata-0"),
    "metadata --get": (("/brokers/topics/first", DATA / "zookeeper" / "3.8.4"), "snapshot.40"),
    # It counts bytes and names nothing.
    "verify": (("old",), ""),
    "recover": (("old/orders-0", "--dry-run"), "orders-0"),
    "end-transaction": (("g-txn-0", 1000, *CLEAN_LOG_DIRS, "--abort", "--dry-run"), "__transaction_state-"),
}
"""What each is called with, and what the bar names."""


def drawn(directory: Path, *arguments: object) -> str:
    """What a command draws on the terminal that its standard error is."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [sys.executable, "-m", "offsetlog", *map(str, arguments)]
    done = subprocess.Popen(
        command, cwd=directory, env={**environment(), "TERM": "xterm"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=its
    )
    os.close(its)
    parts = []
    try:
        while part := os.read(ours, 65_536):
            parts.append(part)
    except OSError:
        # That is how Linux tells that nobody has the other end any more.
        pass
    os.close(ours)
    assert done.wait(300) == 0
    return b"".join(parts).decode()


@pytest.mark.parametrize("verb", WORKS)
def test_it_is_drawn_on_a_terminal(verb: str, tmp_path: Path) -> None:
    with Log.open(tmp_path / "old" / "orders-0", "a") as log:
        for _ in range(30):
            log.append(bytes(100_000))
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-plain-0", tmp_path / "log-dir" / "g-plain-0")
    shutil.copy(CLEAN_LOG_DIRS[0] / "meta.properties", tmp_path / "log-dir")
    (tmp_path / "log-dir" / "g-plain-0" / "partition.metadata").unlink()
    arguments, name = WORKS[verb]
    text = drawn(tmp_path, *verb.split(), *arguments)
    assert "%" in text
    assert name in text
    # How long it takes is told from the first step on, at the speed that was measured.
    first = text.index("%")
    assert " left" not in text[:first]
    assert " left" in text[first:]
    assert "%" not in drawn(tmp_path, *verb.split(), *("elsewhere" if word == "new" else word for word in arguments), "-q")
