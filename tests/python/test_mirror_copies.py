"""What others may do with a mirror's copy: read it, and change no record, because the next run goes on where the copy ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import offsetlog
from offsetlog import Log, LogDir, MirrorReport, Server
from offsetlog.errors import ClusterError

VALUES = [b"source %d" % number for number in range(4)]


def make(source: Path) -> None:
    with LogDir.open(source, "a") as log_dir:
        log_dir.create_topic("orders", 1)
    grow(source, VALUES)


def grow(source: Path, values: list[bytes]) -> None:
    with LogDir.open(source, "a") as log_dir:
        for number, value in enumerate(values):
            # Ten days before, and more: Kafka's default would delete them.
            log_dir.append("orders", value, timestamp=1000 + number)


def mirror(source: Path, copy: Path) -> MirrorReport:
    with Server(source) as kafka:
        return offsetlog.mirror(kafka.bootstrap_servers, copy, once=True, give_up_ms=10_000)


def values(log_dir: Path) -> list[bytes | None]:
    with Log.open(log_dir / "orders-0") as log:
        return [record.value for record in log.scan()]


def files(folder: Path) -> dict[str, bytes]:
    """Its files but for locks and states, which opening writes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and (path.suffix == ".log" or path.name == ".offsetlog.mirror")
    }


def in_log(act: Callable[[offsetlog.WritableLog], object]) -> Callable[[Path], None]:
    def run(copy: Path) -> None:
        with Log.open(copy / "orders-0", "a") as log:
            act(log)

    return run


def in_log_dir(act: Callable[[offsetlog.WritableLogDir], object]) -> Callable[[Path], None]:
    def run(copy: Path) -> None:
        with LogDir.open(copy, "a") as log_dir:
            act(log_dir)

    return run


def append_log(copy: Path) -> None:
    with Log.open(copy / "orders-0", "a") as log, Log.open(copy.parent / "source/orders-0") as other:
        log.append_log(other)


def convert(copy: Path) -> None:
    offsetlog.convert(copy.parent / "source/orders-0", copy / "more-0")


def restore(copy: Path) -> None:
    with LogDir.open(copy.parent / "other", "a") as log_dir:
        log_dir.create_topic("more", 1)
        log_dir.append("more", b"v", partition=0)
    offsetlog.restore(copy.parent / "other", copy)


def open_new(copy: Path) -> None:
    with Log.open(copy / "more-0", "a"):
        pass


