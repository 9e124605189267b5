"""The demonstration runs on a real broker's directories and counts what a real consumer saw."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet
from golden import CLEAN_PARTITIONS

ROOT = Path(__file__).resolve().parents[2]


def test_demo_counts_what_a_consumer_saw(tmp_path: Path) -> None:
    """Every step says what it does, and the Parquet holds each committed record of the users' topics once."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for number in range(1, 9):
        assert f"[{number}/8]" in done.stdout
    assert "1. segment: " in done.stdout
    parquet = tmp_path / "records-by-hour.parquet"
    assert f"Parquet: {parquet}" in done.stdout
    table = pyarrow.parquet.read_table(parquet)
    found: Counter[str] = Counter()
    for topic, records in zip(table["topic"].to_pylist(), table["records"].to_pylist(), strict=True):
        found[topic] += records
    expected: Counter[str] = Counter()
    for golden in CLEAN_PARTITIONS:
        if not golden.topic.startswith("__") and golden.counts[1]:
            expected[golden.topic] += golden.counts[1]
    assert found.pop("orders") == 20_003, "what the demonstration appended itself"
    assert found == expected
