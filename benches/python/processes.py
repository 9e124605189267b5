"""Programs that answer one line with one line, so that two of them can take turns and both stay warm."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

CLOSING_SECONDS = 20


class BenchError(RuntimeError):
    """The benches cannot go on; the text says why."""


class RefusedError(BenchError):
    """A program answered that it cannot do a round."""

    def __init__(self, program: LineProgram, request: Sequence[object], answer: str) -> None:
        super().__init__(f"{program.name}, {request[0]} of {request[1]}: {answer}")
        self.program = program
        self.answer = answer


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

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._command = command
        self._env = env
        self._log_path = log
        self._log = log.open("w")
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
            env=self._env,
        )
        self._process = process
        if self._answer() != "ready":
            raise BenchError(f"{self.name} did not start; see {self._log_path}")
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._log.close()

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def restart(self) -> None:
        """Ends the process and starts another one: where a process lies in memory can make it a few percent slower for all its life."""
        self._end()
        self._process = self._started()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Spark's own words go to standard output too.
            if line.startswith(("ready", "cpu=", "error")):
                return line.strip()
        raise BenchError(f"{self.name} ended; see {self._log_path}")

    def round(self, *request: str | int | Path) -> Round:
        """Runs one round."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(str(word) for word in request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer.startswith("error"):
            raise RefusedError(self, request, answer)
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


class KafkaProgram(LineProgram):
    """Kafka's storage layer, which knows no mapped logs: it does the same work without."""

    def round(self, *request: str | int | Path) -> Round:
        """Runs one round."""
        return super().round(str(request[0]).removeprefix("mapped-"), *request[1:])
