"""What ``register`` does beside making the format known."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark.sql.udf
import pytest
import reading_calls
from pyspark.sql import SparkSession
from test_no_trace import traces
from writing import HOLD, running

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


def test_registering_looks_at_no_file(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a damaged log dir in which the program stands, while a broker has it. The second call is as the first."""
    place = reading_calls.made(tmp_path / "root")
    reading_calls.DAMAGES["a record"](place.root)
    monkeypatch.chdir(place.dirs[0])
    session = spark.newSession()
    # What is imported on the way is not meant.
    offsetlog.spark.register(spark.newSession())
    looked_at: list[str] = []
    hears = True

    def hear(event: str, arguments: Sequence[object]) -> None:
        if hears and (event == "open" or event.startswith("os.")):
            paths = [Path(each).resolve() for each in arguments if isinstance(each, str)]
            looked_at.extend(str(path) for path in paths if path.is_relative_to(place.root))

    before = traces(place.root)
    with running(HOLD, *(folder / ".lock" for folder in place.dirs)):
        # It stays for as long as the process does.
        sys.addaudithook(hear)
        for _ in range(2):
            offsetlog.spark.register(session)
        hears = False
    assert looked_at == []
    assert traces(place.root) == before
    assert session.read.format("offsetlog").option("subscribe", "g-txn").load(str(place.dirs[0])).schema.names[0] == "key"
