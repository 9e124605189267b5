"""What ``docs/verbs.md`` says of reading with Spark is tried, cell by cell; what other tests show is named by their files and functions.

Here the source's own classes are driven as Spark does, and in place of a session there is what the direct APIs ask of one. What needs
Spark itself is in ``tests/spark``.
"""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import reading_calls
import verbs_page
from golden import named
from reading_answers import flipped
from reading_calls import DAMAGES, PLAIN, Place
from small_disk import run_there, small_disk
from test_no_trace import traces
from verbs_page import Row
from writing import CONFIG, HOLD, python, running

import offsetlog.spark
from offsetlog import Log, LogDirError, Scan
from offsetlog.spark import OffsetLogSource, ReadReport
from offsetlog.spark.stream import StreamReader
from offsetlog.spark.stream_options import stream_settings_from

HERE = "python/test_verbs_of_spark_reading.py"
NO_TRACE, DIRECT, GIVEN = "spark/test_spark_no_trace.py", "spark/test_spark_direct.py", "spark/test_spark_given.py"
QUERIES, CRASHES = "spark/test_spark_stream_queries.py", "spark/test_spark_stream_crashes.py"
PLANNING, FOLDERS, REPORT = "spark/test_spark_planning.py", "spark/test_spark_folders.py", "spark/test_spark_report.py"
PURE = {
    f"{HERE}::test_what_looks_at_no_file_says_the_same_again",
    "spark/test_spark_registration.py::test_registering_looks_at_no_file",
}
TRACELESS = {f"{HERE}::test_no_trace_and_no_lock", f"{NO_TRACE}::test_no_trace_also_beside_a_broker"}
NAMES_DAMAGE = {f"{HERE}::test_damage_is_named_by_what_reads_it", f"{NO_TRACE}::test_damage_is_named_and_changes_nothing"}
NO_READ = f"{NO_TRACE}::test_a_table_is_made_beside_a_broker_without_a_trace_and_is_not_read"
GOES_ON = f"{QUERIES}::test_a_micro_batch_that_failed_is_read_again_with_the_same_offsets"
PLANNED = f"{HERE}::test_what_was_planned_is_read_and_the_next_call_plans_again"
ROOMLESS = f"{HERE}::test_on_a_full_disk_and_a_read_only_one_the_rows_are_the_same"

