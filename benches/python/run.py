"""What `make bench` runs: builds what is needed, measures offsetlog and its peers in turn, and prints one table.

    run.py [--rows 1-5,20] [--rounds 7]

Sizes come from the environment: BENCH_MIB (64; 256 for figures to quote), BENCH_LOOKUP_MIB, BENCH_SPARK_MIB. A ratio compares
medians of rounds that alternated on the same records, whose counts and checksums were found equal on both sides.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data import BENCHES, BUILD, ROOT, Kafka, Sizes, build_ours, resolve_jars, run, say, scan_spec
from durable import ROWS as DURABLE_ROWS, Durable
from engine import ROWS as ENGINE_ROWS, Engine, scan_memory
from figures import Row, gigabytes, per_second, table, wall_seconds
from processes import BenchError
from safety_rows import ROWS as SAFETY_ROWS, Safety
from upkeep_rows import ROWS as UPKEEP_ROWS, Upkeep
from write_rows import ROWS as WRITING_ROWS, Writing, source_spec, written_directory

sys.path.insert(0, str(BENCHES / "peers"))
from broker import Broker

PYTHON_ROWS = frozenset({11, 12})
SPARK_ROWS = frozenset({29, 30, 31, 32, 34, 35})
ALL_ROWS = ENGINE_ROWS | WRITING_ROWS | DURABLE_ROWS | SAFETY_ROWS | UPKEEP_ROWS | PYTHON_ROWS | SPARK_ROWS
SPARK_SECONDS = 1500
KEY_BYTES = len("user-00000000")


def rows_of(text: str) -> set[int]:
    """`1-5,20` as numbers."""
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        chosen.update(range(int(first), int(last or first) + 1))
    unknown = chosen - ALL_ROWS
    if not chosen & ALL_ROWS:
        raise BenchError(f"no such row: {sorted(unknown)}; there are {sorted(ALL_ROWS)}")
    return chosen & ALL_ROWS


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
        raise BenchError(f"{' '.join(command[1:3])} failed, see {log.relative_to(ROOT)}:\n" + "\n".join(last))


def python_rows(kafka: Kafka, sizes: Sizes, rounds: int, wanted: set[int]) -> Iterator[Row]:
    """Rows 11 and 12."""
    version = imports(sys.executable, "offsetlog._offsetlog, aiokafka, pyarrow", environment(sys.executable))
    if version.startswith("!"):
        raise BenchError(f"rows 11 and 12: {version[2:]}; `make test` sets the packages up")
    goals = {(11, 100): (6, 12), (11, 1000): (6, 12), (12, 100): (1, 1.3), (12, 1000): (1, 1.8)}
    for size in (100, 1000):
        say(f"rows 11 and 12: Python, none {size} B")
        pair = kafka.log(scan_spec(sizes, "none", size))
        command = [sys.executable, str(BENCHES / "python" / "python_rows.py"), str(pair.ours), "--rounds", str(rounds), "--rows"]
        for found in json_lines([*command, *map(str, sorted(wanted & PYTHON_ROWS))], 600):
            row, count = found["row"], found["count"]
            work = f"Python Arrow batches, none {size} B" if row == 11 else f"Python records, none {size} B"
            show = gigabytes(count, count * (size + KEY_BYTES)) if row == 11 else per_second(count, "rec")
            floor, target = goals[row, size]
            yield Row(row, work, "aiokafka", found["peer"], found["ours"], show, "times", floor, target)


# Appends from Python stand beside the rows of the same work in Rust. No floor was set for them.
PYTHON_APPENDS = {16: ("append",), 13: ("writer.append", "append_records", "append_arrow"), 14: ("append_records", "append_arrow")}


def python_appends(kafka: Kafka, sizes: Sizes, rounds: int, wanted: set[int]) -> Iterator[Row]:
    """Appends a second from Python."""
    version = imports(sys.executable, "offsetlog._offsetlog, kafka, aiokafka, pyarrow", environment(sys.executable))
    if version.startswith("!"):
        raise BenchError(f"appends from Python: {version[2:]}; `make test` sets the packages up")
    scratch = written_directory()
    for row, works in PYTHON_APPENDS.items():
        if row not in wanted:
            continue
        size = 1000 if row == 14 else 100
        say(f"row {row}: appends from Python, none {size} B")
        scratch.mkdir(parents=True, exist_ok=True)
        source = kafka.log(source_spec(sizes, size)).ours
        records = 20_000 if row == 14 else 100_000
        command = [sys.executable, str(BENCHES / "python" / "python_appends.py"), str(source), "--scratch", str(scratch)]
        command += ["--rounds", str(rounds), "--records", str(records), "--works", *works]
        for found in json_lines(command, 600):
            if "missing" in found:
                say(f"row {row}: Python {found['work']} left out: {found['missing']}")
                continue
            for peer, costs in found["peers"].items():
                work = f"Python {found['work']}, none {size} B"
                yield Row(row, work, f"{peer} builder", costs, found["ours"], per_second(found["count"], "rec"))
        shutil.rmtree(scratch, ignore_errors=True)


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
SPARK_GOALS: dict[tuple[int, str], tuple[float | None, float | None]] = {
    (29, "Spark's Kafka connector"): (10, 20),
    (30, "Spark's Kafka connector"): (3, 4),
    (31, "Spark's Kafka connector"): (3.3, 4.2),
    (30, "constants"): (None, None),
    (31, "constants"): (None, None),
    (32, "constants"): (0.75, 0.9),
    (35, "Spark's Kafka sink, a broker"): (2, 3),
    (35, "a copy, synced"): (None, None),
    (30, "Parquet"): (None, None),
    (31, "Parquet"): (None, None),
}


def spark_row(found: dict[str, Any]) -> Row:
    """One line of Spark's figures."""
    row, peer = found["row"], found["peer_name"]
    if row == 34:
        return Row(34, found["work"], peer, found["peer"], found["ours"], wall_seconds, "share", 2, 1.15)
    floor, target = SPARK_GOALS[row, peer]
    show = gigabytes(0, found["rows"]) if peer == "a copy, synced" else per_second(found["rows"], "rows")
    return Row(row, found["work"], peer, found["peer"], found["ours"], show, "times", floor, target)


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
    if wanted & {30, 31, 32, 34}:
        say("Spark: against constants and Parquet")
        for found in json_lines([spark_python("4."), *script], SPARK_SECONDS):
            if "memory" in found:
                memory.append(
                    f"  Spark worker, all columns of {sizes.spark} MiB (PySpark {found['pyspark']}): {found['memory'] / 1e6:.0f} MB"
                )
            else:
                yield spark_row(found)


