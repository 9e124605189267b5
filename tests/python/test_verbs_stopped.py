"""What ``docs/verbs.md`` says of the verbs that change files is tried in the log dirs of a stopped broker."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import reading_calls
from golden import DATA, rows
from reading_calls import PLAIN, Place
from test_no_trace import traces
from test_verbs_again import CHANGING, bytes_of
from verb_calls import STRAY, shell
from verbs_page import Row
from writing import LOCK, Clock, coded

import offsetlog
from offsetlog import ClusterError, Log, LogDir, LogDirError, OffsetLogError, TopicPartition

# What a cell says of a stopped broker's directory -> the tests below that show it; `None` where others do.
STOPPED: dict[str, set[str] | None] = {
    "*known folders*; loaded as a broker loads it; the first change removes the mark of a clean shutdown, and `close` writes it again": {
        "around",
        "mark",
    },
    "*known folders*; partitions are opened when used": {"around"},
    'as `Log.open(path, "a")`': {"around"},
    "removes lines of an older topic of this name from its checkpoints": {"older lines"},
    # `test_recover.py` compares with what a broker's recovery leaves.
    "*known folders*; like a broker's own recovery, but keeps what it cuts": {"around"},
    # `test_adopt.py`.
    "made for this: compared with the cluster's metadata, and refused if a broker would set it aside again": None,
    "read as it is on the disk; the topic's id is copied": {"copies"},
    # What is missing: `test_convert_missing.py`.
    "read as it is on the disk; the topic's id is copied; records that the log dir promises and the directory does not have are told, "
    "exit code 3": {"copies"},
    # `test_restore.py`.
    "made for this: replaces only empty partitions; writes checkpoints and the mark of a clean shutdown, so that the broker need not recover": None,
    # `test_mirror.py`, and above.
    "a DIR that is not a mirror of this cluster is refused": None,
    "continues where it ends; *internal topics*": {"appends"},
    "*known folders*; internal partitions too": {"around"},
    "*known folders*; *internal topics*": {"around", "internal"},
    "no entry of its checkpoints moves back": {"forward"},
    "as a broker rolls": {"rolls"},
    "lines in its checkpoints, and the mark of a clean shutdown if it was there": {"mark", "lines"},
    "*known folders*; with a broker's partition none are stored: `Log.config` holds while the log is open, the others refuse the topic": {
        "around"
    },
    "*internal topics*; its high watermark goes down too": {"internal", "down"},
    "*internal topics*; a line in its checkpoint": {"internal", "line"},
    "*internal topics*": {"internal"},
    "*internal topics*; its lines in the checkpoints are removed": {"internal", "removed lines"},
    "also a broker's own `-delete` folders, one delay after they were first seen": {"late"},
    "*known folders*; removes the note, no record": {"around", "note"},
}


def of_stopped(kind: str) -> list[str]:
    return [verb for row in CHANGING for verb in row.verbs if kind in (STOPPED.get(row.cells["stopped broker's directory"]) or ())]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.calls[0]) for row in CHANGING])
def test_every_row_is_tried(row: Row) -> None:
    told = row.cells["stopped broker's directory"]
    assert told in STOPPED, f"nothing here tries a stopped broker's directory of which is said {told!r}: say how"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A stopped broker's log dirs."""
    return reading_calls.made(tmp_path / "root")


def points(log_dir: Path, name: str) -> dict[tuple[str, int], int]:
    """The entries of a checkpoint: behind its version and their number, a line each."""
    _, count, *lines = (log_dir / name).read_text().splitlines()
    assert int(count) == len(lines)
    return {(topic, int(partition)): int(offset) for topic, partition, offset in (line.split(" ") for line in lines)}


RECOVERY, WATERMARKS, STARTS = (f"{name}-checkpoint" for name in ("recovery-point-offset", "replication-offset", "log-start-offset"))
CLEANER = "cleaner-offset-checkpoint"
MARK = ".kafka_cleanshutdown"
KEY = ("g-plain", 0)


