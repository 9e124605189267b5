"""Row 27. Streams whose processes are killed while somebody appends: every record is in the sinks once.

Killed are the whole driver (Python and JVM), the driver's process that plans a stream, and workers that read; between micro-batches
and in them, as it happens; and processes that publish what a micro-batch wrote. Two sinks: a topic, and a ``foreachBatch`` that replaces what
a micro-batch of that number left.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import environment
from rows import row
from stream_engine import add, held

from offsetlog import Log

PROGRAM = Path(__file__).with_name("stream_program.py")
KILLS = 100
DRIVERS = 6
"""A driver takes several seconds to come back, so most kills are of what comes back at once."""
KILLS_A_PROGRESS = 5
"""So often a micro-batch must come through: kills that follow each other without one would only meet what starts."""
SIGHT_SECONDS = 10
"""How long to wait for a process of the kind that is to be killed."""
PLANNER = b"pyspark.sql.streaming.python_streaming_source_runner"
WORKER = b"pyspark.worker"
PUBLISHER = b"pyspark.sql.worker.python_streaming_sink_runner"
KINDS = {"planner": PLANNER, "worker": WORKER, "publisher": PUBLISHER}
WAIT_SECONDS = 900


def parents() -> dict[int, tuple[int, bytes]]:
    """Processes with their parents and command lines."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(folder.name)] = (parent, (folder / "cmdline").read_bytes())
            except OSError:
                continue
    return found


def below(pid: int) -> Iterator[tuple[int, bytes]]:
    """The processes that came of one, with their command lines."""
    table = parents()
    for candidate, (_, command) in table.items():
        above = candidate
        while above in table and above != pid:
            above = table[above][0]
        if above == pid != candidate:
            yield candidate, command


class Life:
    """One life of the driver, from its start to its death, or to the end."""

    def __init__(self, logs: Path, folder: Path, number: int) -> None:
        self._output = folder / f"life-{number}.txt"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(logs), str(folder)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
                cwd=folder,
                start_new_session=True,
            )

    def said(self, what: str) -> list[dict[str, object]]:
        """The lines of this kind so far."""
        lines = self._output.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [json.loads(line) for line in lines if line.startswith('{"what"') and line.endswith("}")]
        return [line for line in told if line["what"] == what]

    def wait_for(self, what: str, count: int = 1) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while len(self.said(what)) < count:
            assert self._process.poll() is None, self._output.read_text(encoding="utf-8", errors="replace")[-4000:]
            assert time.monotonic() < end, f"no {what}:\n{self._output.read_text(encoding='utf-8', errors='replace')[-4000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """The whole driver, at once: Python and JVM are of one group; what the JVM started ends without it."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_one(self, kind: bytes, draw: random.Random) -> bool:
        """One process of this kind, if there is one."""
        found = [pid for pid, command in below(self._process.pid) if kind in command.replace(b"pyspark.daemon\0", b"").split(b"\0")]
        if not found:
            return False
        try:
            os.kill(draw.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> dict[str, object]:
        """What the sinks hold, after the driver came to its own end."""
        self._process.wait(2 * WAIT_SECONDS)
        return self.said("held")[-1]


class Appending:
    """The logs that the streams read, appended to by the test itself."""

    def __init__(self, log_dir: Path, draw: random.Random) -> None:
        self.logs = [Log.open(log_dir / name, "a") for name in ("t-0", "t-1")]
        self._log_dir = log_dir
        self._draw = draw

    def some(self, most: int) -> None:
        """A batch somewhere; now and then a partition or a topic more."""
        if len(self.logs) < 5 and self._draw.random() < 0.05:
            name = f"{self._draw.choice(['t', 'tt'])}-{len(self.logs)}"
            self.logs.append(Log.open(self._log_dir / name, "a"))
        add(self._draw.choice(self.logs), self._draw.randrange(1, most))

    def close(self) -> None:
        for log in self.logs:
            log.close()


def progress(life: Life, appending: Appending) -> None:
    """A micro-batch that began now comes through."""
    seen = len(life.said("micro-batch"))
    appending.some(100)
    life.wait_for("micro-batch", seen + 1)


def kill_some(life: Life, appending: Appending, draw: random.Random) -> str | None:
    """Kill one process of a kind that is drawn, and say which kind; or nothing where there is none to be seen."""
    until = time.monotonic() + draw.uniform(0, 0.6)
    while time.monotonic() < until:
        appending.some(40)
        time.sleep(0.05)
    kind = draw.choice(list(KINDS))
    end = time.monotonic() + SIGHT_SECONDS
    while not life.kill_one(KINDS[kind], draw):
        if time.monotonic() > end:
            return None
        appending.some(2)
        time.sleep(draw.uniform(0, 0.02))
    return kind


@pytest.mark.timeout(7200)
def test_streams_that_are_killed(tmp_path: Path) -> None:
    with row(27, "Spark streams", "kills", KILLS) as part:
        draw = part.random
        drivers = math.ceil(part.floor * DRIVERS / KILLS)
        folder = tmp_path / "stream"
        folder.mkdir()
        appending = Appending(tmp_path / "logs", draw)
        kinds: Counter[str] = Counter()
        micro_batches = 0
        life = Life(tmp_path / "logs", folder, 0)
        try:
            for number in range(drivers + 1):
                life.wait_for("running")
                progress(life, appending)
                # Kills of others are shared out evenly among the lives of the driver.
                others = math.ceil((part.floor - drivers) * (number + 1) / (drivers + 1))
                while kinds.total() - kinds["driver"] < others:
                    killed = kill_some(life, appending, draw)
                    if killed is not None:
                        kinds[killed] += 1
                        part.count()
                        if kinds.total() % KILLS_A_PROGRESS == 0:
                            progress(life, appending)
                if number < drivers:
                    micro_batches += len(life.said("micro-batch"))
                    life.kill()
                    kinds["driver"] += 1
                    part.count()
                    life = Life(tmp_path / "logs", folder, number + 1)
            for log in appending.logs:
                add(log, 50)
            (folder / "enough").touch()
            found = life.end()
        finally:
            life.kill()
            appending.close()
        print(f"kills: {dict(kinds)}; micro-batches: {micro_batches + len(life.said('micro-batch'))}; died: {life.said('died')[:3]}")
        wanted = [
            [topic, partition, offset, str(offset)]
            for (topic, partition), offsets in held(tmp_path / "logs").items()
            for offset in offsets
        ]
        for sink in ("each", "topic"):
            assert found[sink] == sorted(wanted), sink
