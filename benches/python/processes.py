"""Programs that answer one line with one line, so that two of them can take turns and both stay warm."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

CLOSING_SECONDS = 20


class BenchError(RuntimeError):
    """The benches cannot go on; the text says why."""


@dataclass(frozen=True)
class Round:
    """What one round answered: seconds, how many things were met, and a checksum over them."""

    cpu: float
    wall: float
    count: int
    sum: int
    p50: float
    p99: float
    peak_rss: int


class LineProgram:
    """A running program of the line protocol: `WORK DIRECTORY [ARGUMENTS]` in, `cpu= wall= count= sum= [p50= p99=]` out."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._log_path = log
        self._log = log.open("w")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1
        )
        if self._answer() != "ready":
            raise BenchError(f"{name} did not start; see {log}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"{self.name} ended; see {self._log_path}")
        return line.strip()

    def round(self, *request: str | int | Path) -> Round:
        """Runs one round."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(str(word) for word in request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer.startswith("error"):
            raise BenchError(f"{self.name}, {request[0]} of {request[1]}: {answer}")
        fields = dict(field.split("=", 1) for field in answer.split())
        return Round(
            cpu=float(fields["cpu"]),
            wall=float(fields["wall"]),
            count=int(fields["count"]),
            sum=int(fields["sum"]),
            p50=float(fields.get("p50", 0)) / 1e6,
            p99=float(fields.get("p99", 0)) / 1e6,
            peak_rss=int(fields.get("peak_rss", 0)),
        )
