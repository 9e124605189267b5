"""After a kill, a torn write or damage: what opening mends, what it refuses, and what ``recover`` does."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest
from frames import all_frames
from golden import CLEAN
from old_layout import message, partition
from writing import CUT, FIRST, LOCK, NOW, SMALL, STATE, Clock, abandon, coded, filled, offsets, python, running, times, tree, values

from offsetlog import Cut, Log, LogDirError, RecoveryReport, errors, recover


def killed(path: Path, count: int = 3) -> Path:
    """A log with `count` batches of two records whose writer died."""
    log = Log.open(path, "a", SMALL, clock=Clock())
    for number in range(count):
        log.append_records([b"a%d" % number, b"b%d" % number], producer_id=4, producer_epoch=0, base_sequence=2 * number)
    abandon(log)
    return path


def records_only(path: Path) -> dict[str, bytes | None]:
    """The bytes of the segments' ``.log`` files."""
    return {name: data for name, data in tree(path).items() if name.endswith(".log")}


def test_abandoned_logs_come_back_whole(tmp_path: Path) -> None:
    path = killed(tmp_path / "orders-0")
    before = records_only(path)
    with Log.open(path, "a", clock=Clock()) as log:
        report = log.recovery_report
        assert (report.clean, report.cut, report.kept, report.log_end_offset) == (False, (), (), 6)
        assert (report.segments_read, report.bytes_read) == (1, log.size_bytes)
        assert offsets(log) == [0, 1, 2, 3, 4, 5]
        # The producers too.
        assert log.append_records([b"a2", b"b2"], producer_id=4, producer_epoch=0, base_sequence=4).duplicate
        assert log.append(b"more") == 6
    assert (records_only(path)[FIRST] or b"").startswith(before[FIRST] or b"none")
    with Log.open(path, "a") as log:
        assert log.recovery_report.clean


SIGKILLED = """
import sys
from offsetlog import Log
log = Log.open(sys.argv[1], "a", {"internal.segment.bytes": 2000, "segment.index.bytes": 1000})
if sys.argv[2] == "flush": log.flush()
number = 0
with log.writer(batch_bytes=100, linger_ms=0) as writer:
    while True:
        if sys.argv[2] == "append":
            print(log.append(b"%d" % number, key=b"k" * (number % 50), leader_epoch=number // 100), flush=True)
        elif sys.argv[2] == "transactions":
            log.append_records([b"%d" % number], producer_id=1, producer_epoch=0, base_sequence=number, transactional=True)
            print(log.append_marker(1, 0, commit=number % 2 == 0).last_offset, flush=True)
        else:
            writer.append(b"%d" % number)
            info = writer.flush()
            print(info.last_offset, flush=True)
        number += 1
"""


@pytest.mark.parametrize("way", ["append", "transactions", "writer"])
@pytest.mark.parametrize("turn", range(2))
def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path, way: str, turn: int) -> None:
    path = tmp_path / "orders-0"
    with running("print('ready', flush=True)\n" + SIGKILLED, path, way) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(150 + 77 * turn)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        acknowledged += [int(line) for line in process.stdout.read().split("\n")[:-1] if line]
    with Log.open(path) as reader:
        seen_before = values(reader)
    with Log.open(path, "a") as log:
        assert not log.recovery_report.clean
        assert all(not cut.had_batches for cut in log.recovery_report.cut)
        found = values(log)
        assert found == seen_before
        assert found == [b"%d" % number for number in range(len(found))]
        assert acknowledged[-1] < log.log_end_offset <= acknowledged[-1] + 3
        assert len(log.segments) > 2
        if way == "transactions":
            committed = [record.value for record in log.scan(isolation_level="read_committed")]
            assert committed[:70] == [b"%d" % number for number in range(0, 140, 2)]
        assert log.append(b"next") == log.log_end_offset - 1


def damaged(path: Path, slot: int, *, segments: int = 1, count: int = 5) -> tuple[Path, Path, int]:
    """A log with a flipped bit in the payload of the batch in `slot`; gives its file and the batch's position."""
    filled(path, count, segments=segments)
    frame = all_frames(path)[slot]
    file = path / f"{frame.segment:020}.log"
    data = bytearray(file.read_bytes())
    data[frame.position + frame.size_bytes - 3] ^= 4
    file.write_bytes(data)
    return path, file, frame.position


