"""Something that answers Kafka clients: `offsetlog serve` over some directories, or a real broker that was started on copies of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from golden import CLEAN, CLEAN_LOG_DIRS

from broker import ROOT, Broker, two_free_ports

STARTING_SECONDS = 300
STOPPING_SECONDS = 300
ADDRESS = r"127\.0\.0\.1:([1-9][0-9]*)"
NEVER_MS = 2**31 - 1
CERTIFICATES = ROOT / "rust" / "offsetlog-net" / "tests" / "tls"


class Kafka(Protocol):
    """What a client is told."""

    @property
    def address(self) -> str:
        """For `bootstrap.servers`."""


def command(*arguments: str) -> list[str]:
    """The command line of ours, from this environment."""
    return [sys.executable, "-m", "offsetlog", *arguments]


class Served:
    """One process of `offsetlog serve` on a free port of loopback."""

    def __init__(self, paths: Sequence[Path], folder: Path, *options: str) -> None:
        self._output = folder / "serve.txt"
        self._errors = folder / "serve-errors.txt"
        folder.mkdir(parents=True, exist_ok=True)
        # Advertised as something else, its own address is printed beside that one.
        self._named = "Listening at " if "--advertise" in options else ""
        line = command("serve", *map(str, paths), "--listen", "127.0.0.1:0", *options)
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        try:
            self.address = self._wait_for_address()
        except BaseException:
            self.close()
            raise

    def _wait_for_address(self) -> str:
        end = time.monotonic() + STARTING_SECONDS
        while time.monotonic() < end:
            # All it prints at its start is there when it serves.
            if "Ctrl-C" in self.said():
                found = re.search(self._named + ADDRESS, self.said())
                if found:
                    return f"127.0.0.1:{found[1]}"
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"serve printed no address ({self.process.poll()}):\n{self.said()}\n{self.logged()}")

    def said(self) -> str:
        """What it printed."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def logged(self) -> str:
        """What it logged."""
        return self._errors.read_text(encoding="utf-8", errors="replace")

    def resident(self) -> int:
        """Bytes of memory that it holds."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def close(self) -> int:
        """Stop it as an operator does; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode


@contextlib.contextmanager
def serving(paths: Sequence[Path], folder: Path, *options: str) -> Iterator[Served]:
    """Serve these directories; it must end cleanly."""
    server = Served(paths, folder, *options)
    try:
        yield server
    except BaseException:
        server.close()
        raise
    code = server.close()
    assert code == 0, (code, server.logged()[-2000:])
    assert "panicked" not in server.logged(), server.logged()[-4000:]


class GoldenBroker(Broker):
    """A real 4.3.0 broker on copies of what the golden one left, which deletes, cleans, expires and aborts nothing."""

    def __init__(self, directory: Path) -> None:
        super().__init__("4.3.0", directory)
        self.log_dirs = [directory / each.name for each in CLEAN_LOG_DIRS]
        self.settings = {
            "log.dirs": ",".join(map(str, self.log_dirs)),
            # Upkeep begins after this long.
            "log.initial.task.delay.ms": NEVER_MS,
            "log.cleaner.enable": "false",
            "offsets.retention.minutes": NEVER_MS // 60_000,
            "offsets.retention.check.interval.ms": NEVER_MS,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.num.partitions": 2,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": NEVER_MS,
            "group.min.session.timeout.ms": 1000,
            "auto.create.topics.enable": "false",
        }

    def format(self) -> None:
        """Copy the directories, with the cluster's metadata."""
        self.directory.mkdir(parents=True)
        for source in (*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"):
            shutil.copytree(source, self.directory / source.name.removesuffix("-dir"))
        self._port, self._second_port = two_free_ports()

    def stop(self) -> None:
        """Nothing of it is used again."""
        self.kill()


def answers(
    program: Sequence[str], address: str, tasks: Sequence[Mapping[str, object]], *, seconds: float = 1500
) -> list[dict[str, object]]:
    """Have a client program do these tasks; an answer or an error for each."""
    asked = json.dumps({"bootstrap": address, "tasks": list(tasks)})
    done = subprocess.run(program, input=asked, capture_output=True, text=True, timeout=seconds, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{program}\n{done.stdout[-500:]}\n{done.stderr[-4000:]}"
    found: list[dict[str, object]] = [json.loads(line) for line in lines]
    assert len(found) == len(tasks), done.stderr[-4000:]
    return found
