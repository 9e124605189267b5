"""Log dirs of the Spark sink of commit 87ffd2d: what it published is known, what it began is finished, each record once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from old_log_dirs import ALL, DATA, JOBS, STREAMS, holds, of_partition, stream_id, unpack
from test_publish_failures import copied, left

from offsetlog import Log, commits, forget_commit
from offsetlog._cli_commits import run as verb
from offsetlog._commit.publishing import finish
from offsetlog.errors import ConfigError, LogDirError
from offsetlog.spark import sink
from offsetlog.spark.sink import OffsetLogWriter, StreamWriter, prepare
from offsetlog.spark.sink_options import sink_settings_from

PUBLISHED = {"job-published", "job-not-tidied"}
STARTED = [name for name in JOBS if name not in PUBLISHED and name != "job-staged"]
ROWS = [(f"k{number}", f"job {number}", number % 3) for number in range(30)]
ONCE = [list(enumerate(of_partition(partition))) for partition in range(3)]


class Case(NamedTuple):
    """An unpacked case."""

    path: str
    """As the option ``path`` has it."""
    places: list[Path]
    """Its log dirs, the one with the note first."""

    @property
    def first(self) -> Path:
        """The log dir with the note."""
        return self.places[0]

    def held(self) -> list[list[tuple[int, str]]]:
        """What the topic of the job holds."""
        return holds(self.places, "t", 3)

    def left(self) -> list[Path]:
        """What should not be left."""
        return [path for place in self.places for path in left(place)]


@pytest.fixture(params=["in its place"])
def unpacked(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Case]:
    """Unpack a case where its relative paths are right, or where they are not."""

    def unpacked(name: str) -> Case:
        first = unpack(name, tmp_path / "case")
        if request.param == "moved":
            return Case(str(first), [first])
        places = [first, first.with_name("logs-2")] if name == "job-in-two-log-dirs" else [first]
        monkeypatch.chdir(first.parent)
        return Case(",".join(place.name for place in places), places)

    return unpacked


MOVED = pytest.mark.parametrize("unpacked", ["in its place", "moved"], indirect=True)


def run(
    path: str, rows: list[tuple[str, str, int]] = ROWS, *, topic: str = "t", offsets: bool = False, name: str | None = "day-1"
) -> None:
    """What Spark does of the job: prepare, three tasks, commit; abort where that raises."""
    options = {"path": path, "topic": topic, "partitions": "3", **({"transactionId": name} if name else {})}
    settings = sink_settings_from({**options, **({"preserveOffsets": "true"} if offsets else {})}, is_stream=False)
    prepare(settings)
    writer = OffsetLogWriter(settings, ["key", "value", "partition", *["offset"][: int(offsets)]])
    messages = []
    for task in range(3):
        keys, values, partitions = zip(*rows[10 * task : 10 * task + 10], strict=True)
        columns = {"key": pa.array(keys), "value": pa.array(values), "partition": pa.array(partitions, pa.int32())}
        if offsets:
            numbers = [int(value.split()[1]) for value in values]
            columns["offset"] = pa.array([10 + 2 * (number // 3) for number in numbers], pa.int64())
        messages.append(copied(copied(writer).write(iter([pa.RecordBatch.from_pydict(columns)]))))
    try:
        copied(writer).commit(messages)
    except Exception:
        copied(writer).abort(messages)
        raise


def test_every_log_dir_is_used() -> None:
    assert {path.name.removesuffix(".tar.gz") for path in DATA.glob("*.tar.gz")} == set(ALL)


@pytest.mark.parametrize("name", JOBS)
def test_the_job_run_again_is_published_once(unpacked: Callable[[str], Case], name: str) -> None:
    case = unpacked(name)
    for _ in range(2):
        run(case.path)
        assert case.held() == ONCE
        assert not case.left()
    ((noted, is_published, records),) = [(note.name, note.is_published, note.records) for note in commits(case.first)]
    assert (noted, is_published, records) == ("job day-1", True, 30)


@pytest.mark.parametrize("name", ["job-published", "job-in-several-partitions", "job-in-many-segments", "job-note-aside"])
@pytest.mark.parametrize("unpacked", ["moved"], indirect=True)
@pytest.mark.slow
def test_a_log_dir_that_was_moved_has_its_notes(unpacked: Callable[[str], Case], name: str) -> None:
    case = unpacked(name)
    for _ in range(2):
        run(case.path)
        assert case.held() == ONCE
        assert not case.left()


def test_a_log_dir_that_was_moved_away_from_another_of_its_job_is_told(tmp_path: Path) -> None:
    """Version 0 noted the other one by its path, which was relative."""
    first = unpack("job-in-two-log-dirs", tmp_path)
    places = [first, first.with_name("logs-2")]
    before = holds(places, "t", 3)
    with pytest.raises(OSError, match="this log dir is not there, in which 'job day-1' has, or is to publish, 10 records of t-1"):
        run(",".join(map(str, places)))
    with pytest.raises(LogDirError, match="the note of 'job day-1' is in this log dir: name it first"):
        run(",".join(map(str, reversed(places))))
    assert holds(places, "t", 3) == before


@pytest.mark.parametrize("finished_by", ["another job", "by hand"])
@pytest.mark.parametrize("name", STARTED)
@pytest.mark.slow
def test_one_that_stopped_half_way_is_finished_by_another_write(
    unpacked: Callable[[str], Case], name: str, finished_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = unpacked(name)
    if finished_by == "by hand":
        assert finish(case.path.split(",")[0]) == ["job day-1"]
    else:
        run(case.path, topic="other", name=None)
        assert [len(held) for held in holds(case.places, "other", 3)] == [10, 10, 10]
    assert case.held() == ONCE
    caplog.clear()
    run(case.path)
    assert [record.levelname for record in caplog.records if "what was staged again is dropped: 30 records" in record.getMessage()]
    assert case.held() == ONCE
    assert not case.left()


@pytest.mark.parametrize("name", STARTED)
@pytest.mark.slow
def test_records_of_another_program_stay_among_them(unpacked: Callable[[str], Case], name: str) -> None:
    case = unpacked(name)
    (place,) = [path for path in case.places if (path / "t-1").is_dir()]
    with Log.open(place / "t-1", "a") as log:
        end = log.append(b"another's")
    run(case.path)
    held = case.held()
    assert held[1][end] == (end, "another's")
    assert [[value for _, value in of if value != "another's"] for of in held] == [of_partition(partition) for partition in range(3)]
    assert [[offset for offset, _ in of] for of in held] == [list(range(12)), list(range(13)), list(range(12))]
    assert not case.left()


@pytest.mark.parametrize("name", [name for name in JOBS if name != "job-staged"])
@pytest.mark.slow
def test_other_data_under_its_name_is_refused(unpacked: Callable[[str], Case], name: str) -> None:
    case = unpacked(name)
    for rows, topic in ((ROWS[:-1], "t"), (ROWS, "u")):
        with pytest.raises(ConfigError, match=r"transactionId 'day-1' was used on 20.* for 30 records .* has other data"):
            run(case.path, rows, topic=topic)
        assert case.held() == ONCE
    assert not case.left()


@MOVED
def test_one_that_wrote_no_note_may_have_other_data(unpacked: Callable[[str], Case]) -> None:
    """Nothing was published: what its driver left is removed."""
    case = unpacked("job-staged")
    assert commits(case.first) == []
    run(case.path, ROWS[:-1])
    assert case.held() == [*ONCE[:2], ONCE[2][:-1]]
    assert not case.left()


@MOVED
def test_one_whose_staged_records_its_failed_commit_removed_is_told(unpacked: Callable[[str], Case]) -> None:
    """Partition 1 was held by another program. Neither the rest nor the start of the job is at hand now."""
    case = unpacked("job-failed")
    as_left = [ONCE[0], ONCE[1][:2], ONCE[2]]
    for _ in range(2):
        with pytest.raises(LogDirError, match="'job day-1' can be neither finished nor taken back"):
            run(case.path)
        assert case.held() == as_left
    run(case.path, topic="other", name=None)
    assert case.held() == as_left
    assert not commits(case.first)[0].is_published
    assert forget_commit(case.path, "day-1", unfinished=True).records == 30
    run(case.path, [row for row in ROWS if row[2] == 1] * 3)
    assert [value for _, value in case.held()[1]] == of_partition(1) + of_partition(1)[2:] * 2


@MOVED
def test_a_job_without_a_name_is_finished_by_the_next_write(unpacked: Callable[[str], Case]) -> None:
    case = unpacked("nameless")
    run(case.path, topic="other", name=None)
    assert case.held() == ONCE
    assert commits(case.first) == []
    assert not case.left()


@MOVED
def test_a_restore_keeps_its_offsets(unpacked: Callable[[str], Case]) -> None:
    case = unpacked("restore")
    for _ in range(2):
        run(case.path, offsets=True)
        for partition, held in enumerate(case.held()):
            assert [value for _, value in held] == of_partition(partition)
            assert [offset for offset, _ in held] == [0, 1, *range(10, 30, 2)]
    assert not case.left()


Noted = tuple[str, int | None, bool, int]
NOTED: dict[str, list[Noted]] = {
    **{name: [("job day-1", None, name in PUBLISHED, 30)] for name in (*JOBS, "job-failed", "restore") if name != "job-staged"},
    "job-staged": [],
    **{name: [("query checkpoint", last, is_published, 4)] for name, (last, is_published) in STREAMS.items()},
}


@pytest.mark.parametrize("name", [name for name in ALL if name != "nameless"])
def test_commits_are_listed(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = unpack(name, tmp_path)
    found = [(note.name, note.sequence, note.is_published, note.records) for note in commits(first)]
    assert found == NOTED[name]
    code = 0 if NOTED[name] else 1
    assert verb([str(first), "--json"]) == code
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["name"], each["sequence"], each["state"] == "published", each["records"]) for each in told] == NOTED[name]
    assert verb([str(first)]) == code
    text = capsys.readouterr().out
    assert all(noted[0] in text for noted in NOTED[name])


def test_a_job_without_a_name_is_listed(tmp_path: Path) -> None:
    (note,) = commits(unpack("nameless", tmp_path))
    assert (note.is_published, note.keep, note.records, len(note.targets)) == (False, False, 30, 3)


@pytest.mark.parametrize("name", [name for name, noted in NOTED.items() if noted])
def test_a_note_is_forgotten(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name is free then. Of one that is unfinished that has to be said twice; its staged records are removed."""
    first = unpack(name, tmp_path)
    ((noted, _, is_published, _),) = NOTED[name]
    topic, partitions = ("t", 3) if noted == "job day-1" else ("out", 2)
    places = [first, *first.parent.glob("logs-2")]
    before = holds(places, topic, partitions)
    asked = [str(first), "--forget", noted]
    if not is_published:
        assert verb(asked) == 2
        assert "is not finished" in capsys.readouterr().err
        assert len(commits(first)) == 1
        asked.append("--unfinished")
    assert verb(asked) == 0
    assert commits(first) == []
    assert holds(places, topic, partitions) == before
    if name not in {"job-not-tidied", "job-in-two-log-dirs"}:
        assert [path for path in left(first) if path.suffix != ".tmp"] == []


