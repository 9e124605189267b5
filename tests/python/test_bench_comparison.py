"""The pure parts of `make bench COMPARE=...`: interval, verdict, how many pairs, whose turn it is, arguments."""

from __future__ import annotations

import importlib
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

Bench = Callable[[str], ModuleType]
# Classes of modules that are imported by name have no types here.
Beside = Any
Found = Any
SCRIPTS = Path(__file__).resolve().parents[2] / "benches" / "python"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A module of the benches by its name; they are scripts beside each other and no package."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


def noisy(middle: float, spread: float, pairs: int, seed: int) -> tuple[list[float], list[float]]:
    """Costs of an old and a new side with such a ratio."""
    draws = random.Random(seed)
    return [math.exp(draws.gauss(math.log(middle), spread)) for _ in range(pairs)], [1.0] * pairs


def test_quantiles_are_those_of_the_tables(bench: Bench) -> None:
    paired = bench("paired")
    known = {1: 12.706, 4: 2.776, 9: 2.262, 30: 2.042, 31: 2.040, 39: 2.023, 60: 2.000, 120: 1.980}
    assert {degrees: paired.t_quantile(degrees) for degrees in known} == pytest.approx(known, abs=1e-3)


def test_the_interval_is_the_t_interval_of_log_ratios(bench: Bench) -> None:
    found = bench("paired").interval([math.exp(0.1), math.exp(0.2), math.exp(0.3)], [1, 1, 1])
    half = 4.303 * 0.1 / math.sqrt(3)
    assert (found.ratio, found.low, found.high) == pytest.approx((math.exp(0.2), math.exp(0.2 - half), math.exp(0.2 + half)))
    assert found.pairs == 3


def test_swapped_sides_give_the_inverse(bench: Bench) -> None:
    old, new = noisy(1.3, 0.05, 12, seed=1)
    there, back = bench("paired").interval(old, new), bench("paired").interval(new, old)
    assert (1 / back.ratio, 1 / back.high, 1 / back.low) == pytest.approx((there.ratio, there.low, there.high))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.99, 1.02, "not slower"),
        (0.95, 0.99, "not slower"),
        (1.2, 1.3, "not slower"),
        (0.949, 0.999, "slower"),
        (0.85, 0.93, "slower"),
        (0.94, 1.0, "unclear: more rounds"),
        (0.5, 2.0, "unclear: more rounds"),
    ],
)
def test_verdicts(bench: Bench, low: float, high: float, verdict: str) -> None:
    assert bench("paired").Interval(math.sqrt(low * high), low, high, 10).verdict == verdict


def test_only_the_spread_asks_for_more_pairs(bench: Bench) -> None:
    paired = bench("paired")
    for spread in (0.005, 0.03, 0.04, 0.2):
        wanted = {paired.pairs_wanted([noisy(middle, spread, 10, seed=2)]) for middle in (0.5, 0.94, 1, 1.1)}
        assert len(wanted) == 1, spread
    quiet, loud = noisy(1, 0.001, 10, seed=3), noisy(1, 0.5, 10, seed=3)
    assert paired.pairs_wanted([quiet]) == 10
    assert paired.pairs_wanted([quiet, loud]) == paired.MOST_PAIRS
    assert paired.pairs_wanted([loud], 12) == 12


def intervals(paired: ModuleType, middle: float, spread: float, runs: int) -> list[Found]:
    """What runs would print that add pairs as they see need."""
    found = []
    for run in range(runs):
        old, new = noisy(middle, spread, paired.MOST_PAIRS, seed=run)
        pairs, wanted = 0, 10
        while pairs < wanted:
            pairs, wanted = wanted, paired.pairs_wanted([(old[:wanted], new[:wanted])])
        found.append(paired.interval(old[:pairs], new[:pairs]))
    return found


@pytest.mark.parametrize("spread", [0.01, 0.03, 0.05])
def test_intervals_hold_the_truth_though_pairs_are_added(bench: Bench, spread: float) -> None:
    found = intervals(bench("paired"), 1.0, spread, runs=200)
    # 95 of 100, but for what 200 runs scatter.
    assert statistics.fmean(each.low <= 1 <= each.high for each in found) > 0.92