@pytest.mark.parametrize(("slot", "segments"), [(1, 1), (0, 5), (1, 5), (3, 5)])
def test_damage_with_batches_behind_it_is_refused_and_recovered_on_demand(tmp_path: Path, slot: int, segments: int) -> None:
    path, file, position = damaged(tmp_path / "orders-0", slot, segments=segments)
    before = records_only(path)
    with pytest.raises(
        errors.CorruptBatchError, match=r"checksum mismatch.*`offsetlog recover --dry-run` shows.*`offsetlog recover` does it"
    ) as caught:
        Log.open(path, "a", clean=False, recovery_point=0)
    assert (caught.value.path, caught.value.position) == (str(file), position)
    assert records_only(path) == before
    # Reading goes on up to there.
    with Log.open(path) as reader, pytest.raises(errors.CorruptBatchError):
        reader.scan().count()

    everything = tree(path), times(path)
    planned = recover(path, dry_run=True)
    assert (tree(path), times(path)) == everything
    report = recover(path)
    assert (planned.dry_run, report.dry_run) == (True, False)
    assert (planned.cut, planned.log_end_offset) == (report.cut, report.log_end_offset)
    assert report.log_end_offset == 2 * slot
    assert report.cut[0][:2] == (str(file), position)
    assert report.cut[0] == Cut(*report.cut[0])
    assert re.fullmatch(r"record batch checksum mismatch: stored \w+, computed \w+ \(CRC-32C\)", report.cut[0].reason), (
        "what is wrong, without where"
    )
    assert any(cut.had_batches for cut in report.cut)
    # Of the batch that is damaged itself nothing can be said.
    counted = [cut for cut in report.cut if cut.offsets is not None]
    assert sum(cut.records for cut in report.cut) == sum(cut.offsets[1] - cut.offsets[0] + 1 for cut in counted if cut.offsets)
    assert all((cut.records > 0) == cut.had_batches == (cut.offsets is not None) for cut in report.cut)
    # Every byte that left the log is kept.
    lost = b"".join(Path(cut.kept).read_bytes() for cut in report.cut if cut.kept)
    kept = records_only(path)
    assert (
        b"".join(data or b"" for data in before.values())
        == b"".join(data or b"" for name, data in kept.items() if not name.startswith(CUT)) + lost
    )
    assert sorted(report.kept) == sorted(
        str(path / name) for name, data in tree(path).items() if name.startswith(f"{CUT}/") and data is not None
    )
    with Log.open(path, "a") as log:
        assert log.recovery_report.clean
        assert offsets(log) == list(range(2 * slot))
        assert log.append(b"next") == 2 * slot
        assert len(list(log.scan())) == 2 * slot + 1


def test_what_was_kept_can_be_read_as_a_log(tmp_path: Path) -> None:
    path, _, _ = damaged(tmp_path / "orders-0", 1, segments=5)
    report = recover(path)
    assert [(cut.records, cut.offsets) for cut in report.cut[1:]] == [(2, (4, 5)), (2, (6, 7)), (2, (8, 9))]
    assert (report.records_cut, report.offsets_cut) == (6, (4, 9))
    sound = recover(path)
    assert (sound.records_cut, sound.offsets_cut) == (0, None)
    rescued = tmp_path / "rescued-0"
    rescued.mkdir()
    for cut in report.cut[1:]:
        assert cut.kept is not None
        (rescued / Path(cut.path).name).write_bytes(Path(cut.kept).read_bytes())
    with Log.open(rescued) as log:
        assert values(log) == [b"v2", b"w2", b"v3", b"w3", b"v4", b"w4"]


def test_a_second_recovery_tells_what_the_first_one_cut(tmp_path: Path) -> None:
    """Killed behind the renaming of the last segments: those are not in its own numbers, and the copy of what it cuts again is."""
    path, file, position = damaged(tmp_path / "orders-0", 2, segments=5, count=20)
    whole = tmp_path / "whole" / path.name
    shutil.copytree(path, whole)
    undisturbed = recover(whole)
    assert (undisturbed.records_cut, undisturbed.offsets_cut) == (34, (6, 39))
    assert not undisturbed.warnings
    (path / CUT).mkdir()
    (path / CUT / f"{file.name}.{position}").write_bytes(file.read_bytes()[position:])
    for base in (24, 32):
        for each in path.glob(f"{base:020}.*"):
            each.unlink()
        shutil.copy2(whole / CUT / f"{base:020}.log.0", path / CUT)
    words = (
        "earlier recoveries cut 16 records at offsets 24 to 39, which what is said here does not count: "
        "offsetlog-cut has them in 00000000000000000024.log.0, 00000000000000000032.log.0"
    )
    for dry_run in (True, False):
        report = recover(path, dry_run=dry_run)
        assert (report.records_cut, report.offsets_cut) == (18, (6, 23))
        assert report.warnings == (words,)
    # What is cut stays told, so that nobody takes a log for whole by its last recovery.
    (told,) = recover(path).warnings
    assert told.startswith("earlier recoveries cut 34 records at offsets 6 to 39, ")
    assert told.endswith(" and 2 more")


