"""The sink of a stream from PySpark 4.1 on, which hands over Arrow batches. In a module of its own, as 4.0 cannot import it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from offsetlog.spark.first_line import text_first
from offsetlog.spark.sink import StreamWriter, TaskMessage

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ArrowStreamWriter"]


class ArrowStreamWriter(StreamWriter, DataSourceStreamArrowWriter):
    """The sink of a stream."""

    @text_first
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskMessage:
        """Stage the rows of one task. Called on an executor, once for each task and each time that it is tried again."""
        return self.stage_named(iterator)
