"""``verify``: what is wrong is named, at its place, and nothing else is; and nothing is touched."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_inputs import GOOD, ROWS, active, closed
from bad_payloads import INNER, wrapper
from frames import frames
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA, OLD_LOG_DIRS, named, partitions_of
from make_log import GZIP, batch, move, segment

from offsetlog import DamageReport, Finding, Log, LogDirError, LogLockedError, MetadataFileError, OffsetLogError, recover, verify

TORN = DATA / "kafka-4.3.0" / "torn"
LIVE = DATA / "kafka-4.3.0" / "live"
UNCLEAN = DATA / "kafka-4.3.0" / "unclean"
PARTITIONS = {golden.name: golden for golden in partitions_of((TORN / "log-dir-1", TORN / "log-dir-2"), "kafka-4.3.0-torn")}
NAME = f"{0:020}"
SECOND, ACTIVE = f"{32:020}", f"{64:020}"


@pytest.mark.parametrize(
    "log_dir", [*CLEAN_LOG_DIRS, CLEAN_LOG_DIRS[0].parent / "metadata-dir", *OLD_LOG_DIRS], ids=lambda path: path.name
)
def test_what_brokers_wrote_and_closed_is_sound(log_dir: Path) -> None:
    report = verify(log_dir)
    assert (report.errors, report.warnings, report.damaged) == (0, 0, False)
    # Compaction and retention leave offsets out; nothing else is there to note.
    assert {finding.kind for finding in report.findings} <= {"Gap"}
    partitions = [path for path in log_dir.iterdir() if path.is_dir()]
    logs = [path for partition in partitions for path in partition.glob("*.log")]
    assert (report.partitions, report.segments) == (len(partitions), len(logs))
    assert report.bytes_read == sum(path.stat().st_size for path in logs)


def test_all_records_of_the_golden_logs_are_decoded() -> None:
    report = verify(*(golden.directory for golden in CLEAN_PARTITIONS))
    # Those below a log start offset, and markers, are there too, though no consumer sees them.
    assert report.records >= sum(golden.counts[0] for golden in CLEAN_PARTITIONS)
    assert report.partitions == len(CLEAN_PARTITIONS)


@pytest.mark.parametrize("state", [LIVE, UNCLEAN], ids=lambda path: path.name)
def test_what_a_broker_leaves_while_it_runs_or_is_killed_is_noted_only(state: Path) -> None:
    for log_dir in sorted(state.iterdir()):
        report = verify(log_dir)
        assert (report.errors, report.warnings) == (0, 0)
        assert {finding.kind for finding in report.findings} <= {"Gap", "Leftover", "ZeroTail"}
        waiting = {
            path for path in log_dir.rglob("*") if path.suffix in {".deleted", ".cleaned", ".swap"} or path.name.endswith("-delete")
        }
        told = {Path(finding.path) for finding in report.findings if finding.kind == "Leftover"}
        assert told == {path for path in waiting if not path.parent.name.endswith("-delete")}


def place_of(name: str, file: str, index: int) -> tuple[int, int | None]:
    """Position and first offset of a frame of a torn log, from the bytes."""
    found = list(frames(PARTITIONS[name].directory / file))[index]
    return found.position, found.base_offset


def end_of(name: str) -> tuple[int, int]:
    """Where the whole batches of the active segment end, and the offset behind them."""
    last = list(frames(PARTITIONS[name].directory / f"{ACTIVE}.log"))[-1]
    return last.position + last.size_bytes, last.last_offset + 1


# What ``damage.json`` says was done, as severity, kind and file, and where in it.
Named = tuple[str, str, str, int | None, int | None]
EXPECTED: dict[str, Callable[[str], list[Named]]] = {
    "none": lambda _: [],
    # They lost records below the high watermark of their log dir.
    "cut-batch": lambda name: [
        ("warning", "TornTail", f"{ACTIVE}.log", *end_of(name)),
        ("warning", "Gap", name, None, end_of(name)[1]),
    ],
    "cut-header": lambda name: [
        ("warning", "TornTail", f"{ACTIVE}.log", *end_of(name)),
        ("warning", "Gap", name, None, end_of(name)[1]),
    ],
    "flip-active": lambda name: [("error", "CorruptBatchError", f"{ACTIVE}.log", *place_of(name, f"{ACTIVE}.log", -3))],
    "flip-old": lambda name: [("error", "CorruptBatchError", f"{SECOND}.log", *place_of(name, f"{SECOND}.log", 1))],
    "flip-length": lambda name: [("warning", "TornTail", f"{ACTIVE}.log", *end_of(name))],
    "flip-magic": lambda name: [("error", "UnsupportedMagicError", f"{ACTIVE}.log", end_of_known(name), 92)],
    "garbage": lambda name: [("warning", "TornTail", f"{ACTIVE}.log", *end_of(name))],
    "zeros": lambda name: [("note", "ZeroTail", f"{ACTIVE}.log", *end_of(name))],
    "no-index": lambda _: [
        ("warning", "MissingFile", f"{base:020}{end}", None, None) for base in (0, 32, 64) for end in (".index", ".timeindex")
    ],
    "bad-index": lambda _: [
        ("error", "CorruptIndexError", f"{NAME}.index", 0, None),
        ("error", "CorruptIndexError", f"{NAME}.timeindex", 8, None),
    ],
    "odd-index": lambda name: [
        ("error", "CorruptIndexError", f"{NAME}{end}", whole_of(name, end), None) for end in (".index", ".timeindex")
    ],
    "bad-snapshot": lambda _: [("error", "CorruptSnapshotError", f"{base:020}.snapshot", 2, base) for base in (32, 64)],
    "no-snapshot": lambda _: [("warning", "MissingFile", f"{ACTIVE}.snapshot", None, None)],
    "no-epoch": lambda _: [("warning", "MissingFile", "leader-epoch-checkpoint", None, None)],
    "empty-active": lambda _: [("warning", "CorruptIndexError", f"{ACTIVE}.index", 0, 71)],
    "gap": lambda _: [("note", "Gap", f"{ACTIVE}.log", None, 32)],
    "leftover-cleaned": lambda _: [
        ("note", "Leftover", f"{NAME}{end}.cleaned", None, None) for end in (".index", ".log", ".timeindex")
    ],
    "leftover-deleted": lambda _: [
        ("note", "Leftover", f"{99999:020}{end}.deleted", None, None) for end in (".index", ".log", ".timeindex")
    ],
    "leftover-swap": lambda _: [("note", "Leftover", f"{NAME}{end}.swap", None, None) for end in (".index", ".log", ".timeindex")],
}
# An index that was written before its log lost its end says more than the log: that is told too.
FOLLOWS = {"cut-batch", "cut-header", "flip-length"}


def end_of_known(name: str) -> int:
    """Where the batch with the wrong magic byte begins: the batches of these logs are one record wide or four."""
    data = (PARTITIONS[name].directory / f"{ACTIVE}.log").read_bytes()
    position = 0
    while data[position + 16] != 9:
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    return position


def whole_of(name: str, end: str) -> int:
    """Bytes of the whole entries."""
    return (PARTITIONS[name].directory / f"{NAME}{end}").stat().st_size - 3


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_each_kind_of_damage_is_named_at_its_place(name: str) -> None:
    kind = name.removeprefix("g-torn-").removesuffix("-0")
    report = verify(PARTITIONS[name].directory)
    found = [
        (finding.severity, finding.kind, Path(finding.path).name, finding.position, finding.offset) for finding in report.findings
    ]
    if kind in FOLLOWS:
        followers = [entry for entry in found if entry[:2] == ("warning", "CorruptIndexError")]
        assert {entry[2] for entry in followers} <= {f"{ACTIVE}.index", f"{ACTIVE}.timeindex"}
        found = [entry for entry in found if entry not in followers]
    assert sorted(found, key=str) == sorted(EXPECTED[kind](name), key=str)
    assert report.damaged == any(severity != "note" for severity, *_ in found)
    for finding in report.findings:
        assert finding.reason
        assert finding.clean
        assert finding.unclean
        assert finding.recover


def test_the_table_of_damage_is_whole() -> None:
    damage = json.loads((TORN / "damage.json").read_text())
    assert {f"g-torn-{kind}-0" for kind in EXPECTED} == set(damage)


def found_in(path: Path) -> set[tuple[str, str]]:
    return {(finding.severity, finding.kind) for finding in verify(path).findings}


def test_batches_and_records(tmp_path: Path) -> None:
    flip = bytearray(batch(3, ROWS))
    flip[-1] ^= 1
    wrong: dict[str, tuple[bytes, str]] = {
        "checksum": (bytes(flip), "CorruptBatchError"),
        "order": (move(batch(3, ROWS), 1), "OffsetOrderError"),
        "count": (batch(3, ROWS, record_count=7), "InvalidRecordError"),
        "codec": (batch(3, ROWS, attributes=6), "UnsupportedCodecError"),
        "gzip": (batch(3, ROWS, attributes=GZIP), "DecompressionError"),
        "marker": (batch(3, [(b"\0\0\0\1", b"\0\0\0")], attributes=0x30, producer_id=4, last_offset_delta=2), "InvalidRecordError"),
        "set": (wrapper(INNER[:20]), "InvalidRecordError"),
    }
    for name, (middle, kind) in wrong.items():
        path = closed(tmp_path, GOOD, middle, batch(6, ROWS))
        errors = [finding for finding in verify(path).findings if finding.severity == "error"]
        assert [(finding.kind, finding.position) for finding in errors] == [(kind, len(GOOD))], name


def test_messages_within_a_set(tmp_path: Path) -> None:
    """Readers do not compare the checksums of messages within a compressed set, nor miss the last one when it is cut."""
    wrong = bytearray(INNER)
    wrong[12] ^= 1
    (finding,) = (finding for finding in verify(closed(tmp_path, GOOD, wrapper(bytes(wrong)))).findings if finding.severity == "error")
    assert (finding.kind, finding.position) == ("CorruptBatchError", len(GOOD))
    assert "checksum" in finding.reason
    assert ("note", "CutMessage") in found_in(closed(tmp_path, GOOD, wrapper(INNER[:-3])))


def test_what_kafka_accepts_is_told_as_such(tmp_path: Path) -> None:
    path = closed(tmp_path, batch(0, ROWS, leader_epoch=9), batch(3, ROWS, leader_epoch=2))
    assert ("warning", "LeaderEpoch") in found_in(path)
    wide = active(tmp_path, GOOD, batch(1 << 31, ROWS))
    (finding,) = [finding for finding in verify(wide).findings if finding.kind == "OffsetOverflowError"]
    assert "split" in finding.unclean


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_files_beside_the_log(tmp_path: Path, suffix: str) -> None:
    (golden,) = named("g-txn-0")
    path = golden.copy(tmp_path)
    kinds = {
        ".index": "CorruptIndexError",
        ".timeindex": "CorruptIndexError",
        ".txnindex": "CorruptTxnIndexError",
        ".snapshot": "CorruptSnapshotError",
    }
    file = max((file for file in path.glob(f"*{suffix}") if file.stat().st_size), key=lambda file: file.stat().st_size)
    data = file.read_bytes()
    lies = {
        ".index": [
            struct.pack(">ii", 1, 33),
            struct.pack(">ii", 1, 1 << 30),
            struct.pack(">iiii", 9, 0, 3, 0),
            struct.pack(">ii", 5, -8),
        ],
        ".timeindex": [struct.pack(">qi", 1 << 60, 1), struct.pack(">qi", 5, -5), struct.pack(">qiqi", 9, 1, 5, 2)],
        ".txnindex": [b"\1\0" + data[2:], b"\0\1" + data[2:], data[:18] + struct.pack(">q", -7) + data[26:]],
        ".snapshot": [data[:-1] + bytes([data[-1] ^ 1]), data[:-5], b"\0\0" + data[2:]],
    }
    for lie in lies[suffix]:
        file.write_bytes(lie)
        told = [finding for finding in verify(path).findings if finding.severity != "note"]
        assert {(finding.kind, finding.path) for finding in told} == {(kinds[suffix], str(file))}, lie
    file.write_bytes(data)
    assert not verify(path).damaged


def test_checkpoints_and_names(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    path = folder / "t-0"
    shutil.copytree(named("g-plain-0")[0].directory, path)
    (folder / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    assert not verify(folder).damaged
    changes: list[tuple[Path, str, str]] = [
        (folder / "meta.properties", "version=2\nnode.id=1\n", "MetadataFileError"),
        (folder / "recovery-point-offset-checkpoint", "0\n1\nt 0\n", "CheckpointError"),
        (folder / "log-start-offset-checkpoint", "0\n1\nt 0 9999\n", "LogDirError"),
        (folder / "replication-offset-checkpoint", "0\nx\n", "CheckpointError"),
        (path / "leader-epoch-checkpoint", "0\n2\n5 0\n2 10\n", "CheckpointError"),
        (path / "partition.metadata", "version: 0\n", "MetadataFileError"),
        (path / ".offsetlog.config", "", "MetadataFileError"),
        (path / ".offsetlog.config", "retention.ms=soon\n", "MetadataFileError"),
        (path / "5.log", "", "LogDirError"),
    ]
    for file, text, kind in changes:
        before = file.read_bytes() if file.exists() else None
        file.write_text(text)
        told = [finding for finding in verify(folder).findings if finding.severity == "error"]
        assert [finding.kind for finding in told] == [kind], file
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)
    for name in ("nothing", "t-x"):
        (folder / name).mkdir()
        assert ("error", "LogDirError") in found_in(folder)
        (folder / name).rmdir()
    with pytest.raises(LogDirError):
        verify(tmp_path / "logs" / "t-0" / "..", tmp_path)
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "absent-0")


def test_a_settings_file_that_verify_refuses_refuses_a_writer(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a", config={"retention.ms": 5}) as log:
        log.append(b"x")
    assert not verify(tmp_path / "t-0").findings
    kept = tmp_path / "t-0" / ".offsetlog.config"
    whole = kept.read_bytes()
    for damaged in (whole[:-3], whole.replace(b"retention", b"detention"), whole + b"\xff\n"):
        kept.write_bytes(damaged)
        (finding,) = verify(tmp_path / "t-0").findings
        assert (finding.severity, finding.path) == ("error", str(kept))
        with pytest.raises(MetadataFileError):
            Log.open(tmp_path / "t-0", "a")


def test_identity_files_of_the_table(tmp_path: Path) -> None:
    for text in ("version=2\ncluster.id=c\nnode.id=1\n", "version=1\nnode.id=1\n", "version=1\ncluster.id=c\nnode.id=x\n"):
        (tmp_path / "meta.properties").write_text(text)
        assert ("error", "MetadataFileError") in found_in(tmp_path)


def test_nothing_is_written_and_no_lock_taken(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    with Log.open(folder / "t-0", "a") as log:
        log.append(b"one")
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        # A writer holds it, and verifying goes on beside.
        with pytest.raises(LogLockedError):
            recover(folder / "t-0")
        report = verify(folder)
        assert (report.errors, report.records) == (0, 1)
        assert log.verify() == report
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.slow
def test_progress_and_its_failures(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    segment(path, 0, *(batch(number, [(None, bytes(1 << 20))]) for number in range(9)))
    told: list[int] = []
    report = verify(path, progress=told.append)
    assert sum(told) == report.bytes_read == (path / f"{NAME}.log").stat().st_size
    assert len(told) >= 3

    def failing(_: int) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        verify(path, progress=failing)


def test_what_recover_changes_is_what_verify_found(tmp_path: Path) -> None:
    """After a recovery nothing is wrong any more, whatever the damage was; and where nothing is wrong it cuts nothing."""
    for name, golden in PARTITIONS.items():
        path = golden.copy(tmp_path / name, checkpoints=False)
        errors = {finding.kind for finding in verify(path).findings if finding.severity == "error"}
        try:
            report = recover(path)
        except OffsetLogError as error:
            raise AssertionError(name) from error
        if not errors and not verify(golden.directory).damaged:
            assert all(cut.bytes == 500 for cut in report.cut), name
        after = verify(path)
        assert (name, after.errors, after.warnings) == (name, 0, 0)


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offsetlog", "verify", *args], capture_output=True, text=True, check=False, env=os.environ
    )


def test_command(tmp_path: Path) -> None:
    damaged = str(PARTITIONS["g-torn-flip-old-0"].directory)
    sound = str(CLEAN_PARTITIONS[0].directory)
    found = command(damaged)
    assert found.returncode == 3
    assert "g-torn-flip-old-0/00000000000000000032.log position 294, offset 36: record batch checksum mismatch" in found.stdout
    assert "Kafka, after a crash: the log is cut here" in found.stdout
    assert found.stdout.splitlines()[-1].startswith("1 error, 0 warnings, 0 notes; read: 1 partition, 3 segments")
    fine = command(sound)
    assert (fine.returncode, fine.stderr) == (0, "")
    lines = [json.loads(line) for line in command("--json", damaged, sound).stdout.splitlines()]
    assert [line.get("kind") for line in lines] == ["CorruptBatch", None]
    assert lines[-1]["partitions"] == 2
    assert lines[0]["path"] == damaged + "/00000000000000000032.log"
    assert command().returncode == 2
    assert command(str(tmp_path / "absent-0")).returncode == 2


def test_a_limit_of_ours_is_not_told_as_damage_that_a_broker_meets(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append(b"v", leader_epoch=3)
    findings = Log.open(tmp_path / "t-0", max_state_file_bytes=5).verify().findings
    assert "leader-epoch-checkpoint" in {Path(found.path).name for found in findings}
    for found in findings:
        assert found.kind == "LimitExceededError"
        assert "only offsetlog has this limit" in found.clean
        assert "offline" not in found.clean + found.unclean
        assert "until the limit is raised" in found.recover


def test_values_are_frozen_and_named(tmp_path: Path) -> None:
    report = verify(closed(tmp_path, GOOD))
    assert isinstance(report, DamageReport)
    assert all(isinstance(finding, Finding) for finding in report.findings)


def test_a_partition_that_is_a_link_is_named(tmp_path: Path) -> None:
    """A broker follows it; nobody may take it for checked."""
    (golden,) = named("g-plain-0")
    golden.copy(tmp_path)
    (tmp_path / "g-linked-0").symlink_to(golden.directory)
    (tmp_path / "g-gone-0").symlink_to("nowhere")
    report = verify(tmp_path)
    assert [(finding.severity, finding.path) for finding in report.findings] == [
        ("note", str(tmp_path / "g-gone-0")),
        ("warning", str(tmp_path / "g-linked-0")),
    ]
    assert report.damaged
