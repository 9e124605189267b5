"""How tests run the mirror, kill it, and look at what it has copied."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from broker import Broker

PROGRAM = shlex.split(os.environ.get("OFFSETLOG_PROGRAM", f"{shlex.quote(sys.executable)} -m offsetlog"))
"""The command line under test."""
MIRROR_SECONDS = 600


def mirror(broker: Broker, into: Path, *arguments: str) -> list[str]:
    """The command that mirrors it."""
    return [*PROGRAM, "mirror", "--bootstrap", broker.address, "--into", str(into), "--json", *arguments]


def ended(broker: Broker, into: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Mirror all that is there: the exit code, and what was said."""
    line = mirror(broker, into, "--once", *arguments)
    done = subprocess.run(line, capture_output=True, text=True, timeout=MIRROR_SECONDS, check=False)
    assert not done.stderr, f"{done.stdout}\n{done.stderr}"
    return done.returncode, [json.loads(text) for text in done.stdout.splitlines()]


def once(broker: Broker, into: Path, *arguments: str) -> list[dict[str, Any]]:
    """Mirror all that is there, with nothing to report; what was said."""
    code, events = ended(broker, into, *arguments)
    assert code == 0, events
    return events


class Mirroring:
    """A mirror that runs until it is interrupted or killed."""

    def __init__(self, command: list[str], said: Path) -> None:
        self._said = said
        with said.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def has_ended(self) -> bool:
        """By itself, which it never does."""
        return self._process.poll() is not None

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        """Stop it as an operator does: its exit code, and what it said."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(MIRROR_SECONDS)
        return code, [json.loads(line) for line in self.text().splitlines()]

    def text(self) -> str:
        """What it said so far."""
        return self._said.read_text(encoding="utf-8")


def log_bytes(partition: Path) -> bytes:
    """A partition's batches: its segments, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))
