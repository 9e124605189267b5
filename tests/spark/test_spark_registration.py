"""What ``register`` does beside making the format known."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyspark.sql.udf
import pytest
from pyspark.sql import SparkSession

import offsetlog.spark
from offsetlog import Log
from offsetlog.spark import registration


def test_a_stream_adds_nothing_to_what_all_streams_share(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark puts names into the environment of a source's class without a lock, one stream beside the other; they are there already.

    A map that two of them filled at once counts wrong, and all tasks fail with ``java.io.OptionalDataException`` from then on.
    """
    kept: list[Any] = []
    wrap = pyspark.sql.udf._wrap_function  # noqa: SLF001  # what is registered is told to nobody

    def keep(*arguments: Any) -> Any:  # noqa: ANN401  # Java's
        kept.append(wrap(*arguments))
        return kept[-1]

    monkeypatch.setattr(pyspark.sql.udf, "_wrap_function", keep)
    before = dict(spark.sparkContext.environment)
    offsetlog.spark.register(spark)
    assert spark.sparkContext.environment == before
    names = set(kept[0].envVars().keySet().toArray())
    with Log.open(tmp_path / "logs" / "t-0", "a") as log:
        log.append_records([b"a", b"b"])
    frame = spark.readStream.format("offsetlog").option("subscribe", "t").option("startingOffsets", "earliest")
    query = frame.load(str(tmp_path / "logs")).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert set(kept[0].envVars().keySet().toArray()) == names
    assert len(names) > len(before)


def test_what_other_threads_go_through_is_not_changed(spark: SparkSession) -> None:
    """A dictionary that gets a name while another thread goes through it is an error there: ``changed size during iteration``."""
    context = spark.sparkContext
    environment, before = context.environment, list(context.environment)
    names = iter(environment)
    inside: list[list[str]] = []

    def register() -> None:
        with registration._whole_environment(spark):  # noqa: SLF001  # the moment in between
            next(names, None)
            inside.append(list(context.environment))

    threads = [threading.Thread(target=register) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [set(found) for found in inside] == 2 * [{*before, *registration._ADDED}]  # noqa: SLF001  # as above
    assert context.environment is environment
    assert list(environment) == before
