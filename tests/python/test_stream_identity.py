"""A stream is known by the id in its checkpoint; what an older version noted by the checkpoint's location is honoured.

Spark repeats the last micro-batch of a checkpoint with the same rows. What comes under a number that is published and is not that is
refused: it would be dropped.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from test_publish_failures import copied, found

from offsetlog import commits, forget_commit
from offsetlog._commit import notes, publishing
from offsetlog._commit.repeated import is_done
from offsetlog._commit.staging import STAGING
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


@pytest.mark.parametrize("named", [{}, {"queryId": "mine"}], ids=["by its id", "by an option"])
@pytest.mark.parametrize(
    ("values", "more"),
    [(["A", "B"], {}), (["a"], {}), (["a", "b", "c"], {}), (["a", "b"], {"topic": "u"})],
    ids=["other values", "fewer", "more", "another topic"],
)
def test_another_stream_of_one_name_is_refused(tmp_path: Path, values: list[str], more: dict[str, str], named: dict[str, str]) -> None:
    """A checkpoint that was copied to begin another stream with it; two streams that were given one name."""
    place = tmp_path / "logs"
    query = None if named else ID
    micro_batch(place, ["a", "b"], 0, query=query, **named)
    name = named.get("queryId", ID)
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=rf"query {name}: micro-batch 0 was published on 20.* with 2 records of topic 't'"
        ) as caught:
            micro_batch(place, values, 0, query=query, **named, **more)
        assert f"has other data now: {len(values)} record" in str(caught.value)
        assert "queryId of its own" in str(caught.value)
        assert "tell Spark that it is done: write commits/0 in the checkpoint" in str(caught.value)
        assert f"offsetlog commits --forget '{name}' LOG_DIR" in str(caught.value)
        assert found(place) == ["a", "b"]
        assert not list(place.glob(f"*/{STAGING}"))
    # Both ways that it names work, and the first stream goes on as if nothing had been.
    micro_batch(place, values, 0, query=None, **{**more, "queryId": "another"})
    micro_batch(place, ["a", "b"], 0, query=query, **named)
    micro_batch(place, ["next"], 1, query=query, **named)
    forget_commit(place, name)
    micro_batch(place, values, 0, query=query, **named, **more)
    written = 2 * values if not more else []
    assert found(place) == sorted(["a", "b", "next", *written])
    assert not more or found(place, "u") == sorted(2 * values)


def test_micro_batches_before_the_last_are_known_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A checkpoint that was set back: Spark plans its micro-batches anew, and they may hold what was published in none."""
    place = tmp_path / "logs"
    for number in range(4):
        micro_batch(place, [f"{number}"], number)
    caplog.clear()
    for number in (1, 3, 0, 2):
        micro_batch(place, [f"{number}"], number)
    assert [record.levelname for record in caplog.records if "what was staged again is dropped" in record.message] == 4 * ["WARNING"]
    for values, number in ((["2"], 1), (["1", "2"], 1), (["0", "1", "2", "3"], 0)):
        with pytest.raises(
            ConfigError, match=f"micro-batch {number} was published before 20.*, when 3 was, and has other data now"
        ) as caught:
            micro_batch(place, values, number)
        # Spark would go on with the next one, which is published too.
        assert "tell Spark that it is done" not in str(caught.value)
    micro_batch(place, ["4"], 4)
    assert found(place) == ["0", "1", "2", "3", "4"]


