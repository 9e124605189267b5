"""Staged records become part of their logs once, wherever a commit dies. Without Spark: this is what its sinks stand on."""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden import CLEAN
from writing import Clock

from offsetlog import Log, LogConfig, LogDir, WritableLog, commits
from offsetlog._commit import moving, notes, publishing
from offsetlog._commit.places import metadata_among
from offsetlog._commit.publishing import commit, finish
from offsetlog._commit.staging import STAGING, Stage, Staged, targets_of
from offsetlog.errors import ClusterError, LogLockedError, UnexpectedAppendOffsetError

SMALL = {"internal.segment.bytes": 2_000}


class Died(BaseException):
    """The process, in the middle of something."""


def rows(values: list[str], offsets: list[int] | None = None) -> pa.RecordBatch:
    columns: dict[str, Any] = {"value": pa.array(values, pa.string())}
    if offsets is not None:
        columns["offset"] = pa.array(offsets, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with LogDir.open(tmp_path / "logs", "a", clock=Clock()) as log_dir:
        log_dir.create_topic("t", 3, config=SMALL)
    return tmp_path / "logs"


def stage(place: Path, attempt: str, values: dict[int, list[str]], offsets: dict[int, list[int]] | None = None) -> list[Staged]:
    stage = Stage("job", attempt)
    for partition, of_partition in values.items():
        for number, value in enumerate(of_partition):
            at = None if offsets is None else [offsets[partition][number]]
            directory = str(place / f"t-{partition}")
            stage.append(
                "t", partition, directory, LogConfig.from_dict(SMALL), rows([value], at), preserve_offsets=offsets is not None
            )
    return stage.close()


def found(place: Path, partition: int) -> list[tuple[int, str]]:
    with Log.open(place / f"t-{partition}") as log:
        return [(record.offset, (record.value or b"").decode()) for record in log.scan()]


def left(place: Path) -> list[Path]:
    return list(place.glob(f"*/{STAGING}"))


def dying(monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], int]:
    """Lets the process die before the disk is changed the n-th time by the commit; gives how often it was."""
    seen = 0

    def step() -> None:
        nonlocal seen
        seen += 1
        if seen > after:
            raise Died

    def around(name: str, owner: Any) -> None:  # noqa: ANN401  # a class or a module
        real = getattr(owner, name)

        def called(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # whatever it takes
            step()
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, called)

    around("write", publishing)
    around("sync", notes)
    around("discard", publishing)
    around("append_log", WritableLog)
    around("_move_log", WritableLog)
    around("flush", WritableLog)
    return lambda: seen


