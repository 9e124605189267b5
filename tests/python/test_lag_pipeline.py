"""``examples/consumer_lag.py`` against what Kafka's own dump tool decodes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("consumer_lag")


def test_groups_of_a_real_broker(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """The last commit of each group and partition, but those of a group that was deleted."""
    newest = {}
    lines = (DATA / "expected" / "kafka-4.3.0-clean" / "committed-offsets.jsonl").read_text(encoding="utf-8").splitlines()
    for line in map(json.loads, lines):
        newest[tuple(line["key"].values())] = line["payload"]
    ends = {(golden.topic, golden.partition): golden.end for golden in CLEAN_PARTITIONS}
    expected = [
        (*key, value["offset"], ends[key[1:]], ends[key[1:]] - value["offset"], value["commitTimestamp"], value["metadata"])
        for key, value in sorted(newest.items())
        if value is not None
    ]
    assert len(expected) == 8
    found = script.lags(CLEAN_LOG_DIRS)
    assert [(*lag[:6], int(lag.committed_at.timestamp() * 1000), lag.metadata) for lag in found] == expected
    script.main([*map(str, CLEAN_LOG_DIRS), "--groups", "2$"])
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 5
    assert told[2].split() == ["g-group-2", "g-plain", "0", "19", "200", "181", "2026-11-21T04:05:16.376+00:00", "note", "é", "2"]
