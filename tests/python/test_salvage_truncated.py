"""``salvage``: what a truncation cut stays out and is told, and goes in where it is asked for. Nothing else differs.

Of the golden logs `tests/data/expected` has every record that was there before the cuts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from frames import frames
from golden import Golden, row
from test_on_corrupt import ALL, PARTITIONS as TORN, touched
from test_salvage import offsetlog
from writing import CUT, times, tree

from offsetlog import Log, recover, salvage

TOLD = "--include-truncated takes them"


class Case(NamedTuple):
    """A golden log, what is done to it, and the offsets that a truncation cut and that are still in a file."""

    golden: Golden
    truncate: Callable[[Path], None]
    left: tuple[int, ...]
    cut: tuple[int, ...]


def before_the_damage(golden: Golden) -> int:
    """Where the batch before the damaged one begins."""
    ((first, _),) = touched(golden)
    bases = (frame.base_offset or 0 for frame in frames(max(golden.directory.glob("*.log"))))
    return max(base for base in bases if base < first)


def recovered(old: Path) -> None:
    """Recovery cuts the active segment at the damage and keeps the rest; then a truncation takes the batch before it."""
    golden = TORN["g-torn-flip-active-0"]
    ((first, _),) = touched(golden)
    assert recover(old).log_end_offset == first
    with Log.open(old, "a") as log:
        log.truncate_to(before_the_damage(golden))


def of_segments(old: Path) -> None:
    """The active segment is truncated as a whole, and waits for its deletion."""
    with Log.open(old, "a") as log:
        log.truncate_to(40)
    assert [path.name for path in old.glob("*.log.deleted")] == [f"{64:020}.log.deleted"]


def of_a_mirror(old: Path) -> None:
    """What a mirror keeps of a truncation has a name of its own, as decision 14 has it."""
    segment = old / f"{64:020}.log"
    whole = segment.read_bytes()
    with Log.open(old, "a") as log:
        log.truncate_to(72)
    (old / CUT).mkdir()
    size = segment.stat().st_size
    (old / CUT / f"{segment.name}.{size}.truncated").write_bytes(whole[size:])


def cases() -> dict[str, Case]:
    active = TORN["g-torn-flip-active-0"]
    ((_, behind),) = touched(active)
    none = TORN["g-torn-none-0"]
    return {
        "of the log that was recovered": Case(active, recovered, ALL[: before_the_damage(active)], ALL[behind:]),
        "of whole segments": Case(none, of_segments, ALL[:40], ALL[64:]),
        "of a mirror": Case(none, of_a_mirror, ALL[:72], ALL[72:]),
    }


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_what_was_truncated_needs_to_be_asked_for(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    golden = case.golden
    old = golden.copy(tmp_path / "old")
    case.truncate(old)
    before = tree(old), times(old)
    sent = {seen.offset: seen for seen in TORN["g-torn-none-0"].rows}
    reports = {}
    for asked in (False, True):
        dry = salvage(old, tmp_path / f"new-{asked}" / golden.name, include_truncated=asked, dry_run=True)
        report = salvage(old, tmp_path / f"new-{asked}" / golden.name, include_truncated=asked)
        assert report == dry._replace(dry_run=False)
        with Log.open(report.path) as log:
            found = list(map(row, log.scan()))
            assert not log.verify().damaged
        assert [seen.offset for seen in found] == [*case.left, *(case.cut if asked else ())]
        assert [seen.key for seen in found] == [sent[seen.offset].key for seen in found]
        if golden.name == "g-torn-none-0":
            assert found == [sent[seen.offset] for seen in found]
        reports[asked] = report
        with Log.open(report.path, "a") as log:
            assert log.recovery_report.clean
    assert (tree(old), times(old)) == before
    without, included = reports[False], reports[True]
    # What stays out is told, with the option that takes it; with it the same comes back.
    out = [left for left in without.left_out if TOLD in left.reason]
    assert [(left.first_offset, left.last_offset) for left in out] == [(case.cut[0], case.cut[-1])]
    back = [(taken.path, taken.batches, taken.first_offset, taken.last_offset) for taken in included.taken_back]
    assert back == [(left.path, left.batches, left.first_offset, left.last_offset) for left in out]
    assert sum(taken.records for taken in included.taken_back) == len(case.cut)
    # Nothing else changes: neither what is lost, nor what else stays out.
    assert without.taken_back == ()
    assert [left for left in without.left_out if left not in out] == list(included.left_out)
    assert (without.losses, without.loss_count) == (included.losses, included.loss_count)
    assert included.records - without.records == len(case.cut)
    assert without.log_start_offset == included.log_start_offset


@pytest.mark.parametrize("name", CASES)
def test_the_command_has_the_option(name: str, tmp_path: Path) -> None:
    """The option as the report without it prints it."""
    case = CASES[name]
    old = case.golden.copy(tmp_path / "old")
    case.truncate(old)
    without = offsetlog("salvage", old, "--into", tmp_path / "without")
    assert TOLD in without.stdout
    (option,) = {word for word in without.stdout.split() if word.startswith("--")}
    included = offsetlog("salvage", old, "--into", tmp_path / "included", option, "--json")
    (line,) = map(json.loads, included.stdout.splitlines())
    assert (line["records"], without.returncode) == (len(case.left) + len(case.cut), included.returncode)
    assert not any(TOLD in left["reason"] for left in line["left_out"])
    with Log.open(line["path"]) as log:
        assert [record.offset for record in log.scan()] == [*case.left, *case.cut]
    with Log.open(tmp_path / "without" / case.golden.name) as log:
        assert [record.offset for record in log.scan()] == list(case.left)


@pytest.mark.parametrize("name", sorted(TORN))
def test_without_a_truncation_it_changes_nothing(name: str, tmp_path: Path) -> None:
    """What recovery cut comes back either way, and what is in no file does not come back."""
    old = TORN[name].copy(tmp_path / "old")
    if name != "g-torn-gap-0":
        recover(old)
    found = [salvage(old, tmp_path / f"new-{asked}" / name, include_truncated=asked) for asked in (False, True)]
    assert found[0]._replace(path="") == found[1]._replace(path="")
    assert tree(Path(found[0].path), without=(".offsetlog.state",)) == tree(Path(found[1].path), without=(".offsetlog.state",))


def cut_at_90(folder: Path) -> Path:
    """A log of a hundred records, of which recovery has cut the last ten: the first of them is damaged."""
    old = folder / "orders-0"
    with Log.open(old, "a") as log:
        for number in range(100):
            log.append(b"old%03d" % number)
    file = old / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[list(frames(file))[90].position + 65] ^= 1
    file.write_bytes(data)
    assert recover(old).log_end_offset == 90
    return old


@pytest.mark.parametrize("count", [10, 45])
def test_a_log_that_grew_past_the_cut_again_was_truncated_too(count: int, tmp_path: Path) -> None:
    """Its segment is longer than where recovery cut it, with other batches there: what was cut is of a history that is gone."""
    old = cut_at_90(tmp_path)
    file = old / f"{0:020}.log"
    cut = file.stat().st_size
    with Log.open(old, "a") as log:
        log.truncate_to(50)
        for number in range(count):
            log.append(b"new%d" % number + b"x" * 500)
    assert file.stat().st_size > cut
    report = salvage(old, tmp_path / "new/orders-0")
    with Log.open(report.path) as log:
        assert [record.offset for record in log.scan()] == [*range(50 + count)]
    assert {left.path for left in report.left_out} == {str(old / CUT / f"{file.name}.{cut}")}
    assert sum(left.batches for left in report.left_out) == 9
    assert any(TOLD in left.reason for left in report.left_out)
    assert report.taken_back == ()
    included = salvage(old, tmp_path / "included/orders-0", include_truncated=True)
    with Log.open(included.path) as log:
        assert [record.offset for record in log.scan()] == [*range(50 + count), *range(max(91, 50 + count), 100)]


def test_a_log_that_was_not_truncated_gets_back_what_recovery_cut_however_far_it_grew(tmp_path: Path) -> None:
    """Its batches are the same up to the cut, and others lie behind it."""
    old = cut_at_90(tmp_path)
    with Log.open(old, "a") as log:
        log.append(b"new" + b"x" * 5000)
    report = salvage(old, tmp_path / "new/orders-0")
    with Log.open(report.path) as log:
        assert [record.offset for record in log.scan()] == [*range(100)]
    assert [(taken.first_offset, taken.last_offset) for taken in report.taken_back] == [(91, 99)]


def test_a_log_whose_records_were_deleted_gets_back_what_recovery_cut(tmp_path: Path) -> None:
    """No batch is left before the cut: nothing says that the log was truncated."""
    old = cut_at_90(tmp_path)
    with Log.open(old, "a") as log:
        log.delete_records_before(log.log_end_offset)
    report = salvage(old, tmp_path / "new/orders-0")
    assert [(taken.first_offset, taken.last_offset) for taken in report.taken_back] == [(91, 99)]


def test_recover_keeps_segments_that_a_truncation_removed(tmp_path: Path) -> None:
    """As they wait for a minute to be deleted. Those before the last segment are of retention or compaction, and go."""
    folder = tmp_path / "data" / "orders-0"
    with Log.open(folder, "a") as log:
        for number in range(9):
            log.append(b"%d" % number)
            if number % 3 == 2:
                log.roll()
    for base, name in ((0, "deleted"), (6, "deleted"), (9, "")):
        for file in folder.glob(f"{base:020}.*"):
            if name:
                file.rename(file.with_name(f"{file.name}.{name}"))
            else:
                file.unlink()
    (folder / ".offsetlog.state").unlink()
    kept = folder / "offsetlog-cut" / f"{6:020}.log.0.truncated"
    words = f"moved to offsetlog-cut/{kept.name}: a truncation removed it"
    assert [words in text for text in recover(folder, dry_run=True).tidied if "00006.log" in text] == [True]
    assert not kept.exists()
    assert [words in text for text in recover(folder).tidied if "00006.log" in text] == [True]
    assert kept.exists()
    assert not list(folder.glob("*.deleted"))
    for include, values in ((False, range(3, 6)), (True, range(3, 9))):
        salvage(folder, tmp_path / str(include) / "orders-0", include_truncated=include)
        with Log.open(tmp_path / str(include) / "orders-0") as log:
            assert [record.value for record in log.scan()] == [b"%d" % number for number in values]
