"""What a failed commit is known by when it comes again, beside other drivers: each job's records are there once, also of equal jobs.

Drives the sink's classes as ``test_publish_failures`` does. What another driver does in between is done where the first one waits.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_publish_failures import EXPECTED, ROWS, found, left, run

from offsetlog import Log, LogDir, WritableLogDir, commits
from offsetlog._commit import moving, notes, publishing
from offsetlog._commit.moving import Superseded
from offsetlog._commit.repeated import Fate
from offsetlog.errors import ClusterError, ConfigError, LogDirError, LogLockedError, MetadataFileError
from offsetlog.spark import sink
from offsetlog.spark.sink_options import sink_settings_from

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 0.2)


def refuses(patched: pytest.MonkeyPatch, error: Exception) -> None:
    """The third partition refuses what it is given."""
    real = moving.move_to

    def moved(commit: Any, target: Any, **named: Any) -> int:  # noqa: ANN401  # as it is called
        if target.partition == 2:
            raise error
        return real(commit, target, **named)

    patched.setattr(publishing, "move_to", moved)


def second_note_is_full(patched: pytest.MonkeyPatch) -> None:
    """There is no room to note that the commit is taken back."""
    real, written = notes.write, 0

    def write(*arguments: Any, **named: Any) -> None:  # noqa: ANN401  # as it is called
        nonlocal written
        written += 1
        if written == 2:  # the first says what is published
            full()
        real(*arguments, **named)

    patched.setattr(publishing, "write", write)


def fail(place: Path) -> None:
    """A nameless job fails in its third partition and cannot be taken back: its note says so."""
    with pytest.MonkeyPatch.context() as patched:
        refuses(patched, OSError(errno.EIO, "Input/output error"))
        second_note_is_full(patched)
        with pytest.raises(OSError, match="Input/output error"):
            run(place, "nameless")
    assert [note.has_failed for note in commits(place)] == [True]


@contextmanager
def before_lock(patched: pytest.MonkeyPatch, action: Callable[[], None]) -> Any:  # noqa: ANN401  # patched until the action begins
    """Another driver acts when the first one is about to change a note."""
    real, done = notes.locked, False

    def locked(log_dir: str) -> Any:  # noqa: ANN401  # a context
        nonlocal done
        if not done:
            done = True
            action()
        return real(log_dir)

    patched.setattr(publishing, "locked", locked)
    yield
    assert done


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_the_note_of_a_name_is_not_taken_for_one_of_a_nameless_job(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "logs"
    with pytest.MonkeyPatch.context() as patched:
        refuses(patched, ClusterError("broker 1 has a replica too"))
        second_note_is_full(patched)
        with pytest.raises(ClusterError):
            run(place, kind)
    assert [note.has_failed for note in commits(place)] == [False]
    run(place, kind)
    assert found(place) == EXPECTED
    run(place, "nameless")
    assert found(place) == sorted(2 * EXPECTED)
    run(place, kind)
    assert found(place) == sorted(2 * EXPECTED)
    assert not left(place)


def test_a_name_that_an_older_version_noted_as_failed_is_not_taken_for_a_nameless_job(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    run(place, "named")
    path = place / notes.note_name("job day-1")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"failed": True}))
    run(place, "nameless")
    assert found(place) == sorted(2 * EXPECTED)
    run(place, "named")
    assert found(place) == sorted(2 * EXPECTED)
    assert [note.name for note in commits(place)] == ["job day-1"]


def test_of_two_drivers_that_find_a_failed_job_one_drops_its_records(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    fail(place)
    publishing.finish(str(place))
    with pytest.MonkeyPatch.context() as patched, before_lock(patched, lambda: run(place, "nameless")):
        run(place, "nameless")
    assert found(place) == sorted(2 * EXPECTED)
    assert not commits(place)
    assert not left(place)


def test_a_job_waits_while_another_driver_takes_its_failed_one_back(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    fail(place)

    def superseded(log_dir: str, note: Any, *_: object) -> None:  # noqa: ANN401  # as it is called
        notes.write(log_dir, note._replace(is_undoing=True))
        raise Superseded

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "finish", lambda *_, **__: [])
        patched.setattr("offsetlog.spark.sink.finish", lambda *_, **__: [])
        patched.setattr(publishing, "_move_all", superseded)
        with pytest.raises(LogLockedError, match="another process takes back the commit of"):
            run(place, "nameless")
    assert [note.is_undoing for note in commits(place)] == [True]
    run(place, "nameless")
    assert found(place) == EXPECTED
    assert not left(place)


def is_undoing(log_dir: str, note: Any) -> None:  # noqa: ANN401  # a note
    notes.write(log_dir, note._replace(is_undoing=True))


def is_gone(log_dir: str, note: Any) -> None:  # noqa: ANN401  # a note
    notes.remove(log_dir, note.name)


@pytest.mark.parametrize("kind", ["named", "stream"])
@pytest.mark.parametrize("change", [is_undoing, is_gone])
def test_a_commit_that_another_driver_takes_back_is_an_error(tmp_path: Path, kind: str, change: Callable[[str, Any], None]) -> None:
    place = tmp_path / "logs"
    run(place, "nameless", rows=ROWS[:3])

    def superseded(log_dir: str, note: Any, *_: object) -> None:  # noqa: ANN401  # as it is called
        change(log_dir, note)
        raise Superseded

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "_move_all", superseded)
        with pytest.raises((LogLockedError, LogDirError), match="another process"):
            run(place, kind)
    run(place, kind)
    assert found(place) == sorted(EXPECTED + [value for _, value, _ in ROWS[:3]])


@pytest.mark.parametrize("way", ["undo", "holding"])
def test_a_job_that_another_driver_finishes_while_it_is_taken_back_has_not_failed(tmp_path: Path, way: str) -> None:
    place = tmp_path / "logs"
    with pytest.MonkeyPatch.context() as patched:
        refuses(patched, OSError(errno.EIO, "Input/output error"))

        def finished() -> None:
            patched.setattr(publishing, "move_to", moving.move_to)
            assert publishing.finish(str(place))

        def undo(*_: object) -> bool:
            finished()
            full()
            return False

        @contextmanager
        def holding(*_: object) -> Any:  # noqa: ANN401  # a reason, and what takes back
            if commits(place):
                finished()
            yield "another program has written behind it", None

        patched.setattr(publishing, *{"undo": ("undo", undo), "holding": ("holding", holding)}[way])
        run(place, "nameless")
    assert found(place) == EXPECTED
    assert not commits(place)


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_job_whose_taking_back_fails_at_its_end_has_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_removed: bool
) -> None:
    """Also where its note is gone by then: that does not mean that another driver has published it."""
    place = tmp_path / "logs"
    real = notes.remove

    def remove(*arguments: Any) -> None:  # noqa: ANN401  # as it is called
        if is_removed:
            real(*arguments)
        full()

    with pytest.MonkeyPatch.context() as patched:
        refuses(patched, OSError(errno.EIO, "Input/output error"))
        patched.setattr(publishing, "remove", remove)
        with pytest.raises(OSError, match="Input/output error"):
            run(place, "nameless")
    text = "nothing of it is published" if is_removed else "what is published of it is taken back with the next write"
    assert text in caplog.text
    run(place, "nameless")
    assert found(place) == EXPECTED
    assert not left(place)


def test_a_note_made_ready_that_cannot_be_used_is_written(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    with pytest.MonkeyPatch.context() as patched:
        refuses(patched, OSError(errno.EIO, "Input/output error"))
        patched.setattr(publishing, "put_ready", full)
        patched.setattr(publishing, "undo", full)
        with pytest.raises(OSError, match="Input/output error"):
            run(place, "nameless")
    assert [note.has_failed for note in commits(place)] == [True]
    run(place, "nameless")
    assert found(place) == EXPECTED
    assert not left(place)


@pytest.mark.parametrize("partitions", [3, 2])
def test_a_topic_that_another_driver_makes_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """It is there when this one makes it: the job goes on, unless the topic is not as its options say."""
    place = tmp_path / "logs"
    real = sink._create  # noqa: SLF001  # the moment before a topic is made

    def create(log_dir: Any, name: str, settings: Any) -> None:  # noqa: ANN401  # as it is called
        with LogDir.open(place, "a") as other:
            other.create_topic(name, partitions)
        monkeypatch.setattr(sink, "_create", real)
        real(log_dir, name, settings)

    monkeypatch.setattr(sink, "_create", create)
    if partitions == 3:
        run(place, "nameless")
        assert found(place) == EXPECTED
    else:
        with pytest.raises(ConfigError, match="topic 't' is there and has 2, which stay"):
            run(place, "nameless")


def test_a_topic_that_is_there_is_not_opened_for_appending_to_compare_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver may be making it: who opens what it makes cleans up behind a crash that never was."""
    place, topic_id = tmp_path / "logs", "AAECAwQFBgcICQoLDA0ODw"
    options = {"path": str(place), "topic": "t", "partitions": "3", "topicId": topic_id}
    settings = sink_settings_from(options, is_stream=False)
    sink.prepare(settings)

    def opened(*_: object) -> None:
        raise AssertionError("a partition was opened for appending")

    monkeypatch.setattr(WritableLogDir, "log", opened)
    sink.prepare(settings)
    with pytest.raises(ConfigError, match="has the id AAECAwQFBgcICQoLDA0ODw"):
        sink.prepare(sink_settings_from(options | {"topicId": "BAECAwQFBgcICQoLDA0ODw"}, is_stream=False))


