"""Writes on a cluster of two executors, with tasks that fail, are tried again, and run twice at once.

Arguments: the master's address, the log dir, a folder of its own.

Prints one line of JSON: how often attempts failed, and how many tasks had a second attempt beside the first.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow
from programs import session
from pyspark import TaskContext

import offsetlog.spark

TASKS, ROWS = 12, 50
SLOW, FAILING = {3}, {1, 5, 9}


COMPANY_SECONDS = 900
"""How long a slow attempt waits for its second one, which comes when Spark finds that it takes long."""


def wait_for_company(folder: str, task: int) -> None:
    """Go on once another attempt of this task has begun."""
    end = time.monotonic() + COMPANY_SECONDS
    while len(list(Path(folder).glob(f"{task}-*"))) < 2 and time.monotonic() < end:  # itself and the other
        time.sleep(0.1)


def troubled(folder: str, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Pass rows on; some first attempts are slow and write on beside their second one, others fail in the middle."""
    context = TaskContext.get()
    assert context is not None
    task, attempt = context.partitionId(), context.attemptNumber()
    Path(folder, f"{task}-{attempt}-{context.taskAttemptId()}").touch()
    for batch in batches:
        yield batch.slice(0, ROWS // 2)
        if task in FAILING and attempt == 0:
            raise RuntimeError("the first attempt fails")
        if task in SLOW and attempt == 0:
            wait_for_company(folder, task)
        yield batch.slice(ROWS // 2)


def main() -> None:
    """One job."""
    master, log_dir, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    settings = {
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.2",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.efficiency.enabled": "false",
    }
    spark = session("speculation", folder / "warehouse", settings, master=master)
    attempts = folder / "attempts"
    attempts.mkdir()
    place = str(attempts)
    rows = spark.range(0, TASKS * ROWS, 1, TASKS).selectExpr("cast(id as string) value")
    done = offsetlog.spark.write(
        rows.mapInArrow(lambda batches: troubled(place, batches), "value string"), log_dir, topic="t", partitions=2
    )
    started = [path.name.split("-") for path in attempts.iterdir()]
    again = {int(task) for task, attempt, _ in started if attempt != "0"}
    spark.stop()
    print(json.dumps({"records": done.records, "failed": sorted(again & FAILING), "twice": sorted(again & SLOW)}))


if __name__ == "__main__":
    main()
