"""Rows 29 to 35, in a process of its own: one Spark session in which the peers and offsetlog read the same rows in turn.

With `--broker`, the peer is Spark's Kafka connector (the interpreter must hold the PySpark that the connector was built for).
Without, the peers are a Python DataSource of constants and the same rows as Parquet. Prints one line of JSON per figure.

With `--serve` it has no peer: it answers `WORK DIRECTORY [ARGUMENTS]` line by line as `bin/ours.rs` does, so that the packages of two
commits take turns in two sessions.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

import offsetlog.spark
from offsetlog import LogConfig, LogDir
from spark_table import AGAINST_CONNECTOR, AGAINST_CONSTANTS, Read

try:
    from offsetlog._commit.publishing import commit
    from offsetlog._commit.staging import Stage
except ModuleNotFoundError:  # the older side of a comparison
    from offsetlog.spark.publishing import commit
    from offsetlog.spark.staging import Stage

# A log dir's Kafka jars that PySpark brings itself; a second copy on the class path would shadow it.
IN_PYSPARK = ("scala-", "slf4j-", "hadoop-client", "lz4-java", "snappy-java", "jsr305", "spark-tags")
BATCH_ROWS = 10_000
READ_BYTES = 512 << 10
TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
}


class Constants(DataSource):
    """Rows whose making costs nothing: what Spark itself can take from a Python source."""

    @classmethod
    def name(cls) -> str:
        return "constants"

    def schema(self) -> str:
        return ", ".join(f"{name} {TYPES[name]}" for name in self.options["columns"].split(","))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark calls it so
        return ConstantsReader(dict(self.options))


def byte_ranges(paths: list[str], tasks: int) -> list[list[tuple[str, int, int]]]:
    """Files, cut so that each task has as many bytes: path, first and last position of each part."""
    sizes = [(path, Path(path).stat().st_size) for path in paths]
    return [[(path, size * task // tasks, size * (task + 1) // tasks) for path, size in sizes] for task in range(tasks)]


def reads(ranges: list[tuple[str, int, int]]) -> Iterator[int]:
    """Read these bytes and look at none of them; how many came at a time."""
    buffer = memoryview(bytearray(READ_BYTES))
    for path, position, end in ranges:
        with Path(path).open("rb", buffering=0) as file:
            file.seek(position)
            left = end - position
            while left > 0 and (found := file.readinto(buffer[: min(left, READ_BYTES)])):
                left -= found
                yield found


class ConstantsReader(DataSourceReader):
    """Two tasks, each of which makes one Arrow batch and gives it again and again. With files, it reads their bytes beside that: what no
    source of these rows can do without."""

    def __init__(self, options: dict[str, str]) -> None:
        self._columns = options["columns"].split(",")
        self._value_bytes = int(options["valuebytes"])
        self._rows = int(options["rows"])
        self._files = [path for path in options.get("files", "").split(",") if path]

    def partitions(self) -> list[InputPartition]:
        half = self._rows // 2
        ranges = byte_ranges(self._files, 2)
        return [InputPartition((half, ranges[0])), InputPartition((self._rows - half, ranges[1]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        def column(name: str) -> pa.Array:
            rows = range(BATCH_ROWS)
            if name == "key":
                return pa.array([b"user-%08d" % row for row in rows], pa.binary())
            if name == "value":
                return pa.array([(b"%010d" % row).ljust(self._value_bytes, b"x") for row in rows], pa.binary())
            if name == "topic":
                return pa.array(["constants"] * BATCH_ROWS, pa.string())
            if name == "offset":
                return pa.array(rows, pa.int64())
            if name == "timestamp":
                return pa.array(rows, pa.timestamp("us", "UTC"))
            return pa.array([0] * BATCH_ROWS, pa.int32())

        batch = pa.RecordBatch.from_arrays([column(name) for name in self._columns], names=self._columns)
        rows, ranges = partition.value
        bytes_each = sum(end - start for _, start, end in ranges) / rows
        coming, came = reads(ranges), 0
        for done in range(0, rows, BATCH_ROWS):
            while came < bytes_each * done and (found := next(coming, 0)):
                came += found
            yield batch if rows - done >= BATCH_ROWS else batch.slice(0, rows - done)
        for _ in coming:
            pass


class Discarded(DataSource):
    """Takes rows as Arrow batches and keeps nothing: what Spark itself needs to hand rows to a Python sink."""

    @classmethod
    def name(cls) -> str:
        return "discarded"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002 - Spark calls it so
        return DiscardingWriter()


class DiscardingWriter(DataSourceArrowWriter):
    """Takes all batches of a task."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def session(jars: Path | None) -> SparkSession:
    """Two task slots, all on this machine."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    if jars is not None:
        paths = [str(path) for path in sorted(jars.glob("*.jar")) if not path.name.startswith(IN_PYSPARK)]
        builder = builder.config("spark.jars", ",".join(paths)).config("spark.driver.extraClassPath", ":".join(paths))
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def count(frame: DataFrame) -> int:
    """Rows."""
    return frame.count()


def sum_of_lengths(frame: DataFrame) -> int:
    """Bytes of all values."""
    return int(frame.selectExpr("sum(length(value))").collect()[0][0])


def to_noop(frame: DataFrame) -> int:
    """Every column of every row, to nowhere."""
    frame.write.format("noop").mode("overwrite").save()
    return 0


# By the names of `Read.work`.
WORKS = {"count": count, "sum": sum_of_lengths, "noop": to_noop}


Side = Callable[[], int]
T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Wall seconds and what the work gave."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def compare(read: Read, roads: dict[str, Side], peers: dict[str, Side], limits: dict[str, Side], rows: int, rounds: int) -> None:
    """Warms all sides, then lets them take turns; one line for each peer and each of our roads. `limits`: of some of these roads."""
    sides = {**peers, **roads, **{f"limit of {road}": limit for road, limit in limits.items()}}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        results = {}
        for name, side in sides.items():
            took, results[name] = timed(side)
            if turn > 0:
                seconds[name].append(took)
        # The constants have values of the same lengths.
        if len(set(results.values())) != 1:
            raise SystemExit(f"row {read.row}, {read.what}: the sides differ: {results}")
    for name in peers:
        for road in roads:
            figure = {"row": read.row, "work": read.what, "road": road, "peer_name": name, "rows": rows}
            print(
                json.dumps({**figure, "peer": seconds[name], "ours": seconds[road], "limit": seconds.get(f"limit of {road}", [])}),
                flush=True,
            )


def worker_peak_bytes() -> int:
    """Largest peak memory of the Python workers below this process (Linux; 0 elsewhere)."""
    parents: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
            command = (status.parent / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        pid = int(status.parent.name)
        parents[pid] = int(fields["PPid"])
        if b"pyspark.daemon" in command or b"pyspark/daemon" in command:
            peaks[pid] = int(fields.get("VmHWM", "0 kB").split()[0]) * 1024

    def below(pid: int) -> bool:
        while pid > 1:
            if pid == os.getpid():
                return True
            pid = parents.get(pid, 0)
        return False

    return max((peak for pid, peak in peaks.items() if below(pid)), default=0)


def commit_staged(place: Path, turn: int) -> tuple[float, float, int]:
    """Stages records in a new log dir, copies them durably, and commits them: seconds of both, and bytes."""
    values = pa.array([bytes([number % 251]) * 1000 for number in range(1000)], pa.binary())
    batch = pa.RecordBatch.from_arrays([values], names=["value"])
    shutil.rmtree(place, ignore_errors=True)
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 1)
    stage = Stage("job", "attempt")
    for _ in range(128):
        stage.append("t", 0, str(place / "t-0"), LogConfig(), batch, preserve_offsets=False)
    staged = stage.close()
    (source,) = (Path(each.directory, each.path) for each in staged)
    start = time.perf_counter()
    for path in source.glob("*.log"):
        with path.open("rb") as read, (place / "copy").open("wb") as copy:
            shutil.copyfileobj(read, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
    between = time.perf_counter()
    commit(str(place), "bench", turn, staged)
    end = time.perf_counter()
    return between - start, end - between, staged[0].size_bytes


def counted(batches: Iterator[pa.RecordBatch]) -> int:
    """Rows, inside the worker."""
    return sum(batch.num_rows for batch in batches)


def summed(batches: Iterator[pa.RecordBatch]) -> int:
    """Bytes of all values, inside the worker."""
    return sum(pyarrow.compute.sum(pyarrow.compute.binary_length(batch.column(0))).as_py() or 0 for batch in batches)


# What a worker does itself on the direct roads, and the column that it needs.
INSIDE = {"count": (counted, "offset"), "sum": (summed, "value")}


class SparkRows:
    """The rows of one session."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._logs = str(arguments.logs)
        self._rounds: int = arguments.rounds
        self._rows: list[int] = arguments.rows
        self._arguments = arguments
        self._turn = 0
        self._spark = session(arguments.jars)

    def _ours(self, topic: str, columns: str = "", logs: str = "") -> DataFrame:
        reader = self._spark.read.format("offsetlog").option("subscribe", topic).option("startingOffsets", "earliest")
        return (reader.option("columns", columns) if columns else reader).load(logs or self._logs)

    def _connector(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._arguments.broker)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def _constants(self, columns: str, value_bytes: int, rows: int, files: list[str] | None = None) -> DataFrame:
        reader = self._spark.read.format("constants").option("columns", columns).option("files", ",".join(files or []))
        return reader.option("valueBytes", value_bytes).option("rows", rows).load()

    def _files(self, topic: str) -> list[str]:
        return sorted(map(str, Path(self._logs).glob(f"{topic}-*/*.log")))

    def _only_read(self, topic: str, result: int) -> int:
        """Tasks that read the bytes of a topic, and nothing else; the result that the others come to."""
        context, tasks = self._spark.sparkContext, byte_ranges(self._files(topic), 2)
        read = context.parallelize(tasks, len(tasks)).map(lambda ranges: sum(reads(ranges))).sum()
        if read != sum(Path(path).stat().st_size for path in self._files(topic)):
            raise SystemExit(f"{topic}: {read} bytes read")
        return result

    def _roads(self, read: Read, columns: str) -> dict[str, Side]:
        """Ours: the format, and for what returns little the direct roads, planned anew in each round."""
        work, frame = WORKS[read.work], self._ours(read.topic, columns)
        roads: dict[str, Side] = {"read.format": lambda: work(frame)}
        if read.work in INSIDE:
            inside, column = INSIDE[read.work]
            options = {"subscribe": read.topic, "starting_offsets": "earliest", "columns": [column]}

            def by_scan() -> int:
                return work(offsetlog.spark.scan(self._spark, self._logs, **options))

            def by_map_splits() -> int:
                return sum(task.result for task in offsetlog.spark.map_splits(self._spark, self._logs, inside, **options))

            roads |= {"spark.scan": by_scan, "spark.map_splits": by_map_splits}
        return roads

    def against_connector(self) -> None:
        """Rows 29 to 31 against Spark's own connector; constants show what PySpark itself takes."""
        self._spark.dataSource.register(Constants)
        for read in AGAINST_CONNECTOR:
            if read.row in self._rows:
                work, connector = WORKS[read.work], self._connector(read.topic)
                rows = connector.count()
                constants = self._constants(read.columns or ",".join(TYPES), read.value_bytes, rows)
                peers: dict[str, Side] = {"Spark's Kafka connector": functools.partial(work, connector)}
                roads, limits = self._roads(read, read.columns), {"read.format": functools.partial(work, constants)}
                if "spark.map_splits" in roads:
                    limits["spark.map_splits"] = functools.partial(self._only_read, read.topic, roads["spark.map_splits"]())
                compare(read, roads, peers, limits, rows, self._rounds)

    def _to_write(self, rows: int) -> DataFrame:
        return self._spark.range(0, rows, 1, 4).selectExpr(
            "concat('user-', id % 1000) key", "rpad(cast(id as string), 1000, 'x') value"
        )

    def writing(self) -> None:
        """Row 35: the same rows through Spark's Kafka sink and a broker, and into a log dir; then what a commit costs."""
        rows = (self._arguments.written_mib << 20) // 1000
        frame = self._to_write(rows)
        jvm = self._spark._jvm  # the way to Kafka's admin client
        properties = jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", self._arguments.broker)
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        to_kafka = (
            frame.write.format("kafka").option("kafka.bootstrap.servers", self._arguments.broker).option("topic", "bench-written")
        )
        place = self._arguments.scratch / "written"
        self._spark.dataSource.register(Discarded)
        discarded = frame.write.format("discarded").mode("append")
        costs: dict[str, list[float]] = {"peer": [], "ours": [], "limit": []}
        for turn in range(self._rounds + 1):
            topic = jvm.org.apache.kafka.clients.admin.NewTopic("bench-written", 2, 1)
            admin.createTopics(jvm.java.util.List.of(topic)).all().get()
            start = time.perf_counter()
            to_kafka.save()
            between = time.perf_counter()
            done = offsetlog.spark.write(frame, place, topic="written", partitions=2)
            end = time.perf_counter()
            if done.records != rows:
                raise SystemExit(f"row 35: {done.records} written instead of {rows}")
            shutil.rmtree(place)
            admin.deleteTopics(jvm.java.util.List.of("bench-written")).all().get()
            time.sleep(2)
            took, _ = timed(discarded.save)
            if turn > 0:
                costs["limit"].append(took)
                costs["peer"].append(between - start)
                costs["ours"].append(end - between)
        admin.close()
        figure = {"row": 35, "work": "write, 2 partitions, none 1 KB", "peer_name": "Spark's Kafka sink, a broker", "rows": rows}
        print(json.dumps({**figure, **costs}), flush=True)

    def committing(self) -> None:
        """Row 35: what a commit takes for the bytes that it publishes, beside a copy of them that is as durable."""
        place = self._arguments.scratch / "committed"
        costs: dict[str, list[float]] = {"peer": [], "ours": []}
        for turn in range(self._rounds + 1):
            copied, committed, size = commit_staged(place, turn)
            if turn > 0:
                costs["peer"].append(copied)
                costs["ours"].append(committed)
        shutil.rmtree(place)
        figure = {"row": 35, "work": f"commit of {size >> 20} MiB", "peer_name": "a copy, synced", "rows": size}
        print(json.dumps({**figure, **costs}), flush=True)

    def against_constants(self) -> None:
        """Rows 30 to 32 against constants and Parquet."""
        self._spark.dataSource.register(Constants)
        for read in AGAINST_CONSTANTS:
            if read.row not in self._rows:
                continue
            columns = read.columns or ",".join(TYPES)
            work, ours = WORKS[read.work], self._ours(read.topic, columns=columns)
            rows = self._ours(read.topic, columns="offset").count()
            frames = {"constants": self._constants(columns, read.value_bytes, rows)}
            if read.value_bytes == 1000:
                frames["Parquet"] = self._spark.read.parquet(str(self._parquet(read.topic, columns)))
            peers: dict[str, Side] = {name: functools.partial(work, frame) for name, frame in frames.items()}
            reading = self._constants(columns, read.value_bytes, rows, self._files(read.topic))
            limits = {"read.format": functools.partial(work, reading)}
            compare(read, {"read.format": functools.partial(work, ours)}, peers, limits, rows, self._rounds)

    def _parquet(self, topic: str, columns: str) -> Path:
        target: Path = self._arguments.scratch / f"{topic}-{columns.count(',') + 1}-columns.parquet"
        shutil.rmtree(target, ignore_errors=True)
        self._ours(topic, columns=columns).write.option("compression", "lz4_raw").parquet(str(target))
        return target

    def many_partitions(self) -> None:
        """Row 34: 200 partitions of one row against two of them."""
        reader = self._spark.read.format("offsetlog")
        tiny = str(self._arguments.tiny)
        many = reader.option("subscribe", "tiny").load(tiny)
        two = self._spark.read.format("offsetlog").option("assign", '{"tiny":[0,1]}').load(tiny)
        if (many.count(), two.count()) != (200, 2):
            raise SystemExit("row 34: the tiny partitions do not hold one record each")
        peer: list[float] = []
        ours: list[float] = []
        for _ in range(self._rounds):
            peer.append(timed(two.count)[0])
            ours.append(timed(many.count)[0])
        figure = {"row": 34, "work": "count() of 200 partitions of one row", "peer_name": "ours, 2 partitions", "rows": 200}
        print(json.dumps({**figure, "peer": peer, "ours": ours}), flush=True)

    def memory(self) -> None:
        """Peak memory of a worker; first of all, while nothing else has run in it."""
        to_noop(self._ours("bench-none-1000"))
        print(json.dumps({"memory": worker_peak_bytes(), "pyspark": pyspark.__version__}), flush=True)

    def answer(self, work: str, directory: str, *arguments: str) -> str:
        """One round for two commits: wall seconds, and what was met."""
        rows = total = 0
        if work == "write":
            frame, place = self._to_write(int(arguments[0])), Path(directory)
            start = time.perf_counter()
            rows = offsetlog.spark.write(frame, place, topic="written", partitions=2).records
            wall = time.perf_counter() - start
            shutil.rmtree(place)
        elif work == "commit":
            self._turn += 1
            _, wall, rows = commit_staged(Path(directory), self._turn)
            shutil.rmtree(directory)
        else:
            topic, columns = (*arguments, "")[:2]
            wall, total = timed(functools.partial(WORKS[work], self._ours(topic, columns, directory)))
        return f"cpu=0 wall={wall:.9f} count={rows} sum={total}"

    def serve(self) -> None:
        """Answers until there is nothing more to read."""
        print("ready", flush=True)
        for line in sys.stdin:
            try:
                print(self.answer(*line.split()), flush=True)
            except Exception as error:  # noqa: BLE001 - the other side shall read it, whatever it is
                print("error", f"{type(error).__name__}: {error}".replace("\n", " ")[:300], flush=True)
        self._spark.stop()

    def run(self) -> None:
        """All that is asked for."""
        if self._arguments.serve:
            self.serve()
            return
        try:
            if self._arguments.broker:
                self.against_connector()
                if 35 in self._rows:
                    self.writing()
                    self.committing()
                return
            if {29, 30, 31, 32} & set(self._rows):
                self.memory()
                self.against_constants()
            if 34 in self._rows:
                self.many_partitions()
        finally:
            self._spark.stop()


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--tiny", type=Path)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--written-mib", type=int, default=256)
    parser.add_argument("--broker")
    parser.add_argument("--jars", type=Path)
    SparkRows(parser.parse_args()).run()


if __name__ == "__main__":
    main()