def data_of(root: Path) -> dict[str, bytes | None]:
    """All but lock files."""
    return {name: data for name, data in bytes_of(root).items() if not name.endswith("lock")}


# Called on the folder around several log dirs.
AROUND: dict[str, Callable[[Path], object]] = {
    **dict.fromkeys(("Log.open", "Log.maintain", "Log.config"), lambda path: Log.open(path, "a")),
    **dict.fromkeys(("LogDir.open", "LogDir.log", "LogDir.maintain", "LogDir.set_topic_config"), lambda path: LogDir.open(path, "a")),
    "recover": offsetlog.recover,
    "offsetlog recover": shell("recover", "."),
    "end_transaction": lambda path: offsetlog.end_transaction(path, "g-txn", 0, 1000, commit=False),
    "offsetlog end-transaction": shell("end-transaction", "g-txn-0", "1000", ".", "--abort"),
    "offsetlog append": shell("append", ".", text="new\n"),
    "offsetlog maintain": shell("maintain", "."),
    "offsetlog settings": shell("settings", ".", "-t", "g-plain", "--config", "retention.ms=1"),
    "forget_commit": lambda path: offsetlog.forget_commit(path, "none"),
    "offsetlog commits": shell("commits", "--forget", "none", "."),
}


def check_refused(call: Callable[[], object], *words: str) -> None:
    """A folder that is something else is an error that says what to do."""
    try:
        done = call()
    except LogDirError as error:
        said = str(error)
    else:
        assert isinstance(done, subprocess.CompletedProcess), f"not refused: {done!r}"
        assert (done.returncode, done.stdout) == (2, ""), (done.stdout, done.stderr)
        said = done.stderr
    assert all(word in said for word in words), said


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """For verbs that are refused."""
    place = reading_calls.made(tmp_path_factory.mktemp("untouched") / "root")
    shutil.copytree(place.log, place.dirs[0] / STRAY)
    shutil.copytree(place.log, place.dirs[0] / STRAY.replace("stray", "delete"))
    return place


@pytest.mark.parametrize("verb", of_stopped("around"))
def test_the_folder_around_log_dirs_is_refused_with_the_paths_that_work(verb: str, untouched: Place) -> None:
    before = traces(untouched.root)
    check_refused(lambda: AROUND[verb](untouched.root), *(path.name for path in untouched.dirs))
    assert traces(untouched.root) == before


# What is called on a folder that is something else, and a word of what the refusal says.
ELSEWHERE: dict[str, tuple[Callable[[Place], object], str]] = {
    "a log dir as a partition": (lambda place: Log.open(place.dirs[0], "a"), "log dir"),
    "a log dir as a partition, by the command": (lambda place: shell("append", "log-dir-1", text="new\n")(place.root), "log dir"),
    "a partition as a log dir": (lambda place: LogDir.open(place.log, "a"), "partition"),
    "a partition in a partition": (lambda place: Log.open(place.log / "new-0", "a"), "partition"),
    "a log dir in a partition": (lambda place: LogDir.open(place.log / "new", "a"), "partition"),
    "a topic in a partition": (lambda place: shell("create", "new", "log-dir-1/g-plain-0")(place.root), "partition"),
    "ZooKeeper's data as a log dir": (lambda place: LogDir.open(place.root / "zookeeper", "a"), "ZooKeeper"),
    "a partition in ZooKeeper's data": (lambda place: Log.open(place.root / "zookeeper/new-0", "a"), "ZooKeeper"),
    "a log that is converted into itself": (lambda place: offsetlog.convert(place.log, place.log / "new-0"), "directory to be"),
    "a directory that was set aside": (lambda place: Log.open(place.dirs[0] / STRAY, "a"), "move it out"),
    "one that is set aside, recovered": (lambda place: offsetlog.recover(place.dirs[0] / STRAY), "move it out"),
    "a deleted one": (lambda place: Log.open(place.dirs[0] / STRAY.replace("stray", "delete"), "a"), "move it out"),
    "a deleted one, by the command": (lambda place: shell("append", f"log-dir-1/{STRAY}", text="new\n")(place.root), "move it out"),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_a_folder_that_is_something_else_is_refused(what: str, untouched: Place) -> None:
    call, word = ELSEWHERE[what]
    before = traces(untouched.root)
    check_refused(lambda: call(untouched), word)
    assert traces(untouched.root) == before


def test_a_directory_that_was_moved_out_is_written(place: Place, tmp_path: Path) -> None:
    out = shutil.move(place.log, tmp_path / "g-plain-0")
    with Log.open(out, "a") as log:
        assert log.append(b"new") == PLAIN.end


def test_a_symbolic_link_into_a_log_dir_is_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / "g-plain-0").symlink_to(place.log)
    before = traces(place.root)
    with pytest.raises(OffsetLogError, match="link"):
        Log.open(tmp_path / "g-plain-0", "a")
    assert traces(place.root) == before


