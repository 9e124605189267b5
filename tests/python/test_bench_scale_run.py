"""`make bench-scale` at a tiny scale: each curve is measured, prints a table and is drawn, with a point for each size."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "benches" / "python"
OURS = Path(os.environ.get("OFFSETLOG_OURS", ROOT / "target/debug/ours"))
PAINTER = Path(os.environ.get("OFFSETLOG_PAINTER", ROOT / ".venv-bench/bin/python"))
SVG = "{http://www.w3.org/2000/svg}"

# What scale.py measures by itself takes two hours and 40 GB: the same with a few sizes, small ones, and fewer rounds.
TINY = {
    "ROUNDS": 1,
    "QUERIES": 50,
    "COLD_QUERIES": 5,
    "SCAN_SEGMENT": 200_000,
    "SCAN_GB": (0.0002, 0.0006),
    "SEGMENT_COUNTS": (1, 10),
    "SEGMENT_BYTES": (1 << 10, 1 << 15),
    "PARTITION_COUNTS": (2, 5),
    "TASK_COUNTS": (1, 2),
    "SPARK_ROWS": 1_000,
    "WINDOW_S": 1,
    "APPENDS_PER_S": 20,
}
SECONDS = 2
# Points on each axis, and lines.
EXPECTED = {
    "scan": (2, 3),
    "lookup-count": (2, 6),
    "lookup-size": (2, 6),
    "open": (2, 3),
    "latency": (SECONDS, 9),
    "spark": (2, 3),
}


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script with small sizes and a folder of the test."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    found = importlib.import_module("scale")
    for name, value in TINY.items():
        assert hasattr(found, name)
        monkeypatch.setattr(found, name, value)
    for name in ("data", "interpreter_rows", "scale"):
        monkeypatch.setattr(importlib.import_module(name), "BUILD", tmp_path)
    monkeypatch.setattr(found, "FOLDER", tmp_path / "scale")
    monkeypatch.setattr(found, "MEMORY", importlib.import_module("curves").Curve("memory", "Memory", "size", "", "resident", "B"))
    monkeypatch.setattr(found, "build_ours", lambda: OURS)
    # Nothing here is about the disk, which others may keep busy.
    monkeypatch.setattr(os, "sync", lambda: None)
    return found


def points_drawn(path: Path) -> Counter[int]:
    """How many markers each line of a chart has; those of legend and axes are not within the frame."""
    root = ET.parse(path).getroot()  # noqa: S314  # our own chart
    assert root.tag == f"{SVG}svg"
    groups = (group.findall(f"{SVG}use") for group in root.iter(f"{SVG}g") if "clip-path" in group.attrib)
    return Counter(len(uses) for uses in groups if uses)


# A minute or more, a build and an environment that nothing else of the proof needs.
@pytest.mark.newest
@pytest.mark.proof
def test_every_curve_is_measured_told_and_drawn(
    scale: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for needed, how in ((OURS, "cargo build -p offsetlog-benches --bin ours"), (PAINTER, "make .venv-bench/ready")):
        if not needed.exists():
            pytest.skip(f"{needed} is missing: {how}")
    assert set(EXPECTED) == set(scale.CURVES)
    monkeypatch.setattr(sys, "argv", ["scale.py", "--minutes", str(SECONDS / 60)])
    assert scale.main() == 0
    told = capsys.readouterr().out
    folder = tmp_path / "scale"
    program = [PAINTER, SCRIPTS / "scale_charts.py", folder, tmp_path / "drawn"]
    drawn = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()
    curves = {curve.name: curve for curve in importlib.import_module("curves").stored(folder)}
    assert set(curves) == {*EXPECTED, "memory"}
    assert {Path(path).name for path in drawn} == {f"{name}.svg" for name in curves}
    for name, curve in curves.items():
        assert curve.table() in told
        assert Counter(len(line.points) for line in curve.series) == points_drawn(tmp_path / "drawn" / f"{name}.svg"), name
        assert all(cost > 0 for line in curve.series for _, cost in line.points), name
        # Heading, columns, rule, and a line for each size.
        assert len(curve.table().splitlines()) == 3 + len(curve.sizes())
        if name in EXPECTED:
            sizes, lines = EXPECTED[name]
            assert (len(curve.sizes()), len(curve.series)) == (sizes, lines), name
            assert all(len(line.points) == sizes for line in curve.series), name
