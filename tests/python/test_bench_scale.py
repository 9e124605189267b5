"""The pure parts of `make bench-scale`: figures with prefixes, tables, stored curves, growth."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "benches" / "python"
DRAWN = Path(__file__).resolve().parents[2] / "docs" / "guides" / "curves"


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the benches; they are scripts beside each other and no package."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("curves")


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
