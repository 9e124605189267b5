"""A dry run changes no byte, name or time, makes no file, and says what the real run then does."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from golden import CLEAN, DATA

from offsetlog import CorruptionError, Log, LogDir, LogDirMaintainReport, TopicPartition, recover

ROOT = DATA.parents[1]
MEMORY = Path("/dev/shm")  # noqa: S108  # the tests alone use the folder made in it
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


def partition(copy: Path) -> Path:
    return min(copy.glob("log-dir-*/g-*-0"))


def topics(copy: Path) -> list[str]:
    with LogDir.open(log_dirs(copy)) as log_dir:
        return [topic for topic in log_dir.topics() if topic.startswith("g-")]


def offsetlog(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)


def given(config: dict[str, Any]) -> list[str]:
    return [f"--config={name}={str(value).lower()}" for name, value in (config | ALWAYS).items()]


def done(report: LogDirMaintainReport) -> LogDirMaintainReport:
    """What a plan and what was done have in common: all but the word that tells them apart."""
    partitions = {key: kept._replace(dry_run=False) for key, kept in report.partitions.items()}
    return report._replace(partitions=partitions, dry_run=False)


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
    "salvage": lambda copy: ["salvage", "--dry-run", partition(copy), "--into", copy / "new"],
    "restore": lambda copy: ["restore", "--dry-run", *log_dirs(copy), "--into", copy / "new"],
    "restore, refused": lambda copy: ["restore", "--dry-run", *log_dirs(copy), "--into", *log_dirs(copy)],
    "adopt": lambda copy: ["adopt", "--dry-run", partition(copy), "--topic-id", "AAAAAAAAQACAAAAAAAAAAA"],
    "end-transaction, refused": lambda copy: ["end-transaction", "g-txn-0", "1", *log_dirs(copy), "--abort", "--dry-run"],
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
    # One time for both: the delete horizon that compaction writes is a time, and a batch packs it with its records.
    now = int(time.time() * 1000)
    with LogDir.open(log_dirs(copy), "a", clock=lambda: now) as log_dir:
        planned = log_dir.maintain(dry_run=True, topics=some, config=config)
        real = log_dir.maintain(topics=some, config=config)
    assert planned.partitions
    assert planned.dry_run
    assert all(kept.dry_run for kept in planned.partitions.values())
    assert done(planned) == done(real)


def drawn(random: Random, policy: str) -> Settings:
    """Settings under which the next round may remove, merge, delete at once, or do nothing."""
    return {
        "cleanup.policy": policy,
        "retention.ms": random.choice((-1, 300, 2000)),
        "retention.bytes": random.choice((-1, -1, 400, 2000)),
        "min.cleanable.dirty.ratio": random.choice((0, 0.3)),
        "min.compaction.lag.ms": random.choice((0, 0, 400)),
        "delete.retention.ms": random.choice((0, 500)),
        "internal.segment.bytes": random.choice((200, 600)),
    }


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_a_plan_is_what_is_done_whatever_the_history(tmp_path: Path, policy: str, seed: int) -> None:
    """Compaction merges segments that retention would remove, or keeps what made them young; of a log dir what is old goes first."""
    random = Random(f"{policy} {seed}")
    now = [1_700_000_000_000]
    seen = [0, 0, 0]
    for place in (tmp_path / "alone", tmp_path / "log-dir"):
        config = drawn(random, policy) | {"file.delete.delay.ms": 0 if place.name == "alone" else 700}
        with LogDir.open(place, "a", defaults=config, clock=lambda: now[0]) as log_dir:
            log_dir.create_topic("t")
        for _ in range(6):
            with LogDir.open(place, "a", defaults=config, clock=lambda: now[0]) as log_dir:
                log = log_dir.log("t", 0)
                for _ in range(random.randint(0, 25)):
                    value = random.choice((None, b"", b"x" * random.randint(1, 60)))
                    key = b"key-%d" % random.randint(0, 7)
                    log.append(value, key=key, timestamp=now[0] - random.choice((0, 100, 1000)))
                    now[0] += random.randint(0, 60)
                if random.random() < 0.5:
                    log.roll()
                if random.random() < 0.3:
                    log.delete_records_before(random.randint(log.log_start_offset, log.log_end_offset))
                if place.name == "log-dir" and random.random() < 0.5:
                    # What is not open is planned from its files.
                    log.close()
                now[0] += random.choice((0, 200, 1500))
                before = tree(place)
                if place.name == "alone":
                    planned = log.maintain(dry_run=True)
                    assert tree(place) == before
                    real = log.maintain()
                    assert planned == real._replace(dry_run=True)
                    reports = [real]
                else:
                    plan = log_dir.maintain(dry_run=True)
                    assert tree(place) == before
                    did = log_dir.maintain()
                    assert done(plan) == done(did)
                    reports = list(did.partitions.values())
                for report in reports:
                    seen = [a + len(b) for a, b in zip(seen, (report.removed, report.compactions, report.deleted), strict=True)]
    expected = {"delete": (True, False, True), "compact": (False, True, True), "compact,delete": (True, True, True)}[policy]
    assert all(count > 0 for count, wanted in zip(seen, expected, strict=True) if wanted), seen


def test_a_plan_of_a_log_that_is_too_dirty_for_one_pass(tmp_path: Path) -> None:
    """Every pass is there, and what later ones begin with."""
    config: Settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "internal.segment.bytes": 300}
    with Log.open(tmp_path / "t-0", "a", config=config) as log:
        for number in range(60):
            log.append(b"%d" % number, key=b"key-%d" % (number % 20))
        log.roll()
        log.compact(map_bytes=24 * 5)
        for number in range(60):
            log.append(b"%d" % number, key=b"key-%d" % (number % 20))
        log.roll()
        planned = log.maintain(dry_run=True)
        assert planned == log.maintain()._replace(dry_run=True)
        assert planned.compactions[0].first_dirty_offset > 0
        assert planned.compactions[0].records_after == 20


def test_a_plan_fails_where_the_run_does(tmp_path: Path) -> None:
    config: Settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
    with Log.open(tmp_path / "t-0", "a", config=config) as log:
        for number in range(8):
            log.append(b"%d" % number, key=b"key-%d" % (number % 2))
        log.roll()
        path = tmp_path / "t-0" / f"{0:020}.log"
        whole = bytearray(path.read_bytes())
        whole[-1] ^= 1
        path.write_bytes(whole)
        told = []
        for dry_run in (True, False):
            with pytest.raises(CorruptionError) as caught:
                log.maintain(dry_run=dry_run)
            told.append(str(caught.value))
        assert told[0] == told[1]


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


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """A partition whose compaction writes 289 MiB."""
    mib = 1 << 20
    config: Settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0,
        "max.message.bytes": 2 * mib,
        "segment.bytes": 64 * mib,
        "segment.index.bytes": 4096,
    }
    parent = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 512 * mib else tmp_path
    with tempfile.TemporaryDirectory(prefix="offsetlog-dry-run-", dir=parent) as folder:
        with Log.open(Path(folder, "c-0"), "a", config) as log:
            for number in range(290):
                # Two records of one key: there is something to remove.
                log.append(bytes(mib), key=b"%d" % max(number, 1))
            log.roll()
        yield Path(folder)


@pytest.mark.slow
def test_what_a_dry_run_writes_beyond_its_memory_has_no_name_and_leaves_nothing(large: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "offsetlog", "maintain", "--dry-run", "--json", str(large)]
    before = tree(large)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    seen: set[str] = set()
    memory = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(temporary)}) as process:
        while process.poll() is None:
            with suppress(OSError):
                place = Path("/proc", str(process.pid))
                seen |= {os.readlink(each) for each in (place / "fd").iterdir() if str(each.readlink()).startswith(str(temporary))}
                memory = max(memory, int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
            time.sleep(0.002)
        assert process.stdout is not None
        (line,) = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    (cleaning,) = line["compactions"]
    assert (cleaning["records_before"], cleaning["records_after"]) == (290, 289)
    # It had a name for a moment, in which nothing was in it.
    assert len({path.removesuffix(" (deleted)") for path in seen}) == 1, seen
    assert any(path.endswith(" (deleted)") for path in seen)
    assert list(temporary.iterdir()) == []
    assert tree(large) == before
    assert 0 < memory < 400 << 20
    # A file is wanted, so without a folder for it the partition fails and says so; nothing is left either.
    environment = os.environ | {"TMPDIR": str(tmp_path / "not there")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 1)
    assert "No such file" in done.stderr
    assert tree(large) == before
