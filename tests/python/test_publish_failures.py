"""What a Spark write owes when publishing fails: the job is repeated until it succeeds, and each record is there once.

Drives the sink's own classes as Spark does, each in a pickled copy of its own, without a Spark session.
"""

from __future__ import annotations

import errno
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offsetlog import Log, LogDir, WritableLog, commits
from offsetlog._commit import moving, notes, publishing
from offsetlog._commit.staging import STAGING
from offsetlog.errors import ConfigError, LogDirError, LogLockedError
from offsetlog.spark.sink import OffsetLogWriter, StreamWriter, prepare
from offsetlog.spark.sink_options import sink_settings_from

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

ROWS = [(f"k{number}", f"v{number}", number % 3) for number in range(30)]
MORE = {"internal.segment.bytes": "1000"}


class Died(BaseException):
    """The driver, in the middle of something."""


def table(rows: list[tuple[str, str, int]], at: int | None = None) -> pa.RecordBatch:
    keys, values, partitions = zip(*rows, strict=True)
    columns = {"key": pa.array(keys), "value": pa.array(values), "partition": pa.array(partitions, pa.int32())}
    if at is not None:
        columns["timestamp"] = pa.array([at] * len(rows), pa.timestamp("ms", "UTC"))
    return pa.RecordBatch.from_pydict(columns)


def copied(thing: Any) -> Any:  # noqa: ANN401  # of the same kind
    return pickle.loads(pickle.dumps(thing))


def run(  # noqa: PLR0913  # a job has many sides
    place: Path,
    kind: str,
    *,
    topic: str = "t",
    rows: list[tuple[str, str, int]] = ROWS,
    staged: Callable[[], None] = lambda: None,
    batch: int = 7,
    at: int | None = None,
) -> None:
    """What Spark does of a job: prepare, three tasks, commit; abort where one of them raises. A dead driver does nothing more."""
    options = {"path": str(place), "topic": topic, "partitions": "3", **MORE}
    options |= {"named": {"transactionId": "day-1"}, "stream": {"queryId": "q"}, "nameless": {}}[kind]
    settings = sink_settings_from(options, is_stream=kind == "stream")
    prepare(settings)
    writer = (StreamWriter if kind == "stream" else OffsetLogWriter)(
        settings, [*["timestamp"][: at is not None], "key", "value", "partition"]
    )
    parts = [rows[task::3] for task in range(3)]
    messages: list[Any] = [None] * len(parts)
    numbered = [batch] if kind == "stream" else []
    try:
        for task, part in enumerate(parts):
            mine, rows_of_task = copied(writer), [table(part, at)]
            messages[task] = copied(mine.stage_rows(rows_of_task) if kind == "stream" else mine.write(iter(rows_of_task)))
        staged()
        copied(writer).commit(messages, *numbered)
    except Exception:
        copied(writer).abort(messages, *numbered)
        raise


def found(place: Path, topic: str = "t") -> list[str]:
    with LogDir.open(place) as log_dir:
        return sorted(
            (record.value or b"").decode()
            for number in log_dir.topics().get(topic, [])
            for record in log_dir.log(topic, number).scan()
        )


def left(place: Path) -> list[Path]:
    return [*place.glob(f"*/{STAGING}"), *place.glob("*.tmp"), *place.glob(f"*{notes.READY}")]


EXPECTED = sorted(value for _, value, _ in ROWS)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 0.2)


