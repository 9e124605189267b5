"""Directories of real brokers, copied: opened in mode "a", appended to, closed, recovered, read again."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from frames import all_frames
from golden import CLEAN, CLEAN_PARTITIONS, DATA, LEVELS, OLD, PARTITIONS, Golden, partitions_of, rows
from writing import CONFIG, LOCK, Clock, abandon, times, tree

from offsetlog import Log, recover

# Brokers that were killed, and the same with one damage each.
BROKEN = {name: DATA / "kafka-4.3.0" / name for name in ("unclean", "torn", "live")}
BROKEN_PARTITIONS = [
    golden
    for name, root in BROKEN.items()
    for golden in partitions_of(sorted(path for path in root.iterdir() if path.is_dir()), f"kafka-4.3.0-{name}")
    if (golden.expected / f"{golden.name}.jsonl.gz").exists()
]


def now(golden: Golden) -> Clock:
    """A clock soon after the last record, so that no producer has expired meanwhile."""
    return Clock(max((frame.max_timestamp for frame in all_frames(golden.directory)), default=1_700_000_000_000) + 1000)


def segments(path: Path) -> dict[str, tuple[int, ...]]:
    """What stands of the records and their indexes."""
    return {name: status for name, status in times(path).items() if name.endswith((".log", ".index", ".timeindex", ".txnindex"))}


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
def test_clean_directories_are_taken_over_as_they_are(golden: Golden, tmp_path: Path) -> None:
    """In a log dir that was closed cleanly everything is found as it was; what a broker's own start drops goes, and nothing else."""
    path = golden.copy(tmp_path / "logs")
    (tmp_path / "logs" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    before, records = tree(path), segments(path)
    for turn in range(2):
        if turn:
            again = tree(path, without=(LOCK,)), times(path)
        with Log.open(path, "a", clock=now(golden)) as log:
            assert log.recovery_report.clean
            assert not log.recovery_report.cut
            assert not log.recovery_report.rebuilt
            assert (log.log_start_offset, log.log_end_offset) == (golden.start, golden.end)
            assert log.last_stable_offset == golden.last_stable_offset
            assert rows(log.scan()) == golden.rows
            assert rows(log.scan(isolation_level="read_committed")) == golden.committed
        assert segments(path) == records
        # Where all records are deleted a broker's load removes the snapshots, or makes them, each time.
        if turn and golden.start < golden.end:
            assert (tree(path, without=(LOCK,)), times(path)) == again
    after = tree(path, without=(LOCK,))
    lost = [name for name in before if name not in after]
    assert all(name.endswith(".snapshot") and f"{name[:20]}.log" not in before for name in lost)
    assert all(name.endswith(".snapshot") for name in after if name not in before)
    changed = [name for name in after if name in before and after[name] != before[name]]
    assert changed in ([], ["leader-epoch-checkpoint"])
    if changed:
        kept = [line for line in epochs(before) if int(line.split()[1]) < golden.end]
        assert epochs(after) == kept


def epochs(files: dict[str, bytes | None]) -> list[str]:
    """The lines of the leader epochs' file."""
    return (files["leader-epoch-checkpoint"] or b"").decode().splitlines()[2:]


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
def test_appending_to_a_brokers_log(golden: Golden, tmp_path: Path) -> None:
    path = golden.copy(tmp_path / "logs")
    (tmp_path / "logs" / ".kafka_cleanshutdown").touch()
    before = {file.name: file.read_bytes() for file in path.glob("*.log")}
    with Log.open(path, "a", clock=now(golden)) as log:
        first = log.append(b"ours", key=b"k", headers=[("from", b"us")])
        info = log.append_records([(b"k", b"more")] * 3, compression="gzip")
        assert (first, info.last_offset) == (golden.end, golden.end + 3)
        assert log.roll() == golden.end + 4
        log.append(b"last", key=b"k", leader_epoch=(golden.leader_epoch or 0) + 1)
    # What stood there stands there.
    for name, data in before.items():
        assert (path / name).read_bytes().startswith(data), name
    with Log.open(path) as log:
        found = rows(log.scan())
        assert found[: len(golden.rows)] == golden.rows
        assert [row.value for row in found[len(golden.rows) :]] == [b"ours", b"more", b"more", b"more", b"last"]
        assert log.leader_epoch == (golden.leader_epoch or 0) + 1
        for query in golden.time_queries[:8]:
            if query.answer is not None:
                got = log.offset_for_timestamp(query.when, isolation_level=query.isolation_level)
                assert got is not None
                assert tuple(got) == query.answer
    with Log.open(path, "a", clock=now(golden)) as log:
        assert log.recovery_report.clean


@pytest.mark.parametrize("golden", CLEAN_PARTITIONS[::3], ids=lambda golden: golden.id)
def test_a_full_recovery_finds_the_same_and_leaves_the_bytes(golden: Golden, tmp_path: Path) -> None:
    path = golden.copy(tmp_path / "logs")
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.suffix in {".log", ".txnindex"}}
    log = Log.open(path, "a", clock=now(golden), clean=False, recovery_point=0)
    assert not log.recovery_report.cut
    assert (log.log_start_offset, log.log_end_offset) == (golden.start, golden.end)
    abandon(log)
    for name, data in before.items():
        assert (path / name).read_bytes() == data, name
    with Log.open(path) as reader:
        for level in LEVELS:
            assert rows(reader.scan(isolation_level=level)) == (golden.committed if level == "read_committed" else golden.rows)


