"""`offsetlog serve` in a process of its own, as a user starts it: what it serves, what it reports, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from pages import MODULE, ROOT

SECONDS = 300
READY = "Ctrl-C stops it.\n"

Line = dict[str, Any]


def refused(*words: str | Path) -> str:
    """The only line on standard error of a server that does not start. Its exit code is 2, and standard output has nothing."""
    done = subprocess.run(
        [*MODULE, "serve", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout) == (2, ""), (done.returncode, done.stdout, done.stderr)
    return done.stderr


class ServeProcess:
    """One process, at a port that the system chooses unless it is told where to listen. It is ended by its process id."""

    def __init__(self, folder: Path, *words: str | Path, json: bool = True) -> None:
        self._output, self._errors = folder / "serve-output.txt", folder / "serve-errors.txt"
        self._is_json = json
        given = [*map(str, words), *(["--json"] if json else [])]
        if "--listen" not in given:
            given += ["--listen", "127.0.0.1:0"]
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*MODULE, "serve", *given], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )
        try:
            self._wait(lambda: self.said().endswith("\n") if json else self.said().endswith(READY))
        except BaseException:
            self.kill()
            raise

    def _wait(self, is_there: Callable[[], object]) -> None:
        end = time.monotonic() + SECONDS
        while not is_there():
            assert self.process.poll() is None, (self.process.returncode, self.logged())
            assert time.monotonic() < end, (self.said(), self.logged())
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, _: object, __: object) -> None:
        code = self.stop()
        assert "panicked" not in self.logged(), self.logged()[-4000:]
        # A test that ended it by another signal looks at the code itself.
        assert kind is not None or code in {0, 130, -signal.SIGKILL}, (code, self.logged())

    def said(self) -> str:
        """What it printed."""
        return self._output.read_text(encoding="utf-8")

    def logged(self) -> str:
        """What it wrote to standard error."""
        return self._errors.read_text(encoding="utf-8")

    def lines(self) -> list[Line]:
        """With `--json`: each whole line that it printed."""
        return [json.loads(line) for line in self.said().splitlines(keepends=True) if line.endswith("\n")]

    @property
    def served(self) -> Line:
        """With `--json`: the first line, which says what is served."""
        return self.lines()[0]

    @property
    def address(self) -> str:
        """For `bootstrap.servers`, with `--json`."""
        return str(self.served["bootstrap_servers"])

    def partitions(self) -> dict[str, Line]:
        """What the first line says of each partition, by its name."""
        return {f"{topic['topic']}-{each['partition']}": each for topic in self.served["topics"] for each in topic["partitions"]}

    def event(self, kind: str) -> Line:
        """Wait for the first event of this kind."""
        found: list[Line] = []

        def is_there() -> bool:
            found.extend(line for line in self.lines() if line["event"] == kind)
            return bool(found)

        self._wait(is_there)
        return found[0]

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """End it as an operator does, unless it has ended; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return self.process.returncode

    def kill(self) -> None:
        """End it as a loss of memory or an operator in haste does."""
        self.process.kill()
        self.process.wait()


def names(log_dirs: Sequence[Path]) -> set[str]:
    """The partition directories of these log dirs, those that a broker was about to delete left out."""
    found = {path.name for log_dir in log_dirs for path in log_dir.iterdir() if path.is_dir()}
    return {name for name in found if not name.endswith("-delete")}
