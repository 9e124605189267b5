"""``restore`` again where an earlier call restored all or some: it tells the same as that one, which may have been killed before it told."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA, OLD
from restoring import SOURCES, formatted, states_of
from test_restore_cut_in_a_hole import UNTIL, WHOLE, cut_off, replica

from offsetlog import Log, RestoreReport, restore
from offsetlog._offsetlog import run_cli

TORN = DATA / "kafka-4.3.0" / "torn" / "log-dir-1"


def told(report: RestoreReport) -> RestoreReport:
    """All of it but what was there."""
    partitions = tuple(each._replace(state="") for each in report.partitions)
    return report._replace(partitions=partitions)


def call(sources: Sequence[Path], into: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], str]:
    code = run_cli(["offsetlog", "restore", *map(str, sources), "--into", str(into), *words], [])
    out, err = capfd.readouterr()
    return code, [line for line in out.splitlines() if not line.endswith((", and read back", "already, record for record"))], err


def test_losses_are_told_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = call([TORN], tmp_path / "cli", capfd)
    assert (first[0], sum(line.startswith("  lost:") for line in first[1])) == (3, 4)
    assert call([TORN], tmp_path / "cli", capfd) == first
    report = restore(TORN, tmp_path / "new")
    assert report.has_losses
    again = restore(TORN, tmp_path / "new")
    assert states_of(again) == {"there"}
    assert told(again) == told(report)


@pytest.mark.parametrize("number", range(0, 10, 3))
def test_a_call_after_one_that_was_killed_tells_of_all(number: int, tmp_path: Path) -> None:
    """It had restored some partitions."""
    report = restore(TORN, tmp_path / "new")
    for each in report.partitions[number:]:
        shutil.rmtree(each.into[0].path)
    again = restore(TORN, tmp_path / "new")
    assert [each.state for each in again.partitions] == ["there"] * number + ["restored"] * (len(report.partitions) - number)
    assert told(again) == told(report)


def test_open_transactions_are_told_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With the commands that end them."""
    ends = tmp_path / "ends"
    ends.write_text("g-txn,0,12\n")
    words = ["-t", "g-txn", "-t", "__transaction_state", "--new-cluster", "--offsets", str(ends)]
    into = formatted(tmp_path / "cli")
    first = call(SOURCES, into, capfd, *words)
    assert any("end-transaction" in line for line in first[1])
    assert call(SOURCES, into, capfd, *words) == first


def of_replicas(place: Path) -> tuple[Any, dict[str, Any]]:
    return [replica(place / "a", node=1, lacks=32), replica(place / "b", node=2, lacks=64)], {}


def of_replicas_up_to_a_time(place: Path) -> tuple[Any, dict[str, Any]]:
    return of_replicas(place)[0], {"until": UNTIL}


def of_a_file_that_recovery_kept(place: Path) -> tuple[Any, dict[str, Any]]:
    return cut_off(place / "old"), {}


def with_a_lost_end(place: Path) -> tuple[Any, dict[str, Any]]:
    """The high watermark is beyond the end."""
    source = replica(place / "a", node=1, lacks=64)
    (source / "replication-offset-checkpoint").write_text(f"0\n1\n{WHOLE} 0 96\n")
    return source, {}


