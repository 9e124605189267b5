"""What ``docs/verbs.md`` says of changed files, dry runs and locks is tried: its rows decide what is, and a verb that nothing tries fails.

What needs a Spark session is tried in ``tests/spark``.
"""

from __future__ import annotations

import hashlib
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, cast

import pyarrow
import pytest
import verbs_page
from golden import DATA
from old_layout import message, partition
from verbs_page import Row
from writing import HOLD, filled, running

import offsetlog
import offsetlog.spark
from offsetlog import (
    BrokerSettings,
    Log,
    LogConfig,
    LogDir,
    LogLockedError,
    OldLog,
    Scan,
    Server,
    WritableLog,
    WritableLogDir,
    open_cached,
)
from offsetlog.spark import ReadReport

ROWS = list(verbs_page.rows(verbs_page.text()))
SPARK_COMMITS = DATA / "spark-commits"
ZOOKEEPER = DATA / "kafka-3.9.2-zookeeper" / "zookeeper"
OTHER_ID = "AAECAwQFBgcICQoLDA0ODw"
WHEN = 1_700_000_000_000
# They start a JVM.
OF_SPARK = {
    "spark.read",
    "spark.readStream",
    "CREATE TABLE … USING offsetlog",
    "CREATE TEMPORARY VIEW … USING offsetlog",
    "INSERT INTO",
    "DataFrame.write",
    "DataFrame.writeStream",
}
OF_SPARK |= {f"offsetlog.spark.{name}" for name in ("scan", "map_splits", "register", "write")}


class Place(NamedTuple):
    """A stopped broker's folders, and what else verbs read."""

    root: Path

    @property
    def dirs(self) -> list[Path]:
        return [self.root / name for name in ("log-dir-1", "log-dir-2", "metadata-dir") if (self.root / name).is_dir()]

    @property
    def log(self) -> Path:
        return self.root / "log-dir-1/g-plain-0"

    @property
    def old(self) -> Path:
        return self.root / "old/clicks-7"

    @property
    def properties(self) -> Path:
        return self.root / "server.properties"

    def command(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        told = [sys.executable, "-m", "offsetlog", *map(str, arguments)]
        return subprocess.run(told, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def made(root: Path, kind: str) -> Place:
    """A copy of what a broker wrote, with a directory of 0.7 and a ``server.properties`` beside it."""
    shutil.copytree(DATA / "kafka-4.3.0" / kind, root)
    partition(root / "old/clicks-7", [message(b"one") + message(b"two")])
    (root / "server.properties").write_text("log.retention.hours=24\n", encoding="utf-8")
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return Place(root)


def traces(root: Path) -> dict[str, tuple[int, int, int, str]]:
    """Names, and of each inode, size, time of change and bytes."""
    found = {}
    for path in (root, *sorted(root.rglob("*"))):
        status = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(root))] = (status.st_ino, status.st_size, status.st_mtime_ns, digest)
    return found


def of_log(call: Callable[[WritableLog], object]) -> Callable[[Place], object]:
    def run(place: Place) -> object:
        with Log.open(place.log) as log:
            return call(cast("WritableLog", log))

    return run


def of_dirs(call: Callable[[LogDir], object]) -> Callable[[Place], object]:
    def run(place: Place) -> object:
        with LogDir.open(place.dirs) as log_dir:
            return call(log_dir)

    return run


def of_command(*arguments: str, code: int = 0) -> Callable[[Place], object]:
    """The command over all folders, which ends with this code."""

    def run(place: Place) -> object:
        done = place.command(arguments[0], *arguments[1:], *place.dirs)
        assert done.returncode == code, done.stderr
        return done.stdout

    return run


def of_server(place: Place) -> object:
    """All that a server is asked for, beside a client."""
    with Server(place.dirs) as kafka:
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=300) as connection:
            # ApiVersions 0.
            connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            assert connection.recv(4)
        return kafka.running, kafka.connections, kafka.metrics_address, kafka.metrics(), kafka.events()


