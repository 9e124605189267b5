"""``restore`` again where an earlier call restored all or some: it tells the same as that one, which may have been killed before it told."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN_LOG_DIRS, DATA, OLD
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