def measure(wanted: set[int], rounds: int, memory: list[str]) -> Iterator[Row]:
    """All wanted rows, one after another."""
    sizes = Sizes.from_environment()
    kafka = Kafka()
    if wanted & (ENGINE_ROWS | WRITING_ROWS | DURABLE_ROWS | SAFETY_ROWS | UPKEEP_ROWS):
        ours = build_ours()
    if wanted & ENGINE_ROWS:
        yield from Engine(kafka, ours, sizes, rounds).rows(wanted)
        if wanted & {3, 4, 5}:
            memory.append(scan_memory(kafka, ours, sizes))
    if wanted & WRITING_ROWS:
        yield from Writing(kafka, ours, sizes, rounds).rows(wanted)
        yield from python_appends(kafka, sizes, rounds, wanted)
    if wanted & DURABLE_ROWS:
        yield from Durable(kafka, ours, sizes, rounds).rows(wanted)
    if wanted & UPKEEP_ROWS:
        yield from Upkeep(kafka, ours, sizes, rounds).rows(wanted, memory)
    if wanted & SAFETY_ROWS:
        yield from Safety(kafka, ours, sizes, rounds).rows(wanted)
    if wanted & PYTHON_ROWS:
        yield from python_rows(kafka, sizes, rounds, wanted)
    if wanted & SPARK_ROWS:
        yield from spark_rows(kafka, sizes, rounds, wanted & SPARK_ROWS, memory)


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=os.environ.get("ROWS", ""), help="such as 1-5,20; all when left out")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("BENCH_ROUNDS", "7")))
    arguments = parser.parse_args()
    rows: list[Row] = []
    memory: list[str] = []
    failure = ""
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
        wanted = rows_of(arguments.rows) if arguments.rows else set(ALL_ROWS)
        # What was measured before a failure is shown: extend() keeps what it took.
        rows.extend(measure(wanted, max(5, arguments.rounds), memory))
    except BenchError as error:
        failure = str(error)
    if rows:
        machine = f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
        print(f"\n{machine}; median of {len(rows[0].ours)} rounds in turn, ± worst deviation of a round.")
        print(
            "CPU seconds decide rows 1 to 9, 11 to 17, 27, 28, 36 and 37, wall time all others. Limit here: the ratio of a program that does"
        )
        print("nothing but read (rows 13 to 16: write) the bytes and compute their CRC.\n")
        print(table(rows))
    if memory:
        print("\nPeak resident memory\n" + "\n".join(memory))
    if failure:
        print(f"\nbench: stopped: {failure}", file=sys.stderr)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