def of_serve(place: Place) -> object:
    """The command, until it says what it serves."""
    told = [sys.executable, "-m", "offsetlog", "serve", "--listen", "127.0.0.1:0", "--json", *map(str, place.dirs)]
    with subprocess.Popen(told, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        assert process.wait(300) == 0
    assert '"event":"serving"' in line
    return line


def splits(place: Place) -> list[offsetlog.Split]:
    with Log.open(place.log) as log:
        return log.splits(max_bytes=1000)


WRITER = ("config", "recovery_point", "durable_end_offset", "recovery_report")

# How each verb that changes nothing is tried; what is a property needs no entry.
TRIES: dict[str, Callable[[Place], object]] = {
    "Log.open": lambda place: Log.open(place.log).close(),
    "open_cached": lambda place: open_cached(place.log).scan(limit=1).count(),
    "OldLog.open": lambda place: OldLog.open(place.old),
    "Scan.over": lambda place: Scan.over(splits(place)).count(),
    "Scan.report": of_log(lambda log: log.scan().report),
    "Log.get": of_log(lambda log: log.get(3)),
    "Log.refresh": of_log(lambda log: log.refresh()),
    "LogDir.refresh": of_dirs(lambda log_dir: log_dir.refresh()),
    "Log.locate": of_log(lambda log: log.locate(3)),
    "Log.batches": of_log(lambda log: list(log.batches())),
    "Log.fetch": of_log(lambda log: log.fetch(3)),
    "Log.offset_for_timestamp": of_log(lambda log: log.offset_for_timestamp(WHEN)),
    "Log.splits": splits,
    "Log.scan": of_log(lambda log: list(log.scan(isolation_level="read_committed"))),
    "Log.take": of_log(lambda log: list(log.take([5, 3]))),
    "Scan.count": of_log(lambda log: log.scan().count()),
    "Scan.to_arrow": of_log(lambda log: log.scan().to_arrow()),
    "Scan.to_polars": of_log(lambda log: log.scan().to_polars()),
    "Scan.to_pandas": of_log(lambda log: log.scan().to_pandas()),
    "Scan.explain": of_log(lambda log: log.scan().explain()),
    "Scan.follow": of_log(lambda log: list(log.scan().follow(timeout_ms=5))),
    "Log.verify": of_log(lambda log: log.verify()),
    "folder_kind": lambda place: offsetlog.folder_kind(place.dirs[0]),
    "verify": lambda place: offsetlog.verify(*place.dirs),
    "identity": lambda place: offsetlog.identity(*place.dirs),
    "metadata_as_commands": lambda place: offsetlog.metadata_as_commands(*place.dirs),
    "metadata_as_yaml": lambda place: offsetlog.metadata_as_yaml(*place.dirs),
    "zookeeper_node": lambda _: offsetlog.zookeeper_node(ZOOKEEPER, "/kafka/east/cluster/id"),
    "OldLog.read": lambda place: OldLog.open(place.old).read(0),
    "OldLog.scan": lambda place: list(OldLog.open(place.old).scan()),
    "LogDir.open": lambda place: LogDir.open(place.dirs).close(),
    "LogDir.topics": of_dirs(lambda log_dir: log_dir.topics()),
    "LogDir.partitions": of_dirs(lambda log_dir: log_dir.partitions()),
    "LogDir.log": of_dirs(lambda log_dir: log_dir.log("g-plain", 0).close()),
    "LogDir.beginning_offsets": of_dirs(lambda log_dir: log_dir.beginning_offsets()),
    "LogDir.end_offsets": of_dirs(lambda log_dir: log_dir.end_offsets(isolation_level="read_committed")),
    "LogDir.offsets_for_times": of_dirs(lambda log_dir: log_dir.offsets_for_times(dict.fromkeys(log_dir.partitions(), WHEN))),
    "LogDir.scan": of_dirs(lambda log_dir: log_dir.scan().count()),
    "LogDir.groups": of_dirs(lambda log_dir: log_dir.groups()),
    "LogDir.groups_prometheus": of_dirs(lambda log_dir: log_dir.groups_prometheus()),
    "LogDir.groups_reset_csv": of_dirs(lambda log_dir: log_dir.groups_reset_csv()),
    "LogDir.transactions": of_dirs(lambda log_dir: log_dir.transactions()),
    "LogDir.producers": of_dirs(lambda log_dir: log_dir.producers()),
    "LogDir.why": of_dirs(lambda log_dir: log_dir.why()),
    "LogDir.metadata": of_dirs(lambda log_dir: log_dir.metadata()),
    "LogDir.strays": of_dirs(lambda log_dir: log_dir.strays()),
    "LogDir.topic_settings": of_dirs(lambda log_dir: log_dir.topic_settings("g-plain")),
    "LogDir.topic_config": of_dirs(lambda log_dir: log_dir.topic_config("g-plain")),
    "offsetlog serve": of_serve,
    "offsetlog ls": of_command("ls", "--json"),
    "offsetlog cat": of_command("cat", "-t", "g-plain"),
    "offsetlog grep": of_command("grep", "alpha", "--count"),
    "offsetlog dump": lambda place: place.command("dump", place.log),
    "offsetlog explain": lambda place: place.command("explain", 3, place.log),
    "offsetlog time": of_command("time", "2023-11-15", "-t", "g-plain"),
    "offsetlog groups": of_command("groups", "--members"),
    "offsetlog transactions": of_command("transactions"),
    "offsetlog producers": of_command("producers", "--open"),
    "offsetlog why": of_command("why"),
    "offsetlog metadata": of_command("metadata", "--configs"),
    "offsetlog verify": lambda place: place.command("verify", *place.dirs),
    "offsetlog settings": lambda place: place.command("settings", "--all", *place.dirs),
    "offsetlog completions": lambda place: place.command("completions", "bash"),
    "offsetlog.spark.splits": lambda place: offsetlog.spark.splits(place.dirs, subscribe="g-plain"),
    "offsetlog.spark.lookup": lambda place: offsetlog.spark.lookup(place.dirs, "value"),
    "offsetlog.spark.offsets_behind": lambda _: offsetlog.spark.offsets_behind(None),
    "offsetlog.spark.spark_schema": lambda _: offsetlog.spark.spark_schema(("key", "value")),
    "arrow_digest": lambda _: offsetlog.arrow_digest(pyarrow.table({"value": ["a"]})),
    "Commit.covers": lambda _: offsetlog.commits(SPARK_COMMITS)[0].covers(3),
    "commits": lambda place: offsetlog.commits(place.dirs[0]),
    "offsetlog commits": lambda place: place.command("commits", place.dirs[0]),
    "partition_for": lambda _: offsetlog.partition_for(b"key", 3),
    "partitions_for": lambda _: offsetlog.partitions_for([b"key"], 3),
    "LogConfig.from_dict": lambda _: LogConfig.from_dict({"retention.ms": 1}),
    "LogConfig.to_dict": lambda _: LogConfig().to_dict(),
    "LogConfig.replace": lambda _: LogConfig().replace(retention_ms=1),
    "BrokerSettings.read": lambda place: BrokerSettings.read(place.properties),
}


def tried(verb: str) -> Callable[[Place], object]:
    """How a verb is tried that changes nothing."""
    if verb in TRIES:
        return TRIES[verb]
    kind, _, name = verb.rpartition(".")
    if kind == "Server":
        return of_server
    if kind == "Log":
        return of_log(lambda log: getattr(log, name))
    if kind == "LogDir":
        return of_dirs(lambda log_dir: getattr(log_dir, name))
    if kind == "OldLog":
        return lambda place: getattr(OldLog.open(place.old), name)
    if kind == "ReadReport":
        return lambda _: getattr(ReadReport(), name)
    pytest.fail(f"nothing here tries {verb}: say how")


def rows_that_change(answer: str) -> Iterator[Row]:
    yield from (row for row in ROWS if row.cells["changes files"].startswith(answer) and not set(row.verbs) <= OF_SPARK)


def named(rows: Iterator[Row]) -> list[object]:
    return [pytest.param(row, id=row.calls[0]) for row in rows]


@contextmanager
def held(*files: Path) -> Iterator[None]:
    """Another process has locked these files for itself."""
    with running(HOLD, *files) as process:
        assert process.stdout is not None
        # `running` may have read the line already.
        yield


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A broker's folders while a broker runs, and somebody writes each partition."""
    place = made(tmp_path_factory.mktemp("verbs") / "clean", "clean")
    partitions = [path for folder in place.dirs for path in folder.iterdir() if path.is_dir()]
    with held(*(folder / ".lock" for folder in place.dirs), *(path / ".offsetlog.lock" for path in partitions)):
        yield place


@pytest.mark.parametrize("row", named(rows_that_change("no")))
def test_what_changes_no_file_leaves_no_trace_and_asks_for_no_lock(row: Row, busy: Place, tmp_path: Path) -> None:
    if row.cells["locks"] == "none":
        for verb in row.verbs:
            if verb not in OF_SPARK:
                before = traces(busy.root)
                tried(verb)(busy)
                assert traces(busy.root) == before, verb
        return
    # What only a writer knows.
    filled(tmp_path / "orders-0")
    with Log.open(tmp_path / "orders-0", "a") as log:
        before = traces(tmp_path)
        for verb in row.verbs:
            name = verb.removeprefix("Log.")
            log.end_offset_for_epoch(0) if name == "end_offset_for_epoch" else getattr(log, name)
            assert traces(tmp_path) == before, verb


# What upkeep decides by, and a broker's log dir does not say without its metadata.
KNOWN: dict[str, str | int | float | bool] = {
    "cleanup.policy": "delete",
    "retention.ms": 1,
    "retention.bytes": -1,
    "file.delete.delay.ms": 0,
    "remote.storage.enable": False,
}


def dry_handles(place: Place) -> Iterator[tuple[str, Callable[[], object]]]:
    """The dry runs of what is open already."""
    with Log.open(place.log, "a") as log:
        yield "Log.maintain", lambda: log.maintain(dry_run=True, now=WHEN * 2, config=KNOWN)
    with suppress(LogLockedError), LogDir.open(place.dirs[0], "a") as log_dir:
        yield "LogDir.maintain", lambda: log_dir.maintain(dry_run=True, now=WHEN * 2)
        yield "LogDir.remove_deleted", lambda: log_dir.remove_deleted(dry_run=True)


def hanging(place: Place) -> int:
    """The producer whose transaction the broker left open."""
    with LogDir.open(place.dirs) as log_dir:
        (found,) = log_dir.producers(topics="g-txn", open_only=True)
    return found.producer_id


# All that decides what may go: the rest is for the cluster to know.
EVERY_SETTING = [
    word
    for setting in (
        "cleanup.policy=delete",
        "retention.ms=1",
        "retention.bytes=-1",
        "file.delete.delay.ms=0",
        "remote.storage.enable=false",
    )
    for word in ("--config", setting)
]
DRY: dict[str, Callable[[Place], object]] = {
    "recover": lambda place: [
        offsetlog.recover(path, dry_run=True) for path in place.dirs[0].iterdir() if path.suffix == "" and path.is_dir()
    ],
    "offsetlog recover": lambda place: place.command("recover", "--dry-run", *place.dirs),
    "offsetlog maintain": lambda place: place.command("maintain", "--dry-run", "-t", "g-plain", *EVERY_SETTING, *place.dirs),
    "offsetlog delete": lambda place: place.command("delete", "--dry-run", "g-plain", *place.dirs),
    "end_transaction": lambda place: offsetlog.end_transaction(place.dirs, "g-txn", 0, hanging(place), commit=False, dry_run=True),
    "offsetlog end-transaction": lambda place: place.command(
        "end-transaction", "g-txn-0", hanging(place), *place.dirs, "--abort", "--dry-run"
    ),
    "adopt": lambda place: offsetlog.adopt(place.log, topic_id=OTHER_ID, dry_run=True),
    "offsetlog adopt": lambda place: place.command("adopt", "--dry-run", place.log, "--topic-id", OTHER_ID),
    "salvage": lambda place: offsetlog.salvage(place.log, place.dirs[1] / "g-plain-0", dry_run=True),
    "offsetlog salvage": lambda place: place.command("salvage", "--dry-run", place.log, "--into", place.dirs[1]),
    "restore": lambda place: offsetlog.restore(place.log, place.root / "restored", dry_run=True),
    "offsetlog restore": lambda place: place.command("restore", "--dry-run", place.log, "--into", place.root / "restored"),
}


@pytest.mark.parametrize("row", named(row for row in rows_that_change("yes") if "dry run" in row.cells["changes files"]))
@pytest.mark.parametrize("kind", ["clean", "unclean"])
def test_dry_runs_change_nothing(row: Row, kind: str, tmp_path: Path) -> None:
    shell_only = "from the shell" in row.cells["changes files"]
    left = {verb for verb in row.verbs if not shell_only or verb.startswith("offsetlog ")}
    place = made(tmp_path / "handles", kind)
    for verb, call in dry_handles(place):
        if verb in left:
            left.remove(verb)
            before = traces(place.root)
            call()
            assert traces(place.root) == before, verb
    place = made(tmp_path / "shell", kind)
    before = traces(place.root)
    for verb in sorted(left):
        assert verb in DRY, f"nothing here tries {verb} as a dry run: say how"
        done = DRY[verb](place)
        assert traces(place.root) == before, verb
        # One that is refused, or that has nothing to do, changes nothing either.
        assert not isinstance(done, subprocess.CompletedProcess) or done.returncode in {0, 3}, (verb, done.stderr)


def must_fail(call: Callable[[], object]) -> None:
    """Somebody else's lock is an error with its class, or with the command's exit code and words."""
    try:
        done = call()
    except LogLockedError:
        return
    assert isinstance(done, subprocess.CompletedProcess), f"not refused: {done!r}"
    assert done.returncode == 2, (done.args, done.stdout, done.stderr)
    assert "lock" in done.stderr, done.stderr


def opened(place: Place, call: Callable[[WritableLogDir], object]) -> object:
    with LogDir.open(place.dirs[0], "a") as log_dir:
        return call(log_dir)


# What is refused beside a broker, whose verbs are called on what is open, and what is called by itself.
CHANGES: dict[str, Callable[[Place], object]] = {
    "Log.open": lambda place: Log.open(place.log, "a"),
    "LogDir.open": lambda place: LogDir.open(place.dirs, "a"),
    "LogDir.log": lambda place: opened(place, lambda log_dir: log_dir.log("g-plain", 0)),
    "LogDir.create_topic": lambda place: opened(place, lambda log_dir: log_dir.create_topic("new")),
    "LogDir.append": lambda place: opened(place, lambda log_dir: log_dir.append("g-plain", b"new", partition=0)),
    "LogDir.set_topic_config": lambda place: opened(place, lambda log_dir: log_dir.set_topic_config("g-plain", {"retention.ms": 1})),
    "LogDir.delete_topic": lambda place: opened(place, lambda log_dir: log_dir.delete_topic("g-plain")),
    "LogDir.remove_deleted": lambda place: opened(place, lambda log_dir: log_dir.remove_deleted()),
    "LogDir.maintain": lambda place: opened(place, lambda log_dir: log_dir.maintain()),
    "Log.maintain": lambda place: Log.open(place.log, "a").maintain(),
    "Log.config": lambda place: Log.open(place.log, "a"),
    "recover": lambda place: offsetlog.recover(place.log),
    "convert": lambda place: offsetlog.convert(place.log, place.dirs[0] / "new-0"),
    "adopt": lambda place: offsetlog.adopt(place.log, topic_id=OTHER_ID),
    "offsetlog adopt": lambda place: place.command("adopt", place.log, "--topic-id", OTHER_ID),
    "salvage": lambda place: offsetlog.salvage(place.log, place.dirs[1] / "g-plain-0"),
    "offsetlog salvage": lambda place: place.command("salvage", place.log, "--into", place.dirs[1]),
    "restore": lambda place: offsetlog.restore(place.log, place.dirs[1]),
    "offsetlog restore": lambda place: place.command("restore", place.log, "--into", place.dirs[1]),
    "offsetlog create": lambda place: place.command("create", "new", place.dirs[0]),
    "offsetlog recover": lambda place: place.command("recover", place.log),
    "offsetlog convert": lambda place: place.command("convert", place.log, place.dirs[0] / "new-0"),
    "offsetlog append": lambda place: place.command("append", place.log),
    "end_transaction": lambda place: offsetlog.end_transaction(place.dirs, "g-txn", 0, 1000, commit=False, single_replica=True),
    "offsetlog end-transaction": lambda place: place.command(
        "end-transaction", "g-txn-0", 1000, *place.dirs, "--abort", "--single-replica"
    ),
    "forget_commit": lambda place: offsetlog.forget_commit(place.dirs[0], "none"),
    "offsetlog commits": lambda place: place.command("commits", "--forget", "none", place.dirs[0]),
    "offsetlog settings": lambda place: place.command("settings", place.dirs[0], "-t", "g-plain", "--config", "retention.ms=1"),
    "offsetlog maintain": lambda place: place.command("maintain", place.dirs[0]),
    "offsetlog delete": lambda place: place.command("delete", "g-plain", place.dirs[0]),
}


def refused_beside_a_broker() -> list[object]:
    verbs = {verb for row in rows_that_change("yes") if "refused: *one writer*" in row.cells["running broker"] for verb in row.verbs}
    assert len(verbs) > 10
    return sorted(verbs - OF_SPARK)  # type: ignore[return-value]  # names


@pytest.mark.parametrize("verb", refused_beside_a_broker())
def test_what_is_refused_beside_a_running_broker_changes_nothing(verb: str, tmp_path: Path) -> None:
    place = made(tmp_path / "clean", "clean")
    with held(*(folder / ".lock" for folder in place.dirs)):
        before = traces(place.root)
        assert verb in CHANGES, f"nothing here tries {verb} beside a broker: say how"
        must_fail(lambda: CHANGES[verb](place))
        assert traces(place.root) == before


@pytest.mark.parametrize(
    ("folder", "why"),
    [("log-dir-1", "no note of a mirror"), ("log-dir-1/g-plain-0", "a partition's directory found"), (".", "a mirror")],
)
def test_a_mirror_takes_no_directory_of_somebody_else(folder: str, why: str, tmp_path: Path) -> None:
    place = made(tmp_path / "clean", "clean")
    before = traces(place.root)
    command = [
        sys.executable,
        "-m",
        "offsetlog",
        "mirror",
        "--bootstrap",
        "127.0.0.1:1",
        "--once",
        "--into",
        str(tmp_path / "clean" / folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert why in done.stderr
    assert traces(place.root) == before


# Their rows say that they hold the lock of the partition; others are called on what is open, which holds it.
WITHOUT_HANDLE = {verb for verb in CHANGES if not verb.startswith("LogDir.open")} - {
    "convert",
    "offsetlog convert",
    "salvage",
    "offsetlog salvage",
    "restore",
    "offsetlog restore",
    "offsetlog create",
    "LogDir.create_topic",
}


@pytest.mark.parametrize("row", named(row for row in rows_that_change("yes") if row.cells["locks"].startswith("partition")))
def test_what_locks_a_partition_is_refused_while_another_process_writes_it(row: Row, tmp_path: Path) -> None:
    place = made(tmp_path / "clean", "clean")
    (place.log / ".offsetlog.lock").write_text("1\n")
    with held(place.log / ".offsetlog.lock"):
        before = traces(place.log)
        for verb in row.verbs:
            if verb in {"LogDir.set_topic_config", "offsetlog settings"}:
                # They refuse a broker's topics without a look at locks.
                for name in ("meta.properties", "bootstrap.checkpoint", ".kafka_cleanshutdown"):
                    (place.dirs[0] / name).unlink(missing_ok=True)
            if verb in WITHOUT_HANDLE and not verb.endswith("maintain"):
                must_fail(lambda verb=verb: CHANGES[verb](place))  # type: ignore[misc]  # bound now
            elif verb.endswith("maintain") and not verb.startswith("Log."):
                # Others keep their turn.
                with suppress(offsetlog.OffsetLogError):
                    CHANGES[verb](place)
            else:
                assert verb.split(".")[0] in {"Log", "Writer", "LogDir"}, f"nothing here tries {verb} beside a writer: say how"
            assert traces(place.log) == before, verb
        with pytest.raises(LogLockedError):
            Log.open(place.log, "a")


def test_what_is_open_for_appending_keeps_other_processes_out_until_it_is_closed(tmp_path: Path) -> None:
    place = made(tmp_path / "clean", "clean")
    shell = (place.command, ("append", place.log))
    with LogDir.open(place.dirs, "a") as log_dir:
        log = log_dir.log("g-plain", 0)
        assert shell[0](*shell[1]).returncode == 2
        # A lock of the log dir alone keeps brokers out, and none of ours.
        done = place.command("append", place.dirs[0] / "g-codec-lz4-0")
        assert done.returncode == 0 or "replica" in done.stderr
        broker = subprocess.run(
            [sys.executable, "-c", HOLD, str(place.dirs[0] / ".lock")], capture_output=True, text=True, check=False
        )
        assert "BlockingIOError" in broker.stderr
        del log
    held_now = subprocess.run(
        [sys.executable, "-c", HOLD, str(place.dirs[0] / ".lock")], capture_output=True, text=True, check=False, input="\n"
    )
    assert held_now.returncode == 0, held_now.stderr