def test_a_tenth_is_seen_and_nothing_is_not(bench: Bench) -> None:
    paired = bench("paired")
    assert {each.verdict for each in intervals(paired, 1 / 1.1, 0.03, runs=100)} == {"slower"}
    assert {each.verdict for each in intervals(paired, 1.0, 0.03, runs=100)} == {"not slower"}


def test_the_table_names_what_could_not_be_compared(bench: Bench) -> None:
    figures = bench("figures")
    row = figures.Row(3, "scan", "", [1.1, 1.11, 1.09], [1.0, 1.0, 1.0], figures.wall_seconds)
    text = figures.comparison([figures.NotCompared(28, "compaction", "not in abc: error"), row], "abc", "this tree")
    heading, _, first, second = text.splitlines()
    assert heading.split() == ["row", "work", "abc", "this", "tree", "ratio", "95", "%", "interval", "pairs", "verdict"]
    assert first.split()[:2] == ["3", "scan"]
    assert first.endswith("not slower")
    assert "1.100x" in first
    assert second.startswith("28   compaction")
    assert second.endswith("not in abc: error")


class Program:
    """Stands for a line program."""

    def __init__(self, name: str) -> None:
        self.name = name

    def restart(self) -> None:
        """Nothing to start."""


@pytest.fixture
def beside(bench: Bench) -> Beside:
    commits = bench("commits")
    sides = (commits.Side("abc", Path("old"), Path("old")), commits.Side("this tree", Path("new"), Path("new")))
    return commits.BesideCommit(*sides, bench("data").Sizes(1, 1, 1), 5)


def test_sides_take_turns_in_both_orders_and_start_anew_for_each_pair(bench: Bench, beside: Beside) -> None:
    asked: list[str] = []

    class Noted(Program):
        def restart(self) -> None:
            asked.append(f"new {self.name}")

        def answer(self) -> Found:
            asked.append(self.name)
            return bench("processes").Round(1.0, 1.0, 7, 8, 0.0, 0.0, 0)

    peer, ours = Noted("A"), Noted("B")
    turns = beside.turns((peer, ours), peer.answer, ours.answer, "work")
    assert (len(turns.peer), len(turns.ours)) == (10, 10)
    two_pairs = ["new A", "new B", *"AB", *"ABBA", "new A", "new B", *"BA", *"BAAB"]
    assert asked == two_pairs * 5


def test_what_the_other_commit_cannot_do_is_told(bench: Bench, beside: Beside, capsys: pytest.CaptureFixture[str]) -> None:
    processes = bench("processes")

    def refused(name: str) -> NoReturn:
        raise processes.RefusedError(Program(name), ("compact", "d"), "error no work is called compact")

    (line,) = beside.line(27, "compaction", lambda: refused("abc"))
    assert (line.number, line.work, line.why) == (27, "compaction", "not in abc: error no work is called compact")
    # An error of this tree is one.
    with pytest.raises(processes.BenchError, match="this tree, compact of d: error"):
        list(beside.line(27, "compaction", lambda: refused("this tree")))
    assert "row 27: compaction" in capsys.readouterr().out


def test_sides_that_differ_are_told_and_fail_the_run(bench: Bench, beside: Beside) -> None:
    processes = bench("processes")
    one, other = (processes.Round(1.0, 1.0, 7, total, 0.0, 0.0, 0) for total in (8, 9))
    programs = Program("A"), Program("B")
    (line,) = beside.line(3, "scan", lambda: [beside.turns(programs, lambda: one, lambda: other, "scan")])
    assert line.why == "the sides differ, see below"
    assert beside.different == ["row 3: scan: the peer met 7 with sum 8, ours 7 with sum 9"]


def test_rows_are_read_as_numbers_and_ranges(bench: Bench) -> None:
    run = bench("run")
    assert run.rows_of("1-3,20") == {1, 2, 3, 20}
    with pytest.raises(run.BenchError, match="no such row"):
        run.rows_of("99")
    with pytest.raises(run.BenchError, match="'x' is no row"):
        run.rows_of("3,x")


def test_an_unknown_commit_is_refused_before_anything_is_built(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, commits = bench("run"), bench("commits")
    monkeypatch.setattr(commits, "built", lambda *_, **__: pytest.fail("built"))
    monkeypatch.setattr("sys.argv", ["run.py", "--compare", "no-such-commit", "--rows", "3"])
    assert run.main() == 1
    assert "COMPARE=no-such-commit: no such commit" in capsys.readouterr().err