def write_new(log: offsetlog.WritableLog) -> None:
    with log.writer() as writer:
        writer.append(b"new")
        writer.flush()


def append_a_log(log: offsetlog.WritableLog) -> None:
    path = Path(log.path).parents[1] / "source-0"
    with Log.open(path, "a") as source:
        source.append(b"new")
    with Log.open(path) as source:
        log.append_log(source)


BATCH = coded(b"new", base_offset=PLAIN.end, leader_epoch=4)
# A verb that appends one record behind offset 199.
APPENDS: dict[str, Callable[[offsetlog.WritableLog], object]] = {
    "Log.append": lambda log: log.append(b"new"),
    "Log.append_records": lambda log: log.append_records([b"new"]),
    "Log.append_batches": lambda log: log.append_batches(coded(b"new")),
    "Log.append_marker": lambda log: log.append_marker(1, 0, commit=False),
    "Log.append_as_follower": lambda log: log.append_as_follower(BATCH),
    "Log.append_log": append_a_log,
    "Log.append_arrow": lambda log: log.append_arrow(pa.RecordBatch.from_pydict({"value": pa.array([b"new"])})),
    **dict.fromkeys(("Log.writer", "Writer.append", "Writer.flush", "Writer.close"), write_new),
}


@pytest.mark.parametrize("verb", of_stopped("appends"))
def test_appending_continues_where_the_broker_ended(verb: str, place: Place) -> None:
    """Nothing of what is there changes, but for its indexes' spare room."""
    before = {path.name: path.read_bytes() for path in place.log.glob("*.log")}
    if verb == "LogDir.append":
        with LogDir.open(place.dirs, "a") as log_dir:
            assert log_dir.append("g-plain", b"new", partition=0).offset == PLAIN.end
    else:
        with Log.open(place.log, "a") as log:
            APPENDS[verb](log)
            assert (log.log_start_offset, log.log_end_offset) == (PLAIN.start, PLAIN.end + 1)
    assert all((place.log / name).read_bytes().startswith(data) for name, data in before.items())
    with Log.open(place.log) as log:
        seen = list(log.scan())
        assert rows(seen[: PLAIN.end]) == PLAIN.rows
        assert [(each.offset, each.value) for each in seen[PLAIN.end :]] == (
            [] if verb == "Log.append_marker" else [(PLAIN.end, b"new")]
        )
        assert not log.verify().damaged


def test_opening_and_closing_without_a_change_changes_nothing(place: Place) -> None:
    """But for lock files; a broker that starts then need not recover."""
    before = data_of(place.root)
    with Log.open(place.log, "a") as log:
        assert (log.recovery_report.clean, log.log_end_offset, log.high_watermark) == (True, PLAIN.end, PLAIN.end)
    with LogDir.open(place.dirs, "a") as log_dir:
        # Partitions are opened when used.
        assert TopicPartition("g-plain", 1) in log_dir.partitions()
    assert not list(place.dirs[1].glob(f"*/{LOCK}"))
    assert data_of(place.root) == before


