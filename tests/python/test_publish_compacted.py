"""A partition that was compacted while a commit was on its way: were records of it among those that went? Where nothing shows it, it stops.

Drives the sink's classes as ``test_publish_failures`` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import test_publish_failures
from test_publish_failures import left, run

from offsetlog import Log, LogDir, commits, forget_commit
from offsetlog._commit import publishing
from offsetlog.errors import LogDirError, LogLockedError, UnexpectedAppendOffsetError
from offsetlog.spark.sink import OffsetLogWriter, StreamWriter, prepare
from offsetlog.spark.sink_options import sink_settings_from

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


def values(place: Path) -> list[str]:
    return test_publish_failures.found(place)


def restore(place: Path, kind: str, rows: list[tuple[int, int, str]]) -> None:
    """A job whose rows, of partition, offset and key, keep their offsets; one task for each partition."""
    named = {"preserveOffsets": "true"} | {"named": {"transactionId": "r"}, "stream": {"queryId": "q"}}[kind]
    options = {
        "path": str(place),
        "topic": "t",
        "partitions": "3",
        "internal.segment.bytes": "1500",
        "cleanup.policy": "compact",
    } | named
    settings = sink_settings_from(options | {"min.cleanable.dirty.ratio": "0.01"}, is_stream=kind == "stream")
    prepare(settings)
    writer: Any = (StreamWriter if kind == "stream" else OffsetLogWriter)(settings, ["key", "value", "partition", "offset"])
    messages: list[Any] = []
    for number in range(3):
        of = [row for row in rows if row[0] == number]
        columns = {
            "key": pa.array([key for _, _, key in of]),
            "value": pa.array([f"v{offset}" for _, offset, _ in of]),
            "partition": pa.array([number] * len(of), pa.int32()),
            "offset": pa.array([offset for _, offset, _ in of], pa.int64()),
        }
        parts = [pa.RecordBatch.from_pydict(columns).slice(at, 4) for at in range(0, len(of), 4)]
        messages.append(writer.stage_rows(parts) if kind == "stream" else writer.write(iter(parts)))
    try:
        writer.commit(messages, *([7] if kind == "stream" else []))
    except Exception:
        writer.abort(messages, *([7] if kind == "stream" else []))
        raise


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_records_that_keep_their_offsets_and_were_compacted_are_not_another_programs(tmp_path: Path, kind: str) -> None:
    rows = [(number % 3, 10 + number // 3, f"k{number % 6}") for number in range(60)]
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 3, config=MORE | {"internal.segment.bytes": "1500"})
    with Log.open(tmp_path / "t-2", "a"), pytest.raises(LogLockedError):
        restore(tmp_path, kind, rows)
    append_newest(tmp_path)
    assert compact(tmp_path)
    before = shown(tmp_path)
    assert (b"k0", b"NEWEST") in [record[1:] for record in before]
    others = [f"v{offset}" for partition, offset, _ in rows if partition != 0]
    wanted = sorted([*others, *((value or b"").decode() for *_, value in before)])
    published = values(tmp_path)
    # On a busy machine a call may end before it has begun with the partition that waited; a later one has it.
    for attempt in range(20):
        with pytest.raises(LogDirError, match=r"neither finished nor taken back: t-0: records from offset 10 on were compacted since"):
            restore(tmp_path, kind, rows)
        assert shown(tmp_path) == before
        # What was published is not taken back.
        assert len(values(tmp_path)) >= len(published)
        published = values(tmp_path)
        if attempt > 0 and published == wanted:
            break
    # What another partition waited for is there.
    assert published == wanted
    (unfinished,) = [note for note in commits(tmp_path) if not note.is_published]
    forget_commit(tmp_path, unfinished.name, unfinished=True)
    more = [(number, 40, "more") for number in range(3)]
    restore(tmp_path, kind, more)
    assert shown(tmp_path) == [*before, (40, b"more", b"v40")]
    assert not left(tmp_path)


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_another_program_that_writes_in_their_place_is_told_as_such(tmp_path: Path, kind: str) -> None:
    """Nothing of the commit is there, and the rest of it is taken back."""
    rows = [(number % 3, 10 + number // 3, f"k{number % 6}") for number in range(60)]
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 3, config=MORE | {"internal.segment.bytes": "1500"})
    with Log.open(tmp_path / "t-2", "a") as log:
        with pytest.raises(LogLockedError):
            restore(tmp_path, kind, rows)
        log.append_records([(b"o%d" % number, b"other %d" % number) for number in range(15)])
    with pytest.raises(UnexpectedAppendOffsetError, match=r"t-2: offset 10 found, 15 or more expected"):
        restore(tmp_path, kind, rows)
    assert values(tmp_path) == sorted(f"other {number}" for number in range(15))
    assert not left(tmp_path)