def test_what_a_micro_batch_had_is_noted_of_the_last_hundred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not noted cannot be compared, nor can one that had no rows then."""
    assert notes.KEPT == 100
    monkeypatch.setattr(publishing, "KEPT", 3)
    place = tmp_path / "logs"
    for number in range(8):
        micro_batch(place, [] if number == 6 else [f"{number}"], number)
    for number in (0, 1, 2, 6):
        with pytest.raises(ConfigError, match=f"micro-batches up to 7 are published, and what number {number} had is not noted"):
            micro_batch(place, [f"{number}"], number)
    for number in (3, 4, 5, 7):
        micro_batch(place, [f"{number}"], number)
    assert found(place) == ["0", "1", "2", "3", "4", "5", "7"]


def planned(folder: Path, number: int, text: str = "v1") -> str:
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(number)).write_text(text)
    return str(folder)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_rows_that_differ_each_time_are_known_by_their_plan(tmp_path: Path, scheme: str) -> None:
    """Those of rand() and uuid(): in the checkpoint stands what Spark planned, and it is planned once."""
    place, folder = tmp_path / "logs", tmp_path / "a checkpoint"
    for number in range(2):
        micro_batch(place, [f"{number}"], number, location=scheme + planned(folder, number, f"plan {number}"))
    for values, number in ((["other"], 1), (["another", "two"], 1), (["other"], 0)):
        micro_batch(place, values, number, location=scheme + str(folder))
    assert found(place) == ["0", "1"]
    # A copy is another stream's; one that was set back is planned anew.
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(ConfigError, match=r"micro-batch 1 was published on.* is done: copy commits/0 to commits/1 in the checkpoint"):
        micro_batch(place, ["other"], 1, location=str(tmp_path / "copy"))
    with pytest.raises(ConfigError, match="micro-batch 1 was published on"):
        micro_batch(place, ["other"], 1, location=planned(folder, 1, "later"))
    # But the same rows are the same.
    micro_batch(place, ["1"], 1, location=str(tmp_path / "copy"))
    assert found(place) == ["0", "1"]


def test_a_micro_batch_that_another_driver_published_is_done_if_it_is_the_same(tmp_path: Path) -> None:
    place = str(tmp_path / "logs")
    made = []
    for number in range(3):
        micro_batch(tmp_path / "logs", [f"{number}"], number)
        (note,) = commits(place)
        made.append(note._replace(is_published=False))
    *_, last = commits(place)
    other = (("t", 1, "0"),)
    for note in made:
        assert is_done(place, note, last)
        assert is_done(place, note._replace(contents=other, plan="a plan"), last) is False
        # Of tests, which give no contents.
        assert is_done(place, note._replace(contents=None), last)
    # At work on the next one, it has published the one before.
    assert is_done(place, made[1], last._replace(is_published=False))
    assert not is_done(place, made[2], last._replace(is_published=False))
    assert not is_done(place, made[1], last._replace(earlier=()))
    assert is_done(place, made[2]._replace(contents=other, plan="a plan"), last._replace(plan="a plan"))


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


def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    """A checkpoint that this machine does not see; both ways that the text names work."""
    place, location = tmp_path / "logs", "hdfs://somewhere/checkpoint"
    before(place, location, sequence=0)
    with pytest.raises(ConfigError, match=r"may be published already.*queryId.*--forget"):
        micro_batch(place, ["c", "d"], 0, location=location)
    assert found(place) == ["c", "d"]
    micro_batch(place, ["c", "d"], 0, location=location, queryId=location)
    assert found(place) == ["c", "d"]
    forget_commit(place, location)
    micro_batch(place, ["c", "d"], 0, location=location)
    assert found(place) == ["c", "c", "d", "d"]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_number_below_that_of_an_old_note_is_refused(tmp_path: Path, is_seen: bool) -> None:
    """Spark repeats the last micro-batch alone, and what another one had stands in no such note."""
    place = tmp_path / "logs"
    location = checkpoint(tmp_path, ID, when=1_700_000_000) if is_seen else "hdfs://somewhere/checkpoint"
    before(place, location, sequence=2)
    first = "what number 1 had is not noted" if is_seen else "may be published already"
    with pytest.raises(ConfigError, match=first) as caught:
        micro_batch(place, ["c", "d"], 1, location=location)
    assert "with the value" not in str(caught.value)
    with pytest.raises(ConfigError, match="what number 1 had is not noted"):
        micro_batch(place, ["c", "d"], 1, location=location, **({} if is_seen else {"queryId": location}))
    assert found(place) == ["c", "d"]
    forget_commit(place, ID if is_seen else location)
    micro_batch(place, ["c", "d"], 1, location=location)
    assert found(place) == ["c", "c", "d", "d"]


def test_other_records_under_the_same_number_are_refused(tmp_path: Path) -> None:
    place, location = tmp_path / "logs", checkpoint(tmp_path, ID)
    before(place, location)
    with pytest.raises(ConfigError, match=r"was published by an older offsetlog with .*2. records, and has .*1. now"):
        micro_batch(place, ["c"], 3, location=location)
