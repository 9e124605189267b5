"""What `make bench-scale` runs: how the cost of scans, look-ups, opening, appends and Spark grows with size, and the memory beside it.

    scale.py [--curves scan,lookup-count,lookup-size,open,latency,spark] [--gb 16] [--segments 100000] [--partitions 10000]
             [--minutes 60] [--tasks 2000]

Each point of `scan`, `lookup-*` and `open` is a process of its own, so that its peak memory is its own too; a point is the median of
three rounds after one that does not count. «Cold» means that the kernel was told to forget the files' pages before each round. Curves are
stored in `build/bench/scale/*.json`; `scale_charts.py` draws them. No peer takes part: `make bench` compares.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from curves import Curve, stored
from data import BUILD, LogSpec, Own, build_ours, say
from interpreter_rows import json_lines
from processes import BenchError, LineProgram, Round

FOLDER = BUILD / "scale"
ROUNDS = 3
QUERIES = 20_000
# A cold look-up costs a read of the disk, and what one look-up brought in helps the next: few of them.
COLD_QUERIES = 200
SCAN_SEGMENT = 100_000_000
SCAN_GB = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16)
SEGMENT_COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)
# With its batch it fits into a segment of 1 KiB.
VALUE_BYTES = 900
SEGMENT_BYTES = (1 << 10, 1 << 15, 1 << 20, 1 << 25, 1 << 30, (1 << 31) - 1)
PARTITION_COUNTS = (10, 100, 1_000, 10_000)
TASK_COUNTS = (1, 10, 100, 500, 1_000, 2_000)
SPARK_ROWS = 2_000_000
WINDOW_S = 60
APPENDS_PER_S = 500
MEMORY = Curve("memory", "Peak resident memory of the process", "log, segments or partitions", "", "resident", "B")


def machine() -> str:
    """Where and when."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return f"{platform.machine()}, {os.cpu_count()} CPUs, {today}"


def up_to(sizes: Iterable[float], most: float) -> list[float]:
    """The sizes that are wanted."""
    return [size for size in sizes if size <= most]