# Of the batch whose base offset gets a wrong bit, which byte of it that is in. In the last segment a small step too far could be true.
WRONG_OFFSETS = {
    "in the segment that is cut": (4, 2),
    "in the segment that is cut, by less": (4, 4),
    "behind it": (7, 2),
    "behind it, by less": (7, 4),
    "in the last one": (10, 2),
}


@pytest.mark.parametrize("where", WRONG_OFFSETS)
def test_a_wrong_base_offset_is_no_offset_of_what_was_cut(tmp_path: Path, where: str) -> None:
    """No checksum covers it: of that batch nothing can be said, and the batches behind it count."""
    path = filled(tmp_path / "orders-0", 12, segments=4)
    frames = all_frames(path)
    slot, byte = WRONG_OFFSETS[where]
    wrong = {4, slot}
    for number in wrong:
        frame = frames[number]
        file = path / f"{frame.segment:020}.log"
        data = bytearray(file.read_bytes())
        data[frame.position + (byte if number == slot else frame.size_bytes - 3)] ^= 4
        file.write_bytes(data)
    dry = recover(path, dry_run=True)
    report = recover(path)
    assert dry.cut == report.cut
    assert report.log_end_offset == 8
    assert report.records_cut == 2 * (len(frames) - 4 - len(wrong))
    assert report.offsets_cut == (10, 23)
    for cut in report.cut:
        base = int(Path(cut.path).stem)
        assert cut.offsets is not None
        assert base <= cut.offsets[0] <= cut.offsets[1] < base + 6


