"""The local part of topics with tiered storage: where such a log begins, which epochs it has, and what is said of offsets that are not here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import DATA
from metadata_records import partition, topic, write as metadata_log
from writing import NOW, STATE, abandon, filled, offsets

from offsetlog import Log, LogDir, LogDirError, adopt, recover, salvage, verify

GOLDEN = DATA / "kafka-4.3.0-tiered" / "log-dir"
MARKER = ".kafka_cleanshutdown"
STARTS = "log-start-offset-checkpoint"
OTHER = "AAECAwQFBgcICQoLDA0ODw"


def lines(log_dir: Path) -> list[str]:
    """The entries of the checkpoint of the log start offsets."""
    version, count, *entries = (log_dir / STARTS).read_text().splitlines()
    assert (version, int(count)) == ("0", len(entries))
    return entries


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A copy of a stopped broker's log dir: of two partitions all records are in the remote store, and one empty segment is here."""
    log_dir = tmp_path / "broker"
    shutil.copytree(GOLDEN, log_dir)
    return log_dir


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir with records 6 to 11 of a partition, whose first segment is in the remote store, and with a line of another one."""
    log_dir = tmp_path / "logs"
    path = filled(log_dir / "orders-0", 6, segments=2)
    for file in path.glob(f"{0:020}.*"):
        file.unlink()
    (path / STATE).unlink()
    (log_dir / "meta.properties").write_text("node.id=1\nversion=1\ncluster.id=abc\n")
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 12\n")
    (log_dir / STARTS).write_text("0\n2\nother 3 5\norders 0 0\n")
    (log_dir / MARKER).write_bytes(b'{"version":0,"brokerEpoch":17}')
    return log_dir


def offsetlog(*words: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", *map(str, words)]
    return subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8", check=False)


def appended(log_dir: Path) -> None:
    with Log.open(log_dir / "orders-0", "a") as log:
        log.append(b"new")


def by_the_command(log_dir: Path) -> None:
    assert offsetlog("append", log_dir / "orders-0", text="new\n").returncode == 0


def recovered(log_dir: Path) -> None:
    assert offsetlog("recover", log_dir).returncode == 0


def of_the_log_dir(log_dir: Path) -> None:
    with LogDir.open(log_dir, "a") as logs:
        logs.append("orders", b"new", partition=0)
        logs.log("orders", 0).roll()


def killed(log_dir: Path) -> None:
    log = Log.open(log_dir / "orders-0", "a")
    log.append(b"new")
    abandon(log)
    appended(log_dir)


def taken_over(log_dir: Path) -> None:
    directory = log_dir / "orders-0"
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER}\n")
    raw = bytes(range(1, 17))
    metadata = metadata_log(log_dir.parent / "metadata", [topic("orders", raw), partition(raw, 0, (1,))])
    for dry_run in (True, False):
        (done,) = adopt(directory, metadata=metadata, dry_run=dry_run)
        assert done.changed
        assert not any("stay deleted" in note for note in done.notes)


@pytest.mark.parametrize("verb", [appended, by_the_command, recovered, of_the_log_dir, killed, taken_over])
def test_a_start_in_the_remote_store_stays(log_dir: Path, verb: Callable[[Path], None]) -> None:
    """Without its line a broker lets the log begin at 0: deleted records are there again, or consumers begin where nothing is."""
    (log_dir / STARTS).write_text("0\n2\nother 3 5\norders 0 3\n")
    for _ in range(2):
        verb(log_dir)
        assert sorted(lines(log_dir)) == ["orders 0 3", "other 3 5"]
        if verb is taken_over:
            break
    with Log.open(log_dir / "orders-0") as log:
        assert (log.log_start_offset, offsets(log)[:6]) == (6, [6, 7, 8, 9, 10, 11])


def test_a_brokers_directory_stays_what_it_is(broker: Path) -> None:
    before = {path.name: path.read_bytes() for path in broker.iterdir() if path.is_file()}
    epochs = (broker / "orders-0" / "leader-epoch-checkpoint").read_text()
    assert recover(broker / "orders-0").log_start_offset == 29927
    with Log.open(broker / "orders-1", "a") as log:
        assert log.append(b"new", leader_epoch=2) == 30073
    assert {name: (broker / name).read_bytes() for name in (STARTS, MARKER)} == {name: before[name] for name in (STARTS, MARKER)}
    assert (broker / "orders-0" / "leader-epoch-checkpoint").read_text() == epochs == "0\n1\n0 0\n"
    assert (broker / "orders-1" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n2 30073\n"


def test_the_line_follows_the_start_and_goes_with_the_topic(log_dir: Path) -> None:
    with LogDir.open(log_dir, "a") as logs:
        log = logs.log("orders", 0)
        # Records that only the remote store has: the broker deletes them when it starts.
        assert log.delete_records_before(4)
        assert lines(log_dir) == ["other 3 5", "orders 0 4"]
        assert (log.log_start_offset, log.delete_records_before(4)) == (6, False)
        assert log.delete_records_before(7)
        assert lines(log_dir) == ["other 3 5", "orders 0 7"]
        log.truncate_to(2)
        assert lines(log_dir) == ["other 3 5", "orders 0 2"]
        logs.delete_topic("orders")
        assert lines(log_dir) == ["other 3 5"]


def test_lost_epochs_of_the_remote_store_are_told(log_dir: Path) -> None:
    """A broker deletes remote segments whose epochs it does not know."""
    directory = log_dir / "orders-0"
    epochs = directory / "leader-epoch-checkpoint"
    epochs.unlink()
    lost = "the leader epochs of offsets 0 to 5 are lost"
    with pytest.raises(LogDirError, match=f"{lost}.*recover"):
        Log.open(directory, "a")
    assert not epochs.exists()
    dry = offsetlog("recover", "--dry-run", log_dir)
    assert (dry.returncode, lost in dry.stdout, epochs.exists()) == (3, True, False)
    done = offsetlog("recover", log_dir)
    assert (done.returncode, "warning: no readable leader-epoch-checkpoint" in done.stdout, lost in done.stdout) == (0, True, True)
    assert epochs.read_text() == "0\n1\n0 6\n"
    appended(log_dir)


NOT_HERE = (
    "offsets 0 to 5 are not in this directory: its log start offset is 0, and its first segment begins at 6; with tiered storage they are in the "
    "remote store, else a broker deleted them and had not yet noted it, or a segment is missing"
)


def test_what_is_not_here_is_told(log_dir: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    directory = log_dir / "orders-0"
    with Log.open(directory) as log:
        assert (log.log_start_offset, log.offset_for_timestamp(0)) == (6, log.offset_for_timestamp(NOW))
    assert [record.getMessage() for record in caplog.records] == [NOT_HERE]
    caplog.clear()
    with LogDir.open(log_dir) as logs:
        assert logs.log("orders", 0).log_start_offset == 6
    assert [record.getMessage() for record in caplog.records] == [NOT_HERE]
    caplog.clear()
    with Log.open(directory, "a") as log:
        assert log.recovery_report.warnings == (NOT_HERE,)
    assert [record.getMessage() for record in caplog.records] == [NOT_HERE]
    (finding,) = verify(log_dir).findings
    assert (finding.severity, finding.kind, finding.offset, finding.reason) == ("note", "Gap", 0, NOT_HERE)
    assert finding.path == str(directory)
    assert offsetlog("verify", log_dir).returncode == 0
    report = salvage(directory, tmp_path / "new" / "orders-0")
    (loss,) = report.losses
    assert (report.loss_count, loss.start, loss.stop, loss.bytes) == (1, 0, 6, 0)
    assert (report.log_start_offset, report.records) == (6, 6)
    done = offsetlog("salvage", log_dir, "--into", tmp_path / "again")
    assert (done.returncode, "\n  lost: offsets 0 to 5; 0 bytes of " in done.stdout) == (3, True)
    assert "in all: at most 6 records lost, in 1 place\n" in done.stdout
    # Beside the new log nothing says so any more.
    assert not verify(tmp_path / "new" / "orders-0").findings
    assert offsetlog("salvage", tmp_path / "new" / "orders-0", "--into", tmp_path / "third").returncode == 0


def test_nothing_is_missing_of_other_logs(log_dir: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """The start is that of the first segment, or in it, or the line is of another directory."""
    for number, text in enumerate(("0\n0\n", "0\n1\norders 0 6\n", "0\n1\norders 0 8\n", "nonsense")):
        (log_dir / STARTS).write_text(text)
        Log.open(log_dir / "orders-0").close()
        assert not any("not in this directory" in record.getMessage() for record in caplog.records), text
        assert not any(finding.kind == "Gap" for finding in verify(log_dir).findings), text
        assert not salvage(log_dir / "orders-0", tmp_path / f"new-{number}" / "orders-0").losses, text
    (log_dir / STARTS).write_text("0\n1\norders 0 0\n")
    stray = (log_dir / "orders-0").rename(log_dir / f"orders-0.{'0' * 32}-stray")
    Log.open(stray).close()
    assert not any("not in this directory" in record.getMessage() for record in caplog.records)
    assert not verify(stray).findings
    assert not salvage(stray, tmp_path / "stray" / "orders-0").losses


@pytest.mark.parametrize("number", [0, 1])
def test_a_brokers_directory_is_sound(broker: Path, number: int, tmp_path: Path) -> None:
    """A broker that has tiered storage left it so: nothing is wrong, and nothing is here."""
    report = verify(broker)
    assert (report.damaged, [finding.severity for finding in report.findings]) == (False, ["note", "note"])
    end = (29927, 30073)[number]
    (loss,) = salvage(broker / f"orders-{number}", tmp_path / "new" / f"orders-{number}").losses
    assert (loss.start, loss.stop) == (0, end)
