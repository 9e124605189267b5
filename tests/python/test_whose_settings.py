"""Settings that are stored with partitions: they make no broker's topic ours, each partition keeps its own, and half a change is finished."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from golden import CLEAN

from offsetlog import ClusterError, Log, LogDir, OffsetLogError

DAY_MS = 86_400_000
STORED = ".offsetlog.config"


def cli(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, input=text, timeout=60, check=False)


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    """A copy of a broker's folders, whose metadata is apart from the log dirs."""
    return Path(shutil.copytree(CLEAN, tmp_path / "broker"))


def ends(log_dir: Path) -> tuple[int, int]:
    with Log.open(log_dir / "g-plain-0") as log:
        return log.log_start_offset, log.log_end_offset


@pytest.mark.parametrize("with_metadata", [True, False])
def test_a_setting_takes_no_brokers_topic_over(brokers: Path, with_metadata: bool) -> None:
    """`maintain` refuses a topic of unknown settings, and does so however many settings somebody tried to store."""
    log_dir = brokers / "log-dir-1"
    before = ends(log_dir)
    assert before[0] < before[1]
    metadata = ["--metadata", brokers / "metadata-dir"] if with_metadata else []
    ran = cli("settings", log_dir, "-t", "g-plain", "--config", "min.insync.replicas=2", *metadata)
    assert ran.returncode == 2
    assert "the partition is a broker's (meta.properties of node 1): it has the cluster's settings" in ran.stderr
    # These hold while the log is open.
    assert cli("append", log_dir / "g-plain-0", "--config", "flush.ms=5", "--single-replica", text="").returncode == 0
    with Log.open(log_dir / "g-plain-0", "a", config={"segment.ms": 5000}, single_replica=True) as log:
        assert log.config.to_dict() == {"segment.ms": 5000}
        log.config = {"segment.ms": 6000}
        assert log.config.to_dict() == {"segment.ms": 6000}
    with LogDir.open(log_dir, "a") as logs, pytest.raises(ClusterError, match="it has the cluster's settings"):
        logs.set_topic_config("g-plain", {"retention.ms": 1})
    assert not list(log_dir.glob(f"*/{STORED}"))
    ran = cli("maintain", log_dir, "-t", "g-plain")
    assert ran.returncode == 2
    assert "not known in this broker's log dir" in ran.stdout + ran.stderr
    assert ends(log_dir) == before


def test_a_topic_made_in_a_brokers_log_dir_is_ours(brokers: Path) -> None:
    """Its settings are stored before it has segments; they can be changed, and are what `maintain` goes by."""
    log_dir = brokers / "log-dir-1"
    old = int(time.time() * 1000) - 30 * DAY_MS
    with LogDir.open(log_dir, "a") as logs:
        logs.create_topic("mine", config={"retention.ms": -1})
        logs.append("mine", b"x", timestamp=old)
    with LogDir.open(log_dir, "a") as logs:
        logs.set_topic_config("mine", {"retention.ms": DAY_MS})
        report = logs.maintain(topics="mine")
    assert not report.failed
    with Log.open(log_dir / "mine-0") as log:
        assert log.log_start_offset == log.log_end_offset == 1