def test_the_mark_of_a_clean_shutdown_goes_with_the_first_change_and_comes_back(place: Place) -> None:
    mark = place.dirs[0] / MARK
    with Log.open(place.log, "a") as log:
        assert mark.exists()
        log.append(b"new")
        assert not mark.exists()
    assert mark.exists()
    with LogDir.open(place.dirs, "a") as log_dir:
        log_dir.append("g-plain", b"more", partition=0)
        assert not mark.exists()
    assert mark.exists()
    mark.unlink()
    with Log.open(place.log, "a", clean=True) as log:
        log.append(b"new")
    # Where it was not, a broker must still recover the other partitions.
    assert not mark.exists()


@pytest.mark.parametrize("verb", of_stopped("lines"))
def test_closing_writes_lines_into_the_checkpoints_and_leaves_all_others(verb: str, place: Place) -> None:
    before = {name: points(place.dirs[0], name) for name in (RECOVERY, WATERMARKS, STARTS, CLEANER)}
    if verb == "Log.close":
        with Log.open(place.log, "a") as log:
            log.append(b"new")
    else:
        with LogDir.open(place.dirs, "a") as log_dir:
            log_dir.append("g-plain", b"new", partition=0)
    end = PLAIN.end + 1
    for name in (RECOVERY, WATERMARKS):
        assert points(place.dirs[0], name) == {**before[name], KEY: end}, name
    for name in (STARTS, CLEANER):
        assert {key: at for key, at in points(place.dirs[0], name).items() if key != KEY} == before[name], name


@pytest.mark.parametrize("verb", of_stopped("forward"))
def test_flushing_moves_no_entry_of_a_checkpoint_back(verb: str, place: Place) -> None:
    before = {name: points(place.dirs[0], name) for name in (RECOVERY, WATERMARKS, STARTS)}
    with LogDir.open(place.dirs, "a") as log_dir:
        log = log_dir.log("g-plain", 0)
        log.append(b"new")
        (log if verb == "Log.flush" else log_dir).flush()
        assert log.recovery_point == PLAIN.end + 1
        for name, of in before.items():
            now = points(place.dirs[0], name)
            assert all(now[key] >= at for key, at in of.items()), name


@pytest.mark.parametrize("verb", of_stopped("rolls"))
def test_rolling_makes_the_files_that_a_broker_makes(verb: str, place: Place) -> None:
    """The next segment begins at the end, a snapshot of producers has its offset, and the old indexes are cut to their entries.

    A broker makes a segment's indexes when it first needs them.
    """
    assert verb == "Log.roll"
    with Log.open(place.log, "a") as log:
        log.append(b"new")
        log.roll()
        assert log.segments[-1].base_offset == PLAIN.end + 1
        old, new = f"{155:020}", f"{PLAIN.end + 1:020}"
        names = {path.name for path in place.log.iterdir()}
        assert {f"{new}{suffix}" for suffix in (".log", ".snapshot")} <= names
        for suffix, size in ((".index", 8), (".timeindex", 12)):
            data = (place.log / f"{old}{suffix}").read_bytes()
            assert len(data) % size == 0
            assert any(data[-size:])


@pytest.mark.parametrize("verb", of_stopped("older lines"))
def test_a_new_topic_has_no_line_of_an_older_one(verb: str, place: Place) -> None:
    for name in (RECOVERY, WATERMARKS, STARTS, CLEANER):
        path = place.dirs[0] / name
        version, count, *lines = path.read_text().splitlines()
        path.write_text("\n".join([version, str(int(count) + 1), *lines, "new 0 77"]) + "\n")
    if verb == "LogDir.create_topic":
        with LogDir.open(place.dirs[0], "a") as log_dir:
            log_dir.create_topic("new", 1)
    else:
        done = shell("create", "new", "log-dir-1")(place.root)
        assert done.returncode == 0, done.stderr
    with LogDir.open(place.dirs[0]) as log_dir:
        new = TopicPartition("new", 0)
        assert (log_dir.beginning_offsets()[new], log_dir.end_offsets()[new]) == (0, 0)
    assert all(("new", 0) not in points(place.dirs[0], name) for name in (RECOVERY, WATERMARKS, STARTS, CLEANER))


