"""``verify``: no false alarm on what compaction leaves, and a word of closed indexes that say nothing false and too little."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS

from offsetlog import Log, recover, verify

START = 1_700_000_000_000


def told(path: Path) -> list[tuple[str, str]]:
    return [(finding.severity, Path(finding.path).suffix) for finding in verify(path).findings if finding.severity != "note"]


def test_an_emptied_batch_that_keeps_its_timestamp_is_sound(tmp_path: Path) -> None:
    path, now = tmp_path / "orders-0", [START]
    with Log.open(path, "a", {"cleanup.policy": "compact", "delete.retention.ms": 1000}, clock=lambda: now[0]) as log:
        log.append(b"1", key=b"a", timestamp=START)
        log.append(b"2", key=b"b", timestamp=START + 1)
        log.append(None, key=b"b", timestamp=START + 2)
        log.roll()
        log.append(b"3", key=b"c", timestamp=START + 3)
        log.compact()
        now[0] += 10_000_000
        log.compact(first_dirty=0)
        assert [batch.record_count for batch in log.batches()] == [1, 0, 1]
        assert told(path) == []
    assert told(path) == []
    recover(path)
    assert told(path) == []


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A partition with a closed segment of many index intervals."""
    path = tmp_path / "orders-0"
    with Log.open(path, "a") as log:
        for number in range(600):
            log.append(bytes(1000), timestamp=START + number)
        log.roll()
        log.append(b"end", timestamp=START + 1000)
    assert told(path) == []
    return path


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def first_entry(size: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("suffix", "change", "is_rebuilt"),
    [
        (".index", zeroed, True),
        (".timeindex", zeroed, True),
        (".index", first_entry(8), False),
        (".timeindex", first_entry(12), True),
    ],
    ids=["zeros", "zero times", "first entry", "first time"],
)
def test_a_closed_index_that_says_too_little_is_warned_of(
    closed: Path, suffix: str, change: Callable[[Path], object], is_rebuilt: bool
) -> None:
    change(closed / f"{0:020}{suffix}")
    findings = [finding for finding in verify(closed).findings if finding.severity != "note"]
    assert [(finding.severity, Path(finding.path).suffix) for finding in findings] == [("warning", suffix)]
    assert "believed" in findings[0].clean
    recover(closed)
    # As the finding says of recovery.
    assert told(closed) == ([] if is_rebuilt else [("warning", suffix)])
    assert findings[0].recover.startswith("made again" if is_rebuilt else "left as it is")


def test_equal_findings_are_told_once_with_their_paths(tmp_path: Path) -> None:
    path = tmp_path / "disk" / "g-epochs-0"
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-plain-0", path)
    (path / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    printed = subprocess.run([sys.executable, "-m", "offsetlog", "verify", str(path)], capture_output=True, text=True, check=False)
    assert printed.returncode == 3
    lines = [line for line in printed.stdout.splitlines() if line.startswith("warning")]
    assert len(verify(path).findings) > 20
    # One for each run of equal ones in a segment, and in front each time the whole path.
    assert len(list(path.glob("*.log"))) <= len(lines) < 10
    assert all(str(path) in line for line in lines)
    assert "times more, the last one at position" in printed.stdout