@contextmanager
def failing(at: int, error: BaseException) -> Iterator[Callable[[], int]]:
    """Let the n-th change of the disk by a commit fail, before it is made or after it."""
    seen = 0

    def around(patched: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = False) -> None:  # noqa: ANN401  # a class or a module
        real = getattr(owner, name)

        def called(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # whatever it takes
            nonlocal seen
            result = real(*arguments, **named) if after else None
            seen += 1
            if seen == at:
                raise error
            return result if after else real(*arguments, **named)

        patched.setattr(owner, name, called)

    with pytest.MonkeyPatch.context() as patched:
        around(patched, publishing, "write", after=True)
        around(patched, publishing, "remove", after=True)
        around(patched, notes, "sync")
        around(patched, WritableLog, "append_log", after=True)
        around(patched, WritableLog, "_move_log", after=True)
        around(patched, WritableLog, "flush")
        yield lambda: seen


@pytest.mark.parametrize("kind", ["named", "stream", "nameless"])
def test_each_change_of_the_disk_fails_once(tmp_path: Path, kind: str) -> None:
    """A full disk, at every point of a commit; others write meanwhile; the job runs again."""
    failed = 0
    for at in range(1, 60):
        place = tmp_path / f"logs-{at}"
        with failing(at, OSError(errno.ENOSPC, "No space left on device")) as seen:
            try:
                run(place, kind)
            except OSError as error:
                failed += error.errno == errno.ENOSPC
            else:
                # All was published, whatever failed behind that.
                assert found(place) == EXPECTED
                assert seen() < at or kind == "nameless"
                if seen() >= at:
                    continue
        if seen() < at:
            break
        # Another topic of the log dir is nobody's business.
        if at % 2:
            run(place, "nameless", topic="other", rows=ROWS[:3])
            assert len(found(place, "other")) == 3
        run(place, kind)
        assert found(place) == EXPECTED, at
        assert not left(place), at
        names = [note.name for note in commits(place)]
        assert names == {"named": ["job day-1"], "stream": ["query q"], "nameless": []}[kind], at
    else:
        pytest.fail("a commit without an end")
    assert failed >= 8


def test_a_copied_log_dir_finishes_its_own_commits(tmp_path: Path) -> None:
    """The notes in it name the place that it was copied from: that one is left alone."""
    for at in (1, 3, 5):
        place, copy = tmp_path / f"logs-{at}", tmp_path / f"copy-{at}"
        with suppress(Died), failing(at, Died()):
            run(place, "named")
        shutil.copytree(place, copy)
        before = found(place)
        run(copy, "named")
        assert found(copy) == EXPECTED, at
        assert found(place) == before, at
        run(place, "named")
        assert found(place) == EXPECTED, at


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_a_driver_dies_at_each_change_of_the_disk(tmp_path: Path, kind: str) -> None:
    for at in range(1, 60):
        place = tmp_path / f"logs-{at}"
        with failing(at, Died()) as seen, suppress(Died):
            run(place, kind)
        if seen() < at:
            break
        if at % 2:
            run(place, "nameless", topic="other", rows=ROWS[:3])
        run(place, kind)
        assert found(place) == EXPECTED, at
        assert not left(place), at


def test_a_nameless_driver_dies_at_each_change_of_the_disk(tmp_path: Path) -> None:
    """The next write of anybody finishes it, or nothing of it is there."""
    finished = 0
    for at in range(1, 60):
        place = tmp_path / f"logs-{at}"
        with failing(at, Died()) as seen, suppress(Died):
            run(place, "nameless")
        if seen() < at:
            break
        run(place, "nameless", topic="other", rows=ROWS[:3])
        assert found(place) in ([], EXPECTED), at
        finished += found(place) == EXPECTED
        assert not commits(place), at
    else:
        pytest.fail("a commit without an end")
    assert finished >= 8


@pytest.mark.parametrize("kind", ["named", "stream", "nameless"])
@pytest.mark.parametrize("partition", range(3))
def test_a_partition_that_somebody_holds(tmp_path: Path, kind: str, partition: int) -> None:
    place = tmp_path / "logs"
    run(place, "nameless", rows=ROWS[:3])
    before = found(place)
    with Log.open(place / f"t-{partition}", "a"):
        for _ in range(2):
            with pytest.raises(LogLockedError, match=f"t-{partition}"):
                run(place, kind)
        # Meanwhile others write elsewhere.
        run(place, "nameless", topic="other", rows=ROWS[:6])
        assert len(found(place, "other")) == 6
    run(place, kind)
    assert found(place) == sorted(before + EXPECTED)
    assert not left(place)


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_the_next_write_of_another_job_finishes_it(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "logs"
    with open_first(place), pytest.raises(LogLockedError):
        run(place, kind)
    run(place, "nameless", topic="other", rows=ROWS[:3])
    assert found(place) == EXPECTED
    run(place, kind)
    assert found(place) == EXPECTED
    assert not left(place)


def test_a_nameless_job_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """It cannot come again under its name: what it had published is taken back."""
    place = tmp_path / "logs"
    run(place, "nameless", rows=ROWS[:3])
    with Log.open(place / "t-2", "a"), pytest.raises(LogLockedError) as raised:
        run(place, "nameless", rows=ROWS[3:])
    assert "nothing of it is published" in "".join(raised.value.__notes__)
    assert found(place) == sorted(value for _, value, _ in ROWS[:3])
    assert not left(place)
    assert not commits(place)


def test_a_nameless_job_that_cannot_be_taken_back_is_known_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody else has written behind it: the rest follows, and the same job run again adds nothing."""
    place = tmp_path / "logs"
    run(place, "nameless", rows=ROWS[:3])
    real = moving.move_to

    def moved(commit: Any, target: Any, **named: Any) -> int:  # noqa: ANN401  # as it is called
        end = real(commit, target, **named)
        with Log.open(target.directory, "a") as log:
            log.append(b"another's")
        return end

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "move_to", moved)
        with Log.open(place / "t-2", "a"), pytest.raises(LogLockedError) as raised:
            run(place, "nameless", rows=ROWS[3:])
    assert "the rest follows with the next write" in "".join(raised.value.__notes__)
    run(place, "nameless", topic="other", rows=ROWS[:3])
    run(place, "nameless", rows=ROWS[3:])
    assert [value for value in found(place) if value != "another's"] == EXPECTED
    assert "was told that it failed" in caplog.text
    # Once more it is a job of its own.
    run(place, "nameless", rows=ROWS[3:])
    assert len([value for value in found(place) if value != "another's"]) == 30 + 27


def test_a_nameless_job_that_fails_where_no_note_can_be_written_is_known_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk stays full: that it failed is noted all the same, so that the job run again adds nothing twice."""
    place = tmp_path / "logs"
    run(place, "nameless", rows=ROWS[:3])
    real, written = notes.write, 0

    def write(*arguments: Any, **named: Any) -> None:  # noqa: ANN401  # as it is called
        nonlocal written
        written += 1
        if written > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "write", write)
        with Log.open(place / "t-2", "a"), pytest.raises(LogLockedError) as raised:
            run(place, "nameless", rows=ROWS[3:])
    assert "the rest follows with the next write" in "".join(raised.value.__notes__)
    assert [note.has_failed for note in commits(place)] == [True]
    run(place, "nameless", topic="other", rows=ROWS[:3])
    run(place, "nameless", rows=ROWS[3:])
    assert found(place) == EXPECTED
    assert "was told that it failed" in caplog.text
    assert not left(place)
    assert not commits(place)


def test_a_driver_that_dies_before_its_note_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    with pytest.MonkeyPatch.context() as patched:

        def died(*_: object) -> None:
            raise Died

        patched.setattr(publishing, "write", died)
        with pytest.raises(Died):
            run(place, "nameless")
    assert list(place.glob(f"*{notes.READY}"))
    run(place, "nameless", rows=ROWS[:3])
    assert len(found(place)) == 3
    assert not list(place.glob(f"*{notes.READY}"))


@pytest.mark.parametrize("kind", ["named", "stream"])
@pytest.mark.parametrize("partition", [0, 2])
def test_staged_records_are_removed_by_hand(tmp_path: Path, kind: str, partition: int) -> None:
    """What was published is taken back, and the job that comes again publishes all of it."""
    place = tmp_path / "logs"
    run(place, "nameless", rows=ROWS[:3])
    before = found(place)
    with Log.open(place / "t-1", "a"), pytest.raises(LogLockedError):
        run(place, kind)
    shutil.rmtree(place / f"t-{partition}" / STAGING)
    run(place, "nameless", topic="other", rows=ROWS[:6])
    run(place, kind)
    assert found(place) == sorted(before + EXPECTED)
    assert not left(place)


# What is missing of a staged log -> the files of it.
REMOVED = {"the log": "*", "its batches": "*.log", "its indexes": "*index"}


@pytest.mark.parametrize("kind", ["named", "stream", "nameless"])
@pytest.mark.parametrize("what", list(REMOVED))
@pytest.mark.parametrize("partition", [0, 2])
def test_staged_files_are_removed_between_the_note_and_the_publishing(tmp_path: Path, kind: str, what: str, partition: int) -> None:
    """Of one task and one partition. The job fails or not; repeated until it succeeds, it has published each record once."""
    place = tmp_path / "logs"
    run(place, "nameless", rows=ROWS[:3])
    before = found(place)
    real, removed = notes.write, 0

    def write(log_dir: str, note: Any) -> None:  # noqa: ANN401  # a note
        nonlocal removed
        real(log_dir, note)
        if removed:
            return
        for target in note.targets:
            if target.partition == partition and not note.is_published:
                staged = Path(target.directory, target.staged[-1])
                for path in list(staged.glob(REMOVED[what])):
                    path.unlink()
                    removed += 1

    failures = 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "write", write)
        for _ in range(3):
            try:
                run(place, kind)
                break
            except (OSError, LogDirError):
                failures += 1
                if kind == "nameless":
                    assert found(place) == before
                    assert not commits(place)
        else:
            pytest.fail("a job that never succeeds")
    assert removed
    # Records are in the batches alone; indexes are rebuilt.
    assert failures == (what in {"the log", "its batches"})
    assert found(place) == sorted(before + EXPECTED)
    assert not left(place)
    names = [note.name for note in commits(place)]
    assert names == {"named": ["job day-1"], "stream": ["query q"], "nameless": []}[kind]


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_staged_files_are_removed_behind_a_driver_that_died_with_all_published(tmp_path: Path, kind: str) -> None:
    """Those of the first of three tasks: what the others have published behind it is not published again."""
    place = tmp_path / "logs"
    rows = [(f"k{number}", f"v{number}", number // 3) for number in range(9)]
    real, written = notes.write, 0

    def write(log_dir: str, note: Any) -> None:  # noqa: ANN401  # a note
        nonlocal written
        written += 1
        if written > 1:
            raise Died
        real(log_dir, note)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "write", write)
        with pytest.raises(Died):
            run(place, kind, rows=rows)
    (note,) = commits(place)
    for target in note.targets:
        assert len(target.staged) == 3
        (batches,) = Path(target.directory, target.staged[0]).glob("*.log")
        batches.unlink()
    run(place, kind, rows=rows)
    assert found(place) == sorted(value for _, value, _ in rows)
    assert not left(place)


def test_what_can_be_neither_finished_nor_taken_back_is_told(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    run(place, "nameless", rows=ROWS[:3])
    with Log.open(place / "t-1", "a"), pytest.raises(LogLockedError):
        run(place, "named")
    shutil.rmtree(place / "t-1" / STAGING)
    with Log.open(place / "t-0", "a") as log:
        log.append(b"another's")
    for _ in range(2):
        with pytest.raises(
            LogDirError, match=r"'job day-1' can be neither finished nor taken back: t-0: offsets 1 to 11 hold records of it"
        ):
            run(place, "named")
    run(place, "nameless", topic="other", rows=ROWS[:6])
    assert len(found(place, "other")) == 6
    with Log.open(place / "t-0") as log:
        assert log.log_end_offset == 12


@pytest.mark.parametrize("kind", ["named", "stream", "nameless"])
@pytest.mark.parametrize("partition", range(3))
def test_a_setting_refuses_what_was_staged(tmp_path: Path, kind: str, partition: int) -> None:
    place = tmp_path / "logs"
    run(place, "nameless", rows=ROWS[:3])
    before = found(place)

    def refused() -> None:
        with Log.open(place / f"t-{partition}", "a", {"internal.segment.bytes": 100}):
            pass

    # The setting stays: it refuses the job as often as that comes.
    for _ in range(2):
        with pytest.raises(Exception, match="segment"):
            run(place, kind, staged=refused)
        if kind == "nameless":
            assert found(place) == before
            assert not commits(place)
    run(place, "nameless", topic="other", rows=ROWS[:6])
    with Log.open(place / f"t-{partition}", "a", MORE):
        pass
    run(place, kind)
    assert found(place) == sorted(before + EXPECTED)
    assert not left(place)


def test_a_topic_goes_between_staging_and_publishing(tmp_path: Path) -> None:
    """The rest of the job is not lost for it, nor is anything put into a topic that was made anew."""
    place = tmp_path / "logs"
    with open_first(place), pytest.raises(LogLockedError):
        run(place, "named")
    with LogDir.open(place, "a") as log_dir:
        log_dir.delete_topic("t")
    run(place, "nameless", topic="other", rows=ROWS[:6])
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 3)
    run(place, "nameless", topic="other", rows=ROWS[:6])
    assert found(place) == []
    run(place, "named")
    assert found(place) == EXPECTED


def open_first(place: Path) -> Log:
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 3)
    return Log.open(place / "t-1", "a")