READS = [row for row in verbs_page.rows(verbs_page.text()) if row.group == "Read with Spark"]
# What a cell says -> the tests that show it.
SAID: dict[str, dict[str, set[str]]] = {
    "changes files": {"no": TRACELESS | PURE | {NO_READ, "spark/test_spark_drivers.py::test_a_table_changes_no_file"}},
    "locks": {"none": TRACELESS | PURE | {NO_READ}},
    "settings": {
        "options only": {f"{HERE}::test_stored_settings_change_no_row_and_options_do", f"{DIRECT}::test_a_scan_takes_python_values"},
        "Spark keeps no options: reading the table is refused, a view is not": {
            NO_READ,
            f"{GIVEN}::test_tables_of_the_catalog_say_that_spark_keeps_no_options",
            f"{GIVEN}::test_views_are_read_and_inserted_into",
        },
        "none": PURE,
    },
    "other replicas": {
        "the newest valid one": {
            f"{HERE}::test_the_newest_valid_replica_is_read",
            f"{PLANNING}::test_of_directories_with_the_same_partition_the_newest_valid_replica_is_read",
        },
        "not asked": PURE | {NO_READ},
    },
    "running broker": {
        "fine: *no trace*; planning fixes the ends": TRACELESS
        | {PLANNED, "spark/test_spark_data_loss.py::test_a_log_that_grows_raises_no_alarm"},
        "fine: *no trace*": TRACELESS | {NO_READ},
        "looks at no file": PURE,
    },
    "stopped broker's directory": {
        "*known folders*": {
            f"{HERE}::test_folders_are_known_by_what_they_hold",
            f"{FOLDERS}::test_the_folder_around_log_dirs_is_refused_with_the_paths_that_work",
            f"{FOLDERS}::test_the_paths_that_it_names_work",
            NO_READ,
        },
        "looks at no file": PURE,
    },
    "damaged directory": {
        "fails the task: *named damage*; `onCorrupt=skip` continues": NAMES_DAMAGE
        | {
            f"{HERE}::test_what_skips_damage_reads_all_the_rest",
            "spark/test_spark_options.py::test_damage_fails_the_task_and_says_where",
            f"{REPORT}::test_damage_is_left_out",
        },
        "fails the query: *named damage*": NAMES_DAMAGE | {GOES_ON},
        "*named damage*": NAMES_DAMAGE,
        "looks at no record": {NO_READ},
        "looks at no file": PURE,
    },
    "full disk": {
        "needs no room": {ROOMLESS, *PURE},
        "needs no room here; the checkpoint is Spark's": {ROOMLESS},
        # Making a table asks the source for its schema, and no more.
        "needs no room here; the catalog is Spark's": {ROOMLESS, NO_READ},
    },
    "second call": {
        "plans again, or reads the same as planned": {PLANNED, "spark/test_spark_filters.py::test_a_frame_may_be_used_again"},
        "continues where the checkpoint ends": {f"{QUERIES}::test_available_now_goes_on_where_it_was"},
        "plans again; a frame reads what was planned, `lookup` what is there by then": {PLANNED},
        "refused: the table is there": {NO_READ},
        "the same": PURE,
    },
    "failure leaves": {
        "nothing here": {
            f"{HERE}::test_damage_is_named_by_what_reads_it",
            "spark/test_spark_drivers.py::test_a_table_that_cannot_be_made_is_not_there",
        },
        "the checkpoint; the micro-batch is read again with the same offsets": {
            GOES_ON,
            f"{CRASHES}::test_a_crash_in_the_first_micro_batch",
            f"{CRASHES}::test_every_record_comes_once_whatever_dies",
        },
        "nothing": PURE,
    },
}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.calls[0]) for row in READS])
@pytest.mark.parametrize("column", verbs_page.COLUMNS[1:])
def test_every_cell_is_tried(row: Row, column: str) -> None:
    told = row.cells[column]
    assert told in SAID[column], f"nothing tries {column!r} of which is said {told!r}: say how"
    assert not verbs_page.missing_tests(SAID[column][told])


def test_every_row_and_verb_of_the_table_is_tried() -> None:
    verbs = {verb for row in READS for verb in row.verbs}
    # Those of a session are in `tests/spark`.
    assert verbs == {*CALLS, *LOOKS_AT_NOTHING, "offsetlog.spark.register", "CREATE TABLE … USING offsetlog"}
    told = {column: {row.cells[column] for row in READS} for column in SAID}
    assert told == {column: set(cells) for column, cells in SAID.items()}


TOPIC = "g-plain"
COLUMNS = ("partition", "offset", "value")
GOLDENS = named("g-plain-0", "g-plain-1", "g-plain-2")
Rows = list[tuple[int, int, bytes | None]]
EXPECTED: Rows = sorted((each.partition, seen.offset, seen.value) for each in GOLDENS for seen in each.rows)


class Work:
    """What workers are given, done here: an RDD of these items, or a frame of their numbers."""

    def __init__(self, items: Sequence[Any], work: Callable[[Any], Any] | None = None) -> None:
        self._items = items
        self._work = work

    def map(self, work: Callable[[Any], Any]) -> Work:
        return Work(self._items, work)

    def collect(self) -> list[Any]:
        assert self._work is not None
        return [self._work(item) for item in self._items]

    def mapInArrow(self, work: Callable[[Any], Iterable[pa.RecordBatch]], _: object) -> Work:  # noqa: N802  # PySpark's name
        return Work([iter([pa.RecordBatch.from_pydict({"id": [item]})]) for item in self._items], lambda rows: list(work(rows)))

    def again(self) -> list[pa.RecordBatch]:
        """An action on a frame, which gives each task its number anew."""
        count = len(self._items)
        fresh = [iter([pa.RecordBatch.from_pydict({"id": [number]})]) for number in range(count)]
        return [batch for batches in Work(fresh, self._work).collect() for batch in batches]


