"""What ``docs/verbs.md`` says of writing with Spark is tried, cell by cell; what other tests show is named by their files and functions.

Here the sink's own classes are driven as Spark does. What needs a Spark session is in ``tests/spark``.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import reading_calls
import verbs_page
from reading_calls import PLAIN, Place
from test_no_trace import traces
from test_publish_failures import EXPECTED, MORE, found, left, run
from test_verbs_damaged import DAMAGES, EPOCHS, OPENING, SETTINGS, of_damage, records
from test_verbs_stopped import KEY, MARK, RECOVERY, check_refused, points
from test_verbs_table import OF_SPARK
from verbs_page import Row
from writing import HOLD, running

from offsetlog import LimitExceededError, Log, LogDir, LogLockedError, OffsetLogError, WritableLog, commits
from offsetlog._commit import moving, notes, publishing, staging
from offsetlog._commit.staging import STAGING
from offsetlog.errors import CheckpointError
from offsetlog.spark.sink import OffsetLogWriter, StreamWriter, prepare
from offsetlog.spark.sink_options import sink_settings_from

HERE = "python/test_verbs_of_spark.py"
SINK, STREAMS = "spark/test_spark_sink.py", "spark/test_spark_verbs.py"
FAILURES, FULL = "python/test_publish_failures.py", "python/test_publish_full_disk.py"

WRITES = [row for row in verbs_page.rows(verbs_page.text()) if row.group == "Write with Spark" and set(row.verbs) <= OF_SPARK]
# What a cell says -> the tests that show it.
SAID: dict[str, dict[str, set[str]]] = {
    "changes files": {"yes": {f"{SINK}::test_rows_become_records", f"{SINK}::test_a_stream_goes_on_where_it_was"}},
    "locks": {
        "log dir when it begins and while it publishes, not while its tasks stage; each partition while it is published": {
            f"{HERE}::test_what_is_locked_while_it_is_published"
        }
    },
    "settings": {
        "*own settings*, then options": {
            f"{HERE}::test_what_is_written_has_the_topics_settings_and_then_those_of_the_options",
            f"{SINK}::test_options_hold_for_what_is_written_to_a_topic_that_is_there",
        }
    },
    "other replicas": {
        "*known replicas*": {
            "python/test_publishing.py::test_other_replicas_stop_a_commit_unless_it_is_to_go_on",
            "spark/test_spark_write.py::test_a_partition_that_others_have_needs_the_option",
        }
    },
    "running broker": {
        "refused: *one writer*": {
            f"{HERE}::test_beside_a_running_broker_it_is_refused_before_anything_changed",
            f"{HERE}::test_a_broker_that_starts_while_tasks_run_stops_the_commit",
            f"{STREAMS}::test_every_way_to_write_is_refused_beside_a_running_broker",
        }
    },
    "stopped broker's directory": {
        "*known folders*; *internal topics*": {
            f"{HERE}::test_a_stopped_brokers_partition_is_continued_where_it_ends",
            f"{HERE}::test_a_folder_that_is_something_else_is_refused",
            f"{HERE}::test_what_is_published_in_an_internal_topic_is_taken_back",
            "spark/test_spark_folders.py::test_the_folder_around_log_dirs_is_refused_with_the_paths_that_work",
        }
    },
    "damaged directory": {
        "*opening mends*; what it refuses fails the job: with a name others may be published before, without one none is": {
            f"{HERE}::test_what_is_done_with_damage"
        },
        "*opening mends*; what it refuses ends the query; others may be published before": {
            f"{HERE}::test_what_is_done_with_damage",
            f"{STREAMS}::test_a_commit_that_fails_ends_the_query_which_goes_on_when_it_is_started_again",
        },
    },
    "full disk": {
        "with a name a commit that has begun waits for the next run; without one nothing stays, or the next write finishes it: *published once*": {
            f"{FULL}::test_a_disk_is_full_at_every_point_of_a_commit",
            f"{HERE}::test_what_a_failure_leaves",
        },
        "ends the query; started again it goes on: *published once*": {
            f"{FULL}::test_a_disk_is_full_at_every_point_of_a_commit",
            f"{STREAMS}::test_a_commit_that_fails_ends_the_query_which_goes_on_when_it_is_started_again",
        },
    },
    "second call": {
        "without a name writes again; with one nothing: *known names*": {
            f"{SINK}::test_a_job_under_a_name_publishes_once",
            f"{STREAMS}::test_insert_into_writes_again",
            "spark/test_spark_published_once.py::test_a_name_that_comes_again_is_for_the_same_records",
            "spark/test_spark_warnings.py::test_what_is_dropped_is_told_on_the_error_output",
        },
        "the checkpoint goes on; a micro-batch that comes again is dropped, another one with its number is refused: *known names*": {
            f"{SINK}::test_a_stream_goes_on_where_it_was",
            "spark/test_spark_published_once.py::test_a_copied_checkpoint_is_another_stream_and_a_repeated_micro_batch_is_not",
            "spark/test_spark_warnings.py::test_what_is_dropped_is_told_on_the_error_output",
        },
    },
    "failure leaves": {
        "topics that it created; of a commit that has begun, with a name a note and what it still needs, without one nothing, or such a "
        "note: *published once*": {f"{HERE}::test_what_a_failure_leaves", f"{FAILURES}::test_each_change_of_the_disk_fails_once"},
        "topics that it created; of a commit that has begun, a note and what it still needs: *published once*": {
            f"{HERE}::test_what_a_failure_leaves"
        },
    },
}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.calls[0]) for row in WRITES])
@pytest.mark.parametrize("column", verbs_page.COLUMNS[1:])
def test_every_cell_is_tried(row: Row, column: str) -> None:
    told = row.cells[column]
    assert told in SAID[column], f"nothing tries {column!r} of which is said {told!r}: say how"
    assert not verbs_page.missing_tests(SAID[column][told])


def test_every_row_of_the_table_is_tried_here_or_with_the_other_verbs() -> None:
    assert [row.verbs for row in WRITES] == [("DataFrame.write", "offsetlog.spark.write", "INSERT INTO"), ("DataFrame.writeStream",)]
    told = {column: {row.cells[column] for row in WRITES} for column in SAID}
    assert told == {column: set(cells) for column, cells in SAID.items()}


KINDS = ("named", "nameless", "stream")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 0.2)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A log dir with a topic of three partitions, each of several segments."""
    with LogDir.open(tmp_path / "logs", "a") as log_dir:
        log_dir.create_topic("t", 3, config=MORE)
        for number in range(3):
            log = log_dir.log("t", number)
            for at in range(4):
                log.append(b"before")
                if at % 2:
                    log.roll()
    (tmp_path / "logs/.lock").touch()
    return tmp_path / "logs"