def test_an_unreadable_note_concerns_its_own_name_alone(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    run(place, "named")
    note = place / notes.note_name("job day-1")
    note.write_text("{")
    run(place, "nameless", rows=ROWS[:3])
    assert len(found(place)) == 33
    with pytest.raises(Exception, match="the note of a commit cannot be read"):
        run(place, "named")


def test_records_that_keep_their_offsets_are_not_taken_for_others(tmp_path: Path) -> None:
    """A restore stopped half-way, and something else was written in its place: told, not counted as done."""
    place = tmp_path / "logs"
    with open_first(place):
        pass
    settings = sink_settings_from({"path": str(place), "topic": "t", "preserveOffsets": "true", "transactionId": "r"}, is_stream=False)

    def restore() -> None:
        writer = OffsetLogWriter(settings, ["value", "partition", "offset"])
        columns = {
            "value": pa.array(["a", "b", "c"]),
            "partition": pa.array([0, 1, 1], pa.int32()),
            "offset": pa.array([5, 6, 7], pa.int64()),
        }
        messages: list[Any] = [writer.write(iter([pa.RecordBatch.from_pydict(columns)]))]
        try:
            writer.commit(messages)
        except Exception:
            writer.abort(messages)
            raise

    with Log.open(place / "t-1", "a") as log:
        with pytest.raises(LogLockedError):
            restore()
        for number in range(10):
            log.append(b"other %d" % number)
    with (
        pytest.raises(LogDirError, match=r"t-\d waits for records that keep their offsets.*also those that are here"),
        Log.open(place / "t-1", "a"),
    ):
        run(place, "nameless", rows=ROWS[:3])
    with pytest.raises(Exception, match="offset 6 found, 10 or more"):
        restore()
    assert found(place) == sorted(f"other {number}" for number in range(10))


def test_the_same_name_with_other_data_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "logs"
    run(place, "named")
    run(place, "named", rows=ROWS[::-1])
    assert "published on 20" in caplog.text
    assert [record.levelname for record in caplog.records if "dropped" in record.message] == ["WARNING"]
    for rows, topic in (
        (ROWS[:-1], "t"),
        ([*ROWS[:-1], ("k", "other", 2)], "t"),
        ([*ROWS[:-1], (*ROWS[-1][:2], 0)], "t"),
        (ROWS, "u"),
    ):
        with pytest.raises(
            ConfigError, match=r"transactionId 'day-1' was used on 20\d\d-.*for 30 records of topic 't'.*has other data"
        ) as raised:
            run(place, "named", rows=rows, topic=topic)
        assert raised.value.key == "transactionId"
        # Both ways on would double what is there.
        assert "records that are published would then be there twice" in str(raised.value)
    assert found(place) == EXPECTED
    assert not left(place)


def test_the_same_name_when_its_topic_is_gone_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    run(place, "named")
    with LogDir.open(place, "a") as log_dir:
        log_dir.delete_topic("t")
    with pytest.raises(ConfigError, match=r"was used on 20.* for 30 records of topic 't'.*but t-0 is gone"):
        run(place, "named")
    with LogDir.open(place) as log_dir:
        assert log_dir.topics() == {}
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 3)
    with pytest.raises(ConfigError, match=r"but topic 't' was made anew"):
        run(place, "named")
    assert found(place) == []
