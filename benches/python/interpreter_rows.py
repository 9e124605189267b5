"""The rows of Python and of Spark: processes of their own beside their peers, or two interpreters with the packages of two commits."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from commits import BesideCommit
from data import BENCHES, BUILD, ROOT, Kafka, Own, Sizes, resolve_jars, run, say, scan_spec
from figures import NotCompared, Row, gigabytes, per_second, wall_seconds
from processes import BenchError, LineProgram, Round
from spark_table import BETWEEN_COMMITS, Read
from write_rows import KEY_BYTES, source_spec, written_directory

sys.path.insert(0, str(BENCHES / "peers"))
from broker import Broker

PYTHON_ROWS = frozenset({11, 12})
SPARK_ROWS = frozenset({29, 30, 31, 32, 34, 35})
SPARK_SECONDS = 1500
WORKS = BENCHES / "python" / "python_works.py"


def imports(python: str, modules: str, env: dict[str, str]) -> str:
    """What an interpreter says when it imports modules and prints the version of the last one: the version, or an error."""
    last = modules.rsplit(" ", 1)[-1]
    command = [python, "-c", f"import {modules}; print({last}.__version__)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    return done.stdout.strip() if done.returncode == 0 else "! " + done.stderr.strip().rpartition("\n")[2]


@functools.cache
def environment(python: str) -> dict[str, str]:
    """This environment; where offsetlog is not installed, with the package of the tree.

    OpenBLAS comes in with pyarrow and numpy; its idle threads would count as CPU seconds of the work.
    """
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    if imports(python, "offsetlog._offsetlog, platform", env).startswith("!"):
        env["PYTHONPATH"] = str(ROOT / "python")
    return env


def json_lines(command: list[str], seconds: int) -> Iterator[dict[str, Any]]:
    """Runs a script that prints JSON lines; its other words go to a log file."""
    log = BUILD / f"{Path(command[1]).stem}.log"
    with log.open("w") as errors:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=seconds,
            check=False,
            cwd=ROOT,
            env=environment(command[0]),
        )
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)
    if done.returncode != 0:
        last = log.read_text().strip().splitlines()[-15:]
        raise BenchError(f"{' '.join(command[1:3])} failed, see {log}:\n" + "\n".join(last))


def scan_line(row: int, size: int, count: int) -> tuple[str, Callable[[float], str]]:
    """Name and unit of a line of rows 11 and 12."""
    work = f"Python Arrow batches, none {size} B" if row == 11 else f"Python records, none {size} B"
    return work, gigabytes(count, count * (size + KEY_BYTES)) if row == 11 else per_second(count, "rec")


def python_rows(kafka: Kafka, ours: Path, sizes: Sizes, rounds: int, wanted: set[int]) -> Iterator[Row]:
    """Rows 11 and 12."""
    version = imports(sys.executable, "offsetlog._offsetlog, aiokafka, pyarrow", environment(sys.executable))
    if version.startswith("!"):
        raise BenchError(f"rows 11 and 12: {version[2:]}; `make test` sets the packages up")
    goals = {(11, 100): (6, 8), (11, 1000): (6, 8), (12, 100): (1, 1.3), (12, 1000): (1, 1.8)}
    for size in (100, 1000):
        say(f"rows 11 and 12: Python, none {size} B")
        pair = kafka.log(scan_spec(sizes, "none", size))
        command = [sys.executable, str(BENCHES / "python" / "python_rows.py"), str(pair.ours), "--rounds", str(rounds)]
        command += ["--ours", str(ours), "--rows", *map(str, sorted(wanted & PYTHON_ROWS))]
        for found in json_lines(command, 600):
            row = found["row"]
            work, show = scan_line(row, size, found["count"])
            floor, target = goals[row, size]
            yield Row(row, work + found["how"], "aiokafka", found["peer"], found["ours"], show, "times", floor, target, found["limit"])


# Appends from Python stand beside the rows of the same work in Rust.
PYTHON_APPENDS = {16: ("append",), 13: ("writer.append", "append_records", "append_arrow"), 14: ("append_records", "append_arrow")}
# Floors and targets by verb and peer: record by record, beside a builder in memory, which writes no log. The others have none.
PYTHON_APPEND_GOALS: dict[tuple[str, str], tuple[float, float]] = {
    ("writer.append", "aiokafka"): (0.8, 1),
    ("append", "aiokafka"): (0.8, 1),
}


def append_size(row: int) -> tuple[int, int]:
    """Bytes of a value, and records of a round."""
    return (1000, 20_000) if row == 14 else (100, 100_000)


def python_appends(kafka: Kafka, sizes: Sizes, rounds: int, wanted: set[int]) -> Iterator[Row]:
    """Appends a second from Python."""
    rows = wanted & set(PYTHON_APPENDS)
    version = imports(sys.executable, "offsetlog._offsetlog, kafka, aiokafka, pyarrow", environment(sys.executable)) if rows else ""
    if version.startswith("!"):
        raise BenchError(f"appends from Python: {version[2:]}; `make test` sets the packages up")
    scratch = written_directory()
    for row, works in PYTHON_APPENDS.items():
        if row not in rows:
            continue
        size, records = append_size(row)
        say(f"row {row}: appends from Python, none {size} B")
        scratch.mkdir(parents=True, exist_ok=True)
        source = kafka.log(source_spec(sizes, size)).ours
        command = [sys.executable, str(BENCHES / "python" / "python_appends.py"), str(source), "--scratch", str(scratch)]
        command += ["--rounds", str(rounds), "--records", str(records), "--works", *works]
        for found in json_lines(command, 600):
            if "missing" in found:
                say(f"row {row}: Python {found['work']} left out: {found['missing']}")
                continue
            for peer, costs in found["peers"].items():
                work = f"Python {found['work']}, none {size} B"
                goals = PYTHON_APPEND_GOALS.get((found["work"], peer), (None, None))
                yield Row(row, work, f"{peer} builder", costs, found["ours"], per_second(found["count"], "rec"), "times", *goals)
        shutil.rmtree(scratch, ignore_errors=True)


def lacking(modules: tuple[str, ...]) -> str:
    """Why the rows of an interpreter cannot run in this one; empty: they can."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"left out: {sys.executable} has no {', '.join(missing)}" if missing else ""