def test_a_topic_that_another_driver_is_making_is_waited_for(tmp_path: Path) -> None:
    """Its first partition comes last: until then it is not known how many there are."""
    place, aside = tmp_path / "logs", tmp_path / "t-0"
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 3)
    (place / "t-0").rename(aside)
    real, looks = LogDir.open, 0

    def opened(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # as it is called
        nonlocal looks
        looks += 1
        if looks == 3 and aside.exists():
            aside.rename(place / "t-0")
        return real(*arguments, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LogDir, "open", opened)
        run(place, "nameless")
    assert looks >= 3
    assert found(place) == EXPECTED


@pytest.mark.parametrize("what", ["lock", "file"])
def test_what_was_made_ready_and_cannot_be_removed_hinders_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str) -> None:
    place = tmp_path / "logs"
    place.mkdir()
    notes.make_id_of_log_dir(str(place))
    ready = place / f"{notes.PREFIX}0{notes.READY}"
    ready.write_text("{}")
    real = Path.unlink

    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    def unlink(path: Path, *, missing_ok: bool = False) -> None:
        if path == ready:
            denied()
        real(path, missing_ok=missing_ok)

    with pytest.MonkeyPatch.context() as patched:
        if what == "lock":
            patched.setattr(notes, "locked", denied)
        else:
            patched.setattr(Path, "unlink", unlink)
        run(place, "nameless")
    assert found(place) == EXPECTED
    assert "Permission denied" in caplog.text
    with Log.open(place / "t-0") as log:
        assert log.log_end_offset == 10
    run(place, "nameless", rows=ROWS[:3])
    assert not ready.exists()


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_of_two_drivers_of_one_name_the_second_drops_its_records(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A scheduler starts a job again that is still running."""
    place = tmp_path / "logs"
    with pytest.MonkeyPatch.context() as patched, before_lock(patched, lambda: run(place, kind)):
        run(place, kind)
    assert found(place) == EXPECTED
    assert "is dropped" in caplog.text
    assert not left(place)


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_of_two_drivers_of_one_name_the_second_finishes_what_the_first_began(tmp_path: Path, kind: str) -> None:
    """The first one's note says what it is about to do: if it went, nobody would know what is published already."""
    place = tmp_path / "logs"

    def begin() -> None:
        with pytest.MonkeyPatch.context() as other:
            refuses(other, OSError(errno.EIO, "Input/output error"))
            with pytest.raises(OSError, match="Input/output error"):
                run(place, kind)

    with pytest.MonkeyPatch.context() as patched, before_lock(patched, begin):
        run(place, kind)
    assert found(place) == EXPECTED
    assert not left(place)


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_a_driver_of_one_name_with_other_data_that_comes_second_is_refused(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "logs"
    first = lambda: run(place, kind, rows=ROWS[:3])  # noqa: E731  # a line
    with pytest.MonkeyPatch.context() as patched, before_lock(patched, first), pytest.raises(ConfigError, match="other data"):
        run(place, kind)
    assert len(found(place)) == 3
    assert not left(place)


@pytest.mark.parametrize("at", [None, 1_700_000_000_000], ids=["other times", "the same bytes"])
def test_what_a_name_publishes_anew_is_not_taken_back_with_what_failed(tmp_path: Path, at: int | None) -> None:
    """Two drivers take a commit back; the first one is done, and its job has come again, before the second comes to a partition."""
    place = tmp_path / "logs"
    with pytest.MonkeyPatch.context() as patched:
        refuses(patched, OSError(errno.EIO, "Input/output error"))
        with pytest.raises(OSError, match="Input/output error"):
            run(place, "named", at=at)
    (before,) = notes.notes(str(place))
    assert isinstance(before, notes.Commit)
    is_undoing(str(place), before)
    real = moving.opened
    again: list[bool] = []

    @contextmanager
    def opened(*arguments: Any) -> Any:  # noqa: ANN401  # as it is called
        if not again:
            again.append(True)
            patched.setattr(publishing, "HELD_AT_ONCE", 64)
            run(place, "named", at=at)
            assert found(place) == EXPECTED
        with real(*arguments) as log:
            yield log

    with pytest.MonkeyPatch.context() as patched:
        # Behind the partitions that are held from the first look on.
        patched.setattr(publishing, "HELD_AT_ONCE", 0)
        patched.setattr(moving, "opened", opened)
        assert publishing.undo(str(place), before, moving.Patience(1.0))
    assert again
    assert found(place) == EXPECTED
    assert [note.is_published for note in commits(place)] == [True]
    assert not left(place)


def test_nobody_writes_behind_what_is_about_to_be_taken_back(tmp_path: Path) -> None:
    """Another job comes between the look at what was published and the note that it goes: it is told, and each comes again."""
    place = tmp_path / "logs"
    real = publishing._noted_undoing  # noqa: SLF001  # where it waits
    told: list[bool] = []

    def noted(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # as it is called
        if not told:
            told.append(True)
            patched.setattr(publishing, "move_to", moving.move_to)
            with pytest.raises(LogLockedError):
                run(place, "named")
        return real(*arguments, **named)

    with pytest.MonkeyPatch.context() as patched:
        refuses(patched, OSError(errno.EIO, "Input/output error"))
        patched.setattr(publishing, "_noted_undoing", noted)
        with pytest.raises(OSError, match="Input/output error"):
            run(place, "nameless")
    assert told
    run(place, "named")
    assert found(place) == EXPECTED
    run(place, "nameless")
    assert found(place) == sorted(2 * EXPECTED)
    assert not left(place)


def test_what_another_process_renamed_stays_while_its_job_is_told_that_it_failed(tmp_path: Path) -> None:
    """Another process finishes a nameless job at the moment in which its own driver, on a full disk, notes that it failed."""
    place = tmp_path / "logs"
    rows = [(f"k{number}", f"v{number:050}", number % 3) for number in range(300)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "_told", lambda *_, **__: False)
        refuses(patched, OSError(errno.EIO, "Input/output error"))
        with pytest.raises(OSError, match="Input/output error"):
            run(place, "nameless", rows=rows)
    (note,) = notes.notes(str(place))
    assert isinstance(note, notes.Commit)
    notes.make_ready(str(place), note._replace(has_failed=True))
    real = moving._rename  # noqa: SLF001  # where the other process is
    renamed: list[bool] = []

    def rename(*arguments: Any) -> bool:  # noqa: ANN401  # as it is called
        is_renamed = real(*arguments)
        if is_renamed and not renamed:
            renamed.append(True)
            fate = publishing._fate(str(place), note, is_noted=True, has_begun=False)  # noqa: SLF001  # as the driver asks
            assert fate is Fate.UNFINISHED
        return is_renamed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(moving, "_rename", rename)
        assert publishing.finish(str(place)) == [note.name]
    assert renamed
    assert found(place) == sorted(value for _, value, _ in rows)
    assert [(each.is_published, each.has_failed) for each in commits(place)] == [(True, True)]
    # Its job, which was told so, comes again.
    run(place, "nameless", rows=rows)
    assert found(place) == sorted(value for _, value, _ in rows)
    assert not left(place)


@pytest.mark.parametrize("is_published", [False, True])
def test_a_copy_of_a_note_is_nobodys(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_published: bool) -> None:
    """Somebody has saved a note beside it."""
    place = tmp_path / "logs"
    fail(place)
    if is_published:
        publishing.finish(str(place))
    (note,) = commits(place)
    path = place / note.file_name
    path.with_name(path.stem + "-copy.json").write_bytes(path.read_bytes())
    for _ in range(2):
        run(place, "nameless")
    assert found(place) == sorted(2 * EXPECTED)
    assert "a copy of the note of" in caplog.text
    with pytest.raises(MetadataFileError, match="a copy of the note of"):
        commits(place)