CHANGES: dict[str, Callable[[Path], None]] = {
    "append": in_log(lambda log: log.append(b"LOCAL")),
    "append to a topic": in_log_dir(lambda log_dir: log_dir.append("orders", b"LOCAL")),
    "append a log": append_log,
    "truncate": in_log(lambda log: log.truncate_to(2)),
    "truncate wholly": in_log(lambda log: log.truncate_fully_and_start_at(9)),
    "delete records": in_log(lambda log: log.delete_records_before(2)),
    "convert": convert,
    "restore": restore,
    "open a new partition": open_new,
    "create a topic": in_log_dir(lambda log_dir: log_dir.create_topic("more", 1)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_nobody_but_the_mirror_changes_records_of_a_copy(what: str, tmp_path: Path) -> None:
    """The mirror took a record of somebody else's for one of the source's, and never fetched that one."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    make(source)
    mirror(source, copy)
    before = files(copy)
    with pytest.raises(ClusterError, match=r"a mirror's copy of another cluster .*remove .*/\.offsetlog\.mirror"):
        CHANGES[what](copy)
    assert files(copy) == before
    assert not list(copy.glob("more*"))
    grow(source, [b"later"])
    report = mirror(source, copy)
    assert (report.is_complete, report.has_losses) == (True, False)
    assert values(copy) == [*VALUES, b"later"] == values(source)


def test_reading_serving_and_recovery_of_a_copy_go_on(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    make(source)
    mirror(source, copy)
    with Server(copy) as kafka:
        assert offsetlog.mirror(kafka.bootstrap_servers, tmp_path / "copy of it", once=True).is_complete
    assert values(copy) == VALUES == values(tmp_path / "copy of it")
    offsetlog.recover(copy / "orders-0")
    assert not offsetlog.verify(copy / "orders-0").findings
    grow(source, [b"later"])
    assert mirror(source, copy).is_complete
    assert values(copy) == [*VALUES, b"later"]


def test_without_the_note_it_is_a_log_dir_as_any_other(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    make(source)
    mirror(source, copy)
    (copy / ".offsetlog.mirror").unlink()
    with LogDir.open(copy, "a") as log_dir:
        assert log_dir.append("orders", b"LOCAL").offset == len(VALUES)
    with Server(source) as kafka, pytest.raises(offsetlog.LogDirError, match="no note of a mirror"):
        offsetlog.mirror(kafka.bootstrap_servers, copy, once=True)


def settings_of(log_dir: Path) -> str:
    return (log_dir / "orders-0/.offsetlog.config").read_text()


def test_upkeep_by_kafkas_defaults_leaves_a_copy_alone(tmp_path: Path) -> None:
    """The source's broker may keep all (`log.retention.ms=-1`); of its defaults a mirror knows nothing."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    make(source)
    mirror(source, copy)
    before = files(copy)
    with LogDir.open(copy, "a") as log_dir:
        for dry_run in (True, False):
            (failure,) = log_dir.maintain(dry_run=dry_run).failed.values()
            assert "a mirror's copy" in str(failure)
            assert "cleanup.policy, retention.bytes, retention.ms are not known" in str(failure)
    with Log.open(copy / "orders-0", "a") as log:
        with pytest.raises(ClusterError, match="not known"):
            log.maintain()
        with pytest.raises(ClusterError, match=r"delete\.retention\.ms is not known"):
            log.compact()
    assert files(copy) == before
    # What decides was given: kept, and removed.
    given: dict[str, str | int] = {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1}
    with LogDir.open(copy, "a") as log_dir:
        assert not log_dir.maintain(topics="orders", config=given).failed
    assert files(copy) == before
    with LogDir.open(copy, "a") as log_dir:
        assert log_dir.maintain(topics="orders", config=given | {"retention.ms": 1000}).partitions
    assert not values(copy)


def test_what_was_removed_from_a_copy_is_a_loss_and_is_told_each_time(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    make(source)
    mirror(source, copy)
    given: dict[str, str | int] = {"cleanup.policy": "delete", "retention.ms": 1000, "retention.bytes": -1}
    with LogDir.open(copy, "a") as log_dir:
        log_dir.maintain(topics="orders", config=given)
    grow(source, [b"later"])
    for _ in range(2):
        report = mirror(source, copy)
        assert report.has_losses
        (lost,) = [event for event in report.events if event.kind == "lost"]
        assert (lost.topic, lost.partition, lost.start, lost.stop) == ("orders", 0, 0, len(VALUES))
        assert "deleted here, not by the mirror" in lost.message
    assert values(copy) == [b"later"]


@pytest.mark.parametrize("follow", [False, True])
def test_where_the_mirror_itself_began_nothing_is_missing(follow: bool, tmp_path: Path) -> None:
    """A leader may have records that the one before it had deleted: of a lower log start offset."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    make(source)
    if follow:
        mirror(source, copy)
    shutil.copytree(source, tmp_path / "before")
    with LogDir.open(source, "a") as log_dir:
        log_dir.log("orders", 0).delete_records_before(2)
    with Server(source) as kafka:
        assert not offsetlog.mirror(kafka.bootstrap_servers, copy, once=True, follow_deletes=follow).has_losses
    assert values(copy) == VALUES[2:]
    # The same cluster: its id goes by the place.
    source.rename(tmp_path / "after")
    (tmp_path / "before").rename(source)
    with Server(source) as kafka:
        report = offsetlog.mirror(kafka.bootstrap_servers, copy, once=True, follow_deletes=follow)
    assert not report.has_losses
    assert report.partitions[0].source_log_start_offset == 0


def test_a_copy_without_a_note_of_its_beginning_is_not_told_as_lost(tmp_path: Path) -> None:
    """An earlier version began it where the source began, and did not note that. What goes from now on is told."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    make(source)
    shutil.copytree(source, tmp_path / "before")
    with LogDir.open(source, "a") as log_dir:
        log_dir.log("orders", 0).delete_records_before(2)
    assert not mirror(source, copy).has_losses
    note = copy / "orders-0" / ".offsetlog.source-start"
    assert note.read_text() == "2\n"
    note.unlink()
    # The same cluster: its id goes by the place.
    source.rename(tmp_path / "after")
    (tmp_path / "before").rename(source)
    report = mirror(source, copy)
    assert not report.has_losses
    assert report.partitions[0].source_log_start_offset == 0
    assert note.read_text() == "2\n"
    given: dict[str, str | int] = {"cleanup.policy": "delete", "retention.ms": 1000, "retention.bytes": -1}
    with LogDir.open(copy, "a") as log_dir:
        log_dir.maintain(topics="orders", config=given)
    grow(source, [b"later"])
    (lost,) = [event for event in mirror(source, copy).events if event.kind == "lost"]
    assert (lost.start, lost.stop) == (2, len(VALUES))


def test_settings_that_were_stored_here_are_not_replaced_in_silence(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    make(source)
    assert not [event for event in mirror(source, copy).events if event.kind == "settings"]
    with LogDir.open(copy, "a") as log_dir:
        log_dir.set_topic_config("orders", {"retention.ms": -1})
    report = mirror(source, copy)
    (told,) = [event for event in report.events if event.kind == "settings"]
    assert "retention.ms: -1 here, not set there" in told.message
    assert not report.has_losses
    assert settings_of(copy) == settings_of(source)
    assert not [event for event in mirror(source, copy).events if event.kind == "settings"]


def test_a_lost_directory_is_told_and_what_the_source_deleted_since_is_a_loss(tmp_path: Path) -> None:
    """It is no partition that the source has anew: those have greater numbers than all that are here."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    with LogDir.open(source, "a") as log_dir:
        log_dir.create_topic("orders", 2)
        for number, value in enumerate(VALUES):
            log_dir.append("orders", value, partition=0, timestamp=1000 + number)
    mirror(source, copy)
    shutil.rmtree(copy / "orders-0")
    with LogDir.open(source, "a") as log_dir:
        log_dir.log("orders", 0).delete_records_before(2)
    report = mirror(source, copy)
    assert report.has_losses
    (lost,) = [event for event in report.events if event.kind == "lost"]
    assert (lost.start, lost.stop) == (0, 2)
    assert [event.message for event in report.events if event.kind == "warning"] == [
        "the directory of orders-0 was not here, though those of later partitions are: it is copied anew"
    ]
    assert values(copy) == VALUES[2:]


def test_a_topic_whose_making_was_killed_is_new_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    """The first partition gets its name last. What the source had deleted by then was never to be copied."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    with LogDir.open(source, "a") as log_dir:
        log_dir.create_topic("orders", 3)
        for number in range(3):
            for value in VALUES:
                log_dir.append("orders", value, partition=number)
            log_dir.log("orders", number).delete_records_before(2)
    assert not mirror(source, copy).has_losses
    # As a kill between the renames leaves it.
    for number in range(2):
        shutil.rmtree(copy / f"orders-{number}")
    for path in [*(copy / "orders-2").iterdir(), *copy.glob("*checkpoint")]:
        if path.is_file() and path.name not in {"partition.metadata", ".offsetlog.config"}:
            path.unlink()
    report = mirror(source, copy)
    assert (report.is_complete, report.has_losses) == (True, False)
    assert {event.kind for event in report.events} <= {"new"}
    assert values(copy) == VALUES[2:]