class Told:
    """An accumulator."""

    def __init__(self, value: Any, kind: Any) -> None:  # noqa: ANN401  # PySpark's
        self._value, self._kind = value, kind

    def add(self, more: Any) -> None:  # noqa: ANN401
        self._value = self._kind.addInPlace(self._value, more)


class Session:
    """As much of a session, and of its context, as the direct APIs ask for."""

    defaultParallelism = 2  # noqa: N815  # PySpark's name

    @property
    def sparkContext(self) -> Session:  # noqa: N802
        return self

    def parallelize(self, items: Sequence[Any], _: int) -> Work:
        return Work(items)

    def range(self, start: int, end: int, _step: int, _partitions: int) -> Work:
        return Work(range(start, end))

    def accumulator(self, value: object, kind: object) -> Told:
        return Told(value, kind)


SESSION: Any = Session()
Read = Callable[[], Rows]


def rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    return sorted(tuple(row[name] for name in COLUMNS) for batch in batches for row in batch.to_pylist())


def asked(options: dict[str, str]) -> dict[str, str]:
    topics = {} if "assign" in options else {"subscribe": TOPIC}
    return {"columns": ",".join(COLUMNS), **topics, **options}


def batch_query(paths: Sequence[Path], **options: str) -> Read:
    source = pickle.loads(pickle.dumps(OffsetLogSource({"path": ",".join(map(str, paths)), **asked(options)})))
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    return lambda: rows(batch for task in tasks for batch in reader.read(task))


def stream(paths: Sequence[Path], **options: str) -> Read:
    """The first micro-batch of a new query."""
    settings = stream_settings_from({"path": ",".join(map(str, paths)), "startingOffsets": "earliest", **asked(options)})
    driver, worker = StreamReader(settings), StreamReader(settings)
    tasks = pickle.loads(pickle.dumps(driver.partitions(driver.initialOffset(), driver.latestOffset())))
    return lambda: rows(batch for task in tasks for batch in worker.read(task))


def frame(paths: Sequence[Path], **options: str) -> Read:
    made: Any = offsetlog.spark.scan(SESSION, list(paths), **asked(options))  # type: ignore[arg-type]  # each by its name
    return lambda: rows(made.again())


def over_splits(paths: Sequence[Path], **options: str) -> Read:
    ranges = offsetlog.spark.splits(list(paths), slots=2, **asked(options))  # type: ignore[arg-type]  # each by its name
    on_corrupt: Any = options.get("onCorrupt", "raise")
    return lambda: sorted((seen.partition, seen.offset, seen.value) for seen in Scan.over(ranges, on_corrupt=on_corrupt))


def mapped(paths: Sequence[Path], **options: str) -> Read:
    def read() -> Rows:
        done: Any = offsetlog.spark.map_splits(SESSION, list(paths), rows, **asked(options))  # type: ignore[arg-type]  # each by its name
        return sorted(row for task in done for row in task.result)

    return read


def looked_up(paths: Sequence[Path], **options: str) -> Read:
    """Every offset that is or will be there; it has no options but its arguments."""
    value: Any = offsetlog.spark.lookup(list(paths), options.get("what", "value"))

    def read() -> Rows:
        offsets = [(each.partition, offset) for each in GOLDENS for offset in range(each.end + 5)]
        found = [(*at, value.func(TOPIC, *at)) for at in offsets]
        return [row for row in found if row[2] is not None]

    return read


