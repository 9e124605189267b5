"""Jobs and streams that began with the offsetlog of commit 87ffd2d continue with this one, run by Spark: each record is published once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from old_log_dirs import JOBS, STREAMS, holds, of_partition, stream_id, unpack
from programs import last_line
from pyspark.sql import SparkSession

from offsetlog import commits

PROGRAM = Path(__file__).with_name("old_stream_program.py")


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_continues(tmp_path: Path, name: str) -> None:
    place = unpack(name, tmp_path)
    found = json.loads(last_line(PROGRAM, folder=tmp_path))
    assert found == [[[[at // 2, f"in {at}"] for at in range(partition, records, 2)] for partition in range(2)] for records in (8, 14)]
    ((noted, last, is_published),) = [(note.name, note.sequence, note.is_published) for note in commits(place)]
    assert (noted, is_published) == (f"query {stream_id(tmp_path)}", True)
    # PySpark 4.0 may cut the same records into more micro-batches.
    assert (last or 0) >= 3
    assert not list(place.glob("*/offsetlog-staging"))


@pytest.mark.parametrize("name", [name for name in JOBS if name != "job-in-two-log-dirs"])
def test_a_job_is_published_once(spark: SparkSession, tmp_path: Path, name: str) -> None:
    place = unpack(name, tmp_path)
    frame = spark.range(30, numPartitions=3).selectExpr(
        "concat('k', id) key", "concat('job ', id) value", "cast(id % 3 as int) partition"
    )
    for _ in range(2):
        options = {"topic": "t", "transactionId": "day-1"}
        frame.write.format("offsetlog").mode("append").options(**options).save(str(place))
        assert holds(place, "t", 3) == [list(enumerate(of_partition(partition))) for partition in range(3)]
    assert [note.is_published for note in commits(place)] == [True]
    assert not list(place.glob("*/offsetlog-staging"))