def forget(directory: Path) -> None:
    """Tells the kernel to drop the pages of all files below a directory. Written ones have to be on the disk for that."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


class Scale:
    """Makes the data and measures the curves."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._wanted = arguments
        self._ours = build_ours()
        self._data = Own(self._ours)
        FOLDER.mkdir(parents=True, exist_ok=True)

    # ---- rounds ----

    def _rounds(self, *request: str | int | Path, cold: Path | None = None, seeded: bool = False) -> tuple[list[Round], int]:
        """Rounds of one point in a new process, and its peak memory. A warm one has a round before those that count.

        Each round of a seeded request gets a number of its own as its last word.
        """
        found = []
        with LineProgram("ours", [str(self._ours)], BUILD / "scale.log") as ours:
            if cold is None:
                ours.round(*request, *((1,) if seeded else ()))
            for number in range(ROUNDS):
                if cold is not None:
                    forget(cold)
                found.append(ours.round(*request, *((number + 2,) if seeded else ())))
        return found, found[-1].peak_rss

    # ---- scans ----

    def scan(self) -> Curve:
        """Scan time against the size of the log."""
        sizes = up_to(SCAN_GB, self._wanted.gb)
        curve = Curve("scan", "Scan of every record, 1 KB values, no compression", "log", "B", "wall time", "s")
        whole = self._log(
            "scale-scan", LogSpec("scale-scan", "none", 1000, int(max(sizes) * 1e9 / (1 << 20)) + 1, 65_536, SCAN_SEGMENT)
        )
        segments = sorted(path.stem for path in whole.glob("*.log"))
        for size in sizes:
            part = FOLDER / "part" / whole.name
            self._linked(whole, part, segments[: max(1, round(size * 1e9 / SCAN_SEGMENT))])
            real = float(sum(path.stat().st_size for path in part.glob("*.log")))
            for work, name in (("records", "1 thread"), ("threads-2", "2 threads")):
                rounds, peak = self._rounds(work, part, 1)
                curve.line(f"{name}, in the page cache").add(real, statistics.median(found.wall for found in rounds))
                MEMORY.line(f"scan, {name}, B of log").add(real, peak)
            rounds, _ = self._rounds("records", part, 1, cold=part)
            curve.line("1 thread, from the disk").add(real, statistics.median(found.wall for found in rounds))
            say(f"scan of {real / 1e9:.2f} GB: {[f'{line.name}: {line.points[-1][1]:.3f} s' for line in curve.series]}")
        shutil.rmtree(FOLDER / "part")
        return curve

    def _log(self, name: str, spec: LogSpec, records: int | None = None) -> Path:
        """A log made once. Where it is many small files it is made in memory first: each roll waits for the disk."""
        target = FOLDER / f"{name}-0"
        marker = FOLDER / f"{name}.made"
        stamp = f"{spec!r} {records}"
        if marker.exists() and marker.read_text() == stamp and target.exists():
            return target
        say(f"making {name}")
        shutil.rmtree(target, ignore_errors=True)
        memory = Path("/dev/shm")  # noqa: S108 - a folder of this name, not a file
        near = memory / f"{name}-0" if records is not None and records > 1000 and memory.is_dir() else target
        shutil.rmtree(near, ignore_errors=True)
        words = (
            "make-log",
            str(near),
            spec.codec,
            str(spec.value_bytes),
            str(spec.mib),
            str(spec.batch_bytes),
            str(spec.segment_bytes),
        )
        self._data.make(*words, *(() if records is None else (str(records),)))
        if near != target:
            shutil.move(near, target)
        marker.write_text(stamp)
        return target

    @staticmethod
    def _linked(whole: Path, part: Path, segments: Iterable[str]) -> None:
        """A directory with the first segments of another one."""
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for stem in segments:
            for suffix in (".log", ".index", ".timeindex"):
                os.link(whole / f"{stem}{suffix}", part / f"{stem}{suffix}")

    # ---- look-ups ----

    def _look_ups(self, curve: Curve, log: Path, size: float, memory: str) -> None:
        """Points of offset and time look-ups, warm and cold."""
        for work, name in (("lookup", "offset to record"), ("time", "time to offset")):
            rounds, peak = self._rounds(work, log, QUERIES, seeded=True)
            curve.line(f"{name}, p50").add(size, statistics.median(found.p50 for found in rounds))
            curve.line(f"{name}, p99").add(size, statistics.median(found.p99 for found in rounds))
            if work == "lookup":
                MEMORY.line(memory).add(size, peak)
            cold = []
            for seed in range(ROUNDS):
                forget(log)
                with LineProgram("ours", [str(self._ours)], BUILD / "scale.log") as ours:
                    cold.append(ours.round(work, log, COLD_QUERIES, seed + 1).p50)
            curve.line(f"{name}, p50 of the first {COLD_QUERIES} from the disk").add(size, statistics.median(cold))
        say(f"{curve.name} {size:g}: {[f'{line.name}: {line.points[-1][1] * 1e6:.2f} us' for line in curve.series]}")

    def lookup_count(self) -> Curve:
        """Look-ups against the number of segments, all of 1 KB and a record."""
        curve = Curve("lookup-count", "Look-up in a log of segments of one record of 900 B", "segments", "", "wall time", "s")
        for count in up_to(SEGMENT_COUNTS, self._wanted.segments):
            log = self._log(f"scale-count-{count}", LogSpec("", "none", VALUE_BYTES, 0, 1, 1 << 10), int(count))
            found = len(list(log.glob("*.log")))
            self._look_ups(curve, log, float(found), "look-ups, segments")
        return curve

    def lookup_size(self) -> Curve:
        """Look-ups against the size of the segments: two of them, the second one grows."""
        curve = Curve(
            "lookup-size", "Look-up in a log of two segments, batches of 16 KiB", "bytes of a segment", "B", "wall time", "s"
        )
        for size in up_to(SEGMENT_BYTES, self._wanted.gb * 1e9):
            spec = LogSpec("", "none", VALUE_BYTES, 0, min(16_384, int(size)), int(size))
            log = self._log(f"scale-size-{int(size)}", spec, max(2, int(size * 1.5 / VALUE_BYTES)))
            self._look_ups(curve, log, float(size), "look-ups, B of a segment")
        return curve

    # ---- opening ----

    def open(self) -> Curve:
        """Opening against the number of partitions."""
        curve = Curve("open", "Opening every partition of a log dir and asking where it ends", "partitions", "", "wall time", "s")
        for count in up_to(PARTITION_COUNTS, self._wanted.partitions):
            log_dir = self._data.tiny_partitions(int(count))
            for words, name in (((), "for reading"), (("append",), "for appending")):
                rounds, peak = self._rounds("open-all", log_dir, *words)
                curve.line(f"{name}, in the page cache").add(count, statistics.median(found.wall for found in rounds))
                MEMORY.line(f"open {name}, partitions").add(count, peak)
            rounds, _ = self._rounds("open-all", log_dir, cold=log_dir)
            curve.line("for reading, files from the disk").add(count, statistics.median(found.wall for found in rounds))
            say(f"open {count:g}: {[f'{line.name}: {line.points[-1][1]:.4f} s' for line in curve.series]}")
        return curve

    # ---- appends over time ----

    def latency(self) -> Curve:
        """Append and flush, minute by minute."""
        curve = Curve(
            "latency", f"Append of 1 KB and flush, {APPENDS_PER_S} a second, from Python", "time", "s", "wall time", "s", linear=True
        )
        script = Path(__file__).with_name("scale_latency.py")
        seconds = max(WINDOW_S, int(self._wanted.minutes * 60))
        command = [sys.executable, str(script), str(FOLDER / "latency-0"), str(seconds), str(WINDOW_S), str(APPENDS_PER_S)]
        for window in json_lines(command, seconds + 600):
            for name, cost in window["costs"].items():
                curve.line(name).add(window["second"], cost)
            MEMORY.line("appends, seconds").add(window["second"], window["peak_rss"])
        shutil.rmtree(FOLDER / "latency-0", ignore_errors=True)
        return curve

    # ---- Spark ----

    def spark(self) -> Curve:
        """One table in ever more partitions."""
        curve = Curve("spark", f"Spark, {SPARK_ROWS:,} rows of 100 B, two task slots", "partitions", "", "wall time", "s")
        script = Path(__file__).with_name("scale_spark.py")
        for count in up_to(TASK_COUNTS, self._wanted.tasks):
            log_dir = FOLDER / f"spark-{count}"
            marker = FOLDER / f"spark-{count}.made"
            if not marker.exists():
                say(f"making {log_dir.name}")
                shutil.rmtree(log_dir, ignore_errors=True)
                log_dir.mkdir()
                words = ("make-topic", str(log_dir), "scale", "none", "100", str(SPARK_ROWS), "16384", str(count))
                self._data.make(*words)
                marker.write_text("")
        counts = [str(count) for count in up_to(TASK_COUNTS, self._wanted.tasks)]
        for point in json_lines([sys.executable, str(script), str(FOLDER), str(SPARK_ROWS), *counts], 3600):
            if "name" in point:
                curve.line(point["name"]).add(point["partitions"], point["seconds"])
            else:
                MEMORY.line("Spark's Python workers, partitions").add(point["partitions"], point["peak_rss"])
        return curve


