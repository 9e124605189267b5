"""A plain folder with partitions that are written one by one becomes a log dir: what was deleted of them stays deleted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import offsetlog
from offsetlog import Log, LogDir


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of `t-0` half is deleted, inside of a segment; of `t-1` nothing; of `t-2` whole segments that retention has removed."""
    place = tmp_path / "plain"
    for number in range(3):
        with Log.open(place / f"t-{number}", "a", {"file.delete.delay.ms": 0, "retention.ms": -1}) as log:
            for at in range(20):
                if number == 2 and at == 10:
                    log.roll()
                log.append(b"x")
            if number != 1:
                log.delete_records_before(10)
            log.maintain()
            assert log.segments[0].base_offset == (10 if number == 2 else 0)
    return place


def starts(place: Path) -> list[int]:
    """Where the logs begin, by every way to ask."""
    alone = []
    for number in range(3):
        with Log.open(place / f"t-{number}") as log:
            alone.append(log.log_start_offset)
            assert next(iter(log.scan())).offset == alone[-1]
    with LogDir.open(place) as log_dir:
        assert [log_dir.log("t", number).log_start_offset for number in range(3)] == alone
    return alone


def create(place: Path) -> object:
    done = subprocess.run(
        [sys.executable, "-m", "offsetlog", "create", "more", str(place)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


def restored(place: Path) -> object:
    source = place.with_name("source")
    with Log.open(source / "more-0", "a") as log:
        log.append(b"x")
    return offsetlog.restore(source, place)


def opened(place: Path) -> None:
    LogDir.open(place, "a").close()


def appended(place: Path) -> object:
    with LogDir.open(place, "a") as log_dir:
        return [log_dir.log("t", number).append(b"x") for number in range(3)]


def maintained(place: Path) -> object:
    with LogDir.open(place, "a") as log_dir:
        return log_dir.maintain()


MAKERS: list[Callable[[Path], object]] = [opened, appended, maintained, create, restored]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_what_was_deleted_stays_deleted(folder: Path, make: Callable[[Path], object]) -> None:
    before = starts(folder)
    assert before == [10, 0, 10]
    make(folder)
    assert starts(folder) == before
    # As a broker reads it; it takes the first segment where there is no line.
    lines = (folder / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    assert "t 0 10" in lines
    assert not [line for line in lines if line.startswith(("t 1", "t 2"))]
    with LogDir.open(folder, "a") as log_dir:
        log_dir.log("t", 0).delete_records_before(12)
    opened(folder)
    assert starts(folder) == [12, 0, 10]


def test_a_folder_without_deleted_records_gets_no_checkpoint(folder: Path) -> None:
    for number in (0, 2):
        shutil.rmtree(folder / f"t-{number}")
    opened(folder)
    assert not (folder / "log-start-offset-checkpoint").exists()


def test_a_log_dir_is_believed_as_a_broker_believes_it(folder: Path) -> None:
    """Its checkpoint counts, and what partitions say of themselves does not."""
    (folder / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    opened(folder)
    assert starts(folder)[0] == 0


def test_a_state_that_cannot_be_read_hides_no_other(folder: Path) -> None:
    (folder / "t-1/.offsetlog.state").write_bytes(b"\xff\x00")
    opened(folder)
    assert starts(folder)[0] == 10


@pytest.mark.parametrize("make", [make for make in MAKERS if make is not appended], ids=lambda make: make.__name__)
def test_what_was_compacted_is_not_compacted_again(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """As a broker reads it, too: up to there nothing is dirty."""
    folder = tmp_path / "plain"
    config: dict[str, str | int] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "file.delete.delay.ms": 0}
    for number in range(3):
        with Log.open(folder / f"t-{number}", "a", config) as log:
            for _ in range(10 + number):
                log.append(b"x", key=b"key")
            log.roll()
            if number:
                assert log.maintain().compactions
    make(folder)
    lines = (folder / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    assert [line for line in lines if not line.startswith("t 0")] == ["t 1 11", "t 2 12"]
    # The upkeep of the folder compacts what never was.
    assert ("t 0 10" in lines) == (make is maintained)
    for number in (1, 2):
        with Log.open(folder / f"t-{number}") as log:
            assert next(iter(log.scan())).offset == 9 + number
    with LogDir.open(folder) as log_dir:
        answers = {each.partition: each.reason for each in log_dir.why(topics="t") if each.question == "compaction"}
    assert answers == {0: "clean" if make is maintained else "due", 1: "clean", 2: "clean"}


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_nobody_may_write_a_partition_meanwhile(folder: Path, make: Callable[[Path], object]) -> None:
    """Its writer would go on noting what it deletes where nobody looks."""
    with Log.open(folder / "t-0", "a") as log:
        with pytest.raises((offsetlog.LogLockedError, AssertionError), match=r"process \d+ writes this log; t-0"):
            make(folder)
        log.delete_records_before(15)
    assert starts(folder) == [15, 0, 10]
    make(folder)
    assert starts(folder) == [15, 0, 10]


def test_a_partition_that_is_built_meanwhile_keeps_what_was_deleted(tmp_path: Path) -> None:
    """The folder becomes a log dir in the midst of the work."""
    source = tmp_path / "old" / "t-0"
    with Log.open(source, "a") as log:
        with log.writer(batch_bytes=16_000) as writer:
            for _ in range(3000):
                writer.append(b"x" * 1000)
        # Inside of the first batch.
        log.delete_records_before(5)
    place = tmp_path / "plain"
    place.mkdir()
    made: list[bool] = []

    def progress(_done: int, _total: int) -> None:
        if not made:
            made.append(True)
            opened(place)

    report = offsetlog.salvage(source, place / "t-0", progress=progress)
    assert made == [True]
    with Log.open(report.path) as salvaged:
        assert salvaged.log_start_offset == 5
        assert next(iter(salvaged.scan())).offset == 5
    assert "t 0 5" in (place / "log-start-offset-checkpoint").read_text().splitlines()