def python_between_commits(beside: BesideCommit, wanted: Collection[int]) -> Iterator[Row | NotCompared]:
    """Rows 11 and 12, and appends from Python."""
    missing = lacking(("pyarrow",))
    for row in (11, 12):
        for size in (100, 1000) if row in wanted else ():
            work, _ = scan_line(row, size, 0)
            if missing:
                yield NotCompared(row, work, missing)
                continue
            measured = functools.partial(scanned_between_commits, beside, row, size)
            yield from beside.line(row, work, measured)
    for row, works in PYTHON_APPENDS.items():
        for name in works if row in wanted else ():
            work = f"Python {name}, none {append_size(row)[0]} B"
            if missing:
                yield NotCompared(row, work, missing)
                continue
            yield from beside.line(row, work, functools.partial(appended_between_commits, beside, row, name, work))
    shutil.rmtree(written_directory(), ignore_errors=True)


def scanned_between_commits(beside: BesideCommit, row: int, size: int) -> Iterator[Row]:
    """A line of rows 11 and 12."""
    pair = beside.data.log(scan_spec(beside.sizes, "none", size))
    request = "scan-arrow" if row == 11 else "scan-records"
    peer, ours = programs = beside.scripts(WORKS)
    with peer, ours:
        first = ours.round(request, pair.ours)
        work, show = scan_line(row, size, first.count)
        turns = beside.turns(programs, lambda: peer.round(request, pair.peer), lambda: ours.round(request, pair.ours), work)
    yield Row(row, work, "", *turns.costs("cpu"), show)


def appended_between_commits(beside: BesideCommit, row: int, name: str, work: str) -> Iterator[Row]:
    """A line of appends."""
    size, records = append_size(row)
    source = beside.data.log(source_spec(beside.sizes, size)).ours
    scratch = written_directory()
    scratch.mkdir(parents=True, exist_ok=True)

    def one(program: LineProgram, side: str) -> Round:
        return program.round(name, scratch / f"python-{side}-0", source, records)

    peer, ours = programs = beside.scripts(WORKS)
    with peer, ours:
        turns = beside.turns(programs, lambda: one(peer, "peer"), lambda: one(ours, "ours"), work)
    yield Row(row, work, "", *turns.costs("cpu"), per_second(records, "rec"))


def fill_broker(broker: Broker, kafka: Kafka, sizes: Sizes) -> None:
    """Produces the topics once."""
    for codec, size in (("none", 1000), ("lz4", 1000), ("none", 100)):
        topic = f"bench-{codec}-{size}"
        marker = broker.logs.parent / f"{topic}.made"
        if not marker.exists():
            records = (sizes.spark << 20) // 1000 * (5 if size == 100 else 1)
            say(f"producing {records} records to {topic}")
            run(kafka.command("produce", broker.address, topic, codec, str(size), str(records)))
            marker.touch()


def spark_python(version: str) -> str:
    """The interpreter of an environment with the wanted PySpark: this one, or the second one of `make test`."""
    given = os.environ.get("BENCH_SPARK40_PYTHON")
    candidates = [*([given] if given else []), sys.executable, *map(str, sorted(ROOT.glob(".venv*/bin/python")))]
    for candidate in candidates:
        if imports(candidate, "offsetlog._offsetlog, pyarrow, pyspark", environment(candidate)).startswith(version):
            return candidate
    raise BenchError(f"no environment with PySpark {version}* and offsetlog: `make test` sets them up")


