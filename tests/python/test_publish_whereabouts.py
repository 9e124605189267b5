"""A job comes again while the log dir with its note is not the first one, or a partition was moved: its records are there once."""

from __future__ import annotations

import errno
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from test_publish_failures import EXPECTED, Died, failing, found, run
from test_publish_unmounted import Places, half_way

from offsetlog import Log, LogDir, LogDirError, MetadataFileError, commits, forget_commit
from offsetlog._commit.staging import STAGING
from offsetlog._commit.whereabouts import MARK

KINDS = pytest.mark.parametrize("kind", ["named", "stream"])


class Named:
    """Log dirs in the order in which a job names them."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths

    def __str__(self) -> str:
        return ",".join(map(str, self.paths))


def again(*paths: Path, kind: str) -> None:
    run(Named(*paths), kind)  # type: ignore[arg-type]  # its text is the path


def marks(*places: Path) -> list[Path]:
    return [path for place in places for path in place.glob(f"*{MARK}")]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("how", ["missing", "empty", "another"])
@KINDS
def test_the_log_dir_with_the_note_is_not_mounted(tmp_path: Path, kind: str, how: str) -> None:
    places = Places(tmp_path)
    places.run(kind)
    assert len(marks(places.second)) == 1
    places.first.rename(places.aside)
    if how == "empty":
        places.first.mkdir()
    if how == "another":
        LogDir.open(places.first, "a").close()
    before = tree(places.second)
    for _ in range(2):
        with pytest.raises(OSError, match="Mount it, or name it first") as refused:
            places.run(kind)
        assert (refused.value.errno, refused.value.filename) == (errno.ENODEV, str(places.second))
        assert {name for name in tree(places.second) if STAGING not in name} == set(before)
    assert found(places.second) == EXPECTED
    assert places.first.exists() == (how != "missing")
    # A job of another name is nobody's business.
    if how == "another":
        places.run("nameless", topic="other")
    shutil.rmtree(places.first, ignore_errors=True)
    places.aside.rename(places.first)
    places.run(kind)
    assert found(places.second) == EXPECTED


@KINDS
def test_the_log_dirs_are_named_in_another_order(tmp_path: Path, kind: str) -> None:
    places = Places(tmp_path)
    places.run(kind)
    with pytest.raises(LogDirError, match="name it first among the log dirs, as before") as refused:
        again(places.second, places.first, kind=kind)
    assert refused.value.path == str(places.first)
    with pytest.raises(OSError, match="Mount it, or name it first"):
        again(places.second, kind=kind)
    again(places.first, places.second, kind=kind)
    assert found(places.second) == EXPECTED


@KINDS
def test_whatever_a_commit_died_at(tmp_path: Path, kind: str) -> None:
    """Once it has published a record elsewhere, that place knows."""
    for at in range(1, 60):
        folder = tmp_path / str(at)
        folder.mkdir()
        places = Places(folder)
        with failing(at, Died()) as seen, suppress(Died):
            places.run(kind)
        if seen() < at:
            break
        if commits(places.first):
            assert marks(places.second), at
            with pytest.raises((OSError, LogDirError), match="name it first"):
                again(places.second, places.first, kind=kind)
        else:
            assert not found(places.second), at
    else:
        pytest.fail("a commit without an end")
    assert at > 3


def test_a_forgotten_note_leaves_no_mark(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.run("named")
    forget_commit(places.first, "day-1")
    assert not marks(places.first, places.second)
    again(places.second, places.first, kind="named")
    assert found(places.second) == sorted(EXPECTED * 2)


def test_a_mark_whose_note_is_gone_hinders_nobody(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.run("named")
    (mark,) = marks(places.second)
    text = mark.read_bytes()
    forget_commit(places.first, "day-1")
    mark.write_bytes(text)
    again(places.second, places.first, kind="named")
    assert found(places.second) == sorted(EXPECTED * 2)


def test_a_job_without_a_name_leaves_no_mark(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.run("nameless")
    assert not marks(places.first, places.second)


def test_one_log_dir_alone_gets_no_mark(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 3)
    run(tmp_path, "named")
    assert not marks(tmp_path)


@pytest.mark.parametrize("text", [b"", b"0" * 31 + b"\n", b"g" * 32 + b"\n", bytes(1000)])
def test_a_mark_that_cannot_be_read(tmp_path: Path, text: bytes) -> None:
    places = Places(tmp_path)
    places.run("named")
    (mark,) = marks(places.second)
    mark.write_bytes(text)
    with pytest.raises(MetadataFileError, match=f"{len(text)} bytes? found, the id of the log dir") as refused:
        places.run("named")
    assert refused.value.path == str(mark)
    assert found(places.second) == EXPECTED


@pytest.mark.parametrize("is_staged", [True, False])
def test_a_partition_was_moved_while_a_commit_was_half_way(tmp_path: Path, is_staged: bool) -> None:
    """A broker copies the records of a partition to another of its log dirs, and removes the old directory with all else in it."""
    for at, places, noted in half_way(tmp_path, "named", spread=True):
        (old, *_) = sorted(places.first.glob("t-?"))
        new = places.second / old.name
        shutil.copytree(old, new, ignore=shutil.ignore_patterns("offsetlog-*") if not is_staged else None)
        old.rename(tmp_path / f"removed-{at}")
        before = places.found()
        with pytest.raises(OSError, match=f"{old.name} was moved here from") as refused:
            places.run("named")
        assert (refused.value.errno, refused.value.filename) == (errno.EXDEV, str(new))
        assert (places.found(), commits(places.first)) == (before, noted)
        shutil.rmtree(new)
        (tmp_path / f"removed-{at}").rename(old)
        places.run("named")
        assert places.found() == EXPECTED, at


def test_a_topic_made_anew_elsewhere_was_not_moved(tmp_path: Path) -> None:
    places = Places(tmp_path)
    with failing(9, Died()), suppress(Died):
        places.run("named")
    (noted,) = commits(places.first)
    assert not noted.is_published
    with LogDir.open(places.second, "a") as log_dir:
        log_dir.delete_topic("t")
    with LogDir.open(places.first, "a") as log_dir:
        log_dir.create_topic("t", 3)
    # As before: it is gone, so what was published went with it, and all of it is published in the new one.
    places.run("named")
    with Log.open(places.first / "t-0") as log:
        assert log.log_end_offset > 0
    assert found(places.first) == EXPECTED