CALLS: dict[str, Callable[..., Read]] = {
    "spark.read": batch_query,
    # Spark makes the same source of a view's options.
    "CREATE TEMPORARY VIEW … USING offsetlog": batch_query,
    "spark.readStream": stream,
    "offsetlog.spark.scan": frame,
    "offsetlog.spark.splits": over_splits,
    "offsetlog.spark.map_splits": mapped,
    "offsetlog.spark.lookup": looked_up,
}
# These plan and read in one call, or do not plan.
AT_ONCE = {"offsetlog.spark.map_splits", "offsetlog.spark.lookup"}
# It gives no value where a record has none, as where there is no record.
NOT_NULL = [row for row in EXPECTED if row[2] is not None]


def expected(verb: str) -> Rows:
    return NOT_NULL if verb == "offsetlog.spark.lookup" else EXPECTED


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return reading_calls.made(tmp_path / "root")


def locked(root: Path) -> set[str]:
    """Files below a folder on which any process has a lock."""
    inodes = {line.split()[-3].rpartition(":")[2] for line in Path("/proc/locks").read_text().splitlines()}
    return {name for name, entry in traces(root).items() if str(entry.inode) in inodes}


@pytest.mark.parametrize("verb", CALLS)
def test_no_trace_and_no_lock(verb: str, place: Place) -> None:
    """Also while a broker has the log dirs, and others of ours have the partitions."""
    partitions = [path for folder in place.dirs for path in folder.iterdir() if path.is_dir()]
    locks = [*(folder / ".lock" for folder in place.dirs), *(path / ".offsetlog.lock" for path in partitions)]
    for path in locks:
        path.touch()
    before = traces(place.root)
    read = CALLS[verb](place.dirs)
    assert not locked(place.root)
    assert read() == expected(verb)
    assert not locked(place.root)
    assert traces(place.root) == before
    with running(HOLD, *locks):
        assert CALLS[verb](place.dirs)() == expected(verb)
        assert traces(place.root) == before


OTHERS = (
    b"version: 0\ncleanup.policy=compact\nmax.message.bytes=1\nmessage.timestamp.type=LogAppendTime\nretention.ms=1\nsegment.ms=1\n"
)


@pytest.mark.parametrize("verb", CALLS)
def test_stored_settings_change_no_row_and_options_do(verb: str, place: Place) -> None:
    for text in (OTHERS, b"\xffno settings\n"):
        for path in place.root.glob("log-dir-?/*-*/"):
            (path / CONFIG).write_bytes(text)
        assert CALLS[verb](place.dirs)() == expected(verb)
    if verb == "offsetlog.spark.lookup":
        keys = {(each.partition, seen.offset): seen.key for each in GOLDENS for seen in each.rows}
        assert looked_up(place.dirs, what="key")() == [(*at, key) for at, key in sorted(keys.items()) if key is not None]
        return
    options = {"assign": json.dumps({TOPIC: [2]})}
    assert CALLS[verb](place.dirs, **options)() == [row for row in EXPECTED if row[0] == 2]
    limits = {"assign": json.dumps({TOPIC: [0]}), "startingOffsets": json.dumps({TOPIC: {"0": 150}})}
    assert CALLS[verb](place.dirs, **limits)() == [row for row in EXPECTED if row[0] == 0 and row[1] >= 150]


@pytest.mark.parametrize("verb", CALLS)
def test_the_newest_valid_replica_is_read(verb: str, tmp_path: Path) -> None:
    """Of three brokers' log dirs, whichever is named last."""
    dirs = [tmp_path / name for name in ("whole", "short", "damaged")]
    _, short, _ = (PLAIN.copy(path, checkpoints=False) for path in dirs)
    for segment in sorted(short.glob("*.log"))[2:]:
        segment.unlink()
    flipped(tmp_path, f"damaged/g-plain-0/{0:020}.log", first=True)
    wanted = [row for row in expected(verb) if row[0] == 0]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        paths = [dirs[number] for number in order]
        if verb == "offsetlog.spark.lookup":
            value: Any = offsetlog.spark.lookup(paths, "value")
            assert [value.func(TOPIC, 0, offset) for _, offset, _ in wanted] == [row[2] for row in wanted]
        else:
            assert CALLS[verb](paths)() == wanted


