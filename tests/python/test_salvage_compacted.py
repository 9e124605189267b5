"""``salvage``, ``convert`` and ``restore`` of a replica that was copied from a leader which had compacted it: offsets are left out, and nothing is lost.

A broker notes a partition in its ``cleaner-offset-checkpoint`` when its own cleaner has compacted it, and takes the line away with the
partition (Kafka's ``LogCleanerManager``). A follower that fetched a compacted log has gaps, and no line until then.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from golden import CLEAN
from test_convert_missing import offsetlog

from offsetlog import Log, convert, restore, salvage

KEPT = (0, 1, 10, 11, 36, 37, 38, 39)
NOTED = "cleaner-offset-checkpoint"


def batches(log: bytes) -> dict[int, bytes]:
    """Each batch of a segment by its first offset."""
    found, position = {}, 0
    while position < len(log):
        offset, length = struct.unpack_from(">qi", log, position)
        found[offset] = log[position : position + 12 + length]
        position += 12 + length
    return found


def followed(log_dir: Path, topic: str, *, borders: tuple[int, ...] = ()) -> Path:
    """A replica of batches of one record, of which the leader's cleaner has left some; new segments begin at these offsets."""
    with Log.open(log_dir.with_name("leader") / "t-0", "a") as leader:
        for number in range(40):
            leader.append(b"value", key=b"%d" % number)
        of_leader = batches(Path(leader.segments[0].path).read_bytes())
    shutil.rmtree(log_dir.with_name("leader"))
    replica = log_dir / f"{topic}-0"
    replica.mkdir(parents=True)
    base = 0
    for offset in KEPT:
        base = offset if offset in borders else base
        with (replica / f"{base:020}.log").open("ab") as segment:
            segment.write(of_leader[offset])
    (log_dir / NOTED).write_text("0\n1\nother 0 5\n")
    return replica


def test_gaps_inside_of_a_segment_lose_nothing(tmp_path: Path) -> None:
    """No segment can be missing there."""
    replica = followed(tmp_path / "dead", "prices")
    report = salvage(replica, tmp_path / "salvaged" / replica.name)
    assert (report.records, report.losses) == (len(KEPT), ())
    assert offsetlog("salvage", tmp_path / "dead", "-t", "prices", "--into", tmp_path / "again").returncode == 0
    assert convert(replica, tmp_path / "new" / "prices-0").missing_offsets == ()


def test_a_gap_between_segments_may_be_a_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log was compacted somewhere; a segment may be missing all the same."""
    replica = followed(tmp_path / "dead", "prices", borders=(36,))
    (loss,) = salvage(replica, tmp_path / "salvaged" / replica.name).losses
    assert (loss.start, loss.stop, "unless the topic is compacted" in loss.reason) == (12, 36, True)
    assert convert(replica, tmp_path / "new" / "prices-0").missing_offsets == ()
    assert "unless the topic is compacted" in caplog.text


def of_a_broker(tmp_path: Path) -> Path:
    """A log dir with such a replica of a topic that the cluster's metadata knows as compacted."""
    log_dir = tmp_path / "dead"
    shutil.copytree(CLEAN / "log-dir-1", log_dir, ignore=shutil.ignore_patterns("*-[0-9]"))
    shutil.copytree(CLEAN / "metadata-dir", tmp_path / "metadata")
    replica = followed(log_dir, "g-compact", borders=(36,))
    shutil.copy(CLEAN / "log-dir-1" / "g-compact-0" / "partition.metadata", replica)
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\ng-compact 0 40\n")
    return log_dir


def test_the_metadata_among_the_paths_says_that_it_is_compacted(tmp_path: Path) -> None:
    log_dir = of_a_broker(tmp_path)
    for metadata, code in (((), 3), ((tmp_path / "metadata",), 0)):
        done = offsetlog("salvage", log_dir, *metadata, "-t", "g-compact", "--into", tmp_path / f"salvaged-{code}")
        assert (done.returncode, "lost:" in done.stdout) == (code, code == 3), done.stdout + done.stderr


def test_a_cut_of_it_may_lose_keys(tmp_path: Path) -> None:
    """Compaction, wherever it was, has removed older values of keys whose newest one lies behind the cut."""
    sources = [of_a_broker(tmp_path), tmp_path / "metadata"]
    report = restore(sources, tmp_path / "new", topics="g-compact", ends={("g-compact", 0): 12}, dry_run=True)
    assert any("keys whose newest value lies behind the cut are lost" in warning for warning in report.warnings), report.warnings
