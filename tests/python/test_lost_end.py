"""Log dirs whose checkpoints are beyond a log's end. Below the high watermark acknowledged records are lost; below the log start offset
nothing is shown of what is there. Who reads, serves, checks or recovers it is told.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS, named
from pages import MODULE, ROOT
from serve_process import ServeProcess

from offsetlog import Log, recover, verify

NAME = "g-plain-0"
GOLDEN = named(NAME)[0]
LAST = max(int(file.stem) for file in GOLDEN.directory.glob("*.log"))
KEPT = [row.offset for row in GOLDEN.rows if row.offset < LAST]
END = KEPT[-1] + 1
WORDS = f"it ends at offset {END}, and the high watermark of its log dir is {GOLDEN.end}"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """That of a broker that was stopped, whose partition lost its last segment; the checkpoints are as the broker wrote them."""
    copied = Path(shutil.copytree(CLEAN_LOG_DIRS[0], tmp_path / "logs"))
    for file in (copied / NAME).glob(f"{LAST:020}.*"):
        file.unlink()
    return copied


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MODULE, *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


def test_recover_says_so_before_it_lowers_the_line(log_dir: Path) -> None:
    """A broker lowers it too: then nobody can tell any more."""
    line = f"g-plain 0 {GOLDEN.end}"
    checkpoint = log_dir / "replication-offset-checkpoint"
    assert line in checkpoint.read_text(encoding="utf-8").splitlines()
    dry = recover(log_dir / NAME, dry_run=True)
    report = recover(log_dir / NAME)
    for each in (dry, report):
        assert sum(WORDS in warning for warning in each.warnings) == 1, each.warnings
    assert f"g-plain 0 {END}" in checkpoint.read_text(encoding="utf-8").splitlines()
    assert not any(WORDS in warning for warning in recover(log_dir / NAME).warnings)


def test_opening_to_write_says_so(log_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Log.open(log_dir / NAME, "a") as log:
        assert log.log_end_offset == END
    assert sum(WORDS in record.message for record in caplog.records) == 1


def test_readers_of_the_command_line_say_so(log_dir: Path) -> None:
    done = run("cat", log_dir / NAME, "--json")
    assert [json.loads(each)["offset"] for each in done.stdout.splitlines()] == KEPT
    assert done.returncode == 0
    assert f"{NAME}: {WORDS}" in done.stderr
    whole = run("cat", CLEAN_LOG_DIRS[0] / NAME, "--json")
    assert (whole.returncode, whole.stderr) == (0, "")


def test_verify_reports_it(log_dir: Path) -> None:
    found = [each for each in verify(log_dir / NAME).findings if WORDS in each.reason]
    assert [(each.severity, each.kind, each.offset) for each in found] == [("warning", "Gap", END)]
    assert not [each for each in verify(CLEAN_LOG_DIRS[0] / NAME).findings if "high watermark" in each.reason]


def test_serve_says_so_when_it_starts(log_dir: Path, tmp_path: Path) -> None:
    with ServeProcess(tmp_path, log_dir, "-t", "g-plain", json=False) as server:
        told = server.said() + server.logged()
    assert f"{NAME}: {WORDS}" in told


def test_serve_says_that_a_start_above_the_end_hides_all(log_dir: Path, tmp_path: Path) -> None:
    checkpoint = log_dir / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\ng-plain 0 1000000\n", encoding="utf-8")
    with ServeProcess(tmp_path, log_dir, "-t", "g-plain", json=False) as server:
        told = server.said() + server.logged()
    assert f"{NAME} is served without records" in told
    assert "1000000" in told
