"""A partition inside a broker's log dir: the clean marker, the checkpoints and the other partitions' lines around it."""

from __future__ import annotations

from pathlib import Path

import pytest
from writing import SMALL, STATE, Clock, abandon, filled, python, times, tree, values

from offsetlog import Log, LogDir, TopicPartition, recover

MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
MARKER_BYTES = b'{"version":0,"brokerEpoch":17}'
# Names that are ours, in a log dir; a broker skips files there that it does not know.
OURS = {"offsetlog-unclean", "offsetlog-shared.lock", ".lock"}


def lines(path: Path) -> dict[str, int]:
    """The entries of a checkpoint, checked for its frame."""
    version, count, *entries = path.read_text().splitlines()
    assert version == "0"
    assert int(count) == len(entries)
    assert path.read_text().endswith("\n")
    found = {}
    for entry in entries:
        topic, partition, offset = entry.split(" ")
        found[f"{topic}-{partition}"] = int(offset)
    return found


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir that a broker left cleanly, with a log in it and lines for a partition that is not ours."""
    log_dir = tmp_path / "logs"
    path = filled(log_dir / "orders-0")
    for name in (STATE,):
        (path / name).unlink()
    (log_dir / "meta.properties").write_text("#\n#Thu Jan 01 00:00:00 UTC 2026\nnode.id=1\nversion=1\ncluster.id=abc\n")
    (log_dir / RECOVERY_POINTS).write_text("0\n2\nother 3 77\norders 0 6\n")
    (log_dir / STARTS).write_text("0\n1\nother 3 5\n")
    (log_dir / HIGH_WATERMARKS).write_text("0\n2\nother 3 70\norders 0 6\n")
    (log_dir / MARKER).write_bytes(MARKER_BYTES)
    return log_dir


def shared(log_dir: Path) -> dict[str, bytes | None]:
    """The files of the log dir itself, but for our own."""
    return {path.name: path.read_bytes() for path in sorted(log_dir.iterdir()) if path.is_file() and path.name not in OURS}


def test_opening_and_closing_changes_nothing(log_dir: Path) -> None:
    before = shared(log_dir), times(log_dir / "orders-0")
    with Log.open(log_dir / "orders-0", "a") as log:
        assert log.recovery_report.clean
        assert values(log)[-1] == b"w2"
    assert (shared(log_dir), times(log_dir / "orders-0")) == before


def test_the_marker_goes_before_the_first_change_and_comes_back(log_dir: Path) -> None:
    before = shared(log_dir)
    with Log.open(log_dir / "orders-0", "a") as log:
        assert (log_dir / MARKER).exists()
        log.append(b"new")
        assert not (log_dir / MARKER).exists()
    after = shared(log_dir)
    assert after[MARKER] == MARKER_BYTES
    assert lines(log_dir / RECOVERY_POINTS) == {"other-3": 77, "orders-0": 7}
    assert lines(log_dir / HIGH_WATERMARKS) == {"other-3": 70, "orders-0": 7}
    assert after[STARTS] == before[STARTS]
    assert after["meta.properties"] == before["meta.properties"]
    assert not (log_dir / "offsetlog-unclean").exists()
    with Log.open(log_dir / "orders-0", "a") as log:
        assert log.recovery_report.clean


@pytest.mark.parametrize("change", ["roll", "truncate", "delete", "config", "refused", "epoch"])
def test_what_counts_as_a_change(log_dir: Path, change: str) -> None:
    with Log.open(log_dir / "orders-0", "a") as log:
        if change == "roll":
            log.roll()
        elif change == "truncate":
            log.truncate_to(4)
        elif change == "delete":
            log.delete_records_before(2)
        elif change == "config":
            log.config = {"segment.ms": 99}
        elif change == "refused":
            with pytest.raises(ValueError, match="holds no record"):
                log.append_records([])
        elif change == "epoch":
            log.append(b"", leader_epoch=8)
        assert (log_dir / MARKER).exists() == (change in {"config", "refused"})
    assert (log_dir / MARKER).read_bytes() == MARKER_BYTES
    assert lines(log_dir / RECOVERY_POINTS)["other-3"] == 77


def test_a_kill_leaves_no_marker_until_all_are_clean_again(log_dir: Path) -> None:
    """While a writer of ours is there no broker can have been: what dies meanwhile is known to the rest."""
    first, second, third = (Log.open(log_dir / f"orders-{partition}", "a", SMALL) for partition in range(3))
    for log in (first, second, third):
        log.append(b"a")
    abandon(first)
    second.close()
    assert not (log_dir / MARKER).exists()
    with Log.open(log_dir / "orders-0", "a") as log:
        assert not log.recovery_report.clean
        assert values(log)[-1] == b"a"
    assert not (log_dir / MARKER).exists()
    third.close()
    assert (log_dir / MARKER).read_bytes() == MARKER_BYTES


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("then", ["append", "close", "delete", "another", "recover"])
def test_writers_that_died_alone_take_the_marker_with_them(log_dir: Path, then: str, whole: bool) -> None:
    """Our writer dies, a broker comes and is killed: none of ours knows what it left, and the marker is not to come back."""
    opened = "LogDir.open(sys.argv[1], 'a').log('orders', 0)" if whole else "Log.open(sys.argv[1] + '/orders-0', 'a')"
    python(f"import os, sys; from offsetlog import Log, LogDir; log = {opened}; log.append(b'a'); os._exit(0)", log_dir)
    assert (log_dir / "offsetlog-unclean").exists()
    if then == "delete":
        with LogDir.open(log_dir, "a") as logs:
            logs.delete_topic("orders")
    elif then == "recover":
        recover(log_dir / "orders-0")
    else:
        for _ in range(2):
            with Log.open(log_dir / ("orders-1" if then == "another" else "orders-0"), "a") as log:
                if then != "close":
                    log.append(b"b")
    assert not (log_dir / MARKER).exists()
    assert not (log_dir / "offsetlog-unclean").exists()
    # What we closed ourselves is known to be clean to us all the same.
    if then not in {"delete", "another"}:
        with Log.open(log_dir / "orders-0", "a") as log:
            assert log.recovery_report.clean


def test_two_writers_restore_the_marker_with_the_last_one(log_dir: Path) -> None:
    one, two = Log.open(log_dir / "orders-0", "a"), Log.open(log_dir / "orders-1", "a", SMALL)
    one.append(b"a")
    two.append(b"b")
    one.close()
    assert not (log_dir / MARKER).exists()
    two.close()
    assert (log_dir / MARKER).read_bytes() == MARKER_BYTES
    assert lines(log_dir / RECOVERY_POINTS) == {"other-3": 77, "orders-0": 7, "orders-1": 1}


def test_a_marker_that_was_not_there_is_not_made(log_dir: Path) -> None:
    """Nobody said that the log dir was clean: it stays that way, but our own partition is known to be."""
    (log_dir / MARKER).unlink()
    with Log.open(log_dir / "orders-0", "a") as log:
        assert not log.recovery_report.clean
        log.append(b"a")
    assert not (log_dir / MARKER).exists()
    with Log.open(log_dir / "orders-0", "a") as log:
        assert log.recovery_report.clean


def test_what_a_broker_did_meanwhile_is_seen(log_dir: Path) -> None:
    """Our own mark of a clean end is not believed when the segment was changed behind it."""
    with Log.open(log_dir / "orders-0", "a", clock=Clock()) as log:
        log.append(b"a")
    (log_dir / MARKER).unlink()
    active = log_dir / "orders-0" / f"{0:020}.log"
    active.write_bytes(active.read_bytes()[:-3])
    with Log.open(log_dir / "orders-0", "a", clock=Clock()) as log:
        assert not log.recovery_report.clean
        assert log.log_end_offset == 6
        assert len(log.recovery_report.cut) == 1


def test_the_start_is_kept_in_the_log_dirs_checkpoint(log_dir: Path) -> None:
    with Log.open(log_dir / "orders-0", "a") as log:
        assert log.delete_records_before(3)
        assert lines(log_dir / STARTS) == {"other-3": 5, "orders-0": 3}
    with Log.open(log_dir / "orders-0", "a") as log:
        assert log.log_start_offset == 3
    with LogDir.open(log_dir) as whole:
        assert whole.beginning_offsets()[TopicPartition("orders", 0)] == 3
        assert whole.end_offsets()[TopicPartition("orders", 0)] == 6


def test_a_start_from_the_checkpoint(log_dir: Path) -> None:
    (log_dir / STARTS).write_text("0\n2\nother 3 5\norders 0 2\n")
    with Log.open(log_dir / "orders-0", "a") as log:
        assert (log.log_start_offset, log.recovery_report.log_start_offset) == (2, 2)


def test_a_flush_moves_only_what_is_ours(log_dir: Path) -> None:
    with Log.open(log_dir / "orders-0", "a") as log:
        log.append(b"a")
        log.flush()
        assert log.recovery_point == 7
    assert lines(log_dir / RECOVERY_POINTS)["orders-0"] == 7


def test_checkpoints_that_cannot_be_read_count_as_empty(log_dir: Path) -> None:
    (log_dir / RECOVERY_POINTS).write_bytes(b"\xff nonsense")
    (log_dir / STARTS).write_text("0\n9\norders 0 2\n")
    (log_dir / MARKER).unlink()
    with Log.open(log_dir / "orders-0", "a") as log:
        assert log.log_start_offset == 0
        assert log.recovery_report.segments_read == 1
        assert any(RECOVERY_POINTS in warning for warning in log.recovery_report.warnings)
        log.append(b"a")
    assert lines(log_dir / RECOVERY_POINTS) == {"orders-0": 7}


def test_the_recovery_point_says_how_much_is_read(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    path = filled(log_dir / "orders-0", 8, segments=4)
    (path / STATE).unlink()
    for point, segments in ((0, 4), (3, 4), (4, 3), (9, 2), (16, 1)):
        (log_dir / RECOVERY_POINTS).write_text(f"0\n1\norders 0 {point}\n")
        report = Log.open(path, "a", clock=Clock())
        assert report.recovery_report.segments_read == segments, point
        assert not report.recovery_report.clean
        abandon(report)
        (path / STATE).unlink(missing_ok=True)


def test_a_new_partition_in_a_log_dir(log_dir: Path) -> None:
    with Log.open(log_dir / "fresh-2", "a", SMALL) as log:
        log.append(b"a")
    assert lines(log_dir / RECOVERY_POINTS) == {"other-3": 77, "orders-0": 6, "fresh-2": 1}
    assert (log_dir / MARKER).read_bytes() == MARKER_BYTES
    with LogDir.open(log_dir) as whole:
        assert whole.topics() == {"fresh": [2], "orders": [0]}


def test_recover_in_a_log_dir(log_dir: Path) -> None:
    report = recover(log_dir / "orders-0")
    assert (report.log_end_offset, report.cut) == (6, ())
    assert lines(log_dir / RECOVERY_POINTS) == {"other-3": 77, "orders-0": 6}
    assert (log_dir / MARKER).read_bytes() == MARKER_BYTES


def test_outside_of_a_log_dir_nothing_is_written_around(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with Log.open(tmp_path / "orders-0", "a", SMALL) as log:
        log.append(b"a")
        log.delete_records_before(1)
    abandoned = Log.open(tmp_path / "orders-0", "a")
    abandoned.append(b"b")
    abandon(abandoned)
    recover(tmp_path / "orders-0")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["notes.txt", "orders-0"]
    with Log.open(tmp_path / "orders-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (1, 2)


def test_no_file_is_left_over(log_dir: Path) -> None:
    with Log.open(log_dir / "orders-0", "a") as log:
        log.append(b"a", leader_epoch=4)
    assert not [name for name in tree(log_dir) if name.endswith((".tmp", ".deleted", ".cleaned", ".swap"))]
    assert {path.name for path in log_dir.iterdir() if path.is_file()} == {
        *shared(log_dir),
        "offsetlog-shared.lock",
        ".lock",
    }


def test_lines_that_found_no_room_are_not_removed_from_a_later_topic_of_another_process(tmp_path: Path) -> None:
    """A deletion that could not write its checkpoint removes nothing later: the name may be another topic's by then."""
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("orders", 1)
        log_dir.append("orders", b"x")
        log_dir.log("orders", 0).delete_records_before(1)
        in_the_way = tmp_path / "log-start-offset-checkpoint.tmp"
        in_the_way.mkdir()
        with pytest.raises(OSError, match="log-start-offset-checkpoint"):
            log_dir.delete_topic("orders")
        in_the_way.rmdir()
        python(
            """
import sys
from offsetlog import LogDir
with LogDir.open(sys.argv[1], "a") as log_dir:
    log_dir.create_topic("orders", 1)
    for _ in range(10):
        log_dir.append("orders", b"y")
    log_dir.log("orders", 0).delete_records_before(7)
""",
            tmp_path,
        )
        assert Log.open(tmp_path / "orders-0").log_start_offset == 7
    with Log.open(tmp_path / "orders-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (7, 10)
