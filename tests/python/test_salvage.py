"""``salvage``: what the consumer saw of sound directories, what a skipping scan reads of damaged ones, and what a shell user sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from frames import all_frames
from golden import PARTITIONS, Golden, named, row
from test_convert import check
from test_on_corrupt import ALL, DAMAGE, PARTITIONS as TORN, touched
from writing import environment, times, tree

from offsetlog import Log, LogDirError, recover, salvage


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
def test_sound_logs_lose_nothing(golden: Golden, tmp_path: Path) -> None:
    """Every partition of the brokers, old and new: offsets, times, headers, transactions and ends are what the consumer saw."""
    old = golden.copy(tmp_path / "old")
    before = tree(old), times(old)
    report = salvage(old, tmp_path / "new" / golden.name)
    assert (report.records, report.losses, report.loss_count) == (golden.counts[0], (), 0)
    assert (report.taken_back, report.left_out) == ((), ())
    assert (report.log_start_offset, report.log_end_offset) == (golden.start, golden.end)
    stable = golden.last_stable_offset
    assert report.first_unstable_offset == (stable if stable < golden.end else None)
    check(golden, Path(report.path))
    assert (tree(old), times(old)) == before


@pytest.mark.parametrize("name", DAMAGE)
def test_torn_logs_give_everything_but_the_damaged_batch(name: str, tmp_path: Path) -> None:
    """Of 96 records that the producer sent, those before and behind the damage; a broker's recovery gives the first ones only."""
    golden = TORN[name]
    old = golden.copy(tmp_path / "old")
    before = tree(old), times(old)
    dry = salvage(old, tmp_path / "new" / golden.name, dry_run=True)
    assert not (tmp_path / "new").exists()
    report = salvage(old, tmp_path / "new" / golden.name)
    assert report == dry._replace(dry_run=False)
    assert (tree(old), times(old)) == before
    with Log.open(old) as source, Log.open(report.path) as log:
        found = list(map(row, log.scan()))
        assert found == list(map(row, source.scan(on_corrupt="skip")))
        assert not log.verify().damaged
    holes, end = touched(golden), promised(golden)
    if holes:
        ((first, behind),) = holes
        assert [seen.offset for seen in found] == [*ALL[:first], *ALL[behind:]]
    lost: list[tuple[int, int | None]] = [*holes, *([(report.log_end_offset, end)] if end > report.log_end_offset else [])]
    if name == "g-torn-flip-magic-0":
        # Nobody can tell how long a batch of magic 9 is.
        lost = [(report.log_end_offset, None)]
    if name == "g-torn-gap-0":
        # Its second segment is gone, and the cleaner of its log dir has never touched it.
        lost = [(32, 64)]
    assert [(loss.start, loss.stop) for loss in report.losses] == lost
    assert [loss.records_max for loss in report.losses] == [None if stop is None else stop - start for start, stop in lost]
    assert report.loss_count == len(lost)
    assert [(loss.time_before, loss.time_after) for loss in report.losses] == [
        beside(golden, loss.start, loss.stop) for loss in report.losses
    ]
    with Log.open(report.path, "a") as log:
        assert log.recovery_report.clean


def beside(golden: Golden, start: int, stop: int | None) -> tuple[int, int | None]:
    """The greatest timestamps of the batches before and behind these offsets: of the first of its records too, as the consumer saw them."""
    before = [frame for frame in all_frames(golden.directory) if frame.last_offset < start]
    # What is no batch, as half of one, begins nothing.
    behind = [frame for frame in all_frames(golden.directory) if stop is not None and (frame.base_offset or 0) >= stop]
    after = behind[0].max_timestamp if behind else None
    records = range(before[-1].base_offset or 0, before[-1].last_offset + 1)
    assert before[-1].max_timestamp == max(seen.timestamp for seen in golden.rows if seen.offset in records)
    return before[-1].max_timestamp, after


def promised(golden: Golden) -> int:
    """The high watermark that the broker stored of the partition."""
    lines = (golden.directory.parent / "replication-offset-checkpoint").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{golden.topic} {golden.partition} ")]
    return int(line.split()[-1])


def test_some_torn_logs_lack_what_was_acknowledged() -> None:
    """Else the test above shows less than it says."""
    lacking = {name for name, golden in TORN.items() if promised(golden) > golden.end}
    assert lacking == {"g-torn-cut-batch-0", "g-torn-cut-header-0"}


def test_an_end_that_was_acknowledged_is_told(tmp_path: Path) -> None:
    """Four records were cut off the active segment, and the high watermark was behind them."""
    source = TORN["g-torn-cut-batch-0"].directory
    done = offsetlog("salvage", source, "--into", tmp_path)
    assert done.returncode == 3
    assert "\n  lost: offsets 92 to 95, after " in done.stdout
    assert "the high watermark of its log dir is 96" in done.stdout
    assert "in all: at most 4 records lost, in 1 place\n" in done.stdout
    # Beside the new log nothing says so any more.
    with Log.open(tmp_path / source.name) as log:
        assert log.high_watermark == log.log_end_offset == 92
    again = offsetlog("salvage", tmp_path / source.name, "--into", tmp_path / "again")
    assert (again.returncode, "lost" in again.stdout) == (0, False)


