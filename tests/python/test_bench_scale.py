"""The pure parts of `make bench-scale`: figures with prefixes, tables, stored curves, growth, when appends are due."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "benches" / "python"


def script(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """A module of the benches; they are scripts beside each other and no package."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module(name)


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script(monkeypatch, "curves")


@pytest.fixture
def latency(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script(monkeypatch, "scale_latency")


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0, "s", "0 s"),
        (1.5, "s", "1.5 s"),
        (0.00123, "s", "1.23 ms"),
        (2.5e-6, "s", "2.5 us"),
        (4e-10, "s", "0.4 ns"),
        (0.9999, "s", "1 s"),
        (16e9, "B", "16 GB"),
        (100_000, "", "100 k"),
        (1, "", "1"),
    ],
)
def test_figures_have_three_digits_and_a_prefix(curves: ModuleType, value: float, unit: str, shown: str) -> None:
    assert curves.short(value, unit) == shown


def test_a_curve_is_stored_read_and_shown(curves: ModuleType, tmp_path: Path) -> None:
    curve = curves.Curve("scan", "Scan", "log", "B", "wall time", "s", machine="here")
    curve.line("warm").add(1e8, 0.01)
    curve.line("cold").add(1e8, 0.03)
    curve.line("warm").add(1e9, 0.1)
    assert [series.name for series in curve.series] == ["warm", "cold"]
    assert curves.read(curve.store(tmp_path)) == curve
    assert list(curves.stored(tmp_path)) == [curve]
    assert curve.table().splitlines() == [
        "Scan (wall time)",
        "log     warm    cold",
        "------  ------  -----",
        "100 MB  10 ms   30 ms",
        "1 GB    100 ms",
    ]


def test_growth_is_the_power_of_the_size(curves: ModuleType) -> None:
    curve = curves.Curve("c", "", "", "", "", "")
    for size in (1, 10, 100):
        curve.line("linear").add(size, 3 * size)
        curve.line("constant").add(size, 3)
        curve.line("quadratic").add(size, size * size)
    assert [curve.growth(line) for line in curve.series] == pytest.approx([1, 0, 2])


class Stalling:
    """A log whose calls take a millisecond by a clock of its own, and that stands still for some seconds at one of them."""

    def __init__(self, call: str, number: int, seconds: float) -> None:
        self.now = 1e6
        self.stall = (call, number, seconds)
        self.calls: dict[str, int] = {}

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def _take(self, name: str) -> None:
        call, number, seconds = self.stall
        is_stalled = (call, number) == (name, self.calls.get(name, 0))
        self.now += seconds if is_stalled else 0.001
        self.calls[name] = self.calls.get(name, 0) + 1

    def append(self, _value: bytes, /) -> None:
        self._take("append")

    def flush(self) -> None:
        self._take("flush")

    def maintain(self) -> None:
        self._take("maintain")


@pytest.mark.parametrize(
    ("call", "number", "seconds", "second_window"),
    [
        # The last append of the first window ends 5 s after the second one began, and what was due there waited for it.
        ("flush", 999, 5, 4.99),
        ("append", 999, 5, 4.99),
        # The first one of the second window.
        ("flush", 1000, 5, 5),
        # Outside of every append: from the end of the last one, 8 ms before the second window.
        ("maintain", 0, 3, 2.99),
        # Longer than a window.
        ("flush", 999, 25, 24.99),
    ],
)
def test_a_stall_meets_all_that_was_due_meanwhile(
    latency: ModuleType, call: str, number: int, seconds: float, second_window: float
) -> None:
    """Appends that a stall holds up at a window's edge are late in the next window, as many as were due."""
    log = Stalling(call, number, seconds)
    found = list(latency.windows(log, 60, 10, 100, log.clock, log.sleep))
    assert [(window.second, len(window.whole)) for window in found] == [(second, 1000) for second in range(10, 70, 10)]
    assert log.calls == {"append": 6000, "flush": 6000, "maintain": 5}
    costs = [window.costs() for window in found]
    assert costs[1]["both, from when due, p99.9"] == pytest.approx(second_window, abs=0.02)
    # Each append that was due more than a second before the end of the stall.
    late = sum(cost > 1 for cost in found[1].whole)
    assert late >= min(1000, 100 * (seconds - 1))
    assert costs[-1]["both, from when due, p99.9"] == pytest.approx(0.002)
    # A window that was due while all stood still is full as the others are.
    if seconds > 20:
        assert costs[2]["both, from when due, p50"] > 10


def test_what_never_began_is_late_too(latency: ModuleType) -> None:
    """The end of the time comes in a stall: what was due has waited at least until the stall ended."""
    log = Stalling("flush", 1500, 15)
    found = list(latency.windows(log, 20, 10, 100, log.clock, log.sleep))
    assert [len(window.whole) for window in found] == [1000, 1000]
    assert len(found[1].appends) == 501
    # Due at 15 s, done at 30 s; the one due at 20 s waited for 10.
    assert max(found[1].whole) == pytest.approx(15, abs=0.01)
    assert min(found[1].whole[500:]) == pytest.approx(10.01, abs=0.01)


def test_a_window_without_an_append_has_no_quantiles_of_calls(latency: ModuleType) -> None:
    log = Stalling("flush", 999, 100)
    found = list(latency.windows(log, 30, 10, 100, log.clock, log.sleep))
    assert set(found[2].costs()) == {f"both, from when due, {part}" for part in ("p50", "p99", "p99.9")}
