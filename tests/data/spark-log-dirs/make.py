"""Makes the log dirs here with the offsetlog of commit 87ffd2d, whose Spark sink left notes of version 0.

Run with that version and its PySpark: ``PYTHONPATH=<its tree>/python python make.py <new folder>``. Each log dir is made in a folder of
its own by processes that kill themselves where the case says, a stream's with Spark's JVM. Paths are relative, so that notes and
checkpoints hold nothing of the machine. Ends with a packed file for each case beside this one.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
SMALL = {"segment.index.bytes": "1024"}
BEFORE = [(f"k{number}", f"before {number}", number % 3) for number in range(6)]
ROWS = [(f"k{number}", f"job {number}", number % 3) for number in range(30)]

# Name of a case: options, and where the driver dies, as the n-th call of a function.
JOBS: dict[str, tuple[dict[str, str], str]] = {
    "job-published": ({"transactionId": "day-1"}, ""),
    "job-staged": ({"transactionId": "day-1"}, "_write 1"),
    "job-noted": ({"transactionId": "day-1"}, "_move_all 1"),
    "job-in-a-partition": ({"transactionId": "day-1"}, "append_log 5"),
    "job-in-several-partitions": ({"transactionId": "day-1", "at once": "4"}, "append_log 5"),
    "job-in-many-segments": ({"transactionId": "day-1", "internal.segment.bytes": "200"}, "append_log 6"),
    "job-not-flushed": ({"transactionId": "day-1"}, "flush 2"),
    "job-all-moved": ({"transactionId": "day-1"}, "_write 2"),
    "job-note-aside": ({"transactionId": "day-1"}, "replace 2"),
    "job-not-tidied": ({"transactionId": "day-1"}, "discard 3"),
    "job-failed": ({"transactionId": "day-1", "held": "t-1"}, ""),
    "job-in-two-log-dirs": ({"transactionId": "day-1", "path": "logs,logs-2"}, "append_log 5"),
    "nameless": ({}, "append_log 5"),
    "restore": ({"transactionId": "day-1", "preserveOffsets": "true"}, "append_log 5"),
}
STREAMS: dict[str, str] = {
    "stream-published": "",
    "stream-not-committed": "committed 2",
    "stream-in-its-first": "append_log 2",
    "stream-in-its-second": "append_log 4",
    "stream-noted": "_move_all 2",
    "stream-all-moved": "_write 4",
}


def die() -> None:
    """Kill this process, and the JVM that it came of."""
    pid = os.getppid()
    while pid > 1:
        if b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
            os.kill(pid, signal.SIGKILL)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(os.getpid(), signal.SIGKILL)


def plan_death() -> None:
    """Die before the n-th call of a function of the commit; of `committed`, behind it. Also called in the processes of Spark."""
    import offsetlog
    from offsetlog.spark import publishing, sink

    publishing.PARTITIONS_AT_ONCE = int(os.environ.get("AT_ONCE", "1"))
    name, _, number = os.environ.get("DEATH", "").partition(" ")
    places: dict[str, list[Any]] = {
        "append_log": [offsetlog.Log],
        "flush": [offsetlog.Log],
        "replace": [Path],
        "discard": [publishing],
        "committed": [],
    }
    seen = 0

    def counted(real: Callable[..., Any], *, behind: bool = False) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            nonlocal seen
            seen += 1
            is_it = seen == int(number)
            if is_it and not behind:
                die()
            done = real(*arguments, **named)
            if is_it:
                die()
            return done

        return called

    if name == "committed":
        sink.StreamWriter.commit = counted(sink.StreamWriter.commit, behind=True)
    elif name:
        for owner in places.get(name, [publishing]):
            setattr(owner, name, counted(getattr(owner, name)))


def table(rows: list[tuple[str, str, int]], offsets: bool) -> Any:  # noqa: ANN401
    """Rows as Spark hands them to a task; of a restore with every second offset from 10 on."""
    import pyarrow as pa

    keys, values, partitions = zip(*rows, strict=True)
    columns: dict[str, Any] = {"key": keys, "value": values, "partition": pa.array(partitions, pa.int32())}
    if offsets:
        numbers = [int(value.split()[1]) for value in values]
        columns["offset"] = pa.array([10 + 2 * (number // 3) for number in numbers], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def job(rows: list[tuple[str, str, int]], options: dict[str, str]) -> None:
    """What Spark does of a batch job of three tasks."""
    from offsetlog.spark.sink import OffsetLogWriter, prepare
    from offsetlog.spark.sink_options import sink_settings_from

    settings = sink_settings_from({"path": "logs", "topic": "t", "partitions": "3", **SMALL, **options}, is_stream=False)
    prepare(settings)
    keeps = settings.preserve_offsets
    writer = OffsetLogWriter(settings, ["key", "value", "partition", *["offset"][: int(keeps)]])

    def copied(thing: Any) -> Any:  # noqa: ANN401
        return pickle.loads(pickle.dumps(thing))

    parts = [rows[at : at + len(rows) // 3] for at in range(0, len(rows), len(rows) // 3)]
    messages = [copied(copied(writer).write(iter([table(part, keeps)]))) for part in parts]
    try:
        copied(writer).commit(messages)
    except Exception:
        copied(writer).abort(messages)
        raise


def stream() -> None:
    """A stream of 2 micro-batches, of 4 records each, from a topic of one partition into one of two."""
    from pyspark.sql import SparkSession

    import offsetlog.spark
    from offsetlog import LogConfig, LogDir

    with LogDir.open("input", "a") as log_dir:
        log_dir.create_topic("in", 1, config=LogConfig.from_dict(SMALL))
        with log_dir.log("in", 0) as log:
            for number in range(8):
                log.append(f"in {number}".encode())
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": "warehouse",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    offsetlog.spark.register(session)
    reader = session.readStream.format("offsetlog").options(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="4")
    frame = reader.load("input").selectExpr("value", "cast(offset % 2 as int) partition")
    writer = (
        frame.coalesce(1)
        .writeStream.format("offsetlog")
        .options(topic="out", partitions="2", checkpointLocation="checkpoint", **SMALL)
    )
    query = writer.start("logs")
    query.processAllAvailable()
    query.stop()
    session.stop()


def run(folder: Path, what: str, name: str, **more: str) -> int:
    """Run a step in a process of its own; return how it ended."""
    hook = folder.parent / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(f"import sys\nsys.path.append({str(HERE.parent)!r})\nimport make\nmake.plan_death()\n")
    path = os.pathsep.join([str(hook), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **more}
    with (folder.parent / f"{name}.txt").open("ab") as told:
        done = subprocess.run(
            [sys.executable, str(HERE), what, name], cwd=folder, env=environment, check=False, stdout=told, stderr=told
        )
    return done.returncode


def pack(folder: Path) -> None:
    """Pack a case, with its times, without what differs between machines."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = int(entry.mtime)
        return None if entry.name.endswith((".crc", "/warehouse")) else entry

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, arcname=path.name, filter=plain)
    HERE.with_name(f"{folder.name}.tar.gz").write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))


