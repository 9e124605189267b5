"""One real Spark session for all tests here: two task slots, this machine only, the workers run this very interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# `golden` (what a real broker and consumer said of the directories in tests/data) lies beside the tests of the Python API.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
# A real broker is started as in the tests of brokers.
sys.path.append(str(Path(__file__).resolve().parents[1] / "broker"))

pytest.importorskip("pyspark")

# Workers would else run the `python3` of PATH, where neither offsetlog nor the right PySpark may be.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
# For the daemon of workers, see `preloaded_daemon`.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])])

import pyspark
from programs import session  # the environment comes first
from pyspark.sql import SparkSession

# What `make test` runs of these tests: every way to read and to write, once. All others are left to `make proof`.
REPRESENTATIVE = {
    "test_spark_direct.py",
    "test_spark_golden.py",
    "test_spark_registration.py",
    "test_spark_sink.py",
    "test_spark_stream_queries.py",
    "test_spark_write.py",
}

# What no version of PySpark does in its own way: clusters, workers and drivers that die, log dirs and checkpoints of earlier releases, the
# demonstration, pipelines of other tools; and log dirs that are hostile, damaged, truncated, partly away or changed meanwhile, of which our
# own code decides. `make proof` runs them on the newest PySpark, `make soak` on every one.
NEWEST = {
    "test_examples.py",
    "test_pipelines.py",
    "test_spark_cluster.py",
    "test_spark_connect.py",
    "test_spark_data_loss.py",
    "test_spark_drivers.py",
    "test_spark_folders.py",
    "test_spark_given.py",
    "test_spark_gone_partitions.py",
    "test_spark_hostile.py",
    "test_spark_known_epochs.py",
    "test_spark_no_trace.py",
    "test_spark_old_log_dirs.py",
    "test_spark_published_once.py",
    "test_spark_report.py",
    "test_spark_stream_crashes.py",
    "test_spark_stream_kills.py",
    "test_spark_truncated.py",
    "test_spark_upkeep.py",
    "test_spark_workers.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out, and what `make proof` leaves out on an older PySpark."""
    here = Path(__file__).resolve().parent
    for item in items:
        if item.path.parent == here and item.path.name not in REPRESENTATIVE:
            item.add_marker(pytest.mark.proof)
        if item.path.parent == here and item.path.name in NEWEST:
            item.add_marker(pytest.mark.newest)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session; ``offsetlog`` is not registered with it, so it has to be found by name."""
    settings = {"spark.sql.shuffle.partitions": "2"}
    if not pyspark.__version__.startswith("4.0."):
        settings["spark.python.daemon.module"] = "preloaded_daemon"
    made = session("tests", tmp_path_factory.mktemp("warehouse"), settings)
    yield made
    made.stop()


@pytest.fixture
def lock_holder() -> Iterator[Callable[[Path], None]]:
    """Holds a log dir's ``.lock`` as a broker does, in a process of its own: a process does not see its own locks."""
    started: list[subprocess.Popen[bytes]] = []

    def hold(log_dir: Path) -> None:
        code = (
            "import fcntl, sys, time\n"
            "file = open(sys.argv[1], 'w')\n"
            "fcntl.lockf(file, fcntl.LOCK_EX)\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n"
        )
        process = subprocess.Popen([sys.executable, "-c", code, str(log_dir / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"

    yield hold
    for process in started:
        process.communicate(b"")
