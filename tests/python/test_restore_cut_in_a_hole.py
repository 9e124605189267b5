"""``restore`` up to a time or to offsets that lie in a missing segment, or behind damage: what is lost is told, and what another has comes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from golden import DATA, OLD
from writing import offsets

from offsetlog import Log, RestoredPartition, RestoreReport, recover, restore
from offsetlog._offsetlog import run_cli

TORN = DATA / "kafka-4.3.0" / "torn"
GAP = TORN / "log-dir-2"
"""Segment 32 of `g-torn-gap-0` is missing: offsets 32 to 63."""
WHOLE = "g-torn-none"
UNTIL = 1_700_000_010_000
"""2023-11-14T22:13:30Z: of `g-torn-none-0` offset 40 is the first record at that time."""


def only(report: RestoreReport) -> RestoredPartition:
    (each,) = report.partitions
    return each


def lost(each: RestoredPartition) -> list[tuple[int, int | None, int | None]]:
    return [(loss.start, loss.stop, loss.records_max) for loss in each.losses]


def offsets_of(directory: str | Path) -> list[int]:
    with Log.open(directory) as log:
        return offsets(log)


def segment_lost(directory: Path, base: int) -> None:
    found = list(directory.glob(f"{base:020}.*"))
    assert found
    for path in found:
        path.unlink()


def replica(place: Path, *, node: int, lacks: int | None, name: str = f"{WHOLE}-0") -> Path:
    """A broker's log dir with one partition, of which a segment is missing."""
    place.mkdir()
    for path in TORN.joinpath("log-dir-1").iterdir():
        if path.is_file():
            shutil.copy(path, place)
    shutil.copytree(TORN / "log-dir-1" / name, place / name)
    lines = (place / "meta.properties").read_text().splitlines()
    of_node = [line for line in lines if not line.startswith(("node.id", "directory.id"))]
    (place / "meta.properties").write_text("\n".join([*of_node, f"node.id={node}", ""]))
    if lacks is not None:
        segment_lost(place / name, lacks)
    return place


@pytest.mark.parametrize("end", [33, 40, 64, 65, None])
def test_a_cut_in_a_missing_segment_tells_what_is_lost(end: int | None, tmp_path: Path) -> None:
    """As it is told without a cut."""
    ends = {} if end is None else {("g-torn-gap", 0): end}
    report = restore(GAP, tmp_path / "new", topics="g-torn-gap", ends=ends)
    each = only(report)
    stop = min(end or 64, 64)
    assert lost(each) == [(32, stop, stop - 32)]
    assert report.has_losses
    assert each.losses[0].time_before is not None
    assert each.losses[0].time_after is not None
    assert each.losses[0].path.endswith(f"{64:020}.log")
    # The log ends where it is cut: what is appended does not get the offsets of what is lost.
    assert each.log_end_offset == (end or 96)
    assert offsets_of(each.into[0].path) == [*range(32), *range(64, end or 96)]


def test_a_cut_before_or_behind_it_tells_nothing_more(tmp_path: Path) -> None:
    for end in (20, 32):
        report = restore(GAP, tmp_path / str(end), topics="g-torn-gap", ends={("g-torn-gap", 0): end})
        assert (only(report).losses, report.has_losses) == ((), False)


