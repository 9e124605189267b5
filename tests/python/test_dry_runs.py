"""A dry run changes no byte, name or time, makes no file, and says what the real run then does."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from golden import CLEAN, DATA

from offsetlog import Log, LogDir, LogDirMaintainReport, TopicPartition, recover

ROOT = DATA.parents[1]
STATES = ("clean", "unclean", "torn", "live")
Settings = dict[str, str | int | float | bool]
DELETE: Settings = {"cleanup.policy": "delete", "retention.ms": 1000, "retention.bytes": -1}
COMPACT: Settings = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": 9_000_000_000_000,
    "delete.retention.ms": 0,
    "segment.bytes": 1_048_576,
    "segment.index.bytes": 1_048_576,
}
ALWAYS: Settings = {"remote.storage.enable": False, "file.delete.delay.ms": 0}


class Entry(NamedTuple):
    """What a folder says of a name."""

    kind: int
    size: int
    modified: int
    changed: int
    inode: int
    digest: str


def tree(folder: Path) -> dict[str, Entry]:
    """Every name below a folder with what it is, how large, since when, which inode, and its bytes."""
    found: dict[str, Entry] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        stat = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = Entry(
            stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, digest
        )
    return found


@pytest.fixture(params=STATES)
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of log dirs as a broker left them, behind a clean end, a crash, damage, and taken while it ran."""
    folder = tmp_path / "copy"
    shutil.copytree(DATA / "kafka-4.3.0" / request.param, folder)
    return folder


def log_dirs(copy: Path) -> list[Path]:
    return sorted(copy.glob("log-dir-*"))


def topics(copy: Path) -> list[str]:
    with LogDir.open(log_dirs(copy)) as log_dir:
        return [topic for topic in log_dir.topics() if topic.startswith("g-")]


def offsetlog(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)


def given(config: dict[str, Any]) -> list[str]:
    return [f"--config={name}={str(value).lower()}" for name, value in (config | ALWAYS).items()]


def done(report: LogDirMaintainReport) -> dict[str, Any]:
    """What a plan and what was done have in common: a plan of a compaction says only that there is one."""
    partitions = {
        key: (kept.removed, bool(kept.compactions), sorted(Path(path).name for path in kept.deleted), kept.removed == ())
        for key, kept in report.partitions.items()
    }
    return {"partitions": partitions, "failed": report.failed, "busy": report.busy, "looked_at": report.looked_at}


COMMANDS: dict[str, Callable[[Path], list[object]]] = {
    "maintain": lambda copy: ["maintain", "--dry-run", *log_dirs(copy)],
    "maintain by retention": lambda copy: [
        "maintain",
        "--dry-run",
        *(f"-t{each}" for each in topics(copy)),
        *given(DELETE),
        *log_dirs(copy),
    ],
    "maintain by compaction": lambda copy: [
        "maintain",
        "--dry-run",
        "--json",
        *(f"-t{each}" for each in topics(copy)),
        *given(COMPACT),
        *log_dirs(copy),
    ],
    "recover": lambda copy: ["recover", "--dry-run", *log_dirs(copy)],
    "delete": lambda copy: ["delete", "--dry-run", topics(copy)[0], *log_dirs(copy)],
    "delete, refused": lambda copy: ["delete", "--dry-run", "__transaction_state", *log_dirs(copy)],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_with_dry_run_changes_anything(copy: Path, name: str) -> None:
    words = COMMANDS[name](copy)
    before = tree(copy)
    run = offsetlog(*words)
    assert tree(copy) == before, run
    assert run.returncode in {0, 1, 2, 3}
    assert "Traceback" not in run.stderr
    if name != "maintain" and not name.endswith("refused"):
        assert run.stdout, run


def test_no_python_dry_run_changes_anything(copy: Path) -> None:
    before = tree(copy)
    for directory in sorted(copy.glob("log-dir-*/g-*-*")):
        if "-delete" not in directory.name:
            recover(directory, dry_run=True)
    assert tree(copy) == before
    # Opening for appending takes the lock, whatever is done then.
    with LogDir.open(log_dirs(copy), "a") as log_dir:
        opened = tree(copy)
        some = topics(copy)
        log_dir.maintain(dry_run=True)
        for config in (DELETE, COMPACT):
            report = log_dir.maintain(dry_run=True, topics=some, config=config | ALWAYS)
            assert report.partitions
        log_dir.remove_deleted(dry_run=True)
        assert tree(copy) == opened
    with Log.open(log_dirs(copy)[0] / "g-plain-0", "a") as log:
        opened = tree(copy)
        log.maintain(dry_run=True, config=DELETE | COMPACT | ALWAYS)
        assert tree(copy) == opened


@pytest.mark.parametrize("config", [DELETE, COMPACT], ids=["delete", "compact"])
def test_a_plan_is_what_is_done(copy: Path, config: dict[str, Any]) -> None:
    some = topics(copy)
    # What goes in a run is removed for good by a later one.
    config = config | ALWAYS | {"file.delete.delay.ms": 60_000}
    with LogDir.open(log_dirs(copy), "a") as log_dir:
        planned = log_dir.maintain(dry_run=True, topics=some, config=config)
        real = log_dir.maintain(topics=some, config=config)
    assert planned.partitions
    assert done(planned) == done(real)
    ends = {key: (kept.log_end_offset, kept.log_start_offset) for key, kept in planned.partitions.items()}
    for key, (end, start) in ends.items():
        kept = real.partitions[key]
        assert (kept.log_end_offset, kept.log_start_offset) == (end, max([start, *(one.end_offset for one in kept.removed)]))


def test_a_dry_run_plans_with_the_logs_that_are_open(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a", defaults={"retention.ms": 1000}) as log_dir:
        log_dir.create_topic("orders")
        log_dir.append("orders", b"x", timestamp=1)
        before = tree(tmp_path)
        planned = log_dir.maintain(dry_run=True)
        assert [one.end_offset for one in planned.partitions[TopicPartition("orders", 0)].removed] == [1]
        assert tree(tmp_path) == before
        assert (
            log_dir.maintain().partitions[TopicPartition("orders", 0)].removed
            == planned.partitions[TopicPartition("orders", 0)].removed
        )


def test_the_command_plans_what_it_does(tmp_path: Path) -> None:
    """Also with the cluster's settings: the JSON of both runs is the same but for the word that tells them apart."""
    folder = tmp_path / "copy"
    shutil.copytree(CLEAN, folder)
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=1000\nlog.segment.delete.delay.ms=0\n")
    words = ["maintain", "--json", "--only=retention", "--broker", properties, *folder.iterdir()]
    before = tree(folder)
    planned = offsetlog(*words, "--dry-run")
    assert tree(folder) == before
    real = offsetlog(*words)
    assert (planned.returncode, real.returncode) == (0, 0), planned.stderr + real.stderr

    def lines(text: str) -> dict[tuple[str, int], Any]:
        rows = [json.loads(line) for line in text.splitlines()]
        return {(row["topic"], row["partition"]): row["removed"] for row in rows if "topic" in row}

    assert lines(planned.stdout) == lines(real.stdout)
    assert ("g-plain", 0) in lines(real.stdout)
    # The cluster keeps them: by `retention.ms=-1`, by `compact`, or because they are brokers' own.
    kept = {"g-retained", "g-compact", "g-compact-txn", "__consumer_offsets", "__transaction_state", "__cluster_metadata"}
    assert not {topic for topic, _ in lines(real.stdout)} & kept