def of_nothing_but_a_lost_end(place: Path) -> tuple[Any, dict[str, Any]]:
    source = place / "old"
    with Log.open(source / "orders-0", "a"):
        pass
    (source / "replication-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    return source, {}


def of_old_messages(_: Path) -> tuple[Any, dict[str, Any]]:
    return OLD / "broker-1", {"topics": "o-v1-*"}


def of_open_transactions(_: Path) -> tuple[Any, dict[str, Any]]:
    return CLEAN_LOG_DIRS, {"topics": "g-txn*", "ends": {("g-txn", 0): 12}}


@pytest.mark.parametrize(
    "source",
    [
        of_replicas,
        of_replicas_up_to_a_time,
        of_a_file_that_recovery_kept,
        with_a_lost_end,
        of_nothing_but_a_lost_end,
        of_old_messages,
        of_open_transactions,
    ],
)
def test_a_second_call_tells_the_same(source: Callable[[Path], tuple[Any, dict[str, Any]]], tmp_path: Path) -> None:
    """What was lost, what came back and what was left there; where the log ends."""
    sources, how = source(tmp_path)
    report = restore(sources, tmp_path / "new", **how)
    again = restore(sources, tmp_path / "new", **how)
    assert states_of(report) == {"restored"}
    assert states_of(again) == {"there"}
    assert told(again) == told(report)
    assert report.has_losses == source.__name__.endswith("_lost_end")


def timed(path: Path, count: int) -> Path:
    with Log.open(path / "t-0", "a") as log:
        for number in range(count):
            log.append(b"value", timestamp=1000 + number)
    return path


def test_a_later_time_is_refused_by_the_plan_as_by_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing can fill the target's log up to there: a dry run says so too."""
    source, into = timed(tmp_path / "old", 40), tmp_path / "new"
    assert call([source], into, capfd, "--until", "1010")[0] == 0
    for more in (["--dry-run"], []):
        code, lines, _ = call([source], into, capfd, "--until", "1022", *more)
        assert code == 2
        assert any("has the offsets 0 to 10 already, and offsets 0 to 22 are to be restored" in line for line in lines)


def test_what_was_cut_off_comes_back_into_an_empty_partition(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Recovery cut the log at its first batch. The target's partition was made, and never had a record."""
    source, into = timed(tmp_path / "old", 10), tmp_path / "new"
    (file,) = (source / "t-0").glob("*.log")
    text = bytearray(file.read_bytes())
    text[64:66] = b"UU"
    file.write_bytes(text)
    (source / "t-0" / ".offsetlog.state").unlink()
    assert run_cli(["offsetlog", "recover", str(source / "t-0")], []) in (0, 3)
    capfd.readouterr()
    with Log.open(into / "t-0", "a") as log:
        assert log.log_end_offset == 0
    code, lines, _ = call([source], into, capfd)
    assert code in (0, 3)
    assert any("taken back: 9 records at offsets 1 to 9" in line for line in lines), lines


def test_batches_without_records_have_no_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A restore up to a time in a lost segment ends with one. It is restored, and cut, as any other."""
    source = tmp_path / "old"
    with Log.open(source / "t-0", "a", config={"internal.segment.bytes": 400}) as log:
        for number in range(40):
            log.append(b"value", timestamp=1000 + number)
        lost = [segment.base_offset for segment in log.segments if 10 < segment.base_offset < 25]
    for base in lost:
        for path in (source / "t-0").glob(f"{base:020}.*"):
            path.unlink()
    assert call([source], tmp_path / "cut", capfd, "--until", str(1000 + lost[0] + 2))[0] == 3
    with Log.open(tmp_path / "cut" / "t-0", "a") as log:
        records = len(list(log.scan()))
        assert log.log_end_offset > records
    code, _, err = call([tmp_path / "cut"], tmp_path / "again", capfd, "--until", "2000")
    assert (code, err) == (0, "")
    with Log.open(tmp_path / "again" / "t-0") as log:
        assert len(list(log.scan())) == records


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_log_dir_that_its_broker_will_recover_is_told(is_killed: bool, tmp_path: Path) -> None:
    """A killed restore leaves a log dir of a stopped broker without the mark of a clean stop, and nobody knows what happened since."""
    with Log.open(tmp_path / "old" / "g-empty-0", "a") as log:
        log.append(b"one")
    broker = shutil.copytree(CLEAN, tmp_path / "broker")
    into = [broker / "log-dir-1", broker / "log-dir-2"]
    marks = [each / ".kafka_cleanshutdown" for each in into]
    if is_killed:
        # What a restore leaves that is killed in its midst.
        epoch = marks[0].read_text()
        marks[0].unlink()
        (into[0] / "offsetlog-unclean").write_text(f"{epoch}\n*\n")
    report = restore(tmp_path / "old", into, single_replica=True, metadata=broker / "metadata-dir")
    assert states_of(report) == {"restored"}
    warned = ["no mark of a clean stop" in each and str(into[0]) in each for each in report.warnings]
    assert warned == [True] * is_killed
    assert [each.exists() for each in marks] == [not is_killed, True]