def test_recover_of_a_good_log_changes_no_record(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0", 6, segments=3)
    before = tree(path, without=(LOCK, STATE))
    report = recover(path)
    assert report == RecoveryReport((), (), (), 12, 0, report.clean, dry_run=False, segments_read=3, bytes_read=report.bytes_read)
    assert tree(path, without=(LOCK, STATE)) == before


def test_a_dry_run_over_clean_logs_of_brokers_finds_nothing() -> None:
    """Their indexes have other entries than ours would have, and every one of them is true."""
    found = [path for path in sorted(CLEAN.glob("log-dir-*/*-*")) if path.is_dir()]
    assert len(found) == 40
    for path in found:
        report = recover(path, dry_run=True)
        assert (report.cut, report.rebuilt, report.tidied) == ((), (), ()), path


def test_recover_finds_nothing_where_the_count_of_bytes_began_anew(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    for _ in range(3):
        with Log.open(path, "a", {"index.interval.bytes": 150}, clock=Clock()) as log:
            for number in range(5):
                log.append(b"v" * 50 + b"%d" % number)
    # The snapshot of the second close goes, as when a broker loads the log.
    files = (LOCK, STATE, f"{10:020}.snapshot")
    before = tree(path, without=files)
    for dry_run in (True, False):
        assert recover(path, dry_run=dry_run).rebuilt == ()
    assert tree(path, without=files) == before


def test_recover_makes_an_index_again_that_says_what_is_not_so(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    before = tree(path, without=(LOCK, STATE))
    file = (path / FIRST).with_suffix(".timeindex")
    file.write_bytes(file.read_bytes()[:-5])
    for dry_run in (True, False):
        assert recover(path, dry_run=dry_run).rebuilt == ((str(file), "it did not agree with the batches"),)
    assert tree(path, without=(LOCK, STATE)) == before


def test_recover_from_an_offset(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0", 6, segments=3)
    assert [recover(path, from_offset=start).segments_read for start in (0, 3, 4, 8, 11, 99)] == [3, 3, 2, 1, 1, 1]
    assert recover(path, from_offset=0, dry_run=True).segments_read == 3


@pytest.mark.parametrize(
    ("options", "kind", "match"),
    [({"from_offset": -1}, errors.ConfigError, "from_offset"), ({"from_offset": "0"}, TypeError, "from_offset")],
)
def test_arguments_of_recover(tmp_path: Path, options: dict[str, int], kind: type[Exception], match: str) -> None:
    path = filled(tmp_path / "orders-0")
    before = tree(path), times(path)
    with pytest.raises(kind, match=match):
        recover(path, **options)  # type: ignore[arg-type]  # what it must refuse
    assert (tree(path), times(path)) == before


def test_recover_of_what_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        recover(tmp_path / "absent-0")
    (tmp_path / "orders").mkdir()
    with pytest.raises(errors.LogDirError, match="directory name"):
        recover(tmp_path / "orders")
    with pytest.raises(TypeError, match="path must be str"):
        recover(3)  # type: ignore[arg-type]  # what it must refuse
    assert tree(tmp_path) == {"orders": None}


def test_a_finished_swap_takes_its_place(tmp_path: Path) -> None:
    """Output of a compaction of the first two segments, whose renaming was interrupted."""
    path = filled(tmp_path / "orders-0", 6, segments=3)
    (path / f"{0:020}.log.swap").write_bytes(coded(b"kept", base_offset=1) + coded(b"kept too", base_offset=7))
    dry = recover(path, dry_run=True)
    assert dry.tidied
    assert dry.warnings
    with Log.open(path, "a") as log:
        assert offsets(log) == [1, 7, 8, 9, 10, 11]
        assert log.recovery_report.tidied
        assert log.append(b"next") == 12
        assert log.get(5) is None
    assert not [name for name in tree(path) if name.endswith(".swap")]


def test_what_counts_as_clean_can_be_said(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0", 6, segments=3)
    for clean, point, segments in ((None, None, 0), (True, None, 0), (True, 0, 0), (False, 0, 3), (False, 5, 2), (False, 12, 1)):
        log = Log.open(path, "a", clean=clean, recovery_point=point)
        assert (log.recovery_report.clean, log.recovery_report.segments_read) == (clean is not False, segments)
        log.close()
    abandon(Log.open(path, "a"))
    # Nothing was changed, so nothing is to be recovered.
    with Log.open(path, "a") as log:
        assert log.recovery_report.clean


def test_untouched_logs_are_left_without_a_trace(tmp_path: Path) -> None:
    """Opening a clean log and closing it changes no file but the lock file; reading through it neither."""
    path = filled(tmp_path / "orders-0", 6, segments=3)
    before = tree(path, without=(LOCK,)), times(path)
    for _ in range(3):
        with Log.open(path, "a") as log:
            log.scan().count()
            log.get(3)
            str(log.locate(5))
            log.offset_for_timestamp(NOW)
            log.fetch(0)
            assert not log.truncate_to(12)
            assert not log.delete_records_before(0)
            log.flush()
            assert log.recovery_report.clean
        assert (tree(path, without=(LOCK,)), times(path)) == before


def test_a_crash_between_two_processes_is_no_secret(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    program = "import os, sys, offsetlog; log = offsetlog.Log.open(sys.argv[1], 'a'); log.append(b'x'); os.kill(os.getpid(), 9)"
    with pytest.raises(AssertionError):
        python(program, path)
    assert not recover(path).clean
    with Log.open(path, "a") as log:
        assert (log.recovery_report.clean, values(log)[-1]) == (True, b"x")


def test_a_partition_of_0_7_is_left_alone(tmp_path: Path) -> None:
    """A log of today in it would hide what is there."""
    path = partition(tmp_path / "clicks-7", [message(b"one")])
    before = tree(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(LogDirError, match="offsetlog convert"):
            recover(path, dry_run=dry_run)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("gathers", [False, True])
def test_a_gap_that_was_found_stays_when_its_finder_is_killed(tmp_path: Path, *, gathers: bool) -> None:
    """Not so one that nobody knew of: that may be bytes lost with the power."""
    path = tmp_path / "orders-0"
    with Log.open(path, "a", {"internal.segment.bytes": 100}, clock=Clock()) as log:
        log.append(b"before")
        log.append_as_follower(coded(b"behind", base_offset=5))
        assert [segment.base_offset for segment in log.segments] == [0, 5]
    # As a broker leaves it that was killed before it wrote a recovery point down.
    (path / STATE).unlink()
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    opening = f"LogDir.open({str(tmp_path)!r}, 'a').log('orders', 0)" if gathers else f"Log.open({str(path)!r}, 'a')"
    for _ in range(2):
        python(f"import os; from offsetlog import Log, LogDir; log = {opening}; print(log.log_end_offset, flush=True); os._exit(0)")
    with Log.open(path, "a", clock=Clock()) as log:
        assert (offsets(log), log.recovery_report.cut) == ([0, 5], ())


def test_what_was_tidied_is_told_by_name(tmp_path: Path) -> None:
    """File systems list files in any order, and two reports of the same directory are to be the same."""
    path = filled(tmp_path / "orders-0", 6, segments=3)
    names = [f"{number:020}.log.deleted" for number in range(100, 160)]
    for name in sorted(names, reverse=True):
        (path / name).touch()
    told = [step.partition(" ")[0] for step in recover(path).tidied]
    assert [name for name in told if name in names] == names