def test_a_time_in_a_missing_segment_tells_what_is_lost(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = restore(GAP, tmp_path / "new", topics="g-torn-gap", until=UNTIL)
    assert lost(only(report)) == [(32, 64, 32)]
    assert report.has_losses
    words = ["offsetlog", "restore", str(GAP), "--into", str(tmp_path / "cli"), "-t", "g-torn-gap", "--until", str(UNTIL)]
    assert run_cli(words, []) == 3
    assert "lost: offsets 32 to 63" in capfd.readouterr().out


def test_a_cut_in_a_missing_segment_takes_what_another_replica_has(tmp_path: Path) -> None:
    """Also the batch around the cut, up to it."""
    sources = [replica(tmp_path / "a", node=1, lacks=32), replica(tmp_path / "b", node=2, lacks=64)]
    for end in (33, 43, 64, 70):
        for _ in range(2):
            report = restore(sources, tmp_path / str(end), ends={(WHOLE, 0): end})
            each = only(report)
            assert not report.has_losses
            assert offsets_of(each.into[0].path) == list(range(end))
            assert each.log_end_offset == end
        assert each.state == "there"


@pytest.mark.parametrize("until", [UNTIL, 1_700_000_007_800, 1_700_000_016_823, 1_700_000_016_900])
def test_no_record_of_another_replica_is_behind_the_time(until: int, tmp_path: Path) -> None:
    """The best replica does not have the first record at the time, and the other one does."""
    with Log.open(TORN / "log-dir-1" / f"{WHOLE}-0") as log:
        times = {record.offset: record.timestamp for record in log.scan()}
    stop = min(offset for offset, time in times.items() if time >= until)
    sources = [replica(tmp_path / "a", node=1, lacks=32), replica(tmp_path / "b", node=2, lacks=64)]
    report = restore(sources, tmp_path / "new", until=until)
    each = only(report)
    assert offsets_of(each.into[0].path) == list(range(stop))
    assert (each.log_end_offset, each.is_cut, report.has_losses) == (stop, True, False)
    assert [(taken.first_offset, taken.last_offset) for taken in each.taken_back] == ([(32, min(stop, 64) - 1)] if stop > 32 else [])
    assert only(restore(sources, tmp_path / "new", until=until)).state == "there"


def test_damage_that_hides_the_first_record_at_the_time(tmp_path: Path) -> None:
    """Another replica has it: nothing behind it is restored. A copy of all that this one has is not what is to be restored."""
    a, b = (replica(tmp_path / name, node=node, lacks=None) for node, name in enumerate("ab", 1))
    with Log.open(a / f"{WHOLE}-0") as log:
        (batch,) = (batch for batch in log.batches() if batch.base_offset <= 40 <= batch.last_offset)
    with (a / f"{WHOLE}-0" / f"{32:020}.log").open("r+b") as file:
        file.seek(batch.position + 70)
        file.write(b"\xff" * 4)
    sources = [a, b]
    each = only(restore(sources, tmp_path / "new", until=UNTIL))
    assert each.source.startswith(str(a))
    assert offsets_of(each.into[0].path) == list(range(40))
    assert only(restore(sources, tmp_path / "new", until=UNTIL)).state == "there"
    with Log.open(tmp_path / "more" / f"{WHOLE}-0", "a") as log, Log.open(b / f"{WHOLE}-0") as whole:
        log.append_log(whole)
    assert only(restore(sources, tmp_path / "more", until=UNTIL)).state in {"failed", "refused"}
    # Alone it goes up to the first record at the time that can be read, and tells what is missing before.
    report = restore(a, tmp_path / "alone", until=UNTIL)
    end = batch.last_offset + 1
    assert (only(report).log_end_offset, only(report).is_cut, report.has_losses) == (end, True, True)
    assert lost(only(report)) == [(batch.base_offset, end, end - batch.base_offset)]
    assert offsets_of(tmp_path / "alone" / f"{WHOLE}-0") == list(range(batch.base_offset))


T = 1_700_000_000_000


def cut_off(place: Path) -> Path:
    """A log whose batches from offset 3 on were cut off it by a recovery, and kept."""
    with Log.open(place / "orders-0", "a") as log:
        for number in range(8):
            log.append(b"value", timestamp=T + number)
        (batch,) = (batch for batch in log.batches() if batch.base_offset == 3)
    with (place / "orders-0" / f"{0:020}.log").open("r+b") as file:
        file.seek(batch.position + 70)
        whole = file.read(4)
        file.seek(batch.position + 70)
        file.write(b"\xff" * 4)
    recover(place / "orders-0")
    (kept,) = (path for path in (place / "orders-0" / "offsetlog-cut").rglob("*") if path.is_file() and ".log" in path.name)
    data = bytearray(kept.read_bytes())
    at = 70 if data[70:74] == b"\xff" * 4 else batch.position + 70
    data[at : at + 4] = whole
    kept.write_bytes(data)
    assert offsets_of(place / "orders-0") == [0, 1, 2]
    return place


@pytest.mark.parametrize("how", [{}, {"ends": {("orders", 0): 5}}, {"until": T + 5}, {"until": T + 3}, {"until": T + 100}])
def test_what_was_cut_off_comes_back_up_to_the_end_alone(how: dict[str, Any], tmp_path: Path) -> None:
    """The log ends before the time, or the offset; what a recovery kept goes on behind it."""
    source = cut_off(tmp_path / "old")
    end = min(how.get("ends", {("orders", 0): 8})["orders", 0], how.get("until", T + 8) - T, 8)
    for state in ("restored", "there"):
        each = only(restore(source, tmp_path / "new", **how))
        assert each.state == state
        assert offsets_of(each.into[0].path) == list(range(end))
        assert each.losses == ()


def test_a_lost_segment_before_an_empty_one_is_told(tmp_path: Path) -> None:
    """It was the last one with records: the log ends behind it all the same."""
    source = tmp_path / "old"
    with Log.open(source / "orders-0", "a") as log:
        for _ in range(2):
            log.append_records([b"a", b"b"])
            log.roll()
    segment_lost(source / "orders-0", 2)
    for ends in ({}, {("orders", 0): 3}):
        report = restore(source, tmp_path / f"new{len(ends)}", ends=ends)
        assert lost(only(report)) == [(2, 3 if ends else 4, 1 if ends else 2)]
        assert report.has_losses


@pytest.mark.parametrize("topic", ["o-v1-gzip", "o-v0-lz4", "o-v0-snappy", "o-v1-none"])
def test_a_lost_segment_of_old_messages_is_told(topic: str, tmp_path: Path) -> None:
    """A compressed set of magic 0 or 1 says only where it ends."""
    source = tmp_path / "old"
    source.mkdir()
    for path in (OLD / "broker-1").iterdir():
        if path.is_file():
            shutil.copy(path, source)
    shutil.copytree(OLD / "broker-1" / f"{topic}-0", source / f"{topic}-0")
    with Log.open(source / f"{topic}-0") as log:
        _, second, third = (segment.base_offset for segment in log.segments)
    before = offsets_of(source / f"{topic}-0")
    segment_lost(source / f"{topic}-0", second)
    middle = (second + third) // 2
    for end in (None, third, middle):
        ends = {} if end is None else {(topic, 0): end}
        report = restore(source, tmp_path / f"new{end}", ends=ends)
        each = only(report)
        assert lost(each) == [(second, end or third, (end or third) - second)]
        kept = [offset for offset in before if not second <= offset < third]
        assert offsets_of(each.into[0].path) == [offset for offset in kept if end is None or offset < end]
        assert report.has_losses