def test_a_copy_that_stands_alone_is_taken_over_by_settings(brokers: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(brokers / "log-dir-1" / "g-plain-0", tmp_path / "alone" / "g-plain-0")
    with Log.open(copy, "a", config={"retention.ms": -1}):
        pass
    assert (copy / STORED).read_text().splitlines()[-1] == "retention.ms=-1"


def test_half_a_change_is_finished_by_the_second_call(tmp_path: Path) -> None:
    """The first call changed partition 0 and met a writer of partition 1. The same command again changes partition 1."""
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic("orders", 3)
    command = ["settings", tmp_path, "-t", "orders", "--config", "cleanup.policy=compact"]
    with Log.open(tmp_path / "orders-1", "a"):
        assert cli(*command).returncode == 2
    assert cli(*command).returncode == 0
    for number in range(3):
        assert "cleanup.policy=compact" in (tmp_path / f"orders-{number}" / STORED).read_text().splitlines(), number


def test_partitions_keep_what_they_have_of_their_own(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic("orders", 2)
    assert cli("append", tmp_path / "orders-1", "--config", "retention.ms=-1", text="x\n").returncode == 0
    ran = cli("settings", tmp_path, "-t", "orders", "--config", "segment.ms=5000")
    assert ran.returncode == 0
    assert "orders-1 has other settings than what is shown of its topic: retention.ms=-1 segment.ms=5000" in ran.stderr
    kept = (tmp_path / "orders-1" / STORED).read_text().splitlines()
    assert {"retention.ms=-1", "segment.ms=5000"} <= set(kept)
    # What only partition 1 has can be removed too.
    ran = cli("settings", tmp_path, "-t", "orders", "--unset", "retention.ms")
    assert (ran.returncode, "has other settings" in ran.stderr) == (0, False)
    assert "retention.ms" not in (tmp_path / "orders-1" / STORED).read_text()


def test_one_cannot_set_and_remove_a_setting(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic("orders")
    ran = cli("settings", tmp_path, "-t", "orders", "--config", "segment.ms=5", "--unset", "segment.ms")
    assert ran.returncode == 2
    assert "segment.ms is to be set (--config) and removed (--unset)" in ran.stderr


ANEW = """
import sys
from offsetlog import LogDir
with LogDir.open(sys.argv[1], "a") as logs:
    logs.delete_topic("o")
    logs.create_topic("o", 4, config={"retention.ms": 1})
    for number in range(4):
        logs.append("o", b"x", partition=number, timestamp=1)
        logs.log("o", number).roll()
"""


@pytest.mark.parametrize("verb", ["delete", "settings", "maintain"])
def test_a_topic_that_another_process_made_anew_is_changed_as_a_whole(tmp_path: Path, verb: str) -> None:
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic("o", 2)
        subprocess.run([sys.executable, "-c", ANEW, tmp_path], check=True, timeout=60)
        assert logs.topics() == {"o": [0, 1]}, "known from before"
        if verb == "delete":
            logs.delete_topic("o")
            assert not [path.name for path in tmp_path.glob("o-?")]
        elif verb == "settings":
            logs.set_topic_config("o", {"cleanup.policy": "compact"})
            stored = [(tmp_path / f"o-{number}" / STORED).read_text() for number in range(4)]
            assert all("cleanup.policy=compact" in text for text in stored)
        else:
            assert len(logs.maintain(topics="o").partitions) == 4
        assert logs.topics().get("o", []) == ([] if verb == "delete" else [0, 1, 2, 3])


def test_to_remove_what_is_not_there_takes_nothing_over(brokers: Path, tmp_path: Path) -> None:
    """A copy that stands alone: its settings are not known before, nor after."""
    copy = shutil.copytree(brokers / "log-dir-1" / "g-plain-0", tmp_path / "alone" / "g-plain-0")
    assert cli("settings", tmp_path / "alone", "-t", "g-plain", "--unset", "cleanup.policy").returncode == 0
    assert not (copy / STORED).exists()
    assert cli("maintain", tmp_path / "alone", "--dry-run").returncode == 2
    with LogDir.open(tmp_path / "alone", "a") as logs:
        logs.set_topic_config("g-plain", {})
    assert (copy / STORED).exists()


def test_a_log_dir_that_is_gone_keeps_no_other_from_upkeep(tmp_path: Path) -> None:
    """Its disk failed: its partition is named, and the others are maintained."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    for path in dirs:
        path.mkdir()
    logs = LogDir.open(dirs, "a")
    logs.create_topic("t", 2, config={"retention.ms": 1, "file.delete.delay.ms": 0})
    for number in range(2):
        logs.append("t", b"x", partition=number, timestamp=1)
        logs.log("t", number).roll()
    dirs[1].rename(tmp_path / "gone")
    kept = next(path for path in dirs[0].glob("t-*"))
    report = logs.maintain()
    assert [f"t-{each.partition}" for each in report.partitions] == [kept.name]
    assert len(report.failed) == 1
    with pytest.raises(OffsetLogError):
        logs.close()
