"""How each verb of ``docs/verbs.md`` that changes files is called, in a folder that has something for every one of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from golden import CLEAN_LOG_DIRS
from make_log import batch
from writing import coded, environment

import offsetlog
from offsetlog import Log, LogConfig, LogDir, WritableLog, WritableLogDir
from offsetlog._commit.publishing import commit
from offsetlog._commit.staging import Stage

WHEN = 1_700_000_000_000
# More than two pages: no append of it finds room in a page that is used already.
BIG = b"x" * 9000
PRODUCER = 7
TRANSACTION = 8
STRAY = "g-plain-0.0123456789abcdef0123456789abcdef-stray"
PLAIN_ID = "pf7cXgbVTTeuM8IYSzk58w"
SETTINGS: dict[str, str | int | float | bool] = {
    "internal.segment.bytes": 60_000,
    "segment.index.bytes": 1000,
    "retention.ms": -1,
    "cleanup.policy": "delete",
}


def made(root: Path) -> Path:
    """A log dir with topics for all verbs, a partition that a broker set aside, and one beside them to take batches from."""
    with LogDir.open(root / "logs", "a") as log_dir:
        topics: dict[str, dict[str, Any]] = {
            "t": {},
            "old": {"retention.ms": 1000},
            "keys": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0},
            "torn": {},
            "gone": {},
            "txn": {},
        }
        for name, more in topics.items():
            log_dir.create_topic(name, 1, config={**SETTINGS, **more})
            log = log_dir.log(name, 0)
            for number in range(6):
                # Of a transaction that is open, the next segments would be kept too.
                log.append(b"%s.%d " % (name.encode(), number) + BIG, key=b"key", timestamp=WHEN)
                if number % 2:
                    log.roll()
        log_dir.log("txn", 0).append_batches(batch(0, [(b"k", b"v")], attributes=0x10, producer_id=TRANSACTION, base_sequence=0))
        log_dir.delete_topic("gone")
    # Its delay has passed, which is the log dir's and not its own; else it could be removed only where the tests before took a minute.
    (due,) = root.glob("logs/gone-*-delete/.offsetlog.delete")
    due.write_text("1\n")
    damaged = root / "logs/torn-0" / f"{2:020}.log"
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    with Log.open(root / "source-0", "a", SETTINGS) as log:
        log.append_records([b"source", BIG])
    stage = Stage("job", "attempt")
    rows = pa.RecordBatch.from_pydict({"value": pa.array(["staged"])})
    stage.append("t", 0, str(root / "logs/t-0"), LogConfig(), rows, preserve_offsets=False)
    commit(str(root / "logs"), "job done", None, stage.close())
    broker = root / "broker"
    broker.mkdir()
    for path in CLEAN_LOG_DIRS[0].iterdir():
        if path.is_file():
            shutil.copyfile(path, broker / path.name)
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-plain-0", broker / STRAY)
    for path in broker.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


class Call(NamedTuple):
    """One way to call a verb."""

    opens: Callable[[Path], AbstractContextManager[Any]]
    """What it is called on: the folder, or what is open in it."""
    call: Callable[[Any], object]
    second: str
    """What the second call does: a kind that ``test_verbs_again.py`` knows."""
    full: str
    """What it does on a full disk: a kind that ``test_verbs_full_disk.py`` knows."""


def folder(root: Path) -> AbstractContextManager[Path]:
    return nullcontext(root)


def log_of(name: str) -> Callable[[Path], AbstractContextManager[WritableLog]]:
    return lambda root: Log.open(root / "logs" / name, "a")


@contextmanager
def _with_source(root: Path) -> Iterator[tuple[WritableLog, Log]]:
    with Log.open(root / "logs/t-0", "a") as log, Log.open(root / "source-0") as source:
        yield log, source


@contextmanager
def _behind_source(root: Path) -> Iterator[tuple[WritableLog, Log]]:
    """A source whose offsets lie behind the end of the log."""
    with Log.open(root / "behind-0", "a") as log:
        log.truncate_fully_and_start_at(100)
        log.append_records([b"behind", BIG])
    with Log.open(root / "logs/t-0", "a") as log, Log.open(root / "behind-0") as source:
        yield log, source


def dirs(root: Path) -> AbstractContextManager[WritableLogDir]:
    return LogDir.open(root / "logs", "a")


def shell(*words: str, text: str | None = None) -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """The command, in the folder."""

    def call(root: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "offsetlog", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=environment(), input=text or "")

    return call


def written(log: WritableLog) -> object:
    with log.writer() as writer:
        writer.append(BIG)
        writer.flush()
    writer.close()
    return None


def mirrored(root: Path) -> object:
    with offsetlog.Server(root / "logs") as kafka:
        return offsetlog.mirror(kafka.bootstrap_servers, root / "mirror", topics="t", once=True)


def mirrored_by_shell(root: Path) -> object:
    with offsetlog.Server(root / "logs") as kafka:
        return shell("mirror", "--bootstrap", kafka.bootstrap_servers, "--into", "mirror", "--once", "-t", "t")(root)


def arrow(offset: int | None = None) -> pa.RecordBatch:
    columns: dict[str, Any] = {"value": pa.array([BIG])}
    if offset is not None:
        columns["offset"] = pa.array([offset], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def closed_twice(log: WritableLog | WritableLogDir) -> object:
    log.close()
    return None


@contextmanager
def changed(root: Path) -> Iterator[WritableLog]:
    """A log that was appended to since it was opened."""
    with Log.open(root / "logs/t-0", "a") as log:
        log.append(b"changed")
        yield log


def _set(log: WritableLog) -> object:
    log.config = {**log.config.to_dict(), "retention.ms": 5}
    return None


_t = log_of("t-0")
BEHIND = coded(BIG, base_offset=50)
# A verb is here as often as its row says different things of it.
CALLS: dict[str, list[Call]] = {
    "Log.open": [
        Call(folder, lambda root: Log.open(root / "logs/t-0", "a"), "locked", "works"),
        Call(folder, lambda root: Log.open(root / "source-0", "a"), "locked", "works"),
        Call(folder, lambda root: Log.open(root / "new-0", "a"), "locked", "goes on"),
    ],
    "LogDir.open": [Call(folder, lambda root: LogDir.open(root / "logs", "a"), "fine", "works")],
    "LogDir.log": [Call(dirs, lambda log_dir: log_dir.log("t", 0), "same", "works")],
    "LogDir.create_topic": [Call(dirs, lambda log_dir: log_dir.create_topic("new", 3), "refused: the topic is there", "fails")],
    "offsetlog create": [Call(folder, shell("create", "new", "logs", "--partitions", "3"), "refused: the topic is there", "fails")],
    "recover": [Call(folder, lambda root: offsetlog.recover(root / "logs/torn-0"), "nothing", "fails")],
    "offsetlog recover": [Call(folder, shell("recover", "logs/torn-0"), "nothing", "fails")],
    "adopt": [
        Call(folder, lambda root: offsetlog.adopt(_adopted(root), topic_id=PLAIN_ID), "nothing", "goes on"),
        Call(folder, lambda root: offsetlog.adopt(root / "logs/t-0", topic_id=PLAIN_ID), "nothing", "goes on"),
    ],
    "offsetlog adopt": [
        Call(folder, lambda root: shell("adopt", f"{_adopted(root)}", "--topic-id", PLAIN_ID)(root), "exit 1", "goes on")
    ],
    "salvage": [
        Call(folder, lambda root: offsetlog.salvage(root / "logs/torn-0", root / "new" / "torn-0"), "refused: not empty", "fails"),
    ],
    "offsetlog salvage": [Call(folder, shell("salvage", "logs/torn-0", "--into", "new"), "refused: not empty", "fails")],
    "restore": [
        Call(folder, lambda root: offsetlog.restore(root / "logs/t-0", root / "new"), "nothing", "fails"),
        Call(folder, lambda root: offsetlog.restore(root / "logs/t-0", root / "new"), "refused: something else", "fails"),
    ],
    "offsetlog restore": [Call(folder, shell("restore", "logs/t-0", "--into", "new"), "nothing", "fails")],
    "mirror": [Call(folder, mirrored, "goes on", "mirror")],
    "offsetlog mirror": [Call(folder, mirrored_by_shell, "goes on", "mirror")],
    "convert": [Call(folder, lambda root: offsetlog.convert(root / "logs/t-0", root / "new-0"), "refused: not empty", "fails")],
    "offsetlog convert": [Call(folder, shell("convert", "logs/t-0", "new-0"), "refused: not empty", "fails")],
    "Log.append": [Call(_t, lambda log: log.append(BIG), "again", "fails")],
    "Log.append_records": [
        Call(_t, lambda log: log.append_records([BIG, b"two"]), "again", "fails"),
        Call(_t, lambda log: log.append_records([BIG], producer_id=PRODUCER, producer_epoch=0, base_sequence=0), "answered", "fails"),
    ],
    "Log.append_batches": [
        Call(_t, lambda log: log.append_batches(coded(BIG)), "again", "fails"),
        Call(_t, lambda log: log.append_batches(coded(BIG, producer=(PRODUCER, 0, 0))), "answered", "fails"),
    ],
    "Log.append_marker": [Call(log_of("txn-0"), lambda log: log.append_marker(TRANSACTION, 0, commit=False), "again", "as before")],
    "Log.append_as_follower": [Call(_t, lambda log: log.append_as_follower(BEHIND), "offsets refused", "fails")],
    "Log.append_log": [
        Call(_with_source, lambda logs: logs[0].append_log(logs[1]), "again", "fails"),
        Call(_behind_source, lambda logs: logs[0].append_log(logs[1], preserve_offsets=True), "offsets refused", "fails"),
    ],
    "Log.append_arrow": [
        Call(_t, lambda log: log.append_arrow(arrow()), "again", "fails"),
        Call(_t, lambda log: log.append_arrow(arrow(50), preserve_offsets=True), "offsets refused", "fails"),
    ],
    "Log.writer": [Call(_t, written, "again", "fails")],
    "Writer.append": [Call(_t, written, "again", "fails")],
    "Writer.flush": [Call(_t, written, "again", "fails")],
    "Writer.close": [Call(_t, written, "again", "fails")],
    "LogDir.append": [
        Call(dirs, lambda log_dir: log_dir.append("t", BIG, partition=0), "again", "fails"),
        Call(dirs, lambda log_dir: log_dir.append("t", BIG, partition=0), "refused: deleted", "fails"),
    ],
    "end_transaction": [
        Call(
            folder,
            lambda root: offsetlog.end_transaction(root / "logs", "txn", 0, TRANSACTION, commit=False, without_state=True),
            "refused: no open transaction",
            "as before",
        )
    ],
    "offsetlog end-transaction": [
        Call(
            folder,
            shell("end-transaction", "txn-0", str(TRANSACTION), "logs", "--abort", "--without-state"),
            "refused: no open transaction",
            "as before",
        )
    ],
    "offsetlog append": [Call(folder, shell("append", "logs/t-0", text="x" * 9000 + "\n"), "again", "tells")],
    "Log.flush": [Call(_t, lambda log: log.flush(), "nothing", "works")],
    "LogDir.flush": [Call(dirs, lambda log_dir: log_dir.flush(), "nothing", "works")],
    "Log.roll": [
        Call(changed, lambda log: log.roll(), "nothing", "as before"),
        Call(_t, lambda log: log.roll(), "nothing", "as before"),
    ],
    "Log.close": [Call(_t, closed_twice, "nothing", "closed")],
    "LogDir.close": [Call(dirs, closed_twice, "nothing", "closed")],
    "Log.config": [Call(_t, _set, "same settings", "fails")],
    "LogDir.set_topic_config": [
        Call(dirs, lambda log_dir: log_dir.set_topic_config("t", {**SETTINGS, "retention.ms": 5}), "same settings", "fails")
    ],
    "offsetlog settings": [
        Call(folder, shell("settings", "logs", "-t", "t", "--config", "retention.ms=5"), "same settings", "fails"),
    ],
    "Log.truncate_to": [
        Call(changed, lambda log: log.truncate_to(3), "nothing", "as before"),
        Call(_t, lambda log: log.truncate_to(3), "nothing", "as before"),
    ],
    "Log.truncate_fully_and_start_at": [
        Call(changed, lambda log: log.truncate_fully_and_start_at(40), "nothing more", "as before"),
        Call(_t, lambda log: log.truncate_fully_and_start_at(40), "nothing more", "as before"),
    ],
    "Log.delete_records_before": [Call(_t, lambda log: log.delete_records_before(3), "nothing", "as before")],
    "Log.maintain": [Call(log_of("old-0"), lambda log: log.maintain(), "nothing more", "works")],
    "LogDir.maintain": [Call(dirs, lambda log_dir: log_dir.maintain(topics="old"), "nothing more", "works")],
    "offsetlog maintain": [Call(folder, shell("maintain", "logs", "-t", "old"), "nothing more", "works")],
    "Log.compact": [Call(log_of("keys-0"), lambda log: log.compact(), "nothing", "before or after")],
    "LogDir.delete_topic": [Call(dirs, lambda log_dir: log_dir.delete_topic("t"), "refused: no such topic", "works")],
    "offsetlog delete": [Call(folder, shell("delete", "t", "logs"), "refused: no such topic", "works")],
    "LogDir.remove_deleted": [Call(dirs, lambda log_dir: log_dir.remove_deleted(), "nothing", "works")],
    "forget_commit": [Call(folder, lambda root: offsetlog.forget_commit(root / "logs", "done"), "refused: no such note", "works")],
    "offsetlog commits": [Call(folder, shell("commits", "--forget", "done", "logs"), "refused: no such note", "works")],
}


def _adopted(root: Path) -> Path:
    """The directory by the name that it has now."""
    aside = root / "broker" / STRAY
    return aside if aside.is_dir() else root / "broker/g-plain-0"
