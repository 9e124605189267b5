"""A partition that was compacted while a commit was on its way: were records of it among those that went? Where nothing shows it, it stops.

Drives the sink's classes as ``test_publish_failures`` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import test_publish_failures
from test_publish_failures import left, run

from offsetlog import Log, LogDir, commits, forget_commit
from offsetlog._commit import publishing
from offsetlog.errors import LogDirError, LogLockedError

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

# Each key ten times; a key's records are in one partition.
ROWS = [(f"k{number % 6}", f"v{number}", number % 3) for number in range(60)]
MORE = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture(autouse=True)
def compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(test_publish_failures, "MORE", MORE | {"internal.segment.bytes": "1500"})


def stop_half_way(place: Path, kind: str) -> None:
    """Partitions 0 and 1 are published, 2 is not."""
    run(place, "nameless", rows=[("a", "before", number) for number in range(3)])
    with Log.open(place / "t-2", "a"), pytest.raises(LogLockedError):
        run(place, kind, rows=ROWS)


def append_newest(place: Path, key: bytes = b"k0", *, tombstone: bool = False) -> None:
    """Another program writes the newest value of a key; what is before can be compacted."""
    with Log.open(place / "t-0", "a") as log:
        log.append(None if tombstone else b"NEWEST", key=key)
        log.roll()


def compact(place: Path) -> int:
    with LogDir.open(place, "a") as log_dir:
        report = log_dir.maintain()
    assert not report.failed
    return sum(len(done.compactions) for done in report.partitions.values())


def shown(place: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    with Log.open(place / "t-0") as log:
        return [(record.offset, record.key, record.value) for record in log.scan()]


@pytest.mark.parametrize("segment_bytes", ["400", "1500"])
@pytest.mark.parametrize("kind", ["named", "stream"])
def test_what_may_have_been_compacted_away_is_not_published_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, segment_bytes: str
) -> None:
    """Kafka's cleaner keeps the newest record of a key; the rest of a commit, written behind it, would be newer."""
    monkeypatch.setattr(test_publish_failures, "MORE", MORE | {"internal.segment.bytes": segment_bytes})
    stop_half_way(tmp_path, kind)
    append_newest(tmp_path)
    assert compact(tmp_path)
    before = shown(tmp_path)
    assert (b"k0", b"NEWEST") in [record[1:] for record in before]
    for _ in range(2):
        with pytest.raises(
            LogDirError, match=r"t-0: records from offset \d+ on were compacted since\b.*commits --forget .* --unfinished"
        ):
            run(tmp_path, kind, rows=ROWS)
        assert shown(tmp_path) == before
    (unfinished,) = [note for note in commits(tmp_path) if not note.is_published]
    forget_commit(tmp_path, unfinished.name, unfinished=True)
    run(tmp_path, kind, rows=ROWS)
    assert shown(tmp_path)[len(before) :]
    assert not left(tmp_path)


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_compaction_that_took_nothing_of_it_does_no_harm(tmp_path: Path, kind: str) -> None:
    """Only what was before the commit has newer records: all of it is left, as it was written."""
    rows = [(f"only {number}", f"v{number}", number % 3) for number in range(60)]
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 3, config=MORE | {"internal.segment.bytes": "1500"})
        for number in range(20):
            log_dir.append("t", b"old %d" % number, key=b"k0", partition=0)
    with Log.open(tmp_path / "t-2", "a"), pytest.raises(LogLockedError):
        run(tmp_path, kind, rows=rows)
    append_newest(tmp_path)
    assert compact(tmp_path)
    before = shown(tmp_path)
    run(tmp_path, kind, rows=rows)
    assert shown(tmp_path) == before
    assert not left(tmp_path)


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_a_note_of_the_cleaner_on_tombstones_is_no_other_batch(tmp_path: Path, kind: str) -> None:
    """The cleaner changes a batch with tombstones, whose records all stay: size and offsets are the same, the checksum is not."""
    rows: list[tuple[str, str, int]] = [(f"only {number}", None, number % 3) for number in range(9)]  # type: ignore[misc]  # a tombstone
    run(tmp_path, "nameless", rows=[("a", "before", number) for number in range(3)])
    with Log.open(tmp_path / "t-2", "a"), pytest.raises(LogLockedError):
        run(tmp_path, kind, rows=rows)
    append_newest(tmp_path, b"other")
    assert compact(tmp_path)
    before = shown(tmp_path)
    with pytest.raises(LogDirError, match=r"t-0: records from offset \d+ on were compacted since"):
        run(tmp_path, kind, rows=rows)
    assert shown(tmp_path) == before
