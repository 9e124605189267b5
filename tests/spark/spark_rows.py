"""Rows of a Spark frame in the shape of ``golden``'s, to be compared with what a real consumer saw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from golden import CLEAN_LOG_DIRS, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

CLEAN_PATH = ",".join(map(str, CLEAN_LOG_DIRS))
ALL_COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType,headers,leaderEpoch"

PartitionRows = dict[tuple[str, int], list[Row]]


def reader(spark: SparkSession, **options: object) -> DataFrameReader:
    """A reader of the format with these options."""
    return spark.read.format("offsetlog").options(**options)  # type: ignore[arg-type]


def load(spark: SparkSession, path: str = CLEAN_PATH, **options: object) -> DataFrame:
    """A frame over the log dirs that a Kafka 4.3 broker wrote."""
    return reader(spark, **options).load(path)


def collected(frame: DataFrame) -> PartitionRows:
    """All rows by partition, in order of offsets. The frame holds ``ALL_COLUMNS``."""
    table = frame.toArrow()
    millis = [exact(micros) for micros in table["timestamp"].cast("int64").to_pylist()]
    partitions: PartitionRows = {}
    for fields, timestamp in zip(table.drop_columns(["timestamp"]).to_pylist(), millis, strict=True):
        partitions.setdefault((fields["topic"], fields["partition"]), []).append(
            Row(
                fields["offset"],
                timestamp,
                fields["timestampType"],
                fields["leaderEpoch"],
                fields["key"],
                fields["value"],
                header_pairs(fields["headers"]),
            )
        )
    return {partition: sorted(rows, key=lambda row: row.offset) for partition, rows in partitions.items()}


def exact(micros: int) -> int:
    """Milliseconds; Kafka has no finer ones."""
    millis, rest = divmod(micros, 1000)
    assert rest == 0
    return millis


def header_pairs(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    """Pairs of a ``headers`` value, which is null, never empty, for a record without any."""
    assert headers is None or headers
    return tuple((header["key"], header["value"]) for header in headers or ())


def offsets(frame: DataFrame) -> dict[tuple[str, int], list[int]]:
    """The offsets of each partition, in order."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in frame.select("topic", "partition", "offset").toArrow().to_pylist():
        found.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return {partition: sorted(numbers) for partition, numbers in found.items()}


def only(rows: Iterable[Row]) -> list[int]:
    """Offsets of `rows`."""
    return [row.offset for row in rows]
