"""Programs with a driver of their own: what their sessions share, and running them as processes.

They are for what the session of the other tests cannot be: killed, given another connector, a cluster's, or of another kind.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
# A JVM of a test lives for less time than the optimising compiler and several threads for garbage need to pay.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# What `spark_classes.py` writes into an environment: Spark's classes as a JVM has them in its memory.
CLASS_DATA = Path(sys.prefix) / "spark-classes.jsa"
JVM = f"{SHORT_LIVED} -XX:SharedArchiveFile={CLASS_DATA} -Xlog:cds=off" if CLASS_DATA.exists() else SHORT_LIVED


def session(name: str, warehouse: Path, settings: dict[str, str] | None = None, *, master: str = "local[2]") -> SparkSession:
    """A small session on this machine's own address, without a page, a bar or words on its output."""
    builder = SparkSession.builder.master(master).appName(f"offsetlog-{name}")
    common = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": JVM,
        "spark.executor.extraJavaOptions": JVM,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in (common | (settings or {})).items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def environment(**more: str) -> dict[str, str]:
    """What a driver and its workers need to find: this Python, the modules of the tests, this machine."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYSPARK_DRIVER_PYTHON"},
        "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **more,
    }


def outputs(program: Path | str, *arguments: object, folder: Path, seconds: float = 1700, **more: str) -> tuple[str, str]:
    """Run a program, a file or a text, in this folder; what it wrote to its output and to its error output.

    ``more`` are variables of its environment.
    """
    called = [str(program)] if isinstance(program, Path) else ["-c", program]
    done = subprocess.run(
        [sys.executable, *called, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env=environment(**more),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout, done.stderr


def last_line(program: Path | str, *arguments: object, folder: Path, seconds: float = 1700, **more: str) -> str:
    """Run a program as :func:`outputs` does; the last line of its output, empty if it has none."""
    text, _ = outputs(program, *arguments, folder=folder, seconds=seconds, **more)
    return (text.splitlines() or [""])[-1]
