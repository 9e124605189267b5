"""``salvage`` of brokers' logs that went on after a recovery: the live log wins, and of kept files that overlap one is taken, the other listed.

Kept files begin with the damaged batch that recovery cut at; the batches behind it are whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from frames import Frame, frames, logs
from golden import Row, row
from test_on_corrupt import ALL, PARTITIONS as TORN, touched
from test_salvage import offsetlog
from writing import CUT, times, tree

from offsetlog import Log, SalvageReport, recover, restore, salvage

GOLDEN = TORN["g-torn-flip-old-0"]
((FIRST_LOST, BEHIND),) = touched(GOLDEN)
KEYS = {seen.offset: seen.key for seen in TORN["g-torn-none-0"].rows}


class KeptBatch(NamedTuple):
    """A whole batch in a kept file."""

    path: Path
    frame: Frame

    @property
    def offsets(self) -> range:
        return range(self.frame.base_offset or 0, self.frame.last_offset + 1)


def recovered(old: Path) -> None:
    """As a broker recovers, which ends the log before the damaged batch; two thirds of it are kept."""
    assert recover(old).log_end_offset == FIRST_LOST
    assert [(each.offsets.start, each.offsets.stop) for each in kept(old)] == [(at, at + 4) for at in range(BEHIND, len(ALL), 4)]


def appended(old: Path, count: int, name: str) -> None:
    """The log goes on with other records, one a batch."""
    with Log.open(old, "a") as log:
        for number in range(count):
            log.append(b"%s %d" % (name.encode(), number), key=name.encode())


def kept(old: Path) -> list[KeptBatch]:
    """What recovery kept of this log, in the order of the files, but for the damaged batch with which some begin."""
    found = []
    for path in sorted((old / CUT).iterdir()):
        with Log.open(path) as log:
            whole = {batch.position for batch in readable(log)}
        found += [KeptBatch(path, frame) for frame in frames(path) if frame.position in whole]
    return found


def readable(log: Log) -> list[Frame]:
    """The frames of a file whose records can be read."""
    offsets = {record.offset for record in log.scan(on_corrupt="skip")}
    return [frame for frame in frames(Path(log.path)) if frame.base_offset in offsets]


def of_live(old: Path) -> dict[int, Row]:
    with Log.open(old) as log:
        return {record.offset: row(record) for record in log.scan()}


def salvaged(old: Path, into: Path) -> tuple[SalvageReport, dict[int, Row]]:
    """Its report, and its records; the source is as it was, and the new log is sound."""
    before = tree(old), times(old)
    report = salvage(old, into / old.name)
    assert (tree(old), times(old)) == before
    with Log.open(report.path) as log:
        rows = list(map(row, log.scan()))
        assert not log.verify().damaged
    found = {seen.offset: seen for seen in rows}
    assert [seen.offset for seen in rows] == sorted(found)
    return report, found


def check_each_is_told(old: Path, report: SalvageReport, found: dict[int, Row]) -> None:
    """The live log is there as it is; of every kept batch all is there, or nothing, and the report counts it."""
    live = of_live(old)
    assert live.items() <= found.items()
    taken: dict[str, list[int]] = {}
    left: dict[str, int] = {}
    back: dict[int, Row] = {}
    for batch in kept(old):
        with Log.open(batch.path) as log:
            own = {record.offset: row(record) for record in log.scan(on_corrupt="skip") if record.offset in batch.offsets}
        if own.items() <= found.items():
            assert not own.keys() & live.keys()
            taken.setdefault(str(batch.path), []).extend(batch.offsets)
            back |= own
        else:
            left[str(batch.path)] = left.get(str(batch.path), 0) + 1
    # Nothing is there that neither has.
    assert live | back == found
    told: dict[str, list[int]] = {}
    for each in report.taken_back:
        told.setdefault(each.path, []).append(each.records)
    assert {path: sum(records) for path, records in told.items()} == {path: len(offsets) for path, offsets in taken.items()}
    listed: dict[str, int] = {}
    for out in report.left_out:
        if out.batches:
            listed[out.path] = listed.get(out.path, 0) + out.batches
    assert listed == left


def test_what_cannot_be_read_where_it_is_kept_is_lost(tmp_path: Path) -> None:
    """The damaged batch: the loss and the exit code are those of the log before its recovery."""
    old = GOLDEN.copy(tmp_path / "old")
    before = salvage(old, tmp_path / "before" / old.name)
    assert [(loss.start, loss.stop, loss.records_max) for loss in before.losses] == [(FIRST_LOST, BEHIND, BEHIND - FIRST_LOST)]
    recovered(old)
    report, found = salvaged(old, tmp_path / "new")
    assert set(ALL) - found.keys() == set(range(FIRST_LOST, BEHIND))
    (loss,) = report.losses
    assert (loss.start, loss.stop, loss.records_max) == (FIRST_LOST, BEHIND, BEHIND - FIRST_LOST)
    assert (loss.time_before, loss.reason) == (before.losses[0].time_before, before.losses[0].reason)
    assert Path(loss.path).parent == old / CUT
    done = offsetlog("salvage", old, "--into", tmp_path / "shell")
    assert done.returncode == 3
    assert f"  lost: offsets {FIRST_LOST} to {BEHIND - 1}, " in done.stdout
    (each,) = restore(old.parent, tmp_path / "restored", topics=[GOLDEN.topic]).partitions
    assert [(loss.start, loss.stop) for loss in each.losses] == [(FIRST_LOST, BEHIND)]
    again = restore(old.parent, tmp_path / "restored", topics=[GOLDEN.topic])
    assert again.has_losses
    assert again.partitions[0].losses == each.losses


@pytest.mark.parametrize("count", [1, 4, 6, 30, 70])
def test_the_live_log_wins(count: int, tmp_path: Path) -> None:
    """However far it went on. A kept batch of which it has an offset stays out, whole; those behind its end come back."""
    old = GOLDEN.copy(tmp_path / "old")
    recovered(old)
    appended(old, count, "new")
    end = FIRST_LOST + count
    report, found = salvaged(old, tmp_path / "new")
    check_each_is_told(old, report, found)
    assert {offset: seen for offset, seen in found.items() if offset < FIRST_LOST} == {seen.offset: seen for seen in GOLDEN.rows}
    assert [seen.value for offset, seen in found.items() if FIRST_LOST <= offset < end] == [
        b"new %d" % number for number in range(count)
    ]
    # The batches of the broker have four records each.
    back = range(max(BEHIND, end + -end % 4), len(ALL))
    assert [(offset, seen.key) for offset, seen in found.items() if offset >= end] == [(offset, KEYS[offset]) for offset in back]
    covered = [(out.first_offset, out.last_offset) for out in report.left_out if out.batches]
    assert bool(covered) == (end > BEHIND)
    if covered:
        assert (covered[0][0], covered[-1][1]) == (BEHIND, min(back.start, len(ALL)) - 1)


def twice(old: Path, count: int) -> int:
    """Recovered, gone on, damaged again at the second new batch, recovered again. Returns where that one is."""
    recovered(old)
    appended(old, count, "new")
    file = logs(old)[-1]
    at = next(frame for frame in frames(file) if frame.base_offset == FIRST_LOST + 1)
    data = bytearray(file.read_bytes())
    data[at.position + at.size_bytes - 1] ^= 1
    file.write_bytes(data)
    assert recover(old).log_end_offset == FIRST_LOST + 1
    return FIRST_LOST + 1


@pytest.mark.parametrize("count", [4, 8, 30])
def test_of_kept_files_that_overlap_one_is_taken(count: int, tmp_path: Path) -> None:
    """Where both have an offset, one batch is there, whole, and the other is listed with the file that was taken instead."""
    old = GOLDEN.copy(tmp_path / "old")
    lost = twice(old, count)
    report, found = salvaged(old, tmp_path / "new")
    check_each_is_told(old, report, found)
    batches = kept(old)
    both = [(one, other) for one in batches for other in batches if one.path < other.path and set(one.offsets) & set(other.offsets)]
    assert bool(both) == (FIRST_LOST + count > BEHIND)
    listed = [out for out in report.left_out if out.batches and "overlap batches that were taken from " in out.reason]
    assert bool(listed) == bool(both)
    paths = {str(batch.path) for batch in batches}
    for out in listed:
        assert out.reason.removeprefix("they overlap batches that were taken from ") in paths - {out.path}
    # What can be in no kept batch that comes back is a loss, and is told: the batch that was damaged.
    assert lost not in found
    assert [(loss.start, loss.stop) for loss in report.losses] == [(lost, lost + 1)]
    missing = set(range(lost, len(ALL))) - found.keys()
    told = {offset for loss in report.losses for offset in range(loss.start, loss.stop or len(ALL))}
    left = {offset for out in report.left_out for offset in range(out.first_offset, (out.last_offset or out.first_offset) + 1)}
    assert missing <= told | left


def test_the_command_lists_them(tmp_path: Path) -> None:
    old = GOLDEN.copy(tmp_path / "old")
    twice(old, 8)
    report, _ = salvaged(old, tmp_path / "new")
    done = offsetlog("salvage", old, "--into", tmp_path / "shell")
    assert done.returncode in (0, 3), done.stderr
    for out in report.left_out:
        assert out.reason in done.stdout
        assert Path(out.path).name in done.stdout
