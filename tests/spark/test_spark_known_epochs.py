"""What a stream does with the leader epochs of its checkpoint where the log has no newer ones to say: gone, shorter, or hard to read."""

from __future__ import annotations

import copy
import errno
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stream_engine import KINDS, Checkpoint, Crash, Engine
from truncation import LENIENT, NAME, append, at, die_when, offsets, query, regrown

from offsetlog import ConfigError, Log, LogDir, OffsetOutOfRangeError, TopicPartition
from offsetlog.spark import OffsetLogSource, stream_planning
from offsetlog.spark.leader_epochs import replaced_from
from offsetlog.spark.options import settings_from
from offsetlog.spark.planning import plan
from offsetlog.spark.reader import OffsetLogReader
from offsetlog.spark.stream_offsets import Known, Offsets, leader_epochs, without_begins
from offsetlog.spark.stream_planning import Follower

AVAILABLE_NOW = "available now"


# A topic that is deleted.


def two_topics(folder: Path) -> dict[str, str]:
    append(folder, 2, 5, 5)
    append(folder, 2, 5, 5, name="u-0")
    return query(folder, subscribe="t,u")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [0, 5])
def test_a_topic_that_is_deleted_after_available_now_has_fixed_its_end(
    kind: str, more: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing of it was left to read, nothing is lost."""
    options = two_topics(tmp_path)
    strict, lenient = Checkpoint(), Checkpoint()
    Engine(options, strict, kind=kind, trigger=AVAILABLE_NOW).drain()
    Engine({**options, **LENIENT}, lenient, kind=kind, trigger=AVAILABLE_NOW).drain()
    append(tmp_path, 2, 5)
    if more:
        append(tmp_path, 2, more, name="u-0")
    engine = Engine(options, strict, kind=kind, trigger=AVAILABLE_NOW)
    other = Engine({**options, **LENIENT}, lenient, kind=kind, trigger=AVAILABLE_NOW)
    shutil.rmtree(tmp_path / "u-0")
    if more:
        with pytest.raises(FileNotFoundError, match=r"u-0: the partition directory is not there; .*failOnDataLoss = false"):
            engine.drain()
    else:
        engine.drain()
        assert offsets(strict) == list(range(15))
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        other.drain()
    assert caplog.text.count("u-0: the partition directory is not there") == (1 if more else 0)
    assert (offsets(lenient), offsets(lenient, "u")) == (list(range(15)), list(range(10)))
    assert leader_epochs(json.loads(lenient.offsets[-1]))[TopicPartition("t", 0)] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_is_deleted_once_the_first_end_is_known(kind: str, tmp_path: Path) -> None:
    options = two_topics(tmp_path)

    def gone() -> None:
        shutil.rmtree(tmp_path / "u-0")

    with pytest.raises(FileNotFoundError, match=r"u-0: the partition directory is not there; .*failOnDataLoss = false"):
        Engine(options, Checkpoint(), kind=kind, point=at("answered", gone)).drain()
    append(tmp_path, 2, 5, name="u-0")
    lenient = Checkpoint()
    Engine({**options, **LENIENT}, lenient, kind=kind, point=at("answered", gone)).drain()
    assert (offsets(lenient), offsets(lenient, "u")) == (list(range(10)), [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_is_deleted_between_the_look_at_its_end_and_at_its_epoch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = two_topics(tmp_path)
    strict, lenient = Checkpoint(), Checkpoint()
    engine, other = Engine(options, strict, kind=kind), Engine({**options, **LENIENT}, lenient, kind=kind)
    engine.drain()
    other.drain()
    append(tmp_path, 2, 5)
    append(tmp_path, 2, 5, name="u-0")
    whole = tmp_path.with_name(f"{tmp_path.name}-whole")
    shutil.copytree(tmp_path, whole)
    latest = Follower.latest

    def then_it_is_gone(self: Follower, start: Offsets, known: Known | None = None) -> Offsets:
        found = latest(self, start, known)
        self._looked_at = self._listing()  # nothing of it is open
        shutil.rmtree(tmp_path / "u-0", ignore_errors=True)
        return found

    monkeypatch.setattr(Follower, "latest", then_it_is_gone)
    with pytest.raises(FileNotFoundError, match=r"u-0: the partition directory is not there; .*failOnDataLoss = false"):
        engine.trigger()
    shutil.copytree(whole / "u-0", tmp_path / "u-0")
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert other.trigger()
        other.drain()
    assert "u-0: the partition directory is not there" in caplog.text
    assert (offsets(lenient), offsets(lenient, "u")) == (list(range(15)), list(range(10)))


# Epochs that are known, where no new one can be had.


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_is_not_forgotten_while_the_log_ends_below_the_position(kind: str, tmp_path: Path) -> None:
    """Another topic has news, so that there is a micro-batch; what the other leader writes is read once, when the log is long enough."""
    options = {**query(tmp_path, subscribe="t,u"), **LENIENT}
    append(tmp_path, 2, 4, 6)
    append(tmp_path, 2, 5, name="u-0")
    checkpoint = Checkpoint()
    Engine(options, checkpoint, kind=kind, trigger=AVAILABLE_NOW).drain()
    append(tmp_path, 2, 5, name="u-0")
    engine = Engine(options, checkpoint, kind=kind, trigger=AVAILABLE_NOW)
    regrown(tmp_path, 4, 3, 3)
    engine.drain()
    assert leader_epochs(json.loads(checkpoint.offsets[-1])) == {("t", 0): 2, ("u", 0): 2}
    append(tmp_path, 3, 8)
    strict = copy.deepcopy(checkpoint)
    Engine(options, checkpoint, kind=kind, trigger=AVAILABLE_NOW).drain()
    assert offsets(checkpoint) == sorted([*range(10), *range(4, 15)])
    with pytest.raises(OffsetOutOfRangeError, match="offsets 4 to 9 are gone"):
        Engine({**options, "failOnDataLoss": "true"}, strict, kind=kind, trigger=AVAILABLE_NOW).drain()


@pytest.mark.parametrize("kind", KINDS)
def test_the_epoch_and_the_id_of_a_topic_that_is_gone_stay(kind: str, tmp_path: Path) -> None:
    """Its directory comes back, as a disk that is mounted again: with another leader's records, or those of another topic."""
    with LogDir.open(tmp_path, "a") as log_dir:
        for topic in ("t", "u"):
            log_dir.create_topic(topic, 1)
    options = {**two_topics(tmp_path), **LENIENT}
    checkpoint = Checkpoint()
    Engine(options, checkpoint, kind=kind, trigger=AVAILABLE_NOW).drain()
    before = without_begins(json.loads(checkpoint.offsets[-1]))["u"]
    assert before.keys() == {"0", "id", "epochs"}
    append(tmp_path, 2, 5)
    engine = Engine(options, checkpoint, kind=kind, trigger=AVAILABLE_NOW)
    (tmp_path / "u-0").rename(tmp_path.with_name(f"{tmp_path.name}-u-0"))
    engine.drain()
    assert offsets(checkpoint) == list(range(15))
    assert json.loads(checkpoint.offsets[-1])["u"] == before
    tmp_path.with_name(f"{tmp_path.name}-u-0").rename(tmp_path / "u-0")
    regrown(tmp_path, 5, 3, 9, name="u-0")
    with pytest.raises(OffsetOutOfRangeError, match="u-0 was read up to 10, and has been truncated since to 5 or below"):
        Engine({**options, "failOnDataLoss": "true"}, copy.deepcopy(checkpoint), kind=kind).drain()
    Engine(options, checkpoint, kind=kind).drain()
    assert offsets(checkpoint, "u") == sorted([*range(10), *range(5, 14)])


@pytest.mark.parametrize("kind", KINDS)
def test_the_id_of_a_topic_stays_when_its_file_is_gone(kind: str, tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("u", 1)
    options = two_topics(tmp_path)
    checkpoint = Checkpoint()
    engine = Engine(options, checkpoint, kind=kind)
    engine.drain()
    before = without_begins(json.loads(checkpoint.offsets[-1]))["u"]
    assert before.keys() == {"0", "id", "epochs"}
    (tmp_path / "u-0" / "partition.metadata").unlink()
    assert not engine.trigger()
    append(tmp_path, 2, 5)
    engine.drain()
    assert json.loads(checkpoint.offsets[-1])["u"] == before


# Epochs that go back.


@pytest.mark.parametrize("kind", KINDS)
def test_a_lower_epoch_behind_the_one_that_was_read_raises_no_alarm_after_compaction(kind: str, tmp_path: Path) -> None:
    """The batch of the position is removed, and what is left below has a greater epoch than it had."""
    with Log.open(tmp_path / NAME, "a") as log:
        log.append_records([(b"a", b"1")], leader_epoch=5)
    checkpoint = Checkpoint()
    engine = Engine(query(tmp_path), checkpoint, kind=kind)
    engine.drain()
    with Log.open(tmp_path / NAME, "a") as log:
        log.append_records([(b"b", b"1")], leader_epoch=3)
    engine.drain()
    assert leader_epochs(json.loads(checkpoint.offsets[-1])) == {("t", 0): 5}
    with Log.open(tmp_path / NAME, "a") as log:
        log.append_records([(b"b", b"2")], leader_epoch=6)
        log.roll()
        log.append_records([(b"c", b"1")], leader_epoch=6)
        log.compact()
        assert [record.offset for record in log.scan()] == [0, 2, 3]
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    assert offsets(checkpoint) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_the_epoch_of_what_was_replaced_or_is_of_another_topic_is_not_carried_on(kind: str, tmp_path: Path) -> None:
    """With failOnDataLoss = false: what is read next counts alone, so that its own truncation is seen."""

    def made_anew() -> None:
        with LogDir.open(tmp_path, "a") as log_dir:
            if "t" in log_dir.topics():
                log_dir.delete_topic("t")
            log_dir.create_topic("t", 1)

    made_anew()
    append(tmp_path, 7, 10)
    checkpoint = Checkpoint()
    engine = Engine({**query(tmp_path), **LENIENT}, checkpoint, kind=kind)
    engine.drain()
    made_anew()
    append(tmp_path, 2, 5, 10)
    engine.drain()
    assert leader_epochs(json.loads(checkpoint.offsets[-1])) == {("t", 0): 2}
    # A shorter log: its end is below what the known epoch is of.
    with Log.open(tmp_path / NAME, "a") as log:
        log.append_records([b"value"], leader_epoch=6)
    engine.drain()
    with Log.open(tmp_path / NAME, "a") as log:
        log.truncate_to(5)
    engine.drain()
    assert leader_epochs(json.loads(checkpoint.offsets[-1])) == {("t", 0): 2}
    regrown(tmp_path, 0, 4, 10)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 was read up to 5, and has been truncated since to 0 or below"):
        Engine(query(tmp_path), checkpoint, kind=kind).drain()


# Files that this user may not read.

NOBODY = 65534
UNNEEDED = ("leader-epoch-checkpoint", "partition.metadata")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users come to: those of pytest are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def another_user() -> Iterator[None]:
    """Root reads whatever the permissions say; for anybody else they count."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def closed(folder: Path) -> None:
    for name in UNNEEDED:
        (folder / NAME / name).chmod(0o000)


def opened(folder: Path) -> None:
    for name in UNNEEDED:
        (folder / NAME / name).chmod(0o644)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_do_not_need_the_files_that_are_closed_to_them(kind: str, shared: Path) -> None:
    with LogDir.open(shared, "a") as log_dir:
        log_dir.create_topic("t", 1)
    append(shared, 2, 5, 5)
    closed(shared)
    checkpoint = Checkpoint()
    with another_user():
        with Log.open(shared / NAME) as log, pytest.raises(PermissionError):
            _ = log.topic_id
        source = OffsetLogSource({"path": str(shared / NAME), "columns": "offset"})
        reader = source.reader(source.schema())
        assert isinstance(reader, OffsetLogReader)
        tasks = reader.partitions()
        assert [row for task in tasks for batch in reader.read(task) for row in batch.column("offset").to_pylist()] == list(range(10))
        Engine(query(shared), checkpoint, kind=kind).drain()
    assert offsets(checkpoint) == list(range(10))
    assert leader_epochs(json.loads(checkpoint.offsets[-1])) == {("t", 0): 2}
    # The batches tell.
    opened(shared)
    regrown(shared, 5, 3, 9)
    closed(shared)
    with (
        another_user(),
        pytest.raises(OffsetOutOfRangeError, match="t-0 was read up to 10, and has been truncated since to 5 or below"),
    ):
        Engine(query(shared), checkpoint, kind=kind).drain()
    with another_user(), pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 9 of t-0 are gone"):
        list(reader.read(tasks[0]))
    opened(shared)


@pytest.mark.parametrize("name", ["leader_epoch", "topic_id"])
def test_a_disk_that_fails_is_an_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 2, 5)
    checkpoint = Checkpoint()
    Engine(query(tmp_path), checkpoint, kind=KINDS[0]).drain()

    def fails(_: Log) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Log, name, property(fails))
    append(tmp_path, 2, 5)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        Engine(query(tmp_path), checkpoint, kind=KINDS[0]).drain()


# Checkpoints of another version.


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_of_a_later_version_is_named(kind: str, tmp_path: Path) -> None:
    append(tmp_path, 2, 5)
    checkpoint = Checkpoint()
    Engine(query(tmp_path), checkpoint, kind=kind).drain()
    found = json.loads(checkpoint.offsets[-1])
    found["t"]["high watermarks"] = {"0": 5}
    checkpoint.offsets[-1] = json.dumps(found)
    append(tmp_path, 2, 5)
    wanted = r"the offsets of topic 't' have the key 'high watermarks', .* a newer version of offsetlog wrote this checkpoint"
    with pytest.raises(ConfigError, match=wanted):
        Engine(query(tmp_path), checkpoint, kind=kind).drain()
    assert offsets(checkpoint) == list(range(5))


# One truncation, one warning.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [0, 5])
def test_one_truncation_is_told_once(kind: str, more: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The position and the planned end are both above it. Of an end behind the position the rest is told too, and then as what was read."""
    options = {**query(tmp_path, subscribe="t,u"), **LENIENT}
    append(tmp_path, 2, 4, 6)
    append(tmp_path, 2, 5, name="u-0")
    checkpoint = Checkpoint()
    Engine(options, checkpoint, kind=kind).drain()
    append(tmp_path, 2, *[more] * bool(more))
    append(tmp_path, 2, 5, name="u-0")
    with pytest.raises(Crash):
        Engine(options, checkpoint, kind=kind, point=die_when("written")).drain()
    regrown(tmp_path, 4, 3, 20)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        Engine(options, checkpoint, kind=kind).drain()
    assert offsets(checkpoint) == sorted([*range(10), *range(4, 24)])
    told = [record.message for record in caplog.records if "truncated since to 4 or below" in record.message]
    found = [text.partition(",")[0] + text.partition("):")[2].partition(";")[0] for text in told]
    rest = ["t-0 was to be read up to 15 offsets 10 to 14 are gone", "t-0 was read up to 15 offsets 4 to 14 are gone"]
    assert found == ["t-0 was read up to 10 offsets 4 to 9 are gone", *(rest if more else [])]


# What it costs.


def test_the_id_of_a_topic_is_read_once_for_all_tasks_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 2, *[1] * 20)
    asked: list[str] = []

    def topic_id(log: Log) -> str:
        asked.append(log.path)
        return "id"

    monkeypatch.setattr(Log, "topic_id", property(topic_id))
    tasks = plan(settings_from({"path": str(tmp_path / NAME), "maxRecordsPerPartition": "2"}))
    assert [split.topic_id for task in tasks for split in task] == ["id"] * 10
    assert len(asked) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_stream_looks_once_after_an_election(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new leader has appended nothing; what is truncated is seen, if the newest epoch rises again or there is more to read."""
    append(tmp_path, 2, 5, 5)
    checkpoint = Checkpoint()
    engine = Engine(query(tmp_path), checkpoint, kind=kind)
    engine.drain()
    (tmp_path / NAME / "leader-epoch-checkpoint").write_text("0\n2\n2 0\n3 10\n")
    with Log.open(tmp_path / NAME) as log:
        assert log.leader_epoch == 3
    looks: list[int] = []

    def counted(log: Log, offset: int, epoch: int | None) -> int | None:
        looks.append(offset)
        return replaced_from(log, offset, epoch)

    monkeypatch.setattr(stream_planning, "replaced_from", counted)
    for _ in range(5):
        assert not engine.trigger()
    assert looks == [10]
    regrown(tmp_path, 5, 3, 5)
    checked = copy.deepcopy(checkpoint)
    append(tmp_path, 4, 1)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 9 are gone"):
        engine.trigger()
    with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 9 are gone"):
        Engine(query(tmp_path), checked, kind=kind).drain()


@pytest.mark.skipif("asks" not in KINDS, reason="before PySpark 4.2, each question looks at the end too")
def test_a_log_that_ends_below_is_looked_at_until_it_has_grown(tmp_path: Path) -> None:
    append(tmp_path, 2, 4, 6)
    checkpoint = Checkpoint()
    Engine(query(tmp_path), checkpoint, kind="asks").drain()
    engine = Engine(query(tmp_path), checkpoint, kind="asks", trigger=AVAILABLE_NOW)
    with Log.open(tmp_path / NAME, "a") as log:
        log.truncate_to(4)
    (tmp_path / NAME / "leader-epoch-checkpoint").write_text("0\n2\n2 0\n3 4\n")
    assert not engine.trigger()
    append(tmp_path, 3, 8)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 4 to 9 are gone"):
        engine.trigger()