def make(place: Path) -> None:
    """Make all cases below a folder."""
    for name, (options, death) in JOBS.items():
        folder = place / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        first = run(folder, "before", name)
        more = {"AT_ONCE": options["at once"]} if "at once" in options else {}
        print(name, first, run(folder, "job", name, DEATH=death, **more))
        pack(folder)
    for name, death in STREAMS.items():
        folder = place / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(name, run(folder, "stream", name, DEATH=death))
        shutil.rmtree(folder / "warehouse", ignore_errors=True)
        pack(folder)


def step(what: str, name: str) -> None:
    """One process: what was there before, a job, or a stream."""
    if what == "stream":
        stream()
        return
    from offsetlog import Log

    given = dict(JOBS[name][0])
    held = given.pop("held", None)
    given.pop("at once", None)
    if what == "before":
        job(BEFORE, {key: value for key, value in given.items() if key not in {"transactionId", "preserveOffsets"}})
    elif held is None:
        job(ROWS, given)
    else:
        from offsetlog.spark import publishing

        defaults = publishing.commit.__kwdefaults__
        defaults["lock_seconds"] = 0.5
        with Log.open(f"logs/{held}", "a"):
            job(ROWS, given)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        make(Path(sys.argv[1]).absolute())
    else:
        step(*sys.argv[1:])
