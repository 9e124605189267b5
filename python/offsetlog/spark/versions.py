"""The classes of a stream's reader and writer that the installed PySpark knows: PySpark 4.0 cannot import those of later versions."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyspark.sql.datasource
from pyspark.sql.pandas.types import to_arrow_schema

from offsetlog.spark.sink import RowStreamWriter
from offsetlog.spark.stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
    from pyspark.sql.types import StructType

    from offsetlog.spark.sink_options import SinkSettings
    from offsetlog.spark.stream_options import StreamSettings

__all__ = ["stream_reader", "stream_writer"]


def stream_reader(settings: StreamSettings, not_null: Sequence[str] = ()) -> DataSourceStreamReader:
    """Return the reader with admission control, which begins with PySpark 4.2, or else the one without."""
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
        return StreamReader(settings, not_null)
    from offsetlog.spark.admission import AdmissionStreamReader  # noqa: PLC0415  # imports names of PySpark 4.2

    return AdmissionStreamReader(settings, not_null)


def stream_writer(settings: SinkSettings, columns: Sequence[str], schema: StructType) -> DataSourceStreamWriter:
    """Return the writer of Arrow batches, which begins with PySpark 4.1, or else the one of rows."""
    if hasattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter"):
        from offsetlog.spark.sink_arrow import ArrowStreamWriter  # noqa: PLC0415  # imports names of PySpark 4.1

        return ArrowStreamWriter(settings, columns)
    # Only here: newer versions ask for a time zone.
    return RowStreamWriter(settings, columns, to_arrow_schema(schema))