@pytest.mark.slow
@pytest.mark.parametrize("preserve", [False, True])
def test_a_commit_that_dies_anywhere_publishes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preserve: bool) -> None:
    """Died, finished by the next one; other writers in between; the same micro-batch again."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    died = 0
    for at in range(24):
        place = tmp_path / f"logs-{at}"
        with LogDir.open(place, "a", clock=Clock()) as log_dir:
            log_dir.create_topic("t", 3, config=SMALL)
            for partition in range(3):
                for number in range(rng.randrange(3)):
                    log_dir.append("t", f"before {number}".encode(), partition=partition)
        values = {
            partition: [f"{partition}.{number}" + "x" * rng.randrange(400) for number in range(rng.randrange(1, 9))]
            for partition in range(3)
        }
        offsets = {partition: [10 + 2 * number for number in range(len(of))] for partition, of in values.items()} if preserve else None
        staged = stage(place, "one", values, offsets)
        with monkeypatch.context() as patched:
            count = dying(patched, at)
            try:
                commit(str(place), "query", 7, staged, preserve_offsets=preserve)
            except Died:
                died += 1
            else:
                assert count() <= at
        if rng.random() < 0.4 and not preserve:
            with Log.open(place / "t-1", "a") as log:
                log.append_records([b"another's", b"writer"])
        if rng.random() < 0.5:
            finish(str(place))
        again = stage(place, "two", values, offsets)
        is_new = [note.sequence for note in commits(str(place))] != [7]
        assert commit(str(place), "query", 7, again, preserve_offsets=preserve) == is_new
        for partition in range(3):
            ours = [(offset, value) for offset, value in found(place, partition) if value.startswith(f"{partition}.")]
            assert [value for _, value in ours] == values[partition], at
            if offsets:
                assert [offset for offset, _ in ours] == offsets[partition]
        assert commit(str(place), "query", 8, stage(place, "three", {0: ["next"]}), preserve_offsets=False)
        assert found(place, 0)[-1][1] == "next"
        if at > count():
            assert not left(place)
    assert died > 10


def test_a_commit_under_a_name_is_done_once(place: Path) -> None:
    assert commit(str(place), "restore", None, stage(place, "one", {0: ["a"], 2: ["b", "c"]}))
    assert not commit(str(place), "restore", None, stage(place, "two", {0: ["a"], 2: ["b", "c"]}))
    assert commit(str(place), "another", None, stage(place, "three", {0: ["a"]}), keep=False)
    assert [found(place, partition) for partition in range(3)] == [[(0, "a"), (1, "a")], [], [(0, "b"), (1, "c")]]
    assert not left(place)
    assert [note.name for note in commits(str(place))] == ["restore"]


def test_a_note_is_parsed_as_often_for_many_partitions_as_for_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length grows with the partitions: parsed for each of them, a commit into thousands would take minutes."""
    place = tmp_path / "logs"
    with LogDir.open(place, "a", clock=Clock()) as log_dir:
        log_dir.create_topic("t", 40, config=SMALL)
    parsed = 0
    real = json.loads

    def counted(text: bytes) -> object:
        nonlocal parsed
        parsed += 1
        return real(text)

    monkeypatch.setattr(json, "loads", counted)
    counts = []
    for number, partitions in enumerate((1, 40)):
        staged = stage(place, f"a{number}", {partition: ["v"] for partition in range(partitions)})
        parsed = 0
        commit(str(place), f"job {number}", None, staged)
        counts.append(parsed)
    # The note of the first job is one more, and is looked at twice.
    assert counts[1] == counts[0] + 2
    assert [len(found(place, partition)) for partition in (0, 1, 39)] == [2, 1, 1]


def test_tasks_stand_in_their_order(place: Path) -> None:
    one, two = stage(place, "one", {0: ["a", "b"]}), stage(place, "two", {0: ["c"]})
    commit(str(place), "q", 0, [*two, *one])
    assert [value for _, value in found(place, 0)] == ["c", "a", "b"]


def test_offsets_are_sorted_and_may_not_overlap(place: Path) -> None:
    one, two = stage(place, "one", {0: ["a", "b"]}, {0: [7, 9]}), stage(place, "two", {0: ["c"]}, {0: [3]})
    commit(str(place), "q", 0, [*one, *two], preserve_offsets=True)
    assert found(place, 0) == [(3, "c"), (7, "a"), (9, "b")]
    three, four = stage(place, "three", {0: ["d", "e"]}, {0: [20, 30]}), stage(place, "four", {0: ["f"]}, {0: [25]})
    with pytest.raises(UnexpectedAppendOffsetError, match="offset 25 found, 31 or more"):
        commit(str(place), "q", 1, [*three, *four], preserve_offsets=True)
    with pytest.raises(UnexpectedAppendOffsetError, match="offset 9 found, 10 or more"):
        commit(str(place), "q", 1, stage(place, "five", {0: ["g"]}, {0: [9]}), preserve_offsets=True)
    assert len(found(place, 0)) == 3
    assert commits(str(place))[0].sequence == 0


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))


def test_an_attempt_that_fails_behind_its_job_leaves_nothing(place: Path) -> None:
    attempt = Stage("job", "late")
    for partition in range(2):
        attempt.append("t", partition, str(place / f"t-{partition}"), LogConfig.from_dict(SMALL), rows(["a"]), preserve_offsets=False)
    assert left(place)
    attempt.abandon()
    assert not left(place)