@pytest.mark.parametrize("golden", BROKEN_PARTITIONS, ids=lambda golden: f"{golden.directory.parents[1].name}/{golden.name}")
def test_recovery_finds_what_a_broker_found(golden: Golden, tmp_path: Path) -> None:
    """The records that a real broker served after it had recovered a copy of the same directory."""
    path = golden.copy(tmp_path / "logs")
    kept = sum(file.stat().st_size for file in path.glob("*.log"))
    planned = recover(path, dry_run=True)
    report = recover(path)
    assert (planned.cut, planned.log_end_offset) == (report.cut, report.log_end_offset)
    assert sum(file.stat().st_size for file in path.glob("*.log")) + sum(cut.bytes for cut in report.cut) >= kept
    with Log.open(path, "a", clock=now(golden)) as log:
        assert log.recovery_report.clean
        assert rows(log.scan()) == golden.rows
        assert rows(log.scan(isolation_level="read_committed")) == golden.committed
        end = log.log_end_offset
        assert log.append(b"on", key=b"k") == end


COMPARED = (".log", ".index", ".timeindex", ".txnindex")
# The topics' index.interval.bytes, which no file of a broker tells.
INTERVALS = {"__transaction_state": 1000, "g-compact": 500, "g-retained-bytes": 500, "g-torn": 64, "g": 512}
# A broker takes a batch whose magic byte is 9 for one of magic 2; ours cuts it.
STRICTER = {"g-torn-flip-magic-0"}


def recovered_files(golden: Golden) -> dict[str, str]:
    """Checksums of the files that a real broker's recovery of the same directory left."""
    listed = json.loads((golden.expected / "recovered-files.json").read_text())[golden.directory.parent.name]
    prefix = f"{golden.name}/"
    return {name.removeprefix(prefix): entry["sha256"] for name, entry in listed.items() if name.startswith(prefix)}


@pytest.mark.parametrize("golden", BROKEN_PARTITIONS, ids=lambda golden: f"{golden.directory.parents[1].name}/{golden.name}")
def test_recovery_leaves_the_files_that_a_broker_left(golden: Golden, tmp_path: Path) -> None:
    path = golden.copy(tmp_path / "logs")
    interval = next(interval for prefix, interval in INTERVALS.items() if golden.name.startswith(prefix))
    (path / CONFIG).write_text(f"version: 0\nindex.interval.bytes={interval}\n")
    report = recover(path)
    expected = {name: checksum for name, checksum in recovered_files(golden).items() if name.endswith(COMPARED)}
    found = {
        name: hashlib.sha256(data).hexdigest()
        for name, data in tree(path).items()
        if data is not None and "/" not in name and name.endswith(COMPARED)
    }
    if golden.name in STRICTER:
        assert any("magic 9" in cut.reason for cut in report.cut)
        assert [name for name in expected if found[name] != expected[name]] == [
            f"{name[:20]}{kind}" for name in [Path(report.cut[0].path).name] for kind in (".index", ".log", ".timeindex")
        ]
    else:
        assert found == expected


@pytest.mark.slow
def test_log_dirs_of_both_brokers_open_whole(tmp_path: Path) -> None:
    """Every partition at once, each with its lock, in the log dirs as they stand there; closing leaves the marker."""
    for root in (CLEAN, OLD):
        for source in sorted(path for path in root.iterdir() if path.is_dir() and path.name != "metadata-dir"):
            log_dir = tmp_path / root.name / source.name
            shutil.copytree(source, log_dir)
            (log_dir / ".kafka_cleanshutdown").touch()
            logs = [Log.open(path, "a") for path in sorted(log_dir.iterdir()) if path.is_dir()]
            assert logs
            for log in logs:
                log.append(b"everywhere", key=b"k")
            assert not (log_dir / ".kafka_cleanshutdown").exists()
            for log in logs:
                log.close()
            assert (log_dir / ".kafka_cleanshutdown").exists()
            marked = hashlib.sha256((log_dir / "meta.properties").read_bytes()).hexdigest()
            assert marked == hashlib.sha256((source / "meta.properties").read_bytes()).hexdigest()
