"""What another program, a broker or another name of a directory did meanwhile: nothing is lost by it, and nothing made up."""

from __future__ import annotations

from pathlib import Path

import pytest
from writing import filled, running, tree, values

from offsetlog import ConfigError, Log, LogDir, LogDirError, LogLockedError, convert, recover

MARKER = ".kafka_cleanshutdown"
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.readline()
"""


def brokers(folder: Path, *names: str) -> Path:
    """A log dir that a broker has left cleanly."""
    for name in names:
        with Log.open(folder / name, "a") as log:
            log.append_records([b"0", b"1", b"2", b"3"])
    (folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    (folder / MARKER).write_text('{"version":0,"brokerEpoch":17}')
    return folder


def test_a_topic_that_is_refused_keeps_where_it_begins(tmp_path: Path) -> None:
    """Its lines in the checkpoints are those of the one that another program made."""
    with LogDir.open(tmp_path, "a") as first:
        with LogDir.open(tmp_path, "a") as second:
            second.create_topic("orders")
            second.log("orders", 0).append_records([b"0", b"1", b"2", b"3"])
            second.log("orders", 0).delete_records_before(2)
        with pytest.raises(LogDirError, match="made by another program"):
            first.create_topic("orders")
    with Log.open(tmp_path / "orders-0") as log:
        assert (log.log_start_offset, values(log)) == (2, [b"2", b"3"])


def test_a_topic_that_another_program_deleted_is_not_made_again_by_an_append(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as first:
        first.create_topic("other")
        with LogDir.open(tmp_path, "a") as second:
            second.create_topic("orders", config={"retention.ms": -1})
        with LogDir.open(tmp_path, "a") as third, LogDir.open(tmp_path, "a") as second:
            second.delete_topic("orders")
            with pytest.raises(LogDirError, match="deleted the topic, or moved the directory, since"):
                third.append("orders", b"new")
            # From then on that is known.
            for change in (
                lambda: third.append("orders", b"new"),
                lambda: third.log("orders", 0),
                lambda: third.set_topic_config("orders", {"retention.ms": 1}),
            ):
                with pytest.raises(LogDirError, match='there is no topic "orders"'):
                    change()
            assert third.append("other", b"goes on").offset == 0
        assert not (tmp_path / "orders-0").exists()


def test_nothing_is_made_beside_a_running_broker(tmp_path: Path) -> None:
    """A folder that it was not told of would be set aside when it starts again."""
    log_dir = brokers(tmp_path / "logs", "orders-0")
    with running(BROKER, log_dir / ".lock"):
        before = tree(log_dir)
        with pytest.raises(LogLockedError):
            Log.open(log_dir / "new-0", "a")
        assert tree(log_dir) == before


def test_settings_are_judged_before_a_directory_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms"):
        Log.open(tmp_path / "orders-0", "a", {"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 1})
    assert not list(tmp_path.iterdir())


def test_a_link_from_elsewhere_does_not_lead_past_a_running_broker(tmp_path: Path) -> None:
    log_dir = brokers(tmp_path / "logs", "orders-0")
    links = tmp_path / "links"
    links.mkdir()
    (links / "orders-0").symlink_to(log_dir / "orders-0")
    (tmp_path / "same").symlink_to(log_dir)
    before = tree(log_dir)
    for change in (
        lambda: Log.open(links / "orders-0", "a"),
        lambda: recover(links / "orders-0"),
    ):
        with pytest.raises(LogDirError, match="a symbolic link found, into the log dir"):
            change()
    assert tree(log_dir) == before
    with running(BROKER, log_dir / ".lock"), pytest.raises(LogLockedError):
        Log.open(tmp_path / "same/orders-0", "a")
    # Reading does not care; a folder that is linked as a whole has its lock beside it.
    with Log.open(links / "orders-0") as log:
        assert values(log) == [b"0", b"1", b"2", b"3"]
    with Log.open(tmp_path / "same/orders-0", "a") as log:
        log.append(b"4")
        assert not (log_dir / MARKER).exists()
    assert (log_dir / MARKER).exists()


def test_a_partition_that_lies_elsewhere_is_written_through_its_log_dir(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As some put a large one on a disk of its own: a broker goes by the log dir too."""
    log_dir = brokers(tmp_path / "logs", "orders-0", "other-0")
    (tmp_path / "large").mkdir()
    (log_dir / "orders-0").rename(tmp_path / "large/orders-0")
    (log_dir / "orders-0").symlink_to(tmp_path / "large/orders-0")
    with running(BROKER, log_dir / ".lock"), pytest.raises(LogLockedError):
        Log.open(log_dir / "orders-0", "a")
    with Log.open(log_dir / "orders-0", "a") as log:
        assert log.append(b"4") == 4
    with LogDir.open(log_dir) as together:
        assert together.topics() == {"other": [0]}
    assert 'left out: "orders-0"' in caplog.text


def test_convert_does_not_take_the_place_of_what_was_made_meanwhile(tmp_path: Path) -> None:
    log_dir = brokers(tmp_path / "logs", "orders-0")
    old = filled(tmp_path / "old/copy-0", 3000)
    made: list[int] = []

    def meanwhile(done: int, _: int) -> None:
        if not made:
            made.append(done)
            with Log.open(log_dir / "copy-0", "a") as log:
                log.append_records([b"a", b"b", b"c"])
                log.delete_records_before(2)

    with pytest.raises(LogDirError, match="not empty"):
        convert(old, log_dir / "copy-0", progress=meanwhile)
    assert made
    with Log.open(log_dir / "copy-0") as log:
        assert (log.log_start_offset, values(log)) == (2, [b"c"])


@pytest.mark.parametrize("state", ["stray", "delete"])
def test_what_was_set_aside_does_not_write_the_lines_of_the_partition(tmp_path: Path, state: str) -> None:
    """Its name begins as that of the live one; a log start offset above that one's end would have a broker delete it."""
    log_dir = brokers(tmp_path / "logs", "orders-0")
    (tmp_path / "other").mkdir()
    with Log.open(tmp_path / "other/orders-0", "a") as log:
        log.append_records([b"%d" % number for number in range(9)])
    aside = log_dir / f"orders-0.{'ab' * 16}-{state}"
    (tmp_path / "other/orders-0").rename(aside)
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    before = tree(log_dir)
    for change in (lambda: Log.open(aside, "a"), lambda: recover(aside)):
        with pytest.raises(LogDirError, match=r"set aside or waits for its deletion.*move it out of the log dir"):
            change()
    assert tree(log_dir) == before
    with Log.open(aside) as log:
        # What the log dir says of the live one is not about it.
        assert (log.log_start_offset, log.log_end_offset, len(values(log))) == (0, 9, 9)
    with Log.open(log_dir / "orders-0") as log:
        assert (log.log_start_offset, values(log)) == (3, [b"3"])
