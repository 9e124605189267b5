"""Spark Connect: the client has neither a JVM nor a SparkContext, and everything but what needs RDDs works."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from offsetlog import Log

PROGRAM = Path(__file__).with_name("connect_program.py")


@pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None,
    reason="what Spark Connect needs is installed beside the newest PySpark only: make test-spark",
)
def test_everything_works_without_a_jvm_in_the_client(tmp_path: Path) -> None:
    with Log.open(tmp_path / "logs/t-0", "a") as log:
        log.append_records([b"%d" % number for number in range(10)])
    (tmp_path / "driver").mkdir()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "logs"), str(tmp_path / "driver")],
        capture_output=True,
        text=True,
        check=False,
        timeout=550,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYSPARK_DRIVER_PYTHON"},
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path / "driver",
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "kind": "pyspark.sql.connect.session",
        "read": 10,
        "scan": 10,
        "write": [5, 5],
        "lookup": ["0", "7"],
        "stream": 10,
    }
