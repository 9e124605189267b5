"""The lag of groups as time: the first record that is unread, beside what a real consumer read of the same directories."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, OLD_LOG_DIRS, OLD_PARTITIONS, Golden

from offsetlog import GroupOffset, Log, LogDir

OFFSETS = "__consumer_offsets"
NOW = 1_700_000_000_000


def commit(group: str, topic: str, partition: int, offset: int) -> tuple[bytes, bytes]:
    """A record of a coordinator: key in version 1, value in version 0."""
    names = b"".join(len(name.encode()).to_bytes(2, "big") + name.encode() for name in (group, topic))
    return b"\0\1" + names + partition.to_bytes(4, "big"), b"\0\0" + offset.to_bytes(8, "big", signed=True) + bytes(10)


def commits(place: Path, records: Iterable[tuple[bytes, bytes]]) -> Path:
    """A log dir whose only partition is one of the groups' topic that no golden directory has."""
    with LogDir.open(place, "a") as logs:
        logs.create_topic(OFFSETS, 50)
    for directory in place.glob(f"{OFFSETS}-*"):
        if directory.name != f"{OFFSETS}-49":
            shutil.rmtree(directory)
    with Log.open(place / f"{OFFSETS}-49", "a") as log:
        log.append_records(list(records))
    return place


def found(paths: list[Path], group: str = "") -> dict[tuple[str, str, int], GroupOffset]:
    with LogDir.open(paths) as logs:
        return {
            (each.group_id, offset.topic, offset.partition): offset
            for each in logs.groups()
            if each.group_id.startswith(group)
            for offset in each.offsets
        }


def first_unread(golden: Golden, offset: int) -> int | None:
    """What the consumer that wrote down all records would have got first from `offset` on."""
    times = (row.timestamp for row in golden.rows if row.offset >= offset)
    time = next(times, -1)
    return time if time >= 0 else None


def unlike(partitions: list[Golden]) -> list[Golden]:
    """One of all replicas, and no internal topics: the listing of their control records is not complete."""
    return [golden for golden in {each.name: each for each in partitions}.values() if not golden.topic.startswith("__")]


