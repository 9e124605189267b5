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

import pyspark
import pytest
from rows import row
from stream_engine import add, held

from offsetlog import Log

PROGRAM = Path(__file__).with_name("stream_program.py")
KILLS = 12
DRIVERS = 2
"""A driver takes several seconds to come back, so most kills are of what comes back at once."""
PLANNER = b"pyspark.sql.streaming.python_streaming_source_runner"
WORKER = b"pyspark.worker"
PUBLISHER = b"pyspark.sql.worker.python_streaming_sink_runner"
KINDS = {"planner": PLANNER, "worker": WORKER, "publisher": PUBLISHER}
WAIT_SECONDS = 240


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
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PROGRAM.parent), *sys.path]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._output = folder / f"life-{number}.txt"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(logs), str(folder)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
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


@pytest.mark.skipif(pyspark.__version__.startswith("4.0."), reason="minutes; runs on the newest PySpark: make test-spark")
@pytest.mark.timeout(1800)
def test_streams_that_are_killed(tmp_path: Path) -> None:
    with row(27, "Spark streams", "kills", KILLS) as part:
        draw = part.random
        drivers = math.ceil(part.floor * DRIVERS / KILLS)
        folder = tmp_path / "stream"
        folder.mkdir()
        logs = [Log.open(tmp_path / "logs" / name, "a") for name in ("t-0", "t-1")]
        kinds: Counter[str] = Counter()
        life = Life(tmp_path / "logs", folder, 0)
        micro_batches = 0
        try:
            while part.cases < part.floor or kinds["driver"] < drivers:
                life.wait_for("running")
                # Something must have been read in each life, or nothing would ever be.
                seen = len(life.said("micro-batch"))
                add(draw.choice(logs), draw.randrange(1, 100))
                life.wait_for("micro-batch", seen + 1)
                until = time.monotonic() + draw.uniform(0, 1)
                while time.monotonic() < until:
                    add(draw.choice(logs), draw.randrange(1, 40))
                    time.sleep(0.05)
                if len(logs) < 5 and draw.random() < 0.3:
                    logs.append(Log.open(tmp_path / "logs" / f"{draw.choice(['t', 'tt'])}-{len(logs)}", "a"))
                if part.floor - part.cases <= drivers - kinds["driver"] or draw.random() < DRIVERS / KILLS:
                    micro_batches += len(life.said("micro-batch"))
                    life.kill()
                    kinds["driver"] += 1
                    part.count()
                    life = Life(tmp_path / "logs", folder, kinds["driver"])
                    continue
                kind = draw.choice(list(KINDS))
                end = time.monotonic() + 5
                # Those that publish live for a moment only.
                while not (killed := life.kill_one(KINDS[kind], draw)) and kind == "publisher" and time.monotonic() < end:
                    add(logs[0], 1)
                    time.sleep(draw.uniform(0, 0.05))
                if killed:
                    kinds[kind] += 1
                    part.count()
            for log in logs:
                add(log, 50)
            (folder / "enough").touch()
            found = life.end()
        finally:
            life.kill()
            for log in logs:
                log.close()
        print(f"kills: {dict(kinds)}; micro-batches: {micro_batches + len(life.said('micro-batch'))}; died: {life.said('died')[:3]}")
        wanted = [
            [topic, partition, offset, str(offset)]
            for (topic, partition), offsets in held(tmp_path / "logs").items()
            for offset in offsets
        ]
        for sink in ("each", "topic"):
            assert found[sink] == sorted(wanted), sink
