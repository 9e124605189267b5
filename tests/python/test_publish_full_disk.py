"""Publishing on a disk that is really full: wherever the room ends, the job is repeated until it succeeds, and each record is there once.

Each case is a tmpfs with this many pages, or names, left when the tasks have staged their records; later there is more.
"""

from __future__ import annotations

import errno
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_disk import SmallDisk, run_there, small_disk
from test_publish_failures import copied, left

from offsetlog import Log, LogDir, commits, verify
from offsetlog._commit import publishing
from offsetlog.spark.sink import OffsetLogWriter, StreamWriter, prepare
from offsetlog.spark.sink_options import sink_settings_from

pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning")]

PARTITIONS = 3
NAMES = {"named": ["job day-1"], "stream": ["query q"], "nameless": []}
# What is staged is copied into its partition, which rolls in the midst of it or not; or renamed, where its segments are small.
SEGMENT_BYTES = {"copied": 1 << 20, "rolled": 31_000, "renamed": 5000}
# What a commit finds of a partition when the room ended: nothing of its own, a part, all.
NOTHING, PART, ALL = "nothing", "part", "all"


def rows(prefix: str, count: int) -> list[tuple[str, int]]:
    """Values of more than half a page, so that each batch needs room."""
    return [(f"{prefix}.{number}.".ljust(2400, "x"), number % PARTITIONS) for number in range(count)]


ROWS = rows("ours", 18)


def batch(part: list[tuple[str, int]]) -> pa.RecordBatch:
    values, partitions = zip(*part, strict=True)
    return pa.RecordBatch.from_pydict({"value": pa.array(values), "partition": pa.array(partitions, pa.int32())})