@pytest.mark.parametrize("verb", CALLS)
def test_folders_are_known_by_what_they_hold(verb: str, place: Place) -> None:
    """A log dir is one, though it is named like a partition; of what was set aside nothing is read; the folder around is refused."""
    (place.dirs[0] / "g-plain-1").mkdir(exist_ok=True)
    aside = place.dirs[1] / f"g-plain-7.{'0123456789abcdef' * 2}-stray"
    aside.mkdir()
    for file in place.log.iterdir():
        (aside / file.name).write_bytes(file.read_bytes())
    assert [path.name for path in place.dirs[:2]] == ["log-dir-1", "log-dir-2"]
    before = traces(place.root)
    assert CALLS[verb](place.dirs)() == expected(verb)
    with pytest.raises(LogDirError, match="the folder around") as refused:
        CALLS[verb]([place.root])()
    assert all(str(path) in str(refused.value) for path in place.dirs)
    assert traces(place.root) == before


def test_a_partitions_directory_needs_no_topic(place: Place) -> None:
    """And gives its own records alone."""
    wanted = [row for row in EXPECTED if row[0] == 0]
    source = OffsetLogSource({"path": str(place.log), "columns": ",".join(COLUMNS)})
    reader: Any = source.reader(source.schema())
    assert rows(batch for task in reader.partitions() for batch in reader.read(task)) == wanted


@pytest.mark.parametrize("verb", CALLS)
def test_damage_is_named_by_what_reads_it(verb: str, place: Place) -> None:
    """Planning does not read it, the other partitions are read, and nothing is left behind a failure."""
    bad = DAMAGES["a record"](place.root)
    before = traces(place.root)
    read = CALLS[verb](place.dirs)
    # What reads through Arrow says all in words.
    with pytest.raises(Exception, match=f"checksum.*{bad.place}") as failed:
        read()
    assert f"position {bad.position}" in str(failed.value)
    assert f"offset {bad.offset}" in str(failed.value)
    if verb == "offsetlog.spark.lookup":
        value: Any = offsetlog.spark.lookup(place.dirs, "value")
        found = {(at, offset): value.func(TOPIC, at, offset) for at, offset, _ in NOT_NULL if at != 0 or offset not in bad.lost}
        assert found == {row[:2]: row[2] for row in NOT_NULL if row[:2] in found}
    else:
        others = CALLS[verb](place.dirs, assign=json.dumps({TOPIC: [1, 2]}))
        assert others() == [row for row in EXPECTED if row[0] != 0]
    assert traces(place.root) == before
    assert not locked(place.root)


@pytest.mark.parametrize("verb", [verb for verb in CALLS if verb != "offsetlog.spark.lookup"])
def test_what_skips_damage_reads_all_the_rest(verb: str, place: Place) -> None:
    bad = DAMAGES["a record"](place.root)
    assert CALLS[verb](place.dirs, onCorrupt="skip")() == [row for row in EXPECTED if row[0] != 0 or row[1] not in bad.lost]


@pytest.mark.parametrize("verb", CALLS)
def test_what_was_planned_is_read_and_the_next_call_plans_again(verb: str, tmp_path: Path) -> None:
    for number in (1, 2):
        Log.open(tmp_path / f"g-plain-{number}", "a").close()
    with Log.open(tmp_path / "g-plain-0", "a") as log:
        log.append_records([b"one", b"two"])
        before: Rows = [(0, 0, b"one"), (0, 1, b"two")]
        read = CALLS[verb]([tmp_path])
        assert read() == before
        log.append(b"three")
        after: Rows = [*before, (0, 2, b"three")]
        assert read() == (after if verb in AT_ONCE else before)
        if verb != "offsetlog.spark.lookup":
            assert CALLS[verb]([tmp_path])() == after