def test_what_recovery_cut_comes_back(tmp_path: Path) -> None:
    """The broker's way cuts two thirds of this log; salvage gives them back, but for the damaged batch."""
    golden = TORN["g-torn-flip-old-0"]
    old = golden.copy(tmp_path / "old")
    ((first, behind),) = touched(golden)
    recover(old)
    with Log.open(old) as log:
        assert log.log_end_offset == first
    report = salvage(old, tmp_path / "new" / golden.name)
    with Log.open(report.path) as log:
        assert [seen.offset for seen in log.scan()] == [*ALL[:first], *ALL[behind:]]
    assert sum(taken.records for taken in report.taken_back) == len(ALL) - behind


def test_interrupts_errors_and_arguments(tmp_path: Path) -> None:
    golden = TORN["g-torn-none-0"]
    into = tmp_path / golden.name

    with pytest.raises(TypeError, match="progress must be callable, found int"):
        salvage(golden.directory, into, progress=7)  # type: ignore[arg-type]
    with pytest.raises(LogDirError, match="is not topic-partition"):
        salvage(tmp_path, tmp_path / "x-0")
    (tmp_path / "empty-0").mkdir()
    with pytest.raises(LogDirError, match=r"no \.log file found"):
        salvage(tmp_path / "empty-0", into)
    assert salvage(golden.directory, into).records == len(ALL)
    with pytest.raises(LogDirError, match="not empty"):
        salvage(golden.directory, into)


def test_progress_is_told_and_may_end_the_work(tmp_path: Path) -> None:
    """What it raises comes out, and nothing is left of the new directory."""
    with Log.open(tmp_path / "old/large-0", "a") as log:
        for _ in range(8):
            log.append(bytes(900_000))
    told: list[tuple[int, int]] = []
    report = salvage(tmp_path / "old/large-0", tmp_path / "new/large-0", progress=lambda done, total: told.append((done, total)))
    assert len(told) >= 3
    assert told == sorted(told)
    assert {total for _, total in told} == {report.bytes_written}

    def stop(done: int, total: int) -> None:
        raise RuntimeError(f"{done} of {total}")

    with pytest.raises(RuntimeError, match=" of "):
        salvage(tmp_path / "old/large-0", tmp_path / "again/large-0", progress=stop)
    assert list((tmp_path / "again").iterdir()) == []


def offsetlog(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), timeout=300)


def test_from_a_shell(tmp_path: Path) -> None:
    """A whole log dir: each partition is done, what is lost is said, the exit code tells, and the second call refuses."""
    log_dir = TORN["g-torn-none-0"].directory.parent
    done = offsetlog("salvage", "--json", log_dir, "--into", tmp_path / "new")
    assert done.returncode == 3, done.stderr
    lines = {line["topic"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert sorted(lines) == sorted(golden.topic for golden in TORN.values() if golden.directory.parent == log_dir)
    for topic, line in lines.items():
        with Log.open(line["path"]) as log:
            assert sum(1 for _ in log.scan()) == line["records"], topic
    assert lines["g-torn-flip-old"]["losses"][0]["records_max"] > 0
    again = offsetlog("salvage", "--json", log_dir, "--into", tmp_path / "new")
    assert again.returncode == 2
    assert all("not empty" in json.loads(line)["error"] for line in again.stdout.splitlines())
    one = offsetlog("salvage", log_dir, "--into", tmp_path / "one", "-t", "g-torn-none")
    assert (one.returncode, one.stderr) == (0, "")
    assert one.stdout.startswith("g-torn-none-0: 96 records salvaged into ")


def test_a_kept_file_reads_with_every_verb(tmp_path: Path) -> None:
    golden = TORN["g-torn-flip-old-0"]
    old = golden.copy(tmp_path / "old")
    cut = next(cut for cut in recover(old).cut if cut.had_batches and cut.position)
    assert cut.kept is not None
    shown = offsetlog("cat", "--on-corrupt", "skip", "-f", "%o\n", cut.kept)
    assert shown.returncode == 0, shown.stderr
    assert cut.offsets is not None
    assert [int(line) for line in shown.stdout.split()][-1] == cut.offsets[1]
    for verb in (("grep", "--on-corrupt", "skip", "."), ("verify",), ("dump",)):
        assert offsetlog(*verb, cut.kept).returncode in (0, 3), verb
    # Where it ends is behind damage, which is named, as in any log.
    assert "position 0, base offset" in offsetlog("ls", cut.kept).stderr
    with Log.open(cut.kept) as log:
        assert sum(1 for _ in log.scan(on_corrupt="skip")) == cut.records


def test_what_lies_behind_damage_and_before_the_next_batch_is_lost_too(tmp_path: Path) -> None:
    """The name of a segment says where damage before it ends, and it is empty."""
    (plain,) = named("g-plain-0")
    old = plain.copy(tmp_path / "old")
    segment = old / f"{62:020}.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    (old / f"{111:020}.log").write_bytes(b"")
    report = salvage(old, tmp_path / "new" / old.name)
    assert sum(loss.records_max or 0 for loss in report.losses) == len(plain.rows) - report.records
