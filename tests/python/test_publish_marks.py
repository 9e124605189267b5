"""Marks of several drivers at one moment, in log dirs that are copies, and marks that cannot be read: each record is there once."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from test_publish_failures import EXPECTED, ROWS, Died, found, run
from test_publish_log_dirs import made
from test_publish_whereabouts import KINDS, Named, again, marks

from offsetlog import LogDir, LogDirError, commits, forget_commit
from offsetlog._commit import notes, publishing, staging, whereabouts
from offsetlog._commit.whereabouts import unmark
from offsetlog.errors import LogLockedError, MetadataFileError, OffsetLogError
from offsetlog.spark import sink

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.mark.parametrize("how", ["another order", "away", "another id first"])
def test_a_log_dir_that_is_a_copy_has_the_id_of_the_original(tmp_path: Path, how: str) -> None:
    """A mark in it is not taken for one of its own notes."""
    first, second, third = made(tmp_path, first="", second="t", third="")
    notes.make_id_of_log_dir(str(first))
    shutil.copy(first / notes.LOG_DIR_ID, second)
    again(first, second, kind="named")
    assert len(marks(second)) == 1
    again(first, second, kind="named")
    if how != "another order":
        first.rename(tmp_path / "aside")
    paths = {"another order": [second, first], "away": [second], "another id first": [third, second]}[how]
    with pytest.raises((OSError, LogDirError), match="name it first"):
        again(*paths, kind="named")
    assert found(second) == EXPECTED


def test_a_mark_of_its_own_goes_when_a_log_dir_gets_the_note(tmp_path: Path) -> None:
    """It was away when the name was forgotten, and is the first one now."""
    first, second = made(tmp_path, first="here", second="t")
    again(first, second, kind="named")
    second.rename(tmp_path / "aside")
    forget_commit(first, "day-1")
    (tmp_path / "aside").rename(second)
    assert len(marks(second)) == 1
    again(second, first, kind="named")
    assert not marks(second)
    assert len(marks(first)) == 1
    for paths in ((second,), (second, first)):
        again(*paths, kind="named")
    assert found(second) == sorted(EXPECTED * 2)


def test_two_drivers_of_one_name_that_begin_with_different_log_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At one moment: neither sees the other's note before it has written its own."""
    first, second = made(tmp_path, first="", second="")
    with LogDir.open([first, second], "a") as log_dir:
        log_dir.create_topic("t", 3)
    both = threading.Barrier(2)
    real = staging.targets_of

    def targets_of(*arguments: object, **named: object) -> object:
        result = real(*arguments, **named)  # type: ignore[arg-type]  # as they are
        with suppress(threading.BrokenBarrierError):
            both.wait(5)
        return result

    monkeypatch.setattr(publishing, "LOCK_SECONDS", 20)
    told: list[Exception] = []

    def job(*paths: Path) -> None:
        try:
            again(*paths, kind="named")
        except (OSError, OffsetLogError) as error:
            told.append(error)

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "targets_of", targets_of)
        threads = [threading.Thread(target=job, args=paths) for paths in ((first, second), (second, first))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told
    assert all(isinstance(error, LogLockedError) for error in told), told
    assert all("another driver" in str(error) for error in told)
    assert len(commits(first)) + len(commits(second)) == 2 - len(told)
    order = (second, first) if commits(second) else (first, second)
    again(*order, kind="named")
    with LogDir.open([first, second]) as both_of_them:
        values = sorted((record.value or b"").decode() for record in both_of_them.scan([("t", number) for number in range(3)]))
    assert values == EXPECTED
    assert len(marks(order[1])) == 1
    with pytest.raises((OSError, LogDirError), match="name it first"):
        again(*reversed(order), kind="named")
    assert not [*first.glob("*.tmp"), *second.glob("*.tmp")]


def test_a_driver_that_dies_before_it_looks_for_another_publishes_nothing(tmp_path: Path) -> None:
    """Nobody finishes its commit: the other driver has published the records."""
    first, second = made(tmp_path, first="here", second="t")
    again(first, second, kind="named")

    def died(*_: object) -> None:
        raise Died

    with pytest.MonkeyPatch.context() as patched, suppress(Died):
        patched.setattr(sink, "check_note_is_first", lambda *_: None)
        patched.setattr(publishing, "gives_way", died)
        again(second, first, kind="named")
    assert [note.is_published for place in (first, second) for note in commits(place)] == [True, False]
    for paths in ((first, second), (second, first), (second,)):
        topic = "other" if len(paths) > 1 else "alone"
        run(Named(*paths), "nameless", topic=topic, rows=ROWS[:3])  # type: ignore[arg-type]  # its text is the path
    with pytest.raises(LogDirError, match="name it first"):
        again(second, first, kind="named")
    assert found(second) == EXPECTED
    forget_commit(second, "day-1", unfinished=True)
    again(first, second, kind="named")
    assert found(second) == EXPECTED
    assert not marks(first)


def test_two_drivers_mark_one_log_dir_at_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writes a file of its own beside the mark."""
    first, second = made(tmp_path, first="", second="t")
    both = threading.Barrier(2)
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        if "commit-" in (place := os.readlink(f"/proc/self/fd/{descriptor}")) and str(second) in place:
            with suppress(threading.BrokenBarrierError):
                both.wait(2)

    told: list[Exception] = []

    def job() -> None:
        try:
            again(first, second, kind="named")
        except (OSError, OffsetLogError) as error:
            told.append(error)

    monkeypatch.setattr(publishing, "LOCK_SECONDS", 20)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        threads = [threading.Thread(target=job) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not told
    assert found(second) == EXPECTED
    assert not list(second.glob("*.tmp"))


def test_a_name_that_is_forgotten_while_it_runs_anew_keeps_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = made(tmp_path, first="", second="t")
    again(first, second, kind="named")
    real = whereabouts.mark
    is_first = True

    def mark(*arguments: object) -> object:
        nonlocal is_first
        result = real(*arguments)  # type: ignore[arg-type]  # as they are
        if is_first:
            is_first = False
            # What who forgets it does last.
            unmark(str(first), arguments[1])  # type: ignore[arg-type]  # as above
        return result

    forget_commit(first, "day-1")
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "mark", mark)
        again(first, second, kind="named")
    assert not is_first
    assert len(marks(second)) == 1
    with pytest.raises(LogDirError, match="name it first"):
        again(second, first, kind="named")


@pytest.mark.parametrize("what", ["folder", "pipe", "loop", "link", "socket"])
def test_a_mark_that_is_no_file(tmp_path: Path, what: str) -> None:
    first, second = made(tmp_path, first="", second="t")
    again(first, second, kind="named")
    (path,) = marks(second)
    path.unlink()
    if what == "folder":
        path.mkdir()
    if what == "pipe":
        os.mkfifo(path)
    if what == "loop":
        path.symlink_to(path)
    if what == "link":
        path.symlink_to(tmp_path / "nowhere")
    if what == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    with pytest.raises(MetadataFileError, match="Remove it only if that log dir is at hand and named first") as refused:
        again(first, second, kind="named")
    assert refused.value.path == str(path)
    # Who has another name goes on.
    run(Named(first, second), "nameless", topic="other", rows=ROWS[:3])  # type: ignore[arg-type]  # as above
    path.rmdir() if what == "folder" else path.unlink()
    again(first, second, kind="named")
    assert found(second) == EXPECTED
    # The mark is there again.
    assert len(marks(second)) == 1


@KINDS
def test_a_note_of_an_earlier_version_gets_marks_when_its_job_comes_again(tmp_path: Path, kind: str) -> None:
    first, second = made(tmp_path, first="", second="t")
    again(first, second, kind=kind)
    (path,) = first.glob("offsetlog-commit-*.json")
    fields = json.loads(path.read_text())
    del fields["log_dirs"]
    path.write_text(json.dumps(fields))
    marks(second)[0].unlink()
    again(first, second, kind=kind)
    assert len(marks(second)) == 1
    assert found(second) == EXPECTED