BEFORE = ["before"] * 12


@pytest.mark.parametrize("topic", ["t", "new"])
@pytest.mark.parametrize("kind", KINDS)
def test_beside_a_running_broker_it_is_refused_before_anything_changed(place: Path, kind: str, topic: str) -> None:
    with running(HOLD, place / ".lock") as broker:
        before = traces(place)
        with pytest.raises(LogLockedError) as refused:
            run(place, kind, topic=topic)
        assert refused.value.pid == broker.pid
        assert traces(place) == before
    run(place, kind, topic=topic)
    assert found(place, topic) == sorted([*EXPECTED, *(BEFORE if topic == "t" else [])])


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_that_starts_while_tasks_run_stops_the_commit(place: Path, kind: str) -> None:
    """Nothing is published beside it; what is staged stays for the next run, or is removed."""
    with ExitStack() as later:

        def start() -> None:
            later.enter_context(running(HOLD, place / ".lock"))

        with pytest.raises(LogLockedError):
            run(place, kind, staged=start)
        assert found(place) == BEFORE
        assert [note.is_published for note in commits(place)] == ([] if kind == "nameless" else [False])
        assert bool(left(place)) == (kind != "nameless")
    run(place, kind)
    assert found(place) == sorted(EXPECTED + BEFORE)
    assert not left(place)


def is_held(file: Path) -> bool:
    """Whether another process cannot lock a file for itself, as a broker would."""
    try:
        with running(HOLD, file):
            return False
    except AssertionError:
        return True