def test_a_forgotten_job_is_published_again(unpacked: Callable[[str], Case]) -> None:
    case = unpacked("job-published")
    forget_commit(case.path, "day-1")
    run(case.path)
    assert [[value for _, value in held] for held in case.held()] == [of_partition(at) + of_partition(at)[2:] for at in range(3)]


def micro_batch(case: Case, number: int, records: range) -> None:
    """What Spark does of a micro-batch of the stream: a task, the writer made anew, a commit."""
    folder = case.first.parent
    location = "checkpoint" if case.path == "logs" else str(folder / "checkpoint")
    settings = sink_settings_from(
        {"path": case.path, "topic": "out", "partitions": "2", "checkpointLocation": location}, is_stream=True
    )
    prepare(settings)
    writer = StreamWriter(settings, ["value", "partition"])
    values = [f"in {record}" for record in records]
    rows = pa.RecordBatch.from_pydict({"value": values, "partition": pa.array([record % 2 for record in records], pa.int32())})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sink, "query_id", lambda: stream_id(folder))
        message = copied(copied(writer).stage_named([rows]))
    StreamWriter(settings, ["value", "partition"]).commit([message], number)


@pytest.mark.parametrize("name", STREAMS)
def test_the_stream_continues(unpacked: Callable[[str], Case], name: str) -> None:
    """Its last micro-batch is run again, finished or skipped; those that follow are published, each once."""
    case = unpacked(name)
    last, _ = STREAMS[name]
    for number in range(last, 4):
        for _ in range(2):
            micro_batch(case, number, range(4 * number, 4 * number + 4))
            expected = [[(at // 2, f"in {at}") for at in range(4 * number + 4) if at % 2 == partition] for partition in range(2)]
            assert holds(case.places, "out", 2) == expected
    assert [(note.name, note.sequence) for note in commits(case.first)] == [(f"query {stream_id(case.first.parent)}", 3)]
    assert not case.left()


@pytest.mark.parametrize("name", [name for name, (last, _) in STREAMS.items() if last == 1])
@pytest.mark.slow
def test_the_stream_continues_with_the_next(unpacked: Callable[[str], Case], name: str) -> None:
    """Spark had noted the last micro-batch as done, or it was finished by another job since."""
    case = unpacked(name)
    micro_batch(case, 2, range(8, 12))
    assert [value for held in holds(case.places, "out", 2) for _, value in held] == [
        f"in {number}" for partition in range(2) for number in range(partition, 12, 2)
    ]
    assert not case.left()


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.slow
def test_other_records_under_the_same_number_are_refused(unpacked: Callable[[str], Case], name: str) -> None:
    case = unpacked(name)
    last, _ = STREAMS[name]
    with pytest.raises(ConfigError, match=r"was published by an older offsetlog with .*4. records, and has .*3. now"):
        micro_batch(case, last, range(3))
    assert [len(held) for held in holds(case.places, "out", 2)] == [2 * last + 2] * 2
