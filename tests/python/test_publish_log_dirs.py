"""A job of several log dirs, in whatever order they are named and whichever is not mounted: each record is there once."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from test_publish_failures import EXPECTED, MORE, ROWS, Died, copied, failing, found, run, table
from test_publish_unmounted import Places
from test_publish_whereabouts import KINDS, Named, again, marks

from offsetlog import Log, LogDir, LogDirError, WritableLog, commits, forget_commit
from offsetlog._commit import moving, publishing
from offsetlog._commit.staging import STAGING
from offsetlog.errors import ConfigError
from offsetlog.spark.sink import StreamWriter, prepare
from offsetlog.spark.sink_options import sink_settings_from

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def made(folder: Path, **topics: str) -> list[Path]:
    """Make log dirs, each with the topic that is given for it; with none where the text is empty."""
    places = []
    for name, topic in topics.items():
        places.append(folder / name)
        with LogDir.open(places[-1], "a") as log_dir:
            if topic:
                log_dir.create_topic(topic, 3)
    return places


def begun(*paths: Path, kind: str, until: int | None) -> None:
    """Run a job, to its end or until it dies at this change of the disk."""
    if until is None:
        again(*paths, kind=kind)
        return
    with failing(until, Died()), suppress(Died):
        again(*paths, kind=kind)


@pytest.mark.parametrize("is_published", [True, False])
@KINDS
def test_the_topic_lies_beside_the_note_and_another_log_dir_is_named_first(tmp_path: Path, kind: str, is_published: bool) -> None:
    first, second = made(tmp_path, first="t", second="other")
    begun(first, second, kind=kind, until=None if is_published else 5)
    assert [note.is_published for note in commits(first)] == [is_published]
    before = found(first)
    for _ in range(2):
        with pytest.raises(LogDirError, match="name it first among the log dirs, as before") as refused:
            again(second, first, kind=kind)
        assert refused.value.path == str(first)
    assert found(first) == before
    again(first, second, kind=kind)
    assert found(first) == EXPECTED
    assert not commits(second)


@pytest.mark.parametrize("how", ["missing", "empty"])
@KINDS
def test_the_topic_lies_beside_the_note_and_that_log_dir_is_not_mounted(tmp_path: Path, kind: str, how: str) -> None:
    first, second = made(tmp_path, first="t", second="other")
    again(first, second, kind=kind)
    first.rename(tmp_path / "aside")
    if how == "empty":
        first.mkdir()
    with pytest.raises(OSError, match="Mount it, or name it first") as refused:
        again(first, second, kind=kind)
    assert (refused.value.errno, refused.value.filename) == (errno.ENODEV, str(second))
    assert not list(second.glob("t-?"))
    shutil.rmtree(first, ignore_errors=True)
    (tmp_path / "aside").rename(first)
    again(first, second, kind=kind)
    assert found(first) == EXPECTED


def test_a_note_of_an_earlier_run_with_fewer_log_dirs_is_named_first(tmp_path: Path) -> None:
    """As a job has it that gets one more log dir; what the error says works."""
    first, second = made(tmp_path, first="t", second="other")
    run(first, "named")
    assert "log_dirs" not in next(iter(first.glob("offsetlog-commit-*.json"))).read_text()
    with pytest.raises(LogDirError, match=r"forget 'job day-1' .*publishes all of its records, also those"):
        again(second, first, kind="named")
    forget_commit(first, "job day-1")
    again(second, first, kind="named")
    assert found(first) == sorted(EXPECTED * 2)


def test_the_note_names_the_log_dirs_and_its_marks_go_with_it(tmp_path: Path) -> None:
    first, second, third = made(tmp_path, first="t", second="other", third="")
    again(first, second, third, kind="named")
    (path,) = first.glob("offsetlog-commit-*.json")
    assert json.loads(path.read_text())["log_dirs"] == [str(first), str(second), str(third)]
    assert [len(marks(place)) for place in (first, second, third)] == [0, 1, 1]
    forget_commit(first, "day-1")
    assert not marks(first, second, third)


def test_a_note_that_was_copied_leaves_the_marks_of_the_originals(tmp_path: Path) -> None:
    first, second = made(tmp_path, first="t", second="other")
    again(first, second, kind="named")
    copy = Path(shutil.copytree(first, tmp_path / "copy"))
    forget_commit(copy, "day-1")
    assert len(marks(second)) == 1


def broker_moves(directory: Path, to: Path) -> Path:
    """A broker copies the records of a partition, and removes the old directory with all else in it."""
    new = to / directory.name
    shutil.copytree(directory, new, ignore=shutil.ignore_patterns("offsetlog-*"))
    shutil.rmtree(directory)
    return new


@pytest.mark.parametrize("where", ["beside the note", "elsewhere"])
def test_half_way_a_partition_was_moved_to_where_the_commit_has_none(tmp_path: Path, where: str) -> None:
    places = made(tmp_path, first="here", second="t", third="other")
    with failing(9, Died()), suppress(Died):
        again(*places, kind="named")
    noted = commits(places[0])
    assert not noted[0].is_published
    new = broker_moves(places[1] / "t-0", places[0] if where == "beside the note" else places[2])
    before = {place: found(place) for place in places}
    with pytest.raises(OSError, match=r"t-0 was moved here from .* was half-way") as refused:
        again(*places, kind="named")
    assert (refused.value.errno, refused.value.filename) == (errno.EXDEV, str(new))
    assert {place: found(place) for place in places} == before
    assert commits(places[0]) == noted


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_stream_waits_for_a_log_dir_between_its_micro_batches(tmp_path: Path, how: str) -> None:
    """Its topic is not made anew at the mount point, where nobody would find the records again."""
    first, second = made(tmp_path, first="here", second="t")
    again(first, second, kind="stream")
    second.rename(tmp_path / "aside")
    if how == "empty":
        second.mkdir()
    with pytest.raises(OSError, match="Mount it, or have a link") as refused:
        run(Named(first, second), "stream", batch=8)  # type: ignore[arg-type]  # its text is the path
    assert (refused.value.errno, refused.value.filename) == (errno.ENODEV, str(second))
    assert "--unfinished" not in str(refused.value)
    # Another job is refused whatever its topic is, and one that names the other log dir only for this topic.
    with pytest.raises(LogDirError, match="is the disk of this one mounted"):
        run(Named(first, second), "nameless", batch=8)  # type: ignore[arg-type]  # as above
    with pytest.raises(OSError, match="Mount it, or have a link"):
        run(first, "nameless", batch=8)
    assert not list(tmp_path.glob("[fs]*/t-?"))
    shutil.rmtree(second, ignore_errors=True)
    (tmp_path / "aside").rename(second)
    run(Named(first, second), "stream", batch=8)  # type: ignore[arg-type]  # as above
    assert found(second) == sorted(EXPECTED * 2)


def test_a_job_with_another_log_dir_first_makes_no_topic_anew(tmp_path: Path) -> None:
    """The note that tells where it is lies in one of its log dirs."""
    other, first, second = made(tmp_path, other="else", first="here", second="t")
    again(first, second, kind="stream")
    second.rename(tmp_path / "aside")
    with pytest.raises(OSError, match="Mount it, or have a link"):
        run(Named(other, first), "nameless")  # type: ignore[arg-type]  # its text is the path
    assert not list(other.glob("t-?"))


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_stream_waits_for_the_log_dir_of_its_last_partitions(tmp_path: Path, how: str) -> None:
    """Without them its topic looks like one of fewer partitions."""
    first, second = made(tmp_path, first="", second="")
    with LogDir.open([first, second], "a") as log_dir:
        log_dir.create_topic("t", 3)
    (away,) = [place for place in (first, second) if (place / "t-2").is_dir()]
    (stays,) = {first, second} - {away}
    for number in (0, 1):
        if not (stays / f"t-{number}").is_dir():
            (away / f"t-{number}").rename(stays / f"t-{number}")
    again(stays, away, kind="stream")
    away.rename(tmp_path / "aside")
    if how == "empty":
        away.mkdir()
    rows = [(key, value, partition % 2) for key, value, partition in ROWS]
    with pytest.raises(OSError, match="Mount it, or have a link"):
        run(Named(stays, away), "stream", batch=8, rows=rows)  # type: ignore[arg-type]  # as above
    assert len(found(stays)) == 20


def test_a_stream_whose_log_dir_is_gone_for_good_goes_on_when_its_note_is_forgotten(tmp_path: Path) -> None:
    """As the error says."""
    first, second = made(tmp_path, first="here", second="t")
    again(first, second, kind="stream")
    shutil.rmtree(second)
    with pytest.raises(OSError, match="forget 'query q', with the first log dir"):
        run(Named(first, second), "stream", batch=8)  # type: ignore[arg-type]  # as above
    forget_commit(first, "query q")
    with pytest.raises(LogDirError, match="open it alone for appending first"):
        run(Named(first, second), "stream", batch=8)  # type: ignore[arg-type]  # as above
    LogDir.open(second, "a").close()
    run(Named(first, second), "stream", batch=8)  # type: ignore[arg-type]  # as above
    assert sorted(found(first) + found(second)) == EXPECTED


@pytest.mark.parametrize("kind", ["stream", "nameless"])
def test_a_topic_deleted_in_a_log_dir_that_is_at_hand_may_be_made_anew(tmp_path: Path, kind: str) -> None:
    first, second = made(tmp_path, first="here", second="t")
    again(first, second, kind="stream")
    with LogDir.open(second, "a") as log_dir:
        log_dir.delete_topic("t")
    run(Named(first, second), kind, batch=8)  # type: ignore[arg-type]  # as above
    with LogDir.open([first, second]) as log_dir:
        assert sum(log_dir.log("t", number).log_end_offset for number in range(3)) == len(ROWS)


def test_a_stream_goes_on_where_its_log_dir_has_another_path(tmp_path: Path) -> None:
    first, second = made(tmp_path, first="here", second="t")
    again(first, second, kind="stream")
    moved = second.rename(tmp_path / "moved")
    run(Named(first, moved), "stream", batch=8)  # type: ignore[arg-type]  # as above
    assert found(moved) == sorted(EXPECTED * 2)


def told_stream(*paths: Path, batch: int, rows: list[tuple[str, str, int]] = ROWS) -> None:
    """A stream without a `queryId`, whose driver knows by its tasks alone what it is called."""
    options = {"path": ",".join(map(str, paths)), "topic": "t", **MORE}
    settings = sink_settings_from(options, is_stream=True)
    prepare(settings)
    writer = StreamWriter(settings, ["key", "value", "partition"])
    messages = [copied(copied(writer).stage_rows([table(rows[task::3])], "query the-id")) for task in range(3)]
    try:
        copied(writer).commit(messages, batch)
    except Exception:
        copied(writer).abort(messages, batch)
        raise


def test_a_stream_that_its_tasks_name_waits_for_the_log_dir_of_its_last_partitions(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.spread()
    (away,) = [place for place in (places.first, places.second) if (place / "t-2").is_dir()]
    (stays,) = {places.first, places.second} - {away}
    for number in (0, 1):
        if not (stays / f"t-{number}").is_dir():
            (away / f"t-{number}").rename(stays / f"t-{number}")
    told_stream(stays, away, batch=7)
    away.rename(places.aside)
    away.mkdir()
    rows = [(key, value, partition % 2) for key, value, partition in ROWS]
    with pytest.raises(LogDirError, match="is the disk of this one mounted"):
        told_stream(stays, away, batch=8, rows=rows)
    shutil.rmtree(away)
    places.aside.rename(away)
    told_stream(stays, away, batch=8)
    assert places.found() == sorted(EXPECTED * 2)


@pytest.mark.parametrize("where", ["beside the note", "beside another partition", "elsewhere"])
def test_published_and_then_moved_by_a_broker(tmp_path: Path, where: str) -> None:
    """The job that comes again is the same one."""
    first, second, third = made(tmp_path, first="here", second="t", third="other")
    if where == "beside another partition":
        (second / "t-1").rename(third / "t-1")
    again(first, second, third, kind="named")
    new = broker_moves(second / "t-0", first if where == "beside the note" else third)
    for _ in range(2):
        again(first, second, third, kind="named")
    assert sum(len(found_in(place)) for place in (first, second, third)) == len(ROWS)
    with Log.open(new, "a") as log:
        log.truncate_to(0)
    with pytest.raises(ConfigError, match="t-0 ends at 0 now"):
        again(first, second, third, kind="named")


def found_in(place: Path) -> list[str]:
    return [str(offset) for path in place.glob("t-?") for offset in range(Log.open(path).log_end_offset)]


def test_published_and_moved_to_a_log_dir_that_the_job_does_not_name(tmp_path: Path) -> None:
    """A new topic of its name would be a second one."""
    first, second, third = made(tmp_path, first="here", second="t", third="other")
    again(first, second, third, kind="stream")
    for number in range(3):
        broker_moves(second / f"t-{number}", third)
    with pytest.raises(OSError, match=r"was moved here from .* Name this log dir among those of the job") as refused:
        run(Named(first, second), "stream", batch=8)  # type: ignore[arg-type]  # as above
    assert refused.value.filename == str(third / "t-0")
    assert "half-way" not in str(refused.value)
    run(Named(first, second, third), "stream", batch=8)  # type: ignore[arg-type]  # as above
    assert found(third) == sorted(EXPECTED * 2)


@pytest.mark.parametrize("is_published", [True, False])
@KINDS
def test_a_partition_that_is_a_mount_point_of_its_own(tmp_path: Path, kind: str, is_published: bool) -> None:
    first, second = made(tmp_path, first="here", second="t")
    begun(first, second, kind=kind, until=None if is_published else 9)
    (second / "t-1").rename(tmp_path / "aside")
    (second / "t-1").mkdir()
    (second / "t-1" / "lost+found").mkdir()
    with pytest.raises(OSError, match="this folder has no log") as refused:
        run(Named(first, second), kind, batch=8)  # type: ignore[arg-type]  # as above
    assert (refused.value.errno, refused.value.filename) == (errno.ENODEV, str(second / "t-1"))
    assert [path.name for path in (second / "t-1").iterdir()] == ["lost+found"]
    shutil.rmtree(second / "t-1")
    (tmp_path / "aside").rename(second / "t-1")
    again(first, second, kind=kind)
    assert found(second) == EXPECTED


def needed(place: Path) -> list[Path]:
    """The staged logs that the notes of a log dir still need, as far as they are there."""
    paths = [Path(target.directory, path) for note in commits(place) for target in note.targets for path in target.staged]
    return [path for path in paths if path.is_dir()]


@pytest.mark.parametrize("how", ["another order", "empty"])
def test_a_stream_that_is_refused_leaves_what_its_commit_still_needs(tmp_path: Path, how: str) -> None:
    """Spark aborts the micro-batch, which removes what it staged itself, and nothing else."""
    first, second = made(tmp_path, first="here", second="t")
    with failing(7, Died()), suppress(Died):
        told_stream(first, second, batch=7)
    before = needed(first)
    assert before
    staged = {path for path in second.rglob("*") if STAGING in str(path)}
    if how == "another order":
        # Else it would be finished before it is refused.
        with Log.open(second / "t-2", "a"), pytest.raises(LogDirError, match="name it first"):
            told_stream(second, first, batch=7)
    else:
        first.rename(tmp_path / "aside")
        first.mkdir()
        with pytest.raises(LogDirError, match="is the disk of this one mounted"):
            told_stream(first, second, batch=7)
        shutil.rmtree(first)
        (tmp_path / "aside").rename(first)
    assert needed(first) == before
    assert {path for path in second.rglob("*") if STAGING in str(path)} == staged
    # With them the commit goes on also behind another program.
    for number in range(3):
        with Log.open(second / f"t-{number}", "a") as log:
            log.append_arrow(table([("x", "other", 0)]).select(["key", "value"]))
    told_stream(first, second, batch=7)
    assert sorted(value for value in found(second) if value != "other") == EXPECTED


def grow_old(place: Path) -> None:
    """Let what is staged be older than any task."""
    old = time.time() - 8 * 86400
    for path in place.rglob("*"):
        if STAGING in str(path):
            os.utime(path, (old, old))


@pytest.mark.parametrize("kind", ["named", "nameless"])
def test_what_a_commit_waits_for_is_not_swept_by_jobs_that_do_not_see_its_note(tmp_path: Path, kind: str) -> None:
    """And the first job that has the log dir of the note among its own finishes it."""
    died = 0
    for at in range(1, 60):
        first, second = made(tmp_path / str(at), first="here", second="t")
        with failing(at, Died()) as seen, suppress(Died):
            again(first, second, kind=kind)
        if seen() < at:
            break
        before = needed(first)
        if not before:
            continue
        died += 1
        assert marks(second), at
        grow_old(second)
        run(second, "nameless", topic="other", rows=ROWS[:3])
        assert needed(first) == before, at
        places = Named(second, first) if at % 2 else Named(first, second)
        run(places, "nameless", topic="here", rows=ROWS[:3])  # type: ignore[arg-type]  # as above
        assert found(second) == EXPECTED, at
        assert bool(marks(second)) == (kind == "named")
    else:
        pytest.fail("a commit without an end")
    assert died >= 3


def test_what_nobody_waits_for_is_swept(tmp_path: Path) -> None:
    """By a job that sees all notes; and marks of commits that never were."""
    first, second = made(tmp_path, first="here", second="t")
    for kind in ("named", "nameless"):
        with suppress(Died), pytest.MonkeyPatch.context() as patched:
            patched.setattr(publishing, "write", no_note)
            again(first, second, kind=kind)
        assert len(marks(second)) == 1
    grow_old(second)
    aside = Path(f"{marks(second)[0]}.0.tmp")
    aside.touch()
    run(Named(first, second), "nameless", topic="here", rows=ROWS[:3])  # type: ignore[arg-type]  # as above
    assert not marks(second)
    assert not list(second.glob(f"*/{STAGING}"))
    assert aside.exists()
    os.utime(aside, (0, 0))
    run(Named(first, second), "nameless", topic="here", rows=ROWS[:3])  # type: ignore[arg-type]  # as above
    assert not aside.exists()


def no_note(*_: object) -> None:
    raise Died


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("is_behind", [True, False])
def test_a_nameless_job_that_failed_is_known_again_with_another_log_dir_first(tmp_path: Path, is_behind: bool) -> None:
    """Where the log dir of its note is among those of the job, whichever is named first."""
    first, second = made(tmp_path, first="here", second="t")
    real, calls = WritableLog.flush, iter(range(1000))
    move_to = moving.move_to

    def flush(log: WritableLog) -> None:
        if next(calls) >= 1:
            full()
        real(log)

    def moved(commit: Any, target: Any, **named: Any) -> int:  # noqa: ANN401  # as it is called
        end = move_to(commit, target, **named)
        with Log.open(target.directory, "a") as log:
            log.append(b"other")
        return end

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WritableLog, "flush", flush)
        patched.setattr(moving, "_cut", full)
        if is_behind:
            patched.setattr(publishing, "move_to", moved)
        with pytest.raises(OSError, match="No space left"):
            again(first, second, kind="nameless")
    (note,) = commits(first)
    assert note.is_undoing != is_behind
    assert note.has_failed == is_behind
    assert found(second)
    assert marks(second)
    again(second, first, kind="nameless")
    assert [value for value in found(second) if value != "other"] == EXPECTED
    assert not [*commits(first), *commits(second), *marks(first, second)]
    again(second, first, kind="nameless")
    assert [value for value in found(second) if value != "other"] == sorted(EXPECTED * 2)