def test_what_is_locked_while_it_is_published(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log dir and that partition; nothing before and after, so that tasks may take their time."""
    held: list[tuple[str, set[str]]] = []

    def look(when: str) -> None:
        files = (place / ".lock", *place.glob("t-?/.offsetlog.lock"))
        held.append((when, {str(path.relative_to(place)) for path in files if is_held(path)}))

    real = moving._copy  # noqa: SLF001  # the moment of publishing

    def copied(log: WritableLog, *arguments: Any) -> int:  # noqa: ANN401  # as they are
        look(Path(log.path).name)
        return real(log, *arguments)

    monkeypatch.setattr(moving, "_copy", copied)
    monkeypatch.setattr(publishing, "PARTITIONS_AT_ONCE", 1)
    run(place, "named", staged=lambda: look("staged"))
    look("done")
    during = {(name, frozenset({".lock", f"{name}/.offsetlog.lock"})) for name in ("t-0", "t-1", "t-2")}
    assert {(when, frozenset(files)) for when, files in held} == {("staged", frozenset()), *during, ("done", frozenset())}


def test_what_is_written_has_the_topics_settings_and_then_those_of_the_options(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 3, config={"compression.type": "gzip", "retention.ms": 5})
    codecs = []
    for number, more in enumerate(({}, {"compression.type": "lz4", "retention.ms": "7"})):
        settings = sink_settings_from({"path": str(tmp_path), "topic": "t", **more}, is_stream=False)
        prepare(settings)
        writer = OffsetLogWriter(settings, ["value", "partition"])
        rows = pa.RecordBatch.from_pydict({"value": [f"{number}" * 100], "partition": pa.array([0], pa.int32())})
        writer.commit([writer.write(iter([rows]))])
        with Log.open(tmp_path / "t-0") as log:
            codecs.append([batch.codec for batch in log.batches()][-1])
        with LogDir.open(tmp_path) as log_dir:
            # The topic keeps its own.
            stored = log_dir.topic_config("t")
            assert (stored.compression_type, stored.retention_ms) == ("gzip", 5)
    assert codecs == ["gzip", "lz4"]


@pytest.fixture
def broker(tmp_path: Path) -> Place:
    """A stopped broker's log dirs."""
    return reading_calls.made(tmp_path / "root")


def job(paths: list[Path], rows: dict[str, list[Any]], **options: str) -> None:
    """One task of a batch job."""
    settings = sink_settings_from({"path": ",".join(map(str, paths)), **options}, is_stream=False)
    prepare(settings)
    writer = OffsetLogWriter(settings, list(rows))
    columns = {name: pa.array(of, pa.int32()) if name == "partition" else pa.array(of) for name, of in rows.items()}
    messages: list[Any] = [writer.write(iter([pa.RecordBatch.from_pydict(columns)]))]
    try:
        writer.commit(messages)
    except Exception:
        writer.abort(messages)
        raise


def test_a_stopped_brokers_partition_is_continued_where_it_ends(broker: Place) -> None:
    """As by ``Log.append``: checkpoints move on, and the mark of a clean shutdown is there at the end."""
    before = {path.name: path.read_bytes() for path in broker.log.glob("*.log")}
    job(broker.dirs, {"value": ["new"], "partition": [0]}, topic="g-plain")
    assert all((broker.log / name).read_bytes().startswith(data) for name, data in before.items())
    with Log.open(broker.log) as log:
        assert [(record.offset, record.value) for record in log.scan(PLAIN.end)] == [(PLAIN.end, b"new")]
        assert not log.verify().damaged
    assert points(broker.dirs[0], RECOVERY)[KEY] == PLAIN.end + 1
    assert (broker.dirs[0] / MARK).exists()
    assert not list(broker.root.glob(f"*/*/{STAGING}"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("folder", "word"),
    [(".", "log-dir-1"), ("log-dir-1/g-plain-0", "partition"), ("log-dir-1/g-plain-0/new", "partition"), ("zookeeper", "ZooKeeper")],
)
def test_a_folder_that_is_something_else_is_refused(broker: Place, folder: str, word: str, kind: str) -> None:
    before = traces(broker.root)
    check_refused(lambda: run(broker.root / folder, kind), word)
    assert traces(broker.root) == before


def test_what_is_published_in_an_internal_topic_is_taken_back(broker: Place) -> None:
    """A commit removes there what it has appended itself, and nothing else."""
    topics = ["__consumer_offsets", "g-empty"]
    rows: dict[str, list[Any]] = {"topic": topics, "value": ["new", "new"], "partition": [0, 0]}

    def ends() -> list[int]:
        with LogDir.open(broker.dirs) as log_dir:
            return [log_dir.log(topic, 0).log_end_offset for topic in topics]

    (other,) = broker.root.glob("log-dir-?/g-empty-0")
    before = ends()
    with Log.open(other, "a"), pytest.raises(LogLockedError) as stopped:
        job(broker.dirs, rows)
    assert "nothing of it is published" in stopped.value.__notes__[0]
    assert ends() == before
    assert not commits(broker.dirs[0])
    job(broker.dirs, rows)
    assert ends() == [end + 1 for end in before]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_done_with_damage(place: Path, kind: str, damage: str, tmp_path: Path) -> None:
    """In one of three partitions. What is refused is published once when the file is there again as it was."""
    file = of_damage(place / "t-1", DAMAGES[damage])
    shutil.copytree(place, tmp_path / "whole")
    if not file.exists():
        # What only some partitions have.
        file.write_bytes(b"")
        (tmp_path / "whole").joinpath(file.relative_to(place)).write_bytes(b"")
    DAMAGES[damage].harm(file)
    before = records(place)
    refused: OffsetLogError | None = None
    try:
        run(place, kind)
    except OffsetLogError as error:
        refused = error
    after = records(place)
    assert not before - after, "lost"
    new = Counter(name for name, _, _ in (after - before).elements())
    assert (refused is not None) == (damage in OPENING), refused or "done"
    if refused is None:
        assert new == {"t-0": 10, "t-1": 10, "t-2": 10}
        return
    assert "t-1" in str(refused)
    # Each as a whole, or not at all.
    assert set(new.values()) <= {10}
    assert set(new) <= {"t-0", "t-2"}
    is_noted = kind != "nameless" and damage in {EPOCHS, SETTINGS}
    if not is_noted:
        # Without a name, and where not even the offsets can be read.
        assert not new
    assert [note.is_published for note in commits(place)] == [False] * is_noted
    assert bool(left(place)) == is_noted
    if file.is_dir():
        file.rmdir()
    shutil.copyfile((tmp_path / "whole").joinpath(file.relative_to(place)), file)
    run(place, kind)
    assert found(place) == sorted(EXPECTED + BEFORE)
    assert not left(place)


@pytest.mark.parametrize("where", ["in a task", "before the note", "while it publishes"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_failure_leaves(place: Path, kind: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    name = {"in a task": "append", "before the note": "write", "while it publishes": "move_to"}[where]
    owner: Any = staging.Stage if where == "in a task" else publishing
    real = getattr(owner, name)
    calls = 0

    def failing(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # as they are
        nonlocal calls
        calls += 1
        # Of three partitions the second; of a note the first one.
        if calls == 2 or where == "before the note":
            raise full
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, failing)
        patched.setattr(publishing, "PARTITIONS_AT_ONCE", 1)
        with pytest.raises(OSError, match="No space left"):
            run(place, kind, topic="new")
    has_begun = where == "while it publishes" and kind != "nameless"
    assert [note.is_published for note in commits(place)] == [False] * has_begun
    assert {path.parent.name for path in place.glob(f"*/{STAGING}")} == ({"new-0", "new-1", "new-2"} if has_begun else set())
    with LogDir.open(place) as log_dir:
        assert len(log_dir.topics()["new"]) == 3
    # The third one may be done before it is known that the second one failed.
    assert len(found(place, "new")) in ({10, 20} if has_begun else {0})
    assert found(place) == BEFORE
    run(place, kind, topic="new")
    assert found(place, "new") == EXPECTED
    assert not left(place)


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_cannot_succeed_waits_for_no_other_partition(
    place: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One is damaged, and another process holds one: it would be waited for, at most a minute. Here that is longer than a test may last."""
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 3600.0)
    has_begun, move_to = threading.Event(), moving.move_to

    def in_turn(
        commit: notes.Commit,
        target: notes.CommitTarget,
        *,
        still: Callable[[], None],
        patience: moving.Patience,
        failed: threading.Event | None = None,
    ) -> int:
        """The one that fails fails when the other one has begun: otherwise that is given up without a word."""
        if target.name == "t-2":
            has_begun.set()
        elif target.name == "t-1":
            assert has_begun.wait(60)
        return move_to(commit, target, still=still, patience=patience, failed=failed)

    monkeypatch.setattr(publishing, "move_to", in_turn)
    DAMAGES[EPOCHS].harm(of_damage(place / "t-1", DAMAGES[EPOCHS]))
    with Log.open(place / "t-2", "a"), pytest.raises(CheckpointError, match="t-1"):
        run(place, kind)
    assert "t-2 could not be published either: process " in caplog.text


MIB = 1 << 20
# Larger than a reader accepts by default: as it lies on the disk, and unpacked.
UNREADABLE_RECORDS = {
    "uncompressed": (b"x" * (100 * MIB), {"compression.type": "uncompressed"}, "max_batch_bytes", "maxBatchBytes"),
    "zstd": (b"x" * (300 * MIB), {"compression.type": "zstd"}, "max_decompressed_bytes", "maxDecompressedBytes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("codec", UNREADABLE_RECORDS)
def test_a_record_that_readers_would_not_accept_is_refused_by_its_task(tmp_path: Path, codec: str, is_stream: bool) -> None:
    """The rule *readable*: before anything is published, and nothing that was staged before it stays."""
    value, options, limit, option = UNREADABLE_RECORDS[codec]
    options = {"path": str(tmp_path), "topic": "t", "max.message.bytes": str(1 << 30), **options}
    settings = sink_settings_from(options | {"queryId" if is_stream else "transactionId": "large"}, is_stream=is_stream)
    prepare(settings)
    writer = (StreamWriter if is_stream else OffsetLogWriter)(settings, ["value", "partition"])
    rows = [
        pa.RecordBatch.from_pydict({"value": pa.array([each], pa.binary()), "partition": pa.array([0], pa.int32())})
        for each in (b"small", value)
    ]
    # Spark calls `write`, whose error names the option.
    with pytest.raises(LimitExceededError, match=f"above the limit {limit}, .*higher {limit if is_stream else option}\n"):
        writer.stage_rows(rows) if isinstance(writer, StreamWriter) else writer.write(iter(rows))
    assert not left(tmp_path)
    assert not commits(tmp_path)
    assert found(tmp_path) == []