COPIES: dict[str, Callable[[Place, Path], object]] = {
    "salvage": lambda place, to: offsetlog.salvage(place.log, to),
    "offsetlog salvage": lambda place, to: shell("salvage", "log-dir-1/g-plain-0", "--into", str(to.parent))(place.root),
    "convert": lambda place, to: offsetlog.convert(place.log, to),
    "offsetlog convert": lambda place, to: shell("convert", "log-dir-1/g-plain-0", str(to))(place.root),
}


@pytest.mark.parametrize("verb", of_stopped("copies"))
def test_a_stopped_brokers_partition_is_copied_with_its_id(verb: str, place: Place, tmp_path: Path) -> None:
    to = tmp_path / "new/g-plain-0"
    to.parent.mkdir()
    before = traces(place.root)
    COPIES[verb](place, to)
    assert traces(place.root) == before
    assert (to / "partition.metadata").read_bytes() == (place.log / "partition.metadata").read_bytes()
    with Log.open(to) as log:
        assert [each[:2] + each[4:] for each in rows(log.scan())] == [each[:2] + each[4:] for each in PLAIN.rows]


INTERNAL = "__consumer_offsets"
AGAINST_THE_BROKER: dict[str, Callable[[Place], object]] = {
    "Log.truncate_to": lambda place: with_internal(place, lambda log: log.truncate_to(5)),
    "Log.truncate_fully_and_start_at": lambda place: with_internal(place, lambda log: log.truncate_fully_and_start_at(100)),
    "Log.delete_records_before": lambda place: with_internal(place, lambda log: log.delete_records_before(5)),
    "Log.compact": lambda place: with_internal(place, lambda log: log.compact()),
    "Log.maintain": lambda place: with_internal(place, lambda log: log.maintain(config={"retention.ms": 1})),
    "LogDir.delete_topic": lambda place: with_dirs(place, lambda log_dir: log_dir.delete_topic(INTERNAL)),
    "offsetlog delete": lambda place: shell("delete", INTERNAL, *map(str, place.dirs))(place.root),
}


def with_internal(place: Place, call: Callable[[offsetlog.WritableLog], object], **options: Any) -> object:  # noqa: ANN401
    with Log.open(place.dirs[0] / f"{INTERNAL}-0", "a", **options) as log:
        return call(log)


def with_dirs(place: Place, call: Callable[[offsetlog.WritableLogDir], object], **options: Any) -> object:  # noqa: ANN401
    with LogDir.open(place.dirs, "a", **options) as log_dir:
        return call(log_dir)


@pytest.mark.parametrize("verb", [verb for verb in of_stopped("internal") if verb in AGAINST_THE_BROKER])
def test_internal_topics_are_refused_unless_they_are_named(verb: str, place: Place) -> None:
    before = data_of(place.root)
    try:
        done = AGAINST_THE_BROKER[verb](place)
    except ClusterError as error:
        said = str(error)
    else:
        assert isinstance(done, subprocess.CompletedProcess), f"not refused: {done!r}"
        assert done.returncode == 2, done.stderr
        said = done.stderr
    assert INTERNAL in said
    assert data_of(place.root) == before


def test_internal_topics_that_are_named_are_changed(place: Place) -> None:
    with_internal(place, lambda log: log.truncate_to(10), internal_topics=INTERNAL)
    with Log.open(place.dirs[0] / f"{INTERNAL}-0") as log:
        assert log.log_end_offset == 10
    with_dirs(place, lambda log_dir: log_dir.delete_topic(INTERNAL), internal_topics=[INTERNAL])
    with LogDir.open(place.dirs) as log_dir:
        assert INTERNAL not in log_dir.topics()


