"""Notes of commits of version 0, which an older offsetlog left: unfinished ones are finished, published ones known, each record once.

That version knew no topic ids, contents and digests, copied what was staged, and removed it when a commit failed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from test_publish_failures import EXPECTED, ROWS, Died, failing, found, left, open_first, run
from test_publishing import found as found_at, stage
from test_stream_identity import ID, as_version_0, checkpoint, micro_batch, names
from writing import Clock

from offsetlog import Log, LogDir, commits, forget_commit
from offsetlog._commit import moving, notes, publishing
from offsetlog._commit.publishing import commit, finish
from offsetlog._commit.staging import STAGING
from offsetlog.errors import ConfigError, LogDirError, LogLockedError

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 0.2)


@contextmanager
def older() -> Iterator[None]:
    """As the older version did it: nothing is renamed into a partition."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(moving, "_rename", lambda *_: False)
        yield


def become_old(place: Path) -> list[Path]:
    """Give all notes of a log dir the old form; return them."""
    paths = sorted(place.glob("offsetlog-commit-*.json"))
    for path in paths:
        as_version_0(path)
    for ready in place.glob(f"*{notes.READY}"):
        ready.unlink()
    return paths


FINISHES: dict[str, Callable[[Path], object]] = {
    "its job": lambda _: None,
    "another job": lambda place: run(place, "nameless", topic="other", rows=ROWS[:3]),
    "by hand": lambda place: finish(str(place)),
}


@pytest.mark.parametrize("who", list(FINISHES))
@pytest.mark.parametrize("kind", ["named", "stream"])
@pytest.mark.slow
def test_an_unfinished_one_is_finished_wherever_its_driver_died(tmp_path: Path, kind: str, who: str) -> None:
    unfinished = 0
    for at in range(1, 60):
        place = tmp_path / f"logs-{at}"
        run(place, "nameless", rows=[("k", "before", number) for number in range(3)])
        with older(), failing(at, Died()) as seen, suppress(Died):
            run(place, kind)
        become_old(place)
        unfinished += any(not note.is_published for note in commits(place))
        if at % 2:
            with Log.open(place / "t-2", "a") as log:
                log.append(b"another's")
        FINISHES[who](place)
        run(place, kind)
        assert [value for value in found(place) if value not in {"before", "another's"}] == EXPECTED, at
        assert not left(place), at
        assert [note.is_published for note in commits(place)] == [True]
        if seen() < at:
            break
    assert unfinished > 5


@pytest.mark.parametrize("preserve", [False, True])
@pytest.mark.parametrize("held", [0, 1, 2])
def test_one_that_met_a_partition_in_use_goes_on(tmp_path: Path, held: int, preserve: bool) -> None:
    place = tmp_path / "logs"
    with LogDir.open(place, "a", clock=Clock()) as log_dir:
        log_dir.create_topic("t", 3)
    values = {partition: [f"{partition}.{number}" for number in range(4)] for partition in range(3)}
    offsets = {partition: [10, 12, 14, 16] for partition in range(3)} if preserve else None
    with older(), Log.open(place / f"t-{held}", "a"), pytest.raises(LogLockedError):
        commit(str(place), "job day-1", None, stage(place, "one", values, offsets), preserve_offsets=preserve, lock_seconds=0.1)
    (note,) = become_old(place)
    for _ in range(2):
        commit(str(place), "job day-1", None, stage(place, "two", values, offsets), preserve_offsets=preserve)
        for partition in range(3):
            assert [value for _, value in found_at(place, partition)] == values[partition]
            assert offsets is None or [offset for offset, _ in found_at(place, partition)] == offsets[partition]
    assert not left(place)
    assert note.exists()


def test_one_without_a_name_is_finished_by_the_next_write(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    with older(), suppress(Died), failing(5, Died()):
        run(place, "nameless")
    assert become_old(place)
    run(place, "nameless", topic="other", rows=ROWS[:3])
    assert found(place) == EXPECTED
    assert not commits(place)
    assert not left(place)


def test_a_streams_by_its_location_is_finished_and_known_by_its_id(tmp_path: Path) -> None:
    """The micro-batch comes again under the id; while a partition is in use nothing is written, and nothing twice."""
    place = tmp_path / "logs"
    location = checkpoint(tmp_path, ID)
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 1)
    with Log.open(place / "t-0", "a"):
        with older(), pytest.raises(LogLockedError):
            micro_batch(place, ["c", "d"], 3, query=None, queryId=location)
        become_old(place)
        with pytest.raises(LogLockedError):
            micro_batch(place, ["c", "d"], 3, location=location)
    micro_batch(place, ["c", "d"], 3, location=location)
    assert (found(place), names(place)) == (["c", "d"], [(f"query {ID}", 3)])
    for number in (3, 4, 4):
        micro_batch(place, ["c", "d"] if number == 3 else ["e"], number, location=location)
    assert (found(place), names(place)) == (["c", "d", "e"], [(f"query {ID}", 4)])
    assert not left(place)


def test_a_published_job_is_known_by_its_name_and_number_of_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "logs"
    run(place, "named")
    become_old(place)
    (note,) = commits(place)
    assert (note.contents, note.targets[0].topic_id, note.targets[0].marks) == (None, None, ())
    run(place, "named")
    assert [record.levelname for record in caplog.records if "dropped" in record.message] == ["WARNING"]
    for records, topic in ((ROWS[:-1], "t"), (ROWS, "u")):
        with pytest.raises(ConfigError, match=r"was used on 20.*has other data"):
            run(place, "named", rows=records, topic=topic)
    assert found(place) == EXPECTED
    with LogDir.open(place, "a") as log_dir:
        log_dir.delete_topic("t")
    with pytest.raises(ConfigError, match="but t-0 is gone"):
        run(place, "named")
    assert not left(place)


def test_one_whose_staged_records_the_older_version_removed_is_told(tmp_path: Path) -> None:
    """Its failed commits did that. What is published cannot be told from another's; nothing is cut, and nothing written twice."""
    place = tmp_path / "logs"
    with older(), open_first(place), pytest.raises(LogLockedError):
        run(place, "named")
    become_old(place)
    for folder in place.glob(f"*/{STAGING}"):
        shutil.rmtree(folder)
    before = found(place)
    assert 0 < len(before) < len(ROWS)
    for _ in range(2):
        with pytest.raises(LogDirError, match="'job day-1' can be neither finished nor taken back"):
            run(place, "named")
    run(place, "nameless", topic="other", rows=ROWS[:6])
    assert (found(place), len(found(place, "other"))) == (before, 6)
    assert forget_commit(place, "job day-1", unfinished=True).records == len(ROWS)
    run(place, "named")
    assert found(place) == sorted(before + EXPECTED)


def test_one_whose_staged_records_are_gone_before_any_was_published_is_written_anew(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 3)
    with older(), suppress(Died), failing(1, Died()):
        run(place, "named")
    become_old(place)
    assert found(place) == []
    for folder in place.glob(f"*/{STAGING}"):
        shutil.rmtree(folder)
    run(place, "named")
    assert found(place) == EXPECTED
    assert not left(place)
