"""Spark Connect: the client has neither a JVM nor a SparkContext, and everything but what needs RDDs works."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from programs import last_line

from offsetlog import Log

PROGRAM = Path(__file__).with_name("connect_program.py")


@pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None,
    reason="what Spark Connect needs is installed beside the newest PySpark only: make test-spark",
)
def test_everything_works_without_a_jvm_in_the_client(tmp_path: Path) -> None:
    with Log.open(tmp_path / "logs/t-0", "a") as log:
        for number in range(10):
            log.append(b"%d" % number, timestamp=number - 1)
    (tmp_path / "driver").mkdir()
    found = json.loads(last_line(PROGRAM, tmp_path / "logs", tmp_path / "driver", folder=tmp_path / "driver"))
    assert found == {
        "kind": "pyspark.sql.connect.session",
        "read": 10,
        "scan": 10,
        "write": [5, 5],
        "lookup": ["0", "7"],
        "timestamp": [-1, 6],
        "stream": 10,
    }
