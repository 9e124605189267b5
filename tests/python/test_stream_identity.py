"""A stream is known by the id in its checkpoint; what an older version noted by the checkpoint's location is honoured."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from test_publish_failures import copied, found

from offsetlog import commits
from offsetlog.errors import ConfigError
from offsetlog.spark import sink
from offsetlog.spark.sink import StreamWriter, prepare
from offsetlog.spark.sink_options import sink_settings_from

OLD = Path(__file__).resolve().parents[1] / "data/spark-commits"
"""A log dir with the note and the records that the version of August 2026 left of micro-batches 0 to 3 of a stream."""
ID, OTHER = "6f0a2ac3-2f2a-4f5e-9d1c-0d1f5e0f7a01", "0b9a4e0e-8a51-4d53-8d4f-9b5b0a4d3c02"


def micro_batch(place: Path, values: list[str], number: int, *, query: str | None = ID, location: str = "", **more: str) -> None:
    """What Spark does of a micro-batch: a task, the writer made anew, a commit."""
    options = {"path": str(place), "topic": "t", "checkpointLocation": location or "checkpoint", **more}
    settings = sink_settings_from(options, is_stream=True)
    prepare(settings)
    writer = StreamWriter(settings, ["value"])
    messages = []
    if values:
        with pytest.MonkeyPatch.context() as patched:
            if query is not None:
                patched.setattr(sink, "query_id", lambda: query)
            messages.append(copied(copied(writer).stage_named([pa.RecordBatch.from_pydict({"value": pa.array(values)})])))
    try:
        StreamWriter(settings, ["value"]).commit(messages, number)
    except Exception:
        StreamWriter(settings, ["value"]).abort(messages, number)
        raise


def names(place: Path) -> list[tuple[str, int | None]]:
    return [(note.name, note.sequence) for note in commits(place)]


def test_a_stream_keeps_one_note_however_its_checkpoint_is_named(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    for location in ("checkpoint", str(tmp_path / "checkpoint"), f"file://{tmp_path}/checkpoint", f"{tmp_path}/checkpoint/"):
        micro_batch(place, ["a", "b"], 0, location=location)
    assert found(place) == ["a", "b"]
    assert names(place) == [(f"query {ID}", 0)]


@pytest.mark.parametrize("last", [0, 3])
@pytest.mark.parametrize("named", [{}, {"queryId": "mine"}], ids=["by its id", "by an option"])
def test_a_micro_batch_that_is_skipped_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, last: int, named: dict[str, str]
) -> None:
    """Spark repeats it after a restart, as it died behind the commit; what is new is no warning."""
    place = tmp_path / "logs"
    query = None if named else ID
    for number in range(last + 1):
        micro_batch(place, [f"{number}"], number, query=query, **named)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    micro_batch(place, [f"{last}"], last, query=query, **named)
    (warning,) = [record for record in caplog.records if record.name == "offsetlog" and record.levelname == "WARNING"]
    (name,) = [note.name for note in commits(place)]
    assert name == f"query {named.get('queryId', ID)}"
    assert warning.getMessage() == (
        f"{name}: micro-batch {last} is published, the last is {last}; what was staged again is dropped: "
        f"1 record of topic 't' (offsets of partition 0: {last} to {last + 1})"
    )
    caplog.clear()
    micro_batch(place, ["next"], last + 1, query=query, **named)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert found(place) == sorted(["next", *(str(number) for number in range(last + 1))])


def test_micro_batches_without_rows_leave_the_numbers_alone(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    micro_batch(place, [], 0)
    assert names(place) == []
    for number, values in ((1, ["a"]), (2, []), (1, ["a"]), (2, []), (3, ["b"]), (3, ["b"])):
        micro_batch(place, values, number)
    assert found(place) == ["a", "b"]
    assert names(place) == [(f"query {ID}", 3)]


def test_streams_of_one_location_are_two(tmp_path: Path) -> None:
    """A checkpoint that was removed and made anew; two programs with a relative one."""
    place = tmp_path / "logs"
    for query in (ID, OTHER):
        for number in range(2):
            micro_batch(place, [f"{query} {number}"], number, query=query)
    assert len(found(place)) == 4
    assert len(names(place)) == 2


def test_without_an_id_a_write_is_refused_unless_one_is_given(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    with pytest.raises(ConfigError, match="option queryId: is needed here"):
        micro_batch(place, ["a"], 0, query=None)
    micro_batch(place, ["a"], 0, query=None, queryId="mine")
    assert (found(place), names(place)) == (["a"], [("query mine", 0)])


def checkpoint(tmp_path: Path, query: str, *, when: int | None = None) -> str:
    folder = tmp_path / "checkpoint"
    folder.mkdir(exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    if when is not None:
        os.utime(folder / "metadata", (when, when))
    return str(folder)


def before(place: Path, location: str, *, sequence: int = 3) -> None:
    """A log dir as an older version left it: the last micro-batch had two records, which are published."""
    micro_batch(place, ["c", "d"], sequence, query=None, queryId=location)
    (path,) = place.glob("offsetlog-commit-*.json")
    as_version_0(path)


def as_version_0(path: Path) -> None:
    """Give a note the form of the version before notes had contents."""
    fields = json.loads(path.read_text())
    for name in ("undoing", "failed", "time", "contents"):
        del fields[name]
    for target in fields["targets"]:
        for name in ("topic_id", "marks", "log_dir_id", "is_beside"):
            del target[name]
    path.write_text(json.dumps({**fields, "version": 0}))


def test_the_form_of_old_notes_is_that_of_the_fixture(tmp_path: Path) -> None:
    """Written by the version before notes had contents."""
    before(tmp_path / "logs", "/data/checkpoint")
    (made,) = (tmp_path / "logs").glob("offsetlog-commit-*.json")
    (kept,) = OLD.glob("offsetlog-commit-*.json")
    ours, theirs = json.loads(made.read_text()), json.loads(kept.read_text())
    assert made.name == kept.name
    assert set(ours) == set(theirs)
    assert set(ours["targets"][0]) == set(theirs["targets"][0])
    assert [(note.name, note.sequence, note.is_published, note.records) for note in commits(OLD)] == [
        ("query /data/checkpoint", 3, True, 2)
    ]


def test_an_upgraded_stream_goes_on(tmp_path: Path) -> None:
    """The next micro-batch is written; the last one, which Spark had not noted as done, is not written again."""
    place, location = tmp_path / "logs", checkpoint(tmp_path, ID)
    before(place, location)
    micro_batch(place, ["c", "d"], 3, location=location)
    assert (found(place), names(place)) == (["c", "d"], [(f"query {ID}", 3)])
    micro_batch(place, ["e"], 4, location=location)
    assert (found(place), names(place)) == (["c", "d", "e"], [(f"query {ID}", 4)])


def test_an_upgraded_stream_whose_last_micro_batch_was_done_goes_on(tmp_path: Path) -> None:
    place, location = tmp_path / "logs", checkpoint(tmp_path, ID, when=1_700_000_000)
    before(place, location)
    micro_batch(place, ["e"], 4, location=location)
    assert (found(place), names(place)) == (["c", "d", "e"], [(f"query {ID}", 4)])


def test_a_checkpoint_made_anew_since_is_another_stream(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    location = str(tmp_path / "checkpoint")
    before(place, location)
    checkpoint(tmp_path, OTHER, when=2_000_000_000)
    for number in range(5):
        micro_batch(place, [f"{number}"], number, query=OTHER, location=location)
    assert found(place) == ["0", "1", "2", "3", "4", "c", "d"]


@pytest.mark.parametrize("first", [0, 2])
def test_what_cannot_be_told_is_refused(tmp_path: Path, first: int) -> None:
    """A checkpoint that this machine does not see; both ways that the text names work."""
    place, location = tmp_path / "logs", "hdfs://somewhere/checkpoint"
    before(place, location, sequence=first)
    with pytest.raises(ConfigError, match=r"may be published already.*queryId.*--forget"):
        micro_batch(place, ["c", "d"], 0, location=location)
    assert found(place) == ["c", "d"]
    micro_batch(place, ["c", "d"], 0, location=location, queryId=location)
    assert found(place) == ["c", "d"]


def test_other_records_under_the_same_number_are_refused(tmp_path: Path) -> None:
    place, location = tmp_path / "logs", checkpoint(tmp_path, ID)
    before(place, location)
    with pytest.raises(ConfigError, match=r"was published by an older offsetlog with .*2. records, and has .*1. now"):
        micro_batch(place, ["c"], 3, location=location)
