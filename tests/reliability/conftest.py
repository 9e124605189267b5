"""Rows that the budget leaves to ``make proof`` are marked here, so that their tier stands in one place."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test of a row whose tier is ``proof``."""
    budget = tomllib.loads((ROOT / "tests/reliability/budget.toml").read_text(encoding="utf-8"))["row"]
    later = {ROOT / path for row in budget if row.get("tier") == "proof" for path in row["tests"]}
    for item in items:
        if item.path in later:
            item.add_marker(pytest.mark.proof)