def test_partitions_that_fail_are_all_told_and_finished_later(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One raises, the other is in the log; what went well stays, and the next commit does the rest."""
    staged = stage(place, "one", {0: ["a"], 1: ["b"], 2: ["c"]})
    with Log.open(place / "t-1", "a"), Log.open(place / "t-2", "a"):
        with pytest.raises(LogLockedError, match="t-1"):
            commit(str(place), "q", 0, staged, lock_seconds=0.2)
        assert "t-2 could not be published either" in caplog.text
        assert [value for _, value in found(place, 0)] == ["a"]
    assert finish(str(place)) == ["q"]
    assert [[value for _, value in found(place, partition)] for partition in range(3)] == [["a"], ["b"], ["c"]]


def test_a_commit_waits_a_minute_in_all(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the one before that it finishes first and for its own, for this partition and the next; a minute from the first held one on."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    patience = moving.Patience(60.0)
    now = 500.0
    assert patience.left() == 60.0
    now = 540.0
    assert patience.left() == 20.0
    monkeypatch.undo()
    made: list[float] = []

    class Counted(moving.Patience):
        def __init__(self, seconds: float) -> None:
            made.append(seconds)
            super().__init__(seconds)

    monkeypatch.setattr(publishing, "Patience", Counted)
    with Log.open(place / "t-1", "a"), pytest.raises(LogLockedError):
        commit(str(place), "q", 0, stage(place, "one", {1: ["a"]}), lock_seconds=0.1)
    staged = stage(place, "two", {0: ["b"], 1: ["c"], 2: ["d"]})
    with Log.open(place / "t-1", "a"), pytest.raises(LogLockedError):
        commit(str(place), "q", 1, staged, lock_seconds=0.2)
    assert commit(str(place), "q", 1, staged, lock_seconds=0.3)
    assert made == [0.1, 0.2, 0.3]
    assert [value for _, value in found(place, 1)] == ["a", "c"]


def test_other_replicas_stop_a_commit_unless_it_is_to_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """To the metadata `g-plain` is broker 1's; the log dirs are broker 2's. The metadata lies in a folder of its own."""
    folders = [tmp_path / name for name in ("log-dir-1", "log-dir-2", "metadata-dir")]
    for folder in folders:
        shutil.copytree(CLEAN / folder.name, folder)
    for folder in folders[:2]:
        meta = folder / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    place = next(folder for folder in folders if (folder / "g-plain-0").is_dir())
    log_dir, metadata = str(place), metadata_among(map(str, folders))
    assert metadata == str(folders[2])
    with Log.open(place / "g-plain-0") as log:
        end = log.log_end_offset

    def staged(attempt: str) -> list[Staged]:
        stage = Stage("job", attempt)
        stage.append("g-plain", 0, str(place / "g-plain-0"), LogConfig(), rows(["a", "b"]), preserve_offsets=False)
        return stage.close()

    for keep in (True, False):
        with pytest.raises(ClusterError, match=r"broker 1 .*the option singleReplica = true") as caught:
            commit(log_dir, "job one", None, staged("refused"), keep=keep, metadata=metadata)
        assert "nothing of it is published" in caught.value.__notes__[0]
        assert "--single-replica" not in str(caught.value)
        assert not commits(log_dir)
        assert not left(place)
    assert commit(log_dir, "job one", None, staged("let"), single_replica=True, metadata=metadata)
    with Log.open(place / "g-plain-0") as log:
        assert log.log_end_offset == end + 2
    # A commit that died goes on as it was told to.
    (note,) = commits(log_dir)
    waiting = staged("waiting")
    targets = targets_of(waiting, log_dir, preserve_offsets=False)
    notes.write(log_dir, note._replace(name="job two", is_published=False, targets=targets, contents=None))
    finish(log_dir)
    with Log.open(place / "g-plain-0") as log:
        assert log.log_end_offset == end + 4
    # One that was not told goes on when its job comes again and says so.
    targets = targets_of(staged("third"), log_dir, preserve_offsets=False)
    notes.write(log_dir, note._replace(name="job three", is_published=False, targets=targets, contents=None, single_replica=False))
    finish(log_dir)
    assert "the option singleReplica" in caplog.text
    assert not commit(log_dir, "job three", None, [], single_replica=True)
    with Log.open(place / "g-plain-0") as log:
        assert log.log_end_offset == end + 6