CURVES: dict[str, Callable[[Scale], Curve]] = {
    "scan": Scale.scan,
    "lookup-count": Scale.lookup_count,
    "lookup-size": Scale.lookup_size,
    "open": Scale.open,
    "latency": Scale.latency,
    "spark": Scale.spark,
}


def main() -> int:
    """Measures, stores and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", default=",".join(CURVES), help="some of them, with commas between")
    parser.add_argument("--gb", type=float, default=16, help="size of the largest log that is scanned")
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60, help="of appends")
    parser.add_argument("--tasks", type=int, default=2_000, help="partitions that Spark reads")
    arguments = parser.parse_args()
    names = arguments.curves.split(",")
    if unknown := [name for name in names if name not in CURVES]:
        parser.error(f"no such curve: {', '.join(unknown)}; there are {', '.join(CURVES)}")
    scale = Scale(arguments)
    start = time.monotonic()
    failed = 0
    for name in names:
        try:
            curve = CURVES[name](scale)
        except BenchError as error:
            print(f"\nbench: {name} stopped: {error}", file=sys.stderr)
            failed = 1
            continue
        curve.machine = machine()
        curve.store(FOLDER)
        print(f"\n{curve.table()}", flush=True)
    if MEMORY.series:
        # Of curves that were not measured this time, what an earlier run found stays.
        measured = {series.name for series in MEMORY.series}
        MEMORY.series += [
            series for curve in stored(FOLDER) if curve.name == MEMORY.name for series in curve.series if series.name not in measured
        ]
        MEMORY.machine = machine()
        MEMORY.store(FOLDER)
        print(f"\n{MEMORY.table()}")
    print(f"\n{machine()}; {time.monotonic() - start:.0f} s; stored in {FOLDER}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
