"""A folder without anything of a log dir among log dirs, as the mount point of a disk that is not mounted: refused, and nothing is made in it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS
from restoring import formatted
from writing import tree

from offsetlog import LogDir, LogDirError, Server, identity, metadata_as_commands, partition_for, restore
from offsetlog._offsetlog import run_cli

UUID = "0123456789abcdef0123456789abcdef"

READING: dict[str, Callable[[list[Path], Path], object]] = {
    "open": lambda paths, _: LogDir.open(paths),
    "groups": lambda paths, _: LogDir.open(paths).groups(),
    "restore": lambda paths, root: restore(paths, root / "into", topics=["g-plain"]),
    "restore plan": lambda paths, root: restore(paths, root / "into", topics=["g-plain"], dry_run=True),
    "identity": lambda paths, _: identity(*paths),
    "commands": lambda paths, _: metadata_as_commands(*paths),
    "serve": lambda paths, _: Server(paths),
}


@pytest.mark.parametrize("verb", READING)
@pytest.mark.parametrize("at", [0, 1, 3])
def test_reading_refuses_it_wherever_it_is_named(verb: str, at: int, tmp_path: Path) -> None:
    """Alone and beside others."""
    empty = tmp_path / "mnt"
    empty.mkdir()
    paths = [*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"]
    paths.insert(at, empty)
    with pytest.raises(LogDirError, match="not a log dir; is its disk mounted") as refused:
        READING[verb](paths, tmp_path)
    assert refused.value.path == str(empty)
    with pytest.raises(LogDirError, match="not a log dir") as refused:
        READING[verb]([empty], tmp_path)
    assert refused.value.path == str(empty)
    assert [path.name for path in tmp_path.rglob("*")] == ["mnt"]


@pytest.mark.parametrize("verb", ["ls", "verify", "groups", "cat"])
def test_the_command_line_says_it_too(verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["offsetlog", verb, str(CLEAN_LOG_DIRS[0]), str(tmp_path)], []) == 2
    assert "not a log dir" in capfd.readouterr().err


def test_a_partition_named_by_itself_is_no_mount_point(tmp_path: Path) -> None:
    """Its directory may be one."""
    (tmp_path / "t-1").mkdir()
    with pytest.raises(LogDirError, match="is its disk mounted"):
        LogDir.open([CLEAN_LOG_DIRS[0] / "g-many-entries-0", tmp_path / "t-1"])


@pytest.mark.parametrize("how", ["missing", "empty", "lost+found"])
@pytest.mark.parametrize("order", [1, -1])
def test_no_record_goes_to_another_partition_while_a_disk_is_away(how: str, order: int, tmp_path: Path) -> None:
    """Its key would be routed among the partitions that are here, and the topic made again where it is not known."""
    folders = [tmp_path / "a", tmp_path / "b"]
    with LogDir.open(folders, "a") as log_dir:
        log_dir.create_topic("t", 2)
    away = next(folder for folder in folders if (folder / "t-1").is_dir())
    away.rename(tmp_path / "aside")
    if how != "missing":
        away.mkdir()
    if how == "lost+found":
        (away / how).mkdir()
    before = tree(tmp_path)
    with pytest.raises(LogDirError, match="is the disk of this one mounted") as refused:
        LogDir.open(folders[::order], "a")
    assert refused.value.path == str(away)
    assert tree(tmp_path) == before
    if how == "lost+found":
        (away / how).rmdir()
    if how != "missing":
        away.rmdir()
    (tmp_path / "aside").rename(away)
    key = next(b"%d" % number for number in range(99) if partition_for(b"%d" % number, 2) == 1)
    with LogDir.open(folders, "a") as log_dir:
        assert log_dir.append("t", b"x", key=key).partition == 1


@pytest.mark.parametrize("way", ["opened alone", "a lock file"])
def test_a_new_disk_is_added_as_the_error_says(way: str, tmp_path: Path) -> None:
    used, new = tmp_path / "used", tmp_path / "new"
    with LogDir.open(used, "a") as log_dir:
        log_dir.create_topic("t", 1)
    with pytest.raises(
        LogDirError,
        match=r"leave the path out if .*open it alone for appending first, or make the folder with an empty file \.lock in it",
    ):
        LogDir.open([used, new], "a")
    if way == "opened alone":
        LogDir.open(new, "a").close()
    else:
        new.mkdir()
        (new / ".lock").touch()
    with LogDir.open([used, new], "a") as log_dir:
        log_dir.create_topic("u", 1)
    assert (new / "u-0").is_dir()
    assert LogDir.open([used, new]).topics() == {"t": [0], "u": [0]}


def test_all_of_them_may_be_new(tmp_path: Path) -> None:
    """And empty, or with what an opening left that ended at the second."""
    folders = [tmp_path / "a", tmp_path / "b"]
    folders[0].mkdir()
    (folders[0] / ".lock").touch()
    with LogDir.open(folders, "a") as log_dir:
        log_dir.create_topic("t", 2)
        log_dir.delete_topic("t")
    with LogDir.open(folders) as log_dir:
        assert log_dir.topics() == {}


def test_restore_does_not_go_on_beside_a_target_that_is_away(tmp_path: Path) -> None:
    into = [tmp_path / "a", tmp_path / "b"]
    report = restore([*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"], into, topics=["g-plain", "g-epochs"])
    assert {Path(each.into[0].path).parent for each in report.partitions} == set(into)
    into[1].rename(tmp_path / "aside")
    for _ in range(2):
        with pytest.raises(LogDirError, match="is the disk of this one mounted"):
            restore([*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"], into, topics=["g-plain", "g-epochs"], dry_run=True)
        into[1].mkdir(exist_ok=True)
    into[1].rmdir()
    (tmp_path / "aside").rename(into[1])
    report = restore([*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"], into, topics=["g-plain", "g-epochs"])
    assert {each.state for each in report.partitions} == {"there"}


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """Of two log dirs, `a` and `b`, the one with the second partition of topic `t`."""
    with LogDir.open([tmp_path / "a", tmp_path / "b"], "a") as log_dir:
        log_dir.create_topic("t", 2)
    return next(path.parent for path in tmp_path.glob("*/t-1"))


def unmount(away: Path) -> None:
    away.rename(away.with_name("aside"))
    away.mkdir()


def mount(away: Path) -> None:
    away.rmdir()
    away.with_name("aside").rename(away)


@pytest.mark.parametrize("every", [None, 0.05])
def test_upkeep_does_not_take_it_for_a_log_dir_without_partitions(every: float | None, away: Path, tmp_path: Path) -> None:
    """A key of its partition would go to another one from then on."""
    key = next(b"%d" % number for number in range(99) if partition_for(b"%d" % number, 2) == 1)
    log_dir = LogDir.open([tmp_path / "a", tmp_path / "b"], "a", maintain_every=every)
    unmount(away)
    if every is None:
        report = log_dir.maintain()
        (partition,) = report.failed
        assert (partition, f"{away.parent.name}/{away.name}" in report.failed[partition]) == (("t", 1), True)
    else:
        time.sleep(10 * every)
    assert log_dir.topics() == {"t": [0, 1]}
    for _ in range(3):
        with pytest.raises((LogDirError, OSError)):
            log_dir.append("t", b"x", key=key)
    with pytest.raises(LogDirError, match="is its disk mounted"):
        log_dir.create_topic("u", 2)
    assert list(away.iterdir()) == []
    mount(away)
    assert log_dir.append("t", b"x", key=key).partition == 1
    log_dir.create_topic("u", 2)
    log_dir.close()
    assert LogDir.open([tmp_path / "a", tmp_path / "b"]).topics() == {"t": [0, 1], "u": [0, 1]}


@pytest.mark.parametrize("state", ["future", "stray", "delete"])
def test_partitions_that_reading_leaves_out_make_a_log_dir_too(state: str, tmp_path: Path) -> None:
    """A disk may have nothing else, as after a move that a broker had begun, and no `meta.properties` in what was saved of it."""
    other = tmp_path / "other"
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-epochs-1", other / f"g-epochs-1.{UUID}-{state}")
    with LogDir.open([CLEAN_LOG_DIRS[0], other]) as log_dir, LogDir.open(CLEAN_LOG_DIRS[0]) as alone:
        assert log_dir.topics() == alone.topics()
    with LogDir.open(other) as log_dir:
        assert log_dir.topics() == {}


def test_a_new_cluster_gets_what_a_broker_was_moving(tmp_path: Path) -> None:
    """Also from a folder that has nothing else, without metadata of the old cluster; as from a folder whose directories are renamed."""
    sources = [tmp_path / "one", tmp_path / "other"]
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-epochs-0", sources[0] / "g-epochs-0")
    moving = sources[1] / f"g-epochs-1.{UUID}-future"
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-epochs-1", moving)
    into = formatted(tmp_path / "into")
    report = restore(sources, into, new_cluster=True, dry_run=True)
    found = [(each.partition, each.state) for each in report.partitions]
    moving.rename(sources[1] / "g-epochs-1")
    renamed = restore(sources, into, new_cluster=True, dry_run=True)
    assert found == [(each.partition, each.state) for each in renamed.partitions] == [(0, "planned"), (1, "planned")]


def test_a_log_dir_that_goes_away_keeps_what_is_known(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    with LogDir.open(folders, "a") as log_dir:
        log_dir.create_topic("t", 2)
    with LogDir.open(folders) as log_dir:
        folders[1].rename(tmp_path / "aside")
        folders[1].mkdir()
        with pytest.raises(LogDirError, match="is its disk mounted"):
            log_dir.refresh()
        assert log_dir.topics() == {"t": [0, 1]}
        folders[1].rmdir()
        (tmp_path / "aside").rename(folders[1])
        log_dir.refresh()