def job(  # noqa: PLR0913  # a job has many sides
    place: Path, kind: str, segment_bytes: int, records: list[tuple[str, int]], topic: str = "t", *, staged: Callable[[], None]
) -> None:
    """What Spark does of a job of two tasks: where a task or the commit fails, the job is aborted, and what it raised is raised."""
    options = {"path": str(place), "topic": topic, "partitions": str(PARTITIONS), "internal.segment.bytes": str(segment_bytes)}
    options |= {"named": {"transactionId": "day-1"}, "stream": {"queryId": "q"}, "nameless": {}}[kind]
    is_stream = kind == "stream"
    settings = sink_settings_from(options, is_stream=is_stream)
    prepare(settings)
    writer = (StreamWriter if is_stream else OffsetLogWriter)(settings, ["value", "partition"])
    sequence = [7] if is_stream else []
    messages: list[Any] = [None, None]
    half = len(records) // 2
    try:
        for task, part in enumerate((records[:half], records[half:])):
            # A batch of rows for each third of a task: several batches in each staged log.
            step = max(1, len(part) // 3)
            batches = [batch(part[at : at + step]) for at in range(0, len(part), step)]
            mine = copied(writer)
            messages[task] = copied(mine.stage_rows(batches) if is_stream else mine.write(iter(batches)))
        staged()
        copied(writer).commit(messages, *sequence)
    except Exception:
        copied(writer).abort(messages, *sequence)
        raise


def repeat(action: Callable[[], None]) -> bool:
    """Whether it succeeds; what fails for want of room is ENOSPC and nothing else."""
    try:
        action()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True


def found(place: Path, topic: str) -> list[str]:
    with LogDir.open(place) as log_dir:
        return sorted(
            (record.value or b"").decode()
            for number in log_dir.topics().get(topic, [])
            for record in log_dir.log(topic, number).scan()
        )


def written_meanwhile(place: Path) -> list[str]:
    """What another program could append to another topic; its log dir may have no room to be closed cleanly."""
    acknowledged: list[str] = []

    def append() -> None:
        with LogDir.open(place, "a") as log_dir:
            log_dir.append("other", b"meanwhile", partition=0)
            acknowledged.append("meanwhile")

    repeat(append)
    return acknowledged


def state(place: Path, before: list[int]) -> tuple[str, ...]:
    """Whether there is a note, and what of the job each partition has."""
    is_noted = any(not note.is_published for note in commits(place))
    answers = ["noted" if is_noted else "no note"]
    for number in range(PARTITIONS):
        with Log.open(place / f"t-{number}") as log:
            here = log.log_end_offset - before[number]
        answers.append(NOTHING if here == 0 else ALL if here == len(ROWS) // PARTITIONS else PART)
    return tuple(answers)


def one_case(place: Path, disk: SmallDisk, kind: str, segment_bytes: int, room: dict[str, int]) -> tuple[str, ...] | None:
    """One job whose room ends; what was found when it failed first, ``None`` where it did not."""

    def plenty() -> None:
        disk.leave()

    def end_of_room() -> None:
        disk.leave(**room)

    there = rows("before", 30)
    others = rows("other", 6)
    job(place, "nameless", segment_bytes, there, staged=plenty)
    job(place, "nameless", segment_bytes, others, "other", staged=plenty)
    with LogDir.open(place) as log_dir:
        before = [log_dir.log("t", number).log_end_offset for number in range(PARTITIONS)]
    is_done = repeat(lambda: job(place, kind, segment_bytes, ROWS, staged=end_of_room))
    first = None if is_done else state(place, before)
    expected_others = sorted(value for value, _ in others)
    if not is_done:
        # As full as it is: others read, and append or are told; the same job again fails the same way, or staging does.
        assert found(place, "other") == expected_others
        expected_others += written_meanwhile(place)
        assert found(place, "other") == sorted(expected_others)
        is_done = repeat(lambda: job(place, kind, segment_bytes, ROWS, staged=lambda: None))
    # Room comes back slowly; somebody writes elsewhere meanwhile, and is as stubborn.
    are_others_done = is_done
    pages = 1
    while not (is_done and are_others_done):
        disk.leave(pages)
        if not are_others_done and repeat(lambda: job(place, "nameless", segment_bytes, others, "other", staged=lambda: None)):
            are_others_done = True
            expected_others += [value for value, _ in others]
        is_done = is_done or repeat(lambda: job(place, kind, segment_bytes, ROWS, staged=lambda: None))
        pages *= 3
    plenty()
    assert found(place, "t") == sorted(value for value, _ in there + ROWS)
    assert found(place, "other") == sorted(expected_others)
    # The next one goes on behind it, and what is left over goes with it.
    job(place, "nameless", segment_bytes, others, "other", staged=plenty)
    assert found(place, "t") == sorted(value for value, _ in there + ROWS)
    assert not left(place)
    assert [note.name for note in commits(place) if not note.has_failed] == NAMES[kind]
    assert all(note.is_published for note in commits(place))
    assert not verify(place).findings
    return first


def all_cases(folder: str, kind: str, way: str, what: str) -> None:
    """Less and less room is left, until a commit has none at all; prints what was found when each failed."""
    logging.disable(logging.WARNING)
    seen: Counter[str] = Counter()
    # Where partitions are published at once, which of them the room ends in is chance: one after another, each point is met.
    for at_once in (1, publishing.PARTITIONS_AT_ONCE):
        publishing.PARTITIONS_AT_ONCE = at_once
        for room in range(200):
            with small_disk(Path(folder) / f"disk-{at_once}-{room}") as disk:
                first = one_case(disk.path / "logs", disk, kind, SEGMENT_BYTES[way], {what: room})
            if first is None:
                break
            seen["|".join(first)] += 1
        else:
            sys.exit("a commit that never has room")
    print(json.dumps(seen))


CASES = [
    pytest.param(kind, way, what, marks=pytest.mark.slow if what == "pages" and way != "rolled" else pytest.mark.proof)
    for kind in NAMES
    for way in SEGMENT_BYTES
    for what in ("pages", "names")
]


@pytest.mark.parametrize(("kind", "way", "what"), CASES)
def test_a_disk_is_full_at_every_point_of_a_commit(tmp_path: Path, kind: str, way: str, what: str) -> None:
    seen = [tuple(each.split("|")) for each in json.loads(run_there("test_publish_full_disk", "all_cases", tmp_path, kind, way, what))]
    # Before the note, behind the last append, and within one where a batch needs several pages.
    assert ("no note", NOTHING, NOTHING, NOTHING) in seen
    noted = [parts for is_noted, *parts in seen if is_noted == "noted"]
    # What a job without a name has published is taken back where that can be noted; opening its logs for that may give room back.
    assert [ALL, ALL, ALL] in noted or (kind == "nameless" and any(ALL in parts for parts in noted))
    if what == "pages":
        assert any(PART in parts for parts in noted)
    if kind != "nameless":
        # What a job without a name has published is taken back where that can be noted.
        for number in range(PARTITIONS):
            assert {NOTHING, ALL} <= {parts[number] for parts in noted}