# Floors and targets: against Spark's own connector, against constants, against Parquet.
SPARK_GOALS: dict[tuple[int, str, str], tuple[float | None, float | None]] = {
    (29, "Spark's Kafka connector", "spark.map_splits"): (10, 20),
    (30, "Spark's Kafka connector", "spark.map_splits"): (3, 4),
    (29, "constants", "read.format"): (0.9, None),
    (30, "constants", "read.format"): (0.9, None),
    (31, "constants", "read.format"): (0.9, None),
    (32, "constants", "read.format"): (0.75, 0.9),
    (30, "Parquet", "read.format"): (1, None),
    (31, "Parquet", "read.format"): (1, None),
    (35, "Spark's Kafka sink, a broker", ""): (1.5, 2),
    (35, "a copy, synced", ""): (1.5, 2),
}


def spark_row(found: dict[str, Any]) -> Row:
    """One line of Spark's figures."""
    row, peer = found["row"], found["peer_name"]
    if row == 34:
        return Row(34, found["work"], peer, found["peer"], found["ours"], wall_seconds, "share", 2, 1.15)
    road = found.get("road", "")
    floor, target = SPARK_GOALS.get((row, peer, road), (None, None))
    show = gigabytes(0, found["rows"]) if peer == "a copy, synced" else per_second(found["rows"], "rows")
    work = f"{found['work']}, {road}" if road else found["work"]
    return Row(row, work, peer, found["peer"], found["ours"], show, "times", floor, target, found.get("limit", []))


def spark_rows(kafka: Kafka, sizes: Sizes, rounds: int, wanted: set[int], memory: list[str]) -> Iterator[Row]:
    """Rows 29 to 35: once under the PySpark of the Kafka connector, once under this environment's."""
    home = BUILD / f"broker-{sizes.spark}"
    script = [str(BENCHES / "python" / "spark_rows.py"), "--logs", str(home / "logs"), "--scratch", str(home)]
    script += ["--tiny", str(kafka.tiny_partitions(200)), "--rounds", str(rounds), "--rows", *map(str, sorted(wanted))]
    # Enough that a job's beginning and end are a small part.
    script += ["--written-mib", str(sizes.spark // 4)]
    with_connector = wanted & {29, 30, 31, 35}
    if wanted & {29, 30, 31, 32, 35}:
        say("starting a broker")
        with Broker(home, kafka.jars) as broker:
            fill_broker(broker, kafka, sizes)
            if with_connector:
                say("Spark: against its own Kafka connector")
                jars = resolve_jars(BENCHES / "peers" / "spark" / "pom.xml", "spark-jars")
                command = [spark_python("4.0"), *script, "--broker", broker.address, "--jars", str(jars)]
                yield from map(spark_row, json_lines(command, SPARK_SECONDS))
    if wanted & {29, 30, 31, 32, 34}:
        say("Spark: against constants and Parquet")
        for found in json_lines([spark_python("4."), *script], SPARK_SECONDS):
            if "memory" in found:
                memory.append(
                    f"  Spark worker, all columns of {sizes.spark} MiB (PySpark {found['pyspark']}): {found['memory'] / 1e6:.0f} MB"
                )
            else:
                yield spark_row(found)


def spark_between_commits(beside: BesideCommit, wanted: Collection[int]) -> Iterator[Row | NotCompared]:
    """Rows 29 to 35 without their peers: two sessions of this environment's PySpark, new ones for each pair."""
    data = beside.data
    assert isinstance(data, Own)
    home = BUILD / "compare" / "spark"
    home.mkdir(parents=True, exist_ok=True)
    mib = beside.sizes.spark
    lines: list[tuple[int, str, Callable[[], tuple[str | Path, ...]], int]] = []
    for read in BETWEEN_COMMITS:
        records = (mib << 20) // 1000 * (5 if read.value_bytes == 100 else 1)

        def request(read: Read = read, records: int = records) -> tuple[str | Path, ...]:
            logs = data.topic(read.topic, read.codec, read.value_bytes, records)
            return (read.work, logs, read.topic, *([read.columns] if read.columns else []))

        lines.append((read.row, read.what, request, records))
    lines.append((34, "count() of 200 partitions of one row", lambda: ("count", data.tiny_partitions(200), "tiny"), 0))
    rows = (mib // 4 << 20) // 1000
    lines.append((35, "write, 2 partitions, none 1 KB", lambda: ("write", home / "written", str(rows)), rows))
    lines.append((35, "a commit", lambda: ("commit", home / "committed"), 0))
    missing = lacking(("pyspark", "pyarrow", "pandas"))
    for row, work, asked, count in lines:
        if row not in wanted:
            continue
        if missing:
            yield NotCompared(row, work, missing)
        else:
            yield from beside.line(row, work, functools.partial(spark_line, beside, row, work, asked, count))


def spark_line(beside: BesideCommit, row: int, work: str, asked: Callable[[], tuple[str | Path, ...]], count: int) -> Iterator[Row]:
    """One line."""
    request = asked()
    peer, ours = programs = beside.scripts(BENCHES / "python" / "spark_rows.py", "--serve")
    with peer, ours:
        turns = beside.turns(programs, lambda: peer.round(*request), lambda: ours.round(*request), work, ("wall",), slow=True)
    yield Row(row, work, "", *turns.costs("wall"), per_second(count, "rows") if count else wall_seconds)