def test_maintaining_leaves_internal_topics_alone_and_lists_them(place: Place) -> None:
    with LogDir.open(place.dirs, "a") as log_dir:
        before = data_of(place.root)
        report = log_dir.maintain(now=reading_calls.NOW)
        assert {key.topic for key in report.internal} >= {INTERNAL, "__transaction_state"}
        # Without `server.properties` nobody knows what may go of the others.
        assert not report.partitions
        assert data_of(place.root) == before
    done = shell("maintain", *map(str, place.dirs))(place.root)
    assert f"{INTERNAL}-0" not in done.stdout
    assert {name: data for name, data in data_of(place.root).items() if INTERNAL in name} == {
        name: data for name, data in before.items() if INTERNAL in name
    }


@pytest.mark.parametrize("verb", of_stopped("down"))
def test_the_high_watermark_goes_down_with_the_end(verb: str, place: Place) -> None:
    with Log.open(place.log, "a") as log:
        log.truncate_to(111) if verb == "Log.truncate_to" else log.truncate_fully_and_start_at(50)
    end = 111 if verb == "Log.truncate_to" else 50
    assert points(place.dirs[0], WATERMARKS)[KEY] <= end
    assert points(place.dirs[0], RECOVERY)[KEY] <= end
    with Log.open(place.log) as log:
        assert (log.log_end_offset, log.high_watermark) == (end, end)


@pytest.mark.parametrize("verb", of_stopped("line"))
def test_the_log_start_offset_is_a_line_in_the_checkpoint(verb: str, place: Place) -> None:
    assert verb == "Log.delete_records_before"
    before = points(place.dirs[0], STARTS)
    with Log.open(place.log, "a") as log:
        log.delete_records_before(70)
    assert points(place.dirs[0], STARTS) == {**before, KEY: 70}
    with Log.open(place.log) as log:
        assert next(iter(log.scan())).offset == 70


@pytest.mark.parametrize("verb", of_stopped("removed lines"))
def test_a_deleted_topic_has_no_lines_in_the_checkpoints(verb: str, place: Place) -> None:
    before = {(log_dir, name): points(log_dir, name) for log_dir in place.dirs[:2] for name in (RECOVERY, WATERMARKS, STARTS)}
    if verb == "LogDir.delete_topic":
        with_dirs(place, lambda log_dir: log_dir.delete_topic("g-plain"))
    else:
        done = shell("delete", "g-plain", *map(str, place.dirs))(place.root)
        assert done.returncode == 0, done.stderr
    for (log_dir, name), of in before.items():
        assert points(log_dir, name) == {key: at for key, at in of.items() if key[0] != "g-plain"}, name


@pytest.mark.parametrize("verb", of_stopped("late"))
def test_a_brokers_deleted_folder_is_removed_a_delay_after_it_was_first_seen(verb: str, place: Place) -> None:
    assert verb == "LogDir.remove_deleted"
    waiting = place.dirs[0] / STRAY.replace("stray", "delete")
    place.log.rename(waiting)
    clock = Clock(reading_calls.NOW)
    with LogDir.open(place.dirs, "a", clock=clock) as log_dir:
        log_dir.remove_deleted()
        assert waiting.exists()
        clock.now += 59_000
        log_dir.remove_deleted()
        assert waiting.exists()
        clock.now += 2_000
        log_dir.remove_deleted()
        assert not waiting.exists()
        assert (place.dirs[0] / "g-plain-2").exists()


@pytest.mark.parametrize("verb", of_stopped("note"))
def test_forgetting_removes_the_note_and_no_record(verb: str, place: Place) -> None:
    (note,) = (DATA / "spark-commits").glob("*.json")
    shutil.copy(note, place.dirs[0])
    (name,) = (each.name for each in offsetlog.commits(place.dirs[0]))
    before = data_of(place.root)
    if verb == "forget_commit":
        offsetlog.forget_commit(place.dirs[0], name)
    else:
        done = shell("commits", "--forget", name, "log-dir-1")(place.root)
        assert done.returncode == 0, done.stderr
    assert data_of(place.root) == {path: data for path, data in before.items() if not path.endswith(note.name)}
