"""The pure parts of `make bench`: verdicts against floors, also of the machine's limit, whose floors hold for which line, rounds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Bench = Callable[[str], ModuleType]
SCRIPTS = Path(__file__).resolve().parents[2] / "benches" / "python"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A module of the benches by its name; they are scripts beside each other and no package."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


@pytest.mark.parametrize(
    ("goal", "ratio", "verdict"),
    [
        ("times", 3, "target"),
        ("times", 1.5, "floor"),
        ("times", 1, "NO (67% of floor)"),
        ("share", 0.25, "target"),
        ("share", 0.5, "floor"),
        ("share", 1, "NO (50% of floor)"),
    ],
)
def test_a_verdict_is_the_ratio_beside_floor_and_target(bench: Bench, goal: str, ratio: float, verdict: str) -> None:
    (peer, ours), bounds = ((ratio, 1.0), (1.5, 3)) if goal == "times" else ((1.0, ratio), (0.5, 0.25))
    assert bench("figures").Row(1, "scan", "Kafka", [peer], [ours], str, goal, *bounds).verdict == verdict


@pytest.mark.parametrize(
    ("ours", "reached", "ratio"),
    [
        # The limit is 1.6 times the peer: 0.95 of it are 1.52, 0.85 are 1.36.
        (1.0, "target", "1.60x"),
        (1.05, "target", "1.52x"),
        (1.06, "floor", "1.51x"),
        (1.17, "floor", "1.37x"),
        (1.19, "NO (99% of floor)", "1.34x"),
        (1.6, "NO (74% of floor)", "1.00x"),
    ],
)
def test_a_floor_may_be_a_part_of_the_limit_of_the_same_run(bench: Bench, ours: float, reached: str, ratio: str) -> None:
    figures = bench("figures")
    row = figures.Row(4, "scan", "Kafka", [1.6] * 3, [ours] * 3, str, "times", 0.85, 0.95, [0.9, 1.0, 1.1], of_limit=True)
    shown = dict(zip(figures.HEADINGS, figures.cells(row), strict=True))
    expected = {"ratio": ratio, "floor": ">= 0.85 of limit", "target": ">= 0.95 of limit", "reached": reached, "limit here": "1.60x"}
    assert {name: shown[name] for name in expected} == expected


def test_without_a_limit_a_part_of_it_is_not_judged(bench: Bench) -> None:
    row = bench("figures").Row(4, "scan", "Kafka", [1.0], [1.0], str, "times", 0.85, 0.95, of_limit=True)
    assert row.verdict == "no limit"


@pytest.mark.parametrize(
    ("wall", "cpu", "reached"),
    [
        # Sending alone takes 1 s and 0.5 s of CPU, Kafka 3 s and 2 s.
        (1.24, 0.59, ["target", "target", "floor", "target"]),
        (1.3, 0.7, ["target", "NO (96% of target)", "floor", "NO (86% of target)"]),
        (2.0, 1.2, ["floor", "NO (62% of target)", "NO (83% of floor)", "NO (50% of target)"]),
        (2.5, 0.4, ["NO (92% of floor)", "NO (50% of target)", "floor", "target"]),
    ],
)
def test_raw_fetches_are_also_judged_by_what_only_sends(bench: Bench, wall: float, cpu: float, reached: list[str]) -> None:
    rows = bench("serve_rows")
    sides = [rows.Costs([seconds] * 3, [cost] * 3) for seconds, cost in ((3.0, 2.0), (wall, cpu), (1.0, 0.5))]
    found = list(rows.raw_fetches(*sides, 1_000_000_000))
    assert [row.verdict for row in found] == reached
    shown = [dict(zip(bench("figures").HEADINGS, bench("figures").cells(row), strict=True)) for row in found]
    bounds = [(">= 1.3x", ">= 2x"), ("", ">= 0.8 of limit"), ("<= 0.5x", ""), ("", "<= 1.2 of limit")]
    assert [(each["floor"], each["target"]) for each in shown] == bounds
    assert {each["limit here"] for each in shown} == {"3.00x", "0.25x"}


def test_only_scans_that_read_long_values_are_judged_by_the_limit(bench: Bench) -> None:
    """And for each of them the limit is measured."""
    found = [each for each in bench("engine").scans(bench("data").Sizes(64, 256, 1024)) if each.of_limit]
    assert [each.work for each in found] == ["scan none 1000 B, owned", "scan none 10000 B, owned"]
    assert all((each.limit, each.floor, each.target) == ("limit", 0.85, 0.95) for each in found)


def test_bare_reads_of_headers_bound_what_reads_each_header_by_itself(bench: Bench) -> None:
    """Small batches are read many at a time, and a map needs no read."""
    headers = [each for each in bench("engine").scans(bench("data").Sizes(64, 256, 1024)) if each.row == 1]
    bounded = [(each.work, each.limit) for each in headers if each.limit is not None]
    assert (len(headers), bounded) == (4, [("headers, 64 KiB batches, owned", "headers-limit")])


def test_appends_from_python_have_floors_beside_aiokafkas_builder(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = bench("interpreter_rows")

    def lines(command: list[str], _seconds: int) -> Iterator[dict[str, Any]]:
        for work in command[command.index("--works") + 1 :]:
            peers = {name: [0.9] for name in ("aiokafka", "kafka-python", "file")}
            yield {"work": work, "count": 1, "ours": [1.0], "peers": peers}

    monkeypatch.setattr(rows, "json_lines", lines)
    monkeypatch.setattr(rows, "imports", lambda *_: "1")
    monkeypatch.setattr(rows, "environment", lambda _: {})
    monkeypatch.setattr(rows, "written_directory", lambda: tmp_path / "scratch")
    kafka = SimpleNamespace(log=lambda _: SimpleNamespace(ours=tmp_path))
    found = list(rows.python_appends(kafka, bench("data").Sizes(64, 256, 1024), 3, {13, 14, 16}))
    judged = {(row.number, row.work, row.peer_name, row.floor, row.target, row.verdict) for row in found if row.floor is not None}
    assert judged == {
        (13, "Python writer.append, none 100 B", "aiokafka builder", 0.8, 1, "floor"),
        (16, "Python append, none 100 B", "aiokafka builder", 0.8, 1, "floor"),
    }
    assert len(found) == 3 * (1 + 3 + 2)


@pytest.mark.parametrize(("words", "rounds"), [([], 7), (["--rounds", "3"], 3), (["--rounds", "11"], 11)])
def test_as_many_rounds_as_asked_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], rounds: int
) -> None:
    monkeypatch.delenv("BENCH_ROUNDS", raising=False)
    run = bench("run")
    asked = []

    def measure(_wanted: set[int], rounds: int, _memory: list[str]) -> list[object]:
        asked.append(rounds)
        return []

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "BUILD", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "--rows", "1", *words])
    assert run.main() == 0
    assert asked == [rounds]


def test_no_round_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--rounds", "0"])
    with pytest.raises(SystemExit):
        bench("run").main()
    assert "--rounds 0: one at least" in capsys.readouterr().err


@pytest.mark.parametrize(("rounds", "slow"), [(1, 1), (2, 2), (3, 3), (7, 3), (11, 5)])
def test_slow_rows_make_half_as_many_rounds(bench: Bench, rounds: int, slow: int) -> None:
    beside = bench("beside")
    both = beside.BesideKafka.__new__(beside.BesideKafka)
    both.rounds = rounds
    took = bench("processes").Round(1, 1, 1, 1, 1, 1, 1)
    assert [len(both.turns((), lambda: took, lambda: took, "", slow=is_slow).ours) for is_slow in (False, True)] == [rounds, slow]