@pytest.mark.parametrize(
    ("log_dirs", "partitions"), [(CLEAN_LOG_DIRS, CLEAN_PARTITIONS), (OLD_LOG_DIRS, OLD_PARTITIONS)], ids=["4.3.0", "2.8.2"]
)
def test_the_first_unread_record_is_what_a_consumer_gets_next(
    log_dirs: tuple[Path, ...], partitions: list[Golden], tmp_path: Path
) -> None:
    """From offsets all over each partition: deleted ones, gaps of compaction, markers at the end, compressed and old batches."""
    wanted: dict[tuple[str, str, int], int | None] = {}
    records = []
    for golden in unlike(partitions):
        known = {row.offset for row in golden.rows}
        gaps = [offset for offset in range(golden.start, golden.end) if offset not in known]
        offsets = {0, golden.start, golden.end - 1, golden.end, golden.end + 7, *gaps[:: max(1, len(gaps) // 40)]}
        offsets |= set(range(golden.start, golden.end, max(1, (golden.end - golden.start) // 40)))
        for offset in sorted(offset for offset in offsets if offset >= 0):
            group = f"lag-{offset}"
            wanted[group, golden.topic, golden.partition] = first_unread(golden, offset)
            records.append(commit(group, golden.topic, golden.partition, offset))
    assert len(wanted) > 500
    seen = found([*log_dirs, commits(tmp_path / "groups", records)], "lag-")
    assert {key: each.first_unread_timestamp for key, each in seen.items()} == wanted
    assert sum(time is None for time in wanted.values()) < len(wanted) / 2


def place_with(tmp_path: Path, *offsets: int, topic: str = "t") -> Path:
    """A log dir with one topic, empty, and one group for each of these offsets."""
    place = commits(tmp_path / "logs", [commit(f"g{offset:03}", topic, 0, offset) for offset in offsets])
    with LogDir.open(place, "a") as logs:
        logs.create_topic("t")
    return place


def times(place: Path) -> list[int | None]:
    return [each.first_unread_timestamp for each in found([place]).values()]


def test_records_without_a_time_give_none(tmp_path: Path) -> None:
    place = place_with(tmp_path, 0, 1, 2)
    with Log.open(place / "t-0", "a") as log:
        log.append(b"no time", timestamp=-1)
        log.append(b"a time", timestamp=NOW)
        log.flush()
    assert times(place) == [None, NOW, None]


def test_an_offset_below_the_log_start_offset_reads_from_there(tmp_path: Path) -> None:
    place = place_with(tmp_path, 0, 4, 5, 6)
    with Log.open(place / "t-0", "a") as log:
        for number in range(6):
            log.append(b"x", timestamp=NOW + number)
        log.flush()
        log.delete_records_before(5)
    assert times(place) == [NOW + 5, NOW + 5, NOW + 5, None]


def test_markers_are_nothing_to_read(tmp_path: Path) -> None:
    """A lag of one offset where only the marker of a transaction is left."""
    place = place_with(tmp_path, 0, 1, 2, 3)
    with Log.open(place / "t-0", "a") as log:
        log.append_records([b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_marker(7, 0, commit=True, timestamp=NOW)
        log.append(b"y", timestamp=NOW + 9)
        log.append_records([b"z"], producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
        log.append_marker(7, 0, commit=True, timestamp=NOW)
    assert times(place)[1:3] == [NOW + 9, NOW + 9]
    with Log.open(place / f"{OFFSETS}-49", "a") as log:
        log.append_records([commit("g004", "t", 0, 4)])
    last = found([place])["g004", "t", 0]
    assert (last.lag, last.first_unread_timestamp) == (1, None)


def test_what_is_not_here_has_no_time(tmp_path: Path) -> None:
    place = place_with(tmp_path, 0, topic="elsewhere")
    (only,) = found([place]).values()
    assert (only.log_end_offset, only.lag, only.first_unread_timestamp, only.first_unread_datetime) == (None, None, None, None)


def test_damage_hides_one_time_and_no_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = place_with(tmp_path, 0, 1, 2)
    with Log.open(place / "t-0", "a") as log:
        for number in range(3):
            log.append(b"x" * 100, timestamp=NOW + number)
            log.flush()
        log.roll()
        log.append(b"y", timestamp=NOW + 9)
    segment = min((place / "t-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    with caplog.at_level("WARNING", "offsetlog"):
        assert times(place) == [NOW, None, NOW + 2]
    told = [record.getMessage() for record in caplog.records if "first record at or after offset" in record.getMessage()]
    assert len(told) == 1
    assert "t-0: the first record at or after offset 1" in told[0]
    printed = run(str(place), "--json")
    assert (printed.returncode, len(printed.stdout.splitlines())) == (0, 3)
    assert "t-0: the first record at or after offset 1" in printed.stderr


def test_a_datetime(tmp_path: Path) -> None:
    place = place_with(tmp_path, 0)
    with Log.open(place / "t-0", "a") as log:
        log.append(b"x", timestamp=NOW)
        log.flush()
    (only,) = found([place]).values()
    assert only.first_unread_datetime == datetime.fromtimestamp(NOW / 1000, UTC)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offsetlog", "groups", *arguments], capture_output=True, text=True, check=False, timeout=300
    )


def test_the_command_counts_ages_up_to_a_time(tmp_path: Path) -> None:
    """The clock is the system's, or a time that is given; a record of the future is of age 0."""
    place = place_with(tmp_path, 0, 1, 2)
    with Log.open(place / "t-0", "a") as log:
        log.append(b"x", timestamp=NOW)
        log.append(b"y", timestamp=NOW + 60_000)
        log.flush()
    printed = run(str(place), "--now", str(NOW + 11_000)).stdout.splitlines()
    assert printed[0].split()[5:8] == ["LAG", "TIME-LAG", "COMMITTED-AT"]
    assert [row.split()[5:7] for row in printed[1:]] == [["2", "11s"], ["1", "0ms"], ["0", "-"]]
    for now in (str(NOW + 90_000), "2023-11-14T22:14:50Z"):
        rows = [json.loads(line)["offsets"][0] for line in run(str(place), "--json", "--now", now).stdout.splitlines()]
        assert [(row["first_unread_timestamp"], row["time_lag_ms"]) for row in rows] == [
            (NOW, 90_000),
            (NOW + 60_000, 30_000),
            (None, None),
        ]
    (first, *_) = [json.loads(line)["offsets"][0] for line in run(str(place), "--json").stdout.splitlines()]
    assert abs(datetime.now(UTC).timestamp() * 1000 - NOW - first["time_lag_ms"]) < 60_000
    assert run(str(place), "--now", "soon").returncode == 2