def all_rows(folder: str, what: str) -> None:
    """Every call on a disk that is full, or that is mounted to be read only; prints which of them read all."""
    logging.disable(logging.WARNING)
    said: dict[str, str] = {}
    with small_disk(Path(folder) / "disk") as disk:
        place = reading_calls.made(disk.path / "root")
        before = traces(place.root)
        if what == "full":
            disk.leave(0, names=0)
            with pytest.raises(OSError, match="No space left"):
                (place.root / "new").touch()
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
        for verb, call in CALLS.items():
            try:
                said[verb] = "all" if call(place.dirs)() == expected(verb) else "other rows"
            except Exception as error:  # noqa: BLE001  # told below
                said[verb] = repr(error)
        assert traces(place.root) == before
    print(json.dumps(said))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["full", "readonly"])
def test_on_a_full_disk_and_a_read_only_one_the_rows_are_the_same(what: str, tmp_path: Path) -> None:
    said = json.loads(run_there("test_verbs_of_spark_reading", "all_rows", tmp_path, what).splitlines()[-1])
    assert said == dict.fromkeys(CALLS, "all")


PROGRESS = {"sources": [{"endOffset": {"t": {"0": 7, "1": 3}}, "latestOffset": {"t": {"0": 10, "1": 3}}}]}
LOOKS_AT_NOTHING: dict[str, Callable[[ReadReport], object]] = {
    "offsetlog.spark.offsets_behind": lambda _: tuple(offsetlog.spark.offsets_behind(PROGRESS) or ()),
    "offsetlog.spark.spark_schema": lambda _: offsetlog.spark.spark_schema(("offset", "value")).simpleString(),
    "ReadReport.tasks": lambda report: report.tasks,
    "ReadReport.tasks_done": lambda report: report.tasks_done,
    "ReadReport.splits": lambda report: sum(each.records for each in report.splits),
    "ReadReport.partitions": lambda report: [(each.topic, each.partition, each.records) for each in report.partitions],
    "ReadReport.records": lambda report: report.records,
    "ReadReport.holes": lambda report: [(hole.topic, hole.partition) for hole in report.holes],
}


def every_look(folder: str) -> None:
    """What each of them says, twice, and which files or folders Python was asked for meanwhile."""
    place = reading_calls.made(Path(folder) / "root")
    DAMAGES["a record"](place.root)
    report = ReadReport()
    made: Any = offsetlog.spark.scan(SESSION, place.dirs, subscribe=TOPIC, on_corrupt="skip", report=report)
    made.again()
    place.root.rename(place.root.with_name("elsewhere"))
    first = {verb: look(report) for verb, look in LOOKS_AT_NOTHING.items()}
    opened: list[str] = []

    def hear(event: str, arguments: Sequence[object]) -> None:
        if event == "open" or event.startswith("os."):
            opened.append(f"{event} {arguments}")

    # It stays for as long as the process does.
    sys.addaudithook(hear)
    second = {verb: look(report) for verb, look in LOOKS_AT_NOTHING.items()}
    heard = list(opened)
    print(json.dumps({"first": first, "second": second, "opened": heard}))


def test_what_looks_at_no_file_says_the_same_again(tmp_path: Path) -> None:
    program = "import sys; from test_verbs_of_spark_reading import every_look; every_look(sys.argv[1])"
    said = json.loads(python(program, tmp_path).splitlines()[-1])
    assert said["second"] == said["first"]
    assert said["opened"] == []
    bad = DAMAGES["a record"](reading_calls.made(tmp_path / "other").root)
    read = len(EXPECTED) - len(bad.lost)
    assert said["first"] == {
        "offsetlog.spark.offsets_behind": [0, 3, 1.5],
        "offsetlog.spark.spark_schema": "struct<offset:bigint,value:binary>",
        "ReadReport.tasks": said["first"]["ReadReport.tasks"],
        "ReadReport.tasks_done": said["first"]["ReadReport.tasks"],
        "ReadReport.splits": read,
        "ReadReport.partitions": [
            [TOPIC, each.partition, len(each.rows) - (len(bad.lost) if each.partition == 0 else 0)] for each in GOLDENS if each.rows
        ],
        "ReadReport.records": read,
        "ReadReport.holes": [[TOPIC, 0]],
    }
